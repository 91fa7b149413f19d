//! The images that are mutated: small, and of every format.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, XattrFlags};

use crate::ubifs::{Format, Random, mkfs, ubinize};

/// One image.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Size of its erase blocks including out-of-band bytes.
    pub block_size: usize,
}

/// A few files of every kind, little content.
fn make_tree(root: &Path) {
    let mut random = Random::new(99);
    fs::create_dir_all(root.join("directory/in/it")).expect("directories");
    fs::write(root.join("text"), random.text(9000)).expect("text");
    fs::write(root.join("random"), random.bytes(5000)).expect("random");
    fs::write(root.join("directory/small"), b"small").expect("small");
    fs::write(root.join("directory/in/it/empty"), b"").expect("empty");
    fs::hard_link(root.join("text"), root.join("directory/again")).expect("a link");
    let sparse = fs::File::create(root.join("sparse")).expect("sparse");
    sparse.write_all_at(&random.bytes(100), 20_000).expect("sparse");
    sparse.set_len(50_000).expect("sparse");
    symlink("../../outside/canary", root.join("symlink")).expect("a symlink");
    symlink("/", root.join("directory/root")).expect("a symlink");
    let node = |name: &str, kind, device| {
        let mode = Mode::from_raw_mode(0o600);
        // Only root can create devices.
        let _ = rustix::fs::mknodat(CWD, root.join(name), kind, mode, device);
    };
    node("fifo", FileType::Fifo, 0);
    node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    // The directory's file system may not support any.
    let _ = rustix::fs::setxattr(root.join("text"), "user.a", b"value", XattrFlags::empty());
}

/// Samples of all formats that mtd-utils can make.
///
/// # Panics
/// If they are missing or fail.
pub fn samples() -> Vec<Sample> {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).expect("the tree");
    make_tree(&tree);
    let mut samples = vec![];
    for (name, arguments) in [
        ("little", &["-e", "16KiB", "-l", "--with-xattr"][..]),
        ("big", &["-e", "16KiB", "-b", "--with-xattr"]),
        ("lzo", &["-e", "8KiB", "-l", "-n", "-x", "zlib", "-x", "rtime", "-X", "lzo"]),
        ("rtime", &["-e", "16KiB", "-b", "-x", "zlib", "-x", "lzo", "-X", "rtime"]),
        ("none", &["-e", "8KiB", "-l", "-m", "none", "-p"]),
    ] {
        samples.push(jffs2(folder.path(), &tree, name, arguments));
    }
    samples.push(with_summary(folder.path(), &samples[0]));
    samples.push(with_oob(&samples[0]));
    let nor = Format { min_io: 1, peb_size: 16384, leb_size: 16256, sub_page: None, lebs: 30 };
    let page = Format { min_io: 512, leb_size: 15360, ..nor };
    for (compressor, format) in [("none", nor), ("lzo", page), ("zlib", nor), ("zstd", page)] {
        let more: &[&str] = if compressor == "lzo" { &["-k", "test"] } else { &[] };
        let bare = mkfs(&tree, &format, compressor, more);
        let whole = Sample {
            name: format!("UBI with UBIFS, {compressor}"),
            bytes: ubinize(&bare, &format),
            block_size: format.peb_size as usize,
        };
        if compressor == "zlib" {
            samples.push(Sample {
                name: "UBIFS".into(),
                bytes: bare,
                block_size: format.leb_size as usize,
            });
        }
        samples.push(whole);
    }
    samples
}

fn jffs2(folder: &Path, tree: &Path, name: &str, arguments: &[&str]) -> Sample {
    let image = folder.join(name);
    let mut command = Command::new("mkfs.jffs2");
    command.arg("-r").arg(tree).arg("-o").arg(&image).args(arguments);
    let output = command.output().expect("mkfs.jffs2 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(image).expect("the image");
    let block_size = if arguments.contains(&"8KiB") { 8192 } else { 16384 };
    Sample { name: format!("JFFS2, {name}"), bytes, block_size }
}

fn with_summary(folder: &Path, sample: &Sample) -> Sample {
    let (from, to) = (folder.join("without"), folder.join("with"));
    fs::write(&from, &sample.bytes).expect("the image is written");
    let mut command = Command::new("sumtool");
    command.args(["-e", "16KiB", "-l", "-p", "-i"]).arg(from).arg("-o").arg(&to);
    let output = command.output().expect("sumtool starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(to).expect("the image");
    Sample { name: "JFFS2 with summaries".into(), bytes, block_size: sample.block_size }
}

/// Pages of 512 bytes, each followed by 16 out-of-band bytes, without codes.
fn with_oob(sample: &Sample) -> Sample {
    let pages = sample.bytes.chunks(512);
    let bytes = pages.flat_map(|page| page.iter().copied().chain([0xFF; 16])).collect();
    let block_size = sample.block_size / 512 * 528;
    Sample { name: "JFFS2 with out-of-band bytes".into(), bytes, block_size }
}

/// The prepared images of the mtd-utils test suite in `directory`, as `.gz` files.
///
/// # Panics
/// If they cannot be read.
pub fn prepared(directory: &Path) -> Vec<Sample> {
    let entries = fs::read_dir(directory).expect("the directory of prepared images");
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    paths.sort();
    let samples = paths.iter().map(|path| {
        let output = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip starts");
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Sample { name: format!("prepared {name}"), bytes: output.stdout, block_size: 16384 }
    });
    samples.collect()
}
