//! The channel: the primitives that the procedures of the control path are made of, and what these
//! work on.
//!
//! Theory. Bring-up, operations and recovery are long sequences full of waiting. They are ordinary
//! functions run by a [script](flysch_script) over a few *primitives* that wait:
//! [`until`](Primitives::until), [`sleep`](Primitives::sleep), [`send`](Channel::send),
//! [`lanes_obey`](Channel::lanes_obey). Everything else with an effect goes through a primitive too
//! ([`write`](Primitives::write), [`once`](Replay::once)), so that a replay does not repeat it.
//!
//! The channel is the only thing that a replay works on. What procedures find out and decide is
//! the state of other objects - the card, its speed, the queueing engine - each with the procedures
//! that need it. They are lent the channel and change what is theirs inside its primitives.

use crate::bus::{Bus, Reply, Request};
use crate::error::BusError;
use crate::history::{ErrorKind, ErrorLog};
use crate::lane::{Engine, Lane};
use crate::layout::Layout;
use crate::options::EmmcOptions;
use crate::plain::Plain;
use crate::quirks::HostQuirks;
use crate::shared::{Shared, cause};
use crate::{Cause, EmmcError};
use alloc::sync::Arc;
use flysch_api::machine::{Instant, Machine, Registers};
use flysch_script::{Answer, AnswerOf, Player, Primitives, Replay, Script, ScriptOf, Wait};
use flysch_wire::mmc::cqhci::{CQIS, CQTDBR, Cqis};
use flysch_wire::mmc::sdhci::{Capabilities, Interrupts, PRESENT, Present, STATUS};

/// Result of a procedure.
pub(crate) type Run<T> = flysch_script::Run<T, EmmcError>;

/// What a procedure is waiting for, besides registers and time.
#[derive(Debug)]
pub(crate) enum Action {
    /// A command on the bus.
    Send { request: Request, begun: bool, deadline: Instant },
    /// Every lane has obeyed the standing order.
    Obey,
    /// No lane has a command in flight; with `quiet`, outcomes may still have to be fetched.
    Idle { deadline: Instant, quiet: bool },
    /// The engine has no task left, or something has to be recovered first.
    Drained { deadline: Instant },
}

/// The result of waiting until the engine has no tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// It has none.
    Yes,
    /// It still had some at the deadline.
    Late,
    /// A task failed or is overdue: recovery comes first.
    Disturbed,
}

/// What is known before anything was written.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) options: EmmcOptions,
    pub(crate) version: u8,
    pub(crate) capabilities: Capabilities,
    pub(crate) quirks: HostQuirks,
    pub(crate) engine: Engine,
}

/// The one channel to controller, card and lanes, and the script that runs over it.
#[derive(Debug)]
pub(crate) struct Channel<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Layout,
    pub(crate) options: EmmcOptions,
    pub(crate) quirks: HostQuirks,
    pub(crate) version: u8,
    pub(crate) capabilities: Capabilities,
    pub(crate) engine: Engine,
    pub(crate) bus: Bus,
    pub(crate) plain: Plain,
    pub(crate) errors: ErrorLog,
    pub(crate) script: ScriptOf<Self>,
}

/// The first interval between two looks, nanoseconds.
const PATIENCE: u32 = 4_000;
/// Interval between two looks at a command on the bus if there is no interrupt, nanoseconds.
const COMMAND_NANOS: u64 = 1_000_000;
pub(crate) const MS: u64 = 1_000_000;

impl<M: Machine> Player for Channel<M> {
    type Reply = Reply;
    type Cause = Cause;
    type Action = Action;

    fn script(&mut self) -> &mut ScriptOf<Self> {
        &mut self.script
    }

    fn registers(&self) -> &impl Registers {
        &self.machine
    }

    fn hopeless(&self, _: &'static str, value: u32) -> Option<Cause> {
        if value != u32::MAX {
            return None;
        }
        self.shared.orders.report(cause::REMOVED);
        Some(Cause::Removed)
    }

    fn overdue(name: &'static str, value: u32) -> Cause {
        Cause::Register { name, value }
    }
}

impl<M: Machine> Channel<M> {
    pub(crate) fn new(machine: M, layout: Layout, shared: Arc<Shared>, facts: Facts) -> Self {
        Self {
            machine,
            shared,
            layout,
            bus: Bus::new(facts.engine.format),
            plain: Plain::new(),
            options: facts.options,
            quirks: facts.quirks,
            version: facts.version,
            capabilities: facts.capabilities,
            engine: facts.engine,
            errors: ErrorLog::default(),
            script: Script::new(PATIENCE),
        }
    }

    /// Abandons the current procedure.
    pub(crate) fn drop_script(&mut self) {
        self.script.abandon();
        if self.plain.failed.is_some() {
            self.bus.forget();
        }
    }

    /// Looks for the end of an action.
    pub(crate) fn attempt(
        &mut self,
        action: &mut Action,
        lane: &mut Lane<M>,
    ) -> Option<AnswerOf<Self>> {
        match action {
            Action::Send { request, begun, deadline } => {
                let reply = self.try_send(request, begun, *deadline)?;
                Some(Answer::Reply(reply))
            }
            Action::Obey => {
                lane.wake(self.script.now());
                if self.shared.orders.all_obey() {
                    return Some(Answer::Value(0));
                }
                self.script.look_again(Instant::NEVER);
                None
            }
            Action::Idle { deadline, quiet } => {
                let mine = if *quiet { lane.is_quiet() } else { lane.is_idle() };
                if mine && self.shared.orders.others_parked() {
                    return Some(Answer::Value(0));
                }
                self.fail_at(*deadline, Cause::InFlight)
            }
            Action::Drained { deadline } => self.try_drained(*deadline),
        }
    }

    /// While the lanes pause, the host looks for errors and learns of overdue tasks.
    fn try_drained(&mut self, deadline: Instant) -> Option<AnswerOf<Self>> {
        let left = self.machine.read32(self.engine.base.unwrap_or(0) + CQTDBR);
        if left == u32::MAX && self.machine.read32(PRESENT) == u32::MAX {
            self.shared.orders.report(cause::REMOVED);
            return Some(Answer::Failed(Cause::Removed));
        }
        if self.has_failed() {
            self.shared.orders.report(cause::ERROR);
            return Some(Answer::Value(Drained::Disturbed as u64));
        }
        if left == 0 {
            return Some(Answer::Value(Drained::Yes as u64));
        }
        if self.shared.victims() != 0 {
            return Some(Answer::Value(Drained::Disturbed as u64));
        }
        if self.script.now() >= deadline {
            return Some(Answer::Value(Drained::Late as u64));
        }
        self.script.look_again(deadline);
        None
    }

    /// Whether there is an error of the engine or its bus that has not been dealt with.
    pub(crate) fn has_failed(&self) -> bool {
        let base = self.engine.base.unwrap_or(0);
        self.machine.read32(STATUS) & Interrupts::ERRORS != 0
            || Cqis::from_bits(self.machine.read32(base + CQIS)).response_error()
    }

    fn try_send(
        &mut self,
        request: &Request,
        begun: &mut bool,
        deadline: Instant,
    ) -> Option<Reply> {
        let late = self.script.now() >= deadline;
        if !*begun {
            if !self.bus.is_free(&self.machine, request) {
                if late {
                    return Some(Err(BusError::SILENT));
                }
                self.script.look_again(deadline);
                return None;
            }
            self.bus.begin(&self.machine, *request, &self.layout.table);
            *begun = true;
        }
        let places = (&self.layout.table, self.machine.memory());
        match self.bus.look(&self.machine, places) {
            None if late => {
                self.bus.forget();
                Some(Err(BusError::SILENT))
            }
            None => {
                if self.options.interrupts {
                    let at = self.script.now().after_nanos(COMMAND_NANOS);
                    self.script.look_at(at.min(deadline));
                } else {
                    self.script.look_again(deadline);
                }
                None
            }
            reply => reply,
        }
    }

    /// Changes a register, only once.
    #[track_caller]
    pub(crate) fn modify(&mut self, register: u32, change: impl FnOnce(u32) -> u32) {
        self.effect(|channel| {
            let value = channel.machine.read32(register);
            channel.machine.write32(register, change(value));
        });
    }

    /// Waits until the card releases DAT0; `false` if it did not in time.
    #[track_caller]
    pub(crate) fn until_not_busy(&mut self, deadline: Option<Instant>, ms: u32) -> Wait<bool> {
        let released = Present::new().with_data(1).into_bits();
        let until = self.script.now().after_nanos(u64::from(ms) * MS);
        let deadline = deadline.unwrap_or(until);
        let reached = self.until_deadline(("PRESENT", PRESENT), released, released, deadline)?;
        Ok(reached.is_ok())
    }

    /// Waits until the engine has no task left.
    #[track_caller]
    pub(crate) fn until_drained(
        &mut self,
        deadline: Option<Instant>,
    ) -> Wait<Result<Drained, Cause>> {
        let timeout = u64::from(self.options.timeouts.quiet_ms) * MS;
        let answer = self.ask(|channel| Action::Drained {
            deadline: deadline.unwrap_or(channel.script.now().after_nanos(timeout)),
        })?;
        Ok(u64::try_from(answer).map(|value| match value {
            0 => Drained::Yes,
            1 => Drained::Late,
            _ => Drained::Disturbed,
        }))
    }

    /// Sends a command and waits for its end, good or bad.
    #[track_caller]
    pub(crate) fn send(&mut self, request: Request, timeout_ms: u32) -> Wait<Reply> {
        let answer = self.ask(|channel| Action::Send {
            request,
            begun: false,
            deadline: channel.script.now().after_nanos(u64::from(timeout_ms) * MS),
        })?;
        match answer.reply() {
            Ok(reply) => Ok(reply),
            Err(_) => unreachable!("a command has a reply"),
        }
    }

    /// Waits until every lane has obeyed the standing order.
    #[track_caller]
    pub(crate) fn lanes_obey(&mut self) -> Wait<()> {
        self.ask(|_| Action::Obey)?;
        Ok(())
    }

    /// Waits until no lane has a command in flight. With `quiet`, outcomes of the host's own lane
    /// may still have to be fetched.
    #[track_caller]
    pub(crate) fn lanes_idle(&mut self, quiet: bool) -> Wait<Result<(), Cause>> {
        let timeout = u64::from(self.options.timeouts.quiet_ms) * MS;
        let deadline = |channel: &Self| channel.script.now().after_nanos(timeout);
        let answer = self.ask(|channel| Action::Idle { deadline: deadline(channel), quiet })?;
        Ok(u64::try_from(answer).map(|_| ()))
    }

    /// Gives the lanes an order, only once.
    #[track_caller]
    pub(crate) fn order(&mut self, flags: u32) {
        self.effect(|channel| channel.shared.orders.publish(flags));
    }

    /// Logs what went wrong, only once.
    #[track_caller]
    pub(crate) fn note(&mut self, kind: ErrorKind, value: u32) {
        self.effect(|channel| channel.errors.note(channel.script.now(), kind, value));
    }
}
