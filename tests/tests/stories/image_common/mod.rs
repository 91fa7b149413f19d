//! Trees with every kind of file, their comparison, and images made from them.

use flysch_random::XorShift64;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use flysch_image::{
    ExtractOptions, Extraction, Image, ImageOpenOptions, Progress, SharedFileSystem,
};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

/// A source of numbers that are the same in every run.
pub(crate) struct Noise(XorShift64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(XorShift64::from_state(seed | 1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 8] =
            ["flash ", "erase ", "block ", "node ", "page ", "log ", "of ", "the\n"];
        let mut text = vec![];
        while text.len() < len {
            text.extend_from_slice(WORDS[self.next() as usize % WORDS.len()].as_bytes());
        }
        text.truncate(len);
        text
    }
}

/// Whether the tests may create devices and change owners.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes a tree with every kind of file and every awkward size and name.
pub(crate) fn make_tree(root: &Path) {
    let mut noise = Noise::new(7);
    fs::create_dir(root).unwrap();
    fs::create_dir(root.join("text")).unwrap();
    for number in 0..60 {
        let len = noise.next() as usize % 6000;
        fs::write(root.join(format!("text/t{number:03}")), noise.text(len)).unwrap();
    }
    fs::write(root.join("zeros"), vec![0; 100_000]).unwrap();
    fs::write(root.join("random"), noise.bytes(150_000)).unwrap();
    fs::write(root.join("long text"), noise.text(200_000)).unwrap();
    fs::create_dir(root.join("sub")).unwrap();
    fs::hard_link(root.join("long text"), root.join("link")).unwrap();
    fs::hard_link(root.join("long text"), root.join("sub/link")).unwrap();
    for len in [0, 1, 127, 128, 129, 4095, 4096, 4097] {
        fs::write(root.join(format!("size {len}")), noise.text(len)).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 150_000).unwrap();
    sparse.set_len(300_000).unwrap();
    symlink("long text", root.join("symlink")).unwrap();
    symlink(format!("/nowhere/{}", "x".repeat(200)), root.join("long symlink")).unwrap();
    symlink("../../../../outside", root.join("symlink that leads out")).unwrap();
    fs::write(root.join("n".repeat(254)), b"long name").unwrap();
    fs::write(root.join("ünïcödé 文件"), b"UTF-8").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"not \xFF UTF-8")), b"bytes").unwrap();
    let mut deep = root.to_path_buf();
    for level in 0..20 {
        deep.push(format!("d{level}"));
        fs::create_dir(&deep).unwrap();
    }
    fs::write(deep.join("deep"), b"deep").unwrap();
    make_special(root);
    set_attributes(root);
}

fn make_special(root: &Path) {
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device)
            .unwrap();
    };
    node("fifo", FileType::Fifo, 0);
    node("socket", FileType::Socket, 0);
    if is_root() {
        node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        node("card", FileType::BlockDevice, rustix::fs::makedev(179, 0));
    }
}

fn set_attributes(root: &Path) {
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(root.join(name), key, value, XattrFlags::empty()).unwrap();
    };
    set("size 1", "user.comment", b"hello");
    set("size 1", "user.empty", b"");
    set("size 1", "user.large", &Noise::new(3).text(2000));
    set("sub", "user.of a directory", b"value");
    let mode = |name: &str, mode| {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    if is_root() {
        set("size 127", "trusted.bytes", &[0, 1, 2, 0xFF]);
        set("size 127", "security.label", b"label");
        let (owner, group) = (Uid::from_raw(1000), Gid::from_raw(1001));
        rustix::fs::chown(root.join("size 128"), Some(owner), Some(group)).unwrap();
        let list = [
            2u8, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xE8, 3, 0, 0, 4, 0, 4, 0,
            255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ];
        set("size 129", "system.posix_acl_access", &list);
    }
    mode("size 128", 0o4751);
    mode("size 4095", 0o000);
    mode("sub", 0o1777);
    // Times last, innermost first: all other changes affect the times of directories.
    let mut paths: Vec<PathBuf> = walk(root);
    paths.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for (number, path) in paths.iter().enumerate() {
        let time = |seconds| Timespec { tv_sec: seconds + number as i64, tv_nsec: 0 };
        let times =
            Timestamps { last_access: time(1_500_000_000), last_modification: time(1_600_000_000) };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// Everything below `root`, without `root`.
fn walk(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                waiting.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

/// Everything about a file that must be preserved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    links: u64,
    device: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same file, if it has several.
    same_as: Option<PathBuf>,
}

impl Seen {
    /// The content of a file, or the target of a symlink.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }
}

/// Every file below `root`, by path.
pub(crate) fn snapshot(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut paths = walk(root);
    paths.sort();
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut files = BTreeMap::new();
    for path in paths {
        let metadata = path.symlink_metadata().unwrap();
        let kind = metadata.file_type();
        let relative = path.strip_prefix(root).unwrap().to_path_buf();
        let content = if kind.is_file() {
            fs::read(&path).unwrap()
        } else if kind.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            vec![]
        };
        let is_device = kind.is_block_device() || kind.is_char_device();
        let several = !kind.is_dir() && metadata.nlink() > 1;
        let earlier = first.entry(metadata.ino()).or_insert_with(|| relative.clone());
        let seen = Seen {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            links: if kind.is_dir() { 0 } else { metadata.nlink() },
            device: if is_device { metadata.rdev() } else { 0 },
            content,
            xattrs: xattrs(&path),
            same_as: several.then(|| earlier.clone()),
        };
        files.insert(relative, seen);
    }
    files
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 1 << 16];
    let Ok(len) = rustix::fs::llistxattr(path, &mut names) else { return BTreeMap::new() };
    names[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let len = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
            (name.to_vec(), value[..len].to_vec())
        })
        .collect()
}

/// The same without extended attributes, which mkfs.ubifs omits.
pub(crate) fn without_xattrs(mut files: BTreeMap<PathBuf, Seen>) -> BTreeMap<PathBuf, Seen> {
    files.values_mut().for_each(|seen| seen.xattrs.clear());
    files
}

/// The same without access lists, which UBIFS cannot store.
pub(crate) fn without_access_lists(mut files: BTreeMap<PathBuf, Seen>) -> BTreeMap<PathBuf, Seen> {
    let is_list = |name: &[u8]| name.starts_with(b"system.posix_acl");
    files.values_mut().for_each(|seen| seen.xattrs.retain(|name, _| !is_list(name)));
    files
}

/// The differences between two trees, one line for each file.
pub(crate) fn differences(a: &BTreeMap<PathBuf, Seen>, b: &BTreeMap<PathBuf, Seen>) -> Vec<String> {
    let mut differences = vec![];
    for (path, seen) in a {
        match b.get(path) {
            None => differences.push(format!("{} is missing", path.display())),
            Some(other) if other != seen => {
                let cut =
                    |seen: &Seen| format!("{seen:.200?}").chars().take(600).collect::<String>();
                differences.push(format!("{}:\n  {}\n  {}", path.display(), cut(seen), cut(other)));
            }
            Some(_) => {}
        }
    }
    let added = b.keys().filter(|path| !a.contains_key(*path));
    differences.extend(added.map(|path| format!("{} is new", path.display())));
    differences
}

/// Runs a program of mtd-utils.
pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
}

/// Whether mtd-utils are installed; prints a message if not.
pub(crate) fn has_mtd_utils() -> bool {
    let found = Command::new("mkfs.jffs2").arg("--version").output().is_ok();
    if !found {
        println!("skipped: mtd-utils are not installed");
    }
    found
}

/// A JFFS2 of `tree`, with `arguments` for mkfs.jffs2.
pub(crate) fn mkfs_jffs2(tree: &Path, image: &Path, arguments: &[&str]) {
    let (tree, image) = (tree.to_str().unwrap(), image.to_str().unwrap());
    run("mkfs.jffs2", &[&["-r", tree, "-o", image, "--with-xattr"], arguments].concat());
}

/// The only file system in an image.
pub(crate) fn open(image: &Path) -> SharedFileSystem {
    let image = Image::open(image, &ImageOpenOptions::default()).unwrap();
    image.volumes().find_map(flysch_image::ImageVolume::file_system).expect("a file system")
}

/// Extracts the only file system of `image`.
pub(crate) fn extract(image: &Path, directory: &Path) -> Extraction {
    let fs = open(image);
    flysch_image::extract(&*fs, directory, &ExtractOptions::default(), &Progress::default())
        .unwrap()
}

/// The findings of a check, as text.
pub(crate) fn wrong(image: &Path) -> Vec<String> {
    let mut wrong = vec![];
    let image = Image::open(image, &ImageOpenOptions::default()).unwrap();
    flysch_image::check(&image, &mut |checked| {
        if checked.finding.severity > flysch_api::finding::Severity::Note {
            wrong.push(checked.finding.to_string());
        }
    });
    wrong
}

/// Operations that flags of chattr may forbid: for the shell, and for `flysch image edit` if it has
/// them.
pub(crate) const FLAGGED: [(&str, &str); 17] = [
    ("echo x > f", "put - f"),
    ("echo x >> f", ""),
    ("truncate -s 1 f", "truncate -s 1 f"),
    ("rm f", "rm f"),
    ("mv f g", "mv f g"),
    ("mv y f", "mv y f"),
    ("ln f h", "ln f h"),
    ("chmod 600 f", "chmod 600 f"),
    ("chown 7:8 f", "chown 7:8 f"),
    ("touch f", "touch f"),
    ("touch -d @5 f", "touch -d @5 f"),
    ("touch d/new", "touch d/new"),
    ("mkdir d/sub", "mkdir d/sub"),
    ("rm d/old", "rm d/old"),
    ("mv d/old g", "mv d/old g"),
    ("mv y d/y", "mv y d/y"),
    ("chmod 700 d", "chmod 700 d"),
];

/// Which of [`FLAGGED`] work in `folder` on a file and a directory with `flag`, using the shell.
/// `None` if flags cannot be set.
pub(crate) fn allowed(folder: &Path, flag: char) -> Option<Vec<&'static str>> {
    let shell = |script: &str| {
        Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap()
    };
    let clear = "chattr -ia f d 2>/dev/null; rm -rf f g h y d";
    let mut allowed = vec![];
    for (action, _) in FLAGGED {
        let fill = "echo old > f; echo y > y; mkdir d; echo old > d/old";
        let output = shell(&format!("{clear}; {fill}; chattr +{flag} f d"));
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            shell(clear);
            println!("skipped: chattr in {}: {error}", folder.display());
            return None;
        }
        let output = shell(action);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.success() {
            true => allowed.push(action),
            false => assert!(error.contains("not permitted"), "+{flag} {action}: {error}"),
        }
    }
    shell(clear);
    Some(allowed)
}
