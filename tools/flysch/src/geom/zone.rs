//! `geom zone`: zones of a disk, as zonectl(8).

use clap::ValueEnum;
use flysch_api::block::{self, Cause};
use flysch_geom::zone::{
    ZONES_MAX, Zone, ZoneAction, ZoneAnswer, ZoneCondition, ZoneEntry, ZoneFilter, ZoneLimit,
    ZoneMode, ZoneParameters, ZoneReport, ZoneSame, ZoneTarget, ZoneType,
};
use flysch_geom::{Access, GeomError, Kind, ProviderId};
use flysch_wire::nvme::Status;
use serde_json::{Value, json};

use super::session::Session;
use crate::failure::Failure;
use crate::number::parse_number;
use crate::output::Output;

/// Options of `geom zone`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flysch zonectl --on nvme,zones=4M -d nda0 -c params
  flysch zonectl --on nvme,zones=4M -d nda0 -c rz -o full
  flysch zonectl --on nvme,zones=4M -d nda0 -c rwp -l 0x400 --yes")]
pub(super) struct Arguments {
    /// The provider.
    #[arg(short = 'd', value_name = "PROVIDER")]
    provider: String,
    /// What to do.
    #[arg(short = 'c', value_name = "COMMAND", ignore_case = true)]
    command: Command,
    /// All zones to which the command applies.
    #[arg(short = 'a', conflicts_with = "lba")]
    all: bool,
    /// The first sector of the zone; with `rz`, report from the zone that contains this sector.
    #[arg(short = 'l', value_name = "LBA", value_parser = parse_number)]
    lba: Option<u64>,
    /// Report only these zones.
    #[arg(short = 'o', value_name = "ZONES", ignore_case = true)]
    which: Option<Which>,
    /// How a report is printed.
    #[arg(short = 'P', value_name = "FORM", ignore_case = true)]
    form: Option<Form>,
    /// Confirm what cannot be undone (`finish`, `rwp`).
    #[arg(long, short)]
    yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Command {
    /// Report zones.
    #[value(alias = "reportzones")]
    Rz,
    /// Open a zone.
    Open,
    /// Close a zone.
    Close,
    /// Finish a zone: nothing more can be written to it.
    Finish,
    /// Reset the write pointer of a zone: its data is lost.
    Rwp,
    /// Show the disk's zone parameters.
    Params,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// All.
    All,
    /// Empty.
    Empty,
    /// Opened by a write.
    #[value(name = "imp_open")]
    ImplicitOpen,
    /// Opened by a command.
    #[value(name = "exp_open")]
    ExplicitOpen,
    /// Closed.
    Closed,
    /// Full.
    Full,
    /// Read-only.
    #[value(name = "ro", alias = "readonly")]
    ReadOnly,
    /// Offline.
    Offline,
    /// Reset recommended.
    #[value(name = "reset", alias = "rwp")]
    ResetNeeded,
    /// Not written sequentially.
    #[value(name = "nonseq")]
    NonSequential,
    /// Without a write pointer.
    #[value(name = "nonwp")]
    NotWritePointer,
}

impl Which {
    fn filter(self) -> ZoneFilter {
        let condition = match self {
            Self::All => return ZoneFilter::All,
            Self::ResetNeeded => return ZoneFilter::ResetNeeded,
            Self::NonSequential => return ZoneFilter::NonSequential,
            Self::Empty => ZoneCondition::Empty,
            Self::ImplicitOpen => ZoneCondition::ImplicitOpen,
            Self::ExplicitOpen => ZoneCondition::ExplicitOpen,
            Self::Closed => ZoneCondition::Closed,
            Self::Full => ZoneCondition::Full,
            Self::ReadOnly => ZoneCondition::ReadOnly,
            Self::Offline => ZoneCondition::Offline,
            Self::NotWritePointer => ZoneCondition::NotWritePointer,
        };
        ZoneFilter::In(condition)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Zones in columns.
    Normal,
    /// Only the number of zones.
    Summary,
    /// Zones without a heading, with no blanks in their words.
    Script,
}

/// Executes the command.
pub(super) fn run(
    session: &mut Session,
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let action = match arguments.command {
        Command::Rz => return report(session, arguments, output),
        Command::Params => None,
        Command::Open => Some(ZoneAction::Open),
        Command::Close => Some(ZoneAction::Close),
        Command::Finish => Some(ZoneAction::Finish),
        Command::Rwp => Some(ZoneAction::Reset),
    };
    if arguments.which.is_some() || arguments.form.is_some() {
        return Err(Failure::usage("zone: -o and -P are only for reports: -c rz"));
    }
    match action {
        None => parameters(session, arguments, output),
        Some(action) => manage(session, arguments, action, output),
    }
}

/// Executes the last part of a command, with the provider opened as it requires.
fn ask(session: &mut Session, name: &str, command: Zone) -> Result<ZoneAnswer, Failure> {
    let provider = session.provider(name)?;
    let access = Access::new(1, i32::from(command.changes()), 0);
    let opened = session.graph.open(provider, access);
    let consumer = opened.map_err(|error| session.failure(error))?;
    let answer = session.graph.zone(consumer, command);
    session.graph.shut(consumer);
    session.graph.settle();
    answer.map_err(|error| refused(session, (name, provider), (command, error)))
}

/// Why a command failed, and what to do about it.
fn refused(
    session: &Session,
    (name, provider): (&str, ProviderId),
    (command, error): (Zone, block::BlockError),
) -> Failure {
    let graph = &session.graph;
    let fail = |kind, cause: String| session.failure(GeomError::new(kind, name, cause));
    match error {
        block::BlockError::Unsupported => {
            let mut disk = provider;
            while let Some(under) =
                graph.objects().provider(disk).and_then(|it| graph.objects().under(it.geom))
            {
                disk = under;
            }
            let cause = match disk == provider {
                true => "has no zones; zoned are NVMe namespaces such as `--on nvme,zones=4M`",
                false => "has no zones of its own: only a whole disk has, sector by sector",
            };
            let beneath = match disk == provider {
                true => String::new(),
                false => format!("; ask {}", graph[disk].name),
            };
            fail(Kind::Invalid, format!("{cause}{beneath}"))
        }
        block::BlockError::OutOfRange => {
            let (lba, last) = (command.sector().unwrap_or(0), graph[provider].sectors() - 1);
            fail(Kind::Invalid, format!("-l {lba:#x}: its last sector is {last:#x}"))
        }
        block::BlockError::Device(Cause::Nvme(status)) => {
            let status = Status::of_field(status.status);
            let cause = match command.sector() {
                Some(lba) => format!("zone at {lba:#x}: {status}"),
                None => status.to_string(),
            };
            let hint = match status {
                Status::InvalidField => "; -l must be the first sector of a zone: see -c rz",
                Status::ZoneTransition => "; its condition does not allow this: see -c rz",
                Status::ZoneTooManyOpen => "; close or finish another: see -c rz -o exp_open",
                Status::ZoneTooManyActive => "; finish or reset another: see -c rz -o closed",
                _ => "",
            };
            fail(Kind::Io(error), format!("{cause}{hint}"))
        }
        other => session.failure(GeomError::io(name, other)),
    }
}

fn manage(
    session: &mut Session,
    arguments: &Arguments,
    action: ZoneAction,
    output: &mut Output,
) -> Result<(), Failure> {
    let target = match (arguments.all, arguments.lba) {
        (true, _) => ZoneTarget::All,
        (false, Some(lba)) => ZoneTarget::At(lba),
        (false, None) => {
            return Err(Failure::usage("zone: name one with -l LBA, or all of them with -a"));
        }
    };
    let lost = match action {
        ZoneAction::Finish => Some("Nothing more can be written until a reset."),
        ZoneAction::Reset => Some("What was written is lost."),
        ZoneAction::Open | ZoneAction::Close => None,
    };
    // Not asked at a terminal: on a mount it would be the terminal of the mount.
    if let Some(lost) = lost.filter(|_| !arguments.yes) {
        return Err(Failure::usage(format!("{lost} Add --yes if that is wanted")));
    }
    ask(session, &arguments.provider, Zone::Manage(action, target))?;
    match output.json() {
        true => output.value(&json!({
            "provider": arguments.provider,
            "command": word(action),
            "lba": arguments.lba,
        })),
        false => Ok(()),
    }
}

/// Its name in zonectl.
fn word(action: ZoneAction) -> &'static str {
    match action {
        ZoneAction::Open => "open",
        ZoneAction::Close => "close",
        ZoneAction::Finish => "finish",
        ZoneAction::Reset => "rwp",
    }
}

fn parameters(
    session: &mut Session,
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let answer = ask(session, &arguments.provider, Zone::Parameters)?;
    let ZoneAnswer::Parameters(it) = answer else { return Ok(()) };
    let ZoneParameters { mode, reports, actions, reads_anywhere, .. } = &it;
    let mode = match mode {
        ZoneMode::None => "None",
        ZoneMode::HostAware => "Host Aware",
        ZoneMode::DriveManaged => "Drive Managed",
        ZoneMode::HostManaged => "Host Managed",
    };
    if output.json() {
        let mut commands: Vec<&str> = actions.iter().map(|it| word(*it)).collect();
        commands.extend(reports.then_some("rz"));
        return output.value(&json!({
            "mode": mode,
            "commands": commands,
            "urswrz": reads_anywhere,
            "optimal_open": limit_value(it.optimal_open),
            "optimal_nonseq": limit_value(it.optimal_non_sequential),
            "max_open": limit_value(it.most_open),
        }));
    }
    let names = actions.iter().map(|action| match action {
        ZoneAction::Open => "Open",
        ZoneAction::Close => "Close",
        ZoneAction::Finish => "Finish",
        ZoneAction::Reset => "Reset Write Pointer",
    });
    let names: Vec<&str> = reports.then_some("Report Zones").into_iter().chain(names).collect();
    let commands = if names.is_empty() { "None".into() } else { names.join(", ") };
    let urswrz = if *reads_anywhere { "Yes" } else { "No" };
    let [open, non_sequential, most] =
        [it.optimal_open, it.optimal_non_sequential, it.most_open].map(limit);
    for line in [
        format!("Zone Mode: {mode}"),
        format!("Command support: {commands}"),
        format!("Unrestricted Read in Sequential Write Required Zone (URSWRZ): {urswrz}"),
        format!("Optimal Number of Open Sequential Write Preferred Zones: {open}"),
        format!(
            "Optimal Number of Non-Sequentially Written Sequential Write Preferred Zones: \
             {non_sequential}"
        ),
        format!("Maximum Number of Open Sequential Write Required Zones: {most}"),
    ] {
        output.line(line)?;
    }
    Ok(())
}

fn limit(limit: ZoneLimit) -> String {
    match limit {
        ZoneLimit::NotSet => "Not Set".into(),
        ZoneLimit::NotReported => "Not Reported".into(),
        ZoneLimit::Unlimited => "Unlimited".into(),
        ZoneLimit::Count(count) => count.to_string(),
    }
}

fn limit_value(it: ZoneLimit) -> Value {
    match it {
        ZoneLimit::Count(count) => count.into(),
        ZoneLimit::NotSet => Value::Null,
        ZoneLimit::NotReported | ZoneLimit::Unlimited => limit(it).to_lowercase().into(),
    }
}

fn report(
    session: &mut Session,
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let form = arguments.form.unwrap_or(Form::Normal);
    let filter = arguments.which.unwrap_or(Which::All).filter();
    let most = if form == Form::Summary { 0 } else { ZONES_MAX };
    let (mut start, mut all, mut is_first) = (arguments.lba.unwrap_or(0), Vec::new(), true);
    loop {
        let command = Zone::Report { start, filter, most };
        let answer = ask(session, &arguments.provider, command)?;
        let ZoneAnswer::Report(report) = answer else { return Ok(()) };
        let next = report.zones.last().map(|last| last.start.saturating_add(last.length));
        let is_last = report.available <= report.zones.len() as u64;
        if output.json() {
            all.extend(report.zones.iter().map(zone_value));
        } else {
            if is_first {
                heading(&report, form, output)?;
            }
            report.zones.iter().try_for_each(|zone| output.line(row(zone, form)))?;
        }
        match next {
            Some(next) if !is_last && next <= report.last_sector => start = next,
            _ if output.json() => {
                let available = report.available.max(all.len() as u64);
                return output.value(&json!({
                    "zones": available,
                    "maximum_lba": report.last_sector,
                    "same": same(report.same),
                    "zone_list": all,
                }));
            }
            _ => return Ok(()),
        }
        is_first = false;
    }
}

/// Like FreeBSD's `%#jx`, which puts no `0x` in front of zero.
fn hex(number: u64) -> String {
    if number == 0 { "0".into() } else { format!("{number:#x}") }
}

fn same(same: ZoneSame) -> &'static str {
    match same {
        ZoneSame::Different => "Zone lengths and types may vary",
        ZoneSame::All => "Zone lengths and types are all the same",
        ZoneSame::ButLast => "Zone types are the same, last zone length differs",
        ZoneSame::Lengths => "Zone lengths are the same, types vary",
    }
}

fn heading(report: &ZoneReport, form: Form, output: &mut Output) -> Result<(), Failure> {
    if form == Form::Script {
        return Ok(());
    }
    let (available, last) = (report.available, report.last_sector);
    output.line(format!("{available} zones, Maximum LBA {} ({last})", hex(last)))?;
    output.line(same(report.same))?;
    if form == Form::Summary {
        return Ok(());
    }
    output.line(format!(
        "{:>11}  {:>6}  {:>11}  {:>13}  {:>13}  {:>14}  {:>16}",
        "Start LBA", "Length", "WP LBA", "Zone Type", "Condition", "Sequential", "Reset"
    ))
}

/// zonectl's names for type, condition, order and reset recommendation of a zone.
fn words(zone: &ZoneEntry) -> [String; 4] {
    let kind = match zone.kind {
        ZoneType::Conventional => "Conventional".into(),
        ZoneType::SequentialRequired => "Seq Required".into(),
        ZoneType::SequentialPreferred => "Seq Preferred".into(),
        ZoneType::Other(number) => format!("Zone type {number:#x}"),
    };
    let condition = match zone.condition {
        ZoneCondition::NotWritePointer => "NWP".into(),
        ZoneCondition::Empty => "Empty".into(),
        ZoneCondition::ImplicitOpen => "Implicit Open".into(),
        ZoneCondition::ExplicitOpen => "Explicit Open".into(),
        ZoneCondition::Closed => "Closed".into(),
        ZoneCondition::ReadOnly => "Readonly".into(),
        ZoneCondition::Full => "Full".into(),
        ZoneCondition::Offline => "Offline".into(),
        ZoneCondition::Other(number) => format!("{number:#x}"),
    };
    let order = if zone.non_sequential { "Non Sequential" } else { "Sequential" };
    let reset = if zone.reset_needed { "Reset Needed" } else { "No Reset Needed" };
    [kind, condition, order.into(), reset.into()]
}

fn row(zone: &ZoneEntry, form: Form) -> String {
    let [kind, condition, order, reset] = words(zone).map(|word| match form {
        Form::Script => word.replace(' ', "_"),
        Form::Normal | Form::Summary => word,
    });
    let pointer = zone.write_pointer.map_or("-1".into(), hex);
    let (start, length) = (hex(zone.start), zone.length);
    format!(
        "{start:>11}, {length:>6}, {pointer:>11}, {kind:>13}, {condition:>13}, {order:>14}, \
         {reset:>16}"
    )
}

fn zone_value(zone: &ZoneEntry) -> Value {
    let [kind, condition, ..] = words(zone);
    json!({
        "start": zone.start,
        "length": zone.length,
        "capacity": zone.capacity,
        "write_pointer": zone.write_pointer,
        "type": kind,
        "condition": condition,
        "non_sequential": zone.non_sequential,
        "reset_needed": zone.reset_needed,
    })
}
