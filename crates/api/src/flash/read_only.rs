//! The end of a device between a chip and its users.

use core::fmt;

use crate::count::counted;

/// Why the device of a volume accepts no changes any more, in the terms of UBI. This is final until
/// the device is attached again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnly {
    /// A block went bad and no block was left to replace it.
    PoolEmpty {
        /// The block. It is not marked bad, because it could not be replaced, unless it was marked
        /// before.
        block: u32,
        /// Blocks that are marked bad.
        bad: u32,
    },
    /// Writing failed in several blocks in a row, or no erased block is left.
    NoGoodBlock,
    /// The content of too many blocks cannot be read, even with error correction.
    Unreadable {
        /// Number of such blocks.
        blocks: u32,
    },
    /// A block has reached the maximum erase counter.
    WornOut {
        /// The block.
        block: u32,
    },
    /// The sequence numbers, by which the newest copy of a LEB is known, are used up.
    SequenceEnd {
        /// The last one.
        sequence: u64,
    },
    /// A block contradicts the fastmap, which was trusted.
    Fastmap {
        /// The block.
        block: u32,
    },
    /// An unknown internal volume requires it.
    Alien {
        /// A block of that volume.
        block: u32,
    },
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolEmpty { block, bad } => write!(
                f,
                "erase block {block} went bad, {bad} are bad already and no reserved block is \
                 left to replace it; copy the data to another chip"
            ),
            Self::NoGoodBlock => {
                f.write_str("no block could be written; copy the data to another chip")
            }
            Self::Unreadable { blocks } => write!(
                f,
                "{} cannot be read any more; copy what is readable to another chip",
                counted(*blocks, "block", "blocks")
            ),
            Self::WornOut { block } => {
                write!(f, "erase block {block} reached the largest erase counter")
            }
            Self::SequenceEnd { sequence } => {
                write!(
                    f,
                    "sequence number {sequence:#x} is the last one; copy the data to another chip"
                )
            }
            Self::Fastmap { block } => write!(
                f,
                "erase block {block} does not hold what the fastmap says; attach without the \
                 fastmap"
            ),
            Self::Alien { block } => write!(
                f,
                "erase block {block} belongs to an internal volume of a newer UBI, which asks \
                 that nothing be changed"
            ),
        }
    }
}

impl core::error::Error for ReadOnly {}
