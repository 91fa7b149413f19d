//! `geom copy`: a provider into a file, or a file into a provider.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flysch_files::Sink;
use flysch_geom::{Access, GeomError, Io, ProviderId};
use serde_json::json;

use super::session::Session;
use crate::failure::Failure;
use crate::file::{failed, spare_inputs};
use crate::output::Output;
use crate::progress::Progress;

/// Bytes in flight at once: whole sectors of every size.
const CHUNK: u64 = 1 << 20;
/// Runs of zeros of this many bytes become holes.
const HOLE: usize = 64 << 10;

/// Options of `geom copy`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A provider, or a file; `-` for standard input.
    source: String,
    /// A file, or a provider; `-` for standard output.
    sink: String,
}

/// Copies.
pub(super) fn run(
    session: &mut Session,
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let Arguments { source, sink } = arguments;
    let from = session.graph.provider(source);
    let to = session.graph.provider(sink);
    let bytes = match (from, to) {
        (Ok(_), Ok(_)) => {
            let text = format!("{source} and {sink} are both providers; `./` makes one a file");
            return Err(Failure::usage(text));
        }
        (Ok(from), Err(_)) => out(session, from, Path::new(sink), output)?,
        (Err(_), Ok(to)) => into(session, Path::new(source), to)?,
        (Err(error), Err(_)) => return Err(session.failure(error)),
    };
    match output.json() {
        true => output.value(&json!({ "bytes": bytes })),
        false => output.line(format!("{bytes} bytes copied")),
    }
}

fn out(
    session: &mut Session,
    from: ProviderId,
    path: &Path,
    output: &mut Output,
) -> Result<u64, Failure> {
    spare_inputs(path, &session.files)?;
    let mut sink = Sink::open(path).map_err(|error| failed(path, error))?;
    if sink.is_standard_output() {
        output.give_away();
    }
    let (size, name) = (session.graph[from].media_size, session.graph[from].name.clone());
    let opened = session.graph.open(from, Access::READ);
    let consumer = opened.map_err(|error| session.failure(error))?;
    let mut progress = Progress::bytes("copying", Some(size));
    let mut chunk = vec![0; CHUNK as usize];
    let mut offset = 0;
    while offset < size {
        let bytes = &mut chunk[..CHUNK.min(size - offset) as usize];
        let read = session.graph.io(consumer, Io::Read { offset, to: bytes });
        read.map_err(|error| session.failure(GeomError::io(&name, error)))?;
        put(&mut sink, offset, bytes).map_err(|error| failed(path, error))?;
        offset += bytes.len() as u64;
        progress.set(offset);
    }
    session.graph.shut(consumer);
    if sink.is_regular() {
        sink.file().set_len(size).map_err(|error| failed(path, error))?;
    }
    sink.finish().map_err(|error| failed(path, error))?;
    Ok(size)
}

fn put(sink: &mut Sink, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    if !sink.is_regular() {
        return sink.write_all(bytes);
    }
    for (piece, at) in bytes.chunks(HOLE).zip((offset..).step_by(HOLE)) {
        if piece.iter().any(|byte| *byte != 0) {
            sink.file().write_all_at(piece, at)?;
        }
    }
    Ok(())
}

fn into(session: &mut Session, path: &Path, to: ProviderId) -> Result<u64, Failure> {
    session.files.iter().try_for_each(|file| spare_inputs(file, [path]))?;
    let shown = PathBuf::from(path);
    let fail = |error: std::io::Error| Failure::of(shown.display(), error);
    let mut source: Box<dyn Read> = match path.as_os_str().as_encoded_bytes() {
        b"-" => Box::new(std::io::stdin()),
        _ => Box::new(File::open(path).map_err(fail)?),
    };
    let (size, name) = (session.graph[to].media_size, session.graph[to].name.clone());
    let sector = u64::from(session.graph[to].sector_size);
    if let Ok(metadata) = std::fs::metadata(path)
        && metadata.is_file()
        && metadata.len() > size
    {
        let text = format!("has {size} bytes, but {} are to be copied", metadata.len());
        return Err(Failure::of(&name, text));
    }
    let opened = session.graph.open(to, Access::ALONE);
    let consumer = opened.map_err(|error| session.failure(error))?;
    let mut chunk = Vec::new();
    let (mut offset, mut bytes) = (0, 0);
    loop {
        chunk.clear();
        source.by_ref().take(CHUNK).read_to_end(&mut chunk).map_err(fail)?;
        if chunk.is_empty() {
            break;
        }
        bytes += chunk.len() as u64;
        if bytes > size {
            return Err(Failure::of(&name, format!("is full after {size} bytes")));
        }
        // The rest of the last sector stays as it is.
        let whole = (chunk.len() as u64).next_multiple_of(sector) as usize;
        if whole > chunk.len() {
            let mut last = vec![0; sector as usize];
            let at = offset + whole as u64 - sector;
            let read = session.graph.io(consumer, Io::Read { offset: at, to: &mut last });
            read.map_err(|error| session.failure(GeomError::io(&name, error)))?;
            let kept = chunk.len() % sector as usize;
            chunk.extend_from_slice(&last[kept..]);
        }
        let written = session.graph.io(consumer, Io::Write { offset, from: &chunk });
        written.map_err(|error| session.failure(GeomError::io(&name, error)))?;
        offset += chunk.len() as u64;
    }
    let flushed = session.graph.io(consumer, Io::Flush);
    session.graph.shut(consumer);
    session.graph.settle();
    flushed.map_err(|error| session.failure(GeomError::io(&name, error)))?;
    Ok(bytes)
}
