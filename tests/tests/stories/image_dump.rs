//! Raw dumps: out-of-band bytes between the pages, error correction, a prefix, several contents.

use std::path::Path;

use crate::image_common::{
    Noise, differences, extract, has_mtd_utils, make_tree, mkfs_jffs2, run, snapshot,
    without_xattrs, wrong,
};
use flysch_image::{Image, ImageOpenOptions};
use flysch_mtd::{Bch, Ecc, OobLayout, PageFormat};
use flysch_tests::command::run_in;

fn formats() -> Vec<PageFormat> {
    let format = |page_size: u32, oob_size, ecc: Ecc| {
        let len = (page_size as usize).checked_div(ecc.step()).unwrap_or(0) * ecc.code_len();
        let oob = match (&ecc, page_size) {
            (Ecc::Hamming { .. }, _) => OobLayout::hamming(oob_size, len),
            (_, 512) => OobLayout::small_page(oob_size, len),
            _ => OobLayout::at_end(oob_size, len),
        };
        PageFormat { page_size, oob: oob.unwrap(), ecc }
    };
    let hamming = |step| Ecc::Hamming { step, smart_media: false };
    let bch = |m, t, step| Ecc::Bch(Bch::new(m, t, step).unwrap());
    vec![
        format(512, 16, hamming(256)),
        format(2048, 64, hamming(512)),
        format(2048, 64, bch(13, 4, 512)),
        format(4096, 224, bch(14, 8, 1024)),
        format(2048, 64, Ecc::None),
    ]
}

/// `main` as stored on a chip with pages of `format`.
fn dump(main: &[u8], format: &PageFormat) -> Vec<u8> {
    let page_size = format.page_size as usize;
    let mut main = main.to_vec();
    main.resize(main.len().next_multiple_of(128 << 10), 0xFF);
    let mut out = vec![];
    for page in main.chunks(page_size) {
        let mut oob = vec![0xFF; format.oob.size];
        if format.ecc.step() != 0 {
            let mut codes = vec![];
            for step in page.chunks(format.ecc.step()) {
                let mut code = vec![0; format.ecc.code_len()];
                format.ecc.compute(step, &mut code);
                codes.extend(code);
            }
            let places = format.oob.ecc.iter().flat_map(Clone::clone);
            places.zip(codes).for_each(|(place, byte)| oob[place] = byte);
        }
        out.extend_from_slice(page);
        out.extend(oob);
    }
    out
}

fn images(folder: &Path, tree: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let path = |name: &str| folder.join(name);
    mkfs_jffs2(tree, &path("jffs2"), &["-e", "128KiB", "-b", "-n"]);
    let text = |name: &str| path(name).display().to_string();
    let (ubifs, ubi, ini) = (text("ubifs"), text("ubi"), text("ini"));
    let tree = tree.to_str().unwrap();
    run("mkfs.ubifs", &["-r", tree, "-m", "2048", "-e", "126976", "-c", "200", "-o", &ubifs]);
    let volume =
        format!("[v]\nmode=ubi\nimage={ubifs}\nvol_id=0\nvol_type=dynamic\nvol_name=root\n");
    std::fs::write(&ini, volume).unwrap();
    run("ubinize", &["-o", &ubi, "-m", "2048", "-p", "128KiB", "-Q", "1", &ini]);
    ["jffs2", "ubi"].map(|name| (name, std::fs::read(path(name)).unwrap())).into()
}

#[test]
fn dumps_read_as_what_was_programmed_bit_errors_included() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    make_tree(&tree);
    let mut noise = Noise::new(21);
    for (name, main) in images(folder.path(), &tree) {
        for (number, format) in formats().iter().enumerate() {
            let mut bytes = dump(&main, format);
            let stride = format.page_size as usize + format.oob.size;
            if format.ecc.strength() > 0 {
                // One flipped bit in every third page.
                for page in (0..bytes.len() / stride).step_by(3) {
                    let at = page * stride + noise.next() as usize % format.page_size as usize;
                    bytes[at] ^= 1 << (noise.next() % 8);
                }
            }
            let (image, out) =
                (folder.path().join("dump"), folder.path().join(format!("{name}{number}")));
            std::fs::write(&image, bytes).unwrap();
            let found =
                Image::open(&image, &ImageOpenOptions::default()).unwrap().page_format.unwrap();
            assert_eq!((found.page_size, found.oob.size), (format.page_size, format.oob.size));
            assert_eq!(found.ecc.strength(), format.ecc.strength(), "{name} {}", format.ecc);
            assert_eq!(extract(&image, &out).failures, [], "{name} {}", format.ecc);
            let (mut expected, mut found) = (snapshot(&tree), snapshot(&out));
            if name == "ubi" {
                (expected, found) = (without_xattrs(expected), without_xattrs(found));
            }
            let different = differences(&expected, &found);
            assert!(different.is_empty(), "{name} {}:\n{}", format.ecc, different.join("\n"));
            assert_eq!(wrong(&image), [""; 0], "{name} {}", format.ecc);
        }
    }
}

/// Main bytes in one file, out-of-band bytes in another.
#[test]
fn out_of_band_bytes_may_be_in_another_file() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    make_tree(&tree);
    let expected = snapshot(&tree);
    let (path, oob_path) = (folder.path().join("main"), folder.path().join("oob"));
    let mut noise = Noise::new(5);
    for (name, bytes) in images(folder.path(), &tree) {
        for (number, format) in formats().iter().enumerate().step_by(2) {
            let bytes = dump(&bytes, format);
            let (mut main, mut oob) = (vec![], vec![]);
            for (number, page) in
                bytes.chunks(format.page_size as usize + format.oob.size).enumerate()
            {
                let (data, behind) = page.split_at(format.page_size as usize);
                main.extend_from_slice(data);
                oob.extend_from_slice(behind);
                if format.ecc.strength() > 0 && number % 3 == 0 {
                    let at = main.len() - 1 - noise.next() as usize % data.len();
                    main[at] ^= 1 << (noise.next() % 8);
                }
            }
            std::fs::write(&path, main).unwrap();
            std::fs::write(&oob_path, &oob).unwrap();
            let image =
                Image::open_with_oob(&path, &oob_path, &ImageOpenOptions::default()).unwrap();
            let found = image.page_format.as_ref().unwrap();
            assert_eq!(found.ecc.strength(), format.ecc.strength(), "{name} {}", format.ecc);
            if format.ecc.strength() > 0 {
                assert_eq!((found.page_size, found.oob.size), (format.page_size, format.oob.size));
            }
            let fs = image.volumes().find_map(flysch_image::ImageVolume::file_system).unwrap();
            let out = folder.path().join(format!("apart {name} {number}"));
            let options = flysch_image::ExtractOptions::default();
            let progress = flysch_image::Progress::default();
            let extraction = flysch_image::extract(&*fs, &out, &options, &progress).unwrap();
            assert_eq!(extraction.failures, [], "{name} {}", format.ecc);
            let found = without_xattrs(snapshot(&out));
            assert_eq!(found.len(), expected.len());
            for (path, seen) in found {
                assert_eq!(seen.content(), expected[&path].content(), "{path:?}");
            }
            std::fs::write(&oob_path, &oob[1..]).unwrap();
            let error =
                Image::open_with_oob(&path, &oob_path, &ImageOpenOptions::default()).unwrap_err();
            assert!(error.to_string().contains("no page size fits that"), "{error}");
        }
    }
}

#[test]
fn contents_behind_a_prefix_and_behind_each_other_are_all_there() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    make_tree(&tree);
    let before = snapshot(&tree);
    let mut flash = Noise::new(1).bytes(64 << 10);
    for (_, mut main) in images(folder.path(), &tree) {
        main.resize(main.len().next_multiple_of(128 << 10), 0xFF);
        flash.extend(main);
    }
    let path = folder.path().join("flash");
    std::fs::write(&path, flash).unwrap();
    let image = Image::open(&path, &ImageOpenOptions::default()).unwrap();
    let formats: Vec<_> = image.volumes().map(flysch_image::ImageVolume::format).collect();
    assert_eq!(formats, ["jffs2", "ubifs"]);
    assert_eq!(flysch_image::names(&image), ["jffs2", "root"]);
    for (number, fs) in
        image.volumes().filter_map(flysch_image::ImageVolume::file_system).enumerate()
    {
        let out = folder.path().join(format!("out{number}"));
        let options = flysch_image::ExtractOptions::default();
        let extraction =
            flysch_image::extract(&*fs, &out, &options, &flysch_image::Progress::default());
        assert_eq!(extraction.unwrap().failures, []);
        assert_eq!(snapshot(&out).len(), before.len());
    }
}

/// A UBI image of a small UBIFS, blocks of 16 KiB, pages of 512 bytes, made by the command.
fn small_ubi(folder: &Path) -> Vec<u8> {
    std::fs::create_dir(folder.join("tree")).unwrap();
    std::fs::write(folder.join("tree/file"), Noise::new(2).bytes(9000)).unwrap();
    let volume = "[v]\nmode=ubi\nimage=fs\nvol_id=0\nvol_type=dynamic\nvol_name=root\n";
    std::fs::write(folder.join("ini"), volume).unwrap();
    for command in [
        "image create ubifs -m 512 -e 15872 -c 40 -r tree -o fs",
        "image create ubi -p 16KiB -m 512 -s 256 -o ubi ini",
    ] {
        let ran = run_in(command, folder);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    }
    std::fs::read(folder.join("ubi")).unwrap()
}

/// Offset of the page with the superblock of UBIFS.
fn superblock(bytes: &[u8], stride: usize) -> usize {
    let begins = |page: &[u8]| page.starts_with(&[0x31, 0x18, 0x10, 0x06]) && page[20] == 6;
    bytes.chunks(stride).position(begins).expect("a superblock") * stride
}

/// Linux mounts a UBIFS whose superblock has lost only its codes, and we show it, too; one that is
/// really damaged is reported as a damaged UBIFS, not as something unknown.
#[test]
fn a_page_without_its_codes_does_not_hide_a_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let format = &formats()[0];
    let good = dump(&small_ubi(folder), format);
    let content = std::fs::read(folder.join("tree/file")).unwrap();
    let at = superblock(&good, 528);

    let mut bytes = good.clone();
    for place in format.oob.ecc.iter().flat_map(Clone::clone) {
        bytes[at + 512 + place] ^= 0x5A;
    }
    std::fs::write(folder.join("image"), &bytes).unwrap();
    let info = run_in("image info image", folder);
    assert_eq!((info.status, &info.stderr[..]), (0, ""), "{}", info.stdout);
    assert!(info.stdout.contains("ubifs") && info.stdout.contains("15872"), "{}", info.stdout);
    let ran = run_in("image extract image -o out", folder);
    assert_eq!((ran.status, &ran.stderr[..]), (0, ""));
    assert_eq!(std::fs::read(folder.join("out/file")).unwrap(), content);

    // Two bits in one step: more than can be corrected.
    let mut bytes = good;
    bytes[at + 300] ^= 1;
    bytes[at + 310] ^= 8;
    std::fs::write(folder.join("image"), &bytes).unwrap();
    let info = run_in("image info image", folder);
    assert_eq!(info.status, 1);
    assert!(info.stderr.contains("volume root: the superblock is damaged"), "{}", info.stderr);
    assert!(!info.stdout.contains("UUID"), "nothing is made up:\n{}", info.stdout);
    let ran = run_in("image check image", folder);
    assert!(ran.status == 1 && ran.stdout.contains("root: superblock: bad CRC"), "{}", ran.stdout);
    let ran = run_in("image extract image -o damaged", folder);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert_eq!(std::fs::read(folder.join("damaged/file")).unwrap(), content);
}

/// An old chip: a flipped bit in every step.
#[test]
fn codes_are_found_where_every_step_has_a_bit_to_correct() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let main = small_ubi(folder);
    let content = std::fs::read(folder.join("tree/file")).unwrap();
    let mut noise = Noise::new(8);
    for (number, format) in formats().iter().enumerate().filter(|(_, it)| it.ecc.strength() > 0) {
        let mut bytes = dump(&main, format);
        let (page, step) = (format.page_size as usize, format.ecc.step());
        for whole in bytes.chunks_mut(page + format.oob.size) {
            for step in whole[..page].chunks_mut(step) {
                let at = noise.next() as usize % step.len();
                step[at] ^= 1 << (noise.next() % 8);
            }
        }
        std::fs::write(folder.join("image"), &bytes).unwrap();
        let found = Image::open(&folder.join("image"), &ImageOpenOptions::default()).unwrap();
        let found = found.page_format.expect("out-of-band bytes");
        assert_eq!((found.page_size, found.oob.size), (format.page_size, format.oob.size));
        assert_eq!((found.ecc.strength(), found.ecc.step()), (format.ecc.strength(), step));
        let out = format!("out{number}");
        let ran = run_in(&format!("image extract image -o {out}"), folder);
        assert_eq!((ran.status, &ran.stderr[..]), (0, ""), "{}", format.ecc);
        assert_eq!(std::fs::read(folder.join(out).join("file")).unwrap(), content);
    }
}

#[test]
fn error_correction_can_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("image"), dump(&small_ubi(folder), &formats()[2])).unwrap();
    for (options, status, told) in [
        ("", 0, "BCH, 4 bits per 512 bytes"),
        ("--ecc bch-4-512", 0, "BCH, 4 bits per 512 bytes"),
        ("--ecc bch-4-512 --page-size 2048 --oob-size 64", 0, "BCH, 4 bits per 512 bytes"),
        ("--ecc none", 0, "no known ECC"),
        ("--ecc hamming-256", 1, "no pages with such out-of-band bytes and error correction"),
        ("--oob-size 200", 1, "no pages with such out-of-band bytes"),
        ("--ecc hamming", 2, "there are: none, hamming-256, hamming-512, smartmedia-256"),
        ("--ecc bch-4-100", 2, "bch-BITS-BYTES"),
        ("--ecc none --no-oob", 2, "cannot be used with"),
    ] {
        let ran = run_in(&format!("image info image {options}"), folder);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.status, status, "{options}: {text}");
        assert!(text.contains(told), "{options}: {text}");
    }
}

/// Nothing is reported without evidence.
#[test]
fn nothing_is_made_up_of_what_does_not_tell() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ubi = small_ubi(folder);
    std::fs::write(folder.join("one"), &ubi[..16 << 10]).unwrap();
    std::fs::write(folder.join("erased"), vec![0xFF; 1 << 20]).unwrap();
    std::fs::write(folder.join("spare.bin"), [7; 900]).unwrap();
    let volume = "[v]\nmode=ubi\nimage=spare.bin\nvol_id=0\nvol_type=static\nvol_name=spare\n";
    std::fs::write(folder.join("ini"), volume).unwrap();
    let ran = run_in("image create ubi -p 1024 -m 1 -o tiny ini", folder);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    // Ten blocks at the start of a chip that is otherwise erased.
    let chip = [&ubi[..], &vec![0xFF; 4 << 20]].concat();
    std::fs::write(folder.join("chip"), chip).unwrap();
    for (image, status, told) in [
        ("ubi --erase-size 8KiB", 1, "erase blocks of 8192 bytes: those in the image have 16384"),
        ("ubi --erase-size 32KiB", 1, "erase blocks of 32768 bytes: those in the image have 16384"),
        (
            "ubi --erase-size 100000",
            1,
            "erase blocks of 100000 bytes: those in the image have 16384",
        ),
        ("ubi --page-size 2048", 1, "UBI's data begins at byte 512 of each block"),
        ("ubi --erase-size 16KiB", 0, "erase block               16384"),
        ("fs --erase-size 64KiB", 1, "erase blocks of 65536 bytes: those in the image have 15872"),
        ("tiny", 0, "erase block               1024"),
        ("chip", 0, "erase block               16384"),
        ("one", 1, "there is only one UBI header"),
        ("erased", 1, "holds nothing but erased bytes (0xFF)"),
        ("/dev/zero", 1, "neither a file nor a block device"),
        ("/dev/null", 1, "neither a file nor a block device"),
    ] {
        let ran = run_in(&format!("image info {image}"), folder);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.status, status, "{image}: {text}");
        assert!(text.contains(told), "{image}: {text}");
    }
}

/// If volumes cannot be identified for certain, extraction says so; a volume without a file system
/// becomes a file with its name, or nothing.
#[test]
fn extraction_names_what_it_could_not_make() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut ubi = small_ubi(folder);
    // A record in the second copy of the volume table, in the second block.
    ubi[(16 << 10) + 512 + 40] ^= 1;
    std::fs::write(folder.join("image"), &ubi).unwrap();
    let ran = run_in("image extract image -o out", folder);
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("volume table: record 0"), "{}", ran.stderr);
    assert!(folder.join("out/file").exists(), "all the same it is there");

    let content = Noise::new(6).bytes(30_000);
    std::fs::write(folder.join("fs"), &content).unwrap();
    let ran = run_in("image create ubi -p 16KiB -m 512 -s 256 -o ubi ini", folder);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let mut bytes = dump(&std::fs::read(folder.join("ubi")).unwrap(), &formats()[0]);
    std::fs::write(folder.join("image"), &bytes).unwrap();
    let ran = run_in("image extract image -o raw", folder);
    assert_eq!((ran.status, &ran.stderr[..]), (0, ""));
    assert_eq!(std::fs::read(folder.join("raw/root.bin")).unwrap()[..30_000], content);
    let at = bytes.windows(16).position(|bytes| bytes == &content[512..528]).unwrap();
    bytes[at] ^= 3;
    std::fs::write(folder.join("image"), &bytes).unwrap();
    let ran = run_in("image extract image -o lost", folder);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("/root.bin: more bit errors at"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(folder.join("lost")).unwrap().count(), 0);
    let ran = run_in("image extract image -o kept --keep-damaged", folder);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(folder.join("kept/root.bin").exists());
}
