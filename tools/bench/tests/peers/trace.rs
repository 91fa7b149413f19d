//! Traces against the programs that read them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flysch_api::trace::Record;
use flysch_bench::clock::RealClock;
use flysch_bench::file::{File, FileOptions};
use flysch_bench::runner::{Assignment, Outcome, RunOptions, run};
use flysch_bench::statistics::DirectionStatistics;
use flysch_bench::trace::{blktrace, perfetto};
use flysch_bench::workload::{Direction, Distribution, Mix, Order, Workload};

const REQUESTS: u64 = 2000;

/// Requests on two files as two lanes: something with times that are worth reading.
fn outcome(folder: &Path) -> Outcome {
    let clock = RealClock::new();
    let lane = |name: &str| {
        let create_size = Some(16 << 20);
        let options = FileOptions { create_size, memory_len: 1 << 20, ..FileOptions::default() };
        File::open(&folder.join(name), options, clock.clone()).unwrap()
    };
    let mut lanes = [lane("a"), lane("b")];
    let workload = Workload {
        mix: Mix::ReadWrite { read_percent: 70 },
        order: Order::Random { each_once: true, distribution: Distribution::Uniform, run: 1 },
        depth: 8,
        requests_max: Some(REQUESTS / 2),
        flush_every: 100,
        ..Workload::default()
    };
    // btt knows a request by its sector: no two may be in flight at the same place.
    let place = |lane: usize| Workload {
        offset: lane as u64 * (8 << 20),
        size: Some(8 << 20),
        ..workload.clone()
    };
    let assign = |lane| Assignment::new(place(lane), lane);
    let options = RunOptions { trace_records: 10_000, ..RunOptions::default() };
    run(&mut lanes, &clock, &[assign(0), assign(1)], options).unwrap()
}

fn write_blktrace(base: &Path, outcome: &Outcome) {
    for (lane, ring) in outcome.traces.iter().enumerate() {
        let records: Vec<Record> = ring.iter().copied().collect();
        let path = base.with_extension(format!("blktrace.{lane}"));
        let mut file = std::fs::File::create(path).unwrap();
        blktrace::write(&mut file, lane as u32, 1_795_257_952_661, &records).unwrap();
    }
}

fn text(command: &mut Command) -> Option<String> {
    match command.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {errors}");
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{command:?}: {error}");
            eprintln!("skipped: {command:?}: {error}");
            None
        }
    }
}

/// Sum over all data requests of both lanes.
fn sum(outcome: &Outcome, what: impl Fn(&DirectionStatistics) -> u64) -> u64 {
    let all = outcome.workers.iter().flat_map(|worker| {
        [Direction::Read, Direction::Write].map(|d| worker.statistics.direction(d))
    });
    all.flatten().map(what).sum()
}

#[test]
fn blkparse_and_btt_see_what_we_measured() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = outcome(folder.path());
    write_blktrace(&folder.path().join("run"), &outcome);
    let parse = || {
        let mut command = Command::new("blkparse");
        command.current_dir(folder.path()).args(["-i", "run"]);
        command
    };
    let Some(listing) = text(parse().args(["-f", "%a %d %S %N %e\n"])) else { return };
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for line in listing.lines().take_while(|line| !line.starts_with("CPU")) {
        let mut words = line.split_whitespace();
        if let (Some(action), Some(direction)) = (words.next(), words.next()) {
            *counts.entry((action.to_string(), direction.to_string())).or_default() += 1;
        }
    }
    let count = |direction| direction_count(&outcome, direction);
    for action in ["Q", "D", "C"] {
        for (flags, wanted) in [("R", count(Direction::Read)), ("W", count(Direction::Write))] {
            let seen = counts.get(&(action.to_string(), flags.to_string())).copied();
            assert_eq!(seen, Some(wanted), "{action} {flags}: {counts:?}");
        }
    }
    assert!(text(parse().args(["-q", "-d", "run.bin", "-O"])).is_some());
    let Some(report) = text(Command::new("btt").current_dir(folder.path()).args(["-i", "run.bin"]))
    else {
        return;
    };
    // btt counts flushes with the rest; it knows them as writes of no sectors.
    let flushes: u64 = outcome.workers.iter().map(|w| w.statistics.flush.sum()).sum();
    let flush_count: u64 = outcome.workers.iter().map(|w| w.statistics.flush.count()).sum();
    let mean = |nanos: u64, count: u64| nanos as f64 / count as f64 / 1e9;
    let (total, n) =
        (sum(&outcome, |d| d.total.sum()), sum(&outcome, DirectionStatistics::requests));
    let response = sum(&outcome, |d| d.response.sum());
    for (name, ours) in [("Q2C", total), ("D2C", response)] {
        let line = report
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{report}"));
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (theirs, seen): (f64, u64) = (fields[2].parse().unwrap(), fields[4].parse().unwrap());
        let (without, with) = (mean(ours, n), mean(ours + flushes, n + flush_count));
        let same = [(without, n), (with, n + flush_count)]
            .iter()
            .any(|&(mean, count)| (theirs / mean - 1.0).abs() < 0.02 && seen == count);
        assert!(same, "{name}: {theirs} of {seen} there, {without} of {n} here\n{report}");
    }
}

fn direction_count(outcome: &Outcome, direction: Direction) -> u64 {
    let all = outcome.workers.iter().filter_map(|w| w.statistics.direction(direction));
    all.map(DirectionStatistics::requests).sum()
}

/// A protobuf field: number, and a number or bytes.
enum Field<'a> {
    Number(u32, u64),
    Bytes(u32, &'a [u8]),
}

/// Reads protobuf's wire format, and nothing of what the writer knows.
fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = (key >> 3) as u32;
        match key & 7 {
            0 => all.push(Field::Number(field, varint(&mut bytes))),
            2 => {
                let len = varint(&mut bytes) as usize;
                all.push(Field::Bytes(field, &bytes[..len]));
                bytes = &bytes[len..];
            }
            other => panic!("wire type {other}"),
        }
    }
    all
}

fn number(all: &[Field<'_>], wanted: u32) -> Option<u64> {
    all.iter().find_map(|field| match field {
        Field::Number(number, value) if *number == wanted => Some(*value),
        _ => None,
    })
}

fn bytes<'a>(all: &[Field<'a>], wanted: u32) -> Option<&'a [u8]> {
    all.iter().find_map(|field| match field {
        Field::Bytes(number, value) if *number == wanted => Some(*value),
        _ => None,
    })
}

#[test]
fn perfetto_tracks_hold_nested_slices_of_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = outcome(folder.path());
    let records: Vec<Record> =
        outcome.traces.iter().flat_map(|ring| ring.iter().copied()).collect();
    let mut trace = Vec::new();
    perfetto::write(&mut trace, "file", &records).unwrap();
    let mut names: BTreeMap<u64, (String, Option<u64>)> = BTreeMap::new();
    let mut events: BTreeMap<u64, Vec<(u64, u64, String)>> = BTreeMap::new();
    for packet in fields(&trace) {
        let Field::Bytes(1, packet) = packet else { panic!("not a packet") };
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1));
        if let Some(track) = bytes(&packet, 60) {
            let track = fields(track);
            let name = String::from_utf8(bytes(&track, 2).unwrap().to_vec()).unwrap();
            names.insert(number(&track, 1).unwrap(), (name, number(&track, 5)));
        } else {
            let event = fields(bytes(&packet, 11).unwrap());
            let name = bytes(&event, 23).map(|name| String::from_utf8_lossy(name).into_owned());
            let kind = number(&event, 9).unwrap();
            let (at, track) = (number(&packet, 8).unwrap(), number(&event, 11).unwrap());
            assert!(names.contains_key(&track), "an event on an undeclared track");
            events.entry(track).or_default().push((at, kind, name.unwrap_or_default()));
        }
    }
    assert_eq!(names.values().filter(|(name, _)| name == "slot 3").count(), 2);
    let lanes =
        names.values().filter(|(name, parent)| name.starts_with("file lane") && parent.is_none());
    assert_eq!(lanes.count(), 2);
    let (mut requests, mut device_nanos) = (0, 0);
    for events in events.values_mut() {
        // What trace_processor does: a stable sort by time, then a stack.
        events.sort_by_key(|event| event.0);
        let mut open: Vec<(u64, String)> = Vec::new();
        for (at, kind, name) in events.iter() {
            if *kind == 1 {
                assert!(open.len() < 2, "slices nest too deep");
                open.push((*at, name.clone()));
            } else {
                let (from, name) = open.pop().expect("an end without a beginning");
                requests += u64::from(open.is_empty());
                device_nanos += if name == "device" { at - from } else { 0 };
            }
        }
        assert!(open.is_empty());
    }
    assert_eq!(requests, records.len() as u64);
    let expected: u64 = records.iter().map(|record| record.stamps.device_nanos()).sum();
    assert_eq!(device_nanos, expected);
}
