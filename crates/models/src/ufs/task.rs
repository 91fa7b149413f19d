//! The commands a controller and its device hold.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::ufs::upiu;
use flysch_wire::ufs::utrd::{UcdSpan, Utrd};

use crate::ufs::media::Ready;
use crate::ufs::sense::Sense;

/// Names a task; stale once the task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskRef {
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nowhere: the entry is free.
    #[default]
    Free,
    /// In the device, on its way to an answer.
    Device,
    /// In the device, which will never answer (a fault).
    Swallowed,
    /// The device has dropped it (aborted, reset); the controller still waits.
    Dropped,
    /// Finished, but the controller never gives the slot back (a fault).
    Stuck,
}

/// What the device does for a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    /// Answers something that is not a SCSI command.
    #[default]
    Transport,
    /// Reads `len` bytes at byte `offset` of unit `unit`.
    Read { unit: u8, offset: u64, len: u32 },
    /// Writes them.
    Write { unit: u8, offset: u64, len: u32, force_unit_access: bool },
    /// Empties the write buffer of unit `unit`.
    Flush { unit: u8 },
    /// Any other SCSI command; carried out when it is answered.
    Control,
    /// Fails.
    Fail(Sense),
    /// Ends with a status other than CHECK CONDITION and without sense data.
    Status(u8),
}

/// One command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    pub(crate) state: State,
    pub(crate) generation: u32,
    /// Submission queue it came from; 0 for the single doorbell.
    pub(crate) queue: u8,
    /// Slot of the transfer request list; the task tag in multi-circular queue mode.
    pub(crate) slot: u8,
    /// UTRD.I.
    pub(crate) interrupt: bool,
    /// Where the UTRD is in DMA memory (single doorbell).
    pub(crate) utrd_at: usize,
    /// Device address of the UCD, and where that is in DMA memory.
    pub(crate) ucd: u64,
    pub(crate) ucd_at: usize,
    pub(crate) response: UcdSpan,
    pub(crate) prdt: UcdSpan,
    /// The request UPIU.
    pub(crate) request: [u8; upiu::LENGTH],
    pub(crate) lun: u8,
    pub(crate) tag: u8,
    pub(crate) iid: u8,
    /// Expected data transfer length.
    pub(crate) expected: u32,
    pub(crate) work: Work,
    pub(crate) ready: Ready,
}

impl Task {
    /// The CDB in the request.
    pub(crate) fn cdb(&self) -> &[u8; 16] {
        self.request.last_chunk().expect("a request UPIU is longer than a CDB")
    }

    /// Whether the device has it.
    pub(crate) fn in_device(&self) -> bool {
        matches!(self.state, State::Device | State::Swallowed)
    }

    /// Takes over the fixed parts of a descriptor.
    pub(crate) fn take_descriptor(&mut self, utrd: &Utrd) {
        self.interrupt = utrd.header.i();
        self.response = utrd.response;
        self.prdt = utrd.prdt;
    }
}

/// All tasks: in single doorbell mode task n is slot n, else any free one.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: Vec<Task>,
    free: Vec<u16>,
    /// Tasks the controller holds.
    pub(crate) held: u32,
}

impl Tasks {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            tasks: vec![Task::default(); count],
            free: (0..count as u16).rev().collect(),
            held: 0,
        }
    }

    /// Takes the entry of a slot (single doorbell).
    #[inline]
    pub(crate) fn take_slot(&mut self, slot: u8) -> u16 {
        debug_assert_eq!(self.tasks[usize::from(slot)].state, State::Free);
        self.held += 1;
        u16::from(slot)
    }

    /// Takes any free entry (multi-circular queues).
    #[inline]
    pub(crate) fn take_any(&mut self) -> Option<u16> {
        let index = self.free.pop()?;
        self.held += 1;
        Some(index)
    }

    /// Gives an entry back.
    #[inline]
    pub(crate) fn release(&mut self, index: u16, from_any: bool) {
        let task = &mut self.tasks[usize::from(index)];
        task.state = State::Free;
        task.generation = task.generation.wrapping_add(1);
        self.held -= 1;
        if from_any {
            self.free.push(index);
        }
    }

    /// Ends every task at once.
    pub(crate) fn clear(&mut self) {
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
    pub(crate) fn get(&self, index: u16) -> &Task {
        &self.tasks[usize::from(index)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u16) -> &mut Task {
        &mut self.tasks[usize::from(index)]
    }

    /// The name of the task in entry `index`.
    #[inline]
    pub(crate) fn name(&self, index: u16) -> TaskRef {
        TaskRef { index, generation: self.get(index).generation }
    }

    /// Whether `name` still stands for a task the device works on.
    #[inline]
    pub(crate) fn is_current(&self, name: TaskRef) -> bool {
        let task = self.get(name.index);
        task.generation == name.generation && task.state == State::Device
    }

    /// Every task that is not free.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Task)> {
        (0..).zip(&self.tasks).filter(|(_, task)| task.state != State::Free)
    }

    /// Takes the tasks for which `is_meant` holds away from the device; the controller goes on
    /// holding them. Answers how many.
    pub(crate) fn drop_from_device(&mut self, mut is_meant: impl FnMut(&Task) -> bool) -> u32 {
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
