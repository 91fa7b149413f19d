//! What needs QEMU: its UFS device under our driver, and the machine that boots without a system.

mod bare_metal;
mod command;
mod features;
mod io;
mod life;
mod served;
