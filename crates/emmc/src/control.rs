//! The control plane: everything of a controller that there is one of.

use crate::card::Card;
use crate::channel::{Channel, Facts};
use crate::cmdq::TaskEngine;
use crate::device::CardFacts;
use crate::layout::Layout;
use crate::shared::Shared;
use crate::timing::Speed;
use alloc::sync::Arc;
use flysch_api::machine::Machine;

/// The objects whose procedures run over the one channel, which the card owns.
#[derive(Debug)]
pub(crate) struct Core<M: Machine> {
    pub(crate) card: Card<M>,
    pub(crate) speed: Speed,
    pub(crate) engine: TaskEngine,
    /// The result of the current errand.
    pub(crate) errand: Option<[u32; 2]>,
    /// The controller has been touched.
    pub(crate) touched: bool,
    /// The card sleeps.
    pub(crate) asleep: bool,
}

impl<M: Machine> Core<M> {
    pub(crate) fn new(machine: M, layout: Layout, shared: Arc<Shared>, facts: Facts) -> Self {
        Self {
            speed: Speed::new(facts.options.timing),
            card: Card {
                channel: Channel::new(machine, layout, shared, facts),
                device: CardFacts::default(),
            },
            engine: TaskEngine::default(),
            errand: None,
            touched: false,
            asleep: false,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.card.channel.shared
    }
}
