//! Power states: set by the host, or entered by the device when it has nothing to do.

use flysch_wire::nvme::Status;

use super::profile::PowerState;
use crate::media::energy::Meter;

/// Which state the device is in.
#[derive(Debug)]
pub(super) struct Power {
    states: &'static [PowerState],
    /// The last operational state that was set, and the state that is set now.
    operational: u8,
    set: u8,
    last_used: u64,
}

impl Power {
    pub(super) fn new(states: &'static [PowerState]) -> Self {
        Self { states, operational: 0, set: 0, last_used: 0 }
    }

    pub(super) fn reset(&mut self) {
        (self.operational, self.set) = (0, 0);
    }

    /// The state set by the host.
    pub(super) fn state(&self) -> u8 {
        self.set
    }

    /// Enters a state at `now`, if it exists, and tells `meter`.
    pub(super) fn set(&mut self, state: u8, meter: &mut Meter, now: u64) -> Result<(), Status> {
        let entered = self.states.get(usize::from(state)).ok_or(Status::InvalidField)?;
        if !entered.non_operational {
            self.operational = state;
        }
        (self.set, self.last_used) = (state, now);
        meter.enter(state.into(), now);
        Ok(())
    }

    /// A command ended at `now`.
    #[inline]
    pub(super) fn used(&mut self, now: u64) {
        self.last_used = now;
    }

    /// The state that the device has reached by itself at `now`, by the transitions in `table`;
    /// `slept` is told of each state on the way, with its start and end.
    #[inline]
    pub(super) fn gone_to(
        &self,
        table: Option<&[u8]>,
        now: u64,
        mut slept: impl FnMut(usize, u64, u64),
    ) -> u8 {
        let Some(table) = table else { return self.set };
        let (mut state, mut idle) = (self.set, now.saturating_sub(self.last_used));
        // Each transition must lead further down, otherwise the table is not followed.
        for _ in 0..self.states.len() {
            let Some(entry) = table.as_chunks::<8>().0.get(usize::from(state)) else { break };
            let entry = u64::from_le_bytes(*entry);
            let (target, after) = ((entry >> 3 & 0x1F) as u8, (entry >> 8 & 0xFF_FFFF) * 1_000_000);
            let sleeps = self.states.get(usize::from(target)).is_some_and(|to| to.non_operational);
            if after == 0 || idle < after || target <= state || !sleeps {
                break;
            }
            if state != self.set {
                slept(state.into(), now - idle, now - idle + after);
            }
            (state, idle) = (target, idle - after);
        }
        if state != self.set {
            slept(state.into(), now - idle, now);
        }
        state
    }

    /// A command to a namespace arrives at `now`: returns when the device is awake for it. States
    /// that it entered by `table` in the meantime are reported to `meter`.
    #[inline]
    pub(super) fn wake(&mut self, table: Option<&[u8]>, meter: &mut Meter, now: u64) -> u64 {
        let state = self.gone_to(table, now, |level, from, to| meter.slept(level, from, to));
        self.last_used = now;
        if state == self.operational {
            return now;
        }
        self.set = self.operational;
        meter.enter(self.operational.into(), now);
        let exit = self.states.get(usize::from(state)).map_or(0, |state| state.exit_us);
        now + u64::from(exit) * 1000
    }
}
