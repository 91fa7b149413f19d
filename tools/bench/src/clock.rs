//! The real clock, for devices that have no model behind them: `null` and files; and the time
//! that software takes, for hybrid clocks.

use core::cell::Cell;
use std::time::Duration;

use flysch_api::machine::{Clock, Instant, Wake};
use rustix::time::{ClockId, clock_gettime};

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

/// Time this thread really ran, nanoseconds: the cycle counter, less the pauses in which the
/// system ran something else. What software costs under a hybrid clock is counted with it, so that
/// a busy machine does not look like a slow driver.
#[derive(Debug)]
pub struct SoftwareClock {
    clock: RealClock,
    /// What it said last.
    last: Cell<u64>,
    /// Cycle counter's time when it was read last.
    read: Cell<u64>,
    /// Pauses found so far.
    paused: Cell<u64>,
    /// Cycle counter's time and the thread's processor time when they were last compared.
    compared: Cell<(u64, u64)>,
}

/// A longer step between two readings is suspected to hold a pause. Asking the system costs some
/// 200 ns, so it must stay rare; a time slice is a thousand times longer.
const SUSPECT_NANOS: u64 = 5_000;

impl SoftwareClock {
    /// A clock for the calling thread.
    pub fn new() -> Self {
        let clock = RealClock::new();
        let now = clock.now().nanos();
        let compared = Cell::new((now, thread_nanos()));
        Self { clock, last: Cell::new(0), read: Cell::new(now), paused: Cell::new(now), compared }
    }

    /// Nanoseconds this thread ran since the clock was made. Never goes back.
    #[inline]
    pub fn nanos(&self) -> u64 {
        let now = self.clock.now().nanos();
        if now - self.read.get() > SUSPECT_NANOS {
            self.compare(now);
        }
        self.read.set(now);
        self.last.set(self.last.get().max(now.saturating_sub(self.paused.get())));
        self.last.get()
    }

    #[cold]
    fn compare(&self, now: u64) {
        let ran_until_now = thread_nanos();
        let (then, ran_until_then) = self.compared.get();
        let pause = (now - then).saturating_sub(ran_until_now - ran_until_then);
        self.paused.set(self.paused.get() + pause);
        self.compared.set((now, ran_until_now));
    }
}

impl Default for SoftwareClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Processor time of the calling thread, nanoseconds.
fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds the calling thread ran, by a [`SoftwareClock`] of its own.
#[inline]
pub fn software_nanos() -> u64 {
    thread_local! {
        static CLOCK: SoftwareClock = SoftwareClock::new();
    }
    CLOCK.with(SoftwareClock::nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_time_leaves_out_pauses_and_nothing_else() {
        let (clock, real) = (SoftwareClock::new(), RealClock::new());
        let start = (clock.nanos(), thread_nanos());
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            let until = thread_nanos() + 2_000_000;
            let mut last = clock.nanos();
            while thread_nanos() < until {
                let now = clock.nanos();
                assert!(now >= last);
                last = now;
            }
        }
        let (ours, ran) = (clock.nanos() - start.0, thread_nanos() - start.1);
        assert!(real.now().nanos() > 140_000_000);
        assert!(ours.abs_diff(ran) < ran / 20, "{ours} ns counted, {ran} ns ran");
    }

    #[test]
    fn runs_at_the_rate_of_the_systems_clock() {
        let (clock, system) = (RealClock::new(), std::time::Instant::now());
        let start = clock.now();
        assert_eq!(clock.wait(Some(start.after_nanos(50_000_000))), Wake::Deadline);
        let (ours, theirs) = (clock.now().nanos_since(start), system.elapsed().as_nanos() as u64);
        assert!(ours >= 50_000_000, "woke after {ours} ns");
        assert!(theirs.abs_diff(ours) < ours / 50, "{ours} ns here, {theirs} ns there");
    }

    #[test]
    fn waiting_for_nothing_comes_back() {
        assert_eq!(RealClock::new().wait(None), Wake::Idle);
    }
}
