//! A device that is written.
//!
//! # How a power cut is survived
//!
//! There is no map on the flash; a block says itself what it holds, and the higher sequence number
//! wins. Everything follows from the order in which blocks are written and erased:
//!
//! - *A LEB's first write*: identifier header, then data. Cut before the header is whole: the block
//!   holds no LEB and is erased at the next attach. Cut in the data: the LEB is mapped, with what
//!   was written.
//! - *Atomic change, wear-levelling move, write-error recovery*: header with copy flag and the
//!   checksum of the data, then the data, into a free block; only then is the old block given up.
//!   Cut between: the checksum does not fit and the old block counts.
//! - *Giving up* a block only queues it. Queued blocks are erased first in, first out, so an older
//!   copy of a LEB never outlives a newer one, and a LEB that comes back comes back as it last was.
//!   [`sync`](flysch_api::volume::VolumeMut::sync) empties the queue.
//! - *Volume table*: atomic change of layout LEB 0, then of LEB 1, then the queue is emptied, so
//!   that no older table can count again. LEB 0 decides, so that create, remove, resize and
//!   renaming several volumes each happen at one instant; attaching repairs LEB 1.
//! - *Remove and shrink*: the table first, the blocks then; blocks of no volume are leftovers.
//!   *Create and grow*: the queue is emptied first, so that leftovers can not enter the volume.
//! - *Update*: update marker set, LEBs given up, written, the queue emptied, marker cleared.
//! - *Erase*: the erase counter header follows the erase. A block without one gets the mean. On NOR
//!   both headers are spoilt first, because an erase cut short there may leave them whole.
//! - *A page cut short* may read well today and not tomorrow, or as if it were erased. So a block
//!   is judged once, when it is attached, and before anything relies on it that is made true: the
//!   LEB that was written last is written again from what was read of it, while its older content
//!   is there; what was found to be no copy is erased; so are the free blocks that would have been
//!   taken next, before they are.
//! - *Fastmap*: while one is true, blocks are taken only from its pools, which attaching looks at;
//!   a new one is written from blocks of the old one's pools, and the old one's first block is
//!   erased before anything else changes.
//!
//! # Objects
//!
//! Each has the state that it alone changes, the lower ones within the upper ones: [`UbiDevice`]
//! the table of volumes; [`Lebs`] which LEB lies where ([`Volumes`](entries::Volumes)); [`Pebs`]
//! which block is what - how often erased and how good ([`Wear`](wear::Wear),
//! [`Pools`](pools::Pools)), which are a fastmap ([`Fastmaps`](fastmap::Fastmaps)), how many
//! there are for whom ([`Account`]); [`Io`](io::Io) the bytes in one.
//!
//! # No threads
//!
//! What Linux does in its background thread - erases, moves - is done by [`UbiDevice::work`], and
//! piecemeal by the calls that write: each does at most one overdue erase and one overdue move.
//! An allocation erases queued blocks until one is free. Of the blocks not reserved by volumes one
//! is kept for changes and one for moves, so one is always free or queued.

mod bits;
mod entries;
mod error;
mod fastmap;
mod format;
mod io;
mod lebs;
mod moving;
mod open;
mod pebs;
mod pools;
mod seen;
mod update;
mod verdict;
mod volume;
mod volumes;
mod wear;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use flysch_api::finding::Finding;
use flysch_api::flash::FlashMut;
use flysch_wire::ubi::VolumeKind;

pub use error::{Error, ReadOnly};
pub use format::FormatOptions;
pub use update::Update;
pub use volume::DeviceVolume;
pub use volumes::NewVolume;

use crate::{Offsets, UbiImage, VolumeInfo};
use entries::{Entry, UNMAPPED};
use lebs::Lebs;
use pebs::Pebs;
use wear::State;

/// Queued erases are overdue when no more than so many blocks are free, and one in 64.
const FREE_LOW: u32 = 2;

/// Blocks that are tried for one write after the first one failed. Linux stops after three; a LEB
/// of many small pages on a chip that fails now and then needs more, and each block that fails is
/// tried thoroughly before it is used again.
const BLOCK_TRIES: u32 = 15;

/// How a device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Difference of erase counters from which content is moved: 2 to 65536
    /// (`CONFIG_MTD_UBI_WL_THRESHOLD`; 4096 for parts of 100 000 erases, 128 to 256 for 10 000).
    pub wear_threshold: u32,
    /// Blocks expected to go bad among 1024, 0 to 768 (`CONFIG_MTD_UBI_BEB_LIMIT`). So many of the
    /// chip are reserved, less those that are bad.
    pub bad_per_1024: u32,
    /// Whether a fastmap is believed at attach and kept up to date while the device is written. It
    /// takes twice its size of blocks; attaching after a power cut reads the headers of the first
    /// 64 blocks and of its pools (5 % of all, 8 to 256, and half as many), not of every block.
    pub fastmap: bool,
    /// Bytes that are programmed together where the flash does not know it (an image file); not
    /// less than what the flash says. `None`: as the flash says.
    pub write_size: Option<u32>,
    /// Whether blocks that hold something not understood are erased. Linux keeps them, and refuses
    /// to attach when there are more than 5 %.
    pub erase_corrupt: bool,
    /// Whether a volume that asks for it (`vol_flags=autoresize`) gets all free space now. The
    /// flash does that once; an image that is only edited should go on asking.
    pub autoresize: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            wear_threshold: 4096,
            bad_per_1024: 20,
            fastmap: false,
            write_size: None,
            erase_corrupt: false,
            autoresize: true,
        }
    }
}

/// How the blocks of a device are shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// All blocks.
    pub blocks: u32,
    /// Blocks marked bad.
    pub bad: u32,
    /// Blocks left alone because their content is not understood.
    pub kept: u32,
    /// Blocks that volumes, the table and UBI itself reserve.
    pub reserved: u32,
    /// Blocks reserved to replace such as go bad.
    pub bad_reserved: u32,
    /// Blocks that volumes could be given.
    pub available: u32,
}

/// What was done since attaching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks erased.
    pub erases: u64,
    /// Blocks tortured after a failed write.
    pub tortures: u64,
    /// Blocks that went bad.
    pub gone_bad: u32,
    /// LEBs moved to level the wear.
    pub moves: u64,
    /// LEBs moved because of bit errors.
    pub scrubs: u64,
    /// Writes that failed and were done in another block.
    pub recovered_writes: u64,
    /// Fastmaps written.
    pub fastmaps: u64,
}

/// An attached UBI device, read-write.
///
/// ```text
/// let format = FormatOptions::new(seed);
/// let mut device = UbiDevice::format(flash, &format, &DeviceOptions::default())?;
/// let id = device.create(&NewVolume::dynamic(b"root", 100))?;
/// let mut volume = device.volume_mut(id)?;     // borrowed, or: device.into_volume(id)?
/// volume.write(0, 0, &page)?;
/// volume.sync()?;
/// ```
#[derive(Debug)]
pub struct UbiDevice<F> {
    lebs: Lebs<F>,
    findings: Vec<Finding>,
    attached_by_fastmap: bool,
}

impl<F: FlashMut> UbiDevice<F> {
    fn pebs(&self) -> &Pebs<F> {
        &self.lebs.pebs
    }

    /// The flash.
    pub fn flash(&self) -> &F {
        &self.pebs().io.flash
    }

    /// The flash, for those who inject faults into a model; what UBI wrote is not to be changed.
    pub fn flash_mut(&mut self) -> &mut F {
        &mut self.lebs.pebs.io.flash
    }

    /// Gives the flash back as it is, as if the power went; see [`detach`](Self::detach).
    pub fn into_flash(self) -> F {
        self.lebs.pebs.io.flash
    }

    /// Where in each erase block things lie.
    pub fn offsets(&self) -> Offsets {
        self.pebs().io.shape.offsets
    }

    /// What the image consists of.
    pub fn image(&self) -> UbiImage {
        self.pebs().io.shape.image
    }

    /// Bytes of a logical erase block, before a volume's alignment.
    pub fn leb_size(&self) -> u32 {
        self.pebs().leb_size()
    }

    /// Bytes that are programmed together.
    pub fn write_size(&self) -> u32 {
        self.pebs().write_size()
    }

    /// What was found when the device was attached. All of it that can be mended is.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Why the device takes no changes; `None` if it does.
    pub fn read_only(&self) -> Option<ReadOnly> {
        self.pebs().read_only
    }

    /// How the blocks are shared out.
    pub fn account(&self) -> Account {
        self.pebs().account
    }

    /// What was done since attaching.
    pub fn statistics(&self) -> Statistics {
        self.pebs().statistics
    }

    /// Whether the fastmap spared reading every header.
    pub fn attached_by_fastmap(&self) -> bool {
        self.attached_by_fastmap
    }

    /// Last sequence number that was used.
    pub fn sequence(&self) -> u64 {
        self.pebs().sequence
    }

    /// Blocks that wait for their erase.
    pub fn waiting(&self) -> u32 {
        self.pebs().wear.waiting_count()
    }

    /// How often each block was erased; `None` for those that are bad or left alone.
    pub fn erase_counters(&self) -> impl Iterator<Item = Option<u32>> + '_ {
        (0..).zip(&self.pebs().wear.pebs).map(|(peb, known)| match known.state {
            State::Bad | State::Kept => None,
            _ => Some(self.pebs().known_erase_counter(peb)),
        })
    }

    /// The volumes, by id.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeInfo> + '_ {
        self.lebs.volumes.iter().filter_map(|(id, entry)| self.describe(id, entry))
    }

    /// The volume of this id.
    pub fn info(&self, id: u32) -> Option<VolumeInfo> {
        self.describe(id, self.lebs.volumes.get(id)?)
    }

    /// Id of the volume of this name.
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.lebs.volumes.find(name)
    }

    fn describe(&self, id: u32, entry: &Entry) -> Option<VolumeInfo> {
        let record = entry.record?;
        let mapped = (0..).zip(&entry.map).filter(|(_, peb)| **peb != UNMAPPED);
        let mapped = mapped.filter(|(lnum, _)| self.lebs.peb_of(id, *lnum).is_some());
        Some(VolumeInfo {
            id,
            name: record.name().into(),
            kind: record.kind,
            reserved_pebs: record.reserved_pebs,
            alignment: record.alignment,
            leb_size: self.leb_size() - entry.data_pad,
            update_marker: record.update_marker,
            flags: record.flags,
            used_bytes: (record.kind == VolumeKind::Static).then_some(entry.used_bytes),
            map: mapped.map(|(lnum, peb)| (lnum, *peb)).collect(),
        })
    }

    /// Does up to `budget` pieces of background work: an erase or a move of a LEB each, the erases
    /// first. `true`: there is more to do.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: the device is read-only, or became it.
    pub fn work(&mut self, budget: u32) -> Result<bool, Error> {
        self.lebs.work(budget)
    }

    /// Erases every block that was given up, and makes all durable.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Flash`].
    pub fn sync(&mut self) -> Result<(), Error> {
        self.lebs.sync()
    }

    /// Ends the work with the device: nothing is pending and the fastmap is written, if the device
    /// has one. It may be gone on with.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn close(&mut self) -> Result<(), Error> {
        self.lebs.close()
    }

    /// Closes the device and gives the flash back.
    ///
    /// # Errors
    /// As [`close`](Self::close), and the flash is lost with it.
    pub fn detach(mut self) -> Result<F, Error> {
        self.close()?;
        Ok(self.into_flash())
    }
}
