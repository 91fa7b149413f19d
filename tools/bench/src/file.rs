//! A file, or a block device of this machine, as a block device: the target `file:PATH`.
//!
//! Reads and writes are plain system calls, executed one after the other when the doorbell is rung
//! for their batch. The page cache is used; a flush makes the data durable.

use std::collections::VecDeque;
use std::fs::File as SystemFile;
use std::io::{self, ErrorKind, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Cause, Completion, Operation, Refused, Request,
};
use flysch_api::data::SegmentLimits;
use flysch_api::machine::{Clock, DmaRegion, Instant};
use flysch_api::trace::Passage;
use rustix::fs::FallocateFlags;

use crate::clock::RealClock;

/// Requests accepted before `Full`.
const QUEUE_DEPTH: u32 = 4096;

/// Why a file cannot be a disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be opened.
    #[error("{}: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// It holds less than one block.
    #[error(
        "{}: {bytes} bytes are less than one block of {block_size}; make it larger, for example \
         with truncate(1)",
        path.display()
    )]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Bytes per block.
        block_size: u32,
    },
    /// The block size is not usable.
    #[error(
        "{}: a block size of {block_size} is not a power of two from 512 to 65536",
        path.display()
    )]
    BlockSize {
        /// The file.
        path: PathBuf,
        /// The requested size.
        block_size: u32,
    },
}

/// How to open a file.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Bytes per block, a power of two of at least 512.
    pub block_size: u32,
    /// Create the file with this size if it does not exist.
    pub create_size: Option<u64>,
    /// Bytes of buffer memory for requests.
    pub memory_len: usize,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { block_size: 4096, create_size: None, memory_len: 64 << 20 }
    }
}

/// A file as a block device. A file that may not be written is a read-only device.
#[derive(Debug)]
pub struct File {
    file: SystemFile,
    geometry: BlockGeometry,
    memory: DmaRegion,
    clock: RealClock,
    waiting: Vec<Request>,
    done: VecDeque<Completion>,
    /// Data on its way between the file and DMA memory.
    scratch: Vec<u8>,
    path: PathBuf,
    /// The first time that the disk of this machine had no space.
    failure: Option<String>,
}

impl File {
    /// From now on data lies in `memory` and times come from `clock`. Nothing may be in flight.
    pub fn join(&mut self, memory: &DmaRegion, clock: &RealClock) {
        (self.memory, self.clock) = (memory.clone(), clock.clone());
    }

    /// Opens `path`; times come from `clock`, which must be the one that drives the device.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be opened or is too small.
    pub fn open(path: &Path, options: FileOptions, clock: RealClock) -> Result<Self, OpenError> {
        let block_size = options.block_size;
        if !block_size.is_power_of_two() || !(512..=65_536).contains(&block_size) {
            return Err(OpenError::BlockSize { path: path.to_owned(), block_size });
        }
        let failed = |cause| OpenError::Open { path: path.to_owned(), cause };
        let (mut file, read_only) = open(path, options.create_size).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::Error::from(ErrorKind::IsADirectory)));
        }
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let blocks = bytes / u64::from(block_size);
        if blocks == 0 {
            return Err(OpenError::TooSmall { path: path.to_owned(), bytes, block_size });
        }
        let geometry = BlockGeometry {
            block_size,
            blocks,
            transfer_max: 1 << 30,
            segments: SegmentLimits::NONE,
            queue_depth: QUEUE_DEPTH,
            can_delete: true,
            read_only,
            crypto: false,
        };
        Ok(Self {
            file,
            geometry,
            memory: DmaRegion::zeroed(options.memory_len.max(1), 0),
            clock,
            waiting: Vec::with_capacity(QUEUE_DEPTH as usize),
            done: VecDeque::with_capacity(QUEUE_DEPTH as usize),
            scratch: Vec::new(),
            path: path.to_owned(),
            failure: None,
        })
    }

    /// Why the machine could not store more, if that happened.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn perform(&mut self, request: &Request) -> io::Result<()> {
        let length = request.length as usize;
        match request.operation {
            Operation::Read => {
                let to = grown(&mut self.scratch, length);
                self.file.read_exact_at(to, request.offset)?;
                self.each_range(request, |memory, at, place| {
                    memory.write(at, &self.scratch[place]);
                })?;
            }
            Operation::Write => {
                let mut scratch = core::mem::take(&mut self.scratch);
                grown(&mut scratch, length);
                let read = self.each_range(request, |memory, at, place| {
                    memory.read(at, &mut scratch[place]);
                });
                self.scratch = scratch;
                read?;
                self.file.write_all_at(&self.scratch[..length], request.offset)?;
                if request.force_unit_access {
                    self.file.sync_data()?;
                }
            }
            Operation::Flush => self.file.sync_data()?,
            Operation::Delete => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.file, flags, request.offset, request.length)?;
            }
        }
        Ok(())
    }

    /// Every range of a request's data: where it is in our memory, and its offset in the data.
    fn each_range(
        &self,
        request: &Request,
        mut copy: impl FnMut(&DmaRegion, usize, core::ops::Range<usize>),
    ) -> io::Result<()> {
        let mut done = 0;
        for range in request.data.ranges(&self.memory) {
            let range = range.map_err(io::Error::other)?;
            let at = self.memory.offset_of(range.address, range.len as usize);
            let next = done + range.len as usize;
            copy(&self.memory, at.map_err(io::Error::other)?, done..next);
            done = next;
        }
        Ok(())
    }
}

/// Opens for reading and writing, or only for reading if writing is not allowed.
fn open(path: &Path, create_size: Option<u64>) -> io::Result<(SystemFile, bool)> {
    let read_write = || SystemFile::options().read(true).write(true).open(path);
    match (read_write(), create_size) {
        (Ok(file), _) => Ok((file, false)),
        (Err(error), Some(size)) if error.kind() == ErrorKind::NotFound => {
            let file = SystemFile::options().read(true).write(true).create_new(true).open(path)?;
            if let Err(error) = file.set_len(size) {
                drop(file);
                let _ = std::fs::remove_file(path);
                return Err(error);
            }
            Ok((file, false))
        }
        (Err(error), _)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            SystemFile::open(path).map(|file| (file, true))
        }
        (Err(error), _) => Err(error),
    }
}

/// The first `length` bytes of `buffer`, which grows to the longest request and then stays.
fn grown(buffer: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    &mut buffer[..length]
}

/// The system's error as an error of a block device (SPC-5 sense keys and codes).
fn error_of(error: &io::Error, operation: Operation) -> BlockError {
    let medium = |asc, ascq| BlockError::Medium(Cause::sense(3, asc, ascq));
    match error.kind() {
        // DATA PROTECT, space allocation failed.
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            BlockError::Device(Cause::sense(7, 0x27, 7))
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => BlockError::WriteProtected,
        ErrorKind::Unsupported => BlockError::Unsupported,
        ErrorKind::UnexpectedEof => BlockError::OutOfRange,
        _ if operation == Operation::Read => medium(0x11, 0),
        _ => medium(0x0c, 0),
    }
}

impl BlockDevice for File {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn submit(&mut self, request: &Request, _now: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        let invalid = |bad| Refused::Invalid(BlockError::BadData(bad));
        self.geometry.segments.check(&request.data, &self.memory).map_err(invalid)?;
        if self.waiting.len() + self.done.len() >= QUEUE_DEPTH as usize {
            return Err(Refused::Full);
        }
        self.waiting.push(*request);
        Ok(())
    }

    fn ring(&mut self, now: Instant) {
        for index in 0..self.waiting.len() {
            let request = self.waiting[index];
            let result = self.perform(&request);
            if let Err(error) = &result
                && matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            {
                let path = self.path.display();
                self.failure.get_or_insert_with(|| format!("{path}: cannot write: {error}"));
            }
            let result = result.map_err(|error| error_of(&error, request.operation));
            let end = self.clock.now();
            let passage = Passage {
                accepted: request.accepted,
                issued: now,
                device_done: Some(end),
                seen: end,
            };
            self.done.push_back(Completion { token: request.token, result, passage });
        }
        self.waiting.clear();
    }

    fn poll(&mut self, now: Instant) -> Option<Completion> {
        let mut completion = self.done.pop_front()?;
        completion.passage.seen = now;
        Some(completion)
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests;
