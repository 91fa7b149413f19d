//! Worlds under faults, and the proof that a broken stack would be found out.

use flysch_models::faults::{Kind, Plan};
use flysch_sim::world::{Mistake, Totals, Violation, Wish, is_of_worlds, run};

fn wish(seed: u64) -> Wish {
    Wish { seed, requests: 2000, plan: None, mistake: None }
}

#[test]
fn two_hundred_seeds_lose_nothing_and_end_everything_once() {
    let mut totals = Totals::default();
    let mut failures = Vec::new();
    for seed in 1..=200 {
        match run(&wish(seed)) {
            Ok(one) => totals.add(&one),
            Err(violation) => failures.push(format!("seed {seed}: {violation}")),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    let never =
        Kind::ALL.into_iter().zip(totals.faults).find(|&(kind, n)| n == 0 && is_of_worlds(kind));
    assert_eq!(never, None, "a kind never happened: {totals:?}");
    println!("{totals:?}");
}

#[test]
fn equal_seeds_give_equal_worlds() {
    assert_eq!(run(&wish(7)).unwrap(), run(&wish(7)).unwrap());
}

#[test]
fn without_faults_nothing_fails() {
    for seed in 1..=20 {
        let totals = run(&Wish { plan: Some(Plan::none()), ..wish(seed) }).unwrap();
        assert_eq!(totals.failed, 0);
    }
}

#[test]
fn a_skipped_flush_is_found() {
    let plan: Plan = "power:e400".parse().unwrap();
    let found = (1..=20).any(|seed| {
        let mistake = Some(Mistake::SkippedFlush);
        let wish = Wish { plan: Some(plan.clone()), mistake, ..wish(seed) };
        matches!(run(&wish), Err(Violation::Data(_)))
    });
    assert!(found);
}

#[test]
fn a_lost_write_is_found() {
    let wish = Wish { plan: Some(Plan::none()), mistake: Some(Mistake::LostWrite), ..wish(1) };
    assert!(matches!(run(&wish), Err(Violation::Data(_))));
}

#[test]
fn a_completion_delivered_twice_is_found() {
    let mistake = Some(Mistake::DoubleCompletion);
    let wish = Wish { plan: Some(Plan::none()), mistake, ..wish(1) };
    assert!(matches!(run(&wish), Err(Violation::NotOwed(_))));
}
