//! A file as a block device: each request is one `pread`, `pwrite`, `fdatasync` or hole.
//!
//! Requests are carried out one after the other while the device is polled, as a synchronous I/O
//! engine does it; the device time of each is the time its system call took.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flysch_api::block::{Cause, Completion, Device, Error, Geometry, Operation, Refused, Request};
use flysch_api::machine::{Clock, DmaRegion, Instant};
use flysch_api::trace::Stamps;
use flysch_bench::clock::RealClock;
use rustix::fs::{FallocateFlags, FlockOperation};

/// Longest system call, bytes; longer requests are done in pieces.
const PIECE: usize = 1 << 20;

/// Why a file is no disk.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is the matter with it.
    pub fault: FileFault,
}

/// What is the matter with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// It does not exist and no size was given.
    #[error("does not exist; give `size=` to make it")]
    Missing,
    /// It is something else.
    #[error("is {0}, not a regular file")]
    NotAFile(&'static str),
    /// It is shorter than asked for.
    #[error("is too small: {has} bytes, and `size=` asks for {needs}; `truncate -s {needs}` it")]
    TooSmall {
        /// Its length.
        has: u64,
        /// The length asked for.
        needs: u64,
    },
    /// It holds no whole block.
    #[error("is empty; give `size=` with a new name, or `truncate` it to the size of the disk")]
    Empty,
    /// Another process has it.
    #[error("is in use by another process")]
    InUse,
    /// The operating system's own words.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// An open file that is long enough, locked against others.
#[derive(Clone, Debug)]
pub struct DiskFile {
    file: Arc<File>,
    blocks: u64,
    block_size: u32,
}

impl DiskFile {
    /// Opens the file, or makes it where `size` is given and it does not exist.
    ///
    /// # Errors
    /// What is the matter with it.
    pub fn open(path: &Path, size: Option<u64>, block_size: u32) -> Result<Self, FileError> {
        Self::try_open(path, size, block_size)
            .map_err(|fault| FileError { path: path.to_path_buf(), fault })
    }

    fn try_open(path: &Path, size: Option<u64>, block_size: u32) -> Result<Self, FileFault> {
        let mut options = File::options();
        options.read(true).write(true);
        let file = match (std::fs::metadata(path), size) {
            (Ok(metadata), _) => {
                if let Some(what) = not_a_file(&metadata) {
                    return Err(FileFault::NotAFile(what));
                }
                options.open(path)?
            }
            (Err(error), Some(size)) if error.kind() == io::ErrorKind::NotFound => {
                let file = options.create_new(true).open(path)?;
                if let Err(error) = file.set_len(size) {
                    let _ = std::fs::remove_file(path);
                    return Err(error.into());
                }
                file
            }
            (Err(error), None) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FileFault::Missing);
            }
            (Err(error), _) => return Err(error.into()),
        };
        let has = file.metadata()?.len();
        let needs = size.unwrap_or(has);
        if has < needs {
            return Err(FileFault::TooSmall { has, needs });
        }
        let blocks = needs / u64::from(block_size);
        if blocks == 0 {
            return Err(FileFault::Empty);
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(FileFault::InUse),
            Err(error) => return Err(io::Error::from(error).into()),
        }
        Ok(Self { file: Arc::new(file), blocks, block_size })
    }
}

/// What a path leads to, if not to a regular file.
pub fn not_a_file(metadata: &std::fs::Metadata) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_block_device() => Some("a block device"),
        () if kind.is_char_device() => Some("a character device"),
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("something else"),
    }
}

/// One lane of a file.
#[derive(Debug)]
pub struct FileDisk {
    file: DiskFile,
    geometry: Geometry,
    memory: DmaRegion,
    clock: RealClock,
    /// Requests not carried out yet, oldest first; a ring of fixed length.
    waiting: Box<[Option<Request>]>,
    first: usize,
    count: usize,
    rung: usize,
    issued: Instant,
    piece: Box<[u8]>,
}

impl FileDisk {
    /// A lane that takes `queue_depth` requests, with `memory` for their buffers.
    pub fn new(file: DiskFile, queue_depth: u32, memory: DmaRegion, clock: RealClock) -> Self {
        let geometry = Geometry {
            block_size: file.block_size,
            blocks: file.blocks,
            transfer_max: 1 << 30,
            queue_depth,
            can_delete: true,
            read_only: false,
        };
        Self {
            file,
            geometry,
            memory,
            clock,
            waiting: vec![None; queue_depth as usize].into_boxed_slice(),
            first: 0,
            count: 0,
            rung: 0,
            issued: Instant::START,
            piece: vec![0; PIECE].into_boxed_slice(),
        }
    }

    fn carry_out(&mut self, request: &Request) -> io::Result<()> {
        let file = &self.file.file;
        match request.operation {
            Operation::Flush => file.sync_data(),
            Operation::Delete => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, request.offset, request.length)?;
                Ok(())
            }
            Operation::Read | Operation::Write => {
                self.transfer(request)?;
                match request.force_unit_access {
                    true => self.file.file.sync_data(),
                    false => Ok(()),
                }
            }
        }
    }

    fn transfer(&mut self, request: &Request) -> io::Result<()> {
        let len = request.buffer.len as usize;
        let start = self
            .memory
            .offset_of(request.buffer.address, len)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
        let mut done = 0;
        while done < len {
            let piece = &mut self.piece[..PIECE.min(len - done)];
            let offset = request.offset + done as u64;
            if request.operation == Operation::Read {
                self.file.file.read_exact_at(piece, offset)?;
                self.memory.write(start + done, piece);
            } else {
                self.memory.read(start + done, piece);
                self.file.file.write_all_at(piece, offset)?;
            }
            done += piece.len();
        }
        Ok(())
    }
}

impl Device for FileDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn submit(&mut self, request: &Request, _now: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        if self.count == self.waiting.len() {
            return Err(Refused::Full);
        }
        let place = (self.first + self.count) % self.waiting.len();
        self.waiting[place] = Some(*request);
        self.count += 1;
        Ok(())
    }

    fn ring(&mut self, now: Instant) {
        self.issued = now;
        self.rung = self.count;
    }

    fn poll(&mut self, _now: Instant) -> Option<Completion> {
        if self.rung == 0 {
            return None;
        }
        let request = self.waiting[self.first].take()?;
        self.first = (self.first + 1) % self.waiting.len();
        self.count -= 1;
        self.rung -= 1;
        let result = self.carry_out(&request).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => Error::Unsupported,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NO_SPACE,
            _ => Error::Medium(Cause::default()),
        });
        let seen = self.clock.now();
        let stamps = Stamps {
            accepted: request.accepted,
            issued: self.issued,
            device_done: None,
            seen,
            delivered: seen,
        };
        Some(Completion { token: request.token, result, stamps })
    }

    fn poll_at(&self) -> Option<Instant> {
        (self.rung > 0).then_some(Instant::START)
    }
}

/// DATA PROTECT, SPACE ALLOCATION FAILED (SPC-5 annex F): what a thin disk says when it is full.
const NO_SPACE: Error = Error::Device(Cause { key: 0x7, asc: 0x27, ascq: 0x07 });

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: Operation, offset: u64, len: u32, address: u64) -> Request {
        Request {
            operation,
            force_unit_access: false,
            offset,
            length: if operation == Operation::Flush { 0 } else { u64::from(len) },
            buffer: flysch_api::machine::DmaSlice {
                address,
                len: if matches!(operation, Operation::Read | Operation::Write) { len } else { 0 },
            },
            token: offset,
            accepted: Instant::START,
        }
    }

    #[test]
    fn data_comes_back_and_holes_read_as_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let file = DiskFile::open(&path, Some(1 << 20), 4096).unwrap();
        let memory = DmaRegion::zeroed(3 << 20, 0);
        let mut disk = FileDisk::new(file, 4, memory.clone(), RealClock::new());
        let now = Instant::START;
        let mut run = |r: Request| {
            disk.submit(&r, now).unwrap();
            assert!(disk.poll(now).is_none(), "not rung for yet");
            disk.ring(now);
            disk.poll(now).unwrap().result
        };
        memory.fill(0, 8192, 0xA5);
        assert_eq!(run(request(Operation::Write, 4096, 8192, 0)), Ok(()));
        assert_eq!(run(request(Operation::Delete, 4096, 4096, 0)), Ok(()));
        assert_eq!(run(request(Operation::Flush, 0, 0, 0)), Ok(()));
        assert_eq!(run(request(Operation::Read, 0, 12288, 1 << 20)), Ok(()));
        let mut back = vec![1; 12288];
        memory.read(1 << 20, &mut back);
        assert!(back[..8192].iter().all(|b| *b == 0) && back[8192..].iter().all(|b| *b == 0xA5));
    }

    #[test]
    fn what_is_no_disk_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let refusal = |size| DiskFile::open(&path, size, 4096).unwrap_err().to_string();
        assert!(refusal(None).contains("does not exist"));
        std::fs::write(&path, b"short").unwrap();
        assert!(refusal(None).contains("is empty"));
        assert!(refusal(Some(8192)).contains("too small: 5 bytes"));
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(8192).unwrap();
        let held = DiskFile::open(&path, None, 4096).unwrap();
        assert!(refusal(None).contains("in use"));
        drop(held);
        let error = DiskFile::open(folder.path(), None, 4096).unwrap_err().to_string();
        assert!(error.contains("is a directory"), "{error}");
    }

    #[test]
    fn a_full_queue_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = DiskFile::open(&folder.path().join("d"), Some(1 << 20), 4096).unwrap();
        let memory = DmaRegion::zeroed(4096, 0);
        let mut disk = FileDisk::new(file, 1, memory, RealClock::new());
        let read = request(Operation::Read, 0, 4096, 0);
        assert_eq!(disk.submit(&read, Instant::START), Ok(()));
        assert_eq!(disk.submit(&read, Instant::START), Err(Refused::Full));
    }
}
