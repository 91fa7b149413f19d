//! The UFS driver and the command layer on a machine without an operating system.
//!
//! Finds the UFS host controller on the PCI bus, brings it up, scans it, writes and reads blocks
//! back, and says so on the serial line; once with the single doorbell, once with multi-circular
//! queues if the controller has them. The crates are the same that run in user space.
#![no_std]
#![no_main]

extern crate alloc;

mod boot;
mod heap;
mod machine;
mod ports;

use core::fmt::Write as _;

use flysch_api::block::{Completion, Device as _, Operation, Request};
use flysch_api::machine::{Clock as _, DmaAllocator, DmaRegion, DmaSlice, Machine as _};
use flysch_cam::Disk;
use flysch_ufs::{Host, Options, Port, QueueMode};

use heap::Heap;
use machine::Bare;
use ports::{Serial, exit, ticks};

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Bytes written and read back, at both ends of the disk.
const LENGTH: u32 = 2 << 20;
/// Reads that are timed.
const READS: u64 = 1000;
const BLOCK: u32 = 4096;

macro_rules! say {
    ($($text:tt)*) => {{
        // The serial line takes everything.
        let _ = writeln!(Serial, $($text)*);
    }};
}

/// Called once from `boot`.
extern "C" fn start() -> ! {
    let Some(machine) = Bare::find() else { panic!("no UFS host controller on PCI bus 0") };
    let id = machine.identity();
    say!("flysch: UFS host controller {:04x}:{:04x}", id.vendor, id.device);
    let mcq = story(&machine, QueueMode::Sdq);
    if mcq {
        story(&machine, QueueMode::Mcq);
    }
    say!("PASS");
    exit(true)
}

/// Everything with one queue design; answers whether the controller has MCQ.
fn story(machine: &Bare, queue: QueueMode) -> bool {
    let name = if queue == QueueMode::Mcq { "mcq" } else { "sdq" };
    let options = Options { queue, ..Options::default() };
    let mut memory = DmaAllocator::new(machine.memory().clone());
    let mut take = |len| memory.take(len, 4096).expect("memory");
    let driver = take(Host::<Bare>::memory_len(&options));
    let mut host = Host::new(machine.clone(), driver, options).expect("host");
    let before = machine.now();
    host.bring_up(machine).expect("bring-up");
    let version = host.version().number();
    let taken = machine.now() - before;
    say!("{name}: UFSHCI {}.{}, up in {} us", version.0, version.1, taken.as_micros());
    let has_mcq = host.capabilities().mcqs();
    let mut port = host.into_ports().remove(0);
    let scratch = take(64 << 10);
    let data = take(LENGTH as usize);
    let units = flysch_cam::scan(&mut port, machine, &scratch).expect("scan");
    let unit = units.first().expect("a logical unit");
    let shape = unit.shape().expect("a disk");
    say!("{name}: {unit} lun {}: {} blocks of {} bytes", unit.lun, shape.blocks, shape.block_size);
    let mut disk = Disk::new(port, shape, scratch, &flysch_cam::Options::default()).expect("disk");
    let heap = HEAP.used();
    let size = disk.geometry().bytes();
    for (round, offset) in [0, size - u64::from(LENGTH)].into_iter().enumerate() {
        let sum = write_and_read_back(machine, &mut disk, &data, offset, round as u64);
        say!("{name}: {LENGTH} bytes at {offset} written and read back, checksum {sum:016x}");
    }
    let spent = time_reads(machine, &mut disk, &data) / READS;
    say!("{name}: {spent} ticks per {BLOCK}-byte read, {READS} reads one by one");
    assert_eq!(HEAP.used(), heap, "nothing is allocated per I/O");
    has_mcq
}

/// Writes a pattern, wipes the memory, reads, and compares; answers the checksum of both.
fn write_and_read_back(
    machine: &Bare,
    disk: &mut Disk<Port<Bare>>,
    data: &DmaRegion,
    offset: u64,
    seed: u64,
) -> u64 {
    let mut word = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    for at in (0..LENGTH as usize).step_by(8) {
        word = (word ^ word >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(31);
        data.store64(at, word);
    }
    let written = checksum(data);
    let slice = data.slice(0, LENGTH);
    carry_out(machine, disk, Operation::Write, offset, slice);
    carry_out(machine, disk, Operation::Flush, 0, DmaSlice::EMPTY);
    data.fill(0, LENGTH as usize, 0);
    carry_out(machine, disk, Operation::Read, offset, slice);
    assert_eq!(checksum(data), written, "what was read is not what was written");
    written
}

/// FNV-1a over 64-bit words.
fn checksum(data: &DmaRegion) -> u64 {
    (0..LENGTH as usize).step_by(8).fold(0xCBF2_9CE4_8422_2325, |sum: u64, at| {
        (sum ^ data.load64(at)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Ticks that so many reads take, one after the other.
fn time_reads(machine: &Bare, disk: &mut Disk<Port<Bare>>, data: &DmaRegion) -> u64 {
    let blocks = disk.geometry().blocks;
    let before = ticks();
    for i in 0..READS {
        let offset = i * 7919 % blocks * u64::from(BLOCK);
        carry_out(machine, disk, Operation::Read, offset, data.slice(0, BLOCK));
    }
    ticks() - before
}

/// One request to its end.
fn carry_out(
    machine: &Bare,
    disk: &mut Disk<Port<Bare>>,
    operation: Operation,
    offset: u64,
    buffer: DmaSlice,
) -> Completion {
    let accepted = machine.now();
    let request = Request {
        operation,
        force_unit_access: false,
        offset,
        length: buffer.len.into(),
        data: buffer.into(),
        crypto: None,
        token: offset,
        accepted,
    };
    disk.submit(&request, accepted).expect("room for one request");
    disk.ring(machine.now());
    loop {
        if let Some(completion) = disk.poll(machine.now()) {
            if let Err(error) = completion.result {
                panic!("{operation} at {offset}: {error}");
            }
            return completion;
        }
        machine.wait(disk.poll_at());
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("FAIL: {info}");
    exit(false)
}
