//! One lane: a queue pair or a slot range with everything its slots need. First comes the hot path,
//! then everything else: obeying the host, watching the clock, parking. On the hot path nothing is
//! allocated, locked or searched: a completion names its slot.

mod management;
mod start;

use crate::descriptors::{Descriptors, SEGMENTS, Trouble};
use crate::facts::Facts;
use crate::host_watch::HostWatch;
use crate::interrupts::{self, LaneInterrupts};
use crate::layout::Layout;
use crate::queue::{Mcq, Queue, Sdq};
use crate::quirks::{Quirk, Quirks};
use crate::shared::{LaneWord, Shared, order};
use crate::shares::Share;
use crate::slots::{Done, Management, Phase, Slot, SlotStack, Verdict};
use crate::time::MS;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use flysch_api::command::{Ended, Limits, Outcome, Token};
use flysch_api::data::{Data, Walk};
use flysch_api::machine::{DmaRegion, Instant, Machine};
use flysch_orders::Order;
use flysch_wire::ufs::registers::Interrupts;
use flysch_wire::ufs::utrd::Ocs;

/// One lane: a queue pair or slot range with everything its slots need.
#[derive(Debug)]
pub(crate) struct Lane<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) queue: Queue,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) free: SlotStack,
    /// If there are no more free slots than this, [`start`](Self::start) asks
    /// [`admit`](Self::admit); while the lane is parked, it always does.
    pub(crate) reserve: usize,
    pub(crate) wants_slot: bool,
    /// SDQ: the lane's slots that are stuck in the controller.
    pub(crate) dead: u32,
    /// Its share of the queue depth of device and units.
    share: Share,
    /// A command was declined because the lane may not run, and none has been accepted since.
    pub(crate) waits: bool,
    /// Whether a slot that is given back needs checks: some are dead or counted by unit.
    pub(crate) counts_slots: bool,
    /// Slots started since the last doorbell.
    started: SlotStack,
    /// Outcomes that this lane owes: of slots in any phase, and those in `ended`.
    pub(crate) in_flight: usize,
    /// Outcomes that are waiting to be fetched.
    pub(crate) ended: VecDeque<(Outcome, Trouble)>,
    /// Details of the last outcome, if it was not simply good.
    pub(crate) trouble: Trouble,
    /// When to check for errors and overdue commands next.
    pub(crate) watch_at: Instant,
    /// The interval between two such checks, as requested and as the interrupts allow, nanoseconds.
    pub(crate) watchdog: u64,
    pub(crate) watchdog_nanos: u64,
    host_watch: HostWatch,
    /// The last order that was obeyed.
    pub(crate) obeyed: Order,
    pub(crate) parked: bool,
    pub(crate) stopped: bool,
    /// How the lane learns of completions and errors.
    pub(crate) interrupts: LaneInterrupts,
    pub(crate) management: Option<Management>,
    descriptors: Descriptors,
    pub(crate) data: DmaRegion,
    pub(crate) limits: Limits,
    pub(crate) quirks: Quirks,
    /// Number of completions that made no sense.
    pub(crate) strange: u32,
}

/// Where a lane's next outcome comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// From a new batch of completions.
    Batch,
    /// From those that ended in another way.
    Ended,
    /// There is none now.
    Nothing,
}

impl<M: Machine> Lane<M> {
    pub(crate) fn word(&self) -> &LaneWord {
        &self.shared.lanes[self.index]
    }

    /// Rings one doorbell for everything started, as far as the host allows it. The host's orders
    /// are checked here and not for each command, because a command that is posted and not rung
    /// belongs to the lane alone.
    #[inline]
    pub(crate) fn ring(&mut self, now: Instant) {
        if self.started.len() == 0 {
            return;
        }
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        } else if self.obeyed.runs() {
            self.ring_started(now);
        }
    }

    /// [`ring`](Self::ring) for a lane that obeys and may run.
    #[cold]
    pub(crate) fn ring_rest(&mut self, now: Instant) {
        if self.started.len() != 0 {
            self.ring_started(now);
        }
    }

    /// Rings for at least one started command. Out of line, because its loop needs the registers.
    #[inline(never)]
    fn ring_started(&mut self, now: Instant) {
        let alone = self.in_flight == self.started.len();
        let mut watch_at = if alone { now.after_nanos(self.watchdog_nanos) } else { self.watch_at };
        for &slot in self.started.as_slice() {
            let slot = &mut self.slots[usize::from(slot)];
            slot.issue(now);
            watch_at = watch_at.min(slot.deadline);
        }
        self.watch_at = watch_at;
        self.started.clear();
        self.queue.ring(&self.machine);
    }

    #[inline]
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Outcome> {
        loop {
            if let Some(done) = self.take_done() {
                if let outcome @ Some(_) = self.settle(done) {
                    self.rest();
                    return outcome;
                }
                continue;
            }
            match self.next_batch(now) {
                Next::Batch => {}
                Next::Ended => {
                    let outcome = self.take_ended();
                    self.rest();
                    return outcome;
                }
                Next::Nothing => return None,
            }
        }
    }

    /// If no outcome is owed any more, or a command was declined, nobody needs to poll again, so
    /// the lane parks at once.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if self.in_flight == 0 && self.index != 0 && !self.parked {
            self.park();
        }
    }

    /// The next entry of the current batch. The host's orders are checked with the next batch: the
    /// commands of this one have ended, whatever the orders are.
    #[inline(always)]
    pub(crate) fn take_done(&mut self) -> Option<Done> {
        self.queue.take(&self.machine)
    }

    /// Where the next outcome comes from, when the current batch is used up.
    pub(crate) fn next_batch(&mut self, now: Instant) -> Next {
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        }
        if !self.ended.is_empty() {
            Next::Ended
        } else if self.has_work() && self.look() {
            Next::Batch
        } else {
            self.idle(now);
            Next::Nothing
        }
    }

    /// Looks for a new batch of completions.
    #[inline]
    pub(crate) fn look(&mut self) -> bool {
        if self.interrupts.are_on() {
            self.look_interrupted()
        } else {
            self.queue.refill(&self.machine)
        }
    }

    /// Looks for what an interrupt may have announced; armed interrupts are switched off by the
    /// first find.
    #[inline(never)]
    fn look_interrupted(&mut self) -> bool {
        self.acknowledge();
        let found = self.queue.refill(&self.machine);
        if found && self.interrupts.are_armed() {
            self.interrupts.disarm(&self.machine, &self.queue);
        }
        found
    }

    /// Whether looking at the queue can find anything.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.in_flight != 0 || self.management.is_some()
    }

    /// The outcome of an ended queue entry, if this lane has to deliver it now.
    #[inline(always)]
    pub(crate) fn settle(&mut self, done: Done) -> Option<Outcome> {
        if let Some(slot) = self.slots.get_mut(done.slot())
            && let Some(token) = slot.settle()
        {
            let (tag, issued) = (slot.tag, slot.issued);
            return Some(self.complete((done.slot(), tag), done.ocs, token, issued));
        }
        self.unusual(done);
        None
    }

    /// Makes the outcome of an ended slot from the answers of controller and device, and gives the
    /// slot back.
    #[inline(always)]
    fn complete(
        &mut self,
        (slot, tag): (usize, u8),
        ocs: u8,
        token: Token,
        issued: Instant,
    ) -> Outcome {
        let device_done = self.machine.device_done(self.device_queue(), tag.into());
        if !M::COHERENT {
            self.sync_incoming(slot);
        }
        let ended = if ocs != Ocs::Success.into_bits() {
            self.overall_error(slot, ocs)
        } else if self.descriptors.is_plainly_good(&self.machine, slot, tag) {
            Ended::Good
        } else {
            self.read_other_response(slot)
        };
        self.give_back(slot);
        Outcome { issued, device_done, token, ended }
    }

    /// Makes visible to the host what the device wrote into a slot's data.
    fn sync_incoming(&mut self, slot: usize) {
        let data = core::mem::replace(&mut self.slots[slot].incoming, Data::NONE);
        for range in data.ranges(&self.data).flatten() {
            self.machine.sync_for_cpu(range);
        }
    }

    /// How a command ended for which the controller reports no error and the device no simple
    /// success.
    #[cold]
    fn read_other_response(&mut self, slot: usize) -> Ended {
        let Slot { tag, expected, .. } = self.slots[slot];
        let Some(answer) = self.descriptors.answer(slot, tag, expected) else {
            // The controller reports success, but there is no answer from the device.
            self.trouble = Trouble::nothing_moved(expected, Ocs::Invalid.into_bits());
            return Ended::Host;
        };
        if answer.event {
            self.shared.report_event();
        }
        if answer.ended != Ended::Good {
            self.trouble = answer.trouble;
        }
        answer.ended
    }

    #[cold]
    fn overall_error(&mut self, slot: usize, ocs: u8) -> Ended {
        self.trouble = Trouble::nothing_moved(self.slots[slot].expected, ocs);
        match Ocs::from_bits(ocs) {
            Ocs::InvalidCommandTableAttributes if self.quirks.has(Quirk::MissingUnitSetsOcs) => {
                return Ended::NoUnit;
            }
            Ocs::PeerCommunicationFailure
            | Ocs::Aborted
            | Ocs::FatalError
            | Ocs::DeviceFatalError => interrupts::report_status(&self.shared, ocs),
            _ => {}
        }
        Ended::Host
    }

    #[inline]
    pub(crate) fn give_back(&mut self, slot: usize) {
        self.free.push(slot);
        self.in_flight -= 1;
        if self.counts_slots {
            self.count_slot(slot);
        }
    }

    /// Nothing has ended: the time to check what should have.
    #[inline]
    pub(crate) fn idle(&mut self, now: Instant) {
        if self.in_flight == 0 {
            if self.waits && now >= self.watch_at {
                // Poll once more after commands are accepted again, for callers that did not know.
                let knows = self.obeyed.runs() && self.watch_at != Instant::START;
                self.watch_at = now.after_nanos(MS);
                if knows {
                    self.forget_declined();
                }
            }
            // The host's own lane is always available, and the host checks for errors.
            if !self.parked && self.index != 0 {
                self.park();
            } else if self.interrupts.are_on() && self.index != 0 {
                // Something unrelated to this lane's commands may have raised the line.
                self.acknowledge();
            } else if self.interrupts.have_line_for_errors() {
                // The same applies while a command of the host is in its slot.
                self.look_for_errors(false);
            }
        } else if now >= self.watch_at {
            self.watch(now);
        } else if self.interrupts.have_line_for_errors() {
            self.look_for_errors(false);
        }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        // The host is available to its own lane and determines itself when it wants to be polled.
        (self.in_flight != 0 || (self.waits && self.index != 0)).then_some(self.watch_at)
    }

    /// The queue number of this lane for
    /// [`device_done`](flysch_api::machine::Registers::device_done).
    #[inline]
    fn device_queue(&self) -> u16 {
        match self.queue {
            Queue::Sdq(_) => 0,
            Queue::Mcq(_) => self.index as u16,
        }
    }
}

/// Away from the hot path.
impl<M: Machine> Lane<M> {
    pub(crate) fn new(
        machine: &M,
        shared: &Arc<Shared>,
        layout: &Layout,
        facts: &Facts,
        index: usize,
    ) -> Self {
        let mcq = facts.shape.mcq;
        let watchdog = u64::from(facts.options.timeouts.watchdog_ms) * MS;
        let (depth, first_tag) = (facts.shape.depth_of(index), facts.shape.first_tag(index));
        let options = &facts.options;
        let descriptors = layout.descriptors(index);
        let queue = if mcq {
            let rings = (layout.submission_ring(index), layout.completion_ring(index));
            Queue::Mcq(Mcq::new(rings, &descriptors, layout.management.address()))
        } else {
            Queue::Sdq(Sdq::new(layout.transfer_list.clone(), first_tag))
        };
        let walk = Walk::new(SEGMENTS, options.transfer_max, machine.memory(), layout.whole());
        Self {
            machine: machine.clone(),
            shared: shared.clone(),
            index,
            queue,
            slots: (0..depth).map(|n| Slot::free((first_tag + n) as u8)).collect(),
            free: SlotStack::free(depth),
            reserve: usize::MAX,
            wants_slot: false,
            dead: 0,
            share: Share::new(index, depth),
            waits: false,
            counts_slots: false,
            started: SlotStack::EMPTY,
            in_flight: 0,
            ended: VecDeque::with_capacity(depth),
            watch_at: Instant::NEVER,
            watchdog,
            watchdog_nanos: watchdog,
            host_watch: HostWatch::new(&options.timeouts),
            obeyed: shared.orders.order_now(),
            parked: true,
            stopped: true,
            interrupts: LaneInterrupts::new(options, index, facts.shape.lanes.into()),
            management: None,
            descriptors: Descriptors::new(descriptors, walk),
            data: machine.memory().clone(),
            limits: Limits {
                slots: depth as u32,
                transfer_max: options.transfer_max,
                segments: SEGMENTS,
                crypto: shared.keys.are_there(),
            },
            trouble: Trouble::default(),
            quirks: facts.quirks,
            strange: 0,
        }
    }

    /// Leaves the parked state and obeys the host's latest order.
    #[cold]
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.parked {
            self.shared.orders.unpark(self.index);
            self.parked = false;
        }
        let order = self.shared.orders.order_now();
        self.obey(order, now);
    }

    /// Nothing is in flight, so nobody needs to poll.
    #[cold]
    pub(crate) fn park(&mut self) {
        self.parked = true;
        self.set_reserve();
        self.shared.orders.park(self.index);
    }

    fn obey(&mut self, order: Order, now: Instant) {
        let changed = order != self.obeyed;
        self.obeyed = order;
        if changed {
            if order.has(order::HOLD) {
                self.hold_unit(self.shared.hold_lun());
            }
            if order.has(order::RELEASE) {
                self.release_held(now);
            }
            if order.has(Order::GONE) {
                self.stop(Ended::Gone, now);
            } else if order.has(Order::STOP) {
                self.stop(Ended::Reset, now);
            }
            // If it was not stopped, it was parked all the time.
            if order.runs() && (self.stopped || self.shared.orders.is_renewed(self.index)) {
                self.restart();
            }
            if order.runs() {
                self.take_bounds();
            }
            if self.waits && order.has(order::ASLEEP) {
                self.shared.ask_to_wake();
            } else if self.waits && order.runs() && self.in_flight == 0 {
                // A caller whose command was declined tries again after polling.
                self.watch_at = Instant::START;
            }
        }
        self.set_reserve();
        self.shared.orders.obey(self.index, order);
        if order.runs() {
            self.ring_rest(now);
        }
    }

    /// Nobody waits any more, or those who do have been told.
    pub(crate) fn forget_declined(&mut self) {
        self.waits = false;
        self.set_reserve();
    }

    /// The number of free slots below which a command is checked closely: always while the lane is
    /// parked or may not run, if somebody waited for that, and where commands are counted by unit.
    fn set_reserve(&mut self) {
        let runs = !self.parked && self.obeyed.runs() && !self.waits;
        let plain = runs && !self.share.bounds_units();
        self.reserve = if plain { self.kept_back() } else { usize::MAX };
    }

    /// Free slots that [`start`](Self::start) must leave: one while the host waits for a slot, one
    /// for each outcome that is waiting to be fetched, so that there are never more of them than
    /// slots, and those that exceed the device's queue depth.
    fn kept_back(&self) -> usize {
        self.ended.len() + usize::from(self.wants_slot) + self.spare()
    }

    /// Slots that exceed this lane's share of the device's queue depth.
    fn spare(&self) -> usize {
        let usable = self.slots.len() - self.dead.count_ones() as usize;
        usable.saturating_sub(self.share.budget())
    }

    /// Takes over the queue depths of device and units, which bring-up has found out.
    pub(crate) fn take_bounds(&mut self) {
        self.share.learn(&self.shared.bounds, self.slots.len());
        self.counts_slots = self.dead != 0 || self.share.bounds_units();
        self.limits.slots = self.share.budget() as u32;
        self.set_reserve();
    }

    /// Accounts for a slot that was given back.
    #[cold]
    pub(crate) fn count_slot(&mut self, slot: usize) {
        self.share.leave(self.slots[slot].lun);
        if self.dead != 0 {
            self.retire_dead();
        }
    }

    /// Collects everything that has ended, for `poll` to deliver.
    pub(crate) fn harvest(&mut self) {
        loop {
            while let Some(done) = self.queue.take(&self.machine) {
                self.end(done);
            }
            if !self.look() {
                return;
            }
        }
    }

    fn end(&mut self, done: Done) {
        match self.slots.get(done.slot()) {
            Some(slot) if slot.is_issued() => {
                self.decide(done.slot(), Verdict::Ocs(done.ocs));
            }
            _ => self.unusual(done),
        }
    }

    /// Ends a slot whose end `poll` did not see: its outcome waits to be fetched.
    fn decide(&mut self, slot: usize, verdict: Verdict) {
        let Some(token) = self.slots[slot].take_owed() else { return };
        let Slot { tag, issued, expected, .. } = self.slots[slot];
        let outcome = match verdict {
            Verdict::Ocs(ocs) => self.complete((slot, tag), ocs, token, issued),
            Verdict::Cause(ended) => {
                self.trouble = Trouble::nothing_moved(expected, 0);
                self.give_back(slot);
                Outcome { issued, device_done: None, token, ended }
            }
        };
        self.ended.push_back((outcome, self.trouble));
        // It is owed until it is fetched.
        self.in_flight += 1;
        self.set_reserve();
    }

    /// The next outcome that is waiting to be fetched. Inline, so that an outcome is not stored in
    /// memory for both of its sources.
    #[inline(always)]
    pub(crate) fn take_ended(&mut self) -> Option<Outcome> {
        let (outcome, trouble) = self.ended.pop_front()?;
        self.note_fetched(trouble);
        Some(outcome)
    }

    #[cold]
    fn note_fetched(&mut self, trouble: Trouble) {
        self.trouble = trouble;
        self.in_flight -= 1;
        self.set_reserve();
    }

    /// An ended queue entry that is not an ordinary command of this lane.
    #[cold]
    pub(crate) fn unusual(&mut self, done: Done) {
        let slot = done.slot();
        let phase = self.slots.get(slot).map(|slot| &slot.phase);
        match (phase, &mut self.management) {
            (Some(Phase::Management), Some(management)) => management.ocs = Some(done.ocs),
            (None, Some(management)) if self.queue.is_management(done) => {
                management.ocs = Some(done.ocs);
            }
            (Some(Phase::Held(_)), _) => {
                self.slots[slot].verdict = Verdict::Ocs(done.ocs);
                self.word().came_late(slot);
            }
            _ => self.strange = self.strange.saturating_add(1),
        }
    }

    /// Takes free slots that are stuck in the controller out of use.
    #[cold]
    pub(crate) fn retire_dead(&mut self) {
        self.free.retire(&mut self.slots, self.dead);
    }

    /// Takes a slot out of the queue: the host takes care of its end.
    fn hold(&mut self, slot: usize) {
        self.queue.forget(slot);
        self.slots[slot].hold();
        self.word().hold(slot, self.slots[slot].lun);
    }

    fn hold_unit(&mut self, lun: u8) {
        self.harvest();
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_issued() && self.slots[slot].lun == lun {
                self.hold(slot);
            }
        }
    }

    /// The host has ensured that no held command is in the device any more.
    fn release_held(&mut self, now: Instant) {
        self.harvest();
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_held() {
                self.release(slot, Ended::Reset, now);
            }
        }
    }

    fn release(&mut self, slot: usize, cause: Ended, now: Instant) {
        self.word().unhold(slot);
        let late = match self.slots[slot].verdict {
            Verdict::Ocs(ocs) => Some(ocs),
            Verdict::Cause(_) => self.queue.status(slot, &self.machine),
        };
        let verdict = match late {
            Some(ocs) if ocs == Ocs::Success.into_bits() => Verdict::Ocs(ocs),
            _ => Verdict::Cause(self.slots[slot].why(cause, now)),
        };
        self.decide(slot, verdict);
    }

    /// The controller is disabled: what completed before counts, the rest ends with `cause`.
    fn stop(&mut self, cause: Ended, now: Instant) {
        if let Queue::Mcq(queue) = &mut self.queue {
            queue.refill_from_memory(&self.machine);
            while let Some(done) = self.queue.take(&self.machine) {
                self.end(done);
            }
        }
        for slot in 0..self.slots.len() {
            match &self.slots[slot].phase {
                Phase::Issued(_) => {
                    self.queue.forget(slot);
                    self.slots[slot].verdict = Verdict::Cause(cause);
                    self.release(slot, cause, now);
                }
                Phase::Held(_) => self.release(slot, cause, now),
                Phase::Started(_) => {
                    self.slots[slot].issued = now;
                    self.queue.forget(slot);
                    self.decide(slot, Verdict::Cause(cause));
                }
                _ => {}
            }
        }
        self.started.clear();
        self.release_management();
        self.wants_slot = false;
        self.stopped = true;
    }

    /// The controller is up again with empty queues.
    pub(crate) fn restart(&mut self) {
        self.shared.orders.know(self.index);
        let starts = self.word().starts();
        match &mut self.queue {
            Queue::Mcq(queue) => queue.restart(starts, &self.machine),
            Queue::Sdq(queue) => {
                let own = u32::MAX >> (32 - self.slots.len().min(32));
                self.dead = queue.range(starts.submission) & own;
            }
        }
        self.retire_dead();
        self.counts_slots = self.dead != 0 || self.share.bounds_units();
        self.interrupts.restart(starts.signals);
        self.descriptors.set_told(!starts.signals.aggregated);
        let alone = self.interrupts.is_undisturbed();
        self.watchdog_nanos = if alone { self.watchdog } else { self.watchdog.min(MS) };
        self.stopped = false;
    }

    /// Whether no outcome is owed.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.harvest();
        self.in_flight == 0
    }

    /// What a lane does by itself, when the host is polled instead of its port.
    pub(crate) fn tend(&mut self, now: Instant) {
        if self.in_flight != 0 && now >= self.watch_at {
            self.harvest();
            self.watch(now);
        }
    }

    /// Checks for errors and for commands past their deadline.
    #[cold]
    pub(crate) fn watch(&mut self, now: Instant) {
        if let Queue::Mcq(queue) = &mut self.queue
            && queue.refill_from_tail(&self.machine)
        {
            return;
        }
        self.look_for_errors(true);
        let mut next = now.after_nanos(self.watchdog_nanos);
        let (mut overdue, mut held) = (false, false);
        for slot in 0..self.slots.len() {
            let Slot { phase, deadline, .. } = &self.slots[slot];
            let (deadline, is_issued) = (*deadline, matches!(phase, Phase::Issued(_)));
            held |= matches!(phase, Phase::Held(_));
            if is_issued && deadline <= now && self.obeyed.runs() {
                self.hold(slot);
                overdue = true;
            } else if matches!(phase, Phase::Issued(_) | Phase::Started(_)) && deadline > now {
                next = next.min(deadline);
            }
        }
        self.watch_at = next;
        if overdue {
            self.shared.orders.call_host();
        }
        if self.host_watch.ends(held && self.index != 0, &self.machine, &self.shared, now) {
            self.wake(now);
        }
    }

    /// Lets completions raise one more interrupt; `false` if something has ended.
    pub(crate) fn arm(&mut self) -> bool {
        self.interrupts.arm(&self.machine, &self.queue);
        self.ended.is_empty() && !self.look() && self.shared.orders.order() == self.obeyed
    }

    /// Checks for errors only; with `by_itself` also for a link that failed to hibernate by itself.
    pub(crate) fn look_for_errors(&self, by_itself: bool) {
        interrupts::look_for_errors(&self.machine, &self.shared, by_itself);
    }

    /// Clears what raised the interrupt, before the completions that it announced are looked for.
    #[inline]
    pub(crate) fn acknowledge(&self) {
        self.interrupts.acknowledge(&self.machine, &self.queue, &self.shared);
    }

    pub(crate) fn abort(&mut self, token: u32) -> bool {
        let live = |slot: &&mut Slot| {
            slot.owed().is_some_and(|owed| owed.number() == token) && !slot.is_held()
        };
        match self.slots.iter_mut().find(live) {
            Some(slot) => {
                slot.abort = true;
                slot.deadline = Instant::START;
                self.watch_at = Instant::START;
                true
            }
            None => false,
        }
    }
}

impl<M: Machine> Drop for Lane<M> {
    /// The host no longer needs to wait for this lane. What it had in flight can only be stopped by
    /// a reset of the controller, and until then the device may write to where its data was.
    fn drop(&mut self) {
        let has_commands = self.slots.iter().any(|slot| slot.owed().is_some());
        for slot in 0..self.slots.len() {
            self.word().unhold(slot);
        }
        self.shared.orders.park(self.index);
        if has_commands && !self.stopped {
            self.shared.orders.report(Interrupts::new().with_hcfes(true).into_bits());
        }
    }
}
