//! Commands on their way through the device: UPIU in, media, data, answer out.

use flysch_wire::scsi::{AdditionalSense, Cdb, SenseKey, Status};
use flysch_wire::ufs::query::{CurrentPowerMode, PINNED_GROUP};
use flysch_wire::ufs::rpmb::AdvancedRpmb;
use flysch_wire::ufs::upiu::{
    self, CommandFlags, CommandUpiu, Header, NopIn, RESPONSE_LENGTH_MAX, Reject, ResponseFlags,
    ResponseUpiu, TransactionCode,
};
use flysch_wire::ufs::utrd::Ocs;

use super::agenda::Event;
use super::device::Device;
use super::exchange::{Exchange, Failed};
use super::inject::Upset;
use super::query::Query;
use super::rpmb::Segment;
use super::scsi::Nexus;
use super::sense::Sense;
use super::task::{Task, TaskRef, Work};
use crate::media::Span;

/// Writes between two looks at the exception events, bytes.
const EXCEPTION_CHECK: u64 = 64 << 20;

impl Device {
    /// A request UPIU has reached the device.
    #[inline]
    pub(super) fn receive(&mut self, index: u16, x: &mut Exchange) {
        let now = x.now();
        let arrival = self.processor.as_mut().map_or(now, |processor| processor.submit(now));
        let accepted = self.backend.media.accept(arrival, x.tasks.held == 1);
        let task = x.tasks.get_mut(index);
        task.is_command = task.holds_command();
        if task.is_command {
            return self.receive_command(index, accepted, x);
        }
        task.work = Work::Transport;
        self.answer_later(index, accepted, x);
    }

    /// Ends the command after the time a command without data takes.
    fn answer_later(&mut self, index: u16, accepted: u64, x: &mut Exchange) {
        let end = self.backend.media.answer(accepted);
        x.agenda.at(end, Event::Complete(x.tasks.name(index)));
    }

    /// A SCSI command: what will happen is decided here, when follows from the media.
    fn receive_command(&mut self, index: u16, accepted: u64, x: &mut Exchange) {
        let Ok(unit) = CommandUpiu::parse(&x.tasks.get(index).request) else { return };
        if self.build.depths.bound && self.is_full(index, x) {
            x.tasks.get_mut(index).work = Work::Status(Status::TaskSetFull);
            return self.answer_later(index, accepted, x);
        }
        if !self.order.hold_back(index, unit.flags().attr(), &mut x.tasks) {
            self.start_command(index, &unit, accepted, x);
        }
    }

    /// Whether the device or the unit has as many commands as it can queue already.
    fn is_full(&self, index: u16, x: &Exchange) -> bool {
        let lun = x.tasks.get(index).lun;
        let (mut all, mut of_unit) = (0, 0);
        for (other, task) in x.tasks.iter() {
            if other != index && task.in_device() && task.is_command {
                all += 1;
                of_unit += u16::from(task.lun == lun);
            }
        }
        let depths = &self.build.depths;
        let unit = depths.units.get(usize::from(lun)).copied().unwrap_or(0);
        (unit != 0 && of_unit >= u16::from(unit)) || all >= u16::from(depths.device)
    }

    /// Starts a command that no older one keeps waiting.
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
                self.answer_later(index, accepted, x);
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

    /// The data of a write is in the write buffer: how the command ends, if it does. If it has
    /// been taken away meanwhile, its room is free again.
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

    /// The first data of a read is there: sends it.
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

    /// A command has run its course: how it ends, unless it goes on or something keeps its end.
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
                x.agenda.at(processor.complete(now), Event::Complete(name));
                return None;
            }
        }
        Some(match x.tasks.get(index).work {
            Work::Read { unit, offset, len } => self.complete_read(index, (unit, offset), len, x),
            Work::Write { .. } => return self.complete_write(name, x),
            Work::Settle { len } => self.respond(index, Status::Good, len, x),
            Work::Flush { unit } => self.complete_flush(index, unit, x),
            Work::Power { mode } => self.complete_power(index, mode, x),
            Work::Transport => self.answer_transport(index, x),
            Work::Control => self.control(index, x),
            Work::Fail(sense) => self.fail(index, sense, x),
            Work::Status(status) => self.respond(index, status, 0, x),
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
            Ok(()) => self.respond(index, Status::Good, len, x),
            Err(Failed::Transfer(ocs)) => ocs,
            Err(Failed::Store | Failed::Full) => {
                let lba = offset >> unit.block_shift;
                self.fail(index, Sense::medium(AdditionalSense::UnrecoveredReadError, lba), x)
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
                self.rewritten(number, offset, bytes);
                x.tasks.get_mut(index).work = Work::Settle { len };
                self.wait_for_medium(name, x);
                None
            }
            Ok(()) => {
                self.rewritten(number, offset, bytes);
                Some(self.respond(index, Status::Good, len, x))
            }
            Err(Failed::Transfer(ocs)) => Some(ocs),
            Err(Failed::Store) => {
                Some(self.fail(index, Sense::medium(AdditionalSense::WriteError, lba), x))
            }
            Err(Failed::Full) => Some(self.fail(index, Sense::full(), x)),
        }
    }

    fn complete_flush(&mut self, index: u16, unit: u8, x: &Exchange) -> Ocs {
        let unit = self.units.get_mut(unit).expect("units change only while no task lives");
        match unit.store.flush() {
            Ok(()) => self.respond(index, Status::Good, 0, x),
            Err(_) => {
                let key = SenseKey::HardwareError;
                self.fail(index, Sense::new(key, AdditionalSense::InternalTargetFailure), x)
            }
        }
    }

    fn complete_power(&mut self, index: u16, mode: CurrentPowerMode, x: &Exchange) -> Ocs {
        if self.readiness.change_mode(mode) {
            self.meter_state(x);
            self.respond(index, Status::Good, 0, x)
        } else {
            let key = SenseKey::NotReady;
            self.fail(index, Sense::new(key, AdditionalSense::InitializingCommandRequired), x)
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

    /// The answer to a SCSI command, of which the device had to move or took `moved` bytes.
    #[inline]
    fn response(&self, task: &Task, status: Status, moved: u32) -> ResponseUpiu {
        let mut unit = ResponseUpiu::new(task.lun, task.tag, status.into_bits());
        unit.header.iid = task.iid & 0xF;
        unit.header.function = task.iid & 0xF0;
        unit.header.device_information.set_event_alert(self.exceptions.alert());
        if moved != task.expected {
            let under = moved < task.expected;
            unit.residual_transfer_count = moved.abs_diff(task.expected);
            if !task.bare_residual {
                unit.header.flags = ResponseFlags::new().with_u(under).with_o(!under).into_bits();
            }
        }
        unit
    }

    /// Answers a SCSI command: `moved` is what the device had to move or took.
    #[inline]
    pub(super) fn respond(&self, index: u16, status: Status, moved: u32, x: &Exchange) -> Ocs {
        let mut bytes = [0; upiu::LENGTH];
        self.response(x.tasks.get(index), status, moved).emit(&mut bytes);
        x.answer(index, &bytes)
    }

    /// Ends a command with CHECK CONDITION.
    pub(super) fn fail(&self, index: u16, sense: Sense, x: &Exchange) -> Ocs {
        let unit = self.response(x.tasks.get(index), Status::CheckCondition, 0);
        let mut bytes = [0; RESPONSE_LENGTH_MAX];
        let len = unit.emit_with_sense(&sense.to_fixed(), &mut bytes);
        x.answer(index, &bytes[..len])
    }

    /// Answers a SCSI command that went well, with an extra header segment.
    pub(super) fn respond_with_segment(
        &self,
        index: u16,
        segment: &Segment,
        moved: u32,
        x: &Exchange,
    ) -> Ocs {
        let mut unit = self.response(x.tasks.get(index), Status::Good, moved);
        unit.header.ehs_length = AdvancedRpmb::EHS_LENGTH;
        let mut bytes = [0; upiu::LENGTH + AdvancedRpmb::LENGTH];
        let (head, rest) = bytes.split_at_mut(upiu::LENGTH);
        unit.emit(head.first_chunk_mut().expect("as long as a unit"));
        rest.copy_from_slice(segment);
        x.answer(index, &bytes)
    }

    /// Keeps `name` until everything that has arrived is on the medium.
    fn wait_for_medium(&mut self, name: TaskRef, x: &mut Exchange) {
        self.backend.wait_for_medium(name);
        self.program(x);
        self.backend.end_flushes(self.readiness.mode(), x);
    }

    /// Starts whatever the medium can take up now.
    #[inline]
    pub(super) fn program(&mut self, x: &mut Exchange) {
        if self.backend.program(x) {
            self.update_alert(x.now());
        }
    }

    /// Auto-hibern8 may have set in.
    pub(super) fn idle(&mut self, x: &mut Exchange) {
        self.backend.is_idle();
        self.program(x);
    }

    /// A die may be done programming.
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

/// What the host expects to move in the direction the command has.
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
