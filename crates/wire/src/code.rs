//! A macro that declares enums for named numbers on the wire.

/// Declares an enum over a wire number. It is total: a number without a name is kept as
/// `Unknown(n)` and emitted as the same number.
///
/// Each line is `Variant = number => "name as the specification spells it"`.
macro_rules! code {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: $repr:ty {
            $( $(#[$doc:meta])* $variant:ident = $value:literal => $text:literal, )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$doc])* $variant, )*
            /// A number this crate has no name for.
            Unknown($repr),
        }

        impl $name {
            /// Every value that has a name, in the order of declaration.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The value for a wire number.
            #[inline]
            pub const fn from_bits(bits: $repr) -> Self {
                match bits {
                    $( $value => Self::$variant, )*
                    other => Self::Unknown(other),
                }
            }

            /// The wire number.
            #[inline]
            pub const fn into_bits(self) -> $repr {
                match self {
                    $( Self::$variant => $value, )*
                    Self::Unknown(other) => other,
                }
            }

            /// The name as the specification spells it, or `"unknown"` if there is none.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )*
                    Self::Unknown(_) => "unknown",
                }
            }
        }

        impl From<$repr> for $name {
            #[inline]
            fn from(bits: $repr) -> Self {
                Self::from_bits(bits)
            }
        }

        impl From<$name> for $repr {
            #[inline]
            fn from(value: $name) -> Self {
                value.into_bits()
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    Self::Unknown(bits) => write!(f, "unknown ({bits:#x})"),
                    known => f.write_str(known.name()),
                }
            }
        }
    };
}

pub(crate) use code;
