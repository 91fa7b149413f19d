//! A vfio-user server: one PCI function, shown over a socket to whoever emulates the machine
//! around it.
//!
//! Theory. vfio-user (QEMU `docs/interop/vfio-user.rst`) carries Linux's VFIO device interface
//! over a UNIX socket: the client - a virtual machine monitor - reads and writes regions (BARs and
//! configuration space) by messages, hands over the guest's memory as file descriptors and takes
//! interrupts by eventfds. A device model that implements [`Function`] becomes a device that a
//! real operating system's driver drives.
//!
//! | module | what |
//! |---|---|
//! | `wire` | messages: bytes and values, nothing else; all lengths are checked here |
//! | `memory` | the guest's memory: files mapped once, ranges that come and go |
//! | `irq` | INTx as a level with its mask, MSI-X with pending bits |
//! | `config` | configuration space: what a driver may write there |
//! | `session` | what each command does |
//! | `server` | one client at a time, the loop |
//!
//! Everything a client sends is hostile: it may name any address, length and index, hand over any
//! descriptor, stop in the middle of a message or read no answer. It gets an error, or loses the
//! connection; nothing it does blocks, grows without bound, or panics. Guest memory is taken only
//! as files that are sealed against shrinking, because a file that shrank would end this process
//! at the next access.
//!
//! No memory of the device is shown for mapping: a function with INTx would lose it at the first
//! interrupt (QEMU), and every posted write of a function with mapped regions becomes a waited one.
#![deny(missing_docs)]

mod config;
mod irq;
mod memory;
mod server;
mod session;
pub mod wire;

#[cfg(test)]
mod tests;

use flysch_api::machine::{GuestMemory, Instant};

pub use flysch_export::Ended;
pub use server::{Event, Handle, Server, Turn};
pub use session::{Counts, Session};

/// Most BARs of a function.
pub const BARS: usize = 6;
/// Most MSI-X vectors of a function (PCI 3.0, 6.8.2.3).
pub const VECTORS_MAX: u16 = 2048;

/// Who a function says it is in its configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
    /// Base class, sub class and programming interface, from high to low.
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

/// What a function is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Who it is.
    pub identity: Identity,
    /// Bytes of each BAR, all 32-bit memory: powers of two from 4096 to 1 GiB, 0 for none.
    pub bars: [u32; BARS],
    /// MSI-X vectors, at most [`VECTORS_MAX`]; 0 for a function that has INTx alone.
    pub vectors: u16,
    /// The BAR that holds the MSI-X table at its start and the pending bits behind it; not one of
    /// the function's own.
    pub vector_bar: u8,
}

/// What a function raises.
pub trait Interrupts {
    /// The interrupt line: a level.
    fn line(&self) -> bool;

    /// A vector that was raised since the last question, each once.
    fn take_vector(&mut self) -> Option<u16> {
        None
    }
}

/// A PCI function: registers, interrupts, memory that it reads and writes. `now` never goes back.
pub trait Function: Interrupts {
    /// What it is made of; the same for its whole life.
    fn layout(&self) -> Layout;

    /// Reads 1, 2, 4 or 8 bytes at `offset`, which is inside the BAR and a multiple of the width
    /// (of 4 for 8 bytes).
    fn read(&mut self, bar: u8, offset: u32, to: &mut [u8], now: Instant);

    /// Writes 1, 2, 4 or 8 bytes at `offset`, as [`read`](Self::read) has it.
    fn write(&mut self, bar: u8, offset: u32, from: &[u8], now: Instant);

    /// Lets everything happen that is due until `now`.
    fn advance(&mut self, now: Instant);

    /// When the next thing happens by itself.
    fn next_event(&self) -> Option<Instant>;

    /// The function is as after power-on; what its device keeps, it keeps.
    fn reset(&mut self, now: Instant);

    /// The memory it reads and writes.
    fn memory(&mut self) -> &mut GuestMemory;
}
