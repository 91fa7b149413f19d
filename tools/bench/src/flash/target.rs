//! `nand,key=value...` and `nor,key=value...`: the chip a stack is put on.

use std::rc::Rc;
use std::str::FromStr;

use flysch_api::flash::Kind;
use flysch_models::nand::{self, Config, NandChip, Pairing, Timing};
use flysch_models::nor::{self, NorChip};
use flysch_mtd::{Nand, PageFormat};

use super::buffer::PageBuffer;
use super::chip::{Chip, ChipFlash, MeteredNor};
use super::meter::{Layer, Meter, Metered, MeteredChip, Time};

/// The flash below a file system.
pub type Mtd = Metered<ChipFlash>;

/// The profile of the board that the published figures are from.
pub const PUBLISHED: &str = "published";
/// Keys of a target, for the help of the command.
pub const KEYS: &str = "\
A target is nand[,key=value...] or nor[,key=value...]:
  profile=published|NAME  the chip (nand: published, nor: S29GL128P); docs/flash-models.md lists
                          the names
  blocks=NUMBER           erase blocks (the chip's own)
  mode=slc|mlc            bits per cell used of a chip with two (slc: neither UBI nor JFFS2 write
                          to the other)
  ecc=hamming|bchBITS|none  NAND: error correction in software (as strong as the chip asks for)
  clock=virtual|hybrid    virtual: the chip's time alone; hybrid: the software's as well (virtual)
  seed=NUMBER             seed of the data (1)";

/// Blocks that JFFS2 and UBIFS need at least for this benchmark's smallest part.
const BLOCKS_MIN: u32 = 64;
/// The NOR chip that is meant when none is named.
const NOR_DEFAULT: &str = "S29GL128P";

/// A chip one can buy.
#[derive(Clone, Debug)]
pub enum Part {
    /// Pages.
    Nand(nand::Profile),
    /// Bytes.
    Nor(nor::Profile),
}

/// A chip with its error correction, and whose time counts.
#[derive(Clone, Debug)]
pub struct FlashTarget {
    /// The chip.
    pub part: Part,
    /// Whether it stands for the board of the published figures.
    pub is_published: bool,
    /// Bits corrected in a step of 512 bytes (256 with one bit); 0 is none.
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

/// An ST chip of 128 MiB as that board saw it: 0.7 MiB/s written and 1.1 MiB/s read, raw. Its slow
/// bus and its software for error correction are in the time of a cycle and of a program.
fn published_board() -> nand::Profile {
    let chip = nand::Profile::named("NAND01GR3B").expect("it is in the list");
    let timing =
        Timing { program_ns: 1_010_000, program_upper_ns: 1_010_000, cycle_ns: 840, ..chip.timing };
    nand::Profile { timing, ..chip }
}

/// What a user asked for.
#[derive(Default)]
struct Wishes {
    part: Option<Part>,
    blocks: Option<u32>,
    ecc: Option<u32>,
    is_multi_level: bool,
    time: Time,
    seed: Option<u64>,
}

impl Wishes {
    fn take(&mut self, is_nand: bool, key: &str, value: &str) -> Result<(), String> {
        let refuse =
            |expected: &str| format!("`{value}` is no value of `{key}`; expected {expected}");
        match key {
            "profile" if is_nand && value.eq_ignore_ascii_case(PUBLISHED) => {}
            "profile" => self.part = Some(part(is_nand, value).map_err(|names| refuse(&names))?),
            "blocks" => {
                let count = value.parse().ok().filter(|it| (BLOCKS_MIN..=65536).contains(it));
                self.blocks = Some(count.ok_or_else(|| refuse("a number from 64 to 65536"))?);
            }
            "ecc" if is_nand => {
                let strength = strength(value);
                self.ecc = Some(strength.ok_or_else(|| refuse("hamming, none or bch2 ... bch72"))?);
            }
            "mode" if is_nand => {
                self.is_multi_level = match value {
                    "slc" => false,
                    "mlc" => true,
                    _ => return Err(refuse("slc or mlc")),
                }
            }
            "clock" => {
                self.time = Time::named(value).ok_or_else(|| refuse("virtual or hybrid"))?;
            }
            "seed" => self.seed = Some(value.parse().map_err(|_| refuse("a number"))?),
            _ => {
                let nand = if is_nand { ", mode, ecc" } else { "" };
                return Err(format!(
                    "unknown key `{key}`; there are profile, blocks, clock, seed{nand}"
                ));
            }
        }
        Ok(())
    }
}

/// The chip of that name; else the names there are.
fn part(is_nand: bool, name: &str) -> Result<Part, String> {
    if is_nand {
        let names = nand::PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>();
        let found = nand::Profile::named(name).map(Part::Nand);
        return found.ok_or_else(|| format!("{PUBLISHED} or {}", names.join(", ")));
    }
    let names = nor::PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>();
    nor::Profile::named(name).map(Part::Nor).ok_or_else(|| names.join(", "))
}

fn strength(value: &str) -> Option<u32> {
    match value {
        "none" => Some(0),
        "hamming" => Some(1),
        _ => value.strip_prefix("bch")?.parse().ok().filter(|bits| (2..=72).contains(bits)),
    }
}

impl FromStr for FlashTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pairs = text.split(',');
        let is_nand = match pairs.next() {
            Some("nand") => true,
            Some("nor") => false,
            _ => {
                let known = "`nand[,key=value...]` and `nor[,key=value...]`";
                return Err(format!("target `{text}`: raw flash is {known}"));
            }
        };
        let refuse = |why: String| format!("target `{text}`: {why}");
        let mut wishes = Wishes::default();
        for pair in pairs {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| refuse(format!("`{pair}` is not key=value")))?;
            wishes.take(is_nand, key, value).map_err(refuse)?;
        }
        let default = match is_nand {
            true => Part::Nand(published_board()),
            false => Part::Nor(nor::Profile::named(NOR_DEFAULT).expect("it is in the list")),
        };
        let is_published = is_nand && wishes.part.is_none() && wishes.blocks.is_none();
        let mut part = wishes.part.unwrap_or(default);
        let mut strength = 0;
        match &mut part {
            Part::Nand(profile) => {
                strength = wishes.ecc.unwrap_or(profile.ecc.strength);
                if profile.pairing != Pairing::None && !wishes.is_multi_level {
                    *profile = profile.clone().single_level();
                }
                profile.blocks = wishes.blocks.unwrap_or(profile.blocks);
            }
            Part::Nor(profile) => profile.blocks = wishes.blocks.unwrap_or(profile.blocks),
        }
        let (time, seed) = (wishes.time, wishes.seed.unwrap_or(1));
        let target = Self { part, is_published, strength, time, seed };
        if let Part::Nand(profile) = &target.part {
            target.format(profile).map_err(refuse)?;
        }
        Ok(target)
    }
}

impl FlashTarget {
    /// In words.
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

    /// Bytes that the chip programs together.
    pub fn program_size(&self) -> u32 {
        match &self.part {
            Part::Nand(profile) => profile.page_size,
            Part::Nor(profile) => profile.buffer_size,
        }
    }

    /// How pages are built, as Linux builds them.
    fn format(&self, profile: &nand::Profile) -> Result<PageFormat, String> {
        let oob = profile.oob_size as usize;
        let (page, step) = (profile.page_size, profile.ecc.step);
        let format = PageFormat::in_software(page, oob, step, self.strength);
        format.map_err(|error| error.to_string())
    }

    /// A chip as it leaves the factory.
    pub fn chip(&self) -> Chip {
        match &self.part {
            Part::Nand(profile) => {
                let config = Config { seed: self.seed, wears: false, ..Config::default() };
                Chip::Nand(NandChip::new(profile.clone(), config))
            }
            Part::Nor(profile) => Chip::Nor(NorChip::new(profile.clone(), self.seed)),
        }
    }

    /// `chip` with error correction over it.
    ///
    /// # Errors
    /// In words, when it cannot be read.
    pub fn mtd(&self, chip: Chip, meter: &Rc<Meter>) -> Result<Mtd, String> {
        let flash = match chip {
            Chip::Nand(chip) => {
                let format = self.format(chip.profile())?;
                let geometry = chip.profile().geometry();
                let is_multi = geometry.kind == Kind::MlcNand;
                let kind = if is_multi { Kind::MlcNand } else { Kind::Nand };
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
