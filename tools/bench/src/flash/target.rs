//! `nand,key=value...` and `nor,key=value...`: the chip below a stack.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use flysch_api::flash::Kind as CellKind;
use flysch_models::nand::{self, Config, NandChip, Pairing, Timing};
use flysch_models::nor::{self, NorChip};
use flysch_mtd::{Nand, PageFormatError};
use flysch_target::chip::{self, Part};
use flysch_target::{Key, Kind, PairError, Pairs, key};

use super::buffer::PageBuffer;
use super::chip::{Chip, ChipFlash, MeteredNor};
use super::meter::{Layer, Meter, Metered, MeteredChip, Time};

/// The flash below a file system.
pub type Mtd = Metered<ChipFlash>;

/// The profile of the board of the published figures.
pub const PUBLISHED: &str = "published";

const CLOCK: Key = key(
    "clock",
    "virtual|hybrid",
    "virtual: the chip's time alone; hybrid: the software's as well (virtual)",
);
const SEED: Key = key("seed", "NUMBER", "seed of the data (1)");

/// NAND, accessed by pages.
const NAND: Kind = Kind {
    name: "nand",
    help: "NAND flash",
    keys: &[
        key("profile", "published|NAME", "the chip (published)"),
        chip::BLOCKS,
        key(
            "mode",
            "slc|mlc",
            "bits per cell used of a chip with two (slc: neither UBI nor JFFS2 write to the other)",
        ),
        chip::ECC,
        CLOCK,
        SEED,
    ],
};

/// NOR, accessed by bytes.
const NOR: Kind = Kind {
    name: "nor",
    help: "NOR flash",
    keys: &[key("profile", "NAME", "the chip (S29GL128P)"), chip::BLOCKS, CLOCK, SEED],
};

/// The keys of a target, for the help of the command.
pub fn keys() -> String {
    format!(
        "A target is nand[,key=value...] or nor[,key=value...]; docs/flash-models.md lists the \
         chips:{}",
        flysch_target::help(&[&NAND, &NOR])
    )
}

/// Minimum number of blocks that JFFS2 and UBIFS need for this benchmark's smallest part.
const BLOCKS_MIN: u32 = 64;
/// The default NOR chip.
const NOR_DEFAULT: &str = "S29GL128P";

/// A chip with its error correction, and whose time counts.
#[derive(Clone, Debug)]
pub struct FlashTarget {
    /// The chip.
    pub part: Part,
    /// Whether it represents the board of the published figures.
    pub is_published: bool,
    /// Bits corrected per step of 512 bytes (256 with one bit); 0 is none.
    pub strength: u32,
    /// Whose time counts.
    pub time: Time,
    /// Seed of the data.
    pub seed: u64,
}

impl Default for FlashTarget {
    fn default() -> Self {
        let profile = published_board();
        Self {
            strength: profile.ecc.strength,
            part: Part::Nand(profile),
            is_published: true,
            time: Time::Virtual,
            seed: 1,
        }
    }
}

/// An ST chip of 128 MiB as that board saw it: 0.7 MiB/s for raw writes and 1.1 MiB/s for raw
/// reads. The board's slow bus and its software error correction are included in the time of a
/// cycle and of a program.
fn published_board() -> nand::Profile {
    let chip = nand::Profile::named("NAND01GR3B").expect("it is in the list");
    let timing =
        Timing { program_ns: 1_010_000, program_upper_ns: 1_010_000, cycle_ns: 840, ..chip.timing };
    nand::Profile { timing, ..chip }
}

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlashTargetError {
    /// It starts with neither `nand` nor `nor`.
    Kind(String),
    /// An error in a key or its value.
    Pair(PairError),
    /// The error correction does not fit the chip.
    Ecc(PageFormatError),
}

impl fmt::Display for FlashTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(given) => {
                let known = "`nand[,key=value...]` and `nor[,key=value...]`";
                write!(f, "unknown target `{given}`; raw flash is {known}")
            }
            Self::Pair(cause) => cause.fmt(f),
            Self::Ecc(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for FlashTargetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kind(_) => None,
            Self::Pair(cause) => Some(cause),
            Self::Ecc(cause) => Some(cause),
        }
    }
}

impl From<PairError> for FlashTargetError {
    fn from(error: PairError) -> Self {
        Self::Pair(error)
    }
}

impl FromStr for FlashTarget {
    type Err = FlashTargetError;

    fn from_str(text: &str) -> Result<Self, FlashTargetError> {
        let (name, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        let (kind, default) = match name {
            "nand" => (&NAND, Part::Nand(published_board())),
            "nor" => {
                let profile = nor::Profile::named(NOR_DEFAULT).expect("it is in the list");
                (&NOR, Part::Nor(profile))
            }
            _ => return Err(FlashTargetError::Kind(name.into())),
        };
        let (pairs, is_nand) = (Pairs::parse(kind, rest)?, name == "nand");
        let names = || match is_nand {
            true => format!("{PUBLISHED} or {}", default.names()),
            false => default.names(),
        };
        // The board of the figures is what there is without a name.
        let part = pairs.get_or("profile", names, |name| match is_nand {
            true if name.eq_ignore_ascii_case(PUBLISHED) => Some(None),
            _ => default.another(name).map(Some),
        })?;
        let part = part.flatten();
        let is_published = is_nand && part.is_none() && pairs.given("blocks").is_none();
        let part = part.unwrap_or(default).with_blocks(&pairs, BLOCKS_MIN)?;
        let own_strength = if let Part::Nand(profile) = &part { profile.ecc.strength } else { 0 };
        let is_multi_level = pairs.get("mode", |text| match text {
            "slc" => Some(false),
            "mlc" => Some(true),
            _ => None,
        })?;
        let is_multi_level = is_multi_level.unwrap_or(false);
        let target = Self {
            part: if is_multi_level { part } else { part.single_level() },
            is_published,
            strength: chip::strength(&pairs)?.unwrap_or(own_strength),
            time: pairs.get("clock", Time::named)?.unwrap_or_default(),
            seed: pairs.get("seed", |text| text.parse().ok())?.unwrap_or(1),
        };
        if let Part::Nand(profile) = &target.part {
            chip::page_format(profile, target.strength).map_err(FlashTargetError::Ecc)?;
        }
        Ok(target)
    }
}

impl FlashTarget {
    /// Its description.
    pub fn description(&self) -> String {
        match &self.part {
            Part::Nand(profile) => self.describe_nand(profile),
            Part::Nor(profile) => format!(
                "{}, {} MiB of NOR, blocks of {} KiB, programmed by {} bytes",
                profile.name,
                (u64::from(profile.block_size) * u64::from(profile.blocks)) >> 20,
                profile.block_size >> 10,
                profile.buffer_size,
            ),
        }
    }

    fn describe_nand(&self, profile: &nand::Profile) -> String {
        let ecc = match self.strength {
            0 => "no error correction".to_string(),
            1 => "Hamming".to_string(),
            bits => format!("BCH of {bits} bits"),
        };
        let sold = nand::Profile::named(profile.name).map(|it| it.pairing);
        let mode = match (sold, profile.pairing) {
            (Some(Pairing::Distance3), Pairing::None) => ", one bit per cell",
            (_, Pairing::Distance3) => ", two bits per cell",
            _ => "",
        };
        let erase_size = u64::from(profile.page_size) * u64::from(profile.pages_per_block);
        format!(
            "{}{}, {} MiB{mode}, blocks of {} KiB, pages of {} + {} bytes, {ecc}",
            profile.name,
            if self.is_published { " on the published board" } else { "" },
            (erase_size * u64::from(profile.blocks)) >> 20,
            erase_size >> 10,
            profile.page_size,
            profile.oob_size,
        )
    }

    /// Bytes that the chip programs at once.
    pub fn program_size(&self) -> u32 {
        match &self.part {
            Part::Nand(profile) => profile.page_size,
            Part::Nor(profile) => profile.buffer_size,
        }
    }

    /// A new chip from the factory.
    pub fn chip(&self) -> Chip {
        match &self.part {
            Part::Nand(profile) => {
                let config = Config { seed: self.seed, wears: false, ..Config::default() };
                Chip::Nand(NandChip::new(profile.clone(), config))
            }
            Part::Nor(profile) => Chip::Nor(NorChip::new(profile.clone(), self.seed)),
        }
    }

    /// `chip` with error correction on top.
    ///
    /// # Errors
    /// In words, if it cannot be read.
    pub fn mtd(&self, chip: Chip, meter: &Rc<Meter>) -> Result<Mtd, String> {
        let flash = match chip {
            Chip::Nand(chip) => {
                let format = flysch_target::chip::page_format(chip.profile(), self.strength);
                let format = format.map_err(|error| error.to_string())?;
                let geometry = chip.profile().geometry();
                let is_multi = geometry.kind == CellKind::MlcNand;
                let kind = if is_multi { CellKind::MlcNand } else { CellKind::Nand };
                let chip = MeteredChip::new(chip, meter);
                let nand = Nand::over(chip, format, kind, geometry.erase_size);
                let nand = nand.map_err(|error| error.to_string())?;
                ChipFlash::Nand(Box::new(PageBuffer::new(nand)))
            }
            Chip::Nor(chip) => ChipFlash::Nor(Box::new(MeteredNor::new(chip, meter))),
        };
        Ok(Metered::new(flash, Layer::Mtd, meter))
    }
}
