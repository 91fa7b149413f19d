//! Whole stacks under one seed: a workload, the stack, a modelled device, and injected faults.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod cuts;
pub mod oracle;
pub mod stack;
pub mod violation;
pub mod wear;
pub mod witness;
pub mod world;
