//! Logs from blktrace's files: the queued requests.

use std::io::BufRead;
use std::path::Path;

use super::{Builder, ReadError, ReadOptions, Replay};
use crate::blktrace::{self, Next, Queued};

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// Whether a file with these first bytes is one.
pub(super) fn is_one(start: &[u8]) -> bool {
    blktrace::is_blktrace(start)
}

/// Reads all records of `file`.
pub(super) fn read(
    file: &mut dyn BufRead,
    path: &Path,
    options: &ReadOptions,
) -> Result<Replay, ReadError> {
    let mut builder = Builder::default();
    let mut first = None;
    loop {
        builder.number += 1;
        let next =
            blktrace::next(file).map_err(|error| ReadError::File(path.to_path_buf(), error))?;
        let record = match next {
            Next::Record(record, _) => record,
            Next::Version(version) => return Err(ReadError::Version(path.to_path_buf(), version)),
            Next::Lost => {
                builder.odd();
                break;
            }
            Next::End => break,
        };
        let Some(Queued { disk, sector, bytes, operation }) = record.queued() else { continue };
        builder.name(&format!("{},{}", disk.0, disk.1));
        let nanos = record.nanos().saturating_sub(*first.get_or_insert(record.nanos()));
        let bytes = u64::from(bytes).next_multiple_of(u64::from(options.align.max(1)));
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        let place = (sector.saturating_mul(SECTOR), length);
        builder.push(options, (nanos, operation), place, path)?;
    }
    builder.finish(path)
}
