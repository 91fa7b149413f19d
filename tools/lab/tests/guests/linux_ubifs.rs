//! UBIFS written by Linux, unmounted and cut, against what Flysch shows of it.

use crate::linux::Kernel;
use flysch_api::flash::FlashGeometry;
use flysch_image::{Contents, Image, ImageOpenOptions};
use flysch_lab::manifest::{self, Detail, Manifest};
use flysch_mtd::FlashImage as Flash;
use flysch_ubi::{DeviceOptions, UbiDevice};
use flysch_ubifs::Ubifs;

#[test]
fn what_linux_wrote_is_shown_as_linux_shows_it() {
    let script = "
        whole small-lzo ubifs small 1 '' '' compr=lzo 3
        whole large-zlib ubifs large 2 oob '' compr=zlib 3
        whole late-zstd ubifs large 3 '' '-O 2048' compr=zstd 3
        whole nor-none ubifs nor 4 '' '' compr=none 3
        whole huge-lzo ubifs huge 5 '' '' compr=lzo 2";
    let Some(share) = crate::linux::run("ubifs", Kernel::Plain, script) else { return };
    images_are_of_format_5_and_cut(&share);
    crate::linux::planted_differences_are_found(&share);
    crate::linux::judge(&share);
}

/// Checks that the images are of the intended kind.
fn images_are_of_format_5_and_cut(share: &crate::linux::Share) {
    for path in crate::linux::named(share, "cut1.img") {
        let image = Image::open(&path, &ImageOpenOptions::default()).unwrap();
        let volume = crate::linux::volume(&image).unwrap();
        let Contents::Ubifs(fs) = &volume.contents else { panic!("{volume:?}") };
        assert_eq!(fs.superblock().format_version, 5);
        assert!(fs.is_unclean(), "{} was not cut", path.display());
    }
}

#[test]
fn what_linux_wrote_with_a_fastmap_is_attached_by_it() {
    // The behaviour of a torn page does not depend on the fastmap.
    let script = "
        torn=no
        whole fastmap-nand ubifs large 6 '' '' compr=lzo 4
        whole fastmap-nor ubifs nor 7 '' '' compr=zstd 3";
    let Some(share) = crate::linux::run("ubifs-fastmap", Kernel::Fastmap, script) else { return };
    let (mut images, mut by_fastmap) = (0, 0);
    for path in share.images() {
        let is_nand = path.parent().is_some_and(|folder| folder.ends_with("fastmap-nand"));
        let geometry = match is_nand {
            true => FlashGeometry::nand(16 << 20, 128 << 10, 2048, 512),
            false => FlashGeometry::nor(16 << 20, 64 << 10),
        };
        let Some(expected) = crate::linux::expected(&path) else { continue };
        let mut flash = Flash::new(std::fs::read(&path).unwrap(), geometry);
        let options = DeviceOptions { fastmap: true, ..DeviceOptions::default() };
        let mut device = UbiDevice::attach(&mut flash, &options).unwrap();
        let used = device.attached_by_fastmap();
        assert!(used || !path.ends_with("clean.img"), "{}", path.display());
        let volume = device.volume_mut(0).unwrap();
        let fs = Ubifs::open(&volume, &flysch_ubifs::OpenOptions::default()).unwrap();
        let found = manifest::of_file_system(&fs, Detail::Whole);
        let differences = manifest::differences(&expected, &found);
        assert!(differences.is_empty(), "{}: {differences:#?}", path.display());
        images += 1;
        by_fastmap += u32::from(used);
    }
    println!("{by_fastmap} of {images} images attached by fastmap");
    crate::linux::judge(&share);
}

#[test]
fn cuts_that_the_kernel_emulates_are_recovered_from_as_linux_does() {
    let script = "
        whole small-zstd ubifs small 35 '' '' compr=zstd 1
        emulated emulated large 34 compr=lzo 6";
    let Some(share) = crate::linux::run("ubifs-emulated", Kernel::Plain, script) else { return };
    crate::linux::judge(&share);
}

#[test]
fn encrypted_directories_are_recognised_and_their_contents_refused() {
    let Some(share) =
        crate::linux::run("ubifs-encrypted", Kernel::Plain, "encrypted secret large 36")
    else {
        return;
    };
    let path = crate::linux::named(&share, "clean.img").remove(0);
    let image = Image::open(&path, &ImageOpenOptions::default()).unwrap();
    let volume = crate::linux::volume(&image).unwrap();
    let fs = volume.file_system().unwrap();
    let found = manifest::of_file_system(&*fs, Detail::Whole);
    let expected = crate::linux::expected(&path).unwrap();
    assert_eq!(found["plain/file"], expected["plain/file"]);
    let secret = |manifest: &Manifest| {
        let below = manifest.iter().filter(|(path, _)| path.starts_with("secret/"));
        below.map(|(_, line)| line.clone()).collect::<Vec<_>>()
    };
    let lines = secret(&found);
    let refused = lines.iter().filter(|line| line.contains("encrypted, and the key")).count();
    let stored = |line: &&String| line.starts_with("Regular") || line.starts_with("Symlink");
    assert_eq!(refused, lines.iter().filter(stored).count(), "contents that were not refused");
    assert!(refused > 100, "{refused}");
    // Names are not comparable (Linux adds hashes of its own), everything else except contents is.
    let plain = |lines: Vec<String>| {
        // Linux reports the length of the target that it makes up for a symlink.
        let cut = |line: String| match line.split_once(" size ") {
            Some((before, _)) if line.starts_with("Symlink") => before.to_owned(),
            _ => line.split(" content ").next().unwrap_or_default().to_owned(),
        };
        let mut lines: Vec<_> = lines.into_iter().map(cut).collect();
        lines.sort();
        lines
    };
    assert_eq!(plain(lines), plain(secret(&expected)));
    println!("{refused} contents refused");
}
