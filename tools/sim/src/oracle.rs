//! The answers that a block device may and may not give.
//!
//! Every write gives its blocks a version of their own and fills each 512-byte sector with a stamp
//! (block, version, check). A sector read back identifies the version it came from; the oracle
//! knows which versions are possible:
//!
//! - without a power loss since, only the version written last, if its write succeeded;
//! - a write that failed, or was in flight, may or may not have happened, sector by sector;
//! - a power loss may undo everything newer than the last version that a completed flush or a
//!   forced write made durable, sector by sector - and nothing older.

use std::collections::BTreeSet;
use std::fmt;

/// Unit of stamping, bytes: the granularity at which a device may tear a block.
pub const SECTOR: usize = 512;

/// The number of a write; 0 means "never written".
type Version = u32;

/// A sector with impossible content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    block: u64,
    sector: usize,
    found: Option<Version>,
    durable: Version,
    possible: Vec<Version>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} sector {}: ", self.block, self.sector)?;
        match self.found {
            Some(version) => write!(f, "version {version}")?,
            None => f.write_str("no valid stamp")?,
        }
        write!(f, ", durable is {}, possible are {:?}", self.durable, self.possible)
    }
}

/// What is known of one block.
#[derive(Clone, Debug, Default)]
struct Block {
    /// On the medium for certain, unless something newer is.
    durable: Version,
    /// Begun since `durable`, oldest first: what may be found after a power loss.
    younger: Vec<Version>,
    /// Everything that the block may contain; always includes the newest.
    possible: BTreeSet<Version>,
}

impl Block {
    fn make_durable(&mut self, version: Version) {
        self.durable = self.durable.max(version);
        self.younger.retain(|&younger| younger > version);
    }
}

/// The versions of every block of a device.
#[derive(Debug)]
pub struct Oracle {
    seed: u32,
    block_size: usize,
    blocks: Vec<Block>,
    /// Versions whose content is zeros: the fresh device and deletions.
    zeros: BTreeSet<Version>,
    next: Version,
}

impl Oracle {
    /// An unwritten device: every block reads as zeros.
    pub fn new(seed: u32, blocks: u64, block_size: u32) -> Self {
        let fresh = Block { possible: BTreeSet::from([0]), ..Block::default() };
        let blocks = vec![fresh; usize::try_from(blocks).expect("too many blocks for a test")];
        let zeros = BTreeSet::from([0]);
        Self { seed, block_size: block_size as usize, blocks, zeros, next: 1 }
    }

    /// A write to these blocks is about to be issued: fills `data`, returns its version.
    pub fn begin_write(&mut self, first: u64, data: &mut [u8]) -> Version {
        let version = self.next;
        self.next += 1;
        for (block, bytes) in (first..).zip(data.chunks_exact_mut(self.block_size)) {
            let known = &mut self.blocks[block as usize];
            known.possible.insert(version);
            known.younger.push(version);
            for (sector, bytes) in bytes.chunks_exact_mut(SECTOR).enumerate() {
                self.stamp(block, sector, version, bytes);
            }
        }
        version
    }

    /// A deletion of `count` blocks is about to be issued; returns its version. A deletion ends as
    /// a write does: the device promises that deleted blocks read as zeros.
    pub fn begin_delete(&mut self, first: u64, count: u64) -> Version {
        let version = self.next;
        self.next += 1;
        self.zeros.insert(version);
        for known in &mut self.blocks[first as usize..(first + count) as usize] {
            known.possible.insert(version);
            known.younger.push(version);
        }
        version
    }

    /// The write of `count` blocks has ended; nobody else wrote them meanwhile.
    pub fn end_write(&mut self, first: u64, count: u64, version: Version, end: WriteEnd) {
        for block in &mut self.blocks[first as usize..(first + count) as usize] {
            if end != WriteEnd::Unknown {
                block.possible = BTreeSet::from([version]);
            }
            if end == WriteEnd::Durable {
                block.make_durable(version);
            }
        }
    }

    /// The current versions of the blocks, to be passed to [`flushed`](Self::flushed) when a flush
    /// that starts now has succeeded. Blocks whose newest write is not known to have succeeded are
    /// not included.
    pub fn before_flush(&self) -> Vec<(u64, Version)> {
        let settled = |block: &Block| match block.possible.len() {
            1 => block.possible.first().copied(),
            _ => None,
        };
        (0..).zip(&self.blocks).filter_map(|(at, block)| Some((at, settled(block)?))).collect()
    }

    /// A flush that began when `vouched` was taken has succeeded.
    pub fn flushed(&mut self, vouched: &[(u64, Version)]) {
        for &(at, version) in vouched {
            self.blocks[at as usize].make_durable(version);
        }
    }

    /// Power was lost: everything that was not durable may or may not be present.
    pub fn power_lost(&mut self) {
        for block in &mut self.blocks {
            block.possible.insert(block.durable);
            block.possible.extend(&block.younger);
        }
    }

    /// Checks what was read from the blocks starting at `first`.
    ///
    /// # Errors
    /// The first sector with an impossible content.
    pub fn check(&self, first: u64, data: &[u8]) -> Result<(), Wrong> {
        for (block, bytes) in (first..).zip(data.chunks_exact(self.block_size)) {
            let known = &self.blocks[block as usize];
            for (sector, bytes) in bytes.chunks_exact(SECTOR).enumerate() {
                let empty = bytes.iter().all(|&byte| byte == 0);
                let found = if empty { Some(0) } else { self.version_of(block, sector, bytes) };
                let fits = if empty {
                    !known.possible.is_disjoint(&self.zeros)
                } else {
                    found.is_some_and(|version| known.possible.contains(&version))
                };
                if !fits {
                    let possible = known.possible.iter().copied().collect();
                    return Err(Wrong { block, sector, found, durable: known.durable, possible });
                }
            }
        }
        Ok(())
    }

    fn stamp(&self, block: u64, sector: usize, version: Version, bytes: &mut [u8]) {
        let place = block * (self.block_size / SECTOR) as u64 + sector as u64;
        for (at, word) in bytes.chunks_exact_mut(16).enumerate() {
            word[..8].copy_from_slice(&place.to_le_bytes());
            word[8..12].copy_from_slice(&version.to_le_bytes());
            let check = (place as u32 ^ version ^ self.seed).wrapping_mul(0x9E37_79B9);
            word[12..].copy_from_slice(&check.wrapping_add(at as u32).to_le_bytes());
        }
    }

    fn version_of(&self, block: u64, sector: usize, bytes: &[u8]) -> Option<Version> {
        let version = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
        let mut expected = [0; SECTOR];
        self.stamp(block, sector, version, &mut expected);
        (bytes == expected).then_some(version)
    }
}

/// How a write ended, as far as its owner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// Reported done.
    Done,
    /// Reported done and forced to the medium.
    Durable,
    /// Reported failed, or power was lost while it ran: it may have happened.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn world() -> Oracle {
        Oracle::new(7, 4, BLOCK as u32)
    }

    #[test]
    fn only_the_last_write_may_be_read() {
        let mut oracle = world();
        let (mut old, mut new) = (vec![0; BLOCK], vec![0; BLOCK]);
        let first = oracle.begin_write(1, &mut old);
        oracle.end_write(1, 1, first, WriteEnd::Done);
        assert_eq!(oracle.check(1, &old), Ok(()));
        assert!(oracle.check(1, &vec![0; BLOCK]).is_err(), "lost");
        assert!(oracle.check(2, &old).is_err(), "misplaced");
        let second = oracle.begin_write(1, &mut new);
        assert_eq!(oracle.check(1, &old).and(oracle.check(1, &new)), Ok(()), "in flight");
        oracle.end_write(1, 1, second, WriteEnd::Done);
        assert!(oracle.check(1, &old).is_err(), "stale");
        new[100] ^= 1;
        assert!(oracle.check(1, &new).is_err(), "corrupt");
    }

    #[test]
    fn power_loss_takes_back_what_was_not_flushed_and_nothing_else() {
        let mut oracle = world();
        let mut flushed = vec![0; BLOCK];
        let version = oracle.begin_write(0, &mut flushed);
        oracle.end_write(0, 1, version, WriteEnd::Done);
        let vouched = oracle.before_flush();
        let mut late = vec![0; BLOCK];
        let version = oracle.begin_write(0, &mut late);
        oracle.end_write(0, 1, version, WriteEnd::Done);
        oracle.flushed(&vouched);
        oracle.power_lost();
        let mut torn = late.clone();
        torn[..SECTOR].copy_from_slice(&flushed[..SECTOR]);
        for possible in [&flushed, &late, &torn] {
            assert_eq!(oracle.check(0, possible), Ok(()));
        }
        assert!(oracle.check(0, &vec![0; BLOCK]).is_err(), "a flushed write is gone");
    }

    #[test]
    fn deleted_blocks_read_as_zeros_until_written() {
        let mut oracle = world();
        let mut data = vec![0; BLOCK];
        let version = oracle.begin_write(0, &mut data);
        oracle.end_write(0, 1, version, WriteEnd::Done);
        let version = oracle.begin_delete(0, 2);
        assert_eq!(oracle.check(0, &data).and(oracle.check(0, &vec![0; BLOCK])), Ok(()));
        oracle.end_write(0, 2, version, WriteEnd::Done);
        assert!(oracle.check(0, &data).is_err());
        let version = oracle.begin_write(0, &mut data);
        oracle.end_write(0, 1, version, WriteEnd::Done);
        assert!(oracle.check(0, &vec![0; BLOCK]).is_err());
    }

    #[test]
    fn a_forced_write_survives() {
        let mut oracle = world();
        let mut data = vec![0; BLOCK];
        let version = oracle.begin_write(3, &mut data);
        oracle.end_write(3, 1, version, WriteEnd::Durable);
        oracle.power_lost();
        assert_eq!(oracle.check(3, &data), Ok(()));
        assert!(oracle.check(3, &vec![0; BLOCK]).is_err());
    }
}
