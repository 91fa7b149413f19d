//! NVMe: registers, queue entries, identify data, log pages, features.
//!
//! Section numbers are those of the NVM Express Base Specification 2.0 unless stated otherwise.
//! Everything is little-endian.

pub mod command;
pub mod completion;
pub mod feature;
pub mod identify;
mod layout;
pub mod log;
pub mod prp;
pub mod registers;
pub mod reservation;
pub mod sgl;
mod status;
pub mod zone;

pub use command::{AdminOpcode, NvmOpcode, Sqe};
pub use completion::Cqe;
pub use feature::FeatureId;
pub use identify::{Cns, IdentifyController, IdentifyNamespace, LbaFormat};
pub use layout::Value;
pub use log::LogId;
pub use status::Status;

#[cfg(test)]
mod tests;
