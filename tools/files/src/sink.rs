//! An output that the user named.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::io::Errno;

use crate::leftovers::Made;
use crate::new::{NewFile, Temporary};
use crate::target::{Target, is_standard_output};

/// What the user is told of an output called `path`.
pub fn say(path: &Path) -> String {
    match is_standard_output(path) {
        true => "standard output".into(),
        false => path.display().to_string(),
    }
}

/// Opens what is written to as it is.
fn open_existing(path: &Path) -> io::Result<File> {
    let there = std::fs::metadata(path)?;
    if there.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    let mut options = File::options();
    // What a block device holds can be read back. A pipe would never end for its reader.
    options.write(true).read(there.file_type().is_block_device());
    // A plain file behind a descriptor is somebody's output already.
    options.append(there.is_file());
    options.open(path)
}

/// An output: bytes written to it are in their place after [`finish`](Self::finish).
#[derive(Debug)]
pub struct Sink(To);

#[derive(Debug)]
enum To {
    /// A plain file.
    New(NewFile),
    /// What is written to as it is. The flag: it is standard output.
    Existing(File, bool),
    /// The same, by way of a file with places.
    Spooled { spool: Temporary, to: File, is_stdout: bool },
}

impl Sink {
    /// Opens `path` for writing from the front on; `-` is standard output. A pipe without a reader
    /// is waited for.
    ///
    /// # Errors
    /// What the system says; nothing was changed then.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(match Target::of(path)? {
            Target::Regular(path, old) => To::New(NewFile::replacing(path, old)?),
            Target::Existing(path) => To::Existing(open_existing(&path)?, false),
            Target::Complaints => To::Existing(shared(io::stderr())?, false),
            Target::Standard => To::Existing(shared(io::stdout())?, true),
        }))
    }

    /// Opens `path` for writing and reading anywhere. What has no places gets everything at the
    /// end.
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
    /// As [`open`](Self::open), and of reading `from`.
    pub fn copy(from: &Path, path: &Path) -> io::Result<Self> {
        let sink = Self::open_anywhere(path)?;
        sink.fill(from)?;
        Ok(sink)
    }

    /// Starts over, with the content of the file `from`.
    ///
    /// # Errors
    /// Of reading `from`, and of writing.
    pub fn fill(&self, from: &Path) -> io::Result<()> {
        let mut file = self.file();
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        io::copy(&mut File::open(from)?, &mut file).map(drop)
    }

    /// Where the bytes go for now.
    pub fn file(&self) -> &File {
        match &self.0 {
            To::New(new) => new.file(),
            To::Existing(file, _) => file,
            To::Spooled { spool, .. } => &spool.file,
        }
    }

    /// The path of [`file`](Self::file) where it has one of its own: for opening it, never for
    /// telling the user.
    pub fn temporary_path(&self) -> Option<&Path> {
        match &self.0 {
            To::New(new) => Some(new.temporary_path()),
            To::Spooled { spool, .. } => Some(&spool.path),
            To::Existing(..) => None,
        }
    }

    /// Whether a plain file comes of it.
    pub fn is_regular(&self) -> bool {
        matches!(self.0, To::New(_))
    }

    /// Whether what was written can be read again.
    pub fn can_be_read(&self) -> bool {
        let is_block =
            |file: &File| file.metadata().is_ok_and(|it| it.file_type().is_block_device());
        match &self.0 {
            To::New(_) | To::Spooled { .. } => true,
            To::Existing(file, is_stdout) => !is_stdout && is_block(file),
        }
    }

    /// Whether it is standard output, which belongs to it then.
    pub fn is_standard_output(&self) -> bool {
        matches!(self.0, To::Existing(_, true) | To::Spooled { is_stdout: true, .. })
    }

    /// Puts everything in its place.
    ///
    /// # Errors
    /// What the system says; a plain file that stood there still does then.
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

/// A block device keeps what it has got.
fn settle(file: &File) -> io::Result<()> {
    match file.metadata()?.file_type().is_block_device() {
        true => file.sync_all(),
        false => Ok(()),
    }
}

fn shared(descriptor: impl AsFd) -> io::Result<File> {
    Ok(File::from(descriptor.as_fd().try_clone_to_owned()?))
}

/// Makes `path` and the folders above it, as far as they are absent. Those that were made are
/// removed again unless they are kept.
///
/// # Errors
/// What the system says.
pub fn make_folder(path: &Path) -> io::Result<Vec<Made>> {
    let mut made = Vec::new();
    let mut absent: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        .collect();
    while let Some(folder) = absent.pop() {
        // Before the others on drop: it is the innermost.
        made.insert(0, Made::folder(folder)?);
    }
    Ok(made)
}

#[cfg(test)]
mod tests;
