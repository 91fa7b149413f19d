//! Structures of fixed length as a table: one line says what a field is called, how wide it is and
//! where it lies, and both directions are made from it.

use crate::bytes::{array, put};

/// The value of a field, for those who show all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, and how many bytes wide it is.
    Number(u128, u8),
    /// Bytes as they are: text, identifiers, structures of their own.
    Bytes(&'a [u8]),
}

/// What a field can be.
pub(super) trait Field: Sized {
    fn get(bytes: &[u8], at: usize) -> Self;
    fn put(self, bytes: &mut [u8], at: usize);
    fn value(&self) -> Value<'_>;
}

impl Field for u8 {
    fn get(bytes: &[u8], at: usize) -> Self {
        bytes[at]
    }
    fn put(self, bytes: &mut [u8], at: usize) {
        bytes[at] = self;
    }
    fn value(&self) -> Value<'_> {
        Value::Number(u128::from(*self), 1)
    }
}

impl Field for u16 {
    fn get(bytes: &[u8], at: usize) -> Self {
        Self::from_le_bytes(array(bytes, at))
    }
    fn put(self, bytes: &mut [u8], at: usize) {
        put(bytes, at, self.to_le_bytes());
    }
    fn value(&self) -> Value<'_> {
        Value::Number(u128::from(*self), 2)
    }
}

impl Field for u32 {
    fn get(bytes: &[u8], at: usize) -> Self {
        Self::from_le_bytes(array(bytes, at))
    }
    fn put(self, bytes: &mut [u8], at: usize) {
        put(bytes, at, self.to_le_bytes());
    }
    fn value(&self) -> Value<'_> {
        Value::Number(u128::from(*self), 4)
    }
}

impl Field for u64 {
    fn get(bytes: &[u8], at: usize) -> Self {
        Self::from_le_bytes(array(bytes, at))
    }
    fn put(self, bytes: &mut [u8], at: usize) {
        put(bytes, at, self.to_le_bytes());
    }
    fn value(&self) -> Value<'_> {
        Value::Number(u128::from(*self), 8)
    }
}

impl Field for u128 {
    fn get(bytes: &[u8], at: usize) -> Self {
        Self::from_le_bytes(array(bytes, at))
    }
    fn put(self, bytes: &mut [u8], at: usize) {
        put(bytes, at, self.to_le_bytes());
    }
    fn value(&self) -> Value<'_> {
        Value::Number(*self, 16)
    }
}

impl<const N: usize> Field for [u8; N] {
    fn get(bytes: &[u8], at: usize) -> Self {
        array(bytes, at)
    }
    fn put(self, bytes: &mut [u8], at: usize) {
        put(bytes, at, self);
    }
    fn value(&self) -> Value<'_> {
        Value::Bytes(self)
    }
}

/// Declares a structure of so many bytes; the lines are `field: type = offset`.
macro_rules! layout {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident[$length:literal] {
            $( $(#[$doc:meta])* $field:ident: $type:ty = $at:literal, )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$doc])* pub $field: $type, )*
        }

        impl $name {
            /// Length, bytes.
            pub const LENGTH: usize = $length;

            /// The values in these bytes.
            ///
            /// # Errors
            /// [`Error::Truncated`](crate::Error::Truncated).
            pub fn parse(bytes: &[u8]) -> Result<Self, crate::Error> {
                crate::Error::check_len(bytes, Self::LENGTH)?;
                Ok(Self { $( $field: crate::nvme::layout::Field::get(bytes, $at), )* })
            }

            /// The bytes of these values; what has no field is zero.
            pub fn to_bytes(&self) -> [u8; $length] {
                let mut bytes = [0; $length];
                $( crate::nvme::layout::Field::put(self.$field, &mut bytes, $at); )*
                bytes
            }

            /// All fields in their order: the specification's name in small letters, and the value.
            pub fn fields(
                &self,
            ) -> impl Iterator<Item = (&'static str, crate::nvme::layout::Value<'_>)> {
                [$( (stringify!($field), crate::nvme::layout::Field::value(&self.$field)), )*]
                    .into_iter()
            }
        }

        impl Default for $name {
            /// All zero.
            fn default() -> Self {
                let bytes = [0; $length];
                Self { $( $field: crate::nvme::layout::Field::get(&bytes, $at), )* }
            }
        }
    };
}

pub(super) use layout;
