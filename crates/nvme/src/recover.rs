//! Recovery: find out what is wrong, do the least that helps, and end every command exactly once.
//!
//! Theory. A lane that finds an overdue command names it to the host as a *victim*. The ladder then
//! climbs as far as necessary:
//!
//! 1. **abort**: an Abort command for each victim. Its answer is not trusted, because some
//!    controllers deny what they have done: a victim has ended when its completion arrives,
//!    whatever the answer says. If the completion reports success, the command counts as completed;
//! 2. **controller reset**: CC.EN is cleared, which certainly ends everything; all lanes return
//!    their commands, and bring-up runs again, up to [`RESETS`] times;
//! 3. **subsystem reset**, if the controller does not follow CC.EN and supports one;
//! 4. **gone**.
//!
//! A controller that reports a fatal status (CSTS.CFS), that is no longer ready, or that does not
//! answer on its admin queue enters at 2; one whose registers read as ones has left the bus and
//! enters at 4.

use crate::control::{Core, Run, Stop};
use crate::history::ErrorKind;
use crate::init::{BringUp, disable};
use crate::shared::cause;
use crate::time::MS;
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::nvme::registers::{CSTS, Csts, NSSR, SUBSYSTEM_RESET};
use flysch_wire::nvme::{AdminOpcode, Sqe};

/// How often bring-up is tried before the controller counts as gone.
const RESETS: u8 = 5;
/// Delay before the second bring-up, nanoseconds; it doubles with each further one.
const REST: u64 = 100 * MS;
/// The result of [`Core::once`] if there is no victim.
const NOBODY: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Diagnose,
    Abort,
    Stop,
    Subsystem,
    /// Delay before the next bring-up.
    Rest,
    BringUp,
    Gone,
}

/// A recovery in progress.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    stage: Stage,
    resets: u8,
    bring_up: BringUp,
}

impl Recovery {
    /// Starts by finding out what is wrong.
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Diagnose, resets: 0, bring_up: BringUp::default() }
    }

    /// Starts with the controller reset.
    pub(crate) fn reset() -> Self {
        Self { stage: Stage::Stop, ..Self::new() }
    }

    /// Starts with the subsystem reset.
    pub(crate) fn subsystem() -> Self {
        Self { stage: Stage::Subsystem, ..Self::new() }
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        loop {
            let next = match self.stage {
                Stage::Diagnose => core.diagnose(),
                Stage::Abort => core.abort_victims()?,
                Stage::Stop => core.stop()?,
                Stage::Subsystem => core.reset_subsystem()?,
                Stage::Rest => core.rest(self.resets)?,
                Stage::BringUp => self.bring_up(core)?,
                Stage::Gone => {
                    core.effect(|core| {
                        core.errors.note(core.now, ErrorKind::Gone, 0);
                        core.shared.orders.publish(Order::GONE);
                    });
                    core.lanes_obey()?;
                    core.turn_page();
                    return Err(Stop::Failed(Error::Gone));
                }
            };
            core.turn_page();
            match next {
                Some(stage) => self.stage = stage,
                None => return Ok(()),
            }
        }
    }

    fn bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Option<Stage>> {
        match self.bring_up.run(core) {
            Ok(()) => {
                core.shared.orders.take_causes();
                core.shared.orders.publish(0);
                Ok(None)
            }
            Err(Stop::Pending) => Err(Stop::Pending),
            Err(Stop::Failed(error)) => {
                core.drop_script();
                self.resets += 1;
                self.bring_up = BringUp::default();
                let removed = matches!(error, Error::Step { cause: Cause::Removed, .. });
                let more = self.resets < RESETS && !removed;
                Ok(Some(if more { Stage::Rest } else { Stage::Gone }))
            }
        }
    }
}

impl<M: Machine> Core<M> {
    fn diagnose(&mut self) -> Option<Stage> {
        let causes = self.once(|core| {
            let causes = core.shared.orders.take_causes();
            let csts = core.machine.read32(CSTS);
            if csts == u32::MAX || causes & cause::REMOVED != 0 {
                core.errors.note(core.now, ErrorKind::Removed, csts);
                return u64::from(cause::REMOVED);
            }
            let csts_is = Csts::from_bits(csts);
            if csts_is.cfs() || !csts_is.rdy() || causes & cause::FATAL != 0 {
                core.errors.note(core.now, ErrorKind::Fatal, csts);
                return u64::from(cause::FATAL);
            }
            u64::from(causes)
        }) as u32;
        if causes & cause::REMOVED != 0 {
            return Some(Stage::Gone);
        }
        if causes != 0 {
            return Some(Stage::Stop);
        }
        self.shared.has_victims().then_some(Stage::Abort)
    }

    /// Sends an abort for every victim and waits until all of them have ended.
    fn abort_victims(&mut self) -> Run<Option<Stage>> {
        loop {
            let victim = self.once(|core| match core.shared.ask_victim() {
                Some((lane, cid)) => {
                    let name = (lane as u32 + 1) << 16 | u32::from(cid);
                    core.errors.note(core.now, ErrorKind::Overdue, name);
                    name.into()
                }
                None => NOBODY,
            });
            if victim == NOBODY {
                break;
            }
            let name = victim as u32;
            let entry = Sqe {
                opcode: AdminOpcode::Abort.into_bits(),
                cdw10: [name.rotate_left(16), 0, 0, 0, 0, 0],
                ..Sqe::default()
            };
            let timeout = self.options.timeouts.abort_ms;
            match self.command(entry, Some(timeout)) {
                Err(Stop::Pending) => return Err(Stop::Pending),
                Err(Stop::Failed(_)) => return Ok(Some(Stage::Stop)),
                Ok(_) => self.effect(|core| core.errors.note(core.now, ErrorKind::Abort, name)),
            }
        }
        match self.no_victims()? {
            Ok(_) => Ok(Some(Stage::Diagnose)),
            Err(_) => Ok(Some(Stage::Stop)),
        }
    }

    /// Stops the controller and lets the lanes return everything.
    fn stop(&mut self) -> Run<Option<Stage>> {
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
        match disable(self)? {
            Ok(()) => {}
            Err(Cause::Removed) => return Ok(Some(Stage::Gone)),
            Err(_) if self.cap.nssrs() => return Ok(Some(Stage::Subsystem)),
            // Its DMA cannot be stopped: nothing may be handed back as if it could.
            Err(_) => return Ok(Some(Stage::Gone)),
        }
        self.effect(|core| {
            core.errors.note(core.now, ErrorKind::ControllerReset, 0);
            core.shared.orders.publish(Order::PAUSE | Order::STOP);
        });
        self.lanes_obey()?;
        Ok(Some(Stage::BringUp))
    }

    /// Resets the NVM subsystem (3.7.1): afterwards every controller in it is disabled.
    fn reset_subsystem(&mut self) -> Run<Option<Stage>> {
        if !self.cap.nssrs() {
            return Err(Stop::Failed(Error::Unsupported("NVM subsystem reset")));
        }
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
        self.write(NSSR, SUBSYSTEM_RESET);
        let ready = Csts::new().with_rdy(true).into_bits();
        let timeout = self.ready_ms();
        let off = self.until(("CSTS", CSTS), ready, 0, timeout)?;
        if off.is_err() {
            return Ok(Some(Stage::Gone));
        }
        // Write one to clear.
        self.write(CSTS, Csts::new().with_nssro(true).into_bits());
        self.effect(|core| {
            core.enabled = false;
            core.errors.note(core.now, ErrorKind::SubsystemReset, 0);
            core.shared.orders.publish(Order::PAUSE | Order::STOP);
        });
        self.lanes_obey()?;
        Ok(Some(Stage::BringUp))
    }

    fn rest(&mut self, resets: u8) -> Run<Option<Stage>> {
        self.sleep(REST << resets.saturating_sub(1).min(8))?;
        self.effect(|core| {
            core.errors.note(core.now, ErrorKind::ControllerReset, resets.into());
        });
        Ok(Some(Stage::BringUp))
    }
}
