//! Port multipliers: the SATA driver and the model, with and without FIS-based switching.

use flysch_ahci::{AhciError, AhciOptions, AtaCommand, ErrorKind, Operation, State};
use flysch_api::command::{Ata, Command, Ended, NotStarted, Port as _};
use flysch_api::machine::{Clock as _, Registers as _};
use flysch_cam::Family as _;
use flysch_models::ahci::{Attached, Config, DiskConfig, MultiplierConfig, Switching};
use flysch_models::store::Store;
use flysch_wire::ata::multiplier::{Access, CONTROL_PORT, gscr, pscr, value_of};
use flysch_wire::ata::registers::{
    Fbs, GHC, PX_CMD, PX_FBS, PX_SCTL, PX_SERR, PX_SIG, PX_SSTS, PX_TFD, port_base,
};
use flysch_wire::ata::{D2h, Opcode};

use super::sata::{BYTES, End, Rig, SECOND, config, ended};

fn disk() -> Attached {
    Attached::disk(DiskConfig::memory(64 << 20))
}

fn with(switching: Switching, ports: Vec<Attached>, faults: &str) -> Config {
    let multiplier = MultiplierConfig::sil3726(ports);
    Config { ports: vec![Attached::multiplier(multiplier)], switching, ..config(faults) }
}

/// Three disks behind a multiplier; faults are counted from when they are up.
fn three(switching: Switching, faults: &str) -> Rig {
    let ports = vec![disk(), disk(), disk()];
    let rig = Rig::new(with(switching, ports, ""), AhciOptions::default());
    rig.machine.with_model(|model| model.arm_faults(faults.parse().expect("a plan")));
    rig
}

const BOTH: [Switching; 2] = [Switching::Command, Switching::Fis];

fn read(rig: &Rig, unit: u64, lba: u64, token: u32) -> Command<Ata> {
    Command { unit, ..rig.transfer(false, lba, token) }
}

/// Why a read from a device is not accepted.
fn declined(rig: &mut Rig, unit: u64) -> NotStarted {
    let (command, now) = (read(rig, unit, 0, 1), rig.machine.now());
    rig.ports[0].start(command, now).expect_err("it is not taken").why
}

/// Writes and reads back on each device, all concurrently; each must return its own data.
fn each_keeps_its_own(rig: &mut Rig, units: &[u64], per_unit: u32) {
    let all = |rig: &mut Rig, write: bool| -> Vec<End> {
        let mut token = 0;
        for n in 0..per_unit {
            for unit in units {
                let lba = u64::from(n) * 8;
                rig.start(0, Command { unit: *unit, ..rig.transfer(write, lba, token) });
                token += 1;
            }
        }
        rig.ends(0, token as usize)
    };
    let count = per_unit as usize * units.len();
    let mark = |at: usize| 1 + at as u8;
    for at in 0..count {
        rig.memory.fill(at * BYTES as usize, BYTES as usize, mark(at));
    }
    let ends = all(rig, true);
    assert!(ends.iter().all(|end| end.1 == Ended::Good), "{ends:?}");
    rig.memory.fill(0, count * BYTES as usize, 0xEE);
    let ends = all(rig, false);
    assert!(ends.iter().all(|end| end.1 == Ended::Good), "{ends:?}");
    for at in 0..count {
        let mut bytes = [0; BYTES as usize];
        rig.memory.read(at * BYTES as usize, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == mark(at)), "command {at}: {}", bytes[0]);
    }
}

#[test]
fn a_multiplier_and_its_devices_are_found_and_each_keeps_its_own() {
    for switching in BOTH {
        let ports =
            vec![disk(), Attached::Nothing, disk(), Attached::Cd(Store::memory(1 << 20), 1 << 20)];
        let mut rig = Rig::new(with(switching, ports, ""), AhciOptions::default());
        let port = &rig.ports[0];
        assert_eq!(port.state(), State::Up);
        let multiplier = port.multiplier().expect("a multiplier");
        assert_eq!(multiplier.to_string(), "Port Multiplier 37261095 1706");
        assert_eq!((multiplier.ports, multiplier.notifies), (4, true));
        assert_eq!(multiplier.fis_switching, switching == Switching::Fis);
        let there: Vec<u8> = (0..15).filter(|unit| port.device_behind(*unit).is_some()).collect();
        assert_eq!(there, [0, 2, 3]);
        assert!(port.device_behind(2).unwrap().queued);
        let gone = declined(&mut rig, 1);
        assert_eq!(gone, NotStarted::Gone, "nothing is there");
        let none = declined(&mut rig, 15);
        assert_eq!(none, NotStarted::Unsupported);
        each_keeps_its_own(&mut rig, &[0, 2], 12);
        let words = rig.run(
            AtaCommand::packet([0x12, 0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 36).to(3),
        );
        assert_eq!(words.expect("inquiry").2[0], 5, "an optical drive");
    }
}

/// An HBA that does not support multipliers finds the first device and nothing else.
#[test]
fn without_support_there_is_the_first_device() {
    let mut rig = Rig::new(with(Switching::No, vec![disk(), disk()], ""), AhciOptions::default());
    assert_eq!((rig.ports[0].state(), rig.ports[0].multiplier()), (State::Up, None));
    rig.all_good(0);
    let other = declined(&mut rig, 1);
    assert_eq!(other, NotStarted::Unsupported);
    let rig =
        Rig::new(with(Switching::No, vec![Attached::Nothing, disk()], ""), AhciOptions::default());
    assert_eq!(rig.ports[0].state(), State::Gone, "the link works and nobody speaks");
}

/// A disk without a multiplier also works on such an HBA; and a multiplier whose first port is
/// empty is found although it sends nothing by itself.
#[test]
fn who_is_there_is_found_out_by_calling() {
    for switching in BOTH {
        let mut rig = Rig::new(Config { switching, ..config("") }, AhciOptions::default());
        assert_eq!((rig.ports[0].state(), rig.ports[0].multiplier()), (State::Up, None));
        rig.all_good(0);
        let ports = vec![Attached::Nothing, disk()];
        let mut rig = Rig::new(with(switching, ports, ""), AhciOptions::default());
        each_keeps_its_own(&mut rig, &[1], 4);
        let rig = Rig::new(with(switching, vec![Attached::Nothing], ""), AhciOptions::default());
        assert_eq!(rig.ports[0].state(), State::Up);
        assert!(rig.ports[0].multiplier().is_some() && rig.ports[0].device().is_none());
    }
}

/// With FIS-based switching the commands of two devices overlap; otherwise one device follows the
/// other, though neither waits forever.
#[test]
fn switching_decides_who_may_have_commands() {
    let mut times = Vec::new();
    for switching in BOTH {
        let mut rig = three(switching, "");
        let most = rig.ports[0].limits().slots;
        assert_eq!(most, if switching == Switching::Fis { 31 } else { 32 });
        let begin = rig.machine.now();
        for token in 0..24 {
            // Far apart, so that every read takes its full die time.
            rig.start(0, read(&rig, u64::from(token % 3), 4096 * u64::from(token), token));
        }
        let ends = rig.ends(0, 24);
        assert!(ends.iter().all(|end| end.1 == Ended::Good), "{ends:?}");
        times.push(rig.machine.now().nanos_since(begin));
    }
    assert!(times[0] > times[1] * 3 / 2, "{times:?}");
}

/// A device that always has more work does not keep the others from their turn.
#[test]
fn turns_are_fair() {
    let mut rig = three(Switching::Command, "");
    for token in 0..8 {
        rig.start(0, read(&rig, 0, 8 * u64::from(token), token));
    }
    rig.ports[0].ring(rig.machine.now());
    rig.start(0, read(&rig, 1, 0, 8));
    rig.ports[0].ring(rig.machine.now());
    let mut before = 0;
    let mut next = 9;
    loop {
        let now = rig.machine.now();
        match rig.ports[0].poll(now) {
            Some(outcome) if outcome.token.number() == 8 => break,
            Some(outcome) => {
                assert_eq!(outcome.ended, Ended::Good);
                before += 1;
                // Another one in its place immediately.
                rig.start(0, read(&rig, 0, 8 * next, next as u32 % 8 + 16));
                rig.ports[0].ring(now);
                next += 1;
            }
            None => {
                let at = rig.ports[0].poll_at();
                rig.machine.wait(at.map(|at| at.max(now.after_nanos(1))));
            }
        }
        assert!(before <= 8, "the other device waits for ever");
    }
}

/// A flush is alone in its device. With FIS-based switching the others do not notice.
#[test]
fn a_flush_of_one_device_is_alone_in_that() {
    let mut rig = three(Switching::Fis, "timeout:n1");
    let late = rig.machine.now().after_nanos(5 * SECOND);
    rig.start(0, Command { unit: 1, deadline: late, ..rig.plain(Ata::flush(), 0) });
    rig.ports[0].ring(rig.machine.now());
    let same = declined(&mut rig, 1);
    assert_eq!(same, NotStarted::Full);
    rig.start(0, read(&rig, 0, 0, 2));
    rig.start(0, read(&rig, 2, 0, 3));
    let ends = rig.ends(0, 2);
    assert_eq!(ended(&ends), [Ended::Good, Ended::Good], "while the flush is swallowed");
    assert_eq!(ended(&rig.ends(0, 1)), [Ended::TimedOut]);
    let mut rig = three(Switching::Command, "timeout:n1");
    rig.start(0, Command { unit: 1, ..rig.plain(Ata::flush(), 0) });
    rig.ports[0].ring(rig.machine.now());
    let other = declined(&mut rig, 0);
    assert_eq!(other, NotStarted::Full, "nobody misses a deadline meanwhile");
}

/// A COMRESET as Linux does it, while FIS-based switching stays on and PxFBS.DEV names a device
/// other than the first: the signature received is that of the first device, and the device
/// selected by software becomes ready with it.
#[test]
fn after_a_comreset_the_link_is_ready_whichever_device_is_looked_at() {
    let rig = three(Switching::Fis, "");
    let machine = &rig.machine;
    let write = |offset, value| machine.write32(port_base(0) + offset, value);
    let read = |offset| machine.read32(port_base(0) + offset);
    let rest = |nanos| {
        let until = machine.now().after_nanos(nanos);
        while machine.now() < until {
            machine.wait(Some(until));
        }
    };
    machine.write32(GHC, machine.read32(GHC) & !2);
    write(PX_CMD, read(PX_CMD) & !1);
    rest(1_000_000);
    let fbs = Fbs::from_bits(read(PX_FBS));
    assert!(fbs.en(), "as the driver left it");
    write(PX_FBS, fbs.with_dev(2).into_bits());
    write(PX_SCTL, 0x301);
    rest(1_000_000);
    write(PX_SCTL, 0x300);
    rest(50_000_000);
    assert_eq!(read(PX_SSTS) & 0xF, 3);
    assert_ne!(read(PX_TFD) & 0x80, 0, "busy until DIAG.X is clear");
    write(PX_SERR, u32::MAX);
    rest(50_000_000);
    for device in 0..3 {
        write(PX_FBS, fbs.with_dev(device).into_bits());
        assert_eq!((read(PX_TFD) & 0x88, read(PX_SIG)), (0, 0x101), "device {device}");
    }
}

/// An error of one device ends its commands; those of the others continue. Only with FIS-based
/// switching do they have any.
#[test]
fn an_error_of_one_device_is_that_ones_alone() {
    for log in ["", ",no-log:n1"] {
        let mut rig = three(Switching::Fis, &format!("medium:lba16{log}"));
        for token in 0..4 {
            rig.start(0, read(&rig, 1, 8 * u64::from(token), token));
        }
        for token in 4..8 {
            rig.start(0, read(&rig, 2, 1024 + 8 * u64::from(token), token));
        }
        let ends = rig.ends(0, 8);
        let rest = if log.is_empty() { Ended::Reset } else { Ended::Good };
        assert_eq!(ended(&ends[..4]), [rest, rest, Ended::Answered, rest], "{log}");
        assert_eq!((ends[2].2.error, ends[2].2.lba), (0x40, 16));
        assert!(ends[4..].iter().all(|end| end.1 == Ended::Good), "{ends:?}");
        let counts = [ErrorKind::DeviceCleared, ErrorKind::PortStop, ErrorKind::Comreset];
        // Without the log the failed command fails once more, alone.
        let cleared = 1 + u64::from(!log.is_empty());
        assert_eq!(counts.map(|kind| rig.count(kind)), [cleared, 0, 0]);
        assert_eq!(rig.count(ErrorKind::NoLog), u64::from(!log.is_empty()));
        let fbs = rig.machine.with_model(|model| {
            let now = flysch_api::machine::Instant::START;
            Fbs::from_bits(model.read32(port_base(0) + PX_FBS, now))
        });
        assert!(fbs.en() && !fbs.sde() && !fbs.dec());
        rig.machine.with_model(|model| model.arm_faults("".parse().unwrap()));
        each_keeps_its_own(&mut rig, &[0, 1, 2], 4);
    }
    // Without it the list stops, but the other device has nothing in it.
    let mut rig = three(Switching::Command, "medium:lba16");
    for token in 0..8 {
        let unit = 1 + u64::from(token / 4);
        rig.start(0, read(&rig, unit, 8 * u64::from(token % 4) + 1024 * (unit - 1), token));
    }
    let ends = rig.ends(0, 8);
    assert_eq!(ended(&ends[..4]), [Ended::Reset, Ended::Reset, Ended::Answered, Ended::Reset]);
    assert!(ends[4..].iter().all(|end| end.1 == Ended::Good), "{ends:?}");
    assert_eq!(rig.count(ErrorKind::Comreset), 0);
}

/// Errors of two devices at once: their causes cannot be told apart, so the whole port is reset.
#[test]
fn two_errors_at_once_take_a_comreset() {
    let options = AhciOptions { interrupts: false, ..AhciOptions::default() };
    let mut rig = Rig::new(with(Switching::Fis, vec![disk(), disk(), disk()], ""), options);
    rig.machine.with_model(|model| model.arm_faults("medium:1".parse().unwrap()));
    for token in 0..2 {
        rig.start(0, read(&rig, u64::from(token), 0, token));
    }
    rig.ports[0].ring(rig.machine.now());
    let fail = rig.machine.now().after_nanos(50_000_000);
    while rig.machine.now() < fail {
        rig.machine.wait(Some(fail));
    }
    rig.machine.with_model(|model| model.arm_faults("".parse().unwrap()));
    let ends = rig.ends(0, 2);
    assert_eq!(ended(&ends), [Ended::Reset, Ended::Reset]);
    assert_eq!(rig.count(ErrorKind::Comreset), 1);
    rig.settle(0);
    each_keeps_its_own(&mut rig, &[0, 1, 2], 4);
}

/// A command past its deadline, an error of the interface or of the bus: the whole port is reset,
/// and every device returns.
#[test]
fn everything_else_takes_a_comreset_of_the_port() {
    for switching in BOTH {
        for faults in
            ["timeout:n2", "stall:n2", "interface:n2", "host-bus:n2", "link:n2", "stuck:n2"]
        {
            let mut rig = three(switching, faults);
            for token in 0..6 {
                rig.start(0, read(&rig, u64::from(token % 3), 8 * u64::from(token), token));
            }
            let ends = rig.ends(0, 6);
            let bad = ends.iter().filter(|end| end.1 != Ended::Good).count();
            assert!((1..=6).contains(&bad), "{switching:?}, {faults}: {ends:?}");
            rig.settle(0);
            assert_eq!(rig.ports[0].failure_of_port(), None, "{switching:?}, {faults}");
            each_keeps_its_own(&mut rig, &[0, 1, 2], 4);
        }
    }
}

/// A device behind the multiplier leaves and returns: the multiplier reports it, and the others
/// continue.
#[test]
fn devices_behind_a_multiplier_come_and_go() {
    for switching in BOTH {
        let mut rig = three(switching, "");
        rig.machine.with_model(|model| model.pull_off_behind(0, 1));
        until(&mut rig, |rig| rig.ports[0].device_behind(1).is_none());
        assert_eq!(rig.count(ErrorKind::Detached), 1);
        assert_eq!(rig.count(ErrorKind::Comreset), 0, "the others were not disturbed");
        let gone = declined(&mut rig, 1);
        assert_eq!(gone, NotStarted::Gone);
        each_keeps_its_own(&mut rig, &[0, 2], 4);
        rig.machine.with_model(|model| model.plug_in_behind(0, 1));
        until(&mut rig, |rig| rig.ports[0].device_behind(1).is_some());
        assert_eq!(rig.count(ErrorKind::Comreset), 0);
        each_keeps_its_own(&mut rig, &[0, 1, 2], 4);
        // With commands in it: they are lost with it.
        let late = rig.machine.now().after_nanos(10 * SECOND);
        rig.start(0, Command { deadline: late, ..read(&rig, 1, 0, 0) });
        rig.start(0, Command { deadline: late, ..read(&rig, 0, 0, 1) });
        rig.ports[0].ring(rig.machine.now());
        rig.machine.with_model(|model| model.pull_off_behind(0, 1));
        let ends = rig.ends(0, 2);
        assert!(matches!(ends[0].1, Ended::Reset | Ended::NoUnit), "{ends:?}");
        assert_eq!(ends[1].1, Ended::Good, "the other one's");
        assert!(rig.machine.now() < late);
        until(&mut rig, |rig| rig.ports[0].device_behind(1).is_none());
        each_keeps_its_own(&mut rig, &[0, 2], 4);
        // And the multiplier itself.
        rig.machine.with_model(|model| model.pull_off(0));
        until(&mut rig, |rig| rig.ports[0].state() == State::Empty);
        assert_eq!(rig.ports[0].multiplier(), None);
        rig.machine.with_model(|model| {
            model.plug_in_behind(0, 1);
            model.plug_in(0);
        });
        until(&mut rig, |rig| rig.ports[0].state() == State::Up);
        each_keeps_its_own(&mut rig, &[0, 1, 2], 4);
    }
}

/// Polls until a condition holds, with nothing in flight.
fn until(rig: &mut Rig, is_so: impl Fn(&Rig) -> bool) {
    for _ in 0..100_000 {
        let now = rig.machine.now();
        assert_eq!(rig.ports[0].poll(now), None);
        if is_so(rig) && rig.ports[0].state() != State::Recovering {
            return;
        }
        rig.machine.wait(rig.ports[0].poll_at().map(|at| at.max(now.after_nanos(1))));
    }
    panic!("it never comes: {:?}", rig.ports[0].state());
}

/// No COMRESET makes a list stop. Each bring-up stops the list again; failing once more then is no
/// reason to give up the port.
#[test]
fn a_list_that_does_not_stop_twice_takes_two_resets_of_the_hba() {
    for switching in BOTH {
        let mut rig = three(switching, "timeout:n1,stuck-list:n1");
        let resets = |rig: &Rig| {
            rig.ports[0].hba_errors().map_or(0, |errors| errors.count(ErrorKind::HbaReset))
        };
        let before = resets(&rig);
        rig.start(0, read(&rig, 0, 0, 0));
        let ends = rig.ends(0, 1);
        assert_eq!(ended(&ends), [Ended::TimedOut]);
        rig.machine.with_model(|model| model.arm_faults("stuck-list:n1".parse().unwrap()));
        rig.settle(0);
        assert_eq!(resets(&rig), before + 2, "{switching:?}");
        assert_eq!((rig.ports[0].state(), rig.count(ErrorKind::Gone)), (State::Up, 0));
        each_keeps_its_own(&mut rig, &[0, 1, 2], 4);
        // A list that never stops makes the driver give up.
        rig.machine
            .with_model(|model| model.arm_faults("timeout:n1,stuck-list:1".parse().unwrap()));
        rig.start(0, read(&rig, 0, 0, 0));
        rig.ends(0, 1);
        until(&mut rig, |rig| rig.ports[0].state() == State::Gone);
        assert_eq!(resets(&rig), before + 7, "{switching:?}");
    }
}

/// The first bring-up behind a multiplier stops the list, too.
#[test]
fn a_list_that_does_not_stop_at_first_hides_no_device() {
    for switching in BOTH {
        let ports = vec![disk(), disk(), disk()];
        let mut rig = Rig::new(with(switching, ports, "stuck-list:n1"), AhciOptions::default());
        rig.settle(0);
        assert_eq!(rig.ports[0].state(), State::Up, "{:?}", rig.ports[0].failure_of_port());
        each_keeps_its_own(&mut rig, &[0, 1, 2], 4);
    }
}

/// A device that stays busy is given up; the others work.
#[test]
fn one_device_that_does_not_come_up_is_not_in_the_others_way() {
    for switching in BOTH {
        let ports = vec![disk(), disk(), disk()];
        // The first device becomes ready once by itself, and each one when it is reset: the third
        // COMRESET of a device port is that of the second device.
        let mut rig = Rig::new(with(switching, ports, "busy:1"), AhciOptions::default());
        assert_eq!(rig.ports[0].state(), State::Up, "{:?}", rig.ports[0].failure_of_port());
        rig.machine.with_model(|model| model.arm_faults("".parse().unwrap()));
        let failures = rig.ports[0].multiplier().expect("a multiplier").failures;
        let none = (0..15).all(|unit| rig.ports[0].device_behind(unit).is_none());
        if none {
            assert!(matches!(failures[0], Some(AhciError::Step { step: "identify", .. })));
            assert_eq!(rig.count(ErrorKind::GivenUp), 3);
            assert_eq!(rig.operate(Operation::Reset), Ok(flysch_ahci::Output::None));
        }
        each_keeps_its_own(&mut rig, &[0, 1, 2], 4);
    }
}

/// The registers of a multiplier as accessed by an operation, and what it refuses.
#[test]
fn registers_of_the_multiplier_are_read_and_written() {
    let mut rig = three(Switching::Fis, "");
    let mut access = |access: Access| {
        let fis = access.to_fis();
        let mut command = AtaCommand::new(Opcode::from_bits(fis.command)).to(CONTROL_PORT);
        command.task.device = fis.device;
        (command.task.features, command.task.lba, command.task.count) =
            (fis.features, fis.lba, fis.count);
        let (status, count, _) = rig.run(command).expect("it ends");
        let value = value_of(&D2h { lba: status.lba, count, ..D2h::default() });
        if status.is_error() { Err(status.error) } else { Ok(value) }
    };
    let general = |register| Access::read(CONTROL_PORT, register);
    assert_eq!(access(general(gscr::PRODUCT)), Ok(0x3726_1095));
    assert_eq!(access(general(gscr::PORTS)), Ok(3));
    assert_eq!(access(general(gscr::FEATURES_ENABLE)), Ok(8));
    // Linux asks a 3726 for this and accepts none without it.
    assert_eq!(access(general(gscr::SIL_POLICY)), Ok(1));
    assert_eq!(access(Access::write(CONTROL_PORT, gscr::SIL_POLICY, 0)), Ok(0));
    assert_eq!(access(general(gscr::SIL_POLICY)), Ok(0));
    assert_eq!(access(Access::read(2, pscr::STATUS)), Ok(0x123));
    assert_eq!(access(Access::read(3, pscr::STATUS)), Err(0x05), "there is no such port");
    assert_eq!(access(general(7)), Err(0x06), "there is no such register");
    assert_eq!(access(Access::write(CONTROL_PORT, gscr::PRODUCT, 0)), Err(0x06));
    assert_eq!(access(Access::write(1, pscr::ERROR, u32::MAX)), Ok(0));
}

/// Each disk has its own meter: the work of one is not charged to the others.
#[test]
fn each_device_behind_a_multiplier_is_metered_by_itself() {
    let mut rig = three(Switching::Fis, "");
    let taken = |rig: &Rig, fan: u8| {
        let now = rig.machine.now();
        rig.machine.with_model(|model| model.energy(0, fan, now)).map(|energy| energy.work)
    };
    let before = [0, 1, 2].map(|fan| taken(&rig, fan));
    each_keeps_its_own(&mut rig, &[1], 8);
    let after = [0, 1, 2].map(|fan| taken(&rig, fan));
    assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
    assert!(before[1].is_some() && before[1] != after[1], "{before:?}, {after:?}");
    assert_eq!(taken(&rig, 3), None, "nobody is there");
}
