//! Inline encryption: a host controller encrypts what it writes to a device and decrypts what it
//! reads, with a key that lies in one of its slots.
//!
//! The key goes into a slot by the driver's own means, once. What travels with each request is a
//! [`CryptoContext`]: the slot, and the number of the first data unit, from which the cipher's
//! initialisation vector is made (Linux: `bio_crypt_ctx`). It belongs to the data, not to the place
//! on the device: who moves cipher text without reading it takes its numbers along.

use core::num::NonZeroU8;

/// How many bytes are encrypted under one number: a power of two from 512 bytes to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataUnit(NonZeroU8);

impl DataUnit {
    /// Smallest, bytes.
    pub const MIN: u32 = 512;
    /// Largest, bytes.
    pub const MAX: u32 = 64 << 10;

    /// A block of 4 KiB: what file systems and disks have.
    pub const BLOCK: Self = match Self::of(4096) {
        Some(unit) => unit,
        None => unreachable!(),
    };

    /// A data unit of so many bytes; `None` if no data unit has so many.
    pub const fn of(bytes: u32) -> Option<Self> {
        if !bytes.is_power_of_two() || bytes < Self::MIN || bytes > Self::MAX {
            return None;
        }
        match NonZeroU8::new(bytes.trailing_zeros() as u8) {
            Some(shift) => Some(Self(shift)),
            None => None,
        }
    }

    /// Bytes.
    pub const fn bytes(self) -> u32 {
        1 << self.0.get()
    }

    /// The power of two: 9 to 16.
    pub const fn shift(self) -> u32 {
        self.0.get() as u32
    }
}

/// With which key the data of a request is encrypted, and how its data units are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CryptoContext {
    /// Number of the first data unit (DUN); the others follow.
    pub number: u64,
    /// Size of the key's data units. The data is a whole number of them.
    pub unit: DataUnit,
    /// The controller's slot that the key is in.
    pub slot: u8,
}

const _: () = assert!(size_of::<Option<CryptoContext>>() == 16);

impl CryptoContext {
    /// Whether `bytes` are whole data units.
    #[inline]
    pub const fn is_whole(&self, bytes: u64) -> bool {
        bytes & (self.unit.bytes() as u64 - 1) == 0
    }

    /// The same for what comes after the first `bytes`, which are whole data units.
    #[must_use]
    pub const fn after(self, bytes: u64) -> Self {
        Self { number: self.number.wrapping_add(bytes >> self.unit.shift()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_units_are_powers_of_two_and_numbered_from_the_first() {
        for bytes in [0, 1, 256, 513, 4095, 128 << 10, u32::MAX] {
            assert_eq!(DataUnit::of(bytes), None, "{bytes}");
        }
        let unit = DataUnit::of(4096).expect("a size");
        assert_eq!((unit.bytes(), unit.shift()), (4096, 12));
        let context = CryptoContext { number: u64::MAX, unit, slot: 3 };
        assert!(context.is_whole(8192) && !context.is_whole(6144));
        assert_eq!(context.after(8192).number, 1, "numbers wrap as the controller's do");
    }
}
