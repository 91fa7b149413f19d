//! Logical erase blocks: what UBI makes of raw flash.
//!
//! A volume is an array of logical erase blocks (LEBs), each either unmapped - it reads as 0xFF -
//! or mapped to a physical erase block (PEB) that may change under it. File systems for flash see
//! only this. A plain file whose LEBs lie one behind the other (a `.ubifs` image) is one too.
//!
//! Reading is [`Volume`] and needs only `&self`. Changing - write, unmap, atomic change - is a
//! separate trait with `&mut self`.

use crate::flash::{Corrected, Error};

/// The shape of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
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
    fn geometry(&self) -> Geometry;

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

impl<V: Volume + ?Sized> Volume for &V {
    fn geometry(&self) -> Geometry {
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
