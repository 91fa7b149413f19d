//! Where ways divide.

use alloc::vec::Vec;
use core::cmp::Reverse;

use flysch_api::block::Operation;
use flysch_wire::geom::mirror::Balance;

use super::jobs::Stage;
use super::plan::Edge;
use crate::class::stripe;
use crate::object::ConsumerId;
use crate::route::MirrorComponent;

/// Most members: they are bits of a word.
pub(super) const MEMBERS_MAX: usize = 64;

/// A place where a way divides.
#[derive(Clone, Debug)]
pub(super) enum Fan {
    Stripe(Stripe),
    Concat(Concat),
    Mirror(Mirror),
}

/// What becomes of a request.
pub(super) enum Turn {
    /// It goes to one member as it is, at this offset.
    One(u32, u64),
    /// It becomes a job.
    Job(Stage),
    /// It must wait until something was mended.
    Later,
}

/// A part of a job's request.
pub(super) struct Piece {
    /// The member that does it; `None` if the fan decides about it as about a request of its own.
    pub(super) member: Option<u32>,
    /// Offset there.
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Fan {
    pub(super) fn edges(&self) -> &[Edge] {
        match self {
            Self::Stripe(stripe) => &stripe.edges,
            Self::Concat(concat) => &concat.edges,
            Self::Mirror(mirror) => &mirror.edges,
        }
    }

    pub(super) fn edge_mut(&mut self, member: u32) -> &mut Edge {
        let edges = match self {
            Self::Stripe(stripe) => &mut stripe.edges,
            Self::Concat(concat) => &mut concat.edges,
            Self::Mirror(mirror) => &mut mirror.edges,
        };
        &mut edges[member as usize]
    }

    pub(super) fn mirror_mut(&mut self) -> Option<&mut Mirror> {
        match self {
            Self::Mirror(mirror) => Some(mirror),
            Self::Stripe(_) | Self::Concat(_) => None,
        }
    }

    fn all(&self) -> Stage {
        let left = match self {
            Self::Mirror(mirror) => mirror.there(),
            _ => u64::MAX >> (MEMBERS_MAX - self.edges().len()),
        };
        Stage::Each { left, failed: 0, good: 0 }
    }

    pub(super) fn turn(&self, (operation, offset, length): (Operation, u64, u64)) -> Turn {
        if operation == Operation::Flush {
            return Turn::Job(self.all());
        }
        match self {
            Self::Mirror(mirror) if operation == Operation::Read => {
                if mirror.balance == Balance::Split && length > mirror.slice {
                    return Turn::Job(Stage::Pieces(0));
                }
                Turn::Job(Stage::Read { tried: 0, gone: 0, is_sent: false })
            }
            Self::Mirror(mirror) if mirror.mending > 0 => Turn::Later,
            Self::Mirror(_) => Turn::Job(self.all()),
            Self::Stripe(_) | Self::Concat(_) => match self.piece(offset, length) {
                Piece { member: Some(member), offset, length: whole } if whole == length => {
                    Turn::One(member, offset)
                }
                _ => Turn::Job(Stage::Pieces(0)),
            },
        }
    }

    /// The first piece of a range of `left` bytes.
    pub(super) fn piece(&self, at: u64, left: u64) -> Piece {
        let (member, offset, room) = match self {
            Self::Stripe(stripe) => stripe.place(at),
            Self::Concat(concat) => concat.place(at),
            Self::Mirror(mirror) => (None, at, mirror.slice),
        };
        Piece { member, offset, length: left.min(room) }
    }
}

/// In turns.
#[derive(Clone, Debug)]
pub(super) struct Stripe {
    size: u64,
    edges: Vec<Edge>,
}

impl Stripe {
    pub(super) fn new(size: u64, edges: Vec<Edge>) -> Self {
        Self { size: size.max(1), edges }
    }

    #[inline]
    fn place(&self, at: u64) -> (Option<u32>, u64, u64) {
        let (member, offset, room) = stripe::place(self.size, self.edges.len() as u64, at);
        (Some(member as u32), offset, room)
    }
}

/// One behind the other.
#[derive(Clone, Debug)]
pub(super) struct Concat {
    /// The byte behind each.
    ends: Vec<u64>,
    edges: Vec<Edge>,
}

impl Concat {
    pub(super) fn new(lengths: impl Iterator<Item = u64>, edges: Vec<Edge>) -> Self {
        let ends = lengths.scan(0_u64, |end, length| {
            *end = end.saturating_add(length);
            Some(*end)
        });
        Self { ends: ends.collect(), edges }
    }

    fn place(&self, at: u64) -> (Option<u32>, u64, u64) {
        // Range and size were checked at the top: there is one.
        let last = self.ends.len() - 1;
        let member = self.ends.iter().position(|&end| at < end).unwrap_or(last);
        let start = member.checked_sub(1).map_or(0, |before| self.ends[before]);
        (Some(member as u32), at - start, self.ends[member].saturating_sub(at))
    }
}

/// The same on all.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    balance: Balance,
    slice: u64,
    edges: Vec<Edge>,
    members: Vec<Member>,
    /// Who is read; the others are only written. Bits, as all sets of members.
    readable: u64,
    /// Who failed, and is neither read nor written any more.
    pub(super) lost: u64,
    /// Whose turn it is.
    next: u32,
    /// Changes under way.
    pub(super) writing: u32,
    /// Reads under way that are to be mended: no change begins.
    pub(super) mending: u32,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    consumer: ConsumerId,
    priority: u8,
    /// Reads that it has not done yet, and the byte behind the last one.
    busy: u32,
    head: u64,
}

impl Mirror {
    pub(super) fn new(
        (balance, slice): (Balance, u64),
        components: &[MirrorComponent],
        edges: Vec<Edge>,
    ) -> Self {
        let member = |component: &MirrorComponent| Member {
            consumer: component.consumer,
            priority: component.priority,
            busy: 0,
            head: 0,
        };
        let readable = components.iter().enumerate().filter(|(_, component)| component.is_read);
        Self {
            balance,
            slice: slice.max(1),
            edges,
            members: components.iter().map(member).collect(),
            readable: readable.fold(0, |all, (number, _)| all | 1 << number),
            lost: 0,
            next: 0,
            writing: 0,
            mending: 0,
        }
    }

    /// Those that take part.
    fn there(&self) -> u64 {
        u64::MAX >> (MEMBERS_MAX - self.members.len()) & !self.lost
    }

    /// Those that hold everything.
    pub(super) fn readable(&self) -> u64 {
        self.readable & !self.lost
    }

    pub(super) fn consumer(&self, number: u32) -> Option<ConsumerId> {
        self.members.get(number as usize).map(|member| member.consumer)
    }

    /// A member drops out, unless it did before or is the last one that holds everything.
    pub(super) fn lose(&mut self, number: u32) -> Option<ConsumerId> {
        let bit = 1 << number;
        if self.there() & bit == 0 || self.readable() & !bit == 0 {
            return None;
        }
        self.lost |= bit;
        self.consumer(number)
    }

    /// Who reads from `offset` on, of those that were not tried.
    pub(super) fn reader(&mut self, offset: u64, tried: u64) -> Option<u32> {
        let can = self.readable() & !tried;
        let mut can = (0..self.members.len() as u32).filter(|number| can >> number & 1 != 0);
        let of = |number: &u32| &self.members[*number as usize];
        match self.balance {
            Balance::Prefer => can.max_by_key(|n| (of(n).priority, Reverse(*n))),
            // Who has least to do; of those the one whose head is there.
            Balance::Load => can.min_by_key(|n| (of(n).busy, of(n).head != offset)),
            Balance::RoundRobin | Balance::Split => {
                let (count, turn) = (self.members.len() as u32, self.next);
                let found = can.min_by_key(|n| (n + count - turn) % count);
                self.next = found.map_or(turn, |n| (n + 1) % count);
                found
            }
            Balance::None | Balance::Unknown(_) => can.next(),
        }
    }

    /// A member begins to read up to `end`.
    pub(super) fn begins(&mut self, number: u32, end: u64) {
        let member = &mut self.members[number as usize];
        member.busy += 1;
        member.head = end;
    }

    /// It has read.
    pub(super) fn ends(&mut self, number: u32) {
        if let Some(member) = self.members.get_mut(number as usize) {
            member.busy = member.busy.saturating_sub(1);
        }
    }
}

/// The lowest bit, as a number.
pub(super) fn lowest(bits: u64) -> Option<u32> {
    (bits != 0).then(|| bits.trailing_zeros())
}
