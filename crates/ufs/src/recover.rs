//! Recovery: find out what is wrong, do the least that helps, and end every command once.
//!
//! Theory. A lane that finds a command overdue *holds* its slot: the queue no longer looks at it
//! and only the host can free it. The ladder then climbs as far as it must:
//!
//! 1. **abort**: QUERY TASK says whether the device has the command, ABORT TASK ends it there,
//!    UTRLCLR (SDQ) or clean-up of the stopped queue (MCQ) ends it in the controller;
//! 2. **unit reset**: all commands of the logical unit are held, the unit is reset, each is
//!    cleared;
//! 3. **host reset**: the controller is switched off, which certainly ends everything; all lanes
//!    give back their commands, and bring-up runs again, up to five times;
//! 4. **gone**.
//!
//! A held command that completed after all counts as completed. In MCQ a slot is not used again
//! before its completion entry has been seen, because a late entry would end the slot's next
//! command.
//!
//! Errors without an overdue command enter at the step they need: fatal causes, a lost link and
//! PA_INIT at 3; other UIC errors are logged and the link is tested with NOP OUT. A reset of the
//! line leaves the link working at its lowest speed: the speed is checked and restored.

use crate::UfsError;
use crate::channel::{Channel, Run};
use crate::control::Core;
use crate::history::ErrorKind;
use crate::init::BringUp;
use crate::management::Peer;
use crate::power::Power;
use crate::quirks::Quirk;
use crate::shared::{Victim, order};
use crate::time::MS;
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::ufs::registers::{
    HCS, Hcs, IS, Interrupts, UECDL, UECDME, UECN, UECPA, UECT, UecDl, UecDme, UecPa,
};
use flysch_wire::ufs::upiu::TaskFunction;

/// How often the controller is brought up again before it counts as gone (Linux: 5).
const RESETS: u8 = 5;
/// What the UIC error registers mean, as bits.
const LOST: u64 = 1;
const LINE_RESET: u64 = 2;
/// Wait before the second try of bring-up, nanoseconds; it doubles with every further try.
const REST: u64 = 100 * MS;
/// Well-known units have this bit.
const WELL_KNOWN: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Diagnose,
    Pause,
    Next,
    Abort(Victim),
    EndUnit(TaskFunction, u8),
    ClearUnit(u8),
    Release,
    /// The link runs slower than it should.
    Restore,
    Stop,
    /// Before the next try of bring-up.
    Rest,
    BringUp,
    Resume,
}

/// A recovery in progress.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    stage: Stage,
    resets: u8,
    bring_up: BringUp,
    /// Held commands that are settled, by task tag.
    settled: [u32; 8],
}

impl Recovery {
    /// Starts by finding out what is wrong.
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Diagnose, resets: 0, bring_up: BringUp::default(), settled: [0; 8] }
    }

    /// Starts with the host reset.
    pub(crate) fn reset() -> Self {
        Self { stage: Stage::Stop, ..Self::new() }
    }

    /// Starts with ending all commands of a unit, at the caller's request.
    pub(crate) fn end_unit(function: TaskFunction, lun: u8) -> Self {
        Self { stage: Stage::EndUnit(function, lun), ..Self::new() }
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        loop {
            let next = match self.stage {
                Stage::Diagnose => diagnose(&mut core.peer, &core.power)?,
                Stage::Pause => {
                    obey(&mut core.peer.channel, Order::PAUSE)?;
                    Stage::Next
                }
                Stage::Next => self.next(&core.peer),
                Stage::Abort(victim) => self.abort(&mut core.peer, victim)?,
                Stage::EndUnit(function, lun) => {
                    end_unit(&mut core.peer, &mut core.power, function, lun)?
                }
                Stage::ClearUnit(lun) => self.clear_unit(&mut core.peer, lun)?,
                Stage::Release => {
                    obey(&mut core.peer.channel, Order::PAUSE | order::RELEASE)?;
                    Stage::Resume
                }
                Stage::Restore => {
                    obey(&mut core.peer.channel, Order::PAUSE)?;
                    let restored = core.power.restore_speed(&mut core.peer)?;
                    if restored.is_ok() { Stage::Next } else { Stage::Stop }
                }
                Stage::Stop => {
                    core.stop()?;
                    Stage::BringUp
                }
                Stage::Rest => {
                    // Power or a link that went away may need a while to come back.
                    core.peer.channel.sleep(REST << self.resets.saturating_sub(1))?;
                    Stage::BringUp
                }
                Stage::BringUp => self.bring_up(core)?,
                Stage::Resume => {
                    core.shared().orders.publish(0);
                    core.peer.channel.script.turn_page();
                    return Ok(());
                }
            };
            core.peer.channel.script.turn_page();
            self.stage = next;
        }
    }

    fn is_settled(&self, tag: usize) -> bool {
        self.settled[tag / 32] >> (tag % 32) & 1 != 0
    }

    fn settle(&mut self, tag: usize) {
        self.settled[tag / 32] |= 1 << (tag % 32);
    }

    /// What to do about the next held command that is not settled.
    fn next<M: Machine>(&self, peer: &Peer<M>) -> Stage {
        let mut victims = peer.channel.shared.victims();
        match victims.find(|victim| !self.is_settled(peer.queues.tag(*victim))) {
            None => Stage::Release,
            Some(_) if peer.channel.quirks.has(Quirk::NoTaskManagement) => Stage::Stop,
            Some(victim) if victim.lun & WELL_KNOWN != 0 => Stage::Stop,
            Some(victim) => Stage::Abort(victim),
        }
    }

    fn abort<M: Machine>(&mut self, peer: &mut Peer<M>, victim: Victim) -> Run<Stage> {
        Ok(match peer.queues.abort(&mut peer.channel, victim)? {
            Ok(()) => {
                self.settle(peer.queues.tag(victim));
                Stage::Next
            }
            Err(_) => Stage::EndUnit(TaskFunction::LogicalUnitReset, victim.lun),
        })
    }

    /// The unit was reset, so the device has no command of it. Clears the controller.
    fn clear_unit<M: Machine>(&mut self, peer: &mut Peer<M>, lun: u8) -> Run<Stage> {
        for victim in victims_of(peer, lun) {
            if self.is_settled(peer.queues.tag(victim)) {
                continue;
            }
            if peer.queues.clear(&mut peer.channel, victim)?.is_err() {
                return Ok(Stage::Stop);
            }
        }
        for victim in victims_of(peer, lun) {
            self.settle(peer.queues.tag(victim));
        }
        Ok(Stage::Next)
    }

    fn bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Stage> {
        match settled(self.bring_up.run(core))? {
            Ok(()) => Ok(Stage::Resume),
            Err(_) => {
                self.resets += 1;
                let channel = &mut core.peer.channel;
                channel.errors.note(channel.script.now(), ErrorKind::HostReset, self.resets.into());
                if self.resets < RESETS {
                    self.bring_up = BringUp::default();
                    return Ok(Stage::Rest);
                }
                channel.errors.note(channel.script.now(), ErrorKind::Gone, 0);
                channel.shared.orders.publish(Order::GONE);
                Err(UfsError::Gone.into())
            }
        }
    }
}

/// The held commands of a logical unit.
fn victims_of<M: Machine>(peer: &Peer<M>, lun: u8) -> Vec<Victim> {
    peer.channel.shared.victims().filter(|victim| victim.lun == lun).collect()
}

/// Gives an order and waits until every lane has obeyed.
fn obey<M: Machine>(channel: &mut Channel<M>, flags: u32) -> Run<()> {
    channel.order(flags);
    channel.lanes_obey()?;
    Ok(())
}

/// Finds out what is wrong, and at which stage to enter.
fn diagnose<M: Machine>(peer: &mut Peer<M>, power: &Power) -> Run<Stage> {
    let channel = &mut peer.channel;
    // Whoever found something wrong would only find more of it.
    channel.order(Order::PAUSE);
    let causes = channel.once(|channel| channel.shared.orders.take_causes().into()) as u32;
    let status = channel.read(IS);
    // Hibernation events count only where a lane saw that they went wrong.
    let hibernation = Interrupts::new().with_uhes(true).with_uhxs(true).into_bits();
    let causes = Interrupts::from_bits(causes | status & !hibernation);
    let hcs = channel.read(HCS);
    if hcs == u32::MAX {
        channel.note(ErrorKind::Gone, hcs);
        return Ok(Stage::Stop);
    }
    if causes.ulls() || !Hcs::from_bits(hcs).dp() {
        channel.note(ErrorKind::LinkLost, hcs);
        return Ok(Stage::Stop);
    }
    if causes.intersects(Interrupts::FATAL) {
        channel.note(ErrorKind::Fatal, causes.into_bits());
        read_uic_errors(channel);
        return Ok(Stage::Stop);
    }
    if causes.uhes() || causes.uhxs() {
        // Nobody asked for it: with auto-hibern8 on, these say that it failed.
        channel.note(ErrorKind::Hibernate, causes.into_bits());
        return Ok(Stage::Stop);
    }
    if causes.ue() {
        channel.write(IS, Interrupts::new().with_ue(true).into_bits());
        let found = read_uic_errors(channel);
        if found & LOST != 0 || power.link.hibernating || peer.is_silent()? {
            return Ok(Stage::Stop);
        }
        if found & LINE_RESET != 0 && power.has_slowed(&mut peer.channel)? {
            return Ok(Stage::Restore);
        }
    }
    Ok(if peer.channel.shared.any_held() { Stage::Pause } else { Stage::Resume })
}

/// Logs the UIC error registers, which reading clears; returns [`LOST`] and [`LINE_RESET`].
fn read_uic_errors<M: Machine>(channel: &mut Channel<M>) -> u64 {
    channel.once(|channel| {
        let registers = [
            (UECPA, ErrorKind::PhyAdapter),
            (UECDL, ErrorKind::DataLink),
            (UECN, ErrorKind::Network),
            (UECT, ErrorKind::Transport),
            (UECDME, ErrorKind::Dme),
        ];
        let mut found = 0;
        for (register, kind) in registers {
            let value = channel.machine.read32(register);
            // ERR is at the same place in all five.
            if UecPa::from_bits(value).err() {
                channel.errors.note(channel.script.now(), kind, value);
                found |= match kind {
                    ErrorKind::DataLink if UecDl::from_bits(value).pa_init_error() => LOST,
                    ErrorKind::Dme if UecDme::from_bits(value).generic() => LOST,
                    ErrorKind::PhyAdapter if UecPa::from_bits(value).generic() => LINE_RESET,
                    _ => 0,
                };
            }
        }
        found
    })
}

/// Holds every command of a unit and has the device end them all.
fn end_unit<M: Machine>(
    peer: &mut Peer<M>,
    power: &mut Power,
    function: TaskFunction,
    lun: u8,
) -> Run<Stage> {
    if settled(power.resume(peer))?.is_err() {
        // The reset that it asked for ends the unit's commands as well.
        return Ok(Stage::Stop);
    }
    let channel = &mut peer.channel;
    channel.effect(|channel| channel.shared.publish_hold(lun));
    channel.lanes_obey()?;
    channel.note(ErrorKind::UnitReset, lun.into());
    if channel.quirks.has(Quirk::NoTaskManagement) {
        return Ok(Stage::Stop);
    }
    let done = channel.task_done(function, lun, 0)?;
    Ok(if done.is_ok() { Stage::ClearUnit(lun) } else { Stage::Stop })
}
