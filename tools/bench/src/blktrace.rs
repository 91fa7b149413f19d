//! blktrace's files, version 7: records of 48 bytes, each followed by its payload (`struct
//! blk_io_trace` of Linux's `blktrace_api.h`), in the byte order of the machine.

use std::io::{BufRead, Read};

use flysch_api::block::Operation;

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD: usize = 48;

/// `__BLK_TA_QUEUE`.
pub(crate) const QUEUE: u32 = 1;
/// `BLK_TC_FLUSH`.
const CATEGORY_FLUSH: u32 = 1 << 2;
/// Requests that are commands instead of reads or writes of sectors; notes.
pub(crate) const CATEGORY_COMMAND: u32 = 1 << 9;
pub(crate) const CATEGORY_NOTIFY: u32 = 1 << 10;

/// Whether a file starts like one, in any version and byte order.
pub(crate) fn is_blktrace(start: &[u8]) -> bool {
    let Some(word) = start.first_chunk::<4>() else { return false };
    [u32::from_le_bytes(*word), u32::from_be_bytes(*word)].iter().any(|it| it & !0xff == MAGIC)
}

/// A record, in its byte order.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    bytes: [u8; RECORD],
    is_little: bool,
}

impl Record {
    fn new(bytes: [u8; RECORD]) -> Self {
        let first = [bytes[0], bytes[1], bytes[2], bytes[3]];
        Self { bytes, is_little: u32::from_le_bytes(first) & !0xff == MAGIC }
    }

    pub(crate) fn half(&self, at: usize) -> u16 {
        let half = [self.bytes[at], self.bytes[at + 1]];
        if self.is_little { u16::from_le_bytes(half) } else { u16::from_be_bytes(half) }
    }

    pub(crate) fn word(&self, at: usize) -> u32 {
        let (low, high) = if self.is_little { (at, at + 2) } else { (at + 2, at) };
        u32::from(self.half(high)) << 16 | u32::from(self.half(low))
    }

    pub(crate) fn long(&self, at: usize) -> u64 {
        let (low, high) = if self.is_little { (at, at + 4) } else { (at + 4, at) };
        u64::from(self.word(high)) << 32 | u64::from(self.word(low))
    }

    /// When, nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        self.long(8)
    }

    /// The queued request, if this is such a record.
    pub(crate) fn queued(&self) -> Option<Queued> {
        let (action, device) = (self.word(28), self.word(36));
        let categories = action >> 16;
        let notes = categories & (CATEGORY_COMMAND | CATEGORY_NOTIFY) != 0;
        if notes || action & 0xffff != QUEUE {
            return None;
        }
        let bytes = self.word(24);
        let operation = match operation_of_bits(categories) {
            // A barrier is a write of nothing.
            Some(Operation::Read | Operation::Write) | None
                if bytes == 0 && categories & CATEGORY_FLUSH != 0 =>
            {
                Operation::Flush
            }
            operation => operation?,
        };
        Some(Queued { disk: disk(device), sector: self.long(16), bytes, operation })
    }
}

/// A disk by its number: major and minor.
pub(crate) fn disk(number: u32) -> (u32, u32) {
    (number >> 20, number & 0xf_ffff)
}

/// A request that was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// On which disk: major and minor number.
    pub(crate) disk: (u32, u32),
    /// The first sector of 512 bytes.
    pub(crate) sector: u64,
    /// How much.
    pub(crate) bytes: u32,
    /// What.
    pub(crate) operation: Operation,
}

/// The next item of a file.
pub(crate) enum Next {
    /// A record, with the first bytes of its payload.
    Record(Record, [u8; 16]),
    /// Something else: the start of the next record is unknown.
    Lost,
    /// A record of another version.
    Version(u32),
    /// Nothing, or part of a record.
    End,
}

/// Reads a record.
pub(crate) fn next(file: &mut dyn BufRead) -> std::io::Result<Next> {
    let mut bytes = [0; RECORD];
    if !read_whole(file, &mut bytes)? {
        return Ok(Next::End);
    }
    let record = Record::new(bytes);
    let magic = record.word(0);
    if magic & !0xff != MAGIC {
        return Ok(Next::Lost);
    }
    if magic & 0xff != VERSION {
        return Ok(Next::Version(magic & 0xff));
    }
    let mut extra = [0; 16];
    let length = usize::from(record.half(46));
    let taken = length.min(extra.len());
    if !read_whole(file, &mut extra[..taken])? || !skip(file, length - taken)? {
        return Ok(Next::End);
    }
    Ok(Next::Record(record, extra))
}

/// The operation according to the categories of a record; `None` if it neither moves nor frees
/// data.
pub(crate) fn operation_of_bits(bits: u32) -> Option<Operation> {
    match bits {
        bits if bits & 1 << 13 != 0 => Some(Operation::Delete),
        bits if bits & 1 != 0 => Some(Operation::Read),
        bits if bits & 2 != 0 => Some(Operation::Write),
        _ => None,
    }
}

/// Fills `to`; false at the end of the file, even in the middle of a record.
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
