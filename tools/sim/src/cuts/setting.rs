//! What a workload runs on and who runs it: the coordinates of a world.
//!
//! A world is written as its coordinates, separated by slashes:
//! `ubifs/die4/bad2/worn/fading/bare/fastmap/7`.

use std::fmt;
use std::str::FromStr;

use flysch_models::flash::Aftermath;
use flysch_models::nand::{self, NandChip};
use flysch_models::nor::{self, NorChip};
use flysch_mtd::{Nand, PageFormat};

use super::chip::Chip;
use super::workloads::{WORKLOADS, Workload};

/// Erases that a worn chip has already had, as a fraction of its endurance.
const WORN_PART: u32 = 10;
/// Number of reads of each page of a block that disturb it as much as all erases would, if reads
/// disturb.
const DISTURBING_READS: u32 = 125;
/// Size of a NOR block, on every NOR chip, bytes: small worlds.
const NOR_BLOCK: u32 = 16 << 10;

/// A kind of coordinate: a few named values.
macro_rules! coordinate {
    ($(#[$about:meta])* $name:ident {
        $($(#[$one:meta])* $value:ident = $text:literal),* $(,)?
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$one])* $value),* }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$value),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $text),* }
            }
        }
    };
}

coordinate! {
    /// A chip, and where its errors are corrected.
    Part {
        /// 2 KiB pages, four bits per 512 bytes corrected on the die (MT29F2G08ABAEA).
        Die4 = "die4",
        /// One bit (K9F1G08U0B).
        Die1 = "die1",
        /// Eight bits (TH58NVG2S3HBAI4).
        Die8 = "die8",
        /// 4 KiB pages, four bits (TC58NVG2S0F).
        Die4K = "die4-4k",
        /// Two-bit cells used with one bit, 16 KiB pages, 40 bits per 1 KiB (H27UCG8T2ETR).
        SingleLevel = "slc-mode",
        /// Hamming codes in software (K9F1G08U0B).
        Hamming = "hamming",
        /// The same on pages of 512 bytes (K9F5608U0D).
        SmallPage = "hamming-512",
        /// BCH codes of four bits in software (MT29F2G08ABAEA).
        Bch4 = "bch4",
        /// BCH codes of eight bits in software (TH58NVG2S3HBAI4).
        Bch8 = "bch8",
        /// Serial NOR, 256 bytes programmed at a time (W25Q128FV).
        Nor = "nor",
        /// Parallel NOR, 64 bytes programmed at a time (S29GL128P).
        ParallelNor = "nor-parallel",
    }
}

coordinate! {
    /// Number of blocks that are bad when the chip is new.
    Bad {
        /// None.
        None = "bad0",
        /// Two.
        Two = "bad2",
    }
}

coordinate! {
    /// The age of the chip.
    Wear {
        /// New; its cells do not age.
        New = "new",
        /// A tenth of its erases are used up; its cells age.
        Worn = "worn",
    }
}

coordinate! {
    /// The later behaviour of cells that a cut left half programmed or half erased.
    Cells {
        /// They read as they were left.
        Settled = "settled",
        /// They read differently each time.
        Unstable = "unstable",
        /// They read correctly for some reads, and differently each time from then on.
        Fading = "fading",
        /// As unstable; and reads disturb a block after thousands instead of a million.
        Disturbed = "disturbed",
    }
}

coordinate! {
    /// The user of the library.
    User {
        /// Like `flysch image`: background work, a clean close.
        Tool = "tool",
        /// A program that does no background work and never closes anything.
        Bare = "bare",
        /// A program whose first attaches are broken off half way and restarted.
        Hasty = "hasty",
        /// A program with several other volumes, one of which changes at every start.
        Several = "several",
    }
}

coordinate! {
    /// The mode of the device.
    Gear {
        /// Scans; nothing fails.
        Plain = "plain",
        /// With a fastmap.
        Fastmap = "fastmap",
        /// Some programs and erases fail.
        Failing = "failing",
        /// Both.
        FailingFastmap = "failing-fastmap",
    }
}

/// All coordinates except the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// The chip.
    pub part: Part,
    /// Its bad blocks.
    pub bad: Bad,
    /// Its age.
    pub wear: Wear,
    /// Its torn cells.
    pub cells: Cells,
    /// The user.
    pub user: User,
    /// The mode of the device.
    pub gear: Gear,
    /// Determines everything else.
    pub seed: u64,
}

impl Default for Setting {
    /// A new chip with error correction on the die, used by the tool.
    fn default() -> Self {
        Self {
            part: Part::Die4,
            bad: Bad::None,
            wear: Wear::New,
            cells: Cells::Unstable,
            user: User::Tool,
            gear: Gear::Plain,
            seed: 1,
        }
    }
}

impl Part {
    /// The chip's name, bits corrected by software (`None`: by the die), pages per block.
    fn nand(self) -> Option<(&'static str, Option<u32>, u32)> {
        Some(match self {
            Self::Die4 => ("MT29F2G08ABAEA", None, 16),
            Self::Die1 => ("K9F1G08U0B", None, 16),
            Self::Die8 => ("TH58NVG2S3HBAI4", None, 16),
            Self::Die4K => ("TC58NVG2S0F", None, 8),
            Self::SingleLevel => ("H27UCG8T2ETR", None, 8),
            Self::Hamming => ("K9F1G08U0B", Some(1), 16),
            Self::SmallPage => ("K9F5608U0D", Some(1), 64),
            Self::Bch4 => ("MT29F2G08ABAEA", Some(4), 16),
            Self::Bch8 => ("TH58NVG2S3HBAI4", Some(8), 16),
            Self::Nor | Self::ParallelNor => return None,
        })
    }

    /// Whether it is NOR.
    pub fn is_nor(self) -> bool {
        self.nand().is_none()
    }
}

impl Setting {
    /// Whether such a chip is possible: NOR has no bad blocks and does not age here, and UBI, like
    /// Linux's, handles failed programs only if blocks can be marked bad.
    pub fn is_possible(&self) -> bool {
        let fresh = self.bad == Bad::None && self.wear == Wear::New;
        !self.part.is_nor() || (fresh && self.cells != Cells::Disturbed && !self.is_failing())
    }

    /// Whether it is a new chip with its own error correction that is harmed only by time.
    pub fn is_new_die(&self) -> bool {
        let is_calm = self.cells != Cells::Disturbed && !self.is_failing();
        self.part == Part::Die4 && self.wear == Wear::New && is_calm
    }

    /// Whether the device keeps a fastmap.
    pub fn has_fastmap(&self) -> bool {
        matches!(self.gear, Gear::Fastmap | Gear::FailingFastmap)
    }

    /// Whether programs and erases fail.
    pub fn is_failing(&self) -> bool {
        matches!(self.gear, Gear::Failing | Gear::FailingFastmap)
    }

    /// A new chip of `blocks` blocks; `ages`: its cells leak in any case.
    pub fn chip(&self, blocks: u32, ages: bool) -> Chip {
        let aftermath = Aftermath {
            unstable: self.cells != Cells::Settled,
            fades: self.cells == Cells::Fading,
        };
        let Some((name, software, pages)) = self.part.nand() else {
            let name = if self.part == Part::Nor { "W25Q128FV" } else { "S29GL128P" };
            let profile = nor::Profile::named(name).expect("it is in the list");
            let profile = profile.with_blocks(blocks).with_block_size(NOR_BLOCK);
            return Chip::Nor(NorChip::new(profile, self.seed).with_aftermath(aftermath));
        };
        let profile = nand::Profile::named(name).expect("it is in the list");
        let profile = profile.single_level().with_blocks(blocks).with_pages_per_block(pages);
        let disturbs = self.cells == Cells::Disturbed;
        let config = nand::Config {
            seed: self.seed,
            factory_bad: if self.bad == Bad::Two { 2 } else { 0 },
            wears: ages || disturbs || self.wear == Wear::Worn,
            corrects: software.is_none(),
            disturbing_reads: if disturbs { DISTURBING_READS * pages } else { 0 },
            aftermath,
        };
        let cells = NandChip::new(profile.clone(), config);
        let mut chip = match software {
            None => Chip::Nand(cells),
            Some(bits) => {
                let (page, oob) = (profile.page_size, profile.oob_size as usize);
                let format = PageFormat::in_software(page, oob, 512, bits).expect("it fits");
                let geometry = profile.geometry();
                let nand = Nand::over(cells, format, geometry.kind, geometry.erase_size);
                Chip::Corrected(Box::new(nand.expect("the chip is new")))
            }
        };
        if self.wear == Wear::Worn {
            chip.wear_out(profile.endurance / WORN_PART);
        }
        chip
    }
}

/// One world: a workload in a setting.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The workload.
    pub workload: &'static Workload,
    /// The setting.
    pub setting: Setting,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { part, bad, wear, cells, user, gear, seed } = self.setting;
        let (workload, part, bad) = (self.workload.name, part.name(), bad.name());
        let (wear, cells, user) = (wear.name(), cells.name(), user.name());
        write!(f, "{workload}/{part}/{bad}/{wear}/{cells}/{user}/{}/{seed}", gear.name())
    }
}

impl FromStr for World {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [workload, part, bad, wear, cells, user, gear, seed] = parts[..] else {
            return Err(format!(
                "'{text}' is not a world; one looks like {}",
                "ubifs/die4/bad0/new/unstable/tool/plain/1"
            ));
        };
        let found = WORKLOADS.iter().find(|one| one.name == workload);
        let workload =
            found.ok_or(format!("there is no workload '{workload}'; --list names them"))?;
        let seed = seed.parse().map_err(|_| format!("'{seed}' is not a seed"))?;
        let setting = Setting {
            part: named("chip", part, Part::ALL, Part::name)?,
            bad: named("number of bad blocks", bad, Bad::ALL, Bad::name)?,
            wear: named("age", wear, Wear::ALL, Wear::name)?,
            cells: named("kind of cells", cells, Cells::ALL, Cells::name)?,
            user: named("user", user, User::ALL, User::name)?,
            gear: named("device", gear, Gear::ALL, Gear::name)?,
            seed,
        };
        Ok(Self { workload, setting })
    }
}

/// The value with that name.
///
/// # Errors
/// In words, with all names, if there is none.
pub fn named<T: Copy>(
    what: &str,
    text: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        format!("there is no {what} '{text}'; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests;
