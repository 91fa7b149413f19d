//! Data through driver and disk on QEMU's UFS device, both releases, SDQ and MCQ.

use flysch_random::SplitMix64;
use std::os::unix::fs::MetadataExt;

use flysch_api::block::{BlockDevice as _, BlockError, Operation, Refused, Request};
use flysch_api::command::{Command, Direction, Ended, Ordering, Port as _, Token};
use flysch_api::data::{BadData, Data};
use flysch_api::machine::{Clock as _, DmaRegion, DmaSlice, Registers as _};
use flysch_cam::Disk;
use flysch_qemu::{Backing, Machine, Unit};
use flysch_tests::qemu::{Stack, carry_out, memory_unit, releases, request, stack};
use flysch_tests::wait::PATIENCE;
use flysch_ufs::Port;
use flysch_wire::scsi::luns::LogicalUnitNumber;

const BLOCK: u64 = 4096;

/// The contents of a block after its `generation`-th write: every word depends on both.
fn content(block: u64, generation: u32, bytes: &mut [u8]) {
    let seed = block << 32 | u64::from(generation);
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = (seed ^ i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ seed;
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// The first `bytes` bytes of the slot at `start`: as one range, or, two times out of three, as a
/// list of pieces with odd lengths at odd offsets, possibly more than a command has segments. The
/// list is at the end of the slot.
fn data_of(data: &DmaRegion, start: u64, bytes: u64, random: &mut SplitMix64) -> Data {
    let longest = [0, 2048, 65536][random.modulo(3) as usize];
    if longest == 0 {
        return data.slice(start as usize, bytes as u32).into();
    }
    let longest = longest.max(bytes / 512);
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < bytes {
        let len = (4 + random.modulo(longest / 4) * 4).min(bytes - at);
        pieces.push(data.slice((start + at) as usize, len as u32));
        at += len;
    }
    Data::list(data, (start + SLOT - LIST) as usize, &pieces).expect("room for the list")
}

/// Memory of one request, including room for the list of its segments at the end.
const SLOT: u64 = 3 << 20;
const LIST: u64 = 128 << 10;

/// Writes ranges of random position and length over blocks `first..first + count`, reading some
/// back in between, then reads everything and compares it with what was written last.
pub(crate) fn hammer(
    disk: &mut Disk<Port<Machine>>,
    machine: &Machine,
    data: &DmaRegion,
    (first, count): (u64, u64),
    rounds: u32,
) {
    let mut random = SplitMix64::new(0x1234_5678_9ABC_DEF1 + first);
    let mut generations = vec![0_u32; count as usize];
    let mut bytes = vec![0; BLOCK as usize];
    for round in 1..=rounds {
        // Disjoint ranges are in flight together, so that the outcome does not depend on their
        // order.
        let mut requests = Vec::new();
        let mut block = random.modulo(16);
        for slot in 0..data.len() as u64 / SLOT {
            let longest = [1, 2, 8, 64, 600][random.modulo(5) as usize];
            let blocks = (1 + random.modulo(longest)).min((SLOT - LIST) / BLOCK);
            if block + blocks > count {
                break;
            }
            for i in 0..blocks {
                generations[(block + i) as usize] = round;
                content(first + block + i, round, &mut bytes);
                data.write((slot * SLOT + i * BLOCK) as usize, &bytes);
            }
            let slice = data_of(data, slot * SLOT, blocks * BLOCK, &mut random);
            let (offset, length) = ((first + block) * BLOCK, blocks * BLOCK);
            requests.push(request(Operation::Write, offset, length, slice, machine));
            block += blocks + random.modulo(count / 8);
        }
        for done in carry_out(disk, machine, &requests) {
            assert_eq!(done.result, Ok(()));
            assert!(done.passage.accepted <= done.passage.issued);
            assert!(done.passage.issued <= done.passage.seen);
        }
    }
    let mut block = 0;
    while block < count {
        let blocks = (1 + random.modulo((SLOT - LIST) / BLOCK)).min(count - block);
        data.fill(0, (blocks * BLOCK) as usize, 0xEE);
        let slice = data_of(data, 0, blocks * BLOCK, &mut random);
        let (offset, length) = ((first + block) * BLOCK, blocks * BLOCK);
        let read = request(Operation::Read, offset, length, slice, machine);
        assert_eq!(carry_out(disk, machine, &[read])[0].result, Ok(()));
        let (mut found, zero) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
        for i in 0..blocks {
            data.read((i * BLOCK) as usize, &mut found);
            match generations[(block + i) as usize] {
                0 => assert!(found == zero, "block {} was never written", first + block + i),
                generation => {
                    content(first + block + i, generation, &mut bytes);
                    assert!(found == bytes, "block {} of round {generation}", first + block + i);
                }
            }
        }
        block += blocks;
    }
}

#[test]
fn everything_written_is_read_back() {
    for release in releases() {
        for queues in [0, 1, 3] {
            let stack = stack(&release, queues, vec![memory_unit(0, 48 << 20)]);
            let (mut disk, machine, data) = stack.disk(0);
            assert_eq!(disk.geometry().blocks, (48 << 20) / BLOCK);
            hammer(&mut disk, &machine, &data, (0, (48 << 20) / BLOCK), 12);
            let statistics = disk.statistics();
            assert_eq!((statistics.failures, statistics.strays, statistics.timeouts), (0, 0, 0));
        }
    }
}

#[test]
fn lanes_on_threads_of_their_own() {
    const PART: usize = 12 << 20;
    for release in releases() {
        for queues in [2, 4] {
            let mut stack = stack(&release, queues, vec![memory_unit(0, 64 << 20)]);
            let shape = stack.units[0].shape().unwrap();
            let ports: Vec<_> = stack.ports.drain(..).collect();
            assert_eq!(ports.len(), usize::from(queues));
            std::thread::scope(|scope| {
                let run = |(lane, port): (usize, _)| {
                    let scratch = stack.scratch.carve(lane * 4096, 4096);
                    let data = stack.data.carve(lane * PART, PART);
                    let machine = stack.machine.clone();
                    scope.spawn(move || {
                        let mut disk =
                            Disk::new(port, shape, scratch, &Default::default()).unwrap();
                        let share = (lane as u64 * 4000, 4000);
                        hammer(&mut disk, &machine, &data, share, 8);
                        assert_eq!(disk.statistics().failures, 0);
                        disk
                    })
                };
                let threads: Vec<_> = ports.into_iter().enumerate().map(run).collect();
                // The first port carries the host, whose end would end the others too: all disks
                // live until all are done.
                let disks: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
                assert!(disks.iter().all(Result::is_ok));
            });
        }
    }
}

#[test]
fn flush_forced_access_and_delete() {
    let folder = tempfile::tempdir().unwrap();
    for release in releases() {
        for queues in [0, 2] {
            let path = folder.path().join("image");
            let _ = std::fs::remove_file(&path);
            let backing = Backing::Image { path: path.clone(), bytes: Some(32 << 20) };
            let unit = Unit { lun: 2, backing, read_only: false };
            let (mut disk, machine, data) = stack(&release, queues, vec![unit]).disk(2);
            data.fill(0, 16 << 20, 0x3C);
            let slice = data.slice(0, 16 << 20);
            let mut write = request(Operation::Write, 8 << 20, 16 << 20, slice, &machine);
            write.force_unit_access = true;
            let flush = request(Operation::Flush, 0, 0, DmaSlice::EMPTY, &machine);
            let commands = |disk: &Disk<_>| disk.statistics().commands;
            for request in [write, flush] {
                assert_eq!(carry_out(&mut disk, &machine, &[request])[0].result, Ok(()));
            }
            // 16 parts, an explicit flush, and another one if the device does not support FUA.
            assert_eq!(commands(&disk), if release.is_11 { 17 } else { 18 });
            let image = std::fs::read(&path).unwrap();
            assert!(image[8 << 20..24 << 20].iter().all(|&byte| byte == 0x3C));
            assert!(image[..8 << 20].iter().all(|&byte| byte == 0));
            let occupied = path.metadata().unwrap().blocks();
            assert!(disk.geometry().can_delete);
            let delete = request(Operation::Delete, 8 << 20, 12 << 20, DmaSlice::EMPTY, &machine);
            assert_eq!(carry_out(&mut disk, &machine, &[delete])[0].result, Ok(()));
            let freed = occupied - path.metadata().unwrap().blocks();
            assert!(freed * 512 >= 11 << 20, "UNMAP frees the blocks of the image: {freed}");
        }
    }
}

#[test]
fn units_beyond_the_reach_of_32_bit_addresses() {
    const SIZE: u64 = 20 << 40;
    for release in releases() {
        let (mut disk, machine, data) = stack(&release, 0, vec![memory_unit(0, SIZE)]).disk(0);
        assert_eq!(disk.geometry().bytes(), SIZE);
        // The third range begins below 2^32 blocks and ends above.
        let places = [0, 1 << 40, (16 << 40) - (1 << 20), (16 << 40) + (1 << 20), SIZE - (2 << 20)];
        for (i, &place) in places.iter().enumerate() {
            data.fill(0, 2 << 20, 1 + i as u8);
            let write = request(Operation::Write, place, 2 << 20, data.slice(0, 2 << 20), &machine);
            assert_eq!(carry_out(&mut disk, &machine, &[write])[0].result, Ok(()));
        }
        for (i, &place) in places.iter().enumerate() {
            let read = request(Operation::Read, place, 2 << 20, data.slice(0, 2 << 20), &machine);
            assert_eq!(carry_out(&mut disk, &machine, &[read])[0].result, Ok(()));
            let mut bytes = vec![0; 2 << 20];
            data.read(0, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 1 + i as u8), "{place:#x}");
        }
    }
}

#[test]
fn what_is_out_of_range_misaligned_or_write_protected_is_refused() {
    for release in releases() {
        let protected = Unit { read_only: true, ..memory_unit(1, 1 << 20) };
        let stack = stack(&release, 0, vec![memory_unit(0, 1 << 20), protected]);
        assert_eq!(stack.units.len(), 2);
        let (mut disk, machine, data) = stack.disk(1);
        let slice = data.slice(0, 4096);
        for (operation, offset, length, error) in [
            (Operation::Read, 1 << 20, 4096, BlockError::OutOfRange),
            (Operation::Read, 512, 4096, BlockError::Misaligned),
            (Operation::Write, 0, 4096, BlockError::WriteProtected),
            (Operation::Delete, 0, 4096, BlockError::WriteProtected),
        ] {
            let bad: Request = request(operation, offset, length, slice, &machine);
            assert_eq!(disk.submit(&bad, machine.now()), Err(Refused::Invalid(error)));
        }
        let mut strange = slice;
        strange.address = 0x100;
        let bad = request(Operation::Read, 0, 4096, strange, &machine);
        let outside = BlockError::BadData(BadData::Outside);
        assert_eq!(disk.submit(&bad, machine.now()), Err(Refused::Invalid(outside)));
        let good = request(Operation::Read, 0, 4096, slice, &machine);
        assert_eq!(carry_out(&mut disk, &machine, &[good])[0].result, Ok(()));
    }
}

#[test]
fn the_device_speaks_for_itself() {
    for release in releases() {
        let units = vec![memory_unit(0, 1 << 20), memory_unit(9, 3 << 20), memory_unit(31, 4096)];
        let Stack { machine, mut ports, units, .. } = stack(&release, 0, units);
        let sizes: Vec<_> =
            units.iter().map(|u| (u.lun.to_ufs(), u.shape().unwrap().blocks, u.ready)).collect();
        assert_eq!(sizes, [(Some(0), 256, true), (Some(9), 768, true), (Some(31), 1, true)]);
        assert_eq!(units[0].to_string(), "<QEMU QEMU HARDDISK 2.5+>");
        // A unit that does not exist, and a command that the device does not support.
        let mut put = |lun, code| {
            let mut cdb = [0; 16];
            cdb[0] = code;
            let command = Command {
                unit: LogicalUnitNumber::from_ufs(lun).to_bits(),
                payload: cdb.into(),
                direction: Direction::None,
                data: Data::NONE,
                crypto: None,
                ordering: Ordering::Simple,
                deadline: machine.now() + PATIENCE,
                token: Token::new(4711),
            };
            let ended = flysch_cam::run(&mut ports[0], &machine, command).unwrap().ended;
            (ended, ports[0].failure().status)
        };
        assert_eq!(put(5, 0x00).0, Ended::NoUnit);
        assert_eq!(put(9, 0x00).0, Ended::Good);
        let (ended, status) = put(9, 0x1D);
        assert_eq!((ended, status.status), (Ended::Answered, 2));
        assert_eq!(status.sense.as_slice()[2] & 0xF, 5);
        assert_eq!(put(31, 0x00).0, Ended::Good, "the port goes on");
        assert!(machine.read32(0x08) >= 0x400);
    }
}
