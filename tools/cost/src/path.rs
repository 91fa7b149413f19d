//! The software path of one 4 KiB read, to be counted.
//!
//! The controller is one that has done everything when its doorbell write returns, so what is left
//! is the driver, or driver and disk, and the loop that makes the requests.

use flysch_api::block::{Device, Operation, Request};
use flysch_api::command::{Cdb, Command, Direction, Ended, Ordering, Port as _, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaSlice, Instant, Machine};
use flysch_cam::{Disk, Shape};
use flysch_ufs::{Host, Options, Port, QueueMode};

use crate::instant::{InstantMachine, Order};

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
    /// A `da` disk over it, from the request to its completion.
    Disk,
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// How much of the stack.
    pub layer: Layer,
    /// Multi-circular queues, or the single doorbell.
    pub mcq: bool,
    /// Requests per doorbell.
    pub depth: u32,
    /// In which order they end.
    pub order: Order,
    /// Segments of each request's data.
    pub segments: u32,
    /// The most instructions it may take.
    pub budget: u64,
}

/// Everything that is measured.
pub const CASES: [Case; 8] = [
    case("driver-mcq", "driver, MCQ, depth 32, in order", Layer::Driver, 265),
    Case {
        order: Order::Shuffled,
        ..case("driver-mcq-shuffled", "driver, MCQ, depth 32, out of order", Layer::Driver, 265)
    },
    Case { depth: 1, ..case("driver-mcq-1", "driver, MCQ, depth 1", Layer::Driver, 400) },
    Case { mcq: false, ..case("driver-sdq", "driver, SDQ, depth 32", Layer::Driver, 250) },
    case("disk-mcq", "disk and driver, MCQ, depth 32", Layer::Disk, 440),
    Case { mcq: false, ..case("disk-sdq", "disk and driver, SDQ, depth 32", Layer::Disk, 420) },
    Case {
        segments: 8,
        ..case("disk-mcq-list", "disk and driver, MCQ, depth 32, 8 segments", Layer::Disk, 860)
    },
    Case {
        mcq: false,
        segments: 8,
        ..case("disk-sdq-list", "disk and driver, SDQ, depth 32, 8 segments", Layer::Disk, 840)
    },
];

const fn case(name: &'static str, what: &'static str, layer: Layer, budget: u64) -> Case {
    let order = Order::AsIssued;
    Case { name, what, layer, mcq: true, depth: 32, order, segments: 1, budget }
}

/// Reads 4 KiB `count` times.
///
/// # Panics
/// If a read fails: nothing can go wrong on this controller.
pub fn run(case: &Case, count: u32) {
    let machine = InstantMachine::new(8 << 20);
    machine.set_order(case.order);
    let queue = if case.mcq { QueueMode::Mcq } else { QueueMode::Sdq };
    let options = Options { queue, interrupts: false, ..Options::default() };
    let memory = machine.memory().carve(0, DRIVER_BYTES);
    let mut host = Host::new(machine.clone(), memory, options).expect("options that fit");
    host.bring_up(&machine).expect("bring-up");
    let mut port = host.into_ports().remove(0);
    let data = data(&machine, case.segments);
    match case.layer {
        Layer::Driver => measured_driver(&machine, &mut port, data, (case.depth, count)),
        Layer::Disk => {
            measured_disk(&machine, &mut disk(&machine, port), data, (case.depth, count));
        }
    }
}

/// The data of every request: a block, in one piece or in pieces with gaps between them.
fn data(machine: &InstantMachine, segments: u32) -> Data {
    let memory = machine.memory();
    let len = BLOCK / segments;
    let piece = |n: u32| memory.slice(DATA + n as usize * BLOCK as usize, len);
    if segments == 1 {
        return Data::One(piece(0));
    }
    let pieces: Vec<DmaSlice> = (0..segments).map(piece).collect();
    let list = DATA + segments as usize * BLOCK as usize;
    Data::list(memory, list, &pieces).expect("room for the list")
}

fn disk(machine: &InstantMachine, port: Port<InstantMachine>) -> Disk<Port<InstantMachine>> {
    let shape = Shape {
        unit: 0,
        block_size: BLOCK,
        blocks: 1 << 20,
        transfer_blocks_max: 0,
        delete_blocks_max: 0,
        write_cache: true,
        force_unit_access: true,
        write_protected: false,
    };
    let scratch = machine.memory().carve(DRIVER_BYTES, SCRATCH_BYTES);
    Disk::new(port, shape, scratch, &flysch_cam::Options::default()).expect("a disk")
}

#[inline(never)]
fn measured_driver(
    machine: &InstantMachine,
    port: &mut Port<InstantMachine>,
    data: Data,
    (depth, count): (u32, u32),
) {
    let mut ended = 0;
    while ended < count {
        let now = machine.now();
        for token in 0..depth {
            let command = Command {
                unit: 0,
                payload: READ_10,
                direction: Direction::FromDevice,
                data,
                ordering: Ordering::Simple,
                deadline: Instant::NEVER,
                token: Token::new(token),
            };
            port.start(command, now).expect("room");
        }
        port.ring(now);
        while let Some(outcome) = port.poll(now) {
            assert_eq!(outcome.ended, Ended::Good);
            ended += 1;
        }
    }
}

#[inline(never)]
fn measured_disk(
    machine: &InstantMachine,
    disk: &mut Disk<Port<InstantMachine>>,
    data: Data,
    (depth, count): (u32, u32),
) {
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
                token: token.into(),
                accepted: now,
            };
            disk.submit(&request, now).expect("room");
        }
        disk.ring(now);
        while let Some(completion) = disk.poll(now) {
            assert_eq!(completion.result, Ok(()));
            ended += 1;
        }
    }
}
