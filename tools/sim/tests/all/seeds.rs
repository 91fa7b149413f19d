//! Worlds under faults, and the proof that a broken stack would be found out.

use flysch_models::faults::{Kind, Plan};
use flysch_sim::witness::PortMistake;
use flysch_sim::world::{Mistake, Totals, Violation, Wish, run};

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
    let kinds = Kind::ALL.into_iter().zip(totals.faults);
    let never = kinds.filter(|(kind, _)| Kind::UFS.contains(kind)).find(|&(_, n)| n == 0);
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

/// What is found in one of the first worlds with this mistake of a driver.
fn found(mistake: Mistake, plan: &str) -> Option<Violation> {
    let plan: Plan = plan.parse().unwrap();
    let wish = |seed| Wish { plan: Some(plan.clone()), mistake: Some(mistake), ..wish(seed) };
    (1..=10).find_map(|seed| run(&wish(seed)).err())
}

#[test]
fn a_driver_that_ends_a_command_twice_is_found() {
    let found = found(Mistake::Port(PortMistake::OutcomeTwice), "");
    assert!(matches!(found, Some(Violation::Port(_))), "{found:?}");
}

#[test]
fn a_driver_that_forgets_a_command_is_found() {
    let found = found(Mistake::Port(PortMistake::OutcomeLost), "");
    assert!(matches!(found, Some(Violation::NeverEnded(_))), "{found:?}");
}

#[test]
fn resets_without_a_cause_are_found_though_every_request_ends_well() {
    let found = found(Mistake::Port(PortMistake::ResetWithoutCause), "transient:0.001");
    assert!(matches!(found, Some(Violation::MoreThanFaults { .. })), "{found:?}");
}

#[test]
fn a_short_transfer_told_as_done_is_found() {
    let found = found(Mistake::Port(PortMistake::ShortAsGood), "short:0.01");
    assert!(matches!(found, Some(Violation::Data(_))), "{found:?}");
}

#[test]
fn a_command_to_another_unit_is_found() {
    let found = found(Mistake::Port(PortMistake::OtherUnit), "");
    assert!(matches!(found, Some(Violation::Data(_) | Violation::FailedWithoutFault { .. })));
}

#[test]
fn swapped_segments_are_found() {
    let found = found(Mistake::SwappedSegments, "");
    assert!(matches!(found, Some(Violation::Data(_))), "{found:?}");
}
