//! JFFS2 images made by mtd-utils: what comes out is what went in.

use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::{FileKind, FileSystem, FileSystemMut, NewFile, Timestamp};
use flysch_jffs2::{Jffs2, Jffs2Mut, WriteOptions};
use flysch_mtd::FlashImage;

use crate::image_common::{
    differences, extract, has_mtd_utils, make_tree, mkfs_jffs2, open, run, snapshot, wrong,
};

/// Options of mkfs.jffs2, and of sumtool if it is to run.
const KINDS: [(&[&str], Option<&[&str]>); 12] = [
    (&["-e", "64KiB", "-l"], None),
    (&["-e", "64KiB", "-b"], None),
    (&["-e", "16KiB", "-l", "-n"], None),
    (&["-e", "128KiB", "-b", "-p"], None),
    (&["-e", "1MiB", "-l", "-n", "-p"], None),
    (&["-e", "64KiB", "-l", "-m", "none"], None),
    (&["-e", "64KiB", "-b", "-x", "zlib", "-x", "rtime", "-X", "lzo"], None),
    (&["-e", "64KiB", "-l", "-x", "zlib", "-x", "lzo", "-X", "rtime"], None),
    (&["-e", "64KiB", "-l", "-X", "lzo", "-m", "size"], None),
    (&["-e", "16KiB", "-l"], Some(&["-e", "16KiB", "-l", "-p"])),
    (&["-e", "128KiB", "-b", "-n"], Some(&["-e", "128KiB", "-b", "-n", "-p"])),
    (&["-e", "64KiB", "-l", "-m", "none"], Some(&["-e", "64KiB", "-l"])),
];

#[test]
fn every_kind_of_image_comes_out_as_it_went_in() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    make_tree(&tree);
    let before = snapshot(&tree);
    for (number, (mkfs, sumtool)) in KINDS.iter().enumerate() {
        let mut image = folder.path().join(format!("image{number}"));
        mkfs_jffs2(&tree, &image, mkfs);
        if let Some(arguments) = sumtool {
            let with_summary = folder.path().join(format!("summary{number}"));
            let files = ["-i", image.to_str().unwrap(), "-o", with_summary.to_str().unwrap()];
            run("sumtool", &[arguments, &files[..]].concat());
            image = with_summary;
        }
        let out = folder.path().join(format!("out{number}"));
        let extraction = extract(&image, &out);
        assert_eq!(extraction.failures, [], "{mkfs:?} {sumtool:?}");
        let different = differences(&before, &snapshot(&out));
        assert!(different.is_empty(), "{mkfs:?} {sumtool:?}:\n{}", different.join("\n"));
        assert_eq!(wrong(&image), [""; 0], "{mkfs:?} {sumtool:?}");
        let report = flysch_vfs::verify(&*open(&image));
        assert_eq!(report.violations, [], "{mkfs:?} {sumtool:?}");
        assert_eq!(report.files, before.len() as u64 + 1);
    }
}

/// Proves the comparison above: it detects each of these.
#[test]
fn a_planted_difference_is_seen() {
    use std::os::unix::fs::PermissionsExt;
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    make_tree(&tree);
    let before = snapshot(&tree);
    mkfs_jffs2(&tree, &image, &["-e", "64KiB", "-l"]);
    let plant = |number: u32, change: &dyn Fn(&std::path::Path)| {
        let out = folder.path().join(format!("planted{number}"));
        extract(&image, &out);
        change(&out);
        let different = differences(&before, &snapshot(&out));
        assert!(!different.is_empty(), "change {number} was not seen");
    };
    let no_flags = rustix::fs::XattrFlags::empty();
    plant(0, &|out| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(out.join("random")).unwrap();
        let metadata = file.metadata().unwrap();
        file.write_all_at(&[metadata.len() as u8], 77_777).unwrap();
        file.set_modified(metadata.modified().unwrap()).unwrap();
    });
    plant(1, &|out| {
        let path = out.join("size 0");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    });
    plant(2, &|out| std::fs::remove_file(out.join("socket")).unwrap());
    plant(3, &|out| std::fs::write(out.join("new"), b"").unwrap());
    plant(4, &|out| rustix::fs::setxattr(out.join("sub"), "user.x", b"", no_flags).unwrap());
    plant(5, &|out| {
        let content = std::fs::read(out.join("link")).unwrap();
        std::fs::remove_file(out.join("link")).unwrap();
        std::fs::write(out.join("link"), content).unwrap();
    });
}

/// Damage in an image is named, and nothing wrong is extracted.
#[test]
fn damage_costs_what_it_hits() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    make_tree(&tree);
    let before = snapshot(&tree);
    mkfs_jffs2(&tree, &image, &["-e", "64KiB", "-l", "-x", "rtime"]);
    let good = std::fs::read(&image).unwrap();
    let mut noise = crate::image_common::Noise::new(11);
    for round in 0..24 {
        let mut bytes = good.clone();
        let block = noise.next() as usize % (bytes.len() >> 16);
        match round % 4 {
            0 => bytes[block << 16..(block + 1) << 16].fill(0xFF),
            1 => bytes.truncate(bytes.len() / 2 + noise.next() as usize % 1000),
            2 => bytes[(block << 16) + 1000..(block << 16) + 1512].fill(0),
            _ => {
                for _ in 0..10 {
                    let at = noise.next() as usize % bytes.len();
                    bytes[at] ^= 1 << (noise.next() % 8);
                }
            }
        }
        let (damaged, out) =
            (folder.path().join("damaged"), folder.path().join(format!("out{round}")));
        std::fs::write(&damaged, bytes).unwrap();
        let extraction = extract(&damaged, &out);
        let after = snapshot(&out);
        assert!(after.len() * 2 > before.len() || round % 4 == 1, "round {round}: most is there");
        for (path, seen) in &after {
            // Names in a directory that is itself lost have no place; everything else is unchanged,
            // except names and attributes whose own nodes are lost.
            let name = path.to_str().map(str::to_string);
            let is_named = extraction
                .failures
                .iter()
                .any(|failure| std::str::from_utf8(&failure.path).ok() == name.as_deref());
            if !is_named {
                let content = seen.content();
                assert_eq!(Some(content), before.get(path).map(|b| b.content()), "{path:?}");
            }
        }
        if after != before {
            assert!(!wrong(&damaged).is_empty() || round % 4 == 1, "round {round}: not noticed");
        }
    }
}

/// mkfs puts the time of a file into its entry, and numbers entries as if Linux continued in the
/// directory that it filled last. Later files there are nevertheless distinguished from them.
#[test]
fn a_directory_of_mkfs_has_the_time_of_what_was_made_in_it_since() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    std::fs::create_dir_all(tree.join("d")).unwrap();
    for name in ["a", "d/x", "d/y"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    std::fs::hard_link(tree.join("a"), tree.join("d/z")).unwrap();
    mkfs_jffs2(&tree, &image, &["-e", "64KiB", "-l", "-n"]);
    let mut bytes = std::fs::read(&image).unwrap();
    bytes.resize(8 << 16, 0xff);
    let mut flash = FlashImage::new(bytes, FlashGeometry::nor(8 << 16, 64 << 10));
    let time = |fs: &dyn FileSystem| {
        let directory = fs.lookup(fs.statistics().root, b"d").unwrap();
        (directory, fs.attributes(directory).unwrap().modified.seconds)
    };
    let made = time(&Jffs2::mount(flash.clone(), None).unwrap()).1;
    for step in 0..3 {
        let now = Timestamp { seconds: 1_900_000_000 + step, nanoseconds: 0 };
        let mut fs = Jffs2Mut::mount(flash, &WriteOptions::default()).unwrap();
        let (directory, before) = time(&fs);
        assert_eq!(before, if step == 0 { made } else { now.seconds - 1 });
        let new = NewFile {
            kind: FileKind::Regular,
            permissions: 0o644,
            owner: 0,
            group: 0,
            device: Default::default(),
            target: b"",
        };
        let _ = fs.create(directory, format!("new{step}").as_bytes(), &new, now).unwrap();
        fs.sync(None).unwrap();
        flash = fs.into_flash();
        assert_eq!(time(&Jffs2::mount(flash.clone(), None).unwrap()).1, now.seconds);
    }
}
