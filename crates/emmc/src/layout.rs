//! Where everything the controller reads and writes lies in the driver's DMA memory.

use crate::EmmcOptions;
use crate::error::EmmcError;
use flysch_api::machine::DmaRegion;
use flysch_wire::mmc::{adma, cqhci};

/// Alignment of the parts.
const PAGE: usize = 4096;
/// Bytes of the task list: 32 slots of a task and a transfer descriptor, 16 bytes each.
const TASKS: usize = cqhci::TASKS as usize * SLOT;
/// Bytes of a slot of the task list with 128-bit descriptors.
pub(crate) const SLOT: usize = 32;
/// Bytes of data of the control path.
pub(crate) const SCRATCH: usize = 16 << 10;
/// Maximum segments of a command's data, in addition to those that its length requires.
pub(crate) const SEGMENTS: usize = 128;

/// The parts of the driver's memory, each at a page.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The task list.
    pub(crate) tasks: DmaRegion,
    /// The list of the control path's transfers.
    pub(crate) table: DmaRegion,
    /// Data of the control path.
    pub(crate) scratch: DmaRegion,
    lists: DmaRegion,
    list: usize,
    /// All of it, used by nobody else.
    whole: DmaRegion,
}

impl Layout {
    /// Bytes that the driver's memory must have for these options, wherever it starts.
    pub(crate) fn len(options: &EmmcOptions) -> usize {
        3 * PAGE + SCRATCH + Self::slots(options) * list_len()
    }

    /// Slots that have lists: tasks of all lanes; a lane alone may have as many without an engine.
    fn slots(options: &EmmcOptions) -> usize {
        usize::from(cqhci::TASKS) * usize::from(options.lanes.max(1))
    }

    /// Divides `memory` into its parts.
    pub(crate) fn new(memory: &DmaRegion, options: &EmmcOptions) -> Result<Self, EmmcError> {
        let needed = Self::len(options);
        if memory.len() < needed {
            return Err(EmmcError::MemoryTooSmall { needed, given: memory.len() });
        }
        let page = PAGE as u64;
        let start = (memory.address().next_multiple_of(page) - memory.address()) as usize;
        let list = list_len();
        Ok(Self {
            tasks: memory.carve(start, TASKS),
            table: memory.carve(start + TASKS, PAGE - TASKS),
            scratch: memory.carve(start + PAGE, SCRATCH),
            lists: memory.carve(start + PAGE + SCRATCH, Self::slots(options) * list),
            list,
            whole: memory.clone(),
        })
    }

    /// The lists of a lane's slots, [`list`](Self::list) bytes each.
    pub(crate) fn lists(&self, lane: usize) -> DmaRegion {
        let bytes = usize::from(cqhci::TASKS) * self.list;
        self.lists.carve(lane * bytes, bytes)
    }

    /// Bytes of a slot's list.
    pub(crate) fn list(&self) -> usize {
        self.list
    }

    /// All of the driver's memory.
    pub(crate) fn whole(&self) -> &DmaRegion {
        &self.whole
    }
}

/// Bytes of a list with room for the maximum number of segments, and for the pieces of 64 KiB into
/// which the longest transfer is divided in addition.
fn list_len() -> usize {
    let pieces = (EmmcOptions::TRANSFER_MAX / adma::RANGE_MAX) as usize;
    (SEGMENTS + pieces) * adma::LENGTH_128
}
