//! Driver for UFS host controllers (JESD223) and the devices behind them (JESD220).
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod blocking;
mod configuration;
mod control;
mod error;
mod errors;
mod exception;
mod host;
mod init;
mod lane;
mod layout;
mod management;
mod operation;
mod options;
mod port;
mod power;
mod query;
mod queue;
mod quirks;
mod recover;
mod shared;
mod task;
mod uic;
mod writebooster;

pub use configuration::{Configuration, ConfigurationChange, ConfigurationPlan};
pub use error::{Cause, Error};
pub use errors::{ErrorKind, ErrorLog, ErrorRecord};
pub use host::{Device, Host, Progress, State};
pub use init::{OnFailure, STEPS, Step};
pub use operation::{DescriptorBytes, EndCommands, Operation, Output};
pub use options::{LinkLimits, Options, QueueMode, Timeouts};
pub use port::Port;
pub use power::{DevicePower, Link};
pub use query::Query;
pub use quirks::{Quirk, Quirks};
pub use writebooster::WriteBoosterStatus;
