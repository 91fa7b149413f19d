//! The voltage of a card's lines, and how an SD card follows the host to a lower one (4.2.4.2 of
//! the Physical Layer Simplified Specification).

/// The clock stands still for so long at least when the voltage changes, nanoseconds.
const SWITCH_NS: u64 = 5_000_000;

/// Where the lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// At the voltage of the board, whatever the controller signals: an eMMC device.
    Fixed,
    /// 3.3 V.
    High,
    /// CMD11 was answered: the card holds its lines down. Since when the clock stands still.
    Switching(Option<u64>),
    /// The host went on before it was time, or at 3.3 V: only power brings the card back.
    Stuck,
    /// 1.8 V.
    Low,
}

/// The voltage of the lines.
#[derive(Debug)]
pub(super) struct Signal(Level);

impl Signal {
    /// That of a board.
    pub(super) const FIXED: Self = Self(Level::Fixed);
    /// That of an SD card after power-on.
    pub(super) const HIGH: Self = Self(Level::High);

    /// Power came.
    pub(super) fn power_on(&mut self) {
        if self.0 != Level::Fixed {
            self.0 = Level::High;
        }
    }

    /// CMD11: what follows is for the host to do with clock and voltage.
    pub(super) fn begin_switch(&mut self) {
        self.0 = Level::Switching(None);
    }

    pub(super) fn is_high(&self) -> bool {
        self.0 == Level::High
    }

    pub(super) fn is_low(&self) -> bool {
        self.0 == Level::Low
    }

    /// Whether the card holds its command and data lines down.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.0, Level::Switching(_) | Level::Stuck)
    }

    /// Whether what the host sends at 1.8 V (`low`), or at 3.3 V, reaches the card.
    pub(super) fn hears(&self, low: bool) -> bool {
        match self.0 {
            Level::Fixed => true,
            Level::High => !low,
            Level::Low => low,
            Level::Switching(_) | Level::Stuck => false,
        }
    }

    /// The clock runs or stands still from `now` on, with lines at 1.8 V if they are `low`.
    pub(super) fn clock(&mut self, (runs, low): (bool, bool), now: u64) {
        let Level::Switching(still) = self.0 else { return };
        self.0 = match (runs, still) {
            (false, still) => Level::Switching(still.or(Some(now))),
            (true, None) => return,
            (true, Some(since)) if low && now >= since + SWITCH_NS => Level::Low,
            (true, Some(_)) => Level::Stuck,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_stood_still_long_enough_leads_to_the_lower_voltage() {
        for (nanos, low, gets_there) in
            [(SWITCH_NS, true, true), (SWITCH_NS - 1, true, false), (SWITCH_NS, false, false)]
        {
            let mut signal = Signal::HIGH;
            signal.begin_switch();
            assert!(signal.is_held() && !signal.hears(false) && !signal.hears(true));
            signal.clock((true, low), 5);
            assert!(signal.is_held(), "the clock never stopped");
            signal.clock((false, low), 10);
            signal.clock((true, low), 10 + nanos);
            assert_eq!((signal.is_low(), signal.is_held()), (gets_there, !gets_there));
            signal.power_on();
            assert!(signal.is_high() && signal.hears(false));
        }
    }
}
