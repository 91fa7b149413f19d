//! Rebuilding members, and making members that may differ equal.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;

use super::array::{MemberState, Part, PartState};
use super::{State, Stray, metadata, request, start, state, state_mut};
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId};

/// Default number of bytes after which the progress of a member is recorded.
pub const CHECKPOINT: u64 = 64 << 20;
/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;

/// Puts a disk in the place of a member. It is written first, so that a power cut leaves the array
/// with or without it.
pub(super) fn take_place(
    graph: &mut Graph,
    geom: GeomId,
    (member, consumer): (usize, ConsumerId),
    (id, size): (Vec<u8>, u64),
) -> Result<(), GeomError> {
    let Some(format) = state(graph, geom)?.writing() else {
        return Err(metadata::only_read(graph, geom));
    };
    let state = state_mut(graph, geom)?;
    let before = state.disks[member].consumer;
    state.strays.retain(|stray| stray.consumer != consumer);
    state.strays.extend(before.map(|consumer| Stray { consumer, failed: true }));
    format.replace(&mut state.array, member, (id, size));
    state.disks[member] = super::Disk { consumer: Some(consumer), read_errors: 0 };
    state.array.each_part(member, |_, part| (part.state, part.done) = (PartState::New, 0));
    metadata::write(graph, geom, Some(member))
}

/// Whether a disk can take the place of a member: it is large enough, and nothing is lost.
pub(super) fn check_place(
    graph: &Graph,
    geom: GeomId,
    (member, size): (usize, u64),
    force: bool,
) -> Result<(), GeomError> {
    let state = state(graph, geom)?;
    let Some(format) = state.writing() else { return Err(metadata::only_read(graph, geom)) };
    let (array, size) = (&state.array, format.room(size));
    for volume in &array.volumes {
        let (name, level) = (&volume.name, volume.level.name());
        for part in volume.parts.iter().filter(|part| part.member == member) {
            let needed = part.offset + volume.used();
            if needed > size {
                let cause = format!("has room for {size} bytes, but {needed} are needed");
                return Err(GeomError::new(Kind::NoSpace, &array.name, cause));
            }
            if !volume.level.is_rebuilt() && !force {
                let cause =
                    format!("volume {name} ({level}) is lost without its disk; use `geom --force`");
                return Err(GeomError::new(Kind::Busy, &array.name, cause));
            }
        }
    }
    Ok(())
}

/// The members that need another disk.
pub(super) fn empty_places(state: &State) -> Vec<usize> {
    let all = state.disks.iter().zip(&state.array.members).enumerate();
    let volumes = &state.array.volumes;
    let is_used = |number: usize| {
        let mut parts = volumes.iter().flat_map(|volume| &volume.parts);
        volumes.is_empty() || parts.any(|part| part.member == number)
    };
    let is_empty = |(number, (disk, member)): &(usize, (&super::Disk, &super::array::Member))| {
        is_used(*number) && (disk.consumer.is_none() || member.state != MemberState::Active)
    };
    let mut empty: Vec<usize> = all.filter(is_empty).map(|(number, _)| number).collect();
    // Missing ones before failed ones.
    empty.sort_by_key(|&member| state.disks[member].consumer.is_some());
    empty
}

/// Gives stale disks a place again.
fn refill(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    loop {
        let state = state(graph, geom)?;
        let Some(format) = state.writing() else {
            return Err(metadata::only_read(graph, geom));
        };
        let stale: Vec<ConsumerId> =
            state.strays.iter().filter(|it| !it.failed).map(|it| it.consumer).collect();
        let mut fitting = None;
        for member in empty_places(state) {
            for &consumer in &stale {
                let Some(provider) = graph[consumer].provider else { continue };
                let size = graph[provider].media_size;
                let id = format.identity(graph, provider);
                let fits = check_place(graph, geom, (member, size), false).is_ok();
                let is_known = id.as_ref().is_ok_and(|id| state.array.member(id).is_some());
                if let (Ok(id), true, false) = (id, fits, is_known) {
                    fitting = fitting.or(Some((member, consumer, id, size)));
                }
            }
        }
        match fitting {
            Some((member, consumer, id, size)) => {
                take_place(graph, geom, (member, consumer), (id, size))?;
            }
            None if take_spare(graph, geom)? => {}
            None => return Ok(()),
        }
    }
}

/// Lets a spare disk take an empty place: a spare of the array, or one that belongs to no array
/// yet. Returns whether there was one.
fn take_spare(graph: &mut Graph, geom: GeomId) -> Result<bool, GeomError> {
    let empty = empty_places(state(graph, geom)?);
    for member in empty {
        let there = state(graph, geom)?;
        let parts = || there.array.volumes.iter().flat_map(|volume| &volume.parts);
        let idle = there.disks.iter().enumerate().filter(|(number, disk)| {
            let is_active = there.array.members[*number].state == MemberState::Active;
            is_active && disk.consumer.is_some() && parts().all(|part| part.member != *number)
        });
        let idle: Vec<(usize, Option<ConsumerId>)> =
            idle.map(|(number, disk)| (number, disk.consumer)).collect();
        for (spare, consumer) in idle {
            let provider = consumer.and_then(|consumer| graph[consumer].provider);
            let Some(size) = provider.map(|provider| graph[provider].media_size) else { continue };
            if check_place(graph, geom, (member, size), false).is_err() {
                continue;
            }
            let array = &mut state_mut(graph, geom)?.array;
            array.each_part(member, |_, part| {
                (part.member, part.state, part.done) = (spare, PartState::New, 0);
            });
            metadata::write(graph, geom, None)?;
            return Ok(true);
        }
        let Some(format) = state(graph, geom)?.writing() else { return Ok(false) };
        let all = graph
            .objects()
            .providers()
            .filter(|(_, it)| it.access.exclusive == 0 && it.error.is_none());
        for provider in all.map(|(id, _)| id).collect::<Vec<_>>() {
            let size = graph[provider].media_size;
            let Ok(id) = format.identity(graph, provider) else { continue };
            let is_known = state(graph, geom)?.array.member(&id).is_some();
            let fits = check_place(graph, geom, (member, size), false).is_ok();
            if is_known || !fits || !format.is_spare(graph, provider) {
                continue;
            }
            let consumer = start::attach(graph, geom, provider)?;
            take_place(graph, geom, (member, consumer), (id, size))?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Rebuilds all members that need it, and makes equal those that may differ. The progress is
/// recorded every `checkpoint` bytes; `progress` is called with the bytes done and the total.
/// Returns how many members were rebuilt.
///
/// # Errors
/// If it cannot continue. The progress so far is kept.
pub fn rebuild(
    graph: &mut Graph,
    geom: GeomId,
    checkpoint: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<usize, GeomError> {
    let mut rebuilt = 0;
    while let Some((done, all)) = rebuild_piece(graph, geom, checkpoint)? {
        progress(done, all);
        rebuilt += usize::from(done == all);
    }
    Ok(rebuilt)
}

/// Rebuilds a piece of the first part that is to be rebuilt or made equal: 1 MiB, or `checkpoint`
/// bytes if that is less. Returns how many bytes of the part are done, and the total; after the
/// last piece it is read like the others. Returns `None` if there is nothing to rebuild.
///
/// Writes to the volume between two pieces reach the part too. Open ways must be quiet meanwhile
/// ([`crate::Way::is_quiet`]), and must follow new plans after the first piece.
///
/// # Errors
/// If it cannot continue. The progress so far is kept.
pub fn rebuild_piece(
    graph: &mut Graph,
    geom: GeomId,
    checkpoint: u64,
) -> Result<Option<(u64, u64)>, GeomError> {
    let Some(copying) = copying(graph, geom)? else { return Ok(None) };
    state_mut(graph, geom)?.copying = None;
    let copying = copy(graph, geom, copying, checkpoint)?;
    let size = state(graph, geom)?.array.volumes[copying.volume].used();
    if copying.at < size {
        let at = copying.at;
        state_mut(graph, geom)?.copying = Some(copying);
        return Ok(Some((at, size)));
    }
    finish(graph, geom, &copying)?;
    Ok(Some((size, size)))
}

/// What is being copied, or is to be copied next.
fn copying(graph: &mut Graph, geom: GeomId) -> Result<Option<Copying>, GeomError> {
    let there = state(graph, geom)?;
    if let Some(copying) = &there.copying
        && copying.is_still(there)
    {
        return Ok(Some(*copying));
    }
    refill(graph, geom)?;
    let Some((volume, slot)) = begin(graph, geom)? else { return Ok(None) };
    let there = state(graph, geom)?;
    let part = there.array.volumes[volume].parts[slot];
    let Some(to) = there.disks[part.member].consumer else { return Ok(None) };
    let at = part.done.min(there.array.volumes[volume].used());
    let place = (part.member, part.offset);
    Ok(Some(Copying { volume, slot, part: place, to, at, kept: part.done }))
}

/// A part holds all data.
fn finish(graph: &mut Graph, geom: GeomId, copying: &Copying) -> Result<(), GeomError> {
    graph.io(copying.to, Io::Flush).map_err(|error| copying.fault(graph, geom, error))?;
    let volume = &mut state_mut(graph, geom)?.array.volumes[copying.volume];
    let part = &mut volume.parts[copying.slot];
    (part.state, part.done) = (PartState::Active, 0);
    let differs = |state| matches!(state, PartState::Stale | PartState::Resync);
    let is_equal = !volume.parts.iter().any(|part| differs(part.state));
    let provider = state(graph, geom)?.providers.get(copying.volume).and_then(|it| it.0);
    let is_open = provider.is_some_and(|provider| graph[provider].access.write > 0);
    if is_equal && !is_open {
        state_mut(graph, geom)?.array.volumes[copying.volume].dirty = false;
    }
    metadata::write(graph, geom, None)?;
    start::offer(graph, geom);
    Ok(())
}

/// The next part to be rebuilt or made equal.
fn begin(graph: &mut Graph, geom: GeomId) -> Result<Option<(usize, usize)>, GeomError> {
    let state = state_mut(graph, geom)?;
    let mut found = None;
    for (number, volume) in state.array.volumes.iter_mut().enumerate() {
        if !volume.level.is_rebuilt() || !volume.state().is_alive() {
            continue;
        }
        for (slot, part) in volume.parts.iter_mut().enumerate() {
            let next = match part.state {
                _ if state.disks[part.member].consumer.is_none() => continue,
                PartState::New | PartState::Rebuild => PartState::Rebuild,
                PartState::Stale | PartState::Resync => PartState::Resync,
                _ => continue,
            };
            let is_begun = part.state == next;
            part.state = next;
            found = Some((number, slot, is_begun));
            break;
        }
        if found.is_some() {
            break;
        }
    }
    let Some((number, slot, is_begun)) = found else { return Ok(None) };
    if !is_begun {
        metadata::write(graph, geom, None)?;
    }
    Ok(Some((number, slot)))
}

/// Copies a piece; returns the progress after it.
fn copy(
    graph: &mut Graph,
    geom: GeomId,
    mut copying: Copying,
    checkpoint: u64,
) -> Result<Copying, GeomError> {
    let Copying { volume: number, slot, to, at, .. } = copying;
    let volume = &state(graph, geom)?.array.volumes[number];
    let (size, part) = (volume.used(), volume.parts[slot]);
    let copies: Vec<(usize, u64)> = volume.mates(slot).iter().map(|&mate| (mate, at)).collect();
    let most = PIECE.min(checkpoint.next_multiple_of(4096)).max(4096);
    let mut piece = vec![0; most.min(size - at) as usize];
    if !piece.is_empty() {
        request::read(graph, (geom, number), &copies, &mut piece)
            .and_then(|()| graph.io(to, Io::Write { offset: part.offset + at, from: &piece }))
            .map_err(|error| copying.fault(graph, geom, error))?;
    }
    copying.at += piece.len() as u64;
    if !copying.is_still(state(graph, geom)?) {
        return Err(copying.fault(graph, geom, block::BlockError::Gone));
    }
    if copying.at.saturating_sub(copying.kept) >= checkpoint && copying.at < size {
        graph.io(to, Io::Flush).map_err(|error| copying.fault(graph, geom, error))?;
        state_mut(graph, geom)?.array.volumes[number].parts[slot].done = copying.at;
        metadata::write(graph, geom, None)?;
        copying.kept = copying.at;
    }
    Ok(copying)
}

/// A part that is being rebuilt, between two pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copying {
    volume: usize,
    slot: usize,
    /// Its member, and the offset of the part there.
    part: (usize, u64),
    /// Its disk.
    to: ConsumerId,
    /// Bytes that it holds so far.
    at: u64,
    /// How many of these are recorded in its metadata.
    kept: u64,
}

impl Copying {
    /// Whether it still exists and is to be rebuilt: disks and volumes may come and go between two
    /// pieces.
    fn is_still(&self, state: &State) -> bool {
        let volume = state.array.volumes.get(self.volume);
        let part = volume.and_then(|volume| Some((volume.used(), *volume.parts.get(self.slot)?)));
        part.is_some_and(|(size, part)| {
            matches!(part.state, PartState::Rebuild | PartState::Resync)
                && (part.member, part.offset) == self.part
                && part.done == self.kept
                && self.at <= size
                && state.disks[part.member].consumer == Some(self.to)
        })
    }

    fn fault(&self, graph: &Graph, geom: GeomId, error: block::BlockError) -> GeomError {
        let volumes = state(graph, geom).map(|state| &state.array.volumes[..]).unwrap_or_default();
        let name = volumes.get(self.volume).map_or("", |volume| &volume.name);
        GeomError::io(name, error)
    }

    /// Rebuilt bytes of a part, if it is this one.
    pub(super) fn bytes_of(&self, part: &Part) -> Option<u64> {
        (self.part == (part.member, part.offset)).then_some(self.at)
    }
}
