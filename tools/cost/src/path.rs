//! The software path of one 4 KiB read, for counting.
//!
//! The controller has completed everything when its doorbell write returns, so what remains is the
//! driver, or driver and disk, and the loop that issues the requests.

use flysch_api::block::{BlockDevice, Operation, Request};
use flysch_api::command::{
    Ata, Cdb, Command, Direction, Ended, Mmc, Nvme, Ordering, Port, Protocol, Token,
};
use flysch_api::data::Data;
use flysch_api::machine::{DmaRegion, DmaSlice, Instant, Machine};
use flysch_cam::{Disk, Family, Shape};
use flysch_ufs::{Host, QueueMode, UfsOptions};

use crate::block::{self, Top};
use crate::budget::{Budget, Goal};
use crate::instant::{InstantMachine, Order};
use crate::instant_ahci::AhciInstantMachine;
use crate::instant_emmc::EmmcInstantMachine;
use crate::instant_nvme::NvmeInstantMachine;

const DRIVER_BYTES: usize = 1 << 20;
const SCRATCH_BYTES: usize = 64 << 10;
const DATA: usize = DRIVER_BYTES + SCRATCH_BYTES;
const BLOCK: u32 = 4096;
/// READ(10) of the first block.
const READ_10: Cdb = Cdb([0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);

/// How much of the stack is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The host controller driver alone, from `start` to the outcome.
    Driver,
    /// A disk on top of it, from the request to its completion.
    Disk,
    /// A way through the block layer over disks that complete everything at once.
    Way(Top),
    /// Such a disk alone: the share of the loop and the disk in a way's count.
    NullDisk,
}

/// Which driver, and which kind of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// UFS, multi-circular queues.
    UfsMcq,
    /// UFS, the single doorbell.
    UfsSdq,
    /// NVMe.
    Nvme,
    /// SATA.
    Ahci,
    /// eMMC with a queueing engine.
    Emmc,
    /// None: the layer measured uses no driver.
    None,
}

/// One case to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its description.
    pub what: &'static str,
    /// How much of the stack is measured.
    pub layer: Layer,
    /// Which driver, and which kind of queues.
    pub controller: Controller,
    /// Requests per doorbell.
    pub depth: u32,
    /// The order in which they end.
    pub order: Order,
    /// Segments of each request's data.
    pub segments: u32,
    /// The instructions it may take.
    pub budget: Budget,
}

/// The heading of the table whose rows [`Case::row`] returns.
pub const HEADING: &str = "| 4 KiB read | instructions | fails beyond | goal |\n|---|--:|--:|--:|";

impl Case {
    /// Its row of the table.
    pub fn row(&self, count: u64) -> String {
        format!("| {} | {} |", self.what, self.budget.cells(count))
    }
}

/// All cases.
pub const CASES: [Case; 28] = [
    case("driver-mcq", "driver, MCQ, depth 32, in order", Layer::Driver, 196, Met(200)),
    Case {
        order: Order::Shuffled,
        ..case(
            "driver-mcq-shuffled",
            "driver, MCQ, depth 32, out of order",
            Layer::Driver,
            196,
            Met(240),
        )
    },
    Case {
        depth: 1,
        ..case("driver-mcq-1", "driver, MCQ, depth 1", Layer::Driver, 330, Missed(280))
    },
    Case {
        controller: UfsSdq,
        ..case("driver-sdq", "driver, SDQ, depth 32", Layer::Driver, 195, Met(240))
    },
    case("disk-mcq", "disk and driver, MCQ, depth 32", Layer::Disk, 306, Met(300)),
    Case {
        controller: UfsSdq,
        ..case("disk-sdq", "disk and driver, SDQ, depth 32", Layer::Disk, 301, Met(320))
    },
    Case {
        segments: 8,
        ..case(
            "disk-mcq-list",
            "disk and driver, MCQ, depth 32, 8 segments",
            Layer::Disk,
            640,
            Missed(420),
        )
    },
    Case {
        controller: UfsSdq,
        segments: 8,
        ..case(
            "disk-sdq-list",
            "disk and driver, SDQ, depth 32, 8 segments",
            Layer::Disk,
            638,
            Missed(420),
        )
    },
    nvme("driver-nvme", "driver, NVMe, depth 32", Layer::Driver, 130, Met(130)),
    Case {
        depth: 1,
        ..nvme("driver-nvme-1", "driver, NVMe, depth 1", Layer::Driver, 356, Goal::None)
    },
    nvme("disk-nvme", "disk and driver, NVMe, depth 32", Layer::Disk, 230, Met(230)),
    Case {
        depth: 1,
        ..nvme("disk-nvme-1", "disk and driver, NVMe, depth 1", Layer::Disk, 474, Goal::None)
    },
    Case {
        segments: 2,
        ..nvme(
            "disk-nvme-list",
            "disk and driver, NVMe, depth 32, 2 segments as pages",
            Layer::Disk,
            590,
            Goal::None,
        )
    },
    ahci("driver-ahci", "driver, AHCI, depth 32", Layer::Driver, 176, Met(200)),
    Case {
        depth: 1,
        ..ahci("driver-ahci-1", "driver, AHCI, depth 1", Layer::Driver, 459, Goal::None)
    },
    ahci("disk-ahci", "disk and driver, AHCI, depth 32", Layer::Disk, 290, Met(300)),
    emmc("driver-emmc", "driver, CQHCI, depth 31", Layer::Driver, 132, Met(220)),
    Case {
        depth: 1,
        ..emmc("driver-emmc-1", "driver, CQHCI, depth 1", Layer::Driver, 378, Goal::None)
    },
    emmc("disk-emmc", "disk and driver, CQHCI, depth 31", Layer::Disk, 227, Met(320)),
    way(
        "null",
        "a disk that has done everything when its doorbell rings, depth 32",
        Layer::NullDisk,
        27,
        Goal::None,
    ),
    way(
        "way-disk",
        "a way through the block layer over it, without a class",
        Layer::Way(Top::Disk),
        50,
        Met(50),
    ),
    way("way-part", "the same with PART", Layer::Way(Top::Part), 50, Met(50)),
    way("way-labels", "the same with 10 LABELs", Layer::Way(Top::Labels(10)), 52, Missed(40)),
    way(
        "way-stripe",
        "the same with STRIPE, within one stripe",
        Layer::Way(Top::Stripe),
        108,
        Missed(85),
    ),
    way(
        "way-mirror-read",
        "the same with MIRROR, read",
        Layer::Way(Top::MirrorRead),
        146,
        Missed(85),
    ),
    way(
        "way-mirror-write",
        "the same with MIRROR, written",
        Layer::Way(Top::MirrorWrite),
        190,
        Missed(165),
    ),
    way(
        "way-twice-read",
        "the same with STRIPE over two MIRRORs, read",
        Layer::Way(Top::StripeOfMirrorsRead),
        585,
        Goal::None,
    ),
    way(
        "way-twice-write",
        "the same with STRIPE over two MIRRORs, written",
        Layer::Way(Top::StripeOfMirrorsWrite),
        765,
        Goal::None,
    ),
];

use Controller::{UfsMcq, UfsSdq};
use Goal::{Met, Missed};

const fn way(name: &'static str, what: &'static str, layer: Layer, bound: u64, goal: Goal) -> Case {
    Case { controller: Controller::None, ..case(name, what, layer, bound, goal) }
}

const fn nvme(
    name: &'static str,
    what: &'static str,
    layer: Layer,
    bound: u64,
    goal: Goal,
) -> Case {
    Case { controller: Controller::Nvme, ..case(name, what, layer, bound, goal) }
}

const fn ahci(
    name: &'static str,
    what: &'static str,
    layer: Layer,
    bound: u64,
    goal: Goal,
) -> Case {
    Case { controller: Controller::Ahci, ..case(name, what, layer, bound, goal) }
}

const fn emmc(
    name: &'static str,
    what: &'static str,
    layer: Layer,
    bound: u64,
    goal: Goal,
) -> Case {
    // One of the 32 tasks is reserved for direct commands.
    Case { controller: Controller::Emmc, depth: 31, ..case(name, what, layer, bound, goal) }
}

const fn case(
    name: &'static str,
    what: &'static str,
    layer: Layer,
    bound: u64,
    goal: Goal,
) -> Case {
    let (order, budget) = (Order::AsIssued, Budget { bound, goal });
    Case { name, what, layer, controller: UfsMcq, depth: 32, order, segments: 1, budget }
}

/// Reads 4 KiB `count` times.
///
/// # Panics
/// If a read fails: nothing should go wrong on this controller.
pub fn run(case: &Case, count: u32) {
    match (case.layer, case.controller) {
        (Layer::Way(top), _) => block::run(top, case.depth, count),
        (Layer::NullDisk, _) => block::run_alone(case.depth, count),
        (_, Controller::Nvme) => run_nvme(case, count),
        (_, Controller::Ahci) => run_ahci(case, count),
        (_, Controller::Emmc) => run_emmc(case, count),
        _ => run_ufs(case, count),
    }
}

fn run_ufs(case: &Case, count: u32) {
    let machine = InstantMachine::new(8 << 20);
    machine.set_order(case.order);
    let mcq = case.controller == Controller::UfsMcq;
    let queue = if mcq { QueueMode::Mcq } else { QueueMode::Sdq };
    let options = UfsOptions { queue, interrupts: false, ..UfsOptions::default() };
    let memory = machine.memory().carve(0, DRIVER_BYTES);
    let mut host = Host::new(machine.clone(), memory, options).expect("options that fit");
    host.bring_up(&machine).expect("bring-up");
    measure(&machine, host.into_ports().remove(0), (0, READ_10), case, count);
}

fn run_nvme(case: &Case, count: u32) {
    let machine = NvmeInstantMachine::new(8 << 20);
    let options = flysch_nvme::NvmeOptions { interrupts: false, ..Default::default() };
    let memory = machine.memory().carve(0, DRIVER_BYTES);
    let mut host =
        flysch_nvme::Host::new(machine.clone(), memory, options).expect("options that fit");
    host.bring_up(&machine).expect("bring-up");
    let read = Nvme::transfer(false, 0, 1, false);
    measure(&machine, host.into_ports().remove(0), (1, read), case, count);
}

fn run_ahci(case: &Case, count: u32) {
    let machine = AhciInstantMachine::new(8 << 20);
    let options = flysch_ahci::AhciOptions { interrupts: false, ..Default::default() };
    let memory = machine.memory().carve(0, DRIVER_BYTES);
    let options = flysch_ahci::AhciOptions { ports: 1, ..options };
    let mut host =
        flysch_ahci::Host::new(machine.clone(), memory, options).expect("options that fit");
    host.bring_up(&machine).expect("bring-up");
    // The driver does not care whether sectors have 4096 bytes.
    let read = Ata::transfer(false, 0, 8, false);
    measure(&machine, host.into_ports().remove(0), (0, read), case, count);
}

fn run_emmc(case: &Case, count: u32) {
    let machine = EmmcInstantMachine::new(8 << 20);
    let timing = flysch_emmc::Timing::Legacy;
    let options = flysch_emmc::EmmcOptions { interrupts: false, timing, ..Default::default() };
    let memory = machine.memory().carve(0, DRIVER_BYTES);
    let mut host =
        flysch_emmc::Host::new(machine.clone(), memory, options).expect("options that fit");
    host.bring_up(&machine).expect("bring-up");
    let read = Mmc::transfer(false, 0, 8, false);
    measure(&machine, host.into_ports().remove(0), (0, read), case, count);
}

fn measure<M: Machine, P: Port>(
    machine: &M,
    mut port: P,
    read: (u64, <P::Protocol as Protocol>::Payload),
    case: &Case,
    count: u32,
) where
    P::Protocol: Family,
{
    let data = data(machine.memory(), case.segments);
    let rounds = (case.depth, count);
    match case.layer {
        Layer::Driver => measured_driver(machine, &mut port, read, data, rounds),
        Layer::Disk => {
            let mut disk = disk(machine.memory(), port, read.0);
            measured_disk(machine, &mut disk, data, rounds);
        }
        Layer::Way(_) | Layer::NullDisk => unreachable!("these stand on no port"),
    }
}

/// The data of every request: a block, whole or in pieces with gaps between them.
fn data(memory: &DmaRegion, segments: u32) -> Data {
    let len = BLOCK / segments;
    // The first piece ends, and all others start and end, on page boundaries if they are that long.
    let first = if segments == 2 { BLOCK as usize - len as usize } else { 0 };
    let piece = |n: u32| {
        let skew = if n == 0 { first } else { 0 };
        memory.slice(DATA + skew + n as usize * 2 * BLOCK as usize, len)
    };
    if segments == 1 {
        return Data::One(piece(0));
    }
    let pieces: Vec<DmaSlice> = (0..segments).map(piece).collect();
    let list = DATA + 2 * segments as usize * BLOCK as usize;
    Data::list(memory, list, &pieces).expect("room for the list")
}

fn disk<P: Port>(memory: &DmaRegion, port: P, unit: u64) -> Disk<P>
where
    P::Protocol: Family,
{
    let shape = Shape {
        unit,
        block_size: BLOCK,
        blocks: 1 << 20,
        transfer_blocks_max: 0,
        delete_blocks_max: 0,
        write_cache: true,
        force_unit_access: true,
        write_protected: false,
    };
    let scratch = memory.carve(DRIVER_BYTES, SCRATCH_BYTES);
    Disk::new(port, shape, scratch, &flysch_cam::DiskOptions::default()).expect("a disk")
}

// Assertions compare in place: taking a reference to part of an outcome, as `assert_eq` does, makes
// the compiler copy the whole outcome for each read.
#[inline(never)]
fn measured_driver<M: Machine, P: Port>(
    machine: &M,
    port: &mut P,
    (unit, payload): (u64, <P::Protocol as Protocol>::Payload),
    data: Data,
    (depth, count): (u32, u32),
) {
    let mut ended = 0;
    while ended < count {
        let now = machine.now();
        for token in 0..depth {
            let command = Command {
                unit,
                payload,
                direction: Direction::FromDevice,
                data,
                crypto: None,
                ordering: Ordering::Simple,
                deadline: Instant::NEVER,
                token: Token::new(token),
            };
            port.start(command, now).expect("room");
        }
        port.ring(now);
        while let Some(outcome) = port.poll(now) {
            assert!(outcome.ended == Ended::Good, "a read that failed");
            assert!(outcome.token.number() < depth, "a read that was not asked for");
            ended += 1;
        }
    }
}

#[inline(never)]
fn measured_disk<M: Machine, P: Port>(
    machine: &M,
    disk: &mut Disk<P>,
    data: Data,
    (depth, count): (u32, u32),
) where
    P::Protocol: Family,
{
    let mut ended = 0;
    while ended < count {
        let now = machine.now();
        for token in 0..depth {
            let request = Request {
                operation: Operation::Read,
                force_unit_access: false,
                offset: u64::from(ended + token) % (1 << 20) * u64::from(BLOCK),
                length: BLOCK.into(),
                data,
                crypto: None,
                token: token.into(),
                accepted: now,
            };
            disk.submit(&request, now).expect("room");
        }
        disk.ring(now);
        while let Some(completion) = disk.poll(now) {
            assert!(completion.result.is_ok(), "a read that failed");
            ended += 1;
        }
    }
}
