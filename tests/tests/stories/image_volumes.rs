//! UBI with several volumes, through the command: UBIFS and static volumes, one that grows, one
//! without a file system; damaged and intact.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use crate::image_common::{
    Noise, differences, has_mtd_utils, make_tree, run, snapshot, without_xattrs,
};
use flysch_tests::command;

const PEB_SIZE: usize = 128 << 10;

/// A device with volumes `root` and `data` (UBIFS), `kernel` (static), `spare` (dynamic, no file
/// system), and the bytes of the latter two.
fn make(folder: &Path) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let text = |name: &str| folder.join(name).display().to_string();
    let mut noise = Noise::new(77);
    let (kernel, spare) = (noise.bytes(300_000), noise.bytes(50_000));
    std::fs::write(folder.join("kernel.bin"), &kernel).unwrap();
    std::fs::write(folder.join("spare.bin"), &spare).unwrap();
    for (tree, extra) in [("tree", "favor_lzo"), ("other", "zlib")] {
        let arguments = ["-r", &text(tree), "-m", "2048", "-e", "129024", "-c", "300"];
        let more = ["-x", extra, "-F", "-o", &text(&format!("{tree}.ubifs"))];
        run("mkfs.ubifs", &[&arguments[..], &more].concat());
    }
    let volume = |id: u32, name: &str, kind: &str, image: &str, flags: &str| {
        format!(
            "[{name}]\nmode=ubi\nimage={}\nvol_id={id}\nvol_type={kind}\nvol_name={name}\n{flags}",
            text(image)
        )
    };
    let ini = [
        volume(0, "kernel", "static", "kernel.bin", ""),
        volume(1, "root", "dynamic", "tree.ubifs", "vol_size=40MiB\n"),
        volume(5, "spare", "dynamic", "spare.bin", "vol_alignment=2048\n"),
        volume(7, "data", "dynamic", "other.ubifs", "vol_flags=autoresize\n"),
    ];
    std::fs::write(folder.join("ini"), ini.concat()).unwrap();
    let arguments = ["-m", "2048", "-s", "512", "-p", "128KiB", "-Q", "9"];
    run("ubinize", &[&arguments[..], &["-o", &text("ubi"), &text("ini")]].concat());
    (std::fs::read(folder.join("ubi")).unwrap(), kernel, spare)
}

#[test]
fn each_volume_comes_out_in_its_place() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    make_tree(&at("tree"));
    std::fs::create_dir(at("other")).unwrap();
    std::fs::write(at("other/file"), b"in the other volume").unwrap();
    // mkfs.ubifs stores whole seconds.
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    std::fs::File::open(at("other/file")).unwrap().set_modified(time).unwrap();
    let (image, kernel, spare) = make(folder.path());
    let shown = |name: &str| without_xattrs(snapshot(&at(name)));

    let ran = command::run_in("image extract ubi -o out", folder.path());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(differences(&shown("tree"), &shown("out/root")), [""; 0]);
    assert_eq!(differences(&shown("other"), &shown("out/data")), [""; 0]);
    assert_eq!(std::fs::read(at("out/kernel.bin")).unwrap(), kernel);
    let found = std::fs::read(at("out/spare.bin")).unwrap();
    assert_eq!(found[..spare.len()], spare);
    assert!(found[spare.len()..].iter().all(|&byte| byte == 0xFF));

    let ran = command::run_in("image extract ubi --volume 7 -o seven", folder.path());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(differences(&shown("other"), &shown("seven")), [""; 0]);
    let ran = command::run_in("image extract ubi --volume nothing -o none", folder.path());
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("kernel, root, spare, data"), "{}", ran.stderr);
    let ran = command::run_in("image cat ubi --volume data /file", folder.path());
    assert_eq!((ran.status, &ran.stdout[..]), (0, "in the other volume"));

    // The part cut off contained the index of a volume: the output is not everything there was.
    let half = &image[..image.len() / PEB_SIZE / 2 * PEB_SIZE];
    std::fs::write(at("half"), half).unwrap();
    for words in ["extract half -o half-out", "ls half", "info half"] {
        let ran = command::run_in(&format!("image {words}"), folder.path());
        assert_eq!(ran.status, 1, "{words}: {}", ran.stdout);
        assert!(ran.stderr.contains("index"), "{words}: {}", ran.stderr);
    }

    // A static volume has checksums for its bytes; damaged ones are reported and not output.
    let mut damaged = image;
    let vid = |peb: usize| &damaged[peb * PEB_SIZE + 512..][..64];
    let is_kernel = |&peb: &usize| vid(peb)[8..12] == [0; 4] && vid(peb)[5] == 2;
    let peb = (0..damaged.len() / PEB_SIZE).find(is_kernel).expect("the kernel is there");
    damaged[peb * PEB_SIZE + 5000] ^= 0x40;
    std::fs::write(at("ubi"), damaged).unwrap();
    let ran = command::run_in("image check ubi", folder.path());
    assert_eq!(ran.status, 1);
    assert!(ran.stdout.contains(&format!("PEB {peb}")), "{}", ran.stdout);
    let ran = command::run_in("image extract ubi -o again", folder.path());
    assert_eq!(differences(&shown("tree"), &shown("again/root")), [""; 0]);
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("kernel"), "{}", ran.stderr);
    assert!(!at("again/kernel.bin").exists(), "nothing of it is handed out");
}

/// The command with an image on standard input, through a pipe.
fn through_a_pipe(words: &str, image: &[u8], folder: &Path) -> command::Ran {
    let mut process = command::flysch();
    process.args(words.split(' ')).current_dir(folder).stdin(Stdio::piped());
    let mut child = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut input, image) = (child.stdin.take().unwrap(), image.to_vec());
    // What is refused is not read.
    let writer = std::thread::spawn(move || drop(input.write_all(&image)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    command::ran(output)
}

#[test]
fn an_image_may_come_through_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tree")).unwrap();
    std::fs::write(folder.path().join("tree/name"), "content").unwrap();
    let made = "image create jffs2 -r tree -e 64KiB -o image";
    assert_eq!(command::run_in(made, folder.path()).status, 0);
    let image = std::fs::read(folder.path().join("image")).unwrap();
    for (words, shown) in [
        ("image info -", "JFFS2"),
        ("image ls /dev/stdin", "name"),
        ("image cat - name", "content"),
        ("image extract - -o out", ""),
        ("image check -", ""),
    ] {
        let ran = through_a_pipe(words, &image, folder.path());
        assert_eq!(ran.status, 0, "{words}: {}", ran.stderr);
        assert!(ran.stdout.contains(shown), "{words}: {}", ran.stdout);
    }
    assert_eq!(std::fs::read(folder.path().join("out/name")).unwrap(), b"content");
    for (words, status, told) in [
        ("image edit - rm name", 2, "save the image in a file"),
        ("image repair -", 2, "save the image in a file"),
        ("image edit /dev/stdin rm name", 1, "save the image in a file"),
    ] {
        let ran = through_a_pipe(words, &image, folder.path());
        assert_eq!(ran.status, status, "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{words}: {}", ran.stderr);
    }
    let ran = through_a_pipe("image info -", b"", folder.path());
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("is empty"), "{}", ran.stderr);
}
