//! Places where a way divides.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::faults::Chance;
use super::jobs::Stage;
use super::mirror::Mirror;
use super::paths::Paths;
use super::plan::Waits;
use super::short::Turns;
use crate::class::stripe;
use crate::statistics::Traffic;

/// Maximum number of members: they are bits of a word.
pub(super) const MEMBERS_MAX: usize = 64;

/// A place where a way divides. Its branches are [`Plan::edges`](super::Plan) from `first` on.
#[derive(Clone, Debug)]
pub(super) struct Fan {
    /// The branch to member 0.
    pub(super) first: u32,
    /// Number of branches.
    pub(super) count: u32,
    /// The branch that leads here.
    pub(super) above: u32,
    pub(super) kind: Kind,
    /// Traffic that came from the top and became a job here at once.
    pub(super) whole: Traffic,
    /// What jobs waited for here.
    pub(super) waits: Waits,
}

/// How it divides.
#[derive(Clone, Debug)]
#[repr(u8)] // The discriminant is read first.
pub(super) enum Kind {
    Stripe(Stripe),
    Concat(Concat),
    Mirror(Mirror),
    Paths(Paths),
    Faults(Chance),
}

/// A part of a range.
pub(super) struct Piece {
    /// The member that performs it; `None` if the fan decides as for a request of its own.
    pub(super) member: Option<u32>,
    /// The offset there.
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Fan {
    /// The stage in which all members are to be asked.
    pub(super) const fn to_each(&self) -> Stage {
        let all = u64::MAX >> (MEMBERS_MAX as u32 - self.count);
        Stage::Each { left: all, failed: 0, all }
    }

    #[inline(always)]
    pub(super) fn mirror_mut(&mut self) -> Option<&mut Mirror> {
        match &mut self.kind {
            Kind::Mirror(mirror) => Some(mirror),
            _ => None,
        }
    }

    /// The first piece of a range of `left` bytes.
    pub(super) fn piece(&self, at: u64, left: u64) -> Piece {
        let (member, offset, room) = match &self.kind {
            Kind::Stripe(stripe) => stripe.place(at),
            Kind::Concat(concat) => concat.place(at),
            Kind::Mirror(mirror) => {
                return Piece { member: None, offset: at, length: left.min(mirror.slice) };
            }
            Kind::Paths(_) | Kind::Faults(_) => (0, at, left),
        };
        Piece { member: Some(member), offset, length: left.min(room) }
    }
}

/// Members used in turn.
#[derive(Clone, Debug)]
pub(super) struct Stripe {
    size: u64,
    count: NonZeroU64,
    /// Its binary logarithm, if the size is a power of two.
    shift: Option<u32>,
}

impl Stripe {
    pub(super) fn new(size: u64, count: usize) -> Self {
        let size = size.max(1);
        let shift = size.is_power_of_two().then(|| size.trailing_zeros());
        Self { size, count: NonZeroU64::new(count as u64).unwrap_or(NonZeroU64::MIN), shift }
    }

    /// The same for this many bytes, if it is that simple.
    pub(super) fn turns(&self, bytes: u64) -> Option<Turns> {
        Turns::new(bytes, self.size, self.count.get())
    }

    /// The member that holds a byte, the byte there, and how many follow.
    #[inline]
    pub(super) fn place(&self, at: u64) -> (u32, u64, u64) {
        let Some(shift) = self.shift else {
            let (member, offset, room) = stripe::place(self.size, self.count.get(), at);
            return (member as u32, offset, room);
        };
        let (turn, inside) = (at >> shift, at & (self.size - 1));
        let row = turn / self.count;
        ((turn % self.count) as u32, (row << shift) + inside, self.size - inside)
    }
}

/// One member after the other.
#[derive(Clone, Debug)]
pub(super) struct Concat {
    /// The end of each, bytes.
    ends: Vec<u64>,
}

impl Concat {
    pub(super) fn new(lengths: impl Iterator<Item = u64>) -> Self {
        let ends = lengths.scan(0_u64, |end, length| {
            *end = end.saturating_add(length);
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    pub(super) fn place(&self, at: u64) -> (u32, u64, u64) {
        // Range and size were checked at the top: there is one.
        let last = self.ends.len() - 1;
        let member = self.ends.iter().position(|&end| at < end).unwrap_or(last);
        let start = member.checked_sub(1).map_or(0, |before| self.ends[before]);
        (member as u32, at - start, self.ends[member].saturating_sub(at))
    }
}

/// The number of the lowest set bit.
#[inline(always)]
pub(super) fn lowest(bits: u64) -> Option<u32> {
    (bits != 0).then(|| bits.trailing_zeros())
}
