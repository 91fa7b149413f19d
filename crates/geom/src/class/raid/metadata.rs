//! What is recorded about disks: that they are used, failed or missing.

use alloc::format;
use alloc::vec::Vec;

use flysch_api::block;

use super::array::{MemberState, PartState};
use super::{State, name_of, state, state_mut};
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId};

/// Writes bytes in order, with a flush after each.
pub(super) fn put(
    graph: &mut Graph,
    consumer: ConsumerId,
    writes: &[(u64, Vec<u8>)],
) -> Result<(), GeomError> {
    for (offset, bytes) in writes {
        graph
            .io(consumer, Io::Write { offset: *offset, from: bytes })
            .and_then(|()| graph.io(consumer, Io::Flush))
            .map_err(|error| GeomError::io(name_of(graph, Some(consumer)), error))?;
    }
    Ok(())
}

/// Writes the metadata of all members that are present, one after the other, starting with `first`.
/// Members that cannot be written are dropped, unless a volume needs them.
pub(super) fn write(
    graph: &mut Graph,
    geom: GeomId,
    first: Option<usize>,
) -> Result<(), GeomError> {
    loop {
        let state = state_mut(graph, geom)?;
        // Disks that are absent count as missing from now on.
        for (disk, member) in state.disks.iter().zip(&mut state.array.members) {
            if disk.consumer.is_none() {
                member.state = MemberState::Missing;
            }
        }
        let Some(format) = state.writing() else { return Err(only_read(graph, geom)) };
        format.advance(&mut state.array);
        let count = state.disks.len();
        let order = first.into_iter().chain((0..count).filter(|it| Some(*it) != first));
        let mut failed = None;
        let mut written = 0;
        for member in order {
            let state = super::state(graph, geom)?;
            let is_used = state.array.members[member].state == MemberState::Active;
            let Some(consumer) = state.disks[member].consumer.filter(|_| is_used) else { continue };
            let writes = format.emit(&state.array, member);
            match put(graph, consumer, &writes) {
                Ok(()) => written += 1,
                Err(error) => {
                    failed = Some((member, error));
                    break;
                }
            }
        }
        let Some((member, error)) = failed else {
            if written == 0 {
                return Err(gone(graph, geom));
            }
            state_mut(graph, geom)?.untold = false;
            return Ok(());
        };
        let is_gone = error.kind == Kind::Io(block::BlockError::Gone);
        if !is_gone && !super::state(graph, geom)?.array.can_lose(member, false) {
            return Err(error);
        }
        state_mut(graph, geom)?.untold = true;
        drop_out(graph, geom, member, is_gone);
    }
}

/// The error that metadata of this format is not written.
pub(super) fn only_read(graph: &Graph, geom: GeomId) -> GeomError {
    let there = state(graph, geom);
    let why = there.as_ref().ok().and_then(|it| it.format.writing()?.objection(&it.array));
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let format = there.map(|state| state.format.name()).unwrap_or_default();
    let cause = format!("metadata of {format} can only be read{why}");
    GeomError::new(Kind::Io(block::BlockError::WriteProtected), &graph[geom].name, cause)
}

fn gone(graph: &Graph, geom: GeomId) -> GeomError {
    GeomError::io(&graph[geom].name, block::BlockError::Gone)
}

/// Drops a member in memory; nothing is written yet.
fn drop_out(graph: &mut Graph, geom: GeomId, member: usize, is_gone: bool) {
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    let consumer = state.disks[member].consumer;
    state.array.lose(member, is_gone);
    if is_gone {
        state.disks[member].consumer = None;
    }
    let name = state.array.name.clone();
    let disk = name_of(graph, consumer);
    let why = if is_gone { "is gone" } else { "failed" };
    graph.record.say(format!("RAID: {name}: disk {disk} {why}"));
    if let Some(consumer) = consumer.filter(|_| is_gone) {
        release(graph, consumer);
    }
    hide(graph, geom);
}

/// Removes the providers of volumes that are no longer usable.
pub(super) fn hide(graph: &mut Graph, geom: GeomId) {
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    let mut lost = Vec::new();
    for (volume, (provider, _)) in state.array.volumes.iter().zip(&mut state.providers) {
        if !volume.state().is_alive()
            && let Some(provider) = provider.take()
        {
            lost.push((provider, volume.name.clone()));
        }
    }
    for (provider, volume) in lost {
        graph.record.say(format!("RAID: volume {volume} is BROKEN"));
        graph.wither_provider(provider, block::BlockError::Gone);
    }
    graph.settle_orphans();
}

pub(super) fn release(graph: &mut Graph, consumer: ConsumerId) {
    if graph.objects().consumer(consumer).is_some() {
        graph.drop_consumer(consumer);
    }
}

/// A disk failed a request that the others completed: it is dropped, and the others record that. If
/// a volume needs the disk, only its parts that are not current are given up.
///
/// # Errors
/// If it could not be recorded on any disk: it is recorded before the next change.
pub(super) fn fault(
    graph: &mut Graph,
    geom: GeomId,
    consumer: ConsumerId,
    is_gone: bool,
) -> Result<(), GeomError> {
    let state = state_mut(graph, geom)?;
    let Some(member) = state.disks.iter().position(|disk| disk.consumer == Some(consumer)) else {
        return Ok(());
    };
    state.untold = true;
    if is_gone || state.array.can_lose(member, false) {
        drop_out(graph, geom, member, is_gone);
    } else {
        state.array.each_part(member, |level, part| {
            if level.is_rebuilt() && part.state != PartState::Active {
                (part.state, part.done) = (PartState::New, 0);
            }
        });
    }
    tell(graph, geom)
}

/// A part missed a write that others did: it is no longer current.
pub(super) fn fell_behind(
    graph: &mut Graph,
    (geom, volume, slot): (GeomId, usize, usize),
    is_gone: bool,
) -> Result<(), GeomError> {
    let state = state_mut(graph, geom)?;
    let Some(part) = state.array.volumes[volume].parts.get_mut(slot) else { return Ok(()) };
    let member = part.member;
    // Whatever happens to the disk, this part must not be read again.
    (part.state, part.done) = (PartState::New, 0);
    state.untold = true;
    match state.disks[member].consumer {
        Some(consumer) => fault(graph, geom, consumer, is_gone),
        None => tell(graph, geom),
    }
}

/// Records the changes on the disks. What cannot be recorded now is recorded before the next
/// change.
fn tell(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    let state = state_mut(graph, geom)?;
    state.untold = true;
    if !state.running || state.disks.iter().all(|disk| disk.consumer.is_none()) {
        return Ok(());
    }
    let written = write(graph, geom, None);
    if let Err(error) = &written {
        graph.record.say(format!("RAID: metadata: {error}"));
    }
    written
}

/// A disk is gone. Nothing is written until the next write to a volume: it may return.
pub(super) fn depart(graph: &mut Graph, geom: GeomId, consumer: ConsumerId) {
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    state.waiting.retain(|(other, _)| *other != consumer);
    state.strays.retain(|stray| stray.consumer != consumer);
    let member = state.disks.iter().position(|disk| disk.consumer == Some(consumer));
    if let Some(member) = member {
        let before = state.array.members[member].state;
        let is_written = state.array.volumes.iter().any(|volume| volume.dirty);
        drop_out(graph, geom, member, true);
        if is_written {
            let _ = tell(graph, geom);
        } else if let Some(state) = graph.state_mut::<State>(geom) {
            state.array.members[member].state = before;
        }
    }
    release(graph, consumer);
    if graph[geom].consumers.is_empty() {
        graph.wither_geom(geom, block::BlockError::Gone);
        graph.settle_orphans();
    }
}
