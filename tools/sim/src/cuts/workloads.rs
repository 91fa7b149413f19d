//! The workloads that are cut, by name.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

use flysch_api::vfs::Rename as How;
use flysch_jffs2::WriteOptions;
use flysch_models::nand::{self, NandChip};
use flysch_models::nor::{self, NorChip};
use flysch_models::random::Random;
use flysch_mtd::{Nand, PageFormat};
use flysch_ubi::DeviceOptions;
use flysch_wire::jffs2::ByteOrder;
use flysch_wire::ubifs::Compression;

use super::files::{self, FileScenario};
use super::probe::Chip;
use super::stacks::{Jffs2Stack, UbifsStack};
use super::ubi::{Step, UbiScenario};
use super::{Plan, Report, explore};

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Whether cuts within cuts are worth their time.
    pub is_small: bool,
    /// Runs it, cut as planned.
    pub run: fn(&Plan) -> Result<Report, String>,
}

impl Workload {
    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        WORKLOADS.into_iter().find(|workload| workload.name == name)
    }
}

/// All of them.
pub const WORKLOADS: [Workload; 27] = [
    Workload {
        name: "ubi-write",
        about: "LEBs written, given up, mapped and written again",
        is_small: true,
        run: |plan| ubi(small_nand, &[VOLUME], &WRITE, DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-write-ecc",
        about: "the same, error correction in software",
        is_small: true,
        run: |plan| ubi(small_ecc, &[VOLUME], &WRITE, DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-write-nor",
        about: "the same on NOR",
        is_small: true,
        run: |plan| ubi(small_nor, &[VOLUME], &WRITE, DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-change",
        about: "LEBs changed atomically",
        is_small: true,
        run: |plan| ubi(small_nand, &[VOLUME], &CHANGE, DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-volumes",
        about: "volumes made, resized, renamed, replaced and removed",
        is_small: true,
        run: |plan| ubi(small_nand, &[VOLUME], &VOLUMES, DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-update",
        about: "a dynamic and a static volume updated",
        is_small: true,
        run: |plan| ubi(small_nand, &[VOLUME, STATIC], &UPDATE, DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-update-nor",
        about: "the same on NOR",
        is_small: true,
        run: |plan| ubi(small_nor, &[VOLUME, STATIC], &UPDATE, DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-wear",
        about: "wear-levelling moves of cold LEBs",
        is_small: false,
        run: |plan| {
            let options = DeviceOptions { wear_threshold: 2, ..DeviceOptions::default() };
            ubi(small_nand, &cold(), &hot(), options, plan)
        },
    },
    Workload {
        name: "ubi-scrub",
        about: "LEBs of an old chip with bit errors moved before they are lost",
        is_small: true,
        run: |plan| ubi(aging_nand, &old(), &SCRUB, DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-failures",
        about: "programs and erases that fail: recovered writes, torture, bad blocks",
        is_small: false,
        run: |plan| ubi(failing_nand, &[VOLUME], &failures(), DeviceOptions::default(), plan),
    },
    Workload {
        name: "ubi-fastmap",
        about: "fastmaps written, believed and made void",
        is_small: true,
        run: |plan| ubi(small_nand, &[VOLUME], &FASTMAP, with_fastmap(4096), plan),
    },
    Workload {
        name: "ubi-fastmap-long",
        about: "pools emptied and filled again and again, cold LEBs moved, volumes changed",
        is_small: false,
        run: |plan| ubi(fastmap_nand, &cold(), &refills(), with_fastmap(2), plan),
    },
    Workload {
        name: "ubi-fastmap-nor",
        about: "the same on NOR",
        is_small: false,
        run: |plan| ubi(fastmap_nor, &cold(), &refills(), with_fastmap(2), plan),
    },
    Workload {
        name: "ubifs",
        about: "files on UBIFS: made, written, moved, removed, with attributes",
        is_small: true,
        run: |plan| ubifs(ufs_nand, Compression::Lzo, &[], &basic(), plan),
    },
    Workload {
        name: "ubifs-ecc",
        about: "the same, error correction in software",
        is_small: false,
        run: |plan| ubifs(ufs_ecc, Compression::None, &[], &basic(), plan),
    },
    Workload {
        name: "ubifs-nor",
        about: "the same on NOR",
        is_small: false,
        run: |plan| ubifs(ufs_nor, Compression::Zlib, &[], &basic(), plan),
    },
    Workload {
        name: "ubifs-random",
        about: "random changes on UBIFS",
        is_small: false,
        run: |plan| ubifs(ufs_nand, Compression::Lzo, &[], &random(1, 150, true), plan),
    },
    Workload {
        name: "ubifs-edit",
        about: "names exchanged, attributes replaced, files cut and grown across blocks, or open",
        is_small: true,
        run: |plan| ubifs(ufs_nand, Compression::Zlib, &[], &edit(), plan),
    },
    Workload {
        name: "ubifs-commit",
        about: "many small changes on UBIFS: commits",
        is_small: false,
        run: |plan| ubifs(ufs_nand, Compression::None, &[], &many(), plan),
    },
    Workload {
        name: "ubifs-full",
        about: "a full UBIFS: garbage collection",
        is_small: false,
        run: |plan| ubifs(ufs_nand, Compression::None, &fill(900), &full(40), plan),
    },
    Workload {
        name: "jffs2",
        about: "files on JFFS2 on NAND",
        is_small: true,
        run: |plan| jffs2(small_nand, ByteOrder::Little, &[], &basic(), plan),
    },
    Workload {
        name: "jffs2-ecc",
        about: "the same, error correction in software",
        is_small: false,
        run: |plan| jffs2(small_ecc, ByteOrder::Little, &[], &basic(), plan),
    },
    Workload {
        name: "jffs2-nor",
        about: "the same on NOR, big endian",
        is_small: true,
        run: |plan| jffs2(jffs2_nor, ByteOrder::Big, &[], &basic(), plan),
    },
    Workload {
        name: "jffs2-edit",
        about: "attributes replaced, files cut and grown across pages, open files removed",
        is_small: true,
        run: |plan| jffs2(small_nand, ByteOrder::Little, &[], &edit(), plan),
    },
    Workload {
        name: "jffs2-random",
        about: "random changes on JFFS2 on NAND",
        is_small: false,
        run: |plan| jffs2(small_nand, ByteOrder::Little, &[], &random(2, 900, false), plan),
    },
    Workload {
        name: "jffs2-random-nor",
        about: "random changes on JFFS2 on NOR",
        is_small: false,
        run: |plan| jffs2(jffs2_nor, ByteOrder::Little, &[], &random(3, 150, false), plan),
    },
    Workload {
        name: "jffs2-full",
        about: "a full JFFS2: garbage collection",
        is_small: false,
        run: |plan| jffs2(small_nand, ByteOrder::Little, &fill(700), &full(120), plan),
    },
];

/// A chip with blocks of 16 pages that corrects errors itself.
fn nand(blocks: u32) -> NandChip {
    let profile = nand::Profile::named("MT29F2G08ABAEA").expect("it is in the list");
    let config = nand::Config { wears: false, corrects: true, ..nand::Config::default() };
    NandChip::new(profile.with_blocks(blocks).with_pages_per_block(16), config)
}

fn small_nand() -> NandChip {
    nand(24)
}

fn small_ecc() -> Nand<NandChip> {
    ecc(24)
}

/// Large enough for UBIFS.
fn ufs_nand() -> NandChip {
    nand(48)
}

fn ufs_ecc() -> Nand<NandChip> {
    ecc(48)
}

/// Blocks of 16 KiB.
fn ufs_nor() -> NorChip {
    nor(48, 16 << 10)
}

fn jffs2_nor() -> NorChip {
    nor(16, 16 << 10)
}

fn nor(blocks: u32, block_size: u32) -> NorChip {
    let profile = nor::Profile::named("W25Q128FV").expect("it is in the list");
    NorChip::new(profile.with_blocks(blocks).with_block_size(block_size), 1)
}

/// The same chip as [`nand`] with BCH in software.
fn ecc(blocks: u32) -> Nand<NandChip> {
    let profile = nand(blocks).profile().clone();
    let config = nand::Config { wears: false, ..nand::Config::default() };
    let chip = NandChip::new(profile.clone(), config);
    let oob = profile.oob_size as usize;
    let format = PageFormat::in_software(profile.page_size, oob, 512, 4).expect("it fits");
    let geometry = profile.geometry();
    Nand::over(chip, format, geometry.kind, geometry.erase_size).expect("the chip is new")
}

fn small_nor() -> NorChip {
    nor(24, 8 << 10)
}

/// A chip whose cells leak.
fn aging_nand() -> NandChip {
    let profile = small_nand().profile().clone();
    NandChip::new(profile, nand::Config { corrects: true, ..nand::Config::default() })
}

/// A chip on which some programs and erases fail.
fn failing_nand() -> NandChip {
    let mut chip = small_nand();
    for number in [70, 90, 112, 131, 140, 155, 175] {
        chip.power_mut().fail_at(number);
    }
    chip
}

fn ubi<C: Chip>(
    chip: fn() -> C,
    before: &[Step],
    steps: &[Step],
    options: DeviceOptions,
    plan: &Plan,
) -> Result<Report, String> {
    let (before, steps) = (before.to_vec(), steps.to_vec());
    let (attached, scrubs, types) = (Cell::default(), Cell::default(), PhantomData);
    let scenario = UbiScenario { chip, options, before, steps, attached, scrubs, types };
    explore(&Rc::new(scenario), plan)
}

fn ubifs<C: Chip>(
    chip: fn() -> C,
    compression: Compression,
    before: &[files::Step],
    steps: &[files::Step],
    plan: &Plan,
) -> Result<Report, String> {
    let options = DeviceOptions::default();
    let stack = UbifsStack { chip, lebs: 40, compression, journal: None, options };
    let (before, steps) = (before.to_vec(), steps.to_vec());
    explore(&Rc::new(FileScenario { stack, before, steps }), plan)
}

fn jffs2<C: Chip>(
    chip: fn() -> C,
    order: ByteOrder,
    before: &[files::Step],
    steps: &[files::Step],
    plan: &Plan,
) -> Result<Report, String> {
    let options = WriteOptions { order: Some(order), ..WriteOptions::default() };
    let (before, steps) = (before.to_vec(), steps.to_vec());
    explore(&Rc::new(FileScenario { stack: Jffs2Stack { chip, options }, before, steps }), plan)
}

const VOLUME: Step = Step::Create { name: "first", lebs: 6, is_static: false };
const STATIC: Step = Step::Create { name: "kernel", lebs: 4, is_static: true };

const fn write(lnum: u32, at: u32, units: u32) -> Step {
    Step::Write { volume: 0, lnum, at, units }
}

const WRITE: [Step; 13] = [
    write(0, 0, 2),
    write(0, 2, 3),
    write(1, 0, 1),
    Step::Sync,
    Step::Unmap { volume: 0, lnum: 0 },
    write(0, 0, 1),
    Step::Unmap { volume: 0, lnum: 1 },
    Step::Map { volume: 0, lnum: 1 },
    write(1, 1, 2),
    Step::Unmap { volume: 0, lnum: 0 },
    Step::Sync,
    write(5, 0, 4),
    Step::Unmap { volume: 0, lnum: 5 },
];

const fn change(lnum: u32, units: u32) -> Step {
    Step::Change { volume: 0, lnum, units }
}

const CHANGE: [Step; 10] = [
    change(0, 3),
    change(1, 1),
    change(0, 2),
    Step::Sync,
    change(0, 0),
    change(1, 4),
    change(0, 1),
    Step::Work(4),
    change(1, 2),
    change(1, 3),
];

const VOLUMES: [Step; 11] = [
    write(0, 0, 2),
    Step::Create { name: "second", lebs: 3, is_static: false },
    Step::Write { volume: 1, lnum: 2, at: 0, units: 2 },
    Step::Resize { volume: 0, lebs: 8 },
    Step::Resize { volume: 1, lebs: 2 },
    Step::Rename(&[(0, "second"), (1, "first")]),
    Step::Create { name: "third", lebs: 1, is_static: false },
    Step::Rename(&[(2, "second")]),
    Step::Remove { volume: 1 },
    Step::Create { name: "fourth", lebs: 4, is_static: true },
    Step::Sync,
];

const UPDATE: [Step; 6] = [
    Step::Update { volume: 0, bytes: 30_000 },
    Step::Update { volume: 1, bytes: 20_001 },
    write(5, 0, 1),
    Step::Update { volume: 0, bytes: 7_000 },
    Step::Update { volume: 1, bytes: 5 },
    Step::Sync,
];

const FASTMAP: [Step; 9] = [
    write(0, 0, 2),
    Step::Reattach,
    write(0, 2, 1),
    change(1, 2),
    Step::Reattach,
    Step::Reattach,
    Step::Unmap { volume: 0, lnum: 0 },
    Step::Create { name: "second", lebs: 2, is_static: false },
    Step::Reattach,
];

fn with_fastmap(wear_threshold: u32) -> DeviceOptions {
    DeviceOptions { fastmap: true, wear_threshold, ..DeviceOptions::default() }
}

/// Large enough for pools that hold some blocks.
fn fastmap_nand() -> NandChip {
    nand(40)
}

fn fastmap_nor() -> NorChip {
    nor(40, 16 << 10)
}

/// LEBs changed, given up and written again, many times what a pool holds.
fn refills() -> Vec<Step> {
    let round = |number: u32| {
        let mut steps = vec![change(0, 2), change(13, 1), Step::Unmap { volume: 0, lnum: 12 }];
        steps.extend([write(12, 0, 1), change(1 + number % 4, 1), Step::Work(2), change(0, 1)]);
        match number {
            3 => steps.push(Step::Create { name: "second", lebs: 2, is_static: true }),
            5 => steps.push(Step::Update { volume: 1, bytes: 3000 }),
            7 => steps.push(Step::Reattach),
            9 => steps.extend([Step::Resize { volume: 0, lebs: 15 }, Step::Sync]),
            11 => steps.push(Step::Remove { volume: 1 }),
            _ => {}
        }
        steps
    };
    (0..14).flat_map(round).collect()
}

/// Years after which reads of a new chip report LEBs to be scrubbed, and none is lost yet.
const YEARS: u32 = 16;

/// LEBs that nobody touched for long.
fn old() -> Vec<Step> {
    let mut steps = vec![VOLUME, STATIC];
    steps.extend((0..5).map(|lnum| write(lnum, 0, 6)));
    steps.extend([Step::Update { volume: 1, bytes: 60_000 }, Step::Wait(YEARS)]);
    steps
}

const SCRUB: [Step; 9] = [
    Step::Read { volume: 0 },
    Step::Work(2),
    change(1, 2),
    Step::Work(2),
    Step::Read { volume: 1 },
    Step::Work(12),
    write(5, 0, 1),
    Step::Sync,
    Step::Work(4),
];

/// Cold LEBs.
fn cold() -> Vec<Step> {
    let mut steps = vec![Step::Create { name: "first", lebs: 14, is_static: false }];
    steps.extend((1..12).map(|lnum| write(lnum, 0, 1)));
    steps
}

/// One LEB is changed again and again.
fn hot() -> Vec<Step> {
    (0..40).flat_map(|_| [change(0, 1), Step::Work(2)]).collect()
}

fn failures() -> Vec<Step> {
    let mut steps: Vec<Step> = (0..6).map(|lnum| write(lnum, 0, 3)).collect();
    for round in 0..4 {
        steps.extend((0..6).map(|lnum| change(lnum, 1 + (round + lnum) % 4)));
        steps.push(Step::Work(6));
    }
    steps
}

fn write_file(path: &str, at: u64, len: usize, is_text: bool) -> files::Step {
    files::Step::Write { path: path.into(), at, len, is_text }
}

fn create(path: &str) -> files::Step {
    files::Step::Create(path.into())
}

fn rename(from: &str, to: &str, how: How) -> files::Step {
    files::Step::Rename { from: from.into(), to: to.into(), how }
}

/// Every kind of change once or twice.
fn basic() -> Vec<files::Step> {
    use files::Step::*;
    let path = |path: &str| path.to_string();
    vec![
        Directory(path("d")),
        create("a"),
        write_file("a", 0, 10_000, true),
        Sync,
        write_file("a", 10_000, 3_000, true),
        write_file("a", 2_000, 3_000, false),
        create("d/b"),
        write_file("d/b", 20_000, 500, false),
        SyncFile(path("d/b")),
        rename("a", "d/a", How::Replace),
        Symlink { path: path("s"), target: path("d/a") },
        Xattr { path: path("d/a"), name: "user.one", len: 40 },
        Sync,
        Xattr { path: path("d/a"), name: "user.one", len: 300 },
        Xattr { path: path("d/b"), name: "user.two", len: 5 },
        Link { path: path("d/a"), to: path("l") },
        Truncate { path: path("d/a"), size: 4_500 },
        create("c"),
        write_file("c", 0, 9_000, false),
        rename("c", "d/b", How::Replace),
        Permissions { path: path("l"), mode: 0o600 },
        Sync,
        RemoveXattr { path: path("l"), name: "user.one" },
        Remove(path("d/a")),
        create("open"),
        write_file("open", 0, 5_000, false),
        Sync,
        RemoveOpen(path("open")),
        WriteOpen { at: 3_000, len: 4_000 },
        Sync,
        Close,
        rename("l", "d/b", How::Exchange),
        rename("s", "d/s", How::Keep),
        Remove(path("d/b")),
        Sync,
        Remount,
        write_file("l", 100, 100, false),
        Truncate { path: path("l"), size: 0 },
        Truncate { path: path("l"), size: 30_000 },
        write_file("l", 29_000, 2_000, true),
        Sync,
        Remove(path("d/s")),
        Remove(path("l")),
        Remove(path("d")),
        Remount,
    ]
}

/// What an editor and a package manager do: the ends of files moved across blocks, attributes
/// replaced by longer and shorter ones, names exchanged and replaced while their file is open.
fn edit() -> Vec<files::Step> {
    use files::Step::*;
    let path = |path: &str| path.to_string();
    let cut = |name: &str, size| Truncate { path: name.to_string(), size };
    let xattr = |name, len| Xattr { path: "a".to_string(), name, len };
    let mut steps = vec![create("a"), write_file("a", 0, 12_288, false), create("b")];
    steps.extend([write_file("b", 4_000, 200, true), Directory(path("d")), Sync]);
    for size in [12_287, 8_193, 8_192, 8_191, 4_097, 20_480, 4_096, 4_095, 1, 12_289, 0] {
        steps.push(cut("a", size));
        if size % 2 == 1 {
            steps.push(write_file("a", size - 1, 2, true));
        }
    }
    steps.extend([Sync, xattr("user.a", 10), xattr("user.b", 2_000), Sync]);
    steps.extend([xattr("user.a", 700), xattr("user.b", 0), xattr("user.a", 1)]);
    steps.extend([rename("a", "b", How::Exchange), rename("b", "d", How::Exchange), Sync]);
    steps.extend([create("new"), write_file("new", 0, 5_000, true), SyncFile(path("new"))]);
    steps.extend([rename("new", "b", How::Replace), rename("b", "w", How::Keep), Sync]);
    steps.extend([create("o"), RemoveOpen(path("o")), WriteOpen { at: 0, len: 9_000 }]);
    steps.extend([Sync, WriteOpen { at: 4_000, len: 200 }, Close, Remount, Sync]);
    steps
}

/// Changes by lot; those that can not be done fail on both sides.
fn random(seed: u64, count: usize, exchanges: bool) -> Vec<files::Step> {
    use files::Step::*;
    let mut random = Random::new(seed);
    let mut steps = vec![Directory("d".into()), Directory("d/e".into())];
    for _ in 0..count {
        let folder = ["", "", "d/", "d/e/"];
        let mut path = || {
            let name = (b'a' + random.below(5) as u8) as char;
            format!("{}{name}", folder[random.below(4) as usize])
        };
        let (path, other) = (path(), path());
        let at = random.below(30_000);
        let len = random.below(9_000) as usize;
        let is_text = random.below(2) == 0;
        let names = ["user.a", "user.b", "security.c"];
        let name = names[random.below(3) as usize];
        steps.push(match random.below(26) {
            0..4 => Create(path),
            4..10 => Write { path, at, len, is_text },
            10..12 => Truncate { path, size: at },
            12..14 => Rename { from: path, to: other, how: How::Replace },
            14 if exchanges => Rename { from: path, to: other, how: How::Exchange },
            15 => Link { path, to: other },
            14..18 => Remove(path),
            18 => Permissions { path, mode: (at % 0o1000) as u16 },
            19 => Xattr { path, name, len: len % 500 },
            20 => RemoveXattr { path, name },
            21 => SyncFile(path),
            22 => Remount,
            _ => Sync,
        });
    }
    steps
}

/// Many small files, again and again.
fn many() -> Vec<files::Step> {
    use files::Step::*;
    let mut steps = vec![];
    for round in 0..6 {
        for file in 0..24 {
            let path = format!("file number {file}");
            match (round + file) % 4 {
                0 => steps.push(Create(path.clone())),
                3 => steps.push(Remove(path.clone())),
                _ => {}
            }
            steps.push(Write { path, at: 1000 * round, len: 3000, is_text: false });
            if file % 5 == 0 {
                steps.push(Sync);
            }
        }
    }
    steps.push(Remount);
    steps
}

/// Files of 50 KiB until so many KiB are written.
fn fill(kib: u64) -> Vec<files::Step> {
    let mut steps = vec![];
    for number in 0..kib / 50 {
        let path = format!("fill{number}");
        steps.push(create(&path));
        steps.push(write_file(&path, 0, 50 << 10, false));
    }
    steps
}

/// Parts of the files are written anew, some go, more are wanted than fit.
fn full(rounds: u64) -> Vec<files::Step> {
    use files::Step::*;
    let mut random = Random::new(5);
    let mut steps = vec![];
    for round in 0..rounds {
        let path = format!("fill{}", random.below(18));
        let at = random.below(12) * 4096;
        steps.push(match round % 10 {
            9 => Remove(path),
            4 => create(&path),
            _ => write_file(&path, at, 10_000, false),
        });
        if round % 4 == 3 {
            steps.push(Sync);
        }
    }
    steps
}
