//! A worker's position in the log that it replays.

use std::sync::Arc;

use flysch_api::block::{BlockGeometry, Operation};
use flysch_api::machine::Instant;

use super::RunError;
use crate::iolog::{Entry, Replay};

/// The remaining requests of a log.
#[derive(Debug)]
pub(super) struct Replaying {
    replay: Arc<Replay>,
    next: usize,
    start: Instant,
}

impl Replaying {
    pub(super) fn new(replay: Arc<Replay>) -> Self {
        Self { replay, next: 0, start: Instant::START }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.start = now;
    }

    /// When the next request is due; `None` after the last.
    pub(super) fn due(&self) -> Option<Instant> {
        let entry = self.replay.entries.get(self.next)?;
        Some(self.start.after_nanos(entry.at_nanos))
    }

    /// The next request, which is due.
    pub(super) fn take(&mut self) -> Option<Entry> {
        let entry = self.replay.entries.get(self.next).copied();
        self.next += usize::from(entry.is_some());
        entry
    }

    /// The completed fraction, 0..=1.
    pub(super) fn fraction(&self) -> f64 {
        self.next as f64 / self.replay.entries.len().max(1) as f64
    }
}

/// Whether all requests of `replay` fit a device.
pub(super) fn check(job: &str, replay: &Replay, geometry: &BlockGeometry) -> Result<(), RunError> {
    let block = u64::from(geometry.block_size);
    for (index, entry) in replay.entries.iter().enumerate() {
        let Entry { operation, offset, length, .. } = *entry;
        let ends = offset.checked_add(u64::from(length)).filter(|&end| end <= geometry.bytes());
        let what = match operation {
            Operation::Write if geometry.read_only => "writes, but the device is read-only",
            Operation::Delete if geometry.read_only => "trims, but the device is read-only",
            Operation::Delete if !geometry.can_delete => {
                "trims, but the device cannot; replay_skip=trim leaves trims out"
            }
            _ if ends.is_none() => {
                "ends beyond the device; replay_scale makes offsets smaller, or take a larger one"
            }
            _ if offset % block != 0 => {
                "does not begin at a block of the device; replay_align rounds offsets down"
            }
            _ if u64::from(length) % block != 0 => {
                "is not a number of whole blocks of the device; take one with smaller blocks"
            }
            _ => continue,
        };
        let job = job.to_string();
        return Err(RunError::Replay { job, number: index + 1, offset, length, what });
    }
    Ok(())
}
