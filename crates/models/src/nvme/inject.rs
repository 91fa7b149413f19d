//! Faults: where the fault plan acts on the controller and the device.

use flysch_api::machine::Instant;
use flysch_wire::nvme::{Cqe, Status, completion};

use super::Nvme;
use super::clock::Event;
use super::device::Device;
use super::task::{State, Task, Work};
use crate::faults::{Injector, Kind};
use crate::media::cache::Loss;
use crate::store::StoreError;

/// Delay of a late command, minimum and maximum, nanoseconds.
const LATE_MIN_NS: u64 = 1_000_000;
const LATE_MAX_NS: u64 = 400_000_000;
/// Position of CRD in a status field.
const RETRY_DELAY_SHIFT: u16 = 11;

/// By how much a fault delays the end of a command, nanoseconds; `None` if it does not.
pub(super) fn lateness(faults: &mut Injector, task: &mut Task, now: Instant) -> Option<u64> {
    if core::mem::replace(&mut task.late, true) {
        return None;
    }
    let fires = faults.fires(Kind::Late, now, task.command.cid.into());
    fires.then(|| LATE_MIN_NS + faults.choose(Kind::Late, LATE_MAX_NS - LATE_MIN_NS))
}

/// What is posted instead of `entry`, which faults may have changed, doubled or lost.
pub(super) fn completions(
    faults: &mut Injector,
    queue: u16,
    entry: Cqe,
    now: Instant,
) -> [Option<Cqe>; 2] {
    let cid = u32::from(entry.cid);
    if queue == 0 {
        return [Some(entry), None];
    }
    if faults.fires(Kind::StuckDoorbell, now, cid) {
        return [None, None];
    }
    if entry.status == 0 && faults.fires(Kind::BadStatus, now, cid) {
        const UNTRUE: [u16; 6] = [
            Status::DataTransfer.into_bits(),
            Status::Internal.into_bits(),
            Status::WriteFault.into_bits(),
            Status::UnrecoveredRead.into_bits() | completion::DO_NOT_RETRY,
            Status::InvalidField.into_bits() | completion::DO_NOT_RETRY,
            0x7C0,
        ];
        let status = UNTRUE[faults.choose(Kind::BadStatus, 6) as usize];
        return [Some(Cqe { status, ..entry }), None];
    }
    if !faults.fires(Kind::BadCompletion, now, cid) {
        return [Some(entry), None];
    }
    let stranger = Cqe { cid: !entry.cid, ..entry };
    match faults.choose(Kind::BadCompletion, 3) {
        // One that nobody asked for, and then the right one.
        0 => [Some(stranger), Some(entry)],
        1 => [Some(stranger), None],
        _ => [Some(Cqe { phase: true, ..entry }), None],
    }
}

impl Device {
    /// The work of a command to a namespace, which a fault may replace by a failure.
    pub(super) fn work_with_faults(
        &mut self,
        faults: &mut Injector,
        work: Work,
        (now, cid): (Instant, u32),
    ) -> Work {
        if matches!(work, Work::Status(_)) {
            return work;
        }
        if faults.fires(Kind::Transient, now, cid) {
            const PASSING: [Status; 4] = [
                Status::NamespaceNotReady,
                Status::Interrupted,
                Status::Transient,
                Status::Internal,
            ];
            let status = PASSING[faults.choose(Kind::Transient, 4) as usize].into_bits();
            let delay = faults.choose(Kind::Transient, 4) as u16;
            let delay = if self.features.reads_delays() { delay } else { 0 };
            return Work::Status(status | delay << RETRY_DELAY_SHIFT);
        }
        let (space, offset, len, status) = match work {
            Work::Read { space, offset, len, .. } => (space, offset, len, Status::UnrecoveredRead),
            Work::Write { space, offset, len, .. } => (space, offset, len, Status::WriteFault),
            _ => return work,
        };
        let shift = self.spaces.get(space).map_or(9, |space| space.shift);
        let (first, blocks) = (offset >> shift, u64::from(len) >> shift);
        let is_bad = faults.bad_block(first..first + blocks, now, cid).is_some();
        if !is_bad && !faults.fires(Kind::Medium, now, cid) {
            return work;
        }
        self.health.media_errors += 1;
        let again = faults.choose(Kind::Medium, 2) == 0;
        Work::Status(status.into_bits() | if again { 0 } else { completion::DO_NOT_RETRY })
    }
}

impl Nvme {
    /// A command has reached the device: returns whether a fault prevents it from starting.
    pub(super) fn fault_at_start(&mut self, index: u16) -> bool {
        let task = self.tasks.get(index);
        let (now, cid, is_admin) = (self.clock.now(), u32::from(task.command.cid), task.queue == 0);
        if task.awaits_event() {
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
            // A store that fails here has failed every earlier write: the host knows.
            let _ = self.cut_power();
            self.restore_power();
            return true;
        }
        if !is_admin && self.faults.fires(Kind::EventStorm, now, cid) {
            let wanted = self.device.features.async_events();
            if self.told.begin_storm(wanted, &mut self.faults) {
                self.answer_requests();
            }
        }
        if !is_admin && self.faults.fires(Kind::Stall, now, cid) {
            self.tasks.swallow_all();
            self.backend.clear();
            return true;
        }
        let swallowed = self.faults.fires(Kind::Timeout, now, cid);
        if swallowed {
            self.tasks.get_mut(index).state = State::Swallowed;
        }
        swallowed
    }

    /// Power is lost: everything volatile is lost, unflushed writes may vanish or tear. Nothing
    /// answers until [`restore_power`](Self::restore_power).
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.reset_controller();
        self.registers.power_on();
        self.buffer.power_on(&mut self.memory);
        self.registers.is_off = true;
        self.backend.lose_power();
        // Formats and sanitize operations continue.
        self.clock.retain(|event| matches!(event, Event::Upkeep { .. }));
        let loss = self.device.spaces.lose(&mut self.faults)?;
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

    /// The device is put back, and has power.
    pub fn plug(&mut self) {
        self.registers.is_unplugged = false;
        self.restore_power();
    }

    /// Someone else, such as a management controller beside the host, attaches or detaches a
    /// namespace; an event informs the host. Has no effect if that is so already, or if there is no
    /// namespace with this id.
    pub fn set_attached(&mut self, id: u32, is_attached: bool) {
        if self.device.spaces.set_attached(id, is_attached) {
            self.namespace_changed(id);
        }
    }
}
