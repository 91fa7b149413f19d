//! Requests and the commands made of them.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::{BlockDevice, BlockError, Operation, Refused, Request};
use flysch_api::command::{Direction, Ended, Outcome, Port, Token};
use flysch_api::crypto::{CryptoContext, DataUnit};
use flysch_api::data::{BadData, Data};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant};

use super::fake::{
    BASE, DATA, Fake, Fate, SHAPE, at, carry_through, disk, request, result, shaped,
};
use crate::{Disk, DiskOptions, Shape, error};

#[test]
fn a_read_is_one_command_with_its_stamps() {
    let mut disk = disk(4);
    let done = carry_through(&mut disk, &[request(Operation::Read, 7, 2, 99)]);
    assert_eq!((done[0].token, done[0].result), (99, Ok(())));
    let stamps = done[0].passage;
    assert_eq!(stamps.accepted, Instant::from_nanos(50));
    assert_eq!(stamps.issued, Instant::from_nanos(100));
    assert_eq!((stamps.device_done, stamps.seen), (Some(at(1)), at(1)));
    let command = &disk.port().started[0];
    assert_eq!((command.unit, command.direction), (3 << 48, Direction::FromDevice));
    assert_eq!(command.payload.0[..10], [0x28, 0, 0, 0, 0, 7, 0, 0, 2, 0]);
    let buffer = DmaSlice { address: BASE + DATA as u64, len: 8192 };
    assert_eq!(command.data, Data::One(buffer));
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
    let lengths: Vec<_> = disk.port().started.iter().map(|c| c.data.len() / 4096).collect();
    assert_eq!(lengths, [4, 4, 1]);
}

#[test]
fn addresses_beyond_32_bits_take_the_long_form() {
    let blocks = 1 << 40;
    let mut disk = shaped(Shape { blocks, ..SHAPE }, 4, 16384, &DiskOptions::default());
    disk.memory().fill(DATA, 16384, 0x5A);
    for lba in [u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, blocks - 4] {
        assert_eq!(result(&mut disk, request(Operation::Write, lba, 4, 1)), Ok(()));
        let cdb = disk.port().started.last().unwrap().payload.0;
        assert_eq!(cdb[0], if lba <= u64::from(u32::MAX) { 0x2A } else { 0x8A });
        assert!(disk.port().blocks[&(lba + 3)].iter().all(|&b| b == 0x5A));
    }
    assert_eq!(
        disk.port().started[3].payload.0[..14],
        [0x8A, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFC, 0, 0, 0, 4]
    );
}

#[test]
fn counts_beyond_16_bits_take_the_long_form() {
    let shape = Shape { block_size: 1, blocks: 1 << 20, ..SHAPE };
    let mut disk = shaped(shape, 2, 1 << 20, &DiskOptions::default());
    let mut long = request(Operation::Read, 0, 0, 1);
    sized(&mut long, 65536);
    assert_eq!(result(&mut disk, long), Ok(()));
    assert_eq!(disk.port().started[0].payload.0[0], 0x88);
    sized(&mut long, 65532);
    assert_eq!(result(&mut disk, long), Ok(()));
    assert_eq!(disk.port().started[1].payload.0[0], 0x28);
}

#[test]
fn every_power_of_two_block_size_works() {
    for shift in [9, 10, 12, 13, 16] {
        let block_size = 1_u32 << shift;
        let shape = Shape { block_size, blocks: 64, ..SHAPE };
        let mut disk = shaped(shape, 4, 1 << 16, &DiskOptions::default());
        let bytes: Vec<u8> = (0..1_u32 << 18).map(|i| (i >> 9 ^ i) as u8).collect();
        disk.memory().write(DATA, &bytes);
        let mut all = request(Operation::Write, 0, 0, 1);
        sized(&mut all, (block_size * 64).min(1 << 18));
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
        Disk::new(port, shape, scratch, &DiskOptions::default()).err()
    };
    for block_size in [0, 520, 32768] {
        let refused = new(Shape { block_size, ..SHAPE }, 4, 16384, 4096);
        assert_eq!(refused, Some(error::CamError::BlockSize { unit: 3 << 48, block_size }));
    }
    let empty = new(Shape { blocks: 0, ..SHAPE }, 4, 16384, 4096);
    assert_eq!(empty, Some(error::CamError::NotADisk { unit: 3 << 48 }));
    assert_eq!(new(SHAPE, 0, 16384, 4096), Some(error::CamError::NoSlots));
    assert_eq!(new(SHAPE, 4, 16384, 100), Some(error::CamError::Scratch { needed: 256, got: 100 }));
    assert_eq!(new(Shape { delete_blocks_max: 0, ..SHAPE }, 4, 16384, 0), None);
}

#[test]
fn the_device_never_sees_what_is_out_of_range_or_misaligned() {
    let mut disk = disk(4);
    let mut cases = vec![
        (request(Operation::Read, 1 << 20, 1, 0), BlockError::OutOfRange),
        (request(Operation::Write, (1 << 20) - 1, 2, 0), BlockError::OutOfRange),
        (request(Operation::Delete, u64::MAX / 4096, 1, 0), BlockError::OutOfRange),
        (request(Operation::Read, 0, 0, 0), BlockError::Misaligned),
    ];
    let mut odd = request(Operation::Read, 0, 1, 0);
    odd.offset = 512;
    cases.push((odd, BlockError::Misaligned));
    let mut short = request(Operation::Write, 0, 2, 0);
    short.data = Data::One(DmaSlice { address: BASE + DATA as u64, len: 4096 });
    cases.push((short, BlockError::Misaligned));
    let mut nowhere = request(Operation::Write, 0, 1, 0);
    nowhere.data = Data::One(DmaSlice { address: 0x10, len: 4096 });
    cases.push((nowhere, BlockError::BadData(BadData::Outside)));
    for (request, error) in cases {
        assert_eq!(disk.submit(&request, at(1)), Err(Refused::Invalid(error)), "{request:?}");
    }
    assert!(disk.port().started.is_empty() && disk.queue.is_quiet());
    let mut beyond = request(Operation::Read, 0, 1000, 8);
    sized(&mut beyond, 4096 * 2000);
    let outside = Err(Refused::Invalid(BlockError::BadData(BadData::Outside)));
    assert_eq!(disk.submit(&beyond, at(1)), outside, "ends outside DMA memory");
    assert_eq!(result(&mut disk, request(Operation::Read, 0, 9, 9)), Ok(()), "still in order");
}

#[test]
fn write_protected_units_take_no_writes() {
    let mut disk =
        shaped(Shape { write_protected: true, ..SHAPE }, 4, 16384, &DiskOptions::default());
    for operation in [Operation::Write, Operation::Delete] {
        let refused = disk.submit(&request(operation, 0, 1, 0), at(1));
        assert_eq!(refused, Err(Refused::Invalid(BlockError::WriteProtected)));
    }
    assert_eq!(result(&mut disk, request(Operation::Read, 0, 1, 0)), Ok(()));
}

#[test]
fn the_queue_depth_is_kept_and_a_full_queue_refuses_until_polled() {
    let options = DiskOptions { queue_depth: 2, ..DiskOptions::default() };
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
    let command = &disk.port().started[0];
    assert_eq!((command.payload.0[0], command.direction), (0x35, Direction::None));
    assert_eq!(command.deadline, at(60_001));
}

#[test]
fn a_unit_without_synchronize_cache_flushes_if_it_has_no_write_cache() {
    for write_cache in [false, true] {
        let shape = Shape { write_cache, ..SHAPE };
        let mut disk = shaped(shape, 4, 16384, &DiskOptions::default());
        for round in 0..2 {
            disk.port_mut().script.push_back(Fate::Sense(5, 0x20, 0));
            let result = result(&mut disk, request(Operation::Flush, 0, 0, round));
            assert_eq!(result, if write_cache { Err(BlockError::Unsupported) } else { Ok(()) });
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
        assert_eq!((unmap.payload.0[0], unmap.payload.0[8], unmap.data.len()), (0x42, 24, 24));
        assert_eq!(unmap.direction, Direction::ToDevice);
    }
    let mut plain =
        shaped(Shape { delete_blocks_max: 0, ..SHAPE }, 2, 16384, &DiskOptions::default());
    let refused = plain.submit(&request(Operation::Delete, 0, 1, 1), at(1));
    assert_eq!(refused, Err(Refused::Invalid(BlockError::Unsupported)));
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
        let mut disk = shaped(shape, 1, 16384, &DiskOptions::default());
        let mut write = request(Operation::Write, 0, 1, 1);
        write.force_unit_access = true;
        assert_eq!(result(&mut disk, write), Ok(()));
        let seen: Vec<_> =
            disk.port().started.iter().map(|c| (c.payload.0[0], c.payload.0[1])).collect();
        assert_eq!(seen, codes);
    }
}

#[test]
fn the_port_and_the_unit_bound_a_transfer() {
    let transfer = |port, unit, option| {
        let options = DiskOptions { transfer_max: option, ..DiskOptions::default() };
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
    let stale = |number| Outcome {
        issued: at(0),
        device_done: None,
        token: Token::new(number),
        ended: Ended::Good,
    };
    disk.submit(&request(Operation::Read, 0, 1, 1), at(1)).unwrap();
    for number in [0x7777_0000, 40] {
        assert_eq!(disk.finish_single(&stale(number), at(1)), None);
        assert_eq!(disk.take_outcome(&stale(number), at(1)), None);
    }
    assert_eq!((disk.statistics().strays, disk.queue.started), (2, 1));
    let _: &DmaRegion = disk.memory();
}

/// Gives a request another length.
fn sized(request: &mut Request, len: u32) {
    request.length = len.into();
    request.data = Data::One(DmaSlice { address: BASE + DATA as u64, len });
}

/// A request whose data is spread over these ranges, in bytes from the beginning of the data
/// memory; the list is at its end.
fn spread(disk: &Disk<Fake>, operation: Operation, ranges: &[(u64, u32)]) -> Request {
    let ranges: Vec<_> = ranges
        .iter()
        .map(|&(at, len)| DmaSlice { address: BASE + DATA as u64 + at, len })
        .collect();
    let data = Data::list(disk.memory(), 0x20_0000, &ranges).unwrap();
    Request { data, ..request(operation, 7, u64::from(data.len()) / 4096, 1) }
}

#[test]
fn a_list_of_segments_is_one_command_if_its_segments_fit() {
    let mut disk = disk(4);
    let ranges = [(0x8000, 1000), (0x4000, 3096), (0, 4096), (0x9000, 8192)];
    let content: Vec<u8> = (0..0x10000_u32).map(|n| (n ^ n >> 8) as u8).collect();
    disk.memory().write(DATA, &content);
    let write = spread(&disk, Operation::Write, &ranges);
    assert_eq!(result(&mut disk, write), Ok(()));
    let gathered: Vec<u8> = ranges
        .iter()
        .flat_map(|&(at, len)| content[at as usize..][..len as usize].to_vec())
        .collect();
    let stored: Vec<u8> = (7..11).flat_map(|lba| disk.port().blocks[&lba].clone()).collect();
    assert!(stored == gathered);
    disk.memory().fill(DATA, content.len(), 0xEE);
    let read = spread(&disk, Operation::Read, &ranges);
    assert_eq!(result(&mut disk, read), Ok(()));
    let mut back = vec![0; content.len()];
    disk.memory().read(DATA, &mut back);
    for (at, &byte) in back.iter().enumerate() {
        let inside = ranges
            .iter()
            .any(|&(start, len)| (start as usize..start as usize + len as usize).contains(&at));
        assert_eq!(byte, if inside { content[at] } else { 0xEE }, "{at:#x}");
    }
    assert_eq!(disk.port().started.len(), 2);
}

#[test]
fn a_list_with_more_segments_than_a_command_takes_is_split_between_blocks() {
    let mut disk = disk(4);
    // 12 KiB in segments of 768 bytes; a command has four of them, a block needs six.
    let small: Vec<_> = (0..16).map(|n| (n * 0x1000, 768)).collect();
    let request = spread(&disk, Operation::Write, &small);
    let refused = BadData::TooMany;
    assert_eq!(result(&mut disk, request), Err(BlockError::BadData(refused)));
    assert!(disk.port().started.is_empty());
    // In segments of 3 KiB four give three blocks.
    let larger: Vec<_> = (0..8).map(|n| (n * 0x1000, 3072)).collect();
    let content: Vec<u8> = (0..0x8000_u32).map(|n| (n * 7) as u8).collect();
    disk.memory().write(DATA, &content);
    let request = spread(&disk, Operation::Write, &larger);
    // Every part is tried twice: the list is read again.
    disk.port_mut().script.extend([Fate::End(Ended::Reset); 2]);
    assert_eq!(result(&mut disk, request), Ok(()));
    let lengths: Vec<_> = disk.port().started.iter().map(|c| c.data.len()).collect();
    assert_eq!(lengths.len(), 4, "{lengths:?}");
    let gathered: Vec<u8> = larger
        .iter()
        .flat_map(|&(at, len)| content[at as usize..][..len as usize].to_vec())
        .collect();
    let stored: Vec<u8> = (7..13).flat_map(|lba| disk.port().blocks[&lba].clone()).collect();
    assert!(stored == gathered);
}

#[test]
fn bad_lists_are_refused_before_the_device_sees_them() {
    let mut disk = disk(4);
    for (ranges, bad) in [
        (&[(0, 4096), (2048, 4096)][..], BadData::Overlap),
        (&[(0, 4096), (0x8001, 4096)], BadData::Misaligned),
        (&[(0, 4094), (0x8000, 4098)], BadData::Misaligned),
        (&[(0, 4096), (0x400_0000, 4096)], BadData::Outside),
        (&[(0x400_0000, 4096); 5], BadData::Outside),
    ] {
        let request = spread(&disk, Operation::Read, ranges);
        let refused = disk.submit(&request, at(1));
        assert_eq!(refused, Err(Refused::Invalid(BlockError::BadData(bad))), "{ranges:?}");
    }
    assert!(disk.port().started.is_empty() && disk.queue.is_quiet());
}

#[test]
fn encrypted_data_is_split_between_data_units_and_numbered() {
    // At most 16 KiB, four segments of one command, and data units of 8 KiB.
    let mut disk = disk(4);
    let unit = DataUnit::of(8192).unwrap();
    let crypto = Some(CryptoContext { number: 40, unit, slot: 2 });
    let named = |disk: &Disk<Fake>| -> Vec<_> {
        let started = disk.port().started.iter();
        started.map(|c| (c.crypto.unwrap().number, c.crypto.unwrap().slot, c.data.len())).collect()
    };
    disk.port_mut().script.extend([Fate::End(Ended::Reset)]);
    let whole = Request { crypto, ..request(Operation::Read, 7, 10, 1) };
    assert_eq!(result(&mut disk, whole), Ok(()));
    let mut parts = named(&disk);
    parts.sort_unstable();
    let again = [(40, 2, 16384), (40, 2, 16384), (42, 2, 16384), (44, 2, 8192)];
    assert_eq!(parts, again, "the first was lost in a reset and has its number again");
    // Four segments of 3 KiB have 12 KiB, of which one data unit is whole.
    let mut disk = self::disk(4);
    let ranges: Vec<_> = (0..8).map(|n| (n * 0x2000, 3072)).collect();
    let list = Request { crypto, ..spread(&disk, Operation::Write, &ranges) };
    assert_eq!(list.length, 24576);
    assert_eq!(result(&mut disk, list), Ok(()));
    assert_eq!(named(&disk), [(40, 2, 8192), (41, 2, 8192), (42, 2, 8192)]);
    let odd = Request { crypto, ..request(Operation::Read, 7, 1, 1) };
    let refused = Refused::Invalid(BlockError::BadData(BadData::DataUnit));
    assert_eq!(disk.submit(&odd, at(1)), Err(refused));
    let delete = Request { crypto, ..request(Operation::Delete, 7, 1, 1) };
    assert_eq!(result(&mut disk, delete), Ok(()), "there is nothing to encrypt");
}
