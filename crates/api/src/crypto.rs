//! Inline encryption: a host controller encrypts what it writes to a device and decrypts what it
//! reads, with a key from one of its slots.
//!
//! The driver programs the key into a slot once, by its own means. A [`CryptoContext`] travels with
//! each request: the slot, and the number of the first data unit, from which the cipher's
//! initialisation vector is made (Linux: `bio_crypt_ctx`). The number belongs to the data, not to
//! its place on the device: if ciphertext is moved without decryption, its numbers must move with
//! it.

use core::num::NonZeroU8;

/// The size of a data unit, encrypted under one number: a power of two from 512 bytes to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataUnit(NonZeroU8);

impl DataUnit {
    /// Smallest size, bytes.
    pub const MIN: u32 = 512;
    /// Largest size, bytes.
    pub const MAX: u32 = 64 << 10;

    /// 4 KiB, the block size of file systems and disks.
    pub const BLOCK: Self = match Self::of(4096) {
        Some(unit) => unit,
        None => unreachable!(),
    };

    /// A data unit of this many bytes; `None` if that is not a valid size.
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

    /// Its base-2 logarithm: 9 to 16.
    pub const fn shift(self) -> u32 {
        self.0.get() as u32
    }
}

/// The key that encrypts the data of a request, and how the data units are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CryptoContext {
    /// Number of the first data unit (DUN); the following units count up from it.
    pub number: u64,
    /// Size of the key's data units. The data is a whole number of them.
    pub unit: DataUnit,
    /// The slot of the controller that holds the key.
    pub slot: u8,
}

const _: () = assert!(size_of::<Option<CryptoContext>>() == 16);

impl CryptoContext {
    /// Whether `bytes` is a whole number of data units.
    #[inline]
    pub const fn is_whole(&self, bytes: u64) -> bool {
        bytes & (self.unit.bytes() as u64 - 1) == 0
    }

    /// The context for the data after the first `bytes`, which are whole data units.
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
