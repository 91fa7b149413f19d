//! The outer form of a job file: sections of options, with includes and variables.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{JobError, Place};

/// Maximum nesting of includes.
const INCLUDE_DEPTH_MAX: usize = 16;
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
    read_into(&mut sections, path, &mut Vec::new())?;
    Ok(sections)
}

/// The bytes of a job file; `-` that the user gives is standard input, as to fio.
fn bytes_of(path: &Path, is_included: bool) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if path == Path::new("-") && !is_included {
        io::stdin().lock().take(FILE_LEN_MAX + 1).read_to_end(&mut text)?;
    } else {
        fs::File::open(path)?.take(FILE_LEN_MAX + 1).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// `open`: the files that include this one.
fn read_into(
    sections: &mut Vec<Section>,
    path: &Path,
    open: &mut Vec<PathBuf>,
) -> Result<(), JobError> {
    let file: Rc<str> = path.display().to_string().into();
    let whole = |message: String| JobError::wrong(Place::File(file.clone()), message);
    let unreadable =
        |error: io::Error| JobError { is_unreadable: true, ..whole(error.to_string()) };
    let text = bytes_of(path, !open.is_empty()).map_err(unreadable)?;
    if text.len() as u64 > FILE_LEN_MAX {
        return Err(whole(format!("more than {FILE_LEN_MAX} bytes are too long for a job file")));
    }
    let text = core::str::from_utf8(&text).map_err(|error| {
        let before = &text[..error.valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() as u32 + 1;
        whole(format!("is not text: line {line} is not UTF-8"))
    })?;
    read_text(sections, text, path, open)
}

/// Reads the text of the job file `path`.
pub(super) fn read_text(
    sections: &mut Vec<Section>,
    text: &str,
    path: &Path,
    open: &mut Vec<PathBuf>,
) -> Result<(), JobError> {
    let file: Rc<str> = path.display().to_string().into();
    // Some editors begin a text with a mark of its encoding.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    open.push(path.canonicalize().unwrap_or_else(|_| path.to_path_buf()));
    for (index, line) in text.lines().enumerate() {
        let place = Place::Line(file.clone(), index as u32 + 1);
        let fail = |message: String| JobError::wrong(place.clone(), message);
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(control) = line.chars().find(|&c| c.is_control() && c != '\t') {
            let control = control.escape_default();
            return Err(fail(format!("the control character {control} is not part of a text")));
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']');
            let name = name.ok_or_else(|| fail(format!("`{line}` lacks its closing bracket")))?;
            let name = name.trim().to_string();
            sections.push(Section { name, place, entries: Vec::new() });
        } else if let Some(name) = included(line) {
            if open.len() > INCLUDE_DEPTH_MAX {
                return Err(fail(format!("more than {INCLUDE_DEPTH_MAX} nested includes")));
            }
            let name = found(name, path);
            // Named once: it would have to be read without end.
            if name.canonicalize().is_ok_and(|name| open.contains(&name)) {
                return Err(fail(format!("`{}` includes itself", name.display())));
            }
            read_into(sections, &name, open).map_err(|error| JobError {
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
    open.pop();
    Ok(())
}

/// The file named by a line that includes one.
fn included(line: &str) -> Option<&str> {
    let name = line.strip_prefix("include").filter(|name| name.starts_with([' ', '\t']));
    name.map(str::trim)
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
