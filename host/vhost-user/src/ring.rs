//! A split virtqueue (virtio 1.2, section 2.7) in the guest's memory.
//!
//! The driver puts heads of chains into the available ring, the device returns them through the
//! used ring. Each side says when it wants a notification: by a flag, or, with event indices, by
//! the index that it waits for.

use std::sync::atomic::{Ordering, fence};

use flysch_api::machine::{GuestMemory, OutOfRange};

/// Maximum number of entries of a ring, as in QEMU.
pub(crate) const ENTRIES_MAX: u16 = 1024;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// In the flags of either ring: no notification needed.
const QUIET: u16 = 1;

/// What makes a ring invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

impl From<OutOfRange> for Broken {
    fn from(_: OutOfRange) -> Self {
        Self("addresses that are not memory")
    }
}

/// Bytes of the guest: address and length.
pub(crate) type Segment = (u64, u32);

/// The buffers of a chain of descriptors.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Those that the device may read.
    pub(crate) readable: Vec<Segment>,
    /// Those that it may write.
    pub(crate) writable: Vec<Segment>,
}

/// A running ring.
#[derive(Debug)]
pub(crate) struct Ring {
    size: u16,
    desc: u64,
    avail: u64,
    used: u64,
    /// Index of the next available entry to take.
    pub(crate) next_avail: u16,
    /// Index of the next used entry to fill.
    used_idx: u16,
    /// `used_idx` at the last notification of the driver.
    told: u16,
    has_event_idx: bool,
    has_indirect: bool,
}

/// The negotiated features.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) event_idx: bool,
    pub(crate) indirect: bool,
}

impl Ring {
    /// A ring of `size` entries at these guest addresses: descriptors, available, used.
    pub(crate) fn new(
        size: u16,
        [desc, avail, used]: [u64; 3],
        next_avail: u16,
        agreed: Agreed,
        memory: &GuestMemory,
    ) -> Result<Self, Broken> {
        let entries = u64::from(size);
        let parts = [
            (desc, DESCRIPTOR * entries, 16),
            (avail, 6 + 2 * entries, 2),
            (used, 6 + 8 * entries, 4),
        ];
        for (address, length, align) in parts {
            if !address.is_multiple_of(align) || !memory.contains(address, length as usize) {
                return Err(Broken("a ring that does not lie in memory"));
            }
        }
        let mut ring = Self {
            size,
            desc,
            avail,
            used,
            next_avail,
            used_idx: 0,
            told: 0,
            has_event_idx: agreed.event_idx,
            has_indirect: agreed.indirect,
        };
        ring.used_idx = load16(memory, used + 2)?;
        ring.told = ring.used_idx;
        Ok(ring)
    }

    /// Number of entries.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Index of the next used entry.
    pub(crate) fn used_idx(&self) -> u16 {
        self.used_idx
    }

    /// Number of waiting chains.
    pub(crate) fn waiting(&self, memory: &GuestMemory) -> Result<u16, Broken> {
        let waiting = load16(memory, self.avail + 2)?.wrapping_sub(self.next_avail);
        if waiting > self.size {
            return Err(Broken("more available chains than the ring has entries"));
        }
        Ok(waiting)
    }

    /// The head of the next waiting chain; there must be one.
    pub(crate) fn head(&mut self, memory: &GuestMemory) -> Result<u16, Broken> {
        let place = self.avail + 4 + 2 * u64::from(self.next_avail % self.size);
        let mut head = [0; 2];
        memory.read(place, &mut head)?;
        let head = u16::from_le_bytes(head);
        if head >= self.size {
            return Err(Broken("a chain that does not begin at a descriptor"));
        }
        self.next_avail = self.next_avail.wrapping_add(1);
        Ok(head)
    }

    /// The buffers of the chain from `head` on. A chain has no more descriptors than its table, so
    /// a circular one ends.
    pub(crate) fn chain(
        &self,
        memory: &GuestMemory,
        head: u16,
        chain: &mut Chain,
    ) -> Result<(), Broken> {
        chain.readable.clear();
        chain.writable.clear();
        let (mut table, mut size, mut index) = (self.desc, self.size, head);
        let (mut left, mut is_indirect) = (size, false);
        let mut bytes = 0_u64;
        loop {
            if index >= size || left == 0 {
                return Err(Broken("a chain that does not end"));
            }
            left -= 1;
            let mut descriptor = [0; DESCRIPTOR as usize];
            memory.read(table + DESCRIPTOR * u64::from(index), &mut descriptor)?;
            let word = |at: usize| u16::from_le_bytes([descriptor[at], descriptor[at + 1]]);
            let address = (0..4).fold(0, |sum, at| sum | u64::from(word(at * 2)) << (16 * at));
            let length = u32::from(word(8)) | u32::from(word(10)) << 16;
            let flags = word(12);
            if flags & INDIRECT != 0 {
                if is_indirect || !self.has_indirect || flags & NEXT != 0 {
                    return Err(Broken("an indirect table where none is allowed"));
                }
                let entries = u64::from(length) / DESCRIPTOR;
                if !u64::from(length).is_multiple_of(DESCRIPTOR)
                    || !(1..=u64::from(ENTRIES_MAX)).contains(&entries)
                    || !memory.contains(address, length as usize)
                {
                    return Err(Broken("an invalid indirect table"));
                }
                (table, size, index) = (address, entries as u16, 0);
                (left, is_indirect) = (size, true);
                continue;
            }
            bytes += u64::from(length);
            if bytes > u64::from(u32::MAX) || !memory.contains(address, length as usize) {
                return Err(Broken("a chain of bytes that are not memory"));
            }
            match flags & WRITE != 0 {
                true => chain.writable.push((address, length)),
                false if chain.writable.is_empty() => chain.readable.push((address, length)),
                false => return Err(Broken("a chain with bytes to read after bytes to write")),
            }
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = word(14);
        }
    }

    /// Returns a chain with this many bytes written.
    pub(crate) fn give_back(
        &mut self,
        memory: &GuestMemory,
        head: u16,
        written: u32,
    ) -> Result<(), Broken> {
        let place = self.used + 4 + 8 * u64::from(self.used_idx % self.size);
        let element = u64::from(head) | u64::from(written) << 32;
        memory.write(place, &element.to_le_bytes())?;
        self.used_idx = self.used_idx.wrapping_add(1);
        // Flags and index are one word, and only ours: all before it is seen before it.
        let mut flags = [0; 2];
        memory.read(self.used, &mut flags)?;
        let flags = u32::from(u16::from_le_bytes(flags));
        memory.store32(self.used, (flags | u32::from(self.used_idx) << 16).to_le())?;
        Ok(())
    }

    /// Whether the driver wants a notification of chains returned since the last one; it counts as
    /// notified then.
    pub(crate) fn must_tell(&mut self, memory: &GuestMemory) -> Result<bool, Broken> {
        let (told, now) = (self.told, self.used_idx);
        if told == now {
            return Ok(false);
        }
        self.told = now;
        fence(Ordering::SeqCst);
        if self.has_event_idx {
            let event = load16(memory, self.avail + 4 + 2 * u64::from(self.size))?;
            return Ok(now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(told));
        }
        Ok(load16(memory, self.avail)? & QUIET == 0)
    }

    /// Whether the driver should kick for the next chain. A caller that enables this must check
    /// once more: earlier chains may have come without a kick.
    pub(crate) fn ask_for_kicks(&self, memory: &GuestMemory, wanted: bool) -> Result<(), Broken> {
        if self.has_event_idx {
            if wanted {
                let place = self.used + 4 + 8 * u64::from(self.size);
                memory.write(place, &self.next_avail.to_le_bytes())?;
            }
        } else {
            let flags = if wanted { 0 } else { u32::from(QUIET) };
            memory.store32(self.used, (flags | u32::from(self.used_idx) << 16).to_le())?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }
}

/// The 16-bit word at an even address, in one access; data stored before it is visible after it.
fn load16(memory: &GuestMemory, address: u64) -> Result<u16, OutOfRange> {
    let word = u32::from_le(memory.load32(address & !3)?);
    Ok((word >> ((address & 2) * 8)) as u16)
}
