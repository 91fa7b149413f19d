//! The control owner of a controller.

use crate::channel::{Action, Channel, Run};
use crate::control::Core;
use crate::facts::{Facts, Shape, UfsFacts, read_facts, settle_shape};
use crate::history::{ErrorKind, ErrorLog, ErrorRecord};
use crate::init::{BringUp, Step};
use crate::keys::{CryptoEngine, KeySlots};
use crate::lane::{Lane, Next};
use crate::layout::Layout;
use crate::link::Link;
use crate::management::Peer;
use crate::options::{QueueMode, UfsOptions};
use crate::platform::Platform;
use crate::quirks::Quirks;
use crate::recover::Recovery;
use crate::shared::Shared;
use crate::slots::renewed;
use crate::{Operation, Output, UfsError};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use flysch_api::command::Outcome;
use flysch_api::machine::{DmaRegion, Instant, Machine};
use flysch_orders::Order;
use flysch_script::{Player, Stop};
use flysch_wire::ufs::registers::{Cap, Interrupts, Ver};

/// The state of an operation.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "short-lived, and boxing would allocate")]
pub enum Progress {
    /// Nothing is in progress.
    Idle,
    /// Poll again at [`Host::poll_at`].
    Busy,
    /// The last operation has ended.
    Done(Result<Output, UfsError>),
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
    Event,
    /// A command waits for a link that hibernates.
    Wake,
    Recovery(Recovery),
}

/// The host: bring-up, queries, power, task management, recovery. It owns the first lane.
///
/// In C layout with the lane first, so that a port finds its lane where its box points, whether the
/// box holds a host or a lane.
#[derive(Debug)]
#[repr(C)]
pub struct Host<M: Machine> {
    lane: Lane<M>,
    core: Core<M>,
    others: Vec<Box<Lane<M>>>,
    job: Option<Job>,
    state: State,
    result: Option<Result<Output, UfsError>>,
    /// The current recovery was requested by the caller.
    asked: bool,
    /// When the host wants to be polled: for the current job, or to look around.
    job_at: Instant,
    /// When it checks exception events again.
    event_at: Instant,
    /// When it checks for errors again.
    look_at: Instant,
    /// [`Lane::watch_at`] when the lane was last seen without work.
    seen_idle: Instant,
}

/// How often the host checks whether a lane on another thread has called it, nanoseconds.
const ATTENTION_NANOS: u64 = 100_000_000;
/// How often the host checks for errors while nothing is in flight and no error raises the line,
/// nanoseconds.
const LOOK_NANOS: u64 = 1_000_000_000;
/// How often the device is asked about an event that persists, nanoseconds.
const EVENT_NANOS: u64 = 1_000_000_000;

impl<M: Machine> Host<M> {
    /// Bytes of DMA memory a driver with these options needs.
    pub fn memory_len(options: &UfsOptions) -> usize {
        Layout::len(options)
    }

    /// A host over `machine`. Reads the capability registers and changes nothing.
    ///
    /// `memory` is the driver's own part of the machine's DMA memory, at least
    /// [`memory_len`](Self::memory_len) bytes; command data may lie anywhere else in the machine's
    /// memory.
    ///
    /// # Errors
    /// Options that contradict each other or the controller, memory that is too small or out of
    /// reach, or no controller.
    pub fn new(machine: M, memory: DmaRegion, options: UfsOptions) -> Result<Self, UfsError> {
        let facts = read_facts(&machine, options)?;
        let end = |region: &DmaRegion| region.address().saturating_add(region.len() as u64);
        let reach = end(&memory).max(end(machine.memory()));
        if !facts.cap.addressing_64bit() && reach > 1 << 32 {
            return Err(UfsError::MemoryTooHigh);
        }
        let Parts { shared, layout, lane, others } = Parts::new(&machine, &memory, &facts)?;
        Ok(Self {
            core: Core::new(machine, layout, shared, facts),
            lane,
            others,
            job: None,
            state: State::Down,
            result: None,
            asked: false,
            job_at: Instant::NEVER,
            event_at: Instant::START,
            look_at: Instant::START,
            seen_idle: Instant::NEVER,
        })
    }

    /// The same host on a board that has to do something or to be told, see [`Platform`]. To be
    /// called before bring-up.
    #[must_use]
    pub fn with_platform(mut self, platform: Box<dyn Platform>) -> Self {
        self.core.power.board.set_platform(platform);
        self
    }

    /// Replaces queues that did not come up by the single doorbell, if the choice was left to the
    /// driver and no port has been handed out. Returns whether bring-up should be tried again.
    fn fall_back(&mut self, error: UfsError, now: Instant) -> bool {
        const OF_QUEUES: [&str; 2] = ["queues", "NOP OUT"];
        let UfsError::Step { step, .. } = error else { return false };
        let facts = self.core.facts();
        let all_here = self.others.len() + 1 == usize::from(facts.shape.lanes);
        let free_choice = facts.shape.mcq && facts.options.queue == QueueMode::Auto;
        if !free_choice || !all_here || !OF_QUEUES.contains(&step) {
            return false;
        }
        let aggregation = facts.options.aggregation.filter(|_| facts.options.lanes == 1);
        let options = UfsOptions { queue: QueueMode::Sdq, aggregation, ..facts.options };
        let Ok(shape) = settle_shape(facts.cap, facts.mcq_cap, &options) else { return false };
        let facts = Facts { options, shape, ..facts };
        let Peer { channel, queues, .. } = &mut self.core.peer;
        let memory = channel.layout.whole().clone();
        let Ok(parts) = Parts::new(&channel.machine, &memory, &facts) else { return false };
        let Parts { shared, layout, lane, others } = parts;
        (queues.shape, channel.shared, channel.layout) = (shape, shared, layout);
        channel.options.aggregation = facts.options.aggregation;
        (self.lane, self.others) = (lane, others);
        let record = ErrorRecord {
            at: now,
            kind: ErrorKind::FellBack,
            value: 0,
            step: Some(step),
            error: Some(error),
        };
        channel.errors.keep(record);
        true
    }

    /// Whether the host has a lane of its own.
    pub(crate) fn is_apart(&self) -> bool {
        self.core.peer.queues.shape.apart
    }

    /// All lanes except the host's own, to be handed out.
    pub(crate) fn take_lanes(&mut self) -> Vec<Box<Lane<M>>> {
        core::mem::take(&mut self.others)
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

    /// What bring-up learnt about the device.
    pub fn device(&self) -> &UfsFacts {
        &self.core.peer.device
    }

    /// How the link runs.
    pub fn link(&self) -> Link {
        self.core.power.link
    }

    /// What has gone wrong so far.
    pub fn errors(&self) -> &ErrorLog {
        &self.core.peer.channel.errors
    }

    /// The controller's known deviations.
    pub fn quirks(&self) -> Quirks {
        self.core.peer.channel.quirks
    }

    /// UFSHCI version.
    pub fn version(&self) -> Ver {
        self.core.peer.channel.version
    }

    /// Controller capabilities.
    pub fn capabilities(&self) -> Cap {
        self.core.peer.channel.cap
    }

    /// The controller's crypto engine and its key slots; `None` if it has none.
    pub fn crypto(&self) -> Option<&CryptoEngine> {
        self.core.crypto.as_ref()
    }

    /// Whether multi-circular queues are in use.
    pub fn is_mcq(&self) -> bool {
        self.core.peer.queues.shape.mcq
    }

    /// The machine the host runs on.
    pub fn machine(&self) -> &M {
        &self.core.peer.channel.machine
    }

    /// Returns the exception events seen since the last call, bits of wExceptionEventStatus.
    pub fn take_events(&mut self) -> u16 {
        core::mem::take(&mut self.core.peer.device.events)
    }

    /// Begins an operation, which [`poll`](Self::poll) completes.
    ///
    /// # Errors
    /// [`UfsError::Busy`]; except for bring-up also [`UfsError::NotUp`] and [`UfsError::Gone`].
    pub fn begin(&mut self, operation: Operation) -> Result<(), UfsError> {
        let job = match (operation, self.state) {
            _ if self.job.is_some() => return Err(UfsError::Busy),
            (Operation::BringUp | Operation::Reset, State::Up) => {
                self.asked = true;
                Job::Recovery(Recovery::reset())
            }
            (Operation::BringUp, _) => {
                self.core.shared().orders.publish(Order::PAUSE | Order::STOP);
                Job::BringUp(BringUp::default())
            }
            (Operation::EndCommands { how, lun }, State::Up) => {
                self.asked = true;
                Job::Recovery(Recovery::end_unit(how.function(), lun))
            }
            (_, State::Down | State::Recovering) => return Err(UfsError::NotUp),
            (_, State::Gone) => return Err(UfsError::Gone),
            (operation, State::Up) => Job::Operation(operation),
        };
        self.set_job(job);
        Ok(())
    }

    fn set_job(&mut self, job: Job) {
        self.core.peer.channel.script.abandon();
        self.job = Some(job);
        self.job_at = Instant::START;
    }

    /// Makes as much progress as possible now.
    pub fn poll(&mut self, now: Instant) -> Progress {
        self.drive(now);
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
        let mut at = self.job_at;
        if let Some(lane) = self.lane.poll_at() {
            at = at.min(lane);
        }
        (at != Instant::NEVER).then_some(at)
    }

    #[inline(always)]
    pub(crate) fn poll_lane(&mut self, now: Instant) -> Option<Outcome> {
        loop {
            if let Some(done) = self.lane.take_done() {
                if let outcome @ Some(_) = self.lane.settle(done) {
                    return outcome;
                }
                continue;
            }
            if now >= self.job_at || !self.lane.shared.orders.is_quiet(self.lane.obeyed) {
                self.drive(now);
            }
            if !self.lane.has_work() {
                if self.lane.interrupts.are_on() {
                    self.idle_poll(now);
                }
                return None;
            }
            let next = if !self.lane.ended.is_empty() {
                Next::Ended
            } else if self.lane.look() {
                Next::Batch
            } else {
                self.found_nothing(now)
            };
            match next {
                Next::Batch => {}
                Next::Ended => return self.lane.take_ended().map(renewed),
                Next::Nothing => return None,
            }
        }
    }

    /// The lane, which obeys, found nothing; perhaps something is overdue or wrong.
    #[inline(never)]
    fn found_nothing(&mut self, now: Instant) -> Next {
        self.lane.idle(now);
        if self.lane.shared.orders.is_quiet(self.lane.obeyed) {
            return Next::Nothing;
        }
        self.drive(now);
        self.lane.next_batch(now)
    }

    /// A poll with nothing in flight. The first after a command costs little; a later one may be
    /// due to an interrupt that signals an error.
    #[cold]
    #[inline(never)]
    fn idle_poll(&mut self, now: Instant) {
        if self.seen_idle == self.lane.watch_at {
            self.drive(now);
        }
        self.seen_idle = self.lane.watch_at;
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
        self.core.shared().beat();
        self.notice_end();
        self.lane.tend(now);
        self.look_at_interrupts(now);
        self.look_for_trouble(now);
        self.lane.wake(now);
        while let Some(job) = &mut self.job {
            let channel = &mut self.core.peer.channel;
            let attempt = |channel: &mut Channel<M>, action: &mut Action<M>| {
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
        if self.lane.waits && self.lane.obeyed.runs() {
            // A caller whose command was declined is polled once more, and tries again.
            self.lane.forget_declined();
            self.job_at = Instant::START;
        }
    }

    /// Notices that a lane which waited too long for this host has switched the controller off. The
    /// end of a shutdown, which may wait for the platform, gives the same order.
    fn notice_end(&mut self) {
        let shuts_down = matches!(self.job, Some(Job::Operation(Operation::Shutdown)));
        if shuts_down && !self.core.running {
            return;
        }
        if self.state == State::Up && self.core.shared().orders.order_now().has(Order::GONE) {
            self.state = State::Gone;
            self.core.running = false;
            if self.job.take().is_some() {
                self.core.peer.channel.script.abandon();
                self.result = Some(Err(UfsError::Gone));
            }
        }
    }

    /// Ensures that no cause stays raised without anybody looking at it: with nothing in flight
    /// lanes do not check for errors, and while the host works its lane does not check for
    /// completions.
    fn look_at_interrupts(&mut self, now: Instant) {
        if self.state != State::Up {
            return;
        }
        self.look_at = self.next_look(now);
        if self.job.is_some() && self.core.running && self.lane.has_work() {
            self.lane.harvest();
        }
        let by_itself = self.job.is_none() && !self.core.is_hibernating();
        self.lane.look_for_errors(by_itself);
        if self.lane.interrupts.are_on() && !self.lane.has_work() {
            self.lane.acknowledge();
        }
    }

    /// Where errors raise the line, there is no need to poll for them.
    fn next_look(&self, now: Instant) -> Instant {
        if self.lane.interrupts.are_on() { Instant::NEVER } else { now.after_nanos(LOOK_NANOS) }
    }

    /// When to look again although nothing is in progress.
    fn idle_until(&self, now: Instant) -> Instant {
        if self.state != State::Up {
            return Instant::NEVER;
        }
        // While the link hibernates nothing is asked of the device.
        let asks = self.core.shared().event_pending() && !self.core.is_hibernating();
        let event = if asks { self.event_at } else { Instant::NEVER };
        // A lane on another thread cannot wake this thread.
        let lanes = match self.core.peer.queues.shape.lanes {
            1 => Instant::NEVER,
            _ => now.after_nanos(ATTENTION_NANOS),
        };
        event.min(lanes).min(self.look_at)
    }

    fn event_is_due(&self, now: Instant) -> bool {
        let pending = self.core.shared().event_pending() && !self.core.is_hibernating();
        pending && now >= self.event_at
    }

    /// Whether calls from lanes are answered now: not while everything is being reset.
    fn listens(&self) -> bool {
        let resets = matches!(self.job, Some(Job::Recovery(_) | Job::BringUp(_)));
        self.state == State::Up && !resets
    }

    /// Answers a lane's call.
    fn look_for_trouble(&mut self, now: Instant) {
        if !self.listens() {
            return;
        }
        self.core.shared().orders.take_call();
        let shared = self.core.shared();
        // A current device management command is left to its own time-out, unless the reset that
        // fatal causes lead to removes it from the controller anyway.
        let fatal = Interrupts::from_bits(shared.orders.causes()).intersects(Interrupts::FATAL);
        let trouble = shared.orders.causes() != 0 || shared.any_held();
        if fatal || (trouble && self.job.is_none()) {
            if matches!(self.job, Some(Job::Operation(_))) {
                self.result = Some(Err(UfsError::Recovered));
            }
            self.set_job(Job::Recovery(Recovery::new()));
        } else if self.job.is_none() && shared.take_wake() {
            self.set_job(Job::Wake);
        } else if self.job.is_none() && self.event_is_due(now) {
            self.event_at = now.after_nanos(EVENT_NANOS);
            self.set_job(Job::Event);
        }
    }

    fn finish(&mut self, result: Result<Output, UfsError>, now: Instant) {
        self.core.peer.channel.script.turn_page();
        match self.job.take() {
            Some(Job::BringUp(_))
                if result.as_ref().is_err_and(|error| self.fall_back(*error, now)) =>
            {
                self.set_job(Job::BringUp(BringUp::default()));
            }
            Some(Job::BringUp(_)) => {
                self.others.iter_mut().for_each(|lane| lane.take_bounds());
                self.look_at = self.next_look(now);
                self.state = if result.is_ok() { State::Up } else { State::Down };
                self.result = Some(result);
            }
            Some(Job::Recovery(_)) => {
                self.state = if result.is_ok() { State::Up } else { State::Gone };
                if core::mem::take(&mut self.asked) {
                    self.result = Some(result);
                }
            }
            Some(Job::Operation(operation)) => {
                if operation == Operation::Shutdown && result.is_ok() {
                    self.state = State::Down;
                }
                self.result = Some(result);
            }
            Some(Job::Event) => self.core.shared().rearm_event(),
            // A failed wake-up asks for a reset itself.
            Some(Job::Wake) | None => {}
        }
        self.lane.wake(now);
        self.look_for_trouble(now);
    }
}

impl<M: Machine> Drop for Host<M> {
    /// Stops the controller's DMA before the memory goes. Nothing is flushed: that is
    /// [`Operation::Shutdown`]. Every port is gone.
    fn drop(&mut self) {
        if self.core.power.board.clocks_on() {
            self.core.switch_off();
            self.core.shared().orders.publish(Order::PAUSE | Order::STOP | Order::GONE);
        }
    }
}

impl Job {
    fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<Output> {
        match self {
            Self::BringUp(bring_up) => {
                bring_up.run(core)?;
                core.shared().orders.publish(0);
                Ok(Output::None)
            }
            Self::Operation(operation) => core.operate(operation),
            Self::Event => core.peer.handle_event().map(|()| Output::None),
            Self::Wake => core.power.resume(&mut core.peer).map(|()| Output::None),
            Self::Recovery(recovery) => recovery.run(core).map(|()| Output::None),
        }
    }
}

/// The parts that depend on the shape of the queues.
struct Parts<M: Machine> {
    shared: Arc<Shared>,
    layout: Layout,
    lane: Lane<M>,
    others: Vec<Box<Lane<M>>>,
}

impl<M: Machine> Parts<M> {
    fn new(machine: &M, memory: &DmaRegion, facts: &Facts) -> Result<Self, UfsError> {
        let Shape { lanes, depth, apart, .. } = facts.shape;
        let (lanes, depth) = (usize::from(lanes), usize::from(depth));
        let keys = KeySlots::new(machine, facts.cap);
        let shared = Arc::new(Shared::new(lanes, depth, apart.into(), keys));
        shared.orders.publish(Order::PAUSE | Order::STOP);
        let layout = Layout::new(memory, &facts.options, depth)?;
        let mut all = (0..lanes).map(|n| Lane::new(machine, &shared, &layout, facts, n));
        let lane = all.next().ok_or(UfsError::Options("at least one lane is needed"))?;
        let others = all.map(Box::new).collect();
        Ok(Self { shared, layout, lane, others })
    }
}
