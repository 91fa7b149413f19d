//! Perfetto traces: native `TrackEvent` protobuf, for <https://ui.perfetto.dev> and
//! `trace_processor`.
//!
//! Each lane is a track, each slot of its queue a track below it. A request is a slice on its
//! slot's track, named after its operation, with offset, length and outcome; inside it lie the
//! slices of its areas. Two requests never share a slot at the same time, so slices nest.
//!
//! Field numbers are those of Perfetto's `protos/perfetto/trace/*.proto`.

use std::collections::BTreeSet;
use std::io::{self, Write};

use flysch_api::machine::Instant;
use flysch_api::trace::Record;

/// `Trace.packet`
const TRACE_PACKET: u32 = 1;

/// Fields of `TracePacket`.
mod packet {
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// Fields of `TrackDescriptor`.
mod descriptor {
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PARENT_UUID: u32 = 5;
}

/// Fields of `TrackEvent` and `DebugAnnotation`.
mod event {
    pub(super) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const TRACK_UUID: u32 = 11;
    pub(super) const NAME: u32 = 23;
    pub(super) const ANNOTATION_BOOL: u32 = 2;
    pub(super) const ANNOTATION_UINT: u32 = 3;
    pub(super) const ANNOTATION_NAME: u32 = 10;
}

/// `TrackEvent.Type`
const SLICE_BEGIN: u64 = 1;
/// `TrackEvent.Type`
const SLICE_END: u64 = 2;
/// `TracePacket.SequenceFlags`
const INCREMENTAL_STATE_CLEARED: u64 = 1;
/// One writer, one sequence.
const SEQUENCE: u64 = 1;

/// A request as slices: one around those of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Place in the names of the lanes.
    pub(crate) lane: usize,
    /// Its slot in the lane: no two have the same at the same time.
    pub(crate) slot: usize,
    pub(crate) name: String,
    /// Bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
    pub(crate) failed: bool,
    /// In sequence: name, start, end; nanoseconds. There is at least one.
    pub(crate) parts: Vec<(&'static str, u64, u64)>,
}

impl Span {
    fn of(record: &Record) -> Self {
        let stamps = &record.stamps;
        let device_end = stamps.issued.after_nanos(stamps.device_nanos()).nanos();
        let (accepted, issued) = (stamps.accepted.nanos(), stamps.issued.nanos());
        Self {
            lane: record.lane.into(),
            slot: record.slot.into(),
            name: record.operation.to_string(),
            offset: record.offset,
            length: record.length.into(),
            failed: record.failed,
            parts: vec![
                ("submission", accepted, issued),
                ("device", issued, device_end),
                ("completion", device_end, stamps.delivered.nanos()),
            ],
        }
    }
}

/// Writes the trace of all lanes; `records` in the order they completed per lane.
///
/// # Errors
/// Errors of `out`.
pub fn write(out: &mut impl Write, target: &str, records: &[Record]) -> io::Result<()> {
    let lanes = records.iter().map(|record| usize::from(record.lane) + 1).max().unwrap_or(0);
    let names: Vec<String> = (0..lanes).map(|lane| format!("{target} lane {lane}")).collect();
    let mut writer = Writer::new(out);
    writer.describe_all(&names, records.iter().map(|it| (it.lane.into(), it.slot.into())))?;
    records.iter().try_for_each(|record| writer.span(&Span::of(record)))
}

/// Writes spans on lanes with these names.
///
/// # Errors
/// Errors of `out`.
pub(crate) fn write_spans(
    out: &mut impl Write,
    names: &[String],
    spans: &[Span],
) -> io::Result<()> {
    let mut writer = Writer::new(out);
    writer.describe_all(names, spans.iter().map(|span| (span.lane, span.slot)))?;
    spans.iter().try_for_each(|span| writer.span(span))
}

fn lane_track(lane: usize) -> u64 {
    1 + lane as u64
}

fn slot_track(lane: usize, slot: usize) -> u64 {
    (1 + lane as u64) << 32 | (1 + slot as u64)
}

struct Writer<'a, W> {
    out: &'a mut W,
    packet: Vec<u8>,
    inner: Vec<u8>,
    is_first: bool,
}

impl<'a, W: Write> Writer<'a, W> {
    fn new(out: &'a mut W) -> Self {
        Self { out, packet: Vec::new(), inner: Vec::new(), is_first: true }
    }

    /// Declares the tracks of lanes, and those of the slots that are used.
    fn describe_all(
        &mut self,
        names: &[String],
        used: impl Iterator<Item = (usize, usize)>,
    ) -> io::Result<()> {
        let slots: BTreeSet<(usize, usize)> = used.collect();
        let lanes: BTreeSet<usize> = slots.iter().map(|&(lane, _)| lane).collect();
        for lane in lanes {
            self.describe(lane_track(lane), None, &names[lane])?;
        }
        for (lane, slot) in slots {
            let name = format!("slot {slot}");
            self.describe(slot_track(lane, slot), Some(lane_track(lane)), &name)?;
        }
        Ok(())
    }

    fn describe(&mut self, track: u64, parent: Option<u64>, name: &str) -> io::Result<()> {
        self.inner.clear();
        number(&mut self.inner, descriptor::UUID, track);
        bytes(&mut self.inner, descriptor::NAME, name.as_bytes());
        if let Some(parent) = parent {
            number(&mut self.inner, descriptor::PARENT_UUID, parent);
        }
        self.packet.clear();
        bytes(&mut self.packet, packet::TRACK_DESCRIPTOR, &self.inner);
        self.end_packet()
    }

    /// The slice of a request with those of its parts inside.
    fn span(&mut self, span: &Span) -> io::Result<()> {
        let (Some(first), Some(last)) = (span.parts.first(), span.parts.last()) else {
            return Ok(());
        };
        let track = slot_track(span.lane, span.slot);
        self.begin(Instant::from_nanos(first.1), track, &span.name, Some(span))?;
        for (name, from, to) in &span.parts {
            self.begin(Instant::from_nanos(*from), track, name, None)?;
            self.end(Instant::from_nanos(*to), track)?;
        }
        self.end(Instant::from_nanos(last.2), track)
    }

    fn begin(
        &mut self,
        at: Instant,
        track: u64,
        name: &str,
        about: Option<&Span>,
    ) -> io::Result<()> {
        self.inner.clear();
        number(&mut self.inner, event::TYPE, SLICE_BEGIN);
        number(&mut self.inner, event::TRACK_UUID, track);
        bytes(&mut self.inner, event::NAME, name.as_bytes());
        if let Some(span) = about {
            let numbers = [("offset", span.offset), ("length", span.length)];
            for (name, value) in numbers {
                annotate(&mut self.inner, name, event::ANNOTATION_UINT, value);
            }
            if span.failed {
                annotate(&mut self.inner, "failed", event::ANNOTATION_BOOL, 1);
            }
        }
        self.event(at)
    }

    fn end(&mut self, at: Instant, track: u64) -> io::Result<()> {
        self.inner.clear();
        number(&mut self.inner, event::TYPE, SLICE_END);
        number(&mut self.inner, event::TRACK_UUID, track);
        self.event(at)
    }

    fn event(&mut self, at: Instant) -> io::Result<()> {
        self.packet.clear();
        number(&mut self.packet, packet::TIMESTAMP, at.nanos());
        bytes(&mut self.packet, packet::TRACK_EVENT, &self.inner);
        self.end_packet()
    }

    fn end_packet(&mut self) -> io::Result<()> {
        number(&mut self.packet, packet::SEQUENCE_ID, SEQUENCE);
        if core::mem::take(&mut self.is_first) {
            number(&mut self.packet, packet::SEQUENCE_FLAGS, INCREMENTAL_STATE_CLEARED);
        }
        self.inner.clear();
        bytes(&mut self.inner, TRACE_PACKET, &self.packet);
        self.out.write_all(&self.inner)
    }
}

/// A `DebugAnnotation` with one value.
fn annotate(to: &mut Vec<u8>, name: &str, field: u32, value: u64) {
    let mut annotation = Vec::with_capacity(32);
    bytes(&mut annotation, event::ANNOTATION_NAME, name.as_bytes());
    number(&mut annotation, field, value);
    bytes(to, event::DEBUG_ANNOTATIONS, &annotation);
}

/// A field of wire type 0.
fn number(to: &mut Vec<u8>, field: u32, value: u64) {
    varint(to, u64::from(field) << 3);
    varint(to, value);
}

/// A field of wire type 2.
fn bytes(to: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(to, u64::from(field) << 3 | 2);
    varint(to, value.len() as u64);
    to.extend_from_slice(value);
}

/// Seven bits per byte, the lowest first; the top bit says that more follow.
fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}
