use super::*;
use std::format;

#[test]
fn a_plan_is_read_from_text() {
    let plan: Plan = "timeout:0.001, uic:n100,late:e7,medium:lba8-9".parse().unwrap();
    assert_eq!(plan.trigger(Kind::Timeout), Trigger::Probability(0.001));
    assert_eq!(plan.trigger(Kind::Uic), Trigger::Nth(100));
    assert_eq!(plan.trigger(Kind::Late), Trigger::Every(7));
    assert_eq!(plan.bad_blocks.as_slice(), std::slice::from_ref(&(8..10)));
    assert!(!plan.is_empty() && "".parse::<Plan>().unwrap().is_empty());
}

#[test]
fn a_wrong_plan_says_which_part() {
    for (text, part) in [
        ("timeout:2", "timeout:2"),
        ("uic:n5,frob:1", "frob:1"),
        ("late", "late"),
        ("late:n0", "late:n0"),
        ("late:lba5", "late:lba5"),
        ("medium:lba9-8", "medium:lba9-8"),
    ] {
        let message = format!("{}", text.parse::<Plan>().unwrap_err());
        assert!(message.contains(part) && message.contains("lost-interrupt"), "{message}");
    }
}

#[test]
fn equal_seeds_take_equal_decisions_whatever_else_is_on() {
    let run = |text: &str| {
        let mut injector = Injector::new(text.parse().unwrap(), 42);
        let hits: Vec<bool> = (0..1000)
            .map(|n| {
                injector.fires(Kind::Uic, Instant::START, n);
                injector.fires(Kind::Late, Instant::START, n)
            })
            .collect();
        (hits, injector.count(Kind::Late))
    };
    let (a, count) = run("late:0.1");
    assert_eq!(run("late:0.1,uic:0.5"), (a, count));
    assert!((60..140).contains(&count), "{count} of 1000 at ten percent");
}

#[test]
fn the_nth_opportunity_hits_once_and_the_log_is_bounded() {
    let plan = "late:n3,uic:1".parse().unwrap();
    let mut injector = Injector::new(plan, 0);
    for n in 1..=10_000 {
        assert_eq!(injector.fires(Kind::Late, Instant::START, 0), n == 3);
        injector.fires(Kind::Uic, Instant::START, 0);
    }
    assert_eq!((injector.count(Kind::Late), injector.total()), (1, 10_001));
    assert_eq!(injector.log().count(), LOG_MAX);
}

#[test]
fn bad_blocks_are_found_from_either_side() {
    let mut injector = Injector::new("medium:lba100-103".parse().unwrap(), 0);
    assert_eq!(injector.bad_block(90..100, Instant::START, 0), None);
    assert_eq!(injector.bad_block(90..101, Instant::START, 0), Some(100));
    assert_eq!(injector.bad_block(102..200, Instant::START, 0), Some(102));
    assert_eq!(injector.bad_block(104..200, Instant::START, 0), None);
}
