//! `flysch ufs ffu`, `purge`, `refresh`, `history`, `timestamp` and `bootlun`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Subcommand, ValueEnum};
use flysch_rig::Control;
use flysch_ufs::{FirmwarePart, Operation, Output as Answer, Query, SERVICE_DATA_MAX};
use flysch_wire::scsi::error_history::{DIRECTORY, DIRECTORY_LENGTH_MAX, DirectoryView};
use flysch_wire::ufs::descriptor::{BootLunId, UnitDescriptor};
use flysch_wire::ufs::query::{
    AttributeId, FfuStatus, PurgeStatus, RefreshMethod, RefreshStatus, RefreshUnit,
};
use serde_json::json;

use super::descriptors::string;
use super::number;
use crate::confirm::{self, Consent};
use crate::failure::Failure;
use crate::file::Named;
use crate::output::Output;
use crate::progress::Progress;

/// How long one poll of a long operation waits for its end, ms.
const LOOK_MS: u32 = 500;

fn unexpected() -> Failure {
    Failure::failed("the driver did not answer what was asked")
}

#[derive(Debug, clap::Args)]
pub(super) struct FirmwareArguments {
    #[command(subcommand)]
    what: Option<Firmware>,
}

#[derive(Debug, Subcommand)]
enum Firmware {
    /// Show the running revision, and the result of the last update.
    Status,
    /// Send an image to the device and activate it.
    Update {
        /// The maker's image for exactly this device.
        image: PathBuf,
        /// Leave the activation to the next reset.
        #[arg(long)]
        no_activate: bool,
        #[command(flatten)]
        consent: Consent,
    },
}

impl FirmwareArguments {
    /// The file that it reads.
    pub(super) fn input(&self) -> Option<&Path> {
        match &self.what {
            Some(Firmware::Update { image, .. }) => Some(image),
            _ => None,
        }
    }
}

fn firmware_status(control: &mut dyn Control) -> Result<FfuStatus, Failure> {
    match control.operate(Operation::FirmwareStatus)? {
        Answer::Firmware(status) => Ok(status),
        _ => Err(unexpected()),
    }
}

fn revision(control: &mut dyn Control) -> String {
    let index = control.device().descriptor.i_product_revision_level;
    string(control, index)
}

pub(super) fn firmware(
    arguments: &FirmwareArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let status = firmware_status(control)?;
    let before = revision(control);
    let Some(Firmware::Update { image, no_activate, consent }) = &arguments.what else {
        let name = status.name();
        let value = json!({ "revision": before, "status": name });
        return confirm::done(output, &value, &format!("revision  {before}\nupdate    {name}"));
    };
    let bytes = fs::read(image).map_err(|error| Failure::of(image.display(), error))?;
    let parts = FirmwarePart::all(&bytes).map_err(|error| Failure::of(image.display(), error))?;
    let length = bytes.len();
    consent.ask(&format!(
        "{length} bytes of {} replace firmware {before}: a wrong image can destroy the device.",
        image.display()
    ))?;
    let mut progress = Progress::bytes("sending", Some(length as u64));
    for part in parts {
        let end = part.offset as usize + part.data.len();
        control.operate(Operation::WriteFirmware(part))?;
        progress.set(end as u64);
    }
    drop(progress);
    believe(control, image)?;
    if *no_activate {
        let value = json!({ "revision": before, "activated": false });
        return confirm::done(output, &value, "sent; it runs after the next reset");
    }
    control.operate(Operation::Reset)?;
    believe(control, image)?;
    let after = revision(control);
    let value = json!({ "revision": after, "was": before, "activated": true });
    confirm::done(output, &value, &format!("revision {before} before, {after} now"))
}

/// An error if the device reports that the image is not valid.
fn believe(control: &mut dyn Control, image: &Path) -> Result<(), Failure> {
    match firmware_status(control)? {
        FfuStatus::NoInformation | FfuStatus::Success => Ok(()),
        status => Err(Failure::of(
            image.display(),
            format!("{}; the old firmware still runs", flysch_ufs::UfsError::Firmware(status)),
        )),
    }
}

/// What to do with a long operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Show the state.
    Status,
    /// Start, and wait for the end.
    Start,
    /// Stop the running operation.
    Stop,
}

#[derive(Debug, clap::Args)]
pub(super) struct PurgeArguments {
    /// What to do.
    #[arg(default_value = "status")]
    action: Action,
    #[command(flatten)]
    consent: Consent,
}

fn purge_status(control: &mut dyn Control, wait_ms: u32) -> Result<PurgeStatus, Failure> {
    match control.operate(Operation::PurgeStatus(wait_ms))? {
        Answer::Purge(status) => Ok(status),
        _ => Err(unexpected()),
    }
}

pub(super) fn purge(
    arguments: &PurgeArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let status = match arguments.action {
        Action::Status => purge_status(control, 0)?,
        Action::Stop => {
            control.operate(Operation::Purge(false))?;
            purge_status(control, 0)?
        }
        Action::Start => {
            arguments.consent.ask("A purge removes all unmapped data for ever.")?;
            control.operate(Operation::Purge(true))?;
            let mut progress = Progress::time("purging");
            loop {
                let status = purge_status(control, LOOK_MS)?;
                if status != PurgeStatus::InProgress {
                    break status;
                }
                progress.tick();
            }
        }
    };
    let name = status.name();
    if arguments.action == Action::Start && status != PurgeStatus::Completed {
        return Err(Failure::failed(format!("purge: {name} (bPurgeStatus): start it again")));
    }
    confirm::done(output, &json!({ "status": name }), &format!("purge  {name}"))
}

#[derive(Debug, clap::Args)]
pub(super) struct RefreshArguments {
    /// What to do.
    #[arg(default_value = "status")]
    action: Action,
    /// The whole device, not the minimum that it can do at once.
    #[arg(long)]
    full: bool,
    /// Only data that needs it, in the device's judgement.
    #[arg(long)]
    selective: bool,
}

pub(super) fn refresh(
    arguments: &RefreshArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let state =
        |control: &mut dyn Control, wait| match control.operate(Operation::RefreshState(wait))? {
            Answer::Refresh(state) => Ok(state),
            _ => Err(unexpected()),
        };
    let now = match arguments.action {
        Action::Status => state(control, 0)?,
        Action::Stop => {
            control.operate(Operation::StopRefresh)?;
            state(control, 0)?
        }
        Action::Start => {
            let pick = |is: bool, one, other| if is { one } else { other };
            let method = pick(arguments.selective, RefreshMethod::Selective, RefreshMethod::Forced);
            let unit = if arguments.full { RefreshUnit::Full } else { RefreshUnit::Minimum };
            control.operate(Operation::StartRefresh(method, unit))?;
            let mut progress = Progress::share("refreshing");
            loop {
                let now = state(control, LOOK_MS)?;
                if now.status != RefreshStatus::InProgress {
                    break now;
                }
                progress.set(u64::from(now.progress / 100));
            }
        }
    };
    let name = now.status.name();
    if arguments.action == Action::Start && now.status != RefreshStatus::Completed {
        return Err(Failure::failed(format!("refresh: {name} (bRefreshStatus)")));
    }
    if output.json() {
        return output.value(&json!({
            "status": name,
            "progress_percent": f64::from(now.progress) / 1000.0,
            "total_count": now.total_count,
            "method": now.method.name(),
            "unit": now.unit.name(),
            "frequency": now.frequency,
        }));
    }
    output.line(format!("refresh   {name}"))?;
    output.line(format!("progress  {}.{:03} %", now.progress / 1000, now.progress % 1000))?;
    output.line(format!("rounds    {}", now.total_count))?;
    output.line(format!("method    {}, {} at once", now.method, now.unit))
}

#[derive(Debug, clap::Args)]
pub(super) struct HistoryArguments {
    /// The buffer to read; without it, list the available buffers.
    #[arg(value_parser = crate::number::parse_number)]
    buffer: Option<u64>,
    /// Output file; without it, the content is shown in hexadecimal.
    #[arg(long, short, value_name = "FILE", requires = "buffer")]
    output: Option<PathBuf>,
}

pub(super) fn history(
    arguments: &HistoryArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let bytes = read_history(control, DIRECTORY, DIRECTORY_LENGTH_MAX as u32)?;
    let directory = DirectoryView::new(&bytes)
        .map_err(|error| Failure::of("error history directory", error))?;
    let Some(wanted) = arguments.buffer else {
        let vendor = String::from_utf8_lossy(&directory.vendor()).trim_end().to_owned();
        if output.json() {
            let buffers: Vec<_> = directory
                .buffers()
                .map(|buffer| json!({ "buffer": buffer.id, "bytes": buffer.length }))
                .collect();
            return output.value(&json!({ "vendor": vendor, "buffers": buffers }));
        }
        let rows: Vec<_> = directory
            .buffers()
            .map(|buffer| vec![format!("{:#04x}", buffer.id), buffer.length.to_string()])
            .collect();
        output.line(format!("vendor {vendor}, version {}", directory.version()))?;
        return output.table(&["buffer", "bytes"], &rows);
    };
    let buffer = directory.buffers().find(|buffer| u64::from(buffer.id) == wanted);
    let buffer = buffer.ok_or_else(|| {
        Failure::usage(format!(
            "there is no error history with the number {wanted:#x}: `history` lists them"
        ))
    })?;
    let bytes = read_history(control, buffer.id, buffer.length)?;
    if let Some(path) = &arguments.output {
        let mut file = Named::open(path, output)?;
        file.write(|to| to.write_all(&bytes))?;
        return file.finish();
    }
    if output.json() {
        return output.value(&json!({ "buffer": buffer.id, "content": bytes }));
    }
    for (n, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        output.line(format!("{:06x}  {}", n * 16, hex.join(" ")))?;
    }
    Ok(())
}

fn read_history(control: &mut dyn Control, buffer: u8, length: u32) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut progress = Progress::bytes("reading", Some(length.into()));
    for offset in (0..length).step_by(SERVICE_DATA_MAX as usize) {
        let length = (length - offset).min(SERVICE_DATA_MAX);
        let operation = Operation::ReadErrorHistory { buffer, offset, length };
        let Answer::Bytes(part) = control.operate(operation)? else { return Err(unexpected()) };
        bytes.extend_from_slice(&part);
        progress.set(bytes.len() as u64);
    }
    Ok(bytes)
}

#[derive(Debug, clap::Args)]
pub(super) struct TimestampArguments {
    /// Nanoseconds since 1970; default: the time of this machine.
    nanos: Option<u64>,
}

pub(super) fn timestamp(
    arguments: &TimestampArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let present = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok()
    };
    let nanos = arguments.nanos.or_else(present);
    let nanos = nanos.ok_or_else(|| Failure::usage("this machine has no clock: give a time"))?;
    control.operate(Operation::SetTimestamp(nanos))?;
    confirm::done(output, &json!({ "qTimestamp": nanos }), &format!("qTimestamp  {nanos}"))
}

#[derive(Debug, clap::Args)]
pub(super) struct BootArguments {
    #[command(subcommand)]
    what: Option<Boot>,
}

#[derive(Debug, Subcommand)]
enum Boot {
    /// Show which unit boots, and which could.
    Status,
    /// Choose the boot unit.
    Set {
        /// Boot unit A, boot unit B, or none.
        unit: BootUnit,
        #[command(flatten)]
        consent: Consent,
    },
    /// Read blocks of the boot unit, through the well-known unit BOOT.
    Read {
        /// First block.
        #[arg(long, default_value_t = 0)]
        lba: u32,
        /// Blocks.
        #[arg(long, default_value_t = 1)]
        blocks: u32,
        /// Output file; `-` is standard output.
        #[arg(long, short, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BootUnit {
    A,
    B,
    Off,
}

pub(super) fn boot(
    arguments: &BootArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    match &arguments.what {
        None | Some(Boot::Status) => {}
        Some(Boot::Set { unit, consent }) => {
            consent.ask("The machine boots from another unit, or not at all, from then on.")?;
            let id = match unit {
                BootUnit::A => BootLunId::BootLuA,
                BootUnit::B => BootLunId::BootLuB,
                BootUnit::Off => BootLunId::NotBootable,
            };
            control.operate(Operation::SetBootLun(id))?;
        }
        Some(Boot::Read { lba, blocks, output: path }) => {
            return read_boot(control, (*lba, *blocks), path, output);
        }
    }
    let chosen = number(control, Query::read_attribute(AttributeId::BootLunEn))? as u8;
    let units: Vec<(u8, u8)> = control
        .device()
        .units
        .iter()
        .flatten()
        .filter(|unit| unit.b_boot_lun_id != 0)
        .map(|unit| (unit.b_unit_index, unit.b_boot_lun_id))
        .collect();
    let name = BootLunId::from_bits(chosen).name();
    if output.json() {
        let units: Vec<_> =
            units.iter().map(|(unit, id)| json!({ "unit": unit, "bBootLunID": id })).collect();
        return output.value(&json!({ "bBootLunEn": chosen, "units": units }));
    }
    output.line(format!("boots from  {}", if chosen == 0 { "no unit" } else { name }))?;
    for (unit, id) in units {
        output.line(format!("unit {unit:<7}{}", BootLunId::from_bits(id)))?;
    }
    Ok(())
}

fn read_boot(
    control: &mut dyn Control,
    (lba, blocks): (u32, u32),
    path: &Path,
    output: &mut Output,
) -> Result<(), Failure> {
    let chosen = number(control, Query::read_attribute(AttributeId::BootLunEn))? as u8;
    let units = control.device().units;
    let unit = units.iter().flatten().find(|unit| chosen != 0 && unit.b_boot_lun_id == chosen);
    let block = unit.and_then(UnitDescriptor::block_size).unwrap_or(4096);
    let at_once = (SERVICE_DATA_MAX / block).max(1);
    let mut file = Named::open(path, output)?;
    let mut progress = Progress::bytes("reading", Some(u64::from(blocks) * u64::from(block)));
    let mut done = 0;
    while done < blocks {
        let count = (blocks - done).min(at_once);
        let operation = Operation::ReadBoot { lba: lba.saturating_add(done), blocks: count as u16 };
        let Answer::Bytes(bytes) = control.operate(operation)? else { return Err(unexpected()) };
        file.write(|to| to.write_all(&bytes))?;
        done += count;
        progress.set(u64::from(done) * u64::from(block));
    }
    drop(progress);
    file.finish()
}
