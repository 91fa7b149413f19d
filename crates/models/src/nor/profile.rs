//! Commercial NOR chips. Times are typical values of the data sheets, rounded.

use flysch_api::flash::FlashGeometry;

/// Durations, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From address to first byte, command included.
    pub access_ns: u64,
    /// Every byte read.
    pub byte_ns: u64,
    /// A write buffer, or a page of a serial chip.
    pub program_ns: u64,
    /// Erase of a block.
    pub erase_ns: u64,
}

/// A chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Part number.
    pub name: &'static str,
    /// Manufacturer and device: the answer of a serial chip to 9Fh, of a parallel one in
    /// auto-select.
    pub id: &'static [u8],
    /// Size of an erase block.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of bytes programmed in one operation: write buffer or page.
    pub buffer_size: u32,
    /// Number of erases that a block withstands.
    pub endurance: u32,
    /// Times.
    pub timing: Timing,
}

/// The chips known by name.
pub const PROFILES: [Profile; 4] = [
    Profile {
        name: "S29GL128P",
        id: &[0x01, 0x7E, 0x21, 0x01],
        block_size: 128 << 10,
        blocks: 128,
        buffer_size: 64,
        endurance: 100_000,
        timing: Timing { access_ns: 110, byte_ns: 13, program_ns: 480_000, erase_ns: 500_000_000 },
    },
    Profile {
        name: "JS28F128P30",
        id: &[0x89, 0x18, 0x88],
        block_size: 128 << 10,
        blocks: 128,
        buffer_size: 64,
        endurance: 100_000,
        timing: Timing { access_ns: 85, byte_ns: 13, program_ns: 440_000, erase_ns: 800_000_000 },
    },
    Profile {
        name: "W25Q128FV",
        id: &[0xEF, 0x40, 0x18],
        block_size: 64 << 10,
        blocks: 256,
        buffer_size: 256,
        endurance: 100_000,
        timing: Timing { access_ns: 400, byte_ns: 20, program_ns: 700_000, erase_ns: 150_000_000 },
    },
    Profile {
        name: "N25Q128A",
        id: &[0x20, 0xBA, 0x18],
        block_size: 64 << 10,
        blocks: 256,
        buffer_size: 256,
        endurance: 100_000,
        timing: Timing { access_ns: 400, byte_ns: 19, program_ns: 500_000, erase_ns: 700_000_000 },
    },
];

impl Profile {
    /// The chip with that name, in upper or lower case.
    pub fn named(name: &str) -> Option<Self> {
        PROFILES.into_iter().find(|profile| profile.name.eq_ignore_ascii_case(name))
    }

    /// The same chip with fewer or more blocks.
    #[must_use]
    pub fn with_blocks(mut self, blocks: u32) -> Self {
        self.blocks = blocks;
        self
    }

    /// The same chip with smaller or larger blocks, for small worlds.
    #[must_use]
    pub fn with_block_size(mut self, bytes: u32) -> Self {
        self.block_size = bytes;
        self
    }

    /// Its shape.
    pub fn geometry(&self) -> FlashGeometry {
        FlashGeometry::nor(u64::from(self.block_size) * u64::from(self.blocks), self.block_size)
    }
}
