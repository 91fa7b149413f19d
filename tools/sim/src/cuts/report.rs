//! The merged results of a campaign: what was tried, what was wrong, and the share of the space.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::BufRead;

use serde::Serialize;

use super::campaign::{COORDINATES, Finding, Line, Tally};

/// Maximum number of findings reported; further ones are only counted.
const FINDINGS_TOLD: usize = 30;

/// The lines of any number of runs, merged.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Merged {
    /// Number of worlds with a result.
    pub worlds: u64,
    /// Total number of worlds.
    pub of: u64,
    /// Number of lines already present, from another run of the same world.
    pub duplicates: u64,
    /// Number of these that differ: worlds are not the same everywhere.
    pub contradictions: u64,
    /// Number of invalid lines.
    pub unreadable: u64,
    /// Number of worlds whose device took no more writes before the end, because of injected
    /// failures.
    pub ended: u64,
    /// All cuts.
    pub total: Tally,
    /// Worlds and cuts by every value of every coordinate, and by tear.
    pub by: BTreeMap<String, BTreeMap<String, Part>>,
    /// Cuts by chip, and for each chip by tear.
    pub tears_of_chips: BTreeMap<String, BTreeMap<String, Tally>>,
    /// The first findings, each with its world.
    pub findings: Vec<Finding>,
    #[serde(skip)]
    seen: BTreeMap<String, Line>,
    #[serde(skip)]
    names: BTreeSet<String>,
}

/// A row of a table.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Part {
    /// Number of worlds.
    pub worlds: u64,
    /// Cuts.
    #[serde(flatten)]
    pub tally: Tally,
}

impl Merged {
    /// Adds the lines of one file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn take(&mut self, file: impl BufRead) -> std::io::Result<()> {
        for line in file.split(b'\n') {
            match serde_json::from_slice::<Line>(&line?) {
                Ok(line) => self.add(line),
                Err(_) => self.unreadable += 1,
            }
        }
        Ok(())
    }

    fn add(&mut self, line: Line) {
        if let Some(before) = self.seen.get(&line.key()) {
            self.duplicates += 1;
            self.contradictions += u64::from(*before != line);
            return;
        }
        let is_new = self.names.insert(line.world.clone());
        self.worlds += u64::from(is_new);
        self.of = self.of.max(line.of);
        self.ended += u64::from(line.ended.is_some());
        self.total.add(line.total());
        for (coordinate, value) in COORDINATES.iter().zip(line.world.split('/')) {
            let rows = self.by.entry((*coordinate).to_string()).or_default();
            let row = rows.entry(value.to_string()).or_default();
            row.worlds += u64::from(is_new);
            row.tally.add(line.total());
        }
        let tears = self.by.entry("tear".to_string()).or_default();
        for (tear, tally) in &line.tears {
            let row = tears.entry(tear.clone()).or_default();
            row.worlds += u64::from(is_new);
            row.tally.add(*tally);
        }
        let chip = line.world.split('/').nth(1).unwrap_or_default();
        let of_chip = self.tears_of_chips.entry(chip.to_string()).or_default();
        for (tear, tally) in &line.tears {
            of_chip.entry(tear.clone()).or_default().add(*tally);
        }
        let room = FINDINGS_TOLD.saturating_sub(self.findings.len());
        self.findings.extend(line.findings.iter().take(room).cloned());
        self.seen.insert(line.key(), line);
    }

    /// Whether nothing was wrong and every line is trustworthy.
    pub fn is_good(&self) -> bool {
        self.total.wrong == 0 && self.contradictions == 0
    }
}

impl Merged {
    /// Cuts of every chip in every way, with a `!` if something was wrong.
    fn crossed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tears: BTreeSet<&String> =
            self.tears_of_chips.values().flat_map(BTreeMap::keys).collect();
        write!(f, "{:<20}", "cuts by chip, tear")?;
        tears.iter().try_for_each(|tear| write!(f, " {tear:>10} "))?;
        for (chip, of_chip) in &self.tears_of_chips {
            write!(f, "\n  {chip:<18}")?;
            for tear in &tears {
                let tally = of_chip.get(*tear).copied().unwrap_or_default();
                let mark = if tally.wrong > 0 { '!' } else { ' ' };
                write!(f, " {:>10}{mark}", tally.cuts)?;
            }
        }
        writeln!(f)
    }
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = ["workload", "chip", "tear", "bad", "wear", "cells", "user", "device"];
        for name in rows {
            let Some(rows) = self.by.get(name) else { continue };
            writeln!(f, "{name:<20} {:>10} {:>12} {:>8}", "worlds", "cuts", "wrong")?;
            for (value, Part { worlds, tally }) in rows {
                writeln!(f, "  {value:<18} {worlds:>10} {:>12} {:>8}", tally.cuts, tally.wrong)?;
            }
        }
        self.crossed(f)?;
        let Self { worlds, of, total, .. } = self;
        let percent = 100.0 * *worlds as f64 / (*of).max(1) as f64;
        writeln!(f, "{worlds} of {of} worlds ({percent:.2} %)")?;
        for (count, what) in [
            (self.ended, "worlds ended early: so much failed that the device took no more"),
            (self.duplicates, "lines were there already"),
            (self.contradictions, "of them have another result for the same world"),
            (self.unreadable, "lines are not results"),
        ] {
            if count > 0 {
                writeln!(f, "{count} {what}")?;
            }
        }
        writeln!(f, "{} cuts, {} wrong", total.cuts, total.wrong)?;
        for Finding { problem, again, .. } in &self.findings {
            writeln!(f, "  {problem}\n    again: {again}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(world: &str, wrong: u64) -> String {
        let tears = BTreeMap::from([("late".to_string(), Tally { cuts: 8, wrong })]);
        let (findings, ended, world) = (vec![], None, world.to_string());
        let (number, of, points, depth, operations) = (1, 4, 8, 1, 30);
        let line = Line { world, number, of, points, depth, operations, tears, findings, ended };
        serde_json::to_string(&line).unwrap() + "\n"
    }

    #[test]
    fn lines_merge_and_duplicates_are_told() {
        let one = line("ubifs/die4/bad0/new/settled/tool/plain/1", 0);
        let other = line("jffs2/nor/bad0/new/settled/tool/plain/1", 2);
        let mut merged = Merged::default();
        merged.take(format!("{one}{other}").as_bytes()).unwrap();
        assert_eq!((merged.worlds, merged.of, merged.total.cuts), (2, 4, 16));
        assert!(!merged.is_good() && merged.to_string().contains("2 of 4 worlds (50.00 %)"));
        assert_eq!(merged.by["chip"]["nor"].tally, Tally { cuts: 8, wrong: 2 });
        let crossed: u64 = merged.tears_of_chips["nor"].values().map(|tally| tally.cuts).sum();
        assert_eq!(crossed, 8);
        merged.take(one.as_bytes()).unwrap();
        assert_eq!((merged.duplicates, merged.contradictions, merged.total.cuts), (1, 0, 16));
        merged.take(line("ubifs/die4/bad0/new/settled/tool/plain/1", 1).as_bytes()).unwrap();
        assert_eq!((merged.duplicates, merged.contradictions), (2, 1));
        merged.take(&b"{\"half a li"[..]).unwrap();
        assert_eq!(merged.unreadable, 1);
    }
}
