//! The tasks of a lane: their places in the engine's list, and what is kept for each.

use crate::layout::SLOT;
use crate::table::Format;
use flysch_api::command::Token;
use flysch_api::data::Data;
use flysch_api::machine::{DmaArray, DmaRegion, DmaSlice, Instant, Registers};
use flysch_wire::mmc::cqhci::{CQTCN, CQTDBR, CQVER, Task, Transfer, act};

/// Maximum number of slots of a lane, and of tasks of the engine.
pub(crate) const SLOTS_MAX: usize = 32;

/// How a slot's command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A task of the engine.
    Task,
    /// A direct command of the engine.
    Direct,
    /// A transfer that the host moves by itself.
    Plain,
    /// A command that needs the whole bus.
    Errand,
}

/// A transfer without the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) read: bool,
    pub(crate) address: u32,
    pub(crate) blocks: u16,
    /// Bits of CMD23 besides the count.
    pub(crate) flags: u32,
}

/// One place in a lane, with the token that owes an outcome. The token is moved out when the
/// outcome is made, so there cannot be two.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) owed: Option<Token>,
    pub(crate) kind: Kind,
    /// The owner asked for the end.
    pub(crate) abort: bool,
    /// The host was asked to end it.
    pub(crate) overdue: bool,
    pub(crate) expected: u32,
    pub(crate) deadline: Instant,
    pub(crate) issued: Instant,
    /// For a plain transfer; for an errand: index, argument, first and last sector.
    pub(crate) moves: Move,
    pub(crate) errand: [u32; 4],
    /// Where the device writes, if that has to be synchronised back.
    pub(crate) incoming: Data,
}

impl Slot {
    pub(crate) fn free() -> Self {
        Self {
            owed: None,
            kind: Kind::Task,
            abort: false,
            overdue: false,
            expected: 0,
            deadline: Instant::NEVER,
            issued: Instant::START,
            moves: Move::default(),
            errand: [0; 4],
            incoming: Data::NONE,
        }
    }
}

/// Numbers of slots in order of arrival, each at most once.
#[derive(Debug)]
pub(crate) struct Fifo {
    numbers: [u8; SLOTS_MAX],
    head: usize,
    len: usize,
}

impl Fifo {
    pub(crate) const fn new() -> Self {
        Self { numbers: [0; SLOTS_MAX], head: 0, len: 0 }
    }

    pub(crate) fn push(&mut self, slot: usize) {
        self.numbers[(self.head + self.len) % SLOTS_MAX] = slot as u8;
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        let slot = self.numbers[self.head];
        self.head = (self.head + 1) % SLOTS_MAX;
        Some(slot.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Removes one from the middle.
    pub(crate) fn remove(&mut self, slot: usize) {
        let count = self.len;
        for _ in 0..count {
            match self.pop() {
                Some(other) if other == slot => {}
                Some(other) => self.push(other),
                None => return,
            }
        }
    }
}

/// The engine's task list, and the bits of it that are a lane's own. The doorbell is
/// write-one-to-set and the notification write-one-to-clear, so lanes with disjoint tasks use both
/// without coordination.
#[derive(Debug)]
pub(crate) struct Tasks {
    list: DmaArray<SLOT>,
    /// Addresses have 64 bits; otherwise slots have half the length.
    pub(crate) wide: bool,
    /// Where the engine's registers are.
    base: u32,
    /// Tasks found to have ended and not yet taken, bits of the engine's registers.
    batch: u32,
    /// Bits of this lane.
    pub(crate) mine: u32,
}

/// Fields common to all task descriptors.
pub(crate) const TASK: Task =
    Task::new().with_valid(true).with_end(true).with_interrupt(true).with_act(act::TASK);

impl Tasks {
    pub(crate) fn new(list: DmaRegion, format: Format, base: u32) -> Self {
        let wide = format != Format::NARROW;
        Self { list: DmaArray::new(list), wide, base, batch: 0, mine: 0 }
    }

    /// Writes a task of one range of at most 64 KiB.
    #[inline(always)]
    pub(crate) fn post(&self, task: usize, low: u64, range: DmaSlice, registers: &impl Registers) {
        let word = Transfer::of(range.len, true).into_bits();
        self.put(task, low, (word, range.address), registers);
    }

    /// Writes a task whose ranges are in a list.
    pub(crate) fn post_list(&self, task: usize, low: u64, list: u64, registers: &impl Registers) {
        self.put(task, low, (Transfer::link().into_bits(), list), registers);
    }

    /// Writes a direct command.
    pub(crate) fn post_direct(&self, task: usize, low: u64, registers: &impl Registers) {
        self.put(task, low, (0, 0), registers);
    }

    #[inline(always)]
    fn put(&self, task: usize, low: u64, (word, address): (u32, u64), registers: &impl Registers) {
        let next = u64::from(word) | address << 32;
        if self.wide {
            let words = [low.to_le(), 0, next.to_le(), address >> 32];
            self.list.get(task).put::<0, 4>([words[0], words[1], words[2], words[3].to_le()]);
            registers.sync_for_device(self.list.region().span(task * SLOT, SLOT));
        } else {
            let at = task * (SLOT / 2);
            let region = self.list.region();
            region.store64(at, low.to_le());
            region.store64(at + 8, next.to_le());
            registers.sync_for_device(region.span(at, SLOT / 2));
        }
    }

    #[inline]
    pub(crate) fn ring(&self, tasks: u32, registers: &impl Registers) {
        registers.write32(self.base + CQTDBR, tasks);
    }

    /// The next task that ended.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.batch == 0 {
            return None;
        }
        let task = self.batch.trailing_zeros();
        self.batch &= self.batch - 1;
        Some(task)
    }

    /// Checks which tasks have ended; returns whether any have. A controller that left the bus
    /// reads as ones, like 32 tasks that ended at once; but a version of all ones does not exist.
    #[inline]
    pub(crate) fn refill(&mut self, registers: &impl Registers) -> bool {
        let told = registers.read32(self.base + CQTCN);
        let removed = told == u32::MAX && registers.read32(self.base + CQVER) == u32::MAX;
        self.batch = if removed { 0 } else { told & self.mine };
        let ended = self.batch;
        if ended == 0 {
            return false;
        }
        registers.write32(self.base + CQTCN, ended);
        true
    }

    pub(crate) fn forget(&mut self) {
        self.batch = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[derive(Default)]
    struct Engine {
        ended: Cell<u32>,
        doorbell: Cell<u32>,
        version: Cell<u32>,
    }

    impl Registers for Engine {
        fn read32(&self, offset: u32) -> u32 {
            match offset {
                0x200 => self.version.get(),
                0x22C => self.ended.get(),
                _ => panic!("{offset:#x}"),
            }
        }
        fn write32(&self, offset: u32, value: u32) {
            match offset {
                0x22C => self.ended.set(self.ended.get() & !value),
                0x228 => self.doorbell.set(self.doorbell.get() | value),
                _ => panic!("{offset:#x}"),
            }
        }
    }

    #[test]
    fn a_lane_takes_its_own_tasks_and_leaves_the_others() {
        let mut tasks = Tasks::new(DmaRegion::zeroed(1024, 0), Format::WIDE, 0x200);
        let engine = Engine::default();
        tasks.mine = 0xFF00;
        tasks.ring(1 << 9, &engine);
        engine.ended.set(0x8301);
        assert!(tasks.refill(&engine));
        assert_eq!([(); 4].map(|()| tasks.take()), [Some(8), Some(9), Some(15), None]);
        assert_eq!((engine.ended.get(), engine.doorbell.get()), (1, 1 << 9));
        assert!(!tasks.refill(&engine));
    }

    #[test]
    fn no_task_has_ended_in_a_controller_that_left_the_bus() {
        let mut tasks = Tasks::new(DmaRegion::zeroed(1024, 0), Format::WIDE, 0x200);
        let engine = Engine::default();
        tasks.mine = 0xFF;
        engine.ended.set(u32::MAX);
        engine.version.set(u32::MAX);
        assert!(!tasks.refill(&engine));
        assert_eq!((tasks.take(), engine.ended.get()), (None, u32::MAX));
        engine.version.set(0x510);
        assert!(tasks.refill(&engine), "all 32 have ended");
        assert_eq!((tasks.take(), engine.ended.get()), (Some(0), 0xFFFF_FF00));
    }

    #[test]
    fn a_slot_has_its_task_and_its_transfer_side_by_side() {
        let memory = DmaRegion::zeroed(1024, 0);
        let range = DmaSlice { address: 0x1_8000_0000, len: 4096 };
        let low = TASK.with_blocks(8).with_address(77).with_read(true).into_bits();
        Tasks::new(memory.clone(), Format::SHORT, 0).post(2, low, range, &Engine::default());
        assert_eq!(memory.words::<4>(64), [low, 0, 0x8000_0000_1000_0023, 1]);
        Tasks::new(memory.clone(), Format::NARROW, 0).post(2, low, range, &Engine::default());
        assert_eq!(memory.words::<2>(32), [low, 0x8000_0000_1000_0023]);
    }

    #[test]
    fn numbers_come_out_in_their_order() {
        let mut fifo = Fifo::new();
        (0..32).for_each(|n| fifo.push(n));
        assert_eq!((fifo.pop(), fifo.pop()), (Some(0), Some(1)));
        fifo.push(0);
        fifo.remove(5);
        let rest: std::vec::Vec<_> = core::iter::from_fn(|| fifo.pop()).collect();
        assert_eq!((rest.len(), rest[0], rest[3], rest[29]), (30, 2, 6, 0));
    }
}
