//! The GUID partition table: two headers, two tables, and a protective record at the start.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::count::counted;
use flysch_wire::geom::gpt::{
    ENTRIES, ENTRIES_MAX, ENTRY_LEN, Entry, Guid, HEADER_LEN, Header, HeaderFault, NAME_LEN,
    SIGNATURE,
};
use flysch_wire::geom::mbr::{self, Record};

use super::{Partition, Probe, Scheme, Step, Table, Type, geometry};
use crate::error::GeomError;
use crate::graph::Graph;
use crate::object::ProviderId;

/// What is kept of a table besides its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) disk: Guid,
    /// Sector 0 as read, with its boot code.
    pub(super) front: Vec<u8>,
    /// Size of an entry, bytes.
    entry_len: u32,
    /// First sector of each table.
    tables: [u64; 2],
    /// Sector of the second header.
    second: u64,
    /// Whether each copy on the medium can be read.
    pub(super) sound: [bool; 2],
    /// Entries as read, so that their unknown parts are preserved.
    old: Vec<u8>,
}

/// Why an attribute of the whole GPT is not set.
#[derive(Debug)]
pub(super) enum NoAttribute {
    /// There is no attribute with this name.
    Unknown,
    /// The record in sector 0 is not protective.
    Unprotected,
    /// The record in sector 0 has other entries, too.
    Shared,
}

impl NoAttribute {
    pub(super) const fn is_about_the_name(&self) -> bool {
        matches!(self, Self::Unknown)
    }
}

impl fmt::Display for NoAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => {
                "is not an attribute of a whole GPT, as active and lenovofix are; others need a \
                 partition, by -i"
            }
            Self::Unprotected => "no entry of sector 0 protects the GPT",
            Self::Shared => "sector 0 has other entries besides the one that protects the GPT",
        })
    }
}

impl Detail {
    /// Sets or clears an attribute of the record in sector 0.
    pub(super) fn set_attribute(&mut self, name: &str, value: bool) -> Result<(), NoAttribute> {
        // No cause: without a record nothing protects the table.
        let mut record = Record::parse(&self.front).map_err(|_| NoAttribute::Unprotected)?;
        let protective = |entry: &mbr::Entry| entry.kind == mbr::Kind::Protective;
        let at = record.entries.iter().position(protective).ok_or(NoAttribute::Unprotected)?;
        match &name.to_ascii_lowercase()[..] {
            "active" => record.entries[at].status = if value { mbr::ACTIVE } else { 0 },
            "lenovofix" => {
                if record.entries.iter().filter(|entry| entry.is_used()).count() > 1 {
                    return Err(NoAttribute::Shared);
                }
                record.entries.swap(at, usize::from(value));
            }
            _ => return Err(NoAttribute::Unknown),
        }
        record.emit(&mut self.front);
        Ok(())
    }
}

/// Number of sectors of a table of `entries` entries.
fn table_sectors(entries: u32, entry_len: u32, sector: u32) -> u64 {
    (u64::from(entries) * u64::from(entry_len)).div_ceil(u64::from(sector))
}

/// A copy that was read.
struct Copy {
    header: Header,
    table: Vec<u8>,
}

fn read_copy(graph: &mut Graph, provider: ProviderId, lba: u64) -> Result<Copy, String> {
    let there = &graph[provider];
    let (sector, last) = (there.sector_size, there.sectors() - 1);
    let mut bytes = vec![0; sector as usize];
    graph.peek(provider, lba * u64::from(sector), &mut bytes).map_err(|error| error.cause)?;
    let header = Header::parse(&bytes, lba, last).map_err(|fault| match fault {
        HeaderFault::Missing => format!("no header in sector {lba}"),
        fault => format!("{fault} in sector {lba}"),
    })?;
    // At most 16 MiB: the header was checked, and the table ends on the medium.
    let mut table = vec![0; header.table_len() as usize];
    let at = header.table_lba * u64::from(sector);
    graph.peek(provider, at, &mut table).map_err(|error| error.cause)?;
    if crc32fast::hash(&table) != header.table_crc {
        let at = header.table_lba;
        return Err(format!("a table with a wrong checksum in sector {at}"));
    }
    Ok(Copy { header, table })
}

/// Looks for a GPT; also returns whether the evidence is weak (no protective entry).
pub(super) fn probe(graph: &mut Graph, provider: ProviderId) -> (Probe, bool) {
    let there = &graph[provider];
    let (sector, sectors) = (there.sector_size, there.sectors());
    if sectors < 6 {
        return (Probe::None("too small for a GPT".into()), false);
    }
    let last = sectors - 1;
    let mut front = vec![0; sector as usize];
    if let Err(error) = graph.peek(provider, 0, &mut front) {
        return (Probe::None(error.cause), false);
    }
    let record = Record::parse(&front).ok();
    let is_weak = !record.is_some_and(|record| record.is_protective());
    let is_signed = |graph: &mut Graph, lba: u64| {
        let mut signature = [0; 8];
        let at = lba * u64::from(sector);
        graph.peek(provider, at, &mut signature).is_ok() && signature == SIGNATURE
    };
    let has_first = record.is_some() && is_signed(graph, 1);
    if !has_first && !is_signed(graph, last) {
        return (Probe::None("no GPT header in sector 1 or the last".into()), false);
    }
    let at = if has_first { 1 } else { last } * u64::from(sector);
    let first = read_copy(graph, provider, 1);
    let second_at = first.as_ref().map_or(last, |copy| copy.header.alternate_lba);
    let second = read_copy(graph, provider, second_at);
    let corrupt = match (&first, &second) {
        (Err(why), Err(also)) => {
            let text = format!("a GPT that cannot be recovered: {why}; {also}");
            return (Probe::Bad(text, at, HEADER_LEN as u64), is_weak);
        }
        (Err(why), Ok(_)) => Some(format!("the first copy: {why}")),
        (Ok(_), Err(why)) => Some(format!("the second copy: {why}")),
        (Ok(_), Ok(_)) if second_at != last => {
            Some("the second header is not in the last sector".into())
        }
        (Ok(_), Ok(_)) => None,
    };
    let sound = [first.is_ok(), second.is_ok()];
    let second_table = second.as_ref().ok().map(|copy| copy.header.table_lba);
    let Ok(copy) = first.or(second) else { unreachable!("one of them was read") };
    let taken = table_sectors(copy.header.entries, copy.header.entry_len, sector);
    let behind = second_at.saturating_sub(taken).max(copy.header.last_usable + 1);
    let tables = [copy.header.table_lba, second_table.unwrap_or(behind)];
    let mut table = read_table(copy, front, (geometry::of(graph, provider), sound));
    table.corrupt = corrupt;
    if let super::Detail::Gpt(detail) = &mut table.detail {
        detail.second = second_at;
        detail.tables = if sound[0] { tables } else { [2, tables[1]] };
    }
    (Probe::Found(Box::new(table), at, HEADER_LEN as u64), is_weak)
}

fn read_table(
    copy: Copy,
    front: Vec<u8>,
    ((heads, track), sound): ((u32, u32), [bool; 2]),
) -> Table {
    let Copy { header, table: old } = copy;
    let mut partitions = Vec::new();
    for (index, bytes) in (1..).zip(old.chunks_exact(header.entry_len as usize)) {
        let Ok(entry) = Entry::parse(bytes) else { continue };
        if entry.kind == Guid::ZERO {
            continue;
        }
        partitions.push(Partition {
            index,
            start: entry.start,
            end: entry.end,
            data: entry.start,
            kind: Type::Guid(entry.kind),
            label: entry.name().filter(|character| !character.is_control()).collect(),
            attributes: entry.attributes,
            unique: entry.unique,
        });
    }
    let detail = Detail {
        disk: header.disk,
        front,
        entry_len: header.entry_len,
        tables: [0; 2],
        second: 0,
        sound,
        old,
    };
    Table {
        scheme: Scheme::Gpt,
        partitions,
        first: header.first_usable,
        last: header.last_usable,
        entries: header.entries,
        heads,
        sectors: track,
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: super::Detail::Gpt(Box::new(detail)),
    }
}

/// A new table for a disk of `sectors` sectors.
pub(super) fn create(
    graph: &mut Graph,
    provider: ProviderId,
    entries: Option<u32>,
) -> Result<Table, GeomError> {
    let entries = entries.unwrap_or(ENTRIES);
    let name = graph[provider].name.clone();
    if !(ENTRIES..=ENTRIES_MAX).contains(&entries) {
        let cause = format!("a GPT must have {ENTRIES} to {ENTRIES_MAX} entries, not {entries}");
        return Err(GeomError::invalid(name, cause));
    }
    let (sector, sectors) = (graph[provider].sector_size, graph[provider].sectors());
    let taken = table_sectors(entries, ENTRY_LEN as u32, sector);
    if sectors < 2 * taken + 6 {
        let sectors = counted(sectors, "sector", "sectors");
        let cause = format!("has {sectors}, too few for a GPT of {entries} entries");
        return Err(GeomError::new(crate::Kind::NoSpace, name, cause));
    }
    let mut front = vec![0; sector as usize];
    graph.peek(provider, 0, &mut front)?;
    // Boot code of a previous file system does not boot from a GPT.
    let has_code = Record::parse(&front).is_ok_and(|record| record.is_protective());
    if !has_code {
        front.fill(0);
    }
    Record::protective(sectors).emit(&mut front);
    let disk = new_guid(graph);
    let second = sectors - 1;
    let tables = [2, second - taken];
    let detail = Detail {
        disk,
        front,
        entry_len: ENTRY_LEN as u32,
        tables,
        second,
        sound: [false; 2],
        old: Vec::new(),
    };
    let grid = (4096 / u64::from(sector)).max(1);
    let (heads, track) = geometry::of(graph, provider);
    let table = Table {
        scheme: Scheme::Gpt,
        partitions: Vec::new(),
        first: (2 + taken).next_multiple_of(grid),
        last: tables[1] / grid * grid - 1,
        entries,
        heads,
        sectors: track,
        corrupt: None,
        modified: false,
        is_destroyed: false,
        detail: super::Detail::Gpt(Box::new(detail)),
    };
    if table.first > table.last {
        let cause = format!("has {sectors} sectors: a GPT would leave none for partitions");
        return Err(GeomError::new(crate::Kind::NoSpace, name, cause));
    }
    Ok(table)
}

/// A random GUID (version 4).
pub(super) fn new_guid(graph: &mut Graph) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&graph.random().to_le_bytes());
    bytes[8..].copy_from_slice(&graph.random().to_le_bytes());
    bytes[7] = bytes[7] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    Guid(bytes)
}

/// Puts everything in its proper place on a disk of `sectors` sectors, after a recovery or a change
/// of size.
pub(super) fn place_anew(table: &mut Table, sector: u32, sectors: u64) {
    let (entries, used) = (table.entries, table.partitions.iter().map(|p| p.end).max());
    let super::Detail::Gpt(detail) = &mut table.detail else { return };
    let taken = table_sectors(entries, detail.entry_len, sector);
    let second = sectors - 1;
    let Some(behind) = second.checked_sub(taken) else { return };
    // The last usable sector moves with the second table, and never into a partition.
    let gap = detail.tables[1].saturating_sub(table.last + 1);
    let last = behind.saturating_sub(1 + gap).max(used.unwrap_or(0)).min(behind - 1);
    if last < table.first || used.is_some_and(|used| used >= behind) {
        return;
    }
    detail.second = second;
    detail.tables[1] = behind;
    table.last = last;
    if let Ok(mut record) = Record::parse(&detail.front) {
        let whole = Record::protective(sectors).entries[0];
        let protective = |entry: &&mut mbr::Entry| entry.kind == mbr::Kind::Protective;
        let alone = record.entries.iter().filter(|entry| entry.is_used()).count() == 1;
        if let Some(entry) = record.entries.iter_mut().find(protective).filter(|_| alone) {
            entry.count = whole.count;
        }
        record.emit(&mut detail.front);
    }
    if !Record::parse(&detail.front).is_ok_and(|record| record.is_protective()) {
        Record::protective(sectors).emit(&mut detail.front);
    }
}

/// What to write. A copy that cannot be read at present comes first: until it is whole, the other
/// one is the only one.
pub(super) fn steps(table: &Table, detail: &Detail, sector: u32) -> Vec<Step> {
    let bytes = emit_table(table, detail, sector);
    let table_crc = crc32fast::hash(&bytes[..(table.entries * detail.entry_len) as usize]);
    let places = [(1, detail.second), (detail.second, 1)];
    let copy = |which: usize| {
        let (own_lba, alternate_lba) = places[which];
        let header = Header {
            own_lba,
            alternate_lba,
            first_usable: table.first,
            last_usable: table.last,
            disk: detail.disk,
            table_lba: detail.tables[which],
            entries: table.entries,
            entry_len: detail.entry_len,
            table_crc,
        };
        let mut out = vec![0; sector as usize];
        header.emit(&mut out);
        let at = |lba: u64| lba * u64::from(sector);
        [
            Step::Write(at(header.table_lba), bytes.clone()),
            Step::Flush,
            Step::Write(at(own_lba), out),
            Step::Flush,
        ]
    };
    let order = if detail.sound == [true, false] { [1, 0] } else { [0, 1] };
    let mut steps = vec![Step::Write(0, detail.front.clone()), Step::Flush];
    order.into_iter().for_each(|which| steps.extend(copy(which)));
    steps
}

fn emit_table(table: &Table, detail: &Detail, sector: u32) -> Vec<u8> {
    let sectors = table_sectors(table.entries, detail.entry_len, sector);
    let mut bytes = vec![0; (sectors * u64::from(sector)) as usize];
    let len = detail.entry_len as usize;
    for partition in &table.partitions {
        let Type::Guid(kind) = partition.kind else { continue };
        let at = (partition.index as usize - 1) * len;
        let Some(out) = bytes.get_mut(at..at + len) else { continue };
        let old = detail.old.get(at..at + len).and_then(|old| Entry::parse(old).ok());
        let old = old.filter(|old| old.unique == partition.unique);
        if old.is_some() {
            out.copy_from_slice(&detail.old[at..at + len]);
        }
        // An unchanged name stays as it was, even if it is not valid text.
        let same = |old: &Entry| old.name().filter(|c| !c.is_control()).eq(partition.label.chars());
        let name = match old.filter(same) {
            Some(old) => old.name,
            None => Entry::encode_name(&partition.label).unwrap_or([0; NAME_LEN]),
        };
        let entry = Entry {
            kind,
            unique: partition.unique,
            start: partition.start,
            end: partition.end,
            attributes: partition.attributes,
            name,
        };
        entry.emit(out);
    }
    bytes
}

/// What to write so that no table is left. The copies are erased one after the other: until the
/// last one is erased, the old table can be read.
pub(super) fn erase(detail: &Detail, sector: u32) -> Vec<Step> {
    let zeros = vec![0; sector as usize];
    let at = |lba: u64| lba * u64::from(sector);
    vec![
        Step::Write(at(1), zeros.clone()),
        Step::Flush,
        Step::Write(at(detail.second), zeros.clone()),
        Step::Flush,
        Step::Write(0, zeros),
        Step::Flush,
    ]
}
