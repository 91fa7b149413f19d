//! Reading logs, whatever their form.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use flysch_api::block::Operation;

use super::{Builder, ReadOptions, Replay, VERSION_2, VERSION_3, blktrace};

/// Longest line of a log, bytes.
const LINE_MAX: u64 = 4096;
/// fio's shortest `wait`, microseconds: shorter waits in a log are ignored.
const WAIT_MIN: u64 = 100;

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{path}: {cause}", path = .0.display(), cause = .1)]
    File(PathBuf, #[source] io::Error),
    /// It is neither a log nor a trace.
    #[error(
        "{path}: neither a log (its first line is `{VERSION_3}` or `{VERSION_2}`) nor a file of \
         blktrace",
        path = .0.display()
    )]
    NoLog(PathBuf),
    /// A trace of another version.
    #[error(
        "{path}: blktrace of version {version}; only version 7 is supported",
        path = .0.display(),
        version = .1
    )]
    Version(PathBuf, u32),
    /// It has no requests.
    #[error("{path}: it has no request to replay", path = .0.display())]
    Empty(PathBuf),
    /// It has too many requests.
    #[error(
        "{path}: more than {max} requests; cut the log into pieces, one for each job",
        path = .0.display(),
        max = super::ENTRIES_MAX
    )]
    TooLong(PathBuf),
}

/// Reads the log, or the blktrace file, at `path`.
///
/// # Errors
/// [`ReadError`] with the path.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Replay, ReadError> {
    let failed = |error| ReadError::File(path.to_path_buf(), error);
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        let what = io::Error::new(io::ErrorKind::InvalidInput, "not a plain file");
        return Err(failed(what));
    }
    let mut file = BufReader::new(file);
    if blktrace::is_one(file.fill_buf().map_err(failed)?) {
        return blktrace::read(&mut file, path, options);
    }
    let mut line = Vec::new();
    read_line(&mut file, &mut line).map_err(failed)?;
    let timed = match trimmed(&line) {
        VERSION_3 => true,
        VERSION_2 => false,
        _ => return Err(ReadError::NoLog(path.to_path_buf())),
    };
    let builder = Builder { number: 1, ..Builder::default() };
    let mut text = Text { builder, options, timed, first: None, waited: 0 };
    while read_line(&mut file, &mut line).map_err(failed)? {
        text.builder.number += 1;
        text.take(trimmed(&line), path)?;
    }
    text.builder.finish(path)
}

/// Reads a line, or the first bytes of one that is too long. False at the end of the file.
fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = io::Read::take(&mut *file, LINE_MAX).read_until(b'\n', line)?;
    if read as u64 == LINE_MAX && !line.ends_with(b"\n") {
        file.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

fn trimmed(line: &[u8]) -> &str {
    str::from_utf8(line).unwrap_or_default().trim()
}

/// A text log while it is being read.
struct Text<'a> {
    builder: Builder,
    options: &'a ReadOptions,
    /// Each line starts with its time.
    timed: bool,
    /// The time of the first request, microseconds.
    first: Option<u64>,
    /// The sum of the waits so far, microseconds.
    waited: u64,
}

impl Text<'_> {
    fn take(&mut self, line: &str, path: &Path) -> Result<(), ReadError> {
        if line.is_empty() {
            return Ok(());
        }
        match self.request(line) {
            Some(Some((at, operation, place))) => {
                let nanos = at.saturating_mul(1000);
                self.builder.push(self.options, (nanos, operation), place, path)
            }
            Some(None) => Ok(()),
            None => {
                self.builder.odd();
                Ok(())
            }
        }
    }

    /// The request in a line, with its time; `Some(None)` if it is not a request, `None` if it is
    /// invalid.
    #[allow(clippy::type_complexity)]
    fn request(&mut self, line: &str) -> Option<Option<(u64, Operation, (u64, u32))>> {
        let mut words = line.split_ascii_whitespace();
        let time = match self.timed {
            true => Some(words.next()?.parse::<u64>().ok()?),
            false => None,
        };
        let (disk, action) = (words.next()?, words.next()?);
        let (offset, length) = (words.next(), words.next());
        if words.next().is_some() {
            return None;
        }
        let Some(offset) = offset else {
            return match action {
                "add" => {
                    self.builder.name(disk);
                    Some(None)
                }
                "open" | "close" => Some(None),
                _ => None,
            };
        };
        let (offset, length) = (offset.parse::<u64>().ok()?, length?.parse::<u32>().ok()?);
        let operation = match action {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "trim" => Operation::Delete,
            "sync" | "datasync" => Operation::Flush,
            "wait" if !self.timed => {
                let micros = if offset < WAIT_MIN { 0 } else { offset };
                self.waited = self.waited.saturating_add(micros);
                return Some(None);
            }
            _ => return None,
        };
        self.builder.name(disk);
        let at = match time {
            Some(time) => time.saturating_sub(*self.first.get_or_insert(time)),
            None => self.waited,
        };
        Some(Some((at, operation, (offset, length))))
    }
}
