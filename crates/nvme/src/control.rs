//! The state of the control plane, and the primitives from which its procedures are built.
//!
//! Theory. Bring-up, admin commands and recovery are long sequences full of waiting. They are
//! ordinary functions run by a [`Script`] over a few *primitives* that wait:
//! [`until`](Core::until), [`sleep`](Core::sleep), [`command`](Core::command),
//! [`lanes_obey`](Core::lanes_obey). Everything else with an effect goes through a primitive too
//! ([`write`](Core::write), [`once`](Core::once)), so that a replay does not repeat it.

use crate::admin::{Admin, Exchange};
use crate::facts::{Device, Facts};
use crate::history::{ErrorKind, ErrorLog};
use crate::lane::Lane;
use crate::layout::Layout;
use crate::options::Options;
use crate::quirks::Quirks;
use crate::shared::{Shared, cause};
use crate::time::MS;
use crate::{Cause, Error};
use alloc::sync::Arc;
use flysch_api::command::NvmeStatus;
use flysch_api::machine::{Instant, Machine};
pub(crate) use flysch_script::Pending;
use flysch_script::{Player, Script};
use flysch_wire::nvme::registers::{Cap, Version};
use flysch_wire::nvme::{AdminOpcode, Sqe, Status};

/// Why a procedure returned without a result.
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

/// Result of a primitive.
pub(crate) type Wait<T> = Result<T, Pending>;

/// Result of a procedure.
pub(crate) type Run<T> = Result<T, Stop>;

/// Result of an action.
pub(crate) type Answer = flysch_script::Answer<NvmeStatus, Cause>;

/// What a procedure is waiting for.
#[derive(Debug)]
pub(crate) enum Action {
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

/// The control owner's state, and the script it is running.
#[derive(Debug)]
pub(crate) struct Core<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Layout,
    pub(crate) options: Options,
    pub(crate) quirks: Quirks,
    pub(crate) version: Version,
    pub(crate) cap: Cap,
    pub(crate) admin: Admin,
    pub(crate) device: Device,
    pub(crate) errors: ErrorLog,
    /// The controller is enabled.
    pub(crate) enabled: bool,
    /// The present instant, and the instant at which to poll next.
    pub(crate) now: Instant,
    pub(crate) at: Instant,
    script: Script<Answer, Action>,
}

/// The first interval between two looks, nanoseconds.
const PATIENCE: u32 = 2_000;

impl<M: Machine> Player for Core<M> {
    type Answer = Answer;
    type Wait = Action;

    fn script(&mut self) -> &mut Script<Answer, Action> {
        &mut self.script
    }
}

impl<M: Machine> Core<M> {
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
            device: Device::default(),
            errors: ErrorLog::default(),
            enabled: false,
            now: Instant::START,
            at: Instant::NEVER,
            script: Script::new(PATIENCE),
        }
    }

    /// Called before the procedure is run again.
    pub(crate) fn rewind(&mut self) {
        self.script.rewind();
    }

    /// Marks the start of a new step.
    pub(crate) fn turn_page(&mut self) {
        self.script.turn_page();
    }

    /// Abandons the current procedure.
    pub(crate) fn drop_script(&mut self) {
        self.script.abandon();
    }

    /// Advances the current action; returns `false` while it has no result.
    pub(crate) fn advance(&mut self, lane: &mut Lane<M>, now: Instant) -> bool {
        self.now = now;
        let Some(mut waiting) = self.script.take_wait() else { return true };
        let answer = self.try_action(&mut waiting.what, lane);
        self.script.settle(waiting, answer)
    }

    fn try_action(&mut self, action: &mut Action, lane: &mut Lane<M>) -> Option<Answer> {
        match action {
            Action::Until { name, register, mask, value, deadline } => {
                let read = self.machine.read32(*register);
                if read == u32::MAX {
                    return Some(Answer::Failed(Cause::Removed));
                }
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
            Action::Admin(exchange) => self.try_exchange(exchange),
            Action::Obey => {
                lane.wake(self.now);
                if self.shared.orders.all_obey() {
                    return Some(Answer::Value(0));
                }
                self.look_again(Instant::NEVER);
                None
            }
            Action::Idle { deadline } => {
                let idle = lane.is_idle() && self.shared.orders.others_parked();
                self.give_up_at(*deadline, idle, Cause::InFlight)
            }
            Action::NoVictims { deadline } => {
                lane.harvest();
                let none = !self.shared.has_victims();
                if let (false, Some(cause)) = (none, self.is_lost()) {
                    return Some(Answer::Failed(cause));
                }
                self.give_up_at(*deadline, none, Cause::NotAborted)
            }
        }
    }

    fn try_exchange(&mut self, exchange: &mut Exchange) -> Option<Answer> {
        let now = self.now;
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
        self.look_again(deadline);
        None
    }

    fn give_up_at(&mut self, deadline: Instant, came: bool, why: Cause) -> Option<Answer> {
        if came {
            return Some(Answer::Value(0));
        }
        if self.now >= deadline {
            return Some(Answer::Failed(why));
        }
        self.look_again(deadline);
        None
    }

    /// Why nothing can be expected of the controller any more, if that is so.
    pub(crate) fn is_lost(&self) -> Option<Cause> {
        use flysch_wire::nvme::registers::{CSTS, Csts};
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

    /// Requests another poll soon, at `deadline` at the latest.
    pub(crate) fn look_again(&mut self, deadline: Instant) {
        self.at = self.now.after_nanos(self.script.patience()).min(deadline);
    }

    /// Writes a register, only once.
    #[track_caller]
    pub(crate) fn write(&mut self, register: u32, value: u32) {
        self.effect(|core| core.machine.write32(register, value));
    }

    /// Writes a 64-bit register as two of 32 bits, only once.
    #[track_caller]
    pub(crate) fn write_wide(&mut self, register: u32, value: u64) {
        self.effect(|core| {
            core.machine.write32(register, value as u32);
            core.machine.write32(register + 4, (value >> 32) as u32);
        });
    }

    /// Reads a register, only once.
    #[track_caller]
    pub(crate) fn read(&mut self, register: u32) -> u32 {
        self.once(|core| core.machine.read32(register).into()) as u32
    }

    /// Waits until `register & mask == value`; returns the register.
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
        Ok(u64::try_from(answer).map(|value| value as u32))
    }

    /// Waits.
    #[track_caller]
    pub(crate) fn sleep(&mut self, nanos: u64) -> Wait<()> {
        self.ask(|core| Action::Sleep { until: core.now.after_nanos(nanos) })?;
        Ok(())
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
        let timeout = u64::from(self.options.timeouts.abort_ms) * MS;
        let answer = self.ask(|core| Action::Idle { deadline: core.now.after_nanos(timeout) })?;
        Ok(u64::try_from(answer))
    }

    /// Waits until every overdue command has ended.
    #[track_caller]
    pub(crate) fn no_victims(&mut self) -> Wait<Result<u64, Cause>> {
        let timeout = u64::from(self.options.timeouts.abort_ms) * MS;
        let deadline = |core: &mut Self| core.now.after_nanos(timeout);
        let answer = self.ask(|core| Action::NoVictims { deadline: deadline(core) })?;
        Ok(u64::try_from(answer))
    }
}

impl<M: Machine> Core<M> {
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
                Err(Error::from(Cause::Status(opcode, code)).into())
            }
        }
    }

    /// Runs a command that reads a page of data into the admin data page.
    #[track_caller]
    pub(crate) fn fetch(&mut self, entry: Sqe) -> Run<u32> {
        let data = [self.layout.admin_data.address(), 0];
        self.must(Sqe { data, ..entry })
    }
}
