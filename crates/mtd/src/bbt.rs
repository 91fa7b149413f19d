//! The bad-block table: two bits per block, kept in the last good blocks of a chip so that the
//! marker of every block need not be read (Linux `nand_bbt.c`).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash::{Flash, FlashError, OobMode};

/// Number of blocks at the end of the chip in which a table is searched for.
const BLOCKS_SEARCHED: u32 = 4;
/// The patterns with which the blocks of the table and of its mirror start.
const PATTERNS: [[u8; 4]; 2] = [*b"Bbt0", *b"1tbB"];
/// Offsets of the pattern and the version in the out-of-band bytes.
const OOB_PATTERN_AT: usize = 8;
const OOB_VERSION_AT: usize = 12;
/// Bytes before the table if pattern and version are in the page itself.
const IN_BAND_LEN: usize = 5;

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Good.
    Good,
    /// Went bad in use.
    Worn,
    /// Reserved for the table itself.
    Reserved,
    /// Bad when the chip left the factory.
    Factory,
}

/// A bad-block table found on a flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlockTable {
    /// Block in which the table was found.
    pub block: u32,
    /// Version of the table; the higher version of table and mirror is valid.
    pub version: u8,
    /// Two bits per block, as stored: 11 good, 10 and 01 worn, 00 bad from the factory.
    bits: Vec<u8>,
    /// Blocks from here on hold tables; past the last block if no table is kept on the flash.
    first_reserved: u32,
    blocks: u32,
}

impl BadBlockTable {
    /// Searches the last blocks of `flash` for a table; returns the newer of table and mirror.
    ///
    /// # Errors
    /// If the flash cannot be read at all; a table with bit errors is only skipped.
    pub fn find<F: Flash>(flash: &F) -> Result<Option<Self>, FlashError> {
        let blocks = flash.geometry().blocks();
        let first_reserved = blocks.saturating_sub(BLOCKS_SEARCHED);
        let mut best: Option<Self> = None;
        for block in (first_reserved..blocks).rev() {
            if let Some(Header { version, offset, .. }) = header(flash, block)? {
                let mut bits = vec![0; blocks.div_ceil(4) as usize];
                let start = flash.geometry().block_start(block) + offset as u64;
                let newer = best.as_ref().is_none_or(|best| is_newer(version, best.version));
                if !newer {
                    continue;
                }
                match flash.read(start, &mut bits) {
                    Ok(_) => best = Some(Self { block, version, bits, first_reserved, blocks }),
                    Err(FlashError::OutOfRange | FlashError::Uncorrectable { .. }) => {}
                    // In an older table blocks are good that are not.
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(best)
    }

    /// Offsets of pattern and version in the out-of-band bytes.
    pub(crate) const OOB_PLACE: Range<usize> = OOB_PATTERN_AT..OOB_VERSION_AT + 1;

    /// A table of `blocks` good blocks, not kept on the flash.
    pub(crate) fn good(blocks: u32) -> Self {
        let bits = vec![0xFF; blocks.div_ceil(4) as usize];
        Self { block: 0, version: 0, bits, first_reserved: blocks, blocks }
    }

    /// Reserves the last blocks for the table.
    pub(crate) fn reserve(&mut self) {
        self.first_reserved = self.blocks.saturating_sub(BLOCKS_SEARCHED);
    }

    /// Whether the table is kept on the flash.
    pub fn is_kept(&self) -> bool {
        self.first_reserved < self.blocks
    }

    /// Marks `block` bad in the table. Bits are only cleared: bad stays bad.
    pub(crate) fn set(&mut self, block: u32, state: BlockState) {
        let mask = match state {
            BlockState::Good | BlockState::Reserved => 0,
            BlockState::Worn => 1,
            BlockState::Factory => 3,
        };
        if let Some(byte) = self.bits.get_mut(block as usize / 4) {
            *byte &= !(mask << (block % 4 * 2));
        }
    }

    /// The blocks to which the table and its mirror may be written, best first for each.
    pub(crate) fn homes<F: Flash>(&self, flash: &F) -> Result<[Vec<u32>; 2], FlashError> {
        let mut holds = vec![];
        for block in (self.first_reserved..self.blocks).rev() {
            let copy = header(flash, block)?.map(|header| header.copy);
            if self.state(block) == BlockState::Reserved {
                holds.push((block, copy));
            }
        }
        Ok([0, 1].map(|copy| {
            let mut blocks = holds.clone();
            blocks.sort_by_key(|(_, held)| match held {
                Some(held) if *held == copy => 0,
                None => 1,
                Some(_) => 2,
            });
            // The other copy must stay while this one is written.
            let own = blocks.iter().filter(|(_, held)| held.is_none_or(|held| held == copy));
            own.map(|(block, _)| *block).collect()
        }))
    }

    /// Pattern and version as stored; `copy` 0 is the table, 1 its mirror.
    pub(crate) fn header(&self, copy: usize) -> [u8; IN_BAND_LEN] {
        let [a, b, c, d] = PATTERNS[copy];
        [a, b, c, d, self.version]
    }

    /// The bytes of the block that holds the table.
    pub(crate) fn emit(&self, copy: usize, in_band: bool) -> Vec<u8> {
        let header = self.header(copy);
        let mut bytes = if in_band { header.to_vec() } else { vec![] };
        bytes.extend_from_slice(&self.bits);
        bytes
    }

    /// The state of `block` according to the table; a block not in the table is good.
    pub fn state(&self, block: u32) -> BlockState {
        let byte = self.bits.get(block as usize / 4).copied().unwrap_or(0xFF);
        match (byte >> (block % 4 * 2)) & 3 {
            0 => BlockState::Factory,
            3 if block >= self.first_reserved => BlockState::Reserved,
            3 => BlockState::Good,
            _ => BlockState::Worn,
        }
    }

    /// Whether `block` must not hold data: it is bad, or holds a table.
    pub fn is_bad(&self, block: u32) -> bool {
        self.state(block) != BlockState::Good
    }
}

/// Compares versions as serial numbers, because they wrap.
fn is_newer(version: u8, than: u8) -> bool {
    (version.wrapping_sub(than) as i8) > 0
}

/// Where a table was found in its block.
struct Header {
    /// 0 for the table, 1 for its mirror.
    copy: usize,
    version: u8,
    /// Bytes before the table.
    offset: usize,
}

/// The table header in `block`, if there is one.
fn header<F: Flash>(flash: &F, block: u32) -> Result<Option<Header>, FlashError> {
    let which = |pattern: &[u8]| PATTERNS.iter().position(|p| pattern == p);
    let start = flash.geometry().block_start(block);
    let mut oob = [0; OOB_VERSION_AT + 1];
    match flash.read_oob(start, OobMode::Place, &mut oob) {
        Ok(_) => {
            if let Some(copy) = which(&oob[OOB_PATTERN_AT..OOB_VERSION_AT]) {
                return Ok(Some(Header { copy, version: oob[OOB_VERSION_AT], offset: 0 }));
            }
        }
        Err(FlashError::OutOfRange | FlashError::Unsupported) => {}
        Err(other) => return Err(other),
    }
    let mut page = [0; IN_BAND_LEN];
    match flash.read(start, &mut page) {
        Ok(_) => {}
        Err(FlashError::OutOfRange | FlashError::Uncorrectable { .. }) => return Ok(None),
        Err(other) => return Err(other),
    }
    let header = |copy| Header { copy, version: page[4], offset: IN_BAND_LEN };
    Ok(which(&page[..4]).map(header))
}

#[cfg(test)]
mod tests {
    use flysch_api::flash::{Corrected, FlashGeometry};

    use super::*;

    const BLOCK: usize = 4096;

    /// Eight blocks; the system does not give what lies at this place.
    struct Refusing(Vec<u8>, FlashGeometry, u64);

    impl Flash for Refusing {
        fn geometry(&self) -> &FlashGeometry {
            &self.1
        }

        fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            if offset == self.2 { Err(FlashError::Os(5)) } else { Ok(Corrected::NONE) }
        }
    }

    #[test]
    fn an_older_table_does_not_stand_in_for_one_that_cannot_be_read_now() {
        let mut bytes = vec![0xFF; 8 * BLOCK];
        for (copy, version) in [2, 1].into_iter().enumerate() {
            let table = &mut bytes[(7 - copy) * BLOCK..];
            table[..4].copy_from_slice(&PATTERNS[copy]);
            table[4] = version;
        }
        let geometry = FlashGeometry::nand(8 * BLOCK as u64, BLOCK as u32, 512, 512);
        let newer = (7 * BLOCK + IN_BAND_LEN) as u64;
        let find = |refused| BadBlockTable::find(&Refusing(bytes.clone(), geometry, refused));
        assert_eq!(find(u64::MAX).map(|found| found.map(|it| it.version)), Ok(Some(2)));
        assert_eq!(find(newer), Err(FlashError::Os(5)));
    }
}
