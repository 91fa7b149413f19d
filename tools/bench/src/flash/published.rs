//! The published figures: UBIFS against JFFS2 on raw NAND.
//!
//! Source: C. Simmonds, talk on flash file systems: an ARM926 at 155 MHz, ST NAND of 128 MiB with
//! blocks of 128 KiB and pages of 2 KiB, error correction in software, Linux 2.6.27.

use super::plan::{Content, Data, Test};
use super::stack::Subject;

/// The machine of the figures.
pub const MACHINE: &str = "ARM926 at 155 MHz, 128 MiB NAND, Linux 2.6.27 (C. Simmonds)";

/// The published figure for a test, in the test's unit.
pub fn published(subject: Subject, test: Test) -> Option<f64> {
    // raw, JFFS2, UBIFS
    let row = match test {
        Test::Write { data: Data::Random, .. } => [Some(0.7), Some(0.2), Some(0.8)],
        Test::Write { data: Data::Zeros, .. } => [None, Some(0.7), Some(5.0)],
        Test::Read { again: false } => [Some(1.1), Some(0.87), Some(1.0)],
        Test::Read { again: true } => [None, Some(15.0), Some(15.0)],
        Test::Mount(Content::Empty) => [None, Some(1.98), Some(0.5)],
        Test::Mount(Content::ManySmall) => [None, Some(30.0), Some(0.5)],
        Test::Overhead { piece: ..4096 } => [None, Some(43.4), Some(33.2)],
        Test::Overhead { .. } => [None, Some(2.3), Some(33.3)],
        _ => [None; 3],
    };
    match subject {
        Subject::Raw => row[0],
        Subject::Jffs2 | Subject::Jffs2NoSummary => row[1],
        Subject::Ubifs | Subject::UbifsFastmap => row[2],
    }
}
