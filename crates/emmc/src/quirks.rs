//! What particular controllers and cards do differently, as two tables: match -> flags, each with
//! its reason.

use flysch_api::machine::Identity;
use flysch_wire::mmc::Cid;

/// A known deviation of a controller from the standard, or an addition to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HostQuirk {
    /// Auto CMD23 does not work: CMD23 is sent as a command.
    NoAutoCmd23,
    /// Intel's additions: a queueing engine at 0x200, HS400 in bit 63 of the capabilities, the
    /// switch for enhanced strobe at 0x78, hardware reset in bit 4 of the power control.
    Intel,
    /// With 64-bit addresses the engine's transfer descriptors have 12 bytes instead of 16.
    ShortDescriptors,
    /// The engine has no direct commands.
    NoDirect,
    /// Enhanced strobe does not work.
    NoStrobe,
    /// The sleep command (CMD5) must never be sent.
    NoSleep,
}

/// A known deviation of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CardQuirk {
    /// CMD23 does not work.
    NoBlockCount,
    /// Trim does not work.
    NoTrim,
    /// Secure erase and secure trim do not work.
    NoSecure,
    /// The high priority interrupt does not work.
    NoHpi,
    /// The cache must not be flushed: a flush does not reach any.
    NoFlush,
    /// Reads may take 600 ms.
    LongReads,
    /// Command queueing does not work.
    NoQueueing,
}

macro_rules! set {
    ($(#[$doc:meta])* $set:ident of $quirk:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            /// No deviation known.
            pub const NONE: Self = Self(0);

            /// The set of these.
            pub const fn of(quirks: &[$quirk]) -> Self {
                let (mut bits, mut i) = (0, 0);
                while i < quirks.len() {
                    bits |= 1 << quirks[i] as u32;
                    i += 1;
                }
                Self(bits)
            }

            /// Whether the set holds this one.
            pub const fn has(self, quirk: $quirk) -> bool {
                self.0 >> quirk as u32 & 1 != 0
            }

            /// Both sets.
            pub const fn and(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

set! {
    /// A set of deviations of controllers.
    HostQuirks of HostQuirk
}
set! {
    /// A set of deviations of cards.
    CardQuirks of CardQuirk
}

impl HostQuirks {
    /// The quirks of a controller by its identity.
    pub fn find(identity: Identity) -> Self {
        let hit = |row: &&HostRow| (row.vendor, row.device) == (identity.vendor, identity.device);
        HOSTS.iter().filter(hit).fold(Self::NONE, |set, row| set.and(row.quirks))
    }
}

impl CardQuirks {
    /// The quirks of a card by its CID.
    pub fn find(cid: &Cid) -> Self {
        let hit = |row: &&CardRow| row.matches(cid);
        CARDS.iter().filter(hit).fold(Self::NONE, |set, row| set.and(row.quirks))
    }
}

struct HostRow {
    vendor: u16,
    device: u16,
    quirks: HostQuirks,
}

const fn host(vendor: u16, device: u16, quirks: &[HostQuirk]) -> HostRow {
    HostRow { vendor, device, quirks: HostQuirks::of(quirks) }
}

const INTEL: &[HostQuirk] = &[HostQuirk::Intel, HostQuirk::ShortDescriptors];

/// QEMU masks the bit of Auto CMD23, and a card that sleeps there never wakes (the next CMD0 ends
/// QEMU). Intel's eMMC controllers, most with an engine (Linux: `sdhci-pci-core.c`).
static HOSTS: &[HostRow] = &[
    host(0x1B36, 0x0007, &[HostQuirk::NoAutoCmd23, HostQuirk::NoSleep]),
    // Gemini Lake: no direct commands, no enhanced strobe.
    host(0x8086, 0x31CC, INTEL),
    host(0x8086, 0x31CC, &[HostQuirk::NoDirect, HostQuirk::NoStrobe]),
    // Apollo Lake: no engine, no enhanced strobe.
    host(0x8086, 0x5ACC, &[HostQuirk::Intel, HostQuirk::NoStrobe]),
    host(0x8086, 0x9DC4, INTEL),
    host(0x8086, 0x34C4, INTEL),
    host(0x8086, 0x4B47, INTEL),
    host(0x8086, 0x02C4, INTEL),
    host(0x8086, 0x4DC4, INTEL),
    host(0x8086, 0x98C4, INTEL),
    host(0x8086, 0x54C4, INTEL),
];

struct CardRow {
    /// MID; `None` is any.
    manufacturer: Option<u8>,
    /// The beginning of the product name.
    product: &'static [u8],
    quirks: CardQuirks,
}

impl CardRow {
    fn matches(&self, cid: &Cid) -> bool {
        self.manufacturer.is_none_or(|id| id == cid.manufacturer)
            && cid.product.starts_with(self.product)
    }
}

const fn card(manufacturer: u8, product: &'static [u8], quirk: CardQuirk) -> CardRow {
    CardRow { manufacturer: Some(manufacturer), product, quirks: CardQuirks::of(&[quirk]) }
}

const SANDISK: u8 = 0x02;
const TOSHIBA: u8 = 0x11;
const MICRON: u8 = 0x13;
const SAMSUNG: u8 = 0x15;
const KINGSTON: u8 = 0x70;

/// As Linux has them (`drivers/mmc/core/quirks.h`).
static CARDS: &[CardRow] = &[
    // Early devices that lose count after CMD23.
    card(SANDISK, b"SEM02G", CardQuirk::NoBlockCount),
    card(SANDISK, b"SEM04G", CardQuirk::NoBlockCount),
    card(SANDISK, b"SEM08G", CardQuirk::NoBlockCount),
    card(TOSHIBA, b"MMC08G", CardQuirk::NoBlockCount),
    card(TOSHIBA, b"MMC16G", CardQuirk::NoBlockCount),
    card(TOSHIBA, b"MMC32G", CardQuirk::NoBlockCount),
    // Read times longer than specified in the CSD.
    card(MICRON, b"", CardQuirk::LongReads),
    // Secure operations that corrupt data (MoviNAND).
    card(SAMSUNG, b"M8G2FA", CardQuirk::NoSecure),
    card(SAMSUNG, b"MAG4FA", CardQuirk::NoSecure),
    card(SAMSUNG, b"MBG8FA", CardQuirk::NoSecure),
    card(SAMSUNG, b"MCGAFA", CardQuirk::NoSecure),
    card(SAMSUNG, b"VAL00M", CardQuirk::NoSecure),
    card(SAMSUNG, b"VYL00M", CardQuirk::NoSecure),
    card(SAMSUNG, b"KYL00M", CardQuirk::NoSecure),
    card(SAMSUNG, b"VZL00M", CardQuirk::NoSecure),
    // Trim that corrupts data.
    card(KINGSTON, b"V10008", CardQuirk::NoTrim),
    card(KINGSTON, b"V10016", CardQuirk::NoTrim),
    card(MICRON, b"Q2J54A", CardQuirk::NoTrim),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn find(manufacturer: u8, product: &[u8; 6]) -> CardQuirks {
        CardQuirks::find(&Cid { manufacturer, product: *product, ..Cid::default() })
    }

    #[test]
    fn every_row_hits_its_controller_and_no_other() {
        for row in HOSTS {
            let found = HostQuirks::find(Identity { vendor: row.vendor, device: row.device });
            assert_eq!(found.and(row.quirks), found);
        }
        let gemini = HostQuirks::find(Identity { vendor: 0x8086, device: 0x31CC });
        assert!(gemini.has(HostQuirk::NoDirect) && gemini.has(HostQuirk::Intel));
        let elkhart = HostQuirks::find(Identity { vendor: 0x8086, device: 0x4B47 });
        assert!(!elkhart.has(HostQuirk::NoDirect) && elkhart.has(HostQuirk::ShortDescriptors));
        let qemu = HostQuirks::find(Identity { vendor: 0x1B36, device: 7 });
        assert!(qemu.has(HostQuirk::NoAutoCmd23) && qemu.has(HostQuirk::NoSleep));
        assert_eq!(HostQuirks::find(Identity::default()), HostQuirks::NONE);
    }

    #[test]
    fn every_row_hits_its_card_and_no_other() {
        for row in CARDS {
            let mut product = *b"......";
            product[..row.product.len()].copy_from_slice(row.product);
            let id = row.manufacturer.unwrap_or_default();
            let found = find(id, &product);
            assert_eq!(found.and(row.quirks), found);
            assert_eq!(find(id ^ 0x80, &product), CardQuirks::NONE);
        }
        assert!(find(MICRON, b"Q2J54A").has(CardQuirk::NoTrim));
        assert!(find(MICRON, b"S0J57X").has(CardQuirk::LongReads));
        assert!(!find(MICRON, b"S0J57X").has(CardQuirk::NoTrim));
        assert_eq!(find(SAMSUNG, b"8GTF4R"), CardQuirks::NONE);
    }
}
