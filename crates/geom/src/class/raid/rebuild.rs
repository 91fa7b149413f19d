//! Rebuilding members, and making those equal again that may differ.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::array::{MemberState, PartState};
use super::{State, Stray, metadata, request, start, state, state_mut};
use crate::error::{Error, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId};

/// Bytes after which a member keeps how far it is, unless others are wanted.
pub const CHECKPOINT: u64 = 64 << 20;
/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// A disk takes the place of a member. It is written first of all, so that a power cut leaves the
/// array with or without it.
pub(super) fn take_place(
    graph: &mut Graph,
    geom: GeomId,
    (member, consumer): (usize, ConsumerId),
    (id, size): (Vec<u8>, u64),
) -> Result<(), Error> {
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

/// Whether a disk can take the place of a member: it is large enough, and nothing is lost by it.
pub(super) fn check_place(
    graph: &Graph,
    geom: GeomId,
    (member, size): (usize, u64),
    force: bool,
) -> Result<(), Error> {
    let state = state(graph, geom)?;
    let Some(format) = state.writing() else { return Err(metadata::only_read(graph, geom)) };
    let (array, size) = (&state.array, format.room(size));
    for volume in &array.volumes {
        let (name, level) = (&volume.name, volume.level.name());
        for part in volume.parts.iter().filter(|part| part.member == member) {
            let needed = part.offset + volume.used();
            if needed > size {
                let cause = format!("has room for {size} bytes, {needed} are needed");
                return Err(Error::new(Kind::NoSpace, &array.name, cause));
            }
            if !volume.level.is_rebuilt() && !force {
                let cause =
                    format!("volume {name} ({level}) is lost without its disk; say `geom --force`");
                return Err(Error::new(Kind::Busy, &array.name, cause));
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
    // Those that are away before those that failed.
    empty.sort_by_key(|&member| state.disks[member].consumer.is_some());
    empty
}

/// Gives stale disks places again.
fn refill(graph: &mut Graph, geom: GeomId) -> Result<(), Error> {
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

/// A spare disk takes a place that is empty: one of the array, or one that is nobody's yet. Tells
/// whether there was one.
fn take_spare(graph: &mut Graph, geom: GeomId) -> Result<bool, Error> {
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
        let all =
            graph.providers().filter(|(_, it)| it.access.exclusive == 0 && it.error.is_none());
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

/// Rebuilds what is to be rebuilt, and makes equal what may differ. Every `checkpoint` bytes it is
/// written down how far it is; `progress` is told the bytes that are done and all of them. Answers
/// how many members were rebuilt.
///
/// # Errors
/// Why it cannot go on. How far it is was kept.
pub fn rebuild(
    graph: &mut Graph,
    geom: GeomId,
    checkpoint: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<usize, Error> {
    refill(graph, geom)?;
    let mut rebuilt = 0;
    while let Some(target) = begin(graph, geom)? {
        copy(graph, geom, target, (checkpoint, progress))?;
        let (volume, slot) = target;
        let volume = &mut state_mut(graph, geom)?.array.volumes[volume];
        let part = &mut volume.parts[slot];
        (part.state, part.done) = (PartState::Active, 0);
        let differs = |state| matches!(state, PartState::Stale | PartState::Resync);
        let is_equal = !volume.parts.iter().any(|part| differs(part.state));
        let provider = state(graph, geom)?.providers.get(target.0).and_then(|it| it.0);
        let is_open = provider.is_some_and(|provider| graph[provider].access.write > 0);
        if is_equal && !is_open {
            state_mut(graph, geom)?.array.volumes[target.0].dirty = false;
        }
        metadata::write(graph, geom, None)?;
        rebuilt += 1;
        start::offer(graph, geom);
    }
    Ok(rebuilt)
}

/// The next part that is to be rebuilt, or made equal.
fn begin(graph: &mut Graph, geom: GeomId) -> Result<Option<(usize, usize)>, Error> {
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

fn copy(
    graph: &mut Graph,
    geom: GeomId,
    (number, slot): (usize, usize),
    (checkpoint, progress): (u64, &mut dyn FnMut(u64, u64)),
) -> Result<(), Error> {
    let there = state(graph, geom)?;
    let volume = &there.array.volumes[number];
    let (name, size, part) = (volume.name.clone(), volume.used(), volume.parts[slot]);
    let mates = volume.mates(slot);
    let to = there.disks[part.member].consumer;
    let fail = |error| Error::io(&name, error);
    let to = to.ok_or_else(|| fail(flysch_api::block::Error::Gone))?;
    let most = PIECE.min(checkpoint.next_multiple_of(4096)).max(4096);
    let mut bytes = vec![0; most as usize];
    let (mut at, mut kept) = (part.done.min(size), part.done);
    while at < size {
        let piece = &mut bytes[..most.min(size - at) as usize];
        let copies: Vec<(usize, u64)> = mates.iter().map(|&mate| (mate, at)).collect();
        request::read(graph, (geom, number), &copies, piece).map_err(fail)?;
        let write = Io::Write { offset: part.offset + at, from: piece };
        graph.io(to, write).map_err(fail)?;
        at += piece.len() as u64;
        let part = &mut state_mut(graph, geom)?.array.volumes[number].parts[slot];
        if !matches!(part.state, PartState::Rebuild | PartState::Resync) {
            return Err(fail(flysch_api::block::Error::Gone));
        }
        if at - kept >= checkpoint && at < size {
            graph.io(to, Io::Flush).map_err(fail)?;
            state_mut(graph, geom)?.array.volumes[number].parts[slot].done = at;
            metadata::write(graph, geom, None)?;
            kept = at;
        }
        progress(at, size);
    }
    graph.io(to, Io::Flush).map_err(fail)
}
