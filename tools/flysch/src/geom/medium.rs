//! What the disks of a graph lie on: image files and targets.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flysch_api::block::{BlockError, BlockGeometry, Cause};
use flysch_geom::{Medium, Shape};
use flysch_rig::Stack;
use flysch_rig::blocks::{Blocks, BlocksError};
use flysch_rig::rig::{Control, DiskLane};

use super::zns;
use crate::cam::DiskFacts;

/// The system's last error message about any medium: the device itself could only report an error
/// of its own.
pub(super) type Complaint = Rc<RefCell<Option<String>>>;

/// The names of disks that reported their removal.
pub(super) type Gone = Rc<RefCell<Vec<String>>>;

/// The files open for writing, by device and inode: a file that was named twice, as several paths
/// lead to one disk, is locked once.
pub(super) type Writers = Rc<RefCell<BTreeMap<(u64, u64), Rc<File>>>>;

/// An image file, opened read-only until the first write.
pub(super) struct ImageFile {
    path: PathBuf,
    file: Rc<File>,
    writable: bool,
    size: u64,
    sector: u32,
    serial: String,
    complaint: Complaint,
    writers: Writers,
}

impl std::fmt::Debug for ImageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut this = f.debug_struct("ImageFile");
        this.field("path", &self.path).field("size", &self.size).finish_non_exhaustive()
    }
}

impl ImageFile {
    /// Opens the file for reading.
    pub(super) fn open(
        path: &Path,
        (serial, sector): (String, u32),
        (complaint, writers): (&Complaint, &Writers),
    ) -> io::Result<Self> {
        let mut file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Of block devices only seeking tells the size.
        let size = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        if size < u64::from(sector) && (512..=65536).contains(&sector) {
            let is = if size == 0 { "is empty".into() } else { format!("has {size} bytes") };
            let what = format!(
                "{is}, less than a sector of {sector} bytes; `truncate -s SIZE` gives it a size"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let (complaint, writers) = (Rc::clone(complaint), Rc::clone(writers));
        let (path, file) = (path.to_path_buf(), Rc::new(file));
        Ok(Self { path, file, writable: false, size, sector, serial, complaint, writers })
    }

    /// The first write opens the file for writing and locks it.
    fn open_for_writing(&mut self) -> Result<(), BlockError> {
        if self.writable {
            return Ok(());
        }
        let opened = File::options().read(true).write(true).open(&self.path);
        let file = opened.map_err(|error| {
            self.fail(&error);
            BlockError::WriteProtected
        })?;
        let metadata = file.metadata().map_err(|error| self.fail(&error))?;
        let key = (metadata.dev(), metadata.ino());
        let known = self.writers.borrow().get(&key).cloned();
        let file = match known {
            Some(file) => file,
            None => {
                if let Err(std::fs::TryLockError::WouldBlock) = file.try_lock() {
                    let kind = io::ErrorKind::ResourceBusy;
                    return Err(self.fail(&io::Error::new(kind, "somebody else has it open")));
                }
                let file = Rc::new(file);
                self.writers.borrow_mut().insert(key, Rc::clone(&file));
                file
            }
        };
        (self.file, self.writable) = (file, true);
        Ok(())
    }

    fn fail(&self, error: &io::Error) -> BlockError {
        *self.complaint.borrow_mut() = Some(format!("{}: {error}", self.path.display()));
        BlockError::Medium(Cause::None)
    }
}

impl Medium for ImageFile {
    fn shape(&self) -> Shape {
        let (media_size, sector_size) = (self.size, self.sector);
        Shape { media_size, sector_size, stripe_size: 0, stripe_offset: 0 }
    }

    fn open(&mut self, writes: bool) -> Result<(), BlockError> {
        let may = || rustix::fs::access(&self.path, rustix::fs::Access::WRITE_OK).is_ok();
        if !writes || self.writable || may() { Ok(()) } else { Err(BlockError::WriteProtected) }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlockError> {
        self.file.read_exact_at(to, offset).map_err(|error| self.fail(&error))
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlockError> {
        self.open_for_writing()?;
        self.file.write_all_at(from, offset).map_err(|error| self.fail(&error))
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        if !self.writable {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| self.fail(&error))
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        vec![
            ("type", "vnode".into()),
            ("file", self.path.display().to_string()),
            ("ident", self.serial.clone()),
        ]
    }
}

/// A disk of a rig.
#[derive(Debug)]
pub(super) struct OnRig {
    control: Control,
    description: String,
    name: String,
    serial: String,
    gone: Gone,
}

impl OnRig {
    /// The disk of a lane, its name and serial number, and where it reports its removal.
    pub(super) fn new(lane: &DiskLane, (name, serial): (String, String), gone: Gone) -> Self {
        Self { control: lane.control(), description: lane.description(), name, serial, gone }
    }

    /// The result of a request.
    fn told(&self, result: Result<(), BlocksError>) -> Result<(), BlockError> {
        result.map_err(|BlocksError { error, .. }| {
            let mut gone = self.gone.borrow_mut();
            if error == BlockError::Gone && !gone.contains(&self.name) {
                gone.push(self.name.clone());
            }
            error
        })
    }
}

impl Medium for OnRig {
    fn shape(&self) -> Shape {
        let geometry = self.control.geometry();
        Shape {
            media_size: geometry.bytes(),
            sector_size: geometry.block_size,
            stripe_size: 0,
            stripe_offset: 0,
        }
    }

    fn open(&mut self, writes: bool) -> Result<(), BlockError> {
        let read_only = self.control.geometry().read_only;
        if writes && read_only { Err(BlockError::WriteProtected) } else { Ok(()) }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlockError> {
        let read = self.control.read(offset, to);
        self.told(read)
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlockError> {
        let written = self.control.write(offset, from);
        self.told(written)
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        let flushed = self.control.flush();
        self.told(flushed)
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        vec![("descr", self.description.clone()), ("ident", self.serial.clone())]
    }
}

/// A target.
pub(super) struct OnTarget {
    stack: Rc<RefCell<Stack>>,
    geometry: BlockGeometry,
    description: String,
    facts: DiskFacts,
}

impl std::fmt::Debug for OnTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut this = f.debug_struct("OnTarget");
        this.field("description", &self.description).finish_non_exhaustive()
    }
}

impl OnTarget {
    pub(super) fn new(stack: &Rc<RefCell<Stack>>, facts: DiskFacts) -> Self {
        let opened = stack.borrow();
        let (geometry, description) = (opened.geometry(), opened.description().to_string());
        Self { stack: Rc::clone(stack), geometry, description, facts }
    }
}

impl Medium for OnTarget {
    fn shape(&self) -> Shape {
        Shape {
            media_size: self.geometry.bytes(),
            sector_size: self.geometry.block_size,
            stripe_size: 0,
            stripe_offset: 0,
        }
    }

    fn open(&mut self, writes: bool) -> Result<(), BlockError> {
        // Zones are managed by whoever writes; blocks of such a disk stay write protected.
        let is_zoned = || zns::is_zoned(&mut self.stack.borrow_mut());
        let is_refused = writes && self.geometry.read_only && !is_zoned();
        if is_refused { Err(BlockError::WriteProtected) } else { Ok(()) }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlockError> {
        self.stack.borrow_mut().blocks().read(offset, to).map_err(|error| error.error)
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlockError> {
        self.stack.borrow_mut().blocks().write(offset, from).map_err(|error| error.error)
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        self.stack.borrow_mut().blocks().flush().map_err(|error| error.error)
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![("descr", self.description.clone())];
        all.extend(self.facts.properties());
        all
    }
}
