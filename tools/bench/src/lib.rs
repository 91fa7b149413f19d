//! Workloads for block devices and raw flash: runs them, measures them, reports the results.
//!
//! | module | what it does |
//! |---|---|
//! | [`workload`] | what a workload is, as plain values |
//! | [`pattern`] | which request comes next |
//! | [`runner`] | keeps the queues of any [`flysch_api::block::BlockDevice`] full, stamps, counts |
//! | [`histogram`], [`statistics`] | what is measured, with constant memory and no allocation |
//! | [`verify`] | data that says where and when it was written |
//! | [`results`] | the results, ready to be printed, written as JSON or drawn |
//! | [`published`] | figures published by others, for comparison with ours |
//! | [`report`] | the HTML page |
//! | [`trace`] | every request of a run, for blktrace's and Perfetto's tools |
//! | [`import`] | traces of Linux's own stack, with the four areas |
//! | [`iolog`] | request logs and their replay |
//! | [`flash`] | raw flash and its file systems |
//! | [`dispatch`] | requests by calls, against queues and threads |
//! | [`null`], [`clock`] | a device that does nothing, and the real clock |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod blktrace;
pub mod calendar;
pub mod clock;
pub mod csv;
pub mod dispatch;
pub mod file;
pub mod fio_json;
pub mod flash;
pub mod histogram;
pub mod import;
pub mod iolog;
pub mod jobfile;
pub mod null;
pub mod page;
pub mod pattern;
pub mod play;
pub mod published;
pub mod random;
pub mod report;
pub mod results;
pub mod runner;
pub mod statistics;
pub mod text;
pub mod trace;
pub mod units;
mod usage;
pub mod verify;
pub mod workload;
pub mod zones;
