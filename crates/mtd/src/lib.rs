//! Raw flash over bytes: image files, memory, dumps with out-of-band bytes.
//!
//! This is the lowest layer of the flash stack, which Linux calls MTD. Everything here is an
//! [`api::flash::Flash`](flysch_api::flash::Flash):
//!
//! | type | what it is |
//! |---|---|
//! | [`FlashImage`] | a [`Storage`] that holds the main bytes and nothing else |
//! | [`Nand`] | the pages of a chip, with error correction and bad blocks in software |
//! | [`Dump`] | the same over a storage with out-of-band bytes behind every page |
//! | [`Partition`] | some erase blocks of another flash |
//! | [`LowerPages`] | a multi-level chip used with one bit per cell |
//! | [`Concat`] | several flashes, one behind the other |
//! | `CachedFlash` | another flash, whose pages are read and corrected once (feature `std`) |
//!
//! [`detect`] finds out what an image holds and how it is laid out.
//!
//! ```
//! use flysch_api::flash::{Flash, FlashGeometry, FlashMut};
//! use flysch_mtd::FlashImage;
//!
//! // A NOR chip of 1 MiB in memory. An image file is `FileStorage::open(path)?` in its place.
//! let chip = FlashGeometry::nor(1 << 20, 64 << 10);
//! let mut flash = FlashImage::of_chip(vec![0xFF; 1 << 20], chip)?;
//! flash.program(4096, b"boot")?;
//! let mut word = [0; 4];
//! assert_eq!(flash.read(4096, &mut word)?.bits, 0, "no bit had to be corrected");
//! assert_eq!(&word, b"boot");
//! flash.erase(0)?; // The block that byte 4096 lies in.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The repository's `examples/library` has whole programs, from a chip up to files.
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
pub use dump::{Dump, DumpPages, Nand, PageFormat, PageFormatError};
pub use ecc::{Bch, Ecc, Scheme, UnknownScheme};
#[cfg(feature = "std")]
pub use file::FileStorage;
pub use image::{FlashImage, ImageSizeError};
pub use lower_pages::LowerPages;
pub use oob::OobLayout;
pub use partition::{Concat, Partition};
pub use storage::{Storage, StorageMut};
