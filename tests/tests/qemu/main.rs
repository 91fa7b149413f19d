//! Tests that need QEMU: its UFS, NVMe, eMMC and SD devices under our drivers, and the machine that
//! boots without an operating system.

mod ahci;
mod bare_metal;
mod command;
mod emmc;
mod features;
mod io;
mod life;
mod nvme;
mod served;
