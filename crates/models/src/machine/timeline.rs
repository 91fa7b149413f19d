//! The time of modelled machines: one machine's alone, or that of several.
//!
//! If one of several machines waits alone, as a driver does at bring-up, time passes for all; the
//! others catch up when they are next looked at. A driver of all of them waits on the timeline
//! itself, which moves time to the first event anywhere.

use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;

use flysch_api::machine::{Clock, Instant, Wake};

use super::Mode;

/// Longest time that software takes between two accesses of the machine, nanoseconds; after more,
/// it must have been preempted.
const PREEMPTED_NANOS: u64 = 50_000;

/// A machine on a timeline.
pub(super) trait Timed {
    /// Lets everything happen that is due by `now`.
    fn advance(&self, now: Instant);
    /// When it next does something by itself.
    fn next_event(&self) -> Option<Instant>;
    /// Whether any of its interrupts is active. Vectors raised by messages are consumed.
    fn interrupt(&self) -> bool;
    /// As [`Model::silent_completions`](super::Model::silent_completions).
    fn silent_completions(&self) -> u64;
}

/// The clock of modelled machines.
pub struct Timeline {
    mode: Mode,
    now: Cell<Instant>,
    /// Hybrid clock: the ticks when software last began to run.
    since: Cell<u64>,
    machines: RefCell<Vec<Weak<dyn Timed>>>,
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeline")
            .field("mode", &self.mode)
            .field("now", &self.now.get())
            .finish_non_exhaustive()
    }
}

impl Timeline {
    /// A clock that starts now.
    #[must_use]
    pub fn new(mode: Mode) -> Rc<Self> {
        let since = match mode {
            Mode::Virtual => 0,
            Mode::Hybrid { ticks } => ticks(),
        };
        let (now, since) = (Cell::new(Instant::START), Cell::new(since));
        Rc::new(Self { mode, now, since, machines: RefCell::default() })
    }

    /// Adds a machine to the timeline.
    pub(super) fn join<T: Timed + 'static>(&self, machine: &Rc<T>) {
        let machine: Weak<T> = Rc::downgrade(machine);
        self.machines.borrow_mut().push(machine);
    }

    /// The present, with the software time since the last access.
    #[inline]
    pub(super) fn present(&self) -> Instant {
        if let Mode::Hybrid { ticks } = self.mode {
            let ticks = ticks();
            let software = ticks.wrapping_sub(self.since.replace(ticks));
            if software < PREEMPTED_NANOS {
                self.now.set(self.now.get().after_nanos(software));
            }
        }
        self.now.get()
    }

    /// Software runs again: the interval was the machine's own work, which takes no time.
    #[inline]
    pub(super) fn go_on(&self) {
        if let Mode::Hybrid { ticks } = self.mode {
            self.since.set(ticks());
        }
    }

    /// The present, if software takes no time: nothing can be due then.
    #[inline]
    pub(super) fn virtual_now(&self) -> Option<Instant> {
        matches!(self.mode, Mode::Virtual).then(|| self.now.get())
    }

    /// The present as of the last call.
    #[inline]
    pub(super) fn reached(&self) -> Instant {
        self.now.get()
    }

    /// Advances to `next`, unless it is already later.
    #[inline]
    pub(super) fn skip_to(&self, next: Instant) -> Instant {
        self.now.set(next.max(self.now.get()));
        self.now.get()
    }

    /// Calls `act` with every machine that still exists.
    fn each(&self, mut act: impl FnMut(&dyn Timed)) {
        for machine in self.machines.borrow().iter().filter_map(Weak::upgrade) {
            act(&*machine);
        }
    }

    /// Lets everything happen that is due, on every machine.
    fn catch_up(&self, now: Instant) {
        self.each(|machine| {
            if machine.next_event().is_some_and(|next| next <= now) {
                machine.advance(now);
            }
        });
    }

    /// Number of completions of all machines that raised no interrupt.
    fn silent(&self) -> u64 {
        let mut all = 0_u64;
        self.each(|machine| all = all.wrapping_add(machine.silent_completions()));
        all
    }

    /// Moves time to the next interrupt of any machine, or to `until`.
    fn wait_for_any(&self, until: Option<Instant>) -> Wake {
        self.catch_up(self.present());
        let silent = self.silent();
        loop {
            let mut interrupted = false;
            // All of them are asked: a vector raised by a message must not be reported twice.
            self.each(|machine| interrupted |= machine.interrupt());
            if interrupted {
                return Wake::Interrupt;
            }
            if until.is_some_and(|until| until <= self.now.get()) || self.silent() != silent {
                return Wake::Deadline;
            }
            let mut next = until;
            self.each(|machine| {
                next = [next, machine.next_event()].into_iter().flatten().min();
            });
            let Some(next) = next else { return Wake::Idle };
            self.catch_up(self.skip_to(next));
        }
    }
}

impl Clock for Timeline {
    #[inline]
    fn now(&self) -> Instant {
        let now = self.present();
        if matches!(self.mode, Mode::Hybrid { .. }) {
            self.catch_up(now);
            self.go_on();
        }
        now
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        let wake = self.wait_for_any(until);
        self.go_on();
        wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Inline, Messages, Model};
    use flysch_api::machine::{DmaRegion, Identity, Registers};

    /// Raises its line some time after it was written to.
    struct Alarm {
        at: Option<Instant>,
        is_up: bool,
    }

    impl Messages for Alarm {}

    impl Model for Alarm {
        fn read32(&mut self, _: u32, _: Instant) -> u32 {
            core::mem::take(&mut self.is_up).into()
        }
        fn write32(&mut self, _: u32, value: u32, now: Instant) {
            self.at = Some(now.after_nanos(value.into()));
        }
        fn advance(&mut self, now: Instant) {
            if self.at.is_some_and(|at| at <= now) {
                (self.at, self.is_up) = (None, true);
            }
        }
        fn next_event(&self) -> Option<Instant> {
            self.at
        }
        fn interrupt(&self) -> bool {
            self.is_up
        }
        fn silent_completions(&self) -> u64 {
            0
        }
        fn device_done(&self, _: u16, _: u16) -> Option<Instant> {
            None
        }
    }

    #[test]
    fn time_of_several_machines_goes_to_whatever_is_first() {
        let timeline = Timeline::new(Mode::Virtual);
        let memory = DmaRegion::zeroed(4096, 0);
        let alarm = || {
            let model = Alarm { at: None, is_up: false };
            Inline::on(model, memory.clone(), Identity::default(), &timeline)
        };
        let (one, other) = (alarm(), alarm());
        one.write32(0, 300);
        other.write32(0, 100);
        assert_eq!(timeline.wait(None), Wake::Interrupt);
        assert_eq!((timeline.now().nanos(), other.read32(0), one.read32(0)), (100, 1, 0));
        assert_eq!(timeline.wait(Some(Instant::from_nanos(200))), Wake::Deadline);
        // A machine that waits alone moves time for all, and the others catch up.
        other.write32(0, 500);
        assert_eq!((other.wait(None), other.read32(0)), (Wake::Interrupt, 1));
        assert_eq!(timeline.now().nanos(), 700);
        assert_eq!((timeline.wait(None), one.read32(0)), (Wake::Interrupt, 1));
        assert_eq!((timeline.wait(None), timeline.now().nanos()), (Wake::Idle, 700));
    }
}
