//! The asynchronous I/O of `io_submit` and `io_getevents`, which libaio wraps.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::clock::Waiter;
use super::error::DiskError;
use super::lane::{Call, What};
use super::open::{Object, errno};

/// `IOCB_CMD_` numbers of `linux/aio_abi.h`.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FDSYNC: u16 = 3;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;
/// `IOCB_FLAG_RESFD`: an eventfd is signalled at completion.
const RESFD: u32 = 1;
/// Maximum number of completions per call.
const EVENTS: usize = 64;

/// `struct io_event`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// Completions on their way from the waiting clock to the lane: only one of the two uses it at a
/// time.
#[derive(Debug)]
pub(super) struct Inbox {
    context: libc::c_ulong,
    next: AtomicU32,
    count: AtomicU32,
    entries: Box<[[AtomicU64; 2]]>,
}

impl Inbox {
    /// Whether nothing is in it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.next.load(Ordering::Acquire) >= self.count.load(Ordering::Acquire)
    }

    #[inline]
    fn take(&self) -> Option<(u16, i32)> {
        let next = self.next.load(Ordering::Acquire);
        if next >= self.count.load(Ordering::Acquire) {
            return None;
        }
        let [slot, result] = &self.entries[next as usize];
        let done = (slot.load(Ordering::Relaxed) as u16, result.load(Ordering::Relaxed) as i32);
        self.next.store(next + 1, Ordering::Release);
        Some(done)
    }

    /// Fetches completions from the kernel if it is empty, and waits for one if `least` is 1, for a
    /// limited time or for good. Returns whether there is one now.
    pub(super) fn fill(&self, least: i64, timeout: Option<Duration>) -> bool {
        if !self.is_empty() {
            return true;
        }
        let mut events = [Event::default(); EVENTS];
        let limit = timeout.map(|left| libc::timespec {
            tv_sec: left.as_secs() as _,
            tv_nsec: left.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: the context is the lane's and lives as long as this; the kernel stores at most
        // as many events as there is room for.
        let count = unsafe {
            let events = events.as_mut_ptr();
            libc::syscall(libc::SYS_io_getevents, self.context, least, EVENTS, events, limit)
        };
        let count = usize::try_from(count).unwrap_or(0).min(EVENTS);
        for (event, entry) in events[..count].iter().zip(&self.entries) {
            entry[0].store(event.data, Ordering::Relaxed);
            entry[1].store(event.result as u64, Ordering::Relaxed);
        }
        self.count.store(count as u32, Ordering::Release);
        self.next.store(0, Ordering::Release);
        count > 0
    }
}

/// `struct iocb` of `linux/aio_abi.h`, which not every C library declares.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ControlBlock {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    lio_opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

const _: () = assert!(size_of::<ControlBlock>() == 64);

/// A context.
pub(super) struct Aio {
    inbox: Arc<Inbox>,
    /// One per slot; the kernel copies them at submission.
    blocks: Box<[ControlBlock]>,
    /// Addresses of those to be submitted.
    batch: Vec<usize>,
    /// Slots that the kernel refused, with its error.
    refused: VecDeque<(u16, i32)>,
    fd: RawFd,
    event: Option<RawFd>,
    is_live: bool,
}

impl core::fmt::Debug for Aio {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Aio").field("batch", &self.batch.len()).finish_non_exhaustive()
    }
}

fn failed(what: &'static str, cause: io::Error) -> DiskError {
    let remedy = match cause.raw_os_error() {
        Some(libc::ENOSYS) => "; this kernel has no io_submit: use `engine=psync`",
        Some(libc::EAGAIN) => "; raise the limit `sysctl fs.aio-max-nr`",
        _ => "",
    };
    DiskError::Engine { what, cause, remedy }
}

impl Aio {
    /// A context for `depth` requests, and how to wait for it; `is_one_of_many` if others are
    /// waited for at the same time.
    pub(super) fn new(
        object: &Object,
        depth: u32,
        is_one_of_many: bool,
    ) -> Result<(Self, Waiter), DiskError> {
        let event = match is_one_of_many {
            false => None,
            true => {
                // SAFETY: the call takes two numbers.
                match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
                    -1 => return Err(failed("eventfd", io::Error::last_os_error())),
                    // SAFETY: the descriptor was just made and is nobody else's.
                    fd => Some(unsafe { OwnedFd::from_raw_fd(fd) }),
                }
            }
        };
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup stores one word.
        if unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) } < 0 {
            return Err(failed("io_setup", io::Error::last_os_error()));
        }
        let entries = (0..EVENTS).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect();
        let (next, count) = (AtomicU32::new(0), AtomicU32::new(0));
        let inbox = Arc::new(Inbox { context, next, count, entries });
        let this = Self {
            inbox: Arc::clone(&inbox),
            blocks: vec![ControlBlock::default(); depth as usize].into(),
            batch: Vec::with_capacity(depth as usize),
            refused: VecDeque::with_capacity(depth as usize),
            fd: object.file.as_raw_fd(),
            event: event.as_ref().map(AsRawFd::as_raw_fd),
            is_live: true,
        };
        Ok((this, Waiter::aio(inbox, event)))
    }

    /// Writes the control block of a slot.
    #[inline]
    pub(super) fn push(&mut self, slot: u16, call: &Call) {
        let (command, base, len) = match call.what {
            What::Read(base, _, len) => (PREAD, base as u64, len.into()),
            What::Write(base, _, len) => (PWRITE, base as u64, len.into()),
            What::ReadList(list, count) => (PREADV, list as u64, count.into()),
            What::WriteList(list, count) => (PWRITEV, list as u64, count.into()),
            What::Flush => (FDSYNC, 0, 0),
            What::Punch(_) => unreachable!("there is no such command; it is done in place"),
        };
        let block = &mut self.blocks[usize::from(slot)];
        block.data = slot.into();
        block.lio_opcode = command;
        block.rw_flags = call.flags;
        block.fildes = self.fd as u32;
        block.buf = base;
        block.nbytes = len;
        block.offset = if command == FDSYNC { 0 } else { call.offset as i64 };
        if let Some(event) = self.event {
            block.flags = RESFD;
            block.resfd = event as u32;
        }
        self.batch.push(core::ptr::from_mut(block) as usize);
    }

    /// Submits everything pushed, by one call if the kernel accepts it at once. Refused requests
    /// are completed with the kernel's error.
    pub(super) fn submit(&mut self, waiter: &Waiter) {
        let mut sent = 0;
        while sent < self.batch.len() {
            let (left, batch) = (self.batch.len() - sent, &self.batch[sent..]);
            // SAFETY: the addresses are those of this context's control blocks; what they name
            // lives until the slot's completion came.
            let taken = unsafe {
                libc::syscall(libc::SYS_io_submit, self.inbox.context, left, batch.as_ptr())
            };
            match (taken, errno()) {
                (taken, _) if taken > 0 => sent += (taken as usize).min(left),
                (_, libc::EINTR) => {}
                // No room now: the next look tries again.
                (0, _) | (_, libc::EAGAIN) => break,
                // The error is the first one's.
                (_, errno) => {
                    let first = self.batch[sent] - self.blocks.as_ptr() as usize;
                    let slot = first / size_of::<ControlBlock>();
                    self.refused.push_back((slot as u16, -errno));
                    sent += 1;
                }
            }
        }
        self.batch.drain(..sent);
        waiter.stuck.store(!self.batch.is_empty(), Ordering::Relaxed);
    }

    /// The next completion.
    #[inline]
    pub(super) fn reap(&mut self, waiter: &Waiter) -> Option<(u16, i32)> {
        if let Some(done) = self.inbox.take() {
            return Some(done);
        }
        if waiter.stuck.load(Ordering::Relaxed) {
            self.submit(waiter);
        }
        if let Some(refused) = self.refused.pop_front() {
            return Some(refused);
        }
        if waiter.in_flight.load(Ordering::Relaxed) == 0 || self.is_idle() {
            return None;
        }
        self.inbox.fill(0, None);
        self.inbox.take()
    }

    /// Whether the kernel's completion ring, which starts at the context's address, is empty: no
    /// call is needed for that. If it cannot be determined, the ring counts as not empty.
    #[inline]
    fn is_idle(&self) -> bool {
        /// `AIO_RING_MAGIC`.
        const MAGIC: u32 = 0xa10a_10a1;
        let ring = self.inbox.context as *const AtomicU32;
        // SAFETY: the kernel maps its `struct aio_ring` (id, nr, head, tail, magic) there until
        // the context is destroyed, and libaio reads the same words.
        let word = |at: usize| unsafe { (*ring.add(at)).load(Ordering::Acquire) };
        word(4) == MAGIC && word(2) == word(3)
    }

    /// Waits for requests in flight, and destroys the context.
    pub(super) fn destroy(&mut self) {
        if core::mem::take(&mut self.is_live) {
            // SAFETY: the context is this one's; the kernel returns when nothing is under way.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.inbox.context) };
        }
    }
}
