//! DEV: the users of a provider outside the graph.

use flysch_api::block;

use super::Graph;
use super::class::{Class, News, Requests};
use crate::io::Io;
use crate::object::ProviderId;

/// The class of consumers that [`Graph::open`] makes.
#[derive(Debug)]
pub struct Dev;

/// The class, to be registered with a graph.
pub static DEV: Dev = Dev;

impl Class for Dev {
    fn name(&self) -> &'static str {
        "DEV"
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        match news {
            // From now on, requests of the user end with `Gone`.
            News::Orphaned(consumer) => graph.shut(consumer),
            // An outside reader has tasted nothing.
            News::Spoiled(consumer) => graph.objects[consumer].spoiled = false,
            News::Resized(_) | News::Failed(..) | News::Settled => return false,
        }
        true
    }
}

impl Requests for Dev {
    fn start(&self, _: &mut Graph, _: ProviderId, _: Io<'_>) -> Result<(), block::BlockError> {
        unreachable!("DEV has no providers")
    }
}
