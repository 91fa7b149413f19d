//! Logical erase blocks: what UBI makes of raw flash.
//!
//! A volume is an array of logical erase blocks (LEBs). Each is either unmapped, and reads as 0xFF,
//! or mapped to a physical erase block (PEB) that may change. File systems for flash see only this.
//! A plain file with consecutive LEBs (a `.ubifs` image) is a volume too.
//!
//! Reading is [`Volume`] and needs only `&self`. Changing (write, unmap, atomic change) is
//! [`VolumeMut`] and needs exclusive access.

use crate::flash::{Corrected, FlashError};

/// The geometry of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeGeometry {
    /// Usable bytes of a LEB.
    pub leb_size: u32,
    /// Number of LEBs.
    pub lebs: u32,
    /// Smallest unit of writing, bytes; 1 on NOR. `None` if an image does not record it.
    pub write_size: Option<u32>,
}

/// The state of a LEB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LebState {
    /// It has content, in the physical erase block with this number if there are physical ones.
    Mapped(Option<u32>),
    /// It was never written, or was unmapped: it reads as 0xFF.
    Unmapped,
}

/// Logical erase blocks that can be read.
pub trait Volume {
    /// The volume's geometry.
    fn geometry(&self) -> VolumeGeometry;

    /// The state of LEB `lnum`; a LEB beyond the end is unmapped.
    fn state(&self, lnum: u32) -> LebState;

    /// Fills `buffer` with the bytes at `offset` of LEB `lnum`, which need not be aligned.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] if the range is not in a LEB of the volume; otherwise as
    /// [`Flash::read`](crate::flash::Flash::read).
    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError>;

    /// The bytes in place, if the volume is plain memory and the LEB is mapped.
    fn point(&self, lnum: u32, offset: u32, len: usize) -> Option<&[u8]> {
        let _ = (lnum, offset, len);
        None
    }
}

/// Logical erase blocks that can be changed.
///
/// The volume itself deals with erases, bit-flips and bad blocks: a write that meets a worn block
/// ends up in another one. [`FlashError::PowerLost`], [`FlashError::WriteProtected`] and
/// [`FlashError::ReadOnly`] are final: no later call will be carried out.
pub trait VolumeMut: Volume {
    /// Writes `data` at `offset` of LEB `lnum`, both multiples of the write size, and maps the LEB
    /// if it is not. The range must not have been written since the LEB was mapped.
    ///
    /// After a power cut the write unit being written may be in any state; the units before it are
    /// written and the units after it untouched.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`], [`FlashError::Misaligned`], [`FlashError::WriteProtected`] with
    /// nothing done; [`FlashError::ReadOnly`] if the device of the volume takes no changes any more
    /// (no good block is left, for one); [`FlashError::ProgramFailed`] of a volume that does not
    /// deal with bad blocks; [`FlashError::PowerLost`].
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError>;

    /// Replaces the whole content of LEB `lnum` by `data`, a multiple of the write size, followed
    /// by 0xFF. The change is atomic: after a power cut the LEB is the old one or the new one
    /// (Linux: `ubi_leb_change`).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError>;

    /// Discards the content of LEB `lnum`: it reads as 0xFF at once. Until [`sync`](Self::sync) a
    /// power cut may bring the whole content back (Linux: `ubi_leb_unmap`).
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`], [`FlashError::WriteProtected`], [`FlashError::ReadOnly`],
    /// [`FlashError::PowerLost`].
    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError>;

    /// Maps the unmapped LEB `lnum` to an empty block, so that its older content cannot come back
    /// after a power cut (Linux: `ubi_leb_map`).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn map(&mut self, lnum: u32) -> Result<(), FlashError>;

    /// Completes pending work: content that was discarded before is gone for good, and what was
    /// written is as durable as the flash can make it (Linux: `ubi_flush`, `ubi_sync`).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn sync(&mut self) -> Result<(), FlashError>;
}

macro_rules! forward_volume_mut {
    ($($pointer:ty),*) => {$(
        impl<V: VolumeMut + ?Sized> VolumeMut for $pointer {
            fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
                (**self).write(lnum, offset, data)
            }
            fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
                (**self).change(lnum, data)
            }
            fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
                (**self).unmap(lnum)
            }
            fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
                (**self).map(lnum)
            }
            fn sync(&mut self) -> Result<(), FlashError> {
                (**self).sync()
            }
        }
    )*};
}

forward_volume_mut!(&mut V);
#[cfg(feature = "alloc")]
forward_volume_mut!(alloc::boxed::Box<V>);

macro_rules! forward_volume {
    ($($pointer:ty),*) => {$(
        impl<V: Volume + ?Sized> Volume for $pointer {
            fn geometry(&self) -> VolumeGeometry {
                (**self).geometry()
            }
            fn state(&self, lnum: u32) -> LebState {
                (**self).state(lnum)
            }
            fn read(
                &self,
                lnum: u32,
                offset: u32,
                buffer: &mut [u8],
            ) -> Result<Corrected, FlashError> {
                (**self).read(lnum, offset, buffer)
            }
            fn point(&self, lnum: u32, offset: u32, len: usize) -> Option<&[u8]> {
                (**self).point(lnum, offset, len)
            }
        }
    )*};
}

forward_volume!(&V, &mut V);
#[cfg(feature = "alloc")]
forward_volume!(alloc::boxed::Box<V>, alloc::sync::Arc<V>);
