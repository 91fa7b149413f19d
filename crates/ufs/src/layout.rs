//! Where everything the controller reads and writes lies in the driver's DMA memory.

use crate::UfsOptions;
use crate::error::UfsError;
use flysch_api::machine::DmaRegion;
use flysch_wire::ufs::registers::{LIST_ALIGNMENT, TASK_SLOTS_MAX, TRANSFER_SLOTS_MAX};

/// Bytes of one queue entry of either kind, and of one transfer request descriptor.
pub(crate) const ENTRY: usize = 32;
/// Bytes of one task management request descriptor.
pub(crate) const TASK_ENTRY: usize = 80;

/// One command descriptor of a lane's slot: for one range of data two cache lines to the device,
/// and one back.
///
/// | bytes | what |
/// |---|---|
/// | 0x00..0x20 | COMMAND UPIU |
/// | 0x20..0x30 | the physical region entry of data in one segment |
/// | 0xC0..0x100 | RESPONSE UPIU |
/// | 0x100..0x900 | physical region entries of all other data, 128 x 16 |
///
/// The stride is not a power of two, so that the slots' first lines spread over the cache.
pub(crate) mod slot {
    pub(crate) const LENGTH: usize = 0x900;
    pub(crate) const PRDT: usize = 0x20;
    pub(crate) const LIST: usize = 0x100;
    /// Entries there: maximum segments of one command (Linux: 128).
    pub(crate) const LIST_ENTRIES: u16 = 128;
    pub(crate) const RESPONSE: usize = 0xC0;
    pub(crate) const RESPONSE_LENGTH: usize = 0x40;
}

/// The one command descriptor of device management: NOP, query, and the host's own SCSI commands
/// with the data of those.
pub(crate) mod management {
    /// The extra header segment of a request.
    pub(crate) const SEGMENT: usize = 0x20;
    pub(crate) const RESPONSE: usize = 0x400;
    pub(crate) const RESPONSE_LENGTH: usize = 0x400;
    pub(crate) const PRDT: usize = 0x800;
    pub(crate) const DATA: usize = 0x1000;
    /// 64 RPMB frames, which is what devices accept at once.
    pub(crate) const DATA_LENGTH: usize = 0x8000;
    pub(crate) const LENGTH: usize = DATA + DATA_LENGTH;
}

const LIST: usize = LIST_ALIGNMENT as usize;
/// Rings have room for at least as many commands as a single doorbell.
const RING_DEPTH_MIN: usize = TRANSFER_SLOTS_MAX as usize;
const _: () = assert!(TRANSFER_SLOTS_MAX as usize * ENTRY <= LIST);
const _: () = assert!(TASK_SLOTS_MAX as usize * TASK_ENTRY <= LIST);

/// The parts of the driver's memory.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) transfer_list: DmaRegion,
    pub(crate) task_list: DmaRegion,
    pub(crate) management: DmaRegion,
    lanes: DmaRegion,
    depth: usize,
    /// All of it, used by nobody else.
    whole: DmaRegion,
}

impl Layout {
    /// Bytes that the driver's memory must have for these options, wherever it starts.
    pub(crate) fn len(options: &UfsOptions) -> usize {
        let lanes = Self::lanes(options);
        LIST + 2 * LIST + management::LENGTH + lanes * Self::lane_len(options.depth.into())
    }

    fn lanes(options: &UfsOptions) -> usize {
        usize::from(options.lanes.max(1)) + usize::from(options.apart)
    }

    /// Descriptors, submission ring, completion ring, each aligned like a list.
    fn lane_len(depth: usize) -> usize {
        Self::completion_offset(depth)
            + (Self::completion_entries(depth) * ENTRY).next_multiple_of(LIST)
    }

    fn submission_offset(depth: usize) -> usize {
        (depth * slot::LENGTH).next_multiple_of(LIST)
    }

    fn completion_offset(depth: usize) -> usize {
        let submission = (Self::submission_entries(depth) * ENTRY).next_multiple_of(LIST);
        Self::submission_offset(depth) + submission
    }

    /// Entries of a submission ring: one stays empty, because otherwise full would look like empty.
    /// Not fewer than a usual driver has: a controller that keeps its pointers when it is disabled
    /// (QEMU's does) continues where the last owner left it, and that must be inside.
    pub(crate) fn submission_entries(depth: usize) -> usize {
        depth.max(RING_DEPTH_MIN) + 1
    }

    /// Entries of a completion ring. The head register is written once per batch, so between two
    /// writes every slot can complete twice.
    pub(crate) fn completion_entries(depth: usize) -> usize {
        2 * depth.max(RING_DEPTH_MIN) + 2
    }

    /// Divides `memory` into its parts.
    pub(crate) fn new(
        memory: &DmaRegion,
        options: &UfsOptions,
        depth: usize,
    ) -> Result<Self, UfsError> {
        let needed = Self::len(options);
        if memory.len() < needed {
            return Err(UfsError::MemoryTooSmall { needed, given: memory.len() });
        }
        let start = memory.address().next_multiple_of(LIST_ALIGNMENT) - memory.address();
        let start = start as usize;
        let lanes = start + 2 * LIST + management::LENGTH;
        Ok(Self {
            transfer_list: memory.carve(start, LIST),
            task_list: memory.carve(start + LIST, LIST),
            management: memory.carve(start + 2 * LIST, management::LENGTH),
            lanes: memory.carve(lanes, Self::lanes(options) * Self::lane_len(depth)),
            depth,
            whole: memory.clone(),
        })
    }

    fn lane(&self, lane: usize) -> DmaRegion {
        let length = Self::lane_len(self.depth);
        self.lanes.carve(lane * length, length)
    }

    /// Command descriptors of a lane's slots.
    pub(crate) fn descriptors(&self, lane: usize) -> DmaRegion {
        self.lane(lane).carve(0, self.depth * slot::LENGTH)
    }

    /// Device address of a slot's command descriptor.
    pub(crate) fn descriptor(&self, lane: usize, number: usize) -> u64 {
        self.descriptors(lane).address() + (number * slot::LENGTH) as u64
    }

    /// All of the driver's memory.
    pub(crate) fn whole(&self) -> &DmaRegion {
        &self.whole
    }

    /// Slots per lane.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// A lane's submission ring.
    pub(crate) fn submission_ring(&self, lane: usize) -> DmaRegion {
        let at = Self::submission_offset(self.depth);
        self.lane(lane).carve(at, Self::submission_entries(self.depth) * ENTRY)
    }

    /// A lane's completion ring.
    pub(crate) fn completion_ring(&self, lane: usize) -> DmaRegion {
        let at = Self::completion_offset(self.depth);
        self.lane(lane).carve(at, Self::completion_entries(self.depth) * ENTRY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Every part, wherever the memory starts: inside it, aligned, and none over another.
    #[test]
    fn parts_are_aligned_and_apart() {
        for (lanes, depth, apart, start) in
            [(1, 1, false, 0), (4, 32, true, 512), (3, 255, false, 8)]
        {
            let options = UfsOptions { lanes, depth, apart, ..UfsOptions::default() };
            let memory = DmaRegion::zeroed(Layout::len(&options), 0x10_0000 + start);
            let depth = usize::from(depth);
            let layout = Layout::new(&memory, &options, depth).expect("as much as it asked for");
            let mut parts = Vec::from([
                layout.transfer_list.clone(),
                layout.task_list.clone(),
                layout.management.clone(),
            ]);
            for lane in 0..usize::from(lanes) + usize::from(apart) {
                parts.push(layout.descriptors(lane));
                parts.push(layout.submission_ring(lane));
                parts.push(layout.completion_ring(lane));
                let least = depth.max(RING_DEPTH_MIN);
                assert_eq!(layout.submission_ring(lane).len(), (least + 1) * ENTRY);
                assert_eq!(layout.completion_ring(lane).len(), (2 * least + 2) * ENTRY);
                let last = layout.descriptor(lane, depth - 1);
                assert!(layout.descriptors(lane).offset_of(last, slot::LENGTH).is_ok());
            }
            parts.sort_by_key(DmaRegion::address);
            for part in &parts {
                assert!(part.address().is_multiple_of(128), "{part:?}");
                assert!(memory.offset_of(part.address(), part.len()).is_ok(), "{part:?}");
            }
            let end = |part: &DmaRegion| part.address() + part.len() as u64;
            assert!(parts.windows(2).all(|pair| end(&pair[0]) <= pair[1].address()));
        }
        let options = UfsOptions::default();
        let small = DmaRegion::zeroed(Layout::len(&options) - 1, 0);
        assert!(matches!(Layout::new(&small, &options, 32), Err(UfsError::MemoryTooSmall { .. })));
    }
}
