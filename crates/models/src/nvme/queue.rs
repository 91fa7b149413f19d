//! Queues: rings in the host's memory, their doorbells, entries in and out.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use flysch_api::machine::OutOfRange;
use flysch_wire::nvme::feature::event;
use flysch_wire::nvme::{Cqe, Sqe, Status, command, completion};

use super::Nvme;
use super::task::Tasks;
use crate::faults::Kind;

/// A submission queue.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) base: u64,
    pub(super) entries: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    /// The completion queue its commands end in.
    pub(super) completion: u16,
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) base: u64,
    pub(super) entries: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    phase: bool,
    vector: u16,
    interrupts: bool,
    /// Completions that wait for room.
    waiting: VecDeque<Cqe>,
}

impl Submission {
    pub(super) fn new(base: u64, entries: u32, completion: u16) -> Self {
        Self { base, entries, head: 0, tail: 0, completion }
    }
}

impl Completion {
    pub(super) fn new(base: u64, entries: u32, vector: u16, interrupts: bool) -> Self {
        let waiting = VecDeque::new();
        Self { base, entries, head: 0, tail: 0, phase: true, vector, interrupts, waiting }
    }

    /// Entries that the host has not taken.
    fn used(&self) -> u32 {
        distance(self.head, self.tail, self.entries)
    }

    fn is_full(&self) -> bool {
        self.used() + 1 == self.entries
    }
}

/// Entries from `from` to `to` in a ring of `entries`.
fn distance(from: u32, to: u32, entries: u32) -> u32 {
    if to >= from { to - from } else { to + entries - from }
}

/// All queues of a controller; the admin queues are number 0.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) submission: Vec<Option<Submission>>,
    pub(super) completion: Vec<Option<Completion>>,
    /// Submission queues with entries that were not fetched, a bit each.
    ready: u128,
    /// The submission queue whose turn it is.
    turn: u32,
    /// Completion queues with entries that the host has not taken and with interrupts, a bit each.
    asserted: u128,
    /// Completion queues in which completions wait for room, a bit each. Nothing is fetched that
    /// would end there: what waits stays as short as the commands that were on their way.
    blocked: u128,
    /// Where the host keeps doorbells in its memory, and where it is told when to ring.
    pub(super) shadow: Option<Shadow>,
}

/// Doorbell buffers: a page of values and a page of event indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shadow {
    pub(super) values: u64,
    pub(super) events: u64,
}

impl Queues {
    pub(super) fn new(pairs: u16) -> Self {
        let count = usize::from(pairs) + 1;
        let (mut submission, mut completion) = (Vec::new(), Vec::new());
        submission.resize_with(count, || None);
        completion.resize_with(count, || None);
        Self { submission, completion, ready: 0, turn: 0, asserted: 0, blocked: 0, shadow: None }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.submission.len() as u16 - 1);
    }

    pub(super) fn delete_submission(&mut self, queue: u16) {
        self.submission[usize::from(queue)] = None;
        self.ready &= !(1 << queue);
    }

    pub(super) fn delete_completion(&mut self, queue: u16) {
        self.completion[usize::from(queue)] = None;
        self.asserted &= !(1 << queue);
        self.blocked &= !(1 << queue);
    }

    /// Whether entries wait that the host wanted to be told of.
    #[inline]
    pub(super) fn is_asserted(&self) -> bool {
        self.asserted != 0
    }

    /// The next submission queue with something to fetch, from the one whose turn it is on, for
    /// which there is room.
    #[inline]
    fn next_ready(&mut self, tasks: &Tasks) -> Option<u16> {
        let count = self.submission.len() as u32;
        let mut left = self.ready;
        while left != 0 {
            let behind = left >> self.turn << self.turn;
            let queue = if behind != 0 { behind } else { left }.trailing_zeros();
            let submission = self.submission[queue as usize].as_ref();
            let is_blocked =
                submission.is_some_and(|submission| self.blocked >> submission.completion & 1 != 0);
            if tasks.has_room(queue as u16) && !is_blocked {
                self.turn = if queue + 1 < count { queue + 1 } else { 0 };
                return Some(queue as u16);
            }
            left &= !(1 << queue);
        }
        None
    }
}

impl Nvme {
    /// A doorbell was written.
    pub(super) fn ring(&mut self, offset: u32, value: u32) {
        let step = 4 << self.setup.stride;
        let number = offset / step;
        let (queue, is_head) = ((number / 2) as usize, number % 2 == 1);
        if !offset.is_multiple_of(step) || queue >= self.queues.submission.len() {
            return self.error_event(event::INVALID_DOORBELL);
        }
        let queue = queue as u16;
        if self.shadow_of(queue, is_head).is_none() {
            return if is_head {
                self.move_head(queue, value)
            } else {
                self.move_tail(queue, value)
            };
        }
        // With doorbells in the host's memory a register says only that one has moved. Its value
        // may be older than what was taken from there meanwhile, and going back to it would carry
        // out the whole ring again.
        let queues = &self.queues;
        let exists = match is_head {
            true => queues.completion[usize::from(queue)].is_some(),
            false => queues.submission[usize::from(queue)].is_some(),
        };
        if !exists {
            return self.error_event(event::INVALID_DOORBELL);
        }
        if is_head {
            self.look_at_shadow_head(queue);
            self.post_waiting(queue);
        } else {
            self.look_at_shadow(queue);
        }
        self.fetch();
    }

    /// The host has put entries into a submission queue.
    #[inline]
    fn move_tail(&mut self, queue: u16, value: u32) {
        let Some(submission) = &mut self.queues.submission[usize::from(queue)] else {
            return self.error_event(event::INVALID_DOORBELL);
        };
        if value >= submission.entries {
            return self.error_event(event::INVALID_DOORBELL_VALUE);
        }
        submission.tail = value;
        if submission.tail != submission.head {
            self.queues.ready |= 1 << queue;
        }
        self.fetch();
    }

    /// The host has taken entries from a completion queue.
    #[inline]
    fn move_head(&mut self, queue: u16, value: u32) {
        let Some(completion) = &mut self.queues.completion[usize::from(queue)] else {
            return self.error_event(event::INVALID_DOORBELL);
        };
        let taken = value < completion.entries
            && distance(completion.head, value, completion.entries) <= completion.used();
        if !taken {
            return self.error_event(event::INVALID_DOORBELL_VALUE);
        }
        completion.head = value;
        if completion.head == completion.tail {
            self.queues.asserted &= !(1 << queue);
        }
        self.post_waiting(queue);
        self.fetch();
    }

    /// Posts what waited for room in a completion queue.
    fn post_waiting(&mut self, queue: u16) {
        while let Some(completion) = &mut self.queues.completion[usize::from(queue)] {
            if completion.is_full() {
                return;
            }
            let Some(entry) = completion.waiting.pop_front() else {
                self.queues.blocked &= !(1 << queue);
                return;
            };
            self.post(queue, entry);
        }
    }

    /// Takes commands from the submission queues, one of each in turn, as far as there is room.
    #[inline]
    pub(super) fn fetch(&mut self) {
        while self.is_working() {
            let Some(queue) = self.queues.next_ready(&self.tasks) else { return };
            self.fetch_one(queue);
        }
    }

    #[inline]
    fn fetch_one(&mut self, queue: u16) {
        let Some(submission) = &mut self.queues.submission[usize::from(queue)] else {
            self.queues.ready &= !(1 << queue);
            return;
        };
        let at = submission.base + u64::from(submission.head) * command::LENGTH as u64;
        let next = submission.head + 1;
        submission.head = if next < submission.entries { next } else { 0 };
        if submission.head == submission.tail {
            self.queues.ready &= !(1 << queue);
            self.look_at_shadow(queue);
        }
        let mut bytes = [0; command::LENGTH];
        if self.memory.read(at, &mut bytes).is_err() {
            return self.fail_fatally();
        }
        let (words, _) = bytes.as_chunks::<8>();
        let entry = Sqe::from_words(core::array::from_fn(|at| u64::from_ne_bytes(words[at])));
        if let Some(index) = self.tasks.take(queue, entry) {
            self.receive(index);
        }
    }

    /// Where the shadow doorbell and the event index of a queue lie.
    fn shadow_of(&self, queue: u16, is_head: bool) -> Option<(u64, u64)> {
        let shadow = self.queues.shadow.filter(|_| queue != 0)?;
        let offset = (2 * u64::from(queue) + u64::from(is_head)) * (4 << self.setup.stride);
        Some((shadow.values + offset, shadow.events + offset))
    }

    /// Takes the tail of a queue from the host's memory, and asks to be told of the next.
    fn look_at_shadow(&mut self, queue: u16) {
        let Some((value, event)) = self.shadow_of(queue, false) else { return };
        let Ok(tail) = self.exchange_shadow(value, event) else { return self.fail_fatally() };
        let Some(submission) = &mut self.queues.submission[usize::from(queue)] else { return };
        if tail < submission.entries && tail != submission.head {
            submission.tail = tail;
            self.queues.ready |= 1 << queue;
        }
    }

    /// Takes the head of a completion queue from the host's memory.
    fn look_at_shadow_head(&mut self, queue: u16) {
        let Some((value, event)) = self.shadow_of(queue, true) else { return };
        let Ok(head) = self.exchange_shadow(value, event) else { return self.fail_fatally() };
        let Some(completion) = &mut self.queues.completion[usize::from(queue)] else { return };
        let fits = head < completion.entries
            && distance(completion.head, head, completion.entries) <= completion.used();
        if fits {
            completion.head = head;
            if head == completion.tail {
                self.queues.asserted &= !(1 << queue);
            }
        }
    }

    /// Takes a doorbell from the host's memory and asks, by its event index, to be told of the
    /// next.
    ///
    /// The index is written before the doorbell is read once more, so that what the host did not
    /// tell of because of the old index is seen. The host does it the other way round on a
    /// processor of its own: it writes the doorbell and then reads the index. With neither store
    /// before the other's load each could see the old value, hence the fence.
    fn exchange_shadow(&self, value: u64, event: u64) -> Result<u32, OutOfRange> {
        let doorbell = self.load_shadow(value)?;
        self.memory.store32(event, doorbell.to_le())?;
        fence(Ordering::SeqCst);
        let doorbell = self.load_shadow(value);
        // The entries before it are read after it.
        fence(Ordering::Acquire);
        doorbell
    }

    fn load_shadow(&self, address: u64) -> Result<u32, OutOfRange> {
        let mut bytes = [0; 4];
        self.memory.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Tells the host of the end of a task and gives its entry back.
    #[inline]
    pub(super) fn finish(&mut self, index: u16, status: u16, result: u32) {
        let task = self.tasks.get(index);
        let (queue, cid) = (task.queue, task.command.cid);
        let given = if status == 0 { task.result } else { 0 };
        let result = result | given as u32;
        let dw1 = (given >> 32) as u32;
        let more = match status {
            0 => 0,
            _ => self.note_failure(index, status),
        };
        self.tasks.release(index);
        let slot = usize::from(queue) << SLOT_BITS | usize::from(cid & ((1 << SLOT_BITS) - 1));
        self.done[slot] = self.clock.nanos();
        let Some(submission) = &self.queues.submission[usize::from(queue)] else { return };
        let completion = submission.completion;
        let status = status | more;
        let entry = Cqe { result, dw1, sq: queue, cid, status, ..Cqe::default() };
        self.announce(completion, entry);
        self.fetch();
    }

    /// Posts an entry, or keeps it until there is room.
    #[inline]
    fn announce(&mut self, queue: u16, entry: Cqe) {
        if self.faults.is_active() && self.fault_in_completion(queue, entry) {
            return;
        }
        self.announce_as_it_is(queue, entry);
    }

    /// As [`announce`](Self::announce), without a fault.
    #[inline]
    pub(super) fn announce_as_it_is(&mut self, queue: u16, entry: Cqe) {
        let full = |queues: &Queues| {
            queues.completion[usize::from(queue)]
                .as_ref()
                .is_none_or(|completion| completion.is_full() || !completion.waiting.is_empty())
        };
        if full(&self.queues) {
            self.look_at_shadow_head(queue);
            if let Some(completion) = &mut self.queues.completion[usize::from(queue)] {
                completion.waiting.push_back(entry);
                self.queues.blocked |= 1 << queue;
            }
            return self.post_waiting(queue);
        }
        self.post(queue, entry);
    }

    /// Writes an entry into a completion queue that has room, and interrupts.
    pub(super) fn post(&mut self, queue: u16, entry: Cqe) {
        let head = self.queues.submission[usize::from(entry.sq)].as_ref().map_or(0, |sq| sq.head);
        let Some(completion) = &mut self.queues.completion[usize::from(queue)] else { return };
        let at = completion.base + u64::from(completion.tail) * completion::LENGTH as u64;
        // A phase that a fault has turned stays so.
        let phase = completion.phase ^ entry.phase;
        let entry = Cqe { sq_head: head as u16, phase, ..entry };
        completion.tail += 1;
        if completion.tail == completion.entries {
            (completion.tail, completion.phase) = (0, !completion.phase);
        }
        let (interrupts, vector) = (completion.interrupts, completion.vector);
        let words = entry.to_words().map(u64::to_ne_bytes);
        let mut bytes = [0; completion::LENGTH];
        bytes[..8].copy_from_slice(&words[0]);
        bytes[8..].copy_from_slice(&words[1]);
        // The word with the phase comes last: a host in another thread looks at it.
        let last = u32::from_ne_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        let written = self.memory.write(at, &bytes[..12]);
        if written.and_then(|()| self.memory.store32(at + 12, last)).is_err() {
            return self.fail_fatally();
        }
        if !interrupts {
            self.silent += 1;
        } else if !self.faults.is_active()
            || !self.faults.fires(Kind::LostInterrupt, self.clock.now(), entry.cid.into())
        {
            self.queues.asserted |= 1 << queue;
            self.messages |= 1 << vector;
            self.interrupts += 1;
        }
        if self.queues.shadow.is_some() {
            self.look_at_shadow_head(queue);
        }
    }

    /// Creates the admin queues.
    pub(super) fn create_admin_queues(&mut self, entries: (u32, u32)) {
        let r = &self.registers;
        self.queues.submission[0] = Some(Submission::new(r.asq, entries.0, 0));
        self.queues.completion[0] = Some(Completion::new(r.acq, entries.1, 0, true));
    }

    /// Ends every command of a submission queue because it is deleted.
    pub(super) fn end_commands_of(&mut self, queue: u16) {
        let of_queue: Vec<u16> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.queue == queue)
            .map(|(index, _)| index)
            .collect();
        for index in of_queue {
            self.forget_waits(index);
            self.finish(index, Status::SqDeleted.into_bits(), 0);
        }
    }
}

/// Low bits of a command id that name a slot, for [`Nvme::device_done`].
pub(super) const SLOT_BITS: usize = 10;

/// The table of when the device was done, for so many queue pairs.
pub(super) fn done_table(pairs: u16) -> Vec<u64> {
    vec![0; (usize::from(pairs) + 1) << SLOT_BITS]
}
