//! Flash images for C: what `flysch_images.h` declares.
//!
//! A static library over the same crates as the Python package. It has no state of its own: all
//! state belongs to an image that one of the `flysch_image_open` functions returned.
//!
//! | module | what |
//! |---|---|
//! | `error` | errors |
//! | `values` | the structures of the header |
//! | `border` | arguments from C are checked, panics stopped |
//! | `source` | images in the caller's memory and behind its function |
//! | `image` | images and their volumes |
//! | `file` | files of a volume |
//!
//! The header is generated from this crate by cbindgen; a test compares them. With the feature
//! `drivers`, the library also contains the functions of `flysch_drivers.h`.
#![deny(missing_docs)]
// The C names are the contract.
#![allow(clippy::missing_safety_doc)]

mod border;
mod error;
mod file;
mod image;
mod source;
mod values;

/// The other library: mentioned so that it is linked.
#[cfg(feature = "drivers")]
pub use flysch_drivers;

pub use error::{ImageError, ImageStatus, TEXT_BYTES, flysch_image_status_text};
pub use file::{
    File, flysch_file_close, flysch_file_extract, flysch_file_link, flysch_file_list,
    flysch_file_open, flysch_file_open_link, flysch_file_read, flysch_file_stat, flysch_file_walk,
    flysch_file_xattr, flysch_file_xattrs,
};
pub use image::{
    Image, flysch_image_close, flysch_image_failure, flysch_image_open, flysch_image_open_memory,
    flysch_image_open_reader, flysch_image_volume, flysch_image_volumes, flysch_images_version,
};
pub use values::{Buffer, Bytes, Entry, Format, ImageOptions, Reader, Stat, Visit, Volume};
