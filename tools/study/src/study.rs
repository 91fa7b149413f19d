//! The study as a whole, and its answers.

use serde::Serialize;

use crate::areas::{self, DEVICES, THREADS, WORKLOADS};
use crate::board::{self, Board};
use crate::day::{self, Day};
use crate::equal::{self, Column, Costs};
use crate::measure::Error;

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// Version of the program.
    pub version: String,
    /// When it began, milliseconds since 1970.
    pub timestamp_ms: u64,
    /// Whether it is the short form.
    pub quick: bool,
    /// The four areas, by workload, threads and device.
    pub areas: Vec<areas::Row>,
    /// The equal device, whose software is whose.
    pub equal: Vec<Column>,
    /// One flash behind three protocols.
    pub board: Board,
    /// A day of phone use.
    pub days: Vec<Day>,
    /// What it says.
    pub answers: Answers,
}

/// What the study says, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Answers {
    /// NVMe ahead of UFS on the equal device with Micron's Linux, a 4 KiB read, percent.
    pub micron_percent: f64,
    /// The same with our software, as it is counted.
    pub ours_percent: f64,
    /// What the protocols themselves make of it: a 4 KiB read at depth 1 of the same flash without
    /// software, NVMe ahead of UFS, percent.
    pub protocol_percent: f64,
    /// The same of 128 KiB reads at depth 8.
    pub protocol_large_percent: f64,
    /// The game loads so many times as fast from UFS as from eMMC (claimed: 3).
    pub game_ratio: f64,
    /// Mixed large I/O of UFS against that of eMMC, times.
    pub mixed_ratio: f64,
    /// What UFS takes less than eMMC for a GiB of that game load, percent (claimed at work: 10).
    pub work_saved_percent: f64,
    /// What UFS takes less than eMMC over a day, both with their sleep, percent (claimed: 35).
    pub day_saved_percent: f64,
    /// The same, UFS with its sleep and eMMC without, as of a host that never sends CMD5.
    pub day_saved_awake_percent: f64,
    /// Minutes of a tablet's battery that UFS saves against NVMe, both with their sleep (published:
    /// 30 to 90).
    pub tablet_minutes: f64,
    /// The same where neither sleeps.
    pub tablet_minutes_awake: f64,
}

/// Steps the study has.
pub const STEPS: usize =
    WORKLOADS.len() * THREADS.len() * DEVICES.len() + board::STEPS + day::DEVICES.len();

fn areas(quick: bool, tell: &mut impl FnMut()) -> Result<Vec<areas::Row>, Error> {
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        for threads in THREADS {
            for device in DEVICES {
                tell();
                rows.push(areas::row(device, workload, (threads, quick))?);
            }
        }
    }
    Ok(rows)
}

/// Our software's time for each workload at one thread: UFS's and NVMe's, microseconds.
fn our_costs(rows: &[areas::Row]) -> Costs {
    WORKLOADS.map(|(workload, ..)| {
        let of = |device| {
            let row = rows.iter().find(|row| {
                (row.device, row.workload, row.threads) == (device, workload, THREADS[0])
            })?;
            Some((row.submission.p50 + row.completion.p50) as f64 / 1e3)
        };
        Some([of("UFS")?, of("NVMe")?])
    })
}

fn answers(equal: &[Column], board: &Board, days: &[Day]) -> Answers {
    let read = |name: &str| {
        let column = equal.iter().find(|column| column.name == name);
        column.and_then(|column| column.ahead_percent[3]).unwrap_or_default()
    };
    let value = |what: &str, device: &str| {
        let row = board.same_flash.iter().find(|row| row.what.starts_with(what));
        row.and_then(|row| row.values.iter().find(|value| value.device == device))
    };
    let mean = |what, device| value(what, device).map_or(1.0, |value| value.mean_nanos);
    let rate = |what, device| value(what, device).map_or(1.0, |value| value.figure);
    let ahead = |what| (mean(what, "UFS") / mean(what, "NVMe") - 1.0) * 100.0;
    let game = |device: &str| board.game.iter().find(|value| value.device == device);
    let game_of = |device, of: fn(&board::Value) -> f64| game(device).map_or(1.0, of);
    let day = |device: &str| days.iter().find(|day| day.device == device);
    let power = |device, of: fn(&Day) -> f64| day(device).map_or(1.0, of);
    let asleep = |day: &Day| day.asleep_milliwatts;
    let awake = |day: &Day| day.awake_milliwatts;
    let (ufs, card, drive) = ("UFS, ok3576", "eMMC, ok3576", "NVMe, pm991a");
    let minutes = |of: fn(&Day) -> f64| {
        let (watt_hours, minutes) = day::TABLET;
        minutes * (power(drive, of) - power(ufs, of)) / 1e3 / (watt_hours / (minutes / 60.0))
    };
    let joules = |device| game_of(device, |value| value.joules_per_gib);
    Answers {
        micron_percent: read("Micron's Linux 4.4"),
        ours_percent: read("Flysch, counted"),
        protocol_percent: ahead("random reads, 4 KiB, depth 1"),
        protocol_large_percent: ahead("sequential reads"),
        game_ratio: game_of("eMMC", |value| value.figure) / game_of("UFS", |value| value.figure),
        mixed_ratio: rate("half reads", "UFS") / rate("half reads", "eMMC"),
        work_saved_percent: (1.0 - joules("UFS") / joules("eMMC")) * 100.0,
        day_saved_percent: (1.0 - power(ufs, asleep) / power(card, asleep)) * 100.0,
        day_saved_awake_percent: (1.0 - power(ufs, asleep) / power(card, awake)) * 100.0,
        tablet_minutes: minutes(asleep),
        tablet_minutes_awake: minutes(awake),
    }
}

/// Measures everything; `tell` is called with the number of steps done before each.
///
/// # Errors
/// What could not be measured.
pub fn run(
    (version, timestamp_ms): (String, u64),
    quick: bool,
    mut tell: impl FnMut(usize),
) -> Result<Study, Error> {
    let mut done = 0;
    let mut step = || {
        tell(done);
        done += 1;
    };
    let areas = areas(quick, &mut step)?;
    let board = board::all(quick, &mut step)?;
    let mut days = Vec::new();
    for device in day::DEVICES {
        step();
        days.push(day::of_device(device)?);
    }
    let equal = equal::columns(our_costs(&areas));
    let answers = answers(&equal, &board, &days);
    Ok(Study { version, timestamp_ms, quick, areas, equal, board, days, answers })
}

/// So many percent less, or more: whichever it is.
fn less(percent: f64) -> String {
    let word = if percent < 0.0 { "more" } else { "less" };
    format!("{:.0} % {word}", percent.abs())
}

/// So many percent ahead, or behind.
fn ahead(percent: f64) -> String {
    let word = if percent < 0.0 { "behind" } else { "ahead" };
    format!("{:.1} % {word}", percent.abs())
}

impl Answers {
    /// In words, a sentence or two each.
    pub fn words(&self) -> Vec<String> {
        vec![
            format!(
                "On the equal device a 4 KiB read over NVMe is {} of one over UFS with Micron's \
                 Linux, and {} with our software as it is counted: nearly all of that gap is \
                 software, and a short path for UFS takes it away.",
                ahead(self.micron_percent),
                ahead(self.ours_percent)
            ),
            format!(
                "What the protocol keeps: behind the same flash and without software, NVMe on one \
                 lane of PCIe 2 is {} of UFS on two lanes of HS-G3 for a 4 KiB read at depth 1, {} \
                 for 128 KiB reads at depth 8.",
                ahead(self.protocol_percent),
                ahead(self.protocol_large_percent)
            ),
            format!(
                "UFS against eMMC with the same flash: half reads and half writes {:.1} times as \
                 fast, the game load {:.1} times (claimed: 3).",
                self.mixed_ratio, self.game_ratio
            ),
            format!(
                "UFS takes {} than eMMC for the same work (claimed: 10 % less); over a day {} if \
                 both sleep (claimed: 35 % less) and {} if only UFS does. The powers of both are \
                 assumed, so this shows how the claims hang together and proves none.",
                less(self.work_saved_percent),
                less(self.day_saved_percent),
                less(self.day_saved_awake_percent)
            ),
            format!(
                "Against NVMe a tablet's battery lasts {:.0} min longer with UFS if both sleep, \
                 {:.0} min if neither does (published: 30 to 90).",
                self.tablet_minutes, self.tablet_minutes_awake
            ),
        ]
    }
}
