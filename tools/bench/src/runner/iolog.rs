//! A worker's requests, written to a file as they are issued.

use core::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use flysch_api::block::Operation;
use flysch_api::machine::Instant;
use flysch_files::NewFile;

use crate::iolog::{Line, VERSION_3};
use crate::workload::LogTo;

/// Bytes buffered before they are written.
const BUFFER: usize = 1 << 16;

/// Why a log could not be written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{path}: {cause}", path = .path.display())]
pub struct LogError {
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    #[source]
    pub cause: Arc<io::Error>,
}

impl PartialEq for LogError {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.cause.kind() == other.cause.kind()
    }
}

impl Eq for LogError {}

/// The log of one worker. Its file gets its name when the worker has ended.
pub(super) struct Log {
    to: LogTo,
    file: NewFile,
    buffer: Vec<u8>,
    start: Instant,
    last_micros: u64,
    /// The first failure: nothing more is written after it.
    failed: Option<io::Error>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Log {
    /// An empty log.
    pub(super) fn create(to: &LogTo) -> Result<Self, LogError> {
        let failed = |cause| LogError { path: to.path.clone(), cause: Arc::new(cause) };
        let file = NewFile::create(&to.path).map_err(failed)?;
        let buffer = Vec::with_capacity(BUFFER);
        let to = to.clone();
        Ok(Self { to, file, buffer, start: Instant::START, last_micros: 0, failed: None })
    }

    /// The worker starts.
    pub(super) fn begin(&mut self, now: Instant) {
        self.start = now;
        let first = format!("{VERSION_3}\n");
        self.put(first.as_bytes());
        self.line(None, "add");
        self.line(None, "open");
    }

    /// A request was issued.
    pub(super) fn request(
        &mut self,
        operation: Operation,
        (offset, length): (u64, u32),
        now: Instant,
    ) {
        self.last_micros = now.nanos_since(self.start) / 1000;
        self.line(Some((operation, offset, u64::from(length))), "");
    }

    fn line(&mut self, request: Option<(Operation, u64, u64)>, note: &'static str) {
        let line = Line { micros: self.last_micros, disk: &self.to.disk, request, note };
        // Writing to memory cannot fail.
        let _ = write!(self.buffer, "{line}");
        if self.buffer.len() > BUFFER - 1024 {
            self.flush();
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.file.file().write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }

    /// Writes the rest, and gives the file its name.
    pub(super) fn finish(mut self) -> Result<(), LogError> {
        self.line(None, "close");
        self.flush();
        let kept = match self.failed {
            Some(error) => Err(error),
            None => self.file.keep(),
        };
        kept.map_err(|cause| LogError { path: self.to.path, cause: Arc::new(cause) })
    }
}
