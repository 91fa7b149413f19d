//! Waiting for what another process or thread does.

use std::time::{Duration, Instant};

/// How long anything is waited for. No verdict hangs on it: it ends a test that would hang.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// How often is looked.
const TICK: Duration = Duration::from_millis(5);

/// Looks until it is `ready`.
///
/// # Panics
/// If it is not after [`PATIENCE`]; `what` says what was waited for.
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(TICK);
    }
}
