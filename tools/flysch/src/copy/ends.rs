//! The two ends of a copy: source and destination of the bytes.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Stdin, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flysch_files::Sink as OutputFile;
use flysch_rig::blocks::Blocks;
use flysch_rig::rig::RigFile;
use flysch_rig::{KINDS, Needs};

use crate::failure::Failure;
use crate::file::failed;
use crate::geom::{Disk, On};

/// Runs of zeros of this many bytes become holes.
const HOLE: usize = 64 << 10;

/// An end as the user wrote it.
#[derive(Debug)]
pub(super) enum End {
    /// Standard input or output.
    Stream,
    File(PathBuf),
    Target(String, On),
}

impl End {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        match text {
            "-" => Ok(Self::Stream),
            "" => Err(Failure::usage("an empty name is not a file")),
            _ if looks_like_target(text) => Ok(Self::Target(text.into(), text.parse()?)),
            _ => Ok(Self::File(text.into())),
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream)
    }

    /// The files of this machine behind it.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        match self {
            Self::Stream => Ok(Vec::new()),
            Self::File(path) => Ok(vec![path.clone()]),
            Self::Target(_, target) => target.files(),
        }
    }

    /// The stack, if this end is a target.
    pub(super) fn open(&self, needs: &Needs) -> Result<Option<Disk>, Failure> {
        match self {
            Self::Target(_, target) => Ok(Some(Disk::open(target, needs, None)?)),
            Self::Stream | Self::File(_) => Ok(None),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream => f.write_str("-"),
            Self::File(path) => path.display().fmt(f),
            Self::Target(text, _) => f.write_str(text),
        }
    }
}

/// Whether the user meant a target, possibly misspelt. A leading `./` always makes it a file.
fn looks_like_target(text: &str) -> bool {
    let kind = text.split([',', ':']).next().unwrap_or(text);
    let is_kind = KINDS.iter().any(|known| known.name.split(':').next() == Some(kind));
    let has_keys = text.contains(',') && text.contains('=');
    let is_provider = RigFile::split(text).is_some_and(|(_, provider)| !provider.is_empty());
    is_kind
        || is_provider && !text.starts_with("./")
        || (!text.contains('/') && (kind.contains('@') || has_keys))
}

/// The source of a copy.
pub(super) enum Source<'a> {
    Stream(Stdin),
    File { file: File, path: PathBuf, skip: u64, length: Option<u64> },
    Disk { disk: Box<dyn Blocks + 'a>, skip: u64 },
}

impl<'a> Source<'a> {
    pub(super) fn open(end: &End, stack: Option<&'a mut Disk>, skip: u64) -> Result<Self, Failure> {
        match (end, stack) {
            (End::File(path), _) => Self::file(path, skip).map_err(|e| Failure::of(end, e)),
            (_, Some(stack)) => {
                let size = stack.geometry().bytes();
                if skip > size {
                    return Err(Failure::of(
                        end,
                        format!("has {size} bytes, but --skip is {skip}"),
                    ));
                }
                Ok(Self::Disk { disk: stack.blocks(), skip })
            }
            (_, None) => {
                let mut stdin = io::stdin();
                let skipped = io::copy(&mut (&mut stdin).take(skip), &mut io::sink());
                skipped.map_err(|e| Failure::of("standard input", e))?;
                Ok(Self::Stream(stdin))
            }
        }
    }

    fn file(path: &Path, skip: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            // A pipe or device: read as it comes.
            io::copy(&mut (&mut file).take(skip), &mut io::sink())?;
            return Ok(Self::File { file, path: path.into(), skip, length: None });
        }
        let Some(length) = metadata.len().checked_sub(skip) else {
            let text = format!("has {} bytes, but --skip is {skip}", metadata.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        };
        Ok(Self::File { file, path: path.into(), skip, length: Some(length) })
    }

    /// The total number of bytes, if it is known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Stream(_) => None,
            Self::File { length, .. } => *length,
            Self::Disk { disk, skip } => Some(disk.geometry().bytes() - skip),
        }
    }

    /// Reads the bytes at `offset`; fewer than requested only at the end.
    pub(super) fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<usize, Failure> {
        match self {
            Self::Stream(stdin) => {
                read_full(stdin, to).map_err(|e| Failure::of("standard input", e))
            }
            Self::File { file, path, length: None, .. } => {
                read_full(file, to).map_err(|e| Failure::of(path.display(), e))
            }
            Self::File { file, path, skip, length: Some(length) } => {
                let left = length.saturating_sub(offset).min(to.len() as u64) as usize;
                let read = file.read_exact_at(&mut to[..left], *skip + offset);
                read.map_err(|e| Failure::of(path.display(), e))?;
                Ok(left)
            }
            Self::Disk { disk, skip } => {
                let left = disk.geometry().bytes() - *skip - offset;
                let length = left.min(to.len() as u64) as usize;
                disk.read(*skip + offset, &mut to[..length]).map_err(Failure::failed)?;
                Ok(length)
            }
        }
    }
}

fn read_full(from: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match from.read(&mut to[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The destination of a copy.
pub(super) enum Sink<'a> {
    File { file: OutputFile, path: PathBuf, seek: u64 },
    Disk { disk: Box<dyn Blocks + 'a>, seek: u64 },
}

impl<'a> Sink<'a> {
    pub(super) fn open(end: &End, stack: Option<&'a mut Disk>, seek: u64) -> Result<Self, Failure> {
        match (end, stack) {
            (End::File(path), _) => Self::file(path, seek),
            (_, None) => Self::file(Path::new("-"), seek),
            (_, Some(stack)) => {
                let geometry = stack.geometry();
                if geometry.read_only {
                    return Err(Failure::of(end, "is write protected"));
                }
                if seek > geometry.bytes() {
                    let size = geometry.bytes();
                    return Err(Failure::of(
                        end,
                        format!("has {size} bytes, but --seek is {seek}"),
                    ));
                }
                Ok(Self::Disk { disk: stack.blocks(), seek })
            }
        }
    }

    fn file(path: &Path, seek: u64) -> Result<Self, Failure> {
        let failed = |error| failed(path, error);
        let file = OutputFile::open(path).map_err(failed)?;
        if file.is_regular() && seek > 0 && path.exists() {
            // What comes before the place written to stays.
            let mut before = File::open(path).map_err(failed)?.take(seek);
            io::copy(&mut before, &mut file.file()).map_err(failed)?;
        } else if !file.is_regular() && seek > 0 {
            let placed = file.file().seek(SeekFrom::Start(seek));
            placed.map_err(|cause| {
                let text = "--seek needs a DST that can be positioned, not a stream";
                Failure::usage(format!("{text} ({cause})"))
            })?;
        }
        Ok(Self::File { file, path: path.into(), seek })
    }

    /// Whether the copy goes to standard output.
    pub(super) fn is_standard_output(&self) -> bool {
        matches!(self, Self::File { file, .. } if file.is_standard_output())
    }

    /// Whether written data can be read back.
    pub(super) fn can_be_read(&self) -> bool {
        match self {
            Self::File { file, .. } => file.can_be_read(),
            Self::Disk { .. } => true,
        }
    }

    /// The maximum number of bytes, if it is known.
    pub(super) fn room(&self) -> Option<u64> {
        match self {
            Self::Disk { disk, seek } => Some(disk.geometry().bytes() - seek),
            Self::File { .. } => None,
        }
    }

    /// Writes `from`, which belongs at `offset`.
    pub(super) fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), Failure> {
        match self {
            Self::File { file, path, seek } if file.is_regular() => {
                let mut at = *seek + offset;
                for piece in from.chunks(HOLE) {
                    if piece.iter().any(|byte| *byte != 0) {
                        let written = file.file().write_all_at(piece, at);
                        written.map_err(|error| failed(path, error))?;
                    }
                    at += piece.len() as u64;
                }
                Ok(())
            }
            Self::File { file, path, .. } => {
                file.write_all(from).map_err(|error| failed(path, error))
            }
            Self::Disk { disk, seek } => {
                let room = disk.geometry().bytes() - *seek - offset;
                if from.len() as u64 > room {
                    let fits = offset + room;
                    return Err(Failure::failed(format!("the target is full after {fits} bytes")));
                }
                disk.write(*seek + offset, from).map_err(Failure::failed)
            }
        }
    }

    /// Makes `bytes` bytes durable.
    pub(super) fn flush(&mut self, bytes: u64) -> Result<(), Failure> {
        match self {
            Self::File { file, path, seek } if file.is_regular() => {
                // The last hole is no hole before the file has its length.
                let ended =
                    file.file().set_len(*seek + bytes).and_then(|()| file.file().sync_all());
                ended.map_err(|error| failed(path, error))
            }
            Self::File { .. } => Ok(()),
            Self::Disk { disk, .. } => disk.flush().map_err(Failure::failed),
        }
    }

    /// Reads back the data at `offset`.
    pub(super) fn read_back(&mut self, offset: u64, to: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::File { file, path, seek } => {
                let read = file.file().read_exact_at(to, *seek + offset);
                read.map_err(|error| failed(path, error))
            }
            Self::Disk { disk, seek } => disk.read(*seek + offset, to).map_err(Failure::failed),
        }
    }

    /// Ends the copy of `bytes` bytes: from now on it is durable.
    pub(super) fn finish(mut self, bytes: u64) -> Result<(), Failure> {
        self.flush(bytes)?;
        match self {
            Self::File { file, path, .. } => file.finish().map_err(|error| failed(&path, error)),
            Self::Disk { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
