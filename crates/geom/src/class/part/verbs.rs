//! The operations on a partition table, by the verbs of `gpart`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_api::count::counted;
use flysch_wire::geom::gpt::{Entry, Guid};
use flysch_wire::geom::mbr;

use super::{
    Detail, GPT_ATTRIBUTES, MBR_ATTRIBUTES, PART, Partition, Probe, Scheme, Step, Table, Type, bsd,
    bsd64, ebr, gpt, mbr_scheme, offer, probe, provider_of,
};
use crate::access::Access;
use crate::class::guard;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{GeomId, ProviderId};

/// How a verb is carried out.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// Write at once; otherwise the change stays in memory until [`commit`].
    pub commit: bool,
    /// Overwrite existing data.
    pub force: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self { commit: true, force: false }
    }
}

/// The parameters of `add`, in sectors.
#[derive(Clone, Debug)]
pub struct Add {
    /// Its type.
    pub kind: String,
    /// First sector; by default where there is room.
    pub start: Option<u64>,
    /// Number of sectors; by default as many as possible.
    pub size: Option<u64>,
    /// Multiple to which start and size are rounded.
    pub alignment: Option<u64>,
    /// Number; by default the first free one.
    pub index: Option<u32>,
    /// Name, where the scheme has names.
    pub label: Option<String>,
}

/// The parameters of `modify`.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// A new type.
    pub kind: Option<String>,
    /// A new name.
    pub label: Option<String>,
}

fn refuse<T>(kind: Kind, object: &str, cause: impl ToString) -> Result<T, GeomError> {
    Err(GeomError::new(kind, object, cause))
}

pub(super) fn table_of(graph: &Graph, geom: GeomId) -> Result<&Table, GeomError> {
    let missing = || GeomError::not_found(&graph[geom].name, "partition table");
    super::table(graph, geom).ok_or_else(missing)
}

fn table_mut(graph: &mut Graph, geom: GeomId) -> Result<&mut Table, GeomError> {
    let name = graph[geom].name.clone();
    let missing = || GeomError::not_found(&name, "partition table");
    let table: &mut Table = graph.state_mut(geom).ok_or_else(missing)?;
    if table.is_destroyed {
        return refuse(Kind::Busy, &name, "its table is destroyed; `commit` or `undo` that first");
    }
    Ok(table)
}

fn under(graph: &Graph, geom: GeomId) -> Result<ProviderId, GeomError> {
    graph
        .objects()
        .under(geom)
        .ok_or_else(|| GeomError::io(&graph[geom].name, block::BlockError::Gone))
}

fn type_of(scheme: Scheme, text: &str) -> Result<Type, GeomError> {
    Type::parse(scheme, text).ok_or_else(|| {
        let cause = format!(
            "is not a type of {} partitions; one without a name is written `!` and its number or \
             GUID",
            scheme.name()
        );
        GeomError::invalid(text, cause)
    })
}

/// Makes a table on a provider that has none.
///
/// # Errors
/// The error names the obstacle: a table, a file system, metadata of other classes (without
/// `force`).
pub fn create(
    graph: &mut Graph,
    provider: ProviderId,
    (scheme, entries): (Scheme, Option<u32>),
    flags: Flags,
) -> Result<GeomId, GeomError> {
    guard::in_use(graph, provider)?;
    let name = graph[provider].name.clone();
    if super::is_leaf(graph, provider) {
        return refuse(Kind::Invalid, &name, super::LEAF);
    }
    if !flags.force {
        if matches!(scheme, Scheme::Gpt | Scheme::Mbr) {
            guard::last_sector(graph, "PART", provider)?;
        }
        guard::file_system(graph, provider)?;
        if let Probe::Bad(why, at, _) = probe(graph, provider) {
            let cause = format!("{why} (byte {at}); use `geom --force` to write over it");
            return refuse(Kind::Foreign, &name, cause);
        }
    }
    let mut table = match scheme {
        Scheme::Gpt => gpt::create(graph, provider, entries)?,
        Scheme::Mbr => mbr_scheme::create(graph, provider)?,
        Scheme::Ebr => ebr::create(graph, provider)?,
        Scheme::Bsd => bsd::create(graph, provider, entries)?,
        Scheme::Bsd64 => bsd64::create(graph, provider, entries)?,
    };
    table.modified = true;
    let geom = graph.new_geom(&PART, name);
    let consumer = graph.new_consumer(geom);
    let made = graph.attach(consumer, provider);
    graph.set_state(geom, table);
    let made = made.and_then(|()| finish(graph, geom, flags));
    if let Err(error) = made {
        graph.wither_geom(geom, block::BlockError::Gone);
        graph.settle();
        return Err(error);
    }
    Ok(geom)
}

/// Writes the changes, if wanted, and updates the providers.
fn finish(graph: &mut Graph, geom: GeomId, flags: Flags) -> Result<(), GeomError> {
    table_mut(graph, geom)?.modified = true;
    offer(graph, geom)?;
    if flags.commit {
        commit(graph, geom)?;
    }
    graph.settle();
    Ok(())
}

/// Carries out steps, one after the other, with exclusive access to the provider.
fn write(graph: &mut Graph, geom: GeomId, steps: &[Step]) -> Result<(), GeomError> {
    let provider = under(graph, geom)?;
    let name = graph[provider].name.clone();
    let consumer = graph[geom].consumers[0];
    graph.access(consumer, Access::ALONE)?;
    let mut result = Ok(());
    for step in steps {
        result = match step {
            Step::Write(offset, from) => graph.io(consumer, Io::Write { offset: *offset, from }),
            Step::Flush => graph.io(consumer, Io::Flush),
        };
        if result.is_err() {
            break;
        }
    }
    graph.access(consumer, Access::ALONE.undone())?;
    result.map_err(|error| GeomError::io(name, error))
}

/// Writes a changed table.
///
/// # Errors
/// If it cannot be written; the change stays in memory.
pub fn commit(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    let provider = under(graph, geom)?;
    let sector = graph[provider].sector_size;
    let table = table_of(graph, geom)?;
    if !table.modified {
        return Ok(());
    }
    if table.is_destroyed {
        return erase(graph, geom);
    }
    let steps = table.steps(sector);
    write(graph, geom, &steps)?;
    // The next change starts from the contents of the medium.
    if let Probe::Found(table, ..) = probe(graph, provider) {
        graph.set_state(geom, *table);
    }
    graph.settle();
    Ok(())
}

/// Forgets changes that were not written.
///
/// # Errors
/// If the old table cannot be read.
pub fn undo(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    let provider = under(graph, geom)?;
    match probe(graph, provider) {
        Probe::Found(table, ..) => {
            graph.set_state(geom, *table);
            offer(graph, geom)?;
        }
        _ => graph.wither_geom(geom, block::BlockError::Gone),
    }
    graph.settle();
    Ok(())
}

/// Adds a partition; returns its number.
///
/// # Errors
/// If a value is invalid, or if there is no room.
pub fn add(graph: &mut Graph, geom: GeomId, add: &Add, flags: Flags) -> Result<u32, GeomError> {
    let provider = under(graph, geom)?;
    let name = graph[geom].name.clone();
    let grid = graph[provider].stripe_size / u64::from(graph[provider].sector_size);
    let unique = gpt::new_guid(graph);
    let table = table_of(graph, geom)?;
    let kind = type_of(table.scheme, &add.kind)?;
    let (start, size) = match room(table, add, grid) {
        Ok(found) => found,
        Err(cause) => return refuse(Kind::NoSpace, &name, cause),
    };
    let data = if table.scheme == Scheme::Ebr {
        // The record takes the first track, or the alignment.
        start + add.alignment.unwrap_or(u64::from(table.sectors)).max(1)
    } else {
        start
    };
    let index = match add.index {
        _ if table.scheme == Scheme::Ebr => ebr::number(&table.partitions, start, table.sectors),
        Some(index) if table.partition(index).is_some() => {
            return refuse(Kind::Exists, &name, format!("partition {index} already exists"));
        }
        Some(index) => index,
        None => {
            let taken = |index: &u32| table.partition(*index).is_some();
            let is_raw = |index: &u32| table.scheme.has_raw() && *index == 3;
            (1..).find(|index| !taken(index) && !is_raw(index)).unwrap_or(1)
        }
    };
    if index == 0 || index > table.entries && table.scheme != Scheme::Ebr {
        let cause = format!("partitions have the numbers 1 to {}, not {index}", table.entries);
        return refuse(if index == 0 { Kind::Invalid } else { Kind::NoSpace }, &name, cause);
    }
    if table.scheme.has_raw() && index == 3 {
        return refuse(Kind::Invalid, &name, "partition 3 of a disklabel is the whole disk");
    }
    let label = add.label.clone().unwrap_or_default();
    check_label(table.scheme, &label, &name)?;
    let end = start.checked_add(size - 1).filter(|end| *end >= data);
    let Some(end) = end else {
        return refuse(Kind::NoSpace, &name, "the partition would be empty");
    };
    let has_guid = matches!(table.scheme, Scheme::Gpt | Scheme::Bsd64);
    let unique = if has_guid { unique } else { Guid::ZERO };
    let partition = Partition { index, start, end, data, kind, label, attributes: 0, unique };
    let mut changed = table.clone();
    changed.partitions.push(partition);
    changed.partitions.sort_by_key(|partition| partition.index);
    if let Err(cause) = changed.check() {
        return refuse(Kind::NoSpace, &name, cause);
    }
    *table_mut(graph, geom)? = changed;
    finish(graph, geom, flags)?;
    Ok(index)
}

fn check_label(scheme: Scheme, label: &str, name: &str) -> Result<(), GeomError> {
    if label.is_empty() {
        return Ok(());
    }
    if scheme != Scheme::Gpt {
        let cause = format!("partitions of {} have no names", scheme.name());
        return refuse(Kind::Invalid, name, cause);
    }
    if label.chars().any(char::is_control) || Entry::encode_name(label).is_none() {
        let cause = "a name can have up to 36 characters, none of them a control character";
        return refuse(Kind::Invalid, name, cause);
    }
    Ok(())
}

/// Free sectors of a table: first and last sector of each run.
fn free(table: &Table) -> Vec<(u64, u64)> {
    let mut sorted: Vec<&Partition> = table.partitions.iter().collect();
    sorted.sort_by_key(|partition| partition.start);
    let (mut next, mut free) = (table.first, Vec::new());
    for partition in sorted {
        if partition.start > next {
            free.push((next, partition.start - 1));
        }
        next = next.max(partition.end + 1);
    }
    if next <= table.last {
        free.push((next, table.last));
    }
    free
}

/// Where a partition goes: its first sector and its size. The smallest of several places that are
/// large enough is used; without a size, the largest.
fn room(table: &Table, add: &Add, grid: u64) -> Result<(u64, u64), String> {
    let tracks = matches!(table.scheme, Scheme::Mbr | Scheme::Ebr);
    let natural = if tracks { u64::from(table.sectors) } else { grid.max(1) };
    let given = add.start.is_some() && add.size.is_some() && add.alignment.is_none();
    let grid = match add.alignment {
        Some(0) => return Err("the alignment must not be 0".into()),
        Some(alignment) => alignment,
        None if given && !tracks => 1,
        None => natural,
    };
    let up = |sector: u64| sector.checked_next_multiple_of(grid).unwrap_or(u64::MAX);
    let wanted_start = add.start.map(up);
    let wanted_size = add.size.map(|size| if size > grid { size / grid * grid } else { size });
    if wanted_size == Some(0) {
        return Err("the size must not be 0".into());
    }
    let mut best: Option<(u64, u64, u64)> = None;
    for (first, last) in free(table) {
        let start = match wanted_start {
            Some(start) if (first..=last).contains(&start) => start,
            Some(_) => continue,
            None => up(first),
        };
        let end = (last + 1) / grid * grid;
        let end = if end > start { end } else { last + 1 };
        if start >= end {
            continue;
        }
        let there = end - start;
        let (size, grade) = match wanted_size {
            Some(size) if size > last + 1 - start => continue,
            Some(size) => (size, there.abs_diff(size)),
            None => (there, u64::MAX - there),
        };
        if best.is_none_or(|(.., worse)| grade < worse) {
            best = Some((start, size, grade));
        }
    }
    let (start, size, _) = best.ok_or_else(|| no_room(table, wanted_start, wanted_size))?;
    Ok((start, size))
}

fn no_room(table: &Table, start: Option<u64>, size: Option<u64>) -> String {
    let largest = free(table).iter().map(|(first, last)| last + 1 - first).max().unwrap_or(0);
    match (start, size) {
        (Some(start), _) => format!(
            "there is no room at sector {start}; the largest free run has {}",
            counted(largest, "sector", "sectors")
        ),
        (None, Some(size)) => {
            let size = counted(size, "sector", "sectors");
            format!("there is no room for {size}; the largest free run has {largest}")
        }
        (None, None) if largest > 0 => format!(
            "no multiple of the alignment is free; the largest free run has {}",
            counted(largest, "sector", "sectors")
        ),
        (None, None) => "there is no free sector".into(),
    }
}

/// The partition `index`, or the error that there is none.
fn existing(graph: &Graph, geom: GeomId, index: u32) -> Result<Partition, GeomError> {
    let table = table_of(graph, geom)?;
    match table.partition(index) {
        Some(partition) => Ok(partition.clone()),
        None => refuse(Kind::NotFound, &graph[geom].name, format!("has no partition {index}")),
    }
}

fn check_closed(graph: &Graph, geom: GeomId, index: u32) -> Result<(), GeomError> {
    let Some(provider) = provider_of(graph, geom, index) else { return Ok(()) };
    let access = graph[provider].access;
    if access != Access::NONE {
        let cause = format!("is open ({access}); close it first");
        return refuse(Kind::Busy, &graph[provider].name, cause);
    }
    guard::in_use(graph, provider)
}

/// Removes a partition; returns its name.
///
/// # Errors
/// If it does not exist, or is in use.
pub fn delete(
    graph: &mut Graph,
    geom: GeomId,
    index: u32,
    flags: Flags,
) -> Result<String, GeomError> {
    let partition = existing(graph, geom, index)?;
    check_closed(graph, geom, index)?;
    let name = format!("{}{}", graph[geom].name, table_of(graph, geom)?.suffix(&partition));
    table_mut(graph, geom)?.partitions.retain(|partition| partition.index != index);
    finish(graph, geom, flags)?;
    Ok(name)
}

/// Changes the type or the name of a partition; returns its provider's name.
///
/// # Errors
/// If the change is invalid.
pub fn modify(
    graph: &mut Graph,
    geom: GeomId,
    (index, change): (u32, &Change),
    flags: Flags,
) -> Result<String, GeomError> {
    let mut partition = existing(graph, geom, index)?;
    let scheme = table_of(graph, geom)?.scheme;
    if let Some(kind) = &change.kind {
        check_closed(graph, geom, index)?;
        partition.kind = type_of(scheme, kind)?;
    }
    if let Some(label) = &change.label {
        check_label(scheme, label, &graph[geom].name)?;
        partition.label.clone_from(label);
    }
    replace(graph, geom, partition, flags)
}

/// Replaces a partition by a changed one; returns its name.
fn replace(
    graph: &mut Graph,
    geom: GeomId,
    partition: Partition,
    flags: Flags,
) -> Result<String, GeomError> {
    let mut changed = table_of(graph, geom)?.clone();
    let name = format!("{}{}", graph[geom].name, changed.suffix(&partition));
    let index = partition.index;
    if let Some(place) = changed.partitions.iter_mut().find(|p| p.index == index) {
        *place = partition;
    }
    if let Err(cause) = changed.check() {
        return refuse(Kind::NoSpace, &graph[geom].name, cause);
    }
    *table_mut(graph, geom)? = changed;
    finish(graph, geom, flags)?;
    Ok(name)
}

/// Changes the size of a partition, in sectors; without a size it takes all the free space after
/// it. Returns its name.
///
/// # Errors
/// If there is no room, or if it is open.
pub fn resize(
    graph: &mut Graph,
    geom: GeomId,
    (index, size, alignment): (u32, Option<u64>, Option<u64>),
    flags: Flags,
) -> Result<String, GeomError> {
    let mut partition = existing(graph, geom, index)?;
    check_closed(graph, geom, index)?;
    let table = table_of(graph, geom)?;
    let behind = table.partitions.iter().filter(|p| p.start > partition.end);
    let limit = behind.map(|p| p.start).min().unwrap_or(table.last + 1);
    let grid = alignment.unwrap_or(1).max(1);
    let end = match size {
        Some(size) => partition.start.checked_add(size),
        None => Some(limit),
    };
    let end = end.map(|end| if end.is_multiple_of(grid) { end } else { end / grid * grid });
    match end {
        Some(end) if end > partition.data && end <= limit => partition.end = end - 1,
        _ => {
            let room = counted(limit - partition.start, "sector", "sectors");
            let cause = format!("partition {index} can have up to {room}, not this many");
            return refuse(Kind::NoSpace, &graph[geom].name, cause);
        }
    }
    replace(graph, geom, partition, flags)
}

/// Sets or clears an attribute, such as `bootme` or `active`; returns the partition's name.
///
/// # Errors
/// If the scheme has no such attribute.
pub fn set_attribute(
    graph: &mut Graph,
    geom: GeomId,
    (index, name, value): (u32, &str, bool),
    flags: Flags,
) -> Result<String, GeomError> {
    let mut partition = existing(graph, geom, index)?;
    let table = table_of(graph, geom)?;
    let known: &[(&str, u64)] = match table.scheme {
        Scheme::Gpt => &GPT_ATTRIBUTES,
        Scheme::Mbr => &MBR_ATTRIBUTES,
        Scheme::Ebr | Scheme::Bsd | Scheme::Bsd64 => &[],
    };
    let Some((_, bit)) = known.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let there = if names.is_empty() { "none".into() } else { names.join(", ") };
        let cause = format!("is not an attribute of {}; there are: {there}", table.scheme.name());
        return refuse(Kind::Invalid, name, cause);
    };
    match value {
        true => partition.attributes |= bit,
        false => partition.attributes &= !bit,
    }
    if (table.scheme, value) == (Scheme::Mbr, true) {
        // A PC boots from one partition.
        for other in &mut table_mut(graph, geom)?.partitions {
            other.attributes &= !u64::from(mbr::ACTIVE);
        }
    }
    replace(graph, geom, partition, flags)
}

/// Sets or clears an attribute of the whole table; returns its name. A GPT has `active`, which
/// marks the protective entry as the one to boot from, and `lenovofix`, which makes that entry the
/// second one of its record: some BIOSes boot from a GPT only in that form.
///
/// # Errors
/// If the scheme has no such attribute, or if the record has other entries as well.
pub fn set_table_attribute(
    graph: &mut Graph,
    geom: GeomId,
    (name, value): (&str, bool),
    flags: Flags,
) -> Result<String, GeomError> {
    let disk = graph[geom].name.clone();
    let table = table_mut(graph, geom)?;
    let scheme = table.scheme.name();
    let Detail::Gpt(detail) = &mut table.detail else {
        let cause = format!("is not an attribute of a whole {scheme}; name the partition with -i");
        return refuse(Kind::Invalid, name, cause);
    };
    detail.set_attribute(name, value).map_err(|cause| {
        let object = if cause.is_about_the_name() { name } else { &disk };
        GeomError::invalid(object, cause)
    })?;
    finish(graph, geom, flags)?;
    Ok(disk)
}

/// Puts boot code at the start of the disk. Bytes of the code that belong to the table are left
/// out, and the serial number of an MBR stays unless `with_serial` says that the code has its own.
///
/// # Errors
/// If the scheme has no place for it, or if it is too long.
pub fn boot_code(
    graph: &mut Graph,
    geom: GeomId,
    (code, with_serial): (&[u8], bool),
    flags: Flags,
) -> Result<(), GeomError> {
    const ROOM: usize = mbr::TABLE_AT;
    const SERIAL: core::ops::Range<usize> = mbr::SERIAL_AT..mbr::SERIAL_AT + 4;
    let name = graph[geom].name.clone();
    let table = table_mut(graph, geom)?;
    let too_long = |room: usize| {
        let cause = format!("the boot code has {} bytes, but there is room for {room}", code.len());
        GeomError::new(Kind::NoSpace, &name, cause)
    };
    let mut serial = [0; 4];
    let front = match &mut table.detail {
        Detail::Gpt(detail) => &mut detail.front,
        Detail::Mbr(front) => {
            serial.copy_from_slice(&front[SERIAL]);
            front
        }
        Detail::Bsd { sector, boot, .. } => {
            bsd::put_boot_code((sector, boot), table.entries, code).map_err(too_long)?;
            return finish(graph, geom, flags);
        }
        Detail::Ebr(_) | Detail::Bsd64(_) => {
            return refuse(Kind::Invalid, &name, "this kind of table has no place for boot code");
        }
    };
    if code.len() > mbr::LEN {
        return Err(too_long(mbr::LEN));
    }
    let len = code.len().min(ROOM);
    front[..ROOM].fill(0);
    front[..len].copy_from_slice(&code[..len]);
    if serial != [0; 4] && !with_serial {
        front[SERIAL].copy_from_slice(&serial);
    }
    finish(graph, geom, flags)
}

/// Puts boot code into a partition.
///
/// # Errors
/// If it does not fit, or if the partition is in use.
pub fn partition_code(
    graph: &mut Graph,
    geom: GeomId,
    (index, code): (u32, &[u8]),
) -> Result<String, GeomError> {
    existing(graph, geom, index)?;
    let missing = || GeomError::not_found(&graph[geom].name, "partition");
    let provider = provider_of(graph, geom, index).ok_or_else(missing)?;
    let (name, sector) = (graph[provider].name.clone(), graph[provider].sector_size);
    if code.len() as u64 > graph[provider].media_size {
        let (has, needs) = (graph[provider].media_size, code.len());
        return refuse(Kind::NoSpace, &name, format!("has {has} bytes, but the code {needs}"));
    }
    let mut sectors = code.to_vec();
    sectors.resize(code.len().next_multiple_of(sector as usize), 0);
    let consumer = graph.open(provider, Access::ALONE)?;
    let written = graph
        .io(consumer, Io::Write { offset: 0, from: &sectors })
        .and_then(|()| graph.io(consumer, Io::Flush));
    graph.shut(consumer);
    graph.settle();
    written.map_err(|error| GeomError::io(&name, error))?;
    Ok(name)
}

/// Removes a table; one with partitions only by force. Without [`Flags::commit`] its partitions are
/// removed, and [`commit`] erases it.
///
/// # Errors
/// If there are partitions, or if one is in use.
pub fn destroy(graph: &mut Graph, geom: GeomId, flags: Flags) -> Result<(), GeomError> {
    let name = graph[geom].name.clone();
    let table = table_of(graph, geom)?;
    let indices: Vec<u32> = table.partitions.iter().map(|partition| partition.index).collect();
    if !indices.is_empty() && !flags.force {
        let (one, many) = ("partition; delete it", "partitions; delete them");
        let cause = format!("has {}, or use -F", counted(indices.len(), one, many));
        return refuse(Kind::Busy, &name, cause);
    }
    for index in indices {
        check_closed(graph, geom, index)?;
    }
    let table = table_mut(graph, geom)?;
    (table.is_destroyed, table.modified) = (true, true);
    // Nobody may see the partitions of a table that is half erased.
    for provider in graph[geom].providers.clone() {
        graph.wither_provider(provider, block::BlockError::Gone);
    }
    graph.settle();
    if flags.commit { erase(graph, geom) } else { Ok(()) }
}

/// Erases a table whose partitions are gone.
fn erase(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    let sector = graph[under(graph, geom)?].sector_size;
    let zeros = || vec![0; sector as usize];
    let steps = match &table_of(graph, geom)?.detail {
        Detail::Gpt(detail) => gpt::erase(detail, sector),
        Detail::Mbr(_) | Detail::Ebr(_) => vec![Step::Write(0, zeros()), Step::Flush],
        Detail::Bsd { .. } => vec![Step::Write(u64::from(sector), zeros()), Step::Flush],
        Detail::Bsd64(old) => bsd64::erase(old, sector),
    };
    let written = write(graph, geom, &steps);
    graph.wither_geom(geom, block::BlockError::Gone);
    graph.settle();
    written
}

/// Repairs a GPT with one damaged or misplaced copy, or a disklabel whose writing was interrupted;
/// returns whether that was necessary.
///
/// # Errors
/// If it cannot be written.
pub fn recover(graph: &mut Graph, geom: GeomId, flags: Flags) -> Result<bool, GeomError> {
    let provider = under(graph, geom)?;
    let (sector, sectors) = (graph[provider].sector_size, graph[provider].sectors());
    let table = table_mut(graph, geom)?;
    if table.corrupt.is_none() {
        return Ok(false);
    }
    if table.scheme == Scheme::Gpt {
        gpt::place_anew(table, sector, sectors);
    }
    finish(graph, geom, flags)?;
    Ok(true)
}
