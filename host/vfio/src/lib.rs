//! Real PCI devices as an [`api::machine::Machine`](flysch_api::machine::Machine), through Linux's
//! VFIO: without kernel code of ours, and with an IOMMU between the device and all memory but its
//! own.
//!
//! [`Machine::open`] opens a function that is bound to vfio-pci and shares its IOMMU group with no
//! function in use; [`Tree`] returns the driver of each function, and changes it. The function is
//! opened through its group, in a container with a type 1 IOMMU, which all distribution kernels
//! support; where there are none, through its own file with iommufd ([`Access`]).
//!
//! | module | what |
//! |---|---|
//! | `sysfs` | functions, drivers, groups, disks and their users; binding |
//! | `uapi` | the kernel's calls, each declared once |
//! | `info` | its answers that contain capabilities |
//! | `controller` | UFSHCI, NVMe, AHCI, SDHCI: their classes, their registers' BARs, how they stop |
//! | `domain` | the translation of a device's addresses: one of the next two |
//! | `group` | a container with a group in it: opening devices, mapping memory |
//! | `iommufd` | the same through a device's own file |
//! | `device` | registers, configuration space, reset |
//! | `interrupts` | vectors or the line as eventfds |
//! | `spin` | how long to poll before sleeping |
//! | `memory`, `iova` | DMA memory, and its device addresses |
//!
//! Whatever ends the process - return, panic, a signal - ends the device's DMA: when the kernel
//! closes the device, it disables bus mastering and removes its mappings from the IOMMU.
#![deny(missing_docs)]

mod address;
mod controller;
mod device;
mod domain;
mod error;
mod group;
mod info;
mod interrupts;
mod iommufd;
mod iova;
mod machine;
mod memory;
mod spin;
mod sysfs;
mod uapi;

pub use address::{Address, AddressError};
pub use controller::Controller;
pub use domain::Access;
pub use error::VfioError;
pub use interrupts::Signals;
pub use machine::{Machine, VfioOptions};
pub use spin::Spin;
pub use sysfs::{Change, Function, Tree, Use, UseKind, VFIO_DRIVER};
