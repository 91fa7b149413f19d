//! Jobs over a disk that ends requests in any order.

use std::rc::Rc;

use flysch_api::block::{BlockDevice, BlockError, BlockGeometry};
use flysch_api::data::SegmentLimits;
use flysch_api::machine::DmaRegion;

use crate::testing::{Disk, TRIMMED, Ticks};
use crate::{Job, Jobs, Kind, Range, Transfer};

const BLOCK: u64 = 512;
const BLOCKS: u64 = 64;
/// Bytes of the device's memory, and how many of them belong to the door.
const MEMORY: usize = 16 << 10;
const RESERVED: usize = 8 << 10;
const OWN: usize = MEMORY - RESERVED;

fn disk() -> Disk {
    let geometry = BlockGeometry {
        block_size: BLOCK as u32,
        blocks: BLOCKS,
        transfer_max: 2048,
        segments: SegmentLimits::NONE,
        queue_depth: 8,
        can_delete: true,
        read_only: false,
        crypto: false,
    };
    Disk::new(geometry, MEMORY, 0x11)
}

/// Data in the device's memory, and how often it was copied nevertheless.
struct Here {
    place: usize,
    copies: Rc<std::cell::Cell<u32>>,
}

impl Transfer for Here {
    fn gather(
        &self,
        from: u64,
        memory: &DmaRegion,
        to: usize,
        length: usize,
    ) -> Result<(), BlockError> {
        self.copies.set(self.copies.get() + 1);
        memory.copy_from(to, memory, self.place + from as usize, length);
        Ok(())
    }

    fn scatter(
        &mut self,
        to: u64,
        memory: &DmaRegion,
        from: usize,
        length: usize,
    ) -> Result<(), BlockError> {
        self.copies.set(self.copies.get() + 1);
        memory.copy_from(self.place + to as usize, memory, from, length);
        Ok(())
    }

    fn place(&self) -> Option<usize> {
        Some(self.place)
    }
}

/// Executes these together; returns how often data was copied. Each is the kind, the offset, the
/// number of bytes, and the location of its data in the door's memory.
fn carry_out(disk: &mut Disk, asked: &[(Kind, u64, u64, usize)]) -> u32 {
    let (clock, copies) = (Ticks::default(), Rc::default());
    let mut jobs = Jobs::new(disk, &clock, RESERVED);
    for &(kind, offset, length, place) in asked {
        let range = Range { offset, length, force_unit_access: false };
        let transfer = Here { place: OWN + place, copies: Rc::clone(&copies) };
        jobs.add(Job::new(transfer, kind, range, BLOCK));
    }
    while !jobs.is_idle() {
        jobs.advance(|job| assert_eq!(job.failed, None));
    }
    copies.get()
}

/// Bytes that encode their position.
fn pattern(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn data_that_lies_in_the_devices_memory_is_not_copied() {
    let mut disk = disk();
    let written = pattern(5 * BLOCK);
    disk.memory().write(OWN, &written);
    // Each is longer than the device takes at once, and both are under way together.
    let asked = [(Kind::Write, 3 * BLOCK, 5 * BLOCK, 0), (Kind::Read, 20 * BLOCK, 6 * BLOCK, 4096)];
    assert_eq!(carry_out(&mut disk, &asked), 0);
    assert_eq!(disk.content[3 * BLOCK as usize..8 * BLOCK as usize], written);
    let mut read = vec![0; 7 * BLOCK as usize];
    disk.memory().read(OWN + 4096, &mut read);
    assert_eq!(read, [vec![0x11; 6 * BLOCK as usize], vec![0; BLOCK as usize]].concat());
    assert_eq!(carry_out(&mut disk, &[(Kind::Read, 3 * BLOCK, 5 * BLOCK, 1024)]), 0);
    let mut read = vec![0; written.len()];
    disk.memory().read(OWN + 1024, &mut read);
    assert_eq!(read, written);
}

#[test]
fn parts_of_blocks_are_copied_and_nothing_lands_beside_them() {
    let mut disk = disk();
    let written = pattern(3 * BLOCK);
    disk.memory().write(OWN, &written);
    assert!(carry_out(&mut disk, &[(Kind::Write, BLOCK + 100, 3 * BLOCK, 0)]) > 0);
    let from = BLOCK as usize + 100;
    assert_eq!(disk.content[from..from + written.len()], written);
    assert!(disk.content[..from].iter().all(|byte| *byte == 0x11));
    assert!(disk.content[from + written.len()..].iter().all(|byte| *byte == 0x11));
    assert!(carry_out(&mut disk, &[(Kind::Read, BLOCK + 110, 30, 4096)]) > 0);
    let mut read = [0xEE; 32];
    disk.memory().write(OWN + 4096 + 30, &[0xEE; 2]);
    disk.memory().read(OWN + 4096, &mut read);
    assert_eq!((&read[..30], &read[30..]), (&written[10..40], &[0xEE; 2][..]));
}

#[test]
fn zeroes_and_trims_leave_the_doors_own_memory_alone() {
    let mut disk = disk();
    let own = pattern(RESERVED as u64);
    disk.memory().write(OWN, &own);
    let asked = [(Kind::Zeroes, 0, 9 * BLOCK + 7, 0), (Kind::Trim, 20 * BLOCK, 4 * BLOCK, 0)];
    assert_eq!(carry_out(&mut disk, &asked), 0);
    assert!(disk.content[..9 * BLOCK as usize + 7].iter().all(|byte| *byte == 0));
    assert_eq!(disk.content[9 * BLOCK as usize + 7], 0x11);
    assert!(disk.content[20 * BLOCK as usize..24 * BLOCK as usize].iter().all(|b| *b == TRIMMED));
    let mut now = vec![0; RESERVED];
    disk.memory().read(OWN, &mut now);
    assert_eq!(now, own);
}
