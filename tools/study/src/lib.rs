//! Compares UFS, NVMe, eMMC and SATA with one another and with published figures.
//!
//! | module | what it does |
//! |---|---|
//! | [`measure`] | one job on one target: rates, areas, energy |
//! | [`sheets`] | the published figures of every profile, and which of them it was fitted to |
//! | [`profiles`] | every profile measured against its sheet |
//! | [`areas`] | the four areas of one workload list on one device of each protocol |
//! | [`equal`] | the effect of software on an equal device |
//! | [`board`] | one flash behind three protocols, UFS against eMMC |
//! | [`day`] | a day of phone use: what sleeping saves |
//! | [`study`] | everything, and the conclusions |
//! | [`text`], [`page`] | the study as text and as a page |
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
