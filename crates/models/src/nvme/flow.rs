//! Commands on their way through the device: entry in, media, data, completion out.

use flysch_api::machine::Instant;
use flysch_wire::nvme::feature::event;
use flysch_wire::nvme::{AdminOpcode, Cqe, Status, completion};

use super::Nvme;
use super::clock::Event;
use super::queue::{Fetched, RingError};
use super::task::{Purpose, State, TaskRef, Work};
use super::transfer::{Failed, Parts, copy};
use crate::faults::{Injector, Kind};
use crate::media::{Program, Span};

/// The status field of a command that would fail again.
pub(super) const fn refusal(status: Status) -> u16 {
    status.into_bits() | completion::DO_NOT_RETRY
}

/// Bytes that a compare looks at in one go.
const COMPARED: usize = 4096;

/// Whether the interrupt of a command's completion gets lost.
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

    /// Takes commands from the submission queues, one of each in turn, as far as there is room.
    #[inline]
    pub(super) fn fetch(&mut self) {
        while self.is_working() {
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

    /// Tells the host of the end of a task and gives its entry back.
    #[inline]
    pub(super) fn finish(&mut self, index: u16, status: u16, result: u32) {
        let task = self.tasks.get(index);
        let (queue, cid) = (task.queue, task.command.cid);
        let given = if status == 0 { task.result } else { 0 };
        let result = result | given as u32;
        let dw1 = (given >> 32) as u32;
        let more = match status {
            0 => 0,
            _ => self.note_failure(index, status),
        };
        self.tasks.release(index);
        self.finished.note(queue, cid, self.clock.nanos());
        let Some(completion) = self.queues.completion_of(queue) else { return };
        let status = status | more;
        let entry = Cqe { result, dw1, sq: queue, cid, status, ..Cqe::default() };
        if !self.faults.is_active() || !self.fault_in_completion(completion, entry) {
            self.post(completion, entry);
        }
        self.fetch();
    }

    /// Posts a completion entry. A host that cannot be reached is the end of the controller.
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
        let woken = if is_admin { arrival } else { self.wake(arrival) };
        let accepted = self.media.accept(woken, false);
        let work = if is_admin { self.start_admin(index) } else { self.decide(index) };
        let work = match self.faults.is_active() {
            true => self.fault_in_command(index, work),
            false => work,
        };
        let work = match is_admin || !self.device.has_zones {
            true => work,
            false => {
                let placed = self.place_in_zone(index, work);
                placed.unwrap_or_else(|status| Work::Status(refusal(status)))
            }
        };
        self.tasks.get_mut(index).work = work;
        let name = self.tasks.name(index);
        match work {
            Work::Read { space, offset, len, .. } => {
                let Some(space) = self.device.space(space) else { return };
                let span = Span {
                    address: space.base() + offset,
                    len: u64::from(len),
                    limit: space.base() + space.size,
                };
                let ready = self.media.read(span, accepted);
                self.tasks.get_mut(index).ready = ready;
                self.clock.at(ready.first, Event::Ready(name));
            }
            Work::Write { .. } | Work::Copy { .. } | Work::Flush => {
                self.clock.at(accepted, Event::Accepted(name));
            }
            Work::Control | Work::Settle | Work::Status(_) => {
                let end = self.media.answer(accepted);
                self.clock.at(end, Event::Complete(name));
            }
        }
    }

    /// What happens with an admin command when it arrives: requests for events only wait.
    fn start_admin(&mut self, index: u16) -> Work {
        let opcode = AdminOpcode::from_bits(self.tasks.get(index).command.opcode);
        if opcode == AdminOpcode::AsyncEvent {
            return self.accept_event_request();
        }
        Work::Control
    }

    /// The firmware takes up a write or a flush.
    pub(super) fn accepted(&mut self, name: TaskRef) {
        if !self.tasks.is_current(name) {
            return;
        }
        match self.tasks.get(name.index).work {
            Work::Write { len, .. } => {
                if !self.writes.is_empty() || !self.media.admit(u64::from(len)) {
                    self.writes.push_back(name);
                    self.program();
                } else {
                    self.receive_data(name, len);
                }
            }
            Work::Copy { .. } => self.begin_copy(name),
            _ => self.wait_for_medium(name),
        }
    }

    fn receive_data(&mut self, name: TaskRef, len: u32) {
        let end = self.media.receive(self.clock.nanos(), u64::from(len));
        self.clock.at(end, Event::Arrived(name, len));
    }

    /// The data of a write is in the write buffer. If the command has been taken away meanwhile,
    /// its room is free again.
    #[inline]
    pub(super) fn data_arrived(&mut self, name: TaskRef, len: u32) {
        let bytes = u64::from(len);
        if !self.tasks.is_current(name) {
            self.media.release(bytes);
            return self.admit_writes();
        }
        let slc = self.device.slc_used + bytes <= self.profile.slc_bytes;
        if slc {
            self.device.slc_used += bytes;
        }
        self.media.arrived(bytes, slc);
        self.program();
        self.complete(name);
    }

    /// The first data of a read is there: sends it, unless nobody wants it.
    #[inline]
    pub(super) fn send_data(&mut self, name: TaskRef) {
        if !self.tasks.is_current(name) {
            return;
        }
        let task = self.tasks.get(name.index);
        if let Work::Copy { len, .. } = task.work {
            return self.buffer_copy(name, len);
        }
        let Work::Read { len, purpose, .. } = task.work else { return };
        let (ready, now) = (task.ready, self.clock.nanos());
        let end = match purpose {
            Purpose::Read => self.media.send(ready, len.into()),
            Purpose::Compare => self.media.receive(ready.last.max(now), len.into()),
            Purpose::Verify => self.media.answer(ready.last.max(now)),
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
            if self.faults.is_active() && self.fault_at_end(name) {
                return;
            }
            self.device.power.used(self.clock.nanos());
            if let Some(processor) = &mut self.processor {
                let now = self.clock.nanos();
                let told = processor.complete(self.tasks.get(index).kind(), now);
                self.tasks.get_mut(index).done = Some(now);
                return self.clock.at(told, Event::Complete(name));
            }
        }
        match self.tasks.get(index).work {
            Work::Read { space, offset, len, purpose: Purpose::Read } => {
                self.complete_read(index, (space, offset, len));
            }
            Work::Read { space, offset, len, purpose: Purpose::Compare } => {
                self.complete_compare(index, (space, offset, len));
            }
            Work::Read { .. } | Work::Settle => self.finish(index, 0, 0),
            Work::Write { .. } => self.complete_write(name),
            Work::Copy { .. } => self.complete_copy(name),
            Work::Flush => self.complete_flush(index),
            Work::Status(status) => self.finish(index, status, 0),
            Work::Control if self.tasks.get(index).queue == 0 => self.administer(index),
            Work::Control => self.carry_out(index),
        }
    }

    #[inline]
    fn complete_read(&mut self, index: u16, (space, offset, len): (u8, u64, u32)) {
        let task = self.tasks.get(index);
        let Some(Some(space)) = self.device.spaces.get_mut(usize::from(space)) else {
            return self.finish(index, refusal(Status::InvalidNamespace), 0);
        };
        let sizes = (self.registers.page, u64::from(len));
        let parts = Parts::new(&self.memory, &task.command, sizes, true);
        let copied =
            copy(parts, |done, (region, at), len| space.store.read(offset + done, region, at, len));
        self.device.health.read(len);
        let status = match copied {
            Ok(()) => 0,
            Err(Failed::Transfer(status)) => refusal(status),
            Err(Failed::Store | Failed::Full) => self.media_error(Status::UnrecoveredRead),
        };
        self.finish(index, status, 0);
    }

    fn complete_compare(&mut self, index: u16, (space, offset, len): (u8, u64, u32)) {
        let task = self.tasks.get(index);
        let sizes = (self.registers.page, u64::from(len));
        let Some(Some(space)) = self.device.spaces.get_mut(usize::from(space)) else {
            return self.finish(index, refusal(Status::InvalidNamespace), 0);
        };
        let parts = Parts::new(&self.memory, &task.command, sizes, false);
        let (mut ours, mut theirs, mut equal) = ([0; COMPARED], [0; COMPARED], true);
        let copied = copy(parts, |done, (region, at), len| {
            for step in (0..len).step_by(COMPARED) {
                let size = COMPARED.min(len - step);
                space.store.get(offset + done + step as u64, &mut ours[..size])?;
                region.read(at + step, &mut theirs[..size]);
                equal &= ours[..size] == theirs[..size];
            }
            Ok(())
        });
        let status = match copied {
            Ok(()) if equal => 0,
            Ok(()) => refusal(Status::CompareFailure),
            Err(Failed::Transfer(status)) => refusal(status),
            Err(Failed::Store | Failed::Full) => self.media_error(Status::UnrecoveredRead),
        };
        self.finish(index, status, 0);
    }

    /// The data of a write is in the write buffer and goes into the store.
    fn complete_write(&mut self, name: TaskRef) {
        let index = name.index;
        let task = self.tasks.get(index);
        let Work::Write { space: number, offset, len, force } = task.work else { return };
        let bytes = u64::from(len);
        let mark = self.media.arrived_total();
        let device = &mut self.device;
        let Some(Some(space)) = device.spaces.get_mut(usize::from(number)) else {
            return self.finish(index, refusal(Status::InvalidNamespace), 0);
        };
        let mut kept = Ok(());
        if device.cache.is_enabled() {
            let of = (number, space.shift);
            kept = device.cache.keep(of, &mut space.store, (offset, bytes), mark);
        }
        let sizes = (self.registers.page, bytes);
        let parts = Parts::new(&self.memory, &task.command, sizes, false);
        let copied = copy(parts, |done, (region, at), len| {
            space.store.write(offset + done, region, at, len)
        });
        space.marks.remove(offset, bytes);
        device.health.wrote(len);
        let force = force || !device.features.write_cache();
        match copied.and(kept.map_err(Failed::from)) {
            Ok(()) if force => {
                self.tasks.get_mut(index).work = Work::Settle;
                self.wait_for_medium(name);
            }
            Ok(()) => self.finish(index, 0, 0),
            Err(Failed::Transfer(status)) => self.finish(index, refusal(status), 0),
            Err(Failed::Store) => {
                let status = self.media_error(Status::WriteFault);
                self.finish(index, status, 0);
            }
            Err(Failed::Full) => self.finish(index, refusal(Status::CapacityExceeded), 0),
        }
    }

    /// Everything is on the medium: it goes to stable storage of this machine, too.
    fn complete_flush(&mut self, index: u16) {
        let mut flushed = Ok(());
        for space in self.device.spaces.iter_mut().flatten() {
            flushed = flushed.and(space.store.flush());
        }
        let status = flushed.map_or(Status::Internal.into_bits(), |()| 0);
        self.finish(index, status, 0);
    }

    /// The medium failed: counts it, and tells the status to end with.
    pub(super) fn media_error(&mut self, status: Status) -> u16 {
        self.device.health.media_errors += 1;
        refusal(status)
    }

    /// Keeps `name` until everything that has arrived is on the medium.
    pub(super) fn wait_for_medium(&mut self, name: TaskRef) {
        let watermark = self.media.arrived_total();
        self.flushes.push((name, watermark));
        self.program();
        self.end_flushes();
    }

    /// Starts as many program operations as there are data and dies; with nothing else to do,
    /// moves data from the SLC area to TLC.
    pub(super) fn program(&mut self) {
        let now = self.clock.nanos();
        // Nobody waits for more data to fill a program unit when a flush waits, or when a write
        // waits for the room of what lies there.
        let stalled = !self.writes.is_empty() && self.media.is_resting();
        let shuts = self.registers.csts.shst() != 0;
        let partial = stalled || shuts || !self.flushes.is_empty();
        while let Some(started) = self.media.program(now, partial) {
            self.clock.at(started.end, Event::Die(started.die));
        }
        let limit = self.media.unit(Program::Flush);
        while self.device.slc_used > 0 && self.tasks.held() == 0 {
            let bytes = self.device.slc_used.min(limit);
            let Some(started) = self.media.flush_slc(now, bytes) else { return };
            self.device.slc_used -= bytes;
            self.clock.at(started.end, Event::Die(started.die));
        }
    }

    pub(super) fn die_done(&mut self, die: u16) {
        if let Err(end) = self.media.programmed(die, self.clock.nanos()) {
            return self.clock.at(end, Event::Die(die));
        }
        self.device.cache.programmed(self.media.programmed_total());
        self.program();
        self.admit_writes();
        self.end_flushes();
        self.look_at_shutdown();
    }

    /// Lets waiting writes send their data as far as there is room.
    pub(super) fn admit_writes(&mut self) {
        while let Some(&name) = self.writes.front() {
            let work = self.tasks.get(name.index).work;
            let (Work::Write { len, .. } | Work::Copy { len, .. }) = work else { break };
            if !self.media.admit(u64::from(len)) {
                break;
            }
            self.writes.pop_front();
            match work {
                Work::Copy { .. } => self.clock.after(0, Event::Arrived(name, len)),
                _ => self.receive_data(name, len),
            }
        }
    }

    fn end_flushes(&mut self) {
        let programmed = self.media.programmed_total();
        let mut at = 0;
        while at < self.flushes.len() {
            if self.flushes[at].1 > programmed {
                at += 1;
                continue;
            }
            let (name, _) = self.flushes.remove(at);
            let end = self.media.answer(self.clock.nanos());
            self.clock.at(end, Event::Complete(name));
        }
    }

    /// Takes a task that is about to end otherwise off the lists of those that wait.
    pub(super) fn forget_waits(&mut self, index: u16) {
        self.writes.retain(|name| name.index != index);
        self.flushes.retain(|(name, _)| name.index != index);
        self.told.forget(index);
        self.tasks.get_mut(index).state = State::Active;
    }
}
