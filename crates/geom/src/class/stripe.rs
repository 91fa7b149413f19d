//! STRIPE: components used in turn (RAID 0).

use alloc::string::ToString;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::stripe as wire;

use super::array::{self, Layout, Part, Place};
use super::{Class, Config, News, Object, Requests, pass_access_alone};
use crate::access::Access;
use crate::error::GeomError;
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{GeomId, ProviderId};
use crate::record::Taste;
use crate::route::Route;

pub use super::array::place;

/// The type of the class.
#[derive(Debug)]
pub struct Stripe;

/// The class, to be registered with a graph.
pub static STRIPE: Stripe = Stripe;

/// Default stripe size, bytes.
pub const STRIPE_SIZE: u32 = 65536;

/// The parameters of `label` and `create`.
#[derive(Clone, Copy, Debug)]
pub struct StripeOptions {
    /// Stripe size in bytes, a power of two.
    pub stripe_size: u32,
    /// The names of the providers are recorded, and no others are accepted.
    pub hardcode: bool,
    /// Metadata of other classes is overwritten.
    pub force: bool,
}

impl Default for StripeOptions {
    fn default() -> Self {
        Self { stripe_size: STRIPE_SIZE, hardcode: false, force: false }
    }
}

fn check(
    graph: &Graph,
    name: &str,
    under: &[ProviderId],
    options: &StripeOptions,
) -> Result<Name<16>, GeomError> {
    array::check(graph, name, under)?;
    let sector = under.iter().map(|&provider| graph[provider].sector_size).max().unwrap_or(512);
    if !options.stripe_size.is_power_of_two() || options.stripe_size < sector {
        return Err(GeomError::invalid(
            name,
            "the stripe size is not a power of two, or below a sector",
        ));
    }
    Name::new(name).ok_or_else(|| GeomError::invalid(name, "a name must have 1 to 15 bytes"))
}

/// Writes metadata to the providers: the stripe exists from now on (`gstripe label`).
///
/// # Errors
/// The error names the obstacle.
pub fn label(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    options: &StripeOptions,
) -> Result<(), GeomError> {
    let name = check(graph, name, under, options)?;
    let id = graph.random() as u32;
    let overrides = (options.hardcode, options.force);
    array::label(graph, &STRIPE, under, overrides, |place, sector| {
        let Place { number, all, provider, provider_size } = *place;
        let metadata = wire::Stripe {
            name,
            id,
            number,
            all,
            stripe_size: options.stripe_size,
            provider,
            provider_size,
        };
        metadata.emit(sector);
    })
}

/// Joins the providers without writing anything (`gstripe create`).
///
/// # Errors
/// If the providers cannot be used together, or if the stripe size is invalid.
pub fn create(
    graph: &mut Graph,
    name: &str,
    under: &[ProviderId],
    options: &StripeOptions,
) -> Result<(), GeomError> {
    check(graph, name, under, options)?;
    let part = Part {
        name: name.to_string(),
        id: graph.random() as u32,
        number: 0,
        all: under.len() as u16,
        layout: Layout::Stripe(u64::from(options.stripe_size)),
        automatic: false,
    };
    array::create(graph, &STRIPE, under, part)
}

/// Removes a stripe; its metadata stays (`gstripe stop`).
///
/// # Errors
/// If it is open, unless `force`.
pub fn stop(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    super::destroy(graph, geom, force)
}

impl Class for Stripe {
    fn name(&self) -> &'static str {
        "STRIPE"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let there = (&wire::MAGIC[..], wire::LEN);
        let metadata = match array::read(graph, &STRIPE, provider, there, wire::Stripe::parse) {
            Ok(metadata) => metadata,
            Err(taste) => return taste,
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

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        pass_access_alone(graph, provider, change)
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        array::told(graph, news)
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        array::config(graph, object)
    }
}

impl Requests for Stripe {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        array::start(graph, provider, io)
    }

    fn route(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        _: bool,
    ) -> Result<Option<Route>, GeomError> {
        Ok(array::route(graph, provider))
    }
}
