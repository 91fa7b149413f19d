//! Flash images for users.
//!
//! An image file may be anything: a JFFS2 of either byte order, a bare UBIFS, UBI with several
//! volumes, a raw dump with out-of-band bytes, several of these one behind another. [`Image::open`]
//! detects this and returns the volumes; everything else works on any of them.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod acl;
mod apart;
mod check;
mod chip;
mod complete;
pub mod create;
mod device;
mod edit;
mod extract;
mod info;
mod keys;
mod lock;
mod lost;
mod open;
mod path;
mod repair;
mod signature;
mod spool;
mod storage;
#[cfg(test)]
mod testing;
mod tree;
mod writable;

pub use check::{Checked, check};
pub use chip::{ChipError, ChipTarget, OnChip, chip_keys};
pub use complete::raw_damage;
pub use edit::{
    Clause, EditError, Editor, FlagChange, ModeChange, OwnerChange, Put, PutOptions, Reach,
    tree_bytes,
};
pub use extract::{ExtractOptions, Extraction, Failure, Progress, extract, extract_raw};
pub use flysch_mtd::Scheme as EccScheme;
pub use flysch_ubifs::{HashAlgorithm, Keys, Verified};
pub use info::{Fact, facts, faults, volume_facts};
pub use keys::{KeyFile, KeyFileError, read_keys};
pub use lock::Exclusive;
pub use open::{
    Contents, Image, ImageDevice, ImageOpenOptions, ImageVolume, OpenError, Part, SharedFileSystem,
    SharedFlash, SharedVolume, in_fields, is_named, names,
};
pub use path::{PathError, follow, resolve};
pub use repair::{RepairFailure, is_backup_of, restore_backup, write_backup};
pub use signature::{CertificateError, read_certificates, read_signer};
pub use tree::{Node, attributes_lost, walk};
pub use writable::{Room, SharedMut, Writable, WritableError};
