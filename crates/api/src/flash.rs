//! Raw flash: erase blocks that are read, programmed once and erased as a whole.
//!
//! This is what Linux calls an MTD device. MTD's names are used where they exist: erase size, write
//! size (the page, the smallest unit that can be programmed), sub-page, out-of-band (OOB) bytes,
//! bit-flip threshold.
//!
//! Reading is [`Flash`] and needs only `&self`, so many threads may read one flash. Changing is
//! [`FlashMut`] and needs exclusive access. All calls are synchronous: they return when the work is
//! done.

use core::fmt;
use core::ops::AddAssign;

mod pages;
mod read_only;

pub use pages::{Pages, PagesMut};
pub use read_only::ReadOnly;

/// The type of the cells and their behaviour (`mtd-abi.h`, `MTD_*FLASH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Memory that needs no erase before a write (`MTD_RAM`).
    Ram,
    /// Bytes can be programmed one by one, and again to clear more bits (`MTD_NORFLASH`).
    Nor,
    /// Pages with out-of-band bytes, one bit per cell (`MTD_NANDFLASH`).
    Nand,
    /// Pages with out-of-band bytes, more bits per cell, pages in pairs (`MTD_MLCNANDFLASH`).
    MlcNand,
    /// Atmel DataFlash: pages that erase themselves when written (`MTD_DATAFLASH`).
    DataFlash,
    /// An UBI volume presented as flash (`MTD_UBIVOLUME`).
    UbiVolume,
}

impl Kind {
    /// Whether blocks can be bad and pages carry out-of-band bytes.
    pub fn is_nand(self) -> bool {
        matches!(self, Self::Nand | Self::MlcNand)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ram => "RAM",
            Self::Nor => "NOR",
            Self::Nand => "NAND",
            Self::MlcNand => "MLC NAND",
            Self::DataFlash => "DataFlash",
            Self::UbiVolume => "UBI volume",
        })
    }
}

/// The geometry of a flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashGeometry {
    /// Type of the cells.
    pub kind: Kind,
    /// Size in bytes, without out-of-band bytes. The last erase block of a truncated image may be
    /// short, so this need not be a multiple of `erase_size`.
    pub size: u64,
    /// Size of an erase block (UBI's physical erase block, PEB) in bytes. Not zero.
    pub erase_size: u32,
    /// Size of the programming unit in bytes: the NAND page; 1 on NOR. Not zero.
    pub write_size: u32,
    /// Smallest part of a page with its own error correction, which can therefore be programmed
    /// alone; equal to `write_size` if there are no sub-pages. Not zero.
    pub sub_page_size: u32,
    /// Out-of-band bytes of each page; 0 if there are none or the image does not contain them.
    pub oob_size: u32,
    /// Out-of-band bytes of each page that neither error correction nor the bad-block marker uses.
    pub oob_available: u32,
    /// Bits that error correction can repair in one step; 0 without error correction.
    pub ecc_strength: u32,
    /// Number of corrected bits in one step at which a block should be moved (scrubbed).
    pub bitflip_threshold: u32,
}

impl FlashGeometry {
    /// A flash without pages, out-of-band bytes and error correction: NOR.
    pub fn nor(size: u64, erase_size: u32) -> Self {
        Self {
            kind: Kind::Nor,
            size,
            erase_size,
            write_size: 1,
            sub_page_size: 1,
            oob_size: 0,
            oob_available: 0,
            ecc_strength: 0,
            bitflip_threshold: 0,
        }
    }

    /// A NAND image without its out-of-band bytes, as most dumps are.
    pub fn nand(size: u64, erase_size: u32, write_size: u32, sub_page_size: u32) -> Self {
        Self { kind: Kind::Nand, write_size, sub_page_size, ..Self::nor(size, erase_size) }
    }

    /// Number of erase blocks, including a short last one.
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.size.div_ceil(u64::from(self.erase_size))).unwrap_or(u32::MAX)
    }

    /// Pages in one erase block.
    pub fn pages_per_block(&self) -> u32 {
        self.erase_size / self.write_size
    }

    /// The erase block that contains byte `offset`.
    pub fn block_of(&self, offset: u64) -> u32 {
        u32::try_from(offset / u64::from(self.erase_size)).unwrap_or(u32::MAX)
    }

    /// First byte of erase block `block`.
    pub fn block_start(&self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.erase_size)
    }

    /// Actual size of erase block `block` in bytes: `erase_size`, less for a short last block, 0
    /// beyond the end.
    pub fn block_len(&self, block: u32) -> u32 {
        let left = self.size.saturating_sub(self.block_start(block));
        u32::try_from(left).unwrap_or(u32::MAX).min(self.erase_size)
    }

    /// Checks that the `len` bytes at `offset` are on the flash.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] if they are not.
    pub fn check(&self, offset: u64, len: usize) -> Result<(), FlashError> {
        let len = u64::try_from(len).map_err(|_| FlashError::OutOfRange)?;
        if offset > self.size || len > self.size - offset {
            return Err(FlashError::OutOfRange);
        }
        Ok(())
    }

    /// Checks that erase block `block` exists.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] if it does not.
    pub fn check_block(&self, block: u32) -> Result<(), FlashError> {
        if block < self.blocks() { Ok(()) } else { Err(FlashError::OutOfRange) }
    }
}

/// Bit errors that a read corrected. UBI alone decides how to react.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Corrected {
    /// Corrected bits in the whole read.
    pub bits: u32,
    /// Corrected bits in the worst error-correction step, to be compared with
    /// [`FlashGeometry::bitflip_threshold`].
    pub worst_step: u32,
}

impl Corrected {
    /// No corrected bits.
    pub const NONE: Self = Self { bits: 0, worst_step: 0 };

    /// Whether the block should be moved elsewhere before it gets worse (Linux: `-EUCLEAN`).
    pub fn needs_scrub(&self, geometry: &FlashGeometry) -> bool {
        geometry.bitflip_threshold != 0 && self.worst_step >= geometry.bitflip_threshold
    }
}

impl AddAssign for Corrected {
    fn add_assign(&mut self, other: Self) {
        self.bits = self.bits.saturating_add(other.bits);
        self.worst_step = self.worst_step.max(other.worst_step);
    }
}

/// Which out-of-band bytes to access (`mtd-abi.h`, `MTD_OPS_*_OOB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OobMode {
    /// All of them, as they lie in the page.
    Place,
    /// The free ones only, in the order of the layout, as if they were contiguous.
    Auto,
}

/// Why a flash call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlashError {
    /// The range is not on the flash.
    OutOfRange,
    /// Offset or length is not a multiple of the unit that the call requires.
    Misaligned,
    /// More bit errors than error correction can repair (Linux: `-EBADMSG`). The buffer holds the
    /// bytes as read; `offset` is the first step that could not be repaired.
    Uncorrectable {
        /// First byte of the first step that could not be repaired.
        offset: u64,
    },
    /// The block is marked bad.
    BadBlock {
        /// The erase block.
        block: u32,
    },
    /// The flash does not support this: no out-of-band bytes, no bad-block markers.
    Unsupported,
    /// The flash is write protected or was opened read-only.
    WriteProtected,
    /// The chip reported that programming failed.
    ProgramFailed {
        /// First byte of the range to be programmed.
        offset: u64,
    },
    /// The chip reported that erasing failed.
    EraseFailed {
        /// The erase block.
        block: u32,
    },
    /// The power is gone: the operation in progress is half done, and no other will start.
    PowerLost,
    /// The operating system refused; its error number.
    Os(i32),
    /// The device between (UBI) takes no changes any more, for this reason.
    ReadOnly(ReadOnly),
}

impl fmt::Display for FlashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("the range is not on the flash"),
            Self::Misaligned => f.write_str("offset or length is not a multiple of the page size"),
            Self::Uncorrectable { offset } => {
                write!(f, "more bit errors at {offset:#x} than error correction can repair")
            }
            Self::BadBlock { block } => write!(f, "erase block {block} is marked bad"),
            Self::Unsupported => f.write_str("the flash does not support this operation"),
            Self::WriteProtected => f.write_str("the flash is write protected"),
            Self::ProgramFailed { offset } => write!(f, "programming at {offset:#x} failed"),
            Self::EraseFailed { block } => write!(f, "erasing block {block} failed"),
            Self::PowerLost => f.write_str("the power of the flash is gone"),
            Self::Os(number) => write!(f, "the operating system answered error {number}"),
            Self::ReadOnly(why) => write!(f, "{why}"),
        }
    }
}

impl core::error::Error for FlashError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // `Display` shows the reason itself, so its source comes next.
            Self::ReadOnly(why) => why.source(),
            _ => None,
        }
    }
}

impl From<ReadOnly> for FlashError {
    fn from(why: ReadOnly) -> Self {
        Self::ReadOnly(why)
    }
}

/// Raw flash that can be read.
pub trait Flash {
    /// The flash's geometry.
    fn geometry(&self) -> &FlashGeometry;

    /// Fills `buffer` with the bytes at `offset`, which need not be aligned. The result counts the
    /// bits that error correction repaired.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] with `buffer` untouched; [`FlashError::Uncorrectable`] with
    /// `buffer` filled as far as it could be read; [`FlashError::Os`] and other errors with
    /// `buffer` in any state.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError>;

    /// The bytes at `offset` in place, if the flash is plain memory and nothing has to be corrected
    /// (Linux: `mtd_point`); `None` if they must be read.
    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let _ = (offset, len);
        None
    }

    /// Fills `buffer` with the out-of-band bytes of the page at `offset`, from the first one on.
    ///
    /// # Errors
    /// [`FlashError::Misaligned`] if `offset` is not the start of a page,
    /// [`FlashError::OutOfRange`] if the page does not exist or has fewer such bytes,
    /// [`FlashError::Unsupported`] without out-of-band bytes.
    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        let _ = (offset, mode, buffer);
        Err(FlashError::Unsupported)
    }

    /// Whether erase block `block` is marked bad.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] if there is no such block.
    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.geometry().check_block(block).map(|()| false)
    }
}

/// Raw flash that can be changed.
///
/// Nothing is buffered: when `program` or `erase` returns, its effect is in the cells.
pub trait FlashMut: Flash {
    /// Programs `data` at `offset`, both multiples of the sub-page size. Programming only clears
    /// bits; the range must have been erased before, and the pages of a NAND block must be
    /// programmed in ascending order.
    ///
    /// # Errors
    /// [`FlashError::Misaligned`], [`FlashError::OutOfRange`], [`FlashError::WriteProtected`] with
    /// nothing done; [`FlashError::ProgramFailed`], [`FlashError::PowerLost`] with the page in any
    /// state.
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError>;

    /// Programs out-of-band bytes of the page at `offset`, from the first one on.
    ///
    /// # Errors
    /// As [`program`](Self::program); [`FlashError::Unsupported`] without out-of-band bytes.
    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        let _ = (offset, mode, data);
        Err(FlashError::Unsupported)
    }

    /// Sets every bit of erase block `block`.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`], [`FlashError::BadBlock`], [`FlashError::WriteProtected`] with
    /// nothing done; [`FlashError::EraseFailed`], [`FlashError::PowerLost`] with the block in any
    /// state.
    fn erase(&mut self, block: u32) -> Result<(), FlashError>;

    /// Marks erase block `block` bad permanently.
    ///
    /// # Errors
    /// [`FlashError::Unsupported`] if blocks cannot be bad, [`FlashError::OutOfRange`],
    /// [`FlashError::WriteProtected`].
    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        let _ = block;
        Err(FlashError::Unsupported)
    }

    /// Makes programmed and erased bytes durable if the flash is only a file on the computer
    /// (`fsync`). A chip has nothing to do here.
    ///
    /// # Errors
    /// [`FlashError::Os`].
    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

macro_rules! forward_flash_mut {
    ($($pointer:ty),*) => {$(
        impl<F: FlashMut + ?Sized> FlashMut for $pointer {
            fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
                (**self).program(offset, data)
            }
            fn program_oob(
                &mut self,
                offset: u64,
                mode: OobMode,
                data: &[u8],
            ) -> Result<(), FlashError> {
                (**self).program_oob(offset, mode, data)
            }
            fn erase(&mut self, block: u32) -> Result<(), FlashError> {
                (**self).erase(block)
            }
            fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
                (**self).mark_bad(block)
            }
            fn sync(&mut self) -> Result<(), FlashError> {
                (**self).sync()
            }
        }
    )*};
}

forward_flash_mut!(&mut F);
#[cfg(feature = "alloc")]
forward_flash_mut!(alloc::boxed::Box<F>);

macro_rules! forward_flash {
    ($($pointer:ty),*) => {$(
        impl<F: Flash + ?Sized> Flash for $pointer {
            fn geometry(&self) -> &FlashGeometry {
                (**self).geometry()
            }
            fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
                (**self).read(offset, buffer)
            }
            fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
                (**self).point(offset, len)
            }
            fn read_oob(
                &self,
                offset: u64,
                mode: OobMode,
                buffer: &mut [u8],
            ) -> Result<Corrected, FlashError> {
                (**self).read_oob(offset, mode, buffer)
            }
            fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
                (**self).is_bad(block)
            }
        }
    )*};
}

forward_flash!(&F, &mut F);
#[cfg(feature = "alloc")]
forward_flash!(alloc::boxed::Box<F>, alloc::sync::Arc<F>);

#[cfg(test)]
mod tests;
