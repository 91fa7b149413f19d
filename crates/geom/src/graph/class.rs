//! What a class is: the contract between the graph and its classes.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::block;

use super::Graph;
use crate::access::Access;
use crate::error::GeomError;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::Taste;
use crate::route::Route;
use crate::zone::{Zone, ZoneAnswer};

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
    Failed(ConsumerId, block::BlockError),
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
    ) -> Result<(), block::BlockError>;

    /// Performs a zone command on a provider of this class, in its sectors; access and range have
    /// been checked. By default there are no zones; [`pass_zone`](crate::class::pass_zone) asks the
    /// provider below.
    ///
    /// # Errors
    /// [`block::BlockError::Unsupported`]; those of the request.
    fn zone(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        command: Zone,
    ) -> Result<ZoneAnswer, block::BlockError> {
        let _ = (graph, provider, command);
        Err(block::BlockError::Unsupported)
    }

    /// Where queued requests to a provider of this class go; `None` if it handles them one at a
    /// time. `writes` means that some are changes: providers below that must know of these in
    /// advance are told.
    ///
    /// # Errors
    /// If there is no way at present.
    fn route(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        writes: bool,
    ) -> Result<Option<Route>, GeomError> {
        let _ = (graph, provider, writes);
        Ok(None)
    }
}

/// A transformation of disks.
///
/// A class has no state of its own: what it knows about a geom is the geom's state
/// ([`Graph::set_state`]). The default methods suit most classes, which have one consumer and pass
/// requests on.
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
    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        pass_access(graph, provider, change)
    }

    /// Something happened below; returns whether the geom survives it, or whether anything has
    /// changed. By default a geom is removed when its provider is gone or was written.
    fn told(&self, graph: &mut Graph, news: News) -> bool {
        match news {
            News::Orphaned(consumer) | News::Spoiled(consumer) => {
                wither_with(graph, consumer);
                true
            }
            News::Resized(_) | News::Failed(..) | News::Settled => false,
        }
    }

    /// An attribute of a provider; by default that of the provider below.
    fn attribute(&self, graph: &Graph, provider: ProviderId, name: &str) -> Option<Value> {
        graph.attribute(graph.objects.under(graph[provider].geom)?, name)
    }

    /// What to report of an object of this class.
    fn config(&self, graph: &Graph, object: Object) -> Config {
        let _ = (graph, object);
        Vec::new()
    }
}

/// Opens or closes the provider below along with the provider.
///
/// # Errors
/// As [`Graph::access`].
pub fn pass_access(
    graph: &mut Graph,
    provider: ProviderId,
    change: Access,
) -> Result<(), GeomError> {
    let geom = graph[provider].geom;
    match graph[geom].consumers.first().copied() {
        Some(consumer) if graph[consumer].provider.is_some() => graph.access(consumer, change),
        _ if change.opens() => Err(GeomError::io(&graph[provider].name, block::BlockError::Gone)),
        _ => Ok(()),
    }
}

/// Closes `consumer`, detaches it and lets its geom wither: for classes that cannot do without it.
pub fn wither_with(graph: &mut Graph, consumer: ConsumerId) {
    let geom = graph[consumer].geom;
    graph.wither_geom(geom, block::BlockError::Gone);
    graph.settle_orphans();
    if graph.objects.consumer(consumer).is_some() {
        graph.drop_consumer(consumer);
    }
}
