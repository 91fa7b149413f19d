//! End-to-end stories, one file each in `tests/`, and their common code.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod apart;
pub mod command;
pub mod damage;
pub mod geom;
pub mod matrix;
pub mod mutate;
pub mod qemu;
pub mod shard;
pub mod tables;
pub mod ubifs;
pub mod ufs;
pub mod wait;
pub mod writable;
