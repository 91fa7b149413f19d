//! `flysch ufs wb` and `flysch ufs power`.

use clap::{Subcommand, ValueEnum};
use flysch_rig::Control;
use flysch_ufs::{DevicePower, LinkLimits, Operation, Output as Answer, Query};
use flysch_wire::ufs::query::{AttributeId, CurrentPowerMode};
use serde_json::json;

use super::{info, number};
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct WriteBoosterArguments {
    /// What to do; without, only tell how it stands.
    #[arg(default_value = "status")]
    action: WriteBoosterAction,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WriteBoosterAction {
    Status,
    On,
    Off,
    /// Write the buffer's content to its final place.
    Flush,
    /// Stop flushing.
    StopFlush,
}

pub(super) fn write_booster(
    arguments: &WriteBoosterArguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let operation = match arguments.action {
        WriteBoosterAction::Status => None,
        WriteBoosterAction::On => Some(Operation::WriteBooster(true)),
        WriteBoosterAction::Off => Some(Operation::WriteBooster(false)),
        WriteBoosterAction::Flush => Some(Operation::WriteBoosterFlush(true)),
        WriteBoosterAction::StopFlush => Some(Operation::WriteBoosterFlush(false)),
    };
    if let Some(operation) = operation {
        control.operate(operation)?;
    }
    let Answer::WriteBooster(status) = control.operate(Operation::WriteBoosterStatus)? else {
        return Ok(());
    };
    let flush_status = status.flush_status.name();
    if output.json() {
        return output.value(&json!({
            "enabled": status.enabled,
            "flushing": status.flushing,
            "flush_in_hibernate": status.flush_in_hibernate,
            "flush_status": flush_status,
            "available_percent": status.available_percent,
            "life_used_percent": status.life_used_percent,
            "size_units": status.size_units,
        }));
    }
    let on_off = |on: bool| if on { "on" } else { "off" };
    let life = match status.life_used_percent {
        Some(percent) => format!("{percent} % used"),
        None => "exceeded".into(),
    };
    for (name, value) in [
        ("WriteBooster", on_off(status.enabled).to_owned()),
        ("flush", format!("{} ({flush_status})", on_off(status.flushing))),
        ("in hibernation", on_off(status.flush_in_hibernate).to_owned()),
        ("buffer", format!("{} allocation units", status.size_units)),
        ("available", format!("{} %", status.available_percent)),
        ("life", life),
    ] {
        output.line(format!("{name:<16}{value}"))?;
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// How link and device stand.
    Status,
    /// Put the link into hibernation, or take it out.
    Hibern8 {
        /// Into it or out of it.
        way: Way,
    },
    /// Let the link hibernate by itself after this idle time.
    AutoHibern8 {
        /// Microseconds; 0 is never.
        idle_us: u32,
    },
    /// Run the link at the highest speed up to a gear.
    Gear {
        /// Highest gear.
        #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
        gear: u8,
        /// Lanes.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
        lanes: u8,
    },
    /// Set the device's own power mode (START STOP UNIT).
    Ssu {
        /// The mode.
        mode: Mode,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    Enter,
    Exit,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Active,
    Sleep,
    Powerdown,
    Deepsleep,
}

pub(super) fn run(
    arguments: &Arguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let operation = match &arguments.what {
        None | Some(What::Status) => None,
        Some(What::Hibern8 { way }) => Some(Operation::Hibernate(*way == Way::Enter)),
        Some(What::AutoHibern8 { idle_us }) => Some(Operation::AutoHibern8(*idle_us)),
        Some(What::Gear { gear, lanes }) => {
            let limits = LinkLimits { gear: *gear, lanes: *lanes, ..LinkLimits::default() };
            Some(Operation::Link(limits))
        }
        Some(What::Ssu { mode }) => Some(Operation::Power(match mode {
            Mode::Active => DevicePower::Active,
            Mode::Sleep => DevicePower::Sleep,
            Mode::Powerdown => DevicePower::PowerDown,
            Mode::Deepsleep => DevicePower::DeepSleep,
        })),
    };
    if let Some(operation) = operation {
        control.operate(operation)?;
    }
    // A hibernating link carries no query.
    let mode = match control.link().hibernating {
        true => None,
        false => number(control, Query::read_attribute(AttributeId::CurrentPowerMode)).ok(),
    };
    let mode = mode.map(|bits| CurrentPowerMode::from_bits(bits as u8).name());
    let link = control.link();
    if output.json() {
        return output.value(&json!({
            "high_speed": link.high_speed,
            "gear": link.gear,
            "lanes": link.lanes,
            "series": format!("{:?}", link.series),
            "hibernating": link.hibernating,
            "device": mode,
        }));
    }
    output.line(format!("link    {}", info::link(&link)))?;
    output.line(format!("device  {}", mode.unwrap_or("not asked: the link hibernates")))
}
