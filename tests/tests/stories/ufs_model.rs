//! The UFS driver on the UFS model: bring-up, reads and writes, with both queue designs.

use flysch_api::command::{Command, Ended, NotStarted, Port as _, ScsiStatus};
use flysch_api::data::BadData;
use flysch_api::machine::{Clock, DmaRegion, DmaSlice, Machine as _};
use flysch_models::ufs::Config;
use flysch_tests::ufs::{
    Model, buffer, data_holds, done, fill, fill_data, finish, holds, host, list, machine,
    machine_with_lines, ports, read, segments, wait, whole, write,
};
use flysch_ufs::{Port, QueueMode, State, UfsOptions};
use flysch_wire::ufs::utrd::Ocs;

fn modes() -> [UfsOptions; 4] {
    let sdq = UfsOptions { queue: QueueMode::Sdq, ..UfsOptions::default() };
    let mcq = UfsOptions { queue: QueueMode::Mcq, ..UfsOptions::default() };
    let polled = |options: &UfsOptions| UfsOptions { interrupts: false, ..options.clone() };
    [polled(&sdq), polled(&mcq), sdq, mcq]
}

/// Whether a port wants to be polled only for an error check, which happens once a second if errors
/// raise no line.
fn is_at_rest(machine: &Model, port: &Port<Model>) -> bool {
    port.poll_at().is_none_or(|at| at.nanos_since(machine.now()) > 500_000_000)
}

#[test]
fn bring_up_learns_the_device_and_raises_the_link() {
    for options in modes() {
        let mcq = options.queue == QueueMode::Mcq;
        let machine = machine(Config::default());
        let host = host(&machine, options);
        assert_eq!(host.state(), State::Up);
        assert_eq!(host.is_mcq(), mcq);
        assert_eq!(host.device().descriptor.w_spec_version, 0x410);
        let units: Vec<_> = host.device().units.iter().flatten().collect();
        assert_eq!(units.len(), 1);
        assert_eq!(units[0].q_logical_block_count, (4 << 30) / 4096);
        assert!(host.link().high_speed, "{:?}", host.link());
        assert!(host.link().gear >= 3 && host.link().lanes == 2, "{:?}", host.link());
        assert_eq!(host.errors().history().count(), 0);
    }
}

#[test]
fn what_is_written_is_read_back() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        for (n, len) in [4096, 8192, 256 << 10, 512 << 10, 1 << 20].into_iter().enumerate() {
            let (out, back) = (buffer(&machine, 0, len), buffer(&machine, 8, len));
            fill(&machine, out, n as u64);
            done(port, &machine, write(1000 * n as u32, out));
            done(port, &machine, read(1000 * n as u32, back));
            assert!(holds(&machine, back, n as u64), "{len} bytes");
        }
    }
}

#[test]
fn a_full_queue_ends_every_command_once() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        done(port, &machine, read(0, buffer(&machine, 0, 4096)));
        let slots = port.limits().slots;
        assert_eq!(slots, 32, "every slot is there for commands");
        let (mut started, mut seen) = (0_u32, vec![0; 2000]);
        while seen.iter().sum::<u32>() < 2000 {
            while started < 2000 {
                let data = buffer(&machine, (started % slots) as usize, 4096);
                if port.start(read(started, data), machine.now()).is_err() {
                    break;
                }
                started += 1;
            }
            port.ring(machine.now());
            let mut any = false;
            while let Some(outcome) = port.poll(machine.now()) {
                assert_eq!(outcome.ended, Ended::Good);
                assert!(outcome.device_done.is_some());
                seen[outcome.token.number() as usize] += 1;
                any = true;
            }
            if !any {
                machine.wait(port.poll_at());
            }
        }
        assert!(seen.iter().all(|&times| times == 1));
        assert!(is_at_rest(&machine, port), "nothing in flight, nothing to poll for");
    }
}

#[test]
fn out_of_range_comes_back_with_sense() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        done(port, &machine, read(0, buffer(&machine, 0, 4096)));
        let outcome = finish(port, &machine, read(1 << 20, buffer(&machine, 0, 4096)));
        assert_eq!(outcome.ended, Ended::Answered);
        let ScsiStatus { status, sense } = port.failure().status;
        let sense = sense.as_slice();
        assert_eq!(status, 2);
        assert_eq!((sense[2] & 0xF, sense[12]), (5, 0x21));
    }
}

#[test]
fn many_lanes_share_one_controller() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, UfsOptions { lanes: 4, ..options });
        assert_eq!(ports.len(), 4);
        for round in 0..20 {
            for (n, port) in ports.iter_mut().enumerate() {
                let data = buffer(&machine, n, 4096);
                fill(&machine, data, round * 4 + n as u64);
                done(port, &machine, write(64 * n as u32, data));
            }
            for (n, port) in ports.iter_mut().enumerate() {
                let data = buffer(&machine, 10 + n, 4096);
                done(port, &machine, read(64 * n as u32, data));
                assert!(holds(&machine, data, round * 4 + n as u64));
            }
        }
    }
}

/// Data in one range and in lists of all shapes, there and back.
#[test]
fn lists_of_segments_come_back() {
    for options in modes() {
        // In queues, no line of 64 bytes is shared by host and device.
        let line = if options.queue == QueueMode::Mcq { 64 } else { 32 };
        let machine = machine_with_lines(Config::default(), line);
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        done(port, &machine, read(0, buffer(&machine, 0, 4096)));
        for (n, count) in [1, 2, 3, 7, 8, 31, 127, 128].into_iter().enumerate() {
            let bytes = 8192 * (1 + n as u32 % 4);
            let (out, back) =
                (segments(&machine, 0, bytes, count), segments(&machine, 1, bytes, count));
            fill_data(&machine, &out, n as u64);
            done(port, &machine, Command { data: out, ..write(100, whole(bytes)) });
            done(port, &machine, Command { data: back, ..read(100, whole(bytes)) });
            assert!(data_holds(&machine, &back, n as u64), "{count} segments of {bytes} bytes");
        }
    }
}

#[test]
fn bad_lists_never_reach_the_device() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        let one = buffer(&machine, 0, 4096);
        let at = |offset: u64, len| DmaSlice { address: one.address + offset, len };
        let memory = machine.memory();
        let own = DmaSlice { address: memory.address() + 4096, len: 2048 };
        let far = DmaSlice { address: memory.address() + memory.len() as u64 - 1024, len: 2048 };
        let many: Vec<_> = (0..129).map(|n| at(n * 64, 32)).collect();
        for (ranges, bad) in [
            (vec![at(0, 2048), at(1024, 2048)], BadData::Overlap),
            (vec![at(0, 2048), at(4098, 2048)], BadData::Misaligned),
            (vec![at(0, 2050), at(4096, 2046)], BadData::Misaligned),
            (vec![at(0, 2048), own], BadData::Outside),
            (vec![at(0, 2048), far], BadData::Outside),
            (many, BadData::TooMany),
        ] {
            let list = list(&machine, 2, &ranges);
            let why = port.start(Command { data: list, ..read(0, one) }, machine.now());
            let why = why.map_err(|declined| declined.why);
            assert_eq!(why, Err(NotStarted::BadData(bad)), "{ranges:x?}");
        }
        assert!(is_at_rest(&machine, port), "nothing was started");
        let own = Command { data: own.into(), ..read(0, one) };
        let why = port.start(own, machine.now()).map_err(|declined| declined.why);
        assert_eq!(why, Err(NotStarted::BadData(BadData::Outside)), "the driver's own memory");
        done(port, &machine, read(0, one));
    }
}

/// Thousands of ranges come and go around and during the transfers, as behind a virtual IOMMU.
#[test]
fn memory_comes_and_goes_while_commands_run() {
    for options in modes() {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, options);
        let port = &mut ports[0];
        let first = buffer(&machine, 0, 4096);
        done(port, &machine, read(0, first));
        // There is no memory after the machine's own.
        let beyond = machine.memory().address() + machine.memory().len() as u64;
        let window = |n: u64| DmaRegion::zeroed(4096, beyond + n * 8192);
        let (mut good, mut started) = (0, 0);
        for round in 0..2000_u64 {
            machine.with_model(|model| {
                let memory = model.memory_mut();
                memory.map(window(round), true).expect("a hole");
                if round >= 3 {
                    assert_eq!(memory.unmap(beyond + (round - 3) * 8192, 4096), 1);
                }
            });
            let data = buffer(&machine, round as usize % 32, 4096);
            started += u32::from(port.start(read(round as u32, data), machine.now()).is_ok());
            port.ring(machine.now());
            while let Some(outcome) = port.poll(machine.now()) {
                good += u32::from(outcome.ended == Ended::Good);
            }
            machine.wait(port.poll_at());
        }
        while good < started {
            good += u32::from(wait(port, &machine).ended == Ended::Good);
        }
        assert_eq!(machine.with_model(|model| model.memory_mut().ranges()), 4);
        // The data's own memory is removed while the command is in the device.
        let all = machine.with_model(|model| model.memory_mut().clone());
        port.start(read(1, first), machine.now()).expect("room");
        port.ring(machine.now());
        let (base, len) = (machine.memory().address(), machine.memory().len() as u64);
        machine.with_model(|model| {
            model.memory_mut().unmap(base, len);
            // The memory that the driver needs for answers stays.
            let driver = machine.device_memory().carve(0, 1 << 20);
            model.memory_mut().map(driver, true).expect("nothing is there");
        });
        assert_eq!(wait(port, &machine).ended, Ended::Host);
        assert_eq!(port.failure().code, u32::from(Ocs::InvalidPrdtAttributes.into_bits()));
        machine.with_model(|model| *model.memory_mut() = all);
        done(port, &machine, read(1, first));
    }
}
