//! Verbs that SCSI has commands for: ready, inquiry, units, capacity, start and stop. ATA, NVMe and
//! MMC devices support those for which they have an equivalent.

use flysch_ahci::{AtaCommand, AtaData};
use flysch_api::count::counted;
use flysch_nvme::AdminCommand;
use flysch_rig::ScsiData;
use flysch_wire::ata::Opcode;
use flysch_wire::ata::command::device;
use flysch_wire::nvme::{Cns, Status as NvmeStatus};
use flysch_wire::scsi::capacity::{Capacity10, Capacity16};
use flysch_wire::scsi::cdb::{SelectReport, StartStop};
use flysch_wire::scsi::inquiry::{InquiryData, LENGTH as INQUIRY_LENGTH};
use flysch_wire::scsi::vpd::{self, VpdPage};
use flysch_wire::scsi::{Cdb, luns};
use serde_json::json;

use super::Device;
use super::describe::text;
use super::session::{Language, Session, TIMEOUT_MS, complaint, is_good};
use crate::failure::Failure;
use crate::number::parse_number;

/// How long START STOP UNIT may take, milliseconds (camcontrol's).
const START_TIMEOUT_MS: u32 = 120_000;
/// Longest response to REPORT LUNS requested, bytes.
const LUNS_MAX: u32 = 8 + 256 * 8;
/// Bytes of a vital product data page requested.
const PAGE_MAX: u16 = 252;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct InquiryArguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// Print only INQUIRY data.
    #[arg(short = 'D')]
    data: bool,
    /// Print only the serial number.
    #[arg(short = 'S')]
    serial: bool,
    /// Print only the transfer rate.
    #[arg(short = 'R')]
    rate: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct LunsArguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// Print only their number.
    #[arg(short = 'c', conflicts_with = "list")]
    count: bool,
    /// Print only the list.
    #[arg(short = 'l')]
    list: bool,
    /// Which: `default`, `wellknown`, `all`, or a number.
    #[arg(short = 'r', value_name = "TYPE", default_value = "default", value_parser = report)]
    report: u8,
}

fn report(text: &str) -> Result<u8, String> {
    match text {
        "default" => Ok(0),
        "wellknown" => Ok(1),
        "all" => Ok(2),
        other => {
            let wrong =
                |_| format!("`{other}`: it must be default, wellknown, all, or a number up to 255");
            parse_number(other)
                .and_then(|n| u8::try_from(n).map_err(|_| String::new()))
                .map_err(wrong)
        }
    }
}

#[derive(Clone, Copy, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of camcontrol's own")]
pub(super) struct CapacityForm {
    /// Print only the block length.
    #[arg(short = 'b', conflicts_with = "last")]
    block: bool,
    /// Also print the size in units of 1024, instead of the last block.
    #[arg(short = 'h', conflicts_with_all = ["number", "si"])]
    human: bool,
    /// Print the size in units of 1000.
    #[arg(short = 'H', conflicts_with = "number")]
    si: bool,
    /// Print the number of blocks instead of the last one.
    #[arg(short = 'N')]
    number: bool,
    /// Print only numbers.
    #[arg(short = 'q')]
    quiet: bool,
    /// Print only the last block, or size.
    #[arg(short = 's')]
    last: bool,
    /// Use READ CAPACITY(16) at once.
    #[arg(short = 'l')]
    long: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct CapacityArguments {
    #[command(flatten)]
    pub(super) device: Device,
    #[command(flatten)]
    form: CapacityForm,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn tur(session: &mut Session<'_>) -> Result<(), Failure> {
    let (is_ready, why) = match session.language() {
        Language::Scsi => {
            let cdb = Cdb::TestUnitReady.to_bytes();
            let reply = session.try_scsi(cdb, ScsiData::None, TIMEOUT_MS)?;
            (is_good(&reply), complaint(cdb[0], &reply))
        }
        Language::Ata => (ata_no_data(session, Opcode::CheckPowerMode)?, String::new()),
        Language::Nvme => {
            let namespace = session.unit.path.lun as u32;
            let command = AdminCommand::identify(Cns::Namespace, namespace);
            let status = NvmeStatus::of_field(session.try_nvme(command)?.status.status);
            (status == NvmeStatus::Success, status.to_string())
        }
        Language::Mmc => {
            let status = session.card_status()?;
            (status.is_ready(), format!("it is in state {}", status.state()))
        }
    };
    let words = if is_ready { "Unit is ready" } else { "Unit is not ready" };
    match session.output.json() {
        true => session.output.value(&json!({ "ready": is_ready }))?,
        false => session.output.line(words)?,
    }
    match (is_ready, why.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::Status { status: 1, line: None }),
        (false, false) => Err(Failure::failed(format!("{}: {why}", session.pass()))),
    }
}

/// A command without data; returns whether it succeeded.
fn ata_no_data(session: &mut Session<'_>, opcode: Opcode) -> Result<bool, Failure> {
    let task = flysch_api::command::Taskfile {
        command: opcode.into_bits(),
        device: device::LBA,
        ..Default::default()
    };
    let reply =
        session.try_ata(AtaCommand { unit: 0, task, data: AtaData::None, timeout_ms: None })?;
    Ok(!reply.status.is_error())
}

pub(super) fn start_stop(
    session: &mut Session<'_>,
    start: bool,
    load: bool,
) -> Result<(), Failure> {
    let verb = if start { "start" } else { "stop" };
    let (is_good, why) = match session.language() {
        Language::Scsi => {
            let cdb = Cdb::StartStopUnit(StartStop::new(start, load)).to_bytes();
            let reply = session.try_scsi(cdb, ScsiData::None, START_TIMEOUT_MS)?;
            (is_good(&reply), complaint(cdb[0], &reply))
        }
        Language::Ata if !load => {
            let opcode = if start { Opcode::IdleImmediate } else { Opcode::StandbyImmediate };
            (ata_no_data(session, opcode)?, format!("{opcode}: the device refused"))
        }
        _ => return Err(session.speaks_not("START STOP UNIT", None)),
    };
    if !is_good {
        let pass = session.pass();
        let line = format!("{pass}: Error received from {verb} unit command: {why}");
        return Err(Failure::failed(line));
    }
    let medium = match (load, start) {
        (false, _) => "",
        (true, true) => ", Media loaded",
        (true, false) => ", Media ejected",
    };
    let done = if start { "started" } else { "stopped" };
    match session.output.json() {
        true => session.output.value(&json!({ "unit": done })),
        false => session.output.line(format!("Unit {done} successfully{medium}")),
    }
}

pub(super) fn inquiry(
    session: &mut Session<'_>,
    arguments: &InquiryArguments,
) -> Result<(), Failure> {
    let InquiryArguments { data, serial, rate, .. } = *arguments;
    let all = !(data || serial || rate);
    if session.language() != Language::Scsi {
        return Err(session.speaks_not("SCSI", None));
    }
    let page = None;
    let length = INQUIRY_LENGTH as u16;
    let cdb = Cdb::Inquiry { page, allocation_length: length };
    let bytes = session.scsi(cdb, ScsiData::In(length.into()), TIMEOUT_MS)?;
    let inquiry = InquiryData::parse(&bytes).map_err(Failure::failed)?;
    let number = if all || serial { serial_number(session)? } else { None };
    let pass = session.pass();
    if session.output.json() {
        let value = json!({
            "device": pass,
            "type": inquiry.peripheral.device_type().into_bits(),
            "removable": inquiry.removable,
            "version": inquiry.version,
            "vendor": inquiry.vendor.to_string(),
            "product": inquiry.product.to_string(),
            "revision": inquiry.revision.to_string(),
            "queueing": inquiry.command_queuing,
            "serial": number,
        });
        return session.output.value(&value);
    }
    if all || data {
        session.output.line(format!("{pass}: {}", in_words(&inquiry)))?;
    }
    if let Some(number) = number {
        // Alone it is the answer to a question, with other lines it needs its name.
        match all || data || rate {
            true => session.output.line(format!("{pass}: Serial Number {number}"))?,
            false => session.output.line(number)?,
        }
    }
    if all || rate {
        let queueing = if inquiry.command_queuing { ", Command Queueing Enabled" } else { "" };
        let rate = super::buses::transfer_rate(session);
        session.output.line(format!("{pass}: {rate} transfers{queueing}"))?;
    }
    Ok(())
}

fn serial_number(session: &mut Session<'_>) -> Result<Option<String>, Failure> {
    let page = Some(VpdPage::UnitSerialNumber.into_bits());
    let cdb = Cdb::Inquiry { page, allocation_length: PAGE_MAX }.to_bytes();
    let reply = session.try_scsi(cdb, ScsiData::In(PAGE_MAX.into()), TIMEOUT_MS)?;
    let number = is_good(&reply).then(|| vpd::serial_number(&reply.data).ok().map(text));
    Ok(number.flatten())
}

pub(super) fn reportluns(
    session: &mut Session<'_>,
    arguments: &LunsArguments,
) -> Result<(), Failure> {
    let select = SelectReport::from_bits(arguments.report);
    let cdb = Cdb::ReportLuns { select, allocation_length: LUNS_MAX };
    let bytes = session.scsi(cdb, ScsiData::In(LUNS_MAX), TIMEOUT_MS)?;
    let found: Vec<_> = luns::parse(&bytes).map_err(Failure::failed)?.0.collect();
    if session.output.json() {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        return session.output.value(&json!({ "luns": all }));
    }
    if !arguments.list {
        session.output.line(counted(found.len(), "LUN found", "LUNs found"))?;
    }
    if !arguments.count {
        for lun in found {
            session.output.line(lun)?;
        }
    }
    Ok(())
}

/// Last block and bytes per block.
fn capacity(session: &mut Session<'_>, long: bool) -> Result<(u64, u32), Failure> {
    if session.language() != Language::Scsi {
        let short = short_answer(session);
        let target = session.unit.path.target as u8;
        let control = session.stack().and_then(|stack| stack.ahci());
        if let Some(control) = control.filter(|control| control.devices().multiplier.is_some()) {
            let identify = &control.devices().at(target).ok_or(short)?.identify;
            return Ok((identify.sectors().saturating_sub(1), identify.sector_bytes()));
        }
        let geometry = session.stack().map(|stack| stack.geometry()).ok_or(short)?;
        return Ok((geometry.blocks.saturating_sub(1), geometry.block_size));
    }
    if !long {
        let length = Capacity10::LENGTH as u32;
        let bytes = session.scsi(Cdb::ReadCapacity10, ScsiData::In(length), TIMEOUT_MS)?;
        let bytes = bytes.first_chunk();
        let short = Capacity10::parse(bytes.ok_or_else(|| short_answer(session))?);
        if short.last_lba != u32::MAX {
            return Ok((short.last_lba.into(), short.block_length));
        }
    }
    let length = Capacity16::LENGTH as u32;
    let cdb = Cdb::ReadCapacity16 { allocation_length: length };
    let bytes = session.scsi(cdb, ScsiData::In(length), TIMEOUT_MS)?;
    let long = Capacity16::parse(&bytes).map_err(Failure::failed)?;
    Ok((long.last_lba, long.block_length))
}

fn short_answer(session: &Session<'_>) -> Failure {
    Failure::failed(format!("{}: the answer is too short", session.pass()))
}

pub(super) fn readcap(
    session: &mut Session<'_>,
    arguments: &CapacityArguments,
) -> Result<(), Failure> {
    let form = arguments.form;
    let (last, block) = capacity(session, form.long)?;
    if session.output.json() {
        return session.output.value(&json!({ "last_block": last, "block_length": block }));
    }
    session.output.line(form.line(last, block))
}

impl CapacityForm {
    /// The line printed by `camcontrol readcap`.
    fn line(self, last: u64, block: u32) -> String {
        let bytes = u128::from(block) * (u128::from(last) + 1);
        let (name, value) = match self {
            Self { human: true, .. } => ("Device Size", humanize(bytes, 1024)),
            Self { si: true, .. } => ("Device Size", humanize(bytes, 1000)),
            Self { number: true, .. } => ("Blocks", (u128::from(last) + 1).to_string()),
            _ => ("Last Block", last.to_string()),
        };
        let size = if self.quiet { value } else { format!("{name}: {value}") };
        let length = match self.quiet {
            true => block.to_string(),
            false => format!("Block Length: {block} bytes"),
        };
        match self {
            Self { last: true, .. } => size,
            Self { block: true, .. } => length,
            Self { quiet: true, .. } => format!("{size}, {length}"),
            _ => format!("{size}, {length}"),
        }
    }
}

/// A size as humanize_number(3) writes it in five characters: `55G`, `4.0G`.
fn humanize(bytes: u128, divisor: u128) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut scale = 1;
    while bytes / scale >= divisor && unit + 1 < UNITS.len() {
        (unit, scale) = (unit + 1, scale * divisor);
    }
    let tenths = (bytes * 10 + scale / 2) / scale;
    match (unit, tenths) {
        (1.., 0..100) => format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit]),
        _ => format!("{}{}", (bytes + scale / 2) / scale, UNITS[unit]),
    }
}

/// INQUIRY data as printed by `camcontrol inquiry`.
fn in_words(inquiry: &InquiryData) -> String {
    let InquiryData { vendor, product, revision, removable, version, .. } = inquiry;
    let media = if *removable { "Removable" } else { "Fixed" };
    let kind = match inquiry.peripheral.device_type().into_bits() {
        0x00 => "Direct Access",
        0x05 => "CD-ROM",
        0x0D => "Enclosure Services",
        0x14 => "Host Managed Zoned Block",
        0x1E => "Well Known LUN",
        _ => "Unknown",
    };
    let standard = match version {
        0 => "SCSI".to_owned(),
        1 | 2 => format!("SCSI-{version}"),
        newer => format!("SPC-{}", newer - 2),
    };
    format!("<{vendor} {product} {revision}> {media} {kind} {standard} SCSI device")
}

#[cfg(test)]
mod tests;
