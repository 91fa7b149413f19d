//! The steps of the workloads.

use flysch_api::vfs::Rename as How;
use flysch_models::random::Random;

use super::files;
use super::ubi::Step;

/// Number of files that fill a flash.
const FILLING: u64 = 18;
/// Number of operations that fail in a workload with failures.
const FAILURES: usize = 6;

/// Nothing.
pub(super) fn nothing(_: u64, _: u64) -> Vec<files::Step> {
    vec![]
}

/// One volume.
pub(super) fn volume() -> Vec<Step> {
    vec![VOLUME]
}

/// A dynamic and a static volume.
pub(super) fn two_volumes() -> Vec<Step> {
    vec![VOLUME, STATIC]
}

const VOLUME: Step = Step::Create { name: "first", lebs: 6, is_static: false };
const STATIC: Step = Step::Create { name: "kernel", lebs: 4, is_static: true };

const fn write(lnum: u32, at: u32, units: u32) -> Step {
    Step::Write { volume: 0, lnum, at, units }
}

pub(super) fn write_all() -> Vec<Step> {
    vec![
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
    ]
}

const fn change(lnum: u32, units: u32) -> Step {
    Step::Change { volume: 0, lnum, units }
}

pub(super) fn change_all() -> Vec<Step> {
    vec![
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
    ]
}

pub(super) fn volumes() -> Vec<Step> {
    vec![
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
    ]
}

pub(super) fn update_all() -> Vec<Step> {
    vec![
        Step::Update { volume: 0, bytes: 30_000 },
        Step::Update { volume: 1, bytes: 20_001 },
        write(5, 0, 1),
        Step::Update { volume: 0, bytes: 7_000 },
        Step::Update { volume: 1, bytes: 5 },
        Step::Sync,
    ]
}

pub(super) fn fastmap() -> Vec<Step> {
    vec![
        write(0, 0, 2),
        Step::Reattach,
        write(0, 2, 1),
        change(1, 2),
        Step::Reattach,
        Step::Reattach,
        Step::Unmap { volume: 0, lnum: 0 },
        Step::Create { name: "second", lebs: 2, is_static: false },
        Step::Reattach,
    ]
}

/// LEBs are changed, unmapped and written again, many times the size of a pool.
pub(super) fn refills() -> Vec<Step> {
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

/// Number of years after which reads of a new chip report LEBs to be scrubbed, while none is lost
/// yet.
const YEARS: u32 = 16;

/// LEBs that have not been touched for a long time.
pub(super) fn old() -> Vec<Step> {
    let mut steps = vec![VOLUME, STATIC];
    steps.extend((0..5).map(|lnum| write(lnum, 0, 6)));
    steps.extend([Step::Update { volume: 1, bytes: 60_000 }, Step::Wait(YEARS)]);
    steps
}

pub(super) fn scrub() -> Vec<Step> {
    vec![
        Step::Read { volume: 0 },
        Step::Work(2),
        change(1, 2),
        Step::Work(2),
        Step::Read { volume: 1 },
        Step::Work(12),
        write(5, 0, 1),
        Step::Sync,
        Step::Work(4),
    ]
}

/// Cold LEBs.
pub(super) fn cold() -> Vec<Step> {
    let mut steps = vec![Step::Create { name: "first", lebs: 14, is_static: false }];
    steps.extend((1..12).map(|lnum| write(lnum, 0, 1)));
    steps
}

/// One LEB is changed again and again.
pub(super) fn hot() -> Vec<Step> {
    (0..40).flat_map(|_| [change(0, 1), Step::Work(2)]).collect()
}

pub(super) fn failures() -> Vec<Step> {
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
pub(super) fn basic(_: u64, _: u64) -> Vec<files::Step> {
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

/// What an editor and a package manager do: move the ends of files across blocks, replace
/// attributes by longer and shorter ones, exchange names and replace them while their file is open.
pub(super) fn edit(_: u64, _: u64) -> Vec<files::Step> {
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

/// Random changes; impossible ones fail on both sides.
pub(super) fn random(seed: u64, count: usize, exchanges: bool) -> Vec<files::Step> {
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

/// Many small files, repeatedly.
pub(super) fn many(_: u64, _: u64) -> Vec<files::Step> {
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

/// Writes files until this many KiB are written.
pub(super) fn fill(kib: u64) -> Vec<files::Step> {
    let mut steps = vec![];
    for number in 0..FILLING {
        let path = format!("fill{number}");
        steps.push(create(&path));
        steps.push(write_file(&path, 0, ((kib << 10) / FILLING) as usize, false));
    }
    steps
}

/// Rewrites parts of these files, removes some, and asks for more than fits.
pub(super) fn full(seed: u64, rounds: u64, kib: u64) -> Vec<files::Step> {
    use files::Step::*;
    let mut random = Random::new(seed ^ 5);
    let mut steps = vec![];
    for round in 0..rounds {
        let path = format!("fill{}", random.below(FILLING));
        let at = random.below((kib << 10) / FILLING / 4096) * 4096;
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

/// Files are rewritten from the start and synced every second round, as late-cuts does.
pub(super) fn overwrite(_: u64, _: u64) -> Vec<files::Step> {
    use files::Step::*;
    let mut steps = vec![];
    let mut made = [false; 17];
    for round in 0..12_usize {
        for turn in 0..4 {
            let number = (round * 3 + turn) % 17;
            let path = format!("f{number}");
            if !std::mem::replace(&mut made[number], true) {
                steps.push(create(&path));
            }
            steps.push(write_file(&path, 0, 3000 + round * 7919 % 20_000, false));
        }
        if round % 2 == 1 {
            steps.push(Sync);
        }
    }
    steps.push(Remount);
    steps
}

/// The operations of a workload that fail, counted from its first one.
pub(super) fn failing(seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed ^ 0xFA11);
    let mut at = 0;
    (0..FAILURES)
        .map(|_| {
            at += 5 + random.below(45);
            at
        })
        .collect()
}
