//! Driver for NVMe controllers (NVM Express 1.2 to 2.x over PCI Express), for any machine that
//! implements [`flysch_api::machine::Machine`]: a model, QEMU, real registers.
//!
//! # Theory
//!
//! Two kinds of object share a controller. **Lanes** carry commands: each [`Port`] owns a queue
//! pair with everything its slots need, so lanes on different threads never interact. The
//! **[`Host`]** owns everything that exists only once: registers, the admin queue, namespaces,
//! events, recovery. It is attached to the first port, so a caller with one thread polls only one
//! object.
//!
//! - *Hot path* (`lane`): [`start`](flysch_api::command::Port::start) writes one submission queue
//!   entry, [`ring`](flysch_api::command::Port::ring) rings once per batch,
//!   [`poll`](flysch_api::command::Port::poll) finds the ended slot by its number; the head of the
//!   completion queue is told once per batch, too. No allocation, no lock, no search.
//! - *Control path* (`channel` and what uses it): sequential code without a clock; time comes in
//!   with `poll`, the next instant goes out with `poll_at`. See `flysch_script` for how.
//! - *Between them* (`shared`): one word of orders from the host, one word of obedience per lane.
//! - Every command ends exactly once, by the device's answer or the ladder of `recover`: abort,
//!   controller reset, subsystem reset, gone.
//!
//! | file | what |
//! |---|---|
//! | `init` | [`STEPS`], bring-up as a list |
//! | `lane`, `queue` | commands: the hot path, the rest of a lane, slots and rings |
//! | `facts`, `discovery` | what is known of the controller and its namespaces, and how it is learnt |
//! | `channel`, `admin` | the control path's primitives; the admin queue |
//! | `control` | everything there is one of; switching the controller on and off |
//! | `host`, `operation`, `blocking`, `port` | their faces |
//! | `recover`, `history` | the ladder, what went wrong |
//! | `places`, `host_memory` | where queues and doorbells lie; memory lent to the controller |
//! | `events`, `power` | what it reports and which power states it goes to by itself |
//! | `quirks` | what particular controllers do differently |
//!
//! # Use
//!
//! ```
//! use flysch_api::command::{Command, Nvme, Port as _};
//! use flysch_api::machine::{Clock, Machine};
//! use flysch_nvme::{Host, NvmeError, NvmeOptions};
//!
//! fn first_answer<M: Machine>(machine: M, read: Command<Nvme>) -> Result<(), NvmeError> {
//!     let options = NvmeOptions::default();
//!     let driver_memory = machine.memory().carve(0, Host::<M>::memory_len(&options));
//!     let mut host = Host::new(machine.clone(), driver_memory, options)?;
//!     host.bring_up(&machine)?;
//!     let mut ports = host.into_ports();
//!     let port = &mut ports[0];
//!     port.start(read, machine.now()).expect("an empty queue has room");
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

mod admin;
mod blocking;
mod channel;
mod control;
mod discovery;
mod error;
mod events;
mod facts;
mod history;
mod host;
mod host_memory;
mod init;
mod lane;
mod layout;
mod operation;
mod options;
mod places;
mod port;
mod power;
mod queue;
mod quirks;
mod recover;
mod shared;
mod time;

pub use error::{Cause, NvmeError};
pub use facts::{NAMESPACES_MAX, Namespace, NvmeFacts};
pub use history::{ErrorKind, ErrorLog, ErrorRecord};
pub use host::{Host, Progress, State};
pub use init::{STEPS, Step};
pub use operation::{AdminCommand, AdminData, AdminReply, Operation, Output};
pub use options::{NvmeOptions, Timeouts};
pub use port::Port;
pub use quirks::{Quirk, Quirks};
