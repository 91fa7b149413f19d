//! Requests to a disk with several paths, and what happens to a path that fails them.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use flysch_api::block::BlockError;
use flysch_wire::geom::multipath::Mode;

use super::{State, name_of};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId};

/// Whether an error is the fault of the path (`EIO` and `ENXIO` of FreeBSD), not of the request.
pub(crate) fn is_paths(error: BlockError) -> bool {
    use BlockError::{BadData, Misaligned, OutOfRange, Unsupported, WriteProtected};
    !matches!(error, BadData(_) | Misaligned | OutOfRange | Unsupported | WriteProtected)
}

/// Performs a request over one path, and over the others as long as paths fail: once over each.
pub(super) fn start(graph: &mut Graph, geom: GeomId, mut io: Io<'_>) -> Result<(), BlockError> {
    let mut tried: Vec<ConsumerId> = Vec::new();
    let mut last = None;
    while let Some(consumer) = choose(graph, geom, &io, &tried) {
        match graph.io(consumer, io.again()) {
            Err(error) if is_paths(error) => {
                tried.push(consumer);
                last = Some(error);
                fault(graph, geom, consumer, (&error.to_string(), &tried));
            }
            done => return done,
        }
    }
    let Some(last) = last else { return Err(none(graph, geom)) };
    // All paths failed the request: the next one may retry those that had time to recover.
    restore_others(graph, geom, &tried[tried.len() - 1..]);
    Err(last)
}

/// Why there is no path at all for a request.
fn none(graph: &Graph, geom: GeomId) -> BlockError {
    let paths = graph.state::<State>(geom).map(|state| &state.paths[..]).unwrap_or_default();
    if paths.is_empty() { BlockError::Gone } else { BlockError::WriteProtected }
}

/// The path for a request, among those on which it was not tried.
fn choose(
    graph: &mut Graph,
    geom: GeomId,
    io: &Io<'_>,
    tried: &[ConsumerId],
) -> Option<ConsumerId> {
    let is_read = matches!(io, Io::Read { .. });
    let state = graph.state::<State>(geom)?;
    let can = |consumer: ConsumerId| {
        !tried.contains(&consumer) && (is_read || graph[consumer].access.write > 0)
    };
    let good = state.paths.iter().rev().filter(|path| !path.failed && can(path.consumer));
    let is_alone = match state.mode {
        Mode::ActiveActive => false,
        Mode::ActiveRead => !is_read,
        Mode::ActivePassive | Mode::Unknown(_) => true,
    };
    // `max_by_key` returns the last of equal ones: FreeBSD takes the newest.
    let chosen = match is_alone {
        true => good.clone().find(|path| state.active == Some(path.consumer)),
        false => good.clone().rev().max_by_key(|path| path.idle),
    };
    let chosen = chosen.or_else(|| good.clone().next());
    // A path that has failed before is better than none.
    let rest = || state.paths.iter().rev().find(|path| can(path.consumer));
    let chosen = chosen.or_else(rest)?.consumer;
    for path in &mut graph.state_mut::<State>(geom)?.paths {
        path.idle = if path.consumer == chosen { 0 } else { path.idle.saturating_add(1) };
    }
    Some(chosen)
}

/// Makes the newest good path the active one, if there is no active one.
pub(super) fn elect(graph: &mut Graph, geom: GeomId) {
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    let active = state.active;
    if state.paths.iter().any(|path| Some(path.consumer) == active && !path.failed) {
        return;
    }
    let newest = state.paths.iter().rev().find(|path| !path.failed).map(|path| path.consumer);
    state.active = newest;
    if newest == active {
        return;
    }
    let (mode, name) = (state.mode, graph[geom].name.clone());
    match newest {
        None => graph.record.say(format!("MULTIPATH: out of providers for {name}")),
        Some(_) if mode == Mode::ActiveActive => {}
        Some(path) => {
            let path = name_of(graph, path);
            graph.record.say(format!("MULTIPATH: {path} is now active path in {name}"));
        }
    }
}

/// A path fails requests, for this reason. If it was the last good one, all others get another
/// chance, except those in `but`, on which the request has already failed.
pub(super) fn fault(
    graph: &mut Graph,
    geom: GeomId,
    consumer: ConsumerId,
    (why, but): (&str, &[ConsumerId]),
) {
    let (path, name) = (name_of(graph, consumer), graph[geom].name.clone());
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    let Some(there) = state.path_mut(consumer).filter(|path| !path.failed) else { return };
    there.failed = true;
    graph.record.say(format!("MULTIPATH: {why}, {path} in {name} marked FAIL"));
    restore_others(graph, geom, but);
}

/// If no path is good, those not in `but` are tried again, or the only path there is.
fn restore_others(graph: &mut Graph, geom: GeomId, but: &[ConsumerId]) {
    let name = graph[geom].name.clone();
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    let is_alone = state.paths.len() == 1;
    if state.good() == 0 {
        let mut restored = Vec::new();
        for path in state.paths.iter_mut().rev() {
            if is_alone || !but.contains(&path.consumer) {
                path.failed = false;
                restored.push(path.consumer);
            }
        }
        for consumer in restored {
            let path = name_of(graph, consumer);
            let line = format!("MULTIPATH: all paths in {name} were marked FAIL, restore {path}");
            graph.record.say(line);
        }
    }
    elect(graph, geom);
}

/// A path is gone; with the last one the disk is removed.
pub(super) fn depart(graph: &mut Graph, geom: GeomId, consumer: ConsumerId) {
    let (path, name) = (name_of(graph, consumer), graph[geom].name.clone());
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    state.paths.retain(|path| path.consumer != consumer);
    let is_empty = state.paths.is_empty();
    if is_empty {
        graph.record.say(format!("MULTIPATH: destroying {name}"));
        graph.wither_geom(geom, BlockError::Gone);
        graph.settle_orphans();
    } else {
        restore_others(graph, geom, &[]);
    }
    if graph.objects().consumer(consumer).is_some() {
        graph.drop_consumer(consumer);
    }
    graph.record.say(format!("MULTIPATH: {path} removed from {name}"));
}
