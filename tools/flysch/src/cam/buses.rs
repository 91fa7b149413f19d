//! Buses and queues: rescan, reset, tags, negotiated settings, peripheral drivers.

use flysch_cam::Tags;
use flysch_cam::debug::{Answer, Function};
use flysch_cam::xpt::Path;
use flysch_ufs::EndCommands;
use serde_json::json;

use super::machine::{Opened, path};
use super::session::{Language, Session};
use super::{Device, Machine};
use crate::confirm;
use crate::failure::Failure;
use crate::output::Output;

/// What to scan or reset.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Which {
    /// `all`, a device such as `da0`, a bus, or BUS:TARGET:LUN.
    #[arg(value_name = "all|DEVICE|BUS[:TARGET:LUN]")]
    which: String,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct TagsArguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// Allow at most this many commands in flight while this command has the device.
    #[arg(short = 'N', value_name = "TAGS")]
    number: Option<u32>,
    /// Print only numbers.
    #[arg(short = 'q')]
    quiet: bool,
    /// Print everything known about the queue.
    #[arg(short = 'v')]
    verbose: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct NegotiateArguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// Also print what is known about the controller.
    #[arg(short = 'v')]
    verbose: bool,
}

/// The selected buses, and the unit if it is one.
fn meant(machine: &Machine, which: &str) -> Result<(Vec<u32>, Option<Path>), Failure> {
    let all = || machine.table.buses().iter().map(|bus| bus.number).collect::<Vec<_>>();
    if which == "all" {
        return Ok((all(), None));
    }
    if let Ok(bus) = which.parse::<u32>() {
        return match all().contains(&bus) {
            true => Ok((vec![bus], None)),
            false => Err(Failure::failed(format!("there is no bus {bus}"))),
        };
    }
    let full = which.split(':').count() == 3;
    if path(which).is_some() && !full {
        let line = format!("`{which}`: name `all`, a bus, or a bus:target:lun");
        return Err(Failure::usage(line));
    }
    let unit = machine.find(Some(which))?;
    Ok((vec![unit.path.bus], Some(unit.path)))
}

/// Scans again.
pub(super) fn rescan(
    mut machine: Machine,
    which: &Which,
    output: &mut Output,
) -> Result<(), Failure> {
    let (buses, unit) = meant(&machine, &which.which)?;
    let mut events = 0;
    for bus in &buses {
        let target = machine.description(*bus).to_owned();
        events += machine.rescan(*bus).map_err(|failure| failure.on(&target))?;
        if !output.json() {
            match unit {
                Some(path) => output.line(format!("Re-scan of {path} was successful"))?,
                None => output.line(format!("Re-scan of bus {bus} was successful"))?,
            }
        }
    }
    match output.json() {
        true => output.value(&json!({ "buses": buses, "changes": events })),
        false => Ok(()),
    }
}

/// Resets a unit if its stack can, otherwise its bus.
fn reset_one(machine: &mut Machine, bus: u32, unit: Option<Path>) -> Result<(), Failure> {
    let lun = unit.and_then(|path| u8::try_from(path.lun).ok());
    let tracer = machine.tracer("noperiph", Path::of_bus(bus));
    let Some(opened) = machine.bus(bus) else { return Ok(()) };
    let target = opened.description.clone();
    let is_ufs = opened.stack.control().is_some();
    let (tracer, function, inside) = match unit {
        Some(path) if is_ufs && lun.is_some() => {
            (machine.tracer("noperiph", path), Function::RESET_DEV, "dev reset")
        }
        _ => (tracer, Function::RESET_BUS, "bus reset"),
    };
    let Some(Opened { stack, .. }) = machine.bus(bus) else { return Ok(()) };
    tracer.call(function, Some(inside));
    let result = if let Some(control) = stack.control() {
        use flysch_ufs::Operation;
        let operation = match lun {
            Some(lun) => Operation::EndCommands { how: EndCommands::LogicalUnitReset, lun },
            None => Operation::Reset,
        };
        control.operate(operation).map(drop).map_err(|error| error.to_string())
    } else if let Some(control) = stack.nvme() {
        let reset = control.operate(flysch_nvme::Operation::Reset);
        reset.map(drop).map_err(|error| error.to_string())
    } else if let Some(control) = stack.ahci() {
        let reset = control.operate(flysch_ahci::Operation::Reset);
        reset.map(drop).map_err(|error| error.to_string())
    } else if let Some(control) = stack.emmc() {
        let reset = control.operate(flysch_emmc::Operation::Reset);
        reset.map(drop).map_err(|error| error.to_string())
    } else {
        Ok(())
    };
    let answer = if result.is_ok() { Answer::Good } else { Answer::Failed };
    tracer.called(function, &answer);
    result.map_err(|error| Failure::of(target, error))
}

/// Resets the selected buses or unit.
pub(super) fn reset(
    mut machine: Machine,
    which: &Which,
    output: &mut Output,
) -> Result<(), Failure> {
    let (buses, unit) = meant(&machine, &which.which)?;
    for bus in &buses {
        reset_one(&mut machine, *bus, unit)?;
        let line = match unit {
            Some(path) => format!("Reset of {path} was successful"),
            None => format!("Reset of bus {bus} was successful"),
        };
        if !output.json() {
            output.line(line)?;
        }
    }
    match output.json() {
        true => output.value(&json!({ "buses": buses, "reset": true })),
        false => Ok(()),
    }
}

pub(super) fn periphlist(session: &mut Session<'_>) -> Result<(), Failure> {
    let unit = session.unit.clone();
    if session.output.json() {
        let all: Vec<String> = unit.periphs.iter().map(ToString::to_string).collect();
        return session.output.value(&json!({ "generation": unit.generation, "periphs": all }));
    }
    let last = unit.periphs.len();
    for (periph, index) in unit.periphs.iter().zip(1..) {
        let generation = unit.generation;
        let status = if index == last { "LAST" } else { "MORE" };
        let line = format!("{periph}:  generation: {generation} index: {index} status: {status}");
        session.output.line(line)?;
    }
    Ok(())
}

pub(super) fn tags(session: &mut Session<'_>, arguments: &TagsArguments) -> Result<(), Failure> {
    let prefix = session.prefix();
    let pass = session.pass();
    let none = || Failure::failed(format!("{pass}: its queue is not known"));
    let target = session.unit.path.target;
    let stack = session.stack().ok_or_else(none)?;
    // Behind a multiplier one device is the disk.
    if stack.ahci().is_some_and(|control| u32::from(control.devices().unit) != target) {
        return Err(none());
    }
    let now = match arguments.number {
        Some(number) => Some(stack.set_tags(number).ok_or_else(none)?),
        None => None,
    };
    let tags: Tags = stack.tags().ok_or_else(none)?;
    let all = tags.openings + tags.active;
    let rows = [
        ("dev_openings", tags.openings),
        ("dev_active", tags.active),
        ("allocated", tags.allocated),
        ("queued", tags.queued),
        ("held", tags.held),
        ("mintags", tags.min),
        ("maxtags", tags.max),
    ];
    if session.output.json() {
        let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        let mut value = serde_json::Map::from_iter(rows);
        value.insert("openings".into(), all.into());
        return session.output.value(&value);
    }
    if let Some(now) = now
        && !arguments.quiet
    {
        confirm::done(session.output, &json!(now), &format!("{prefix}tagged openings now {now}"))?;
    }
    match (arguments.verbose, arguments.quiet) {
        (true, _) => rows.into_iter().try_for_each(|(name, value)| {
            session.output.line(format!("{prefix}{name:<13} {value}"))
        }),
        (false, true) => session.output.line(all),
        (false, false) => session.output.line(format!("{prefix}device openings: {all}")),
    }
}

/// Transfer rate in kilobytes per second, in camcontrol's terms.
pub(super) fn transfer_rate(session: &mut Session<'_>) -> String {
    let kilobytes = kilobytes(session);
    match kilobytes / 1000 {
        0 => format!("{kilobytes}KB/s"),
        mega => format!("{mega}.{:03}MB/s", kilobytes % 1000),
    }
}

fn kilobytes(session: &mut Session<'_>) -> u64 {
    /// One lane at HS-Gear 1 as counted by FreeBSD's ufshci(4); every gear doubles it.
    const HS_GEAR_1: u64 = 145_920;
    /// One lane at PWM-Gear 1.
    const PWM_GEAR_1: u64 = 1_125;
    let target = session.unit.path.target as u8;
    let Some(stack) = session.stack() else { return 0 };
    if let Some(control) = stack.control() {
        let link = control.link();
        let gear = if link.high_speed { HS_GEAR_1 } else { PWM_GEAR_1 };
        return (gear << link.gear.saturating_sub(1).min(8)) * u64::from(link.lanes);
    }
    if let Some(control) = stack.ahci() {
        let speed = control.devices().at(target).map_or(0, |device| device.speed);
        return 150_000 * (1 << u32::from(speed.clamp(1, 3) - 1));
    }
    if let Some(control) = stack.emmc() {
        let device = control.device();
        return u64::from(device.clock) / 8 * u64::from(device.lines) / 1000;
    }
    0
}

pub(super) fn negotiate(
    session: &mut Session<'_>,
    arguments: &NegotiateArguments,
) -> Result<(), Failure> {
    let prefix = session.prefix();
    let rate = transfer_rate(session);
    let language = session.language();
    let mut rows: Vec<(&str, String)> = Vec::new();
    match language {
        Language::Ata => {
            let words = super::identify::identify_words(session)?;
            let target = session.unit.path.target as u8;
            let control = session.stack().and_then(|stack| stack.ahci());
            let device = control.and_then(|control| control.devices().at(target).cloned());
            let device = device.unwrap_or_default();
            rows.push(("SATA revision", format!("{}.x", device.speed)));
            rows.extend(words.dma().map(|mode| ("ATA mode", mode)));
            let tags = if device.queued { device.identify.queue_depth } else { 0 };
            rows.push(("Number of tags", tags.to_string()));
        }
        Language::Scsi => {
            if let Some(control) = session.stack().and_then(|stack| stack.control()) {
                let link = control.link();
                let mode = if link.high_speed { "HS gear" } else { "PWM gear" };
                rows.push((mode, link.gear.to_string()));
                rows.push(("lanes", link.lanes.to_string()));
            }
            rows.push(("transfer speed", rate.clone()));
        }
        Language::Nvme => {
            if let Some(control) = session.stack().and_then(|stack| stack.nvme()) {
                let (version, ..) = control.controller();
                rows.push(("NVMe Spec", version.to_string()));
            }
        }
        Language::Mmc => {
            if let Some(control) = session.stack().and_then(|stack| stack.emmc()) {
                let device = control.device();
                rows.push(("bus timing", device.timing.to_string()));
                rows.push(("bus width", device.lines.to_string()));
                rows.push(("bus clock", format!("{} Hz", device.clock)));
            }
        }
    }
    if session.output.json() {
        let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        return session.output.value(&serde_json::Map::from_iter(rows));
    }
    session.output.line("Current Parameters:")?;
    for (name, value) in rows {
        session.output.line(format!("{prefix}{name}: {value}"))?;
    }
    let tags = session.stack().and_then(|stack| stack.tags());
    let queueing = tags.is_some_and(|tags| tags.max > 1);
    let queueing = if queueing { "enabled" } else { "disabled" };
    session.output.line(format!("{prefix}tagged queueing: {queueing}"))?;
    if arguments.verbose {
        let bus = session.unit.path.bus;
        let Session { machine, output, .. } = session;
        let sim = &machine.table.buses()[bus as usize];
        let name = format!("{}{}:", sim.sim, sim.unit);
        output.line(format!("{name} bus ID: {bus}"))?;
        output.line(format!("{name} HBA vendor: {}", machine.description(bus)))?;
        output.line(format!("{name} base transfer speed: {rate}"))?;
    }
    Ok(())
}
