//! The superblock, and the areas that follow from it.

use core::fmt;
use core::ops::Range;

use super::{
    BRANCH_SIZE, BranchFormat, FORMAT_VERSION, HASH_MAX, INDEX_NODE_SIZE, KeyHash, LEB_SIZE_MAX,
    LEB_SIZE_MIN, LEBS_MIN, LOG_LEB, NODE_ALIGNMENT,
};
use crate::bytes::{array, le16, le32, le64, put};

/// Fewest LEBs of the main area: index, data, garbage collection.
const MAIN_LEBS_MIN: u32 = 3;

/// Flags of the superblock (`UBIFS_FLG_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SuperblockFlags(pub u32);

impl SuperblockFlags {
    /// The LEB properties tree has the big model.
    pub const BIG_LPT: Self = Self(2);
    /// Free space must be rewritten at the first mount.
    pub const SPACE_FIXUP: Self = Self(4);
    /// Entries carry cookies (format version 5).
    pub const DOUBLE_HASH: Self = Self(8);
    /// Encryption was used.
    pub const ENCRYPTION: Self = Self(0x10);
    /// The file system is authenticated.
    pub const AUTHENTICATION: Self = Self(0x20);
    /// All that are defined.
    pub const KNOWN: Self = Self(0x3e);

    /// Whether every flag of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What the file system was made with (`ubifs_sb_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Code of the hash of names, see [`KeyHash`].
    pub key_hash: u8,
    /// Key format; 0 is the only one.
    pub key_format: u8,
    /// Flags.
    pub flags: SuperblockFlags,
    /// Smallest unit of writing, bytes.
    pub min_io_size: u32,
    /// Bytes of a LEB.
    pub leb_size: u32,
    /// LEBs in use.
    pub leb_count: u32,
    /// LEBs it may grow to.
    pub leb_count_max: u32,
    /// Most bytes in the journal.
    pub bud_bytes_max: u64,
    /// LEBs of the log.
    pub log_lebs: u32,
    /// LEBs of the LEB properties tree.
    pub lpt_lebs: u32,
    /// LEBs of the orphan area.
    pub orphan_lebs: u32,
    /// Journal heads of the data kind; 1.
    pub journal_heads: u32,
    /// Most branches of an index node.
    pub fanout: u32,
    /// Entries in the LEB properties tree's table of interesting LEBs.
    pub lsave_count: u32,
    /// Format version: 4 by mkfs.ubifs, 5 by the kernel.
    pub format_version: u32,
    /// Code of the default compression.
    pub default_compression: u16,
    /// Who may use the reserved pool: user.
    pub reserved_owner: u32,
    /// Who may use the reserved pool: group.
    pub reserved_group: u32,
    /// Bytes of the reserved pool.
    pub reserved_size: u64,
    /// Granularity of times, nanoseconds.
    pub time_granularity: u32,
    /// Unique id.
    pub uuid: [u8; 16],
    /// Newer read-write formats that can still be read by this version.
    pub ro_compat_version: u32,
    /// HMAC of this node.
    pub hmac: [u8; HASH_MAX],
    /// HMAC of a known message, to recognise the key.
    pub hmac_wkm: [u8; HASH_MAX],
    /// Hash algorithm (Linux's number); 0xFFFF or 0 without authentication.
    pub hash_algorithm: u16,
    /// Hash of the master node, in signed images.
    pub master_hash: [u8; HASH_MAX],
}

impl Superblock {
    pub(super) fn decode(node: &[u8]) -> Self {
        Self {
            key_hash: node[26],
            key_format: node[27],
            flags: SuperblockFlags(le32(node, 28)),
            min_io_size: le32(node, 32),
            leb_size: le32(node, 36),
            leb_count: le32(node, 40),
            leb_count_max: le32(node, 44),
            bud_bytes_max: le64(node, 48),
            log_lebs: le32(node, 56),
            lpt_lebs: le32(node, 60),
            orphan_lebs: le32(node, 64),
            journal_heads: le32(node, 68),
            fanout: le32(node, 72),
            lsave_count: le32(node, 76),
            format_version: le32(node, 80),
            default_compression: le16(node, 84),
            reserved_owner: le32(node, 88),
            reserved_group: le32(node, 92),
            reserved_size: le64(node, 96),
            time_granularity: le32(node, 104),
            uuid: array(node, 108),
            ro_compat_version: le32(node, 124),
            hmac: array(node, 128),
            hmac_wkm: array(node, 192),
            hash_algorithm: le16(node, 256),
            master_hash: array(node, 258),
        }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        out[26] = self.key_hash;
        out[27] = self.key_format;
        put(out, 28, self.flags.0.to_le_bytes());
        put(out, 32, self.min_io_size.to_le_bytes());
        put(out, 36, self.leb_size.to_le_bytes());
        put(out, 40, self.leb_count.to_le_bytes());
        put(out, 44, self.leb_count_max.to_le_bytes());
        put(out, 48, self.bud_bytes_max.to_le_bytes());
        put(out, 56, self.log_lebs.to_le_bytes());
        put(out, 60, self.lpt_lebs.to_le_bytes());
        put(out, 64, self.orphan_lebs.to_le_bytes());
        put(out, 68, self.journal_heads.to_le_bytes());
        put(out, 72, self.fanout.to_le_bytes());
        put(out, 76, self.lsave_count.to_le_bytes());
        put(out, 80, self.format_version.to_le_bytes());
        put(out, 84, self.default_compression.to_le_bytes());
        put(out, 88, self.reserved_owner.to_le_bytes());
        put(out, 92, self.reserved_group.to_le_bytes());
        put(out, 96, self.reserved_size.to_le_bytes());
        put(out, 104, self.time_granularity.to_le_bytes());
        put(out, 108, self.uuid);
        put(out, 124, self.ro_compat_version.to_le_bytes());
        put(out, 128, self.hmac);
        put(out, 192, self.hmac_wkm);
        put(out, 256, self.hash_algorithm.to_le_bytes());
        put(out, 258, self.master_hash);
    }

    /// The hash of names, if it is one that is defined.
    pub fn key_hash(&self) -> Option<KeyHash> {
        KeyHash::from_code(self.key_hash)
    }

    /// How branches are stored.
    pub fn branch_format(&self) -> BranchFormat {
        let hash_len = if self.flags.contains(SuperblockFlags::AUTHENTICATION) {
            hash_len(self.hash_algorithm)
        } else {
            0
        };
        BranchFormat { hash_len }
    }

    /// Most bytes of an index node.
    pub fn index_node_max(&self) -> usize {
        INDEX_NODE_SIZE + self.fanout as usize * self.branch_format().branch_size()
    }

    /// Checks every field against the others and computes the areas.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        self.check_shape()?;
        self.check_areas()?;
        let log = LOG_LEB..LOG_LEB + self.log_lebs;
        let lpt = log.end..log.end + self.lpt_lebs;
        let orphans = lpt.end..lpt.end + self.orphan_lebs;
        let main = orphans.end..self.leb_count;
        Ok(Layout { leb_size: self.leb_size, log, lpt, orphans, main })
    }

    fn check_shape(&self) -> Result<(), LayoutError> {
        let refuse = |field, value| Err(LayoutError { field, value: u64::from(value) });
        let too_new = self.format_version > FORMAT_VERSION && self.ro_compat_version > 0;
        if self.format_version < 3 || too_new {
            return refuse("fmt_version", self.format_version);
        }
        if self.key_hash().is_none() {
            return refuse("key_hash", self.key_hash.into());
        }
        if self.key_format != 0 {
            return refuse("key_fmt", self.key_format.into());
        }
        if !self.min_io_size.is_power_of_two() || self.min_io_size < NODE_ALIGNMENT {
            return refuse("min_io_size", self.min_io_size);
        }
        let leb_size = self.leb_size;
        if !(LEB_SIZE_MIN..=LEB_SIZE_MAX).contains(&leb_size)
            || !leb_size.is_multiple_of(NODE_ALIGNMENT)
        {
            return refuse("leb_size", leb_size);
        }
        if !leb_size.is_multiple_of(self.min_io_size) {
            return refuse("min_io_size", self.min_io_size);
        }
        let room = (leb_size as usize - INDEX_NODE_SIZE) / (BRANCH_SIZE + HASH_MAX);
        if self.fanout < 3 || self.fanout as usize > room {
            return refuse("fanout", self.fanout);
        }
        Ok(())
    }

    fn check_areas(&self) -> Result<(), LayoutError> {
        let refuse = |field, value| Err(LayoutError { field, value: u64::from(value) });
        // An image from mkfs.ubifs is as short as can be and grows when first mounted: what the
        // file system needs, its maximum must offer.
        if !(LEBS_MIN..=i32::MAX as u32).contains(&self.leb_count_max) {
            return refuse("max_leb_cnt", self.leb_count_max);
        }
        if self.leb_count < LOG_LEB + MAIN_LEBS_MIN || self.leb_count > self.leb_count_max {
            return refuse("leb_cnt", self.leb_count);
        }
        let parts = [
            ("log_lebs", self.log_lebs, 2),
            ("lpt_lebs", self.lpt_lebs, 2),
            ("orph_lebs", self.orphan_lebs, 1),
        ];
        let mut left = self.leb_count - LOG_LEB - MAIN_LEBS_MIN;
        for (field, value, least) in parts {
            if value < least || value > left {
                return refuse(field, value);
            }
            left -= value;
        }
        let leb_size = u64::from(self.leb_size);
        let bud_bytes = self.bud_bytes_max;
        let journal_room = leb_size * u64::from(self.leb_count_max);
        if bud_bytes < leb_size * 3 || bud_bytes > journal_room {
            return Err(LayoutError { field: "max_bud_bytes", value: bud_bytes });
        }
        // The log holds a reference to each journal LEB, one commit's worth at least.
        let references = bud_bytes.div_ceil(leb_size) * u64::from(self.min_io_size.max(64));
        if u64::from(self.log_lebs) < references.div_ceil(leb_size) + 1 {
            return refuse("log_lebs", self.log_lebs);
        }
        if !(1..=1).contains(&self.journal_heads) {
            return refuse("jhead_cnt", self.journal_heads);
        }
        if self.lsave_count > 1 << 16 {
            return refuse("lsave_cnt", self.lsave_count);
        }
        if !(1..=1_000_000_000).contains(&self.time_granularity) {
            return refuse("time_gran", self.time_granularity);
        }
        Ok(())
    }
}

/// Bytes of a hash by Linux's number of the algorithm (`enum hash_algo`); 0 if unknown.
fn hash_len(algorithm: u16) -> u8 {
    match algorithm {
        0 | 1 | 8 | 14 => 16,   // MD4, MD5, RIPEMD-128, Tiger-128
        2 | 3 | 15 => 20,       // SHA-1, RIPEMD-160, Tiger-160
        16 => 24,               // Tiger-192
        7 => 28,                // SHA-224
        4 | 20 => 32,           // SHA-256, SHA3-256
        9 | 11 | 17 | 18 => 32, // RIPEMD-256, Whirlpool-256, SM3, Streebog-256
        10 => 40,               // RIPEMD-320
        5 | 12 | 21 => 48,      // SHA-384, Whirlpool-384, SHA3-384
        6 | 13 | 19 | 22 => 64, // SHA-512, Whirlpool-512, Streebog-512, SHA3-512
        _ => 0,
    }
}

/// Which LEBs hold what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a LEB.
    pub leb_size: u32,
    /// The log.
    pub log: Range<u32>,
    /// The LEB properties tree.
    pub lpt: Range<u32>,
    /// Orphans.
    pub orphans: Range<u32>,
    /// Index, inodes, data, names.
    pub main: Range<u32>,
}

impl Layout {
    /// Whether a node of `length` bytes may lie here.
    pub fn holds(&self, area: &Range<u32>, lnum: u32, offset: u32, length: u32) -> bool {
        area.contains(&lnum)
            && offset.is_multiple_of(NODE_ALIGNMENT)
            && offset.checked_add(length).is_some_and(|end| end <= self.leb_size)
    }
}

/// The superblock contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutError {
    /// The field, by its name in the format.
    pub field: &'static str,
    /// What it holds.
    pub value: u64,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "superblock field {} has the impossible value {}", self.field, self.value)
    }
}

impl core::error::Error for LayoutError {}
