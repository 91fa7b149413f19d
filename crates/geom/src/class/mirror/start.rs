//! Assembling a mirror: which components are trusted, rebuilt or left out.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_wire::geom::mirror as wire;
use flysch_wire::geom::mirror::{disk_flags, flags};

use super::{Disk, MIRROR, Part, State, has_all, is_whole, request};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Shape;
use crate::object::{GeomId, ProviderId};

/// Adds a component. The mirror starts with the last one, or when everything has been tasted.
pub(super) fn join(
    graph: &mut Graph,
    under: ProviderId,
    metadata: &wire::Mirror,
) -> Result<(), GeomError> {
    let name = metadata.name.as_str();
    let known =
        graph.objects().geoms_of("MIRROR").find(|(_, geom)| geom.name == name).map(|(id, _)| id);
    let mut metadata = *metadata;
    let part = match known.and_then(|geom| graph.state::<State>(geom)) {
        Some(state) => part_in(state, &mut metadata)
            .map_err(|cause| GeomError::new(Kind::Invalid, name, cause))?,
        None => Part::New,
    };
    let is_new = known.is_none();
    let geom = known.unwrap_or_else(|| {
        let geom = graph.new_geom(&MIRROR, name);
        let common = metadata;
        let (running, stuck) = (false, false);
        let (bump, dirty, is_manual) = (false, false, false);
        let disks = Vec::new();
        graph.set_state(
            geom,
            State { common, disks, running, stuck, bump, dirty, is_manual, turn: 0 },
        );
        geom
    });
    let consumer = graph.new_consumer(geom);
    let opened = graph.attach(consumer, under).and_then(|()| {
        // What cannot be written can still be read.
        let read_only = Access::new(1, 0, 1);
        graph.access(consumer, Access::ALONE).or_else(|_| graph.access(consumer, read_only))
    });
    if let Err(error) = opened {
        graph.drop_consumer(consumer);
        if is_new {
            graph.drop_geom(geom);
        }
        return Err(error);
    }
    let state = super::state_mut(graph, geom)?;
    state.disks.push(Disk { consumer, metadata, part, copied: None, reads: 0, head: 0 });
    state.stuck = false;
    if state.running {
        state.bump |= part == Part::Stale;
        // Until the last write is done this component may differ too: its next metadata records
        // that.
        let disk = state.disks.last_mut().filter(|_| state.dirty);
        disk.into_iter().for_each(|disk| disk.metadata.disk_flags |= disk_flags::DIRTY);
    } else if state.disks.len() >= usize::from(state.common.all) {
        start(graph, geom);
    }
    Ok(())
}

/// The role of a component in a mirror that already has others, or why it has none.
fn part_in(state: &State, metadata: &mut wire::Mirror) -> Result<Part, String> {
    let common = &state.common;
    if common.id != metadata.id {
        return Err(format!("another mirror of this name exists, with id {}", common.id));
    }
    if state.disks.iter().any(|disk| disk.metadata.disk_id == metadata.disk_id) {
        return Err(format!("component {} is already present", metadata.disk_id));
    }
    // A cut during a resize leaves components whose sizes differ, with room for both sizes.
    let room = metadata.provider_size.saturating_sub(u64::from(common.sector_size));
    let fits = common.media_size == metadata.media_size || common.media_size <= room;
    if !fits || common.sector_size != metadata.sector_size {
        return Err("its components do not agree on its size".into());
    }
    if !state.running {
        return Ok(Part::New);
    }
    if state.disks.len() >= usize::from(common.all) {
        return Err("all of its components are there".into());
    }
    // Of components that stopped uncleanly one is trusted; here the running ones already are.
    let is_doubtful = metadata.disk_flags & disk_flags::DIRTY != 0;
    if is_doubtful && common.flags & flags::NO_FAIL_SYNC == 0 {
        metadata.disk_flags &= !disk_flags::DIRTY;
        metadata.disk_flags |= disk_flags::SYNCHRONIZING;
        metadata.sync_offset = 0;
    }
    part_of(common, metadata)
}

/// The role of a component in a mirror whose numbers are known.
fn part_of(common: &wire::Mirror, metadata: &mut wire::Mirror) -> Result<Part, String> {
    if metadata.gen_id < common.gen_id {
        let (old, new) = (metadata.gen_id, common.gen_id);
        return Err(format!(
            "it failed once (generation {old} of {new}); `mirror insert` it again"
        ));
    }
    if metadata.gen_id > common.gen_id || metadata.sync_id > common.sync_id {
        return Err("it is newer than the mirror that runs without it".into());
    }
    let may = common.flags & flags::NO_AUTO_SYNC == 0
        || metadata.disk_flags & disk_flags::FORCE_SYNC != 0;
    if metadata.sync_id < common.sync_id {
        metadata.disk_flags |= disk_flags::SYNCHRONIZING;
        metadata.sync_offset = 0;
    }
    Ok(match (is_whole(metadata), may) {
        (true, _) => Part::Active,
        (false, true) => Part::Synchronizing,
        (false, false) => Part::Stale,
    })
}

/// Starts a mirror with the components that are present.
pub(super) fn start(graph: &mut Graph, geom: GeomId) {
    let Ok(state) = super::state_mut(graph, geom) else { return };
    let newest = state.disks.iter().map(|disk| disk.metadata.gen_id).max().unwrap_or(0);
    let (kept, broken): (Vec<Disk>, Vec<Disk>) =
        state.disks.drain(..).partition(|disk| disk.metadata.gen_id == newest);
    state.disks = kept;
    let whole = state.disks.iter().filter(|disk| is_whole(&disk.metadata));
    let any = state.disks.iter().map(|disk| disk.metadata.sync_id).max();
    let sync = whole.map(|disk| disk.metadata.sync_id).max().or(any).unwrap_or(0);
    // The components written last know how many there are: a cut may have left the others behind.
    let current = state.disks.iter().filter(|disk| disk.metadata.sync_id == sync);
    let best = current
        .max_by_key(|disk| (is_whole(&disk.metadata), disk.metadata.all, disk.metadata.priority));
    let Some(best) = best.map(|disk| disk.metadata) else { return };
    state.common = wire::Mirror { gen_id: newest, sync_id: sync, ..best };
    let (size, sector) = (best.media_size, u64::from(best.sector_size));
    let has_room = |disk: &Disk| {
        let room = disk.metadata.provider_size.saturating_sub(sector);
        disk.metadata.media_size == size || size <= room
    };
    let (kept, small): (Vec<Disk>, Vec<Disk>) = state.disks.drain(..).partition(has_room);
    state.disks = kept;
    if is_whole(&best) {
        believe_ends(&mut state.disks, sync);
    }
    let mut surplus = Vec::new();
    while state.disks.len() > usize::from(state.common.all) {
        let all = state.common.all;
        let rank = |at: &usize| {
            let metadata = &state.disks[*at].metadata;
            (is_whole(metadata), metadata.sync_id, metadata.all == all)
        };
        let oldest = (0..state.disks.len()).min_by_key(rank);
        surplus.push(state.disks.remove(oldest.unwrap_or(0)));
    }
    judge_dirty(state, sync);
    let common = state.common;
    for disk in &mut state.disks {
        disk.part = part_of(&common, &mut disk.metadata).unwrap_or(Part::Stale);
    }
    let is_missing = state.disks.len() < usize::from(common.all);
    state.bump = is_missing || state.disks.iter().any(|disk| disk.part == Part::Stale);
    state.running = state.active() > 0;
    state.stuck = !state.running;
    for disk in broken.into_iter().chain(small).chain(surplus) {
        let provider = graph[disk.consumer].provider.map(|p| graph[p].name.clone());
        let provider = provider.unwrap_or_default();
        graph.record.say(format!("MIRROR: {provider} stays out of {}: it is older", common.name));
        request::release(graph, disk.consumer);
    }
    let Ok(state) = super::state(graph, geom) else { return };
    if !state.running {
        graph.record.say(format!("MIRROR: {}: none of its components can be trusted", common.name));
        return;
    }
    let shape = Shape {
        media_size: common.media_size,
        sector_size: common.sector_size,
        stripe_size: 0,
        stripe_offset: 0,
    };
    let word = state.state_name();
    let line = format!("MIRROR: mirror/{} starts, {word}", common.name);
    graph.record.say(line);
    if let Err(error) = graph.new_provider(geom, format!("mirror/{}", common.name), shape) {
        graph.record.say(format!("MIRROR: {error}"));
    }
}

/// Next to a whole component, those that were rebuilt completely but are not yet marked are whole
/// too.
fn believe_ends(disks: &mut [Disk], sync: u32) {
    for disk in disks.iter_mut().filter(|disk| has_all(&disk.metadata)) {
        if disk.metadata.sync_id >= sync {
            disk.metadata.disk_flags &= !disk_flags::SYNCHRONIZING;
            (disk.metadata.sync_id, disk.metadata.sync_offset) = (sync, 0);
        }
    }
}

/// After an unclean stop the components may differ: one is trusted, the others are rebuilt from it.
fn judge_dirty(state: &mut State, sync: u32) {
    if state.common.flags & flags::NO_FAIL_SYNC != 0 {
        return;
    }
    let is_whole = |disk: &Disk| disk.metadata.sync_id == sync && is_whole(&disk.metadata);
    let is_dirty = |disk: &Disk| disk.metadata.disk_flags & disk_flags::DIRTY != 0;
    let whole = state.disks.iter().filter(|disk| is_whole(disk));
    let believed =
        whole.min_by_key(|disk| (is_dirty(disk), core::cmp::Reverse(disk.metadata.priority)));
    let Some(believed) = believed.map(|disk| disk.consumer) else { return };
    for disk in &mut state.disks {
        let dirty = is_dirty(disk);
        disk.metadata.disk_flags &= !disk_flags::DIRTY;
        // Even the part already rebuilt may differ: it was written like the others.
        if dirty && disk.consumer != believed {
            disk.metadata.disk_flags |= disk_flags::SYNCHRONIZING;
            disk.metadata.sync_offset = 0;
        }
    }
}
