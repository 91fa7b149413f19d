//! Inline encryption: the key slots of the controller, and the cipher between memory and media.
//!
//! The device stores cipher text and knows nothing of keys. Slots follow the rules for
//! configuration entries strictly: one that was changed while it was enabled answers a general
//! crypto error until it is disabled, so that a driver that writes the words in a wrong order is
//! detected.

use core::fmt;

use aes::cipher::KeyInit;
use aes::{Aes128, Aes256};
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::machine::GuestMemory;
use flysch_wire::ufs::registers::{
    CRYPTO_CONFIG_LENGTH, CRYPTO_CONFIG_OFFSET, CRYPTO_CONFIG_UNIT, CRYPTO_KEY_LENGTH,
    CryptoAlgorithm, CryptoCap, CryptoCapEntry, CryptoConfig, CryptoKeySize,
};
use flysch_wire::ufs::utrd::Ocs;
use xts_mode::{Xts128, get_tweak_default};

use super::exchange::Failed;
use super::task::Task;
use super::transfer::{gather, scatter};
use crate::store::Store;

/// Offset of the configuration entries.
pub(super) const REGISTER: u32 = 0x1800;
/// Maximum number of slots: what fits the rest of the register window.
pub const CRYPTO_SLOTS_MAX: u32 = 16;

/// The algorithms, each with every size of data units.
const CAPABILITIES: [CryptoCapEntry; 2] =
    [xts(CryptoKeySize::Bits256), xts(CryptoKeySize::Bits128)];

const fn xts(size: CryptoKeySize) -> CryptoCapEntry {
    CryptoCapEntry::new().with_algid(CryptoAlgorithm::AesXts).with_sdusb(0xFF).with_ks(size)
}

enum Cipher {
    Aes128(Box<Xts128<Aes128>>),
    Aes256(Box<Xts128<Aes256>>),
}

impl Cipher {
    /// The cipher of a configuration entry; `None` if the entry is invalid.
    fn new(key: &[u8; CRYPTO_KEY_LENGTH], config: CryptoConfig) -> Option<Self> {
        let size = CAPABILITIES.get(usize::from(config.capidx()))?.ks();
        config.data_unit()?;
        let (data, tweak) = key.split_at(CRYPTO_KEY_LENGTH / 2);
        Some(match size {
            CryptoKeySize::Bits128 => {
                let aes = |key: &[u8]| Aes128::new_from_slice(&key[..16]).ok();
                Self::Aes128(Box::new(Xts128::new(aes(data)?, aes(tweak)?)))
            }
            _ => {
                let aes = |key: &[u8]| Aes256::new_from_slice(key).ok();
                Self::Aes256(Box::new(Xts128::new(aes(data)?, aes(tweak)?)))
            }
        })
    }

    fn apply(&self, encrypt: bool, data: &mut [u8], unit: usize, number: u64) {
        for (n, data) in (0..).zip(data.chunks_exact_mut(unit)) {
            let tweak = get_tweak_default(number.wrapping_add(n).into());
            match (self, encrypt) {
                (Self::Aes128(xts), true) => xts.encrypt_sector(data, tweak),
                (Self::Aes128(xts), false) => xts.decrypt_sector(data, tweak),
                (Self::Aes256(xts), true) => xts.encrypt_sector(data, tweak),
                (Self::Aes256(xts), false) => xts.decrypt_sector(data, tweak),
            }
        }
    }
}

struct Slot {
    key: [u8; CRYPTO_KEY_LENGTH],
    config: CryptoConfig,
    cipher: Option<Cipher>,
    /// It was changed while it was enabled.
    spoiled: bool,
}

impl Slot {
    const EMPTY: Self = Self {
        key: [0; CRYPTO_KEY_LENGTH],
        config: CryptoConfig::new(),
        cipher: None,
        spoiled: false,
    };

    fn write(&mut self, at: u32, value: u32) {
        let enabled = self.config.cfge();
        match at {
            CRYPTO_CONFIG_OFFSET => {
                self.config = CryptoConfig::from_bits(value);
                self.cipher = Cipher::new(&self.key, self.config).filter(|_| self.config.cfge());
                self.spoiled = enabled && self.config.cfge();
            }
            ..CRYPTO_CONFIG_OFFSET if enabled => self.spoiled = true,
            ..CRYPTO_CONFIG_OFFSET => {
                self.key[at as usize..][..4].copy_from_slice(&value.to_le_bytes());
            }
            _ => {}
        }
    }
}

/// The key that a command names, and the number of its first data unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) slot: u8,
    pub(super) number: u64,
}

/// The engine.
pub(super) struct Engine {
    slots: Vec<Slot>,
    /// HCE.CGE.
    pub(super) enabled: bool,
    /// Data in transit.
    buffer: Vec<u8>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.slots.iter().filter(|slot| slot.cipher.is_some()).count();
        f.debug_struct("Engine").field("slots", &self.slots.len()).field("used", &used).finish()
    }
}

impl Engine {
    pub(super) fn new(slots: u32) -> Self {
        let slots = (0..slots).map(|_| Slot::EMPTY).collect();
        Self { slots, enabled: false, buffer: Vec::new() }
    }

    /// CCAP.
    pub(super) fn capability(&self) -> u32 {
        let Some(last) = self.slots.len().checked_sub(1) else { return 0 };
        CryptoCap::new()
            .with_cc(CAPABILITIES.len() as u8)
            .with_cfgc(last as u8)
            .with_cfgptr((REGISTER / CRYPTO_CONFIG_UNIT) as u8)
            .into_bits()
    }

    /// CRYPTOCAP number `n`.
    pub(super) fn capability_entry(&self, n: u32) -> u32 {
        match CAPABILITIES.get(n as usize) {
            Some(entry) if !self.slots.is_empty() => entry.into_bits(),
            _ => 0,
        }
    }

    /// Reads a register of the configuration entries. Keys cannot be read.
    pub(super) fn read(&self, offset: u32) -> u32 {
        let offset = offset - REGISTER;
        match self.slots.get((offset / CRYPTO_CONFIG_LENGTH) as usize) {
            Some(slot) if offset % CRYPTO_CONFIG_LENGTH == CRYPTO_CONFIG_OFFSET => {
                slot.config.into_bits()
            }
            _ => 0,
        }
    }

    pub(super) fn write(&mut self, offset: u32, value: u32) {
        let offset = offset - REGISTER;
        if let Some(slot) = self.slots.get_mut((offset / CRYPTO_CONFIG_LENGTH) as usize) {
            slot.write(offset % CRYPTO_CONFIG_LENGTH, value);
        }
    }

    /// Empties all slots.
    pub(super) fn clear(&mut self) {
        self.slots.fill_with(|| Slot::EMPTY);
    }

    /// The cipher of a slot, and the size of its data units in bytes.
    fn cipher(&self, slot: u8) -> Result<(&Cipher, usize), Ocs> {
        let slot = self.slots.get(usize::from(slot)).filter(|_| self.enabled);
        let invalid = Ocs::InvalidCryptoConfiguration;
        let slot = slot.ok_or(invalid)?;
        if slot.spoiled {
            return Err(Ocs::GeneralCryptoError);
        }
        let unit = slot.config.data_unit().ok_or(invalid)?;
        Ok((slot.cipher.as_ref().ok_or(invalid)?, unit as usize))
    }

    /// The overall command status of a command that names an unusable slot.
    pub(super) fn refusal(&self, slot: u8) -> Option<Ocs> {
        self.cipher(slot).err()
    }

    /// Passes `task`'s data on: filled by `fill`, then encrypted or decrypted.
    fn pass(
        &mut self,
        key: Key,
        encrypt: bool,
        len: u64,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Failed>,
    ) -> Result<Vec<u8>, Failed> {
        let mut data = core::mem::take(&mut self.buffer);
        data.resize(len as usize, 0);
        fill(&mut data)?;
        let (cipher, unit) = self.cipher(key.slot).map_err(Failed::Transfer)?;
        if !data.len().is_multiple_of(unit) {
            return Err(Failed::Transfer(Ocs::GeneralCryptoError));
        }
        cipher.apply(encrypt, &mut data, unit, key.number);
        Ok(data)
    }

    /// Decrypts the first `len` bytes of a read, from the medium to the host.
    pub(super) fn decrypt(
        &mut self,
        key: Key,
        (store, offset): (&mut Store, u64),
        (memory, task): (&GuestMemory, &Task),
        len: u64,
    ) -> Result<(), Failed> {
        let fill = |data: &mut [u8]| store.get(offset, data).map_err(Failed::from);
        let data = self.pass(key, false, len, fill)?;
        let sent = scatter(memory, task, &data).map_err(Failed::Transfer);
        self.buffer = data;
        sent
    }

    /// Encrypts the first `len` bytes of a write, from the host to the medium.
    pub(super) fn encrypt(
        &mut self,
        key: Key,
        (store, offset): (&mut Store, u64),
        (memory, task): (&GuestMemory, &Task),
        len: u64,
    ) -> Result<(), Failed> {
        let fill = |data: &mut [u8]| gather(memory, task, data).map_err(Failed::Transfer);
        let data = self.pass(key, true, len, fill)?;
        let kept = store.put(offset, &data).map_err(Failed::from);
        self.buffer = data;
        kept
    }
}
