//! Inode and directory entry nodes.

use crate::code::code;

use super::{ByteOrder, Error, Fixed, Header, NAME_LEN_MAX, NodeType, check_fixed, crc32};

code! {
    /// How the data of an inode node is stored (`JFFS2_COMPR_*`).
    pub enum Compression: u8 {
        /// As it is.
        None = 0 => "none",
        /// Nothing is stored, everything is zero.
        Zero = 1 => "zero",
        /// Repeats of earlier bytes, a scheme of JFFS2's own.
        Rtime = 2 => "rtime",
        /// Linux stores its dynamic Rubin coder under this number, crosswise to the name.
        RubinMips = 3 => "rubinmips",
        /// Reserved, never written.
        Copy = 4 => "copy",
        /// Linux stores its fixed-table Rubin coder under this number, crosswise to the name.
        DynRubin = 5 => "dynrubin",
        /// zlib with header (RFC 1950).
        Zlib = 6 => "zlib",
        /// LZO1X.
        Lzo = 7 => "lzo",
        /// LZMA, only in kernels patched by OpenWrt.
        Lzma = 8 => "lzma",
    }
}

/// An inode node: all attributes of a file and a piece of its data (`struct jffs2_raw_inode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Inode number.
    pub ino: u32,
    /// Counts up with every node of this inode; the higher one is the newer one.
    pub version: u32,
    /// `st_mode`: type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u16,
    /// Group.
    pub gid: u16,
    /// Length of the whole file, bytes.
    pub isize: u32,
    /// Last access, seconds since 1970.
    pub atime: u32,
    /// Last change of content.
    pub mtime: u32,
    /// Last change of attributes.
    pub ctime: u32,
    /// Where in the file this data belongs, bytes.
    pub offset: u32,
    /// Bytes stored in this node.
    pub csize: u32,
    /// Bytes of the file they stand for.
    pub dsize: u32,
    /// How they are stored.
    pub compression: Compression,
    /// The compression the user asked for.
    pub user_compression: u8,
    /// `JFFS2_INO_FLAG_*`: 1 read at mount, 2 `user_compression` counts.
    pub flags: u16,
    /// Checksum of the stored bytes.
    pub data_crc: u32,
}

impl Inode {
    /// Bytes before the data.
    pub const LEN: usize = 68;
    const FIXED: Fixed = Fixed { len: Self::LEN, crc_at: 64, crc_len: 60 };

    /// Reads the fixed part of an inode node; `bytes` need not hold the data. Obsolete nodes pass.
    ///
    /// # Errors
    /// What is wrong with the header or the fixed part; [`Error::Length`] when the data would not
    /// fit into the node.
    #[inline]
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Error> {
        let header = check_fixed(bytes, order, NodeType::INODE, Self::FIXED)?;
        let inode = Self::fields(bytes, order);
        if u64::from(inode.stored_len()) > u64::from(header.total_len) - Self::LEN as u64 {
            return Err(Error::Length);
        }
        Ok(inode)
    }

    /// Reads the fields of a damaged node, to tell which file it once belonged to. `None` when the
    /// bytes are too few.
    pub fn parse_unchecked(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        (bytes.len() >= Self::LEN).then(|| Self::fields(bytes, order))
    }

    fn fields(bytes: &[u8], order: ByteOrder) -> Self {
        Self {
            ino: order.u32(bytes, 12),
            version: order.u32(bytes, 16),
            mode: order.u32(bytes, 20),
            uid: order.u16(bytes, 24),
            gid: order.u16(bytes, 26),
            isize: order.u32(bytes, 28),
            atime: order.u32(bytes, 32),
            mtime: order.u32(bytes, 36),
            ctime: order.u32(bytes, 40),
            offset: order.u32(bytes, 44),
            csize: order.u32(bytes, 48),
            dsize: order.u32(bytes, 52),
            compression: Compression::from(bytes[56]),
            user_compression: bytes[57],
            flags: order.u16(bytes, 58),
            data_crc: order.u32(bytes, 60),
        }
    }

    /// Bytes behind the fixed part. A hole stores none, whatever `csize` says: an old kernel wrote
    /// hole nodes with `csize` and `dsize` swapped.
    #[must_use]
    pub fn stored_len(&self) -> u32 {
        if self.is_swapped_hole() { 0 } else { self.csize }
    }

    /// Bytes of the file this node stands for.
    #[must_use]
    pub fn data_len(&self) -> u32 {
        if self.is_swapped_hole() { self.csize } else { self.dsize }
    }

    fn is_swapped_hole(&self) -> bool {
        self.compression == Compression::Zero && self.dsize == 0 && self.csize != 0
    }

    /// The stored bytes of the node that `node` starts with.
    ///
    /// # Errors
    /// [`Error::Truncated`] when they are not all there, [`Error::DataCrc`].
    #[inline]
    pub fn data<'a>(&self, node: &'a [u8]) -> Result<&'a [u8], Error> {
        let rest = node.get(Self::LEN..).ok_or(Error::Truncated)?;
        let data = rest.get(..self.stored_len() as usize).ok_or(Error::Truncated)?;
        if crc32(data) != self.data_crc {
            return Err(Error::DataCrc);
        }
        Ok(data)
    }

    /// Writes the node with `data` behind it; returns its length. `csize` and `data_crc` are those
    /// of `data`, not those of `self`.
    ///
    /// # Panics
    /// When `out` is shorter than `Inode::LEN + data.len()`.
    pub fn emit(&self, data: &[u8], order: ByteOrder, out: &mut [u8]) -> usize {
        let total = Self::LEN + data.len();
        let header = Header { node_type: NodeType::INODE, total_len: total as u32 };
        header.emit(order, out);
        order.put_u32(out, 12, self.ino);
        order.put_u32(out, 16, self.version);
        order.put_u32(out, 20, self.mode);
        order.put_u16(out, 24, self.uid);
        order.put_u16(out, 26, self.gid);
        order.put_u32(out, 28, self.isize);
        order.put_u32(out, 32, self.atime);
        order.put_u32(out, 36, self.mtime);
        order.put_u32(out, 40, self.ctime);
        order.put_u32(out, 44, self.offset);
        order.put_u32(out, 48, data.len() as u32);
        order.put_u32(out, 52, self.dsize);
        out[56] = self.compression.into();
        out[57] = self.user_compression;
        order.put_u16(out, 58, self.flags);
        order.put_u32(out, 60, crc32(data));
        order.put_u32(out, 64, crc32(&out[..60]));
        out[Self::LEN..total].copy_from_slice(data);
        total
    }
}

/// A directory entry node (`struct jffs2_raw_dirent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// The directory's inode number.
    pub pino: u32,
    /// The directory's version counter; of two entries with one name the higher one counts.
    pub version: u32,
    /// The inode it names; 0 says that the name was removed.
    pub ino: u32,
    /// When the directory was changed, seconds since 1970.
    pub mctime: u32,
    /// Bytes of the name.
    pub nsize: u8,
    /// `DT_*`: the type bits of the mode, shifted right by 12.
    pub kind: u8,
    /// Checksum of the name.
    pub name_crc: u32,
}

impl Dirent {
    /// Bytes before the name.
    pub const LEN: usize = 40;
    const FIXED: Fixed = Fixed { len: Self::LEN, crc_at: 32, crc_len: 32 };

    /// Reads the fixed part of a directory entry node. Obsolete nodes pass.
    ///
    /// # Errors
    /// What is wrong with the header or the fixed part; [`Error::Length`] when the name would not
    /// fit into the node.
    #[inline]
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Error> {
        let header = check_fixed(bytes, order, NodeType::DIRENT, Self::FIXED)?;
        let dirent = Self::fields(bytes, order);
        if u32::from(dirent.nsize) > header.total_len - Self::LEN as u32 {
            return Err(Error::Length);
        }
        Ok(dirent)
    }

    /// Reads the fields of a damaged node, to tell which file it once named. `None` when the bytes
    /// are too few.
    pub fn parse_unchecked(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        (bytes.len() >= Self::LEN).then(|| Self::fields(bytes, order))
    }

    fn fields(bytes: &[u8], order: ByteOrder) -> Self {
        Self {
            pino: order.u32(bytes, 12),
            version: order.u32(bytes, 16),
            ino: order.u32(bytes, 20),
            mctime: order.u32(bytes, 24),
            nsize: bytes[28],
            kind: bytes[29],
            name_crc: order.u32(bytes, 36),
        }
    }

    /// The name in the node that `node` starts with.
    ///
    /// # Errors
    /// [`Error::Truncated`] when it is not all there, [`Error::NameCrc`].
    #[inline]
    pub fn name<'a>(&self, node: &'a [u8]) -> Result<&'a [u8], Error> {
        let rest = node.get(Self::LEN..).ok_or(Error::Truncated)?;
        let name = rest.get(..usize::from(self.nsize)).ok_or(Error::Truncated)?;
        if crc32(name) != self.name_crc {
            return Err(Error::NameCrc);
        }
        Ok(name)
    }

    /// Writes the node with `name` behind it; returns its length. `nsize` and `name_crc` are those
    /// of `name`, not those of `self`.
    ///
    /// # Panics
    /// When `name` is longer than [`NAME_LEN_MAX`] or `out` shorter than the node.
    pub fn emit(&self, name: &[u8], order: ByteOrder, out: &mut [u8]) -> usize {
        assert!(name.len() <= NAME_LEN_MAX, "a JFFS2 name has at most 254 bytes");
        let total = Self::LEN + name.len();
        let header = Header { node_type: NodeType::DIRENT, total_len: total as u32 };
        header.emit(order, out);
        order.put_u32(out, 12, self.pino);
        order.put_u32(out, 16, self.version);
        order.put_u32(out, 20, self.ino);
        order.put_u32(out, 24, self.mctime);
        out[28] = name.len() as u8;
        out[29] = self.kind;
        out[30..32].fill(0);
        order.put_u32(out, 32, crc32(&out[..32]));
        order.put_u32(out, 36, crc32(name));
        out[Self::LEN..total].copy_from_slice(name);
        total
    }
}
