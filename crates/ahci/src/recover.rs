//! Recovery of a port: find out what is wrong, do the least that helps, end every command once.
//!
//! The ladder, climbed as far as necessary:
//!
//! 1. **stop**: PxCMD.ST off. Commands that had already ended count as ended;
//! 2. **blame**, if the device reported an error and nothing else is wrong: a command that was
//!    alone is the one that failed. Of queued ones, the queued error log (10h) names it, and the
//!    device has dropped the others: they end as if reset, and their issuers try again. If the log
//!    cannot be read, the failed one is unknown: all of them are retried alone, and each reports
//!    for itself. If the HBA keeps devices behind a multiplier apart, nothing is stopped for this:
//!    the error of that device is cleared (PxFBS.DEC), and the commands of the others continue;
//! 3. **COMRESET**, up to [`TRIES`] times, for everything else: an interface or bus error, a
//!    command past its deadline, a link that went and came. It certainly ends what the device had.
//!    The device is identified again; if another one or none is found, waiting commands end;
//! 4. **HBA reset**, if the list does not stop, which no COMRESET changes, or if the device does
//!    not come back: the host does it, for all ports. Nothing else helps a list, so that may take
//!    several; for the sake of a device, the others are disturbed only once;
//! 5. **gone**.
//!
//! A multiplier that reports changes at its device ports is not an error: the list drains, the
//! ports are surveyed, and new devices are brought up while nothing else is in the HBA.

use crate::channel::{Own, Run, SENSE_BYTES};
use crate::error::{AhciError, Cause};
use crate::hba_resets::HbaResets;
use crate::history::ErrorKind;
use crate::init::{BringUp, Core, Step};
use crate::lane::UNITS;
use crate::multiplier::{self, Survey};
use crate::quirks::Quirk;
use crate::shared::cause;
use crate::slots::bits;
use alloc::vec::Vec;
use flysch_api::command::{AtaStatus, Ended};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::ata::identify::set84;
use flysch_wire::ata::log::{self, NcqError};
use flysch_wire::ata::registers::{
    Fbs, PX_CI, PX_FBS, PX_IS, PX_SACT, PX_SSTS, PX_TFD, Ssts, Tfd, det, interrupt, status,
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
    /// The devices before the recovery, by multiplier port.
    before: Vec<Option<Identify>>,
    /// Device ports being waited for, a bit each.
    awaited: u32,
    /// Why the last bring-up failed.
    last: Option<AhciError>,
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

    /// Leads to COMRESET, at the caller's request.
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
            self.before.clone_from(&core.attached.known);
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
                    core.channel.script.turn_page();
                    return Ok(Recovered::Up);
                }
                Stage::Restart => match core.channel.start_list()? {
                    Ok(()) => {
                        core.channel.script.turn_page();
                        return Ok(Recovered::Up);
                    }
                    Err(_) => Stage::Comreset,
                },
                Stage::Comreset => self.comreset(core),
                Stage::Rest => {
                    core.channel.sleep(REST << self.tries.min(8))?;
                    Stage::Comreset
                }
                Stage::BringUp => match self.try_bring_up(core)? {
                    Ok(recovered) => return Ok(recovered),
                    Err(stage) => stage,
                },
                Stage::Hba => {
                    core.channel.script.abandon();
                    if !self.may_reset_hba(core) {
                        core.channel.log(ErrorKind::Gone, 0);
                        return Err(self.last.unwrap_or(AhciError::Gone).into());
                    }
                    core.channel.shared.orders.report(cause::HBA_RESET);
                    return Ok(Recovered::Hba);
                }
            };
            core.channel.script.turn_page();
            self.stage = next;
        }
    }

    /// Whether a reset of the HBA may help; takes one of the resets left.
    fn may_reset_hba<M: Machine>(&self, core: &mut Core<M>) -> bool {
        // A port whose device never came up must not disturb the others.
        let is_worth_it = self.is_stuck || self.had_device() || self.last.is_none();
        is_worth_it
            && !core.channel.hba.quirks.has(Quirk::NoHbaReset)
            && core.hba_resets.take(self.is_stuck)
    }

    /// Handles a list that did not stop, for this cause.
    fn unstopped<M: Machine>(&mut self, core: &mut Core<M>, why: Cause) -> Stage {
        match why {
            Cause::Register { value, .. } => {
                core.channel.log(ErrorKind::StopFailed, value);
                self.is_stuck = true;
            }
            _ => core.channel.shared.orders.report(cause::REMOVED),
        }
        Stage::Hba
    }

    /// Takes harsher measures: finding out was not enough.
    fn harden<M: Machine>(&mut self, core: &mut Core<M>) -> Stage {
        core.channel.script.abandon();
        self.hard = true;
        Stage::Look
    }

    fn had_device(&self) -> bool {
        self.before.iter().any(Option::is_some)
    }

    /// Lets the commands in the HBA end before the device ports are surveyed: the HBA may only be
    /// able to address one device at a time. What does not end soon is lost with its device.
    fn drain<M: Machine>(&mut self, core: &mut Core<M>) -> Run<bool> {
        let issued = core.channel.once(|_| pack(core.lane.issued()));
        let (queued, alone) = unpack(issued);
        for (name, mask) in [(("PxSACT", PX_SACT), queued), (("PxCI", PX_CI), queued | alone)] {
            match core.channel.until(name, mask, 0, DRAIN_MS)? {
                Ok(_) => {}
                Err(_) => {
                    // Unless a device reports an error: handle that first, then drain again.
                    self.hard = core.channel.read(PX_IS) & interrupt::TFES == 0;
                    return Ok(false);
                }
            }
        }
        if core.channel.first() {
            let now = core.channel.script.now();
            core.lane.take_in(now);
        }
        multiplier::switch_off(&mut core.channel)?;
        Ok(true)
    }

    /// Surveys the device ports that changed. A device that was there before is waited for.
    fn survey<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Stage> {
        let ports = core.attached.multiplier.as_ref().map_or(0, |multiplier| multiplier.ports);
        let Survey { changed, present } =
            multiplier::survey(&mut core.channel, ports, self.awaited)?;
        let was = |unit: &u8| self.before.get(usize::from(*unit)).is_some_and(Option::is_some);
        let missing = (0..UNITS as u8).filter(|unit| (changed & !present) >> unit & 1 != 0);
        let missing = missing.filter(was).fold(0, |mask, unit| mask | 1 << unit);
        core.channel.note(ErrorKind::Notified, changed);
        if missing != 0 && self.tries + 1 < TRIES {
            core.channel.sleep(REST << self.tries)?;
            self.tries += 1;
            self.awaited = changed;
            return Ok(Stage::Survey);
        }
        let present = multiplier::reset_links(&mut core.channel, changed)?;
        if core.channel.first() {
            for unit in (0..UNITS as u8).filter(|unit| (changed & !present) >> unit & 1 != 0) {
                core.attached.forget(&mut core.lane, unit);
            }
        }
        self.bring_up = BringUp::behind(present);
        Ok(Stage::Units)
    }

    /// Brings up the devices that came.
    fn try_units<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Result<Recovered, Stage>> {
        match settled(self.bring_up.run(core))? {
            // A device that is there but did not come up may do so after a COMRESET of the port.
            Ok(_) if core.attached.misses(&self.before) && self.tries + 1 < TRIES => {
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
            let after = core.attached.device(unit).map(|device| &device.identify);
            let kind = match (before, after) {
                (None, None) => continue,
                (Some(before), Some(after)) if before.is_same_device(after) => continue,
                (_, Some(_)) => ErrorKind::Attached,
                (Some(_), None) => ErrorKind::Detached,
            };
            core.channel.log(kind, core.attached.generation);
            core.lane.end_waiting(unit, Ended::NoUnit, core.channel.script.now());
        }
        core.attached.know();
    }

    /// Finds out what is wrong.
    fn look<M: Machine>(&mut self, core: &mut Core<M>) -> Stage {
        self.interrupts = core.channel.read(PX_IS);
        if core.channel.switches {
            let fbs = Fbs::from_bits(core.channel.read(PX_FBS));
            (self.unit, self.is_single) = (fbs.dwe(), fbs.sde());
            core.channel.effect(|channel| channel.name(fbs.dwe()));
        } else {
            self.unit = core.lane.turn();
        }
        self.tfd = core.channel.read(PX_TFD);
        let ssts = core.channel.read(PX_SSTS);
        if core.channel.first() {
            let (interrupts, tfd, overdue) = (self.interrupts, self.tfd, self.overdue);
            if interrupts == u32::MAX {
                core.channel.log(ErrorKind::Removed, interrupts);
                core.channel.shared.orders.report(cause::REMOVED);
            } else {
                let now = core.channel.script.now();
                core.lane.take_in(now);
                if interrupts & interrupt::TFES != 0 {
                    core.channel.log(ErrorKind::Device, tfd);
                }
                if interrupts
                    & (interrupt::IFS | interrupt::INFS | interrupt::IPMS | interrupt::UFS)
                    != 0
                {
                    core.channel.log(ErrorKind::Interface, interrupts);
                }
                if interrupts & (interrupt::HBDS | interrupt::HBFS | interrupt::OFS) != 0 {
                    core.channel.log(ErrorKind::Bus, interrupts);
                }
                if interrupts & core.link.changes != 0 {
                    core.channel.log(ErrorKind::LinkChange, ssts);
                }
                if overdue {
                    let (queued, alone) = core.lane.issued();
                    core.channel.log(ErrorKind::Overdue, queued | alone);
                }
            }
        }
        Stage::Stop
    }

    fn stop<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Stage> {
        if self.interrupts == u32::MAX {
            return Ok(Stage::Hba);
        }
        let fatal = interrupt::ERRORS & !interrupt::TFES | core.link.changes;
        let ssts = Ssts::from_bits(core.channel.read(PX_SSTS));
        let plain = self.interrupts & fatal == 0
            && !(self.overdue || self.hard)
            && ssts.det() == det::READY;
        let told = self.interrupts & interrupt::TFES != 0;
        self.is_single &= plain && told;
        if self.is_single {
            return Ok(Stage::Blame);
        }
        match core.channel.stop_list()? {
            Ok(()) => {}
            Err(cause) => return Ok(self.unstopped(core, cause)),
        }
        core.channel.note(ErrorKind::PortStop, 0);
        // With several devices it is unknown whose error it is.
        let is_blamable = plain && !core.channel.switches;
        Ok(match (is_blamable, told) {
            (true, true) => Stage::Blame,
            (true, false) => Stage::Restart,
            (false, _) => Stage::Comreset,
        })
    }

    /// Finds out which command failed.
    fn blame<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Stage> {
        let unit = self.unit;
        core.channel.unit = unit;
        if self.is_single {
            if multiplier::clear_device_error(&mut core.channel, unit)?.is_err() {
                self.hard = true;
                return Ok(Stage::Stop);
            }
            core.channel.note(ErrorKind::DeviceCleared, unit.into());
        }
        let slots = core.channel.once(|_| {
            let (queued, alone) = core.lane.issued();
            let its = core.lane.of_unit(unit);
            pack((queued & its, alone & its))
        });
        let (queued, alone) = unpack(slots);
        if alone != 0 {
            let sense = self.ask_sense(core)?;
            if core.channel.first() {
                let status = AtaStatus { sense, ..self.registers(core) };
                bits(alone).for_each(|slot| core.lane.end_answered(slot, status));
            }
        } else if queued.count_ones() > 0 {
            match self.ask_log(core)? {
                Some(entry) if !entry.not_queued && queued >> entry.tag & 1 != 0 => {
                    if core.channel.first() {
                        core.lane.end_answered(entry.tag.into(), of_log(&entry));
                        let now = core.channel.script.now();
                        core.lane.end_issued(queued, (Ended::Reset, 0), now);
                    }
                }
                _ => {
                    if core.channel.first() {
                        core.channel.log(ErrorKind::NoLog, queued);
                        let now = core.channel.script.now();
                        core.lane.isolate(unit, now);
                    }
                }
            }
        }
        if self.is_single {
            // The log could not be read, which is another error of the device.
            let fbs = Fbs::from_bits(core.channel.read(PX_FBS));
            if fbs.sde() && multiplier::clear_device_error(&mut core.channel, fbs.dwe())?.is_err() {
                self.hard = true;
                return Ok(Stage::Stop);
            }
            return Ok(Stage::Restart);
        }
        // Reading the log leaves the list running, if the log could be read at all.
        if let Err(cause) = core.channel.stop_list()? {
            return Ok(self.unstopped(core, cause));
        }
        if core.attached.quirks(&core.channel).has(Quirk::ErrorSticks) {
            if core.channel.start_list()?.is_err() {
                return Ok(Stage::Comreset);
            }
            if settled(core.channel.clear_error())?.is_err() {
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
        let own = Own::request_sense(core.channel.options.timeouts.command_ms);
        Ok(match core.channel.command(own)? {
            Ok(fis) if fis.status & (status::ERR | status::DF) == 0 => {
                let data: [u8; SENSE_BYTES] = core.channel.own_data();
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
        Ok(self.is_single || core.channel.start_list()?.is_ok())
    }

    /// What the device reported in its last FIS.
    fn registers<M: Machine>(&self, core: &Core<M>) -> AtaStatus {
        let fis = core.channel.last_fis(self.unit);
        let tfd = Tfd::from_bits(self.tfd);
        AtaStatus { status: tfd.status(), error: tfd.error(), lba: fis.lba, sense: [0; 3] }
    }

    /// The queued error log, if it can be read.
    fn ask_log<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Option<NcqError>> {
        let has = core.attached.device(self.unit).is_some_and(|device| {
            device.identify.supports84(set84::LOGS) && !device.quirks.has(Quirk::NoErrorLog)
        });
        if !has || !self.may_ask(core)? {
            return Ok(None);
        }
        let own = core.channel.own_log(log::address::NCQ_ERROR, 0);
        match core.channel.command(own)? {
            Ok(fis) if fis.status & (status::ERR | status::DF) == 0 => {
                let page: [u8; SECTOR] = core.channel.own_data();
                Ok(NcqError::parse(&page).ok())
            }
            _ => Ok(None),
        }
    }

    /// Ends what the device had: it has nothing left after this stage, and nothing transfers data
    /// while the list is stopped.
    fn comreset<M: Machine>(&mut self, core: &mut Core<M>) -> Stage {
        if core.channel.first() {
            let (interrupts, now) = (self.interrupts, core.channel.script.now());
            let hba = interrupts & (interrupt::ERRORS & !interrupt::TFES);
            let cause = if hba != 0 { Ended::Host } else { Ended::Reset };
            core.lane.end_issued(u32::MAX, (cause, hba), now);
            core.channel.log(ErrorKind::Comreset, u32::from(self.tries) + 1);
        }
        self.bring_up = BringUp::again(self.tries > 0);
        Stage::BringUp
    }

    fn try_bring_up<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Result<Recovered, Stage>> {
        match settled(self.bring_up.run(core))? {
            // A device that was there before is tried more than once.
            Ok(true) if core.attached.misses(&self.before) && self.tries + 1 < TRIES => {
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
                    core.channel.log(ErrorKind::Detached, 0);
                }
                let now = core.channel.script.now();
                core.lane.end_all(Ended::NoUnit, now);
                Ok(Ok(Recovered::Empty))
            }
            Err(error) => {
                core.channel.script.abandon();
                self.tries += 1;
                self.last = Some(error);
                if matches!(error, AhciError::Step { cause: Cause::Signature(_), .. }) {
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
