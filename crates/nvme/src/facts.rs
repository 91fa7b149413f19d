//! What is known about a controller, before any write to it and after bring-up.

use crate::options::NvmeOptions;
use crate::quirks::Quirks;
use alloc::vec::Vec;
use flysch_wire::nvme::registers::{Cap, Version};
use flysch_wire::nvme::{IdentifyController, IdentifyNamespace};

/// What is known before anything was written to the controller.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) options: NvmeOptions,
    pub(crate) version: Version,
    pub(crate) cap: Cap,
    pub(crate) quirks: Quirks,
    pub(crate) depth: usize,
}

/// What bring-up learnt about the controller and its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvmeFacts {
    /// Identify controller.
    pub controller: IdentifyController,
    /// The active namespaces, by ascending id; at most [`NAMESPACES_MAX`].
    pub namespaces: Vec<Namespace>,
    /// Counts how often `namespaces` was read.
    pub generation: u32,
    /// Bytes of host memory lent to the controller.
    pub host_memory: u32,
    /// Whether the controller enters non-operational power states by itself.
    pub saves_power: bool,
}

/// An active namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its id.
    pub id: u32,
    /// The command set: 0 NVM, 2 zoned.
    pub command_set: u8,
    /// Identify namespace.
    pub data: IdentifyNamespace,
}

/// Maximum number of namespaces examined: a controller cannot make the list grow without bound.
pub const NAMESPACES_MAX: usize = 256;
