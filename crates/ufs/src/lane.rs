//! What a lane does away from the hot path: obeying the host, watching the clock, parking.

use crate::control::{Facts, MS};
use crate::layout::{Layout, slot as descriptor};
use crate::port::{Lane, Management, Trouble};
use crate::queue::{Done, FreeSlots, MANAGEMENT, Mcq, Phase, Queue, Sdq, Slot, Verdict};
use crate::shared::{Order, Shared, Signals, UNITS};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use flysch_api::command::{Ended, Limits, NotStarted, Outcome};
use flysch_api::data::{SegmentLimits, Walk};
use flysch_api::machine::{DmaArray, Instant, Machine};
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::ufs::prdt;
use flysch_wire::ufs::registers::{HCS, Hcs, IE, IS, Interrupts, PowerModeStatus};
use flysch_wire::ufs::utrd::{Ocs, Utrd};

/// Causes of completions, which lanes clear.
pub(crate) const COMPLETIONS: Interrupts =
    Interrupts::new().with_utrcs(true).with_cqes(true).with_iages(true);

/// Causes of trouble, which lanes clear and report to the host.
pub(crate) const ERRORS: Interrupts = Interrupts::FATAL.union(Interrupts::new().with_ue(true));

/// Ends of hibernation requests.
const HIBERNATION: Interrupts = Interrupts::new().with_uhes(true).with_uhxs(true);

/// What IE is when completions raise the line. The host polls for the ends of its own work.
pub(crate) const ENABLED: Interrupts = COMPLETIONS.union(ERRORS);

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
        let segments = SegmentLimits {
            count: descriptor::LIST_ENTRIES,
            length: prdt::ENTRY_MAX,
            alignment: prdt::ALIGNMENT,
            boundary: 0,
            inner: 1,
        };
        Self {
            machine: machine.clone(),
            shared: shared.clone(),
            index,
            queue,
            slots: (0..depth).map(|_| Slot::FREE).collect(),
            free: FreeSlots::new(depth),
            reserve: usize::MAX,
            wants_slot: false,
            dead: 0,
            budget: depth,
            bounds_units: false,
            waits: false,
            in_unit: [0; UNITS],
            counts_slots: false,
            started: vec![0; depth].into_boxed_slice(),
            started_len: 0,
            in_flight: 0,
            ended: VecDeque::with_capacity(depth),
            watch_at: Instant::NEVER,
            watchdog,
            watchdog_nanos: watchdog,
            signals: Signals::default(),
            count: None,
            aggregation: options.aggregation,
            obeyed: shared.order_now(),
            parked: true,
            stopped: true,
            interrupts: options.interrupts,
            armed: false,
            management: None,
            regions: DmaArray::new(descriptors.clone()),
            descriptors: DmaArray::new(descriptors),
            data: machine.memory().clone(),
            limits: Limits { slots: depth as u32, transfer_max: options.transfer_max, segments },
            walk: Walk::new(segments, options.transfer_max, machine.memory(), layout.whole()),
            trouble: Trouble::default(),
            first_tag: first_tag as u8,
            quirks: facts.quirks,
            strange: 0,
        }
    }

    /// Comes out of the park and obeys whatever the host ordered meanwhile.
    #[cold]
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.parked {
            self.word().unpark();
            self.parked = false;
        }
        let order = self.shared.order_now();
        self.obey(order, now);
    }

    /// Nothing is in flight, so nobody needs to poll.
    #[cold]
    pub(crate) fn park(&mut self) {
        self.parked = true;
        self.word().park();
    }

    fn obey(&mut self, order: Order, now: Instant) {
        let changed = order != self.obeyed;
        self.obeyed = order;
        if changed {
            if order.has(Order::HOLD) {
                self.hold_unit(self.shared.hold_lun());
            }
            if order.has(Order::RELEASE) {
                self.release_held(now);
            }
            if order.has(Order::GONE) {
                self.stop(Ended::Gone, now);
            } else if order.has(Order::STOP) {
                self.stop(Ended::Reset, now);
            }
            if order.runs() && self.stopped {
                self.restart();
            }
            if order.runs() {
                self.take_bounds();
                self.waits = false;
            }
        }
        self.set_reserve();
        self.word().obey(order);
        if order.runs() {
            self.ring(now);
        }
    }

    /// Below how many free slots a command is looked at closely: always while the lane may not run
    /// and where commands are counted by unit.
    fn set_reserve(&mut self) {
        let plain = self.obeyed.runs() && !self.bounds_units;
        self.reserve = if plain { self.kept_back() } else { usize::MAX };
    }

    /// Free slots [`start`](Self::start) must leave: one while the host waits for a slot, one for
    /// each outcome that waits to be fetched, so that there are never more of them than slots, and
    /// those beyond what the device queues.
    fn kept_back(&self) -> usize {
        self.ended.len() + usize::from(self.wants_slot) + self.spare()
    }

    /// Whether a command for `unit` may start although [`reserve`](Self::reserve) says no; counts
    /// it into its unit. A link that hibernates is asked to wake.
    #[cold]
    pub(crate) fn admit(&mut self, unit: u64, now: Instant) -> Result<(), NotStarted> {
        if self.obeyed.has(Order::GONE) {
            return Err(NotStarted::Gone);
        }
        if self.obeyed.has(Order::ASLEEP) && !self.waits {
            self.waits = true;
            self.watch_at = now.after_nanos(MS);
            self.shared.ask_to_wake();
        }
        let has_slot = self.obeyed.runs() && self.free.len() > self.kept_back();
        let Some(lun) = LogicalUnitNumber::from_bits(unit).to_ufs() else {
            return Err(NotStarted::Unsupported);
        };
        if has_slot && self.enter_unit(lun) { Ok(()) } else { Err(NotStarted::Full) }
    }

    /// Slots beyond what the device queues of this lane.
    fn spare(&self) -> usize {
        let usable = self.slots.len() - self.dead.count_ones() as usize;
        usable.saturating_sub(self.budget)
    }

    /// Takes over how much device and units queue, which bring-up found out.
    pub(crate) fn take_bounds(&mut self) {
        let depth = self.slots.len();
        self.budget = self.shared.bounds.of_device(self.index).map_or(depth, |n| n.min(depth));
        let is_less = |lun| self.shared.bounds.of_unit(lun, self.index).is_some_and(|n| n < depth);
        self.bounds_units = (0..UNITS).any(is_less);
        self.counts_slots = self.dead != 0 || self.bounds_units;
        self.limits.slots = self.budget as u32;
        self.set_reserve();
    }

    /// Counts a command into its unit; `false` if that queues no more of this lane.
    fn enter_unit(&mut self, lun: u8) -> bool {
        let bound = self.shared.bounds.of_unit(lun.into(), self.index);
        let Some(count) = self.in_unit.get_mut(usize::from(lun)) else { return true };
        if bound.is_some_and(|bound| usize::from(*count) >= bound) {
            return false;
        }
        *count += 1;
        true
    }

    #[cold]
    pub(crate) fn leave_unit(&mut self, lun: u8) {
        if let Some(count) = self.in_unit.get_mut(usize::from(lun)) {
            *count = count.saturating_sub(1);
        }
    }

    /// A slot was given back.
    #[cold]
    pub(crate) fn count_slot(&mut self, slot: usize) {
        self.leave_unit(self.slots[slot].lun);
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
        match self.slots.get(done.slot) {
            Some(slot) if slot.phase == Phase::Issued => {
                self.decide(done.slot, Verdict::Ocs(done.ocs));
            }
            _ => self.unusual(done),
        }
    }

    /// Ends a slot otherwise than by `poll` seeing it: its outcome waits to be fetched.
    fn decide(&mut self, slot: usize, verdict: Verdict) {
        let Some(token) = self.slots[slot].owed.take() else { return };
        let outcome = match verdict {
            Verdict::Ocs(ocs) => {
                self.slots[slot].phase = Phase::Free;
                self.complete(Done { slot, ocs }, token, self.slots[slot].issued)
            }
            Verdict::Cause(ended) => {
                let Slot { issued, expected, .. } = self.slots[slot];
                self.trouble = Trouble::nothing_moved(expected);
                self.slots[slot].phase = Phase::Free;
                self.give_back(slot);
                Outcome { issued, device_done: None, token, ended }
            }
        };
        self.ended.push_back((outcome, self.trouble));
        // Still owed until it is fetched.
        self.in_flight += 1;
        self.set_reserve();
    }

    /// The next outcome that waits to be fetched.
    #[cold]
    pub(crate) fn take_ended(&mut self) -> Option<Outcome> {
        let (outcome, trouble) = self.ended.pop_front()?;
        self.trouble = trouble;
        self.in_flight -= 1;
        self.set_reserve();
        Some(outcome)
    }

    /// An ended queue entry that is not a command of this lane in the normal way.
    #[cold]
    pub(crate) fn unusual(&mut self, done: Done) {
        let phase = self.slots.get(done.slot).map(|slot| slot.phase);
        match (phase, &mut self.management) {
            (Some(Phase::Management), Some(management)) => management.ocs = Some(done.ocs),
            (None, Some(management)) if done.slot == MANAGEMENT => {
                management.ocs = Some(done.ocs);
            }
            (Some(Phase::Held), _) => {
                self.slots[done.slot].verdict = Verdict::Ocs(done.ocs);
                self.word().came_late(done.slot);
            }
            _ => self.strange = self.strange.saturating_add(1),
        }
    }

    /// Takes free slots that are stuck in the controller out of use.
    #[cold]
    pub(crate) fn retire_dead(&mut self) {
        let (slots, dead) = (&mut self.slots, self.dead);
        let is_dead = |n: usize| n < 32 && dead >> n & 1 != 0;
        for (n, slot) in slots.iter_mut().enumerate() {
            match slot.phase {
                Phase::Free if is_dead(n) => slot.phase = Phase::Dead,
                Phase::Dead if !is_dead(n) => slot.phase = Phase::Free,
                _ => {}
            }
        }
        let free = (0..slots.len()).rev().filter(|&n| slots[n].phase == Phase::Free);
        self.free.refill(free);
    }

    /// Takes a slot out of the queue: the host settles its end.
    fn hold(&mut self, slot: usize) {
        self.queue.forget(slot);
        self.slots[slot].phase = Phase::Held;
        self.slots[slot].verdict = Verdict::Cause(Ended::TimedOut);
        self.word().hold(slot, self.slots[slot].lun);
    }

    fn hold_unit(&mut self, lun: u8) {
        self.harvest();
        for slot in 0..self.slots.len() {
            if self.slots[slot].phase == Phase::Issued && self.slots[slot].lun == lun {
                self.hold(slot);
            }
        }
    }

    /// The host has seen to it that no held command is in the device any more.
    fn release_held(&mut self, now: Instant) {
        self.harvest();
        for slot in 0..self.slots.len() {
            if self.slots[slot].phase == Phase::Held {
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
            _ => Verdict::Cause(why(&self.slots[slot], cause, now)),
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
            match self.slots[slot].phase {
                Phase::Issued => {
                    self.queue.forget(slot);
                    self.slots[slot].verdict = Verdict::Cause(cause);
                    self.release(slot, cause, now);
                }
                Phase::Held => self.release(slot, cause, now),
                Phase::Started => {
                    self.queue.forget(slot);
                    self.decide(slot, Verdict::Cause(cause));
                }
                _ => {}
            }
        }
        self.started_len = 0;
        self.release_management();
        self.wants_slot = false;
        self.stopped = true;
    }

    /// The controller is up again with empty queues.
    pub(crate) fn restart(&mut self) {
        let starts = self.word().starts();
        match &mut self.queue {
            Queue::Mcq(queue) => queue.restart(starts, &self.machine),
            Queue::Sdq(queue) => {
                let own = u32::MAX >> (32 - self.slots.len().min(32));
                self.dead = queue.range(starts.submission) & own;
            }
        }
        self.retire_dead();
        self.counts_slots = self.dead != 0 || self.bounds_units;
        self.signals = starts.signals;
        // Lanes that share the line may clear it for each other.
        let alone = self.signals.messages || self.shared.lanes.len() == 1;
        self.watchdog_nanos = if alone { self.watchdog } else { self.watchdog.min(MS) };
        let count = self.aggregation.filter(|_| starts.signals.aggregated);
        self.count = count.map(|aggregation| aggregation.control().into_bits());
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
        let status = Interrupts::from_bits(self.machine.read32(IS));
        self.report_errors(status);
        if status.intersects(HIBERNATION) {
            self.report_hibernation(status);
        }
        let mut next = now.after_nanos(self.watchdog_nanos);
        let mut overdue = false;
        for slot in 0..self.slots.len() {
            let Slot { phase, deadline, .. } = self.slots[slot];
            if phase == Phase::Issued && deadline <= now && self.obeyed.runs() {
                self.hold(slot);
                overdue = true;
            } else if matches!(phase, Phase::Issued | Phase::Started) && deadline > now {
                next = next.min(deadline);
            }
        }
        self.watch_at = next;
        if overdue {
            self.shared.call_host();
        }
    }

    /// Looks for errors alone; with `by_itself` also for a link that hibernated by itself and
    /// badly.
    pub(crate) fn look_for_errors(&mut self, by_itself: bool) {
        let status = Interrupts::from_bits(self.machine.read32(IS));
        self.report_errors(status);
        if by_itself && status.intersects(HIBERNATION) {
            self.report_hibernation(status);
        }
    }

    fn report_errors(&self, status: Interrupts) {
        if status.intersects(ERRORS) {
            let errors = status.into_bits() & ERRORS.into_bits();
            self.machine.write32(IS, errors);
            self.shared.report_causes(errors);
        }
    }

    /// The link tried to hibernate or to wake by itself: the host hibernates it by hand only when
    /// no lane has commands in flight. Tells the host if that went wrong.
    #[cold]
    fn report_hibernation(&self, status: Interrupts) {
        let upmcrs = Hcs::from_bits(self.machine.read32(HCS)).upmcrs();
        if matches!(upmcrs, PowerModeStatus::Ok | PowerModeStatus::Local) {
            let events = status.into_bits() & HIBERNATION.into_bits();
            self.machine.write32(IS, events);
        } else {
            self.shared.report_causes(status.into_bits() & HIBERNATION.into_bits());
        }
    }

    /// The controller ended a command with a status that says that it, the link or the device is
    /// in trouble. Nobody had asked for an abort.
    #[cold]
    pub(crate) fn report_status(&self, ocs: u8) {
        let none = Interrupts::new();
        let cause = match Ocs::from_bits(ocs) {
            Ocs::DeviceFatalError => none.with_dfes(true),
            Ocs::FatalError => none.with_hcfes(true),
            _ => none.with_ue(true),
        };
        self.shared.report_causes(cause.into_bits());
    }

    /// Clears what raised the line, before the look for completions that it announced.
    pub(crate) fn acknowledge(&mut self) {
        if self.signals.messages {
            return self.queue.acknowledge(&self.machine, self.count);
        }
        let status = Interrupts::from_bits(self.machine.read32(IS));
        if status.intersects(ENABLED) {
            self.queue.acknowledge(&self.machine, self.count);
            self.report_errors(status);
            self.machine.write32(IS, status.into_bits() & COMPLETIONS.into_bits());
        }
    }

    pub(crate) fn arm(&mut self) -> bool {
        if !self.interrupts {
            self.interrupts = true;
            self.armed = true;
            self.enable_interrupts(true);
        }
        self.ended.is_empty() && !self.look() && self.shared.order() == self.obeyed
    }

    #[cold]
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
        self.interrupts = false;
        self.enable_interrupts(false);
    }

    fn enable_interrupts(&self, on: bool) {
        let causes = match &self.queue {
            Queue::Mcq(queue) if self.signals.messages => {
                queue.enable(on, &self.machine);
                ERRORS
            }
            _ => ENABLED,
        };
        // Another lane may be waiting for the line, which is the first one's where it is for
        // errors alone.
        let alone = self.shared.lanes.len() == 1;
        let own = if self.signals.messages { self.index == 0 } else { on || alone };
        if own {
            self.machine.write32(IE, if on { causes.into_bits() } else { 0 });
        }
    }

    pub(crate) fn abort(&mut self, token: u32) -> bool {
        let live = |slot: &&mut Slot| {
            let owed = slot.owed.as_ref().is_some_and(|owed| owed.number() == token);
            owed && matches!(slot.phase, Phase::Issued | Phase::Started)
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

    /// Reserves a slot for a device management command and gives its task tag; `None` until one
    /// is free.
    pub(crate) fn take_management_slot(&mut self) -> Option<u8> {
        self.harvest();
        let slot = self.free.take();
        self.wants_slot = slot.is_none();
        self.set_reserve();
        let slot = slot?;
        self.slots[slot].phase = Phase::Management;
        self.management = Some(Management { slot, ocs: None });
        Some(self.tag(slot))
    }

    /// Issues the device management command in the reserved slot.
    pub(crate) fn issue_management(&mut self, entry: &Utrd, now: Instant) {
        if let Some(management) = self.management {
            if self.obeyed.runs() {
                self.ring(now);
            }
            self.queue.post(management.slot, entry.to_words(), &self.machine);
            self.queue.ring(&self.machine);
        }
    }

    /// Task tag of the device management command, 0 if there is none.
    pub(crate) fn management_tag(&self) -> u8 {
        self.management.map_or(0, |management| self.tag(management.slot))
    }

    /// Overall command status of the device management command, once it has ended.
    pub(crate) fn management_status(&mut self) -> Option<u8> {
        self.harvest();
        self.management.and_then(|management| management.ocs)
    }

    pub(crate) fn release_management(&mut self) {
        if let Some(management) = self.management.take() {
            self.queue.forget(management.slot);
            self.slots[management.slot].phase = Phase::Free;
            self.free.put(management.slot);
        }
    }

    /// Gives up waiting for a management slot.
    pub(crate) fn forgo_management_slot(&mut self) {
        self.wants_slot = false;
        self.set_reserve();
    }
}

impl<M: Machine> Drop for Lane<M> {
    /// The host need not wait for it any more. What it had in flight can only be stopped by a reset
    /// of the controller, and until then the device may write where its data was.
    fn drop(&mut self) {
        let has_commands = self.slots.iter().any(|slot| slot.owed.is_some());
        for slot in 0..self.slots.len() {
            self.word().unhold(slot);
        }
        self.word().park();
        if has_commands && !self.stopped {
            self.shared.report_causes(Interrupts::new().with_hcfes(true).into_bits());
        }
    }
}

/// Why a command that did not complete ended: its owner's wish and its deadline come first.
fn why(slot: &Slot, cause: Ended, now: Instant) -> Ended {
    if cause == Ended::Gone {
        cause
    } else if slot.abort {
        Ended::Aborted
    } else if slot.deadline <= now {
        Ended::TimedOut
    } else {
        cause
    }
}
