//! Sense data the model gives.

/// Key, code, qualifier, and the block they are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sense {
    pub(crate) key: u8,
    pub(crate) asc: u8,
    pub(crate) ascq: u8,
    /// INFORMATION: the first block in error, where there is one.
    pub(crate) information: Option<u32>,
}

impl Sense {
    pub(crate) const fn new(key: u8, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq, information: None }
    }
}

impl Sense {
    /// Fixed format sense data, current (SPC-6 4.4.3).
    pub(crate) fn to_fixed(self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0] = 0x70;
        bytes
    }
}
