//! The operations on a mirror, by the verbs of `gmirror`.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::mirror as wire;
use flysch_wire::geom::mirror::{Balance, disk_flags, flags};

use super::{
    Part, State, consumer_of, is_whole, name_of, request, start, state, state_mut, update,
    update_at_once, with_all, write_metadata,
};
use crate::class::{array, guard, write_last};
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{GeomId, ProviderId};

/// Bytes rebuilt at a time.
const PIECE: u64 = 1 << 20;
/// Number of bytes after which a component records its progress.
const CHECKPOINT: u64 = 64 << 20;
/// Flags of a provider that has never been a component: it waits until one is missing.
const SPARE: u64 = disk_flags::INACTIVE | disk_flags::FORCE_SYNC;

/// The parameters of `label`.
#[derive(Clone, Copy, Debug)]
pub struct MirrorOptions {
    /// How reads are distributed.
    pub balance: Balance,
    /// Bytes of a slice, for [`Balance::Split`].
    pub slice: u32,
    /// Stale components wait for `rebuild`.
    pub no_auto_sync: bool,
    /// Nothing is rebuilt after an unclean stop.
    pub no_fail_sync: bool,
    /// The names of the providers are recorded, and no others are accepted.
    pub hardcode: bool,
    /// Metadata of other classes is overwritten.
    pub force: bool,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            balance: Balance::Load,
            slice: 4096,
            no_auto_sync: false,
            no_fail_sync: false,
            hardcode: false,
            force: false,
        }
    }
}

/// What `configure` changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Configure {
    /// How reads are distributed.
    pub balance: Option<Balance>,
    /// Bytes of a slice.
    pub slice: Option<u32>,
    /// Whether stale components wait for `rebuild`.
    pub no_auto_sync: Option<bool>,
    /// Whether nothing is rebuilt after an unclean stop.
    pub no_fail_sync: Option<bool>,
    /// Whether only providers with the current names of the components are accepted. Each component
    /// records this for itself: after a cut some may and others may not.
    pub hardcode: Option<bool>,
}

/// The metadata of the components of a new mirror, with `kept` bytes of each reserved for metadata.
fn components(
    graph: &mut Graph,
    name: &str,
    (under, kept): (&[ProviderId], fn(u32) -> u64),
    options: &MirrorOptions,
) -> Result<Vec<(ProviderId, wire::Mirror)>, GeomError> {
    let wire_name = name_of(name)?;
    if under.is_empty() || under.len() > 255 {
        return Err(GeomError::invalid(name, "a mirror must have 1 to 255 components"));
    }
    if under.len() > 1 {
        array::check(graph, name, under)?;
    } else if graph.geom("MIRROR", name).is_ok() {
        return Err(GeomError::new(Kind::Exists, name, "a mirror of this name already exists"));
    }
    for &provider in under {
        guard::last_sector_unless(graph, "MIRROR", provider, options.force)?;
    }
    let sector_size = under.iter().map(|&p| graph[p].sector_size).max().unwrap_or(512);
    let room = |&p: &ProviderId| graph[p].media_size.saturating_sub(kept(graph[p].sector_size));
    let least = under.iter().map(room).min().unwrap_or(0);
    let media_size = least / u64::from(sector_size) * u64::from(sector_size);
    if media_size == 0 {
        return Err(GeomError::invalid(name, "its components are too small"));
    }
    let mut bits = 0;
    bits |= if options.no_auto_sync { flags::NO_AUTO_SYNC } else { 0 };
    bits |= if options.no_fail_sync { flags::NO_FAIL_SYNC } else { 0 };
    let id = graph.random() as u32;
    let mut components = Vec::new();
    for (number, &provider) in under.iter().enumerate() {
        let hardcoded = options.hardcode.then(|| Name::new(&graph[provider].name)).flatten();
        let metadata = wire::Mirror {
            name: wire_name,
            id,
            disk_id: graph.random() as u32,
            all: under.len() as u8,
            gen_id: 0,
            sync_id: 1,
            priority: number as u8,
            slice: options.slice,
            balance: options.balance,
            media_size,
            sector_size,
            sync_offset: 0,
            flags: bits,
            disk_flags: if hardcoded.is_some() { disk_flags::HARDCODED } else { 0 },
            provider: hardcoded,
            provider_size: graph[provider].media_size,
        };
        components.push((provider, metadata));
    }
    Ok(components)
}

/// Makes a mirror that lasts until it is stopped: nothing is written, and its components are used
/// to the last sector. Missing or failed components stay out.
///
/// # Errors
/// The error names the obstacle.
pub fn create(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    options: &MirrorOptions,
) -> Result<(), GeomError> {
    let components = components(graph, name, (under, |_| 0), options)?;
    for (provider, metadata) in components {
        let joined = start::join(graph, provider, &metadata);
        if let Ok(geom) = graph.geom("MIRROR", name) {
            match joined {
                Ok(()) => state_mut(graph, geom)?.is_manual = true,
                Err(_) => graph.wither_geom(geom, block::BlockError::Gone),
            }
        }
        joined?;
    }
    graph.settle();
    Ok(())
}

/// A mirror without metadata cannot be changed permanently.
pub(super) fn check_automatic(graph: &Graph, geom: GeomId) -> Result<(), GeomError> {
    if state(graph, geom)?.is_manual {
        let cause = "was made by `create`, and has no metadata; make it by `label` to do this";
        return Err(GeomError::invalid(&graph[geom].name, cause));
    }
    Ok(())
}

/// Writes metadata to the providers: the mirror exists from now on. The contents must be equal or
/// irrelevant; if one disk has contents, label that one and insert the others.
///
/// # Errors
/// The error names the obstacle.
pub fn label(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    options: &MirrorOptions,
) -> Result<(), GeomError> {
    let labels = components(graph, name, (under, u64::from), options)?;
    let id = labels.first().map(|(_, metadata)| metadata.id);
    let written = write_labels(graph, &labels);
    if written.is_err() {
        for (provider, _) in labels {
            let last = graph.peek_last(provider);
            let is_ours =
                |sector: &[u8]| wire::Mirror::parse(sector).is_ok_and(|it| Some(it.id) == id);
            if last.is_ok_and(|sector| is_ours(&sector)) {
                // Labels that cannot be cleared belong to a mirror that never starts.
                let _ = write_last(graph, provider, |_| {});
            }
        }
    }
    graph.settle();
    written
}

/// Writes the labels of a new mirror so that a power cut leaves none or all of it: until the last
/// one is written, no component is whole by itself, and from then on all of them are.
fn write_labels(graph: &mut Graph, labels: &[(ProviderId, wire::Mirror)]) -> Result<(), GeomError> {
    let Some(((last, metadata), others)) = labels.split_last() else { return Ok(()) };
    for (provider, metadata) in others {
        write_last(graph, *provider, |sector| with_all(*metadata).emit(sector))?;
    }
    write_last(graph, *last, |sector| metadata.emit(sector))?;
    for (provider, metadata) in others {
        write_last(graph, *provider, |sector| metadata.emit(sector))?;
    }
    Ok(())
}

/// Clears the metadata of a provider that no mirror uses.
///
/// # Errors
/// If there is none.
pub fn clear(graph: &mut Graph, provider: ProviderId) -> Result<(), GeomError> {
    guard::in_use(graph, provider)?;
    crate::class::clear(graph, "MIRROR", provider)
}

/// Adds components, which are rebuilt from the others.
///
/// # Errors
/// The error names the obstacle.
pub fn insert(
    graph: &mut Graph,
    geom: GeomId,
    under: &[ProviderId],
    (priority, hardcode, force): (u8, bool, bool),
) -> Result<(), GeomError> {
    check_automatic(graph, geom)?;
    let common = state(graph, geom)?.common;
    let name = graph[geom].name.clone();
    if state(graph, geom)?.disks.len() < usize::from(common.all) {
        let cause = "is not complete; first `mirror forget` the components that will not come back";
        return Err(GeomError::new(Kind::Busy, name, cause));
    }
    for &provider in under {
        guard::last_sector_unless(graph, "MIRROR", provider, force)?;
        let there = &graph[provider];
        let room = there.media_size.saturating_sub(u64::from(there.sector_size));
        if room < common.media_size || there.sector_size > common.sector_size {
            let needed = common.media_size + u64::from(there.sector_size);
            let cause = format!("has {} bytes, but {needed} are needed", there.media_size);
            return Err(GeomError::new(Kind::NoSpace, &there.name, cause));
        }
        if common.all == u8::MAX {
            return Err(GeomError::invalid(&name, "a mirror must have 1 to 255 components"));
        }
        let hardcoded = hardcode.then(|| Name::new(&there.name)).flatten();
        let provider_size = there.media_size;
        // The new one first, with a sync id below all others: until they count it, it is surplus.
        let all = state(graph, geom)?.common.all + 1;
        let metadata = wire::Mirror {
            all,
            disk_id: graph.random() as u32,
            sync_id: 0,
            priority,
            sync_offset: 0,
            disk_flags: if hardcoded.is_some() { disk_flags::HARDCODED } else { 0 },
            provider: hardcoded,
            provider_size,
            ..state(graph, geom)?.common
        };
        let sector_size = graph[provider].sector_size as usize;
        let (at, object) = (graph[provider].last_sector(), graph[provider].name.clone());
        let mut sector = vec![0; sector_size];
        metadata.emit(&mut sector);
        let consumer = graph.open(provider, crate::Access::ALONE)?;
        let written = graph
            .io(consumer, Io::Write { offset: at, from: &sector })
            .and_then(|()| graph.io(consumer, Io::Flush));
        let counted = written.map_err(|error| GeomError::io(object, error)).and_then(|()| {
            state_mut(graph, geom)?.common.all = all;
            update(graph, geom, |_| true, |metadata| metadata.all = all)
        });
        graph.shut(consumer);
        graph.settle();
        counted?;
    }
    Ok(())
}

/// Makes providers spares of a mirror: [`take_spares`] turns them into components when one is
/// missing.
///
/// # Errors
/// The error names the obstacle.
pub fn spare(
    graph: &mut Graph,
    geom: GeomId,
    under: &[ProviderId],
    (priority, hardcode, force): (u8, bool, bool),
) -> Result<(), GeomError> {
    check_automatic(graph, geom)?;
    let common = state(graph, geom)?.common;
    for &provider in under {
        guard::last_sector_unless(graph, "MIRROR", provider, force)?;
        let there = &graph[provider];
        let room = there.media_size.saturating_sub(u64::from(there.sector_size));
        if room < common.media_size || there.sector_size > common.sector_size {
            let needed = common.media_size + u64::from(there.sector_size);
            let cause = format!("has {} bytes, but {needed} are needed", there.media_size);
            return Err(GeomError::new(Kind::NoSpace, &there.name, cause));
        }
        let hardcoded = hardcode.then(|| Name::new(&there.name)).flatten();
        let name = if hardcoded.is_some() { disk_flags::HARDCODED } else { 0 };
        let provider_size = there.media_size;
        let metadata = wire::Mirror {
            disk_id: graph.random() as u32,
            sync_id: 0,
            priority,
            sync_offset: 0,
            disk_flags: SPARE | name,
            provider: hardcoded,
            provider_size,
            ..common
        };
        write_last(graph, provider, |sector| metadata.emit(sector))?;
    }
    graph.settle();
    Ok(())
}

/// Turns spares into components while any are missing; they are then rebuilt. Returns how many.
///
/// # Errors
/// If one cannot be turned into a component.
pub fn take_spares(graph: &mut Graph, geom: GeomId) -> Result<usize, GeomError> {
    let idle = graph
        .objects()
        .providers()
        .filter(|(_, it)| it.access.exclusive == 0 && it.error.is_none());
    let idle: Vec<ProviderId> = idle.map(|(id, _)| id).collect();
    let mut taken = 0;
    for provider in idle {
        let there = state(graph, geom)?;
        if there.disks.len() >= usize::from(there.common.all) {
            break;
        }
        let id = there.common.id;
        if graph.objects().provider(provider).is_none() {
            continue;
        }
        let Ok(sector) = graph.peek_last(provider) else { continue };
        let Ok(metadata) = wire::Mirror::parse(&sector) else { continue };
        let is_spare = metadata.disk_flags & SPARE == SPARE && metadata.sync_id == 0;
        let only = metadata.provider;
        let is_here = metadata.provider_size == graph[provider].media_size
            && only.is_none_or(|only| only.as_str() == graph[provider].name);
        if metadata.id == id && is_spare && is_here {
            activate(graph, geom, provider)?;
            taken += 1;
        }
    }
    Ok(taken)
}

/// Removes a component permanently and clears its metadata.
///
/// # Errors
/// If it is the last active component, or not a component.
pub fn remove(graph: &mut Graph, geom: GeomId, name: &str) -> Result<(), GeomError> {
    let consumer = consumer_of(graph, geom, name)?;
    check_not_last(graph, geom, name)?;
    let all = state(graph, geom)?.common.all.saturating_sub(1).max(1);
    state_mut(graph, geom)?.common.all = all;
    update(graph, geom, |disk| disk.consumer != consumer, |metadata| metadata.all = all)?;
    let zeroed = if state(graph, geom)?.is_manual { Ok(()) } else { zero(graph, consumer) };
    take_out(graph, geom, consumer);
    graph.settle();
    zeroed
}

fn zero(graph: &mut Graph, consumer: crate::ConsumerId) -> Result<(), GeomError> {
    let Some(provider) = graph[consumer].provider else { return Ok(()) };
    let (offset, name) = (graph[provider].last_sector(), graph[provider].name.clone());
    let zeros = vec![0; graph[provider].sector_size as usize];
    graph
        .io(consumer, Io::Write { offset, from: &zeros })
        .and_then(|()| graph.io(consumer, Io::Flush))
        .map_err(|error| GeomError::io(name, error))
}

fn take_out(graph: &mut Graph, geom: GeomId, consumer: crate::ConsumerId) {
    if let Some(state) = graph.state_mut::<State>(geom) {
        state.disks.retain(|disk| disk.consumer != consumer);
    }
    request::release(graph, consumer);
}

fn check_not_last(graph: &Graph, geom: GeomId, name: &str) -> Result<(), GeomError> {
    let consumer = consumer_of(graph, geom, name)?;
    let state = state(graph, geom)?;
    let others = state.disks.iter().filter(|disk| disk.consumer != consumer);
    if others.filter(|disk| disk.part == Part::Active).count() == 0 {
        let cause = format!("is the last good component of {}", graph[geom].name);
        return Err(GeomError::new(Kind::Busy, name, cause));
    }
    Ok(())
}

/// Stops counting components that are missing.
///
/// # Errors
/// If it cannot be written.
pub fn forget(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    let state = state_mut(graph, geom)?;
    let all = state.disks.len() as u8;
    if state.common.all == all {
        return Ok(());
    }
    // A component that returns after all must not be taken for one of the current ones.
    let sync_id = state.common.sync_id.wrapping_add(1);
    state.common.all = all;
    state.common.sync_id = sync_id;
    state.bump = false;
    let done = update_at_once(graph, geom, |metadata| {
        (metadata.all, metadata.sync_id) = (all, sync_id);
    });
    graph.settle();
    done
}

/// Takes a component out until [`activate`].
///
/// # Errors
/// If it is the last active component, or not a component.
pub fn deactivate(graph: &mut Graph, geom: GeomId, name: &str) -> Result<(), GeomError> {
    check_automatic(graph, geom)?;
    let consumer = consumer_of(graph, geom, name)?;
    check_not_last(graph, geom, name)?;
    update(
        graph,
        geom,
        |disk| disk.consumer == consumer,
        |metadata| {
            metadata.disk_flags |= disk_flags::INACTIVE;
            metadata.disk_flags &= !disk_flags::DIRTY;
            // Lower than that of all others: whenever it returns, it is rebuilt.
            metadata.sync_id = 0;
        },
    )?;
    state_mut(graph, geom)?.bump = true;
    take_out(graph, geom, consumer);
    graph.settle();
    Ok(())
}

/// Takes a component back; it is rebuilt.
///
/// # Errors
/// If it was not taken out of this mirror.
pub fn activate(graph: &mut Graph, geom: GeomId, provider: ProviderId) -> Result<(), GeomError> {
    check_automatic(graph, geom)?;
    let sector = graph.peek_last(provider)?;
    let (name, id) = (graph[provider].name.clone(), state(graph, geom)?.common.id);
    let mut metadata = match wire::Mirror::parse(&sector) {
        Ok(metadata) if metadata.id == id => metadata,
        _ => {
            let cause = format!("is not a component of mirror {}", graph[geom].name);
            return Err(GeomError::new(Kind::NotFound, name, cause));
        }
    };
    let common = state(graph, geom)?.common;
    if metadata.disk_flags & SPARE == SPARE {
        // It never failed, and its knowledge of the others may be out of date.
        (metadata.gen_id, metadata.media_size) = (common.gen_id, common.media_size);
    }
    metadata.disk_flags &= !disk_flags::INACTIVE;
    write_last(graph, provider, |sector| metadata.emit(sector))?;
    graph.settle();
    Ok(())
}

/// Rebuilds a component from the others, from its start on.
///
/// # Errors
/// If it is the last active component, or not a component.
pub fn rebuild(graph: &mut Graph, geom: GeomId, name: &str) -> Result<(), GeomError> {
    let consumer = consumer_of(graph, geom, name)?;
    check_not_last(graph, geom, name)?;
    let sync_id = state(graph, geom)?.common.sync_id;
    update(
        graph,
        geom,
        |disk| disk.consumer == consumer,
        |metadata| {
            metadata.disk_flags |= disk_flags::SYNCHRONIZING | disk_flags::FORCE_SYNC;
            (metadata.sync_offset, metadata.sync_id) = (0, sync_id);
        },
    )?;
    let disks = &mut state_mut(graph, geom)?.disks;
    if let Some(disk) = disks.iter_mut().find(|disk| disk.consumer == consumer) {
        (disk.part, disk.copied) = (Part::Synchronizing, None);
    }
    Ok(())
}

/// Changes the settings common to all components.
///
/// # Errors
/// If it cannot be written.
pub fn configure(graph: &mut Graph, geom: GeomId, change: &Configure) -> Result<(), GeomError> {
    let common = &mut state_mut(graph, geom)?.common;
    common.balance = change.balance.unwrap_or(common.balance);
    common.slice = change.slice.unwrap_or(common.slice);
    for (wanted, bit) in
        [(change.no_auto_sync, flags::NO_AUTO_SYNC), (change.no_fail_sync, flags::NO_FAIL_SYNC)]
    {
        match wanted {
            Some(true) => common.flags |= bit,
            Some(false) => common.flags &= !bit,
            None => {}
        }
    }
    if let Some(hardcode) = change.hardcode {
        let there = state(graph, geom)?.disks.iter();
        let names = there.map(|disk| {
            let name = graph[disk.consumer].provider.map(|it| &graph[it].name[..]);
            (disk.consumer, name.and_then(Name::new).filter(|_| hardcode))
        });
        let names: Vec<_> = names.collect();
        for (disk, (_, name)) in state_mut(graph, geom)?.disks.iter_mut().zip(names) {
            let metadata = &mut disk.metadata;
            metadata.provider = name;
            metadata.disk_flags &= !disk_flags::HARDCODED;
            metadata.disk_flags |= if name.is_some() { disk_flags::HARDCODED } else { 0 };
        }
    }
    update(graph, geom, |_| true, |_| {})
}

/// Changes the priority of a component.
///
/// # Errors
/// If it is not a component.
pub fn prefer(graph: &mut Graph, geom: GeomId, name: &str, priority: u8) -> Result<(), GeomError> {
    let consumer = consumer_of(graph, geom, name)?;
    let chosen = |disk: &super::Disk| disk.consumer == consumer;
    update(graph, geom, chosen, |metadata| metadata.priority = priority)
}

fn check_closed(graph: &Graph, geom: GeomId) -> Result<(), GeomError> {
    let open = graph[geom].providers.iter().find(|&&p| graph[p].access != crate::Access::NONE);
    open.map_or(Ok(()), |&open| {
        let cause = format!("is open ({}); close it first", graph[open].access);
        Err(GeomError::new(Kind::Busy, graph[open].name.to_string(), cause))
    })
}

/// Stops a mirror; its metadata stays, marked as clean.
///
/// # Errors
/// If it is open, unless `force`.
pub fn stop(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    if !force {
        check_closed(graph, geom)?;
    }
    request::clean(graph, geom);
    // A provider closed after writing is tasted again: not by this class, while it is attached.
    for consumer in graph[geom].consumers.clone() {
        graph.close(consumer);
        graph.settle();
    }
    graph.wither_geom(geom, block::BlockError::Gone);
    graph.settle();
    Ok(())
}

/// Removes a mirror and clears the metadata of its components.
///
/// # Errors
/// If it is open, or cannot be written.
pub fn destroy(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    if !force {
        check_closed(graph, geom)?;
    }
    let state = state(graph, geom)?;
    if state.is_manual {
        return stop(graph, geom, force);
    }
    // As at creation: the sector that decides is cleared first.
    let first = state.disks.iter().find(|disk| disk.part == Part::Active);
    let first = first.map(|disk| disk.consumer);
    let is_other = |disk: &super::Disk| {
        disk.part == Part::Active && Some(disk.consumer) != first && is_whole(&disk.metadata)
    };
    if state.disks.iter().any(is_other) {
        // A component that cannot be updated is cleared all the same.
        let _ = update(graph, geom, is_other, |metadata| *metadata = with_all(*metadata));
    }
    let disks = self::state(graph, geom).map(|state| &state.disks[..]).unwrap_or_default();
    let mut disks: Vec<_> = disks.iter().map(|disk| disk.consumer).collect();
    disks.sort_by_key(|consumer| Some(*consumer) != first);
    let zeroed: Vec<_> = disks.into_iter().map(|consumer| zero(graph, consumer)).collect();
    graph.wither_geom(geom, block::BlockError::Gone);
    graph.settle();
    zeroed.into_iter().collect()
}

/// Rebuilds all components that need it; calls `progress` with the bytes done and the total.
/// Returns how many components were rebuilt.
///
/// # Errors
/// If it cannot continue. The progress so far is kept.
pub fn synchronize(
    graph: &mut Graph,
    geom: GeomId,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<usize, GeomError> {
    let mut rebuilt = 0;
    while let Some((done, all)) = synchronize_piece(graph, geom, PIECE)? {
        progress(done, all);
        rebuilt += usize::from(done == all);
    }
    Ok(rebuilt)
}

/// Rebuilds this many bytes of the first component that needs it. Returns how many of its bytes are
/// done, and the total; after the last piece it is read like the others. Returns `None` if no
/// component needs rebuilding.
///
/// Open ways must be quiet meanwhile ([`crate::Way::is_quiet`]) and know the component: their plans
/// must have been made after it was added. Their changes between two pieces reach it too.
///
/// # Errors
/// If it cannot continue. The progress so far is kept.
pub fn synchronize_piece(
    graph: &mut Graph,
    geom: GeomId,
    length: u64,
) -> Result<Option<(u64, u64)>, GeomError> {
    let (name, common) = (graph[geom].name.clone(), state(graph, geom)?.common);
    let (size, sync_id) = (common.media_size, common.sync_id);
    let fail = |error| GeomError::io(&name, error);
    let waits = |disk: &&super::Disk| disk.part == Part::Synchronizing;
    let Some(disk) = state(graph, geom)?.disks.iter().find(waits) else { return Ok(None) };
    let (to, kept) = (disk.consumer, disk.metadata.sync_offset);
    let mut at = disk.copied.unwrap_or(kept).min(size);
    if disk.copied.is_none() {
        // From here on, completed work counts for this sync id.
        update(graph, geom, |disk| disk.consumer == to, |metadata| metadata.sync_id = sync_id)?;
    }
    let sector = u64::from(common.sector_size.max(512));
    let length = length.next_multiple_of(sector).min(size - at);
    if length > 0 {
        let mut piece = vec![0; length as usize];
        request::start(graph, geom, Io::Read { offset: at, to: &mut piece }).map_err(fail)?;
        graph.io(to, Io::Write { offset: at, from: &piece }).map_err(fail)?;
        at += length;
    }
    copied(graph, geom, to)?.copied = Some(at);
    if at < size && at - kept < CHECKPOINT {
        return Ok(Some((at, size)));
    }
    graph.io(to, Io::Flush).map_err(fail)?;
    if at < size {
        update(graph, geom, |disk| disk.consumer == to, |metadata| metadata.sync_offset = at)?;
        return Ok(Some((at, size)));
    }
    let common = state(graph, geom)?.common;
    let disk = copied(graph, geom, to)?;
    (disk.part, disk.copied) = (Part::Active, None);
    let metadata = &mut disk.metadata;
    metadata.disk_flags &= !(disk_flags::SYNCHRONIZING | disk_flags::FORCE_SYNC);
    (metadata.sync_offset, metadata.sync_id) = (0, common.sync_id);
    metadata.gen_id = common.gen_id;
    write_metadata(graph, geom, to)?;
    Ok(Some((size, size)))
}

/// The component that is being rebuilt, unless it was dropped meanwhile.
fn copied(
    graph: &mut Graph,
    geom: GeomId,
    consumer: crate::ConsumerId,
) -> Result<&mut super::Disk, GeomError> {
    let gone = GeomError::io(&graph[geom].name, block::BlockError::Gone);
    let mut disks = state_mut(graph, geom)?.disks.iter_mut();
    disks.find(|disk| disk.consumer == consumer).ok_or(gone)
}
