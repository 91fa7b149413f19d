//! DEV: who uses a provider from outside of the graph.

use flysch_api::block;

use super::Class;
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, ProviderId};

/// The class of consumers that [`Graph::open`] makes.
#[derive(Debug)]
pub struct Dev;

/// The class.
pub static DEV: Dev = Dev;

impl Class for Dev {
    fn name(&self) -> &'static str {
        "DEV"
    }

    fn start(&self, _: &mut Graph, _: ProviderId, _: Io<'_>) -> Result<(), block::Error> {
        unreachable!("DEV has no providers")
    }

    fn orphan(&self, graph: &mut Graph, consumer: ConsumerId) {
        // Requests of the user end with `Gone` from now on.
        graph.shut(consumer);
    }

    fn spoiled(&self, graph: &mut Graph, consumer: ConsumerId) {
        // Who reads from outside has tasted nothing.
        graph.consumer_mut(consumer).spoiled = false;
    }
}
