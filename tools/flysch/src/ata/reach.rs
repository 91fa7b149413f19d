//! `flysch ata hpa`, `ama` and `trim`: the accessible size of the disk, and discarded sectors.

use flysch_ahci::{AtaCommand, AtaData};
use flysch_api::command::AtaProtocol;
use flysch_api::count::counted;
use flysch_wire::ata::command::max_address;
use flysch_wire::ata::identify::{set82, set119};
use flysch_wire::ata::{Opcode, SECTOR, dsm};
use serde_json::json;

use super::Session;
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::number::parse_number;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct HpaArguments {
    /// Number of accessible sectors from now on.
    #[arg(long, short = 's', value_name = "SECTORS", value_parser = parse_number)]
    set: Option<u64>,
    /// Only until the next power-on.
    #[arg(long, requires = "set")]
    temporary: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct AmaArguments {
    /// Number of accessible sectors from now on.
    #[arg(long, short = 's', value_name = "SECTORS", value_parser = parse_number)]
    set: Option<u64>,
    /// Freeze the size until the next power-on.
    #[arg(long, short = 'f', conflicts_with = "set")]
    freeze: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct TrimArguments {
    /// The first sector.
    #[arg(long, short = 's', value_name = "LBA", value_parser = parse_number)]
    lba: u64,
    /// Number of sectors.
    #[arg(long, short = 'n', value_name = "SECTORS", value_parser = parse_number)]
    count: u64,
    #[command(flatten)]
    consent: Consent,
}

/// The question asked before sectors become inaccessible.
const WARNING: &str = "Sectors beyond the new end cannot be reached any more.";

pub(super) fn hpa(session: &mut Session<'_>, arguments: HpaArguments) -> Result<(), Failure> {
    let HpaArguments { set, temporary, consent } = arguments;
    session.identify_with("host protected area", |data| {
        data.supports82(set82::HOST_PROTECTED_AREA) && data.has_lba48()
    })?;
    if set.is_some() {
        consent.ask(WARNING)?;
    }
    let native =
        session.command(AtaCommand::new(Opcode::ReadNativeMaxExt))?.status.lba.saturating_add(1);
    if let Some(sectors) = set {
        // Right behind the question, as the device wants it (ACS-2 7.66).
        let mut command = AtaCommand::new(Opcode::SetMaxExt);
        command.task.lba = last_of(sectors, native)?;
        command.task.count = u16::from(!temporary);
        session.command(command)?;
    }
    tell_reach(session, native, "HPA")
}

pub(super) fn ama(session: &mut Session<'_>, arguments: AmaArguments) -> Result<(), Failure> {
    let AmaArguments { set, freeze, consent } = arguments;
    session.identify_with("accessible max address feature set", |data| {
        data.more[0] & set119::MAX_ADDRESS != 0
    })?;
    let ask = |what| {
        let mut command = AtaCommand::new(Opcode::MaxAddress);
        command.task.features = what;
        command
    };
    let native = session.command(ask(max_address::GET_NATIVE))?.status.lba.saturating_add(1);
    if let Some(sectors) = set {
        consent.ask(WARNING)?;
        let mut command = ask(max_address::SET);
        command.task.lba = last_of(sectors, native)?;
        session.command(command)?;
    }
    if freeze {
        session.command(ask(max_address::FREEZE))?;
    }
    tell_reach(session, native, "AMA")
}

fn tell_reach(session: &mut Session<'_>, native: u64, what: &str) -> Result<(), Failure> {
    let sectors = session.identify()?.sectors();
    let is_on = sectors != native;
    let told = json!({ "max_sectors": sectors, "native_max_sectors": native, "enabled": is_on });
    let state = if is_on { "enabled" } else { "disabled" };
    session.done(&told, &format!("max sectors   = {sectors}/{native}, {what} is {state}"))
}

pub(super) fn trim(session: &mut Session<'_>, arguments: TrimArguments) -> Result<(), Failure> {
    let TrimArguments { lba, count, consent } = arguments;
    let data = session.identify_with("trim", flysch_wire::ata::Identify::has_trim)?;
    let sectors = data.sectors();
    if count == 0 {
        return Err(Failure::usage("`--count 0` is no sector at all: it must be 1 or more"));
    }
    if lba >= sectors || count > sectors - lba {
        return Err(Failure::usage(format!("the disk has sectors 0 to {}", sectors - 1)));
    }
    let last = lba + count - 1;
    consent.ask(&format!("What sectors {lba} to {last} hold is lost."))?;
    let (mut at, mut left) = (lba, count);
    while left > 0 {
        let mut block = [0; SECTOR];
        let done = dsm::fill(&mut block, at, left.min(dsm::SECTORS_MAX.into()) as u32);
        let mut command = AtaCommand::new(Opcode::DataSetManagement);
        command.task.protocol = AtaProtocol::Dma;
        (command.task.features, command.task.count) = (dsm::TRIM, 1);
        command.data = AtaData::Out(block.to_vec());
        session.command(command)?;
        (at, left) = (at + u64::from(done), left - u64::from(done));
    }
    let told = json!({ "lba": lba, "sectors": count });
    let sectors = counted(count, "sector", "sectors");
    session.done(&told, &format!("trimmed {sectors} from {lba} on"))
}

/// The last of this many sectors.
fn last_of(sectors: u64, native: u64) -> Result<u64, Failure> {
    match sectors {
        1.. if sectors <= native => Ok(sectors - 1),
        _ => Err(Failure::usage(format!("the disk has 1 to {native} sectors"))),
    }
}
