//! Images made by `flysch image create`, flashed and mounted by Linux with all its checks on: Linux
//! shows what Flysch shows, the kernel does not complain, and after Linux has written to them
//! Flysch still shows what Linux shows.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use crate::common::{complaints, lab};
use flysch_api::finding::Severity;
use flysch_image::create::{
    Making, Tree, TreeOptions, UbiPlan, UbifsOptions, XattrChoice, create_jffs2, create_ubifs,
};
use flysch_image::{Image, ImageOpenOptions};
use flysch_jffs2::create::Jffs2Options;
use flysch_lab::manifest::{self, Detail, Manifest};
use flysch_ubi::create::{ImageOptions, lebs_on_chip};
use flysch_ubifs::create::{CreateOptions, Packing};
use flysch_wire::jffs2::ByteOrder;
use flysch_wire::ubifs::{Compression, KeyHash};

/// A chip that the guest can emulate.
pub(crate) struct Chip {
    pub(crate) name: &'static str,
    pub(crate) modules: &'static str,
    pub(crate) peb_size: u32,
    pub(crate) pebs: u32,
    pub(crate) page: u32,
    pub(crate) sub_page: u32,
}

pub(crate) const LARGE: Chip = Chip {
    name: "large",
    modules: "nandsim first_id_byte=0x20 second_id_byte=0xa2 third_id_byte=0x00 \
              fourth_id_byte=0x15 parts=256",
    peb_size: 128 << 10,
    pebs: 256,
    page: 2048,
    sub_page: 512,
};

const SMALL: Chip = Chip {
    name: "small",
    modules: "nandsim first_id_byte=0x20 second_id_byte=0x33 parts=1024",
    peb_size: 16 << 10,
    pebs: 1024,
    page: 512,
    sub_page: 256,
};

pub(crate) const NOR: Chip = Chip {
    name: "nor",
    modules: "mtdram total_size=16384 erase_size=64",
    peb_size: 64 << 10,
    pebs: 256,
    page: 1,
    sub_page: 1,
};

pub(crate) const FUNCTIONS: &str = r#"
    check_ubifs
    modprobe jffs2
    # work NAME SEED: what Linux shows of what is mounted, and again after it has written.
    work() { # NAME SEED TYPE SOURCE
        $guest manifest /mnt > $1.1.txt
        mkdir -p /mnt/linux
        $guest work /mnt/linux $2 /nowhere 60 || true
        rm -rf /mnt/rich/many 2>/dev/null || true
        # What is on the flash: before, Linux shows times that are not.
        umount /mnt; mount -t $3 $4 /mnt
        $guest manifest /mnt > $1.2.txt
        umount /mnt
    }
    ubifs() {
        dmesg -C
        ubiformat -q -y /dev/mtd0 -f $1.img
        ubiattach -m 0 -d 0 >/dev/null
        mount -t ubifs ubi0_0 /mnt && work $1 $2 ubifs ubi0_0
        ubidetach -m 0
        dmesg > $1.dmesg
        save $1.out
    }
    jffs2() {
        dmesg -C
        flash_erase -q $3 /dev/mtd0 0 0
        case $(cat /sys/class/mtd/mtd0/type) in
            nand) nandwrite -q -p /dev/mtd0 $1.img ;;
            *) dd if=$1.img of=/dev/mtd0 bs=64k status=none ;;
        esac
        mount -t jffs2 mtd0 /mnt && work $1 $2 jffs2 mtd0
        dmesg > $1.dmesg
        save $1.out
    }
"#;

/// What Flysch shows of the first file system in an image.
pub(crate) fn shown(path: &Path) -> Manifest {
    let image =
        Image::open(path, &ImageOpenOptions { no_oob: true, ..ImageOpenOptions::default() })
            .unwrap();
    let volume = image.volumes().find(|volume| volume.file_system().is_some());
    let fs = volume.and_then(|volume| volume.file_system()).expect("a file system");
    manifest::of_file_system(&*fs, Detail::Whole)
}

/// The findings of the check.
pub(crate) fn findings(path: &Path) -> Vec<String> {
    let image =
        Image::open(path, &ImageOpenOptions { no_oob: true, ..ImageOpenOptions::default() })
            .unwrap();
    let mut found = Vec::new();
    flysch_image::check(&image, &mut |checked| {
        if checked.finding.severity > Severity::Note {
            found.push(checked.finding.to_string());
        }
    });
    found
}

/// A UBI image with one UBIFS on the whole chip.
fn make_ubifs(chip: &Chip, tree: &Tree, compression: Compression, to: &Path) {
    let options = ImageOptions {
        peb_size: chip.peb_size,
        min_io_size: chip.page,
        sub_page_size: Some(chip.sub_page),
        vid_header_offset: None,
        erase_counter: 0,
        image_sequence: 0,
    };
    let leb_size = options.leb_size().unwrap();
    let usual = CreateOptions::new(chip.page, leb_size, lebs_on_chip(chip.pebs));
    let format = CreateOptions {
        compression,
        key_hash: if compression == Compression::Zlib { KeyHash::Test } else { KeyHash::R5 },
        space_fixup: compression == Compression::Zstd,
        ..usual
    };
    let making = Making::default();
    let volume = to.with_extension("ubifs");
    let out = File::create(&volume).unwrap();
    let options_ubifs = UbifsOptions {
        format,
        packing: Packing::new(compression),
        threads: 0,
        keys: None,
        signer: None,
        policy: None,
    };
    create_ubifs(tree, &options_ubifs, &out, &making).unwrap();
    let ini = format!(
        "[v]\nmode=ubi\nimage={}\nvol_id=0\nvol_name=v\nvol_flags=autoresize\n",
        volume.display()
    );
    let plan = UbiPlan::new(("ini", &ini), options, None).unwrap();
    plan.check_chip(chip.pebs).unwrap();
    plan.write(&mut File::create(to).unwrap(), &making).unwrap();
}

fn make_jffs2(chip: &Chip, tree: &Tree, summary: bool, to: &Path) {
    let options = Jffs2Options {
        order: ByteOrder::Little,
        erase_size: chip.peb_size,
        cleanmarker_len: if chip.page > 1 { 0 } else { 12 },
        padding: flysch_jffs2::create::Padding::Block,
        summary,
        ..Jffs2Options::default()
    };
    let choice = XattrChoice { all: true, ..XattrChoice::default() };
    let mut out = File::create(to).unwrap();
    create_jffs2(tree, (options, choice), &mut out, &Making::default()).unwrap();
    out.flush().unwrap();
}

/// Compares what Linux showed of an image, and what it left there, with what Flysch shows.
pub(crate) fn judge(share: &Path, name: &str, ours: &Manifest, wrong: &mut String) {
    let read = |end: &str| fs::read_to_string(share.join(format!("{name}.{end}")));
    let log = read("dmesg").unwrap();
    let bad = complaints(&log);
    if !bad.is_empty() {
        let _ = writeln!(wrong, "{name}: Linux complains: {bad:#?}");
    }
    let (Ok(first), Ok(second)) = (read("1.txt"), read("2.txt")) else {
        let _ = writeln!(wrong, "{name}: Linux does not mount it: {log}");
        return;
    };
    let first = manifest::differences(&manifest::from_text(&first), ours);
    let left = share.join(format!("{name}.out"));
    let second = manifest::differences(&manifest::from_text(&second), &shown(&left));
    wrong.extend(findings(&left).into_iter().map(|finding| format!("{name}: {finding}\n")));
    for (when, differences) in [("before Linux wrote", first), ("after", second)] {
        if !differences.is_empty() {
            let few = &differences[..differences.len().min(5)];
            let _ = writeln!(wrong, "{name}: {} differences {when}: {few:#?}", differences.len());
        }
    }
}

/// Removes names and targets of more than 254 bytes, and owners above 65535.
pub(crate) fn remove_what_jffs2_cannot_hold(folder: &Path) {
    use std::os::unix::fs::MetadataExt;
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let long_target = metadata.is_symlink() && metadata.len() > 254;
        let owners = metadata.uid().max(metadata.gid()) > 0xffff;
        if entry.file_name().len() > 254 || long_target || owners {
            match metadata.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        } else if metadata.is_dir() {
            remove_what_jffs2_cannot_hold(&path);
        }
    }
}

/// Makes images for a chip, passes them to Linux, and judges.
fn run(chip: &Chip, compressions: &[Compression], summary: bool) {
    let Some(lab) = lab() else { return };
    let source = tempfile::tempdir().unwrap();
    let worker = env!("CARGO_BIN_EXE_flysch-lab-guest");
    let made = std::process::Command::new(worker)
        .args(["rich".as_ref(), source.path().as_os_str(), "5".as_ref()])
        .status()
        .unwrap();
    assert!(made.success());
    let tree = || Tree::from_directory(source.path(), &TreeOptions::default()).unwrap();
    let share = tempfile::tempdir().unwrap();
    let mut script = format!("{FUNCTIONS}\nmodprobe {}\n", chip.modules);
    let mut images = Vec::new();
    for compression in compressions {
        let name = format!("ubifs-{compression:?}");
        let path = share.path().join(format!("{name}.img"));
        make_ubifs(chip, &tree(), *compression, &path);
        let _ = writeln!(script, "ubifs {name} 7");
        images.push((name, shown(&path)));
    }
    remove_what_jffs2_cannot_hold(source.path());
    let path = share.path().join("jffs2.img");
    make_jffs2(chip, &tree(), summary, &path);
    let marker = if chip.page > 1 { "-j" } else { "" };
    let _ = writeln!(script, "jffs2 jffs2 9 {marker}");
    images.push(("jffs2".to_string(), shown(&path)));
    crate::common::run(&lab, &script, share.path());
    let files: usize = images.iter().map(|(_, shown)| shown.len()).sum();
    println!("{}: {} images, {files} files", chip.name, images.len());
    let mut wrong = String::new();
    for (name, ours) in &images {
        judge(share.path(), name, ours, &mut wrong);
    }
    if !wrong.is_empty() {
        crate::common::keep(share.path());
    }
    assert!(wrong.is_empty(), "{}: {wrong}", chip.name);
}

#[test]
fn linux_mounts_what_is_made_for_large_pages() {
    run(&LARGE, &[Compression::Lzo, Compression::Zlib], true);
}

#[test]
fn linux_mounts_what_is_made_for_small_pages() {
    run(&SMALL, &[Compression::Zstd], false);
}

#[test]
fn linux_mounts_what_is_made_for_nor() {
    run(&NOR, &[Compression::None, Compression::Zstd], true);
}
