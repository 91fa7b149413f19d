//! Assembling an array: which disks are trusted, have a place or are stale.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::array::{MemberState, PartState};
use super::format::{Format, Found};
use super::{Disk, RAID, State, Stray, state_mut};
use crate::access::Access;
use crate::error::GeomError;
use crate::graph::Graph;
use crate::io::Shape;
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::{Taste, Verdict};

/// Opens a disk for an array.
pub(super) fn attach(
    graph: &mut Graph,
    geom: GeomId,
    under: ProviderId,
) -> Result<ConsumerId, GeomError> {
    let consumer = graph.new_consumer(geom);
    let opened = graph.attach(consumer, under).and_then(|()| {
        // What cannot be written can still be read.
        let read_only = Access::new(1, 0, 1);
        graph.access(consumer, Access::ALONE).or_else(|_| graph.access(consumer, read_only))
    });
    match opened {
        Ok(()) => Ok(consumer),
        Err(error) => {
            graph.drop_consumer(consumer);
            Err(error)
        }
    }
}

/// A geom for an array, without providers.
pub(super) fn new(graph: &mut Graph, format: &'static dyn Format, state: super::Array) -> GeomId {
    let geom = graph.new_geom(&RAID, state.name.clone());
    let (disks, providers) = (Vec::new(), Vec::new());
    let (waiting, strays) = (Vec::new(), Vec::new());
    let (array, running, untold, turn) = (state, false, false, 0);
    let state = State {
        format,
        array,
        running,
        waiting,
        disks,
        strays,
        providers,
        untold,
        turn,
        copying: None,
    };
    graph.set_state(geom, state);
    geom
}

/// Adds a disk. The array starts with the last one, or when everything has been tasted. Returns
/// what the disk is.
pub(super) fn join(
    graph: &mut Graph,
    format: &'static dyn Format,
    under: ProviderId,
    found: Found,
) -> Result<String, GeomError> {
    let name = &found.array.name;
    let known =
        graph.objects().geoms_of("RAID").find(|(_, geom)| geom.name == *name).map(|(id, _)| id);
    let runs = known.and_then(|geom| graph.state::<State>(geom)).filter(|state| state.running);
    // The disk cannot learn what it missed, nor can the others.
    if runs.is_some_and(|it| !format.is_gathered() && found.array.generation > it.array.generation)
    {
        return Err(GeomError::invalid(name, "is newer on this disk than the array that runs"));
    }
    let geom = known.unwrap_or_else(|| new(graph, format, found.array.clone()));
    let consumer = match attach(graph, geom, under) {
        Ok(consumer) => consumer,
        Err(error) => {
            if known.is_none() {
                graph.drop_geom(geom);
            }
            return Err(error);
        }
    };
    let state = state_mut(graph, geom)?;
    if state.running {
        return Ok(arrive(graph, geom, consumer, &found));
    }
    if found.array.generation > state.array.generation {
        state.array = found.array.clone();
    }
    state.waiting.push((consumer, found));
    let current = state.waiting.iter().filter(|(_, it)| state.array.member(&it.id).is_some());
    if !format.is_gathered() && current.count() >= state.array.members.len() {
        start(graph, geom);
    }
    Ok("disk".into())
}

/// Starts an array with the disks that are present.
pub(super) fn start(graph: &mut Graph, geom: GeomId) {
    let Ok(state) = state_mut(graph, geom) else { return };
    let waiting = core::mem::take(&mut state.waiting);
    let all: Vec<Found> = waiting.iter().map(|(_, found)| found.clone()).collect();
    let gathered = state.format.gather(&state.array, &all);
    let mut why = None;
    match gathered {
        Ok(array) => state.array = array,
        Err(error) => (why, state.array.volumes) = (Some(error), Vec::new()),
    }
    state.running = true;
    state.disks = vec![Disk::default(); state.array.members.len()];
    for (consumer, found) in waiting {
        let place = state.array.member(&found.id);
        match place.filter(|&place| state.disks[place].consumer.is_none()) {
            Some(place) => state.disks[place].consumer = Some(consumer),
            None => state.strays.push(Stray { consumer, failed: false }),
        }
    }
    find_torn(graph, geom);
    let Ok(state) = state_mut(graph, geom) else { return };
    for (member, disk) in state.disks.iter().enumerate() {
        let how = state.array.members[member].state;
        let is_there = disk.consumer.is_some();
        state.array.each_part(member, |_, part| match (is_there, how) {
            (false, _) => (part.state, part.done) = (PartState::None, 0),
            (true, MemberState::Active) => {}
            (true, _) => (part.state, part.done) = (PartState::Failed, 0),
        });
    }
    state.array.volumes.iter_mut().for_each(super::RaidVolume::believe);
    let name = state.array.name.clone();
    if let Some(why) = why {
        graph.record.say(format!("RAID: {name}: {why}"));
    }
    graph.record.say(format!("RAID: {name}: array started"));
    offer(graph, geom);
}

/// Makes providers for usable volumes that have none.
pub(super) fn offer(graph: &mut Graph, geom: GeomId) {
    let Ok(state) = super::state(graph, geom) else { return };
    for number in 0..state.array.volumes.len() {
        let Ok(state) = super::state(graph, geom) else { return };
        let volume = &state.array.volumes[number];
        let known = state.providers.get(number).copied();
        let word = volume.state();
        let line = format!("RAID: {}: volume {} is {}", state.array.name, volume.name, word.name());
        let (name, why) = (volume.name.clone(), volume.unsupported.clone());
        let shape = Shape {
            media_size: volume.media_size,
            sector_size: 512,
            stripe_size: if volume.level == super::array::Level::Raid1 { 0 } else { volume.strip },
            stripe_offset: 0,
        };
        let id = known.map_or_else(|| free_number(graph), |(_, id)| id);
        let Ok(state) = state_mut(graph, geom) else { return };
        if known.is_none() {
            state.providers.push((None, id));
            graph.record.say(line);
            if let Some(why) = why {
                graph.record.say(format!("RAID: volume {name}: {why}"));
            }
        }
        if known.is_some_and(|(provider, _)| provider.is_some()) || !word.is_alive() {
            continue;
        }
        match graph.new_provider(geom, format!("raid/r{id}"), shape) {
            Ok(provider) => {
                if let Ok(state) = state_mut(graph, geom) {
                    state.providers[number].0 = Some(provider);
                }
            }
            Err(error) => graph.record.say(format!("RAID: {error}")),
        }
    }
}

/// The lowest number that no volume uses.
fn free_number(graph: &Graph) -> u32 {
    let all = graph.objects().geoms().filter_map(|(geom, _)| graph.state::<State>(geom));
    let taken: Vec<u32> =
        all.flat_map(|state| state.providers.iter().map(|(_, number)| *number)).collect();
    (0..).find(|number| !taken.contains(number)).unwrap_or(0)
}

/// Looks for members whose metadata was being written when power was lost: the others record that
/// they belong to the array.
fn find_torn(graph: &mut Graph, geom: GeomId) {
    let Ok(state) = super::state(graph, geom) else { return };
    if state.disks.iter().all(|disk| disk.consumer.is_some()) {
        return;
    }
    let Some(format) = state.format.writing() else { return };
    let array = state.array.clone();
    let idle = graph
        .objects()
        .providers()
        .filter(|(_, it)| it.access.exclusive == 0 && it.error.is_none());
    let idle: Vec<ProviderId> = idle.map(|(id, _)| id).collect();
    for provider in idle {
        let Ok(id) = format.identity(graph, provider) else { continue };
        let Some(place) = array.member(&id) else { continue };
        let member = &array.members[place];
        let is_free = super::state(graph, geom).is_ok_and(|it| it.disks[place].consumer.is_none());
        if !is_free
            || member.state != MemberState::Active
            || member.size != graph[provider].media_size / 512 * 512
            || !format.is_torn(graph, provider, &array)
        {
            continue;
        }
        let Ok(consumer) = attach(graph, geom, provider) else { continue };
        if let Ok(state) = state_mut(graph, geom) {
            state.disks[place].consumer = Some(consumer);
        }
        let (disk, at) = (graph[provider].name.clone(), graph[provider].last_sector());
        let text = format!("disk of {}: its metadata was cut while it was written", array.name);
        graph.record.say(format!("RAID: {disk} claimed: {text}"));
        let taste = Taste::claimed(text, at, 0);
        graph.record.judge(Verdict { provider: disk, class: "RAID", taste });
    }
}

/// Examines all disks of an array again, if it is not in use.
fn gather_again(graph: &mut Graph, geom: GeomId) {
    let Ok(state) = state_mut(graph, geom) else { return };
    let (format, providers) = (state.format, state.providers.clone());
    let mut offered = providers.iter().filter_map(|(provider, _)| *provider);
    if offered.any(|provider| graph[provider].access != Access::NONE) {
        return;
    }
    let mut waiting = Vec::new();
    for consumer in graph[geom].consumers.clone() {
        let Some(provider) = graph[consumer].provider else { continue };
        if let Ok(Some(found)) = format.read(graph, provider) {
            waiting.push((consumer, found));
        }
    }
    for provider in providers.into_iter().filter_map(|(provider, _)| provider) {
        graph.wither_provider(provider, flysch_api::block::BlockError::Gone);
    }
    graph.settle_orphans();
    let Ok(state) = state_mut(graph, geom) else { return };
    (state.waiting, state.running) = (waiting, false);
    (state.providers, state.strays) = (Vec::new(), Vec::new());
    start(graph, geom);
}

/// A disk joins an array that is already running.
fn arrive(graph: &mut Graph, geom: GeomId, consumer: ConsumerId, found: &Found) -> String {
    let Ok(state) = state_mut(graph, geom) else { return String::new() };
    if state.format.is_gathered() {
        state.strays.push(Stray { consumer, failed: false });
        gather_again(graph, geom);
        let strays = state_mut(graph, geom).map(|state| &state.strays[..]).unwrap_or_default();
        let is_stray = strays.iter().any(|stray| stray.consumer == consumer);
        return if is_stray { "stale disk".into() } else { "disk".into() };
    }
    let place = state.array.member(&found.id).filter(|&place| {
        state.disks[place].consumer.is_none()
            && state.array.members[place].state == MemberState::Active
            // Nothing has been written since it left.
            && found.array.generation == state.array.generation
    });
    let Some(place) = place else {
        state.strays.push(Stray { consumer, failed: false });
        return "stale disk".into();
    };
    state.disks[place].consumer = Some(consumer);
    let said = state.format.said(&state.array, found);
    for volume in &mut state.array.volumes {
        let Some(said) = said.volumes.iter().find(|it| it.name == volume.name) else { continue };
        for (part, said) in volume.parts.iter_mut().zip(&said.parts) {
            if part.member == place {
                (part.state, part.done) = (said.state, said.done);
            }
        }
        volume.believe();
    }
    offer(graph, geom);
    "disk".into()
}
