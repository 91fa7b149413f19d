//! What a request through io_uring costs this program and fio, in one run: instructions in user
//! space, counted by callgrind, and processor time, the kernel's included.
//!
//! Both read 4 KiB at random at depth 32 from a file in memory (tmpfs, through the page cache),
//! which is as near to no device as there is without root. Run it alone, optimised: `cargo test
//! --release -p flysch-bench --test peers linux_against_fio:: -- --ignored --nocapture`.

use std::path::{Path, PathBuf};
use std::process::Command;

use flysch_api::machine::Clock as _;
use flysch_bench::clock::RealClock;
use flysch_bench::runner::{Assignment, RunOptions, run};
use flysch_bench::workload::{Distribution, Order, Workload};
use flysch_linux::disk::{Access, Settings, open};

const DEPTH: u32 = 32;
const BYTES: u64 = 64 << 20;

/// Reads so many times from the file that the environment names, if this is the child of the
/// measurement.
#[test]
#[ignore = "the child of a measurement"]
fn child() {
    let Ok(text) = std::env::var("FLYSCH_LINUX_READS") else { return };
    let (requests, path) = text.split_once(' ').unwrap();
    let settings = Settings { direct: false, access: Access::Read, ..Settings::default() };
    let object = open(Path::new(path), settings).unwrap();
    let memory = DEPTH as usize * 4096;
    let (mut lanes, clock) = object.lanes(1, DEPTH, memory, &RealClock::new()).unwrap();
    let order = Order::Random { each_once: true, distribution: Distribution::Uniform, run: 1 };
    let requests_max = Some(requests.parse().unwrap());
    let workload =
        Workload { order, depth: DEPTH, requests_max, loops: 100, ..Workload::default() };
    let (before, start) = (ticks(), clock.now());
    let outcome =
        run(&mut lanes, &clock, &[Assignment::new(workload, 0)], RunOptions::default()).unwrap();
    let (after, end) = (ticks(), clock.now());
    assert!(outcome.workers[0].failure.is_none());
    assert_eq!(outcome.workers[0].statistics.requests().to_string(), requests);
    println!("RESULT {} {}", (after - before) * 10_000_000, end.nanos_since(start));
}

/// Processor time of this process, hundredths of a second.
fn ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// The command of this program's side, and of fio's: one submission at a time, as fio does it by
/// itself, and in batches.
fn command(side: &str, path: &Path, requests: u64) -> (PathBuf, Vec<String>, Option<String>) {
    let path = path.display();
    if side == "flysch" {
        let words = ["linux_against_fio::child", "--exact", "--ignored", "--nocapture"];
        let words = words.map(String::from).to_vec();
        return (std::env::current_exe().unwrap(), words, Some(format!("{requests} {path}")));
    }
    let mut words = format!(
        "--name=x --filename={path} --ioengine=io_uring --fixedbufs --registerfiles --rw=randread \
         --bs=4k --iodepth={DEPTH} --size={BYTES} --number_ios={requests} --loops=100 --thread \
         --output-format=json --invalidate=0"
    );
    if side == "fio, batches" {
        words += " --iodepth_batch_submit=32 --iodepth_batch_complete_min=1 \
                  --iodepth_batch_complete_max=32";
    }
    ("fio".into(), words.split_whitespace().map(String::from).collect(), None)
}

/// Instructions of a whole run under callgrind.
fn instructions(side: &str, path: &Path, requests: u64) -> u64 {
    let (program, words, environment) = command(side, path, requests);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program).args(words);
    if let Some(value) = environment {
        valgrind.env("FLYSCH_LINUX_READS", value);
    }
    let output = valgrind.output().expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = collected.unwrap_or_else(|| panic!("{side}: {said}"));
    count.trim().parse().unwrap()
}

/// Processor time of the requests alone, nanoseconds each.
fn processor(side: &str, path: &Path, requests: u64) -> f64 {
    let (program, words, environment) = command(side, path, requests);
    let mut command = Command::new(program);
    command.args(words);
    if let Some(value) = environment {
        command.env("FLYSCH_LINUX_READS", value);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let nanos = if side == "flysch" {
        let (_, result) = text.split_once("RESULT ").unwrap_or_else(|| panic!("{text}"));
        result.split_whitespace().next().unwrap().parse::<f64>().unwrap()
    } else {
        let json: serde_json::Value =
            serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        let job = &json["jobs"][0];
        assert_eq!(job["read"]["total_ios"], requests, "{side}");
        let percent = job["usr_cpu"].as_f64().unwrap() + job["sys_cpu"].as_f64().unwrap();
        percent / 100.0 * job["read"]["runtime"].as_f64().unwrap() * 1e6
    };
    nanos / requests as f64
}

#[test]
#[ignore = "a measurement, not a unit test"]
fn costs_per_request() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![0x5a; BYTES as usize]).unwrap();
    let mut counts = Vec::new();
    for side in ["flysch", "fio", "fio, batches"] {
        let count = |requests| instructions(side, &path, requests);
        let (few, many) = (count(20_000), count(60_000));
        let each = (many - few) as f64 / 40_000.0;
        let best = (0..5).map(|_| processor(side, &path, 1_000_000)).fold(f64::MAX, f64::min);
        println!("{side}: {each:.0} instructions in user space, {best:.0} ns of a processor");
        counts.push(each);
    }
    assert!(counts[0] < counts[1] && counts[0] < counts[2], "{counts:?}");
}
