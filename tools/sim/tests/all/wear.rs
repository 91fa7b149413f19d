//! A small chip worn out, in seconds.

use flysch_api::flash::FlashError;
use flysch_sim::wear::{self, Plan};
use flysch_ubi::ReadOnly;

#[test]
fn a_small_chip_wears_evenly_and_ends_read_only() {
    let plan = Plan {
        blocks: 200,
        endurance: 150,
        threshold: 16,
        factory_bad: 1,
        changes_per_life: 5000,
        changes_max: 1_000_000,
        ..Plan::default()
    };
    let report = wear::run(&plan).unwrap();
    assert!(
        matches!(report.end, Some(FlashError::ReadOnly(ReadOnly::PoolEmpty { .. }))),
        "{report:?}"
    );
    assert!(report.widest <= plan.threshold + 8, "{report:?}");
    assert_eq!(report.bad, 4, "20 of 1024, one of them from the factory");
    assert!(report.power_losses > 3 && report.statistics.moves > 100, "{report:?}");
}

#[test]
fn without_levelling_the_wear_is_uneven() {
    let plan = Plan { blocks: 200, threshold: 65536, changes_max: 50_000, ..Plan::default() };
    let report = wear::run(&plan).unwrap();
    assert!(report.widest > 200, "{report:?}");
}
