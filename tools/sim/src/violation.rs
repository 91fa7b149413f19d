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
    /// The stack could not be set up.
    #[error("setting up: {0}")]
    SetUp(String),
}
