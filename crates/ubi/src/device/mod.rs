//! A device that is open for writing.
//!
//! # How a device survives a power cut
//!
//! There is no map on the flash: each block states what it holds, and the higher sequence number
//! wins. Everything follows from the order in which blocks are written and erased:
//!
//! - *First write to a LEB*: identifier header, then data. If it is cut before the header is
//!   complete, the block holds no LEB and is erased at the next attach. If it is cut within the
//!   data, the LEB is mapped and holds what was written.
//! - *Atomic change, wear-levelling move, write-error recovery*: header with copy flag and the
//!   checksum of the data, then the data, into a free block; only then is the old block discarded.
//!   If it is cut in between, the checksum does not match and the old block is valid.
//! - *Discarding* a block only queues it. Queued blocks are erased first in, first out, so an older
//!   copy of a LEB never outlives a newer one, and a LEB that comes back has its last content.
//!   [`sync`](flysch_api::volume::VolumeMut::sync) empties the queue.
//! - *Volume table*: atomic change of layout LEB 0, then of LEB 1; then the queue is emptied, so
//!   that no older table can become valid again. LEB 0 decides, so that creating, removing,
//!   resizing and renaming several volumes each happen at one instant; attaching repairs LEB 1.
//! - *Remove and shrink*: first the table, then the blocks; blocks without a volume are leftovers.
//!   *Create and grow*: the queue is emptied first, so that leftovers cannot enter the volume.
//! - *Update*: update marker set, LEBs discarded, content written, the queue emptied, marker
//!   cleared.
//! - *Erase*: the erase counter header follows the erase. A block without one gets the mean. On NOR
//!   both headers are invalidated first, because an interrupted erase may leave them intact there.
//! - *An interrupted page* may read correctly today and not tomorrow, or as if it were erased. So a
//!   block is judged once, when it is attached, and the verdict is made true on the flash before
//!   anything relies on it: the LEB written last is written again from the content that was read,
//!   while its older content still exists; blocks found not to be a copy are erased; so are the
//!   free blocks that would have been taken next, before they are taken.
//! - *Fastmap*: while one is valid, blocks are taken only from its pools, which attaching scans; a
//!   new one is written to blocks from the pools of the old one, and the old one's first block is
//!   erased before anything else changes.
//!
//! # Objects
//!
//! Each object owns the state that only it changes, and contains the lower ones: [`UbiDevice`] the
//! table of volumes; [`Lebs`] where each LEB is ([`Volumes`](entries::Volumes)); [`Pebs`] the state
//! of each block: how often it was erased and how good it is ([`Wear`](wear::Wear),
//! [`Pools`](pools::Pools)), which blocks form a fastmap ([`Fastmaps`](fastmap::Fastmaps)), how
//! many are available for what ([`Account`]); [`Io`](io::Io) the bytes in a block.
//!
//! # No threads
//!
//! [`UbiDevice::work`] does what Linux does in its background thread: erases and moves. The calls
//! that write also do it piecemeal: each does at most one overdue erase and one overdue move. An
//! allocation erases queued blocks until one is free. Of the blocks not reserved by volumes, one is
//! kept for changes and one for moves, so one is always free or queued.

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
use flysch_api::flash::{FlashError, FlashMut};
use flysch_wire::ubi::VolumeKind;

pub use error::UbiError;
pub use flysch_api::flash::ReadOnly;
pub use format::FormatOptions;
pub use update::Update;
pub use volume::DeviceVolume;
pub use volumes::NewVolume;

use crate::{Offsets, UbiImage, VolumeInfo};
use entries::{Entry, UNMAPPED};
use lebs::Lebs;
use pebs::Pebs;
use wear::State;

/// Queued erases are overdue if no more than this many blocks, and one in 64, are free.
const FREE_LOW: u32 = 2;

/// Number of blocks to try for one write after the first failed. Linux stops after three; a LEB of
/// many small pages on a chip that fails occasionally needs more, and each block that failed is
/// tested thoroughly before it is used again.
const BLOCK_TRIES: u32 = 15;

/// Options of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Difference between erase counters at which content is moved: 2 to 65536
    /// (`CONFIG_MTD_UBI_WL_THRESHOLD`; 4096 for parts with 100 000 erases, 128 to 256 for 10 000).
    pub wear_threshold: u32,
    /// Blocks expected to go bad per 1024, 0 to 768 (`CONFIG_MTD_UBI_BEB_LIMIT`). This many of the
    /// chip's blocks are reserved, less those that are already bad.
    pub bad_per_1024: u32,
    /// Whether to trust a fastmap when attaching and to keep it up to date while the device is
    /// written. It takes up twice its size in blocks. Attaching after a power cut then reads the
    /// headers of the first 64 blocks and of its pools (5 % of all, 8 to 256, and half as many),
    /// not of every block.
    pub fastmap: bool,
    /// Programming unit in bytes, if the flash does not know it (an image file); not smaller than
    /// what the flash reports. `None` for what the flash reports.
    pub write_size: Option<u32>,
    /// Whether to erase blocks whose content is not understood. Linux keeps them, and refuses to
    /// attach if there are more than 5 %.
    pub erase_corrupt: bool,
    /// Whether a volume that asks for it (`vol_flags=autoresize`) gets all free space now. This
    /// happens only once on a flash; an image that is only edited should keep the flag.
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

/// How the blocks of a device are allotted.
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
    /// Blocks reserved to replace blocks that go bad.
    pub bad_reserved: u32,
    /// Blocks available to volumes.
    pub available: u32,
}

/// Statistics since attaching.
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
    /// Writes that failed and were completed in another block.
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

    /// The flash, for injecting faults into a model; what UBI wrote must not be changed.
    pub fn flash_mut(&mut self) -> &mut F {
        &mut self.lebs.pebs.io.flash
    }

    /// Returns the flash as it is, as after a power cut; see [`detach`](Self::detach).
    pub fn into_flash(self) -> F {
        self.lebs.pebs.io.flash
    }

    /// Layout of each erase block.
    pub fn offsets(&self) -> Offsets {
        self.pebs().io.shape.offsets
    }

    /// Location and size of the image.
    pub fn image(&self) -> UbiImage {
        self.pebs().io.shape.image
    }

    /// Size of a logical erase block in bytes, before a volume's alignment.
    pub fn leb_size(&self) -> u32 {
        self.pebs().leb_size()
    }

    /// Programming unit, bytes.
    pub fn write_size(&self) -> u32 {
        self.pebs().write_size()
    }

    /// Everything found when the device was attached. All of it that can be repaired has been.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Why the device accepts no changes any more: a reason of its own ([`FlashError::ReadOnly`])
    /// or a failure of the flash. `None` if it accepts them.
    pub fn read_only(&self) -> Option<FlashError> {
        self.pebs().read_only
    }

    /// How the blocks are allotted.
    pub fn account(&self) -> Account {
        self.pebs().account
    }

    /// Statistics since attaching.
    pub fn statistics(&self) -> Statistics {
        self.pebs().statistics
    }

    /// Whether a fastmap made it unnecessary to read every header.
    pub fn attached_by_fastmap(&self) -> bool {
        self.attached_by_fastmap
    }

    /// Last sequence number used.
    pub fn sequence(&self) -> u64 {
        self.pebs().sequence
    }

    /// Blocks that wait for their erase.
    pub fn waiting(&self) -> u32 {
        self.pebs().wear.waiting_count()
    }

    /// How often each block was erased; `None` for blocks that are bad or left alone.
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

    /// Does up to `budget` pieces of background work, each one erase or one move of a LEB, erases
    /// first. Returns `true` if there is more to do.
    ///
    /// # Errors
    /// [`UbiError::ReadOnly`] if the device is read-only, or became read-only.
    pub fn work(&mut self, budget: u32) -> Result<bool, UbiError> {
        self.lebs.work(budget)
    }

    /// Erases every discarded block, and makes everything durable.
    ///
    /// # Errors
    /// [`UbiError::ReadOnly`] or [`UbiError::Flash`].
    pub fn sync(&mut self) -> Result<(), UbiError> {
        self.lebs.sync()
    }

    /// Finishes all pending work and writes the fastmap, if the device has one. The device may be
    /// used again afterwards.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn close(&mut self) -> Result<(), UbiError> {
        self.lebs.close()
    }

    /// Closes the device and returns the flash.
    ///
    /// # Errors
    /// As [`close`](Self::close); the flash is then lost too. To keep it, call that first, and then
    /// [`into_flash`](Self::into_flash).
    pub fn detach(mut self) -> Result<F, UbiError> {
        self.close()?;
        Ok(self.into_flash())
    }
}
