use std::os::unix::fs::MetadataExt as _;

use flysch_api::vfs::{DeviceNumber, FileSystemMut, NewFile, Timestamp};
use flysch_vfs::Memory;

use super::*;
use crate::path::resolve;
use crate::{ImageOpenOptions, ImageVolume, testing};

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

fn new(kind: FileKind, permissions: u16, owner: u32) -> NewFile<'static> {
    NewFile { kind, permissions, owner, group: 0, device: DeviceNumber::default(), target: b"" }
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

/// No call sets this owner, whoever makes it.
#[test]
fn a_file_without_its_owner_does_not_run_as_another() {
    let mut fs = Memory::new(1 << 20, NOW);
    let root = fs.statistics().root;
    for (name, kind) in [("su", FileKind::Regular), ("pipe", FileKind::Fifo)] {
        fs.create(root, name.as_bytes(), &new(kind, 0o6755, u32::MAX), NOW).unwrap();
    }
    fs.create(root, b"d", &new(FileKind::Directory, 0o3755, u32::MAX), NOW).unwrap();
    fs.create(root, b"plain", &new(FileKind::Regular, 0o644, u32::MAX), NOW).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let done = extract(&fs, &out, &ExtractOptions::default(), &Progress::default()).unwrap();
    assert_eq!(done.failures, []);
    let modes = ["su", "pipe", "d", "plain"].map(|name| mode(&out.join(name)));
    assert_eq!(modes, [0o755, 0o755, 0o1755, 0o644]);
    assert_eq!(done.without_set_id, 3);
}

/// A file system in the file `image`.
fn opened(image: &Path) -> crate::SharedFileSystem {
    let image = crate::Image::open(image, &ImageOpenOptions::default()).unwrap();
    image.volumes().find_map(ImageVolume::file_system).unwrap()
}

#[test]
fn a_directory_that_lost_its_attributes_is_open_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("private/below")).unwrap();
    std::fs::write(tree.join("private/below/file"), "secret").unwrap();
    let image = folder.path().join("image");
    testing::ubifs(&tree, &image, 64);
    let inode = resolve(&*opened(&image), b"/private").unwrap();
    for (number, path) in [(inode.0, "private"), (1, "")] {
        testing::spoil_inode(&image, number as u32);
        let fs = opened(&image);
        let out = folder.path().join(format!("out-{number}"));
        let done = extract(&*fs, &out, &ExtractOptions::default(), &Progress::default()).unwrap();
        let failure = done.failures.iter().find(|it| it.path == path.as_bytes()).unwrap();
        assert!(failure.is_partial);
        let expected = "its owner, permissions and times are lost: ";
        assert!(failure.cause.starts_with(expected), "{}", failure.cause);
        assert_eq!(mode(&out.join(path)), 0o700, "{path}");
        assert_eq!(mode(&out.join("private/below")), 0o755);
        assert_eq!(std::fs::read(out.join("private/below/file")).unwrap(), b"secret");
    }
}

/// Formats differ in how much of a hole they store.
#[test]
fn the_bytes_of_a_tree_are_those_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 2 << 20).unwrap();
    sparse.set_len(5 << 20).unwrap();
    std::fs::write(tree.join("small"), [7; 1000]).unwrap();
    std::fs::hard_link(tree.join("small"), tree.join("same")).unwrap();
    let image = folder.path().join("image");
    testing::ubifs(&tree, &image, 64);
    let made = crate::create::Tree::from_directory(&tree, &Default::default()).unwrap();
    let options = ExtractOptions::default();
    let out = folder.path().join("out");
    let done = extract(&*opened(&image), &out, &options, &Progress::default()).unwrap();
    assert_eq!((done.bytes, made.bytes()), ((5 << 20) + 1000, (5 << 20) + 1000));
    assert_eq!(out.join("sparse").metadata().unwrap().len(), 5 << 20);
}

#[test]
fn a_damaged_file_is_there_in_part_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), [0x5A; 20_000]).unwrap();
    let image = folder.path().join("image");
    testing::ubifs(&tree, &image, 64);
    let mut bytes = std::fs::read(&image).unwrap();
    let at = bytes.windows(4096).position(|it| it == [0x5A; 4096]).unwrap();
    bytes[at] = 0;
    std::fs::write(&image, bytes).unwrap();
    for keep_damaged in [false, true] {
        let options = ExtractOptions { keep_damaged, ..ExtractOptions::default() };
        let out = folder.path().join(format!("out-{keep_damaged}"));
        let done = extract(&*opened(&image), &out, &options, &Progress::default()).unwrap();
        let failures: Vec<_> = done.failures.iter().map(|it| it.is_partial).collect();
        assert_eq!(failures, [keep_damaged]);
        assert_eq!(out.join("file").exists(), keep_damaged);
    }
}
