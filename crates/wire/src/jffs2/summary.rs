//! Summary nodes: the table of contents at the end of an erase block.
//!
//! The node starts anywhere after the last node it lists and extends to the end of the block. Its
//! entries are followed by padding and, in the last 8 bytes of the block, a [`SummaryTrailer`].

use super::{ByteOrder, Fixed, Header, Jffs2NodeError, NodeType, check_fixed, crc32};
use crate::field::{Field, Native, fields};

fields! {
    /// `struct jffs2_sum_marker`.
    mod sum_marker: Native[SummaryTrailer::LEN] {
        OFFSET: u32 = 0,
        MAGIC: u32 = 4,
    }
}

fields! {
    /// `struct jffs2_raw_summary`, after the header.
    mod raw_summary: Native[Summary::LEN] {
        SUM_NUM: u32 = 12,
        CLN_MKR: u32 = 16,
        PADDED: u32 = 20,
        SUM_CRC: u32 = 24,
        NODE_CRC: u32 = 28,
    }
}

/// The first field of every entry.
const NODETYPE: Field<u16, Native> = Field::at(0);

fields! {
    /// `struct jffs2_sum_inode_flash`, with offsets from its type.
    mod sum_inode: Native[SummaryEntry::INODE_LEN] {
        INODE: u32 = 2,
        VERSION: u32 = 6,
        OFFSET: u32 = 10,
        TOTLEN: u32 = 14,
    }
}

fields! {
    /// `struct jffs2_sum_dirent_flash`, with offsets from its type.
    mod sum_dirent: Native[SummaryEntry::DIRENT_LEN] {
        TOTLEN: u32 = 2,
        OFFSET: u32 = 6,
        PINO: u32 = 10,
        VERSION: u32 = 14,
        INO: u32 = 18,
        NSIZE: u8 = 22,
        TYPE: u8 = 23,
    }
}

fields! {
    /// `struct jffs2_sum_xattr_flash`, with offsets from its type.
    mod sum_xattr: Native[SummaryEntry::XATTR_LEN] {
        XID: u32 = 2,
        VERSION: u32 = 6,
        OFFSET: u32 = 10,
        TOTLEN: u32 = 14,
    }
}

fields! {
    /// `struct jffs2_sum_xref_flash`, with offsets from its type.
    mod sum_xref: Native[SummaryEntry::XREF_LEN] {
        OFFSET: u32 = 2,
    }
}

/// The last 8 bytes of a block with a summary (`struct jffs2_sum_marker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryTrailer {
    /// Offset of the summary node in the block.
    pub offset: u32,
}

impl SummaryTrailer {
    /// Bytes in the trailer.
    pub const LEN: usize = 8;
    /// `JFFS2_SUM_MAGIC`.
    const MAGIC: u32 = 0x0285_1885;

    /// Reads the trailer from the last bytes of a block; `None` if there is none.
    #[must_use]
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        let is_there =
            bytes.len() >= Self::LEN && sum_marker::MAGIC.get(order, bytes) == Self::MAGIC;
        is_there.then(|| Self { offset: sum_marker::OFFSET.get(order, bytes) })
    }

    /// Writes the trailer to the first 8 bytes of `out`.
    ///
    /// # Panics
    /// When `out` is shorter.
    pub fn emit(&self, order: ByteOrder, out: &mut [u8]) {
        sum_marker::OFFSET.put(order, out, self.offset);
        sum_marker::MAGIC.put(order, out, Self::MAGIC);
    }
}

/// A summary node (`struct jffs2_raw_summary`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of entries.
    pub entries: u32,
    /// Length of the block's clean marker node, 0 if it has none.
    pub cleanmarker_len: u32,
    /// Bytes of padding nodes in the block.
    pub padded: u32,
    /// Checksum of everything from the end of the fixed part to the end of the block.
    pub sum_crc: u32,
}

impl Summary {
    /// Bytes before the entries.
    pub const LEN: usize = 32;
    const FIXED: Fixed =
        Fixed { len: Self::LEN, crc: raw_summary::NODE_CRC, crc_len: raw_summary::SUM_CRC.start() };

    /// Reads a summary node that extends to the end of `bytes`, which is the end of the block, and
    /// verifies all its checksums.
    ///
    /// # Errors
    /// If it is not valid: the block must then be scanned.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Jffs2NodeError> {
        let header = check_fixed(bytes, order, NodeType::SUMMARY, Self::FIXED)?;
        if !header.node_type.is_accurate() {
            return Err(Jffs2NodeError::Type(header.node_type));
        }
        if header.total_len as usize != bytes.len() || bytes.len() < Self::LEN + SummaryTrailer::LEN
        {
            return Err(Jffs2NodeError::Length);
        }
        let summary = Self {
            entries: raw_summary::SUM_NUM.get(order, bytes),
            cleanmarker_len: raw_summary::CLN_MKR.get(order, bytes),
            padded: raw_summary::PADDED.get(order, bytes),
            sum_crc: raw_summary::SUM_CRC.get(order, bytes),
        };
        if crc32(&bytes[Self::LEN..]) != summary.sum_crc {
            return Err(Jffs2NodeError::SummaryCrc);
        }
        Ok(summary)
    }

    /// The entries of the node at the start of `node`.
    #[must_use]
    pub fn entries<'a>(&self, node: &'a [u8], order: ByteOrder) -> SummaryEntries<'a> {
        let end = node.len().saturating_sub(SummaryTrailer::LEN);
        SummaryEntries { rest: node.get(Self::LEN..end).unwrap_or(&[]), left: self.entries, order }
    }

    /// Writes the node around the entries that are already in `out[Summary::LEN..]`; the bytes
    /// between them and the trailer become 0xFF. `out` extends from `offset` in the block to its
    /// end; `entries_len` is the length of all entries. `sum_crc` is computed.
    ///
    /// # Panics
    /// When `out` is shorter than fixed part, entries and trailer.
    pub fn emit(&self, entries_len: usize, offset: u32, order: ByteOrder, out: &mut [u8]) {
        let trailer_at = out.len() - SummaryTrailer::LEN;
        out[Self::LEN + entries_len..trailer_at].fill(0xFF);
        SummaryTrailer { offset }.emit(order, &mut out[trailer_at..]);
        let header = Header { node_type: NodeType::SUMMARY, total_len: out.len() as u32 };
        header.emit(order, out);
        raw_summary::SUM_NUM.put(order, out, self.entries);
        raw_summary::CLN_MKR.put(order, out, self.cleanmarker_len);
        raw_summary::PADDED.put(order, out, self.padded);
        let sum_crc = crc32(&out[Self::LEN..]);
        raw_summary::SUM_CRC.put(order, out, sum_crc);
        Self::FIXED.seal(order, out);
    }
}

/// One entry of a summary: a node of the block. Offsets are bytes from the start of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryEntry<'a> {
    /// `struct jffs2_sum_inode_flash`
    Inode {
        /// Inode number.
        ino: u32,
        /// Version.
        version: u32,
        /// Where the node starts.
        offset: u32,
        /// Its length.
        total_len: u32,
    },
    /// `struct jffs2_sum_dirent_flash`
    Dirent {
        /// Its length.
        total_len: u32,
        /// Where the node starts.
        offset: u32,
        /// The directory.
        pino: u32,
        /// The directory's version counter.
        version: u32,
        /// The inode it names; 0 for a removal.
        ino: u32,
        /// `DT_*`.
        kind: u8,
        /// The name.
        name: &'a [u8],
    },
    /// `struct jffs2_sum_xattr_flash`
    Xattr {
        /// Number of the attribute.
        xid: u32,
        /// Version.
        version: u32,
        /// Where the node starts.
        offset: u32,
        /// Its length.
        total_len: u32,
    },
    /// `struct jffs2_sum_xref_flash`
    Xref {
        /// Where the node starts.
        offset: u32,
    },
}

impl<'a> SummaryEntry<'a> {
    const INODE_LEN: usize = 18;
    const DIRENT_LEN: usize = 24;
    const XATTR_LEN: usize = 18;
    const XREF_LEN: usize = 6;

    /// Reads the entry at the start of `bytes`.
    ///
    /// # Errors
    /// [`Jffs2NodeError::Truncated`]; [`Jffs2NodeError::SummaryEntry`] for an unknown type.
    pub fn parse(bytes: &'a [u8], order: ByteOrder) -> Result<Self, Jffs2NodeError> {
        if bytes.len() < 2 {
            return Err(Jffs2NodeError::Truncated);
        }
        let node_type = NodeType(NODETYPE.get(order, bytes));
        let need = match node_type {
            NodeType::INODE => Self::INODE_LEN,
            NodeType::XATTR => Self::XATTR_LEN,
            NodeType::DIRENT => Self::DIRENT_LEN,
            NodeType::XREF => Self::XREF_LEN,
            other => return Err(Jffs2NodeError::SummaryEntry(other)),
        };
        if bytes.len() < need {
            return Err(Jffs2NodeError::Truncated);
        }
        Ok(match node_type {
            NodeType::INODE => Self::Inode {
                ino: sum_inode::INODE.get(order, bytes),
                version: sum_inode::VERSION.get(order, bytes),
                offset: sum_inode::OFFSET.get(order, bytes),
                total_len: sum_inode::TOTLEN.get(order, bytes),
            },
            NodeType::XATTR => Self::Xattr {
                xid: sum_xattr::XID.get(order, bytes),
                version: sum_xattr::VERSION.get(order, bytes),
                offset: sum_xattr::OFFSET.get(order, bytes),
                total_len: sum_xattr::TOTLEN.get(order, bytes),
            },
            NodeType::XREF => Self::Xref { offset: sum_xref::OFFSET.get(order, bytes) },
            _ => Self::Dirent {
                total_len: sum_dirent::TOTLEN.get(order, bytes),
                offset: sum_dirent::OFFSET.get(order, bytes),
                pino: sum_dirent::PINO.get(order, bytes),
                version: sum_dirent::VERSION.get(order, bytes),
                ino: sum_dirent::INO.get(order, bytes),
                kind: sum_dirent::TYPE.get(order, bytes),
                name: bytes[Self::DIRENT_LEN..]
                    .get(..usize::from(sum_dirent::NSIZE.get(order, bytes)))
                    .ok_or(Jffs2NodeError::Truncated)?,
            },
        })
    }

    /// Where the node starts.
    #[must_use]
    pub fn offset(&self) -> u32 {
        match *self {
            Self::Inode { offset, .. }
            | Self::Dirent { offset, .. }
            | Self::Xattr { offset, .. }
            | Self::Xref { offset } => offset,
        }
    }

    /// The same entry for a node that starts at `start`.
    #[must_use]
    pub fn at(mut self, start: u32) -> Self {
        match &mut self {
            Self::Inode { offset, .. }
            | Self::Dirent { offset, .. }
            | Self::Xattr { offset, .. }
            | Self::Xref { offset } => *offset = start,
        }
        self
    }

    /// Bytes the entry takes; entries are packed without alignment.
    #[allow(clippy::len_without_is_empty, reason = "the length of an encoding, never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Inode { .. } => Self::INODE_LEN,
            Self::Xattr { .. } => Self::XATTR_LEN,
            Self::Dirent { name, .. } => Self::DIRENT_LEN + name.len(),
            Self::Xref { .. } => Self::XREF_LEN,
        }
    }

    /// Writes the entry to the start of `out`; returns its length.
    ///
    /// # Panics
    /// When `out` is shorter, or a name longer than 255 bytes.
    pub fn emit(&self, order: ByteOrder, out: &mut [u8]) -> usize {
        let node_type = match *self {
            Self::Inode { ino, version, offset, total_len } => {
                sum_inode::INODE.put(order, out, ino);
                sum_inode::VERSION.put(order, out, version);
                sum_inode::OFFSET.put(order, out, offset);
                sum_inode::TOTLEN.put(order, out, total_len);
                NodeType::INODE
            }
            Self::Xattr { xid, version, offset, total_len } => {
                sum_xattr::XID.put(order, out, xid);
                sum_xattr::VERSION.put(order, out, version);
                sum_xattr::OFFSET.put(order, out, offset);
                sum_xattr::TOTLEN.put(order, out, total_len);
                NodeType::XATTR
            }
            Self::Xref { offset } => {
                sum_xref::OFFSET.put(order, out, offset);
                NodeType::XREF
            }
            Self::Dirent { total_len, offset, pino, version, ino, kind, name } => {
                let name_len = u8::try_from(name.len()).expect("a name has at most 255 bytes");
                sum_dirent::TOTLEN.put(order, out, total_len);
                sum_dirent::OFFSET.put(order, out, offset);
                sum_dirent::PINO.put(order, out, pino);
                sum_dirent::VERSION.put(order, out, version);
                sum_dirent::INO.put(order, out, ino);
                sum_dirent::NSIZE.put(order, out, name_len);
                sum_dirent::TYPE.put(order, out, kind);
                out[Self::DIRENT_LEN..Self::DIRENT_LEN + name.len()].copy_from_slice(name);
                NodeType::DIRENT
            }
        };
        NODETYPE.put(order, out, node_type.0);
        self.len()
    }
}

/// The entries of a summary, in order. Ends after the announced number, or with an error.
#[derive(Clone, Debug)]
pub struct SummaryEntries<'a> {
    rest: &'a [u8],
    left: u32,
    order: ByteOrder,
}

impl<'a> Iterator for SummaryEntries<'a> {
    type Item = Result<SummaryEntry<'a>, Jffs2NodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let entry = SummaryEntry::parse(self.rest, self.order);
        match &entry {
            Ok(entry) => {
                self.rest = &self.rest[entry.len()..];
                self.left -= 1;
            }
            Err(_) => self.left = 0,
        }
        Some(entry)
    }
}
