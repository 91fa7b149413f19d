//! Namespaces, and what else the device keeps besides data.

use alloc::vec::Vec;
use core::ops::Range;

use flysch_wire::nvme::identify::{ALL_NAMESPACES, LbaFormat};
use flysch_wire::nvme::zone;

use super::config::{Config, NAMESPACES_MAX, NamespaceConfig};
use super::features::Features;
use super::firmware::Firmware;
use super::logs::{ErrorLog, Health};
use super::power::Power;
use super::reservation::Reservation;
use super::upkeep::{Sanitized, Upkeep};
use super::zone::Zones;
use crate::media::cache::{Cache, Units};
use crate::store::Store;

/// The LBA formats every namespace has.
pub(super) const FORMATS: [LbaFormat; 2] = [
    LbaFormat { metadata: 0, shift: 9, performance: 2 },
    LbaFormat { metadata: 0, shift: 12, performance: 0 },
];
/// Most ranges of blocks that a host can have made unreadable in a namespace.
const MARKS_MAX: usize = 1024;
/// Namespaces lie so far apart on the medium: log2 of bytes.
const PLACE_SHIFT: u32 = 44;

/// Feature 84h of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WriteProtect {
    #[default]
    None,
    /// Until the host says otherwise.
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
    /// Whether some of `len` bytes at `offset` cannot be read.
    #[inline]
    pub(super) fn has(&self, offset: u64, len: u64) -> bool {
        self.0.iter().any(|mark| mark.start < offset + len && offset < mark.end)
    }

    /// Marks a range; whether there was room.
    #[must_use]
    pub(super) fn add(&mut self, offset: u64, len: u64) -> bool {
        self.remove(offset, len);
        let has_room = self.0.len() < MARKS_MAX;
        if has_room {
            self.0.push(offset..offset + len);
        }
        has_room
    }

    /// The range was written: it can be read again.
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

/// A namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) id: u32,
    pub(super) store: Store,
    pub(super) size: u64,
    /// Its LBA format, a number in [`FORMATS`].
    pub(super) format: u8,
    /// log2 of the bytes of a block, as the format has it.
    pub(super) shift: u32,
    pub(super) is_attached: bool,
    pub(super) protect: WriteProtect,
    pub(super) marks: Marks,
    /// A format is under way.
    pub(super) is_formatting: bool,
    pub(super) reservation: Reservation,
    /// Its zones, if it is of the zoned command set, and the bytes of one.
    pub(super) zones: Option<Zones>,
    pub(super) zone_bytes: u64,
}

impl Namespace {
    pub(super) fn new(id: u32, config: NamespaceConfig) -> Self {
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
        }
    }

    /// First byte on the medium.
    pub(super) fn base(&self) -> u64 {
        u64::from(self.id - 1) << PLACE_SHIFT
    }

    pub(super) fn blocks(&self) -> u64 {
        self.size >> self.shift
    }

    /// Everything is gone, and blocks are as `format` has them.
    pub(super) fn erase(&mut self, format: u8) {
        // A store that fails tells when it is read.
        let _ = self.store.discard(0, self.size);
        self.marks.clear();
        self.format = format;
        self.shift = FORMATS[usize::from(format)].shift.into();
        let blocks = self.zone_blocks(format);
        if let Some(zones) = &mut self.zones {
            zones.erase(blocks);
        }
    }

    /// Blocks of a zone in this format.
    pub(super) fn zone_blocks(&self, format: u8) -> u64 {
        self.zone_bytes >> FORMATS[usize::from(format)].shift
    }

    /// CSI: which command set it is of.
    pub(super) fn command_set(&self) -> u8 {
        if self.zones.is_some() { zone::COMMAND_SET } else { 0 }
    }
}

/// Everything behind the registers.
#[derive(Debug)]
pub(super) struct Device {
    /// By id, from 1 on.
    pub(super) spaces: Vec<Option<Namespace>>,
    /// Capacity of the device, bytes.
    pub(super) capacity: u64,
    /// Whether some of them have zones.
    pub(super) has_zones: bool,
    pub(super) features: Features,
    pub(super) firmware: Firmware,
    pub(super) power: Power,
    pub(super) health: Health,
    pub(super) errors: ErrorLog,
    /// Ids of namespaces that changed since the log was read.
    pub(super) changed: Vec<u32>,
    /// Formats and sanitize operations under way.
    pub(super) upkeep: Upkeep,
    pub(super) sanitized: Sanitized,
    pub(super) cache: Cache,
    /// Bytes that lie in the SLC area.
    pub(super) slc_used: u64,
    /// A shutdown waits for nothing but its time.
    pub(super) is_shutting: bool,
}

impl Device {
    pub(super) fn new(config: Config) -> Self {
        let taken: u64 = config.namespaces.iter().map(|space| space.size).sum();
        let has_zones = config.namespaces.iter().any(|space| space.zones.is_some());
        let mut spaces: Vec<Option<Namespace>> =
            (1..).zip(config.namespaces).map(|(id, of)| Some(Namespace::new(id, of))).collect();
        spaces.resize_with(NAMESPACES_MAX, || None);
        Self {
            spaces,
            capacity: config.capacity.max(taken),
            has_zones,
            features: Features::new(config.profile.host_memory.is_some()),
            firmware: Firmware::new(),
            power: Power::new(config.profile.power),
            health: Health::default(),
            errors: ErrorLog::default(),
            changed: Vec::new(),
            upkeep: Upkeep::default(),
            sanitized: Sanitized::default(),
            cache: Cache::new(config.volatile_cache || config.faults.cuts_power()),
            slc_used: 0,
            is_shutting: false,
        }
    }

    /// The index of a namespace by its id, attached or not.
    #[inline]
    pub(super) fn index(&self, id: u32) -> Option<u8> {
        let index = id.checked_sub(1)?;
        self.spaces.get(index as usize)?.as_ref().map(|_| index as u8)
    }

    #[inline]
    pub(super) fn space(&self, index: u8) -> Option<&Namespace> {
        self.spaces.get(usize::from(index))?.as_ref()
    }

    #[inline]
    pub(super) fn space_mut(&mut self, index: u8) -> Option<&mut Namespace> {
        self.spaces.get_mut(usize::from(index))?.as_mut()
    }

    /// Bytes without a namespace.
    pub(super) fn unallocated(&self) -> u64 {
        let taken: u64 = self.spaces.iter().flatten().map(|space| space.size).sum();
        self.capacity.saturating_sub(taken)
    }

    /// A namespace changed: whether the host knows of none yet.
    pub(super) fn note_change(&mut self, id: u32) {
        if id != ALL_NAMESPACES && !self.changed.contains(&id) {
            self.changed.push(id);
        }
    }

    /// What a reset of the controller takes back.
    pub(super) fn reset(&mut self) {
        self.features.reset();
        self.power.reset();
        self.is_shutting = false;
        for space in self.spaces.iter_mut().flatten() {
            space.reservation.reset();
            space.zones.iter_mut().for_each(Zones::reset);
        }
        if self.firmware.start_over() {
            self.changed.clear();
        }
    }

    /// Power is back.
    pub(super) fn power_on(&mut self) {
        for space in self.spaces.iter_mut().flatten() {
            if space.protect == WriteProtect::UntilPowerCycle {
                space.protect = WriteProtect::None;
            }
            space.reservation.power_on();
        }
        if !self.health.is_clean {
            self.health.unsafe_shutdowns += 1;
        }
        self.health.power_cycles += 1;
        self.reset();
    }
}

impl Units for Vec<Option<Namespace>> {
    fn unit(&mut self, number: u8) -> Option<(&mut Store, bool)> {
        let space = self.get_mut(usize::from(number))?.as_mut()?;
        Some((&mut space.store, false))
    }
}
