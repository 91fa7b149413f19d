//! The superblock, and the areas computed from it.

use core::fmt;
use core::ops::Range;

use super::{
    BRANCH_SIZE, BranchFormat, FORMAT_VERSION, HASH_MAX, INDEX_NODE_SIZE, KeyHash, LEB_SIZE_MAX,
    LEB_SIZE_MIN, LEBS_MIN, LOG_LEB, NODE_ALIGNMENT, SUPERBLOCK_NODE_SIZE,
};
use crate::field::fields;

fields! {
    /// `struct ubifs_sb_node`, after the header.
    mod sb: Little[SUPERBLOCK_NODE_SIZE] {
        KEY_HASH: u8 = 26,
        KEY_FMT: u8 = 27,
        FLAGS: u32 = 28,
        MIN_IO_SIZE: u32 = 32,
        LEB_SIZE: u32 = 36,
        LEB_CNT: u32 = 40,
        MAX_LEB_CNT: u32 = 44,
        MAX_BUD_BYTES: u64 = 48,
        LOG_LEBS: u32 = 56,
        LPT_LEBS: u32 = 60,
        ORPH_LEBS: u32 = 64,
        JHEAD_CNT: u32 = 68,
        FANOUT: u32 = 72,
        LSAVE_CNT: u32 = 76,
        FMT_VERSION: u32 = 80,
        DEFAULT_COMPR: u16 = 84,
        RP_UID: u32 = 88,
        RP_GID: u32 = 92,
        RP_SIZE: u64 = 96,
        TIME_GRAN: u32 = 104,
        UUID: [u8; 16] = 108,
        RO_COMPAT_VERSION: u32 = 124,
        HMAC: [u8; 64] = 128,
        HMAC_WKM: [u8; 64] = 192,
        HASH_ALGO: u16 = 256,
        HASH_MST: [u8; 64] = 258,
    }
}

/// Bytes of a superblock node that hold its HMAC.
pub const SUPERBLOCK_HMAC: Range<usize> = sb::HMAC.range();

/// Minimum LEBs in the main area: index, data, garbage collection.
const MAIN_LEBS_MIN: u32 = 3;

/// Flags of the superblock (`UBIFS_FLG_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SuperblockFlags(pub u32);

impl SuperblockFlags {
    /// The LEB properties tree uses the big model.
    pub const BIG_LPT: Self = Self(2);
    /// Free space must be rewritten at the first mount.
    pub const SPACE_FIXUP: Self = Self(4);
    /// Entries carry cookies (format version 5).
    pub const DOUBLE_HASH: Self = Self(8);
    /// Encryption is in use.
    pub const ENCRYPTION: Self = Self(0x10);
    /// The file system is authenticated.
    pub const AUTHENTICATION: Self = Self(0x20);
    /// All defined flags.
    pub const KNOWN: Self = Self(0x3e);

    /// Whether every flag of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The parameters with which the file system was created (`ubifs_sb_node`).
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
    /// Bytes per LEB.
    pub leb_size: u32,
    /// LEBs in use.
    pub leb_count: u32,
    /// LEBs it may grow to.
    pub leb_count_max: u32,
    /// Maximum bytes in the journal.
    pub bud_bytes_max: u64,
    /// LEBs of the log.
    pub log_lebs: u32,
    /// LEBs of the LEB properties tree.
    pub lpt_lebs: u32,
    /// LEBs of the orphan area.
    pub orphan_lebs: u32,
    /// Journal heads of the data kind; 1.
    pub journal_heads: u32,
    /// Maximum branches of an index node.
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
    /// Size of the reserved pool, bytes.
    pub reserved_size: u64,
    /// Granularity of times, nanoseconds.
    pub time_granularity: u32,
    /// Unique id.
    pub uuid: [u8; 16],
    /// Read-only compatibility: implementations of this version and later can read a newer format.
    pub ro_compat_version: u32,
    /// HMAC of this node.
    pub hmac: [u8; HASH_MAX],
    /// HMAC of a well-known message, which identifies the key.
    pub hmac_wkm: [u8; HASH_MAX],
    /// Hash algorithm (Linux's number); 0xFFFF or 0 without authentication.
    pub hash_algorithm: u16,
    /// Hash of the master node, in signed images.
    pub master_hash: [u8; HASH_MAX],
}

impl Superblock {
    pub(super) fn decode(node: &[u8]) -> Self {
        Self {
            key_hash: sb::KEY_HASH.get(node),
            key_format: sb::KEY_FMT.get(node),
            flags: SuperblockFlags(sb::FLAGS.get(node)),
            min_io_size: sb::MIN_IO_SIZE.get(node),
            leb_size: sb::LEB_SIZE.get(node),
            leb_count: sb::LEB_CNT.get(node),
            leb_count_max: sb::MAX_LEB_CNT.get(node),
            bud_bytes_max: sb::MAX_BUD_BYTES.get(node),
            log_lebs: sb::LOG_LEBS.get(node),
            lpt_lebs: sb::LPT_LEBS.get(node),
            orphan_lebs: sb::ORPH_LEBS.get(node),
            journal_heads: sb::JHEAD_CNT.get(node),
            fanout: sb::FANOUT.get(node),
            lsave_count: sb::LSAVE_CNT.get(node),
            format_version: sb::FMT_VERSION.get(node),
            default_compression: sb::DEFAULT_COMPR.get(node),
            reserved_owner: sb::RP_UID.get(node),
            reserved_group: sb::RP_GID.get(node),
            reserved_size: sb::RP_SIZE.get(node),
            time_granularity: sb::TIME_GRAN.get(node),
            uuid: sb::UUID.get(node),
            ro_compat_version: sb::RO_COMPAT_VERSION.get(node),
            hmac: sb::HMAC.get(node),
            hmac_wkm: sb::HMAC_WKM.get(node),
            hash_algorithm: sb::HASH_ALGO.get(node),
            master_hash: sb::HASH_MST.get(node),
        }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        sb::KEY_HASH.put(out, self.key_hash);
        sb::KEY_FMT.put(out, self.key_format);
        sb::FLAGS.put(out, self.flags.0);
        sb::MIN_IO_SIZE.put(out, self.min_io_size);
        sb::LEB_SIZE.put(out, self.leb_size);
        sb::LEB_CNT.put(out, self.leb_count);
        sb::MAX_LEB_CNT.put(out, self.leb_count_max);
        sb::MAX_BUD_BYTES.put(out, self.bud_bytes_max);
        sb::LOG_LEBS.put(out, self.log_lebs);
        sb::LPT_LEBS.put(out, self.lpt_lebs);
        sb::ORPH_LEBS.put(out, self.orphan_lebs);
        sb::JHEAD_CNT.put(out, self.journal_heads);
        sb::FANOUT.put(out, self.fanout);
        sb::LSAVE_CNT.put(out, self.lsave_count);
        sb::FMT_VERSION.put(out, self.format_version);
        sb::DEFAULT_COMPR.put(out, self.default_compression);
        sb::RP_UID.put(out, self.reserved_owner);
        sb::RP_GID.put(out, self.reserved_group);
        sb::RP_SIZE.put(out, self.reserved_size);
        sb::TIME_GRAN.put(out, self.time_granularity);
        sb::UUID.put(out, self.uuid);
        sb::RO_COMPAT_VERSION.put(out, self.ro_compat_version);
        sb::HMAC.put(out, self.hmac);
        sb::HMAC_WKM.put(out, self.hmac_wkm);
        sb::HASH_ALGO.put(out, self.hash_algorithm);
        sb::HASH_MST.put(out, self.master_hash);
    }

    /// The hash of names, if it is a defined one.
    pub fn key_hash(&self) -> Option<KeyHash> {
        KeyHash::from_code(self.key_hash)
    }

    /// The format of branches.
    pub fn branch_format(&self) -> BranchFormat {
        let hash_len = if self.flags.contains(SuperblockFlags::AUTHENTICATION) {
            hash_len(self.hash_algorithm)
        } else {
            0
        };
        BranchFormat { hash_len }
    }

    /// Maximum bytes of an index node.
    pub fn index_node_max(&self) -> usize {
        INDEX_NODE_SIZE + self.fanout as usize * self.branch_format().branch_size()
    }

    /// Checks the fields against each other and computes the areas.
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
        // An image from mkfs.ubifs is as short as possible and grows when first mounted. The
        // minimum size therefore applies to the size to which it may grow.
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
        // The log must hold a reference to each LEB of the journal, at least those of one commit.
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

/// Bytes in a hash by Linux's number for the algorithm (`enum hash_algo`); 0 if unknown.
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

/// The LEBs of each area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes per LEB.
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
    /// Its value.
    pub value: u64,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "superblock field {} has the impossible value {}", self.field, self.value)
    }
}

impl core::error::Error for LayoutError {}
