//! STRIPE: components in turns (RAID 0).

use alloc::string::ToString;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::stripe as wire;

use super::array::{self, Layout, Part};
use super::{Class, Config, News, Object, guard, pass_access_alone, write_last};
use crate::access::Access;
use crate::error::Error;
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{GeomId, ProviderId};
use crate::record::Taste;

pub use super::array::place;

/// The class.
#[derive(Debug)]
pub struct Stripe;

/// The class.
pub static STRIPE: Stripe = Stripe;

/// Bytes of a stripe where nobody says another number.
pub const STRIPE_SIZE: u32 = 65536;

/// What `label` and `create` can be told.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a stripe, a power of two.
    pub stripe_size: u32,
    /// The names of the providers are written down, and no others are taken.
    pub hardcode: bool,
    /// Metadata of others is written over.
    pub force: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { stripe_size: STRIPE_SIZE, hardcode: false, force: false }
    }
}

fn check(
    graph: &Graph,
    name: &str,
    under: &[ProviderId],
    options: &Options,
) -> Result<Name<16>, Error> {
    array::check(graph, name, under)?;
    let sector = under.iter().map(|&provider| graph[provider].sector_size).max().unwrap_or(512);
    if !options.stripe_size.is_power_of_two() || options.stripe_size < sector {
        return Err(Error::invalid(name, "the stripe size is no power of two, or below a sector"));
    }
    Name::new(name).ok_or_else(|| Error::invalid(name, "a name has 1 to 15 bytes"))
}

/// Writes metadata onto the providers: the stripe is there from now on (`gstripe label`).
///
/// # Errors
/// What is in the way.
pub fn label(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    options: &Options,
) -> Result<(), Error> {
    let wire_name = check(graph, name, under, options)?;
    let id = graph.random() as u32;
    for &provider in under {
        guard::in_use(graph, provider)?;
        if !options.force {
            guard::last_sector(graph, "STRIPE", provider)?;
        }
    }
    for (number, &provider) in under.iter().enumerate() {
        let there = &graph[provider];
        let metadata = wire::Stripe {
            name: wire_name,
            id,
            number: number as u16,
            all: under.len() as u16,
            stripe_size: options.stripe_size,
            provider: options.hardcode.then(|| Name::new(&there.name)).flatten(),
            provider_size: there.media_size,
        };
        write_last(graph, provider, |sector| metadata.emit(sector))?;
    }
    graph.settle();
    Ok(())
}

/// Joins the providers without writing anything (`gstripe create`).
///
/// # Errors
/// What cannot be.
pub fn create(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    options: &Options,
) -> Result<(), Error> {
    check(graph, name, under, options)?;
    let mut part = Part {
        name: name.to_string(),
        id: graph.random() as u32,
        number: 0,
        all: under.len() as u16,
        layout: Layout::Stripe(u64::from(options.stripe_size)),
        automatic: false,
    };
    for (number, &provider) in under.iter().enumerate() {
        guard::in_use(graph, provider)?;
        part.number = number as u16;
        array::join(graph, &STRIPE, provider, &part)?;
    }
    graph.settle();
    Ok(())
}

/// Removes a stripe; its metadata stays (`gstripe stop`).
///
/// # Errors
/// That it is open, unless `force`.
pub fn stop(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), Error> {
    super::destroy(graph, geom, force)
}

impl Class for Stripe {
    fn name(&self) -> &'static str {
        "STRIPE"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let metadata = match graph.peek_last(provider) {
            Ok(sector) => match wire::Stripe::parse(&sector) {
                Ok(metadata) => metadata,
                Err(_) if !sector.starts_with(&wire::MAGIC) => {
                    return Taste::passed("no label of STRIPE in the last sector");
                }
                Err(error) => {
                    let at = graph[provider].last_sector();
                    let text = alloc::format!("its label of STRIPE is not sound: {error}");
                    return Taste::refused(text, at, wire::LEN as u64);
                }
            },
            Err(error) => return Taste::passed(error.to_string()),
        };
        let part = Part {
            name: metadata.name.to_string(),
            id: metadata.id,
            number: metadata.number,
            all: metadata.all,
            layout: Layout::Stripe(u64::from(metadata.stripe_size)),
            automatic: true,
        };
        let only = metadata.provider.map(|name| name.to_string());
        array::taste(graph, &STRIPE, provider, (part, metadata.provider_size, only))
    }

    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::Error> {
        array::start(graph, provider, io)
    }

    fn access(&self, graph: &mut Graph, provider: ProviderId, change: Access) -> Result<(), Error> {
        pass_access_alone(graph, provider, change)
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        array::told(graph, news)
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        array::config(graph, object)
    }
}
