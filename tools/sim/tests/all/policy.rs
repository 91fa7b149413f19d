//! What the driver does by itself: exception events, WriteBooster, speed and sleep by load.

use flysch_api::command::{Command, Declined, Ended, Port as _, Scsi};
use flysch_api::machine::{Clock, Instant, Machine};
use flysch_models::ufs::Config;
use flysch_tests::ufs::{Model, buffer, done, machine, read, write};
use flysch_ufs::policy::{BoosterRules, Policy, Rules, Scaling};
use flysch_ufs::{Clocks, DevicePower, Host, LinkLimits, Operation, Options, Platform, Port};
use flysch_wire::ufs::query::{AttributeId, FlagId};
use std::sync::{Arc, Mutex};

const URGENT_BKOPS: u16 = 1 << 2;
const TOO_HIGH_TEMP: u16 = 1 << 3;
const TOO_LOW_TEMP: u16 = 1 << 4;
const FLUSH_NEEDED: u16 = 1 << 5;

const MS: u64 = 1_000_000;

/// A board that notes what its clocks shall do and whose reset line works.
#[derive(Clone, Debug, Default)]
struct Board {
    clocks: Arc<Mutex<Vec<Clocks>>>,
    resets: Arc<Mutex<u32>>,
}

impl Board {
    fn take(&self) -> Vec<Clocks> {
        std::mem::take(&mut *self.clocks.lock().expect("nobody panicked"))
    }
}

impl Platform for Board {
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
    fn new(machine: &Model, options: Options, rules: Rules, board: Board) -> Self {
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

    /// Polls both, and waits for either, or for `until`.
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

    /// Nothing is asked for, for so long.
    fn rest(&mut self, nanos: u64) {
        let until = self.machine.now().after_nanos(nanos);
        while self.machine.now() < until {
            assert_eq!(self.turn(0, until), None);
        }
    }

    /// One command to its end; it is put again and again while the port declines it.
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

    /// Until the policy has nothing under way, so that something else can be asked.
    fn quiet(&mut self) -> (Model, &mut Host<Model>) {
        let until = self.machine.now().after_nanos(5_000 * MS);
        while self.policy.is_busy() {
            assert_eq!(self.turn(1, until), None);
        }
        (self.machine.clone(), self.port.host_mut().expect("the host"))
    }

    /// I/O for so long.
    fn work(&mut self, nanos: u64) {
        let until = self.machine.now().after_nanos(nanos);
        while self.machine.now() < until {
            let data = buffer(&self.machine, 0, 4096);
            self.carry_out(|| read(7, data));
        }
    }

    /// Takes the unit attention of the start.
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
    let mut stack = Stack::new(&machine, Options::default(), rules, board.clone());
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
    assert_eq!(board.take(), [Clocks::Slow, Clocks::Off]);
    stack.rest(10_000 * MS);
    assert!(stack.host().link().hibernating, "it stays asleep");
    assert_eq!(stack.policy.poll_at(), None, "nothing is to be done");
    stack.work(20 * MS);
    assert_eq!(stack.host().link(), fast);
    assert_eq!(board.take(), [Clocks::On, Clocks::Fast]);
}

#[test]
fn the_write_booster_buffer_is_flushed_when_low_on_idle_and_in_hibernate() {
    const UNIT: u32 = 256 << 10;
    let config = Config { write_booster: 64 << 20, ..Config::default() };
    let machine = machine(config);
    let booster = BoosterRules { look_every_us: 2_000, ..BoosterRules::default() };
    let rules = Rules { write_booster: Some(booster), ..Rules::default() };
    let options = Options { write_booster: Some(true), ..Options::default() };
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
    // Under load again the flush that is not needed ends; on idle the next begins.
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
        let options = Options { write_booster: Some(true), ..Options::default() };
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

/// A host whose events of these kinds are told, after what `make` does to the model.
fn with_events(events: u16, make: impl FnOnce(&Model)) -> Stack {
    let machine = machine(Config { write_booster: 64 << 20, ..Config::default() });
    let options =
        Options { exception_events: events, write_booster: Some(true), ..Options::default() };
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
    // 4 GiB beyond what matters take 22 s at the model's pace.
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
    let mut stack = Stack::new(&machine, Options::default(), Rules::default(), board.clone());
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
