//! Turns assignments into workers: their part of the device, and their buffers.

use flysch_api::block::BlockDevice;

use super::company::Flows;
use super::iolog::Log;
use super::worker::{Slot, Worker};
use super::{Assignment, DEPTH_MAX, RunError, WORKERS_MAX, buffers, replaying};
use crate::workload::{
    BlockSize, Direction, Distribution, Mix, Order, Stretch, StretchSize, Workload,
};
use crate::zones::Zones;

/// The part of the device a worker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) size: u64,
    /// End of what its requests may touch: strides go on behind the region.
    pub(super) end: u64,
    /// Whether a sequence with gaps that has come to the end of the device begins anew.
    pub(super) begins_anew: bool,
}

/// Checks every assignment against its lane and gives each worker its buffers.
pub(super) fn prepare<'a, D: BlockDevice>(
    lanes: &[D],
    assignments: &'a [Assignment],
    zones: Option<&Zones>,
) -> Result<Vec<Worker<'a>>, RunError> {
    let mut workers: Vec<Worker<'a>> = Vec::with_capacity(assignments.len());
    // Lanes of one device may share their memory: buffers are dealt out per memory, not per lane.
    let mut used: Vec<(u64, u64)> = Vec::new();
    let mut flows = Flows::default();
    for (id, assignment) in assignments.iter().enumerate() {
        let job = &assignment.workload;
        let invalid = |what| Err(RunError::Invalid { job: job.name.clone(), what });
        let Some(lane) = lanes.get(assignment.lane) else {
            return invalid("its lane does not exist");
        };
        if id >= WORKERS_MAX {
            return invalid("too many workers in one run");
        }
        if !(1..=DEPTH_MAX).contains(&job.depth) {
            return invalid("iodepth must be 1 to 32768");
        }
        let region = match &job.replay {
            None => Region::of(job, lane)?.of_zones(job, zones)?,
            Some(replay) => {
                if job.verify.is_some() {
                    return invalid("a replayed log cannot be verified: leave verify out");
                }
                replaying::check(&job.name, replay, lane.geometry())?;
                let size = lane.geometry().bytes();
                Region { offset: 0, size, end: size, begins_anew: false }
            }
        };
        let address = lane.memory().address();
        let at = match used.iter().position(|&(known, _)| known == address) {
            Some(at) => at,
            None => {
                used.push((address, 0));
                used.len() - 1
            }
        };
        let slots = buffers::deal(job, lane.memory(), &mut used[at].1)?;
        let slots = slots.into_iter().map(Slot::new).collect::<Box<[_]>>();
        let before = workers.iter().filter(|w| w.lane == assignment.lane);
        let lane_slot = before.map(|w| w.slots() as u16).fold(0, u16::wrapping_add);
        let mut worker = Worker::new(id as u16, assignment, region, slots, lane_slot);
        worker.use_zones(zones);
        if let Some(to) = &job.log {
            let failed = |cause| RunError::Log { job: job.name.clone(), cause };
            worker.write_log(Log::create(to).map_err(failed)?);
        }
        if let Some(flow) = job.flow.filter(|flow| flow.weight > 0) {
            worker.share(flows.part(flow));
        }
        workers.push(worker);
    }
    Ok(workers)
}

/// The start of the last request, in the region, of a sequence with gaps over `size` bytes, and its
/// length and the gap; `None` if there are no gaps, or lengths differ.
pub(super) fn last_with_gaps(job: &Workload, size: u64) -> Option<(u64, u64, u64)> {
    let (Order::Sequential { gap }, Mix::Only(direction)) = (&job.order, job.mix) else {
        return None;
    };
    let gap = u64::try_from(*gap).ok().filter(|&gap| gap > 0 && job.strides.is_none())?;
    let BlockSize::Fixed(length) = job.block_size[direction.index()] else { return None };
    let step = u64::from(length) + gap;
    Some((size.saturating_sub(1) / step * step, length.into(), gap))
}

/// Whether the gap behind the last request leads beyond the end of the device, `room` bytes behind
/// the start: there fio begins anew, until as much is transferred as was asked for. It ends where
/// the request ends with the device, or no further one fits.
fn goes_on_beyond(job: &Workload, size: u64, room: u64) -> bool {
    last_with_gaps(job, size).is_some_and(|(place, length, gap)| {
        let end = place + length;
        end < room && end + gap >= room
    })
}

/// `size` bytes as the requests of `job` divide them, by fio's rules: a sequence does not cut its
/// last request short but goes beyond the size if there is room, and ends before it if not; random
/// blocks that come once each leave alone what is no whole block.
fn whole(job: &Workload, size: u64, room: u64) -> u64 {
    if job.zones.is_some() || job.strides.is_some() {
        return size;
    }
    if let Some((place, length, _)) = last_with_gaps(job, size) {
        return if place + length <= room { size.max(place + length) } else { place };
    }
    let block = u64::from(job.block_min());
    match job.order {
        Order::Sequential { gap: 0 } if job.block_min() == job.block_max() => {
            let whole = size.next_multiple_of(block);
            if whole <= room { whole } else { size - size % block }
        }
        _ => size - size % once(job).unwrap_or(1),
    }
}

/// The blocks of which each comes once in a pass, bytes, if the job goes by such.
pub(super) fn once(job: &Workload) -> Option<u64> {
    let Order::Random { each_once: true, run: 0 | 1, distribution: Distribution::Uniform } =
        job.order
    else {
        return None;
    };
    (!job.is_aligned_apart()).then(|| u64::from(job.block_min().max(1)))
}

/// The bytes that stretches take, as far as they are not a share of the region.
fn bytes_of(stretches: &[Stretch]) -> u64 {
    let bytes = stretches.iter().map(|stretch| match stretch.size {
        StretchSize::Bytes(bytes) => bytes,
        StretchSize::Percent(_) => 0,
    });
    bytes.fold(0, u64::saturating_add)
}

impl Region {
    /// The region of `job` on `lane`, if the job fits there.
    fn of<D: BlockDevice>(job: &Workload, lane: &D) -> Result<Self, RunError> {
        let geometry = lane.geometry();
        let name = || job.name.clone();
        let block_size = geometry.block_size;
        let gap = match job.order {
            Order::Sequential { gap } => gap.unsigned_abs(),
            Order::Random { .. } => 0,
        };
        let offset = [("offset", job.offset), ("the gap behind the colon of rw,", gap)];
        let is_random = matches!(job.order, Order::Random { .. });
        let aligns = job.align.into_iter().flatten().filter(|_| is_random);
        let align = aligns.clone().map(|align| ("blockalign", u64::from(align)));
        let sizes = job.sizes_used().flat_map(|size| match size {
            BlockSize::Split(parts) => {
                parts.iter().map(|&(bytes, _)| ("block size", u64::from(bytes))).collect()
            }
            other => {
                vec![("block size", u64::from(other.min())), ("block size", u64::from(other.max()))]
            }
        });
        for (what, value) in offset.into_iter().chain(align).chain(sizes) {
            let may_be_none = offset.iter().any(|(known, _)| *known == what);
            if value % u64::from(block_size) != 0 || (value == 0 && !may_be_none) {
                return Err(RunError::Misaligned { job: name(), what, value, block_size });
            }
        }
        let device = geometry.bytes();
        let size = job.size.unwrap_or(device.saturating_sub(job.offset));
        if job.offset >= device || size > device - job.offset {
            return Err(RunError::BeyondDevice { job: name(), offset: job.offset, size, device });
        }
        let block = job.block_max().max(aligns.max().unwrap_or(0));
        if size < u64::from(block) {
            return Err(RunError::TooSmall { job: name(), size, block });
        }
        if geometry.read_only && job.writes() {
            return Err(RunError::ReadOnly { job: name() });
        }
        if !geometry.can_delete && job.uses(Direction::Trim) {
            return Err(RunError::CannotTrim { job: name() });
        }
        if let Order::Random { distribution: Distribution::Zoned(all), .. } = &job.order
            && all.iter().any(|stretches| bytes_of(stretches) > size)
        {
            let what = "the sizes of random_distribution=zoned_abs are more than its region";
            return Err(RunError::Invalid { job: name(), what });
        }
        let whole_blocks = |size: u64| size - size % u64::from(block_size);
        Self::check_strides(job, whole_blocks(size), block_size)?;
        let room = device - job.offset;
        let begins_anew = job.offset == 0 && goes_on_beyond(job, size, room);
        let size = whole_blocks(whole(job, size, room));
        let end = if job.strides.is_some() { device } else { job.offset + size };
        Ok(Self { offset: job.offset, size, end, begins_anew })
    }

    /// Whether requests fit zones with strides: random ones lie within them, and the zones begin at
    /// blocks of the device.
    fn check_strides(job: &Workload, size: u64, block_size: u32) -> Result<(), RunError> {
        let Some(strides) = job.strides else { return Ok(()) };
        let value = strides.range.saturating_add(strides.skip);
        if !value.is_multiple_of(block_size.into()) {
            let (job, what) = (job.name.clone(), "zonerange with zoneskip");
            return Err(RunError::Misaligned { job, what, value, block_size });
        }
        let least = job.sizes_used().map(BlockSize::min).chain(job.align.into_iter().flatten());
        let is_random = matches!(job.order, Order::Random { .. });
        if is_random && strides.range.min(size) < u64::from(least.max().unwrap_or(0)) {
            let what = "zonerange (or zonesize, which stands in its place) is shorter than a \
                        request, so that no random request fits into a zone";
            return Err(RunError::Invalid { job: job.name.clone(), what });
        }
        Ok(())
    }

    /// The whole zones of it, if the job goes by zones.
    fn of_zones(self, job: &Workload, zones: Option<&Zones>) -> Result<Self, RunError> {
        let Some(mode) = job.zones else { return Ok(self) };
        let invalid = |what| Err(RunError::Invalid { job: job.name.clone(), what });
        let Some(zones) = zones else { return invalid("the disk has no zones") };
        let Some((offset, size)) = zones.whole(self.offset, self.size) else {
            return invalid("its offset and size do not hold one whole zone");
        };
        let states = &zones.states[zones.range(offset, size)];
        let capacity = states.iter().map(|state| state.capacity).min().unwrap_or(0);
        let moved = [Direction::Read, Direction::Write].into_iter().filter(|&d| job.uses(d));
        if moved.map(|d| job.block_size[d.index()].max()).max() > Some(capacity as u32) {
            return invalid("a request is longer than what can be written to a zone");
        }
        let trim = &job.block_size[Direction::Trim.index()];
        if job.uses(Direction::Trim) && *trim != BlockSize::Fixed(zones.size() as u32) {
            return invalid("a trim resets a zone: its block size must be the zonesize");
        }
        let limit = if mode.ignore_limits { 0 } else { zones.open_max() };
        if limit > 0 && mode.open_max > limit {
            return invalid("max_open_zones is more zones than the disk can have open");
        }
        if mode.job_open_max > 0 && mode.open_max.max(limit) == 0 {
            return invalid("job_max_open_zones needs max_open_zones, or a disk with such a limit");
        }
        Ok(Self { offset, size, end: offset + size, ..self })
    }
}
