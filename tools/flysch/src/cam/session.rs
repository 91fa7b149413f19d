//! One device of a machine, and the ways to send it commands.

use flysch_ahci::{AtaCommand, AtaReply};
use flysch_api::command::{Cdb as RawCdb, Direction, Ended, NotStarted};
use flysch_cam::debug::{Answer, Flags, Request, Tracer};
use flysch_cam::xpt::Unit;
use flysch_nvme::{AdminCommand, AdminReply};
use flysch_rig::{ScsiCommand, ScsiData, ScsiReply, Stack};
use flysch_wire::mmc::CardStatus;
use flysch_wire::scsi::cdb::Opcode;
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::scsi::{Cdb, Sense, SenseKey, Status};

use super::machine::Opened;
use super::{Device, Machine, told};
use crate::failure::Failure;
use crate::output::Output;

/// Default time-out of a command, milliseconds (camcontrol's).
pub(super) const TIMEOUT_MS: u32 = 5_000;

/// A device, and where results go.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(super) machine: Machine,
    pub(super) unit: Unit,
    pub(super) output: &'a mut Output,
    retries: u32,
    timeout_ms: Option<u32>,
}

/// A device's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Scsi,
    Ata,
    Nvme,
    Mmc,
}

impl Language {
    /// The protocol of the devices behind a stack.
    pub(super) fn of(stack: &mut Stack) -> Self {
        if stack.control().is_some() {
            Self::Scsi
        } else if stack.ahci().is_some() {
            Self::Ata
        } else if stack.nvme().is_some() {
            Self::Nvme
        } else {
            Self::Mmc
        }
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(
        machine: Machine,
        device: &Device,
        output: &'a mut Output,
    ) -> Result<Self, Failure> {
        let named = device.name.as_ref().zip(device.unit);
        let named = named.map(|(name, unit)| format!("{name}{unit}"));
        let unit = machine.find(named.as_deref().or(device.device.as_deref()))?;
        let timeout_ms = device.timeout.map(|seconds| seconds * 1000);
        Ok(Self { machine, unit, output, retries: device.retries, timeout_ms })
    }

    /// What passes commands through.
    pub(super) fn pass(&self) -> String {
        self.unit.pass().map(|periph| periph.to_string()).unwrap_or_default()
    }

    /// `(pass0:ufshci0:0:0:0): `, camcontrol's prefix of lines about a path.
    pub(super) fn prefix(&self) -> String {
        self.machine.origin(self.pass(), self.unit.path).to_string()
    }

    /// The reporter for its commands.
    pub(super) fn tracer(&self) -> Tracer {
        self.machine.tracer(self.pass(), self.unit.path)
    }

    pub(super) fn language(&mut self) -> Language {
        let Some(Opened { stack, .. }) = self.machine.bus(self.unit.path.bus) else {
            return Language::Scsi;
        };
        Language::of(stack)
    }

    /// The device does not support the required protocol.
    pub(super) fn speaks_not(&self, what: &str, hint: Option<&str>) -> Failure {
        let hint = hint.map_or(String::new(), |hint| format!(": {hint}"));
        Failure::usage(format!("{}: it does not take {what} commands{hint}", self.pass()))
    }

    /// Sends a SCSI command to the unit, retried after a unit attention; returns its result, good
    /// or bad.
    pub(super) fn try_scsi(
        &mut self,
        cdb: [u8; 16],
        data: ScsiData,
        timeout_ms: u32,
    ) -> Result<ScsiReply, Failure> {
        let lun = self.unit.path.lun;
        let unit = match u8::try_from(lun) {
            Ok(lun) => LogicalUnitNumber::from_ufs(lun).to_bits(),
            Err(_) => lun,
        };
        let timeout_ms = self.timeout_ms.unwrap_or(timeout_ms);
        let command = ScsiCommand { unit, cdb, data, timeout_ms, ordered: false };
        let pass = self.pass();
        let missing = self.speaks_not("SCSI", None);
        let bus = self.unit.path.bus;
        let tracer = self.tracer();
        let moved = match &command.data {
            ScsiData::None => (Direction::None, 0),
            ScsiData::In(length) => (Direction::FromDevice, *length),
            ScsiData::Out(bytes) => (Direction::ToDevice, bytes.len() as u32),
        };
        let mut tries = 0;
        loop {
            let ccb = tracer.start(lun, Request::Scsi(RawCdb(cdb)), moved);
            tracer.issue(lun);
            let shelf = self.machine.shelf.as_mut().filter(|shelf| shelf.bus == bus);
            let reply = match shelf {
                Some(shelf) => shelf.scsi(&command),
                None => {
                    let stack = self.machine.bus(bus).map(|opened| &mut opened.stack);
                    let Some(control) = stack.and_then(|stack| stack.control()) else {
                        return Err(missing);
                    };
                    control.scsi(&command)
                }
            };
            tracer.end(
                ccb,
                &match &reply {
                    Ok(reply) => Answer::Scsi(reply.ended, &reply.failure),
                    Err(why) => Answer::NotStarted(*why),
                },
            );
            let reply = reply.map_err(|why| {
                Failure::failed(format!("{pass}: {}: {}", opcode(cdb[0]), not_started(why)))
            })?;
            let is_attention =
                sense(&reply).is_some_and(|sense| sense.key == SenseKey::UnitAttention);
            if !is_attention || tries >= self.retries {
                return Ok(reply);
            }
            tries += 1;
            tracer.say(Flags::INFO, "Retrying command (per sense data)");
        }
    }

    /// Sends a SCSI command that must succeed to the unit; returns its data.
    pub(super) fn scsi(
        &mut self,
        cdb: Cdb,
        data: ScsiData,
        timeout_ms: u32,
    ) -> Result<Vec<u8>, Failure> {
        let cdb = cdb.to_bytes();
        let reply = self.try_scsi(cdb, data, timeout_ms)?;
        match is_good(&reply) {
            true => Ok(reply.data),
            false => {
                Err(Failure::failed(format!("{}: {}", self.pass(), complaint(cdb[0], &reply))))
            }
        }
    }

    /// The stack that the device is on; an enclosure is on none.
    pub(super) fn stack(&mut self) -> Option<&mut Stack> {
        self.machine.bus(self.unit.path.bus).map(|opened| &mut opened.stack)
    }

    /// Sends an ATA command to the device; returns its result, good or bad.
    pub(super) fn try_ata(&mut self, mut command: AtaCommand) -> Result<AtaReply, Failure> {
        command.timeout_ms = self.timeout_ms.or(command.timeout_ms);
        let (pass, missing) = (self.pass(), self.speaks_not("ATA", None));
        let (tracer, target) = (self.tracer(), self.unit.path.target as u8);
        let stack = self.machine.bus(self.unit.path.bus).map(|opened| &mut opened.stack);
        let Some(control) = stack.and_then(|stack| stack.ahci()) else { return Err(missing) };
        told::ata(control, (&tracer, target), command).map_err(|error| Failure::of(pass, error))
    }

    /// Sends an admin command to the controller; returns its result, good or bad.
    pub(super) fn try_nvme(&mut self, command: AdminCommand) -> Result<AdminReply, Failure> {
        let (pass, missing) = (self.pass(), self.speaks_not("NVMe", None));
        let (tracer, lun) = (self.tracer(), self.unit.path.lun);
        let stack = self.machine.bus(self.unit.path.bus).map(|opened| &mut opened.stack);
        let Some(control) = stack.and_then(|stack| stack.nvme()) else { return Err(missing) };
        told::nvme(control, (&tracer, lun), command).map_err(|error| Failure::of(pass, error))
    }

    /// The status of a card.
    pub(super) fn card_status(&mut self) -> Result<CardStatus, Failure> {
        let (pass, missing) = (self.pass(), self.speaks_not("MMC", None));
        let tracer = self.tracer();
        let stack = self.machine.bus(self.unit.path.bus).map(|opened| &mut opened.stack);
        let Some(control) = stack.and_then(|stack| stack.emmc()) else { return Err(missing) };
        told::card_status(control, &tracer).map_err(|error| Failure::of(pass, error))
    }
}

/// Whether a command did what it should.
pub(super) fn is_good(reply: &ScsiReply) -> bool {
    match reply.ended {
        Ended::Good => true,
        Ended::Answered => {
            let recovered = |sense: Sense| sense.key == SenseKey::RecoveredError;
            match Status::from_bits(reply.failure.status.status) {
                Status::Good | Status::ConditionMet => true,
                Status::CheckCondition => sense(reply).is_some_and(recovered),
                _ => false,
            }
        }
        _ => false,
    }
}

pub(super) fn sense(reply: &ScsiReply) -> Option<Sense> {
    let status = &reply.failure.status;
    let check = reply.ended == Ended::Answered && status.status == 2;
    check.then(|| Sense::parse(status.sense.as_slice()).ok()).flatten()
}

fn opcode(code: u8) -> String {
    match Opcode::from_bits(code) {
        Opcode::Unknown(code) => format!("command {code:#04x}"),
        known => known.to_string(),
    }
}

fn not_started(why: NotStarted) -> &'static str {
    match why {
        NotStarted::Full => "the controller did not take it in time",
        NotStarted::BadData(_) => "its data cannot be moved",
        NotStarted::Unsupported => "the controller cannot carry it",
        NotStarted::Gone => "the controller is out of order",
    }
}

/// How a command failed, in one line with the sense data in words.
pub(super) fn complaint(code: u8, reply: &ScsiReply) -> String {
    let name = opcode(code);
    let status = match reply.ended {
        Ended::Good | Ended::Answered => Status::from_bits(reply.failure.status.status),
        Ended::NoUnit => return format!("{name}: there is no such unit"),
        Ended::TimedOut => return format!("{name}: no answer in time"),
        Ended::Aborted | Ended::Reset => return format!("{name}: lost in a reset"),
        Ended::Host => {
            return format!("{name}: host controller error {:#x}", reply.failure.code);
        }
        Ended::Gone => return format!("{name}: the controller is out of order"),
    };
    match sense(reply) {
        Some(sense) => {
            let (asc, ascq) = (sense.additional.asc(), sense.additional.ascq());
            let (key, words) = (sense.key, sense.additional);
            format!("{name}: SCSI status: {status}, {key} asc:{asc:x},{ascq:x} ({words})")
        }
        None => format!("{name}: SCSI status: {status}"),
    }
}
