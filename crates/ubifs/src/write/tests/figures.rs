//! What writing costs in space and time.

use std::format;
use std::time::Instant;
use std::vec;

use flysch_api::vfs::{FileKind, FileSystem, FileSystemMut, Rename};
use flysch_wire::ubifs::Compression;

use super::{ROOT, at, empty, new_file};
use crate::UbifsMut;

/// 128 MiB of large-page NAND.
const CHIP: (u32, u32, u32) = (126_976, 1000, 2048);

fn free_kib(fs: &impl FileSystem) -> u64 {
    fs.statistics().blocks_free * 4
}

#[test]
fn a_mebibyte_in_small_writes_takes_what_one_write_takes() {
    let mut costs = vec![];
    for size in [16, 1 << 20] {
        let mut fs = UbifsMut::open(empty(CHIP, Compression::None)).unwrap();
        let before = free_kib(&fs);
        let file = fs.create(ROOT, b"f", &new_file(FileKind::Regular), at(1)).unwrap();
        let part: std::vec::Vec<u8> = (0..size).map(|n| ((n * 31) >> 3) as u8).collect();
        for number in 0..(1 << 20) / size as u64 {
            fs.write(file, number * size as u64, &part, at(2)).unwrap();
        }
        fs.sync(None).unwrap();
        costs.push(before - free_kib(&fs));
    }
    // Linux 2.6.27 took 1364 and 1365 KiB (Simmonds). `statfs` scales by the worst case of content,
    // so that one mebibyte may count for less than 1024 KiB.
    assert!(costs.iter().all(|cost| (960..=1400).contains(cost)), "{costs:?} KiB");
    assert_eq!(costs[0], costs[1]);
}

/// What the kernel's probes count in the guest (docs/flash-work.md): renaming or removing a file
/// costs reading its name and its inode, once, however often everything is synced.
#[test]
fn names_that_change_are_read_once() {
    const FILES: usize = 600;
    let name = |number: usize| format!("file-{number}").into_bytes();
    let mut fs = UbifsMut::open(empty(CHIP, Compression::None)).unwrap();
    for number in 0..FILES {
        let _ = fs.create(ROOT, &name(number), &new_file(FileKind::Regular), at(1)).unwrap();
    }
    let mut fs = UbifsMut::open(fs.close().unwrap()).unwrap();
    let volume = |fs: &UbifsMut<super::memory::Ram>| {
        let ram = fs.volume();
        (ram.reads.get(), ram.written)
    };
    let start = volume(&fs);
    for number in 0..FILES {
        let file = fs.lookup(ROOT, &name(number)).unwrap();
        let _ = fs.attributes(file).unwrap();
        let from = (ROOT, &name(number)[..]);
        match number % 3 {
            0 => fs.rename(
                from,
                (ROOT, &[&name(number)[..], b"-moved"].concat()),
                Rename::Replace,
                at(2),
            ),
            1 => fs.rename(from, (ROOT, &name(number + 1)), Rename::Replace, at(2)),
            _ => fs.remove(ROOT, &name(number), at(2)),
        }
        .unwrap();
        if number % 100 == 99 {
            fs.sync(None).unwrap();
        }
    }
    let end = volume(&fs);
    let (reads, written) = (end.0 - start.0, end.1 - start.1);
    std::println!("{reads} reads, {written} bytes");
    assert!(reads <= 2 * FILES as u64 + 100, "{reads} reads for {FILES} files");
}

/// Unrequested write-back costs the write buffers but no commit, and a power cut loses nothing.
#[test]
fn what_is_written_back_is_there_without_a_commit() {
    let mut fs = UbifsMut::open(empty(CHIP, Compression::None)).unwrap();
    let file = fs.create(ROOT, b"file", &new_file(FileKind::Regular), at(1)).unwrap();
    let commit = fs.files.disk.master.node.commit;
    for round in 0..40_u8 {
        let _ = fs.write(file, u64::from(round) * 100, &[round; 100], at(2)).unwrap();
        let before = fs.volume().written;
        fs.sync_data(None).unwrap();
        // An inode and a block, each in one unit of its head.
        let written = fs.volume().written - before;
        assert!(written <= 4 * 2048, "{written} bytes in round {round}");
    }
    assert_eq!(fs.files.disk.master.node.commit, commit);
    let fs = UbifsMut::open(fs.volume().clone()).unwrap();
    let mut found = [0; 4000];
    assert_eq!(fs.read(fs.lookup(ROOT, b"file").unwrap(), 0, &mut found), Ok(4000));
    assert!((0..40).all(|round| found[round * 100..][..100] == [round as u8; 100]));
}

#[test]
#[ignore = "prints times; for who looks at them"]
fn many_files() {
    for (count, size) in [(10_000, 8192), (1, 64 << 20)] {
        let mut fs = UbifsMut::open(empty(CHIP, Compression::None)).unwrap();
        let started = Instant::now();
        let data = vec![0x5a; size.min(1 << 20)];
        let mut directory = ROOT;
        for number in 0..count {
            if number % 100 == 0 {
                let name = format!("d{number}");
                let new = new_file(FileKind::Directory);
                directory = fs.create(ROOT, name.as_bytes(), &new, at(1)).unwrap();
            }
            let name = format!("file{number}");
            let new = new_file(FileKind::Regular);
            let file = fs.create(directory, name.as_bytes(), &new, at(1)).unwrap();
            for start in (0..size).step_by(data.len()) {
                fs.write(file, start as u64, &data, at(1)).unwrap();
            }
        }
        let written = started.elapsed();
        fs.sync(None).unwrap();
        let synced = started.elapsed();
        let ram = fs.close().unwrap();
        std::println!(
            "{count} files of {size} bytes: {written:?}, synced {synced:?}, {} MiB, {} operations",
            ram.written >> 20,
            ram.operations
        );
        let started = Instant::now();
        let fs = UbifsMut::open(ram).unwrap();
        std::println!("opened in {:?}", started.elapsed());
        drop(fs);
    }
}
