//! A lane of a provider, and the way through the graph that its requests go.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flysch_api::block::{self, BlockDevice, BlockGeometry, Completion, Refused, Request};
use flysch_api::machine::{DmaRegion, Instant};
use flysch_geom::{Incident, Plan, Way};
use flysch_rig::rig::DiskLane;

use super::owner::Owner;

/// Why lanes must change their ways.
#[derive(Debug, Default)]
pub(super) struct Signal {
    /// All lanes stop so that the graph can change.
    is_changing: Cell<bool>,
    /// How often that happened.
    epoch: Cell<u32>,
}

/// A lane of a provider.
pub(crate) struct Lane {
    way: Way<DiskLane>,
    number: usize,
    owner: Rc<RefCell<Owner>>,
    signal: Rc<Signal>,
    /// Checked by a lane with every poll: raised when ways must change, and by clients that query
    /// counters.
    turn: Arc<AtomicU32>,
    /// Its value when everything had been handled.
    seen: u32,
    /// Its value when counters were last published.
    shown: u32,
    epoch: u32,
    /// When something is to be done beside requests.
    due: Instant,
    /// When a waiting user wakes for such work: not for a check.
    wakes_at: Instant,
    /// The owner knows that nothing is in flight here.
    is_told: bool,
    /// There is no way any longer.
    is_dead: bool,
}

impl Lane {
    /// The lane with the number that its owner knows it by.
    pub(super) fn new(
        way: Way<DiskLane>,
        (number, owner): (usize, Rc<RefCell<Owner>>),
        signal: Rc<Signal>,
        turn: Arc<AtomicU32>,
    ) -> Self {
        Self {
            way,
            number,
            owner,
            signal,
            turn,
            seen: 0,
            shown: 0,
            epoch: 0,
            due: Instant::NEVER,
            wakes_at: Instant::NEVER,
            is_told: false,
            is_dead: false,
        }
    }

    /// Waits for what its owner does next beside requests.
    pub(super) fn wait_for(&mut self, owner: &Owner) {
        (self.due, self.wakes_at) = (owner.next(), owner.wakes_at());
    }

    /// From now on clients raise `turn`; `before` is what they have raised it to so far, less one.
    pub(super) fn listen(&mut self, turn: &Arc<AtomicU32>, before: u32) {
        self.turn = Arc::clone(turn);
        (self.seen, self.shown) = (before, before);
    }

    /// The plan of its way, with what was counted until `now`.
    pub(super) fn plan(&mut self, now: Instant) -> &Plan {
        self.way.plan(now)
    }

    /// Whether nothing is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.way.is_quiet()
    }

    /// Ends, with what was counted.
    pub(super) fn into_plan(self) -> Plan {
        self.way.into_parts().0
    }

    #[cold]
    fn tell(&mut self, incident: Incident) {
        let owner = &mut *self.owner.borrow_mut();
        match incident {
            Incident::Lost { consumer, error } => {
                let name = owner.name_under(consumer).unwrap_or_else(|| "a component".into());
                owner.dropped.push(format!("{name}: {error}"));
                owner.lost.push((consumer, error));
                self.signal.is_changing.set(true);
                self.turn.fetch_add(1, Ordering::Relaxed);
            }
            Incident::Mended { .. } => owner.mended += 1,
        }
    }

    /// One step towards another way.
    #[cold]
    fn change(&mut self, now: Instant) {
        if self.signal.is_changing.get() {
            self.way.pause();
            let owner = &mut *self.owner.borrow_mut();
            if !self.is_told && self.way.is_quiet() {
                self.is_told = true;
                owner.quiet += 1;
            }
            if owner.quiet < owner.ways {
                return;
            }
            owner.change(now);
            self.signal.is_changing.set(false);
            self.signal.epoch.set(self.signal.epoch.get().wrapping_add(1));
        }
        let owner = &mut *self.owner.borrow_mut();
        let (plan, number) = (owner.plan.clone(), self.number);
        match self.way.change(plan, |disk| owner.lane(disk, number)) {
            Ok((old, _)) => {
                old.account(&mut owner.session.graph);
                owner.layers.add(&old);
                // The graph knows it now.
                owner.told.get_mut(number).into_iter().for_each(|(_, usage)| usage.clear());
            }
            Err(_) => self.is_dead = true,
        }
        self.is_dead |= owner.is_dead;
        (self.due, self.wakes_at) = (owner.next(), owner.wakes_at());
        (self.is_told, self.epoch) = (false, self.signal.epoch.get());
    }

    /// Something is due, unless another lane has handled it.
    #[cold]
    fn happen(&mut self, now: Instant) {
        let owner = &mut *self.owner.borrow_mut();
        // All: what happens now may be told only later.
        if owner.happen(now) | owner.must_look(now) | owner.must_rebuild(now) {
            self.signal.is_changing.set(true);
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        // While something is to be done the next one waits.
        (self.due, self.wakes_at) = match owner.due.is_empty() && !owner.is_piece_due {
            true => (owner.next(), owner.wakes_at()),
            false => (Instant::NEVER, Instant::NEVER),
        };
    }

    /// The number was raised: ways change, or counters are queried.
    #[cold]
    fn see(&mut self, now: Instant) {
        let turn = self.turn.load(Ordering::Relaxed);
        if self.must_change() {
            self.change(now);
        }
        if self.shown != turn {
            self.shown = turn;
            self.owner.borrow_mut().show(self.number, (turn, now), self.way.plan(now));
        }
        if !self.must_change() {
            self.seen = turn;
        }
    }

    fn must_change(&self) -> bool {
        self.signal.is_changing.get() || self.signal.epoch.get() != self.epoch
    }
}

impl BlockDevice for Lane {
    fn geometry(&self) -> &BlockGeometry {
        self.way.geometry()
    }

    fn memory(&self) -> &DmaRegion {
        self.way.memory()
    }

    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        if self.is_dead {
            return Err(Refused::Invalid(block::BlockError::Gone));
        }
        self.way.submit(request, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.way.ring(now);
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        let completion = self.way.poll(now);
        while let Some(incident) = self.way.incident() {
            self.tell(incident);
        }
        if now >= self.due {
            self.happen(now);
        }
        if self.turn.load(Ordering::Relaxed) == self.seen {
            return completion;
        }
        self.see(now);
        completion.or_else(|| self.way.poll(now))
    }

    fn poll_at(&self) -> Option<Instant> {
        // What is under way needs time to pass.
        let is_asked = self.signal.is_changing.get() && !self.is_told && self.way.is_quiet();
        if is_asked || self.signal.epoch.get() != self.epoch {
            return Some(Instant::START);
        }
        let due = (self.wakes_at != Instant::NEVER).then_some(self.wakes_at);
        [due, self.way.poll_at()].into_iter().flatten().min()
    }
}
