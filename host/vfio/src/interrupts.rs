//! Interrupts as eventfds.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::uapi::{self, VECTORS_MAX};

/// How the device tells that it wants to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// By messages, one vector for each who waits (MSI-X).
    Messages,
    /// By its interrupt line.
    Line,
    /// It does not: it is looked at all the time.
    Polled,
}

/// The interrupts of a device.
#[derive(Debug)]
pub(crate) struct Interrupts {
    signals: Signals,
    events: Vec<OwnedFd>,
    /// The line raised, and VFIO masked it. Whoever waits next has looked at the device.
    masked: AtomicBool,
}

impl Interrupts {
    /// Switches the device's interrupts on: `wanted` vectors, or as many as it has; its line if it
    /// has no vectors; none if it has neither.
    pub(crate) fn new(device: BorrowedFd<'_>, wanted: usize) -> io::Result<Self> {
        let count = |index| match uapi::irq_info(device, index) {
            Ok(info) if info.flags & uapi::IRQ_EVENTFD != 0 => info.count as usize,
            _ => 0,
        };
        let vectors = count(uapi::IRQ_MSIX).min(wanted).min(VECTORS_MAX);
        if vectors > 0 {
            return Self::of(device, Signals::Messages, uapi::IRQ_MSIX, vectors);
        }
        match count(uapi::IRQ_INTX) {
            0 => Ok(Self::polled()),
            _ => Self::of(device, Signals::Line, uapi::IRQ_INTX, 1),
        }
    }

    /// None at all.
    pub(crate) fn polled() -> Self {
        Self { signals: Signals::Polled, events: Vec::new(), masked: AtomicBool::new(false) }
    }

    fn of(device: BorrowedFd<'_>, signals: Signals, index: u32, count: usize) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = |_| rustix::event::eventfd(0, flags).map_err(io::Error::from);
        let events = (0..count).map(event).collect::<io::Result<Vec<_>>>()?;
        uapi::set_eventfds(device, index, &events)?;
        Ok(Self { signals, events, masked: AtomicBool::new(false) })
    }

    /// Switches them off.
    pub(crate) fn stop(&self, device: BorrowedFd<'_>) {
        let index = match self.signals {
            Signals::Messages => uapi::IRQ_MSIX,
            Signals::Line => uapi::IRQ_INTX,
            Signals::Polled => return,
        };
        // If that fails, closing the device does it.
        let _ = uapi::clear_eventfds(device, index);
    }

    pub(crate) fn signals(&self) -> Signals {
        self.signals
    }

    /// Vectors; the line counts as one.
    pub(crate) fn count(&self) -> usize {
        self.events.len()
    }

    /// Sleeps until one of these vectors was raised, at most for `left`; without it for as long as
    /// it takes. Whether one was.
    pub(crate) fn wait(
        &self,
        device: BorrowedFd<'_>,
        vectors: Range<usize>,
        left: Option<&Timespec>,
    ) -> bool {
        // The line is let through again only now that its driver has looked: before, it is still
        // up for what it was raised for.
        if self.signals == Signals::Line && self.masked.swap(false, Ordering::AcqRel) {
            let _ = uapi::unmask_line(device);
        }
        let events = &self.events[vectors];
        let poll = |event| PollFd::from_borrowed_fd(event, PollFlags::IN);
        let Some(first) = events.first() else { return false };
        let mut all: [PollFd<'_>; VECTORS_MAX] =
            core::array::from_fn(|at| poll(events.get(at).unwrap_or(first).as_fd()));
        let all = &mut all[..events.len()];
        if rustix::event::poll(all, left).unwrap_or(0) == 0 {
            return false;
        }
        let mut any = false;
        for (place, event) in all.iter().zip(events) {
            if place.revents().contains(PollFlags::IN) {
                any |= rustix::io::read(event, &mut [0; 8]).is_ok();
            }
        }
        if any && self.signals == Signals::Line {
            self.masked.store(true, Ordering::Release);
        }
        any
    }
}
