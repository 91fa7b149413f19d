//! `flysch devlist`: the logical units and namespaces of targets, in camcontrol's form.

use flysch_cam::{Peripheral, Shape, nda};
use flysch_nvme::{Device, Namespace};
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
        if let Some(control) = stack.nvme() {
            let device = control.device();
            if output.json() {
                let units: Vec<Value> = namespaces(device, bus, pass);
                list.push(json!({ "bus": bus, "controller": description, "units": units }));
            } else {
                let heading = arguments.verbose.then_some(description.as_str());
                show_namespaces((bus, pass), heading, device, output)?;
            }
            pass += device.namespaces.len();
            continue;
        }
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
        let names = names_of(unit, pass + number);
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

/// Lists the namespaces of a controller, as [`show_bus`] does units.
fn show_namespaces(
    (bus, pass): (usize, usize),
    heading: Option<&str>,
    device: &Device,
    output: &mut Output,
) -> Result<(), Failure> {
    if let Some(description) = heading {
        output.line(format!("scbus{bus} on nvme{bus} bus 0: {description}"))?;
    }
    for (number, space) in device.namespaces.iter().enumerate() {
        let shape = shape_of(device, space);
        let names = names(shape.is_some().then_some("nda"), pass + number);
        let controller = &device.controller;
        let identity = format!("<{} {}>", text(&controller.mn), text(&controller.fr));
        let id = space.id;
        output.line(format!("{identity:<35}at scbus{bus} target 0 lun {id} ({names})"))?;
        if heading.is_some() {
            let serial = Some(format!("serial {}", text(&controller.sn)));
            let parts = shape.map(|shape| about(&shape, "deallocate")).into_iter().flatten();
            let parts: Vec<String> = parts.chain(serial).collect();
            output.line(format!("    {}", parts.join(", ")))?;
        }
    }
    if heading.is_some() {
        output.line(format!("{:<35}at scbus{bus} target -1 lun ffffffff ()", "<>"))?;
    }
    Ok(())
}

/// What a disk knows of a namespace, if it can be one.
fn shape_of(device: &Device, space: &Namespace) -> Option<Shape> {
    let speaks = space.command_set == 0;
    speaks.then(|| nda::shape(space.id, &device.controller, &space.data).ok()).flatten()
}

fn namespaces(device: &Device, bus: usize, pass: usize) -> Vec<Value> {
    let unit = |(number, space): (usize, &Namespace)| {
        let shape = shape_of(device, space);
        let names = names(shape.is_some().then_some("nda"), pass + number);
        json!({
            "bus": bus,
            "target": 0,
            "lun": space.id,
            "names": names.split(',').collect::<Vec<_>>(),
            "product": text(&device.controller.mn),
            "revision": text(&device.controller.fr),
            "serial": text(&device.controller.sn),
            "block_size": shape.map(|shape| shape.block_size),
            "blocks": shape.map(|shape| shape.blocks),
            "write_cache": shape.map(|shape| shape.write_cache),
            "force_unit_access": shape.map(|shape| shape.force_unit_access),
            "deallocate": shape.map(|shape| shape.delete_blocks_max > 0),
            "write_protected": shape.map(|shape| shape.write_protected),
        })
    };
    device.namespaces.iter().enumerate().map(unit).collect()
}

/// The peripheral drivers that took the unit, `disk` among them if it is one.
fn names(disk: Option<&str>, number: usize) -> String {
    match disk {
        Some(disk) => format!("pass{number},{disk}{number}"),
        None => format!("pass{number}"),
    }
}

fn names_of(unit: &Peripheral, number: usize) -> String {
    names(unit.shape().is_ok().then_some("da"), number)
}

/// Size and abilities of a disk; `delete` is what its protocol calls that.
fn about(shape: &Shape, delete: &'static str) -> Vec<String> {
    let bytes = shape.blocks * u64::from(shape.block_size);
    let (blocks, block_size) = (shape.blocks, shape.block_size);
    let mut parts = vec![format!("{} ({blocks} blocks of {block_size})", size::display(bytes))];
    let yes = |is: bool, what: &'static str| is.then_some(what.to_owned());
    parts.extend(yes(shape.write_cache, "write cache"));
    parts.extend(yes(shape.force_unit_access, "FUA"));
    parts.extend(yes(shape.delete_blocks_max > 0, delete));
    parts.extend(yes(shape.write_protected, "write protected"));
    parts
}

fn details(unit: &Peripheral) -> String {
    let mut parts = Vec::new();
    if let Ok(shape) = unit.shape() {
        parts.extend(about(&shape, "UNMAP"));
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
        "names": names_of(unit, number).split(',').collect::<Vec<_>>(),
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
