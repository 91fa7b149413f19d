//! A nearly full JFFS2 under random overwrites: garbage collection keeps costing what arithmetic
//! predicts, and never leaves a flash that accepts no more writes.

use flysch_api::vfs::{DeviceNumber, FileKind, FileSystem, FileSystemMut, NewFile, Timestamp};
use flysch_jffs2::{Jffs2Mut, WriteOptions};
use flysch_models::nand::{Config, NandChip, Profile};
use flysch_models::random::Random;

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
const PAGE: usize = 4096;
/// Number of blocks of 128 KiB.
const BLOCKS: u32 = 128;

/// The cost of a series of overwrites.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Milliseconds of chip time per MiB.
    ms: f64,
    /// The longest single overwrite, milliseconds.
    longest_ms: f64,
    /// Bytes programmed for each byte written.
    amplification: f64,
}

fn page(random: &mut Random) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

/// Fills a new file system to a percentage of its capacity, and overwrites four times its content,
/// in four series.
fn measure(percent: u64) -> (u64, [Cost; 4]) {
    let profile = Profile::named("MT29F2G08ABAEA").unwrap().with_blocks(BLOCKS);
    let page_size = f64::from(profile.page_size);
    let config = Config { wears: false, corrects: true, ..Config::default() };
    let chip = NandChip::new(profile, config);
    let mut fs = Jffs2Mut::mount(chip, &WriteOptions::default()).unwrap();
    let mut random = Random::new(percent);
    let file = NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        owner: 0,
        group: 0,
        device: DeviceNumber::default(),
        target: &[],
    };
    let inode = fs.create(fs.statistics().root, b"file", &file, NOW).unwrap();
    let pages = fs.statistics().blocks_free * percent / 100;
    for number in 0..pages {
        let data = page(&mut random);
        assert_eq!(fs.write(inode, number * PAGE as u64, &data, NOW), Ok(PAGE), "page {number}");
    }
    fs.sync(None).unwrap();
    let costs = [(); 4].map(|()| {
        let before = (fs.flash().busy_ns(), fs.flash().counts().programs);
        let mut longest = 0;
        for _ in 0..pages {
            let data = page(&mut random);
            let start = fs.flash().busy_ns();
            let at = random.below(pages) * PAGE as u64;
            assert_eq!(fs.write(inode, at, &data, NOW), Ok(PAGE));
            longest = longest.max(fs.flash().busy_ns() - start);
        }
        fs.sync(None).unwrap();
        let bytes = (pages * PAGE as u64) as f64;
        Cost {
            ms: (fs.flash().busy_ns() - before.0) as f64 / 1e6 / (bytes / 1048576.0),
            longest_ms: longest as f64 / 1e6,
            amplification: (fs.flash().counts().programs - before.1) as f64 * page_size / bytes,
        }
    });
    assert_eq!(fs.flash().violations(), []);
    (pages, costs)
}

#[test]
fn a_full_jffs2_stays_as_fast_as_it_is() {
    for percent in [80, 95] {
        let (pages, costs) = measure(percent);
        println!("{percent} % full, {} MiB overwritten four times", (pages * PAGE as u64) >> 20);
        for Cost { ms, longest_ms, amplification } in costs {
            print!("  {ms:.0} ms of the chip for each MiB, {amplification:.1} times as much ");
            println!("programmed, one write took {longest_ms:.0} ms");
        }
        let [_, second, third, last] = costs;
        assert!(last.ms < second.ms.max(third.ms) * 1.25, "it gets slower: {costs:?}");
    }
}
