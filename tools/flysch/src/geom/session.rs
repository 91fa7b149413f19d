//! A graph over the disks that were named.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

use flysch_geom::class::disk::{DISK, MD};
use flysch_geom::{Error, Graph, Kind};
use flysch_rig::{Needs, Stack, Target, blocks};

use super::medium::{Complaint, ImageFile, OnTarget, Writers};
use crate::failure::Failure;

/// An image, as it was named.
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

/// A graph, and what keeps its disks.
pub(super) struct Session {
    pub(super) graph: Graph,
    /// Whether what belongs to others is written over.
    pub(super) force: bool,
    stacks: Vec<Rc<RefCell<Stack>>>,
    complaint: Complaint,
    writers: Writers,
}

impl Session {
    pub(super) fn open(images: &[Image], targets: &[Target], force: bool) -> Result<Self, Failure> {
        let seed = RandomState::new().build_hasher().finish();
        let graph = Graph::new(&flysch_geom::all(), seed);
        let (complaint, writers) = (Complaint::default(), Writers::default());
        let mut this = Self { graph, force, stacks: Vec::new(), complaint, writers };
        for image in images {
            this.insert(image)?;
        }
        let mut units = [0, 0];
        for target in targets {
            let needs = Needs { memory: blocks::MEMORY, ..Needs::default() };
            let stack = Rc::new(RefCell::new(Stack::open(target, &needs)?));
            let is_nvme = stack.borrow_mut().nvme().is_some();
            let unit = &mut units[usize::from(is_nvme)];
            let name = format!("{}{unit}", if is_nvme { "nda" } else { "da" });
            *unit += 1;
            let medium = Box::new(OnTarget::new(&stack));
            DISK.insert(&mut this.graph, &name, medium).map_err(|error| this.failure(error))?;
            this.stacks.push(stack);
        }
        this.graph.settle();
        Ok(this)
    }

    fn insert(&mut self, image: &Image) -> Result<(), Failure> {
        let sector = match &image.sector {
            None => 512,
            Some(text) => text
                .parse()
                .map_err(|_| Failure::usage(format!("`sector={text}` is no number of bytes")))?,
        };
        let facts = (image.serial.clone(), sector);
        let file = ImageFile::open(&image.path, facts, (&self.complaint, &self.writers))
            .map_err(|error| Failure::of(image.path.display(), error))?;
        let inserted = MD.insert(&mut self.graph, &image.name, Box::new(file));
        inserted.map(drop).map_err(|error| match error.kind {
            Kind::Exists => Failure::usage(format!("{error}; say `-f FILE,name=OTHER`")),
            _ => self.failure(error),
        })
    }

    /// The failure that an error is, with what the system said, if that is what is behind it.
    pub(super) fn failure(&self, error: Error) -> Failure {
        let complaint = self.complaint.borrow_mut().take();
        match (error.kind, complaint) {
            (Kind::NotFound | Kind::Invalid, _) => Failure::usage(error),
            (Kind::Io(_), Some(complaint)) => Failure::of(error.object, complaint),
            _ => Failure::failed(error),
        }
    }

    /// Keeps files that were made for targets.
    pub(super) fn keep(&mut self) {
        self.stacks.iter().for_each(|stack| stack.borrow_mut().keep());
    }
}
