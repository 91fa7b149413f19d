//! A vfio-user server: presents one PCI function over a socket to the program that emulates the
//! rest of the machine.
//!
//! Theory. vfio-user (QEMU `docs/interop/vfio-user.rst`) carries Linux's VFIO device interface over
//! a UNIX socket: the client - a virtual machine monitor - accesses regions (BARs and configuration
//! space) by messages, passes the guest's memory as file descriptors and receives interrupts
//! through eventfds. A device model that implements [`Function`] thus becomes a device driven by a
//! real operating system's driver.
//!
//! | module | what |
//! |---|---|
//! | `wire` | messages: bytes and values, nothing else; all lengths are checked here |
//! | `memory` | the guest's memory: files mapped once, ranges mapped and unmapped |
//! | `irq` | INTx as a level with its mask, MSI-X with pending bits |
//! | `config` | configuration space: its writable parts |
//! | `session` | the execution of each command |
//! | `server` | one client at a time, the loop |
//!
//! Everything that a client sends is treated as hostile: it may name any address, length and index,
//! pass any descriptor, stop in the middle of a message or not read its answers. It gets an error,
//! or loses the connection; nothing it does blocks, grows without limit, or panics. Guest memory is
//! accepted only as files sealed against shrinking, because a file that shrank would crash this
//! process at the next access.
//!
//! No device memory is offered for mapping: a function with INTx would lose the mapping at the
//! first interrupt (QEMU), and for a function with mapped regions every posted write becomes a
//! synchronous one.
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

/// Maximum number of BARs of a function.
pub const BARS: usize = 6;
/// Maximum number of MSI-X vectors of a function (PCI 3.0, 6.8.2.3).
pub const VECTORS_MAX: u16 = 2048;

/// The identification of a function in its configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Base class, sub class and programming interface, from high to low.
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

/// The resources of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its identification.
    pub identity: Identity,
    /// Bytes of each BAR, all 32-bit memory: powers of two from 4096 to 1 GiB, 0 for none.
    pub bars: [u32; BARS],
    /// MSI-X vectors, at most [`VECTORS_MAX`]; 0 for a function that has only INTx.
    pub vectors: u16,
    /// The BAR that holds the MSI-X table at its start, followed by the pending bits; not one of
    /// the function's own.
    pub vector_bar: u8,
}

/// The interrupts of a function.
pub trait Interrupts {
    /// The interrupt line: a level.
    fn line(&self) -> bool;

    /// A vector that was raised since the last query, each once.
    fn take_vector(&mut self) -> Option<u16> {
        None
    }
}

/// A PCI function: registers, interrupts, access to memory. `now` never goes back.
pub trait Function: Interrupts {
    /// Its resources, which never change.
    fn layout(&self) -> Layout;

    /// Reads 1, 2, 4 or 8 bytes at `offset`, which is inside the BAR and a multiple of the width
    /// (of 4 for 8 bytes).
    fn read(&mut self, bar: u8, offset: u32, to: &mut [u8], now: Instant);

    /// Writes 1, 2, 4 or 8 bytes at `offset`, with the rules of [`read`](Self::read).
    fn write(&mut self, bar: u8, offset: u32, from: &[u8], now: Instant);

    /// Executes everything that is due until `now`.
    fn advance(&mut self, now: Instant);

    /// When the next event happens by itself.
    fn next_event(&self) -> Option<Instant>;

    /// Resets the function to its power-on state; the device behind it keeps its state.
    fn reset(&mut self, now: Instant);

    /// The memory that it accesses.
    fn memory(&mut self) -> &mut GuestMemory;
}
