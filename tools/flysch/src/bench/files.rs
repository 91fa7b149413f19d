//! The files that a benchmark writes: all of them, or none.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flysch_api::count::counted;
use flysch_api::trace::Record;
use flysch_bench::trace::ring::Ring;
use flysch_bench::trace::{blktrace, perfetto};
use flysch_files::{Made, is_standard_output, make_folder};

use crate::failure::Failure;
use crate::file::Named;
use crate::output::Output;

/// The page in the folder of a report.
const PAGE: &str = "index.html";

/// A page for the browser.
#[derive(Debug)]
pub(super) struct Page {
    // Before the folders: it goes before them.
    file: Named,
    folders: Vec<Made>,
    /// Its name, unless it is standard output.
    path: Option<PathBuf>,
}

impl Page {
    /// Opens the page `index.html` in `folder`, which is created if necessary; `-` is standard
    /// output.
    pub(super) fn in_folder(folder: &Path, output: &mut Output) -> Result<Self, Failure> {
        if is_standard_output(folder) {
            return Self::open(folder, output);
        }
        let folders = make_folder(folder).map_err(|error| Failure::of(folder.display(), error))?;
        Ok(Self { folders, ..Self::open(&folder.join(PAGE), output)? })
    }

    /// Opens the page at `path`; `-` is standard output.
    pub(super) fn open(path: &Path, output: &mut Output) -> Result<Self, Failure> {
        let file = Named::open(path, output)?;
        let is_named = !is_standard_output(path);
        Ok(Self { file, folders: Vec::new(), path: is_named.then(|| path.to_path_buf()) })
    }

    /// Fills and finishes it.
    pub(super) fn finish(mut self, page: &str) -> Result<Option<PathBuf>, Failure> {
        self.file.write(|file| file.write_all(page.as_bytes()))?;
        self.file.finish()?;
        self.folders.into_iter().for_each(Made::keep);
        Ok(self.path)
    }
}

/// The files of `--trace`.
#[derive(Debug)]
pub(super) struct Traces {
    path: PathBuf,
    files: Vec<Named>,
}

impl Traces {
    /// Reports early if a file cannot be written.
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        if is_standard_output(path) {
            return Err(Failure::usage("--trace makes several files: `-` cannot be all of them"));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let failed = |error: io::Error| Failure::of(folder.display(), error);
        match std::fs::metadata(folder).map_err(failed)?.is_dir() {
            true => Ok(Self { path: path.to_path_buf(), files: Vec::new() }),
            false => Err(failed(io::ErrorKind::NotADirectory.into())),
        }
    }

    /// Writes the traces of target number `index`: `FILE.blktrace.LANE` for every lane,
    /// `FILE.perfetto-trace` for all of them.
    pub(super) fn write(
        &mut self,
        (index, target): (usize, &str),
        epoch_ms: u64,
        traces: &[Ring],
        output: &mut Output,
    ) -> Result<(), Failure> {
        let base = match index {
            0 => self.path.clone(),
            _ => with_ending(&self.path, &format!("-{}", index + 1)),
        };
        let mut records: Vec<Record> =
            traces.iter().flat_map(|ring| ring.iter().copied()).collect();
        // Stages follow each other in time, so this puts each lane's records in order.
        records.sort_by_key(|record| record.lane);
        for lane in records.chunk_by(|a, b| a.lane == b.lane) {
            let number = u32::from(lane[0].lane);
            let path = with_ending(&base, &format!(".blktrace.{number}"));
            let mut file = Named::open(&path, output)?;
            file.write(|file| blktrace::write(file, number, epoch_ms, lane))?;
            self.files.push(file);
        }
        let mut file = Named::open(&with_ending(&base, ".perfetto-trace"), output)?;
        file.write(|file| perfetto::write(file, target, &records))?;
        self.files.push(file);
        let lost: u64 = traces.iter().map(Ring::lost).sum();
        if lost > 0 {
            let kept = counted(records.len(), "request", "requests");
            let lost = counted(lost, "earlier one", "earlier ones");
            eprintln!(
                "flysch: the trace holds the last {kept} and lacks {lost}; \
                 --trace-records keeps more"
            );
        }
        Ok(())
    }

    /// Gives all of them their final names.
    pub(super) fn finish(self) -> Result<(), Failure> {
        self.files.into_iter().try_for_each(Named::finish)
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
