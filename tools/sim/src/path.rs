//! The software path of one 4 KiB read, counted in instructions.
//!
//! The controller is one that has done everything when its doorbell write returns, so what is
//! left is the driver, or driver and disk. Callgrind counts only inside `measured`, and not
//! inside the controller (its two doorbell functions are toggled off again).

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use flysch_api::block::{Device, Operation, Request};
use flysch_api::command::{self, Cdb, Direction, Ended, Ordering, Port as _, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, Instant, Machine};
use flysch_cam::{Disk, Shape};
use flysch_tests::instant::InstantMachine;
use flysch_ufs::{Host, Options, Port, QueueMode};

const DRIVER_BYTES: usize = 1 << 20;
const SCRATCH_BYTES: usize = 64 << 10;
const BLOCK: u32 = 4096;
const DEPTH: u32 = 32;
/// READ(10) of the first block.
const READ_10: Cdb = Cdb([0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);

/// How much of the stack is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// The host controller driver alone, from `start` to the outcome.
    Driver,
    /// A `da` disk over it, from the request to its completion.
    Disk,
}

/// Which queue design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Queue {
    /// Single doorbell.
    Sdq,
    /// Multi-circular queues.
    Mcq,
}

/// Every combination with the most instructions it may take.
pub const BUDGETS: [(Layer, Queue, u64); 4] = [
    (Layer::Driver, Queue::Mcq, 400),
    (Layer::Driver, Queue::Sdq, 500),
    (Layer::Disk, Queue::Mcq, 700),
    (Layer::Disk, Queue::Sdq, 700),
];

/// Reads 4 KiB `count` times at depth 32.
///
/// # Panics
/// If a read fails: nothing can go wrong on this controller.
pub fn run(layer: Layer, queue: Queue, count: u32) {
    let machine = InstantMachine::new(8 << 20);
    let queue = match queue {
        Queue::Sdq => QueueMode::Sdq,
        Queue::Mcq => QueueMode::Mcq,
    };
    let options = Options { queue, interrupts: false, ..Options::default() };
    let memory = machine.memory().carve(0, DRIVER_BYTES);
    let mut host = Host::new(machine.clone(), memory, options).expect("options that fit");
    host.bring_up(&machine).expect("bring-up");
    let mut port = host.into_ports().remove(0);
    match layer {
        Layer::Driver => measured_driver(&machine, &mut port, count),
        Layer::Disk => measured_disk(&machine, &mut disk(&machine, port), count),
    }
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
fn measured_driver(machine: &InstantMachine, port: &mut Port<InstantMachine>, count: u32) {
    let data = machine.memory().slice(DRIVER_BYTES + SCRATCH_BYTES, BLOCK);
    let mut ended = 0;
    while ended < count {
        let now = machine.now();
        for token in 0..DEPTH {
            let command = command::Command {
                unit: 0,
                payload: READ_10,
                direction: Direction::FromDevice,
                data: Data::One(data),
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
fn measured_disk(machine: &InstantMachine, disk: &mut Disk<Port<InstantMachine>>, count: u32) {
    let buffer = machine.memory().slice(DRIVER_BYTES + SCRATCH_BYTES, BLOCK);
    let mut ended = 0;
    while ended < count {
        let now = machine.now();
        for token in 0..DEPTH {
            let request = Request {
                operation: Operation::Read,
                force_unit_access: false,
                offset: u64::from(ended + token) % (1 << 20) * u64::from(BLOCK),
                length: BLOCK.into(),
                data: Data::One(buffer),
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

/// Instructions per read, counted by callgrind over a run of this program.
///
/// Two runs of different length are compared, so what happens once does not count.
///
/// # Errors
/// Valgrind is missing, or what it said.
pub fn count(program: &Path, layer: Layer, queue: Queue) -> Result<u64, String> {
    const SHORT: u64 = 3_200;
    const LONG: u64 = 35_200;
    let short = total(program, layer, queue, SHORT)?;
    let long = total(program, layer, queue, LONG)?;
    Ok((long - short) / (LONG - SHORT))
}

fn total(program: &Path, layer: Layer, queue: Queue, reads: u64) -> Result<u64, String> {
    let name = |value: &dyn Fn() -> Option<String>| value().unwrap_or_default();
    let layer = name(&|| layer.to_possible_value().map(|v| v.get_name().to_owned()));
    let queue = name(&|| queue.to_possible_value().map(|v| v.get_name().to_owned()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--toggle-collect=*measured_*", "--toggle-collect=*InstantMachine*ring_*"])
        .arg(program)
        .args(["path", &layer, &queue, &reads.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install the Debian package valgrind"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("valgrind: {}", said.lines().last().unwrap_or("said nothing")))
}
