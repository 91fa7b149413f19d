//! What a disk has in hand: wishes (block requests) and their parts (commands).
//!
//! Theory. A wish is one block request; it is carried out by one or more parts, each of which is
//! one command. Both live in tables allocated once; an index is a name. Every wish has the part of
//! the same index for its own, so that the common case, one command, costs no second look-up; the
//! parts beyond are lent to wishes that need more. A part is in exactly one place: free,
//! *started* (the port owes its outcome), *waiting* (to be started as soon as there is room, first
//! in first out) or *delayed* (to be started at an instant). A wish is free, *unsplit* (still has
//! blocks without a part), in hand (all its parts exist), or *finished* (ended without an outcome
//! of its own, to be handed out by the next poll). Lists are links in tables beside the slots, so
//! moving between places is a few stores and never allocates.

use alloc::boxed::Box;

use flysch_api::block::{Error, Operation, Request};
use flysch_api::command::{Command, Direction, NotStarted, Port};
use flysch_api::machine::{DmaSlice, Instant};

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

    /// Puts an index before all others: for the free list, so that slots stay warm in the cache,
    /// and for what must not lose its turn.
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

/// A block request in hand.
#[derive(Debug)]
pub(crate) struct Wish {
    /// What was asked.
    pub(crate) token: u64,
    pub(crate) operation: Operation,
    pub(crate) accepted: Instant,
    /// Force unit access by the command itself.
    pub(crate) force_unit_access: bool,
    /// Force unit access by a cache flush after the write.
    pub(crate) flush_after: bool,
    /// The blocks that have no part yet, and where their data is.
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    pub(crate) address: u64,
    /// Parts that have not ended.
    pub(crate) open: u16,
    /// Whether it waits for parts: it does not end before it left that list.
    pub(crate) listed: bool,
    /// Whether its own part is all there is to do.
    pub(crate) single: bool,
    /// The first failure.
    pub(crate) error: Option<Error>,
    /// When the first part was issued, the last finished and was seen.
    pub(crate) issued: Instant,
    pub(crate) device_done: Option<Instant>,
    pub(crate) seen: Instant,
}

impl Wish {
    /// Notes a failure: the first one is the result, and no further parts are made.
    pub(crate) fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.blocks = 0;
    }

    fn vacant() -> Self {
        Self {
            token: 0,
            operation: Operation::Flush,
            accepted: Instant::START,
            force_unit_access: false,
            flush_after: false,
            lba: 0,
            blocks: 0,
            address: 0,
            open: 0,
            listed: false,
            single: false,
            error: None,
            issued: Instant::NEVER,
            device_done: None,
            seen: Instant::START,
        }
    }

    /// Becomes what `request` asks for, with no blocks to make parts of yet.
    #[inline(always)]
    pub(crate) fn begin(&mut self, request: &Request) {
        self.token = request.token;
        self.operation = request.operation;
        self.accepted = request.accepted;
        (self.force_unit_access, self.flush_after) = (false, false);
        (self.blocks, self.open) = (0, 0);
        (self.listed, self.single) = (false, false);
        self.error = None;
        (self.issued, self.seen) = (Instant::NEVER, Instant::START);
        self.device_done = None;
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

/// A command in hand.
#[derive(Debug)]
pub(crate) struct Part {
    /// As it goes to the port, but for token and deadline, which are set at every start.
    pub(crate) command: Command,
    /// The wish it belongs to.
    pub(crate) wish: u16,
    /// Whether it is in use.
    busy: bool,
    /// Whether the port owes its outcome.
    pub(crate) started: bool,
    /// How long the command may take, nanoseconds.
    pub(crate) timeout_nanos: u64,
    /// Counts the starts of this slot: an outcome of an earlier life is not taken for this one.
    pub(crate) generation: u16,
    pub(crate) tries: Tries,
    not_before: Instant,
}

impl Part {
    /// Comes into use.
    #[inline(always)]
    pub(crate) fn take(&mut self) {
        self.busy = true;
        self.tries = Tries::default();
    }

    /// Becomes this command.
    #[inline(always)]
    pub(crate) fn prepare(
        &mut self,
        cdb: [u8; 16],
        direction: Direction,
        data: DmaSlice,
        timeout_nanos: u64,
    ) {
        (self.command.cdb, self.command.direction, self.command.data) = (cdb, direction, data);
        self.timeout_nanos = timeout_nanos;
    }

    /// Goes to the port.
    #[inline(always)]
    pub(crate) fn start<P: Port>(
        &mut self,
        index: u16,
        port: &mut P,
        now: Instant,
    ) -> Result<(), NotStarted> {
        self.generation = self.generation.wrapping_add(1);
        self.command.token = u32::from(self.generation) << 16 | u32::from(index);
        self.command.deadline = now.after_nanos(self.timeout_nanos);
        port.start(&self.command, now)?;
        self.started = true;
        Ok(())
    }

    /// Whether the port owes the outcome with this token.
    #[inline(always)]
    pub(crate) fn owes(&self, token: u32) -> bool {
        self.started && self.command.token == token
    }

    /// Is started and in use no more.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        (self.started, self.busy) = (false, false);
    }
}

/// All wishes and parts of one disk.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) wishes: Box<[Wish]>,
    wish_links: Links,
    free_wishes: Fifo,
    unsplit: Fifo,
    finished: Fifo,
    pub(crate) parts: Box<[Part]>,
    part_links: Links,
    free_parts: Fifo,
    waiting: Fifo,
    delayed: Fifo,
    /// The earliest `not_before` of the delayed parts; [`Instant::NEVER`] if there is none.
    earliest: Instant,
    /// Parts whose outcome the port owes.
    pub(crate) started: u32,
}

impl Queue {
    /// Room for so many wishes, each with a part of its own, and so many parts to lend; each at
    /// least 1, together below 65535.
    pub(crate) fn new(wishes: u16, lent: u16, blank: &Command) -> Self {
        let parts = wishes + lent;
        let chain = |first: u16, end: u16| {
            let links = (1..=end).map(|next| if next == end { NONE } else { next });
            (Links(links.collect()), Fifo { head: first, tail: end - 1 })
        };
        let (wish_links, free_wishes) = chain(0, wishes);
        let (part_links, free_parts) = chain(wishes, parts);
        let part = |index| Part {
            command: *blank,
            wish: if index < wishes { index } else { NONE },
            busy: false,
            started: false,
            timeout_nanos: 0,
            generation: 0,
            tries: Tries::default(),
            not_before: Instant::START,
        };
        Self {
            wishes: (0..wishes).map(|_| Wish::vacant()).collect(),
            wish_links,
            free_wishes,
            unsplit: Fifo::EMPTY,
            finished: Fifo::EMPTY,
            parts: (0..parts).map(part).collect(),
            part_links,
            free_parts,
            waiting: Fifo::EMPTY,
            delayed: Fifo::EMPTY,
            earliest: Instant::NEVER,
            started: 0,
        }
    }

    #[inline]
    pub(crate) fn wish(&mut self, index: u16) -> &mut Wish {
        &mut self.wishes[usize::from(index)]
    }

    #[inline]
    pub(crate) fn part(&mut self, index: u16) -> &mut Part {
        &mut self.parts[usize::from(index)]
    }

    /// Whether nothing waits for room or time: a submitted wish may go first.
    #[inline]
    pub(crate) fn nothing_waits(&self) -> bool {
        self.waiting.is_empty() && self.unsplit.is_empty()
    }

    /// Whether a poll without outcomes has nothing to do.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.nothing_waits() && self.finished.is_empty() && self.delayed.is_empty()
    }

    /// A free wish, if there is one.
    #[inline(always)]
    pub(crate) fn pop_wish(&mut self) -> Option<u16> {
        self.free_wishes.pop(&mut self.wish_links)
    }

    /// Takes a request in, if there is room.
    pub(crate) fn take_wish(&mut self, request: &Request, block_shift: u32) -> Option<u16> {
        let index = self.pop_wish()?;
        let wish = self.wish(index);
        wish.begin(request);
        wish.lba = request.offset >> block_shift;
        wish.blocks = request.length >> block_shift;
        wish.address = request.buffer.address;
        Some(index)
    }

    #[inline(always)]
    pub(crate) fn release_wish(&mut self, index: u16) {
        self.free_wishes.push_front(&mut self.wish_links, index);
    }

    /// Lets a wish wait for parts.
    pub(crate) fn push_unsplit(&mut self, index: u16) {
        self.wish(index).listed = true;
        self.unsplit.push(&mut self.wish_links, index);
    }

    /// The wish whose turn it is to get parts.
    pub(crate) fn first_unsplit(&self) -> Option<u16> {
        self.unsplit.first()
    }

    /// Takes the wish of [`first_unsplit`](Self::first_unsplit) off the list.
    pub(crate) fn pop_unsplit(&mut self) -> Option<u16> {
        let index = self.unsplit.pop(&mut self.wish_links)?;
        self.wish(index).listed = false;
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
    #[inline(always)]
    pub(crate) fn take_part(&mut self, wish: u16) -> Option<u16> {
        let own = &mut self.parts[usize::from(wish)];
        let index = if own.busy { self.free_parts.pop(&mut self.part_links)? } else { wish };
        let part = &mut self.parts[usize::from(index)];
        part.take();
        part.wish = wish;
        self.wishes[usize::from(wish)].open += 1;
        Some(index)
    }

    /// Gives a part back; answers the wish it belonged to, which has one part less open.
    #[inline(always)]
    pub(crate) fn release_part(&mut self, index: u16) -> u16 {
        let part = &mut self.parts[usize::from(index)];
        part.busy = false;
        let wish = part.wish;
        if wish != index {
            self.free_parts.push_front(&mut self.part_links, index);
        }
        self.wishes[usize::from(wish)].open -= 1;
        wish
    }

    /// Lets a part wait for room, at the end or, if it was its turn already, at the front.
    pub(crate) fn wait(&mut self, index: u16, front: bool) {
        if front {
            self.waiting.push_front(&mut self.part_links, index);
        } else {
            self.waiting.push(&mut self.part_links, index);
        }
    }

    pub(crate) fn pop_waiting(&mut self) -> Option<u16> {
        self.waiting.pop(&mut self.part_links)
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
                self.waiting.push(&mut self.part_links, index);
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
