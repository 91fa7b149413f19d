//! What zones are refused, and what is counted of them.

use super::*;
use crate::random::Random;

#[test]
fn zones_that_cannot_be_are_refused_in_words() {
    let disk = (1 << 30, 512);
    for (size, capacity, what) in [
        (0, None, "is impossible"),
        (1000, None, "multiples of the block size 512"),
        (4096, Some(8192), "a zone of 4k with a capacity of 8k"),
        (4096, Some(0), "a capacity of 0"),
        (8 << 30, None, "below 4 GiB"),
        (2 << 30, None, "zones of 2g do not fit a disk of 1g"),
    ] {
        let error = Zones::imagined(disk, size, capacity).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let error = Zones::imagined((1 << 40, 512), 512, None).unwrap_err().to_string();
    assert_eq!(error, "a disk of 1t would have more than 4194304 zones of 512");
    let zone = Zone { capacity: 4096, written: 4608, is_usable: true };
    assert!(Zones::reported(disk, 8192, &[zone], 0).is_err(), "written beyond its capacity");
}

/// What is counted as zones change is what adding up all zones gives.
#[test]
fn tallies_follow_writes_failures_and_resets() {
    let mut zones = Zones::imagined((64 << 10, 512), 4096, Some(3072)).unwrap();
    zones.write(1, 512);
    let ranges = [(0, 64 << 10), (4096, 8192), (32 << 10, 4096)];
    let numbers = ranges.map(|(offset, size)| zones.tally(offset, size));
    assert_eq!(numbers, ranges.map(|(offset, size)| zones.tally(offset, size)));
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let index = random.below(16) as usize;
        match random.below(8) {
            0 => zones.empty(index),
            1 => zones.wrote(index, 512, false),
            _ if zones.states[index].room() > 0 => {
                zones.write(index, 512);
                zones.wrote(index, 512, true);
            }
            _ => {}
        }
        for (number, (offset, size)) in numbers.into_iter().zip(ranges) {
            let states = &zones.states[zones.range(offset, size)];
            let sum: u64 = states.iter().map(State::written).sum();
            assert_eq!(zones.tallied(number), sum);
        }
    }
}

#[test]
fn ranges_are_whole_zones() {
    let zones = Zones::imagined((10_000_000, 512), 1 << 20, None).unwrap();
    assert_eq!((zones.bytes(), zones.index(1 << 20)), (9 << 20, 1));
    assert_eq!(zones.whole(1, 3 << 20), Some((1 << 20, 2 << 20)));
    assert_eq!(zones.whole(0, u64::MAX), Some((0, 9 << 20)));
    assert_eq!(zones.whole(512, 1 << 20), None);
    assert_eq!(zones.range(1 << 20, 2 << 20), 1..3);
}
