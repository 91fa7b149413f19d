//! The transport layer's table of devices (CAM's XPT and its existing device table): buses, the
//! units found on them, the peripheral drivers attached to the units, and changes.
//!
//! Theory. A bus is a port of a host controller (a SIM). [`Table::scanned`] puts the result of a
//! scan into the table, compares it with what was known, and reports what happened to each unit:
//! found, lost, replaced by another, or resized. Those are CAM's asynchronous events ([`Event`]).
//! For the disk among a unit's peripheral drivers, an event carries its meaning for a block device
//! ([`Change`]), which is passed to the layer above. Nothing here communicates with a device: the
//! owner of the ports scans them when a controller arrives ([`Table::add_bus`]) and whenever
//! [`Table::attention`] requests a scan.
//!
//! Buses, controllers of the same name and units of each peripheral driver get the lowest free
//! number, as in CAM.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use flysch_api::block::Change;

use crate::family::Attention;

/// The units addressed: one, or several if there are wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// Number of the bus.
    pub bus: u32,
    /// Target, or [`ANY_TARGET`](Self::ANY_TARGET).
    pub target: u32,
    /// Logical unit, or [`ANY_LUN`](Self::ANY_LUN).
    pub lun: u64,
}

impl Path {
    /// Every target of the bus.
    pub const ANY_TARGET: u32 = u32::MAX;
    /// Every logical unit of the target.
    pub const ANY_LUN: u64 = u64::MAX;

    /// All of a bus.
    pub const fn of_bus(bus: u32) -> Self {
        Self { bus, target: Self::ANY_TARGET, lun: Self::ANY_LUN }
    }

    /// All of this target.
    pub const fn target(self) -> Self {
        Self { lun: Self::ANY_LUN, ..self }
    }

    /// Whether this path covers `other`.
    pub const fn covers(self, other: Self) -> bool {
        self.bus == other.bus
            && (self.target == Self::ANY_TARGET || self.target == other.target)
            && (self.lun == Self::ANY_LUN || self.lun == other.lun)
    }
}

/// `bus:target:lun`, wildcards as -1, the unit in hexadecimal.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.bus)?;
        match self.target {
            Self::ANY_TARGET => f.write_str("-1:")?,
            target => write!(f, "{target}:")?,
        }
        match self.lun {
            Self::ANY_LUN => f.write_str("-1"),
            lun => write!(f, "{lun:x}"),
        }
    }
}

/// What a scan found out about a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Its target on the bus.
    pub target: u32,
    /// Its logical unit number.
    pub lun: u64,
    /// Its identification: vendor, product and revision.
    pub text: String,
    /// Its serial number; empty if it reports none.
    pub serial: String,
    /// The peripheral driver that attaches to it besides `pass`: `da`, `ada`, `nda`, `sdda`, `cd`,
    /// `ses`, `pmp`.
    pub driver: Option<&'static str>,
    /// Its size in bytes, if it is a disk with a medium.
    pub bytes: u64,
    /// Its location in an enclosure, if known.
    pub physical_path: Option<String>,
}

/// A peripheral driver on a unit: its name and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Periph {
    /// The driver.
    pub driver: &'static str,
    /// The number of the unit of that driver.
    pub number: u32,
}

impl fmt::Display for Periph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.driver, self.number)
    }
}

/// The peripheral driver that every unit has; it passes commands through.
const PASS: &str = "pass";
/// Drivers that attach after `pass` and so are listed before it: a list starts with the youngest.
const ATTACH_LATE: [&str; 2] = ["ada", "pmp"];

/// A unit in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its path.
    pub path: Path,
    /// Its description.
    pub description: Description,
    /// The peripheral drivers on it, the youngest first.
    pub periphs: Vec<Periph>,
    /// Counts changes of its peripheral drivers (`camcontrol periphlist`).
    pub generation: u32,
}

impl Unit {
    /// The driver on it that is not `pass`.
    pub fn driver(&self) -> Option<Periph> {
        self.periphs.iter().copied().find(|periph| periph.driver != PASS)
    }

    /// The driver that passes commands through.
    pub fn pass(&self) -> Option<Periph> {
        self.periphs.iter().copied().find(|periph| periph.driver == PASS)
    }
}

/// One line of `camcontrol devlist`.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.periphs.iter().map(ToString::to_string).collect();
        let Path { bus, target, lun } = self.path;
        let text = alloc::format!("<{}>", self.description.text);
        write!(f, "{text:<33}  at scbus{bus} target {target} lun {lun:x} ({})", names.join(","))
    }
}

/// A bus: a port of a host controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bus {
    /// Its number.
    pub number: u32,
    /// The controller's driver.
    pub sim: String,
    /// Number of the controller among those of that driver.
    pub unit: u32,
    /// What was found on it, by target and unit.
    pub units: Vec<Unit>,
}

/// The line of `camcontrol devlist -v` that describes a bus.
impl fmt::Display for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, sim, unit, .. } = self;
        write!(f, "scbus{number} on {sim}{unit} bus 0:")
    }
}

/// The kind of an event; the numbers are CAM's asynchronous callback codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Async {
    /// The bus was reset.
    BusReset = 0x1,
    /// A target was reset.
    SentBdr = 0x10,
    /// A bus was added.
    PathRegistered = 0x20,
    /// A bus was removed.
    PathDeregistered = 0x40,
    /// A unit arrived.
    FoundDevice = 0x80,
    /// A unit departed.
    LostDevice = 0x100,
    /// A unit's identification changed.
    InquiryChanged = 0x400,
    /// A unit's size changed.
    GetdevChanged = 0x800,
    /// Another known property of a unit changed: its physical path.
    AdvinfoChanged = 0x2000,
    /// A unit reported an event.
    UnitAttention = 0x4000,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its kind.
    pub code: Async,
    /// The path that it concerns.
    pub path: Path,
    /// The peripheral driver whose device it is, and the meaning of the event for it.
    pub change: Option<(Periph, Change)>,
}

/// What must be scanned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// The unit, or all units if there are wildcards.
    Scan(Path),
}

/// All buses and everything on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    buses: Vec<Bus>,
}

/// The lowest number that is not taken.
fn lowest_free(taken: impl Iterator<Item = u32> + Clone) -> u32 {
    (0..).find(|number| !taken.clone().any(|other| other == *number)).unwrap_or(u32::MAX)
}

impl Table {
    /// Creates a table without buses.
    pub const fn new() -> Self {
        Self { buses: Vec::new() }
    }

    /// The buses, by number.
    pub fn buses(&self) -> &[Bus] {
        &self.buses
    }

    /// All units, by bus, target and number.
    pub fn units(&self) -> impl Iterator<Item = &Unit> + Clone {
        self.buses.iter().flat_map(|bus| &bus.units)
    }

    /// The unit at a path.
    pub fn unit(&self, path: Path) -> Option<&Unit> {
        self.units().find(|unit| unit.path == path)
    }

    /// The unit that has a peripheral driver of this name, such as `pass0`.
    pub fn named(&self, name: &str) -> Option<&Unit> {
        let has = |unit: &&Unit| unit.periphs.iter().any(|periph| periph.to_string() == name);
        self.units().find(has)
    }

    /// Adds a controller of the driver `sim`; returns its bus, which must be scanned.
    pub fn add_bus(&mut self, sim: &str) -> (u32, Event) {
        let number = lowest_free(self.buses.iter().map(|bus| bus.number));
        let same = self.buses.iter().filter(|bus| bus.sim == sim);
        let unit = lowest_free(same.map(|bus| bus.unit));
        let bus = Bus { number, sim: sim.into(), unit, units: Vec::new() };
        let at = self.buses.partition_point(|other| other.number < number);
        self.buses.insert(at, bus);
        (number, Event::without_device(Async::PathRegistered, Path::of_bus(number)))
    }

    /// Removes a controller, and everything on its bus.
    pub fn remove_bus(&mut self, number: u32) -> Vec<Event> {
        let mut events = self.scanned(Path::of_bus(number), Vec::new());
        let known = self.buses.len();
        self.buses.retain(|bus| bus.number != number);
        if self.buses.len() < known {
            events.push(Event::without_device(Async::PathDeregistered, Path::of_bus(number)));
        }
        events
    }

    /// Takes the result of a scan of `scope`, and reports what happened to each unit in it.
    pub fn scanned(&mut self, scope: Path, found: Vec<Description>) -> Vec<Event> {
        let mut events = Vec::new();
        let known: Vec<Path> = self.units().map(|unit| unit.path).collect();
        let is_there = |path: &Path| found.iter().any(|one| one.path(scope.bus) == *path);
        for path in known.into_iter().filter(|path| scope.covers(*path) && !is_there(path)) {
            events.extend(self.lose(path));
        }
        for description in found {
            let path = description.path(scope.bus);
            if !scope.covers(path) {
                continue;
            }
            match self.unit_mut(path) {
                Some(unit) if unit.description.is_same_device(&description) => {
                    events.extend(unit.describe(description));
                }
                known => {
                    // Another device in the same place: the old one is gone first.
                    let replaces = known.is_some();
                    if replaces {
                        events.extend(self.lose(path));
                    }
                    events.extend(self.find(path, description));
                }
            }
        }
        events
    }

    /// A unit reported one or several events: returns what happened, and what must be scanned
    /// again.
    pub fn attention(&mut self, path: Path, attention: Attention) -> (Vec<Event>, Due) {
        let Some(unit) = self.unit(path) else { return (Vec::new(), Due::Nothing) };
        let mut events = alloc::vec![Event::without_device(Async::UnitAttention, path)];
        if attention.reset {
            events.push(unit.event(Async::SentBdr, Some(Change::Reset)));
        }
        if attention.identity {
            // The scan finds out whether it is another device; its content is doubtful already.
            events.push(unit.event(Async::InquiryChanged, Some(Change::Medium)));
        }
        let due = match attention {
            Attention { luns: true, .. } => Due::Scan(path.target()),
            Attention { capacity: true, .. }
            | Attention { identity: true, .. }
            | Attention { parameters: true, .. } => Due::Scan(path),
            Attention { .. } => Due::Nothing,
        };
        (events, due)
    }

    /// A bus was reset: every unit on it lost its volatile state.
    pub fn bus_reset(&self, number: u32) -> Vec<Event> {
        let bus = self.buses.iter().filter(|bus| bus.number == number);
        let units = bus.flat_map(|bus| &bus.units);
        let mut events = alloc::vec![Event::without_device(Async::BusReset, Path::of_bus(number))];
        events.extend(units.map(|unit| unit.event(Async::BusReset, Some(Change::Reset))));
        events
    }

    /// Takes an enclosure's report of where a unit is.
    pub fn set_physical_path(&mut self, path: Path, place: Option<String>) -> Option<Event> {
        let unit = self.unit_mut(path)?;
        if unit.description.physical_path == place {
            return None;
        }
        unit.description.physical_path = place;
        Some(unit.event(Async::AdvinfoChanged, Some(PHYSICAL_PATH)))
    }

    fn bus_mut(&mut self, number: u32) -> Option<&mut Bus> {
        self.buses.iter_mut().find(|bus| bus.number == number)
    }

    fn unit_mut(&mut self, path: Path) -> Option<&mut Unit> {
        self.bus_mut(path.bus)?.units.iter_mut().find(|unit| unit.path == path)
    }

    fn lose(&mut self, path: Path) -> Option<Event> {
        let bus = self.bus_mut(path.bus)?;
        let at = bus.units.iter().position(|unit| unit.path == path)?;
        Some(bus.units.remove(at).event(Async::LostDevice, Some(Change::Gone)))
    }

    fn find(&mut self, path: Path, description: Description) -> Option<Event> {
        let attach = |driver: &'static str| {
            let all = self.units().flat_map(|unit| &unit.periphs);
            let same = all.filter(|periph| periph.driver == driver);
            Periph { driver, number: lowest_free(same.map(|periph| periph.number)) }
        };
        let mut periphs = alloc::vec![attach(PASS)];
        if let Some(driver) = description.driver {
            let at = if ATTACH_LATE.contains(&driver) { 0 } else { 1 };
            periphs.insert(at, attach(driver));
        }
        let generation = periphs.len() as u32;
        let unit = Unit { path, description, periphs, generation };
        let event = unit.event(Async::FoundDevice, Some(Change::Arrived));
        let bus = self.bus_mut(path.bus)?;
        let at = bus.units.partition_point(|other| other.path < path);
        bus.units.insert(at, unit);
        Some(event)
    }
}

/// The physical path has changed.
const PHYSICAL_PATH: Change = Change::Attribute("GEOM::physpath");

impl Description {
    fn path(&self, bus: u32) -> Path {
        Path { bus, target: self.target, lun: self.lun }
    }

    /// Whether this is the same device: same identification, same serial number, same kind.
    fn is_same_device(&self, other: &Self) -> bool {
        (&self.text, &self.serial, self.driver) == (&other.text, &other.serial, other.driver)
    }
}

impl Unit {
    fn event(&self, code: Async, change: Option<Change>) -> Event {
        let change = self.driver().zip(change);
        Event { code, path: self.path, change }
    }

    /// Takes a newer description of the same device.
    fn describe(&mut self, newer: Description) -> Vec<Event> {
        let mut events = Vec::new();
        if newer.bytes != self.description.bytes {
            // A change from or to 0 is a medium that came or went.
            let change = match (self.description.bytes, newer.bytes) {
                (0, _) | (_, 0) => Change::Medium,
                (_, bytes) => Change::Resized { bytes },
            };
            events.push(self.event(Async::GetdevChanged, Some(change)));
        }
        // A scan does not ask enclosures: what is known about the place stays.
        let place = newer.physical_path.or(self.description.physical_path.take());
        self.description = Description { physical_path: place, ..newer };
        events
    }
}

impl Event {
    const fn without_device(code: Async, path: Path) -> Self {
        Self { code, path, change: None }
    }
}

/// How much `devlist` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Buses, and the units that are not configured.
    pub verbose: bool,
    /// Buses only.
    pub buses_only: bool,
}

impl Listing {
    /// A bus before its units, if buses are printed.
    pub fn heading(self, bus: &Bus) -> Option<String> {
        (self.verbose || self.buses_only).then(|| bus.to_string())
    }

    /// The line that ends a bus, if there is one: for everything that is not a unit.
    pub fn ending(self, bus: &Bus) -> Option<String> {
        let end =
            || alloc::format!("{:<33}  at scbus{} target -1 lun ffffffff ()", "<>", bus.number);
        (self.verbose && !self.buses_only).then(end)
    }

    /// The lines that end the list: the transport layer itself.
    pub fn last(self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.verbose || self.buses_only {
            lines.push("scbus-1 on xpt0 bus 0:".into());
        }
        if self.verbose && !self.buses_only {
            let line = alloc::format!("{:<33}  at scbus-1 target -1 lun ffffffff (xpt0)", "<>");
            lines.push(line);
        }
        lines
    }
}

/// The list as `camcontrol devlist` prints it.
pub fn devlist(table: &Table, listing: Listing) -> Vec<String> {
    let mut lines = Vec::new();
    for bus in table.buses() {
        lines.extend(listing.heading(bus));
        if !listing.buses_only {
            lines.extend(bus.units.iter().map(ToString::to_string));
        }
        lines.extend(listing.ending(bus));
    }
    lines.extend(listing.last());
    lines
}
