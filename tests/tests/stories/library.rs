//! What users of the crates see: the examples of `examples/library`, unchanged.

use std::path::Path;

use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::{FsError, Timestamp};
use flysch_api::volume::{Volume as _, VolumeMut};
use flysch_jffs2::{Jffs2, Jffs2Mut, WriteOptions};
use flysch_mtd::FlashImage;
use flysch_ubi::{
    AttachOptions, DeviceOptions, FormatOptions, NewVolume, Ubi, UbiDevice, find_images,
};
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_ubifs::{OpenOptions, Ubifs, UbifsMut};

use crate::image_common::{Noise, has_mtd_utils, run};

#[path = "../../../examples/library/disk_over_the_model.rs"]
mod disk_over_the_model;
#[expect(unreachable_pub, reason = "public on the page it is from")]
#[path = "../../../crates/ubifs/doc/first_file.rs"]
mod first_file;
#[expect(unreachable_pub, reason = "public on the page it is from")]
#[path = "../../../crates/jffs2/doc/first_image.rs"]
mod first_image;
#[expect(unreachable_pub, reason = "public on the page it is from")]
#[path = "../../../crates/ubi/doc/first_volume.rs"]
mod first_volume;
#[path = "../../../examples/library/own_machine.rs"]
mod own_machine;
#[path = "../../../examples/library/own_port.rs"]
mod own_port;
#[path = "../../../examples/library/read_ubi_image.rs"]
mod read_ubi_image;
#[path = "../../../examples/library/ubifs_on_nand.rs"]
mod ubifs_on_nand;

#[test]
fn the_examples_run() {
    disk_over_the_model::main().expect("disk_over_the_model");
    own_machine::main().expect("own_machine");
    own_port::main().expect("own_port");
    ubifs_on_nand::main().expect("ubifs_on_nand");
    let usage = read_ubi_image::main().expect_err("without an image");
    assert!(usage.to_string().starts_with("usage: "), "{usage}");
}

/// An erased chip of 64 blocks in memory.
fn chip() -> FlashImage<Vec<u8>> {
    let geometry = FlashGeometry::nand(64 << 17, 128 << 10, 2048, 2048);
    FlashImage::of_chip(vec![0xFF; 64 << 17], geometry).expect("all of the chip").strict()
}

/// A volume of everything that such a chip has.
fn volume() -> impl VolumeMut {
    let format = FormatOptions::new(7);
    let mut device = UbiDevice::format(chip(), &format, &DeviceOptions::default()).unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"data", lebs)).unwrap();
    device.into_volume(id).unwrap()
}

/// Whoever copies the folder has the crates, and neither the workspace nor its other members.
#[test]
fn the_examples_need_only_crates_that_are_published() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/library");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    assert!(!manifest.contains("workspace = true"), "it inherits");
    let version = concat!("version = \"", env!("CARGO_PKG_VERSION"), "\"");
    assert!(manifest.lines().any(|line| line == version), "it is not of {version}");
    let paths = manifest.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (_, rest) = line.split_once("path = \"")?;
        rest.split('"').next()
    });
    let (programs, crates): (Vec<&str>, Vec<&str>) = paths.partition(|path| path.ends_with(".rs"));
    assert!(crates.iter().all(|path| path.starts_with("../../crates/")), "{crates:?}");
    let sources = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    for source in sources.filter(|path| path.extension().is_some_and(|it| it == "rs")) {
        let name = source.file_name().unwrap().to_str().unwrap();
        assert!(programs.contains(&name), "{name} is no program of the manifest");
        let text = std::fs::read_to_string(&source).unwrap();
        let used = text.lines().filter_map(|line| line.strip_prefix("use flysch_"));
        for name in used.filter_map(|rest| rest.split("::").next()) {
            let place = format!("../../crates/{}", name.replace('_', "-"));
            assert!(crates.contains(&place.as_str()), "flysch-{name} is not in the manifest");
        }
    }
}

#[test]
fn the_front_pages_of_the_flash_crates_run() {
    let text = b"bootdelay=3";
    assert_eq!(first_volume::first_volume(chip(), text).unwrap(), text);
    assert_eq!(first_file::first_file(volume(), text).unwrap(), text);
    assert_eq!(first_image::second_file(chip(), text).unwrap(), text);
    let geometry = FlashGeometry::nor(1 << 20, 64 << 10);
    let nor = FlashImage::of_chip(vec![0xFF; 1 << 20], geometry).expect("all of the chip");
    assert_eq!(first_image::second_file(nor.strict(), text).unwrap(), text);
}

/// As the documentation of these functions says: lent to them, it is there if they fail.
#[test]
fn a_flash_that_is_lent_survives_a_mount_that_fails() {
    let (options, open) = (DeviceOptions::default(), OpenOptions::default());
    let mut flash = chip();
    assert!(UbiDevice::attach(&mut flash, &options).is_err(), "nothing is on it");
    let mut device = UbiDevice::format(&mut flash, &FormatOptions::new(7), &options).unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"data", lebs)).unwrap();
    let mut volume = device.into_volume(id).unwrap();
    assert!(UbifsMut::open(&mut volume).is_err(), "nothing is in it");
    assert!(Ubifs::open(&volume, &open).is_err());
    let shape = CreateOptions::new(2048, volume.geometry().leb_size, lebs);
    let root = NewInode::directory(Timestamp { seconds: 0, nanoseconds: 0 });
    format(&mut volume, &shape, &root).unwrap();
    UbifsMut::open(&mut volume).unwrap().close().unwrap();
    Ubifs::open(&volume, &open).unwrap();
    assert!(volume.into_device().detach().is_ok());
    assert!(Jffs2::mount(&flash, None).is_err(), "it is not JFFS2");
    assert!(Jffs2Mut::mount(&mut flash, &WriteOptions::default()).is_err());
    let image = find_images(&flash, None)[0];
    Ubi::attach(&flash, image, &AttachOptions::default()).unwrap();
}

#[test]
fn a_file_that_does_not_fit_is_not_cut_short() {
    let text = Noise::new(6).bytes(12 << 20);
    let full = first_file::first_file(volume(), &text).unwrap_err();
    assert_eq!(full.downcast_ref(), Some(&FsError::NoSpace), "{full}");
}

/// Makes a UBI image with mtd-utils: one volume `data`, containing `content` as `/etc/blob`, and
/// everything in `folder/tree`.
pub(crate) fn ubi_image(folder: &Path, content: &[u8]) -> std::path::PathBuf {
    let text = |name: &str| folder.join(name).display().to_string();
    std::fs::create_dir_all(folder.join("tree/etc")).unwrap();
    std::fs::write(folder.join("tree/etc/blob"), content).unwrap();
    let shape = ["-m", "2048", "-e", "129024", "-c", "100"];
    let files = ["-r", &text("tree"), "-o", &text("data.ubifs")];
    run("mkfs.ubifs", &[&shape[..], &files].concat());
    let ini = format!(
        "[data]\nmode=ubi\nimage={}\nvol_id=3\nvol_type=dynamic\nvol_name=data\nvol_size=8MiB\n",
        text("data.ubifs")
    );
    std::fs::write(folder.join("ini"), ini).unwrap();
    let shape = ["-m", "2048", "-s", "512", "-p", "128KiB"];
    run("ubinize", &[&shape[..], &["-o", &text("ubi"), &text("ini")]].concat());
    folder.join("ubi")
}

#[test]
fn a_file_of_an_image_that_others_made() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let content = Noise::new(5).bytes(300_000);
    let image = ubi_image(folder.path(), &content);
    let read = |volume, path| read_ubi_image::read(&image, volume, path);
    assert!(read("data", "/etc/blob").unwrap() == content);
    let absent = read("data", "/etc/none").unwrap_err().to_string();
    assert_eq!(absent, "no such file or directory");
    assert_eq!(read("boot", "/").unwrap_err().to_string(), "there is no volume `boot` in it");
    let directory = read("data", "/etc").unwrap_err().to_string();
    assert_eq!(directory, "is a directory");
}
