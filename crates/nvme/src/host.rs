//! The control owner of a controller.

use crate::channel::{Action, Channel, Run};
use crate::control::Core;
use crate::facts::{Facts, NvmeFacts};
use crate::history::ErrorLog;
use crate::init::{BringUp, Step};
use crate::lane::Lane;
use crate::layout::Layout;
use crate::options::NvmeOptions;
use crate::queue::renewed;
use crate::quirks::Quirks;
use crate::recover::Recovery;
use crate::shared::{Shared, cause};
use crate::{NvmeError, Operation, Output};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use flysch_api::command::Outcome;
use flysch_api::machine::{DmaRegion, Instant, Machine};
use flysch_orders::Order;
use flysch_script::{Player, Stop};
use flysch_wire::nvme::registers::{CAP, Cap, VS, Version};

/// State of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Nothing is under way.
    Idle,
    /// Poll again at [`Host::poll_at`].
    Busy,
    /// The last operation has ended.
    Done(Result<Output, NvmeError>),
}

/// State of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not brought up.
    Down,
    /// Up.
    Up,
    /// Being brought up or recovered.
    Recovering,
    /// Failed permanently.
    Gone,
}

#[derive(Debug)]
enum Job {
    BringUp(BringUp),
    Operation(Operation),
    /// The controller reported an event.
    Event(u32),
    Recovery(Recovery),
}

/// The host: bring-up, admin commands, events, recovery. It owns the first lane.
#[derive(Debug)]
pub struct Host<M: Machine> {
    core: Core<M>,
    lane: Lane<M>,
    others: Vec<Box<Lane<M>>>,
    job: Option<Job>,
    state: State,
    result: Option<Result<Output, NvmeError>>,
    /// The current recovery was requested by the caller.
    asked: bool,
    /// When the host wants to be polled: for the current job, or to check on things.
    job_at: Instant,
}

/// How often the host checks whether a lane on another thread has called it, nanoseconds.
const ATTENTION_NANOS: u64 = 100_000_000;
/// How often the host checks the controller and events while nothing is in flight, nanoseconds.
const LOOK_NANOS: u64 = 1_000_000_000;

impl<M: Machine> Host<M> {
    /// Bytes of DMA memory a driver with these options needs.
    pub fn memory_len(options: &NvmeOptions) -> usize {
        Layout::len(options)
    }

    /// A host over `machine`. Reads the capability registers and changes nothing.
    ///
    /// `memory` is the driver's own part of the machine's DMA memory, at least
    /// [`memory_len`](Self::memory_len) bytes; command data may lie anywhere else in the machine's
    /// memory.
    ///
    /// # Errors
    /// Options that contradict each other or the controller, too little memory, or no controller.
    pub fn new(machine: M, memory: DmaRegion, options: NvmeOptions) -> Result<Self, NvmeError> {
        let facts = read_facts(&machine, options)?;
        let layout = Layout::new(&memory, &facts.options, facts.depth)?;
        let lanes = usize::from(facts.options.lanes);
        let shared = Arc::new(Shared::new(lanes, facts.depth, facts.options.transfer_max));
        shared.orders.publish(Order::PAUSE | Order::STOP);
        let mut all = (0..lanes).map(|n| Lane::new(&machine, &shared, &layout, &facts, n));
        let lane = all.next().ok_or(NvmeError::Options("at least one lane is needed"))?;
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

    /// The lanes except the first, which is the host's own; each goes into a port.
    pub(crate) fn take_others(&mut self) -> Vec<Box<Lane<M>>> {
        core::mem::take(&mut self.others)
    }

    /// The state of the host.
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

    /// What bring-up learnt.
    pub fn device(&self) -> &NvmeFacts {
        &self.core.device
    }

    /// The errors so far.
    pub fn errors(&self) -> &ErrorLog {
        &self.core.channel.errors
    }

    /// The known deviations of this controller.
    pub fn quirks(&self) -> Quirks {
        self.core.channel.quirks
    }

    /// The controller's version.
    pub fn version(&self) -> Version {
        self.core.channel.version
    }

    /// Controller capabilities.
    pub fn capabilities(&self) -> Cap {
        self.core.channel.cap
    }

    /// The machine the host runs on.
    pub fn machine(&self) -> &M {
        &self.core.channel.machine
    }

    /// Starts an operation; call [`poll`](Self::poll) until it has ended.
    ///
    /// # Errors
    /// [`NvmeError::Busy`]; except for bring-up, also [`NvmeError::NotUp`] and [`NvmeError::Gone`].
    pub fn begin(&mut self, operation: Operation) -> Result<(), NvmeError> {
        let job = match (operation, self.state) {
            _ if self.job.is_some() => return Err(NvmeError::Busy),
            (Operation::BringUp | Operation::Reset, State::Up) => {
                self.asked = true;
                Job::Recovery(Recovery::reset())
            }
            (Operation::BringUp, _) => {
                self.core.shared().orders.take_causes();
                self.core.shared().orders.publish(Order::PAUSE | Order::STOP);
                Job::BringUp(BringUp::default())
            }
            (Operation::SubsystemReset, State::Up) => {
                if !self.core.channel.cap.nssrs() {
                    return Err(NvmeError::Unsupported("NVM subsystem reset"));
                }
                self.asked = true;
                Job::Recovery(Recovery::subsystem())
            }
            (_, State::Down | State::Recovering) => return Err(NvmeError::NotUp),
            (_, State::Gone) => return Err(NvmeError::Gone),
            (operation, State::Up) => Job::Operation(operation),
        };
        self.set_job(job);
        Ok(())
    }

    fn set_job(&mut self, job: Job) {
        self.core.channel.script.abandon();
        self.job = Some(job);
        self.job_at = Instant::START;
    }

    /// Does all work that can be done now.
    pub fn poll(&mut self, now: Instant) -> Progress {
        self.drive(now);
        match self.result.take() {
            Some(result) => Progress::Done(result),
            None if self.job.is_some() => Progress::Busy,
            None => Progress::Idle,
        }
    }

    /// When the host wants to be polled: for the current operation, for its lane, or to check on
    /// lanes of other threads.
    pub fn poll_at(&self) -> Option<Instant> {
        if self.core.shared().orders.is_called() && self.listens() {
            return Some(Instant::START);
        }
        let mut at = self.job_at;
        if let Some(lane) = self.lane.poll_at() {
            at = at.min(lane);
        }
        (at != Instant::NEVER).then_some(at)
    }

    /// One doorbell for the host's own lane. The host also gets its turn here if polls always find
    /// completions.
    #[inline]
    pub(crate) fn ring_lane(&mut self, now: Instant) {
        self.lane.ring(now);
        if self.is_due(now) {
            self.drive(now);
        }
    }

    #[inline(always)]
    pub(crate) fn poll_lane(&mut self, now: Instant) -> Option<Outcome> {
        while let Some(done) = self.lane.completion.take(&self.core.channel.machine) {
            if let outcome @ Some(_) = self.lane.settle(done) {
                return outcome;
            }
        }
        self.found_nothing(now).map(renewed)
    }

    /// Whether there is something for the host to do, or a new order for its lane.
    #[inline]
    fn is_due(&self, now: Instant) -> bool {
        now >= self.job_at || !self.lane.shared.orders.is_quiet(self.lane.obeyed)
    }

    /// No command of the lane has completed: time to take care of everything else.
    #[inline(never)]
    fn found_nothing(&mut self, now: Instant) -> Option<Outcome> {
        if self.is_due(now) {
            self.drive(now);
        }
        match self.lane.found_nothing(now) {
            None => self.look_after_lane(now),
            outcome => outcome,
        }
    }

    /// The lane had no completion; it may just have found an overdue command or an error, or the
    /// controller may have something to report.
    #[inline(never)]
    fn look_after_lane(&mut self, now: Instant) -> Option<Outcome> {
        let told = self.state == State::Up
            && self.core.channel.admin.is_waiting(&self.core.channel.machine);
        if !told && self.lane.shared.orders.is_quiet(self.lane.obeyed) {
            return None;
        }
        self.drive(now);
        self.lane.poll(now)
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
        if self.state == State::Up && self.job.is_none() {
            self.look_around(now);
        }
        self.look_for_trouble();
        self.lane.wake(now);
        while let Some(job) = &mut self.job {
            let channel = &mut self.core.channel;
            let attempt = |channel: &mut Channel<M>, action: &mut Action| {
                channel.attempt(action, &mut self.lane)
            };
            if let Some(at) = channel.advance(now, attempt) {
                self.job_at = at;
                return;
            }
            let run = job.run(&mut self.core);
            // What the step ordered is obeyed by the host's own lane at once.
            self.lane.wake(now);
            match run {
                Err(Stop::Pending) => {}
                Err(Stop::Failed(error)) => self.finish(Err(error), now),
                Ok(output) => self.finish(Ok(output), now),
            }
        }
        self.job_at = self.idle_until(now);
    }

    /// Checks the controller and takes in the events it reported.
    fn look_around(&mut self, now: Instant) {
        if now >= self.job_at {
            self.lane.look_for_errors();
        }
        self.core.channel.admin.harvest(&self.core.channel.machine);
        if let Some(event) = self.core.channel.admin.event.take() {
            self.set_job(Job::Event(event));
        }
    }

    /// When to check again although no operation is running.
    fn idle_until(&self, now: Instant) -> Instant {
        match (self.state, self.core.channel.options.lanes) {
            (State::Up, 1) => now.after_nanos(LOOK_NANOS),
            (State::Up, _) => now.after_nanos(ATTENTION_NANOS),
            _ => Instant::NEVER,
        }
    }

    /// Whether calls of lanes can be answered now: not while everything is being reset.
    fn listens(&self) -> bool {
        let resets = matches!(self.job, Some(Job::Recovery(_) | Job::BringUp(_)));
        self.state == State::Up && !resets
    }

    /// Answers a call from a lane.
    fn look_for_trouble(&mut self) {
        if !self.listens() {
            return;
        }
        self.core.shared().orders.take_call();
        let fatal = self.core.shared().orders.causes() != 0;
        let overdue = self.job.is_none() && self.core.shared().has_victims();
        if fatal || overdue {
            if matches!(self.job, Some(Job::Operation(_))) {
                self.result = Some(Err(NvmeError::Recovered));
            }
            self.set_job(Job::Recovery(Recovery::new()));
        }
    }

    /// A controller that did not stop although the lanes have cannot be left in that state.
    fn after_shutdown(&mut self) {
        if !self.core.enabled {
            self.state = State::Down;
        } else if !self.core.shared().orders.order_now().runs() {
            self.core.shared().orders.report(cause::LOST);
        }
    }

    fn finish(&mut self, result: Result<Output, NvmeError>, now: Instant) {
        match result {
            Ok(_) => self.core.channel.script.turn_page(),
            // A procedure that failed in the middle of a replay has answers left.
            Err(_) => self.core.channel.script.abandon(),
        }
        match self.job.take() {
            Some(Job::BringUp(_)) => {
                if result.is_ok() {
                    self.core.shared().orders.publish(0);
                }
                self.others.iter_mut().for_each(|lane| lane.take_bounds());
                self.state = if result.is_ok() { State::Up } else { State::Down };
                self.result = Some(result);
            }
            Some(Job::Recovery(_)) => {
                // What a caller may not ask for leaves everything as it was.
                let refused = matches!(result, Err(NvmeError::Unsupported(_)));
                let up = result.is_ok() || refused;
                self.state = if up { State::Up } else { State::Gone };
                if core::mem::take(&mut self.asked) {
                    self.result = Some(result);
                }
            }
            Some(Job::Operation(operation)) => {
                if operation == Operation::Shutdown {
                    self.after_shutdown();
                }
                self.result = Some(result);
            }
            Some(Job::Event(_)) | None => {}
        }
        self.lane.wake(now);
        self.look_for_trouble();
    }
}

impl<M: Machine> Drop for Host<M> {
    /// Stops the controller's DMA before its memory is freed. Nothing is flushed: use
    /// [`Operation::Shutdown`] for that. Every port has been dropped.
    fn drop(&mut self) {
        self.core.switch_off();
    }
}

impl Job {
    fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Output> {
        match self {
            Self::BringUp(bring_up) => bring_up.run(core).map(|()| Output::None),
            Self::Operation(operation) => operation.run(core),
            Self::Event(told) => {
                let handled = core.device.handle_event(&mut core.channel, *told);
                handled.map(|()| Output::None)
            }
            Self::Recovery(recovery) => recovery.run(core).map(|()| Output::None),
        }
    }
}

/// Identifies the controller and decides how its queues will be used.
fn read_facts<M: Machine>(machine: &M, mut options: NvmeOptions) -> Result<Facts, NvmeError> {
    if options.lanes == 0 || !(1..=NvmeOptions::DEPTH_MAX).contains(&options.depth) {
        return Err(NvmeError::Options("lanes must be at least 1 and depth 1 to 1023"));
    }
    if !(4096..=NvmeOptions::TRANSFER_MAX).contains(&options.transfer_max) {
        return Err(NvmeError::Options("transfer_max must be 4 KiB to 2 MiB"));
    }
    options.transfer_max &= !0xFFF;
    let (low, high) = (machine.read32(CAP), machine.read32(CAP + 4));
    if (low, high) == (u32::MAX, u32::MAX) {
        return Err(NvmeError::NoController);
    }
    let cap = Cap::from_bits(u64::from(low) | u64::from(high) << 32);
    if cap.mpsmin() != 0 {
        return Err(NvmeError::Unsupported("a controller without memory pages of 4 KiB"));
    }
    if !cap.css_nvm() && !cap.css_io() {
        return Err(NvmeError::Unsupported("a controller without the NVM command set"));
    }
    let version = Version::from_bits(machine.read32(VS));
    // MQES counts from zero, and one entry stays empty.
    let depth = options.depth.min(cap.mqes());
    if depth == 0 {
        return Err(NvmeError::Unsupported("queues of one entry"));
    }
    let quirks = Quirks::find(machine.identity()).and(options.quirks);
    Ok(Facts { options, version, cap, quirks, depth: depth.into() })
}
