//! Transfers one at a time, for a card without a queue or a controller without an engine: CMD23 if
//! it has to be a command of its own, the transfer, and after a write CMD13 until the card is ready
//! again.

use crate::bus::{Bus, Moves, Request, Response, Way};
use crate::error::BusError;
use crate::lane::Lane;
use flysch_api::machine::{Instant, Machine};
use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::command::{BlockCount, CommandIndex, rca};
use flysch_wire::mmc::sdhci::auto;

/// What card and controller support.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    pub(crate) rca: u16,
    /// CMD23 works.
    pub(crate) block_count: bool,
    /// The controller sends it by itself.
    pub(crate) auto_cmd23: bool,
    /// By DMA or through the buffer port.
    pub(crate) way: Way,
    /// A reliable write of older cards has this many sectors, or one; 0 means any number.
    pub(crate) reliable: u8,
}

impl Default for Ways {
    fn default() -> Self {
        Self { rca: 1, block_count: false, auto_cmd23: false, way: Way::Dma, reliable: 0 }
    }
}

/// What the command on the bus is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Count,
    Transfer,
    Status,
}

/// A transfer that failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) slot: usize,
    pub(crate) error: BusError,
    /// Error bits that the card reported.
    pub(crate) status: u32,
}

/// The current transfer.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) ways: Ways,
    stage: Stage,
    /// A command that waits for free lines.
    pending: Option<Request>,
    /// When to try to send what is pending.
    look_at: Instant,
    /// When to look at the current command if there is no interrupt.
    glance_at: Instant,
    /// When the command on the bus was sent.
    begun: Instant,
    patience: u64,
    /// Stays until the host has dealt with it.
    pub(crate) failed: Option<Failed>,
    /// The card has reported an exception.
    pub(crate) exception: bool,
}

/// First and longest interval between two looks at a busy card, nanoseconds (Linux: 32 us,
/// doubling).
const PATIENCE: (u64, u64) = (32_000, 4_000_000);
/// Longest interval between two looks at a current command without interrupts, nanoseconds.
const GLANCE_NANOS_MAX: u64 = 4_000_000;

impl Plain {
    pub(crate) fn new() -> Self {
        Self {
            ways: Ways::default(),
            stage: Stage::Transfer,
            pending: None,
            look_at: Instant::NEVER,
            glance_at: Instant::NEVER,
            begun: Instant::START,
            patience: PATIENCE.0,
            failed: None,
            exception: false,
        }
    }

    /// Whether the bus is in use.
    pub(crate) fn is_busy<M: Machine>(&self, lane: &Lane<M>) -> bool {
        lane.host_has.is_some() && self.failed.is_none()
    }

    /// Requests a look at the current command, if there is one, no sooner than after this many
    /// nanoseconds.
    pub(crate) fn glance<M: Machine>(&mut self, lane: &Lane<M>, now: Instant, least: u64) {
        self.glance_at =
            if self.is_busy(lane) { self.next_look(now, least) } else { Instant::NEVER };
    }

    /// When to look again at a command that takes long: the longer it has taken, the less often it
    /// is looked at, so that its end is seen at most a 32nd too late and an end that never comes
    /// does not cost a million looks.
    pub(crate) fn next_look(&self, now: Instant, least: u64) -> Instant {
        let lasts = now.nanos_since(self.begun);
        now.after_nanos((lasts / 32).min(GLANCE_NANOS_MAX).max(least))
    }

    /// When to be called again if there is no interrupt.
    pub(crate) fn poll_at(&self) -> Instant {
        if self.pending.is_some() { self.look_at } else { self.glance_at }
    }

    /// Forgets everything, which has been given back by other means.
    pub(crate) fn forget<M: Machine>(&mut self, bus: &mut Bus, lane: &mut Lane<M>) {
        bus.forget();
        (self.pending, self.failed, lane.host_has) = (None, None, None);
        (self.look_at, self.glance_at) = (Instant::NEVER, Instant::NEVER);
    }

    /// Continues as far as the bus allows it.
    pub(crate) fn advance<M: Machine>(&mut self, bus: &mut Bus, lane: &mut Lane<M>, now: Instant) {
        while self.failed.is_none() {
            let Some(slot) = lane.host_has else {
                if !lane.obeyed.runs() {
                    return;
                }
                let Some(next) = lane.waiting.pop() else { return };
                lane.host_has = Some(next);
                self.begin(lane, next);
                continue;
            };
            if !self.go_on(bus, lane, (slot, now)) {
                return;
            }
        }
    }

    /// Prepares the first command of a transfer.
    fn begin<M: Machine>(&mut self, lane: &Lane<M>, slot: usize) {
        let moves = lane.slots[slot].moves;
        self.patience = PATIENCE.0;
        self.stage = Stage::Transfer;
        let many = moves.blocks > 1 || moves.flags != 0;
        let counted = many && self.ways.block_count;
        if counted && !self.ways.auto_cmd23 {
            self.stage = Stage::Count;
            let argument = self.count(&moves);
            let index = CommandIndex::SetBlockCount;
            self.pending = Some(Request::new(index, argument, Response::Short));
        } else {
            self.pending = Some(self.transfer(lane, slot));
        }
    }

    /// Argument of CMD23. A reliable write of older cards has one of two lengths.
    fn count(&self, moves: &crate::queue::Move) -> u32 {
        let count = BlockCount::from_bits(moves.flags).with_blocks(moves.blocks);
        let fits = self.ways.reliable == 0
            || moves.blocks == 1
            || moves.blocks == u16::from(self.ways.reliable);
        count.with_reliable(count.reliable() && fits).into_bits()
    }

    fn transfer<M: Machine>(&self, lane: &Lane<M>, slot: usize) -> Request {
        let moves = lane.slots[slot].moves;
        let many = moves.blocks > 1 || moves.flags != 0;
        let index = match (moves.read, many) {
            (true, false) => CommandIndex::ReadSingleBlock,
            (true, true) => CommandIndex::ReadMultipleBlock,
            (false, false) => CommandIndex::WriteBlock,
            (false, true) => CommandIndex::WriteMultipleBlock,
        };
        let auto = match (many, self.ways.block_count, self.ways.auto_cmd23) {
            (false, ..) | (true, true, false) => auto::NONE,
            (true, true, true) => auto::CMD23,
            (true, false, _) => auto::CMD12,
        };
        let data = Moves {
            read: moves.read,
            block: 512,
            blocks: moves.blocks,
            way: self.ways.way,
            list: lane.list_of(slot),
            auto,
            count: self.count(&moves),
        };
        Request { index, argument: moves.address, response: Response::Short, data: Some(data) }
    }

    /// One step; `false` while there is nothing to do.
    fn go_on<M: Machine>(
        &mut self,
        bus: &mut Bus,
        lane: &mut Lane<M>,
        (slot, now): (usize, Instant),
    ) -> bool {
        let late = now >= lane.slots[slot].deadline;
        if let Some(request) = self.pending {
            if late {
                self.fail(bus, slot, BusError::SILENT);
                return true;
            }
            if now < self.look_at && self.look_at != Instant::NEVER
                || !bus.is_free(&lane.machine, &request)
            {
                self.wait(now);
                return false;
            }
            self.pending = None;
            self.look_at = Instant::NEVER;
            self.begun = now;
            bus.begin(&lane.machine, request, &lane.lists);
        }
        let places = (&lane.lists, lane.machine.memory());
        match bus.look(&lane.machine, places) {
            None if late => self.fail(bus, slot, BusError::SILENT),
            None => return false,
            Some(Err(error)) => self.fail(bus, slot, error),
            Some(Ok(response)) => self.ended(bus, lane, (slot, now), response[0]),
        }
        true
    }

    fn wait(&mut self, now: Instant) {
        if self.look_at == Instant::NEVER || now >= self.look_at {
            self.look_at = now.after_nanos(self.patience);
            self.patience = (self.patience * 2).min(PATIENCE.1);
        }
    }

    /// A command of the transfer has ended on the bus.
    fn ended<M: Machine>(
        &mut self,
        bus: &Bus,
        lane: &mut Lane<M>,
        (slot, now): (usize, Instant),
        response: u32,
    ) {
        let status = CardStatus::from_bits(response);
        if bus.told() != 0 {
            return self.fail(bus, slot, BusError::STATUS);
        }
        self.exception |= status.exception_event();
        match self.stage {
            Stage::Count => {
                self.stage = Stage::Transfer;
                self.pending = Some(self.transfer(lane, slot));
            }
            Stage::Transfer if lane.slots[slot].moves.read => self.good(lane, slot),
            Stage::Transfer => {
                self.stage = Stage::Status;
                self.ask_status();
            }
            Stage::Status if status.is_ready() => self.good(lane, slot),
            Stage::Status => {
                self.ask_status();
                self.wait(now);
            }
        }
    }

    fn ask_status(&mut self) {
        let (index, argument) = (CommandIndex::SendStatus, rca(self.ways.rca));
        self.pending = Some(Request::new(index, argument, Response::Short));
    }

    fn good<M: Machine>(&mut self, lane: &mut Lane<M>, slot: usize) {
        lane.host_has = None;
        lane.end_well(slot);
    }

    fn fail(&mut self, bus: &Bus, slot: usize, error: BusError) {
        self.pending = None;
        (self.look_at, self.glance_at) = (Instant::NEVER, Instant::NEVER);
        self.failed = Some(Failed { slot, error, status: bus.told() });
    }
}
