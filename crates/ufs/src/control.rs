//! The state of the control plane: the channel, and the objects whose procedures run over it.

use crate::board::Board;
use crate::channel::Channel;
use crate::facts::{Device, Facts};
use crate::keys::CryptoEngine;
use crate::layout::Layout;
use crate::link::Link;
use crate::management::Peer;
use crate::queues::Queues;
use crate::shared::Shared;
use alloc::sync::Arc;
use flysch_api::machine::Machine;

/// Everything of a controller that there is one of.
#[derive(Debug)]
pub(crate) struct Core<M: Machine> {
    pub(crate) peer: Peer<M>,
    pub(crate) board: Board,
    pub(crate) link: Link,
    pub(crate) crypto: Option<CryptoEngine>,
    /// The controller is on and its queues are.
    pub(crate) running: bool,
    /// A suspend has put the device to sleep: whoever wakes the link wakes it too.
    pub(crate) asleep: bool,
}

impl<M: Machine> Core<M> {
    pub(crate) fn new(machine: M, layout: Layout, shared: Arc<Shared>, facts: Facts) -> Self {
        Self {
            crypto: CryptoEngine::read(&machine, facts.cap),
            peer: Peer {
                queues: Queues::new(facts.shape, facts.mcq_cap),
                channel: Channel::new(machine, layout, shared, facts),
                device: Device::default(),
            },
            board: Board::default(),
            link: Link::default(),
            running: false,
            asleep: false,
        }
    }

    /// What it was made of.
    pub(crate) fn facts(&self) -> Facts {
        let Channel { version, cap, quirks, .. } = self.peer.channel;
        let Queues { mcq_cap, shape, .. } = self.peer.queues;
        Facts { options: self.peer.channel.options.clone(), version, cap, mcq_cap, quirks, shape }
    }
}
