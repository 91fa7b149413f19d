//! Waiting for another process or thread.

use std::time::{Duration, Instant};

/// Limit of all waits. No verdict depends on it: it ends a test that would otherwise hang.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// The polling interval.
const TICK: Duration = Duration::from_millis(5);

/// Polls until it is `ready`.
///
/// # Panics
/// If it is not ready after [`PATIENCE`]; `what` names what was waited for.
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(TICK);
    }
}
