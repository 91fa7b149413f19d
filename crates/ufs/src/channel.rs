//! The channel: the primitives that the procedures of the control path are made of, and what these
//! work on.
//!
//! Theory. Bring-up, queries, power changes and recovery are long sequences full of waiting. They
//! are ordinary functions run by a [script](flysch_script) over a few *primitives* that wait:
//! [`until`](Primitives::until), [`sleep`](Primitives::sleep), [`uic`](Channel::uic),
//! [`task`](Channel::task), [`lanes_obey`](Channel::lanes_obey) and the exchange of device
//! management. Everything else with an effect goes through a primitive too
//! ([`write`](Primitives::write), [`once`](Replay::once)), so that a replay does not repeat it.
//!
//! The channel is the only thing that a replay works on. What procedures find out and decide is
//! the state of other objects - the board, the queues, the link - each with the procedures that
//! need it. They are lent the channel and change what is theirs inside its primitives.
//!
//! Compared with `async fn` this keeps the driver `Send` exactly when its machine is, and needs no
//! pinning, no waker and no allocation per wait; compared with state machines written by hand it
//! can be read.

use crate::device_quirks::DeviceQuirks;
use crate::exchange::{Exchange, Place, Reply};
use crate::facts::Facts;
use crate::history::{ErrorKind, ErrorLog, ErrorRecord};
use crate::lane::Lane;
use crate::layout::Layout;
use crate::options::UfsOptions;
use crate::platform::DmeSetting;
use crate::quirks::{Correction, Quirks};
use crate::shared::Shared;
use crate::task::{self, TaskAction};
use crate::time::MS;
use crate::uic::{UicAction, UicCommand};
use crate::{Cause, UfsError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use flysch_api::machine::{Instant, Machine, Registers};
use flysch_orders::Order;
use flysch_script::{Answer, AnswerOf, Player, Primitives, Replay, Script, ScriptOf, Wait};
use flysch_wire::ufs::registers::{Cap, Interrupts, UTMRLCLR, UTMRLDBR, Ver};
use flysch_wire::ufs::uic::{UicArgument1, UicAttribute, UicOpcode};
use flysch_wire::ufs::upiu::{ServiceResponse, TaskFunction};

/// Result of a procedure.
pub(crate) type Run<T> = flysch_script::Run<T, UfsError>;

/// What is written down besides numbers: replies of the device, and what the platform said.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a page of answers is one allocation, made once")]
pub(crate) enum Told {
    Reply(Reply),
    Setting(Option<DmeSetting>),
    Quirks(Correction<DeviceQuirks>),
    Bytes(Vec<u8>),
}

/// What a procedure is waiting for, besides registers and time.
#[derive(Debug)]
pub(crate) enum Action<M: Machine> {
    Uic(UicAction),
    Exchange(Exchange),
    Task(TaskAction),
    /// Every lane has obeyed the standing order.
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
    /// Something to be done to lane 0, without a wait.
    Lane(fn(&mut Lane<M>)),
}

/// The one channel to controller, device and lanes, and the script that runs over it.
#[derive(Debug)]
pub(crate) struct Channel<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Layout,
    pub(crate) options: UfsOptions,
    pub(crate) quirks: Quirks,
    pub(crate) version: Ver,
    pub(crate) cap: Cap,
    pub(crate) errors: ErrorLog,
    pub(crate) script: ScriptOf<Self>,
}

/// The first interval between two looks, nanoseconds.
const PATIENCE: u32 = 2_000;

impl<M: Machine> Player for Channel<M> {
    type Reply = Told;
    type Cause = Cause;
    type Action = Action<M>;

    fn script(&mut self) -> &mut ScriptOf<Self> {
        &mut self.script
    }

    fn registers(&self) -> &impl Registers {
        &self.machine
    }

    /// A controller that has left the bus is found by recovery.
    fn hopeless(&self, _: &'static str, _: u32) -> Option<Cause> {
        None
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
            options: facts.options,
            quirks: facts.quirks,
            version: facts.version,
            cap: facts.cap,
            errors: ErrorLog::default(),
            script: Script::new(PATIENCE),
        }
    }

    /// Looks for the end of an action.
    pub(crate) fn attempt(
        &mut self,
        action: &mut Action<M>,
        lane: &mut Lane<M>,
    ) -> Option<AnswerOf<Self>> {
        let now = self.script.now();
        match action {
            Action::Uic(uic) => {
                let ended = uic.advance(&self.machine, now);
                self.answer_by(uic.deadline(), ended.map(|end| end.map(u64::from)))
            }
            Action::Exchange(exchange) => {
                let (machine, shared) = (&self.machine, &*self.shared);
                let at = Place { machine, shared, memory: &self.layout.management };
                match exchange.advance(&at, lane, now) {
                    Some(Ok(reply)) => Some(Answer::Reply(Told::Reply(reply))),
                    Some(Err(cause)) => Some(Answer::Failed(cause)),
                    None => self.answer_by(exchange.deadline(), None),
                }
            }
            Action::Task(task) => {
                let ended = task.advance(&self.machine, &self.layout.task_list, now);
                let number = |response: ServiceResponse| response.into_bits().into();
                self.answer_by(task.deadline(), ended.map(|end| end.map(number)))
            }
            Action::Late { lane: at, slot, deadline } => {
                lane.harvest();
                if self.shared.lanes[*at].is_late(*slot) {
                    return Some(Answer::Value(0));
                }
                self.fail_at(*deadline, Cause::Timeout)
            }
            Action::ManagementEntry { deadline } => {
                if lane.management_status().is_some() {
                    return Some(Answer::Value(0));
                }
                self.fail_at(*deadline, Cause::Timeout)
            }
            Action::Obey => {
                lane.wake(now);
                if self.shared.orders.all_obey() {
                    return Some(Answer::Value(0));
                }
                self.script.look_again(Instant::NEVER);
                None
            }
            Action::Idle { deadline } => {
                if lane.is_idle() && self.shared.orders.others_parked() {
                    return Some(Answer::Value(0));
                }
                self.fail_at(*deadline, Cause::InFlight)
            }
            Action::Tag => Some(Answer::Value(lane.management_tag().into())),
            Action::Lane(act) => {
                act(lane);
                Some(Answer::Value(0))
            }
        }
    }

    /// The answer if there is one; otherwise requests another look, at `deadline` at the latest.
    fn answer_by(
        &mut self,
        deadline: Instant,
        ended: Option<Result<u64, Cause>>,
    ) -> Option<AnswerOf<Self>> {
        if ended.is_none() {
            self.script.look_again(deadline);
        }
        ended.map(|end| end.map_or_else(Answer::Failed, Answer::Value))
    }

    /// Logs what went wrong, only once.
    #[track_caller]
    pub(crate) fn note(&mut self, kind: ErrorKind, value: u32) {
        self.effect(|channel| channel.errors.note(channel.script.now(), kind, value));
    }

    /// Logs a failure, of this bring-up step or of none, that the procedure gets over, only once.
    #[track_caller]
    pub(crate) fn keep(
        &mut self,
        kind: ErrorKind,
        value: u32,
        step: Option<&'static str>,
        cause: Cause,
    ) {
        self.effect(|channel| {
            let (at, error) = (channel.script.now(), Some(cause.into()));
            channel.errors.keep(ErrorRecord { at, kind, value, step, error });
        });
    }

    /// Waits until every lane has obeyed the standing order.
    #[track_caller]
    pub(crate) fn lanes_obey(&mut self) -> Wait<()> {
        self.ask(|_| Action::Obey)?;
        Ok(())
    }

    /// Waits until no lane has a command in flight.
    #[track_caller]
    pub(crate) fn lanes_idle(&mut self) -> Wait<Result<u64, Cause>> {
        let timeout = u64::from(self.options.timeouts.clear_ms) * MS;
        let answer = self
            .ask(|channel| Action::Idle { deadline: channel.script.now().after_nanos(timeout) })?;
        Ok(u64::try_from(answer))
    }

    /// Does something to lane 0, only once.
    #[track_caller]
    pub(crate) fn lane(&mut self, act: fn(&mut Lane<M>)) -> Wait<()> {
        self.ask(|_| Action::Lane(act))?;
        Ok(())
    }
}

/// Orders to the lanes.
impl<M: Machine> Channel<M> {
    /// Gives the lanes an order, only once.
    #[track_caller]
    pub(crate) fn order(&mut self, flags: u32) {
        self.effect(|channel| {
            channel.shared.orders.publish(flags);
        });
    }

    /// Stops the lanes from taking commands and waits until none is in flight.
    pub(crate) fn quiesce(&mut self) -> Run<()> {
        self.order(Order::PAUSE);
        self.lanes_obey()?;
        if let Err(cause) = self.lanes_idle()? {
            self.order(0);
            return Err(cause.into());
        }
        Ok(())
    }

    /// Reports that the controller cannot be trusted any more before it has been reset.
    pub(crate) fn ask_for_reset(&self) {
        let fatal = Interrupts::new().with_hcfes(true);
        self.shared.orders.report(fatal.into_bits());
    }
}

/// Link commands.
impl<M: Machine> Channel<M> {
    /// Sends a UIC command and waits for its effect; returns the attribute value.
    #[track_caller]
    pub(crate) fn uic(&mut self, command: UicCommand) -> Wait<Result<u32, Cause>> {
        let timeout = u64::from(self.options.timeouts.uic_ms) * MS;
        let answer = self.ask(|channel| {
            let deadline = channel.script.now().after_nanos(timeout);
            Action::Uic(UicAction::new(command, deadline))
        })?;
        Ok(u64::try_from(answer).map(|value| value as u32))
    }

    /// Reads an attribute of this end of the link.
    #[track_caller]
    pub(crate) fn dme_get(&mut self, attribute: UicAttribute) -> Wait<Result<u32, Cause>> {
        self.uic(UicCommand::attribute(UicOpcode::DmeGet, attribute, 0))
    }

    /// Reads an attribute of the device's end of the link.
    #[track_caller]
    pub(crate) fn dme_peer_get(&mut self, attribute: UicAttribute) -> Wait<Result<u32, Cause>> {
        self.uic(UicCommand::attribute(UicOpcode::DmePeerGet, attribute, 0))
    }

    /// Writes an attribute of this end of the link.
    #[track_caller]
    pub(crate) fn dme_set(
        &mut self,
        attribute: UicAttribute,
        value: u32,
    ) -> Wait<Result<u32, Cause>> {
        self.uic(UicCommand::attribute(UicOpcode::DmeSet, attribute, value))
    }

    /// Writes an attribute of the device's end of the link.
    #[track_caller]
    pub(crate) fn dme_peer_set(
        &mut self,
        attribute: UicAttribute,
        value: u32,
    ) -> Wait<Result<u32, Cause>> {
        self.uic(UicCommand::attribute(UicOpcode::DmePeerSet, attribute, value))
    }

    /// Writes an attribute as a platform wants it: with a selector, of either end.
    #[track_caller]
    pub(crate) fn set_attribute(&mut self, setting: DmeSetting) -> Wait<Result<u32, Cause>> {
        let argument = UicArgument1::new()
            .with_mib_attribute(setting.attribute)
            .with_gen_selector_index(setting.selector);
        self.uic(UicCommand {
            opcode: if setting.peer { UicOpcode::DmePeerSet } else { UicOpcode::DmeSet },
            argument1: argument.into_bits(),
            value: setting.value,
        })
    }
}

/// Task management.
impl<M: Machine> Channel<M> {
    /// Sends a task management request; returns the device's service response. A request that is
    /// not answered is cleared.
    pub(crate) fn task(
        &mut self,
        function: TaskFunction,
        lun: u8,
        tag: u8,
    ) -> Run<Result<ServiceResponse, Cause>> {
        let timeout = u64::from(self.options.timeouts.task_ms) * MS;
        let answer = self.ask(|channel| {
            let deadline = channel.script.now().after_nanos(timeout);
            Action::Task(TaskAction::new(function, lun, tag, deadline))
        })?;
        match u64::try_from(answer) {
            Ok(response) => Ok(Ok(ServiceResponse::from_bits(response as u8))),
            Err(cause @ Cause::TaskTimeout(_)) => {
                self.write(UTMRLCLR, !task::SLOT);
                let clear_ms = self.options.timeouts.clear_ms;
                // A slot that cannot be cleared is left to the host reset that follows.
                let _ = self.until(("UTMRLDBR", UTMRLDBR), task::SLOT, 0, clear_ms)?;
                Ok(Err(cause))
            }
            Err(cause) => Ok(Err(cause)),
        }
    }

    /// Sends a function that ends commands; an error unless the device says that it has ended them.
    pub(crate) fn task_done(
        &mut self,
        function: TaskFunction,
        lun: u8,
        tag: u8,
    ) -> Run<Result<(), Cause>> {
        Ok(match self.task(function, lun, tag)? {
            Ok(ServiceResponse::FunctionComplete | ServiceResponse::FunctionSucceeded) => Ok(()),
            Ok(response) => Err(Cause::Task(response)),
            Err(cause) => Err(cause),
        })
    }
}
