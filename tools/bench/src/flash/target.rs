//! `nand,key=value...`: the chip a stack is put on.

use std::str::FromStr;

use flysch_api::flash::Kind;
use flysch_models::nand::{Config, NandChip, PROFILES, Profile, Timing};
use flysch_mtd::{Bch, Ecc, Nand, OobLayout, PageFormat};

use super::buffer::PageBuffer;
use super::meter::{Layer, Meter, Metered, MeteredChip, Time};

/// The flash below a file system.
pub type Mtd = Metered<PageBuffer<Nand<MeteredChip>>>;

/// The profile of the board that the published figures are from.
pub const PUBLISHED: &str = "published";
/// Keys of a target, for the help of the command.
pub const KEYS: &str = "\
A target is nand[,key=value...]:
  profile=published|NAME  the chip (published); docs/flash-models.md lists the names
  blocks=NUMBER           erase blocks (the chip's own)
  ecc=hamming|bchBITS|none  error correction in software (as strong as the chip asks for)
  clock=virtual|hybrid    virtual: the chip's time alone; hybrid: the software's as well (virtual)
  seed=NUMBER             seed of the data (1)";

/// Blocks that JFFS2 and UBIFS need at least for this benchmark's smallest part.
const BLOCKS_MIN: u32 = 64;

/// A NAND chip with its error correction, and whose time counts.
#[derive(Clone, Debug)]
pub struct NandTarget {
    /// The chip.
    pub profile: Profile,
    /// Whether it stands for the board of the published figures.
    pub is_published: bool,
    /// Bits corrected in a step of 512 bytes (256 with one bit); 0 is none.
    pub strength: u32,
    /// Whose time counts.
    pub time: Time,
    /// Seed of the data.
    pub seed: u64,
}

impl Default for NandTarget {
    fn default() -> Self {
        let profile = published_board();
        Self {
            strength: profile.ecc.strength,
            profile,
            is_published: true,
            time: Time::Virtual,
            seed: 1,
        }
    }
}

/// An ST chip of 128 MiB as that board saw it: 0.7 MiB/s written and 1.1 MiB/s read, raw. Its slow
/// bus and its software for error correction are in the time of a cycle and of a program.
fn published_board() -> Profile {
    let chip = Profile::named("NAND01GR3B").expect("it is in the list");
    let timing =
        Timing { program_ns: 1_045_000, program_upper_ns: 1_045_000, cycle_ns: 825, ..chip.timing };
    Profile { timing, ..chip }
}

impl FromStr for NandTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        if parts.next() != Some("nand") {
            return Err(format!("target `{text}`: only `nand[,key=value...]` is raw flash here"));
        }
        let mut target = Self::default();
        let (mut blocks, mut ecc) = (None, None);
        for pair in parts {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("target `{text}`: `{pair}` is not key=value"))?;
            let refuse = |expected: &str| {
                format!("target `{text}`: `{value}` is no value of `{key}`; expected {expected}")
            };
            match key {
                "profile" if value.eq_ignore_ascii_case(PUBLISHED) => {}
                "profile" => {
                    let names = PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>();
                    let expected = || refuse(&format!("{PUBLISHED} or {}", names.join(", ")));
                    target.profile = Profile::named(value).ok_or_else(expected)?;
                    target.is_published = false;
                }
                "blocks" => {
                    let count =
                        value.parse().ok().filter(|count| (BLOCKS_MIN..=65536).contains(count));
                    blocks = Some(count.ok_or_else(|| refuse("a number from 64 to 65536"))?);
                }
                "ecc" => {
                    let strength = strength(value);
                    ecc = Some(strength.ok_or_else(|| refuse("hamming, none or bch2 ... bch40"))?);
                }
                "clock" => {
                    let time = Time::named(value);
                    target.time = time.ok_or_else(|| refuse("virtual or hybrid"))?;
                }
                "seed" => target.seed = value.parse().map_err(|_| refuse("a number"))?,
                _ => {
                    return Err(format!(
                        "target `{text}`: unknown key `{key}`; \
                         there are profile, blocks, ecc, clock, seed"
                    ));
                }
            }
        }
        if let Some(blocks) = blocks {
            target.profile = target.profile.with_blocks(blocks);
            target.is_published = false;
        }
        target.strength = ecc.unwrap_or(target.profile.ecc.strength);
        target.format().map(|_| target.clone())
    }
}

fn strength(value: &str) -> Option<u32> {
    match value {
        "none" => Some(0),
        "hamming" => Some(1),
        _ => value.strip_prefix("bch")?.parse().ok().filter(|bits| (2..=40).contains(bits)),
    }
}

impl NandTarget {
    /// In words.
    pub fn description(&self) -> String {
        let profile = &self.profile;
        let ecc = match self.strength {
            0 => "no error correction".to_string(),
            1 => "Hamming".to_string(),
            bits => format!("BCH of {bits} bits"),
        };
        let erase_size = u64::from(profile.page_size) * u64::from(profile.pages_per_block);
        format!(
            "{}{}, {} MiB, blocks of {} KiB, pages of {} + {} bytes, {ecc}",
            profile.name,
            if self.is_published { " on the published board" } else { "" },
            (erase_size * u64::from(profile.blocks)) >> 20,
            erase_size >> 10,
            profile.page_size,
            profile.oob_size,
        )
    }

    /// How its pages are built, as Linux builds them.
    fn format(&self) -> Result<PageFormat, String> {
        let (page, oob) = (self.profile.page_size, self.profile.oob_size as usize);
        let ecc = match self.strength {
            0 => Ecc::None,
            1 => Ecc::Hamming { step: 256, smart_media: false },
            bits => {
                let step = self.profile.ecc.step.max(512);
                let field = if step > 512 { 14 } else { 13 };
                let code = Bch::new(field, bits, step as usize);
                Ecc::Bch(code.ok_or_else(|| format!("no BCH code corrects {bits} bits"))?)
            }
        };
        let code = (page as usize).checked_div(ecc.step()).unwrap_or(0) * ecc.code_len();
        let layout = match &ecc {
            Ecc::Hamming { .. } => OobLayout::hamming(oob, code),
            _ => OobLayout::at_end(oob, code),
        };
        let layout = layout.ok_or_else(|| {
            format!("{code} bytes of error correction have no room in {oob} bytes out of band")
        })?;
        Ok(PageFormat { page_size: page, oob: layout, ecc })
    }

    /// A chip as it leaves the factory.
    pub fn chip(&self) -> NandChip {
        let config = Config { seed: self.seed, wears: false, ..Config::default() };
        NandChip::new(self.profile.clone(), config)
    }

    /// `chip` with error correction over it.
    ///
    /// # Errors
    /// In words, when it cannot be read.
    pub fn mtd(&self, chip: NandChip, meter: &std::rc::Rc<Meter>) -> Result<Mtd, String> {
        let format = self.format()?;
        let kind = chip.profile().geometry().kind;
        let erase_size = chip.profile().geometry().erase_size;
        let kind = if kind == Kind::MlcNand { Kind::MlcNand } else { Kind::Nand };
        let chip = MeteredChip::new(chip, meter);
        let nand = Nand::over(chip, format, kind, erase_size).map_err(|error| error.to_string())?;
        Ok(Metered::new(PageBuffer::new(nand), Layer::Mtd, meter))
    }
}

/// The chip below; it can be copied.
pub fn chip_of(mtd: &Mtd) -> &NandChip {
    mtd.inner().flash().pages().chip()
}
