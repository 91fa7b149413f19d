//! A provider of a rig as a disk with lanes: for workloads, copies, exports.
//!
//! Each lane has its own way through the graph. When a component drops out, all lanes stop
//! accepting requests until none is in flight; then the graph is informed and records the loss, and
//! all lanes continue by new ways. This happens in `poll`, so the user of the lanes need not know
//! about it.

mod lane;
mod owner;
mod shape;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flysch_api::block::BlockDevice;
use flysch_api::machine::Clock;
use flysch_bench::results::{self, Layer};
use flysch_geom::{Access, Plan, ProviderId, Way};
use flysch_rig::Needs;
use flysch_rig::rig::{RigClock, RigFile};

use super::counters::Watched;
use super::rebuild::Beside;
use super::rig;
use super::session::Session;
use crate::failure::Failure;
use lane::{Lane, Signal};
use owner::Owner;
use shape::describe;

/// A provider of a rig.
pub(crate) struct Provided {
    pub(super) lanes: Vec<Lane>,
    pub(super) clock: RigClock,
    owner: Rc<RefCell<Owner>>,
    pub(super) description: String,
}

impl Provided {
    pub(super) fn open(file: &RigFile, name: &str, needs: &Needs) -> Result<Self, Failure> {
        let events = rig::events(file)?;
        let mut session = Session::open_lanes(file, needs)?;
        rig::make(&mut session, file)?;
        session.beside = Beside::WithRate;
        if name.is_empty() {
            let all: Vec<&str> =
                session.graph.objects().providers().map(|(_, it)| &it.name[..]).take(24).collect();
            let (path, all) = (file.path.display(), all.join(", "));
            let text = format!("{path}: name a provider, as `{path}:NAME`; there are {all}");
            return Err(Failure::usage(text));
        }
        let provider = session.provider(name)?;
        let description = describe(&session, provider);
        let opened = session.graph.open(provider, Access::ALONE);
        let consumer = opened.map_err(|error| session.failure(error))?;
        session.graph.settle();
        let plan =
            Plan::new(&mut session.graph, consumer).map_err(|error| session.failure(error))?;
        let clock = session.rigs[0].clock().cloned().expect("a rig with lanes has a clock");
        let of_disk = |disk: &ProviderId| session.lanes.get(disk).map_or(0, Vec::len);
        let count = plan.disks().iter().map(of_disk).min().unwrap_or(0);
        check_memory(&session, &plan)?;
        let owner = Owner::new(session, (consumer, plan.clone()), events, count.max(1));
        let mut ways = Vec::new();
        for number in 0..count.max(1) {
            let way = Way::new(plan.clone(), |disk| owner.lane(disk, number));
            ways.push(way.map_err(|error| owner.session.failure(error))?);
        }
        let (owner, signal) = (Rc::new(RefCell::new(owner)), Rc::new(Signal::default()));
        let turn = Arc::new(AtomicU32::new(0));
        let lane = |(number, way)| {
            let owner = (number, Rc::clone(&owner));
            Lane::new(way, owner, Rc::clone(&signal), Arc::clone(&turn))
        };
        let lanes = ways.into_iter().enumerate().map(lane).collect();
        Ok(Self { lanes, clock, owner, description })
    }

    /// What the classes on the ways have done so far.
    pub(super) fn layers(&mut self) -> Vec<Layer> {
        let now = self.clock.now();
        let mut layers = self.owner.borrow().layers.clone();
        for lane in &mut self.lanes {
            layers.add(lane.plan(now));
        }
        layers.told()
    }

    /// Requests are about to start: from now on the time of events is counted, once.
    pub(super) fn begin(&mut self) {
        let owner = &mut *self.owner.borrow_mut();
        if owner.begin(self.clock.now()) {
            self.lanes.iter_mut().for_each(|lane| lane.wait_for(owner));
        }
    }

    /// Everything that has gone wrong so far.
    pub(super) fn incidents(&self) -> Vec<results::Incident> {
        self.owner.borrow().incidents()
    }

    /// Why the machine below could not do its work.
    pub(super) fn failure(&self) -> Option<String> {
        self.owner.borrow().session.rigs[0].failure()
    }

    /// The name of the rig's clock.
    pub(super) fn clock_name(&self) -> &'static str {
        self.owner.borrow().session.rigs[0].clock_name()
    }

    /// Keeps files that were created for the rig.
    pub(super) fn keep(&mut self) {
        self.owner.borrow_mut().session.keep();
    }

    /// From now on a client is told what goes through the providers.
    pub(super) fn watch(&mut self, watched: &Watched) {
        // What was asked before is told at once.
        let before = watched.turn.load(Ordering::Relaxed).wrapping_sub(1);
        self.lanes.iter_mut().for_each(|lane| lane.listen(&watched.turn, before));
        let lanes = self.lanes.len();
        self.owner.borrow_mut().watch(watched.told.clone(), before, lanes);
    }
}

impl Drop for Provided {
    /// Closes the provider: mirrors are marked clean.
    fn drop(&mut self) {
        let owner = &mut *self.owner.borrow_mut();
        if self.lanes.iter().all(Lane::is_quiet) {
            for lane in self.lanes.drain(..) {
                lane.into_plan().account(&mut owner.session.graph);
            }
            owner.session.graph.shut(owner.consumer);
            owner.session.graph.settle();
        }
    }
}

/// All lanes of a way must share one memory; QEMU and PCI functions have their own.
fn check_memory(session: &Session, plan: &Plan) -> Result<(), Failure> {
    let memory = |disk: &ProviderId| {
        let lane = session.lanes.get(disk)?.first()?;
        let memory = lane.memory();
        Some((memory.address(), memory.len()))
    };
    let is_modelled = matches!(session.rigs[0].clock(), Some(RigClock::Models(_)));
    let strange = |disk: &&ProviderId| {
        let lane = session.lanes.get(disk).and_then(|lanes| lanes.first());
        lane.is_some_and(|lane| is_modelled && !lane.is_timeless())
    };
    if let Some(&disk) = plan.disks().iter().find(strange) {
        return Err(Failure::failed(format!(
            "{}: runs in this machine's time, but other disks of the rig are models in a time of \
             their own; give it a controller",
            session.graph[disk].name
        )));
    }
    let Some(first) = plan.disks().first() else { return Ok(()) };
    match plan.disks().iter().find(|disk| memory(disk) != memory(first)) {
        None => Ok(()),
        Some(&other) => {
            let (one, other) = (&session.graph[*first].name, &session.graph[other].name);
            Err(Failure::failed(format!(
                "{other}: has memory of its own, and so has {one}: only models, files and `null` \
                 can be used together"
            )))
        }
    }
}
