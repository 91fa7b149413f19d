//! The channel: the primitives that the procedures of the control path are made of, and what these
//! work on.
//!
//! Theory. Bring-up, admin commands and recovery are long sequences full of waiting. They are
//! ordinary functions run by a [script](flysch_script) over a few *primitives* that wait:
//! [`until`](Primitives::until), [`sleep`](Primitives::sleep), [`command`](Channel::command),
//! [`lanes_obey`](Channel::lanes_obey). Everything else with an effect goes through a primitive too
//! ([`write`](Primitives::write), [`once`](Replay::once)), so that a replay does not repeat it.
//!
//! The channel is the only thing that a replay works on. What procedures find out and decide is
//! the state of other objects - the device, whether the controller is enabled - each with the
//! procedures that need it. They are lent the channel and change what is theirs inside its
//! primitives.

use crate::admin::{Admin, Exchange};
use crate::facts::Facts;
use crate::history::{ErrorKind, ErrorLog};
use crate::lane::Lane;
use crate::layout::Layout;
use crate::options::NvmeOptions;
use crate::quirks::Quirks;
use crate::shared::{Shared, cause};
use crate::time::MS;
use crate::{Cause, NvmeError};
use alloc::sync::Arc;
use flysch_api::command::NvmeStatus;
use flysch_api::machine::{Instant, Machine, Registers};
use flysch_script::{Answer, AnswerOf, Player, Replay, Script, ScriptOf, Wait};
use flysch_wire::nvme::registers::{CRTO, CSTS, Cap, Crto, Csts, TIMEOUT_UNIT_MS, Version};
use flysch_wire::nvme::{AdminOpcode, Sqe, Status};

/// Result of a procedure.
pub(crate) type Run<T> = flysch_script::Run<T, NvmeError>;

/// What a procedure waits for, besides registers and time.
#[derive(Debug)]
pub(crate) enum Action {
    Admin(Exchange),
    /// Every lane has obeyed the standing order.
    Obey,
    /// No lane has a command in flight.
    Idle {
        deadline: Instant,
    },
    /// Every overdue command has ended.
    NoVictims {
        deadline: Instant,
    },
}

/// The one channel to controller and lanes, and the script that runs over it.
#[derive(Debug)]
pub(crate) struct Channel<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Layout,
    pub(crate) options: NvmeOptions,
    pub(crate) quirks: Quirks,
    pub(crate) version: Version,
    pub(crate) cap: Cap,
    pub(crate) admin: Admin,
    pub(crate) errors: ErrorLog,
    pub(crate) script: ScriptOf<Self>,
}

/// The first interval between two looks, nanoseconds.
const PATIENCE: u32 = 2_000;

impl<M: Machine> Player for Channel<M> {
    type Reply = NvmeStatus;
    type Cause = Cause;
    type Action = Action;

    fn script(&mut self) -> &mut ScriptOf<Self> {
        &mut self.script
    }

    fn registers(&self) -> &impl Registers {
        &self.machine
    }

    fn hopeless(&self, _: &'static str, value: u32) -> Option<Cause> {
        (value == u32::MAX).then_some(Cause::Removed)
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
            admin: Admin::new(&layout, facts.cap.dstrd()),
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
        action: &mut Action,
        lane: &mut Lane<M>,
    ) -> Option<AnswerOf<Self>> {
        match action {
            Action::Admin(exchange) => self.try_exchange(exchange),
            Action::Obey => {
                lane.wake(self.script.now());
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
            Action::NoVictims { deadline } => {
                lane.harvest();
                let lost = self.is_lost();
                if !self.shared.has_victims() {
                    return Some(Answer::Value(0));
                }
                if let Some(cause) = lost {
                    return Some(Answer::Failed(cause));
                }
                self.fail_at(*deadline, Cause::NotAborted)
            }
        }
    }

    fn try_exchange(&mut self, exchange: &mut Exchange) -> Option<AnswerOf<Self>> {
        let now = self.script.now();
        let (cid, deadline) = *exchange.issued.get_or_insert_with(|| {
            let cid = self.admin.issue(exchange.entry, &self.machine);
            (cid, now.after_nanos(u64::from(exchange.timeout_ms) * MS))
        });
        self.admin.harvest(&self.machine);
        if let Some(done) = self.admin.answer_to(cid) {
            let (status, result) = (done.status(), done.result);
            return Some(Answer::Reply(NvmeStatus { status, result }));
        }
        if let Some(cause) = self.is_lost() {
            return Some(Answer::Failed(cause));
        }
        if now >= deadline {
            let opcode = exchange.entry.opcode;
            self.errors.note(now, ErrorKind::AdminTimeout, opcode.into());
            self.shared.orders.report(cause::LOST);
            return Some(Answer::Failed(Cause::Timeout(AdminOpcode::from_bits(opcode))));
        }
        self.script.look_again(deadline);
        None
    }

    /// Why nothing can be expected of the controller any more, if that is so.
    pub(crate) fn is_lost(&self) -> Option<Cause> {
        match self.machine.read32(CSTS) {
            u32::MAX => {
                self.shared.orders.report(cause::REMOVED);
                Some(Cause::Removed)
            }
            status if Csts::from_bits(status).cfs() => {
                self.shared.orders.report(cause::FATAL);
                Some(Cause::Fatal)
            }
            _ => None,
        }
    }

    /// How long CSTS.RDY may take to follow CC.EN, milliseconds.
    pub(crate) fn ready_ms(&self) -> u32 {
        let crto = match self.cap.crwms() {
            true => Crto::from_bits(self.machine.read32(CRTO)).crwmt(),
            false => 0,
        };
        // One unit more: the first may have been cut short.
        (u32::from(crto.max(self.cap.to().into())) + 1) * TIMEOUT_UNIT_MS
    }

    /// Logs what went wrong, only once.
    #[track_caller]
    pub(crate) fn note(&mut self, kind: ErrorKind, value: u32) {
        self.effect(|channel| channel.errors.note(channel.script.now(), kind, value));
    }

    /// Writes a 64-bit register as two of 32 bits, only once.
    #[track_caller]
    pub(crate) fn write_wide(&mut self, register: u32, value: u64) {
        self.effect(|channel| {
            channel.machine.write32(register, value as u32);
            channel.machine.write32(register + 4, (value >> 32) as u32);
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
        let deadline = self.abort_deadline();
        Ok(u64::try_from(self.ask(|_| Action::Idle { deadline })?))
    }

    /// Waits until every overdue command has ended.
    #[track_caller]
    pub(crate) fn no_victims(&mut self) -> Wait<Result<u64, Cause>> {
        let deadline = self.abort_deadline();
        Ok(u64::try_from(self.ask(|_| Action::NoVictims { deadline })?))
    }

    fn abort_deadline(&self) -> Instant {
        self.script.now().after_nanos(u64::from(self.options.timeouts.abort_ms) * MS)
    }

    /// Gives the lanes an order, only once.
    #[track_caller]
    pub(crate) fn order(&mut self, flags: u32) {
        self.effect(|channel| channel.shared.orders.publish(flags));
    }
}

/// Admin commands.
impl<M: Machine> Channel<M> {
    /// Runs an admin command to its end, whatever its status.
    #[track_caller]
    pub(crate) fn command(&mut self, entry: Sqe, timeout_ms: Option<u32>) -> Run<NvmeStatus> {
        let timeout_ms = timeout_ms.unwrap_or(self.options.timeouts.admin_ms);
        let answer = self.ask(|_| Action::Admin(Exchange { entry, timeout_ms, issued: None }))?;
        answer.reply().map_err(Into::into)
    }

    /// Runs an admin command that must succeed; returns DW0.
    #[track_caller]
    pub(crate) fn must(&mut self, entry: Sqe) -> Run<u32> {
        let status = self.command(entry, None)?;
        match Status::of_field(status.status) {
            Status::Success => Ok(status.result),
            code => {
                let opcode = AdminOpcode::from_bits(entry.opcode);
                Err(NvmeError::from(Cause::Status(opcode, code)).into())
            }
        }
    }

    /// Runs a command that reads a page of data into the admin data page.
    #[track_caller]
    pub(crate) fn fetch(&mut self, entry: Sqe) -> Run<u32> {
        let data = [self.layout.admin_data.address(), 0];
        self.must(Sqe { data, ..entry })
    }

    /// The data that an identify command or a log page returned.
    pub(crate) fn admin_page(&self) -> [u8; 4096] {
        let mut data = [0; 4096];
        self.machine.sync_for_cpu(self.layout.admin_data.span(0, data.len()));
        self.layout.admin_data.read(0, &mut data);
        data
    }

    /// Puts the data of the next command into the admin data page, only once.
    #[track_caller]
    pub(crate) fn put_admin_data(&mut self, data: &[u8]) {
        self.effect(|channel| {
            let page = &channel.layout.admin_data;
            page.write(0, data);
            channel.machine.sync_for_device(page.span(0, data.len()));
        });
    }
}
