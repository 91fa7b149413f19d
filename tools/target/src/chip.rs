//! What targets that are raw-flash chips, `nand` and `nor`, have in common.

use core::ops::RangeInclusive;

use flysch_models::nand::Pairing;
use flysch_models::{nand, nor};
use flysch_mtd::PageFormat;

use crate::{Key, PairError, Pairs, key};

/// `blocks=`.
pub const BLOCKS: Key = key("blocks", "NUMBER", "erase blocks (the chip's own)");
/// `ecc=`, of NAND.
pub const ECC: Key = key(
    "ecc",
    "hamming|bchBITS|none",
    "error correction in software (as strong as the chip asks for)",
);

/// Most erase blocks of a chip.
const BLOCKS_MAX: u32 = 65536;
/// Most bits that a BCH code in software corrects.
const BCH_MAX: u32 = 72;

/// A chip one can buy.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Pages.
    Nand(nand::Profile),
    /// Bytes.
    Nor(nor::Profile),
}

impl Part {
    /// The chip of that name, of the same sort as this one.
    pub fn another(&self, name: &str) -> Option<Self> {
        match self {
            Self::Nand(_) => nand::Profile::named(name).map(Self::Nand),
            Self::Nor(_) => nor::Profile::named(name).map(Self::Nor),
        }
    }

    /// The names of all chips of this sort.
    pub fn names(&self) -> String {
        match self {
            Self::Nand(_) => nand::PROFILES.each_ref().map(|profile| profile.name).join(", "),
            Self::Nor(_) => nor::PROFILES.each_ref().map(|profile| profile.name).join(", "),
        }
    }

    /// The same chip with so many erase blocks, if `pairs` say so: at least `least`.
    ///
    /// # Errors
    /// `blocks=` is no such number.
    pub fn with_blocks(self, pairs: &Pairs<'_>, least: u32) -> Result<Self, PairError> {
        let all: RangeInclusive<u32> = least..=BLOCKS_MAX;
        let expected = || format!("a number from {least} to {BLOCKS_MAX}");
        let count = |text: &str| text.parse().ok().filter(|count| all.contains(count));
        let Some(count) = pairs.get_or(BLOCKS.name, expected, count)? else { return Ok(self) };
        Ok(match self {
            Self::Nand(profile) => Self::Nand(profile.with_blocks(count)),
            Self::Nor(profile) => Self::Nor(profile.with_blocks(count)),
        })
    }

    /// The same chip with one bit per cell used: neither UBI nor JFFS2 writes to more.
    #[must_use]
    pub fn single_level(self) -> Self {
        match self {
            Self::Nand(profile) if profile.pairing != Pairing::None => {
                Self::Nand(profile.single_level())
            }
            other => other,
        }
    }
}

/// Bits that error correction repairs in one step, as `ecc=` says: 0 none, 1 Hamming, more BCH;
/// nothing where it does not say.
///
/// # Errors
/// It is none of these.
pub fn strength(pairs: &Pairs<'_>) -> Result<Option<u32>, PairError> {
    let expected = || format!("hamming, none or bch2 ... bch{BCH_MAX}");
    pairs.get_or(ECC.name, expected, |text| match text {
        "none" => Some(0),
        "hamming" => Some(1),
        _ => text.strip_prefix("bch")?.parse().ok().filter(|bits| (2..=BCH_MAX).contains(bits)),
    })
}

/// How pages are built, as Linux builds them.
///
/// # Errors
/// The code has no room in the chip's out-of-band bytes.
pub fn page_format(
    profile: &nand::Profile,
    strength: u32,
) -> Result<PageFormat, flysch_mtd::PageFormatError> {
    let oob = profile.oob_size as usize;
    PageFormat::in_software(profile.page_size, oob, profile.ecc.step, strength)
}
