//! UBIFS written by Flysch, clean and cut, mounted and written by Linux, and back again.
//!
//! The kernel's own checks (`/sys/kernel/debug/ubifs/chk_*`) are on: after each commit it compares
//! index, LEB properties, orphans and files with each other and reports differences in its log.

use std::fmt::Write as _;
use std::fs;

use crate::churn::{churn, now, tree};
use crate::common::cutting::Cutting;
use crate::common::{AUTH_KEY, KEYS, complaints, difference, lab};
use flysch_api::finding::Severity;
use flysch_api::flash::{Flash, FlashGeometry};
use flysch_api::vfs::{DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, Inode, NewFile};
use flysch_api::volume::VolumeMut;
use flysch_lab::Lab;
use flysch_lab::manifest::{self, Detail, Manifest};
use flysch_mtd::FlashImage;
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, UbiDevice};
use flysch_ubifs::create::{self, CreateOptions, NewInode};
use flysch_ubifs::{CipherMode, HashAlgorithm, OpenOptions, Policy, Ubifs, UbifsMut};
use flysch_wire::ubifs::{Compression, KeyHash};

/// A chip that the guest can also emulate.
struct Chip {
    name: &'static str,
    geometry: FlashGeometry,
    modules: &'static str,
    compression: Compression,
    hash: KeyHash,
    /// Whether both keep a fastmap.
    fastmap: bool,
    /// Whether it is authenticated, and all its content encrypted.
    sealed: bool,
}

impl Chip {
    fn options(&self) -> DeviceOptions {
        DeviceOptions { fastmap: self.fastmap, ..DeviceOptions::default() }
    }

    fn keys(&self) -> OpenOptions {
        let keys = self.sealed.then(|| crate::common::keys().into());
        OpenOptions { keys, ..OpenOptions::default() }
    }
}

fn chips() -> [Chip; 3] {
    [
        Chip {
            name: "large",
            geometry: FlashGeometry::nand(16 << 20, 128 << 10, 2048, 512),
            modules: "nandsim first_id_byte=0x20 second_id_byte=0xa1 third_id_byte=0x00 \
                      fourth_id_byte=0x15 parts=128",
            compression: Compression::Lzo,
            hash: KeyHash::R5,
            fastmap: false,
            sealed: false,
        },
        Chip {
            name: "small",
            geometry: FlashGeometry::nand(4 << 20, 16 << 10, 512, 256),
            modules: "nandsim first_id_byte=0x98 second_id_byte=0x73 parts=256",
            compression: Compression::Zlib,
            hash: KeyHash::R5,
            fastmap: false,
            sealed: false,
        },
        Chip {
            name: "nor",
            geometry: FlashGeometry::nor(4 << 20, 64 << 10),
            modules: "mtdram total_size=4096 erase_size=64",
            compression: Compression::Zstd,
            // The first four bytes of a name: most names here share them.
            hash: KeyHash::Test,
            fastmap: false,
            sealed: false,
        },
    ]
}

/// A flash with an empty UBIFS.
fn made(chip: &Chip) -> FlashImage<Vec<u8>> {
    let erased = vec![0xff; chip.geometry.size as usize];
    let mut flash = FlashImage::new(erased, chip.geometry);
    let options = chip.options();
    UbiDevice::format(&mut flash, &FormatOptions::new(0x5eed), &options).unwrap();
    let mut device = UbiDevice::attach(&mut flash, &options).unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"v", lebs)).unwrap();
    let min_io = device.write_size().max(8);
    let leb_size = device.leb_size();
    let volume = device.volume_mut(id).unwrap();
    let options = CreateOptions {
        compression: chip.compression,
        key_hash: chip.hash,
        authentication: chip.sealed.then_some(HashAlgorithm::Sha256),
        ..CreateOptions::new(min_io, leb_size, lebs)
    };
    let root = NewInode::directory(now(0));
    if chip.sealed {
        let keys = crate::common::keys();
        let key = keys.auth.as_ref().unwrap();
        create::format_authenticated(volume, (&options, key), &root).unwrap();
        device.detach().unwrap();
        let name = keys.masters[0].identifier();
        let policy = Policy::new(name, CipherMode::Aes256Xts, 32).unwrap();
        live(chip, &mut flash, None, |fs| fs.encrypt(Inode(1), &policy, now(0)));
    } else {
        create::format(volume, &options, &root).unwrap();
        device.detach().unwrap();
    }
    flash
}

/// Fills the file system, makes holes and fills those; until `cut`.
///
/// With the test hash two names share a key, but never three: Linux's replay cannot tell the moved
/// ones of three names apart (docs/ubifs.md, "What Linux gets wrong").
fn fill<V: VolumeMut>(fs: &mut UbifsMut<V>) -> Result<(), FsError> {
    let data: Vec<u8> = (0..70_000_u32).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
    for round in 0..4 {
        for number in 0.. {
            let name = format!("{round}{:03} full {number}", number / 2);
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

/// Works on the file system; with `cut` only until that many flash operations are done.
fn work(
    chip: &Chip,
    flash: &mut FlashImage<Vec<u8>>,
    seed: u64,
    operations: u64,
    cut: Option<u64>,
) {
    live(chip, flash, cut, |fs| churn(fs, seed, operations));
}

type OnFlash<'d, 'f> =
    UbifsMut<flysch_ubi::DeviceVolume<&'d mut UbiDevice<Cutting<'f>>, Cutting<'f>>>;

fn live(
    chip: &Chip,
    flash: &mut FlashImage<Vec<u8>>,
    cut: Option<u64>,
    life: impl for<'d, 'f> FnOnce(&mut OnFlash<'d, 'f>) -> Result<(), FsError>,
) {
    let left = cut.unwrap_or(u64::MAX);
    let unit = flash.geometry().write_size.max(64) as usize;
    let flash = Cutting { flash, left, unit };
    let Ok(mut device) = UbiDevice::attach(flash, &chip.options()) else {
        assert!(cut.is_some());
        return;
    };
    let Ok(volume) = device.volume_mut(0) else { return };
    let mut fs = match UbifsMut::open_with(volume, &chip.keys()) {
        Ok(fs) => fs,
        Err(error) => return assert!(cut.is_some(), "{error}"),
    };
    let done = life(&mut fs).and_then(|()| fs.close().map(|_| ()));
    assert!(cut.is_some() || done.is_ok(), "{done:?}");
    if cut.is_none() {
        device.detach().unwrap();
    }
}

/// What Flysch shows of it when reading; its check finds nothing.
fn shown(chip: &Chip, flash: &mut FlashImage<Vec<u8>>, what: &str) -> Manifest {
    let mut device = UbiDevice::attach(flash, &chip.options()).unwrap();
    let volume = device.volume_mut(0).unwrap();
    let fs = Ubifs::open(&volume, &chip.keys()).unwrap();
    let unclean = fs.is_unclean();
    let wrong: Vec<_> = fs.check().into_iter().filter(|it| it.severity != Severity::Note).collect();
    assert!(unclean || wrong.is_empty(), "{what}: {wrong:#?}");
    manifest::of_file_system(&fs, Detail::Whole)
}

/// Total and free blocks, as reported by the mounted file system.
fn space(chip: &Chip, mut flash: FlashImage<Vec<u8>>) -> String {
    let mut device = UbiDevice::attach(&mut flash, &chip.options()).unwrap();
    let fs = UbifsMut::open_with(device.volume_mut(0).unwrap(), &chip.keys()).unwrap();
    let all = fs.statistics();
    format!("{} {}", all.blocks, all.blocks_free)
}

/// The space that a mebibyte takes, in writes of 16 bytes and in a single write.
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
    crate::common::run(&lab, &format!("{FUNCTIONS}\n{script}"), share.path());
    let linux = ["0", "1", "2"].map(|name| fs::read_to_string(share.path().join(name)).unwrap());
    let mut ours = vec![space(&chip, flash.clone())];
    live(&chip, &mut flash, None, |fs| {
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
    check_ubifs
    # round NAME SEED: what Linux shows, what it shows after work of its own, the flash then.
    round() {
        load $1.img
        dmesg -C
        ubiattach -m 0 -d 0 >/dev/null
        if attach; then
            stat -f -c '%b %f' /mnt > $1.space
            $guest manifest /mnt > $1.1.txt
            mkdir -p /mnt/linux
            $guest work /mnt/linux $2 /nowhere 40 || true
            rm -rf /mnt/linux/*3* 2>/dev/null || true
            # What is on the flash: of exchanged files Linux shows a change time that is not.
            umount /mnt; attach
            $guest manifest /mnt > $1.2.txt
            umount /mnt
        fi
        ubidetach -m 0
        dmesg > $1.dmesg
        save $1.out
    }
"#;

/// What Linux complains about in a flash, except a torn node of the master area or the log that it
/// reports and recovers: where such a node is not expected, it also says that scanning the LEB
/// failed.
fn unexpected<'l>(name: &str, log: &'l str) -> Vec<&'l str> {
    let is_recovered = ["recovered master node from LEB", "recovery completed"];
    let is_recovered = is_recovered.iter().any(|text| log.contains(text));
    let is_expected = name.starts_with("cut") && is_recovered && !log.contains("scanning failed");
    let is_torn = |line: &str| is_expected && line.ends_with("ubifs_scan [ubifs]: bad node");
    complaints(log).into_iter().filter(|line| !is_torn(line)).collect()
}

type Images = Vec<(String, FlashImage<Vec<u8>>)>;

/// Linux mounts each image, compares, and works on it; the images come back. Returns how many it
/// attached by their fastmaps.
fn linux_round(lab: &Lab, chip: &Chip, has_fastmap: bool, images: &mut Images, seed: u64) -> usize {
    let share = tempfile::tempdir().unwrap();
    if has_fastmap {
        crate::common::put_fastmap(lab, share.path());
    }
    if chip.sealed {
        crate::common::put_signed(lab, share.path());
    }
    let attach = match chip.sealed {
        true => format!(
            "{KEYS}\nlogon flysch:auth '{AUTH_KEY}'\n\
             attach() {{ mount -t ubifs -o auth_key=flysch:auth,auth_hash_name=sha256 ubi0_0 /mnt \
             && unlock /mnt; }}"
        ),
        false => "attach() { mount -t ubifs ubi0_0 /mnt; }".into(),
    };
    let mut by_fastmap = 0;
    let mut expected = Vec::new();
    for (name, flash) in images.iter_mut() {
        fs::write(share.path().join(format!("{name}.img")), flash.storage()).unwrap();
        expected.push((shown(chip, flash, name), space(chip, flash.clone())));
    }
    let rounds: String = images.iter().map(|(name, _)| format!("round {name} {seed}\n")).collect();
    let script = format!("{FUNCTIONS}\n{attach}\nmodprobe {}\n{rounds}", chip.modules);
    crate::common::run(lab, &script, share.path());
    let mut wrong = String::new();
    for ((name, flash), (expected, space)) in images.iter_mut().zip(expected) {
        let read = |end: &str| fs::read_to_string(share.path().join(format!("{name}.{end}")));
        let log = read("dmesg").unwrap();
        let bad = unexpected(name, &log);
        if !bad.is_empty() {
            let _ = writeln!(wrong, "{name}: {bad:#?}");
        }
        let was_used = log.contains("attached by fastmap");
        by_fastmap += usize::from(was_used);
        if has_fastmap && !was_used && !name.starts_with("cut") {
            let _ = writeln!(wrong, "{name}: Linux does not take its fastmap: {log}");
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
        *flash = FlashImage::new(content, chip.geometry);
        let different = difference(&shown(chip, flash, name), &manifest::from_text(&second));
        if !different.is_empty() {
            let _ = writeln!(wrong, "{name}: after Linux wrote:\n{different}");
        }
        let used = UbiDevice::attach(&mut *flash, &chip.options()).unwrap().attached_by_fastmap();
        if used != has_fastmap {
            let _ = writeln!(wrong, "{name}: after Linux wrote, attached by fastmap: {used}");
        }
    }
    if !wrong.is_empty() {
        crate::common::keep(share.path());
    }
    assert!(wrong.is_empty(), "{}: {wrong}", chip.name);
    by_fastmap
}

/// Where the filling of a flash is cut: `FLYSCH_LAB_CUTS=3000,3100` sets other operations.
fn cuts() -> Vec<u64> {
    let set = std::env::var("FLYSCH_LAB_CUTS").unwrap_or("3000,4003,5005".into());
    set.split(',').map(|cut| cut.parse().expect("FLYSCH_LAB_CUTS")).collect()
}

/// A flash that is worked on and detached, a full one, and cuts of both.
fn images(chip: &Chip) -> Images {
    let mut images = Vec::new();
    let mut clean = made(chip);
    work(chip, &mut clean, 1, 250, None);
    for cut in [150, 520, 1100] {
        let mut flash = clean.clone();
        work(chip, &mut flash, cut, 400, Some(cut));
        images.push((format!("cut{cut}"), flash));
    }
    for cut in [None].into_iter().chain(cuts().into_iter().map(Some)) {
        let mut flash = clean.clone();
        // For a volume of any lifetime, which the function's name alone does not provide.
        #[allow(clippy::redundant_closure, reason = "without it the lifetimes do not fit")]
        live(chip, &mut flash, cut, |fs| fill(fs));
        images.push((cut.map_or("full".into(), |cut| format!("cut{cut}full")), flash));
    }
    images.push((String::from("clean"), clean));
    images
}

/// Linux and Flysch twice in turn; some of Flysch's work is cut.
fn turns(lab: &Lab, chip: &Chip) -> Images {
    let mut images = images(chip);
    for round in 0..2 {
        let by_fastmap = linux_round(lab, chip, chip.fastmap, &mut images, 10 + round);
        println!("{}: {} images, {by_fastmap} by fastmap", chip.name, images.len());
        for (name, flash) in &mut images {
            let cut = (round == 0 && name.starts_with("cut")).then_some(400);
            work(chip, flash, 20 + round, 150, cut);
        }
    }
    images
}

#[test]
fn linux_and_flysch_write_in_turn() {
    let Some(lab) = lab() else { return };
    let wanted = std::env::var("FLYSCH_LAB_CHIP").ok();
    for chip in chips() {
        if wanted.as_ref().is_some_and(|wanted| wanted != chip.name) {
            continue;
        }
        turns(&lab, &chip);
    }
}

/// The same with fastmaps of both; finally with a Linux that does not know them and must discard
/// them.
#[test]
fn linux_and_flysch_attach_by_the_fastmaps_of_each_other() {
    let Some(lab) = lab() else { return };
    let [large, _, nor] = chips();
    // Linux keeps none on a chip of 64 blocks or less.
    let nor = Chip {
        geometry: FlashGeometry::nor(8 << 20, 64 << 10),
        modules: "mtdram total_size=8192 erase_size=64",
        ..nor
    };
    for chip in [large, nor] {
        let chip = Chip { fastmap: true, ..chip };
        let mut images = turns(&lab, &chip);
        linux_round(&lab, &chip, false, &mut images, 12);
    }
}

/// The same, signed and encrypted, clean and cut.
#[test]
fn linux_and_flysch_write_signed_and_encrypted_in_turn() {
    let Some(lab) = lab() else { return };
    let wanted = std::env::var("FLYSCH_LAB_CHIP").ok();
    for chip in chips() {
        let chip = Chip { sealed: true, hash: KeyHash::R5, ..chip };
        if wanted.as_ref().is_none_or(|wanted| wanted == chip.name) {
            turns(&lab, &chip);
        }
    }
}
