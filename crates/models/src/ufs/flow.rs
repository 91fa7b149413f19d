//! Commands on their way through the device: UPIU in, media, data, answer out.

use flysch_wire::scsi::{AdditionalSense, Cdb, SenseKey, Status};
use flysch_wire::ufs::query::{CurrentPowerMode, PINNED_GROUP};
use flysch_wire::ufs::upiu::{CommandFlags, CommandUpiu, Header, NopIn, Reject, TransactionCode};
use flysch_wire::ufs::utrd::Ocs;

use super::agenda::Event;
use super::answer::Answer;
use super::device::Device;
use super::exchange::{Exchange, Failed};
use super::inject::Upset;
use super::query::Query;
use super::scsi::Nexus;
use super::sense::Sense;
use super::task::{Task, TaskRef, Work};
use crate::media::Span;

/// Number of bytes written between two checks of the exception events.
const EXCEPTION_CHECK: u64 = 64 << 20;

impl Device {
    /// A request UPIU has reached the device.
    #[inline]
    pub(super) fn receive(&mut self, index: u16, x: &mut Exchange) {
        let now = x.now();
        let arrival = match &mut self.processor {
            Some(processor) => processor.submit(x.tasks.get(index).kind(), now),
            None => now,
        };
        let accepted = self.backend.media.accept(arrival, x.tasks.held == 1);
        let task = x.tasks.get_mut(index);
        task.is_command = task.holds_command();
        if task.is_command {
            return self.receive_command(index, accepted, x);
        }
        task.work = Work::Transport;
        self.backend.answer_later(index, accepted, x);
    }

    /// A SCSI command: its effect is decided here; its timing follows from the media.
    fn receive_command(&mut self, index: u16, accepted: u64, x: &mut Exchange) {
        let Ok(unit) = CommandUpiu::parse(&x.tasks.get(index).request) else { return };
        if self.build.depths.are_full(index, &x.tasks) {
            x.tasks.get_mut(index).work = Work::Status(Status::TaskSetFull);
            return self.backend.answer_later(index, accepted, x);
        }
        if !self.order.hold_back(index, unit.flags().attr(), &mut x.tasks) {
            self.start_command(index, &unit, accepted, x);
        }
    }

    /// Starts a command that no older one holds back.
    #[inline]
    fn start_command(&mut self, index: u16, unit: &CommandUpiu, accepted: u64, x: &mut Exchange) {
        let work = self.decide(index, &Cdb::parse(&unit.cdb), x);
        let expected = expected_length(unit, &work);
        let task = x.tasks.get_mut(index);
        task.expected = expected;
        task.work = work;
        let name = x.tasks.name(index);
        match work {
            Work::Read { unit, offset, len } => {
                let unit = self.units.get(unit).expect("checked when decided");
                let span = Span {
                    address: unit.base + offset,
                    len: u64::from(len),
                    limit: unit.base + unit.size,
                };
                let ready = self.backend.media.read(span, accepted);
                x.tasks.get_mut(index).ready = ready;
                x.agenda.at(ready.first, Event::Ready(name));
            }
            Work::Write { .. } | Work::Flush { .. } | Work::Power { .. } => {
                x.agenda.at(accepted, Event::Accepted(name));
            }
            Work::Control
            | Work::Fail(_)
            | Work::Status(_)
            | Work::Settle { .. }
            | Work::Transport => {
                self.backend.answer_later(index, accepted, x);
            }
        }
    }

    /// What the command in task `index` will do.
    #[inline]
    fn decide(&mut self, index: u16, cdb: &Cdb, x: &mut Exchange) -> Work {
        let lun = x.tasks.get(index).lun;
        let work = Nexus::new(self, lun, x.now()).decide(cdb).unwrap_or_else(Work::Fail);
        if x.faults.is_active() {
            let shift = |lun| self.units.get(lun).map(|unit| unit.block_shift);
            return x.fault_in_command(index, &work, shift).unwrap_or(work);
        }
        work
    }

    /// A command has ended: starts those that waited for it.
    #[inline]
    pub(super) fn start_held_back(&mut self, x: &mut Exchange) {
        if self.order.is_waited_for() {
            while let Some(name) = self.order.next(&mut x.tasks) {
                self.start_held(name, x);
            }
            self.order.settle(&x.tasks);
        }
    }

    fn start_held(&mut self, name: TaskRef, x: &mut Exchange) {
        let Ok(unit) = CommandUpiu::parse(&x.tasks.get(name.index).request) else { return };
        let accepted = self.backend.media.accept(x.now(), false);
        self.start_command(name.index, &unit, accepted, x);
    }

    /// The firmware takes up a write, a flush or a change of power mode.
    pub(super) fn accepted(&mut self, name: TaskRef, x: &mut Exchange) {
        if !x.tasks.is_current(name) {
            return;
        }
        match x.tasks.get(name.index).work {
            Work::Write { len, .. } => {
                if self.backend.take_write(name, len, x) {
                    self.program(x);
                }
            }
            _ => self.wait_for_medium(name, x),
        }
    }

    /// The data of a write is in the write buffer: returns how the command ends, if it does. If the
    /// command was taken away meanwhile, its room is freed.
    #[inline]
    pub(super) fn data_arrived(
        &mut self,
        name: TaskRef,
        len: u32,
        x: &mut Exchange,
    ) -> Option<Ocs> {
        let bytes = u64::from(len);
        let task = x.tasks.get(name.index);
        let backend = &mut self.backend;
        let (true, Work::Write { unit, .. }) = (x.tasks.is_current(name), task.work) else {
            backend.media.release(bytes);
            backend.admit_writes(x);
            return None;
        };
        let pinned = backend.write_booster.pins() && is_pinned(task);
        let slc = backend.write_booster.takes(unit, bytes, pinned);
        backend.background.wrote(bytes);
        backend.media.arrived(bytes, slc);
        let total = backend.media.arrived_total();
        if slc || total / EXCEPTION_CHECK != (total - bytes) / EXCEPTION_CHECK {
            self.update_alert(x.now());
        }
        self.program(x);
        self.complete(name, x)
    }

    /// The first data of a read is available: sends it.
    #[inline]
    pub(super) fn send_data(&mut self, name: TaskRef, x: &mut Exchange) {
        if !x.tasks.is_current(name) {
            return;
        }
        let task = x.tasks.get(name.index);
        let Work::Read { len, .. } = task.work else { return };
        let end = self.backend.media.send(task.ready, u64::from(len));
        x.agenda.at(end, Event::Complete(name));
    }

    /// A command has run its course: returns how it ends, unless it continues or something delays
    /// its end.
    #[inline]
    pub(super) fn complete(&mut self, name: TaskRef, x: &mut Exchange) -> Option<Ocs> {
        if !x.tasks.is_current(name) {
            return None;
        }
        let index = name.index;
        if x.tasks.get(index).done.is_none() {
            if x.faults.is_active() {
                match x.fault_at_end(name) {
                    Some(Upset::Late) => return None,
                    Some(Upset::Ends(ocs)) => return Some(ocs),
                    None => {}
                }
            }
            let now = x.now();
            self.backend.media.rests(now);
            if let Some(processor) = &mut self.processor {
                x.tasks.get_mut(index).done = Some(now);
                let told = processor.complete(x.tasks.get(index).kind(), now);
                x.agenda.at(told, Event::Complete(name));
                return None;
            }
        }
        Some(match x.tasks.get(index).work {
            Work::Read { unit, offset, len } => self.complete_read(index, (unit, offset), len, x),
            Work::Write { .. } => return self.complete_write(name, x),
            Work::Settle { len } => self.answer(index, x).good(len),
            Work::Flush { unit } => self.complete_flush(index, unit, x),
            Work::Power { mode } => self.complete_power(index, mode, x),
            Work::Transport => self.answer_transport(index, x),
            Work::Control => self.control(index, x),
            Work::Fail(sense) => self.answer(index, x).fail(sense),
            Work::Status(status) => self.answer(index, x).status(status, 0),
        })
    }

    #[inline]
    fn complete_read(
        &mut self,
        index: u16,
        (unit, offset): (u8, u64),
        len: u32,
        x: &mut Exchange,
    ) -> Ocs {
        let moved = u64::from(len.min(x.tasks.get(index).expected));
        let unit = self.units.get_mut(unit).expect("units change only while no task lives");
        match x.send(index, (unit, offset), moved) {
            Ok(()) => self.answer(index, x).good(len),
            Err(Failed::Transfer(ocs)) => ocs,
            Err(Failed::Store | Failed::Full) => {
                let lba = offset >> unit.block_shift;
                self.answer(index, x)
                    .fail(Sense::medium(AdditionalSense::UnrecoveredReadError, lba))
            }
        }
    }

    /// The data of a write is in the write buffer and goes into the store.
    fn complete_write(&mut self, name: TaskRef, x: &mut Exchange) -> Option<Ocs> {
        let index = name.index;
        let task = x.tasks.get(index);
        let Work::Write { unit: number, offset, len, force } = task.work else { return None };
        let bytes = u64::from(len);
        let moved = bytes.min(u64::from(task.expected));
        let mark = self.backend.media.arrived_total();
        let unit = self.units.get_mut(number).expect("units change only while no task lives");
        let force = force || !unit.write_cache;
        let mut kept = Ok(());
        if self.backend.cache.is_enabled() {
            let of = (number, unit.block_shift);
            kept = self.backend.cache.keep(of, &mut unit.store, (offset, bytes), mark);
        }
        let copied = x.receive(index, (unit, offset), moved);
        let lba = offset >> unit.block_shift;
        match copied.and(kept.map_err(Failed::from)) {
            Ok(()) if force => {
                self.upkeep.rewritten(&mut self.units, (number, offset, bytes));
                x.tasks.get_mut(index).work = Work::Settle { len };
                self.wait_for_medium(name, x);
                None
            }
            Ok(()) => {
                self.upkeep.rewritten(&mut self.units, (number, offset, bytes));
                Some(self.answer(index, x).good(len))
            }
            Err(Failed::Transfer(ocs)) => Some(ocs),
            Err(Failed::Store) => {
                Some(self.answer(index, x).fail(Sense::medium(AdditionalSense::WriteError, lba)))
            }
            Err(Failed::Full) => Some(self.answer(index, x).fail(Sense::full())),
        }
    }

    fn complete_flush(&mut self, index: u16, unit: u8, x: &Exchange) -> Ocs {
        let unit = self.units.get_mut(unit).expect("units change only while no task lives");
        match unit.store.flush() {
            Ok(()) => self.answer(index, x).good(0),
            Err(_) => {
                let key = SenseKey::HardwareError;
                self.answer(index, x).fail(Sense::new(key, AdditionalSense::InternalTargetFailure))
            }
        }
    }

    fn complete_power(&mut self, index: u16, mode: CurrentPowerMode, x: &Exchange) -> Ocs {
        if self.readiness.change_mode(mode) {
            self.meter_state(x);
            self.answer(index, x).good(0)
        } else {
            let key = SenseKey::NotReady;
            self.answer(index, x)
                .fail(Sense::new(key, AdditionalSense::InitializingCommandRequired))
        }
    }

    /// Answers a UPIU that is not a command.
    fn answer_transport(&mut self, index: u16, x: &mut Exchange) -> Ocs {
        let task = x.tasks.get(index);
        let mut bytes = [0; 32];
        match Header::parse(&task.request).code() {
            TransactionCode::NopOut => NopIn::new(task.tag).emit(&mut bytes),
            TransactionCode::QueryRequest => return Query::answer(self, index, x),
            _ => Reject::new(task.lun, task.tag, 0).emit(&mut bytes),
        }
        x.answer(index, &bytes)
    }

    /// Builds the answer of the command in task `index`.
    #[inline]
    pub(super) fn answer<'x>(&self, index: u16, x: &'x Exchange) -> Answer<'x> {
        Answer { x, index, alert: self.exceptions.alert() }
    }

    /// Keeps `name` until everything that has arrived is on the medium.
    fn wait_for_medium(&mut self, name: TaskRef, x: &mut Exchange) {
        self.backend.wait_for_medium(name);
        self.program(x);
        self.backend.end_flushes(self.readiness.mode(), x);
    }

    /// Starts everything that the medium can take up now.
    #[inline]
    pub(super) fn program(&mut self, x: &mut Exchange) {
        if self.backend.program(x) {
            self.update_alert(x.now());
        }
    }

    /// Auto-hibern8 may have begun.
    pub(super) fn idle(&mut self, x: &mut Exchange) {
        self.backend.is_idle();
        self.program(x);
    }

    /// A die may have finished programming.
    pub(super) fn die_done(&mut self, die: u16, x: &mut Exchange) {
        if self.backend.die_done(die, x) {
            self.program(x);
            self.backend.admit_writes(x);
            self.backend.end_flushes(self.readiness.mode(), x);
        }
    }

    /// A WriteBooster buffer may have its new size.
    pub(super) fn resize_booster(&mut self, x: &mut Exchange) {
        let (now, busy) = (x.now(), x.tasks.has_commands());
        let booster = &mut self.backend.write_booster;
        booster.resize(now, busy);
        if let Some(at) = booster.resize_at() {
            x.agenda.at(at, Event::Resize);
        }
        self.update_alert(now);
    }
}

/// Number of bytes that the host expects to move in the direction of the command.
#[inline]
fn expected_length(unit: &CommandUpiu, work: &Work) -> u32 {
    let flags: CommandFlags = unit.flags();
    let announced = match work {
        Work::Read { .. } => flags.r(),
        Work::Write { .. } => flags.w(),
        _ => flags.r() || flags.w(),
    };
    if announced { unit.expected_data_transfer_length } else { 0 }
}

/// Whether the data of this write is to stay in the WriteBooster buffer.
fn is_pinned(task: &Task) -> bool {
    match task.cdb() {
        Some(Cdb::Write10(t) | Cdb::Write16(t)) => t.group == PINNED_GROUP,
        _ => false,
    }
}
