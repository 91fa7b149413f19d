//! Pending work of a disk: wishes (block requests) and their parts (commands).
//!
//! Theory. A wish is one block request; one or more parts carry it out, each of which is one
//! command. Both live in tables that are allocated once, and are known by their index. The common
//! case, one command while nothing waits, needs only the wish: 64 bytes with everything needed to
//! issue the command again. Every wish owns the part of the same index; the parts beyond those are
//! lent to wishes that need more. A part is in exactly one place: free, *started* (the port owes
//! its outcome), *waiting* (to be started as soon as there is room, first in first out) or
//! *delayed* (to be started at an instant). A wish is free, *unsplit* (still has blocks without a
//! part), in hand (all its parts exist), or *finished* (ended without an outcome of its own, to be
//! returned by the next poll). Lists are links in tables beside the slots, and for free wishes in
//! the wishes themselves, so moving between places is a few stores and never allocates.

use alloc::boxed::Box;

use flysch_api::block::{BlockError, Operation, Request};
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

    /// Puts an index at the front: for free parts, so that they stay in the cache, and for entries
    /// that must not lose their turn.
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

/// How a write reaches the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Whenever the device likes.
    No,
    /// By forced unit access of the command itself.
    Bit,
    /// By a cache flush after it.
    Flush,
}

/// State of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is a single command, the port has it, and it has no part.
    Single,
    /// It is in parts, or free.
    InParts,
    /// It waits for parts: it does not end before it has left that list.
    Listed,
}

/// A pending block request.
#[derive(Debug)]
pub(crate) struct Wish {
    /// The operation requested.
    pub(crate) token: u64,
    pub(crate) accepted: Instant,
    /// The blocks that have no part yet, and their data. For a single wish: all.
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    pub(crate) data: Data,
    /// Number of the token of its own command: the index in the low bits, a generation above it.
    pub(crate) number: u32,
    pub(crate) operation: Operation,
    pub(crate) standing: Standing,
    /// The next free wish, if this one is free.
    next_free: u16,
}

const _: () = assert!(size_of::<Wish>() <= 64);

/// Progress of a wish in parts.
#[derive(Debug)]
pub(crate) struct Course {
    /// Parts that have not ended.
    pub(crate) open: u16,
    /// The first failure.
    pub(crate) error: Option<BlockError>,
    /// When the first part was issued, and when the last one finished and was seen.
    pub(crate) issued: Instant,
    pub(crate) device_done: Option<Instant>,
    pub(crate) seen: Instant,
    /// The key of the blocks that have no part yet.
    pub(crate) crypto: Option<CryptoContext>,
    /// How written data reaches the medium.
    pub(crate) force: Force,
    /// Whether it is ordered after everything before it and before everything after it.
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

    /// Takes over the content of `request`.
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

/// How often a part was tried, by the reason for the retry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tries {
    /// Retries that count against the retry budget.
    pub(crate) counted: u8,
    /// Retries after events that were not the command's fault.
    pub(crate) requeued: u8,
    /// Retries after a pause.
    pub(crate) paused: u8,
}

/// What a part asks of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<P: Protocol> {
    pub(crate) payload: P::Payload,
    pub(crate) direction: Direction,
    pub(crate) data: Data,
    pub(crate) crypto: Option<CryptoContext>,
    /// Time limit of the command, nanoseconds.
    pub(crate) timeout_nanos: u64,
}

/// A pending command.
#[derive(Debug)]
pub(crate) struct Part<P: Protocol> {
    /// What it asks; nothing while it is free.
    pub(crate) order: Option<Order<P>>,
    /// The wish it belongs to.
    pub(crate) wish: u16,
    /// Whether it is in use.
    busy: bool,
    /// Whether the port owes its outcome.
    pub(crate) started: bool,
    /// Number of its last token, as [`Wish::number`]: a late outcome of an earlier use is not taken
    /// for one of this use.
    pub(crate) number: u32,
    pub(crate) tries: Tries,
    not_before: Instant,
}

/// The token that follows the one with this number.
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
    /// Last freed is first taken, so that wishes stay in the cache.
    free_wish: u16,
    wish_links: Links,
    unsplit: Fifo,
    finished: Fifo,
    pub(crate) parts: Box<[Part<P>]>,
    part_links: Links,
    free_parts: Fifo,
    waiting: Fifo,
    delayed: Fifo,
    /// Number of entries on `unsplit` and `waiting`, whose turn is before that of any newcomer,
    /// plus the number of reasons to hold newcomers back.
    lined_up: u32,
    /// The number of those reasons.
    holds: u32,
    /// The earliest `not_before` of the delayed parts; [`Instant::NEVER`] if there are none.
    earliest: Instant,
    /// Parts whose outcome the port owes.
    pub(crate) started: u32,
}

impl<P: Protocol> Queue<P> {
    /// Tables with this many wishes, each with its own part, and this many parts to lend; each at
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

    /// Whether nothing waits for room or time: a submitted wish may then go first.
    #[inline]
    pub(crate) fn nothing_waits(&self) -> bool {
        self.lined_up == 0
    }

    /// Makes every newcomer queue up, until [`release`](Self::release).
    pub(crate) fn hold(&mut self) {
        self.holds += 1;
        self.lined_up += 1;
    }

    /// Undoes one [`hold`](Self::hold).
    pub(crate) fn release(&mut self) {
        self.holds -= 1;
        self.lined_up -= 1;
    }

    /// How many wait for their turn.
    pub(crate) fn waits(&self) -> u32 {
        self.lined_up - self.holds
    }

    /// Number of pending requests.
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

    /// Accepts a request, if there is room.
    pub(crate) fn take_wish(&mut self, request: &Request, block_shift: u32) -> Option<u16> {
        let (index, wish) = self.pop_wish()?;
        wish.begin(request, block_shift, Standing::InParts);
        *self.course(index) = Course { crypto: request.crypto, ..Course::BEGIN };
        Some(index)
    }

    /// Gives a part to a single wish whose command did not plainly succeed.
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
    pub(crate) fn fail(&mut self, wish: u16, error: BlockError) {
        self.course(wish).error.get_or_insert(error);
        self.wish(wish).blocks = 0;
    }

    #[inline(always)]
    pub(crate) fn release_wish(&mut self, index: u16) {
        let next_free = core::mem::replace(&mut self.free_wish, index);
        self.wish(index).next_free = next_free;
    }

    /// Makes a wish wait for parts.
    pub(crate) fn push_unsplit(&mut self, index: u16) {
        self.wish(index).standing = Standing::Listed;
        self.unsplit.push(&mut self.wish_links, index);
        self.lined_up += 1;
    }

    /// The next wish to get parts.
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

    /// Makes a wish wait to be completed.
    pub(crate) fn push_finished(&mut self, index: u16) {
        self.finished.push(&mut self.wish_links, index);
    }

    pub(crate) fn pop_finished(&mut self) -> Option<u16> {
        self.finished.pop(&mut self.wish_links)
    }

    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// A free part, which now belongs to `wish`.
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

    /// Frees a part; returns the wish to which it belonged, which has one open part fewer.
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

    /// Makes a part wait for room, at the end or, if its turn had already come, at the front.
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

    /// Makes a part wait until `not_before`.
    pub(crate) fn delay(&mut self, index: u16, not_before: Instant) {
        self.part(index).not_before = not_before;
        self.delayed.push(&mut self.part_links, index);
        self.earliest = self.earliest.min(not_before);
    }

    /// Moves delayed parts whose time has come, or all of them, to the waiting ones.
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
