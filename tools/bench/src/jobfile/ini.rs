//! The outer form of a job file: sections of options, with includes and variables.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{JobError, Place};

/// Maximum nesting of includes.
const INCLUDE_DEPTH_MAX: u32 = 16;
/// Longest job file, bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// One option as written.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) value: Option<String>,
    pub(super) place: Place,
}

/// A section: `[name]` and its options.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) entries: Vec<Entry>,
}

/// Reads a job file with everything it includes.
pub(super) fn read(path: &Path) -> Result<Vec<Section>, JobError> {
    let mut sections = Vec::new();
    read_into(&mut sections, path, 0)?;
    Ok(sections)
}

fn read_into(sections: &mut Vec<Section>, path: &Path, depth: u32) -> Result<(), JobError> {
    let file: Rc<str> = path.display().to_string().into();
    let whole = |message: String| JobError::wrong(Place::File(file.clone()), message);
    let unreadable =
        |error: io::Error| JobError { is_unreadable: true, ..whole(error.to_string()) };
    let length = fs::metadata(path).map_err(unreadable)?.len();
    if length > FILE_LEN_MAX {
        return Err(whole(format!("{length} bytes are too long for a job file")));
    }
    let text = fs::read(path).map_err(unreadable)?;
    // No cause: where the first byte is that is no text helps nobody.
    let text = String::from_utf8(text).map_err(|_| whole("is not text".into()))?;
    read_text(sections, &text, path, depth)
}

/// Reads the text of the job file `path`.
pub(super) fn read_text(
    sections: &mut Vec<Section>,
    text: &str,
    path: &Path,
    depth: u32,
) -> Result<(), JobError> {
    let file: Rc<str> = path.display().to_string().into();
    for (index, line) in text.lines().enumerate() {
        let place = Place::Line(file.clone(), index as u32 + 1);
        let fail = |message: String| JobError::wrong(place.clone(), message);
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']');
            let name = name.ok_or_else(|| fail(format!("`{line}` lacks its closing bracket")))?;
            let name = name.trim().to_string();
            sections.push(Section { name, place, entries: Vec::new() });
        } else if let Some(name) = line.strip_prefix("include ") {
            if depth == INCLUDE_DEPTH_MAX {
                return Err(fail(format!("more than {INCLUDE_DEPTH_MAX} nested includes")));
            }
            let name = found(name.trim(), path);
            read_into(sections, &name, depth + 1).map_err(|error| JobError {
                message: format!("{error}"),
                place,
                ..error
            })?;
        } else {
            let section = sections.last_mut();
            let section = section.ok_or_else(|| fail(format!("`{line}` is in no [section]")))?;
            section.entries.push(entry(line, place)?);
        }
    }
    Ok(())
}

/// An included file: relative to the working directory, or otherwise to the including file.
fn found(name: &str, from: &Path) -> PathBuf {
    let name = PathBuf::from(name);
    match from.parent() {
        Some(folder) if !name.exists() => folder.join(name),
        _ => name,
    }
}

/// One `name=value` or `name`.
fn entry(line: &str, place: Place) -> Result<Entry, JobError> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (line, None),
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(JobError::wrong(place, format!("`{line}` is not an option")));
    }
    let value = value.map(|value| with_variables(value, &place)).transpose()?;
    Ok(Entry { name: name.to_string(), value, place })
}

/// `value` with every `${NAME}` replaced by the environment's value, and fio's own keywords.
fn with_variables(value: &str, place: &Place) -> Result<String, JobError> {
    let fail = |message: String| JobError::wrong(place.clone(), message);
    let mut result = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| fail(format!("`{value}` lacks a closing brace")))?;
        let content = std::env::var(name).map_err(|cause| {
            let what = match cause {
                std::env::VarError::NotPresent => "is not set",
                std::env::VarError::NotUnicode(_) => "is not text",
            };
            fail(format!("the environment variable {name} {what}"))
        })?;
        result.push_str(before);
        result.push_str(&content);
        rest = after;
    }
    result.push_str(rest);
    if result.contains('$') {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        result = result.replace("$pagesize", "4096").replace("$ncpus", &cpus.to_string());
        if result.contains("$mb_memory") {
            let memory =
                memory_mb().ok_or_else(|| fail("the size of the memory is not known".into()))?;
            result = result.replace("$mb_memory", &memory.to_string());
        }
    }
    Ok(result)
}

/// Memory of this machine, MiB (`proc(5)`, `/proc/meminfo`).
pub(super) fn memory_mb() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}
