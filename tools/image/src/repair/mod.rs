//! Repairs a file system in an image and the UBI below it.

mod backup;
mod ubi;

pub use backup::{is_backup_of, restore_backup, write_backup};

use std::fs::File;

use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::FsError;
use flysch_api::volume::Volume as _;
use flysch_mtd::{FileStorage, FlashImage as PlainImage, Storage};
use flysch_ubi::DeviceOptions;
use flysch_ubifs::repair::{self, Change, Level, RepairError, Report};
use flysch_ubifs::{FlatImage, Ubifs, UbifsMountError};
use flysch_wire::ubi::VolumeFlags;

use crate::open::{Contents, Image, ImageVolume, Part, SharedVolume};
use crate::storage::{GROWTH_MAX, Window};
use crate::writable::{AnyFlash, AnyUbiDevice, OwnVolume, Room, UBI_SPARE, geometry};

/// Why a repair is impossible.
#[derive(Debug, thiserror::Error)]
pub enum RepairFailure {
    /// An error of the file system's repair.
    #[error("{0}")]
    Repair(#[from] RepairError),
    /// The image cannot be written.
    #[error("{0}")]
    Image(String),
    /// The contents need no repair of this kind, or cannot be repaired; a sentence.
    #[error("{0}")]
    Unfit(String),
}

/// Blocks that UBI itself needs: its volume table twice, an atomic change, a move.
const UBI_OWN: u64 = 4;

fn failed(error: impl std::fmt::Display) -> RepairFailure {
    RepairFailure::Image(error.to_string())
}

impl RepairFailure {
    /// Whether the empty blocks for a new index were missing.
    pub fn lacks_room(&self) -> bool {
        let no_space = UbifsMountError::Failed(FsError::NoSpace);
        matches!(self, Self::Repair(RepairError::Write(error)) if *error == no_space)
    }
}

impl Image {
    /// What a repair of the UBI device that contains `volume` would change; empty if nothing is
    /// wrong with it, or there is none.
    ///
    /// # Errors
    /// [`RepairFailure::Unfit`].
    pub fn survey_ubi(&self, volume: &ImageVolume) -> Result<Vec<Change>, RepairFailure> {
        let device = self.part_of(volume)?.devices.iter().find(|device| {
            volume.ubi.is_some() && volume.id.is_some_and(|id| device.volume(id).is_some())
        });
        device.map_or(Ok(Vec::new()), |device| ubi::survey(device).map(|plan| plan.changes))
    }

    fn part_of(&self, volume: &ImageVolume) -> Result<&Part, RepairFailure> {
        let holds = |part: &&Part| part.volumes.iter().any(|other| std::ptr::eq(other, volume));
        self.parts.iter().find(holds).ok_or_else(|| unfit("no such volume"))
    }

    /// What a repair of one of the image's volumes would change; nothing is written.
    ///
    /// # Errors
    /// [`RepairFailure::Repair`], [`RepairFailure::Unfit`].
    pub fn survey_repair(&self, volume: &ImageVolume) -> Result<Report, RepairFailure> {
        if self.device.is_some() {
            return Err(unfit("a device is not repaired in place: dump it, and repair the dump"));
        }
        match &volume.contents {
            Contents::Ubifs(fs) => Ok(repair::survey(fs.volume().clone())?),
            Contents::Jffs2(_) => Err(unfit(
                "JFFS2 has nothing but nodes: each mount leaves out what is damaged, so a repair \
                 has nothing to do; `image extract` saves what is there",
            )),
            Contents::Broken(_, why) => Err(RepairFailure::Unfit(format!(
                "it cannot be repaired: {why}, and it has no copy"
            ))),
            _ => Err(unfit("there is no file system in it")),
        }
    }

    /// What a repair of one of the image's volumes would change, in UBI below it as well; nothing
    /// is written. Of a volume without UBIFS only UBI can be repaired.
    ///
    /// # Errors
    /// As [`survey_repair`](Self::survey_repair).
    pub fn survey_whole(&self, volume: &ImageVolume) -> Result<Report, RepairFailure> {
        let mut changes = self.survey_ubi(volume)?;
        let below = changes.iter().map(|change| change.level).max();
        let inside = match (&volume.contents, &volume.ubi) {
            (Contents::Raw(_) | Contents::Jffs2(_), Some(_)) => Report::default(),
            _ => self.survey_repair(volume)?,
        };
        changes.extend(inside.changes);
        Ok(Report { level: below.max(inside.level), changes })
    }

    /// Repairs what [`survey_whole`](Self::survey_whole) finds, as [`repair`](Self::repair) does,
    /// and reports all of it. An image with nothing to repair is not written to.
    ///
    /// # Errors
    /// As [`repair`](Self::repair).
    pub fn repair_whole(
        &self,
        volume: &ImageVolume,
        level: Level,
        now: u64,
    ) -> Result<Report, RepairFailure> {
        let found = self.survey_whole(volume)?;
        if found.level.is_none() {
            return Ok(found);
        }
        if found.level.is_some_and(|takes| takes > level) {
            return Err(RepairError::Level(found).into());
        }
        let mut changes = self.survey_ubi(volume)?;
        changes.extend(self.repair(volume, level, now, 0)?.changes);
        Ok(Report { level: found.level, changes })
    }

    /// Repairs one of the image's volumes, and UBI below it, in place: the caller has a copy. `now`
    /// is the time in seconds since 1970; `more` LEBs are added to a volume that may grow.
    ///
    /// # Errors
    /// [`RepairFailure`]; the image may then be half repaired.
    pub fn repair(
        &self,
        volume: &ImageVolume,
        level: Level,
        now: u64,
        more: u32,
    ) -> Result<Report, RepairFailure> {
        let part = self.part_of(volume)?;
        if self.lock.is_none() && self.device.is_none() {
            return Err(unfit("it is in memory: write it to a file, and repair that"));
        }
        let _lock = self.lock_for_writing().map_err(failed)?;
        match (&volume.contents, &volume.ubi) {
            (_, Some(_)) => self.repair_in_ubi((part, volume), (level, now, more)),
            (Contents::Ubifs(fs), None) => self.repair_bare((part, fs), (level, now)),
            _ => Err(unfit("only UBI and UBIFS can be repaired")),
        }
    }

    fn repair_in_ubi(
        &self,
        (part, volume): (&Part, &ImageVolume),
        (level, now, more): (Level, u64, u32),
    ) -> Result<Report, RepairFailure> {
        let [device] = &part.devices[..] else {
            return Err(unfit("several UBI images follow each other: repair them one by one"));
        };
        let info = device.volumes().iter().find(|info| Some(info.id) == volume.id);
        let info = info.ok_or_else(|| unfit("no such volume"))?;
        let plan = ubi::survey(device)?;
        let fs = match &volume.contents {
            Contents::Ubifs(fs) => Some(fs),
            _ => None,
        };
        let more = if fs.is_some() { more } else { 0 };
        let reserved: u64 = device.volumes().iter().map(|info| u64::from(info.reserved_pebs)).sum();
        // Without blocks to spare only if they were of no use the first time.
        let spare = if more == 0 { UBI_OWN } else { UBI_SPARE };
        let wanted = reserved + u64::from(more) + spare;
        let lacking = wanted.saturating_sub(device.image().pebs.into());
        let unit = fs.map_or(part.region.geometry.write_size, |it| it.superblock().min_io_size);
        let geometry = geometry(part, unit, device.offsets());
        let room = Room { flash_size: None, bytes: Some(0) };
        let mut flash = self.open_flash(part, geometry, &room, lacking).map_err(failed)?;
        plan.prepare(&mut flash, level).map_err(failed)?;
        let options = DeviceOptions {
            autoresize: false,
            bad_per_1024: 0,
            erase_corrupt: level >= Level::DangerDefault,
            ..DeviceOptions::default()
        };
        let mut device = AnyUbiDevice::attach(flash, &options).map_err(failed)?;
        if !plan.changes.is_empty() {
            ubi::settle(&mut device).map_err(failed)?;
        }
        let more = device.account().available.min(more);
        if info.flags.contains(VolumeFlags::AUTORESIZE) && more > 0 {
            device.resize(info.id, info.reserved_pebs + more).map_err(failed)?;
        }
        let mut report = Report::default();
        if fs.is_some() {
            let volume: OwnVolume = Box::new(device.into_volume(info.id).map_err(failed)?);
            let (volume, done) = repair::repair(volume, level, now)?;
            volume.rest().map_err(failed)?;
            report = done;
        } else {
            device.detach().map_err(failed)?;
        }
        self.trim(part, &room).map_or(Ok(()), |trim| trim.run().map_err(failed))?;
        Ok(report)
    }

    fn repair_bare(
        &self,
        (part, fs): (&Part, &Ubifs<SharedVolume>),
        (level, now): (Level, u64),
    ) -> Result<Report, RepairFailure> {
        if self.page_format.is_some() {
            return Err(unfit("a bare UBIFS with out-of-band bytes cannot be written"));
        }
        // The file grows before the repair begins: a repair that is refused leaves it as it was.
        let report = repair::survey(fs.volume().clone())?;
        if report.level.is_some_and(|takes| takes > level) {
            return Err(RepairError::Level(report).into());
        }
        let mut storage = FileStorage::open_writable(&self.path).map_err(failed)?;
        let start = part.region.range.start + self.offset;
        let old = storage.size();
        let leb_size = fs.superblock().leb_size;
        let most = fs.superblock().leb_count_max.min(fs.superblock().leb_count.saturating_add(16));
        let len = u64::from(most) * u64::from(leb_size);
        storage.grow(start + len, GROWTH_MAX).map_err(failed)?;
        let window = Window { storage, start, len };
        let flash: AnyFlash = Box::new(PlainImage::new(window, FlashGeometry::nor(len, leb_size)));
        let image = FlatImage::open(flash).ok_or_else(|| unfit("the superblock is lost"))?;
        let image: OwnVolume = Box::new(image);
        let (image, report) = repair::repair(image, level, now)?;
        let mut lebs = image.geometry().lebs;
        let mut bytes = vec![0; leb_size as usize];
        let is_erased = |lnum: u32, bytes: &mut [u8]| {
            image.read(lnum, 0, bytes).is_ok() && bytes.iter().all(|&byte| byte == 0xFF)
        };
        while lebs > 0 && is_erased(lebs - 1, &mut bytes) {
            lebs -= 1;
        }
        let end = start + u64::from(lebs) * u64::from(leb_size);
        let file = File::options().write(true).open(&self.path).map_err(failed)?;
        file.set_len(end.max(old.min(start + len))).map_err(failed)?;
        Ok(report)
    }
}

fn unfit(why: &str) -> RepairFailure {
    RepairFailure::Unfit(why.into())
}
