//! Which requests are in flight, in memory that outlives this process.
//!
//! The client keeps the memory and passes it to the next server on the same socket, which then
//! repeats the requests that were taken but not completed. The layout is the one proposed by QEMU's
//! `docs/interop/vhost-user.rst` for split virtqueues ("Inflight I/O tracking"): for each ring a
//! header of 16 bytes - features, version, entries, head completed last, used index - and 16 bytes
//! for each entry: in flight, next of the batch, and a counter that records the order.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use flysch_api::machine::DmaRegion;

use crate::guard::Mapping;
use crate::memory::map_file;
use crate::ring::ENTRIES_MAX;
use crate::wire::{InflightArea, Malformed};

const HEAD: usize = 16;
const ENTRY: usize = 16;
const VERSION: u16 = 1;
/// Offsets in the header.
const HEAD_VERSION: usize = 8;
const HEAD_ENTRIES: usize = 10;
const HEAD_LAST: usize = 12;
const HEAD_USED: usize = 14;
/// Offset in an entry.
const ENTRY_COUNTER: usize = 8;
/// Distance between rings, or a multiple.
const ALIGN: usize = 64;

/// Bytes for one ring.
const fn ring_bytes(entries: u16) -> usize {
    (HEAD + ENTRY * entries as usize).next_multiple_of(ALIGN)
}

/// The memory created for a client that asks for it.
pub(crate) fn make(mut area: InflightArea) -> Option<(InflightArea, OwnedFd)> {
    if area.queue_size == 0 || area.queue_size > ENTRIES_MAX || area.queues == 0 {
        return None;
    }
    area.offset = 0;
    area.size = ring_bytes(area.queue_size) as u64 * u64::from(area.queues);
    let file = rustix::fs::memfd_create("inflight", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    rustix::fs::ftruncate(&file, area.size).ok()?;
    Some((area, file))
}

/// The memory in use.
#[derive(Debug)]
pub(crate) struct Inflight {
    memory: DmaRegion,
    mapping: Arc<Mapping>,
    queues: u16,
    entries: u16,
    counter: u64,
}

impl Inflight {
    /// The memory passed by a client.
    pub(crate) fn open(area: &InflightArea, file: &OwnedFd) -> Result<Self, Malformed> {
        let wrong = Malformed("memory for requests in flight whose size does not fit them");
        let needed = ring_bytes(area.queue_size) as u64 * u64::from(area.queues);
        if area.queue_size > ENTRIES_MAX || area.size < needed || !area.offset.is_multiple_of(8) {
            return Err(wrong);
        }
        let end = area.offset.checked_add(area.size).ok_or(wrong)?;
        let mapping = Arc::new(map_file(file, end)?);
        let owner = Arc::clone(&mapping);
        // SAFETY: `offset + size` bytes are mapped, the owner keeps them, the start is aligned to 8
        // bytes, and no reference into them is ever made.
        let memory = unsafe {
            let base = mapping.base().add(area.offset as usize);
            DmaRegion::from_owner(base, area.size as usize, 0, owner)
        };
        let (queues, entries) = (area.queues, area.queue_size);
        Ok(Self { memory, mapping, queues, entries, counter: 0 })
    }

    /// Whether its file has shrunk.
    pub(crate) fn is_torn(&self) -> bool {
        self.mapping.is_torn()
    }

    fn base(&self, queue: u16) -> usize {
        usize::from(queue) * ring_bytes(self.entries)
    }

    fn entry(&self, queue: u16, head: u16) -> usize {
        self.base(queue) + HEAD + ENTRY * usize::from(head)
    }

    fn covers(&self, queue: u16, size: u16) -> bool {
        queue < self.queues && size <= self.entries
    }

    fn get(&self, at: usize) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read(at, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    fn put(&self, at: usize, value: u16) {
        self.memory.write(at, &value.to_le_bytes());
    }

    /// A ring of `size` entries starts, with the used index `used`: returns the heads that the
    /// previous server had taken and not completed, oldest first.
    pub(crate) fn resume(
        &mut self,
        queue: u16,
        size: u16,
        used: u16,
    ) -> Result<Vec<u16>, Malformed> {
        if !self.covers(queue, size) {
            return Err(Malformed("a ring for which there is no memory for requests in flight"));
        }
        let base = self.base(queue);
        if self.get(base + HEAD_VERSION) != VERSION {
            // Never used before.
            self.memory.fill(base, ring_bytes(self.entries), 0);
            self.put(base + HEAD_VERSION, VERSION);
            self.put(base + HEAD_ENTRIES, size);
            self.put(base + HEAD_USED, used);
            return Ok(Vec::new());
        }
        if self.get(base + HEAD_USED) != used {
            // It ended between giving the last one back and saying so here.
            let last = self.get(base + HEAD_LAST);
            if last < size {
                self.memory.fill(self.entry(queue, last), 1, 0);
            }
            self.put(base + HEAD_USED, used);
        }
        let mut heads = Vec::new();
        for head in 0..size {
            let entry = self.entry(queue, head);
            let mut is_in_flight = [0];
            self.memory.read(entry, &mut is_in_flight);
            if is_in_flight[0] != 0 {
                let [counter] = self.memory.words::<1>(entry + ENTRY_COUNTER);
                heads.push((counter, head));
            }
        }
        heads.sort_unstable();
        let newest = heads.last().map_or(0, |(counter, _)| *counter);
        self.counter = self.counter.max(newest.wrapping_add(1));
        Ok(heads.into_iter().map(|(_, head)| head).collect())
    }

    /// A chain has been taken.
    pub(crate) fn take(&mut self, queue: u16, head: u16) {
        let entry = self.entry(queue, head);
        self.memory.write(entry + ENTRY_COUNTER, &self.counter.to_ne_bytes());
        self.counter = self.counter.wrapping_add(1);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.memory.fill(entry, 1, 1);
    }

    /// A chain is about to be returned.
    pub(crate) fn before_giving_back(&self, queue: u16, head: u16) {
        self.put(self.base(queue) + HEAD_LAST, head);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// It has been returned; this is now the ring's used index.
    pub(crate) fn given_back(&self, queue: u16, head: u16, used: u16) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.memory.fill(self.entry(queue, head), 1, 0);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.put(self.base(queue) + HEAD_USED, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> InflightArea {
        InflightArea { size: 0, offset: 0, queues: 2, queue_size: 128 }
    }

    #[test]
    fn the_next_server_knows_what_was_under_way() {
        let (area, file) = make(area()).unwrap();
        let mut first = Inflight::open(&area, &file).unwrap();
        assert_eq!(first.resume(1, 128, 40), Ok(vec![]));
        for head in [9, 3, 5, 127] {
            first.take(1, head);
        }
        first.before_giving_back(1, 3);
        first.given_back(1, 3, 41);
        // Given back, and gone before it could say so.
        first.before_giving_back(1, 5);
        drop(first);
        let mut second = Inflight::open(&area, &file).unwrap();
        assert_eq!(second.resume(1, 128, 42), Ok(vec![9, 127]));
        assert_eq!(second.resume(0, 128, 7), Ok(vec![]));
        second.take(1, 3);
        let mut third = Inflight::open(&area, &file).unwrap();
        assert_eq!(third.resume(1, 128, 42), Ok(vec![9, 127, 3]));
        assert!(third.resume(2, 128, 0).is_err() && third.resume(0, 256, 0).is_err());
    }

    #[test]
    fn what_is_no_memory_for_it_is_refused() {
        assert!(make(InflightArea { queue_size: 0, ..area() }).is_none());
        assert!(make(InflightArea { queue_size: 2048, ..area() }).is_none());
        let (made, file) = make(area()).unwrap();
        let bad = [
            InflightArea { size: made.size - 1, ..made },
            InflightArea { size: made.size + 4096, ..made },
            InflightArea { offset: u64::MAX - 7, ..made },
            InflightArea { queues: u16::MAX, ..made },
        ];
        assert!(bad.iter().all(|area| Inflight::open(area, &file).is_err()));
    }
}
