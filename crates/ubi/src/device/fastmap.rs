//! The fastmap kept up to date while the device works.
//!
//! A fastmap is true as long as blocks are taken only from its pools, which every attach looks at.
//! When a pool is empty, a new one is written:
//!
//! 1. Its blocks come from the pools of the old one, where they were kept back. So the old one
//!    stays true until the new one is whole: a cut costs no scan.
//! 2. The pools are filled again, in memory; the old one's blocks are queued for their erase.
//! 3. Headers are written first, the anchor's before all, and the last page of the anchor last.
//! 4. The old anchor is erased before anything else changes.
//!
//! Where the pools have no blocks for it, the old one is made void first. It is made void as well
//! when a block goes bad, and by a device that uses no fastmaps. Whatever else starts a fastmap -
//! an older one, or one that was not finished - is erased before the first change.
//!
//! Linux does the same but for step 1: it takes the blocks from those that the old one calls free,
//! so that a cut while a fastmap is written costs a scan. Either attaches by the other's.

use alloc::vec::Vec;

use flysch_api::flash::{self, FlashMut};
use flysch_wire::ubi::fastmap::{
    BLOCKS_MAX, DATA_VOLUME, EraseCounter, Header, MapHeader, POOL_MAX, Pool, START_MAX,
    SUPERBLOCK_VOLUME, Superblock, Volume,
};
use flysch_wire::ubi::{Compatibility, VOLUMES_MAX, VidHeader, VolumeKind, crc32};

use super::pools::Sizes;
use super::{Device, Error, ReadOnly, State};
use crate::attach::Evidence;
use crate::fastmap::Believed;

/// Most blocks of a fastmap.
pub(super) const BLOCKS: usize = BLOCKS_MAX;

/// The fastmap on the flash, and what is left of others.
#[derive(Debug, Default)]
pub(super) struct Fastmaps {
    /// Blocks of the one that is true, its anchor first; none if none is.
    pub(super) current: Vec<u32>,
    /// First blocks of others, the oldest first: erased before anything changes.
    pub(super) void: Vec<u32>,
    /// Other blocks of others.
    pub(super) leftover: Vec<u32>,
    /// Something changed since the current one was written.
    pub(super) changed: bool,
    /// Blocks taken until writing one is tried again.
    wait: usize,
    /// One is being written.
    is_writing: bool,
    /// Whether the anchor wears out before others is to be looked at.
    look_at_anchor: bool,
}

impl Fastmaps {
    /// As attaching found them; `blocks` are all blocks of fastmaps.
    pub(super) fn found(evidence: &Evidence, blocks: Vec<u32>) -> Self {
        let current = evidence.fastmap.as_ref().map_or_else(Vec::new, |map| map.blocks.clone());
        let mut anchors = evidence.anchors.clone();
        anchors.sort_unstable();
        anchors.dedup();
        let is_other = |peb: &u32| !current.contains(peb);
        let void = anchors.into_iter().map(|anchor| anchor.1).filter(is_other).collect();
        let leftover = blocks.into_iter().filter(is_other).collect();
        Self { void, leftover, current, ..Self::default() }
    }
}

impl<F: FlashMut> Device<F> {
    /// Goes on with the fastmap that was attached by.
    pub(super) fn adopt_fastmap(&mut self, found: &Believed) {
        if self.has_fastmap() && !self.maps.current.is_empty() {
            self.wear.adopt_pools(&found.pools);
        }
    }

    /// Blocks that a fastmap of this device takes.
    pub(super) fn fastmap_blocks(&self) -> u32 {
        let pebs = self.io.shape.image.pebs as usize;
        let size = Superblock::SIZE
            + Header::SIZE
            + 2 * Pool::SIZE
            + pebs * (EraseCounter::SIZE + 4)
            + (MapHeader::SIZE + Volume::SIZE) * (VOLUMES_MAX as usize + 1);
        size.div_ceil(self.leb_size() as usize) as u32
    }

    /// Sizes of the pools.
    pub(super) fn pool_sizes(&self) -> Sizes {
        Sizes::new(self.io.shape.image.pebs, self.fastmap_blocks() as usize)
    }

    /// Whether fastmaps are written: all blocks must be accounted for.
    fn has_fastmap(&self) -> bool {
        self.options.fastmap && self.account.kept == 0
    }

    /// Before a change: nothing but the current fastmap can be believed, and not even that if the
    /// device is not to have one.
    pub(super) fn settle_fastmaps(&mut self) -> Result<(), Error> {
        self.erase_void_anchors()?;
        if !self.has_fastmap() && !self.maps.current.is_empty() {
            self.void_fastmap()?;
        }
        Ok(())
    }

    fn erase_void_anchors(&mut self) -> Result<(), Error> {
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
    fn erase_anchor(&mut self, anchor: u32) -> Result<(), Error> {
        if matches!(self.wear.state(anchor), State::Fastmap | State::Waiting | State::Taken) {
            self.wear.unqueue(anchor);
            self.erase_block(anchor, false)?;
        }
        Ok(())
    }

    /// Erases the current fastmap's anchor; blocks are taken freely from now on.
    pub(super) fn void_fastmap(&mut self) -> Result<(), Error> {
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

    /// Before a block is taken: a new fastmap if a pool is empty.
    pub(super) fn fill_user_pool(&mut self) -> Result<(), Error> {
        if !self.has_fastmap() || self.maps.is_writing {
            return Ok(());
        }
        match &self.wear.pools {
            Some(pools) if !pools.user.is_empty() => Ok(()),
            Some(_) => self.write_fastmap(),
            None if self.maps.wait > 0 => {
                self.maps.wait -= 1;
                Ok(())
            }
            None => self.write_fastmap(),
        }
    }

    /// Before a LEB is moved: a new fastmap if the pool for moves is empty and would be filled.
    pub(super) fn fill_move_pool(&mut self) -> Result<(), Error> {
        let is_empty = self.wear.pools.as_ref().is_some_and(|pools| pools.moves.is_empty());
        let enough = self.wear.free.len() >= self.pool_sizes().fastmap + 2;
        if !is_empty || !enough || self.maps.is_writing || !self.has_fastmap() {
            return Ok(());
        }
        self.write_fastmap()
    }

    /// Linux believes no fastmap whose pools hold blocks of volumes that it does not list.
    pub(super) fn volumes_changed(&mut self) -> Result<(), Error> {
        if self.maps.current.is_empty() { Ok(()) } else { self.write_fastmap() }
    }

    /// Blocks that should be free and in no pool, so that the next fastmap finds enough.
    pub(super) fn wants_free(&self) -> bool {
        self.wear.pools.is_some() && self.wear.free.len() < self.pool_sizes().sum()
    }

    /// Writes a fastmap. Where that can not be done, none is on the flash.
    pub(super) fn write_fastmap(&mut self) -> Result<(), Error> {
        if !self.has_fastmap() {
            return Ok(());
        }
        self.maps.is_writing = true;
        let result = self.replace_fastmap();
        self.maps.is_writing = false;
        if result? {
            self.statistics.fastmaps += 1;
            self.maps.changed = false;
            self.maps.look_at_anchor = true;
        } else {
            self.void_fastmap()?;
            self.maps.wait = self.pool_sizes().user;
        }
        Ok(())
    }

    /// `false` if there is no room, or programming failed.
    fn replace_fastmap(&mut self) -> Result<bool, Error> {
        let sizes = self.pool_sizes();
        while self.wear.free.len() < 2 * sizes.fastmap + 2 && self.erase_next()? {}
        let Some(blocks) = self.fastmap_place(sizes.fastmap)? else { return Ok(false) };
        for &peb in &blocks {
            self.wear.set_aside(peb, State::Fastmap);
        }
        let old = core::mem::take(&mut self.maps.current);
        let old_anchor = old.first().copied();
        old.iter().for_each(|&peb| self.wear.give_up(peb, false));
        let range = self.options.wear_threshold.saturating_mul(2);
        self.wear.fill_pools(&sizes, range, old_anchor);
        let is_reserve = self.wear.pools.as_ref().is_some_and(|pools| {
            old_anchor.is_some() && pools.reserve.first().copied() == old_anchor
        });
        if let Some(anchor) = old_anchor.filter(|_| is_reserve) {
            self.wear.unqueue(anchor);
        }
        let written = self.program_fastmap(&blocks)?;
        if written {
            self.maps.current = blocks;
        } else {
            self.maps.void.extend(old_anchor);
            self.maps.void.push(blocks[0]);
            self.maps.leftover.extend(&blocks[1..]);
            return Ok(false);
        }
        let Some(anchor) = old_anchor else { return Ok(true) };
        self.erase_anchor(anchor)?;
        if is_reserve {
            self.wear.keep_reserved(anchor);
        }
        Ok(true)
    }

    /// Erased blocks for a fastmap, the anchor first: of the current one's pools, or any once that
    /// one is void. `None` if there are none.
    fn fastmap_place(&mut self, count: usize) -> Result<Option<Vec<u32>>, Error> {
        while let Some(blocks) = self.wear.take_members(count) {
            let is_erased =
                |&peb: &u32| self.wear.pebs[peb as usize].checked || self.io.looks_erased(peb);
            let (good, bad): (Vec<u32>, Vec<u32>) = blocks.iter().partition(|peb| is_erased(peb));
            if bad.is_empty() {
                return Ok(Some(blocks));
            }
            good.into_iter().for_each(|peb| self.wear.add_free(peb));
            bad.into_iter().for_each(|peb| self.wear.give_up(peb, false));
        }
        self.void_fastmap()?;
        let Some(anchor) = self.free_anchor()? else { return Ok(None) };
        let mut blocks = alloc::vec![anchor];
        while blocks.len() < count {
            if self.wear.free_count() + self.wear.waiting_count() == 0 {
                blocks.into_iter().for_each(|peb| self.wear.add_free(peb));
                return Ok(None);
            }
            blocks.push(self.allocate()?);
        }
        Ok(Some(blocks))
    }

    fn free_anchor(&mut self) -> Result<Option<u32>, Error> {
        for _ in 0..START_MAX {
            if let Some(peb) = self.wear.take_below(START_MAX) {
                if self.wear.pebs[peb as usize].checked || self.io.looks_erased(peb) {
                    return Ok(Some(peb));
                }
                self.erase_block(peb, false)?;
                continue;
            }
            if self.wear.waiting_count() > 0 {
                self.drain()?;
                continue;
            }
            // All are in use: one is moved elsewhere.
            let Some(peb) = self.wear.anchor_place(u32::MAX, 0) else { return Ok(None) };
            if self.wear.free_count() == 0 || !self.move_away(peb)? {
                return Ok(None);
            }
            self.drain()?;
        }
        Ok(None)
    }

    /// Moves a LEB that was not changed for long out of the first blocks when the anchors, which
    /// have to be there, were erased much more often.
    pub(super) fn level_anchor(&mut self) -> Result<(), Error> {
        if !core::mem::take(&mut self.maps.look_at_anchor) {
            return Ok(());
        }
        let Some(pools) = &self.wear.pools else { return Ok(()) };
        let spare = pools.moves.len() + pools.user.len();
        let Some(&anchor) = pools.reserve.first().filter(|_| spare > 2) else { return Ok(()) };
        let worn = self.wear.erase_counter(anchor);
        let Some(peb) = self.wear.anchor_place(worn, self.options.wear_threshold) else {
            return Ok(());
        };
        self.move_away(peb)?;
        Ok(())
    }

    /// Programs all of a fastmap; `false` if a block failed.
    fn program_fastmap(&mut self, blocks: &[u32]) -> Result<bool, Error> {
        let Some(bytes) = self.fastmap_bytes(blocks) else {
            debug_assert!(false, "a block is in no list");
            return Ok(false);
        };
        for (lnum, &peb) in (0..).zip(blocks) {
            let vid = self.fastmap_header(lnum);
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

    fn is_programmed(&mut self, written: Result<(), flash::Error>) -> Result<bool, Error> {
        match written {
            Ok(()) => Ok(true),
            Err(error) if self.is_block_failure(error) => Ok(false),
            Err(error) => Err(self.stop(ReadOnly::Flash(error))),
        }
    }

    fn fastmap_header(&mut self, lnum: u32) -> VidHeader {
        VidHeader {
            kind: VolumeKind::Dynamic,
            copy: false,
            compatibility: Compatibility::Delete,
            volume: if lnum == 0 { SUPERBLOCK_VOLUME } else { DATA_VOLUME },
            lnum,
            data_size: 0,
            used_ebs: 0,
            data_pad: 0,
            data_crc: 0,
            sequence: self.next_sequence(),
        }
    }

    /// `None` if a block is in none of the lists.
    fn fastmap_bytes(&self, blocks: &[u32]) -> Option<Vec<u8>> {
        let mut superblock = Superblock {
            data_crc: 0,
            used_blocks: blocks.len() as u32,
            locations: [0; BLOCKS_MAX],
            erase_counters: [0; BLOCKS_MAX],
            // Its own headers come after.
            sequence: self.sequence + blocks.len() as u64,
        };
        for (at, &peb) in blocks.iter().enumerate() {
            superblock.locations[at] = peb;
            superblock.erase_counters[at] = self.wear.erase_counter(peb);
        }
        let mut bytes = superblock.emit().to_vec();
        let listed = self.append_blocks(&mut bytes);
        if listed + superblock.used_blocks != self.io.shape.image.pebs {
            return None;
        }
        self.append_maps(&mut bytes);
        bytes.resize(blocks.len() * self.leb_size() as usize, 0);
        superblock.data_crc = crc32(&bytes);
        bytes[..Superblock::SIZE].copy_from_slice(&superblock.emit());
        Some(bytes)
    }

    /// The header, the pools and the erase counters of all blocks; returns how many those are.
    fn append_blocks(&self, bytes: &mut Vec<u8>) -> u32 {
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
            volumes: self.volumes.len() as u32,
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

    fn append_maps(&self, bytes: &mut Vec<u8>) {
        for (&id, entry) in &self.volumes {
            let usable = self.leb_size() - entry.data_pad;
            // Dynamic volumes are used to their end.
            let used = match entry.kind {
                VolumeKind::Static => entry.used_bytes,
                VolumeKind::Dynamic => u64::from(usable) * entry.map.len() as u64,
            };
            let last = (used % u64::from(usable)) as u32;
            let volume = Volume {
                volume: id,
                kind: entry.kind,
                data_pad: entry.data_pad,
                used_ebs: used.div_ceil(u64::from(usable)) as u32,
                last_eb_bytes: if last == 0 && used > 0 { usable } else { last },
            };
            bytes.extend_from_slice(&volume.emit());
            let reserved_pebs = entry.map.len() as u32;
            bytes.extend_from_slice(&MapHeader { reserved_pebs }.emit());
            for peb in &entry.map {
                bytes.extend_from_slice(&peb.to_be_bytes());
            }
        }
    }
}
