//! The inline machine: a model in the caller's own thread, under a virtual or a hybrid clock.
//!
//! Register accesses call the model directly; [`Clock::wait`] moves time from one event of the
//! model to the next. Nothing runs in between, so a run with the virtual clock is deterministic
//! to the nanosecond.

use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::fmt;

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine, Registers, Wake};

/// A device model as a machine sees it. `now` never goes back.
pub trait Model {
    /// Reads the register at `offset` at `now`.
    fn read32(&mut self, offset: u32, now: Instant) -> u32;
    /// Writes the register at `offset` at `now`.
    fn write32(&mut self, offset: u32, value: u32, now: Instant);
    /// Lets everything happen that is due until `now`.
    fn advance(&mut self, now: Instant);
    /// When the next thing happens by itself.
    fn next_event(&self) -> Option<Instant>;
    /// The interrupt line.
    fn interrupt(&self) -> bool;
    /// Completions posted so far that raised no interrupt because the host has masked it and
    /// polls.
    fn silent_completions(&self) -> u64;
    /// As [`Registers::device_done`].
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant>;
}

/// What makes time pass.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Discrete events: time moves only in `wait`, software costs nothing.
    Virtual,
    /// Software time is measured, idle time is skipped.
    Hybrid {
        /// Nanoseconds of a monotonic clock.
        ticks: fn() -> u64,
    },
}

/// A model with its memory and its clock. Clones are handles to the same machine.
pub struct Inline<M> {
    shared: Rc<Shared<M>>,
}

struct Shared<M> {
    model: RefCell<M>,
    memory: DmaRegion,
    identity: Identity,
    mode: Mode,
    now: Cell<Instant>,
    /// Hybrid: idle time skipped so far minus the ticks at the start.
    skipped: Cell<u64>,
}

impl<M> Clone for Inline<M> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared) }
    }
}

impl<M> fmt::Debug for Inline<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inline")
            .field("mode", &self.shared.mode)
            .field("now", &self.shared.now.get())
            .finish_non_exhaustive()
    }
}

impl<M: Model> Inline<M> {
    /// A machine around `model`, whose DMA memory is `memory`.
    pub fn new(model: M, memory: DmaRegion, identity: Identity, mode: Mode) -> Self {
        let skipped = match mode {
            Mode::Virtual => 0,
            Mode::Hybrid { ticks } => 0_u64.wrapping_sub(ticks()),
        };
        let shared = Shared {
            model: RefCell::new(model),
            memory,
            identity,
            mode,
            now: Cell::new(Instant::START),
            skipped: Cell::new(skipped),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Looks at the model or changes it from outside: statistics, power cuts.
    pub fn with_model<R>(&self, look: impl FnOnce(&mut M) -> R) -> R {
        look(&mut self.shared.model.borrow_mut())
    }
}

impl<M: Model> Shared<M> {
    /// The present, from the ticks where software time counts.
    #[inline]
    fn present(&self) -> Instant {
        if let Mode::Hybrid { ticks } = self.mode {
            let now = Instant::from_nanos(ticks().wrapping_add(self.skipped.get()));
            self.now.set(now.max(self.now.get()));
        }
        self.now.get()
    }

    /// Skips idle time until `to`.
    fn skip(&self, to: Instant) {
        let ahead = to.nanos_since(self.now.get());
        self.skipped.set(self.skipped.get().wrapping_add(ahead));
        self.now.set(self.now.get().max(to));
    }
}

impl<M: Model> Registers for Inline<M> {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.shared.model.borrow_mut().read32(offset, self.shared.now.get())
    }

    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        // A write may be a doorbell: it happens when the software gets to it.
        let now = self.shared.present();
        self.shared.model.borrow_mut().write32(offset, value, now);
    }

    #[inline]
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        self.shared.model.borrow().device_done(queue, slot)
    }
}

impl<M: Model> Clock for Inline<M> {
    #[inline]
    fn now(&self) -> Instant {
        let now = self.shared.present();
        if let Mode::Hybrid { .. } = self.shared.mode {
            self.shared.model.borrow_mut().advance(now);
        }
        now
    }

    /// Moves time to the next interrupt or to `until`. A host that has masked its interrupts and
    /// polls is also woken, with [`Wake::Deadline`], by every completion.
    fn wait(&self, until: Option<Instant>) -> Wake {
        let model = &mut *self.shared.model.borrow_mut();
        model.advance(self.shared.present());
        let silent = model.silent_completions();
        loop {
            if model.interrupt() {
                return Wake::Interrupt;
            }
            if until.is_some_and(|until| until <= self.shared.now.get()) {
                return Wake::Deadline;
            }
            if model.silent_completions() != silent {
                return Wake::Deadline;
            }
            let next = match (model.next_event(), until) {
                (Some(next), Some(until)) => next.min(until),
                (Some(at), None) | (None, Some(at)) => at,
                (None, None) => return Wake::Idle,
            };
            self.shared.skip(next);
            model.advance(self.shared.now.get());
        }
    }
}

impl<M: Model> Machine for Inline<M> {
    fn memory(&self) -> &DmaRegion {
        &self.shared.memory
    }

    fn identity(&self) -> Identity {
        self.shared.identity
    }
}
