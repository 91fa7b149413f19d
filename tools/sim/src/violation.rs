//! What must not happen in a world.

use flysch_api::block::Operation;

use crate::oracle::Wrong;
use crate::witness::PortWrong;

/// What must not happen.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A read gave what cannot be there.
    #[error("data: {0}")]
    Data(Wrong),
    /// A completion for a request that is not in flight.
    #[error("a completion for request {0}, which is not in flight")]
    NotOwed(u64),
    /// Requests that never ended.
    #[error("{0} requests never ended")]
    NeverEnded(usize),
    /// A request failed though nothing went wrong.
    #[error("{operation} failed without a fault: {error}")]
    FailedWithoutFault {
        /// What was asked.
        operation: Operation,
        /// What was answered.
        error: flysch_api::block::Error,
    },
    /// The port did not end every command once.
    #[error(transparent)]
    Port(#[from] PortWrong),
    /// More commands ended badly than the faults explain.
    #[error("{bad} commands ended badly, and the faults explain {explained}: {faults}")]
    MoreThanFaults {
        /// Commands that did not end plainly well.
        bad: u64,
        /// How many could.
        explained: u64,
        /// The faults, and how often each happened.
        faults: String,
    },
    /// A driver gave its device up, which was there. Nothing is said of what is on it.
    #[error("the driver gave the device up, as its recoveries failed: {faults}")]
    GivenUp {
        /// The faults, and how often each happened.
        faults: String,
    },
    /// Reads of a device that works failed again and again.
    #[error("block {block} cannot be read back: {error}")]
    Unreadable {
        /// The first block of the read.
        block: u64,
        /// How the last one ended.
        error: flysch_api::block::Error,
    },
    /// The stack could not be set up.
    #[error("setting up: {0}")]
    SetUp(String),
}
