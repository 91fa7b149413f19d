//! Whole stacks by name.
//!
//! A [`Target`] such as `ufs,mcq=4` or `file:disk.img` is parsed into values and opened as a
//! [`Stack`]. The kind of stack matters twice: when it is opened, and when [`Stack::visit`] passes
//! its lanes and clock to a generic [`Visitor`]. Everything below that is compiled for that kind.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod ahci;
pub mod blocks;
pub mod cd;
mod emmc;
mod error;
mod function;
mod governed;
mod guest;
mod image;
mod incidents;
pub mod lane;
mod linux;
pub mod nvme;
mod open;
mod pci;
mod play;
mod plug;
pub mod rig;
mod scsi;
mod seat;
pub mod size;
mod stack;
mod target;
mod ticks;
pub mod ufs;

pub use ahci::{AhciControl, Devices};
pub use emmc::EmmcControl;
pub use error::TargetError;
pub use flysch_models::faults::{Kind as FaultKind, Plan, PlanError};
pub use function::{Served, serve};
pub use guest::{GuestDevice, guest_device};
pub use image::{ImageError, ImageFault};
pub use nvme::NvmeControl;
pub use open::{Needs, Visitor};
pub use scsi::{ScsiCommand, ScsiData, ScsiReply, scsi_command};
pub use stack::{Plain, Stack};
pub use target::{
    AhciPciTarget, AhciQemuTarget, AhciTarget, CardKind, CardPciTarget, CardQemuTarget, ClockKind,
    CryptoTarget, Drive, EmmcTarget, FaultsFrom, FileTarget, KINDS, Key, Kind, LinuxTarget,
    MultiplierTarget, NullTarget, NvmePciTarget, NvmeQemuTarget, NvmeTarget, PairError, ParseError,
    PciPlace, PciWait, QemuTarget, Target, UfsPciTarget, UfsTarget, did_you_mean,
};
pub use ufs::{Control, Controller, PassThrough};
