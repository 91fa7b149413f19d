//! blktrace's files, as events.

use std::io::BufRead;

use super::event::{Event, Run, What};
use super::{ImportError, Trace};
use crate::blktrace::{
    CATEGORY_COMMAND, CATEGORY_NOTIFY, Next, QUEUE, Record, disk, next, operation_of_bits,
};

/// The event in a record, with the first bytes of its payload; an error if these are invalid,
/// `None` if it is irrelevant.
fn what(record: &Record, extra: &[u8; 16]) -> Option<Result<What, ()>> {
    let (action, device) = (record.word(28), record.word(36));
    let categories = action >> 16;
    if categories & (CATEGORY_COMMAND | CATEGORY_NOTIFY) != 0 {
        return None;
    }
    let run = Run {
        disk: disk(device),
        sector: record.long(16),
        sectors: record.word(24) / 512,
        operation: operation_of_bits(categories),
    };
    // What is behind a record is big endian on every machine.
    let [high, low] = [0, 8].map(|at| {
        let bytes: [u8; 8] = extra[at..at + 8].try_into().unwrap_or_default();
        u64::from_be_bytes(bytes)
    });
    // `__BLK_TA_QUEUE` and so on.
    Some(Ok(match action & 0xffff {
        QUEUE => What::Queue(run),
        2 => What::BackMerge(run),
        3 => What::FrontMerge(run),
        4 => What::Request(run),
        6 => What::Requeue(run),
        7 => What::Issue(run),
        8 => What::Complete(run, record.half(44) != 0),
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

/// Reads all records.
pub(super) fn read(trace: &mut Trace, file: &mut dyn BufRead) -> Result<(), ImportError> {
    loop {
        let (record, extra) = match next(file)? {
            Next::End => return Ok(()),
            Next::Version(version) => return Err(ImportError::Version(version)),
            Next::Lost => {
                trace.told.lines += 1;
                trace.told.unknown_lines += 1;
                trace.odd("a record without blktrace's magic number");
                return Ok(());
            }
            Next::Record(record, extra) => (record, extra),
        };
        trace.told.lines += 1;
        match what(&record, &extra) {
            None => trace.told.other_events += 1,
            Some(Err(())) => trace.told.odd_events += 1,
            Some(Ok(what)) => {
                let (nanos, cpu, thread) = (record.nanos(), record.word(40), record.word(32));
                trace.push(Event { nanos, cpu, thread, what })?;
            }
        }
    }
}
