//! The files of `--trace`.

use std::io;
use std::path::{Path, PathBuf};

use flysch_api::trace::Record;
use flysch_bench::trace::ring::Ring;
use flysch_bench::trace::{blktrace, perfetto};

use super::write_file;
use crate::failure::Failure;

/// The base name of the files of target number `index`.
pub(super) fn base_of(path: &Path, index: usize) -> PathBuf {
    if index == 0 { path.to_owned() } else { with_ending(path, &format!("-{}", index + 1)) }
}

/// Writes the traces of one target: `BASE.blktrace.LANE` for every lane, `BASE.perfetto-trace` for
/// all of them.
pub(super) fn write(
    base: &Path,
    target: &str,
    epoch_ms: u64,
    traces: &[Ring],
) -> Result<(), Failure> {
    let mut records: Vec<Record> = traces.iter().flat_map(|ring| ring.iter().copied()).collect();
    // Stages follow each other in time, so this puts each lane's records in order.
    records.sort_by_key(|record| record.lane);
    for lane in records.chunk_by(|a, b| a.lane == b.lane) {
        let number = u32::from(lane[0].lane);
        let path = with_ending(base, &format!(".blktrace.{number}"));
        write_file(&path, |file| blktrace::write(file, number, epoch_ms, lane))?;
    }
    let path = with_ending(base, ".perfetto-trace");
    write_file(&path, |file| perfetto::write(file, target, &records))?;
    let lost: u64 = traces.iter().map(Ring::lost).sum();
    if lost > 0 {
        let kept = records.len();
        eprintln!(
            "flysch: the trace holds the last {kept} requests and lacks {lost} earlier ones; \
             --trace-records keeps more"
        );
    }
    Ok(())
}

/// Says early that the files could not be written.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let failed = |error: io::Error| Failure::of(folder.display(), error);
    let is_folder = std::fs::metadata(folder).map_err(failed)?.is_dir();
    if is_folder { Ok(()) } else { Err(failed(io::ErrorKind::NotADirectory.into())) }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
