//! The zones of a disk (fio: `zonemode=zbd`): where each is written next, and whether it is.
//!
//! A zone is written from its start to the end of its capacity, one write after the other, and is
//! empty again when it is reset. A disk without zones can be treated as if it had some: then the
//! places of requests are the same, and a reset is a matter of this table alone.

use core::ops::Range;

use crate::units::Size;

/// Most zones of a disk.
pub const ZONES_MAX: u64 = 1 << 22;

/// A zone as its disk reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Bytes from its start that can be written.
    pub capacity: u64,
    /// Bytes from its start that are written: where its write pointer stands.
    pub written: u64,
    /// Whether it can be read and written at all: neither offline nor read only.
    pub is_usable: bool,
}

/// Why a disk cannot be used zone by zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZonesError {
    /// It has no zones, and no job says how long they should be.
    #[error(
        "the disk has no zones: use `nvme,zones=64M`, or zonesize=, with which a job treats a \
         disk as if it had zones"
    )]
    None,
    /// A zone would not fit the disk.
    #[error("zones of {zone} do not fit a disk of {disk}")]
    TooLarge {
        /// A zone.
        zone: Size,
        /// The disk.
        disk: Size,
    },
    /// There would be more zones than anybody has.
    #[error("a disk of {disk} would have more than {most} zones of {zone}", most = ZONES_MAX)]
    TooMany {
        /// A zone.
        zone: Size,
        /// The disk.
        disk: Size,
    },
    /// The length or capacity of a zone makes no sense.
    #[error(
        "a zone of {zone} with a capacity of {capacity} is impossible: both must be multiples of \
         the block size {block_size}, the capacity must not be the larger one, and a zone must be \
         below 4 GiB"
    )]
    Shape {
        /// A zone.
        zone: Size,
        /// As much of it as can be written.
        capacity: Size,
        /// Bytes of a block of the disk.
        block_size: u32,
    },
}

/// What is under way in a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Nothing that changes it.
    #[default]
    No,
    /// A write.
    Writing,
    /// A reset.
    Resetting,
}

/// A zone as it is used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    pub(crate) capacity: u64,
    /// Bytes written, with the write that is under way.
    written: u64,
    /// Bytes that can be read: written, and back.
    pub(crate) readable: u64,
    pub(crate) busy: Busy,
    pub(crate) is_usable: bool,
    /// What is in it is old: it is reset before it is written.
    pub(crate) is_stale: bool,
}

impl State {
    /// Bytes written, with the write that is under way.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that can still be written.
    pub(crate) fn room(&self) -> u64 {
        if self.is_stale { self.capacity } else { self.capacity - self.written }
    }

    /// Bytes that are worth reading.
    pub(crate) fn valid(&self) -> u64 {
        if self.is_stale || !self.is_usable { 0 } else { self.readable }
    }
}

/// How much is written in some zones, kept up to date whenever that changes.
#[derive(Clone, Debug)]
struct Tally {
    zones: Range<usize>,
    written: u64,
}

/// All zones of a disk, which are equally long.
#[derive(Clone, Debug)]
pub struct Zones {
    size: u64,
    pub(crate) states: Box<[State]>,
    /// One for each range that somebody asks about.
    tallies: Vec<Tally>,
    /// Zones that are written to, each with the worker that began.
    pub(crate) targets: Vec<(u32, u16)>,
    /// Most zones that the disk has open at once; 0: any number.
    open_max: u32,
    /// Whether a reset is a command.
    is_real: bool,
}

impl Zones {
    /// Zones that a disk without them is treated as having: empty, each `size` bytes, of which
    /// `capacity` can be written. What is behind the last whole one is not used.
    ///
    /// # Errors
    /// [`ZonesError`] when they make no sense on this disk.
    pub fn imagined(
        disk: (u64, u32),
        size: u64,
        capacity: Option<u64>,
    ) -> Result<Self, ZonesError> {
        let capacity = capacity.unwrap_or(size);
        let zone = Zone { capacity, written: 0, is_usable: true };
        let count = Self::count(disk, (size, capacity))?;
        Ok(Self::new(size, (0..count).map(|_| zone), 0, false))
    }

    /// The zones that a disk reports, each `size` bytes, of which it has at most `open_max` open at
    /// once (0: any number).
    ///
    /// # Errors
    /// [`ZonesError`] when they make no sense.
    pub fn reported(
        (bytes, block_size): (u64, u32),
        size: u64,
        zones: &[Zone],
        open_max: u32,
    ) -> Result<Self, ZonesError> {
        let count = Self::count((bytes, block_size), (size, size))?;
        for zone in zones {
            let capacity = zone.capacity;
            let fits = capacity <= size && capacity.is_multiple_of(block_size.into());
            if !fits || zone.written > capacity {
                let (zone, capacity) = (Size(size), Size(capacity));
                return Err(ZonesError::Shape { zone, capacity, block_size });
            }
        }
        Ok(Self::new(size, zones.iter().copied().take(count as usize), open_max, true))
    }

    /// How many zones a disk has.
    fn count(
        (disk, block_size): (u64, u32),
        (zone, capacity): (u64, u64),
    ) -> Result<u64, ZonesError> {
        let whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(block_size.into());
        if !whole(zone) || !whole(capacity) || capacity > zone || zone > u32::MAX.into() {
            let (zone, capacity) = (Size(zone), Size(capacity));
            return Err(ZonesError::Shape { zone, capacity, block_size });
        }
        match disk / zone {
            0 => Err(ZonesError::TooLarge { zone: Size(zone), disk: Size(disk) }),
            count if count > ZONES_MAX => {
                Err(ZonesError::TooMany { zone: Size(zone), disk: Size(disk) })
            }
            count => Ok(count),
        }
    }

    fn new(size: u64, zones: impl Iterator<Item = Zone>, open_max: u32, is_real: bool) -> Self {
        let state = |zone: Zone| State {
            capacity: zone.capacity,
            written: zone.written,
            readable: zone.written,
            is_usable: zone.is_usable,
            ..State::default()
        };
        let states = zones.map(state).collect();
        Self { size, states, tallies: Vec::new(), targets: Vec::new(), open_max, is_real }
    }

    /// Bytes from the start of one zone to that of the next.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of all zones.
    pub fn bytes(&self) -> u64 {
        self.states.len() as u64 * self.size
    }

    /// Most zones that the disk has open at once; 0: any number.
    pub fn open_max(&self) -> u32 {
        self.open_max
    }

    /// Whether the disk has them itself.
    pub fn is_real(&self) -> bool {
        self.is_real
    }

    /// The number of the zone of a byte.
    pub(crate) fn index(&self, offset: u64) -> usize {
        ((offset / self.size) as usize).min(self.states.len() - 1)
    }

    /// The first byte of a zone.
    pub(crate) fn start(&self, index: usize) -> u64 {
        index as u64 * self.size
    }

    /// The zones that a range is made of, which begins and ends with one.
    pub(crate) fn range(&self, offset: u64, size: u64) -> Range<usize> {
        let index = |at: u64| ((at / self.size) as usize).min(self.states.len());
        index(offset)..index(offset + size)
    }

    /// The whole zones of a range; none if there is not one.
    pub(crate) fn whole(&self, offset: u64, size: u64) -> Option<(u64, u64)> {
        let end = (offset.saturating_add(size)).min(self.bytes()) / self.size * self.size;
        let begin = offset.div_ceil(self.size) * self.size;
        (begin < end).then(|| (begin, end - begin))
    }

    pub(crate) fn is_target(&self, index: usize) -> bool {
        self.targets.iter().any(|target| target.0 as usize == index)
    }

    /// A zone is no longer written to.
    pub(crate) fn leave(&mut self, index: usize) {
        self.targets.retain(|target| target.0 as usize != index);
    }

    /// A number by which to ask how much is written in a range, which begins and ends with a zone.
    pub(crate) fn tally(&mut self, offset: u64, size: u64) -> usize {
        let zones = self.range(offset, size);
        let known = self.tallies.iter().position(|tally| tally.zones == zones);
        known.unwrap_or_else(|| {
            let written = self.states[zones.clone()].iter().map(State::written).sum();
            self.tallies.push(Tally { zones, written });
            self.tallies.len() - 1
        })
    }

    /// Bytes that are written in the range of that number.
    pub(crate) fn tallied(&self, number: usize) -> u64 {
        self.tallies[number].written
    }

    fn set_written(&mut self, index: usize, written: u64) {
        let before = core::mem::replace(&mut self.states[index].written, written);
        for tally in self.tallies.iter_mut().filter(|tally| tally.zones.contains(&index)) {
            tally.written = tally.written - before + written;
        }
    }

    /// A write of so many bytes starts at the write pointer of a zone, which is returned: bytes
    /// from the zone's start.
    pub(crate) fn write(&mut self, index: usize, length: u64) -> u64 {
        let at = self.states[index].written;
        self.set_written(index, at + length);
        self.states[index].busy = Busy::Writing;
        at
    }

    /// A zone is empty.
    pub(crate) fn empty(&mut self, index: usize) {
        self.set_written(index, 0);
        let state = &mut self.states[index];
        *state = State { capacity: state.capacity, is_usable: true, ..State::default() };
        self.leave(index);
    }

    /// What a write has left of a zone: how much of it is there now, or nobody knows how much.
    pub(crate) fn wrote(&mut self, index: usize, least: u64, is_good: bool) {
        let state = &mut self.states[index];
        state.busy = Busy::No;
        match is_good {
            true => state.readable = state.written,
            // Where its write pointer stands nobody knows: it is full until it is reset.
            false => {
                let capacity = state.capacity;
                self.set_written(index, capacity);
            }
        }
        if self.states[index].room() < least {
            self.leave(index);
        }
    }
}

#[cfg(test)]
mod tests;
