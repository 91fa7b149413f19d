//! Disks and controllers of a rig that come and go while it is in use, and the table of devices
//! that records it.
//!
//! Each modelled controller is a bus of CAM's table ([`Table`]), each of its disks a unit on it.
//! The results of a scan are compared with the known devices, and reported as [`News`]: the owner
//! of a graph on the disks orphans those that were lost and inserts those that were found.

use std::cell::RefCell;
use std::rc::Rc;

use flysch_api::block::Change;
use flysch_api::machine::Instant;
use flysch_cam::Attention;
use flysch_cam::xpt::{Description, Due, Event, Path, Table};

use super::lane::DiskLane;
use super::open::{OpenDisk, OpenRig, Source};
use crate::error::TargetError;
use crate::plug::Part;
use crate::stack::Stack;
use crate::target::did_you_mean;

/// Why something could not be pulled out or put back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlugError {
    /// No modelled controller, or disk of one, has this name.
    #[error("{name}: is neither a modelled controller nor a disk on one{hint}; there are {all}")]
    Unknown {
        /// The given name.
        name: String,
        /// The name that was probably meant.
        hint: String,
        /// The existing names.
        all: String,
    },
    /// It comes and goes with its controller.
    #[error("{name}: is a part of its device, and comes and goes with it: name {controller}")]
    Fixed {
        /// The disk.
        name: String,
        /// Its controller.
        controller: String,
    },
    /// It is already gone.
    #[error("{0}: is already detached; `disk attach {0}` puts it back")]
    Detached(String),
    /// It is already there.
    #[error("{0}: is attached; `disk detach {0}` takes it away")]
    Attached(String),
    /// There is no controller to put it into.
    #[error("{name}: its controller {controller} is detached; attach that one first")]
    NoController {
        /// The disk.
        name: String,
        /// Its controller.
        controller: String,
    },
    /// The controller did not come up.
    #[error("{name}: {cause}")]
    Failed {
        /// What was put back.
        name: String,
        /// The cause.
        cause: TargetError,
    },
}

/// The result of a scan.
#[derive(Debug)]
#[non_exhaustive]
pub enum News {
    /// The disk with this name is no longer there.
    Lost(String),
    /// A new disk.
    Found(OpenDisk),
    /// An event of a disk that stays: a reset, another size, possibly another medium.
    Changed(OpenDisk, Change),
}

/// A modelled controller.
#[derive(Debug)]
pub(super) struct Bus {
    pub(super) name: String,
    pub(super) stack: Rc<RefCell<Stack>>,
    pub(super) disks: Vec<OnBus>,
    /// Lanes of each disk.
    pub(super) each: usize,
    /// Its number in the table while it is there.
    number: Option<u32>,
    is_pulled: bool,
    /// When it comes back automatically.
    back_at: Instant,
}

/// A disk of it.
#[derive(Clone, Debug)]
pub(super) struct OnBus {
    pub(super) name: String,
    pub(super) serial: String,
    is_pulled: bool,
    /// When it comes back automatically.
    back_at: Instant,
    /// Events that it reported and that have not been handled yet.
    told: Attention,
}

impl OnBus {
    pub(super) fn new(name: String, serial: String) -> Self {
        let (back_at, told) = (Instant::NEVER, Attention::default());
        Self { name, serial, is_pulled: false, back_at, told }
    }
}

impl Bus {
    /// A controller whose disks are all there.
    pub(super) fn new(
        name: String,
        stack: &Rc<RefCell<Stack>>,
        (disks, each): (Vec<OnBus>, usize),
        table: &mut Table,
    ) -> Self {
        let (stack, back_at) = (Rc::clone(stack), Instant::NEVER);
        let mut bus = Self { name, stack, disks, each, number: None, is_pulled: false, back_at };
        bus.register(table);
        let all = bus.descriptions(|_| true);
        if let Some(number) = bus.number {
            table.scanned(Path::of_bus(number), all);
        }
        bus
    }

    fn register(&mut self, table: &mut Table) {
        if let Some(plug) = self.stack.borrow_mut().plug() {
            self.number = Some(table.add_bus(plug.place(0).controller).0);
        }
    }

    /// The entries in the table for the disks that are there.
    fn descriptions(&self, is_there: impl Fn(usize) -> bool) -> Vec<Description> {
        let mut stack = self.stack.borrow_mut();
        let text = stack.description().to_string();
        let bytes: Vec<u64> = (0..self.disks.len())
            .map(|disk| DiskLane::bytes_of(&mut stack, disk * self.each))
            .collect();
        let Some(plug) = stack.plug() else { return Vec::new() };
        let describe = |disk: usize| {
            let place = plug.place(disk);
            Description {
                target: place.target,
                lun: place.lun,
                text: text.clone(),
                serial: self.disks[disk].serial.clone(),
                driver: Some(place.periph),
                bytes: bytes[disk],
                ..Description::default()
            }
        };
        (0..self.disks.len()).filter(|disk| is_there(*disk)).map(describe).collect()
    }

    /// Scans for disks; if only one is wanted, the others are not queried.
    fn scan(&mut self, only: Option<usize>, table: &mut Table) -> Vec<News> {
        let mut there = vec![false; self.disks.len()];
        if let Some(plug) = self.stack.borrow_mut().plug() {
            for (disk, is_there) in there.iter_mut().enumerate() {
                let is_wanted = only.is_none_or(|only| only == disk);
                *is_there = is_wanted && plug.scan(disk);
            }
        }
        let Some(number) = self.number else { return Vec::new() };
        let found = self.descriptions(|disk| there[disk]);
        let scope = match only {
            Some(disk) => self.path(number, disk),
            None => Path::of_bus(number),
        };
        let events = table.scanned(scope, found);
        self.news(number, &events)
    }

    fn path(&self, bus: u32, disk: usize) -> Path {
        let mut stack = self.stack.borrow_mut();
        let place = stack.plug().map(|plug| plug.place(disk)).unwrap_or_default();
        Path { bus, target: place.target, lun: place.lun }
    }

    fn news(&self, number: u32, events: &[Event]) -> Vec<News> {
        let mut all = Vec::new();
        for event in events {
            let disk = (0..self.disks.len()).find(|disk| self.path(number, *disk) == event.path);
            let (Some(disk), Some((_, change))) = (disk, event.change) else { continue };
            match change {
                Change::Gone => all.push(News::Lost(self.disks[disk].name.clone())),
                Change::Arrived => all.push(News::Found(self.open(disk))),
                change => all.push(News::Changed(self.open(disk), change)),
            }
        }
        all
    }

    /// Whether the table has a disk.
    fn is_known(&self, disk: usize, table: &Table) -> bool {
        self.number.is_some_and(|number| table.unit(self.path(number, disk)).is_some())
    }

    /// Whether there is anything for [`look`](Self::look) to handle. Disks whose time has come are
    /// put back by this, which drivers notice.
    fn has_news(&mut self, now: Instant, table: &Table) -> bool {
        if self.is_pulled {
            return now >= self.back_at;
        }
        let known: Vec<bool> =
            (0..self.disks.len()).map(|disk| self.is_known(disk, table)).collect();
        let mut stack = self.stack.borrow_mut();
        let Some(plug) = stack.plug() else { return false };
        let mut any = false;
        for (at, disk) in self.disks.iter_mut().enumerate() {
            if now >= disk.back_at {
                disk.back_at = Instant::NEVER;
                disk.is_pulled = plug.put_back(Part::Disk(at)).is_err();
            }
            any |= if known[at] {
                if disk.told == Attention::default() {
                    disk.told = plug.told(at);
                }
                disk.told != Attention::default()
            } else {
                !disk.is_pulled && plug.came(at, now)
            };
        }
        any
    }

    /// Handles events reported by disks, and scans what is due because of them.
    fn look(&mut self, table: &mut Table) -> Vec<News> {
        let mut news = Vec::new();
        for disk in 0..self.disks.len() {
            let Some(number) = self.number else { break };
            if !self.is_known(disk, table) {
                news.extend(self.scan(Some(disk), table));
                continue;
            }
            let told = std::mem::take(&mut self.disks[disk].told);
            if told == Attention::default() {
                continue;
            }
            let (events, due) = table.attention(self.path(number, disk), told);
            news.extend(self.news(number, &events));
            match due {
                Due::Nothing => {}
                Due::Scan(Path { lun: Path::ANY_LUN, .. }) => news.extend(self.scan(None, table)),
                Due::Scan(_) => news.extend(self.scan(Some(disk), table)),
            }
        }
        news
    }

    /// A disk of it, with lanes.
    pub(super) fn open(&self, disk: usize) -> OpenDisk {
        let OnBus { name, serial, .. } = self.disks[disk].clone();
        let lanes = disk * self.each..(disk + 1) * self.each;
        let lanes = lanes.map(|lane| DiskLane::new(&self.stack, lane)).collect();
        OpenDisk { name, serial, source: Source::Lanes(lanes) }
    }
}

impl OpenRig {
    /// The bus and the disk of this name, or the bus of this name.
    fn find(&self, name: &str) -> Result<(usize, Part), PlugError> {
        let pluggable = |bus: &&Bus| bus.stack.borrow_mut().plug().is_some();
        let buses = || self.buses.iter().enumerate().filter(|(_, bus)| pluggable(bus));
        for (at, bus) in buses() {
            if let Some(disk) = bus.disks.iter().position(|disk| disk.name == name) {
                return Ok((at, Part::Disk(disk)));
            }
        }
        if let Some((at, _)) = buses().find(|(_, bus)| bus.name == name) {
            return Ok((at, Part::Controller));
        }
        let names: Vec<&str> = buses()
            .flat_map(|(_, bus)| {
                let disks = bus.disks.iter().map(|disk| &disk.name[..]);
                std::iter::once(&bus.name[..]).chain(disks)
            })
            .collect();
        let hint = did_you_mean(name, &names);
        let all = if names.is_empty() { "none".into() } else { names.join(", ") };
        Err(PlugError::Unknown { name: name.into(), hint, all })
    }

    /// Whether a disk or controller with this name can be pulled out and put back.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Pulls a disk off its controller, or pulls out a controller, whatever is in flight: requests
    /// to it end as the driver notices. [`rescan`](Self::rescan) reports the losses.
    ///
    /// # Errors
    /// There is no such thing, it is already gone, or it cannot be pulled.
    pub fn detach(&mut self, name: &str) -> Result<(), PlugError> {
        let (at, part) = self.find(name)?;
        let bus = &mut self.buses[at];
        let is_gone = match part {
            Part::Controller => bus.number.is_none(),
            Part::Disk(disk) => bus.number.is_none() || bus.disks[disk].is_pulled,
        };
        if is_gone {
            return Err(PlugError::Detached(name.into()));
        }
        let mut stack = bus.stack.borrow_mut();
        let Some(plug) = stack.plug() else { return Ok(()) };
        if let Part::Disk(disk) = part {
            if !plug.has_loose_disks() {
                let controller = bus.name.clone();
                return Err(PlugError::Fixed { name: name.into(), controller });
            }
            bus.disks[disk].is_pulled = true;
        }
        plug.pull(part);
        drop(stack);
        bus.is_pulled = part == Part::Controller;
        Ok(())
    }

    /// [`detach`](Self::detach)es it for this many nanoseconds of the rig's time: then it is put
    /// back automatically, and [`look`](Self::look) finds it.
    ///
    /// # Errors
    /// As for `detach`.
    pub fn detach_for(&mut self, name: &str, nanos: u64) -> Result<(), PlugError> {
        self.detach(name)?;
        let (at, part) = self.find(name)?;
        let bus = &mut self.buses[at];
        let back_at = bus.stack.borrow_mut().now().after_nanos(nanos);
        match part {
            Part::Disk(disk) => bus.disks[disk].back_at = back_at,
            Part::Controller => bus.back_at = back_at,
        }
        Ok(())
    }

    /// Whether disks or controllers have reported anything: then [`look`](Self::look) is due. This
    /// accesses no device; requests may be in flight.
    pub fn has_news(&mut self) -> bool {
        let mut any = false;
        for bus in &mut self.buses {
            let now = bus.stack.borrow_mut().now();
            any |= bus.has_news(now, &self.table);
        }
        any
    }

    /// Handles events reported by disks and controllers: those that reported a change are scanned,
    /// and those that seem to be back are looked for. Nothing may be in flight.
    ///
    /// # Errors
    /// Why a controller that is back does not come up.
    pub fn look(&mut self) -> Result<Vec<News>, PlugError> {
        let mut news = Vec::new();
        for at in 0..self.buses.len() {
            let now = self.buses[at].stack.borrow_mut().now();
            if !self.buses[at].has_news(now, &self.table) {
                continue;
            }
            let bus = &mut self.buses[at];
            if bus.is_pulled {
                bus.back_at = Instant::NEVER;
                let name = bus.name.clone();
                if bus.number.is_some() {
                    news.extend(self.rescan(Some(&name))?);
                }
                news.extend(self.attach(&name)?);
            } else {
                news.extend(bus.look(&mut self.table));
            }
        }
        Ok(news)
    }

    /// Puts it back, and scans. Nothing may be in flight on any disk of the controller.
    ///
    /// # Errors
    /// There is no such thing, it is already there, or the reason why it does not come up.
    pub fn attach(&mut self, name: &str) -> Result<Vec<News>, PlugError> {
        let (at, part) = self.find(name)?;
        let (bus, table) = (&mut self.buses[at], &mut self.table);
        let is_known = |disk: usize| {
            bus.number.is_some_and(|number| table.unit(bus.path(number, disk)).is_some())
        };
        let is_there = match part {
            Part::Disk(disk) => is_known(disk),
            Part::Controller => (0..bus.disks.len()).any(is_known),
        };
        if is_there {
            return Err(PlugError::Attached(name.into()));
        }
        if let (Part::Disk(_), true) = (part, bus.is_pulled) {
            let controller = bus.name.clone();
            return Err(PlugError::NoController { name: name.into(), controller });
        }
        let mut stack = bus.stack.borrow_mut();
        let Some(plug) = stack.plug() else { return Ok(Vec::new()) };
        if matches!(part, Part::Disk(_)) && !plug.has_loose_disks() {
            let controller = bus.name.clone();
            return Err(PlugError::Fixed { name: name.into(), controller });
        }
        let back = plug.put_back(part);
        drop(stack);
        back.map_err(|cause| PlugError::Failed { name: name.into(), cause })?;
        match part {
            Part::Disk(disk) => {
                bus.disks[disk].is_pulled = false;
                bus.disks[disk].back_at = Instant::NEVER;
            }
            Part::Controller => {
                (bus.is_pulled, bus.back_at) = (false, Instant::NEVER);
                if bus.number.is_none() {
                    bus.register(table);
                }
            }
        }
        Ok(match part {
            Part::Disk(disk) => bus.scan(Some(disk), table),
            Part::Controller => bus.scan(None, table),
        })
    }

    /// Scans for disks: of the controller or the disk with this name, or everywhere. Nothing may be
    /// in flight there.
    ///
    /// # Errors
    /// There is no such thing.
    pub fn rescan(&mut self, name: Option<&str>) -> Result<Vec<News>, PlugError> {
        let wanted = match name {
            None => (0..self.buses.len()).map(|at| (at, None)).collect(),
            Some(name) => match self.find(name)? {
                (at, Part::Disk(disk)) => vec![(at, Some(disk))],
                (at, Part::Controller) => vec![(at, None)],
            },
        };
        let mut news = Vec::new();
        for (at, only) in wanted {
            let (bus, table) = (&mut self.buses[at], &mut self.table);
            news.extend(bus.scan(only, table));
            // With a controller that was pulled its bus goes.
            if let Some(number) = bus.number.filter(|_| bus.is_pulled) {
                let events = table.remove_bus(number);
                news.extend(bus.news(number, &events));
                bus.number = None;
            }
        }
        Ok(news)
    }
}

#[cfg(test)]
mod tests;
