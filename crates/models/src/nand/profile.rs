//! Commercial NAND chips: their answers to READ ID, their shape, their times, their limits.
//!
//! Times are typical values of the data sheets, rounded; endurance is what the manufacturer
//! guarantees with the error correction given next to it.

use alloc::vec::Vec;

use flysch_api::flash::{FlashGeometry, Kind};

/// Which pages share cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// None: one bit per cell.
    None,
    /// Two bits per cell, pages three apart: 0 with 2, 1 with 4, 3 with 6 ... (Linux:
    /// `dist3_pairing_scheme`).
    Distance3,
}

impl Pairing {
    /// The lower page that shares cells with `page`, if `page` is an upper one; both are counted
    /// within a block of `pages` pages.
    pub fn lower_of(self, page: u32, pages: u32) -> Option<u32> {
        let is_last = page + 1 == pages;
        if self == Self::None || page == 0 || (page % 2 == 1 && !is_last) {
            return None;
        }
        // The last page is paired with the one two below it.
        let pair = (page + 1).checked_sub(if is_last { 2 } else { 3 })? / 2;
        Some(if pair == 0 { 0 } else { pair * 2 - 1 })
    }

    /// The lower pages of a block of `pages` pages: those of single-level mode.
    pub fn lower_pages(self, pages: u32) -> impl Iterator<Item = u32> {
        (0..pages).filter(move |&page| self.lower_of(page, pages).is_none())
    }
}

/// Error correction required by the manufacturer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EccNeed {
    /// Bytes of data per step.
    pub step: u32,
    /// Bits to correct per step.
    pub strength: u32,
}

/// Durations, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Cells to page register (tR).
    pub read_ns: u64,
    /// Page register to cells (tPROG); for lower pages if pages are paired.
    pub program_ns: u64,
    /// The same for upper pages.
    pub program_upper_ns: u64,
    /// Erase of a block (tBERS).
    pub erase_ns: u64,
    /// One byte, command or address on the bus (tRC, tWC).
    pub cycle_ns: u64,
}

/// A chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Manufacturer and part number.
    pub name: &'static str,
    /// Its answer to READ ID, in the form that nandsim expects (`id_bytes=`).
    pub id: &'static [u8],
    /// Bytes of data in a page.
    pub page_size: u32,
    /// Out-of-band bytes of a page.
    pub oob_size: u32,
    /// Pages in a block.
    pub pages_per_block: u32,
    /// Blocks.
    pub blocks: u32,
    /// How often a page may be programmed between two erases (NOP).
    pub programs_per_page: u8,
    /// Whether the pages of a block must be programmed upwards.
    pub is_sequential: bool,
    /// Which pages share cells.
    pub pairing: Pairing,
    /// The required error correction.
    pub ecc: EccNeed,
    /// Number of program and erase cycles that a block withstands.
    pub endurance: u32,
    /// Maximum number of blocks that are bad when the chip is new or become bad within its
    /// endurance.
    pub bad_blocks_max: u32,
    /// Times.
    pub timing: Timing,
}

const SLC_2K: Timing = Timing {
    read_ns: 25_000,
    program_ns: 200_000,
    program_upper_ns: 200_000,
    erase_ns: 1_500_000,
    cycle_ns: 25,
};

/// The chips known by name.
pub const PROFILES: [Profile; 7] = [
    Profile {
        name: "K9F5608U0D",
        id: &[0xEC, 0x75],
        page_size: 512,
        oob_size: 16,
        pages_per_block: 32,
        blocks: 2048,
        programs_per_page: 2,
        is_sequential: false,
        pairing: Pairing::None,
        ecc: EccNeed { step: 512, strength: 1 },
        endurance: 100_000,
        bad_blocks_max: 35,
        timing: Timing { read_ns: 15_000, erase_ns: 2_000_000, cycle_ns: 50, ..SLC_2K },
    },
    Profile {
        name: "NAND01GR3B",
        id: &[0x20, 0xA1, 0x00, 0x15],
        page_size: 2048,
        oob_size: 64,
        pages_per_block: 64,
        blocks: 1024,
        programs_per_page: 4,
        is_sequential: true,
        pairing: Pairing::None,
        ecc: EccNeed { step: 512, strength: 1 },
        endurance: 100_000,
        bad_blocks_max: 20,
        timing: Timing { program_ns: 300_000, erase_ns: 2_000_000, cycle_ns: 50, ..SLC_2K },
    },
    Profile {
        name: "K9F1G08U0B",
        id: &[0xEC, 0xF1, 0x00, 0x95, 0x40],
        page_size: 2048,
        oob_size: 64,
        pages_per_block: 64,
        blocks: 1024,
        programs_per_page: 4,
        is_sequential: true,
        pairing: Pairing::None,
        ecc: EccNeed { step: 512, strength: 1 },
        endurance: 100_000,
        bad_blocks_max: 20,
        timing: SLC_2K,
    },
    Profile {
        name: "MT29F2G08ABAEA",
        id: &[0x2C, 0xDA, 0x90, 0x95, 0x06],
        page_size: 2048,
        oob_size: 64,
        pages_per_block: 64,
        blocks: 2048,
        programs_per_page: 4,
        is_sequential: true,
        pairing: Pairing::None,
        ecc: EccNeed { step: 512, strength: 4 },
        endurance: 100_000,
        bad_blocks_max: 40,
        timing: Timing { erase_ns: 700_000, ..SLC_2K },
    },
    Profile {
        name: "TH58NVG2S3HBAI4",
        id: &[0x98, 0xDC, 0x91, 0x15, 0x76],
        page_size: 2048,
        oob_size: 128,
        pages_per_block: 64,
        blocks: 4096,
        programs_per_page: 4,
        is_sequential: true,
        pairing: Pairing::None,
        ecc: EccNeed { step: 512, strength: 8 },
        endurance: 60_000,
        bad_blocks_max: 80,
        timing: Timing { program_ns: 300_000, erase_ns: 2_500_000, ..SLC_2K },
    },
    Profile {
        name: "TC58NVG2S0F",
        id: &[0x98, 0xDC, 0x90, 0x26, 0x76, 0x15, 0x01, 0x08],
        page_size: 4096,
        oob_size: 224,
        pages_per_block: 64,
        blocks: 2048,
        programs_per_page: 4,
        is_sequential: true,
        pairing: Pairing::None,
        ecc: EccNeed { step: 512, strength: 4 },
        endurance: 100_000,
        bad_blocks_max: 40,
        timing: Timing { read_ns: 30_000, program_ns: 300_000, erase_ns: 3_000_000, ..SLC_2K },
    },
    Profile {
        name: "H27UCG8T2ETR",
        id: &[0xAD, 0xDE, 0x14, 0xA7, 0x42, 0x4A],
        page_size: 16384,
        oob_size: 1664,
        pages_per_block: 256,
        blocks: 2048,
        programs_per_page: 1,
        is_sequential: true,
        pairing: Pairing::Distance3,
        ecc: EccNeed { step: 1024, strength: 40 },
        endurance: 3_000,
        bad_blocks_max: 42,
        timing: Timing {
            read_ns: 90_000,
            program_ns: 400_000,
            program_upper_ns: 2_400_000,
            erase_ns: 5_000_000,
            cycle_ns: 20,
        },
    },
];

impl Profile {
    /// The chip with that name, in upper or lower case.
    pub fn named(name: &str) -> Option<Self> {
        PROFILES.into_iter().find(|profile| profile.name.eq_ignore_ascii_case(name))
    }

    /// The chip that answers `id` to READ ID; further bytes of `id` are ignored.
    pub fn identified(id: &[u8]) -> Option<Self> {
        let fits = |profile: &Profile| id.starts_with(profile.id);
        PROFILES.into_iter().filter(fits).max_by_key(|profile| profile.id.len())
    }

    /// The same chip with fewer or more blocks.
    #[must_use]
    pub fn with_blocks(mut self, blocks: u32) -> Self {
        self.blocks = blocks;
        self
    }

    /// The same chip with fewer or more pages in a block, for small worlds.
    #[must_use]
    pub fn with_pages_per_block(mut self, pages: u32) -> Self {
        self.pages_per_block = pages;
        self
    }

    /// The same chip used with one bit per cell: only the lower pages, half of all, which are never
    /// torn by others and ten times as durable.
    #[must_use]
    pub fn single_level(mut self) -> Self {
        self.pages_per_block = self.pairing.lower_pages(self.pages_per_block).count() as u32;
        if self.pairing != Pairing::None {
            self.endurance = self.endurance.saturating_mul(10);
        }
        self.pairing = Pairing::None;
        self
    }

    /// Its shape, without error correction.
    pub fn geometry(&self) -> FlashGeometry {
        let is_single = self.pairing == Pairing::None;
        let parts = match self.programs_per_page {
            4.. if is_single => 4,
            2.. if is_single => 2,
            _ => 1,
        };
        // Sub-pages hold whole error correction steps.
        let sub_page = (self.page_size / parts).max(self.ecc.step).min(self.page_size);
        FlashGeometry {
            kind: if is_single { Kind::Nand } else { Kind::MlcNand },
            size: u64::from(self.page_size)
                * u64::from(self.pages_per_block)
                * u64::from(self.blocks),
            erase_size: self.page_size * self.pages_per_block,
            write_size: self.page_size,
            sub_page_size: sub_page,
            oob_size: self.oob_size,
            // If a page may be programmed only once, nothing can be added next to its data.
            oob_available: match self.programs_per_page {
                1 => 0,
                _ => self.free_oob().iter().map(|range| range.end - range.start).sum(),
            },
            ecc_strength: 0,
            bitflip_threshold: 0,
        }
    }

    /// The bad-block marker in the out-of-band bytes.
    pub fn marker(&self) -> u32 {
        if self.page_size <= 512 { 5 } else { 0 }
    }

    /// Out-of-band bytes other than the marker that are left to file systems if no codes are stored
    /// there.
    pub(crate) fn free_oob(&self) -> Vec<core::ops::Range<u32>> {
        match self.page_size {
            ..=512 => [0..5, 6..self.oob_size].to_vec(),
            _ => core::iter::once(2..self.oob_size).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_found_by_name_and_identity() {
        for profile in PROFILES {
            assert_eq!(Profile::named(&profile.name.to_ascii_lowercase()), Some(profile.clone()));
            assert_eq!(Profile::identified(profile.id), Some(profile.clone()));
            let geometry = profile.geometry();
            assert!(geometry.erase_size.is_power_of_two(), "{}", profile.name);
            assert!(geometry.sub_page_size >= profile.ecc.step, "{}", profile.name);
        }
        assert_eq!(Profile::identified(&[0xEC, 0xF1, 0, 0x95]), None);
        assert_eq!(Profile::named("none"), None);
    }

    #[test]
    fn pages_are_paired_as_linux_pairs_them() {
        // nand_pairing_dist3_get_wunit: lower 0, 1, 3, 5 ...; upper 2, 4, 6 ... and the last.
        let pairs: Vec<(u32, u32)> = (0..16)
            .filter_map(|page| Some((Pairing::Distance3.lower_of(page, 16)?, page)))
            .collect();
        let expected = [(0, 2), (1, 4), (3, 6), (5, 8), (7, 10), (9, 12), (11, 14), (13, 15)];
        assert_eq!(pairs, expected);
        let single = Profile::named("H27UCG8T2ETR").unwrap().single_level();
        assert_eq!((single.pages_per_block, single.geometry().kind), (128, Kind::Nand));
    }
}
