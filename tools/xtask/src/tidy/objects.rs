//! Objects: how many methods a type has, in all files of its crate.

use std::collections::BTreeMap;

use super::rust::Source;
use super::{Finding, Limit};

/// Methods of one type with a `self`, outside traits; 20 is the wish.
const METHODS: Limit = Limit { rule: "methods", wish: 20, limit: 40 };

/// A type with more methods than that, the number and the reason: it may only decrease.
struct Known(&'static str, &'static str, usize, &'static str);

const KNOWN: [Known; 11] = [
    Known("crates/models/src/ahci/mod.rs", "Ahci", 74, THREAD),
    Known("crates/ufs/src/host.rs", "Host", 62, FACE),
    Known("crates/ufs/src/lane.rs", "Lane", 62, LANE),
    Known("crates/ahci/src/lane.rs", "Lane", 60, LANE),
    Known("crates/models/src/nvme/mod.rs", "Nvme", 59, THREAD),
    Known("crates/emmc/src/lane.rs", "Lane", 54, LANE),
    Known("crates/geom/src/way.rs", "Way", 47, "the way of a request down and back up, kept flat"),
    Known("crates/cam/src/disk.rs", "Disk", 48, "one queue: start, end, retry and rescue share it"),
    Known("crates/nvme/src/lane.rs", "Lane", 44, LANE),
    Known("tools/bench/src/runner/worker.rs", "Worker", 47, "one job's requests in flight"),
    Known("crates/models/src/nand/mod.rs", "NandChip", 41, "a chip's commands and its questions"),
];
const THREAD: &str = "a command's way through its parts, resets, faults, and what a machine asks";
const FACE: &str = "what a driver offers: each takes the lane and passes the call on";
const LANE: &str = "one queue's slots: taken, posted, watched, ended and given back";

/// The types and methods of all crates.
#[derive(Default)]
pub(super) struct Objects {
    /// The files that define a type of this name, with the line; by crate and name.
    types: BTreeMap<(String, String), Vec<(String, usize)>>,
    /// File and number of methods of each implementation; by crate and name.
    methods: BTreeMap<(String, String), Vec<(String, usize)>>,
}

impl Objects {
    /// Records what a file other than a test defines and implements.
    pub(super) fn add(&mut self, file: &str, source: &Source) {
        let Some((folder, _)) = file.split_once("/src/") else { return };
        let key = |name: &str| (folder.to_owned(), name.to_owned());
        for (line, name) in source.types.iter().filter(|it| !source.is_test(it.0)) {
            self.types.entry(key(name)).or_default().push((file.into(), *line));
        }
        for (_, name, count) in source.methods.iter().filter(|it| !source.is_test(it.0)) {
            self.methods.entry(key(name)).or_default().push((file.into(), *count));
        }
    }

    /// File, line, name and number of methods of each type, most methods first.
    fn counted(&self) -> Vec<(&str, usize, &str, usize)> {
        let mut counts = BTreeMap::new();
        for (key, implementations) in &self.methods {
            let Some(types) = self.types.get(key) else { continue };
            for (file, methods) in implementations {
                // Of several types with the same name, the nearest one.
                let near = |it: &&(String, usize)| common(&it.0, file);
                let Some((home, line)) = types.iter().max_by_key(near) else { continue };
                *counts.entry((home.as_str(), *line, key.1.as_str())).or_default() += methods;
            }
        }
        let mut counts: Vec<_> = counts
            .into_iter()
            .map(|((file, line, name), count)| (file, line, name, count))
            .collect();
        counts.sort_by_key(|it| std::cmp::Reverse(it.3));
        counts
    }

    /// Types with too many methods, and excuses that are no longer needed to that extent.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.judge(&KNOWN)
    }

    fn judge(&self, known: &[Known]) -> Vec<Finding> {
        let finding = |(file, line, name, value): (&str, usize, &str, usize), message| Finding {
            rule: METHODS.rule,
            file: file.into(),
            line,
            item: name.into(),
            value,
            message,
        };
        let counted = self.counted();
        let excuse = |file: &str, name: &str| {
            let limit = known.iter().find(|known| known.0 == file && known.1 == name);
            limit.map_or(METHODS.limit, |known| known.2)
        };
        let over = counted.iter().filter(|it| it.3 > excuse(it.0, it.2)).map(|&it| {
            let limit = excuse(it.0, it.2);
            finding(it, format!("methods of `{}`: {}, and {limit} is the limit", it.2, it.3))
        });
        let methods = |known: &Known| {
            counted.iter().find(|it| it.0 == known.0 && it.2 == known.1).map_or(0, |it| it.3)
        };
        let better = known.iter().filter(|known| methods(known) < known.2).map(|known| {
            let Known(file, name, limit, reason) = *known;
            let now = methods(known);
            let what = format!("`{name}` has {now} methods and is excused for {limit} ({reason})");
            finding((file, 1, name, now), format!("{what}: correct or remove the line"))
        });
        over.chain(better).collect()
    }

    /// The line for the summary.
    pub(super) fn summary(&self) -> String {
        let counted = self.counted();
        let over = |limit: usize| counted.iter().filter(|it| it.3 > limit).count();
        let Some((file, _, name, most)) = counted.first() else { return "no objects".into() };
        format!(
            "{} objects, {} over the wished {} methods, {} over {}, most {most} ({file}: {name})",
            counted.len(),
            over(METHODS.wish),
            METHODS.wish,
            over(METHODS.limit),
            METHODS.limit
        )
    }
}

/// The number of leading folders that two paths share, and whether these are all those of `one`.
fn common(one: &str, other: &str) -> (usize, bool) {
    // `a/b.rs` is the home of `a/b/c.rs`.
    let parts = |path: &str| -> Vec<String> {
        let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
        path.split('/').map(str::to_owned).collect()
    };
    let (one, other) = (parts(one), parts(other));
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    (same, same == one.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(name: &str, count: usize) -> String {
        let bodies = "    fn m(&self) {\n        fn inner(&self) {}\n    }\n".repeat(count);
        format!("impl<'a, F: Fn() -> u8> crate::{name}<'a, F> {{\n    fn new() {{}}\n{bodies}}}\n")
    }

    #[test]
    fn methods_are_counted_over_files_and_given_to_the_nearest_type() {
        let trait_impl = "impl Clone for Device {\n    fn clone(&self) {}\n}\n";
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", methods("Device", 9));
        let mut objects = Objects::default();
        for (file, text) in [
            ("crates/x/src/nand.rs", format!("pub struct Device<'a, F>(F);\n{tests}")),
            ("crates/x/src/nand/io.rs", methods("Device", 30)),
            ("crates/x/src/nand/wear.rs", format!("{trait_impl}{}", methods("Device", 10))),
            ("crates/x/src/nor.rs", format!("enum Device {{}}\n{}", methods("Device", 7))),
            ("crates/y/src/nand/io.rs", methods("Device", 50)),
        ] {
            objects.add(file, &Source::scan(&text));
        }
        assert_eq!(
            objects.counted(),
            [("crates/x/src/nand.rs", 1, "Device", 40), ("crates/x/src/nor.rs", 1, "Device", 7)]
        );
        assert_eq!(objects.judge(&[]), []);
        objects.add("crates/x/src/nand/more.rs", &Source::scan(&methods("Device", 1)));
        assert_eq!(objects.judge(&[])[0].value, 41);
        let known = |limit| [Known("crates/x/src/nand.rs", "Device", limit, "a reason")];
        assert_eq!(objects.judge(&known(41)), []);
        assert!(objects.judge(&known(42))[0].message.contains("correct or remove the line"));
        let gone = objects.judge(&[Known("gone.rs", "Gone", 50, "a reason")]);
        assert_eq!(gone.last().map(|it| (it.file.as_str(), it.value)), Some(("gone.rs", 0)));
        assert!(objects.summary().contains("2 objects, 1 over the wished 20 methods, 1 over 40"));
    }
}
