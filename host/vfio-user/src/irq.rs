//! Interrupts towards the client: eventfds, the level of INTx, MSI-X and its pending bits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use flysch_api::machine::Instant;
use rustix::fs::OFlags;

use crate::wire::{Errno, irq};

/// How long a line that is still high when the client unmasks it waits before it triggers again.
///
/// QEMU unmasks at the first register access after an interrupt, when the driver has read the cause
/// but not cleared it yet. Triggered at once, half of all interrupts were spurious.
const PATIENCE_NANOS: u64 = 150_000;

/// Makes a client's descriptor non-blocking: it may be anything, or full.
fn tame(descriptor: &OwnedFd) -> Result<(), Errno> {
    // No cause: the client is answered with a number.
    let flags = rustix::fs::fcntl_getfl(descriptor).map_err(|_| Errno::Invalid)?;
    // No cause: as above.
    rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK).map_err(|_| Errno::Invalid)
}

/// Signals an eventfd. One that is full has been signalled already.
fn signal(descriptor: &OwnedFd) {
    let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
}

/// The line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    trigger: Option<OwnedFd>,
    /// Signalled by the client to unmask (KVM's resample eventfd).
    unmask: Option<OwnedFd>,
    masked: bool,
    level: bool,
    /// It rose while it was masked: a new interrupt that has not been delivered.
    rose: bool,
    again: Option<Instant>,
}

impl Line {
    /// Sets the line to `level` at `now`.
    pub(crate) fn set(&mut self, level: bool, now: Instant) {
        if !level {
            (self.level, self.rose, self.again) = (false, false, None);
            return;
        }
        let rises = !std::mem::replace(&mut self.level, true);
        let is_due = self.again.is_some_and(|at| at <= now);
        if self.masked {
            self.rose |= rises;
        } else if rises || is_due {
            self.fire();
        }
    }

    fn fire(&mut self) {
        let Some(trigger) = &self.trigger else { return };
        signal(trigger);
        (self.masked, self.rose, self.again) = (true, false, None);
    }

    fn unmask(&mut self, now: Instant) {
        self.masked = false;
        if self.level && self.rose {
            self.fire();
        } else if self.level {
            self.again = Some(now.after_nanos(PATIENCE_NANOS));
        }
    }

    /// When [`set`](Self::set) has to be called even without a change.
    pub(crate) fn again(&self) -> Option<Instant> {
        self.again
    }

    /// The descriptor to wait for in addition to the socket.
    pub(crate) fn unmask_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.unmask.as_ref().map(AsFd::as_fd)
    }

    /// The client has signalled that descriptor.
    pub(crate) fn unmask_signalled(&mut self, now: Instant) {
        if let Some(descriptor) = &self.unmask {
            match rustix::io::read(descriptor, &mut [0_u8; 8]) {
                Ok(8) => self.unmask(now),
                Err(rustix::io::Errno::AGAIN) => {}
                // No eventfd, or one whose other side has gone: it would wake us for ever.
                _ => self.unmask = None,
            }
        }
    }

    /// SET_IRQS for the line. `acts` says whether the client's byte, if it sent one, is set.
    pub(crate) fn command(
        &mut self,
        flags: u32,
        acts: bool,
        descriptor: Option<OwnedFd>,
        now: Instant,
    ) -> Result<(), Errno> {
        let eventfd = flags & irq::DATA_EVENTFD != 0;
        if let Some(descriptor) = &descriptor {
            tame(descriptor)?;
        }
        match flags & (irq::MASK | irq::UNMASK | irq::TRIGGER) {
            irq::TRIGGER if eventfd => {
                self.trigger = descriptor;
                (self.masked, self.again) = (false, None);
                if self.level {
                    self.fire();
                }
            }
            irq::UNMASK if eventfd => self.unmask = descriptor,
            irq::MASK if !eventfd => self.masked |= acts,
            irq::UNMASK if !eventfd && acts => self.unmask(now),
            irq::TRIGGER if !eventfd && acts => {
                if let Some(trigger) = &self.trigger {
                    signal(trigger);
                }
            }
            irq::UNMASK | irq::TRIGGER if !eventfd => {}
            _ => return Err(Errno::Invalid),
        }
        Ok(())
    }

    /// The client no longer takes its interrupts.
    pub(crate) fn tear_down(&mut self) {
        let level = self.level;
        *self = Self { level, ..Self::default() };
    }
}

/// Vectors: messages without a level.
#[derive(Debug)]
pub(crate) struct Vectors {
    triggers: Vec<Option<OwnedFd>>,
    masked: Vec<bool>,
    pending: Vec<bool>,
}

impl Vectors {
    pub(crate) fn new(count: u16) -> Self {
        let count = usize::from(count);
        let triggers = (0..count).map(|_| None).collect();
        Self { triggers, masked: vec![false; count], pending: vec![false; count] }
    }

    /// The function raised a vector. If it cannot be delivered, it stays pending.
    pub(crate) fn raise(&mut self, vector: u16) {
        if let Some(pending) = self.pending.get_mut(usize::from(vector)) {
            *pending = true;
            self.deliver(usize::from(vector));
        }
    }

    fn deliver(&mut self, vector: usize) {
        if let Some(trigger) = &self.triggers[vector]
            && self.pending[vector]
            && !self.masked[vector]
        {
            signal(trigger);
            self.pending[vector] = false;
        }
    }

    /// SET_IRQS for the vectors from `start` on, all of which exist; `bools` and `descriptors` are
    /// empty or have one entry for each of the `count`.
    pub(crate) fn command(
        &mut self,
        flags: u32,
        (start, count): (usize, usize),
        bools: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Errno> {
        descriptors.iter().try_for_each(tame)?;
        let mut descriptors = descriptors.into_iter();
        let eventfd = flags & irq::DATA_EVENTFD != 0;
        let action = flags & (irq::MASK | irq::UNMASK | irq::TRIGGER);
        for (number, vector) in (start..start + count).enumerate() {
            let acts = bools.get(number).is_none_or(|&byte| byte != 0);
            match action {
                irq::TRIGGER if eventfd => self.triggers[vector] = descriptors.next(),
                irq::MASK if !eventfd => self.masked[vector] |= acts,
                irq::UNMASK if !eventfd => self.masked[vector] &= !acts,
                irq::TRIGGER if !eventfd => {
                    if let Some(trigger) = self.triggers[vector].as_ref().filter(|_| acts) {
                        signal(trigger);
                    }
                }
                _ => return Err(Errno::Invalid),
            }
            self.deliver(vector);
        }
        Ok(())
    }

    pub(crate) fn tear_down(&mut self) {
        self.triggers.iter_mut().for_each(|trigger| *trigger = None);
        self.masked.fill(false);
    }

    /// After a reset nothing is pending.
    pub(crate) fn reset(&mut self) {
        self.pending.fill(false);
    }

    pub(crate) fn len(&self) -> usize {
        self.triggers.len()
    }

    /// The byte of the pending bit array at `at`.
    pub(crate) fn pending_byte(&self, at: usize) -> u8 {
        let bits = self.pending.iter().skip(8 * at).take(8);
        bits.enumerate().fold(0, |byte, (bit, &pending)| byte | u8::from(pending) << bit)
    }
}
