//! io_uring: a ring of submissions and one of completions in memory shared with the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering;

use flysch_api::machine::DmaRegion;
use io_uring::types::{Fd, Fixed, FsyncFlags};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::clock::Waiter;
use super::error::DiskError;
use super::lane::{Call, What};
use super::open::Object;
use super::sync::PUNCH;

/// Bytes of one registered buffer: the kernel's maximum.
const BUFFER: usize = 1 << 30;
/// Time without submissions after which the kernel's thread sleeps, milliseconds.
const IDLE: u32 = 1000;

/// A ring.
pub(super) struct Uring {
    ring: IoUring,
    fd: RawFd,
    fixed: bool,
}

impl core::fmt::Debug for Uring {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Uring").field("fixed", &self.fixed).finish_non_exhaustive()
    }
}

fn failed(what: &'static str, cause: io::Error) -> DiskError {
    let remedy = match (what, cause.raw_os_error()) {
        (_, Some(libc::ENOSYS)) => "; this kernel has no io_uring: use `engine=aio`",
        (SETUP, Some(libc::EPERM)) => {
            "; it is switched off (`sysctl kernel.io_uring_disabled`): use `engine=aio`"
        }
        (BUFFERS, Some(libc::ENOMEM)) => {
            "; the limit on locked memory is too low (`ulimit -l`): use `fixed=off`"
        }
        (_, Some(libc::ENOMEM)) => "; the limit on locked memory is too low (`ulimit -l`)",
        _ => "",
    };
    DiskError::Engine { what, cause, remedy }
}

const SETUP: &str = "io_uring_setup";
const BUFFERS: &str = "registering memory with io_uring";
const FILES: &str = "registering the file with io_uring";

impl Uring {
    /// A ring for `depth` requests whose data is in `memory`, and how to wait for it.
    pub(super) fn new(
        object: &Object,
        depth: u32,
        memory: &DmaRegion,
    ) -> Result<(Self, Waiter), DiskError> {
        let settings = &object.settings;
        let build = |cooperative: bool| {
            let mut builder = IoUring::<squeue::Entry, cqueue::Entry>::builder();
            builder.dontfork();
            if settings.polled {
                builder.setup_iopoll();
            }
            if settings.sqpoll {
                builder.setup_sqpoll(IDLE);
            } else if cooperative {
                // No interruption of this thread for the end of a request: it comes by (5.19).
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            builder.build(depth)
        };
        let ring = match build(true) {
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => build(false),
            other => other,
        };
        let ring = ring.map_err(|cause| failed(SETUP, cause))?;
        let fd = object.file.as_raw_fd();
        if settings.fixed {
            let buffers: Vec<libc::iovec> = (0..memory.len())
                .step_by(BUFFER)
                .map(|at| libc::iovec {
                    iov_base: memory.as_ptr().wrapping_add(at).cast(),
                    iov_len: BUFFER.min(memory.len() - at),
                })
                .collect();
            // SAFETY: the memory is the lane's, which keeps it longer than the ring and drains the
            // ring before it lets it go.
            unsafe { ring.submitter().register_buffers(&buffers) }
                .map_err(|cause| failed(BUFFERS, cause))?;
            ring.submitter().register_files(&[fd]).map_err(|cause| failed(FILES, cause))?;
        }
        // SAFETY: the ring owns its descriptor, which is open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let own = borrowed.as_fd().try_clone_to_owned();
        let own = own.map_err(|cause| failed("duplicating the ring's descriptor", cause))?;
        let has_timeout = ring.params().is_feature_ext_arg();
        let waiter = Waiter::uring(own, settings.polled, has_timeout);
        Ok((Self { ring, fd, fixed: settings.fixed }, waiter))
    }

    /// Writes the submission; the kernel sees it at the next [`submit`](Self::submit).
    #[inline]
    pub(super) fn push(&mut self, slot: u16, call: &Call) {
        let (offset, flags) = (call.offset, call.flags);
        let buffer = |at: usize, len: u32| {
            let (first, last) = (at / BUFFER, (at + len as usize).saturating_sub(1) / BUFFER);
            (first == last).then_some(first as u16)
        };
        // The file by its place in the ring's table, or by its descriptor.
        macro_rules! on {
            ($file:expr) => {
                match call.what {
                    What::Read(base, at, len) => match buffer(at, len).filter(|_| self.fixed) {
                        Some(number) => opcode::ReadFixed::new($file, base, len, number)
                            .offset(offset)
                            .rw_flags(flags)
                            .build(),
                        None => opcode::Read::new($file, base, len)
                            .offset(offset)
                            .rw_flags(flags)
                            .build(),
                    },
                    What::Write(base, at, len) => match buffer(at, len).filter(|_| self.fixed) {
                        Some(number) => opcode::WriteFixed::new($file, base, len, number)
                            .offset(offset)
                            .rw_flags(flags)
                            .build(),
                        None => opcode::Write::new($file, base, len)
                            .offset(offset)
                            .rw_flags(flags)
                            .build(),
                    },
                    What::ReadList(list, count) => opcode::Readv::new($file, list, count)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    What::WriteList(list, count) => opcode::Writev::new($file, list, count)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    What::Flush => opcode::Fsync::new($file).flags(FsyncFlags::DATASYNC).build(),
                    What::Punch(len) => {
                        opcode::Fallocate::new($file, len).offset(offset).mode(PUNCH).build()
                    }
                }
            };
        }
        let entry = if self.fixed { on!(Fixed(0)) } else { on!(Fd(self.fd)) };
        let entry = entry.user_data(slot.into());
        // SAFETY: what the entry names - DMA memory, the slot's list - lives until the slot's
        // completion was reaped; the lane drains the ring before it goes.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has as many entries as there are slots");
    }

    /// Shows everything pushed to the kernel: one call, or none if its thread is awake.
    #[inline]
    pub(super) fn submit(&mut self, waiter: &Waiter) {
        loop {
            match self.ring.submit() {
                Ok(_) => break,
                Err(cause) if cause.raw_os_error() == Some(libc::EINTR) => {}
                // No memory now, or completions to be taken first: the next look tries again.
                Err(_) => break,
            }
        }
        let is_stuck = !self.ring.params().is_setup_sqpoll() && !self.ring.submission().is_empty();
        waiter.stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// The next completion.
    #[inline]
    pub(super) fn reap(&mut self, waiter: &Waiter) -> Option<(u16, i32)> {
        if let Some(entry) = self.ring.completion().next() {
            return Some((entry.user_data() as u16, entry.result()));
        }
        let has_work = self.ring.submission().taskrun() || waiter.stuck.load(Ordering::Relaxed);
        if !has_work {
            return None;
        }
        self.submit(waiter);
        let entry = self.ring.completion().next()?;
        Some((entry.user_data() as u16, entry.result()))
    }

    /// Waits for `rung` requests in flight. The kernel's drivers end each of them.
    pub(super) fn drain(&mut self, mut rung: usize) {
        while rung > 0 {
            rung -= self.ring.completion().count().min(rung);
            if rung > 0
                && let Err(cause) = self.ring.submit_and_wait(1)
                && !matches!(cause.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
            {
                break;
            }
        }
    }
}
