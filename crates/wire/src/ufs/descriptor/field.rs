//! Fields of descriptors: their positions, sizes and names. Big-endian.

use crate::field::Value;

/// One field of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name as the specification spells it.
    pub name: &'static str,
    /// Offset, bytes from the start of the descriptor.
    pub offset: u8,
    /// Size, bytes.
    pub size: u8,
}

impl Field {
    const fn end(&self) -> usize {
        self.offset as usize + self.size as usize
    }

    /// The bytes of the field; `None` if the descriptor is too short.
    pub fn bytes<'a>(&self, descriptor: &'a [u8]) -> Option<&'a [u8]> {
        descriptor.get(usize::from(self.offset)..self.end())
    }

    /// The number in the field; `None` if the descriptor is too short, or if the field is longer
    /// than a number.
    pub fn number(&self, descriptor: &[u8]) -> Option<u64> {
        let bytes = self.bytes(descriptor).filter(|bytes| bytes.len() <= 8)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Writes a number into the field, leaving every other byte unchanged. Returns whether the
    /// descriptor has the field and the number fits into it.
    #[must_use]
    pub fn set(&self, descriptor: &mut [u8], value: u64) -> bool {
        let size = usize::from(self.size);
        let fits = size >= 8 || value >> (8 * size) == 0;
        let Some(bytes) = descriptor.get_mut(usize::from(self.offset)..self.end()) else {
            return false;
        };
        if size > 8 || !fits {
            return false;
        }
        bytes.copy_from_slice(&value.to_be_bytes()[8 - size..]);
        true
    }
}

/// The value of a field; zero if the descriptor is too short.
pub(super) fn load<T: Value + Default>(descriptor: &[u8], offset: usize) -> T {
    descriptor.get(offset..offset + T::SIZE).map(T::from_be).unwrap_or_default()
}

/// Writes the value of a field if the descriptor is long enough.
pub(super) fn store<T: Value>(descriptor: &mut [u8], offset: usize, value: T) {
    if let Some(bytes) = descriptor.get_mut(offset..offset + T::SIZE) {
        value.put_be(bytes);
    }
}

/// The size of a field of this type.
pub(super) const fn size<T: Value>() -> u8 {
    T::SIZE as u8
}

/// Declares a structure of fields, stating each once: the value, the table of fields, and the
/// conversion between value and bytes.
macro_rules! record {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident, $length:literal {
            $( $(#[$doc:meta])* $field:ident: $type:ty = $offset:literal, $text:literal; )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$doc])* pub $field: $type, )*
        }

        impl $name {
            /// Length of the newest layout known, bytes.
            pub const LENGTH: usize = $length;

            /// Every field, in the order of the specification.
            pub const FIELDS: &'static [Field] = &[
                $( Field { name: $text, offset: $offset, size: field::size::<$type>() }, )*
            ];

            /// Fields beyond the end of `bytes` are zero.
            fn load(bytes: &[u8]) -> Self {
                Self { $( $field: field::load(bytes, $offset), )* }
            }

            /// Fields beyond the end of `bytes` are not written.
            fn store(&self, bytes: &mut [u8]) {
                $( field::store(bytes, $offset, self.$field); )*
            }
        }
    };
}

/// [`record!`] with the two bytes at the start of every descriptor.
macro_rules! descriptor {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident: $id:ident, $length:literal { $($fields:tt)* }
    ) => {
        record! {
            $(#[$attribute])*
            pub struct $name, $length {
                /// Length of the descriptor, bytes.
                b_length: u8 = 0x00, "bLength";
                /// Type of the descriptor, [`DescriptorId`].
                b_descriptor_type: u8 = 0x01, "bDescriptorType";
                $($fields)*
            }
        }

        impl $name {
            /// A descriptor with the newest layout, all other fields zero.
            pub fn new() -> Self {
                Self::with_length(Self::LENGTH as u8)
            }

            /// A descriptor of another length, all other fields zero.
            pub fn with_length(length: u8) -> Self {
                Self {
                    b_length: length,
                    b_descriptor_type: DescriptorId::$id.into_bits(),
                    ..Self::default()
                }
            }

            /// Parses a descriptor. Fields beyond its length, or beyond the bytes that were read,
            /// are zero.
            ///
            /// # Errors
            /// [`WireError::Truncated`] below two bytes, [`WireError::WrongCode`] if it is another
            /// descriptor, [`WireError::BadField`] if its length is impossible.
            pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
                let view = DescriptorView::new(bytes)?;
                view.expect(DescriptorId::$id)?;
                Ok(Self::load(view.as_bytes()))
            }

            /// Writes `b_length` bytes, those without a name as zero, and returns their number.
            ///
            /// # Errors
            /// [`WireError::Truncated`] if they do not fit.
            pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, WireError> {
                let length = usize::from(self.b_length);
                let got = bytes.len();
                let out =
                    bytes.get_mut(..length).ok_or(WireError::Truncated { needed: length, got })?;
                out.fill(0);
                self.store(out);
                Ok(length)
            }
        }
    };
}

pub(super) use {descriptor, record};
