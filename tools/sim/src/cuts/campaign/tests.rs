//! The list of worlds.

use super::*;

#[test]
fn every_world_has_one_number() {
    let space = Space::new();
    let mut names: Vec<String> =
        (0..space.len()).map(|number| space.world(number).to_string()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len() as u64, space.len());
    // Any section of the list is a sample of the whole: each prefix has about its share of it.
    let of = |prefix: &str, worlds: &[String]| {
        worlds.iter().filter(|world| world.starts_with(prefix)).count()
    };
    let first: Vec<World> = (0..2000).map(|number| space.world(number)).collect();
    let first_names: Vec<String> = first.iter().map(World::to_string).collect();
    for workload in &WORKLOADS {
        let prefix = format!("{}/", workload.name);
        let (count, all) = (of(&prefix, &first_names), of(&prefix, &names));
        let share = all * first.len() / names.len();
        assert!(all > 0 && count <= 2 * share + 10, "{prefix} {count} of {share}");
        assert!(2 * count + 10 >= share, "{prefix} {count} of {share}");
    }
    for part in Part::ALL {
        let count = first.iter().filter(|world| world.setting.part == *part).count();
        assert!(count > 10, "{}: {count} of 2000", part.name());
    }
}

#[test]
fn coordinates_are_chosen_by_name_and_start() {
    let only: Only = "chip=die*,nor".parse().unwrap();
    let world = |chip| format!("ubifs/{chip}/bad0/new/settled/tool/plain/1");
    assert!(only.has(&world("die4-4k")) && only.has(&world("nor")));
    assert!(!only.has(&world("nor-parallel")) && !only.has(&world("bch4")));
    assert!("colour=red".parse::<Only>().is_err() && "chip".parse::<Only>().is_err());
}
