//! Cuts and their positions.

use super::*;

#[test]
fn points_are_spread_evenly_and_seeds_lie_between_each_other() {
    let plan = |points, seed| Plan { points, seed, ..Plan::default() };
    assert_eq!(plan(None, 3).spread(5), [0, 1, 2, 3, 4]);
    assert_eq!(plan(Some(9), 3).spread(5), [0, 1, 2, 3, 4]);
    let mut all = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let points = plan(Some(4), seed).spread(40);
        assert!(points.is_sorted() && points.len() == 4 && points[3] < 40, "{points:?}");
        assert!(points.windows(2).all(|pair| pair[1] - pair[0] == 10), "{points:?}");
        all.extend(points);
    }
    assert!(all.len() > 35, "{} of 40 operations are cut by some seed", all.len());
}

#[test]
fn cut_lists_are_read_as_they_are_written() {
    for text in ["0b", "123h,4l", "7e,7a,7b"] {
        assert_eq!(text.parse::<CutList>().unwrap().to_string(), text);
    }
    assert_eq!("12,3".parse::<CutList>().unwrap().to_string(), "12h,3h");
    for text in ["", "h", "12x", "12h,", "1 2h", "12hh"] {
        assert!(text.parse::<CutList>().is_err(), "{text}");
    }
}
