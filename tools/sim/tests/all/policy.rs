//! What the driver does by itself: exception events, WriteBooster, and speed and sleep depending on
//! load.

use flysch_api::command::{Command, Declined, Ended, Port as _, Scsi};
use flysch_api::machine::{Clock, Instant, Machine};
use flysch_models::faults::{Kind, Plan, Trigger};
use flysch_models::ufs::Config;
use flysch_tests::ufs::{Model, buffer, done, machine, read, write};
use flysch_ufs::policy::{BoosterRules, Policy, Rules, Scaling};
use flysch_ufs::{
    Clocks, DevicePower, ErrorKind, Event, Host, LinkLimits, Operation, Phase, Platform,
    PlatformError, Port, QueueMode, SuspendLevel, UfsOptions,
};
use flysch_wire::ufs::query::{AttributeId, CurrentPowerMode, FlagId};
use std::sync::{Arc, Mutex};

const URGENT_BKOPS: u16 = 1 << 2;
const TOO_HIGH_TEMP: u16 = 1 << 3;
const TOO_LOW_TEMP: u16 = 1 << 4;
const FLUSH_NEEDED: u16 = 1 << 5;

const MS: u64 = 1_000_000;

/// A board that records clock requests and events, and whose reset line works.
#[derive(Clone, Debug, Default)]
struct Board {
    clocks: Arc<Mutex<Vec<Clocks>>>,
    happened: Arc<Mutex<Vec<Event>>>,
    resets: Arc<Mutex<u32>>,
}

impl Board {
    fn take(&self) -> Vec<Clocks> {
        std::mem::take(&mut *self.clocks.lock().expect("nobody panicked"))
    }

    /// The events of device and link since the last call.
    fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.happened.lock().expect("nobody panicked"))
    }
}

impl Platform for Board {
    fn notice(&mut self, event: Event, phase: Phase) -> Result<u32, PlatformError> {
        if phase == Phase::After && !matches!(event, Event::Step(_)) {
            self.happened.lock().expect("nobody panicked").push(event);
        }
        Ok(0)
    }

    fn clocks(&mut self, clocks: Clocks) {
        self.clocks.lock().expect("nobody panicked").push(clocks);
    }

    fn device_reset(&mut self, hold: bool) -> bool {
        *self.resets.lock().expect("nobody panicked") += u32::from(hold);
        true
    }
}

/// A port with its host and a policy above both.
struct Stack {
    machine: Model,
    port: Port<Model>,
    policy: Policy,
}

impl Stack {
    fn new(machine: &Model, options: UfsOptions, rules: Rules, board: Board) -> Self {
        let memory = machine.memory().carve(0, 1 << 20);
        let host = Host::new(machine.clone(), memory, options).expect("options that fit");
        let mut host = host.with_platform(Box::new(board));
        host.bring_up(machine).expect("bring-up");
        let port = host.into_ports().remove(0);
        let policy = Policy::new(rules, machine.now());
        Self { machine: machine.clone(), port, policy }
    }

    fn host(&mut self) -> &mut Host<Model> {
        self.port.host_mut().expect("the first port carries it")
    }

    /// Polls both, and waits for either, or until `until`.
    fn turn(&mut self, in_flight: u32, until: Instant) -> Option<Ended> {
        let now = self.machine.now();
        self.policy.load(in_flight, now);
        self.policy.poll(self.port.host_mut().expect("the host"), now);
        if let Some(outcome) = self.port.poll(now) {
            return Some(outcome.ended);
        }
        let next = [self.port.poll_at(), self.policy.poll_at(), Some(until)];
        let next = next.into_iter().flatten().min().expect("there is an end");
        self.machine.wait(Some(next.max(now.after_nanos(1))));
        None
    }

    /// Makes no requests for this long.
    fn rest(&mut self, nanos: u64) {
        let until = self.machine.now().after_nanos(nanos);
        while self.machine.now() < until {
            assert_eq!(self.turn(0, until), None);
        }
    }

    /// Carries out one command; it is resubmitted while the port declines it.
    fn carry_out(&mut self, command: impl Fn() -> Command<Scsi>) {
        let until = self.machine.now().after_nanos(5_000 * MS);
        while let Err(Declined { .. }) = self.port.start(command(), self.machine.now()) {
            assert!(self.machine.now() < until, "the port takes nothing");
            assert_eq!(self.turn(1, until), None);
        }
        self.port.ring(self.machine.now());
        loop {
            match self.turn(1, until) {
                Some(ended) => break assert_eq!(ended, Ended::Good),
                None => assert!(self.machine.now() < until, "the command does not end"),
            }
        }
    }

    /// Waits until the policy has nothing in progress, so that something else can be requested.
    fn quiet(&mut self) -> (Model, &mut Host<Model>) {
        let until = self.machine.now().after_nanos(5_000 * MS);
        while self.policy.is_busy() {
            assert_eq!(self.turn(1, until), None);
        }
        (self.machine.clone(), self.port.host_mut().expect("the host"))
    }

    /// Does I/O for this long.
    fn work(&mut self, nanos: u64) {
        let until = self.machine.now().after_nanos(nanos);
        while self.machine.now() < until {
            let data = buffer(&self.machine, 0, 4096);
            self.carry_out(|| read(7, data));
        }
    }

    fn power_mode(&self) -> CurrentPowerMode {
        self.machine.with_model(|model| model.power_mode())
    }

    /// Whether link and device are both suspended.
    fn is_asleep(&mut self) -> bool {
        self.host().link().hibernating && self.power_mode() == CurrentPowerMode::Sleep
    }

    /// Takes the unit attention after start-up.
    fn settle(&mut self) {
        let data = buffer(&self.machine, 0, 4096);
        done(&mut self.port, &self.machine, read(7, data));
    }
}

#[test]
fn the_link_is_fast_only_while_there_is_io_and_sleeps_without() {
    let (machine, board) = (machine(Config::default()), Board::default());
    let slow = LinkLimits { gear: 1, ..LinkLimits::default() };
    let scaling = Scaling { slow, slow_after_us: 50_000, ..Scaling::default() };
    let rules =
        Rules { scaling: Some(scaling), suspend_after_us: Some(400_000), ..Rules::default() };
    let mut stack = Stack::new(&machine, UfsOptions::default(), rules, board.clone());
    stack.settle();
    let fast = stack.host().link();
    board.take();
    stack.work(100 * MS);
    assert_eq!((stack.host().link(), board.take()), (fast, vec![]), "busy: nothing changes");
    stack.rest(40 * MS);
    assert_eq!(stack.host().link(), fast, "not yet");
    stack.rest(100 * MS);
    assert_eq!((stack.host().link().gear, board.take()), (1, vec![Clocks::Slow]), "HS-G1");
    stack.work(20 * MS);
    assert_eq!((stack.host().link(), board.take()), (fast, vec![Clocks::Fast]));
    stack.rest(500 * MS);
    assert!(stack.host().link().hibernating);
    assert_eq!(stack.power_mode(), CurrentPowerMode::Active);
    assert_eq!(board.take(), [Clocks::Slow, Clocks::Off]);
    stack.rest(10_000 * MS);
    assert!(stack.host().link().hibernating, "it stays asleep");
    assert_eq!(stack.policy.poll_at(), None, "nothing is to be done");
    stack.work(20 * MS);
    assert_eq!(stack.host().link(), fast);
    assert_eq!(board.take(), [Clocks::On, Clocks::Fast]);
}

/// A stack whose device sleeps after 100 ms without I/O, and is asleep now.
fn sleeper(machine: &Model, queue: QueueMode, board: Board) -> Stack {
    let rules = Rules {
        suspend_after_us: Some(100_000),
        suspend_level: SuspendLevel::Sleep,
        ..Rules::default()
    };
    let options = UfsOptions { queue, ..UfsOptions::default() };
    let mut stack = Stack::new(machine, options, rules, board);
    stack.settle();
    stack
}

#[test]
fn the_device_sleeps_with_the_link_and_wakes_for_a_command() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        let (machine, board) = (machine(Config::default()), Board::default());
        let mut stack = sleeper(&machine, queue, board.clone());
        stack.rest(50 * MS);
        assert_eq!(stack.power_mode(), CurrentPowerMode::Active, "not yet");
        board.take_events();
        stack.rest(100 * MS);
        assert!(stack.is_asleep());
        // VCC can be cut at the first of these.
        let asleep = [Event::DevicePower(DevicePower::Sleep), Event::HibernateEnter];
        assert_eq!(
            (board.take_events(), board.take().last()),
            (asleep.to_vec(), Some(&Clocks::Off))
        );
        stack.rest(10_000 * MS);
        assert!(stack.is_asleep() && stack.policy.poll_at().is_none(), "it stays asleep");
        // Neither command finds a device that is not ready.
        for _ in 0..2 {
            let data = buffer(&machine, 0, 4096);
            stack.carry_out(|| read(7, data));
        }
        let awake = [Event::HibernateExit, Event::DevicePower(DevicePower::Active)];
        assert_eq!((board.take_events(), board.take()), (awake.to_vec(), vec![Clocks::On]));
        // An operation wakes both as well.
        stack.rest(150 * MS);
        assert!(stack.is_asleep());
        let (clock, host) = stack.quiet();
        let mode = host.read_attribute(&clock, AttributeId::CurrentPowerMode);
        assert_eq!(mode, Ok(CurrentPowerMode::Active.into_bits().into()));
        assert_eq!(stack.host().errors().history().count(), 0);
    }
}

#[test]
fn a_command_that_comes_while_the_device_falls_asleep_is_served() {
    // Falling asleep takes a little more than 8 ms.
    let mut woken = 0;
    for step in 0..40 {
        let (machine, board) = (machine(Config::default()), Board::default());
        let mut stack = sleeper(&machine, QueueMode::Mcq, board.clone());
        stack.rest(98 * MS + step * MS / 4);
        let data = buffer(&machine, 0, 4096);
        stack.carry_out(|| read(7, data));
        assert_eq!(stack.power_mode(), CurrentPowerMode::Active);
        assert!(!stack.host().link().hibernating);
        woken += u32::from(board.take_events().contains(&Event::HibernateExit));
        assert_eq!(stack.host().errors().history().count(), 0);
    }
    assert!((1..40).contains(&woken), "{woken} of 40 came too late to stop it");
}

/// One command, resubmitted until it succeeds: a fault may have hit it.
fn served(stack: &mut Stack) {
    let limit = stack.machine.now().after_nanos(120_000 * MS);
    let data = buffer(&stack.machine, 0, 4096);
    loop {
        let deadline = stack.machine.now().after_nanos(200 * MS);
        let command = Command { deadline, ..read(7, data) };
        let mut ended = None;
        if stack.port.start(command, stack.machine.now()).is_ok() {
            stack.port.ring(stack.machine.now());
            while ended.is_none() {
                ended = stack.turn(1, limit);
                assert!(stack.machine.now() < limit, "the command does not end");
            }
        } else {
            assert_eq!(stack.turn(1, limit), None);
        }
        if ended == Some(Ended::Good) {
            return;
        }
        assert!(stack.machine.now() < limit, "nothing ends well");
    }
}

#[test]
fn whatever_fails_on_the_way_to_sleep_and_back_commands_go_on() {
    const KINDS: [Kind; 6] = [
        Kind::Transient,
        Kind::Timeout,
        Kind::BadOcs,
        Kind::LinkLoss,
        Kind::Fatal,
        Kind::PowerLoss,
    ];
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        for (kind, nth) in KINDS.into_iter().flat_map(|kind| (1..=4).map(move |n| (kind, n))) {
            let config = Config { seed: nth, volatile_cache: true, ..Config::default() };
            let machine = machine(config);
            let mut stack = sleeper(&machine, queue, Board::default());
            let plan = Plan::none().with(kind, Trigger::Nth(nth));
            machine.with_model(|model| model.arm_faults(plan));
            for _ in 0..3 {
                // Enough time for a START STOP UNIT that is not answered, down and up.
                stack.rest(40_000 * MS);
                served(&mut stack);
            }
            let fired = machine.with_model(|model| model.faults().count(kind));
            assert_eq!(fired, 1, "{kind} {nth}");
            assert_eq!(stack.power_mode(), CurrentPowerMode::Active, "{kind} {nth}");
            assert!(!stack.host().link().hibernating, "{kind} {nth}");
            // And it sleeps again.
            stack.rest(1_000 * MS);
            assert!(stack.is_asleep(), "{kind} {nth}");
        }
    }
}

#[test]
fn a_link_lost_while_the_device_sleeps_comes_back_with_an_active_device() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        let machine = machine(Config::default());
        let mut stack = sleeper(&machine, queue, Board::default());
        stack.rest(200 * MS);
        assert!(stack.is_asleep());
        machine.with_model(|model| model.lose_link());
        stack.rest(1_000 * MS);
        assert_eq!(stack.power_mode(), CurrentPowerMode::Active);
        assert!(stack.host().errors().count(ErrorKind::HostReset) >= 1);
        served(&mut stack);
    }
}

#[test]
fn a_device_with_work_of_its_own_stays_active_while_the_link_hibernates() {
    let suspend = Operation::Suspend(SuspendLevel::Sleep);
    let needs = |model: &Model| model.with_model(|model| model.owe_background_work(20 << 30));
    let mut stack = with_events(URGENT_BKOPS, needs);
    let machine = stack.machine.clone();
    stack.host().run(&machine, suspend.clone()).expect("suspended");
    assert!(stack.host().link().hibernating);
    assert_eq!(stack.power_mode(), CurrentPowerMode::Active);
    stack.rest(60_000 * MS);
    stack.host().run(&machine, Operation::BackgroundOperations).expect("asked");
    stack.host().run(&machine, suspend.clone()).expect("suspended");
    assert!(stack.is_asleep());
    // A buffer being flushed.
    let mut stack = with_events(FLUSH_NEEDED, |_| ());
    let machine = stack.machine.clone();
    let data = buffer(&machine, 0, 256 << 10);
    for n in 0..100 {
        stack.carry_out(|| write(n * 64, data));
    }
    stack.host().run(&machine, Operation::WriteBoosterFlushInHibernate(true)).expect("told");
    stack.host().run(&machine, Operation::WriteBoosterFlush(true)).expect("begun");
    stack.host().run(&machine, suspend.clone()).expect("suspended");
    assert_eq!(stack.power_mode(), CurrentPowerMode::Active);
    stack.rest(2_000 * MS);
    stack.host().run(&machine, suspend.clone()).expect("deeper");
    assert!(stack.is_asleep());
    // What is suspended more deeply stays so.
    stack.host().run(&machine, Operation::Hibernate(true)).expect("nothing to do");
    assert!(stack.is_asleep());
}

#[test]
fn the_write_booster_buffer_is_flushed_when_low_on_idle_and_in_hibernate() {
    const UNIT: u32 = 256 << 10;
    let config = Config { write_booster: 64 << 20, ..Config::default() };
    let machine = machine(config);
    let booster = BoosterRules { look_every_us: 2_000, ..BoosterRules::default() };
    let rules = Rules { write_booster: Some(booster), ..Rules::default() };
    let options = UfsOptions { write_booster: Some(true), ..UfsOptions::default() };
    let mut stack = Stack::new(&machine, options, rules, Board::default());
    stack.settle();
    let data = buffer(&machine, 0, UNIT);
    // Half of it: no reason yet.
    for n in 0..100 {
        stack.carry_out(|| write(n * 64, data));
    }
    let status = *stack.policy.write_booster().expect("it was looked at");
    assert!(status.available_percent > 40 && !status.flushing, "{status:?}");
    assert!(status.flush_in_hibernate, "told at the beginning");
    let flushes = |stack: &mut Stack| {
        let (machine, host) = stack.quiet();
        let flag = host.read_flag(&machine, FlagId::WriteBoosterBufferFlushEn);
        flag.expect("a flag")
    };
    let mut written = 100;
    while !flushes(&mut stack) {
        stack.carry_out(|| write(written * 64, data));
        written += 1;
        assert!(written < 250, "the buffer is full and nobody flushes");
    }
    assert!(written > 125, "{written} writes of 256 KiB into 64 MiB");
    let left = |stack: &mut Stack| {
        let (machine, host) = stack.quiet();
        host.write_booster(&machine).expect("status").available_percent
    };
    stack.rest(2_000 * MS);
    assert_eq!(left(&mut stack), 100);
    // Under load again the unnecessary flush ends; at idle the next one begins.
    for n in 0..40 {
        stack.carry_out(|| write(n * 64, data));
    }
    assert!(!flushes(&mut stack) && left(&mut stack) < 100);
    stack.rest(1_000 * MS);
    assert_eq!(left(&mut stack), 100, "flushed on idle");
}

#[test]
fn the_write_booster_buffer_is_resized_as_the_device_recommends_on_idle() {
    for follow_hint in [true, false] {
        let machine = machine(Config { write_booster: 64 << 20, ..Config::default() });
        let booster = BoosterRules { follow_hint, ..BoosterRules::default() };
        let rules = Rules { write_booster: Some(booster), ..Rules::default() };
        let options = UfsOptions { write_booster: Some(true), ..UfsOptions::default() };
        let mut stack = Stack::new(&machine, options, rules, Board::default());
        stack.settle();
        let size = |stack: &mut Stack| {
            let (machine, host) = stack.quiet();
            host.write_booster(&machine).expect("status").size_units
        };
        machine.with_model(|model| model.want_space(true));
        stack.work(20 * MS);
        assert_eq!(size(&mut stack), 16, "not under load");
        // Once in each pause.
        for smaller in [14, 12] {
            stack.rest(1_000 * MS);
            assert_eq!(size(&mut stack), if follow_hint { smaller } else { 16 });
            stack.work(20 * MS);
        }
        machine.with_model(|model| model.want_space(false));
        stack.rest(1_000 * MS);
        assert_eq!(size(&mut stack), if follow_hint { 12 } else { 16 });
    }
}

/// A host that is notified of these events, after `make` has changed the model.
fn with_events(events: u16, make: impl FnOnce(&Model)) -> Stack {
    let machine = machine(Config { write_booster: 64 << 20, ..Config::default() });
    let options =
        UfsOptions { exception_events: events, write_booster: Some(true), ..UfsOptions::default() };
    let mut stack = Stack::new(&machine, options, Rules::default(), Board::default());
    stack.settle();
    make(&machine);
    stack.work(20 * MS);
    stack
}

#[test]
fn urgent_background_operations_are_allowed_until_they_are_done() {
    let needs = |model: &Model| model.with_model(|model| model.owe_background_work(20 << 30));
    let mut stack = with_events(URGENT_BKOPS, needs);
    let machine = stack.machine.clone();
    let host = stack.host();
    assert_eq!(host.take_events(), URGENT_BKOPS, "the caller hears of it, too");
    assert!(host.device().background_operations);
    assert_eq!(host.read_flag(&machine, FlagId::BackgroundOpsEn), Ok(true));
    // 4 GiB beyond the important level take 22 s at the model's rate.
    stack.rest(60_000 * MS);
    stack.host().run(&machine, Operation::BackgroundOperations).expect("asked");
    let host = stack.host();
    assert_eq!(host.read_flag(&machine, FlagId::BackgroundOpsEn), Ok(false));
    assert!(!host.device().background_operations);
    let status = host.read_attribute(&machine, AttributeId::BackgroundOpStatus);
    assert!(status.is_ok_and(|status| status < 2), "{status:?}");
}

#[test]
fn heat_and_cold_are_told_with_the_temperature() {
    for (celsius, event) in [(100, TOO_HIGH_TEMP), (-40, TOO_LOW_TEMP)] {
        let heat = |model: &Model| model.with_model(|model| model.set_temperature(celsius));
        let mut stack = with_events(TOO_HIGH_TEMP | TOO_LOW_TEMP, heat);
        assert_eq!(stack.host().take_events(), event);
        assert_eq!(stack.host().device().temperature, Some(celsius));
    }
}

#[test]
fn a_full_write_booster_buffer_that_says_so_is_flushed() {
    let mut stack = with_events(FLUSH_NEEDED, |_| ());
    let data = buffer(&stack.machine, 0, 256 << 10);
    for n in 0..240 {
        stack.carry_out(|| write(n * 64, data));
    }
    stack.work(1_500 * MS);
    assert_eq!(stack.host().take_events(), FLUSH_NEEDED);
    let machine = stack.machine.clone();
    assert_eq!(stack.host().read_flag(&machine, FlagId::WriteBoosterBufferFlushEn), Ok(true));
}

#[test]
fn only_a_reset_leads_out_of_deep_sleep() {
    let (machine, board) = (machine(Config::default()), Board::default());
    let mut stack = Stack::new(&machine, UfsOptions::default(), Rules::default(), board.clone());
    stack.settle();
    stack.host().set_power(&machine, DevicePower::DeepSleep).expect("asleep");
    stack.host().set_power(&machine, DevicePower::Active).expect_err("not by a command");
    let resets = *board.resets.lock().expect("nobody panicked");
    machine.with_model(|model| model.reset_hardware());
    stack.host().bring_up(&machine).expect("up again");
    assert!(*board.resets.lock().expect("nobody panicked") > resets);
    stack.settle();
    stack.work(MS);
}
