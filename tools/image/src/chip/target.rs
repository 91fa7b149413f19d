//! `nand,key=value...` and `nor,key=value...`: which chip, and how it behaves.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use flysch_models::flash::{Cut, Tear};
use flysch_models::{nand, nor};
use flysch_mtd::PageFormatError;
use flysch_target::chip::{self, Part};
use flysch_target::{Key, Kind, PairError, Pairs, key};

const FS: Key = key("fs", "ubifs|jffs2", "what is made on it when it is erased (ubifs)");
const CLOCK: Key = key(
    "clock",
    "virtual|real",
    "real: every access takes the time that the chip takes (virtual: none)",
);
const CUT: Key = key(
    "cut",
    "NUMBER[b|e|h|l|a]",
    "power goes at this program or erase after the mount, counted from 0: b(efore), e(arly in), \
     h(alf way through), l(ate in), a(fter) it (h)",
);
const SEED: Key = key("seed", "NUMBER", "decides bad blocks, bit errors and what cuts leave (1)");

/// NAND, accessed by pages.
const NAND: Kind = Kind {
    name: "nand",
    help: "NAND flash",
    keys: &[
        key("profile", "NAME", "the chip (NAND01GR3B); of two bits per cell one is used"),
        chip::BLOCKS,
        FS,
        key("image", "FILE", "its cells, pages with out-of-band bytes, are kept there (memory)"),
        chip::ECC,
        key("bad", "NUMBER", "blocks that are bad from the start (0)"),
        key("wear", "on|off", "cells wear out, forget and disturb each other (off)"),
        CLOCK,
        CUT,
        SEED,
    ],
};

/// NOR, accessed by bytes.
const NOR: Kind = Kind {
    name: "nor",
    help: "NOR flash",
    keys: &[key("profile", "NAME", "the chip (S29GL128P)"), chip::BLOCKS, FS, CLOCK, CUT, SEED],
};

/// The keys of a target, for the help of the command.
pub fn chip_keys() -> String {
    format!(
        "A chip model is nand[,key=value...] or nor[,key=value...]; docs/flash-models.md lists the \
         chips:{}",
        flysch_target::help(&[&NAND, &NOR])
    )
}

/// File systems that can be made on a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewFileSystem {
    Ubifs,
    Jffs2,
}

/// A chip model to put a file system on.
#[derive(Clone, Debug, PartialEq)]
pub struct ChipTarget {
    pub(super) part: Part,
    /// Bits that error correction repairs per step of NAND.
    pub(super) strength: u32,
    pub(super) new: NewFileSystem,
    pub(super) image: Option<PathBuf>,
    pub(super) factory_bad: u32,
    pub(super) wears: bool,
    pub(super) takes_time: bool,
    pub(super) cut: Option<Cut>,
    pub(super) seed: u64,
}

/// Minimum erase blocks of a chip.
const BLOCKS_MIN: u32 = 32;

/// Why a text is not a chip for a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChipError {
    /// It starts with neither `nand` nor `nor`.
    Kind(String),
    /// An error in a key or its value.
    Pair(PairError),
    /// NOR has no image option: a plain file is such an image without a model.
    NorImage,
    /// The error correction does not fit the chip.
    Ecc(PageFormatError),
}

impl std::fmt::Display for ChipError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kind(given) => write!(f, "`{given}` is not a chip; chips are nand and nor"),
            Self::Pair(cause) => cause.fmt(f),
            Self::NorImage => {
                f.write_str("`image` is for nand: a file is NOR flash without a model")
            }
            Self::Ecc(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for ChipError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pair(cause) => Some(cause),
            Self::Ecc(cause) => Some(cause),
            Self::Kind(_) | Self::NorImage => None,
        }
    }
}

impl From<PairError> for ChipError {
    fn from(error: PairError) -> Self {
        Self::Pair(error)
    }
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

impl ChipTarget {
    /// Whether `path` is meant as a chip: it starts like one, and there is no such file.
    pub fn is_meant(path: &Path) -> bool {
        let kind = path.to_str().and_then(|text| text.split(',').next());
        matches!(kind, Some("nand" | "nor")) && !path.exists()
    }
}

impl FromStr for ChipTarget {
    type Err = ChipError;

    fn from_str(text: &str) -> Result<Self, ChipError> {
        let (name, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        let known = "it is in the list";
        let (kind, default) = match name {
            "nand" => (&NAND, Part::Nand(nand::Profile::named("NAND01GR3B").expect(known))),
            "nor" => (&NOR, Part::Nor(nor::Profile::named("S29GL128P").expect(known))),
            _ => return Err(ChipError::Kind(name.into())),
        };
        let pairs = match Pairs::parse(kind, rest) {
            Err(PairError::Key { given, .. }) if given == "image" => {
                return Err(ChipError::NorImage);
            }
            pairs => pairs?,
        };
        let part = pairs.get_or("profile", || default.names(), |name| default.another(name))?;
        let part = part.unwrap_or(default).with_blocks(&pairs, BLOCKS_MIN)?;
        // What the chip asks for as it is sold; neither UBI nor JFFS2 writes to two bits per cell.
        let own_strength = if let Part::Nand(profile) = &part { profile.ecc.strength } else { 0 };
        let (strength, part) = (chip::strength(&pairs)?, part.single_level());
        let strength = strength.unwrap_or(own_strength);
        if let Part::Nand(profile) = &part {
            chip::page_format(profile, strength).map_err(ChipError::Ecc)?;
        }
        let new = |text: &str| match text {
            "ubifs" => Some(NewFileSystem::Ubifs),
            "jffs2" => Some(NewFileSystem::Jffs2),
            _ => None,
        };
        let takes_time = |text: &str| match text {
            "real" => Some(true),
            "virtual" => Some(false),
            _ => None,
        };
        let cut = || format!("a number and {}", Tear::LETTERS);
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        Ok(Self {
            part,
            strength,
            new: pairs.get("fs", new)?.unwrap_or(NewFileSystem::Ubifs),
            image: pairs.get("image", path)?,
            factory_bad: pairs.get("bad", |text| text.parse().ok())?.unwrap_or(0),
            wears: pairs.get("wear", switch)?.unwrap_or(false),
            takes_time: pairs.get("clock", takes_time)?.unwrap_or(false),
            cut: pairs.get_or("cut", cut, |text| text.parse().ok())?,
            seed: pairs.get("seed", |text| text.parse().ok())?.unwrap_or(1),
        })
    }
}
