//! What is reported about commands, and that reporting changes nothing.

use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;

use flysch_api::command::{
    AtaProtocol, AtaStatus, Command, Direction, Ended, Failure, MmcCommand, NotStarted,
    NvmeCommand, NvmeStatus, Ordering, Outcome, Port, Scsi, Taskfile, Token,
};
use flysch_api::data::Data;
use flysch_api::machine::DmaSlice;
use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::luns::LogicalUnitNumber;

use super::fake::{BASE, DATA, Fake, Fate, at};
use super::run::Skipping;
use super::scan::Device;
use crate::debug::{Answer, Flags, Origin, Probing, Request, Scope, Switch, Traced, Tracer};
use crate::xpt::Path;
use crate::{run, scan};

const PATH: Path = Path { bus: 0, target: 0, lun: 0 };

/// A tracer, and what it reported.
fn tracer(flags: Flags, scope: Scope) -> (Tracer, Rc<RefCell<Vec<String>>>) {
    let told: Rc<RefCell<Vec<String>>> = Rc::default();
    let lines = Rc::clone(&told);
    let console = Rc::new(move |line: &str| lines.borrow_mut().push(line.into()));
    let origin = Origin { periph: "pass0".into(), sim: "ufshci0".into(), path: PATH };
    (Tracer::new(Some(Rc::new(Switch::new(flags, scope, console))), origin), told)
}

/// READ(10) of a block; for odd numbers SYNCHRONIZE CACHE(10), without data.
fn command(number: u32) -> Command<Scsi> {
    let data = Data::One(DmaSlice { address: BASE + DATA as u64, len: 4096 });
    let read = [0x28, 0, 0, 0, 0, number as u8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let flush = Cdb::SynchronizeCache10(Default::default()).to_bytes();
    let (payload, direction, data) = match number % 2 {
        0 => (read, Direction::FromDevice, data),
        _ => (flush, Direction::None, Data::NONE),
    };
    Command {
        unit: LogicalUnitNumber::from_ufs(0).to_bits(),
        payload: payload.into(),
        direction,
        data,
        crypto: None,
        ordering: Ordering::Simple,
        deadline: at(100),
        token: Token::new(number),
    }
}

/// What came of commands, one after the other.
fn results(
    port: &mut impl Port<Protocol = Scsi>,
    count: u32,
) -> Vec<(Result<Outcome, NotStarted>, Failure<Scsi>)> {
    let clock = Skipping::new();
    (0..count).map(|number| (run(port, &clock, command(number)), port.failure())).collect()
}

fn scripted() -> Fake {
    let mut port = Fake::new(4, 16384, 4096);
    port.script.extend([
        Fate::Good,
        Fate::Sense(5, 0x24, 0),
        Fate::Short(512),
        Fate::End(Ended::TimedOut),
        Fate::Status(8),
        Fate::End(Ended::Host),
    ]);
    port
}

const FAILED: &str = "\
(pass0:ufshci0:0:0:0): SYNCHRONIZE CACHE(10). CDB: 35 00 00 00 00 00 00 00 00 00 
(pass0:ufshci0:0:0:0): CAM status: SCSI Status Error
(pass0:ufshci0:0:0:0): SCSI status: Check Condition
(pass0:ufshci0:0:0:0): SCSI sense: ILLEGAL REQUEST asc:24,0 (INVALID FIELD IN CDB)
";

#[test]
fn telling_changes_nothing_and_tells_each_exchange_once() {
    let mut bare = scripted();
    let mut under = scripted();
    let (tracer, told) = tracer(Flags::CDB, Scope::All);
    let mut port = Traced::new(&mut under, tracer);
    assert_eq!(results(&mut port, 6), results(&mut bare, 6));
    assert_eq!(under.started, bare.started);
    assert_eq!(under.rings, bare.rings);
    let read = |n| {
        alloc::format!(
            "(pass0:ufshci0:0:0:0): READ(10). CDB: 28 00 00 00 00 0{n} 00 00 01 00 \n\
             (pass0:ufshci0:0:0:0): CAM status: "
        )
    };
    let good = "CCB request completed without error\n";
    let (first, third, fifth) = (read(0), read(2), read(4));
    let flush = &FAILED[..FAILED.find('\n').unwrap() + 1];
    let golden = alloc::format!(
        "{first}{good}{FAILED}{third}{good}\
         {flush}(pass0:ufshci0:0:0:0): CAM status: Command timeout\n\
         {fifth}SCSI Status Error\n(pass0:ufshci0:0:0:0): SCSI status: Busy\n\
         {flush}(pass0:ufshci0:0:0:0): CAM status: Unrecoverable Host Bus Adapter Error\n\
         (pass0:ufshci0:0:0:0): host controller's code: 0x5\n"
    );
    assert_eq!(told.borrow().join("\n") + "\n", golden);
}

#[test]
fn information_is_of_what_failed_and_other_units_are_silent() {
    let mut under = scripted();
    let (info, told) = tracer(Flags::INFO, Scope::Of(PATH));
    results(&mut Traced::new(&mut under, info), 2);
    assert_eq!(told.borrow().join("\n") + "\n", FAILED);
    let elsewhere = Scope::Of(Path { lun: 1, ..PATH });
    let all = Flags::INFO.with(Flags::TRACE).with(Flags::CDB).with(Flags::XPT);
    let (silent, told) = tracer(all, elsewhere);
    results(&mut Traced::new(&mut scripted(), silent), 6);
    assert!(told.borrow().is_empty(), "{:?}", told.borrow());
}

#[test]
fn calls_and_queues_are_told_around_a_command() {
    let all = Flags::TRACE.with(Flags::SUBTRACE).with(Flags::XPT).with(Flags::PERIPH);
    let (tracer, told) = tracer(all, Scope::All);
    let mut port = Fake::new(1, 16384, 4096);
    port.script.push_back(Fate::Short(512));
    // A full queue is not reported: the command comes again.
    port.not_started.extend([NotStarted::Full, NotStarted::Full]);
    results(&mut Traced::new(&mut port, tracer), 1);
    let golden = "\
(pass0:ufshci0:0:0:0): sendccb 1
(pass0:ufshci0:0:0:0): xpt_action: func 0x901 XPT_SCSI_IO
cam_debug: xpt_schedule_dev
(pass0:ufshci0:0:0:0): CAM_DIR_IN, dxfer_len 4096
cam_debug: xpt_run_devq
(pass0:ufshci0:0:0:0): xpt_done: func= 0x901 XPT_SCSI_IO status 0x1
(pass0:ufshci0:0:0:0): resid 512
cam_debug: xpt_release_ccb
(pass0:ufshci0:0:0:0): returnccb 1";
    assert_eq!(told.borrow().join("\n"), golden);
}

#[test]
fn commands_in_flight_together_are_told_apart() {
    let (tracer, told) = tracer(Flags::PERIPH, Scope::All);
    let mut under = Fake::new(4, 16384, 4096);
    under.backwards = true;
    let mut port = Traced::new(&mut under, tracer);
    for number in 1..4 {
        port.start(command(number), at(1)).unwrap();
    }
    port.ring(at(1));
    let ended: Vec<u32> =
        core::iter::from_fn(|| port.poll(at(2))).map(|outcome| outcome.token.number()).collect();
    assert_eq!(ended, [3, 2, 1]);
    let numbers: Vec<String> = told
        .borrow()
        .iter()
        .map(|line| line.replace("(pass0:ufshci0:0:0:0): ", "").replace("ccb", ""))
        .collect();
    let golden = ["send 1", "send 2", "send 3", "return 3", "return 2", "return 1"];
    assert_eq!(numbers, golden);
}

#[test]
fn what_a_port_does_not_take_is_told_at_once() {
    let (tracer, told) = tracer(Flags::INFO, Scope::All);
    let mut port = Fake::new(1, 16384, 4096);
    port.not_started.push_back(NotStarted::Unsupported);
    let result = results(&mut Traced::new(&mut port, tracer), 1);
    assert_eq!(result[0].0, Err(NotStarted::Unsupported));
    let told = told.borrow();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].ends_with("CAM status: Unable to provide requested capability"), "{told:?}");
}

#[test]
fn a_probe_is_told_unit_by_unit() {
    let device = || {
        let mut device = Device::new();
        device.luns(0, &[0, 2]);
        device.unit(0);
        device.unit(2);
        device
    };
    let clock = Skipping::new();
    let (mut bare, mut under) = (device(), device());
    let scratch = |device: &Device| device.memory().carve(0, scan::SCRATCH_BYTES);
    let memory = scratch(&bare);
    let golden = scan(&mut bare, &clock, &memory).unwrap();
    let (tracer, told) = tracer(Flags::PROBE.with(Flags::INFO), Scope::All);
    let memory = scratch(&under);
    let mut port = Traced::probe(&mut under, tracer);
    assert_eq!(scan(&mut port, &clock, &memory).unwrap(), golden);
    port.finish();
    let told = told.borrow();
    let at_unit = |lun: u8| {
        let start = alloc::format!("(pass0:ufshci0:0:0:{lun}): ");
        told.iter().filter_map(move |line| line.strip_prefix(&start).map(ToString::to_string))
    };
    assert_eq!(at_unit(0).count() + at_unit(2).count(), told.len(), "{told:?}");
    for lun in [0, 2] {
        let lines: Vec<String> = at_unit(lun).collect();
        assert_eq!(lines[..2], ["Periph created", "Probe started"], "{lines:?}");
        let last = lines.len() - 4;
        assert!(lines[last].ends_with(" to PROBE_DONE"), "{lines:?}");
        assert_eq!(
            lines[last + 1..],
            ["Probe completed", "Periph invalidated", "Periph destroyed"]
        );
        let count = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
        assert_eq!((count("INQUIRY. CDB: "), count("TEST UNIT READY. CDB: ")), (6, 1));
        assert_eq!(count("REPORT LUNS. CDB: "), usize::from(lun == 0));
        assert_eq!(count("Probe PROBE_INQUIRY to PROBE_SUPPORTED_VPD_LIST"), 1);
    }
}

#[test]
fn every_language_has_its_words() {
    let (tracer, told) = tracer(Flags::CDB.with(Flags::TRACE), Scope::All);
    let task = Taskfile {
        command: 0xB4,
        device: 0x40,
        features: 0x12,
        lba: 0x0102_426B_4572,
        count: 0x8001,
        protocol: AtaProtocol::NonData,
        ..Taskfile::default()
    };
    let status =
        AtaStatus { status: 0x51, error: 4, lba: 0x0203_0405_0607, ..AtaStatus::default() };
    let none = (Direction::None, 0);
    let ccb = tracer.start(0, Request::Ata(task), none);
    tracer.end(ccb, &Answer::Ata(&status, 0x0908, 0x40));
    let command = NvmeCommand { opcode: 2, cdw10: [7, 8, 9, 0xA, 0, 0], ..NvmeCommand::default() };
    let ccb = tracer.start(3, Request::Nvme { is_admin: false, nsid: 3, command }, none);
    tracer.end(ccb, &Answer::Nvme(NvmeStatus { status: 0x4281, result: 0 }));
    let odd = NvmeCommand { opcode: 0xC1, ..NvmeCommand::default() };
    let ccb = tracer.start(3, Request::Nvme { is_admin: true, nsid: 0, command: odd }, none);
    tracer.end(ccb, &Answer::Ended(Ended::TimedOut));
    let command = MmcCommand { index: 18, argument: 0x20, ..MmcCommand::default() };
    let ccb = tracer.start(0, Request::Mmc { command, length: 1024 }, none);
    tracer.end(ccb, &Answer::Mmc(0x8000_0900));
    let golden = "\
(pass0:ufshci0:0:0:0): xpt_action: func 0x918 XPT_ATA_IO
(pass0:ufshci0:0:0:0): BLOCK_ERASE_EXT. ACB: b4 12 72 45 6b 40 42 02 01 00 01 80
(pass0:ufshci0:0:0:0): xpt_done: func= 0x918 XPT_ATA_IO status 0x1c
(pass0:ufshci0:0:0:0): CAM status: ATA Status Error
(pass0:ufshci0:0:0:0): ATA status: 51 (DRDY SERV ERR), error: 04 (ABRT )
(pass0:ufshci0:0:0:0): RES: 51 04 07 06 05 40 04 03 02 08 09
(pass0:ufshci0:0:0:3): xpt_action: func 0x91c XPT_NVME_IO
(pass0:ufshci0:0:0:3): READ. NCB: opc=2 fuse=0 nsid=3 prp1=0 prp2=0 cdw=7 8 9 a 0 0
(pass0:ufshci0:0:0:3): xpt_done: func= 0x91c XPT_NVME_IO status 0x20
(pass0:ufshci0:0:0:3): CAM status: NVME Status Error
(pass0:ufshci0:0:0:3): NVMe status: Unrecovered Read Error DNR
(pass0:ufshci0:0:0:3): xpt_action: func 0x91f XPT_NVME_ADMIN
(pass0:ufshci0:0:0:3): ADMIN:0xc1. NCB: opc=c1 fuse=0 nsid=0 prp1=0 prp2=0 cdw=0 0 0 0 0 0
(pass0:ufshci0:0:0:3): xpt_done: func= 0x91f XPT_NVME_ADMIN status 0xb
(pass0:ufshci0:0:0:3): CAM status: Command timeout
(pass0:ufshci0:0:0:0): xpt_action: func 0x91d XPT_MMC_IO
(pass0:ufshci0:0:0:0): READ_MULTIPLE_BLOCK. CMD18 arg 0x20 flags 0x35 dlen 1024 dflags 0x2
(pass0:ufshci0:0:0:0): xpt_done: func= 0x91d XPT_MMC_IO status 0x4
(pass0:ufshci0:0:0:0): CAM status: CCB request completed with an error
(pass0:ufshci0:0:0:0): device status: 0x80000900";
    assert_eq!(told.borrow().join("\n"), golden);
}

#[test]
fn flags_and_scopes_are_freebsds() {
    let all = [
        Flags::INFO,
        Flags::TRACE,
        Flags::SUBTRACE,
        Flags::CDB,
        Flags::XPT,
        Flags::PERIPH,
        Flags::PROBE,
    ];
    assert_eq!(all.map(Flags::bits), [1, 2, 4, 8, 0x10, 0x20, 0x40]);
    assert_eq!(Scope::All.to_string(), "-1:-1:ffffffff");
    let bus = Path::of_bus(2);
    assert_eq!(Scope::Of(bus).to_string(), "2:-1:ffffffff");
    assert_eq!(Scope::Of(Path { lun: 0x1F, ..PATH }).to_string(), "0:0:1f");
    // A unit's scope does not cover its bus.
    assert!(!Scope::Of(PATH).covers(Path::of_bus(0)) && Scope::Of(bus).covers(bus));
    // Without a switch nothing is counted or reported, and a probe goes on.
    let origin = Origin { periph: "noperiph".into(), sim: "ahcich0".into(), path: bus };
    assert_eq!(origin.to_string(), "(noperiph:ahcich0:0:-1:ffffffff): ");
    let mut probing = Probing::new(Tracer::new(None, origin), "PROBE_");
    probing.to(0, "IDENTIFY");
    probing.fail();
}
