//! The command list of a port: headers, command FISes, and the tasks they become.

use flysch_api::machine::OutOfRange;
use flysch_wire::ata::fis::REGISTER_LENGTH;
use flysch_wire::ata::list::{HEADER, HeaderFlags};
use flysch_wire::ata::{H2d, Header};

use super::Ahci;
use crate::media::Ready;

/// Number of a device: the port it is at, or behind the ports if it is behind a multiplier.
pub(super) type Seat = u16;
/// In the place of a device that is not there.
pub(super) const NOBODY: Seat = Seat::MAX;
/// In the place of a device: the multiplier itself.
pub(super) const MULTIPLIER: Seat = Seat::MAX - 1;

/// Names a task; stale once the task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskRef {
    pub(super) port: u8,
    pub(super) slot: u8,
    /// The device that has it.
    pub(super) seat: Seat,
    pub(super) generation: u32,
}

/// How a command failed: STATUS without BSY, ERROR, LBA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fail {
    pub(super) status: u8,
    pub(super) error: u8,
    pub(super) lba: u64,
}

/// What the device does for a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Work {
    /// A command without data on the medium; carried out when it is answered.
    #[default]
    Control,
    /// Reads `len` bytes at byte `offset`.
    Read { offset: u64, len: u32 },
    /// Looks whether they can be read.
    Verify { offset: u64, len: u32 },
    /// Writes them.
    Write { offset: u64, len: u32, force: bool },
    /// A forced write whose data has arrived; waits until it is on the medium.
    Settle {
        /// Bytes.
        moved: u32,
    },
    /// Empties the write buffer.
    Flush,
    /// A register of the multiplier.
    Multiplier,
    /// Ends with an error.
    Fail(Fail),
}

/// Where a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nowhere: nothing is in the slot.
    #[default]
    Free,
    /// On its way to an answer.
    Active,
    /// Never answered (a fault).
    Swallowed,
}

/// One command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    pub(super) state: State,
    pub(super) generation: u32,
    /// The device that has it, and its port of a multiplier.
    pub(super) seat: Seat,
    pub(super) pmp: u8,
    pub(super) fis: H2d,
    pub(super) flags: HeaderFlags,
    pub(super) table: u64,
    pub(super) is_queued: bool,
    pub(super) work: Work,
    pub(super) ready: Ready,
    /// A fault has made it late already.
    pub(super) late: bool,
}

/// What stands in the list is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unfit;

impl From<OutOfRange> for Unfit {
    fn from(_: OutOfRange) -> Self {
        Self
    }
}

/// Fewest dwords of a command FIS (AHCI 4.2.2).
const CFL_MIN: u8 = 2;

impl Ahci {
    /// The command in a slot as the host has written it, read once.
    pub(super) fn fetch(&self, port: u8, slot: u8) -> Result<Task, Unfit> {
        let list = self.ports[usize::from(port)].clb;
        let mut words = [0; 16];
        self.memory.read(list + u64::from(slot) * HEADER as u64, &mut words)?;
        let [low, high] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&words[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        let Header { flags, table, .. } = Header::from_words([low, high]);
        let table = table & !0x7F;
        if flags.cfl() < CFL_MIN {
            return Err(Unfit);
        }
        let mut bytes = [0; REGISTER_LENGTH];
        self.memory.read(table, &mut bytes)?;
        let fis = H2d::parse(&bytes).map_err(|_| Unfit)?;
        Ok(Task { state: State::Active, fis, flags, table, ..Task::default() })
    }

    pub(super) fn name(&self, port: u8, slot: u8) -> TaskRef {
        let Task { generation, seat, .. } = *self.task(port, slot);
        TaskRef { port, slot, seat, generation }
    }

    pub(super) fn task(&self, port: u8, slot: u8) -> &Task {
        &self.ports[usize::from(port)].tasks[usize::from(slot)]
    }

    pub(super) fn task_mut(&mut self, port: u8, slot: u8) -> &mut Task {
        &mut self.ports[usize::from(port)].tasks[usize::from(slot)]
    }

    /// The task of this name, if it is on its way.
    pub(super) fn current(&self, name: TaskRef) -> Option<&Task> {
        let task = self.task(name.port, name.slot);
        let is = task.generation == name.generation && task.state == State::Active;
        is.then_some(task)
    }
}
