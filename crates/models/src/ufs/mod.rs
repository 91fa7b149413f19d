//! UFS.
pub(crate) mod media;
pub mod profile;
