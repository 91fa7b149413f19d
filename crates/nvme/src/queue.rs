//! The two rings of a lane, and the slots they carry.

use crate::layout::PAGE;
use core::sync::atomic::{Ordering, fence};
use flysch_api::command::{Outcome, Token};
use flysch_api::data::Data;
use flysch_api::machine::{DmaArray, DmaRegion, Instant, Registers};
use flysch_wire::nvme::{command, completion};

/// Bits of a command id that hold the slot number; the others count its generations, so that a late
/// completion of an earlier command is not taken for one of the current command.
pub(crate) const SLOT_BITS: u16 = (1 << 10) - 1;
/// One generation.
pub(crate) const LIFE: u16 = SLOT_BITS + 1;

/// No slot: the end of the list of free ones.
pub(crate) const NO_SLOT: u16 = u16::MAX;

/// A doorbell: a register and, if the controller supports it, a copy in memory (5.8).
#[derive(Debug)]
struct Doorbell {
    register: u32,
    /// The value last written.
    rung: usize,
    shadow: Option<Shadow>,
}

/// A doorbell in memory, and the controller's event index, which says when to write the register.
#[derive(Debug)]
pub(crate) struct Shadow {
    value: DmaRegion,
    event: DmaRegion,
}

impl Shadow {
    /// The doorbell `offset` bytes after the first, in `doorbells` of two pages.
    pub(crate) fn new(doorbells: &DmaRegion, offset: u32) -> Self {
        let at = |page: usize| doorbells.carve(page + offset as usize, size_of::<u32>());
        Self { value: at(0), event: at(PAGE) }
    }

    /// Stores a value; returns whether the register must be written, which is so if the
    /// controller's event index lies between the previous value and this one.
    fn tell(&self, old: usize, new: usize, registers: &impl Registers) -> bool {
        self.value.store32(0, (new as u32).to_le());
        registers.sync_for_device(self.value.span(0, size_of::<u32>()));
        // The controller writes its index and then reads the value: one of both sees the other.
        fence(Ordering::SeqCst);
        registers.sync_for_cpu(self.event.span(0, size_of::<u32>()));
        let event = u32::from_le(self.event.load32(0)) as u16;
        let (old, new) = (old as u16, new as u16);
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }
}

impl Doorbell {
    fn new(register: u32) -> Self {
        Self { register, rung: 0, shadow: None }
    }

    #[inline]
    fn tell(&mut self, value: usize, registers: &impl Registers) {
        let old = core::mem::replace(&mut self.rung, value);
        let asks = |shadow: &Shadow| shadow.tell(old, value, registers);
        if self.shadow.as_ref().is_none_or(asks) {
            registers.write32(self.register, value as u32);
        }
    }
}

/// A submission queue.
#[derive(Debug)]
pub(crate) struct Submission {
    ring: DmaArray<{ command::LENGTH }>,
    doorbell: Doorbell,
    /// The index of the next entry; at the end of the ring, wraps on the next write.
    tail: usize,
    /// Where the queue lies in the register window, if it lies in the controller's memory.
    window: Option<u32>,
}

impl Submission {
    pub(crate) fn new(ring: DmaRegion, doorbell: u32) -> Self {
        Self { ring: DmaArray::new(ring), doorbell: Doorbell::new(doorbell), tail: 0, window: None }
    }

    pub(crate) fn restart(&mut self) {
        (self.tail, self.doorbell.rung) = (0, 0);
    }

    /// From now on its doorbell is also in memory, and its entries go to the controller's memory.
    pub(crate) fn place(&mut self, shadow: Option<Shadow>, window: Option<u32>) {
        (self.doorbell.shadow, self.window) = (shadow, window);
    }

    /// Writes an entry. A single check covers the index: if it is past the end, the entry goes to
    /// the beginning of the ring.
    #[inline(always)]
    pub(crate) fn post(&mut self, entry: [u64; command::WORDS], registers: &impl Registers) {
        let tail = self.tail;
        match self.ring.find(tail) {
            Some(place) => {
                place.put::<0, { command::WORDS }>(entry);
                self.hand_over(tail, registers);
                self.tail = tail + 1;
            }
            None => self.post_first(entry, registers),
        }
    }

    /// Out of line, so that every other entry pays only for a comparison.
    #[cold]
    fn post_first(&mut self, entry: [u64; command::WORDS], registers: &impl Registers) {
        self.ring.get(0).put::<0, { command::WORDS }>(entry);
        self.hand_over(0, registers);
        self.tail = 1;
    }

    #[inline(always)]
    fn hand_over(&self, number: usize, registers: &impl Registers) {
        let at = number * command::LENGTH;
        registers.sync_for_device(self.ring.region().span(at, command::LENGTH));
    }

    /// Whether entries have been posted without a doorbell.
    #[inline]
    pub(crate) fn has_unrung(&self) -> bool {
        self.tail != self.doorbell.rung
    }

    /// The number of such entries.
    #[inline]
    pub(crate) fn unrung(&self) -> usize {
        let (tail, rung) = (self.tail, self.doorbell.rung);
        if tail >= rung { tail - rung } else { tail + self.ring.len() - rung }
    }

    /// The id of the first of them. The device may write to this memory too, and could replace the
    /// id by another.
    #[inline]
    pub(crate) fn first_unrung_id(&self) -> u16 {
        self.id_at(self.doorbell.rung)
    }

    /// The ids of all of them.
    pub(crate) fn unrung_ids(&self) -> impl Iterator<Item = u16> {
        let (rung, len) = (self.doorbell.rung, self.ring.len());
        (0..self.unrung()).map(move |n| self.id_at((rung + n) % len))
    }

    #[inline]
    fn id_at(&self, number: usize) -> u16 {
        let [word] = self.ring.get(number).get::<0, 1>();
        (u64::from_le(word) >> 16) as u16
    }

    /// One doorbell for everything posted.
    #[inline]
    pub(crate) fn ring(&mut self, registers: &impl Registers) {
        if self.has_unrung() {
            self.ring_unrung(registers);
        }
    }

    /// As above, if there is something to ring for.
    #[inline]
    pub(crate) fn ring_unrung(&mut self, registers: &impl Registers) {
        if let Some(window) = self.window {
            self.copy_to(window, registers);
        }
        if self.tail == self.ring.len() {
            self.tail = 0;
        }
        self.doorbell.tell(self.tail, registers);
    }

    /// Copies the posted entries into the controller's memory, which is accessed like registers.
    #[cold]
    fn copy_to(&self, window: u32, registers: &impl Registers) {
        let (rung, len) = (self.doorbell.rung, self.ring.len());
        for number in (0..self.unrung()).map(|n| (rung + n) % len) {
            let words = self.ring.get(number).get::<0, { command::WORDS }>();
            let at = window + (number * command::LENGTH) as u32;
            for (n, word) in (0..).zip(words) {
                let word = u64::from_le(word);
                registers.write32(at + 8 * n, word as u32);
                registers.write32(at + 8 * n + 4, (word >> 32) as u32);
            }
        }
    }
}

/// A completion queue.
///
/// A new entry is recognised by its phase, a bit that changes with every turn of the ring. The word
/// with the phase is read first, and the rest after it.
#[derive(Debug)]
pub(crate) struct Completion {
    ring: DmaArray<{ completion::LENGTH }>,
    doorbell: Doorbell,
    /// The index of the next entry; at the end of the ring, wraps to the first entry of the next
    /// turn.
    head: usize,
    /// The phase of a new entry, at its position in the word.
    phase: u64,
}

/// Position of the phase in the second word of an entry.
const PHASE: u64 = 1 << 48;

/// A completion entry as it is in memory.
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

    /// Whether it reports success and no details.
    #[inline]
    pub(crate) fn is_plainly_good(self) -> bool {
        self.word >> 49 | u64::from(self.result) == 0
    }
}

impl Completion {
    pub(crate) fn new(ring: DmaRegion, doorbell: u32) -> Self {
        let doorbell = Doorbell::new(doorbell);
        Self { ring: DmaArray::new(ring), doorbell, head: 0, phase: PHASE }
    }

    /// From now on its doorbell is also in memory.
    pub(crate) fn place(&mut self, shadow: Option<Shadow>) {
        self.doorbell.shadow = shadow;
    }

    /// Starts over with an empty ring.
    pub(crate) fn restart(&mut self, registers: &impl Registers) {
        let ring = self.ring.region();
        ring.fill(0, ring.len(), 0);
        registers.sync_for_device(ring.span(0, ring.len()));
        (self.head, self.doorbell.rung, self.phase) = (0, 0, PHASE);
    }

    /// The next entry, if it is new.
    #[inline(always)]
    pub(crate) fn take(&mut self, registers: &impl Registers) -> Option<Done> {
        if self.ring.find(self.head).is_none() {
            self.wrap();
        }
        let head = self.head;
        let entry = self.ring.find(head)?;
        let at = head * completion::LENGTH;
        registers.sync_for_cpu(self.ring.region().span(at, completion::LENGTH));
        let word = u64::from_le(entry.load::<{ completion::STATUS_OFFSET }>());
        if word & PHASE != self.phase {
            return None;
        }
        let [low] = entry.get::<0, 1>();
        self.head = head + 1;
        Some(Done { word, result: u64::from_le(low) as u32 })
    }

    /// Out of line, so that every other entry pays only for a comparison.
    #[cold]
    fn wrap(&mut self) {
        self.head = 0;
        self.phase ^= PHASE;
    }

    /// The controller is switched off: the head is not reported to it any more. Later, the doorbell
    /// might belong to a new queue.
    pub(crate) fn tell_no_more(&mut self) {
        self.doorbell.rung = self.head;
    }

    /// Whether an entry may be waiting; at the end of the ring the answer is yes.
    #[inline]
    pub(crate) fn is_waiting(&self, registers: &impl Registers) -> bool {
        let at = self.head * completion::LENGTH;
        registers.sync_for_cpu(self.ring.region().span(at, completion::LENGTH));
        let Some(entry) = self.ring.find(self.head) else { return true };
        let word = u64::from_le(entry.load::<{ completion::STATUS_OFFSET }>());
        word & PHASE == self.phase
    }

    /// Reports to the controller how far the ring was read, once per batch.
    #[inline]
    pub(crate) fn ring(&mut self, registers: &impl Registers) {
        if self.head != self.doorbell.rung {
            if self.head == self.ring.len() {
                self.wrap();
            }
            self.doorbell.tell(self.head, registers);
        }
    }
}

/// An outcome, rebuilt from its parts, so that an outcome that comes from a call does not force the
/// others into memory.
#[inline(always)]
pub(crate) fn renewed(outcome: Outcome) -> Outcome {
    let Outcome { issued, device_done, token, ended } = outcome;
    Outcome { issued, device_done, token, ended }
}

/// One slot of a lane's queue, with the token for which an outcome is owed. The token is moved out
/// when the outcome is made, so there cannot be two outcomes.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) owed: Option<Token>,
    /// The id of its last command.
    pub(crate) cid: u16,
    /// The next free slot, if this one is free.
    pub(crate) next: u16,
    /// The owner asked to abort it.
    pub(crate) abort: bool,
    /// The host was asked to abort it.
    pub(crate) overdue: bool,
    pub(crate) expected: u32,
    pub(crate) deadline: Instant,
    pub(crate) issued: Instant,
    /// Memory that the device writes, if it has to be synchronised back.
    pub(crate) incoming: Data,
}

const _: () = assert!(size_of::<Slot>() == 64, "a cache line");

impl Slot {
    pub(crate) fn free(number: u16) -> Self {
        Self {
            owed: None,
            cid: number,
            next: NO_SLOT,
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
mod tests;
