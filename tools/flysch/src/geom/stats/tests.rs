use super::*;
use flysch_geom::class::disk::{DISK, Memory};
use flysch_geom::{Access, Waits};

#[test]
fn lanes_are_added_to_what_the_graph_knows() {
    let mut graph = Graph::new(&[&DISK], 1);
    let medium = || Box::new(Memory::new(1 << 20));
    let disk = DISK.insert(&mut graph, "d0", medium()).unwrap();
    let other = DISK.insert(&mut graph, "d1", medium()).unwrap();
    let consumer = graph.open(disk, Access::READ).unwrap();
    let beside = graph.open(other, Access::READ).unwrap();
    let usage = |writes, busy| Usage {
        provider: disk,
        consumer,
        statistics: Statistics {
            writes,
            written_bytes: writes * 512,
            busy,
            ..Statistics::default()
        },
        in_flight: Some(3),
        waits: Waits::default(),
    };
    let unmeasured = Usage { provider: other, consumer: beside, in_flight: None, ..usage(1, 0) };
    let (one, two) = ([usage(5, 400)], [usage(7, 900), unmeasured]);
    let now = Instant::START.after_nanos(5000);
    let all = snapshot_of_ways(&graph, now, &[&one, &two]);
    assert_eq!(all.at, 5000);
    let of = |name: &str, is_consumer: bool| {
        let mut all = all.counters.iter();
        all.find(|it| it.name == name && it.is_consumer == is_consumer).unwrap()
    };
    for counter in [of("d0", false), of("d0", true)] {
        assert_eq!(counter.writes, Kind { requests: 12, bytes: 12 * 512, time: None });
        assert_eq!((counter.queued, counter.busy), (Some(6), Some(900)), "the busier lane's");
    }
    let unmeasured = of("d1", false);
    assert_eq!((unmeasured.queued, unmeasured.busy, unmeasured.writes.requests), (None, None, 1));
    let idle = snapshot_of_ways(&graph, now, &[]);
    assert!(idle.counters.iter().all(|it| (it.queued, it.busy) == (Some(0), Some(0))));
}
