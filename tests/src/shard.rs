//! Long runs in parts: the assignment of items, and a file of results so that nothing is done
//! twice.
//!
//! A result is one line of JSON. The lines of several files are merged by concatenation; an
//! interrupted run continues where its file ends.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use serde_json::Value;

/// One part of N: the items whose number is I modulo N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u64,
    of: u64,
}

impl Default for Shard {
    /// All items.
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

impl Shard {
    /// Whether item `number` belongs to it.
    pub fn has(self, number: u64) -> bool {
        number % self.of == self.index
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, of)| {
            Some(Self { index: index.parse().ok()?, of: of.parse().ok()? })
        });
        parts.filter(|shard| shard.index < shard.of).ok_or_else(|| {
            format!("'{text}' is not a shard; one is I/N, I from 0 to N - 1, such as 0/4")
        })
    }
}

/// A file of results, one line of JSON each.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: Mutex<File>,
    done: BTreeSet<String>,
}

impl Ledger {
    /// Opens or creates the file, and reads what is in it: `key` returns the item of a line. An
    /// incomplete last line is removed.
    ///
    /// # Errors
    /// In words, with the file's name: if it cannot be used, is in use, or holds something else.
    pub fn open(path: &Path, key: impl Fn(&Value) -> Option<String>) -> Result<Self, String> {
        let name = path.display();
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(|e| format!("{name}: cannot open: {e}"))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                format!("{name}: another run writes to it; give each its own --out")
            }
            TryLockError::Error(e) => format!("{name}: cannot lock: {e}"),
        })?;
        let mut done = BTreeSet::new();
        let mut whole = 0;
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).map_err(|e| format!("{name}: {e}"))? > 0 {
            if line.last() != Some(&b'\n') {
                break;
            }
            let value = serde_json::from_slice(&line).ok();
            let found = value.as_ref().and_then(&key);
            done.insert(found.ok_or(format!("{name}: byte {whole}: no result of such a run"))?);
            whole += line.len() as u64;
            line.clear();
        }
        file.set_len(whole).map_err(|e| format!("{name}: cannot cut off: {e}"))?;
        file.seek(std::io::SeekFrom::End(0)).map_err(|e| format!("{name}: {e}"))?;
        Ok(Self { path: path.to_path_buf(), file: Mutex::new(file), done })
    }

    /// Whether the item was in the file when it was opened.
    pub fn has(&self, key: &str) -> bool {
        self.done.contains(key)
    }

    /// Adds a result, in one write.
    ///
    /// # Errors
    /// In words, if the file cannot be written.
    pub fn add(&self, line: &str) -> Result<(), String> {
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(format!("{line}\n").as_bytes())
            .map_err(|e| format!("{}: cannot write: {e}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_everything_out() {
        let shards: Vec<Shard> = (0..3).map(|i| format!("{i}/3").parse().unwrap()).collect();
        for number in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.has(number)).count(), 1);
        }
        assert!(Shard::default().has(7));
        for text in ["", "1", "3/3", "-1/2", "1/0", "a/b"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_ledger_goes_on_behind_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let key = |value: &Value| Some(value.get("key")?.as_str()?.to_string());
        let ledger = Ledger::open(&path, key).unwrap();
        ledger.add(r#"{"key":"a"}"#).unwrap();
        ledger.add(r#"{"key":"b"}"#).unwrap();
        assert!(Ledger::open(&path, key).unwrap_err().contains("another run"));
        drop(ledger);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str(r#"{"key":"#);
        std::fs::write(&path, &text).unwrap();
        let ledger = Ledger::open(&path, key).unwrap();
        assert!(ledger.has("a") && ledger.has("b") && !ledger.has("c"));
        ledger.add(r#"{"key":"c"}"#).unwrap();
        drop(ledger);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"key\":\"a\"}\n{\"key\":\"b\"}\n{\"key\":\"c\"}\n");
        std::fs::write(&path, "something else\n").unwrap();
        assert!(Ledger::open(&path, key).unwrap_err().contains("no result"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "something else\n");
    }
}
