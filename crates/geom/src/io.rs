//! Requests that are performed one at a time, and what performs them at the bottom.

use core::fmt;

use flysch_api::block::{BlockError, Operation};

/// A request.
#[derive(Debug)]
pub enum Io<'a> {
    /// Fill the slice with the data at an offset.
    Read {
        /// First byte.
        offset: u64,
        /// The buffer.
        to: &'a mut [u8],
    },
    /// Write the slice at an offset.
    Write {
        /// First byte.
        offset: u64,
        /// The data.
        from: &'a [u8],
    },
    /// The contents are not needed any more.
    Delete {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Everything written is on the medium when this ends.
    Flush,
}

impl Io<'_> {
    /// The operation.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Read { .. } => Operation::Read,
            Self::Write { .. } => Operation::Write,
            Self::Delete { .. } => Operation::Delete,
            Self::Flush => Operation::Flush,
        }
    }

    /// First byte; 0 for a flush.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Self::Read { offset, .. } | Self::Write { offset, .. } => *offset,
            Self::Delete { offset, .. } => *offset,
            Self::Flush => 0,
        }
    }

    /// Number of bytes; 0 for a flush.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Read { to, .. } => to.len() as u64,
            Self::Write { from, .. } => from.len() as u64,
            Self::Delete { length, .. } => *length,
            Self::Flush => 0,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it changes the contents of the medium.
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Delete { .. })
    }

    /// The same request, for another use.
    pub fn again(&mut self) -> Io<'_> {
        self.part(0, self.len(), self.offset())
    }

    /// The `length` bytes from byte `skip` on, which must be within it, at `offset`.
    pub fn part(&mut self, skip: u64, length: u64, offset: u64) -> Io<'_> {
        let range = skip as usize..(skip + length) as usize;
        match self {
            Self::Read { to, .. } => Io::Read { offset, to: &mut to[range] },
            Self::Write { from, .. } => Io::Write { offset, from: &from[range] },
            Self::Delete { .. } => Io::Delete { offset, length },
            Self::Flush => Io::Flush,
        }
    }

    /// The same request with `base` added to its offset.
    pub fn shifted(&mut self, base: u64) -> Io<'_> {
        self.part(0, self.len(), self.offset().wrapping_add(base))
    }
}

/// The shape of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Size, bytes.
    pub media_size: u64,
    /// Sector size in bytes, a power of two.
    pub sector_size: u32,
    /// Optimal unit of I/O in bytes; 0 if unknown.
    pub stripe_size: u64,
    /// Offset of the disk's start within such a unit, bytes.
    pub stripe_offset: u64,
}

/// What holds the contents of a disk: an image file, memory, a target.
pub trait Medium: fmt::Debug {
    /// Its shape.
    fn shape(&self) -> Shape;

    /// Called before the first read or write.
    ///
    /// # Errors
    /// [`BlockError::WriteProtected`] if it cannot be written.
    fn open(&mut self, writes: bool) -> Result<(), BlockError> {
        let _ = writes;
        Ok(())
    }

    /// Fills `to` with the bytes at `offset`: whole sectors within the shape.
    ///
    /// # Errors
    /// The medium's.
    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlockError>;

    /// Writes `from` at `offset`.
    ///
    /// # Errors
    /// The medium's.
    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlockError>;

    /// The contents of these bytes are not needed any more.
    ///
    /// # Errors
    /// [`BlockError::Unsupported`]; the medium's.
    fn delete(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        let _ = (offset, length);
        Err(BlockError::Unsupported)
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The medium's.
    fn flush(&mut self) -> Result<(), BlockError>;

    /// More properties: names and values of `geom disk list`, in the order of that list.
    fn properties(&self) -> alloc::vec::Vec<(&'static str, alloc::string::String)> {
        alloc::vec::Vec::new()
    }
}
