//! A port in use: its commands, its control path and its obedience to the host's orders.

use crate::attached::{AtaFacts, Attached};
use crate::channel::{Channel, HbaFacts};
use crate::error::AhciError;
use crate::hba_resets::HbaResets;
use crate::history::ErrorLog;
use crate::init::{Core, Step};
use crate::lane::Lane;
use crate::layout::PortMemory;
use crate::link::Link;
use crate::multiplier;
use crate::operation::{Operation, Output};
use crate::options::AhciOptions;
use crate::recover::{Recovered, Recovery};
use crate::shared::Shared;
use alloc::boxed::Box;
use alloc::sync::Arc;
use flysch_api::command::{Ata, Command, Declined, Ended, NotStarted, Outcome};
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_script::{Player, Stop};
use flysch_wire::ata::registers::{interrupt, port_base};

/// The state of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Nothing is under way.
    Idle,
    /// Poll again at `poll_at`.
    Busy,
    /// The operation begun last has ended.
    Done(Result<Output, AhciError>),
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not brought up, or closed by a shutdown.
    Down,
    /// There is a device, and it works.
    Up,
    /// There is no device; a new one will be brought up.
    Empty,
    /// Being brought up or recovered.
    Recovering,
    /// Permanently out of order.
    Gone,
}

#[derive(Debug)]
enum Job {
    Operation(Operation),
    Recovery(Box<Recovery>),
}

fn recovery(recovery: Recovery) -> Job {
    Job::Recovery(Box::new(recovery))
}

/// A port in use.
#[derive(Debug)]
pub(crate) struct Unit<M: Machine> {
    pub(crate) core: Core<M>,
    shared: Arc<Shared>,
    index: usize,
    job: Option<Job>,
    pub(crate) state: State,
    result: Option<Result<Output, AhciError>>,
    /// Why bring-up failed, if it did.
    pub(crate) failure: Option<AhciError>,
    /// Whether the caller asked for the recovery under way.
    asked: bool,
    /// The port's interrupts are off because its control path is working.
    is_silent: bool,
    /// The last order obeyed; [`Order::NONE`] while parked.
    obeyed: Order,
    /// When the port wants to be polled: for the job under way, or to check for changes.
    job_at: Instant,
}

/// How often a port without work checks whether a device came or went, nanoseconds.
const LOOK_NANOS: u64 = 1_000_000_000;
/// How often an operation checks whether the device is idle, nanoseconds.
const DRAIN_NANOS: u64 = 100_000;

impl<M: Machine> Unit<M> {
    pub(crate) fn new(
        machine: &M,
        shared: &Arc<Shared>,
        (index, port): (usize, u8),
        memory: PortMemory,
        (options, hba): (&AhciOptions, HbaFacts),
    ) -> Self {
        // Where the HBA keeps devices behind a multiplier apart, the last slot is the control
        // path's.
        let kept = u8::from(hba.cap.fbss() && hba.cap.ncs() > 0);
        let depth = options.depth.min(hba.cap.ncs() + 1 - kept);
        let lane = Lane::new(machine, port, &memory, options, depth);
        let channel = Channel::new(machine, shared, port_base(port), memory, (options, hba));
        Self {
            core: Core {
                channel,
                lane,
                attached: Attached::new(),
                link: Link::new(port),
                hba_resets: HbaResets::default(),
            },
            shared: shared.clone(),
            index,
            job: None,
            state: State::Down,
            result: None,
            failure: None,
            asked: false,
            is_silent: false,
            obeyed: Order::NONE,
            job_at: Instant::NEVER,
        }
    }

    pub(crate) fn state(&self) -> State {
        match self.job {
            Some(Job::Recovery(_)) => State::Recovering,
            _ => self.state,
        }
    }

    pub(crate) fn step(&self) -> Option<&'static Step> {
        match &self.job {
            Some(Job::Recovery(recovery)) => recovery.step(),
            _ => None,
        }
    }

    pub(crate) fn device(&self, unit: u8) -> Option<&AtaFacts> {
        self.core.attached.device(unit)
    }

    pub(crate) fn errors(&self) -> &ErrorLog {
        &self.core.channel.errors
    }

    pub(crate) fn begin(&mut self, operation: Operation) -> Result<(), AhciError> {
        if self.job.is_some() {
            return Err(AhciError::Busy);
        }
        match self.state {
            State::Gone => return Err(AhciError::Gone),
            State::Down if operation == Operation::Reset && self.obeyed_runs() => {}
            State::Down | State::Recovering => return Err(AhciError::NotUp),
            State::Empty if operation != Operation::Reset => return Err(AhciError::NoDevice),
            _ => {}
        }
        if self.index != 0 && matches!(operation, Operation::Leds(_)) {
            return Err(AhciError::Unsupported("LED messages from a port that is not the first"));
        }
        if self.core.attached.multiplier.is_some() && matches!(operation, Operation::LinkPower(_)) {
            return Err(AhciError::Unsupported("a link with a port multiplier that sleeps"));
        }
        let job = match operation {
            Operation::Reset => recovery(Recovery::reset()),
            Operation::LinkPower(power) => {
                self.core.channel.options.link_power = power;
                recovery(Recovery::reset())
            }
            operation => Job::Operation(operation),
        };
        self.asked = true;
        self.set_job(job);
        Ok(())
    }

    fn obeyed_runs(&self) -> bool {
        self.shared.orders.order_now().runs()
    }

    fn set_job(&mut self, job: Job) {
        self.core.channel.script.abandon();
        match job {
            Job::Operation(_) => self.core.lane.drain(),
            _ => self.core.lane.close(),
        }
        self.job = Some(job);
        self.job_at = Instant::START;
    }

    /// Whether the port has no job and has been brought up as far as possible.
    pub(crate) fn is_settled(&self) -> bool {
        self.job.is_none() && matches!(self.state, State::Up | State::Empty | State::Gone)
    }

    #[inline(always)]
    pub(crate) fn start(&mut self, command: Command<Ata>, now: Instant) -> Result<(), Declined> {
        match self.core.lane.start(command, now) {
            Ok(()) => Ok(()),
            Err(declined) => self.declined(declined, now),
        }
    }

    /// Handles a command that was declined, perhaps only because the port was parked.
    #[cold]
    fn declined(&mut self, declined: Declined, now: Instant) -> Result<(), Declined> {
        let Declined { why, token } = declined;
        let why = match (why, self.state()) {
            (NotStarted::Full, State::Gone | State::Empty | State::Down) => NotStarted::Gone,
            (why, _) => why,
        };
        self.rest(now);
        Err(Declined { why, token })
    }

    /// Whether the port may work; first carries out a new order of the host.
    #[inline]
    fn follows(&mut self, now: Instant) -> bool {
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        }
        self.obeyed.runs()
    }

    #[inline]
    pub(crate) fn ring(&mut self, now: Instant) {
        if self.follows(now) {
            self.core.lane.ring(now);
        }
        if now >= self.job_at {
            self.drive(now);
        }
    }

    #[inline(always)]
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Outcome> {
        if let outcome @ Some(_) = self.core.lane.take_done(now) {
            self.rest(now);
            return outcome;
        }
        self.found_nothing(now)
    }

    /// Does everything else when no command has ended by itself.
    #[inline(never)]
    fn found_nothing(&mut self, now: Instant) -> Option<Outcome> {
        if self.core.lane.in_flight != 0 || self.obeyed != Order::NONE || now >= self.job_at {
            self.follows(now);
            if !self.core.lane.has_ended() {
                self.look_around(now);
                self.drive(now);
            }
        }
        let outcome = self.core.lane.take_ended();
        self.rest(now);
        outcome
    }

    /// Takes an outcome that an order of the host has just produced.
    #[inline]
    pub(crate) fn take_ended(&mut self) -> Option<Outcome> {
        self.core.lane.has_ended().then(|| self.core.lane.take_ended()).flatten()
    }

    /// Parks a port that owes no outcome and has nothing to do, so that the host need not wait for
    /// it.
    #[inline]
    fn rest(&mut self, _: Instant) {
        if self.core.lane.in_flight == 0 && self.index != 0 && self.obeyed != Order::NONE {
            self.park();
        }
    }

    #[cold]
    fn park(&mut self) {
        if self.job.is_none() {
            self.obeyed = Order::NONE;
            self.shared.orders.park(self.index);
        }
    }

    /// Unparks and obeys whatever the host has ordered meanwhile.
    #[cold]
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.obeyed == Order::NONE {
            self.shared.orders.unpark(self.index);
        }
        let order = self.shared.orders.order_now();
        let was = core::mem::replace(&mut self.obeyed, order);
        if was == order {
            return;
        }
        if order.has(Order::GONE) {
            self.leave(Ended::Gone, State::Gone, now);
        } else if order.has(Order::STOP) {
            // A port that was up comes up again with the HBA.
            let state = if self.state == State::Down { State::Down } else { State::Recovering };
            self.leave(Ended::Reset, state, now);
        } else if !order.runs() {
            self.core.lane.close();
        } else if self.must_come_up() || self.shared.orders.is_renewed(self.index) {
            // A port that was parked during the reset of the HBA learns of it only here.
            self.shared.orders.know(self.index);
            if self.core.lane.in_flight != 0 {
                self.core.lane.end_all(Ended::Reset, now);
            }
            self.set_job(recovery(Recovery::bring_up()));
        } else if self.job.is_none() && self.state == State::Up {
            self.core.lane.open(now);
        }
        self.shared.orders.obey(self.index, order);
    }

    /// Whether the order to run means that the port must be brought up.
    fn must_come_up(&self) -> bool {
        self.job.is_none() && matches!(self.state, State::Down | State::Recovering)
    }

    /// Ends everything: the HBA has stopped.
    fn leave(&mut self, cause: Ended, state: State, now: Instant) {
        self.core.lane.close();
        self.core.lane.end_all(cause, now);
        self.core.channel.script.abandon();
        if self.job.take().is_some() && core::mem::take(&mut self.asked) {
            let error = if state == State::Gone { AhciError::Gone } else { AhciError::Recovered };
            self.result = Some(Err(error));
        }
        self.state = state;
        self.job_at = Instant::NEVER;
    }

    /// Checks for errors, overdue commands, and devices that come or go.
    fn look_around(&mut self, now: Instant) {
        let works = matches!(self.job, None | Some(Job::Operation(_)));
        if !works || !self.obeyed.runs() {
            return;
        }
        let may_ask = self.state == State::Up && self.job.is_none();
        match self.state {
            State::Up if !self.core.lane.is_idle() => {
                let found = match now >= self.core.lane.watch_at {
                    true => self.core.lane.watch(now),
                    false => crate::lane::Found {
                        interrupts: self.core.lane.interrupts_now(),
                        overdue: false,
                    },
                };
                let wrong = interrupt::ERRORS | self.core.link.changes;
                if found.interrupts & wrong != 0 || found.overdue {
                    self.recover(found.overdue);
                } else if may_ask && self.is_notified() {
                    self.set_job(recovery(Recovery::notified()));
                }
            }
            State::Up | State::Empty if self.job.is_none() => {
                let interrupts = self.core.lane.interrupts_now();
                let came = self.state == State::Empty && self.core.channel.is_present();
                if came || interrupts & (interrupt::ERRORS | self.core.link.changes) != 0 {
                    self.recover(false);
                } else if may_ask && self.is_notified() {
                    self.set_job(recovery(Recovery::notified()));
                }
            }
            _ => {}
        }
    }

    /// Whether a multiplier has asked for attention.
    fn is_notified(&self) -> bool {
        let Core { channel, attached, .. } = &self.core;
        let hears = attached.multiplier.as_ref().is_some_and(|multiplier| multiplier.notifies);
        hears && multiplier::is_notified(channel)
    }

    fn recover(&mut self, overdue: bool) {
        if matches!(self.job, Some(Job::Operation(_))) && core::mem::take(&mut self.asked) {
            self.result = Some(Err(AhciError::Recovered));
        }
        self.set_job(recovery(Recovery::new(overdue)));
    }

    /// Advances the job under way.
    #[cold]
    pub(crate) fn drive(&mut self, now: Instant) {
        self.follows(now);
        while let Some(job) = &mut self.job {
            if !self.obeyed.runs() {
                self.job_at = Instant::NEVER;
                return;
            }
            if matches!(job, Job::Operation(_)) && !self.core.lane.is_idle() {
                self.job_at = now.after_nanos(DRAIN_NANOS);
                return;
            }
            if !core::mem::replace(&mut self.is_silent, true) {
                self.core.link.silence(&self.core.channel);
            }
            if let Some(at) =
                self.core.channel.advance(now, |channel, action| channel.attempt(action))
            {
                self.job_at = at;
                return;
            }
            let run = match job {
                Job::Recovery(recovery) => {
                    recovery.run(&mut self.core).map(|recovered| (recovered, Output::None))
                }
                Job::Operation(operation) => {
                    self.core.operate(operation).map(|output| (Recovered::Up, output))
                }
            };
            match run {
                Err(Stop::Pending) => {}
                Err(Stop::Failed(error)) => self.failed(error, now),
                Ok((recovered, output)) => self.done(recovered, output, now),
            }
        }
        self.job_at = match self.state {
            State::Up | State::Empty => now.after_nanos(LOOK_NANOS),
            // Until the host has reset the HBA.
            State::Recovering => now.after_nanos(10 * DRAIN_NANOS),
            _ => Instant::NEVER,
        };
    }

    fn done(&mut self, recovered: Recovered, output: Output, now: Instant) {
        let job = self.job.take();
        if !matches!(recovered, Recovered::Hba) {
            self.core.channel.script.turn_page();
        }
        let shut = matches!(job, Some(Job::Operation(Operation::Shutdown)));
        match recovered {
            Recovered::Up if shut => {
                self.core.lane.close();
                self.state = State::Down;
            }
            Recovered::Up => {
                self.failure = None;
                self.state = State::Up;
                self.listen();
                self.core.lane.open(now);
            }
            Recovered::Empty => {
                self.failure = None;
                self.core.attached.clear(&mut self.core.lane);
                self.state = State::Empty;
                self.core.link.changes = interrupt::CHANGES;
                self.core.channel.forget_changes();
                self.listen();
            }
            // Until the host has reset the HBA.
            Recovered::Hba => self.state = State::Recovering,
        }
        if core::mem::take(&mut self.asked) {
            self.result = Some(match recovered {
                Recovered::Up => Ok(output),
                Recovered::Empty => Err(AhciError::NoDevice),
                Recovered::Hba => Err(AhciError::Recovered),
            });
        }
    }

    pub(crate) fn silence(&mut self) {
        self.is_silent = true;
        self.core.link.silence(&self.core.channel);
    }

    fn listen(&mut self) {
        self.is_silent = false;
        self.core.link.enable_interrupts(&self.core.channel, &self.core.attached);
    }

    fn failed(&mut self, error: AhciError, now: Instant) {
        self.core.channel.script.abandon();
        let job = self.job.take();
        if core::mem::take(&mut self.asked) {
            self.result = Some(Err(error));
        }
        match job {
            Some(Job::Operation(_)) => {
                let refused = matches!(error, AhciError::Unsupported(_) | AhciError::NoDevice);
                if refused {
                    self.listen();
                    self.core.lane.open(now);
                } else {
                    self.set_job(recovery(Recovery::new(true)));
                }
            }
            _ => {
                self.failure = Some(error);
                self.core.lane.close();
                self.core.channel.give_up();
                let cause = Ended::Gone;
                self.core.lane.end_all(cause, now);
                self.state = State::Gone;
            }
        }
    }

    pub(crate) fn take_progress(&mut self) -> Progress {
        match self.result.take() {
            Some(result) => Progress::Done(result),
            None if self.job.is_some() => Progress::Busy,
            None => Progress::Idle,
        }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        if self.core.lane.has_ended() {
            return Some(Instant::START);
        }
        let lane = match self.job {
            None | Some(Job::Operation(_)) if self.state == State::Up => self.core.lane.poll_at(),
            _ => None,
        };
        // A port that owes nothing need not be polled: a device that comes or goes interrupts. The
        // first port has the host to look after anyway.
        let idle = self.index != 0 && self.job.is_none() && self.core.lane.in_flight == 0;
        let job_at = if idle { Instant::NEVER } else { self.job_at };
        let at = lane.unwrap_or(Instant::NEVER).min(job_at);
        (at != Instant::NEVER).then_some(at)
    }
}

impl<M: Machine> Drop for Unit<M> {
    /// Stops the port before its memory is freed; the host need not wait for it any more.
    fn drop(&mut self) {
        if self.state != State::Down || self.job.is_some() {
            self.core.channel.give_up();
        }
        self.shared.orders.park(self.index);
    }
}
