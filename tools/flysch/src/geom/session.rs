//! A graph over the given disks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use flysch_geom::class::disk::{DISK, MD, set_zones};
use flysch_geom::{Class, GeomError, Graph, Kind, Outcome, ProviderId};
use flysch_rig::rig::{DiskLane, OpenRig, RigFile, Source};
use flysch_rig::{Needs, Stack, Target, blocks, did_you_mean};
use flysch_wire::mmc::ext_csd::partition;

use super::medium::{Complaint, Gone, ImageFile, OnRig, OnTarget, Writers};
use super::rebuild::{Beside, Rebuild};
use super::zns::{self, OnNamespace};
use crate::cam;
use crate::failure::Failure;
use crate::output::Output;

/// An image, as given.
#[derive(Clone, Debug)]
pub(super) struct Image {
    path: PathBuf,
    name: String,
    serial: String,
    sector: Option<String>,
}

impl FromStr for Image {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (mut path, mut name, mut serial, mut sector) = (text, None, None, None);
        // A comma may be part of a file name: only known keys are taken off its end.
        while let Some((rest, pair)) = path.rsplit_once(',') {
            match pair.split_once('=') {
                Some(("serial", value)) => serial = Some(value),
                Some(("sector", value)) => sector = Some(value),
                Some(("name", value)) => name = Some(value),
                _ => break,
            }
            path = rest;
        }
        let path = PathBuf::from(path);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let visible = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
        let name = visible(name.unwrap_or(&stem));
        let serial = visible(serial.unwrap_or(&stem));
        Ok(Self { path, name, serial, sector: sector.map(String::from) })
    }
}

impl Image {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Disks, as given.
#[derive(Debug, Default)]
pub(super) struct Disks<'a> {
    pub(super) images: &'a [Image],
    pub(super) targets: &'a [Target],
    pub(super) rigs: &'a [RigFile],
}

impl Disks<'_> {
    /// Whether any is.
    pub(super) fn are_given(&self) -> bool {
        !(self.images.is_empty() && self.targets.is_empty() && self.rigs.is_empty())
    }

    /// The files that hold their data, and the rigs.
    fn files(&self) -> Vec<PathBuf> {
        let images = self.images.iter().map(|image| image.path.as_path());
        let targets = self.targets.iter().filter_map(Target::file);
        let rigs = self.rigs.iter().flat_map(|rig| rig.images().chain([rig.path.as_path()]));
        images.chain(targets).chain(rigs).map(PathBuf::from).collect()
    }
}

/// A graph, and the owner of its disks.
pub(super) struct Session {
    pub(super) graph: Graph,
    /// The files that hold the data of its disks.
    pub(super) files: Vec<PathBuf>,
    /// Whether foreign data is overwritten.
    pub(super) force: bool,
    /// Whether verbs report what they did (`-v`).
    pub(super) verbose: bool,
    /// The folder that relative paths in verbs refer to; empty for the program's own.
    pub(super) base: PathBuf,
    stacks: Vec<Rc<RefCell<Stack>>>,
    pub(super) rigs: Vec<OpenRig>,
    /// The lanes of disks of rigs.
    pub(super) lanes: BTreeMap<ProviderId, Vec<DiskLane>>,
    /// Disks of rigs that reported their removal, and have not been handled yet.
    pub(super) gone: Gone,
    complaint: Complaint,
    writers: Writers,
    /// Rebuilds that run beside other requests, and who runs them.
    pub(super) rebuilds: Vec<Rebuild>,
    pub(super) beside: Beside,
    /// The time of their driver, nanoseconds.
    pub(super) now: u64,
}

/// FreeBSD's name for the disk of a target: its driver, as in `flysch devlist`, and for a card the
/// suffix after the number unless it is the user area.
fn driver_of(stack: &mut Stack) -> (&'static str, String) {
    if let Some(control) = stack.emmc() {
        let partition = match control.device().partition {
            partition::BOOT0 => "boot0".into(),
            partition::BOOT1 => "boot1".into(),
            number if number >= partition::GP1 => format!("gp{}", number - partition::GP1),
            _ => String::new(),
        };
        return ("sdda", partition);
    }
    let is_optical = matches!(stack, Stack::Cd(_) | Stack::CdQemu(_) | Stack::CdPci(_));
    let driver = match () {
        () if is_optical => "cd",
        () if stack.ahci().is_some() => "ada",
        () if stack.nvme().is_some() => "nda",
        () => "da",
    };
    (driver, String::new())
}

/// The number of the unit named by a target, if there may be several.
fn unit_of(target: &Target) -> Option<u64> {
    match target {
        Target::Ufs(it) => Some(it.lu.into()),
        Target::UfsPci(it) => Some(it.lu.into()),
        Target::Nvme(it) => Some(it.namespace.into()),
        Target::NvmeQemu(it) => Some(it.namespace.into()),
        Target::NvmePci(it) => Some(it.namespace.into()),
        _ => None,
    }
}

/// What to say where nothing was given to work on.
pub(super) const NO_DISKS: &str =
    "name images with -f FILE, targets with --on TARGET, or a rig with --rig FILE";

impl Session {
    pub(super) fn open(disks: &Disks<'_>, force: bool) -> Result<Self, Failure> {
        let mut this = Self::new(disks.rigs, force);
        this.files = disks.files();
        for image in disks.images {
            this.insert(image)?;
        }
        let mut units = BTreeMap::<&str, u32>::new();
        for target in disks.targets {
            let needs = Needs { memory: blocks::MEMORY, ..Needs::default() };
            let stack = Rc::new(RefCell::new(Stack::open(target, &needs)?));
            let (driver, partition) = driver_of(&mut stack.borrow_mut());
            let unit = units.entry(driver).or_default();
            let name = format!("{driver}{unit}{partition}");
            *unit += 1;
            let facts = cam::facts_of(&mut stack.borrow_mut(), unit_of(target));
            let medium = Box::new(OnTarget::new(&stack, facts));
            let inserted = DISK.insert(&mut this.graph, &name, medium);
            let disk = inserted.map_err(|error| this.failure(error))?;
            if zns::is_zoned(&mut stack.borrow_mut()) {
                let zones = Box::new(OnNamespace(Rc::clone(&stack)));
                set_zones(&mut this.graph, disk, zones);
            }
            this.stacks.push(stack);
        }
        for rig in disks.rigs {
            this.insert_rig(rig, &Needs { memory: 4096, ..Needs::default() }, false)?;
        }
        this.graph.settle();
        Ok(this)
    }

    /// Only the disks of a rig, with lanes.
    pub(super) fn open_lanes(rig: &RigFile, needs: &Needs) -> Result<Self, Failure> {
        let mut this = Self::new(std::slice::from_ref(rig), false);
        this.insert_rig(rig, needs, true)?;
        this.graph.settle();
        Ok(this)
    }

    /// A graph with the classes that `rigs` allow to taste.
    fn new(rigs: &[RigFile], force: bool) -> Self {
        let seed = RandomState::new().build_hasher().finish();
        let wanted = |class: &&'static dyn Class| {
            let named = |names: &Vec<String>| {
                names.iter().any(|name| name.eq_ignore_ascii_case(class.name()))
            };
            let all = rigs.iter().all(|rig| rig.taste.as_ref().is_none_or(named));
            all || matches!(class.name(), "DISK" | "MD")
        };
        let classes: Vec<&'static dyn Class> =
            flysch_geom::all().into_iter().filter(wanted).collect();
        let mut graph = Graph::new(&classes, seed);
        graph.set_clock(super::stats::clock);
        Self {
            graph,
            files: Vec::new(),
            force,
            verbose: false,
            base: PathBuf::new(),
            stacks: Vec::new(),
            rigs: Vec::new(),
            lanes: BTreeMap::new(),
            gone: Gone::default(),
            complaint: Complaint::default(),
            writers: Writers::default(),
            rebuilds: Vec::new(),
            beside: Beside::default(),
            now: 0,
        }
    }

    fn insert(&mut self, image: &Image) -> Result<(), Failure> {
        let sector = match &image.sector {
            None => 512,
            Some(text) => text
                .parse()
                .map_err(|_| Failure::usage(format!("`sector={text}` is not a number of bytes")))?,
        };
        self.insert_image(&image.path, &image.name, (image.serial.clone(), sector))
    }

    fn insert_image(
        &mut self,
        path: &Path,
        name: &str,
        facts: (String, u32),
    ) -> Result<(), Failure> {
        let file = ImageFile::open(path, facts, (&self.complaint, &self.writers))
            .map_err(|error| Failure::of(path.display(), error))?;
        let inserted = MD.insert(&mut self.graph, name, Box::new(file));
        inserted.map(drop).map_err(|error| self.not_inserted(error))
    }

    fn not_inserted(&self, error: GeomError) -> Failure {
        match error.kind {
            Kind::Exists => Failure::usage(format!("{error}; use `-f FILE,name=OTHER`")),
            _ => self.failure(error),
        }
    }

    fn insert_rig(&mut self, rig: &RigFile, needs: &Needs, lanes: bool) -> Result<(), Failure> {
        let mut open = OpenRig::open(rig, needs, lanes).map_err(Failure::failed)?;
        for disk in &mut open.disks {
            match std::mem::replace(&mut disk.source, Source::Lanes(Vec::new())) {
                Source::Image(path, sector) => {
                    self.insert_image(&path, &disk.name, (disk.serial.clone(), sector))?;
                }
                Source::Lanes(lanes) => {
                    let known = (disk.name.clone(), disk.serial.clone());
                    let medium = Box::new(OnRig::new(&lanes[0], known, Rc::clone(&self.gone)));
                    let inserted = DISK.insert(&mut self.graph, &disk.name, medium);
                    let provider = inserted.map_err(|error| self.not_inserted(error))?;
                    self.lanes.insert(provider, lanes);
                }
            }
        }
        self.rigs.push(open);
        Ok(())
    }

    /// The provider of this name.
    pub(super) fn provider(&self, name: &str) -> Result<ProviderId, Failure> {
        self.graph.provider(name).map_err(|error| {
            let names: Vec<&str> =
                self.graph.objects().providers().map(|(_, it)| &it.name[..]).collect();
            let hint = did_you_mean(name, &names);
            let hint = hint.trim_start_matches(", ");
            match hint {
                "" => self.failure(error),
                hint => Failure::failed(format!("{name}: there is no such provider, {hint}")),
            }
        })
    }

    /// Reports metadata that a class found but does not accept: it appears in no list.
    pub(super) fn note_refused(&self, class: &str, output: &Output) {
        for verdict in self.graph.record.verdicts().filter(|it| it.class == class) {
            if verdict.taste.outcome() == Outcome::Refused {
                let (name, why) = (&verdict.provider, &verdict.taste.reason().text);
                output.note(format!("{name}: not shown: {why}; `geom why {name}` tells more"));
            }
        }
    }

    /// With `-v`: a line about each provider, in the words of FreeBSD's tools.
    pub(super) fn tell(
        &self,
        what: &str,
        providers: &[String],
        output: &mut Output,
    ) -> Result<(), Failure> {
        let told = providers.iter().filter(|_| self.verbose && !output.json());
        let lines: Vec<String> = told.map(|name| format!("{what} {name}.")).collect();
        lines.into_iter().try_for_each(|line| output.line(line))
    }

    /// The failure for an error, with the system's message if that is its cause.
    pub(super) fn failure(&self, error: GeomError) -> Failure {
        let complaint = self.complaint.borrow_mut().take();
        let beneath = || self.rigs.iter().find_map(OpenRig::failure);
        match (error.kind, complaint.or_else(beneath)) {
            (Kind::Invalid, _) => Failure::usage(error),
            (Kind::NotFound, _) if self.is_empty() => {
                Failure::failed(format!("{error}; {NO_DISKS}"))
            }
            (Kind::Io(_), Some(complaint)) => Failure::of(error.object, complaint),
            _ => Failure::failed(error),
        }
    }

    /// Whether there is not one provider.
    pub(super) fn is_empty(&self) -> bool {
        self.graph.objects().providers().next().is_none()
    }

    /// Keeps files that were made for targets and rigs.
    pub(super) fn keep(&mut self) {
        self.stacks.iter().for_each(|stack| stack.borrow_mut().keep());
        self.rigs.iter_mut().for_each(OpenRig::keep);
    }
}

#[cfg(test)]
mod tests;
