//! `nand,key=value...` and `nor,key=value...`: which chip, and what is to become of it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use flysch_models::flash::Tear;
use flysch_models::nand::Pairing;
use flysch_models::{nand, nor};
use flysch_mtd::PageFormat;

/// Keys of a target, for the help of the command.
pub const CHIP_KEYS: &str = "\
A chip model is nand[,key=value...] or nor[,key=value...]:
  profile=NAME      the chip (nand: NAND01GR3B, nor: S29GL128P); docs/flash-models.md lists them;
                    of two bits per cell one is used
  blocks=NUMBER     erase blocks (the chip's own)
  fs=ubifs|jffs2    what is made on it when it is erased (ubifs)
  image=FILE        nand: keep its cells in this file, pages with out-of-band bytes (memory)
  ecc=hamming|bchBITS|none  nand: error correction in software (as strong as the chip asks for)
  bad=NUMBER        nand: blocks that are bad from the start (0)
  wear=on|off       nand: cells wear out, forget and disturb each other (off)
  clock=virtual|real  real: every access takes the time that the chip takes (virtual: none)
  cut=NUMBER[b|e|h|l|a]  power goes at this program or erase after the mount, counted from 0:
                    b(efore), e(arly in), h(alf way through), l(ate in), a(fter) it (h)
  seed=NUMBER       decides bad blocks, bit errors and what cuts leave (1)";

/// File systems that can be made on a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewFileSystem {
    Ubifs,
    Jffs2,
}

/// A chip of either kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Profile {
    Nand { profile: nand::Profile, strength: u32 },
    Nor(nor::Profile),
}

/// A chip model to put a file system on.
#[derive(Clone, Debug, PartialEq)]
pub struct ChipTarget {
    pub(super) profile: Profile,
    pub(super) new: NewFileSystem,
    pub(super) image: Option<PathBuf>,
    pub(super) factory_bad: u32,
    pub(super) wears: bool,
    pub(super) takes_time: bool,
    pub(super) cut: Option<(u64, Tear)>,
    pub(super) seed: u64,
}

/// Fewest and most erase blocks of a chip.
const BLOCKS: std::ops::RangeInclusive<u32> = 32..=65536;

fn switch(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn cut(value: &str) -> Option<(u64, Tear)> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let tear = match &value[digits.len()..] {
        "" => Tear::Half,
        letter => letter.parse().ok()?,
    };
    Some((digits.parse().ok()?, tear))
}

fn strength(value: &str) -> Option<u32> {
    match value {
        "none" => Some(0),
        "hamming" => Some(1),
        _ => value.strip_prefix("bch")?.parse().ok().filter(|bits| (2..=40).contains(bits)),
    }
}

/// How pages are built, as Linux builds them.
pub(super) fn page_format(profile: &nand::Profile, strength: u32) -> Result<PageFormat, String> {
    let oob = profile.oob_size as usize;
    let format = PageFormat::in_software(profile.page_size, oob, profile.ecc.step, strength);
    format.map_err(|error| error.to_string())
}

impl ChipTarget {
    /// Whether `path` is meant as a chip: it begins as one, and there is no such file.
    pub fn is_meant(path: &Path) -> bool {
        let kind = path.to_str().and_then(|text| text.split(',').next());
        matches!(kind, Some("nand" | "nor")) && !path.exists()
    }

    fn of_kind(kind: &str) -> Option<Self> {
        let profile = match kind {
            "nand" => {
                let profile = nand::Profile::named("NAND01GR3B")?;
                Profile::Nand { strength: profile.ecc.strength, profile }
            }
            "nor" => Profile::Nor(nor::Profile::named("S29GL128P")?),
            _ => return None,
        };
        Some(Self {
            profile,
            new: NewFileSystem::Ubifs,
            image: None,
            factory_bad: 0,
            wears: false,
            takes_time: false,
            cut: None,
            seed: 1,
        })
    }

    /// Takes one key; the error tells what values it has.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let wanted = |what: &str| format!("`{value}` is no value of `{key}`; expected {what}");
        let number = || value.parse().map_err(|_| wanted("a number"));
        match (key, &mut self.profile) {
            ("profile", profile) => set_profile(profile, value).map_err(|names| wanted(&names))?,
            ("blocks", profile) => {
                let count = value.parse().ok().filter(|count| BLOCKS.contains(count));
                let count = count.ok_or_else(|| wanted("a number from 32 to 65536"))?;
                match profile {
                    Profile::Nand { profile, .. } => *profile = profile.clone().with_blocks(count),
                    Profile::Nor(profile) => *profile = profile.clone().with_blocks(count),
                }
            }
            ("fs", _) => {
                self.new = match value {
                    "ubifs" => NewFileSystem::Ubifs,
                    "jffs2" => NewFileSystem::Jffs2,
                    _ => return Err(wanted("ubifs or jffs2")),
                }
            }
            ("seed", _) => self.seed = number()?,
            ("clock", _) => {
                self.takes_time = match value {
                    "real" => true,
                    "virtual" => false,
                    _ => return Err(wanted("virtual or real")),
                }
            }
            ("cut", _) => {
                let planned = cut(value);
                self.cut = Some(planned.ok_or_else(|| wanted("a number and b, e, h, l or a"))?);
            }
            ("image", Profile::Nand { .. }) => self.image = Some(value.into()),
            ("image", Profile::Nor(_)) => {
                return Err("`image` is for nand: a file is NOR flash without a model".into());
            }
            ("ecc", Profile::Nand { strength: bits, .. }) => {
                *bits = strength(value).ok_or_else(|| wanted("hamming, none or bch2 ... bch40"))?;
            }
            ("bad", Profile::Nand { .. }) => {
                self.factory_bad = u32::try_from(number()?).map_err(|_| wanted("a number"))?;
            }
            ("wear", Profile::Nand { .. }) => {
                self.wears = switch(value).ok_or_else(|| wanted("on or off"))?;
            }
            _ => return Err(format!("there is no key `{key}`\n{CHIP_KEYS}")),
        }
        Ok(())
    }
}

/// Another chip of the same kind; the error is a list of those there are.
fn set_profile(profile: &mut Profile, name: &str) -> Result<(), String> {
    let found = match profile {
        Profile::Nand { .. } => nand::Profile::named(name)
            .map(|profile| Profile::Nand { strength: profile.ecc.strength, profile }),
        Profile::Nor(_) => nor::Profile::named(name).map(Profile::Nor),
    };
    *profile = found.ok_or_else(|| match profile {
        Profile::Nand { .. } => nand::PROFILES.map(|profile| profile.name).join(", "),
        Profile::Nor(_) => nor::PROFILES.map(|profile| profile.name).join(", "),
    })?;
    Ok(())
}

impl FromStr for ChipTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let kind = parts.next().unwrap_or_default();
        let mut target = Self::of_kind(kind).ok_or_else(|| format!("`{kind}` is no chip"))?;
        let mut pairs = vec![];
        for part in parts {
            let pair = part.split_once('=');
            pairs.push(pair.ok_or_else(|| format!("{text}: `{part}` is not key=value"))?);
        }
        // The chip comes first: other keys change it.
        pairs.sort_by_key(|(key, _)| *key != "profile");
        for (key, value) in pairs {
            target.set(key, value).map_err(|why| format!("{text}: {why}"))?;
        }
        if let Profile::Nand { profile, strength } = &mut target.profile {
            // Neither UBI nor JFFS2 writes to flash with two bits per cell.
            if profile.pairing != Pairing::None {
                *profile = profile.clone().single_level();
            }
            page_format(profile, *strength).map_err(|why| format!("{text}: {why}"))?;
        }
        Ok(target)
    }
}
