//! The table in the documentation.

use super::*;

/// docs/bench.md shows this table, with rows that are consistent with themselves and with the text:
/// more than twice as fast, more than a million per second.
#[test]
fn the_documentation_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.md");
    let text = std::fs::read_to_string(path).expect("docs/bench.md");
    let rows = text.split_once(HEADING).expect("the table").1.lines().skip(2);
    let rows: Vec<Vec<f64>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect())
        .collect();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let [_, queued, direct, ratio, switches, nanos] = row[..] else { panic!("{row:?}") };
        assert!((direct / queued / ratio - 1.0).abs() < 0.02, "{row:?}");
        let cost = (1e6 / queued - 1e6 / direct) / switches;
        assert!((cost / nanos - 1.0).abs() < 0.05, "{row:?}: {cost}");
        assert!(ratio > 2.0 && direct > 1000.0, "{row:?}");
    }
}

/// Both variants execute the same requests, each once; only one of them passes anything on.
#[test]
fn both_ways_do_every_request_once() {
    for depth in [1, 40] {
        let of =
            |dispatch| run(&Experiment { dispatch, depth, count: 2_000, service: Duration::ZERO });
        let (queued, direct) = (of(Dispatch::Queued), of(Dispatch::Direct));
        assert_eq!((queued.ended, direct.ended), (2_000, 2_000));
        // To g_down, to the controller, to g_up, to the caller.
        assert_eq!((queued.handed, direct.handed), (4 * 2_000, 0));
    }
    assert_eq!(part_on_null(10_000).ended, 10_000);
}
