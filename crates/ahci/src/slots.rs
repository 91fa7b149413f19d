//! Slots of a command list, and lines of waiting ones.

use flysch_api::command::Token;
use flysch_api::data::Data;
use flysch_api::machine::Instant;
use flysch_wire::ata::registers::PORTS_MAX;

/// Maximum number of slots.
pub(crate) const SLOTS: usize = PORTS_MAX;

/// One slot.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The command whose outcome is owed.
    pub(crate) owed: Option<Token>,
    pub(crate) deadline: Instant,
    pub(crate) issued: Instant,
    /// Port of a multiplier that the command is for.
    pub(crate) unit: u8,
    /// Bytes the command moves.
    pub(crate) expected: u32,
    /// Whether it is queued in the device; otherwise it is alone there.
    pub(crate) is_queued: bool,
    /// Whether its owner wants it ended.
    pub(crate) abort: bool,
    /// Data from the device, on machines that need explicit synchronisation.
    pub(crate) incoming: Data,
}

impl Slot {
    pub(crate) const FREE: Self = Self {
        owed: None,
        deadline: Instant::NEVER,
        issued: Instant::START,
        unit: 0,
        expected: 0,
        is_queued: false,
        abort: false,
        incoming: Data::NONE,
    };
}

/// Slots waiting in a line, each at most once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    slots: [u8; SLOTS],
    first: usize,
    len: usize,
}

impl Line {
    pub(crate) const EMPTY: Self = Self { slots: [0; SLOTS], first: 0, len: 0 };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<usize> {
        (self.len > 0).then(|| self.slots[self.first % SLOTS].into())
    }

    pub(crate) fn push(&mut self, slot: usize) {
        self.slots[(self.first + self.len) % SLOTS] = slot as u8;
        self.len += 1;
    }

    pub(crate) fn push_front(&mut self, slot: usize) {
        self.first = (self.first + SLOTS - 1) % SLOTS;
        self.slots[self.first] = slot as u8;
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<usize> {
        let slot = self.front()?;
        self.first = (self.first + 1) % SLOTS;
        self.len -= 1;
        Some(slot)
    }

    /// The slots, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len).map(|n| usize::from(self.slots[(self.first + n) % SLOTS]))
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        let all = *self;
        *self = Self::default();
        all.iter().filter(|other| *other != slot).for_each(|other| self.push(other));
    }
}

/// The slots whose bits are set.
pub(crate) fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (slot < u32::BITS).then_some(slot as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_line_keeps_its_order_over_the_end_of_its_array() {
        let mut line = Line::default();
        for round in 0..3 {
            for slot in 0..20 {
                line.push((slot + round) % SLOTS);
            }
            line.push_front(31);
            line.remove((5 + round) % SLOTS);
            let has = |slot| line.iter().any(|other| other == slot);
            assert!(has(31) && !has((5 + round) % SLOTS));
            let all: Vec<_> = core::iter::from_fn(|| line.pop()).collect();
            assert_eq!(all.len(), 20);
            assert_eq!((all[0], all[1], all[6]), (31, round, (6 + round) % SLOTS));
        }
        assert_eq!(bits(0x8000_0005).collect::<Vec<_>>(), [0, 2, 31]);
    }
}
