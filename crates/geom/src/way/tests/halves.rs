//! What happens to a half of a mirror that fails requests which the other half completes.

use super::*;

/// The same for a write that is part of another one: of a stripe of mirrors, and of RAID10.
#[test]
fn a_part_that_one_half_missed_is_told_when_the_other_says_so() {
    for layout in ["part on stripe of mirrors", "RAID10"] {
        let (_, count, top) = LAYOUTS.into_iter().find(|it| it.0 == layout).unwrap();
        let mut bench = bench_of(layout, count, (8, 3));
        build(&mut bench, layout);
        let (open, mut way) = bench.way(top);
        // The whole disk, wherever the stripes are.
        bench.disk(1).bad.extend((0..256).map(|sector| (Operation::Write, sector * 512)));
        way.submit(&request(Operation::Write, 4096, 16384, 5), NOW).unwrap();
        way.ring(NOW);
        for _ in 0..100 {
            assert_eq!(way.poll(NOW), None, "{layout}: not before the graph knows");
        }
        assert_eq!(bench.heed(open, &mut way), []);
        assert_eq!(wait(&mut way, 1)[0].token, 5, "{layout}");
    }
}

/// What happened to components.
fn lost(way: &mut Way<Queue>) -> Vec<BlockError> {
    let all = core::iter::from_fn(|| way.incident());
    let lost = |it| if let Incident::Lost { error, .. } = it { Some(error) } else { None };
    all.filter_map(lost).collect()
}

#[test]
fn who_cannot_read_and_is_not_mended_drops_out() {
    // `Gone` is recorded at once, other errors when the other half's data cannot be written.
    for error in [BlockError::Gone, BAD] {
        let (bench, _, mut way) = mirrored(Balance::None);
        bench.disk(0).is_gone = error == BlockError::Gone;
        bench.disk(0).bad.extend([(Operation::Read, 0), (Operation::Write, 0)]);
        way.submit(&request(Operation::Read, 0, 512, 1), NOW).unwrap();
        assert_eq!(wait(&mut way, 1)[0].result, Ok(()));
        assert_eq!(lost(&mut way), [error]);
        // Later requests do not go to it.
        bench.disk(0).is_gone = false;
        bench.disk(0).counts.clear();
        way.submit(&request(Operation::Read, 4096, 512, 2), NOW).unwrap();
        assert_eq!(wait(&mut way, 1)[0].result, Ok(()));
        assert_eq!(bench.disk(0).counts.get("read"), None, "{error}");
    }
}

#[test]
fn who_only_reads_mends_nothing() {
    let (mut bench, open, _) = mirrored(Balance::None);
    bench.graph.shut(open);
    let mirror = bench.graph.provider("mirror/gm").unwrap();
    let open = bench.graph.open(mirror, Access::READ).unwrap();
    let plan = Plan::new(&mut bench.graph, open).unwrap();
    let mut way = Way::new(plan, bench.lanes()).unwrap();
    bench.disk(0).bad.push((Operation::Read, 0));
    bench.disk(0).counts.clear();
    way.submit(&request(Operation::Read, 0, 512, 1), NOW).unwrap();
    assert_eq!(wait(&mut way, 1)[0].result, Ok(()));
    assert_eq!((bench.disk(0).counts.get("write"), way.incident()), (None, None));
}

/// A disk that failed in one volume may have failed in any: none of its parts is current any more,
/// except those whose loss would leave nothing.
#[test]
fn a_disk_that_failed_is_current_in_no_volume_with_another_copy() {
    let mut bench = Bench::over((0..2).map(|_| (65 * MIB, "SN")), (4, 11));
    let under = bench.under();
    let options = |name, level| raid::RaidOptions { name, level, size: Some(MIB), strip: 4096 };
    raid::label(&mut bench.graph, "DDF", &under, (&options("a", "RAID1"), false)).unwrap();
    let geom = bench.graph.objects().geoms_of("RAID").next().unwrap().0;
    raid::add(&mut bench.graph, geom, &options("b", "RAID0")).unwrap();
    raid::add(&mut bench.graph, geom, &options("c", "RAID1")).unwrap();
    raid::rebuild(&mut bench.graph, geom, MIB, &mut |_, _| {}).unwrap();
    bench.graph.settle();
    let (open, mut way) = bench.way("raid/r2");
    bench.disk(1).bad.extend((0..65 * 2048).map(|sector| (Operation::Write, sector * 512)));
    way.submit(&request(Operation::Write, 0, 512, 1), NOW).unwrap();
    way.ring(NOW);
    while way.poll(NOW).is_none() && way.incidents.is_empty() {}
    bench.heed(open, &mut way);
    let state = |name: &str| {
        let provider = bench.graph.provider(name).unwrap();
        let config =
            crate::Class::config(&raid::RAID, &bench.graph, crate::Object::Provider(provider));
        config.into_iter().find(|(key, _)| *key == "State").unwrap().1
    };
    assert_eq!(["raid/r0", "raid/r2"].map(state), ["DEGRADED", "DEGRADED"]);
}

/// Whatever happens to a write on its way, and whenever it finds room, all of it is forced.
#[test]
fn forced_writes_are_forced_on_every_disk() {
    for (layout, count, top) in LAYOUTS {
        for depth in [1, 8] {
            let mut bench = bench_of(layout, count, (depth, 5));
            build(&mut bench, layout);
            let (_, mut way) = bench.way(top);
            (0..count).for_each(|disk| bench.disk(disk).counts.clear());
            let (mut token, mut ended) = (0, 0);
            while ended < 40 {
                let length = if token % 2 == 0 { 512 } else { 16384 };
                let mut write = request(Operation::Write, token % 8 * 16384, length, token);
                write.force_unit_access = true;
                if token < 40 && way.submit(&write, NOW).is_ok() {
                    token += 1;
                    continue;
                }
                way.ring(NOW);
                ended += way.poll(NOW).iter().count();
            }
            let sum = |name| -> u32 {
                (0..count).filter_map(|disk| bench.disk(disk).counts.get(name).copied()).sum()
            };
            assert!(sum("write") >= 40, "{layout}");
            assert_eq!(sum("forced"), sum("write"), "{layout}, depth {depth}");
        }
    }
}
