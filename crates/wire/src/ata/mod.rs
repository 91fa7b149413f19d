//! ATA over AHCI: registers, command list, FISes, identify data, log pages.
//!
//! Section numbers are those of AHCI 1.3.1 ("AHCI"), Serial ATA 3.5 ("SATA") and ACS-4 ("ACS").
//! Everything is little-endian; the ASCII strings of identify data have the two bytes of each word
//! swapped.

pub mod command;
pub mod dsm;
pub mod fis;
pub mod identify;
pub mod list;
pub mod log;
pub mod multiplier;
pub mod registers;
pub mod smart;

pub use command::Opcode;
pub use fis::{D2h, H2d};
pub use identify::{Identify, Kind};
pub use list::{Header, Prd};

/// Bytes per sector unless the device gives another size, and per log page.
pub const SECTOR: usize = 512;

/// Sum of the bytes of a page. The last byte of the page makes it zero (ACS 8.14, 9.3).
pub(crate) fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[cfg(test)]
mod tests;
