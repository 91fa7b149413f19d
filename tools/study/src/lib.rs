//! UFS, NVMe, eMMC and SATA compared, and held against what others published.
//!
//! | module | what it does |
//! |---|---|
//! | [`measure`] | one job on one target: rates, areas, energy |
//! | [`sheets`] | the published figures of every profile, and which of them it was fitted to |
//! | [`profiles`] | every profile measured against its sheet |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod measure;
pub mod profiles;
pub mod sheets;
