//! UBIFS that Flysch wrote, clean and cut, mounted and written by Linux, and back again.
//!
//! The kernel's own checks (`/sys/kernel/debug/ubifs/chk_*`) are on: after each commit it holds
//! index, LEB properties, orphans and files against each other and complains in its log.

mod churn;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use churn::{Cutting, churn, now, tree};
use flysch_api::flash::Geometry;
use flysch_api::vfs::{
    DeviceNumber, Error as FsError, FileKind, FileSystem, FileSystemMut, Inode, NewFile, Severity,
};
use flysch_api::volume::VolumeMut;
use flysch_lab::manifest::{self, Detail, Manifest};
use flysch_lab::{Error, Job, Lab};
use flysch_mtd::Image;
use flysch_ubi::{Device, DeviceOptions, FormatOptions, NewVolume};
use flysch_ubifs::create::{self, CreateOptions, NewInode};
use flysch_ubifs::{Options, Ubifs, UbifsMut};
use flysch_wire::ubifs::{Compression, KeyHash};

/// A chip that the guest can have, too.
struct Chip {
    name: &'static str,
    geometry: Geometry,
    modules: &'static str,
    compression: Compression,
    hash: KeyHash,
}

fn chips() -> [Chip; 3] {
    [
        Chip {
            name: "large",
            geometry: Geometry::nand(16 << 20, 128 << 10, 2048, 512),
            modules: "nandsim first_id_byte=0x20 second_id_byte=0xa1 third_id_byte=0x00 \
                      fourth_id_byte=0x15 parts=128",
            compression: Compression::Lzo,
            hash: KeyHash::R5,
        },
        Chip {
            name: "small",
            geometry: Geometry::nand(4 << 20, 16 << 10, 512, 256),
            modules: "nandsim first_id_byte=0x98 second_id_byte=0x73 parts=256",
            compression: Compression::Zlib,
            hash: KeyHash::R5,
        },
        Chip {
            name: "nor",
            geometry: Geometry::nor(4 << 20, 64 << 10),
            modules: "mtdram total_size=4096 erase_size=64",
            compression: Compression::Zstd,
            // The first four bytes of a name: most names here have the same.
            hash: KeyHash::Test,
        },
    ]
}

/// A flash with an empty UBIFS.
fn made(chip: &Chip) -> Image<Vec<u8>> {
    let erased = vec![0xff; chip.geometry.size as usize];
    let mut flash = Image::new(erased, chip.geometry);
    let options = DeviceOptions::default();
    Device::format(&mut flash, &FormatOptions::new(0x5eed), &options).unwrap();
    let mut device = Device::attach(&mut flash, &options).unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"v", lebs)).unwrap();
    let min_io = device.write_size().max(8);
    let leb_size = device.leb_size();
    let volume = device.volume_mut(id).unwrap();
    let options = CreateOptions {
        compression: chip.compression,
        key_hash: chip.hash,
        ..CreateOptions::new(min_io, leb_size, lebs)
    };
    create::format(volume, &options, &NewInode::directory(now(0))).unwrap();
    device.detach().unwrap();
    flash
}

/// Fills the file system, makes holes and fills those; until `cut`.
fn fill<V: VolumeMut>(fs: &mut UbifsMut<V>) -> Result<(), FsError> {
    let data: Vec<u8> = (0..70_000_u32).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
    for round in 0..4 {
        for number in 0.. {
            let name = format!("full {round} {number}");
            let new = NewFile {
                kind: FileKind::Regular,
                permissions: 0o600,
                owner: 0,
                group: 0,
                device: DeviceNumber::default(),
                target: b"",
            };
            let length = 1 + number * 3001 % data.len();
            let written = fs
                .create(Inode(1), name.as_bytes(), &new, now(number as i64))
                .and_then(|file| fs.write(file, 0, &data[..length], now(number as i64)));
            match written {
                Ok(written) if written == length => {}
                Ok(_) | Err(FsError::NoSpace) => break,
                Err(error) => return Err(error),
            }
        }
        let (_, files) = tree(fs);
        for (parent, name, inode) in files.into_iter().skip(round).step_by(3) {
            match fs.remove(parent, &name, now(9)) {
                Ok(()) => fs.forget(inode)?,
                Err(FsError::NotEmpty) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Works on the file system; `cut`: until so many flash operations are done.
fn work(flash: &mut Image<Vec<u8>>, seed: u64, operations: u64, cut: Option<u64>) {
    live(flash, cut, |fs| churn(fs, seed, operations));
}

type OnFlash<'d, 'f> = UbifsMut<flysch_ubi::DeviceVolume<&'d mut Device<Cutting<'f>>, Cutting<'f>>>;

fn live(
    flash: &mut Image<Vec<u8>>,
    cut: Option<u64>,
    life: impl for<'d, 'f> FnOnce(&mut OnFlash<'d, 'f>) -> Result<(), FsError>,
) {
    let left = cut.unwrap_or(u64::MAX);
    let flash = Cutting { flash, left };
    let Ok(mut device) = Device::attach(flash, &DeviceOptions::default()) else {
        assert!(cut.is_some());
        return;
    };
    let Ok(volume) = device.volume_mut(0) else { return };
    let mut fs = match UbifsMut::open(volume) {
        Ok(fs) => fs,
        Err(error) => return assert!(cut.is_some(), "{error}"),
    };
    let done = life(&mut fs).and_then(|()| fs.close().map(|_| ()));
    assert!(cut.is_some() || done.is_ok(), "{done:?}");
    if cut.is_none() {
        device.detach().unwrap();
    }
}

/// What Flysch shows of it, reading; its check finds nothing.
fn shown(flash: &mut Image<Vec<u8>>, what: &str) -> Manifest {
    let mut device = Device::attach(flash, &DeviceOptions::default()).unwrap();
    let volume = device.volume_mut(0).unwrap();
    let fs = Ubifs::open(&volume, &Options::default()).unwrap();
    let unclean = fs.is_unclean();
    let wrong: Vec<_> = fs.check().into_iter().filter(|it| it.severity != Severity::Note).collect();
    assert!(unclean || wrong.is_empty(), "{what}: {wrong:#?}");
    manifest::of_file_system(&fs, Detail::Whole)
}

/// Blocks in all and left, as the mounted file system tells them.
fn space(mut flash: Image<Vec<u8>>) -> String {
    let mut device = Device::attach(&mut flash, &DeviceOptions::default()).unwrap();
    let fs = UbifsMut::open(device.volume_mut(0).unwrap()).unwrap();
    let all = fs.statistics();
    format!("{} {}", all.blocks, all.blocks_free)
}

/// What a mebibyte takes in writes of 16 bytes, and in one.
#[test]
fn small_writes_take_what_linux_takes() {
    let Some(lab) = lab() else { return };
    let [chip, ..] = chips();
    let chip = Chip { compression: Compression::None, ..chip };
    let share = tempfile::tempdir().unwrap();
    let mut flash = made(&chip);
    fs::write(share.path().join("a.img"), flash.storage()).unwrap();
    let script = format!(
        "modprobe {}
        load a.img; ubiattach -m 0 -d 0 >/dev/null; mount -t ubifs ubi0_0 /mnt
        stat -f -c '%b %f' /mnt > 0
        dd if=/dev/urandom of=/tmp/data bs=1M count=1 status=none
        dd if=/tmp/data of=/mnt/a bs=16 status=none; sync; stat -f -c '%b %f' /mnt > 1
        cp /tmp/data /mnt/b; sync; stat -f -c '%b %f' /mnt > 2",
        chip.modules
    );
    run(&lab, &script, share.path());
    let linux = ["0", "1", "2"].map(|name| fs::read_to_string(share.path().join(name)).unwrap());
    let mut ours = vec![space(flash.clone())];
    live(&mut flash, None, |fs| {
        let new = NewFile {
            kind: FileKind::Regular,
            permissions: 0o600,
            owner: 0,
            group: 0,
            device: DeviceNumber::default(),
            target: b"",
        };
        for (name, size) in [(b"a", 16), (b"b", 1 << 20)] {
            let file = fs.create(Inode(1), name, &new, now(1))?;
            for part in 0..(1 << 20) / size {
                assert_eq!(
                    fs.write(file, part * size, &vec![7; size as usize], now(1))?,
                    size as usize
                );
            }
            fs.sync(None)?;
            let all = fs.statistics();
            ours.push(format!("{} {}", all.blocks, all.blocks_free));
        }
        Ok(())
    });
    println!("blocks in all, left: Flysch {ours:?}, Linux {linux:?}");
    for (ours, linux) in ours.iter().zip(&linux) {
        assert_eq!(ours, linux.trim());
    }
}

const FUNCTIONS: &str = r#"
    guest=/share/flysch-lab-guest
    mount -t debugfs debug /sys/kernel/debug
    modprobe ubifs
    for check in general index orphans lprops fs; do
        echo 1 > /sys/kernel/debug/ubifs/chk_$check
        [ "$(cat /sys/kernel/debug/ubifs/chk_$check)" = 1 ] || exit 9
    done
    load() {
        flash_erase -q /dev/mtd0 0 0
        case $(cat /sys/class/mtd/mtd0/type) in
            nand) nandwrite -q /dev/mtd0 "$1" ;;
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
        ubiattach -m 0 -d 0 >/dev/null
        if mount -t ubifs ubi0_0 /mnt; then
            stat -f -c '%b %f' /mnt > $1.space
            $guest manifest /mnt > $1.1.txt
            mkdir -p /mnt/linux
            $guest work /mnt/linux $2 /nowhere 40 || true
            rm -rf /mnt/linux/*3* 2>/dev/null || true
            sync
            $guest manifest /mnt > $1.2.txt
            umount /mnt
        fi
        ubidetach -m 0
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

fn complaints(log: &str) -> Vec<&str> {
    let bad = |line: &&str| {
        line.contains("UBIFS error") || line.contains("UBIFS assert") || line.contains("Call Trace")
    };
    log.lines().filter(bad).collect()
}

/// Linux mounts each image, compares, works on; the images come back.
fn linux_round(lab: &Lab, chip: &Chip, images: &mut [(String, Image<Vec<u8>>)], seed: u64) {
    let keep = std::env::var_os("FLYSCH_LAB_KEEP");
    let share = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for (name, flash) in images.iter_mut() {
        fs::write(share.path().join(format!("{name}.img")), flash.storage()).unwrap();
        expected.push((shown(flash, name), space(flash.clone())));
    }
    let rounds: String = images.iter().map(|(name, _)| format!("round {name} {seed}\n")).collect();
    run(lab, &format!("modprobe {}\n{rounds}", chip.modules), share.path());
    let mut wrong = String::new();
    for ((name, flash), (expected, space)) in images.iter_mut().zip(expected) {
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
        let linux_space = read("space").unwrap();
        if !name.starts_with("cut") && linux_space.trim() != space {
            let _ = writeln!(wrong, "{name}: blocks {space}, Linux says {linux_space}");
        }
        let content = fs::read(share.path().join(format!("{name}.out"))).unwrap();
        *flash = Image::new(content, chip.geometry);
        let different = difference(&shown(flash, name), &manifest::from_text(&second));
        if !different.is_empty() {
            let _ = writeln!(wrong, "{name}: after Linux wrote:\n{different}");
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
    let wanted = std::env::var("FLYSCH_LAB_CHIP").ok();
    for chip in chips() {
        if wanted.as_ref().is_some_and(|wanted| wanted != chip.name) {
            continue;
        }
        let started = Instant::now();
        let mut images = Vec::new();
        let mut clean = made(&chip);
        work(&mut clean, 1, 250, None);
        for cut in [150, 520, 1100] {
            let mut flash = clean.clone();
            work(&mut flash, cut, 400, Some(cut));
            images.push((format!("cut{cut}"), flash));
        }
        for cut in [None, Some(3000), Some(4003), Some(5005)] {
            let mut flash = clean.clone();
            // For a volume of any lifetime, which the function's own name is not.
            #[allow(clippy::redundant_closure, reason = "without it the lifetimes do not fit")]
            live(&mut flash, cut, |fs| fill(fs));
            images.push((cut.map_or("full".into(), |cut| format!("cut{cut}full")), flash));
        }
        images.push((String::from("clean"), clean));
        println!("{}: made in {} ms", chip.name, started.elapsed().as_millis());
        for round in 0..2 {
            linux_round(&lab, &chip, &mut images, 10 + round);
            for (name, flash) in &mut images {
                let cut = (round == 0 && name.starts_with("cut")).then_some(400);
                work(flash, 20 + round, 150, cut);
            }
        }
        println!("{}: {} images, twice each way", chip.name, images.len());
    }
}
