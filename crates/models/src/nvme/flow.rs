//! Commands on their way through the device: entry in, media, data, completion out.

use flysch_api::machine::Instant;
use flysch_wire::nvme::feature::event;
use flysch_wire::nvme::{Cqe, Status, completion};

use super::Nvme;
use super::backend::{Demand, Entry};
use super::clock::Event;
use super::inject::{completions, lateness};
use super::queue::{Fetched, RingError};
use super::task::{Purpose, State, TaskRef, Work};
use super::transfer::Request;
use crate::faults::{Injector, Kind};

/// The status field of a command that would fail again.
pub(super) const fn refusal(status: Status) -> u16 {
    status.into_bits() | completion::DO_NOT_RETRY
}

/// The work of a command, or its end if it is refused.
#[inline]
fn refused(work: Result<Work, Status>) -> Work {
    work.unwrap_or_else(|status| Work::Status(refusal(status)))
}

/// Whether the interrupt of a completion gets lost (a fault).
fn loses_interrupts(faults: &mut Injector, now: Instant) -> impl FnMut(u16) -> bool {
    move |cid| faults.is_active() && faults.fires(Kind::LostInterrupt, now, cid.into())
}

impl Nvme {
    /// A doorbell was written.
    pub(super) fn ring(&mut self, offset: u32, value: u32) {
        let lost = loses_interrupts(&mut self.faults, self.clock.now());
        match self.queues.ring(&self.memory, (offset, value), lost) {
            Ok(()) => self.fetch(),
            Err(RingError::Doorbell) => self.error_event(event::INVALID_DOORBELL),
            Err(RingError::Value) => self.error_event(event::INVALID_DOORBELL_VALUE),
            Err(RingError::Unreachable) => self.fail_fatally(),
        }
    }

    /// Fetches commands from the submission queues, one of each in turn, while there is room.
    #[inline]
    pub(super) fn fetch(&mut self) {
        while self.registers.is_working() {
            let Some(queue) = self.queues.next_ready(&self.tasks) else { return };
            let Ok(fetched) = self.queues.fetch(&self.memory, queue) else {
                return self.fail_fatally();
            };
            let Some(Fetched { entry, is_last }) = fetched else { continue };
            if is_last && self.queues.look_at_shadow(&self.memory, queue).is_err() {
                self.fail_fatally();
            }
            if let Some(index) = self.tasks.take(queue, entry) {
                self.receive(index);
            }
        }
    }

    /// Completes a task and gives its entry back.
    #[inline]
    pub(super) fn finish(&mut self, index: u16, status: u16, result: u32) {
        let task = self.tasks.get(index);
        let (queue, cid) = (task.queue, task.command.cid);
        let given = if status == 0 { task.result } else { 0 };
        let result = result | given as u32;
        let dw1 = (given >> 32) as u32;
        let more = match status {
            0 => 0,
            _ => self.device.errors.failed(queue, &task.command, status),
        };
        self.tasks.release(index);
        self.finished.note(queue, cid, self.clock.nanos());
        let Some(completion) = self.queues.completion_of(queue) else { return };
        let status = status | more;
        let entry = Cqe { result, dw1, sq: queue, cid, status, ..Cqe::default() };
        if self.faults.is_active() {
            let entries = completions(&mut self.faults, completion, entry, self.clock.now());
            entries.into_iter().flatten().for_each(|entry| self.post(completion, entry));
        } else {
            self.post(completion, entry);
        }
        self.fetch();
    }

    /// Posts a completion entry. If the host's memory cannot be reached, that is fatal.
    #[inline]
    pub(super) fn post(&mut self, queue: u16, entry: Cqe) {
        let lost = loses_interrupts(&mut self.faults, self.clock.now());
        if self.queues.announce(&self.memory, (queue, entry), lost).is_err() {
            self.fail_fatally();
        }
    }

    /// A command has reached the device.
    #[inline]
    fn receive(&mut self, index: u16) {
        if self.faults.is_active() && self.fault_at_start(index) {
            return;
        }
        let now = self.clock.nanos();
        let arrival = match &mut self.processor {
            Some(processor) => processor.submit(self.tasks.get(index).kind(), now),
            None => now,
        };
        let is_admin = self.tasks.get(index).queue == 0;
        let device = &mut self.device;
        let woken = match is_admin {
            true => arrival,
            false => {
                let meter = self.backend.media.meter_mut();
                device.power.wake(device.features.apst(), meter, arrival)
            }
        };
        let accepted = self.backend.media.accept(woken, false);
        let work = match is_admin {
            // A request for events waits, unless too many do.
            true if self.told.is_full() && self.tasks.get(index).awaits_event() => {
                Work::Status(refusal(Status::AsyncEventLimit))
            }
            true => Work::Control,
            false => refused(self.device.decide(&self.tasks.get(index).command)),
        };
        let task = self.tasks.get_mut(index);
        let work = match self.faults.is_active() && !is_admin {
            true => {
                let of = (self.clock.now(), task.command.cid.into());
                self.device.work_with_faults(&mut self.faults, work, of)
            }
            false => work,
        };
        let work = match is_admin || !self.device.spaces.has_zones {
            true => work,
            false => refused(self.device.spaces.place(&task.command, work).map(|(work, first)| {
                task.result = first;
                work
            })),
        };
        task.work = work;
        let name = self.tasks.name(index);
        match work {
            Work::Read { space, offset, len, .. } => {
                let Some(space) = self.device.spaces.get(space) else { return };
                let ready = self.backend.media.read(space.span(offset, len.into()), accepted);
                self.tasks.get_mut(index).ready = ready;
                self.clock.at(ready.first, Event::Ready(name));
            }
            Work::Write { .. } | Work::Copy { .. } | Work::Flush => {
                self.clock.at(accepted, Event::Accepted(name));
            }
            Work::Control | Work::Settle | Work::Status(_) => {
                let end = self.backend.media.answer(accepted);
                self.clock.at(end, Event::Complete(name));
            }
        }
    }

    /// The firmware takes up a write or a flush.
    pub(super) fn accepted(&mut self, name: TaskRef) {
        if !self.tasks.is_current(name) {
            return;
        }
        let demand = self.demand();
        match self.tasks.get(name.index).work {
            Work::Write { len, .. } => {
                let entry = Entry { name, len, is_copy: false };
                self.backend.enter(&mut self.clock, entry, demand);
            }
            Work::Copy { .. } => self.begin_copy(name),
            _ => self.backend.settle(&mut self.clock, name, demand),
        }
    }

    /// The data of a write is in the write buffer. If the command was taken away meanwhile, its
    /// room is freed.
    #[inline]
    pub(super) fn data_arrived(&mut self, name: TaskRef, len: u32) {
        let bytes = u64::from(len);
        if !self.tasks.is_current(name) {
            return self.backend.release(&mut self.clock, bytes);
        }
        let demand = self.demand();
        self.backend.arrived(&mut self.clock, bytes, demand);
        self.complete(name);
    }

    /// The first data of a read is available: sends it, unless the command was taken away.
    #[inline]
    pub(super) fn send_data(&mut self, name: TaskRef) {
        if !self.tasks.is_current(name) {
            return;
        }
        let task = self.tasks.get(name.index);
        if let Work::Copy { len, .. } = task.work {
            let entry = Entry { name, len, is_copy: true };
            let demand = self.demand();
            return self.backend.enter(&mut self.clock, entry, demand);
        }
        let Work::Read { len, purpose, .. } = task.work else { return };
        let (ready, now) = (task.ready, self.clock.nanos());
        let end = match purpose {
            Purpose::Read => self.backend.media.send(ready, len.into()),
            Purpose::Compare => self.backend.media.receive(ready.last.max(now), len.into()),
            Purpose::Verify => self.backend.media.answer(ready.last.max(now)),
        };
        self.clock.at(end, Event::Complete(name));
    }

    /// A command has run its course.
    #[inline]
    pub(super) fn complete(&mut self, name: TaskRef) {
        if !self.tasks.is_current(name) {
            return;
        }
        let index = name.index;
        if self.tasks.get(index).done.is_none() {
            if self.faults.is_active() {
                let task = self.tasks.get_mut(index);
                if let Some(late) = lateness(&mut self.faults, task, self.clock.now()) {
                    return self.clock.after(late, Event::Complete(name));
                }
            }
            self.device.power.used(self.clock.nanos());
            if let Some(processor) = &mut self.processor {
                let now = self.clock.nanos();
                let told = processor.complete(self.tasks.get(index).kind(), now);
                self.tasks.get_mut(index).done = Some(now);
                return self.clock.at(told, Event::Complete(name));
            }
        }
        let (task, device) = (self.tasks.get(index), &mut self.device);
        let extent = (self.registers.page, device.longest);
        let request = Request::new(&task.command, &self.memory, extent);
        let mut settles = false;
        let status = match task.work {
            Work::Read { space, offset, len, purpose: Purpose::Read } => {
                device.read((space, offset, len), &request)
            }
            Work::Read { space, offset, len, purpose: Purpose::Compare } => {
                device.compare((space, offset, len), &request)
            }
            Work::Read { .. } | Work::Settle => 0,
            // The data of a write is in the write buffer and goes into the store.
            Work::Write { space, offset, len, force } => {
                settles = force || !device.features.write_cache();
                device.write((space, offset, len), &request, self.backend.media.arrived_total())
            }
            Work::Copy { space, offset, len, force } => {
                settles = force || !device.features.write_cache();
                let sources = self.copies.take(name);
                device.copy((space, offset, len), &sources, self.backend.media.arrived_total())
            }
            Work::Flush => device.flush(),
            Work::Status(status) => status,
            Work::Control if task.queue == 0 => return self.administer(index),
            Work::Control => {
                let done = device.spaces.carry_out(&request, &device.features.host);
                done.map_or_else(refusal, |()| 0)
            }
        };
        if settles && status == 0 {
            self.tasks.get_mut(index).work = Work::Settle;
            let demand = self.demand();
            return self.backend.settle(&mut self.clock, name, demand);
        }
        self.finish(index, status, 0);
    }

    /// The firmware takes up a copy: reads its list and the medium.
    fn begin_copy(&mut self, name: TaskRef) {
        let (task, now) = (self.tasks.get(name.index), self.clock.nanos());
        let extent = (self.registers.page, self.device.longest);
        let request = Request::new(&task.command, &self.memory, extent);
        let planned = self.device.spaces.plan_copy(&request);
        let space = self.device.spaces.attached(task.command.nsid);
        let (work, end, event) = match (planned, space) {
            (Ok((work, sources)), Ok(space)) => {
                let read = |ready: u64, (offset, len): &(u64, u64)| {
                    ready.max(self.backend.media.read(space.span(*offset, *len), now).last)
                };
                let ready = sources.iter().fold(now, read);
                self.copies.begin(name, sources, &self.tasks);
                (work, ready, Event::Ready(name))
            }
            (Err(status), _) | (_, Err(status)) => (
                Work::Status(refusal(status)),
                self.backend.media.answer(now),
                Event::Complete(name),
            ),
        };
        self.tasks.get_mut(name.index).work = work;
        self.clock.at(end, event);
    }

    /// The controller state that decides what is programmed.
    #[inline]
    pub(super) fn demand(&self) -> Demand {
        let shuts = self.registers.csts.shst() != 0;
        Demand { shuts, is_idle: self.tasks.held() == 0 }
    }

    pub(super) fn die_done(&mut self, die: u16) {
        let demand = self.demand();
        if self.backend.die_done(&mut self.clock, die, demand) {
            self.device.spaces.programmed(self.backend.media.programmed_total());
            self.look_at_shutdown();
        }
    }

    /// Removes a task that is about to end otherwise from the lists of waiting ones.
    pub(super) fn forget_waits(&mut self, index: u16) {
        self.backend.forget(index);
        self.told.forget(index);
        self.tasks.get_mut(index).state = State::Active;
    }
}
