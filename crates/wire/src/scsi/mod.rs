//! SCSI as used by UFS: commands, status and sense, returned data.
//!
//! | Module | Contents |
//! |---|---|
//! | [`cdb`] | command descriptor blocks |
//! | [`sense`] | status and sense data |
//! | [`inquiry`], [`vpd`] | INQUIRY: standard data, vital product data pages |
//! | [`capacity`] | READ CAPACITY data |
//! | [`mode`] | mode parameters |
//! | [`ses`] | enclosure services pages |
//! | [`luns`] | logical unit numbers, REPORT LUNS data |
//! | [`unmap`] | UNMAP parameter list |
//! | [`error_history`] | error history directory of READ BUFFER |

pub mod capacity;
pub mod cdb;
pub mod error_history;
pub mod inquiry;
pub mod luns;
pub mod mode;
pub mod sense;
pub mod ses;
mod text;
pub mod unmap;
pub mod vpd;

pub use cdb::{Cdb, Opcode};
pub use luns::LogicalUnitNumber;
pub use sense::{AdditionalSense, Sense, SenseKey, Status};
pub use text::Text;

#[cfg(test)]
mod tests;
