use super::*;

const UNITS: Units = Units { bytes: 4096, run_on: false };

fn expected(versions: &Versions, offset: u64) -> Option<Version> {
    versions.expected(offset, (offset, 4096))
}

#[test]
fn the_last_write_counts() {
    let mut versions = Versions::new(&[(8192, 65_536)], 4096, 9);
    assert_eq!(expected(&versions, 8192), None);
    versions.begin(0, (8192, 8192), Some(UNITS));
    assert!(versions.is_busy(12_288, 4096) && !versions.is_busy(16_384, 4096));
    assert_eq!(expected(&versions, 8192), None);
    versions.finish(8192, 8192);
    let second = versions.begin(1, (12_288, 4096), Some(UNITS));
    versions.finish(12_288, 4096);
    assert_eq!(expected(&versions, 8192).map(|v| v.sequence), Some(1));
    assert_eq!(expected(&versions, 12_288), Some(second));
    versions.forget(8192, 4096);
    assert_eq!(expected(&versions, 8192), None);
}

#[test]
fn what_was_read_back_is_owed_again_when_it_is_written() {
    let mut versions = Versions::new(&[(0, 65_536)], 4096, 9);
    for offset in [0, 4096, 8192] {
        versions.begin(3, (offset, 4096), Some(UNITS));
        versions.finish(offset, 4096);
    }
    versions.checked(0, 8192);
    assert_eq!(versions.written_by(3, UNITS, (0, 65_536)), Some((8192, 4096)));
    assert!(!versions.owes(3, UNITS, (4096, 4096)) && versions.owes(3, UNITS, (4096, 8192)));
    assert_eq!(expected(&versions, 4096).map(|v| (v.worker, v.sequence)), Some((3, 2)));
    let version = versions.begin(3, (4096, 4096), Some(UNITS));
    versions.checked(4096, 4096);
    versions.finish(4096, 4096);
    assert_eq!((version.sequence, expected(&versions, 4096)), (4, Some(version)));
    assert_eq!(versions.written_by(3, UNITS, (0, 65_536)), Some((4096, 8192)));
}

#[test]
fn written_ranges_are_found_by_worker() {
    let mut versions = Versions::new(&[(0, 65_536)], 4096, 9);
    for (worker, offset, length) in [(0, 4096, 12_288), (1, 8192, 4096), (0, 40_960, 4096)] {
        versions.begin(worker, (offset, length), Some(UNITS));
        versions.finish(offset, length);
    }
    assert_eq!(versions.written_by(0, UNITS, (0, 65_536)), Some((4096, 4096)));
    assert_eq!(versions.written_by(0, UNITS, (8192, 65_536)), Some((12_288, 4096)));
    assert_eq!(versions.written_by(0, UNITS, (16_384, 65_536)), Some((40_960, 4096)));
    assert_eq!(versions.written_by(0, UNITS, (45_056, 65_536)), None);
    assert_eq!(versions.written_by(1, UNITS, (0, 65_536)), Some((8192, 4096)));
}

#[test]
fn ranges_far_apart_need_room_for_themselves_alone() {
    let far = 1 << 50;
    let ranges = [(far, 8192), (8192, 8192), (12_288, 8192), (far + 8192, 4096), (0, 4096)];
    let ranges = joined(ranges.into_iter());
    assert_eq!(ranges, [(0, 4096), (8192, 12_288), (far, 12_288)]);
    let mut versions = Versions::new(&ranges, 4096, 9);
    assert_eq!(versions.parts.iter().map(|part| part.entries.len()).sum::<usize>(), 7);
    // Over a gap, and into one.
    versions.begin(2, (0, 12_288), Some(UNITS));
    versions.begin(2, (far + 8192, 8192), Some(UNITS));
    assert!(versions.is_busy(4096, 8192) && !versions.is_busy(4096, 4096));
    versions.finish(0, far + 65_536);
    assert_eq!(expected(&versions, 4096), None);
    assert_eq!(expected(&versions, 8192).map(|v| v.sequence), Some(1));
    assert_eq!(versions.written_by(2, UNITS, (0, 65_536)), Some((0, 4096)));
    assert_eq!(versions.written_by(2, UNITS, (4096, 65_536)), Some((8192, 4096)));
    assert_eq!(versions.written_by(2, UNITS, (12_288, 65_536)), Some((far + 8192, 4096)));
    assert_eq!(versions.written_by(2, UNITS, (far + 12_288, 65_536)), None);
}
#[test]
fn what_was_written_over_in_part_is_not_whole() {
    let mut versions = Versions::new(&[(0, 65_536)], 512, 9);
    let [apart, run_on] = [false, true].map(|run_on| Units { bytes: 4096, run_on });
    for units in [apart, run_on] {
        versions.forget(0, 65_536);
        versions.begin(0, (1024, 16_384), Some(units));
        versions.finish(1024, 16_384);
        assert_eq!(versions.written_by(0, units, (0, 65_536)), Some((1024, 16_384)));
        let over = versions.begin(1, (512, 1024), Some(Units { bytes: 1024, run_on: false }));
        versions.finish(512, 1024);
        assert_eq!(versions.expected(512, (512, 1024)), Some(over));
        assert_eq!(versions.expected(1024, (1024, 4096)), None);
        let left = versions.written_by(0, units, (0, 65_536));
        assert_eq!(left, (!units.run_on).then_some((5120, 12_288)));
        versions.begin(1, (12_800, 512), None);
        let left = versions.written_by(0, units, (0, 65_536));
        assert_eq!(left, (!units.run_on).then_some((5120, 4096)));
    }
    // What runs on is known as far as its begin is there.
    versions.forget(0, 65_536);
    let version = versions.begin(0, (1024, 16_384), Some(run_on));
    versions.begin(1, (12_800, 512), None);
    versions.finish(1024, 16_384);
    assert_eq!(versions.written_by(0, run_on, (0, 65_536)), Some((1024, 8192)));
    assert_eq!(versions.expected(1024, (5120, 4096)), Some(version));
    assert!(versions.owes(0, run_on, (1024, 16_384)));
    versions.checked(1024, 8192);
    assert!(versions.owes(0, run_on, (1024, 16_384)), "the last unit is whole");
    versions.checked(13_312, 4096);
    assert!(!versions.owes(0, run_on, (1024, 16_384)));
}
