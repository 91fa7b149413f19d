//! fio's own example jobs, all of them: the result of each is the one stated in docs/bench-tool.md.
//!
//! They are read from the folder of fio's package, or from the folder named by `FIO_EXAMPLES`, for
//! those of a newer fio.

use std::path::PathBuf;

use super::*;
use crate::clock::RealClock;
use crate::null::Null;
use crate::play::{Demand, PlayOptions, play};
use crate::zones::{Zone, Zones};

/// The documentation.
fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench-tool.md");
    std::fs::read_to_string(path).unwrap()
}

/// The heading above the table.
const HEADING: &str = "### fio's example jobs";

/// Kinds of rows, in the order of the sentence that counts them.
const KINDS: [&str; 3] = ["runs", "not a disk", "refused"];

/// A row: the file, its result, and the reason.
struct Row<'a> {
    file: &'a str,
    kind: &'a str,
    why: &'a str,
}

fn rows(document: &str) -> Vec<Row<'_>> {
    let table = document.split_once(HEADING).expect("the table").1;
    let lines = table.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    lines.take_while(|line| line.starts_with('|')).map(row).collect()
}

fn row(line: &str) -> Row<'_> {
    let mut cells = line.trim_matches('|').split('|').map(str::trim);
    let mut cell = || cells.next().expect("three cells");
    Row { file: cell().trim_matches('`'), kind: cell(), why: cell() }
}

/// `text` with every variable replaced, as a user would have to do.
fn with_variables(text: &str) -> String {
    let known = [("FIO_BS", "4k"), ("FIO_RW", "randread"), ("FIO_IODEPTH", "4")];
    let mut parts = text.split("${");
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_once('}').expect("a closing brace");
        let value = known.iter().find(|(known, _)| *known == name).map_or("x", |known| known.1);
        result.push_str(value);
        result.push_str(rest);
    }
    result
}

/// Options that make a job short on a disk that stores nothing, and leave no files.
const SHORT: [(&str, &str); 14] = [
    ("number_ios", "20"),
    ("size", "256m"),
    ("time_based", "0"),
    ("loops", "1"),
    ("runtime", "1"),
    ("ramp_time", "0"),
    ("startdelay", "0"),
    ("thinktime", "0"),
    ("rate", "0"),
    ("rate_iops", "0"),
    ("rate_min", "0"),
    ("continue_on_error", "all"),
    ("latency_percentile", "1"),
    ("verify_dump", "0"),
];

/// Zones as long as the examples say, half of each written.
fn zones() -> Zones {
    let (disk, size) = (1_u64 << 43, 256_u64 << 20);
    let zone = Zone { capacity: size, written: size / 2, is_usable: true };
    Zones::reported((disk, 512), size, &vec![zone; (disk / size) as usize], 0).unwrap()
}

/// The result of a job file: its kind, and the reason.
fn fate(path: &Path) -> (&'static str, String) {
    let text = with_variables(&std::fs::read_to_string(path).unwrap());
    let short = SHORT.map(|(name, value)| (name.to_string(), Some(value.to_string())));
    if let Err(error) = JobFile::parse(&text, path, &[]) {
        let other = error.message.contains("does no block I/O");
        return (if other { "not a disk" } else { "refused" }, error.message);
    }
    let file = JobFile::parse(&text, path, &short).unwrap();
    let demand = Demand::of(&file);
    let memory = usize::try_from(demand.memory).unwrap();
    let mut lanes = [Null::new(1 << 43, demand.depth, memory)];
    let zones = demand.zones.then(zones);
    let options = PlayOptions { zones, ..PlayOptions::default() };
    let played = play(&mut lanes, &RealClock::new(), &file, options);
    match played {
        Ok(played) => {
            let failed = played.jobs.iter().find_map(|job| job.failure.clone());
            let done: u64 =
                played.jobs.iter().flat_map(|job| job.directions()).map(|(_, d)| d.requests).sum();
            assert!(failed.is_none() && done > 0, "{}: {failed:?} {done}", path.display());
            ("runs", String::new())
        }
        Err(error) => ("refused", error.to_string()),
    }
}

fn examples() -> Option<Vec<PathBuf>> {
    let folder = std::env::var_os("FIO_EXAMPLES").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| PathBuf::from("/usr/share/doc/fio/examples"));
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) => {
            eprintln!("skipped: {}: {error}", folder.display());
            return None;
        }
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "fio")).collect();
    paths.sort();
    Some(paths)
}

#[test]
fn examples_of_fio_end_as_the_documentation_says() {
    let document = document();
    let rows = rows(&document);
    let Some(paths) = examples() else { return };
    assert!(paths.len() > 50, "{} examples", paths.len());
    let mut wrong = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let (kind, why) = fate(&path);
        // The reason in the table is a part of what is said.
        let row = rows.iter().find(|row| row.file == name);
        let right =
            row.is_some_and(|row| row.kind == kind && (kind == "runs" || why.contains(row.why)));
        if !right {
            wrong.push(format!("| `{name}` | {kind} | {why} |"));
        }
    }
    assert!(wrong.is_empty(), "docs/bench-tool.md lacks:\n{}", wrong.join("\n"));
}

#[test]
fn the_counts_are_those_of_the_table() {
    let document = document();
    let rows = rows(&document);
    let count = |kind: &str| rows.iter().filter(|row| row.kind == kind).count();
    let [runs, other, refused] = KINDS.map(count);
    assert_eq!(runs + other + refused, rows.len(), "a kind that is none");
    let sentence = format!(
        "Of fio's {} example jobs {runs} run, {other} describe no disk's workload, {refused} are \
         refused",
        rows.len()
    );
    let document = document.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(document.contains(&sentence), "docs/bench-tool.md does not say: {sentence}");
    assert!(rows.is_sorted_by_key(|row| row.file), "the table is not sorted");
}

/// docs/bench-tool.md lists every option once, with its treatment.
#[test]
fn every_option_is_in_the_documentation() {
    let document = document();
    let section = document.split_once("### Every option").expect("the section").1;
    let section = section.split("\n### ").next().unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut listed: Vec<(String, &str)> = Vec::new();
    for line in section.lines().filter(|line| line.starts_with("- ")) {
        let (fate, names) = line[2..].split_once(": `").expect("a fate and names");
        let names = names.split('`').filter(|name| !name.trim().is_empty());
        listed.extend(names.map(|name| (name.to_string(), fate)));
    }
    let mut expected: Vec<(String, String)> = Vec::new();
    for (name, fate) in known::options() {
        let fate = match fate {
            Fate::Applies => "applies".to_string(),
            Fate::Ignored(why) => format!("ignored, {why}"),
            Fate::Refused(why) => format!("refused, {why}"),
        };
        expected.push((name.to_string(), fate));
    }
    listed.sort();
    expected.sort();
    let listed: Vec<(String, String)> =
        listed.into_iter().map(|(name, fate)| (name, fate.to_string())).collect();
    for one in &expected {
        assert!(listed.contains(one), "not in docs/bench-tool.md: {one:?}");
    }
    assert_eq!(listed.len(), expected.len(), "docs/bench-tool.md lists more");
}
