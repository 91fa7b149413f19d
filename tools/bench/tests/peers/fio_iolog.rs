//! Logs of requests: fio replays ours, and we replay fio's, over a file.

use std::path::Path;
use std::process::{Command, Output};

use flysch_api::block::Operation;
use flysch_api::machine::Instant;
use flysch_api::trace::{Record, Stamps};
use flysch_bench::clock::RealClock;
use flysch_bench::file::{File, FileOptions};
use flysch_bench::iolog::{self, ReadOptions};
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{PlayOptions, Played, play};
use flysch_bench::trace::blktrace;

const SIZE: usize = 1 << 20;

fn fio(folder: &Path, options: &[&str]) -> Option<Output> {
    let output = Command::new("fio")
        .current_dir(folder)
        .args(["--name=a", "--ioengine=psync", "--filename=disk", "--output-format=json"])
        .args(options)
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(output)
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "fio: {error}");
            eprintln!("skipped: fio: {error}");
            None
        }
    }
}

fn ours(folder: &Path, options: &str) -> Played {
    let clock = RealClock::new();
    let file = FileOptions { block_size: 512, create_size: None, memory_len: 4 << 20 };
    let mut lanes = [File::open(&folder.join("disk"), file, clock.clone()).unwrap()];
    let text = format!("[a]\nfilename=disk\n{options}\n");
    let file = JobFile::parse(&text, Path::new("a.fio"), &[]).unwrap();
    play(&mut lanes, &clock, &file, PlayOptions::default()).unwrap()
}

/// What a log asks for, in its order.
fn requests(path: &Path) -> Vec<(Operation, u64, u32)> {
    let replay = iolog::read(path, &ReadOptions::default()).unwrap();
    assert_eq!(replay.odd, 0, "{}", path.display());
    replay.entries.iter().map(|it| (it.operation, it.offset, it.length)).collect()
}

#[test]
fn each_replays_the_others_log() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("disk"), vec![0; SIZE]).unwrap();
    let options = ["--rw=randrw", "--bs=4k", "--size=1m", "--fsync=8", "--write_iolog=theirs"];
    let Some(_) = fio(folder.path(), &options) else { return };
    let theirs = requests(&at("theirs"));
    assert!(theirs.len() > 250);
    // fio's log, replayed here and written again, is the same log.
    let log =
        format!("read_iolog={}\nwrite_iolog={}", at("theirs").display(), at("again").display());
    let played = ours(folder.path(), &log);
    assert_eq!(requests(&at("again")), theirs);
    let job = &played.jobs[0];
    let count = |operation| theirs.iter().filter(|it| it.0 == operation).count() as u64;
    assert_eq!(job.read.as_ref().unwrap().requests, count(Operation::Read));
    assert_eq!(job.write.as_ref().unwrap().requests, count(Operation::Write));
    assert_eq!(job.sync.as_ref().unwrap().count, count(Operation::Flush));
    // Ours, replayed by fio, which counts the same requests and bytes.
    let options = "rw=randrw\nbssplit=4k/50:8k/50\nsize=1m\nfsync=8";
    ours(folder.path(), &format!("{options}\nwrite_iolog={}", at("ours").display()));
    assert!(requests(&at("ours")).len() > 100);
    let output = fio(folder.path(), &["--read_iolog=ours", "--replay_no_stall=1"]).unwrap();
    assert_eq!(counted(&output), sums(&requests(&at("ours"))));
}

/// Requests and bytes of reads, writes and trims, and flushes.
type Sums = ([(u64, u64); 3], u64);

fn sums(log: &[(Operation, u64, u32)]) -> Sums {
    let of = |wanted: Operation| log.iter().filter(move |it| it.0 == wanted);
    let sum = |wanted| (of(wanted).count() as u64, of(wanted).map(|it| u64::from(it.2)).sum());
    let all = [Operation::Read, Operation::Write, Operation::Delete].map(sum);
    (all, of(Operation::Flush).count() as u64)
}

/// What fio says it did.
fn counted(output: &Output) -> Sums {
    let text = String::from_utf8_lossy(&output.stdout);
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let job = &json["jobs"][0];
    let figure = |value: &serde_json::Value| value.as_u64().unwrap();
    let all = ["read", "write", "trim"]
        .map(|d| (figure(&job[d]["total_ios"]), figure(&job[d]["io_bytes"])));
    (all, figure(&job["sync"]["total_ios"]))
}

/// A trace of ours, as blktrace would leave it: fio and we replay the same of it.
#[test]
fn traces_are_replayed_as_fio_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("disk"), vec![0; SIZE]).unwrap();
    let record = |number: u64, operation, offset, length| {
        let at = |nanos| Instant::from_nanos(number * 100_000 + nanos);
        let (accepted, issued, delivered) = (at(0), at(100), at(900));
        let stamps = Stamps { accepted, issued, delivered, ..Stamps::default() };
        Record { stamps, offset, length, slot: 0, lane: 0, operation, failed: false }
    };
    let records: Vec<Record> = (0..50)
        .map(|number| match number % 3 {
            0 => record(number, Operation::Read, number * 4096, 4096),
            1 => record(number, Operation::Write, number * 8192, 8192),
            _ => record(number, Operation::Read, number * 512, 512),
        })
        .collect();
    let mut bytes = Vec::new();
    blktrace::write(&mut bytes, 0, 1_700_000_000_000, &records).unwrap();
    std::fs::write(at("trace"), bytes).unwrap();
    let options = ["--read_iolog=trace", "--replay_redirect=disk"];
    let Some(output) = fio(folder.path(), &options) else { return };
    let log = format!("read_iolog={}\nwrite_iolog={}", at("trace").display(), at("ours").display());
    ours(folder.path(), &log);
    assert_eq!(sums(&requests(&at("ours"))), counted(&output));
}

#[test]
fn the_second_version_is_replayed_as_fio_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("disk"), vec![0; SIZE]).unwrap();
    let mut text = "fio version 2 iolog\ndisk add\ndisk open\n".to_string();
    for block in [7_u64, 3, 200, 11, 90] {
        text += &format!("disk write {} 4096\ndisk read {} 8192\n", block * 4096, block * 1024);
    }
    text += "disk sync 0 0\ndisk close\n";
    std::fs::write(at("log"), text).unwrap();
    let Some(output) = fio(folder.path(), &["--read_iolog=log"]) else { return };
    let log = format!("read_iolog={}\nwrite_iolog={}", at("log").display(), at("ours").display());
    ours(folder.path(), &log);
    assert_eq!(sums(&requests(&at("ours"))), counted(&output));
}
