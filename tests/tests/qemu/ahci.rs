//! Our driver on QEMU's AHCI device, both releases: an independent interpretation of the
//! specification.

use flysch_ahci::{
    AhciError, AhciOptions, AtaCommand, ErrorKind, Host, Operation, Output, Port, State,
};
use flysch_api::block::{BlockDevice as _, Operation as Wish, Request};
use flysch_api::command::{Ata, Command, Direction, Ended, Ordering, Port as _, Taskfile, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock as _, DmaRegion, Instant, Machine as _};
use flysch_cam::{Disk, Family as _, ada};
use flysch_qemu::{Backing, Controller, Machine, Unit};
use flysch_tests::command::{flysch, ran};
use flysch_tests::qemu::{Release, releases};
use flysch_wire::ata::Opcode;

const BYTES: u64 = 32 << 20;
const SECTORS: u64 = BYTES / 512;

/// Disks at ports 0 and 3, a CD at port 1.
fn machine(release: &Release) -> Machine {
    let backing = Backing::Memory { bytes: BYTES };
    let unit = |lun, read_only| Unit { lun, backing: backing.clone(), read_only };
    let options = flysch_qemu::QemuOptions {
        program: Some(release.program.clone()),
        controller: Controller::Ahci,
        memory_bytes: 64 << 20,
        units: vec![unit(0, false), unit(1, true), unit(3, false)],
        ..flysch_qemu::QemuOptions::default()
    };
    Machine::start(&options).unwrap_or_else(|e| panic!("{}: {e}", release.name))
}

/// The ports of a running host, and the remaining memory.
fn ports(machine: &Machine, options: AhciOptions) -> (Vec<Port<Machine>>, DmaRegion) {
    let needed = Host::<Machine>::memory_len(&options).next_multiple_of(4096);
    let memory = machine.memory();
    let mut host = Host::new(machine.clone(), memory.carve(0, needed), options).expect("host");
    host.bring_up(machine).expect("bring-up");
    (host.into_ports(), memory.carve(needed, memory.len() - needed))
}

#[test]
fn what_was_written_through_the_command_comes_back() {
    for release in releases() {
        for keys in ["port=0", "port=5,ncq=off"] {
            let target = format!("ahci@qemu,size=64M,{keys},qemu={}", release.program.display());
            let words =
                "--rw=randrw --bs=4k --iodepth=32 --number_ios=200 --size=4m --verify=crc32c";
            let mut command = flysch();
            command.args(["bench", "--on", &target]).args(words.split(' '));
            let ran = ran(command.output().unwrap());
            assert_eq!(ran.status, 0, "{} {keys}: {}", release.name, ran.stderr);
        }
    }
}

#[test]
fn every_port_tells_what_is_at_it() {
    for release in releases() {
        let machine = machine(&release);
        let (ports, _) = ports(&machine, AhciOptions::default());
        let states: Vec<State> = ports.iter().map(Port::state).collect();
        use State::{Empty, Up};
        assert_eq!(states, [Up, Up, Empty, Up, Empty, Empty], "{}", release.name);
        let disk = ports[0].device().expect("a disk");
        assert!(disk.queued && disk.identify.sectors() == SECTORS);
        assert!(!ports[1].device().expect("a CD").queued);
    }
}

fn read(memory: &DmaRegion, lba: u64, token: u32, now: Instant) -> Command<Ata> {
    Command {
        unit: 0,
        payload: Ata::transfer(false, lba, 8, false),
        direction: Direction::FromDevice,
        data: Data::One(memory.slice(token as usize * 4096, 4096)),
        crypto: None,
        ordering: Ordering::Simple,
        deadline: now.after_nanos(20_000_000_000),
        token: Token::new(token),
    }
}

fn ends(port: &mut Port<Machine>, machine: &Machine, count: usize) -> Vec<(u32, Ended)> {
    port.ring(machine.now());
    let mut ends = vec![];
    while ends.len() < count {
        match port.poll(machine.now()) {
            Some(outcome) => ends.push((outcome.token.number(), outcome.ended)),
            None => {
                machine.wait(port.poll_at());
            }
        }
    }
    ends.sort_by_key(|end| end.0);
    ends
}

/// QEMU has no log of queued errors, and its error persists: each command is retried alone, and the
/// next queued ones succeed.
#[test]
fn a_command_that_fails_among_others_ends_alone() {
    for release in releases() {
        let machine = machine(&release);
        let (mut ports, memory) =
            ports(&machine, AhciOptions { ports: 1, ..AhciOptions::default() });
        let port = &mut ports[0];
        for round in 0..3 {
            for token in 0..8 {
                let lba = if token == 5 { SECTORS } else { u64::from(token) * 8 };
                let now = machine.now();
                port.start(read(&memory, lba, token, now), now).expect("room");
            }
            for (token, ended) in ends(port, &machine, 8) {
                let expected = if token == 5 { Ended::Answered } else { Ended::Good };
                assert_eq!(ended, expected, "{}, round {round}, {token}", release.name);
            }
        }
        assert_eq!(port.errors().count(ErrorKind::NoLog), 3);
        assert_eq!(port.errors().count(ErrorKind::Comreset), 0);
    }
}

/// COMRESET and resets of the HBA with commands in flight: each ends once, and I/O continues.
#[test]
fn a_reset_ends_every_command_once() {
    for release in releases() {
        let machine = machine(&release);
        let (mut ports, memory) =
            ports(&machine, AhciOptions { ports: 1, ..AhciOptions::default() });
        let port = &mut ports[0];
        for round in 0..4 {
            for token in 0..32 {
                let now = machine.now();
                port.start(read(&memory, u64::from(token) * 8, token, now), now).expect("room");
            }
            port.ring(machine.now());
            match round % 2 {
                0 => port.begin(Operation::Reset).expect("it begins"),
                _ => port.reset_hba().expect("it begins"),
            }
            let ends = ends(port, &machine, 32);
            let well = |end: &(u32, Ended)| matches!(end.1, Ended::Good | Ended::Reset);
            assert!(ends.iter().all(well), "{}: {ends:?}", release.name);
            assert!(ends.iter().map(|end| end.0).eq(0..32), "{}: {ends:?}", release.name);
            while port.drive(machine.now()) == flysch_ahci::Progress::Busy
                || port.state() != State::Up
            {
                machine.wait(port.poll_at());
            }
        }
    }
}

#[test]
fn operations_of_disk_and_cd() {
    for release in releases() {
        let machine = machine(&release);
        let (mut ports, _) = ports(&machine, AhciOptions::default());
        let mut native = AtaCommand::new(Opcode::ReadNativeMaxExt);
        native.task = Taskfile { device: 0x40, ..native.task };
        let reply = ports[0].command(&machine, native).expect("an answer");
        assert_eq!(reply.status.lba, SECTORS - 1, "{}", release.name);
        let reply = ports[0].command(&machine, AtaCommand::new(Opcode::Sanitize));
        assert!(reply.expect("an answer").status.is_error(), "QEMU has no sanitize");
        let reply = ports[0].command(&machine, AtaCommand::new(Opcode::CheckPowerMode));
        assert_eq!(reply.expect("an answer").count, 0xFF);
        // INQUIRY.
        let mut packet = [0; 16];
        (packet[0], packet[4]) = (0x12, 36);
        let reply = ports[1].command(&machine, AtaCommand::packet(packet, 36)).expect("an answer");
        assert_eq!((reply.data[0], &reply.data[8..12]), (5, &b"QEMU"[..]), "{}", release.name);
        assert_eq!(ports[0].run(&machine, Operation::Shutdown), Ok(Output::None));
        assert_eq!(ports[0].run(&machine, Operation::Reset), Ok(Output::None));
        assert_eq!(ports[2].run(&machine, Operation::Reset), Err(AhciError::NoDevice));
    }
}

/// Ranges and lists at even addresses: what is written in one shape is read in another, with and
/// without queues.
#[test]
fn data_of_every_shape_comes_back() {
    for (release, queued) in releases().into_iter().flat_map(|r| [(r.clone(), true), (r, false)]) {
        let machine = machine(&release);
        let options = AhciOptions { queued, ports: 1 << 3, ..AhciOptions::default() };
        let (mut ports, memory) = ports(&machine, options);
        let port = ports.remove(0);
        let device = port.device().expect("a disk");
        let ways = ada::Ways { queued, force_unit_access: false, trims: true };
        let shape = ada::shape(&device.identify, ways).expect("a disk");
        let data = memory.carve(1 << 16, 16 << 20);
        let mut disk =
            Disk::new(port, shape, memory.carve(0, 1 << 16), &Default::default()).expect("disk");
        let mut carry_out = |operation, data: Data, length: u64| {
            let request = Request {
                operation,
                force_unit_access: operation == Wish::Write,
                offset: 512 * 7,
                length,
                data,
                crypto: None,
                token: 0,
                accepted: Instant::START,
            };
            disk.submit(&request, machine.now()).expect("taken");
            disk.ring(machine.now());
            let completion = loop {
                if let Some(completion) = disk.poll(machine.now()) {
                    break completion;
                }
                machine.wait(disk.poll_at());
            };
            assert_eq!(completion.result, Ok(()), "{request:?}");
        };
        for (n, length) in [512_usize, 4096, 69_632, 1 << 20, 3 << 20].into_iter().enumerate() {
            for skew in [0, 2, 4094] {
                let byte =
                    |at: usize| (at as u32 ^ (n as u32) << 3).wrapping_mul(0x9E37_79B9) >> 24;
                let bytes: Vec<u8> = (0..length).map(|at| byte(at) as u8).collect();
                data.write(skew, &bytes);
                let one = Data::One(data.slice(skew, length as u32));
                carry_out(Wish::Write, one, length as u64);
                let piece = length.div_ceil(100).next_multiple_of(2).max(510);
                let mut pieces = vec![];
                let (mut at, mut left) = (8 << 20, length);
                while left > 0 {
                    let len = left.min(piece);
                    pieces.push(data.slice(at, len as u32));
                    (at, left) = (at + len + 6, left - len);
                }
                let list = Data::list(&data, 15 << 20, &pieces).expect("room");
                data.fill(8 << 20, 6 << 20, 0xEE);
                carry_out(Wish::Read, list, length as u64);
                let mut back = vec![];
                for piece in &pieces {
                    let at = data.offset_of(piece.address, piece.len as usize).unwrap();
                    let mut part = vec![0; piece.len as usize];
                    data.read(at, &mut part);
                    back.extend(part);
                }
                assert!(back == bytes, "{}: {length} bytes, skew {skew}", release.name);
            }
        }
        carry_out(Wish::Flush, Data::NONE, 0);
        carry_out(Wish::Delete, Data::NONE, 4096);
    }
}
