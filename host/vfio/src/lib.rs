//! Real PCI devices as an [`api::machine::Machine`](flysch_api::machine::Machine), through Linux's
//! VFIO: no kernel code of ours, and an IOMMU between the device and all memory but its own.
//!
//! [`Machine::open`] takes a function that vfio-pci has and that shares its IOMMU group with nobody
//! who is in the way; [`Tree`] tells who has which function, and changes it. It is opened by its
//! group, in a container with a type 1 IOMMU, which all distributions' kernels have; where there
//! are none, by its own file with iommufd ([`Access`]).
//!
//! | module | what |
//! |---|---|
//! | `sysfs` | functions, drivers, groups, disks and who uses them; binding |
//! | `uapi` | the kernel's calls, each declared once |
//! | `info` | its answers with capabilities behind them |
//! | `controller` | UFSHCI, NVMe, AHCI, SDHCI: their classes, their registers' BARs, how they stop |
//! | `domain` | what translates a device's addresses: one of the next two |
//! | `group` | a container with a group in it: opening devices, mapping memory |
//! | `iommufd` | the same by a device's own file |
//! | `device` | registers, configuration space, reset |
//! | `interrupts` | vectors or the line as eventfds |
//! | `spin` | how long to look before sleeping |
//! | `memory`, `iova` | DMA memory, and where the device sees it |
//!
//! Whatever ends the process - return, panic, a signal - ends the device's DMA: the kernel stops
//! its mastering of the bus when it closes the device, and takes what was mapped from the IOMMU.
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
pub use error::Error;
pub use interrupts::Signals;
pub use machine::{Machine, Options};
pub use spin::Spin;
pub use sysfs::{Change, Function, Tree, Use, UseKind, VFIO_DRIVER};
