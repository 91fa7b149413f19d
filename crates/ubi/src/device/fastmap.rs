//! The fastmap: written when nothing is pending, void before anything changes.
//!
//! Linux keeps a fastmap on the flash while it works and therefore takes blocks only from two pools
//! that every attach looks at. Here it is what a clean detach leaves, its pools are empty, and the
//! first change erases it: the next attach after a power cut reads every header. The format is the
//! same, so either can attach by the other's.

use alloc::vec::Vec;

use flysch_api::flash::FlashMut;
use flysch_wire::ubi::fastmap::{
    BLOCKS_MAX, DATA_VOLUME, EraseCounter, Header, MapHeader, POOL_MAX, Pool, START_MAX,
    SUPERBLOCK_VOLUME, Superblock, Volume,
};
use flysch_wire::ubi::{Compatibility, VOLUMES_MAX, VidHeader, VolumeKind, crc32};

use super::{Device, Error, ReadOnly, State};

/// Most blocks of a fastmap.
pub(super) const BLOCKS: usize = BLOCKS_MAX;
/// Smallest pool that a reader may fill.
const POOL_MIN: u32 = 8;

impl<F: FlashMut> Device<F> {
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

    /// Erases what starts a fastmap, the oldest first, so that none can be believed any more.
    pub(super) fn invalidate_fastmap(&mut self) -> Result<(), Error> {
        while let Some(anchor) = self.anchors.first().copied() {
            self.anchors.remove(0);
            if self.wear.state(anchor) == State::Fastmap {
                self.wear.set_aside(anchor, State::Taken);
            }
            // One in the queue is erased twice; it stays in its place there.
            if self.wear.state(anchor) == State::Taken {
                self.erase_block(anchor, false)?;
            }
        }
        for peb in core::mem::take(&mut self.fastmap) {
            if self.wear.state(peb) == State::Fastmap {
                self.wear.give_up(peb, false);
            }
        }
        Ok(())
    }

    /// Writes a fastmap, if all blocks are accounted for. The queue must be empty.
    pub(super) fn write_fastmap(&mut self) -> Result<(), Error> {
        let untouched = !self.anchors.is_empty();
        if untouched || self.account.kept > 0 || self.wear.waiting_count() > 0 {
            return Ok(());
        }
        let Some(blocks) = self.fastmap_place()? else { return Ok(()) };
        for &peb in &blocks {
            self.wear.set_aside(peb, State::Fastmap);
        }
        let bytes = self.fastmap_bytes(&blocks);
        let leb_size = self.leb_size() as usize;
        // The start comes last: before it is there, nothing is.
        for (lnum, part) in bytes.chunks(leb_size).enumerate().rev() {
            let vid = self.fastmap_header(lnum as u32);
            let peb = blocks[lnum];
            let written = self.io.write_vid(peb, &vid);
            if let Err(error) = written.and_then(|()| self.io.write_data(peb, 0, part)) {
                // The checksum does not fit; every header is read instead.
                return match self.is_block_failure(error) {
                    true => Ok(()),
                    false => Err(self.stop(ReadOnly::Flash(error))),
                };
            }
        }
        self.anchors = alloc::vec![blocks[0]];
        self.fastmap = blocks;
        Ok(())
    }

    /// Free blocks for a fastmap, the first among the first 64; `None` if there are none.
    fn fastmap_place(&mut self) -> Result<Option<Vec<u32>>, Error> {
        let mut blocks = Vec::new();
        let Some(anchor) = self.free_anchor()? else { return Ok(None) };
        blocks.push(anchor);
        for _ in 1..self.fastmap_blocks() {
            if self.wear.free_count() + self.wear.waiting_count() == 0 {
                blocks.iter().for_each(|&peb| self.wear.add_free(peb));
                return Ok(None);
            }
            blocks.push(self.allocate()?);
        }
        // Moving and checking may have given blocks up.
        self.drain()?;
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
            // All are in use: one is moved elsewhere.
            let limit = START_MAX.min(self.io.shape.image.pebs);
            let is_used = |peb: &u32| matches!(self.wear.state(*peb), State::Used { .. });
            let candidate =
                (0..limit).find(|peb| is_used(peb) && !self.wear.pebs[*peb as usize].unreadable);
            let Some(peb) = candidate else { return Ok(None) };
            if self.wear.free_count() == 0 || !self.move_away(peb)? {
                return Ok(None);
            }
            self.drain()?;
        }
        Ok(None)
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

    fn fastmap_bytes(&self, blocks: &[u32]) -> Vec<u8> {
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
        self.append_blocks(&mut bytes);
        self.append_maps(&mut bytes);
        bytes.resize(blocks.len() * self.leb_size() as usize, 0);
        superblock.data_crc = crc32(&bytes);
        bytes[..Superblock::SIZE].copy_from_slice(&superblock.emit());
        bytes
    }

    /// The header, the empty pools and the erase counters of all blocks.
    fn append_blocks(&self, bytes: &mut Vec<u8>) {
        let pebs = 0..self.io.shape.image.pebs;
        let with = |wanted: &dyn Fn(u32) -> bool| -> Vec<u32> {
            pebs.clone().filter(|&peb| wanted(peb)).collect()
        };
        let free = with(&|peb| self.wear.state(peb) == State::Free);
        let in_use = |peb| matches!(self.wear.state(peb), State::Used { .. });
        let used = with(&|peb| in_use(peb) && !self.wear.is_scrub(peb));
        let scrub = with(&|peb| in_use(peb) && self.wear.is_scrub(peb));
        let header = Header {
            free: free.len() as u32,
            used: used.len() as u32,
            scrub: scrub.len() as u32,
            bad: self.account.bad,
            erase: 0,
            volumes: self.volumes.len() as u32,
        };
        bytes.extend_from_slice(&header.emit());
        let size_max = (pebs.end / 20).clamp(POOL_MIN, POOL_MAX as u32) as u16;
        let pool = Pool { size: 0, size_max, pebs: [0; POOL_MAX] };
        bytes.extend_from_slice(&pool.emit());
        bytes.extend_from_slice(&Pool { size_max: size_max / 2, ..pool }.emit());
        for peb in free.into_iter().chain(used).chain(scrub) {
            let erase_counter = self.wear.erase_counter(peb);
            bytes.extend_from_slice(&EraseCounter { peb, erase_counter }.emit());
        }
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
