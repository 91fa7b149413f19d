//! UBIFS images made by mtd-utils, and what must come out of them again.

use flysch_random::XorShift64;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::{DeviceNumber, FileKind, FileSystem, Inode};
use flysch_mtd::FlashImage;
use rustix::fs::{CWD, FileType, Mode};

/// The format of an image.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Minimum unit of writing, bytes; 1 for NOR.
    pub min_io: u32,
    /// Size of a physical erase block, bytes.
    pub peb_size: u32,
    /// Size of a logical erase block, bytes.
    pub leb_size: u32,
    /// Size of a sub-page, if the headers share a page.
    pub sub_page: Option<u32>,
    /// Maximum number of LEBs.
    pub lebs: u32,
}

/// Common geometries: small-page NAND, large page with and without sub-pages, 4 KiB and 8 KiB
/// pages, NOR.
pub const FORMATS: [Format; 6] = [
    format(512, 16384, 15360, None, 4000),
    format(2048, 131_072, 129_024, Some(512), 400),
    format(2048, 131_072, 126_976, None, 400),
    format(4096, 262_144, 253_952, None, 200),
    format(8192, 1_048_576, 1_032_192, None, 100),
    format(1, 65536, 65408, None, 400),
];

const fn format(
    min_io: u32,
    peb_size: u32,
    leb_size: u32,
    sub_page: Option<u32>,
    lebs: u32,
) -> Format {
    Format { min_io, peb_size, leb_size, sub_page, lebs }
}

/// Whether mtd-utils are missing; if so, prints what was skipped. With `CI=true` that is a failure.
///
/// # Panics
/// With `CI=true` if they are missing.
pub fn tools_missing() -> bool {
    crate::command::lacks("mkfs.ubifs")
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// Makes a file system image of a tree with `mkfs.ubifs`.
///
/// # Panics
/// If the tool fails.
pub fn mkfs(tree: &Path, format: &Format, compressor: &str, more: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let out = directory.path().join("image.ubifs");
    let min_io = format.min_io.max(8).to_string();
    let (leb_size, lebs) = (format.leb_size.to_string(), format.lebs.to_string());
    let mut command = Command::new("mkfs.ubifs");
    command.arg("-r").arg(tree).args(["-m", &min_io, "-e", &leb_size, "-c", &lebs]);
    run(command.args(["-x", compressor]).args(more).arg("-o").arg(&out));
    fs::read(out).expect("the image")
}

/// Puts UBI around a file system image with `ubinize`.
///
/// # Panics
/// If the tool fails.
pub fn ubinize(image: &[u8], format: &Format) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let path = |name: &str| directory.path().join(name);
    fs::write(path("image.ubifs"), image).expect("the image is written");
    let ini = std::format!(
        "[v]\nmode=ubi\nimage={}\nvol_id=0\nvol_type=dynamic\nvol_name=rootfs\n\
         vol_flags=autoresize\n",
        path("image.ubifs").display()
    );
    fs::write(path("image.ini"), ini).expect("the description is written");
    let (min_io, peb_size) = (format.min_io.to_string(), format.peb_size.to_string());
    let mut command = Command::new("ubinize");
    command.args(["-m", &min_io, "-p", &peb_size, "-Q", "12345"]);
    if let Some(sub_page) = format.sub_page {
        command.args(["-s", &sub_page.to_string()]);
    }
    run(command.arg("-o").arg(path("image.ubi")).arg(path("image.ini")));
    fs::read(path("image.ubi")).expect("the image")
}

/// Bytes as a flash.
pub fn flash(bytes: Vec<u8>, format: &Format) -> FlashImage<Vec<u8>> {
    let size = bytes.len() as u64;
    FlashImage::new(bytes, FlashGeometry::nand(size, format.peb_size, format.min_io, format.min_io))
}

/// A file, as far as an image can represent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits.
    pub permissions: u16,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Time of the last change of content, seconds.
    pub modified: i64,
    /// Number of names of the file, and the first of its paths.
    pub links: (u32, Vec<u8>),
    /// Device number.
    pub device: DeviceNumber,
    /// Content, or target of a symlink; the error if reading it failed.
    pub content: Result<Vec<u8>, String>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Files by path.
pub type Tree = BTreeMap<Vec<u8>, File>;

/// Reads a directory of the host.
///
/// # Panics
/// If it cannot be read.
pub fn host_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut first_names = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        let full = root.join(&path);
        let stat = fs::symlink_metadata(&full).expect("a file of the tree");
        let kind = FileKind::from_mode(stat.mode()).expect("a kind of file");
        if kind == FileKind::Directory {
            for entry in fs::read_dir(&full).expect("a directory") {
                todo.push(path.join(entry.expect("an entry").file_name()));
            }
        }
        let content = match kind {
            FileKind::Regular => fs::read(&full).expect("content"),
            FileKind::Symlink => fs::read_link(&full).expect("target").into_os_string().into_vec(),
            _ => Vec::new(),
        };
        let name = path.as_os_str().as_bytes().to_vec();
        first_names.entry(stat.ino()).or_insert_with(Vec::new).push(name.clone());
        let device = match kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => DeviceNumber {
                major: rustix::fs::major(stat.rdev()),
                minor: rustix::fs::minor(stat.rdev()),
            },
            _ => DeviceNumber::default(),
        };
        let file = File {
            kind,
            permissions: (stat.mode() & 0o7777) as u16,
            owner: (stat.uid(), stat.gid()),
            modified: stat.mtime(),
            links: (stat.nlink() as u32, stat.ino().to_le_bytes().to_vec()),
            device,
            content: Ok(content),
            xattrs: host_xattrs(&full),
        };
        tree.insert(name, file);
    }
    name_links(&mut tree);
    tree
}

fn host_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 65536];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names) else { return BTreeMap::new() };
    let mut xattrs = BTreeMap::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65536];
        let c_name = CString::new(name).expect("a name");
        let length = rustix::fs::lgetxattr(path, &c_name, &mut value).expect("a value");
        value.truncate(length);
        xattrs.insert(name.to_vec(), value);
    }
    xattrs
}

/// Replaces inode numbers by the first path of each file, and sets the link counts of directories
/// to 0.
fn name_links(tree: &mut Tree) {
    let mut first: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (path, file) in tree.iter() {
        first.entry(file.links.1.clone()).or_insert_with(|| path.clone());
    }
    for file in tree.values_mut() {
        file.links.1 = first[&file.links.1].clone();
        if file.kind == FileKind::Directory {
            file.links.0 = 0;
        }
    }
}

/// What a file system shows.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The files that have a path.
    pub tree: Tree,
    /// What could not be read, or only in part.
    pub problems: Vec<String>,
    /// Contradictions: names that are listed but looked up elsewhere or not found, and names that
    /// lead to a directory that already has one. None of them is followed.
    pub contradictions: Vec<String>,
}

/// Reads everything in a file system that does not contradict itself; whatever cannot be read
/// completely is reported in `problems`.
///
/// # Panics
/// If it does contradict itself.
pub fn image_tree(fs: &dyn FileSystem, problems: &mut Vec<String>) -> Tree {
    subtree(fs, fs.statistics().root, problems)
}

/// Reads everything from one directory or file on.
///
/// # Panics
/// If it contradicts itself.
pub fn subtree(fs: &dyn FileSystem, root: Inode, problems: &mut Vec<String>) -> Tree {
    let shown = shown(fs, root);
    assert_eq!(shown.contradictions, Vec::<String>::new());
    problems.extend(shown.problems);
    shown.tree
}

/// Reads everything from one directory or file on, whatever is wrong with it.
pub fn shown(fs: &dyn FileSystem, root: Inode) -> Shown {
    let mut shown = Shown::default();
    let mut directories = BTreeSet::from([root]);
    let mut todo = vec![(Vec::new(), root)];
    while let Some((path, inode)) = todo.pop() {
        let file = match image_file(fs, inode) {
            Ok(file) => file,
            Err(error) => {
                shown.problems.push(std::format!("{}: {error}", path.escape_ascii()));
                continue;
            }
        };
        if file.kind == FileKind::Directory {
            let listed = fs.list(inode, 0, &mut |entry| {
                let mut child = path.clone();
                if !child.is_empty() {
                    child.push(b'/');
                }
                child.extend_from_slice(entry.name);
                let found = fs.lookup(inode, entry.name);
                let is_directory =
                    fs.attributes(entry.inode).is_ok_and(|it| it.kind == FileKind::Directory);
                if found != Ok(entry.inode) {
                    let (path, listed) = (child.escape_ascii(), entry.inode);
                    let problem = std::format!("{path}: {listed:?} listed, looked up {found:?}");
                    shown.contradictions.push(problem);
                } else if is_directory && !directories.insert(entry.inode) {
                    let problem = std::format!("{}: has another path", child.escape_ascii());
                    shown.contradictions.push(problem);
                } else {
                    todo.push((child, entry.inode));
                }
                ControlFlow::Continue(())
            });
            if let Err(error) = listed {
                shown.problems.push(std::format!("{}: {error}", path.escape_ascii()));
            }
        }
        shown.tree.insert(path, file);
    }
    name_links(&mut shown.tree);
    shown
}

/// Maximum number of bytes of content that are read: more than any file whose content matters. A
/// damaged size may have any value; such a file is reported as not completely readable.
const READ_MAX: u64 = 64 << 20;

fn image_file(fs: &dyn FileSystem, inode: Inode) -> Result<File, flysch_api::vfs::FsError> {
    let stat = fs.attributes(inode)?;
    let has_content = matches!(stat.kind, FileKind::Regular | FileKind::Symlink);
    let size = if has_content { stat.size.min(READ_MAX) } else { 0 };
    let mut content = vec![0; size as usize + 10];
    let read = match stat.kind {
        FileKind::Regular | FileKind::Symlink => fs.read(inode, 0, &mut content),
        _ => Ok(0),
    };
    let is_short = |length: usize| length as u64 != stat.size;
    let content = match read {
        Ok(length) if stat.kind == FileKind::Regular && is_short(length) => {
            Err(std::format!("only {length} of {} bytes", stat.size))
        }
        Ok(length) => Ok(content[..length].to_vec()),
        Err(error) => Err(error.to_string()),
    };
    let mut names = Vec::new();
    let listed = fs.list_xattrs(inode, &mut |name| names.push(name.to_vec()));
    let mut xattrs = BTreeMap::new();
    for name in names {
        let mut value = vec![0; 65536];
        let read = fs.read_xattr(inode, &name, &mut value);
        value.truncate(*read.as_ref().unwrap_or(&0));
        // An attribute without a value exists, too: unreadable ones are reported separately.
        if let Err(error) = read {
            xattrs.insert(b"damaged".to_vec(), error.to_string().into_bytes());
        }
        xattrs.insert(name, value);
    }
    if let Err(error) = listed {
        xattrs.insert(b"damaged".to_vec(), error.to_string().into_bytes());
    }
    Ok(File {
        kind: stat.kind,
        permissions: stat.permissions,
        owner: (stat.owner, stat.group),
        modified: stat.modified.seconds,
        links: (stat.links, inode.0.to_le_bytes().to_vec()),
        device: stat.device,
        content,
        xattrs,
    })
}

/// What differs between two trees, a line for each difference.
pub fn differences(expected: &Tree, found: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, file) in expected {
        let shown = path.escape_ascii();
        match found.get(path) {
            None => lines.push(std::format!("{shown}: missing")),
            Some(other) if other != file => {
                let short = |file: &File| {
                    let content = file.content.as_ref().map(Vec::len);
                    std::format!(
                        "{:?} {content:?}",
                        File { content: Ok(Vec::new()), ..file.clone() }
                    )
                };
                lines.push(std::format!("{shown}: {} became {}", short(file), short(other)));
            }
            Some(_) => {}
        }
    }
    for path in found.keys().filter(|path| !expected.contains_key(*path)) {
        lines.push(std::format!("{}: extra", path.escape_ascii()));
    }
    lines
}

/// A repeatable stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(XorShift64);

impl Random {
    /// The sequence for this number, which must not be 0.
    pub fn new(state: u64) -> Self {
        Self(XorShift64::from_state(state))
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.modulo(limit)
    }

    /// Incompressible bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Compressible text.
    pub fn text(&mut self, length: usize) -> Vec<u8> {
        let words =
            ["flash", "erase", "block", "of", "the", "journal", "index", "node", "and", "a"];
        let mut text = Vec::with_capacity(length + 8);
        while text.len() < length {
            text.extend_from_slice(words[self.below(10) as usize].as_bytes());
            text.push(if self.below(12) == 0 { b'\n' } else { b' ' });
        }
        text.truncate(length);
        text
    }
}

/// Fills `root` with one of everything that mkfs.ubifs stores, except extended attributes (Debian
/// builds it without them). Includes devices and owners if run by root.
///
/// # Panics
/// If the host's file system refuses.
pub fn make_tree(root: &Path) {
    let mut random = Random::new(42);
    let put = |name: &str, content: &[u8]| fs::write(root.join(name), content).expect(name);
    fs::create_dir(root.join("texts")).expect("texts");
    for at in 0..200 {
        let length = random.below(6000) as usize;
        put(&std::format!("texts/text-{at}"), &random.text(length));
    }
    put("zeros", &vec![0; 1 << 20]);
    put("random", &random.bytes(1 << 20));
    put("text", &random.text(2 << 20));
    for size in [0, 1, 127, 128, 4095, 4096, 4097, 8192] {
        put(&std::format!("size-{size}"), &random.text(size));
    }
    fs::hard_link(root.join("text"), root.join("text-again")).expect("a link");
    fs::hard_link(root.join("text"), root.join("texts/text-third")).expect("a link");
    let sparse = fs::File::create(root.join("sparse")).expect("sparse");
    for at in [0, 1 << 20, (2 << 20) + 5000] {
        sparse.write_all_at(&random.bytes(5000), at).expect("sparse");
    }
    sparse.set_len(3 << 20).expect("sparse");
    fs::File::create(root.join("hole")).and_then(|f| f.set_len(1 << 20)).expect("hole");
    symlink("texts/text-1", root.join("relative")).expect("a symlink");
    symlink("x/".repeat(1000), root.join("long-target")).expect("a symlink");
    put(&"n".repeat(254), b"long name");
    put("gr\u{fc}\u{df}e \u{2713} ' \" \n", b"odd name");
    let mut deep = root.to_path_buf();
    for level in 0..20 {
        deep.push(std::format!("level-{level}"));
        fs::create_dir(&deep).expect("a directory");
    }
    fs::write(deep.join("bottom"), "reached").expect("bottom");
    fs::create_dir(root.join("empty")).expect("a directory");
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o1777)).expect("mode");
    special_files(root);
    attributes(root);
}

fn special_files(root: &Path) {
    let make = |name: &str, kind, device| {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, root.join(name), kind, mode, device)
    };
    make("fifo", FileType::Fifo, 0).expect("fifo");
    make("socket", FileType::Socket, 0).expect("socket");
    // Only root can create devices.
    let _ = make("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    let _ = make("mmcblk0", FileType::BlockDevice, rustix::fs::makedev(179, 0));
    let _ = make("nvme", FileType::BlockDevice, rustix::fs::makedev(259, 70_000));
}

fn attributes(root: &Path) {
    let path = root.join("size-4097");
    if rustix::process::getuid().is_root() {
        std::os::unix::fs::chown(&path, Some(1000), Some(1001)).expect("owner");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).expect("mode");
}
