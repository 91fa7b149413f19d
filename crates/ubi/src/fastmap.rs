//! Attaching by fastmap: trusts what it lists, and scans its pools.
//!
//! A fastmap tells what every block held when it was written. Since then blocks were taken only
//! from its two pools, so these are scanned. A block that it maps may have been discarded and
//! erased meanwhile. A reader examines such blocks at once; a device that is open for writing
//! examines a block when it first needs it ([`Believed::unseen`]), because otherwise attaching
//! would cost as much as a scan.
//!
//! Any inconsistency (a checksum, a count, a block named twice) makes the caller read every header
//! instead; a fastmap is never trusted in part.
//!
//! Of several fastmaps the newest is valid. An older one is valid only if power was lost while the
//! newest was written: its last page is programmed last of all, and the older one is invalid as
//! soon as anything changes after that.

use alloc::vec::Vec;

use flysch_api::flash::Flash;
use flysch_wire::ubi::fastmap::{
    EraseCounter, FastmapError, FastmapVolume, Header, MapHeader, Pool, START_MAX,
    SUPERBLOCK_VOLUME, Superblock, UNMAPPED,
};
use flysch_wire::ubi::{
    Compatibility, INTERNAL_VOLUME_START, LAYOUT_VOLUME, VOLUMES_MAX, VidHeader, VolumeKind, crc32,
};

use crate::blocks::{Block, Claim, Content};
use crate::scan::{Attach, Believed, Purpose};

/// Attaches by fastmap; `false` if there is none.
pub(crate) fn attach<F: Flash + ?Sized>(attach: &mut Attach<'_, F>) -> Result<bool, FastmapError> {
    let mut anchors = find_anchors(attach);
    anchors.sort_unstable();
    attach.evidence.anchors.clone_from(&anchors);
    let (superblock, bytes) = loop {
        let Some((_, anchor)) = anchors.pop() else { return Ok(false) };
        match load(attach, anchor) {
            Ok(loaded) => break loaded,
            Err(_) if !anchors.is_empty() && is_unfinished(attach, anchor) => {}
            Err(error) => return Err(error),
        }
    };
    let mut cursor = Cursor { rest: &bytes[Superblock::SIZE..] };
    let header = Header::parse(cursor.take(Header::SIZE)?)?;
    let pools = [Pool::parse(cursor.take(Pool::SIZE)?)?, Pool::parse(cursor.take(Pool::SIZE)?)?];
    let mut blocks = Blocks::new(attach.reader.image.pebs);
    let own = &superblock.locations[..superblock.used_blocks as usize];
    for (&peb, &erase_counter) in own.iter().zip(&superblock.erase_counters) {
        blocks.set(peb, Some(erase_counter), Content::Fastmap)?;
    }
    let mut lists = blocks.list(&mut cursor, &header)?;
    for &peb in pools.iter().flat_map(Pool::pebs) {
        // A pool's blocks are in none of the lists.
        blocks.set(peb, None, Content::Free)?;
    }
    attach.blocks = blocks.finish(attach, header.bad)?;
    // Linux leaves the superblock's own number 0.
    attach.sequence_max = superblock.sequence.max(locations_newest(attach, own));
    let begun = attach.evidence.anchors.iter().map(|anchor| anchor.0).max();
    attach.sequence_map = attach.sequence_max.max(begun.unwrap_or(0));
    for &peb in pools.iter().flat_map(Pool::pebs) {
        scan(attach, peb)?;
    }
    let unseen = read_maps(attach, &mut cursor, &header, &mut lists.used)?;
    attach.evidence.fastmap = Some(Believed {
        blocks: own.to_vec(),
        pools: pools.map(|pool| pool.pebs().to_vec()),
        queue: lists.queue,
        unseen,
    });
    Ok(true)
}

/// The blocks that start a fastmap, each with its sequence number.
fn find_anchors<F: Flash + ?Sized>(attach: &Attach<'_, F>) -> Vec<(u64, u32)> {
    let candidates = 0..START_MAX.min(attach.reader.image.pebs);
    let anchors = candidates.filter_map(|peb| {
        let vid = attach.reader.vid(peb, attach.offsets).0.ok()?;
        let is_anchor = vid.volume == SUPERBLOCK_VOLUME && vid.lnum == 0;
        let is_whole = is_anchor && !attach.reader.is_bad(peb) && attach.reader.ec(peb).0.is_ok();
        is_whole.then_some((vid.sequence, peb))
    });
    anchors.collect()
}

/// Whether power was lost while the fastmap that starts at `anchor` was written: its last page is
/// missing.
fn is_unfinished<F: Flash + ?Sized>(attach: &Attach<'_, F>, anchor: u32) -> bool {
    let reader = &attach.reader;
    let room = reader.image.peb_size - attach.offsets.data;
    let size = reader.flash.geometry().write_size.clamp(64, 4096).min(room);
    let mut last = [0; 4096];
    let last = &mut last[..size as usize];
    let at = reader.start(anchor) + u64::from(reader.image.peb_size - size);
    reader.flash.read(at, last).is_err() || last.iter().all(|&byte| byte == 0xff)
}

/// The highest sequence number among a fastmap's own blocks.
fn locations_newest<F: Flash + ?Sized>(attach: &Attach<'_, F>, own: &[u32]) -> u64 {
    let numbers = own.iter().filter_map(|&peb| {
        attach.reader.headers(peb, attach.offsets).vid.ok().map(|vid| vid.sequence)
    });
    numbers.max().unwrap_or(0)
}

/// Reads a complete fastmap and verifies its checksum.
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
        + (MapHeader::SIZE + FastmapVolume::SIZE) * (VOLUMES_MAX as usize + 1);
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

/// What the lists of erase counters contain besides the counters.
struct Lists {
    /// Blocks that hold something and are not in any map yet.
    used: Vec<bool>,
    /// Blocks to be erased, in order.
    queue: Vec<u32>,
}

/// Checks that every block is named only once.
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

    /// Reads the four lists of erase counters.
    fn list(&mut self, cursor: &mut Cursor<'_>, header: &Header) -> Result<Lists, FastmapError> {
        let used = alloc::vec![false; self.table.len()];
        let mut found = Lists { used, queue: Vec::new() };
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
                found.used[entry.peb as usize] = at == 1 || at == 2;
                if at == 3 {
                    found.queue.push(entry.peb);
                }
                if let Some(block) = &mut self.table[entry.peb as usize] {
                    block.scrub = scrub;
                }
            }
        }
        Ok(found)
    }

    /// Blocks that are in no list are bad.
    fn finish<F: Flash + ?Sized>(
        mut self,
        attach: &Attach<'_, F>,
        bad: u32,
    ) -> Result<Vec<Block>, FastmapError> {
        let mut left = 0;
        for (peb, slot) in (0..).zip(&mut self.table).filter(|(_, slot)| slot.is_none()) {
            if !attach.reader.is_bad(peb) {
                return Err(FastmapError("the fastmap leaves out a block that is not bad"));
            }
            *slot = Some(Block { erase_counter: None, content: Content::Bad, scrub: false });
            left += 1;
        }
        if left != bad {
            return Err(FastmapError("the fastmap's counts do not add up"));
        }
        Ok(self.table.into_iter().flatten().collect())
    }
}

/// Reads the volumes' maps; returns the blocks whose content was taken from the map.
fn read_maps<F: Flash + ?Sized>(
    attach: &mut Attach<'_, F>,
    cursor: &mut Cursor<'_>,
    header: &Header,
    used: &mut [bool],
) -> Result<Vec<u32>, FastmapError> {
    if header.volumes > VOLUMES_MAX + 1 {
        return Err(FastmapError("the fastmap has too many volumes"));
    }
    // Static volumes change with the volume table only.
    let tables = [(LAYOUT_VOLUME, 0), (LAYOUT_VOLUME, 1)];
    let table_changed = tables.iter().any(|key| attach.claims.contains_key(key));
    let mut unseen = Vec::new();
    for _ in 0..header.volumes {
        let volume = FastmapVolume::parse(cursor.take(FastmapVolume::SIZE)?)?;
        let map = MapHeader::parse(cursor.take(MapHeader::SIZE)?)?;
        let is_doubted = attach.purpose == Purpose::Read
            || volume.volume >= INTERNAL_VOLUME_START
            || volume.kind == VolumeKind::Static && table_changed;
        for lnum in 0..map.reserved_pebs {
            let entry = cursor.take(4)?;
            let peb = u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]);
            if peb == UNMAPPED {
                continue;
            }
            match used.get_mut(peb as usize) {
                Some(used) if *used => *used = false,
                _ => return Err(FastmapError("the fastmap maps a block that is not in use")),
            }
            if is_doubted {
                look(attach, peb, (volume.volume, lnum))?;
            } else {
                believe(attach, peb, &volume, lnum)?;
                unseen.push(peb);
            }
        }
    }
    Ok(unseen)
}

/// Trusts the map for the content of a block.
fn believe<F: Flash + ?Sized>(
    attach: &mut Attach<'_, F>,
    peb: u32,
    volume: &FastmapVolume,
    lnum: u32,
) -> Result<(), FastmapError> {
    let leb_size = attach.reader.image.peb_size - attach.offsets.data;
    let Some(usable) = leb_size.checked_sub(volume.data_pad) else {
        return Err(FastmapError("the fastmap pads a volume's LEBs beyond their size"));
    };
    let (data_size, used_ebs) = match volume.kind {
        VolumeKind::Dynamic => (0, 0),
        VolumeKind::Static if lnum >= volume.used_ebs || volume.last_eb_bytes > usable => {
            return Err(FastmapError("the fastmap maps more than a static volume holds"));
        }
        VolumeKind::Static if lnum + 1 == volume.used_ebs => {
            (volume.last_eb_bytes, volume.used_ebs)
        }
        VolumeKind::Static => (usable, volume.used_ebs),
    };
    let vid = VidHeader {
        kind: volume.kind,
        copy: false,
        compatibility: Compatibility::None,
        volume: volume.volume,
        lnum,
        data_size,
        used_ebs,
        data_pad: volume.data_pad,
        data_crc: 0,
        // Older than any copy in the pools, which counts if it is whole.
        sequence: 0,
    };
    attach.blocks[peb as usize].content = Content::Used { volume: volume.volume, lnum };
    attach.claims.entry((volume.volume, lnum)).or_default().push(Claim { peb, vid });
    Ok(())
}

/// Examines a mapped block, which holds what the map says unless it was discarded since.
fn look<F: Flash + ?Sized>(
    attach: &mut Attach<'_, F>,
    peb: u32,
    mapped: (u32, u32),
) -> Result<(), FastmapError> {
    let headers = attach.reader.headers(peb, attach.offsets);
    if headers.vid.is_ok_and(|vid| (vid.volume, vid.lnum) != mapped) {
        return Err(FastmapError("the fastmap maps a block that holds something else"));
    }
    let before = attach.blocks[peb as usize];
    scan(attach, peb)?;
    let block = &mut attach.blocks[peb as usize];
    block.scrub |= before.scrub;
    block.erase_counter = block.erase_counter.or(before.erase_counter);
    Ok(())
}

/// Examines one block as a scan does.
fn scan<F: Flash + ?Sized>(attach: &mut Attach<'_, F>, peb: u32) -> Result<(), FastmapError> {
    let headers = attach.reader.headers(peb, attach.offsets);
    // No cause: the scan that follows meets the block again, and tells.
    let content = attach
        .judge(peb, &headers)
        .map_err(|_| FastmapError("a block in the fastmap belongs to an unknown volume"))?;
    if content == Content::Foreign {
        return Err(FastmapError("a block in the fastmap belongs to another image"));
    }
    let erase_counter = headers.ec.ok().map(|ec| ec.erase_counter as u32);
    attach.blocks[peb as usize] = Block { erase_counter, content, scrub: headers.scrub };
    Ok(())
}

/// A cursor over the bytes of the fastmap.
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
