//! MIRROR: the same data on several components (RAID 1).
//!
//! Two numbers on every component decide which ones to trust. The generation is raised when a
//! component fails: components with a lower one stay out until they are inserted again. The sync id
//! is raised when the others are written while a component is missing: that component is rebuilt
//! when it returns.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::mirror as wire;
use flysch_wire::geom::mirror::{disk_flags, flags};

use super::{Class, Config, News, Object, Requests};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::Taste;
use crate::route::{MirrorComponent, Route};

mod request;
mod resize;
mod start;
#[cfg(test)]
mod tests;
mod verbs;

pub(crate) use request::is_components;
pub use resize::resize;
pub use verbs::{
    Configure, MirrorOptions, activate, clear, configure, create, deactivate, destroy, forget,
    insert, label, prefer, rebuild, remove, spare, stop, synchronize, synchronize_piece,
    take_spares,
};

/// The type of the class.
#[derive(Debug)]
pub struct Mirror;

/// The class, to be registered with a graph.
pub static MIRROR: Mirror = Mirror;

/// The role of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Tasted, but the mirror has not started.
    New,
    /// Read and written.
    Active,
    /// Written, and rebuilt from the others.
    Synchronizing,
    /// Left alone until `rebuild`.
    Stale,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Active => "ACTIVE",
            Self::Synchronizing => "SYNCHRONIZING",
            Self::Stale => "STALE",
        }
    }

    const fn is_written(self) -> bool {
        matches!(self, Self::Active | Self::Synchronizing)
    }
}

/// One component.
#[derive(Clone, Debug)]
struct Disk {
    consumer: ConsumerId,
    /// Its metadata, as it is to be written.
    metadata: wire::Mirror,
    part: Part,
    /// Bytes rebuilt so far; the metadata holds how many of them are safe.
    copied: Option<u64>,
    /// Number of reads it has done, for [`Balance::Load`], and the byte after the last one.
    reads: u64,
    head: u64,
}

/// The state of a geom.
#[derive(Debug)]
struct State {
    /// The metadata that all components share.
    common: wire::Mirror,
    disks: Vec<Disk>,
    running: bool,
    /// Starting was attempted, and no component can be trusted.
    stuck: bool,
    /// A component is missing or stale: the next write raises the sync id.
    bump: bool,
    /// The components are marked as being written to.
    dirty: bool,
    /// It was made by `create`: its components hold no metadata.
    is_manual: bool,
    /// The component whose turn it is.
    turn: usize,
}

impl State {
    fn active(&self) -> usize {
        self.disks.iter().filter(|disk| disk.part == Part::Active).count()
    }

    fn state_name(&self) -> &'static str {
        match (self.running, self.active() == usize::from(self.common.all)) {
            (false, _) => "STARTING",
            (true, true) => "COMPLETE",
            (true, false) => "DEGRADED",
        }
    }
}

fn state(graph: &Graph, geom: GeomId) -> Result<&State, GeomError> {
    let missing = || GeomError::not_found(&graph[geom].name, "geom of class MIRROR");
    graph.state(geom).ok_or_else(missing)
}

fn state_mut(graph: &mut Graph, geom: GeomId) -> Result<&mut State, GeomError> {
    let name = graph[geom].name.clone();
    graph.state_mut(geom).ok_or_else(|| GeomError::not_found(name, "geom of class MIRROR"))
}

/// Writes the metadata of one component.
fn write_metadata(graph: &mut Graph, geom: GeomId, consumer: ConsumerId) -> Result<(), GeomError> {
    let state = state(graph, geom)?;
    let disk = state.disks.iter().find(|disk| disk.consumer == consumer);
    let Some(disk) = disk.filter(|_| !state.is_manual) else { return Ok(()) };
    let common = state.common;
    let metadata = wire::Mirror {
        all: common.all,
        slice: common.slice,
        balance: common.balance,
        media_size: common.media_size,
        flags: common.flags,
        ..disk.metadata
    };
    let Some(provider) = graph[consumer].provider else { return Ok(()) };
    let (at, name) = (graph[provider].last_sector(), graph[provider].name.clone());
    let mut sector = vec![0; graph[provider].sector_size as usize];
    metadata.emit(&mut sector);
    graph
        .io(consumer, Io::Write { offset: at, from: &sector })
        .and_then(|()| graph.io(consumer, Io::Flush))
        .map_err(|error| GeomError::io(name, error))
}

/// Changes and writes the metadata of every component selected by `which`. Components that cannot
/// be written are dropped.
fn update(
    graph: &mut Graph,
    geom: GeomId,
    which: impl Fn(&Disk) -> bool,
    change: impl Fn(&mut wire::Mirror),
) -> Result<(), GeomError> {
    let state = state_mut(graph, geom)?;
    let mut chosen = Vec::new();
    for disk in state.disks.iter_mut().filter(|disk| which(disk)) {
        change(&mut disk.metadata);
        chosen.push(disk.consumer);
    }
    let mut first = Ok(());
    let mut written = 0;
    for consumer in chosen {
        match write_metadata(graph, geom, consumer) {
            Ok(()) => written += 1,
            Err(error) => {
                let is_gone = error.kind == Kind::Io(block::BlockError::Gone);
                first = first.and(Err(error));
                request::lose(graph, geom, consumer, is_gone);
            }
        }
    }
    if written > 0 { Ok(()) } else { first }
}

/// Whether a component holds all data, that is, is not being rebuilt.
const fn is_whole(metadata: &wire::Mirror) -> bool {
    metadata.disk_flags & disk_flags::SYNCHRONIZING == 0
}

/// Whether a component was rebuilt completely but is not yet marked so: next to a whole one it is
/// whole too, alone it is not trusted.
const fn has_all(metadata: &wire::Mirror) -> bool {
    !is_whole(metadata) && metadata.sync_offset >= metadata.media_size
}

/// The metadata of a component that was rebuilt completely.
const fn with_all(metadata: wire::Mirror) -> wire::Mirror {
    let disk_flags = metadata.disk_flags | disk_flags::SYNCHRONIZING;
    wire::Mirror { disk_flags, sync_offset: metadata.media_size, ..metadata }
}

/// Changes the metadata of all components that are written, so that a power cut leaves either the
/// old or the new state. All whole components but the first are written first, with the new state
/// and marked as completely rebuilt: that is valid both while the first one holds the old state and
/// once it holds the new one.
fn update_at_once(
    graph: &mut Graph,
    geom: GeomId,
    change: impl Fn(&mut wire::Mirror),
) -> Result<(), GeomError> {
    let active = state(graph, geom)?.disks.iter().filter(|disk| disk.part == Part::Active);
    let active: Vec<ConsumerId> = active.map(|disk| disk.consumer).collect();
    let is_other = |disk: &Disk| active.iter().skip(1).any(|other| *other == disk.consumer);
    if active.len() > 1 {
        update(graph, geom, is_other, |metadata| {
            change(metadata);
            *metadata = with_all(*metadata);
        })?;
    }
    update(graph, geom, |disk| active.first() == Some(&disk.consumer), &change)?;
    if active.len() > 1 {
        update(graph, geom, is_other, |metadata| {
            metadata.disk_flags &= !disk_flags::SYNCHRONIZING;
            metadata.sync_offset = 0;
        })?;
    }
    let is_behind = |disk: &Disk| disk.part == Part::Synchronizing;
    match state(graph, geom)?.disks.iter().any(is_behind) {
        true => update(graph, geom, is_behind, &change),
        false => Ok(()),
    }
}

fn consumer_of(graph: &Graph, geom: GeomId, name: &str) -> Result<ConsumerId, GeomError> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let mut disks = state(graph, geom)?.disks.iter().map(|disk| disk.consumer);
    let is_it = |c: &ConsumerId| graph[*c].provider.is_some_and(|p| graph[p].name == name);
    disks.find(is_it).ok_or_else(|| {
        let cause = format!("is not a component of mirror {}", graph[geom].name);
        GeomError::new(Kind::NotFound, name, cause)
    })
}

/// Why a provider with this metadata cannot be taken.
fn objection(graph: &Graph, under: ProviderId, metadata: &wire::Mirror) -> Option<String> {
    let there = &graph[under];
    let name = metadata.name;
    let size = metadata.provider_size;
    if size != 0 && size != there.media_size {
        let has = there.media_size;
        return Some(format!("metadata of {name} is for {size} bytes, this has {has}"));
    }
    let room = there.media_size.saturating_sub(u64::from(there.sector_size));
    let sector = metadata.sector_size;
    let fits = sector.is_power_of_two() && sector >= there.sector_size;
    if metadata.media_size == 0 || metadata.media_size > room || !fits {
        return Some(format!("metadata of {name} is for a larger disk or other sectors"));
    }
    if !metadata.media_size.is_multiple_of(u64::from(sector)) || sector > super::disk::SECTOR_MAX {
        return Some(format!("metadata of {name} gives an impossible size"));
    }
    if metadata.disk_flags & disk_flags::INACTIVE != 0 {
        return Some(format!("it was deactivated in {name}; `mirror activate` takes it back"));
    }
    let only = metadata.provider.filter(|_| metadata.disk_flags & disk_flags::HARDCODED != 0);
    if let Some(only) = only.filter(|only| only.as_str() != there.name) {
        return Some(format!("metadata of {name} is for {only} only"));
    }
    None
}

impl Class for Mirror {
    fn name(&self) -> &'static str {
        "MIRROR"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let (at, len) = (graph[provider].last_sector(), wire::LEN as u64);
        let metadata = match graph.peek_last(provider) {
            Ok(sector) => match wire::Mirror::parse(&sector) {
                Ok(metadata) => metadata,
                Err(_) if !sector.starts_with(&wire::MAGIC) => {
                    return Taste::passed("no label of MIRROR in the last sector");
                }
                Err(error) => {
                    return Taste::refused(format!("its label is not sound: {error}"), at, len);
                }
            },
            Err(error) => return Taste::passed(error.to_string()),
        };
        if let Some(why) = objection(graph, provider, &metadata) {
            return Taste::refused(why, at, len);
        }
        match start::join(graph, provider, &metadata) {
            Ok(()) => Taste::claimed(format!("component of mirror {}", metadata.name), at, len),
            Err(error) => Taste::refused(error.to_string(), at, len),
        }
    }

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        let geom = graph[provider].geom;
        let Ok(state) = state(graph, geom) else { return Ok(()) };
        let is_written = |disk: &&Disk| disk.part.is_written();
        let mut written = state.disks.iter().filter(is_written);
        if change.write > 0 && written.any(|disk| graph[disk.consumer].access.write == 0) {
            let name = &graph[provider].name;
            return Err(GeomError::io(name, block::BlockError::WriteProtected));
        }
        let open = graph[provider].access.write;
        if open > 0 && open + change.write == 0 {
            request::clean(graph, geom);
        }
        Ok(())
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        match news {
            News::Orphaned(consumer) | News::Spoiled(consumer) => {
                let geom = graph[consumer].geom;
                request::lose(graph, geom, consumer, true);
                true
            }
            News::Failed(consumer, error) => {
                let geom = graph[consumer].geom;
                request::lose(graph, geom, consumer, error == block::BlockError::Gone);
                let is_dirty = graph.state::<State>(geom).is_some_and(|state| state.dirty);
                if is_dirty && let Err(error) = request::mark_dirty(graph, geom) {
                    let name = graph[geom].name.clone();
                    graph.record.say(format!("MIRROR: {name}: metadata: {error}"));
                }
                true
            }
            News::Resized(consumer) => resize::resized(graph, consumer),
            News::Settled => {
                let waits =
                    |state: &State| !state.running && !state.stuck && !state.disks.is_empty();
                let all: Vec<GeomId> =
                    graph.objects().geoms_of("MIRROR").map(|(id, _)| id).collect();
                let mut of = all.into_iter();
                let found = of.find(|&id| graph.state::<State>(id).is_some_and(waits));
                found.inspect(|&geom| start::start(graph, geom)).is_some()
            }
        }
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        match object {
            Object::Geom(geom) => graph.state::<State>(geom).map(geom_config).unwrap_or_default(),
            Object::Consumer(consumer) => {
                let state = graph.state::<State>(graph[consumer].geom);
                let disks = state.map(|state| (state, &state.disks));
                let found = disks.and_then(|(state, disks)| {
                    Some((state, disks.iter().find(|disk| disk.consumer == consumer)?))
                });
                found.map(|(state, disk)| disk_config(state, disk)).unwrap_or_default()
            }
            Object::Provider(_) => Vec::new(),
        }
    }
}

impl Requests for Mirror {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        request::start(graph, graph[provider].geom, io)
    }

    fn route(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        writes: bool,
    ) -> Result<Option<Route>, GeomError> {
        let geom = graph[provider].geom;
        if writes {
            let name = graph[provider].name.clone();
            request::mark_dirty(graph, geom).map_err(|error| GeomError::io(name, error))?;
        }
        let state = state(graph, geom)?;
        let component = |disk: &Disk| MirrorComponent {
            consumer: disk.consumer,
            base: 0,
            priority: disk.metadata.priority,
            is_read: disk.part == Part::Active,
        };
        let written = state.disks.iter().filter(|disk| disk.part.is_written());
        let sector = u64::from(state.common.sector_size);
        Ok(Some(Route::Mirror {
            balance: state.common.balance,
            slice: u64::from(state.common.slice).next_multiple_of(sector).max(sector),
            components: written.map(component).collect(),
        }))
    }
}

/// Names of flags, or `NONE`.
fn flag_names(bits: u64, names: &[(&str, u64)]) -> String {
    let set: Vec<&str> =
        names.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect();
    if set.is_empty() { "NONE".into() } else { set.join(", ") }
}

fn geom_config(state: &State) -> Config {
    let common = &state.common;
    let names = [("NOAUTOSYNC", flags::NO_AUTO_SYNC), ("NOFAILSYNC", flags::NO_FAIL_SYNC)];
    vec![
        ("Type", if state.is_manual { "MANUAL" } else { "AUTOMATIC" }.into()),
        ("ID", common.id.to_string()),
        ("SyncID", common.sync_id.to_string()),
        ("GenID", common.gen_id.to_string()),
        ("Flags", flag_names(common.flags, &names)),
        ("Slice", common.slice.to_string()),
        ("Balance", common.balance.name().into()),
        ("Components", common.all.to_string()),
        ("State", state.state_name().into()),
    ]
}

fn disk_config(state: &State, disk: &Disk) -> Config {
    let metadata = &disk.metadata;
    let names = [
        ("DIRTY", disk_flags::DIRTY),
        ("HARDCODED", disk_flags::HARDCODED),
        ("INACTIVE", disk_flags::INACTIVE),
        ("SYNCHRONIZING", disk_flags::SYNCHRONIZING),
        ("FORCE_SYNC", disk_flags::FORCE_SYNC),
    ];
    let mut config: Config = vec![("ID", metadata.disk_id.to_string())];
    if disk.part == Part::Synchronizing {
        let size = state.common.media_size.max(1);
        let done = disk.copied.unwrap_or(metadata.sync_offset);
        let done = u128::from(done) * 100 / u128::from(size);
        config.push(("Synchronized", format!("{done}%")));
    }
    config.extend([
        ("SyncID", metadata.sync_id.to_string()),
        ("GenID", metadata.gen_id.to_string()),
        ("Flags", flag_names(metadata.disk_flags, &names)),
        ("Priority", metadata.priority.to_string()),
        ("State", disk.part.name().into()),
    ]);
    config
}

fn name_of(text: &str) -> Result<Name<16>, GeomError> {
    Name::new(text).ok_or_else(|| GeomError::invalid(text, "a name must have 1 to 15 bytes"))
}
