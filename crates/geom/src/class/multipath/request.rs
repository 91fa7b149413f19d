//! Requests to a disk of several paths, and what happens to a path that does not do them.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use flysch_api::block::Error;
use flysch_wire::geom::multipath::Mode;

use super::{State, name_of};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId};

/// Whether an error is the path's (`EIO` and `ENXIO` of FreeBSD), not the request's.
pub(crate) fn is_paths(error: Error) -> bool {
    use Error::{BadData, Misaligned, OutOfRange, Unsupported, WriteProtected};
    !matches!(error, BadData(_) | Misaligned | OutOfRange | Unsupported | WriteProtected)
}

/// Does a request over one path, and over the others as long as they fail: each once.
pub(super) fn start(graph: &mut Graph, geom: GeomId, mut io: Io<'_>) -> Result<(), Error> {
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
    // It failed over all of them: the next request may try those again that had time to recover.
    restore_others(graph, geom, &tried[tried.len() - 1..]);
    Err(last)
}

/// Why there is no path for a request at all.
fn none(graph: &Graph, geom: GeomId) -> Error {
    let paths = graph.state::<State>(geom).map(|state| &state.paths[..]).unwrap_or_default();
    if paths.is_empty() { Error::Gone } else { Error::WriteProtected }
}

/// The path for a request, of those that it was not tried on.
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
    // The last one that comes wins where `max_by_key` finds equal ones: FreeBSD takes the newest.
    let chosen = match is_alone {
        true => good.clone().find(|path| state.active == Some(path.consumer)),
        false => good.clone().rev().max_by_key(|path| path.idle),
    };
    let chosen = chosen.or_else(|| good.clone().next());
    // One that failed once, rather than none.
    let rest = || state.paths.iter().rev().find(|path| can(path.consumer));
    let chosen = chosen.or_else(rest)?.consumer;
    for path in &mut graph.state_mut::<State>(geom)?.paths {
        path.idle = if path.consumer == chosen { 0 } else { path.idle.saturating_add(1) };
    }
    Some(chosen)
}

/// Makes the newest good path the active one, if none is.
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
        None => graph.say(format!("MULTIPATH: out of providers for {name}")),
        Some(_) if mode == Mode::ActiveActive => {}
        Some(path) => {
            let path = name_of(graph, path);
            graph.say(format!("MULTIPATH: {path} is now active path in {name}"));
        }
    }
}

/// A path does not do requests, for this reason. If it was the last good one, all others are given
/// another chance but those of `but`, on which the request failed already.
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
    graph.say(format!("MULTIPATH: {why}, {path} in {name} marked FAIL"));
    restore_others(graph, geom, but);
}

/// If no path is good, those are tried again that are not in `but`: or that one, if it is alone.
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
            graph.say(line);
        }
    }
    elect(graph, geom);
}

/// A path is there no more; with the last one the disk goes.
pub(super) fn depart(graph: &mut Graph, geom: GeomId, consumer: ConsumerId) {
    let (path, name) = (name_of(graph, consumer), graph[geom].name.clone());
    let Some(state) = graph.state_mut::<State>(geom) else { return };
    state.paths.retain(|path| path.consumer != consumer);
    let is_empty = state.paths.is_empty();
    if is_empty {
        graph.say(format!("MULTIPATH: destroying {name}"));
        graph.wither_geom(geom, Error::Gone);
        graph.settle_orphans();
    } else {
        restore_others(graph, geom, &[]);
    }
    if graph.find_consumer(consumer).is_some() {
        graph.drop_consumer(consumer);
    }
    graph.say(format!("MULTIPATH: {path} removed from {name}"));
}
