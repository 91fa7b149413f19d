//! The runner's own cost per request against that of fio's null engine, in one run.
//!
//! Timing is no unit test: run it alone, optimised, with
//! `cargo test --profile dist -p flysch-bench --test peers against_fio:: -- --ignored --nocapture`.

use std::process::Command;

use flysch_bench::clock::RealClock;
use flysch_bench::null::Null;
use flysch_bench::runner::{Assignment, RunOptions, run};
use flysch_bench::workload::{Distribution, Order, Workload};

const REQUESTS: u64 = 4_000_000;

fn ours(trace_records: usize) -> f64 {
    let order = Order::Random { each_once: true, distribution: Distribution::Uniform, run: 1 };
    let requests_max = Some(REQUESTS);
    let workload = Workload { order, depth: 32, requests_max, ..Workload::default() };
    let mut lanes = [Null::new(1 << 30, 32, 32 * 4096)];
    let assignments = [Assignment::new(workload, 0)];
    let options = RunOptions { trace_records, ..RunOptions::default() };
    let outcome = run(&mut lanes, &RealClock::new(), &assignments, options).unwrap();
    outcome.workers[0].statistics.runtime_nanos as f64 / REQUESTS as f64
}

fn fios() -> Option<f64> {
    let output = Command::new("fio")
        .args(["--name=null", "--ioengine=null", "--rw=randread", "--bs=4k", "--iodepth=32"])
        .args(["--size=1g", "--loops=16", "--output-format=json"])
        .arg(format!("--number_ios={REQUESTS}"))
        .output()
        .ok()?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let read = &json["jobs"][0]["read"];
    Some(read["runtime"].as_f64()? * 1e6 / read["total_ios"].as_f64()?)
}

#[test]
#[ignore = "a measurement, not a unit test"]
fn a_third_of_fios_time_per_request_at_most() {
    let best = |measure: &dyn Fn() -> f64| (0..5).map(|_| measure()).fold(f64::MAX, f64::min);
    let (plain, traced) = (best(&|| ours(0)), best(&|| ours(1 << 16)));
    let fio = best(&|| fios().expect("fio runs"));
    println!("flysch {plain:.1} ns, with trace {traced:.1} ns, fio {fio:.1} ns per request");
    assert!(plain <= fio / 3.0, "{plain} ns against {fio} ns");
}
