//! The nodes' bodies.

use super::{
    BRANCH_SIZE, COMMIT_START_NODE_SIZE, DATA_NODE_SIZE, ENTRY_NODE_SIZE, Group, HASH_MAX,
    HEADER_SIZE, Header, INDEX_NODE_SIZE, INLINE_DATA_MAX, INODE_NODE_SIZE, Key, MASTER_NODE_SIZE,
    NAME_MAX, NodeError, NodeKind, ORPHAN_NODE_SIZE, PADDING_NODE_SIZE, REFERENCE_NODE_SIZE,
    SIGNATURE_NODE_SIZE, SUPERBLOCK_NODE_SIZE, Superblock, TRUNCATION_NODE_SIZE, codec,
};
use crate::bytes::le64;

/// How a block of content is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not compressed.
    None,
    /// LZO1X, no framing.
    Lzo,
    /// Deflate without zlib header, window of 2 KiB.
    Zlib,
    /// Zstandard, one frame.
    Zstd,
    /// Not defined.
    Unknown(u16),
}

impl Compression {
    /// The method in a `compr_type` field.
    pub fn from_code(code: u16) -> Self {
        match code {
            0 => Self::None,
            1 => Self::Lzo,
            2 => Self::Zlib,
            3 => Self::Zstd,
            other => Self::Unknown(other),
        }
    }

    /// The `compr_type` field.
    pub fn code(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Lzo => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
            Self::Unknown(code) => code,
        }
    }
}

/// Flags of an inode (`UBIFS_*_FL`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InodeFlags(pub u32);

impl InodeFlags {
    /// New content is compressed.
    pub const COMPRESS: Self = Self(1);
    /// Writes are synchronous.
    pub const SYNC: Self = Self(2);
    /// Nothing may be changed.
    pub const IMMUTABLE: Self = Self(4);
    /// Only appending is allowed.
    pub const APPEND: Self = Self(8);
    /// Directory changes are synchronous.
    pub const DIRSYNC: Self = Self(0x10);
    /// The inode holds the value of an extended attribute.
    pub const XATTR: Self = Self(0x20);
    /// Content or names are encrypted.
    pub const ENCRYPTED: Self = Self(0x40);

    /// Whether every flag of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Attributes of a file (`ubifs_ino_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeNode<'a> {
    /// Its key, which holds the inode number.
    pub key: Key,
    /// Sequence number when the file was created.
    pub creation_sequence: u64,
    /// Length of the content; for a directory, 160 and the sizes of its entry nodes.
    pub size: u64,
    /// Last read: seconds and nanoseconds.
    pub accessed: (u64, u32),
    /// Last change of attributes.
    pub changed: (u64, u32),
    /// Last change of content.
    pub modified: (u64, u32),
    /// Number of names; 0 deletes the inode.
    pub links: u32,
    /// User id.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// Type and permissions, `st_mode`.
    pub mode: u32,
    /// Flags.
    pub flags: InodeFlags,
    /// Extended attributes this file has.
    pub xattr_count: u32,
    /// Bytes of their nodes.
    pub xattr_size: u32,
    /// Bytes of their names.
    pub xattr_names: u32,
    /// How new content is compressed.
    pub compression: Compression,
    /// Symlink target, device number or extended attribute value.
    pub data: &'a [u8],
}

/// Bytes of one block of content (`ubifs_data_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Inode and block number.
    pub key: Key,
    /// Bytes when decompressed: 1 to 4096.
    pub size: u32,
    /// How it is compressed.
    pub compression: Compression,
    /// For encrypted files, the bytes before padding for the cipher; else 0.
    pub plain_size: u16,
    /// The stored bytes.
    pub data: &'a [u8],
}

/// The kind of names an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A directory's names.
    Directory,
    /// A file's extended attributes.
    Xattr,
}

/// A name (`ubifs_dent_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Directory entry or extended attribute entry.
    pub kind: EntryKind,
    /// Inode of the directory or host, and hash of the name.
    pub key: Key,
    /// The inode it names; 0 deletes the name.
    pub inode: u64,
    /// Kind of file (`UBIFS_ITYPE_*`): 0 regular, 1 directory, 2 symlink, 3 block device,
    /// 4 character device, 5 FIFO, 6 socket.
    pub file_type: u8,
    /// Random number that distinguishes names with the same hash (format version 5); else 0.
    pub cookie: u32,
    /// The name: 1 to 255 bytes; encrypted names may hold any byte.
    pub name: &'a [u8],
}

/// A file was truncated (`ubifs_trun_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Its inode number.
    pub inode: u32,
    /// Length before.
    pub old_size: u64,
    /// Length after.
    pub new_size: u64,
}

/// Flags of the master node (`UBIFS_MST_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MasterFlags(pub u32);

impl MasterFlags {
    /// Not unmounted cleanly.
    pub const DIRTY: Self = Self(1);
    /// The orphan area is empty.
    pub const NO_ORPHANS: Self = Self(2);
    /// Written by recovery.
    pub const RECOVERY: Self = Self(4);

    /// Whether every flag of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// State of the last commit (`ubifs_mst_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are the format's own names; the others are explained
pub struct Master {
    /// Highest inode number ever assigned.
    pub highest_inode: u64,
    /// Number of the commit.
    pub commit: u64,
    pub flags: MasterFlags,
    /// First LEB of the log.
    pub log_lnum: u32,
    /// Root of the index.
    pub root_lnum: u32,
    pub root_offs: u32,
    pub root_len: u32,
    /// LEB reserved for garbage collection; all ones if none.
    pub gc_lnum: u32,
    /// Where writing of the index stopped.
    pub ihead_lnum: u32,
    pub ihead_offs: u32,
    /// Bytes of all index nodes in use.
    pub index_size: u64,
    /// Sums over the main area, bytes.
    pub total_free: u64,
    pub total_dirty: u64,
    pub total_used: u64,
    pub total_dead: u64,
    pub total_dark: u64,
    /// Root of the LEB properties tree.
    pub lpt_lnum: u32,
    pub lpt_offs: u32,
    /// Where writing of that tree stopped.
    pub nhead_lnum: u32,
    pub nhead_offs: u32,
    /// Its own table of free and dirty space.
    pub ltab_lnum: u32,
    pub ltab_offs: u32,
    /// Its table of interesting LEBs (big model only).
    pub lsave_lnum: u32,
    pub lsave_offs: u32,
    /// Where the last scan for space stopped.
    pub lscan_lnum: u32,
    pub empty_lebs: u32,
    pub idx_lebs: u32,
    pub leb_cnt: u32,
    /// Authenticated file systems: hash of the root index node.
    pub root_hash: [u8; HASH_MAX],
    /// Authenticated file systems: hash of the LEB properties tree.
    pub lpt_hash: [u8; HASH_MAX],
    /// Authenticated file systems: HMAC of this node.
    pub hmac: [u8; HASH_MAX],
}

/// A LEB became part of the journal (`ubifs_ref_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which LEB.
    pub lnum: u32,
    /// First offset in it that belongs to the journal.
    pub offset: u32,
    /// Journal head: 0 garbage collection, 1 base, 2 data.
    pub head: u32,
}

/// Format of branches: with a hash after the key or without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BranchFormat {
    /// Bytes in the hash; 0 unless the file system is authenticated.
    pub hash_len: u8,
}

impl BranchFormat {
    /// Bytes in one branch.
    pub fn branch_size(self) -> usize {
        BRANCH_SIZE + usize::from(self.hash_len)
    }
}

/// The position of a node, according to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch<'a> {
    /// LEB.
    pub lnum: u32,
    /// Offset in it, bytes.
    pub offset: u32,
    /// Bytes in the node.
    pub length: u32,
    /// The node's key; for an index node, the smallest key below it.
    pub key: Key,
    /// Hash of the node; empty unless authenticated.
    pub hash: &'a [u8],
}

/// A node of the index (`ubifs_idx_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index<'a> {
    /// 0 if the branches lead to inodes, data and names, else to index nodes one level below.
    pub level: u16,
    pub(super) format: BranchFormat,
    pub(super) branches: &'a [u8],
}

impl<'a> Index<'a> {
    /// An index node with `branches`, which [`Branch::write`] filled.
    pub fn new(level: u16, format: BranchFormat, branches: &'a [u8]) -> Self {
        debug_assert_eq!(branches.len() % format.branch_size(), 0);
        Self { level, format, branches }
    }

    /// Number of branches.
    pub fn len(&self) -> usize {
        self.branches.len() / self.format.branch_size()
    }

    /// Whether there are none; true only for an empty root in a damaged image.
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// The branches in order.
    pub fn branches(&self) -> impl Iterator<Item = Branch<'a>> + use<'a> {
        let this = *self;
        (0..this.len()).map(move |at| this.branch(at))
    }
}

/// A commit started (`ubifs_cs_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStart {
    /// Its number.
    pub commit: u64,
}

/// Files without names that were still in use (`ubifs_orph_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphans<'a> {
    /// The commit in which it was written.
    pub commit: u64,
    /// Last orphan node of that commit.
    pub last: bool,
    pub(super) inodes: &'a [u8],
}

impl<'a> Orphans<'a> {
    /// An orphan node; `inodes` holds the numbers as 8 little endian bytes each.
    pub fn new(commit: u64, last: bool, inodes: &'a [u8]) -> Self {
        debug_assert_eq!(inodes.len() % 8, 0);
        Self { commit, last, inodes }
    }

    /// The inode numbers.
    pub fn inodes(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.inodes.chunks_exact(8).map(|bytes| le64(bytes, 0))
    }
}

/// Authenticates the preceding part of the journal (`ubifs_auth_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authentication<'a> {
    /// HMAC of the hash so far.
    pub hmac: &'a [u8],
}

/// Signs the superblock (`ubifs_sig_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature<'a> {
    /// 1: PKCS#7.
    pub kind: u32,
    /// The signature.
    pub signature: &'a [u8],
}

/// Any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each variant is the node of that name
#[allow(clippy::large_enum_variant)] // a Node lives on the stack for the length of a call
pub enum Node<'a> {
    Inode(InodeNode<'a>),
    Data(Data<'a>),
    Entry(DirectoryEntry<'a>),
    Truncation(Truncation),
    /// This many bytes of padding follow the node.
    Padding(u32),
    Superblock(Superblock),
    Master(Master),
    Reference(Reference),
    Index(Index<'a>),
    CommitStart(CommitStart),
    Orphans(Orphans<'a>),
    Authentication(Authentication<'a>),
    Signature(Signature<'a>),
}

impl<'a> Node<'a> {
    /// Reads a node and verifies its CRC and those fields that can be checked on their own.
    pub fn parse(bytes: &'a [u8], format: BranchFormat) -> Result<(Header, Self), NodeError> {
        let (header, node) = Header::check(bytes)?;
        Ok((header, Self::decode(header, node, format)?))
    }

    /// Reads the body of a node that [`Header::check`] verified.
    pub fn decode(header: Header, node: &'a [u8], format: BranchFormat) -> Result<Self, NodeError> {
        header.kind.check_length(header.length)?;
        Ok(match header.kind {
            NodeKind::Inode => Self::Inode(InodeNode::decode(node)?),
            NodeKind::Data => Self::Data(Data::decode(node)?),
            NodeKind::Entry => Self::Entry(DirectoryEntry::decode(node, EntryKind::Directory)?),
            NodeKind::XattrEntry => Self::Entry(DirectoryEntry::decode(node, EntryKind::Xattr)?),
            NodeKind::Truncation => Self::Truncation(Truncation::decode(node)),
            NodeKind::Padding => Self::Padding(codec::decode_padding(node)),
            NodeKind::Superblock => Self::Superblock(Superblock::decode(node)),
            NodeKind::Master => Self::Master(Master::decode(node)),
            NodeKind::Reference => Self::Reference(Reference::decode(node)),
            NodeKind::Index => Self::Index(Index::decode(node, format)?),
            NodeKind::CommitStart => Self::CommitStart(CommitStart::decode(node)),
            NodeKind::Orphans => Self::Orphans(Orphans::decode(node)?),
            NodeKind::Authentication => Self::Authentication(Authentication::decode(node)),
            NodeKind::Signature => Self::Signature(Signature::decode(node)?),
            NodeKind::Unknown(_) => return Err(NodeError::Kind(header.kind)),
        })
    }

    /// The type of the node.
    pub fn kind(&self) -> NodeKind {
        match self {
            Self::Inode(_) => NodeKind::Inode,
            Self::Data(_) => NodeKind::Data,
            Self::Entry(entry) => match entry.kind {
                EntryKind::Directory => NodeKind::Entry,
                EntryKind::Xattr => NodeKind::XattrEntry,
            },
            Self::Truncation(_) => NodeKind::Truncation,
            Self::Padding(_) => NodeKind::Padding,
            Self::Superblock(_) => NodeKind::Superblock,
            Self::Master(_) => NodeKind::Master,
            Self::Reference(_) => NodeKind::Reference,
            Self::Index(_) => NodeKind::Index,
            Self::CommitStart(_) => NodeKind::CommitStart,
            Self::Orphans(_) => NodeKind::Orphans,
            Self::Authentication(_) => NodeKind::Authentication,
            Self::Signature(_) => NodeKind::Signature,
        }
    }

    /// Bytes in the node, without alignment.
    pub fn size(&self) -> usize {
        match self {
            Self::Inode(node) => INODE_NODE_SIZE + node.data.len(),
            Self::Data(node) => DATA_NODE_SIZE + node.data.len(),
            Self::Entry(node) => ENTRY_NODE_SIZE + node.name.len() + 1,
            Self::Index(node) => INDEX_NODE_SIZE + node.branches.len(),
            Self::Orphans(node) => ORPHAN_NODE_SIZE + node.inodes.len(),
            Self::Authentication(node) => HEADER_SIZE + node.hmac.len(),
            Self::Signature(node) => SIGNATURE_NODE_SIZE + node.signature.len(),
            _ => lengths(self.kind()).0,
        }
    }

    /// Writes the node to the start of `out`, header and CRC included; returns its size.
    ///
    /// # Panics
    /// If `out` is shorter than [`size`](Self::size): the caller's mistake.
    pub fn emit(&self, sequence: u64, group: Group, out: &mut [u8]) -> usize {
        let out = &mut out[..self.size()];
        out.fill(0);
        match self {
            Self::Inode(node) => node.encode(out),
            Self::Data(node) => node.encode(out),
            Self::Entry(node) => node.encode(out),
            Self::Truncation(node) => node.encode(out),
            Self::Padding(length) => codec::encode_padding(*length, out),
            Self::Superblock(node) => node.encode(out),
            Self::Master(node) => node.encode(out),
            Self::Reference(node) => node.encode(out),
            Self::Index(node) => node.encode(out),
            Self::CommitStart(node) => node.encode(out),
            Self::Orphans(node) => node.encode(out),
            Self::Authentication(node) => node.encode(out),
            Self::Signature(node) => node.encode(out),
        }
        let length = out.len() as u32;
        Header { sequence, length, kind: self.kind(), group }.emit(out);
        out.len()
    }
}

impl NodeKind {
    /// Whether a node of this kind can have this length; Linux checks that before the CRC
    /// (`ubifs_check_node`). Unknown kinds may have any length.
    ///
    /// # Errors
    /// [`NodeError::Length`].
    pub fn check_length(self, length: u32) -> Result<(), NodeError> {
        let (least, most) = lengths(self);
        let fits = (least..=most).contains(&(length as usize));
        if fits { Ok(()) } else { Err(NodeError::Length(length)) }
    }
}

/// Minimum and maximum bytes of a node of this kind.
fn lengths(kind: NodeKind) -> (usize, usize) {
    let fixed = |size| (size, size);
    match kind {
        NodeKind::Inode => (INODE_NODE_SIZE, INODE_NODE_SIZE + INLINE_DATA_MAX),
        // A cipher may pad the block; no compressor is used if it would make it longer.
        NodeKind::Data => (DATA_NODE_SIZE + 1, DATA_NODE_SIZE + 2 * super::BLOCK_SIZE as usize),
        NodeKind::Entry | NodeKind::XattrEntry => {
            (ENTRY_NODE_SIZE + 1, ENTRY_NODE_SIZE + NAME_MAX + 1)
        }
        NodeKind::Truncation => fixed(TRUNCATION_NODE_SIZE),
        NodeKind::Padding => fixed(PADDING_NODE_SIZE),
        NodeKind::Superblock => fixed(SUPERBLOCK_NODE_SIZE),
        NodeKind::Master => fixed(MASTER_NODE_SIZE),
        NodeKind::Reference => fixed(REFERENCE_NODE_SIZE),
        NodeKind::Index => (INDEX_NODE_SIZE, usize::MAX),
        NodeKind::CommitStart => fixed(COMMIT_START_NODE_SIZE),
        NodeKind::Orphans => (ORPHAN_NODE_SIZE + 8, usize::MAX),
        NodeKind::Authentication => (HEADER_SIZE + 1, HEADER_SIZE + HASH_MAX),
        NodeKind::Signature => (SIGNATURE_NODE_SIZE, usize::MAX),
        NodeKind::Unknown(_) => (HEADER_SIZE, usize::MAX),
    }
}
