//! The model's profiles against the published figures, through registers and DMA memory only.
//!
//! Virtual clock: what is measured is the device and the host controller, no software.

use crate::host::Host;
use flysch_api::machine::{Clock, Registers, Wake};
use flysch_models::random::Random;
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

#[test]
fn galaxy_book_s_lands_on_the_freebsd_columns() {
    let depths = [1, 2, 4, 8, 16, 32];
    type Row = (&'static str, bool, bool, [f64; 6]);
    let table: [Row; 4] = [
        ("seq read 128 KiB, MiB/s", false, false, [709., 1395., 1416., 1417., 1399., 1361.]),
        ("seq write 128 KiB, MiB/s", true, false, [554., 556., 559., 554., 555., 556.]),
        ("rand read 4 KiB, kIOPS", false, true, [7.1, 14.8, 31.6, 63.5, 103.7, 114.2]),
        ("rand write 4 KiB, kIOPS", true, true, [12.1, 29.4, 68.2, 102.3, 105.5, 106.6]),
    ];
    let mut worst: f64 = 0.0;
    for (queues, share) in [(0, 1), (4, 4)] {
        println!("{}", if queues == 0 { "single doorbell" } else { "four circular queues" });
        let config = Config { profile: GALAXY_BOOK_S, ..Config::default() };
        let mut host = Host::up(config, 128 << 10, queues);
        for (name, write, random, published) in table {
            for (depth, published) in depths.into_iter().zip(published) {
                let (bytes, total) = if random { (4096, 64 << 20) } else { (128 << 10, 512 << 20) };
                let total = total / share;
                let job = Job { write, random, bytes, depth, threads: false, total };
                let rate = run(&mut host, job).bytes_per_second;
                let model = if random { rate / 4_096_000.0 } else { mib(rate) };
                worst = worst.max(cell(&format!("{name}, depth {depth}"), model, published));
            }
        }
    }
    assert!(worst <= LIMIT, "a cell is {worst:.1} % off");
}

#[test]
fn write_booster_takes_bursts_at_the_published_rate() {
    let mut host = Host::up(Config::default(), 1 << 20, 0);
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
