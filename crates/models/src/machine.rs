//! The inline machine: a model in the caller's own thread, under a virtual or a hybrid clock.
//!
//! Register accesses call the model directly; [`Clock::wait`] moves time from one event of the
//! model to the next. Nothing runs in between, so a run with the virtual clock is deterministic
//! to the nanosecond.
//!
//! The hybrid clock measures, in ticks, the time that software takes between two accesses. The
//! model's own computations are not host software and are left out; so is an interval longer than
//! `timeline::PREEMPTED_NANOS`: no path of a stack takes that long between two accesses, so the
//! operating system must have run something else meanwhile.

use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::fmt;

use flysch_api::machine::{
    Clock, DmaRegion, Identity, Instant, Machine, MixedRegisters, Registers, Wake,
};

mod timeline;

use timeline::Timed;
pub use timeline::Timeline;

/// The address to which modelled machines write messages; the value written is the vector to raise.
pub const MESSAGES: u64 = 0xFEE0_0000;

/// Messages that a model sends in addition to the line; by default none.
pub trait Messages {
    /// Number of interrupt vectors it can raise, at most 64; with more than one it writes messages.
    fn vectors(&self) -> u16 {
        1
    }
    /// The vectors raised by messages to [`MESSAGES`] since the last call, one bit each.
    fn take_messages(&mut self) -> u64 {
        0
    }
}

/// A device model as a machine sees it. `now` never goes backwards.
pub trait Model: Messages {
    /// Reads the register at `offset` at `now`.
    fn read32(&mut self, offset: u32, now: Instant) -> u32;
    /// Writes the register at `offset` at `now`.
    fn write32(&mut self, offset: u32, value: u32, now: Instant);
    /// Lets everything happen that is due by `now`.
    fn advance(&mut self, now: Instant);
    /// When the model next does something by itself.
    fn next_event(&self) -> Option<Instant>;
    /// The interrupt line.
    fn interrupt(&self) -> bool;
    /// Number of completions posted so far without an interrupt, because the host has masked it and
    /// polls.
    fn silent_completions(&self) -> u64;
    /// As [`Registers::device_done`].
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant>;
}

/// A model of a controller that also has registers of other widths, with one access each.
pub trait MixedModel: Model {
    /// Reads `width` bytes, 1, 2 or 8, at `offset`, which is a multiple of it.
    fn read_mixed(&mut self, offset: u32, width: u8, now: Instant) -> u64;
    /// Writes `width` bytes, 1, 2 or 8, at `offset`, which is a multiple of it.
    fn write_mixed(&mut self, offset: u32, width: u8, value: u64, now: Instant);
}

/// What makes time pass.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Discrete events: time moves only in `wait`, software takes none.
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
    /// The vectors that this handle waits for, one bit each.
    vectors: u64,
}

/// The vector that the line raises.
const LINE: u64 = 1;

struct Shared<M> {
    model: RefCell<M>,
    memory: DmaRegion,
    identity: Identity,
    timeline: Rc<Timeline>,
    /// Vectors raised by messages that nobody has waited for yet.
    raised: Cell<u64>,
    polled: Cell<Polled>,
}

/// Time that a host spent polling: waits with masked interrupts during which a completion came.
///
/// The machine wakes such a host all the same, as if it had looked at the right moment; on hardware
/// nothing wakes it, and a processor that wants to see the completion must poll all that time. A
/// host that enables its interrupts before it waits spends none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Number of such waits.
    pub waits: u64,
    /// Their total time, nanoseconds of the machine's clock.
    pub nanos: u64,
}

impl<M> Clone for Inline<M> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared), vectors: self.vectors }
    }
}

impl<M> fmt::Debug for Inline<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inline").field("timeline", &self.shared.timeline).finish_non_exhaustive()
    }
}

impl<M: Model> Inline<M> {
    /// A machine around `model`, whose DMA memory is `memory`.
    pub fn new(model: M, memory: DmaRegion, identity: Identity, mode: Mode) -> Self {
        Self::of(model, memory, identity, Timeline::new(mode))
    }

    /// A machine that shares its time with all others on `timeline`.
    pub fn on(model: M, memory: DmaRegion, identity: Identity, timeline: &Rc<Timeline>) -> Self
    where
        M: 'static,
    {
        let this = Self::of(model, memory, identity, Rc::clone(timeline));
        timeline.join(&this.shared);
        this
    }

    fn of(model: M, memory: DmaRegion, identity: Identity, timeline: Rc<Timeline>) -> Self {
        let shared = Shared {
            model: RefCell::new(model),
            memory,
            identity,
            timeline,
            raised: Cell::new(0),
            polled: Cell::new(Polled::default()),
        };
        Self { shared: Rc::new(shared), vectors: u64::MAX }
    }

    /// Time that the host has spent polling so far.
    pub fn polled(&self) -> Polled {
        self.shared.polled.get()
    }

    /// Examines the model or changes it from outside: statistics, power cuts.
    pub fn with_model<R>(&self, look: impl FnOnce(&mut M) -> R) -> R {
        look(&mut self.shared.model.borrow_mut())
    }
}

impl<M: Model> Shared<M> {
    /// Lets the model do something at the present time. Its own work takes no time.
    #[inline]
    fn enter<R>(&self, work: impl FnOnce(&mut M, Instant) -> R) -> R {
        let now = self.timeline.present();
        let result = work(&mut self.model.borrow_mut(), now);
        self.timeline.go_on();
        result
    }

    /// Whether one of `vectors` is active. Vectors raised by messages are consumed.
    fn take_interrupt(&self, model: &mut M, vectors: u64) -> bool {
        let raised = self.raised.get() | model.take_messages();
        self.raised.set(raised & !vectors);
        raised & vectors != 0 || vectors & LINE != 0 && model.interrupt()
    }
}

impl<M: Model> Timed for Shared<M> {
    fn advance(&self, now: Instant) {
        self.model.borrow_mut().advance(now);
    }

    fn next_event(&self) -> Option<Instant> {
        self.model.borrow().next_event()
    }

    fn interrupt(&self) -> bool {
        self.take_interrupt(&mut self.model.borrow_mut(), u64::MAX)
    }

    fn silent_completions(&self) -> u64 {
        self.model.borrow().silent_completions()
    }
}

impl<M: Model> Registers for Inline<M> {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.shared.enter(|model, now| model.read32(offset, now))
    }

    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        self.shared.enter(|model, now| model.write32(offset, value, now));
    }

    #[inline]
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        self.shared.model.borrow().device_done(queue, slot)
    }
}

impl<M: Model> Clock for Inline<M> {
    #[inline]
    fn now(&self) -> Instant {
        match self.shared.timeline.virtual_now() {
            Some(now) => now,
            None => self.shared.enter(|model, now| {
                model.advance(now);
                now
            }),
        }
    }

    /// Moves time to the next interrupt or to `until`. A host that has masked its interrupts and
    /// polls is also woken by every completion, with [`Wake::Deadline`]; [`Inline::polled`] reports
    /// what that would cost on hardware.
    fn wait(&self, until: Option<Instant>) -> Wake {
        let time = &self.shared.timeline;
        self.shared.enter(|model, now| {
            model.advance(now);
            let silent = model.silent_completions();
            loop {
                if self.shared.take_interrupt(model, self.vectors) {
                    return Wake::Interrupt;
                }
                if until.is_some_and(|until| until <= time.reached()) {
                    return Wake::Deadline;
                }
                if model.silent_completions() != silent {
                    let Polled { waits, nanos } = self.shared.polled.get();
                    let nanos = nanos + time.reached().nanos_since(now);
                    self.shared.polled.set(Polled { waits: waits + 1, nanos });
                    return Wake::Deadline;
                }
                let next = match (model.next_event(), until) {
                    (Some(next), Some(until)) => next.min(until),
                    (Some(at), None) | (None, Some(at)) => at,
                    (None, None) => return Wake::Idle,
                };
                model.advance(time.skip_to(next));
            }
        })
    }
}

impl<M: Model> Machine for Inline<M> {
    fn memory(&self) -> &DmaRegion {
        &self.shared.memory
    }

    fn identity(&self) -> Identity {
        self.shared.identity
    }

    fn vectors(&self) -> u16 {
        self.shared.model.borrow().vectors()
    }

    fn messages(&self) -> Option<u64> {
        (self.vectors() > 1).then_some(MESSAGES)
    }

    fn on_vector(&self, vector: u16) -> Self {
        let vectors = if self.vectors() > 1 { 1 << vector } else { self.vectors };
        Self { shared: Rc::clone(&self.shared), vectors }
    }
}

impl<M: MixedModel> MixedRegisters for Inline<M> {
    fn read8(&self, offset: u32) -> u8 {
        self.shared.enter(|model, now| model.read_mixed(offset, 1, now)) as u8
    }

    fn write8(&self, offset: u32, value: u8) {
        self.shared.enter(|model, now| model.write_mixed(offset, 1, value.into(), now));
    }

    fn read16(&self, offset: u32) -> u16 {
        self.shared.enter(|model, now| model.read_mixed(offset, 2, now)) as u16
    }

    fn write16(&self, offset: u32, value: u16) {
        self.shared.enter(|model, now| model.write_mixed(offset, 2, value.into(), now));
    }

    fn read64(&self, offset: u32) -> u64 {
        self.shared.enter(|model, now| model.read_mixed(offset, 8, now))
    }

    fn write64(&self, offset: u32, value: u64) {
        self.shared.enter(|model, now| model.write_mixed(offset, 8, value, now));
    }
}
