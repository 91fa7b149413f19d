//! One lane: a queue pair or a slot range with everything its slots need. The hot path is above,
//! what it does away from it - obeying the host, watching the clock, parking - below. On the hot
//! path nothing is allocated, locked or searched: a completion names its slot.

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
    /// With no more free slots than this, [`start`](Self::start) asks [`admit`](Self::admit):
    /// always, while the lane is parked.
    pub(crate) reserve: usize,
    pub(crate) wants_slot: bool,
    /// SDQ: the lane's slots that are stuck in the controller.
    pub(crate) dead: u32,
    /// Its share of what device and units queue.
    share: Share,
    /// A command was declined because the lane may not run, and none was taken since.
    pub(crate) waits: bool,
    /// Whether a slot that is given back has to be looked at: some are dead or counted by unit.
    pub(crate) counts_slots: bool,
    /// Slots started since the last doorbell.
    started: SlotStack,
    /// Outcomes this lane owes: of slots in whatever phase, and those in `ended`.
    pub(crate) in_flight: usize,
    /// Outcomes that wait to be fetched.
    pub(crate) ended: VecDeque<(Outcome, Trouble)>,
    /// More about the outcome given last, if it was not plainly good.
    pub(crate) trouble: Trouble,
    /// The next time to look for errors and overdue commands.
    pub(crate) watch_at: Instant,
    /// The time between two such looks, as asked for and as the interrupts allow, nanoseconds.
    pub(crate) watchdog: u64,
    pub(crate) watchdog_nanos: u64,
    host_watch: HostWatch,
    /// The last order obeyed.
    pub(crate) obeyed: Order,
    pub(crate) parked: bool,
    pub(crate) stopped: bool,
    /// How the lane learns of ends and of errors.
    pub(crate) interrupts: LaneInterrupts,
    pub(crate) management: Option<Management>,
    descriptors: Descriptors,
    pub(crate) data: DmaRegion,
    pub(crate) limits: Limits,
    pub(crate) quirks: Quirks,
    /// Completions that made no sense.
    pub(crate) strange: u32,
}

/// Where a lane's next outcome comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// From a new batch of completions.
    Batch,
    /// From those that ended otherwise.
    Ended,
    /// From nowhere now.
    Nothing,
}

impl<M: Machine> Lane<M> {
    pub(crate) fn word(&self) -> &LaneWord {
        &self.shared.lanes[self.index]
    }

    /// One doorbell for everything started, as far as the host lets it ring. Its orders are looked
    /// at here and not for each command: one that is posted and not rung is the lane's alone.
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

    /// Rings for what was started, which is something. Out of line: its loop needs the registers.
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

    /// With no outcome owed any more, or a command declined, nobody needs to poll again: the lane
    /// parks at once.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if self.in_flight == 0 && self.index != 0 && !self.parked {
            self.park();
        }
    }

    /// The next entry of the batch that was found. The host's orders are looked at with the next
    /// batch: what is in this one has ended, whatever they are.
    #[inline(always)]
    pub(crate) fn take_done(&mut self) -> Option<Done> {
        self.queue.take(&self.machine)
    }

    /// Where the next outcome comes from, when the batch that was found is used up.
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

    /// Looks for what an interrupt may have announced; where they were armed, the first find is
    /// the last they tell.
    #[inline(never)]
    fn look_interrupted(&mut self) -> bool {
        self.acknowledge();
        let found = self.queue.refill(&self.machine);
        if found && self.interrupts.are_armed() {
            self.interrupts.disarm(&self.machine, &self.queue);
        }
        found
    }

    /// Whether a look at the queue can find anything.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.in_flight != 0 || self.management.is_some()
    }

    /// The outcome of an ended queue entry, if it is this lane's to deliver now.
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

    /// Makes the outcome of an ended slot from what controller and device said, and gives the slot
    /// back.
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

    /// What the device wrote into a slot's data comes to the host.
    fn sync_incoming(&mut self, slot: usize) {
        let data = core::mem::replace(&mut self.slots[slot].incoming, Data::NONE);
        for range in data.ranges(&self.data).flatten() {
            self.machine.sync_for_cpu(range);
        }
    }

    /// How a command ended that the controller says nothing about and the device not plainly well.
    #[cold]
    fn read_other_response(&mut self, slot: usize) -> Ended {
        let Slot { tag, expected, .. } = self.slots[slot];
        let Some(answer) = self.descriptors.answer(slot, tag, expected) else {
            // The controller says success, the device's answer is not there.
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

    /// Nothing ended: the time to look after what did not.
    #[inline]
    pub(crate) fn idle(&mut self, now: Instant) {
        if self.in_flight == 0 {
            if self.waits && now >= self.watch_at {
                // One look more once commands are taken again, for who did not know.
                let knows = self.obeyed.runs() && self.watch_at != Instant::START;
                self.watch_at = now.after_nanos(MS);
                if knows {
                    self.forget_declined();
                }
            }
            // The host's own lane is always at hand, and the host looks for errors.
            if !self.parked && self.index != 0 {
                self.park();
            } else if self.interrupts.are_on() && self.index != 0 {
                // Something may have raised the line that no command of this lane is about.
                self.acknowledge();
            } else if self.interrupts.have_line_for_errors() {
                // The same, while a command of the host is in its slot.
                self.look_for_errors(false);
            }
        } else if now >= self.watch_at {
            self.watch(now);
        } else if self.interrupts.have_line_for_errors() {
            self.look_for_errors(false);
        }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        // The host is at hand for its own lane and says itself when it wants to be polled.
        (self.in_flight != 0 || (self.waits && self.index != 0)).then_some(self.watch_at)
    }

    /// The queue number [`device_done`](flysch_api::machine::Registers::device_done) knows this
    /// lane by.
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
            interrupts: LaneInterrupts::new(options, index, facts.shape.lanes),
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

    /// Comes out of the park and obeys whatever the host ordered meanwhile.
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
            // If not stopped, it was parked all the time.
            if order.runs() && (self.stopped || self.shared.orders.is_renewed(self.index)) {
                self.restart();
            }
            if order.runs() {
                self.take_bounds();
            }
            if self.waits && order.has(order::ASLEEP) {
                self.shared.ask_to_wake();
            } else if self.waits && order.runs() && self.in_flight == 0 {
                // Who was declined tries again when he has polled.
                self.watch_at = Instant::START;
            }
        }
        self.set_reserve();
        self.shared.orders.obey(self.index, order);
        if order.runs() {
            self.ring_rest(now);
        }
    }

    /// Nobody waits any more, or whoever does has been told.
    pub(crate) fn forget_declined(&mut self) {
        self.waits = false;
        self.set_reserve();
    }

    /// Below how many free slots a command is looked at closely: always while the lane is parked or
    /// may not run, where somebody waited for that, and where commands are counted by unit.
    fn set_reserve(&mut self) {
        let runs = !self.parked && self.obeyed.runs() && !self.waits;
        let plain = runs && !self.share.bounds_units();
        self.reserve = if plain { self.kept_back() } else { usize::MAX };
    }

    /// Free slots [`start`](Self::start) must leave: one while the host waits for a slot, one for
    /// each outcome that waits to be fetched, so that there are never more of them than slots, and
    /// those beyond what the device queues.
    fn kept_back(&self) -> usize {
        self.ended.len() + usize::from(self.wants_slot) + self.spare()
    }

    /// Slots beyond what the device queues of this lane.
    fn spare(&self) -> usize {
        let usable = self.slots.len() - self.dead.count_ones() as usize;
        usable.saturating_sub(self.share.budget())
    }

    /// Takes over how much device and units queue, which bring-up found out.
    pub(crate) fn take_bounds(&mut self) {
        self.share.learn(&self.shared.bounds, self.slots.len());
        self.counts_slots = self.dead != 0 || self.share.bounds_units();
        self.limits.slots = self.share.budget() as u32;
        self.set_reserve();
    }

    /// A slot was given back.
    #[cold]
    pub(crate) fn count_slot(&mut self, slot: usize) {
        self.share.leave(self.slots[slot].lun);
        if self.dead != 0 {
            self.retire_dead();
        }
    }

    /// Takes in everything that has ended, for `poll` to hand out.
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

    /// Ends a slot otherwise than by `poll` seeing it: its outcome waits to be fetched.
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
        // Still owed until it is fetched.
        self.in_flight += 1;
        self.set_reserve();
    }

    /// The next outcome that waits to be fetched. In line, so that an outcome is not put into
    /// memory for both ways it can come.
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

    /// An ended queue entry that is not a command of this lane in the normal way.
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

    /// Takes a slot out of the queue: the host settles its end.
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

    /// The host has seen to it that no held command is in the device any more.
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

    /// What a lane does by itself, for a host that is polled and not its port.
    pub(crate) fn tend(&mut self, now: Instant) {
        if self.in_flight != 0 && now >= self.watch_at {
            self.harvest();
            self.watch(now);
        }
    }

    /// Looks for errors and for commands past their deadline.
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

    /// Lets completions raise the interrupt until the next one; `false` if something has ended.
    pub(crate) fn arm(&mut self) -> bool {
        self.interrupts.arm(&self.machine, &self.queue);
        self.ended.is_empty() && !self.look() && self.shared.orders.order() == self.obeyed
    }

    /// Looks for errors alone; with `by_itself` also for a link that hibernated by itself and
    /// badly.
    pub(crate) fn look_for_errors(&self, by_itself: bool) {
        interrupts::look_for_errors(&self.machine, &self.shared, by_itself);
    }

    /// Clears what raised the interrupt, before the look for completions that it announced.
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
    /// The host need not wait for it any more. What it had in flight can only be stopped by a reset
    /// of the controller, and until then the device may write where its data was.
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
