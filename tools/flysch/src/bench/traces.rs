//! The files of `--trace`.

use std::path::{Path, PathBuf};

use flysch_bench::trace::ring::Ring;

use crate::failure::Failure;

/// The base name of the files of target number `index`.
pub(super) fn path_of(path: &Path, index: usize) -> PathBuf {
    if index == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!("-{}", index + 1));
    name.into()
}

/// Writes the traces of one target.
pub(super) fn write(_path: &Path, _traces: &[Ring]) -> Result<(), Failure> {
    Err(Failure::failed("traces are not written yet"))
}
