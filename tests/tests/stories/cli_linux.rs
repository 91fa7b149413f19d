//! `flysch bench --on linux:FILE`: Linux's own block layer under our workloads, next to fio.

use std::fs;
use std::path::Path;

use flysch_tests::command::{flysch, lacks};
use serde_json::Value;

/// Runs fio with JSON output in `folder`; returns its job's result.
fn fio(folder: &Path, arguments: &str) -> Value {
    let mut command = std::process::Command::new("fio");
    let words = "--name=j --filename=disk --output-format=json";
    command.args(words.split(' ')).args(arguments.split_whitespace()).current_dir(folder);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let at = text.find('{').unwrap_or_else(|| panic!("fio {arguments}: {text}"));
    let all: Value = serde_json::from_str(&text[at..]).unwrap();
    all["jobs"][0].clone()
}

/// Runs `flysch bench` in `folder`; returns the status, its job's result and its messages.
fn bench(folder: &Path, target: &str, arguments: &str) -> (Option<i32>, Value, String) {
    let mut command = flysch();
    command.args(["bench", "--json", "--on", target, "--name=j"]);
    let output = command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), all["jobs"][0].clone(), said)
}

fn counts(job: &Value) -> [u64; 5] {
    let number = |side: &str, key: &str| job[side][key].as_u64().unwrap();
    let (read, write) = (number("read", "total_ios"), number("write", "total_ios"));
    let bytes = number("read", "io_bytes") + number("write", "io_bytes");
    [read, write, bytes, job["error"].as_u64().unwrap(), job["total_err"].as_u64().unwrap_or(0)]
}

/// What one engine writes, every other verifies; and the same job makes the same number of requests
/// in each.
#[test]
fn fio_and_every_engine_agree_on_one_file() {
    if lacks("fio") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = "--rw=randwrite --bs=4k --size=2m --iodepth=8 --verify=crc32c --do_verify=0";
    let check = "--rw=randwrite --bs=4k --size=2m --iodepth=8 --verify=crc32c --verify_only=1";
    let mixed = "--rw=randrw --bs=4k --size=2m --iodepth=4 --randseed=7 --end_fsync=1";
    let engines = [
        ("engine=io_uring", "io_uring"),
        ("engine=io_uring,fixed=off,direct=off", "io_uring"),
        ("engine=aio", "libaio"),
        ("engine=psync", "psync"),
    ];
    for (keys, theirs) in engines {
        let target = format!("linux:disk,{keys}");
        fs::write(folder.join("disk"), vec![0; 2 << 20]).unwrap();
        let (status, ours, said) = bench(folder, &target, write);
        assert_eq!(status, Some(0), "{target}: {said}");
        assert_eq!(counts(&ours)[1], 512);
        let theirs_of_ours = fio(folder, &format!("{check} --ioengine={theirs}"));
        assert_eq!(theirs_of_ours["error"], 0, "{target}");
        fs::write(folder.join("disk"), vec![0; 2 << 20]).unwrap();
        fio(folder, &format!("{write} --ioengine={theirs} --direct=1"));
        let (status, _, said) = bench(folder, &target, check);
        assert_eq!(status, Some(0), "{target}: {said}");
        // Data that differs from what was written is detected.
        let mut bytes = fs::read(folder.join("disk")).unwrap();
        bytes[77_777] ^= 4;
        fs::write(folder.join("disk"), bytes).unwrap();
        let (status, _, said) = bench(folder, &target, check);
        assert!(status == Some(1) && said.contains("verify of the block"), "{target}: {said}");
        let (status, ours, said) = bench(folder, &target, mixed);
        assert_eq!(status, Some(0), "{target}: {said}");
        let fio = fio(folder, &format!("{mixed} --ioengine={theirs}"));
        let (ours, fio) = (counts(&ours), counts(&fio));
        assert_eq!([ours[0] + ours[1], ours[2], ours[3]], [fio[0] + fio[1], fio[2], fio[3]]);
    }
}

/// Anything that would destroy data or cannot work is refused before anything runs.
#[test]
fn files_stay_as_they_are_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = |target: &str, arguments: &str, status: i32| {
        let (code, _, said) = bench(folder, target, arguments);
        assert_eq!(code, Some(status), "{target}: {said}");
        said
    };
    let said = refused("linux:disk", "--rw=read", 1);
    assert!(said.contains("disk: does not exist; give `size=`"), "{said}");
    assert!(!folder.join("disk").exists());
    let (code, _, said) = bench(folder, "linux:disk,size=1M", "--rw=write --bs=64k");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fs::metadata(folder.join("disk")).unwrap().len(), 1 << 20);
    let said = refused("linux:disk,write=off", "--rw=write", 2);
    assert!(said.contains("j writes, but the device is read-only"), "{said}");
    let (code, _, said) = bench(folder, "linux:disk", "--rw=write --bs=64k --size=2m");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fs::metadata(folder.join("disk")).unwrap().len(), 1 << 20, "a file is not grown");
    let said = refused("linux:disk,size=2M", "--rw=read", 1);
    assert!(said.contains("has 1048576 bytes, but `size=` asks for 2097152"), "{said}");
    let said = refused("linux:disk,engine=aio,polled=on", "--rw=read", 1);
    assert!(said.contains("polled: `engine=aio` has no polling"), "{said}");
    let said = refused("linux:/dev/null", "--rw=read", 1);
    assert!(said.contains("is a character device"), "{said}");
}
