//! Recovery of a port: find out what is wrong, do the least that helps, end every command once.
//!
//! The ladder, climbed as far as necessary:
//!
//! 1. **stop**: PxCMD.ST off. What had ended before counts as ended;
//! 2. **blame**, if the device reported an error and nothing else is wrong: a command that was
//!    alone is the one that failed. Of queued ones the queued error log (10h) names it, and the
//!    device has dropped the others: they end as if reset, and their issuers try again. If the log
//!    cannot be read the failed one is unknown: all of them are retried alone, and each reports for
//!    itself. If the HBA keeps devices behind a multiplier apart nothing is stopped for this: the
//!    error of that device is cleared (PxFBS.DEC), and the commands of the others continue;
//! 3. **COMRESET**, up to [`TRIES`] times, for everything else: an interface or bus error, a
//!    command past its deadline, a link that went and came. It certainly ends what the device had.
//!    The device is identified again; if another one or none is found, waiting commands end;
//! 4. **HBA reset**, if the list does not stop, which no COMRESET changes, or if the device does
//!    not come back: the host does it, for all ports. Nothing else helps a list, so that may take
//!    several; for a device the others are disturbed once;
//! 5. **gone**.
//!
//! A multiplier that reports changes at its device ports is not an error: the list drains, the
//! ports are surveyed, and new devices are brought up while nothing else is in the HBA.

use crate::error::{Cause, Error};
use crate::hba_resets::HbaResets;
use crate::history::ErrorKind;
use crate::init::{BringUp, Core, Device, Step};
use crate::lane::UNITS;
use crate::multiplier::Survey;
use crate::quirks::Quirk;
use crate::shared::cause;
use crate::slots::bits;
use crate::steps::{Own, Run, SENSE_BYTES};
use alloc::vec::Vec;
use flysch_api::command::{AtaStatus, Ended};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::ata::identify::set84;
use flysch_wire::ata::log::{self, NcqError};
use flysch_wire::ata::registers::{
    Fbs, PX_CI, PX_CMD, PX_FBS, PX_IS, PX_SACT, PX_SERR, PX_SSTS, PX_TFD, Ssts, Tfd, det,
    interrupt, status,
};
use flysch_wire::ata::{Identify, SECTOR};

/// COMRESETs before the HBA is reset.
const TRIES: u8 = 3;
/// Pause before another COMRESET, nanoseconds; it doubles.
const REST: u64 = 100_000_000;
/// How long the list may take to drain before device ports are surveyed, ms.
const DRAIN_MS: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Drain,
    Survey,
    Units,
    Look,
    Stop,
    Blame,
    Restart,
    Comreset,
    Rest,
    BringUp,
    Hba,
}

/// How a recovery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovered {
    /// The port works.
    Up,
    /// There is no device.
    Empty,
    /// The host must reset the HBA; registers must not be touched until then.
    Hba,
}

/// A recovery under way.
#[derive(Debug)]
pub(crate) struct Recovery {
    stage: Stage,
    tries: u8,
    bring_up: BringUp,
    /// A command is past its deadline, or the caller asked for a reset.
    overdue: bool,
    /// Only a COMRESET helps.
    hard: bool,
    /// The list did not stop: only a reset of the HBA helps.
    is_stuck: bool,
    /// PxIS and PxTFD as found.
    interrupts: u32,
    tfd: u32,
    /// The device with the error, and whether the HBA attributes the error to that one alone.
    unit: u8,
    is_single: bool,
    /// The devices before the recovery, by their port of a multiplier.
    before: Vec<Option<Identify>>,
    /// Device ports being waited for, a bit each.
    awaited: u32,
    /// Why the last bring-up failed.
    last: Option<Error>,
}

impl Recovery {
    /// Starts by finding out what is wrong.
    pub(crate) fn new(overdue: bool) -> Self {
        Self {
            stage: Stage::Look,
            tries: 0,
            bring_up: BringUp::default(),
            overdue,
            hard: false,
            is_stuck: false,
            interrupts: 0,
            tfd: 0,
            unit: 0,
            is_single: false,
            before: Vec::new(),
            awaited: 0,
            last: None,
        }
    }

    /// Starts with a survey of a multiplier's device ports.
    pub(crate) fn notified() -> Self {
        Self { stage: Stage::Drain, ..Self::new(false) }
    }

    /// Starts with COMRESET, at the caller's request.
    pub(crate) fn reset() -> Self {
        Self { overdue: true, ..Self::new(true) }
    }

    /// The step of bring-up that is under way.
    pub(crate) fn step(&self) -> Option<&'static Step> {
        match self.stage {
            Stage::BringUp | Stage::Units => self.bring_up.step(),
            _ => None,
        }
    }

    /// Starts with bring-up: for the first time, or because the HBA was reset.
    pub(crate) fn bring_up() -> Self {
        Self { stage: Stage::BringUp, ..Self::new(false) }
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Recovered> {
        if self.before.is_empty() && self.tries == 0 {
            self.before.clone_from(&core.known);
        }
        loop {
            let next = match self.stage {
                Stage::Drain => match settled(self.drain(core))? {
                    Ok(true) => Stage::Survey,
                    Ok(false) => Stage::Look,
                    Err(_) => self.harden(core),
                },
                Stage::Survey => match settled(self.survey(core))? {
                    Ok(stage) => stage,
                    Err(_) => self.harden(core),
                },
                Stage::Units => match self.try_units(core)? {
                    Ok(recovered) => return Ok(recovered),
                    Err(stage) => stage,
                },
                Stage::Look => self.look(core),
                Stage::Stop => self.stop(core)?,
                Stage::Blame => self.blame(core)?,
                Stage::Restart if self.is_single => {
                    core.steps.script.turn_page();
                    return Ok(Recovered::Up);
                }
                Stage::Restart => match core.start_list()? {
                    Ok(()) => {
                        core.steps.script.turn_page();
                        return Ok(Recovered::Up);
                    }
                    Err(_) => Stage::Comreset,
                },
                Stage::Comreset => self.comreset(core),
                Stage::Rest => {
                    core.steps.sleep(REST << self.tries.min(8))?;
                    Stage::Comreset
                }
                Stage::BringUp => match self.try_bring_up(core)? {
                    Ok(recovered) => return Ok(recovered),
                    Err(stage) => stage,
                },
                Stage::Hba => {
                    core.steps.script.abandon();
                    if !self.may_reset_hba(core) {
                        core.note(ErrorKind::Gone, 0);
                        return Err(self.last.unwrap_or(Error::Gone).into());
                    }
                    core.steps.shared.orders.report(cause::HBA_RESET);
                    return Ok(Recovered::Hba);
                }
            };
            core.steps.script.turn_page();
            self.stage = next;
        }
    }

    /// Whether a reset of the HBA may help; takes one of the resets left.
    fn may_reset_hba<M: Machine>(&self, core: &mut Core<M>) -> bool {
        // A port whose device never came up must not disturb the others.
        let is_worth_it = self.is_stuck || self.had_device() || self.last.is_none();
        is_worth_it
            && !core.hba.quirks.has(Quirk::NoHbaReset)
            && core.hba_resets.take(self.is_stuck)
    }

    /// Handles a list that did not stop, for this cause.
    fn unstopped<M: Machine>(&mut self, core: &mut Core<M>, why: Cause) -> Stage {
        match why {
            Cause::Register { value, .. } => {
                core.note(ErrorKind::StopFailed, value);
                self.is_stuck = true;
            }
            _ => core.steps.shared.orders.report(cause::REMOVED),
        }
        Stage::Hba
    }

    /// Takes harder measures: finding out was not enough.
    fn harden<M: Machine>(&mut self, core: &mut Core<M>) -> Stage {
        core.steps.script.abandon();
        self.hard = true;
        Stage::Look
    }

    fn had_device(&self) -> bool {
        self.before.iter().any(Option::is_some)
    }

    /// Lets the commands in the HBA end before the device ports are surveyed: the HBA may only be
    /// able to address one device at a time. What does not end soon is lost with its device.
    fn drain<M: Machine>(&mut self, core: &mut Core<M>) -> Run<bool> {
        let issued = core.steps.once(|_| pack(core.lane.issued()));
        let (queued, alone) = unpack(issued);
        for (name, mask) in [(("PxSACT", PX_SACT), queued), (("PxCI", PX_CI), queued | alone)] {
            match core.steps.until(name, mask, 0, DRAIN_MS)? {
                Ok(_) => {}
                Err(_) => {
                    // Unless a device reports an error: handle that first, then drain again.
                    self.hard = core.steps.read(PX_IS) & interrupt::TFES == 0;
                    return Ok(false);
                }
            }
        }
        if core.steps.first() {
            let now = core.steps.script.now();
            core.lane.take_in(now);
        }
        core.switch_off()?;
        Ok(true)
    }

    /// Surveys the device ports that changed. A device that was there before is waited for.
    fn survey<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Stage> {
        let Survey { changed, present } = core.survey(self.awaited)?;
        let was = |unit: &u8| self.before.get(usize::from(*unit)).is_some_and(Option::is_some);
        let missing = (0..UNITS as u8).filter(|unit| (changed & !present) >> unit & 1 != 0);
        let missing = missing.filter(was).fold(0, |mask, unit| mask | 1 << unit);
        if core.steps.first() {
            core.note(ErrorKind::Notified, changed);
        }
        if missing != 0 && self.tries + 1 < TRIES {
            core.steps.sleep(REST << self.tries)?;
            self.tries += 1;
            self.awaited = changed;
            return Ok(Stage::Survey);
        }
        let present = core.reset_links(changed)?;
        if core.steps.first() {
            for unit in (0..UNITS as u8).filter(|unit| (changed & !present) >> unit & 1 != 0) {
                core.forget(unit);
            }
        }
        self.bring_up = BringUp::behind(present);
        Ok(Stage::Units)
    }

    /// Brings up the devices that came.
    fn try_units<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Result<Recovered, Stage>> {
        match settled(self.bring_up.run(core))? {
            // A device that is there but did not come up may do so after a COMRESET of the port.
            Ok(_) if self.misses(core) && self.tries + 1 < TRIES => {
                self.tries += 1;
                Ok(Err(Stage::Rest))
            }
            Ok(_) => {
                self.compare(core);
                Ok(Ok(Recovered::Up))
            }
            Err(error) => {
                self.last = Some(error);
                Ok(Err(self.harden(core)))
            }
        }
    }

    /// Ends the commands waiting for a device that is gone or has been replaced.
    fn compare<M: Machine>(&self, core: &mut Core<M>) {
        for (unit, before) in (0..UNITS as u8).zip(&self.before) {
            let after = core.device(unit).map(|device| &device.identify);
            let kind = match (before, after) {
                (None, None) => continue,
                (Some(before), Some(after)) if before.is_same_device(after) => continue,
                (_, Some(_)) => ErrorKind::Attached,
                (Some(_), None) => ErrorKind::Detached,
            };
            core.note(kind, core.generation);
            let now = core.steps.script.now();
            core.lane.end_waiting(unit, Ended::NoUnit, now);
        }
        let known = |device: &Option<Device>| device.as_ref().map(|d| d.identify.clone());
        core.known = core.devices.iter().map(known).collect();
    }

    /// Finds out what is wrong.
    fn look<M: Machine>(&mut self, core: &mut Core<M>) -> Stage {
        self.interrupts = core.steps.read(PX_IS);
        if core.steps.switches {
            let fbs = Fbs::from_bits(core.steps.read(PX_FBS));
            (self.unit, self.is_single) = (fbs.dwe(), fbs.sde());
            core.steps.effect(|steps| steps.name(fbs.dwe()));
        } else {
            self.unit = core.lane.turn();
        }
        self.tfd = core.steps.read(PX_TFD);
        let ssts = core.steps.read(PX_SSTS);
        if core.steps.first() {
            let (interrupts, tfd, overdue) = (self.interrupts, self.tfd, self.overdue);
            if interrupts == u32::MAX {
                core.note(ErrorKind::Removed, interrupts);
                core.steps.shared.orders.report(cause::REMOVED);
            } else {
                let now = core.steps.script.now();
                core.lane.take_in(now);
                if interrupts & interrupt::TFES != 0 {
                    core.note(ErrorKind::Device, tfd);
                }
                if interrupts
                    & (interrupt::IFS | interrupt::INFS | interrupt::IPMS | interrupt::UFS)
                    != 0
                {
                    core.note(ErrorKind::Interface, interrupts);
                }
                if interrupts & (interrupt::HBDS | interrupt::HBFS | interrupt::OFS) != 0 {
                    core.note(ErrorKind::Bus, interrupts);
                }
                if interrupts & core.changes != 0 {
                    core.note(ErrorKind::LinkChange, ssts);
                }
                if overdue {
                    let (queued, alone) = core.lane.issued();
                    core.note(ErrorKind::Overdue, queued | alone);
                }
            }
        }
        Stage::Stop
    }

    fn stop<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Stage> {
        if self.interrupts == u32::MAX {
            return Ok(Stage::Hba);
        }
        let fatal = interrupt::ERRORS & !interrupt::TFES | core.changes;
        let ssts = Ssts::from_bits(core.steps.read(PX_SSTS));
        let plain = self.interrupts & fatal == 0
            && !(self.overdue || self.hard)
            && ssts.det() == det::READY;
        let told = self.interrupts & interrupt::TFES != 0;
        self.is_single &= plain && told;
        if self.is_single {
            return Ok(Stage::Blame);
        }
        match core.stop_list()? {
            Ok(()) => {}
            Err(cause) => return Ok(self.unstopped(core, cause)),
        }
        if core.steps.first() {
            core.note(ErrorKind::PortStop, 0);
        }
        // With several devices it is unknown whose error it is.
        let is_blamable = plain && !core.steps.switches;
        Ok(match (is_blamable, told) {
            (true, true) => Stage::Blame,
            (true, false) => Stage::Restart,
            (false, _) => Stage::Comreset,
        })
    }

    /// Finds out which command failed.
    fn blame<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Stage> {
        let unit = self.unit;
        core.steps.unit = unit;
        if self.is_single {
            if core.clear_device_error(unit)?.is_err() {
                self.hard = true;
                return Ok(Stage::Stop);
            }
            if core.steps.first() {
                core.note(ErrorKind::DeviceCleared, unit.into());
            }
        }
        let slots = core.steps.once(|_| {
            let (queued, alone) = core.lane.issued();
            let its = core.lane.of_unit(unit);
            pack((queued & its, alone & its))
        });
        let (queued, alone) = unpack(slots);
        if alone != 0 {
            let sense = self.ask_sense(core)?;
            if core.steps.first() {
                let status = AtaStatus { sense, ..self.registers(core) };
                bits(alone).for_each(|slot| core.lane.end_answered(slot, status));
            }
        } else if queued.count_ones() > 0 {
            match self.ask_log(core)? {
                Some(entry) if !entry.not_queued && queued >> entry.tag & 1 != 0 => {
                    if core.steps.first() {
                        core.lane.end_answered(entry.tag.into(), of_log(&entry));
                        let now = core.steps.script.now();
                        core.lane.end_issued(queued, (Ended::Reset, 0), now);
                    }
                }
                _ => {
                    if core.steps.first() {
                        core.note(ErrorKind::NoLog, queued);
                        let now = core.steps.script.now();
                        core.lane.isolate(unit, now);
                    }
                }
            }
        }
        if self.is_single {
            // The log could not be read, which is another error of the device.
            let fbs = Fbs::from_bits(core.steps.read(PX_FBS));
            if fbs.sde() && core.clear_device_error(fbs.dwe())?.is_err() {
                self.hard = true;
                return Ok(Stage::Stop);
            }
            return Ok(Stage::Restart);
        }
        // Reading the log leaves the list running, if it could be read at all.
        if let Err(cause) = core.stop_list()? {
            return Ok(self.unstopped(core, cause));
        }
        if core.device_quirks().has(Quirk::ErrorSticks) {
            if core.start_list()?.is_err() {
                return Ok(Stage::Comreset);
            }
            if settled(core.clear_error())?.is_err() {
                return Ok(Stage::Comreset);
            }
        }
        Ok(Stage::Restart)
    }

    /// Sense key, code and qualifier of a packet that ended with CHK (REQUEST SENSE); zeros if
    /// there are none, or they cannot be read.
    fn ask_sense<M: Machine>(&mut self, core: &mut Core<M>) -> Run<[u8; 3]> {
        let none = [0; 3];
        if !core.lane.ways(self.unit).packets || !self.may_ask(core)? {
            return Ok(none);
        }
        let own = Own::request_sense(core.options.timeouts.command_ms);
        Ok(match core.steps.command(own)? {
            Ok(fis) if fis.status & (status::ERR | status::DF) == 0 => {
                let data: [u8; SENSE_BYTES] = core.steps.own_data();
                match data[0] & 0x7F {
                    // Fixed format, current or deferred (SPC-5 4.4.3).
                    0x70 | 0x71 => [data[2] & 0xF, data[12], data[13]],
                    _ => none,
                }
            }
            _ => none,
        })
    }

    /// Whether the device can be queried, with the list running.
    fn may_ask<M: Machine>(&self, core: &mut Core<M>) -> Run<bool> {
        Ok(self.is_single || core.start_list()?.is_ok())
    }

    /// What the device reported in its last FIS.
    fn registers<M: Machine>(&self, core: &Core<M>) -> AtaStatus {
        let fis = core.steps.last_fis(self.unit);
        let tfd = Tfd::from_bits(self.tfd);
        AtaStatus { status: tfd.status(), error: tfd.error(), lba: fis.lba, sense: [0; 3] }
    }

    /// The queued error log, if it can be read.
    fn ask_log<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Option<NcqError>> {
        let has = core.device(self.unit).is_some_and(|device| {
            device.identify.supports84(set84::LOGS) && !device.quirks.has(Quirk::NoErrorLog)
        });
        if !has || !self.may_ask(core)? {
            return Ok(None);
        }
        let own = core.own_log(log::address::NCQ_ERROR, 0);
        match core.steps.command(own)? {
            Ok(fis) if fis.status & (status::ERR | status::DF) == 0 => {
                let page: [u8; SECTOR] = core.steps.own_data();
                Ok(NcqError::parse(&page).ok())
            }
            _ => Ok(None),
        }
    }

    /// Ends what the device had: it has nothing left after this stage, and nothing transfers data
    /// while the list is stopped.
    fn comreset<M: Machine>(&mut self, core: &mut Core<M>) -> Stage {
        if core.steps.first() {
            let (interrupts, now) = (self.interrupts, core.steps.script.now());
            let hba = interrupts & (interrupt::ERRORS & !interrupt::TFES);
            let cause = if hba != 0 { Ended::Host } else { Ended::Reset };
            core.lane.end_issued(u32::MAX, (cause, hba), now);
            core.note(ErrorKind::Comreset, u32::from(self.tries) + 1);
        }
        self.bring_up = BringUp::again(self.tries > 0);
        Stage::BringUp
    }

    fn try_bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Result<Recovered, Stage>> {
        match settled(self.bring_up.run(core))? {
            // A device that was there before is tried more than once.
            Ok(true) if self.misses(core) && self.tries + 1 < TRIES => {
                self.tries += 1;
                Ok(Err(Stage::Rest))
            }
            Ok(true) => {
                core.hba_resets = HbaResets::default();
                self.compare(core);
                Ok(Ok(Recovered::Up))
            }
            Ok(false) if self.had_device() && self.tries + 1 < TRIES => {
                self.tries += 1;
                Ok(Err(Stage::Rest))
            }
            Ok(false) => {
                if self.had_device() {
                    core.note(ErrorKind::Detached, 0);
                }
                let now = core.steps.script.now();
                core.lane.end_all(Ended::NoUnit, now);
                Ok(Ok(Recovered::Empty))
            }
            Err(error) => {
                core.steps.script.abandon();
                self.tries += 1;
                self.last = Some(error);
                if matches!(error, Error::Step { cause: Cause::Signature(_), .. }) {
                    return Err(error.into());
                }
                if let Some(cause @ (Cause::Removed | Cause::Register { name: "PxCMD", .. })) =
                    error.cause()
                {
                    return Ok(Err(self.unstopped(core, cause)));
                }
                Ok(Err(if self.tries < TRIES { Stage::Rest } else { Stage::Hba }))
            }
        }
    }
}

impl Recovery {
    /// Whether a device behind the multiplier is missing that was there before.
    fn misses<M: Machine>(&self, core: &Core<M>) -> bool {
        let is_away = |(unit, before): (u8, &Option<Identify>)| {
            before.is_some() && core.device(unit).is_none()
        };
        core.multiplier.is_some() && (0..).zip(&self.before).any(is_away)
    }
}

/// Packs the slots of queued commands and of those that are alone into one number.
const fn pack((queued, alone): (u32, u32)) -> u64 {
    (queued as u64) << 32 | alone as u64
}

const fn unpack(slots: u64) -> (u32, u32) {
    ((slots >> 32) as u32, slots as u32)
}

/// The status that the log reports for the failed command.
fn of_log(entry: &NcqError) -> AtaStatus {
    AtaStatus { status: entry.status, error: entry.error, lba: entry.lba, sense: entry.sense }
}

impl<M: Machine> Core<M> {
    /// Whether a device communicates.
    pub(crate) fn is_present(&self) -> bool {
        let ssts = Ssts::from_bits(self.steps.machine.read32(self.steps.base + PX_SSTS));
        ssts.det() == det::READY && ssts.into_bits() != u32::MAX
    }

    /// Clears what the port reported while it had no device.
    pub(crate) fn forget_changes(&mut self) {
        let (machine, base) = (&self.steps.machine, self.steps.base);
        machine.write32(base + PX_SERR, u32::MAX);
        machine.write32(base + PX_IS, u32::MAX);
    }

    /// Gives up the port: its list does not run, and nothing interrupts.
    pub(crate) fn give_up(&mut self) {
        let (machine, base) = (&self.steps.machine, self.steps.base);
        let cmd = self.command_register();
        if cmd.into_bits() != u32::MAX {
            machine.write32(base + PX_CMD, cmd.with_st(false).into_bits());
            machine.write32(base + PX_SERR, u32::MAX);
        }
    }
}
