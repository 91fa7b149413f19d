//! A namespace: its data, its blocks, and the access to them.

use alloc::vec::Vec;
use core::ops::Range;

use flysch_wire::nvme::command::TransferFlags;
use flysch_wire::nvme::identify::LbaFormat;
use flysch_wire::nvme::{Sqe, Status, zone};

use super::config::NamespaceConfig;
use super::identify::Names;
use super::reservation::Reservation;
use super::task::{Purpose, Work};
use super::zone::Zones;
use crate::media::Span;
use crate::store::Store;

/// The LBA formats of every namespace.
pub(super) const FORMATS: [LbaFormat; 2] = [
    LbaFormat { metadata: 0, shift: 9, performance: 2 },
    LbaFormat { metadata: 0, shift: 12, performance: 0 },
];
/// Maximum number of ranges that a host can make unreadable in a namespace.
const MARKS_MAX: usize = 1024;
/// Distance of namespaces on the medium, as log2 of bytes.
const PLACE_SHIFT: u32 = 44;

/// Feature 84h of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WriteProtect {
    #[default]
    None,
    /// Until the host changes it.
    On,
    /// Until a power cycle.
    UntilPowerCycle,
    /// For ever.
    Permanent,
}

impl WriteProtect {
    pub(super) fn from_bits(bits: u32) -> Option<Self> {
        Some(match bits {
            0 => Self::None,
            1 => Self::On,
            2 => Self::UntilPowerCycle,
            3 => Self::Permanent,
            _ => return None,
        })
    }
}

/// Ranges of bytes that a host has made unreadable.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Range<u64>>);

impl Marks {
    /// Whether any of `len` bytes at `offset` cannot be read.
    #[inline]
    pub(super) fn has(&self, offset: u64, len: u64) -> bool {
        self.0.iter().any(|mark| mark.start < offset + len && offset < mark.end)
    }

    /// Marks a range; returns whether there was room.
    #[must_use]
    pub(super) fn add(&mut self, offset: u64, len: u64) -> bool {
        self.remove(offset, len);
        let has_room = self.0.len() < MARKS_MAX;
        if has_room {
            self.0.push(offset..offset + len);
        }
        has_room
    }

    /// A range was written: it can be read again.
    #[inline]
    pub(super) fn remove(&mut self, offset: u64, len: u64) {
        if self.0.is_empty() {
            return;
        }
        let end = offset + len;
        let outside = |mark: Range<u64>| {
            [mark.start..mark.end.min(offset), mark.start.max(end)..mark.end]
                .into_iter()
                .filter(|rest| rest.start < rest.end)
        };
        self.0 = core::mem::take(&mut self.0).into_iter().flat_map(outside).collect();
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// The blocks that a command names, as bytes of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The length, if one command may transfer that much.
#[inline]
fn transfer_length(len: u64, longest: u32) -> Result<u32, Status> {
    match u32::try_from(len) {
        Ok(len) if len <= longest => Ok(len),
        _ => Err(Status::InvalidField),
    }
}

/// A namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) id: u32,
    pub(super) store: Store,
    pub(super) size: u64,
    /// Its LBA format, an index into [`FORMATS`].
    pub(super) format: u8,
    /// log2 of the block size in bytes, from the format.
    pub(super) shift: u32,
    pub(super) is_attached: bool,
    pub(super) protect: WriteProtect,
    pub(super) marks: Marks,
    /// A format is in progress.
    pub(super) is_formatting: bool,
    pub(super) reservation: Reservation,
    /// Its zones, if it uses the zoned command set, and the size of one in bytes.
    pub(super) zones: Option<Zones>,
    pub(super) zone_bytes: u64,
    pub(super) names: Names,
}

impl Namespace {
    /// The namespace with this id, in a device with this seed.
    pub(super) fn new(id: u32, config: NamespaceConfig, seed: u64) -> Self {
        let format = u8::from(config.block_size == 4096);
        let protect = if config.write_protected { WriteProtect::On } else { WriteProtect::None };
        let shift: u32 = FORMATS[usize::from(format)].shift.into();
        let zones = config.zones.map(|zones| {
            let limits = (zones.open_max, zones.active_max);
            Zones::new(zones.size >> shift, config.size >> shift, limits)
        });
        Self {
            id,
            store: config.store.unwrap_or_else(|| Store::memory(config.size)),
            size: config.size,
            format,
            shift,
            is_attached: true,
            protect,
            marks: Marks::default(),
            is_formatting: false,
            reservation: Reservation::default(),
            zones,
            zone_bytes: config.zones.map_or(0, |zones| zones.size),
            names: Names::new(seed, id),
        }
    }

    /// Its index among the namespaces.
    #[inline]
    pub(super) fn index(&self) -> u8 {
        (self.id - 1) as u8
    }

    /// The position of `len` bytes at `offset` on the medium.
    #[inline]
    pub(super) fn span(&self, offset: u64, len: u64) -> Span {
        let base = u64::from(self.id - 1) << PLACE_SHIFT;
        Span { address: base + offset, len, limit: base + self.size }
    }

    #[inline]
    pub(super) fn blocks(&self) -> u64 {
        self.size >> self.shift
    }

    /// `count` blocks from `first` on, if they exist.
    #[inline]
    pub(super) fn extent(&self, first: u64, count: u64) -> Result<Extent, Status> {
        if first > self.blocks() || count > self.blocks() - first {
            return Err(Status::LbaRange);
        }
        Ok(Extent { offset: first << self.shift, len: count << self.shift })
    }

    /// The blocks that a command reads or writes.
    #[inline]
    pub(super) fn extent_of(&self, command: &Sqe) -> Result<Extent, Status> {
        let flags = TransferFlags::from_bits(command.cdw10[2]);
        self.extent(command.slba(), u64::from(flags.nlb()) + 1)
    }

    /// The work of a write, which transfers at most `longest` bytes.
    #[inline]
    pub(super) fn write_work(&self, command: &Sqe, longest: u32) -> Result<Work, Status> {
        let Extent { offset, len } = self.extent_of(command)?;
        let force = TransferFlags::from_bits(command.cdw10[2]).fua();
        let len = transfer_length(len, longest)?;
        Ok(Work::Write { space: self.index(), offset, len, force })
    }

    /// The work of a read, which transfers at most `longest` bytes.
    #[inline]
    pub(super) fn read_work(
        &self,
        command: &Sqe,
        purpose: Purpose,
        longest: u32,
    ) -> Result<Work, Status> {
        let Extent { offset, len } = self.extent_of(command)?;
        if self.marks.has(offset, len) {
            return Err(Status::UnrecoveredRead);
        }
        let len = match purpose {
            // Nothing crosses the link, so the maximum transfer does not matter.
            Purpose::Verify => u32::try_from(len).map_err(|_| Status::InvalidField)?,
            _ => transfer_length(len, longest)?,
        };
        Ok(Work::Read { space: self.index(), offset, len, purpose })
    }

    /// Write Uncorrectable: the blocks cannot be read until they are written.
    pub(super) fn mark_unreadable(&mut self, command: &Sqe) -> Result<(), Status> {
        let Extent { offset, len } = self.extent_of(command)?;
        if self.marks.add(offset, len) { Ok(()) } else { Err(Status::CapacityExceeded) }
    }

    /// Sets feature 84h, if it can still be changed.
    pub(super) fn set_protection(&mut self, wanted: WriteProtect) -> Result<(), Status> {
        let may = match self.protect {
            WriteProtect::None | WriteProtect::On => true,
            kept => kept == wanted,
        };
        if !may {
            return Err(Status::NotChangeable);
        }
        self.protect = wanted;
        Ok(())
    }

    /// A controller reset.
    pub(super) fn reset(&mut self) {
        self.reservation.reset();
        self.zones.iter_mut().for_each(Zones::reset);
    }

    /// Power is back.
    pub(super) fn power_on(&mut self) {
        if self.protect == WriteProtect::UntilPowerCycle {
            self.protect = WriteProtect::None;
        }
        self.reservation.power_on();
    }

    /// Everything is gone, and the block size is that of `format`.
    pub(super) fn erase(&mut self, format: u8) {
        // A store that fails reports it when it is read.
        let _ = self.store.discard(0, self.size);
        self.marks.clear();
        self.format = format;
        self.shift = FORMATS[usize::from(format)].shift.into();
        let blocks = self.zone_blocks(format);
        if let Some(zones) = &mut self.zones {
            zones.erase(blocks);
        }
    }

    /// Number of blocks of a zone in this format.
    pub(super) fn zone_blocks(&self, format: u8) -> u64 {
        self.zone_bytes >> FORMATS[usize::from(format)].shift
    }

    /// CSI: the command set that it uses.
    pub(super) fn command_set(&self) -> u8 {
        if self.zones.is_some() { zone::COMMAND_SET } else { 0 }
    }
}
