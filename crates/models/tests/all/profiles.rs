//! The model's profiles against the published figures, through registers and DMA memory only.
//!
//! Virtual clock: what is measured is the device and its host controller, and where a test says so
//! the software of the published host.

use crate::host::Host;
use flysch_api::machine::{Clock, Registers, Wake};
use flysch_models::random::Random;
use flysch_models::software::{FREEBSD, LINUX, Software};
use flysch_models::ufs::profile::{GALAXY_BOOK_S, OK3576, Profile, UFS40};
use flysch_models::ufs::{Config, UnitConfig};
use flysch_wire::ufs::query::{FlagId, QueryOpcode, QueryResult};
use flysch_wire::ufs::registers as reg;
use flysch_wire::ufs::upiu::QueryFields;

/// Errors of more than so many percent fail.
const LIMIT: f64 = 10.0;
const BLOCK: u32 = 4096;
/// Each stream, or all random accesses, stay within 1 GiB.
const SPAN: u64 = 1 << 30;

#[derive(Clone, Copy)]
struct Job {
    write: bool,
    random: bool,
    bytes: u32,
    depth: usize,
    /// Threads with a file of their own, each with one command in flight; else one file.
    threads: bool,
    total: u64,
}

struct Result {
    bytes_per_second: f64,
    latencies_ns: Vec<u64>,
}

fn run(host: &mut Host, job: Job) -> Result {
    let mut random = Random::new(7);
    let mut next = vec![0_u64; job.depth];
    let mut issued = vec![0_u64; job.depth];
    let blocks = (job.bytes / BLOCK) as u16;
    let count = job.total / u64::from(job.bytes);
    let mut cdb_of = |slot: usize| {
        let stream = if job.threads { slot } else { 0 };
        let at = if job.random {
            random.below(SPAN / u64::from(job.bytes)) * u64::from(job.bytes)
        } else {
            next[stream] += u64::from(job.bytes);
            // Threads keep to a corner of their files: the host's memory is not the device's.
            let span = if job.threads { SPAN / 16 } else { SPAN };
            stream as u64 * SPAN + (next[stream] - u64::from(job.bytes)) % span
        };
        let lba = (at / u64::from(BLOCK)) as u32;
        if job.write { Host::write10(lba, blocks) } else { Host::read10(lba, blocks) }
    };
    for (slot, issued) in issued.iter_mut().enumerate() {
        let upiu = Host::command_upiu(0, slot as u8, &cdb_of(slot), job.write, job.bytes);
        *issued = host.now().nanos();
        host.issue(slot as u8, &upiu, job.bytes);
    }
    let (mut done, warm) = (0, count / 8);
    let mut start = 0;
    let mut latencies_ns = Vec::new();
    while done < count {
        assert_eq!(host.machine.wait(None), Wake::Interrupt);
        let now = host.now().nanos();
        for (slot, ocs) in host.reap() {
            let end = host.end(slot, ocs);
            assert_eq!((end.status, end.residual), (0, 0), "{end:?}");
            done += 1;
            if done == warm {
                start = now;
            } else if done > warm {
                latencies_ns.push(now - issued[usize::from(slot)]);
            }
            let slot = usize::from(slot);
            let upiu = Host::command_upiu(0, slot as u8, &cdb_of(slot), job.write, job.bytes);
            issued[slot] = now;
            host.issue(slot as u8, &upiu, job.bytes);
        }
    }
    let bytes = latencies_ns.len() as f64 * f64::from(job.bytes);
    let seconds = (host.now().nanos() - start) as f64 / 1e9;
    // Let what is in flight end, so that the next job starts from rest.
    while host.machine.wait(None) != Wake::Idle {
        host.reap();
    }
    latencies_ns.sort_unstable();
    Result { bytes_per_second: bytes / seconds, latencies_ns }
}

/// Prints one cell; answers its error in percent.
fn cell(name: &str, model: f64, published: f64) -> f64 {
    let error = (model / published - 1.0) * 100.0;
    println!("{name:36} model {model:8.1}  published {published:8.1}  error {error:+5.1} %");
    error.abs()
}

fn mib(bytes_per_second: f64) -> f64 {
    bytes_per_second / f64::from(1 << 20)
}

const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Depths whose cells device and software were fitted to; the others are held out.
const FITTED: [usize; 3] = [1, 4, 32];

/// A row of the published table: what, whether it writes, whether it is random, the figures of
/// FreeBSD and of Linux by depth.
type Row = (&'static str, bool, bool, [[f64; 6]; 2]);

const TABLE: [Row; 4] = [
    (
        "seq read, MiB/s",
        false,
        false,
        [[709., 1395., 1416., 1417., 1399., 1361.], [542., 1358., 1351., 1352., 1351., 1355.]],
    ),
    (
        "seq write, MiB/s",
        true,
        false,
        [[554., 556., 559., 554., 555., 556.], [479., 548., 550., 550., 552., 553.]],
    ),
    (
        "rand read, kIOPS",
        false,
        true,
        [[7.1, 14.8, 31.6, 63.5, 103.7, 114.2], [6.1, 13.0, 29.7, 61.1, 119.0, 142.0]],
    ),
    (
        "rand write, kIOPS",
        true,
        true,
        [[12.1, 29.4, 68.2, 102.3, 105.5, 106.6], [11.0, 21.0, 53.1, 84.1, 114.0, 120.0]],
    ),
];

/// What the Galaxy Book S does with `software`, or the device alone without: by row and depth.
fn measure(software: Option<Software>, queues: u32, share: u64) -> [[f64; 6]; 4] {
    let config = Config { profile: GALAXY_BOOK_S, software, ..Config::default() };
    let mut host = Host::up(config, 128 << 10, queues);
    TABLE.map(|(_, write, random, _)| {
        DEPTHS.map(|depth| {
            let (bytes, total) = if random { (4096, 32 << 20) } else { (128 << 10, 192 << 20) };
            let total = total / share;
            let job = Job { write, random, bytes, depth, threads: false, total };
            let rate = run(&mut host, job).bytes_per_second;
            if random { rate / 4_096_000.0 } else { mib(rate) }
        })
    })
}

fn percent(model: f64, published: f64) -> f64 {
    (model / published - 1.0) * 100.0
}

/// Mean and worst error of the cells of one system that were fitted or held out, percent.
fn errors(measured: &[[f64; 6]; 4], system: usize, fitted: bool) -> (f64, f64) {
    let cells = TABLE.iter().zip(measured).flat_map(|((_, _, _, published), row)| {
        let all = DEPTHS.iter().zip(row).zip(&published[system]);
        all.filter(move |((depth, _), _)| FITTED.contains(depth) == fitted)
            .map(|((_, model), published)| percent(*model, *published).abs())
    });
    let all: Vec<f64> = cells.collect();
    (all.iter().sum::<f64>() / all.len() as f64, all.iter().copied().fold(0.0, f64::max))
}

/// The lines of the table in `docs/bench.md`.
fn lines(alone: &[[f64; 6]; 4], measured: &[[[f64; 6]; 4]; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    for (row, (name, _, random, published)) in TABLE.iter().enumerate() {
        let digits = usize::from(*random);
        for (at, depth) in DEPTHS.iter().enumerate() {
            let held = if FITTED.contains(depth) { "fitted" } else { "held out" };
            let mut line = format!("| {name} | {depth} | {held} | {:.digits$} |", alone[row][at]);
            for (published, measured) in published.iter().zip(measured) {
                let (published, model) = (published[at], measured[row][at]);
                let error = percent(model, published);
                line += &format!(" {model:.digits$} | {published} | {error:+.1} |");
            }
            lines.push(line);
        }
    }
    for (system, name) in ["FreeBSD", "Linux"].iter().enumerate() {
        for (fitted, word) in [(true, "fitted"), (false, "held out")] {
            let (mean, worst) = errors(&measured[system], system, fitted);
            lines.push(format!("| {name} | {word} | {mean:.1} | {worst:.1} |"));
        }
    }
    lines
}

#[test]
fn the_published_tables_are_told_with_the_errors_they_have() {
    let alone = measure(None, 0, 1);
    let measured = [FREEBSD, LINUX].map(|software| measure(Some(software), 0, 1));
    let lines = lines(&alone, &measured);
    println!("{}", lines.join("\n"));
    let told = include_str!("../../../../docs/bench.md");
    let stale: Vec<&String> = lines.iter().filter(|line| !told.contains(&line[..])).collect();
    assert!(stale.is_empty(), "docs/bench.md does not have {stale:#?}");
    let (_, worst) = errors(&measured[0], 0, true);
    assert!(worst <= LIMIT, "a cell that was fitted is {worst:.1} % off");
    // The device is never slower for what stands in front of it.
    for (alone, theirs) in alone.iter().flatten().zip(measured[0].iter().flatten()) {
        assert!(*alone > theirs * 0.98, "{alone} alone, {theirs} with software");
    }
}

#[test]
fn circular_queues_change_no_figure_of_the_device() {
    let (doorbell, queues) = (measure(None, 0, 4), measure(None, 4, 4));
    for (one, other) in doorbell.iter().flatten().zip(queues.iter().flatten()) {
        assert!(percent(*one, *other).abs() < 3.0, "{one} and {other}");
    }
}

#[test]
fn write_booster_takes_bursts_at_the_published_rate() {
    let config = Config { software: Some(FREEBSD), ..Config::default() };
    let mut host = Host::up(config, 1 << 20, 0);
    let job = Job {
        write: true,
        random: false,
        bytes: 1 << 20,
        depth: 31,
        threads: false,
        total: 1 << 30,
    };
    let off = mib(run(&mut host, job).bytes_per_second);
    let on = FlagId::WriteBoosterEn.into_bits();
    let set = QueryFields::flag(QueryOpcode::SetFlag, on, 0, 0);
    assert_eq!(host.query(set, &[]).0, QueryResult::Success);
    let on = mib(run(&mut host, job).bytes_per_second);
    let worst = cell("seq write 1 MiB, WriteBooster off", off, 556.0).max(cell(
        "seq write 1 MiB, WriteBooster on",
        on,
        1568.0,
    ));
    assert!(worst <= LIMIT, "{worst:.1} % off");
}

#[test]
fn ufs40_is_of_its_class() {
    let mut host = Host::up(Config { profile: UFS40, ..Config::default() }, 1 << 20, 0);
    let mut job = Job {
        write: true,
        random: false,
        bytes: 512 << 10,
        depth: 16,
        threads: false,
        total: 1 << 30,
    };
    let write = run(&mut host, job).bytes_per_second / 1e6;
    job.write = false;
    let read = run(&mut host, job).bytes_per_second / 1e6;
    let worst = cell("seq write 512 KiB, MB/s", write, 2800.0).max(cell(
        "seq read 512 KiB, MB/s",
        read,
        4200.0,
    ));
    assert!(worst <= LIMIT, "{worst:.1} % off");
    assert_eq!(Profile::by_name("ufs40"), Some(&UFS40));
    assert_eq!(Profile::ALL[0], &GALAXY_BOOK_S);
}

#[test]
fn ok3576_lands_on_the_board_s_results() {
    let mut worst: f64 = 0.0;
    let mut config = Config { profile: OK3576, write_booster: 0, ..Config::default() };
    config.units = vec![Some(UnitConfig::memory(8 << 30))];
    let mut host = Host::up(config, 1 << 20, 0);
    for (name, write, rate, mean_ms, p99_ms) in
        [("write", true, 333.0, 23.6, 53.0), ("read", false, 755.0, 10.6, 13.0)]
    {
        let job =
            Job { write, random: false, bytes: 1 << 20, depth: 8, threads: true, total: 8 << 30 };
        let result = run(&mut host, job);
        let all = &result.latencies_ns;
        let mean = all.iter().sum::<u64>() as f64 / all.len() as f64 / 1e6;
        let p99 = all[all.len() * 99 / 100] as f64 / 1e6;
        worst = worst
            .max(cell(
                &format!("{name} 1 MiB x 8 threads, MiB/s"),
                mib(result.bytes_per_second),
                rate,
            ))
            .max(cell(&format!("{name} mean latency, ms"), mean, mean_ms))
            .max(cell(&format!("{name} p99 latency, ms"), p99, p99_ms));
    }
    assert!(worst <= LIMIT, "a figure is {worst:.1} % off");
    // The host masks nothing it does not wait for.
    assert_eq!(host.machine.read32(reg::UTRLDBR), 0);
}
