//! Linux's own devices: its block layer as a [`disk`], and its MTD character devices
//! (`/dev/mtdN`, `/dev/mtdNro`) as raw flash.
//!
//! For raw flash, the kernel's driver corrects bit errors and maintains the bad-block table; this
//! crate queries it and passes on the results. Reading uses `MEMREAD` (Linux 6.1 and later), which
//! returns the corrected bits of each request; with older kernels, and on flash without error
//! correction, it uses plain reads and the device's counters (`ECCGETSTATS`). Properties come from
//! `/sys/class/mtd`, or from `MEMGETINFO` where sysfs is not mounted.
//!
//! [`MtdDevice`] is a [`Flash`](flysch_api::flash::Flash) and, opened for writing, a
//! [`FlashMut`](flysch_api::flash::FlashMut). It needs only permissions on the device file, neither
//! a kernel module nor root.
#![deny(missing_docs)]

mod device;
pub mod disk;
mod facts;
mod ioctl;

pub use device::{Access, MtdDevice, OpenError};
pub use facts::{EccCounters, Facts, is_mtd};
