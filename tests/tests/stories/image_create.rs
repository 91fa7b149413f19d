//! `flysch image create` as run by users: what goes in comes out, the same input gives the same
//! bytes and, where mtd-utils write the same layout, the same bytes as theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::image_common::{
    differences, extract, has_mtd_utils, make_tree, mkfs_jffs2, run, snapshot, wrong,
};
use flysch_tests::command::{Ran, flysch, ran};

/// A tree and a place for images.
struct Bench {
    folder: tempfile::TempDir,
    tree: PathBuf,
}

impl Bench {
    /// A tree that UBIFS can store completely: it has no access control lists.
    fn new() -> Self {
        let bench = Self::with_lists();
        bench.strip(|name| name.starts_with("system."));
        bench
    }

    fn with_lists() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        make_tree(&tree);
        Self { folder, tree }
    }

    /// Removes extended attributes.
    fn strip(&self, which: impl Fn(&str) -> bool) {
        for path in snapshot(&self.tree).into_keys().map(|path| self.tree.join(path)) {
            let mut list = [0; 4096];
            let length = rustix::fs::llistxattr(&path, &mut list[..]).unwrap_or(0);
            let there = list[..length].split(|&byte| byte == 0);
            let there = there.filter_map(|name| std::str::from_utf8(name).ok());
            for name in there.filter(|name| !name.is_empty() && which(name)) {
                let _ = rustix::fs::lremovexattr(&path, name);
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `flysch image create` with these words; TREE stands for the tree.
    fn create(&self, words: &str) -> Ran {
        let words = words.split_whitespace().map(|word| match word {
            "TREE" => self.tree.to_str().unwrap(),
            word => word,
        });
        let mut command = flysch();
        command.args(["image", "create"]).args(words).current_dir(self.folder.path());
        command.env_remove("SOURCE_DATE_EPOCH").stdin(Stdio::null());
        ran(command.output().unwrap())
    }

    fn made(&self, words: &str) {
        let ran = self.create(words);
        assert_eq!((ran.status, &ran.stderr[..]), (0, ""), "{words}");
    }

    /// Compares the contents of an image with the tree.
    fn verify(&self, name: &str) {
        let image = self.path(name);
        assert_eq!(wrong(&image), Vec::<String>::new(), "{name}");
        let out = self.path("out");
        let extraction = extract(&image, &out);
        assert!(extraction.failures.is_empty(), "{name}: {:?}", extraction.failures);
        let found = differences(&snapshot(&self.tree), &snapshot(&out));
        assert!(found.is_empty(), "{name}: {found:#?}");
        fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn ubifs_holds_what_the_tree_holds() {
    let bench = Bench::new();
    for compressor in ["none", "lzo", "favor_lzo", "zlib", "zstd"] {
        bench.made(&format!("ubifs -r TREE -m 2048 -e 126976 -x {compressor} -o a"));
        bench.verify("a");
    }
    for words in [
        "-m 512 -e 15360 -c 4000",
        "-m 4096 -e 253952 -c 200 -k test",
        "-m 1 -e 65408 --pebs 512 -F",
        "-m 8192 -e 1008KiB -c 100 -f 3 -p 2 -j 6MiB -R 1MiB",
        "-m 2048 -e 129024 --chip-size 128MiB -f 32 -l 9",
    ] {
        bench.made(&format!("ubifs -r TREE -x zstd {words} b"));
        bench.verify("b");
    }
}

#[test]
fn jffs2_holds_what_the_tree_holds() {
    let bench = Bench::with_lists();
    for words in ["", "-b -e 128KiB -n --summary", "-m none -p", "-X lzo -m favourlzo -e 16KiB"] {
        bench.made(&format!("jffs2 -r TREE --with-xattr {words} -o a"));
        bench.verify("a");
    }
}

/// A planted difference proves that the comparison can fail.
#[test]
fn a_difference_is_seen() {
    let bench = Bench::new();
    bench.made("ubifs -r TREE -m 2048 -e 126976 -o a");
    fs::write(bench.tree.join("size 4096"), vec![b'x'; 4096]).unwrap();
    let out = bench.path("out");
    extract(&bench.path("a"), &out);
    assert_eq!(differences(&snapshot(&bench.tree), &snapshot(&out)).len(), 1);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let bench = Bench::new();
    let ubifs = "ubifs -r TREE -m 2048 -e 126976 -x zstd";
    for (words, again) in [
        (format!("{ubifs} --threads 1"), format!("{ubifs} --threads 4")),
        ("jffs2 -r TREE --with-xattr".to_string(), "jffs2 -r TREE --with-xattr".to_string()),
    ] {
        bench.made(&format!("{words} -o a"));
        // Reading changes the access times of files, and a link when one was changed.
        snapshot(&bench.tree);
        let inside = bench.tree.join("random");
        fs::hard_link(&inside, bench.path("other")).unwrap();
        fs::remove_file(bench.path("other")).unwrap();
        bench.made(&format!("{again} -o b"));
        assert!(
            fs::read(bench.path("a")).unwrap() == fs::read(bench.path("b")).unwrap(),
            "{words}"
        );
    }
    let epoch = |seconds: &str, name: &str| {
        let mut command = flysch();
        command.args(["image", "create", "ubifs", "-m", "2048", "-e", "126976", "-o", name, "-r"]);
        command.arg(&bench.tree).env("SOURCE_DATE_EPOCH", seconds);
        ran(command.current_dir(bench.folder.path()).output().unwrap())
    };
    assert_eq!(epoch("1000000000", "a").status, 0);
    let out = bench.path("out");
    extract(&bench.path("a"), &out);
    let times = snapshot(&out).into_keys().map(|path| {
        std::os::unix::fs::MetadataExt::mtime(&out.join(path).symlink_metadata().unwrap())
    });
    assert_eq!(times.max(), Some(1_000_000_000));
    assert_eq!(epoch("soon", "a").status, 2);
}

#[test]
fn archives_give_what_directories_give() {
    if Command::new("tar").arg("--version").output().is_err() {
        println!("skipped: tar is not installed");
        return;
    }
    let bench = Bench::new();
    // tar omits sockets.
    let _ = fs::remove_file(bench.tree.join("socket"));
    bench.made("ubifs -r TREE -m 2048 -e 126976 -o directory");
    let sparse_formats = ["pax-0.0", "pax-0.1", "pax-1.0", "gnu-1.0"];
    for format in ["pax", "gnu"].into_iter().chain(sparse_formats) {
        let archive = bench.path("tar");
        let (base, sparse) = format.split_once('-').map_or((format, None), |it| (it.0, Some(it.1)));
        let mut tar = Command::new("tar");
        tar.arg(format!("--format={base}"));
        if let Some(version) = sparse {
            tar.args(["--sparse", &format!("--sparse-version={version}")]);
        }
        if base == "pax" {
            tar.args(["--xattrs", "--xattrs-include=*"]);
        }
        tar.arg("-cf").arg(&archive).arg("-C").arg(&bench.tree).arg(".");
        assert!(tar.status().unwrap().success());
        bench.made("ubifs --tar tar -m 2048 -e 126976 -o archive");
        let mut piped = flysch();
        piped.args(["image", "create", "ubifs", "--tar", "-", "-m2048", "-e126976", "-o", "-"]);
        let mut cat = Command::new("cat").arg(&archive).stdout(Stdio::piped()).spawn().unwrap();
        let piped = piped.stdin(cat.stdout.take().unwrap()).output().unwrap();
        assert!(cat.wait().unwrap().success());
        assert!(piped.status.success());
        let made = fs::read(bench.path("archive")).unwrap();
        assert!(piped.stdout == made, "{format}: standard input gives something else");
        if base == "pax" {
            assert!(made == fs::read(bench.path("directory")).unwrap(), "{format}");
        } else {
            let out = bench.path("out");
            extract(&bench.path("archive"), &out);
            let without = |path: &Path| crate::image_common::without_xattrs(snapshot(path));
            let found = differences(&without(&bench.tree), &without(&out));
            assert!(found.is_empty(), "{format}: {found:#?}");
            fs::remove_dir_all(out).unwrap();
        }
    }
    fs::write(bench.path("tar"), b"no archive".repeat(100)).unwrap();
    let ran = bench.create("ubifs --tar tar -m 2048 -e 126976 -o a");
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("not a tar archive"), "{}", ran.stderr);
    for (bytes, says) in
        [(&b"\x1f\x8b\x08"[..], "`gzip -dc ARCHIVE |"), (b"", "the archive is empty")]
    {
        fs::write(bench.path("tar"), bytes).unwrap();
        let ran = bench.create("ubifs --tar tar -m 2048 -e 126976 -o a");
        assert_eq!(ran.status, 1);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}

/// Layers packed one after the other: later ones follow symlinks of earlier ones.
#[test]
fn archives_go_through_symlinks_inside_the_image() {
    let bench = Bench::new();
    let layers = bench.path("layers");
    fs::create_dir_all(layers.join("one/usr/lib")).unwrap();
    fs::create_dir_all(layers.join("two/lib/below")).unwrap();
    std::os::unix::fs::symlink("../../usr/lib", layers.join("one/lib")).unwrap();
    fs::write(layers.join("two/lib/below/file"), "content").unwrap();
    let archive = bench.path("tar");
    let tar = |arguments: &[&str]| {
        let mut tar = Command::new("tar");
        assert!(tar.args(arguments).current_dir(&layers).status().unwrap().success());
    };
    tar(&["-cf", archive.to_str().unwrap(), "-C", "one", "."]);
    tar(&["-rf", archive.to_str().unwrap(), "-C", "two", "lib/below/file"]);
    bench.made("ubifs --tar tar -m 2048 -e 126976 -o a");
    let mut cat = flysch();
    let cat = cat.args(["image", "cat"]).arg(bench.path("a")).arg("/usr/lib/below/file");
    assert_eq!(ran(cat.output().unwrap()).stdout, "content");
}

#[test]
fn device_tables_are_done() {
    let bench = Bench::new();
    let table = "# devices\n\
        /dev d 755 0 0 - - - - -\n\
        /dev/ttyS c 660 0 20 4 64 0 1 3\n\
        /dev/mem c 640 0 0 1 1\n\
        /run/pipe p 600 5 6\n\
        /random f 4711 7 8\n";
    fs::write(bench.path("table"), table).unwrap();
    for words in ["ubifs -m 2048 -e 126976", "jffs2"] {
        bench.made(&format!("{words} -r TREE -D table -o a"));
        let mut ls = flysch();
        let listed = ran(ls.args(["image", "ls"]).arg(bench.path("a")).output().unwrap());
        for line in ["ttyS0", "ttyS2", "mem", "pipe"] {
            assert!(listed.stdout.contains(line), "{words}: {line} in {}", listed.stdout);
        }
        let ls = listed.stdout;
        let random = ls.lines().find(|line| line.ends_with("/random")).unwrap();
        assert!(random.contains("rws--x--x"), "{random}");
    }
    for bad in ["/dev x 755 0 0", "dev d 755 0 0", "/no f 755 0 0", "/text c 600 0 0 1 1"] {
        fs::write(bench.path("table"), format!("\n{bad}\n")).unwrap();
        let ran = bench.create("ubifs -m 2048 -e 126976 -r TREE -D table -o b");
        assert_eq!(ran.status, 1, "{bad}");
        assert!(ran.stderr.contains("table: line 2"), "{bad}: {}", ran.stderr);
        assert!(!bench.path("b").exists(), "no image is left behind");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let bench = Bench::new();
    let refused = |words: &str, status: i32, says: &[&str]| {
        let ran = bench.create(words);
        assert_eq!(ran.status, status, "{words}: {}", ran.stderr);
        for part in says {
            assert!(ran.stderr.contains(part), "{words}: {part} in {}", ran.stderr);
        }
        assert!(!bench.path("no").exists(), "{words}");
    };
    let ubifs = "ubifs -r TREE -m 2048 -e 126976 -o no";
    refused(&format!("{ubifs} -c 15"), 1, &["15 LEBs"]);
    refused(&format!("{ubifs} -c 3000000000"), 2, &["is too high"]);
    refused("ubifs -r TREE -m 2048 -e 5 -c 40 -o no", 2, &["needs 15360 to 2097152"]);
    refused(
        "ubifs -r TREE -m 512 -e 15360 -c 40 -x none -o no",
        1,
        &["needed, but the maximum is 40"],
    );
    refused(&format!("{ubifs} --pebs 20"), 1, &["--pebs", "15 for a volume"]);
    let small = "ubifs -r TREE -m 512 -e 15360 -x none -o no --pebs 40";
    refused(small, 1, &["--pebs", "the chip is too small", "LEBs are needed"]);
    refused(&format!("{ubifs} --key file"), 1, &["file: the key cannot be read"]);
    refused(&format!("{ubifs} --auth-key file"), 2, &["--hash-algo"]);
    refused(&format!("{ubifs} --auth-key file --hash-algo sha256"), 1, &["cannot be read"]);
    refused(
        "ubifs -r TREE -m 2048 -e 126976 -o tree/no",
        2,
        &["the directory that it is made from"],
    );
    refused("ubifs -r nowhere -m 2048 -e 126976 -o no", 1, &["nowhere"]);
    refused("jffs2 -r TREE --chip-size 128KiB -o no", 1, &["131072"]);
    fs::write(bench.path("ini"), "[v]\nmode=ubi\nvol_id=0\nvol_name=v\nvol_size=100MiB\n").unwrap();
    let ubi = "ubi ini -p 128KiB -m 2048 -o no";
    refused(&format!("{ubi} --pebs 500"), 1, &["826", "486"]);
    refused(&format!("{ubi} -x 2"), 2, &["the only UBI version is 1"]);
    fs::write(bench.path("ini"), "[v]\nmode=ubi\nvol_id=0\nvol_name=v\nimage=nothing\n").unwrap();
    refused(ubi, 1, &["nothing"]);
    let typo = "[v]\nmode=ubi\nvol_id=0\nvol_name=v\nvol_size=1MiB\nvol_flag=autoresize\n";
    fs::write(bench.path("ini"), typo).unwrap();
    let ran = bench.create("ubi ini -p 128KiB -m 2048 -o yes");
    assert!(ran.stderr.contains("[v]: the key `vol_flag` is not known"), "{}", ran.stderr);
}

/// One name in each directory, so that the order of the host's directories does not matter.
fn make_chain(root: &Path) {
    let mut deep = root.to_path_buf();
    for level in 0..40 {
        deep.push(format!("level-{level}"));
    }
    fs::create_dir_all(&deep).unwrap();
    let content: Vec<u8> =
        (0..1_000_000_u32).flat_map(|at| at.wrapping_mul(7_919_777).to_le_bytes()).collect();
    fs::write(deep.join("content"), content).unwrap();
}

#[test]
fn the_bytes_of_mkfs_ubifs() {
    if !has_mtd_utils() {
        return;
    }
    let bench = Bench::new();
    let chain = bench.path("chain");
    make_chain(&chain);
    for words in [
        "-m 2048 -e 126976 -c 400",
        "-m 512 -e 15360 -c 4000",
        "-m 8 -e 65408 -c 300 -k test -f 5 -p 2 -F",
        "-m 4096 -e 253952 -c 100 -j 3MiB -R 1MiB -l 8",
    ] {
        let ours = format!("ubifs -r chain {words} -x none --all-times --whole-seconds -o ours");
        let mut arguments: Vec<&str> = words.split_whitespace().collect();
        let theirs = bench.path("theirs");
        arguments.extend(["-x", "none", "-r", chain.to_str().unwrap(), "-o"]);
        arguments.push(theirs.to_str().unwrap());
        run("mkfs.ubifs", &arguments);
        // Twice: the first run changes the access times of directories.
        run("mkfs.ubifs", &arguments);
        bench.made(&ours);
        let (ours, theirs) = (fs::read(bench.path("ours")).unwrap(), fs::read(theirs).unwrap());
        assert_eq!(ours.len(), theirs.len(), "{words}");
        let leb_size = words.split(' ').nth(3).unwrap().parse::<usize>().unwrap();
        let differ: Vec<usize> = ours
            .chunks(leb_size)
            .zip(theirs.chunks(leb_size))
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(leb, _)| leb)
            .collect();
        // The superblock has its own id, and after it mkfs.ubifs leaves an empty signature, which
        // takes a sequence number from the log.
        assert!(differ.iter().all(|leb| [0, 3].contains(leb)), "{words}: LEBs {differ:?}");
        assert_eq!(ours[24..108], theirs[24..108], "{words}");
        assert_eq!(ours[124..4096], theirs[124..4096], "{words}");
        let log = 3 * leb_size;
        assert_eq!(ours[log + 16..log + leb_size], theirs[log + 16..log + leb_size], "{words}");
    }
}

#[test]
fn the_bytes_of_mkfs_jffs2() {
    if !has_mtd_utils() {
        return;
    }
    let bench = Bench::new();
    // mkfs.jffs2 numbers attributes in the order in which the host lists them.
    bench.strip(|_| true);
    for words in ["-e 64KiB -l -m none", "-e 128KiB -b -n -p -x zlib --with-xattr"] {
        let arguments: Vec<&str> = words.split_whitespace().collect();
        mkfs_jffs2(&bench.tree, &bench.path("theirs"), &arguments);
        mkfs_jffs2(&bench.tree, &bench.path("theirs"), &arguments);
        bench.made(&format!("jffs2 -r TREE {words} --as-mkfs -o ours"));
        let [ours, theirs] = ["ours", "theirs"].map(|name| fs::read(bench.path(name)).unwrap());
        assert!(ours == theirs, "{words}: {} and {} bytes", ours.len(), theirs.len());
    }
}

#[test]
fn the_bytes_of_ubinize() {
    if !has_mtd_utils() {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("kernel"), vec![0x5a; 300_001]).unwrap();
    bench.made("ubifs -r TREE -m 2048 -e 126976 -c 400 -o root");
    // For all geometries: a UBIFS would be for one only.
    let mut root = fs::read(bench.path("root")).unwrap();
    root[0] ^= 1;
    fs::write(bench.path("root"), root).unwrap();
    let ini = "; volumes\n\
        [Root-FS]\nmode=ubi\nimage = root\nvol_id=1\nvol_name=rootfs\nvol_flags=autoresize\n\
        [kernel]\nmode=ubi\nimage=kernel\nvol_id=0\nvol_type=static\nvol_name=\"kernel\"\n\
        vol_flags=skip-check\n\
        [space]\nmode=ubi\nvol_id=7\nvol_size=1MiB\nvol_name=space # nothing in it\n\
        vol_alignment=2048\n";
    fs::write(bench.path("ini"), ini).unwrap();
    for words in [
        "-p 128KiB -m 2048 -Q 12345",
        "-p 131072 -m 2048 -s 512 -O 1024 -e 7 -Q 1",
        "-p 64KiB -m 1 -Q 0",
    ] {
        let mut ubinize = Command::new("ubinize");
        ubinize.current_dir(bench.folder.path()).args(["-o", "theirs"]);
        let status = ubinize.args(words.split(' ')).arg("ini").stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
        bench.made(&format!("ubi {words} -o ours ini"));
        let [ours, theirs] = ["ours", "theirs"].map(|name| fs::read(bench.path(name)).unwrap());
        assert!(ours == theirs, "{words}: {} and {} bytes", ours.len(), theirs.len());
    }
    bench.made("ubi -p 128KiB -m 2048 -o a ini");
    // Sections about something else are skipped; ubinize 2.1.5 crashes on them.
    bench.made("ubi -p 128KiB -m 2048 -o b ini");
    fs::write(bench.path("more"), format!("{ini}[other]\nmode=else\n")).unwrap();
    bench.made("ubi -p 128KiB -m 2048 -Q 5 -o c more");
    bench.made("ubi -p 128KiB -m 2048 -Q 5 -o d ini");
    assert!(fs::read(bench.path("c")).unwrap() == fs::read(bench.path("d")).unwrap());
    let [a, b] = ["a", "b"].map(|name| fs::read(bench.path(name)).unwrap());
    assert!(a == b, "the image sequence number follows from the content");
}

/// A UBIFS that Linux would not mount from the volume is refused when the volume is made, and the
/// message names the remedy; a chip that is too small is reported as a fault of its option.
#[test]
fn what_does_not_go_together_is_refused() {
    let bench = Bench::new();
    bench.made("ubifs -r TREE -m 2048 -e 126976 -c 100 -o fs");
    let ini = |more: &str| {
        let text =
            format!("[v]\nmode=ubi\nimage=fs\nvol_id=0\nvol_type=dynamic\nvol_name=root\n{more}\n");
        fs::write(bench.path("ini"), text).unwrap();
    };
    for (more, options, told) in [
        ("", "-p 128KiB -m 2048", ""),
        ("vol_flags=autoresize", "-p 128KiB -m 2048", ""),
        ("", "-p 128KiB -m 2048 -s 512", "for LEBs of 126976 bytes, but these have 129024"),
        ("", "-p 256KiB -m 2048", "make it with -e 258048"),
        ("vol_alignment=4096", "-p 128KiB -m 2048", ""),
        ("vol_alignment=65536", "-p 128KiB -m 2048", "make it with -e 65536"),
        ("", "-p 128KiB -m 512 -O 3584", "for I/O units of 2048 bytes, but these have 512"),
    ] {
        ini(more);
        let ran = bench.create(&format!("ubi {options} -o ubi ini"));
        assert_eq!(ran.status, i32::from(!told.is_empty()), "{options}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{options}: {}", ran.stderr);
    }
    // The size in the superblock is larger than the file.
    let bytes = fs::read(bench.path("fs")).unwrap();
    fs::write(bench.path("fs"), &bytes[..3 * 126_976]).unwrap();
    ini("");
    let ran = bench.create("ubi -p 128KiB -m 2048 -o ubi ini");
    assert!(
        ran.status == 1 && ran.stderr.contains("but the volume has 3: give a"),
        "{}",
        ran.stderr
    );

    for (options, told) in [
        ("--pebs 5", "--pebs: a chip of 5 erase blocks leaves 0 for a volume"),
        ("--pebs 20", "take 22 erase blocks or more"),
        ("--chip-size 1MiB", "--chip-size: a chip of 8 erase blocks"),
    ] {
        let ran = bench.create(&format!("ubifs -r TREE -m 2048 -e 126976 {options} -o none"));
        assert!(ran.status == 1 && ran.stderr.contains(told), "{options}: {}", ran.stderr);
        assert!(!bench.path("none").exists());
    }
}
