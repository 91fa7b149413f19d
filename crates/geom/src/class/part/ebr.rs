//! Partitions inside an extended partition: a chain of boot records, one before each partition.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::geom::gpt::Guid;
use flysch_wire::geom::mbr::{Chs, Entry, Kind, Record, SIGNATURE};

use super::{Detail, Partition, Probe, Scheme, Step, Table, Type, geometry, mbr_scheme};
use crate::error::GeomError;
use crate::graph::Graph;
use crate::object::ProviderId;

/// Maximum length of a chain that is followed.
pub(super) const LINKS_MAX: usize = 1024;

/// Whether a provider is an extended partition.
pub(super) fn is_extended(graph: &Graph, provider: ProviderId) -> bool {
    graph[graph[provider].geom].class.name() == "PART"
        && super::partition_of(graph, provider).is_some_and(|(_, part)| part.kind.is_extended())
}

/// Follows the chain in an extended partition.
pub(super) fn probe(graph: &mut Graph, provider: ProviderId) -> Probe {
    if !is_extended(graph, provider) {
        return Probe::None("no extended partition".into());
    }
    let there = &graph[provider];
    let (sector, sectors) = (there.sector_size, there.sectors());
    let (heads, track) = geometry::of(graph, provider);
    let (mut partitions, mut links) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    let mut next = Some(0);
    while let Some(at) = next {
        let bad = |what: &str| {
            let text = format!("the chain of boot records {what} at sector {at}");
            Probe::Bad(text, at * u64::from(sector), 512)
        };
        if !seen.insert(at) || links.len() >= LINKS_MAX {
            return bad("forms a loop");
        }
        let mut bytes = vec![0; sector as usize];
        if at >= sectors || graph.peek(provider, at * u64::from(sector), &mut bytes).is_err() {
            return bad("leads outside of the partition");
        }
        let Ok(record) = Record::parse(&bytes) else {
            if at == 0 {
                return Probe::None("no boot record in sector 0 of the partition".into());
            }
            return bad("is broken off");
        };
        let own = record.entries.iter().find(|e| e.is_used() && !e.kind.is_extended());
        let link = record.entries.iter().find(|e| e.is_used() && e.kind.is_extended());
        links.push(at);
        if let Some(entry) = own {
            let data = at + u64::from(entry.start);
            if entry.start == 0 {
                return bad("has a partition that covers its own record");
            }
            partitions.push(Partition {
                index: number(&partitions, at, track),
                start: at,
                end: data + u64::from(entry.count) - 1,
                data,
                kind: Type::Mbr(entry.kind),
                label: "".into(),
                attributes: u64::from(entry.status),
                unique: Guid::ZERO,
            });
        }
        next = link.map(|link| u64::from(link.start));
    }
    let table = Table {
        scheme: Scheme::Ebr,
        partitions,
        first: 0,
        last: mbr_scheme::last_of(sectors),
        entries: LINKS_MAX as u32,
        heads,
        sectors: track,
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: Detail::Ebr(links),
    };
    Probe::Found(Box::new(table), 446, 66)
}

/// The number of the partition whose record is in sector `at`: that of its track, counted from 1.
pub(super) fn number(partitions: &[Partition], at: u64, track: u32) -> u32 {
    let mut index = (at / u64::from(track.max(1))) as u32 + 1;
    while partitions.iter().any(|partition| partition.index == index) {
        index += 1;
    }
    index
}

/// A new chain without a partition.
pub(super) fn create(graph: &mut Graph, provider: ProviderId) -> Result<Table, GeomError> {
    if !is_extended(graph, provider) {
        let cause = "is not an extended partition (type ebr): a chain of boot records needs one";
        return Err(GeomError::invalid(&graph[provider].name, cause));
    }
    let sectors = graph[provider].sectors();
    let (heads, track) = geometry::of(graph, provider);
    Ok(Table {
        scheme: Scheme::Ebr,
        partitions: Vec::new(),
        first: 0,
        last: mbr_scheme::last_of(sectors),
        entries: LINKS_MAX as u32,
        heads,
        sectors: track,
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: Detail::Ebr(Vec::new()),
    })
}

/// The records from last to first, those of the old chain after the new ones: a record is in place
/// before the one that refers to it.
pub(super) fn steps(table: &Table, old: &[u64], sector: u32) -> Vec<Step> {
    let mut sorted: Vec<&Partition> = table.partitions.iter().collect();
    sorted.sort_by_key(|partition| partition.start);
    // The chain starts in sector 0 even if no partition does.
    let mut records: Vec<(u64, Option<&Partition>)> = Vec::new();
    if sorted.first().is_none_or(|partition| partition.start != 0) {
        records.push((0, None));
    }
    records.extend(sorted.iter().map(|partition| (partition.start, Some(*partition))));
    let mut emitted: Vec<(u64, Vec<u8>)> = Vec::new();
    for (place, (at, partition)) in records.iter().enumerate() {
        let mut record = Record::EMPTY;
        if let Some(partition) = partition {
            record.entries[0] = mbr_scheme::entry(table, partition, *at);
        }
        if let Some((next, Some(partition))) = records.get(place + 1) {
            record.entries[1] = Entry {
                status: 0,
                first: Chs::of(*next, table.heads, table.sectors),
                kind: Kind::Extended,
                last: Chs::of(partition.end, table.heads, table.sectors),
                start: *next as u32,
                count: partition.length() as u32,
            };
        }
        let mut bytes = vec![0; sector as usize];
        record.emit(&mut bytes);
        debug_assert!(bytes[510..512] == SIGNATURE.to_le_bytes());
        emitted.push((at * u64::from(sector), bytes));
    }
    let is_old = |at: u64| old.contains(&(at / u64::from(sector)));
    let mut steps = Vec::new();
    for wants_old in [false, true] {
        for (at, bytes) in emitted.iter().rev().filter(|(at, _)| is_old(*at) == wants_old) {
            steps.extend([Step::Write(*at, bytes.clone()), Step::Flush]);
        }
    }
    steps
}
