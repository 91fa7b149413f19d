//! Software time for hybrid clocks.

use std::sync::OnceLock;

use flysch_api::machine::Clock;
use flysch_bench::clock::RealClock;

/// Nanoseconds of the processor's cycle counter.
pub(crate) fn ticks() -> u64 {
    static CLOCK: OnceLock<RealClock> = OnceLock::new();
    CLOCK.get_or_init(RealClock::new).now().nanos()
}
