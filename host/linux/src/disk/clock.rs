//! Waiting for the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use flysch_api::machine::{Clock, Instant, Wake};

use super::aio::Inbox;

/// `IORING_ENTER_GETEVENTS`, `IORING_ENTER_EXT_ARG`.
const GETEVENTS: u32 = 1;
const EXT_ARG: u32 = 1 << 3;

/// How to wait for one lane.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Requests that the kernel has, or has completed.
    pub(super) in_flight: AtomicU32,
    /// Something could not be submitted and has to be retried.
    pub(super) stuck: AtomicBool,
    how: How,
}

#[derive(Debug)]
enum How {
    /// Nothing is in flight after a call.
    None,
    Uring {
        ring: OwnedFd,
        /// There are no interrupts: the waiting thread polls.
        polled: bool,
        has_timeout: bool,
    },
    Aio {
        inbox: Arc<Inbox>,
        event: Option<OwnedFd>,
    },
}

impl Waiter {
    fn new(how: How) -> Self {
        Self { in_flight: AtomicU32::new(0), stuck: AtomicBool::new(false), how }
    }

    pub(super) fn none() -> Self {
        Self::new(How::None)
    }

    pub(super) fn uring(ring: OwnedFd, polled: bool, has_timeout: bool) -> Self {
        Self::new(How::Uring { ring, polled, has_timeout })
    }

    pub(super) fn aio(inbox: Arc<Inbox>, event: Option<OwnedFd>) -> Self {
        Self::new(How::Aio { inbox, event })
    }

    fn is_polled(&self) -> bool {
        matches!(self.how, How::Uring { polled: true, .. })
    }

    /// Whether there may be something without waiting.
    fn is_ready(&self) -> bool {
        let has_events = matches!(&self.how, How::Aio { inbox, .. } if !inbox.is_empty());
        has_events || self.stuck.load(Ordering::Relaxed) || matches!(self.how, How::None)
    }

    /// Waits only for this one; returns whether the time has elapsed.
    fn wait(&self, left: Option<Duration>) -> bool {
        match &self.how {
            How::None => false,
            How::Uring { ring, has_timeout: true, .. } => enter(ring, 1, left),
            How::Uring { ring, .. } if left.is_none() => enter(ring, 1, None),
            How::Uring { ring, .. } => ppoll(&[ring], left),
            How::Aio { inbox, .. } => !inbox.fill(1, left),
        }
    }

    fn descriptor(&self) -> Option<&OwnedFd> {
        match &self.how {
            How::None => None,
            How::Uring { ring, .. } => Some(ring),
            How::Aio { event, .. } => event.as_ref(),
        }
    }
}

/// The clock of an object's lanes: the time of another clock, and waiting that ends when the kernel
/// has completed something.
#[derive(Clone, Debug)]
pub struct Waiting<C> {
    clock: C,
    lanes: Vec<Arc<Waiter>>,
}

impl<C> Waiting<C> {
    pub(super) fn new(clock: C, lanes: Vec<Arc<Waiter>>) -> Self {
        Self { clock, lanes }
    }
}

impl<C: Clock> Clock for Waiting<C> {
    #[inline]
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        let is_busy = |lane: &&Arc<Waiter>| lane.in_flight.load(Ordering::Relaxed) > 0;
        let mut busy = self.lanes.iter().filter(is_busy);
        let Some(first) = busy.next() else { return self.clock.wait(until) };
        let left = until.map(|until| Duration::from_nanos(until.nanos_since(self.now())));
        if left == Some(Duration::ZERO) {
            return Wake::Deadline;
        }
        if first.is_ready() {
            return Wake::Interrupt;
        }
        let is_over = match busy.next() {
            None if first.is_polled() && left.is_some() => look(first),
            None => first.wait(left),
            Some(_) => self.wait_for_all(left),
        };
        match is_over && until.is_some() {
            true => Wake::Deadline,
            false => Wake::Interrupt,
        }
    }
}

impl<C> Waiting<C> {
    #[cold]
    fn wait_for_all(&self, left: Option<Duration>) -> bool {
        let is_busy = |lane: &&Arc<Waiter>| lane.in_flight.load(Ordering::Relaxed) > 0;
        let busy = || self.lanes.iter().filter(is_busy);
        if busy().any(|lane| lane.is_ready()) {
            return false;
        }
        if busy().any(|lane| lane.is_polled()) {
            busy().for_each(|lane| {
                look(lane);
            });
            return false;
        }
        let all: Vec<&OwnedFd> = busy().filter_map(|lane| lane.descriptor()).collect();
        let is_over = ppoll(&all, left);
        for lane in busy() {
            if let How::Aio { event: Some(event), .. } = &lane.how {
                let mut count = [0; 8];
                // It tells that something came; how much, the context tells.
                let _ = rustix::io::read(event, &mut count);
            }
        }
        is_over
    }
}

/// Makes the kernel poll the device once.
fn look(lane: &Waiter) -> bool {
    if let How::Uring { ring, .. } = &lane.how {
        enter(ring, 0, None);
    }
    false
}

/// `io_uring_enter` without submissions; returns whether the time elapsed before this many
/// completions.
fn enter(ring: &OwnedFd, least: u32, left: Option<Duration>) -> bool {
    /// `struct io_uring_getevents_arg`.
    #[repr(C)]
    struct Argument {
        mask: u64,
        mask_size: u32,
        least_wait: u32,
        time: u64,
    }
    let time = left.map(|left| [left.as_secs(), u64::from(left.subsec_nanos())]);
    let argument = Argument {
        mask: 0,
        mask_size: 0,
        least_wait: 0,
        time: time.as_ref().map_or(0, |time| time.as_ptr() as u64),
    };
    let (flags, place, size) = match time {
        None => (GETEVENTS, core::ptr::null(), 0),
        Some(_) => (GETEVENTS | EXT_ARG, &raw const argument, size_of::<Argument>()),
    };
    let ring = ring.as_raw_fd();
    // SAFETY: the argument and the time it names live until the call returns; nothing is submitted.
    let done =
        unsafe { libc::syscall(libc::SYS_io_uring_enter, ring, 0_u32, least, flags, place, size) };
    done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIME)
}

/// Waits until one of the descriptors is ready; returns whether the time elapsed before that.
fn ppoll(all: &[&OwnedFd], left: Option<Duration>) -> bool {
    let mut polled: Vec<libc::pollfd> = all
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let time = left.map(|left| libc::timespec {
        tv_sec: left.as_secs() as _,
        tv_nsec: left.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let count = polled.len() as libc::nfds_t;
    // SAFETY: the descriptors are open, and the array has as many entries as is said.
    unsafe { libc::ppoll(polled.as_mut_ptr(), count, time, core::ptr::null()) == 0 }
}
