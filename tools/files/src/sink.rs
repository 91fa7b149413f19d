//! An output named by the user.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::io::Errno;

use crate::leftovers::Made;
use crate::new::{NewFile, Temporary};
use crate::target::{Target, is_standard_output};

/// The name of the output `path` in messages to the user.
pub fn say(path: &Path) -> String {
    match is_standard_output(path) {
        true => "standard output".into(),
        false => path.display().to_string(),
    }
}

/// Opens something that is written to in place.
fn open_existing(path: &Path) -> io::Result<File> {
    let there = std::fs::metadata(path)?;
    if there.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    let mut options = File::options();
    // Block devices can be read back. Opened for reading too, a pipe would never end for its
    // reader.
    options.write(true).read(there.file_type().is_block_device());
    // A regular file behind a descriptor is already somebody's output.
    options.append(there.is_file());
    options.open(path)
}

/// An output: bytes written to it are in place after [`finish`](Self::finish).
#[derive(Debug)]
pub struct Sink(To);

#[derive(Debug)]
enum To {
    /// A regular file.
    New(NewFile),
    /// Something written to in place. The flag: it is standard output.
    Existing(File, bool),
    /// The same, through a spool file that can be written anywhere.
    Spooled { spool: Temporary, to: File, is_stdout: bool },
}

impl Sink {
    /// Opens `path` for writing from the start; `-` is standard output. Waits for a pipe's reader.
    ///
    /// # Errors
    /// Those of the system; nothing has been changed then.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(match Target::of(path)? {
            Target::Regular(path, old) => To::New(NewFile::replacing(path, old)?),
            Target::Existing(path) => To::Existing(open_existing(&path)?, false),
            Target::Complaints => To::Existing(shared(io::stderr())?, false),
            Target::Standard => To::Existing(shared(io::stdout())?, true),
        }))
    }

    /// Opens `path` for writing and reading anywhere. An output that cannot seek gets everything at
    /// the end.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_anywhere(path: &Path) -> io::Result<Self> {
        Ok(match Self::open(path)?.0 {
            To::Existing(to, is_stdout) => {
                Self(To::Spooled { spool: Temporary::spool()?, to, is_stdout })
            }
            other => Self(other),
        })
    }

    /// Opens `path` for writing and reading anywhere, with the content of the file `from`.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of reading `from`.
    pub fn copy(from: &Path, path: &Path) -> io::Result<Self> {
        let sink = Self::open_anywhere(path)?;
        sink.fill(from)?;
        Ok(sink)
    }

    /// Starts over, with the content of the file `from`.
    ///
    /// # Errors
    /// Those of reading `from`, and of writing.
    pub fn fill(&self, from: &Path) -> io::Result<()> {
        let mut file = self.file();
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        io::copy(&mut File::open(from)?, &mut file).map(drop)
    }

    /// The file that takes the bytes for now.
    pub fn file(&self) -> &File {
        match &self.0 {
            To::New(new) => new.file(),
            To::Existing(file, _) => file,
            To::Spooled { spool, .. } => &spool.file,
        }
    }

    /// The path of [`file`](Self::file), if it has one: for opening it, never for showing to the
    /// user.
    pub fn temporary_path(&self) -> Option<&Path> {
        match &self.0 {
            To::New(new) => Some(new.temporary_path()),
            To::Spooled { spool, .. } => Some(&spool.path),
            To::Existing(..) => None,
        }
    }

    /// Whether the output is a regular file.
    pub fn is_regular(&self) -> bool {
        matches!(self.0, To::New(_))
    }

    /// Whether what was written can be read back.
    pub fn can_be_read(&self) -> bool {
        let is_block =
            |file: &File| file.metadata().is_ok_and(|it| it.file_type().is_block_device());
        match &self.0 {
            To::New(_) | To::Spooled { .. } => true,
            To::Existing(file, is_stdout) => !is_stdout && is_block(file),
        }
    }

    /// Whether it is standard output, which nothing else may use then.
    pub fn is_standard_output(&self) -> bool {
        matches!(self.0, To::Existing(_, true) | To::Spooled { is_stdout: true, .. })
    }

    /// Puts everything in place.
    ///
    /// # Errors
    /// Those of the system; an existing regular file is then unchanged.
    pub fn finish(self) -> io::Result<()> {
        match self.0 {
            To::New(new) => new.keep(),
            To::Existing(file, _) => settle(&file),
            To::Spooled { mut spool, mut to, .. } => {
                spool.file.seek(SeekFrom::Start(0))?;
                io::copy(&mut spool.file, &mut to)?;
                settle(&to)
            }
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// Makes sure that a block device keeps what was written.
fn settle(file: &File) -> io::Result<()> {
    match file.metadata()?.file_type().is_block_device() {
        true => file.sync_all(),
        false => Ok(()),
    }
}

fn shared(descriptor: impl AsFd) -> io::Result<File> {
    Ok(File::from(descriptor.as_fd().try_clone_to_owned()?))
}

/// Creates `path` and the folders above it where they are missing. Those created are removed again
/// unless they are kept.
///
/// # Errors
/// Those of the system.
pub fn make_folder(path: &Path) -> io::Result<Vec<Made>> {
    let mut made = Vec::new();
    let mut absent: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        .collect();
    while let Some(folder) = absent.pop() {
        // The innermost comes first, so it is dropped before the others.
        made.insert(
            0,
            Made::folder(folder).map_err(|error| match error.kind() {
                // Whatever exists there is not a folder.
                io::ErrorKind::AlreadyExists if !folder.is_dir() => {
                    io::ErrorKind::NotADirectory.into()
                }
                _ => error,
            })?,
        );
    }
    Ok(made)
}

#[cfg(test)]
mod tests;
