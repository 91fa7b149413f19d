//! Interrupt aggregation, the same for the single doorbell (UTRIACR) and for each completion queue
//! (MCQIACR): completions are counted, and the interrupt comes with the last one of a full count or
//! when the timer that the first one started expires.

use flysch_wire::ufs::registers::InterruptAggregation;

/// One unit of IATOVAL, nanoseconds.
const UNIT_NS: u64 = InterruptAggregation::TIMEOUT_UNIT_US as u64 * 1000;

/// The effect of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// It waits for others.
    Waits,
    /// It waits for others, and the timer expires at this time in nanoseconds.
    Timer(u64),
    /// The interrupt comes now.
    Interrupt,
}

/// One counter with its timer.
#[derive(Debug, Default)]
pub(super) struct Aggregator {
    control: InterruptAggregation,
    /// Completions since the last interrupt, and when their timer expires.
    counted: u8,
    until: u64,
}

impl Aggregator {
    /// The register as it reads.
    pub(super) fn read(&self) -> u32 {
        self.control.with_iasb(self.counted > 0).into_bits()
    }

    /// The register is written.
    pub(super) fn write(&mut self, value: u32) {
        let value = InterruptAggregation::from_bits(value);
        self.control.set_iaen(value.iaen());
        if value.iapwen() {
            self.control.set_iatoval(value.iatoval());
            self.control.set_iacth(value.iacth());
        }
        if value.ctr() || !value.iaen() {
            self.counted = 0;
        }
    }

    /// Whether completions are counted at all.
    pub(super) fn is_on(&self) -> bool {
        self.control.iaen()
    }

    /// A completion at `now`, nanoseconds.
    pub(super) fn count(&mut self, now: u64) -> Counted {
        self.counted = self.counted.saturating_add(1);
        if self.control.iacth() > 0 && self.counted >= self.control.iacth() {
            self.counted = 0;
            return Counted::Interrupt;
        }
        if self.counted != 1 || self.control.iatoval() == 0 {
            return Counted::Waits;
        }
        self.until = now + u64::from(self.control.iatoval()) * UNIT_NS;
        Counted::Timer(self.until)
    }

    /// A timer has expired at `now`: returns whether the interrupt comes. The timer of an earlier
    /// count has no effect.
    pub(super) fn expired(&mut self, now: u64) -> bool {
        let due = self.counted > 0 && now >= self.until;
        if due {
            self.counted = 0;
        }
        due
    }
}
