//! What a disk has in hand: wishes (block requests) and their parts (commands).
//!
//! Theory. A wish is one block request; it is carried out by one or more parts, each of which is
//! one command. Both live in tables allocated once; an index is a name. The common case, one
//! command while nothing waits, needs the wish alone: 64 bytes with all it takes to issue the
//! command again. Every wish has the part of the same index for its own; the parts beyond are lent
//! to wishes that need more. A part is in exactly one place: free,
//! *started* (the port owes its outcome), *waiting* (to be started as soon as there is room, first
//! in first out) or *delayed* (to be started at an instant). A wish is free, *unsplit* (still has
//! blocks without a part), in hand (all its parts exist), or *finished* (ended without an outcome
//! of its own, to be handed out by the next poll). Lists are links in tables beside the slots, and
//! of free wishes in the wishes themselves, so moving between places is a few stores and never
//! allocates.

use alloc::boxed::Box;

use flysch_api::block::{Error, Operation, Request};
use flysch_api::command::{Direction, Protocol, Token};
use flysch_api::crypto::CryptoContext;
use flysch_api::data::Data;
use flysch_api::machine::Instant;

/// No index.
const NONE: u16 = u16::MAX;

/// First in, first out, by index.
#[derive(Debug)]
pub(crate) struct Fifo {
    head: u16,
    tail: u16,
}

/// The links of all lists over one table: an index is in at most one of them.
#[derive(Debug)]
pub(crate) struct Links(Box<[u16]>);

impl Fifo {
    const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(crate) fn first(&self) -> Option<u16> {
        (self.head != NONE).then_some(self.head)
    }

    #[inline]
    fn push(&mut self, links: &mut Links, index: u16) {
        links.0[usize::from(index)] = NONE;
        if self.tail == NONE {
            self.head = index;
        } else {
            links.0[usize::from(self.tail)] = index;
        }
        self.tail = index;
    }

    /// Puts an index before all others: for free parts, so that they stay warm in the cache, and
    /// for what must not lose its turn.
    #[inline]
    fn push_front(&mut self, links: &mut Links, index: u16) {
        links.0[usize::from(index)] = self.head;
        self.head = index;
        if self.tail == NONE {
            self.tail = index;
        }
    }

    #[inline]
    fn pop(&mut self, links: &mut Links) -> Option<u16> {
        let index = self.first()?;
        self.head = links.0[usize::from(index)];
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(index)
    }
}

/// How a write gets to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// When the device likes.
    No,
    /// By force unit access of the command itself.
    Bit,
    /// By a cache flush after it.
    Flush,
}

/// Where a wish stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// One command is all of it, the port has it, and there is no part for it.
    Single,
    /// It is in parts, or free.
    InParts,
    /// It waits for parts: it does not end before it left that list.
    Listed,
}

/// A block request in hand.
#[derive(Debug)]
pub(crate) struct Wish {
    /// What was asked.
    pub(crate) token: u64,
    pub(crate) accepted: Instant,
    /// The blocks that have no part yet, and where their data is. Of a single wish: all.
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    pub(crate) data: Data,
    /// Number of the token of its own command: the index below, a generation above.
    pub(crate) number: u32,
    pub(crate) operation: Operation,
    pub(crate) standing: Standing,
    /// The free wish after this, while it is free.
    next_free: u16,
}

const _: () = assert!(size_of::<Wish>() <= 64);

/// How far a wish in parts is.
#[derive(Debug)]
pub(crate) struct Course {
    /// Parts that have not ended.
    pub(crate) open: u16,
    /// The first failure.
    pub(crate) error: Option<Error>,
    /// When the first part was issued, the last finished and was seen.
    pub(crate) issued: Instant,
    pub(crate) device_done: Option<Instant>,
    pub(crate) seen: Instant,
    /// The key of the blocks that have no part yet.
    pub(crate) crypto: Option<CryptoContext>,
    /// How what is written gets to the medium.
    pub(crate) force: Force,
    /// Whether it comes after everything before it and before everything after it.
    pub(crate) ordered: bool,
}

impl Course {
    const BEGIN: Self = Self {
        open: 0,
        error: None,
        issued: Instant::NEVER,
        device_done: None,
        seen: Instant::START,
        crypto: None,
        force: Force::No,
        ordered: false,
    };
}

impl Wish {
    fn vacant(index: u16, next_free: u16) -> Self {
        Self {
            token: 0,
            accepted: Instant::START,
            lba: 0,
            blocks: 0,
            data: Data::NONE,
            number: index.into(),
            operation: Operation::Flush,
            standing: Standing::InParts,
            next_free,
        }
    }

    /// Becomes what `request` asks for.
    #[inline(always)]
    pub(crate) fn begin(&mut self, request: &Request, block_shift: u32, standing: Standing) {
        self.token = request.token;
        self.accepted = request.accepted;
        self.lba = request.offset >> block_shift;
        self.blocks = request.length >> block_shift;
        self.data = request.data;
        self.operation = request.operation;
        self.standing = standing;
    }
}

/// How often a part was tried, by what made another try necessary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tries {
    /// Tries that count against the retry budget.
    pub(crate) counted: u8,
    /// Tries after events that were not the command's fault.
    pub(crate) requeued: u8,
    /// Tries after a pause.
    pub(crate) paused: u8,
}

/// What a part asks of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<P: Protocol> {
    pub(crate) payload: P::Payload,
    pub(crate) direction: Direction,
    pub(crate) data: Data,
    pub(crate) crypto: Option<CryptoContext>,
    /// How long the command may take, nanoseconds.
    pub(crate) timeout_nanos: u64,
}

/// A command in hand.
#[derive(Debug)]
pub(crate) struct Part<P: Protocol> {
    /// What it asks; none while it is free.
    pub(crate) order: Option<Order<P>>,
    /// The wish it belongs to.
    pub(crate) wish: u16,
    /// Whether it is in use.
    busy: bool,
    /// Whether the port owes its outcome.
    pub(crate) started: bool,
    /// Number of its last token, as [`Wish::number`]: an outcome of an earlier life is not taken
    /// for one of this.
    pub(crate) number: u32,
    pub(crate) tries: Tries,
    not_before: Instant,
}

/// The token after the one of this number.
#[inline(always)]
pub(crate) fn next_token(number: &mut u32) -> Token {
    *number = number.wrapping_add(1 << 16);
    Token::new(*number)
}

/// All wishes and parts of one disk.
#[derive(Debug)]
pub(crate) struct Queue<P: Protocol> {
    pub(crate) wishes: Box<[Wish]>,
    pub(crate) courses: Box<[Course]>,
    /// Last freed first taken, so that wishes stay warm in the cache.
    free_wish: u16,
    wish_links: Links,
    unsplit: Fifo,
    finished: Fifo,
    pub(crate) parts: Box<[Part<P>]>,
    part_links: Links,
    free_parts: Fifo,
    waiting: Fifo,
    delayed: Fifo,
    /// How many are on `unsplit` and `waiting`, whose turn it is before that of any newcomer, and
    /// how many reasons there are to hold newcomers back.
    lined_up: u32,
    /// Those reasons.
    holds: u32,
    /// The earliest `not_before` of the delayed parts; [`Instant::NEVER`] if there is none.
    earliest: Instant,
    /// Parts whose outcome the port owes.
    pub(crate) started: u32,
}

impl<P: Protocol> Queue<P> {
    /// Room for so many wishes, each with a part of its own, and so many parts to lend; each at
    /// least 1, together below 65535.
    pub(crate) fn new(wishes: u16, lent: u16) -> Self {
        let parts = wishes + lent;
        let next = |index: u16, end: u16| if index + 1 == end { NONE } else { index + 1 };
        let wish = |index: u16| Wish::vacant(index, next(index, wishes));
        let part_links = (0..parts).map(|index| next(index, parts)).collect();
        let part = |index: u16| Part {
            order: None,
            wish: if index < wishes { index } else { NONE },
            busy: false,
            started: false,
            number: index.into(),
            tries: Tries::default(),
            not_before: Instant::START,
        };
        Self {
            wishes: (0..wishes).map(wish).collect(),
            courses: (0..wishes).map(|_| Course::BEGIN).collect(),
            free_wish: 0,
            wish_links: Links((0..wishes).map(|_| NONE).collect()),
            unsplit: Fifo::EMPTY,
            finished: Fifo::EMPTY,
            parts: (0..parts).map(part).collect(),
            part_links: Links(part_links),
            free_parts: Fifo { head: wishes, tail: parts - 1 },
            waiting: Fifo::EMPTY,
            delayed: Fifo::EMPTY,
            lined_up: 0,
            holds: 0,
            earliest: Instant::NEVER,
            started: 0,
        }
    }

    #[inline]
    pub(crate) fn wish(&mut self, index: u16) -> &mut Wish {
        &mut self.wishes[usize::from(index)]
    }

    #[inline]
    pub(crate) fn course(&mut self, index: u16) -> &mut Course {
        &mut self.courses[usize::from(index)]
    }

    #[inline]
    pub(crate) fn part(&mut self, index: u16) -> &mut Part<P> {
        &mut self.parts[usize::from(index)]
    }

    /// Whether nothing waits for room or time: a submitted wish may go first.
    #[inline]
    pub(crate) fn nothing_waits(&self) -> bool {
        self.lined_up == 0
    }

    /// Lets every newcomer line up, until [`release`](Self::release).
    pub(crate) fn hold(&mut self) {
        self.holds += 1;
        self.lined_up += 1;
    }

    /// Takes one [`hold`](Self::hold) back.
    pub(crate) fn release(&mut self) {
        self.holds -= 1;
        self.lined_up -= 1;
    }

    /// How many wait for their turn.
    pub(crate) fn waits(&self) -> u32 {
        self.lined_up - self.holds
    }

    /// How many requests are in hand.
    pub(crate) fn wishes_in_hand(&self) -> u32 {
        let mut free = 0;
        let mut index = self.free_wish;
        while let Some(wish) = self.wishes.get(usize::from(index)) {
            (free, index) = (free + 1, wish.next_free);
        }
        (self.wishes.len() as u32).saturating_sub(free)
    }

    /// Whether no part exists.
    pub(crate) fn has_no_parts(&self) -> bool {
        self.started == 0 && self.waiting.is_empty() && self.delayed.is_empty()
    }

    /// Whether a poll without outcomes has nothing to do.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.nothing_waits() && self.finished.is_empty() && self.delayed.is_empty()
    }

    /// A free wish and its index, if there is one.
    #[inline(always)]
    pub(crate) fn pop_wish(&mut self) -> Option<(u16, &mut Wish)> {
        let index = self.free_wish;
        // No wish has the index that stands for none.
        let wish = self.wishes.get_mut(usize::from(index))?;
        self.free_wish = wish.next_free;
        Some((index, wish))
    }

    /// Takes a request in, if there is room.
    pub(crate) fn take_wish(&mut self, request: &Request, block_shift: u32) -> Option<u16> {
        let (index, wish) = self.pop_wish()?;
        wish.begin(request, block_shift, Standing::InParts);
        *self.course(index) = Course { crypto: request.crypto, ..Course::BEGIN };
        Some(index)
    }

    /// Gives a single wish, whose command did not plainly end well, the part it did without.
    #[cold]
    pub(crate) fn give_part(&mut self, index: u16, order: Order<P>) {
        let wish = self.wish(index);
        (wish.standing, wish.blocks) = (Standing::InParts, 0);
        *self.course(index) = Course::BEGIN;
        if self.take_part(index) == Some(index) {
            let part = self.part(index);
            (part.order, part.started) = (Some(order), true);
        }
    }

    /// Notes a failure: the first one is the result, and no further parts are made.
    pub(crate) fn fail(&mut self, wish: u16, error: Error) {
        self.course(wish).error.get_or_insert(error);
        self.wish(wish).blocks = 0;
    }

    #[inline(always)]
    pub(crate) fn release_wish(&mut self, index: u16) {
        let next_free = core::mem::replace(&mut self.free_wish, index);
        self.wish(index).next_free = next_free;
    }

    /// Lets a wish wait for parts.
    pub(crate) fn push_unsplit(&mut self, index: u16) {
        self.wish(index).standing = Standing::Listed;
        self.unsplit.push(&mut self.wish_links, index);
        self.lined_up += 1;
    }

    /// The wish whose turn it is to get parts.
    pub(crate) fn first_unsplit(&self) -> Option<u16> {
        self.unsplit.first()
    }

    /// Takes the wish of [`first_unsplit`](Self::first_unsplit) off the list.
    pub(crate) fn pop_unsplit(&mut self) -> Option<u16> {
        let index = self.unsplit.pop(&mut self.wish_links)?;
        self.wish(index).standing = Standing::InParts;
        self.lined_up -= 1;
        Some(index)
    }

    /// Lets a wish wait to be handed out.
    pub(crate) fn push_finished(&mut self, index: u16) {
        self.finished.push(&mut self.wish_links, index);
    }

    pub(crate) fn pop_finished(&mut self) -> Option<u16> {
        self.finished.pop(&mut self.wish_links)
    }

    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// A free part, now belonging to `wish`.
    pub(crate) fn take_part(&mut self, wish: u16) -> Option<u16> {
        let own = &mut self.parts[usize::from(wish)];
        let index = if own.busy {
            self.free_parts.pop(&mut self.part_links)?
        } else {
            own.number = self.wishes[usize::from(wish)].number;
            wish
        };
        let part = &mut self.parts[usize::from(index)];
        (part.busy, part.tries, part.wish) = (true, Tries::default(), wish);
        self.courses[usize::from(wish)].open += 1;
        Some(index)
    }

    /// Gives a part back; answers the wish it belonged to, which has one part less open.
    pub(crate) fn release_part(&mut self, index: u16) -> u16 {
        let part = &mut self.parts[usize::from(index)];
        (part.busy, part.order) = (false, None);
        let wish = part.wish;
        if wish == index {
            self.wishes[usize::from(wish)].number = part.number;
        } else {
            self.free_parts.push_front(&mut self.part_links, index);
        }
        self.courses[usize::from(wish)].open -= 1;
        wish
    }

    /// Lets a part wait for room, at the end or, if it was its turn already, at the front.
    pub(crate) fn wait(&mut self, index: u16, front: bool) {
        if front {
            self.waiting.push_front(&mut self.part_links, index);
        } else {
            self.waiting.push(&mut self.part_links, index);
        }
        self.lined_up += 1;
    }

    pub(crate) fn pop_waiting(&mut self) -> Option<u16> {
        let index = self.waiting.pop(&mut self.part_links)?;
        self.lined_up -= 1;
        Some(index)
    }

    /// Lets a part wait until `not_before`.
    pub(crate) fn delay(&mut self, index: u16, not_before: Instant) {
        self.part(index).not_before = not_before;
        self.delayed.push(&mut self.part_links, index);
        self.earliest = self.earliest.min(not_before);
    }

    /// Moves the delayed parts whose time has come to the waiting ones, or all of them.
    pub(crate) fn wake(&mut self, now: Instant, all: bool) {
        if self.delayed.is_empty() || (self.earliest > now && !all) {
            return;
        }
        let mut sleepers = core::mem::replace(&mut self.delayed, Fifo::EMPTY);
        self.earliest = Instant::NEVER;
        while let Some(index) = sleepers.pop(&mut self.part_links) {
            let not_before = self.part(index).not_before;
            if all || not_before <= now {
                self.wait(index, false);
            } else {
                self.delay(index, not_before);
            }
        }
    }

    /// When [`wake`](Self::wake) has something to do.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        (!self.delayed.is_empty()).then_some(self.earliest)
    }
}
