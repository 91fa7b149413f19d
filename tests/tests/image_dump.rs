//! Raw dumps: out-of-band bytes between the pages, error correction, a prefix, several contents.

mod image_common;

use std::path::Path;

use flysch_image::{Image, Options};
use flysch_mtd::{Bch, Ecc, OobLayout, PageFormat};
use image_common::{
    Noise, differences, extract, has_mtd_utils, make_tree, mkfs_jffs2, run, snapshot,
    without_xattrs, wrong,
};

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

/// `main` as a chip with pages of `format` holds it.
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
            let found = Image::open(&image, &Options::default()).unwrap().page_format.unwrap();
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
            let image = Image::open_with_oob(&path, &oob_path, &Options::default()).unwrap();
            let found = image.page_format.as_ref().unwrap();
            assert_eq!(found.ecc.strength(), format.ecc.strength(), "{name} {}", format.ecc);
            if format.ecc.strength() > 0 {
                assert_eq!((found.page_size, found.oob.size), (format.page_size, format.oob.size));
            }
            let fs = image.volumes().find_map(flysch_image::Volume::file_system).unwrap();
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
            let error = Image::open_with_oob(&path, &oob_path, &Options::default()).unwrap_err();
            assert!(error.to_string().contains("no page size goes with that"), "{error}");
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
    let image = Image::open(&path, &Options::default()).unwrap();
    let formats: Vec<_> = image.volumes().map(flysch_image::Volume::format).collect();
    assert_eq!(formats, ["jffs2", "ubifs"]);
    assert_eq!(flysch_image::names(&image), ["jffs2", "root"]);
    for (number, fs) in image.volumes().filter_map(flysch_image::Volume::file_system).enumerate() {
        let out = folder.path().join(format!("out{number}"));
        let options = flysch_image::ExtractOptions::default();
        let extraction =
            flysch_image::extract(&*fs, &out, &options, &flysch_image::Progress::default());
        assert_eq!(extraction.unwrap().failures, []);
        assert_eq!(snapshot(&out).len(), before.len());
    }
}
