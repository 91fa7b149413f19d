//! Images that come through a pipe.
//!
//! Detection looks at an image more than once and from its end, so what a pipe gives is kept in a
//! file without a name, in the folder for temporary files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use flysch_mtd::FileStorage;

/// More than this does not come through a pipe, bytes: raw flash is smaller, and a pipe without an
/// end would fill the disk.
const SPOOL_MAX: u64 = 64 << 30;

/// Opens the image at `path` for reading; a pipe or socket is read to its end.
pub(crate) fn open(path: &Path) -> io::Result<FileStorage> {
    let file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    match kind.is_fifo() || kind.is_socket() {
        true => FileStorage::of_file(spool(file, SPOOL_MAX)?),
        false => FileStorage::of_file(file),
    }
}

/// A file without a name with everything that `source` gives, at most `most` bytes.
fn spool(source: impl io::Read, most: u64) -> io::Result<File> {
    let mut file = tempfile::tempfile().map_err(|error| in_folder(&error))?;
    let count =
        io::copy(&mut source.take(most + 1), &mut file).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => in_folder(&error),
            _ => error,
        })?;
    if count > most {
        let why = format!("the pipe gives more than {} GiB: save it in a file", most >> 30);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(file)
}

/// The error with the place and the remedy.
fn in_folder(error: &io::Error) -> io::Error {
    let folder = std::env::temp_dir();
    let why = format!(
        "what a pipe gives is kept in {}: {error}; name another folder in TMPDIR",
        folder.display()
    );
    io::Error::new(error.kind(), why)
}

#[cfg(test)]
mod tests {
    use flysch_mtd::Storage as _;

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_and_no_further_than_a_flash() {
        let storage = FileStorage::of_file(spool(&b"flash"[..], 5).unwrap()).unwrap();
        let mut bytes = [0; 5];
        storage.read_at(0, &mut bytes).unwrap();
        assert_eq!((storage.size(), &bytes), (5, b"flash"));
        let error = spool(io::repeat(0), 1 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("save it in a file"), "{error}");
    }
}
