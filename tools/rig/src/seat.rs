//! What a stack shares with others: a place in their memory, and their clock.

use std::rc::Rc;

use flysch_api::machine::{DmaRegion, Identity};
use flysch_models::machine::{Inline, Mode, Model, Timeline};
use flysch_models::store::{FileStore, Store};

use crate::lane::{MEMORY_ADDRESS, MemoryPlan};

/// A disk of a controller that has several: a logical unit, a namespace, a device at a port.
#[derive(Debug)]
pub(crate) struct Unit {
    /// Bytes.
    pub(crate) size: u64,
    /// Where its data is stored; `None` is memory.
    pub(crate) store: Option<FileStore>,
    /// Its serial number, if each disk has its own.
    pub(crate) serial: String,
}

impl Unit {
    /// Where a model stores the data.
    pub(crate) fn store(&mut self) -> Option<Store> {
        self.store.take().map(Store::File)
    }
}

/// How a modelled stack is opened.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// The disks, if there are more than the one named by the target.
    pub(crate) units: Vec<Unit>,
    /// What it shares with other stacks.
    pub(crate) shared: Option<Shared>,
}

/// What stacks share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// All memory; the requests' part comes first.
    pub(crate) memory: DmaRegion,
    /// Where this stack's own part begins.
    pub(crate) own: usize,
    pub(crate) timeline: Rc<Timeline>,
}

impl Seat {
    /// The number of disks.
    pub(crate) fn disks(&self) -> usize {
        self.units.len().max(1)
    }

    /// The memory of a stack with this `plan`, and the locations of its parts.
    pub(crate) fn memory(&self, plan: MemoryPlan) -> (DmaRegion, MemoryPlan) {
        match &self.shared {
            None => (DmaRegion::zeroed(plan.total(), MEMORY_ADDRESS), plan),
            Some(shared) => (shared.memory.clone(), plan.from(shared.own)),
        }
    }

    /// The machine around `model`.
    pub(crate) fn machine<M: Model + 'static>(
        &self,
        model: M,
        memory: DmaRegion,
        identity: Identity,
        mode: Mode,
    ) -> Inline<M> {
        match &self.shared {
            None => Inline::new(model, memory, identity, mode),
            Some(shared) => Inline::on(model, memory, identity, &shared.timeline),
        }
    }
}
