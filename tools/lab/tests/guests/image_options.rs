//! Images made by the command with all its options, and edited ones, mounted by both kernels: each
//! kernel shows what Flysch shows, and the check finds nothing after it has written to them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flysch_image::{Image, ImageOpenOptions};
use flysch_lab::manifest::{self, Detail, Manifest};
use flysch_lab::{Job, Lab};
use flysch_random::SplitMix64;
use flysch_wire::ubi::crc32;

use crate::common::{FUNCTIONS, LOAD_UBIFS, call, command, complaints, labs, put_helper};
use crate::image_create::{self, Chip, LARGE, NOR, findings, judge, shown};

/// 128 MiB.
const BIG: Chip = Chip {
    name: "big",
    modules: "nandsim first_id_byte=0xec second_id_byte=0xa1 third_id_byte=0x00 \
              fourth_id_byte=0x15",
    peb_size: 128 << 10,
    pebs: 1024,
    page: 2048,
    sub_page: 512,
};

/// 32 MiB of 4 KiB pages.
const HUGE: Chip = Chip {
    name: "huge",
    modules: "nandsim first_id_byte=0x20 second_id_byte=0xa2 third_id_byte=0x00 \
              fourth_id_byte=0x26 parts=128",
    peb_size: 256 << 10,
    pebs: 128,
    page: 4096,
    sub_page: 1024,
};

/// An image: its name, chip, options, and subsequent edits. Sources are those of [`sources`].
struct Case(&'static str, &'static Chip, Made, &'static str);

enum Made {
    Ubifs(&'static str),
    Jffs2(&'static str),
    /// Big-endian, and converted by mtd-utils for Linux, which mounts only its processor's byte
    /// order. jffs2dump omits extended attributes, and puts what follows them in the wrong place.
    Turned(&'static str),
}

/// What `image edit` does to a tree.
const EDITS: &str = "\
mkdir -p /new/deep/er
put table /new
put rich/rich/many/. /new/deep
chmod -r go=rX /new
chown -R 12:60000 /new/deep
mv /rich/grown /new/deep/er/moved
ln /new/deep/er/moved /new/linked
ln -s deep/er/moved /new/soft
truncate -s 5001 /rich/size65536
truncate -s 700001 /rich/size4095
setfattr -n user.edit -v 0x00ff17 /rich/many
mknod /new/node c 4 64
touch -d 2001-02-03T04:05:06 /rich/many
chattr +S /rich/size1
rm -r /rich/renames
rm /rich/overwritten
";

const SMALL_CASES: [Case; 13] = [
    Case("none", &LARGE, Made::Ubifs("-r rich -x none -f 3 -U"), ""),
    Case("thorough", &LARGE, Made::Ubifs("-r rich -x lzo --level 9"), ""),
    Case("favour", &LARGE, Made::Ubifs("-r rich -x favor_lzo -X 5 -R 1MiB -l 6 -p 3 -j 3MiB"), ""),
    Case("tar", &LARGE, Made::Ubifs("--tar rich.tar -x zlib --level 9 -k test"), ""),
    Case("empty", &LARGE, Made::Ubifs("--whole-seconds"), ""),
    Case("fixup", &LARGE, Made::Ubifs("-r rich -F -x zstd --level 19 --all-times"), ""),
    Case("table", &LARGE, Made::Ubifs("-D table -x none -f 4"), ""),
    Case("edited", &LARGE, Made::Ubifs("-r rich -x zlib"), EDITS),
    Case("edited-fixup", &LARGE, Made::Ubifs("-r rich -F -x none"), EDITS),
    Case("huge-pages", &HUGE, Made::Ubifs("-r rich -x lzo"), EDITS),
    Case("jffs2-pages", &HUGE, Made::Jffs2("-r plain --with-xattr --summary -m size -X lzo"), ""),
    Case("jffs2-tar", &HUGE, Made::Jffs2("--tar plain.tar -U -s 4096 -x zlib -y 90:rtime"), ""),
    Case("jffs2-big-endian", &NOR, Made::Turned("-r plain"), ""),
];

const LARGE_CASES: [Case; 4] = [
    Case("many", &LARGE, Made::Ubifs("-r many -x lzo"), ""),
    Case("jffs2-many", &LARGE, Made::Jffs2("-r many"), ""),
    Case("large", &BIG, Made::Ubifs("-r large -x lzo"), ""),
    Case("jffs2-large", &BIG, Made::Jffs2("-r large -m none"), ""),
];

fn rich(folder: &Path, name: &str) {
    let tree = folder.join(name);
    fs::create_dir(&tree).unwrap();
    call(Path::new(env!("CARGO_BIN_EXE_flysch-lab-guest")), &format!("rich {name} 5"), folder);
}

/// Bytes that no method can compress.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..length).map(|_| random.bits() as u8).collect()
}

/// The sources of images: `rich`, `plain` (what JFFS2 can hold of it), archives of both, a device
/// table; `many`, a directory of 20 000 files; `large`, files of 70 MiB.
fn sources(folder: &Path, is_large: bool) {
    if is_large {
        fs::create_dir_all(folder.join("many/here")).unwrap();
        for number in 0..20_000 {
            fs::write(folder.join(format!("many/here/{number}")), number.to_string()).unwrap();
        }
        // Another directory, because otherwise JFFS2 cannot distinguish what Linux adds from what
        // mkfs.jffs2 numbers.
        fs::create_dir_all(folder.join("large/more")).unwrap();
        fs::write(folder.join("large/more/file"), "more").unwrap();
        fs::write(folder.join("large/noise"), noise(1, 70 << 20)).unwrap();
        let sparse = fs::File::create(folder.join("large/sparse")).unwrap();
        sparse.set_len(70 << 20).unwrap();
        return;
    }
    rich(folder, "rich");
    rich(folder, "plain");
    image_create::remove_what_jffs2_cannot_hold(&folder.join("plain"));
    let tar = Path::new("tar");
    call(tar, "--xattrs --xattrs-include=* --sparse --format=posix -cf rich.tar -C rich .", folder);
    call(tar, "--format=gnu -cf plain.tar -C plain .", folder);
    let table = "/dev d 755 0 0 - - - - -\n/dev/tty c 620 0 5 4 0 0 1 9\n\
                 /dev/sda b 640 0 6 8 0 1 1 300\n/run/pipe p 600 9 9 - - - - -\n";
    fs::write(folder.join("table"), table).unwrap();
}

impl Case {
    /// Makes it in `folder`, for Linux as `NAME.img`; returns what Flysch shows of it.
    fn make(&self, flysch: &Path, folder: &Path) -> Manifest {
        let Self(name, chip, made, edits) = self;
        let (peb, page) = (chip.peb_size, chip.page);
        let image = format!("{name}.img");
        match made {
            Made::Ubifs(options) => {
                let leb = peb - if chip.sub_page < page { page } else { 2 * page };
                let geometry = format!("-m {page} -e {leb} --pebs {}", chip.pebs);
                call(flysch, &format!("image create ubifs {geometry} {options} -o v"), folder);
                let ini = "[v]\nmode=ubi\nimage=v\nvol_id=0\nvol_name=v\nvol_flags=autoresize\n";
                fs::write(folder.join("ini"), ini).unwrap();
                let geometry =
                    format!("-p {peb} -m {page} -s {} --pebs {}", chip.sub_page, chip.pebs);
                call(flysch, &format!("image create ubi {geometry} -o {image} ini"), folder);
            }
            Made::Jffs2(options) => {
                let words = format!("image create jffs2 -e {peb} -n -p {options} -o {image}");
                call(flysch, &words, folder);
            }
            Made::Turned(options) => {
                let words = format!("image create jffs2 -e {peb} -b -p {options} -o turned");
                call(flysch, &words, folder);
                call(Path::new("jffs2dump"), &format!("-b -e {image} turned"), folder);
                // mtd-utils do not convert device numbers.
                return without_devices(shown(&folder.join("turned")));
            }
        }
        if !edits.is_empty() {
            fs::write(folder.join("edits"), edits).unwrap();
            let size = u64::from(peb) * u64::from(chip.pebs);
            let words = format!("image edit --flash-size {size} --script edits {image}");
            call(flysch, &words, folder);
        }
        let image = folder.join(image);
        assert_eq!(findings(&image), Vec::<String>::new(), "{name}");
        shown(&image)
    }

    /// The line that describes it to the guest.
    fn line(&self) -> String {
        let Self(name, chip, made, _) = self;
        let marker = if chip.page > 1 { "-j" } else { "" };
        match made {
            Made::Ubifs(_) => format!("ubifs {name} 7\n"),
            Made::Jffs2(_) | Made::Turned(_) => format!("jffs2 {name} 9 {marker}\n"),
        }
    }
}

fn without_devices(mut manifest: Manifest) -> Manifest {
    manifest.retain(|_, line| !line.contains(" device "));
    manifest
}

/// Runs a script that can use [`FUNCTIONS`] and those of [`image_create`]; returns its status.
fn start(lab: &Lab, script: &str, share: &Path) -> i32 {
    put_helper(share);
    let functions = [LOAD_UBIFS, FUNCTIONS, image_create::FUNCTIONS, CHIP].concat();
    let script = format!("{functions}\nuname -r\n{script}");
    let timeout = Duration::from_secs(1800);
    let done = lab.run(&Job { timeout, memory_mib: 1536, ..Job::new(&script, share) });
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    println!("{}", done.output);
    done.status
}

/// Passes all images of `cases` to Linux in one start; returns what is wrong with the results.
fn run(lab: &Lab, cases: &[Case], ours: &[Manifest], share: &Path) -> String {
    for file in fs::read_dir(share).unwrap().flatten().map(|file| file.path()) {
        if file.extension().is_some_and(|kind| kind == "txt" || kind == "out" || kind == "dmesg") {
            fs::remove_file(file).unwrap();
        }
    }
    let mut script = String::new();
    let mut there = "";
    for case in cases {
        if case.1.name != there {
            there = case.1.name;
            let _ = writeln!(script, "chip {}", case.1.modules);
        }
        script += &case.line();
    }
    let status = start(lab, &script, share);
    let mut wrong = String::new();
    for (Case(name, _, made, _), ours) in cases.iter().zip(ours) {
        if let Made::Turned(_) = made {
            let path = share.join(format!("{name}.1.txt"));
            let linux = manifest::from_text(&fs::read_to_string(&path).unwrap_or_default());
            fs::write(path, manifest::to_text(&without_devices(linux))).unwrap();
        }
        judge(share, name, ours, &mut wrong);
    }
    if status != 0 {
        let _ = writeln!(wrong, "the guest's script ended with {status}");
    }
    wrong
}

/// Shell function of the guest: replaces the chip.
const CHIP: &str = r#"
    chip() {
        [ -e /dev/mtd0 ] && { rmmod nandsim 2>/dev/null || rmmod mtdram || exit 8; }
        modprobe "$@"
    }
"#;

fn check(cases: &[Case], is_large: bool) {
    let labs = labs();
    if labs.is_empty() {
        return;
    }
    let share = tempfile::tempdir().unwrap();
    let source = tempfile::tempdir().unwrap();
    let flysch = command();
    sources(source.path(), is_large);
    let mut ours = Vec::new();
    for case in cases {
        ours.push(case.make(&flysch, source.path()));
        let name = format!("{}.img", case.0);
        fs::copy(source.path().join(&name), share.path().join(&name)).unwrap();
        fs::remove_file(source.path().join(&name)).unwrap();
    }
    let files: usize = ours.iter().map(Manifest::len).sum();
    println!("{} images, {files} files", cases.len());
    for lab in labs {
        let wrong = run(&lab, cases, &ours, share.path());
        if !wrong.is_empty() {
            crate::common::keep(share.path());
        }
        assert!(wrong.is_empty(), "{:?}: {wrong}", lab.kernel());
    }
}

#[test]
fn both_kernels_mount_what_every_option_makes() {
    check(&SMALL_CASES, false);
}

#[test]
fn both_kernels_mount_large_files_and_directories() {
    check(&LARGE_CASES, true);
}

/// A static volume, one of a given size, and one that grows over the rest of the chip.
const VOLUMES: &str = "\
[kernel]
mode=ubi
image=kernel
vol_id=0
vol_name=kernel
vol_type=static
vol_flags=skip-check
[rootfs]
mode=ubi
image=v
vol_id=3
vol_name=rootfs
vol_size=8MiB
[data]
mode=ubi
image=v
vol_id=1
vol_name=data
vol_flags=autoresize
";

const ATTACH_VOLUMES: &str = r#"
    dmesg -C
    ubiformat -q -y /dev/mtd0 -f volumes.img
    ubiattach -m 0 -d 0 >/dev/null || exit 5
    for id in 0 1 3; do cat /sys/class/ubi/ubi0_$id/reserved_ebs; done >sizes
    cat /sys/class/ubi/ubi0/avail_eraseblocks >>sizes
    cat /dev/ubi0_0 >kernel.out
    for name in rootfs data; do
        mount -t ubifs ubi0:$name /mnt && work $name 7 ubifs ubi0:$name
    done
    ubidetach -m 0
    dmesg >volumes.dmesg
    save volumes.out
    dmesg -C
    ubiformat -q -y /dev/mtd0 -f two.img
    ubiattach -m 0 -d 0 >/dev/null 2>&1 && exit 6
    dmesg >two.dmesg
"#;

/// What Flysch shows of a volume.
fn shown_volume(path: &Path, name: &str) -> Manifest {
    let image =
        Image::open(path, &ImageOpenOptions { no_oob: true, ..ImageOpenOptions::default() })
            .unwrap();
    let mut volumes = image.volumes();
    let fs = volumes.find(|volume| volume.name == name).and_then(|volume| volume.file_system());
    manifest::of_file_system(&*fs.expect("a file system"), Detail::Whole)
}

/// Linux's UBI gives free blocks to one volume, and refuses to attach if two ask for them
/// (`init_volumes` of `vtbl.c`): making such images is refused.
#[test]
fn both_kernels_let_one_volume_grow_and_refuse_two() {
    let share = tempfile::tempdir().unwrap();
    let share = share.path();
    let flysch = command();
    let labs = labs();
    if labs.is_empty() {
        return;
    }
    rich(share, "rich");
    let kernel = noise(5, 300_004);
    fs::write(share.join("kernel"), &kernel).unwrap();
    fs::write(share.join("ini"), VOLUMES).unwrap();
    call(&flysch, "image create ubifs -m 2048 -e 129024 -c 200 -r rich -o v", share);
    let geometry = "image create ubi -p 128KiB -m 2048 -s 512";
    call(&flysch, &format!("{geometry} -o volumes.img ini"), share);
    fs::write(share.join("two"), VOLUMES.replace("8MiB", "8MiB\nvol_flags=autoresize")).unwrap();
    let words = format!("{geometry} -o two.img two");
    let refused = Command::new(&flysch).args(words.split(' ')).current_dir(share).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("Linux attaches no flash"), "{said}");
    fs::write(share.join("two.img"), with_two_that_grow(&share.join("volumes.img"))).unwrap();
    let ours = shown_volume(&share.join("volumes.img"), "data");
    for lab in labs {
        let status = start(&lab, &format!("chip {}\n{ATTACH_VOLUMES}", LARGE.modules), share);
        assert_eq!(status, 0, "{:?}", lab.kernel());
        let read = |name: &str| fs::read_to_string(share.join(name)).unwrap();
        let sizes: Vec<u32> = read("sizes").lines().map(|line| line.parse().unwrap()).collect();
        // All but the volume table, UBI's working blocks, and a reserve for bad blocks that is
        // computed from the whole chip, twice the partition.
        let all = flysch_ubi::create::lebs_on_chip(2 * LARGE.pebs) - LARGE.pebs;
        assert_eq!(sizes, [3, all - 3 - 66, 66, 0], "{:?}", lab.kernel());
        assert!(fs::read(share.join("kernel.out")).unwrap() == kernel);
        assert_eq!(complaints(&read("volumes.dmesg")), Vec::<&str>::new());
        let left = share.join("volumes.out");
        assert_eq!(findings(&left), Vec::<String>::new());
        for name in ["rootfs", "data"] {
            let linux = |part: u32| manifest::from_text(&read(&format!("{name}.{part}.txt")));
            assert_eq!(manifest::differences(&linux(1), &ours), Vec::<String>::new(), "{name}");
            let back = shown_volume(&left, name);
            assert_eq!(manifest::differences(&linux(2), &back), Vec::<String>::new(), "{name}");
        }
        let said = read("two.dmesg");
        assert!(said.contains("more than one auto-resize volume"), "{said}");
    }
}

/// The image with the flag set on a second volume, in both copies of the table.
fn with_two_that_grow(path: &Path) -> Vec<u8> {
    /// Size of a record, offset of its flags and of its checksum (ubi-media.h).
    const RECORD: usize = 172;
    const FLAGS: usize = 144;
    const SUM: usize = 168;
    let mut image = fs::read(path).unwrap();
    for block in 0..2 {
        let record = block * LARGE.peb_size as usize + 2048 + 3 * RECORD;
        image[record + FLAGS] = 1;
        let sum = crc32(&image[record..record + SUM]);
        image[record + SUM..record + RECORD].copy_from_slice(&sum.to_be_bytes());
    }
    image
}
