//! The real clock, for devices that have no model behind them: `null` and files.

use std::time::Duration;

use flysch_api::machine::{Clock, Instant, Wake};

/// Time from the processor's cycle counter, scaled to nanoseconds once at the start.
///
/// The first clock of a process takes a few tens of milliseconds to learn the counter's rate.
#[derive(Clone, Debug)]
pub struct RealClock {
    source: quanta::Clock,
    start: u64,
    nanos_per_tick: u64,
}

/// Binary places of the tick length.
const FRACTION_BITS: u32 = 32;

impl RealClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        let source = quanta::Clock::new();
        const SPAN: u64 = 1 << 40;
        let nanos = source.delta_as_nanos(0, SPAN);
        let nanos_per_tick = ((u128::from(nanos) << FRACTION_BITS) / u128::from(SPAN)) as u64;
        let start = source.raw();
        Self { source, start, nanos_per_tick }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    #[inline]
    fn now(&self) -> Instant {
        let ticks = self.source.raw().wrapping_sub(self.start);
        let nanos = (u128::from(ticks) * u128::from(self.nanos_per_tick)) >> FRACTION_BITS;
        Instant::from_nanos(nanos as u64)
    }

    /// Sleeps. Nothing here raises an interrupt, so without a deadline nothing can happen.
    fn wait(&self, until: Option<Instant>) -> Wake {
        let Some(until) = until else { return Wake::Idle };
        let nanos = until.nanos_since(self.now());
        if nanos > 0 {
            std::thread::sleep(Duration::from_nanos(nanos));
        }
        Wake::Deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_at_the_rate_of_the_systems_clock() {
        let clock = RealClock::new();
        let system = std::time::Instant::now;
        // Each reading lies between two of the system's clock, however long they take.
        let first = (system(), clock.now(), system());
        assert_eq!(clock.wait(Some(first.1.after_nanos(50_000_000))), Wake::Deadline);
        let last = (system(), clock.now(), system());
        let ours = last.1.nanos_since(first.1);
        let [least, most] = [last.0 - first.2, last.2 - first.0].map(|it| it.as_nanos() as u64);
        assert!(ours >= 50_000_000, "woke after {ours} ns");
        let close = least - least / 50..=most + most / 50;
        assert!(close.contains(&ours), "{ours} ns here, {least} to {most} ns there");
    }

    #[test]
    fn waiting_for_nothing_comes_back() {
        assert_eq!(RealClock::new().wait(None), Wake::Idle);
    }
}
