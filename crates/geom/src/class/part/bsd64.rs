//! The 64-bit disklabel of DragonFly BSD: 16 partitions, in bytes.
//!
//! It takes several sectors. So that at least one copy is intact at any time during a change, the
//! copy after the partitions, for which the label reserves room, is written first.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::geom::disklabel64::{self as wire, Disklabel64, LEN, PARTITIONS, RAW, ROOM};

use super::{Config, Detail, Partition, Probe, Scheme, Step, Table, Type, geometry, gpt};
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::object::ProviderId;

/// Alignment of partitions and room for boot code, in FreeBSD's layout of labels.
const ALIGNMENT: u64 = 1 << 20;
const BOOT: u64 = 32 << 10;
/// Offset in a label of the position of its copy.
const BACKUP: usize = 576;

/// Looks for a label at byte 512.
pub(super) fn probe(graph: &mut Graph, provider: ProviderId) -> Probe {
    let there = &graph[provider];
    let (sector, media_size) = (u64::from(there.sector_size), there.media_size);
    let room = (LEN as u64).next_multiple_of(sector);
    if media_size < 2 * ALIGNMENT {
        return Probe::None("too small for a 64-bit disklabel".into());
    }
    let mut bytes = vec![0; room as usize];
    if let Err(error) = graph.peek(provider, 0, &mut bytes) {
        return Probe::None(error.cause);
    }
    let at = wire::AT as u64;
    if !bytes[wire::AT..].starts_with(&wire::MAGIC.to_le_bytes()) {
        return Probe::None("no 64-bit disklabel at byte 512".into());
    }
    let bad = |why: &str| Probe::Bad(format!("a 64-bit disklabel {why}"), at, LEN as u64 - at);
    let (label, corrupt) = match Disklabel64::parse(&bytes) {
        Ok(label) => (label, None),
        Err(error) => match copy_of(graph, provider, &mut bytes) {
            Some(label) => (label, Some(format!("the label in front is not sound: {error}"))),
            None => return bad(&format!("that is not sound: {error}")),
        },
    };
    let places = [label.first, label.stop, label.boot, label.backup];
    if !u64::from(label.alignment).is_multiple_of(sector) || label.alignment == 0 {
        return bad(&format!("for other sectors than {sector} bytes"));
    }
    if label.total > media_size || places.iter().any(|place| !place.is_multiple_of(sector)) {
        return bad(&format!("for {} bytes, where there are {media_size}", label.total));
    }
    if label.stop > label.total || label.first < LEN as u64 || label.first > label.stop {
        return bad("whose space for partitions is impossible");
    }
    let partitions = match partitions_of(&label, sector) {
        Ok(partitions) => partitions,
        Err(number) => return bad(&format!("whose partition {number} is not a range of sectors")),
    };
    // FreeBSD's own labels give the last sector there, DragonFly's the one after it.
    let is_last = label.stop + sector == label.backup;
    let last = (label.stop / sector).saturating_sub(u64::from(!is_last));
    let (heads, track) = geometry::of(graph, provider);
    let table = Table {
        scheme: Scheme::Bsd64,
        partitions,
        first: label.first / sector,
        last,
        entries: label.count as u32,
        heads,
        sectors: track,
        corrupt,
        modified: false,
        is_destroyed: false,
        detail: Detail::Bsd64(bytes),
    };
    Probe::Found(Box::new(table), at, LEN as u64 - at)
}

/// Reads a label whose writing was interrupted from its copy: `bytes`, of the label at the start,
/// are replaced by those of the copy that it names.
fn copy_of(graph: &mut Graph, provider: ProviderId, bytes: &mut [u8]) -> Option<Disklabel64> {
    let backup = u64::from_le_bytes(*bytes.get(BACKUP..)?.first_chunk()?);
    if backup <= wire::AT as u64 {
        return None;
    }
    let mut copy = vec![0; bytes.len()];
    graph.peek(provider, backup, &mut copy).ok()?;
    let label = Disklabel64::parse(&copy).ok().filter(|copy| copy.backup == backup)?;
    bytes[wire::AT..].copy_from_slice(&copy[wire::AT..]);
    Some(label)
}

/// The partitions of a label; the number of the first invalid one.
fn partitions_of(label: &Disklabel64, sector: u64) -> Result<Vec<Partition>, usize> {
    let mut partitions = Vec::new();
    for (place, partition) in label.partitions[..label.count].iter().enumerate() {
        let (offset, size) = (partition.offset, partition.size);
        if place == RAW || (size, offset) == (0, 0) {
            continue;
        }
        let is_whole = size > 0 && [offset, size].iter().all(|it| it.is_multiple_of(sector));
        let end = offset.checked_add(size).filter(|_| is_whole).ok_or(place + 1)?;
        partitions.push(Partition {
            index: place as u32 + 1,
            start: offset / sector,
            end: end / sector - 1,
            data: offset / sector,
            kind: Type::Bsd64(partition.kind, partition.type_id),
            label: "".into(),
            attributes: 0,
            unique: partition.id,
        });
    }
    Ok(partitions)
}

/// A new label with FreeBSD's layout.
pub(super) fn create(
    graph: &mut Graph,
    provider: ProviderId,
    entries: Option<u32>,
) -> Result<Table, GeomError> {
    let id = gpt::new_guid(graph);
    let there = &graph[provider];
    let (sector, size) = (u64::from(there.sector_size), there.media_size);
    if entries.is_some_and(|entries| entries != PARTITIONS as u32) {
        let cause = format!("a 64-bit disklabel must have {PARTITIONS} partitions");
        return Err(GeomError::invalid(&there.name, cause));
    }
    let block = sector.max(4096);
    let kept = (ROOM as u64).next_multiple_of(block);
    // Partitions are aligned to 32 KiB on the disk below.
    let shift = BOOT - there.stripe_offset % BOOT;
    let first = (kept + BOOT.next_multiple_of(block)).next_multiple_of(ALIGNMENT) + shift;
    let backup = size.saturating_sub(kept) / block * block;
    if size < 2 * ALIGNMENT || first + sector >= backup || !first.is_multiple_of(sector) {
        let cause = format!("has {size} bytes, too few for a 64-bit disklabel");
        return Err(GeomError::new(Kind::NoSpace, &there.name, cause));
    }
    let mut bytes = vec![0; (LEN as u64).next_multiple_of(sector) as usize];
    let name = there.name.clone();
    graph
        .peek(provider, 0, &mut bytes[..wire::AT])
        .map_err(|error| GeomError { object: name, ..error })?;
    let label = Disklabel64 {
        alignment: block as u32,
        count: PARTITIONS,
        id,
        total: size,
        boot: kept,
        first,
        stop: backup - sector,
        backup,
        partitions: [wire::Partition::UNUSED; PARTITIONS],
    };
    label.emit(&mut bytes);
    let (heads, track) = geometry::of(graph, provider);
    Ok(Table {
        scheme: Scheme::Bsd64,
        partitions: Vec::new(),
        first: first / sector,
        last: backup / sector - 1,
        entries: PARTITIONS as u32,
        heads,
        sectors: track,
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: Detail::Bsd64(bytes),
    })
}

/// First the copy, then the label.
pub(super) fn steps(table: &Table, old: &[u8], sector: u32) -> Vec<Step> {
    let Ok(mut label) = Disklabel64::parse(old) else { return Vec::new() };
    let sector = u64::from(sector);
    let mut partitions = [wire::Partition::UNUSED; PARTITIONS];
    partitions[RAW] = label.partitions[RAW];
    for partition in &table.partitions {
        let Type::Bsd64(kind, type_id) = partition.kind else { continue };
        let Some(out) = partitions.get_mut(partition.index as usize - 1) else { continue };
        let (offset, size) = (partition.start * sector, partition.length() * sector);
        *out = wire::Partition { offset, size, kind, type_id, id: partition.unique };
    }
    label.partitions = partitions;
    let mut bytes = old.to_vec();
    label.emit(&mut bytes);
    let mut steps = Vec::new();
    let has_room = label.backup >= label.stop && label.total - label.backup >= bytes.len() as u64;
    if label.backup <= label.total && has_room {
        steps.extend([Step::Write(label.backup, bytes.clone()), Step::Flush]);
    }
    steps.extend([Step::Write(0, bytes), Step::Flush]);
    steps
}

/// What `gpart list` shows of a label: sectors, and its GUID.
pub(super) fn config(table: &Table, bytes: &[u8]) -> Config {
    let Ok(label) = Disklabel64::parse(bytes) else { return Vec::new() };
    let sector = (label.first / table.first.max(1)).max(1);
    let mut config = vec![("bootbase", (label.boot / sector).to_string())];
    let backup = label.backup / sector;
    config.extend((backup > 0).then(|| ("backupbase", backup.to_string())));
    config.push(("stor_uuid", label.id.to_string()));
    config
}

/// Erases one sector of the label, so that there is none. What precedes the label stays.
pub(super) fn erase(old: &[u8], sector: u32) -> Vec<Step> {
    let sector = sector as usize;
    let at = wire::AT / sector * sector;
    let mut bytes = old[at..at + sector].to_vec();
    bytes[wire::AT - at..].fill(0);
    vec![Step::Write(at as u64, bytes), Step::Flush]
}
