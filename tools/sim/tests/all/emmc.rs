//! The eMMC driver on its model: operations that need the whole bus while something goes wrong.

use flysch_api::command::{
    Command, Direction, Ended, Mmc, MmcCommand, MmcResponse, NotStarted, Ordering, Port as _, Token,
};
use flysch_api::data::Data;
use flysch_api::machine::{Clock as _, DmaRegion, Identity};
use flysch_cam::Family as _;
use flysch_emmc::{EmmcError, EmmcOptions, ErrorKind, Host, Operation, Output, Port, Timing};
use flysch_models::emmc::{Config, Emmc};
use flysch_models::faults::Kind;
use flysch_models::machine::{Inline, Mode};
use flysch_wire::mmc::command::{CommandIndex, erase};

type M = Inline<Emmc>;

const MS: u64 = 1_000_000;
const BYTES: u32 = 4096;
const ELKHART_LAKE: Identity = Identity { vendor: 0x8086, device: 0x4B47 };

struct Rig {
    machine: M,
    port: Port<M>,
    memory: DmaRegion,
    ended: Vec<(u32, Ended)>,
}

impl Rig {
    /// A card that is up; faults are counted from now on.
    fn new(options: EmmcOptions, faults: &str) -> Self {
        let memory = DmaRegion::zeroed(8 << 20, 0x4000_0000);
        let config = Config { size: 8 << 20, ..Config::default() };
        let model = Emmc::new(config, memory.clone()).expect("a card");
        let machine = Inline::new(model, memory.clone(), ELKHART_LAKE, Mode::Virtual);
        let needed = Host::<M>::memory_len(&options).next_multiple_of(4096);
        let mut host = Host::new(machine.clone(), memory.carve(0, needed), options).expect("host");
        host.bring_up(&machine).expect("bring-up");
        machine.with_model(|model| model.arm_faults(faults.parse().expect("a plan")));
        let port = host.into_ports().remove(0);
        let memory = memory.carve(needed, memory.len() - needed);
        Self { machine, port, memory, ended: Vec::new() }
    }

    /// Starts a command once there is room.
    fn start(&mut self, payload: MmcCommand, bytes: u32, token: u32, ms: u64) {
        let data = Data::One(self.memory.slice(token as usize * BYTES as usize, bytes));
        let deadline = self.machine.now().after_nanos(ms * MS);
        for _ in 0..100_000 {
            let command = Command {
                unit: 0,
                payload,
                direction: Direction::ToDevice,
                data,
                crypto: None,
                ordering: Ordering::Simple,
                deadline,
                token: Token::new(token),
            };
            match self.port.start(command, self.machine.now()) {
                Ok(()) => return,
                Err(declined) => assert_eq!(declined.why, NotStarted::Full),
            }
            self.look();
        }
        panic!("there is never room");
    }

    /// Takes an outcome; lets time pass if there is none.
    fn look(&mut self) {
        let now = self.machine.now();
        match self.port.poll(now) {
            Some(outcome) => self.ended.push((outcome.token.number(), outcome.ended)),
            None => {
                let at = self.port.host().expect("the first port").poll_at();
                self.machine.wait(at.map(|at| at.max(now.after_nanos(1))));
            }
        }
    }

    fn write(&mut self, token: u32, ms: u64) {
        let lba = u64::from(token) * 8;
        self.start(Mmc::transfer(true, lba, 8, false), BYTES, token, ms);
    }

    /// A trim of one sector, with its own token.
    fn trim(&mut self, token: u32, ms: u64) {
        let payload = MmcCommand {
            index: CommandIndex::Erase.into_bits(),
            argument: erase::TRIM,
            response: MmcResponse::R1b,
            ..MmcCommand::default()
        };
        let range = [1000_u32, 1000].map(u32::to_le_bytes);
        self.memory.write(token as usize * BYTES as usize, range.as_flattened());
        self.start(payload, 8, token, ms);
    }

    /// Rings, and takes `count` outcomes within a minute.
    fn ends(&mut self, count: usize) -> Vec<(u32, Ended)> {
        self.port.ring(self.machine.now());
        let limit = self.machine.now().after_nanos(60_000 * MS);
        while self.ended.len() < count {
            assert!(self.machine.now() < limit, "it takes too long: {:?}", self.ended);
            self.look();
        }
        let mut ended = core::mem::take(&mut self.ended);
        ended.sort_by_key(|end| end.0);
        ended
    }

    fn count(&self, kind: ErrorKind) -> u64 {
        self.port.host().expect("the first port").errors().count(kind)
    }

    fn run(&mut self, operation: Operation) -> Result<Output, EmmcError> {
        let machine = self.machine.clone();
        self.port.host_mut().expect("the first port").run(&machine, operation)
    }

    fn disarm(&self) {
        self.machine.with_model(|model| model.arm_faults("".parse().expect("a plan")));
    }
}

/// An erase waited for a failed task that nobody looked at; then the report of the failure was
/// cleared, and the engine stood still until all its tasks were overdue.
#[test]
fn a_task_that_fails_while_an_erase_waits_for_the_bus_is_seen_at_once() {
    let mut rig = Rig::new(EmmcOptions::default(), "crc:n2");
    (0..6).for_each(|token| rig.write(token, 30_000));
    rig.trim(6, 30_000);
    let start = rig.machine.now();
    let ended = rig.ends(7);
    assert!(rig.machine.now().nanos_since(start) < 1000 * MS);
    assert_eq!(rig.machine.with_model(|model| model.faults().count(Kind::BusCrc)), 1);
    assert!(ended.iter().any(|end| end.1 != Ended::Good), "{ended:?}");
    // And the bus is free again.
    rig.trim(7, 30_000);
    assert_eq!(rig.ends(1), [(7, Ended::Good)]);
    let counts = [ErrorKind::QueueReset, ErrorKind::Overdue, ErrorKind::CardReset];
    assert_eq!(counts.map(|kind| rig.count(kind)), [1, 0, 0]);
}

/// An erase waited ten seconds for a task that never ends, whatever its deadline, and failed.
#[test]
fn an_erase_is_carried_out_once_the_overdue_task_before_it_is_gone() {
    let mut rig = Rig::new(EmmcOptions::default(), "timeout:n2");
    (0..3).for_each(|token| rig.write(token, 200));
    rig.trim(3, 5_000);
    let start = rig.machine.now();
    let ended = rig.ends(4);
    let expected = [Ended::Good, Ended::TimedOut, Ended::Good, Ended::Good];
    assert_eq!(ended.iter().map(|end| end.1).collect::<Vec<_>>(), expected);
    assert!(rig.machine.now().nanos_since(start) < 1000 * MS);
    assert_eq!((rig.count(ErrorKind::TaskDiscarded), rig.count(ErrorKind::QueueReset)), (1, 0));
}

/// An errand waits until its deadline at most, not for a time of the driver's own.
#[test]
fn an_erase_that_never_gets_the_bus_ends_at_its_deadline() {
    let mut rig = Rig::new(EmmcOptions::default(), "timeout:n1");
    rig.write(0, 30_000);
    rig.trim(1, 100);
    let start = rig.machine.now();
    assert_eq!(rig.ends(1), [(1, Ended::TimedOut)]);
    assert!(rig.machine.now().nanos_since(start) < 200 * MS);
    assert_eq!(rig.ends(1), [(0, Ended::TimedOut)]);
}

/// A corrupted response to a command of an erase ends that erase and nothing else.
#[test]
fn a_spoilt_command_of_an_erase_resets_no_card() {
    for nth in 1..=4 {
        let mut rig = Rig::new(EmmcOptions::default(), &format!("crc:n{nth}"));
        rig.trim(0, 5_000);
        let [(0, ended)] = rig.ends(1)[..] else { panic!("another token") };
        assert!(matches!(ended, Ended::Host), "{nth}: {ended:?}");
        assert_eq!(rig.count(ErrorKind::CardReset), 0, "{nth}");
        rig.disarm();
        rig.trim(1, 5_000);
        rig.write(2, 5_000);
        assert_eq!(rig.ends(2), [(1, Ended::Good), (2, Ended::Good)], "{nth}");
    }
}

/// A failure on the way to a boot partition once left it selected: the lanes continued there.
#[test]
fn after_a_failed_read_of_a_boot_partition_the_lanes_write_where_they_did() {
    let mut failed = 0;
    for nth in 1..=12 {
        let mut rig = Rig::new(EmmcOptions::default(), "");
        rig.memory.write(0, &[0xA5; BYTES as usize]);
        rig.machine.with_model(|model| {
            model.arm_faults(format!("crc:n{nth}").parse().expect("a plan"));
        });
        let boot = |first| Operation::Read { partition: 1, first, sectors: 8 };
        failed += u32::from(rig.run(boot(0)).is_err());
        rig.disarm();
        rig.write(0, 5_000);
        assert_eq!(rig.ends(1), [(0, Ended::Good)], "{nth}");
        let told = rig.run(boot(0)).expect("a boot partition");
        let Output::Data(data) = told else { panic!("{told:?}") };
        assert!(data.iter().all(|&byte| byte == 0), "{nth}: it went to the boot partition");
    }
    assert!(failed > 4, "{failed}");
}

/// HS200 and HS400 lose their sampling point; enhanced strobe has none.
#[test]
fn a_lost_sampling_point_is_found_again() {
    for timing in [Timing::Hs200, Timing::Hs400] {
        let mut rig = Rig::new(EmmcOptions { timing, ..EmmcOptions::default() }, "tuning:n2");
        (0..4).for_each(|token| rig.write(token, 5_000));
        let ended = rig.ends(4);
        assert!(ended.iter().any(|end| end.1 != Ended::Good), "{ended:?}");
        (4..8).for_each(|token| rig.write(token, 5_000));
        assert!(rig.ends(4).iter().all(|end| end.1 == Ended::Good));
        assert_eq!((rig.count(ErrorKind::Retune), rig.count(ErrorKind::CardReset)), (1, 0));
        assert_eq!(rig.port.host().expect("a host").device().timing, timing);
    }
}
