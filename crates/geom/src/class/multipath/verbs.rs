//! The operations on paths, by the verbs of `gmultipath`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::multipath as wire;
use flysch_wire::geom::multipath::Mode;

use super::{join, name_of, new, objection, path_of, request, state, state_mut};
use crate::access::Access;
use crate::class::{guard, write_last};
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId, ProviderId};

fn wire_name(text: &str) -> Result<Name<16>, GeomError> {
    Name::new(text).ok_or_else(|| GeomError::invalid(text, "a name must have 1 to 15 bytes"))
}

/// A random UUID (version 4 of RFC 9562) as text.
fn uuid(graph: &mut Graph) -> Name<40> {
    let (high, low) = (graph.random(), graph.random());
    let text = format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xFFFF,
        high & 0xFFF,
        low >> 48 & 0x3FFF | 0x8000,
        low & 0xFFFF_FFFF_FFFF
    );
    Name::new(&text).expect("36 characters fit")
}

/// Whether providers can be paths to one disk: no duplicates, equal sizes, not in use.
fn check(graph: &Graph, name: &str, under: &[ProviderId]) -> Result<(), GeomError> {
    let [first, ..] = under else {
        return Err(GeomError::invalid(name, "needs a provider"));
    };
    if graph.geom("MULTIPATH", name).is_ok() {
        return Err(GeomError::new(Kind::Exists, name, "a multipath of this name already exists"));
    }
    let first = &graph[*first];
    for (at, &provider) in under.iter().enumerate() {
        let there = &graph[provider];
        if under[..at].contains(&provider) {
            return Err(GeomError::invalid(&there.name, "is named twice"));
        }
        let (size, sector) = (there.media_size, there.sector_size);
        if sector != first.sector_size {
            let cause = format!("sector size {sector} different: {} has {}", first.name, {
                first.sector_size
            });
            return Err(GeomError::invalid(&there.name, cause));
        }
        if size != first.media_size {
            let cause =
                format!("media size {size} different: {} has {}", first.name, first.media_size);
            return Err(GeomError::invalid(&there.name, cause));
        }
        guard::in_use(graph, provider)?;
    }
    Ok(())
}

/// Writes a label over the first provider. The others must show it too, as paths to the same disk;
/// otherwise nothing is changed.
///
/// # Errors
/// The error names the obstacle, or the provider that is not a path to that disk.
pub fn label(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    (mode, force): (Mode, bool),
) -> Result<(), GeomError> {
    let wire_name = wire_name(name)?;
    check(graph, name, under)?;
    if !force {
        for &provider in under {
            guard::last_sector(graph, "MULTIPATH", provider)?;
        }
    }
    let (first, others) = (under[0], &under[1..]);
    let there = &graph[first];
    let (media_size, sector_size) = (there.media_size, there.sector_size);
    if media_size <= u64::from(sector_size) {
        return Err(GeomError::invalid(name, "its disk is too small"));
    }
    let uuid = uuid(graph);
    let label = wire::Multipath { uuid, name: wire_name, sector_size, media_size, mode };
    let before = graph.peek_last(first)?;
    let mut after = vec![0; before.len()];
    label.emit(&mut after);
    write_last(graph, first, |sector| sector.copy_from_slice(&after))?;
    let mut seen = Ok(());
    for &other in others {
        let shown = graph.peek_last(other);
        if shown.as_ref().is_ok_and(|shown| *shown == after) {
            continue;
        }
        let (first, other) = (&graph[first].name, &graph[other].name);
        let cause = match shown {
            Ok(_) => format!("No metadata found on {other}. It is not a path of {first}"),
            Err(error) => format!("Unable to read metadata from {other}: {}", error.cause),
        };
        seen = Err(GeomError::invalid(name, cause));
        break;
    }
    match seen {
        // The others were not written to: they are nevertheless tasted again.
        Ok(()) => others.iter().try_for_each(|&other| graph.retaste(other))?,
        Err(_) => write_last(graph, first, |sector| sector.copy_from_slice(&before))?,
    }
    graph.settle();
    seen
}

/// Joins providers without writing anything: the paths are known for the life of the graph.
///
/// # Errors
/// The error names the obstacle; nothing is created then.
pub fn create(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    (mode, force): (Mode, bool),
) -> Result<(), GeomError> {
    let wire_name = wire_name(name)?;
    check(graph, name, under)?;
    let geom = new(graph, name, (wire_name, None, mode));
    for (at, &provider) in under.iter().enumerate() {
        let cause = objection(graph, geom, provider).filter(|_| at > 0 && !force);
        let added = match cause {
            Some(cause) => Err(GeomError::invalid(&graph[provider].name, cause)),
            None => join(graph, geom, provider),
        };
        if let Err(error) = added {
            if at > 0 {
                stop(graph, geom, true)?;
            }
            return Err(error);
        }
    }
    graph.settle();
    Ok(())
}

/// Adds a path. It must show the label, if there is one, unless `force`.
///
/// # Errors
/// The error names the obstacle.
pub fn add(
    graph: &mut Graph,
    geom: GeomId,
    provider: ProviderId,
    force: bool,
) -> Result<(), GeomError> {
    let there = &graph[provider].name;
    if path_of(graph, geom, there).is_ok() {
        return Err(GeomError::new(Kind::Exists, there, "provider is already there"));
    }
    guard::in_use(graph, provider)?;
    let size = graph[geom].providers.first().map(|&whole| graph[whole].media_size);
    if let Some(cause) = objection(graph, geom, provider) {
        let label =
            if state(graph, geom)?.uuid.is_some() { graph[provider].sector_size } else { 0 };
        // A different size is never possible.
        if !force || size.map(|size| size + u64::from(label)) != Some(graph[provider].media_size) {
            return Err(GeomError::invalid(&graph[provider].name, cause));
        }
    }
    if !force && let Some(uuid) = state(graph, geom)?.uuid {
        let shown = graph.peek_last(provider)?;
        if !wire::Multipath::parse(&shown).is_ok_and(|label| label.uuid == uuid) {
            let (name, disk) = (&graph[provider].name, &graph[geom].name);
            let cause = format!("does not show the label of {disk}; --force adds it anyway");
            return Err(GeomError::new(Kind::Foreign, name, cause));
        }
    }
    join(graph, geom, provider)?;
    graph.settle();
    Ok(())
}

/// Removes a path; with the last one the disk is removed. Nothing is written: it becomes a path
/// again when it is tasted.
///
/// # Errors
/// If it is not a path.
pub fn remove(graph: &mut Graph, geom: GeomId, name: &str) -> Result<(), GeomError> {
    let consumer = path_of(graph, geom, name)?;
    let (path, disk) = (name_of(graph, consumer), graph[geom].name.clone());
    if state(graph, geom)?.paths.len() == 1 {
        return stop(graph, geom, false);
    }
    graph.record.say(format!("MULTIPATH: removing {path} from {disk}"));
    close(graph, consumer);
    request::depart(graph, geom, consumer);
    graph.settle();
    Ok(())
}

/// Closes a path. A provider closed after writing is tasted again: it is not taken for a new path
/// while it is still attached.
fn close(graph: &mut Graph, consumer: ConsumerId) {
    graph.close(consumer);
    graph.settle();
}

/// Marks a path as failed.
///
/// # Errors
/// If it is not a path.
pub fn fail(graph: &mut Graph, geom: GeomId, name: &str) -> Result<(), GeomError> {
    let consumer = path_of(graph, geom, name)?;
    request::fault(graph, geom, consumer, ("by request", &[consumer]));
    Ok(())
}

/// Marks a path as good.
///
/// # Errors
/// If it is not a path.
pub fn restore(graph: &mut Graph, geom: GeomId, name: &str) -> Result<(), GeomError> {
    let consumer = path_of(graph, geom, name)?;
    let disk = graph[geom].name.clone();
    if let Some(path) = state_mut(graph, geom)?.path_mut(consumer).filter(|path| path.failed) {
        path.failed = false;
        graph.record.say(format!("MULTIPATH: {name} in {disk} is marked OK"));
    }
    request::elect(graph, geom);
    Ok(())
}

/// Makes the next good path the active one.
///
/// # Errors
/// If there is no such geom.
pub fn rotate(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    let state = state_mut(graph, geom)?;
    let count = state.paths.len();
    let at = state.paths.iter().position(|path| Some(path.consumer) == state.active);
    // From the newest to the oldest, as FreeBSD does.
    let at = at.unwrap_or(0);
    let next = (1..=count).map(|step| state.paths[(at + count - step) % count]);
    if let Some(next) = next.into_iter().find(|path| !path.failed) {
        activate(graph, geom, next.consumer)?;
    }
    Ok(())
}

/// Makes a path the active one.
///
/// # Errors
/// If it is not a path, or has failed.
pub fn prefer(graph: &mut Graph, geom: GeomId, name: &str) -> Result<(), GeomError> {
    let consumer = path_of(graph, geom, name)?;
    if state(graph, geom)?.paths.iter().any(|path| path.consumer == consumer && path.failed) {
        let cause = format!("is marked FAIL in {}; restore it first", graph[geom].name);
        return Err(GeomError::invalid(name, cause));
    }
    activate(graph, geom, consumer)
}

fn activate(graph: &mut Graph, geom: GeomId, consumer: ConsumerId) -> Result<(), GeomError> {
    let state = state_mut(graph, geom)?;
    state.active = Some(consumer);
    if state.mode != Mode::ActiveActive {
        let (path, disk) = (name_of(graph, consumer), graph[geom].name.clone());
        graph.record.say(format!("MULTIPATH: {path} is now active path in {disk}"));
    }
    Ok(())
}

/// The names of the paths that take all kinds of requests, or `none`.
///
/// # Errors
/// If there is no such geom.
pub fn active(graph: &Graph, geom: GeomId) -> Result<String, GeomError> {
    let state = state(graph, geom)?;
    let is_active = |consumer| state.mode == Mode::ActiveActive || state.active == Some(consumer);
    let active = state.paths.iter().filter(|path| !path.failed && is_active(path.consumer));
    let names: Vec<String> = active.map(|path| name_of(graph, path.consumer)).collect();
    Ok(if names.is_empty() { "none".to_string() } else { names.join(" ") })
}

/// Changes the mode, also in the label.
///
/// # Errors
/// If it cannot be written; the old mode stays then.
pub fn configure(graph: &mut Graph, geom: GeomId, mode: Mode) -> Result<(), GeomError> {
    let state = state(graph, geom)?;
    if let Some(uuid) = state.uuid {
        let name = state.name;
        write(graph, geom, |sector, (sector_size, media_size)| {
            wire::Multipath { uuid, name, sector_size, media_size, mode }.emit(sector);
        })?;
    }
    state_mut(graph, geom)?.mode = mode;
    Ok(())
}

/// Fills the last sector of the disk, over any path that works.
fn write(
    graph: &mut Graph,
    geom: GeomId,
    fill: impl FnOnce(&mut [u8], (u32, u64)),
) -> Result<(), GeomError> {
    let name = graph[geom].name.clone();
    let gone = || GeomError::io(&name, block::BlockError::Gone);
    let whole = *graph[geom].providers.first().ok_or_else(gone)?;
    let (sector_size, at) = (graph[whole].sector_size, graph[whole].media_size);
    let mut sector = vec![0; sector_size as usize];
    fill(&mut sector, (sector_size, at + u64::from(sector_size)));
    request::start(graph, geom, Io::Write { offset: at, from: &sector })
        .and_then(|()| request::start(graph, geom, Io::Flush))
        .map_err(|error| GeomError::io(&name, error))
}

/// Stops a disk; its label stays.
///
/// # Errors
/// If it is open, unless `force`.
pub fn stop(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    let open = graph[geom].providers.iter().find(|&&p| graph[p].access != Access::NONE);
    if let (false, Some(&open)) = (force, open) {
        let cause = format!("is open ({}); close it first", graph[open].access);
        return Err(GeomError::new(Kind::Busy, graph[open].name.to_string(), cause));
    }
    for consumer in graph[geom].consumers.clone() {
        close(graph, consumer);
    }
    graph.wither_geom(geom, block::BlockError::Gone);
    graph.settle();
    Ok(())
}

/// Stops a disk and clears its label.
///
/// # Errors
/// If it is open, unless `force`; if it cannot be written.
pub fn destroy(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    let open = graph[geom].providers.iter().any(|&p| graph[p].access != Access::NONE);
    if state(graph, geom)?.uuid.is_some() && (force || !open) {
        write(graph, geom, |_, _| {})?;
    }
    stop(graph, geom, force)
}

/// Clears the label on a provider that is not a path.
///
/// # Errors
/// If there is none.
pub fn clear(graph: &mut Graph, provider: ProviderId) -> Result<(), GeomError> {
    guard::in_use(graph, provider)?;
    crate::class::clear(graph, "MULTIPATH", provider)
}
