//! Inline encryption capabilities.

use crate::code::code;
use bitfield_struct::bitfield;

/// CCAP, crypto capability.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CryptoCap {
    /// CC: number of capability entries.
    pub cc: u8,
    /// CFGC: number of configuration entries minus one.
    pub cfgc: u8,
    __: u8,
    /// CFGPTR: offset of the configuration entries, in units of 0x100 bytes.
    pub cfgptr: u8,
}

code! {
    /// CRYPTOCAP.ALGID.
    pub enum CryptoAlgorithm: u8 {
        /// AES-XTS.
        AesXts = 0 => "AES-XTS",
        /// BitLocker AES-CBC.
        BitlockerAesCbc = 1 => "Bitlocker-AES-CBC",
        /// AES-ECB.
        AesEcb = 2 => "AES-ECB",
        /// ESSIV AES-CBC.
        EssivAesCbc = 3 => "ESSIV-AES-CBC",
    }
}

code! {
    /// CRYPTOCAP.KS.
    pub enum CryptoKeySize: u8 {
        /// 128 bits.
        Bits128 = 1 => "128",
        /// 192 bits.
        Bits192 = 2 => "192",
        /// 256 bits.
        Bits256 = 3 => "256",
        /// 512 bits.
        Bits512 = 4 => "512",
    }
}

/// CRYPTOCAP: one algorithm that the controller supports.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CryptoCapEntry {
    /// ALGID: the algorithm.
    #[bits(8)]
    pub algid: CryptoAlgorithm,
    /// SDUSB: data unit sizes, bit n for `512 << n` bytes.
    pub sdusb: u8,
    /// KS: the key size.
    #[bits(8)]
    pub ks: CryptoKeySize,
    __: u8,
}

/// Length of the key field of a configuration entry (CRYPTOCFG), bytes. The two AES keys of an
/// AES-XTS key are placed at the start of each half.
pub const CRYPTO_KEY_LENGTH: usize = 64;
/// Offset of DW16, [`CryptoConfig`], in a configuration entry.
pub const CRYPTO_CONFIG_OFFSET: u32 = 64;
/// Offset of DW17, which is reserved or vendor specific.
pub const CRYPTO_VENDOR_OFFSET: u32 = 68;

/// DW16 of a configuration entry. It is written last: CFGE makes the entry a key slot that commands
/// may use.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CryptoConfig {
    /// DUSIZE: data unit size, one of the bits in [`CryptoCapEntry::sdusb`].
    pub dusize: u8,
    /// CAPIDX: index of the capability entry.
    pub capidx: u8,
    #[bits(15)]
    __: u16,
    /// CFGE: configuration enable.
    pub cfge: bool,
}

impl CryptoConfig {
    /// Bytes per data unit; `None` unless exactly one size is given.
    pub const fn data_unit(self) -> Option<u32> {
        let size = self.dusize() as u32;
        if size.is_power_of_two() { Some(size * 512) } else { None }
    }
}

impl CryptoKeySize {
    /// Bytes in a key of this size.
    pub const fn bytes(self) -> Option<usize> {
        match self {
            Self::Bits128 => Some(16),
            Self::Bits192 => Some(24),
            Self::Bits256 => Some(32),
            Self::Bits512 => Some(64),
            Self::Unknown(_) => None,
        }
    }
}
