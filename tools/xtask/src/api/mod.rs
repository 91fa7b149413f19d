//! `cargo xtask api`: what the published crates promise to those who build on them, held against
//! the record of the last release.
//!
//! The record has a line for each public item, field, variant, method and implementation, as the
//! source declares it. A line that is there no more is a change that breaks somebody's build: it is
//! refused until CHANGELOG.md tells of it, and a record that is made anew before it does is not
//! made. A line that comes breaks nobody.
//!
//! This reads declarations and compiles nothing: `cargo-semver-checks` knows more (auto traits,
//! types behind aliases), takes minutes and wants a release to compare with.

mod exports;
mod items;
mod tokens;

use std::collections::BTreeSet;

use crate::workspace::{Package, Workspace};
use crate::{Failure, Report};
use exports::Exports;

/// Where the records are, one file a crate.
const RECORDS: &str = "tools/xtask/api";
/// The heading of CHANGELOG.md under which changes since the last release are.
const UNRELEASED: &str = "## Unreleased";

/// What a crate promises now.
fn promised(workspace: &Workspace, package: &Package) -> Result<Option<BTreeSet<String>>, String> {
    let root = format!("{}/src/lib.rs", package.folder);
    if !package.is_published || !workspace.root.join(&root).is_file() {
        return Ok(None);
    }
    let exports = Exports::read(&root, |file| workspace.read(file).ok())?;
    Ok(Some(exports.lines(&package.name.replace('-', "_"))))
}

/// Checks every published crate against its record.
pub(crate) fn check(workspace: &Workspace) -> Result<Report, String> {
    let changes = unreleased(&workspace.read("CHANGELOG.md")?)?.to_owned();
    let (mut findings, mut crates, mut count) = (Vec::new(), 0, 0);
    for package in &workspace.packages {
        let Some(lines) = promised(workspace, package)? else { continue };
        (crates, count) = (crates + 1, count + lines.len());
        let file = format!("{RECORDS}/{}.txt", package.name);
        match workspace.read(&file) {
            Ok(record) => findings.extend(broken(&record, &lines, &changes)),
            Err(why) => findings.push(format!("api: {why}: `cargo xtask api --record` makes it")),
        }
    }
    let summary = format!("api: {count} lines of {crates} published crates");
    Ok(Report { findings, summary })
}

/// The task: checks, or records what is promised from now on.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<(), Failure> {
    let must_record = match options {
        [] => false,
        [option] if option == "--record" => true,
        _ => return Err(Failure::Usage(format!("api: unknown: {}", options.join(" ")))),
    };
    if !must_record {
        return crate::report(check(workspace)?);
    }
    // Records that are missing are no obstacle to making them.
    let mut report = check(workspace)?;
    report.findings.retain(|finding| !finding.contains("--record"));
    if !report.findings.is_empty() {
        return Err(Failure::Findings(report.findings));
    }
    let folder = workspace.root.join(RECORDS);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    for package in &workspace.packages {
        if let Some(lines) = promised(workspace, package)? {
            let text = lines.into_iter().map(|line| line + "\n").collect::<String>();
            std::fs::write(folder.join(format!("{}.txt", package.name)), text).map_err(failed)?;
        }
    }
    println!("{}", report.summary);
    Ok(())
}

/// What is broken and not told: recorded lines that are gone, by item.
fn broken(record: &str, lines: &BTreeSet<String>, changes: &str) -> Vec<String> {
    let is_gone = |line: &&str| !lines.contains(*line) && !is_told(line, changes);
    let gone = record.lines().filter(is_gone);
    gone.map(|line| {
        format!(
            "api: gone or changed: `{line}`: who uses it no longer compiles. Bring it back, or \
             tell of it in CHANGELOG.md under `{UNRELEASED}`, with `{}`",
            item(line)
        )
    })
    .collect()
}

/// Whether the changes name the item that a line is of, or one that it is part of, in full.
fn is_told(line: &str, changes: &str) -> bool {
    let mut path = item(line);
    loop {
        if changes.contains(&format!("`{path}`")) {
            return true;
        }
        // A crate as a whole tells nothing.
        match path.rsplit_once("::") {
            Some((shorter, _)) if shorter.contains("::") => path = shorter,
            _ => return false,
        }
    }
}

/// The path of the item that a line is of.
fn item(line: &str) -> &str {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let path = line.split(|c| !is_path(c)).find(|word| word.starts_with("flysch_"));
    path.unwrap_or(line).trim_end_matches(':')
}

/// What CHANGELOG.md says of what is not released yet.
fn unreleased(changelog: &str) -> Result<&str, String> {
    let (_, rest) = changelog
        .split_once(UNRELEASED)
        .ok_or_else(|| format!("CHANGELOG.md has no heading `{UNRELEASED}`"))?;
    Ok(rest.split("\n## ").next().unwrap_or_default())
}

#[cfg(test)]
mod tests;
