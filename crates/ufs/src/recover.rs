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

use crate::control::{Action, Core, Run, Stop};
use crate::history::ErrorKind;
use crate::init::BringUp;
use crate::layout::ENTRY;
use crate::quirks::Quirk;
use crate::shared::order;

use crate::time::{MS, US};
use crate::{Cause, Error};
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::ufs::registers::{
    CleanUpResult, HCS, Hcs, IS, Interrupts, SqCti, SqRtc, SqRts, UECDL, UECDME, UECN, UECPA, UECT,
    UTRLDBR, UecDl, UecDme, UecPa, mcq,
};
use flysch_wire::ufs::uic::{PaPowerMode, UicAttribute};
use flysch_wire::ufs::upiu::{ServiceResponse, TaskFunction};
use flysch_wire::ufs::utrd::{CommandType, HEADER_OFFSET, UCD_ALIGNMENT, UCD_OFFSET, UtrdHeader};

/// How often the controller is brought up again before it counts as gone (Linux: 5).
const RESETS: u8 = 5;
/// How often the device is asked whether it has a command that it denies but that does not end.
const QUESTIONS: usize = 10;
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

/// A held command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Victim {
    lane: usize,
    slot: usize,
    lun: u8,
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
                    core.shared.orders.publish(0);
                    core.turn_page();
                    return Ok(());
                }
            };
            core.turn_page();
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
        let victim = core.victims().find(|victim| !self.is_settled(core.tag(*victim)));
        Some(match victim {
            None => Stage::Release,
            Some(_) if core.quirks.has(Quirk::NoTaskManagement) => Stage::Stop,
            Some(victim) if victim.lun & WELL_KNOWN != 0 => Stage::Stop,
            Some(victim) => Stage::Abort(victim),
        })
    }

    fn abort<M: Machine>(&mut self, core: &mut Core<M>, victim: Victim) -> Run<Option<Stage>> {
        Ok(Some(match core.abort(victim)? {
            Ok(()) => {
                self.settle(core.tag(victim));
                Stage::Next
            }
            Err(_) => Stage::EndUnit(TaskFunction::LogicalUnitReset, victim.lun),
        }))
    }

    /// The unit was reset: nothing of it is in the device. Clears the controller.
    fn clear_unit<M: Machine>(&mut self, core: &mut Core<M>, lun: u8) -> Run<Option<Stage>> {
        for victim in core.victims().filter(|victim| victim.lun == lun).collect::<Vec<_>>() {
            if self.is_settled(core.tag(victim)) {
                continue;
            }
            if core.clear(victim)?.is_err() {
                return Ok(Some(Stage::Stop));
            }
        }
        for victim in core.victims().filter(|victim| victim.lun == lun).collect::<Vec<_>>() {
            self.settle(core.tag(victim));
        }
        Ok(Some(Stage::Next))
    }

    fn bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Option<Stage>> {
        match self.bring_up.run(core) {
            Ok(()) => Ok(Some(Stage::Resume)),
            Err(Stop::Pending) => Err(Stop::Pending),
            Err(Stop::Failed(_)) => {
                self.resets += 1;
                core.errors.note(core.now, ErrorKind::HostReset, self.resets.into());
                if self.resets < RESETS {
                    self.bring_up = BringUp::default();
                    return Ok(Some(Stage::Rest));
                }
                core.errors.note(core.now, ErrorKind::Gone, 0);
                core.shared.orders.publish(Order::GONE);
                Err(Stop::Failed(Error::Gone))
            }
        }
    }
}

impl<M: Machine> Core<M> {
    /// The controller cannot be trusted any more before it was reset.
    pub(crate) fn ask_for_reset(&mut self) {
        let fatal = Interrupts::new().with_hcfes(true);
        self.shared.orders.report(fatal.into_bits());
    }

    /// Gives an order and waits until every lane obeys.
    fn order(&mut self, flags: u32, next: Stage) -> Run<Option<Stage>> {
        self.effect(|core| {
            core.shared.orders.publish(flags);
        });
        self.lanes_obey()?;
        Ok(Some(next))
    }

    /// Every held command of every lane.
    fn victims(&self) -> impl Iterator<Item = Victim> {
        self.shared
            .lanes
            .iter()
            .enumerate()
            .flat_map(|(lane, word)| word.held().map(move |(slot, lun)| Victim { lane, slot, lun }))
    }

    /// Task tag; in SDQ also the slot's number in the list.
    fn tag(&self, victim: Victim) -> usize {
        self.shape.first_tag(victim.lane) + victim.slot
    }

    /// What is wrong, and at which step to enter.
    fn diagnose(&mut self) -> Run<Option<Stage>> {
        // Whoever found something wrong would only find more of it.
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        let causes = self.once(|core| core.shared.orders.take_causes().into()) as u32;
        let status = self.read(IS);
        // Hibernation events count only where a lane saw that they went wrong.
        let hibernation = Interrupts::new().with_uhes(true).with_uhxs(true).into_bits();
        let causes = Interrupts::from_bits(causes | status & !hibernation);
        let hcs = self.read(HCS);
        if hcs == u32::MAX {
            self.note(ErrorKind::Gone, hcs);
            return Ok(Some(Stage::Stop));
        }
        let fatal = causes.intersects(Interrupts::FATAL);
        if causes.ulls() || !Hcs::from_bits(hcs).dp() {
            self.note(ErrorKind::LinkLost, hcs);
            return Ok(Some(Stage::Stop));
        }
        if fatal {
            self.note(ErrorKind::Fatal, causes.into_bits());
            self.read_uic_errors();
            return Ok(Some(Stage::Stop));
        }
        if causes.uhes() || causes.uhxs() {
            // Nobody asked for it: with auto-hibern8 on, these say that it failed.
            self.note(ErrorKind::Hibernate, causes.into_bits());
            return Ok(Some(Stage::Stop));
        }
        if causes.ue() {
            self.write(IS, Interrupts::new().with_ue(true).into_bits());
            let found = self.read_uic_errors();
            let nop_ms = self.options.timeouts.nop_ms;
            if found & LOST != 0 || self.link.hibernating || self.link_is_dead(nop_ms)? {
                return Ok(Some(Stage::Stop));
            }
            if found & LINE_RESET != 0 && self.has_slowed()? {
                return Ok(Some(Stage::Restore));
            }
        }
        Ok(Some(if self.shared.any_held() { Stage::Pause } else { Stage::Resume }))
    }

    /// Whether the device stays silent.
    fn link_is_dead(&mut self, nop_ms: u32) -> Run<bool> {
        match self.nop(nop_ms) {
            Ok(()) => Ok(false),
            Err(Stop::Pending) => Err(Stop::Pending),
            Err(Stop::Failed(_)) => Ok(true),
        }
    }

    /// Whether the link fell back to low speed, as a reset of the line leaves it.
    fn has_slowed(&mut self) -> Run<bool> {
        if !self.link.high_speed {
            return Ok(false);
        }
        let Ok(mode) = self.dme_get(UicAttribute::PaPwrmode)? else { return Ok(false) };
        let is = PaPowerMode::from_bits(mode);
        let slow = !is.tx().is_high_speed() || !is.rx().is_high_speed();
        if slow {
            self.note(ErrorKind::LineReset, mode);
        }
        Ok(slow)
    }

    /// Brings the link back to the speed it had.
    fn restore_speed(&mut self) -> Run<Option<Stage>> {
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
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
        self.sleep(REST << resets.saturating_sub(1))?;
        Ok(Some(Stage::BringUp))
    }

    /// Logs the UIC error registers, which reading clears; [`LOST`] and [`LINE_RESET`] of them.
    fn read_uic_errors(&mut self) -> u64 {
        self.once(|core| {
            let registers = [
                (UECPA, ErrorKind::PhyAdapter),
                (UECDL, ErrorKind::DataLink),
                (UECN, ErrorKind::Network),
                (UECT, ErrorKind::Transport),
                (UECDME, ErrorKind::Dme),
            ];
            let mut found = 0;
            for (register, kind) in registers {
                let value = core.machine.read32(register);
                // ERR stands at the same place in all five.
                if UecPa::from_bits(value).err() {
                    core.errors.note(core.now, kind, value);
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

    /// Ends one command in device and controller.
    fn abort(&mut self, victim: Victim) -> Run<Result<(), Cause>> {
        let tag = self.tag(victim);
        self.note(ErrorKind::Overdue, u32::from(victim.lun) << 8 | tag as u32);
        for _ in 0..QUESTIONS {
            if self.has_ended(victim) {
                return Ok(Ok(()));
            }
            match self.task(TaskFunction::QueryTask, victim.lun, tag as u8)? {
                Ok(ServiceResponse::FunctionSucceeded) => {
                    let done = self.task_done(TaskFunction::AbortTask, victim.lun, tag as u8)?;
                    if let Err(cause) = done {
                        return Ok(Err(cause));
                    }
                    break;
                }
                // Not there: on its way, lost, or answered this moment.
                Ok(ServiceResponse::FunctionComplete) => self.sleep(200 * US)?,
                Ok(response) => return Ok(Err(Cause::Task(response))),
                Err(cause) => return Ok(Err(cause)),
            }
        }
        self.note(ErrorKind::Abort, u32::from(victim.lun) << 8 | tag as u32);
        self.clear(victim)
    }

    /// Whether the controller is done with a held command, one way or the other.
    fn has_ended(&mut self, victim: Victim) -> bool {
        let tag = self.tag(victim);
        self.once(|core| {
            if core.shape.mcq {
                core.shared.lanes[victim.lane].is_late(victim.slot).into()
            } else {
                (core.machine.read32(UTRLDBR) >> tag & 1 == 0).into()
            }
        }) != 0
    }

    /// Ends a held command in the controller. The device does not have it any more.
    fn clear(&mut self, victim: Victim) -> Run<Result<(), Cause>> {
        if self.has_ended(victim) {
            return Ok(Ok(()));
        }
        let tag = self.tag(victim);
        if !self.shape.mcq {
            return Ok(self.clear_slots(1 << tag)?.map(|_| ()));
        }
        let descriptor = self.layout.descriptor(victim.lane, victim.slot);
        let cleaned = match self.clean_up(victim.lane, tag as u8, victim.lun, descriptor)? {
            Ok(cleaned) => cleaned,
            Err(cause) => return Ok(Err(cause)),
        };
        let patience = self.entry_patience(cleaned);
        let came = self.ask(|core| Action::Late {
            lane: victim.lane,
            slot: victim.slot,
            deadline: core.now.after_nanos(patience),
        })?;
        Ok(settled(cleaned, u64::try_from(came)))
    }

    /// How long to wait for the completion entry of a command that was cleaned up.
    fn entry_patience(&self, cleaned: Cleaned) -> u64 {
        match cleaned {
            Cleaned::FromController => u64::from(self.options.timeouts.clear_ms) * MS,
            Cleaned::FromRing => MS,
        }
    }

    /// MCQ: stops a queue, takes a command out of it, and starts it again. The completion entry
    /// that says so comes afterwards.
    pub(crate) fn clean_up(
        &mut self,
        lane: usize,
        tag: u8,
        lun: u8,
        descriptor: u64,
    ) -> Run<Result<Cleaned, Cause>> {
        let block = self.shared.lanes[lane].starts().registers.submission;
        let clear_ms = self.options.timeouts.clear_ms;
        let stopped = SqRts::new().with_sts(true).into_bits();
        let status = ("SQRTS", block + mcq::SQRTS);
        self.write(block + mcq::SQRTC, SqRtc::new().with_stop(true).into_bits());
        if let Err(cause) = self.until(status, stopped, stopped, clear_ms)? {
            return Ok(Err(cause));
        }
        let mut result = Ok(Cleaned::FromRing);
        if self.once(|core| core.nullify(lane, block, descriptor).into()) == 0 {
            let target = SqCti::new().with_task_tag(tag).with_lun(lun);
            self.write(block + mcq::SQCTI, target.into_bits());
            let clean = SqRtc::new().with_stop(true).with_icu(true).into_bits();
            self.write(block + mcq::SQRTC, clean);
            let done = SqRts::new().with_cus(true).into_bits();
            result = match self.until(status, done, done, clear_ms)? {
                Ok(value) => match SqRts::from_bits(value).rtc() {
                    CleanUpResult::Success => Ok(Cleaned::FromController),
                    _ => Err(Cause::Register { name: "SQRTS", value }),
                },
                Err(cause) => Err(cause),
            };
        }
        self.write(block + mcq::SQRTC, SqRtc::new().into_bits());
        if let Err(cause) = self.until(status, stopped, 0, clear_ms)? {
            return Ok(Err(cause));
        }
        Ok(result)
    }

    /// MCQ: marks the entry of a command the controller has not fetched yet. The queue is
    /// stopped and its lane paused, so nobody else touches the ring.
    fn nullify(&mut self, lane: usize, block: u32, descriptor: u64) -> bool {
        let ring = self.layout.submission_ring(lane);
        let pointer = |register| self.machine.read32(block + register) as usize;
        let (mut at, end) = (pointer(mcq::SQHP), pointer(mcq::SQTP));
        for _ in 0..ring.len() / ENTRY {
            if at == end || at >= ring.len() || !at.is_multiple_of(ENTRY) {
                return false;
            }
            let ucd = u64::from_le(ring.load64(at + UCD_OFFSET)) & !(UCD_ALIGNMENT - 1);
            if ucd == descriptor {
                let header = u32::from_le(ring.load32(at + HEADER_OFFSET));
                let null = UtrdHeader::from_bits(header).with_ct(CommandType::Nullified);
                ring.store32(at + HEADER_OFFSET, null.into_bits().to_le());
                self.machine.sync_for_device(ring.span(at, ENTRY));
                return true;
            }
            at = (at + ENTRY) % ring.len();
        }
        false
    }

    /// Holds every command of a unit and has the device end them all.
    fn end_unit(&mut self, function: TaskFunction, lun: u8) -> Run<Option<Stage>> {
        match self.resume() {
            Ok(()) => {}
            // The reset that this asks for ends the unit's commands as well.
            Err(Stop::Failed(_)) => return Ok(Some(Stage::Stop)),
            Err(Stop::Pending) => return Err(Stop::Pending),
        }
        self.effect(|core| {
            core.shared.publish_hold(lun);
        });
        self.lanes_obey()?;
        self.note(ErrorKind::UnitReset, lun.into());
        if self.quirks.has(Quirk::NoTaskManagement) {
            return Ok(Some(Stage::Stop));
        }
        Ok(Some(match self.task_done(function, lun, 0)? {
            Ok(()) => Stage::ClearUnit(lun),
            Err(_) => Stage::Stop,
        }))
    }

    /// Switches the controller off and has every lane give back what it had.
    fn stop(&mut self) -> Run<Option<Stage>> {
        self.effect(|core| {
            core.shared.orders.publish(Order::PAUSE);
        });
        self.lanes_obey()?;
        self.note(ErrorKind::HostReset, 0);
        let enable_ms = self.options.timeouts.enable_ms;
        match self.disable(enable_ms) {
            // A controller that cannot be switched off is tried again by bring-up.
            Ok(()) | Err(Stop::Failed(_)) => {}
            Err(Stop::Pending) => return Err(Stop::Pending),
        }
        self.effect(|core| {
            core.shared.orders.publish(Order::PAUSE | Order::STOP);
        });
        self.lanes_obey()?;
        Ok(Some(Stage::BringUp))
    }

    /// MCQ: cleans up the device management command and waits for its completion entry.
    pub(crate) fn clean_up_management(&mut self, tag: u8, lun: u8) -> Run<Result<(), Cause>> {
        let descriptor = self.layout.management.address();
        let cleaned = match self.clean_up(0, tag, lun, descriptor)? {
            Ok(cleaned) => cleaned,
            Err(cause) => return Ok(Err(cause)),
        };
        let patience = self.entry_patience(cleaned);
        let came =
            self.ask(|core| Action::ManagementEntry { deadline: core.now.after_nanos(patience) })?;
        Ok(settled(cleaned, u64::try_from(came)))
    }
}

/// Where a clean-up found the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleaned {
    /// Not fetched yet: its entry was marked. Whether a completion entry follows differs.
    FromRing,
    /// In the controller: a completion entry follows.
    FromController,
}

/// Whether a cleaned-up command's slot can be used again, after the wait for its entry.
fn settled(cleaned: Cleaned, came: Result<u64, Cause>) -> Result<(), Cause> {
    match came {
        Err(_) if cleaned == Cleaned::FromRing => Ok(()),
        other => other.map(|_| ()),
    }
}
