//! Files that the user named: `-`, a file, a device, a pipe.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use flysch_files::Sink;

use crate::failure::Failure;
use crate::output::Output;

/// Bytes buffered before they are written.
const BUFFER: usize = 1 << 16;

/// An output and its name.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) sink: Sink,
    path: PathBuf,
}

impl Named {
    /// Opens it to be written from the start. If that is standard output, `output` switches to
    /// standard error.
    pub(crate) fn open(path: &Path, output: &mut Output) -> Result<Self, Failure> {
        Self::of(Sink::open(path), path, output)
    }

    /// Opens it to be written at any offset.
    pub(crate) fn open_anywhere(path: &Path, output: &mut Output) -> Result<Self, Failure> {
        Self::of(Sink::open_anywhere(path), path, output)
    }

    /// Opens it to be modified, starting with the content of the file `from`.
    pub(crate) fn copy(from: &Path, path: &Path, output: &mut Output) -> Result<Self, Failure> {
        Self::of(Sink::copy(from, path), path, output)
    }

    fn of(sink: io::Result<Sink>, path: &Path, output: &mut Output) -> Result<Self, Failure> {
        let sink = sink.map_err(|error| failed(path, error))?;
        if sink.is_standard_output() && !output.give_away() {
            return Err(Failure::usage("only one output can be standard output: name another"));
        }
        Ok(Self { sink, path: path.to_path_buf() })
    }

    /// Starts over, with the content of the file `from`.
    pub(crate) fn fill(&self, from: &Path) -> Result<(), Failure> {
        self.sink.fill(from).map_err(|error| failed(&self.path, error))
    }

    /// Where the result of [`copy`](Self::copy) lies until it is finished: never shown to the user.
    pub(crate) fn temporary_path(&self) -> &Path {
        self.sink.temporary_path().expect("a copy is a file")
    }

    /// Writes from the start.
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<&mut Sink>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut buffered = BufWriter::with_capacity(BUFFER, &mut self.sink);
        let written = write(&mut buffered);
        // Not on drop: after a failure the rest would be tried again.
        let written = match written {
            Ok(()) => buffered.into_inner().map(drop).map_err(|error| error.into_parts().0),
            Err(error) => {
                drop(buffered.into_parts());
                Err(error)
            }
        };
        written.map_err(|error| failed(&self.path, error))
    }

    /// Puts everything into its final place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.sink.finish().map_err(|error| failed(&self.path, error))
    }
}

/// Checks that the files that a verb reads are there, before a device is opened for it.
///
/// # Errors
/// The file, and why it cannot be read.
pub(crate) fn check_inputs<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Result<(), Failure> {
    // A pipe is not opened: what is in it can be read only once.
    let check = |path: &Path| match path.metadata()?.file_type() {
        kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        kind if kind.is_file() => File::open(path).map(drop),
        _ => Ok(()),
    };
    let mut given = paths.into_iter().filter(|path| path.as_os_str() != "-");
    given.try_for_each(|path| check(path).map_err(|error| Failure::of(path.display(), error)))
}

/// The text of an input file.
///
/// # Errors
/// The file, and why it cannot be read; it is a usage error if it is no text.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => Failure::usage(format!("{}: is not text", path.display())),
        _ => Failure::of(path.display(), error),
    })
}

/// Refuses an output that is read as well: what is in it would be lost, or change while it is read.
///
/// # Errors
/// The output, and as what it is read.
pub(crate) fn spare_inputs(
    output: &Path,
    inputs: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<(), Failure> {
    let same = inputs.into_iter().find(|input| flysch_files::is_same(output, input.as_ref()));
    same.map_or(Ok(()), |input| {
        let (output, input) = (output.display(), input.as_ref().display());
        Err(Failure::usage(format!("{output}: is the input {input} itself: name another output")))
    })
}

/// Why the output called `path` could not be written.
pub(crate) fn failed(path: &Path, error: io::Error) -> Failure {
    if flysch_files::is_standard_output(path) {
        return Failure::from(error);
    }
    Failure::of(path.display(), error)
}
