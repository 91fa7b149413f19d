//! What a lane does away from the hot path: obeying the host, watching the clock, errands, parking.

use super::{Lane, Trouble};
use crate::error::BusError;
use crate::queue::{Kind, SLOTS_MAX};
use crate::shared::cause;
use flysch_api::command::{Ended, MmcStatus, NotStarted, Outcome};
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::cqhci::{CQCRDCT, CQIS, Cqis, DIRECT};
use flysch_wire::mmc::sdhci::{Interrupts, STATUS};

/// The host's answer to an errand instead of a [`BusError`]: it ended well.
pub(crate) const WELL: u32 = 0;
/// The device answered with errors; the status comes with it.
pub(crate) const ANSWERED: u32 = 1 << 30;
/// The deadline passed.
pub(crate) const OVERDUE: u32 = 1 << 29;

/// Interval between two checks for the result of an errand, nanoseconds.
const ERRAND_NANOS: u64 = 1_000_000;

impl<M: Machine> Lane<M> {
    /// Clears the interrupt of completions.
    #[inline]
    pub(super) fn acknowledge(&self) {
        self.machine.write32(STATUS, Interrupts::new().with_queueing(true).into_bits());
        self.machine.write32(self.base + CQIS, Cqis::new().with_complete(true).into_bits());
    }

    /// Nothing has completed: obeys the host, and attends to what waits.
    #[inline(never)]
    pub(crate) fn found_nothing(&mut self, now: Instant) -> Option<Outcome> {
        if self.in_flight == 0 && self.obeyed == Order::NONE {
            return None;
        }
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        }
        if self.errand.is_some() {
            self.end_errand();
        }
        if !self.ended.is_empty() {
            return self.take_ended();
        }
        if self.in_flight == 0 {
            return None;
        }
        if self.terms.queueing && !self.stopped && self.look_at_line() {
            return self.next_ended();
        }
        if now >= self.watch_at {
            self.watch(now);
        }
        self.take_ended()
    }

    /// Finds out why the line is up, if it is: reports errors; returns whether tasks have ended
    /// meanwhile.
    fn look_at_line(&mut self) -> bool {
        let status = self.look_for_errors();
        if !Interrupts::from_bits(status).queueing() {
            return false;
        }
        self.acknowledge();
        self.tasks.refill(&self.machine)
    }

    /// Checks the error status of controller and engine, while they should run; returns the whole
    /// status of the controller. Without interrupts the status does not show that the engine has
    /// something to report.
    pub(crate) fn look_for_errors(&self) -> u32 {
        if !self.obeyed.runs() || !self.terms.queueing {
            return 0;
        }
        let status = self.machine.read32(STATUS);
        if status == u32::MAX {
            self.shared.orders.report(cause::REMOVED);
            return 0;
        }
        let asks = !self.interrupts || Interrupts::from_bits(status).queueing();
        let refused = || Cqis::from_bits(self.machine.read32(self.base + CQIS)).response_error();
        if status & Interrupts::ERRORS != 0 || asks && refused() {
            self.shared.orders.report(cause::ERROR);
        }
        status
    }

    /// Handles a bit of the notification register that is not a transfer of this lane.
    #[cold]
    pub(super) fn settle_other(&mut self, task: u32) -> Option<Outcome> {
        let direct = self.direct.filter(|_| task == DIRECT.into());
        let Some(number) = direct else {
            self.strange = self.strange.saturating_add(1);
            return None;
        };
        let token = self.slots[number].owed.take()?;
        let issued = self.slots[number].issued;
        self.release_direct();
        let status = self.machine.read32(self.base + CQCRDCT);
        let bad = CardStatus::from_bits(status).errors().into_bits() != 0;
        if bad {
            self.trouble = Trouble { status: MmcStatus { status, long: 0 }, ..Trouble::default() };
        }
        let device_done = self.machine.device_done(0, task as u16);
        self.give_back(number);
        let ended = if bad { Ended::Answered } else { Ended::Good };
        Some(Outcome { issued, device_done, token, ended })
    }

    fn release_direct(&mut self) {
        if self.direct.take().is_some() {
            self.tasks.mine &= !(1 << DIRECT);
            self.shared.give_direct(self.index);
        }
    }

    /// Leaves the parked state and obeys the host's latest order.
    #[cold]
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.obeyed == Order::NONE {
            self.shared.orders.unpark(self.index);
        }
        let order = self.shared.orders.order_now();
        self.obey(order, now);
    }

    /// Nothing is in flight, so nobody needs to poll.
    #[cold]
    pub(super) fn park(&mut self) {
        self.obeyed = Order::NONE;
        self.set_open();
        self.shared.orders.park(self.index);
    }

    fn obey(&mut self, order: Order, now: Instant) {
        if order == self.obeyed {
            return;
        }
        self.obeyed = order;
        self.harvest();
        if order.has(Order::GONE) {
            self.stop(Ended::Gone, now);
        } else if order.has(Order::STOP) {
            self.stop(Ended::Reset, now);
        } else if order.has(Order::OWN) {
            self.weed(now);
        }
        if order.runs() {
            self.take_terms();
            self.stopped = false;
        }
        self.set_open();
        self.shared.orders.obey(self.index, order);
        if order.runs() {
            if self.posted != 0 {
                self.ring_posted(now);
            }
            self.run_errand();
        }
    }

    /// Takes over the terms that bring-up has set. While commands are in flight only the partition
    /// can differ.
    pub(crate) fn take_terms(&mut self) {
        let terms = self.shared.terms();
        self.terms = terms;
        self.unit = terms.partition.into();
        let slots = match terms.queueing {
            true => u32::from(terms.tasks),
            false => self.depth,
        };
        let slots = slots.clamp(1, SLOTS_MAX as u32 - 1);
        let used = |n: &u32| self.slots[*n as usize].owed.is_some();
        let used: u32 = (0..SLOTS_MAX as u32).filter(used).map(|n| 1 << n).sum();
        let all = (1 << slots) - 1;
        self.free = all & !used;
        self.limits.slots = slots;
        self.first = if terms.queueing { self.index as u32 * slots } else { 0 };
        let direct = self.tasks.mine & 1 << DIRECT;
        self.tasks.mine = if terms.queueing { all << self.first | direct } else { 0 };
        self.set_open();
    }

    /// Tasks start on the hot path while the engine queues, no order prevents it, and no outcome
    /// waits to be fetched, so that there are never more of those than slots.
    fn set_open(&mut self) {
        let open = self.obeyed.runs() && self.terms.queueing && self.ended.is_empty();
        self.open = if open { u32::MAX } else { 0 };
    }

    /// Why nothing starts.
    #[cold]
    pub(super) fn why_not(&self) -> NotStarted {
        if self.obeyed.has(Order::GONE) { NotStarted::Gone } else { NotStarted::Full }
    }

    /// Collects everything that has ended, for `poll` to deliver.
    pub(crate) fn harvest(&mut self) {
        if self.stopped {
            return;
        }
        while let Some(outcome) = self.next_ended() {
            self.put_by(outcome);
        }
        if self.errand.is_some() {
            self.end_errand();
        }
    }

    /// Keeps an outcome until it is fetched.
    fn put_by(&mut self, outcome: Outcome) {
        self.ended.push_back((outcome, self.trouble));
        // It is owed until it is fetched.
        self.in_flight += 1;
        self.set_open();
    }

    /// The next outcome that is waiting to be fetched.
    #[cold]
    pub(crate) fn take_ended(&mut self) -> Option<Outcome> {
        let (outcome, trouble) = self.ended.pop_front()?;
        self.trouble = trouble;
        self.in_flight -= 1;
        self.set_open();
        Some(outcome)
    }

    /// Ends a slot's command in any way but a simple success of the engine; the outcome waits to be
    /// fetched.
    pub(crate) fn end(&mut self, number: usize, ended: Ended, trouble: Trouble) {
        let slot = &mut self.slots[number];
        let Some(token) = slot.owed.take() else { return };
        let (issued, kind, expected) = (slot.issued, slot.kind, slot.expected);
        if kind == Kind::Direct {
            self.release_direct();
        }
        if !M::COHERENT {
            self.sync_incoming(number);
        }
        let residual = if ended == Ended::Good { 0 } else { expected };
        self.trouble = Trouble { residual, ..trouble };
        self.give_back(number);
        self.posted &= !(1 << number);
        let device_done = match kind {
            Kind::Plain if ended == Ended::Good => self.machine.device_done(0, 0),
            _ => None,
        };
        self.put_by(Outcome { issued, device_done, token, ended });
    }

    /// Checks whether the host has done the errand.
    #[cold]
    fn end_errand(&mut self) {
        let Some([code, status]) = self.shared.errands[self.index].take_result() else { return };
        let Some(number) = self.errand.take() else { return };
        let told = Trouble { status: MmcStatus { status, long: 0 }, ..Trouble::default() };
        match code {
            WELL => self.end(number, Ended::Good, Trouble::default()),
            ANSWERED => self.end(number, Ended::Answered, told),
            OVERDUE => self.end(number, Ended::TimedOut, told),
            code => self.end(number, Ended::Host, Trouble { code, ..told }),
        }
        self.run_errand();
    }

    /// Accounts for a slot that was given back, perhaps one that the host was asked to end.
    #[cold]
    pub(super) fn forget_victim(&mut self, number: usize) {
        if core::mem::take(&mut self.slots[number].overdue) {
            self.overdue -= 1;
            self.shared.remove_victims(self.bit(number));
        }
    }

    /// A slot's bit in a set of all tasks.
    fn bit(&self, number: usize) -> u32 {
        match self.slots[number].kind {
            Kind::Direct => 1 << DIRECT,
            _ => 1 << ((self.first + number as u32) % 32),
        }
    }

    /// The host has discarded the tasks that it blames: ends them.
    fn weed(&mut self, now: Instant) {
        let blame = self.shared.blame();
        for number in 0..self.slots.len() {
            let slot = &self.slots[number];
            let queued = matches!(slot.kind, Kind::Task | Kind::Direct);
            if slot.owed.is_some() && queued && self.bit(number) & blame.tasks != 0 {
                let late = slot.deadline <= now && !slot.abort;
                let ended = if late { Ended::TimedOut } else { Ended::Aborted };
                self.end(number, ended, Trouble::default());
            }
        }
    }

    /// Nothing is in the card any more: ends everything, with `cause` if it is nobody's fault.
    fn stop(&mut self, cause: Ended, now: Instant) {
        self.tasks.forget();
        self.shared.errands[self.index].withdraw();
        self.errand = None;
        self.errands.clear();
        self.waiting.clear();
        self.host_has = None;
        let blame = self.shared.blame();
        for number in 0..self.slots.len() {
            let slot = &self.slots[number];
            if slot.owed.is_none() {
                continue;
            }
            let blamed = self.bit(number) & blame.tasks != 0;
            let status = MmcStatus { status: blame.status, long: 0 };
            let guilty = Trouble { status, code: blame.code, residual: 0 };
            let (ended, trouble) = if cause == Ended::Gone {
                (cause, Trouble::default())
            } else if slot.abort {
                (Ended::Aborted, Trouble::default())
            } else if slot.deadline <= now {
                (Ended::TimedOut, Trouble::default())
            } else if blamed && blame.status != 0 {
                (Ended::Answered, guilty)
            } else if blamed {
                (Ended::Host, guilty)
            } else {
                (cause, Trouble::default())
            };
            self.end(number, ended, trouble);
        }
        self.posted = 0;
        self.stopped = true;
    }

    /// Whether no outcome is owed.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.harvest();
        self.in_flight == 0
    }

    /// Whether engine and host have nothing: everything owed has ended.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.harvest();
        self.in_flight == self.ended.len()
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
        self.look_for_errors();
        let mut next = now.after_nanos(self.watchdog_nanos);
        if self.errand.is_some() {
            next = now.after_nanos(ERRAND_NANOS);
        }
        let mut found = 0;
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            if slot.owed.is_none() || slot.overdue {
                continue;
            }
            if slot.deadline > now {
                next = next.min(slot.deadline);
                continue;
            }
            match slot.kind {
                // Also while it pauses: whoever waits for the bus has to learn of it.
                Kind::Task | Kind::Direct => {
                    slot.overdue = true;
                    self.overdue += 1;
                    found |= self.bit(number);
                }
                // The host itself ends what it has by now.
                Kind::Plain => {
                    self.waiting.remove(number);
                    self.end_waiting(number, self.host_has == Some(number));
                }
                Kind::Errand => {
                    self.errands.remove(number);
                    self.end_waiting(number, self.errand == Some(number));
                }
            }
        }
        self.watch_at = next;
        if found != 0 {
            self.shared.add_victims(found);
            self.shared.orders.call_host();
        }
    }

    /// Ends overdue commands that nobody has begun.
    fn end_waiting(&mut self, number: usize, begun: bool) {
        if !begun {
            let aborted = self.slots[number].abort;
            let ended = if aborted { Ended::Aborted } else { Ended::TimedOut };
            self.end(number, ended, Trouble::default());
        }
    }

    pub(crate) fn abort(&mut self, token: u32) -> bool {
        let owed = |slot: &&mut crate::queue::Slot| {
            slot.owed.as_ref().is_some_and(|owed| owed.number() == token)
        };
        match self.slots.iter_mut().find(owed) {
            Some(slot) => {
                slot.abort = true;
                slot.deadline = Instant::START;
                self.watch_at = Instant::START;
                true
            }
            None => false,
        }
    }

    /// The plain transfer of this slot has ended well.
    pub(crate) fn end_well(&mut self, number: usize) {
        self.end(number, Ended::Good, Trouble::default());
    }

    /// The plain transfer of this slot has failed: keeps the reason.
    pub(crate) fn end_plain(&mut self, number: usize, error: BusError, status: u32, now: Instant) {
        let slot = &self.slots[number];
        let (abort, late) = (slot.abort, slot.deadline <= now);
        let told = Trouble { status: MmcStatus { status, long: 0 }, code: error.0, residual: 0 };
        let ended = match (abort, late, status) {
            (true, ..) => Ended::Aborted,
            (_, true, _) => Ended::TimedOut,
            (_, _, 0) => Ended::Host,
            _ => Ended::Answered,
        };
        self.end(number, ended, told);
    }
}

impl<M: Machine> Drop for Lane<M> {
    /// The host no longer needs to wait for this lane. What it had in flight can only be stopped by
    /// the host, and until then the controller may write to where its data was.
    fn drop(&mut self) {
        let has_commands = self.slots.iter().any(|slot| slot.owed.is_some());
        let victims = (0..self.slots.len()).filter(|&n| self.slots[n].overdue);
        let victims = victims.fold(0, |all, n| all | self.bit(n));
        self.shared.remove_victims(victims);
        self.shared.errands[self.index].withdraw();
        self.release_direct();
        self.shared.orders.park(self.index);
        if has_commands && !self.stopped {
            self.shared.orders.report(cause::LOST);
        }
    }
}
