//! A block device that does nothing, at once: only the cost of the workload runner remains.

use flysch_api::block::{BlockDevice, BlockGeometry, Completion, Refused, Request};
use flysch_api::data::SegmentLimits;
use flysch_api::machine::{DmaRegion, Instant};
use flysch_api::trace::Passage;

/// Accepts requests, completes them when the doorbell is rung, moves no data.
#[derive(Debug)]
pub struct Null {
    geometry: BlockGeometry,
    memory: DmaRegion,
    waiting: Box<[(u64, Instant)]>,
    /// Where the next request goes in `waiting`.
    end: usize,
    /// How many at the front of `waiting` the doorbell was rung for.
    rung: usize,
    /// How many of those were returned.
    taken: usize,
    issued: Instant,
}

impl Null {
    /// A device of `bytes` bytes in blocks of 512, taking `queue_depth` requests, with
    /// `memory_len` bytes of buffer memory.
    pub fn new(bytes: u64, queue_depth: u32, memory_len: usize) -> Self {
        let geometry = BlockGeometry {
            block_size: 512,
            blocks: bytes / 512,
            transfer_max: 1 << 30,
            segments: SegmentLimits::NONE,
            queue_depth,
            can_delete: true,
            read_only: false,
            crypto: false,
        };
        let memory = DmaRegion::zeroed(memory_len.max(1), 0);
        let waiting = vec![(0, Instant::START); queue_depth as usize].into_boxed_slice();
        Self { geometry, memory, waiting, end: 0, rung: 0, taken: 0, issued: Instant::START }
    }

    /// Requests' data lies in `memory` from now on. Nothing may be in flight.
    pub fn set_memory(&mut self, memory: &DmaRegion) {
        self.memory = memory.clone();
    }

    /// Makes room at the end; usually nothing has to move.
    fn forget_taken(&mut self) {
        self.waiting.copy_within(self.taken..self.end, 0);
        self.end -= self.taken;
        self.rung -= self.taken;
        self.taken = 0;
    }
}

impl BlockDevice for Null {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    #[inline]
    fn submit(&mut self, request: &Request, _now: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        if self.end == self.waiting.len() {
            self.forget_taken();
        }
        let place = self.waiting.get_mut(self.end).ok_or(Refused::Full)?;
        *place = (request.token, request.accepted);
        self.end += 1;
        Ok(())
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.issued = now;
        self.rung = self.end;
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        if self.taken == self.rung {
            self.forget_taken();
            return None;
        }
        let (token, accepted) = self.waiting[self.taken];
        self.taken += 1;
        let passage = Passage { accepted, issued: self.issued, device_done: None, seen: now };
        Some(Completion { token, result: Ok(()), passage })
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_api::block::{BlockError, Operation};
    use flysch_api::data::Data;
    use flysch_api::machine::DmaSlice;

    fn read(token: u64, offset: u64) -> Request {
        Request {
            operation: Operation::Read,
            force_unit_access: false,
            offset,
            length: 512,
            data: Data::One(DmaSlice { address: 0, len: 512 }),
            crypto: None,
            token,
            accepted: Instant::START,
        }
    }

    #[test]
    fn completes_what_was_rung_for_and_nothing_else() {
        let mut null = Null::new(4096, 3, 4096);
        let now = Instant::from_nanos(5);
        assert_eq!(null.submit(&read(1, 0), now), Ok(()));
        assert!(null.poll(now).is_none());
        null.ring(now);
        assert_eq!(null.submit(&read(2, 512), now), Ok(()));
        assert_eq!(null.poll(now).map(|c| c.token), Some(1));
        assert!(null.poll(now).is_none());
        assert_eq!(null.submit(&read(3, 0), now), Ok(()));
        assert_eq!(null.submit(&read(4, 0), now), Ok(()));
        assert_eq!(null.submit(&read(5, 0), now), Err(Refused::Full));
        null.ring(now);
        let tokens: Vec<u64> = core::iter::from_fn(|| null.poll(now)).map(|c| c.token).collect();
        assert_eq!(tokens, [2, 3, 4]);
        assert_eq!(null.submit(&read(6, 4096), now), Err(Refused::Invalid(BlockError::OutOfRange)));
    }

    #[test]
    fn a_place_is_free_as_soon_as_its_completion_was_taken() {
        let mut null = Null::new(4096, 2, 4096);
        let now = Instant::from_nanos(5);
        for token in [1, 2] {
            assert_eq!(null.submit(&read(token, 0), now), Ok(()));
        }
        null.ring(now);
        for token in 1..10 {
            assert_eq!(null.poll(now).map(|c| c.token), Some(token));
            assert_eq!(null.submit(&read(token + 2, 0), now), Ok(()));
            assert_eq!(null.submit(&read(99, 0), now), Err(Refused::Full));
            null.ring(now);
        }
    }
}
