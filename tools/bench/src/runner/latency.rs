//! Latency limits: an end at the first request that is too slow, and the search for the queue depth
//! at which requests are fast enough.

use flysch_api::machine::Instant;

use crate::workload::{LatencyLimits, LatencyTarget};

/// Enforces a worker's latency limits.
#[derive(Debug)]
pub(super) struct Limits {
    max_nanos: [u64; 3],
    search: Option<Search>,
}

/// The consequence of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// None.
    GoOn,
    /// It took longer than allowed: this many nanoseconds.
    TooLong(u64),
    /// The queue becomes deeper from now on.
    Deeper,
    /// Requests in flight have to complete; then the queue has the depth of the search.
    Settle,
    /// The search is over.
    Found,
}

impl Limits {
    /// According to `limits`, for a queue of up to `depth`.
    pub(super) fn new(limits: &LatencyLimits, depth: u32) -> Self {
        let search = limits.target.map(|target| Search::new(target, depth));
        Self { max_nanos: limits.max_nanos, search }
    }

    /// The depth that the queue should have; `None` if the search does not determine it.
    pub(super) fn depth(&self) -> Option<u32> {
        self.search.as_ref().map(|search| search.depth)
    }

    /// Starts to try a depth.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(search) = &mut self.search {
            search.try_anew(now);
        }
    }

    /// Whether the last try, the only one that is measured, starts now. True once.
    pub(super) fn takes_last(&mut self) -> bool {
        self.search.as_mut().is_some_and(|search| core::mem::take(&mut search.clears))
    }

    /// A request of direction number `direction` took `nanos`.
    pub(super) fn judge(&mut self, direction: usize, nanos: u64, now: Instant) -> Verdict {
        let limit = self.max_nanos[direction];
        if limit > 0 && nanos > limit {
            return Verdict::TooLong(limit);
        }
        self.search.as_mut().map_or(Verdict::GoOn, |search| search.judge(nanos, now))
    }
}

/// The search for the greatest depth at which requests are fast enough: doubled until they are not,
/// then bisected between the greatest good depth and the least bad one.
#[derive(Debug)]
struct Search {
    target: LatencyTarget,
    depth: u32,
    depth_max: u32,
    good: u32,
    bad: u32,
    /// How many times in a row the depth could not rise any more.
    stable: u32,
    since: Instant,
    requests: u64,
    slow: u64,
    is_last: bool,
    clears: bool,
}

/// After this many good tries without a change, the next greater depth is tried again.
const STABLE: u32 = 3;

impl Search {
    fn new(target: LatencyTarget, depth_max: u32) -> Self {
        Self {
            target,
            depth: 1,
            depth_max,
            good: 1,
            bad: depth_max,
            stable: 0,
            since: Instant::START,
            requests: 0,
            slow: 0,
            is_last: false,
            clears: false,
        }
    }

    fn try_anew(&mut self, now: Instant) {
        (self.since, self.requests, self.slow) = (now, 0, 0);
    }

    fn judge(&mut self, nanos: u64, now: Instant) -> Verdict {
        self.requests += 1;
        if nanos > self.target.nanos {
            self.slow += 1;
            // All must be fast enough: one is enough to know.
            if self.target.percentile >= 100.0 {
                return if self.depth == 1 {
                    Verdict::TooLong(self.target.nanos)
                } else {
                    self.shallower()
                };
            }
        }
        if now.nanos_since(self.since) < self.target.window_nanos {
            return Verdict::GoOn;
        }
        let fast = (self.requests - self.slow) as f64 * 100.0 / self.requests as f64;
        match fast >= self.target.percentile {
            true => self.deeper(now),
            // There is no depth below one: it is looked at again with the next request.
            false if self.depth == 1 => Verdict::GoOn,
            false => self.shallower(),
        }
    }

    fn shallower(&mut self) -> Verdict {
        self.bad = self.depth;
        if self.depth == self.good {
            self.good -= 1;
        }
        self.depth = ((self.depth + self.good) / 2).max(1);
        self.stable = 0;
        Verdict::Settle
    }

    fn deeper(&mut self, now: Instant) -> Verdict {
        let before = self.depth;
        self.good = before;
        if before + 1 == self.bad {
            self.stable += 1;
            if self.stable == STABLE {
                self.bad += 1;
                self.stable = 0;
            }
        }
        let bisects = self.bad != self.depth_max;
        let next = if bisects { (before + self.bad) / 2 } else { before.saturating_mul(2) };
        self.depth = next.min(self.depth_max);
        self.try_anew(now);
        if self.target.goes_on || self.depth != before {
            return Verdict::Deeper;
        }
        if self.is_last {
            return Verdict::Found;
        }
        (self.is_last, self.clears) = (true, true);
        Verdict::Settle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The depths tried with a disk whose requests take `each` times the depth, until the search is
    /// over or `tries` are done.
    fn depths(target: LatencyTarget, depth_max: u32, each: u64, tries: usize) -> Vec<u32> {
        let limits = LatencyLimits { target: Some(target), ..LatencyLimits::default() };
        let mut limits = Limits::new(&limits, depth_max);
        let mut tried = vec![1];
        let mut now = 0;
        limits.begin(Instant::from_nanos(now));
        for _ in 0..100_000 {
            now += 100;
            let depth = u64::from(*tried.last().unwrap());
            match limits.judge(0, each * depth, Instant::from_nanos(now)) {
                Verdict::GoOn => continue,
                Verdict::Found | Verdict::TooLong(_) => break,
                Verdict::Deeper | Verdict::Settle => {}
            }
            limits.begin(Instant::from_nanos(now));
            tried.push(limits.depth().unwrap());
            if tried.len() == tries {
                break;
            }
        }
        tried
    }

    const TARGET: LatencyTarget =
        LatencyTarget { nanos: 1000, window_nanos: 10_000, percentile: 99.0, goes_on: false };

    #[test]
    fn the_depth_doubles_and_is_then_halved_between() {
        // 90 ns a request: 11 in flight are fast enough, 12 are not.
        assert_eq!(depths(TARGET, 64, 90, 100), [1, 2, 4, 8, 16, 12, 10, 11, 11]);
        let all = LatencyTarget { percentile: 100.0, ..TARGET };
        assert_eq!(depths(all, 64, 90, 100), [1, 2, 4, 8, 16, 12, 10, 11, 11]);
        // The deepest is fast enough.
        assert_eq!(depths(TARGET, 16, 10, 100), [1, 2, 4, 8, 16, 16]);
        assert_eq!(depths(TARGET, 1, 10, 100), [1, 1]);
    }

    #[test]
    fn a_search_that_goes_on_tries_deeper_now_and_then() {
        let goes_on = LatencyTarget { goes_on: true, ..TARGET };
        let tried = depths(goes_on, 64, 90, 14);
        assert_eq!(tried[..8], [1, 2, 4, 8, 16, 12, 10, 11]);
        assert!(tried[8..].contains(&12), "{tried:?}");
    }

    #[test]
    fn one_request_that_is_too_slow_alone_ends_it() {
        let all = LatencyTarget { percentile: 100.0, ..TARGET };
        assert_eq!(depths(all, 64, 2000, 100), [1]);
        let max_nanos = [0, 500, 0];
        let mut limits = Limits::new(&LatencyLimits { max_nanos, target: None }, 4);
        assert_eq!(limits.depth(), None);
        let at = Instant::START;
        assert_eq!(limits.judge(0, 501, at), Verdict::GoOn);
        assert_eq!(limits.judge(1, 500, at), Verdict::GoOn);
        assert_eq!(limits.judge(1, 501, at), Verdict::TooLong(500));
    }
}
