//! The volume table, and what is known without one.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::finding::{Place, Severity};
use flysch_api::flash::Flash;
use flysch_wire::ubi::{
    INTERNAL_VOLUME_START, LAYOUT_VOLUME, RECORD_SIZE, VidHeader, VolumeFlags, VolumeKind,
    VolumeRecord, records_max,
};

use crate::blocks::{Claim, Content};
use crate::scan::Attach;

/// A volume as attaching found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Id: 0 to 127.
    pub id: u32,
    /// Name; empty if the volume table is lost.
    pub name: Vec<u8>,
    /// Kind.
    pub kind: VolumeKind,
    /// Size in logical erase blocks, as reserved.
    pub reserved_pebs: u32,
    /// The LEB size is a multiple of this.
    pub alignment: u32,
    /// Usable bytes of a LEB.
    pub leb_size: u32,
    /// An update was started and did not finish.
    pub update_marker: bool,
    /// Flags.
    pub flags: VolumeFlags,
    /// Static volumes: length of the content, bytes.
    pub used_bytes: Option<u64>,
    /// LEBs with content and the erase blocks that hold them, by LEB.
    pub map: Vec<(u32, u32)>,
}

/// Reads the volume table and sorts the LEBs by volume.
pub(crate) fn volumes<F: Flash + ?Sized>(attach: &mut Attach<'_, F>) -> Vec<VolumeInfo> {
    let leb_size = attach.reader.image.peb_size - attach.offsets.data;
    let Table { records, lost } = read_table(attach, leb_size);
    let mut volumes = Vec::new();
    for (id, record) in (0..).zip(&records) {
        if let Some(record) = record {
            volumes.push(from_record(id, record, leb_size));
        }
    }
    for id in attach.claimed_volumes() {
        if volumes.iter().any(|volume| volume.id == id) {
            continue;
        }
        if records.is_empty() || lost.contains(&id) {
            volumes.extend(from_blocks(attach, id, leb_size));
        } else {
            discard(attach, id, 0);
        }
    }
    attach.evidence.records = records;
    volumes.sort_by_key(|volume| volume.id);
    for volume in &mut volumes {
        fill(attach, volume);
    }
    volumes
}

/// What the two copies of the volume table say together.
#[derive(Default)]
struct Table {
    /// The records; empty if both copies are lost.
    records: Vec<Option<VolumeRecord>>,
    /// Ids whose records are lost in both copies.
    lost: Vec<u32>,
}

/// Reads both copies. As in Linux, the first one that is whole is the table; only where neither is,
/// each record comes from a copy that has it.
fn read_table<F: Flash + ?Sized>(attach: &mut Attach<'_, F>, leb_size: u32) -> Table {
    let count = records_max(leb_size) as usize;
    let copies = [0, 1].map(|lnum| read_copy(attach, lnum, count));
    if copies.iter().all(Option::is_none) {
        let problem = String::from("both copies are lost; volumes are known by their blocks");
        attach.note(Severity::Lost, "volume table", problem, Place::default());
        return Table::default();
    }
    let is_whole = |copy: &Copy| copy.iter().all(Result::is_ok) && twins(copy).is_none();
    let Some(used) = copies.iter().position(|copy| copy.as_ref().is_some_and(is_whole)) else {
        return mix(attach, &copies, count);
    };
    let other = 1 - used;
    let problem = match &copies[other] {
        None => Some(format!("copy {other} is lost; the other is used")),
        Some(_) if copies[0] != copies[1] => {
            Some(format!("the copies differ; that in LEB {used} is used"))
        }
        Some(_) => None,
    };
    if let Some(problem) = problem {
        let place = Place { leb: Some(other as u32), ..Place::default() };
        attach.note(Severity::Inconsistent, "volume table", problem, place);
    }
    let records = copies[used].iter().flatten().map(|record| record.unwrap_or(None)).collect();
    Table { records, lost: Vec::new() }
}

/// Combines two copies of which none is whole. Writing is safe only if all of it is certain.
fn mix<F: Flash + ?Sized>(
    attach: &mut Attach<'_, F>,
    copies: &[Option<Copy>; 2],
    count: usize,
) -> Table {
    let problem = String::from("neither copy is whole; each record is taken from one that has it");
    attach.note(Severity::Inconsistent, "volume table", problem, Place::default());
    let mut table = Table::default();
    let mut doubt = None;
    for id in 0..count {
        let [first, second] = copies.each_ref().map(|copy| copy.as_ref()?.get(id)?.ok());
        if first.is_some() && second.is_some() && first != second {
            doubt = Some("the copies of the volume table contradict each other");
        }
        let known = first.or(second);
        if known.is_none() {
            table.lost.push(id as u32);
            let problem = format!("record {id} is lost in both copies");
            attach.note(Severity::Lost, "volume table", problem, Place::default());
        }
        table.records.push(known.flatten());
    }
    if !table.lost.is_empty() {
        doubt = Some("records of the volume table are lost in both copies");
    }
    let mixed: Copy = table.records.iter().map(|record| Ok(*record)).collect();
    if let Some((one, other)) = twins(&mixed) {
        doubt = Some("two volumes in the volume table have the same name");
        let problem = format!("volumes {one} and {other} have the same name");
        attach.note(Severity::Inconsistent, "volume table", problem, Place::default());
    }
    attach.evidence.table_doubt = doubt;
    table
}

/// Two volumes of the same name: Linux does not take such a table.
fn twins(copy: &Copy) -> Option<(usize, usize)> {
    let mut owners = BTreeMap::new();
    let records = copy.iter().enumerate();
    for (id, record) in records.filter_map(|(id, record)| Some((id, (*record).ok()??))) {
        if let Some(other) = owners.insert(Vec::from(record.name()), id) {
            return Some((other, id));
        }
    }
    None
}

type Copy = Vec<Result<Option<VolumeRecord>, ()>>;

/// One copy of the table; `None` if there is no block or no valid record in it.
fn read_copy<F: Flash + ?Sized>(
    attach: &mut Attach<'_, F>,
    lnum: u32,
    count: usize,
) -> Option<Copy> {
    let peb = attach.winner(LAYOUT_VOLUME, lnum)?.peb;
    let mut bytes = alloc::vec![0; count * RECORD_SIZE];
    // Records whose bytes could not be read have no good checksum.
    let is_read = attach.reader.data(peb, attach.offsets, &mut bytes);
    if !is_read && attach.reader.refused.get().is_some() {
        attach.tell_refused();
        return None;
    }
    let mut records = Copy::with_capacity(count);
    for (id, bytes) in bytes.chunks_exact(RECORD_SIZE).enumerate() {
        records.push(VolumeRecord::parse(bytes).map_err(|error| {
            let place = Place { peb: Some(peb), leb: Some(lnum), ..Place::default() };
            let problem = format!("record {id}: {error}");
            attach.note(Severity::Inconsistent, "volume table", problem, place);
        }));
    }
    records.iter().any(Result::is_ok).then_some(records)
}

fn from_record(id: u32, record: &VolumeRecord, leb_size: u32) -> VolumeInfo {
    let data_pad = if record.data_pad < leb_size / 2 { record.data_pad } else { 0 };
    VolumeInfo {
        id,
        name: record.name().into(),
        kind: record.kind,
        reserved_pebs: record.reserved_pebs,
        alignment: record.alignment,
        leb_size: leb_size - data_pad,
        update_marker: record.update_marker,
        flags: record.flags,
        used_bytes: None,
        map: Vec::new(),
    }
}

/// A volume of which only the blocks are left.
fn from_blocks<F: Flash + ?Sized>(
    attach: &Attach<'_, F>,
    id: u32,
    leb_size: u32,
) -> Option<VolumeInfo> {
    let of_volume = attach.claims.range((id, 0)..(id + 1, 0));
    let (&(_, last), claims) = of_volume.last()?;
    let vid = claims.first()?.vid;
    Some(VolumeInfo {
        id,
        name: Vec::new(),
        kind: vid.kind,
        reserved_pebs: last.saturating_add(1),
        alignment: 1,
        leb_size: leb_size - vid.data_pad,
        update_marker: false,
        flags: VolumeFlags::default(),
        used_bytes: None,
        map: Vec::new(),
    })
}

/// Assigns a volume its blocks.
fn fill<F: Flash + ?Sized>(attach: &mut Attach<'_, F>, volume: &mut VolumeInfo) {
    discard(attach, volume.id, volume.reserved_pebs);
    let rule = Rule::of(attach, volume);
    let mut last: Option<VidHeader> = None;
    let mut wrong = Vec::new();
    let of_volume = attach.claims.range((volume.id, 0)..(volume.id, volume.reserved_pebs));
    for (&(_, lnum), claims) in of_volume {
        let Some(Claim { peb, vid }) = claims.first() else { continue };
        volume.map.push((lnum, *peb));
        match rule.broken_by(vid) {
            None => last = Some(*vid),
            Some(problem) => wrong.push((*peb, lnum, problem)),
        }
    }
    for (peb, lnum, problem) in wrong {
        attach.evidence.mismatch.get_or_insert(peb);
        let place = Place { peb: Some(peb), leb: Some(lnum), offset: None };
        attach.note(Severity::Inconsistent, "volume", problem, place);
    }
    if volume.kind == VolumeKind::Static {
        measure(attach, volume, last);
    }
}

/// Determines the length of a static volume from its last LEB.
fn measure<F: Flash + ?Sized>(
    attach: &mut Attach<'_, F>,
    volume: &mut VolumeInfo,
    last: Option<VidHeader>,
) {
    let leb_size = u64::from(volume.leb_size);
    let Some(last) = last else {
        // No block that can be believed says how long it is: as far as there are any.
        let lebs = volume.map.last().map_or(0, |(lnum, _)| u64::from(*lnum) + 1);
        volume.used_bytes = Some(lebs * leb_size);
        return;
    };
    // Only the last block says how long it is.
    let is_end = last.lnum.checked_add(1) == Some(last.used_ebs);
    let tail = if is_end { last.data_size } else { volume.leb_size };
    let full = u64::from(last.used_ebs.saturating_sub(1)) * leb_size;
    volume.used_bytes = Some(full + u64::from(tail));
    let present = volume.map.len() as u32;
    if present < last.used_ebs {
        let lost = last.used_ebs - present;
        let problem =
            format!("{lost} of {} blocks of static volume {} are lost", last.used_ebs, volume.id);
        // Of a volume being updated nothing is expected.
        let severity = if volume.update_marker { Severity::Note } else { Severity::Lost };
        attach.note(severity, "volume", problem, Place::default());
    }
}

/// What the headers of a volume's blocks must say. Linux attaches no device on which one does not
/// (`validate_vid_hdr`, `check_av`).
struct Rule {
    id: u32,
    kind: VolumeKind,
    data_pad: u32,
    /// Blocks of its content, if it is a static volume and they must agree on that.
    used_ebs: Option<u32>,
}

impl Rule {
    fn of<F: Flash + ?Sized>(attach: &Attach<'_, F>, volume: &VolumeInfo) -> Self {
        let (id, kind) = (volume.id, volume.kind);
        let whole = attach.reader.image.peb_size - attach.offsets.data;
        let data_pad = whole - volume.leb_size;
        // If the table is lost, nothing is known of the end.
        let is_known = !attach.evidence.records.is_empty();
        let most = if is_known { volume.reserved_pebs } else { u32::MAX };
        let winners = attach.claims.range((id, 0)..(id, volume.reserved_pebs));
        let winners = winners.filter_map(|(_, claims)| Some(claims.first()?.vid));
        let fits = |vid: &VidHeader| vid.kind == VolumeKind::Static && vid.used_ebs <= most;
        // Of a volume being updated, blocks of the earlier content may be left.
        let newest = match kind == VolumeKind::Static && !volume.update_marker {
            true => winners.filter(fits).max_by_key(|vid| (vid.sequence, vid.lnum)),
            false => None,
        };
        Self { id, kind, data_pad, used_ebs: newest.map(|vid| vid.used_ebs) }
    }

    /// What a header says that is not so.
    fn broken_by(&self, vid: &VidHeader) -> Option<String> {
        let Self { id, kind, data_pad, .. } = *self;
        if vid.kind != kind {
            let name = |kind| if kind == VolumeKind::Static { "static" } else { "dynamic" };
            let (found, is) = (name(vid.kind), name(kind));
            return Some(format!("a block of a {found} volume, but volume {id} is {is}"));
        }
        if vid.data_pad != data_pad {
            let found = vid.data_pad;
            return Some(format!("data_pad {found}, but that of volume {id} is {data_pad}"));
        }
        let used_ebs = self.used_ebs.filter(|used_ebs| *used_ebs != vid.used_ebs)?;
        Some(format!("used_ebs {}, but {used_ebs} in volume {id}", vid.used_ebs))
    }
}

/// Drops the LEBs of a volume from `from` on: they are after its end, or it has none.
fn discard<F: Flash + ?Sized>(attach: &mut Attach<'_, F>, id: u32, from: u32) {
    debug_assert!(id < INTERNAL_VOLUME_START);
    let beyond: Vec<(u32, u32)> =
        attach.claims.range((id, from)..(id + 1, 0)).map(|(&key, _)| key).collect();
    for key in beyond {
        let claims = attach.claims.remove(&key).unwrap_or_default();
        for claim in claims {
            attach.blocks[claim.peb as usize].content = Content::Stale;
            let place = Place { peb: Some(claim.peb), leb: Some(key.1), ..Place::default() };
            let problem = format!("volume {id} is shorter or was removed; the block is leftover");
            attach.note(Severity::Note, "VID header", problem, place);
        }
    }
}
