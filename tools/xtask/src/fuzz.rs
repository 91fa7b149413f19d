//! `cargo xtask fuzz`: builds the fuzz targets with coverage and runs them one after another.
//!
//! Does what cargo-fuzz does, in the few lines needed here: a nightly compiler, a C++ compiler for
//! libFuzzer, and the flags of the coverage passes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;
use crate::{Failure, shell};

/// The only platform for which the sanitizer and coverage flags are set.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// Coverage of edges and comparisons; address sanitizer for the little unsafe code there is.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 --cfg=fuzzing -Zsanitizer=address \
    -Cdebug-assertions -Ccodegen-units=1";
/// An input that takes longer than this is a finding, seconds; long, because the machine may be
/// busy.
const TIMEOUT: &str = "-timeout=60";
const MEMORY_MAX: &str = "-rss_limit_mb=2048";

/// The options of the command line.
struct Options {
    minutes: u64,
    only: Vec<String>,
    /// Runs only the targets whose index is the first number modulo the second.
    shard: (usize, usize),
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut options = Self { minutes: 10, only: vec![], shard: (0, 1) };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| Failure::Usage(format!("{word} takes a value")));
            match word.as_str() {
                "--minutes" => {
                    let text = value()?;
                    // libFuzzer takes zero to mean forever.
                    let minutes = text.parse().ok().filter(|&minutes| minutes > 0);
                    options.minutes = minutes.ok_or_else(|| {
                        Failure::Usage(format!("`{text}` is not a number of minutes"))
                    })?;
                }
                "--only" => options.only.push(value()?.clone()),
                "--shard" => {
                    let text = value()?;
                    let parts = text.split_once('/').and_then(|(index, of)| {
                        Some((index.parse::<usize>().ok()?, of.parse::<usize>().ok()?))
                    });
                    options.shard = parts.filter(|(index, of)| index < of).ok_or_else(|| {
                        Failure::Usage(format!("`{text}` is not a shard; one is I/N, from 0/N on"))
                    })?;
                }
                other => return Err(Failure::Usage(format!("unknown option `{other}`"))),
            }
        }
        Ok(options)
    }
}

/// Runs every target, or only those named.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<(), Failure> {
    let options = Options::parse(options)?;
    let folder = workspace.root.join("fuzz");
    let targets = targets(&folder)?;
    if let Some(unknown) = options.only.iter().find(|name| !targets.contains(name)) {
        return Err(Failure::Usage(format!("there is no fuzz target `{unknown}`")));
    }
    let (index, of) = options.shard;
    let is_wanted = |(place, name): &(usize, &String)| {
        place % of == index && (options.only.is_empty() || options.only.contains(name))
    };
    let wanted = targets.iter().enumerate().filter(is_wanted).map(|(_, name)| name.as_str());
    let wanted: Vec<&str> = wanted.collect();
    let programs = build(workspace, &folder, &wanted)?;
    println!("{:<18} {:>12} {:>8} {:>9}  result", "target", "inputs", "edges", "corpus");
    let mut findings = vec![];
    for name in wanted {
        let ran = fuzz(&folder, &programs.join(name), name, options.minutes)?;
        println!(
            "{name:<18} {:>12} {:>8} {:>9}  {}",
            ran.inputs,
            ran.edges,
            ran.corpus,
            ran.finding.as_deref().unwrap_or("no crash")
        );
        findings.extend(ran.finding.map(|finding| format!("{name}: {finding}")));
    }
    if findings.is_empty() { Ok(()) } else { Err(Failure::Findings(findings)) }
}

/// Names of the targets, one per file.
fn targets(folder: &Path) -> Result<Vec<String>, String> {
    let folder = folder.join("fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

fn build(workspace: &Workspace, folder: &Path, wanted: &[&str]) -> Result<PathBuf, String> {
    let target = workspace.target.join("fuzz");
    let mut command = shell::clean(Command::new("cargo"));
    for name in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
        .current_dir(folder)
        .args(["+nightly", "build", "--release", "--locked", "--target", PLATFORM])
        .arg("--target-dir")
        .arg(&target)
        .args(wanted.iter().flat_map(|name| ["--bin", name]))
        .env("RUSTFLAGS", FLAGS);
    shell::run(&mut command).map_err(|why| {
        format!("{why}\nfuzzing needs `rustup toolchain install nightly` and a C++ compiler (g++)")
    })?;
    Ok(target.join(PLATFORM).join("release"))
}

/// The result of one target.
struct Ran {
    inputs: u64,
    edges: u64,
    corpus: usize,
    finding: Option<String>,
}

fn fuzz(folder: &Path, program: &Path, name: &str, minutes: u64) -> Result<Ran, String> {
    let place = |kind: &str| -> Result<PathBuf, String> {
        let path = folder.join(kind).join(name);
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    };
    let (corpus, artifacts) = (place("corpus")?, place("artifacts")?);
    let mut command = Command::new(program);
    command.arg(&corpus);
    let seeds = folder.join("seeds").join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    command
        .arg(format!("-max_total_time={}", minutes * 60))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args([TIMEOUT, MEMORY_MAX, "-print_final_stats=1"]);
    let output = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let finding = (!output.status.success()).then(|| {
        let line = text.lines().find(|line| line.contains("panicked at") || line.contains("ERROR"));
        let file = text.lines().find_map(|line| line.split_once("Test unit written to "));
        let file = file.map_or("no artifact", |(_, file)| file.trim());
        format!("{} ({file})", line.unwrap_or("it ended with an error"))
    });
    Ok(Ran {
        inputs: number_behind(&text, "stat::number_of_executed_units:").unwrap_or(0),
        edges: number_behind(&text, " cov: ").unwrap_or(0),
        corpus: fs::read_dir(&corpus).map_or(0, Iterator::count),
        finding,
    })
}

/// The number after the last `mark`.
fn number_behind(text: &str, mark: &str) -> Option<u64> {
    text.rsplit_once(mark)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_libfuzzer_says() {
        let text = "#1 INITED cov: 12 ft: 3\n#9 DONE   cov: 345 ft: 8 corp: 2/9b\n\
                    stat::number_of_executed_units: 4711\n";
        assert_eq!(number_behind(text, " cov: "), Some(345));
        assert_eq!(number_behind(text, "stat::number_of_executed_units:"), Some(4711));
        assert_eq!(number_behind("", " cov: "), None);
    }

    #[test]
    fn options_are_checked() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            Options::parse(&words)
        };
        assert!(parse(&["--minutes", "3", "--only", "ubi"]).is_ok());
        assert_eq!(parse(&["--shard", "2/3"]).ok().map(|options| options.shard), Some((2, 3)));
        for words in [
            &["--minutes"][..],
            &["--minutes", "x"],
            &["--minutes", "0"],
            &["--fast"],
            &["--shard", "3/3"],
        ] {
            assert!(matches!(parse(words), Err(Failure::Usage(_))), "{words:?}");
        }
    }
}
