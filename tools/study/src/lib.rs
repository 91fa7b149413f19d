//! UFS, NVMe, eMMC and SATA compared, and held against what others published.
//!
//! | module | what it does |
//! |---|---|
//! | [`measure`] | one job on one target: rates, areas, energy |
//! | [`sheets`] | the published figures of every profile, and which of them it was fitted to |
//! | [`profiles`] | every profile measured against its sheet |
//! | [`areas`] | the four areas of one workload list on one device of each protocol |
//! | [`equal`] | what software makes of an equal device |
//! | [`board`] | one flash behind three protocols, UFS against eMMC |
//! | [`day`] | a day of phone use: what sleeping saves |
//! | [`study`] | all of it, and what it says |
//! | [`text`], [`page`] | the study for people |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod areas;
pub mod board;
pub mod day;
pub mod equal;
pub mod measure;
pub mod page;
pub mod profiles;
pub mod sheets;
pub mod study;
pub mod text;
