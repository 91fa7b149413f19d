//! UBI: logical erase blocks and volumes over raw flash.
//!
//! Every physical erase block (PEB) starts with two headers: how often it was erased, and which
//! logical erase block (LEB) of which volume it holds. There is no map on the flash: attaching
//! means reading the headers of every block and selecting the newest copy of each LEB. A fastmap,
//! if there is one, only shortens this.
//!
//! Everything readable is read, and everything lost is named: a bad header, a lost copy of the
//! volume table or a truncated end costs only the blocks concerned and leaves a [`Finding`].
//!
//! 1. [`find_images`]: where in a file UBI images are, and the size of their erase blocks.
//! 2. [`Ubi::attach`]: headers, winners, volume table.
//! 3. [`Ubi::volume`]: one volume, readable as [`flysch_api::volume::Volume`].
//!
//! Writing is [`UbiDevice`]: [`UbiDevice::format`] or [`UbiDevice::attach`], then
//! [`UbiDevice::create`] and [`UbiDevice::volume_mut`], a [`flysch_api::volume::VolumeMut`].
//!
#![doc = concat!("```\n", include_str!("../doc/first_volume.rs"), "```")]
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod attach;
mod attach_error;
mod blocks;
pub mod create;
mod device;
mod fastmap;
mod gluebi;
mod locate;
mod scan;
mod table;
mod volume;

#[cfg(test)]
mod tests;

pub use attach::{AttachOptions, FastmapUse, Ubi};
pub use attach_error::AttachError;
pub use blocks::{Block, Content, Offsets};
pub use device::{
    Account, DeviceOptions, DeviceVolume, FormatOptions, NewVolume, ReadOnly, Statistics,
    UbiDevice, UbiError, Update,
};
pub use gluebi::Gluebi;
pub use locate::{UbiImage, find_images};
pub use table::VolumeInfo;
pub use volume::UbiVolume;

pub use flysch_wire::ubi::{VolumeFlags, VolumeKind};

pub use flysch_api::finding::{Finding, Place, Severity};
