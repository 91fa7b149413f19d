//! `flysch ufs rpmb`: replay protected memory.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use flysch_api::count::counted;
use flysch_rig::{Control, size};
use flysch_ufs::{
    Nonce, Operation, Output as Answer, RpmbAnswer, RpmbCommand, RpmbError, RpmbKey, RpmbRequest,
    RpmbUnit, UfsError,
};
use flysch_wire::ufs::rpmb::{KEY_LENGTH, RpmbStatus, SecureWriteProtectEntry, WriteProtectType};
use serde_json::json;

use crate::confirm::{self, Consent};
use crate::failure::Failure;
use crate::file::Named;
use crate::output::Output;
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The region, each with its own key and counter.
    #[arg(long, global = true, default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    region: u8,

    /// The key: a file of 32 bytes or of 64 hexadecimal digits, or the digits themselves, which
    /// others on this machine can then see in the process list.
    #[arg(long, global = true, value_name = "FILE|HEX")]
    key: Option<String>,

    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the device's RPMB unit: mode, blocks, regions.
    Info,
    /// Program the key of a region: possible only once.
    ProgramKey {
        #[command(flatten)]
        consent: Consent,
    },
    /// Read the write counter.
    Counter,
    /// Read blocks, authenticated with the key if there is one.
    Read {
        /// First block.
        #[arg(long, default_value_t = 0)]
        address: u16,
        /// Blocks.
        #[arg(long, default_value_t = 1)]
        blocks: u32,
        /// Output file; `-` is standard output.
        #[arg(long, short, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Write a file of whole blocks.
    Write {
        /// The input file.
        file: PathBuf,
        /// First block.
        #[arg(long, default_value_t = 0)]
        address: u16,
    },
    /// Show the write protected areas of a logical unit.
    Protection {
        /// Logical unit.
        lun: u8,
    },
    /// Set all protected areas of a logical unit; none removes the protection.
    Protect {
        /// Logical unit.
        lun: u8,
        /// First block, blocks (0: all), and kind: `nv` until it is removed, `power` until the next
        /// power cycle, `awp` again after every power-on; a final `:open` removes the area's
        /// protection now.
        #[arg(value_name = "LBA+BLOCKS[:nv|power|awp][:open]", value_parser = area)]
        areas: Vec<SecureWriteProtectEntry>,
    },
}

impl Arguments {
    /// The file that it reads, other than a key, which can also be given as digits.
    pub(super) fn input(&self) -> Option<&Path> {
        match &self.what {
            Some(What::Write { file, .. }) => Some(file),
            _ => None,
        }
    }
}

fn area(text: &str) -> Result<SecureWriteProtectEntry, String> {
    let wrong = || format!("`{text}` is not an area such as 1024+256, 0+0:power or 8+8:awp:open");
    let mut words = text.split(':');
    let range = words.next().and_then(|range| range.split_once('+')).ok_or_else(wrong)?;
    let number = |text: &str| crate::number::parse_number(text).ok();
    let mut area = SecureWriteProtectEntry {
        protect_type: WriteProtectType::NonVolatile,
        protected: true,
        lba: number(range.0).ok_or_else(wrong)?,
        blocks: number(range.1).and_then(|n| u32::try_from(n).ok()).ok_or_else(wrong)?,
    };
    for word in words {
        match word {
            "nv" => area.protect_type = WriteProtectType::NonVolatile,
            "power" => area.protect_type = WriteProtectType::Power,
            "awp" => area.protect_type = WriteProtectType::NonVolatileAfterPower,
            "open" => area.protected = false,
            _ => return Err(wrong()),
        }
    }
    Ok(area)
}

pub(super) fn run(
    arguments: &Arguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let key = arguments.key.as_deref().map(key).transpose()?;
    let mut client = Client { region: arguments.region, key, control };
    match arguments.what.as_ref().unwrap_or(&What::Info) {
        What::Info => info(client.unit()?, output),
        What::ProgramKey { consent } => {
            let key = client.needed_key()?;
            let region = arguments.region;
            client.unit()?;
            consent.ask(&format!("The key of RPMB region {region} can never be changed again."))?;
            client.ask(RpmbRequest::ProgramKey { key })?;
            confirm::done(output, &json!({ "region": region }), "the key is programmed")
        }
        What::Counter => {
            let answer = client.counter()?;
            let counter = answer.counter.unwrap_or_default();
            let proved = answer.authenticated;
            if output.json() {
                let expired = answer.expired;
                let value =
                    json!({ "counter": counter, "authenticated": proved, "expired": expired });
                return output.value(&value);
            }
            output.line(format!("write counter  {counter}"))?;
            output.line(format!("proved         {}", proof(proved)))?;
            if answer.expired { output.line("no write is possible any more") } else { Ok(()) }
        }
        What::Read { address, blocks, output: path } => {
            client.read(*address, *blocks, path, output)
        }
        What::Write { file, address } => client.write(file, *address, output),
        What::Protection { lun } => {
            let (key, nonce) = (client.key.clone(), nonce()?);
            let answer = client.ask(RpmbRequest::ReadProtection { key, nonce, lun: *lun })?;
            areas(&answer, output)
        }
        What::Protect { lun, areas } => {
            let key = client.needed_key()?;
            let counter = client.counter()?.counter.unwrap_or_default();
            let request = RpmbRequest::Protect { key, counter, lun: *lun, areas: areas.clone() };
            client.ask(request)?;
            let value = json!({ "lun": lun, "areas": areas.len() });
            let one = format!("area of unit {lun} is set");
            let many = format!("areas of unit {lun} are set");
            confirm::done(output, &value, &counted(areas.len(), &one, &many).to_string())
        }
    }
}

fn proof(proved: bool) -> &'static str {
    if proved { "yes" } else { "no: without --key anybody could have made the answer" }
}

fn info(unit: RpmbUnit, output: &mut Output) -> Result<(), Failure> {
    let mode = if unit.advanced { "advanced" } else { "normal" };
    if output.json() {
        return output.value(&json!({
            "mode": mode,
            "block_bytes": unit.block_length,
            "blocks_max": unit.blocks_max,
            "regions_bytes": unit.regions,
        }));
    }
    output.line(format!("mode      {mode}"))?;
    output.line(format!(
        "block     {} bytes, up to {} at once",
        unit.block_length, unit.blocks_max
    ))?;
    for (n, bytes) in unit.regions.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
        let blocks = bytes / u64::from(unit.block_length);
        output.line(format!("region {n}  {}, {blocks} blocks", size::display(bytes)))?;
    }
    Ok(())
}

fn areas(answer: &RpmbAnswer, output: &mut Output) -> Result<(), Failure> {
    let all = &answer.areas;
    if output.json() {
        let all: Vec<_> = all
            .iter()
            .map(|area| {
                let (lba, blocks) = (area.lba, area.blocks);
                let (kind, now) = (area.protect_type.name(), area.protected);
                json!({ "lba": lba, "blocks": blocks, "type": kind, "protected": now })
            })
            .collect();
        return output.value(&json!({ "areas": all, "authenticated": answer.authenticated }));
    }
    if all.is_empty() {
        return output.line("no area");
    }
    let rows: Vec<_> = all
        .iter()
        .map(|area| {
            let now = if area.protected { "protected" } else { "open" };
            let kind = area.protect_type.name().to_owned();
            vec![area.lba.to_string(), area.blocks.to_string(), kind, now.to_owned()]
        })
        .collect();
    output.table(&["lba", "blocks", "type", "now"], &rows)?;
    output.line(format!("proved: {}", proof(answer.authenticated)))
}

/// A key from a file or from digits. The input appears in no message: it may be a key.
pub(super) fn key(given: &str) -> Result<RpmbKey, Failure> {
    const WRONG: &str = "--key: neither 64 hexadecimal digits nor a file with a key";
    if let Some(key) = digits(given.as_bytes()) {
        return Ok(key);
    }
    let path = Path::new(given);
    let bytes = fs::read(path).map_err(|error| Failure::of(WRONG, error))?;
    let whole: Result<[u8; KEY_LENGTH], _> = bytes.as_slice().try_into();
    let key = whole.ok().map(RpmbKey::new).or_else(|| digits(bytes.trim_ascii()));
    key.ok_or_else(|| {
        let length = counted(bytes.len() as u64, "byte", "bytes");
        Failure::usage(format!("--key: the file has {length}, not 32 bytes or 64 digits"))
    })
}

fn digits(text: &[u8]) -> Option<RpmbKey> {
    if text.len() != 2 * KEY_LENGTH {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut key = [0; KEY_LENGTH];
    for (byte, two) in key.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(two[0])? << 4 | digit(two[1])?;
    }
    Some(RpmbKey::new(key))
}

/// Unpredictable bytes.
fn nonce() -> Result<Nonce, Failure> {
    let mut nonce = Nonce::default();
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut nonce));
    read.map_err(|error| Failure::of("/dev/urandom", error))?;
    Ok(nonce)
}

struct Client<'a> {
    region: u8,
    key: Option<RpmbKey>,
    control: &'a mut dyn Control,
}

impl Client<'_> {
    fn needed_key(&self) -> Result<RpmbKey, Failure> {
        self.key.clone().ok_or_else(|| Failure::usage("this needs the key: --key FILE"))
    }

    fn unit(&mut self) -> Result<RpmbUnit, Failure> {
        match self.control.operate(Operation::RpmbUnit)? {
            Answer::RpmbUnit(unit) => Ok(unit),
            _ => Err(Failure::failed("RPMB: the driver did not answer what was asked")),
        }
    }

    fn ask(&mut self, request: RpmbRequest) -> Result<RpmbAnswer, Failure> {
        let region = self.region;
        match self.control.operate(Operation::Rpmb(RpmbCommand { region, request })) {
            Ok(Answer::Rpmb(answer)) => Ok(answer),
            Ok(_) => Err(Failure::failed("RPMB: the driver did not answer what was asked")),
            Err(error) => Err(explain(region, error)),
        }
    }

    fn counter(&mut self) -> Result<RpmbAnswer, Failure> {
        let (key, nonce) = (self.key.clone(), nonce()?);
        self.ask(RpmbRequest::ReadCounter { key, nonce })
    }

    fn read(
        &mut self,
        address: u16,
        blocks: u32,
        path: &Path,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let unit = self.unit()?;
        let mut file = Named::open(path, output)?;
        let total = u64::from(blocks) * u64::from(unit.block_length);
        let mut progress = Progress::bytes("reading", Some(total));
        let mut proved = true;
        let mut done = 0;
        while done < blocks {
            let count = (blocks - done).min(unit.blocks_max.into());
            let at = block_at(address, done)?;
            let (key, nonce) = (self.key.clone(), nonce()?);
            let blocks = count as u16;
            let answer = self.ask(RpmbRequest::Read { key, nonce, address: at, blocks })?;
            file.write(|to| to.write_all(&answer.data))?;
            proved &= answer.authenticated;
            done += count;
            progress.set(u64::from(done) * u64::from(unit.block_length));
        }
        drop(progress);
        file.finish()?;
        if output.json() {
            return output.value(&json!({ "bytes": total, "authenticated": proved }));
        }
        match proved {
            true => Ok(()),
            false => {
                eprintln!("flysch: RPMB region {}: not proved: {}", self.region, proof(false));
                Ok(())
            }
        }
    }

    fn write(&mut self, path: &Path, address: u16, output: &mut Output) -> Result<(), Failure> {
        let key = self.needed_key()?;
        let unit = self.unit()?;
        let data = fs::read(path).map_err(|error| Failure::of(path.display(), error))?;
        let block = unit.block_length as usize;
        if data.is_empty() || !data.len().is_multiple_of(block) {
            let length = data.len();
            return Err(Failure::of(
                path.display(),
                format!("{length} bytes are not whole blocks of {block}: pad the file"),
            ));
        }
        let mut counter = self.counter()?.counter.unwrap_or_default();
        let mut progress = Progress::bytes("writing", Some(data.len() as u64));
        let message = block * usize::from(unit.blocks_max);
        for (n, part) in data.chunks(message).enumerate() {
            let done = n * usize::from(unit.blocks_max);
            let address = block_at(address, done as u32)?;
            let (key, data) = (key.clone(), part.to_vec());
            let answer = self.ask(RpmbRequest::Write { key, counter, address, data });
            let answer = answer.map_err(|failure| match (failure, done) {
                (failure, 0) => failure,
                (failure, done) => {
                    let done = counted(done, "block", "blocks");
                    Failure::of(format!("after {done}"), failure)
                }
            })?;
            counter = answer.counter.unwrap_or_default();
            progress.set((n * message + part.len()) as u64);
        }
        drop(progress);
        let blocks = data.len() / block;
        let value = json!({ "blocks": blocks, "counter": counter });
        let blocks = counted(blocks, "block", "blocks");
        confirm::done(output, &value, &format!("{blocks} written, write counter {counter}"))
    }
}

fn block_at(address: u16, done: u32) -> Result<u16, Failure> {
    let at = u32::from(address) + done;
    u16::try_from(at).map_err(|_| Failure::usage("an RPMB region ends at block 65535"))
}

/// What to do about it, if anything can be done.
fn explain(region: u8, error: UfsError) -> Failure {
    let UfsError::Rpmb(cause) = error else { return error.into() };
    let remedy = match cause {
        RpmbError::Refused(RpmbStatus::KeyNotProgrammed) => {
            "; `flysch ufs rpmb program-key` programs one, once"
        }
        RpmbError::Refused(RpmbStatus::AuthenticationFailure) | RpmbError::Mac => {
            "; is it the key of this region?"
        }
        RpmbError::Refused(RpmbStatus::CounterFailure) => "; somebody else wrote: try again",
        RpmbError::Refused(RpmbStatus::GeneralFailure) => {
            "; a key that is programmed already stays"
        }
        RpmbError::NoRegion(_) => "; `flysch ufs rpmb info` lists those there are",
        _ => "",
    };
    Failure::of(format!("RPMB region {region}"), format!("{cause}{remedy}"))
}

#[cfg(test)]
mod tests;
