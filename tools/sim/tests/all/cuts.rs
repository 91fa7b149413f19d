//! Power cuts in workloads on raw flash: some of them, and the proof that mistakes are found. All
//! of them are tried by `flysch-sim cuts`.

use flysch_models::flash::Tear;
use flysch_sim::cuts::probe::Mistake;
use flysch_sim::cuts::workloads::{WORKLOADS, Workload};
use flysch_sim::cuts::{Plan, Report};

/// Cuts per workload, about.
const CUTS: u64 = 30;

fn workload(name: &str) -> Workload {
    Workload::named(name).unwrap_or_else(|| panic!("no workload {name}"))
}

fn run(name: &str, plan: &Plan) -> Report {
    (workload(name).run)(plan).unwrap_or_else(|problem| panic!("{name}: {problem}"))
}

fn assert_good(name: &str, report: &Report) {
    let failures = report.failures.iter().map(|f| format!("--cut {}: {}", f.cuts, f.problem));
    assert_eq!(report.failed, 0, "{name}: {:#?}", failures.collect::<Vec<_>>());
}

#[test]
fn every_workload_survives_cuts_all_along_it() {
    let mut tried = 0;
    for one in WORKLOADS {
        // No cut, to learn how long it is.
        let none = Plan { first: u64::MAX, ..Plan::default() };
        let operations = run(one.name, &none).operations;
        for (first, tear) in (0..).zip([Tear::Early, Tear::Half, Tear::Late, Tear::After]) {
            let stride = (operations * 4).div_ceil(CUTS).max(1);
            let plan = Plan { tears: vec![tear], stride, first, ..Plan::default() };
            let report = run(one.name, &plan);
            assert_good(one.name, &report);
            tried += report.tried();
        }
    }
    assert!(tried > 500, "{tried} cuts tried");
    println!("{tried} cuts tried in {} workloads", WORKLOADS.len());
}

#[test]
fn cuts_within_the_recovery_are_survived() {
    let mut deep = 0;
    for name in ["ubi-change", "ubi-update", "ubifs", "jffs2"] {
        let plan = Plan { depth: 2, tears: vec![Tear::Half], stride: 23, ..Plan::default() };
        let report = run(name, &plan);
        assert_good(name, &report);
        deep += report.cuts.get(1).copied().unwrap_or(0);
    }
    assert!(deep > 20, "{deep} cuts at depth 2");
}

#[test]
fn planted_mistakes_are_found_and_replayed() {
    let mistakes = [
        ("ubi-change", Mistake::Reordered),
        ("ubi-wear", Mistake::Reordered),
        ("ubi-write", Mistake::SkippedSync),
        ("ubi-change", Mistake::SkippedErase),
        ("ubifs", Mistake::Reordered),
        ("ubifs", Mistake::SkippedSync),
        ("jffs2", Mistake::SkippedSync),
    ];
    for (name, mistake) in mistakes {
        let plan = Plan { tears: vec![Tear::Half], mistake: Some(mistake), ..Plan::default() };
        let report = run(name, &plan);
        let failure = report.failures.first();
        let failure = failure.unwrap_or_else(|| panic!("{name}: {mistake:?} was not found"));
        if failure.cuts.0.is_empty() {
            continue;
        }
        let again = Plan { only: Some(failure.cuts.clone()), ..plan };
        let report = run(name, &again);
        assert_eq!(report.failures[0].problem, failure.problem, "{name}: not replayed");
    }
}

#[test]
fn equal_plans_give_equal_reports() {
    let plan = Plan { stride: 7, ..Plan::default() };
    let report = || format!("{:?}", run("ubi-volumes", &plan));
    assert_eq!(report(), report());
}
