//! Faults: where the fault plan meets the controller and the device.

use flysch_wire::nvme::{AdminOpcode, Cqe, Status, completion};

use super::Nvme;
use super::clock::Event;
use super::task::{State, TaskRef, Work};
use crate::faults::Kind;
use crate::media::cache::Loss;
use crate::store::StoreError;

/// How late a late command is, at least and at most, nanoseconds.
const LATE_MIN_NS: u64 = 1_000_000;
const LATE_MAX_NS: u64 = 400_000_000;
/// Where CRD lies in a status field.
const RETRY_DELAY_SHIFT: u16 = 11;

impl Nvme {
    /// A command has reached the device: whether a fault keeps it from starting.
    pub(super) fn fault_at_start(&mut self, index: u16) -> bool {
        let task = self.tasks.get(index);
        let (now, cid, is_admin) = (self.clock.now(), u32::from(task.command.cid), task.queue == 0);
        let awaits = is_admin && task.command.opcode == AdminOpcode::AsyncEvent.into_bits();
        if awaits {
            return false;
        }
        if self.faults.fires(Kind::Fatal, now, cid) {
            self.fail_fatally();
            return true;
        }
        if self.faults.fires(Kind::Unplugged, now, cid) {
            self.unplug();
            return true;
        }
        if self.faults.fires(Kind::PowerLoss, now, cid) {
            // A store that fails here has failed every write before: the host knows.
            let _ = self.cut_power();
            self.restore_power();
            return true;
        }
        if !is_admin && self.faults.fires(Kind::EventStorm, now, cid) {
            self.begin_storm();
        }
        if !is_admin && self.faults.fires(Kind::Stall, now, cid) {
            self.tasks.swallow_all();
            self.writes.clear();
            self.flushes.clear();
            return true;
        }
        let swallowed = self.faults.fires(Kind::Timeout, now, cid);
        if swallowed {
            self.tasks.get_mut(index).state = State::Swallowed;
        }
        swallowed
    }

    /// What a fault makes of a command instead of what it asks for.
    pub(super) fn fault_in_command(&mut self, index: u16, work: Work) -> Work {
        let task = self.tasks.get(index);
        if task.queue == 0 || matches!(work, Work::Status(_)) {
            return work;
        }
        let (now, cid) = (self.clock.now(), u32::from(task.command.cid));
        if self.faults.fires(Kind::Transient, now, cid) {
            const PASSING: [Status; 4] = [
                Status::NamespaceNotReady,
                Status::Interrupted,
                Status::Transient,
                Status::Internal,
            ];
            let status = PASSING[self.faults.choose(Kind::Transient, 4) as usize].into_bits();
            let delay = self.faults.choose(Kind::Transient, 4) as u16;
            let delay = if self.device.features.reads_delays() { delay } else { 0 };
            return Work::Status(status | delay << RETRY_DELAY_SHIFT);
        }
        let (space, offset, len, status) = match work {
            Work::Read { space, offset, len, .. } => (space, offset, len, Status::UnrecoveredRead),
            Work::Write { space, offset, len, .. } => (space, offset, len, Status::WriteFault),
            _ => return work,
        };
        let shift = self.device.space(space).map_or(9, |space| space.shift);
        let (first, blocks) = (offset >> shift, u64::from(len) >> shift);
        let is_bad = self.faults.bad_block(first..first + blocks, now, cid).is_some();
        if !is_bad && !self.faults.fires(Kind::Medium, now, cid) {
            return work;
        }
        self.device.health.media_errors += 1;
        let again = self.faults.choose(Kind::Medium, 2) == 0;
        Work::Status(status.into_bits() | if again { 0 } else { completion::DO_NOT_RETRY })
    }

    /// A command has run its course: whether a fault ends it otherwise.
    pub(super) fn fault_at_end(&mut self, name: TaskRef) -> bool {
        let task = self.tasks.get_mut(name.index);
        let cid = u32::from(task.command.cid);
        if core::mem::replace(&mut task.late, true) {
            return false;
        }
        let late = self.faults.fires(Kind::Late, self.clock.now(), cid);
        if late {
            let more = self.faults.choose(Kind::Late, LATE_MAX_NS - LATE_MIN_NS);
            self.clock.after(LATE_MIN_NS + more, Event::Complete(name));
        }
        late
    }

    /// A completion is about to be posted: whether a fault has posted another, or none.
    pub(super) fn fault_in_completion(&mut self, queue: u16, entry: Cqe) -> bool {
        let (now, cid) = (self.clock.now(), u32::from(entry.cid));
        if queue == 0 {
            return false;
        }
        if self.faults.fires(Kind::StuckDoorbell, now, cid) {
            return true;
        }
        if entry.status == 0 && self.faults.fires(Kind::BadStatus, now, cid) {
            const UNTRUE: [u16; 6] = [
                Status::DataTransfer.into_bits(),
                Status::Internal.into_bits(),
                Status::WriteFault.into_bits(),
                Status::UnrecoveredRead.into_bits() | completion::DO_NOT_RETRY,
                Status::InvalidField.into_bits() | completion::DO_NOT_RETRY,
                0x7C0,
            ];
            let status = UNTRUE[self.faults.choose(Kind::BadStatus, 6) as usize];
            self.post(queue, Cqe { status, ..entry });
            return true;
        }
        if !self.faults.fires(Kind::BadCompletion, now, cid) {
            return false;
        }
        let stranger = Cqe { cid: !entry.cid, ..entry };
        match self.faults.choose(Kind::BadCompletion, 3) {
            // One nobody asked for, and then the right one.
            0 => {
                self.post(queue, stranger);
                self.post(queue, entry);
            }
            1 => self.post(queue, stranger),
            _ => self.post(queue, Cqe { phase: true, ..entry }),
        }
        true
    }

    /// Power goes away: everything volatile is lost, unflushed writes may vanish or tear. Nothing
    /// answers until [`restore_power`](Self::restore_power).
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.reset_controller();
        self.registers.power_on();
        self.buffer.power_on(&mut self.memory);
        self.registers.is_off = true;
        self.media.restart(self.profile.timing, self.setup.seed);
        self.set_up_media();
        self.clock.lose_power();
        self.device.slc_used = 0;
        let loss = self.device.cache.lose(&mut self.device.spaces, &mut self.faults)?;
        self.lost.survived += loss.survived;
        self.lost.vanished += loss.vanished;
        self.lost.torn += loss.torn;
        Ok(loss)
    }

    /// Power comes back after [`cut_power`](Self::cut_power): the controller is disabled.
    pub fn restore_power(&mut self) {
        self.registers.is_off = false;
        self.device.power_on();
    }

    /// The device is pulled out of its slot: its registers read as ones from now on.
    pub fn unplug(&mut self) {
        // As above: the host knows of a store that fails.
        let _ = self.cut_power();
        self.registers.is_unplugged = true;
    }

    /// It is put back, and has power.
    pub fn plug(&mut self) {
        self.registers.is_unplugged = false;
        self.restore_power();
    }

    /// Somebody else, such as a management controller beside the host, attaches a namespace or
    /// takes it away; the host is told by an event. Nothing happens if it is so already, or if
    /// there is none of this id.
    pub fn set_attached(&mut self, id: u32, is_attached: bool) {
        let index = self.device.index(id);
        let Some(space) = index.and_then(|index| self.device.space_mut(index)) else { return };
        if core::mem::replace(&mut space.is_attached, is_attached) != is_attached {
            self.namespace_changed(id);
        }
    }
}
