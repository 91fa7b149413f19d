//! blktrace files, version 7: what `blkparse` and `btt` read.
//!
//! One file per lane, named `BASE.blktrace.LANE` as blktrace names its files per processor. Each
//! record is 48 bytes, little-endian (`struct blk_io_trace` of Linux's `blktrace_api.h`): magic
//! and version, sequence, time in nanoseconds, sector of 512 bytes, bytes, action, process,
//! device, processor, error, length of what follows.
//!
//! | event | stamp |
//! |---|---|
//! | Q, queued | accepted |
//! | D, issued | doorbell |
//! | C, completed | delivered |
//!
//! So `Q2C` is a request's whole time, `D2C` areas 3 and 4, and Q2C less D2C is area 2.

use std::io::{self, Write};

use flysch_api::block::Operation;
use flysch_api::trace::Record;

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;

const ACTION_QUEUE: u32 = 1;
const ACTION_ISSUE: u32 = 7;
const ACTION_COMPLETE: u32 = 8;
const NOTIFY_PROCESS: u32 = 0;
const NOTIFY_TIMESTAMP: u32 = 1;

const CATEGORY_READ: u32 = 1;
const CATEGORY_WRITE: u32 = 1 << 1;
const CATEGORY_FLUSH: u32 = 1 << 2;
const CATEGORY_QUEUE: u32 = 1 << 4;
const CATEGORY_ISSUE: u32 = 1 << 6;
const CATEGORY_COMPLETE: u32 = 1 << 7;
const CATEGORY_NOTIFY: u32 = 1 << 10;
const CATEGORY_DISCARD: u32 = 1 << 13;
const CATEGORY_SHIFT: u32 = 16;

/// Device 8:0; its name is that of the files.
const DEVICE: u32 = 8 << 20;
/// Any process ID will do: all requests are made by this program.
const PROCESS: u32 = 1;
const PROCESS_NAME: &[u8; 16] = b"flysch\0\0\0\0\0\0\0\0\0\0";
const EIO: u16 = 5;

/// One event of the file, before it is written.
#[derive(Clone, Copy)]
struct Event {
    nanos: u64,
    action: u32,
    record: usize,
}

/// Writes the file of lane `lane` from its records. `epoch_ms` is when the run started,
/// milliseconds since 1970.
///
/// # Errors
/// Errors of `out`.
pub fn write(out: &mut impl Write, lane: u32, epoch_ms: u64, records: &[Record]) -> io::Result<()> {
    let mut events = Vec::with_capacity(records.len() * 3);
    for (record, Record { stamps, .. }) in records.iter().enumerate() {
        let at = [
            (stamps.accepted, ACTION_QUEUE | CATEGORY_QUEUE << CATEGORY_SHIFT),
            (stamps.issued, ACTION_ISSUE | CATEGORY_ISSUE << CATEGORY_SHIFT),
            (stamps.delivered, ACTION_COMPLETE | CATEGORY_COMPLETE << CATEGORY_SHIFT),
        ];
        events.extend(at.map(|(instant, action)| Event { nanos: instant.nanos(), action, record }));
    }
    // Stable: what one request did stays in order where its stamps are equal.
    events.sort_by_key(|event| event.nanos);
    let start = events.first().map_or(0, |event| event.nanos);
    let seconds = ((epoch_ms / 1000) as u32).to_le_bytes();
    let nanos = ((epoch_ms % 1000 * 1_000_000) as u32).to_le_bytes();
    let epoch = [seconds, nanos].concat();
    let notify = CATEGORY_NOTIFY << CATEGORY_SHIFT;
    let mut entry = Entry { sequence: 1, nanos: start, lane, ..Entry::default() };
    entry.write(out, NOTIFY_TIMESTAMP | notify, &epoch)?;
    entry.write(out, NOTIFY_PROCESS | notify, PROCESS_NAME)?;
    for event in events {
        let record = &records[event.record];
        entry.nanos = event.nanos;
        entry.sector = record.offset / 512;
        entry.bytes = record.length;
        let is_end = event.action & 0xffff == ACTION_COMPLETE;
        entry.error = if record.failed && is_end { EIO } else { 0 };
        entry.write(out, event.action | categories(record.operation) << CATEGORY_SHIFT, &[])?;
    }
    Ok(())
}

fn categories(operation: Operation) -> u32 {
    match operation {
        Operation::Read => CATEGORY_READ,
        Operation::Write => CATEGORY_WRITE,
        Operation::Flush => CATEGORY_WRITE | CATEGORY_FLUSH,
        Operation::Delete => CATEGORY_WRITE | CATEGORY_DISCARD,
    }
}

/// The fields that differ between records.
#[derive(Default)]
struct Entry {
    sequence: u32,
    nanos: u64,
    sector: u64,
    bytes: u32,
    lane: u32,
    error: u16,
}

impl Entry {
    fn write(&mut self, out: &mut impl Write, action: u32, extra: &[u8]) -> io::Result<()> {
        let mut bytes = [0; 48];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &(MAGIC | VERSION).to_le_bytes());
        put(4, &self.sequence.to_le_bytes());
        put(8, &self.nanos.to_le_bytes());
        put(16, &self.sector.to_le_bytes());
        put(24, &self.bytes.to_le_bytes());
        put(28, &action.to_le_bytes());
        put(32, &PROCESS.to_le_bytes());
        put(36, &DEVICE.to_le_bytes());
        put(40, &self.lane.to_le_bytes());
        put(44, &self.error.to_le_bytes());
        put(46, &(extra.len() as u16).to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        out.write_all(&bytes)?;
        out.write_all(extra)
    }
}
