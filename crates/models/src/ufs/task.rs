//! The commands that a controller and its device hold.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::scsi::{Cdb, Status};
use flysch_wire::ufs::query::CurrentPowerMode;
use flysch_wire::ufs::upiu::{
    self, CommandFlags, CommandUpiu, Header, TransactionCode, TransactionType,
};
use flysch_wire::ufs::utrd::{UcdSpan, Utrd};

use super::crypto::Key;
use super::sense::Sense;
use crate::media::Ready;
use crate::software::Kind;

/// Identifies a task; stale once the task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskRef {
    pub(super) index: u16,
    pub(super) generation: u32,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nowhere: the entry is free.
    #[default]
    Free,
    /// In the device, on its way to an answer.
    Device,
    /// In the device, which will never answer (a fault).
    Swallowed,
    /// Dropped by the device (aborted, reset); the controller still waits.
    Dropped,
    /// Finished, but the controller never releases the slot (a fault).
    Stuck,
}

/// What the device does for a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Work {
    /// Answers something that is not a SCSI command.
    #[default]
    Transport,
    /// Reads `len` bytes at byte `offset` of unit `unit`.
    Read { unit: u8, offset: u64, len: u32 },
    /// Writes them.
    Write { unit: u8, offset: u64, len: u32, force: bool },
    /// A forced write whose data has arrived and which waits until it is on the medium.
    Settle { len: u32 },
    /// Empties the write buffer of unit `unit`.
    Flush { unit: u8 },
    /// Changes the power mode.
    Power { mode: CurrentPowerMode },
    /// Any other SCSI command; carried out when it is answered.
    Control,
    /// Fails.
    Fail(Sense),
    /// Ends with a status other than CHECK CONDITION and without sense data.
    Status(Status),
}

/// One command.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) state: State,
    pub(super) generation: u32,
    /// Submission queue that it came from; 0 for the single doorbell.
    pub(super) queue: u8,
    /// Slot of the transfer request list; the task tag in multi-circular queue mode.
    pub(super) slot: u8,
    /// UTRD.I.
    pub(super) interrupt: bool,
    /// Device address of the UTRD (single doorbell).
    pub(super) utrd: u64,
    /// Device address of the UCD.
    pub(super) ucd: u64,
    pub(super) response: UcdSpan,
    pub(super) prdt: UcdSpan,
    /// The key with which its data is encrypted.
    pub(super) crypto: Option<Key>,
    /// The request UPIU.
    pub(super) request: [u8; upiu::LENGTH],
    pub(super) lun: u8,
    pub(super) tag: u8,
    pub(super) iid: u8,
    /// Expected data transfer length.
    pub(super) expected: u32,
    pub(super) work: Work,
    pub(super) ready: Ready,
    /// Whether it is a SCSI command; whether it is ORDERED; whether an older one holds it back.
    pub(super) is_command: bool,
    pub(super) ordered: bool,
    pub(super) held_back: bool,
    /// When the device finished it, if the software of a published host has been working on it
    /// since.
    pub(super) done: Option<u64>,
    /// Whether a fault has already delayed it.
    pub(super) late: bool,
    /// A fault: its residual count comes without a flag.
    pub(super) bare_residual: bool,
}

impl Task {
    /// Whether the device has it.
    pub(super) fn in_device(&self) -> bool {
        matches!(self.state, State::Device | State::Swallowed)
    }

    /// Sets its fields from its request UPIU. In multi-circular queue mode its slot is its tag
    /// (`by_tag`).
    #[inline]
    pub(super) fn address(&mut self, by_tag: bool) {
        let header = Header::parse(&self.request);
        self.lun = header.lun;
        self.tag = header.task_tag;
        self.iid = header.function & 0xF0 | header.iid;
        if by_tag {
            self.slot = header.task_tag;
        }
    }

    /// Whether its request is a COMMAND, even one that never reached the device.
    pub(super) fn holds_command(&self) -> bool {
        TransactionType::from_bits(self.request[0]).code() == TransactionCode::Command
    }

    /// Its kind for the software of a host.
    pub(super) fn kind(&self) -> Kind {
        match self.holds_command() && CommandFlags::from_bits(self.request[1]).w() {
            true => Kind::Write,
            false => Kind::Read,
        }
    }

    /// The CDB of a request that is a COMMAND.
    pub(super) fn cdb(&self) -> Option<Cdb> {
        CommandUpiu::parse(&self.request).ok().map(|unit| Cdb::parse(&unit.cdb))
    }

    /// Sets its fields from the fixed parts of a descriptor.
    pub(super) fn take_descriptor(&mut self, utrd: &Utrd) {
        self.late = false;
        self.done = None;
        self.bare_residual = false;
        self.interrupt = utrd.header.i();
        self.response = utrd.response;
        self.prdt = utrd.prdt;
        let key = Key { slot: utrd.header.cci(), number: utrd.dun };
        self.crypto = utrd.header.ce().then_some(key);
    }
}

/// All tasks: in single doorbell mode task n is slot n, otherwise any free one.
#[derive(Debug)]
pub(super) struct Tasks {
    tasks: Vec<Task>,
    free: Vec<u16>,
    /// Number of tasks that the controller holds.
    pub(super) held: u32,
}

impl Tasks {
    pub(super) fn new(count: usize) -> Self {
        Self {
            tasks: vec![Task::default(); count],
            free: (0..count as u16).rev().collect(),
            held: 0,
        }
    }

    /// Takes the entry of a slot (single doorbell).
    #[inline]
    pub(super) fn take_slot(&mut self, slot: u8) -> u16 {
        debug_assert_eq!(self.tasks[usize::from(slot)].state, State::Free);
        self.held += 1;
        u16::from(slot)
    }

    /// Takes any free entry (multi-circular queues).
    #[inline]
    pub(super) fn take_any(&mut self) -> Option<u16> {
        let index = self.free.pop()?;
        self.held += 1;
        Some(index)
    }

    /// Gives an entry back.
    #[inline]
    pub(super) fn release(&mut self, index: u16, from_any: bool) {
        let task = &mut self.tasks[usize::from(index)];
        task.state = State::Free;
        task.generation = task.generation.wrapping_add(1);
        self.held -= 1;
        if from_any {
            self.free.push(index);
        }
    }

    /// Ends every task at once.
    pub(super) fn clear(&mut self) {
        for task in &mut self.tasks {
            if task.state != State::Free {
                task.state = State::Free;
                task.generation = task.generation.wrapping_add(1);
            }
        }
        let count = self.tasks.len() as u16;
        self.free.clear();
        self.free.extend((0..count).rev());
        self.held = 0;
    }

    #[inline]
    pub(super) fn get(&self, index: u16) -> &Task {
        &self.tasks[usize::from(index)]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u16) -> &mut Task {
        &mut self.tasks[usize::from(index)]
    }

    /// The name of the task in entry `index`.
    #[inline]
    pub(super) fn name(&self, index: u16) -> TaskRef {
        TaskRef { index, generation: self.get(index).generation }
    }

    /// Whether `name` still refers to a task that the device works on.
    #[inline]
    pub(super) fn is_current(&self, name: TaskRef) -> bool {
        let task = self.get(name.index);
        task.generation == name.generation && task.state == State::Device
    }

    /// Whether any came from submission queue `queue`.
    pub(super) fn has_of_queue(&self, queue: u8) -> bool {
        self.held > 0 && self.iter().any(|(_, task)| task.queue == queue)
    }

    /// Whether any command is in the device.
    pub(super) fn has_commands(&self) -> bool {
        self.iter().any(|(_, task)| task.in_device() && task.is_command)
    }

    /// Every task that is not free.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Task)> {
        (0..).zip(&self.tasks).filter(|(_, task)| task.state != State::Free)
    }

    /// The device will never answer any of its tasks.
    pub(super) fn swallow_all(&mut self) {
        for task in self.tasks.iter_mut().filter(|task| task.in_device()) {
            task.state = State::Swallowed;
        }
    }

    /// Takes the tasks selected by `is_meant` away from the device; the controller continues to
    /// hold them. Returns how many.
    pub(super) fn drop_from_device(&mut self, mut is_meant: impl FnMut(&Task) -> bool) -> u32 {
        let mut count = 0;
        for task in self.tasks.iter_mut().filter(|task| task.in_device()) {
            if is_meant(task) {
                task.state = State::Dropped;
                task.generation = task.generation.wrapping_add(1);
                count += 1;
            }
        }
        count
    }
}
