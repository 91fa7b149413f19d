//! The control owner of a controller and its card.

use crate::channel::{Action, Channel, Facts, Run};
use crate::control::Core;
use crate::history::ErrorLog;
use crate::init::{BringUp, Step};
use crate::lane::{Engine, Lane};
use crate::layout::Layout;
use crate::operation::{Operation, Output};
use crate::options::EmmcOptions;
use crate::quirks::{HostQuirk, HostQuirks};
use crate::recover::Recovery;
use crate::shared::{Errand, Shared, cause};
use crate::table::Format;
use crate::{BusError, CardFacts, EmmcError};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use flysch_api::command::Outcome;
use flysch_api::machine::{DmaRegion, Instant, Machine};
use flysch_orders::Order;
use flysch_script::{Player, Stop};
use flysch_wire::mmc::cqhci::CQVER;
use flysch_wire::mmc::sdhci::{self as reg, Capabilities, Clock};

/// The state of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Nothing is in progress.
    Idle,
    /// Poll again at [`Host::poll_at`].
    Busy,
    /// The last operation has ended.
    Done(Result<Output, EmmcError>),
}

/// Whether the host can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not brought up yet.
    Down,
    /// Up.
    Up,
    /// Being brought up or recovered.
    Recovering,
    /// Out of order permanently.
    Gone,
}

#[derive(Debug)]
enum Job {
    BringUp(BringUp),
    Operation(Operation),
    /// What a lane cannot do alone.
    Errand(usize, Errand),
    /// The card reported an exception.
    Exception,
    Recovery(Recovery),
}

/// The host: bring-up, operations, errands, recovery. It owns the first lane, and moves its
/// transfers where there is no queueing engine.
#[derive(Debug)]
pub struct Host<M: Machine> {
    core: Core<M>,
    lane: Lane<M>,
    pub(crate) others: Vec<Box<Lane<M>>>,
    job: Option<Job>,
    state: State,
    result: Option<Result<Output, EmmcError>>,
    /// The current recovery was requested by the caller.
    asked: bool,
    /// When the host wants to be polled: for the current job, or to look around.
    job_at: Instant,
}

/// How often the host checks whether a lane on another thread has called it, nanoseconds.
const ATTENTION_NANOS: u64 = 100_000_000;
/// How often the host checks the controller while nothing is in flight, nanoseconds.
const LOOK_NANOS: u64 = 1_000_000_000;
/// Interval between two looks at the current transfer if there is no interrupt, nanoseconds.
const TRANSFER_NANOS: (u64, u64) = (10_000_000, 20_000);
/// Where Intel's controllers have their queueing engine.
const INTEL_ENGINE: u32 = 0x200;

impl<M: Machine> Host<M> {
    /// Bytes of DMA memory a driver with these options needs.
    pub fn memory_len(options: &EmmcOptions) -> usize {
        Layout::len(options)
    }

    /// A host over `machine`. Reads the capability registers and changes nothing.
    ///
    /// `memory` is the driver's own part of the machine's DMA memory, at least
    /// [`memory_len`](Self::memory_len) bytes; command data may lie anywhere else in the machine's
    /// memory.
    ///
    /// # Errors
    /// Options that contradict each other or the controller, memory that is too small, or no
    /// controller.
    pub fn new(machine: M, memory: DmaRegion, options: EmmcOptions) -> Result<Self, EmmcError> {
        let facts = read_facts(&machine, options)?;
        let layout = Layout::new(&memory, &facts.options)?;
        let lanes = usize::from(facts.options.lanes);
        let shared = Arc::new(Shared::new(lanes));
        shared.orders.publish(Order::PAUSE | Order::STOP);
        let known = (&facts.options, facts.engine);
        let mut all = (0..lanes).map(|n| Lane::new(&machine, &shared, &layout, known, n));
        let lane = all.next().ok_or(EmmcError::Options("at least one lane is needed"))?;
        let others = all.map(Box::new).collect();
        Ok(Self {
            core: Core::new(machine, layout, shared, facts),
            lane,
            others,
            job: None,
            state: State::Down,
            result: None,
            asked: false,
            job_at: Instant::NEVER,
        })
    }

    /// Whether the host can be used.
    pub fn state(&self) -> State {
        match self.job {
            Some(Job::BringUp(_) | Job::Recovery(_)) => State::Recovering,
            _ => self.state,
        }
    }

    /// The current bring-up step.
    pub fn step(&self) -> Option<&'static Step> {
        match &self.job {
            Some(Job::BringUp(bring_up)) => bring_up.step(),
            _ => None,
        }
    }

    /// What bring-up has learnt.
    pub fn device(&self) -> &CardFacts {
        &self.core.card.device
    }

    /// What has gone wrong so far.
    pub fn errors(&self) -> &ErrorLog {
        &self.core.card.channel.errors
    }

    /// The controller's known deviations.
    pub fn quirks(&self) -> HostQuirks {
        self.core.card.channel.quirks
    }

    /// The controller's specification version, as its register has it: 2 is 3.00, 5 is 4.20.
    pub fn version(&self) -> u8 {
        self.core.card.channel.version
    }

    /// Controller capabilities.
    pub fn capabilities(&self) -> Capabilities {
        self.core.card.channel.capabilities
    }

    /// The machine the host runs on.
    pub fn machine(&self) -> &M {
        &self.core.card.channel.machine
    }

    /// Begins an operation, which [`poll`](Self::poll) completes.
    ///
    /// # Errors
    /// [`EmmcError::Busy`]; except for bring-up also [`EmmcError::NotUp`] and [`EmmcError::Gone`].
    pub fn begin(&mut self, operation: Operation) -> Result<(), EmmcError> {
        let job = match (operation, self.state) {
            // An errand, or reading an exception, is not interrupted.
            _ if self.job.is_some() => return Err(EmmcError::Busy),
            (Operation::BringUp | Operation::Reset, State::Up) => {
                self.asked = true;
                self.core.speed.fastest = self.core.card.channel.options.timing;
                Job::Recovery(Recovery::reset())
            }
            (Operation::BringUp, _) => {
                self.core.shared().orders.take_causes();
                self.core.shared().orders.publish(Order::PAUSE | Order::STOP);
                self.core.speed.fastest = self.core.card.channel.options.timing;
                Job::BringUp(BringUp::default())
            }
            (_, State::Down | State::Recovering) => return Err(EmmcError::NotUp),
            (_, State::Gone) => return Err(EmmcError::Gone),
            (operation, State::Up) => Job::Operation(operation),
        };
        self.set_job(job);
        Ok(())
    }

    fn set_job(&mut self, job: Job) {
        self.core.card.channel.drop_script();
        self.job = Some(job);
        self.job_at = Instant::START;
    }

    /// Makes as much progress as possible now.
    pub fn poll(&mut self, now: Instant) -> Progress {
        self.move_transfers(now);
        self.drive(now);
        if !self.core.engine.runs && self.core.touched {
            self.core.card.channel.bus.quieten(&self.core.card.channel.machine);
        }
        match self.result.take() {
            Some(result) => Progress::Done(result),
            None if self.job.is_some() => Progress::Busy,
            None => Progress::Idle,
        }
    }

    /// When the host wants to be polled: for the current operation, for its lane, or to attend to
    /// lanes on other threads.
    pub fn poll_at(&self) -> Option<Instant> {
        if self.core.shared().orders.is_called() && self.listens() {
            return Some(Instant::START);
        }
        let mut at = self.job_at.min(self.core.card.channel.plain.poll_at());
        if let Some(lane) = self.lane.poll_at() {
            at = at.min(lane);
        }
        (at != Instant::NEVER).then_some(at)
    }

    /// Rings one doorbell for the host's own lane. The host gets its turn here even if polls always
    /// find something.
    #[inline]
    pub(crate) fn ring_lane(&mut self, now: Instant) {
        self.lane.ring(now);
        if self.is_due(now) {
            self.drive(now);
        }
        if !self.lane.waiting.is_empty() {
            self.move_transfers(now);
        }
    }

    #[inline(always)]
    pub(crate) fn poll_lane(&mut self, now: Instant) -> Option<Outcome> {
        if let outcome @ Some(_) = self.lane.next_ended() {
            return outcome;
        }
        self.found_nothing(now)
    }

    /// Whether there is something for the host to do, or a new order for its lane.
    #[inline]
    fn is_due(&self, now: Instant) -> bool {
        now >= self.job_at || !self.core.shared().orders.is_quiet(self.lane.obeyed)
    }

    /// Nothing of the lane has completed: the time to attend to everything else.
    #[inline(never)]
    fn found_nothing(&mut self, now: Instant) -> Option<Outcome> {
        self.move_transfers(now);
        // An interrupt may mean the end of a command that the job waits for.
        if self.job.is_some() || self.is_due(now) {
            self.drive(now);
        }
        if let outcome @ Some(_) = self.lane.found_nothing(now) {
            return outcome;
        }
        if !self.core.engine.runs {
            self.core.card.channel.bus.quieten(&self.core.card.channel.machine);
        }
        // Perhaps the lane found something overdue or wrong just now.
        if self.core.shared().orders.is_quiet(self.lane.obeyed) {
            return None;
        }
        self.drive(now);
        self.lane.poll(now)
    }

    /// Moves transfers one at a time, where no engine does.
    fn move_transfers(&mut self, now: Instant) {
        let idle = self.lane.waiting.is_empty() && self.lane.host_has.is_none();
        if idle || self.core.card.channel.plain.failed.is_some() {
            return;
        }
        // A job gets the bus once no transfer is in progress.
        let others = self.job.is_some() && self.lane.host_has.is_none();
        if !others {
            let core = &mut self.core;
            core.card.channel.plain.advance(&mut core.card.channel.bus, &mut self.lane, now);
        }
        if self.core.card.channel.plain.failed.is_some() {
            self.core.shared().orders.report(cause::ERROR);
        } else {
            let (told, polled) = TRANSFER_NANOS;
            let soon = if self.core.card.channel.options.interrupts { told } else { polled };
            self.core.card.channel.plain.glance(&self.lane, now, soon);
        }
    }

    #[inline]
    pub(crate) fn lane(&self) -> &Lane<M> {
        &self.lane
    }

    #[inline]
    pub(crate) fn lane_mut(&mut self) -> &mut Lane<M> {
        &mut self.lane
    }

    #[cold]
    fn drive(&mut self, now: Instant) {
        self.lane.tend(now);
        if self.state == State::Up && self.job.is_none() && now >= self.job_at {
            self.look_around();
        }
        self.look_for_trouble();
        self.lane.wake(now);
        while let Some(job) = &mut self.job {
            let fails = matches!(job, Job::Recovery(_) | Job::BringUp(_));
            if !fails && self.core.card.channel.plain.is_busy(&self.lane) {
                // The current transfer has the bus; its end causes another poll.
                self.job_at = self.core.card.channel.plain.next_look(now, TRANSFER_NANOS.1);
                return;
            }
            let channel = &mut self.core.card.channel;
            let attempt = |channel: &mut Channel<M>, action: &mut Action| {
                channel.attempt(action, &mut self.lane)
            };
            if let Some(at) = channel.advance(now, attempt) {
                self.job_at = at;
                return;
            }
            let run = job.run(&mut self.core);
            // The host's own lane obeys the step's order at once.
            self.lane.wake(now);
            match run {
                Err(Stop::Pending) => {}
                Err(Stop::Failed(error)) => self.finish(Err(error), now),
                Ok(output) => self.finish(Ok(output), now),
            }
        }
        self.job_at = self.idle_until(now);
    }

    /// Checks the controller of its own accord.
    fn look_around(&mut self) {
        self.lane.look_for_errors();
        if self.core.card.channel.machine.read32(reg::PRESENT) == u32::MAX {
            self.core.shared().orders.report(cause::REMOVED);
        }
    }

    /// When to look again although nothing is in progress.
    fn idle_until(&self, now: Instant) -> Instant {
        match (self.state, self.core.card.channel.options.lanes) {
            (State::Up, 1) => now.after_nanos(LOOK_NANOS),
            (State::Up, _) => now.after_nanos(ATTENTION_NANOS),
            _ => Instant::NEVER,
        }
    }

    /// Whether calls from lanes are answered now: not while everything is being reset.
    fn listens(&self) -> bool {
        let resets = matches!(self.job, Some(Job::Recovery(_) | Job::BringUp(_)));
        self.state == State::Up && !resets
    }

    /// Answers a lane's call.
    fn look_for_trouble(&mut self) {
        if !self.listens() {
            return;
        }
        let shared = self.core.shared();
        shared.orders.take_call();
        let fatal = shared.orders.causes() != 0;
        let overdue = self.job.is_none() && shared.victims() != 0;
        if fatal || overdue {
            if matches!(self.job, Some(Job::Operation(_))) {
                self.result = Some(Err(EmmcError::Recovered));
            }
            return self.set_job(Job::Recovery(Recovery::new()));
        }
        if self.job.is_some() {
            return;
        }
        if let Some(lane) = shared.errand()
            && let Some(errand) = shared.errands[lane].asked()
        {
            self.set_job(Job::Errand(lane, errand));
        } else if core::mem::take(&mut self.core.card.channel.plain.exception) {
            self.set_job(Job::Exception);
        }
    }

    /// A card that was not stopped although the lanes were cannot be left like that.
    fn after_shutdown(&mut self, well: bool) {
        let stopped = self.core.shared().orders.order_now().has(Order::STOP);
        if well || stopped {
            self.state = State::Down;
        } else if !self.core.shared().orders.order_now().runs() {
            self.core.shared().orders.report(cause::LOST);
        }
    }

    fn finish(&mut self, result: Result<Output, EmmcError>, now: Instant) {
        match result {
            Ok(_) => self.core.card.channel.script.turn_page(),
            // A procedure that fails in the middle of a replay has answers left.
            Err(_) => self.core.card.channel.drop_script(),
        }
        match self.job.take() {
            Some(Job::BringUp(_)) => {
                if result.is_ok() {
                    self.core.shared().orders.publish(0);
                }
                self.take_terms();
                self.state = if result.is_ok() { State::Up } else { State::Down };
                self.result = Some(result);
            }
            Some(Job::Recovery(_)) => {
                self.state = if result.is_ok() { State::Up } else { State::Gone };
                self.end_failed(now);
                if core::mem::take(&mut self.asked) {
                    self.result = Some(result);
                }
            }
            Some(Job::Operation(operation)) => {
                self.after_operation(&operation, result.is_ok());
                self.result = Some(result);
            }
            // It has not begun: after the recovery it runs if it is still requested.
            Some(Job::Errand(..)) if result == Err(EmmcError::Recovered) => {}
            Some(Job::Errand(lane, _)) => {
                let silent = [BusError::SILENT.0, 0];
                let answer = self.core.errand.take().unwrap_or(silent);
                self.core.shared().errands[lane].answer(answer);
                self.mend_lanes();
            }
            Some(Job::Exception) => self.mend_lanes(),
            None => {}
        }
        self.lane.wake(now);
        self.look_for_trouble();
        self.lane.wake(now);
    }

    /// Gives the lanes their terms before they are first used.
    fn take_terms(&mut self) {
        self.lane.take_terms();
        self.others.iter_mut().for_each(|lane| lane.take_terms());
    }

    fn after_operation(&mut self, operation: &Operation, well: bool) {
        match operation {
            Operation::Shutdown => self.after_shutdown(well),
            Operation::Sleep if well => {}
            _ => self.mend_lanes(),
        }
    }

    /// A procedure that failed half-way may have left the lanes paused: only a reset ensures that
    /// card and controller are in a known state.
    fn mend_lanes(&mut self) {
        let runs = self.core.shared().orders.order_now().runs();
        if !runs && !self.core.asleep && self.state == State::Up {
            self.core.shared().orders.report(cause::LOST);
        }
    }

    /// Ends the transfer that recovery dealt with, if it has not ended with everything else.
    fn end_failed(&mut self, now: Instant) {
        if let Some(failed) = self.core.card.channel.plain.failed.take() {
            self.lane.host_has = None;
            self.lane.end_plain(failed.slot, failed.error, failed.status, now);
        }
        let (core, lane) = (&mut self.core, &mut self.lane);
        core.card.channel.plain.forget(&mut core.card.channel.bus, lane);
    }
}

impl<M: Machine> Drop for Host<M> {
    /// Stops the controller's DMA before the memory is freed. Nothing is flushed: use
    /// [`Operation::Shutdown`] for that. Every port is gone.
    fn drop(&mut self) {
        if self.core.touched {
            let all = Clock::new().with_reset_all(true).into_bits();
            self.core.card.channel.machine.write32(reg::CLOCK, all);
            self.core.shared().orders.publish(Order::PAUSE | Order::STOP | Order::GONE);
        }
    }
}

impl Job {
    fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Output> {
        match self {
            Self::BringUp(bring_up) => bring_up.run(core).map(|()| Output::None),
            Self::Operation(operation) => core.operate(operation),
            Self::Errand(_, errand) => {
                let answer = core.run_errand(*errand)?;
                core.errand = Some(answer);
                Ok(Output::None)
            }
            Self::Exception => core.see_exception().map(|()| Output::None),
            Self::Recovery(recovery) => recovery.run(core).map(|()| Output::None),
        }
    }
}

/// Reads what the controller is and determines how it will be used.
fn read_facts<M: Machine>(machine: &M, mut options: EmmcOptions) -> Result<Facts, EmmcError> {
    if options.lanes == 0 || options.lanes > EmmcOptions::DEPTH_MAX {
        return Err(EmmcError::Options("lanes must be 1 to 31"));
    }
    if !(1..=EmmcOptions::DEPTH_MAX).contains(&options.depth) {
        return Err(EmmcError::Options("depth must be 1 to 31"));
    }
    if !(4096..=EmmcOptions::TRANSFER_MAX).contains(&options.transfer_max) {
        return Err(EmmcError::Options("transfer_max must be 4 KiB to 4 MiB"));
    }
    options.transfer_max &= !0xFFF;
    let (low, high) = (machine.read32(reg::CAPABILITIES), machine.read32(reg::CAPABILITIES + 4));
    if (low, high) == (u32::MAX, u32::MAX) {
        return Err(EmmcError::NoController);
    }
    let capabilities = Capabilities::from_bits(u64::from(low) | u64::from(high) << 32);
    let version = reg::version_of(machine.read32(reg::SLOT_VERSION));
    let quirks = HostQuirks::find(machine.identity()).and(options.host_quirks);
    if capabilities.base_mhz() == 0 && options.base_mhz == 0 {
        return Err(EmmcError::Unsupported("a controller that does not tell its base clock"));
    }
    let v4 = capabilities.wide_v4() && version >= reg::version::V4;
    let format = if v4 && !quirks.has(HostQuirk::ShortDescriptors) {
        Format::WIDE
    } else if capabilities.wide_v3() {
        Format::SHORT
    } else {
        Format::NARROW
    };
    let memory = machine.memory();
    let dma = options.dma && capabilities.adma2();
    if dma && format == Format::NARROW && memory.address() + memory.len() as u64 > 1 << 32 {
        return Err(EmmcError::Address);
    }
    // A window without an engine reads as zeros or ones there.
    let engine_there = |base: &u32| !matches!(machine.read32(base + CQVER), 0 | u32::MAX);
    let base = quirks.has(HostQuirk::Intel).then_some(INTEL_ENGINE).filter(engine_there);
    let engine = Engine { format, base };
    Ok(Facts { options, version, capabilities, quirks, engine })
}
