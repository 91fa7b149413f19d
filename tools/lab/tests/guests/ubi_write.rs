//! UBI devices written by Flysch, clean and cut, attached by Linux; and the other way round.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::common::cutting::Cutting;
use crate::common::lab;
use flysch_api::flash::{FlashGeometry, FlashMut};
use flysch_api::volume::{Volume, VolumeMut};
use flysch_lab::Lab;
use flysch_mtd::FlashImage;
use flysch_random::SplitMix64;
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, UbiDevice, VolumeKind};
use sha2::{Digest, Sha256};

/// A chip that the guest can also emulate.
#[derive(Clone, Copy)]
struct Chip {
    name: &'static str,
    geometry: FlashGeometry,
    modules: &'static str,
}

fn chips() -> [Chip; 3] {
    // nandsim's software Hamming code leaves half pages of 512 bytes that can be programmed
    // separately.
    [
        Chip {
            name: "large-page",
            geometry: FlashGeometry::nand(12 << 20, 128 << 10, 2048, 512),
            modules: "nandsim first_id_byte=0x20 second_id_byte=0xa1 third_id_byte=0x00 \
                      fourth_id_byte=0x15 parts=96",
        },
        Chip {
            name: "small-page",
            geometry: FlashGeometry::nand(3 << 20, 16 << 10, 512, 256),
            modules: "nandsim first_id_byte=0x98 second_id_byte=0x73 parts=192",
        },
        Chip {
            name: "ram",
            geometry: FlashGeometry::nor(4 << 20, 64 << 10),
            modules: "mtdram total_size=4096 erase_size=64",
        },
    ]
}

/// Numbers that are the same in each run.
struct Numbers(SplitMix64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

fn options() -> DeviceOptions {
    // LEBs are moved all the time; Linux has the same number of reserved blocks.
    DeviceOptions { wear_threshold: 3, ..DeviceOptions::default() }
}

/// Everything that a device does, in one life.
fn life<F: FlashMut>(device: &mut UbiDevice<F>, seed: u64) -> Result<(), flysch_ubi::UbiError> {
    let mut numbers = Numbers(SplitMix64::new(seed));
    let data = device.create(&NewVolume::dynamic(b"data", 12))?;
    let kernel = device.create(&NewVolume::fixed(b"kernel", 5))?;
    let unit = device.write_size().max(512) as usize;
    for round in 0..40 {
        let lnum = numbers.below(12) as u32;
        let mut volume = device.volume_mut(data)?;
        let units = 1 + numbers.below(6) as usize;
        match numbers.below(5) {
            0 => volume.unmap(lnum)?,
            1 => volume.sync()?,
            2 => {
                volume.unmap(lnum)?;
                volume.write(lnum, 0, &numbers.bytes(units * unit))?;
            }
            _ => volume.change(lnum, &numbers.bytes(units * unit))?,
        }
        match round {
            8 => {
                let len = 3 * device.leb_size() as usize + 1000;
                let mut update = device.update(kernel, len as u64)?;
                update.write(&numbers.bytes(len))?;
                update.finish()?;
            }
            16 => {
                device.create(&NewVolume::dynamic(b"other", 3))?;
                device.rename(&[(data, b"root"), (kernel, b"linux")])?;
            }
            24 => device.resize(data, 14)?,
            32 => device.remove(2)?,
            _ => {}
        }
        device.work(1)?;
    }
    device.sync()
}

/// The contents of a device, one line per volume: id, name, kind, LEBs, digest of the content.
fn listing(flash: &mut FlashImage<Vec<u8>>) -> Result<String, flysch_ubi::UbiError> {
    let mut device = UbiDevice::attach(flash, &options())?;
    while device.work(100)? {}
    let mut text = String::new();
    for info in device.volumes().collect::<Vec<_>>() {
        let name = String::from_utf8_lossy(&info.name).into_owned();
        let kind = if info.kind == VolumeKind::Static { "static" } else { "dynamic" };
        let digest = match info.update_marker {
            true => "void".into(),
            false => digest(&mut device, info.id)?,
        };
        writeln!(text, "{} {name} {kind} {} {digest}", info.id, info.reserved_pebs).unwrap();
    }
    Ok(text)
}

fn digest<F: FlashMut>(device: &mut UbiDevice<F>, id: u32) -> Result<String, flysch_ubi::UbiError> {
    let info = device.info(id).unwrap();
    let whole = u64::from(info.leb_size) * u64::from(info.reserved_pebs);
    let mut left = info.used_bytes.unwrap_or(whole);
    let volume = device.volume_mut(id)?;
    let mut leb = vec![0; info.leb_size as usize];
    let mut hash = Sha256::new();
    for lnum in 0..info.reserved_pebs {
        let part = left.min(u64::from(info.leb_size)) as usize;
        let _ = volume.read(lnum, 0, &mut leb[..part])?;
        hash.update(&leb[..part]);
        left -= part as u64;
    }
    Ok(hash.finalize().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
}

/// Shell functions of the guest: the listing of what UBI shows.
const FUNCTIONS: &str = r#"
    attach() { ubiattach -m 0 -d 0 >/dev/null; udevadm settle 2>/dev/null || true; }
    listing() {
        for volume in /sys/class/ubi/ubi0_*; do
            [ -e $volume/name ] || continue
            id=${volume##*_}
            kind=$(cat $volume/type)
            if [ "$(cat $volume/upd_marker)" = 1 ]; then digest=void; else
                digest=$(cat /dev/ubi0_$id | sha256sum | cut -d' ' -f1); fi
            echo $id $(cat $volume/name) $kind $(cat $volume/reserved_ebs) $digest
        done | sort -n
    }
"#;

fn run(lab: &Lab, script: &str, share: &Path) {
    crate::common::run(lab, &format!("set -e\n{FUNCTIONS}\n{script}"), share);
}

/// A device after its life, or after the part of it that precedes a cut.
fn lived(chip: &Chip, cut: Option<u64>) -> (FlashImage<Vec<u8>>, bool) {
    let erased = vec![0xff; chip.geometry.size as usize];
    let mut flash = FlashImage::new(erased, chip.geometry);
    UbiDevice::format(&mut flash, &FormatOptions::new(0x5eed), &options()).unwrap();
    let left = cut.unwrap_or(u64::MAX);
    // Half of the pages are programmed; half of the bytes on chips without pages.
    let unit = chip.geometry.write_size as usize;
    let cutting = Cutting { flash: &mut flash, left, unit };
    let ended = UbiDevice::attach(cutting, &options()).and_then(|mut device| life(&mut device, 1));
    if cut.is_none() {
        ended.as_ref().unwrap();
    }
    (flash, ended.is_ok())
}

#[test]
fn linux_attaches_what_was_written_and_cut() {
    let Some(lab) = lab() else { return };
    for chip in chips() {
        let share = tempfile::tempdir().unwrap();
        let mut cases = Vec::new();
        // The step is prime, so that all kinds of operations are cut.
        for cut in [None].into_iter().chain((1..).step_by(23).map(Some)) {
            let (mut flash, ended) = lived(&chip, cut);
            fs::write(share.path().join(format!("{}.img", cases.len())), flash.storage()).unwrap();
            cases.push((cut, listing(&mut flash).unwrap()));
            if ended && cut.is_some() || cases.len() == 14 {
                break;
            }
        }
        let script = format!(
            "modprobe {}; modprobe ubi
            for case in $(seq 0 {}); do
                load $case.img; attach; listing > $case.txt; ubidetach -m 0
            done",
            chip.modules,
            cases.len() - 1
        );
        run(&lab, &script, share.path());
        for (at, (cut, expected)) in cases.iter().enumerate() {
            let found = fs::read_to_string(share.path().join(format!("{at}.txt"))).unwrap();
            assert_eq!(found, *expected, "{}: cut {cut:?}", chip.name);
        }
        println!("{}: {} images equal, all but one cut", chip.name, cases.len());
    }
}

#[test]
fn devices_go_to_linux_and_back() {
    let Some(lab) = lab() else { return };
    for chip in chips() {
        let share = tempfile::tempdir().unwrap();
        let image = share.path().join("image");
        let made = format!(
            "modprobe {}; modprobe ubi
            ubiformat -q -y /dev/mtd0; attach
            ubimkvol /dev/ubi0 -N data -s 500KiB >/dev/null
            ubimkvol /dev/ubi0 -N fixed -t static -s 300KiB >/dev/null
            ubimkvol /dev/ubi0 -N gone -s 100KiB >/dev/null
            head -c 200001 /dev/urandom > a; ubiupdatevol /dev/ubi0_1 a
            head -c 400000 /dev/urandom > b; ubiupdatevol /dev/ubi0_0 b
            ubirmvol /dev/ubi0 -N gone; ubirename /dev/ubi0 data root
            listing > linux.txt; ubidetach -m 0; save image",
            chip.modules
        );
        run(&lab, &made, share.path());
        for round in 0..2_u8 {
            let linux = fs::read_to_string(share.path().join("linux.txt")).unwrap();
            let mut flash = FlashImage::new(fs::read(&image).unwrap(), chip.geometry);
            assert_eq!(listing(&mut flash).unwrap(), linux, "{} round {round}", chip.name);
            let mut device = UbiDevice::attach(&mut flash, &options()).unwrap();
            assert_eq!(device.findings(), [], "{} round {round}", chip.name);
            let unit = device.write_size().max(512) as usize;
            let mut volume = device.volume_mut(0).unwrap();
            for lnum in 0..3 {
                volume
                    .change(lnum, &Numbers(SplitMix64::new(round.into())).bytes(unit * 3))
                    .unwrap();
            }
            volume.unmap(3).unwrap();
            device.rename(&[(1, &[b'a' + round])]).unwrap();
            device.create(&NewVolume::dynamic(&[b'x' + round], 2)).unwrap();
            device.detach().unwrap();
            let ours = listing(&mut flash).unwrap();
            fs::write(&image, flash.storage()).unwrap();
            let script = format!(
                "modprobe {}; modprobe ubi
                load image; attach; listing > ours.txt
                head -c 150000 /dev/urandom > a; ubiupdatevol /dev/ubi0_0 a
                ubirsvol /dev/ubi0 -N {} -s 200KiB
                listing > linux.txt; ubidetach -m 0; save image",
                chip.modules,
                char::from(b'x' + round)
            );
            run(&lab, &script, share.path());
            let shown = fs::read_to_string(share.path().join("ours.txt")).unwrap();
            assert_eq!(shown, ours, "{} round {round}", chip.name);
        }
        println!("{}: 5 times written in turn, each time equal", chip.name);
    }
}

/// ubi_reader, where it is installed, shows the same volumes.
#[test]
fn ubi_reader_shows_the_volumes() {
    let (flash, _) = lived(&chips()[0], None);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), flash.storage()).unwrap();
    let shown = std::process::Command::new("ubireader_display_info").arg(file.path()).output();
    let Ok(shown) = shown else {
        println!("skipped: ubireader_display_info is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success(), "{text}{}", String::from_utf8_lossy(&shown.stderr));
    for expected in ["Volume: root", "Volume: linux", "PEB Size: 131072"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
