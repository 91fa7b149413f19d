//! Requests and the commands made of them.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::{Device, Error, Operation, Refused};
use flysch_api::command::{Direction, Port};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant};

use super::fake::{
    BASE, DATA, Fake, Fate, SHAPE, at, carry_through, disk, request, result, shaped,
};
use crate::{Disk, Options, Shape, error};

#[test]
fn a_read_is_one_command_with_its_stamps() {
    let mut disk = disk(4);
    let done = carry_through(&mut disk, &[request(Operation::Read, 7, 2, 99)]);
    assert_eq!((done[0].token, done[0].result), (99, Ok(())));
    let stamps = done[0].stamps;
    assert_eq!(stamps.accepted, Instant::from_nanos(50));
    assert_eq!(stamps.issued, Instant::from_nanos(100));
    assert_eq!((stamps.device_done, stamps.seen), (Some(at(1)), at(1)));
    let command = disk.port().started[0];
    assert_eq!((command.lun, command.direction), (3, Direction::FromDevice));
    assert_eq!(command.cdb[..10], [0x28, 0, 0, 0, 0, 7, 0, 0, 2, 0]);
    assert_eq!(command.data, DmaSlice { address: BASE + DATA as u64, len: 8192 });
    assert_eq!(command.deadline, at(10_001));
}

#[test]
fn long_requests_are_split_and_put_together_again() {
    for backwards in [false, true] {
        let mut disk = disk(3);
        disk.port_mut().backwards = backwards;
        let bytes: Vec<u8> = (0..100 * 4096).map(|i| (i * 7 / 4096 + i % 251) as u8).collect();
        disk.memory().write(DATA, &bytes);
        assert_eq!(result(&mut disk, request(Operation::Write, 5, 100, 1)), Ok(()));
        assert_eq!((disk.port().started.len(), disk.port().in_flight_max), (25, 3));
        disk.memory().fill(DATA, bytes.len(), 0);
        assert_eq!(result(&mut disk, request(Operation::Read, 5, 100, 2)), Ok(()));
        let mut back = vec![0; bytes.len()];
        disk.memory().read(DATA, &mut back);
        assert!(back == bytes);
    }
}

#[test]
fn the_last_part_is_the_rest() {
    let mut disk = disk(8);
    assert_eq!(result(&mut disk, request(Operation::Read, 0, 9, 1)), Ok(()));
    let lengths: Vec<_> = disk.port().started.iter().map(|c| c.data.len / 4096).collect();
    assert_eq!(lengths, [4, 4, 1]);
}

#[test]
fn addresses_beyond_32_bits_take_the_long_form() {
    let blocks = 1 << 40;
    let mut disk = shaped(Shape { blocks, ..SHAPE }, 4, 16384, &Options::default());
    disk.memory().fill(DATA, 16384, 0x5A);
    for lba in [u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, blocks - 4] {
        assert_eq!(result(&mut disk, request(Operation::Write, lba, 4, 1)), Ok(()));
        let cdb = disk.port().started.last().unwrap().cdb;
        assert_eq!(cdb[0], if lba <= u64::from(u32::MAX) { 0x2A } else { 0x8A });
        assert!(disk.port().blocks[&(lba + 3)].iter().all(|&b| b == 0x5A));
    }
    assert_eq!(
        disk.port().started[3].cdb[..14],
        [0x8A, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFC, 0, 0, 0, 4]
    );
}

#[test]
fn counts_beyond_16_bits_take_the_long_form() {
    let shape = Shape { block_size: 1, blocks: 1 << 20, ..SHAPE };
    let mut disk = shaped(shape, 2, 1 << 20, &Options::default());
    let mut long = request(Operation::Read, 0, 0, 1);
    (long.length, long.buffer.len) = (65536, 65536);
    assert_eq!(result(&mut disk, long), Ok(()));
    assert_eq!(disk.port().started[0].cdb[0], 0x88);
    (long.length, long.buffer.len) = (65535, 65535);
    assert_eq!(result(&mut disk, long), Ok(()));
    assert_eq!(disk.port().started[1].cdb[0], 0x28);
}

#[test]
fn every_power_of_two_block_size_works() {
    for shift in [9, 10, 12, 13, 16] {
        let block_size = 1_u32 << shift;
        let shape = Shape { block_size, blocks: 64, ..SHAPE };
        let mut disk = shaped(shape, 4, 1 << 16, &Options::default());
        let bytes: Vec<u8> = (0..1_u32 << 18).map(|i| (i >> 9 ^ i) as u8).collect();
        disk.memory().write(DATA, &bytes);
        let mut all = request(Operation::Write, 0, 0, 1);
        all.length = (u64::from(block_size) * 64).min(1 << 18);
        all.buffer.len = all.length as u32;
        assert_eq!(result(&mut disk, all), Ok(()));
        disk.memory().fill(DATA, bytes.len(), 0);
        all.operation = Operation::Read;
        assert_eq!(result(&mut disk, all), Ok(()));
        let mut back = vec![0; all.length as usize];
        disk.memory().read(DATA, &mut back);
        assert!(back == bytes[..back.len()], "{block_size}");
    }
}

#[test]
fn what_cannot_be_a_disk_is_refused() {
    let new = |shape, slots, transfer_max, scratch: usize| {
        let port = Fake::new(slots, transfer_max, 4096);
        let scratch = port.memory().carve(0, scratch);
        Disk::new(port, shape, scratch, &Options::default()).err()
    };
    for block_size in [0, 520, 32768] {
        let refused = new(Shape { block_size, ..SHAPE }, 4, 16384, 4096);
        assert_eq!(refused, Some(error::Error::BlockSize { lun: 3, block_size }));
    }
    let empty = new(Shape { blocks: 0, ..SHAPE }, 4, 16384, 4096);
    assert_eq!(empty, Some(error::Error::NotADisk { lun: 3 }));
    assert_eq!(new(SHAPE, 0, 16384, 4096), Some(error::Error::NoSlots));
    assert_eq!(new(SHAPE, 4, 16384, 100), Some(error::Error::Scratch { needed: 256, got: 100 }));
    assert_eq!(new(Shape { unmap_blocks_max: 0, ..SHAPE }, 4, 16384, 0), None);
}

#[test]
fn the_device_never_sees_what_is_out_of_range_or_misaligned() {
    let mut disk = disk(4);
    let mut cases = vec![
        (request(Operation::Read, 1 << 20, 1, 0), Error::OutOfRange),
        (request(Operation::Write, (1 << 20) - 1, 2, 0), Error::OutOfRange),
        (request(Operation::Delete, u64::MAX / 4096, 1, 0), Error::OutOfRange),
        (request(Operation::Read, 0, 0, 0), Error::Misaligned),
    ];
    let mut odd = request(Operation::Read, 0, 1, 0);
    odd.offset = 512;
    cases.push((odd, Error::Misaligned));
    let mut short = request(Operation::Write, 0, 2, 0);
    short.buffer.len = 4096;
    cases.push((short, Error::Misaligned));
    let mut nowhere = request(Operation::Write, 0, 1, 0);
    nowhere.buffer.address = 0x10;
    cases.push((nowhere, Error::Misaligned));
    for (request, error) in cases {
        assert_eq!(disk.submit(&request, at(1)), Err(Refused::Invalid(error)), "{request:?}");
    }
    assert!(disk.port().started.is_empty() && disk.queue.is_quiet());
    let mut beyond = request(Operation::Read, 0, 1000, 8);
    (beyond.length, beyond.buffer.len) = (4096 * 2000, 4096 * 2000);
    assert_eq!(result(&mut disk, beyond), Err(Error::Misaligned), "ends outside DMA memory");
    assert_eq!(result(&mut disk, request(Operation::Read, 0, 9, 9)), Ok(()), "still in order");
}

#[test]
fn write_protected_units_take_no_writes() {
    let mut disk = shaped(Shape { write_protected: true, ..SHAPE }, 4, 16384, &Options::default());
    for operation in [Operation::Write, Operation::Delete] {
        let refused = disk.submit(&request(operation, 0, 1, 0), at(1));
        assert_eq!(refused, Err(Refused::Invalid(Error::WriteProtected)));
    }
    assert_eq!(result(&mut disk, request(Operation::Read, 0, 1, 0)), Ok(()));
}

#[test]
fn the_queue_depth_is_kept_and_a_full_queue_refuses_until_polled() {
    let options = Options { queue_depth: 2, ..Options::default() };
    let mut disk = shaped(SHAPE, 8, 16384, &options);
    assert_eq!(disk.geometry().queue_depth, 2);
    for token in 0..2 {
        disk.submit(&request(Operation::Read, token, 1, token), at(1)).unwrap();
    }
    let third = request(Operation::Read, 2, 1, 2);
    assert_eq!(disk.submit(&third, at(1)), Err(Refused::Full));
    assert_eq!(disk.poll(at(1)), None, "nothing was rung");
    disk.ring(at(1));
    assert_eq!(disk.port().rings, 1);
    assert!(disk.poll(at(2)).is_some());
    disk.submit(&third, at(2)).unwrap();
    assert_eq!(disk.submit(&third, at(2)), Err(Refused::Full));
}

#[test]
fn short_requests_get_their_turn_behind_a_long_one() {
    let mut disk = disk(2);
    disk.port_mut().script.extend([Fate::Hold, Fate::Hold]);
    let requests = [request(Operation::Read, 0, 40, 1), request(Operation::Read, 100, 1, 2)];
    for request in &requests {
        disk.submit(request, at(1)).unwrap();
    }
    assert_eq!(disk.submit(&requests[1], at(1)), Err(Refused::Full));
    disk.ring(at(1));
    assert_eq!(disk.poll(at(1)), None);
    disk.port_mut().release();
    let mut tokens = Vec::new();
    for _ in 0..20 {
        tokens.extend(disk.poll(at(2)).map(|done| done.token));
    }
    assert_eq!(tokens, [1, 2]);
}

#[test]
fn flush_is_synchronize_cache() {
    let mut disk = disk(4);
    assert_eq!(result(&mut disk, request(Operation::Flush, 0, 0, 1)), Ok(()));
    let command = disk.port().started[0];
    assert_eq!((command.cdb[0], command.direction), (0x35, Direction::None));
    assert_eq!(command.deadline, at(60_001));
}

#[test]
fn a_unit_without_synchronize_cache_flushes_if_it_has_no_write_cache() {
    for write_cache in [false, true] {
        let shape = Shape { write_cache, ..SHAPE };
        let mut disk = shaped(shape, 4, 16384, &Options::default());
        for round in 0..2 {
            disk.port_mut().script.push_back(Fate::Sense(5, 0x20, 0));
            let result = result(&mut disk, request(Operation::Flush, 0, 0, round));
            assert_eq!(result, if write_cache { Err(Error::Unsupported) } else { Ok(()) });
        }
        let asked = if write_cache { 2 } else { 1 };
        assert_eq!(disk.port().started.len(), asked, "what is known is not asked again");
    }
}

#[test]
fn delete_is_unmap_split_at_the_units_limit() {
    let mut disk = disk(2);
    assert_eq!(result(&mut disk, request(Operation::Write, 1500, 4, 1)), Ok(()));
    assert_eq!(disk.port().blocks.len(), 4);
    assert_eq!(result(&mut disk, request(Operation::Delete, 10, 2500, 2)), Ok(()));
    assert!(disk.port().blocks.is_empty());
    let unmaps: Vec<_> = disk.port().started[1..].iter().collect();
    assert_eq!(unmaps.len(), 3);
    for unmap in unmaps {
        assert_eq!((unmap.cdb[0], unmap.cdb[8], unmap.data.len), (0x42, 24, 24));
        assert_eq!(unmap.direction, Direction::ToDevice);
    }
    let mut plain = shaped(Shape { unmap_blocks_max: 0, ..SHAPE }, 2, 16384, &Options::default());
    let refused = plain.submit(&request(Operation::Delete, 0, 1, 1), at(1));
    assert_eq!(refused, Err(Refused::Invalid(Error::Unsupported)));
}

#[test]
fn forced_unit_access_is_a_bit_a_flush_or_nothing() {
    for (write_cache, force_unit_access, codes) in [
        (true, true, vec![(0x2A, 8)]),
        (true, false, vec![(0x2A, 0), (0x35, 0)]),
        (false, true, vec![(0x2A, 0)]),
        (false, false, vec![(0x2A, 0)]),
    ] {
        let shape = Shape { write_cache, force_unit_access, ..SHAPE };
        let mut disk = shaped(shape, 1, 16384, &Options::default());
        let mut write = request(Operation::Write, 0, 1, 1);
        write.force_unit_access = true;
        assert_eq!(result(&mut disk, write), Ok(()));
        let seen: Vec<_> = disk.port().started.iter().map(|c| (c.cdb[0], c.cdb[1])).collect();
        assert_eq!(seen, codes);
    }
}

#[test]
fn the_port_and_the_unit_bound_a_transfer() {
    let transfer = |port, unit, option| {
        let options = Options { transfer_max: option, ..Options::default() };
        let shape = Shape { transfer_blocks_max: unit, ..SHAPE };
        shaped(shape, 2, port, &options).geometry().transfer_max
    };
    assert_eq!(transfer(1 << 20, 0, u32::MAX), 1 << 20);
    assert_eq!(transfer(1 << 20, 8, u32::MAX), 32768);
    assert_eq!(transfer(1 << 20, 8, 5000), 4096);
    assert_eq!(transfer(70_000, 0, u32::MAX), 69_632);
}

#[test]
fn outcomes_of_an_earlier_life_are_not_believed() {
    let mut disk = disk(1);
    let stale = flysch_api::command::Outcome {
        token: 0x7777_0000,
        ended: flysch_api::command::Ended::Status(0),
        residual: 0,
        sense: Default::default(),
        issued: at(0),
        device_done: None,
        seen: at(0),
    };
    disk.submit(&request(Operation::Read, 0, 1, 1), at(1)).unwrap();
    assert_eq!(disk.take_outcome(&stale, at(1)), None);
    let far = flysch_api::command::Outcome { token: 40, ..stale };
    assert_eq!(disk.take_outcome(&far, at(1)), None);
    assert_eq!((disk.statistics().strays, disk.queue.started), (2, 1));
    let _: &DmaRegion = disk.memory();
}
