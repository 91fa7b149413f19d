//! The queues of a controller: doorbells, submission and completion.

use alloc::vec::Vec;

use flysch_api::machine::GuestMemory;
use flysch_wire::nvme::command::{self, CreateCqFlags, CreateSqFlags};
use flysch_wire::nvme::{Cqe, Sqe, Status};

use super::config::Config;
use super::ring::{Completion, Interrupts, Shadow, Submission, Unreachable};
use super::task::Tasks;

/// Why a doorbell write is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingError {
    /// There is no such doorbell.
    Doorbell,
    /// The queue has no such entry, or the host took entries that it was not given.
    Value,
    /// The doorbell buffer cannot be reached.
    Unreachable,
}

impl From<Unreachable> for RingError {
    fn from(_: Unreachable) -> Self {
        Self::Unreachable
    }
}

/// A fetched entry, and whether it is the last one that the host has announced.
pub(super) struct Fetched {
    pub(super) entry: Sqe,
    pub(super) is_last: bool,
}

/// All queues of a controller; the admin queues are number 0.
#[derive(Debug)]
pub(super) struct Queues {
    submission: Vec<Option<Submission>>,
    completion: Vec<Option<Completion>>,
    /// Submission queues with entries to fetch, one bit each.
    ready: u128,
    /// The submission queue whose turn it is.
    turn: u32,
    /// Completion queues with interrupts and entries that the host has not taken, one bit each.
    asserted: u128,
    /// Completion queues in which completions wait for room, one bit each. Nothing is fetched that
    /// would end there, so that only commands already in progress can join them.
    blocked: u128,
    /// The doorbell buffers in the host's memory.
    shadow: Option<Shadow>,
    pub(super) interrupts: Interrupts,
    /// Number of interrupt vectors.
    pub(super) vectors: u16,
    /// Maximum number of entries of an I/O queue.
    entries_max: u32,
    /// CAP.DSTRD.
    stride: u8,
    /// Whether the host may keep doorbells in its memory.
    may_shadow: bool,
}

impl Queues {
    pub(super) fn new(config: &Config) -> Self {
        let count = usize::from(config.queues) + 1;
        let (mut submission, mut completion) = (Vec::new(), Vec::new());
        submission.resize_with(count, || None);
        completion.resize_with(count, || None);
        Self {
            submission,
            completion,
            ready: 0,
            turn: 0,
            asserted: 0,
            blocked: 0,
            shadow: None,
            interrupts: Interrupts::default(),
            vectors: config.vectors,
            entries_max: config.entries,
            stride: config.stride,
            may_shadow: config.shadow_doorbells,
        }
    }

    /// Removes all queues. The counters stay.
    pub(super) fn clear(&mut self) {
        self.submission.fill_with(|| None);
        self.completion.fill_with(|| None);
        (self.ready, self.turn, self.asserted, self.blocked) = (0, 0, 0, 0);
        (self.shadow, self.interrupts.messages) = (None, 0);
    }

    /// Creates the admin queues, from the bases and sizes of submission and completion queue.
    pub(super) fn create_admin(&mut self, (asq, acq): (u64, u64), (sqes, cqes): (u32, u32)) {
        self.submission[0] = Some(Submission::new(asq, sqes, 0));
        self.completion[0] = Some(Completion::new(acq, cqes, 0, true));
    }

    /// The queue that CDW10 names, if it is a valid I/O queue.
    fn number(&self, command: &Sqe) -> Result<u16, Status> {
        let queue = command.cdw10[0] as u16;
        let exists = queue != 0 && usize::from(queue) < self.submission.len();
        if exists { Ok(queue) } else { Err(Status::QueueId) }
    }

    /// Size and base of a queue to be created, with memory pages of `page` bytes.
    fn shape(&self, command: &Sqe, contiguous: bool, page: u64) -> Result<(u32, u64), Status> {
        let entries = (command.cdw10[0] >> 16) + 1;
        if entries < 2 || entries > self.entries_max {
            return Err(Status::QueueSize);
        }
        if !contiguous {
            return Err(Status::InvalidField);
        }
        let base = command.data[0];
        if base & (page - 1) != 0 {
            return Err(Status::PrpOffset);
        }
        Ok((entries, base))
    }

    /// Create I/O Completion Queue.
    pub(super) fn create_completion(&mut self, command: &Sqe, page: u64) -> Result<(), Status> {
        let queue = self.number(command)?;
        let flags = CreateCqFlags::from_bits(command.cdw10[1]);
        if self.completion[usize::from(queue)].is_some() {
            return Err(Status::QueueId);
        }
        let (entries, base) = self.shape(command, flags.pc(), page)?;
        if flags.iv() >= self.vectors {
            return Err(Status::InterruptVector);
        }
        let created = Completion::new(base, entries, flags.iv(), flags.ien());
        self.completion[usize::from(queue)] = Some(created);
        Ok(())
    }

    /// Create I/O Submission Queue.
    pub(super) fn create_submission(&mut self, command: &Sqe, page: u64) -> Result<(), Status> {
        let queue = self.number(command)?;
        let flags = CreateSqFlags::from_bits(command.cdw10[1]);
        let completion = self.completion.get(usize::from(flags.cqid()));
        if flags.cqid() == 0 || completion.is_none_or(Option::is_none) {
            return Err(Status::CqInvalid);
        }
        if self.submission[usize::from(queue)].is_some() {
            return Err(Status::QueueId);
        }
        let (entries, base) = self.shape(command, flags.pc(), page)?;
        let created = Submission::new(base, entries, flags.cqid());
        self.submission[usize::from(queue)] = Some(created);
        Ok(())
    }

    /// The submission queue that `command` deletes.
    pub(super) fn submission_to_delete(&self, command: &Sqe) -> Result<u16, Status> {
        let queue = self.number(command)?;
        if self.submission[usize::from(queue)].is_none() {
            return Err(Status::QueueId);
        }
        Ok(queue)
    }

    /// Removes a submission queue; its commands have ended.
    pub(super) fn delete_submission(&mut self, queue: u16) {
        self.submission[usize::from(queue)] = None;
        self.ready &= !(1 << queue);
    }

    /// Delete I/O Completion Queue.
    pub(super) fn delete_completion(&mut self, command: &Sqe) -> Result<(), Status> {
        let queue = self.number(command)?;
        if self.completion[usize::from(queue)].is_none() {
            return Err(Status::QueueId);
        }
        let mut users = self.submission.iter().flatten();
        if users.any(|user| user.completion == queue) {
            return Err(Status::QueueDeletion);
        }
        self.completion[usize::from(queue)] = None;
        self.asserted &= !(1 << queue);
        self.blocked &= !(1 << queue);
        Ok(())
    }

    /// Doorbell Buffer Config: the I/O queues' doorbells are in memory from now on.
    pub(super) fn set_shadow(
        &mut self,
        command: &Sqe,
        memory: &GuestMemory,
        page: u64,
    ) -> Result<(), Status> {
        if !self.may_shadow {
            return Err(Status::InvalidOpcode);
        }
        let [values, events] = command.data;
        let fits = |at: u64| at != 0 && at & (page - 1) == 0 && memory.contains(at, page as usize);
        if !fits(values) || !fits(events) {
            return Err(Status::InvalidField);
        }
        self.shadow = Some(Shadow { values, events, stride: self.stride });
        Ok(())
    }

    /// Whether there are I/O queues.
    pub(super) fn has_io(&self) -> bool {
        self.completion[1..].iter().any(Option::is_some)
    }

    /// The completion queue for the commands of `queue`, if that still exists.
    #[inline]
    pub(super) fn completion_of(&self, queue: u16) -> Option<u16> {
        Some(self.submission[usize::from(queue)].as_ref()?.completion)
    }

    /// Whether completions wait that the host wants an interrupt for.
    #[inline]
    pub(super) fn is_asserted(&self) -> bool {
        self.asserted != 0
    }

    /// The next submission queue with something to fetch and room for it, starting with the one
    /// whose turn it is.
    #[inline]
    pub(super) fn next_ready(&mut self, tasks: &Tasks) -> Option<u16> {
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

    /// Takes the next entry of a submission queue that is ready.
    #[inline]
    pub(super) fn fetch(
        &mut self,
        memory: &GuestMemory,
        queue: u16,
    ) -> Result<Option<Fetched>, Unreachable> {
        let Some(submission) = &mut self.submission[usize::from(queue)] else {
            self.ready &= !(1 << queue);
            return Ok(None);
        };
        let at = submission.advance();
        let is_last = submission.head == submission.tail;
        if is_last {
            self.ready &= !(1 << queue);
        }
        let mut bytes = [0; command::LENGTH];
        memory.read(at, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        let entry = Sqe::from_words(core::array::from_fn(|at| u64::from_ne_bytes(words[at])));
        Ok(Some(Fetched { entry, is_last }))
    }

    /// A doorbell was written, `offset` bytes after the first one. `lost` decides whether the
    /// interrupt of a command's completion gets lost.
    pub(super) fn ring(
        &mut self,
        memory: &GuestMemory,
        (offset, value): (u32, u32),
        mut lost: impl FnMut(u16) -> bool,
    ) -> Result<(), RingError> {
        let step = 4 << self.stride;
        let number = offset / step;
        let (queue, is_head) = ((number / 2) as usize, number % 2 == 1);
        if !offset.is_multiple_of(step) || queue >= self.submission.len() {
            return Err(RingError::Doorbell);
        }
        let queue = queue as u16;
        if self.shadow_of(queue).is_none() {
            if !is_head {
                return self.move_tail(queue, value);
            }
            self.move_head(queue, value)?;
            return Ok(self.post_waiting(memory, queue, &mut lost)?);
        }
        // With doorbells in the host's memory, a register write only says that one of them has
        // moved. Its value may be older than one already taken from there; going back to it would
        // carry out the whole ring again.
        let exists = match is_head {
            true => self.completion[usize::from(queue)].is_some(),
            false => self.submission[usize::from(queue)].is_some(),
        };
        if !exists {
            return Err(RingError::Doorbell);
        }
        if !is_head {
            return Ok(self.look_at_shadow(memory, queue)?);
        }
        let looked = self.look_at_shadow_head(memory, queue);
        Ok(looked.and(self.post_waiting(memory, queue, &mut lost))?)
    }

    /// The host has put entries into a submission queue.
    #[inline]
    fn move_tail(&mut self, queue: u16, value: u32) -> Result<(), RingError> {
        let submission = self.submission[usize::from(queue)].as_mut().ok_or(RingError::Doorbell)?;
        if value >= submission.entries {
            return Err(RingError::Value);
        }
        submission.tail = value;
        if submission.tail != submission.head {
            self.ready |= 1 << queue;
        }
        Ok(())
    }

    /// The host has taken entries from a completion queue.
    #[inline]
    fn move_head(&mut self, queue: u16, value: u32) -> Result<(), RingError> {
        let completion = self.completion[usize::from(queue)].as_mut().ok_or(RingError::Doorbell)?;
        if !completion.can_be_head(value) {
            return Err(RingError::Value);
        }
        completion.head = value;
        if completion.head == completion.tail {
            self.asserted &= !(1 << queue);
        }
        Ok(())
    }

    /// The doorbell buffers, if those of `queue` are there.
    #[inline]
    fn shadow_of(&self, queue: u16) -> Option<Shadow> {
        self.shadow.filter(|_| queue != 0)
    }

    /// Takes the tail of a queue from the host's memory, and asks to be told of the next change.
    pub(super) fn look_at_shadow(
        &mut self,
        memory: &GuestMemory,
        queue: u16,
    ) -> Result<(), Unreachable> {
        let Some(shadow) = self.shadow_of(queue) else { return Ok(()) };
        let tail = shadow.exchange(memory, queue, false)?;
        let Some(submission) = &mut self.submission[usize::from(queue)] else { return Ok(()) };
        if tail < submission.entries && tail != submission.head {
            submission.tail = tail;
            self.ready |= 1 << queue;
        }
        Ok(())
    }

    /// Takes the head of a completion queue from the host's memory.
    fn look_at_shadow_head(&mut self, memory: &GuestMemory, queue: u16) -> Result<(), Unreachable> {
        let Some(shadow) = self.shadow_of(queue) else { return Ok(()) };
        let head = shadow.exchange(memory, queue, true)?;
        // No event exists for an invalid head: it is ignored.
        let _ = self.move_head(queue, head);
        Ok(())
    }

    /// Posts an entry, or keeps it until there is room; `lost` is as for [`ring`](Self::ring).
    #[inline]
    pub(super) fn announce(
        &mut self,
        memory: &GuestMemory,
        (queue, entry): (u16, Cqe),
        mut lost: impl FnMut(u16) -> bool,
    ) -> Result<(), Unreachable> {
        let waits = self.completion[usize::from(queue)]
            .as_ref()
            .is_none_or(|completion| completion.is_full() || !completion.waiting.is_empty());
        if !waits {
            return self.post(memory, (queue, entry), &mut lost);
        }
        let looked = self.look_at_shadow_head(memory, queue);
        if let Some(completion) = &mut self.completion[usize::from(queue)] {
            completion.waiting.push_back(entry);
            self.blocked |= 1 << queue;
        }
        looked.and(self.post_waiting(memory, queue, &mut lost))
    }

    /// Posts the completions that wait for room in a completion queue.
    fn post_waiting(
        &mut self,
        memory: &GuestMemory,
        queue: u16,
        lost: &mut impl FnMut(u16) -> bool,
    ) -> Result<(), Unreachable> {
        let mut posted = Ok(());
        while let Some(completion) = &mut self.completion[usize::from(queue)] {
            if completion.is_full() {
                break;
            }
            let Some(entry) = completion.waiting.pop_front() else {
                self.blocked &= !(1 << queue);
                break;
            };
            posted = posted.and(self.post(memory, (queue, entry), lost));
        }
        posted
    }

    /// Writes an entry into a completion queue that has room, and raises its interrupt.
    fn post(
        &mut self,
        memory: &GuestMemory,
        (queue, entry): (u16, Cqe),
        lost: &mut impl FnMut(u16) -> bool,
    ) -> Result<(), Unreachable> {
        let head = self.submission[usize::from(entry.sq)].as_ref().map_or(0, |sq| sq.head);
        let Some(completion) = &mut self.completion[usize::from(queue)] else { return Ok(()) };
        completion.push(memory, Cqe { sq_head: head as u16, ..entry })?;
        if !completion.interrupts {
            self.interrupts.silent += 1;
        } else if !lost(entry.cid) {
            self.asserted |= 1 << queue;
            self.interrupts.raise(completion.vector);
        }
        match self.shadow {
            Some(_) => self.look_at_shadow_head(memory, queue),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
