//! Linux's own devices: its block layer as a [`disk`], and its MTD character devices
//! (`/dev/mtdN`, `/dev/mtdNro`) as raw flash.
//!
//! Of raw flash the kernel's driver corrects bit errors and keeps the bad-block table; this door
//! asks it and passes on what it says. Reading goes through `MEMREAD` (Linux 6.1 and later), which
//! tells the corrected bits of each request; with older kernels, and on flash without error
//! correction, through plain reads and the device's counters (`ECCGETSTATS`). Facts come from
//! `/sys/class/mtd`, and from `MEMGETINFO` where it is not mounted.
//!
//! [`MtdDevice`] is a [`Flash`](flysch_api::flash::Flash) and, opened for writing, a
//! [`FlashMut`](flysch_api::flash::FlashMut). It takes what the rights on the device file give: no
//! kernel module and no root is needed beyond that.
#![deny(missing_docs)]

mod device;
pub mod disk;
mod facts;
mod ioctl;

pub use device::{Access, MtdDevice, OpenError};
pub use facts::{EccCounters, Facts, is_mtd};
