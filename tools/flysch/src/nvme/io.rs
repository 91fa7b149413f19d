//! Commands to a namespace: `flysch nvme flush`, `read`, `write`, `compare`, `verify`,
//! `write-zeroes`, `write-uncor`, `dsm` and `copy`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use flysch_api::count::counted;
use flysch_nvme::{AdminCommand, AdminData, AdminReply};
use flysch_wire::nvme::command::{
    CopyFlags, CopySource, DSM_DEALLOCATE, DSM_RANGES_MAX, DsmRange, TransferFlags,
};
use flysch_wire::nvme::{AdminOpcode, NvmOpcode, Status};
use serde_json::json;

use super::identify::Namespace;
use super::{Session, dump, hex};
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::file::Named;
use crate::number::parse_number;

/// Bytes of a dataset management list: some controllers read all of it, whatever its length.
const DSM_LIST: usize = 4096;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Blocks {
    #[command(flatten)]
    namespace: Namespace,
    /// First block.
    #[arg(long, short = 's', value_name = "BLOCK", value_parser = parse_number)]
    start_block: u64,
    /// Number of blocks minus one.
    #[arg(long, short = 'c', value_name = "NUMBER", default_value = "0")]
    block_count: u16,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReadArguments {
    #[command(flatten)]
    blocks: Blocks,
    /// Bypass all caches.
    #[arg(long, short)]
    force_unit_access: bool,
    /// Write the data to this file, `-` for standard output.
    #[arg(long, short, value_name = "FILE")]
    data: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct WriteArguments {
    #[command(flatten)]
    blocks: Blocks,
    /// The data; it is padded with zeros.
    #[arg(long, short, value_name = "FILE")]
    pub(super) data: PathBuf,
    /// Bypass all caches.
    #[arg(long, short)]
    force_unit_access: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct CompareArguments {
    #[command(flatten)]
    blocks: Blocks,
    /// The expected contents of the blocks; padded with zeros.
    #[arg(long, short, value_name = "FILE")]
    pub(super) data: PathBuf,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ZeroArguments {
    #[command(flatten)]
    blocks: Blocks,
    /// The controller may deallocate them.
    #[arg(long, short)]
    deac: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ChangeArguments {
    #[command(flatten)]
    blocks: Blocks,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct DsmArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// First blocks of the ranges.
    #[arg(long, short, value_name = "BLOCK,...", value_delimiter = ',', required = true)]
    #[arg(value_parser = parse_number)]
    slbs: Vec<u64>,
    /// Number of blocks of each.
    #[arg(long, short, value_name = "NUMBER,...", value_delimiter = ',', required = true)]
    #[arg(value_parser = super::features::word)]
    blocks: Vec<u32>,
    /// Deallocate them (AD).
    #[arg(long, short = 'd')]
    ad: bool,
    /// They will be written as a whole (IDW).
    #[arg(long, short = 'w')]
    idw: bool,
    /// They will be read as a whole (IDR).
    #[arg(long, short = 'r')]
    idr: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct CopyArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// The destination.
    #[arg(long, short = 'd', value_name = "BLOCK", value_parser = parse_number)]
    sdlba: u64,
    /// First blocks of the sources.
    #[arg(long, short, value_name = "BLOCK,...", value_delimiter = ',', required = true)]
    #[arg(value_parser = parse_number)]
    slbs: Vec<u64>,
    /// Number of blocks of each source minus one.
    #[arg(long, short, value_name = "NUMBER,...", value_delimiter = ',', required = true)]
    blocks: Vec<u16>,
    #[command(flatten)]
    consent: Consent,
}

impl Session<'_> {
    /// A command to a namespace that must succeed.
    pub(super) fn io(&mut self, command: AdminCommand) -> Result<AdminReply, Failure> {
        let opcode = NvmOpcode::from_bits(command.opcode);
        let reply = self.control.io(command)?;
        match Status::of_field(reply.status.status) {
            Status::Success => Ok(reply),
            status => {
                Err(Failure::failed(format!("{opcode}: {status} ({:#x})", reply.status.status)))
            }
        }
    }
}

/// Bytes of this many blocks of a namespace, counted minus one.
fn bytes_of(session: &mut Session<'_>, nsid: u32, count: u16) -> Result<usize, Failure> {
    let data = session.identify_namespace(nsid)?;
    let size = data.block_size().ok_or_else(|| {
        Failure::usage(format!("namespace {nsid} has no blocks of a size that can be used"))
    })?;
    Ok((usize::from(count) + 1) * size as usize)
}

/// A command with a range of blocks.
fn transfer(
    session: &mut Session<'_>,
    opcode: NvmOpcode,
    blocks: &Blocks,
    (flags, data): (TransferFlags, AdminData),
) -> Result<AdminReply, Failure> {
    let nsid = session.meant(blocks.namespace)?;
    let (low, high) = (blocks.start_block as u32, (blocks.start_block >> 32) as u32);
    let flags = flags.with_nlb(blocks.block_count).into_bits();
    let cdw10 = [low, high, flags, 0, 0, 0];
    session.io(AdminCommand { nsid, cdw10, data, ..command(opcode) })
}

fn tell(session: &mut Session<'_>, word: &str) -> Result<(), Failure> {
    session.done(&json!({ "command": word, "status": 0 }), &format!("{word}: Success"))
}

pub(super) fn flush(session: &mut Session<'_>, namespace: Namespace) -> Result<(), Failure> {
    let nsid = session.meant(namespace)?;
    session.io(AdminCommand { nsid, ..command(NvmOpcode::Flush) })?;
    tell(session, "flush")
}

pub(super) fn read(session: &mut Session<'_>, arguments: &ReadArguments) -> Result<(), Failure> {
    let ReadArguments { blocks, force_unit_access, data } = arguments;
    let nsid = session.meant(blocks.namespace)?;
    let bytes = bytes_of(session, nsid, blocks.block_count)?;
    let flags = TransferFlags::new().with_fua(*force_unit_access);
    let reply = transfer(session, NvmOpcode::Read, blocks, (flags, AdminData::In(bytes as u32)))?;
    if let Some(path) = data {
        let mut file = Named::open(path, session.output)?;
        file.write(|to| to.write_all(&reply.data))?;
        return file.finish();
    }
    if session.output.json() {
        return session.output.value(&json!({ "data": hex(&reply.data) }));
    }
    dump(&reply.data, session.output)
}

/// The content of a file, as long as the blocks.
fn content(session: &mut Session<'_>, path: &Path, blocks: &Blocks) -> Result<AdminData, Failure> {
    let nsid = session.meant(blocks.namespace)?;
    let bytes = bytes_of(session, nsid, blocks.block_count)?;
    let mut content = std::fs::read(path).map_err(|error| Failure::of(path.display(), error))?;
    if content.is_empty() {
        return Err(Failure::of(path.display(), "is empty; `write-zeroes` writes zeros"));
    }
    if content.len() > bytes {
        let length = content.len();
        let why = format!("{length} bytes are more than the {bytes} of the blocks");
        return Err(Failure::usage(format!("{}: {why}", path.display())));
    }
    content.resize(bytes, 0);
    Ok(AdminData::Out(content))
}

pub(super) fn write(session: &mut Session<'_>, arguments: &WriteArguments) -> Result<(), Failure> {
    let WriteArguments { blocks, data, force_unit_access, consent } = arguments;
    consent.ask("What the blocks hold is lost.")?;
    let content = content(session, data, blocks)?;
    let flags = TransferFlags::new().with_fua(*force_unit_access);
    transfer(session, NvmOpcode::Write, blocks, (flags, content))?;
    tell(session, "write")
}

pub(super) fn compare(
    session: &mut Session<'_>,
    arguments: &CompareArguments,
) -> Result<(), Failure> {
    let content = content(session, &arguments.data, &arguments.blocks)?;
    let flags = TransferFlags::new();
    transfer(session, NvmOpcode::Compare, &arguments.blocks, (flags, content))?;
    tell(session, "compare")
}

pub(super) fn verify(session: &mut Session<'_>, blocks: &Blocks) -> Result<(), Failure> {
    let nothing = (TransferFlags::new(), AdminData::None);
    transfer(session, NvmOpcode::Verify, blocks, nothing)?;
    tell(session, "verify")
}

pub(super) fn write_zeroes(
    session: &mut Session<'_>,
    arguments: &ZeroArguments,
) -> Result<(), Failure> {
    arguments.consent.ask("What the blocks hold is lost.")?;
    let flags = TransferFlags::new().with_deac(arguments.deac);
    transfer(session, NvmOpcode::WriteZeroes, &arguments.blocks, (flags, AdminData::None))?;
    tell(session, "write-zeroes")
}

pub(super) fn write_uncor(
    session: &mut Session<'_>,
    arguments: &ChangeArguments,
) -> Result<(), Failure> {
    arguments.consent.ask("The blocks cannot be read until they are written again.")?;
    let nothing = (TransferFlags::new(), AdminData::None);
    transfer(session, NvmOpcode::WriteUncorrectable, &arguments.blocks, nothing)?;
    tell(session, "write-uncor")
}

pub(super) fn dsm(session: &mut Session<'_>, arguments: &DsmArguments) -> Result<(), Failure> {
    let DsmArguments { slbs, blocks, ad, idw, idr, .. } = arguments;
    pairs(slbs.len(), blocks.len(), DSM_RANGES_MAX)?;
    if *ad {
        arguments.consent.ask("What the ranges hold is lost.")?;
    }
    let mut list: Vec<u8> = slbs
        .iter()
        .zip(blocks)
        .flat_map(|(slba, blocks)| {
            DsmRange { attributes: 0, blocks: *blocks, slba: *slba }.to_bytes()
        })
        .collect();
    list.resize(DSM_LIST, 0);
    let hints = if *ad { DSM_DEALLOCATE } else { 0 } | u32::from(*idw) << 1 | u32::from(*idr);
    let nsid = session.meant(arguments.namespace)?;
    let cdw10 = [slbs.len() as u32 - 1, hints, 0, 0, 0, 0];
    let data = AdminData::Out(list);
    session.io(AdminCommand { nsid, cdw10, data, ..command(NvmOpcode::DatasetManagement) })?;
    tell(session, "dsm")
}

pub(super) fn copy(session: &mut Session<'_>, arguments: &CopyArguments) -> Result<(), Failure> {
    let CopyArguments { sdlba, slbs, blocks, consent, .. } = arguments;
    pairs(slbs.len(), blocks.len(), 256)?;
    consent.ask("What the target holds is lost.")?;
    let sources = slbs.iter().zip(blocks);
    let list =
        sources.flat_map(|(slba, nlb)| CopySource { slba: *slba, nlb: *nlb }.to_bytes()).collect();
    let nsid = session.meant(arguments.namespace)?;
    let flags = CopyFlags::new().with_nr((slbs.len() - 1) as u8).into_bits();
    let cdw10 = [*sdlba as u32, (*sdlba >> 32) as u32, flags, 0, 0, 0];
    let data = AdminData::Out(list);
    session.io(AdminCommand { nsid, cdw10, data, ..command(NvmOpcode::Copy) })?;
    tell(session, "copy")
}

/// Equal numbers of starts and lengths, and not too many.
fn pairs(starts: usize, lengths: usize, most: usize) -> Result<(), Failure> {
    if starts != lengths {
        let starts = counted(starts, "first block", "first blocks");
        let lengths = counted(lengths, "length", "lengths");
        return Err(Failure::usage(format!("{starts}, but {lengths}")));
    }
    if starts > most {
        return Err(Failure::usage(format!("{starts} ranges: a command takes at most {most}")));
    }
    Ok(())
}

/// A command to a namespace, in the form of an admin command.
pub(super) fn command(opcode: NvmOpcode) -> AdminCommand {
    let opcode = opcode.into_bits();
    AdminCommand { opcode, ..AdminCommand::new(AdminOpcode::Unknown(opcode)) }
}
