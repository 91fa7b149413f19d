//! `flysch devlist`: the logical units of targets, in camcontrol's form.

use flysch_cam::Peripheral;
use flysch_rig::{Control, Needs, Stack, Target, size};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch devlist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A target; may be repeated.
    #[arg(long = "on", value_name = "TARGET", default_value = "ufs")]
    targets: Vec<Target>,
    /// Buses, capacities and identifiers, too.
    #[arg(short, long)]
    verbose: bool,
}

/// Lists the units.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut list = Vec::new();
    let mut pass = 0;
    for (bus, target) in arguments.targets.iter().enumerate() {
        let mut stack = Stack::open(target, &Needs::default())?;
        stack.keep();
        let description = stack.description().to_owned();
        let Some(control) = stack.control() else {
            return Err(Failure::usage(format!("{description} has no command layer to list")));
        };
        if output.json() {
            let unit = |(n, unit): (usize, &Peripheral)| to_json(unit, bus, pass + n);
            let units: Vec<Value> = control.peripherals().iter().enumerate().map(unit).collect();
            list.push(json!({ "bus": bus, "controller": description, "units": units }));
        } else {
            let heading = arguments.verbose.then_some(description.as_str());
            show_bus((bus, pass), heading, control, output)?;
        }
        pass += control.peripherals().len();
    }
    if output.json() { output.value(&list) } else { Ok(()) }
}

/// Lists the units of a bus, the first of which is `pass`; with everything under a heading.
fn show_bus(
    (bus, pass): (usize, usize),
    heading: Option<&str>,
    control: &dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    if let Some(description) = heading {
        output.line(format!("scbus{bus} on ufshci{bus} bus 0: {description}"))?;
    }
    for (number, unit) in control.peripherals().iter().enumerate() {
        let names = names(unit, pass + number);
        let identity = unit.to_string();
        let lun = unit.lun;
        output.line(format!("{identity:<35}at scbus{bus} target 0 lun {lun} ({names})"))?;
        if heading.is_some() {
            output.line(format!("    {}", details(unit)))?;
        }
    }
    if heading.is_some() {
        output.line(format!("{:<35}at scbus{bus} target -1 lun ffffffff ()", "<>"))?;
    }
    Ok(())
}

/// The peripheral drivers that took the unit.
fn names(unit: &Peripheral, number: usize) -> String {
    match unit.shape() {
        Ok(_) => format!("pass{number},da{number}"),
        Err(_) => format!("pass{number}"),
    }
}

fn details(unit: &Peripheral) -> String {
    let mut parts = Vec::new();
    if let Ok(shape) = unit.shape() {
        let bytes = shape.blocks * u64::from(shape.block_size);
        let (blocks, block_size) = (shape.blocks, shape.block_size);
        parts.push(format!("{} ({blocks} blocks of {block_size})", size::display(bytes)));
        let yes = |is: bool, what: &'static str| is.then_some(what.to_owned());
        parts.extend(yes(shape.write_cache, "write cache"));
        parts.extend(yes(shape.force_unit_access, "FUA"));
        parts.extend(yes(shape.delete_blocks_max > 0, "UNMAP"));
        parts.extend(yes(shape.write_protected, "write protected"));
    }
    if let Some(serial) = &unit.serial_number {
        parts.push(format!("serial {}", text(serial)));
    }
    if let Some(identifier) = &unit.identifier {
        parts.push(format!("id {}", text(identifier)));
    }
    if !unit.ready {
        parts.push("not ready".into());
    }
    parts.join(", ")
}

/// Bytes as text if they are, else in hexadecimal.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.trim().to_owned(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn to_json(unit: &Peripheral, bus: usize, number: usize) -> Value {
    let inquiry = &unit.inquiry;
    let shape = unit.shape().ok();
    json!({
        "bus": bus,
        "target": 0,
        "lun": unit.lun.to_ufs(),
        "names": names(unit, number).split(',').collect::<Vec<_>>(),
        "vendor": inquiry.vendor.to_string(),
        "product": inquiry.product.to_string(),
        "revision": inquiry.revision.to_string(),
        "serial": unit.serial_number.as_deref().map(text),
        "identifier": unit.identifier.as_deref().map(text),
        "ready": unit.ready,
        "block_size": shape.map(|shape| shape.block_size),
        "blocks": shape.map(|shape| shape.blocks),
        "write_cache": shape.map(|shape| shape.write_cache),
        "force_unit_access": shape.map(|shape| shape.force_unit_access),
        "unmap": shape.map(|shape| shape.delete_blocks_max > 0),
        "write_protected": shape.map(|shape| shape.write_protected),
    })
}
