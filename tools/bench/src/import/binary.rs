//! blktrace's files, version 7: records of 48 bytes with something behind them
//! (`struct blk_io_trace` of Linux's `blktrace_api.h`), in the byte order of the machine.

use std::io::{BufRead, Read};

use super::event::{Event, Run, What};
use super::text::operation_of_bits;
use super::{ImportError, Trace};

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD: usize = 48;

/// Requests that are no reads or writes of sectors but commands; notes.
const CATEGORY_COMMAND: u32 = 1 << 9;
const CATEGORY_NOTIFY: u32 = 1 << 10;

/// Whether a file begins as one, of whatever version and byte order.
pub(super) fn is_blktrace(start: &[u8]) -> bool {
    let Some(word) = start.first_chunk::<4>() else { return false };
    [u32::from_le_bytes(*word), u32::from_be_bytes(*word)].iter().any(|it| it & !0xff == MAGIC)
}

/// Reads all records.
pub(super) fn read(trace: &mut Trace, file: &mut dyn BufRead) -> Result<(), ImportError> {
    let mut bytes = [0; RECORD];
    while read_whole(file, &mut bytes)? {
        let first = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let is_little = u32::from_le_bytes(first) & !0xff == MAGIC;
        let word = |at: usize| {
            let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            if is_little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
        };
        let long = |at: usize| {
            let (low, high) = if is_little { (at, at + 4) } else { (at + 4, at) };
            u64::from(word(high)) << 32 | u64::from(word(low))
        };
        trace.told.lines += 1;
        if word(0) & !0xff != MAGIC {
            // Nothing says where the next record begins.
            trace.told.unknown_lines += 1;
            trace.odd("a record without blktrace's magic number");
            return Ok(());
        }
        if word(0) & 0xff != VERSION {
            return Err(ImportError::Version(word(0) & 0xff));
        }
        let half = |at: usize| {
            let half = [bytes[at], bytes[at + 1]];
            if is_little { u16::from_le_bytes(half) } else { u16::from_be_bytes(half) }
        };
        let mut extra = [0; 16];
        let length = usize::from(half(46));
        let taken = length.min(extra.len());
        if !read_whole(file, &mut extra[..taken])? || !skip(file, length - taken)? {
            return Ok(());
        }
        let (action, device) = (word(28), word(36));
        let categories = action >> 16;
        if categories & (CATEGORY_COMMAND | CATEGORY_NOTIFY) != 0 {
            trace.told.other_events += 1;
            continue;
        }
        let run = Run {
            disk: (device >> 20, device & 0xf_ffff),
            sector: long(16),
            sectors: word(24) / 512,
            operation: operation_of_bits(categories),
        };
        let big = |at: usize| {
            let bytes: [u8; 8] = extra[at..at + 8].try_into().unwrap_or_default();
            u64::from_be_bytes(bytes)
        };
        let what = match action & 0xffff {
            1 => What::Queue(run),
            2 => What::BackMerge(run),
            3 => What::FrontMerge(run),
            4 => What::Request(run),
            6 => What::Requeue(run),
            7 => What::Issue(run),
            8 => What::Complete(run, half(44) != 0),
            9 | 10 | 15 => {
                trace.told.other_events += 1;
                continue;
            }
            11 => What::Insert(run),
            // The rest of the payload is big endian on every machine.
            12 => {
                let next = big(0);
                let sectors = next.checked_sub(run.sector).and_then(|it| u32::try_from(it).ok());
                let Some(sectors) = sectors else {
                    trace.told.odd_events += 1;
                    continue;
                };
                What::Split(Run { sectors, ..run }, next)
            }
            13 => {
                let from = u32::from_be_bytes([extra[0], extra[1], extra[2], extra[3]]);
                What::Remap(run, (from >> 20, from & 0xf_ffff), big(8))
            }
            _ => {
                trace.told.other_events += 1;
                continue;
            }
        };
        let (nanos, cpu, thread) = (long(8), word(40), word(32));
        trace.push(Event { nanos, cpu, thread, what })?;
    }
    Ok(())
}

/// Fills `to`; false at the end of the file, be it in the middle.
fn read_whole(file: &mut dyn BufRead, to: &mut [u8]) -> std::io::Result<bool> {
    match file.read_exact(to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn skip(file: &mut dyn BufRead, length: usize) -> std::io::Result<bool> {
    let mut left = std::io::Read::take(file, length as u64);
    Ok(std::io::copy(&mut left.by_ref(), &mut std::io::sink())? == length as u64)
}
