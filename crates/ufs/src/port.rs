//! The hot path: start, ring, poll.
//!
//! Per command this writes 64 bytes of command descriptor (COMMAND UPIU and the first two physical
//! region entries share a cache line), one word of the response area and one queue entry; per batch
//! one doorbell. Coming back it reads the status word and the response header. Nothing is
//! allocated, locked or searched: a completion names its slot.

use crate::control::MS;
use crate::host::Host;
use crate::layout::slot as descriptor;
use crate::options::Aggregation;
use crate::queue::{Done, FreeSlots, Phase, Queue, Slot};
use crate::quirks::{Quirk, Quirks};
use crate::shared::{LaneWord, Order, Shared, Signals, UNITS};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use flysch_api::command::{self, Command, Declined, Direction, Ended, Failure, Limits, NotStarted};
use flysch_api::command::{Ordering, Outcome, Scsi, ScsiStatus, SenseBytes, Token};
use flysch_api::data::{BadData, Data, Walk};
use flysch_api::machine::{DmaArray, DmaRegion, DmaSlice, Instant, Machine};
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::upiu::{
    self, CommandFlags, CommandUpiu, RESPONSE_LENGTH_MAX, ResponseUpiu, SENSE_LENGTH_MAX,
    TaskAttribute,
};
use flysch_wire::ufs::utrd::{
    CommandType, DataDirection, Ocs, UcdSpan, Utrd, UtrdHeader, UtrdStatus,
};

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

    /// The interrupt vector that ends of this port's commands raise, once the host is up: 0, the
    /// line, where queues have none of their own. [`Machine::on_vector`] waits for it alone. The
    /// line, for errors, is the first port's or the host's.
    pub fn vector(&self) -> u16 {
        let lane = self.lane_ref();
        if lane.word().starts().signals.messages { lane.index as u16 } else { 0 }
    }

    /// Polled mode: lets completions raise the interrupt. `true` means nothing has ended
    /// since, so waiting for the interrupt cannot miss anything; `false` means poll first.
    ///
    /// It is masked again by the next poll that finds something. With several lanes on the line
    /// a lane may clear the status another is about to wait for, so each also
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
    type Protocol = Scsi;

    fn limits(&self) -> &Limits {
        &self.lane_ref().limits
    }

    fn memory(&self) -> &DmaRegion {
        &self.lane_ref().data
    }

    #[inline(always)]
    fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        self.lane_mut().start(command, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.lane_mut().ring(now);
    }

    #[inline(always)]
    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        match &mut self.inner {
            Inner::Host(host) => host.poll_lane(now),
            Inner::Lane(lane) => lane.poll(now),
        }
    }

    fn failure(&self) -> Failure<Scsi> {
        self.lane_ref().trouble.failure()
    }

    fn poll_at(&self) -> Option<Instant> {
        match &self.inner {
            Inner::Host(host) => host.poll_at(),
            Inner::Lane(lane) => lane.poll_at(),
        }
    }
}

/// A segment as the words of a physical region entry.
#[inline(always)]
fn region_words(segment: DmaSlice) -> [u64; 2] {
    PrdtEntry { address: segment.address, length: segment.len }.to_words()
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
    /// With no more free slots than this, [`start`](Self::start) asks [`admit`](Self::admit).
    pub(crate) reserve: usize,
    pub(crate) wants_slot: bool,
    /// SDQ: the lane's slots that are stuck in the controller.
    pub(crate) dead: u32,
    /// Commands it may have in flight: its share of what the device queues.
    pub(crate) budget: usize,
    /// A command was declined because the link hibernates.
    pub(crate) waits: bool,
    /// Whether some unit queues less than that, and what each has in flight of this lane.
    pub(crate) bounds_units: bool,
    pub(crate) in_unit: [u8; UNITS],
    /// Whether a slot that is given back has to be looked at: some are dead or counted by unit.
    pub(crate) counts_slots: bool,
    /// Slots started since the last doorbell.
    pub(crate) started: Box<[u8]>,
    pub(crate) started_len: usize,
    /// Outcomes this lane owes: of slots in whatever phase, and those in `ended`.
    pub(crate) in_flight: usize,
    /// Outcomes that wait to be fetched.
    pub(crate) ended: VecDeque<(Outcome, Trouble)>,
    /// More about the outcome given last, if it was not plainly good.
    pub(crate) trouble: Trouble,
    /// The next time to look for errors and overdue commands.
    pub(crate) watch_at: Instant,
    /// The time between two such looks, as asked for and as the interrupts allow, nanoseconds.
    pub(crate) watchdog: u64,
    pub(crate) watchdog_nanos: u64,
    /// The last order obeyed.
    pub(crate) obeyed: Order,
    pub(crate) parked: bool,
    pub(crate) stopped: bool,
    /// How ends are told, and what has them counted anew where several are told together.
    pub(crate) signals: Signals,
    pub(crate) count: Option<u32>,
    pub(crate) aggregation: Option<Aggregation>,
    /// Whether completions raise an interrupt now, and whether only until the next one.
    pub(crate) interrupts: bool,
    pub(crate) armed: bool,
    pub(crate) management: Option<Management>,
    pub(crate) descriptors: DmaArray<{ descriptor::LENGTH }>,
    /// The same memory as physical region entries.
    pub(crate) regions: DmaArray<{ prdt::LENGTH }>,
    pub(crate) data: DmaRegion,
    pub(crate) limits: Limits,
    /// Checks data and makes physical region entries of it.
    pub(crate) walk: Walk,
    /// Task tag of slot 0; the others follow.
    pub(crate) first_tag: u8,
    pub(crate) quirks: Quirks,
    /// Completions that made no sense.
    pub(crate) strange: u32,
}

/// What is told of a command that did not plainly end well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// SCSI status.
    status: u8,
    /// Overall command status of the controller.
    ocs: u8,
    residual: u32,
    sense: [u8; SENSE_LENGTH_MAX],
    sense_len: u8,
}

impl Trouble {
    /// Nothing was moved, and nobody said why.
    pub(crate) fn nothing_moved(expected: u32) -> Self {
        Self { residual: expected, ..Self::default() }
    }

    fn failure(&self) -> Failure<Scsi> {
        let sense = SenseBytes::new(&self.sense[..self.sense_len.into()]);
        let status = ScsiStatus { status: self.status, sense };
        Failure { status, residual: self.residual, code: self.ocs.into() }
    }
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

    #[inline(always)]
    pub(crate) fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        let declined = |why, token| Err(Declined { why, token });
        if self.parked || self.shared.order() != self.obeyed {
            self.wake(now);
        }
        if self.free.len() <= self.reserve
            && let Err(why) = self.admit(command.unit, now)
        {
            return declined(why, command.token);
        }
        let Some(lun) = LogicalUnitNumber::from_bits(command.unit).to_ufs() else {
            return declined(NotStarted::Unsupported, command.token);
        };
        let Some(slot) = self.free.take() else { return declined(NotStarted::Full, command.token) };
        let prdt = match self.write_descriptor(slot, lun, &command) {
            Ok(prdt) => prdt,
            Err(bad) => {
                self.free.put(slot);
                if self.bounds_units {
                    self.leave_unit(lun);
                }
                return declined(NotStarted::BadData(bad), command.token);
            }
        };
        let entry = self.entry(slot, command.direction, prdt);
        self.queue.post(slot, entry.to_words(), &self.machine);
        let place = &mut self.slots[slot];
        place.phase = Phase::Started;
        place.lun = lun;
        place.abort = false;
        place.expected = command.data.len();
        place.owed = Some(command.token);
        place.deadline = command.deadline;
        place.issued = now;
        if !M::COHERENT && command.direction == Direction::FromDevice {
            place.incoming = command.data;
        }
        self.started[self.started_len] = slot as u8;
        self.started_len += 1;
        if self.in_flight == 0 {
            self.watch_at = now.after_nanos(self.watchdog_nanos);
        }
        self.in_flight += 1;
        self.watch_at = self.watch_at.min(command.deadline);
        Ok(())
    }

    /// COMMAND UPIU and physical regions; gives where the regions are and how many.
    #[inline(always)]
    fn write_descriptor(
        &self,
        slot: usize,
        lun: u8,
        command: &Command<Scsi>,
    ) -> Result<UcdSpan, BadData> {
        const ONE: UcdSpan =
            UcdSpan::new().with_length(1).with_offset((descriptor::PRDT / 4) as u16);
        let block = self.descriptors.get(slot);
        let prdt = match self.walk.one(&command.data) {
            Some(range) if command.direction != Direction::None => {
                block.put::<{ descriptor::PRDT }, 2>(region_words(range));
                self.machine.sync_for_device(range);
                ONE
            }
            _ => self.write_regions(slot, &command.data, command.direction)?,
        };
        let flags = CommandFlags::new()
            .with_attr(match command.ordering {
                Ordering::Simple => TaskAttribute::Simple,
                Ordering::Ordered => TaskAttribute::Ordered,
                Ordering::HeadOfQueue => TaskAttribute::HeadOfQueue,
            })
            .with_r(command.direction == Direction::FromDevice)
            .with_w(command.direction == Direction::ToDevice);
        let (tag, length) = (self.tag(slot), command.data.len());
        let unit = CommandUpiu::words(lun, tag, flags, length, &command.payload.0);
        block.put::<0, { upiu::LENGTH / 8 }>(unit);
        // Whatever the device does not overwrite must not look like an answer.
        block.put::<{ descriptor::RESPONSE }, 1>([u64::MAX]);
        let memory = self.descriptors.region();
        self.machine.sync_for_device(memory.span(slot * descriptor::LENGTH, descriptor::LIST));
        Ok(prdt)
    }

    /// Data that is not plainly one segment, as physical regions, checked on the way.
    #[inline(never)]
    fn write_regions(
        &self,
        slot: usize,
        data: &Data,
        direction: Direction,
    ) -> Result<UcdSpan, BadData> {
        if direction == Direction::None && !data.is_empty() {
            return Err(BadData::Length);
        }
        let at = slot * descriptor::LENGTH + descriptor::LIST;
        let first = at / prdt::LENGTH;
        let count = self.walk.run(data, |n, segment| {
            self.regions.get(first + n as usize).put::<0, 2>(region_words(segment));
            self.machine.sync_for_device(segment);
        })?;
        let memory = self.descriptors.region();
        self.machine.sync_for_device(memory.span(at, count as usize * prdt::LENGTH));
        Ok(UcdSpan::new().with_length(count as u16).with_offset((descriptor::LIST / 4) as u16))
    }

    #[inline]
    fn entry(&self, slot: usize, direction: Direction, prdt: UcdSpan) -> Utrd {
        let dd = match direction {
            Direction::None => DataDirection::None,
            Direction::ToDevice => DataDirection::ToDevice,
            Direction::FromDevice => DataDirection::FromDevice,
        };
        Utrd {
            header: UtrdHeader::new()
                .with_i(!self.signals.aggregated)
                .with_dd(dd)
                .with_ct(CommandType::UfsStorage),
            dun: 0,
            status: UtrdStatus::PENDING,
            ucd_base: self.descriptors.region().address() + (slot * descriptor::LENGTH) as u64,
            response: UcdSpan::new()
                .with_length((descriptor::RESPONSE_LENGTH / 4) as u16)
                .with_offset((descriptor::RESPONSE / 4) as u16),
            prdt,
        }
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

    pub(crate) fn poll(&mut self, now: Instant) -> Option<Outcome> {
        if self.shared.order() != self.obeyed {
            self.wake(now);
        }
        self.take_outcome(now)
    }

    /// The next outcome, for a lane that obeys the standing order.
    #[inline(always)]
    pub(crate) fn take_outcome(&mut self, now: Instant) -> Option<Outcome> {
        loop {
            if let Some(done) = self.queue.take(&self.machine) {
                if let outcome @ Some(_) = self.settle(done) {
                    return outcome;
                }
            } else if !self.ended.is_empty() {
                return self.take_ended();
            } else if !self.has_work() || !self.look() {
                self.idle(now);
                return None;
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

    /// The outcome of an ended queue entry, if it is this lane's to deliver now.
    #[inline(always)]
    fn settle(&mut self, done: Done) -> Option<Outcome> {
        if let Some(slot) = self.slots.get_mut(done.slot)
            && slot.phase == Phase::Issued
            && let Some(token) = slot.owed.take()
        {
            slot.phase = Phase::Free;
            let issued = slot.issued;
            return Some(self.complete(done, token, issued));
        }
        self.unusual(done);
        None
    }

    /// Makes the outcome of an ended slot from what controller and device said, and gives the slot
    /// back.
    #[inline(always)]
    pub(crate) fn complete(&mut self, done: Done, token: Token, issued: Instant) -> Outcome {
        let Done { slot, ocs } = done;
        let device_done = self.machine.device_done(self.device_queue(), self.tag(slot).into());
        if !M::COHERENT {
            self.sync_incoming(slot);
        }
        let ended = if ocs == Ocs::Success.into_bits() {
            self.read_response(slot)
        } else {
            self.overall_error(slot, ocs)
        };
        self.give_back(slot);
        Outcome { issued, device_done, token, ended }
    }

    /// What the device wrote into a slot's data comes to the host.
    fn sync_incoming(&mut self, slot: usize) {
        let data = core::mem::replace(&mut self.slots[slot].incoming, Data::NONE);
        for range in data.ranges(&self.data).flatten() {
            self.machine.sync_for_cpu(range);
        }
    }

    #[inline(always)]
    fn read_response(&mut self, slot: usize) -> Ended {
        let at = slot * descriptor::LENGTH + descriptor::RESPONSE;
        let memory = self.descriptors.region();
        self.machine.sync_for_cpu(memory.span(at, descriptor::RESPONSE_LENGTH));
        let words = self.descriptors.get(slot).get::<{ descriptor::RESPONSE }, 2>();
        if ResponseUpiu::is_plainly_good(words, self.tag(slot)) {
            Ended::Good
        } else {
            self.read_other_response(slot)
        }
    }

    /// An answer that is not plainly good, or none.
    #[cold]
    fn read_other_response(&mut self, slot: usize) -> Ended {
        let at = slot * descriptor::LENGTH + descriptor::RESPONSE;
        let mut bytes = [0; upiu::LENGTH];
        self.descriptors.region().read(at, &mut bytes);
        let response = match ResponseUpiu::parse(&bytes) {
            Ok(response) if response.header.task_tag == self.tag(slot) => response,
            _ => return self.no_answer(slot, Ocs::Invalid.into_bits()),
        };
        if response.header.device_information.event_alert() {
            self.shared.report_event();
        }
        let expected = self.slots[slot].expected;
        // Devices have been seen to tell what they did not move without the underflow flag; with
        // the overflow flag it is what the device would have moved beyond. More than was asked for
        // is nonsense (QEMU).
        let believed = !response.flags().o() && response.residual_transfer_count <= expected;
        let residual = if believed { response.residual_transfer_count } else { 0 };
        let good = response.header.status == SCSI_GOOD && response.header.response == 0;
        if good && residual == 0 { Ended::Good } else { self.read_failure(at, &response, residual) }
    }

    fn read_failure(&mut self, at: usize, response: &ResponseUpiu, residual: u32) -> Ended {
        let mut bytes = [0; RESPONSE_LENGTH_MAX];
        self.descriptors.region().read(at, &mut bytes);
        let sense = response.sense(&bytes);
        let sense = &sense[..sense.len().min(SENSE_LENGTH_MAX)];
        let status = response.header.status;
        self.trouble = Trouble { status, residual, ..Trouble::default() };
        self.trouble.sense[..sense.len()].copy_from_slice(sense);
        self.trouble.sense_len = sense.len() as u8;
        // Target failure without a SCSI status: the transport did not find the unit.
        let no_unit = response.header.response != 0 && status == SCSI_GOOD;
        if no_unit { Ended::NoUnit } else { Ended::Answered }
    }

    /// The controller says success, the device's answer is not there; or the controller says what.
    #[cold]
    fn no_answer(&mut self, slot: usize, ocs: u8) -> Ended {
        let expected = self.slots[slot].expected;
        self.trouble = Trouble { ocs, ..Trouble::nothing_moved(expected) };
        Ended::Host
    }

    #[cold]
    fn overall_error(&mut self, slot: usize, ocs: u8) -> Ended {
        let ended = self.no_answer(slot, ocs);
        match Ocs::from_bits(ocs) {
            Ocs::InvalidCommandTableAttributes if self.quirks.has(Quirk::MissingUnitSetsOcs) => {
                return Ended::NoUnit;
            }
            Ocs::PeerCommunicationFailure
            | Ocs::Aborted
            | Ocs::FatalError
            | Ocs::DeviceFatalError => self.report_status(ocs),
            _ => {}
        }
        ended
    }

    #[inline]
    pub(crate) fn give_back(&mut self, slot: usize) {
        self.free.put(slot);
        self.in_flight -= 1;
        if self.counts_slots {
            self.count_slot(slot);
        }
    }

    /// Nothing ended: the time to look after what did not.
    #[inline]
    fn idle(&mut self, now: Instant) {
        if self.in_flight == 0 {
            if self.waits && now >= self.watch_at {
                self.watch_at = now.after_nanos(MS);
            }
            // The host's own lane is always at hand, and the host looks for errors.
            if !self.parked && self.index != 0 {
                self.park();
            } else if self.interrupts && self.index != 0 {
                // Something may have raised the line that no command of this lane is about.
                self.acknowledge();
            }
        } else if now >= self.watch_at {
            self.watch(now);
        } else if self.interrupts && self.signals.messages && self.index == 0 {
            // The line is for errors alone, and this lane's to look at.
            self.look_for_errors(false);
        }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        // The host is at hand for its own lane and says itself when it wants to be polled.
        (self.in_flight != 0 || (self.waits && self.index != 0)).then_some(self.watch_at)
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
