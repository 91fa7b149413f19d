//! The structures in memory (AHCI 4.2): the command list, command tables and received FISes.

use bitfield_struct::bitfield;

/// Bytes in a command list of 32 headers, and the alignment of its address.
pub const LIST_LENGTH: usize = 1024;
/// Bytes per header.
pub const HEADER: usize = 32;
/// Offset of PRDBC, the bytes transferred, in a header.
pub const PRDBC: usize = 4;
/// Alignment of the address of a command table.
pub const TABLE_ALIGNMENT: usize = 128;
/// Offset of the packet of a packet command in a table.
pub const ACMD: usize = 0x40;
/// Offset of the descriptors in a table.
pub const PRDT: usize = 0x80;
/// Bytes per descriptor.
pub const PRD: usize = 16;
/// Maximum bytes of one descriptor.
pub const PRD_BYTES_MAX: u32 = 4 << 20;

/// Bytes in the area for received FISes, and the alignment of its address.
pub const RECEIVED_LENGTH: usize = 256;
/// Bytes in that area with FIS-based switching, one part for each port of a multiplier, and the
/// alignment of its address then.
pub const RECEIVED_LENGTH_FBS: usize = 16 * RECEIVED_LENGTH;
/// Offset of the DMA setup FIS in the area.
pub const RECEIVED_DSFIS: usize = 0x00;
/// Offset of the PIO setup FIS.
pub const RECEIVED_PSFIS: usize = 0x20;
/// Offset of the D2H register FIS.
pub const RECEIVED_RFIS: usize = 0x40;
/// Offset of the set device bits FIS.
pub const RECEIVED_SDBFIS: usize = 0x58;

/// DW0 of a command header (AHCI 4.2.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct HeaderFlags {
    /// CFL: dwords of the command FIS.
    #[bits(5)]
    pub cfl: u8,
    /// A: a packet command.
    pub atapi: bool,
    /// W: data to the device.
    pub write: bool,
    /// P: the descriptors may be prefetched.
    pub prefetch: bool,
    /// R: a soft reset.
    pub reset: bool,
    /// B: a built-in self-test.
    pub bist: bool,
    /// C: BSY is cleared once the FIS has been sent.
    pub clear_busy: bool,
    __: bool,
    /// PMP: port of a multiplier.
    #[bits(4)]
    pub pmp: u8,
    /// PRDTL: number of descriptors.
    pub prdtl: u16,
}

/// A command header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// DW0.
    pub flags: HeaderFlags,
    /// PRDBC: bytes transferred, written by the HBA.
    pub moved: u32,
    /// CTBA: the command table.
    pub table: u64,
}

impl Header {
    /// Its first two words as they lie in memory; the others are reserved.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        let low = self.flags.into_bits() as u64 | (self.moved as u64) << 32;
        [low.to_le(), self.table.to_le()]
    }

    /// A header from its first two words in memory.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        let (low, table) = (u64::from_le(words[0]), u64::from_le(words[1]));
        let flags = HeaderFlags::from_bits(low as u32);
        Self { flags, moved: (low >> 32) as u32, table }
    }
}

/// A physical region descriptor (AHCI 4.2.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prd {
    /// DBA: even.
    pub address: u64,
    /// Bytes: even, 2 to [`PRD_BYTES_MAX`].
    pub bytes: u32,
    /// I: raise an interrupt once its data has been transferred.
    pub interrupt: bool,
}

/// Mask of DBC, which holds the bytes minus one.
const DBC: u32 = PRD_BYTES_MAX - 1;

impl Prd {
    /// As it lies in memory.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        let count = self.bytes.wrapping_sub(1) & DBC | (self.interrupt as u32) << 31;
        [self.address.to_le(), ((count as u64) << 32).to_le()]
    }

    /// Reads it from memory.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        let count = (u64::from_le(words[1]) >> 32) as u32;
        Self {
            address: u64::from_le(words[0]),
            bytes: (count & DBC) + 1,
            interrupt: count >> 31 != 0,
        }
    }
}
