//! What queues are made of: rings in the host's memory and doorbells that stand there, interrupts.

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
    /// The completion queue its commands end in.
    pub(super) completion: u16,
}

impl Submission {
    pub(super) fn new(base: u64, entries: u32, completion: u16) -> Self {
        Self { base, entries, head: 0, tail: 0, completion }
    }

    /// Moves on to the next entry: where the one at the head lies.
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
    /// Completions that wait for room.
    pub(super) waiting: VecDeque<Cqe>,
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

    pub(super) fn is_full(&self) -> bool {
        self.used() + 1 == self.entries
    }

    /// Whether the host can have taken the entries before `head`.
    #[inline]
    pub(super) fn can_be_head(&self, head: u32) -> bool {
        head < self.entries && distance(self.head, head, self.entries) <= self.used()
    }

    /// Writes an entry into the ring, which has room. A phase that a fault has turned stays so.
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
        // The word with the phase comes last: a host in another thread looks at it.
        let last = u32::from_ne_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        memory.write(at, &bytes[..12])?;
        Ok(memory.store32(at + 12, last)?)
    }
}

/// Entries from `from` to `to` in a ring of `entries`.
fn distance(from: u32, to: u32, entries: u32) -> u32 {
    if to >= from { to - from } else { to + entries - from }
}

/// A queue or a doorbell lies where the host has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreachable;

impl From<OutOfRange> for Unreachable {
    fn from(_: OutOfRange) -> Self {
        Self
    }
}

/// Doorbell buffers: a page of values and a page of event indices in the host's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shadow {
    pub(super) values: u64,
    pub(super) events: u64,
    pub(super) stride: u8,
}

impl Shadow {
    /// Takes a doorbell from the host's memory and asks, by its event index, to be told of the
    /// next.
    ///
    /// The index is written before the doorbell is read once more, so that what the host did not
    /// tell of because of the old index is seen. The host does it the other way round on a
    /// processor of its own: it writes the doorbell and then reads the index. With neither store
    /// before the other's load each could see the old value, hence the fence.
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
        // The entries before it are read after it.
        fence(Ordering::Acquire);
        Ok(doorbell?)
    }
}

/// Interrupts that were raised.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    /// Vectors raised and not yet taken, a bit each.
    pub(super) messages: u64,
    /// How many were raised so far.
    pub(super) raised: u64,
    /// Completions posted to queues without interrupts.
    pub(super) silent: u64,
}

impl Interrupts {
    #[inline]
    pub(super) fn raise(&mut self, vector: u16) {
        self.messages |= 1 << vector;
        self.raised += 1;
    }

    /// A vector that was raised since the last question, each once.
    pub(super) fn take_vector(&mut self) -> Option<u16> {
        let vector = self.messages.trailing_zeros();
        self.messages &= self.messages.wrapping_sub(1);
        (vector < u64::BITS).then_some(vector as u16)
    }

    /// All of them, a bit each.
    #[inline]
    pub(super) fn take_all(&mut self) -> u64 {
        core::mem::take(&mut self.messages)
    }
}

/// Low bits of a command id that name a slot, for [`Finished::at`].
const SLOT_BITS: usize = 10;

/// When the device finished commands, by queue and the low bits of the command id, nanoseconds.
#[derive(Debug)]
pub(super) struct Finished(Vec<u64>);

impl Finished {
    /// For so many queue pairs.
    pub(super) fn new(pairs: u16) -> Self {
        Self(vec![0; (usize::from(pairs) + 1) << SLOT_BITS])
    }

    /// A command of `queue` is finished at `now`.
    #[inline]
    pub(super) fn note(&mut self, queue: u16, cid: u16, now: u64) {
        self.0[usize::from(queue) << SLOT_BITS | usize::from(cid & ((1 << SLOT_BITS) - 1))] = now;
    }

    /// When the last command of `queue` in `slot` was finished.
    pub(super) fn at(&self, queue: u16, slot: u16) -> Option<Instant> {
        if slot >> SLOT_BITS != 0 {
            return None;
        }
        let nanos = *self.0.get(usize::from(queue) << SLOT_BITS | usize::from(slot))?;
        (nanos != 0).then_some(Instant::from_nanos(nanos))
    }
}
