//! Recovery: find out what is wrong, do the least that helps, and end every command once.
//!
//! Theory. A lane that finds a command overdue *holds* its slot: the queue no longer looks at it
//! and only the host's word frees it. The ladder then climbs as far as it must:
//!
//! 1. **abort**: QUERY TASK says whether the device has the command, ABORT TASK ends it there,
//!    UTRLCLR (SDQ) or clean-up of the stopped queue (MCQ) ends it in the controller;
//! 2. **unit reset**: all commands of the logical unit are held, the unit is reset, each is
//!    cleared;
//! 3. **host reset**: the controller is switched off - which is what certainly ends everything -
//!    all lanes give back what they had, and bring-up runs again, up to five times;
//! 4. **gone**.
//!
//! A held command that completed after all counts as completed. In MCQ a slot is not used again
//! before its completion entry was seen, or a late entry would end the slot's next command.
//!
//! Errors without an overdue command enter at the step they need: fatal causes, a lost link and
//! PA_INIT at 3; other UIC errors are logged and the link is tested with NOP OUT. A reset of the
//! line leaves the link working in its lowest speed: the speed is looked at and restored.

use crate::Error;
use crate::channel::{Run, Stop};
use crate::control::Core;
use crate::history::ErrorKind;
use crate::init::BringUp;
use crate::quirks::Quirk;
use crate::shared::{Victim, order};
use crate::time::MS;
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::ufs::registers::{
    HCS, Hcs, IS, Interrupts, UECDL, UECDME, UECN, UECPA, UECT, UecDl, UecDme, UecPa,
};
use flysch_wire::ufs::uic::{PaPowerMode, UicAttribute};
use flysch_wire::ufs::upiu::TaskFunction;

/// How often the controller is brought up again before it counts as gone (Linux: 5).
const RESETS: u8 = 5;
/// Bits of what the UIC error registers say.
const LOST: u64 = 1;
const LINE_RESET: u64 = 2;
/// Rest before the second try of bring-up, nanoseconds; it doubles with every one after.
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

/// A recovery under way.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    stage: Stage,
    resets: u8,
    bring_up: BringUp,
    /// Held commands that are settled, by task tag.
    settled: [u32; 8],
}

impl Recovery {
    /// Starts by finding out.
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Diagnose, resets: 0, bring_up: BringUp::default(), settled: [0; 8] }
    }

    /// Starts with the host reset.
    pub(crate) fn reset() -> Self {
        Self { stage: Stage::Stop, ..Self::new() }
    }

    /// Starts with ending all commands of a unit, on the caller's wish.
    pub(crate) fn end_unit(function: TaskFunction, lun: u8) -> Self {
        Self { stage: Stage::EndUnit(function, lun), ..Self::new() }
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        loop {
            let next = match self.stage {
                Stage::Diagnose => core.diagnose()?,
                Stage::Pause => core.order(Order::PAUSE, Stage::Next)?,
                Stage::Next => self.next(core),
                Stage::Abort(victim) => self.abort(core, victim)?,
                Stage::EndUnit(function, lun) => core.end_unit(function, lun)?,
                Stage::ClearUnit(lun) => self.clear_unit(core, lun)?,
                Stage::Release => core.order(Order::PAUSE | order::RELEASE, Stage::Resume)?,
                Stage::Restore => core.restore_speed()?,
                Stage::Stop => core.stop()?,
                Stage::Rest => core.rest(self.resets)?,
                Stage::BringUp => self.bring_up(core)?,
                Stage::Resume => {
                    core.peer.channel.shared.orders.publish(0);
                    core.peer.channel.turn_page();
                    return Ok(());
                }
            };
            core.peer.channel.turn_page();
            match next {
                Some(stage) => self.stage = stage,
                None => return Ok(()),
            }
        }
    }

    fn is_settled(&self, tag: usize) -> bool {
        self.settled[tag / 32] >> (tag % 32) & 1 != 0
    }

    fn settle(&mut self, tag: usize) {
        self.settled[tag / 32] |= 1 << (tag % 32);
    }

    /// The next held command that is not settled.
    fn next<M: Machine>(&mut self, core: &Core<M>) -> Option<Stage> {
        let victim = core
            .peer
            .channel
            .shared
            .victims()
            .find(|victim| !self.is_settled(core.peer.queues.tag(*victim)));
        Some(match victim {
            None => Stage::Release,
            Some(_) if core.peer.channel.quirks.has(Quirk::NoTaskManagement) => Stage::Stop,
            Some(victim) if victim.lun & WELL_KNOWN != 0 => Stage::Stop,
            Some(victim) => Stage::Abort(victim),
        })
    }

    fn abort<M: Machine>(&mut self, core: &mut Core<M>, victim: Victim) -> Run<Option<Stage>> {
        Ok(Some(match core.peer.queues.abort(&mut core.peer.channel, victim)? {
            Ok(()) => {
                self.settle(core.peer.queues.tag(victim));
                Stage::Next
            }
            Err(_) => Stage::EndUnit(TaskFunction::LogicalUnitReset, victim.lun),
        }))
    }

    /// The unit was reset: nothing of it is in the device. Clears the controller.
    fn clear_unit<M: Machine>(&mut self, core: &mut Core<M>, lun: u8) -> Run<Option<Stage>> {
        for victim in core
            .peer
            .channel
            .shared
            .victims()
            .filter(|victim| victim.lun == lun)
            .collect::<Vec<_>>()
        {
            if self.is_settled(core.peer.queues.tag(victim)) {
                continue;
            }
            if core.peer.queues.clear(&mut core.peer.channel, victim)?.is_err() {
                return Ok(Some(Stage::Stop));
            }
        }
        for victim in core
            .peer
            .channel
            .shared
            .victims()
            .filter(|victim| victim.lun == lun)
            .collect::<Vec<_>>()
        {
            self.settle(core.peer.queues.tag(victim));
        }
        Ok(Some(Stage::Next))
    }

    fn bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Option<Stage>> {
        match self.bring_up.run(core) {
            Ok(()) => Ok(Some(Stage::Resume)),
            Err(Stop::Pending) => Err(Stop::Pending),
            Err(Stop::Failed(_)) => {
                self.resets += 1;
                core.peer.channel.errors.note(
                    core.peer.channel.now,
                    ErrorKind::HostReset,
                    self.resets.into(),
                );
                if self.resets < RESETS {
                    self.bring_up = BringUp::default();
                    return Ok(Some(Stage::Rest));
                }
                core.peer.channel.errors.note(core.peer.channel.now, ErrorKind::Gone, 0);
                core.peer.channel.shared.orders.publish(Order::GONE);
                Err(Stop::Failed(Error::Gone))
            }
        }
    }
}

impl<M: Machine> Core<M> {
    /// Gives an order and waits until every lane obeys.
    fn order(&mut self, flags: u32, next: Stage) -> Run<Option<Stage>> {
        self.peer.channel.order(flags);
        self.peer.channel.lanes_obey()?;
        Ok(Some(next))
    }

    /// What is wrong, and at which step to enter.
    fn diagnose(&mut self) -> Run<Option<Stage>> {
        // Whoever found something wrong would only find more of it.
        self.peer.channel.order(Order::PAUSE);
        let causes =
            self.peer.channel.once(|channel| channel.shared.orders.take_causes().into()) as u32;
        let status = self.peer.channel.read(IS);
        // Hibernation events count only where a lane saw that they went wrong.
        let hibernation = Interrupts::new().with_uhes(true).with_uhxs(true).into_bits();
        let causes = Interrupts::from_bits(causes | status & !hibernation);
        let hcs = self.peer.channel.read(HCS);
        if hcs == u32::MAX {
            self.peer.channel.note(ErrorKind::Gone, hcs);
            return Ok(Some(Stage::Stop));
        }
        let fatal = causes.intersects(Interrupts::FATAL);
        if causes.ulls() || !Hcs::from_bits(hcs).dp() {
            self.peer.channel.note(ErrorKind::LinkLost, hcs);
            return Ok(Some(Stage::Stop));
        }
        if fatal {
            self.peer.channel.note(ErrorKind::Fatal, causes.into_bits());
            self.read_uic_errors();
            return Ok(Some(Stage::Stop));
        }
        if causes.uhes() || causes.uhxs() {
            // Nobody asked for it: with auto-hibern8 on, these say that it failed.
            self.peer.channel.note(ErrorKind::Hibernate, causes.into_bits());
            return Ok(Some(Stage::Stop));
        }
        if causes.ue() {
            self.peer.channel.write(IS, Interrupts::new().with_ue(true).into_bits());
            let found = self.read_uic_errors();
            if found & LOST != 0 || self.link.hibernating || self.peer.is_silent()? {
                return Ok(Some(Stage::Stop));
            }
            if found & LINE_RESET != 0 && self.has_slowed()? {
                return Ok(Some(Stage::Restore));
            }
        }
        Ok(Some(if self.peer.channel.shared.any_held() { Stage::Pause } else { Stage::Resume }))
    }

    /// Whether the link fell back to low speed, as a reset of the line leaves it.
    fn has_slowed(&mut self) -> Run<bool> {
        if !self.link.high_speed {
            return Ok(false);
        }
        let Ok(mode) = self.peer.channel.dme_get(UicAttribute::PaPwrmode)? else {
            return Ok(false);
        };
        let is = PaPowerMode::from_bits(mode);
        let slow = !is.tx().is_high_speed() || !is.rx().is_high_speed();
        if slow {
            self.peer.channel.note(ErrorKind::LineReset, mode);
        }
        Ok(slow)
    }

    /// Brings the link back to the speed it had.
    fn restore_speed(&mut self) -> Run<Option<Stage>> {
        self.peer.channel.order(Order::PAUSE);
        self.peer.channel.lanes_obey()?;
        let wanted = self.link;
        Ok(Some(match self.change_link_told(wanted)? {
            Ok(()) => Stage::Next,
            Err(cause) => {
                self.note_speed(wanted, cause);
                Stage::Stop
            }
        }))
    }

    /// Power or a link that went away may need a while to come back: every try waits longer.
    fn rest(&mut self, resets: u8) -> Run<Option<Stage>> {
        self.peer.channel.sleep(REST << resets.saturating_sub(1))?;
        Ok(Some(Stage::BringUp))
    }

    /// Logs the UIC error registers, which reading clears; [`LOST`] and [`LINE_RESET`] of them.
    fn read_uic_errors(&mut self) -> u64 {
        self.peer.channel.once(|channel| {
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
                // ERR stands at the same place in all five.
                if UecPa::from_bits(value).err() {
                    channel.errors.note(channel.now, kind, value);
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
    fn end_unit(&mut self, function: TaskFunction, lun: u8) -> Run<Option<Stage>> {
        match self.resume() {
            Ok(()) => {}
            // The reset that this asks for ends the unit's commands as well.
            Err(Stop::Failed(_)) => return Ok(Some(Stage::Stop)),
            Err(Stop::Pending) => return Err(Stop::Pending),
        }
        self.peer.channel.effect(|channel| channel.shared.publish_hold(lun));
        self.peer.channel.lanes_obey()?;
        self.peer.channel.note(ErrorKind::UnitReset, lun.into());
        if self.peer.channel.quirks.has(Quirk::NoTaskManagement) {
            return Ok(Some(Stage::Stop));
        }
        Ok(Some(match self.peer.channel.task_done(function, lun, 0)? {
            Ok(()) => Stage::ClearUnit(lun),
            Err(_) => Stage::Stop,
        }))
    }

    /// Switches the controller off and has every lane give back what it had.
    fn stop(&mut self) -> Run<Option<Stage>> {
        self.peer.channel.order(Order::PAUSE);
        self.peer.channel.lanes_obey()?;
        self.peer.channel.note(ErrorKind::HostReset, 0);
        let enable_ms = self.peer.channel.options.timeouts.enable_ms;
        match self.disable(enable_ms) {
            // A controller that cannot be switched off is tried again by bring-up.
            Ok(()) | Err(Stop::Failed(_)) => {}
            Err(Stop::Pending) => return Err(Stop::Pending),
        }
        self.peer.channel.order(Order::PAUSE | Order::STOP);
        self.peer.channel.lanes_obey()?;
        Ok(Some(Stage::BringUp))
    }
}
