//! Driver for UFS host controllers (JESD223) and the devices behind them (JESD220), for any machine
//! that implements [`flysch_api::machine::Machine`]: a model, QEMU, real registers.
//!
//! # Theory
//!
//! Two kinds of object share a controller. **Lanes** carry commands: each [`Port`] owns a queue
//! pair (MCQ) or a range of slots (SDQ) with everything its slots need, so lanes on different
//! threads never meet. The **[`Host`]** owns everything there is one of: bring-up, the link,
//! queries, task management, power, recovery. It shares the first port, so a caller with one thread
//! polls one object.
//!
//! - *Hot path* (`lane`, `descriptors`, `queue`): [`start`](flysch_api::command::Port::start)
//!   writes the command descriptor and the queue entry, [`ring`](flysch_api::command::Port::ring)
//!   rings once per batch, [`poll`](flysch_api::command::Port::poll) finds the ended slot by its
//!   number. No allocation, no lock, no search. While nothing is wrong, recovery costs one relaxed
//!   load.
//! - *Control path* (`channel` and what uses it): sequential code without a clock; time comes in
//!   with `poll`, the next instant goes out with `poll_at`. See `flysch_script` for how.
//! - *Between them* (`shared`): one word of orders from the host, one word of obedience per lane.
//! - Every command ends exactly once, by the device's answer, the controller's status, or the
//!   ladder of `recover`: abort, logical unit reset, host reset with full re-initialisation, gone.
//!
//! Files in an order in which each uses only those above it:
//!
//! | file | what |
//! |---|---|
//! | `time`, `error`, `history` | nanoseconds; what can go wrong, and what did |
//! | `quirks`, `device_quirks` | what particular controllers and devices do differently |
//! | `options`, `link`, `power_mode` | what the caller wants, how the link runs, how the device is on |
//! | `platform` | what the board does |
//! | `keys` | keys of inline encryption and their slots |
//! | `layout`, `facts` | where everything lies in memory; controller and device as they are |
//! | `shares`, `shared` | who may queue how much; what host and lanes say to each other |
//! | `slots`, `queue`, `descriptors`, `interrupts`, `host_watch` | parts of a lane |
//! | `lane` | commands: the hot path, and the rest of a lane |
//! | `uic`, `task`, `exchange` | one UIC command, task management request, management command each |
//! | `channel` | the primitives of procedures that wait, and what they work on |
//! | `board`, `queues` | telling the platform; the controller's queues set up, and rid of commands |
//! | `management` | the device as a peer: NOP, queries, the host's own SCSI commands |
//! | `query`, `discovery`, `configuration`, `writebooster`, `exception` | what it is asked and told |
//! | `rpmb`, `firmware`, `upkeep`, `service` | replay protected memory; firmware update; purge and refresh; error history, time, boot unit |
//! | `speed`, `power`, `suspend` | gears of the link; link and device on; both at rest |
//! | `crypto` | how keys get into slots and out of them |
//! | `control` | everything there is one of, on and off |
//! | `init`, `recover`, `operation` | [`STEPS`], bring-up as a list; the ladder; what can be asked for |
//! | `host`, `port`, `blocking` | the faces |
//! | `policy` | what is done by itself as load comes and goes |
//!
//! # Use
//!
#![doc = concat!("```\n", include_str!("../doc/first_read.rs"), "```\n\n")]
//! # Needs
//!
//! - DMA memory: [`Host::memory_len`] bytes, contiguous: 39,936 and for each lane of depth 32
//!   another 78,848.
//! - Heap, on 64-bit machines: 28,904 bytes, 1,528 for each lane, 129 for each of its slots; at
//!   bring-up, never for a command.
//! - Registers: 0x000 to 0x0A0 with the single doorbell. With MCQ also 0x300 to 0x38C, the queues'
//!   banks and their run-time registers, which the controller places: 8 KiB are enough for most.
//! - A clock. An interrupt if [`UfsOptions::interrupts`] or [`Port::arm`] is used.
//!
//! # Polling
//!
//! With [`UfsOptions::interrupts`] a `poll` that gave `None` has cleared the interrupt status
//! before it looked, so waiting for the line cannot miss a completion. Without, the caller polls,
//! or calls [`Port::arm`] before it waits. An empty poll costs one register read with the single
//! doorbell and none with MCQ; arming costs two reads and a write, or three writes. Without it
//! nothing wakes the caller, who spends the processor on looking all the time a command takes; the
//! inline machine of the models hides that, and its `polled` tells it.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod blocking;
mod board;
mod channel;
mod configuration;
mod control;
mod crypto;
mod descriptors;
mod device_quirks;
mod discovery;
mod error;
mod exception;
mod exchange;
mod facts;
mod firmware;
mod history;
mod host;
mod host_watch;
mod init;
mod interrupts;
mod keys;
mod lane;
mod layout;
mod link;
mod management;
mod operation;
mod options;
mod platform;
pub mod policy;
mod port;
mod power;
mod power_mode;
mod query;
mod queue;
mod queues;
mod quirks;
mod recover;
mod rpmb;
mod service;
mod shared;
mod shares;
mod slots;
mod speed;
mod suspend;
mod task;
mod time;
mod uic;
mod upkeep;
mod writebooster;

pub use configuration::{Configuration, ConfigurationChange, ConfigurationPlan};
pub use device_quirks::{DeviceQuirk, DeviceQuirks};
pub use error::{Cause, RpmbError, UfsError};
pub use facts::UfsFacts;
pub use firmware::FirmwarePart;
pub use history::{ErrorKind, ErrorLog, ErrorRecord};
pub use host::{Host, Progress, State};
pub use init::{OnFailure, STEPS, Step};
pub use keys::{CryptoEngine, CryptoKey};
pub use link::Link;
pub use operation::{DescriptorBytes, EndCommands, Operation, Output};
pub use options::{Aggregation, LinkLimits, QueueMode, Timeouts, UfsOptions};
pub use platform::{
    Clocks, DmeSetting, Event, Phase, Platform, PlatformError, QueueRegisters, ReferenceClock,
};
pub use port::Port;
pub use power_mode::{DevicePower, SuspendLevel};
pub use query::Query;
pub use quirks::{Correction, Quirk, Quirks};
pub use rpmb::{Nonce, RpmbAnswer, RpmbCommand, RpmbKey, RpmbRequest, RpmbUnit};
pub use service::SERVICE_DATA_MAX;
pub use upkeep::RefreshState;
pub use writebooster::{PartialFlush, PartialFlushState, ResizeState, WriteBoosterStatus};
