//! Requests to a mirror, and what happens to a component that fails them.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::BlockError;
use flysch_wire::geom::mirror::{Balance, disk_flags};

use super::{Disk, Part, State, update};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId};

/// Whether an error is the fault of the component, not of the request.
pub(crate) fn is_components(error: BlockError) -> bool {
    use BlockError::{BadData, Misaligned, OutOfRange, Unsupported};
    !matches!(error, BadData(_) | Misaligned | OutOfRange | Unsupported)
}

/// Performs a request.
pub(super) fn start(graph: &mut Graph, geom: GeomId, io: Io<'_>) -> Result<(), BlockError> {
    match io {
        Io::Read { offset, to } => read(graph, geom, offset, to),
        Io::Flush => all(graph, geom, Io::Flush),
        change => {
            mark_dirty(graph, geom)?;
            all(graph, geom, change)?;
            // A component that was dropped during this very write has fallen behind.
            mark_dirty(graph, geom)
        }
    }
}

/// The active components in the order in which they are asked.
fn order(state: &mut State, offset: u64) -> Vec<ConsumerId> {
    let mut active: Vec<&Disk> =
        state.disks.iter().filter(|disk| disk.part == Part::Active).collect();
    match state.common.balance {
        Balance::RoundRobin | Balance::Split => {
            let count = active.len().max(1);
            active.rotate_left(state.turn % count);
        }
        Balance::Prefer => active.sort_by_key(|disk| core::cmp::Reverse(disk.metadata.priority)),
        // The component whose head is nearest; among equals the one that has done the fewest reads.
        Balance::Load => active.sort_by_key(|disk| (disk.head != offset, disk.reads)),
        Balance::None | Balance::Unknown(_) => {}
    }
    let order = active.into_iter().map(|disk| disk.consumer).collect();
    state.turn = state.turn.wrapping_add(1);
    order
}

fn read(graph: &mut Graph, geom: GeomId, offset: u64, to: &mut [u8]) -> Result<(), BlockError> {
    let state = graph.state_mut::<State>(geom).ok_or(BlockError::Gone)?;
    let common = state.common;
    let sector = u64::from(common.sector_size);
    let slice = u64::from(common.slice).next_multiple_of(sector).max(sector) as usize;
    if common.balance != Balance::Split || to.len() <= slice {
        return read_one(graph, geom, offset, to);
    }
    for (piece, at) in to.chunks_mut(slice).zip((offset..).step_by(slice)) {
        read_one(graph, geom, at, piece)?;
    }
    Ok(())
}

/// Reads from one component. If that fails, another one is read and its data is written over the
/// unreadable sectors; a component that cannot be repaired this way is dropped.
fn read_one(graph: &mut Graph, geom: GeomId, offset: u64, to: &mut [u8]) -> Result<(), BlockError> {
    let state = graph.state_mut::<State>(geom).ok_or(BlockError::Gone)?;
    let mut failed: Vec<(ConsumerId, BlockError)> = Vec::new();
    let mut done = false;
    for consumer in order(state, offset) {
        match graph.io(consumer, Io::Read { offset, to }) {
            Ok(()) => {
                let disks = graph.state_mut::<State>(geom).map(|state| &mut state.disks);
                let disk = disks.and_then(|d| d.iter_mut().find(|d| d.consumer == consumer));
                if let Some(disk) = disk {
                    (disk.reads, disk.head) = (disk.reads + 1, offset + to.len() as u64);
                }
                done = true;
                break;
            }
            Err(error) if is_components(error) => failed.push((consumer, error)),
            Err(error) => return Err(error),
        }
    }
    if !done {
        // The last copy is never dropped.
        return Err(failed.first().map_or(BlockError::Gone, |(_, error)| *error));
    }
    for (consumer, error) in failed {
        if error == BlockError::Gone || !mend(graph, consumer, offset, to) {
            lose(graph, geom, consumer, error == BlockError::Gone);
        }
    }
    Ok(())
}

/// Writes data from another component; returns whether it can be read now.
fn mend(graph: &mut Graph, consumer: ConsumerId, offset: u64, right: &[u8]) -> bool {
    let mut back = vec![0; right.len()];
    let mended = graph.io(consumer, Io::Write { offset, from: right }).is_ok()
        && graph.io(consumer, Io::Read { offset, to: &mut back }).is_ok()
        && back == right;
    if mended {
        let provider = graph[consumer].provider.map(|provider| graph[provider].name.clone());
        let length = right.len();
        let name = provider.unwrap_or_default();
        graph.record.say(format!("MIRROR: {length} bytes at {offset} of {name} were mended"));
    }
    mended
}

/// Performs a request on every component that is written.
fn all(graph: &mut Graph, geom: GeomId, mut io: Io<'_>) -> Result<(), BlockError> {
    let state = graph.state::<State>(geom).ok_or(BlockError::Gone)?;
    let written = state.disks.iter().filter(|disk| disk.part.is_written());
    let chosen: Vec<(ConsumerId, Part)> = written.map(|disk| (disk.consumer, disk.part)).collect();
    let mut failed = Vec::new();
    let mut good = 0;
    for (consumer, part) in chosen {
        match graph.io(consumer, io.again()) {
            Ok(()) => good += usize::from(part == Part::Active),
            Err(error) if is_components(error) => failed.push((consumer, error)),
            Err(error) => return Err(error),
        }
    }
    if good == 0 {
        return Err(failed.first().map_or(BlockError::Gone, |(_, error)| *error));
    }
    for (consumer, error) in failed {
        lose(graph, geom, consumer, error == BlockError::Gone);
    }
    Ok(())
}

/// Before the first write: the components are marked as possibly different, and missing ones fall
/// behind.
pub(super) fn mark_dirty(graph: &mut Graph, geom: GeomId) -> Result<(), BlockError> {
    loop {
        let step = step(graph);
        let state = graph.state_mut::<State>(geom).ok_or(BlockError::Gone)?;
        if state.dirty && !state.bump {
            return Ok(());
        }
        if state.bump {
            state.common.sync_id = state.common.sync_id.wrapping_add(step);
        }
        let sync_id = state.common.sync_id;
        (state.bump, state.dirty) = (false, true);
        // A component dropped here makes another round necessary; their number only decreases.
        let marked = update(
            graph,
            geom,
            |disk| disk.part.is_written(),
            |metadata| {
                metadata.sync_id = sync_id;
                metadata.disk_flags |= disk_flags::DIRTY;
            },
        );
        marked.map_err(|error| error.as_block())?;
    }
}

/// By how much a sync id or a generation is raised. Only the order matters; but components that
/// were written separately, each while the other was missing, must not arrive at the same number:
/// they would be considered equal, and read in turn.
fn step(graph: &mut Graph) -> u32 {
    1 + (graph.random() % 4096) as u32
}

/// After the last write: the components are equal.
pub(super) fn clean(graph: &mut Graph, geom: GeomId) {
    if !graph.state::<State>(geom).is_some_and(|state| state.dirty) {
        return;
    }
    if all(graph, geom, Io::Flush).is_err() {
        return;
    }
    let cleaned = update(
        graph,
        geom,
        |disk| disk.part.is_written(),
        |metadata| {
            metadata.disk_flags &= !disk_flags::DIRTY;
        },
    );
    if let (Ok(()), Some(state)) = (cleaned, graph.state_mut::<State>(geom)) {
        state.dirty = false;
    }
}

/// Closes a component and detaches it.
pub(super) fn release(graph: &mut Graph, consumer: ConsumerId) {
    if graph.objects().consumer(consumer).is_some() {
        graph.drop_consumer(consumer);
    }
}

/// Drops a component. One that failed stays out: the generation of the others is raised. One that
/// is gone may return later.
pub(super) fn lose(graph: &mut Graph, geom: GeomId, consumer: ConsumerId, is_gone: bool) {
    let name = graph[consumer].provider.map(|provider| graph[provider].name.clone());
    let mirror = graph[geom].name.clone();
    let step = step(graph);
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    let before = state.disks.len();
    state.disks.retain(|disk| disk.consumer != consumer);
    let was_there = state.disks.len() < before;
    let left = state.active();
    let mut generation = state.common.gen_id;
    if was_there && state.running && left > 0 {
        if is_gone {
            state.bump = true;
        } else {
            generation = generation.wrapping_add(step);
            state.common.gen_id = generation;
        }
    }
    let (empty, running) = (state.disks.is_empty(), state.running);
    if was_there {
        let name = name.unwrap_or_default();
        let why = if is_gone { "is gone" } else { "failed" };
        graph.record.say(format!("MIRROR: {name} {why}: {mirror} goes on without it"));
    }
    if was_there && running && left > 0 && !is_gone {
        let _ = update(graph, geom, |_| true, |metadata| metadata.gen_id = generation);
    }
    if running && left == 0 || empty {
        graph.wither_geom(geom, BlockError::Gone);
        graph.settle_orphans();
    }
    release(graph, consumer);
}
