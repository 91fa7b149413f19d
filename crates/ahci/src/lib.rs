//! Driver for Serial ATA host bus adapters (AHCI 1.0 to 1.3.1), for any machine that implements
//! [`flysch_api::machine::Machine`]: a model, QEMU, real registers.
//!
//! # Theory
//!
//! An HBA is up to 32 ports that have little in common. A **[`Port`]** is one of them with all it
//! needs: commands, control path, recovery, the device. An AHCI port has one command list with one
//! set of doorbells, and an error in one command stops the whole list. So a port is one lane, owned
//! by one thread; more threads mean more ports. The **[`Host`]** owns what exists only once -
//! hand-off and reset of the HBA - and is polled by the first port.
//!
//! - *Hot path* (`lane`): [`start`](flysch_api::command::Port::start) writes one FIS, one header
//!   and the descriptors of the data, [`ring`](flysch_api::command::Port::ring) writes PxSACT and
//!   PxCI once per batch, [`poll`](flysch_api::command::Port::poll) reads PxSACT once per batch.
//!   Commands are queued in the device (NCQ) if it supports this; one that cannot be queued is sent
//!   alone, in order with the others. No allocation, no lock, no search.
//! - *Control path* (`channel` and what uses it): sequential code without a clock; time comes in
//!   with `poll`, the next instant goes out with `poll_at`. See `flysch_script` for how.
//! - *Between host and ports* (`shared`): one word of orders, one word of obedience per port.
//! - Every command ends exactly once, by the device's answer or the ladder of `recover`: stop and
//!   queued error log, COMRESET, HBA reset, gone.
//!
//! | file | what |
//! |---|---|
//! | `port` | [`Host`] and [`Port`] |
//! | `host`, `unit` | the HBA; a port with its jobs and the host's orders |
//! | `init` | [`STEPS`], bring-up as a list |
//! | `attached`, `link` | the devices at a port; power, COMRESET and sleep of its link |
//! | `multiplier`, `fanout` | a port multiplier, and the devices behind it |
//! | `recover`, `history` | the ladder, what went wrong |
//! | `operation` | what else can be asked of a port |
//! | `lane`, `slots`, `taskfile` | the hot path, slots, the form a command takes for a device |
//! | `channel`, `list` | the control path's primitives, and those of the command list |
//! | `quirks` | what particular HBAs and devices do differently |
//!
//! # Use
//!
//! ```
//! use flysch_ahci::{AhciError, AhciOptions, Host};
//! use flysch_api::command::{Ata, Command, Port as _};
//! use flysch_api::machine::{Clock, Machine};
//!
//! fn first_answer<M: Machine>(machine: M, read: Command<Ata>) -> Result<(), AhciError> {
//!     let options = AhciOptions { ports: 1, ..AhciOptions::default() };
//!     let driver_memory = machine.memory().carve(0, Host::<M>::memory_len(&options));
//!     let mut host = Host::new(machine.clone(), driver_memory, options)?;
//!     host.bring_up(&machine)?;
//!     let mut ports = host.into_ports();
//!     let port = &mut ports[0];
//!     port.start(read, machine.now()).expect("an empty list has room");
//!     port.ring(machine.now());
//!     while port.poll(machine.now()).is_none() {
//!         machine.wait(port.poll_at());
//!     }
//!     Ok(())
//! }
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod attached;
mod channel;
mod error;
mod fanout;
mod hba_resets;
mod history;
mod host;
mod init;
mod lane;
mod layout;
mod link;
mod list;
mod multiplier;
mod operation;
mod options;
mod port;
mod quirks;
mod recover;
mod shared;
mod slots;
mod taskfile;
mod unit;

pub use attached::AtaFacts;
pub use error::{AhciError, Cause};
pub use fanout::Multiplier;
pub use history::{ErrorKind, ErrorLog, ErrorRecord};
pub use init::{STEPS, Step};
pub use operation::{AtaCommand, AtaData, AtaReply, Operation, Output};
pub use options::{AhciOptions, LinkPower, Timeouts};
pub use port::{Host, Port};
pub use quirks::{Quirk, Quirks};
pub use unit::{Progress, State};
