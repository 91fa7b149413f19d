//! What a device draws from its supply: power for the states it is in, charges for its work.
//!
//! Theory. A device draws the power of its current state for as long as it is in it: clocks, link,
//! memory, leakage. In addition, each piece of work takes a fixed amount of energy regardless of
//! its duration: firmware for a command, link and controller for a byte, cells and pumps for a page
//! sensed, programmed or erased. So states are charged by time and work by count, and both are
//! known where time is accounted for. Nothing here affects time.
//!
//! Work is only counted while it is done; charges are applied on request. A state that a device
//! enters by itself is accounted for when the device leaves it, not when it enters, so that a
//! command that finds the device awake costs nothing extra.

use alloc::vec::Vec;

/// Maximum number of states of a device.
pub const LEVELS_MAX: usize = 8;

/// A state of a device and its link, as its supply sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The state's name in its protocol.
    pub name: &'static str,
    /// Power in this state while no work is done, microwatts.
    pub microwatts: u32,
}

/// Energy of pieces of work, picojoules, in addition to the power of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// A command: fetched, decoded, looked up, answered.
    pub command_pj: u64,
    /// A byte to or from the host: link, memory and error correction of the controller.
    pub byte_pj: u64,
    /// A page sensed (tR).
    pub read_pj: u64,
    /// A program operation of all planes of a die, three pages each (TLC).
    pub program_pj: u64,
    /// A program operation of all planes of a die in SLC mode.
    pub program_slc_pj: u64,
    /// Erasing a block of every plane of a die.
    pub erase_pj: u64,
}

/// What a device draws. The first level is that of a device that is awake and idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumption {
    /// Its states, at most [`LEVELS_MAX`], indexed by the model's state numbers.
    pub levels: &'static [Level],
    /// The charges for its work.
    pub charges: Charges,
}

/// The amount of one kind of work, or the duration of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// The count (work) or the duration in nanoseconds (states).
    pub amount: u64,
    /// Its energy, picojoules.
    pub picojoules: u64,
}

/// The energy a device has taken so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    /// By state.
    pub states: Vec<Part>,
    /// By kind of work.
    pub work: Vec<Part>,
}

impl Energy {
    /// Total energy, picojoules.
    pub fn picojoules(&self) -> u64 {
        self.states.iter().chain(&self.work).map(|part| part.picojoules).sum()
    }

    /// Duration of the measurement, nanoseconds.
    pub fn nanos(&self) -> u64 {
        self.states.iter().map(|part| part.amount).sum()
    }
}

/// Work done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) commands: u64,
    pub(super) bytes: u64,
    pub(super) reads: u64,
    pub(super) programs: u64,
    pub(super) programs_slc: u64,
    pub(super) erases: u64,
}

/// The meter at a device's supply.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    pub(super) consumption: Consumption,
    pub(super) done: Done,
    /// The current state, and since when.
    level: usize,
    since: u64,
    /// Time spent in each state before that, nanoseconds.
    spent: [u64; LEVELS_MAX],
}

impl Meter {
    pub(super) fn new(consumption: Consumption) -> Self {
        let spent = [0; LEVELS_MAX];
        Self { consumption, done: Done::default(), level: 0, since: 0, spent }
    }

    /// The device is in state `level` from `now` on.
    pub(crate) fn enter(&mut self, level: usize, now: u64) {
        let now = now.max(self.since);
        self.spent[self.level] += now - self.since;
        (self.level, self.since) = (level.min(LEVELS_MAX - 1), now);
    }

    /// The device was in state `level` by itself from `from` to `to`, and has returned to the state
    /// before that.
    pub(crate) fn slept(&mut self, level: usize, from: u64, to: u64) {
        let back = self.level;
        self.enter(level, from);
        self.enter(back, to);
    }

    /// The energy taken until `now`.
    pub(crate) fn read(&self, now: u64) -> Energy {
        let mut settled = self.clone();
        settled.enter(self.level, now);
        let Consumption { levels, charges } = self.consumption;
        let states = levels.iter().zip(settled.spent);
        let state = |(level, nanos): (&Level, u64)| {
            let femtojoules = u128::from(nanos) * u128::from(level.microwatts);
            Part { name: level.name, amount: nanos, picojoules: (femtojoules / 1000) as u64 }
        };
        let Done { commands, bytes, reads, programs, programs_slc, erases } = self.done;
        let work = [
            ("commands", commands, charges.command_pj),
            ("bytes", bytes, charges.byte_pj),
            ("pages read", reads, charges.read_pj),
            ("programs", programs, charges.program_pj),
            ("programs, SLC", programs_slc, charges.program_slc_pj),
            ("erases", erases, charges.erase_pj),
        ];
        let work = work.map(|(name, amount, each)| Part {
            name,
            amount,
            picojoules: amount.saturating_mul(each),
        });
        Energy { states: states.map(state).collect(), work: work.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [Level; 3] = [
        Level { name: "awake", microwatts: 1000 },
        Level { name: "dozing", microwatts: 100 },
        Level { name: "asleep", microwatts: 10 },
    ];

    fn meter() -> Meter {
        let charges = Charges { command_pj: 7, byte_pj: 2, read_pj: 30, ..Charges::default() };
        Meter::new(Consumption { levels: &LEVELS, charges })
    }

    #[test]
    fn states_are_charged_by_time_and_work_by_count() {
        let mut meter = meter();
        meter.done = Done { commands: 3, bytes: 4096, reads: 1, ..Done::default() };
        let energy = meter.read(1_000_000);
        // 1 mW for 1 ms is 1 uJ.
        assert_eq!(energy.states[0].picojoules, 1_000_000);
        assert_eq!(energy.nanos(), 1_000_000);
        assert_eq!(energy.picojoules(), 1_000_000 + 3 * 7 + 4096 * 2 + 30);
    }

    #[test]
    fn a_sleep_is_taken_off_the_state_that_was_left() {
        let mut meter = meter();
        meter.slept(1, 1_000, 3_000);
        meter.enter(2, 4_000);
        meter.enter(0, 9_000);
        let times: Vec<u64> = meter.read(10_000).states.iter().map(|part| part.amount).collect();
        assert_eq!(times, [1_000 + 1_000 + 1_000, 2_000, 5_000]);
        // Time never goes backwards, even if a state is reported late.
        meter.slept(1, 5_000, 8_000);
        assert_eq!(meter.read(10_000).nanos(), 10_000);
    }
}
