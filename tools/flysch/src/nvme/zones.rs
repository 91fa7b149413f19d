//! `flysch nvme zns`: zoned namespaces.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use flysch_nvme::{AdminCommand, AdminData};
use flysch_wire::nvme::command::TransferFlags;
use flysch_wire::nvme::zone::{
    IdentifyZonedNamespace, PARTIAL_REPORT, REPORT_HEADER, SELECT_ALL, ZoneAction, ZoneDescriptor,
    ZoneState,
};
use flysch_wire::nvme::{Cns, NvmOpcode};
use serde_json::{Value, json};

use super::identify::Namespace;
use super::io::command;
use super::{Session, le32};
use crate::confirm::Consent;
use crate::failure::Failure;
use crate::number::parse_number;

/// Zones of a report requested at once.
pub(crate) const AT_ONCE: usize = 63;

/// Zone management receive: at most `room` zones starting with that of a block; `how` is CDW13.
pub(crate) fn report_command(nsid: u32, (slba, room): (u64, usize), how: u32) -> AdminCommand {
    let bytes = (REPORT_HEADER + room * ZoneDescriptor::LENGTH) as u32;
    let cdw10 = [slba as u32, (slba >> 32) as u32, bytes / 4 - 1, how, 0, 0];
    let data = AdminData::In(bytes);
    AdminCommand { nsid, cdw10, data, ..command(NvmOpcode::ZoneReceive) }
}

/// Its result: the total number of zones, and these zones.
pub(crate) fn report_of(data: &[u8], room: usize) -> (u64, Vec<ZoneDescriptor>) {
    let count = u64::from(le32(data, 0)) | u64::from(le32(data, 4)) << 32;
    let list = data[REPORT_HEADER..].chunks_exact(ZoneDescriptor::LENGTH);
    let there = usize::try_from(count).unwrap_or(room).min(room);
    (count, list.take(there).flat_map(ZoneDescriptor::parse).collect())
}

/// Zone management send: to the zone that starts at a block, or to all.
pub(crate) fn manage_command(nsid: u32, action: ZoneAction, block: Option<u64>) -> AdminCommand {
    let (all, slba) = block.map_or((SELECT_ALL, 0), |slba| (0, slba));
    let (low, high) = (slba as u32, (slba >> 32) as u32);
    let cdw10 = [low, high, 0, u32::from(action.into_bits()) | all, 0, 0];
    AdminCommand { nsid, cdw10, ..command(NvmOpcode::ZoneSend) }
}

/// Identify data of a namespace in the zoned command set.
pub(crate) fn identify_command(nsid: u32) -> AdminCommand {
    AdminCommand::identify_zoned(Cns::CommandSetNamespace, nsid)
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Zoned {
    /// Show the controller's properties for zoned namespaces.
    IdCtrl,
    /// Show a namespace's properties as a zoned one.
    IdNs(Namespace),
    /// List the zones and their states.
    ReportZones(ReportArguments),
    /// Open a zone.
    OpenZone(ZoneArguments),
    /// Close a zone.
    CloseZone(ZoneArguments),
    /// Finish a zone: nothing more can be written to it.
    FinishZone(ConsentArguments),
    /// Reset a zone: its data is lost.
    ResetZone(ConsentArguments),
    /// Take a read-only zone offline: its data is lost.
    OfflineZone(ConsentArguments),
    /// Write to a zone, wherever its write pointer is.
    ZoneAppend(AppendArguments),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// Any.
    #[value(alias = "0")]
    All,
    /// Empty.
    #[value(alias = "1")]
    Empty,
    /// Opened by a write.
    #[value(name = "imp-opened", alias = "2")]
    ImplicitlyOpened,
    /// Opened by a command.
    #[value(name = "exp-opened", alias = "3")]
    ExplicitlyOpened,
    /// Closed.
    #[value(alias = "4")]
    Closed,
    /// Full.
    #[value(alias = "5")]
    Full,
    /// Read-only.
    #[value(name = "readonly", alias = "6")]
    ReadOnly,
    /// Offline.
    #[value(alias = "7")]
    Offline,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// Start with the zone of this block.
    #[arg(long, short = 's', value_name = "BLOCK", default_value = "0")]
    #[arg(value_parser = parse_number)]
    start_lba: u64,
    /// At most this many.
    #[arg(long, short, value_name = "NUMBER")]
    descs: Option<usize>,
    /// Only those in this state.
    #[arg(long, short = 'S', default_value = "all")]
    state: State,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ZoneArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// First block of the zone.
    #[arg(long, short = 's', value_name = "BLOCK", default_value = "0")]
    #[arg(value_parser = parse_number)]
    start_lba: u64,
    /// All zones to which the command applies.
    #[arg(long, short = 'a', conflicts_with = "start_lba")]
    select_all: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ConsentArguments {
    #[command(flatten)]
    zone: ZoneArguments,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct AppendArguments {
    #[command(flatten)]
    namespace: Namespace,
    /// First block of the zone.
    #[arg(long, short = 's', value_name = "BLOCK", value_parser = parse_number)]
    zslba: u64,
    /// The data, whole blocks.
    #[arg(long, short, value_name = "FILE")]
    pub(super) data: PathBuf,
}

pub(super) fn zns(session: &mut Session<'_>, what: &Zoned) -> Result<(), Failure> {
    match what {
        Zoned::IdCtrl => zns_id_ctrl(session),
        Zoned::IdNs(namespace) => zns_id_ns(session, *namespace),
        Zoned::ReportZones(arguments) => report_zones(session, arguments),
        Zoned::OpenZone(zone) => manage_zone(session, ZoneAction::Open, zone),
        Zoned::CloseZone(zone) => manage_zone(session, ZoneAction::Close, zone),
        Zoned::FinishZone(of) => {
            of.consent.ask("Nothing more can be written until a reset.")?;
            manage_zone(session, ZoneAction::Finish, &of.zone)
        }
        Zoned::ResetZone(of) => {
            of.consent.ask("What was written is lost.")?;
            manage_zone(session, ZoneAction::Reset, &of.zone)
        }
        Zoned::OfflineZone(of) => {
            of.consent.ask("What was written is lost for ever.")?;
            manage_zone(session, ZoneAction::Offline, &of.zone)
        }
        Zoned::ZoneAppend(arguments) => zone_append(session, arguments),
    }
}

/// The selected namespace, which must have zones.
fn meant_zoned(session: &mut Session<'_>, named: Namespace) -> Result<u32, Failure> {
    let nsid = session.meant(named)?;
    match super::is_success(&session.control.admin(identify_command(nsid))?) {
        true => Ok(nsid),
        false => Err(Failure::failed(format!("namespace {nsid} has no zones"))),
    }
}

/// Identify data of the zoned command set.
fn identify_zoned(session: &mut Session<'_>, cns: Cns, nsid: u32) -> Result<Vec<u8>, Failure> {
    Ok(session.admin(AdminCommand::identify_zoned(cns, nsid))?.data)
}

fn zns_id_ctrl(session: &mut Session<'_>) -> Result<(), Failure> {
    let reply =
        session.control.admin(AdminCommand::identify_zoned(Cns::CommandSetController, 0))?;
    if !super::is_success(&reply) {
        return Err(Failure::failed("the controller does not support zoned namespaces"));
    }
    let data = reply.data;
    if session.output.json() {
        return session.output.value(&json!({ "zasl": data[0] }));
    }
    session.output.line("NVMe ZNS Identify Controller:")?;
    session.output.line(format!("zasl    : {}", data[0]))
}

fn zns_id_ns(session: &mut Session<'_>, namespace: Namespace) -> Result<(), Failure> {
    let id = meant_zoned(session, namespace)?;
    let plain = session.identify_namespace(id)?;
    let data = identify_zoned(session, Cns::CommandSetNamespace, id)?;
    let zoned = IdentifyZonedNamespace::parse(&data).map_err(Failure::failed)?;
    let formats: Vec<(u8, u64, u8)> = (0..=plain.nlbaf.min(15))
        .map(|n| (n, zoned.zone_blocks(n), zoned.lbafe[usize::from(n) * 16 + 8]))
        .collect();
    if session.output.json() {
        let one = |(_, zsze, zdes): &(u8, u64, u8)| json!({ "zsze": zsze, "zdes": zdes });
        let lbafs: Vec<Value> = formats.iter().map(one).collect();
        let IdentifyZonedNamespace { zoc, ozcs, mar, mor, rrl, frl, .. } = zoned;
        return session.output.value(&json!({
            "zoc": zoc, "ozcs": ozcs, "mar": mar, "mor": mor, "rrl": rrl, "frl": frl,
            "lbafe": lbafs,
        }));
    }
    session.output.line("ZNS Command Set Identify Namespace:")?;
    session.output.line(format!("zoc     : {}", zoned.zoc))?;
    session.output.line(format!("ozcs    : {}", zoned.ozcs))?;
    // Counted from zero; all ones are no limit.
    for (name, value) in [("mar", zoned.mar), ("mor", zoned.mor)] {
        let text = match value {
            u32::MAX => "No Limit".to_owned(),
            value => format!("{value:#x}"),
        };
        session.output.line(format!("{name}     : {text}"))?;
    }
    session.output.line(format!("rrl     : {}", zoned.rrl))?;
    session.output.line(format!("frl     : {}", zoned.frl))?;
    for (number, zsze, zdes) in formats {
        let used = if number == plain.format_in_use() { " (in use)" } else { "" };
        session.output.line(format!("lbafe {number:2}: zsze:{zsze:#x} zdes:{zdes}{used}"))?;
    }
    Ok(())
}

/// A report of at most `room` zones from `slba` on: the total number, and these zones.
fn zones_from(
    session: &mut Session<'_>,
    nsid: u32,
    (slba, room): (u64, usize),
    cdw13: u32,
) -> Result<(u64, Vec<ZoneDescriptor>), Failure> {
    let data = session.io(report_command(nsid, (slba, room), cdw13))?.data;
    Ok(report_of(&data, room))
}

fn report_zones(session: &mut Session<'_>, arguments: &ReportArguments) -> Result<(), Failure> {
    let nsid = meant_zoned(session, arguments.namespace)?;
    let wanted = (arguments.state as u32) << 8;
    let mut slba = arguments.start_lba;
    let (total, _) = zones_from(session, nsid, (slba, 0), wanted)?;
    let most = arguments.descs.map_or(total, |descs| total.min(descs as u64));
    let blocks = session.identify_namespace(nsid)?.nsze;
    let mut zones: Vec<ZoneDescriptor> = Vec::new();
    while (zones.len() as u64) < most && slba < blocks {
        let room = AT_ONCE.min((most - zones.len() as u64) as usize);
        let (_, part) = zones_from(session, nsid, (slba, room), wanted | PARTIAL_REPORT)?;
        // Zones rise, or a report would never end.
        let Some(last) = part.last().filter(|last| last.zslba >= slba) else { break };
        let size = zone_blocks(session, nsid)?;
        slba = last.zslba.saturating_add(size.max(1));
        zones.extend(part);
    }
    if session.output.json() {
        let one = |zone: &ZoneDescriptor| {
            json!({
                "slba": zone.zslba,
                "wp": zone.wp,
                "cap": zone.zcap,
                "state": zone.state().to_string(),
                "type": kind(zone),
                "attrs": zone.za,
                "attrs_info": zone.zai,
            })
        };
        let list: Vec<Value> = zones.iter().map(one).collect();
        return session.output.value(&json!({ "nr_zones": most, "zone_list": list }));
    }
    session.output.line(format!("nr_zones: {most}"))?;
    for zone in &zones {
        session.output.line(format!(
            "SLBA: {:<#10x} WP: {:<#10x} Cap: {:<#10x} State: {:<12} Type: {:<14} \
             Attrs: {:#x}",
            zone.zslba,
            zone.wp,
            zone.zcap,
            zone.state().to_string(),
            kind(zone),
            zone.za
        ))?;
    }
    Ok(())
}

/// Blocks of a zone in the format in use.
fn zone_blocks(session: &mut Session<'_>, nsid: u32) -> Result<u64, Failure> {
    let format = session.identify_namespace(nsid)?.format_in_use();
    let data = identify_zoned(session, Cns::CommandSetNamespace, nsid)?;
    let zoned = IdentifyZonedNamespace::parse(&data).map_err(Failure::failed)?;
    Ok(zoned.zone_blocks(format))
}

fn manage_zone(
    session: &mut Session<'_>,
    action: ZoneAction,
    zone: &ZoneArguments,
) -> Result<(), Failure> {
    let nsid = meant_zoned(session, zone.namespace)?;
    let block = (!zone.select_all).then_some(zone.start_lba);
    session.io(manage_command(nsid, action, block))?;
    let (which, told) = match zone.select_all {
        true => ("all zones".to_owned(), Value::Null),
        false => (format!("zone slba: {:#x}", zone.start_lba), zone.start_lba.into()),
    };
    let line = format!("{action}: Success, {which} nsid: {nsid}");
    session.done(&json!({ "action": action.to_string(), "slba": told }), &line)
}

fn zone_append(session: &mut Session<'_>, arguments: &AppendArguments) -> Result<(), Failure> {
    let path = &arguments.data;
    let content = std::fs::read(path).map_err(|error| Failure::of(path.display(), error))?;
    let nsid = meant_zoned(session, arguments.namespace)?;
    let block = session.identify_namespace(nsid)?.block_size().unwrap_or(4096) as usize;
    let count = content.len() / block;
    let is_whole = content.len().is_multiple_of(block) && (1..=1 << 16).contains(&count);
    if !is_whole {
        let bytes = content.len();
        let why = format!("{bytes} bytes are not 1 to 65536 blocks of {block}");
        return Err(Failure::usage(format!("{}: {why}", path.display())));
    }
    let zslba = arguments.zslba;
    let flags = TransferFlags::new().with_nlb((count - 1) as u16).into_bits();
    let cdw10 = [zslba as u32, (zslba >> 32) as u32, flags, 0, 0, 0];
    let data = AdminData::Out(content);
    let command = command(NvmOpcode::ZoneAppend);
    let reply = session.io(AdminCommand { nsid, cdw10, data, ..command })?;
    // The low half of the block's number; a zone is shorter than that reaches.
    let low = zslba & !0xFFFF_FFFF | u64::from(reply.status.result);
    let lba = if low < zslba { low + (1 << 32) } else { low };
    session.done(&json!({ "lba": lba }), &format!("Success appended data to LBA {lba:x}"))
}

/// nvme-cli's name for the type of a zone.
fn kind(zone: &ZoneDescriptor) -> &'static str {
    match zone.zt {
        ZoneDescriptor::SEQUENTIAL => "SEQWRITE_REQ",
        _ => "unknown",
    }
}

const _: () =
    assert!(ZoneState::Empty.into_bits() == 1, "states are numbered as reports are asked");
