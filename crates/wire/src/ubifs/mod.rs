//! UBIFS: nodes, keys, the superblock, the index, the LEB properties tree.
//!
//! Everything is little endian. Field offsets and rules are facts from Linux's
//! `fs/ubifs/ubifs-media.h` and the code that checks them.
//!
//! A node is a run of bytes in a logical erase block (LEB), at a multiple of 8. It starts with a
//! [`Header`] that holds its length and CRC-32 (UBI's convention, [`crate::ubi::crc32`]). Only the
//! LEB properties tree ([`lpt`]) consists of bit-packed nodes with a CRC-16.

mod codec;
mod header;
mod key;
pub mod lpt;
mod node;
mod superblock;

#[cfg(test)]
mod tests;

pub use codec::MASTER_HMAC;
pub use header::{Group, Header, NodeError, NodeKind};
pub use key::{Key, KeyHash, KeyKind};
pub use node::{
    Authentication, Branch, BranchFormat, CommitStart, Compression, Data, DirectoryEntry,
    EntryKind, Index, InodeFlags, InodeNode, Master, MasterFlags, Node, Orphans, Reference,
    Signature, Truncation,
};
pub use superblock::{Layout, LayoutError, SUPERBLOCK_HMAC, Superblock, SuperblockFlags};

pub use crate::ubi::crc32;

/// First word of every node.
pub const NODE_MAGIC: u32 = 0x0610_1831;
/// Nodes start at multiples of this.
pub const NODE_ALIGNMENT: u32 = 8;
/// Bytes in one data node, except a file's last (`UBIFS_BLOCK_SIZE`).
pub const BLOCK_SIZE: u32 = 4096;
/// Fills gaps too short for a padding node (`UBIFS_PADDING_BYTE`).
pub const PADDING_BYTE: u8 = 0xce;
/// Bytes in the header of every node.
pub const HEADER_SIZE: usize = 24;
/// Bytes in an inode node without its data.
pub const INODE_NODE_SIZE: usize = 160;
/// Maximum bytes of inline data: symlink target, device number, extended attribute value.
pub const INLINE_DATA_MAX: usize = 4096;
/// Bytes in a data node without its data.
pub const DATA_NODE_SIZE: usize = 48;
/// Bytes in a directory entry node without its name and the NUL after it.
pub const ENTRY_NODE_SIZE: usize = 56;
/// Longest name, bytes.
pub const NAME_MAX: usize = 255;
/// Bytes in a truncation node.
pub const TRUNCATION_NODE_SIZE: usize = 56;
/// Bytes in a padding node; the padding follows it.
pub const PADDING_NODE_SIZE: usize = 28;
/// Bytes in a superblock node.
pub const SUPERBLOCK_NODE_SIZE: usize = 4096;
/// Bytes in a master node.
pub const MASTER_NODE_SIZE: usize = 512;
/// Bytes in a log reference node.
pub const REFERENCE_NODE_SIZE: usize = 64;
/// Bytes in an index node without its branches.
pub const INDEX_NODE_SIZE: usize = 28;
/// Bytes in a branch without its hash.
pub const BRANCH_SIZE: usize = 20;
/// Bytes in a commit start node.
pub const COMMIT_START_NODE_SIZE: usize = 32;
/// Bytes in an orphan node without its inode numbers.
pub const ORPHAN_NODE_SIZE: usize = 32;
/// The only kind of signature in a signature node: a PKCS#7 message.
pub const SIGNATURE_PKCS7: u32 = 1;
/// Bytes in a signature node without its signature.
pub const SIGNATURE_NODE_SIZE: usize = 64;
/// Longest hash an authenticated file system stores (`UBIFS_MAX_HASH_LEN`).
pub const HASH_MAX: usize = 64;
/// LEB of the superblock.
pub const SUPERBLOCK_LEB: u32 = 0;
/// First of the two LEBs of the master node.
pub const MASTER_LEB: u32 = 1;
/// First LEB of the log.
pub const LOG_LEB: u32 = 3;
/// The root directory's inode number.
pub const ROOT_INODE: u32 = 1;
/// First inode number of any other file.
pub const FIRST_INODE: u32 = 64;
/// Smallest LEB, bytes.
pub const LEB_SIZE_MIN: u32 = 15 * 1024;
/// Largest LEB, bytes; a bound of this implementation (mkfs.ubifs stops at 2 MiB).
pub const LEB_SIZE_MAX: u32 = 64 * 1024 * 1024;
/// Minimum LEBs of a mounted file system; an image that was never mounted may be shorter.
pub const LEBS_MIN: u32 = 17;
/// Newest format version this implementation writes and reads.
pub const FORMAT_VERSION: u32 = 5;
/// Children of an inner node of the LEB properties tree, and LEBs in a leaf.
pub const LPT_FANOUT: usize = 4;
/// Journal heads: garbage collection, base (inodes, entries, truncations), data.
pub const JOURNAL_HEADS: usize = 3;

/// Rounds up to the alignment of nodes.
pub const fn align8(length: u32) -> u32 {
    length.next_multiple_of(NODE_ALIGNMENT)
}
