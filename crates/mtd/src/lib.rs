//! Raw flash over bytes: image files, memory, dumps with out-of-band bytes.
//!
//! The lowest layer of the flash stack, what Linux calls MTD. Everything here is an
//! [`api::flash::Flash`](flysch_api::flash::Flash):
//!
//! | type | what it is |
//! |---|---|
//! | [`Image`] | a [`Storage`] that holds the main bytes and nothing else |
//! | [`Nand`] | the pages of a chip, with error correction and bad blocks in software |
//! | [`Dump`] | the same over a storage with out-of-band bytes behind every page |
//! | [`Partition`] | some erase blocks of another flash |
//! | [`LowerPages`] | a multi-level chip used with one bit per cell |
//! | [`Concat`] | several flashes, one behind the other |
//! | `CachedFlash` | another flash, whose pages are read and corrected once (feature `std`) |
//!
//! What an image holds and how it is laid out is found by [`detect`].
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod bbt;
#[cfg(feature = "std")]
mod cache;
pub mod detect;
mod dump;
mod ecc;
#[cfg(feature = "std")]
mod file;
mod image;
mod lower_pages;
mod oob;
mod partition;
mod storage;

#[cfg(feature = "std")]
pub use cache::CachedFlash;
pub use dump::{Dump, DumpPages, Nand, PageFormat};
pub use ecc::{Bch, Ecc, Scheme};
#[cfg(feature = "std")]
pub use file::FileStorage;
pub use image::Image;
pub use lower_pages::LowerPages;
pub use oob::OobLayout;
pub use partition::{Concat, Partition};
pub use storage::{Storage, StorageMut};
