//! Multi-circular queues: configuration bank, submission and completion queues.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flysch_wire::ufs::cqe::{self, Cqe, CqeNexus, CqeStatus, CqeUcd};
use flysch_wire::ufs::registers::{
    CleanUpResult, CqAttr, CqCfg, CqInterrupts, Interrupts, SqAttr, SqCti, SqRtc, SqRts, Ver,
    mcq as reg, ring_entries,
};
use flysch_wire::ufs::utrd::{self, CommandType, Ocs, Utrd};

use super::agenda::Event;
use super::aggregation::{Aggregator, Counted};
use super::config::QUEUES_MAX;
use super::controller::Controller;
use super::exchange::Exchange;
use super::task::State;
use crate::faults::Kind;

/// Offset of the configuration bank.
pub(super) const BANK: u32 = 0x400;
/// Offset of the run-time registers.
const RUN_TIME: u32 = 0x1000;
/// Distance from one queue's run-time registers to the next.
const RUN_TIME_STRIDE: u32 = 48;
/// Register blocks within one queue's run-time registers.
const SQ_BLOCK: u32 = 0x00;
const SQ_INTERRUPT_BLOCK: u32 = 0x14;
const CQ_BLOCK: u32 = 0x1C;
const CQ_INTERRUPT_BLOCK: u32 = 0x24;

/// One submission queue and the completion queue of the same number.
#[derive(Debug, Default)]
pub(super) struct Queue {
    sqattr: SqAttr,
    sq_base: u64,
    sqcfg: u32,
    cqattr: CqAttr,
    cq_base: u64,
    cqcfg: u32,
    /// Ring pointers, byte offsets.
    sqhp: u32,
    sqtp: u32,
    cqhp: u32,
    cqtp: u32,
    stop: bool,
    sqcti: SqCti,
    clean_up: Option<CleanUpResult>,
    sqis: u32,
    sqie: u32,
    cqis: CqInterrupts,
    cqie: CqInterrupts,
    /// MCQIACR of the aggregation group with this number.
    aggregation: Aggregator,
    /// Completions that found the queue full, and whether each may wait for others to raise an
    /// interrupt.
    backlog: VecDeque<(Cqe, bool)>,
}

impl Queue {
    fn sq_bytes(&self) -> u32 {
        ring_entries(self.sqattr.size()) * utrd::LENGTH as u32
    }

    fn cq_bytes(&self) -> u32 {
        ring_entries(self.cqattr.size()) * cqe::LENGTH as u32
    }

    /// Whether the completion queue has no room: one entry always stays free.
    fn cq_full(&self) -> bool {
        (self.cqtp + cqe::LENGTH as u32) % self.cq_bytes().max(1) == self.cqhp
    }

    /// The task named by SQCTI.
    fn find(&self, number: usize, x: &Exchange) -> Option<u16> {
        let target = self.sqcti;
        let found = x.tasks.iter().find(|(_, task)| {
            usize::from(task.queue) == number
                && (task.tag, task.lun) == (target.task_tag(), target.lun())
                && task.iid == (target.ext_iid() << 4 | target.iid())
                && task.state != State::Stuck
        });
        found.map(|(index, _)| index)
    }
}

/// A register of a queue: which queue, and the offset in the bank or the run-time block.
enum Place {
    Bank(usize, u32),
    RunTime(usize, u32),
}

fn place(offset: u32, queues: usize) -> Option<Place> {
    if offset < BANK {
        return None;
    }
    let (number, place): (u32, fn(usize, u32) -> Place) = match offset {
        BANK..RUN_TIME => ((offset - BANK) / reg::STRIDE, Place::Bank),
        _ => ((offset - RUN_TIME) / RUN_TIME_STRIDE, Place::RunTime),
    };
    if number >= QUEUES_MAX || number as usize >= queues {
        return None;
    }
    let at = match offset {
        BANK..RUN_TIME => (offset - BANK) % reg::STRIDE,
        _ => (offset - RUN_TIME) % RUN_TIME_STRIDE,
    };
    Some(place(number as usize, at))
}

/// The run-time registers used per command.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueRegister {
    Sqhp,
    Sqtp,
    Cqhp,
    Cqtp,
    Cqis,
}

/// The register and queue at `offset`, if it is one of these.
#[cfg(feature = "std")]
pub(super) fn queue_register(offset: u32) -> Option<(usize, QueueRegister)> {
    const CQHP: u32 = CQ_BLOCK + reg::CQHP;
    const CQTP: u32 = CQ_BLOCK + reg::CQTP;
    const CQIS: u32 = CQ_INTERRUPT_BLOCK + reg::CQIS;
    let (queue, at) = match place(offset, QUEUES_MAX as usize) {
        Some(Place::RunTime(queue, at)) => (queue, at),
        _ => return None,
    };
    let register = match at {
        reg::SQHP => QueueRegister::Sqhp,
        reg::SQTP => QueueRegister::Sqtp,
        CQHP => QueueRegister::Cqhp,
        CQTP => QueueRegister::Cqtp,
        CQIS => QueueRegister::Cqis,
        _ => return None,
    };
    Some((queue, register))
}

/// What the controller must do after a write to a queue register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rung {
    /// Nothing.
    Nothing,
    /// Fetch from this submission queue.
    Fetch(usize),
    /// Post the completions that wait for room in this completion queue.
    Drain(usize),
    /// Stop, start or clean up this submission queue.
    Control(usize, SqRtc),
}

/// All queues.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    /// The queue whose turn it is to be fetched from.
    turn: usize,
}

/// The state mirrored by the threaded machine.
#[cfg(feature = "std")]
impl Queues {
    /// SQHP, CQTP, and the interrupt causes raised since the last call.
    pub(super) fn take_state(&mut self, number: usize) -> (u32, u32, u32) {
        let queue = &mut self.queues[number];
        let causes = core::mem::take(&mut queue.cqis);
        (queue.sqhp, queue.cqtp, causes.into_bits())
    }

    /// The queues whose completions raise messages if the controller sends any, one bit each.
    pub(super) fn messaging(&self) -> u32 {
        let on = |(n, queue): (usize, &Queue)| u32::from(queue.cqie.teps()) << n;
        self.queues.iter().enumerate().map(on).fold(0, |all, bit| all | bit)
    }

    /// The queue whose configuration is at `offset`, with its CQHP and SQTP, which a change of the
    /// configuration may have reset.
    pub(super) fn configured(&self, offset: u32) -> Option<(usize, u32, u32)> {
        match place(offset, self.queues.len()) {
            Some(Place::Bank(number, _)) => {
                let queue = &self.queues[number];
                Some((number, queue.cqhp, queue.sqtp))
            }
            _ => None,
        }
    }
}

fn run_time(queue: usize, block: u32) -> u32 {
    RUN_TIME + queue as u32 * RUN_TIME_STRIDE + block
}

impl Queues {
    /// This many queues, not configured.
    pub(super) fn new(count: usize) -> Self {
        Self { queues: (0..count).map(|_| Queue::default()).collect(), turn: 0 }
    }

    /// Number of queues.
    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// All queues as after power-on.
    pub(super) fn reset(&mut self) {
        self.queues.fill_with(Queue::default);
    }

    /// The queue to fetch the next entry from: one entry of each in turn (MCQCAP.RRP), so that a
    /// busy queue does not starve the others.
    pub(super) fn take_turn(&mut self) -> usize {
        let number = self.turn % self.queues.len();
        self.turn = number + 1;
        number
    }

    /// The completion queue that a submission queue's commands are posted to.
    #[inline]
    fn target(&self, number: usize) -> usize {
        usize::from(self.queues[number].sqattr.cqid()).min(self.queues.len() - 1)
    }

    /// The aggregation group of a completion queue, if aggregation is on.
    fn group_of(&self, number: usize) -> Option<usize> {
        let cfg = CqCfg::from_bits(self.queues[number].cqcfg);
        let group = usize::from(cfg.iag());
        let is_on = |queue: &Queue| queue.aggregation.is_on();
        (cfg.iagvld() && self.queues.get(group).is_some_and(is_on)).then_some(group)
    }

    /// Reads a register of the bank or of the run-time blocks.
    pub(super) fn read(&self, offset: u32) -> u32 {
        match place(offset, self.queues.len()) {
            Some(Place::Bank(queue, at)) => self.read_bank(queue, at),
            Some(Place::RunTime(queue, at)) => self.read_run_time(queue, at),
            None => 0,
        }
    }

    fn read_bank(&self, number: usize, at: u32) -> u32 {
        let queue = &self.queues[number];
        match at {
            reg::SQATTR => queue.sqattr.into_bits(),
            reg::SQLBA => queue.sq_base as u32,
            reg::SQUBA => (queue.sq_base >> 32) as u32,
            reg::SQDAO => run_time(number, SQ_BLOCK),
            reg::SQISAO => run_time(number, SQ_INTERRUPT_BLOCK),
            reg::SQCFG => queue.sqcfg,
            reg::CQATTR => queue.cqattr.into_bits(),
            reg::CQLBA => queue.cq_base as u32,
            reg::CQUBA => (queue.cq_base >> 32) as u32,
            reg::CQDAO => run_time(number, CQ_BLOCK),
            reg::CQISAO => run_time(number, CQ_INTERRUPT_BLOCK),
            reg::CQCFG => queue.cqcfg,
            _ => 0,
        }
    }

    fn read_run_time(&self, number: usize, at: u32) -> u32 {
        const SQIS: u32 = SQ_INTERRUPT_BLOCK + reg::SQIS;
        const SQIE: u32 = SQ_INTERRUPT_BLOCK + reg::SQIE;
        const CQHP: u32 = CQ_BLOCK + reg::CQHP;
        const CQTP: u32 = CQ_BLOCK + reg::CQTP;
        const CQIS: u32 = CQ_INTERRUPT_BLOCK + reg::CQIS;
        const CQIE: u32 = CQ_INTERRUPT_BLOCK + reg::CQIE;
        const MCQIACR: u32 = CQ_INTERRUPT_BLOCK + reg::MCQIACR;
        let queue = &self.queues[number];
        match at {
            reg::SQHP => queue.sqhp,
            reg::SQTP => queue.sqtp,
            reg::SQRTC => SqRtc::new().with_stop(queue.stop).into_bits(),
            reg::SQCTI => queue.sqcti.into_bits(),
            reg::SQRTS => {
                let result = queue.clean_up.unwrap_or(CleanUpResult::Success);
                let done = queue.clean_up.is_some();
                SqRts::new().with_sts(queue.stop).with_cus(done).with_rtc(result).into_bits()
            }
            SQIS => queue.sqis,
            SQIE => queue.sqie,
            CQHP => queue.cqhp,
            CQTP => queue.cqtp,
            CQIS => queue.cqis.into_bits(),
            CQIE => queue.cqie.into_bits(),
            MCQIACR => queue.aggregation.read(),
            _ => 0,
        }
    }

    /// Writes such a register. `has_commands` tells whether the device has commands from a queue.
    #[inline]
    pub(super) fn write(
        &mut self,
        offset: u32,
        value: u32,
        has_commands: impl Fn(u8) -> bool,
    ) -> Rung {
        match place(offset, self.queues.len()) {
            Some(Place::Bank(queue, at)) => {
                self.write_bank(queue, at, value, has_commands(queue as u8));
                Rung::Nothing
            }
            Some(Place::RunTime(queue, at)) => self.write_run_time(queue, at, value),
            None => Rung::Nothing,
        }
    }

    /// The host has moved the tail of a submission queue.
    #[inline]
    pub(super) fn move_tail(&mut self, number: usize, sqtp: u32) -> Rung {
        let queue = &mut self.queues[number];
        let entry = utrd::LENGTH as u32;
        if queue.sqattr.sqen() && sqtp < queue.sq_bytes() && sqtp.is_multiple_of(entry) {
            queue.sqtp = sqtp;
            return Rung::Fetch(number);
        }
        Rung::Nothing
    }

    /// The host has moved the head of a completion queue.
    #[inline]
    pub(super) fn move_head(&mut self, number: usize, cqhp: u32) -> Rung {
        let queue = &mut self.queues[number];
        let entry = cqe::LENGTH as u32;
        if queue.cqattr.cqen() && cqhp < queue.cq_bytes() && cqhp.is_multiple_of(entry) {
            queue.cqhp = cqhp;
            if !queue.backlog.is_empty() {
                return Rung::Drain(number);
            }
        }
        Rung::Nothing
    }

    fn write_bank(&mut self, number: usize, at: u32, value: u32, busy: bool) {
        let queues = self.queues.len();
        let queue = &mut self.queues[number];
        match at {
            reg::SQATTR => {
                let attributes = SqAttr::from_bits(value);
                let answered = usize::from(attributes.cqid()) < queues;
                // A queue with commands in the device cannot be removed.
                if !attributes.sqen() && !busy || attributes.sqen() && answered {
                    queue.sqattr = attributes;
                }
                if !queue.sqattr.sqen() {
                    (queue.sqhp, queue.sqtp, queue.stop) = (0, 0, false);
                }
            }
            reg::CQATTR => {
                let attributes = CqAttr::from_bits(value);
                if attributes.cqen() || !busy {
                    queue.cqattr = attributes;
                }
                if !queue.cqattr.cqen() {
                    (queue.cqhp, queue.cqtp) = (0, 0);
                    queue.backlog.clear();
                }
            }
            reg::SQLBA => queue.sq_base = queue.sq_base & !0xFFFF_FFFF | u64::from(value & !0x3FF),
            reg::SQUBA => queue.sq_base = queue.sq_base & 0xFFFF_FFFF | u64::from(value) << 32,
            reg::CQLBA => queue.cq_base = queue.cq_base & !0xFFFF_FFFF | u64::from(value & !0x3FF),
            reg::CQUBA => queue.cq_base = queue.cq_base & 0xFFFF_FFFF | u64::from(value) << 32,
            reg::SQCFG => queue.sqcfg = value,
            reg::CQCFG => queue.cqcfg = value,
            _ => {}
        }
    }

    #[inline]
    fn write_run_time(&mut self, number: usize, at: u32, value: u32) -> Rung {
        const SQIS: u32 = SQ_INTERRUPT_BLOCK + reg::SQIS;
        const SQIE: u32 = SQ_INTERRUPT_BLOCK + reg::SQIE;
        const CQHP: u32 = CQ_BLOCK + reg::CQHP;
        const CQIS: u32 = CQ_INTERRUPT_BLOCK + reg::CQIS;
        const CQIE: u32 = CQ_INTERRUPT_BLOCK + reg::CQIE;
        const MCQIACR: u32 = CQ_INTERRUPT_BLOCK + reg::MCQIACR;
        let queue = &mut self.queues[number];
        match at {
            reg::SQTP => return self.move_tail(number, value),
            CQHP => return self.move_head(number, value),
            reg::SQRTC => return Rung::Control(number, SqRtc::from_bits(value)),
            CQIS => queue.cqis = CqInterrupts::from_bits(queue.cqis.into_bits() & !value),
            CQIE => queue.cqie = CqInterrupts::from_bits(value & 1),
            reg::SQCTI => queue.sqcti = SqCti::from_bits(value),
            SQIS => queue.sqis &= !value,
            SQIE => queue.sqie = value & 1,
            MCQIACR => queue.aggregation.write(value),
            _ => {}
        }
        Rung::Nothing
    }
}

/// The result of looking for the next entry of a submission queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// No entry may be fetched.
    None,
    /// It was nullified.
    Nullified,
    /// It is in this task, which ends with the error if it does not reach the device.
    Task(u16, Result<(), Ocs>),
}

/// A completion on its way to its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    entry: Cqe,
    /// The submission queue it came from.
    number: usize,
    /// Whether it may wait for others to raise an interrupt.
    regular: bool,
    /// Whether the controller was full, so that entries of other queues may wait for its place.
    pub(super) was_full: bool,
}

impl Controller {
    /// Whether entries of submission queues may be fetched now.
    #[inline]
    pub(super) fn may_fetch_entries(&self, x: &Exchange) -> bool {
        self.registers.mode.qt() && self.may_fetch(x)
    }

    /// Whether another command may become active.
    #[inline]
    pub(super) fn has_room(&self, x: &Exchange) -> bool {
        x.tasks.held < self.registers.mcqconfig.active_commands()
    }

    /// Fetches the next entry of a submission queue.
    #[inline]
    pub(super) fn fetch_entry(&mut self, number: usize, x: &mut Exchange) -> Entry {
        let target = self.queues.target(number);
        // Completions that cannot be posted hold back new commands, which bounds the backlog.
        if !self.has_room(x) || !self.queues.queues[target].backlog.is_empty() {
            return Entry::None;
        }
        let queue = &mut self.queues.queues[number];
        if queue.stop || !queue.sqattr.sqen() || queue.sqhp == queue.sqtp {
            return Entry::None;
        }
        let address = queue.sq_base + u64::from(queue.sqhp);
        let mut bytes = [0; utrd::LENGTH];
        if x.memory.read(address, &mut bytes).is_err() {
            self.registers.bus_error();
            return Entry::None;
        }
        queue.sqhp = (queue.sqhp + utrd::LENGTH as u32) % queue.sq_bytes();
        let utrd = Utrd::parse(&bytes);
        if utrd.header.ct() == CommandType::Nullified {
            return Entry::Nullified;
        }
        let Some(index) = x.tasks.take_any() else { return Entry::None };
        x.tasks.get_mut(index).queue = number as u8;
        Entry::Task(index, self.take_descriptor(index, &utrd, x))
    }

    /// SQRTC.STOP; returns what is to be cleaned up, if anything.
    pub(super) fn control_queue(
        &mut self,
        number: usize,
        command: SqRtc,
        x: &Exchange,
    ) -> Option<u16> {
        let queue = &mut self.queues.queues[number];
        queue.stop = command.stop();
        if !command.icu() {
            queue.clean_up = None;
            return None;
        }
        let found = match (queue.sqattr.sqen(), queue.stop) {
            (false, _) => Err(CleanUpResult::NotEnabled),
            (true, false) => Err(CleanUpResult::NotStopped),
            (true, true) => queue.find(number, x).ok_or(CleanUpResult::TaskNotFound),
        };
        queue.clean_up = Some(found.err().unwrap_or(CleanUpResult::Success));
        found.ok()
    }

    /// Ends a task: returns its completion and frees its place.
    #[inline]
    pub(super) fn end_entry(&mut self, index: u16, ocs: Ocs, x: &mut Exchange) -> Completion {
        let task = x.tasks.get(index);
        let number = usize::from(task.queue);
        let regular = !task.interrupt;
        let mut entry = Cqe {
            ucd: CqeUcd::pack(task.ucd, task.queue),
            response: task.response,
            prdt: task.prdt,
            status: CqeStatus::new().with_ocs(ocs),
            nexus: CqeNexus::new(),
        };
        if self.registers.ver.into_bits() >= Ver::V4_1.into_bits() {
            let nexus = CqeNexus::new().with_task_tag(task.tag).with_lun(task.lun);
            entry.nexus = nexus.with_iid(task.iid & 0xF).with_ext_iid(task.iid >> 4);
        }
        let done = task.done.unwrap_or(x.agenda.now());
        self.done[number << 8 | usize::from(task.tag)].set(done);
        let was_full = !self.has_room(x);
        x.tasks.release(index, true);
        Completion { entry, number, regular, was_full }
    }

    /// Posts a completion, or keeps it until its queue has room.
    #[inline]
    pub(super) fn post(&mut self, completion: &Completion, x: &mut Exchange) {
        let target = self.queues.target(completion.number);
        let queue = &mut self.queues.queues[target];
        if !queue.backlog.is_empty() || queue.cq_full() {
            queue.backlog.push_back((completion.entry, completion.regular));
        } else {
            self.write_completion(target, &completion.entry, completion.regular, x);
        }
    }

    fn write_completion(&mut self, number: usize, entry: &Cqe, regular: bool, x: &mut Exchange) {
        let queue = &mut self.queues.queues[number];
        let address = queue.cq_base + u64::from(queue.cqtp);
        let mut bytes = [0; cqe::LENGTH];
        entry.emit(&mut bytes);
        if x.memory.write(address, &bytes).is_err() {
            return self.registers.bus_error();
        }
        queue.cqtp = (queue.cqtp + cqe::LENGTH as u32) % queue.cq_bytes().max(1);
        let told = self.registers.mode.esie() || self.registers.ie.cqes();
        self.registers.told.silent += u64::from(!queue.cqie.teps() || !told);
        let tag = u32::from(entry.nexus.task_tag());
        if x.faults.is_active() && x.fires(Kind::LostInterrupt, tag) {
            return;
        }
        match self.queues.group_of(number).filter(|_| regular) {
            None => self.signal_queue(number, Interrupts::new().with_cqes(true), x),
            Some(group) => self.aggregate_queue(number, group, x),
        }
    }

    fn aggregate_queue(&mut self, number: usize, group: usize, x: &mut Exchange) {
        match self.queues.queues[group].aggregation.count(x.now()) {
            Counted::Waits => {}
            Counted::Timer(until) => {
                let queue = Some(number as u8);
                x.agenda.at(until, Event::Aggregation { epoch: x.agenda.epoch(), queue });
            }
            Counted::Interrupt => {
                self.signal_queue(number, Interrupts::new().with_iages(true), x);
            }
        }
    }

    /// The aggregation timer of a completion queue, or of the single doorbell, has expired.
    pub(super) fn aggregation_expired(&mut self, queue: Option<u8>, x: &Exchange) {
        let Some(number) = queue.map(usize::from) else {
            return self.registers.aggregation_expired(x.now());
        };
        if let Some(group) = self.queues.group_of(number)
            && self.queues.queues[group].aggregation.expired(x.now())
        {
            self.signal_queue(number, Interrupts::new().with_iages(true), x);
        }
    }

    /// Signals a completion queue: sets its own status, and sends a message or raises the line. A
    /// message is sent when the status changes to set, so a host clears it before it looks at the
    /// queue.
    fn signal_queue(&mut self, number: usize, cause: Interrupts, x: &Exchange) {
        let queue = &mut self.queues.queues[number];
        let was_up = queue.cqis.teps();
        queue.cqis.set_teps(true);
        if !queue.cqie.teps() {
            return;
        }
        if !self.registers.mode.esie() {
            self.registers.raise(cause);
        } else if !was_up {
            self.registers.send_message(number as u8, &x.memory);
        }
    }

    /// The host has made room in a completion queue.
    pub(super) fn drain_backlog(&mut self, number: usize, x: &mut Exchange) {
        while !self.queues.queues[number].cq_full() {
            let next = self.queues.queues[number].backlog.pop_front();
            let Some((entry, regular)) = next else { break };
            self.write_completion(number, &entry, regular, x);
        }
    }
}
