//! Multi-circular queues: configuration bank, submission and completion queues.

use alloc::collections::VecDeque;
use core::sync::atomic::Ordering;

#[cfg(feature = "std")]
use flysch_api::machine::Instant;
use flysch_wire::ufs::cqe::{self, Cqe, CqeNexus, CqeStatus, CqeUcd};
use flysch_wire::ufs::registers::{
    CleanUpResult, CqAttr, CqCfg, CqInterrupts, Interrupts, SqAttr, SqCti, SqRtc, SqRts, Ver,
    mcq as reg, ring_entries,
};
use flysch_wire::ufs::utrd::{self, CommandType, Ocs, Utrd};

use super::aggregation::{Aggregator, Counted};
use super::config::QUEUES_MAX;
use super::{Event, Ufs};

/// Where the configuration bank starts.
pub(super) const BANK: u32 = 0x400;
/// Where the run-time registers start.
const RUN_TIME: u32 = 0x1000;
/// Distance from one queue's run-time registers to the next.
const RUN_TIME_STRIDE: u32 = 48;
/// Blocks of one queue's run-time registers.
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
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    fn sq_bytes(&self) -> u32 {
        ring_entries(self.sqattr.size()) * utrd::LENGTH as u32
    }

    fn cq_bytes(&self) -> u32 {
        ring_entries(self.cqattr.size()) * cqe::LENGTH as u32
    }

    /// The completion queue has no room: one entry always stays free.
    fn cq_full(&self) -> bool {
        (self.cqtp + cqe::LENGTH as u32) % self.cq_bytes().max(1) == self.cqhp
    }
}

/// A register of a queue: which queue, and where in the bank or the run-time block.
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

/// The run-time registers that are touched per command.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueRegister {
    Sqhp,
    Sqtp,
    Cqhp,
    Cqtp,
    Cqis,
}

/// Which of these registers of which queue is at `offset`.
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

/// What the threaded machine mirrors.
#[cfg(feature = "std")]
impl Ufs {
    pub(super) fn uses_queues(&self) -> bool {
        self.registers.mode.qt()
    }

    pub(super) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// SQHP, CQTP, and the interrupt causes raised since the last call.
    pub(super) fn take_queue_state(&mut self, number: usize) -> (u32, u32, u32) {
        let queue = &mut self.queues[number];
        let causes = core::mem::take(&mut queue.cqis);
        (queue.sqhp, queue.cqtp, causes.into_bits())
    }

    /// The queues whose completions raise messages, a bit each.
    pub(super) fn messaging_queues(&self) -> u32 {
        let on = |(n, queue): (usize, &Queue)| u32::from(queue.cqie.teps()) << n;
        let queues = self.queues.iter().enumerate().map(on).fold(0, |all, bit| all | bit);
        if self.registers.mode.esie() { queues } else { 0 }
    }

    /// The queue whose configuration is at `offset`, with its CQHP and SQTP, which a change of
    /// configuration may have reset.
    pub(super) fn configured_queue(&self, offset: u32) -> Option<(usize, u32, u32)> {
        match place(offset, self.queues.len()) {
            Some(Place::Bank(number, _)) => {
                let queue = &self.queues[number];
                Some((number, queue.cqhp, queue.sqtp))
            }
            _ => None,
        }
    }

    /// The host has moved the head of a completion queue and the tail of a submission queue.
    pub(super) fn move_queue(&mut self, number: usize, cqhp: u32, sqtp: u32, now: Instant) {
        self.advance(now);
        if number < self.queues.len() && self.registers.enabled {
            self.write_run_time(number, CQ_BLOCK + reg::CQHP, cqhp);
            self.write_run_time(number, SQ_BLOCK + reg::SQTP, sqtp);
        }
    }
}

fn run_time(queue: usize, block: u32) -> u32 {
    RUN_TIME + queue as u32 * RUN_TIME_STRIDE + block
}

impl Ufs {
    pub(super) fn read_queue_register(&mut self, offset: u32) -> u32 {
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

    pub(super) fn write_queue_register(&mut self, offset: u32, value: u32) {
        if !self.registers.enabled {
            return;
        }
        match place(offset, self.queues.len()) {
            Some(Place::Bank(queue, at)) => self.write_bank(queue, at, value),
            Some(Place::RunTime(queue, at)) => self.write_run_time(queue, at, value),
            None => {}
        }
    }

    fn write_bank(&mut self, number: usize, at: u32, value: u32) {
        let busy = self.has_commands_of(number as u8);
        let queues = self.queues.len();
        let queue = &mut self.queues[number];
        match at {
            reg::SQATTR => {
                let attributes = SqAttr::from_bits(value);
                let answered = usize::from(attributes.cqid()) < queues;
                // A queue with commands in the device cannot be taken away.
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
    fn write_run_time(&mut self, number: usize, at: u32, value: u32) {
        const SQIS: u32 = SQ_INTERRUPT_BLOCK + reg::SQIS;
        const SQIE: u32 = SQ_INTERRUPT_BLOCK + reg::SQIE;
        const CQHP: u32 = CQ_BLOCK + reg::CQHP;
        const CQIS: u32 = CQ_INTERRUPT_BLOCK + reg::CQIS;
        const CQIE: u32 = CQ_INTERRUPT_BLOCK + reg::CQIE;
        const MCQIACR: u32 = CQ_INTERRUPT_BLOCK + reg::MCQIACR;
        let queue = &mut self.queues[number];
        match at {
            reg::SQTP => {
                let entry = utrd::LENGTH as u32;
                if queue.sqattr.sqen() && value < queue.sq_bytes() && value.is_multiple_of(entry) {
                    queue.sqtp = value;
                    self.fetch_queue(number);
                }
            }
            CQHP => {
                let entry = cqe::LENGTH as u32;
                if queue.cqattr.cqen() && value < queue.cq_bytes() && value.is_multiple_of(entry) {
                    queue.cqhp = value;
                    if !queue.backlog.is_empty() {
                        self.drain_backlog(number);
                    }
                }
            }
            CQIS => queue.cqis = CqInterrupts::from_bits(queue.cqis.into_bits() & !value),
            CQIE => queue.cqie = CqInterrupts::from_bits(value & 1),
            reg::SQRTC => self.control_queue(number, SqRtc::from_bits(value)),
            reg::SQCTI => queue.sqcti = SqCti::from_bits(value),
            SQIS => queue.sqis &= !value,
            SQIE => queue.sqie = value & 1,
            MCQIACR => queue.aggregation.write(value),
            _ => {}
        }
    }

    fn has_commands_of(&self, queue: u8) -> bool {
        self.registers.mode.qt()
            && self.tasks.held > 0
            && self.tasks.iter().any(|(_, task)| task.queue == queue)
    }

    /// Fetches entries of a submission queue as long as there is room for more commands.
    pub(super) fn fetch_queue(&mut self, number: usize) {
        if self.registers.mode.qt() && self.may_fetch() {
            while self.fetch_entry(number) {}
        }
    }

    /// Goes on with every queue that waited for the link or for room: one entry of each in turn
    /// (MCQCAP.RRP), or a busy queue would starve the others.
    pub(super) fn fetch_queues(&mut self) {
        if !self.registers.mode.qt() || !self.may_fetch() {
            return;
        }
        let mut empty = 0;
        while empty < self.queues.len() && self.has_room() {
            let number = self.turn % self.queues.len();
            self.turn = number + 1;
            empty = if self.fetch_entry(number) { 0 } else { empty + 1 };
        }
    }

    fn has_room(&self) -> bool {
        self.tasks.held < self.registers.mcqconfig.active_commands()
    }

    /// Fetches the next entry of a submission queue; `false` if there is none that may be.
    fn fetch_entry(&mut self, number: usize) -> bool {
        let target = usize::from(self.queues[number].sqattr.cqid()).min(self.queues.len() - 1);
        // Completions that cannot be posted hold new commands back, which bounds the backlog.
        if !self.has_room() || !self.queues[target].backlog.is_empty() {
            return false;
        }
        let queue = &mut self.queues[number];
        if queue.stop || !queue.sqattr.sqen() || queue.sqhp == queue.sqtp {
            return false;
        }
        let address = queue.sq_base + u64::from(queue.sqhp);
        let mut bytes = [0; utrd::LENGTH];
        if self.memory.read(address, &mut bytes).is_err() {
            self.bus_error();
            return false;
        }
        queue.sqhp = (queue.sqhp + utrd::LENGTH as u32) % queue.sq_bytes();
        let utrd = Utrd::parse(&bytes);
        if utrd.header.ct() == CommandType::Nullified {
            return true;
        }
        let Some(index) = self.tasks.take_any() else { return false };
        self.tasks.get_mut(index).queue = number as u8;
        self.fetched(index, &utrd);
        true
    }

    /// SQRTC is written: stops, starts, cleans up.
    fn control_queue(&mut self, number: usize, command: SqRtc) {
        let queue = &mut self.queues[number];
        queue.stop = command.stop();
        if !command.icu() {
            queue.clean_up = None;
            return self.fetch_queue(number);
        }
        let result = if !queue.sqattr.sqen() {
            CleanUpResult::NotEnabled
        } else if !queue.stop {
            CleanUpResult::NotStopped
        } else {
            self.clean_up(number)
        };
        self.queues[number].clean_up = Some(result);
        // A host that asks without STOP has started the queue again.
        self.fetch_queue(number);
    }

    /// Ends the command that SQCTI names; its completion says ABORTED.
    fn clean_up(&mut self, number: usize) -> CleanUpResult {
        let target = self.queues[number].sqcti;
        let found = self.tasks.iter().find(|(_, task)| {
            usize::from(task.queue) == number
                && (task.tag, task.lun) == (target.task_tag(), target.lun())
                && task.iid == (target.ext_iid() << 4 | target.iid())
                && task.state != super::task::State::Stuck
        });
        let Some((index, _)) = found else { return CleanUpResult::TaskNotFound };
        self.device.forget(self.tasks.name(index));
        self.post(index, Ocs::Aborted);
        CleanUpResult::Success
    }

    /// Posts the completion of a task and lets its place be taken.
    #[inline]
    pub(super) fn post(&mut self, index: u16, ocs: Ocs) {
        let task = self.tasks.get(index);
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
        let done = task.done.unwrap_or(self.now.nanos());
        self.done[number << 8 | usize::from(task.tag)].store(done, Ordering::Relaxed);
        let was_full = self.tasks.held >= self.registers.mcqconfig.active_commands();
        self.tasks.release(index, true);
        self.start_held_back();
        let target = usize::from(self.queues[number].sqattr.cqid()).min(self.queues.len() - 1);
        let queue = &mut self.queues[target];
        if !queue.backlog.is_empty() || queue.cq_full() {
            queue.backlog.push_back((entry, regular));
        } else {
            self.write_completion(target, &entry, regular);
        }
        if was_full {
            self.fetch_queues();
        }
    }

    fn write_completion(&mut self, number: usize, entry: &Cqe, regular: bool) {
        let queue = &mut self.queues[number];
        let address = queue.cq_base + u64::from(queue.cqtp);
        let mut bytes = [0; cqe::LENGTH];
        entry.emit(&mut bytes);
        if self.memory.write(address, &bytes).is_err() {
            return self.bus_error();
        }
        queue.cqtp = (queue.cqtp + cqe::LENGTH as u32) % queue.cq_bytes().max(1);
        let told = self.registers.mode.esie() || self.registers.ie.cqes();
        self.silent += u64::from(!queue.cqie.teps() || !told);
        if self.loses_interrupt(entry.nexus.task_tag()) {
            return;
        }
        match self.group_of(number).filter(|_| regular) {
            None => self.signal_queue(number, Interrupts::new().with_cqes(true)),
            Some(group) => self.aggregate_queue(number, group),
        }
    }

    /// The aggregation group that a completion queue is in, if that counts.
    fn group_of(&self, number: usize) -> Option<usize> {
        let cfg = CqCfg::from_bits(self.queues[number].cqcfg);
        let group = usize::from(cfg.iag());
        let is_on = |queue: &Queue| queue.aggregation.is_on();
        (cfg.iagvld() && self.queues.get(group).is_some_and(is_on)).then_some(group)
    }

    fn aggregate_queue(&mut self, number: usize, group: usize) {
        match self.queues[group].aggregation.count(self.now.nanos()) {
            Counted::Waits => {}
            Counted::Timer(until) => {
                let queue = Some(number as u8);
                self.at(until, Event::Aggregation { epoch: self.epoch, queue });
            }
            Counted::Interrupt => {
                self.signal_queue(number, Interrupts::new().with_iages(true));
            }
        }
    }

    /// The aggregation timer of a completion queue has run out.
    pub(super) fn queue_aggregation_expired(&mut self, number: usize, now: u64) {
        if let Some(group) = self.group_of(number)
            && self.queues[group].aggregation.expired(now)
        {
            self.signal_queue(number, Interrupts::new().with_iages(true));
        }
    }

    /// A completion queue has news: its own status, and a message or the line. A message is sent
    /// when the status goes up, so a host clears it before it looks at the queue.
    fn signal_queue(&mut self, number: usize, cause: Interrupts) {
        let queue = &mut self.queues[number];
        let was_up = queue.cqis.teps();
        queue.cqis.set_teps(true);
        if !queue.cqie.teps() {
            return;
        }
        if !self.registers.mode.esie() {
            self.registers.raise(cause);
        } else if !was_up {
            self.send_message(number as u8);
        }
    }

    /// The host has made room in a completion queue.
    fn drain_backlog(&mut self, number: usize) {
        while !self.queues[number].cq_full() {
            let next = self.queues[number].backlog.pop_front();
            let Some((entry, regular)) = next else { break };
            self.write_completion(number, &entry, regular);
        }
        self.fetch_queues();
    }
}
