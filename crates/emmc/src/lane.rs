//! One lane: the hot path of commands that the engine queues, and everything else that a lane does.
//!
//! For each command this writes one slot of the task list, and for each batch one doorbell; on
//! completion it reads and clears the notification register once for all tasks that have ended.
//! Nothing is allocated, locked or searched: a bit names its slot.
//!
//! Without an engine the same slots hold transfers that the host moves one after the other
//! (`plain`). A command that needs the whole bus - an erase, a flush without direct commands - is
//! an *errand*: the lane hands it to the host and learns how it ended.

mod rest;

pub(crate) use rest::{ANSWERED, OVERDUE, WELL};

use crate::layout::{Layout, SEGMENTS};
use crate::options::EmmcOptions;
use crate::queue::{Fifo, Kind, Move, SLOTS_MAX, Slot, TASK, Tasks};
use crate::shared::{Errand, Shared, Terms};
use crate::table::Format;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use flysch_api::command::{Command, Declined, Direction, Ended, Failure, Limits, NotStarted};
use flysch_api::command::{Mmc, MmcResponse, MmcStatus, Outcome};
use flysch_api::data::{BadData, Data, SegmentLimits, Walk};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant, Machine};
use flysch_orders::Order;
use flysch_wire::mmc::SECTOR;
use flysch_wire::mmc::adma::RANGE_MAX;
use flysch_wire::mmc::command::{BlockCount, CommandIndex};
use flysch_wire::mmc::cqhci::{self, DIRECT, Direct, Task, act};

/// Limits of the data of commands.
const SEGMENT_LIMITS: SegmentLimits = SegmentLimits {
    count: SEGMENTS as u16,
    length: RANGE_MAX,
    alignment: 4,
    boundary: 0,
    inner: 1,
};
/// Command indices that move data of the partition, one bit each: CMD17, 18, 24, 25.
const TRANSFERS: u32 = 1 << 17 | 1 << 18 | 1 << 24 | 1 << 25;
/// The highest of them that reads.
const LAST_READ: u8 = 18;
/// Bytes that name the range of an erase: first and last sector.
pub(crate) const ERASE_RANGE: u32 = 8;

/// What a lane needs to know of the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    pub(crate) format: Format,
    /// Where the queueing engine's registers are, if there is one.
    pub(crate) base: Option<u32>,
}

/// One lane of a host.
#[derive(Debug)]
pub(crate) struct Lane<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    tasks: Tasks,
    pub(crate) slots: Box<[Slot]>,
    /// Free slots, one bit each.
    free: u32,
    /// All ones while tasks may be started, else 0.
    open: u32,
    /// Slots started since the last doorbell, one bit each.
    posted: u32,
    /// The number of the lane's first task.
    first: u32,
    /// The unit that the bus has selected.
    unit: u64,
    /// Slots that may be used.
    depth: u32,
    /// Outcomes that this lane owes: of slots in use, and those in `ended`.
    pub(crate) in_flight: usize,
    /// Commands that the host was asked to end.
    overdue: usize,
    /// Transfers without the engine, in order.
    pub(crate) waiting: Fifo,
    /// The transfer that the host has begun.
    pub(crate) host_has: Option<usize>,
    /// Errands in order, and the one that the host has.
    errands: Fifo,
    errand: Option<usize>,
    /// The slot of the current direct command.
    direct: Option<usize>,
    /// Outcomes that are waiting to be fetched.
    ended: VecDeque<(Outcome, Trouble)>,
    /// Details of the last outcome, if it was not simply good.
    trouble: Trouble,
    /// When to check for errors and overdue commands next.
    watch_at: Instant,
    watchdog_nanos: u64,
    /// The last order that was obeyed; [`Order::NONE`] while parked.
    pub(crate) obeyed: Order,
    stopped: bool,
    terms: Terms,
    /// Completions raise interrupts, which must be acknowledged.
    interrupts: bool,
    /// The engine's registers; 0 without an engine.
    base: u32,
    /// The lists of the slots, and the bytes of each.
    pub(crate) lists: DmaRegion,
    list: usize,
    format: Format,
    data: DmaRegion,
    limits: Limits,
    /// Checks data.
    walk: Walk,
    /// Number of completions that made no sense.
    strange: u32,
}

/// Details of a command that did not end simply well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) status: MmcStatus,
    pub(crate) residual: u32,
    pub(crate) code: u32,
}

impl<M: Machine> Lane<M> {
    pub(crate) fn new(
        machine: &M,
        shared: &Arc<Shared>,
        layout: &Layout,
        (options, engine): (&EmmcOptions, Engine),
        index: usize,
    ) -> Self {
        let (memory, transfer_max) = (machine.memory(), options.transfer_max);
        let base = engine.base.unwrap_or(0);
        Self {
            shared: shared.clone(),
            index,
            tasks: Tasks::new(layout.tasks.clone(), engine.format, base),
            slots: (0..SLOTS_MAX).map(|_| Slot::free()).collect(),
            free: 0,
            open: 0,
            posted: 0,
            first: 0,
            unit: options.partition.into(),
            depth: options.depth.into(),
            in_flight: 0,
            overdue: 0,
            waiting: Fifo::new(),
            host_has: None,
            errands: Fifo::new(),
            errand: None,
            direct: None,
            ended: VecDeque::with_capacity(SLOTS_MAX),
            trouble: Trouble::default(),
            watch_at: Instant::NEVER,
            watchdog_nanos: u64::from(options.timeouts.watchdog_ms) * 1_000_000,
            obeyed: Order::NONE,
            stopped: true,
            terms: Terms::default(),
            interrupts: options.interrupts,
            base,
            lists: layout.lists(index),
            list: layout.list(),
            format: engine.format,
            data: memory.clone(),
            limits: Limits {
                slots: options.depth.into(),
                transfer_max,
                segments: SEGMENT_LIMITS,
                crypto: false,
            },
            walk: Walk::new(SEGMENT_LIMITS, transfer_max, memory, layout.whole()),
            machine: machine.clone(),
            strange: 0,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn memory(&self) -> &DmaRegion {
        &self.data
    }

    pub(crate) fn failure(&self) -> Failure<Mmc> {
        let Trouble { status, residual, code } = self.trouble;
        Failure { status, residual, code }
    }

    /// Accepts a command. A read or write of one range is written here, every other [out of
    /// line](Self::start_other). Orders of the host that the lane has obeyed may prevent it;
    /// [`ring`](Self::ring) sees newer orders.
    #[inline(always)]
    pub(crate) fn start(&mut self, command: Command<Mmc>, now: Instant) -> Result<(), Declined> {
        let usable = self.open & self.free;
        let read = command.payload.index <= LAST_READ;
        if usable != 0
            && command.crypto.is_none()
            && command.unit == self.unit
            && command.payload.index < 32
            && TRANSFERS >> command.payload.index & 1 != 0
            && command.direction == direction(read)
            && let Some(range) = self.walk.one(&command.data)
            && range.len.is_multiple_of(SECTOR)
        {
            let slot = usable.trailing_zeros();
            let low = task(read, &command, range.len);
            let task = (self.first + slot) as usize;
            self.machine.sync_for_device(range);
            self.tasks.post(task, low, range, &self.machine);
            self.keep(slot as usize, command, Kind::Task);
            return Ok(());
        }
        // Built anew, so that only a command that takes this path has to be in memory.
        let Command { unit, payload, direction, data, crypto, ordering, deadline, token } = command;
        let command = Command { unit, payload, direction, data, crypto, ordering, deadline, token };
        self.start_other(command, now)
    }

    /// Puts a command's owner into its slot.
    #[inline(always)]
    fn keep(&mut self, slot: usize, command: Command<Mmc>, kind: Kind) {
        let place = &mut self.slots[slot % SLOTS_MAX];
        place.kind = kind;
        place.abort = false;
        place.expected = command.data.len();
        place.owed = Some(command.token);
        place.deadline = command.deadline;
        if !M::COHERENT && command.direction == Direction::FromDevice {
            place.incoming = command.data;
        }
        self.free &= !(1 << slot);
        self.posted |= 1 << slot;
        self.in_flight += 1;
    }

    #[cold]
    #[inline(never)]
    fn start_other(&mut self, command: Command<Mmc>, now: Instant) -> Result<(), Declined> {
        match self.prepare(&command, now) {
            Ok((slot, kind)) => {
                self.keep(slot, command, kind);
                Ok(())
            }
            Err(why) => {
                self.rest();
                Err(Declined { why, token: command.token })
            }
        }
    }

    /// Takes a slot for a command and writes everything that it needs.
    fn prepare(
        &mut self,
        command: &Command<Mmc>,
        now: Instant,
    ) -> Result<(usize, Kind), NotStarted> {
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        }
        if !self.obeyed.runs() || self.free == 0 || !self.ended.is_empty() {
            return Err(self.why_not());
        }
        if command.crypto.is_some() || command.unit != self.unit {
            return Err(NotStarted::Unsupported);
        }
        let slot = self.free.trailing_zeros() as usize;
        let kind = self.place(slot, command)?;
        Ok((slot, kind))
    }

    fn place(&mut self, slot: usize, command: &Command<Mmc>) -> Result<Kind, NotStarted> {
        let index = command.payload.index;
        if index < 32 && TRANSFERS >> index & 1 != 0 {
            return self.place_transfer(slot, command);
        }
        if CommandIndex::from_bits(index) == CommandIndex::Erase {
            let [first, last] = self.erase_range(command)?;
            self.slots[slot].errand = [index.into(), command.payload.argument, first, last];
            self.errands.push(slot);
            return Ok(Kind::Errand);
        }
        if command.direction != Direction::None || !command.data.is_empty() {
            return Err(NotStarted::Unsupported);
        }
        self.place_bare(slot, command)
    }

    /// A command without data: sent by the engine if possible, else by the host.
    fn place_bare(&mut self, slot: usize, command: &Command<Mmc>) -> Result<Kind, NotStarted> {
        let payload = &command.payload;
        let response = match payload.response {
            MmcResponse::R1b => cqhci::RESPONSE_BUSY,
            MmcResponse::R1 => cqhci::RESPONSE_48,
            _ => return Err(NotStarted::Unsupported),
        };
        if !(self.terms.queueing && self.terms.direct) {
            self.slots[slot].errand = [payload.index.into(), payload.argument, 0, 0];
            self.errands.push(slot);
            return Ok(Kind::Errand);
        }
        if self.direct.is_some() || !self.shared.take_direct(self.index) {
            return Err(NotStarted::Full);
        }
        let low = Direct::new()
            .with_valid(true)
            .with_end(true)
            .with_interrupt(true)
            .with_act(act::TASK)
            .with_barrier(true)
            .with_command(payload.index)
            .with_response(response);
        let word = u64::from(low.into_bits()) | u64::from(payload.argument) << 32;
        self.tasks.post_direct(DIRECT.into(), word, &self.machine);
        self.tasks.mine |= 1 << DIRECT;
        self.direct = Some(slot);
        Ok(Kind::Direct)
    }

    /// The range of an erase: two words of data, first and last sector.
    fn erase_range(&self, command: &Command<Mmc>) -> Result<[u32; 2], NotStarted> {
        let mut range = None;
        let place = |_, one: DmaSlice| range = Some(one);
        let count = self.walk.run(&command.data, place).map_err(NotStarted::BadData)?;
        let range = range.filter(|range| count == 1 && range.len == ERASE_RANGE);
        let range = range.ok_or(NotStarted::BadData(BadData::Length))?;
        let at = self.data.offset_of(range.address, 8);
        // No cause: both mean that it is outside.
        let at = at.map_err(|_| NotStarted::BadData(BadData::Outside))?;
        let mut words = [[0; 4]; 2];
        self.data.read(at, words.as_flattened_mut());
        Ok(words.map(u32::from_le_bytes))
    }

    /// A transfer of any data, with a list.
    fn place_transfer(&mut self, slot: usize, command: &Command<Mmc>) -> Result<Kind, NotStarted> {
        let payload = &command.payload;
        let (read, bytes) = (payload.index <= LAST_READ, command.data.len());
        if command.direction != direction(read)
            || BlockCount::from_bits(payload.set_block_count.unwrap_or(0)).packed()
        {
            return Err(NotStarted::Unsupported);
        }
        if bytes == 0 || !bytes.is_multiple_of(SECTOR) {
            return Err(NotStarted::BadData(BadData::Length));
        }
        let at = slot * self.list;
        let (lists, format) = (&self.lists, self.format);
        let place = |n: u32, range| format.put(lists, at, n as usize, range);
        let count = self.walk.run(&command.data, place).map_err(NotStarted::BadData)?;
        format.end(lists, at, count as usize - 1);
        self.machine.sync_for_device(lists.span(at, count as usize * format.stride));
        self.sync_outgoing(&command.data);
        if self.terms.queueing {
            let list = lists.address() + at as u64;
            let number = (self.first as usize) + slot;
            self.tasks.post_list(number, task(read, command, bytes), list, &self.machine);
            return Ok(Kind::Task);
        }
        let shift = if self.terms.sectors { 0 } else { 9 };
        let (sector, highest) = (payload.argument, u32::MAX >> shift);
        if sector > highest {
            return Err(NotStarted::Unsupported);
        }
        self.slots[slot].moves = Move {
            read,
            address: sector << shift,
            blocks: (bytes / SECTOR) as u16,
            flags: payload.set_block_count.unwrap_or(0) & !0xFFFF,
        };
        self.waiting.push(slot);
        Ok(Kind::Plain)
    }

    /// Makes the ranges of valid data visible to the device.
    fn sync_outgoing(&self, data: &Data) {
        if !M::COHERENT {
            for range in data.ranges(&self.data).flatten() {
                self.machine.sync_for_device(range);
            }
        }
    }

    /// Where a slot's list is in [`lists`](Self::lists).
    pub(crate) fn list_of(&self, slot: usize) -> usize {
        slot * self.list
    }

    /// Rings one doorbell for everything started, as far as the host allows it.
    #[inline]
    pub(crate) fn ring(&mut self, now: Instant) {
        if self.posted == 0 {
            return;
        }
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        } else if self.obeyed.runs() {
            self.ring_posted(now);
        }
    }

    /// Rings for at least one started command.
    #[inline(never)]
    fn ring_posted(&mut self, now: Instant) {
        let alone = self.in_flight == self.posted.count_ones() as usize;
        let mut watch_at = if alone { now.after_nanos(self.watchdog_nanos) } else { self.watch_at };
        let mut left = self.posted;
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            left &= left - 1;
            let slot = &mut self.slots[slot % SLOTS_MAX];
            slot.issued = now;
            watch_at = watch_at.min(slot.deadline);
        }
        self.watch_at = watch_at;
        let posted = core::mem::take(&mut self.posted);
        if self.terms.queueing {
            let mut tasks = posted << self.first;
            if self.direct.is_some() || self.errand.is_some() || !self.errands.is_empty() {
                tasks = self.tasks_of(posted);
            }
            if tasks != 0 {
                self.tasks.ring(tasks, &self.machine);
            }
        }
        if !self.errands.is_empty() {
            self.run_errand();
        }
    }

    /// The doorbell bits of these slots: not every slot is a task.
    #[cold]
    fn tasks_of(&self, posted: u32) -> u32 {
        let mut tasks = 0;
        for (number, slot) in self.slots.iter().enumerate() {
            if posted >> number & 1 != 0 {
                tasks |= match slot.kind {
                    Kind::Task => 1 << (self.first + number as u32),
                    Kind::Direct => 1 << DIRECT,
                    Kind::Plain | Kind::Errand => 0,
                };
            }
        }
        tasks
    }

    /// Hands the next errand to the host if it has none.
    #[cold]
    fn run_errand(&mut self) {
        if self.errand.is_some() || !self.obeyed.runs() {
            return;
        }
        let Some(number) = self.errands.pop() else { return };
        let slot = &self.slots[number];
        let [index, argument, first, last] = slot.errand;
        let deadline = slot.deadline;
        self.errand = Some(number);
        let index = index as u8;
        self.shared.errands[self.index].ask(Errand { index, argument, first, last, deadline });
        self.shared.orders.call_host();
    }

    /// The next outcome. The host's orders are checked when nothing has completed: commands that
    /// have ended are not affected by them.
    #[inline]
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Outcome> {
        if let outcome @ Some(_) = self.next_ended() {
            self.rest();
            return outcome;
        }
        let outcome = self.found_nothing(now);
        self.rest();
        outcome
    }

    /// The outcome of the next task that has ended.
    #[inline(always)]
    pub(crate) fn next_ended(&mut self) -> Option<Outcome> {
        loop {
            while let Some(task) = self.tasks.take() {
                if let outcome @ Some(_) = self.settle(task) {
                    return outcome;
                }
            }
            if !self.look() {
                return None;
            }
        }
    }

    /// Checks which tasks have ended; returns whether any have.
    #[inline]
    fn look(&mut self) -> bool {
        if self.tasks.mine == 0 || self.in_flight == 0 || !self.tasks.refill(&self.machine) {
            return false;
        }
        // A task that ends between the two is found by the next check.
        if self.interrupts {
            self.acknowledge();
        }
        true
    }

    /// The outcome of a task, if it belongs to a command of this lane.
    #[inline(always)]
    fn settle(&mut self, task: u32) -> Option<Outcome> {
        let number = task.wrapping_sub(self.first) as usize;
        if let Some(slot) = self.slots.get_mut(number)
            && slot.kind == Kind::Task
            && let Some(token) = slot.owed.take()
        {
            let issued = slot.issued;
            let device_done = self.machine.device_done(0, task as u16);
            if !M::COHERENT {
                self.sync_incoming(number);
            }
            self.give_back(number);
            return Some(Outcome { issued, device_done, token, ended: Ended::Good });
        }
        self.settle_other(task)
    }

    /// Makes visible to the host what the device wrote into a slot's data.
    fn sync_incoming(&mut self, slot: usize) {
        let data = core::mem::replace(&mut self.slots[slot].incoming, Data::NONE);
        for range in data.ranges(&self.data).flatten() {
            self.machine.sync_for_cpu(range);
        }
    }

    #[inline]
    fn give_back(&mut self, slot: usize) {
        self.free |= 1 << slot;
        self.in_flight -= 1;
        if self.overdue != 0 {
            self.forget_victim(slot);
        }
    }

    /// If no outcome is owed any more, or a command was declined, nobody needs to poll again, so
    /// the lane parks at once.
    #[inline]
    fn rest(&mut self) {
        if self.in_flight == 0 && self.index != 0 && self.obeyed != Order::NONE {
            self.park();
        }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        (self.in_flight != 0).then_some(self.watch_at)
    }
}

/// The direction of a transfer.
#[inline(always)]
fn direction(read: bool) -> Direction {
    if read { Direction::FromDevice } else { Direction::ToDevice }
}

/// The task descriptor of a transfer of `bytes`.
#[inline(always)]
fn task(read: bool, command: &Command<Mmc>, bytes: u32) -> u64 {
    // Forced, context and tag are adjacent in both; reliable is not.
    let flags = command.payload.set_block_count.unwrap_or(0);
    let bits = u64::from(flags >> 18 & 0xFC0 | flags >> 31 << 15);
    let task = TASK
        .with_read(read)
        .with_blocks((bytes / SECTOR) as u16)
        .with_address(command.payload.argument);
    Task::from_bits(task.into_bits() | bits).into_bits()
}
