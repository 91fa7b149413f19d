//! The positions of a structure's fields, each stated once and used for both reading and writing.
//!
//! [`fields!`] declares them. The compiler refuses a table whose fields overlap, are out of order
//! or reach beyond the structure.

use core::marker::PhantomData;
use core::ops::Range;

/// What a field can hold: a number in either byte order, or raw bytes.
pub(crate) trait Value: Sized {
    /// Size on the wire in bytes.
    const SIZE: usize;

    /// The value in the first [`SIZE`](Self::SIZE) bytes, least significant byte first.
    fn from_le(bytes: &[u8]) -> Self;
    /// The same, most significant byte first.
    fn from_be(bytes: &[u8]) -> Self;
    /// Fills exactly [`SIZE`](Self::SIZE) bytes, least significant byte first.
    fn put_le(self, out: &mut [u8]);
    /// The same, most significant byte first.
    fn put_be(self, out: &mut [u8]);
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Value for $number {
            const SIZE: usize = size_of::<$number>();

            #[inline]
            fn from_le(bytes: &[u8]) -> Self {
                Self::from_le_bytes(crate::bytes::array(bytes, 0))
            }

            #[inline]
            fn from_be(bytes: &[u8]) -> Self {
                Self::from_be_bytes(crate::bytes::array(bytes, 0))
            }

            #[inline]
            fn put_le(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn put_be(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, u128);

/// An array of values. An array of bytes has no byte order.
impl<T: Value + Copy, const N: usize> Value for [T; N] {
    const SIZE: usize = N * T::SIZE;

    #[inline]
    fn from_le(bytes: &[u8]) -> Self {
        core::array::from_fn(|n| T::from_le(&bytes[n * T::SIZE..]))
    }

    #[inline]
    fn from_be(bytes: &[u8]) -> Self {
        core::array::from_fn(|n| T::from_be(&bytes[n * T::SIZE..]))
    }

    #[inline]
    fn put_le(self, out: &mut [u8]) {
        self.into_iter().zip(out.chunks_exact_mut(T::SIZE)).for_each(|(it, out)| it.put_le(out));
    }

    #[inline]
    fn put_be(self, out: &mut [u8]) {
        self.into_iter().zip(out.chunks_exact_mut(T::SIZE)).for_each(|(it, out)| it.put_be(out));
    }
}

/// Least significant byte first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Little;
/// Most significant byte first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Big;
/// The byte order of the processor that wrote the structure, which the reader has to detect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Native;

/// One field: its position, type and byte order.
#[derive(Debug)]
pub(crate) struct Field<T, Order> {
    at: usize,
    of: PhantomData<fn() -> (T, Order)>,
}

impl<T, Order> Clone for Field<T, Order> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, Order> Copy for Field<T, Order> {}

impl<T: Value, Order> Field<T, Order> {
    /// The field that begins at byte `at`.
    pub(crate) const fn at(at: usize) -> Self {
        Self { at, of: PhantomData }
    }

    /// Offset of its first byte.
    #[inline]
    pub(crate) const fn start(self) -> usize {
        self.at
    }

    /// Range of its bytes.
    #[inline]
    pub(crate) const fn range(self) -> Range<usize> {
        self.at..self.at + T::SIZE
    }
}

impl<T: Value> Field<T, Little> {
    /// Reads its value from `bytes`, which must contain the field.
    #[inline]
    pub(crate) fn get(self, bytes: &[u8]) -> T {
        T::from_le(&bytes[self.range()])
    }

    /// Writes its value to `out`, which must contain the field.
    #[inline]
    pub(crate) fn put(self, out: &mut [u8], value: T) {
        value.put_le(&mut out[self.range()]);
    }
}

impl<T: Value> Field<T, Big> {
    /// Reads its value from `bytes`, which must contain the field.
    #[inline]
    pub(crate) fn get(self, bytes: &[u8]) -> T {
        T::from_be(&bytes[self.range()])
    }

    /// Writes its value to `out`, which must contain the field.
    #[inline]
    pub(crate) fn put(self, out: &mut [u8], value: T) {
        value.put_be(&mut out[self.range()]);
    }
}

/// Whether the fields follow one another within `length` bytes; gaps are reserved bytes.
pub(crate) const fn are_in_order(length: usize, fields: &[Range<usize>]) -> bool {
    let (mut end, mut n) = (0, 0);
    while n < fields.len() {
        if fields[n].start < end {
            return false;
        }
        end = fields[n].end;
        n += 1;
    }
    end <= length
}

/// Declares the fields of a structure of the given length as `NAME: type = offset`, with the names
/// of the format and in ascending order of offset.
macro_rules! fields {
    (
        $(#[$doc:meta])*
        mod $module:ident: $order:ident[$length:expr] {
            $( $name:ident: $type:ty = $at:literal, )*
        }
    ) => {
        $(#[$doc])*
        mod $module {
            use crate::field::{Field, $order};
            $( pub(super) const $name: Field<$type, $order> = Field::at($at); )*
        }

        const _: () = assert!(
            crate::field::are_in_order($length, &[$( $module::$name.range(), )*]),
            "fields overlap, are out of order or reach beyond the structure"
        );
    };
}

pub(crate) use fields;

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: Field<u32, Big> = Field::at(2);
    const ROW: Field<[u16; 2], Little> = Field::at(1);

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_touched() {
        let mut bytes = [0xAA; 8];
        NUMBER.put(&mut bytes, 0x0102_0304);
        assert_eq!(bytes, [0xAA, 0xAA, 1, 2, 3, 4, 0xAA, 0xAA]);
        assert_eq!(NUMBER.get(&bytes), 0x0102_0304);
        ROW.put(&mut bytes, [0x0102, 0x0304]);
        assert_eq!(bytes, [0xAA, 2, 1, 4, 3, 4, 0xAA, 0xAA]);
        assert_eq!(ROW.get(&bytes), [0x0102, 0x0304]);
        assert_eq!((ROW.start(), ROW.range()), (1, 1..5));
    }

    #[test]
    fn a_table_is_checked() {
        assert!(are_in_order(8, &[0..4, 4..5, 6..8]));
        assert!(!are_in_order(7, &[0..4, 4..5, 6..8]), "beyond the end");
        assert!(!are_in_order(8, &[0..4, 3..5]), "overlap");
        assert!(!are_in_order(8, &[4..5, 0..4]), "order");
    }
}
