//! Our driver on QEMU's NVMe device, both releases: an independent interpretation of the
//! specification.

use flysch_api::block::{BlockDevice as _, Operation as Wish, Request};
use flysch_api::command::{Command, Direction, Ended, Nvme, Ordering, Port as _, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock as _, DmaRegion, Instant, Machine as _, Registers as _};
use flysch_cam::{Disk, Family as _, nda};
use flysch_nvme::{AdminCommand, Cause, Host, NvmeError, NvmeOptions, Operation, Port};
use flysch_qemu::{Backing, Controller, Machine, NvmeDevice, Unit};
use flysch_tests::command::{flysch, ran};
use flysch_tests::qemu::{Release, releases};
use flysch_wire::nvme::registers::CMBMSC;
use flysch_wire::nvme::{AdminOpcode, Cns, FeatureId, LogId, Status, feature::Select};

const BYTES: u64 = 32 << 20;

fn machine(release: &Release, block_size: u32, namespaces: u8) -> Machine {
    machine_of(release, NvmeDevice::new(block_size), namespaces)
}

fn machine_of(release: &Release, device: NvmeDevice, namespaces: u8) -> Machine {
    let backing = Backing::Memory { bytes: BYTES };
    let unit = |lun| Unit { lun, backing: backing.clone(), read_only: false };
    let options = flysch_qemu::QemuOptions {
        program: Some(release.program.clone()),
        controller: Controller::Nvme(device),
        queues: 4,
        memory_bytes: 64 << 20,
        units: (0..namespaces).map(unit).collect(),
        socket: None,
    };
    Machine::start(&options).unwrap_or_else(|e| panic!("{}: {e}", release.name))
}

/// A running host, and the remaining memory.
fn host(machine: &Machine, options: NvmeOptions) -> (Host<Machine>, DmaRegion) {
    let needed = Host::<Machine>::memory_len(&options).next_multiple_of(4096);
    let memory = machine.memory();
    let mut host = Host::new(machine.clone(), memory.carve(0, needed), options).expect("host");
    host.bring_up(machine).expect("bring-up");
    (host, memory.carve(needed, memory.len() - needed))
}

#[test]
fn what_was_written_through_the_command_comes_back() {
    for release in releases() {
        for keys in ["block=4096", "block=512,queues=3"] {
            let target = format!("nvme@qemu,size=64M,{keys},qemu={}", release.program.display());
            let words =
                "--rw=randrw --bs=4k --iodepth=8 --number_ios=100 --size=4m --verify=crc32c";
            let mut command = flysch();
            command.args(["bench", "--on", &target]).args(words.split(' '));
            let ran = ran(command.output().unwrap());
            assert_eq!(ran.status, 0, "{} {keys}: {}", release.name, ran.stderr);
        }
    }
}

/// Fills every 8 bytes with their position and a seed.
fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let word = |n: usize| (n as u64 ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..bytes / 8).flat_map(|n| word(n).to_le_bytes()).collect()
}

fn carry_out(disk: &mut Disk<Port<Machine>>, machine: &Machine, request: &Request) {
    disk.submit(request, machine.now()).expect("taken");
    disk.ring(machine.now());
    let completion = loop {
        if let Some(completion) = disk.poll(machine.now()) {
            break completion;
        }
        machine.wait(disk.poll_at());
    };
    assert_eq!(completion.result, Ok(()), "{request:?}");
}

/// One range and lists of ranges, from a block to more than one command can transfer, at every
/// offset in a page: what is written in one shape is read in another.
#[test]
fn data_of_every_shape_comes_back() {
    for (release, sgls) in releases().into_iter().flat_map(|r| [(r.clone(), true), (r, false)]) {
        // QEMU's MDTS is 7.
        data_of_every_shape(&machine(&release, 512, 1), 512 << 10, sgls);
    }
}

/// The same on any machine with blocks of 512 bytes whose commands transfer at most `transfer_max`
/// bytes.
pub(crate) fn data_of_every_shape(machine: &Machine, transfer_max: u32, sgls: bool) {
    let (host, memory) = host(machine, NvmeOptions { sgls, ..NvmeOptions::default() });
    let space = &host.device().namespaces[0];
    let shape = nda::shape(space.id, &host.device().controller, &space.data).expect("a disk");
    let port = host.into_ports().remove(0);
    assert_eq!(port.limits().transfer_max, transfer_max);
    let scratch = memory.carve(0, 1 << 16);
    let data = memory.carve(1 << 16, 16 << 20);
    let mut disk = Disk::new(port, shape, scratch, &Default::default()).expect("disk");
    let request = |operation, data: Data, length: usize| Request {
        operation,
        force_unit_access: false,
        offset: 512 * 7,
        length: length as u64,
        data,
        crypto: None,
        token: 0,
        accepted: Instant::START,
    };
    let lengths = [512, 4096, 8192, 12288, 69632, 1 << 20, 3 << 20];
    for (n, length) in lengths.into_iter().enumerate() {
        for skew in [0, 4, 516, 4092] {
            let bytes = pattern(length, (n * 8 + skew) as u64);
            data.write(skew, &bytes);
            let one = Data::One(data.slice(skew, length as u32));
            carry_out(&mut disk, machine, &request(Wish::Write, one, length));
            // A list that omits every other page of memory. Its middle consists of whole pages or,
            // if the controller supports that, of odd pieces.
            let piece = if sgls { 4092 - skew / 8 * 4 } else { 4096 };
            let base = 8 << 20;
            let mut pieces = vec![];
            let (mut at, mut left) = (base + 3584, length);
            let most = if sgls { 128 } else { 256 };
            while left > 0 && pieces.len() < most {
                let len = left.min(piece - (at % 4096).min(piece - 512));
                pieces.push(data.slice(at, len as u32));
                (at, left) = (at / 4096 * 4096 + 8192, left - len);
            }
            let length = pieces.iter().map(|piece| piece.len as usize).sum::<usize>() / 512 * 512;
            let list = Data::list(&data, (15 << 20) + 8, &pieces).expect("room");
            let list = list.part(&data, 0, length as u32).expect("a part");
            data.fill(base, 6 << 20, 0xEE);
            carry_out(&mut disk, machine, &request(Wish::Read, list, length));
            let mut back = vec![];
            for piece in &pieces {
                let at = data.offset_of(piece.address, piece.len as usize).unwrap();
                let mut part = vec![0; piece.len as usize];
                data.read(at, &mut part);
                back.extend(part);
            }
            assert!(back[..length] == bytes[..length], "{length} bytes, skew {skew}");
        }
    }
    let flush = request(Wish::Flush, Data::NONE, 0);
    carry_out(&mut disk, machine, &Request { offset: 0, ..flush });
    let delete = Request { length: 4096, ..request(Wish::Delete, Data::NONE, 0) };
    carry_out(&mut disk, machine, &delete);
}

/// Resets while commands are in flight, on four lanes: every command ends once, and I/O continues.
#[test]
fn a_reset_ends_every_command_once() {
    for release in releases() {
        resets(&machine(&release, 4096, 2), 4096);
    }
}

/// The same on any machine with two namespaces with blocks of this size.
pub(crate) fn resets(machine: &Machine, block: u32) {
    let options = NvmeOptions { lanes: 4, depth: 16, ..NvmeOptions::default() };
    let (host, memory) = host(machine, options);
    let mut ports = host.into_ports();
    let read = |n: u32| Command {
        unit: 1 + u64::from(n % 2),
        payload: flysch_api::command::Nvme::transfer(false, n.into(), 1, false),
        direction: Direction::FromDevice,
        data: memory.slice(n as usize * 4096, block).into(),
        crypto: None,
        ordering: Ordering::Simple,
        deadline: machine.now().after_nanos(30_000_000_000),
        token: Token::new(n),
    };
    for round in 0..3 {
        let mut open: Vec<bool> = vec![];
        for (lane, port) in ports.iter_mut().enumerate() {
            for n in 0..16 {
                port.start(read((lane * 16 + n) as u32), machine.now()).expect("room");
                open.push(true);
            }
            port.ring(machine.now());
        }
        if round > 0 {
            ports[0].host_mut().unwrap().begin(Operation::Reset).expect("up");
        }
        while open.contains(&true) {
            for port in &mut ports {
                while let Some(outcome) = port.poll(machine.now()) {
                    let token = outcome.token.number() as usize;
                    assert!(std::mem::take(&mut open[token]), "{token} ended twice");
                    assert!(matches!(outcome.ended, Ended::Good | Ended::Reset), "{outcome:?}");
                    assert!(round > 0 || outcome.ended == Ended::Good, "{outcome:?}");
                }
            }
        }
        let host = ports[0].host_mut().unwrap();
        while host.state() != flysch_nvme::State::Up {
            host.poll(machine.now());
        }
        host.poll(machine.now());
    }
}

/// Runs one command; returns how it ended, and the status if the device sent one.
fn one(port: &mut Port<Machine>, machine: &Machine, command: Command<Nvme>) -> (Ended, Status) {
    port.start(command, machine.now()).expect("room");
    port.ring(machine.now());
    loop {
        if let Some(outcome) = port.poll(machine.now()) {
            return (outcome.ended, Status::of_field(port.failure().status.status));
        }
        machine.wait(port.poll_at());
    }
}

fn transfer(machine: &Machine, write: bool, block: u64, data: &DmaRegion) -> Command<Nvme> {
    Command {
        unit: 1,
        payload: Nvme::transfer(write, block, 1, false),
        direction: if write { Direction::ToDevice } else { Direction::FromDevice },
        data: data.slice(0, 4096).into(),
        crypto: None,
        ordering: Ordering::Simple,
        deadline: machine.now().after_nanos(10_000_000_000),
        token: Token::new(0),
    }
}

/// QEMU's own controller memory buffer and doorbell buffers: data passed through them comes back.
#[test]
fn queues_in_controller_memory_and_doorbells_in_memory_work() {
    for release in releases() {
        for (memory_mib, shadow_doorbells) in [(0, false), (0, true), (1, false), (1, true)] {
            let device = NvmeDevice { memory_mib, ..NvmeDevice::new(4096) };
            let machine = machine_of(&release, device, 1);
            let options =
                NvmeOptions { lanes: 2, depth: 8, shadow_doorbells, ..NvmeOptions::default() };
            let (host, memory) = host(&machine, options);
            // CRE and CMSE: the buffer is where the driver placed it.
            assert_eq!(machine.read32(CMBMSC) & 3, if memory_mib > 0 { 3 } else { 0 });
            // The first port carries the host.
            let mut ports = host.into_ports();
            for (lane, port) in (0..).zip(&mut ports) {
                // More than once around the rings.
                for n in 0..40 {
                    let block = lane * 40 + n;
                    memory.store64(64, block ^ 0x5A5A);
                    let write = transfer(&machine, true, block, &memory);
                    assert_eq!(one(port, &machine, write).0, Ended::Good);
                    memory.store64(64, 0);
                    let read = transfer(&machine, false, block, &memory);
                    assert_eq!(one(port, &machine, read).0, Ended::Good);
                    assert_eq!(memory.load64(64), block ^ 0x5A5A);
                }
            }
        }
    }
}

/// A zoned namespace accepts writes only at its write pointer; a subsystem has two controllers.
#[test]
fn zones_and_a_second_controller_are_there() {
    for release in releases() {
        let device = NvmeDevice { zone_bytes: 1 << 20, controllers: 2, ..NvmeDevice::new(4096) };
        let machine = machine_of(&release, device, 1);
        let (mut host, memory) = host(&machine, NvmeOptions::default());
        assert_eq!(host.device().namespaces[0].command_set, 2);
        let list = host.admin(&machine, AdminCommand::identify(Cns::Controllers, 0));
        let list = list.expect("a list").data;
        assert_eq!(u16::from_le_bytes([list[0], list[1]]), 2);
        let mut port = host.into_ports().remove(0);
        let write = |block| transfer(&machine, true, block, &memory);
        assert_eq!(one(&mut port, &machine, write(256)).0, Ended::Good);
        assert_eq!(one(&mut port, &machine, write(257)).0, Ended::Good);
        let wrong = one(&mut port, &machine, write(259));
        assert_eq!(wrong, (Ended::Answered, Status::ZoneInvalidWrite));
    }
}

/// What `flysch nvme` reports about QEMU's zones, and how it manages them.
#[test]
fn zones_are_managed_by_command() {
    let nvme = |target: &str, words: &str| {
        let mut command = flysch();
        command.args(["nvme", "--on", target]).args(words.split(' '));
        ran(command.output().unwrap())
    };
    for release in releases() {
        let keys = "size=8M,zones=1M,controllers=2,namespaces=2";
        let target = format!("nvme@qemu,{keys},qemu={}", release.program.display());
        let report = nvme(&target, "zns report-zones -d 2");
        assert_eq!(report.status, 0, "{}", report.stderr);
        for part in ["nr_zones: 2", "SLBA: 0x100", "State: EMPTY", "SEQWRITE_REQ"] {
            assert!(report.stdout.contains(part), "{part}: {}", report.stdout);
        }
        let controllers = nvme(&target, "list-ctrl");
        assert!(controllers.stdout.contains("present: 2"), "{}", controllers.stdout);
        assert_eq!(nvme(&target, "zns open-zone -s 256").status, 0);
        let refused = nvme(&target, "zns close-zone -s 256");
        assert!(refused.stderr.contains("Invalid Zone State Transition"), "{}", refused.stderr);
        // With the block layer, as by zonectl(8), in one session: QEMU stores nothing.
        let folder = tempfile::tempdir().unwrap();
        let script = "zone -d nda0 -c open -l 0x100\nzone -d nda0 -c rz -l 0x100\n\
            zone -d nda0 -c finish --yes -l 0x200\nzone -d nda0 -c rz -o full\n\
            zone -d nda0 -c rwp --yes -a\nzone -d nda0 -c rz -o empty -P summary\n";
        std::fs::write(folder.path().join("script"), script).unwrap();
        let mut command = flysch();
        command.args(["geom", "--on", &target, "--script", "script", "diskinfo", "nda0"]);
        let said = ran(command.current_dir(folder.path()).output().unwrap());
        assert_eq!(said.status, 0, "{}", said.stderr);
        let shown: Vec<&str> = said.stdout.lines().map(str::trim).collect();
        let zone = |start: &str, how: &str| {
            shown.iter().any(|line| line.starts_with(start) && line.contains(how))
        };
        assert!(zone("0x100,", "Explicit Open"), "{}", said.stdout);
        assert!(zone("0x200,", "Full"), "{}", said.stdout);
        assert!(shown.contains(&"8 zones, Maximum LBA 0x7ff (2047)"), "{}", said.stdout);
        // Zones are written from start to end, which a random job does not do.
        let mut command = flysch();
        command.args(["bench", "--on", &target, "--rw=randwrite", "--bs=4k", "--size=1m"]);
        let refused = ran(command.output().unwrap());
        assert_ne!(refused.status, 0, "{}", refused.stdout);
        assert!(refused.stderr.contains("write"), "{}", refused.stderr);
    }
}

#[test]
fn the_controller_answers_what_is_asked() {
    for release in releases() {
        let machine = machine(&release, 4096, 3);
        let (mut host, _) = host(&machine, NvmeOptions::default());
        let ids: Vec<u32> = host.device().namespaces.iter().map(|space| space.id).collect();
        assert_eq!(ids, [1, 2, 3]);
        assert!(host.device().controller.mn.starts_with(b"QEMU NVMe Ctrl"));
        let smart = host.log_page(&machine, (LogId::Smart, u32::MAX), 512).expect("SMART");
        assert_eq!(u16::from_le_bytes([smart.data[1], smart.data[2]]), 323, "QEMU: 50 degrees");
        let cache = host.feature(&machine, FeatureId::WriteCache, Select::Current);
        assert_eq!(cache, Ok(1));
        host.set_feature(&machine, FeatureId::WriteCache, 0).expect("write cache");
        assert_eq!(host.feature(&machine, FeatureId::WriteCache, Select::Current), Ok(0));
        let refused = host.admin(&machine, AdminCommand::new(AdminOpcode::KeepAlive));
        let cause = Cause::Status(AdminOpcode::KeepAlive, Status::InvalidOpcode);
        assert_eq!(refused, Err(NvmeError::Failed(cause)));
        let own = host.admin(&machine, AdminCommand::new(AdminOpcode::DeleteSq));
        assert!(matches!(own, Err(NvmeError::Unsupported(_))), "the driver's queues are its own");
        let space = host.admin(&machine, AdminCommand::identify(Cns::Namespace, 2)).expect("data");
        assert_eq!(u64::from_le_bytes(space.data[..8].try_into().unwrap()), BYTES / 4096);
        host.shut_down(&machine).expect("shutdown");
        assert_eq!(
            host.admin(&machine, AdminCommand::identify(Cns::Controller, 0)),
            Err(NvmeError::NotUp)
        );
        host.bring_up(&machine).expect("it comes up again");
    }
}
