//! Summary nodes: the table of contents at the end of an erase block.
//!
//! The node starts anywhere behind the last node it lists and reaches to the end of the block.
//! Behind its entries lie padding and, in the last 8 bytes of the block, a [`SummaryTrailer`].

use super::{ByteOrder, Error, Fixed, Header, NodeType, check_fixed, crc32};

/// The last 8 bytes of a block with a summary (`struct jffs2_sum_marker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryTrailer {
    /// Where in the block the summary node starts.
    pub offset: u32,
}

impl SummaryTrailer {
    /// Bytes of the trailer.
    pub const LEN: usize = 8;
    /// `JFFS2_SUM_MAGIC`.
    const MAGIC: u32 = 0x0285_1885;

    /// Reads the trailer from the last bytes of a block; `None` if there is none.
    #[must_use]
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        let is_there = bytes.len() >= Self::LEN && order.u32(bytes, 4) == Self::MAGIC;
        is_there.then(|| Self { offset: order.u32(bytes, 0) })
    }

    /// Writes the trailer to the first 8 bytes of `out`.
    ///
    /// # Panics
    /// When `out` is shorter.
    pub fn emit(&self, order: ByteOrder, out: &mut [u8]) {
        order.put_u32(out, 0, self.offset);
        order.put_u32(out, 4, Self::MAGIC);
    }
}

/// A summary node (`struct jffs2_raw_summary`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of entries.
    pub entries: u32,
    /// Length of the block's clean marker node, 0 if it has none.
    pub cleanmarker_len: u32,
    /// Bytes of the block that are padding nodes.
    pub padded: u32,
    /// Checksum of everything behind the fixed part up to the end of the block.
    pub sum_crc: u32,
}

impl Summary {
    /// Bytes before the entries.
    pub const LEN: usize = 32;
    const FIXED: Fixed = Fixed { len: Self::LEN, crc_at: 28, crc_len: 24 };

    /// Reads a summary node that reaches to the end of `bytes`, which is the end of the block, and
    /// verifies all its checksums.
    ///
    /// # Errors
    /// What is wrong with it: the block must be scanned.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Error> {
        let header = check_fixed(bytes, order, NodeType::SUMMARY, Self::FIXED)?;
        if !header.node_type.is_accurate() {
            return Err(Error::Type(header.node_type));
        }
        if header.total_len as usize != bytes.len() || bytes.len() < Self::LEN + SummaryTrailer::LEN
        {
            return Err(Error::Length);
        }
        let summary = Self {
            entries: order.u32(bytes, 12),
            cleanmarker_len: order.u32(bytes, 16),
            padded: order.u32(bytes, 20),
            sum_crc: order.u32(bytes, 24),
        };
        if crc32(&bytes[Self::LEN..]) != summary.sum_crc {
            return Err(Error::SummaryCrc);
        }
        Ok(summary)
    }

    /// The entries of the node that `node` starts with.
    #[must_use]
    pub fn entries<'a>(&self, node: &'a [u8], order: ByteOrder) -> SummaryEntries<'a> {
        let end = node.len().saturating_sub(SummaryTrailer::LEN);
        SummaryEntries { rest: node.get(Self::LEN..end).unwrap_or(&[]), left: self.entries, order }
    }

    /// Writes the node around the entries that already stand in `out[Summary::LEN..]`; the bytes
    /// between them and the trailer become 0xFF. `out` reaches from `offset` in the block to its
    /// end; `entries_len` is the length of all entries. `sum_crc` is computed.
    ///
    /// # Panics
    /// When `out` is shorter than entries, fixed part and trailer.
    pub fn emit(&self, entries_len: usize, offset: u32, order: ByteOrder, out: &mut [u8]) {
        let trailer_at = out.len() - SummaryTrailer::LEN;
        out[Self::LEN + entries_len..trailer_at].fill(0xFF);
        SummaryTrailer { offset }.emit(order, &mut out[trailer_at..]);
        let header = Header { node_type: NodeType::SUMMARY, total_len: out.len() as u32 };
        header.emit(order, out);
        order.put_u32(out, 12, self.entries);
        order.put_u32(out, 16, self.cleanmarker_len);
        order.put_u32(out, 20, self.padded);
        order.put_u32(out, 24, crc32(&out[Self::LEN..]));
        order.put_u32(out, 28, crc32(&out[..24]));
    }
}

/// One line of a summary: a node of the block. Offsets are bytes from the start of the block.
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
        /// The inode it names, 0 for a removal.
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
    const DIRENT_LEN: usize = 24;

    /// Reads the entry that `bytes` start with.
    ///
    /// # Errors
    /// [`Error::Truncated`]; [`Error::SummaryEntry`] for a type this is not known.
    pub fn parse(bytes: &'a [u8], order: ByteOrder) -> Result<Self, Error> {
        if bytes.len() < 2 {
            return Err(Error::Truncated);
        }
        let node_type = NodeType(order.u16(bytes, 0));
        let need = match node_type {
            NodeType::INODE | NodeType::XATTR => 18,
            NodeType::DIRENT => Self::DIRENT_LEN,
            NodeType::XREF => 6,
            other => return Err(Error::SummaryEntry(other)),
        };
        if bytes.len() < need {
            return Err(Error::Truncated);
        }
        let word = |at| order.u32(bytes, at);
        Ok(match node_type {
            NodeType::INODE => Self::Inode {
                ino: word(2),
                version: word(6),
                offset: word(10),
                total_len: word(14),
            },
            NodeType::XATTR => Self::Xattr {
                xid: word(2),
                version: word(6),
                offset: word(10),
                total_len: word(14),
            },
            NodeType::XREF => Self::Xref { offset: word(2) },
            _ => Self::Dirent {
                total_len: word(2),
                offset: word(6),
                pino: word(10),
                version: word(14),
                ino: word(18),
                kind: bytes[23],
                name: bytes[Self::DIRENT_LEN..]
                    .get(..usize::from(bytes[22]))
                    .ok_or(Error::Truncated)?,
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
            Self::Inode { .. } | Self::Xattr { .. } => 18,
            Self::Dirent { name, .. } => Self::DIRENT_LEN + name.len(),
            Self::Xref { .. } => 6,
        }
    }

    /// Writes the entry to the start of `out`; returns its length.
    ///
    /// # Panics
    /// When `out` is shorter, or a name longer than 255 bytes.
    pub fn emit(&self, order: ByteOrder, out: &mut [u8]) -> usize {
        let mut put = |words: &[u32]| {
            for (i, &word) in words.iter().enumerate() {
                order.put_u32(out, 2 + 4 * i, word);
            }
        };
        let node_type = match *self {
            Self::Inode { ino, version, offset, total_len } => {
                put(&[ino, version, offset, total_len]);
                NodeType::INODE
            }
            Self::Xattr { xid, version, offset, total_len } => {
                put(&[xid, version, offset, total_len]);
                NodeType::XATTR
            }
            Self::Xref { offset } => {
                put(&[offset]);
                NodeType::XREF
            }
            Self::Dirent { total_len, offset, pino, version, ino, kind, name } => {
                put(&[total_len, offset, pino, version, ino]);
                out[22] = u8::try_from(name.len()).expect("a name has at most 255 bytes");
                out[23] = kind;
                out[Self::DIRENT_LEN..Self::DIRENT_LEN + name.len()].copy_from_slice(name);
                NodeType::DIRENT
            }
        };
        order.put_u16(out, 0, node_type.0);
        self.len()
    }
}

/// The entries of a summary, in order. Ends behind the announced number, or with an error.
#[derive(Clone, Debug)]
pub struct SummaryEntries<'a> {
    rest: &'a [u8],
    left: u32,
    order: ByteOrder,
}

impl<'a> Iterator for SummaryEntries<'a> {
    type Item = Result<SummaryEntry<'a>, Error>;

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
