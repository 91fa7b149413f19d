//! The cost of each layer of the block layer, derived from the counts of the ways: beyond the
//! disks, and beyond a way without any class.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A layer: the case that counts it, its name, the number of disks a request goes to, and its
/// maximum cost.
const LAYERS: [(&str, &str, u64, Option<u64>); 7] = [
    ("way-part", "PART", 1, Some(25)),
    ("way-labels", "LABEL, ten of them", 1, Some(15)),
    ("way-stripe", "STRIPE", 1, Some(60)),
    ("way-mirror-read", "MIRROR, read", 1, Some(60)),
    ("way-mirror-write", "MIRROR, written", 2, Some(140)),
    ("way-twice-read", "STRIPE over MIRROR, read", 1, None),
    ("way-twice-write", "STRIPE over MIRROR, written", 2, None),
];

/// The heading of the table.
pub const HEADING: &str = "| layer | beyond its disks | beyond a way without a class | goal |\n\
    |---|--:|--:|--:|";

/// The table for counts by case name. A layer that was not counted is left out; without counts of
/// the disk and the way alone there is no table.
pub fn table(counts: &BTreeMap<&str, u64>) -> Option<String> {
    let (disk, way) = (*counts.get("null")?, *counts.get("way-disk")?);
    let mut table = HEADING.to_string();
    let mut is_empty = true;
    for (case, name, disks, goal) in LAYERS {
        let Some(&count) = counts.get(case) else { continue };
        let beyond = |less: u64| count as i64 - less as i64;
        let goal = goal.map_or("-".into(), |goal| goal.to_string());
        let (over_disks, over_way) = (beyond(disks * disk), beyond(way + (disks - 1) * disk));
        // Writing to a String cannot fail.
        let _ = write!(table, "\n| {name} | {over_disks} | {over_way} | {goal} |");
        is_empty = false;
    }
    (!is_empty).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{self, CASES};

    #[test]
    fn a_second_disk_is_not_the_layers() {
        let counts = BTreeMap::from([("null", 28), ("way-disk", 50), ("way-mirror-write", 190)]);
        let row = table(&counts).unwrap();
        assert!(row.ends_with("\n| MIRROR, written | 134 | 112 | 140 |"), "{row}");
        assert_eq!(table(&BTreeMap::from([("way-part", 50)])), None);
    }

    /// docs/bench.md has the table that this program prints for the counts shown there.
    #[test]
    fn the_documentation_has_the_layers() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.md");
        let text = std::fs::read_to_string(file).expect("docs/bench.md");
        let rows = text.split_once(path::HEADING).expect("the table of instructions").1;
        let rows = rows.lines().skip(1).take_while(|line| line.starts_with('|'));
        let count = |row: &str| row.split(" | ").nth(1)?.parse().ok();
        let counts: BTreeMap<&str, u64> =
            CASES.iter().zip(rows).map(|(case, row)| (case.name, count(row).unwrap())).collect();
        let wanted = table(&counts).unwrap();
        assert!(text.contains(&wanted), "docs/bench.md: wanted is\n{wanted}");
    }
}
