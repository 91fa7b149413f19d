use std::path::PathBuf;

use flysch_api::crypto::DataUnit;

use crate::size;
use crate::target::ParseError;
use crate::target::pairs::Pairs;

/// How a disk's data is encrypted: data unit n, counted from its start, with the number n, like
/// dm-crypt's `plain64` with sectors of that size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CryptoTarget {
    /// Bytes of the key: 64 for AES-256-XTS, 32 for AES-128-XTS.
    pub key_bytes: usize,
    /// File that contains it; without one, a random key.
    pub key: Option<PathBuf>,
    /// Bytes encrypted under one number.
    pub unit: DataUnit,
}

impl Pairs<'_> {
    /// Parses the encryption of a disk with blocks of `block` bytes, and refuses its other keys
    /// without it.
    pub(super) fn crypto(&self, block: u32) -> Result<Option<CryptoTarget>, ParseError> {
        let key_bytes = self.get("crypto", |text| match text {
            "aes-256-xts" => Some(64),
            "aes-128-xts" => Some(32),
            "off" => Some(0),
            _ => None,
        })?;
        let key = self.path("crypto-key")?;
        let unit = self.get("data-unit", |text| {
            size::parse(text).and_then(|bytes| DataUnit::of(bytes.try_into().ok()?))
        })?;
        match key_bytes {
            Some(key_bytes @ 1..) => {
                let unit = unit.or(DataUnit::of(block)).unwrap_or(DataUnit::BLOCK);
                Ok(Some(CryptoTarget { key_bytes, key, unit }))
            }
            _ => {
                let expected = "`crypto=aes-256-xts` or `crypto=aes-128-xts` as well";
                self.refuse(&["crypto-key", "data-unit"], expected)?;
                Ok(None)
            }
        }
    }
}
