//! Requests that are made to fail or to wait.

use flysch_api::block::Operation;
use flysch_api::machine::Instant;
use flysch_random::XorShift64;

use super::jobs::Stage;
use crate::route::Faults;

/// The faults still to be injected, and the random source.
#[derive(Clone, Debug)]
pub(super) struct Chance {
    faults: Faults,
    random: XorShift64,
}

impl Chance {
    pub(super) const fn new(faults: Faults) -> Self {
        Self { faults, random: XorShift64::from_state(faults.seed | 1) }
    }

    fn percent(&mut self) -> u32 {
        (self.random.bits() >> 16) as u32 % 100
    }

    /// The first stage of a request that is to fail or to wait. Only reads and writes do.
    pub(super) fn stage(&mut self, operation: Operation, now: Instant) -> Option<Stage> {
        let which = match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush | Operation::Delete => return None,
        };
        let (fails, waits) = (self.percent(), self.percent());
        let faults = &mut self.faults;
        if faults.fail[which] > 0 {
            let is_early = faults.pass_first > 0;
            faults.pass_first = faults.pass_first.saturating_sub(1);
            if !is_early && fails < faults.fail[which] && faults.fail_only != Some(0) {
                faults.fail_only = faults.fail_only.map(|left| left - 1);
                return Some(Stage::Fails(faults.error));
            }
        }
        (waits < faults.delay[which]).then(|| Stage::Waits(now.after_nanos(faults.delay_nanos)))
    }
}
