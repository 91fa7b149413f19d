//! A cache of what was read from a flash.
//!
//! File systems read small things: a header of 64 bytes, an index node of 200, a data node that
//! shares its first page with the previous node. Without a cache each of them is a system call. On
//! a dump with error correction inside, each also corrects whole pages, and often the same pages
//! again. Here pages are read and corrected once, and kept as long as there is room.
//!
//! Content is read once, from front to back, and need not be kept. If no error correction makes
//! reading expensive, a thread that reads sequentially gets its own [`Window`] on the flash, which
//! moves along.

use std::boxed::Box;
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;
use std::{thread_local, vec};

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, OobMode};

#[cfg(test)]
mod tests;
mod window;

use window::Window;

/// Maximum number of cached bytes of one flash.
const ROOM: usize = 8 << 20;
/// Size of a unit in bytes if the flash has no pages.
const UNIT: u32 = 4096;
/// Units to read at once when reading looks sequential.
const AHEAD: u64 = 8;
/// Distance in units within which reads count as neighbours.
const NEAR: u64 = 6;
/// Units in a set; the least recently used one makes room.
const WAYS: usize = 4;

/// A flash whose recent reads are cached. The flash below must not change.
#[derive(Debug)]
pub struct CachedFlash<F> {
    flash: F,
    /// Distinguishes windows on this flash from windows on others.
    id: u64,
    unit: u32,
    /// Base-2 logarithm of the number of sets.
    set_bits: u32,
    sets: Box<[Mutex<Set>]>,
}

/// Units that compete for the same room.
#[derive(Debug, Default)]
struct Set {
    /// The most recently used one is last.
    units: Vec<Unit>,
    /// Their bytes, each in its own place.
    bytes: Vec<u8>,
}

/// A page, or a piece of flash without pages.
#[derive(Debug)]
struct Unit {
    number: u64,
    place: u8,
    /// Length in bytes: a whole unit except at the end of the flash.
    len: u32,
    outcome: Outcome,
}

/// Result of error correction for a unit: bits corrected, or the first step beyond repair.
type Outcome = Result<Corrected, u64>;

impl<F: Flash> CachedFlash<F> {
    /// A cache over `flash`.
    pub fn new(flash: F) -> Self {
        let geometry = flash.geometry();
        // Corrections are counted by page, and so must be remembered by page.
        let unit = if geometry.oob_size == 0 { UNIT } else { geometry.write_size };
        let sets = (ROOM / WAYS / unit as usize).max(2).next_power_of_two();
        let set_bits = sets.trailing_zeros();
        let sets = (0..sets).map(|_| Mutex::default()).collect();
        Self { flash, id: window::id(), unit, set_bits, sets }
    }

    fn set(&self, number: u64) -> MutexGuard<'_, Set> {
        // Headers lie at large powers of two: neighbours in this order must not share a set.
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.set_bits);
        self.sets[spread as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, number: u64) -> bool {
        self.set(number).units.iter().any(|unit| unit.number == number)
    }

    /// Copies the cached bytes of unit `number` from byte `inside` on; `None` if it is not cached.
    fn kept(&self, number: u64, inside: usize, buffer: &mut [u8]) -> Option<Outcome> {
        let mut set = self.set(number);
        let at = set.units.iter().position(|unit| unit.number == number)?;
        set.units[at..].rotate_left(1);
        let Unit { place, len, outcome, .. } = *set.units.last()?;
        if inside + buffer.len() > len as usize {
            return None;
        }
        let start = usize::from(place) * self.unit as usize + inside;
        buffer.copy_from_slice(&set.bytes[start..start + buffer.len()]);
        Some(outcome)
    }

    fn keep(&self, number: u64, bytes: &[u8], outcome: Outcome) {
        let unit = self.unit as usize;
        let mut set = self.set(number);
        if set.bytes.is_empty() {
            set.bytes = vec![0; WAYS * unit];
        }
        let again = set.units.iter().position(|unit| unit.number == number);
        let place = match again.or((set.units.len() == WAYS).then_some(0)) {
            Some(at) => set.units.remove(at).place,
            None => set.units.len() as u8,
        };
        let start = usize::from(place) * unit;
        set.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        set.units.push(Unit { number, place, len: bytes.len() as u32, outcome });
    }

    /// Reads these units, as far as the flash goes, and caches them.
    fn fill(&self, units: Range<u64>) -> Result<(), FlashError> {
        thread_local! {
            static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
        }
        let unit = u64::from(self.unit);
        let start = units.start * unit;
        let len = ((units.end * unit).min(self.flash.geometry().size) - start) as usize;
        // Taken out, not borrowed: the flash below may have a cache of its own.
        let mut buffer = BUFFER.take();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let filled = self.fill_from(units.start, &mut buffer[..len]);
        BUFFER.set(buffer);
        filled
    }

    fn fill_from(&self, first: u64, bytes: &mut [u8]) -> Result<(), FlashError> {
        let unit = u64::from(self.unit);
        match self.flash.read(first * unit, bytes) {
            Ok(Corrected::NONE) => {
                for (number, part) in (first..).zip(bytes.chunks(self.unit as usize)) {
                    self.keep(number, part, Ok(Corrected::NONE));
                }
                return Ok(());
            }
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => {}
            Err(error) => return Err(error),
        }
        // Which pages have the bit errors is told one by one only.
        for (number, part) in (first..).zip(bytes.chunks_mut(self.unit as usize)) {
            let outcome = match self.flash.read(number * unit, part) {
                Ok(corrected) => Ok(corrected),
                Err(FlashError::Uncorrectable { offset }) => Err(offset),
                Err(error) => return Err(error),
            };
            self.keep(number, part, outcome);
        }
        Ok(())
    }

    /// Reads unit by unit; `None` if a unit is not available.
    fn read_kept(&self, offset: u64, buffer: &mut [u8]) -> Option<Outcome> {
        let unit = u64::from(self.unit);
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (number, inside) = (at / unit, (at % unit) as usize);
            let wanted = (inside as u64 + rest.len() as u64).div_ceil(unit);
            let len = rest.len().min(unit as usize - inside);
            let (now, later) = rest.split_at_mut(len);
            let mut outcome = self.kept(number, inside, now);
            if outcome.is_none() && self.follows(number) && self.is_plain() {
                let is_read = Window::open(self, at, now);
                outcome = is_read.then_some(Ok(Corrected::NONE));
            }
            if outcome.is_none() {
                self.fill(self.worth_reading(number, wanted)).ok()?;
                // Somebody else may have needed the room meanwhile.
                outcome = self.kept(number, inside, now);
            }
            match outcome? {
                Ok(more) => corrected += more,
                Err(offset) => failed = failed.and(Err(offset)),
            }
            at += len as u64;
            rest = later;
        }
        Some(failed.map(|()| corrected))
    }

    /// What to read if unit `number` is missing and `wanted` units are needed from there on.
    fn worth_reading(&self, number: u64, wanted: u64) -> Range<u64> {
        let wanted = wanted.min(AHEAD);
        let end = number + wanted;
        if self.follows(number) {
            return number..number + AHEAD;
        }
        // Files lie behind each other in the order they were made, and are listed in any other.
        if self.has_two(end..end + NEAR) {
            return end.saturating_sub(AHEAD)..end;
        }
        number..number + wanted
    }

    /// Whether unit `number` follows two that were read, perhaps with a gap.
    fn follows(&self, number: u64) -> bool {
        self.has_two(number.saturating_sub(NEAR)..number)
    }

    fn has_two(&self, mut units: Range<u64>) -> bool {
        units.by_ref().any(|unit| self.has(unit)) && units.any(|unit| self.has(unit))
    }

    /// Whether there is no error correction: reading again is then cheap.
    fn is_plain(&self) -> bool {
        self.geometry().ecc_strength == 0
    }
}

impl<F: Flash> Flash for CachedFlash<F> {
    fn geometry(&self) -> &FlashGeometry {
        self.flash.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry().check(offset, buffer.len())?;
        // Long reads are made once, by scans; only correction is worth being kept even then.
        let is_long = buffer.len() as u64 > AHEAD * u64::from(self.unit);
        if !is_long && self.is_plain() && Window::read(self, offset, buffer) {
            return Ok(Corrected::NONE);
        }
        if (!is_long || !self.is_plain())
            && let Some(outcome) = self.read_kept(offset, buffer)
        {
            return outcome.map_err(|offset| FlashError::Uncorrectable { offset });
        }
        // Not to be kept, or there is a page that cannot be read: the flash itself answers.
        self.flash.read(offset, buffer)
    }

    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.flash.point(offset, len)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.flash.read_oob(offset, mode, buffer)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.flash.is_bad(block)
    }
}
