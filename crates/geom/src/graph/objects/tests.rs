//! The store with classes that do nothing.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::graph::DEV;

const SHAPE: Shape = Shape { media_size: 4096, sector_size: 512, stripe_size: 0, stripe_offset: 0 };

/// Adds a geom with one provider, both of this name.
fn disk(objects: &mut Objects, name: &str) -> (GeomId, ProviderId) {
    let geom = objects.add_geom(&DEV, String::from(name));
    let provider = objects.add_provider(geom, String::from(name), SHAPE).unwrap();
    (geom, provider)
}

/// Puts a geom on a provider.
fn on(objects: &mut Objects, geom: GeomId, under: ProviderId) -> Result<ConsumerId, GeomError> {
    let consumer = objects.add_consumer(geom);
    let attached = objects.attach(consumer, under);
    if attached.is_err() {
        objects.remove_consumer(consumer);
    }
    attached.map(|()| consumer)
}

#[test]
fn ranks_follow_what_is_below() {
    let mut objects = Objects::default();
    let [(a, on_a), (b, on_b), (c, on_c)] = ["a", "b", "c"].map(|name| disk(&mut objects, name));
    let ranks = |objects: &Objects| [a, b, c].map(|geom| objects[geom].rank);
    assert_eq!(ranks(&objects), [1, 1, 1]);
    on(&mut objects, c, on_b).unwrap();
    assert_eq!(ranks(&objects), [1, 1, 2]);
    let consumer = on(&mut objects, b, on_a).unwrap();
    assert_eq!(ranks(&objects), [1, 2, 3], "those above rise, too");
    assert_eq!((objects.under(c), objects.under(a)), (Some(on_b), None));
    for (below, above) in [(a, on_c), (b, on_c), (a, on_a)] {
        let error = on(&mut objects, below, above).unwrap_err();
        assert_eq!(error.kind, Kind::Loop);
        assert!(error.cause.ends_with("would be on top of itself"), "{error}");
    }
    assert_eq!(ranks(&objects), [1, 2, 3]);
    objects.remove_consumer(consumer);
    assert_eq!(ranks(&objects), [1, 1, 2]);
    assert_eq!(
        (objects.consumer(consumer).is_none(), &objects[on_a].consumers[..]),
        (true, &[][..])
    );
}

#[test]
fn no_more_than_the_limit_stand_on_each_other() {
    let mut objects = Objects::default();
    let all: Vec<_> = (0..=DEPTH_MAX).map(|n| disk(&mut objects, &format!("d{n}"))).collect();
    // From the top down, so that what is above counts.
    for pair in all[1..].windows(2).rev() {
        on(&mut objects, pair[1].0, pair[0].1).unwrap();
    }
    let top = all[all.len() - 1];
    assert_eq!(objects[top.0].rank, DEPTH_MAX);
    let error = on(&mut objects, all[1].0, all[0].1).unwrap_err();
    assert_eq!((error.kind, objects[top.0].rank), (Kind::Loop, DEPTH_MAX));
}

#[test]
fn a_name_is_free_again_when_its_provider_is_gone() {
    let mut objects = Objects::default();
    let (geom, old) = disk(&mut objects, "d");
    let error = objects.add_provider(geom, String::from("d"), SHAPE).unwrap_err();
    assert_eq!(error.kind, Kind::Exists);
    assert_eq!(objects.provider_named("/dev/d"), Ok(old));
    objects[old].error = Some(flysch_api::block::BlockError::Gone);
    let error = objects.provider_named("d").unwrap_err();
    assert_eq!(error.kind, Kind::NotFound);
    let new = objects.add_provider(geom, String::from("d"), SHAPE).unwrap();
    assert_eq!(objects.provider_named("d"), Ok(new));
    assert!(objects.remove_idle_providers() && !objects.remove_idle_providers());
    assert!(objects.provider(old).is_none() && objects.provider(new).is_some());
}

#[test]
fn who_withers_is_not_listed_and_goes_with_its_last_provider() {
    let mut objects = Objects::default();
    let (geom, provider) = disk(&mut objects, "d");
    assert_eq!(objects.geom_named("DEV", "d"), Ok(geom));
    assert_eq!(objects.geom_named("MIRROR", "d").unwrap_err().kind, Kind::NotFound);
    objects[geom].withering = true;
    assert_eq!((objects.geoms_of("DEV").count(), objects.geoms().count()), (0, 1));
    assert_eq!(objects.withered(), []);
    objects.remove_provider(provider);
    assert_eq!(objects.withered(), [geom]);
    objects.remove_geom(geom);
    assert!(objects.geom(geom).is_none());
}
