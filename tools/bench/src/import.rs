//! Traces of Linux's own storage stack, turned into I/Os with their four areas.
//!
//! | area | from | to |
//! |---|---|---|
//! | 1 file system | the system call's entry | its first `block_bio_queue` |
//! | 2 block layer and driver | there | the last event before the doorbell: `ufshcd_command` send, `mmc_request_start`, `scsi_dispatch_cmd_start`, otherwise `block_rq_issue` |
//! | 3 device | there | the interrupt that brought the completion; without its own interrupt, the driver's completion |
//! | 4 completion | there | the system call's exit; without a call `block_rq_complete` |
//!
//! `text` reads the output of ftrace, `trace-cmd report` and `perf script`, `binary` reads
//! blktrace's files; both produce events. `join` turns them into I/Os, `summary` computes their
//! figures. Input may come from anywhere: the lengths of lines and the numbers of events and open
//! items are bounded, and unknown input is counted and reported.

mod binary;
mod event;
mod join;
mod page;
mod spans;
mod summary;
mod text;
mod words;

use std::io::{BufRead, Read as _};

use event::Event;
pub use join::{Driver, Io, Joined, Loss};
pub use page::page;
pub use spans::write_perfetto;
pub use summary::{AREAS, Area, Group, Summary, summarise};
pub use words::render;

/// Maximum number of events from all files together.
pub const EVENTS_MAX: usize = 4 << 20;

/// Why a trace is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// It does not fit into memory.
    #[error("the trace has more than {EVENTS_MAX} events; cut it into pieces")]
    TooMany,
    /// Its times are ticks of an unknown length.
    #[error(
        "the times are ticks of a counter (trace_clock), and their length is not known; give \
         --ticks-per-second, or write two lines `flysch_clock: $EPOCHREALTIME` to trace_marker, \
         one before the run and one after it"
    )]
    Ticks,
    /// It is a blktrace file of another version.
    #[error(
        "a blktrace file of version {0}; only version 7 is supported: use `blktrace` up to 1.3"
    )]
    Version(u32),
    /// It is a recorder's internal format, or compressed.
    #[error("{what}; {remedy} makes text of it")]
    NotText {
        /// What it is.
        what: &'static str,
        /// The command that converts it.
        remedy: &'static str,
    },
    /// It contains nothing known.
    #[error("{}", nothing(.0))]
    Nothing(Box<Told>),
}

/// Why there is nothing to join.
fn nothing(told: &Told) -> String {
    let known = told.other_events + told.odd_events;
    match &told.first_odd {
        _ if told.lines == 0 => "it is empty".into(),
        Some(first) if known == 0 => format!(
            "none of its lines is one of ftrace, `trace-cmd report` or `perf script`, which have \
             `TASK-THREAD [CPU] TIME: EVENT: ...`; the first: `{first}`"
        ),
        Some(first) if told.odd_events > 0 => {
            let what = match told.odd_events {
                1 => "its only event of a storage stack cannot be read".into(),
                count => format!("none of its {count} events of a storage stack can be read"),
            };
            format!("{what}; the first: `{first}`")
        }
        _ => "it has no event of a storage stack; record block_bio_queue, block_rq_issue and \
              block_rq_complete at least (docs/trace.md)"
            .into(),
    }
}

/// The first bytes of files that are not text: what they are, and what converts them to text.
const OTHER_FILES: [(&[u8], &str, &str); 7] = [
    (b"\x17\x08Dtracing", "a trace.dat of trace-cmd", "`trace-cmd report -i FILE`"),
    (b"PERFILE2", "a perf.data", "`perf script --ns -i FILE`"),
    (b"2ELIFREP", "a perf.data of the other byte order", "`perf script --ns -i FILE`"),
    (b"\x1F\x8B", "a file compressed by gzip", "`zcat FILE`"),
    (b"\x28\xB5\x2F\xFD", "a file compressed by zstd", "`zstdcat FILE`"),
    (b"\xFD7zXZ", "a file compressed by xz", "`xzcat FILE`"),
    (b"BZh", "a file compressed by bzip2", "`bzcat FILE`"),
];

/// Everything taken from files so far.
#[derive(Debug, Default)]
pub struct Trace {
    events: Vec<Event>,
    names: event::Names,
    told: Told,
    clock: text::Ticks,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Told {
    /// Lines or records.
    pub lines: u64,
    /// Known events among them.
    pub events: u64,
    /// Events of other names.
    pub other_events: u64,
    /// Lines that are not events, not counting comments.
    pub unknown_lines: u64,
    /// Known events that cannot be read, and the first of them.
    pub odd_events: u64,
    /// The first line that was not understood.
    pub first_odd: Option<String>,
    /// Events that the recorder lost, as far as it reports them.
    pub lost: u64,
}

impl Trace {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a file: blktrace's, or text.
    ///
    /// # Errors
    /// [`ImportError`]: it cannot be read, is of another kind, or is more than fits.
    pub fn read(&mut self, file: &mut dyn BufRead) -> Result<(), ImportError> {
        let start = file.fill_buf()?;
        if crate::blktrace::is_blktrace(start) {
            return binary::read(self, file);
        }
        if let Some(&(_, what, remedy)) = OTHER_FILES.iter().find(|it| start.starts_with(it.0)) {
            return Err(ImportError::NotText { what, remedy });
        }
        text::read(self, file)
    }

    /// The I/Os. `ticks_per_second` is the rate of the clock if times are ticks; without it the
    /// marks in the trace are used.
    ///
    /// # Errors
    /// [`ImportError::Ticks`] if the rate is unknown, [`ImportError::Nothing`] without events.
    pub fn join(mut self, ticks_per_second: Option<f64>) -> Result<(Joined, Told), ImportError> {
        if self.events.is_empty() {
            return Err(ImportError::Nothing(Box::new(self.told)));
        }
        self.clock.apply(&mut self.events, ticks_per_second)?;
        self.events.sort_by_key(|event| event.nanos);
        Ok((join::join(&self.events, self.names), self.told))
    }

    fn push(&mut self, event: Event) -> Result<(), ImportError> {
        if self.events.len() == EVENTS_MAX {
            return Err(ImportError::TooMany);
        }
        self.events.push(event);
        self.told.events += 1;
        Ok(())
    }

    fn odd(&mut self, line: &str) {
        self.told.first_odd.get_or_insert_with(|| {
            let shown = |c: char| if c.is_control() { '?' } else { c };
            line.chars().take(120).map(shown).collect()
        });
    }
}

/// As much of a file as its longest line may be.
fn bounded(file: &mut dyn BufRead, most: u64) -> std::io::Take<&mut dyn BufRead> {
    file.take(most)
}

#[cfg(test)]
mod tests;
