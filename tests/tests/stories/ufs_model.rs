//! The UFS driver on the UFS model: bring-up, reads and writes, in both queue designs.

use flysch_api::command::{Ended, Port as _, ScsiStatus};
use flysch_api::machine::Clock;
use flysch_models::ufs::Config;
use flysch_tests::ufs::{buffer, done, fill, finish, holds, host, machine, ports, read, write};
use flysch_ufs::{Options, QueueMode, State};

fn modes() -> [Options; 4] {
    let sdq = Options { queue: QueueMode::Sdq, ..Options::default() };
    let mcq = Options { queue: QueueMode::Mcq, ..Options::default() };
    let polled = |options: &Options| Options { interrupts: false, ..options.clone() };
    [polled(&sdq), polled(&mcq), sdq, mcq]
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
        assert_eq!(port.poll_at(), None, "nothing in flight, nothing to poll for");
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
        let mut ports = ports(&machine, Options { lanes: 4, ..options });
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
