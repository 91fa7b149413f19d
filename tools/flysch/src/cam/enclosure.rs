//! `--enclosure`: a modelled SES enclosure on a separate bus, with the disks of the other buses in
//! its slots; `sesmap` prints it as `sesutil map` does.

use std::rc::Rc;

use flysch_api::command::NotStarted;
use flysch_api::machine::DmaRegion;
use flysch_bench::clock::RealClock;
use flysch_cam::debug::{Origin, Switch, Traced, Tracer};
use flysch_cam::scan;
use flysch_cam::ses::{self, Reader};
use flysch_cam::xpt::{Description, Path, Table};
use flysch_models::ses::{Config, Enclosure as Model, EnclosurePort, SLOTS_MAX};
use flysch_rig::{ScsiCommand, ScsiReply, scsi_command};
use flysch_wire::scsi::luns::LogicalUnitNumber;
use serde_json::{Value, json};

use super::{Device, Machine};
use crate::failure::Failure;
use crate::output::Output;

/// Device address and length of the model's memory.
const MEMORY: (u64, usize) = (0x1_0000, 64 << 10);
/// The enclosure's name, and the addresses of its elements: locally assigned.
const IDENTIFIER: u64 = 0x3F1A_5C00_0000_0001;
const ADDRESSES: u64 = 0x3F1A_5C00_0001_0000;

/// Access to an enclosure's pages.
type Pages<'a> = Reader<'a, Traced<'a, EnclosurePort>, RealClock>;

/// An enclosure and its bus.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) bus: u32,
    port: EnclosurePort,
    clock: RealClock,
    tracer: Tracer,
    /// The occupant of each slot.
    inside: Vec<Path>,
}

impl Shelf {
    /// With this many slots, the disks of `table` in the first ones; on a separate bus.
    pub(super) fn open(slots: u8, table: &mut Table) -> Result<Self, Failure> {
        let disks = table.units().filter(|unit| unit.description.bytes > 0);
        let inside: Vec<Path> = disks.map(|unit| unit.path).take(slots.into()).collect();
        let device =
            |slot: u8| (usize::from(slot) < inside.len()).then_some(ADDRESSES + u64::from(slot));
        let slots = (0..slots.min(SLOTS_MAX)).map(device).collect();
        let config = Config { slots, identifier: IDENTIFIER };
        let memory = DmaRegion::zeroed(MEMORY.1, MEMORY.0);
        let port = EnclosurePort::new(Model::new(config), memory);
        // A bus of the controller that would be there: SAS.
        let (bus, _) = table.add_bus("mps");
        let sim = format!("mps{}", table.buses()[bus as usize].unit);
        let path = Path { bus, target: 0, lun: 0 };
        let tracer = Tracer::new(None, Origin { periph: "ses0".into(), sim, path });
        let mut shelf = Self { bus, port, clock: RealClock::new(), tracer, inside };
        let scratch = shelf.scratch();
        let found = scan(&mut shelf.port, &shelf.clock, &scratch).map_err(Failure::failed)?;
        let describe = |unit: &flysch_cam::Peripheral| {
            let words = unit.to_string();
            let text = words[1..words.len() - 1].to_owned();
            Description { text, driver: Some("ses"), ..Description::default() }
        };
        table.scanned(Path::of_bus(bus), found.iter().map(describe).collect());
        let enclosure = shelf.read()?;
        for element in &enclosure.elements {
            if let Some(path) = element.address.and_then(|address| shelf.at(address)) {
                table.set_physical_path(path, Some(enclosure.physical_path(element)));
            }
        }
        Ok(shelf)
    }

    /// Reports commands to it from now on.
    pub(super) fn trace(&mut self, switch: &Rc<Switch>) {
        self.tracer = Tracer::new(Some(Rc::clone(switch)), self.tracer.origin().clone());
    }

    fn scratch(&self) -> DmaRegion {
        use flysch_api::command::Port as _;
        self.port.memory().carve(0, MEMORY.1)
    }

    /// The device that has an address.
    fn at(&self, address: u64) -> Option<Path> {
        let slot = usize::try_from(address.checked_sub(ADDRESSES)?).ok()?;
        self.inside.get(slot).copied()
    }

    fn read(&mut self) -> Result<ses::Enclosure, Failure> {
        self.with(|reader| reader.read())
    }

    fn with<R>(
        &mut self,
        what: impl FnOnce(&mut Pages<'_>) -> Result<R, flysch_cam::CamError>,
    ) -> Result<R, Failure> {
        let scratch = self.scratch();
        let Self { port, clock, tracer, .. } = self;
        let port = &mut Traced::new(port, tracer.clone());
        let lun = LogicalUnitNumber::default();
        what(&mut Reader { port, clock: &*clock, scratch: &scratch, lun }).map_err(Failure::failed)
    }

    pub(super) fn scsi(&mut self, command: &ScsiCommand) -> Result<ScsiReply, NotStarted> {
        let scratch = self.scratch();
        scsi_command(&mut self.port, &self.clock, &scratch, command)
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct MapArguments {
    #[command(flatten)]
    pub(super) device: Device,
    /// Switch on the locate light of this element, or `off`.
    #[arg(long, value_names = ["ELEMENT", "on|off"], num_args = 2)]
    locate: Vec<String>,
}

/// Prints the enclosure.
pub(super) fn map(
    machine: &mut Machine,
    arguments: &MapArguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let Machine { table, shelf, .. } = machine;
    let Some(shelf) = shelf else {
        return Err(Failure::usage("No SES devices found: add --enclosure SLOTS"));
    };
    let mut enclosure = shelf.read()?;
    if let [element, how] = &arguments.locate[..] {
        let at =
            element.parse().map_err(|_| format!("`{element}` is not the number of an element"));
        let on = match how.as_str() {
            "on" => true,
            "off" => false,
            other => return Err(Failure::usage(format!("`{other}`: it must be on or off"))),
        };
        let at = at.map_err(Failure::usage)?;
        shelf.with(|reader| reader.set_lights(&enclosure, at, on, false))?;
        enclosure = shelf.read()?;
    }
    let names = |address: Option<u64>| -> Option<String> {
        let unit = table.unit(shelf.at(address?)?)?;
        // As sesutil: `pass` only if there is nothing else.
        unit.driver().or(unit.pass()).map(|periph| periph.to_string())
    };
    if output.json() {
        return output.value(&to_json(&enclosure, names));
    }
    output.line("ses0:")?;
    output.line(format!("\tEnclosure Name: {}", enclosure.name))?;
    output.line(format!("\tEnclosure ID: {:016x}", enclosure.identifier))?;
    for (number, one) in enclosure.elements.iter().enumerate() {
        let [a, b, c, d] = one.status;
        output.line(format!("\tElement {number}, Type: {}", one.kind))?;
        let code = one.code();
        output.line(format!("\t\tStatus: {code} ({a:#04x} {b:#04x} {c:#04x} {d:#04x})"))?;
        if !one.description.is_empty() {
            output.line(format!("\t\tDescription: {}", one.description))?;
        }
        if let Some(names) = names(one.address) {
            output.line(format!("\t\tDevice Names: {names}"))?;
        }
        let failing = one.will_fail().then(|| "Predicted Failure".to_owned());
        let light = one.is_located().then(|| "LED=locate".to_owned());
        let fault = one.is_marked_faulty().then(|| "LED=fault".to_owned());
        let extra: Vec<String> =
            [failing, light, fault, one.measured()].into_iter().flatten().collect();
        if !extra.is_empty() {
            output.line("\t\tExtra status:")?;
        }
        for line in extra {
            output.line(format!("\t\t- {line}"))?;
        }
    }
    Ok(())
}

/// The enclosure for programs.
fn to_json(enclosure: &ses::Enclosure, names: impl Fn(Option<u64>) -> Option<String>) -> Value {
    let element = |(number, one): (usize, &ses::Element)| -> Value {
        json!({
            "id": number,
            "type": one.kind.to_string(),
            "status": one.code().to_string(),
            "status_code": one.status.to_vec(),
            "description": one.description,
            "device_names": names(one.address),
            "physical_path": (one.number > 0).then(|| enclosure.physical_path(one)),
            "located": one.is_located(),
        })
    };
    let elements: Vec<Value> = enclosure.elements.iter().enumerate().map(element).collect();
    json!([{
        "name": enclosure.name,
        "id": format!("{:016x}", enclosure.identifier),
        "status": enclosure.condition(),
        "elements": elements,
    }])
}
