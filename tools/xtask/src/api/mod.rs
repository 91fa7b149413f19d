//! `cargo xtask api`: compares what the published crates promise to their users with the record of
//! the last release.
//!
//! The record has a line for each public item, field, variant, method and implementation, as the
//! source declares it. A line that disappears is a change that breaks somebody's build: it is
//! refused until CHANGELOG.md describes it, and so is a new record before that. A new line breaks
//! nobody.
//!
//! This reads declarations and compiles nothing. `cargo-semver-checks` covers more (auto traits,
//! types behind aliases), but takes minutes and needs a release to compare with.

mod exports;
mod items;
mod tokens;

use std::collections::BTreeSet;

use crate::workspace::{Package, Workspace};
use crate::{Failure, Report};
use exports::Exports;

/// Location of the records, one file per crate.
const RECORDS: &str = "tools/xtask/api";
/// The heading in CHANGELOG.md for changes since the last release.
const UNRELEASED: &str = "## Unreleased";
/// Role names that many crates share: grepping for one of these finds the types of all crates.
const ROLES: [&str; 4] = ["Device", "Error", "Geometry", "Options"];

/// What a crate promises now; `None` if it is not a published library.
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
        findings.extend(lines.iter().filter(|line| is_role(line)).map(|line| {
            let name = item(line).rsplit("::").next().unwrap_or_default();
            format!("api: `{line}`: `{name}` is the name of a role; say in it whose it is")
        }));
        let file = format!("{RECORDS}/{}.txt", package.name);
        match workspace.read(&file) {
            Ok(record) => findings.extend(broken(&record, &lines, &changes)),
            Err(why) => findings.push(format!("api: {why}: `cargo xtask api --record` makes it")),
        }
    }
    let summary = format!("api: {count} lines of {crates} published crates");
    Ok(Report { findings, summary })
}

/// The task: checks, or with `--record` records what is promised from now on.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<(), Failure> {
    let must_record = match options {
        [] => false,
        [option] if option == "--record" => true,
        _ => return Err(Failure::Usage(format!("api: unknown: {}", options.join(" ")))),
    };
    if !must_record {
        return crate::report(check(workspace)?);
    }
    // Missing records do not prevent recording.
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

/// Whether a line declares a type named only by its role. An associated type may be: its owner
/// precedes it.
fn is_role(line: &str) -> bool {
    let declares = ["enum ", "struct ", "trait ", "type "].iter().any(|it| line.starts_with(it));
    let Some((of, name)) = item(line).rsplit_once("::") else { return false };
    let of = of.rsplit("::").next().unwrap_or(of);
    declares && ROLES.contains(&name) && of.starts_with(char::is_lowercase)
}

/// Breaking changes that are not described: recorded lines that are gone, by item.
fn broken(record: &str, lines: &BTreeSet<String>, changes: &str) -> Vec<String> {
    let is_gone = |line: &&str| !lines.contains(*line) && !is_told(line, changes);
    let gone = record.lines().filter(is_gone);
    gone.map(|line| {
        format!(
            "api: gone or changed: `{line}`: code that uses it no longer compiles. Bring it back, \
             or describe it in CHANGELOG.md under `{UNRELEASED}`, with `{}`",
            item(line)
        )
    })
    .collect()
}

/// Whether the changes name, in full, the item of a line or one that contains it.
fn is_told(line: &str, changes: &str) -> bool {
    let mut path = item(line);
    loop {
        if changes.contains(&format!("`{path}`")) {
            return true;
        }
        // The name of a crate alone is not enough.
        match path.rsplit_once("::") {
            Some((shorter, _)) if shorter.contains("::") => path = shorter,
            _ => return false,
        }
    }
}

/// The path of the item of a line.
fn item(line: &str) -> &str {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let path = line.split(|c| !is_path(c)).find(|word| word.starts_with("flysch_"));
    path.unwrap_or(line).trim_end_matches(':')
}

/// The section of CHANGELOG.md about unreleased changes.
fn unreleased(changelog: &str) -> Result<&str, String> {
    let (_, rest) = changelog
        .split_once(UNRELEASED)
        .ok_or_else(|| format!("CHANGELOG.md has no heading `{UNRELEASED}`"))?;
    Ok(rest.split("\n## ").next().unwrap_or_default())
}

#[cfg(test)]
mod tests;
