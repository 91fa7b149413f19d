//! The effect of software on an equal device, as an estimate.
//!
//! Micron's white paper (2018) takes a device's time for one request of each of four kinds, adds
//! the software time traced for each protocol, and compares the results. The paper gives the four
//! device times and the four results as numbers; the software times are only in its charts. A
//! result fixes only how they relate: with device time `d`, NVMe ahead by `r` and NVMe's software
//! `n`, UFS's software is `d * r + n * (1 + r)`. `n` is taken from the share that Micron gives for
//! 4 KiB writes (60 to 74 % of the time is software; OSSE 2017): 18.75 us are 60 % with a device of
//! 12.5 us. It is assumed here that `n` is the same for the other three.

use serde::Serialize;

/// Time of the assumed device for one request of each of [`crate::areas::WORKLOADS`], microseconds.
pub const DEVICE_US: [f64; 4] = [125.0, 104.0, 12.5, 16.6];

/// Micron's result: by how much NVMe is ahead, percent.
pub const PUBLISHED_PERCENT: [f64; 4] = [28.0, 15.0, 30.0, 16.0];

/// NVMe's software on the HiKey 960, microseconds: see above.
const MICRON_NVME_US: f64 = 18.75;

/// Instructions of disk and driver for a 4 KiB read at depth 1, UFS (MCQ) and NVMe, counted by
/// `flysch-cost` (`docs/bench.md`); UFS's disk as counted at depth 32.
const INSTRUCTIONS: [f64; 2] = [319.0 + 110.0, 486.0];

/// Time per instruction, assumed: one per cycle at 2.4 GHz, a core of the HiKey 960.
const INSTRUCTION_US: f64 = 1.0 / 2400.0;

/// Software times of both protocols for each workload, microseconds; `None` if not measured.
pub type Costs = [Option<[f64; 2]>; 4];

/// One system's software on the assumed device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Whose software.
    pub name: &'static str,
    /// The source of its times.
    pub source: &'static str,
    /// Times of UFS and NVMe for each workload.
    pub costs_us: Costs,
    /// By how much NVMe is ahead, percent.
    pub ahead_percent: [Option<f64>; 4],
}

impl Column {
    /// The estimate for these costs.
    pub fn new(name: &'static str, source: &'static str, costs_us: Costs) -> Self {
        let ahead = |at: usize| costs_us[at].map(|costs| ahead_percent(DEVICE_US[at], costs));
        Self { name, source, costs_us, ahead_percent: std::array::from_fn(ahead) }
    }
}

/// By how much NVMe is ahead of UFS on a device that takes `device_us` microseconds, percent.
pub fn ahead_percent(device_us: f64, [ufs, nvme]: [f64; 2]) -> f64 {
    ((device_us + ufs) / (device_us + nvme) - 1.0) * 100.0
}

/// Micron's costs, derived from the published results.
pub fn micron() -> Column {
    let costs = |at: usize| {
        let (device, ratio) = (DEVICE_US[at], PUBLISHED_PERCENT[at] / 100.0);
        Some([device * ratio + MICRON_NVME_US * (1.0 + ratio), MICRON_NVME_US])
    };
    let source = "white paper 2018, HiKey 960, Linux 4.4: derived from its results";
    Column::new("Micron's Linux 4.4", source, std::array::from_fn(costs))
}

/// Linux, with both protocols traced by the same method: areas 1, 2 and 4, medians.
fn linux() -> Column {
    let [ufs, nvme] = [35.7 + 46.3 + 26.8 + 75.7, 33.4 + 27.6 + 15.5 + 70.7];
    let source = "traced in one guest under software emulation (every instruction many times \
                  slower): only its ratio says something";
    Column::new("Linux 7.2, emulated", source, [None, None, None, Some([ufs, nvme])])
}

/// Ours, as counted.
fn counted() -> Column {
    let costs = INSTRUCTIONS.map(|count| count * INSTRUCTION_US);
    let source = "instructions of disk and driver, counted by `cargo run --profile dist --package \
                  flysch-cost`, one a cycle at 2.4 GHz assumed";
    Column::new("Flysch, counted", source, [None, None, None, Some(costs)])
}

/// Every column; `ours` has the measured software times of UFS and NVMe for each workload.
pub fn columns(ours: Costs) -> Vec<Column> {
    let source = "this run: medians of submission and completion at one thread, hybrid clock; \
                  noise on a busy machine";
    vec![micron(), linux(), counted(), Column::new("Flysch, measured", source, ours)]
}

/// A note on what has no column.
pub const NOT_COMPARED: &str = "FreeBSD: ufshci(4) takes 9.1 us of a processor for a request on \
    the Galaxy Book S, and Linux's ufshcd 7.75 us there (fitted to the published table); nobody \
    published NVMe on that machine, so neither has a column.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micron_s_costs_give_micron_s_results() {
        let column = micron();
        for (is, published) in column.ahead_percent.iter().zip(PUBLISHED_PERCENT) {
            assert_eq!(is.map(f64::round), Some(published));
        }
        // The shares are in the paper's range: software takes up to 75 % of a 4 KiB write.
        let [ufs, nvme] = column.costs_us[2].expect("Micron has all four");
        let share = |software: f64| software / (software + DEVICE_US[2]);
        assert!((0.60..0.75).contains(&share(ufs)) && (0.59..0.75).contains(&share(nvme)));
    }

    #[test]
    fn equal_software_leaves_nothing_of_the_gap() {
        assert_eq!(ahead_percent(16.6, [0.2, 0.2]), 0.0);
        assert!((ahead_percent(10.0, [10.0, 0.0]) - 100.0).abs() < 1e-9);
        // What is counted for ours is too little to matter on any device of the paper.
        let ours = counted().ahead_percent[3].expect("reads are counted");
        assert!(ours.abs() < 1.0, "{ours}");
    }
}
