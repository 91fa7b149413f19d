//! Configuration space of a conventional PCI function: 256 bytes, and their writable parts.

use crate::{BARS, Layout};

/// Bytes of configuration space. More would make the function PCI Express.
pub(crate) const BYTES: usize = 256;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const REVISION: usize = 0x08;
const CACHE_LINE: usize = 0x0C;
const BAR: usize = 0x10;
const SUBSYSTEM: usize = 0x2C;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3C;
const INTERRUPT_PIN: usize = 0x3D;
/// Offset of the MSI-X capability: behind the header.
const MSIX: usize = 0x40;

const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTX_OFF: u16 = 1 << 10;
/// I/O, memory, bus master, SERR, interrupt disable: drivers probe for the last by writing it.
const COMMAND_WRITABLE: u16 = 0x0507;
const STATUS_INTX: u8 = 1 << 3;
const STATUS_CAPABILITIES: u8 = 1 << 4;
const MSIX_ID: u8 = 0x11;
const MSIX_ENABLE: u16 = 1 << 15;
/// Enable and function mask.
const MSIX_WRITABLE: u16 = 0xC000;

/// Bytes of one entry of an MSI-X table.
pub(crate) const VECTOR_BYTES: u32 = 16;

/// Offset of the pending bits of `vectors` in the vector BAR: behind the table, page aligned.
pub(crate) fn pending_at(vectors: u16) -> u32 {
    (u32::from(vectors) * VECTOR_BYTES).next_multiple_of(4096)
}

/// Bytes of the vector BAR.
pub(crate) fn vector_bar_bytes(vectors: u16) -> u32 {
    (pending_at(vectors) + u32::from(vectors).div_ceil(64) * 8).next_power_of_two()
}

/// Configuration space.
#[derive(Debug)]
pub(crate) struct Config {
    bytes: [u8; BYTES],
    writable: [u8; BYTES],
}

impl Config {
    pub(crate) fn new(layout: &Layout, bars: &[u32; BARS]) -> Self {
        let mut this = Self { bytes: [0; BYTES], writable: [0; BYTES] };
        let identity = layout.identity;
        this.set16(0, identity.vendor);
        this.set16(2, identity.device);
        this.bytes[REVISION] = identity.revision;
        this.bytes[REVISION + 1..REVISION + 4].copy_from_slice(&identity.class.to_le_bytes()[..3]);
        this.set16(SUBSYSTEM, identity.subsystem_vendor);
        this.set16(SUBSYSTEM + 2, identity.subsystem);
        this.bytes[INTERRUPT_PIN] = 1;
        this.writable[INTERRUPT_LINE] = 0xFF;
        this.writable[CACHE_LINE] = 0xFF;
        this.writable[COMMAND..COMMAND + 2].copy_from_slice(&COMMAND_WRITABLE.to_le_bytes());
        for (number, bytes) in bars.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            let at = BAR + 4 * number;
            // Only the address bits above its size exist: that is how its size is found out.
            this.writable[at..at + 4].copy_from_slice(&(!(bytes - 1)).to_le_bytes());
        }
        if layout.vectors > 0 {
            this.bytes[STATUS] |= STATUS_CAPABILITIES;
            this.bytes[CAPABILITIES] = MSIX as u8;
            this.bytes[MSIX] = MSIX_ID;
            this.set16(MSIX + 2, layout.vectors - 1);
            this.writable[MSIX + 2..MSIX + 4].copy_from_slice(&MSIX_WRITABLE.to_le_bytes());
            let bar = u32::from(layout.vector_bar);
            this.bytes[MSIX + 4..MSIX + 8].copy_from_slice(&bar.to_le_bytes());
            let pending = pending_at(layout.vectors) | bar;
            this.bytes[MSIX + 8..MSIX + 12].copy_from_slice(&pending.to_le_bytes());
        }
        this
    }

    fn set16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// All writable parts are 0, as after a reset.
    pub(crate) fn reset(&mut self) {
        for (byte, writable) in self.bytes.iter_mut().zip(&self.writable) {
            *byte &= !writable;
        }
    }

    /// Copies `to.len()` bytes from `offset` on; returns whether they exist. `line` is the
    /// interrupt line.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8], line: bool) -> bool {
        let Some(range) = range(offset, to.len()) else { return false };
        let mut bytes = self.bytes;
        if line {
            bytes[STATUS] |= STATUS_INTX;
        }
        to.copy_from_slice(&bytes[range]);
        true
    }

    /// Writes the writable parts; returns whether the bytes exist.
    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) -> bool {
        let Some(range) = range(offset, from.len()) else { return false };
        for (at, new) in range.zip(from) {
            let writable = self.writable[at];
            self.bytes[at] = self.bytes[at] & !writable | new & writable;
        }
        true
    }

    /// Whether the function may access memory.
    pub(crate) fn is_bus_master(&self) -> bool {
        self.get16(COMMAND) & COMMAND_BUS_MASTER != 0
    }

    /// Whether the line may be driven.
    pub(crate) fn is_intx_on(&self) -> bool {
        self.get16(COMMAND) & COMMAND_INTX_OFF == 0 && !self.is_msix_on()
    }

    fn is_msix_on(&self) -> bool {
        self.bytes[CAPABILITIES] != 0 && self.get16(MSIX + 2) & MSIX_ENABLE != 0
    }
}

fn range(offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(len)?;
    (end <= BYTES).then_some(start..end)
}
