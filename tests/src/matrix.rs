//! Trees through every kind of image that mtd-utils make, and out again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use flysch_api::vfs::DeviceNumber;
use flysch_image::{ExtractOptions, Image, ImageOpenOptions, ImageVolume, Progress};

use crate::ubifs::{
    FORMATS, Format, Random, Tree, differences, host_tree, make_tree, mkfs, ubinize,
};

/// A tree and its name.
#[derive(Debug)]
pub struct Source {
    /// Its letter: A every kind of file, B many small random files, C few large ones, E empty, T
    /// like B but with text.
    pub name: char,
    path: PathBuf,
    expected: Tree,
    /// The tree as far as mkfs.jffs2 stores it.
    for_jffs2: Option<(PathBuf, Tree)>,
}

/// The size of B, T and C.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Number of files of 8 KiB in B and T.
    pub small_files: u64,
    /// Number of files in C.
    pub large_files: u64,
    /// Size of each of them, bytes.
    pub large_size: usize,
}

impl Scale {
    /// 10 000 files of 8 KiB, 10 of 8 MiB.
    pub const FULL: Self = Self { small_files: 10_000, large_files: 10, large_size: 8 << 20 };
    /// A fiftieth of that.
    pub const SMALL: Self = Self { small_files: 200, large_files: 2, large_size: 1 << 20 };
}

/// Makes the tree `name` in `folder`.
///
/// # Panics
/// If the host's file system refuses.
pub fn source(folder: &Path, name: char, scale: Scale) -> Source {
    let path = folder.join(name.to_string());
    fs::create_dir(&path).expect("a directory");
    let mut random = Random::new(u64::from(name as u32));
    match name {
        'A' => make_tree(&path),
        'B' | 'T' => {
            for number in 0..scale.small_files {
                let directory = path.join(format!("d{:02}", number % 100));
                fs::create_dir_all(&directory).expect("a directory");
                let content = if name == 'B' { random.bytes(8192) } else { random.text(8192) };
                fs::write(directory.join(format!("f{number:05}")), content).expect("a file");
            }
        }
        'C' => {
            for number in 0..scale.large_files {
                let content = random.bytes(scale.large_size);
                fs::write(path.join(format!("f{number}")), content).expect("a file");
            }
        }
        _ => {}
    }
    let expected = host_tree(&path);
    let for_jffs2 = (name == 'A').then(|| for_jffs2(folder));
    Source { name, path, expected, for_jffs2 }
}

/// Tree A, but with symlink targets no longer than JFFS2 supports, and device numbers truncated as
/// by mkfs.jffs2.
fn for_jffs2(folder: &Path) -> (PathBuf, Tree) {
    let path = folder.join("A for JFFS2");
    fs::create_dir(&path).expect("a directory");
    make_tree(&path);
    fs::remove_file(path.join("long-target")).expect("it is there");
    symlink("x".repeat(254), path.join("long-target")).expect("a symlink");
    let mut expected = host_tree(&path);
    for file in expected.values_mut() {
        let number = (file.device.major << 8) + file.device.minor;
        file.device = DeviceNumber::from_old(number as u16);
    }
    (path, expected)
}

/// One kind of image.
#[derive(Clone, Debug)]
pub enum Kind {
    /// UBIFS in UBI: geometry, compressor, additional options of mkfs.ubifs.
    Ubifs(Format, &'static str, Vec<&'static str>),
    /// JFFS2: options of mkfs.jffs2, then of sumtool if it is to run.
    Jffs2(Vec<&'static str>, Option<Vec<&'static str>>),
}

/// Every geometry, compressor and hash function of UBIFS.
pub fn ubifs_kinds() -> Vec<Kind> {
    let mut kinds = vec![];
    for format in FORMATS {
        for compressor in ["none", "lzo", "zlib", "zstd"] {
            kinds.push(Kind::Ubifs(format, compressor, vec![]));
            kinds.push(Kind::Ubifs(format, compressor, vec!["-k", "test"]));
        }
    }
    let page = FORMATS[1];
    kinds.push(Kind::Ubifs(page, "favor_lzo", vec!["-X", "20"]));
    kinds.push(Kind::Ubifs(page, "lzo", vec!["-F"]));
    kinds.push(Kind::Ubifs(page, "lzo", vec!["-f", "32", "-j", "8MiB", "-l", "6"]));
    kinds.push(Kind::Ubifs(Format { lebs: 20_000, ..page }, "lzo", vec![]));
    kinds
}

/// Every block size, byte order, compressor, marker and summary of JFFS2.
pub fn jffs2_kinds() -> Vec<Kind> {
    const MODES: [&[&str]; 6] = [
        &[],
        &["-m", "none"],
        &["-m", "size"],
        &["-X", "lzo", "-y", "80:lzo", "-m", "favourlzo"],
        &["-x", "zlib", "-x", "rtime", "-X", "lzo"],
        &["-x", "zlib", "-x", "lzo", "-X", "rtime"],
    ];
    let mut kinds = vec![];
    for size in ["8KiB", "16KiB", "64KiB", "128KiB", "256KiB", "1MiB"] {
        for order in ["-l", "-b"] {
            for mode in MODES {
                let markers: &[&[&str]] = &[&[], &["-n", "-p"]];
                for marker in markers {
                    let base = [&["-e", size, order][..], marker].concat();
                    kinds.push(Kind::Jffs2([&base[..], mode].concat(), None));
                }
            }
            for marker in [&[][..], &["-n"]] {
                let base = [&["-e", size, order][..], marker].concat();
                let sumtool = [&base[..], &["-p"]].concat();
                kinds.push(Kind::Jffs2(base, Some(sumtool)));
            }
        }
    }
    kinds
}

/// The kinds for large trees: each compressor, in the most common geometry.
pub fn large_kinds() -> Vec<Kind> {
    let format = Format { lebs: 1000, ..FORMATS[1] };
    let ubifs = |compressor| Kind::Ubifs(format, compressor, vec![]);
    let jffs2 = |mode: &[&'static str], summary: bool| {
        let base = ["-e", "128KiB", "-n"];
        let sumtool = summary.then(|| [&base[..], &["-l", "-p"]].concat());
        Kind::Jffs2([&base[..], mode].concat(), sumtool)
    };
    vec![
        ubifs("none"),
        ubifs("lzo"),
        ubifs("zlib"),
        ubifs("zstd"),
        jffs2(&["-l"], false),
        jffs2(&["-b"], false),
        jffs2(&["-l", "-m", "none"], false),
        jffs2(&["-l", "-x", "zlib", "-x", "rtime", "-X", "lzo"], false),
        jffs2(&["-l"], true),
    ]
}

impl Kind {
    fn image(&self, source: &Source, folder: &Path) -> Vec<u8> {
        match self {
            Self::Ubifs(format, compressor, more) => {
                let bare = mkfs(&source.path, format, compressor, more);
                ubinize(&bare, format)
            }
            Self::Jffs2(arguments, sumtool) => {
                let (plain, summed) = (folder.join("plain"), folder.join("summed"));
                let tree = source.for_jffs2.as_ref().map_or(&source.path, |(path, _)| path);
                let mut command = Command::new("mkfs.jffs2");
                command.arg("-r").arg(tree).arg("-o").arg(&plain).args(arguments);
                run(&mut command);
                let Some(arguments) = sumtool else { return fs::read(plain).expect("the image") };
                let mut command = Command::new("sumtool");
                run(command.args(arguments).arg("-i").arg(plain).arg("-o").arg(&summed));
                fs::read(summed).expect("the image")
            }
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an image of `source`, extracts and checks it in `folder`; returns the number of files, or
/// the differences.
///
/// # Errors
/// A line for each difference, failure and finding.
///
/// # Panics
/// If mtd-utils fail.
pub fn through(source: &Source, kind: &Kind, folder: &Path) -> Result<u64, Vec<String>> {
    let bytes = kind.image(source, folder);
    let path = folder.join("image");
    let is_erased = bytes.is_empty();
    // An empty tree is an empty image: any amount of erased flash.
    fs::write(&path, if is_erased { vec![0xFF; 1 << 20] } else { bytes }).expect("written");
    // Erased flash contains no information; any block size will do.
    let options = ImageOpenOptions {
        erase_size: is_erased.then_some(1 << 16),
        ..ImageOpenOptions::default()
    };
    let image = Image::open(&path, &options).map_err(|e| vec![e.to_string()])?;
    let mut lines = vec![];
    let is_wrong = flysch_image::check(&image, &mut |found| lines.push(found.finding.to_string()));
    if !is_wrong {
        lines.clear();
    }
    let out = folder.join("out");
    let fs = image.volumes().find_map(ImageVolume::file_system);
    let fs = fs.ok_or_else(|| vec!["no file system is there".to_owned()])?;
    let options = ExtractOptions::default();
    let extraction = flysch_image::extract(&*fs, &out, &options, &Progress::default())
        .map_err(|error| vec![error.to_string()])?;
    let failures = extraction.failures.iter();
    lines.extend(failures.map(|f| format!("{}: {}", f.path.escape_ascii(), f.cause)));
    let mut found = host_tree(&out);
    let expected = match (kind, &source.for_jffs2) {
        (Kind::Jffs2(..), Some((_, expected))) => expected,
        _ => &source.expected,
    };
    if let (Kind::Jffs2(..), Some(root)) = (kind, found.get_mut(&Vec::new())) {
        // mkfs.jffs2 writes no node for the root: Linux shows mode 0755 and the year 1970.
        assert_eq!((root.permissions, root.modified), (0o755, 0));
        root.clone_from(&expected[&Vec::new()]);
    }
    lines.extend(differences(expected, &found));
    fs::remove_dir_all(&out).expect("it was just made");
    if lines.is_empty() { Ok(extraction.files) } else { Err(lines) }
}

/// Counts by tree and format.
#[derive(Debug, Default)]
pub struct Totals(BTreeMap<(char, &'static str), (u64, u64)>);

impl Totals {
    /// Adds an image with `files` files.
    pub fn add(&mut self, source: &Source, kind: &Kind, files: u64) {
        let format = if matches!(kind, Kind::Ubifs(..)) { "UBIFS" } else { "JFFS2" };
        let entry = self.0.entry((source.name, format)).or_default();
        entry.0 += 1;
        entry.1 += files;
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for ((tree, format), (images, files)) in &self.0 {
            writeln!(f, "tree {tree}, {format}: {images} images, {files} files, 0 differences")?;
        }
        Ok(())
    }
}
