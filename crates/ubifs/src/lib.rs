//! UBIFS: names, files and directories on logical erase blocks.
//!
//! Everything is a node with a key. An index - a B+ tree on the flash - says where each key's node
//! lies, as of the last commit. What was written since is in the journal, and indexed only in
//! memory after replay. So a read turns a key into a place, by overlay or index, and decompresses
//! the node there.
//!
//! [`Ubifs::open`] reads superblock, master node, log and journal, recovers in memory what an
//! unclean stop left behind, and reads the index once. Where the index is damaged the nodes
//! themselves are collected instead, so that one bad block costs what lies in it and no more. The
//! image is never modified. [`Ubifs`] is a [`flysch_api::vfs::FileSystem`], and [`Ubifs::check`]
//! verifies every checksum and rule.
//!
#![doc = concat!("```\n", include_str!("../doc/first_file.rs"), "```")]
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
mod apply;
mod auth;
mod check;
pub mod create;
mod crypt;
mod file;
mod flat;
mod index;
mod keys;
mod location;
mod lpt;
mod master;
mod node_cache;
mod nokey;
mod open;
mod overlay;
mod rebuild;
pub mod repair;
mod replay;
mod scan;
mod sealed;
mod signature;
mod store;
mod unreachable;
mod write;

#[cfg(test)]
mod tests;

pub use auth::{AuthError, AuthKey, HashAlgorithm, Proof, SignatureError, Verified};
pub use crypt::{CipherMode, KeyError, KeyName, MasterKey, Policy};
pub use flat::FlatImage;
pub use keys::Keys;
pub use location::Location;
pub use open::{IndexUse, OpenOptions, Ubifs, UbifsOpenError};
pub use replay::Bud;
pub use signature::{Signer, Trust};
pub use write::{UbifsMountError, UbifsMut};

pub use flysch_api::finding::{Finding, Place, Severity};
