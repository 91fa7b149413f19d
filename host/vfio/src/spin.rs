//! Polling before sleeping: it is worth polling for a completion that arrives sooner than an
//! interrupt could.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flysch_api::machine::Instant;

/// Maximum time to poll after a doorbell. A read of flash takes longer, and then no time is spent
/// on polling; caches of devices, and devices without media, complete sooner.
const LIMIT: Duration = Duration::from_micros(50);

/// How long a thread that waits for a machine polls before sleeping.
///
/// While completions arrive within 50 microseconds of the last doorbell, it polls for that long;
/// once one has taken longer, it does not poll until a sleep was short again.
#[derive(Clone, Debug)]
pub struct Spin {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// When the doorbell was last rung, nanoseconds.
    rung: AtomicU64,
    /// How long to poll after that, nanoseconds.
    window: AtomicU64,
}

impl Spin {
    pub(crate) fn new() -> Self {
        let window = AtomicU64::new(LIMIT.as_nanos() as u64);
        Self { state: Arc::new(State { rung: AtomicU64::new(0), window }) }
    }

    /// The doorbell has been rung.
    #[inline]
    pub fn rang(&self, now: Instant) {
        self.state.rung.store(now.nanos(), Ordering::Relaxed);
    }

    /// Whether to continue polling instead of sleeping.
    pub(crate) fn looks(&self, now: Instant) -> bool {
        self.since_rung(now) < self.state.window.load(Ordering::Relaxed)
    }

    /// An interrupt ended a sleep.
    pub(crate) fn woke(&self, now: Instant) {
        let limit = LIMIT.as_nanos() as u64;
        let window = if self.since_rung(now) <= limit { limit } else { 0 };
        self.state.window.store(window, Ordering::Relaxed);
    }

    fn since_rung(&self, now: Instant) -> u64 {
        now.nanos().saturating_sub(self.state.rung.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::START.after_nanos(micros * 1000)
    }

    #[test]
    fn fast_devices_are_looked_for_and_slow_ones_slept_for() {
        let spin = Spin::new();
        spin.rang(at(100));
        assert!(spin.looks(at(149)) && !spin.looks(at(150)));
        // It answered 80 us after the doorbell: the next time nobody looks.
        spin.woke(at(180));
        spin.rang(at(200));
        assert!(!spin.looks(at(200)));
        // That one came soon, so the next is looked for.
        spin.woke(at(230));
        spin.rang(at(300));
        assert!(spin.looks(at(340)));
        // A handle's copy sees the same; a clock that is behind looks.
        assert!(spin.clone().looks(at(299)));
    }
}
