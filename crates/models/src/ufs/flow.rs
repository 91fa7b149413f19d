//! Commands on their way through the device: UPIU in, media, data, answer out.

use flysch_api::machine::{DmaRegion, OutOfRange};
use flysch_wire::scsi::{AdditionalSense, Cdb, SenseKey, Status};
use flysch_wire::ufs::query::PINNED_GROUP;
use flysch_wire::ufs::rpmb::AdvancedRpmb;
use flysch_wire::ufs::upiu::{
    self, CommandFlags, CommandUpiu, Header, NopIn, RESPONSE_LENGTH_MAX, Reject, ResponseFlags,
    ResponseUpiu, TransactionCode,
};
use flysch_wire::ufs::utrd::Ocs;

use super::device::Waiting;
use super::inject::cdb_of;
use super::parameters::Reset;
use super::power;
use super::rpmb::Segment;
use super::sense::Sense;
use super::task::{TaskRef, Work};
use super::transfer::{Part, Parts};
use super::{Event, Ufs};
use crate::media::{Program, Span};
use crate::store::StoreError;

/// Writes between two looks at the exception events, bytes.
const EXCEPTION_CHECK: u64 = 64 << 20;

impl Ufs {
    /// The device starts afresh.
    pub(super) fn reset_device(&mut self, reset: Reset) {
        self.drop_tasks(|_| true);
        self.device.start_over(reset, self.now.nanos());
        self.meter_state();
    }

    /// A request UPIU has reached the device.
    #[inline]
    pub(super) fn receive_upiu(&mut self, index: u16) {
        let task = self.tasks.get_mut(index);
        let header = Header::parse(&task.request);
        task.lun = header.lun;
        task.tag = header.task_tag;
        task.iid = header.function & 0xF0 | header.iid;
        if self.registers.mode.qt() {
            task.slot = header.task_tag;
        }
        if self.faults.is_active() && self.fault_at_start(index) {
            return;
        }
        let now = self.now.nanos();
        let arrival = self.processor.as_mut().map_or(now, |processor| processor.submit(now));
        let accepted = self.media.accept(arrival, self.tasks.held == 1);
        let is_command = header.code() == TransactionCode::Command;
        self.tasks.get_mut(index).is_command = is_command;
        if is_command {
            return self.receive_command(index, accepted);
        }
        self.tasks.get_mut(index).work = Work::Transport;
        self.answer_later(index, accepted);
    }

    /// Ends the command after the time a command without data takes.
    fn answer_later(&mut self, index: u16, accepted: u64) {
        let end = self.media.answer(accepted);
        let name = self.tasks.name(index);
        self.at(end, Event::Complete(name));
    }

    /// A SCSI command: what will happen is decided here, when follows from the media.
    fn receive_command(&mut self, index: u16, accepted: u64) {
        let task = self.tasks.get(index);
        let Ok(unit) = CommandUpiu::parse(&task.request) else { return };
        if self.device.depths.bound && self.is_full(index) {
            self.tasks.get_mut(index).work = Work::Status(Status::TaskSetFull);
            return self.answer_later(index, accepted);
        }
        if !self.hold_back(index, unit.flags().attr()) {
            self.start_command(index, &unit, accepted);
        }
    }

    /// Whether the device or the unit has as many commands as it can queue already.
    fn is_full(&self, index: u16) -> bool {
        let lun = self.tasks.get(index).lun;
        let (mut all, mut of_unit) = (0, 0);
        for (other, task) in self.tasks.iter() {
            if other != index && task.in_device() && task.is_command {
                all += 1;
                of_unit += u16::from(task.lun == lun);
            }
        }
        let unit = self.device.depths.units.get(usize::from(lun)).copied().unwrap_or(0);
        (unit != 0 && of_unit >= u16::from(unit)) || all >= u16::from(self.device.depths.device)
    }

    /// Starts a command that no older one keeps waiting.
    #[inline]
    pub(super) fn start_command(&mut self, index: u16, unit: &CommandUpiu, accepted: u64) {
        let work = self.decide(index, &Cdb::parse(&unit.cdb));
        let expected = expected_length(unit, &work);
        let task = self.tasks.get_mut(index);
        task.expected = expected;
        task.work = work;
        let name = self.tasks.name(index);
        match work {
            Work::Read { unit, offset, len } => {
                let unit = self.device.unit(unit).expect("checked when decided");
                let span = Span {
                    address: unit.base + offset,
                    len: u64::from(len),
                    limit: unit.base + unit.size,
                };
                let ready = self.media.read(span, accepted);
                self.tasks.get_mut(index).ready = ready;
                self.at(ready.first, Event::Ready(name));
            }
            Work::Write { .. } | Work::Flush { .. } | Work::Power { .. } => {
                self.at(accepted, Event::Accepted(name));
            }
            Work::Control
            | Work::Fail(_)
            | Work::Status(_)
            | Work::Settle { .. }
            | Work::Transport => {
                self.answer_later(index, accepted);
            }
        }
    }

    /// The firmware takes up a write, a flush or a change of power mode.
    pub(super) fn accepted(&mut self, name: TaskRef) {
        if !self.tasks.is_current(name) {
            return;
        }
        match self.tasks.get(name.index).work {
            Work::Write { len, .. } => {
                if !self.device.writes.is_empty() || !self.media.admit(u64::from(len)) {
                    self.device.writes.push_back(name);
                    self.program();
                } else {
                    self.receive_data(name, len);
                }
            }
            _ => self.wait_for_medium(name),
        }
    }

    fn receive_data(&mut self, name: TaskRef, len: u32) {
        let end = self.media.receive(self.now.nanos(), u64::from(len));
        self.at(end, Event::Arrived(name, len));
    }

    /// The data of a write is in the write buffer. If the command has been taken away meanwhile,
    /// its room is free again.
    #[inline]
    pub(super) fn data_arrived(&mut self, name: TaskRef, len: u32) {
        let bytes = u64::from(len);
        let work = self.tasks.get(name.index).work;
        let (true, Work::Write { unit, .. }) = (self.tasks.is_current(name), work) else {
            self.media.release(bytes);
            return self.admit_writes();
        };
        let pinned = self.device.write_booster.pins() && self.is_pinned(name.index);
        let slc = self.device.write_booster.takes(unit, bytes, pinned);
        self.device.background.wrote(bytes);
        self.media.arrived(bytes, slc);
        let total = self.media.arrived_total();
        if slc || total / EXCEPTION_CHECK != (total - bytes) / EXCEPTION_CHECK {
            self.device.update_alert(self.now.nanos());
        }
        self.program();
        self.complete(name);
    }

    /// Whether the data of this write is to stay in the WriteBooster buffer.
    fn is_pinned(&self, index: u16) -> bool {
        match cdb_of(&self.tasks.get(index).request) {
            Some(Cdb::Write10(t) | Cdb::Write16(t)) => t.group == PINNED_GROUP,
            _ => false,
        }
    }

    /// The first data of a read is there: sends it.
    #[inline]
    pub(super) fn send_data(&mut self, name: TaskRef) {
        if !self.tasks.is_current(name) {
            return;
        }
        let task = self.tasks.get(name.index);
        let Work::Read { len, .. } = task.work else { return };
        let end = self.media.send(task.ready, u64::from(len));
        self.at(end, Event::Complete(name));
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
            self.media.rests(self.now.nanos());
            if let Some(processor) = &mut self.processor {
                let now = self.now.nanos();
                let told = processor.complete(now);
                self.tasks.get_mut(index).done = Some(now);
                return self.at(told, Event::Complete(name));
            }
        }
        match self.tasks.get(index).work {
            Work::Read { unit, offset, len } => self.complete_read(index, unit, offset, len),
            Work::Write { .. } => self.complete_write(name),
            Work::Settle { len } => self.respond(index, Status::Good, None, len),
            Work::Flush { unit } => self.complete_flush(index, unit),
            Work::Power { mode } => self.complete_power(index, mode),
            Work::Transport => self.answer_transport(index),
            Work::Control => self.control(index),
            Work::Fail(sense) => self.fail(index, sense),
            Work::Status(status) => self.respond(index, status, None, 0),
        }
    }

    /// Ends a command with CHECK CONDITION.
    pub(super) fn fail(&mut self, index: u16, sense: Sense) {
        self.respond(index, Status::CheckCondition, Some(sense), 0);
    }

    #[inline]
    fn complete_read(&mut self, index: u16, unit: u8, offset: u64, len: u32) {
        let task = self.tasks.get(index);
        let moved = u64::from(len.min(task.expected));
        let unit = self.device.unit_mut(unit).expect("units change only while no task lives");
        let memory = &self.memory;
        let copied = match task.crypto {
            None => copy(Parts::new(memory, task, moved), true, |done, (region, at), len| {
                unit.store.read(offset + done, region, at, len)
            }),
            Some(key) => self.crypto.decrypt(key, (&mut unit.store, offset), (memory, task), moved),
        };
        match copied {
            Ok(()) => self.respond(index, Status::Good, None, len),
            Err(Failed::Transfer(ocs)) => self.finish(index, ocs),
            Err(Failed::Store | Failed::Full) => {
                let lba = offset >> unit.block_shift;
                self.fail(index, Sense::medium(AdditionalSense::UnrecoveredReadError, lba));
            }
        }
    }

    /// The data of a write is in the write buffer and goes into the store.
    fn complete_write(&mut self, name: TaskRef) {
        let index = name.index;
        let task = self.tasks.get(index);
        let Work::Write { unit: number, offset, len, force } = task.work else { return };
        let bytes = u64::from(len);
        let mark = self.media.arrived_total();
        let moved = bytes.min(u64::from(task.expected));
        let device = &mut self.device;
        let unit = device.units[usize::from(number)].as_mut();
        let unit = unit.expect("units change only while no task lives");
        let force = force || !unit.write_cache;
        let mut kept = Ok(());
        if device.cache.is_enabled() {
            let of = (number, unit.block_shift);
            kept = device.cache.keep(of, &mut unit.store, (offset, bytes), mark);
        }
        let memory = &self.memory;
        let copied = match task.crypto {
            None => copy(Parts::new(memory, task, moved), false, |done, (region, at), len| {
                unit.store.write(offset + done, region, at, len)
            }),
            Some(key) => self.crypto.encrypt(key, (&mut unit.store, offset), (memory, task), moved),
        };
        let lba = offset >> unit.block_shift;
        match copied.and(kept.map_err(Failed::from)) {
            Ok(()) if force => {
                self.device.rewritten(number, offset, bytes);
                self.tasks.get_mut(index).work = Work::Settle { len };
                self.wait_for_medium(name);
            }
            Ok(()) => {
                self.device.rewritten(number, offset, bytes);
                self.respond(index, Status::Good, None, len);
            }
            Err(Failed::Transfer(ocs)) => self.finish(index, ocs),
            Err(Failed::Store) => {
                self.fail(index, Sense::medium(AdditionalSense::WriteError, lba));
            }
            Err(Failed::Full) => self.fail(index, Sense::full()),
        }
    }

    fn complete_flush(&mut self, index: u16, unit: u8) {
        let unit = self.device.unit_mut(unit).expect("units change only while no task lives");
        match unit.store.flush() {
            Ok(()) => self.respond(index, Status::Good, None, 0),
            Err(_) => {
                let key = SenseKey::HardwareError;
                self.fail(index, Sense::new(key, AdditionalSense::InternalTargetFailure));
            }
        }
    }

    fn complete_power(&mut self, index: u16, mode: flysch_wire::ufs::query::CurrentPowerMode) {
        if self.device.power.change(mode) {
            self.meter_state();
            self.respond(index, Status::Good, None, 0);
        } else {
            let key = SenseKey::NotReady;
            self.fail(index, Sense::new(key, AdditionalSense::InitializingCommandRequired));
        }
    }

    /// Answers a UPIU that is not a command.
    fn answer_transport(&mut self, index: u16) {
        let task = self.tasks.get(index);
        let mut bytes = [0; 32];
        match Header::parse(&task.request).code() {
            TransactionCode::NopOut => NopIn::new(task.tag).emit(&mut bytes),
            TransactionCode::QueryRequest => return self.query(index),
            _ => Reject::new(task.lun, task.tag, 0).emit(&mut bytes),
        }
        self.answer(index, &bytes);
    }

    /// Writes a response UPIU and gives the task back.
    #[inline]
    pub(super) fn answer(&mut self, index: u16, unit: &[u8]) {
        let task = self.tasks.get(index);
        let at = task.ucd.wrapping_add(task.response.offset_bytes() as u64);
        if unit.len() > task.response.response_bytes() {
            return self.finish(index, Ocs::MismatchResponseUpiuSize);
        }
        if self.memory.write(at, unit).is_err() {
            return self.finish(index, Ocs::InvalidCommandTableAttributes);
        }
        self.finish(index, Ocs::Success);
    }

    /// Answers a SCSI command: `moved` is what the device had to move or took.
    #[inline]
    pub(super) fn respond(&mut self, index: u16, status: Status, sense: Option<Sense>, moved: u32) {
        let task = self.tasks.get(index);
        let mut unit = ResponseUpiu::new(task.lun, task.tag, status.into_bits());
        unit.header.iid = task.iid & 0xF;
        unit.header.function = task.iid & 0xF0;
        unit.header.device_information.set_event_alert(self.device.event_alert());
        if moved != task.expected {
            let under = moved < task.expected;
            unit.residual_transfer_count = moved.abs_diff(task.expected);
            if !task.bare_residual {
                unit.header.flags = ResponseFlags::new().with_u(under).with_o(!under).into_bits();
            }
        }
        let Some(sense) = sense else {
            let mut bytes = [0; 32];
            unit.emit(&mut bytes);
            return self.answer(index, &bytes);
        };
        let mut bytes = [0; RESPONSE_LENGTH_MAX];
        let len = unit.emit_with_sense(&sense.to_fixed(), &mut bytes);
        self.answer(index, &bytes[..len]);
    }

    /// Answers a SCSI command that went well, with an extra header segment.
    pub(super) fn respond_with_segment(&mut self, index: u16, segment: &Segment, moved: u32) {
        let task = self.tasks.get(index);
        let mut unit = ResponseUpiu::new(task.lun, task.tag, Status::Good.into_bits());
        unit.header.iid = task.iid & 0xF;
        unit.header.function = task.iid & 0xF0;
        unit.header.ehs_length = AdvancedRpmb::EHS_LENGTH;
        unit.header.device_information.set_event_alert(self.device.event_alert());
        if moved != task.expected {
            let under = moved < task.expected;
            unit.residual_transfer_count = moved.abs_diff(task.expected);
            unit.header.flags = ResponseFlags::new().with_u(under).with_o(!under).into_bits();
        }
        let mut bytes = [0; upiu::LENGTH + AdvancedRpmb::LENGTH];
        let (head, rest) = bytes.split_at_mut(upiu::LENGTH);
        unit.emit(head.first_chunk_mut().expect("as long as a unit"));
        rest.copy_from_slice(segment);
        self.answer(index, &bytes);
    }

    /// Keeps `name` until everything that has arrived is on the medium.
    fn wait_for_medium(&mut self, name: TaskRef) {
        let watermark = self.media.arrived_total();
        self.device.flushes.push(Waiting { task: name, watermark });
        self.program();
        self.end_flushes();
    }

    /// Starts as many program operations as there are data and dies; with nothing else to do,
    /// moves data from the WriteBooster buffer to TLC.
    pub(super) fn program(&mut self) {
        let now = self.now.nanos();
        // Nobody waits for more data to fill a program unit when a flush waits, or when a write
        // waits for the room of what lies there.
        let stalled = !self.device.writes.is_empty() && self.media.is_resting();
        let partial = stalled || !self.device.flushes.is_empty();
        while let Some(started) = self.media.program(now, partial) {
            self.at(started.end, Event::Die(started.die));
        }
        let hibernated = self.is_hibernated();
        let limit = self.media.unit(Program::Flush);
        while let Some((buffer, bytes)) = self.device.write_booster.to_flush(hibernated, limit) {
            let Some(started) = self.media.flush_slc(now, bytes) else { return };
            self.device.write_booster.moved(buffer, bytes);
            self.device.update_alert(now);
            self.at(started.end, Event::Die(started.die));
        }
        if !hibernated && !self.idle_awaited && self.device.write_booster.waits_for_hibernate() {
            self.await_idle();
        }
    }

    /// Looks again when auto-hibern8 would set in.
    fn await_idle(&mut self) {
        if let Some(at) = self.media.auto_hibern8_at(self.now.nanos()) {
            self.idle_awaited = true;
            self.at(at, Event::Idle);
        }
    }

    /// Auto-hibern8 may have set in.
    pub(super) fn idle(&mut self) {
        self.idle_awaited = false;
        self.program();
    }

    pub(super) fn die_done(&mut self, die: u16) {
        if let Err(end) = self.media.programmed(die, self.now.nanos()) {
            return self.at(end, Event::Die(die));
        }
        self.device.cache.programmed(self.media.programmed_total());
        self.program();
        self.admit_writes();
        self.end_flushes();
    }

    /// Lets waiting writes send their data as far as there is room.
    fn admit_writes(&mut self) {
        while let Some(&name) = self.device.writes.front() {
            let Work::Write { len, .. } = self.tasks.get(name.index).work else { break };
            if !self.media.admit(u64::from(len)) {
                break;
            }
            self.device.writes.pop_front();
            self.receive_data(name, len);
        }
    }

    fn end_flushes(&mut self) {
        let programmed = self.media.programmed_total();
        let mut at = 0;
        while at < self.device.flushes.len() {
            if self.device.flushes[at].watermark > programmed {
                at += 1;
                continue;
            }
            let name = self.device.flushes.remove(at).task;
            let change = match self.tasks.get(name.index).work {
                Work::Power { mode } => power::change_ns(self.device.power.mode(), mode),
                _ => 0,
            };
            let end = self.media.answer(self.now.nanos()) + change;
            self.at(end, Event::Complete(name));
        }
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

/// Why a copy failed.
pub(super) enum Failed {
    Transfer(Ocs),
    Store,
    /// What the unit stands on has no room.
    Full,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        if error.is_full() { Self::Full } else { Self::Store }
    }
}

#[inline]
fn copy(
    parts: Parts<'_>,
    to_host: bool,
    mut one: impl FnMut(u64, (&DmaRegion, usize), usize) -> Result<(), StoreError>,
) -> Result<(), Failed> {
    let memory = parts.memory;
    for part in parts {
        let Part { address, done, len } = part.map_err(Failed::Transfer)?;
        memory.pieces((address, len), to_host, |region, at, place| {
            one(done + place.start as u64, (region, at), place.len()).map_err(Failed::from)
        })?;
    }
    Ok(())
}

impl From<OutOfRange> for Failed {
    fn from(_: OutOfRange) -> Self {
        Self::Transfer(Ocs::InvalidPrdtAttributes)
    }
}
