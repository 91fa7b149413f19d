//! A half is rebuilt while a way writes: piece by piece, whenever the way is quiet.

use super::*;
use crate::Class;

/// A mirror of three with one to be rebuilt, or an array of two.
fn degraded(kind: &str, how: (u32, u64)) -> (Bench, crate::GeomId) {
    if kind == "mirror" {
        let mut bench = Bench::new(3, how.0, how.1);
        let under = bench.under();
        a_mirror(&mut bench.graph, "gm", &under[..2], Balance::Load);
        let geom = bench.graph.geom("MIRROR", "gm").unwrap();
        mirror::insert(&mut bench.graph, geom, &under[2..], (0, false, false)).unwrap();
        return (bench, geom);
    }
    let mut bench = bench_of(kind, 2, how);
    let under = bench.under();
    a_raid(&mut bench.graph, kind, &under);
    let geom = bench.graph.objects().geoms_of("RAID").next().unwrap().0;
    raid::rebuild(&mut bench.graph, geom, MIB, &mut |_, _| {}).unwrap();
    raid::remove(&mut bench.graph, geom, &["d1"]).unwrap();
    bench.disk(1).bytes[..MIB as usize].fill(0xEE);
    raid::insert(&mut bench.graph, geom, &under[1..], true).unwrap();
    (bench, geom)
}

/// Runs one seed; returns whether in the end all halves are equal and hold what was written, and no
/// read came from the one being rebuilt.
fn rebuild(seed: u64, kind: &str, is_paused: bool) -> bool {
    let mut random = Random(XorShift64::new(seed));
    (0..4).for_each(|_| _ = random.below(2));
    let (mut bench, geom) = degraded(kind, (1 + random.below(6) as u32, seed));
    let is_mirror = kind == "mirror";
    let (open, mut way) = bench.way(if is_mirror { "mirror/gm" } else { "raid/r0" });
    let size = way.geometry().bytes();
    let (mut token, mut given, mut is_done) = (0_u64, 0, false);
    let mut wanted = vec![0; size as usize];
    let mut reads = BTreeMap::new();
    let (mut is_right, mut ended) = (true, vec![]);
    while !is_done || given < token {
        if !is_done {
            let at = random.below(size / 512) * 512;
            let mut read = request(Operation::Read, at, 512, token);
            read.data = Data::One(bench.memory.slice(512, 512));
            if token == given && random.below(3) == 0 && way.submit(&read, NOW).is_ok() {
                reads.insert(token, wanted[at as usize]);
                token += 1;
            }
            // One at a time: the way has it in flight when a piece is copied.
            let mut one = request(Operation::Write, at, 512, token);
            one.data = Data::One(bench.memory.slice(0, 512));
            if token == given && random.below(3) > 0 {
                bench.memory.fill(0, 512, token as u8 | 1);
                if way.submit(&one, NOW).is_ok() {
                    wanted[at as usize..][..512].fill(token as u8 | 1);
                    token += 1;
                }
            }
        }
        way.ring(NOW);
        ended.extend(way.poll(NOW));
        if !is_done && random.below(3) == 0 {
            if is_paused {
                way.pause();
                while !way.is_quiet() {
                    way.ring(NOW);
                    ended.extend(way.poll(NOW));
                }
            }
            let length = 512 * (1 + random.below(64));
            let act = if is_mirror { mirror::synchronize_piece } else { raid::rebuild_piece };
            let done = act(&mut bench.graph, geom, length).unwrap();
            is_done = done.is_none_or(|(done, all)| done == all);
            if is_paused {
                let plan = Plan::new(&mut bench.graph, open).unwrap();
                let lanes = bench.lanes();
                way.change(plan, lanes).unwrap();
            }
        }
        for completion in ended.drain(..) {
            given += 1;
            let mut bytes = [0; 512];
            bench.memory.read(512, &mut bytes);
            let read = reads.remove(&completion.token);
            is_right &= read.is_none_or(|byte| bytes == [byte; 512]);
        }
    }
    let halves: Vec<Vec<u8>> = (0..if is_mirror { 3 } else { 2 })
        .map(|number| bench.disk(number).bytes[..size as usize].to_vec())
        .collect();
    is_right && halves.iter().all(|half| *half == wanted)
}

#[test]
fn a_half_is_rebuilt_while_a_way_writes() {
    for kind in ["mirror", "RAID1"] {
        assert!((1..=40).all(|seed| rebuild(seed, kind, true)), "{kind}");
    }
    // Without the pause it would go wrong, and be noticed.
    assert!((1..=400).any(|seed| !rebuild(seed, "mirror", false)));
}

/// What was rebuilt before the cut is not copied again: ways write it, too.
#[test]
fn an_array_that_is_rebuilt_by_half_is_written_whole() {
    let mut bench = bench_of("RAID1", 2, (4, 5));
    let under = bench.under();
    let options = raid::RaidOptions { name: "v", level: "RAID1", size: Some(2 * MIB), strip: 4096 };
    raid::label(&mut bench.graph, "Intel", &under, (&options, false)).unwrap();
    bench.graph.settle();
    let geom = bench.graph.objects().geoms_of("RAID").next().unwrap().0;
    let rebuild = |bench: &mut Bench| raid::rebuild(&mut bench.graph, geom, MIB, &mut |_, _| {});
    rebuild(&mut bench).unwrap();
    // The second disk is removed and inserted again, and cannot be written in its second MiB.
    raid::remove(&mut bench.graph, geom, &["d1"]).unwrap();
    raid::insert(&mut bench.graph, geom, &under[1..], true).unwrap();
    bench.disk(1).bad.push((Operation::Write, MIB + 4096));
    rebuild(&mut bench).unwrap_err();
    bench.disk(1).bad.clear();
    let raid = bench.graph.provider("raid/r0").unwrap();
    let state = Class::config(&raid::RAID, &bench.graph, crate::Object::Provider(raid));
    assert!(state.contains(&("State", "DEGRADED".into())), "{state:?}");
    let (open, mut way) = bench.way("raid/r0");
    for (token, at) in [0, MIB - 4096, MIB, 2 * MIB - 4096].into_iter().enumerate() {
        bench.memory.fill(0, 4096, token as u8 + 1);
        way.submit(&request(Operation::Write, at, 4096, token as u64), NOW).unwrap();
        assert_eq!(wait(&mut way, 1)[0].result, Ok(()));
        let reads = bench.disk(1).counts.get("read").copied();
        for token in 0..8 {
            way.submit(&request(Operation::Read, at, 4096, token), NOW).unwrap();
            wait(&mut way, 1);
        }
        assert_eq!(bench.disk(1).counts.get("read").copied(), reads, "it is not read");
    }
    drop(way);
    bench.graph.shut(open);
    assert_eq!(rebuild(&mut bench).unwrap(), 1);
    for (number, at) in [0, MIB - 4096, MIB, 2 * MIB - 4096].into_iter().enumerate() {
        for disk in 0..2 {
            let there = bench.disk(disk).bytes[at as usize..][..4096].to_vec();
            assert_eq!(there, [number as u8 + 1; 4096], "disk {disk}, byte {at}");
        }
    }
}

/// A paused way accepts no request of any kind; a changed one follows the new plan.
#[test]
fn a_half_is_read_when_it_is_rebuilt_and_the_way_has_changed() {
    let mut bench = Bench::new(3, 4, 7);
    let under = bench.under();
    a_mirror(&mut bench.graph, "gm", &under[..2], Balance::RoundRobin);
    let geom = bench.graph.geom("MIRROR", "gm").unwrap();
    mirror::insert(&mut bench.graph, geom, &under[2..], (0, false, false)).unwrap();
    let (open, mut way) = bench.way("mirror/gm");
    let size = way.geometry().bytes();
    let read = |way: &mut Way<Queue>, bench: &Bench| {
        bench.disk(2).counts.clear();
        for token in 0..9 {
            way.submit(&request(Operation::Read, size - 512, 512, token), NOW).unwrap();
            assert_eq!(wait(way, 1)[0].result, Ok(()));
        }
        bench.disk(2).counts.get("read").copied()
    };
    assert_eq!(read(&mut way, &bench), None, "before");
    way.pause();
    let length = |operation| if operation == Operation::Flush { 0 } else { 512 };
    let all = [Operation::Read, Operation::Write, Operation::Delete, Operation::Flush];
    for operation in all {
        let refused = way.submit(&request(operation, 0, length(operation), 1), NOW);
        assert_eq!(refused, Err(Refused::Full), "{operation:?}");
    }
    assert!(way.is_quiet());
    let done = mirror::synchronize_piece(&mut bench.graph, geom, size).unwrap();
    assert_eq!(done, Some((size, size)));
    let plan = Plan::new(&mut bench.graph, open).unwrap();
    let lanes = bench.lanes();
    way.change(plan, lanes).unwrap();
    assert_eq!(read(&mut way, &bench), Some(3), "a third of the reads");
}
