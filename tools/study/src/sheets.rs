//! What was published about the devices of the profiles, cell by cell, and the cells to which their
//! parameters were fitted. The other cells were compared only afterwards.
//!
//! A cell is a job on a target under the virtual clock, so that our own software takes no time. The
//! software of the host on which a figure was measured is part of the target, where known.

mod cards;
mod drives;
mod ufs;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Thousands of requests per second.
    Kiops,
    /// Millions of bytes per second.
    Megabytes,
    /// MiB per second.
    Mebibytes,
    /// Mean latency, milliseconds.
    MeanMillis,
    /// 99th percentile of the latency, milliseconds.
    P99Millis,
}

impl Unit {
    /// Its abbreviation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kiops => "k/s",
            Self::Megabytes => "MB/s",
            Self::Mebibytes => "MiB/s",
            Self::MeanMillis => "ms",
            Self::P99Millis => "ms, p99",
        }
    }
}

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// What was measured, in words.
    pub what: &'static str,
    /// The job, as [`crate::measure::measure`] takes it, without its sheet's `run`.
    pub job: &'static str,
    /// The figure.
    pub figure: f64,
    /// The figure's unit.
    pub unit: Unit,
    /// Whether parameters of the profile, or of its host's software, were fitted to it.
    pub fitted: bool,
    /// The known error, in percent, if it is beyond the limit, and why.
    pub miss: Option<(f64, &'static str)>,
}

impl Cell {
    const fn fitted(what: &'static str, job: &'static str, figure: f64, unit: Unit) -> Self {
        Self { what, job, figure, unit, fitted: true, miss: None }
    }

    const fn held(what: &'static str, job: &'static str, figure: f64, unit: Unit) -> Self {
        Self { what, job, figure, unit, fitted: false, miss: None }
    }

    const fn misses(self, percent: f64, why: &'static str) -> Self {
        Self { miss: Some((percent, why)), ..self }
    }

    /// Largest allowed error, percent.
    pub const fn limit(&self) -> f64 {
        if self.fitted { 10.0 } else { 15.0 }
    }
}

/// All figures of one device with one host.
#[derive(Clone, Copy, Debug)]
pub struct Sheet {
    /// The target that models device and host, without its clock.
    pub target: &'static str,
    /// Who measured what, and where it was published.
    pub source: &'static str,
    /// The parameters of the profile that no figure determines.
    pub assumed: &'static str,
    /// Options common to all its jobs: how much of the device, how long.
    pub run: &'static str,
    /// The figures; none for a profile of a device without published figures.
    pub cells: &'static [Cell],
}

/// Every profile of every protocol.
pub const SHEETS: [&Sheet; 18] = [
    &ufs::FREEBSD,
    &ufs::LINUX,
    &ufs::BOOSTER,
    &ufs::OK3576,
    &ufs::UFS40,
    &ufs::GENERIC,
    &drives::PM991A,
    &drives::M8PE,
    &drives::M8PE_X1,
    &drives::SAMSUNG_980_PRO,
    &drives::SAMSUNG_980,
    &drives::OK3576,
    &drives::SATA_SSD,
    &drives::SATA2_SSD,
    &cards::HS400,
    &cards::HS400_CMDQ,
    &cards::OK3576,
    &cards::SD_UHS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_rig::KINDS;

    #[test]
    fn every_profile_of_every_model_has_a_sheet() {
        for kind in KINDS.iter().filter(|kind| !kind.name.contains(['@', ':'])) {
            let Some(profiles) = kind.keys.iter().find(|key| key.name == "profile") else {
                continue;
            };
            for profile in profiles.value.split('|') {
                let written = format!("{},profile={profile}", kind.name);
                let has = SHEETS.iter().any(|sheet| {
                    sheet.target == written || sheet.target.starts_with(&format!("{written},"))
                });
                assert!(has, "{written} has no sheet");
            }
        }
    }

    #[test]
    fn half_of_the_cells_or_more_are_held_out() {
        for sheet in SHEETS.iter().filter(|sheet| !sheet.cells.is_empty()) {
            let fitted = sheet.cells.iter().filter(|cell| cell.fitted).count();
            assert!(fitted * 2 <= sheet.cells.len(), "{}", sheet.target);
        }
    }
}
