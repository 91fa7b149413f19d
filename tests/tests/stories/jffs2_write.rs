//! Writing to JFFS2: random changes against a model, and power cuts at every program and erase.

use flysch_random::SplitMix64;
use std::ops::ControlFlow;

use crate::jffs2_common::{Chip, Shape, Snapshot, Torn, between, snapshot};
use flysch_api::finding::Severity;
use flysch_api::vfs::{
    Changes, DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, NewFile, Rename,
    Timestamp, XattrChange,
};
use flysch_jffs2::{Compressor, Compressors, Jffs2, Jffs2Mut, Mode, WriteOptions, check};
use flysch_vfs::{Exercise, Limits};
use flysch_wire::jffs2::ByteOrder;

const NOR: Shape = Shape { erase_size: 16 << 10, blocks: 64, page: 1, oob: 0 };
const NAND: Shape = Shape { erase_size: 32 << 10, blocks: 40, page: 2048, oob: 16 };
/// As in a dump without out-of-band bytes.
const BARE: Shape = Shape { erase_size: 16 << 10, blocks: 64, page: 512, oob: 0 };

fn limits(file_size: u64, files: usize) -> Limits {
    Limits { file_size, files, write_size: 9000, exchange: false, nanoseconds: false }
}

fn options(number: u64) -> WriteOptions {
    let mode = [Mode::Priority, Mode::Size, Mode::None, Mode::FavourLzo][number as usize % 4];
    WriteOptions {
        order: Some(ByteOrder::ALL[number as usize / 2 % 2]),
        compressors: Compressors { mode, enabled: Compressor::ALL.to_vec() },
        summary: number.is_multiple_of(2),
    }
}

fn mount(chip: Chip, options: &WriteOptions) -> Jffs2Mut<Chip> {
    Jffs2Mut::mount(chip, options).expect("it can be mounted")
}

/// The findings of the check, except an interrupted write.
fn findings(chip: &Chip, options: &WriteOptions) -> Vec<String> {
    let mut findings = vec![];
    check(chip, options.order, &mut |finding| {
        // An interrupted erase leaves garbage, which is erased again sooner or later.
        if finding.severity > Severity::Note && !finding.problem.contains("neither erased nor") {
            findings.push(finding.to_string());
        }
    })
    .unwrap();
    findings
}

/// Random changes, with an occasional remount. Returns how much was collected and how often it was
/// full.
fn exercise(shape: Shape, seed: u64, steps: u64, limits: Limits) -> (u64, u64) {
    let options = options(seed);
    let mut fs = mount(Chip::new(shape), &options);
    let mut exercise = Exercise::new(&fs, seed, limits);
    let mut collected = 0;
    for step in 0..steps {
        if let Err(mismatch) = exercise.step(&mut fs) {
            panic!("{shape:?}, seed {seed}: {mismatch}");
        }
        if step % 211 == 210 {
            fs.sync(None).unwrap();
            let differences = flysch_vfs::compare(exercise.model(), &fs);
            assert_eq!(differences, [], "{shape:?}, seed {seed}, step {step}, as it is");
            collected += fs.activity().collected;
            let chip = fs.into_flash();
            assert_eq!(findings(&chip, &options), [""; 0], "{shape:?}, seed {seed}, step {step}");
            {
                let reader = Jffs2::mount(&chip, None).unwrap();
                let differences = flysch_vfs::compare(exercise.model(), &reader);
                assert_eq!(differences, [], "{shape:?}, seed {seed}, step {step}, read-only");
            }
            fs = mount(chip, &options);
            exercise.reopened(&fs).unwrap();
            let differences = flysch_vfs::compare(exercise.model(), &fs);
            assert_eq!(differences, [], "{shape:?}, seed {seed}, step {step}, opened anew");
        }
    }
    (collected + fs.activity().collected, exercise.counts().full)
}

#[test]
fn random_changes_are_those_of_the_model() {
    for shape in [NOR, NAND, BARE] {
        for seed in 0..4 {
            exercise(shape, seed, 900, limits(64 << 10, 40));
        }
    }
}

#[test]
fn a_full_flash_stays_in_order() {
    let (mut collected, mut full) = (0, 0);
    for (shape, seed) in [(NOR, 10), (NAND, 11), (BARE, 12), (NOR, 13), (NAND, 14)] {
        let more = exercise(shape, seed, 2500, limits(160 << 10, 60));
        collected += more.0;
        full += more.1;
    }
    assert!(collected > 500 && full > 100, "{collected} blocks collected, {full} times full");
}

/// Removes the first name that can be removed.
fn remove_any(fs: &mut Jffs2Mut<Chip>, now: Timestamp) -> Result<(), FsError> {
    let mut open = vec![fs.statistics().root];
    let mut names = vec![];
    while let Some(directory) = open.pop() {
        fs.list(directory, 0, &mut |entry| {
            if entry.kind == FileKind::Directory {
                open.push(entry.inode);
            } else {
                names.push((directory, entry.name.to_vec(), entry.inode));
            }
            ControlFlow::Continue(())
        })?;
    }
    let Some((directory, name, inode)) = names.first() else { return Ok(()) };
    fs.remove(*directory, name, now)?;
    fs.forget(*inode)
}

/// A number of rounds, multiplied by `FLYSCH_JFFS2_ROUNDS` for a longer run.
fn rounds(count: u64) -> u64 {
    let times = std::env::var("FLYSCH_JFFS2_ROUNDS").ok().and_then(|times| times.parse().ok());
    count * times.unwrap_or(1)
}

/// The state of a chip after a power cut: mounted for reading and for writing it shows the same,
/// the check finds nothing wrong, and both are between the states before and after the step.
fn recovered(chip: Chip, before: &Snapshot, after: &Snapshot, options: &WriteOptions, text: &str) {
    let found = {
        let reader =
            Jffs2::mount(&chip, options.order).unwrap_or_else(|error| panic!("{text}: {error}"));
        snapshot(&reader)
    };
    assert_eq!(between(before, after, &found), [""; 0], "{text}, read-only");
    let mut wrong = findings(&chip, options);
    // A directory in the middle of a rename; mounting for writing repairs it.
    wrong.retain(|finding| !finding.contains("a directory has more than one name"));
    assert_eq!(wrong, [""; 0], "{text}");
    let mut fs = mount(chip, options);
    assert_eq!(between(before, after, &snapshot(&fs)), [""; 0], "{text}, opened");
    // It can still be used.
    let root = fs.statistics().root;
    let now = Timestamp { seconds: 2_000_000_000, nanoseconds: 0 };
    let changes = Changes { permissions: Some(0o777), ..Default::default() };
    match fs.set_attributes(root, &changes, now) {
        // Full or not, something can be removed.
        Err(FsError::NoSpace) => {
            let removed = remove_any(&mut fs, now);
            removed.unwrap_or_else(|error| panic!("{text}: a removal: {error}"));
        }
        done => done.unwrap_or_else(|error| panic!("{text}: {error}")),
    }
    fs.sync(None).unwrap();
    let shown = snapshot(&fs);
    let chip = fs.into_flash();
    assert_eq!(findings(&chip, options), [""; 0], "{text}, after going on");
    let fs = mount(chip, options);
    assert_eq!(snapshot(&fs), shown, "{text}, opened again");
}

/// Makes random steps, each synced, and repeats every step with power cut at each of its programs
/// and erases. Returns the number of cuts.
fn cut_everywhere(shape: Shape, seed: u64, warm_up: u64, steps: u64, limits: Limits) -> u64 {
    let options = options(seed);
    let mut fs = mount(Chip::new(shape), &options);
    let mut exercise = Exercise::new(&fs, seed, limits);
    for _ in 0..warm_up {
        exercise.step(&mut fs).unwrap_or_else(|mismatch| panic!("seed {seed}: {mismatch}"));
    }
    let mut cuts = 0;
    for step in 0..steps {
        fs.sync(None).unwrap();
        let chip = fs.into_flash();
        fs = mount(chip.clone().power_up(), &options);
        exercise.reopened(&fs).unwrap_or_else(|mismatch| panic!("seed {seed}: {mismatch}"));
        let before = snapshot(&fs);
        let start = exercise.clone();
        exercise.step(&mut fs).unwrap_or_else(|mismatch| panic!("seed {seed}: {mismatch}"));
        fs.sync(None).unwrap();
        let after = snapshot(&fs);
        let operations = fs.flash().operations;
        for at in 0..operations {
            for torn in [Torn::Nothing, Torn::Half, Torn::Some, Torn::All] {
                let mut cut = chip.clone().power_up();
                cut.cut = Some((at, torn));
                let mut fs = mount(cut, &options);
                let _ = start.clone().step(&mut fs);
                let _ = fs.sync(None);
                let cut = fs.into_flash();
                assert!(cut.is_off(), "the power was cut");
                let text = format!("{shape:?}, seed {seed}, step {step}, {torn:?} of {at}");
                recovered(cut.power_up(), &before, &after, &options, &text);
                cuts += 1;
            }
        }
    }
    cuts
}

const SMALL_NOR: Shape = Shape { erase_size: 8 << 10, blocks: 24, page: 1, oob: 0 };
const SMALL_NAND: Shape = Shape { erase_size: 16 << 10, blocks: 16, page: 1024, oob: 16 };

#[test]
fn the_power_cut_anywhere_costs_the_last_change_at_most() {
    let mut cuts = 0;
    for (shape, seed) in [(SMALL_NOR, 20), (SMALL_NAND, 21), (SMALL_NOR, 23), (SMALL_NAND, 22)] {
        // A fresh one, and a nearly full one.
        cuts += cut_everywhere(shape, seed, 0, rounds(12), limits(16 << 10, 10));
        cuts += cut_everywhere(shape, seed, 400, rounds(8), limits(24 << 10, 20));
    }
    println!("{cuts} cuts");
    assert!(cuts > 500);
}

/// A chain of cuts, one at each mount, each at a random moment of random work on a nearly full
/// flash: files that were synced and left alone stay, the check finds nothing wrong, and in the end
/// there is room again after removing something.
#[test]
fn cuts_in_a_row_do_not_wear_the_flash_down() {
    // The seeds that once went wrong: no room for a removal, nodes after a last page that were not
    // read, torn data taken for damage; and some others.
    chains_of_cuts(SMALL_NOR, &[9, 12, 30, 33, 50, 54]);
    chains_of_cuts(SMALL_NAND, &[6, 12, 31, 32, 70, 89]);
    chains_of_cuts(NOR, &[32]);
    chains_of_cuts(NAND, &[33, 50, 138]);
}

fn chains_of_cuts(shape: Shape, seeds: &[u64]) {
    for &seed in seeds {
        let options = options(seed);
        let mut fs = mount(Chip::new(shape), &options);
        let now = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
        let root = fs.statistics().root;
        let file = |permissions| NewFile {
            kind: FileKind::Regular,
            permissions,
            owner: 0,
            group: 0,
            device: DeviceNumber::default(),
            target: &[],
        };
        let mut noise = SplitMix64::new(seed);
        let mut kept = vec![];
        for number in 0..4 {
            let name = format!("kept{number}").into_bytes();
            let inode = fs.create(root, &name, &file(0o400), now).unwrap();
            let data: Vec<u8> = (0..9000).map(|_| noise.modulo(256) as u8).collect();
            assert_eq!(fs.write(inode, 0, &data, now), Ok(data.len()));
            kept.push((name, data));
        }
        fs.sync(None).unwrap();
        let mut chip = fs.into_flash();
        for round in 0..rounds(60) {
            let torn = [Torn::Nothing, Torn::Half, Torn::Some, Torn::All];
            chip = chip.power_up();
            chip.cut = Some((noise.modulo(40), torn[noise.modulo(4) as usize]));
            let mut fs = mount(chip, &options);
            while !fs.flash().is_off() {
                let name = format!("f{}", noise.modulo(30)).into_bytes();
                let inode = fs.lookup(root, &name);
                let done = match (noise.modulo(4), inode) {
                    (0, Ok(inode)) if noise.modulo(2) == 0 => {
                        fs.remove(root, &name, now).and_then(|()| fs.forget(inode))
                    }
                    (_, Ok(inode)) => {
                        let len = 1 + noise.modulo(6000) as usize;
                        let data: Vec<u8> = (0..len).map(|_| noise.modulo(256) as u8).collect();
                        fs.write(inode, noise.modulo(20_000), &data, now).map(drop)
                    }
                    (_, Err(_)) => fs.create(root, &name, &file(0o644), now).map(drop),
                };
                match done {
                    Ok(()) => {}
                    Err(FsError::NoSpace) => {
                        let removed = remove_other(&mut fs, &kept, now);
                        assert!(
                            removed.is_ok() || fs.flash().is_off(),
                            "{shape:?}, round {round}: a removal: {removed:?}, {:?}",
                            fs.activity()
                        );
                    }
                    Err(error) => assert!(fs.flash().is_off(), "{shape:?}: {error}"),
                }
            }
            chip = fs.into_flash();
            assert_eq!(findings(&chip, &options), [""; 0], "{shape:?}, round {round}");
            let reader = Jffs2::mount(&chip, options.order).unwrap();
            let writer = mount(chip.clone().power_up(), &options);
            for (name, data) in &kept {
                for fs in [&reader as &dyn FileSystem, &writer] {
                    let inode = fs.lookup(root, name).unwrap();
                    let mut found = vec![0; data.len() + 1];
                    assert_eq!(fs.read(inode, 0, &mut found), Ok(data.len()), "{shape:?}, {round}");
                    assert_eq!(found[..data.len()], data[..], "{shape:?}, round {round}");
                }
            }
            assert_eq!(snapshot(&reader), snapshot(&writer), "{shape:?}, round {round}");
        }
    }
}

/// Removes the first file that need not be kept.
fn remove_other(
    fs: &mut Jffs2Mut<Chip>,
    kept: &[(Vec<u8>, Vec<u8>)],
    now: Timestamp,
) -> Result<(), FsError> {
    let root = fs.statistics().root;
    let mut other = None;
    fs.list(root, 0, &mut |entry| {
        if kept.iter().any(|(name, _)| name == entry.name) {
            return ControlFlow::Continue(());
        }
        other = Some((entry.name.to_vec(), entry.inode));
        ControlFlow::Break(())
    })?;
    let Some((name, inode)) = other else { return Ok(()) };
    fs.remove(root, &name, now)?;
    fs.forget(inode)
}

#[test]
fn blocks_that_fail_are_given_up_and_nothing_is_lost() {
    for (shape, seed) in [(NAND, 40), (NAND, 41), (NOR, 42), (NOR, 43)] {
        let options = options(seed);
        let mut chip = Chip::new(shape);
        if shape.oob > 0 {
            chip.set_bad(0);
            chip.set_bad(7);
        }
        chip.failing_programs = vec![2, 11, 12];
        chip.failing_erases = vec![5, 20];
        let mut fs = mount(chip, &options);
        let mut exercise = Exercise::new(&fs, seed, limits(64 << 10, 40));
        for step in 0..1500 {
            exercise.step(&mut fs).unwrap_or_else(|mismatch| panic!("seed {seed}: {mismatch}"));
            if step % 300 == 299 {
                fs.sync(None).unwrap();
                let failures = fs.activity().program_failures + fs.activity().given_up;
                assert_eq!(flysch_vfs::compare(exercise.model(), &fs), [], "seed {seed}");
                let chip = fs.into_flash();
                assert!(step > 300 || failures > 0, "seed {seed}: programs failed");
                fs = mount(chip, &options);
                exercise.reopened(&fs).unwrap();
                assert_eq!(flysch_vfs::compare(exercise.model(), &fs), [], "seed {seed}, anew");
            }
        }
    }
}

/// Whatever is wrong with an image, mounting it for writing and working on it ends.
#[test]
fn damaged_images_are_worked_on_without_harm() {
    let mut noise = SplitMix64::new(50);
    for (shape, seed) in [(SMALL_NOR, 50), (SMALL_NAND, 51)] {
        let options = options(seed);
        let mut fs = mount(Chip::new(shape), &options);
        let mut exercise = Exercise::new(&fs, seed, limits(24 << 10, 20));
        for _ in 0..300 {
            exercise.step(&mut fs).unwrap();
        }
        fs.sync(None).unwrap();
        let good = fs.into_flash();
        let mut opened = 0;
        for round in 0..80 {
            let mut bytes = good.bytes().to_vec();
            for _ in 0..=noise.modulo(12) {
                let at = noise.modulo(bytes.len() as u64) as usize;
                match (round % 3, noise.modulo(4)) {
                    (0, _) => bytes[at] ^= 1 << noise.modulo(8),
                    (_, 0) => bytes[at & !511..][..512].fill(0xFF),
                    (_, 1) => bytes[at & !511..][..512].fill(0),
                    (_, _) => {
                        let from = (at & !3).min(bytes.len() - 64);
                        bytes.copy_within(from..from + 64, 4096);
                    }
                }
            }
            let Ok(mut fs) = Jffs2Mut::mount(Chip::holding(shape, bytes), &options) else {
                continue;
            };
            opened += 1;
            work_on_damage(&mut fs, &mut noise);
            let again = Jffs2Mut::mount(fs.into_flash(), &options);
            assert!(again.is_ok(), "round {round}: {:?}", again.err());
        }
        assert!(opened > 50, "{opened} of 80 opened");
    }
}

/// Reads, writes and removes various files; errors are expected.
fn work_on_damage(fs: &mut Jffs2Mut<Chip>, noise: &mut SplitMix64) {
    let now = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
    let mut open = vec![fs.statistics().root];
    let mut names = vec![];
    while let Some(directory) = open.pop() {
        let _ = fs.list(directory, 0, &mut |entry| {
            if entry.kind == FileKind::Directory && names.len() < 500 {
                open.push(entry.inode);
            }
            names.push((directory, entry.name.to_vec(), entry.inode));
            ControlFlow::Continue(())
        });
    }
    let mut buffer = vec![0; 40_000];
    for (directory, name, inode) in &names {
        let _ = fs.attributes(*inode);
        let _ = fs.read(*inode, 0, &mut buffer);
        let _ = fs.list_xattrs(*inode, &mut |_| {});
        let _ = match noise.modulo(6) {
            0 => fs.remove(*directory, name, now).and_then(|()| fs.forget(*inode)),
            1 => fs.rename((*directory, name), (*directory, b"moved"), Rename::Replace, now),
            2 => fs.set_xattr(*inode, b"user.a", XattrChange::Set(b"value"), now),
            3 => fs.set_attributes(*inode, &Changes::default(), now),
            _ => fs.write(*inode, noise.modulo(20_000), &buffer[..5000], now).map(drop),
        };
    }
    let _ = fs.sync(None);
}
