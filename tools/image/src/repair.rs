//! Repairing a file system in an image, and a backup of what is changed by it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flysch_api::flash::Geometry;
use flysch_api::vfs::Error;
use flysch_api::volume::Volume as _;
use flysch_mtd::Image as PlainImage;
use flysch_ubi::{Device, DeviceOptions};
use flysch_ubifs::repair::{self, Level, RepairError, Report};
use flysch_ubifs::{FlatImage, MountError};
use flysch_wire::ubi::VolumeFlags;
use flysch_wire::ubifs::crc32;

use crate::open::{Contents, Image, Part, Volume};
use crate::storage::{FileStorage, Window};
use crate::writable::{Room, UBI_SPARE, geometry};
use flysch_mtd::{Storage, StorageMut};

/// Why there is no repair.
#[derive(Debug, thiserror::Error)]
pub enum RepairFailure {
    /// The file system says no.
    #[error("{0}")]
    Repair(#[from] RepairError),
    /// The image can not be written.
    #[error("{0}")]
    Image(String),
    /// What it holds needs no repair of this kind, or can have none; a sentence.
    #[error("{0}")]
    Unfit(String),
}

fn failed(error: impl std::fmt::Display) -> RepairFailure {
    RepairFailure::Image(error.to_string())
}

impl RepairFailure {
    /// Whether there were not the empty blocks for a new index.
    pub fn lacks_room(&self) -> bool {
        let no_space = MountError::Failed(Error::NoSpace);
        matches!(self, Self::Repair(RepairError::Write(error)) if *error == no_space)
    }
}

impl Image {
    /// What repairing one of the image's volumes would change; nothing is written.
    ///
    /// # Errors
    /// [`RepairFailure::Repair`], [`RepairFailure::Unfit`].
    pub fn survey_repair(&self, volume: &Volume) -> Result<Report, RepairFailure> {
        if self.device.is_some() {
            return Err(unfit("a device is not repaired where it is: dump it, repair the dump"));
        }
        match (&volume.contents, &volume.ubi) {
            (Contents::Ubifs(_), Some(ubi)) => Ok(repair::survey(ubi.clone())?),
            (Contents::BareUbifs(fs), _) => Ok(repair::survey(fs.volume().clone())?),
            (Contents::Jffs2(_), _) => Err(unfit(
                "JFFS2 has nothing but nodes: each mount leaves out what is damaged, so there is \
                 nothing that a repair could mend; `image extract` saves what is there",
            )),
            (Contents::Broken(_, why), _) => Err(RepairFailure::Unfit(format!(
                "it cannot be repaired: {why}, and there is no copy of that"
            ))),
            _ => Err(unfit("there is no file system in it")),
        }
    }

    /// Repairs one of the image's volumes where it is: the caller has a copy. `now` is the time in
    /// seconds since 1970; `more` LEBs are added to a volume that may grow.
    ///
    /// # Errors
    /// [`RepairFailure`]; the image may then be half repaired.
    pub fn repair(
        &self,
        volume: &Volume,
        level: Level,
        now: u64,
        more: u32,
    ) -> Result<Report, RepairFailure> {
        let holds = |part: &&Part| part.volumes.iter().any(|other| std::ptr::eq(other, volume));
        let part = self.parts.iter().find(holds).ok_or_else(|| unfit("no such volume"))?;
        match (&volume.contents, volume.id) {
            (Contents::Ubifs(_), Some(id)) => self.repair_in_ubi(part, id, (level, now, more)),
            (Contents::BareUbifs(_), _) => self.repair_bare(part, (level, now)),
            _ => Err(unfit("only UBIFS can be repaired")),
        }
    }

    fn repair_in_ubi(
        &self,
        part: &Part,
        id: u32,
        (level, now, more): (Level, u64, u32),
    ) -> Result<Report, RepairFailure> {
        let [device] = &part.devices[..] else {
            return Err(unfit("several UBI images lie behind each other: repair them one by one"));
        };
        let info = device.volumes().iter().find(|info| info.id == id);
        let info = info.ok_or_else(|| unfit("no such volume"))?;
        let volume = part.volumes.iter().find(|volume| volume.id == Some(id));
        let Some(Contents::Ubifs(fs)) = volume.map(|volume| &volume.contents) else {
            return Err(unfit("only UBIFS can be repaired"));
        };
        let reserved: u64 = device.volumes().iter().map(|info| u64::from(info.reserved_pebs)).sum();
        let wanted = reserved + u64::from(more) + UBI_SPARE;
        let lacking = wanted.saturating_sub(device.image().pebs.into());
        let geometry = geometry(part, fs.superblock().min_io_size, device.offsets());
        let room = Room { flash_size: None, bytes: Some(0) };
        let flash = self.open_flash(part, geometry, &room, lacking).map_err(failed)?;
        let options =
            DeviceOptions { autoresize: false, bad_per_1024: 0, ..DeviceOptions::default() };
        let mut device = Device::attach(flash, &options).map_err(failed)?;
        let more = device.account().available.min(more);
        if info.flags.contains(VolumeFlags::AUTORESIZE) && more > 0 {
            device.resize(id, info.reserved_pebs + more).map_err(failed)?;
        }
        let volume = device.into_volume(id).map_err(failed)?;
        let (volume, report) = repair::repair(volume, level, now)?;
        volume.into_device().detach().map_err(failed)?;
        self.trim(part, &room).map_or(Ok(()), |trim| trim.run().map_err(failed))?;
        Ok(report)
    }

    fn repair_bare(
        &self,
        part: &Part,
        (level, now): (Level, u64),
    ) -> Result<Report, RepairFailure> {
        if self.page_format.is_some() {
            return Err(unfit("a bare UBIFS with out-of-band bytes is not written to"));
        }
        let mut storage = FileStorage::open_writable(&self.path).map_err(failed)?;
        let start = part.region.range.start + self.offset;
        let old = storage.size();
        let Some(fs) = part.volumes.iter().find_map(|volume| match &volume.contents {
            Contents::BareUbifs(fs) => Some(fs),
            _ => None,
        }) else {
            return Err(unfit("only UBIFS can be repaired"));
        };
        let leb_size = fs.superblock().leb_size;
        let most = fs.superblock().leb_count_max.min(fs.superblock().leb_count.saturating_add(16));
        let len = u64::from(most) * u64::from(leb_size);
        storage.grow(start + len).map_err(failed)?;
        let window = Window { storage, start, len };
        let flash = PlainImage::new(window, Geometry::nor(len, leb_size));
        let image = FlatImage::open(flash).ok_or_else(|| unfit("the superblock is lost"))?;
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

/// A backup starts with this.
const MAGIC: &[u8; 8] = b"FLYREPR1";
/// Most bytes of a block.
const BLOCK_MAX: u32 = 64 << 20;

/// Writes a backup: the blocks of `old` in which `new` differs, in `block` bytes each; tells how
/// many.
///
/// Little endian: magic, block size (u32), size of the old image (u64); then for each block its
/// offset (u64), its length (u32), CRC-32 of the bytes (u32), the bytes.
///
/// # Errors
/// Of reading and writing.
pub fn write_backup(old: &Path, new: &Path, block: u32, out: &mut dyn Write) -> io::Result<u64> {
    let (old, new) = (File::open(old)?, File::open(new)?);
    let (old_size, new_size) = (old.metadata()?.len(), new.metadata()?.len());
    out.write_all(MAGIC)?;
    out.write_all(&block.to_le_bytes())?;
    out.write_all(&old_size.to_le_bytes())?;
    let (mut one, mut other) = (vec![0; block as usize], vec![0; block as usize]);
    let mut blocks = 0;
    let mut at = 0;
    while at < old_size {
        let len = u64::from(block).min(old_size - at) as usize;
        old.read_exact_at(&mut one[..len], at)?;
        let is_same = at + len as u64 <= new_size && {
            new.read_exact_at(&mut other[..len], at)?;
            one[..len] == other[..len]
        };
        if !is_same {
            out.write_all(&at.to_le_bytes())?;
            out.write_all(&(len as u32).to_le_bytes())?;
            out.write_all(&crc32(&one[..len]).to_le_bytes())?;
            out.write_all(&one[..len])?;
            blocks += 1;
        }
        at += len as u64;
    }
    Ok(blocks)
}

/// Puts a backup's blocks back into the image at `path`; tells how many.
///
/// # Errors
/// Of reading and writing, and [`io::ErrorKind::InvalidData`] if it is no backup or damaged; the
/// image may then be half restored.
pub fn restore_backup(backup: &mut dyn Read, path: &Path) -> io::Result<u64> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut head = [0; 20];
    backup.read_exact(&mut head).map_err(|_| bad("it is no backup of a repair"))?;
    let (magic, rest) = head.split_at(8);
    if magic != MAGIC {
        return Err(bad("it is no backup of a repair"));
    }
    let number = |bytes: &[u8]| {
        bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let size = number(&rest[4..]);
    let mut storage = FileStorage::open_writable(path)?;
    storage.grow(size)?;
    let mut blocks = 0;
    loop {
        let mut head = [0; 16];
        match backup.read(&mut head[..1])? {
            0 => break,
            _ => backup.read_exact(&mut head[1..])?,
        }
        let (at, len, crc) = (number(&head[..8]), number(&head[8..12]), number(&head[12..]));
        if len > BLOCK_MAX.into() || at.checked_add(len).is_none_or(|end| end > size) {
            return Err(bad("the backup is damaged: a block lies outside the image"));
        }
        let mut bytes = vec![0; len as usize];
        backup.read_exact(&mut bytes)?;
        if u64::from(crc32(&bytes)) != crc {
            return Err(bad("the backup is damaged: bad CRC of a block"));
        }
        storage.write_at(at, &bytes).map_err(|error| io::Error::other(error.to_string()))?;
        blocks += 1;
    }
    let file = File::options().write(true).open(path)?;
    file.set_len(size)?;
    file.sync_all()?;
    Ok(blocks)
}
