//! The file of a rig.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flysch_bench::units::parse_time;
use toml::de::DeTable;

use super::reader::{FileError, Keys, Text};
use crate::target::{ClockKind, Target, did_you_mean};

/// Longest file, bytes: far beyond any real one.
const LENGTH_MAX: u64 = 1 << 20;
/// Maximum number of disks in a rig, counting each path.
const DISKS_MAX: usize = 256;

/// A controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// Its name.
    pub name: String,
    /// The target.
    pub target: Target,
    /// Its disks by their indices in [`RigFile::disks`], in the order of its ports, units or
    /// namespaces.
    pub disks: Vec<usize>,
}

/// A disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: Option<u64>,
    /// Where its data is stored.
    pub image: Option<PathBuf>,
    /// The target, if it has its own.
    pub target: Option<Target>,
    /// Bytes of a sector of an image without a controller.
    pub sector: u32,
    /// Its serial number.
    pub serial: String,
    /// The number of controllers that name it.
    pub paths: usize,
}

/// A provider on the disks, and how to create it if it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geom {
    /// The provider.
    pub name: String,
    /// Verbs of `flysch geom` that create it, and their line numbers.
    pub create: Vec<(usize, String)>,
}

/// An event while the rig is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When: nanoseconds of the rig's time after the first request.
    pub at: u64,
    /// Verbs of `flysch geom` to be executed then, and their line numbers.
    pub run: Vec<(usize, String)>,
}

/// Why the file of a rig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// It is longer than any rig.
    #[error("{}: has {length} bytes, but a rig can have at most {LENGTH_MAX}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
    },
    /// It is not UTF-8.
    #[error("{}: is not text, but a rig is TOML", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// Its text is wrong.
    #[error(transparent)]
    Wrong(#[from] FileError),
}

/// A rig as described by its file.
#[derive(Clone, Debug, PartialEq)]
pub struct RigFile {
    /// The file.
    pub path: PathBuf,
    /// The clock.
    pub clock: ClockKind,
    /// The classes that taste; `None` is all.
    pub taste: Option<Vec<String>>,
    /// Controllers.
    pub controllers: Vec<Controller>,
    /// Disks.
    pub disks: Vec<Disk>,
    /// What stands on them.
    pub geoms: Vec<Geom>,
    /// The events, earliest first.
    pub events: Vec<Event>,
}

const RIG_KEYS: &[&str] = &["clock", "taste", "controller", "disk", "geom", "event"];
const CONTROLLER_KEYS: &[&str] = &["name", "target", "disks", "faults", "seed"];
const DISK_KEYS: &[&str] = &["name", "size", "image", "target", "sector", "serial"];
const GEOM_KEYS: &[&str] = &["name", "create"];
const EVENT_KEYS: &[&str] = &["at", "run"];

impl RigFile {
    /// Whether the text was meant to name a rig.
    pub fn is_meant(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "toml")
    }

    /// `RIG:PROVIDER`, if this is one: the file and the provider. The provider may be omitted.
    pub fn split(text: &str) -> Option<(&str, &str)> {
        const END: &str = ".toml";
        if text.ends_with(END) {
            return Some((text, ""));
        }
        let at = text.find(".toml:")? + END.len();
        Some((&text[..at], &text[at + 1..]))
    }

    /// Reads a file. `classes` are the names that `taste` may contain.
    ///
    /// # Errors
    /// The error, in one line that names the file and, if there is one, the line.
    pub fn read(path: &Path, classes: &[&str]) -> Result<Self, ReadError> {
        let failed = |cause| ReadError::Unreadable { path: path.to_path_buf(), cause };
        let length = std::fs::metadata(path).map_err(failed)?.len();
        if length > LENGTH_MAX {
            return Err(ReadError::TooLong { path: path.to_path_buf(), length });
        }
        let text = std::fs::read(path).map_err(failed)?;
        // No cause: where the first byte is that is no text helps nobody.
        let text =
            String::from_utf8(text).map_err(|_| ReadError::NotText { path: path.to_path_buf() })?;
        Ok(Self::parse(path, &text, classes)?)
    }

    /// Reads the text of the file `path`.
    ///
    /// # Errors
    /// The error in it.
    pub fn parse(path: &Path, text: &str, classes: &[&str]) -> Result<Self, FileError> {
        let place = Text { path, text };
        let root = DeTable::parse(text).map_err(|error| {
            let message = error.message().lines().next().unwrap_or("is not TOML").to_string();
            place.wrong(&error.span().unwrap_or(0..0), None, message)
        })?;
        let keys = Keys::new(place, (root.get_ref(), root.span()), ("a rig", RIG_KEYS))?;
        let mut rig = Self {
            path: path.to_path_buf(),
            clock: clock(&keys)?,
            taste: taste(&keys, classes)?,
            controllers: Vec::new(),
            disks: Vec::new(),
            geoms: Vec::new(),
            events: Vec::new(),
        };
        for table in keys.tables("disk")? {
            let disk = rig.disk(&Keys::new(place, table, ("[[disk]]", DISK_KEYS))?)?;
            rig.disks.push(disk);
        }
        for table in keys.tables("controller")? {
            rig.controller(&Keys::new(place, table, ("[[controller]]", CONTROLLER_KEYS))?)?;
        }
        for table in keys.tables("disk")?.into_iter().zip(&rig.disks) {
            check(&Keys::new(place, table.0, ("[[disk]]", DISK_KEYS))?, table.1)?;
        }
        for table in keys.tables("geom")? {
            let keys = Keys::new(place, table, ("[[geom]]", GEOM_KEYS))?;
            let name = keys.need("name", keys.string("name")?)?;
            let create = keys.need("create", keys.strings("create")?)?;
            rig.geoms.push(Geom { name, create });
        }
        for table in keys.tables("event")? {
            let event = event(&Keys::new(place, table, ("[[event]]", EVENT_KEYS))?)?;
            rig.events.push(event);
        }
        // Those of one time happen in the order of the file.
        rig.events.sort_by_key(|event| event.at);
        let paths: usize = rig.disks.iter().map(|disk| disk.paths.max(1)).sum();
        // What a [[geom]] makes may bring its own content, as a gate does.
        if paths == 0 && rig.geoms.is_empty() || paths > DISKS_MAX {
            let cause = match paths {
                0 => "has no disks: name some by [[controller]] or [[disk]], or have a [[geom]] \
                      make one by `gate create`"
                    .to_string(),
                many => format!("has {many} disks, but {DISKS_MAX} is the most"),
            };
            return Err(place.wrong(&(0..0), None, cause));
        }
        Ok(rig)
    }

    /// Uses another clock.
    pub fn set_clock(&mut self, clock: ClockKind) {
        self.clock = clock;
        let controllers = self.controllers.iter_mut().map(|it| &mut it.target);
        let disks = self.disks.iter_mut().filter_map(|disk| disk.target.as_mut());
        controllers.chain(disks).for_each(|target| set_clock(target, clock));
    }

    /// The files that hold the data of its disks.
    pub fn images(&self) -> impl Iterator<Item = &Path> {
        let own = self.disks.iter().filter_map(|disk| disk.image.as_deref());
        own.chain(self.disks.iter().filter_map(|disk| disk.target.as_ref()?.file()))
    }

    /// A path beside the rig's file.
    fn beside(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    fn disk(&self, keys: &Keys<'_, '_>) -> Result<Disk, FileError> {
        let name = name(keys)?;
        if self.disks.iter().any(|disk| disk.name == name) {
            return Err(keys.wrong("name", format!("disk `{name}` already exists")));
        }
        let sector = keys.size("sector")?.unwrap_or(512);
        let sector = u32::try_from(sector).ok().filter(|bytes| matches!(bytes, 512 | 4096));
        let sector = sector.ok_or_else(|| keys.wrong("sector", "must be 512 or 4096"))?;
        let target = keys.string("target")?.map(|text| target(keys, &text, self.clock));
        Ok(Disk {
            size: keys.size("size")?,
            image: keys.string("image")?.map(|image| self.beside(&image)),
            target: target.transpose()?,
            sector,
            serial: keys.string("serial")?.unwrap_or_else(|| name.clone()),
            paths: 0,
            name,
        })
    }

    fn controller(&mut self, keys: &Keys<'_, '_>) -> Result<(), FileError> {
        let name = name(keys)?;
        if self.controllers.iter().any(|known| known.name == name) {
            return Err(keys.wrong("name", format!("controller `{name}` already exists")));
        }
        let mut text = keys.need("target", keys.string("target")?)?;
        if let Some(faults) = keys.string("faults")? {
            text.push_str(&format!(",faults={}", faults.replace(',', "+")));
        }
        if let Some(seed) = keys.get("seed") {
            text.push_str(&format!(",seed={}", seed_of(seed).unwrap_or_default()));
        }
        let target = target(keys, &text, self.clock)?;
        let names = keys.need("disks", keys.strings("disks")?)?;
        let most = most_disks(&target).ok_or_else(|| {
            let cause = "is not a modelled controller; give it as `target` of a [[disk]]";
            keys.wrong("target", cause)
        })?;
        if names.is_empty() || names.len() > most {
            let cause = format!("has {} disks; it takes 1 to {most}", names.len());
            return Err(keys.wrong("disks", cause));
        }
        let mut disks = Vec::new();
        for (_, name) in names {
            let at = self.disks.iter().position(|disk| disk.name == name);
            let at = at.unwrap_or_else(|| {
                self.disks.push(Disk {
                    serial: name.clone(),
                    name,
                    size: None,
                    image: None,
                    target: None,
                    sector: 512,
                    paths: 0,
                });
                self.disks.len() - 1
            });
            if disks.contains(&at) {
                let cause = format!("names `{}` twice", self.disks[at].name);
                return Err(keys.wrong("disks", cause));
            }
            self.disks[at].paths += 1;
            disks.push(at);
        }
        self.controllers.push(Controller { name, target, disks });
        Ok(())
    }
}

/// Checks that require all controllers.
fn check(keys: &Keys<'_, '_>, disk: &Disk) -> Result<(), FileError> {
    let wrong = |key: &str, cause: &str| Err(keys.wrong(key, cause));
    match disk.paths {
        0 if disk.target.is_none() && disk.image.is_none() => {
            wrong("name", "no controller has this disk; give it an `image` or a `target`")
        }
        0 if disk.target.is_some() && (disk.image.is_some() || disk.size.is_some()) => {
            wrong("target", "already gives the disk's size and where its data lies")
        }
        0 => Ok(()),
        _ if disk.target.is_some() => wrong("target", "the disk is already at a controller"),
        _ if keys.get("sector").is_some() => {
            wrong("sector", "is set by its controller: use `block=` of the target")
        }
        _ => Ok(()),
    }
}

fn event(keys: &Keys<'_, '_>) -> Result<Event, FileError> {
    let at = keys.need("at", keys.string("at")?)?;
    let time = parse_time(&at, Duration::from_secs(1)).ok();
    let nanos = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
    let cause = "must be a time such as \"250ms\", \"2s\" or \"90us\"";
    let at = nanos.ok_or_else(|| keys.wrong("at", cause))?;
    Ok(Event { at, run: keys.need("run", keys.strings("run")?)? })
}

fn name(keys: &Keys<'_, '_>) -> Result<String, FileError> {
    let name = keys.need("name", keys.string("name")?)?;
    match name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        true => Err(keys.wrong("name", "must not contain `/`, `:` or spaces")),
        false => Ok(name),
    }
}

fn clock(keys: &Keys<'_, '_>) -> Result<ClockKind, FileError> {
    match keys.string("clock")?.as_deref() {
        None => Ok(ClockKind::default()),
        Some("virtual") => Ok(ClockKind::Virtual),
        Some("hybrid") => Ok(ClockKind::Hybrid),
        Some(_) => Err(keys.wrong("clock", "must be \"virtual\" or \"hybrid\"")),
    }
}

fn taste(keys: &Keys<'_, '_>, classes: &[&str]) -> Result<Option<Vec<String>>, FileError> {
    let Some(names) = keys.strings("taste")? else { return Ok(None) };
    for (_, name) in &names {
        if !classes.iter().any(|class| class.eq_ignore_ascii_case(name)) {
            let classes: Vec<String> = classes.iter().map(|c| c.to_lowercase()).collect();
            let known: Vec<&str> = classes.iter().map(String::as_str).collect();
            let (hint, all) = (did_you_mean(name, &known), known.join(", "));
            let cause = format!("there is no class `{name}`{hint}; classes are {all}");
            return Err(keys.wrong("taste", cause));
        }
    }
    Ok(Some(names.into_iter().map(|(_, name)| name).collect()))
}

fn seed_of(value: &super::reader::Value<'_>) -> Option<String> {
    match value.get_ref() {
        toml::de::DeValue::Integer(number) => Some(number.as_str().to_string()),
        _ => None,
    }
}

fn set_clock(target: &mut Target, clock: ClockKind) {
    match target {
        Target::Ufs(ufs) => ufs.clock = clock,
        Target::Nvme(nvme) => nvme.clock = clock,
        Target::Ahci(ahci) => ahci.clock = clock,
        Target::Emmc(emmc) => emmc.clock = clock,
        _ => {}
    }
}

/// A target with the rig's clock.
fn target(keys: &Keys<'_, '_>, text: &str, clock: ClockKind) -> Result<Target, FileError> {
    let mut target: Target = text.parse().map_err(|error| keys.wrong("target", error))?;
    set_clock(&mut target, clock);
    let image = match &target {
        Target::Ufs(ufs) if ufs.rules != Default::default() => {
            let cause = "`suspend` and `scaling` are only for targets, not for rigs";
            return Err(keys.wrong("target", cause));
        }
        Target::Ufs(ufs) => &ufs.image,
        Target::Nvme(nvme) => &nvme.image,
        Target::Ahci(ahci) => &ahci.image,
        Target::Emmc(emmc) => &emmc.image,
        _ => &None,
    };
    if image.is_some() && keys.get("disks").is_some() {
        let cause = "`image=` belongs to a disk: give `image` in its [[disk]]";
        return Err(keys.wrong("target", cause));
    }
    Ok(target)
}

/// The maximum number of disks of a modelled controller.
fn most_disks(target: &Target) -> Option<usize> {
    match target {
        Target::Ufs(_) => Some(31),
        Target::Nvme(_) => Some(31),
        Target::Ahci(_) => Some(32),
        Target::Emmc(_) => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
