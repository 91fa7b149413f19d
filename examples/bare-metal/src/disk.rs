//! What is done with every disk, whatever is below it: both ends are written and read back, and
//! reads are timed.

use flysch_api::block::{BlockDevice as _, Completion, Operation, Request};
use flysch_api::command::Port;
use flysch_api::machine::{Clock as _, DmaAllocator, DmaRegion, DmaSlice};
use flysch_cam::{Disk, Family, Shape};

use crate::HEAP;
use crate::machine::Bare;
use crate::ports::ticks;

/// Bytes written and read back, at both ends of the disk.
const LENGTH: u32 = 2 << 20;
/// Number of reads that are timed, and their length.
const READS: u64 = 1000;
const BLOCK: u32 = 4096;

/// Runs the whole test on the disk of `shape` behind `port`; `memory` is what the driver left.
pub fn story<P: Port>(
    machine: &Bare,
    name: &str,
    (port, shape): (P, Shape),
    memory: &mut DmaAllocator,
) where
    P::Protocol: Family,
{
    let scratch = memory.take(64 << 10, 4096).expect("memory");
    let data = memory.take(LENGTH as usize, 4096).expect("memory");
    let mut disk =
        Disk::new(port, shape, scratch, &flysch_cam::DiskOptions::default()).expect("disk");
    let heap = HEAP.used();
    let size = disk.geometry().bytes();
    for (round, offset) in [0, size - u64::from(LENGTH)].into_iter().enumerate() {
        let sum = write_and_read_back(machine, &mut disk, &data, offset, round as u64);
        say!("{name}: {LENGTH} bytes at {offset} written and read back, checksum {sum:016x}");
    }
    let spent = time_reads(machine, &mut disk, &data) / READS;
    say!("{name}: {spent} ticks per {BLOCK}-byte read, {READS} reads one by one");
    assert_eq!(HEAP.used(), heap, "nothing is allocated per I/O");
}

/// Writes a pattern, clears the memory, reads and compares; returns the checksum of both.
fn write_and_read_back<P: Port>(
    machine: &Bare,
    disk: &mut Disk<P>,
    data: &DmaRegion,
    offset: u64,
    seed: u64,
) -> u64
where
    P::Protocol: Family,
{
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

/// Ticks for all timed reads, one after the other.
fn time_reads<P: Port>(machine: &Bare, disk: &mut Disk<P>, data: &DmaRegion) -> u64
where
    P::Protocol: Family,
{
    let blocks = disk.geometry().bytes() / u64::from(BLOCK);
    let before = ticks();
    for i in 0..READS {
        let offset = i * 7919 % blocks * u64::from(BLOCK);
        carry_out(machine, disk, Operation::Read, offset, data.slice(0, BLOCK));
    }
    ticks() - before
}

/// Executes one request.
fn carry_out<P: Port>(
    machine: &Bare,
    disk: &mut Disk<P>,
    operation: Operation,
    offset: u64,
    buffer: DmaSlice,
) -> Completion
where
    P::Protocol: Family,
{
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
