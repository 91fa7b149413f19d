//! The control plane of the UFS driver on the UFS model: queries, WriteBooster, power, task
//! management, configuration, while commands are in flight.

use flysch_api::command::{Command, Ended, NotStarted, Port as _};
use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine as _, Registers as _};
use flysch_models::faults::{Kind, Plan, Trigger};
use flysch_models::ufs::{Config, Threaded, Ufs, UnitConfig};
use flysch_tests::ufs::{
    Model, buffer, done, fill, finish, holds, host, machine, ports, read, wait, write,
};
use flysch_ufs::{
    Cause, ConfigurationPlan, DevicePower, EndCommands, ErrorKind, Host, LinkLimits, Operation,
    Output, Port, Query, QueueMode, State, Timeouts, UfsError, UfsOptions,
};
use flysch_wire::ufs::query::{AttributeId, DescriptorId, FlagId};
use flysch_wire::ufs::registers::HCE;
use flysch_wire::ufs::upiu::ServiceResponse;

fn modes() -> [UfsOptions; 2] {
    [QueueMode::Sdq, QueueMode::Mcq].map(|queue| UfsOptions { queue, ..UfsOptions::default() })
}

fn hosts() -> impl Iterator<Item = (Model, Host<Model>)> {
    modes().into_iter().map(|options| {
        let machine = machine(Config::default());
        let host = host(&machine, options);
        (machine, host)
    })
}

fn works(machine: &Model, port: &mut Port<Model>) {
    let (out, back) = (buffer(machine, 0, 8192), buffer(machine, 1, 8192));
    fill(machine, out, 99);
    done(port, machine, write(2000, out));
    done(port, machine, read(2000, back));
    assert!(holds(machine, back, 99));
}

#[test]
fn everything_the_device_has_can_be_read() {
    for (machine, mut host) in hosts() {
        for &id in DescriptorId::ALL {
            let index = if id == DescriptorId::String { 1 } else { 0 };
            match host.read_descriptor(&machine, id, index) {
                Ok(bytes) => {
                    // Only this one has no byte that identifies it.
                    let is_typed = id != DescriptorId::Fbo;
                    assert!(!is_typed || bytes.as_slice()[1] == id.into_bits(), "{id}");
                    assert_eq!(usize::from(bytes.as_slice()[0]), bytes.as_slice().len());
                }
                Err(error) => assert_eq!(id, DescriptorId::Fbo, "{error}"),
            }
        }
        let mut read = 0;
        for &id in AttributeId::ALL {
            let info = id.info().expect("a known attribute");
            let selector = u8::from(id == AttributeId::ContextConf);
            let query = Query::read_attribute(id).selector(selector);
            match host.query(&machine, query) {
                Ok(Output::Value(value)) => {
                    assert!(value <= info.value_max());
                    read += 1;
                }
                Ok(other) => panic!("{id}: {other:?}"),
                Err(UfsError::Access(_)) => assert!(!info.access.read),
                Err(UfsError::Failed(_)) => {}
                Err(other) => panic!("{id}: {other}"),
            }
        }
        assert!(read > 30, "{read} attributes");
        assert_eq!(host.read_flag(&machine, FlagId::DeviceInit), Ok(false));
    }
}

#[test]
fn what_is_written_stays_written() {
    for (machine, mut host) in hosts() {
        host.write_attribute(&machine, AttributeId::ActiveIccLevel, 7).expect("a level");
        assert_eq!(host.read_attribute(&machine, AttributeId::ActiveIccLevel), Ok(7));
        for set in [true, false] {
            host.write_flag(&machine, FlagId::BackgroundOpsEn, set).expect("a flag");
            assert_eq!(host.read_flag(&machine, FlagId::BackgroundOpsEn), Ok(set));
        }
        let toggled = host.query(&machine, Query::toggle_flag(FlagId::BackgroundOpsEn));
        assert!(toggled.is_ok(), "{toggled:?}");
        assert_eq!(host.read_flag(&machine, FlagId::BackgroundOpsEn), Ok(true));
        let names = host.device().descriptor;
        let product = host.read_string(&machine, names.i_product_name).expect("a name");
        assert!(!product.is_empty());
    }
}

#[test]
fn an_older_device_is_not_asked_for_newer_things() {
    let config = Config { specification: 0x310, ..Config::default() };
    let machine = machine(config);
    let mut host = host(&machine, UfsOptions::default());
    let asked = host.read_attribute(&machine, AttributeId::WriteBoosterBufferResizeHint);
    assert!(matches!(asked, Err(UfsError::TooNew { device: 0x310, .. })), "{asked:?}");
    let text = asked.expect_err("too new").to_string();
    assert!(text.contains("4.1") && text.contains("3.1"), "{text}");
}

#[test]
fn write_booster_goes_on_and_off_and_flushes() {
    for (machine, mut host) in hosts() {
        assert!(!host.write_booster(&machine).expect("there is one").enabled);
        host.run(&machine, Operation::WriteBooster(true)).expect("on");
        host.run(&machine, Operation::WriteBoosterFlush(true)).expect("flush");
        let status = host.write_booster(&machine).expect("status");
        assert!(status.enabled && status.flushing, "{status:?}");
        assert_eq!(status.available_percent, 100);
        host.run(&machine, Operation::WriteBooster(false)).expect("off");
        assert!(!host.write_booster(&machine).expect("status").enabled);
    }
}

#[test]
fn the_link_sleeps_wakes_and_changes_speed() {
    for (machine, mut host) in hosts() {
        let fast = host.link();
        host.hibernate(&machine, true).expect("enter");
        assert!(host.link().hibernating);
        host.run(&machine, Operation::Nop).expect("an operation wakes it");
        assert!(!host.link().hibernating);
        host.hibernate(&machine, true).expect("enter");
        host.hibernate(&machine, false).expect("exit");
        host.run(&machine, Operation::Nop).expect("awake");
        host.set_link(&machine, LinkLimits { gear: 1, lanes: 1, ..LinkLimits::default() })
            .expect("slower");
        assert_eq!((host.link().gear, host.link().lanes), (1, 1));
        host.set_link(&machine, LinkLimits::default()).expect("faster");
        assert_eq!(host.link(), fast);
        host.run(&machine, Operation::AutoHibern8(150_000)).expect("auto-hibern8");
        let mut ports = host.into_ports();
        works(&machine, &mut ports[0]);
    }
}

#[test]
fn the_device_sleeps_and_wakes() {
    for (machine, mut host) in hosts() {
        for power in [DevicePower::Sleep, DevicePower::Active, DevicePower::PowerDown] {
            host.set_power(&machine, power).expect("a power mode");
        }
        let mode = host.read_attribute(&machine, AttributeId::CurrentPowerMode);
        assert_eq!(mode, Ok(0x33));
        host.set_power(&machine, DevicePower::Active).expect("awake");
        let mut ports = host.into_ports();
        works(&machine, &mut ports[0]);
    }
}

/// Starts 16 reads; returns how they ended after `act` was done to the host.
fn in_flight(options: UfsOptions, act: impl FnOnce(&Model, &mut Host<Model>)) -> Vec<Ended> {
    let machine = machine(Config::default());
    let mut ports = ports(&machine, options);
    let port = &mut ports[0];
    done(port, &machine, read(0, buffer(&machine, 0, 4096)));
    for token in 0..16 {
        let data = buffer(&machine, token as usize, 4096);
        port.start(read(token, data), machine.now()).expect("room");
    }
    port.ring(machine.now());
    act(&machine, port.host_mut().expect("the host"));
    let mut ended = vec![None; 16];
    while ended.iter().any(Option::is_none) {
        while let Some(outcome) = port.poll(machine.now()) {
            let before = ended[outcome.token.number() as usize].replace(outcome.ended);
            assert_eq!(before, None, "twice");
        }
        machine.wait(port.poll_at());
    }
    works(&machine, port);
    ended.into_iter().flatten().collect()
}

#[test]
fn a_query_does_not_disturb_commands_in_flight() {
    for options in modes() {
        let ended = in_flight(options, |machine, host| {
            host.read_attribute(machine, AttributeId::CurrentPowerMode).expect("an answer");
            host.run(machine, Operation::Nop).expect("an answer");
        });
        assert!(ended.iter().all(|ended| *ended == Ended::Good), "{ended:?}");
    }
}

#[test]
fn a_query_finds_a_slot_when_all_are_taken() {
    for options in modes() {
        let ended = in_flight(UfsOptions { depth: 16, ..options }, |machine, host| {
            host.read_attribute(machine, AttributeId::CurrentPowerMode).expect("an answer");
        });
        assert!(ended.iter().all(|ended| *ended == Ended::Good), "{ended:?}");
    }
}

#[test]
fn the_link_does_not_sleep_over_commands() {
    for options in modes() {
        let ended = in_flight(options, |machine, host| {
            let asleep = host.hibernate(machine, true);
            assert_eq!(asleep, Err(UfsError::Failed(Cause::InFlight)));
        });
        assert!(ended.iter().all(|ended| *ended == Ended::Good), "{ended:?}");
    }
}

#[test]
fn what_was_switched_on_is_on_after_a_reset() {
    for (machine, mut host) in hosts() {
        host.run(&machine, Operation::WriteBooster(true)).expect("on");
        let slow = LinkLimits { gear: 2, lanes: 1, ..LinkLimits::default() };
        host.set_link(&machine, slow).expect("slower");
        host.run(&machine, Operation::Reset).expect("up again");
        assert!(host.write_booster(&machine).expect("status").enabled);
        assert_eq!((host.link().gear, host.link().lanes), (2, 1));
    }
}

#[test]
fn task_management_ends_commands_once() {
    for how in [EndCommands::AbortTaskSet, EndCommands::ClearTaskSet, EndCommands::LogicalUnitReset]
    {
        for options in modes() {
            let ended = in_flight(options, |machine, host| {
                host.run(machine, Operation::EndCommands { how, lun: 0 }).expect("done");
            });
            let cut = ended.iter().filter(|ended| **ended == Ended::Reset).count();
            let good = ended.iter().filter(|ended| **ended == Ended::Good).count();
            assert_eq!(cut + good, 16, "{how:?} {ended:?}");
            assert!(cut > 0, "{how:?} {ended:?}");
        }
    }
}

#[test]
fn a_reset_on_request_ends_commands_once() {
    for options in modes() {
        let ended = in_flight(options, |machine, host| {
            host.run(machine, Operation::Reset).expect("up again");
        });
        let fine = |ended: &Ended| matches!(ended, Ended::Reset | Ended::Good);
        assert!(ended.iter().all(fine), "{ended:?}");
    }
}

#[test]
fn query_task_sees_what_is_in_the_device() {
    for options in modes() {
        let mut seen = None;
        in_flight(options, |machine, host| {
            let ask = Operation::QueryTask { tag: None, lun: 0 };
            seen = host.run(machine, ask).ok();
        });
        assert_eq!(seen, Some(Output::Task(ServiceResponse::FunctionSucceeded)));
    }
}

#[test]
fn configuration_takes_two_steps() {
    let units = vec![Some(UnitConfig::memory(64 << 20)), Some(UnitConfig::memory(64 << 20))];
    let machine = machine(Config { units, ..Config::default() });
    let mut host = host(&machine, UfsOptions::default());
    let present = host.read_configuration(&machine).expect("the configuration");
    assert_eq!(present.units.iter().filter(|unit| unit.b_lu_enable != 0).count(), 2);
    let unchanged = ConfigurationPlan::new(host.device(), &present, &present);
    assert!(matches!(unchanged, Err(UfsError::Configuration(_))), "{unchanged:?}");
    let mut wanted = present.clone();
    wanted.units[0].d_num_alloc_units -= 4;
    let plan = ConfigurationPlan::new(host.device(), &present, &wanted).expect("a plan");
    assert_eq!(plan.changes().len(), 1);
    let token = plan.token();
    let wrong = host.configure(&machine, plan.clone(), token ^ 1);
    assert!(matches!(wrong, Err(UfsError::Configuration(_))), "{wrong:?}");
    host.configure(&machine, plan.clone(), token).expect("written");
}

#[test]
fn a_locked_device_is_not_configured() {
    let machine = machine(Config::default());
    let mut host = host(&machine, UfsOptions::default());
    let present = host.read_configuration(&machine).expect("the configuration");
    let mut wanted = present.clone();
    wanted.units[0].d_num_alloc_units -= 1;
    let plan = ConfigurationPlan::new(host.device(), &present, &wanted).expect("a plan");
    let lock = Query::write_attribute(AttributeId::ConfigDescrLock, 1);
    assert!(matches!(host.query(&machine, lock), Err(UfsError::Irreversible(_))));
    host.query(&machine, lock.irreversible()).expect("locked");
    let token = plan.token();
    let written = host.configure(&machine, plan, token);
    assert!(matches!(written, Err(UfsError::Configuration(_))), "{written:?}");
}

#[test]
fn a_controller_without_mcq_says_so() {
    let machine = machine(Config { queues: 0, ..Config::default() });
    let memory = machine.memory().carve(0, 1 << 20);
    let options = UfsOptions { queue: QueueMode::Mcq, ..UfsOptions::default() };
    let host = Host::new(machine.clone(), memory.clone(), options);
    assert!(matches!(host, Err(UfsError::Unsupported("MCQ"))));
    let small = Host::new(machine.clone(), memory.carve(0, 4096), UfsOptions::default());
    assert!(matches!(small, Err(UfsError::MemoryTooSmall { .. })));
    let many = Host::new(machine, memory, UfsOptions { lanes: 40, ..UfsOptions::default() });
    assert!(matches!(many, Err(UfsError::Queues { wanted: 40, present: 32 })));
}

#[test]
fn exception_events_reach_the_caller() {
    const TOO_HIGH_TEMP: u16 = 1 << 3;
    for options in modes() {
        let machine = machine(Config::default());
        let options = UfsOptions { exception_events: TOO_HIGH_TEMP | 1 << 2, ..options };
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        works(&machine, port);
        assert_eq!(port.host_mut().expect("the host").take_events(), 0);
        machine.with_model(|model| model.set_temperature(100));
        for _ in 0..10 {
            works(&machine, port);
        }
        let host = port.host_mut().expect("the host");
        assert_eq!(host.take_events(), TOO_HIGH_TEMP);
        assert_eq!(host.take_events(), 0, "asked about once a second, not with every answer");
    }
}

#[test]
fn a_command_wakes_a_link_that_hibernates() {
    for options in modes() {
        for lanes in [1, 2] {
            let machine = machine(Config::default());
            let mut ports = ports(&machine, UfsOptions { lanes, ..options.clone() });
            works(&machine, &mut ports[0]);
            let host = ports[0].host_mut().expect("the host");
            host.hibernate(&machine, true).expect("asleep");
            let last = ports.len() - 1;
            let mut refused = 0;
            while let Err(declined) =
                ports[last].start(read(7, buffer(&machine, 0, 4096)), machine.now())
            {
                assert_eq!(declined.why, NotStarted::Full);
                refused += 1;
                assert!(refused < 1000, "it does not wake");
                machine.wait(ports.iter().filter_map(|port| port.poll_at()).min());
                for port in &mut ports {
                    assert_eq!(port.poll(machine.now()), None);
                }
            }
            assert!(refused > 0);
            ports[last].ring(machine.now());
            // A lane without commands in flight is polled for the host that it carries.
            let outcome = loop {
                if let Some(outcome) = ports[last].poll(machine.now()) {
                    break outcome;
                }
                machine.wait(ports[last].poll_at());
            };
            assert_eq!(outcome.ended, Ended::Good);
            assert!(!ports[0].host().expect("the host").link().hibernating);
        }
    }
}

#[test]
fn who_was_declined_is_polled_once_the_link_is_awake() {
    for options in modes() {
        for lanes in [1, 2] {
            let machine = machine(Config::default());
            let mut ports = ports(&machine, UfsOptions { lanes, ..options.clone() });
            works(&machine, &mut ports[0]);
            // Twice: the state after the first wake must not prevent the second.
            for _ in 0..2 {
                let host = ports[0].host_mut().expect("the host");
                host.hibernate(&machine, true).expect("asleep");
                let command = || read(7, buffer(&machine, 0, 4096));
                let last = ports.len() - 1;
                let limit = machine.now().after_nanos(10_000_000);
                while ports[last].start(command(), machine.now()).is_err() {
                    assert!(machine.now() < limit, "nobody was told at once");
                    for port in &mut ports {
                        assert_eq!(port.poll(machine.now()), None);
                    }
                    // No interrupt reports that the link is awake.
                    let at = ports.iter().filter_map(|port| port.poll_at()).min();
                    machine.wait(Some(at.expect("somebody wants to be polled")));
                }
                ports[last].ring(machine.now());
                assert_eq!(wait(&mut ports[last], &machine).ended, Ended::Good);
                assert_eq!(ports[last].poll(machine.now()), None, "and it parks");
            }
            // After that only lanes that check for requests of other lanes want to be polled.
            for _ in 0..4 {
                let at = machine.now().after_nanos(2_000_000);
                while machine.now() < at {
                    for port in &mut ports {
                        assert_eq!(port.poll(machine.now()), None);
                    }
                    machine.wait(Some(at));
                }
            }
            let soon = machine.now().after_nanos(50_000_000);
            assert!(ports.iter().filter_map(|port| port.poll_at()).all(|at| at >= soon));
        }
    }
}

#[test]
fn a_shutdown_keeps_what_was_written() {
    for options in modes() {
        let machine = machine(Config { volatile_cache: true, ..Config::default() });
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        done(port, &machine, read(0, buffer(&machine, 0, 4096)));
        let out = buffer(&machine, 0, 256 << 10);
        fill(&machine, out, 99);
        done(port, &machine, write(2000, out));
        port.host_mut().expect("the host").shut_down(&machine).expect("off");
        assert_eq!(machine.read32(HCE), 0, "no DMA any more");
        let refused = port.start(read(0, buffer(&machine, 1, 4096)), machine.now());
        assert_eq!(refused.map_err(|declined| declined.why), Err(NotStarted::Gone));
        let loss = machine.with_model(|model| model.cut_power()).expect("no file behind it");
        assert_eq!((loss.vanished, loss.torn), (0, 0), "everything was written");
        machine.with_model(|model| model.restore_power());
        let host = port.host_mut().expect("the host");
        assert_eq!(host.run(&machine, Operation::Nop), Err(UfsError::NotUp));
        assert_eq!(host.errors().history().count(), 0);
        host.bring_up(&machine).expect("up again");
        let back = buffer(&machine, 1, 256 << 10);
        done(port, &machine, read(2000, back));
        assert!(holds(&machine, back, 99));
    }
}

#[test]
fn commands_in_flight_are_not_shut_down() {
    for options in modes() {
        let ended = in_flight(options, |machine, host| {
            let off = host.shut_down(machine);
            assert_eq!(off, Err(UfsError::Failed(Cause::InFlight)));
        });
        assert!(ended.iter().all(|ended| *ended == Ended::Good), "{ended:?}");
    }
}

#[test]
fn a_host_that_goes_away_stops_the_controller_and_frees_every_lane() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, UfsOptions { lanes: 2, ..options });
        works(&machine, &mut ports[0]);
        let port = &mut ports[1];
        let deadline = Instant::NEVER;
        for token in 0..4 {
            let command = read(token, buffer(&machine, token as usize, 4096));
            port.start(Command { deadline, ..command }, machine.now()).expect("room");
        }
        port.ring(machine.now());
        drop(ports.remove(0));
        assert_eq!(machine.read32(HCE), 0, "no DMA any more");
        let port = &mut ports[0];
        for _ in 0..4 {
            let outcome = port.poll(machine.now()).expect("an end without anybody's help");
            assert_eq!(outcome.ended, Ended::Gone);
        }
        let refused = port.start(read(0, buffer(&machine, 1, 4096)), machine.now());
        assert_eq!(refused.map_err(|declined| declined.why), Err(NotStarted::Gone));
    }
}

#[test]
fn a_lane_that_goes_away_with_commands_takes_them_out_of_the_device() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, UfsOptions { lanes: 2, ..options });
        works(&machine, &mut ports[0]);
        ports[1].start(read(0, buffer(&machine, 9, 4096)), machine.now()).expect("room");
        ports[1].ring(machine.now());
        drop(ports.remove(1));
        for _ in 0..1000 {
            machine.wait(ports[0].poll_at());
            assert_eq!(ports[0].poll(machine.now()), None);
        }
        let host = ports[0].host().expect("the host");
        assert!(host.errors().count(ErrorKind::HostReset) >= 1);
        works(&machine, &mut ports[0]);
        ports.remove(0);
    }
}

#[test]
fn a_link_lost_while_nothing_is_in_flight_is_noticed() {
    for options in modes() {
        for interrupts in [false, true] {
            let machine = machine(Config::default());
            let mut ports = ports(&machine, UfsOptions { interrupts, ..options.clone() });
            let port = &mut ports[0];
            works(&machine, port);
            assert_eq!(port.poll(machine.now()), None);
            machine.with_model(|model| model.lose_link());
            for _ in 0..2000 {
                machine.wait(port.poll_at());
                assert_eq!(port.poll(machine.now()), None);
            }
            let errors = port.host().expect("the host").errors();
            assert_eq!(errors.count(ErrorKind::LinkLost), 1);
            assert_eq!(errors.count(ErrorKind::HostReset), 1);
            works(&machine, port);
        }
    }
}

#[test]
fn a_link_that_does_not_wake_by_itself_is_started_anew() {
    for options in modes() {
        let machine = machine(Config::default());
        let options = UfsOptions { auto_hibern8_us: Some(1000), ..options };
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        works(&machine, port);
        let plan = Plan::none().with(Kind::AutoHibern8, Trigger::Nth(1));
        machine.with_model(|model| model.arm_faults(plan));
        machine.wait(Some(machine.now().after_nanos(5_000_000)));
        let deadline = machine.now().after_nanos(1_000_000_000);
        let command = read(0, buffer(&machine, 0, 4096));
        let outcome = finish(port, &machine, Command { deadline, ..command });
        assert_eq!(outcome.ended, Ended::Reset);
        assert_eq!(port.poll(machine.now()), None);
        while port.host().is_some_and(|host| host.state() != State::Up) {
            machine.wait(port.poll_at());
            assert_eq!(port.poll(machine.now()), None);
        }
        assert!(port.host().expect("the host").errors().count(ErrorKind::LinkLost) >= 1);
        works(&machine, port);
    }
}

#[test]
fn a_host_apart_works_beside_its_lanes() {
    for options in modes() {
        let machine = machine(Config::default());
        let options = UfsOptions { apart: true, lanes: 2, ..options };
        let host = host(&machine, options.clone());
        let (mut host, mut ports) = host.split().expect("a lane of its own");
        assert_eq!(ports.len(), 2);
        let sdq = options.queue == QueueMode::Sdq;
        assert_eq!(ports[0].limits().slots, if sdq { 15 } else { 16 });
        works(&machine, &mut ports[0]);
        // Queries while every slot of both lanes is taken.
        for port in &mut ports {
            let mut token = 0;
            while port.start(read(token, buffer(&machine, 0, 4096)), machine.now()).is_ok() {
                token += 1;
            }
            port.ring(machine.now());
        }
        let level = host.read_attribute(&machine, AttributeId::ActiveIccLevel);
        assert_eq!(level, Ok(0));
        // A command that is never answered ends at its deadline although no other port is polled.
        for port in &mut ports {
            while port.poll_at().is_some() {
                machine.wait(port.poll_at());
                while port.poll(machine.now()).is_some() {}
            }
        }
        let plan = Plan::none().with(Kind::Timeout, Trigger::Nth(1));
        machine.with_model(|model| model.arm_faults(plan));
        let deadline = machine.now().after_nanos(50_000_000);
        let command = read(0, buffer(&machine, 0, 4096));
        let port = &mut ports[1];
        port.start(Command { deadline, ..command }, machine.now()).expect("room");
        port.ring(machine.now());
        let outcome = loop {
            if let Some(outcome) = port.poll(machine.now()) {
                break outcome;
            }
            assert!(machine.now() < deadline.after_nanos(1_000_000_000), "no end");
            host.poll(machine.now());
            machine.wait([port.poll_at(), host.poll_at()].into_iter().flatten().min());
        };
        assert_eq!(outcome.ended, Ended::TimedOut);
        drop(host);
        let refused = port.start(read(0, buffer(&machine, 0, 4096)), machine.now());
        assert_eq!(refused.map_err(|declined| declined.why), Err(NotStarted::Gone));
    }
}

#[test]
fn a_host_apart_needs_a_queue_of_its_own() {
    let machine = machine(Config { queues: 2, ..Config::default() });
    let memory = machine.memory().carve(0, 1 << 20);
    let options =
        UfsOptions { queue: QueueMode::Mcq, lanes: 2, apart: true, ..UfsOptions::default() };
    let refused = Host::new(machine.clone(), memory, options).map(|_| ());
    assert_eq!(refused, Err(UfsError::Queues { wanted: 3, present: 2 }));
    let riding = host(&machine, UfsOptions::default()).split().map(|_| ());
    assert!(matches!(riding, Err(UfsError::Options(_))));
}

/// Reads 300 blocks through a port that is polled, eight at a time.
fn read_blocks(port: &mut Port<Threaded>, machine: &Threaded) {
    let (mut started, mut ended, mut attentions) = (0, 0, 0);
    while ended < 300 {
        while started - ended < 8 && started < 300 {
            let command = read(started, buffer(machine, started as usize % 8, 4096));
            port.start(command, machine.now()).expect("room");
            started += 1;
        }
        port.ring(machine.now());
        match port.poll(machine.now()) {
            Some(outcome) => {
                ended += 1;
                attentions += u32::from(outcome.ended != Ended::Good);
            }
            None => std::thread::yield_now(),
        }
    }
    assert!(attentions <= 1, "{attentions} reads failed");
}

#[test]
fn a_host_in_a_thread_of_its_own_asks_while_lanes_run() {
    for options in modes() {
        let memory = DmaRegion::zeroed(17 << 20, 0x1_0000_0000);
        let model = Ufs::new(Config::default(), memory.clone()).expect("a device");
        let machine = Threaded::start(model, memory, Identity::default(), 1000).expect("a thread");
        // The model's time is real: a busy machine must not make it look dead.
        let timeouts =
            Timeouts { nop_ms: 20_000, query_ms: 20_000, uic_ms: 20_000, ..Timeouts::default() };
        let options = UfsOptions { apart: true, lanes: 2, interrupts: false, timeouts, ..options };
        let driver = machine.memory().carve(0, 1 << 20);
        let mut host = Host::new(machine.clone(), driver, options).expect("options that fit");
        host.bring_up(&machine).expect("up");
        let (mut host, ports) = host.split().expect("a lane of its own");
        std::thread::scope(|scope| {
            let run = |mut port: Port<Threaded>| {
                let machine = machine.clone();
                scope.spawn(move || read_blocks(&mut port, &machine))
            };
            let lanes: Vec<_> = ports.into_iter().map(run).collect();
            let mut asked = 0;
            while asked == 0 || lanes.iter().any(|lane| !lane.is_finished()) {
                let level = host.read_attribute(&machine, AttributeId::ActiveIccLevel);
                assert_eq!(level, Ok(0));
                asked += 1;
            }
        });
        let errors: Vec<_> = host.errors().history().collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}
