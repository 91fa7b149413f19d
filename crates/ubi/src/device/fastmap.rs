//! Keeps the fastmap up to date while the device works.
//!
//! A fastmap is valid as long as blocks are taken only from its pools, which every attach scans.
//! When a pool is empty, a new fastmap is written:
//!
//! 1. Its blocks come from the pools of the old one, where they were reserved for it. So the
//!    old one stays valid until the new one is complete, and a power cut costs no scan.
//! 2. The pools are refilled in memory; the blocks of the old one are queued for their erase.
//! 3. Headers are written first, that of the anchor before all others, and the last page of the
//!    anchor is written last.
//! 4. The old anchor is erased before anything else changes.
//!
//! If the pools have no blocks for the new one, the old one is invalidated first. It is also
//! invalidated when a block goes bad, and by a device that does not use fastmaps. Every other start
//! of a fastmap on the flash (an older one, or one that was not finished) is erased before the
//! first change.
//!
//! Linux does the same except for step 1: it takes the blocks from those that the old fastmap lists
//! as free, so a power cut while a fastmap is written costs a scan. Each can attach using the
//! other's fastmap.

use alloc::vec::Vec;

use flysch_api::flash::FlashMut;
use flysch_wire::ubi::crc32;
use flysch_wire::ubi::fastmap::{BLOCKS_MAX, START_MAX, Superblock};

use super::UbiError;
use super::lebs::Lebs;
use super::wear::State;
use crate::scan::Evidence;

/// The fastmap on the flash, and the remains of others.
#[derive(Debug, Default)]
pub(super) struct Fastmaps {
    /// Blocks of the valid one, its anchor first; empty if there is none.
    pub(super) current: Vec<u32>,
    /// First blocks of other fastmaps, oldest first: erased before anything changes.
    pub(super) void: Vec<u32>,
    /// Other blocks of other fastmaps.
    pub(super) leftover: Vec<u32>,
    /// Something has changed since the current one was written.
    pub(super) changed: bool,
    /// Number of blocks to be taken before another attempt to write one.
    wait: usize,
    /// One is being written.
    is_writing: bool,
    /// Whether to check if the anchor wears out before other blocks.
    look_at_anchor: bool,
}

impl Fastmaps {
    /// As found by attaching; `blocks` are all blocks of fastmaps.
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

impl<F: FlashMut> Lebs<F> {
    /// Called before a block is taken: writes a new fastmap if a pool is empty.
    pub(super) fn fill_user_pool(&mut self) -> Result<(), UbiError> {
        if !self.pebs.has_fastmap() || self.pebs.maps.is_writing {
            return Ok(());
        }
        match &self.pebs.wear.pools {
            Some(pools) if !pools.user.is_empty() => Ok(()),
            Some(_) => self.write_fastmap(),
            None if self.pebs.maps.wait > 0 => {
                self.pebs.maps.wait -= 1;
                Ok(())
            }
            None => self.write_fastmap(),
        }
    }

    /// Called before a LEB is moved: writes a new fastmap if the pool for moves is empty and would
    /// be refilled.
    pub(super) fn fill_move_pool(&mut self) -> Result<(), UbiError> {
        let is_empty = self.pebs.wear.pools.as_ref().is_some_and(|pools| pools.moves.is_empty());
        let enough = self.pebs.wear.free.len() >= self.pebs.pool_sizes().fastmap + 2;
        if !is_empty || !enough || self.pebs.maps.is_writing || !self.pebs.has_fastmap() {
            return Ok(());
        }
        self.write_fastmap()
    }

    /// Linux does not trust a fastmap whose pools hold blocks of volumes that it does not list.
    pub(super) fn volumes_changed(&mut self) -> Result<(), UbiError> {
        if self.pebs.maps.current.is_empty() { Ok(()) } else { self.write_fastmap() }
    }

    /// Writes a fastmap. If that fails, there is none on the flash.
    pub(super) fn write_fastmap(&mut self) -> Result<(), UbiError> {
        if !self.pebs.has_fastmap() {
            return Ok(());
        }
        self.pebs.maps.is_writing = true;
        let result = self.replace_fastmap();
        self.pebs.maps.is_writing = false;
        if result? {
            self.pebs.statistics.fastmaps += 1;
            self.pebs.maps.changed = false;
            self.pebs.maps.look_at_anchor = true;
        } else {
            self.pebs.void_fastmap()?;
            self.pebs.maps.wait = self.pebs.pool_sizes().user;
        }
        Ok(())
    }

    /// Returns `false` if there is no room, or programming failed.
    fn replace_fastmap(&mut self) -> Result<bool, UbiError> {
        let sizes = self.pebs.pool_sizes();
        while self.pebs.wear.free.len() < 2 * sizes.fastmap + 2 && self.pebs.erase_next()? {}
        let Some(blocks) = self.fastmap_place(sizes.fastmap)? else { return Ok(false) };
        for &peb in &blocks {
            self.pebs.wear.set_aside(peb, State::Fastmap);
        }
        let old = core::mem::take(&mut self.pebs.maps.current);
        let old_anchor = old.first().copied();
        old.iter().for_each(|&peb| self.pebs.wear.give_up(peb, false));
        let range = self.pebs.options.wear_threshold.saturating_mul(2);
        self.pebs.wear.fill_pools(&sizes, range, old_anchor);
        let is_reserve = self.pebs.wear.pools.as_ref().is_some_and(|pools| {
            old_anchor.is_some() && pools.reserve.first().copied() == old_anchor
        });
        if let Some(anchor) = old_anchor.filter(|_| is_reserve) {
            self.pebs.wear.unqueue(anchor);
        }
        let written = match self.fastmap_bytes(&blocks) {
            Some(bytes) => self.pebs.program_fastmap(&blocks, &bytes)?,
            None => {
                debug_assert!(false, "a block is in no list");
                false
            }
        };
        if written {
            self.pebs.maps.current = blocks;
        } else {
            self.pebs.maps.void.extend(old_anchor);
            self.pebs.maps.void.push(blocks[0]);
            self.pebs.maps.leftover.extend(&blocks[1..]);
            return Ok(false);
        }
        let Some(anchor) = old_anchor else { return Ok(true) };
        self.pebs.erase_anchor(anchor)?;
        if is_reserve {
            self.pebs.wear.keep_reserved(anchor);
        }
        Ok(true)
    }

    /// Erased blocks for a fastmap, the anchor first: from the pools of the current one or, once
    /// that is invalid, any. `None` if there are none.
    fn fastmap_place(&mut self, count: usize) -> Result<Option<Vec<u32>>, UbiError> {
        while let Some(blocks) = self.pebs.wear.take_members(count) {
            let is_erased = |&peb: &u32| {
                self.pebs.wear.pebs[peb as usize].checked || self.pebs.io.looks_erased(peb)
            };
            let (good, bad): (Vec<u32>, Vec<u32>) = blocks.iter().partition(|peb| is_erased(peb));
            if bad.is_empty() {
                return Ok(Some(blocks));
            }
            good.into_iter().for_each(|peb| self.pebs.wear.add_free(peb));
            bad.into_iter().for_each(|peb| self.pebs.wear.give_up(peb, false));
        }
        self.pebs.void_fastmap()?;
        let Some(anchor) = self.free_anchor()? else { return Ok(None) };
        let mut blocks = alloc::vec![anchor];
        while blocks.len() < count {
            if self.pebs.wear.free_count() + self.pebs.wear.waiting_count() == 0 {
                blocks.into_iter().for_each(|peb| self.pebs.wear.add_free(peb));
                return Ok(None);
            }
            blocks.push(self.allocate()?);
        }
        Ok(Some(blocks))
    }

    fn free_anchor(&mut self) -> Result<Option<u32>, UbiError> {
        for _ in 0..START_MAX {
            if let Some(peb) = self.pebs.wear.take_below(START_MAX) {
                if self.pebs.wear.pebs[peb as usize].checked || self.pebs.io.looks_erased(peb) {
                    return Ok(Some(peb));
                }
                self.pebs.erase_block(peb, false)?;
                continue;
            }
            if self.pebs.wear.waiting_count() > 0 {
                self.pebs.drain()?;
                continue;
            }
            // All are in use: one is moved elsewhere.
            let Some(peb) = self.pebs.wear.anchor_place(u32::MAX, 0) else { return Ok(None) };
            if self.pebs.wear.free_count() == 0 || !self.move_away(peb)? {
                return Ok(None);
            }
            self.pebs.drain()?;
        }
        Ok(None)
    }

    /// If the anchors, which must be among the first blocks, were erased much more often, moves a
    /// LEB that has not changed for a long time out of the first blocks.
    pub(super) fn level_anchor(&mut self) -> Result<(), UbiError> {
        if !core::mem::take(&mut self.pebs.maps.look_at_anchor) {
            return Ok(());
        }
        let Some(pools) = &self.pebs.wear.pools else { return Ok(()) };
        let spare = pools.moves.len() + pools.user.len();
        let Some(&anchor) = pools.reserve.first().filter(|_| spare > 2) else { return Ok(()) };
        let worn = self.pebs.wear.erase_counter(anchor);
        let Some(peb) = self.pebs.wear.anchor_place(worn, self.pebs.options.wear_threshold) else {
            return Ok(());
        };
        self.move_away(peb)?;
        Ok(())
    }

    /// `None` if a block is in none of the lists.
    fn fastmap_bytes(&self, blocks: &[u32]) -> Option<Vec<u8>> {
        let mut superblock = Superblock {
            data_crc: 0,
            used_blocks: blocks.len() as u32,
            locations: [0; BLOCKS_MAX],
            erase_counters: [0; BLOCKS_MAX],
            // Its own headers come after.
            sequence: self.pebs.sequence + blocks.len() as u64,
        };
        for (at, &peb) in blocks.iter().enumerate() {
            superblock.locations[at] = peb;
            superblock.erase_counters[at] = self.pebs.wear.erase_counter(peb);
        }
        let mut bytes = superblock.emit().to_vec();
        let listed = self.pebs.append_blocks(self.volumes.len() as u32, &mut bytes);
        if listed + superblock.used_blocks != self.pebs.io.shape.image.pebs {
            return None;
        }
        self.volumes.append_maps(self.pebs.leb_size(), &mut bytes);
        bytes.resize(blocks.len() * self.pebs.leb_size() as usize, 0);
        superblock.data_crc = crc32(&bytes);
        bytes[..Superblock::SIZE].copy_from_slice(&superblock.emit());
        Some(bytes)
    }
}
