//! The runner's loop allocates nothing: not per request, not per round.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use flysch_bench::clock::RealClock;
use flysch_bench::null::Null;
use flysch_bench::runner::{Assignment, RunOptions, run};
use flysch_bench::verify::Method;
use flysch_bench::workload::{
    BlockSize, Direction, Distribution, Fill, Mix, Order, Verify, Workload,
};

/// Counts calls, then asks the system's allocator.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocator calls of a run of `requests` requests.
fn calls(workload: &Workload, requests: u64) -> u64 {
    let mut lanes = [Null::new(1 << 30, 64, 64 * 65_536)];
    let clock = RealClock::new();
    let workload = Workload { requests_max: Some(requests), ..workload.clone() };
    let assignments = vec![Assignment::new(workload, 0); 2];
    let before = CALLS.load(Ordering::Relaxed);
    let options = RunOptions { trace_records: 1000, ..RunOptions::default() };
    let outcome = run(&mut lanes, &clock, &assignments, options).unwrap();
    assert_eq!(outcome.workers[0].statistics.requests(), requests);
    CALLS.load(Ordering::Relaxed) - before
}

#[test]
fn a_hundred_times_the_requests_make_not_one_allocation_more() {
    let random = Order::Random { each_once: true, distribution: Distribution::Uniform, run: 1 };
    let mix = Mix::ReadWrite { read_percent: 60 };
    const RANGE: BlockSize = BlockSize::Range { min: 4096, max: 65_536 };
    let block_size = [RANGE; 3];
    let plain = Workload { order: random, depth: 16, ..Workload::default() };
    let mixed = Workload { mix, block_size, fill: Fill::Refill, flush_every: 7, ..plain.clone() };
    let verify =
        Verify { method: Method::Crc32c, fatal: true, read_back: false, ..Verify::default() };
    let verify = Some(verify);
    let writes = Workload { mix: Mix::Only(Direction::Write), verify, ..plain.clone() };
    for workload in [plain, mixed, writes] {
        let few = calls(&workload, 200);
        assert_eq!(calls(&workload, 20_000), few, "{}", workload.pattern_name());
    }
}
