//! Violations that must not happen in a world.

use flysch_api::block::Operation;

use crate::oracle::Wrong;
use crate::witness::PortWrong;

/// A violation that must not happen.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A read returned impossible data.
    #[error("data: {0}")]
    Data(Wrong),
    /// A completion for a request that is not in flight.
    #[error("a completion for request {0}, which is not in flight")]
    NotOwed(u64),
    /// Requests that never ended.
    #[error("{0} requests never ended")]
    NeverEnded(usize),
    /// A request failed without a fault.
    #[error("{operation} failed without a fault: {error}")]
    FailedWithoutFault {
        /// The operation.
        operation: Operation,
        /// The error.
        error: flysch_api::block::BlockError,
    },
    /// The port did not end every command exactly once.
    #[error(transparent)]
    Port(#[from] PortWrong),
    /// More commands failed than the faults explain.
    #[error("{bad} commands ended badly, and the faults explain {explained}: {faults}")]
    MoreThanFaults {
        /// Number of commands that did not plainly succeed.
        bad: u64,
        /// Number that the faults explain.
        explained: u64,
        /// The faults, and how often each happened.
        faults: String,
    },
    /// A driver gave up on a device that was present. Nothing is known about its contents.
    #[error("the driver gave the device up, as its recoveries failed: {faults}")]
    GivenUp {
        /// The faults, and how often each happened.
        faults: String,
    },
    /// Reads of a working device failed repeatedly.
    #[error("block {block} cannot be read back: {error}")]
    Unreadable {
        /// The first block of the read.
        block: u64,
        /// The error of the last one.
        error: flysch_api::block::BlockError,
    },
    /// The stack could not be set up.
    #[error("setting up: {0}")]
    SetUp(String),
}
