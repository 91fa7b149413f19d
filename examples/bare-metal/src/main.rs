//! The drivers and the command layer on a machine without an operating system.
//!
//! Finds a storage controller on the PCI bus - UFS, NVMe, SD host or AHCI -, brings it up, writes
//! blocks and reads them back, and reports that on the serial line; a UFS controller once with the
//! single doorbell and once with multi-circular queues, if it has them. The crates are the ones
//! that run in user space.
#![no_std]
#![no_main]

extern crate alloc;

macro_rules! say {
    ($($text:tt)*) => {{
        use core::fmt::Write as _;
        // The serial line accepts everything.
        let _ = writeln!($crate::ports::Serial, $($text)*);
    }};
}

mod boot;
mod disk;
mod drivers;
mod heap;
mod machine;
mod ports;

use flysch_api::machine::Machine as _;

use heap::Heap;
use machine::{Bare, Class};
use ports::exit;

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Called once from `boot`.
extern "C" fn start() -> ! {
    let Some((class, machine)) = Bare::find() else {
        panic!("no storage controller on PCI bus 0 that there is a driver for")
    };
    let id = machine.identity();
    say!("flysch: {} {:04x}:{:04x}", class.name(), id.vendor, id.device);
    match class {
        Class::Ufs => drivers::ufs(&machine),
        Class::Nvme => drivers::nvme(&machine),
        Class::Sdhci => drivers::card(&machine),
        Class::Ahci => drivers::ahci(&machine),
    }
    say!("PASS");
    exit(true)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("FAIL: {info}");
    exit(false)
}
