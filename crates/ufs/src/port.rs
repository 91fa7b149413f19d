//! The hot path: start, ring, poll.
//!
//! Per command this writes 64 bytes of command descriptor (COMMAND UPIU and the first two physical
//! region entries share a cache line), one word of the response area and one queue entry; per batch
//! one doorbell. Coming back it reads the status word and the response header. Nothing is
//! allocated, locked or searched: a completion names its slot.

use crate::host::Host;
use crate::layout::slot as descriptor;
use crate::queue::{Done, FreeSlots, Phase, Queue, Slot, Verdict};
use crate::quirks::{Quirk, Quirks};
use crate::shared::{LaneWord, Order, Shared};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use flysch_api::command::{self, Command, Direction, Ended, Limits, NotStarted, Outcome};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant, Machine};
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::upiu::{
    self, CommandFlags, CommandUpiu, RESPONSE_LENGTH_MAX, ResponseUpiu, SENSE_LENGTH_MAX,
    TaskAttribute,
};
use flysch_wire::ufs::utrd::{
    self, CommandType, DataDirection, Ocs, UcdSpan, Utrd, UtrdHeader, UtrdStatus,
};

/// Physical region entries written together with the COMMAND UPIU.
const FIRST_ENTRIES: usize = 2;
const SCSI_GOOD: u8 = 0;

/// One lane of a UFS host: commands in, outcomes out.
///
/// The first port of a host carries the [`Host`] itself, so that polling it also drives
/// recovery. Every port that has commands in flight must be polled at
/// [`poll_at`](command::Port::poll_at) at the latest.
#[derive(Debug)]
pub struct Port<M: Machine> {
    inner: Inner<M>,
}

#[derive(Debug)]
enum Inner<M: Machine> {
    Host(Box<Host<M>>),
    Lane(Box<Lane<M>>),
}

impl<M: Machine> Port<M> {
    pub(crate) fn of_host(host: Host<M>) -> Self {
        Self { inner: Inner::Host(Box::new(host)) }
    }

    pub(crate) fn of_lane(lane: Box<Lane<M>>) -> Self {
        Self { inner: Inner::Lane(lane) }
    }

    /// The host, if this port carries it.
    pub fn host(&self) -> Option<&Host<M>> {
        match &self.inner {
            Inner::Host(host) => Some(host),
            Inner::Lane(_) => None,
        }
    }

    /// The host, if this port carries it: queries, power, errors.
    pub fn host_mut(&mut self) -> Option<&mut Host<M>> {
        match &mut self.inner {
            Inner::Host(host) => Some(host),
            Inner::Lane(_) => None,
        }
    }

    /// Ends a command of this port before its deadline; its outcome will be
    /// [`Ended::Aborted`] unless it is done before. `false` if no such command is in flight.
    pub fn abort(&mut self, token: u32) -> bool {
        self.lane_mut().abort(token)
    }

    /// Polled mode: lets completions raise the interrupt line. `true` means nothing has ended
    /// since, so waiting for the interrupt cannot miss anything; `false` means poll first.
    ///
    /// The line is released by the next poll that finds something. With several lanes on one
    /// interrupt line a lane may clear the status another is about to wait for, so each also
    /// waits no longer than [`poll_at`](command::Port::poll_at), which then is at most 1 ms away.
    pub fn arm(&mut self) -> bool {
        self.lane_mut().arm()
    }

    /// The number of the lane.
    pub fn lane_index(&self) -> u16 {
        self.lane_ref().index as u16
    }

    #[inline]
    fn lane_mut(&mut self) -> &mut Lane<M> {
        match &mut self.inner {
            Inner::Host(host) => host.lane_mut(),
            Inner::Lane(lane) => lane,
        }
    }

    #[inline]
    fn lane_ref(&self) -> &Lane<M> {
        match &self.inner {
            Inner::Host(host) => host.lane(),
            Inner::Lane(lane) => lane,
        }
    }
}

impl<M: Machine> command::Port for Port<M> {
    fn limits(&self) -> &Limits {
        &self.lane_ref().limits
    }

    fn memory(&self) -> &DmaRegion {
        &self.lane_ref().data
    }

    #[inline]
    fn start(&mut self, command: &Command, now: Instant) -> Result<(), NotStarted> {
        self.lane_mut().start(command, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.lane_mut().ring(now);
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        match &mut self.inner {
            Inner::Host(host) => host.poll_lane(now),
            Inner::Lane(lane) => lane.poll(now),
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        match &self.inner {
            Inner::Host(host) => host.poll_at(),
            Inner::Lane(lane) => lane.poll_at(),
        }
    }
}

/// One lane: a queue pair or slot range with everything its slots need.
#[derive(Debug)]
pub(crate) struct Lane<M: Machine> {
    pub(crate) machine: M,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) queue: Queue,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) free: FreeSlots,
    /// Free slots that [`start`](Self::start) must leave.
    pub(crate) reserve: usize,
    pub(crate) wants_slot: bool,
    /// SDQ: the lane's slots that are stuck in the controller.
    pub(crate) dead: u32,
    /// Slots started since the last doorbell.
    pub(crate) started: Box<[u8]>,
    pub(crate) started_len: usize,
    /// Outcomes this lane owes: of slots in whatever phase, and those in `ended`.
    pub(crate) in_flight: usize,
    /// Outcomes that wait to be fetched.
    pub(crate) ended: VecDeque<Outcome>,
    /// The next time to look for errors and overdue commands.
    pub(crate) watch_at: Instant,
    pub(crate) watchdog_nanos: u64,
    /// The last order obeyed.
    pub(crate) obeyed: Order,
    pub(crate) parked: bool,
    pub(crate) stopped: bool,
    /// Whether completions raise the interrupt line now, and whether only until the next one.
    pub(crate) interrupts: bool,
    pub(crate) armed: bool,
    pub(crate) management: Option<Management>,
    pub(crate) descriptors: DmaRegion,
    pub(crate) data: DmaRegion,
    pub(crate) limits: Limits,
    /// Task tag of slot 0; the others follow.
    pub(crate) first_tag: u8,
    pub(crate) quirks: Quirks,
    /// Completions that made no sense.
    pub(crate) strange: u32,
}

/// The device management command a lane carries for the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Management {
    pub(crate) slot: usize,
    pub(crate) ocs: Option<u8>,
}

impl<M: Machine> Lane<M> {
    pub(crate) fn word(&self) -> &LaneWord {
        &self.shared.lanes[self.index]
    }

    #[inline]
    pub(crate) fn tag(&self, slot: usize) -> u8 {
        self.first_tag.wrapping_add(slot as u8)
    }

    #[inline]
    pub(crate) fn start(&mut self, command: &Command, now: Instant) -> Result<(), NotStarted> {
        if self.parked || self.shared.order() != self.obeyed {
            self.wake(now);
        }
        if self.free.len() <= self.reserve {
            return Err(self.full());
        }
        self.check_data(&command.data, command.direction)?;
        let Some(slot) = self.free.take() else { return Err(NotStarted::Full) };
        let entries = self.write_descriptor(slot, command);
        let entry = self.entry(slot, command.direction, entries);
        self.queue.post(slot, &entry);
        self.slots[slot] = Slot {
            phase: Phase::Started,
            lun: command.lun,
            abort: false,
            verdict: Verdict::Ocs(0),
            expected: command.data.len,
            owed: command.token,
            deadline: command.deadline,
            issued: now,
        };
        self.started[self.started_len] = slot as u8;
        self.started_len += 1;
        if self.in_flight == 0 {
            self.watch_at = now.after_nanos(self.watchdog_nanos);
        }
        self.in_flight += 1;
        self.watch_at = self.watch_at.min(command.deadline);
        Ok(())
    }

    #[cold]
    fn full(&self) -> NotStarted {
        if self.obeyed.has(Order::GONE) { NotStarted::Gone } else { NotStarted::Full }
    }

    #[inline]
    fn check_data(&self, data: &DmaSlice, direction: Direction) -> Result<(), NotStarted> {
        if data.len == 0 {
            return Ok(());
        }
        let mask = u64::from(prdt::ALIGNMENT) - 1;
        let aligned = (data.address | u64::from(data.len)) & mask == 0;
        let inside = self.data.offset_of(data.address, data.len as usize).is_ok();
        let fits = data.len <= self.limits.transfer_max && direction != Direction::None;
        if aligned && inside && fits { Ok(()) } else { Err(NotStarted::BadData) }
    }

    /// COMMAND UPIU and physical regions; gives the number of regions.
    #[inline]
    fn write_descriptor(&self, slot: usize, command: &Command) -> u16 {
        let at = slot * descriptor::LENGTH;
        let flags = CommandFlags::new()
            .with_attr(match command.attribute {
                command::TaskAttribute::Simple => TaskAttribute::Simple,
                command::TaskAttribute::Ordered => TaskAttribute::Ordered,
                command::TaskAttribute::HeadOfQueue => TaskAttribute::HeadOfQueue,
            })
            .with_r(command.direction == Direction::FromDevice)
            .with_w(command.direction == Direction::ToDevice);
        let mut unit = CommandUpiu::new(command.lun, self.tag(slot), flags, command.cdb);
        unit.expected_data_transfer_length = command.data.len;
        let mut bytes = [0; upiu::LENGTH + FIRST_ENTRIES * prdt::LENGTH];
        if let Some(head) = bytes.first_chunk_mut() {
            unit.emit(head);
        }
        let first = PrdtEntry {
            address: command.data.address,
            length: command.data.len.min(prdt::ENTRY_MAX),
        };
        if let Some(entry) = bytes[upiu::LENGTH..].first_chunk_mut() {
            first.emit(entry);
        }
        self.descriptors.write(at, &bytes);
        // Whatever the device does not overwrite must not look like an answer.
        self.descriptors.store32(at + descriptor::RESPONSE, u32::MAX);
        if command.data.len > prdt::ENTRY_MAX {
            self.write_more_regions(at, command.data);
        }
        prdt::entries_for(command.data.len) as u16
    }

    fn write_more_regions(&self, at: usize, data: DmaSlice) {
        for (n, entry) in prdt::entries(data.address, data.len).enumerate().skip(1) {
            let mut bytes = [0; prdt::LENGTH];
            entry.emit(&mut bytes);
            self.descriptors.write(at + descriptor::PRDT + n * prdt::LENGTH, &bytes);
        }
    }

    #[inline]
    fn entry(&self, slot: usize, direction: Direction, regions: u16) -> [u8; utrd::LENGTH] {
        let dd = match direction {
            Direction::None => DataDirection::None,
            Direction::ToDevice => DataDirection::ToDevice,
            Direction::FromDevice => DataDirection::FromDevice,
        };
        let entry = Utrd {
            header: UtrdHeader::new().with_i(true).with_dd(dd).with_ct(CommandType::UfsStorage),
            dun: 0,
            status: UtrdStatus::PENDING,
            ucd_base: self.descriptors.address() + (slot * descriptor::LENGTH) as u64,
            response: UcdSpan::new()
                .with_length((descriptor::RESPONSE_LENGTH / 4) as u16)
                .with_offset((descriptor::RESPONSE / 4) as u16),
            prdt: UcdSpan::new().with_length(regions).with_offset((descriptor::PRDT / 4) as u16),
        };
        let mut bytes = [0; utrd::LENGTH];
        entry.emit(&mut bytes);
        bytes
    }

    #[inline]
    pub(crate) fn ring(&mut self, now: Instant) {
        if self.started_len == 0 || !self.obeyed.runs() {
            return;
        }
        for &slot in &self.started[..self.started_len] {
            let slot = &mut self.slots[usize::from(slot)];
            slot.phase = Phase::Issued;
            slot.issued = now;
        }
        self.started_len = 0;
        self.queue.ring(&self.machine);
    }

    #[inline]
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Outcome> {
        if self.shared.order() != self.obeyed {
            self.wake(now);
        }
        loop {
            match self.queue.take(&self.machine) {
                Some(done) => {
                    if let Some(slot) = self.settle(done) {
                        return Some(self.complete(slot, done.ocs, now));
                    }
                }
                None => {
                    if !self.ended.is_empty() {
                        return self.take_ended();
                    }
                    if !self.has_work() || !self.look() {
                        self.idle(now);
                        return None;
                    }
                }
            }
        }
    }

    /// Looks for a new batch of completions.
    #[inline]
    pub(crate) fn look(&mut self) -> bool {
        if self.interrupts {
            self.acknowledge();
        }
        let found = self.queue.refill(&self.machine);
        if found && self.armed {
            self.disarm();
        }
        found
    }

    /// Whether a look at the queue can find anything.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.in_flight != 0 || self.management.is_some()
    }

    /// The slot of an ended queue entry, if its outcome is this lane's to deliver now.
    #[inline]
    fn settle(&mut self, done: Done) -> Option<usize> {
        match self.slots.get(done.slot) {
            Some(slot) if slot.phase == Phase::Issued => Some(done.slot),
            _ => {
                self.unusual(done);
                None
            }
        }
    }

    /// Makes the outcome of a slot from what controller and device said, and frees the slot.
    #[inline]
    pub(crate) fn complete(&mut self, slot: usize, ocs: u8, now: Instant) -> Outcome {
        let owed = self.slots[slot];
        let mut outcome = Outcome {
            token: owed.owed,
            ended: Ended::Host(ocs),
            residual: 0,
            sense: Default::default(),
            issued: owed.issued,
            device_done: self.machine.device_done(self.device_queue(), self.tag(slot).into()),
            seen: now,
        };
        if ocs == Ocs::Success.into_bits() {
            self.read_response(slot, owed.expected, &mut outcome);
        } else {
            self.overall_error(ocs, &mut outcome);
        }
        self.free_slot(slot);
        outcome
    }

    #[inline]
    fn read_response(&self, slot: usize, expected: u32, outcome: &mut Outcome) {
        let at = slot * descriptor::LENGTH + descriptor::RESPONSE;
        let mut bytes = [0; upiu::LENGTH];
        self.descriptors.read(at, &mut bytes);
        let Ok(response) = ResponseUpiu::parse(&bytes) else {
            outcome.ended = Ended::Host(Ocs::Invalid.into_bits());
            return;
        };
        if response.header.task_tag != self.tag(slot) {
            outcome.ended = Ended::Host(Ocs::Invalid.into_bits());
            return;
        }
        outcome.ended = Ended::Status(response.header.status);
        if response.flags().u() && response.residual_transfer_count <= expected {
            outcome.residual = response.residual_transfer_count;
        }
        if response.header.status != SCSI_GOOD || response.header.response != 0 {
            self.read_failure(at, &response, outcome);
        }
        if response.header.device_information.event_alert() {
            self.shared.report_event();
        }
    }

    #[cold]
    fn read_failure(&self, at: usize, response: &ResponseUpiu, outcome: &mut Outcome) {
        let mut bytes = [0; RESPONSE_LENGTH_MAX];
        self.descriptors.read(at, &mut bytes);
        let sense = response.sense(&bytes);
        outcome.sense.len = sense.len().min(SENSE_LENGTH_MAX) as u8;
        outcome.sense.bytes[..sense.len()].copy_from_slice(sense);
        if response.header.response != 0 && response.header.status == SCSI_GOOD {
            // Target failure without a SCSI status: the transport did not find the unit.
            outcome.ended = Ended::NoLogicalUnit;
        }
    }

    #[cold]
    fn overall_error(&self, ocs: u8, outcome: &mut Outcome) {
        match Ocs::from_bits(ocs) {
            Ocs::InvalidCommandTableAttributes if self.quirks.has(Quirk::MissingUnitSetsOcs) => {
                outcome.ended = Ended::NoLogicalUnit;
            }
            Ocs::PeerCommunicationFailure
            | Ocs::Aborted
            | Ocs::FatalError
            | Ocs::DeviceFatalError => self.report_status(ocs),
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn free_slot(&mut self, slot: usize) {
        self.slots[slot].phase = Phase::Free;
        self.free.put(slot);
        self.in_flight -= 1;
        if self.dead != 0 {
            self.retire_dead();
        }
    }

    /// Nothing ended: the time to look after what did not.
    #[inline]
    fn idle(&mut self, now: Instant) {
        if self.in_flight == 0 {
            // The host's own lane is always at hand.
            if !self.parked && self.index != 0 {
                self.park();
            }
        } else if now >= self.watch_at {
            self.watch(now);
        }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        (self.in_flight != 0).then_some(self.watch_at)
    }

    /// The queue number [`device_done`](flysch_api::machine::Registers::device_done) knows this
    /// lane by.
    #[inline]
    fn device_queue(&self) -> u16 {
        match self.queue {
            Queue::Sdq(_) => 0,
            Queue::Mcq(_) => self.index as u16,
        }
    }
}
