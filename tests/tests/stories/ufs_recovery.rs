//! Recovery of the UFS driver: under every kind of fault of the model, with both queue designs,
//! every command ends exactly once, written data is present, and the host continues.

use flysch_api::command::{Command, Ended, NotStarted, Outcome, Port as _, Token};
use flysch_api::machine::{Clock, Instant, Machine as _, Registers as _};
use flysch_models::faults::{Kind, Plan, Trigger};
use flysch_models::ufs::{Config, UnitConfig};
use flysch_tests::ufs::{
    Model, again, buffer, done, fill, finish, holds, machine, ports, read, wait, write,
};
use flysch_ufs::{ErrorKind, Host, Operation, Port, QueueMode, State, UfsError, UfsOptions};
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::ufs::registers::{HCE, UCMDARG1, UCMDARG3, UICCMD};
use flysch_wire::ufs::uic::{UicArgument1, UicAttribute, UicOpcode};

fn modes() -> [UfsOptions; 4] {
    let sdq = UfsOptions { queue: QueueMode::Sdq, ..UfsOptions::default() };
    let mcq = UfsOptions { queue: QueueMode::Mcq, ..UfsOptions::default() };
    let polled = |options: &UfsOptions| UfsOptions { interrupts: false, ..options.clone() };
    [polled(&sdq), polled(&mcq), sdq, mcq]
}

fn faulty(kind: Kind, trigger: Trigger) -> Model {
    machine(Config { faults: Plan::none().with(kind, trigger), ..Config::default() })
}

/// The results of a number of commands.
#[derive(Debug, Default)]
struct Tally {
    good: u32,
    check: u32,
    timed_out: u32,
    reset: u32,
    host: u32,
    other: u32,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        match outcome.ended {
            Ended::Good => self.good += 1,
            Ended::Answered => self.check += 1,
            Ended::TimedOut => self.timed_out += 1,
            Ended::Reset => self.reset += 1,
            Ended::Host => self.host += 1,
            _ => self.other += 1,
        }
    }
}

/// Runs `count` reads through all ports with a deadline each and checks that each ends once.
fn run(machine: &Model, ports: &mut [Port<Model>], count: u32) -> Tally {
    let mut tally = Tally::default();
    let mut ended = vec![0_u32; count as usize];
    let mut started = 0;
    let limit = machine.now().after_nanos(600_000_000_000);
    while ended.iter().sum::<u32>() < count {
        assert!(machine.now() < limit, "no end in ten minutes: {tally:?}");
        for port in ports.iter_mut() {
            while started < count {
                let data = buffer(machine, (started % 32) as usize, 4096);
                let deadline = machine.now().after_nanos(200_000_000);
                let command = Command { deadline, ..read(started % 1000, data) };
                let command = Command { token: Token::new(started), ..command };
                if let Err(declined) = port.start(command, machine.now()) {
                    assert_eq!(declined.why, NotStarted::Full, "{tally:?}");
                    break;
                }
                started += 1;
            }
            port.ring(machine.now());
        }
        let mut any = false;
        for port in ports.iter_mut() {
            while let Some(outcome) = port.poll(machine.now()) {
                tally.count(&outcome);
                ended[outcome.token.number() as usize] += 1;
                any = true;
            }
        }
        if !any {
            let at = ports.iter().filter_map(|port| port.poll_at()).min();
            machine.wait(at);
        }
    }
    assert!(ended.iter().all(|&times| times == 1), "every command ends once");
    tally
}

/// Waits until the host has nothing left to do.
fn settle(machine: &Model, port: &mut Port<Model>) {
    for _ in 0..100_000 {
        assert_eq!(port.poll(machine.now()), None);
        if port.host().is_some_and(|host| host.state() != State::Recovering) {
            return;
        }
        machine.wait(port.poll_at());
    }
    panic!("recovery does not end");
}

/// The device must still store data.
fn works(machine: &Model, port: &mut Port<Model>) {
    let (out, back) = (buffer(machine, 0, 8192), buffer(machine, 1, 8192));
    fill(machine, out, 99);
    done(port, machine, write(2000, out));
    done(port, machine, read(2000, back));
    assert!(holds(machine, back, 99));
}

fn errors(ports: &[Port<Model>], kind: ErrorKind) -> u64 {
    ports[0].host().expect("the first port carries the host").errors().count(kind)
}

/// One fault of `kind` among 300 commands, with one lane and with three.
fn one_fault(kind: Kind, check: impl Fn(&Tally, &[Port<Model>])) {
    for lanes in [1, 3] {
        for mut options in modes() {
            // Polled lanes see errors only with their watchdog; the runs here are short.
            options.timeouts.watchdog_ms = 1;
            let machine = faulty(kind, Trigger::Nth(100));
            let mut ports = ports(&machine, UfsOptions { lanes, ..options.clone() });
            let tally = run(&machine, &mut ports, 300);
            settle(&machine, &mut ports[0]);
            let fired = machine.with_model(|model| model.faults().count(kind));
            assert_eq!(fired, 1, "{kind} {options:?}");
            check(&tally, &ports);
            for port in &mut ports {
                works(&machine, port);
            }
        }
    }
}

#[test]
fn a_command_the_device_swallowed_is_aborted() {
    one_fault(Kind::Timeout, |tally, ports| {
        assert_eq!(tally.timed_out, 1, "{tally:?}");
        assert_eq!(tally.reset, 0, "{tally:?}");
        assert_eq!(errors(ports, ErrorKind::Abort), 1);
        assert_eq!(errors(ports, ErrorKind::HostReset), 0);
    });
}

#[test]
fn a_lost_interrupt_delays_and_harms_nobody() {
    one_fault(Kind::LostInterrupt, |tally, ports| {
        assert_eq!(tally.timed_out + tally.reset + tally.host, 0, "{tally:?}");
        assert_eq!(ports[0].host().map(|host| host.errors().history().count()), Some(0));
    });
}

#[test]
fn a_bad_overall_status_is_handed_up() {
    one_fault(Kind::BadOcs, |tally, _| assert!(tally.host + tally.reset >= 1, "{tally:?}"));
}

#[test]
fn an_uic_error_is_logged_and_survived() {
    one_fault(Kind::Uic, |tally, ports| {
        assert_eq!(tally.timed_out, 0, "{tally:?}");
        let logged = [
            ErrorKind::PhyAdapter,
            ErrorKind::DataLink,
            ErrorKind::Network,
            ErrorKind::Transport,
            ErrorKind::Dme,
        ];
        assert!(logged.iter().map(|&kind| errors(ports, kind)).sum::<u64>() >= 1);
    });
}

#[test]
fn a_fatal_error_resets_the_host() {
    one_fault(Kind::Fatal, |tally, ports| {
        assert!(tally.reset + tally.host >= 1, "{tally:?}");
        assert!(errors(ports, ErrorKind::HostReset) >= 1);
    });
}

#[test]
fn a_lost_link_comes_back() {
    one_fault(Kind::LinkLoss, |tally, ports| {
        assert!(tally.reset + tally.host + tally.timed_out >= 1, "{tally:?}");
        assert!(errors(ports, ErrorKind::HostReset) >= 1);
    });
}

#[test]
fn a_stuck_slot_is_recovered() {
    one_fault(Kind::StuckDoorbell, |tally, ports| {
        assert!(tally.timed_out >= 1, "{tally:?}");
        assert!(errors(ports, ErrorKind::Overdue) >= 1);
    });
}

#[test]
fn a_late_answer_comes_in_time_or_is_aborted() {
    one_fault(Kind::Late, |tally, _| assert_eq!(tally.reset, 0, "{tally:?}"));
}

#[test]
fn power_comes_back() {
    one_fault(Kind::PowerLoss, |tally, ports| {
        assert!(tally.reset + tally.host + tally.timed_out >= 1, "{tally:?}");
        assert!(errors(ports, ErrorKind::HostReset) >= 1);
    });
}

/// Reads an attribute of the link bypassing the driver.
fn dme_get(machine: &Model, attribute: UicAttribute) -> u32 {
    let argument = UicArgument1::new().with_mib_attribute(attribute);
    machine.write32(UCMDARG1, argument.into_bits());
    machine.write32(UICCMD, UicOpcode::DmeGet.into_bits().into());
    machine.wait(Some(machine.now().after_nanos(1_000_000)));
    machine.read32(UCMDARG3)
}

#[test]
fn a_reset_line_gets_its_speed_back() {
    one_fault(Kind::LineReset, |tally, ports| {
        // Commands that used the slow link may be overdue.
        assert!(tally.good > 280 && tally.reset + tally.host == 0, "{tally:?}");
        assert_eq!(errors(ports, ErrorKind::LineReset), 1);
        assert_eq!(errors(ports, ErrorKind::HostReset), 0);
        let host = ports[0].host().expect("the host");
        let machine = host.machine();
        assert_eq!(dme_get(machine, UicAttribute::PaPwrmode), 0x11);
        assert_eq!(dme_get(machine, UicAttribute::PaTxgear), u32::from(host.link().gear));
        assert_eq!(
            dme_get(machine, UicAttribute::PaActiverxdatalanes),
            u32::from(host.link().lanes)
        );
    });
}

#[test]
fn a_controller_that_shows_itself_too_early_is_waited_for() {
    for options in modes() {
        let machine = faulty(Kind::EnableGlitch, Trigger::Every(1));
        let mut ports = ports(&machine, options.clone());
        works(&machine, &mut ports[0]);
        assert_eq!(errors(&ports, ErrorKind::HostReset), 0);
        // A driver that does not wait cannot come up, which shows that the fault has an effect.
        let machine = faulty(Kind::EnableGlitch, Trigger::Every(1));
        let mut hasty = options;
        hasty.timeouts.enable_settle_us = 0;
        let memory = machine.memory().carve(0, 1 << 20);
        let mut host = Host::new(machine.clone(), memory, hasty).expect("options that fit");
        assert!(host.bring_up(&machine).is_err());
    }
}

#[test]
fn everything_swallowed_at_once_is_ended_unit_by_unit() {
    one_fault(Kind::Stall, |tally, ports| {
        assert!(tally.timed_out >= 1, "{tally:?}");
        assert_eq!(errors(ports, ErrorKind::HostReset), 0, "{tally:?}");
    });
}

#[test]
fn faults_on_several_units_at_once_are_ended_unit_by_unit() {
    for options in modes() {
        let units = [(); 3].map(|()| Some(UnitConfig::memory(64 << 20)));
        let machine = machine(Config { units: units.into(), ..Config::default() });
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        let of_unit = |token: u32| {
            let unit = LogicalUnitNumber::from_ufs((token % 3) as u8).to_bits();
            Command { unit, ..read(token, buffer(&machine, token as usize, 4096)) }
        };
        for token in 0..3 {
            done(port, &machine, of_unit(token));
        }
        let plan = Plan::none().with(Kind::Stall, Trigger::Nth(9));
        machine.with_model(|model| model.arm_faults(plan));
        let deadline = machine.now().after_nanos(100_000_000);
        for token in 0..9 {
            let command = Command { deadline, ..of_unit(token) };
            port.start(command, machine.now()).expect("room");
        }
        port.ring(machine.now());
        let mut ended = [false; 9];
        for _ in 0..9 {
            let outcome = wait(port, &machine);
            assert_eq!(outcome.ended, Ended::TimedOut);
            assert!(!core::mem::replace(&mut ended[outcome.token.number() as usize], true));
        }
        assert_eq!(errors(&ports, ErrorKind::Abort), 9);
        assert_eq!(errors(&ports, ErrorKind::HostReset), 0);
        works(&machine, &mut ports[0]);
    }
}

#[test]
fn power_that_comes_back_late_is_waited_for() {
    for seed in 0..6 {
        let faults = Plan::none().with(Kind::PowerLate, Trigger::Nth(100));
        let machine = machine(Config { faults, seed, ..Config::default() });
        let mut ports = ports(&machine, UfsOptions::default());
        let tally = run(&machine, &mut ports, 300);
        settle(&machine, &mut ports[0]);
        assert!(tally.reset + tally.host + tally.timed_out >= 1, "{tally:?}");
        works(&machine, &mut ports[0]);
    }
}

#[test]
fn power_that_stays_away_ends_everything_as_gone() {
    for lanes in [1, 3] {
        for options in modes() {
            let machine = faulty(Kind::PowerGone, Trigger::Nth(100));
            let mut ports = ports(&machine, UfsOptions { lanes, ..options });
            let (mut ended, mut gone) = (0, false);
            for token in 0..300 {
                let deadline = machine.now().after_nanos(200_000_000);
                let command = read(token, buffer(&machine, 0, 4096));
                let port = &mut ports[0];
                match port.start(Command { deadline, ..command }, machine.now()) {
                    Ok(()) => {
                        port.ring(machine.now());
                        wait(port, &machine);
                        ended += 1;
                    }
                    Err(declined) => {
                        assert_eq!(declined.why, NotStarted::Gone);
                        gone = true;
                    }
                }
                settle(&machine, &mut ports[0]);
            }
            assert!(ended < 100 && gone, "{ended}");
        }
    }
}

#[test]
fn many_faults_of_all_kinds_end_every_command_once() {
    for (seed, options) in (0..8).zip(modes().into_iter().cycle()) {
        // Power that stays away longer than one recovery takes has its own test.
        let other = [Kind::Medium, Kind::PowerLate, Kind::PowerGone];
        let faults = Kind::UFS
            .into_iter()
            .filter(|kind| !other.contains(kind))
            .fold(Plan::none(), |plan, kind| plan.with(kind, Trigger::Probability(0.002)));
        let machine = machine(Config { faults, seed, ..Config::default() });
        let lanes = 1 + seed as u8 % 3;
        let mut ports = ports(&machine, UfsOptions { lanes, ..options });
        let tally = run(&machine, &mut ports, 2000);
        assert!(tally.good > 1000, "{tally:?}");
    }
}

#[test]
fn the_owner_can_abort_a_command() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        done(port, &machine, read(0, buffer(&machine, 0, 4096)));
        for token in 7..20 {
            // Long enough for the device to receive the abort before it is done.
            let command = read(token, buffer(&machine, 0, 256 << 10));
            assert_eq!(command.deadline, Instant::NEVER);
            port.start(command, machine.now()).expect("room");
            port.ring(machine.now());
            assert!(port.abort(token));
            assert!(!port.abort(token + 1));
            let outcome = wait(port, &machine);
            assert_eq!((outcome.token, outcome.ended), (Token::new(token), Ended::Aborted));
        }
        works(&machine, port);
        assert_eq!(errors(&ports, ErrorKind::Abort), 13);
        assert_eq!(errors(&ports, ErrorKind::HostReset), 0);
    }
}

#[test]
fn a_device_that_stays_dead_is_gone_until_it_is_brought_up_again() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        works(&machine, port);
        machine.with_model(|model| model.cut_power()).expect("no file behind it");
        let deadline = machine.now().after_nanos(1_000_000_000);
        let command = Command { deadline, ..read(0, buffer(&machine, 0, 4096)) };
        let outcome = finish(port, &machine, again(&command));
        assert!(!matches!(outcome.ended, Ended::Good | Ended::Answered), "{outcome:?}");
        settle(&machine, port);
        assert_eq!(port.host().map(|host| host.state()), Some(State::Gone));
        let refused = port.start(command, machine.now()).map_err(|declined| declined.why);
        assert_eq!(refused, Err(NotStarted::Gone));
        let host = port.host_mut().expect("the host");
        assert_eq!(host.run(&machine, Operation::Nop), Err(UfsError::Gone));
        assert_eq!(host.errors().count(ErrorKind::Gone), 1);
        machine.with_model(|model| model.restore_power());
        host.bring_up(&machine).expect("up again");
        works(&machine, port);
    }
}

#[test]
fn a_host_that_nobody_polls_leaves_no_lane_waiting_for_ever() {
    for options in modes() {
        let machine = faulty(Kind::Timeout, Trigger::Never);
        let mut ports = ports(&machine, UfsOptions { lanes: 3, ..options });
        ports.iter_mut().for_each(|port| works(&machine, port));
        let arm = |plan| machine.with_model(|model| model.arm_faults(plan));
        arm(Plan::none().with(Kind::Timeout, Trigger::Every(1)));
        let begin = machine.now();
        for lane in [1, 2] {
            let deadline = begin.after_nanos(lane as u64 * 1_000_000_000);
            let command = Command { deadline, ..read(7, buffer(&machine, lane, 4096)) };
            ports[lane].start(command, machine.now()).expect("room");
            ports[lane].ring(machine.now());
        }
        for lane in [1, 2] {
            assert_eq!(wait(&mut ports[lane], &machine).ended, Ended::Gone);
        }
        let waited = machine.now().nanos_since(begin) / 1_000_000_000;
        assert!((30..35).contains(&waited), "after {waited} s");
        assert_eq!(machine.read32(HCE), 0, "the controller touches no memory any more");
        // The owner of the host is notified, and can bring it up again.
        arm(Plan::none());
        assert_eq!(ports[0].poll(machine.now()), None);
        let host = ports[0].host_mut().expect("the host");
        assert_eq!(host.state(), State::Gone);
        host.bring_up(&machine).expect("up again");
        ports.iter_mut().for_each(|port| works(&machine, port));
    }
}
