//! The runner's own cost per request, on a device that does nothing.
use flysch_bench::clock::RealClock;
use flysch_bench::null::Null;
use flysch_bench::runner::{Assignment, RunOptions, run};
use flysch_bench::workload::{Distribution, Order, Workload};

fn main() {
    let order = Order::Random { each_once: true, distribution: Distribution::Uniform, run: 1 };
    let count: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(20_000_000);
    let workload = Workload { order, depth: 32, requests_max: Some(count), ..Workload::default() };
    let mut lanes = [Null::new(1 << 30, 32, 32 * 4096)];
    let clock = RealClock::new();
    let assignments = [Assignment::new(workload, 0)];
    match run(&mut lanes, &clock, &assignments, RunOptions::default()) {
        Ok(outcome) => {
            let statistics = &outcome.workers[0].statistics;
            let nanos = statistics.runtime_nanos as f64 / statistics.requests() as f64;
            println!("{} requests, {nanos:.1} ns each", statistics.requests());
        }
        Err(error) => eprintln!("null: {error}"),
    }
}
