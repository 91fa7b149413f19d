//! JFFS2 written by Flysch, clean and cut, mounted and written by Linux, and back again.

use std::fmt::Write as _;
use std::fs;

use crate::churn::churn;
use crate::common::cutting::Cutting;
use crate::common::{complaints, difference, lab};
use flysch_api::finding::Severity;
use flysch_api::flash::{Flash, FlashGeometry};
use flysch_api::vfs::FileSystemMut;
use flysch_jffs2::{Compressor, Compressors, Jffs2, Jffs2Mut, Mode, WriteOptions, check};
use flysch_lab::Lab;
use flysch_lab::manifest::{self, Detail, Manifest};
use flysch_mtd::FlashImage;
use flysch_wire::jffs2::ByteOrder;

/// A chip that the guest can also emulate.
struct Chip {
    name: &'static str,
    geometry: FlashGeometry,
    modules: &'static str,
    mode: Mode,
    summary: bool,
}

fn chips() -> [Chip; 3] {
    [
        Chip {
            name: "nor",
            geometry: FlashGeometry::nor(4 << 20, 64 << 10),
            modules: "mtdram total_size=4096 erase_size=64",
            mode: Mode::Priority,
            summary: true,
        },
        Chip {
            name: "large",
            geometry: FlashGeometry::nand(16 << 20, 128 << 10, 2048, 512),
            modules: "nandsim first_id_byte=0x20 second_id_byte=0xa1 third_id_byte=0x00 \
                      fourth_id_byte=0x15 parts=128",
            mode: Mode::Size,
            summary: true,
        },
        Chip {
            name: "small",
            geometry: FlashGeometry::nand(4 << 20, 16 << 10, 512, 256),
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

/// Works on the file system; with `cut` only until that many flash operations are done.
fn work(
    chip: &Chip,
    flash: &mut FlashImage<Vec<u8>>,
    seed: u64,
    operations: u64,
    cut: Option<u64>,
) {
    let left = cut.unwrap_or(u64::MAX);
    let unit = flash.geometry().write_size.max(64) as usize;
    let flash = Cutting { flash, left, unit };
    let mut fs = match Jffs2Mut::mount(flash, &chip.options()) {
        Ok(fs) => fs,
        Err(error) => return assert!(cut.is_some(), "{error}"),
    };
    let done = churn(&mut fs, seed, operations).and_then(|()| fs.sync(None));
    assert!(cut.is_some() || done.is_ok(), "{done:?}");
}

/// What Flysch shows of it, mounted for reading and for writing; its check finds nothing.
fn shown(flash: &FlashImage<Vec<u8>>, what: &str) -> Manifest {
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

/// What Flysch shows of a copy mounted for writing.
fn shown_for_writing(chip: &Chip, flash: &FlashImage<Vec<u8>>) -> Manifest {
    let mut copy = FlashImage::new(flash.storage().clone(), chip.geometry);
    let fs = Jffs2Mut::mount(&mut copy, &chip.options()).unwrap();
    manifest::of_file_system(&fs, Detail::Whole)
}

const FUNCTIONS: &str = r#"
    modprobe jffs2
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

/// Linux mounts each image, compares, and works on it; the images come back.
fn linux_round(lab: &Lab, chip: &Chip, images: &mut [(String, FlashImage<Vec<u8>>)], seed: u64) {
    let share = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for (name, flash) in images.iter() {
        fs::write(share.path().join(format!("{name}.img")), flash.storage()).unwrap();
        expected.push(shown(flash, name));
    }
    let rounds: String = images.iter().map(|(name, _)| format!("round {name} {seed}\n")).collect();
    let script = format!("{FUNCTIONS}\nmodprobe {}\n{rounds}", chip.modules);
    crate::common::run(lab, &script, share.path());
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
        *flash = FlashImage::new(content, chip.geometry);
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
    if !wrong.is_empty() {
        crate::common::keep(share.path());
    }
    assert!(wrong.is_empty(), "{}: {wrong}", chip.name);
}

#[test]
fn linux_and_flysch_write_in_turn() {
    let Some(lab) = lab() else { return };
    for chip in chips() {
        let erased = vec![0xff; chip.geometry.size as usize];
        let mut clean = FlashImage::new(erased, chip.geometry);
        let mut images = Vec::new();
        work(&chip, &mut clean, 1, 200, None);
        for cut in [40, 90, 150, 311, 520, 777] {
            let mut flash = FlashImage::new(clean.storage().clone(), chip.geometry);
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
