//! The classes, one file each, and their common code.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use flysch_api::block;

use crate::access::Access;
use crate::error::GeomError;
use crate::graph::Graph;
use crate::io::{Io, Shape};
use crate::object::{GeomId, Provider, ProviderId};
use crate::route::Route;
use crate::zone::{Zone, ZoneAnswer};

mod array;
pub mod cache;
pub mod concat;
#[cfg(test)]
mod cuts;
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

pub use crate::graph::{
    Class, Config, DEV, News, Object, Requests, Value, pass_access, wither_with,
};

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

/// As [`pass_access`] for all consumers, with one more exclusive count from the first open to the
/// last close: nobody else writes to the providers below.
///
/// # Errors
/// As [`Graph::access`]; nothing stays open that was not open before.
pub fn pass_access_alone(
    graph: &mut Graph,
    provider: ProviderId,
    change: Access,
) -> Result<(), GeomError> {
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
) -> Result<(), block::BlockError> {
    let geom = graph[provider].geom;
    let consumer = graph[geom].consumers.first().copied().ok_or(block::BlockError::Gone)?;
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
) -> Result<(GeomId, ProviderId), GeomError> {
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

/// Performs a zone command on the provider below, if this provider covers all of it, sector by
/// sector: a part of a disk has no zones of its own.
///
/// # Errors
/// [`block::BlockError::Unsupported`] for a part of a disk; those of the request.
pub fn pass_zone(
    graph: &mut Graph,
    provider: ProviderId,
    command: Zone,
) -> Result<ZoneAnswer, block::BlockError> {
    let geom = graph[provider].geom;
    let consumer = graph[geom].consumers.first().copied().ok_or(block::BlockError::Gone)?;
    let (above, under) =
        (&graph[provider], &graph[graph[consumer].provider.ok_or(block::BlockError::Gone)?]);
    let of = |sizes: &Provider| (sizes.media_size, sizes.sector_size);
    match of(above) == of(under) {
        true => graph.zone(consumer, command),
        false => Err(block::BlockError::Unsupported),
    }
}

/// Removes a geom that is not in use.
///
/// # Errors
/// If one of its providers is open, unless `force`.
pub fn destroy(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    let open = |&&provider: &&ProviderId| graph[provider].access != Access::NONE;
    if let (false, Some(&open)) = (force, graph[geom].providers.iter().find(open)) {
        let cause = format!("is open ({}); close it first", graph[open].access);
        return Err(GeomError::new(crate::Kind::Busy, &graph[open].name, cause));
    }
    graph.wither_geom(geom, block::BlockError::Gone);
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
) -> Result<(), GeomError> {
    let mut sector = vec![0; graph[provider].sector_size as usize];
    fill(&mut sector);
    let offset = graph[provider].last_sector();
    let name = graph[provider].name.clone();
    let consumer = graph.open(provider, Access::ALONE)?;
    let written = graph
        .io(consumer, Io::Write { offset, from: &sector })
        .and_then(|()| graph.io(consumer, Io::Flush));
    graph.shut(consumer);
    written.map_err(|error| GeomError::io(name, error))
}

/// Overwrites the last sector with zeros, if it holds metadata of `class`.
///
/// # Errors
/// If it does not hold such metadata, or cannot be written.
pub fn clear(graph: &mut Graph, class: &str, provider: ProviderId) -> Result<(), GeomError> {
    let sector = graph.peek_last(provider)?;
    if flysch_wire::geom::class_of_magic(&sector) != Some(class) {
        let cause = format!("there is no metadata of {class} in its last sector");
        return Err(GeomError::new(crate::Kind::NotFound, &graph[provider].name, cause));
    }
    write_last(graph, provider, |_| {})?;
    graph.settle();
    Ok(())
}
