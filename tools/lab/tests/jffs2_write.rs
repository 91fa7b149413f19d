//! JFFS2 that Flysch wrote, clean and cut, mounted and written by Linux, and back again.

use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use flysch_api::flash::{Corrected, Error as FlashError, Flash, FlashMut, Geometry};
use flysch_api::vfs::{
    Changes, DeviceNumber, Error as FsError, FileKind, FileSystem, FileSystemMut, Inode, NewFile,
    Rename, Severity, Timestamp, XattrChange,
};
use flysch_jffs2::{Compressor, Compressors, Jffs2, Jffs2Mut, Mode, WriteOptions, check};
use flysch_lab::manifest::{self, Detail, Manifest};
use flysch_lab::{Error, Job, Lab};
use flysch_mtd::Image;
use flysch_wire::jffs2::ByteOrder;

/// A chip that the guest can have, too.
struct Chip {
    name: &'static str,
    geometry: Geometry,
    modules: &'static str,
    mode: Mode,
    summary: bool,
}

fn chips() -> [Chip; 3] {
    [
        Chip {
            name: "nor",
            geometry: Geometry::nor(4 << 20, 64 << 10),
            modules: "mtdram total_size=4096 erase_size=64",
            mode: Mode::Priority,
            summary: true,
        },
        Chip {
            name: "large",
            geometry: Geometry::nand(16 << 20, 128 << 10, 2048, 512),
            modules: "nandsim first_id_byte=0x20 second_id_byte=0xa1 third_id_byte=0x00 \
                      fourth_id_byte=0x15 parts=128",
            mode: Mode::Size,
            summary: true,
        },
        Chip {
            name: "small",
            geometry: Geometry::nand(4 << 20, 16 << 10, 512, 256),
            modules: "nandsim first_id_byte=0x98 second_id_byte=0x73 parts=256",
            mode: Mode::None,
            summary: false,
        },
    ]
}

impl Chip {
    fn options(&self) -> WriteOptions {
        WriteOptions {
            order: Some(ByteOrder::Little),
            // Debian's kernels have all three.
            compressors: Compressors { mode: self.mode, enabled: Compressor::ALL.to_vec() },
            summary: self.summary,
        }
    }
}

/// A flash whose power goes at one operation, which is half done then.
struct Cutting<'f> {
    flash: &'f mut Image<Vec<u8>>,
    left: u64,
}

impl Cutting<'_> {
    fn goes(&mut self) -> Result<bool, FlashError> {
        match self.left {
            0 => Err(FlashError::PowerLost),
            _ => {
                self.left -= 1;
                Ok(self.left == 0)
            }
        }
    }
}

impl Flash for Cutting<'_> {
    fn geometry(&self) -> &Geometry {
        self.flash.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.flash.read(offset, buffer)
    }
}

impl FlashMut for Cutting<'_> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        if !self.goes()? {
            return self.flash.program(offset, data);
        }
        let unit = self.flash.geometry().write_size.max(64) as usize;
        let half = (data.len() / 2).next_multiple_of(unit).min(data.len());
        self.flash.program(offset, &data[..half])?;
        Err(FlashError::PowerLost)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        if self.goes()? {
            return Err(FlashError::PowerLost);
        }
        self.flash.erase(block)
    }
}

/// Numbers that are the same at each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

fn now(seconds: i64) -> Timestamp {
    Timestamp { seconds: 1_700_000_000 + seconds, nanoseconds: 0 }
}

/// Directories and other files of a tree, each with the directory and name that leads to it.
type Named = (Inode, Vec<u8>, Inode);

fn tree(fs: &dyn FileSystem) -> (Vec<Inode>, Vec<Named>) {
    let (mut directories, mut files) = (vec![Inode(1)], Vec::new());
    let mut at = 0;
    while let Some(&directory) = directories.get(at) {
        at += 1;
        let listed = fs.list(directory, 0, &mut |entry| {
            if entry.kind == FileKind::Directory {
                directories.push(entry.inode);
            }
            files.push((directory, entry.name.to_vec(), entry.inode));
            ControlFlow::Continue(())
        });
        listed.unwrap();
    }
    (directories, files)
}

/// Random work; ends early when the power goes.
fn churn(fs: &mut dyn FileSystemMut, seed: u64, operations: u64) -> Result<(), FsError> {
    let mut numbers = Numbers(seed);
    for step in 0..operations {
        // What cannot be done is not: no room, a directory below itself, ...
        if let Err(error @ (FsError::Medium(_) | FsError::ReadOnly | FsError::Damaged { .. })) =
            operation(fs, &mut numbers, step)
        {
            return Err(error);
        }
        if step % 100 == 99 {
            fs.sync(None)?;
        }
    }
    Ok(())
}

fn operation(fs: &mut dyn FileSystemMut, numbers: &mut Numbers, step: u64) -> Result<(), FsError> {
    let time = now(step as i64);
    let (directories, files) = tree(fs);
    let parent = directories[numbers.below(directories.len() as u64) as usize];
    let name = format!("{}{}", "n".repeat(1 + numbers.below(30) as usize), numbers.below(99));
    let any = |numbers: &mut Numbers| match files.is_empty() {
        true => None,
        false => Some(files[numbers.below(files.len() as u64) as usize].clone()),
    };
    let kinds = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::CharacterDevice,
        FileKind::BlockDevice,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::Regular,
    ];
    let old = any(numbers);
    match (numbers.below(12), old) {
        (0..3, _) | (_, None) => {
            let kind = kinds[numbers.below(8) as usize];
            let target: &[u8] = if kind == FileKind::Symlink { b"../some/where" } else { b"" };
            let device = DeviceNumber { major: 8, minor: numbers.below(300) as u32 };
            let new = NewFile { kind, permissions: 0o640, owner: 7, group: 8, device, target };
            let inode = fs.create(parent, name.as_bytes(), &new, time)?;
            if kind == FileKind::Regular {
                let data: Vec<u8> = (0..numbers.below(30_000)).map(|n| (n / 7) as u8).collect();
                let _ = fs.write(inode, 0, &data, time)?;
            }
        }
        (3..6, Some((_, _, inode))) => {
            let data: Vec<u8> = (0..numbers.below(9000)).map(|n| (n * n / 5) as u8).collect();
            let _ = fs.write(inode, numbers.below(60_000), &data, time)?;
        }
        (6, Some((_, _, inode))) => {
            let changes = Changes { size: Some(numbers.below(40_000)), ..Changes::default() };
            fs.set_attributes(inode, &changes, time)?;
        }
        (7, Some((_, _, inode))) => {
            let mut name = *b"user.a";
            name[5] += numbers.below(5) as u8;
            let value = vec![b'v'; numbers.below(200) as usize];
            let change = match numbers.below(3) {
                0 => XattrChange::Remove,
                _ => XattrChange::Set(&value),
            };
            // Linux shows these of files and directories only.
            if matches!(fs.attributes(inode)?.kind, FileKind::Regular | FileKind::Directory) {
                fs.set_xattr(inode, &name, change, time)?;
            }
        }
        (8, Some((_, _, inode))) => fs.link(inode, parent, name.as_bytes(), time)?,
        (9, Some((from, old, _))) => {
            let to = any(numbers).filter(|_| numbers.below(2) == 0);
            let (to, new) =
                to.map_or((parent, name.into_bytes()), |(parent, name, _)| (parent, name));
            let how = [Rename::Replace, Rename::Keep, Rename::Exchange, Rename::Whiteout];
            let there = fs.lookup(to, &new);
            fs.rename((from, &old), (to, &new), how[numbers.below(4) as usize], time)?;
            if let Ok(there) = there {
                fs.forget(there)?;
            }
        }
        (10, Some((_, _, inode))) => {
            let permissions = Some(numbers.below(0o1000) as u16);
            let changes = Changes { permissions, owner: Some(9), ..Changes::default() };
            fs.set_attributes(inode, &changes, time)?;
            fs.sync(Some(inode))?;
        }
        (_, Some((parent, name, inode))) => {
            fs.remove(parent, &name, time)?;
            if numbers.below(4) != 0 {
                fs.forget(inode)?;
            }
        }
    }
    Ok(())
}

/// Works on the file system; `cut`: until so many flash operations are done.
fn work(chip: &Chip, flash: &mut Image<Vec<u8>>, seed: u64, operations: u64, cut: Option<u64>) {
    let left = cut.unwrap_or(u64::MAX);
    let flash = Cutting { flash, left };
    let mut fs = match Jffs2Mut::mount(flash, &chip.options()) {
        Ok(fs) => fs,
        Err(error) => return assert!(cut.is_some(), "{error}"),
    };
    let done = churn(&mut fs, seed, operations).and_then(|()| fs.sync(None));
    assert!(cut.is_some() || done.is_ok(), "{done:?}");
}

/// What Flysch shows of it, reading and about to write; its check finds nothing.
fn shown(flash: &Image<Vec<u8>>, what: &str) -> Manifest {
    let mut wrong = vec![];
    check(flash, None, &mut |finding| {
        if finding.severity != Severity::Note {
            wrong.push(finding.to_string());
        }
    })
    .unwrap();
    assert_eq!(wrong, [""; 0], "{what}");
    let fs = Jffs2::mount(flash, None).unwrap();
    manifest::of_file_system(&fs, Detail::Whole)
}

/// What Flysch shows of a copy that it has mounted for writing.
fn shown_for_writing(chip: &Chip, flash: &Image<Vec<u8>>) -> Manifest {
    let mut copy = Image::new(flash.storage().clone(), chip.geometry);
    let fs = Jffs2Mut::mount(&mut copy, &chip.options()).unwrap();
    manifest::of_file_system(&fs, Detail::Whole)
}

const FUNCTIONS: &str = r#"
    guest=/share/flysch-lab-guest
    modprobe jffs2
    load() {
        flash_erase -q /dev/mtd0 0 0
        case $(cat /sys/class/mtd/mtd0/type) in
            nand) nandwrite -q -N /dev/mtd0 "$1" 2>/dev/null ;;
            *) dd if="$1" of=/dev/mtd0 bs=64k status=none ;;
        esac
    }
    save() {
        case $(cat /sys/class/mtd/mtd0/type) in
            nand) nanddump -q --bb=dumpbad -f "$1" /dev/mtd0 ;;
            *) dd if=/dev/mtd0 of="$1" bs=64k status=none ;;
        esac
    }
    # round NAME SEED: what Linux shows, what it shows after work of its own, the flash then.
    round() {
        load $1.img
        dmesg -C
        if mount -t jffs2 mtd0 /mnt; then
            $guest manifest /mnt > $1.1.txt
            mkdir -p /mnt/linux
            $guest work /mnt/linux $2 /nowhere 60 || true
            rm -rf /mnt/linux/*3* 2>/dev/null || true
            sync
            umount /mnt
            mount -t jffs2 mtd0 /mnt
            $guest manifest /mnt > $1.2.txt
            umount /mnt
        fi
        dmesg > $1.dmesg
        save $1.out
    }
"#;

fn lab() -> Option<Lab> {
    match Lab::open() {
        Ok(lab) => Some(lab),
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

fn run(lab: &Lab, script: &str, share: &Path) {
    let worker = env!("CARGO_BIN_EXE_flysch-lab-guest");
    fs::copy(worker, share.join("flysch-lab-guest")).unwrap();
    let script = format!("{FUNCTIONS}\n{script}");
    let started = Instant::now();
    let job = Job { timeout: Duration::from_secs(500), ..Job::new(&script, share) };
    match lab.run(&job) {
        Ok(done) => assert_eq!(done.status, 0, "{}\n{}", done.output, done.console),
        Err(error @ Error::TimedOut { .. }) => panic!("{error}"),
        Err(error) => panic!("{error}"),
    }
    println!("guest: {} s", started.elapsed().as_secs());
}

/// The lines that differ.
fn difference(ours: &Manifest, linux: &Manifest) -> String {
    let mut text = String::new();
    for path in ours.keys().chain(linux.keys().filter(|path| !ours.contains_key(*path))) {
        let (one, other) = (ours.get(path), linux.get(path));
        if one != other {
            let _ = writeln!(text, "/{path}\n  Flysch {one:?}\n  Linux  {other:?}");
        }
    }
    text
}

/// What Linux did not like; that a block it goes on in has no room for a summary is no fault.
fn complaints(log: &str) -> Vec<&str> {
    let bad = |line: &&str| {
        line.contains("jffs2: error")
            || (line.contains("jffs2: warning") && !line.contains("Not enough space for summary"))
            || line.contains("BUG")
            || line.contains("Call Trace")
    };
    log.lines().filter(bad).collect()
}

/// Linux mounts each image, compares, works on; the images come back.
fn linux_round(lab: &Lab, chip: &Chip, images: &mut [(String, Image<Vec<u8>>)], seed: u64) {
    let keep = std::env::var_os("FLYSCH_LAB_KEEP");
    let share = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for (name, flash) in images.iter() {
        fs::write(share.path().join(format!("{name}.img")), flash.storage()).unwrap();
        expected.push(shown(flash, name));
    }
    let rounds: String = images.iter().map(|(name, _)| format!("round {name} {seed}\n")).collect();
    run(lab, &format!("modprobe {}\n{rounds}", chip.modules), share.path());
    let mut wrong = String::new();
    for ((name, flash), expected) in images.iter_mut().zip(expected) {
        let read = |end: &str| fs::read_to_string(share.path().join(format!("{name}.{end}")));
        let log = read("dmesg").unwrap();
        let bad = complaints(&log);
        if !bad.is_empty() {
            let _ = writeln!(wrong, "{name}: {bad:#?}");
        }
        let (Ok(first), Ok(second)) = (read("1.txt"), read("2.txt")) else {
            let _ = writeln!(wrong, "{name}: Linux does not mount it: {log}");
            continue;
        };
        let different = difference(&expected, &manifest::from_text(&first));
        if !different.is_empty() {
            let _ = writeln!(wrong, "{name}: before Linux wrote:\n{different}");
        }
        let content = fs::read(share.path().join(format!("{name}.out"))).unwrap();
        *flash = Image::new(content, chip.geometry);
        let second = manifest::from_text(&second);
        let different = difference(&shown(flash, name), &second);
        if !different.is_empty() {
            let _ = writeln!(wrong, "{name}: after Linux wrote:\n{different}");
        }
        let different = difference(&shown_for_writing(chip, flash), &second);
        if !different.is_empty() {
            let _ = writeln!(wrong, "{name}: after Linux wrote, for writing:\n{different}");
        }
    }
    if let (false, Some(folder)) = (wrong.is_empty(), keep) {
        let _ = std::process::Command::new("cp").arg("-r").arg(share.path()).arg(folder).status();
    }
    assert!(wrong.is_empty(), "{}: {wrong}", chip.name);
}

#[test]
fn linux_and_flysch_write_in_turn() {
    let Some(lab) = lab() else { return };
    for chip in chips() {
        let erased = vec![0xff; chip.geometry.size as usize];
        let mut clean = Image::new(erased, chip.geometry);
        let mut images = Vec::new();
        work(&chip, &mut clean, 1, 200, None);
        for cut in [40, 90, 150, 311, 520, 777] {
            let mut flash = Image::new(clean.storage().clone(), chip.geometry);
            work(&chip, &mut flash, cut, 400, Some(cut));
            images.push((format!("cut{cut}"), flash));
        }
        images.push((String::from("clean"), clean));
        for round in 0..3 {
            linux_round(&lab, &chip, &mut images, 10 + round);
            for (name, flash) in &mut images {
                let cut = (round == 1 && name.starts_with("cut")).then_some(400);
                work(&chip, flash, 20 + round, 120, cut);
            }
        }
        println!("{}: {} images, three times each way", chip.name, images.len());
    }
}
