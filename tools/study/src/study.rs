//! The whole study, and its answers.

use serde::Serialize;

use crate::areas::{self, DEVICES, THREADS, WORKLOADS};
use crate::board::{self, Board};
use crate::day::{self, Day};
use crate::equal::{self, Column, Costs};
use crate::measure::MeasureError;

/// All results.
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
    /// The equal device, with a column for each system's software.
    pub equal: Vec<Column>,
    /// One flash behind three protocols.
    pub board: Board,
    /// A day of phone use.
    pub days: Vec<Day>,
    /// The conclusions.
    pub answers: Answers,
}

/// The conclusions of the study, as figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Answers {
    /// How far NVMe is ahead of UFS on the equal device with Micron's Linux, for a 4 KiB read,
    /// percent.
    pub micron_percent: f64,
    /// The same with our software, as counted.
    pub ours_percent: f64,
    /// The protocols' own share: how far NVMe is ahead of UFS for a 4 KiB read at depth 1 of the
    /// same flash without software, percent.
    pub protocol_percent: f64,
    /// The same for 128 KiB reads at depth 8.
    pub protocol_large_percent: f64,
    /// How many times as fast the game loads from UFS as from eMMC (claimed: 3).
    pub game_ratio: f64,
    /// How many times as fast mixed large I/O is on UFS as on eMMC.
    pub mixed_ratio: f64,
    /// Energy that UFS saves over eMMC per GiB of the game load, percent (claimed at work: 10).
    pub work_saved_percent: f64,
    /// Energy that UFS saves over eMMC in a day, both sleeping, percent (claimed: 35).
    pub day_saved_percent: f64,
    /// The same with UFS sleeping and eMMC awake, as with a host that never sends CMD5.
    pub day_saved_awake_percent: f64,
    /// Minutes of a tablet's battery that UFS saves over NVMe, both sleeping (published: 30 to 90).
    pub tablet_minutes: f64,
    /// The same with neither sleeping.
    pub tablet_minutes_awake: f64,
}

/// Number of steps of the study.
pub const STEPS: usize =
    WORKLOADS.len() * THREADS.len() * DEVICES.len() + board::STEPS + day::DEVICES.len();

fn areas(quick: bool, tell: &mut impl FnMut()) -> Result<Vec<areas::Row>, MeasureError> {
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

/// Our software's times of UFS and NVMe for each workload at one thread, microseconds.
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

/// Measures everything; before each step `tell` is called with the number of steps done.
///
/// # Errors
/// What could not be measured.
pub fn run(
    (version, timestamp_ms): (String, u64),
    quick: bool,
    mut tell: impl FnMut(usize),
) -> Result<Study, MeasureError> {
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

/// "N % less" or "N % more".
fn less(percent: f64) -> String {
    let word = if percent < 0.0 { "more" } else { "less" };
    format!("{:.0} % {word}", percent.abs())
}

/// "N % ahead" or "N % behind".
fn ahead(percent: f64) -> String {
    let word = if percent < 0.0 { "behind" } else { "ahead" };
    format!("{:.1} % {word}", percent.abs())
}

impl Answers {
    /// The conclusions as text, one or two sentences each.
    pub fn words(&self) -> Vec<String> {
        vec![
            format!(
                "On the equal device a 4 KiB read over NVMe is {} of one over UFS with Micron's \
                 Linux, and {} with our software as counted: nearly all of that gap is \
                 software, and a short path for UFS takes it away.",
                ahead(self.micron_percent),
                ahead(self.ours_percent)
            ),
            format!(
                "What the protocol accounts for: on the same flash without software, NVMe on one \
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
                 assumed, so this shows how the claims are related but proves none.",
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
