//! `flysch copy`: copies data between a file and a target, in either direction.

mod ends;

use std::time::Instant;

use flysch_rig::{Needs, blocks, size};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use crate::failure::Failure;
use crate::file::spare_inputs;
use crate::output::Output;
use crate::progress::Progress;
use ends::{End, Sink, Source};

/// Bytes in flight at once.
const CHUNK: usize = blocks::MEMORY;

/// Options of `flysch copy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file gets its name only when it is whole; runs of zeros become holes in it.
Examples:
  flysch copy disk.img ufs@qemu,image=lu0.img,size=4G --verify
  flysch copy ufs,image=lu0.img - | xz > lu0.xz")]
pub(crate) struct Arguments {
    /// A target, a file, or `-` for standard input.
    #[arg(value_name = "SRC")]
    source: String,
    /// A target, a file, or `-` for standard output.
    #[arg(value_name = "DST")]
    sink: String,
    /// Bytes to skip at the start of SRC.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    skip: u64,
    /// Bytes to leave unchanged at the start of DST.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    seek: u64,
    /// Bytes to copy; default: all of SRC.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    length: Option<u64>,
    /// Read everything back and compare.
    #[arg(long)]
    verify: bool,
}

fn parse_size(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("`{text}` is not a size such as 4096, 512K or 1G"))
}

/// Copies.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let from = End::parse(&arguments.source)?;
    let to = End::parse(&arguments.sink)?;
    if arguments.verify && to.is_stream() {
        return Err(Failure::usage("--verify needs a DST that can be read back, not a stream"));
    }
    if to.is_stream() && arguments.seek > 0 {
        return Err(Failure::usage("--seek needs a DST that can be positioned, not a stream"));
    }
    let inputs = from.files()?;
    to.files()?.iter().try_for_each(|file| spare_inputs(file, &inputs))?;
    // The source first: if it is not there, nothing of the sink is made.
    let mut from_stack = from.open(&Needs::default())?;
    let source = Source::open(&from, from_stack.as_mut(), arguments.skip)?;
    let there = source.length();
    if let (Some(wanted), Some(there)) = (arguments.length, there)
        && wanted > there
    {
        return Err(Failure::of(
            from,
            format!("has {there} bytes there, but {wanted} are to be copied"),
        ));
    }
    let length = arguments.length.or(there);
    let mut to_stack = to.open(&Needs::default())?;
    let sink = Sink::open(&to, to_stack.as_mut(), arguments.seek)?;
    if sink.is_standard_output() {
        output.give_away();
    }
    if arguments.verify && !sink.can_be_read() {
        return Err(Failure::usage(format!("--verify: {to} cannot be read back")));
    }
    if let (Some(room), Some(length)) = (sink.room(), length)
        && length > room
    {
        let (room, length) = (show(room), show(length));
        return Err(Failure::of(to, format!("has room for {room}, but {length} are to be copied")));
    }
    let is_silent = sink.is_standard_output() && !output.json();
    let begun = Instant::now();
    let copied = copy_all((source, sink), length, arguments.verify);
    let seconds = begun.elapsed().as_secs_f64();
    let mut stacks = [(&from, &mut from_stack), (&to, &mut to_stack)];
    let ends = stacks.iter_mut().filter_map(|(end, stack)| Some((end, stack.as_mut()?)));
    let bytes = ends.fold(copied, |copied, (end, stack)| match copied {
        Ok(bytes) => {
            stack.keep();
            Ok(bytes)
        }
        Err(failure) => Err(failure.behind(end, stack.failure())),
    })?;
    match is_silent {
        true => Ok(()),
        false => report(bytes, seconds, arguments.verify, output),
    }
}

fn report(bytes: u64, seconds: f64, verified: bool, output: &mut Output) -> Result<(), Failure> {
    if output.json() {
        return output.value(&json!({ "bytes": bytes, "seconds": seconds, "verified": verified }));
    }
    let rate = size::display((bytes as f64 / seconds.max(1e-9)) as u64);
    let verified = if verified { ", verified" } else { "" };
    output.line(format!("{} copied in {seconds:.1} s, {rate}/s{verified}", show(bytes)))
}

/// Copies, verifies and ends the copy; returns how many bytes were copied.
fn copy_all(
    (mut source, mut sink): (Source<'_>, Sink<'_>),
    length: Option<u64>,
    verifies: bool,
) -> Result<u64, Failure> {
    let hashes = copy(&mut source, &mut sink, length)?;
    if verifies {
        verify(&mut sink, &hashes)?;
    }
    sink.finish(hashes.bytes)?;
    Ok(hashes.bytes)
}

fn show(bytes: u64) -> String {
    format!("{bytes} bytes ({})", size::display(bytes))
}

/// What was copied, chunk by chunk.
struct Hashes {
    bytes: u64,
    chunks: Vec<u64>,
}

fn copy(
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    length: Option<u64>,
) -> Result<Hashes, Failure> {
    let mut progress = Progress::bytes("copying", length);
    let mut chunk = vec![0; CHUNK];
    let mut hashes = Hashes { bytes: 0, chunks: Vec::new() };
    loop {
        let left = length.map_or(CHUNK as u64, |length| length - hashes.bytes);
        let wanted = left.min(CHUNK as u64) as usize;
        let got = source.read(hashes.bytes, &mut chunk[..wanted])?;
        if got == 0 {
            break;
        }
        sink.write(hashes.bytes, &chunk[..got])?;
        hashes.chunks.push(xxh3_64(&chunk[..got]));
        hashes.bytes += got as u64;
        progress.set(hashes.bytes);
    }
    match length {
        Some(length) if hashes.bytes < length => Err(Failure::failed(format!(
            "the source ended after {} of {length} bytes",
            hashes.bytes
        ))),
        _ => Ok(hashes),
    }
}

fn verify(sink: &mut Sink<'_>, hashes: &Hashes) -> Result<(), Failure> {
    sink.flush(hashes.bytes)?;
    let mut progress = Progress::bytes("verifying", Some(hashes.bytes));
    let mut chunk = vec![0; CHUNK];
    let mut offset = 0;
    for hash in &hashes.chunks {
        let length = (hashes.bytes - offset).min(CHUNK as u64) as usize;
        sink.read_back(offset, &mut chunk[..length])?;
        if xxh3_64(&chunk[..length]) != *hash {
            return Err(Failure::failed(format!(
                "verify: the {length} bytes at offset {offset} are not what was written"
            )));
        }
        offset += length as u64;
        progress.set(offset);
    }
    Ok(())
}
