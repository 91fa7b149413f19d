//! The commands that a controller holds.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::{AdminOpcode, Sqe};

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
    /// On its way to an answer.
    Active,
    /// An asynchronous event request that waits for an event.
    Waiting,
    /// Never answered unless it is aborted (a fault).
    Swallowed,
}

/// What a read does with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Sends it to the host.
    Read,
    /// Compares it with the host's data.
    Compare,
    /// Checks whether it can be read.
    Verify,
}

/// What the device does for a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Work {
    /// An admin command, or one without data on the medium; carried out when it is answered.
    #[default]
    Control,
    /// Reads `len` bytes at byte `offset` of namespace `space` (an index).
    Read { space: u8, offset: u64, len: u32, purpose: Purpose },
    /// Writes them.
    Write { space: u8, offset: u64, len: u32, force: bool },
    /// A forced write whose data has arrived; waits until it is on the medium.
    Settle,
    /// Reads ranges of the namespace and writes them here.
    Copy { space: u8, offset: u64, len: u32, force: bool },
    /// Empties the write buffer.
    Flush,
    /// Ends with this status field.
    Status(u16),
}

/// One command.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) state: State,
    pub(super) generation: u32,
    /// The submission queue that it came from.
    pub(super) queue: u16,
    pub(super) command: Sqe,
    pub(super) work: Work,
    pub(super) ready: Ready,
    /// When the device finished it, if the software of a published host has been working on it
    /// since.
    pub(super) done: Option<u64>,
    /// Whether a fault has already delayed it.
    pub(super) late: bool,
    /// Its result besides the status: the first block of a zone append.
    pub(super) result: u64,
}

impl Task {
    /// Whether it is an asynchronous event request.
    pub(super) fn awaits_event(&self) -> bool {
        self.queue == 0 && self.command.opcode == AdminOpcode::AsyncEvent.into_bits()
    }

    /// Its kind for the software of a host: the low bits of an opcode give the direction of the
    /// data.
    pub(super) fn kind(&self) -> Kind {
        match self.command.opcode & 3 {
            1 => Kind::Write,
            _ => Kind::Read,
        }
    }
}

/// All tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    tasks: Vec<Task>,
    free: Vec<u16>,
}

/// Number of entries that commands to namespaces leave to the admin queue: a device full of
/// commands that never end can still be told to abort them.
const RESERVE: usize = 16;

impl Tasks {
    pub(super) fn new(count: usize) -> Self {
        let mut this =
            Self { tasks: vec![Task::default(); count], free: Vec::with_capacity(count) };
        this.clear();
        this
    }

    /// Whether a command of this queue can be accepted.
    #[inline]
    pub(super) fn has_room(&self, queue: u16) -> bool {
        self.free.len() > if queue == 0 { 0 } else { RESERVE }
    }

    /// Takes an entry for a command of `queue`; there must be [room](Self::has_room).
    #[inline]
    pub(super) fn take(&mut self, queue: u16, command: Sqe) -> Option<u16> {
        let index = self.free.pop()?;
        let task = &mut self.tasks[usize::from(index)];
        task.state = State::Active;
        task.queue = queue;
        task.command = command;
        task.work = Work::Control;
        task.done = None;
        task.late = false;
        task.result = 0;
        Some(index)
    }

    /// Gives an entry back.
    #[inline]
    pub(super) fn release(&mut self, index: u16) {
        let task = &mut self.tasks[usize::from(index)];
        task.state = State::Free;
        task.generation = task.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Ends every task at once.
    pub(super) fn clear(&mut self) {
        for task in self.tasks.iter_mut().filter(|task| task.state != State::Free) {
            task.state = State::Free;
            task.generation = task.generation.wrapping_add(1);
        }
        self.free.clear();
        self.free.extend((0..self.tasks.len() as u16).rev());
    }

    /// Number of tasks held, in any state.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.tasks.len() - self.free.len()
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

    /// Whether `name` still refers to a task in progress.
    #[inline]
    pub(super) fn is_current(&self, name: TaskRef) -> bool {
        let task = self.get(name.index);
        task.generation == name.generation && task.state == State::Active
    }

    /// Every task that is not free.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Task)> {
        (0..).zip(&self.tasks).filter(|(_, task)| task.state != State::Free)
    }

    /// The tasks of a submission queue.
    pub(super) fn of_queue(&self, queue: u16) -> Vec<u16> {
        let of_queue = self.iter().filter(|(_, task)| task.queue == queue);
        of_queue.map(|(index, _)| index).collect()
    }

    /// The device will never answer any of the commands to namespaces that it holds.
    pub(super) fn swallow_all(&mut self) {
        let taken = |task: &&mut Task| task.queue != 0 && task.state == State::Active;
        self.tasks.iter_mut().filter(taken).for_each(|task| task.state = State::Swallowed);
    }
}
