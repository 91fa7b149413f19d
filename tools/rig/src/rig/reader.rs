//! TOML tables read key by key, with errors that name the location.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::size;
use crate::target::did_you_mean;

/// An error in a rig's file, and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    path: PathBuf,
    line: usize,
    /// The key, if the error concerns one.
    key: Option<String>,
    cause: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}: ", self.path.display(), self.line)?;
        if let Some(key) = &self.key {
            write!(f, "`{key}`: ")?;
        }
        f.write_str(&self.cause)
    }
}

impl std::error::Error for FileError {}

/// The text of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Text<'_> {
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
    }

    /// The error at `span`.
    pub(super) fn wrong(
        &self,
        span: &Range<usize>,
        key: Option<&str>,
        cause: impl fmt::Display,
    ) -> FileError {
        FileError {
            path: self.path.to_path_buf(),
            line: self.line(span.start),
            key: key.map(str::to_owned),
            cause: cause.to_string(),
        }
    }
}

/// A value and its location.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// A table whose keys are known.
#[derive(Debug)]
pub(super) struct Keys<'a, 't> {
    pub(super) text: Text<'a>,
    pub(super) span: Range<usize>,
    table: &'a DeTable<'t>,
}

impl<'a, 't> Keys<'a, 't> {
    /// Checks that all keys are among `known`, for a table described as `what`.
    pub(super) fn new(
        text: Text<'a>,
        (table, span): (&'a DeTable<'t>, Range<usize>),
        (what, known): (&str, &[&str]),
    ) -> Result<Self, FileError> {
        for (key, _) in table.iter() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let (hint, all) = (did_you_mean(name, known), known.join(", "));
                let cause = format!("{what} has no such key{hint}; its keys are {all}");
                return Err(text.wrong(&key.span(), Some(name), cause));
            }
        }
        Ok(Self { text, span, table })
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value<'t>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// The error in the value of a key.
    pub(super) fn wrong(&self, key: &str, cause: impl fmt::Display) -> FileError {
        let span = self.get(key).map_or(self.span.clone(), Spanned::span);
        self.text.wrong(&span, Some(key), cause)
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<String>, FileError> {
        self.get(key).map(|value| self.string_of(key, value)).transpose()
    }

    fn string_of(&self, key: &str, value: &Value<'t>) -> Result<String, FileError> {
        let wrong = |cause: &str| self.text.wrong(&value.span(), Some(key), cause);
        match value.get_ref() {
            DeValue::String(text) if text.is_empty() => Err(wrong("must not be empty")),
            DeValue::String(text) if text.chars().any(char::is_control) => {
                Err(wrong("has control characters"))
            }
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(wrong("must be a text in quotes")),
        }
    }

    /// The texts of an array, or one text, each with its line.
    pub(super) fn strings(&self, key: &str) -> Result<Option<Vec<(usize, String)>>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let one = |value: &Value<'t>| {
            Ok((self.text.line(value.span().start), self.string_of(key, value)?))
        };
        match value.get_ref() {
            DeValue::Array(all) => all.iter().map(one).collect::<Result<_, _>>().map(Some),
            _ => Ok(Some(vec![one(value)?])),
        }
    }

    /// A required value.
    pub(super) fn need<T>(&self, key: &str, value: Option<T>) -> Result<T, FileError> {
        value.ok_or_else(|| self.text.wrong(&self.span, Some(key), "is missing; it must be given"))
    }

    /// A size in the usual notation, or a number of bytes.
    pub(super) fn size(&self, key: &str) -> Result<Option<u64>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let bytes = match value.get_ref() {
            DeValue::String(text) => size::parse(text),
            DeValue::Integer(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let bytes = bytes.filter(|bytes| *bytes > 0);
        let cause = "must be a size such as \"64M\", \"4G\" or 1048576";
        bytes.map(Some).ok_or_else(|| self.wrong(key, cause))
    }

    /// The tables of an array of tables.
    pub(super) fn tables(
        &self,
        key: &str,
    ) -> Result<Vec<(&'a DeTable<'t>, Range<usize>)>, FileError> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let cause = format!("is written as [[{key}]], once for each");
        let DeValue::Array(all) = value.get_ref() else { return Err(self.wrong(key, cause)) };
        all.iter()
            .map(|one| match one.get_ref() {
                DeValue::Table(table) => Ok((table, one.span())),
                _ => Err(self.text.wrong(&one.span(), Some(key), &cause)),
            })
            .collect()
    }
}
