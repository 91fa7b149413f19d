//! Opens a file system in an image for modification.
//!
//! This requires space in the image: free erase blocks. A dump of a whole flash has them; an image
//! made for flashing ends behind its content. Such a file gets more erased blocks at its end, as
//! many as the flash has or as the changes will need.

mod bare;
mod flash;

use std::sync::{Arc, RwLock};

use flysch_api::flash::{FlashGeometry, FlashMut, Kind};
use flysch_api::vfs::{FileSystem, FileSystemMut};
use flysch_api::volume::VolumeMut;
use flysch_jffs2::{Jffs2, Jffs2Mut, WriteOptions};
use flysch_mtd::detect::Content;
use flysch_ubi::{DeviceOptions, DeviceVolume, Gluebi, Offsets, UbiDevice};
use flysch_ubifs::{FlatImage, Keys, Ubifs, UbifsMut};
use flysch_wire::jffs2::ByteOrder;
use flysch_wire::ubi::VolumeFlags;

use self::bare::BareVolume;
pub(crate) use self::flash::{AnyFlash, Trim};
use crate::lock::{Exclusive, Lock};
use crate::open::{Contents, Image, ImageVolume, Part, SharedFlash, SharedVolume};

/// A UBI device open for modification.
pub(crate) type AnyUbiDevice<'a> = UbiDevice<AnyFlash<'a>>;
type UbiVolumeMut = DeviceVolume<AnyUbiDevice<'static>, AnyFlash<'static>>;

/// The volume or flash that a file system owns, and leaves as an unmount would: of one type
/// whatever it is, so that each file system is compiled once.
pub(crate) trait Rest {
    /// Nothing has to be done afterwards.
    fn rest(self: Box<Self>) -> Result<(), WritableError> {
        Ok(())
    }
}

/// Logical erase blocks for a UBIFS.
pub(crate) trait RestingVolume: VolumeMut + Rest + Send + Sync {}
impl<V: VolumeMut + Rest + Send + Sync> RestingVolume for V {}
pub(crate) type OwnVolume = Box<dyn RestingVolume>;

/// Flash for a JFFS2.
pub(crate) trait RestingFlash: FlashMut + Rest + Send + Sync {}
impl<F: FlashMut + Rest + Send + Sync> RestingFlash for F {}
pub(crate) type OwnFlash = Box<dyn RestingFlash>;

impl Rest for UbiVolumeMut {
    fn rest(self: Box<Self>) -> Result<(), WritableError> {
        self.into_device().detach().map(drop).map_err(format)
    }
}

impl Rest for Gluebi<UbiVolumeMut> {
    fn rest(self: Box<Self>) -> Result<(), WritableError> {
        Box::new(self.into_volume()).rest()
    }
}

impl Rest for AnyFlash<'_> {}
impl Rest for FlatImage<AnyFlash<'_>> {}
impl Rest for BareVolume<AnyFlash<'_>> {}
/// A file system modified by one user at a time.
pub type SharedMut = Arc<RwLock<dyn FileSystemMut + Send + Sync>>;
/// Blocks that UBI needs for its work in addition to its volumes.
pub(crate) const UBI_SPARE: u64 = 8;
/// Blocks that JFFS2 needs to collect garbage and to write at all, on a small flash.
const JFFS2_SPARE: u64 = 10;
/// Linux's default (`CONFIG_MTD_UBI_BEB_LIMIT`).
const BAD_PER_1024: u32 = 20;

/// The space that changes will need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Size of the flash that the image is for, if it is larger than the image.
    pub flash_size: Option<u64>,
    /// The approximate number of bytes to be added: a file without `flash_size` grows as they
    /// require, and not at all without them.
    pub bytes: Option<u64>,
}

impl Room {
    /// The room for attempt `attempt`, counted from 1, of changes that did not fit, on a copy of
    /// the image, which has `size` bytes. What changes take cannot be known: whoever removes or
    /// rewrites many small files needs space for what the journal and the index write anew. `None`
    /// if the user gave the size of the flash, or the image has become many times as large.
    #[must_use]
    pub fn for_attempt(&self, attempt: u32, size: u64) -> Option<Self> {
        /// The last attempt.
        const ATTEMPTS: u32 = 6;
        let bytes = self.bytes.filter(|_| self.flash_size.is_none() && attempt <= ATTEMPTS)?;
        let more = (size / 8).max(1 << 20) << attempt.saturating_sub(1);
        Some(Self { bytes: Some(bytes.saturating_add(more)), ..*self })
    }
}

/// Why a file system could not be opened for modification.
#[derive(Debug, thiserror::Error)]
pub enum WritableError {
    /// The image file.
    #[error("cannot be written: {0}")]
    File(#[from] std::io::Error),
    /// The flash in it.
    #[error("cannot be written: {0}")]
    Flash(#[from] flysch_api::flash::FlashError),
    /// The device it is.
    #[error("{0}")]
    Device(#[from] flysch_linux::OpenError),
    /// The file system, its volume or its UBI device.
    #[error("{0}")]
    Format(String),
    /// UBI lacks free blocks.
    #[error("{0}: it was made for a larger flash, whose size is needed (--flash-size)")]
    NoRoom(String),
    /// Its contents are not a file system.
    #[error("there is no file system in it")]
    NoFileSystem,
}

pub(crate) fn format(error: impl std::fmt::Display) -> WritableError {
    WritableError::Format(error.to_string())
}

/// A file system opened for modification.
pub struct Writable {
    fs: SharedMut,
    close: Box<dyn FnOnce() -> Result<(), WritableError>>,
    /// Excludes others from the file.
    lock: Option<Exclusive>,
}

impl std::fmt::Debug for Writable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}

impl Writable {
    /// A UBIFS on `volume`, opened with these keys; `trim` is applied after its end.
    pub(crate) fn ubifs(
        volume: OwnVolume,
        keys: Option<Arc<Keys>>,
        trim: Option<Trim>,
    ) -> Result<Self, WritableError> {
        let options = flysch_ubifs::OpenOptions { keys, ..Default::default() };
        let fs = UbifsMut::open_with(volume, &options).map_err(format)?;
        Ok(Self::new(fs, move |fs: UbifsMut<OwnVolume>| {
            fs.close().map_err(format)?.rest()?;
            trim.map_or(Ok(()), Trim::run)
        }))
    }

    /// A JFFS2 on `flash`, in that byte order if it is empty; `trim` is applied after its end.
    pub(crate) fn jffs2(
        flash: OwnFlash,
        order: Option<ByteOrder>,
        trim: Option<Trim>,
    ) -> Result<Self, WritableError> {
        let options = WriteOptions { order, ..WriteOptions::default() };
        let fs = Jffs2Mut::mount(flash, &options).map_err(format)?;
        Ok(Self::new(fs, move |mut fs: Jffs2Mut<OwnFlash>| {
            fs.sync(None).map_err(format)?;
            fs.into_flash().rest()?;
            trim.map_or(Ok(()), Trim::run)
        }))
    }

    /// A file system, and how it is closed.
    fn new<T: FileSystemMut + Send + Sync + 'static>(
        fs: T,
        close: impl FnOnce(T) -> Result<(), WritableError> + 'static,
    ) -> Self {
        let fs = Arc::new(RwLock::new(fs));
        let own = fs.clone();
        let close = Box::new(move || match Arc::try_unwrap(own) {
            // No cause: a poisoned lock says only that somebody panicked.
            Ok(fs) => close(fs.into_inner().map_err(|_| format("a change was left half done"))?),
            // Somebody is still in it: what was synced is safe.
            Err(_) => Ok(()),
        });
        Self { fs, close, lock: None }
    }

    /// Blocks of the file system: as many as before if it did not get the room it was offered.
    pub fn blocks(&self) -> u64 {
        self.fs.read().map_or(0, |fs| fs.statistics().blocks)
    }

    /// The file system.
    pub fn file_system(&self) -> SharedMut {
        self.fs.clone()
    }

    /// Writes everything and leaves the file system as an unmount would. If anybody else still
    /// holds it, it stays open and is left as after a power cut.
    ///
    /// # Errors
    /// Not everything could be written.
    pub fn close(self) -> Result<(), WritableError> {
        let Self { fs, close, lock } = self;
        drop(fs);
        let closed = close();
        drop(lock);
        closed
    }
}

impl Image {
    /// Opens one of the image's volumes for modification; `self` says where it is.
    ///
    /// # Errors
    /// The image cannot be written, or the file system gives a reason why it must not be.
    pub fn open_writable(
        &self,
        volume: &ImageVolume,
        room: &Room,
    ) -> Result<Writable, WritableError> {
        let holds = |part: &&Part| part.volumes.iter().any(|other| std::ptr::eq(other, volume));
        let part = self.parts.iter().find(holds).ok_or(WritableError::NoFileSystem)?;
        let lock = self.lock_for_writing()?;
        let opened = match (part.region.content, volume.id, &volume.contents) {
            (Content::Ubi { .. }, Some(id), _) => self.open_ubi_volume(part, id, room),
            (_, _, Contents::Jffs2(fs)) => self.open_jffs2(part, fs, room),
            (_, _, Contents::Ubifs(fs)) => self.open_bare(part, fs, room),
            _ => Err(WritableError::NoFileSystem),
        };
        match opened {
            Ok(writable) => Ok(Writable { lock, ..writable }),
            Err(error) => {
                // The error is what the user must know; the file is as good with as without them.
                let _ = self.drop_blocks_added();
                Err(error)
            }
        }
    }

    /// Excludes everybody else from the file.
    pub(crate) fn lock_for_writing(&self) -> Result<Option<Exclusive>, WritableError> {
        if self.has_oob_apart {
            let why = "its out-of-band bytes are apart: put them behind their pages, in one file";
            return Err(WritableError::Format(why.into()));
        }
        Ok(self.lock.as_ref().map(Lock::exclusive).transpose()?)
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
            return Err(format("several UBI images follow each other: edit them one by one"));
        }
        let info = device.volumes().iter().find(|info| info.id == id);
        let info = info.ok_or(WritableError::NoFileSystem)?;
        let contents = part.volumes.iter().find(|volume| volume.id == Some(id));
        let (fs, unit): (&dyn FileSystem, _) = match contents.map(|volume| &volume.contents) {
            Some(Contents::Ubifs(fs)) => (&**fs, fs.superblock().min_io_size),
            // Nothing in it tells; the headers of UBI do.
            Some(Contents::Jffs2(fs)) => (&**fs, unit_of(part, device.offsets())),
            _ => return Err(format("only UBIFS and JFFS2 can be changed in a UBI volume")),
        };
        let lebs = missing_lebs(fs, room, info.leb_size);
        // Blocks that must be there: all volumes in full, UBI's own, some to work with.
        let reserved: u64 = device.volumes().iter().map(|info| u64::from(info.reserved_pebs)).sum();
        let wanted = reserved + u64::from(lebs) + UBI_SPARE;
        let there = u64::from(device.image().pebs);
        let geometry = geometry(part, unit, device.offsets());
        let flash = self.open_flash(part, geometry, room, wanted.saturating_sub(there))?;
        let options = DeviceOptions {
            // On its flash the volume takes the space it asks for; a file stays what it is.
            autoresize: self.device.is_some() || room.flash_size.is_some(),
            // Blocks that go bad are the flash's affair, not the file's.
            bad_per_1024: if self.device.is_some() { BAD_PER_1024 } else { 0 },
            ..DeviceOptions::default()
        };
        let mut device = UbiDevice::attach(flash, &options).map_err(|error| match error {
            flysch_ubi::UbiError::NoSpace { .. } => WritableError::NoRoom(error.to_string()),
            other => format(other),
        })?;
        let more = device.account().available.min(lebs);
        if info.flags.contains(VolumeFlags::AUTORESIZE) && !options.autoresize && more > 0 {
            device.resize(id, info.reserved_pebs + more).map_err(format)?;
        }
        let volume = device.into_volume(id).map_err(format)?;
        let trim = self.trim(part, room);
        match contents.map(|volume| &volume.contents) {
            Some(Contents::Jffs2(fs)) => {
                let order = Some(fs.facts().order);
                Writable::jffs2(Box::new(Gluebi::new(volume, &geometry)), order, trim)
            }
            _ => Writable::ubifs(Box::new(volume), self.keys.clone(), trim),
        }
    }

    fn open_jffs2(
        &self,
        part: &Part,
        fs: &Jffs2<SharedFlash>,
        room: &Room,
    ) -> Result<Writable, WritableError> {
        let found = part.region.geometry;
        let geometry = match fs.facts().clean_markers {
            _ if self.device.is_some() || self.page_format.is_some() => found,
            // Made for NAND, where erased blocks are marked out of the file's sight.
            0 => FlashGeometry { kind: Kind::Nand, ..found },
            _ => FlashGeometry::nor(found.size, found.erase_size),
        };
        // Blocks that JFFS2 keeps for itself, and those for what will come.
        let content = room.bytes.unwrap_or(0).div_ceil(found.erase_size.into());
        let blocks = content * 5 / 4 + u64::from(found.blocks() / 16) + JFFS2_SPARE;
        let flash = self.open_flash(part, geometry, room, blocks)?;
        let Content::Jffs2(order) = part.region.content else {
            return Err(WritableError::NoFileSystem);
        };
        Writable::jffs2(Box::new(flash), Some(order), self.trim(part, room))
    }

    fn open_bare(
        &self,
        part: &Part,
        fs: &Ubifs<SharedVolume>,
        room: &Room,
    ) -> Result<Writable, WritableError> {
        if self.device.is_some() || self.page_format.is_some() {
            return Err(format("UBIFS without UBI can only be changed in a plain file"));
        }
        let superblock = fs.superblock();
        let (leb_size, unit) = (superblock.leb_size, superblock.min_io_size);
        let there = part.region.geometry.size.div_ceil(leb_size.into());
        let wanted = u64::from(superblock.leb_count) + u64::from(missing_lebs(fs, room, leb_size));
        let wanted = wanted.min(superblock.leb_count_max.into());
        let geometry = FlashGeometry::nand(0, leb_size, unit, unit);
        // The file system's own LEBs may be missing at the end of the file.
        let room = Room { bytes: Some(room.bytes.unwrap_or(0)), ..*room };
        let flash = self.open_flash(part, geometry, &room, wanted.saturating_sub(there))?;
        let volume = BareVolume::new(FlatImage::new(flash, leb_size, 0), &self.path)?;
        Writable::ubifs(Box::new(volume), self.keys.clone(), None)
    }
}

/// LEBs that a file system lacks for the data to be added.
fn missing_lebs(fs: &dyn FileSystem, room: &Room, leb_size: u32) -> u32 {
    /// What UBIFS reserves in a small volume: index, garbage collection, journal heads.
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

/// Bytes that UBI writes at once in this part, judged by the positions of its headers and its data:
/// these are multiples of that, and on NAND the data start at a page.
fn unit_of(part: &Part, offsets: Offsets) -> u32 {
    let found = part.region.geometry.write_size;
    if found > 1 {
        return found;
    }
    // NOR has the headers of 64 bytes right behind each other.
    if offsets.data <= 128 { 1 } else { 1 << offsets.data.trailing_zeros().min(31) }
}

/// The flash as the file system on it must have seen it: the file itself does not show its page
/// size.
pub(crate) fn geometry(part: &Part, unit: u32, offsets: Offsets) -> FlashGeometry {
    /// UBIFS assumes this for flash that is written in single bytes.
    const UNIT_MIN: u32 = 8;
    let found = part.region.geometry;
    if unit <= UNIT_MIN {
        return FlashGeometry::nor(found.size, found.erase_size);
    }
    // Sub-pages are known from the VID header, which begins with one.
    let sub_page_size = unit.min(1 << offsets.vid_header.trailing_zeros().min(31));
    FlashGeometry { write_size: unit, sub_page_size, ..found }
}

#[cfg(test)]
mod tests;
