//! `flysch copy`: what goes in comes out.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use flysch_random::SplitMix64;
use flysch_tests::command::{flysch, ran, run_in};

/// Bytes each of which differs from its neighbours; `seed` shifts them.
fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..length).map(|_| random.bits() as u8).collect()
}

#[test]
fn a_file_through_an_image_comes_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Not a multiple of anything.
    let data = bytes(20_000_001, 1);
    fs::write(folder.join("in"), &data).unwrap();
    for target in
        ["ufs,image=a.img,size=32M", "ufs,image=b.img,size=32M,mcq=2", "file:c.img,size=32M"]
    {
        let ran = run_in(&format!("copy in {target} --verify"), folder);
        assert_eq!(ran.status, 0, "{target}: {}", ran.stderr);
        assert!(ran.stdout.contains("20000001 bytes") && ran.stdout.contains("verified"));
        let ran = run_in(&format!("copy {target} out --length 20000001"), folder);
        assert_eq!(ran.status, 0, "{target}: {}", ran.stderr);
        assert!(fs::read(folder.join("out")).unwrap() == data, "{target}");
    }
    // The image equals the unit, byte by byte.
    assert!(fs::read(folder.join("a.img")).unwrap()[..data.len()] == data);
}

#[test]
fn from_one_target_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = bytes(1 << 20, 2);
    fs::write(folder.join("a.img"), &data).unwrap();
    let ran = run_in("copy ufs,image=a.img ufs,image=b.img,size=2M --seek 4097 --verify", folder);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let image = fs::read(folder.join("b.img")).unwrap();
    assert!(image[4097..4097 + data.len()] == data && image[..4097].iter().all(|b| *b == 0));
}

#[test]
fn streams_skip_and_seek() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = bytes(300_000, 3);
    let words = ["copy", "-", "ufs,image=a.img,size=1M", "--skip", "1000", "--seek", "5000"];
    let mut child = flysch().args(words).current_dir(folder).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&data).unwrap();
    assert!(child.wait().unwrap().success());
    let words = ["copy", "ufs,image=a.img", "-", "--skip", "5000", "--length", "299000"];
    let output = flysch().args(words).current_dir(folder).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(output.stdout == data[1000..]);
}

#[test]
fn zeros_become_holes_and_an_old_file_is_replaced_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = bytes(1 << 20, 4);
    fs::write(folder.join("in"), &data).unwrap();
    fs::write(folder.join("out"), b"old").unwrap();
    let old = fs::File::open(folder.join("out")).unwrap();
    assert_eq!(run_in("copy in ufs,image=a.img,size=64M", folder).status, 0);
    assert_eq!(run_in("copy ufs,image=a.img out", folder).status, 0);
    let new = fs::metadata(folder.join("out")).unwrap();
    assert_eq!(new.len(), 64 << 20);
    assert!(new.blocks() * 512 < 4 << 20, "{} blocks for 1 MiB of data", new.blocks());
    assert_ne!(new.ino(), old.metadata().unwrap().ino());
    assert_eq!(old.metadata().unwrap().len(), 3, "whoever had it open still has it");
    assert!(fs::read(folder.join("out")).unwrap()[..data.len()] == data);
}

#[test]
fn to_a_target_that_is_faster_than_the_copy() {
    // More than fits into its queue at once, and more than one chunk.
    let input = fs::File::open("/dev/zero").unwrap();
    let words = ["copy", "-", "null", "--length", "40000001"];
    let ran = ran(flysch().args(words).stdin(input).output().unwrap());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("40000001 bytes"), "{}", ran.stdout);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let script = "\"$0\" copy null,size=1G - | head -c 10 | wc -c";
    let program = flysch().get_program().to_owned();
    let output =
        std::process::Command::new("sh").args(["-c", script]).arg(program).output().unwrap();
    let ran = ran(output);
    assert_eq!((ran.stdout.trim(), ran.stderr.as_str()), ("10", ""));
}
