//! Identify data (ACS 7.13, 7.14): 256 words.

use super::SECTOR;
use crate::WireError;
use crate::bytes::{array, le16};

/// The kind of device that was identified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A disk: IDENTIFY DEVICE.
    #[default]
    Disk,
    /// A packet device: IDENTIFY PACKET DEVICE.
    Packet,
}

/// The supported fields of identify data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identify {
    /// Word 0: the kind of device.
    pub kind: Kind,
    /// Word 0 of a packet device: its SCSI peripheral type.
    pub packet_type: u8,
    /// Word 0 of a packet device: packets have 16 bytes, not 12.
    pub packet_16: bool,
    /// Words 10 to 19.
    pub serial: [u8; 20],
    /// Words 23 to 26.
    pub firmware: [u8; 8],
    /// Words 27 to 46.
    pub model: [u8; 40],
    /// Word 49, see [`capability`].
    pub capabilities: u16,
    /// Words 60 and 61: sectors that 28-bit commands reach.
    pub sectors_28: u32,
    /// Word 69, see [`additional`].
    pub additional: u16,
    /// Word 75: commands queued at once, 1 to 32.
    pub queue_depth: u8,
    /// Word 76, see [`sata`].
    pub sata: u16,
    /// Word 77: negotiated speed in bits 3:1; more capabilities, see [`sata_more`].
    pub sata_more: u16,
    /// Word 78: supported SATA features, see [`sata_feature`].
    pub sata_features: u16,
    /// Word 79: enabled SATA features.
    pub sata_enabled: u16,
    /// Words 80 and 81: supported versions of ATA, a bit each from bit 1 on; the minor version.
    pub versions: [u16; 2],
    /// Words 82 to 84: supported features, see [`set82`], [`set83`], [`set84`].
    pub supported: [u16; 3],
    /// Words 85 to 87: enabled features, the same bits.
    pub enabled: [u16; 3],
    /// Word 88: Ultra DMA modes.
    pub udma: u16,
    /// Words 100 to 103: sectors that 48-bit commands reach.
    pub sectors_48: u64,
    /// Word 105: maximum blocks of ranges per DATA SET MANAGEMENT; 0 if not given.
    pub trim_blocks: u16,
    /// Word 106: sector sizes, see [`sector`].
    pub sector_size: u16,
    /// Words 108 to 111.
    pub wwn: u64,
    /// Words 117 and 118: words of a logical sector, if word 106 says so.
    pub sector_words: u32,
    /// Words 119 and 120: further features, supported and enabled, see [`set119`].
    pub more: [u16; 2],
    /// Word 59: bits 15:12 sanitize, see [`sanitize`].
    pub sanitize: u16,
    /// Word 128, see [`security`].
    pub security: u16,
    /// Word 169: bit 0 is trim.
    pub dsm: u16,
    /// Word 217: 1 if the medium does not rotate.
    pub rotation: u16,
    /// Words 234 and 235: minimum and maximum blocks of 512 bytes in a part of DOWNLOAD MICROCODE.
    pub microcode_blocks: [u16; 2],
    /// Word 222: transport and its versions.
    pub transport: u16,
    /// Word 69 bits 1:0: zones, 1 host aware, 2 device managed.
    pub zoned: u8,
}

/// Bits of [`Identify::capabilities`].
pub mod capability {
    /// DMA.
    pub const DMA: u16 = 1 << 8;
    /// LBA.
    pub const LBA: u16 = 1 << 9;
    /// IORDY, which can be disabled.
    pub const IORDY: u16 = 3 << 10;
    /// STANDBY timer values follow the standard.
    pub const STANDBY_TIMER: u16 = 1 << 13;
}

/// Bits of [`Identify::additional`].
pub mod additional {
    /// Trimmed sectors read as zeros.
    pub const ZERO_AFTER_TRIM: u16 = 1 << 5;
    /// Trimmed sectors always read the same.
    pub const DETERMINISTIC_AFTER_TRIM: u16 = 1 << 14;
}

/// Bits of [`Identify::sata`].
pub mod sata {
    /// 1.5 Gb/s.
    pub const GEN1: u16 = 1 << 1;
    /// 3 Gb/s.
    pub const GEN2: u16 = 1 << 2;
    /// 6 Gb/s.
    pub const GEN3: u16 = 1 << 3;
    /// Native command queuing.
    pub const NCQ: u16 = 1 << 8;
    /// Power management initiated by the host.
    pub const HOST_POWER: u16 = 1 << 9;
    /// PHY event counters.
    pub const PHY_EVENTS: u16 = 1 << 10;
}

/// Bits of [`Identify::sata_more`].
pub mod sata_more {
    /// NCQ NON-DATA.
    pub const NCQ_MANAGEMENT: u16 = 1 << 5;
    /// SEND and RECEIVE FPDMA QUEUED.
    pub const SEND_RECEIVE: u16 = 1 << 6;
    /// Device sleep to a reduced power state.
    pub const DEVSLEEP_REDUCED: u16 = 1 << 7;
}

/// Bits of [`Identify::sata_features`].
pub mod sata_feature {
    /// DMA setup FIS with auto-activate.
    pub const AUTO_ACTIVATE: u16 = 1 << 2;
    /// Power management initiated by the device.
    pub const DIPM: u16 = 1 << 3;
    /// Device sleep.
    pub const DEVSLEEP: u16 = 1 << 8;
}

/// Bits of words 82 and 85.
pub mod set82 {
    /// SMART.
    pub const SMART: u16 = 1 << 0;
    /// Security.
    pub const SECURITY: u16 = 1 << 1;
    /// Packets.
    pub const PACKET: u16 = 1 << 4;
    /// Host protected area: SET MAX ADDRESS (ACS-2).
    pub const HOST_PROTECTED_AREA: u16 = 1 << 10;
    /// Volatile write cache.
    pub const WRITE_CACHE: u16 = 1 << 5;
    /// Read look-ahead.
    pub const LOOK_AHEAD: u16 = 1 << 6;
}

/// Bits of words 83 and 86.
pub mod set83 {
    /// DOWNLOAD MICROCODE.
    pub const MICROCODE: u16 = 1 << 0;
    /// 48-bit addresses.
    pub const LBA48: u16 = 1 << 10;
    /// FLUSH CACHE.
    pub const FLUSH: u16 = 1 << 12;
    /// FLUSH CACHE EXT.
    pub const FLUSH_EXT: u16 = 1 << 13;
    /// The word is valid.
    pub const VALID: u16 = 1 << 14;
}

/// Bits of words 84 and 87.
pub mod set84 {
    /// SMART error logging.
    pub const ERROR_LOGGING: u16 = 1 << 0;
    /// Self-tests.
    pub const SELF_TEST: u16 = 1 << 1;
    /// General purpose logging.
    pub const LOGS: u16 = 1 << 5;
    /// WRITE DMA FUA EXT.
    pub const FUA: u16 = 1 << 6;
    /// A world wide name.
    pub const WWN: u16 = 1 << 8;
    /// The word is valid.
    pub const VALID: u16 = 1 << 14;
}

/// Bits of words 119 and 120.
pub mod set119 {
    /// WRITE UNCORRECTABLE EXT.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 2;
    /// READ and WRITE LOG DMA EXT.
    pub const LOG_DMA: u16 = 1 << 3;
    /// DOWNLOAD MICROCODE in parts.
    pub const MICROCODE_PARTS: u16 = 1 << 4;
    /// ACCESSIBLE MAX ADDRESS CONFIGURATION.
    pub const MAX_ADDRESS: u16 = 1 << 8;
}

/// Bits of word 106.
pub mod sector {
    /// Words 117 and 118 hold the size of a logical sector.
    pub const LOGICAL: u16 = 1 << 12;
    /// A physical sector has 2^n logical ones, bits 3:0.
    pub const PHYSICAL: u16 = 1 << 13;
    /// The word is valid.
    pub const VALID: u16 = 1 << 14;
}

/// Bits of word 59 about SANITIZE DEVICE.
pub mod sanitize {
    /// Supported.
    pub const SUPPORTED: u16 = 1 << 12;
    /// Crypto scramble.
    pub const CRYPTO: u16 = 1 << 13;
    /// Overwrite.
    pub const OVERWRITE: u16 = 1 << 14;
    /// Block erase.
    pub const BLOCK_ERASE: u16 = 1 << 15;
}

/// Bits of [`Identify::security`].
pub mod security {
    /// Supported.
    pub const SUPPORTED: u16 = 1 << 0;
    /// A password is set.
    pub const ENABLED: u16 = 1 << 1;
    /// Locked.
    pub const LOCKED: u16 = 1 << 2;
    /// Frozen.
    pub const FROZEN: u16 = 1 << 3;
    /// Too many attempts.
    pub const COUNT_EXPIRED: u16 = 1 << 4;
    /// Security level Maximum: the master password does not unlock.
    pub const MAXIMUM: u16 = 1 << 8;
}

/// Low byte of word 255 if the high byte is a checksum.
const INTEGRITY: u8 = 0xA5;
/// Bits 15:14 of word 0 of a packet device.
const PACKET: u16 = 2 << 14;
/// Bits 15:14 of words that carry their own validity.
const VALIDITY: u16 = 3 << 14;
const VALID: u16 = 1 << 14;

/// An ASCII string of identify data with the bytes of each word swapped back.
fn text<const N: usize>(bytes: &[u8], word: usize) -> [u8; N] {
    let mut text: [u8; N] = array(bytes, 2 * word);
    text.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| pair.swap(0, 1));
    text
}

/// The word if its two highest bits mark it as valid, else 0.
fn valid(word: u16) -> u16 {
    if word & VALIDITY == VALID { word } else { 0 }
}

impl Default for Identify {
    /// The value of 256 zero words.
    fn default() -> Self {
        Self::of(&[0; SECTOR])
    }
}

impl Identify {
    /// Parses identify data.
    ///
    /// # Errors
    /// Too few bytes; a checksum that is present and wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, SECTOR)?;
        if bytes[510] == INTEGRITY && super::sum(&bytes[..SECTOR]) != 0 {
            return Err(WireError::BadField("checksum of identify data"));
        }
        Ok(Self::of(&array(bytes, 0)))
    }

    fn of(bytes: &[u8; SECTOR]) -> Self {
        let word = |n: usize| le16(bytes, 2 * n);
        let two = |n: usize| u32::from(word(n)) | u32::from(word(n + 1)) << 16;
        let four = |n: usize| u64::from(two(n)) | u64::from(two(n + 2)) << 32;
        let is_packet = word(0) & VALIDITY == PACKET;
        let serial_ata = |n: usize| if word(76) == u16::MAX { 0 } else { word(n) };
        let wwn = (0..4).fold(0, |wwn, n| wwn << 16 | u64::from(word(108 + n)));
        Self {
            kind: if is_packet { Kind::Packet } else { Kind::Disk },
            packet_type: if is_packet { (word(0) >> 8 & 0x1F) as u8 } else { 0 },
            packet_16: is_packet && word(0) & 3 == 1,
            serial: text(bytes, 10),
            firmware: text(bytes, 23),
            model: text(bytes, 27),
            capabilities: word(49),
            sectors_28: two(60),
            additional: word(69),
            zoned: (word(69) & 3) as u8,
            queue_depth: (word(75) & 0x1F) as u8 + 1,
            sata: serial_ata(76),
            sata_more: serial_ata(77),
            sata_features: serial_ata(78),
            sata_enabled: serial_ata(79),
            versions: [word(80), word(81)],
            supported: [word(82), valid(word(83)), valid(word(84))],
            enabled: [word(85), word(86), valid(word(87))],
            udma: word(88),
            sectors_48: four(100) & 0xFFFF_FFFF_FFFF,
            trim_blocks: word(105),
            sector_size: valid(word(106)),
            wwn,
            sector_words: two(117),
            more: [valid(word(119)), valid(word(120))],
            sanitize: word(59),
            security: word(128),
            dsm: word(169),
            rotation: word(217),
            transport: word(222),
            microcode_blocks: [word(234), word(235)],
        }
    }

    /// The bytes of identify data, with a checksum.
    pub fn to_bytes(&self) -> [u8; SECTOR] {
        let mut words = [0_u16; SECTOR / 2];
        words[0] = match self.kind {
            Kind::Disk => 0x0040,
            Kind::Packet => {
                PACKET | u16::from(self.packet_type & 0x1F) << 8 | 0x80 | u16::from(self.packet_16)
            }
        };
        let mut put = |word: usize, text: &[u8]| {
            for (at, pair) in text.as_chunks::<2>().0.iter().enumerate() {
                words[word + at] = u16::from_be_bytes(*pair);
            }
        };
        put(10, &self.serial);
        put(23, &self.firmware);
        put(27, &self.model);
        put(108, &self.wwn.to_be_bytes());
        words[49] = self.capabilities;
        words[53] = 6;
        // PIO modes 3 and 4, and the minimum cycle times of each kind, ns (words 65 to 68).
        words[64..69].copy_from_slice(&[3, 120, 120, 120, 120]);
        words[59] = self.sanitize;
        words[60] = self.sectors_28 as u16;
        words[61] = (self.sectors_28 >> 16) as u16;
        words[69] = self.additional & !3 | u16::from(self.zoned & 3);
        words[75] = u16::from(self.queue_depth.clamp(1, 32) - 1);
        words[76..80].copy_from_slice(&[
            self.sata,
            self.sata_more,
            self.sata_features,
            self.sata_enabled,
        ]);
        words[80..82].copy_from_slice(&self.versions);
        words[82..85].copy_from_slice(&self.supported);
        words[83] |= VALID;
        words[84] |= VALID;
        words[85..88].copy_from_slice(&self.enabled);
        words[87] |= VALID;
        words[88] = self.udma;
        words[93] = 0;
        for n in 0..4 {
            words[100 + n] = (self.sectors_48 >> (16 * n)) as u16;
        }
        words[105] = self.trim_blocks;
        words[106] = self.sector_size | VALID;
        words[117] = self.sector_words as u16;
        words[118] = (self.sector_words >> 16) as u16;
        words[119] = self.more[0] | VALID;
        words[120] = self.more[1] | VALID;
        words[128] = self.security;
        words[169] = self.dsm;
        words[217] = self.rotation;
        words[222] = self.transport;
        words[234..236].copy_from_slice(&self.microcode_blocks);
        words[255] = INTEGRITY.into();
        let mut bytes = [0; SECTOR];
        for (pair, word) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(words) {
            *pair = word.to_le_bytes();
        }
        bytes[511] = 0_u8.wrapping_sub(super::sum(&bytes[..511]));
        bytes
    }

    /// Whether these bits of word 82 are supported.
    pub const fn supports82(&self, bits: u16) -> bool {
        self.supported[0] & bits == bits
    }

    /// Whether these bits of word 83 are supported.
    pub const fn supports83(&self, bits: u16) -> bool {
        self.supported[1] & bits == bits
    }

    /// Whether these bits of word 84 are supported.
    pub const fn supports84(&self, bits: u16) -> bool {
        self.supported[2] & bits == bits
    }

    /// Whether 48-bit commands work.
    pub const fn has_lba48(&self) -> bool {
        self.supports83(set83::LBA48)
    }

    /// Whether commands can be queued.
    pub const fn has_ncq(&self) -> bool {
        self.sata & sata::NCQ != 0 && self.has_lba48()
    }

    /// Whether there is a volatile write cache and it is enabled.
    pub const fn has_write_cache(&self) -> bool {
        self.enabled[0] & set82::WRITE_CACHE != 0
    }

    /// Whether DATA SET MANAGEMENT trims.
    pub const fn has_trim(&self) -> bool {
        self.dsm & 1 != 0
    }

    /// Logical sectors.
    pub const fn sectors(&self) -> u64 {
        if self.has_lba48() { self.sectors_48 } else { self.sectors_28 as u64 }
    }

    /// Bytes per logical sector; 0 if the size is invalid.
    pub const fn sector_bytes(&self) -> u32 {
        if self.sector_size & sector::LOGICAL == 0 {
            return SECTOR as u32;
        }
        match self.sector_words.checked_mul(2) {
            Some(bytes) if bytes.is_power_of_two() && bytes >= SECTOR as u32 => bytes,
            _ => 0,
        }
    }

    /// Whether this is the same device as `other`, whatever has been enabled or disabled since.
    pub fn is_same_device(&self, other: &Self) -> bool {
        (self.kind, &self.serial, &self.model, self.sectors(), self.wwn)
            == (other.kind, &other.serial, &other.model, other.sectors(), other.wwn)
    }
}

/// Text of identify data without its padding; a byte that is not printable ASCII becomes a dot.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a [u8]);

impl core::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use core::fmt::Write as _;
        for &byte in self.0.trim_ascii() {
            f.write_char(if (0x20..0x7F).contains(&byte) { byte.into() } else { '.' })?;
        }
        Ok(())
    }
}

/// Pads text with spaces, or truncates it.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    for (to, from) in bytes.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    bytes
}
