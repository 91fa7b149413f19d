//! Changing the size of a mirror (`gmirror resize`).

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::verbs::check_automatic;
use super::{Part, State, state, state_mut, update};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId};

/// Bytes made equal at a time.
const PIECE: u64 = 1 << 20;

/// Gives a mirror the size that fits all of its components, or a smaller one. Added space is first
/// made equal on all of them.
///
/// # Errors
/// If it is open, if a component is missing, or if there is no room.
pub fn resize(graph: &mut Graph, geom: GeomId, size: Option<u64>) -> Result<(), GeomError> {
    check_automatic(graph, geom)?;
    let there = state(graph, geom)?;
    let name = graph[geom].name.clone();
    let busy = |cause: &str| GeomError::new(Kind::Busy, &name, cause);
    if there.active() != usize::from(there.common.all) {
        return Err(busy("is not complete: a missing component would keep its size"));
    }
    if graph[geom].providers.iter().any(|&it| graph[it].access != Access::NONE) {
        return Err(busy("is open; close it first"));
    }
    let sector = u64::from(there.common.sector_size);
    let room = |consumer: ConsumerId| {
        let there = &graph[graph[consumer].provider?];
        Some(there.media_size.saturating_sub(u64::from(there.sector_size)))
    };
    let disks: Vec<ConsumerId> = there.disks.iter().map(|disk| disk.consumer).collect();
    let most = disks.iter().filter_map(|consumer| room(*consumer)).min().unwrap_or(0);
    let new = size.unwrap_or(most) / sector * sector;
    if new == 0 || new > most {
        let cause =
            format!("{} bytes are wanted, but its components have {most}", size.unwrap_or(0));
        return Err(GeomError::new(Kind::NoSpace, &name, cause));
    }
    let old = there.common.media_size;
    if new == old {
        return Ok(());
    }
    make_equal(graph, geom, &disks, (old, new))?;
    state_mut(graph, geom)?.common.media_size = new;
    // The component with the highest priority decides: until it is written, the mirror has the old
    // size.
    let mut order: Vec<(u8, ConsumerId)> = Vec::new();
    for disk in state(graph, geom)?.disks.iter().filter(|disk| disk.part == Part::Active) {
        order.push((disk.metadata.priority, disk.consumer));
    }
    order.sort_by_key(|(priority, _)| *priority);
    for (_, consumer) in order {
        update(
            graph,
            geom,
            |disk| disk.consumer == consumer,
            |metadata| metadata.media_size = new,
        )?;
    }
    for provider in graph[geom].providers.clone() {
        graph.resize_provider(provider, new);
    }
    graph.settle();
    Ok(())
}

/// Writes the data of the first component from `old` to `new` to the others.
fn make_equal(
    graph: &mut Graph,
    geom: GeomId,
    disks: &[ConsumerId],
    (old, new): (u64, u64),
) -> Result<(), GeomError> {
    let name = graph[geom].name.clone();
    let fail = |error| GeomError::io(&name, error);
    let Some((first, others)) = disks.split_first() else { return Ok(()) };
    let mut bytes = vec![0; PIECE as usize];
    let mut at = old;
    while at < new {
        let piece = &mut bytes[..PIECE.min(new - at) as usize];
        graph.io(*first, Io::Read { offset: at, to: piece }).map_err(fail)?;
        for other in others {
            graph.io(*other, Io::Write { offset: at, from: piece }).map_err(fail)?;
        }
        at += piece.len() as u64;
    }
    for other in others {
        graph.io(*other, Io::Flush).map_err(fail)?;
    }
    Ok(())
}

/// A component changed its size: its metadata moves to the new last sector. Returns whether it can
/// be used.
pub(super) fn resized(graph: &mut Graph, consumer: ConsumerId) -> bool {
    let geom = graph[consumer].geom;
    let Some(provider) = graph[consumer].provider else { return false };
    let size = graph[provider].media_size;
    let room = size.saturating_sub(u64::from(graph[provider].sector_size));
    let needed = graph.state::<State>(geom).map(|state| state.common.media_size);
    if needed.is_none_or(|needed| room < needed) {
        return false;
    }
    update(graph, geom, |disk| disk.consumer == consumer, |it| it.provider_size = size).is_ok()
}
