//! Rate limits and think time: when the next request may be issued.

use flysch_api::machine::Instant;

use crate::workload::{Direction, Pace};

/// Keeps a worker to its limits.
#[derive(Debug)]
pub(super) struct Pacer {
    limits: Pace,
    start: Instant,
    bytes: [u64; 3],
    requests: [u64; 3],
    until_think: u64,
    open_at: Instant,
}

impl Pacer {
    pub(super) fn new(limits: Pace) -> Self {
        let until_think = limits.think_requests.max(1);
        let (start, open_at) = (Instant::START, Instant::START);
        Self { limits, start, bytes: [0; 3], requests: [0; 3], until_think, open_at }
    }

    pub(super) fn start(&mut self, now: Instant) {
        (self.start, self.open_at) = (now, now);
    }

    /// From when on a request may be issued.
    pub(super) fn open_at(&self) -> Instant {
        self.open_at
    }

    /// A request of `bytes` bytes was issued at `now`.
    pub(super) fn issued(&mut self, direction: Direction, bytes: u32, now: Instant) {
        let index = direction.index();
        self.bytes[index] += u64::from(bytes);
        self.requests[index] += 1;
        let due = |done: u64, per_second: u64| {
            let nanos = u128::from(done) * 1_000_000_000;
            let nanos = nanos.checked_div(u128::from(per_second)).unwrap_or(0);
            self.start.after_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let by_bytes = due(self.bytes[index], self.limits.bytes_per_second[index]);
        let by_requests = due(self.requests[index], self.limits.requests_per_second[index]);
        self.open_at = self.open_at.max(by_bytes).max(by_requests);
        self.until_think -= 1;
        if self.until_think == 0 && self.limits.think_time_us > 0 {
            let pause = self.limits.think_time_us.saturating_mul(1000);
            self.open_at = self.open_at.max(now.after_nanos(pause));
        }
        if self.until_think == 0 {
            self.until_think = self.limits.think_requests.max(1);
        }
    }
}
