//! Standard output: tables for people, JSON for programs, never a panic when the reader closes it.

use std::cell::RefCell;
use std::io::{self, BufWriter, Write};
use std::rc::Rc;

use flysch_bench::results::Incident;
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Where results go.
pub(crate) struct Output {
    json: bool,
    to: BufWriter<Box<dyn Write>>,
    is_given_away: bool,
    is_kept: bool,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { json, to: _, is_given_away, is_kept } = self;
        let mut this = f.debug_struct("Output");
        this.field("json", json).field("is_given_away", is_given_away).field("is_kept", is_kept);
        this.finish_non_exhaustive()
    }
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let to = BufWriter::new(Box::new(io::stdout()) as Box<dyn Write>);
        Self { json, to, is_given_away: false, is_kept: false }
    }

    /// An output that is kept for another process.
    pub(crate) fn kept(json: bool) -> (Self, Kept) {
        let kept = Kept::default();
        let to = BufWriter::new(Box::new(kept.clone()) as Box<dyn Write>);
        (Self { json, to, is_given_away: false, is_kept: true }, kept)
    }

    /// Leaves standard output to a file that the user called `-`: results go to standard error from
    /// now on. Returns whether it was still available.
    pub(crate) fn give_away(&mut self) -> bool {
        if self.is_given_away {
            return false;
        }
        self.to = BufWriter::new(Box::new(io::stderr()));
        self.is_given_away = true;
        true
    }

    /// Whether the user wants JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Prints a message besides the result, on standard error. An output kept for another process
    /// has no place for it.
    pub(crate) fn note(&self, line: impl std::fmt::Display) {
        if !self.is_kept {
            eprintln!("flysch: {line}");
        }
    }

    /// One line.
    pub(crate) fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        writeln!(self.to, "{line}")?;
        Ok(())
    }

    /// One line of a log, at once: `words` for people, everything for programs.
    pub(crate) fn event(
        &mut self,
        event: &Value,
        words: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        match self.json {
            true => self.line(event)?,
            false => self.line(words(event))?,
        }
        self.finish()
    }

    /// A value as JSON.
    pub(crate) fn value(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.to, value).map_err(io::Error::from)?;
        self.line("")
    }

    /// Rows under headings, with columns as wide as necessary; numbers are right-aligned.
    pub(crate) fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let columns = heading.len();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(heading[column].chars().count())
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        // Versions and addresses begin with a digit as well.
        let is_number = |cell: &str| {
            let is_one = !cell.contains(':') && cell.matches('.').count() < 2;
            is_one && cell.starts_with(|c: char| c.is_ascii_digit())
        };
        let right: Vec<bool> = (0..columns)
            .map(|column| {
                let mut cells = rows.iter().filter_map(|row| row.get(column)).peekable();
                cells.peek().is_some() && cells.all(|cell| is_number(cell))
            })
            .collect();
        let heading: Vec<String> = heading.iter().map(ToString::to_string).collect();
        for row in std::iter::once(&heading).chain(rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let gap = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
                match right[column] {
                    true => line.extend([&gap, cell.as_str()]),
                    false => line.extend([cell.as_str(), &gap]),
                }
                line.push_str("  ");
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Raw bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.to.write_all(bytes)?)
    }

    /// Flushes what is still buffered.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.to.flush()?)
    }
}

/// What was written to a kept output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Rc<RefCell<Vec<u8>>>);

impl Kept {
    /// All of it.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The incidents that happened, for an event.
pub(crate) fn incidents(all: &[Incident]) -> Value {
    let counted = all.iter().filter(|incident| incident.count > 0);
    let one = |incident: &Incident| {
        let Incident { source, what, count } = incident;
        json!({ "source": source, "what": what, "count": count })
    };
    counted.map(one).collect()
}

/// Incidents of an event in the form used elsewhere: what, and how often.
pub(crate) fn incident_words(incidents: &Value) -> Vec<String> {
    let one = |incident: &Value| {
        let word = |key: &str| incident[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", word("source"), word("what"), incident["count"])
    };
    incidents.as_array().into_iter().flatten().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned_and_versions_are_not() {
        let (mut output, kept) = Output::kept(false);
        let rows = [["7.3.4", "00:01.0", "9 MiB"], ["6.12.118", "00:1f.2", "10.5 MiB"]];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        output.table(&["Version", "Address", "Size"], &rows).unwrap();
        output.finish().unwrap();
        let text = String::from_utf8(kept.take()).unwrap();
        let lines = ["Version   Address      Size", "7.3.4     00:01.0     9 MiB"];
        assert_eq!(text.lines().take(2).collect::<Vec<_>>(), lines);
    }
}
