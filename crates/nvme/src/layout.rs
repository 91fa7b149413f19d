//! Layout of everything the controller reads and writes in the driver's DMA memory.

use crate::NvmeOptions;
use crate::error::NvmeError;
use flysch_api::machine::DmaRegion;
use flysch_wire::nvme::{command, completion, prp};

/// The memory page size set in the controller (CC.MPS 0).
pub(crate) const PAGE: usize = 4096;
/// Entries of each admin queue.
pub(crate) const ADMIN_ENTRIES: usize = 32;

/// Pages before those of the lanes. One more is counted in case the memory begins within a page.
const FIXED_PAGES: usize = 6;

/// The parts of the driver's memory, each starting at a page boundary.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) admin_submission: DmaRegion,
    pub(crate) admin_completion: DmaRegion,
    /// Data of admin commands: one page.
    pub(crate) admin_data: DmaRegion,
    /// Memory lent to the controller, whole pages.
    pub(crate) host_memory: DmaRegion,
    /// The list that describes it: one page.
    pub(crate) host_memory_list: DmaRegion,
    /// Doorbells, followed by the controller's event indexes, one page each.
    pub(crate) doorbells: DmaRegion,
    lanes: DmaRegion,
    depth: usize,
    list: usize,
    /// All of it; data of others must not be here.
    whole: DmaRegion,
}

impl Layout {
    /// Size of the driver's memory for these options, bytes, wherever it starts.
    pub(crate) fn len(options: &NvmeOptions) -> usize {
        let lane = Self::lane_len(options.depth.into(), list_len(options));
        (FIXED_PAGES + 1) * PAGE
            + usize::from(options.lanes.max(1)) * lane
            + host_memory_len(options)
    }

    /// Entries of a lane's queues: one stays empty, to distinguish full from empty.
    pub(crate) fn entries(depth: usize) -> usize {
        depth + 1
    }

    /// Bytes of a submission queue with this many entries, in whole pages.
    pub(crate) fn queue_bytes(entries: usize) -> usize {
        (entries * command::LENGTH).next_multiple_of(PAGE)
    }

    fn rings(depth: usize) -> (usize, usize) {
        let ring = |entry: usize| (Self::entries(depth) * entry).next_multiple_of(PAGE);
        (ring(command::LENGTH), ring(completion::LENGTH))
    }

    fn lane_len(depth: usize, list: usize) -> usize {
        let (submission, completion) = Self::rings(depth);
        submission + completion + (depth * list).next_multiple_of(PAGE)
    }

    /// Divides `memory` into its parts.
    pub(crate) fn new(
        memory: &DmaRegion,
        options: &NvmeOptions,
        depth: usize,
    ) -> Result<Self, NvmeError> {
        let needed = Self::len(options);
        if memory.len() < needed {
            return Err(NvmeError::MemoryTooSmall { needed, given: memory.len() });
        }
        let page = PAGE as u64;
        let start = (memory.address().next_multiple_of(page) - memory.address()) as usize;
        let list = list_len(options);
        let lanes = usize::from(options.lanes) * Self::lane_len(depth, list);
        Ok(Self {
            admin_submission: memory.carve(start, ADMIN_ENTRIES * command::LENGTH),
            admin_completion: memory.carve(start + PAGE, ADMIN_ENTRIES * completion::LENGTH),
            admin_data: memory.carve(start + 2 * PAGE, PAGE),
            host_memory_list: memory.carve(start + 3 * PAGE, PAGE),
            doorbells: memory.carve(start + 4 * PAGE, 2 * PAGE),
            lanes: memory.carve(start + FIXED_PAGES * PAGE, lanes),
            host_memory: memory.carve(start + FIXED_PAGES * PAGE + lanes, host_memory_len(options)),
            depth,
            list,
            whole: memory.clone(),
        })
    }

    fn lane(&self, lane: usize) -> DmaRegion {
        let length = Self::lane_len(self.depth, self.list);
        self.lanes.carve(lane * length, length)
    }

    /// A lane's submission queue.
    pub(crate) fn submission(&self, lane: usize) -> DmaRegion {
        self.lane(lane).carve(0, Self::entries(self.depth) * command::LENGTH)
    }

    /// A lane's completion queue.
    pub(crate) fn completion(&self, lane: usize) -> DmaRegion {
        let at = Self::rings(self.depth).0;
        self.lane(lane).carve(at, Self::entries(self.depth) * completion::LENGTH)
    }

    /// The page lists of a lane, [`list`](Self::list) bytes for each slot.
    pub(crate) fn lists(&self, lane: usize) -> DmaRegion {
        let (submission, completion) = Self::rings(self.depth);
        self.lane(lane).carve(submission + completion, self.depth * self.list)
    }

    /// Bytes of a slot's page list.
    pub(crate) fn list(&self) -> usize {
        self.list
    }

    /// All of the driver's memory.
    pub(crate) fn whole(&self) -> &DmaRegion {
        &self.whole
    }

    /// Slots per lane.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }
}

/// Number of bytes lent to the controller.
fn host_memory_len(options: &NvmeOptions) -> usize {
    options.host_memory as usize / PAGE * PAGE
}

/// Bytes of a list that names all pages of the longest transfer except the first; a power of two,
/// so that no list crosses a page boundary.
fn list_len(options: &NvmeOptions) -> usize {
    let pages = options.transfer_max as usize / PAGE + 1;
    (pages * prp::ENTRY).next_power_of_two().clamp(64, PAGE)
}
