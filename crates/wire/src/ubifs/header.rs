//! The header of every node (`ubifs_ch`).

use core::fmt;

use super::{HEADER_SIZE, NODE_MAGIC, crc32};
use crate::field::fields;

fields! {
    /// `struct ubifs_ch`.
    mod ch: Little[HEADER_SIZE] {
        MAGIC: u32 = 0,
        CRC: u32 = 4,
        SQNUM: u64 = 8,
        LEN: u32 = 16,
        NODE_TYPE: u8 = 20,
        GROUP_TYPE: u8 = 21,
        PADDING: [u8; 2] = 22,
    }
}

/// The checksum of a node covers everything after it.
const CRC_FROM: usize = ch::CRC.range().end;

/// The type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Attributes of a file, with its inline data.
    Inode,
    /// A block of a file's content.
    Data,
    /// A name in a directory.
    Entry,
    /// A name of an extended attribute.
    XattrEntry,
    /// A file was truncated.
    Truncation,
    /// Fills a gap.
    Padding,
    /// Superblock.
    Superblock,
    /// Master.
    Master,
    /// Log: a LEB was added to the journal.
    Reference,
    /// Index: a B+ tree node.
    Index,
    /// Log: a commit started.
    CommitStart,
    /// Inodes to be deleted at the next mount.
    Orphans,
    /// Authenticates the preceding part of the journal.
    Authentication,
    /// Signs the superblock.
    Signature,
    /// Not defined.
    Unknown(u8),
}

impl NodeKind {
    /// The kind in a `node_type` byte.
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Inode,
            1 => Self::Data,
            2 => Self::Entry,
            3 => Self::XattrEntry,
            4 => Self::Truncation,
            5 => Self::Padding,
            6 => Self::Superblock,
            7 => Self::Master,
            8 => Self::Reference,
            9 => Self::Index,
            10 => Self::CommitStart,
            11 => Self::Orphans,
            12 => Self::Authentication,
            13 => Self::Signature,
            other => Self::Unknown(other),
        }
    }

    /// The `node_type` byte.
    pub fn code(self) -> u8 {
        match self {
            Self::Inode => 0,
            Self::Data => 1,
            Self::Entry => 2,
            Self::XattrEntry => 3,
            Self::Truncation => 4,
            Self::Padding => 5,
            Self::Superblock => 6,
            Self::Master => 7,
            Self::Reference => 8,
            Self::Index => 9,
            Self::CommitStart => 10,
            Self::Orphans => 11,
            Self::Authentication => 12,
            Self::Signature => 13,
            Self::Unknown(code) => code,
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inode => "inode node",
            Self::Data => "data node",
            Self::Entry => "directory entry node",
            Self::XattrEntry => "extended attribute entry node",
            Self::Truncation => "truncation node",
            Self::Padding => "padding node",
            Self::Superblock => "superblock node",
            Self::Master => "master node",
            Self::Reference => "reference node",
            Self::Index => "index node",
            Self::CommitStart => "commit start node",
            Self::Orphans => "orphan node",
            Self::Authentication => "authentication node",
            Self::Signature => "signature node",
            Self::Unknown(_) => "node of unknown type",
        }
    }
}

/// Whether a node belongs to a group that is written as a whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// In no group (`UBIFS_NO_NODE_GROUP`).
    None,
    /// More nodes of its group follow (`UBIFS_IN_NODE_GROUP`).
    More,
    /// Last of its group (`UBIFS_LAST_OF_NODE_GROUP`).
    Last,
}

/// Why bytes are not a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeError {
    /// The bytes end before the header does, or before the length in it.
    Short,
    /// The first word is not the magic number.
    Magic(u32),
    /// The length in the header is impossible for this type of node.
    Length(u32),
    /// The checksum does not match.
    Crc {
        /// As stored.
        stored: u32,
        /// Of the bytes given.
        computed: u32,
    },
    /// The checksum is right, but the type is not the expected one.
    Kind(NodeKind),
    /// The checksum is right, but the named field has an invalid value.
    Field(&'static str),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the block ends inside the node"),
            Self::Magic(found) => write!(f, "no node: first word {found:#010x}"),
            Self::Length(found) => write!(f, "impossible length {found}"),
            Self::Crc { stored, computed } => {
                write!(f, "bad CRC: {stored:#010x} stored, {computed:#010x} computed")
            }
            Self::Kind(found) => write!(f, "{} in its place", found.name()),
            Self::Field(name) => write!(f, "impossible value in field {name}"),
        }
    }
}

impl core::error::Error for NodeError {}

/// The header every node starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// File system wide counter, incremented for each node written.
    pub sequence: u64,
    /// Bytes in the node, header included.
    pub length: u32,
    /// The type of the node.
    pub kind: NodeKind,
    /// Whether it is part of a group.
    pub group: Group,
}

impl Header {
    /// Reads a header; the node's CRC is not checked, see [`check`](Self::check).
    pub fn parse(bytes: &[u8]) -> Result<Self, NodeError> {
        let header: &[u8; HEADER_SIZE] = bytes.first_chunk().ok_or(NodeError::Short)?;
        let magic = ch::MAGIC.get(header);
        if magic != NODE_MAGIC {
            return Err(NodeError::Magic(magic));
        }
        let length = ch::LEN.get(header);
        if (length as usize) < HEADER_SIZE {
            return Err(NodeError::Length(length));
        }
        let group = match ch::GROUP_TYPE.get(header) {
            0 => Group::None,
            1 => Group::More,
            2 => Group::Last,
            _ => return Err(NodeError::Field("group_type")),
        };
        let kind = NodeKind::from_code(ch::NODE_TYPE.get(header));
        Ok(Self { sequence: ch::SQNUM.get(header), length, kind, group })
    }

    /// Reads a header and verifies the CRC of the node; returns it with the node's bytes.
    pub fn check(bytes: &[u8]) -> Result<(Self, &[u8]), NodeError> {
        let header = Self::parse(bytes)?;
        let node = bytes.get(..header.length as usize).ok_or(NodeError::Short)?;
        let (stored, computed) = (ch::CRC.get(node), crc32(&node[CRC_FROM..]));
        if stored != computed {
            return Err(NodeError::Crc { stored, computed });
        }
        Ok((header, node))
    }

    /// Writes the header and CRC into a finished node: `node` holds all of it, `length` is its
    /// length.
    pub fn emit(&self, node: &mut [u8]) {
        ch::MAGIC.put(node, NODE_MAGIC);
        ch::SQNUM.put(node, self.sequence);
        ch::LEN.put(node, self.length);
        ch::NODE_TYPE.put(node, self.kind.code());
        let group = match self.group {
            Group::None => 0,
            Group::More => 1,
            Group::Last => 2,
        };
        ch::GROUP_TYPE.put(node, group);
        ch::PADDING.put(node, [0; 2]);
        let crc = crc32(&node[CRC_FROM..self.length as usize]);
        ch::CRC.put(node, crc);
    }
}
