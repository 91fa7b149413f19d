//! Numbers of 64 bits in what threads may share: times and counts.

#[cfg(any(test, not(target_has_atomic = "64")))]
use core::sync::atomic::AtomicU32;
#[cfg(target_has_atomic = "64")]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

/// A number that is read and changed through a shared reference. It orders nothing else.
#[cfg(target_has_atomic = "64")]
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

/// Microcontrollers (Cortex-M, riscv32) have no 64-bit atomics.
#[cfg(not(target_has_atomic = "64"))]
pub(crate) type Number = Halves;

#[cfg(target_has_atomic = "64")]
impl Number {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Adds, wrapping around, and returns the number before.
    #[inline]
    pub(crate) fn add(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::Relaxed)
    }
}

impl Clone for Number {
    fn clone(&self) -> Self {
        let number = Self::default();
        number.set(self.get());
        number
    }
}

/// A number in two halves. Sums are exact, whoever adds: the thread whose addition to the lower
/// half wraps around carries into the upper one. Only who reads during a change can get the halves
/// of two values. Here these are times and counts for reports, and the times in the table of a
/// model, which are read after the completion that follows them.
#[cfg(any(test, not(target_has_atomic = "64")))]
#[derive(Debug, Default)]
pub(crate) struct Halves {
    low: AtomicU32,
    high: AtomicU32,
}

#[cfg(any(test, not(target_has_atomic = "64")))]
impl Halves {
    pub(crate) fn get(&self) -> u64 {
        let [low, high] = [&self.low, &self.high].map(|half| half.load(Ordering::Relaxed));
        u64::from(high) << 32 | u64::from(low)
    }

    pub(crate) fn set(&self, number: u64) {
        self.low.store(number as u32, Ordering::Relaxed);
        self.high.store((number >> 32) as u32, Ordering::Relaxed);
    }

    /// Adds, wrapping around, and returns the number before.
    pub(crate) fn add(&self, more: u64) -> u64 {
        let low = self.low.fetch_add(more as u32, Ordering::Relaxed);
        let carry = u32::from(low.checked_add(more as u32).is_none());
        let more = ((more >> 32) as u32).wrapping_add(carry);
        let high = self.high.fetch_add(more, Ordering::Relaxed);
        u64::from(high) << 32 | u64::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_count_as_one_number_does() {
        let (halves, number) = (Halves::default(), Number::default());
        for start in [0, 1, 0xFFFF_FFFF, 0x1_FFFF_FFFF, u64::MAX] {
            for more in [0, 1, 0xFFFF_FFFF, 0x1_0000_0000, 0x7_8000_0001, u64::MAX] {
                halves.set(start);
                number.set(start);
                assert_eq!((halves.get(), number.get()), (start, start));
                assert_eq!((halves.add(more), number.add(more)), (start, start));
                let sum = start.wrapping_add(more);
                assert_eq!((halves.get(), number.get()), (sum, sum), "{start:#x} + {more:#x}");
            }
        }
        assert_eq!(number.clone().get(), number.get());
    }
}
