//! What a way reports: requests, bytes, busy time, and waits.

use super::*;
use crate::{Usage, Waits};

fn at(nanos: u64) -> Instant {
    NOW.after_nanos(nanos)
}

/// Polls at one instant until nothing more comes.
fn drain(way: &mut Way<Queue>, nanos: u64) -> usize {
    let count = (0..200).filter(|_| way.poll(at(nanos)).is_some()).count();
    way.ring(at(nanos));
    count
}

fn of(bench: &Bench, all: &[Usage], name: &str) -> Usage {
    let provider = bench.graph.provider(name).unwrap();
    *all.iter().find(|usage| usage.provider == provider).unwrap()
}

#[test]
fn what_went_a_way_is_told_of_every_provider_and_consumer() {
    for layout in ["part on label", "stripe", "mirror load", "paths"] {
        let (_, count, top) = LAYOUTS.into_iter().find(|(name, ..)| *name == layout).unwrap();
        let mut bench = bench_of(layout, count, (8, 5));
        build(&mut bench, layout);
        let (open, mut way) = bench.way(top);
        // In flight from 100 to 400, and from 1000 on.
        for token in 0..3 {
            way.submit(&request(Operation::Read, token * 4096, 4096, token), at(90)).unwrap();
        }
        way.submit(&request(Operation::Write, 32768, 512, 3), at(90)).unwrap();
        way.ring(at(100));
        assert_eq!(drain(&mut way, 400), 4, "{layout}");
        way.submit(&request(Operation::Flush, 0, 0, 4), at(990)).unwrap();
        way.ring(at(1000));
        let all: Vec<Usage> = way.plan(at(1500)).usage().collect();
        let whole = of(&bench, &all, top);
        assert_eq!((whole.consumer, whole.in_flight), (open, Some(1)), "{layout}");
        let told = whole.statistics;
        assert_eq!((told.reads, told.read_bytes), (3, 12288), "{layout}");
        assert_eq!((told.writes, told.written_bytes, told.flushes), (1, 512, 1), "{layout}");
        assert_eq!((told.busy, told.failures), (800, 0), "{layout}");
        let disks: Vec<Usage> = (0..count).map(|n| of(&bench, &all, &format!("d{n}"))).collect();
        let reads: u64 = disks.iter().map(|disk| disk.statistics.reads).sum();
        assert_eq!(reads, 3, "{layout}");
        assert!(disks.iter().all(|disk| disk.statistics.busy <= 800), "{layout}");
        assert!(disks.iter().any(|disk| disk.statistics.busy == 800), "{layout}");
        assert_eq!(drain(&mut way, 2000), 1);
        // The graph has the same, once the way is accounted for.
        let (plan, _) = way.into_parts();
        plan.account(&mut bench.graph);
        let consumer = bench.graph[open].statistics;
        assert_eq!((consumer.reads, consumer.flushes, consumer.busy), (3, 1, 1300));
        let provider = bench.graph.provider(top).unwrap();
        assert!(bench.graph[provider].statistics.reads >= 3, "those of tasting, too");
    }
}

/// The stamps of a request do not show that it was retried: its class does.
#[test]
fn what_requests_wait_for_is_told_of_the_class() {
    let mut bench = Bench::paths(2, (1, 3));
    let under = bench.under();
    multipath::label(&mut bench.graph, "mp", &under, (Mode::ActivePassive, false)).unwrap();
    let geom = bench.graph.geom("MULTIPATH", "mp").unwrap();
    multipath::prefer(&mut bench.graph, geom, "d1").unwrap();
    let (_, mut way) = bench.way("multipath/mp");
    bench.disks.values().nth(1).unwrap().1.set(Some(BlockError::TimedOut));
    way.submit(&request(Operation::Read, 0, 512, 1), at(0)).unwrap();
    way.ring(at(0));
    // Until it is retried.
    while way.incident().is_none() {
        assert_eq!(way.poll(at(500)), None);
    }
    let came = (0..200).find_map(|_| way.poll(at(700))).unwrap();
    assert_eq!(came.result, Ok(()));
    let all: Vec<Usage> = way.plan(at(700)).usage().collect();
    let waits = of(&bench, &all, "multipath/mp").waits;
    let wanted = Waits { retries: 1, retried_nanos: 200, ..Waits::default() };
    assert_eq!(waits, wanted);

    // For a request of two stripes on lanes of depth 1, the second part waits for the first.
    let mut bench = Bench::new(2, 1, 3);
    let under = bench.under();
    let options = stripe::StripeOptions { stripe_size: 4096, ..stripe::StripeOptions::default() };
    stripe::label(&mut bench.graph, "st", &under, &options).unwrap();
    let (_, mut way) = bench.way("stripe/st");
    way.submit(&request(Operation::Read, 0, 12288, 1), at(10)).unwrap();
    way.ring(at(20));
    for nanos in [100, 200, 300] {
        drain(&mut way, nanos);
    }
    let all: Vec<Usage> = way.plan(at(700)).usage().collect();
    let waits = of(&bench, &all, "stripe/st").waits;
    assert_eq!(waits, Waits { stalls: 1, stalled_nanos: 90, ..Waits::default() });
    assert!(way.is_quiet());
}
