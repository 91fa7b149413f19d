//! Logical erase blocks: what UBI makes of raw flash.
//!
//! A volume is an array of logical erase blocks (LEBs), each either unmapped - it reads as 0xFF -
//! or mapped to a physical erase block (PEB) that may change under it. File systems for flash see
//! only this. A plain file whose LEBs lie one behind the other (a `.ubifs` image) is one too.
//!
//! Reading is [`Volume`] and needs only `&self`. Changing - write, unmap, atomic change - is
//! [`VolumeMut`] and needs the volume for oneself.

use crate::flash::{Corrected, Error};

/// The shape of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeGeometry {
    /// Bytes of a LEB that can be used.
    pub leb_size: u32,
    /// Number of LEBs.
    pub lebs: u32,
    /// Smallest unit of writing, bytes; 1 on NOR. `None` when an image does not tell.
    pub write_size: Option<u32>,
}

/// What a LEB is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LebState {
    /// It has content, in the physical erase block of this number if there are physical ones.
    Mapped(Option<u32>),
    /// It was never written or was given up: reads as 0xFF.
    Unmapped,
}

/// Logical erase blocks that can be read.
pub trait Volume {
    /// The volume's shape.
    fn geometry(&self) -> VolumeGeometry;

    /// What LEB `lnum` is; a LEB beyond the end is unmapped.
    fn state(&self, lnum: u32) -> LebState;

    /// Fills `buffer` with the bytes at `offset` of LEB `lnum`. No alignment is asked for.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the range is not in a LEB of the volume; else as
    /// [`Flash::read`](crate::flash::Flash::read).
    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, Error>;

    /// The bytes where they lie, if the volume is plain memory and the LEB is mapped.
    fn point(&self, lnum: u32, offset: u32, len: usize) -> Option<&[u8]> {
        let _ = (lnum, offset, len);
        None
    }
}

/// Logical erase blocks that can be changed.
///
/// Erases, bit-flips and bad blocks are the volume's own affair: a write that meets a worn block
/// ends in another one. [`Error::PowerLost`] and [`Error::WriteProtected`] are final: nothing that
/// follows will be done.
pub trait VolumeMut: Volume {
    /// Writes `data` at `offset` of LEB `lnum`, both multiples of the write size, and maps the LEB
    /// if it is not. The range must not have been written since the LEB was mapped.
    ///
    /// A power cut leaves the last write unit being written in any state, the ones before written,
    /// the ones behind untouched.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`], [`Error::WriteProtected`] with nothing done;
    /// [`Error::ProgramFailed`] when there is no good block left; [`Error::PowerLost`].
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), Error>;

    /// Replaces the whole content of LEB `lnum` by `data`, a multiple of the write size, and 0xFF
    /// behind it: atomically, so that after a power cut the LEB is the old one or the new one
    /// (Linux: `ubi_leb_change`).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), Error>;

    /// Gives up the content of LEB `lnum`: it reads as 0xFF at once. Until [`sync`](Self::sync) a
    /// power cut may bring the content back, whole (Linux: `ubi_leb_unmap`).
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::WriteProtected`], [`Error::PowerLost`].
    fn unmap(&mut self, lnum: u32) -> Result<(), Error>;

    /// Maps the unmapped LEB `lnum` to an empty block, so that older content of it can not come
    /// back after a power cut (Linux: `ubi_leb_map`).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn map(&mut self, lnum: u32) -> Result<(), Error>;

    /// Ends what is pending: what was given up before is gone for good, and what was written is as
    /// durable as the flash can make it (Linux: `ubi_flush`, `ubi_sync`).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn sync(&mut self) -> Result<(), Error>;
}

macro_rules! forward_volume_mut {
    ($($pointer:ty),*) => {$(
        impl<V: VolumeMut + ?Sized> VolumeMut for $pointer {
            fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), Error> {
                (**self).write(lnum, offset, data)
            }
            fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), Error> {
                (**self).change(lnum, data)
            }
            fn unmap(&mut self, lnum: u32) -> Result<(), Error> {
                (**self).unmap(lnum)
            }
            fn map(&mut self, lnum: u32) -> Result<(), Error> {
                (**self).map(lnum)
            }
            fn sync(&mut self) -> Result<(), Error> {
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
            fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, Error> {
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
