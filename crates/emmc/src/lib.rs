//! Driver for eMMC devices (4.41 to 5.1) and SD cards behind an SD host controller (SDHCI 2 to 4,
//! with or without the command queueing engine CQHCI), for any machine that implements
//! [`flysch_api::machine::Machine`]: a model, QEMU, real registers.
//!
//! # Theory
//!
//! Two kinds of object share a controller. **Lanes** carry commands: each [`Port`] owns tasks of
//! the queueing engine, whose doorbell is write-one-to-set and whose notification is
//! write-one-to-clear, so lanes never meet. The **[`Host`]** owns everything there is one of:
//! registers, the command line, the card, recovery. It rides on the first port, so a caller with
//! one thread polls one thing. Without an engine there is one lane, and the host moves its
//! transfers one by one.
//!
//! - *Hot path* (`lane`): [`start`](flysch_api::command::Port::start) writes a task descriptor,
//!   [`ring`](flysch_api::command::Port::ring) rings once per batch,
//!   [`poll`](flysch_api::command::Port::poll) finds the ended tasks by their bits. No allocation,
//!   no lock, no search.
//! - *Control path* (`channel` and what uses it): sequential code without a clock; time comes in
//!   with `poll`, the next instant goes out with `poll_at`. See `flysch_script` for how.
//! - *Between them* (`shared`): one word of orders from the host, one word of obedience per lane,
//!   and errands: what a lane cannot do without the whole bus.
//! - Every command ends exactly once, by the card's answer or the ladder of `recover`: task
//!   discarded, queue reset, sampling point, slower timing, card reset, gone.
//!
//! | file | what |
//! |---|---|
//! | `init`, `identify` | [`STEPS`], bring-up as a list; from power-on to an address |
//! | `sd`, `timing`, `cmdq` | SD; the bus; the engine |
//! | `port`, `lane`, `queue`, `table` | commands: the hot path, the rest of a lane, tasks, lists |
//! | `bus`, `plain` | one command on the bus; transfers without an engine |
//! | `channel`, `card` | the control path's primitives; the card, and commands to it |
//! | `control`, `work` | everything there is one of; carrying out operations and errands |
//! | `host`, `operation`, `rpmb`, `blocking` | its faces |
//! | `recover`, `history` | the ladder, what went wrong |
//! | `quirks` | what particular controllers and cards do differently |
//!
//! # Use
//!
//! ```
//! use flysch_api::command::{Command, Mmc, Port as _};
//! use flysch_api::machine::{Clock, Machine};
//! use flysch_emmc::{EmmcError, EmmcOptions, Host};
//!
//! fn first_answer<M: Machine>(machine: M, read: Command<Mmc>) -> Result<(), EmmcError> {
//!     let options = EmmcOptions::default();
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

mod blocking;
mod bus;
mod card;
mod channel;
mod cmdq;
mod control;
mod device;
mod error;
mod history;
mod host;
mod identify;
mod init;
mod lane;
mod layout;
mod operation;
mod options;
mod plain;
mod port;
mod queue;
mod quirks;
mod recover;
mod rpmb;
mod sd;
mod shared;
mod table;
mod timing;
mod work;

pub use device::{CardFacts, CardKind, Timing};
pub use error::{BusError, Cause, EmmcError, RpmbError};
pub use history::{ErrorKind, ErrorLog, ErrorRecord};
pub use host::{Host, Progress, State};
pub use init::{STEPS, Step};
pub use operation::{EraseKind, Operation, Output, SECTORS_MAX};
pub use options::{EmmcOptions, Queueing, Timeouts};
pub use port::Port;
pub use quirks::{CardQuirk, CardQuirks, HostQuirk, HostQuirks};
pub use rpmb::{Nonce, RpmbKey, RpmbReply, RpmbRequest};
