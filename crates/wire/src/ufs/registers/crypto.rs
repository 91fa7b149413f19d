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
    /// CFGPTR: where the configuration entries start, in units of 0x100 bytes.
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

/// CRYPTOCAP: one algorithm the controller can do.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CryptoCapEntry {
    /// ALGID: the algorithm.
    #[bits(8)]
    pub algid: CryptoAlgorithm,
    /// SDUSB: data unit sizes, bit n stands for `512 << n` bytes.
    pub sdusb: u8,
    /// KS: the key size.
    #[bits(8)]
    pub ks: CryptoKeySize,
    __: u8,
}
