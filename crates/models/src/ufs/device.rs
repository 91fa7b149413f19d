//! The device: takes UPIUs, walks commands through the media, answers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flysch_wire::ufs::upiu::{
    Header, NopIn, RESPONSE_LENGTH_MAX, Reject, ResponseFlags, ResponseUpiu, TransactionCode,
};
use flysch_wire::ufs::utrd::Ocs;

use super::config::{Config, UnitConfig};
use super::sense::Sense;
use super::task::{State, Task, TaskRef, Tasks, Work};
use super::transfer::Parts;
use super::{Event, Ufs};
use crate::store::{Store, StoreError};

/// SCSI status codes (SAM-5 5.3.1).
pub(super) const GOOD: u8 = 0x00;
pub(super) const CHECK_CONDITION: u8 = 0x02;

/// A logical unit.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) config: UnitConfig,
    pub(super) store: Store,
    /// First byte of the unit on the medium.
    pub(super) base: u64,
    pub(super) block_shift: u32,
    pub(super) blocks: u64,
    pub(super) attention: Option<Sense>,
}

/// A command that waits until everything written before it is on the medium.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: TaskRef,
    /// Bytes that had arrived when it began to wait.
    watermark: u64,
}

/// Everything behind the link.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) units: Vec<Option<Unit>>,
    powered: bool,
    /// Writes that wait for room in the write buffer, in order.
    writes: VecDeque<TaskRef>,
    flushes: Vec<Waiting>,
}

impl Device {
    pub(super) fn new(config: Config) -> Self {
        let mut base = 0;
        let mut units = Vec::new();
        for unit in config.units {
            let unit = unit.map(|mut config| {
                let store = config.store.take().unwrap_or_else(|| Store::memory(config.size));
                let unit = Unit {
                    store,
                    base,
                    block_shift: config.block_size.trailing_zeros(),
                    blocks: config.size / u64::from(config.block_size),
                    attention: None,
                    config,
                };
                base += unit.config.size.next_multiple_of(super::config::ALLOCATION_UNIT);
                unit
            });
            units.push(unit);
        }
        Self { units, powered: true, writes: VecDeque::new(), flushes: Vec::new() }
    }

    pub(super) fn is_powered(&self) -> bool {
        self.powered
    }

    pub(super) fn has_lun(&self, lun: u8) -> bool {
        matches!(self.units.get(usize::from(lun)), Some(Some(_)))
    }

    pub(super) fn unit(&self, index: u8) -> Option<&Unit> {
        self.units.get(usize::from(index))?.as_ref()
    }

    pub(super) fn unit_mut(&mut self, index: u8) -> Option<&mut Unit> {
        self.units.get_mut(usize::from(index))?.as_mut()
    }

    /// Forgets a command that waits inside the device.
    pub(super) fn forget(&mut self, name: TaskRef) {
        self.writes.retain(|task| *task != name);
        self.flushes.retain(|waiting| waiting.task != name);
    }

    /// Forgets every waiting command that is no longer in the device.
    pub(super) fn forget_stale(&mut self, tasks: &Tasks) {
        self.writes.retain(|task| tasks.is_current(*task));
        self.flushes.retain(|waiting| tasks.is_current(waiting.task));
    }

    pub(super) fn forget_waiting(&mut self) {
        self.writes.clear();
        self.flushes.clear();
    }

    pub(super) fn reset_unit(&mut self, _lun: u8) {}
}

impl Ufs {
    /// The device starts afresh.
    pub(super) fn reset_device(&mut self) {
        self.drop_tasks(|_| true);
    }

    /// A request UPIU has reached the device.
    #[inline]
    pub(super) fn receive_upiu(&mut self, index: u16) {
        let accepted = self.media.accept(self.now.nanos());
        let task = self.tasks.get_mut(index);
        let header = Header::parse(&task.request);
        task.lun = header.lun;
        task.tag = header.task_tag;
        task.iid = (header.function & 0xF0) | header.iid;
        if !self.registers.mode.qt() {
            // The slot is the name of the place; the tag that of the command.
        } else {
            task.slot = header.task_tag;
        }
        if header.code() == TransactionCode::Command {
            return self.receive_command(index, accepted);
        }
        task.work = Work::Transport;
        let end = self.media.answer(accepted);
        let name = self.tasks.name(index);
        self.at(end, Event::Complete(name));
    }

    /// A SCSI command: what will happen is decided here, when follows from the media.
    fn receive_command(&mut self, index: u16, accepted: u64) {
        let task = self.tasks.get(index);
        let expected = u32::from_be_bytes([
            task.request[12],
            task.request[13],
            task.request[14],
            task.request[15],
        ]);
        let work = self.decide(index);
        let task = self.tasks.get_mut(index);
        task.expected = expected;
        task.work = work;
        let name = self.tasks.name(index);
        match work {
            Work::Read { unit, offset, len } => {
                let unit = self.device.unit(unit).expect("checked when decided");
                let end = unit.base + unit.config.size;
                let ready = self.media.read(unit.base + offset, u64::from(len), end, accepted);
                self.tasks.get_mut(index).ready = ready;
                self.at(ready.first, Event::Ready(name));
            }
            Work::Write { .. } | Work::Flush { .. } => self.at(accepted, Event::Accepted(name)),
            Work::Control | Work::Fail(_) | Work::Status(_) | Work::Transport => {
                let end = self.media.answer(accepted);
                self.at(end, Event::Complete(name));
            }
        }
    }

    /// The firmware takes up a write or a flush.
    pub(super) fn accepted(&mut self, name: TaskRef) {
        if !self.tasks.is_current(name) {
            return;
        }
        match self.tasks.get(name.index).work {
            Work::Write { len, .. } => {
                if !self.device.writes.is_empty() || !self.media.admit(u64::from(len)) {
                    self.device.writes.push_back(name);
                } else {
                    self.receive_data(name, len);
                }
            }
            _ => self.wait_for_medium(name),
        }
    }

    fn receive_data(&mut self, name: TaskRef, len: u32) {
        let end = self.media.receive(self.now.nanos(), u64::from(len));
        self.at(end, Event::Complete(name));
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
        match self.tasks.get(index).work {
            Work::Read { unit, offset, len } => self.complete_read(index, unit, offset, len),
            Work::Write { unit, offset, len, force_unit_access } => {
                self.complete_write(name, unit, offset, len, force_unit_access);
            }
            Work::Flush { .. } => self.respond(index, GOOD, None, 0),
            Work::Transport => self.answer_transport(index),
            Work::Control => self.control(index),
            Work::Fail(sense) => self.respond(index, CHECK_CONDITION, Some(sense), 0),
            Work::Status(status) => self.respond(index, status, None, 0),
        }
    }

    #[inline]
    fn complete_read(&mut self, index: u16, unit: u8, offset: u64, len: u32) {
        let task = self.tasks.get(index);
        let moved = u64::from(len.min(task.expected));
        let unit = self.device.unit_mut(unit).expect("units do not go away");
        let memory = &self.memory;
        let copied = copy(Parts::new(memory, task, moved), |done, at, len| {
            unit.store.read(offset + done, memory, at, len)
        });
        match copied {
            Ok(()) => self.respond(index, GOOD, None, len),
            Err(Failed::Transfer(ocs)) => self.finish(index, ocs),
            // UNRECOVERED READ ERROR.
            Err(Failed::Store) => {
                self.respond(index, CHECK_CONDITION, Some(Sense::new(3, 0x11, 0)), 0);
            }
        }
    }

    fn complete_write(&mut self, name: TaskRef, unit: u8, offset: u64, len: u32, force: bool) {
        let index = name.index;
        let task = self.tasks.get(index);
        if matches!(task.ready.last, WRITTEN) {
            return self.respond(index, GOOD, None, len);
        }
        let moved = u64::from(len.min(task.expected));
        let unit = self.device.unit_mut(unit).expect("units do not go away");
        let memory = &self.memory;
        let copied = copy(Parts::new(memory, task, moved), |done, at, len| {
            unit.store.write(offset + done, memory, at, len)
        });
        self.media.arrived(u64::from(len), false);
        self.program();
        match copied {
            Ok(()) if force => {
                self.tasks.get_mut(index).ready.last = WRITTEN;
                self.wait_for_medium(name);
            }
            Ok(()) => self.respond(index, GOOD, None, len),
            Err(Failed::Transfer(ocs)) => self.finish(index, ocs),
            // WRITE ERROR.
            Err(Failed::Store) => {
                self.respond(index, CHECK_CONDITION, Some(Sense::new(3, 0x0C, 0)), 0);
            }
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
        let at = task.ucd_at + task.response.offset_bytes();
        if unit.len() > task.response.response_bytes() {
            return self.finish(index, Ocs::MismatchResponseUpiuSize);
        }
        if at.checked_add(unit.len()).is_none_or(|end| end > self.memory.len()) {
            return self.finish(index, Ocs::InvalidCommandTableAttributes);
        }
        self.memory.write(at, unit);
        self.finish(index, Ocs::Success);
    }

    /// Answers a SCSI command: `moved` is what the device had to move or took.
    #[inline]
    pub(super) fn respond(&mut self, index: u16, status: u8, sense: Option<Sense>, moved: u32) {
        let task = self.tasks.get(index);
        let mut unit = ResponseUpiu::new(task.lun, task.tag, status);
        unit.header.iid = task.iid & 0xF;
        if moved != task.expected {
            let under = moved < task.expected;
            unit.residual_transfer_count = moved.abs_diff(task.expected);
            unit.header.flags = ResponseFlags::new().with_u(under).with_o(!under).into_bits();
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

    /// Keeps `name` until everything that has arrived is on the medium.
    fn wait_for_medium(&mut self, name: TaskRef) {
        let watermark = self.media.arrived_total();
        self.device.flushes.push(Waiting { task: name, watermark });
        self.program();
        self.end_flushes();
    }

    /// Starts as many program operations as there are data and dies.
    fn program(&mut self) {
        let partial = !self.device.flushes.is_empty();
        while let Some(started) = self.media.program(self.now.nanos(), partial) {
            self.at(started.end, Event::Die(started.die));
        }
    }

    pub(super) fn die_done(&mut self, die: u16) {
        match self.media.programmed(die, self.now.nanos()) {
            Err(end) => return self.at(end, Event::Die(die)),
            Ok(_) => self.program(),
        }
        while let Some(&name) = self.device.writes.front() {
            let Work::Write { len, .. } = self.tasks.get(name.index).work else { break };
            if !self.media.admit(u64::from(len)) {
                break;
            }
            self.device.writes.pop_front();
            self.receive_data(name, len);
        }
        self.end_flushes();
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
            let end = self.media.answer(self.now.nanos());
            self.at(end, Event::Complete(name));
        }
    }
}

/// `Task::ready.last` of a write whose data is in the store and that only waits for the medium.
const WRITTEN: u64 = u64::MAX;

/// Why a copy failed.
enum Failed {
    Transfer(Ocs),
    Store,
}

#[inline]
fn copy(
    parts: Parts<'_>,
    mut one: impl FnMut(u64, usize, usize) -> Result<(), StoreError>,
) -> Result<(), Failed> {
    for part in parts {
        let part = part.map_err(Failed::Transfer)?;
        one(part.done, part.at, part.len).map_err(|_| Failed::Store)?;
    }
    Ok(())
}

impl Task {
    /// Whether the host expects data from the device.
    pub(super) fn is_swallowed(&self) -> bool {
        self.state == State::Swallowed
    }
}
