//! Figures: I/Os of one kind together, with mean and percentiles of each area.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Told;
use super::join::{Driver, Io, Joined, Loss};
use crate::histogram::Histogram;

/// The areas, and the parts of the second and the fourth.
pub const AREAS: [&str; 10] = [
    "1 file system",
    "2 block layer and driver",
    "3 device",
    "4 completion",
    "software (1, 2, 4)",
    "all",
    "2: to the request",
    "2: to the driver",
    "2: in the driver",
    "4: to the block layer's end",
];

/// Maximum number of separate groups.
const GROUPS_MAX: usize = 64;

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What was read.
    pub told: Told,
    /// I/Os.
    pub ios: u64,
    /// Events that could not be joined.
    pub loss: Loss,
    /// I/Os of kinds beyond that limit.
    pub others: u64,
    /// By disk, operation, length, and whether a system call made them; the most frequent first.
    pub groups: Vec<Group>,
}

/// I/Os of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The disk: `major:minor`.
    pub disk: String,
    /// The driver whose events they have.
    pub driver: Driver,
    /// Their operation.
    pub operation: String,
    /// Bytes of each.
    pub bytes: u64,
    /// The system call that made them; none for those of the kernel's own.
    pub call: Option<String>,
    /// Their number.
    pub ios: u64,
    /// How many failed.
    pub failed: u64,
    /// Threads that made them.
    pub threads: u64,
    /// The number that had their own interrupt.
    pub interrupts: u64,
    /// Areas 1, 2 and 4 as a share of the total, percent.
    pub software_percent: f64,
    /// In the order of [`AREAS`]; those that none of them has are omitted.
    pub areas: Vec<Area>,
}

/// An area of a group.
#[derive(Clone, Debug, Serialize)]
pub struct Area {
    /// Its name in [`AREAS`].
    pub name: &'static str,
    /// I/Os that have it.
    pub count: u64,
    /// Mean, nanoseconds.
    pub mean_ns: f64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Group {
    /// An area by its place in [`AREAS`].
    pub fn area(&self, place: usize) -> Option<&Area> {
        self.areas.iter().find(|area| area.name == AREAS[place])
    }
}

/// The time of each of [`AREAS`], if it has it.
fn times(io: &Io) -> [Option<u64>; 10] {
    let from = |from: u64, to: u64| to.saturating_sub(from);
    let file_system = io.enter.map(|enter| from(enter, io.queue));
    let driver = from(io.queue, io.sent);
    let completion = from(io.seen(), io.end());
    let ready = io.insert.or(io.request).unwrap_or(io.queue);
    [
        file_system,
        Some(driver),
        Some(from(io.sent, io.seen())),
        Some(completion),
        Some(file_system.unwrap_or(0) + driver + completion),
        Some(from(io.start(), io.end())),
        io.request.map(|request| from(io.queue, request)),
        Some(from(ready, io.issue)),
        (io.sent > io.issue).then(|| from(io.issue, io.sent)),
        Some(from(io.seen(), io.complete)),
    ]
}

type Key = ((u32, u32), &'static str, u64, Option<u16>);

#[derive(Default)]
struct Gathered {
    histograms: BTreeMap<usize, Histogram>,
    threads: BTreeSet<u32>,
    driver: Driver,
    ios: u64,
    failed: u64,
    interrupts: u64,
}

/// Figures of all I/Os.
pub fn summarise(joined: &Joined, told: Told) -> Summary {
    let mut groups: BTreeMap<Key, Gathered> = BTreeMap::new();
    let mut others = 0;
    for io in &joined.ios {
        let operation = match io.operation {
            flysch_api::block::Operation::Read => "read",
            flysch_api::block::Operation::Write => "write",
            flysch_api::block::Operation::Flush => "flush",
            flysch_api::block::Operation::Delete => "trim",
        };
        let key = (io.disk, operation, io.bytes, io.call);
        if groups.len() >= GROUPS_MAX && !groups.contains_key(&key) {
            others += 1;
            continue;
        }
        let group = groups.entry(key).or_default();
        for (place, time) in times(io).into_iter().enumerate() {
            if let Some(time) = time {
                group.histograms.entry(place).or_default().record(time);
            }
        }
        group.threads.insert(io.thread);
        group.driver = group.driver.max(io.driver);
        group.ios += 1;
        group.failed += u64::from(io.failed);
        group.interrupts += u64::from(io.interrupt.is_some());
    }
    let told_apart = |(key, gathered): (Key, Gathered)| {
        let (disk, operation, bytes, call) = key;
        let sum = |place: usize| gathered.histograms.get(&place).map_or(0, Histogram::sum);
        let areas = gathered.histograms.iter().map(|(place, histogram)| Area {
            name: AREAS[*place],
            count: histogram.count(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.percentile(50.0),
            p99_ns: histogram.percentile(99.0),
            p999_ns: histogram.percentile(99.9),
            max_ns: histogram.max(),
        });
        Group {
            disk: format!("{}:{}", disk.0, disk.1),
            driver: gathered.driver,
            operation: operation.into(),
            bytes,
            call: call.map(|number| joined.call_name(number).to_owned()),
            ios: gathered.ios,
            failed: gathered.failed,
            threads: gathered.threads.len() as u64,
            interrupts: gathered.interrupts,
            software_percent: 100.0 * sum(4) as f64 / sum(5).max(1) as f64,
            areas: areas.collect(),
        }
    };
    let mut groups: Vec<Group> = groups.into_iter().map(told_apart).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.ios));
    Summary { told, ios: joined.ios.len() as u64, loss: joined.loss, others, groups }
}
