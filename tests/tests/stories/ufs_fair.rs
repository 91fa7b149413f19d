//! The capacity of device, units and controller is shared: nobody starves and nothing is refused.

use flysch_api::command::{Command, Ended};
use flysch_api::command::{Declined, NotStarted, Port as _};
use flysch_api::machine::{Clock as _, Registers as _};
use flysch_models::faults::{Kind, Plan, Trigger};
use flysch_models::ufs::{Config, UnitConfig};
use flysch_tests::ufs::{Model, buffer, done, finish, machine, ports, read};
use flysch_ufs::{Port, QueueMode, UfsOptions};
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::ufs::registers::{MCQCAP, MCQCONFIG, McqCap, McqConfig, mcq};

#[test]
fn no_queue_starves_another() {
    const LANES: usize = 4;
    let machine = machine(Config::default());
    let options = UfsOptions {
        queue: QueueMode::Mcq,
        lanes: LANES as u8,
        depth: 32,
        ..UfsOptions::default()
    };
    let mut ports = ports(&machine, options);
    let mut ended = [0_u32; LANES];
    while ended.iter().sum::<u32>() < 4000 {
        let now = machine.now();
        for (lane, port) in ports.iter_mut().enumerate() {
            while port.poll(now).is_some() {
                ended[lane] += 1;
            }
            loop {
                match port.start(read(lane as u32, buffer(&machine, lane, 4096)), now) {
                    Ok(()) => {}
                    Err(Declined { why: NotStarted::Full, .. }) => break,
                    Err(why) => panic!("{why:?}"),
                }
            }
            port.ring(now);
        }
        machine.wait(None);
    }
    assert!(ended.iter().all(|&count| (900..=1100).contains(&count)), "{ended:?}");
}

/// Submits as many reads as the ports accept, to `units` in turn; returns the maximum in flight.
fn flood(machine: &Model, ports: &mut [Port<Model>], units: u8) -> u32 {
    let (mut in_flight, mut most, mut ended, mut turn) = (0, 0, 0, 0);
    while ended < 500 {
        for (lane, port) in ports.iter_mut().enumerate() {
            // Every unit has its turn even if another one accepts no more.
            for _ in 0..64 {
                turn = (turn + 1) % units;
                let unit = LogicalUnitNumber::from_ufs(turn).to_bits();
                let command = Command { unit, ..read(0, buffer(machine, lane, 4096)) };
                in_flight += u32::from(port.start(command, machine.now()).is_ok());
            }
            port.ring(machine.now());
        }
        most = most.max(in_flight);
        machine.wait(ports.iter().filter_map(|port| port.poll_at()).min());
        for port in ports.iter_mut() {
            while let Some(outcome) = port.poll(machine.now()) {
                assert_eq!(outcome.ended, Ended::Good, "{:?}", port.failure());
                ended += 1;
                in_flight -= 1;
            }
        }
    }
    most
}

/// Handles the unit attentions after power-on.
fn greet(machine: &Model, port: &mut Port<Model>, units: u8) {
    for unit in 0..units {
        let unit = LogicalUnitNumber::from_ufs(unit).to_bits();
        done(port, machine, Command { unit, ..read(0, buffer(machine, 0, 4096)) });
    }
}

#[test]
fn the_device_gets_no_more_than_it_queues() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        for lanes in [1, 3] {
            let machine = machine(Config { queue_depth: 7, ..Config::default() });
            let mut ports = ports(&machine, UfsOptions { queue, lanes, ..UfsOptions::default() });
            greet(&machine, &mut ports[0], 1);
            assert_eq!(flood(&machine, &mut ports, 1), 7);
            let slots: u32 = ports.iter().map(|port| port.limits().slots).sum();
            assert_eq!(slots, 7);
        }
    }
}

/// Number of commands that the controller has fetched and not answered: those in flight, minus
/// those waiting in the submission rings and those that have ended and wait in the completion
/// rings.
fn active(machine: &Model, ports: &[Port<Model>], in_flight: u32) -> u32 {
    let bank = McqCap::from_bits(machine.read32(MCQCAP));
    let waiting = |head: u32, tail: u32, size: u32| {
        let (head, tail) = (machine.read32(head), machine.read32(tail));
        (tail + size - head) % size / 32
    };
    let in_rings = |queue: u8| {
        let bank = bank.queue_offset(queue);
        let (sq, cq) = (machine.read32(bank + mcq::SQDAO), machine.read32(bank + mcq::CQDAO));
        let bytes = |register: u32| (machine.read32(bank + register) & 0xFFFF) * 4 + 4;
        waiting(sq + mcq::SQHP, sq + mcq::SQTP, bytes(mcq::SQATTR))
            + waiting(cq + mcq::CQHP, cq + mcq::CQTP, bytes(mcq::CQATTR))
    };
    in_flight - (0..ports.len() as u8).map(in_rings).sum::<u32>()
}

#[test]
fn lanes_together_have_no_more_active_than_controller_and_device_take() {
    for (lanes, queue_depth, most, slots) in [(4, 200, 32, 128), (4, 12, 12, 12), (8, 5, 5, 8)] {
        let machine = machine(Config { queue_depth, ..Config::default() });
        let options = UfsOptions { queue: QueueMode::Mcq, lanes, ..UfsOptions::default() };
        let mut ports = ports(&machine, options);
        let mac = McqConfig::from_bits(machine.read32(MCQCONFIG)).active_commands();
        assert_eq!(mac, most, "what the driver writes");
        greet(&machine, &mut ports[0], 1);
        let taken: u32 = ports.iter().map(|port| port.limits().slots).sum();
        assert_eq!(taken, slots, "what the lanes take");
        let (mut in_flight, mut ended, mut seen) = (0, 0, 0);
        while ended < 2000 {
            for port in &mut ports {
                while port.start(read(0, buffer(&machine, 0, 4096)), machine.now()).is_ok() {
                    in_flight += 1;
                }
                port.ring(machine.now());
            }
            assert_eq!(in_flight, slots);
            seen = seen.max(active(&machine, &ports, in_flight));
            machine.wait(ports.iter().filter_map(|port| port.poll_at()).min());
            seen = seen.max(active(&machine, &ports, in_flight));
            for port in &mut ports {
                while let Some(outcome) = port.poll(machine.now()) {
                    assert_eq!(outcome.ended, Ended::Good, "{:?}", port.failure());
                    (ended, in_flight) = (ended + 1, in_flight - 1);
                }
            }
        }
        assert_eq!(seen, most, "no more, and no fewer");
    }
}

#[test]
fn a_unit_gets_no_more_than_it_queues() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        let mut units = [0, 0].map(|_| Some(UnitConfig::memory(64 << 20)));
        units[1].as_mut().expect("a unit").queue_depth = 3;
        let machine = machine(Config { units: units.into(), ..Config::default() });
        let mut ports = ports(&machine, UfsOptions { queue, ..UfsOptions::default() });
        greet(&machine, &mut ports[0], 2);
        // The other unit takes all the remaining slots.
        assert_eq!(flood(&machine, &mut ports, 2), 32);
        assert_eq!(ports[0].limits().slots, 32);
    }
}

#[test]
fn what_was_not_moved_is_believed_without_a_flag() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, UfsOptions { queue, ..UfsOptions::default() });
        let port = &mut ports[0];
        greet(&machine, port, 1);
        let plan = Plan::none().with(Kind::ShortRead, Trigger::Nth(2));
        machine.with_model(|model| model.arm_faults(plan));
        for residual in [0, 4096, 0] {
            let outcome = finish(port, &machine, read(0, buffer(&machine, 0, 8192)));
            let ended = if residual == 0 { Ended::Good } else { Ended::Answered };
            assert_eq!(outcome.ended, ended);
            if residual != 0 {
                let failure = port.failure();
                assert_eq!((failure.residual, failure.status.status), (residual, 0));
            }
        }
    }
}
