//! The work of a lane off the hot path: obeying the host, watching the clock, parking.

use crate::facts::Facts;
use crate::lane::{Lane, Trouble};
use crate::layout::{Layout, PAGE};
use crate::queue::{Completion, Done, NO_SLOT, Shadow, Slot, Submission};
use crate::shared::{Shared, cause};
use crate::time::MS;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use flysch_api::command::{Ended, Limits, NotStarted, NvmeStatus, Outcome};
use flysch_api::data::{SEGMENTS_MAX, SegmentLimits, Walk};
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_wire::nvme::registers::{CSTS, Csts, DOORBELLS, cq_head, sq_tail};
use flysch_wire::nvme::{Status, sgl};

/// The data limits of commands: with page lists, whole pages inside a list; with scatter gather
/// lists, as many segments as fit a slot's list memory.
fn segments(transfer_max: u32, sgls: bool, list: usize) -> SegmentLimits {
    let (count, inner) = match sgls {
        true => ((list / sgl::LENGTH).min(SEGMENTS_MAX), 1),
        false => (SEGMENTS_MAX, PAGE as u32),
    };
    SegmentLimits { count: count as u16, length: transfer_max, alignment: 4, boundary: 0, inner }
}

impl<M: Machine> Lane<M> {
    pub(crate) fn new(
        machine: &M,
        shared: &Arc<Shared>,
        layout: &Layout,
        facts: &Facts,
        index: usize,
    ) -> Self {
        let depth = layout.depth();
        let (queue, stride) = (index as u16 + 1, facts.cap.dstrd());
        let transfer_max = shared.transfer_max();
        let segments = segments(transfer_max, false, layout.list());
        let options = &facts.options;
        Self {
            shared: shared.clone(),
            index,
            submission: Submission::new(layout.submission(index), sq_tail(queue, stride)),
            completion: Completion::new(layout.completion(index), cq_head(queue, stride)),
            slots: free_slots(depth as u16),
            free: 0,
            open: false,
            soonest: Instant::NEVER,
            in_flight: 0,
            marks: 0,
            ended: VecDeque::with_capacity(depth),
            trouble: Trouble::default(),
            watch_at: Instant::NEVER,
            watchdog_nanos: u64::from(options.timeouts.watchdog_ms) * MS,
            obeyed: Order::NONE,
            stopped: true,
            lists: layout.lists(index),
            list: layout.list(),
            sgls: false,
            data: machine.memory().clone(),
            own: layout.whole().clone(),
            limits: Limits { slots: depth as u32, transfer_max, segments, crypto: false },
            walk: Walk::new(segments, transfer_max, machine.memory(), layout.whole()),
            machine: machine.clone(),
            strange: 0,
            doorbells: layout.doorbells.clone(),
            stride,
        }
    }

    /// Leaves the parked state and obeys whatever the host has ordered meanwhile.
    #[cold]
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.obeyed == Order::NONE {
            self.shared.orders.unpark(self.index);
        }
        let order = self.shared.orders.order_now();
        self.obey(order, now);
    }

    /// Parks: nothing is in flight, so nobody needs to poll.
    #[cold]
    pub(crate) fn park(&mut self) {
        self.obeyed = Order::NONE;
        self.open = false;
        self.shared.orders.park(self.index);
    }

    fn obey(&mut self, order: Order, now: Instant) {
        self.obeyed = order;
        if order.has(Order::GONE) {
            self.stop(Ended::Gone, now);
        } else if order.has(Order::STOP) {
            self.stop(Ended::Reset, now);
        }
        // If not stopped, it was parked all the time.
        if order.runs() && (self.stopped || self.shared.orders.is_renewed(self.index)) {
            self.restart();
        }
        self.open_or_close();
        self.shared.orders.obey(self.index, order);
        if order.runs() && self.submission.has_unrung() {
            self.ring_started(now);
        }
    }

    /// Whether commands may start now.
    fn open_or_close(&mut self) {
        self.open = self.obeyed.runs() && self.ended.is_empty();
    }

    /// Why nothing can start.
    #[cold]
    pub(crate) fn why_not(&self) -> NotStarted {
        if self.obeyed.has(Order::GONE) { NotStarted::Gone } else { NotStarted::Full }
    }

    /// The controller is up again with empty queues.
    pub(crate) fn restart(&mut self) {
        self.shared.orders.know(self.index);
        self.submission.restart();
        self.completion.restart(&self.machine);
        self.take_places();
        self.take_bounds();
        self.stopped = false;
    }

    /// Takes over the positions of its queue and its doorbells, which bring-up determined.
    fn take_places(&mut self) {
        let queue = self.index as u16 + 1;
        let shadows = self.shared.has_shadows();
        let shadow =
            |register: u32| shadows.then(|| Shadow::new(&self.doorbells, register - DOORBELLS));
        let (tail, head) = (sq_tail(queue, self.stride), cq_head(queue, self.stride));
        let entries = Layout::entries(self.slots.len());
        let behind = (self.index * Layout::queue_bytes(entries)) as u32;
        let window = self.shared.controller_memory().map(|first| first + behind);
        self.submission.place(shadow(tail), window);
        self.completion.place(shadow(head));
    }

    /// Takes over the limits of command data, which bring-up determined.
    pub(crate) fn take_bounds(&mut self) {
        let (bytes, sgls) = (self.shared.transfer_max(), self.shared.has_sgls());
        if (bytes, sgls) != (self.limits.transfer_max, self.sgls) {
            self.sgls = sgls;
            self.limits.transfer_max = bytes;
            self.limits.segments = segments(bytes, sgls, self.list);
            self.walk = Walk::new(self.limits.segments, bytes, &self.data, &self.own);
        }
    }

    /// Takes in every completion, for `poll` to return.
    pub(crate) fn harvest(&mut self) {
        self.take_in();
        self.completion.ring(&self.machine);
    }

    /// As [`harvest`](Self::harvest), but without touching doorbells: a controller that is switched
    /// off has none.
    fn take_in(&mut self) {
        if self.stopped {
            return;
        }
        while let Some(done) = self.completion.take(&self.machine) {
            if let Some(outcome) = self.settle(done) {
                self.keep(outcome);
            }
        }
    }

    /// Queues an outcome until it is polled.
    fn keep(&mut self, outcome: Outcome) {
        self.ended.push_back((outcome, self.trouble));
        // Still owed until it is fetched.
        self.in_flight += 1;
        self.open_or_close();
    }

    /// The next queued outcome.
    #[cold]
    pub(crate) fn take_ended(&mut self) -> Option<Outcome> {
        let (outcome, trouble) = self.ended.pop_front()?;
        self.trouble = trouble;
        self.in_flight -= 1;
        self.open_or_close();
        Some(outcome)
    }

    /// The device answered, but it was not plain success.
    #[cold]
    pub(crate) fn answered(&mut self, number: usize, done: Done) -> Ended {
        let (status, result) = (done.status(), done.result);
        let slot = &self.slots[number];
        let residual = if status == 0 { 0 } else { slot.expected };
        let status_is = NvmeStatus { status, result };
        let delay_ms = self.shared.retry_delay_ms(status_is.retry_delay());
        self.trouble = Trouble { status: status_is, residual, delay_ms };
        let aborted =
            matches!(Status::of_field(status), Status::AbortRequested | Status::SqDeleted);
        match (aborted, slot.abort) {
            (true, true) => Ended::Aborted,
            (true, false) if slot.overdue => Ended::TimedOut,
            (true, false) => Ended::Reset,
            (false, _) => Ended::Answered,
        }
    }

    /// A slot was freed; if its owner wanted its command to end, or the host was to abort it, the
    /// mark is removed.
    #[cold]
    pub(crate) fn forget_marks(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        self.marks -= usize::from(core::mem::take(&mut slot.abort));
        if core::mem::take(&mut slot.overdue) {
            self.marks -= 1;
            self.word().remove_victim(number);
        }
    }

    /// The controller is disabled: what completed before counts, everything else ends with `cause`.
    fn stop(&mut self, cause: Ended, now: Instant) {
        self.take_in();
        self.completion.tell_no_more();
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            let Some(token) = slot.owed.take() else { continue };
            let ended = why(slot, cause, now);
            let (issued, residual) = (slot.issued, slot.expected);
            self.trouble = Trouble { residual, ..Trouble::default() };
            self.give_back(number);
            self.keep(Outcome { issued, device_done: None, token, ended });
        }
        self.submission.restart();
        self.soonest = Instant::NEVER;
        self.stopped = true;
    }

    /// Whether no outcome is owed.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.harvest();
        self.in_flight == 0
    }

    /// The lane's own work, for a host that is polled instead of its port.
    pub(crate) fn tend(&mut self, now: Instant) {
        if self.in_flight != 0 && now >= self.watch_at {
            self.harvest();
            self.watch(now);
        }
    }

    /// Looks for errors and for commands past their deadline.
    #[cold]
    pub(crate) fn watch(&mut self, now: Instant) {
        self.look_for_errors();
        let mut next = now.after_nanos(self.watchdog_nanos);
        let mut found = false;
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            if slot.owed.is_none() || slot.overdue {
                continue;
            }
            if slot.deadline > now {
                next = next.min(slot.deadline);
            } else if self.obeyed.runs() {
                slot.overdue = true;
                let cid = slot.cid;
                self.marks += 1;
                self.word().add_victim(number, cid);
                found = true;
            }
        }
        self.watch_at = next;
        if found {
            self.shared.orders.call_host();
        }
    }

    /// Checks the state of the controller itself, while it should be running.
    pub(crate) fn look_for_errors(&self) {
        if !self.obeyed.runs() {
            return;
        }
        let status = self.machine.read32(CSTS);
        let csts = Csts::from_bits(status);
        if status == u32::MAX {
            self.shared.orders.report(cause::REMOVED);
        } else if csts.cfs() || !csts.rdy() {
            self.shared.orders.report(cause::FATAL);
        }
    }

    pub(crate) fn abort(&mut self, token: u32) -> bool {
        let owed = |slot: &&mut Slot| slot.owed.as_ref().is_some_and(|o| o.number() == token);
        match self.slots.iter_mut().find(owed) {
            Some(slot) => {
                self.marks += usize::from(!core::mem::replace(&mut slot.abort, true));
                slot.deadline = Instant::START;
                self.watch_at = Instant::START;
                true
            }
            None => false,
        }
    }
}

impl<M: Machine> Drop for Lane<M> {
    /// Tells the host not to wait for this lane any more. Only a reset of the controller can stop
    /// its commands in flight; until then the device may write to the memory of their data.
    fn drop(&mut self) {
        let has_commands = self.slots.iter().any(|slot| slot.owed.is_some());
        for slot in 0..self.slots.len() {
            self.word().remove_victim(slot);
        }
        self.shared.orders.park(self.index);
        if has_commands && !self.stopped {
            self.shared.orders.report(cause::LOST);
        }
    }
}

/// The slots of a lane, all free, each linked to the next.
fn free_slots(count: u16) -> Box<[Slot]> {
    let next = |number: u16| if number + 1 < count { number + 1 } else { NO_SLOT };
    (0..count).map(|number| Slot { next: next(number), ..Slot::free(number) }).collect()
}

/// Why a command that did not complete ended: its owner's abort and its deadline come first.
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
