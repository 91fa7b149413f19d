//! Tags and their requests: `/dev/ublkcN`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use flysch_api::machine::DmaRegion;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::UblkError;
use crate::uapi::{self, Descriptor, Info, IoCommand};

/// Minimum number of pages for the descriptors.
const PAGE: usize = 4096;

/// The descriptors of one queue, which the kernel writes before a tag's command ends and does not
/// touch until the tag is answered.
#[derive(Debug)]
struct Table {
    base: NonNull<Descriptor>,
    bytes: usize,
}

impl Table {
    fn map(file: &File, queue: usize, depth: usize) -> io::Result<Self> {
        let bytes = (depth * size_of::<Descriptor>()).next_multiple_of(PAGE);
        let offset = queue * uapi::QUEUE_DEPTH_MAX * size_of::<Descriptor>();
        // SAFETY: a new mapping, wherever the kernel has room.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                offset as u64,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// The descriptor of a tag, which is below the depth.
    fn get(&self, tag: usize) -> Descriptor {
        assert!((tag + 1) * size_of::<Descriptor>() <= self.bytes, "tags are below the depth");
        // SAFETY: it is inside the mapping, which is aligned to a page; any bytes are a descriptor.
        unsafe { self.base.add(tag).read_volatile() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The result of a tag's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// A request.
    Request(Descriptor),
    /// No more requests: the disk ends.
    Ended,
    /// The kernel refused the command: its error number.
    Refused(i32),
}

/// All tags of all queues, numbered consecutively.
pub(crate) struct Queues {
    ring: IoUring,
    file: File,
    tables: Vec<Table>,
    depth: usize,
    /// Bytes of a tag's memory, and the offset of the first.
    buffer: usize,
    base: usize,
    memory: DmaRegion,
    /// Commands in the kernel.
    waiting: usize,
    /// Commands to be submitted.
    unseen: usize,
}

impl core::fmt::Debug for Queues {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Queues").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Queues {
    /// The tags of a device, each with its part of `memory` from `base` on.
    pub(crate) fn new(info: &Info, memory: DmaRegion, base: usize) -> Result<Self, UblkError> {
        let (queues, depth) = (usize::from(info.queues), usize::from(info.depth));
        let path = format!("/dev/ublkc{}", info.device);
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(UblkError::at("opening the device's character device"))?;
        let tables = (0..queues).map(|queue| Table::map(&file, queue, depth)).collect();
        let tables = io::Result::<Vec<_>>::from(tables);
        let tables = tables.map_err(UblkError::at("mapping the requests"))?;
        let mut builder = IoUring::builder();
        builder.dontfork().setup_coop_taskrun().setup_taskrun_flag();
        let ring = builder.build((queues * depth) as u32).map_err(UblkError::NoRing)?;
        let buffer = info.buffer as usize;
        assert!(base + queues * depth * buffer <= memory.len(), "each tag has its memory");
        let mut queues =
            Self { ring, file, tables, depth, buffer, base, memory, waiting: 0, unseen: 0 };
        for index in 0..queues.tables.len() * depth {
            queues.push(uapi::FETCH, index, 0);
        }
        queues.submit();
        Ok(queues)
    }

    /// What becomes readable when a command ends.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns its descriptor and is borrowed as long.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// The location of a tag's data in the device's memory.
    pub(crate) fn place(&self, index: usize) -> usize {
        self.base + index * self.buffer
    }

    /// Bytes of a tag's memory.
    pub(crate) fn buffer(&self) -> usize {
        self.buffer
    }

    /// Tags in the kernel.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    fn push(&mut self, number: u32, index: usize, result: i32) {
        let address = self.memory.as_ptr().wrapping_add(self.place(index)).addr() as u64;
        let (queue, tag) = ((index / self.depth) as u16, (index % self.depth) as u16);
        let command = IoCommand { queue, tag, result, address };
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), number);
        let entry = entry.cmd(command.bytes()).build().user_data(index as u64);
        // SAFETY: the memory at the address is this tag's alone and kept as long as the kernel has
        // a command: see `Drop`.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has as many entries as there are tags");
        self.waiting += 1;
        self.unseen += 1;
    }

    /// Answers a tag's request: bytes, or an error number below 0.
    pub(crate) fn answer(&mut self, index: usize, result: i32) {
        self.push(uapi::COMMIT_AND_FETCH, index, result);
    }

    /// Submits all answers to the kernel. Returns whether there were any.
    pub(crate) fn flush(&mut self) -> bool {
        let any = self.unseen > 0;
        if any {
            self.submit();
        }
        any
    }

    fn submit(&mut self) {
        // If the kernel has no memory now, the next turn tries again.
        if self.ring.submit().is_ok() && self.ring.submission().is_empty() {
            self.unseen = 0;
        }
    }

    /// The next tag with its result.
    pub(crate) fn next(&mut self) -> Option<(usize, Came)> {
        let mut entry = self.ring.completion().next();
        if entry.is_none() && self.ring.submission().taskrun() {
            self.submit();
            entry = self.ring.completion().next();
        }
        let entry = entry?;
        self.waiting -= 1;
        let index = entry.user_data() as usize;
        let came = match entry.result() {
            0 => Came::Request(self.tables[index / self.depth].get(index % self.depth)),
            uapi::ABORT => Came::Ended,
            error => Came::Refused(error),
        };
        Some((index, came))
    }

    /// Whether there are no results now.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.unseen == 0 && self.ring.completion().is_empty() && !self.ring.submission().taskrun()
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if self.waiting > 0 {
            // The kernel may still write there, whoever else has the memory.
            std::mem::forget(self.memory.clone());
        }
    }
}
