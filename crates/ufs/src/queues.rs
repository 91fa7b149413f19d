//! The controller's transfer queues, one doorbell or several rings: their set-up after a reset, and
//! the removal of commands that do not end.

use crate::Cause;
use crate::board::Board;
use crate::channel::{Action, Channel, Run};
use crate::facts::Shape;
use crate::history::ErrorKind;
use crate::layout::{ENTRY, Layout};
use crate::platform::QueueRegisters;
use crate::quirks::Quirk;
use crate::shared::{Signals, Starts, Victim};
use crate::time::{MS, US};
use flysch_api::machine::{DmaRegion, Machine};
use flysch_script::{Primitives, Replay, Wait};
use flysch_wire::ufs::registers::{
    CONFIG, CleanUpResult, Config, CqAttr, CqCfg, CqInterrupts, ESILBA, ESIUBA, HCS, Hcs,
    InterruptAggregation, MCQCONFIG, McqCap, McqConfig, RunStop, SqAttr, SqCti, SqRtc, SqRts,
    UTMRLBA, UTMRLBAU, UTMRLRSR, UTRIACR, UTRLBA, UTRLBAU, UTRLCLR, UTRLDBR, UTRLRSR, mcq,
    ring_size_field,
};
use flysch_wire::ufs::upiu::{ServiceResponse, TaskFunction};
use flysch_wire::ufs::utrd::{CommandType, HEADER_OFFSET, UCD_ALIGNMENT, UCD_OFFSET, UtrdHeader};

/// How often the device is asked about a command that it denies to have but that does not end.
const QUESTIONS: usize = 10;

/// The queues: how they are divided among the lanes, and how they report completions.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) shape: Shape,
    pub(crate) mcq_cap: McqCap,
    pub(crate) signals: Signals,
}

/// Where a clean-up found the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cleaned {
    /// Not fetched yet: its entry was marked. Controllers differ in whether a completion entry
    /// follows.
    FromRing,
    /// In the controller: a completion entry follows.
    FromController,
}

impl Cleaned {
    /// How long to wait for the completion entry, nanoseconds.
    fn patience(self, clear_ms: u32) -> u64 {
        match self {
            Self::FromController => u64::from(clear_ms) * MS,
            Self::FromRing => MS,
        }
    }

    /// Whether the command's slot can be used again, after the wait for its entry.
    fn settled(self, came: Result<u64, Cause>) -> Result<(), Cause> {
        match came {
            Err(_) if self == Self::FromRing => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

/// Setting up.
impl Queues {
    pub(crate) fn new(shape: Shape, mcq_cap: McqCap) -> Self {
        Self { shape, mcq_cap, signals: Signals::default() }
    }

    /// Tells the controller where its lists and rings are and starts them. `queued` is how many
    /// commands the device queues, 0 if that is not known.
    pub(crate) fn start<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        board: &Board,
        queued: u8,
        timeout_ms: u32,
    ) -> Run<()> {
        channel.effect(|channel| self.program_lists(channel, queued));
        let lists = Hcs::new().with_utrlrdy(true).with_utmrlrdy(true).into_bits();
        channel.until(("HCS", HCS), lists, lists, timeout_ms)??;
        let run = RunStop::new().with_run(true).into_bits();
        channel.write(UTMRLRSR, run);
        channel.write(UTRLRSR, run);
        if !self.shape.mcq {
            channel.effect(|channel| {
                self.signals.aggregated = self.aggregate(channel, UTRIACR);
            });
            channel.effect(|channel| self.find_stuck_slots(channel));
            return Ok(());
        }
        for queue in (0..self.shape.lanes).map(|queue| queue as u8) {
            if channel.once(|channel| self.program_queue(channel, board, queue).into()) == 0 {
                return Err(Cause::Queue(queue).into());
            }
        }
        Ok(())
    }

    fn program_lists<M: Machine>(&mut self, channel: &Channel<M>, queued: u8) {
        let Channel { machine, layout, .. } = channel;
        let write_address = |low: u32, high: u32, region: &DmaRegion| {
            machine.write32(low, region.address() as u32);
            machine.write32(high, (region.address() >> 32) as u32);
        };
        write_address(UTRLBA, UTRLBAU, &layout.transfer_list);
        write_address(UTMRLBA, UTMRLBAU, &layout.task_list);
        self.signals = Signals::default();
        if !channel.cap.mcqs() {
            return;
        }
        if self.shape.mcq {
            self.choose_queues(channel);
            // A queue left enabled by someone else must not run with our memory.
            for queue in 0..self.mcq_cap.queues() {
                let bank = self.mcq_cap.queue_offset(queue as u8);
                machine.write32(bank + mcq::SQATTR, 0);
                machine.write32(bank + mcq::CQATTR, 0);
            }
            self.bound_active_commands(channel, queued);
        } else {
            machine.write32(CONFIG, 0);
        }
    }

    /// Selects MCQ, with a message for each queue if controller and machine can: no capability bit
    /// says so, but a controller that cannot does not keep the bit.
    fn choose_queues<M: Machine>(&mut self, channel: &Channel<M>) {
        let machine = &channel.machine;
        let enough = machine.vectors() >= self.shape.lanes;
        let wanted = channel.options.event_interrupts && enough;
        let place = machine.messages().filter(|_| wanted);
        if let Some(place) = place {
            machine.write32(ESILBA, place as u32);
            machine.write32(ESIUBA, (place >> 32) as u32);
        }
        let config = Config::new().with_qt(true).with_esie(place.is_some());
        machine.write32(CONFIG, config.into_bits());
        self.signals.messages = place.is_some() && Config::from_bits(machine.read32(CONFIG)).esie();
    }

    /// MCQCONFIG.MAC: how many commands of all lanes together the controller passes to the device
    /// at once; the rest waits in the rings. No more than it can, and no more than the device
    /// queues, which is known only after the first bring-up has read it.
    pub(crate) fn bound_active_commands<M: Machine>(&self, channel: &Channel<M>, queued: u8) {
        let tags = u32::from(self.shape.lanes) * u32::from(self.shape.depth);
        let queued = match queued {
            0 => u32::MAX,
            depth => depth.into(),
        };
        let active = tags.min(channel.cap.active_commands_max()).min(queued);
        let config = McqConfig::new().with_active_commands(active);
        channel.machine.write32(MCQCONFIG, config.into_bits());
    }

    /// Switches on the aggregation of a register, if it is wanted. Whether the controller does it.
    fn aggregate<M: Machine>(&self, channel: &Channel<M>, register: u32) -> bool {
        let Some(aggregation) = channel.options.aggregation else { return false };
        channel.machine.write32(register, aggregation.control().into_bits());
        InterruptAggregation::from_bits(channel.machine.read32(register)).iaen()
    }

    /// Makes each completion queue an aggregation group of its own.
    fn aggregate_queue<M: Machine>(
        &self,
        channel: &Channel<M>,
        queue: u8,
        completion_interrupt: u32,
    ) -> bool {
        let aggregated = self.aggregate(channel, completion_interrupt + mcq::MCQIACR);
        let group = CqCfg::new().with_iag(queue).with_iagvld(true);
        let cfg = if aggregated { group } else { CqCfg::new() };
        let bank = self.mcq_cap.queue_offset(queue);
        channel.machine.write32(bank + mcq::CQCFG, cfg.into_bits());
        aggregated
    }

    /// Sets up one queue pair and finds out where its rings stand.
    fn program_queue<M: Machine>(&self, channel: &Channel<M>, board: &Board, queue: u8) -> bool {
        let machine = &channel.machine;
        let bank = self.mcq_cap.queue_offset(queue);
        let submission = channel.layout.submission_ring(queue.into());
        let completion = channel.layout.completion_ring(queue.into());
        let size = |entries: usize| ring_size_field(entries as u32).unwrap_or(0);
        let depth = channel.layout.depth();
        let cq_attr =
            CqAttr::new().with_size(size(Layout::completion_entries(depth))).with_cqen(true);
        let sq_attr = SqAttr::new()
            .with_size(size(Layout::submission_entries(depth)))
            .with_cqid(queue)
            .with_sqen(true);
        for (register, value) in [
            (mcq::SQLBA, submission.address() as u32),
            (mcq::SQUBA, (submission.address() >> 32) as u32),
            (mcq::CQLBA, completion.address() as u32),
            (mcq::CQUBA, (completion.address() >> 32) as u32),
            // The completion queue first: an enabled submission queue may be fetched at once.
            (mcq::CQATTR, cq_attr.into_bits()),
            (mcq::SQATTR, sq_attr.into_bits()),
        ] {
            machine.write32(bank + register, value);
        }
        let enabled = CqAttr::from_bits(machine.read32(bank + mcq::CQATTR)).cqen()
            && SqAttr::from_bits(machine.read32(bank + mcq::SQATTR)).sqen();
        let registers = self.registers_of(channel, board, queue);
        if !enabled || registers.submission == 0 || registers.completion == 0 {
            return false;
        }
        // Where the line tells, IE decides for all queues.
        let told = channel.options.interrupts || !self.signals.messages;
        let cause = CqInterrupts::new().with_teps(told).into_bits();
        machine.write32(registers.completion_interrupt + mcq::CQIE, cause);
        let aggregated = self.aggregate_queue(channel, queue, registers.completion_interrupt);
        let signals = Signals { aggregated, ..self.signals };
        // Pointers may have survived the reset: both rings start, empty, where they stand.
        let head = machine.read32(registers.submission + mcq::SQHP);
        let tail = machine.read32(registers.completion + mcq::CQTP);
        let inside =
            |at: u32, ring: &DmaRegion| (at as usize) < ring.len() && at.is_multiple_of(32);
        if !inside(head, &submission) || !inside(tail, &completion) {
            return false;
        }
        if machine.read32(registers.submission + mcq::SQTP) != head {
            machine.write32(registers.submission + mcq::SQTP, head);
        }
        machine.write32(registers.completion + mcq::CQHP, tail);
        let starts = Starts { submission: head, completion: tail, registers, signals };
        channel.shared.set_starts(queue.into(), starts);
        true
    }

    /// Where a queue's run-time registers are: where a quirk says, where the queue says, or else
    /// where the platform says.
    fn registers_of<M: Machine>(
        &self,
        channel: &Channel<M>,
        board: &Board,
        queue: u8,
    ) -> QueueRegisters {
        if channel.quirks.has(Quirk::RuntimeRegistersAt2800) {
            let base = 0x2800 + u32::from(queue) * 0x30;
            return QueueRegisters {
                submission: base,
                completion: base + 0x1C,
                completion_interrupt: base + 0x24,
            };
        }
        let bank = self.mcq_cap.queue_offset(queue);
        let said = QueueRegisters {
            submission: channel.machine.read32(bank + mcq::SQDAO),
            completion: channel.machine.read32(bank + mcq::CQDAO),
            completion_interrupt: channel.machine.read32(bank + mcq::CQISAO),
        };
        if said.submission != 0 && said.completion != 0 {
            return said;
        }
        board.queue_registers(queue).unwrap_or(said)
    }

    /// A doorbell bit that survived the reset is a slot that can never be used again.
    fn find_stuck_slots<M: Machine>(&self, channel: &mut Channel<M>) {
        let stuck = channel.machine.read32(UTRLDBR);
        if stuck != 0 {
            channel.errors.note(channel.script.now(), ErrorKind::StuckSlots, stuck);
        }
        for lane in 0..channel.shared.lanes.len() {
            let signals = self.signals;
            let starts = Starts { submission: stuck, signals, ..Starts::default() };
            channel.shared.set_starts(lane, starts);
        }
    }
}

/// Ending commands.
impl Queues {
    /// Task tag; in SDQ also the slot's number in the list.
    pub(crate) fn tag(&self, victim: Victim) -> usize {
        self.shape.first_tag(victim.lane) + victim.slot
    }

    /// Ends one command in device and controller.
    pub(crate) fn abort<M: Machine>(
        &self,
        channel: &mut Channel<M>,
        victim: Victim,
    ) -> Run<Result<(), Cause>> {
        let tag = self.tag(victim);
        channel.note(ErrorKind::Overdue, u32::from(victim.lun) << 8 | tag as u32);
        for _ in 0..QUESTIONS {
            if self.has_ended(channel, victim) {
                return Ok(Ok(()));
            }
            match channel.task(TaskFunction::QueryTask, victim.lun, tag as u8)? {
                Ok(ServiceResponse::FunctionSucceeded) => {
                    let done = channel.task_done(TaskFunction::AbortTask, victim.lun, tag as u8)?;
                    if let Err(cause) = done {
                        return Ok(Err(cause));
                    }
                    break;
                }
                // Not there: on its way, lost, or answered this moment.
                Ok(ServiceResponse::FunctionComplete) => channel.sleep(200 * US)?,
                Ok(response) => return Ok(Err(Cause::Task(response))),
                Err(cause) => return Ok(Err(cause)),
            }
        }
        channel.note(ErrorKind::Abort, u32::from(victim.lun) << 8 | tag as u32);
        self.clear(channel, victim)
    }

    /// Whether the controller is done with a held command, one way or the other.
    fn has_ended<M: Machine>(&self, channel: &mut Channel<M>, victim: Victim) -> bool {
        let tag = self.tag(victim);
        channel.once(|channel| {
            if self.shape.mcq {
                channel.shared.lanes[victim.lane].is_late(victim.slot).into()
            } else {
                (channel.machine.read32(UTRLDBR) >> tag & 1 == 0).into()
            }
        }) != 0
    }

    /// Ends a held command in the controller. The device no longer has it.
    pub(crate) fn clear<M: Machine>(
        &self,
        channel: &mut Channel<M>,
        victim: Victim,
    ) -> Run<Result<(), Cause>> {
        if self.has_ended(channel, victim) {
            return Ok(Ok(()));
        }
        let tag = self.tag(victim);
        if !self.shape.mcq {
            return Ok(self.clear_slot(channel, tag as u8)?.map(|_| ()));
        }
        let descriptor = channel.layout.descriptor(victim.lane, victim.slot);
        let target = SqCti::new().with_task_tag(tag as u8).with_lun(victim.lun);
        let cleaned = match self.clean_up(channel, victim.lane, target, descriptor)? {
            Ok(cleaned) => cleaned,
            Err(cause) => return Ok(Err(cause)),
        };
        let patience = cleaned.patience(channel.options.timeouts.clear_ms);
        let came = channel.ask(|channel| Action::Late {
            lane: victim.lane,
            slot: victim.slot,
            deadline: channel.script.now().after_nanos(patience),
        })?;
        Ok(cleaned.settled(u64::try_from(came)))
    }

    /// Ends the device management command, which was not answered, in the controller.
    pub(crate) fn clear_management<M: Machine>(
        &self,
        channel: &mut Channel<M>,
        tag: u8,
        lun: u8,
    ) -> Run<Result<(), Cause>> {
        if !self.shape.mcq {
            return Ok(self.clear_slot(channel, tag)?.map(|_| ()));
        }
        let descriptor = channel.layout.management.address();
        let target = SqCti::new().with_task_tag(tag).with_lun(lun);
        let cleaned = match self.clean_up(channel, 0, target, descriptor)? {
            Ok(cleaned) => cleaned,
            Err(cause) => return Ok(Err(cause)),
        };
        let patience = cleaned.patience(channel.options.timeouts.clear_ms);
        let came = channel.ask(|channel| Action::ManagementEntry {
            deadline: channel.script.now().after_nanos(patience),
        })?;
        Ok(cleaned.settled(u64::try_from(came)))
    }

    /// SDQ: clears a slot of the transfer request list and waits until the controller has let go
    /// of it.
    fn clear_slot<M: Machine>(
        &self,
        channel: &mut Channel<M>,
        slot: u8,
    ) -> Wait<Result<u32, Cause>> {
        if channel.quirks.has(Quirk::StickySlots) {
            return Ok(Err(Cause::Timeout));
        }
        channel.write(UTRLCLR, !(1 << slot));
        let clear_ms = channel.options.timeouts.clear_ms;
        channel.until(("UTRLDBR", UTRLDBR), 1 << slot, 0, clear_ms)
    }

    /// MCQ: stops a queue, takes a command out of it, and starts it again. The completion entry
    /// that reports this comes afterwards.
    fn clean_up<M: Machine>(
        &self,
        channel: &mut Channel<M>,
        lane: usize,
        target: SqCti,
        descriptor: u64,
    ) -> Run<Result<Cleaned, Cause>> {
        let block = channel.shared.lanes[lane].starts().registers.submission;
        let clear_ms = channel.options.timeouts.clear_ms;
        let stopped = SqRts::new().with_sts(true).into_bits();
        let status = ("SQRTS", block + mcq::SQRTS);
        channel.write(block + mcq::SQRTC, SqRtc::new().with_stop(true).into_bits());
        if let Err(cause) = channel.until(status, stopped, stopped, clear_ms)? {
            return Ok(Err(cause));
        }
        let mut result = Ok(Cleaned::FromRing);
        if channel.once(|channel| nullify(channel, lane, block, descriptor).into()) == 0 {
            channel.write(block + mcq::SQCTI, target.into_bits());
            let clean = SqRtc::new().with_stop(true).with_icu(true).into_bits();
            channel.write(block + mcq::SQRTC, clean);
            let done = SqRts::new().with_cus(true).into_bits();
            result = match channel.until(status, done, done, clear_ms)? {
                Ok(value) => match SqRts::from_bits(value).rtc() {
                    CleanUpResult::Success => Ok(Cleaned::FromController),
                    _ => Err(Cause::Register { name: "SQRTS", value }),
                },
                Err(cause) => Err(cause),
            };
        }
        channel.write(block + mcq::SQRTC, SqRtc::new().into_bits());
        if let Err(cause) = channel.until(status, stopped, 0, clear_ms)? {
            return Ok(Err(cause));
        }
        Ok(result)
    }
}

/// MCQ: marks the entry of a command that the controller has not fetched yet. The queue is stopped
/// and its lane paused, so nobody else touches the ring.
fn nullify<M: Machine>(channel: &Channel<M>, lane: usize, block: u32, descriptor: u64) -> bool {
    let ring = channel.layout.submission_ring(lane);
    let pointer = |register| channel.machine.read32(block + register) as usize;
    let (mut at, end) = (pointer(mcq::SQHP), pointer(mcq::SQTP));
    for _ in 0..ring.len() / ENTRY {
        if at == end || at >= ring.len() || !at.is_multiple_of(ENTRY) {
            return false;
        }
        let ucd = u64::from_le(ring.load64(at + UCD_OFFSET)) & !(UCD_ALIGNMENT - 1);
        if ucd == descriptor {
            let header = u32::from_le(ring.load32(at + HEADER_OFFSET));
            let null = UtrdHeader::from_bits(header).with_ct(CommandType::Nullified);
            ring.store32(at + HEADER_OFFSET, null.into_bits().to_le());
            channel.machine.sync_for_device(ring.span(at, ENTRY));
            return true;
        }
        at = (at + ENTRY) % ring.len();
    }
    false
}
