//! Keys, by which the index is sorted.

use core::fmt;

use crate::bytes::{le32, put};

/// The type of node that a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// An inode node.
    Inode,
    /// A block of content.
    Data,
    /// A directory entry.
    Entry,
    /// An extended attribute entry.
    XattrEntry,
    /// Not defined.
    Unknown(u8),
}

/// How names are hashed for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyHash {
    /// The R5 hash.
    R5,
    /// The first four bytes; only for tests (`mkfs.ubifs -k test`).
    Test,
}

impl KeyHash {
    /// The hash in a superblock's `key_hash` byte.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::R5),
            1 => Some(Self::Test),
            _ => None,
        }
    }

    /// The `key_hash` byte.
    pub fn code(self) -> u8 {
        match self {
            Self::R5 => 0,
            Self::Test => 1,
        }
    }

    /// The hash of a name as stored in a key: 29 bits, never 0 to 2.
    pub fn hash(self, name: &[u8]) -> u32 {
        let hash = match self {
            Self::R5 => name.iter().fold(0_u32, |hash, &byte| {
                // The C original hashes `signed char`.
                let signed = i32::from(byte as i8);
                hash.wrapping_add((signed << 4) as u32)
                    .wrapping_add((signed >> 4) as u32)
                    .wrapping_mul(11)
            }),
            Self::Test => {
                let mut first = [0; 4];
                let length = name.len().min(4);
                first[..length].copy_from_slice(&name[..length]);
                u32::from_le_bytes(first)
            }
        };
        // 0 to 2 are reserved: "." and "..".
        match hash & Key::VALUE_MAX {
            reserved @ 0..=2 => reserved + 3,
            hash => hash,
        }
    }
}

/// Key of an inode, data or entry node. Keys compare in the order of the index.
///
/// Inode number, then kind (3 bits), then block number or hash of the name (29 bits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    /// Bytes per key in the index; key fields in nodes have 16, the last eight zero.
    pub const SIZE: usize = 8;
    /// Largest block number or hash.
    pub const VALUE_MAX: u32 = 0x1fff_ffff;
    /// The smallest possible key.
    pub const MIN: Self = Self(0);
    /// The largest possible key.
    pub const MAX: Self = Self(u64::MAX);

    fn new(inode: u32, kind: u8, value: u32) -> Self {
        let low = u32::from(kind & 7) << 29 | value & Self::VALUE_MAX;
        Self(u64::from(inode) << 32 | u64::from(low))
    }

    /// Key of an inode node.
    pub fn inode_node(inode: u32) -> Self {
        Self::new(inode, 0, 0)
    }

    /// Whether it is the key of an inode node: of that kind, with a value of 0.
    pub fn is_inode_node(self) -> bool {
        self == Self::inode_node(self.inode())
    }

    /// Key of block `block` of a file's content.
    pub fn data(inode: u32, block: u32) -> Self {
        Self::new(inode, 1, block)
    }

    /// Key of an entry with this hash in a directory.
    pub fn entry(directory: u32, hash: u32) -> Self {
        Self::new(directory, 2, hash)
    }

    /// Key of an extended attribute entry with this hash of a host inode.
    pub fn xattr_entry(host: u32, hash: u32) -> Self {
        Self::new(host, 3, hash)
    }

    /// Key of an entry of either kind.
    pub fn any_entry(kind: super::EntryKind, parent: u32, hash: u32) -> Self {
        match kind {
            super::EntryKind::Directory => Self::entry(parent, hash),
            super::EntryKind::Xattr => Self::xattr_entry(parent, hash),
        }
    }

    /// The inode it belongs to: the file, or the directory or host of an entry.
    pub fn inode(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The type of node that it leads to.
    pub fn kind(self) -> KeyKind {
        match (self.0 >> 29) as u8 & 7 {
            0 => KeyKind::Inode,
            1 => KeyKind::Data,
            2 => KeyKind::Entry,
            3 => KeyKind::XattrEntry,
            other => KeyKind::Unknown(other),
        }
    }

    /// Block number or hash.
    pub fn value(self) -> u32 {
        self.0 as u32 & Self::VALUE_MAX
    }

    /// The key after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The key before this one.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The last key of an inode number, of any kind.
    pub fn last_of(inode: u32) -> Self {
        Self(u64::from(inode) << 32 | u64::from(u32::MAX))
    }

    /// Whether several nodes may have this key: names with the same hash.
    pub fn is_hash(self) -> bool {
        matches!(self.kind(), KeyKind::Entry | KeyKind::XattrEntry)
    }

    /// Reads the key at the start of a key field.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= Self::SIZE).then(|| Self::read(bytes, 0))
    }

    /// Reads a key; `bytes` holds at least 8.
    pub(super) fn read(bytes: &[u8], at: usize) -> Self {
        Self(u64::from(le32(bytes, at)) << 32 | u64::from(le32(bytes, at + 4)))
    }

    /// Writes the 8 bytes of the key.
    pub(super) fn write(self, bytes: &mut [u8], at: usize) {
        put(bytes, at, self.inode().to_le_bytes());
        put(bytes, at + 4, (self.0 as u32).to_le_bytes());
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inode, value) = (self.inode(), self.value());
        match self.kind() {
            KeyKind::Inode => write!(f, "inode {inode}"),
            KeyKind::Data => write!(f, "inode {inode} block {value}"),
            KeyKind::Entry => write!(f, "directory {inode} hash {value:#x}"),
            KeyKind::XattrEntry => write!(f, "inode {inode} xattr hash {value:#x}"),
            KeyKind::Unknown(kind) => write!(f, "inode {inode} kind {kind} value {value:#x}"),
        }
    }
}
