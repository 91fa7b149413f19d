//! Error history (READ BUFFER mode 1Ch): the device's record of resets and other events of its
//! life.
//!
//! There is one buffer, 10h, of [`LENGTH`] bytes: `FLYSCHEV`, the total number of events (4 bytes),
//! the number kept (4), then the kept events of 16 bytes each, oldest first: the time in
//! nanoseconds (8; since 1970 if the host has set the time, otherwise since the model began), what
//! happened (2), the logical unit or 0 (2), zero (4). Big-endian; unused bytes are zero.

use alloc::collections::VecDeque;

use flysch_wire::scsi::error_history::{self, HistoryBuffer};

/// Number of events kept.
const EVENTS: usize = 63;
const EVENT_LENGTH: usize = 16;
const HEAD: usize = 16;
/// The one buffer.
const BUFFER: u8 = 0x10;
/// Its length, bytes.
pub(super) const LENGTH: usize = HEAD + EVENTS * EVENT_LENGTH;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Turn {
    PowerOn = 1,
    PowerLost = 2,
    WarmReset = 3,
    UnitReset = 4,
    Firmware = 5,
    PurgeStopped = 6,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: u64,
    turn: Turn,
    unit: u16,
}

/// The events.
#[derive(Debug, Default)]
pub(super) struct Journal {
    events: VecDeque<Event>,
    count: u32,
    /// Offset from the model's time to the host's.
    epoch: u64,
}

impl Journal {
    pub(super) fn note(&mut self, now: u64, turn: Turn, unit: u8) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        let at = self.epoch.saturating_add(now);
        self.events.push_back(Event { at, turn, unit: unit.into() });
        self.count = self.count.saturating_add(1);
    }

    /// The host sets the time.
    pub(super) fn set_time(&mut self, time: u64, now: u64) {
        self.epoch = time.saturating_sub(now);
    }

    /// Writes the contents of buffer `id` from `offset` on; returns their length, or `None` if
    /// there is no such buffer.
    pub(super) fn read(
        &self,
        id: u8,
        offset: usize,
        vendor: &str,
        data: &mut [u8],
    ) -> Option<usize> {
        let mut bytes = [0; error_history::DIRECTORY_LENGTH_MAX];
        let len = match id {
            error_history::DIRECTORY => {
                let mut name = [b' '; 8];
                name[..vendor.len()].copy_from_slice(vendor.as_bytes());
                let buffers = [HistoryBuffer { id: BUFFER, length: LENGTH as u32 }];
                error_history::emit_directory(name, 1, &buffers, &mut bytes)?
            }
            BUFFER => self.emit(&mut bytes),
            _ => return None,
        };
        let part = bytes[..len].get(offset..)?;
        let len = part.len().min(data.len());
        data[..len].copy_from_slice(&part[..len]);
        Some(len)
    }

    fn emit(&self, bytes: &mut [u8]) -> usize {
        bytes[..8].copy_from_slice(b"FLYSCHEV");
        bytes[8..12].copy_from_slice(&self.count.to_be_bytes());
        bytes[12..16].copy_from_slice(&(self.events.len() as u32).to_be_bytes());
        for (event, out) in self.events.iter().zip(bytes[HEAD..].chunks_mut(EVENT_LENGTH)) {
            out[..8].copy_from_slice(&event.at.to_be_bytes());
            out[8..10].copy_from_slice(&(event.turn as u16).to_be_bytes());
            out[10..12].copy_from_slice(&event.unit.to_be_bytes());
        }
        LENGTH
    }
}
