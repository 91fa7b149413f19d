//! `flysch ata passthru`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use flysch_ahci::{AtaCommand, AtaData};
use flysch_api::command::{AtaProtocol, Taskfile};
use flysch_wire::ata::Opcode;
use flysch_wire::ata::command::device;
use serde_json::json;

use super::{Session, hex, words};
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::file::Named;
use crate::number::parse_number;
use crate::nvme::dump;

/// Maximum data of a command, bytes.
const DATA_MAX: usize = 4096;

/// How data crosses the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// By PIO.
    Pio,
    /// By DMA.
    Dma,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// COMMAND.
    #[arg(long, short = 'c', value_name = "NUMBER", value_parser = byte)]
    command: u8,
    /// FEATURES.
    #[arg(long, short = 'f', value_name = "NUMBER", default_value = "0", value_parser = half)]
    features: u16,
    /// LBA, 48 bits.
    #[arg(long, short = 'l', value_name = "NUMBER", default_value = "0", value_parser = lba)]
    lba: u64,
    /// COUNT.
    #[arg(long, short = 'n', value_name = "NUMBER", default_value = "0", value_parser = half)]
    count: u16,
    /// DEVICE.
    #[arg(long, value_name = "NUMBER", default_value = "0x40", value_parser = byte)]
    device: u8,
    /// Read this many bytes from the device: an even number up to 4096.
    #[arg(long = "in", short = 'i', value_name = "BYTES", value_parser = data_length)]
    data_in: Option<u32>,
    /// Send the bytes of this file to the device, up to 4096.
    #[arg(long = "out", short = 'o', value_name = "FILE", conflicts_with = "data_in")]
    pub(super) data_out: Option<PathBuf>,
    /// How data is transferred.
    #[arg(long, default_value = "pio")]
    by: Way,
    /// Write received data to this file, `-` for standard output.
    #[arg(long, short = 'b', value_name = "FILE", requires = "data_in")]
    raw: Option<PathBuf>,
    /// Time-out, ms.
    #[arg(long, short = 't', value_name = "MS")]
    timeout: Option<u32>,
    #[command(flatten)]
    consent: Consent,
}

pub(super) fn byte(text: &str) -> Result<u8, String> {
    parse_number(text)?
        .try_into()
        .map_err(|_| format!("`{text}` is not a byte: it must be 0 to 255"))
}

fn half(text: &str) -> Result<u16, String> {
    parse_number(text)?
        .try_into()
        .map_err(|_| format!("`{text}` is too much: it must be 0 to 65535"))
}

fn lba(text: &str) -> Result<u64, String> {
    match parse_number(text)? {
        lba if lba >> 48 == 0 => Ok(lba),
        _ => Err(format!("`{text}` is not an LBA: it must have at most 48 bits")),
    }
}

fn data_length(text: &str) -> Result<u32, String> {
    match parse_number(text)? {
        bytes @ 2..=4096 if bytes % 2 == 0 => Ok(bytes as u32),
        _ => Err(format!("`{text}` bytes of data: it must be an even number from 2 to {DATA_MAX}")),
    }
}

/// Commands that only return information: all others need consent.
const HARMLESS: [Opcode; 7] = [
    Opcode::Identify,
    Opcode::IdentifyPacket,
    Opcode::ReadLogExt,
    Opcode::ReadLogDmaExt,
    Opcode::CheckPowerMode,
    Opcode::ReadNativeMax,
    Opcode::ReadNativeMaxExt,
];

pub(super) fn passthru(session: &mut Session<'_>, arguments: &Arguments) -> Result<(), Failure> {
    let a = arguments;
    let name = Opcode::from_bits(a.command);
    if !HARMLESS.contains(&name) {
        a.consent.ask(&format!("{name} may change the device or destroy data."))?;
    }
    let data = match (&a.data_out, a.data_in) {
        (Some(path), _) => {
            let bytes = std::fs::read(path);
            let bytes = bytes.map_err(|error| Failure::of(path.display(), error))?;
            if bytes.len() > DATA_MAX || bytes.is_empty() || bytes.len() % 2 != 0 {
                let length = bytes.len();
                let why = format!("{length} bytes: it must be an even number from 2 to {DATA_MAX}");
                return Err(Failure::usage(format!("{}: {why}", path.display())));
            }
            AtaData::Out(bytes)
        }
        (None, Some(bytes)) => AtaData::In(bytes),
        (None, None) => AtaData::None,
    };
    let protocol = match (&data, a.by) {
        (AtaData::None, _) => AtaProtocol::NonData,
        (_, Way::Pio) => AtaProtocol::Pio,
        (_, Way::Dma) => AtaProtocol::Dma,
    };
    let task = Taskfile {
        command: a.command,
        device: a.device | device::LBA,
        features: a.features,
        count: a.count,
        lba: a.lba,
        protocol,
        ..Taskfile::default()
    };
    let reply = session.control.command(AtaCommand {
        unit: session.control.devices().unit,
        task,
        data,
        timeout_ms: a.timeout,
    })?;
    if reply.status.is_error() {
        return Err(Failure::failed(format!("{name}: {}", words(&reply.status))));
    }
    let bytes = &reply.data[..];
    if let Some(path) = &a.raw {
        let mut file = Named::open(path, session.output)?;
        file.write(|to| to.write_all(bytes))?;
        file.finish()?;
    }
    let (status, count, lba) = (reply.status.status, reply.count, reply.status.lba);
    if session.output.json() {
        let data = (!bytes.is_empty()).then(|| hex(bytes));
        let told = json!({
            "command": a.command, "status": status, "count": count, "lba": lba, "data": data
        });
        return session.output.value(&told);
    }
    session
        .output
        .line(format!("{name}: status {status:#04x}, count {count:#06x}, lba {lba:#014x}"))?;
    if bytes.is_empty() || a.raw.is_some() { Ok(()) } else { dump(bytes, session.output) }
}
