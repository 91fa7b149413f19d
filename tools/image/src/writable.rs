//! Opening a file system in an image so that it can be changed.
//!
//! What an image needs for that is room: erase blocks that are free. A dump of a whole flash has
//! them; an image made to be flashed ends behind its content. Such a file gets more erased blocks
//! at its end, as many as the flash has or as the changes will need.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use flysch_api::flash::{Flash, FlashMut, Geometry};
use flysch_api::vfs::{FileSystem, FileSystemMut};
use flysch_linux::{Access, MtdDevice};
use flysch_mtd::detect::Content;
use flysch_mtd::{Dump, Image as PlainImage, Partition, Storage};
use flysch_ubi::{Device, DeviceOptions, Offsets};
use flysch_ubifs::UbifsMut;
use flysch_wire::ubi::VolumeFlags;

use crate::open::{Contents, Image, Part, Volume};
use crate::storage::{FileStorage, Window};

/// A file system that one at a time changes.
pub type SharedMut = Arc<RwLock<dyn FileSystemMut + Send + Sync>>;
/// Blocks that UBI needs beside its volumes' to work with.
pub(crate) const UBI_SPARE: u64 = 8;
/// Linux's default (`CONFIG_MTD_UBI_BEB_LIMIT`).
const BAD_PER_1024: u32 = 20;

pub(crate) type AnyFlash = Box<dyn FlashMut + Send + Sync>;

/// How much room changes will need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Bytes of the flash that the image is for, if it is larger than the image.
    pub flash_size: Option<u64>,
    /// Bytes that will be put into it, about: a file without `flash_size` grows as they need, and
    /// not at all without them.
    pub bytes: Option<u64>,
}

/// Why a file system could not be opened for changing.
#[derive(Debug, thiserror::Error)]
pub enum WritableError {
    /// The image file.
    #[error("cannot be written: {0}")]
    File(#[from] std::io::Error),
    /// The flash in it.
    #[error("cannot be written: {0}")]
    Flash(#[from] flysch_api::flash::Error),
    /// The device it is.
    #[error("{0}")]
    Device(#[from] flysch_linux::OpenError),
    /// The file system, its volume or its UBI device.
    #[error("{0}")]
    Format(String),
    /// UBI lacks free blocks.
    #[error("{0}: it was made for a larger flash, whose size is needed (--flash-size)")]
    NoRoom(String),
    /// What it holds is no file system.
    #[error("there is no file system in it")]
    NoFileSystem,
}

fn format(error: impl std::fmt::Display) -> WritableError {
    WritableError::Format(error.to_string())
}

/// A file system opened for changing.
pub struct Writable {
    fs: SharedMut,
    close: Box<dyn FnOnce() -> Result<(), WritableError>>,
}

impl std::fmt::Debug for Writable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}

impl Writable {
    /// A file system, and how it comes to rest.
    fn new<T: FileSystemMut + Send + Sync + 'static>(
        fs: T,
        close: impl FnOnce(T) -> Result<(), WritableError> + 'static,
    ) -> Self {
        let fs = Arc::new(RwLock::new(fs));
        let own = fs.clone();
        let close = Box::new(move || match Arc::try_unwrap(own) {
            Ok(fs) => close(fs.into_inner().map_err(|_| format("a change was left half done"))?),
            // Somebody is still in it: what was synced is safe.
            Err(_) => Ok(()),
        });
        Self { fs, close }
    }

    /// The file system.
    pub fn file_system(&self) -> SharedMut {
        self.fs.clone()
    }

    /// Writes everything and leaves the file system as an unmount would. Whoever else still has it
    /// keeps it; then it is left as after a power cut.
    ///
    /// # Errors
    /// When not everything could be written.
    pub fn close(self) -> Result<(), WritableError> {
        let Self { fs, close } = self;
        drop(fs);
        close()
    }
}

impl Image {
    /// Opens one of the image's volumes for changing; `self` told where it is.
    ///
    /// # Errors
    /// When the image can not be written, or the file system says why it must not be.
    pub fn open_writable(&self, volume: &Volume, room: &Room) -> Result<Writable, WritableError> {
        let holds = |part: &&Part| part.volumes.iter().any(|other| std::ptr::eq(other, volume));
        let part = self.parts.iter().find(holds).ok_or(WritableError::NoFileSystem)?;
        match (part.region.content, volume.id) {
            (Content::Ubi { .. }, Some(id)) => self.open_ubi_volume(part, id, room),
            _ => Err(WritableError::NoFileSystem),
        }
    }

    fn open_ubi_volume(
        &self,
        part: &Part,
        id: u32,
        room: &Room,
    ) -> Result<Writable, WritableError> {
        let device = part.devices.iter().find(|device| device.volume(id).is_some());
        let device = device.ok_or(WritableError::NoFileSystem)?;
        if part.devices.len() > 1 {
            return Err(format("several UBI images lie behind each other: edit them one by one"));
        }
        let info = device.volumes().iter().find(|info| info.id == id);
        let info = info.ok_or(WritableError::NoFileSystem)?;
        let Some(Contents::Ubifs(fs)) =
            part.volumes.iter().find(|volume| volume.id == Some(id)).map(|volume| &volume.contents)
        else {
            return Err(format("only UBIFS can be changed in a UBI volume"));
        };
        let lebs = missing_lebs(&**fs, room, info.leb_size);
        // Blocks that must be there: all volumes in full, UBI's own, some to work with.
        let reserved: u64 = device.volumes().iter().map(|info| u64::from(info.reserved_pebs)).sum();
        let wanted = reserved + u64::from(lebs) + UBI_SPARE;
        let there = u64::from(device.image().pebs);
        let geometry = geometry(part, fs.superblock().min_io_size, device.offsets());
        let flash = self.open_flash(part, geometry, room, wanted.saturating_sub(there))?;
        let options = DeviceOptions {
            // On its flash the volume takes the space it asks for; a file stays what it is.
            autoresize: self.device.is_some() || room.flash_size.is_some(),
            // Blocks that go bad are the flash's affair, not the file's.
            bad_per_1024: if self.device.is_some() { BAD_PER_1024 } else { 0 },
            ..DeviceOptions::default()
        };
        let mut device = Device::attach(flash, &options).map_err(|error| match error {
            flysch_ubi::Error::NoSpace { .. } => WritableError::NoRoom(error.to_string()),
            other => format(other),
        })?;
        let more = device.account().available.min(lebs);
        if info.flags.contains(VolumeFlags::AUTORESIZE) && !options.autoresize && more > 0 {
            device.resize(id, info.reserved_pebs + more).map_err(format)?;
        }
        let fs = UbifsMut::open(device.into_volume(id).map_err(format)?).map_err(format)?;
        let trim = self.trim(part, room);
        Ok(Writable::new(fs, move |fs| {
            let volume = fs.close().map_err(format)?;
            volume.into_device().detach().map_err(format)?;
            trim.map_or(Ok(()), Trim::run)
        }))
    }

    /// What to cut off in the end of what `open_flash` adds; nothing if the user named a size.
    pub(crate) fn trim(&self, part: &Part, room: &Room) -> Option<Trim> {
        let is_plain = self.device.is_none() && self.page_format.is_none();
        (is_plain && room.flash_size.is_none()).then(|| Trim {
            path: self.path.clone(),
            start: part.region.range.start + self.offset,
            end: self.size,
            block: part.region.geometry.erase_size.into(),
        })
    }

    /// The flash of one part, for changing; `more` erased blocks are added to a file.
    pub(crate) fn open_flash(
        &self,
        part: &Part,
        geometry: Geometry,
        room: &Room,
        more: u64,
    ) -> Result<AnyFlash, WritableError> {
        if self.device.is_some() {
            let device = MtdDevice::open(&self.path, Access::Write)?;
            let whole = *device.geometry();
            let first = whole.block_of(part.region.range.start);
            return Ok(Box::new(Partition::new(device, first, geometry.blocks())?));
        }
        let page = self.page_format.as_ref().map(|format| (format.page_size, format.oob.size));
        let stored = |bytes: u64| match page {
            Some((page, oob)) => bytes.div_ceil(page.into()) * (u64::from(page) + oob as u64),
            None => bytes,
        };
        let mut storage = FileStorage::open_writable(&self.path)?;
        let start = stored(part.region.range.start) + self.offset;
        let old = storage.size();
        let is_last = start + stored(part.region.range.end - part.region.range.start) >= old;
        let block = stored(geometry.erase_size.into());
        let len = match room.flash_size {
            _ if !is_last => stored(part.region.range.end - part.region.range.start),
            Some(size) => stored(size).max(old - start),
            None if room.bytes.is_none() => old - start,
            None => (old - start).next_multiple_of(block) + more * block,
        };
        storage.grow(start + len)?;
        let window = Window { storage, start, len };
        match &self.page_format {
            None => Ok(Box::new(PlainImage::new(window, geometry))),
            Some(format) => Ok(Box::new(Dump::new(window, format.clone(), geometry.erase_size)?)),
        }
    }
}

/// LEBs that a file system lacks for what will be put into it.
fn missing_lebs(fs: &dyn FileSystem, room: &Room, leb_size: u32) -> u32 {
    /// What UBIFS keeps for itself of a small volume: index, garbage collection, journal heads.
    const RESERVE: u64 = 8;
    let Some(bytes) = room.bytes else { return 0 };
    let statistics = fs.statistics();
    let free = statistics.blocks_free.saturating_mul(statistics.block_size.into());
    // Headers and the index need some more than the content.
    let wanted = bytes.saturating_mul(5) / 4;
    if wanted <= free && free > 0 {
        return 0;
    }
    let lebs = (wanted - wanted.min(free)).div_ceil(leb_size.max(1).into()) + RESERVE;
    u32::try_from(lebs).unwrap_or(u32::MAX)
}

/// The flash as the file system on it must have seen it: the file itself does not tell its pages.
pub(crate) fn geometry(part: &Part, unit: u32, offsets: Offsets) -> Geometry {
    /// UBIFS takes flash that is written by single bytes for this.
    const UNIT_MIN: u32 = 8;
    let found = part.region.geometry;
    if unit <= UNIT_MIN {
        return Geometry::nor(found.size, found.erase_size);
    }
    // Sub-pages are known from the VID header, which begins with one.
    let sub_page_size = unit.min(1 << offsets.vid_header.trailing_zeros().min(31));
    Geometry { write_size: unit, sub_page_size, ..found }
}

/// Erased blocks to be cut off the end of a file.
pub(crate) struct Trim {
    path: PathBuf,
    /// Where the blocks begin.
    start: u64,
    /// Nothing before this is cut off.
    end: u64,
    /// Bytes of a block.
    block: u64,
}

impl Trim {
    /// Bytes at the start of a block that say no more than that it is erased: UBI's EC header,
    /// JFFS2's clean marker.
    const MARK: usize = 64;

    pub(crate) fn run(self) -> Result<(), WritableError> {
        let file = std::fs::File::options().read(true).write(true).open(&self.path)?;
        let mut end = file.metadata()?.len();
        let mut block = vec![0; self.block as usize];
        while end >= self.end + self.block && (end - self.start).is_multiple_of(self.block) {
            file.read_exact_at(&mut block, end - self.block)?;
            if block[Self::MARK.min(block.len())..].iter().any(|&byte| byte != 0xFF) {
                break;
            }
            end -= self.block;
        }
        file.set_len(end)?;
        Ok(file.sync_all()?)
    }
}
