//! Every profile against the published figures of its device.

use flysch_study::profiles::{all, lines, text};
use flysch_study::sheets::SHEETS;

/// How far a known miss may move before its figure must be updated, percentage points.
const PINNED: f64 = 0.5;

#[test]
fn profiles_are_within_their_limits_or_miss_as_they_say() {
    let results = all(|_, _| {}).expect("every profile can be measured");
    println!("{}", text(&results));
    let mut wrong = Vec::new();
    for (sheet, results) in SHEETS.iter().zip(&results) {
        for (cell, row) in sheet.cells.iter().zip(&results.rows) {
            let (error, limit) = (row.error_percent, row.limit_percent);
            let told = format!("{}: {}: {error:+.1} %", sheet.target, cell.what);
            match cell.miss {
                None if error.abs() > limit => wrong.push(told),
                Some(_) if error.abs() <= limit => wrong.push(format!("{told}: misses no more")),
                Some((pinned, _)) if (error - pinned).abs() > PINNED => wrong.push(told),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let told = include_str!("../../../docs/bench.md");
    let lines = lines(&results);
    let stale: Vec<&String> = lines.iter().filter(|line| !told.contains(&line[..])).collect();
    assert!(
        stale.is_empty(),
        "docs/bench.md does not have\n{}",
        stale.iter().map(|l| l.as_str()).collect::<Vec<_>>().join("\n")
    );
}
