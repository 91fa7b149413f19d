//! The published figures shown beside the table: UFS on FreeBSD and Linux.
//!
//! Source: J. Choi, FreeBSD Journal 2025, on the `ufshci(4)` driver: a Galaxy Book S (i5-L16G7),
//! a UFS 4.0 part at HS-Gear 4 on a 3.1 host; fio, 1 GiB, direct, 128 KiB sequential and 4 KiB
//! random.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The queue depths of the table.
pub const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// The machine of the figures.
pub const MACHINE: &str = "Galaxy Book S (UFS 4.0 part at HS-Gear 4)";

/// A machine with a device that has published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// [`MACHINE`]: those of the table.
    GalaxyBookS,
    /// The board of the report's sequential runs: Forlinx OK3576-C (RK3576).
    Ok3576,
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// 128 KiB sequential reads, MiB/s.
    SeqRead,
    /// 128 KiB sequential writes, MiB/s.
    SeqWrite,
    /// 4 KiB random reads, thousands per second.
    RandRead,
    /// 4 KiB random writes, thousands per second.
    RandWrite,
}

impl Column {
    /// All columns, in the order of the table.
    pub const ALL: [Self; 4] = [Self::SeqRead, Self::SeqWrite, Self::RandRead, Self::RandWrite];

    /// The name of the column's jobs.
    pub const fn job_name(self) -> &'static str {
        match self {
            Self::SeqRead => "seq_read",
            Self::SeqWrite => "seq_write",
            Self::RandRead => "rand_read",
            Self::RandWrite => "rand_write",
        }
    }

    /// The column whose jobs are called `name`.
    pub fn from_job_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.job_name() == name)
    }

    /// fio's name of the access pattern.
    pub const fn pattern(self) -> &'static str {
        match self {
            Self::SeqRead => "read",
            Self::SeqWrite => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
        }
    }

    /// Bytes per request.
    pub const fn block_bytes(self) -> u32 {
        if self.is_sequential() { 131_072 } else { 4096 }
    }

    /// Whether the unit is MiB/s rather than thousands of requests per second.
    pub const fn is_sequential(self) -> bool {
        matches!(self, Self::SeqRead | Self::SeqWrite)
    }

    /// Whether it writes.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::SeqWrite | Self::RandWrite)
    }

    /// The unit of its cells.
    pub const fn unit(self) -> &'static str {
        if self.is_sequential() { "MiB/s" } else { "kIOPS" }
    }

    /// Mean nanoseconds of one request if `depth` of them in flight result in `figure`.
    pub fn nanos(self, depth: u32, figure: f64) -> f64 {
        let per_second = if self.is_sequential() {
            figure * f64::from(1 << 20) / f64::from(self.block_bytes())
        } else {
            figure * 1e3
        };
        f64::from(depth) * 1e9 / per_second
    }

    /// The figures published for this column at `depth`.
    pub fn published(self, depth: u32) -> Option<Published> {
        let row = DEPTHS.iter().position(|&known| known == depth)?;
        let column = self as usize;
        let (freebsd, linux) = (FREEBSD[row][column], LINUX[row][column]);
        Some(Published { column: self, depth, freebsd, linux })
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SeqRead => "seq read",
            Self::SeqWrite => "seq write",
            Self::RandRead => "rand read",
            Self::RandWrite => "rand write",
        })
    }
}

/// The published figures of one cell, in the column's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The column.
    pub column: Column,
    /// The row.
    pub depth: u32,
    /// The figure under FreeBSD.
    pub freebsd: f64,
    /// The figure under Linux.
    pub linux: f64,
}

/// Rows by depth, columns as in [`Column::ALL`].
const FREEBSD: [[f64; 4]; 6] = [
    [709.0, 554.0, 7.1, 12.1],
    [1395.0, 556.0, 14.8, 29.4],
    [1416.0, 559.0, 31.6, 68.2],
    [1417.0, 554.0, 63.5, 102.3],
    [1399.0, 555.0, 103.7, 105.5],
    [1361.0, 556.0, 114.2, 106.6],
];

/// Rows by depth, columns as in [`Column::ALL`].
const LINUX: [[f64; 4]; 6] = [
    [542.0, 479.0, 6.1, 11.0],
    [1358.0, 548.0, 13.0, 21.0],
    [1351.0, 550.0, 29.7, 53.1],
    [1352.0, 550.0, 61.1, 84.1],
    [1351.0, 552.0, 119.0, 114.0],
    [1355.0, 553.0, 142.0, 120.0],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_by_column_and_depth() {
        let cell = Column::RandRead.published(32).map(|p| (p.freebsd, p.linux));
        assert_eq!(cell, Some((114.2, 142.0)));
        let cell = Column::SeqWrite.published(1).map(|p| (p.freebsd, p.linux));
        assert_eq!(cell, Some((554.0, 479.0)));
        assert_eq!(Column::RandRead.nanos(32, 160.0), 200_000.0);
        assert_eq!(Column::SeqRead.nanos(1, 1000.0), 125_000.0);
        assert_eq!(Column::SeqRead.published(3), None);
        for column in Column::ALL {
            assert_eq!(Column::from_job_name(column.job_name()), Some(column));
        }
    }
}
