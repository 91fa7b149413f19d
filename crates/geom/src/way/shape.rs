//! The geometry of a way: the provider's size, and the common capabilities of all its lanes.

use flysch_api::block::BlockGeometry;
use flysch_api::data::SegmentLimits;

use super::plan::Plan;
use crate::error::GeomError;

/// Maximum number of requests that a way accepts.
const DEPTH_MAX: u32 = 4096;

/// The geometry of a way to nowhere.
pub(super) const NOTHING: BlockGeometry = BlockGeometry {
    block_size: 512,
    blocks: 0,
    transfer_max: 0,
    segments: SegmentLimits::NONE,
    queue_depth: 0,
    can_delete: false,
    read_only: true,
    crypto: false,
};

/// The geometry of a way to lanes with these geometries.
pub(super) fn of<'g>(
    plan: &Plan,
    lanes: impl Iterator<Item = &'g BlockGeometry>,
) -> Result<BlockGeometry, GeomError> {
    let (media_size, sector) = plan.size;
    let start = BlockGeometry {
        block_size: sector,
        blocks: media_size / u64::from(sector.max(1)),
        transfer_max: u32::MAX,
        can_delete: true,
        read_only: !plan.writes,
        // Keys count the data units of one disk.
        crypto: plan.fans.is_empty(),
        ..NOTHING
    };
    lanes.into_iter().try_fold(start, |all, lane| {
        if !sector.is_multiple_of(lane.block_size) {
            let cause = format_args!(
                "has blocks of {} bytes, but the sectors above it have {sector}",
                lane.block_size
            );
            return Err(GeomError::invalid("the lane of a disk", cause));
        }
        Ok(BlockGeometry {
            transfer_max: all.transfer_max.min(lane.transfer_max),
            segments: both(all.segments, lane.segments),
            queue_depth: all.queue_depth.saturating_add(lane.queue_depth).min(DEPTH_MAX),
            can_delete: all.can_delete && lane.can_delete,
            read_only: all.read_only || lane.read_only,
            crypto: all.crypto && lane.crypto,
            ..all
        })
    })
}

/// The limits of segments that satisfy both lanes.
fn both(one: SegmentLimits, other: SegmentLimits) -> SegmentLimits {
    let boundary = match (one.boundary, other.boundary) {
        (0, boundary) | (boundary, 0) => boundary,
        (one, other) => one.min(other),
    };
    SegmentLimits {
        count: one.count.min(other.count),
        length: one.length.min(other.length),
        alignment: one.alignment.max(other.alignment),
        boundary,
        inner: one.inner.max(other.inner),
    }
}
