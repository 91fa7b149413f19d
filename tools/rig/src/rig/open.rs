//! The open disks of a rig.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flysch_api::machine::{Clock, DmaRegion, Instant, Wake};
use flysch_bench::clock::RealClock;
use flysch_bench::results::Incident;
use flysch_cam::xpt::Table;
use flysch_files::Made;
use flysch_models::machine::Timeline;
use flysch_models::store::FileStore;
use tempfile::NamedTempFile;

use super::file::{Controller, Disk, RigFile};
use super::lane::{CONTROL, DiskLane, StackClock};
use super::plug::{Bus, OnBus};
use crate::error::TargetError;
use crate::image::{Image, make_missing};
use crate::lane::{MEMORY_ADDRESS, data_bytes};
use crate::open::Needs;
use crate::seat::{Seat, Shared, Unit};
use crate::stack::Stack;
use crate::target::{ClockKind, FileTarget, Target};
use crate::ufs::MODEL_SIZE;
use crate::{ahci, emmc, nvme, ufs};

/// Why a disk of a rig could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {name}: {cause}", path.display())]
pub struct RigError {
    /// The rig's file.
    pub path: PathBuf,
    /// The controller or disk.
    pub name: String,
    /// The cause.
    pub cause: Box<TargetError>,
}

/// A disk of a rig; a disk with several paths appears once for each.
#[derive(Debug)]
pub struct OpenDisk {
    /// Its name; preceded by that of the controller if there are several paths.
    pub name: String,
    /// Its serial number.
    pub serial: String,
    /// Where requests go.
    pub source: Source,
}

/// Where requests to a disk go.
#[derive(Debug)]
pub enum Source {
    /// To lanes.
    Lanes(Vec<DiskLane>),
    /// To a file without lanes: its path, bytes per sector.
    Image(PathBuf, u32),
}

/// The clock of a rig.
#[derive(Clone, Debug)]
pub enum RigClock {
    /// That of its models.
    Models(Rc<Timeline>),
    /// That of the only disk.
    One(StackClock),
    /// That of this machine: there are no models.
    Real(RealClock),
}

impl Clock for RigClock {
    #[inline]
    fn now(&self) -> Instant {
        match self {
            Self::Models(timeline) => timeline.now(),
            Self::One(clock) => clock.now(),
            Self::Real(clock) => clock.now(),
        }
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        match self {
            Self::Models(timeline) => timeline.wait(until),
            Self::One(clock) => clock.wait(until),
            Self::Real(clock) => clock.wait(until),
        }
    }
}

/// The disks of a rig. Dropping it shuts everything down.
#[derive(Debug)]
pub struct OpenRig {
    /// Disks, each path separately, in the order of the file.
    pub disks: Vec<OpenDisk>,
    clock: Option<RigClock>,
    kind: ClockKind,
    stacks: Vec<Rc<RefCell<Stack>>>,
    /// Modelled controllers, and the table of their devices.
    pub(super) buses: Vec<Bus>,
    pub(super) table: Table,
    /// Images that were created.
    made: Vec<Made>,
    /// Where disks with several paths store their data.
    _kept: Vec<NamedTempFile>,
}

impl OpenRig {
    /// Opens all disks of `rig`. With `lanes`, disks that are files have lanes too; without, they
    /// are returned as files.
    ///
    /// # Errors
    /// Which one cannot be opened, and why.
    pub fn open(rig: &RigFile, needs: &Needs, lanes: bool) -> Result<Self, RigError> {
        let mut opening = Opening {
            rig,
            needs: with_control(needs),
            stores: BTreeMap::new(),
            made: Vec::new(),
            kept: Vec::new(),
        };
        opening.run(lanes)
    }

    /// Its clock; `None` if it was opened without lanes and has no models.
    #[must_use]
    pub fn clock(&self) -> Option<&RigClock> {
        self.clock.as_ref()
    }

    /// The name of its clock: `virtual`, `hybrid` or `real`.
    #[must_use]
    pub fn clock_name(&self) -> &'static str {
        match self.clock {
            Some(RigClock::Models(_)) => self.kind.name(),
            _ => ClockKind::Real.name(),
        }
    }

    /// Everything that has gone wrong so far.
    #[must_use]
    pub fn incidents(&self) -> Vec<Incident> {
        let mut all: Vec<Incident> = Vec::new();
        for incident in self.stacks.iter().flat_map(|stack| stack.borrow().incidents()) {
            let same =
                |it: &&mut Incident| (&it.source, &it.what) == (&incident.source, &incident.what);
            match all.iter_mut().find(same) {
                Some(known) => known.count += incident.count,
                None => all.push(incident),
            }
        }
        // Those of one source stand together.
        all.sort_by(|a, b| a.source.cmp(&b.source));
        all
    }

    /// Why a machine below could not do its work, if one could not.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.stacks.iter().find_map(|stack| stack.borrow().failure())
    }

    /// Keeps files that were created for it.
    pub fn keep(&mut self) {
        self.stacks.iter().for_each(|stack| stack.borrow_mut().keep());
        self.made.drain(..).for_each(Made::keep);
    }
}

fn with_control(needs: &Needs) -> Needs {
    let lanes = usize::from(needs.lanes.max(1));
    let memory = needs.memory.max(4096) + CONTROL.div_ceil(lanes);
    Needs { memory: memory.next_multiple_of(4096), ..*needs }
}

struct Opening<'a> {
    rig: &'a RigFile,
    needs: Needs,
    /// The files of disks with several paths.
    stores: BTreeMap<usize, (u64, FileStore)>,
    made: Vec<Made>,
    kept: Vec<NamedTempFile>,
}

fn is_model(target: &Target) -> bool {
    matches!(target, Target::Ufs(_) | Target::Nvme(_) | Target::Ahci(_) | Target::Emmc(_))
}

impl Opening<'_> {
    fn failed(&self, name: &str, cause: impl Into<TargetError>) -> RigError {
        RigError {
            path: self.rig.path.clone(),
            name: name.to_string(),
            cause: Box::new(cause.into()),
        }
    }

    fn run(&mut self, lanes: bool) -> Result<OpenRig, RigError> {
        let rig = self.rig;
        let alone = alone(rig, lanes);
        let mut own = data_bytes(&self.needs);
        let mut places = Vec::new();
        let models = rig.controllers.iter().map(|it| (&it.target, it.disks.len()));
        let singles = alone.iter().map(|(_, target)| (target, 1));
        for (target, disks) in models.chain(singles) {
            places.push(own);
            own += own_memory(target, &self.needs, disks);
        }
        let memory = DmaRegion::zeroed(own, MEMORY_ADDRESS);
        let has_models =
            !rig.controllers.is_empty() || alone.iter().any(|(_, target)| is_model(target));
        let timeline = has_models.then(|| Timeline::new(rig.clock.mode()));
        let mut places = places.into_iter();
        let mut seat = |units| Seat {
            units,
            shared: timeline.as_ref().map(|timeline| Shared {
                memory: memory.clone(),
                own: places.next().unwrap_or_default(),
                timeline: Rc::clone(timeline),
            }),
        };
        let (mut stacks, mut found, real) = (Vec::new(), Vec::new(), RealClock::new());
        let (mut buses, mut table) = (Vec::new(), Table::new());
        for controller in &rig.controllers {
            let units = self.units(controller)?;
            let stack = Stack::open_model(&controller.target, &self.needs, &mut seat(units));
            let mut stack = stack.map_err(|cause| self.failed(&controller.name, cause))?;
            let each = (stack.lanes() / controller.disks.len()).max(1);
            let stack = Rc::new(RefCell::new(stack));
            let bus = self.bus(controller, &stack, each, &mut table);
            let opened =
                controller.disks.iter().enumerate().map(|(at, &disk)| (disk, bus.open(at)));
            found.extend(opened);
            buses.push(bus);
            stacks.push(stack);
        }
        for (disk, target) in &alone {
            let stack = Stack::open_model(target, &self.needs, &mut seat(Vec::new()));
            let mut stack = stack.map_err(|cause| self.failed(&disk.name, cause))?;
            stack.join(&memory.carve(0, data_bytes(&self.needs)), &real);
            let count = stack.lanes();
            let stack = Rc::new(RefCell::new(stack));
            let lanes = (0..count).map(|lane| DiskLane::new(&stack, lane)).collect();
            found.push((self.place(disk), self.told(disk, Source::Lanes(lanes))));
            stacks.push(stack);
        }
        if !lanes {
            found.extend(self.images()?);
        }
        found.sort_by_key(|(place, _)| *place);
        let clock = match (timeline, &stacks[..]) {
            (Some(timeline), _) => Some(RigClock::Models(timeline)),
            (None, [one]) => Some(RigClock::One(StackClock(Rc::clone(one)))),
            (None, _) => lanes.then_some(RigClock::Real(real)),
        };
        Ok(OpenRig {
            disks: found.into_iter().map(|(_, disk)| disk).collect(),
            clock,
            kind: rig.clock,
            stacks,
            buses,
            table,
            made: std::mem::take(&mut self.made),
            _kept: std::mem::take(&mut self.kept),
        })
    }

    /// A controller with its disks, each with this many lanes.
    fn bus(
        &self,
        controller: &Controller,
        stack: &Rc<RefCell<Stack>>,
        each: usize,
        table: &mut Table,
    ) -> Bus {
        let disks = controller.disks.iter().map(|&disk| {
            let there = &self.rig.disks[disk];
            let name = match there.paths {
                1 => there.name.clone(),
                _ => format!("{}/{}", controller.name, there.name),
            };
            OnBus::new(name, there.serial.clone())
        });
        Bus::new(controller.name.clone(), stack, (disks.collect(), each), table)
    }

    /// Disks that are files and are returned as such.
    fn images(&mut self) -> Result<Vec<(usize, OpenDisk)>, RigError> {
        let mut found = Vec::new();
        let all = self.rig.disks.iter();
        for disk in all.filter(|disk| disk.paths == 0 && disk.target.is_none()) {
            let path = disk.image.as_deref().expect("the file was checked");
            let made = make_missing(path, disk.size);
            self.made.extend(made.map_err(|cause| self.failed(&disk.name, cause))?);
            let source = Source::Image(path.to_path_buf(), disk.sector);
            found.push((self.place(disk), self.told(disk, source)));
        }
        Ok(found)
    }

    fn place(&self, disk: &Disk) -> usize {
        self.rig.disks.iter().position(|it| it.name == disk.name).unwrap_or_default()
    }

    fn told(&self, disk: &Disk, source: Source) -> OpenDisk {
        OpenDisk { name: disk.name.clone(), serial: disk.serial.clone(), source }
    }

    /// The disks of a controller, and the files that store them.
    fn units(&mut self, controller: &Controller) -> Result<Vec<Unit>, RigError> {
        let default = size_of(&controller.target).unwrap_or(MODEL_SIZE);
        let mut units = Vec::new();
        for &place in &controller.disks {
            let rig = self.rig;
            let disk = &rig.disks[place];
            let (size, store) = self.store(place, disk, default)?;
            units.push(Unit { size, store, serial: disk.serial.clone() });
        }
        Ok(units)
    }

    fn store(
        &mut self,
        place: usize,
        disk: &Disk,
        default: u64,
    ) -> Result<(u64, Option<FileStore>), RigError> {
        if let Some((size, store)) = self.stores.get(&place) {
            let another = store.another().map_err(|cause| self.failed(&disk.name, cause))?;
            return Ok((*size, Some(another)));
        }
        let (size, path) = match &disk.image {
            Some(path) => {
                let image = Image::prepare(path, disk.size)
                    .map_err(|cause| self.failed(&disk.name, cause))?;
                self.made.extend(image.made);
                (image.bytes, path.clone())
            }
            None if disk.paths < 2 => return Ok((disk.size.unwrap_or(default), None)),
            // What two controllers have must lie where both find it.
            None => {
                let size = disk.size.unwrap_or(default);
                let file = self.temporary(size).map_err(|fault| {
                    let path = std::env::temp_dir();
                    let cause = crate::image::ImageError { path, fault: fault.into() };
                    self.failed(&disk.name, cause)
                })?;
                (size, file)
            }
        };
        let store = FileStore::open(&path, size).map_err(|cause| self.failed(&disk.name, cause))?;
        if disk.paths > 1 {
            let another = store.another().map_err(|cause| self.failed(&disk.name, cause))?;
            self.stores.insert(place, (size, another));
        }
        Ok((size, Some(store)))
    }

    fn temporary(&mut self, size: u64) -> std::io::Result<PathBuf> {
        let file = NamedTempFile::with_prefix("flysch-disk")?;
        file.as_file().set_len(size)?;
        let path = file.path().to_path_buf();
        self.kept.push(file);
        Ok(path)
    }
}

/// Disks without a controller that are opened as targets: with `lanes` also images.
fn alone(rig: &RigFile, lanes: bool) -> Vec<(&Disk, Target)> {
    let target = |disk: &Disk| match (&disk.target, &disk.image) {
        (Some(target), _) => Some(target.clone()),
        (None, Some(image)) if disk.paths == 0 && lanes => Some(file(disk, image)),
        _ => None,
    };
    rig.disks.iter().filter_map(|disk| Some((disk, target(disk)?))).collect()
}

/// An image without a controller as a target.
fn file(disk: &Disk, path: &Path) -> Target {
    Target::File(FileTarget { path: path.into(), size: disk.size, block_size: disk.sector })
}

fn size_of(target: &Target) -> Option<u64> {
    match target {
        Target::Ufs(target) => target.size,
        Target::Nvme(target) => target.size,
        Target::Ahci(target) => target.size,
        Target::Emmc(target) => target.size,
        _ => None,
    }
}

fn own_memory(target: &Target, needs: &Needs, disks: usize) -> usize {
    match target {
        Target::Ufs(target) => ufs::own_memory(target, needs, disks),
        Target::Nvme(target) => nvme::own_memory(target, needs, disks),
        Target::Ahci(target) => ahci::own_memory(target, needs, disks),
        Target::Emmc(target) => emmc::own_memory(target, needs),
        _ => 0,
    }
}
