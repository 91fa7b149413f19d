//! I/Os as a Perfetto trace: a track for each disk, and below it one for each simultaneously used
//! slot.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Write};

use super::event::DiskNumber;
use super::join::{Io, Joined};
use crate::trace::perfetto::{self, Span};

/// Writes the trace.
///
/// # Errors
/// Errors of `out`.
pub fn write_perfetto(out: &mut impl Write, joined: &Joined) -> io::Result<()> {
    let mut order: Vec<&Io> = joined.ios.iter().collect();
    order.sort_by_key(|io| io.start());
    let mut tracks: BTreeMap<DiskNumber, Places> = BTreeMap::new();
    let disks: Vec<DiskNumber> = {
        let mut all: Vec<DiskNumber> = order.iter().map(|io| io.disk).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let spans: Vec<Span> = order
        .into_iter()
        .map(|io| {
            let slot = tracks.entry(io.disk).or_default().take(io.start(), io.end());
            span(io, disks.binary_search(&io.disk).unwrap_or(0), slot)
        })
        .collect();
    let names: Vec<String> =
        disks.iter().map(|disk| format!("disk {}:{}", disk.0, disk.1)).collect();
    perfetto::write_spans(out, &names, &spans)
}

/// Slots of a disk: the lowest free one is taken.
#[derive(Default)]
struct Places {
    /// When it becomes free, and its number.
    taken: BinaryHeap<Reverse<(u64, usize)>>,
    free: BinaryHeap<Reverse<usize>>,
    count: usize,
}

impl Places {
    fn take(&mut self, start: u64, end: u64) -> usize {
        while let Some(Reverse((until, place))) = self.taken.peek().copied()
            && until <= start
        {
            self.taken.pop();
            self.free.push(Reverse(place));
        }
        let place = self.free.pop().map_or_else(
            || {
                self.count += 1;
                self.count - 1
            },
            |Reverse(place)| place,
        );
        self.taken.push(Reverse((end, place)));
        place
    }
}

fn span(io: &Io, lane: usize, slot: usize) -> Span {
    let mut parts = Vec::with_capacity(4);
    if let Some(enter) = io.enter {
        parts.push(("file system", enter, io.queue));
    }
    let seen = io.seen().max(io.sent);
    parts.push(("submission", io.queue, io.sent));
    parts.push(("device", io.sent, seen));
    parts.push(("completion", seen, io.end().max(seen)));
    Span {
        lane,
        slot,
        name: io.operation.to_string(),
        offset: io.sector.saturating_mul(512),
        length: io.bytes,
        failed: io.failed,
        parts,
    }
}
