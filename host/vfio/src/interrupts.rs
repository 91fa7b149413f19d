//! Interrupts as eventfds.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::uapi::{self, VECTORS_MAX};

/// How the device signals that it needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// By messages, one vector for each waiter (MSI-X).
    MsiX,
    /// By one message for all (MSI).
    Msi,
    /// By its interrupt line.
    Line,
    /// It does not: it is polled all the time.
    Polled,
}

impl Signals {
    /// The kernel's number of these interrupts, and the maximum number used.
    fn index(self) -> Option<(u32, usize)> {
        match self {
            Self::MsiX => Some((uapi::IRQ_MSIX, VECTORS_MAX)),
            Self::Msi => Some((uapi::IRQ_MSI, 1)),
            Self::Line => Some((uapi::IRQ_INTX, 1)),
            Self::Polled => None,
        }
    }
}

/// The interrupts of a device.
#[derive(Debug)]
pub(crate) struct Interrupts {
    signals: Signals,
    events: Vec<OwnedFd>,
    /// The line was raised, and VFIO masked it. The next waiter has examined the device.
    masked: AtomicBool,
}

/// The number of enabled vectors after `set` was asked for `wanted`. This machine may have fewer
/// left than the device could use: then none is enabled, and the answer says how many are possible.
fn granted(wanted: usize, mut set: impl FnMut(usize) -> io::Result<usize>) -> io::Result<usize> {
    let mut count = wanted;
    loop {
        match set(count)? {
            0 => return Ok(count),
            fewer if fewer < count => count = fewer,
            _ => return Err(io::ErrorKind::ResourceBusy.into()),
        }
    }
}

impl Interrupts {
    /// Enables the device's interrupts: `wanted` vectors of MSI-X, or as many as there are;
    /// otherwise its single message or its line; nothing if it has neither.
    pub(crate) fn new(device: BorrowedFd<'_>, wanted: usize) -> io::Result<Self> {
        for signals in [Signals::MsiX, Signals::Msi, Signals::Line] {
            let Some((index, most)) = signals.index() else { continue };
            let count = match uapi::irq_info(device, index) {
                Ok(info) if info.flags & uapi::IRQ_EVENTFD != 0 => info.count as usize,
                _ => 0,
            };
            if let count @ 1.. = count.min(wanted).min(most) {
                return Self::of(device, signals, index, count);
            }
        }
        Ok(Self::polled())
    }

    /// No interrupts.
    pub(crate) fn polled() -> Self {
        Self { signals: Signals::Polled, events: Vec::new(), masked: AtomicBool::new(false) }
    }

    fn of(device: BorrowedFd<'_>, signals: Signals, index: u32, count: usize) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = |_| rustix::event::eventfd(0, flags).map_err(io::Error::from);
        let mut events = (0..count).map(event).collect::<io::Result<Vec<_>>>()?;
        let count = granted(count, |count| uapi::set_eventfds(device, index, &events[..count]))?;
        events.truncate(count);
        Ok(Self { signals, events, masked: AtomicBool::new(false) })
    }

    /// Disables them.
    pub(crate) fn stop(&self, device: BorrowedFd<'_>) {
        if let Some((index, _)) = self.signals.index() {
            // If that fails, closing the device does it.
            let _ = uapi::clear_eventfds(device, index);
        }
    }

    pub(crate) fn signals(&self) -> Signals {
        self.signals
    }

    /// Number of vectors; the line counts as one.
    pub(crate) fn count(&self) -> usize {
        self.events.len()
    }

    /// Sleeps until one of these vectors is raised, at most for `left`; without it, for as long as
    /// it takes. Returns whether one was.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// VFIO answers a request for too many vectors with the possible number, and has then enabled
    /// none.
    #[test]
    fn fewer_vectors_are_asked_for_again() {
        let mut asked = Vec::new();
        let mut machine = |left: usize| {
            asked.clear();
            let count = granted(8, |count| {
                asked.push(count);
                Ok(if count > left { left } else { 0 })
            });
            (count.ok(), asked.clone())
        };
        assert_eq!(machine(32), (Some(8), vec![8]));
        assert_eq!(machine(3), (Some(3), vec![8, 3]));
        let odd = granted(2, |_| Ok(2));
        assert_eq!(odd.unwrap_err().kind(), io::ErrorKind::ResourceBusy, "no end");
        let refused = granted(2, |_| Err(io::ErrorKind::InvalidInput.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
