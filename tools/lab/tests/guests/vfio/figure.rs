//! The figure that is the goal of the project: Linux's UFS, Linux's NVMe and ours, in one guest, on
//! QEMU controllers with nothing behind them. Not a test: it is run by name, and prints a table.

use std::path::Path;
use std::time::Duration;

use flysch_lab::Job;
use serde_json::Value;

use super::{IOMMU, words};
use crate::common::{lab, put_command};

/// Number of rounds, unless `FLYSCH_ROUNDS` sets it.
const ROUNDS: usize = 3;

/// Names of the stacks, and descriptions.
const STACKS: [(&str, &str); 12] = [
    ("linux-nvme", "Linux NVMe, io_uring"),
    ("linux-nvme-poll", "Linux NVMe, io_uring, polled"),
    ("linux-ufs", "Linux UFS, io_uring"),
    ("linux-ufs-poll", "Linux UFS, io_uring, polled"),
    ("ufs", "Flysch UFS, single doorbell, interrupts"),
    ("ufs-mcq", "Flysch UFS, one queue, interrupts"),
    ("nvme", "Flysch NVMe, interrupts"),
    ("ufs-poll", "Flysch UFS, single doorbell, polled"),
    ("ufs-mcq-poll", "Flysch UFS, one queue, polled"),
    ("nvme-poll", "Flysch NVMe, polled"),
    ("ufs-adaptive", "Flysch UFS, single doorbell, adaptive"),
    ("nvme-adaptive", "Flysch NVMe, adaptive"),
];

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run {
    per_second: f64,
    /// Median time from making a request until its completion is seen, microseconds.
    half: f64,
    /// Processor time of the process per request, microseconds.
    process: f64,
    /// The same for everything that ran meanwhile: interrupts, kernel threads.
    processor: f64,
}

impl Run {
    fn read(folder: &Path, name: &str, rw: &str) -> Self {
        let file = |ending: &str| {
            let path = folder.join(format!("{name}.{ending}"));
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let json: Value = serde_json::from_str(&file("json")).unwrap();
        let job = &json["jobs"][0];
        assert_eq!(job["error"], 0, "{name} failed");
        let direction = if rw == "randread" { "read" } else { "write" };
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{name}: {value}"));
        let per_second = number(&job[direction]["iops"]);
        let percent = number(&job["usr_cpu"]) + number(&job["sys_cpu"]);
        let stamps: Vec<f64> =
            file("idle").split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [start, idle, end, idle_then] = stamps[..] else { panic!("{name}: {stamps:?}") };
        // USER_HZ is 100.
        let busy = 1.0 - (idle_then - idle) * 1e4 / (end - start);
        let half = |part: &str| number(&job[direction][part]["percentile"]["50.000000"]) / 1e3;
        // Ours separates submission from what follows.
        let submission = &job["flysch"]["areas"][direction]["submission_ns"]["percentile"];
        let half = match submission["50.000000"].as_f64() {
            Some(submission) => submission / 1e3 + half("clat_ns"),
            None => half("lat_ns"),
        };
        let (process, processor) = (percent * 1e4 / per_second, busy * 1e6 / per_second);
        Self { per_second, half, process, processor }
    }
}

/// The median.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let middle = all.len() / 2;
    if all.len().is_multiple_of(2) {
        f64::midpoint(all[middle - 1], all[middle])
    } else {
        all[middle]
    }
}

/// A stack's rounds of one job, each figure treated separately.
struct Summary {
    per_second: f64,
    best: f64,
    half: f64,
    process: f64,
    processor: f64,
}

impl Summary {
    fn of(runs: &[Run]) -> Self {
        let middle = |value: fn(&Run) -> f64| median(runs.iter().map(value).collect());
        Self {
            per_second: middle(|run| run.per_second),
            best: runs.iter().map(|run| run.per_second).fold(0.0, f64::max),
            half: middle(|run| run.half),
            process: middle(|run| run.process),
            processor: middle(|run| run.processor),
        }
    }
}

#[test]
#[ignore = "a figure, and ten minutes of it"]
fn against_linux() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    put_command(share.path());
    let rounds = std::env::var("FLYSCH_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    std::fs::write(share.path().join("rounds"), rounds.to_string()).unwrap();
    let mut arguments = words(&[&IOMMU]);
    for n in 0..2 {
        for disk in ["n", "u"] {
            let null = format!("null-co,node-name={disk}{n},size={},read-zeroes=on", 1 << 30);
            arguments.extend(["-blockdev".into(), format!("driver={null}")]);
        }
        for device in [
            format!("nvme,drive=n{n},serial=n{n},addr=1{n}"),
            format!("ufs,id=host{n},serial=u{n},mcq=true,mcq-maxq=4,addr=1{}", n + 4),
            format!("ufs-lu,bus=host{n},drive=u{n}"),
        ] {
            arguments.extend(["-device".into(), device]);
        }
    }
    let timeout = Duration::from_secs(120 + 240 * rounds as u64);
    // `iommu=pt`: Linux's own drivers need not map each request's memory, which is slow.
    let job = Job {
        timeout,
        memory_mib: 1536,
        arguments: &arguments,
        kernel_words: "intel_iommu=on iommu=pt",
        ..Job::new(include_str!("figure.sh"), share.path())
    };
    let done = lab.run(&job).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(done.status, 0, "{}\n{}", done.output, done.console);
    let out = share.path().join("out");
    println!("| 4 KiB, {rounds} rounds | IOPS | best | p50, µs | process, µs | processor, µs |");
    println!("|---|--:|--:|--:|--:|--:|");
    for (rw, depth) in [("randread", 1), ("randwrite", 1), ("randread", 32), ("randwrite", 32)] {
        println!("| **{rw}, depth {depth}** | | | | | |");
        for (name, title) in STACKS {
            let run = |round| Run::read(&out, &format!("{name}-{rw}-{depth}-{round}"), rw);
            let Summary { per_second: iops, best, half, process, processor } =
                Summary::of(&(1..=rounds).map(run).collect::<Vec<_>>());
            println!(
                "| {title} | {iops:.0} | {best:.0} | {half:.1} | {process:.1} | {processor:.1} |"
            );
        }
    }
}
