//! `flysch ufs power`.

use clap::{Subcommand, ValueEnum};
use flysch_rig::Control;
use flysch_ufs::{DevicePower, LinkLimits, Operation, Query};
use flysch_wire::ufs::query::{AttributeId, CurrentPowerMode};
use serde_json::json;

use super::{info, number};
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the state of link and device.
    Status,
    /// Put the link into hibernation, or wake it.
    Hibern8 {
        /// Enter or exit.
        way: Way,
    },
    /// Let the link hibernate automatically after this idle time.
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
