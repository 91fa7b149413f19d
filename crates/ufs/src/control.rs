//! The control plane's state, and the primitives its procedures are made of.
//!
//! Theory. Bring-up, queries, power changes and recovery are long sequences full of waiting. They
//! are ordinary functions played by a [`Script`] over a few *primitives* that wait:
//! [`until`](Core::until), [`sleep`](Core::sleep), [`uic`](Core::uic),
//! [`exchange`](Core::exchange), [`task`](Core::task), [`lanes_obey`](Core::lanes_obey). Everything
//! else with an effect goes through a primitive, too ([`write`](Core::write),
//! [`once`](Core::once)), so that a replay does not do it twice.
//!
//! Compared with `async fn` this keeps the driver `Send` exactly when its machine is, needs no
//! pinning, no waker and no allocation per wait; compared with hand-written states it can be read.

use crate::history::{ErrorKind, ErrorLog};
use crate::host::Device;
use crate::layout::Layout;
use crate::management::{Exchange, Reply};
use crate::options::Options;
use crate::platform::{DmeSetting, Platform};
use crate::port::Lane;
use crate::power::Link;
use crate::quirks::Quirks;
pub(crate) use crate::script::Pending;
use crate::script::Script;
use crate::shared::{Shared, Signals};
use crate::task::TaskAction;
use crate::uic::UicAction;
use crate::{Cause, Error};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use flysch_api::machine::{Instant, Machine};
use flysch_wire::ufs::registers::{Cap, McqCap, Ver};

/// Why a procedure came back without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Pending,
    Failed(Error),
}

impl From<Pending> for Stop {
    fn from(_: Pending) -> Self {
        Self::Pending
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Cause> for Stop {
    fn from(cause: Cause) -> Self {
        Self::Failed(cause.into())
    }
}

/// What a primitive gives.
pub(crate) type Wait<T> = Result<T, Pending>;

/// What a procedure gives.
pub(crate) type Run<T> = Result<T, Stop>;

/// What an action answered.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a page of answers is one allocation, made once")]
pub(crate) enum Answer {
    Value(u64),
    Reply(Reply),
    Setting(Option<DmeSetting>),
    Bytes(Vec<u8>),
    Failed(Cause),
}

/// What is being waited for.
#[derive(Debug)]
pub(crate) enum Action<M: Machine> {
    /// `register & mask == value`.
    Until {
        name: &'static str,
        register: u32,
        mask: u32,
        value: u32,
        deadline: Instant,
    },
    Sleep {
        until: Instant,
    },
    Uic(UicAction),
    Exchange(Exchange),
    Task(TaskAction),
    /// Every lane obeys the standing order.
    Obey,
    /// No lane has a command in flight.
    Idle {
        deadline: Instant,
    },
    /// The task tag of the device management command.
    Tag,
    /// MCQ: the completion entry of a held command.
    Late {
        lane: usize,
        slot: usize,
        deadline: Instant,
    },
    /// MCQ: the completion entry of the device management command.
    ManagementEntry {
        deadline: Instant,
    },
    /// Something done to lane 0, at once.
    Lane(fn(&mut Lane<M>)),
}

/// How wide the queues are, settled when the registers were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) mcq: bool,
    /// Lanes, the host's own included.
    pub(crate) lanes: usize,
    /// Slots of each lane but the host's own.
    pub(crate) depth: usize,
    /// Lane 0 is the host's own and has one slot.
    pub(crate) apart: bool,
}

impl Shape {
    /// Slots of a lane.
    pub(crate) fn depth_of(&self, lane: usize) -> usize {
        if self.apart && lane == 0 { 1 } else { self.depth }
    }

    /// Task tag of a lane's first slot; in SDQ also its place in the list.
    pub(crate) fn first_tag(&self, lane: usize) -> usize {
        match (self.apart, lane) {
            (false, _) => lane * self.depth,
            (true, 0) => 0,
            (true, _) => 1 + (lane - 1) * self.depth,
        }
    }
}

/// The control owner's state, and the script it is playing.
#[derive(Debug)]
pub(crate) struct Core<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Layout,
    pub(crate) options: Options,
    pub(crate) quirks: Quirks,
    pub(crate) version: Ver,
    pub(crate) cap: Cap,
    pub(crate) mcq_cap: McqCap,
    pub(crate) shape: Shape,
    pub(crate) device: Device,
    pub(crate) link: Link,
    pub(crate) errors: ErrorLog,
    pub(crate) platform: Option<Box<dyn Platform>>,
    pub(crate) clocks_on: bool,
    /// The controller is on and its queues are.
    pub(crate) running: bool,
    /// How it tells the ends of commands.
    pub(crate) signals: Signals,
    /// The present instant, and the next one to be polled at.
    pub(crate) now: Instant,
    pub(crate) at: Instant,
    /// The wait between two looks, nanoseconds; it doubles.
    patience: u64,
    script: Script<Answer, Action<M>>,
}

/// First and longest wait between two looks at a register, nanoseconds.
const PATIENCE: (u64, u64) = (2_000, 1_000_000);
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const US: u64 = 1_000;

/// What is known before anything was written.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) options: Options,
    pub(crate) version: Ver,
    pub(crate) cap: Cap,
    pub(crate) mcq_cap: McqCap,
    pub(crate) quirks: Quirks,
    pub(crate) shape: Shape,
}

impl<M: Machine> Core<M> {
    pub(crate) fn new(machine: M, layout: Layout, shared: Arc<Shared>, facts: Facts) -> Self {
        Self {
            machine,
            shared,
            layout,
            options: facts.options,
            quirks: facts.quirks,
            version: facts.version,
            cap: facts.cap,
            mcq_cap: facts.mcq_cap,
            shape: facts.shape,
            device: Device::default(),
            link: Link::default(),
            errors: ErrorLog::default(),
            platform: None,
            clocks_on: false,
            running: false,
            signals: Signals::default(),
            now: Instant::START,
            at: Instant::NEVER,
            patience: PATIENCE.0,
            script: Script::new(),
        }
    }

    /// What it was made of.
    pub(crate) fn facts(&self) -> Facts {
        let Self { version, cap, mcq_cap, quirks, shape, .. } = *self;
        Facts { options: self.options.clone(), version, cap, mcq_cap, quirks, shape }
    }

    /// Before the procedure is run again.
    pub(crate) fn rewind(&mut self) {
        self.script.rewind();
    }

    /// What follows is a new step.
    pub(crate) fn turn_page(&mut self) {
        self.script.turn_page();
    }

    /// Gives up the procedure under way.
    pub(crate) fn drop_script(&mut self) {
        self.script.abandon();
    }

    /// Brings the action under way nearer to its answer; `false` while there is none.
    pub(crate) fn advance(&mut self, lane: &mut Lane<M>, now: Instant) -> bool {
        self.now = now;
        let Some(mut waiting) = self.script.take_wait() else { return true };
        let answer = self.try_action(&mut waiting.what, lane);
        self.script.settle(waiting, answer)
    }

    fn try_action(&mut self, action: &mut Action<M>, lane: &mut Lane<M>) -> Option<Answer> {
        match action {
            Action::Until { name, register, mask, value, deadline } => {
                let read = self.machine.read32(*register);
                if read & *mask == *value {
                    return Some(Answer::Value(read.into()));
                }
                if self.now >= *deadline {
                    return Some(Answer::Failed(Cause::Register { name, value: read }));
                }
                self.look_again(*deadline);
                None
            }
            Action::Sleep { until } => {
                self.at = *until;
                (self.now >= *until).then_some(Answer::Value(0))
            }
            Action::Uic(uic) => uic.advance(self),
            Action::Exchange(exchange) => exchange.advance(self, lane),
            Action::Task(task) => task.advance(self),
            Action::Late { lane: at, slot, deadline } => {
                lane.harvest();
                let came = self.shared.lanes[*at].is_late(*slot);
                self.give_up_at(*deadline, came)
            }
            Action::ManagementEntry { deadline } => {
                let came = lane.management_status().is_some();
                self.give_up_at(*deadline, came)
            }
            Action::Obey => {
                lane.wake(self.now);
                if self.shared.all_obey() {
                    return Some(Answer::Value(0));
                }
                self.look_again(Instant::NEVER);
                None
            }
            Action::Idle { deadline } => {
                let idle = lane.is_idle() && self.shared.others_parked();
                match self.give_up_at(*deadline, idle) {
                    Some(Answer::Failed(_)) => Some(Answer::Failed(Cause::InFlight)),
                    other => other,
                }
            }
            Action::Tag => Some(Answer::Value(lane.management_tag().into())),
            Action::Lane(act) => {
                act(lane);
                Some(Answer::Value(0))
            }
        }
    }

    fn give_up_at(&mut self, deadline: Instant, came: bool) -> Option<Answer> {
        if came {
            return Some(Answer::Value(0));
        }
        if self.now >= deadline {
            return Some(Answer::Failed(Cause::Timeout));
        }
        self.look_again(deadline);
        None
    }

    /// Asks to be polled again soon, at `deadline` at the latest.
    pub(crate) fn look_again(&mut self, deadline: Instant) {
        self.at = self.now.after_nanos(self.patience).min(deadline);
        self.patience = (self.patience * 2).min(PATIENCE.1);
    }

    /// The heart of every primitive that waits: the old answer, or a new action.
    #[track_caller]
    pub(crate) fn ask(&mut self, action: impl FnOnce(&mut Self) -> Action<M>) -> Wait<Answer> {
        if let Some(answer) = self.script.recall() {
            return Ok(answer);
        }
        self.patience = PATIENCE.0;
        let action = action(self);
        Err(self.script.wait_for(action))
    }

    /// Does something with an effect once, however often the step is run; gives what it gave then.
    #[track_caller]
    pub(crate) fn answer(&mut self, effect: impl FnOnce(&mut Self) -> Answer) -> Answer {
        if let Some(answer) = self.script.recall() {
            return answer;
        }
        let answer = effect(self);
        self.script.write_down(answer.clone());
        answer
    }

    /// As [`answer`](Self::answer), with a number for an answer.
    #[track_caller]
    pub(crate) fn once(&mut self, effect: impl FnOnce(&mut Self) -> u64) -> u64 {
        match self.answer(|core| Answer::Value(effect(core))) {
            Answer::Value(value) => value,
            _ => unreachable!("another answer where a value was written down"),
        }
    }

    /// As [`answer`](Self::answer), with nothing to tell.
    #[track_caller]
    pub(crate) fn effect(&mut self, effect: impl FnOnce(&mut Self)) {
        self.once(|core| {
            effect(core);
            0
        });
    }

    /// Keeps a word of what went wrong.
    #[track_caller]
    pub(crate) fn note(&mut self, kind: ErrorKind, value: u32) {
        self.effect(|core| core.errors.note(core.now, kind, value));
    }

    /// Writes a register, once.
    #[track_caller]
    pub(crate) fn write(&mut self, register: u32, value: u32) {
        self.once(|core| {
            core.machine.write32(register, value);
            0
        });
    }

    /// Reads a register, once.
    #[track_caller]
    pub(crate) fn read(&mut self, register: u32) -> u32 {
        self.once(|core| core.machine.read32(register).into()) as u32
    }

    /// Waits until `register & mask == value`; gives the register.
    #[track_caller]
    pub(crate) fn until(
        &mut self,
        (name, register): (&'static str, u32),
        mask: u32,
        value: u32,
        timeout_ms: u32,
    ) -> Wait<Result<u32, Cause>> {
        let timeout = u64::from(timeout_ms) * MS;
        let answer = self.ask(|core| Action::Until {
            name,
            register,
            mask,
            value,
            deadline: core.now.after_nanos(timeout),
        })?;
        Ok(number(answer).map(|value| value as u32))
    }

    /// Waits.
    #[track_caller]
    pub(crate) fn sleep(&mut self, nanos: u64) -> Wait<()> {
        self.ask(|core| Action::Sleep { until: core.now.after_nanos(nanos) })?;
        Ok(())
    }

    /// Waits until every lane obeys the standing order.
    #[track_caller]
    pub(crate) fn lanes_obey(&mut self) -> Wait<()> {
        self.ask(|_| Action::Obey)?;
        Ok(())
    }

    /// Waits until no lane has a command in flight.
    #[track_caller]
    pub(crate) fn lanes_idle(&mut self) -> Wait<Result<u64, Cause>> {
        let timeout = u64::from(self.options.timeouts.clear_ms) * MS;
        let answer = self.ask(|core| Action::Idle { deadline: core.now.after_nanos(timeout) })?;
        Ok(number(answer))
    }

    /// Does something to lane 0, once.
    #[track_caller]
    pub(crate) fn lane(&mut self, act: fn(&mut Lane<M>)) -> Wait<()> {
        self.ask(|_| Action::Lane(act))?;
        Ok(())
    }
}

/// An answer as a number.
pub(crate) fn number(answer: Answer) -> Result<u64, Cause> {
    match answer {
        Answer::Value(value) => Ok(value),
        Answer::Failed(cause) => Err(cause),
        _ => unreachable!("no number where one was asked for"),
    }
}
