//! `flysch devlist`: the devices on the buses of targets, in camcontrol's form.

use flysch_cam::xpt::Listing;
use flysch_rig::Target;
use serde_json::{Value, json};

use super::machine::Machine;
use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch devlist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A target; may be repeated.
    #[arg(long = "on", value_name = "TARGET", default_value = "ufs")]
    targets: Vec<Target>,
    #[command(flatten)]
    how: How,
}

/// How much to print.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct How {
    /// Also print buses; twice: also controllers, capacities and identifiers.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Print only buses.
    #[arg(short, long)]
    buses: bool,
}

/// Lists the units.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    show(&Machine::open(&arguments.targets)?, arguments.how, output)
}

/// Lists the units of a machine.
pub(crate) fn show(machine: &Machine, how: How, output: &mut Output) -> Result<(), Failure> {
    if output.json() {
        return output.value(&to_json(machine));
    }
    let listing = Listing { verbose: how.verbose > 0, buses_only: how.buses };
    let details = how.verbose > 1;
    for bus in machine.table.buses() {
        if let Some(line) = listing.heading(bus) {
            match details {
                true => output.line(format!("{line} {}", machine.description(bus.number)))?,
                false => output.line(line)?,
            }
        }
        for unit in bus.units.iter().filter(|_| !how.buses) {
            output.line(unit)?;
            if details {
                output.line(format!("    {}", machine.more(unit).0))?;
            }
        }
        if let Some(line) = listing.ending(bus) {
            output.line(line)?;
        }
    }
    for line in listing.last() {
        output.line(line)?;
    }
    Ok(())
}

fn to_json(machine: &Machine) -> Value {
    let buses = machine.table.buses().iter().map(|bus| {
        let units = bus.units.iter().map(|unit| {
            let (_, mut value) = machine.more(unit);
            let names: Vec<String> = unit.periphs.iter().map(ToString::to_string).collect();
            value["bus"] = bus.number.into();
            value["target"] = unit.path.target.into();
            value["names"] = names.into();
            value
        });
        json!({
            "bus": bus.number,
            "sim": format!("{}{}", bus.sim, bus.unit),
            "controller": machine.description(bus.number),
            "units": units.collect::<Vec<_>>(),
        })
    });
    buses.collect()
}
