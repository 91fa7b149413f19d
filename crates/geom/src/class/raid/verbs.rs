//! The operations on arrays, by the verbs of `graid`.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use flysch_api::block;

use super::array::{Level, PartState};
use super::format::{FORMATS, Wanted, Writing};
use super::rebuild::{check_place, empty_places, take_place};
use super::{State, Stray, disk_named, metadata, recognised, start, state, state_mut};
use crate::access::Access;
use crate::class::guard;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::object::{GeomId, ProviderId};

/// The parameters of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct RaidOptions<'a> {
    /// Its name.
    pub name: &'a str,
    /// `RAID0`, `RAID1`, `RAID10`, as `graid` names levels.
    pub level: &'a str,
    /// Bytes to use of each disk; `None` for all that are free.
    pub size: Option<u64>,
    /// Size of a strip, bytes.
    pub strip: u64,
}

impl<'a> RaidOptions<'a> {
    fn wanted(&self) -> Result<Wanted<'a>, GeomError> {
        let level = match &self.level.to_ascii_uppercase()[..] {
            "RAID0" => Level::Raid0,
            "RAID1" => Level::Raid1,
            "RAID10" | "RAID1E" | "RAID1E-A" => Level::Raid10,
            _ => {
                let cause = "is not a level that can be made; those are RAID0, RAID1, RAID10";
                return Err(GeomError::invalid(self.level, cause));
            }
        };
        Ok(Wanted { name: self.name, level, size: self.size, strip: self.strip })
    }
}

fn format_of(name: &str) -> Result<&'static dyn Writing, GeomError> {
    let written = || FORMATS.into_iter().filter_map(|format| format.writing());
    written().find(|format| format.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<&str> = written().map(|format| format.name()).collect();
        let cause = format!("is not a format that can be written; there is {}", known.join(", "));
        GeomError::invalid(name, cause)
    })
}

/// How the metadata of an array is written.
fn writing(graph: &Graph, geom: GeomId) -> Result<&'static dyn Writing, GeomError> {
    let writing = state(graph, geom)?.writing();
    writing.ok_or_else(|| metadata::only_read(graph, geom))
}

/// Refuses if a disk is in use or has contents.
fn check_blank(graph: &mut Graph, provider: ProviderId, force: bool) -> Result<(), GeomError> {
    guard::in_use(graph, provider)?;
    if force {
        return Ok(());
    }
    guard::last_sector(graph, "RAID", provider)?;
    if let Some(format) = recognised(graph, provider) {
        let cause =
            format!("metadata of a RAID ({format}) is on it; use `geom --force` to write over it");
        return Err(GeomError::new(Kind::Foreign, &graph[provider].name, cause));
    }
    guard::file_system(graph, provider)
}

/// Makes an array of disks, and a volume on it. Returns the array's name.
///
/// # Errors
/// The error names the obstacle; no disk has metadata then.
pub fn label(
    graph: &mut Graph,
    format: &str,
    under: &[ProviderId],
    (options, force): (&RaidOptions<'_>, bool),
) -> Result<alloc::string::String, GeomError> {
    let (format, wanted) = (format_of(format)?, options.wanted()?);
    let mut disks = Vec::new();
    for (at, &provider) in under.iter().enumerate() {
        if under[..at].contains(&provider) {
            return Err(GeomError::invalid(&graph[provider].name, "is named twice"));
        }
        check_blank(graph, provider, force)?;
        let id = format.identity(graph, provider)?;
        if disks.iter().any(|(known, _)| *known == id) {
            let cause = "has the same serial number as another one of them";
            return Err(GeomError::invalid(&graph[provider].name, cause));
        }
        disks.push((id, graph[provider].media_size));
    }
    let empty = format.create(graph.random(), &disks)?;
    // All errors are found before anything is written.
    format.add(&mut empty.clone(), &wanted)?;
    let name = empty.name.clone();
    let geom = start::new(graph, format, empty);
    for &provider in under {
        match start::attach(graph, geom, provider) {
            Ok(consumer) => {
                let disk = super::Disk { consumer: Some(consumer), read_errors: 0 };
                state_mut(graph, geom)?.disks.push(disk);
            }
            Err(error) => {
                let _ = stop(graph, geom, true);
                return Err(error);
            }
        }
    }
    state_mut(graph, geom)?.running = true;
    // All disks first record each other, then the volume: a cut leaves none or all of it.
    let made = metadata::write(graph, geom, None).and_then(|()| {
        let state = state_mut(graph, geom)?;
        format.add(&mut state.array, &wanted)?;
        metadata::write(graph, geom, None)
    });
    if let Err(error) = made {
        for consumer in graph[geom].consumers.clone() {
            let _ = erase(graph, geom, consumer);
        }
        let _ = stop(graph, geom, true);
        return Err(error);
    }
    start::offer(graph, geom);
    graph.settle();
    Ok(name)
}

/// Adds a volume to an array.
///
/// # Errors
/// The error names the obstacle.
pub fn add(graph: &mut Graph, geom: GeomId, options: &RaidOptions<'_>) -> Result<(), GeomError> {
    let wanted = options.wanted()?;
    let format = writing(graph, geom)?;
    check_whole(graph, geom)?;
    let state = state_mut(graph, geom)?;
    let mut after = state.array.clone();
    format.add(&mut after, &wanted)?;
    state.array = after;
    metadata::write(graph, geom, None)?;
    start::offer(graph, geom);
    graph.settle();
    Ok(())
}

/// Refuses if a disk of an array is missing.
fn check_whole(graph: &Graph, geom: GeomId) -> Result<(), GeomError> {
    match empty_places(state(graph, geom)?).is_empty() {
        true => Ok(()),
        false => {
            let cause = "one of its disks is missing or failed; `raid insert` another one first";
            Err(GeomError::new(Kind::Busy, &graph[geom].name, cause))
        }
    }
}

/// Removes a volume, given by name or number; with the last one, or without a name, the array.
///
/// # Errors
/// If it does not exist, or if it is open, unless `force`.
pub fn delete(
    graph: &mut Graph,
    geom: GeomId,
    volume: Option<&str>,
    force: bool,
) -> Result<(), GeomError> {
    let format = writing(graph, geom)?;
    let there = state(graph, geom)?;
    let number = match volume {
        None => None,
        Some(name) => {
            let mut volumes = there.array.volumes.iter();
            let found = volumes.position(|volume| volume.name == name);
            let by_number = || name.parse().ok().filter(|it| *it < there.array.volumes.len());
            let missing = || GeomError::not_found(name, "volume");
            Some(found.or_else(by_number).ok_or_else(missing)?)
        }
    };
    let all = there.array.volumes.len();
    let chosen = |at: usize| number.is_none_or(|number| number == at);
    for (at, (provider, _)) in there.providers.iter().enumerate() {
        if let (true, Some(provider), false) = (chosen(at), *provider, force) {
            check_closed(graph, provider)?;
        }
    }
    for at in (0..all).rev().filter(|at| chosen(*at)) {
        let state = state_mut(graph, geom)?;
        format.delete(&mut state.array, at);
        let (provider, _) = state.providers.remove(at);
        if let Some(provider) = provider {
            graph.wither_provider(provider, block::BlockError::Gone);
            graph.settle_orphans();
        }
    }
    // All disks forget the volume before any of them forgets the array.
    metadata::write(graph, geom, None)?;
    if !state(graph, geom)?.array.volumes.is_empty() {
        graph.settle();
        return Ok(());
    }
    for consumer in graph[geom].consumers.clone() {
        erase(graph, geom, consumer)?;
    }
    stop(graph, geom, true)
}

fn check_closed(graph: &Graph, provider: ProviderId) -> Result<(), GeomError> {
    let there = &graph[provider];
    if there.access == Access::NONE {
        return Ok(());
    }
    let cause = format!("is open ({}); close it first", there.access);
    Err(GeomError::new(Kind::Busy, there.name.to_string(), cause))
}

fn erase(graph: &mut Graph, geom: GeomId, consumer: crate::ConsumerId) -> Result<(), GeomError> {
    let format = writing(graph, geom)?;
    let Some(provider) = graph[consumer].provider else { return Ok(()) };
    let writes = format.erase(graph[provider].media_size);
    metadata::put(graph, consumer, &writes)
}

/// Gives disks the places of missing or failed ones; [`super::rebuild`] fills them. If no place is
/// free, the disks become spares.
///
/// # Errors
/// The error names the obstacle; also if no disk is needed.
pub fn insert(
    graph: &mut Graph,
    geom: GeomId,
    under: &[ProviderId],
    force: bool,
) -> Result<(), GeomError> {
    let format = writing(graph, geom)?;
    for &provider in under {
        let name = graph[provider].name.clone();
        check_blank(graph, provider, force)?;
        let there = state(graph, geom)?;
        let (id, size) = (format.identity(graph, provider)?, graph[provider].media_size);
        if there.array.member(&id).is_some() {
            return Err(GeomError::invalid(
                name,
                "has the same serial number as another disk of the array",
            ));
        }
        let Some(&member) = empty_places(there).first() else {
            make_spare(graph, geom, provider, (id, size))?;
            continue;
        };
        check_place(graph, geom, (member, size), force)?;
        let consumer = start::attach(graph, geom, provider)?;
        take_place(graph, geom, (member, consumer), (id, size))?;
    }
    graph.settle();
    Ok(())
}

/// Makes a disk a spare, since no place is free: [`super::rebuild`] uses it when one is.
fn make_spare(
    graph: &mut Graph,
    geom: GeomId,
    provider: ProviderId,
    disk: (Vec<u8>, u64),
) -> Result<(), GeomError> {
    let format = writing(graph, geom)?;
    let mut after = state(graph, geom)?.array.clone();
    match format.spare(&mut after, disk)? {
        Some(writes) => {
            let name = graph[provider].name.clone();
            let consumer = graph.open(provider, Access::ALONE)?;
            let written = metadata::put(graph, consumer, &writes);
            graph.shut(consumer);
            graph.record.say(format!("RAID: {name} is a spare disk"));
            written
        }
        None => {
            let consumer = start::attach(graph, geom, provider)?;
            let state = state_mut(graph, geom)?;
            state.array = after;
            state.disks.push(super::Disk { consumer: Some(consumer), read_errors: 0 });
            let last = state.disks.len() - 1;
            metadata::write(graph, geom, Some(last))
        }
    }
}

/// Marks disks as failed: they are no longer used, unless a volume has nothing else.
///
/// # Errors
/// If one is not a disk of the array, or is the last one that holds something.
pub fn fail(graph: &mut Graph, geom: GeomId, names: &[&str]) -> Result<(), GeomError> {
    writing(graph, geom)?;
    for name in names {
        let (consumer, member) = member_named(graph, geom, name)?;
        if !state(graph, geom)?.array.can_lose(member, false) {
            return Err(last(graph, geom, name));
        }
        metadata::fault(graph, geom, consumer, false)?;
    }
    graph.settle();
    Ok(())
}

fn last(graph: &Graph, geom: GeomId, name: &str) -> GeomError {
    let cause = format!("it holds the only copy of a volume of {}", graph[geom].name);
    GeomError::new(Kind::Busy, name, cause)
}

fn member_named(
    graph: &Graph,
    geom: GeomId,
    name: &str,
) -> Result<(crate::ConsumerId, usize), GeomError> {
    let consumer = disk_named(graph, geom, name)?;
    let mut disks = state(graph, geom)?.disks.iter();
    let member = disks.position(|disk| disk.consumer == Some(consumer));
    let missing = || GeomError::new(Kind::NotFound, name, "has no place in the array");
    Ok((consumer, member.ok_or_else(missing)?))
}

/// Removes disks permanently and erases their metadata.
///
/// # Errors
/// If one is not a disk of the array, or is the last one that holds something.
pub fn remove(graph: &mut Graph, geom: GeomId, names: &[&str]) -> Result<(), GeomError> {
    writing(graph, geom)?;
    for name in names {
        let consumer = disk_named(graph, geom, name)?;
        let there: &State = state(graph, geom)?;
        let member = there.disks.iter().position(|disk| disk.consumer == Some(consumer));
        if let Some(member) = member {
            if !there.array.can_lose(member, true) {
                return Err(last(graph, geom, name));
            }
            let state = state_mut(graph, geom)?;
            state.array.each_part(member, |_, part| (part.state, part.done) = (PartState::None, 0));
            state.disks[member].consumer = None;
            state.strays.push(Stray { consumer, failed: true });
            // The others record it before it forgets the array.
            metadata::write(graph, geom, None)?;
        }
        erase(graph, geom, consumer)?;
        state_mut(graph, geom)?.strays.retain(|stray| stray.consumer != consumer);
        graph.drop_consumer(consumer);
        graph.settle();
    }
    Ok(())
}

/// Stops an array; its metadata stays.
///
/// # Errors
/// If a volume is open, unless `force`.
pub fn stop(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    if !force {
        let providers = &graph[geom].providers;
        providers.iter().try_for_each(|&provider| check_closed(graph, provider))?;
    }
    // A provider closed after writing is tasted again: not by this class, while it is attached.
    for consumer in graph[geom].consumers.clone() {
        graph.close(consumer);
        graph.settle();
    }
    graph.wither_geom(geom, block::BlockError::Gone);
    graph.settle();
    Ok(())
}
