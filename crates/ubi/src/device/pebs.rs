//! Physical erase blocks as a device uses them: taking, erasing, discarding and marking them bad,
//! and which of them form a fastmap.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use flysch_api::flash::{self, FlashMut};
use flysch_wire::ubi::fastmap::{
    BLOCKS_MAX, DATA_VOLUME, EraseCounter, FastmapVolume, Header, MapHeader, POOL_MAX, Pool,
    START_MAX, SUPERBLOCK_VOLUME, Superblock,
};
use flysch_wire::ubi::{Compatibility, VOLUMES_MAX, VidHeader, VolumeKind};

use super::fastmap::Fastmaps;
use super::io::Io;
use super::open::{INTERNAL_BLOCKS, bad_limit};
use super::pools::Sizes;
use super::wear::{State, Wear};
use super::{Account, DeviceOptions, ReadOnly, Statistics, UbiError};
use crate::scan::Believed;

/// Sequence numbers from here on are not used. At 10 000 headers a second they are reached after
/// 58 million years, so a number beyond is damage; after the last one, older copies of LEBs would
/// win. UBIFS draws the same line (Linux `SQNUM_WATERMARK`); UBI in Linux has none.
pub(super) const SEQUENCE_WATERMARK: u64 = 0xffff_ffff_ff00_0000;

/// All erase blocks.
#[derive(Debug)]
pub(super) struct Pebs<F> {
    pub(super) io: Io<F>,
    pub(super) options: DeviceOptions,
    pub(super) wear: Wear,
    pub(super) maps: Fastmaps,
    pub(super) account: Account,
    /// Last sequence number used.
    pub(super) sequence: u64,
    pub(super) read_only: Option<flash::FlashError>,
    pub(super) statistics: Statistics,
}

impl<F: FlashMut> Pebs<F> {
    /// Size of a logical erase block in bytes, before a volume's alignment.
    pub(super) fn leb_size(&self) -> u32 {
        self.io.shape.leb_size()
    }

    /// Programming unit, bytes.
    pub(super) fn write_size(&self) -> u32 {
        self.io.shape.write_size
    }

    /// Fails if the device is read-only. Before the first change, invalidates everything that might
    /// be taken for a valid fastmap.
    pub(super) fn begin(&mut self) -> Result<(), UbiError> {
        if let Some(why) = self.read_only {
            return Err(UbiError::ReadOnly(why));
        }
        if let Some(block) = self.wear.wrong.first() {
            return Err(self.stop(ReadOnly::Fastmap { block }));
        }
        self.settle_fastmaps()
    }

    /// Makes the device read-only.
    pub(super) fn stop(&mut self, why: impl Into<flash::FlashError>) -> UbiError {
        UbiError::ReadOnly(*self.read_only.get_or_insert(why.into()))
    }

    /// The number of the next header to be written.
    pub(super) fn next_sequence(&mut self) -> Result<u64, UbiError> {
        match self.sequence.checked_add(1).filter(|next| *next < SEQUENCE_WATERMARK) {
            Some(next) => {
                self.sequence = next;
                Ok(next)
            }
            None => Err(self.stop(ReadOnly::SequenceEnd { sequence: self.sequence })),
        }
    }

    /// Erases every discarded block.
    pub(super) fn drain(&mut self) -> Result<(), UbiError> {
        while self.erase_next()? {}
        Ok(())
    }

    /// Erases the block that has waited longest; `false` if none is waiting.
    pub(super) fn erase_next(&mut self) -> Result<bool, UbiError> {
        let Some(waiting) = self.wear.next_waiting() else { return Ok(false) };
        self.erase_block(waiting.peb, waiting.torture)?;
        Ok(true)
    }

    /// Erases a block and makes it free, or marks it bad.
    pub(super) fn erase_block(&mut self, peb: u32, torture: bool) -> Result<(), UbiError> {
        self.maps.changed = true;
        if self.went_bad(peb).map_err(|error| self.stop(error))? {
            return self.mark_again(peb);
        }
        let erase_counter = self.known_erase_counter(peb).saturating_add(1);
        if u64::from(erase_counter) > flysch_wire::ubi::ERASE_COUNTER_MAX {
            self.wear.set_aside(peb, State::Kept);
            return Err(self.stop(ReadOnly::WornOut { block: peb }));
        }
        self.statistics.tortures += u64::from(torture);
        match self.io.erase(peb, erase_counter, torture) {
            Ok(()) => {
                self.statistics.erases += 1;
                self.wear.erased(peb, erase_counter);
                Ok(())
            }
            Err(
                flash::FlashError::EraseFailed { .. } | flash::FlashError::ProgramFailed { .. },
            ) if self.io.bad_allowed() => self.retire(peb),
            // Power went while it was marked, and the marker was not read before.
            Err(flash::FlashError::BadBlock { .. }) => self.mark_again(peb),
            Err(error) => {
                self.wear.set_aside(peb, State::Kept);
                Err(self.stop(error))
            }
        }
    }

    /// Marks a block bad and replaces it by one of the reserve.
    pub(super) fn retire(&mut self, peb: u32) -> Result<(), UbiError> {
        if self.account.bad_reserved == 0 && self.account.available == 0 {
            self.wear.set_aside(peb, State::Kept);
            let bad = self.account.bad;
            return Err(self.stop(ReadOnly::PoolEmpty { block: peb, bad }));
        }
        if let Err(error) = self.io.mark_bad(peb) {
            self.wear.set_aside(peb, State::Kept);
            return Err(self.stop(error));
        }
        self.count_bad(peb);
        self.statistics.gone_bad += 1;
        // It is in a list where bad ones are not.
        self.void_fastmap()
    }

    /// A block was being marked bad when power was lost: the marker may be incomplete.
    pub(super) fn mark_again(&mut self, peb: u32) -> Result<(), UbiError> {
        let Account { bad, bad_reserved, available, .. } = self.account;
        let marked = self.io.mark_bad(peb);
        self.count_bad(peb);
        marked.map_err(|error| self.stop(error))?;
        if bad_reserved == 0 && available == 0 {
            return Err(self.stop(ReadOnly::PoolEmpty { block: peb, bad }));
        }
        Ok(())
    }

    /// Notes that a block is marked bad.
    pub(super) fn count_bad(&mut self, peb: u32) {
        self.wear.set_aside(peb, State::Bad);
        self.account.bad += 1;
        match &mut self.account {
            Account { bad_reserved: 0, available, .. } => *available = available.saturating_sub(1),
            Account { bad_reserved, .. } => *bad_reserved -= 1,
        }
    }

    /// Whether another block may succeed.
    pub(super) fn is_block_failure(&self, error: flash::FlashError) -> bool {
        matches!(error, flash::FlashError::ProgramFailed { .. }) && self.io.bad_allowed()
    }

    /// Continues with the fastmap by which the device was attached.
    pub(super) fn adopt_fastmap(&mut self, found: &Believed) {
        if self.has_fastmap() && !self.maps.current.is_empty() {
            self.wear.adopt_pools(&found.pools);
        }
    }

    /// Number of blocks of a fastmap of this device.
    pub(super) fn fastmap_blocks(&self) -> u32 {
        let pebs = self.io.shape.image.pebs as usize;
        let size = Superblock::SIZE
            + Header::SIZE
            + 2 * Pool::SIZE
            + pebs * (EraseCounter::SIZE + 4)
            + (MapHeader::SIZE + FastmapVolume::SIZE) * (VOLUMES_MAX as usize + 1);
        size.div_ceil(self.leb_size() as usize) as u32
    }

    /// Sizes of the pools.
    pub(super) fn pool_sizes(&self) -> Sizes {
        Sizes::new(self.io.shape.image.pebs, self.fastmap_blocks() as usize)
    }

    /// Whether fastmaps are written: all blocks must be accounted for.
    pub(super) fn has_fastmap(&self) -> bool {
        self.options.fastmap && self.account.kept == 0
    }

    /// Before a change: ensures that nothing but the current fastmap can be trusted, and not even
    /// that if the device is not to have one.
    pub(super) fn settle_fastmaps(&mut self) -> Result<(), UbiError> {
        self.erase_void_anchors()?;
        if !self.has_fastmap() && !self.maps.current.is_empty() {
            self.void_fastmap()?;
        }
        Ok(())
    }

    pub(super) fn erase_void_anchors(&mut self) -> Result<(), UbiError> {
        while !self.maps.void.is_empty() {
            let anchor = self.maps.void.remove(0);
            self.erase_anchor(anchor)?;
        }
        for peb in core::mem::take(&mut self.maps.leftover) {
            if self.wear.state(peb) == State::Fastmap {
                self.wear.give_up(peb, false);
            }
        }
        Ok(())
    }

    /// Erases a block that starts a fastmap, wherever it is in the queue.
    pub(super) fn erase_anchor(&mut self, anchor: u32) -> Result<(), UbiError> {
        if matches!(self.wear.state(anchor), State::Fastmap | State::Waiting | State::Taken) {
            self.wear.unqueue(anchor);
            self.erase_block(anchor, false)?;
        }
        Ok(())
    }

    /// Erases the current fastmap's anchor; from now on blocks are taken freely.
    pub(super) fn void_fastmap(&mut self) -> Result<(), UbiError> {
        // An older one must not be the newest.
        self.erase_void_anchors()?;
        let blocks = core::mem::take(&mut self.maps.current);
        if let Some((&anchor, others)) = blocks.split_first() {
            self.erase_anchor(anchor)?;
            others.iter().for_each(|&peb| self.wear.give_up(peb, false));
        }
        self.wear.empty_pools();
        Ok(())
    }

    /// Blocks that should be free and not in a pool, so that the next fastmap finds enough.
    pub(super) fn wants_free(&self) -> bool {
        self.wear.pools.is_some() && self.wear.free.len() < self.pool_sizes().sum()
    }

    /// Programs a complete fastmap; `false` if a block failed.
    pub(super) fn program_fastmap(
        &mut self,
        blocks: &[u32],
        bytes: &[u8],
    ) -> Result<bool, UbiError> {
        for (lnum, &peb) in (0..).zip(blocks) {
            let vid = self.fastmap_header(lnum)?;
            let written = self.io.write_vid(peb, &vid);
            if !self.is_programmed(written)? {
                return Ok(false);
            }
        }
        // The anchor last, so that its last page tells whether all is there.
        let leb_size = self.leb_size() as usize;
        for (lnum, part) in bytes.chunks(leb_size).enumerate().rev() {
            let written = self.io.write_data(blocks[lnum], 0, part);
            if !self.is_programmed(written)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn is_programmed(
        &mut self,
        written: Result<(), flash::FlashError>,
    ) -> Result<bool, UbiError> {
        match written {
            Ok(()) => Ok(true),
            Err(error) if self.is_block_failure(error) => Ok(false),
            Err(error) => Err(self.stop(error)),
        }
    }

    pub(super) fn fastmap_header(&mut self, lnum: u32) -> Result<VidHeader, UbiError> {
        Ok(VidHeader {
            kind: VolumeKind::Dynamic,
            copy: false,
            compatibility: Compatibility::Delete,
            volume: if lnum == 0 { SUPERBLOCK_VOLUME } else { DATA_VOLUME },
            lnum,
            data_size: 0,
            used_ebs: 0,
            data_pad: 0,
            data_crc: 0,
            sequence: self.next_sequence()?,
        })
    }

    /// The block information of a fastmap: the header, the pools and all erase counters; returns
    /// the number of counters.
    pub(super) fn append_blocks(&self, volumes: u32, bytes: &mut Vec<u8>) -> u32 {
        let pebs = 0..self.io.shape.image.pebs;
        let with = |wanted: &dyn Fn(u32) -> bool| -> Vec<u32> {
            pebs.clone().filter(|&peb| wanted(peb)).collect()
        };
        let free = with(&|peb| self.wear.state(peb) == State::Free);
        let in_use = |peb| matches!(self.wear.state(peb), State::Used { .. });
        let used = with(&|peb| in_use(peb) && !self.wear.is_scrub(peb));
        let scrub = with(&|peb| in_use(peb) && self.wear.is_scrub(peb));
        let erase: Vec<u32> = self.wear.queue.iter().map(|waiting| waiting.peb).collect();
        let header = Header {
            free: free.len() as u32,
            used: used.len() as u32,
            scrub: scrub.len() as u32,
            bad: self.account.bad,
            erase: erase.len() as u32,
            volumes,
        };
        bytes.extend_from_slice(&header.emit());
        let sizes = self.pool_sizes();
        let lists = self.wear.pools.as_ref().map_or_else(Default::default, |pools| pools.lists());
        for (list, size_max) in lists.iter().zip([sizes.user, sizes.moves]) {
            let mut pebs = [0; POOL_MAX];
            pebs[..list.len()].copy_from_slice(list);
            let (size, size_max) = (list.len() as u16, size_max as u16);
            bytes.extend_from_slice(&Pool { size, size_max, pebs }.emit());
        }
        let listed = header.free + header.used + header.scrub + header.erase + header.bad;
        for peb in free.into_iter().chain(used).chain(scrub).chain(erase) {
            let erase_counter = self.wear.erase_counter(peb);
            bytes.extend_from_slice(&EraseCounter { peb, erase_counter }.emit());
        }
        listed + lists.iter().map(|list| list.len() as u32).sum::<u32>()
    }

    /// Blocks that would have been taken next may have been programmed when power was lost,
    /// although they look erased: they are erased before they are taken.
    pub(super) fn distrust(&mut self) {
        if self.wear.pools.is_some() {
            let fastmap = self.fastmap_blocks() as usize;
            let next = self.wear.pools.as_mut().map_or_else(Vec::new, |p| p.take_next(fastmap));
            next.into_iter().for_each(|peb| self.wear.give_up(peb, false));
        } else {
            let range = self.options.wear_threshold.saturating_mul(2);
            let anchors = if self.options.fastmap { START_MAX } else { 0 };
            for peb in self.wear.next_free(range, anchors).into_iter().flatten() {
                if self.wear.state(peb) == State::Free {
                    self.wear.give_up(peb, false);
                }
            }
        }
    }

    /// Allots the blocks, of which volumes reserve this many. If none are left for a fastmap, there
    /// will be none.
    pub(super) fn take_stock(&mut self, volumes: u32) -> Result<(), UbiError> {
        let count =
            |wear: &Wear, state| wear.pebs.iter().filter(|peb| peb.state == state).count() as u32;
        let (bad, kept) = (count(&self.wear, State::Bad), count(&self.wear, State::Kept));
        let blocks = self.io.shape.image.pebs;
        let good = blocks - bad - kept;
        let reserved = volumes + INTERNAL_BLOCKS;
        let Some(mut available) = good.checked_sub(reserved) else {
            return Err(UbiError::NoSpace { wanted: reserved, available: good });
        };
        let mut reserved = reserved;
        if self.options.fastmap {
            // The one on the flash and the next one.
            let blocks = 2 * self.fastmap_blocks();
            match available.checked_sub(blocks) {
                Some(left) if self.fastmap_blocks() as usize <= BLOCKS_MAX => {
                    available = left;
                    reserved += blocks;
                }
                _ => self.options.fastmap = false,
            }
        }
        let level = match self.io.bad_allowed() {
            true => bad_limit(blocks, self.options.bad_per_1024).saturating_sub(bad),
            false => 0,
        };
        let bad_reserved = level.min(available);
        available -= bad_reserved;
        self.account = Account { blocks, bad, kept, reserved, bad_reserved, available };
        Ok(())
    }

    /// Blocks missing from the reserve for bad blocks.
    pub(super) fn bad_reserve_missing(&self) -> u32 {
        if !self.io.bad_allowed() {
            return 0;
        }
        let limit = bad_limit(self.account.blocks, self.options.bad_per_1024);
        limit.saturating_sub(self.account.bad).saturating_sub(self.account.bad_reserved)
    }

    /// Fails if fewer blocks than these are available to volumes.
    pub(super) fn check_available(&self, blocks: u32) -> Result<(), UbiError> {
        let available = self.account.available;
        if blocks > available {
            return Err(UbiError::NoSpace { wanted: blocks, available });
        }
        Ok(())
    }

    /// Blocks that a volume gets, out of those available; fails if there are fewer.
    pub(super) fn hand_out(&mut self, blocks: u32) -> Result<(), UbiError> {
        self.check_available(blocks)?;
        self.account.available -= blocks;
        self.account.reserved += blocks;
        Ok(())
    }

    /// Blocks that no volume needs any more; the reserve for bad blocks gets them first.
    pub(super) fn give_back(&mut self, blocks: u32) {
        self.account.reserved -= blocks;
        let missing = self.bad_reserve_missing().min(blocks);
        self.account.bad_reserved += missing;
        self.account.available += blocks - missing;
    }

    /// A free block; if there is none, the first one in the erase queue that is not in `older`.
    pub(super) fn spare_block(&mut self, older: &BTreeSet<u32>) -> Result<Option<u32>, UbiError> {
        loop {
            let range = self.options.wear_threshold.saturating_mul(2);
            if let Some(peb) = self.wear.take().or_else(|| self.wear.take_worn(range)) {
                if self.wear.pebs[peb as usize].checked || self.io.looks_erased(peb) {
                    return Ok(Some(peb));
                }
                self.wear.give_up(peb, false);
                continue;
            }
            // What is erased now is in no pool.
            self.void_fastmap()?;
            if self.wear.free_count() > 0 {
                continue;
            }
            let waiting = self.wear.queue.iter().map(|waiting| waiting.peb);
            let Some(peb) = { waiting }.find(|peb| !older.contains(peb)) else { return Ok(None) };
            self.wear.unqueue(peb);
            self.erase_block(peb, false)?;
        }
    }
}
