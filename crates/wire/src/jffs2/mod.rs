//! JFFS2: the nodes of a log-structured flash file system (Linux `include/uapi/linux/jffs2.h`).
//!
//! An erase block holds nodes, one after the other on 4-byte boundaries; between and after them
//! there may be erased space (0xFF), padding, or the remains of an unclean stop. A node never
//! crosses an erase block. All numbers are in the byte order of the target's processor
//! ([`ByteOrder`]).
//!
//! Every node type has a value with `parse` (node bytes to value, checksums of the fixed part
//! verified) and `emit` (value and payload to node bytes, checksums computed). The payload - name,
//! file data, attribute - has a checksum of its own, which its accessor verifies.

mod node;
mod summary;
#[cfg(test)]
mod tests;
mod xattr;

pub use node::{Compression, Dirent, Inode};
pub use summary::{Summary, SummaryEntries, SummaryEntry, SummaryTrailer};
pub use xattr::{Xattr, XattrPrefix, Xref};

use core::fmt;

use crate::field::{Field, Native, Value, fields};

fields! {
    /// `struct jffs2_unknown_node`: the header.
    mod unknown: Native[Header::LEN] {
        MAGIC: u16 = 0,
        NODETYPE: u16 = 2,
        TOTLEN: u32 = 4,
        HDR_CRC: u32 = 8,
    }
}

/// First two bytes of every node (`JFFS2_MAGIC_BITMASK`).
pub const MAGIC: u16 = 0x1985;
/// Magic of the first JFFS2 versions (`JFFS2_OLD_MAGIC_BITMASK`), which nothing reads today.
pub const MAGIC_OLD: u16 = 0x1984;
/// Longest name in a directory entry, bytes (`JFFS2_MAX_NAME_LEN`).
pub const NAME_LEN_MAX: usize = 254;
/// Inode number of the root directory.
pub const ROOT_INO: u32 = 1;
/// Nodes start on multiples of this, bytes.
pub const ALIGNMENT: usize = 4;
/// Length of the clean marker in the free out-of-band bytes of a freshly erased NAND block: magic,
/// type and this length, without a checksum.
const OOB_CLEANMARKER_LEN: u32 = 8;

/// CRC-32 as JFFS2 uses it: reflected polynomial 0xEDB88320, start value 0, no final inversion.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    // The usual CRC-32 inverts before and after; started with !0, its register is 0.
    let mut hasher = crc32fast::Hasher::new_with_initial(u32::MAX);
    hasher.update(bytes);
    !hasher.finalize()
}

/// `len` rounded up to the position of the next node.
#[must_use]
pub const fn padded(len: u32) -> u64 {
    (len as u64).next_multiple_of(ALIGNMENT as u64)
}

/// Byte order of an image: that of the processor for which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// Both, for callers that have to try each.
    pub const ALL: [Self; 2] = [Self::Little, Self::Big];

    /// The number stored in two bytes of the image.
    #[must_use]
    pub const fn value16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// The number stored in four bytes of the image.
    #[must_use]
    pub const fn value32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The two bytes that store `value`.
    #[must_use]
    pub const fn bytes16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The four bytes that store `value`.
    #[must_use]
    pub const fn bytes32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// A device number as stored in the data of a device node: 2 bytes, or 4 since Linux 2.6.
    #[must_use]
    pub fn parse_device(self, data: &[u8]) -> Option<DeviceData> {
        if let Ok(bytes) = data.try_into() {
            return Some(DeviceData::Old(self.value16(bytes)));
        }
        data.try_into().ok().map(|bytes| DeviceData::New(self.value32(bytes)))
    }
}

impl<T: Value> Field<T, Native> {
    /// Reads its value in this byte order from `bytes`, which must contain the field.
    #[inline]
    fn get(self, order: ByteOrder, bytes: &[u8]) -> T {
        match order {
            ByteOrder::Little => T::from_le(&bytes[self.range()]),
            ByteOrder::Big => T::from_be(&bytes[self.range()]),
        }
    }

    /// Writes its value in this byte order to `out`, which must contain the field.
    #[inline]
    fn put(self, order: ByteOrder, out: &mut [u8], value: T) {
        match order {
            ByteOrder::Little => value.put_le(&mut out[self.range()]),
            ByteOrder::Big => value.put_be(&mut out[self.range()]),
        }
    }
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Little => "little endian",
            Self::Big => "big endian",
        })
    }
}

/// Data of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceData {
    /// `old_encode_dev`: 8 bits of major, 8 bits of minor.
    Old(u16),
    /// `new_encode_dev`: 12 bits of major, 20 bits of minor.
    New(u32),
}

/// How a reader must treat a node type it does not know (`JFFS2_COMPAT_MASK`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compatibility {
    /// May be deleted at garbage collection (`JFFS2_FEATURE_RWCOMPAT_DELETE`).
    Delete,
    /// Must be copied at garbage collection (`JFFS2_FEATURE_RWCOMPAT_COPY`).
    Copy,
    /// The file system may only be read (`JFFS2_FEATURE_ROCOMPAT`).
    ReadOnly,
    /// The file system may not even be read (`JFFS2_FEATURE_INCOMPAT`).
    Incompatible,
}

/// The type word of a node: compatibility bits, the "accurate" bit and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeType(pub u16);

impl NodeType {
    /// Directory entry (`JFFS2_NODETYPE_DIRENT`).
    pub const DIRENT: Self = Self(0xE001);
    /// Attributes and data of a file (`JFFS2_NODETYPE_INODE`).
    pub const INODE: Self = Self(0xE002);
    /// "This block was erased completely" (`JFFS2_NODETYPE_CLEANMARKER`).
    pub const CLEANMARKER: Self = Self(0x2003);
    /// Filler (`JFFS2_NODETYPE_PADDING`).
    pub const PADDING: Self = Self(0x2004);
    /// Table of contents of the block (`JFFS2_NODETYPE_SUMMARY`).
    pub const SUMMARY: Self = Self(0x2006);
    /// Extended attribute: name and value (`JFFS2_NODETYPE_XATTR`).
    pub const XATTR: Self = Self(0xE008);
    /// Which inode has which extended attribute (`JFFS2_NODETYPE_XREF`).
    pub const XREF: Self = Self(0xE009);

    const ACCURATE: u16 = 0x2000;

    /// Whether the node is valid. On NOR flash a node is made obsolete by clearing one bit.
    #[must_use]
    pub const fn is_accurate(self) -> bool {
        self.0 & Self::ACCURATE != 0
    }

    /// The same type as before the node was made obsolete.
    #[must_use]
    pub const fn as_accurate(self) -> Self {
        Self(self.0 | Self::ACCURATE)
    }

    /// The same type, marked obsolete.
    #[must_use]
    pub const fn as_obsolete(self) -> Self {
        Self(self.0 & !Self::ACCURATE)
    }

    /// How to treat a node of this type if it is unknown.
    #[must_use]
    pub const fn compatibility(self) -> Compatibility {
        match self.0 >> 14 {
            0 => Compatibility::Delete,
            1 => Compatibility::Copy,
            2 => Compatibility::ReadOnly,
            _ => Compatibility::Incompatible,
        }
    }

    /// Whether this is one of the seven types above, obsolete or not.
    #[must_use]
    pub fn is_known(self) -> bool {
        matches!(
            self.as_accurate(),
            Self::DIRENT
                | Self::INODE
                | Self::CLEANMARKER
                | Self::PADDING
                | Self::SUMMARY
                | Self::XATTR
                | Self::XREF
        )
    }
}

impl fmt::Display for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_accurate() {
            Self::DIRENT => f.write_str("directory entry node"),
            Self::INODE => f.write_str("inode node"),
            Self::CLEANMARKER => f.write_str("clean marker"),
            Self::PADDING => f.write_str("padding node"),
            Self::SUMMARY => f.write_str("summary node"),
            Self::XATTR => f.write_str("xattr node"),
            Self::XREF => f.write_str("xref node"),
            Self(other) => write!(f, "node of unknown type {other:#06x}"),
        }
    }
}

/// Why bytes are not the node they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jffs2NodeError {
    /// Fewer bytes than the node needs.
    Truncated,
    /// The first two bytes are not the magic number in this byte order.
    Magic(u16),
    /// The checksum over type and length is wrong.
    HeaderCrc,
    /// The header is valid but of another type.
    Type(NodeType),
    /// The checksum over the fixed part is wrong.
    NodeCrc,
    /// The checksum over a directory entry's name is wrong.
    NameCrc,
    /// The checksum over file data or an attribute's name and value is wrong.
    DataCrc,
    /// The checksum over the summary's entries is wrong.
    SummaryCrc,
    /// Lengths inside the node contradict each other.
    Length,
    /// A summary entry of an unknown type: the block must be scanned.
    SummaryEntry(NodeType),
}

impl fmt::Display for Jffs2NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the node is cut off"),
            Self::Magic(found) => write!(f, "magic number is {found:#06x}, not {MAGIC:#06x}"),
            Self::HeaderCrc => f.write_str("header checksum is wrong"),
            Self::Type(found) => write!(f, "found a {found}"),
            Self::NodeCrc => f.write_str("node checksum is wrong"),
            Self::NameCrc => f.write_str("name checksum is wrong"),
            Self::DataCrc => f.write_str("data checksum is wrong"),
            Self::SummaryCrc => f.write_str("summary checksum is wrong"),
            Self::Length => f.write_str("lengths in the node contradict each other"),
            Self::SummaryEntry(found) => write!(f, "summary lists a {found}"),
        }
    }
}

impl core::error::Error for Jffs2NodeError {}

/// The 12 bytes every node starts with (`struct jffs2_unknown_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of what follows.
    pub node_type: NodeType,
    /// Bytes in the node including this header, without the padding to the next node.
    pub total_len: u32,
}

impl Header {
    /// Bytes in a header.
    pub const LEN: usize = 12;

    /// Reads a header and verifies its checksum; obsolete nodes pass.
    ///
    /// # Errors
    /// [`Jffs2NodeError::Truncated`], [`Jffs2NodeError::Magic`], [`Jffs2NodeError::HeaderCrc`].
    #[inline]
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Jffs2NodeError> {
        let header = Self::parse_unchecked(bytes, order)?;
        if unknown::HDR_CRC.get(order, bytes) != header.crc(order) {
            return Err(Jffs2NodeError::HeaderCrc);
        }
        Ok(header)
    }

    /// Reads a header whose checksum may be wrong, to find out what a damaged node once was.
    ///
    /// # Errors
    /// [`Jffs2NodeError::Truncated`], [`Jffs2NodeError::Magic`].
    #[inline]
    pub fn parse_unchecked(bytes: &[u8], order: ByteOrder) -> Result<Self, Jffs2NodeError> {
        if bytes.len() < Self::LEN {
            return Err(Jffs2NodeError::Truncated);
        }
        let magic = unknown::MAGIC.get(order, bytes);
        if magic != MAGIC {
            return Err(Jffs2NodeError::Magic(magic));
        }
        let node_type = NodeType(unknown::NODETYPE.get(order, bytes));
        Ok(Self { node_type, total_len: unknown::TOTLEN.get(order, bytes) })
    }

    /// Checksum of these fields; an obsolete node keeps the checksum with which it was written.
    #[must_use]
    pub fn crc(&self, order: ByteOrder) -> u32 {
        let mut bytes = [0; unknown::HDR_CRC.start()];
        self.put(self.node_type.as_accurate(), order, &mut bytes);
        crc32(&bytes)
    }

    /// Writes the header to the first [`Header::LEN`] bytes of `out`.
    ///
    /// # Panics
    /// When `out` is shorter.
    pub fn emit(&self, order: ByteOrder, out: &mut [u8]) {
        self.put(self.node_type, order, out);
        unknown::HDR_CRC.put(order, out, self.crc(order));
    }

    fn put(&self, node_type: NodeType, order: ByteOrder, out: &mut [u8]) {
        unknown::MAGIC.put(order, out, MAGIC);
        unknown::NODETYPE.put(order, out, node_type.0);
        unknown::TOTLEN.put(order, out, self.total_len);
    }
}

/// Checks the header of a node of type `expected` and the checksum of its fixed part. Obsolete
/// nodes pass.
fn check_fixed(
    bytes: &[u8],
    order: ByteOrder,
    expected: NodeType,
    fixed: Fixed,
) -> Result<Header, Jffs2NodeError> {
    let header = Header::parse(bytes, order)?;
    if header.node_type.as_accurate() != expected {
        return Err(Jffs2NodeError::Type(header.node_type));
    }
    if bytes.len() < fixed.len {
        return Err(Jffs2NodeError::Truncated);
    }
    if (header.total_len as usize) < fixed.len {
        return Err(Jffs2NodeError::Length);
    }
    if fixed_crc(bytes, order, header.node_type, fixed) != fixed.crc.get(order, bytes) {
        return Err(Jffs2NodeError::NodeCrc);
    }
    Ok(header)
}

/// The position of the checksum of a node's fixed part, and what it covers.
#[derive(Clone, Copy)]
struct Fixed {
    len: usize,
    crc: Field<u32, Native>,
    crc_len: usize,
}

impl Fixed {
    /// Writes the checksum of a fixed part that is otherwise complete.
    fn seal(self, order: ByteOrder, out: &mut [u8]) {
        let crc = crc32(&out[..self.crc_len]);
        self.crc.put(order, out, crc);
    }
}

/// The checksum over the fixed part as it was written: with the "accurate" bit set.
fn fixed_crc(bytes: &[u8], order: ByteOrder, found: NodeType, fixed: Fixed) -> u32 {
    if found.is_accurate() {
        return crc32(&bytes[..fixed.crc_len]);
    }
    let mut copy = [0; Inode::LEN];
    let copy = &mut copy[..fixed.crc_len];
    copy.copy_from_slice(&bytes[..fixed.crc_len]);
    unknown::NODETYPE.put(order, copy, found.as_accurate().0);
    crc32(copy)
}

/// The clean marker of a NAND block, as stored in the first free out-of-band bytes.
#[must_use]
pub fn oob_cleanmarker(order: ByteOrder) -> [u8; 8] {
    let mut bytes = [0; 8];
    let header = Header { node_type: NodeType::CLEANMARKER, total_len: OOB_CLEANMARKER_LEN };
    header.put(header.node_type, order, &mut bytes);
    bytes
}

/// The byte order in which `bytes` start with a node with a valid header checksum.
#[must_use]
pub fn detect(bytes: &[u8]) -> Option<ByteOrder> {
    ByteOrder::ALL.into_iter().find(|&order| Header::parse(bytes, order).is_ok())
}
