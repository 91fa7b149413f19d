//! The device side of Flysch's protocols, simulated: timing from mechanisms, faults from one seed.
//!
//! | module | what |
//! |---|---|
//! | [`ufs`] | a UFS device and its host controller: [`ufs::Ufs`], and [`ufs::Threaded`] in a thread |
//! | [`ahci`] | a SATA host bus adapter and its devices: [`ahci::Ahci`] |
//! | [`nvme`] | an NVMe controller and its namespaces: [`nvme::Nvme`] |
//! | [`emmc`] | an eMMC device and its SD host controller with a queueing engine: [`emmc::Emmc`] |
//! | [`nand`], [`nor`] | raw flash chips: cells, wear, bad blocks, power cuts; [`flash`] is what they share |
//! | [`media`] | where a device's time goes: link, firmware, flash array, write buffer |
//! | [`software`] | the time that the software of a published host takes |
//! | [`machine`] | a model as an `api` machine under a virtual or hybrid clock |
//! | [`faults`] | what goes wrong and when |
//! | [`store`] | where the data is: memory or a file |
//! | [`ses`] | a SCSI enclosure behind a port of its own |
//! | [`events`], [`random`] | what models are built from |
//!
//! A model never sees the driver that drives it: both know only `flysch-api` and `flysch-wire`.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod ahci;
pub mod emmc;
pub mod events;
pub mod faults;
pub mod flash;
pub mod machine;
pub mod media;
pub mod nand;
pub mod nor;
mod number;
pub mod nvme;
pub mod random;
pub mod ses;
pub mod software;
pub mod store;
pub mod ufs;
