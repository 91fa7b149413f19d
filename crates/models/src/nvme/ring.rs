//! The parts of queues: rings and doorbells in the host's memory, and interrupts.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use flysch_api::machine::{GuestMemory, Instant, OutOfRange};
use flysch_wire::nvme::{Cqe, command, completion};

/// A submission queue.
#[derive(Debug)]
pub(super) struct Submission {
    base: u64,
    pub(super) entries: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    /// The completion queue for its commands.
    pub(super) completion: u16,
}

impl Submission {
    pub(super) fn new(base: u64, entries: u32, completion: u16) -> Self {
        Self { base, entries, head: 0, tail: 0, completion }
    }

    /// Advances the head by one entry; returns the address of the previous one.
    #[inline]
    pub(super) fn advance(&mut self) -> u64 {
        let at = self.base + u64::from(self.head) * command::LENGTH as u64;
        let next = self.head + 1;
        self.head = if next < self.entries { next } else { 0 };
        at
    }
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Completion {
    base: u64,
    pub(super) entries: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    phase: bool,
    pub(super) vector: u16,
    pub(super) interrupts: bool,
    /// Completions waiting for room.
    pub(super) waiting: VecDeque<Cqe>,
}

impl Completion {
    pub(super) fn new(base: u64, entries: u32, vector: u16, interrupts: bool) -> Self {
        let waiting = VecDeque::new();
        Self { base, entries, head: 0, tail: 0, phase: true, vector, interrupts, waiting }
    }

    /// Number of entries that the host has not taken.
    fn used(&self) -> u32 {
        distance(self.head, self.tail, self.entries)
    }

    pub(super) fn is_full(&self) -> bool {
        self.used() + 1 == self.entries
    }

    /// Whether the host may have taken the entries before `head`.
    #[inline]
    pub(super) fn can_be_head(&self, head: u32) -> bool {
        head < self.entries && distance(self.head, head, self.entries) <= self.used()
    }

    /// Writes an entry into the ring, which has room. A phase inverted by a fault stays inverted.
    #[inline]
    pub(super) fn push(&mut self, memory: &GuestMemory, entry: Cqe) -> Result<(), Unreachable> {
        let at = self.base + u64::from(self.tail) * completion::LENGTH as u64;
        let entry = Cqe { phase: self.phase ^ entry.phase, ..entry };
        self.tail += 1;
        if self.tail == self.entries {
            (self.tail, self.phase) = (0, !self.phase);
        }
        let words = entry.to_words().map(u64::to_ne_bytes);
        let mut bytes = [0; completion::LENGTH];
        bytes[..8].copy_from_slice(&words[0]);
        bytes[8..].copy_from_slice(&words[1]);
        // The word with the phase is written last: a host in another thread polls it.
        let last = u32::from_ne_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        memory.write(at, &bytes[..12])?;
        Ok(memory.store32(at + 12, last)?)
    }
}

/// Number of entries from `from` to `to` in a ring of `entries`.
fn distance(from: u32, to: u32, entries: u32) -> u32 {
    if to >= from { to - from } else { to + entries - from }
}

/// A queue or a doorbell is outside the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreachable;

impl From<OutOfRange> for Unreachable {
    fn from(_: OutOfRange) -> Self {
        Self
    }
}

/// Doorbell buffers: a page of doorbells and a page of event indices in the host's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shadow {
    pub(super) values: u64,
    pub(super) events: u64,
    pub(super) stride: u8,
}

impl Shadow {
    /// Takes a doorbell from the host's memory and asks, by its event index, to be told of the next
    /// change.
    ///
    /// The index is written before the doorbell is read again, so that a change that the host did
    /// not announce because of the old index is seen. The host, on a processor of its own, does the
    /// reverse: it writes the doorbell and then reads the index. If neither store preceded the
    /// other side's load, both could see the old values; hence the fence.
    pub(super) fn exchange(
        &self,
        memory: &GuestMemory,
        queue: u16,
        is_head: bool,
    ) -> Result<u32, Unreachable> {
        let offset = (2 * u64::from(queue) + u64::from(is_head)) * (4 << self.stride);
        let load = || {
            let mut bytes = [0; 4];
            let read = memory.read(self.values + offset, &mut bytes);
            read.map(|()| u32::from_le_bytes(bytes))
        };
        let doorbell = load()?;
        memory.store32(self.events + offset, doorbell.to_le())?;
        fence(Ordering::SeqCst);
        let doorbell = load();
        // The entries before it are read afterwards.
        fence(Ordering::Acquire);
        Ok(doorbell?)
    }
}

/// Raised interrupts.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    /// Vectors raised and not yet taken, one bit each.
    pub(super) messages: u64,
    /// Total number of raised interrupts.
    pub(super) raised: u64,
    /// Number of completions posted to queues without interrupts.
    pub(super) silent: u64,
}

impl Interrupts {
    #[inline]
    pub(super) fn raise(&mut self, vector: u16) {
        self.messages |= 1 << vector;
        self.raised += 1;
    }

    /// Takes a vector that was raised since the last call; each is returned once.
    pub(super) fn take_vector(&mut self) -> Option<u16> {
        let vector = self.messages.trailing_zeros();
        self.messages &= self.messages.wrapping_sub(1);
        (vector < u64::BITS).then_some(vector as u16)
    }

    /// Takes all of them, one bit each.
    #[inline]
    pub(super) fn take_all(&mut self) -> u64 {
        core::mem::take(&mut self.messages)
    }
}

/// Number of low bits of a command id that name a slot, for [`Finished::at`].
const SLOT_BITS: usize = 10;

/// When the device finished commands, by queue and the low bits of the command id, nanoseconds.
#[derive(Debug)]
pub(super) struct Finished(Vec<u64>);

impl Finished {
    /// The table for this many queue pairs.
    pub(super) fn new(pairs: u16) -> Self {
        Self(vec![0; (usize::from(pairs) + 1) << SLOT_BITS])
    }

    /// Records that a command of `queue` finished at `now`.
    #[inline]
    pub(super) fn note(&mut self, queue: u16, cid: u16, now: u64) {
        self.0[usize::from(queue) << SLOT_BITS | usize::from(cid & ((1 << SLOT_BITS) - 1))] = now;
    }

    /// When the last command of `queue` in `slot` finished.
    pub(super) fn at(&self, queue: u16, slot: u16) -> Option<Instant> {
        if slot >> SLOT_BITS != 0 {
            return None;
        }
        let nanos = *self.0.get(usize::from(queue) << SLOT_BITS | usize::from(slot))?;
        (nanos != 0).then_some(Instant::from_nanos(nanos))
    }
}
