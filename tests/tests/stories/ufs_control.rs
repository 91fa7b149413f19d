//! The control plane of the UFS driver on the UFS model: queries, WriteBooster, power, task
//! management, configuration, while commands are in flight.

use flysch_api::command::{Ended, Port as _};
use flysch_api::machine::{Clock, Machine as _};
use flysch_models::ufs::{Config, UnitConfig};
use flysch_tests::ufs::{Model, buffer, done, fill, holds, host, machine, ports, read, write};
use flysch_ufs::{
    Cause, ConfigurationPlan, DevicePower, EndCommands, Error, Host, LinkLimits, Operation,
    Options, Output, Port, Query, QueueMode,
};
use flysch_wire::ufs::query::{AttributeId, DescriptorId, FlagId};
use flysch_wire::ufs::upiu::ServiceResponse;

fn modes() -> [Options; 2] {
    [QueueMode::Sdq, QueueMode::Mcq].map(|queue| Options { queue, ..Options::default() })
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
                    // This one alone has no byte that says what it is.
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
                Err(Error::Access(_)) => assert!(!info.access.read),
                Err(Error::Failed(_)) => {}
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
    let mut host = host(&machine, Options::default());
    let asked = host.read_attribute(&machine, AttributeId::WriteBoosterBufferResizeHint);
    assert!(matches!(asked, Err(Error::TooNew { device: 0x310, .. })), "{asked:?}");
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
        let asked = host.run(&machine, Operation::Nop);
        assert_eq!(asked, Err(Error::Hibernating));
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

/// Starts 16 reads; gives how they ended after `act` was done to the host.
fn in_flight(options: Options, act: impl FnOnce(&Model, &mut Host<Model>)) -> Vec<Ended> {
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
        let ended = in_flight(Options { depth: 16, ..options }, |machine, host| {
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
            assert_eq!(asleep, Err(Error::Failed(Cause::InFlight)));
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
    let mut host = host(&machine, Options::default());
    let present = host.read_configuration(&machine).expect("the configuration");
    assert_eq!(present.units.iter().filter(|unit| unit.b_lu_enable != 0).count(), 2);
    let unchanged = ConfigurationPlan::new(host.device(), &present, &present);
    assert!(matches!(unchanged, Err(Error::Configuration(_))), "{unchanged:?}");
    let mut wanted = present.clone();
    wanted.units[0].d_num_alloc_units -= 4;
    let plan = ConfigurationPlan::new(host.device(), &present, &wanted).expect("a plan");
    assert_eq!(plan.changes().len(), 1);
    let token = plan.token();
    let wrong = host.configure(&machine, plan.clone(), token ^ 1);
    assert!(matches!(wrong, Err(Error::Configuration(_))), "{wrong:?}");
    host.configure(&machine, plan.clone(), token).expect("written");
}

#[test]
fn a_locked_device_is_not_configured() {
    let machine = machine(Config::default());
    let mut host = host(&machine, Options::default());
    let present = host.read_configuration(&machine).expect("the configuration");
    let mut wanted = present.clone();
    wanted.units[0].d_num_alloc_units -= 1;
    let plan = ConfigurationPlan::new(host.device(), &present, &wanted).expect("a plan");
    let lock = Query::write_attribute(AttributeId::ConfigDescrLock, 1);
    assert!(matches!(host.query(&machine, lock), Err(Error::Irreversible(_))));
    host.query(&machine, lock.irreversible()).expect("locked");
    let token = plan.token();
    let written = host.configure(&machine, plan, token);
    assert!(matches!(written, Err(Error::Configuration(_))), "{written:?}");
}

#[test]
fn a_controller_without_mcq_says_so() {
    let machine = machine(Config { queues: 0, ..Config::default() });
    let memory = machine.memory().carve(0, 1 << 20);
    let options = Options { queue: QueueMode::Mcq, ..Options::default() };
    let host = Host::new(machine.clone(), memory.clone(), options);
    assert!(matches!(host, Err(Error::Unsupported("MCQ"))));
    let small = Host::new(machine.clone(), memory.carve(0, 4096), Options::default());
    assert!(matches!(small, Err(Error::MemoryTooSmall { .. })));
    let many = Host::new(machine, memory, Options { lanes: 40, ..Options::default() });
    assert!(matches!(many, Err(Error::Queues { wanted: 40, present: 32 })));
}

#[test]
fn exception_events_reach_the_caller() {
    const TOO_HIGH_TEMP: u16 = 1 << 3;
    for options in modes() {
        let machine = machine(Config::default());
        let options = Options { exception_events: TOO_HIGH_TEMP | 1 << 2, ..options };
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
