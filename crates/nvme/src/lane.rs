//! A lane: the part of a controller that one thread owns, and the hot path.
//!
//! Per command the lane writes one submission queue entry of 64 bytes; per batch it writes one
//! doorbell in each direction. Per completion it reads one completion queue entry. Nothing is
//! allocated, locked or searched: a completion names its slot.

mod watch;

use crate::layout::PAGE;
use crate::queue::{Completion, Done, LIFE, SLOT_BITS, Slot, Submission};
use crate::shared::{LaneWord, Shared};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use flysch_api::command::{Command, Declined, Direction, Ended, Failure, Limits, NotStarted};
use flysch_api::command::{Nvme, NvmeStatus, Outcome};
use flysch_api::data::{BadData, Data, Walk};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant, Machine};
use flysch_orders::Order;
use flysch_wire::nvme::command::{self, SqeFlags};
use flysch_wire::nvme::sgl::{self, Descriptor};
use flysch_wire::nvme::{Sqe, prp};

/// PSDT of data described by pages, and by a scatter gather list without metadata.
const PRPS: u8 = 0;
const SGL: u8 = 1;

/// DPTR and PSDT.
type DataPointer = ([u64; 2], u8);

/// One lane: a queue pair with everything its slots need.
#[derive(Debug)]
pub(crate) struct Lane<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) submission: Submission,
    pub(crate) completion: Completion,
    pub(crate) slots: Box<[Slot]>,
    /// The free slot to be taken next: the one freed last, whose memory is the most likely to be in
    /// the cache. It links to the other free slots.
    pub(crate) free: u16,
    /// Commands may start: the lane may run, and no outcome is waiting in `ended`, so that there
    /// are never more outcomes than slots.
    pub(crate) open: bool,
    /// The earliest deadline of the commands started since the last doorbell.
    pub(crate) soonest: Instant,
    /// Outcomes that this lane owes: of slots in flight, and those in `ended`.
    pub(crate) in_flight: usize,
    /// Number of marked slots: commands that their owner wants to end, and commands that the host
    /// was asked to abort.
    pub(crate) marks: usize,
    /// Outcomes that have not been polled yet.
    pub(crate) ended: VecDeque<(Outcome, Trouble)>,
    /// Details of the last outcome returned, if it was not plain success.
    pub(crate) trouble: Trouble,
    /// The next time to look for errors and overdue commands.
    pub(crate) watch_at: Instant,
    pub(crate) watchdog_nanos: u64,
    /// The last order obeyed; [`Order::NONE`] while parked.
    pub(crate) obeyed: Order,
    pub(crate) stopped: bool,
    /// The page lists of the slots, each of this many bytes.
    pub(crate) lists: DmaRegion,
    pub(crate) list: usize,
    /// Lists of ranges are passed to the controller as scatter gather lists.
    pub(crate) sgls: bool,
    pub(crate) data: DmaRegion,
    pub(crate) own: DmaRegion,
    pub(crate) limits: Limits,
    /// Checks data.
    pub(crate) walk: Walk,
    /// Number of completions that made no sense.
    pub(crate) strange: u32,
    /// The doorbell pages in memory, and the distance between doorbells.
    pub(crate) doorbells: DmaRegion,
    pub(crate) stride: u8,
}

/// Details of a command that did not plainly succeed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) status: NvmeStatus,
    pub(crate) residual: u32,
    /// How long the controller wants the host to wait before a retry, milliseconds.
    pub(crate) delay_ms: u32,
}

impl Trouble {
    pub(crate) fn failure(&self) -> Failure<Nvme> {
        Failure { status: self.status, residual: self.residual, code: self.delay_ms }
    }
}

impl<M: Machine> Lane<M> {
    pub(crate) fn word(&self) -> &LaneWord {
        &self.shared.lanes[self.index]
    }

    /// Accepts a command. A command that moves one range of up to two pages is handled here, every
    /// other one [out of line](Self::start_other). The host's orders take effect here as far as the
    /// lane has obeyed them, through [open](Self::open); [`ring`](Self::ring) sees newer orders.
    #[inline(always)]
    pub(crate) fn start(&mut self, command: Command<Nvme>, now: Instant) -> Result<(), Declined> {
        if self.open
            && command.crypto.is_none()
            && command.direction != Direction::None
            && let Ok(nsid) = u32::try_from(command.unit)
            && let Some(range) = self.walk.one(&command.data)
            && let (first, next, more) = prp::span(range.address, range.len, PAGE as u64)
            && more <= 1
            && let Some(slot) = self.slots.get_mut(usize::from(self.free))
        {
            self.free = slot.next;
            self.machine.sync_for_device(range);
            let second = if more == 0 { 0 } else { next };
            let deadline = command.deadline;
            let entry = fill::<M>(slot, nsid, command, ([first, second], PRPS), now);
            self.post(entry, deadline);
            return Ok(());
        }
        // Made anew, so that only a command that comes this way has to be in memory.
        let Command { unit, payload, direction, data, crypto, ordering, deadline, token } = command;
        let command = Command { unit, payload, direction, data, crypto, ordering, deadline, token };
        self.start_other(command, now)
    }

    #[cold]
    #[inline(never)]
    fn start_other(&mut self, command: Command<Nvme>, now: Instant) -> Result<(), Declined> {
        match self.prepare(&command, now) {
            Ok((slot, nsid, place)) => {
                let deadline = command.deadline;
                let entry = fill::<M>(&mut self.slots[slot], nsid, command, place, now);
                self.post(entry, deadline);
                Ok(())
            }
            Err(why) => {
                self.rest();
                Err(Declined { why, token: command.token })
            }
        }
    }

    /// Takes a slot for a command; returns it with the namespace and the location of its data.
    fn prepare(
        &mut self,
        command: &Command<Nvme>,
        now: Instant,
    ) -> Result<(usize, u32, DataPointer), NotStarted> {
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        }
        let slot = usize::from(self.free);
        if !self.open || slot >= self.slots.len() {
            return Err(self.why_not());
        }
        let (Ok(nsid), None) = (u32::try_from(command.unit), command.crypto) else {
            return Err(NotStarted::Unsupported);
        };
        let place = self.place(slot, command).map_err(NotStarted::BadData)?;
        self.free = self.slots[slot].next;
        Ok((slot, nsid, place))
    }

    /// Posts the entry of a command whose slot is filled in.
    #[inline(always)]
    fn post(&mut self, entry: [u64; command::WORDS], deadline: Instant) {
        self.submission.post(entry, &self.machine);
        self.in_flight += 1;
        if deadline < self.soonest {
            self.soonest = deadline;
        }
    }

    /// DPTR of the data, and PSDT, its kind.
    fn place(&self, slot: usize, command: &Command<Nvme>) -> Result<DataPointer, BadData> {
        match self.walk.one(&command.data) {
            Some(range) if command.direction != Direction::None => {
                self.machine.sync_for_device(range);
                let (first, next, more) = prp::span(range.address, range.len, PAGE as u64);
                match more {
                    0 => Ok(([first, 0], PRPS)),
                    1 => Ok(([first, next], PRPS)),
                    _ => Ok((self.long_range(slot, range), PRPS)),
                }
            }
            _ => self.list(slot, &command.data, command.direction),
        }
    }

    /// A range of more than two pages.
    #[inline(never)]
    fn long_range(&self, slot: usize, range: DmaSlice) -> [u64; 2] {
        let (first, next, more) = prp::span(range.address, range.len, PAGE as u64);
        let at = slot * self.list;
        for n in 0..more as usize {
            let page = next + (n * PAGE) as u64;
            self.lists.store64(at + n * prp::ENTRY, page.to_le());
        }
        self.hand_over(at, more as usize);
        [first, self.lists.address() + at as u64]
    }

    /// Any other data: none, or a list of ranges; otherwise what is wrong with the data.
    ///
    /// Inside a list every range begins and ends at a page boundary. The limits require this and
    /// the walk checks it, so there are never more pages than a single range of the same length
    /// has.
    #[inline(never)]
    fn list(&self, slot: usize, data: &Data, direction: Direction) -> Result<DataPointer, BadData> {
        if data.is_empty() {
            return Ok(([0, 0], PRPS));
        }
        if direction == Direction::None {
            return Err(BadData::Length);
        }
        if self.sgls && matches!(data, Data::List { .. }) {
            return self.scatter_gather(slot, data).map(|dptr| (dptr, SGL));
        }
        self.page_list(slot, data).map(|dptr| (dptr, PRPS))
    }

    /// A list of ranges as a scatter gather list of one segment.
    fn scatter_gather(&self, slot: usize, data: &Data) -> Result<[u64; 2], BadData> {
        let at = slot * self.list;
        let count = self.walk.run(data, |n, range| {
            let kind = sgl::kind::DATA;
            let entry = Descriptor { address: range.address, length: range.len, kind };
            let [low, high] = entry.to_words();
            self.lists.store64(at + n as usize * sgl::LENGTH, low);
            self.lists.store64(at + n as usize * sgl::LENGTH + 8, high);
        })?;
        self.sync_outgoing(data);
        let bytes = count * sgl::LENGTH as u32;
        self.machine.sync_for_device(self.lists.span(at, bytes as usize));
        let (address, kind) = (self.lists.address() + at as u64, sgl::kind::LAST_SEGMENT);
        let [low, high] = Descriptor { address, length: bytes, kind }.to_words();
        Ok([u64::from_le(low), u64::from_le(high)])
    }

    /// Ranges as a list of pages.
    fn page_list(&self, slot: usize, data: &Data) -> Result<[u64; 2], BadData> {
        let at = slot * self.list;
        let mut pages = Pages { lists: &self.lists, at, count: 0, entries: [0; 2] };
        self.walk.run(data, |n, range| {
            if n == 0 {
                // Handed out a second time if the walk had to look closer.
                pages.count = 0;
            }
            pages.put_range(range);
        })?;
        let Pages { count, entries: [first, second], .. } = pages;
        self.sync_outgoing(data);
        match count {
            1 => Ok([first, 0]),
            2 => Ok([first, second]),
            _ => {
                self.hand_over(at, count - 1);
                Ok([first, self.lists.address() + at as u64])
            }
        }
    }

    /// The ranges of data that was found good go to the device.
    fn sync_outgoing(&self, data: &Data) {
        if !M::COHERENT {
            for range in data.ranges(&self.data).flatten() {
                self.machine.sync_for_device(range);
            }
        }
    }

    fn hand_over(&self, at: usize, entries: usize) {
        self.machine.sync_for_device(self.lists.span(at, entries * prp::ENTRY));
    }

    /// One doorbell for everything started, as far as the host lets it ring. Its orders are looked
    /// at here and not for each command: one that is posted and not rung is the lane's alone.
    #[inline]
    pub(crate) fn ring(&mut self, now: Instant) {
        if !self.submission.has_unrung() {
            return;
        }
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        } else if self.obeyed.runs() {
            self.ring_started(now);
        }
    }

    /// Rings for what was started, which is something.
    #[inline(never)]
    pub(crate) fn ring_started(&mut self, now: Instant) {
        self.stamp(now);
        // While something was in flight the next look was set already; of a lane that was idle it
        // is never, or due because time went on.
        let latest = now.after_nanos(self.watchdog_nanos);
        self.watch_at = self.watch_at.min(self.soonest).min(latest);
        self.soonest = Instant::NEVER;
        // Between two of these no slot completes twice, so the ring of completions cannot overflow.
        self.completion.ring(&self.machine);
        self.submission.ring_unrung(&self.machine);
    }

    /// Commands are stamped when they start, mostly at the instant at which the doorbell rings for
    /// them. Where it is another for the first of them, all are stamped again: time does not go
    /// back, so no later one can have started at `now` then.
    fn stamp(&mut self, now: Instant) {
        let first = usize::from(self.submission.first_unrung_id() & SLOT_BITS);
        if self.slots.get(first).is_none_or(|first| first.issued != now) {
            self.stamp_again(now);
        }
    }

    #[inline(never)]
    fn stamp_again(&mut self, now: Instant) {
        for cid in self.submission.unrung_ids() {
            if let Some(slot) = self.slots.get_mut(usize::from(cid & SLOT_BITS)) {
                slot.issued = now;
            }
        }
    }

    /// The next outcome. The host's orders are looked at when nothing has completed: what lies in
    /// the ring has ended, whatever they are.
    #[inline]
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Outcome> {
        while let Some(done) = self.completion.take(&self.machine) {
            if let outcome @ Some(_) = self.settle(done) {
                self.rest();
                return outcome;
            }
        }
        let outcome = self.found_nothing(now);
        self.rest();
        outcome
    }

    /// With no outcome owed any more, or a command declined, nobody needs to poll again: the lane
    /// parks at once, and the controller is told how far the ring was read.
    #[inline]
    fn rest(&mut self) {
        if self.in_flight == 0 && self.index != 0 && self.obeyed != Order::NONE {
            self.completion.ring(&self.machine);
            self.park();
        }
    }

    /// Nothing has completed: tells the controller how far the ring was read, obeys the host, and
    /// looks after what waits.
    #[inline(never)]
    pub(crate) fn found_nothing(&mut self, now: Instant) -> Option<Outcome> {
        if self.in_flight == 0 && self.obeyed == Order::NONE {
            return None;
        }
        self.completion.ring(&self.machine);
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        }
        if self.ended.is_empty() {
            self.idle(now);
            return None;
        }
        self.take_ended()
    }

    /// The outcome of a completion, if it is of a command of this lane.
    #[inline(always)]
    pub(crate) fn settle(&mut self, done: Done) -> Option<Outcome> {
        let number = usize::from(done.cid() & SLOT_BITS);
        if let Some(slot) = self.slots.get_mut(number)
            && slot.cid == done.cid()
            && let Some(token) = slot.owed.take()
        {
            let issued = slot.issued;
            slot.next = self.free;
            self.free = number as u16;
            self.in_flight -= 1;
            let device_done = self.machine.device_done(self.index as u16 + 1, number as u16);
            if !M::COHERENT {
                self.sync_incoming(number);
            }
            let ended =
                if done.is_plainly_good() { Ended::Good } else { self.answered(number, done) };
            if self.marks != 0 {
                self.forget_marks(number);
            }
            return Some(Outcome { issued, device_done, token, ended });
        }
        self.strange = self.strange.saturating_add(1);
        None
    }

    /// What the device wrote into a slot's data comes to the host.
    fn sync_incoming(&mut self, slot: usize) {
        let data = core::mem::replace(&mut self.slots[slot].incoming, Data::NONE);
        for range in data.ranges(&self.data).flatten() {
            self.machine.sync_for_cpu(range);
        }
    }

    /// A slot is free again; it is one of the lane's.
    pub(crate) fn give_back(&mut self, number: usize) {
        self.slots[number].next = self.free;
        self.free = number as u16;
        self.in_flight -= 1;
        if self.marks != 0 {
            self.forget_marks(number);
        }
    }

    /// Nothing ended: the time to look after what did not.
    #[inline]
    fn idle(&mut self, now: Instant) {
        if self.in_flight == 0 {
            self.watch_at = Instant::NEVER;
            // The host's own lane is always at hand, and the host looks for errors.
            if self.obeyed != Order::NONE && self.index != 0 {
                self.park();
            }
        } else if now >= self.watch_at {
            self.watch(now);
        }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        (self.in_flight != 0).then_some(self.watch_at)
    }
}

/// Writes a command into its slot; its submission queue entry.
#[inline(always)]
fn fill<M: Machine>(
    slot: &mut Slot,
    nsid: u32,
    command: Command<Nvme>,
    (data, psdt): DataPointer,
    now: Instant,
) -> [u64; command::WORDS] {
    slot.cid = slot.cid.wrapping_add(LIFE);
    slot.expected = command.data.len();
    slot.owed = Some(command.token);
    slot.deadline = command.deadline;
    slot.issued = now;
    if !M::COHERENT && command.direction == Direction::FromDevice {
        slot.incoming = command.data;
    }
    let entry = Sqe {
        opcode: command.payload.opcode,
        // FUSE has two bits.
        flags: SqeFlags::new().with_fuse(command.payload.fuse & 3).with_psdt(psdt),
        cid: slot.cid,
        nsid,
        cdw2: command.payload.cdw2,
        metadata: 0,
        data,
        cdw10: command.payload.cdw10,
    };
    entry.to_words()
}

/// The pages of a list of ranges, being written.
struct Pages<'a> {
    lists: &'a DmaRegion,
    /// Where the list begins.
    at: usize,
    count: usize,
    /// The first two pages.
    entries: [u64; 2],
}

impl Pages<'_> {
    fn put(&mut self, address: u64) {
        if let Some(entry) = self.entries.get_mut(self.count) {
            *entry = address;
        }
        if self.count > 0 {
            self.lists.store64(self.at + (self.count - 1) * prp::ENTRY, address.to_le());
        }
        self.count += 1;
    }

    fn put_range(&mut self, range: DmaSlice) {
        let (first, next, more) = prp::span(range.address, range.len, PAGE as u64);
        self.put(first);
        for n in 0..u64::from(more) {
            self.put(next + n * PAGE as u64);
        }
    }
}
