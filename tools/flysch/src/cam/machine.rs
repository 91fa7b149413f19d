//! Targets as buses of one machine: opened, scanned, and in the table of devices.

use std::borrow::Cow;
use std::rc::Rc;

use flysch_cam::debug::{Answer, Function, Origin, Switch, Tracer};
use flysch_cam::xpt::{Path, Table, Unit};
use flysch_rig::{Needs, Stack, Target};
use serde_json::{Value, json};

use super::describe::{Found, describe};
use super::enclosure::Shelf;
use crate::failure::Failure;

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The buses, each a stack, and what is on them.
    pub(crate) table: Table,
    stacks: Vec<Opened>,
    /// The enclosure, on the last bus.
    pub(super) shelf: Option<Shelf>,
    /// What reports commands (`debug`).
    debug: Option<Rc<Switch>>,
}

/// An opened target: the bus with the same number.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Its description after opening.
    pub(crate) description: String,
    pub(crate) stack: Stack,
    /// For each unit of the bus, in order: further details, in words and for programs.
    pub(crate) units: Vec<(String, Value)>,
}

impl Machine {
    /// Opens the targets and enters their devices into the table.
    pub(crate) fn open(targets: &[Target]) -> Result<Self, Failure> {
        let mut machine =
            Self { table: Table::new(), stacks: Vec::new(), shelf: None, debug: None };
        for target in targets {
            let mut stack = Stack::open(target, &Needs::default())?;
            stack.keep();
            let description = stack.description().to_owned();
            let Some(Found { sim, units }) = describe(&mut stack) else {
                return Err(Failure::usage(format!("{description} has no command layer to list")));
            };
            let (bus, _) = machine.table.add_bus(sim);
            let (known, more) = units.into_iter().map(|unit| (unit.known, unit.more)).unzip();
            machine.table.scanned(Path::of_bus(bus), known);
            machine.stacks.push(Opened { description, stack, units: more });
        }
        Ok(machine)
    }

    /// Adds a modelled enclosure with this many slots.
    pub(super) fn add_enclosure(&mut self, slots: u8) -> Result<(), Failure> {
        self.shelf = Some(Shelf::open(slots, &mut self.table)?);
        Ok(())
    }

    /// Reports commands to units from now on.
    pub(super) fn set_debug(&mut self, switch: Switch) {
        let switch = Rc::new(switch);
        if let Some(shelf) = &mut self.shelf {
            shelf.trace(&switch);
        }
        self.debug = Some(switch);
    }

    /// The start of lines about a peripheral driver on a path.
    pub(super) fn origin(&self, periph: impl Into<Cow<'static, str>>, path: Path) -> Origin {
        let bus = &self.table.buses()[path.bus as usize];
        Origin { periph: periph.into(), sim: format!("{}{}", bus.sim, bus.unit), path }
    }

    /// The reporter for what a peripheral driver does.
    pub(super) fn tracer(&self, periph: impl Into<Cow<'static, str>>, path: Path) -> Tracer {
        Tracer::new(self.debug.clone(), self.origin(periph, path))
    }

    /// The stack of a bus; the enclosure's bus has none.
    pub(crate) fn bus(&mut self, number: u32) -> Option<&mut Opened> {
        self.stacks.get_mut(number as usize)
    }

    /// Further details of a unit.
    pub(crate) fn more(&self, unit: &Unit) -> (String, Value) {
        let bus = &self.table.buses()[unit.path.bus as usize];
        let at = bus.units.iter().position(|other| other.path == unit.path).unwrap_or_default();
        let known = self.stacks.get(unit.path.bus as usize).and_then(|opened| opened.units.get(at));
        let (mut words, mut value) = known.cloned().unwrap_or((String::new(), json!({ "lun": 0 })));
        if let Some(place) = &unit.description.physical_path {
            words = format!("{words}, at {place}");
            value["physical_path"] = place.as_str().into();
        }
        (words, value)
    }

    pub(crate) fn description(&self, bus: u32) -> &str {
        let opened = self.stacks.get(bus as usize);
        opened.map_or("enclosure model", |opened| opened.description.as_str())
    }

    /// Scans a bus again; returns the number of events.
    pub(crate) fn rescan(&mut self, bus: u32) -> Result<usize, Failure> {
        let tracer = self.tracer("noperiph", Path::of_bus(bus));
        tracer.call(Function::SCAN_BUS, None);
        let result = self.probe(bus);
        let answer = if result.is_ok() { Answer::Good } else { Answer::Failed };
        tracer.called(Function::SCAN_BUS, &answer);
        result?;
        let Some(opened) = self.stacks.get_mut(bus as usize) else { return Ok(0) };
        let Some(Found { units, .. }) = describe(&mut opened.stack) else { return Ok(0) };
        let (known, more) = units.into_iter().map(|unit| (unit.known, unit.more)).unzip();
        opened.units = more;
        Ok(self.table.scanned(Path::of_bus(bus), known).len())
    }

    /// The unit a user means: a peripheral driver's name, `bus:target:lun`, or the only one.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Unit, Failure> {
        let names = || {
            let all = self.table.units().filter_map(|unit| unit.pass().map(|p| p.to_string()));
            all.collect::<Vec<_>>().join(", ")
        };
        let Some(name) = name else {
            let mut all = self.table.units();
            return match (all.next(), all.next()) {
                (Some(unit), None) => Ok(unit.clone()),
                (None, _) => Err(Failure::failed("there are no devices")),
                _ => {
                    Err(Failure::usage(format!("there are several devices, name one: {}", names())))
                }
            };
        };
        let unit = match path(name) {
            Some(path) => self.table.unit(path),
            None => self.table.named(name),
        };
        let nothing =
            || Failure::failed(format!("there is no device `{name}`; devices: {}", names()));
        unit.cloned().ok_or_else(nothing)
    }
}

/// `bus:target` or `bus:target:lun`; a missing part is 0.
pub(crate) fn path(text: &str) -> Option<Path> {
    let mut parts = text.split(':').map(|part| part.parse::<u32>().ok());
    let (bus, target) = (parts.next()??, parts.next()??);
    let lun = match parts.next() {
        Some(lun) => lun?.into(),
        None => 0,
    };
    parts.next().is_none().then_some(Path { bus, target, lun })
}
