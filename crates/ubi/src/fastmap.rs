//! Attaching by fastmap: what it lists is looked at, and nothing else.
//!
//! Anything that does not add up - a checksum, a count, a block named twice - makes the caller read
//! every header instead; a fastmap is never half believed. Linux trusts the map and looks at a
//! block's header when the block is first read, because a LEB may have been unmapped and erased
//! since; here the volume identifiers of mapped blocks are read at once.

use alloc::vec::Vec;

use flysch_api::flash::Flash;
use flysch_wire::ubi::fastmap::{
    EraseCounter, FastmapError, Header, MapHeader, Pool, START_MAX, SUPERBLOCK_VOLUME, Superblock,
    UNMAPPED, Volume,
};
use flysch_wire::ubi::{HeaderError, VOLUMES_MAX, crc32};

use crate::attach::Attach;
use crate::blocks::{Block, Content};

/// Attaches by fastmap; `false` if there is none.
pub(crate) fn attach<F: Flash + ?Sized>(attach: &mut Attach<'_, F>) -> Result<bool, FastmapError> {
    let anchors = find_anchors(attach);
    let Some(&(_, anchor)) = anchors.iter().max() else { return Ok(false) };
    let (superblock, bytes) = load(attach, anchor)?;
    let mut cursor = Cursor { rest: &bytes[Superblock::SIZE..] };
    let header = Header::parse(cursor.take(Header::SIZE)?)?;
    let pools = [Pool::parse(cursor.take(Pool::SIZE)?)?, Pool::parse(cursor.take(Pool::SIZE)?)?];
    let mut blocks = Blocks::new(attach.reader.image.pebs);
    let own = superblock.locations.iter().zip(&superblock.erase_counters);
    for (&peb, &erase_counter) in own.take(superblock.used_blocks as usize) {
        blocks.set(peb, Some(erase_counter), Content::Fastmap)?;
    }
    let used = blocks.list(&mut cursor, &header)?;
    for pool in &pools {
        for &peb in pool.pebs() {
            // A pool's blocks are in none of the lists.
            blocks.set(peb, None, Content::Free)?;
        }
    }
    blocks.finish(header.bad)?;
    attach.blocks = blocks.into_table();
    attach.evidence.anchors = anchors.iter().map(|anchor| anchor.1).collect();
    // Linux leaves the superblock's own number 0.
    let newest = locations_newest(attach, &superblock);
    attach.sequence_max = superblock.sequence.max(newest);
    read_maps(attach, &mut cursor, &header, &used)?;
    for pool in &pools {
        for &peb in pool.pebs() {
            scan(attach, peb)?;
        }
    }
    Ok(true)
}

/// The blocks that start a fastmap, each with its sequence number.
fn find_anchors<F: Flash + ?Sized>(attach: &Attach<'_, F>) -> Vec<(u64, u32)> {
    let candidates = 0..START_MAX.min(attach.reader.image.pebs);
    let anchors = candidates.filter_map(|peb| {
        let vid = attach.reader.headers(peb, attach.offsets).vid.ok()?;
        (vid.volume == SUPERBLOCK_VOLUME && vid.lnum == 0).then_some((vid.sequence, peb))
    });
    anchors.collect()
}

/// The highest sequence number among a fastmap's own blocks.
fn locations_newest<F: Flash + ?Sized>(attach: &Attach<'_, F>, superblock: &Superblock) -> u64 {
    let own = superblock.locations.iter().take(superblock.used_blocks as usize);
    let numbers = own.filter_map(|&peb| {
        attach.reader.headers(peb, attach.offsets).vid.ok().map(|vid| vid.sequence)
    });
    numbers.max().unwrap_or(0)
}

/// Reads all of a fastmap and verifies its checksum.
fn load<F: Flash + ?Sized>(
    attach: &Attach<'_, F>,
    anchor: u32,
) -> Result<(Superblock, Vec<u8>), FastmapError> {
    let leb_size = (attach.reader.image.peb_size - attach.offsets.data) as usize;
    let pebs = attach.reader.image.pebs;
    let mut head = [0; Superblock::SIZE];
    if leb_size < head.len() || !attach.reader.data(anchor, attach.offsets, &mut head) {
        return Err(FastmapError("the fastmap's first block cannot be read"));
    }
    let superblock = Superblock::parse(&head)?;
    let locations = &superblock.locations[..superblock.used_blocks as usize];
    let needed = Superblock::SIZE
        + Header::SIZE
        + 2 * Pool::SIZE
        + pebs as usize * (EraseCounter::SIZE + 4)
        + (MapHeader::SIZE + Volume::SIZE) * (VOLUMES_MAX as usize + 1);
    if locations.len() != needed.div_ceil(leb_size) || locations[0] != anchor {
        return Err(FastmapError("the fastmap is of a device of another size"));
    }
    let mut bytes = alloc::vec![0; locations.len() * leb_size];
    for (&peb, part) in locations.iter().zip(bytes.chunks_exact_mut(leb_size)) {
        if peb >= pebs || !attach.reader.data(peb, attach.offsets, part) {
            return Err(FastmapError("a block of the fastmap cannot be read"));
        }
    }
    bytes[Superblock::CRC_OFFSET..][..4].fill(0);
    if crc32(&bytes) != superblock.data_crc {
        return Err(FastmapError("bad CRC of the fastmap"));
    }
    Ok((superblock, bytes))
}

/// Every block once.
struct Blocks {
    table: Vec<Option<Block>>,
}

impl Blocks {
    fn new(pebs: u32) -> Self {
        Self { table: alloc::vec![None; pebs as usize] }
    }

    fn set(
        &mut self,
        peb: u32,
        erase_counter: Option<u32>,
        content: Content,
    ) -> Result<(), FastmapError> {
        match self.table.get_mut(peb as usize) {
            Some(slot @ None) => {
                *slot = Some(Block { erase_counter, content, scrub: false });
                Ok(())
            }
            Some(Some(_)) => Err(FastmapError("the fastmap names a block twice")),
            None => Err(FastmapError("the fastmap names a block beyond the end")),
        }
    }

    /// Reads the four lists of erase counters; returns which blocks hold something.
    fn list(
        &mut self,
        cursor: &mut Cursor<'_>,
        header: &Header,
    ) -> Result<Vec<bool>, FastmapError> {
        let mut used = alloc::vec![false; self.table.len()];
        let lists = [
            (header.free, Content::Free, false),
            (header.used, Content::Stale, false),
            (header.scrub, Content::Stale, true),
            (header.erase, Content::Stale, false),
        ];
        for (at, (count, content, scrub)) in lists.into_iter().enumerate() {
            for _ in 0..count {
                let entry = EraseCounter::parse(cursor.take(EraseCounter::SIZE)?)?;
                self.set(entry.peb, Some(entry.erase_counter), content)?;
                used[entry.peb as usize] = at == 1 || at == 2;
                if let Some(block) = &mut self.table[entry.peb as usize] {
                    block.scrub = scrub;
                }
            }
        }
        Ok(used)
    }

    /// What no list names are the bad blocks.
    fn finish(&mut self, bad: u32) -> Result<(), FastmapError> {
        let mut left = 0;
        for slot in self.table.iter_mut().filter(|slot| slot.is_none()) {
            *slot = Some(Block { erase_counter: None, content: Content::Bad, scrub: false });
            left += 1;
        }
        if left == bad { Ok(()) } else { Err(FastmapError("the fastmap's counts do not add up")) }
    }

    fn into_table(self) -> Vec<Block> {
        self.table.into_iter().flatten().collect()
    }
}

/// Reads the volumes' maps and looks at each block they name.
fn read_maps<F: Flash + ?Sized>(
    attach: &mut Attach<'_, F>,
    cursor: &mut Cursor<'_>,
    header: &Header,
    used: &[bool],
) -> Result<(), FastmapError> {
    if header.volumes > VOLUMES_MAX + 1 {
        return Err(FastmapError("the fastmap has too many volumes"));
    }
    for _ in 0..header.volumes {
        let volume = Volume::parse(cursor.take(Volume::SIZE)?)?;
        let map = MapHeader::parse(cursor.take(MapHeader::SIZE)?)?;
        for lnum in 0..map.reserved_pebs {
            let entry = cursor.take(4)?;
            let peb = u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]);
            if peb == UNMAPPED {
                continue;
            }
            if !used.get(peb as usize).is_some_and(|used| *used) {
                return Err(FastmapError("the fastmap maps a block that is not in use"));
            }
            look(attach, peb, (volume.volume, lnum))?;
        }
    }
    Ok(())
}

/// Looks at the volume identifier of a mapped block: the map knows the rest.
fn look<F: Flash + ?Sized>(
    attach: &mut Attach<'_, F>,
    peb: u32,
    mapped: (u32, u32),
) -> Result<(), FastmapError> {
    let (vid, scrub) = attach.reader.vid(peb, attach.offsets);
    let Ok(vid) = vid else {
        // Unmapped since, and perhaps erased.
        return scan(attach, peb);
    };
    if (vid.volume, vid.lnum) != mapped {
        return Err(FastmapError("the fastmap maps a block that holds something else"));
    }
    let content = attach
        .judge_vid(peb, vid)
        .map_err(|_| FastmapError("a block in the fastmap belongs to an unknown volume"))?;
    let block = &mut attach.blocks[peb as usize];
    block.content = content;
    block.scrub |= scrub;
    Ok(())
}

/// Looks at one block as a full attach would.
fn scan<F: Flash + ?Sized>(attach: &mut Attach<'_, F>, peb: u32) -> Result<(), FastmapError> {
    let headers = attach.reader.headers(peb, attach.offsets);
    if !matches!(headers.vid, Ok(_) | Err(HeaderError::Erased)) {
        return Err(FastmapError("a block in the fastmap has a damaged header"));
    }
    let content = attach
        .judge(peb, &headers)
        .map_err(|_| FastmapError("a block in the fastmap belongs to an unknown volume"))?;
    let erase_counter = headers.ec.ok().map(|ec| ec.erase_counter as u32);
    attach.blocks[peb as usize] = Block { erase_counter, content, scrub: headers.scrub };
    Ok(())
}

/// Goes through the fastmap's bytes.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], FastmapError> {
        let (part, rest) =
            self.rest.split_at_checked(size).ok_or(FastmapError("the fastmap ends too early"))?;
        self.rest = rest;
        Ok(part)
    }
}
