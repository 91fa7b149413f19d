//! Members with equal contents.

use alloc::vec::Vec;
use core::cmp::Reverse;

use flysch_wire::geom::mirror::Balance;

use super::fan::MEMBERS_MAX;
use crate::object::ConsumerId;
use crate::route::MirrorComponent;

/// Changes go to all members, reads to one.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    balance: Balance,
    pub(super) slice: u64,
    members: Vec<Member>,
    /// The members that are read; the others are only written. Bits, like all sets of members.
    readable: u64,
    /// The members that failed, and are neither read nor written any more.
    pub(super) lost: u64,
    /// The member whose turn it is.
    next: u32,
    /// Whether there are two members, both read, chosen by their load.
    is_pair: bool,
    /// Reads in flight that need a repair: meanwhile no change begins.
    pub(super) mending: u32,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    consumer: ConsumerId,
    priority: u8,
}

impl Mirror {
    pub(super) fn new((balance, slice): (Balance, u64), components: &[MirrorComponent]) -> Self {
        let member = |component: &MirrorComponent| Member {
            consumer: component.consumer,
            priority: component.priority,
        };
        let readable = components.iter().enumerate().filter(|(_, component)| component.is_read);
        let readable = readable.fold(0, |all, (number, _)| all | 1 << number);
        let members: Vec<Member> = components.iter().map(member).collect();
        let is_pair = balance == Balance::Load && members.len() == 2 && readable == 3;
        let slice = if balance == Balance::Split { slice.max(1) } else { u64::MAX };
        Self { balance, slice, members, readable, lost: 0, next: 0, is_pair, mending: 0 }
    }

    /// The members that take part.
    #[inline(always)]
    pub(super) fn there(&self) -> u64 {
        u64::MAX >> (MEMBERS_MAX - self.members.len()) & !self.lost
    }

    /// The members that hold all data.
    #[inline(always)]
    pub(super) fn readable(&self) -> u64 {
        self.readable & !self.lost
    }

    pub(super) fn consumer(&self, number: u32) -> Option<ConsumerId> {
        self.members.get(number as usize).map(|member| member.consumer)
    }

    /// Drops a member, unless it was dropped before or is the last one that holds all data.
    pub(super) fn lose(&mut self, number: u32) -> Option<ConsumerId> {
        let bit = 1 << number;
        if self.there() & bit == 0 || self.readable() & !bit == 0 {
            return None;
        }
        self.lost |= bit;
        self.is_pair = false;
        self.consumer(number)
    }

    /// Whether there are two members, both read, chosen by their load, without incidents.
    pub(super) const fn is_plain_pair(&self) -> bool {
        self.is_pair && self.mending == 0
    }

    /// The member to read, among those not tried. `load` returns how much a member has to do.
    #[inline]
    pub(super) fn reader(&mut self, load: impl Fn(u32) -> u64, tried: u64) -> Option<u32> {
        if self.is_pair && tried == 0 {
            return Some(u32::from(load(1) < load(0)));
        }
        let can = self.readable() & !tried;
        let mut can = (0..self.members.len() as u32).filter(|number| can >> number & 1 != 0);
        match self.balance {
            Balance::Prefer => {
                can.max_by_key(|n| (self.members[*n as usize].priority, Reverse(*n)))
            }
            Balance::Load => can.min_by_key(|n| load(*n)),
            Balance::RoundRobin | Balance::Split => {
                let (count, turn) = (self.members.len() as u32, self.next);
                let found = can.min_by_key(|n| (n + count - turn) % count);
                self.next = found.map_or(turn, |n| (n + 1) % count);
                found
            }
            Balance::None | Balance::Unknown(_) => can.next(),
        }
    }
}
