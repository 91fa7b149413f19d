//! Our driver on QEMU's eMMC device (QEMU 11) and SD card: an independent interpretation of the
//! specification.

use flysch_api::block::{
    BlockDevice as _, BlockError as Failed, Operation as Wish, Refused, Request,
};
use flysch_api::data::Data;
use flysch_api::machine::{Clock as _, DmaRegion, Instant, Machine as _};
use flysch_cam::{Disk, sdda};
use flysch_emmc::{
    CardKind, Cause, EmmcError, EmmcOptions, EraseKind, Host, Operation, Output, Port,
};
use flysch_emmc::{RpmbError, RpmbKey, RpmbRequest, Timing};
use flysch_qemu::{Backing, Controller, Machine, Unit};
use flysch_tests::command::{flysch, ran};
use flysch_tests::qemu::{Release, releases};
use flysch_tests::wait::PATIENCE;
use flysch_wire::mmc::rpmb::RpmbStatus;
use rustix::process::{Signal, kill_process};

use crate::life::{gone_soon, pid};

const USER: u64 = 64 << 20;
const BOOT: u64 = 1 << 20;
const RPMB: u64 = 128 << 10;
const EMMC: Controller = Controller::Emmc { boot_bytes: BOOT, rpmb_bytes: RPMB };

/// Releases whose eMMC device can be instantiated: earlier ones have the type, but only for boards.
fn with_emmc() -> impl Iterator<Item = Release> {
    releases().into_iter().filter(|release| release.is_11)
}

fn machine(release: &Release, controller: Controller) -> Machine {
    let bytes = if controller == Controller::Sd { USER } else { USER + 2 * BOOT + RPMB };
    let backing = Backing::Memory { bytes };
    let options = flysch_qemu::QemuOptions {
        program: Some(release.program.clone()),
        controller,
        memory_bytes: 64 << 20,
        units: vec![Unit { lun: 0, backing, read_only: false }],
        ..flysch_qemu::QemuOptions::default()
    };
    Machine::start(&options).unwrap_or_else(|e| panic!("{}: {e}", release.name))
}

/// A running host, and the remaining memory.
fn host(machine: &Machine, options: EmmcOptions) -> (Host<Machine>, DmaRegion) {
    let needed = Host::<Machine>::memory_len(&options).next_multiple_of(4096);
    let memory = machine.memory();
    let mut host = Host::new(machine.clone(), memory.carve(0, needed), options).expect("host");
    host.bring_up(machine).expect("bring-up");
    (host, memory.carve(needed, memory.len() - needed))
}

#[test]
fn what_was_written_through_the_command_comes_back() {
    let words = "--rw=randrw --bs=4k --iodepth=8 --number_ios=100 --size=4m --verify=crc32c";
    let verified = |target: String| {
        let mut command = flysch();
        command.args(["bench", "--on", &target]).args(words.split(' '));
        let ran = ran(command.output().unwrap());
        assert_eq!(ran.status, 0, "{target}: {}", ran.stderr);
    };
    for release in releases() {
        for keys in ["size=64M", "size=64M,dma=off"] {
            verified(format!("sd@qemu,{keys},qemu={}", release.program.display()));
        }
    }
    for release in with_emmc() {
        for keys in ["size=64M", "size=64M,dma=off", "size=64M,boot=8M,partition=boot1"] {
            verified(format!("emmc@qemu,{keys},qemu={}", release.program.display()));
        }
    }
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

/// From one sector to more than one command can transfer, by DMA and by the buffer port.
#[test]
fn data_of_every_length_comes_back() {
    for (release, dma) in
        with_emmc().flat_map(|release| [(release.clone(), true), (release, false)])
    {
        let machine = machine(&release, EMMC);
        let options = EmmcOptions { dma, ..EmmcOptions::default() };
        let (host, memory) = host(&machine, options);
        let sectors = host.device().sectors;
        assert_eq!(sectors, USER / 512);
        let card = sdda::Card { sectors, ..sdda::Card::default() };
        let shape = sdda::shape(0, &card).unwrap();
        let port = host.into_ports().remove(0);
        let scratch = memory.carve(0, 4096);
        let mut disk = Disk::new(port, shape, scratch, &Default::default()).unwrap();
        for (n, len) in [512, 1024, 4096, 64 << 10, 1 << 20].into_iter().enumerate() {
            let (from, to) = (1 << 20, 4 << 20);
            let content: Vec<u8> = (0..len).map(|at| (at / 7 + at * n) as u8).collect();
            memory.write(from, &content);
            memory.fill(to, len, 0);
            for (operation, at) in [(Wish::Write, from), (Wish::Read, to)] {
                let data = Data::One(memory.slice(at, len as u32));
                let offset = (n as u64) << 21;
                let request = Request {
                    operation,
                    force_unit_access: false,
                    offset,
                    length: len as u64,
                    data,
                    crypto: None,
                    token: 0,
                    accepted: Instant::START,
                };
                carry_out(&mut disk, &machine, &request);
            }
            let mut back = vec![0; len];
            memory.read(to, &mut back);
            assert!(back == content, "{}: {len} bytes, dma {dma}", release.name);
        }
    }
}

/// Ends or stops QEMU with writes in flight: each of them ends once, then nothing is accepted.
fn survives(release: &Release, controller: Controller, signal: Signal) {
    let machine = machine(release, controller);
    let (host, memory) = host(&machine, EmmcOptions::default());
    let card = sdda::Card { sectors: host.device().sectors, ..sdda::Card::default() };
    let port = host.into_ports().remove(0);
    let shape = sdda::shape(0, &card).unwrap();
    let mut disk = Disk::new(port, shape, memory.carve(0, 4096), &Default::default()).unwrap();
    let data = Data::One(memory.slice(4096, 64 << 10));
    let (mut sent, mut ended, mut gone, mut is_hit) = (0_u64, 0_u64, 0_u64, false);
    let started = std::time::Instant::now();
    loop {
        let write = Request {
            operation: Wish::Write,
            force_unit_access: false,
            offset: (sent % 100) << 16,
            length: 64 << 10,
            data,
            crypto: None,
            token: sent,
            accepted: machine.now(),
        };
        match disk.submit(&write, machine.now()) {
            Ok(()) => sent += 1,
            Err(Refused::Full) => {}
            Err(Refused::Invalid(error)) => {
                assert!(error == Failed::Gone && is_hit, "{error:?}");
                if sent == ended {
                    break;
                }
            }
        }
        disk.ring(machine.now());
        while let Some(completion) = disk.poll(machine.now()) {
            ended += 1;
            match completion.result {
                Ok(()) => assert_eq!(gone, 0),
                Err(error) => {
                    assert_eq!(error, Failed::Gone);
                    gone += 1;
                }
            }
        }
        if ended > 20 && !is_hit {
            kill_process(pid(machine.process_id()), signal).unwrap();
            is_hit = true;
        }
        if sent > ended {
            machine.wait(disk.poll_at());
        }
        assert!(started.elapsed() < PATIENCE, "{sent} sent, {ended} ended");
    }
    assert!(gone > 0, "some were in flight");
    let why = machine.ended().expect("a reason");
    let told = if signal == Signal::STOP { "no longer answers" } else { "signal: 9" };
    assert!(why.contains(told), "{why}");
    let qemu = machine.process_id();
    drop((disk, machine));
    gone_soon(qemu, &format!("{signal:?}"));
}

#[test]
fn killed_and_stopped_in_the_middle_of_the_work() {
    for release in releases() {
        survives(&release, Controller::Sd, Signal::KILL);
    }
    for release in with_emmc() {
        survives(&release, EMMC, Signal::KILL);
        survives(&release, EMMC, Signal::STOP);
    }
}

#[test]
fn boot_partitions_and_replay_protected_memory() {
    for release in with_emmc() {
        let machine = machine(&release, EMMC);
        let (mut host, _) = host(&machine, EmmcOptions::default());
        assert_eq!((host.device().kind, host.device().timing), (CardKind::Emmc, Timing::HighSpeed));
        let write = Operation::Write { partition: 1, first: 3, data: vec![7; 1024] };
        assert_eq!(host.run(&machine, write), Ok(Output::None));
        let read = |partition| Operation::Read { partition, first: 2, sectors: 3 };
        let Ok(Output::Data(boot)) = host.run(&machine, read(1)) else { panic!("no data") };
        assert_eq!((boot[511], boot[512], boot[1535]), (0, 7, 7));
        let Ok(Output::Data(user)) = host.run(&machine, read(0)) else { panic!("no data") };
        assert!(user.iter().all(|&byte| byte == 0), "the user area has none of it");
        let none = host.run(&machine, read(4));
        assert_eq!(none, Err(EmmcError::Failed(Cause::NoPartition(4))));

        let (key, nonce) = (RpmbKey::new([3; 32]), [2; 16]);
        let count = |key| RpmbRequest::ReadCounter { key, nonce };
        let no_key = Err(EmmcError::Rpmb(RpmbError::Result(RpmbStatus::KeyNotProgrammed)));
        assert_eq!(host.rpmb(&machine, count(None)), no_key);
        host.rpmb(&machine, RpmbRequest::ProgramKey { key: key.clone() }).expect("a key");
        let data = vec![9; 256];
        let write = |key: &RpmbKey, counter| RpmbRequest::Write {
            key: key.clone(),
            counter,
            address: 5,
            data: data.clone(),
        };
        let written = host.rpmb(&machine, write(&key, 0)).expect("written");
        assert_eq!((written.counter, written.proved), (1, true));
        let read = RpmbRequest::Read { key: Some(key.clone()), nonce, address: 5, blocks: 1 };
        assert_eq!(host.rpmb(&machine, read).expect("read").data, data);
        let other = host.rpmb(&machine, write(&RpmbKey::new([4; 32]), 1));
        let refused = RpmbError::Result(RpmbStatus::AuthenticationFailure);
        assert_eq!(other, Err(EmmcError::Rpmb(refused)));
        assert_eq!(host.rpmb(&machine, count(Some(key))).expect("counter").counter, 1);
    }
}

#[test]
fn what_the_card_lacks_is_refused_with_a_word() {
    for release in with_emmc() {
        let machine = machine(&release, EMMC);
        let (mut host, _) = host(&machine, EmmcOptions::default());
        for operation in [Operation::Sleep, Operation::Sanitize, Operation::Barrier] {
            let refused = host.run(&machine, operation.clone());
            assert!(
                matches!(refused, Err(EmmcError::Unsupported(_))),
                "{operation:?}: {refused:?}"
            );
        }
        assert_eq!(host.run(&machine, Operation::Reset), Ok(Output::None));
        host.shut_down(&machine).expect("shut down");
        assert_eq!(host.run(&machine, Operation::ReadExtCsd), Err(EmmcError::NotUp));
        host.bring_up(&machine).expect("up again");
    }
}

#[test]
fn an_sd_card_speaks_the_second_dialect() {
    for release in releases() {
        let machine = machine(&release, Controller::Sd);
        let (mut host, _) = host(&machine, EmmcOptions::default());
        let device = host.device();
        assert_eq!((device.kind, device.lines, device.sectors), (CardKind::Sd, 4, USER / 512));
        let erase = Operation::Erase { kind: EraseKind::Erase, first: 0, sectors: 8 };
        assert_eq!(host.run(&machine, erase), Ok(Output::None));
        let flush = host.run(&machine, Operation::Flush);
        assert!(matches!(flush, Err(EmmcError::Unsupported(_))), "{flush:?}");
        let none = EmmcOptions { partition: 1, ..EmmcOptions::default() };
        let memory = machine.memory().carve(0, Host::<Machine>::memory_len(&none));
        let mut other = Host::new(machine.clone(), memory, none).unwrap();
        let failed = other.bring_up(&machine);
        let cause = Cause::NoPartition(1);
        assert_eq!(failed, Err(EmmcError::Step { step: "features", cause }));
    }
}
