//! The cost of the software path of one I/O, in instructions, and the budgets it must keep.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod block;
pub mod budget;
pub mod instant;
pub mod instant_ahci;
pub mod instant_emmc;
pub mod instant_nvme;
pub mod layers;
pub mod measure;
pub mod path;
