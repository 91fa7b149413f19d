//! What we write for verification, Debian's fio verifies; what fio writes, we verify.

use std::path::Path;
use std::process::Command;

use flysch_bench::clock::RealClock;
use flysch_bench::file::{File, FileOptions};
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{self, PlayOptions};
use flysch_bench::runner::{Assignment, RunOptions, Verified, run};
use flysch_bench::verify::Method;
use flysch_bench::workload::{BlockSize, Direction, Distribution, Mix, Order, Verify, Workload};

/// Every method once, and one of them with short and with long units.
const CASES: [(Method, u32); 14] = [
    (Method::Crc32c, 4096),
    (Method::Crc32, 4096),
    (Method::XxHash, 4096),
    (Method::Md5, 4096),
    (Method::Crc64, 4096),
    (Method::Crc16, 4096),
    (Method::Crc7, 4096),
    (Method::Sha1, 4096),
    (Method::Sha3_224, 4096),
    (Method::Sha3_256, 4096),
    (Method::Sha3_384, 4096),
    (Method::Sha3_512, 4096),
    (Method::Crc32c, 512),
    (Method::Crc32c, 65_536),
];
const SIZE: u64 = 1 << 20;

fn play(path: &Path, direction: Direction, method: Method, bs: u32) -> (Verified, bool) {
    let clock = RealClock::new();
    let create_size = Some(SIZE);
    let options = FileOptions { create_size, block_size: 512, memory_len: 1 << 20 };
    let mut lanes = [File::open(path, options, clock.clone()).unwrap()];
    let verify = Verify { method, ..Verify::default() };
    let workload = Workload {
        mix: Mix::Only(direction),
        order: Order::Random { each_once: true, distribution: Distribution::Uniform, run: 1 },
        block_size: [bs, bs, bs].map(BlockSize::Fixed),
        depth: 8,
        verify: Some(verify),
        ..Workload::default()
    };
    let assignment = [Assignment::new(workload, 0)];
    let outcome = run(&mut lanes, &clock, &assignment, RunOptions::default()).unwrap();
    let worker = &outcome.workers[0];
    (worker.verified.clone().unwrap(), worker.failure.is_some())
}

/// Runs fio on `path`; whether it was content. `None` if there is no fio.
fn fio(path: &Path, rw: &str, method: Method, bs: u32) -> Option<(bool, String)> {
    // fio leaves a file with its verify state in the working directory.
    let output = Command::new("fio")
        .current_dir(path.parent().unwrap())
        .args(["--name=other", "--ioengine=psync", "--do_verify=0", "--size=1m"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--rw={rw}"))
        .arg(format!("--bs={bs}"))
        .arg(format!("--verify={method}"))
        .output();
    match output {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            Some((output.status.success(), errors))
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "fio: {error}");
            eprintln!("skipped: fio: {error}");
            None
        }
    }
}

#[test]
fn fio_verifies_what_we_wrote_and_finds_what_we_broke() {
    let folder = tempfile::tempdir().unwrap();
    for (method, bs) in CASES {
        let path = folder.path().join(format!("{method}-{bs}"));
        let (verified, failed) = play(&path, Direction::Write, method, bs);
        assert_eq!((verified.bytes, verified.mismatches, failed), (SIZE, 0, false));
        let Some((good, errors)) = fio(&path, "randread", method, bs) else { return };
        assert!(good, "{method} {bs}: {errors}");
        let mut content = std::fs::read(&path).unwrap();
        content[500_000] ^= 0x10;
        std::fs::write(&path, content).unwrap();
        let Some((good, _)) = fio(&path, "randread", method, bs) else { return };
        assert!(!good, "{method} {bs}: fio does not see a flipped bit");
    }
}

#[test]
fn we_verify_what_fio_wrote_and_find_what_was_broken() {
    let folder = tempfile::tempdir().unwrap();
    for (method, bs) in CASES {
        let path = folder.path().join(format!("{method}-{bs}"));
        let Some((good, errors)) = fio(&path, "randwrite", method, bs) else { return };
        assert!(good, "{errors}");
        let (verified, failed) = play(&path, Direction::Read, method, bs);
        assert_eq!((verified.bytes, verified.mismatches, failed), (SIZE, 0, false), "{verified:?}");
        let mut content = std::fs::read(&path).unwrap();
        content[500_000] ^= 0x10;
        std::fs::write(&path, content).unwrap();
        let (verified, failed) = play(&path, Direction::Read, method, bs);
        assert_eq!((verified.bytes, verified.mismatches, failed), (SIZE - u64::from(bs), 1, true));
    }
}

/// Headers that stand elsewhere, and patterns, are read by either program from the other.
#[test]
fn layouts_and_patterns_are_fios() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    for options in [
        "verify=crc32c\nverify_offset=200",
        "verify=md5\nverify_interval=1024\nverify_offset=512",
        "verify=meta\nverify_pattern=0xaa555aa5\nverify_interval=512",
        "verify=pattern\nverify_pattern=%o",
        "verify=pattern\nverify_pattern=0xff%o\"abcd\"-12",
    ] {
        let text = |rw: &str| {
            format!(
                "[a]\nioengine=psync\nfilename={}\nsize=1m\nbs=4k\nrw={rw}\ndo_verify={}\n\
                 {options}\n",
                path.display(),
                u32::from(rw == "read")
            )
        };
        let fio = |rw: &str| {
            let jobs = folder.path().join("jobs.fio");
            std::fs::write(&jobs, text(rw)).unwrap();
            Command::new("fio").current_dir(folder.path()).arg(&jobs).output()
        };
        let ours = |rw: &str| {
            let file = JobFile::parse(&text(rw), Path::new("jobs.fio"), &[]).unwrap();
            let clock = RealClock::new();
            let options =
                FileOptions { create_size: Some(SIZE), block_size: 512, memory_len: 1 << 20 };
            let mut lanes = [File::open(&path, options, clock.clone()).unwrap()];
            let played = play::play(&mut lanes, &clock, &file, PlayOptions::default()).unwrap();
            played.jobs[0].failure.clone()
        };
        let fill = |content: u8| std::fs::write(&path, vec![content; SIZE as usize]).unwrap();
        fill(1);
        assert_eq!(ours("write"), None, "{options}");
        let output = match fio("read") {
            Ok(output) => output,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "fio: {error}");
                eprintln!("skipped: fio: {error}");
                return;
            }
        };
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{options}: {errors}");
        fill(2);
        assert!(ours("read").is_some(), "{options}: what was never written passes");
        assert!(fio("write").unwrap().status.success(), "{options}");
        assert_eq!(ours("read"), None, "{options}");
    }
}
