//! The two rings of a lane, and the slots they carry.

use flysch_api::command::{Outcome, Token};
use flysch_api::data::Data;
use flysch_api::machine::{DmaArray, DmaRegion, Instant, Registers};
use flysch_wire::nvme::{command, completion};

/// Bits of a command id that number the slot; the others count its lives, so that a completion of
/// an earlier one is not taken for one of this.
pub(crate) const SLOT_BITS: u16 = (1 << 10) - 1;
/// One life more.
pub(crate) const LIFE: u16 = SLOT_BITS + 1;

/// Most slots one lane can have.
const SLOTS_MAX: usize = SLOT_BITS as usize + 1;

/// Numbers of slots, each there at most once, so that there are never more than the bits of a
/// command id tell apart: an access needs no check.
#[derive(Debug)]
pub(crate) struct SlotStack {
    numbers: [u16; SLOTS_MAX],
    len: usize,
}

impl SlotStack {
    pub(crate) fn empty() -> Self {
        Self { numbers: [0; SLOTS_MAX], len: 0 }
    }

    /// The free slots of a lane with so many, last freed first taken: it is the warmest in the
    /// cache.
    pub(crate) fn free(slots: usize) -> Self {
        let mut free = Self::empty();
        (0..slots).rev().for_each(|slot| free.push(slot));
        free
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes the number that was pushed last.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        Some(self.numbers[self.len % SLOTS_MAX].into())
    }

    #[inline]
    pub(crate) fn push(&mut self, slot: usize) {
        self.numbers[self.len % SLOTS_MAX] = slot as u16;
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[u16] {
        &self.numbers[..self.len.min(SLOTS_MAX)]
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

/// A submission queue.
#[derive(Debug)]
pub(crate) struct Submission {
    ring: DmaArray<{ command::LENGTH }>,
    doorbell: u32,
    /// The number of the next entry, and what the controller was last told.
    tail: usize,
    rung: usize,
}

impl Submission {
    pub(crate) fn new(ring: DmaRegion, doorbell: u32) -> Self {
        Self { ring: DmaArray::new(ring), doorbell, tail: 0, rung: 0 }
    }

    pub(crate) fn restart(&mut self) {
        (self.tail, self.rung) = (0, 0);
    }

    #[inline(always)]
    pub(crate) fn post(&mut self, entry: [u64; command::WORDS], registers: &impl Registers) {
        self.ring.get(self.tail).put::<0, { command::WORDS }>(entry);
        let at = self.tail * command::LENGTH;
        registers.sync_for_device(self.ring.region().span(at, command::LENGTH));
        self.tail += 1;
        if self.tail == self.ring.len() {
            self.wrap();
        }
    }

    /// Out of line, so that every other entry pays for a comparison alone.
    #[cold]
    fn wrap(&mut self) {
        self.tail = 0;
    }

    /// One doorbell for everything posted.
    #[inline]
    pub(crate) fn ring(&mut self, registers: &impl Registers) {
        if self.tail != self.rung {
            registers.write32(self.doorbell, self.tail as u32);
            self.rung = self.tail;
        }
    }
}

/// A completion queue.
///
/// A new entry shows by its phase: the bit changes with every turn of the ring. The word with the
/// phase is read first, and the rest behind it.
#[derive(Debug)]
pub(crate) struct Completion {
    ring: DmaArray<{ completion::LENGTH }>,
    doorbell: u32,
    /// The number of the next entry, and what the controller was last told.
    head: usize,
    rung: usize,
    /// What the phase of a new entry is, where it lies in its word.
    phase: u64,
}

/// Where the phase lies in the second word of an entry.
const PHASE: u64 = 1 << 48;

/// What a completion entry says, as it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Command id, phase and status.
    word: u64,
    pub(crate) result: u32,
}

impl Done {
    /// The id of the command.
    #[inline]
    pub(crate) fn cid(self) -> u16 {
        (self.word >> 32) as u16
    }

    /// The status field without the phase.
    #[inline]
    pub(crate) fn status(self) -> u16 {
        (self.word >> 49) as u16
    }

    /// Whether it ended well and said nothing.
    #[inline]
    pub(crate) fn is_plainly_good(self) -> bool {
        self.word >> 49 | u64::from(self.result) == 0
    }
}

impl Completion {
    pub(crate) fn new(ring: DmaRegion, doorbell: u32) -> Self {
        Self { ring: DmaArray::new(ring), doorbell, head: 0, rung: 0, phase: PHASE }
    }

    /// Starts over with an empty ring.
    pub(crate) fn restart(&mut self, registers: &impl Registers) {
        let ring = self.ring.region();
        ring.fill(0, ring.len(), 0);
        registers.sync_for_device(ring.span(0, ring.len()));
        (self.head, self.rung, self.phase) = (0, 0, PHASE);
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, registers: &impl Registers) -> Option<Done> {
        let at = self.head * completion::LENGTH;
        registers.sync_for_cpu(self.ring.region().span(at, completion::LENGTH));
        let entry = self.ring.get(self.head);
        let word = u64::from_le(entry.load::<{ completion::STATUS_OFFSET }>());
        if word & PHASE != self.phase {
            return None;
        }
        let [low] = entry.get::<0, 1>();
        self.head += 1;
        if self.head == self.ring.len() {
            self.wrap();
        }
        Some(Done { word, result: u64::from_le(low) as u32 })
    }

    #[cold]
    fn wrap(&mut self) {
        self.head = 0;
        self.phase ^= PHASE;
    }

    /// The controller is switched off: how far the ring was read is not told any more. By the time
    /// it would be, the doorbell may be that of a new queue.
    pub(crate) fn tell_no_more(&mut self) {
        self.rung = self.head;
    }

    /// Whether an entry waits.
    #[inline]
    pub(crate) fn is_waiting(&self, registers: &impl Registers) -> bool {
        let at = self.head * completion::LENGTH;
        registers.sync_for_cpu(self.ring.region().span(at, completion::LENGTH));
        let word = u64::from_le(self.ring.region().load64(at + completion::STATUS_OFFSET));
        word & PHASE == self.phase
    }

    /// Tells the controller how far the ring was read, once per batch.
    #[inline]
    pub(crate) fn ring(&mut self, registers: &impl Registers) {
        if self.head != self.rung {
            registers.write32(self.doorbell, self.head as u32);
            self.rung = self.head;
        }
    }
}

/// The same outcome, made of its parts: one that comes from a call need not make the others be in
/// memory.
#[inline(always)]
pub(crate) fn renewed(outcome: Outcome) -> Outcome {
    let Outcome { issued, device_done, token, ended } = outcome;
    Outcome { issued, device_done, token, ended }
}

/// One place in a lane's queue, with the token that owes an outcome. The token is moved out when
/// the outcome is made, so there cannot be two.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) owed: Option<Token>,
    /// The id of its last command.
    pub(crate) cid: u16,
    /// The owner asked for the end.
    pub(crate) abort: bool,
    /// The host was asked to abort it.
    pub(crate) overdue: bool,
    pub(crate) expected: u32,
    pub(crate) deadline: Instant,
    pub(crate) issued: Instant,
    /// What the device writes, where it has to be synchronised back.
    pub(crate) incoming: Data,
}

const _: () = assert!(size_of::<Slot>() == 64, "a cache line");

impl Slot {
    pub(crate) fn free(number: u16) -> Self {
        Self {
            owed: None,
            cid: number,
            abort: false,
            overdue: false,
            expected: 0,
            deadline: Instant::NEVER,
            issued: Instant::START,
            incoming: Data::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use flysch_wire::nvme::Cqe;
    use std::vec::Vec;

    #[derive(Default)]
    struct File(RefCell<Vec<(u32, u32)>>);

    impl Registers for File {
        fn read32(&self, _: u32) -> u32 {
            0
        }
        fn write32(&self, offset: u32, value: u32) {
            self.0.borrow_mut().push((offset, value));
        }
    }

    #[test]
    fn the_phase_turns_with_the_ring_and_the_head_follows_once_per_batch() {
        let memory = DmaRegion::zeroed(4096, 0x1000);
        let (mut queue, file) = (Completion::new(memory.carve(0, 3 * 16), 0x1004), File::default());
        queue.restart(&file);
        let put = |at: usize, cid: u16, phase: bool| {
            let [low, high] = Cqe { cid, phase, result: 7, ..Cqe::default() }.to_words();
            memory.store64(at * 16, low);
            memory.store64(at * 16 + 8, high);
        };
        for turn in 0..4_u16 {
            assert_eq!(queue.take(&file), None, "the last turn's entries are old");
            let phase = turn % 2 == 0;
            (0..3).for_each(|at| put(at, turn * 3 + at as u16, phase));
            for n in 0..3 {
                let done = queue.take(&file).expect("an entry");
                assert_eq!((done.cid(), done.status(), done.result), (turn * 3 + n, 0, 7));
                assert!(!done.is_plainly_good());
            }
            assert!(!queue.is_waiting(&file));
        }
        put(0, 99, true);
        queue.take(&file);
        queue.ring(&file);
        queue.ring(&file);
        assert_eq!(*file.0.borrow(), [(0x1004, 1)]);
        put(1, 99, true);
        queue.take(&file).expect("an entry");
        queue.tell_no_more();
        queue.ring(&file);
        assert_eq!(file.0.borrow().len(), 1, "a controller that is switched off has no doorbells");
    }
}
