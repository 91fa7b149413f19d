//! The master boot record: four partitions, one sector.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_wire::geom::gpt::Guid;
use flysch_wire::geom::mbr::{Chs, ENTRIES, Entry, Kind, LEN, Record, TABLE_AT};
use flysch_wire::geom::volume::{self, FileSystem};

use super::{Detail, Partition, Probe, Scheme, Step, Table, Type, ebr, geometry};
use crate::graph::Graph;
use crate::object::ProviderId;

/// Looks for a record with partitions of its own.
pub(super) fn probe(graph: &mut Graph, provider: ProviderId) -> Probe {
    if ebr::is_extended(graph, provider) {
        return Probe::None("the start of an extended partition is a link of a chain".into());
    }
    let there = &graph[provider];
    let (sector, sectors) = (there.sector_size, there.sectors());
    if sector > 4096 {
        return Probe::None("sectors too large for an MBR".into());
    }
    let mut front = vec![0; sector as usize];
    if let Err(error) = graph.peek(provider, 0, &mut front) {
        return Probe::None(error.cause);
    }
    let Ok(record) = Record::parse(&front) else {
        return Probe::None("no boot record in sector 0".into());
    };
    if !record.has_sound_status() {
        return Probe::None("sector 0 is boot code, not a boot record".into());
    }
    let used = record.entries.iter().any(Entry::is_used);
    let mut read = |at: u64, to: &mut [u8]| {
        let from = front.get(at as usize..).and_then(|from| from.get(..to.len()));
        from.map(|from| to.copy_from_slice(from)).is_some()
    };
    let kinds = [FileSystem::Fat, FileSystem::ExFat, FileSystem::Ntfs];
    let volume = kinds.into_iter().find(|kind| volume::probe(*kind, &mut read).is_some());
    if let (false, Some(kind)) = (used, volume) {
        return Probe::None(format!("sector 0 is that of a {} volume", kind.name()));
    }
    if record.entries.iter().filter(|entry| entry.is_used()).all(|e| e.kind == Kind::Protective)
        && used
    {
        return Probe::None("the boot record only protects a GPT".into());
    }
    let (heads, track) = geometry::of(graph, provider);
    let mut partitions = Vec::new();
    for (index, entry) in (1..).zip(&record.entries) {
        if !entry.is_used() || entry.kind == Kind::Protective {
            continue;
        }
        let start = u64::from(entry.start);
        partitions.push(Partition {
            index,
            start,
            end: start + u64::from(entry.count) - 1,
            data: start,
            kind: Type::Mbr(entry.kind),
            label: "".into(),
            attributes: u64::from(entry.status),
            unique: Guid::ZERO,
        });
    }
    let lowest = partitions.iter().map(|partition| partition.start).min();
    let first = lowest.unwrap_or(u64::MAX).min(u64::from(track)).max(1);
    let table = Table {
        scheme: Scheme::Mbr,
        partitions,
        first,
        last: last_of(sectors),
        entries: ENTRIES as u32,
        heads,
        sectors: track,
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: Detail::Mbr(front),
    };
    Probe::Found(Box::new(table), TABLE_AT as u64, (LEN - TABLE_AT) as u64)
}

/// The last sector that an entry can express.
pub(super) fn last_of(sectors: u64) -> u64 {
    sectors.min(u64::from(u32::MAX)).saturating_sub(1)
}

/// A new table; boot code of sector 0 stays if there was a record before.
pub(super) fn create(
    graph: &mut Graph,
    provider: ProviderId,
) -> Result<Table, crate::error::GeomError> {
    let (sector, sectors) = (graph[provider].sector_size, graph[provider].sectors());
    let mut front = vec![0; sector as usize];
    graph.peek(provider, 0, &mut front)?;
    if Record::parse(&front).is_err() {
        front.fill(0);
    }
    let (heads, track) = geometry::of(graph, provider);
    let first = u64::from(track).max(1);
    if first >= sectors {
        let sectors = counted(sectors, "sector", "sectors");
        let cause = format!("has {sectors}, too few for an MBR");
        return Err(crate::GeomError::new(crate::Kind::NoSpace, &graph[provider].name, cause));
    }
    Ok(Table {
        scheme: Scheme::Mbr,
        partitions: Vec::new(),
        first,
        last: last_of(sectors),
        entries: ENTRIES as u32,
        heads,
        sectors: track,
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: Detail::Mbr(front),
    })
}

/// An entry for a partition; `base` is the sector from which its start is counted.
pub(super) fn entry(table: &Table, partition: &Partition, base: u64) -> Entry {
    let Type::Mbr(kind) = partition.kind else { return Entry::UNUSED };
    Entry {
        status: partition.attributes as u8,
        first: Chs::of(partition.data, table.heads, table.sectors),
        kind,
        last: Chs::of(partition.end, table.heads, table.sectors),
        start: (partition.data - base) as u32,
        count: (partition.end + 1 - partition.data) as u32,
    }
}

/// One sector: either the old or the new one.
pub(super) fn steps(table: &Table, old: &[u8]) -> Vec<Step> {
    let mut front = old.to_vec();
    let mut record = Record::parse(old).unwrap_or(Record::EMPTY);
    let before = record.entries;
    record.entries = [Entry::UNUSED; ENTRIES];
    for partition in &table.partitions {
        let at = partition.index as usize - 1;
        if let Some(place) = record.entries.get_mut(at) {
            *place = entry(table, partition, 0);
            // Cylinder addresses are kept if the partition did not move.
            let old = before[at];
            if (old.start, old.count) == (place.start, place.count) {
                (place.first, place.last) = (old.first, old.last);
            }
        }
    }
    record.emit(&mut front);
    vec![Step::Write(0, front), Step::Flush]
}
