//! Fixed-length structures declared as tables: each line gives a field's name, width and offset,
//! from which the conversions in both directions are generated.

use crate::field::{self, Field, Little};

/// The value of a field, for callers that list all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, and its width in bytes.
    Number(u128, u8),
    /// Raw bytes: text, identifiers, nested structures.
    Bytes(&'a [u8]),
}

/// A value that can be listed.
pub(super) trait Show {
    fn value(&self) -> Value<'_>;
}

macro_rules! show_numbers {
    ($($number:ty),*) => {$(
        impl Show for $number {
            fn value(&self) -> Value<'_> {
                Value::Number(u128::from(*self), size_of::<$number>() as u8)
            }
        }
    )*};
}

show_numbers!(u8, u16, u32, u64, u128);

impl<const N: usize> Show for [u8; N] {
    fn value(&self) -> Value<'_> {
        Value::Bytes(self)
    }
}

/// A field, little endian.
pub(super) const fn at<T: field::Value>(at: usize) -> Field<T, Little> {
    Field::at(at)
}

/// Declares a structure of the given length; each line is `field: type = offset`.
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

            /// Parses the structure.
            ///
            /// # Errors
            /// [`WireError::Truncated`](crate::WireError::Truncated).
            pub fn parse(bytes: &[u8]) -> Result<Self, crate::WireError> {
                crate::WireError::check_len(bytes, Self::LENGTH)?;
                Ok(Self { $( $field: crate::nvme::layout::at::<$type>($at).get(bytes), )* })
            }

            /// The bytes of the structure; those without a field are zero.
            pub fn to_bytes(&self) -> [u8; $length] {
                let mut bytes = [0; $length];
                $( crate::nvme::layout::at::<$type>($at).put(&mut bytes, self.$field); )*
                bytes
            }

            /// All fields in order: the specification's name in lower case, and the value.
            pub fn fields(
                &self,
            ) -> impl Iterator<Item = (&'static str, crate::nvme::layout::Value<'_>)> {
                [$( (stringify!($field), crate::nvme::layout::Show::value(&self.$field)), )*]
                    .into_iter()
            }
        }

        impl Default for $name {
            /// All zero.
            fn default() -> Self {
                let bytes = [0; $length];
                Self { $( $field: crate::nvme::layout::at::<$type>($at).get(&bytes), )* }
            }
        }
    };
}

pub(super) use layout;
