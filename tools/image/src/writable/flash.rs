//! The flash below a file system that is to be modified.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use flysch_api::flash::{Flash, FlashGeometry, FlashMut};
use flysch_linux::{Access, MtdDevice};
use flysch_mtd::{Dump, FileStorage, FlashImage as PlainImage, Partition, Storage};

use super::{Room, WritableError};
use crate::open::{Image, Part};
use crate::storage::{GROWTH_MAX, Window};

pub(crate) type AnyFlash<'a> = Box<dyn FlashMut + Send + Sync + 'a>;

impl Image {
    /// What to cut off at the end from the blocks that `open_flash` adds; nothing if the user gave
    /// a size.
    pub(crate) fn trim(&self, part: &Part, room: &Room) -> Option<Trim> {
        let is_plain = self.device.is_none() && self.page_format.is_none();
        (is_plain && room.flash_size.is_none()).then(|| Trim {
            path: self.path.clone(),
            start: part.region.range.start + self.offset,
            end: self.size,
            block: part.region.geometry.erase_size.into(),
        })
    }

    /// Cuts off what opening for modification appended to a file, unless something was written
    /// there: the disk was full, or the flash is too small for the volumes.
    pub(super) fn drop_blocks_added(&self) -> std::io::Result<()> {
        if self.device.is_some() {
            return Ok(());
        }
        let file = std::fs::File::options().read(true).write(true).open(&self.path)?;
        let end = file.metadata()?.len();
        let mut at = self.size;
        let mut chunk = vec![0; 1 << 16];
        while at < end {
            let len = (chunk.len() as u64).min(end - at) as usize;
            file.read_exact_at(&mut chunk[..len], at)?;
            if chunk[..len].iter().any(|&byte| byte != 0xFF) {
                return Ok(());
            }
            at += len as u64;
        }
        if end > self.size { file.set_len(self.size) } else { Ok(()) }
    }

    /// The flash of one part, for modification; `more` erased blocks are added to a file.
    pub(crate) fn open_flash(
        &self,
        part: &Part,
        geometry: FlashGeometry,
        room: &Room,
        more: u64,
    ) -> Result<AnyFlash<'static>, WritableError> {
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
            // Whole blocks: LEBs of a bare UBIFS are no power of two.
            Some(size) => (stored(size) / block * block).max((old - start).next_multiple_of(block)),
            None if room.bytes.is_none() => old - start,
            None => (old - start).next_multiple_of(block) + more * block,
        };
        let most = match room.flash_size {
            Some(_) => u64::MAX,
            None => GROWTH_MAX.saturating_add(room.bytes.unwrap_or(0).saturating_mul(2)),
        };
        storage.grow(start + len, most).map_err(|error| match error.kind() {
            std::io::ErrorKind::FileTooLarge => WritableError::NoRoom(error.to_string()),
            _ => error.into(),
        })?;
        let window = Window { storage, start, len };
        match &self.page_format {
            None => Ok(Box::new(PlainImage::new(window, geometry))),
            Some(format) => Ok(Box::new(Dump::new(window, format.clone(), geometry.erase_size)?)),
        }
    }
}

/// Erased blocks to be cut off the end of a file.
pub(crate) struct Trim {
    path: PathBuf,
    /// Offset of the first block.
    start: u64,
    /// Nothing before this is cut off.
    end: u64,
    /// Bytes of a block.
    block: u64,
}

impl Trim {
    /// Bytes at the start of a block that only say that it is erased: UBI's EC header, JFFS2's
    /// clean marker.
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
