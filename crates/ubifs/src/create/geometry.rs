//! The sizes of the areas of a new file system.

use flysch_wire::ubifs::lpt::LptFormat;
use flysch_wire::ubifs::{
    BLOCK_SIZE, BRANCH_SIZE, COMMIT_START_NODE_SIZE, Compression, DATA_NODE_SIZE, ENTRY_NODE_SIZE,
    HASH_MAX, INDEX_NODE_SIZE, INLINE_DATA_MAX, INODE_NODE_SIZE, KeyHash, LEB_SIZE_MAX,
    LEB_SIZE_MIN, LEBS_MIN, LOG_LEB, NODE_ALIGNMENT, REFERENCE_NODE_SIZE, Superblock,
    SuperblockFlags,
};

use super::error::OptionsError;
use crate::auth::HashAlgorithm;

/// Fewest LEBs of each area.
const LOG_LEBS_MIN: u32 = 2;
const LPT_LEBS_MIN: u32 = 2;
const ORPHAN_LEBS_MIN: u32 = 1;
/// LEBs of superblock and master node.
const FIXED_LEBS: u32 = LOG_LEB;
/// One each for index, data, garbage collection, and writing.
const MAIN_LEBS_MIN: u32 = 4;
/// Entries of the table of interesting LEBs.
const LSAVE_COUNT: u32 = 256;
/// Default journal: an eighth of the main area, at least 4 LEBs, at most 8 MiB.
const JOURNAL_SHARE: u32 = 8;
const JOURNAL_LEBS_MIN: u64 = 4;
const JOURNAL_MAX: u64 = 8 << 20;
/// Log LEBs beyond the required ones.
const LOG_LEBS_SPARE: u32 = 2;
/// The area of the LEB properties tree is this many times the size of the tree.
const LPT_ROOM: u64 = 4;

/// The parameters of a new file system. Sizes and defaults are those of mkfs.ubifs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Smallest write unit, bytes (`-m`); values below 8 count as 8.
    pub min_io_size: u32,
    /// LEB size, bytes (`-e`): 15 KiB to 2 MiB.
    pub leb_size: u32,
    /// LEBs the file system may grow to (`-c`).
    pub leb_count_max: u32,
    /// Bytes of the journal (`-j`).
    pub journal_size: Option<u64>,
    /// LEBs of the log (`-l`).
    pub log_lebs: Option<u32>,
    /// LEBs of the orphan area (`-p`).
    pub orphan_lebs: u32,
    /// Bytes that only the super-user may fill (`-R`).
    pub reserved_size: u64,
    /// Most branches of an index node (`-f`).
    pub fanout: u32,
    /// How names become keys (`-k`).
    pub key_hash: KeyHash,
    /// How Linux compresses what it writes later (`-x`).
    pub compression: Compression,
    /// The first mount erases free space again (`-F`), for flashers that write pages of 0xFF.
    pub space_fixup: bool,
    /// Names carry cookies, as in file systems made by Linux: format version 5 instead of 4.
    pub double_hash: bool,
    /// Hash algorithm for nodes. What vouches for the hashes is an HMAC
    /// ([`UbifsBuilder::authenticated`](super::UbifsBuilder::authenticated)) or a signature
    /// ([`UbifsBuilder::signed`](super::UbifsBuilder::signed)). Implies format version 5, with
    /// cookies.
    pub authentication: Option<HashAlgorithm>,
    /// Unique id; derived from the content if `None`.
    pub uuid: Option<[u8; 16]>,
}

impl CreateOptions {
    /// A file system on LEBs of this size that may grow to `leb_count_max` LEBs.
    pub fn new(min_io_size: u32, leb_size: u32, leb_count_max: u32) -> Self {
        Self {
            min_io_size,
            leb_size,
            leb_count_max,
            journal_size: None,
            log_lebs: None,
            orphan_lebs: ORPHAN_LEBS_MIN,
            reserved_size: 0,
            fanout: 8,
            key_hash: KeyHash::R5,
            compression: Compression::Lzo,
            space_fixup: false,
            double_hash: false,
            authentication: None,
            uuid: None,
        }
    }

    /// The superblock of a file system with `leb_count` LEBs. Whether that is enough for the areas
    /// is not checked; the caller may not know the count yet.
    ///
    /// # Errors
    /// The options contradict each other or the format; the error names the option, its value and
    /// the bound.
    pub fn superblock(&self, leb_count: u32) -> Result<Superblock, OptionsError> {
        let options = Self { min_io_size: self.min_io_size.max(8), ..*self };
        options.check_shape()?;
        let (bud_bytes_max, log_lebs) = options.journal()?;
        let mut superblock = Superblock {
            key_hash: self.key_hash.code(),
            key_format: 0,
            flags: options.flags(),
            min_io_size: options.min_io_size,
            leb_size: self.leb_size,
            leb_count,
            leb_count_max: self.leb_count_max,
            bud_bytes_max,
            log_lebs,
            lpt_lebs: LPT_LEBS_MIN,
            orphan_lebs: self.orphan_lebs,
            journal_heads: 1,
            fanout: self.fanout,
            lsave_count: LSAVE_COUNT,
            format_version: if self.is_new_format() { 5 } else { 4 },
            default_compression: self.compression.code(),
            reserved_owner: 0,
            reserved_group: 0,
            reserved_size: options.reserved(),
            time_granularity: 1_000_000_000,
            uuid: self.uuid.unwrap_or_default(),
            ro_compat_version: 0,
            hmac: [0; HASH_MAX],
            hmac_wkm: [0; HASH_MAX],
            hash_algorithm: match self.authentication {
                Some(algorithm) => algorithm.code(),
                None if self.is_new_format() => 0xffff,
                None => 0,
            },
            master_hash: [0; HASH_MAX],
        };
        size_lpt(&mut superblock)?;
        let needed = FIXED_LEBS + log_lebs + superblock.lpt_lebs + self.orphan_lebs + MAIN_LEBS_MIN;
        if needed > self.leb_count_max {
            return Err(OptionsError::Empty { needed, max: self.leb_count_max });
        }
        Ok(superblock)
    }

    /// Whether the format is that of file systems made by Linux.
    pub(super) fn is_new_format(&self) -> bool {
        self.double_hash || self.authentication.is_some()
    }

    fn branch_size(&self) -> usize {
        BRANCH_SIZE + self.authentication.map_or(0, HashAlgorithm::size)
    }

    fn flags(&self) -> SuperblockFlags {
        let mut flags = 0;
        if self.space_fixup {
            flags |= SuperblockFlags::SPACE_FIXUP.0;
        }
        if self.is_new_format() {
            flags |= SuperblockFlags::DOUBLE_HASH.0;
        }
        if self.authentication.is_some() {
            flags |= SuperblockFlags::AUTHENTICATION.0;
        }
        SuperblockFlags(flags)
    }

    fn check_shape(&self) -> Result<(), OptionsError> {
        let (unit, leb_size) = (self.min_io_size, self.leb_size);
        if !unit.is_power_of_two() {
            return Err(OptionsError::MinIo(unit));
        }
        if !(LEB_SIZE_MIN..=LEB_SIZE_MAX.min(2 << 20)).contains(&leb_size) {
            return Err(OptionsError::LebSize(leb_size));
        }
        if leb_size % unit != 0 {
            return Err(OptionsError::LebMultiple(leb_size, unit));
        }
        if !(LEBS_MIN..=i32::MAX as u32).contains(&self.leb_count_max) {
            return Err(OptionsError::LebsMax(self.leb_count_max, LEBS_MIN));
        }
        let fanout_max = (leb_size - INDEX_NODE_SIZE as u32) / (BRANCH_SIZE + HASH_MAX) as u32;
        if !(3..=fanout_max).contains(&self.fanout) {
            return Err(OptionsError::Fanout(self.fanout, fanout_max));
        }
        if self.orphan_lebs < ORPHAN_LEBS_MIN || self.orphan_lebs > self.leb_count_max / 2 {
            return Err(OptionsError::OrphanLebs(self.orphan_lebs, self.leb_count_max));
        }
        if self.reserved() >= u64::from(leb_size) * u64::from(self.leb_count_max) / 2 {
            return Err(OptionsError::Reserved(self.reserved_size));
        }
        Ok(())
    }

    /// Maximum bytes in the journal, and LEBs of the log.
    fn journal(&self) -> Result<(u64, u32), OptionsError> {
        let leb_size = u64::from(self.leb_size);
        let others =
            FIXED_LEBS + self.orphan_lebs + self.log_lebs.unwrap_or(LOG_LEBS_MIN) + LPT_LEBS_MIN;
        let main = self.leb_count_max.saturating_sub(others);
        let by_share = u64::from(main / JOURNAL_SHARE) * leb_size;
        let usual = by_share.min(JOURNAL_MAX).max(JOURNAL_LEBS_MIN * leb_size);
        let bytes = self.journal_size.unwrap_or(usual);
        let (shortest, longest) = (3 * leb_size, u64::from(main) * leb_size);
        if bytes < shortest || bytes > longest {
            return Err(OptionsError::Journal(bytes, shortest, longest));
        }
        let unit = u64::from(self.min_io_size);
        let reference = (REFERENCE_NODE_SIZE as u64).next_multiple_of(unit);
        let references = bytes.div_ceil(leb_size) * reference;
        let start = (COMMIT_START_NODE_SIZE + 3 * REFERENCE_NODE_SIZE) as u64;
        let least = (references + start.next_multiple_of(unit)).div_ceil(leb_size) as u32 + 1;
        let lebs = self.log_lebs.unwrap_or(least + LOG_LEBS_SPARE);
        let least = least.max(LOG_LEBS_MIN);
        if lebs < least || lebs > self.leb_count_max / 2 {
            return Err(OptionsError::Log(lebs, least));
        }
        Ok((bytes, lebs))
    }

    /// Bytes to reserve on the flash so that the user gets as many as asked for.
    fn reserved(&self) -> u64 {
        let index_node =
            INDEX_NODE_SIZE as u64 + u64::from(self.fanout) * self.branch_size() as u64;
        let half = if self.fanout > 3 { u64::from(self.fanout >> 1) } else { 2 };
        let block = u64::from(BLOCK_SIZE);
        let factor = DATA_NODE_SIZE as u64 + block + index_node * 3 / (half - 1);
        (u128::from(self.reserved_size) * u128::from(factor) / u128::from(block)) as u64
    }
}

/// Upper bound on the size of nodes, summed up before they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    nodes: u64,
    bytes: u64,
}

impl Needs {
    fn node(&mut self, length: usize) {
        self.nodes += 1;
        self.bytes += length.next_multiple_of(NODE_ALIGNMENT as usize) as u64;
    }

    /// Adds an inode with `data` bytes of inline data: the target of a link, or a device number.
    pub fn inode(&mut self, data: usize) {
        self.node(INODE_NODE_SIZE + data);
    }

    /// Adds a name of `name` bytes.
    pub fn entry(&mut self, name: usize) {
        self.node(ENTRY_NODE_SIZE + name + 1);
    }

    /// Adds an extended attribute with the lengths of its name and its value.
    pub fn xattr(&mut self, name: usize, value: usize) {
        self.entry(name);
        self.inode(value);
    }

    /// Adds the uncompressed blocks of a file of `size` bytes.
    pub fn content(&mut self, size: u64) {
        let block = u64::from(BLOCK_SIZE);
        self.nodes += size / block;
        self.bytes += size / block * (DATA_NODE_SIZE as u64 + block);
        if !size.is_multiple_of(block) {
            self.node(DATA_NODE_SIZE + (size % block) as usize);
        }
    }

    /// Sufficient LEBs for the main area, including the index and the LEB for garbage collection.
    pub fn main_lebs(&self, options: &CreateOptions) -> u64 {
        let leb_size = u64::from(options.leb_size);
        // The space lost at the end of a LEB is less than the length of the next node.
        let lost = (INODE_NODE_SIZE + INLINE_DATA_MAX) as u64;
        let data = self.bytes.div_ceil(leb_size.saturating_sub(lost).max(1));
        let index_node = (INDEX_NODE_SIZE + options.fanout as usize * options.branch_size())
            .next_multiple_of(NODE_ALIGNMENT as usize) as u64;
        let fanout = u64::from(options.fanout.max(2));
        let mut row = self.nodes;
        let mut nodes = 0;
        while row > 1 || nodes == 0 {
            row = row.div_ceil(fanout);
            nodes += row.max(1);
        }
        let index = (nodes * index_node).div_ceil(leb_size.saturating_sub(index_node).max(1));
        data + index + 1
    }
}

/// Chooses the model of the LEB properties tree and the size of its area, for a file system grown
/// to its maximum: the small model if the whole tree fits a LEB.
fn size_lpt(superblock: &mut Superblock) -> Result<(), OptionsError> {
    if tree_size(superblock)? > u64::from(superblock.leb_size) {
        superblock.flags.0 |= SuperblockFlags::BIG_LPT.0;
    }
    loop {
        let needed = tree_size(superblock)? * LPT_ROOM;
        let needed = needed.div_ceil(superblock.leb_size.into()) as u32;
        if needed <= superblock.lpt_lebs {
            return Ok(());
        }
        superblock.lpt_lebs = needed;
    }
}

/// Bytes of the tree, including the loss where a node does not fit the rest of a LEB.
fn tree_size(superblock: &Superblock) -> Result<u64, OptionsError> {
    let grown = Superblock { leb_count: superblock.leb_count_max, ..*superblock };
    let format = LptFormat::new(&grown)
        .map_err(|source| OptionsError::Grown { max: superblock.leb_count_max, source })?;
    let pnodes = u64::from(format.pnodes());
    let mut nnodes = 0;
    let mut row = pnodes;
    loop {
        row = row.div_ceil(4);
        nnodes += row;
        if row <= 1 {
            break;
        }
    }
    let size = pnodes * format.pnode_size as u64
        + nnodes * format.nnode_size as u64
        + (format.ltab_size + format.lsave_size) as u64;
    let lost = format.pnode_size.max(format.nnode_size) as u64;
    let leb_size = u64::from(format.leb_size);
    let mut total = size;
    let mut rest = size + lost;
    total += lost;
    while rest > leb_size {
        rest = rest + lost - leb_size;
        total += lost;
    }
    let unit = u64::from(superblock.min_io_size);
    Ok(total + rest.next_multiple_of(unit) - rest)
}
