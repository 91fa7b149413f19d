//! Requests to volumes.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::BlockError;

use super::array::{Level, PartState};
use super::{State, metadata, name_of};
use crate::class::mirror::is_components;
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId};

/// A volume of a geom.
pub(super) type Target = (GeomId, usize);

/// Performs a request.
pub(super) fn start(graph: &mut Graph, to: Target, mut io: Io<'_>) -> Result<(), BlockError> {
    if matches!(io, Io::Flush) {
        return flush(graph, to);
    }
    if io.changes() {
        mark(graph, to)?;
    }
    let (offset, length) = (io.offset(), io.len());
    let mut done = 0;
    while done < length {
        let state = graph.state::<State>(to.0).ok_or(BlockError::Gone)?;
        let volume = state.array.volumes.get(to.1).ok_or(BlockError::Gone)?;
        let (copies, room) = volume.place(offset + done).ok_or(BlockError::OutOfRange)?;
        let now = room.min(length - done);
        let piece = io.part(done, now, 0);
        match piece {
            Io::Read { to: bytes, .. } => read(graph, to, &copies, bytes)?,
            change => write(graph, to, &copies, change)?,
        }
        done += now;
    }
    Ok(())
}

/// The consumer of a part, and the byte on its disk for byte `at` of the part.
pub(super) fn disk_of(
    state: &State,
    volume: usize,
    slot: usize,
    at: u64,
) -> Option<(ConsumerId, u64)> {
    let part = state.array.volumes[volume].parts.get(slot)?;
    Some((state.disks[part.member].consumer?, part.offset + at))
}

/// Whether a part is read.
pub(super) fn is_read(level: Level, state: PartState) -> bool {
    match level {
        // There is no other copy, so a disk that failed before is still read.
        Level::Raid0 | Level::Concat => matches!(state, PartState::Active | PartState::Failed),
        Level::Raid5(_) => {
            matches!(state, PartState::Active | PartState::Stale | PartState::Resync)
        }
        Level::Raid1 | Level::Raid10 => state == PartState::Active,
    }
}

/// Reads one copy. If that fails, another one is read and its data is written over the unreadable
/// sectors; a disk that cannot be repaired this way is dropped.
pub(super) fn read(
    graph: &mut Graph,
    to: Target,
    copies: &[(usize, u64)],
    bytes: &mut [u8],
) -> Result<(), BlockError> {
    let state = graph.state_mut::<State>(to.0).ok_or(BlockError::Gone)?;
    state.turn = state.turn.wrapping_add(1);
    let volume = &state.array.volumes[to.1];
    let level = volume.level;
    let can = |copy: &&(usize, u64)| is_read(level, volume.parts[copy.0].state);
    let mut order: Vec<(usize, u64)> = copies.iter().filter(can).copied().collect();
    let count = order.len().max(1);
    order.rotate_left(state.turn % count);
    let mut failed: Vec<(ConsumerId, u64, BlockError)> = Vec::new();
    let mut is_done = false;
    for (slot, at) in order {
        let state = graph.state_mut::<State>(to.0).ok_or(BlockError::Gone)?;
        let Some((consumer, offset)) = disk_of(state, to.1, slot, at) else { continue };
        match graph.io(consumer, Io::Read { offset, to: bytes }) {
            Ok(()) => {
                is_done = true;
                break;
            }
            Err(error) if is_components(error) => {
                failed.push((consumer, offset, error));
                count_error(graph, to.0, consumer);
            }
            Err(error) => return Err(error),
        }
    }
    let first = failed.first().map_or(BlockError::Gone, |(_, _, error)| *error);
    if !is_done {
        // The last copy is never dropped.
        return match (level, copies) {
            (Level::Raid5(_), [(slot, at)]) => reconstruct(graph, to, (*slot, *at), bytes),
            _ => Err(first),
        };
    }
    for (consumer, offset, error) in failed {
        if error == BlockError::Gone || !mend(graph, consumer, offset, bytes) {
            // The data read is right, whether or not the failure can be recorded.
            let _ = metadata::fault(graph, to.0, consumer, error == BlockError::Gone);
        }
    }
    Ok(())
}

fn count_error(graph: &mut Graph, geom: GeomId, consumer: ConsumerId) {
    let disks = graph.state_mut::<State>(geom).map(|state| &mut state.disks);
    let disk = disks.and_then(|disks| disks.iter_mut().find(|it| it.consumer == Some(consumer)));
    if let Some(disk) = disk {
        disk.read_errors = disk.read_errors.saturating_add(1);
    }
}

/// The exclusive OR of the same range on all other members.
fn reconstruct(
    graph: &mut Graph,
    to: Target,
    (missing, at): (usize, u64),
    bytes: &mut [u8],
) -> Result<(), BlockError> {
    let state = graph.state::<State>(to.0).ok_or(BlockError::Gone)?;
    let volume = &state.array.volumes[to.1];
    if volume.dirty {
        // Parity that may be wrong is worthless.
        return Err(BlockError::Gone);
    }
    let others = (0..volume.parts.len()).filter(|slot| *slot != missing);
    let others: Vec<_> = others
        .map(|slot| match volume.parts[slot].state {
            PartState::Active => disk_of(state, to.1, slot, at),
            _ => None,
        })
        .collect();
    let mut other = vec![0; bytes.len()];
    bytes.fill(0);
    for disk in others {
        let (consumer, offset) = disk.ok_or(BlockError::Gone)?;
        graph.io(consumer, Io::Read { offset, to: &mut other })?;
        bytes.iter_mut().zip(&other).for_each(|(sum, byte)| *sum ^= byte);
    }
    Ok(())
}

/// Writes the data of another copy; returns whether it can be read now.
fn mend(graph: &mut Graph, consumer: ConsumerId, offset: u64, right: &[u8]) -> bool {
    let mut back = vec![0; right.len()];
    let mended = graph.io(consumer, Io::Write { offset, from: right }).is_ok()
        && graph.io(consumer, Io::Read { offset, to: &mut back }).is_ok()
        && back == right;
    if mended {
        let name = name_of(graph, Some(consumer));
        graph.record.say(format!("RAID: {} bytes at {offset} of {name} were mended", right.len()));
    }
    mended
}

/// Performs a change on every copy that is written.
fn write(
    graph: &mut Graph,
    to: Target,
    copies: &[(usize, u64)],
    mut change: Io<'_>,
) -> Result<(), BlockError> {
    let mut failed = Vec::new();
    let mut good = 0;
    for &(slot, at) in copies {
        let state = graph.state::<State>(to.0).ok_or(BlockError::Gone)?;
        let volume = &state.array.volumes[to.1];
        let (level, how) = (volume.level, volume.parts[slot].state);
        let is_needed = is_read(level, how);
        if !is_needed && !how.is_written() {
            continue;
        }
        let Some((consumer, offset)) = disk_of(state, to.1, slot, at) else { continue };
        let length = change.len();
        match graph.io(consumer, change.part(0, length, offset)) {
            Ok(()) => good += usize::from(is_needed),
            Err(error) if is_components(error) => failed.push((slot, error)),
            Err(error) => return Err(error),
        }
    }
    if good == 0 {
        return Err(failed.first().map_or(BlockError::Gone, |(_, error)| *error));
    }
    for (slot, error) in failed {
        let told = metadata::fell_behind(graph, (to.0, to.1, slot), error == BlockError::Gone);
        told.map_err(|error| error.as_block())?;
    }
    Ok(())
}

fn flush(graph: &mut Graph, to: Target) -> Result<(), BlockError> {
    let state = graph.state::<State>(to.0).ok_or(BlockError::Gone)?;
    let volume = state.array.volumes.get(to.1).ok_or(BlockError::Gone)?;
    let level = volume.level;
    let mut targets = Vec::new();
    for (slot, part) in volume.parts.iter().enumerate() {
        let is_needed = is_read(level, part.state);
        if let Some((consumer, _)) = disk_of(state, to.1, slot, 0)
            && (is_needed || part.state.is_written())
        {
            targets.push((slot, consumer));
        }
    }
    let mut failed = Vec::new();
    for &(slot, consumer) in &targets {
        match graph.io(consumer, Io::Flush) {
            Ok(()) => {}
            Err(error) if is_components(error) => failed.push((slot, error)),
            Err(error) => return Err(error),
        }
    }
    let Some(&(_, first)) = failed.first() else { return Ok(()) };
    let state = graph.state::<State>(to.0).ok_or(BlockError::Gone)?;
    let volume = &state.array.volumes[to.1];
    let has_failed = |slot: &usize| failed.iter().any(|(other, _)| other == slot);
    // A part that is lost on one of them must exist on another.
    let is_safe = |(slot, _): &(usize, BlockError)| {
        let part = &volume.parts[*slot];
        let mut mates = volume.mates(*slot).into_iter().filter(|mate| !has_failed(mate));
        part.state != PartState::Active
            || mates.any(|mate| volume.parts[mate].state == PartState::Active)
    };
    if !failed.iter().all(is_safe) {
        return Err(first);
    }
    for (slot, error) in failed {
        let told = metadata::fell_behind(graph, (to.0, to.1, slot), error == BlockError::Gone);
        told.map_err(|error| error.as_block())?;
    }
    Ok(())
}

/// Before the first write: the disks record that copies may differ, and missing ones fall behind.
pub(super) fn mark(graph: &mut Graph, to: Target) -> Result<(), BlockError> {
    let state = graph.state_mut::<State>(to.0).ok_or(BlockError::Gone)?;
    let behind = state.untold || state.is_behind();
    let volume = state.array.volumes.get_mut(to.1).ok_or(BlockError::Gone)?;
    if !volume.level.is_rebuilt() || (volume.dirty && !behind) {
        return Ok(());
    }
    let before = volume.dirty;
    volume.dirty = true;
    let written = metadata::write(graph, to.0, None).map_err(|error| error.as_block());
    if let (Err(_), Some(state)) = (&written, graph.state_mut::<State>(to.0)) {
        state.array.volumes[to.1].dirty = before;
    }
    written
}

/// After the last write: the copies are equal.
pub(super) fn clean(graph: &mut Graph, geom: GeomId, volume: usize) {
    let is_dirty =
        graph.state::<State>(geom).is_some_and(|state| state.array.volumes[volume].dirty);
    if !is_dirty || flush(graph, (geom, volume)).is_err() {
        return;
    }
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    // Copies that differed before still do.
    let volume = &mut state.array.volumes[volume];
    if volume.parts.iter().any(|part| matches!(part.state, PartState::Stale | PartState::Resync)) {
        return;
    }
    volume.dirty = false;
    if let Err(error) = metadata::write(graph, geom, None) {
        graph.record.say(format!("RAID: metadata: {error}"));
    }
}
