//! What bring-up learns about the card and the bus to it.

use core::fmt;

use flysch_wire::mmc::ext_csd::partition;
use flysch_wire::mmc::sd::Scr;
use flysch_wire::mmc::{Cid, Csd, ExtCsd};

use crate::quirks::{CardQuirk, CardQuirks};

/// Timing of the bus, slowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Timing {
    /// Backward compatible, up to 26 MHz (SD: 25 MHz).
    #[default]
    Legacy,
    /// High speed, up to 52 MHz (SD: 50 MHz).
    HighSpeed,
    /// High speed with data on both edges, 52 MHz.
    Ddr52,
    /// UHS-I of SD: both edges, 50 MHz. This and the next two are at 1.8 V.
    Ddr50,
    /// UHS-I: 100 MHz.
    Sdr50,
    /// UHS-I: 208 MHz, sampling point tuned.
    Sdr104,
    /// 200 MHz, sampling point tuned.
    Hs200,
    /// 200 MHz with data on both edges.
    Hs400,
    /// HS400 with enhanced strobe: nothing to tune.
    Hs400Es,
}

impl Timing {
    /// Every timing, slowest first.
    pub const ALL: [Self; 9] = [
        Self::Legacy,
        Self::HighSpeed,
        Self::Ddr52,
        Self::Ddr50,
        Self::Sdr50,
        Self::Sdr104,
        Self::Hs200,
        Self::Hs400,
        Self::Hs400Es,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::HighSpeed => "high-speed",
            Self::Ddr52 => "ddr52",
            Self::Ddr50 => "ddr50",
            Self::Sdr50 => "sdr50",
            Self::Sdr104 => "sdr104",
            Self::Hs200 => "hs200",
            Self::Hs400 => "hs400",
            Self::Hs400Es => "hs400es",
        }
    }

    /// The timing of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|timing| timing.name() == name)
    }

    /// The next slower one of the same kind of card.
    pub fn slower(self) -> Option<Self> {
        let mut slower = Self::ALL[..self as usize].iter().rev().copied();
        slower.find(|one| *one <= Self::HighSpeed || one.is_uhs() == self.is_uhs())
    }

    /// Whether it is one of UHS-I, which only SD cards have.
    pub const fn is_uhs(self) -> bool {
        matches!(self, Self::Ddr50 | Self::Sdr50 | Self::Sdr104)
    }

    /// Its clock, Hz.
    pub const fn clock(self) -> u32 {
        match self {
            Self::Legacy => 26_000_000,
            Self::HighSpeed | Self::Ddr52 => 52_000_000,
            Self::Ddr50 => 50_000_000,
            Self::Sdr50 => 100_000_000,
            Self::Sdr104 => 208_000_000,
            Self::Hs200 | Self::Hs400 | Self::Hs400Es => 200_000_000,
        }
    }

    /// Whether its sampling point is tuned.
    pub const fn is_tuned(self) -> bool {
        matches!(self, Self::Sdr104 | Self::Hs200 | Self::Hs400)
    }

    /// Whether data is on both edges.
    pub const fn is_ddr(self) -> bool {
        matches!(self, Self::Ddr52 | Self::Ddr50 | Self::Hs400 | Self::Hs400Es)
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What kind of card it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CardKind {
    /// An eMMC device.
    #[default]
    Emmc,
    /// An SD card.
    Sd,
}

/// What bring-up learnt about the card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardFacts {
    /// eMMC or SD.
    pub kind: CardKind,
    /// Its CID.
    pub cid: Cid,
    /// Its CSD.
    pub csd: Csd,
    /// EXT_CSD as it was after bring-up; all zeros for an SD card.
    pub ext_csd: ExtCsd,
    /// SCR of an SD card.
    pub scr: Scr,
    /// Access modes of an SD card, one bit each (CMD6, group 1).
    pub access_modes: u16,
    /// Whether the lines of an SD card are at 1.8 V.
    pub low_voltage: bool,
    /// Its relative address.
    pub rca: u16,
    /// Whether sectors are addressed, and not bytes.
    pub sector_addressed: bool,
    /// Sectors of the user area.
    pub sectors: u64,
    /// Its known deviations.
    pub quirks: CardQuirks,
    /// The bus: its timing, its data lines, its clock in Hz.
    pub timing: Timing,
    /// Data lines.
    pub lines: u8,
    /// Clock, Hz.
    pub clock: u32,
    /// Maximum number of tasks in the queueing engine; 0 without one.
    pub queue_depth: u8,
    /// Whether a volatile cache is on.
    pub cache: bool,
    /// The partition whose blocks the lanes read and write.
    pub partition: u8,
    /// Counts bring-ups.
    pub generation: u32,
}

impl CardFacts {
    /// Sectors of a partition; 0 if there is none.
    pub fn partition_sectors(&self, access: u8) -> u64 {
        match (self.kind, access) {
            (_, partition::USER) => self.sectors,
            (CardKind::Sd, _) => 0,
            (CardKind::Emmc, access) => self.ext_csd.partition_sectors(access),
        }
    }

    /// Bytes of a block of a disk on it: 512, or 4096 if it accepts only native sectors. Sectors
    /// are nevertheless counted in units of 512 bytes here.
    pub fn block_size(&self) -> u32 {
        self.ext_csd.data_sector_bytes()
    }

    /// Whether CMD23 works.
    pub fn has_block_count(&self) -> bool {
        let there = match self.kind {
            CardKind::Emmc => true,
            CardKind::Sd => self.scr.block_count,
        };
        there && !self.quirks.has(CardQuirk::NoBlockCount)
    }

    /// Whether writes can be made reliable: forced to the medium, whole or not at all.
    pub fn has_reliable_write(&self) -> bool {
        self.kind == CardKind::Emmc
            && self.has_block_count()
            && self.ext_csd.has_enhanced_reliable_write()
    }

    /// Whether sectors can be discarded: trim of eMMC, erase of SD.
    pub fn has_trim(&self) -> bool {
        match self.kind {
            CardKind::Emmc => self.ext_csd.has_trim() && !self.quirks.has(CardQuirk::NoTrim),
            // Class 5.
            CardKind::Sd => self.csd.classes & 1 << 5 != 0,
        }
    }

    /// Whether there is HPI, and whether CMD12 is the command for it.
    pub fn hpi(&self) -> Option<bool> {
        let usable = self.kind == CardKind::Emmc && !self.quirks.has(CardQuirk::NoHpi);
        self.ext_csd.hpi().filter(|_| usable)
    }
}
