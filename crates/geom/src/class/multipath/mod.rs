//! MULTIPATH: several paths to one disk; one that works is enough.
//!
//! The label in the last sector of the disk is seen over every path. A provider with the same UUID,
//! size, name and serial number is a path to it; the state of the paths is never recorded.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::multipath as wire;
use flysch_wire::geom::multipath::Mode;

use super::{Class, Config, News, Object, Requests, Value};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::{Io, Shape};
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::Taste;
use crate::route::{self, Route};

mod request;
#[cfg(test)]
mod tests;
mod verbs;

pub(crate) use request::is_paths;
pub use verbs::{
    active, add, clear, configure, create, destroy, fail, label, prefer, remove, restore, rotate,
    stop,
};

/// The type of the class.
#[derive(Debug)]
pub struct Multipath;

/// The class, to be registered with a graph.
pub static MULTIPATH: Multipath = Multipath;

/// One path.
#[derive(Clone, Copy, Debug)]
struct Path {
    consumer: ConsumerId,
    /// A request failed on it, or `fail` was called.
    failed: bool,
    /// Requests performed by others since its last one.
    idle: u64,
}

/// The state of a geom. Paths are in order of arrival.
#[derive(Debug)]
struct State {
    /// The same on all paths; `None` if it was made by `create`.
    uuid: Option<Name<40>>,
    /// The name in the label; the geom has another one if that was taken.
    name: Name<16>,
    mode: Mode,
    paths: Vec<Path>,
    /// The path that takes the requests that only one path may take.
    active: Option<ConsumerId>,
}

impl State {
    fn good(&self) -> usize {
        self.paths.iter().filter(|path| !path.failed).count()
    }

    fn state_name(&self) -> &'static str {
        match (self.good(), self.paths.len()) {
            (0, _) => "BROKEN",
            (1, 1) => "DEGRADED",
            (good, all) if good == all => "OPTIMAL",
            _ => "DEGRADED",
        }
    }

    fn path_name(&self, path: &Path) -> &'static str {
        match self.mode {
            _ if path.failed => "FAIL",
            Mode::ActiveActive => "ACTIVE",
            _ if self.active == Some(path.consumer) => "ACTIVE",
            Mode::ActiveRead => "READ",
            _ => "PASSIVE",
        }
    }

    fn path_mut(&mut self, consumer: ConsumerId) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.consumer == consumer)
    }
}

fn state(graph: &Graph, geom: GeomId) -> Result<&State, GeomError> {
    let missing = || GeomError::not_found(&graph[geom].name, "geom of class MULTIPATH");
    graph.state(geom).ok_or_else(missing)
}

fn state_mut(graph: &mut Graph, geom: GeomId) -> Result<&mut State, GeomError> {
    let name = graph[geom].name.clone();
    graph.state_mut(geom).ok_or_else(|| GeomError::not_found(name, "geom of class MULTIPATH"))
}

/// The name of a path's provider.
fn name_of(graph: &Graph, consumer: ConsumerId) -> String {
    let provider = graph.objects().consumer(consumer).and_then(|consumer| consumer.provider);
    provider.map(|provider| graph[provider].name.clone()).unwrap_or_default()
}

/// The serial number reported by a provider, if any.
fn serial(graph: &Graph, provider: ProviderId) -> Option<String> {
    graph.attribute(provider, "GEOM::ident")?.text()
}

/// Why a provider cannot be another path to a disk.
fn objection(graph: &Graph, geom: GeomId, under: ProviderId) -> Option<String> {
    let state = graph.state::<State>(geom)?;
    let whole = *graph[geom].providers.first()?;
    let there = &graph[under];
    let label = if state.uuid.is_some() { u64::from(there.sector_size) } else { 0 };
    let (size, sector) = (graph[whole].media_size + label, graph[whole].sector_size);
    if there.media_size != size {
        return Some(format!("has {} bytes, but the disk has {size}", there.media_size));
    }
    if there.sector_size != sector {
        return Some(format!(
            "has sectors of {}, but the disk of {sector} bytes",
            there.sector_size
        ));
    }
    let known = state.paths.iter().find_map(|path| serial(graph, graph[path.consumer].provider?));
    match (known, serial(graph, under)) {
        (Some(known), Some(other)) if known != other => {
            Some(format!("has the serial number {other}, but the disk has {known}"))
        }
        _ => None,
    }
}

/// A geom without paths, and without a provider.
fn new(graph: &mut Graph, name: &str, (label, uuid, mode): (Name<16>, Uuid, Mode)) -> GeomId {
    let geom = graph.new_geom(&MULTIPATH, name);
    let state = State { uuid, name: label, mode, paths: Vec::new(), active: None };
    graph.set_state(geom, state);
    geom
}

type Uuid = Option<Name<40>>;

/// Adds a path. The first one makes the provider appear.
fn join(graph: &mut Graph, geom: GeomId, under: ProviderId) -> Result<(), GeomError> {
    let consumer = graph.new_consumer(geom);
    let joined = graph.attach(consumer, under).and_then(|()| {
        // What cannot be written can still be read.
        let read_only = Access::new(1, 0, 1);
        graph.access(consumer, Access::ALONE).or_else(|_| graph.access(consumer, read_only))?;
        if !graph[geom].providers.is_empty() {
            return Ok(());
        }
        let (there, name) = (&graph[under], format!("multipath/{}", graph[geom].name));
        let label = match state(graph, geom)?.uuid {
            Some(_) => u64::from(there.sector_size),
            None => 0,
        };
        let shape = Shape {
            media_size: there.media_size.saturating_sub(label),
            sector_size: there.sector_size,
            stripe_size: there.stripe_size,
            stripe_offset: there.stripe_offset,
        };
        graph.new_provider(geom, name, shape).map(drop)
    });
    if let Err(error) = joined {
        graph.drop_consumer(consumer);
        if graph[geom].consumers.is_empty() {
            graph.drop_geom(geom);
        }
        return Err(error);
    }
    state_mut(graph, geom)?.paths.push(Path { consumer, failed: false, idle: 0 });
    let line = format!("MULTIPATH: {} added to {}", graph[under].name, graph[geom].name);
    graph.record.say(line);
    request::elect(graph, geom);
    Ok(())
}

/// Finds or makes the geom of a label, and adds a path to it.
fn arrive(
    graph: &mut Graph,
    under: ProviderId,
    label: &wire::Multipath,
) -> Result<String, GeomError> {
    let same = |&geom: &GeomId| {
        graph.state::<State>(geom).is_some_and(|state| state.uuid == Some(label.uuid))
    };
    let known = graph.objects().geoms_of("MULTIPATH").map(|(geom, _)| geom).find(same);
    if let Some(geom) = known {
        let (state, name) = (state(graph, geom)?, graph[geom].name.clone());
        if state.name != label.name || state.mode != label.mode {
            let cause = "its label has the same UUID but differs in the rest";
            return Err(GeomError::invalid(name, cause));
        }
        if let Some(cause) = objection(graph, geom, under) {
            return Err(GeomError::invalid(name, cause));
        }
        join(graph, geom, under)?;
        return Ok(name);
    }
    let mut name = label.name.to_string();
    if graph.geom("MULTIPATH", &name).is_ok() {
        let number = graph.random() as u32;
        let long = format!("{name}-{number}");
        graph
            .record
            .say(format!("MULTIPATH: geom {name} exists already: {} will be {long}", label.uuid));
        name = long;
    }
    let geom = new(graph, &name, (label.name, Some(label.uuid), label.mode));
    graph.record.say(format!("MULTIPATH: {name} created"));
    join(graph, geom, under)?;
    Ok(name)
}

impl Class for Multipath {
    fn name(&self) -> &'static str {
        "MULTIPATH"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let (at, len) = (graph[provider].last_sector(), wire::LEN as u64);
        let sector = match graph.peek_last(provider) {
            Ok(sector) => sector,
            Err(error) => return Taste::passed(error.to_string()),
        };
        let label = match wire::Multipath::parse(&sector) {
            Ok(label) => label,
            Err(_) if !sector.starts_with(&wire::MAGIC) => {
                return Taste::passed("no label of MULTIPATH in the last sector");
            }
            Err(error) => {
                return Taste::refused(format!("its label is not sound: {error}"), at, len);
            }
        };
        let (name, there) = (label.name, &graph[provider]);
        let (size, sector) = (there.media_size, there.sector_size);
        if label.media_size != 0 && label.media_size != size {
            let wanted = label.media_size;
            let text = format!("metadata of {name} is for {wanted} bytes, this has {size}");
            return Taste::refused(text, at, len);
        }
        if label.sector_size != 0 && label.sector_size != sector || size <= u64::from(sector) {
            return Taste::refused(format!("metadata of {name} is for other sectors"), at, len);
        }
        if let Mode::Unknown(mode) = label.mode {
            return Taste::refused(
                format!("metadata of {name} has an unknown mode {mode}"),
                at,
                len,
            );
        }
        match arrive(graph, provider, &label) {
            Ok(name) => Taste::claimed(format!("path of multipath {name}"), at, len),
            Err(error) => Taste::refused(error.to_string(), at, len),
        }
    }

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        let Ok(state) = state(graph, graph[provider].geom) else { return Ok(()) };
        let mut paths = state.paths.iter();
        if change.write > 0 && !paths.any(|path| graph[path.consumer].access.write > 0) {
            let name = &graph[provider].name;
            return Err(GeomError::io(name, block::BlockError::WriteProtected));
        }
        Ok(())
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        match news {
            News::Orphaned(consumer) | News::Spoiled(consumer) => {
                let geom = graph[consumer].geom;
                let (path, name) = (name_of(graph, consumer), graph[geom].name.clone());
                graph.record.say(format!("MULTIPATH: {path} in {name} was disconnected"));
                request::depart(graph, geom, consumer);
                true
            }
            News::Failed(consumer, error) => {
                let geom = graph[consumer].geom;
                request::fault(graph, geom, consumer, (&error.to_string(), &[consumer]));
                true
            }
            News::Resized(_) | News::Settled => false,
        }
    }

    fn attribute(&self, graph: &Graph, provider: ProviderId, name: &str) -> Option<Value> {
        let geom = graph[provider].geom;
        let active = graph.state::<State>(geom).and_then(|state| state.active);
        let over = active.and_then(|consumer| graph.objects().consumer(consumer)?.provider);
        graph.attribute(over.or_else(|| graph.objects().under(geom))?, name)
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        let geom = match object {
            Object::Geom(geom) => geom,
            Object::Provider(provider) => graph[provider].geom,
            Object::Consumer(consumer) => graph[consumer].geom,
        };
        let Some(state) = graph.state::<State>(geom) else { return Vec::new() };
        let of_geom = ("State", state.state_name().into());
        match object {
            Object::Geom(_) => vec![
                of_geom,
                ("UUID", state.uuid.map(|uuid| uuid.to_string()).unwrap_or_default()),
                ("Mode", state.mode.name().into()),
                ("Type", if state.uuid.is_some() { "AUTOMATIC" } else { "MANUAL" }.into()),
            ],
            Object::Provider(_) => vec![of_geom],
            Object::Consumer(consumer) => {
                let path = state.paths.iter().find(|path| path.consumer == consumer);
                path.map(|path| ("State", state.path_name(path).into())).into_iter().collect()
            }
        }
    }
}

impl Requests for Multipath {
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
        _: bool,
    ) -> Result<Option<Route>, GeomError> {
        let state = state(graph, graph[provider].geom)?;
        let path = |path: &Path| route::Path {
            consumer: path.consumer,
            has_failed: path.failed,
            is_written: graph[path.consumer].access.write > 0,
        };
        let paths = state.paths.iter().map(path).collect();
        Ok(Some(Route::Paths { mode: state.mode, active: state.active, paths }))
    }
}

/// The path whose provider has this name.
fn path_of(graph: &Graph, geom: GeomId, name: &str) -> Result<ConsumerId, GeomError> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let mut paths = state(graph, geom)?.paths.iter().map(|path| path.consumer);
    paths.find(|&consumer| name_of(graph, consumer) == name).ok_or_else(|| {
        let cause = format!("is not a path of multipath {}", graph[geom].name);
        GeomError::new(Kind::NotFound, name, cause)
    })
}
