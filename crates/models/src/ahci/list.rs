//! The command list of a port: headers, command FISes, and the tasks they become.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use flysch_api::machine::{GuestMemory, OutOfRange};
use flysch_wire::ata::fis::REGISTER_LENGTH;
use flysch_wire::ata::list::{HEADER, HeaderFlags};
use flysch_wire::ata::registers::status;
use flysch_wire::ata::{H2d, Header};

use super::port::Port;
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

impl Port {
    /// The command in a slot as the host has written it, read once.
    pub(super) fn fetch(&self, memory: &GuestMemory, slot: u8) -> Result<Task, Unfit> {
        let mut words = [0; 16];
        memory.read(self.clb + u64::from(slot) * HEADER as u64, &mut words)?;
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
        memory.read(table, &mut bytes)?;
        let fis = H2d::parse(&bytes).map_err(|_| Unfit)?;
        Ok(Task { state: State::Active, fis, flags, table, ..Task::default() })
    }

    #[inline]
    pub(super) fn task(&self, slot: u8) -> &Task {
        &self.tasks[usize::from(slot)]
    }

    #[inline]
    pub(super) fn task_mut(&mut self, slot: u8) -> &mut Task {
        &mut self.tasks[usize::from(slot)]
    }

    /// The name of the task in a slot.
    #[inline]
    pub(super) fn name(&self, slot: u8) -> TaskRef {
        let Task { generation, seat, .. } = *self.task(slot);
        TaskRef { port: self.number, slot, seat, generation }
    }

    /// The next slot whose device can have its command.
    #[inline]
    pub(super) fn next_slot(&mut self) -> Option<u8> {
        let runs = self.cmd.cr() && self.cmd.st() && !self.is_halted && self.speed != 0;
        let mut next = if runs { self.ci & !self.taken } else { 0 };
        while next != 0 {
            let slot = next.trailing_zeros() as u8;
            let file = self.file(self.targets[usize::from(slot)]);
            if !file.is_busy() && file.alone.is_none() && !file.failed {
                return Some(slot);
            }
            next &= next - 1;
            if !self.fbs.en() {
                return None;
            }
        }
        None
    }

    /// A device has taken the command in a slot.
    #[inline]
    pub(super) fn take(&mut self, slot: u8, task: Task) {
        let place = &mut self.tasks[usize::from(slot)];
        let generation = place.generation.wrapping_add(1);
        let (pmp, is_queued) = (task.pmp, task.is_queued);
        *place = Task { generation, ..task };
        self.taken |= 1 << slot;
        if is_queued {
            // The device has taken it: a FIS without an interrupt clears the bit.
            self.ci &= !(1 << slot);
        } else {
            let file = self.file(pmp);
            file.alone = Some(slot);
            file.tfd = file.tfd.with_status(file.tfd.status() & !status::ERR | status::BSY);
        }
    }

    /// A slot is empty again.
    pub(super) fn free(&mut self, slot: u8) {
        self.taken &= !(1 << slot);
        let pmp = self.tasks[usize::from(slot)].pmp;
        let file = self.file(pmp);
        if file.alone == Some(slot) {
            file.alone = None;
        }
        let task = &mut self.tasks[usize::from(slot)];
        task.state = State::Free;
        task.work = Work::Control;
        task.generation = task.generation.wrapping_add(1);
    }
}

/// The ports of an HBA, by number.
#[derive(Debug)]
pub(super) struct Ports(Vec<Port>);

impl Ports {
    pub(super) fn new(ports: impl Iterator<Item = Port>) -> Self {
        Self(ports.collect())
    }

    pub(super) fn count(&self) -> u8 {
        self.0.len() as u8
    }

    pub(super) fn get(&self, port: u8) -> Option<&Port> {
        self.0.get(usize::from(port))
    }

    /// The task of this name, if it is on its way.
    #[inline]
    pub(super) fn current(&self, name: TaskRef) -> Option<&Task> {
        let task = self[name.port].task(name.slot);
        let is = task.generation == name.generation && task.state == State::Active;
        is.then_some(task)
    }

    /// Whether an event of a port's link is of the life it has now.
    pub(super) fn is_current(&self, port: u8, epoch: u32) -> bool {
        self.get(port).is_some_and(|port| port.epoch == epoch)
    }

    /// Ports that have something to tell, a bit each.
    pub(super) fn pending(&self) -> u32 {
        let pending = self.0.iter().filter(|port| port.is_pending());
        pending.fold(0, |bits, port| bits | 1 << port.number)
    }
}

impl Index<u8> for Ports {
    type Output = Port;

    #[inline]
    fn index(&self, port: u8) -> &Port {
        &self.0[usize::from(port)]
    }
}

impl IndexMut<u8> for Ports {
    #[inline]
    fn index_mut(&mut self, port: u8) -> &mut Port {
        &mut self.0[usize::from(port)]
    }
}
