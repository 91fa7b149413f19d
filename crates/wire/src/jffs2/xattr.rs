//! Extended attribute nodes: a value is stored once, and each inode that has it refers to it.

use super::{ALIGNMENT, ByteOrder, Fixed, Header, Jffs2NodeError, NodeType, check_fixed, crc32};
use crate::code::code;
use crate::field::fields;

fields! {
    /// `struct jffs2_raw_xattr`, after the header.
    mod raw_xattr: Native[Xattr::LEN] {
        XID: u32 = 12,
        VERSION: u32 = 16,
        XPREFIX: u8 = 20,
        NAME_LEN: u8 = 21,
        VALUE_LEN: u16 = 22,
        DATA_CRC: u32 = 24,
        NODE_CRC: u32 = 28,
    }
}

fields! {
    /// `struct jffs2_raw_xref`, after the header.
    mod raw_xref: Native[Xref::LEN] {
        INO: u32 = 12,
        XID: u32 = 16,
        XSEQNO: u32 = 20,
        NODE_CRC: u32 = 24,
    }
}

code! {
    /// The namespace of an extended attribute (`JFFS2_XPREFIX_*`), by the start of the full name.
    pub enum XattrPrefix: u8 {
        /// Of users.
        User = 1 => "user.",
        /// Of security modules.
        Security = 2 => "security.",
        /// The access control list; has no further name.
        AclAccess = 3 => "system.posix_acl_access",
        /// The default access control list of a directory; has no further name.
        AclDefault = 4 => "system.posix_acl_default",
        /// Of the superuser.
        Trusted = 5 => "trusted.",
    }
}

/// An extended attribute (`struct jffs2_raw_xattr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Its number, which [`Xref`]s refer to.
    pub xid: u32,
    /// Of two nodes with the same number, the one with the higher version is valid.
    pub version: u32,
    /// Namespace.
    pub prefix: XattrPrefix,
    /// Bytes in the name after the namespace, without the NUL that follows it.
    pub name_len: u8,
    /// Bytes in the value.
    pub value_len: u16,
    /// Checksum of name, NUL and value.
    pub data_crc: u32,
}

impl Xattr {
    /// Bytes before the name.
    pub const LEN: usize = 32;
    const FIXED: Fixed =
        Fixed { len: Self::LEN, crc: raw_xattr::NODE_CRC, crc_len: raw_xattr::NODE_CRC.start() };

    /// Reads the fixed part of an xattr node. Obsolete nodes pass.
    ///
    /// # Errors
    /// If the header or the fixed part is not valid; [`Jffs2NodeError::Length`] when name and value
    /// do not fit into the node.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Jffs2NodeError> {
        let header = check_fixed(bytes, order, NodeType::XATTR, Self::FIXED)?;
        let xattr = Self {
            xid: raw_xattr::XID.get(order, bytes),
            version: raw_xattr::VERSION.get(order, bytes),
            prefix: XattrPrefix::from(raw_xattr::XPREFIX.get(order, bytes)),
            name_len: raw_xattr::NAME_LEN.get(order, bytes),
            value_len: raw_xattr::VALUE_LEN.get(order, bytes),
            data_crc: raw_xattr::DATA_CRC.get(order, bytes),
        };
        if xattr.payload_len() > header.total_len as usize - Self::LEN {
            return Err(Jffs2NodeError::Length);
        }
        Ok(xattr)
    }

    fn payload_len(&self) -> usize {
        usize::from(self.name_len) + 1 + usize::from(self.value_len)
    }

    /// Name and value of the node at the start of `node`.
    ///
    /// # Errors
    /// [`Jffs2NodeError::Truncated`] when they are incomplete, [`Jffs2NodeError::DataCrc`].
    pub fn name_and_value<'a>(
        &self,
        node: &'a [u8],
    ) -> Result<(&'a [u8], &'a [u8]), Jffs2NodeError> {
        let rest = node.get(Self::LEN..).ok_or(Jffs2NodeError::Truncated)?;
        let payload = rest.get(..self.payload_len()).ok_or(Jffs2NodeError::Truncated)?;
        if crc32(payload) != self.data_crc {
            return Err(Jffs2NodeError::DataCrc);
        }
        let (name, value) = payload.split_at(usize::from(self.name_len));
        Ok((name, &value[1..]))
    }

    /// Length of a node with a name and a value of these lengths. Unlike that of other nodes, it
    /// includes the padding: Linux skips a node whose length does not.
    #[must_use]
    pub const fn node_len(name_len: usize, value_len: usize) -> usize {
        (Self::LEN + name_len + 1 + value_len).next_multiple_of(ALIGNMENT)
    }

    /// Writes the node followed by `name`, a NUL, `value` and padding; returns its length. Lengths
    /// and `data_crc` are taken from the arguments, not from `self`.
    ///
    /// # Panics
    /// When `name` is longer than 255 bytes, `value` longer than 65535, or `out` shorter than the
    /// node.
    pub fn emit(&self, name: &[u8], value: &[u8], order: ByteOrder, out: &mut [u8]) -> usize {
        let name_len = u8::try_from(name.len()).expect("an xattr name has at most 255 bytes");
        let value_len = u16::try_from(value.len()).expect("an xattr value has at most 65535 bytes");
        let name_end = Self::LEN + name.len();
        let end = name_end + 1 + value.len();
        let total = Self::node_len(name.len(), value.len());
        Header { node_type: NodeType::XATTR, total_len: total as u32 }.emit(order, out);
        out[Self::LEN..name_end].copy_from_slice(name);
        out[name_end] = 0;
        out[name_end + 1..end].copy_from_slice(value);
        out[end..total].fill(0xFF);
        raw_xattr::XID.put(order, out, self.xid);
        raw_xattr::VERSION.put(order, out, self.version);
        raw_xattr::XPREFIX.put(order, out, self.prefix.into());
        raw_xattr::NAME_LEN.put(order, out, name_len);
        raw_xattr::VALUE_LEN.put(order, out, value_len);
        let data_crc = crc32(&out[Self::LEN..end]);
        raw_xattr::DATA_CRC.put(order, out, data_crc);
        Self::FIXED.seal(order, out);
        total
    }
}

/// "This inode has this attribute" (`struct jffs2_raw_xref`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xref {
    /// The inode.
    pub ino: u32,
    /// The attribute.
    pub xid: u32,
    /// Incremented in steps of two; bit 0 is set if the attribute was removed. Of two nodes with
    /// the same inode and attribute the higher number is valid.
    pub xseqno: u32,
}

impl Xref {
    /// Bytes in the node.
    pub const LEN: usize = 28;
    /// Bit of [`Xref::xseqno`]: the attribute was removed (`XREF_DELETE_MARKER`).
    pub const DELETE_MARKER: u32 = 1;
    const FIXED: Fixed =
        Fixed { len: Self::LEN, crc: raw_xref::NODE_CRC, crc_len: raw_xref::NODE_CRC.start() };

    /// Reads an xref node. Obsolete nodes pass.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Jffs2NodeError> {
        check_fixed(bytes, order, NodeType::XREF, Self::FIXED)?;
        Ok(Self {
            ino: raw_xref::INO.get(order, bytes),
            xid: raw_xref::XID.get(order, bytes),
            xseqno: raw_xref::XSEQNO.get(order, bytes),
        })
    }

    /// Whether the attribute was removed.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.xseqno & Self::DELETE_MARKER != 0
    }

    /// Writes the node; returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Xref::LEN`].
    pub fn emit(&self, order: ByteOrder, out: &mut [u8]) -> usize {
        Header { node_type: NodeType::XREF, total_len: Self::LEN as u32 }.emit(order, out);
        raw_xref::INO.put(order, out, self.ino);
        raw_xref::XID.put(order, out, self.xid);
        raw_xref::XSEQNO.put(order, out, self.xseqno);
        Self::FIXED.seal(order, out);
        Self::LEN
    }
}
