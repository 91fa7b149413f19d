//! Writers at their limits: the smallest file systems and full ones, a great many names, failing
//! flash. Long tests are ignored, and run by name.

use std::error::Error;
use std::time::Instant;

use flysch_api::finding::Severity;
use flysch_api::flash::{Flash, FlashError};
use flysch_api::vfs::{FileKind, FileSystem, FileSystemMut, FsError, NewFile};
use flysch_api::volume::{Volume, VolumeGeometry};
use flysch_jffs2::{Jffs2Mut, WriteOptions};
use flysch_ubi::{
    DeviceOptions, DeviceVolume, FormatOptions, Gluebi, NewVolume, ReadOnly, UbiDevice,
};
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_ubifs::{OpenOptions, Ubifs, UbifsMut};
use flysch_wire::jffs2::ByteOrder;
use flysch_wire::ubifs::Compression;

use crate::extremes_common::{
    Lebs, Random, assert_held, at, churn, fill, free, names, refusal, regular, remove, scale,
    total, values,
};
use crate::jffs2_common::{Chip, Shape};

/// LEB size, number of LEBs, unit of writing.
type UbifsShape = (u32, u32, u32);

type UbiVolume = DeviceVolume<UbiDevice<Chip>, Chip>;

fn ubifs_options((leb_size, lebs, unit): UbifsShape, compression: Compression) -> CreateOptions {
    CreateOptions { compression, ..CreateOptions::new(unit, leb_size, lebs) }
}

fn new_ubifs(shape: UbifsShape, compression: Compression) -> Option<UbifsMut<Lebs>> {
    let mut lebs = Lebs::new(shape.0, shape.1, shape.2);
    let options = ubifs_options(shape, compression);
    format(&mut lebs, &options, &NewInode::directory(at(1))).ok()?;
    Some(UbifsMut::open(lebs).expect("what was made can be opened"))
}

fn ubifs_damage(lebs: &Lebs) -> Vec<flysch_api::finding::Finding> {
    let fs = Ubifs::open(lebs, &OpenOptions::default()).expect("it can be opened");
    fs.check().into_iter().filter(|it| it.severity != Severity::Note).collect()
}

fn assert_ubifs_sound(lebs: &Lebs, what: &str) {
    let damage = ubifs_damage(lebs);
    assert!(damage.is_empty(), "{what}: {damage:#?}");
}

/// The minimum number of LEBs for a file system.
fn fewest(leb_size: u32, unit: u32) -> u32 {
    (17..200)
        .find(|&lebs| {
            let options = ubifs_options((leb_size, lebs, unit), Compression::None);
            let mut lebs = Lebs::new(leb_size, lebs, unit);
            format(&mut lebs, &options, &NewInode::directory(at(1))).is_ok()
        })
        .expect("some number is enough")
}

/// Fills a file system with files of `size` and removes them; returns how many bytes it accepted.
fn fill_and_empty<F: FileSystemMut>(
    fs: &mut F,
    random: &mut Random,
    size: usize,
    round: &str,
    assert_sound: impl Fn(&F, &str),
) -> u64 {
    let started = Instant::now();
    let promised = free(fs);
    let held = fill(fs, random, size);
    fs.sync(None).expect("what was accepted has room");
    let filled = started.elapsed();
    assert_held(fs, &held, "full");
    let left = free(fs);
    assert_sound(fs, "full");
    let accepted = total(&held);
    let started = Instant::now();
    remove(fs, &held);
    fs.sync(None).expect("there is room now");
    println!(
        "{round}: promised {promised}, accepted {accepted} in {} files of {size}, left {left}; \
         filled {filled:?}, emptied {:?}, free {}",
        held.len(),
        started.elapsed(),
        free(fs),
    );
    assert_sound(fs, "emptied");
    assert!(names(fs, fs.statistics().root).is_empty());
    accepted
}

fn fill_ubifs(shape: UbifsShape, rounds: u64, sizes: &[usize]) {
    let mut fs = new_ubifs(shape, Compression::None).expect("it can be made");
    let mut random = Random::new(7);
    let before = free(&fs);
    let mut first = vec![0; sizes.len()];
    for round in 0..rounds {
        let kind = (round % sizes.len() as u64) as usize;
        let name = format!("{shape:?} round {round}");
        let accepted = fill_and_empty(&mut fs, &mut random, sizes[kind], &name, |fs, when| {
            assert_ubifs_sound(fs.volume(), when);
        });
        if round < sizes.len() as u64 {
            first[kind] = accepted;
        }
        assert!(accepted * 100 >= first[kind] * 95, "{shape:?}: less room in round {round}");
    }
    let lebs = fs.close().expect("it can be closed");
    assert_ubifs_sound(&lebs, "closed");
    let fs = UbifsMut::open(lebs).expect("it can be opened again");
    println!("{shape:?}: free {before} before and {} behind", free(&fs));
}

#[test]
#[ignore = "long"]
fn ubifs_of_every_size_fills_and_empties() {
    for (leb_size, unit) in [
        (15_360, 512),
        (15_872, 512),
        (16_256, 8),
        (65_408, 1),
        (65_408, 8),
        (126_976, 2048),
        (258_048, 2048),
        (1_040_384, 4096),
        (2_080_768, 8192),
    ] {
        let least = fewest(leb_size, unit);
        for lebs in [least, least + 1, least + 3, least + 20] {
            fill_ubifs((leb_size, lebs, unit), 20, &[8 << 20, 4096, 300, 20_000, 0]);
        }
    }
}

fn churn_ubifs(shape: UbifsShape, compression: Compression, percent: usize, steps: u64) {
    let mut fs = new_ubifs(shape, compression).expect("it can be made");
    let mut random = Random::new(percent as u64);
    let mut held = fill(&mut fs, &mut random, 30_000);
    // Some are removed again, so that there is room left.
    let gone = held.split_off((held.len() * percent).div_ceil(100));
    remove(&mut fs, &gone);
    let started = Instant::now();
    for part in 0..4 {
        let churned = churn(&mut fs, &mut held, &mut random, steps / 4);
        println!("{shape:?} {percent} %: {churned:?}, {:?}", started.elapsed());
        assert_held(&fs, &held, "churned");
        assert_ubifs_sound(fs.volume(), "churned");
        if part % 2 == 0 {
            let lebs = fs.close().expect("it can be closed");
            fs = UbifsMut::open(lebs).expect("it can be opened again");
            assert_held(&fs, &held, "opened again");
        }
    }
    remove(&mut fs, &held);
    let lebs = fs.close().expect("it can be closed");
    assert_ubifs_sound(&lebs, "emptied");
}

#[test]
#[ignore = "long"]
fn full_ubifs_takes_overwrites() {
    for shape in [(15_872, 60, 512), (16_256, 40, 8), (126_976, 40, 2048), (1_040_384, 17, 4096)] {
        for percent in [90, 95, 99, 100] {
            churn_ubifs(shape, Compression::None, percent, 50_000);
        }
        churn_ubifs(shape, Compression::Zstd, 100, 50_000);
    }
}

fn jffs2_options(order: ByteOrder, summary: bool) -> WriteOptions {
    WriteOptions { order: Some(order), summary, ..WriteOptions::default() }
}

fn assert_jffs2_sound(chip: &Chip, order: ByteOrder, what: &str) {
    let mut findings = vec![];
    flysch_jffs2::check(chip, Some(order), &mut |finding| {
        if finding.severity > Severity::Note {
            findings.push(finding.to_string());
        }
    })
    .expect("it can be checked");
    assert_eq!(findings, [""; 0], "{what}");
}

fn fill_jffs2(shape: Shape, options: &WriteOptions, rounds: u64, sizes: &[usize]) {
    let order = options.order.expect("it is given");
    let mut fs = Jffs2Mut::mount(Chip::new(shape), options).expect("it can be mounted");
    let mut random = Random::new(7);
    let before = free(&fs);
    let mut first = vec![0; sizes.len()];
    for round in 0..rounds {
        let kind = (round % sizes.len() as u64) as usize;
        let name = format!("{shape:?} round {round}");
        let accepted = fill_and_empty(&mut fs, &mut random, sizes[kind], &name, |fs, when| {
            assert_jffs2_sound(fs.flash(), order, when);
        });
        if round < sizes.len() as u64 {
            first[kind] = accepted;
        }
        // With five blocks one is for content, minus the space for names and times.
        let least = if shape.blocks < 8 { 40 } else { 60 };
        assert!(accepted * 100 >= first[kind] * least, "{shape:?}: less room in round {round}");
        fs = Jffs2Mut::mount(fs.into_flash(), options).expect("it can be mounted again");
    }
    println!("{shape:?}: free {before} before and {} behind", free(&fs));
}

const JFFS2_SHAPES: [Shape; 7] = [
    Shape { erase_size: 4 << 10, blocks: 16, page: 1, oob: 0 },
    Shape { erase_size: 64 << 10, blocks: 5, page: 1, oob: 0 },
    Shape { erase_size: 64 << 10, blocks: 8, page: 64, oob: 0 },
    Shape { erase_size: 16 << 10, blocks: 8, page: 512, oob: 8 },
    Shape { erase_size: 16 << 10, blocks: 40, page: 512, oob: 8 },
    Shape { erase_size: 128 << 10, blocks: 6, page: 2048, oob: 16 },
    Shape { erase_size: 256 << 10, blocks: 10, page: 4096, oob: 16 },
];

#[test]
fn jffs2_of_every_size_fills_and_empties() {
    for shape in JFFS2_SHAPES {
        for (order, summary) in [(ByteOrder::Little, true), (ByteOrder::Big, false)] {
            let options = jffs2_options(order, summary);
            fill_jffs2(shape, &options, 10, &[8 << 20, 4096, 300, 20_000, 0]);
        }
    }
}

fn churn_jffs2(shape: Shape, options: &WriteOptions, percent: usize, steps: u64) {
    let order = options.order.expect("it is given");
    let mut fs = Jffs2Mut::mount(Chip::new(shape), options).expect("it can be mounted");
    let mut random = Random::new(percent as u64);
    let mut held = fill(&mut fs, &mut random, 30_000);
    let gone = held.split_off((held.len() * percent).div_ceil(100));
    remove(&mut fs, &gone);
    let started = Instant::now();
    for _ in 0..4 {
        let churned = churn(&mut fs, &mut held, &mut random, steps / 4);
        println!("{shape:?} {percent} %: {churned:?}, {:?}", started.elapsed());
        assert_held(&fs, &held, "churned");
        assert_jffs2_sound(fs.flash(), order, "churned");
        fs = Jffs2Mut::mount(fs.into_flash(), options).expect("it can be mounted again");
        assert_held(&fs, &held, "mounted again");
    }
    remove(&mut fs, &held);
    fs.sync(None).expect("there is room now");
    assert_jffs2_sound(fs.flash(), order, "emptied");
}

#[test]
#[ignore = "long"]
fn full_jffs2_takes_overwrites() {
    for shape in JFFS2_SHAPES {
        for (percent, order) in [
            (90, ByteOrder::Big),
            (95, ByteOrder::Little),
            (99, ByteOrder::Big),
            (100, ByteOrder::Little),
        ] {
            churn_jffs2(shape, &jffs2_options(order, percent != 95), percent, 20_000);
        }
    }
}

/// 512 MiB of large-page NAND.
const LARGE: UbifsShape = (126_976, 4096, 2048);

#[test]
#[ignore = "long"]
fn ubifs_holds_very_many_files() {
    let mut fs = new_ubifs(LARGE, Compression::Lzo).expect("it can be made");
    let root = fs.statistics().root;
    scale::make_files(&mut fs, root, 100_000, "ubifs");
    let directory =
        NewFile { permissions: 0o755, ..crate::extremes_common::new_file(FileKind::Directory) };
    for number in 0..20 {
        let name = format!("d{number}");
        let inner = fs.create(root, name.as_bytes(), &directory, at(2)).expect("there is room");
        scale::make_files(&mut fs, inner, 10_000, &name);
    }
    let started = Instant::now();
    let lebs = fs.close().expect("it can be closed");
    let mut fs = UbifsMut::open(lebs).expect("it can be opened again");
    println!("300 000 files: closed and opened in {:?}", started.elapsed());
    for number in 0..20 {
        let name = format!("d{number}");
        let inner = fs.lookup(root, name.as_bytes()).expect("it is there");
        scale::use_and_remove(&mut fs, inner, 10_000, &name);
        fs.remove(root, name.as_bytes(), at(4)).expect("it is empty");
    }
    scale::use_and_remove(&mut fs, root, 100_000, "ubifs");
    let lebs = fs.close().expect("it can be closed");
    assert_ubifs_sound(&lebs, "emptied");
}

#[test]
#[ignore = "long"]
fn ubifs_holds_much_of_everything() {
    let mut fs = new_ubifs(LARGE, Compression::Lzo).expect("it can be made");
    scale::deep_tree(&mut fs, 300);
    assert_ubifs_sound(fs.volume(), "deep");
    scale::hard_links(&mut fs, 65_000, "ubifs");
    assert_ubifs_sound(fs.volume(), "links");
    // Linux allows as many as fit into half a LEB.
    assert_eq!(scale::xattrs(&mut fs, 1000, "ubifs"), 396);
    assert_ubifs_sound(fs.volume(), "attributes");
    scale::collide(&mut fs, 4000, "ubifs");
    assert_ubifs_sound(fs.volume(), "names of one hash");
    scale::sparse(&mut fs, 2 << 30, "ubifs");
    let lebs = fs.close().expect("it can be closed");
    assert_ubifs_sound(&lebs, "closed");
}

#[test]
#[ignore = "long"]
fn jffs2_holds_much_of_everything() {
    let shape = Shape { erase_size: 128 << 10, blocks: 1024, page: 2048, oob: 16 };
    for order in ByteOrder::ALL {
        let options = jffs2_options(order, true);
        let mut fs = Jffs2Mut::mount(Chip::new(shape), &options).expect("it can be mounted");
        let root = fs.statistics().root;
        scale::make_files(&mut fs, root, 100_000, "jffs2");
        let started = Instant::now();
        let mut fs = Jffs2Mut::mount(fs.into_flash(), &options).expect("it can be mounted again");
        println!("mounted in {:?}", started.elapsed());
        scale::use_and_remove(&mut fs, root, 100_000, "jffs2");
        scale::deep_tree(&mut fs, 300);
        scale::hard_links(&mut fs, 65_000, "jffs2");
        assert_eq!(scale::xattrs(&mut fs, 1000, "jffs2"), 1000);
        scale::collide(&mut fs, 4000, "jffs2");
        scale::sparse(&mut fs, 2 << 30, "jffs2");
        assert_jffs2_sound(fs.flash(), order, "at the end");
        fs = Jffs2Mut::mount(fs.into_flash(), &options).expect("it can be mounted again");
        assert_eq!(names(&fs, root).len(), 2);
    }
}

#[test]
fn what_was_synced_is_there_whatever_it_was() {
    for compression in [Compression::None, Compression::Lzo, Compression::Zlib, Compression::Zstd] {
        let mut fs = new_ubifs((15_872, 100, 512), compression).expect("it can be made");
        let synced = values::sync_each(&mut fs);
        let lebs = fs.volume().clone();
        assert_ubifs_sound(&lebs, "stopped");
        let fs = UbifsMut::open(lebs).expect("it can be opened");
        values::assert_synced(&fs, &synced);
        let lebs = fs.close().expect("it can be closed");
        assert_ubifs_sound(&lebs, "closed");
    }
    for order in ByteOrder::ALL {
        let options = jffs2_options(order, true);
        let shape = Shape { erase_size: 16 << 10, blocks: 60, page: 512, oob: 8 };
        let mut fs = Jffs2Mut::mount(Chip::new(shape), &options).expect("it can be mounted");
        let synced = values::sync_each(&mut fs);
        let fs = Jffs2Mut::mount(fs.into_flash(), &options).expect("it can be mounted");
        values::assert_synced(&fs, &synced);
        assert_jffs2_sound(fs.flash(), order, "stopped");
    }
}

#[test]
fn values_keep_to_the_ends_of_their_ranges() {
    let mut fs = new_ubifs((15_872, 100, 512), Compression::None).expect("it can be made");
    values::make_times(&mut fs);
    values::every_byte(&mut fs);
    values::symlink(&mut fs, 4095).expect("as long as Linux has them");
    assert_eq!(values::symlink(&mut fs, 4097), Err(FsError::NameTooLong));
    assert!(values::device(&mut fs, "d1", 4095, 0xf_ffff).is_ok());
    assert!(matches!(values::device(&mut fs, "d2", 4096, 0), Err(FsError::Invalid(_))));
    let fs = UbifsMut::open(fs.close().expect("it can be closed")).expect("it can be opened");
    assert_eq!(values::times(&fs), values::TIMES);
    values::assert_every_byte(&fs);
    for order in ByteOrder::ALL {
        let options = jffs2_options(order, true);
        let shape = Shape { erase_size: 16 << 10, blocks: 60, page: 1, oob: 0 };
        let mut fs = Jffs2Mut::mount(Chip::new(shape), &options).expect("it can be mounted");
        values::make_times(&mut fs);
        values::every_byte(&mut fs);
        values::symlink(&mut fs, 254).expect("as long as Linux has them");
        assert_eq!(values::symlink(&mut fs, 255), Err(FsError::NameTooLong));
        assert!(values::device(&mut fs, "d1", 4095, 0xf_ffff).is_ok());
        let fs = Jffs2Mut::mount(fs.into_flash(), &options).expect("it can be mounted");
        // Seconds from 1970 to 2106, as clamped by Linux.
        let clamp = |time: &flysch_api::vfs::Timestamp| at(time.seconds.clamp(0, 0xffff_ffff));
        assert_eq!(values::times(&fs), values::TIMES.iter().map(clamp).collect::<Vec<_>>());
        values::assert_every_byte(&fs);
    }
}

#[test]
fn files_without_names_are_gone_after_a_stop() {
    let mut fs = new_ubifs((15_872, 200, 512), Compression::None).expect("it can be made");
    let root = fs.statistics().root;
    let before = free(&fs);
    let mut open = vec![];
    let refused = loop {
        let name = format!("file{}", open.len());
        let inode = regular(&mut fs, root, &name).expect("there is room");
        match fs.remove(root, name.as_bytes(), at(3)) {
            Ok(()) => open.push(inode),
            Err(error) => break error,
        }
        if open.len() % 300 == 0 {
            fs.sync(None).expect("there is room");
        }
    };
    // The capacity of an orphan area of one LEB; then the name stays, and one orphan less makes
    // room for it.
    assert_eq!((refused, open.len()), (FsError::NoSpace, 1980));
    let last = format!("file{}", open.len());
    fs.forget(open[7]).expect("it has no name");
    fs.remove(root, last.as_bytes(), at(3)).expect("there is room now");
    fs.sync(None).expect("there is room");
    let lebs = fs.volume().clone();
    assert_ubifs_sound(&lebs, "stopped");
    let fs = UbifsMut::open(lebs).expect("it can be opened");
    assert!(open.iter().all(|&inode| fs.attributes(inode) == Err(FsError::NotFound)));
    let lebs = fs.close().expect("it can be closed");
    assert_ubifs_sound(&lebs, "closed");
    let fs = UbifsMut::open(lebs).expect("it can be opened");
    assert!(free(&fs) + 4096 * 4 >= before, "{} free of {before}", free(&fs));
}

/// A UBIFS after some work.
fn worked(seed: u64) -> (UbifsMut<Lebs>, refusal::Synced, Random) {
    worked_on((15_872, 40, 512), seed)
}

fn worked_on(shape: UbifsShape, seed: u64) -> (UbifsMut<Lebs>, refusal::Synced, Random) {
    let mut fs = new_ubifs(shape, Compression::None).expect("it can be made");
    let (mut synced, mut random) = (refusal::Synced::new(), Random::new(seed));
    refusal::work(&mut fs, &mut synced, &mut random, 150).expect("nothing goes wrong yet");
    (fs, synced, random)
}

/// Works on a volume until it is full, or with the `left`-th further write and all later ones
/// failing. It is then read-only and sound, and on better flash it can be written to again.
fn wear_out(shape: UbifsShape, seed: u64, left: u64) {
    let what = format!("{shape:?}, seed {seed}, worn out after {left}");
    let (mut fs, mut synced, mut random) = worked_on(shape, seed);
    let faults = fs.volume().faults.clone();
    faults.lock().expect("nobody panicked").worn_out_in = Some(left);
    let error = refusal::work(&mut fs, &mut synced, &mut random, 5000).expect_err("it is worn");
    match error {
        FsError::Medium { source: FlashError::ProgramFailed { .. }, .. } => {
            refusal::assert_read_only(&mut fs, &synced);
        }
        error => assert_eq!(error, FsError::NoSpace, "{what}"),
    }
    let lebs = fs.volume().clone();
    drop(fs);
    *faults.lock().expect("nobody panicked") = crate::extremes_common::Faults::default();
    assert_ubifs_sound(&lebs, &what);
    let mut fs = UbifsMut::open(lebs).unwrap_or_else(|error| panic!("{what}: opened: {error}"));
    refusal::assert_synced(&fs, &synced);
    match refusal::work(&mut fs, &mut synced, &mut random, 20) {
        Ok(()) | Err(FsError::NoSpace) => {}
        Err(error) => panic!("{what}: worked on: {error}"),
    }
    refusal::assert_synced(&fs, &synced);
    let lebs = fs.close().unwrap_or_else(|error| panic!("{what}: closed: {error}"));
    assert_ubifs_sound(&lebs, &format!("{what}, closed"));
}

#[test]
fn a_worn_out_volume_leaves_ubifs_read_only() {
    // After 1278 writes the only empty LEB left to the index was one freed by removed files whose
    // removal had not reached the flash: it could no longer be opened.
    for left in (0..200).step_by(7).chain([1278]) {
        wear_out((15_872, 40, 512), left, left);
    }
}

#[test]
#[ignore = "long"]
fn a_volume_worn_out_anywhere_can_be_opened_again() {
    let shapes = [(15_872, 40, 512), (15_872, 48, 512), (16_256, 44, 8), (65_408, 24, 8)];
    let mut random = Random::new(4711);
    for seed in 0..6000 {
        let shape = shapes[seed as usize % shapes.len()];
        wear_out(shape, seed, random.below(4000));
    }
}

#[test]
fn a_leb_that_can_not_be_read_costs_nothing_else() {
    let mut stopped = 0;
    for lnum in 0..40 {
        let (mut fs, mut synced, mut random) = worked(lnum.into());
        let faults = fs.volume().faults.clone();
        faults.lock().expect("nobody panicked").unreadable.push(lnum);
        let worked = refusal::work(&mut fs, &mut synced, &mut random, 400);
        if let Err(error) = worked {
            stopped += 1;
            let expected = matches!(
                error,
                FsError::Medium { .. } | FsError::Damaged { .. } | FsError::ReadOnly
            );
            assert!(expected, "LEB {lnum}: {error}");
            // Whether it continues or is now read-only: nothing panics, nothing is lost.
            let _ = refusal::work(&mut fs, &mut synced, &mut random, 50);
        }
        let lebs = fs.volume().clone();
        drop(fs);
        *faults.lock().expect("nobody panicked") = crate::extremes_common::Faults::default();
        let fs = UbifsMut::open(lebs).expect("it can be opened again");
        refusal::assert_synced(&fs, &synced);
        let lebs = fs.close().expect("it can be closed");
        // Unreadable space counts as used: only that LEB may seem fuller than it is.
        let damage = ubifs_damage(&lebs).into_iter().filter(|it| it.place.leb != Some(lnum));
        assert_eq!(damage.collect::<Vec<_>>(), []);
    }
    assert!(stopped > 5, "{stopped} of 40 LEBs were missed");
}

#[test]
fn jffs2_goes_on_until_too_few_blocks_are_good() {
    let shape = Shape { erase_size: 16 << 10, blocks: 40, page: 512, oob: 8 };
    let options = jffs2_options(ByteOrder::Big, true);
    for (seed, failing) in [(1, 3), (2, 9), (3, 18), (4, 33), (5, 40)] {
        let mut chip = Chip::new(shape);
        chip.failing_programs = (0..40).filter(|block| block * 7 % 40 < failing).collect();
        chip.failing_erases = (0..40).filter(|block| block * 11 % 40 < failing).collect();
        let mut fs = Jffs2Mut::mount(chip, &options).expect("it can be mounted");
        let (mut synced, mut random) = (refusal::Synced::new(), Random::new(seed));
        let worked = refusal::work(&mut fs, &mut synced, &mut random, 1500);
        println!("{failing} of 40 fail: {worked:?}, {:?}", fs.activity());
        match worked {
            Ok(()) | Err(FsError::NoSpace | FsError::ReadOnly | FsError::Medium { .. }) => {}
            Err(error) => panic!("{failing} of 40 fail: {error}"),
        }
        refusal::assert_synced(&fs, &synced);
        let fs = Jffs2Mut::mount(fs.into_flash(), &options).expect("it can be mounted again");
        refusal::assert_synced(&fs, &synced);
    }
}

/// A volume over a chip in which no erase succeeds any more.
fn on_a_worn_chip(fill: impl FnOnce(UbiVolume) -> UbiVolume) -> UbiVolume {
    let shape = Shape { erase_size: 16 << 10, blocks: 80, page: 512, oob: 16 };
    let options = DeviceOptions::default();
    let mut device = UbiDevice::format(Chip::new(shape), &FormatOptions::new(7), &options)
        .expect("a new chip can be formatted");
    let id = device.create(&NewVolume::dynamic(b"data", 60)).expect("there is room");
    let volume = fill(device.into_volume(id).expect("it was made"));
    let mut device = volume.into_device();
    device.close().expect("nothing fails yet");
    let mut chip = device.into_flash();
    chip.failing_erases = (0..80).collect();
    let device = UbiDevice::attach(chip, &options).expect("it can be attached");
    device.into_volume(id).expect("it is there")
}

/// The error tells what the UBI device below said when it stopped, and what is to be done.
fn assert_told(error: FsError, read_only: Option<FlashError>) {
    let FsError::Medium { source, .. } = error else { panic!("not the medium: {error}") };
    assert!(matches!(source, FlashError::ReadOnly(ReadOnly::PoolEmpty { .. })), "{source:?}");
    assert_eq!(Some(source), read_only);
    assert!(error.to_string().contains("copy the data to another chip"), "{error}");
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    assert_eq!(cause, Some(&source));
}

#[test]
fn a_worn_out_chip_tells_the_file_systems_over_ubi_why() {
    let volume = on_a_worn_chip(|mut volume| {
        let VolumeGeometry { leb_size, lebs, .. } = volume.geometry();
        let options = ubifs_options((leb_size, lebs, 512), Compression::None);
        format(&mut volume, &options, &NewInode::directory(at(1))).expect("there is room");
        volume
    });
    let mut fs = UbifsMut::open(volume).expect("it can be opened");
    let (mut synced, mut random) = (refusal::Synced::new(), Random::new(1));
    let error = refusal::work(&mut fs, &mut synced, &mut random, 5000).expect_err("it is worn");
    assert_told(error, fs.volume().device().read_only());
    refusal::assert_read_only(&mut fs, &synced);

    let volume = on_a_worn_chip(|volume| volume);
    let below = *volume.device().flash().geometry();
    let options = jffs2_options(ByteOrder::Little, true);
    let mut fs = Jffs2Mut::mount(Gluebi::new(volume, &below), &options).expect("it is empty");
    let mut synced = refusal::Synced::new();
    let error = refusal::work(&mut fs, &mut synced, &mut random, 5000).expect_err("it is worn");
    assert_told(error, fs.flash().volume().device().read_only());
    refusal::assert_read_only(&mut fs, &synced);
}

#[test]
fn room_comes_back_when_files_go() {
    fill_ubifs((65_408, 37, 8), 10, &[8 << 20, 4096, 300, 20_000, 0]);
    fill_ubifs((15_360, 37, 512), 10, &[8 << 20, 4096, 300, 20_000, 0]);
    for (number, order) in [(0, ByteOrder::Little), (2, ByteOrder::Big), (4, ByteOrder::Big)] {
        let options = jffs2_options(order, number != 2);
        fill_jffs2(JFFS2_SHAPES[number], &options, 10, &[8 << 20, 4096, 300, 20_000, 0]);
    }
}

#[test]
fn names_of_files_that_came_and_went_take_no_room() {
    let shape = Shape { erase_size: 4 << 10, blocks: 16, page: 1, oob: 0 };
    let mut fs = Jffs2Mut::mount(Chip::new(shape), &jffs2_options(ByteOrder::Little, true))
        .expect("it can be mounted");
    let root = fs.statistics().root;
    // Each takes 164 bytes, and its removal 48: thirty times what there is room for.
    for number in 0..10_000 {
        let name = format!("file{number}");
        let file = regular(&mut fs, root, &name).expect("the one before is gone");
        fs.remove(root, name.as_bytes(), at(3)).expect("it is there");
        fs.forget(file).expect("it has no name");
    }
    assert!(!fill(&mut fs, &mut Random::new(1), 4096).is_empty());
}

#[test]
fn much_is_right_in_the_small() {
    let mut fs = new_ubifs((15_872, 200, 512), Compression::Lzo).expect("it can be made");
    scale::deep_tree(&mut fs, 60);
    scale::hard_links(&mut fs, 500, "ubifs");
    // Linux allows as many as fit into half a LEB.
    assert_eq!(scale::xattrs(&mut fs, 1000, "ubifs"), 49);
    scale::collide(&mut fs, 300, "ubifs");
    scale::sparse(&mut fs, 1 << 30, "ubifs");
    let lebs = fs.close().expect("it can be closed");
    assert_ubifs_sound(&lebs, "closed");
    churn_ubifs((15_872, 60, 512), Compression::None, 97, 8000);
    let shape = Shape { erase_size: 16 << 10, blocks: 120, page: 512, oob: 8 };
    let options = jffs2_options(ByteOrder::Big, true);
    let mut fs = Jffs2Mut::mount(Chip::new(shape), &options).expect("it can be mounted");
    scale::deep_tree(&mut fs, 60);
    scale::hard_links(&mut fs, 500, "jffs2");
    assert_eq!(scale::xattrs(&mut fs, 60, "jffs2"), 60);
    scale::collide(&mut fs, 300, "jffs2");
    scale::sparse(&mut fs, 1 << 30, "jffs2");
    assert_jffs2_sound(fs.flash(), ByteOrder::Big, "at the end");
    churn_jffs2(JFFS2_SHAPES[4], &options, 97, 4000);
}
