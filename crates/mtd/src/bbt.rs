//! The bad-block table: two bits per block, kept in the last good blocks of a chip so that not
//! every block's marker must be read (Linux `nand_bbt.c`).

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Error, Flash, OobMode};

/// Blocks at the end of the chip in which a table is looked for.
const BLOCKS_SEARCHED: u32 = 4;
/// What the block of the table and of its mirror starts with.
const PATTERNS: [[u8; 4]; 2] = [*b"Bbt0", *b"1tbB"];
/// Where the pattern and the version stand in the out-of-band bytes.
const OOB_PATTERN_AT: usize = 8;
const OOB_VERSION_AT: usize = 12;
/// Bytes before the table when pattern and version stand in the page itself.
const IN_BAND_LEN: usize = 5;

/// Why a block is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// It is used.
    Good,
    /// It went bad in use.
    Worn,
    /// It is kept for the table itself.
    Reserved,
    /// It was bad when the chip left the factory.
    Factory,
}

/// A bad-block table found on a flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlockTable {
    /// Block the table was found in.
    pub block: u32,
    /// Version of the table; of the table and its mirror the higher one counts.
    pub version: u8,
    /// Two bits per block as they are stored: 11 good, 10 and 01 worn, 00 bad from the factory.
    bits: Vec<u8>,
    /// Blocks from here on hold tables.
    first_reserved: u32,
}

impl BadBlockTable {
    /// Looks for a table in the last blocks of `flash`; takes the newer of table and mirror.
    ///
    /// # Errors
    /// When the flash cannot be read at all; bit errors only make a table be passed over.
    pub fn find<F: Flash>(flash: &F) -> Result<Option<Self>, Error> {
        let blocks = flash.geometry().blocks();
        let first_reserved = blocks.saturating_sub(BLOCKS_SEARCHED);
        let mut best: Option<Self> = None;
        for block in (first_reserved..blocks).rev() {
            if let Some((version, offset)) = header(flash, block)? {
                let mut bits = vec![0; blocks.div_ceil(4) as usize];
                let start = flash.geometry().block_start(block) + offset as u64;
                let newer = best.as_ref().is_none_or(|best| is_newer(version, best.version));
                if newer && flash.read(start, &mut bits).is_ok() {
                    best = Some(Self { block, version, bits, first_reserved });
                }
            }
        }
        Ok(best)
    }

    /// What the table says of `block`; a block it does not know is good.
    pub fn state(&self, block: u32) -> BlockState {
        let byte = self.bits.get(block as usize / 4).copied().unwrap_or(0xFF);
        match (byte >> (block % 4 * 2)) & 3 {
            0 => BlockState::Factory,
            3 if block >= self.first_reserved => BlockState::Reserved,
            3 => BlockState::Good,
            _ => BlockState::Worn,
        }
    }

    /// Whether `block` may hold nothing: it is bad, or holds a table.
    pub fn is_bad(&self, block: u32) -> bool {
        self.state(block) != BlockState::Good
    }
}

/// Serial-number comparison: versions wrap.
fn is_newer(version: u8, than: u8) -> bool {
    (version.wrapping_sub(than) as i8) > 0
}

/// Version and table offset of the table in `block`, if there is one.
fn header<F: Flash>(flash: &F, block: u32) -> Result<Option<(u8, usize)>, Error> {
    let start = flash.geometry().block_start(block);
    let mut oob = [0; OOB_VERSION_AT + 1];
    match flash.read_oob(start, OobMode::Place, &mut oob) {
        Ok(_) if PATTERNS.iter().any(|p| oob[OOB_PATTERN_AT..OOB_VERSION_AT] == *p) => {
            return Ok(Some((oob[OOB_VERSION_AT], 0)));
        }
        Ok(_) | Err(Error::OutOfRange | Error::Unsupported) => {}
        Err(other) => return Err(other),
    }
    let mut page = [0; IN_BAND_LEN];
    match flash.read(start, &mut page) {
        Ok(_) => {}
        Err(Error::OutOfRange | Error::Uncorrectable { .. }) => return Ok(None),
        Err(other) => return Err(other),
    }
    let found = PATTERNS.iter().any(|p| page[..4] == *p);
    Ok(found.then_some((page[4], IN_BAND_LEN)))
}
