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

/// A record, in its byte order.
struct Record {
    bytes: [u8; RECORD],
    is_little: bool,
}

impl Record {
    fn new(bytes: [u8; RECORD]) -> Self {
        let first = [bytes[0], bytes[1], bytes[2], bytes[3]];
        Self { bytes, is_little: u32::from_le_bytes(first) & !0xff == MAGIC }
    }

    fn half(&self, at: usize) -> u16 {
        let half = [self.bytes[at], self.bytes[at + 1]];
        if self.is_little { u16::from_le_bytes(half) } else { u16::from_be_bytes(half) }
    }

    fn word(&self, at: usize) -> u32 {
        let (low, high) = if self.is_little { (at, at + 2) } else { (at + 2, at) };
        u32::from(self.half(high)) << 16 | u32::from(self.half(low))
    }

    fn long(&self, at: usize) -> u64 {
        let (low, high) = if self.is_little { (at, at + 4) } else { (at + 4, at) };
        u64::from(self.word(high)) << 32 | u64::from(self.word(low))
    }

    /// What it tells, with the first bytes behind it; an error if those make no sense, `None` if it
    /// is of no interest.
    fn what(&self, extra: &[u8; 16]) -> Option<Result<What, ()>> {
        let (action, device) = (self.word(28), self.word(36));
        let categories = action >> 16;
        if categories & (CATEGORY_COMMAND | CATEGORY_NOTIFY) != 0 {
            return None;
        }
        let disk = |number: u32| (number >> 20, number & 0xf_ffff);
        let run = Run {
            disk: disk(device),
            sector: self.long(16),
            sectors: self.word(24) / 512,
            operation: operation_of_bits(categories),
        };
        // What is behind a record is big endian on every machine.
        let [high, low] = [0, 8].map(|at| {
            let bytes: [u8; 8] = extra[at..at + 8].try_into().unwrap_or_default();
            u64::from_be_bytes(bytes)
        });
        // `__BLK_TA_QUEUE` and so on.
        Some(Ok(match action & 0xffff {
            1 => What::Queue(run),
            2 => What::BackMerge(run),
            3 => What::FrontMerge(run),
            4 => What::Request(run),
            6 => What::Requeue(run),
            7 => What::Issue(run),
            8 => What::Complete(run, self.half(44) != 0),
            11 => What::Insert(run),
            12 => {
                let sectors = high.checked_sub(run.sector).and_then(|it| u32::try_from(it).ok());
                let Some(sectors) = sectors else { return Some(Err(())) };
                What::Split(Run { sectors, ..run }, high)
            }
            13 => What::Remap(run, disk((high >> 32) as u32), low),
            _ => return None,
        }))
    }
}

/// Reads all records.
pub(super) fn read(trace: &mut Trace, file: &mut dyn BufRead) -> Result<(), ImportError> {
    let mut bytes = [0; RECORD];
    while read_whole(file, &mut bytes)? {
        let record = Record::new(bytes);
        trace.told.lines += 1;
        let magic = record.word(0);
        if magic & !0xff != MAGIC {
            // Nothing says where the next record begins.
            trace.told.unknown_lines += 1;
            trace.odd("a record without blktrace's magic number");
            return Ok(());
        }
        if magic & 0xff != VERSION {
            return Err(ImportError::Version(magic & 0xff));
        }
        let mut extra = [0; 16];
        let length = usize::from(record.half(46));
        let taken = length.min(extra.len());
        if !read_whole(file, &mut extra[..taken])? || !skip(file, length - taken)? {
            return Ok(());
        }
        match record.what(&extra) {
            None => trace.told.other_events += 1,
            Some(Err(())) => trace.told.odd_events += 1,
            Some(Ok(what)) => {
                let (nanos, cpu, thread) = (record.long(8), record.word(40), record.word(32));
                trace.push(Event { nanos, cpu, thread, what })?;
            }
        }
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
