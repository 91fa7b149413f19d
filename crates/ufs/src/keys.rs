//! Keys of inline encryption, the controller's slots that hold them, and what lanes know of them.
//! How keys are put there and removed is described in `crypto`.

use crate::UfsError;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};
use flysch_api::command::NotStarted;
use flysch_api::crypto::{CryptoContext, DataUnit};
use flysch_api::data::BadData;
use flysch_api::machine::Registers;
use flysch_wire::ufs::registers::{
    CCAP, CRYPTO_CONFIG_LENGTH, CRYPTO_CONFIG_OFFSET, CRYPTO_CONFIG_UNIT, CRYPTO_KEY_LENGTH,
    CRYPTO_VENDOR_OFFSET, CRYPTOCAP, Cap, CryptoAlgorithm, CryptoCap, CryptoCapEntry, CryptoConfig,
    CryptoKeySize,
};
use zeroize::Zeroizing;

/// A key for a slot. Its bytes are in no message of this crate, and are cleared when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct CryptoKey {
    algorithm: CryptoAlgorithm,
    size: CryptoKeySize,
    unit: DataUnit,
    /// In the layout of the key field of a configuration entry.
    field: Box<Zeroizing<[u8; CRYPTO_KEY_LENGTH]>>,
}

impl CryptoKey {
    /// An AES-XTS key that encrypts every data unit of this size with the unit's number as the
    /// tweak: the two AES keys one after the other, 16 or 32 bytes each, as in dm-crypt and
    /// fscrypt.
    ///
    /// # Errors
    /// [`UfsError::Value`] for any other length, or if the two are equal (IEEE 1619, FIPS 140).
    pub fn aes_xts(bytes: &[u8], unit: DataUnit) -> Result<Self, UfsError> {
        let half = bytes.len() / 2;
        let size = match bytes.len() {
            32 => CryptoKeySize::Bits128,
            64 => CryptoKeySize::Bits256,
            _ => return Err(UfsError::Value("an AES-XTS key: it has 32 or 64 bytes")),
        };
        let (data, tweak) = bytes.split_at(half);
        if data == tweak {
            return Err(UfsError::Value("an AES-XTS key: its halves must differ"));
        }
        let mut field = Box::new(Zeroizing::new([0; CRYPTO_KEY_LENGTH]));
        field[..half].copy_from_slice(data);
        field[CRYPTO_KEY_LENGTH / 2..][..half].copy_from_slice(tweak);
        Ok(Self { algorithm: CryptoAlgorithm::AesXts, size, unit, field })
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> CryptoAlgorithm {
        self.algorithm
    }

    /// Its size as the controller counts it: AES-XTS-256 has two keys of 256 bits.
    pub fn size(&self) -> CryptoKeySize {
        self.size
    }

    /// The data units it encrypts.
    pub fn unit(&self) -> DataUnit {
        self.unit
    }
}

impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, size, unit, .. } = self;
        write!(f, "CryptoKey({algorithm} {size}, {} bytes, ..)", unit.bytes())
    }
}

/// The crypto engine of a controller: its capabilities, and the content of its slots.
#[derive(Debug)]
pub struct CryptoEngine {
    capabilities: Vec<CryptoCapEntry>,
    /// Offset of the first configuration entry.
    register: u32,
    pub(crate) slots: Box<[Option<CryptoKey>]>,
}

impl CryptoEngine {
    /// The engine as its registers describe it; `None` if the controller has none.
    pub(crate) fn read(registers: &impl Registers, cap: Cap) -> Option<Self> {
        if !cap.cs() {
            return None;
        }
        let ccap = CryptoCap::from_bits(registers.read32(CCAP));
        let entry = |n: u8| registers.read32(CRYPTOCAP + 4 * u32::from(n));
        Some(Self {
            capabilities: (0..ccap.cc()).map(|n| CryptoCapEntry::from_bits(entry(n))).collect(),
            register: u32::from(ccap.cfgptr()) * CRYPTO_CONFIG_UNIT,
            slots: (0..=ccap.cfgc()).map(|_| None).collect(),
        })
    }

    /// Its capabilities.
    pub fn capabilities(&self) -> &[CryptoCapEntry] {
        &self.capabilities
    }

    /// Its slots, with the keys that this driver put there.
    pub fn slots(&self) -> &[Option<CryptoKey>] {
        &self.slots
    }

    /// Which of its capabilities a key uses.
    pub(crate) fn capability_of(&self, key: &CryptoKey) -> Option<u8> {
        let can = |entry: &CryptoCapEntry| {
            let unit = key.unit.bytes() / DataUnit::MIN;
            entry.algid() == key.algorithm
                && entry.ks() == key.size
                && u32::from(entry.sdusb()) & unit != 0
        };
        self.capabilities.iter().position(can).map(|at| at as u8)
    }

    /// Switches a slot off, so that commands can no longer name it.
    pub(crate) fn switch_off(&self, slot: usize, registers: &impl Registers) {
        registers.write32(self.entry(slot) + CRYPTO_CONFIG_OFFSET, 0);
    }

    /// Offset of a slot's configuration entry.
    fn entry(&self, slot: usize) -> u32 {
        self.register + slot as u32 * CRYPTO_CONFIG_LENGTH
    }

    /// Writes a slot's configuration entry as it should be.
    pub(crate) fn write(&self, slot: usize, registers: &impl Registers) {
        let at = self.entry(slot);
        let key = self.slots[slot].as_ref();
        let config = key.and_then(|key| Some((key, self.capability_of(key)?)));
        let config = config.map_or(CryptoConfig::new(), |(key, capability)| {
            let unit = (key.unit.bytes() / DataUnit::MIN) as u8;
            CryptoConfig::new().with_dusize(unit).with_capidx(capability).with_cfge(true)
        });
        // An entry that is enabled must not change.
        self.switch_off(slot, registers);
        for word in 0..CRYPTO_KEY_LENGTH / 4 {
            let bytes = key.and_then(|key| key.field[word * 4..].first_chunk());
            let bits = bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes));
            registers.write32(at + word as u32 * 4, bits);
        }
        registers.write32(at + CRYPTO_VENDOR_OFFSET, 0);
        // Last, because it enables the slot.
        registers.write32(at + CRYPTO_CONFIG_OFFSET, config.into_bits());
    }
}

/// What lanes know of the key slots: for each slot the exponent of its data unit size, 0 without a
/// key.
#[derive(Debug, Default)]
pub(crate) struct KeySlots(Box<[AtomicU8]>);

impl KeySlots {
    pub(crate) fn new(registers: &impl Registers, cap: Cap) -> Self {
        let slots = if cap.cs() {
            usize::from(CryptoCap::from_bits(registers.read32(CCAP)).cfgc()) + 1
        } else {
            0
        };
        Self((0..slots).map(|_| AtomicU8::new(0)).collect())
    }

    /// Whether there are any.
    pub(crate) fn are_there(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn set(&self, slot: usize, unit: Option<DataUnit>) {
        self.0[slot].store(unit.map_or(0, |unit| unit.shift() as u8), Ordering::Release);
    }

    /// Whether a command of this length may name this key.
    #[cold]
    #[inline(never)]
    pub(crate) fn check(&self, context: &CryptoContext, len: u32) -> Result<(), NotStarted> {
        if !self.are_there() {
            return Err(NotStarted::Unsupported);
        }
        let unit = self.0.get(usize::from(context.slot)).map(|slot| slot.load(Ordering::Acquire));
        if unit.map(u32::from) != Some(context.unit.shift()) {
            return Err(NotStarted::BadData(BadData::Key));
        }
        if !context.is_whole(len.into()) {
            return Err(NotStarted::BadData(BadData::DataUnit));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use core::cell::RefCell;

    /// Keeps every write in order.
    #[derive(Default)]
    struct Journal(RefCell<Vec<(u32, u32)>>);

    impl Registers for Journal {
        fn read32(&self, offset: u32) -> u32 {
            const XTS_256: u32 = 3 << 16 | 0x08 << 8;
            match offset {
                CCAP => 0x1800_0302,
                0x104 => 1 << 16 | 0xFF << 8,
                0x108 => XTS_256,
                _ => 0,
            }
        }
        fn write32(&self, offset: u32, value: u32) {
            self.0.borrow_mut().push((offset, value));
        }
    }

    fn key(len: u8, unit: u32) -> Result<CryptoKey, UfsError> {
        let bytes: Vec<u8> = (1..=len).collect();
        CryptoKey::aes_xts(&bytes, DataUnit::of(unit).expect("a size"))
    }

    #[test]
    fn a_slot_is_off_while_it_changes_and_on_with_the_last_word() {
        let journal = Journal::default();
        let cap = Cap::new().with_cs(true);
        let mut engine = CryptoEngine::read(&journal, cap).expect("an engine");
        assert_eq!((engine.capabilities().len(), engine.slots().len()), (2, 4));
        assert_eq!(engine.capability_of(&key(64, 512).unwrap()), None, "not this data unit");
        engine.slots[2] = Some(key(64, 4096).unwrap());
        engine.write(2, &journal);
        let at = 0x1800 + 2 * 0x80;
        let mut expected = vec![(at + 64, 0)];
        expected.extend((0..16).map(|n| (at + 4 * n, 0x0403_0201 + 0x0404_0404 * n)));
        expected.extend([(at + 68, 0), (at + 64, 1 << 31 | 1 << 8 | 0x08)]);
        assert_eq!(journal.0.take(), expected);
        engine.slots[2] = None;
        engine.write(2, &journal);
        assert!(journal.0.take().into_iter().all(|(_, value)| value == 0));
        // The halves of a shorter key each begin a half of the field.
        engine.slots[0] = Some(key(32, 512).unwrap());
        engine.write(0, &journal);
        let writes = journal.0.take();
        let word = |n: u32| writes.iter().find(|(at, _)| *at == 0x1800 + 4 * n).unwrap().1;
        assert_eq!([word(3), word(4), word(8)], [0x100F_0E0D, 0, 0x1413_1211]);
        assert_eq!(writes.last(), Some(&(0x1840, 1 << 31 | 1)));
    }

    #[test]
    fn keys_are_of_two_lengths_and_are_not_shown() {
        assert!(key(48, 512).is_err() && key(0, 512).is_err());
        let twice = CryptoKey::aes_xts(&[7; 64], DataUnit::of(512).expect("a size"));
        assert_eq!(twice, Err(UfsError::Value("an AES-XTS key: its halves must differ")));
        let shown = format!("{:?}", key(64, 4096));
        assert_eq!(shown, "Ok(CryptoKey(AES-XTS 256, 4096 bytes, ..))");
    }

    #[test]
    fn commands_name_keys_that_are_there_and_whole_data_units() {
        let keys = KeySlots::new(&Journal::default(), Cap::new().with_cs(true));
        let unit = DataUnit::of(4096).expect("a size");
        let context = CryptoContext { number: 0, unit, slot: 1 };
        let no_key = Err(NotStarted::BadData(BadData::Key));
        assert_eq!(keys.check(&context, 4096), no_key);
        keys.set(1, Some(unit));
        assert_eq!(keys.check(&context, 4096), Ok(()));
        assert_eq!(keys.check(&context, 4608), Err(NotStarted::BadData(BadData::DataUnit)));
        let smaller = DataUnit::of(512).expect("a size");
        assert_eq!(keys.check(&CryptoContext { unit: smaller, ..context }, 4096), no_key);
        assert_eq!(keys.check(&CryptoContext { slot: 9, ..context }, 4096), no_key);
        let none = KeySlots::new(&Journal::default(), Cap::new());
        assert_eq!(none.check(&context, 4096), Err(NotStarted::Unsupported));
    }
}
