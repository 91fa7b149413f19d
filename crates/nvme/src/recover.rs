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

use crate::channel::{Channel, Run};
use crate::control::Core;
use crate::history::ErrorKind;
use crate::init::BringUp;
use crate::shared::cause;
use crate::time::MS;
use crate::{Cause, NvmeError};
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::nvme::registers::{CSTS, Csts, NSSR, SUBSYSTEM_RESET};
use flysch_wire::nvme::{AdminOpcode, Sqe};

/// How often bring-up is tried before the controller counts as gone.
const RESETS: u8 = 5;
/// Delay before the second bring-up, nanoseconds; it doubles with each further one.
const REST: u64 = 100 * MS;
/// The result of [`Replay::once`] if there is no victim.
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
                Stage::Diagnose => diagnose(&mut core.channel),
                Stage::Abort => Some(abort_victims(&mut core.channel)?),
                Stage::Stop => Some(stop(core)?),
                Stage::Subsystem => Some(reset_subsystem(core)?),
                Stage::Rest => {
                    core.channel.sleep(REST << self.resets.saturating_sub(1).min(8))?;
                    core.channel.note(ErrorKind::ControllerReset, self.resets.into());
                    Some(Stage::BringUp)
                }
                Stage::BringUp => self.bring_up(core)?,
                Stage::Gone => {
                    core.channel.note(ErrorKind::Gone, 0);
                    core.channel.order(Order::GONE);
                    core.channel.lanes_obey()?;
                    core.channel.script.turn_page();
                    return Err(NvmeError::Gone.into());
                }
            };
            core.channel.script.turn_page();
            match next {
                Some(stage) => self.stage = stage,
                None => return Ok(()),
            }
        }
    }

    fn bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Option<Stage>> {
        match settled(self.bring_up.run(core))? {
            Ok(()) => {
                core.shared().orders.take_causes();
                core.shared().orders.publish(0);
                Ok(None)
            }
            Err(error) => {
                core.channel.script.abandon();
                self.resets += 1;
                self.bring_up = BringUp::default();
                let removed = matches!(error, NvmeError::Step { cause: Cause::Removed, .. });
                let more = self.resets < RESETS && !removed;
                Ok(Some(if more { Stage::Rest } else { Stage::Gone }))
            }
        }
    }
}

/// Finds out what is wrong, and at which stage to enter.
fn diagnose<M: Machine>(channel: &mut Channel<M>) -> Option<Stage> {
    let causes = channel.once(|channel| {
        let causes = channel.shared.orders.take_causes();
        let csts = channel.machine.read32(CSTS);
        if csts == u32::MAX || causes & cause::REMOVED != 0 {
            channel.errors.note(channel.script.now(), ErrorKind::Removed, csts);
            return u64::from(cause::REMOVED);
        }
        let csts_is = Csts::from_bits(csts);
        if csts_is.cfs() || !csts_is.rdy() || causes & cause::FATAL != 0 {
            channel.errors.note(channel.script.now(), ErrorKind::Fatal, csts);
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
    channel.shared.has_victims().then_some(Stage::Abort)
}

/// Sends an abort for every victim and waits until all of them have ended.
fn abort_victims<M: Machine>(channel: &mut Channel<M>) -> Run<Stage> {
    loop {
        let victim = channel.once(|channel| match channel.shared.ask_victim() {
            Some((lane, cid)) => {
                let name = (lane as u32 + 1) << 16 | u32::from(cid);
                channel.errors.note(channel.script.now(), ErrorKind::Overdue, name);
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
        let timeout = channel.options.timeouts.abort_ms;
        if settled(channel.command(entry, Some(timeout)))?.is_err() {
            return Ok(Stage::Stop);
        }
        channel.note(ErrorKind::Abort, name);
    }
    Ok(if channel.no_victims()?.is_ok() { Stage::Diagnose } else { Stage::Stop })
}

/// Stops the controller and lets the lanes return everything.
fn stop<M: Machine>(core: &mut Core<M>) -> Run<Stage> {
    core.channel.order(Order::PAUSE);
    core.channel.lanes_obey()?;
    match core.disable()? {
        Ok(()) => {}
        Err(Cause::Removed) => return Ok(Stage::Gone),
        Err(_) if core.channel.cap.nssrs() => return Ok(Stage::Subsystem),
        // Its DMA cannot be stopped: nothing may be handed back as if it could.
        Err(_) => return Ok(Stage::Gone),
    }
    core.channel.note(ErrorKind::ControllerReset, 0);
    core.channel.order(Order::PAUSE | Order::STOP);
    core.channel.lanes_obey()?;
    Ok(Stage::BringUp)
}

/// Resets the NVM subsystem (3.7.1): afterwards every controller in it is disabled.
fn reset_subsystem<M: Machine>(core: &mut Core<M>) -> Run<Stage> {
    let channel = &mut core.channel;
    if !channel.cap.nssrs() {
        return Err(NvmeError::Unsupported("NVM subsystem reset").into());
    }
    channel.order(Order::PAUSE);
    channel.lanes_obey()?;
    channel.write(NSSR, SUBSYSTEM_RESET);
    let ready = Csts::new().with_rdy(true).into_bits();
    if channel.until(("CSTS", CSTS), ready, 0, channel.ready_ms())?.is_err() {
        return Ok(Stage::Gone);
    }
    // Write one to clear.
    channel.write(CSTS, Csts::new().with_nssro(true).into_bits());
    channel.effect(|_| core.enabled = false);
    channel.note(ErrorKind::SubsystemReset, 0);
    channel.order(Order::PAUSE | Order::STOP);
    channel.lanes_obey()?;
    Ok(Stage::BringUp)
}
