//! `flysch cam cmd`: any SCSI command, or any ATA command.

use std::io::{Read as _, Write as _};
use std::path::Path;

use flysch_ahci::{AtaCommand, AtaData};
use flysch_api::command::{AtaProtocol, Taskfile};
use flysch_rig::ScsiData;
use flysch_wire::ata::Opcode as AtaOpcode;
use flysch_wire::scsi::cdb::Opcode;
use serde_json::json;

use super::Device;
use super::session::{Session, TIMEOUT_MS, complaint, is_good};
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::file::Named;

/// Maximum bytes of data.
const DATA_MAX: u32 = 1 << 16;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// The bytes of a SCSI command, in hexadecimal: "12 0 0 0 24 0".
    #[arg(
        short = 'c',
        value_name = "CDB",
        required_unless_present = "ata",
        conflicts_with = "ata"
    )]
    cdb: Option<String>,
    /// The twelve bytes of an ATA command, in hexadecimal: command, features, LBA low, mid, high,
    /// device, the same LBA bytes of 48 bits, features, count, count.
    #[arg(short = 'a', value_name = "BYTES")]
    ata: Option<String>,
    /// The ATA command transfers its data by DMA.
    #[arg(short = 'd', requires = "ata")]
    dma: bool,
    /// Read this many bytes; with `-` they are written unchanged, otherwise as the fields say: `s8`
    /// goes to byte 8, `z16` are 16 characters, `c16` the same with their padding, `i2` is a number
    /// of two bytes.
    #[arg(short = 'i', num_args = 2, value_names = ["BYTES", "FORMAT"], conflicts_with = "out")]
    input: Vec<String>,
    /// Send this many bytes: those of standard input for `-`, otherwise these in hexadecimal.
    #[arg(short = 'o', num_args = 2, value_names = ["BYTES", "DATA"])]
    out: Vec<String>,
    /// Print the registers after an ATA command, in hexadecimal; `-` for raw bytes.
    #[arg(short = 'r', value_name = "FORMAT", requires = "ata")]
    registers: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

/// Bytes in hexadecimal, separated by spaces.
fn bytes(text: &str) -> Result<Vec<u8>, Failure> {
    let one = |word: &str| {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        u8::from_str_radix(digits, 16)
            .map_err(|_| Failure::usage(format!("`{word}` is not a byte in hexadecimal")))
    };
    text.split_whitespace().map(one).collect()
}

fn count(text: &str) -> Result<u32, Failure> {
    let parsed = crate::number::parse_number(text).map_err(Failure::usage)?;
    match u32::try_from(parsed) {
        Ok(length) if (1..=DATA_MAX).contains(&length) => Ok(length),
        _ => Err(Failure::usage(format!("`{text}` bytes of data: it must be 1 to {DATA_MAX}"))),
    }
}

/// Commands that only return information.
const HARMLESS: [Opcode; 14] = [
    Opcode::TestUnitReady,
    Opcode::RequestSense,
    Opcode::Read6,
    Opcode::Inquiry,
    Opcode::ModeSense6,
    Opcode::ReadCapacity10,
    Opcode::Read10,
    Opcode::Verify10,
    Opcode::ReadBuffer,
    Opcode::ModeSense10,
    Opcode::Read16,
    Opcode::ServiceActionIn16,
    Opcode::ReportLuns,
    Opcode::SecurityProtocolIn,
];
const HARMLESS_ATA: [AtaOpcode; 13] = [
    AtaOpcode::ReadMultiplier,
    AtaOpcode::Identify,
    AtaOpcode::IdentifyPacket,
    AtaOpcode::ReadLogExt,
    AtaOpcode::ReadLogDmaExt,
    AtaOpcode::CheckPowerMode,
    AtaOpcode::ReadSectors,
    AtaOpcode::ReadSectorsExt,
    AtaOpcode::ReadDma,
    AtaOpcode::ReadDmaExt,
    AtaOpcode::ReadVerify,
    AtaOpcode::ReadVerifyExt,
    AtaOpcode::ReadNativeMaxExt,
];

impl Arguments {
    fn data_out(&self) -> Result<Option<Vec<u8>>, Failure> {
        let [length, data] = &self.out[..] else { return Ok(None) };
        let length = count(length)? as usize;
        let mut all = match data.as_str() {
            "-" => {
                let mut all = Vec::new();
                let read = std::io::stdin().take(length as u64).read_to_end(&mut all);
                read.map_err(|error| Failure::of("standard input", error))?;
                all
            }
            words => bytes(words)?,
        };
        if all.len() > length {
            let more = all.len();
            return Err(Failure::usage(format!("-o: {more} bytes are more than {length}")));
        }
        all.resize(length, 0);
        Ok(Some(all))
    }

    fn data_in(&self) -> Result<Option<(u32, &str)>, Failure> {
        let [length, format] = &self.input[..] else { return Ok(None) };
        Ok(Some((count(length)?, format)))
    }
}

/// Formats bytes by the fields of a format.
fn decode(bytes: &[u8], format: &str) -> Result<String, Failure> {
    let mut at = 0;
    let mut words = Vec::new();
    for field in format.split_whitespace() {
        let wrong =
            || Failure::usage(format!("`{field}`: it must be sBYTE, cLENGTH, zLENGTH or i1 to i8"));
        let (kind, length) = field.split_at_checked(1).ok_or_else(wrong)?;
        let length: usize = length.parse().map_err(|_| wrong())?;
        if kind == "s" {
            at = length;
            continue;
        }
        let end = at.checked_add(length).ok_or_else(wrong)?;
        let Some(part) = bytes.get(at..end) else {
            let line = format!("`{field}` is beyond the {} bytes that came", bytes.len());
            return Err(Failure::failed(line));
        };
        at = end;
        let text = || -> String {
            part.iter()
                .map(|&b| if b.is_ascii_graphic() || b == b' ' { b as char } else { '.' })
                .collect()
        };
        words.push(match kind {
            "c" => text(),
            "z" => text().trim_end().to_owned(),
            "i" if (1..=8).contains(&length) => {
                part.iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte)).to_string()
            }
            _ => return Err(wrong()),
        });
    }
    Ok(words.join(" "))
}

pub(super) fn cmd(session: &mut Session<'_>, arguments: &Arguments) -> Result<(), Failure> {
    match (&arguments.cdb, &arguments.ata) {
        (Some(cdb), _) => scsi_cmd(session, &bytes(cdb)?, arguments),
        (None, Some(task)) => ata_cmd(session, &bytes(task)?, arguments),
        (None, None) => Err(Failure::usage("name a command with -c or -a")),
    }
}

fn scsi_cmd(session: &mut Session<'_>, given: &[u8], arguments: &Arguments) -> Result<(), Failure> {
    let mut cdb = [0; 16];
    let Some(place) = cdb.get_mut(..given.len()).filter(|place| !place.is_empty()) else {
        return Err(Failure::usage("-c: a command must have 1 to 16 bytes"));
    };
    place.copy_from_slice(given);
    let name = Opcode::from_bits(cdb[0]);
    if !HARMLESS.contains(&name) {
        let pass = session.pass();
        arguments.consent.ask(&format!("{pass}: {name} may destroy data."))?;
    }
    let data = match (arguments.data_in()?, arguments.data_out()?) {
        (Some((length, _)), _) => ScsiData::In(length),
        (None, Some(bytes)) => ScsiData::Out(bytes),
        (None, None) => ScsiData::None,
    };
    let reply = session.try_scsi(cdb, data, TIMEOUT_MS)?;
    if !is_good(&reply) {
        let line = format!("{}: {}", session.pass(), complaint(cdb[0], &reply));
        return Err(Failure::failed(line));
    }
    tell(session, &reply.data, arguments, None)
}

fn ata_cmd(session: &mut Session<'_>, given: &[u8], arguments: &Arguments) -> Result<(), Failure> {
    let Some(
        &[command, features, low, mid, high, device, low2, mid2, high2, features2, count, count2],
    ) = given.first_chunk::<12>().filter(|_| given.len() == 12)
    else {
        return Err(Failure::usage("-a: it must have twelve bytes, see --help"));
    };
    let name = AtaOpcode::from_bits(command);
    if !HARMLESS_ATA.contains(&name) {
        let pass = session.pass();
        arguments.consent.ask(&format!("{pass}: {name} may destroy data."))?;
    }
    let data = match (arguments.data_in()?, arguments.data_out()?) {
        (Some((length, _)), _) => AtaData::In(length),
        (None, Some(bytes)) => AtaData::Out(bytes),
        (None, None) => AtaData::None,
    };
    let protocol = match (&data, arguments.dma) {
        (AtaData::None, _) => AtaProtocol::NonData,
        (_, true) => AtaProtocol::Dma,
        (_, false) => AtaProtocol::Pio,
    };
    let task = Taskfile {
        command,
        device,
        features: u16::from_le_bytes([features, features2]),
        count: u16::from_le_bytes([count, count2]),
        lba: u64::from_le_bytes([low, mid, high, low2, mid2, high2, 0, 0]),
        protocol,
        ..Taskfile::default()
    };
    let reply = session.try_ata(AtaCommand { unit: 0, task, data, timeout_ms: None })?;
    let status = reply.status;
    let lba = status.lba.to_le_bytes();
    let [count, count2] = reply.count.to_le_bytes();
    let registers = [
        status.status,
        status.error,
        lba[0],
        lba[1],
        lba[2],
        device,
        lba[3],
        lba[4],
        lba[5],
        count,
        count2,
    ];
    if status.is_error() && arguments.registers.is_none() {
        let (status, error) = (status.status, status.error);
        let line = format!("{name}: ATA status {status:#04x}, error {error:#04x}");
        return Err(Failure::of(session.pass(), line));
    }
    tell(session, &reply.data, arguments, Some(&registers))
}

fn tell(
    session: &mut Session<'_>,
    data: &[u8],
    arguments: &Arguments,
    registers: Option<&[u8]>,
) -> Result<(), Failure> {
    let format = arguments.data_in()?.map(|(_, format)| format.to_owned());
    if format.as_deref() == Some("-") {
        let mut file = Named::open(Path::new("-"), session.output)?;
        file.write(|to| to.write_all(data))?;
        file.finish()?;
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if session.output.json() {
        let registers = registers.filter(|_| arguments.registers.is_some()).map(hex);
        return session.output.value(&json!({ "data": hex(data), "registers": registers }));
    }
    if let Some(format) = format.filter(|format| format != "-") {
        session.output.line(decode(data, &format)?)?;
    }
    match (arguments.registers.as_deref(), registers) {
        (Some("-"), Some(registers)) => session.output.bytes(registers),
        (Some(_), Some(registers)) => {
            let words: Vec<String> = registers.iter().map(|b| format!("{b:02X}")).collect();
            session.output.line(words.join(" "))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
