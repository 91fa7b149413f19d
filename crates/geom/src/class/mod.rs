//! The classes, one file each, and what a class is.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::block;

use crate::access::Access;
use crate::error::Error;
use crate::graph::Graph;
use crate::io::{Io, Shape};
use crate::object::{ConsumerId, GeomId, Provider, ProviderId};
use crate::record::Taste;
use crate::route::Route;
use crate::zone::{Zone, ZoneAnswer};

mod array;
pub mod cache;
pub mod concat;
#[cfg(test)]
mod cuts;
mod dev;
pub mod disk;
pub mod gate;
pub mod guard;
pub mod label;
pub mod mirror;
pub mod multipath;
pub mod nop;
pub mod part;
pub mod raid;
pub mod stripe;
pub mod zero;

pub use dev::DEV;

/// All classes except DEV in order of registration: the last one tastes first.
#[must_use]
pub fn all() -> [&'static dyn Class; 13] {
    [
        &disk::DISK,
        &disk::MD,
        &zero::ZERO,
        &label::LABEL,
        &part::PART,
        &nop::NOP,
        &gate::GATE,
        &cache::CACHE,
        &concat::CONCAT,
        &stripe::STRIPE,
        &mirror::MIRROR,
        &raid::RAID,
        &multipath::MULTIPATH,
    ]
}

/// Names and values that a class reports for an object, in FreeBSD's order of emission; listings
/// show them in reverse order.
pub type Config = Vec<(&'static str, String)>;

/// What a class is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A geom.
    Geom(GeomId),
    /// A provider.
    Provider(ProviderId),
    /// A consumer.
    Consumer(ConsumerId),
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl Value {
    /// The text, unless it is empty.
    #[must_use]
    pub fn text(self) -> Option<String> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// The number, if it is a number.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// What a class is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The provider of a consumer is gone.
    Orphaned(ConsumerId),
    /// The provider of a consumer was written by somebody else.
    Spoiled(ConsumerId),
    /// The provider of a consumer changed its size.
    Resized(ConsumerId),
    /// The provider of a consumer failed a queued request that the others completed.
    Failed(ConsumerId, block::Error),
    /// Everything has been tasted: there is no point in waiting longer for components.
    Settled,
}

/// How a class handles requests to its providers.
pub trait Requests {
    /// Performs a request to a provider of this class. Range, alignment and access have been
    /// checked.
    ///
    /// # Errors
    /// Those of the request.
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::Error>;

    /// Performs a zone command on a provider of this class, in its sectors; access and range have
    /// been checked. By default there are no zones; [`pass_zone`] asks the provider below.
    ///
    /// # Errors
    /// [`block::Error::Unsupported`]; those of the request.
    fn zone(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        command: Zone,
    ) -> Result<ZoneAnswer, block::Error> {
        let _ = (graph, provider, command);
        Err(block::Error::Unsupported)
    }

    /// Where queued requests to a provider of this class go; `None` if it does them one at a time.
    /// `writes` means that there are changes among them: providers below that must know of them in
    /// advance are told.
    ///
    /// # Errors
    /// If there is no way at present.
    fn route(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        writes: bool,
    ) -> Result<Option<Route>, Error> {
        let _ = (graph, provider, writes);
        Ok(None)
    }
}

/// A transformation of disks.
///
/// A class has no state of its own: what it knows of a geom is the geom's state
/// ([`Graph::set_state`]). The default methods do what most classes do, which have one consumer and
/// pass requests on.
pub trait Class: Requests + Sync {
    /// Its name, in capitals.
    fn name(&self) -> &'static str;

    /// Examines a provider, and takes it by making a geom on it. An empty reason for passing is not
    /// kept.
    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let _ = (graph, provider);
        Taste::passed("")
    }

    /// Called before a provider of this class is opened or closed. Closing does not fail.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn access(&self, graph: &mut Graph, provider: ProviderId, change: Access) -> Result<(), Error> {
        pass_access(graph, provider, change)
    }

    /// Something happened below; returns whether the geom survives it, or whether anything has
    /// changed. By default a geom is removed with a provider that is gone or was written.
    fn told(&self, graph: &mut Graph, news: News) -> bool {
        match news {
            News::Orphaned(consumer) | News::Spoiled(consumer) => {
                graph.wither_with(consumer);
                true
            }
            News::Resized(_) | News::Failed(..) | News::Settled => false,
        }
    }

    /// An attribute of a provider; by default that of the provider below.
    fn attribute(&self, graph: &Graph, provider: ProviderId, name: &str) -> Option<Value> {
        graph.attribute(graph.under(graph[provider].geom)?, name)
    }

    /// What to report of an object of this class.
    fn config(&self, graph: &Graph, object: Object) -> Config {
        let _ = (graph, object);
        Vec::new()
    }
}

/// Opens or closes the provider below like the provider.
///
/// # Errors
/// As [`Graph::access`].
pub fn pass_access(graph: &mut Graph, provider: ProviderId, change: Access) -> Result<(), Error> {
    let geom = graph[provider].geom;
    match graph[geom].consumers.first().copied() {
        Some(consumer) if graph[consumer].provider.is_some() => graph.access(consumer, change),
        _ if change.opens() => Err(Error::io(&graph[provider].name, block::Error::Gone)),
        _ => Ok(()),
    }
}

/// The same for all consumers, with one more exclusive count from the first open to the last close:
/// nobody else writes to the providers below.
///
/// # Errors
/// As [`Graph::access`]; nothing stays open that was not open before.
pub fn pass_access_alone(
    graph: &mut Graph,
    provider: ProviderId,
    change: Access,
) -> Result<(), Error> {
    let before = graph[provider].access;
    let after = before.and(change);
    let mut change = change;
    if before == Access::NONE && after != Access::NONE {
        change.exclusive += 1;
    }
    if before != Access::NONE && after == Access::NONE {
        change.exclusive -= 1;
    }
    let geom = graph[provider].geom;
    let consumers = graph[geom].consumers.clone();
    for (done, &consumer) in consumers.iter().enumerate() {
        if graph[consumer].provider.is_none() {
            continue;
        }
        if let Err(error) = graph.access(consumer, change) {
            for &undone in &consumers[..done] {
                // Closing does not fail.
                let _ = graph.access(undone, change.undone());
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Performs a request on the provider below, with `base` bytes added to its offset.
///
/// # Errors
/// Those of the request.
pub fn pass(
    graph: &mut Graph,
    provider: ProviderId,
    mut io: Io<'_>,
    base: u64,
) -> Result<(), block::Error> {
    let geom = graph[provider].geom;
    let consumer = graph[geom].consumers.first().copied().ok_or(block::Error::Gone)?;
    graph.io(consumer, io.shifted(base))
}

/// The same for queued requests.
#[must_use]
pub fn pass_route(graph: &Graph, provider: ProviderId, base: u64) -> Option<Route> {
    let consumer = graph[graph[provider].geom].consumers.first().copied()?;
    Some(Route::Pass { consumer, base })
}

/// Makes a geom with one consumer attached to `under`, and one provider.
///
/// # Errors
/// If it is impossible; nothing is created then.
pub fn stack(
    graph: &mut Graph,
    class: &'static dyn Class,
    (geom_name, name): (String, String),
    under: ProviderId,
    shape: Shape,
) -> Result<(GeomId, ProviderId), Error> {
    let geom = graph.new_geom(class, geom_name);
    let consumer = graph.new_consumer(geom);
    let made = match graph.attach(consumer, under) {
        Ok(()) => graph.new_provider(geom, name, shape),
        Err(error) => Err(error),
    };
    match made {
        Ok(provider) => Ok((geom, provider)),
        Err(error) => {
            graph.drop_geom(geom);
            Err(error)
        }
    }
}

/// The shape of `length` bytes of a provider from `offset` on.
#[must_use]
pub fn slice_of(graph: &Graph, under: ProviderId, offset: u64, length: u64) -> Shape {
    let under = &graph[under];
    let behind = under.stripe_offset.wrapping_add(offset);
    Shape {
        media_size: length,
        sector_size: under.sector_size,
        stripe_size: under.stripe_size,
        stripe_offset: if under.stripe_size > 0 { behind % under.stripe_size } else { 0 },
    }
}

/// Performs a zone command on the provider below, if this provider is all of it, sector by sector:
/// a part of a disk has no zones of its own.
///
/// # Errors
/// [`block::Error::Unsupported`] for a part of a disk; those of the request.
pub fn pass_zone(
    graph: &mut Graph,
    provider: ProviderId,
    command: Zone,
) -> Result<ZoneAnswer, block::Error> {
    let geom = graph[provider].geom;
    let consumer = graph[geom].consumers.first().copied().ok_or(block::Error::Gone)?;
    let (above, under) =
        (&graph[provider], &graph[graph[consumer].provider.ok_or(block::Error::Gone)?]);
    let of = |sizes: &Provider| (sizes.media_size, sizes.sector_size);
    match of(above) == of(under) {
        true => graph.zone(consumer, command),
        false => Err(block::Error::Unsupported),
    }
}

/// Removes a geom that is not in use.
///
/// # Errors
/// If one of its providers is open, unless `force`.
pub fn destroy(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), Error> {
    let open = |&&provider: &&ProviderId| graph[provider].access != Access::NONE;
    if let (false, Some(&open)) = (force, graph[geom].providers.iter().find(open)) {
        let cause = format!("is open ({}); close it first", graph[open].access);
        return Err(Error::new(crate::Kind::Busy, &graph[open].name, cause));
    }
    graph.wither_geom(geom, block::Error::Gone);
    graph.settle();
    Ok(())
}

/// Writes `fill` to the last sector of a provider, with exclusive access, and lets all classes
/// taste it again.
///
/// # Errors
/// If it cannot be written.
pub fn write_last(
    graph: &mut Graph,
    provider: ProviderId,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), Error> {
    let mut sector = vec![0; graph[provider].sector_size as usize];
    fill(&mut sector);
    let offset = graph[provider].last_sector();
    let name = graph[provider].name.clone();
    let consumer = graph.open(provider, Access::ALONE)?;
    let written = graph
        .io(consumer, Io::Write { offset, from: &sector })
        .and_then(|()| graph.io(consumer, Io::Flush));
    graph.shut(consumer);
    written.map_err(|error| Error::io(name, error))
}

/// Overwrites the last sector with zeros, if it holds metadata of `class`.
///
/// # Errors
/// If it does not hold such metadata, or cannot be written.
pub fn clear(graph: &mut Graph, class: &str, provider: ProviderId) -> Result<(), Error> {
    let sector = graph.peek_last(provider)?;
    if flysch_wire::geom::class_of_magic(&sector) != Some(class) {
        let cause = format!("there is no metadata of {class} in its last sector");
        return Err(Error::new(crate::Kind::NotFound, &graph[provider].name, cause));
    }
    write_last(graph, provider, |_| {})?;
    graph.settle();
    Ok(())
}
