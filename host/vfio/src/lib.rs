//! Real PCI devices as an [`api::machine::Machine`](flysch_api::machine::Machine), through Linux's
//! VFIO: no kernel code of ours, and an IOMMU between the device and all memory but its own.
//!
//! [`Machine::open`] takes a function that vfio-pci has and that shares its IOMMU group with nobody
//! who is in the way; [`Tree`] tells who has which function, and changes it. The container and
//! group interface is used, with a type 1 IOMMU: all distributions' kernels have it.
//!
//! | module | what |
//! |---|---|
//! | `sysfs` | functions, drivers, groups, disks and who uses them; binding |
//! | `uapi` | the kernel's calls, each declared once |
//! | `info` | its answers with capabilities behind them |
//! | `group` | a container with a group in it: opening devices, mapping memory |
//! | `device` | registers, configuration space, reset |
//! | `interrupts` | vectors or the line as eventfds |
//! | `memory`, `iova` | DMA memory, and where the device sees it |
//!
//! Whatever ends the process - return, panic, a signal - ends the device's DMA: the kernel stops
//! its mastering of the bus when it closes the device, and takes what was mapped from the IOMMU.
#![deny(missing_docs)]

mod address;
mod device;
mod error;
mod group;
mod info;
mod interrupts;
mod iova;
mod machine;
mod memory;
mod sysfs;
mod uapi;

pub use address::{Address, AddressError};
pub use error::Error;
pub use interrupts::Signals;
pub use machine::{Controller, Machine, Options};
pub use sysfs::{Change, Function, Tree, Use, UseKind, VFIO_DRIVER};
