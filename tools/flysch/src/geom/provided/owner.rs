//! The graph of a rig while requests run, and what is done to it between them.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;

use flysch_api::block;
use flysch_api::machine::Instant;
use flysch_bench::results;
use flysch_geom::{ConsumerId, Plan, ProviderId, Usage};
use flysch_rig::rig::DiskLane;

use crate::geom::counters::Told;
use crate::geom::layers::Layers;
use crate::geom::rebuild::Rebuild;
use crate::geom::rig::Timed;
use crate::geom::session::Session;
use crate::geom::stats::snapshot_of_ways;
use crate::geom::{Action, act, plug};
use crate::output::Output;

/// Interval at which disks are checked for reported events, nanoseconds of the rig's time.
const LOOK_NANOS: u64 = 100_000_000;

/// The graph, and what its lanes report to it.
pub(super) struct Owner {
    pub(super) session: Session,
    pub(super) consumer: ConsumerId,
    /// The newest way.
    pub(super) plan: Plan,
    /// Components that dropped out and of which the graph has not been informed.
    pub(super) lost: Vec<(ConsumerId, block::BlockError)>,
    /// What dropped out, in words.
    pub(super) dropped: Vec<String>,
    /// Places that were repaired.
    pub(super) mended: u64,
    /// Ways with nothing in flight, while they change.
    pub(super) quiet: usize,
    pub(super) ways: usize,
    /// What each lane last published about its way, and for which number; nothing for a way that
    /// has changed.
    pub(super) told: Vec<(u32, Vec<Usage>)>,
    /// The client that waits until all have published.
    watcher: Option<Sender<Told>>,
    /// Pending events, and since when their time is counted.
    events: VecDeque<Timed>,
    begun: Instant,
    /// When disks are next checked for reported events.
    look_at: Instant,
    /// What happens when nothing is in flight.
    pub(super) due: Vec<Timed>,
    /// Rebuilds that run beside requests, and whether a piece of one is to be copied next.
    rebuilds: Vec<Rebuild>,
    pub(super) is_piece_due: bool,
    /// The provider is gone.
    pub(super) is_dead: bool,
    /// What former ways did.
    pub(super) layers: Layers,
}

impl Owner {
    /// The owner of what `consumer` has opened, with so many ways by `plan`.
    pub(super) fn new(
        session: Session,
        (consumer, plan): (ConsumerId, Plan),
        events: Vec<Timed>,
        ways: usize,
    ) -> Self {
        let mut layers = Layers::default();
        layers.know(&session.graph, &plan);
        Self {
            session,
            consumer,
            plan,
            lost: Vec::new(),
            dropped: Vec::new(),
            mended: 0,
            quiet: 0,
            ways,
            told: Vec::new(),
            watcher: None,
            events: events.into(),
            begun: Instant::START,
            look_at: Instant::NEVER,
            due: Vec::new(),
            rebuilds: Vec::new(),
            is_piece_due: false,
            is_dead: false,
            layers,
        }
    }

    /// Requests start now: from now on the time of events is counted, once. Whether it was not yet.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let begins = self.begun == Instant::START;
        if begins {
            self.begun = now;
            self.look_at = now.after_nanos(LOOK_NANOS);
        }
        begins
    }

    /// From now on `watcher` is told what goes through the providers, whenever so many lanes have
    /// published it; `before` is the number of what was asked last.
    pub(super) fn watch(&mut self, watcher: Sender<Told>, before: u32, lanes: usize) {
        self.told = vec![(before, Vec::new()); lanes];
        self.watcher = Some(watcher);
    }

    pub(super) fn lane(&self, disk: ProviderId, number: usize) -> Option<DiskLane> {
        self.session.lanes.get(&disk)?.get(number).cloned()
    }

    /// Nothing is in flight: the graph is informed, pending events are executed, and the ways are
    /// replaced.
    pub(super) fn change(&mut self, now: Instant) {
        for (consumer, error) in std::mem::take(&mut self.lost) {
            if let (block::BlockError::Gone, Some(name)) = (error, self.name_under(consumer)) {
                self.session.gone.borrow_mut().push(name);
            }
            self.session.graph.failed(consumer, error);
        }
        self.session.graph.settle();
        self.session.now = nanos(now);
        for Timed { place, action, .. } in self.due.drain(..) {
            let (mut output, _) = Output::kept(false);
            let done = match &action {
                Action::Disk(plug::Verb::Detach { name, .. }) => {
                    self.session.rescan(Some(name)).map(drop)
                }
                _ => act(&mut self.session, &action, &mut output),
            };
            if let Err(error) = done {
                self.dropped.push(format!("{place}: {error}"));
            }
        }
        self.rebuild(now);
        let found = self.session.look();
        self.dropped.extend(found.into_iter().map(|disk| format!("{disk}: found")));
        match Plan::new(&mut self.session.graph, self.consumer) {
            Ok(plan) => {
                self.layers.know(&self.session.graph, &plan);
                self.plan = plan;
            }
            // The ways stay what they are, for what is to be given back still.
            Err(_) => self.is_dead = true,
        }
        self.quiet = 0;
    }

    /// Copies a piece of each rebuild that is due.
    fn rebuild(&mut self, now: Instant) {
        self.is_piece_due = false;
        self.rebuilds.append(&mut self.session.rebuilds);
        let (graph, dropped) = (&mut self.session.graph, &mut self.dropped);
        self.rebuilds.retain_mut(|rebuild| {
            if rebuild.due() > nanos(now) {
                return true;
            }
            match rebuild.step(graph) {
                Ok(true) => return true,
                Ok(false) => dropped.push(rebuild.said()),
                Err(error) => dropped.push(error.to_string()),
            }
            false
        });
    }

    /// When the next piece of a rebuild is due.
    fn next_piece(&self) -> Instant {
        let due = self.rebuilds.iter().map(Rebuild::due).min();
        due.map_or(Instant::NEVER, |due| Instant::START.after_nanos(due))
    }

    /// Whether a piece of a rebuild is to be copied; returned once.
    pub(super) fn must_rebuild(&mut self, now: Instant) -> bool {
        let was_due = self.is_piece_due;
        self.is_piece_due |= now >= self.next_piece();
        self.is_piece_due && !was_due
    }

    /// The name of a consumer's provider.
    pub(super) fn name_under(&self, consumer: ConsumerId) -> Option<String> {
        let graph = &self.session.graph;
        let provider = graph.objects().consumer(consumer)?.provider?;
        graph.objects().provider(provider).map(|there| there.name.clone())
    }

    /// When the next event is.
    fn next_event(&self) -> Instant {
        let next = self.events.front();
        next.map_or(Instant::NEVER, |event| self.begun.after_nanos(event.at))
    }

    /// When idle lanes wake: for the next event, or piece of a rebuild.
    pub(super) fn wakes_at(&self) -> Instant {
        self.next_event().min(self.next_piece())
    }

    /// When something is to be done beside requests: that, or a check of events reported by disks.
    pub(super) fn next(&self) -> Instant {
        self.wakes_at().min(self.look_at)
    }

    /// Whether disks have reported anything, checked from time to time.
    pub(super) fn must_look(&mut self, now: Instant) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now.after_nanos(LOOK_NANOS);
        self.session.has_news()
    }

    /// Executes what is due now: disks are pulled out at once, whatever is in flight; everything
    /// else waits until nothing is, and so does whatever is due after it. Returns whether anything
    /// waits.
    pub(super) fn happen(&mut self, now: Instant) -> bool {
        let at = self.events.front().filter(|_| self.due.is_empty() && now >= self.next_event());
        let Some(at) = at.map(|event| event.at) else { return false };
        while self.events.front().is_some_and(|event| event.at == at)
            && let Some(event) = self.events.pop_front()
        {
            if let Action::Disk(plug::Verb::Detach { away, name }) = &event.action
                && let Err(error) = self.session.pull(name, *away)
            {
                self.dropped.push(format!("{}: {error}", event.place));
                continue;
            }
            self.due.push(event);
        }
        !self.due.is_empty()
    }

    /// A lane publishes what went its way.
    pub(super) fn show(&mut self, number: usize, (turn, now): (u32, Instant), plan: &Plan) {
        let (Some(watcher), Some(told)) = (&self.watcher, self.told.get_mut(number)) else {
            return;
        };
        *told = (turn, plan.usage().collect());
        if self.told.iter().all(|(of, _)| *of == turn) {
            let lanes: Vec<&[Usage]> = self.told.iter().map(|(_, usage)| &usage[..]).collect();
            let snapshot = snapshot_of_ways(&self.session.graph, now, &lanes);
            // Who is gone needs no answer.
            let _ = watcher.send((turn, snapshot));
        }
    }

    pub(super) fn incidents(&self) -> Vec<results::Incident> {
        let mut all = self.session.rigs[0].incidents();
        let geom = |what: String, count| results::Incident { source: "geom".into(), what, count };
        let mut told: Vec<(&String, u64)> = Vec::new();
        for what in &self.dropped {
            match told.iter_mut().find(|(known, _)| *known == what) {
                Some((_, count)) => *count += 1,
                None => told.push((what, 1)),
            }
        }
        all.extend(told.into_iter().map(|(what, count)| geom(what.clone(), count)));
        all.push(geom("mended".into(), self.mended));
        all
    }
}

/// The rig's time, as rebuilds count it.
fn nanos(now: Instant) -> u64 {
    now.nanos_since(Instant::START)
}
