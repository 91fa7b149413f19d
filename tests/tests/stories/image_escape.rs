//! Malicious images: nothing is written outside the directory, and nothing runs forever.

use std::path::Path;

use crate::image_common::{Noise, extract, open};
use flysch_wire::jffs2::{ByteOrder, Compression, Dirent, Inode};

const ORDER: ByteOrder = ByteOrder::Little;
const FILE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_755;
const SYMLINK: u32 = 0o120_777;

/// A JFFS2 built node by node.
#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
    version: u32,
}

impl Image {
    fn push(&mut self, node: &[u8]) {
        self.bytes.extend_from_slice(node);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0xFF);
    }

    fn name(&mut self, directory: u32, name: &[u8], ino: u32, mode: u32) {
        self.version += 1;
        let dirent = Dirent {
            pino: directory,
            version: self.version,
            ino,
            mctime: 0,
            nsize: 0,
            kind: (mode >> 12) as u8,
            name_crc: 0,
        };
        let mut node = [0; Dirent::LEN + 255];
        let len = dirent.emit(name, ORDER, &mut node);
        self.push(&node[..len]);
    }

    fn inode(&mut self, ino: u32, mode: u32, data: &[u8]) {
        self.version += 1;
        let inode = Inode {
            ino,
            version: self.version,
            mode,
            uid: 0,
            gid: 0,
            isize: data.len() as u32,
            atime: 0,
            mtime: 0,
            ctime: 0,
            offset: 0,
            csize: 0,
            dsize: data.len() as u32,
            compression: Compression::None,
            user_compression: 0,
            flags: 0,
            data_crc: 0,
        };
        let mut node = vec![0; Inode::LEN + data.len()];
        inode.emit(data, ORDER, &mut node);
        self.push(&node);
    }

    fn write(&self, path: &Path) {
        std::fs::write(path, &self.bytes).unwrap();
    }
}

/// Everything below a directory, with contents.
fn everything(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = vec![];
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { vec![] };
        found.push((path.display().to_string(), content));
        if metadata.is_dir() {
            found.extend(everything(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn no_name_and_no_link_leads_out() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("victim"), b"untouched").unwrap();
    let mut image = Image::default();
    // Names that lead elsewhere.
    for (ino, name) in [(10, &b"../outside/victim"[..]), (11, b".."), (12, b"."), (13, b"a/b")] {
        image.name(1, name, ino, FILE);
        image.inode(ino, FILE, b"evil");
    }
    let absolute = outside.join("victim").display().to_string();
    image.name(1, absolute.as_bytes(), 14, FILE);
    image.inode(14, FILE, b"evil");
    image.name(1, b"nul\0outside", 15, FILE);
    image.inode(15, FILE, b"evil");
    // A symlink, then files that would be written through it if it were followed: the inode is a
    // symlink where the entry says directory, and the other way round.
    let target = outside.display().to_string();
    image.name(1, b"way out", 20, DIRECTORY);
    image.inode(20, SYMLINK, target.as_bytes());
    image.name(20, b"victim", 21, FILE);
    image.inode(21, FILE, b"evil");
    image.name(1, b"way in", 22, SYMLINK);
    image.inode(22, DIRECTORY, b"");
    image.name(22, b"victim", 23, FILE);
    image.inode(23, FILE, b"evil");
    image.name(1, b"link", 24, SYMLINK);
    image.inode(24, SYMLINK, format!("{target}/victim").as_bytes());
    image.name(1, b"good", 30, FILE);
    image.inode(30, FILE, b"good");
    let path = folder.path().join("image");
    image.write(&path);

    let before = everything(&outside);
    let out = folder.path().join("out");
    let extraction = extract(&path, &out);
    assert_eq!(everything(&outside), before);
    let names: Vec<String> = everything(&out)
        .into_iter()
        .map(|(name, _)| name.replace(&out.display().to_string(), ""))
        .collect();
    assert_eq!(names, ["/good", "/link"], "{:?}", extraction.failures);
    assert_eq!(std::fs::read_link(out.join("link")).unwrap(), outside.join("victim"));
    let mut top: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    top.sort();
    assert_eq!(top, ["image", "out", "outside"]);
}

/// What Linux drops is shown on request, and only then.
#[test]
fn files_without_a_name_are_shown_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::default();
    image.name(1, b"file", 2, FILE);
    image.inode(2, FILE, b"named");
    image.name(1, b"lost+found", 3, FILE);
    image.inode(3, FILE, b"in the way");
    image.name(1, b"deleted", 4, FILE);
    image.inode(4, FILE, b"deleted");
    image.name(1, b"deleted", 0, 0);
    image.inode(5, DIRECTORY, b"");
    image.name(5, b"inside", 6, FILE);
    image.inode(6, FILE, b"inside");
    let path = folder.path().join("image");
    image.write(&path);
    let opened =
        flysch_image::Image::open(&path, &flysch_image::ImageOpenOptions::default()).unwrap();
    let volume = opened.volumes().next().unwrap();
    let shown = |fs: flysch_image::SharedFileSystem, name: &str| {
        let out = folder.path().join(name);
        let options = flysch_image::ExtractOptions::default();
        let extraction =
            flysch_image::extract(&*fs, &out, &options, &flysch_image::Progress::default());
        assert_eq!(extraction.unwrap().failures, []);
        assert_eq!(flysch_vfs::verify(&*fs).violations, []);
        let prefix = format!("{}/", out.display());
        everything(&out)
            .into_iter()
            .map(|(path, content)| (path.replace(&prefix, ""), content))
            .filter(|(_, content)| !content.is_empty())
            .map(|(path, content)| format!("{path}: {}", String::from_utf8_lossy(&content)))
            .collect::<Vec<_>>()
    };
    let named = ["file: named", "lost+found: in the way"];
    assert_eq!(shown(volume.file_system().unwrap(), "without"), named);
    let all = [
        "file: named",
        "lost+found: in the way",
        "lost+found-2/#4: deleted",
        "lost+found-2/#5/inside: inside",
    ];
    assert_eq!(shown(volume.file_system_with_lost().unwrap(), "with"), all);
}

#[test]
fn a_directory_that_holds_something_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::default();
    image.name(1, b"f", 2, FILE);
    image.inode(2, FILE, b"x");
    let path = folder.path().join("image");
    image.write(&path);
    let fs = open(&path);
    let options = flysch_image::ExtractOptions::default();
    let progress = flysch_image::Progress::default();
    let error = flysch_image::extract(&*fs, folder.path(), &options, &progress).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(!folder.path().join("f").exists());
}

#[test]
fn loops_and_bottomless_trees_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::default();
    // A directory in itself, two in each other, one with two names, the root inside the tree.
    for (directory, name, ino) in [
        (1, &b"self"[..], 10),
        (10, b"again", 10),
        (1, b"a", 11),
        (11, b"b", 12),
        (12, b"a", 11),
        (1, b"second name", 12),
        (1, b"root", 1),
    ] {
        image.name(directory, name, ino, DIRECTORY);
        image.inode(ino, DIRECTORY, b"");
    }
    // And a chain that is too deep for a path.
    for depth in 0..3000 {
        let ino = 100 + depth;
        image.name(if depth == 0 { 1 } else { ino - 1 }, b"d", ino, DIRECTORY);
        image.inode(ino, DIRECTORY, b"");
    }
    let path = folder.path().join("image");
    image.write(&path);
    let out = folder.path().join("out");
    let extraction = extract(&path, &out);
    assert!(extraction.files > 1000, "{extraction:?}");
    let cause = |text: &str| extraction.failures.iter().any(|f| f.cause.contains(text));
    assert!(cause("another name"), "{:?}", extraction.failures);
    assert!(cause("deeper than"), "{:?}", extraction.failures);
    assert!(out.join("a").is_dir() && out.join("self").is_dir());
    assert!(!crate::image_common::wrong(&path).is_empty());
    // The tests' own clean-up should not depend on the depth that it supports.
    std::process::Command::new("rm").arg("-rf").arg(&out).status().unwrap();
}

/// Files as large as the format permits, in a few bytes of image, take no space and no time.
#[test]
fn large_holes_cost_nothing() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::default();
    image.name(1, b"huge", 2, FILE);
    let inode = Inode {
        ino: 2,
        version: 1,
        mode: FILE,
        uid: 0,
        gid: 0,
        isize: u32::MAX,
        atime: 0,
        mtime: 0,
        ctime: 0,
        offset: 0,
        csize: 0,
        dsize: u32::MAX,
        compression: Compression::Zero,
        user_compression: 0,
        flags: 0,
        data_crc: 0,
    };
    let mut node = [0; Inode::LEN];
    inode.emit(&[], ORDER, &mut node);
    image.push(&node);
    let path = folder.path().join("image");
    image.write(&path);
    let out = folder.path().join("out");
    assert_eq!(extract(&path, &out).failures, []);
    let metadata = out.join("huge").metadata().unwrap();
    assert_eq!((metadata.len(), metadata.blocks()), (u64::from(u32::MAX), 0));
}

/// Whatever happens to the bytes of an image, reading it ends, and stays inside the directory.
#[test]
fn mutated_images_stay_inside() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::default();
    for ino in 2..30 {
        let mode = [FILE, DIRECTORY, SYMLINK][ino as usize % 3];
        let directory = if ino > 10 { 4 + ino % 3 * 3 } else { 1 };
        image.name(directory, format!("name {ino}").as_bytes(), ino, mode);
        image.inode(ino, mode, if mode == DIRECTORY { b"" } else { b"../../outside" });
    }
    let mut noise = Noise::new(5);
    let path = folder.path().join("image");
    for round in 0..400 {
        let mut bytes = image.bytes.clone();
        for _ in 0..1 + noise.next() % 8 {
            let at = noise.next() as usize % bytes.len();
            bytes[at] = noise.next() as u8;
        }
        std::fs::write(&path, &bytes).unwrap();
        let options = flysch_image::ImageOpenOptions::default();
        let Ok(opened) = flysch_image::Image::open(&path, &options) else { continue };
        flysch_image::check(&opened, &mut |_| {});
        let out = folder.path().join("out");
        for fs in opened.volumes().filter_map(flysch_image::ImageVolume::file_system) {
            let options = flysch_image::ExtractOptions { threads: 1, keep_damaged: round % 2 == 0 };
            let progress = flysch_image::Progress::default();
            flysch_image::extract(&*fs, &out, &options, &progress).unwrap();
            flysch_vfs::verify(&*fs);
        }
        let _ = std::fs::remove_dir_all(&out);
        let mut top: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        top.sort();
        assert_eq!(top, ["image"], "round {round}");
    }
}
