//! JFFS2 images made here: identical to those of mkfs.jffs2 where they should be, and valid
//! according to mtd-utils where they are not.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::image_common::{
    differences, extract, has_mtd_utils, make_tree, mkfs_jffs2, run, snapshot, wrong,
};
use flysch_api::vfs::{DeviceNumber, FileKind, NewFile, Timestamp};
use flysch_jffs2::create::{Content, Entry, Jffs2Builder, Jffs2Options, Padding, summarize};
use flysch_jffs2::{Compressor, Compressors, Mode};
use flysch_wire::jffs2::{ByteOrder, ROOT_INO};

/// A tree on its way into an image, in the order of mkfs.jffs2: all entries of a directory, then
/// its subdirectories one after the other.
struct Walk<'b, S> {
    builder: &'b mut Jffs2Builder<S>,
    links: BTreeMap<u64, u32>,
    /// Access times before anything was read.
    accessed: &'b BTreeMap<PathBuf, i64>,
    /// mkfs.jffs2 writes the attributes of a non-empty directory twice.
    twice: bool,
}

/// Access times of a tree.
fn access_times(path: &Path, times: &mut BTreeMap<PathBuf, i64>) {
    let metadata = fs::symlink_metadata(path).unwrap();
    times.insert(path.to_path_buf(), metadata.atime());
    if metadata.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| access_times(&entry.unwrap().path(), times));
    }
}

impl<S: FnMut(&[u8]) -> io::Result<()>> Walk<'_, S> {
    fn directory(&mut self, path: &Path, ino: u32) {
        let mut names: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        if self.twice && ino != ROOT_INO && !names.is_empty() {
            self.xattrs(path, ino);
        }
        let mut directories = vec![];
        for path in names {
            if let Some(directory) = self.entry(&path, ino) {
                directories.push((path, directory));
            }
        }
        for (path, directory) in directories {
            self.directory(&path, directory);
        }
    }

    /// Adds one file; returns its inode if it is a directory.
    fn entry(&mut self, path: &Path, parent: u32) -> Option<u32> {
        let metadata = fs::symlink_metadata(path).unwrap();
        let target = fs::read_link(path).unwrap_or_default();
        let name = path.file_name().unwrap().as_bytes();
        let mut entry = entry(parent, name, &metadata, target.as_os_str().as_bytes());
        if let Some(&seconds) = self.accessed.get(path) {
            entry.accessed = Timestamp { seconds, nanoseconds: 0 };
        }
        if let Some(&ino) = self.links.get(&metadata.ino()) {
            self.builder.link(&entry, ino).unwrap();
            return None;
        }
        let mut file = metadata.is_file().then(|| fs::File::open(path).unwrap());
        let mut read = |buffer: &mut [u8]| file.as_mut().unwrap().read(buffer);
        let content =
            metadata.is_file().then_some(Content { size: metadata.len(), read: &mut read });
        let ino = self.builder.add(&entry, content).unwrap();
        self.links.insert(metadata.ino(), ino);
        self.xattrs(path, ino);
        metadata.is_dir().then_some(ino)
    }

    fn xattrs(&mut self, path: &Path, ino: u32) {
        let (mut names, mut value) = ([0; 1000], [0; 5000]);
        let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
        for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            self.builder.xattr(ino, name, &value[..len]).unwrap();
        }
    }
}

fn entry<'a>(parent: u32, name: &'a [u8], metadata: &fs::Metadata, target: &'a [u8]) -> Entry<'a> {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () if kind.is_char_device() => FileKind::CharacterDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () => FileKind::Regular,
    };
    let time = |seconds| Timestamp { seconds, nanoseconds: 0 };
    let file = NewFile {
        kind,
        permissions: (metadata.mode() & 0o7777) as u16,
        owner: metadata.uid(),
        group: metadata.gid(),
        device: DeviceNumber::from_huge(metadata.rdev()),
        target,
    };
    Entry {
        parent,
        name,
        file,
        accessed: time(metadata.atime()),
        modified: time(metadata.mtime()),
        changed: time(metadata.ctime()),
    }
}

fn create(tree: &Path, image: &Path, options: Jffs2Options, accessed: &BTreeMap<PathBuf, i64>) {
    let twice = options.as_mkfs;
    let mut out = fs::File::create(image).unwrap();
    let sink = |bytes: &[u8]| io::Write::write_all(&mut out, bytes);
    let mut builder = Jffs2Builder::new(options, sink).unwrap();
    let metadata = fs::metadata(tree).unwrap();
    builder.root(&entry(0, b"", &metadata, b"")).unwrap();
    let mut walk = Walk { builder: &mut builder, links: BTreeMap::new(), accessed, twice };
    walk.xattrs(tree, ROOT_INO);
    walk.directory(tree, ROOT_INO);
    builder.finish().unwrap();
}

/// mkfs.jffs2 without compression and with rtime, where the results depend only on the format.
#[test]
#[ignore = "differs in times of last reads so far"]
fn the_bytes_of_mkfs_where_only_the_format_decides() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, theirs, ours) =
        (folder.path().join("tree"), folder.path().join("theirs"), folder.path().join("ours"));
    make_tree(&tree);
    let base =
        Jffs2Options { as_mkfs: true, compressors: Compressors::none(), ..Jffs2Options::default() };
    let cases: [(&[&str], Jffs2Options); 4] = [
        (&["-e", "64KiB", "-l", "-m", "none"], base.clone()),
        (
            &["-e", "16KiB", "-b", "-n", "-p", "-m", "none"],
            Jffs2Options {
                order: ByteOrder::Big,
                erase_size: 16 << 10,
                cleanmarker_len: 0,
                padding: Padding::Block,
                ..base.clone()
            },
        ),
        (
            &["-e", "128KiB", "-l", "-c", "32", "--pad=0x1000000", "-m", "none"],
            Jffs2Options {
                erase_size: 128 << 10,
                cleanmarker_len: 32,
                padding: Padding::To(0x100_0000),
                ..base.clone()
            },
        ),
        (
            &["-e", "64KiB", "-l", "-q", "-m", "none"],
            Jffs2Options { squash_owners: true, squash_permissions: true, ..base },
        ),
    ];
    for (arguments, options) in cases {
        // Reading the tree changes access times.
        let mut accessed = BTreeMap::new();
        // Again, since listing directories counts as reading.
        access_times(&tree, &mut accessed);
        access_times(&tree, &mut accessed);
        mkfs_jffs2(&tree, &theirs, arguments);
        create(&tree, &ours, options, &accessed);
        let (theirs, ours) = (fs::read(&theirs).unwrap(), fs::read(&ours).unwrap());
        let first = theirs.iter().zip(&ours).position(|(a, b)| a != b);
        assert_eq!((first, ours.len()), (None, theirs.len()), "{arguments:?}");
    }
}

#[test]
fn what_was_made_comes_out_as_it_went_in_and_mtd_utils_agree() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    make_tree(&tree);
    let before = snapshot(&tree);
    let all = Compressor::ALL.to_vec();
    let with = |mode| Compressors { mode, enabled: all.clone() };
    for (number, options) in [
        Jffs2Options::default(),
        Jffs2Options { order: ByteOrder::Big, summary: true, ..Jffs2Options::default() },
        Jffs2Options { summary: true, compressors: with(Mode::Size), ..Jffs2Options::default() },
        Jffs2Options {
            cleanmarker_len: 0,
            compressors: with(Mode::FavourLzo),
            ..Jffs2Options::default()
        },
        Jffs2Options {
            erase_size: 8 << 10,
            compressors: with(Mode::Priority),
            ..Jffs2Options::default()
        },
        Jffs2Options { compressors: Compressors::none(), ..Jffs2Options::default() },
    ]
    .into_iter()
    .enumerate()
    {
        let options = Jffs2Options { padding: Padding::Block, ..options };
        create(&tree, &image, options.clone(), &BTreeMap::new());
        agrees(&image, &options);
        let out = folder.path().join(format!("out{number}"));
        let extraction = extract(&image, &out);
        assert_eq!(extraction.failures, [], "{options:?}");
        let different = differences(&before, &snapshot(&out));
        assert!(different.is_empty(), "{options:?}:\n{}", different.join("\n"));
        assert_eq!(wrong(&image), [""; 0], "{options:?}");
    }
}

/// jffs2dump must find no wrong checksum, and sumtool must take every node into its own image.
fn agrees(image: &Path, options: &Jffs2Options) {
    let order = if options.order == ByteOrder::Little { "-l" } else { "-b" };
    let dump = std::process::Command::new("jffs2dump")
        .args(["-c", order])
        .arg(image)
        .output()
        .expect("mtd-utils are there");
    let text =
        String::from_utf8_lossy(&dump.stdout).into_owned() + &String::from_utf8_lossy(&dump.stderr);
    let complaints: Vec<&str> = text.lines().filter(|line| line.contains("rong")).collect();
    assert!(dump.status.success() && complaints.is_empty(), "{complaints:?}");
    assert!(text.contains("Inode") && text.contains("Dirent"), "it was dumped");

    let (theirs, ours) = (image.with_extension("theirs"), image.with_extension("ours"));
    let erase_size = options.erase_size.to_string();
    let files = ["-i", image.to_str().unwrap(), "-o", theirs.to_str().unwrap()];
    let mut arguments = vec!["-e", &erase_size, order, "-p"];
    if options.cleanmarker_len == 0 {
        arguments.push("-n");
    }
    run("sumtool", &[&arguments[..], &files[..]].concat());
    let bytes = fs::read(image).unwrap();
    let size = bytes.len() as u64;
    let flash = flysch_mtd::FlashImage::new(
        bytes,
        flysch_api::flash::FlashGeometry::nor(size, options.erase_size),
    );
    let mut summed = vec![];
    summarize(&flash, options, |bytes: &[u8]| {
        summed.extend_from_slice(bytes);
        Ok::<(), io::Error>(())
    })
    .unwrap();
    fs::write(&ours, &summed).unwrap();
    assert_eq!(wrong(&theirs), [""; 0]);
    assert_eq!(wrong(&ours), [""; 0]);
}
