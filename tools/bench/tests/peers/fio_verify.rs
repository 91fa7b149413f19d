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

/// A disk of 1 MiB in a folder of its own, for jobs of fio and of ours.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        disk.fill(0);
        disk
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("disk")
    }

    fn fill(&self, content: u8) {
        std::fs::write(self.path(), vec![content; SIZE as usize]).unwrap();
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// A job file whose first job begins with `jobs`.
    fn text(&self, jobs: &str) -> String {
        let disk = self.path();
        format!("[global]\nioengine=psync\nfilename={}\n[a]\n{jobs}\n", disk.display())
    }

    /// Whether fio is content; `None` without fio.
    fn fio(&self, jobs: &str) -> Option<bool> {
        let file = self.0.path().join("jobs.fio");
        std::fs::write(&file, self.text(jobs)).unwrap();
        match Command::new("fio").current_dir(self.0.path()).arg(&file).output() {
            Ok(output) => Some(output.status.success()),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "fio: {error}");
                eprintln!("skipped: fio: {error}");
                None
            }
        }
    }

    fn ours(&self, jobs: &str) -> bool {
        let Ok(file) = JobFile::parse(&self.text(jobs), Path::new("jobs.fio"), &[]) else {
            return false;
        };
        let clock = RealClock::new();
        let options = FileOptions { create_size: None, block_size: 512, memory_len: 1 << 20 };
        let mut lanes = [File::open(&self.path(), options, clock.clone()).unwrap()];
        let Ok(played) = play::play(&mut lanes, &clock, &file, PlayOptions::default()) else {
            return false;
        };
        played.jobs.iter().all(|job| job.failure.is_none())
    }

    /// The lengths in all headers.
    fn header_lengths(&self) -> std::collections::BTreeSet<u32> {
        let content = self.content();
        let headers = content.chunks(512).filter(|it| it.starts_with(&[0xca, 0xac]));
        headers.map(|it| u32::from_le_bytes(it[4..8].try_into().unwrap())).collect()
    }
}

#[test]
fn headers_are_as_far_apart_as_fios() {
    let disk = Disk::new();
    for (job, lengths) in [
        ("rw=write\nbs=4k\noffset=1k\nsize=64k", &[4096][..]),
        ("rw=randwrite\nbs=4k\noffset=512\nsize=64k", &[4096]),
        ("rw=randrw\nbs=4k,16k\nsize=1m", &[16_384]),
        ("rw=randwrite\nbs=64k\nba=4k\nsize=256k", &[65_536]),
        ("rw=write\nbs=64k\nsize=256k\nnumjobs=2\noffset_increment=260k", &[65_536]),
        (
            "rw=write\nbs=16k\nsize=256k\nzonemode=strided\nzonesize=32k\nzonerange=32k\n\
             zoneskip=4k",
            &[16_384],
        ),
        ("rw=write:4k\nbs=16k\nsize=256k", &[16_384]),
        ("rw=randwrite\nbssplit=8k/50:12k/50\nsize=240k", &[4096]),
        ("rw=write\nbsrange=8k-32k\nsize=256k\nverify_interval=4k", &[4096]),
        ("rw=write\nbs=4k\nsize=64k\nverify_interval=1536", &[4096]),
        ("rw=write\nbs=6k\nsize=96k\nverify_interval=4k", &[6144]),
        ("rw=write\nbs=4k\nsize=64k\nverify_interval=3000", &[4096]),
        ("rw=write\nbs=4k\nsize=64k\nverify_interval=16k", &[4096]),
        (
            "rw=write\nbs=4k\nsize=64k\n[b]\nrw=write\nbs=64k\noffset=512k\nsize=256k\n\
             verify=crc32c\ndo_verify=0",
            &[4096, 65_536],
        ),
    ] {
        let job = format!("verify=crc32c\ndo_verify=0\n{job}");
        disk.fill(0);
        let Some(good) = disk.fio(&job) else { return };
        let theirs = disk.header_lengths();
        disk.fill(0);
        assert!(good && disk.ours(&job), "{job}");
        assert_eq!(disk.header_lengths(), theirs, "{job}");
        assert_eq!(theirs.into_iter().collect::<Vec<_>>(), lengths, "{job}");
    }
}

/// What either wrote both read, or neither.
#[test]
fn both_read_the_same() {
    let disk = Disk::new();
    for (writes, reads, good) in [
        // Each job has headers of its own.
        (
            "rw=write\nbs=4k\nsize=64k\nverify=crc32c\n[b]\nrw=write\nbs=64k\noffset=64k\n\
             size=512k\nverify=crc32c\ndo_verify=0",
            "rw=read\nbs=4k\nsize=64k\nverify=crc32c\n[b]\nrw=read\nbs=64k\noffset=64k\n\
             size=512k\nverify=crc32c",
            true,
        ),
        (
            "rw=write\nbs=4k\nsize=64k\nverify=crc32c",
            "rw=read\nbs=16k\nsize=64k\nverify=crc32c",
            false,
        ),
        (
            "rw=write\nbs=4k\nsize=64k\nverify=crc32c",
            "rw=read\nbs=16k\nsize=64k\nverify=crc32c\nverify_interval=4k",
            true,
        ),
        ("rw=write\nbs=16k\nsize=64k\nverify=md5", "rw=read\nbs=4k\nsize=64k\nverify=md5", false),
        ("rw=write\nbs=4k\nsize=64k\nverify=crc32c", "rw=read\nbs=4k\nsize=64k\nverify=meta", true),
        ("rw=write\nbs=4k\nsize=64k\nverify=crc32c", "rw=read\nbs=4k\nsize=64k\nverify=md5", false),
        (
            "rw=write\nbs=1k\nsize=64k\nverify=sha3-512\nverify_interval=104",
            "rw=read\nbs=1k\nsize=64k\nverify=sha3-512\nverify_interval=104",
            true,
        ),
        // The pattern runs on through a request, and has its offset.
        (
            "rw=write\nbs=4k\nsize=64k\nverify=meta\nverify_pattern=0x11%o\nverify_interval=512",
            "rw=read\nbs=4k\nsize=64k\nverify=meta\nverify_pattern=0x11%o\nverify_interval=512",
            true,
        ),
        (
            "rw=write\nbs=4k\nsize=64k\nverify=pattern\nverify_pattern=\"abc\"\n\
             verify_interval=512",
            "rw=read\nbs=4k\nsize=64k\nverify=pattern\nverify_pattern=\"abc\"",
            true,
        ),
        (
            "rw=write\nbs=4k\nsize=64k\nverify=pattern\nverify_pattern=%o",
            "rw=read\nbs=8k\nsize=64k\nverify=pattern\nverify_pattern=%o",
            false,
        ),
        (
            "rw=write\nbs=4k\nsize=64k\nverify=pattern\nverify_pattern=\"abc\"",
            "rw=read\nbs=8k\nsize=64k\nverify=pattern\nverify_pattern=\"abc\"",
            false,
        ),
        // A pattern alone asks for verification, unless that is off.
        (
            "rw=write\nbs=4k\nsize=64k\nverify_pattern=0xaabb",
            "rw=read\nbs=4k\nsize=64k\nverify_pattern=0xaabb",
            true,
        ),
        (
            "rw=write\nbs=4k\nsize=64k\nverify=0\nverify_pattern=0xaabb",
            "rw=read\nbs=4k\nsize=64k\nverify_pattern=0xaabb",
            false,
        ),
    ] {
        let writes = format!("do_verify=0\n{writes}");
        let all = [(true, true), (true, false), (false, true), (false, false)];
        for (fio_writes, fio_reads) in all {
            disk.fill(1);
            let play = |is_fio: bool, jobs: &str| match is_fio {
                true => disk.fio(jobs),
                false => Some(disk.ours(jobs)),
            };
            let Some(written) = play(fio_writes, &writes) else { return };
            assert!(written, "{writes}, fio: {fio_writes}");
            let read = play(fio_reads, reads);
            assert_eq!(read, Some(good), "{writes}, {reads}: fio {fio_writes}, {fio_reads}");
        }
    }
}

/// With `meta` the pattern is compared, too.
#[test]
fn both_compare_the_pattern_behind_a_header() {
    let disk = Disk::new();
    for method in ["verify=meta\n", ""] {
        let job = |rw: &str| {
            format!("rw={rw}\nbs=8k\nsize=64k\n{method}verify_pattern=0xaa\ndo_verify=0")
        };
        assert!(disk.ours(&job("write")) && disk.ours(&job("read")), "{method}");
        let mut content = disk.content();
        content[1000] = 0xab;
        std::fs::write(disk.path(), content).unwrap();
        assert!(!disk.ours(&job("read")), "{method}");
        let Some(good) = disk.fio(&job("read")) else { return };
        assert!(!good, "{method}");
    }
}

/// Reads back as many writes, whenever as many have not been read back yet.
#[test]
fn both_read_back_in_between_at_the_same_times() {
    let disk = Disk::new();
    let path = disk.0.path().join("log");
    let requests = || {
        let text = std::fs::read_to_string(&path).unwrap();
        let fields = text.lines().map(|line| line.split(' ').map(String::from).collect::<Vec<_>>());
        let requests = fields.filter(|fields| ["read", "write"].contains(&fields[2].as_str()));
        requests.map(|fields| fields[2..].join(" ")).collect::<Vec<_>>()
    };
    for backlog in [
        "verify_backlog=8",
        "verify_backlog=8\nverify_backlog_batch=3",
        "verify_backlog=8\nverify_backlog_batch=1",
        "verify_backlog=4\nverify_backlog_batch=6",
        "verify_backlog=1",
    ] {
        let log = path.display();
        let job =
            format!("rw=write\nbs=4k\nsize=256k\nverify=crc32c\n{backlog}\nwrite_iolog={log}");
        // fio goes on with a log that is there.
        let _ = std::fs::remove_file(&path);
        let Some(good) = disk.fio(&job) else { return };
        let theirs = requests();
        assert!(good && disk.ours(&job), "{backlog}");
        assert_eq!(theirs.len(), 128, "{backlog}");
        assert!(theirs == requests(), "{backlog}: {theirs:?} {:?}", requests());
    }
}
