//! Inode and directory entry nodes.

use super::{ByteOrder, Fixed, Header, Jffs2NodeError, NAME_LEN_MAX, NodeType, check_fixed, crc32};
use crate::code::code;
use crate::field::fields;

fields! {
    /// `struct jffs2_raw_inode`, after the header.
    mod raw_inode: Native[Inode::LEN] {
        INO: u32 = 12,
        VERSION: u32 = 16,
        MODE: u32 = 20,
        UID: u16 = 24,
        GID: u16 = 26,
        ISIZE: u32 = 28,
        ATIME: u32 = 32,
        MTIME: u32 = 36,
        CTIME: u32 = 40,
        OFFSET: u32 = 44,
        CSIZE: u32 = 48,
        DSIZE: u32 = 52,
        COMPR: u8 = 56,
        USERCOMPR: u8 = 57,
        FLAGS: u16 = 58,
        DATA_CRC: u32 = 60,
        NODE_CRC: u32 = 64,
    }
}

fields! {
    /// `struct jffs2_raw_dirent`, after the header.
    mod raw_dirent: Native[Dirent::LEN] {
        PINO: u32 = 12,
        VERSION: u32 = 16,
        INO: u32 = 20,
        MCTIME: u32 = 24,
        NSIZE: u8 = 28,
        TYPE: u8 = 29,
        UNUSED: [u8; 2] = 30,
        NODE_CRC: u32 = 32,
        NAME_CRC: u32 = 36,
    }
}

code! {
    /// How the data of an inode node is stored (`JFFS2_COMPR_*`).
    pub enum Compression: u8 {
        /// Uncompressed.
        None = 0 => "none",
        /// Nothing is stored; all bytes are zero.
        Zero = 1 => "zero",
        /// Repeats of earlier bytes, JFFS2's own scheme.
        Rtime = 2 => "rtime",
        /// Despite the name, Linux uses this number for its dynamic Rubin coder.
        RubinMips = 3 => "rubinmips",
        /// Reserved, never written.
        Copy = 4 => "copy",
        /// Despite the name, Linux uses this number for its fixed-table Rubin coder.
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
    /// Incremented with every node of this inode; the node with the higher one is newer.
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
    /// Bytes of the file that they represent.
    pub dsize: u32,
    /// How they are stored.
    pub compression: Compression,
    /// The compression the user asked for.
    pub user_compression: u8,
    /// `JFFS2_INO_FLAG_*`: 1 read at mount, 2 `user_compression` is valid.
    pub flags: u16,
    /// Checksum of the stored bytes.
    pub data_crc: u32,
}

impl Inode {
    /// Bytes before the data.
    pub const LEN: usize = 68;
    const FIXED: Fixed =
        Fixed { len: Self::LEN, crc: raw_inode::NODE_CRC, crc_len: raw_inode::DATA_CRC.start() };

    /// Reads the fixed part of an inode node; `bytes` need not hold the data. Obsolete nodes pass.
    ///
    /// # Errors
    /// If the header or the fixed part is not valid; [`Jffs2NodeError::Length`] when the data does
    /// not fit into the node.
    #[inline]
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Jffs2NodeError> {
        let header = check_fixed(bytes, order, NodeType::INODE, Self::FIXED)?;
        let inode = Self::fields(bytes, order);
        if u64::from(inode.stored_len()) > u64::from(header.total_len) - Self::LEN as u64 {
            return Err(Jffs2NodeError::Length);
        }
        Ok(inode)
    }

    /// Reads the fields of a damaged node, to find out which file it belonged to. `None` when there
    /// are too few bytes.
    pub fn parse_unchecked(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        (bytes.len() >= Self::LEN).then(|| Self::fields(bytes, order))
    }

    fn fields(bytes: &[u8], order: ByteOrder) -> Self {
        Self {
            ino: raw_inode::INO.get(order, bytes),
            version: raw_inode::VERSION.get(order, bytes),
            mode: raw_inode::MODE.get(order, bytes),
            uid: raw_inode::UID.get(order, bytes),
            gid: raw_inode::GID.get(order, bytes),
            isize: raw_inode::ISIZE.get(order, bytes),
            atime: raw_inode::ATIME.get(order, bytes),
            mtime: raw_inode::MTIME.get(order, bytes),
            ctime: raw_inode::CTIME.get(order, bytes),
            offset: raw_inode::OFFSET.get(order, bytes),
            csize: raw_inode::CSIZE.get(order, bytes),
            dsize: raw_inode::DSIZE.get(order, bytes),
            compression: Compression::from(raw_inode::COMPR.get(order, bytes)),
            user_compression: raw_inode::USERCOMPR.get(order, bytes),
            flags: raw_inode::FLAGS.get(order, bytes),
            data_crc: raw_inode::DATA_CRC.get(order, bytes),
        }
    }

    /// Bytes stored after the fixed part. A hole stores none, whatever `csize` says: an old kernel
    /// wrote hole nodes with `csize` and `dsize` swapped.
    #[must_use]
    pub fn stored_len(&self) -> u32 {
        if self.is_swapped_hole() { 0 } else { self.csize }
    }

    /// Bytes of the file that this node represents.
    #[must_use]
    pub fn data_len(&self) -> u32 {
        if self.is_swapped_hole() { self.csize } else { self.dsize }
    }

    fn is_swapped_hole(&self) -> bool {
        self.compression == Compression::Zero && self.dsize == 0 && self.csize != 0
    }

    /// The stored bytes of the node at the start of `node`.
    ///
    /// # Errors
    /// [`Jffs2NodeError::Truncated`] when some are missing, [`Jffs2NodeError::DataCrc`].
    #[inline]
    pub fn data<'a>(&self, node: &'a [u8]) -> Result<&'a [u8], Jffs2NodeError> {
        let rest = node.get(Self::LEN..).ok_or(Jffs2NodeError::Truncated)?;
        let data = rest.get(..self.stored_len() as usize).ok_or(Jffs2NodeError::Truncated)?;
        if crc32(data) != self.data_crc {
            return Err(Jffs2NodeError::DataCrc);
        }
        Ok(data)
    }

    /// Writes the node followed by `data`; returns its length. `csize` and `data_crc` are taken
    /// from `data`, not from `self`.
    ///
    /// # Panics
    /// When `out` is shorter than `Inode::LEN + data.len()`.
    pub fn emit(&self, data: &[u8], order: ByteOrder, out: &mut [u8]) -> usize {
        let total = Self::LEN + data.len();
        let header = Header { node_type: NodeType::INODE, total_len: total as u32 };
        header.emit(order, out);
        raw_inode::INO.put(order, out, self.ino);
        raw_inode::VERSION.put(order, out, self.version);
        raw_inode::MODE.put(order, out, self.mode);
        raw_inode::UID.put(order, out, self.uid);
        raw_inode::GID.put(order, out, self.gid);
        raw_inode::ISIZE.put(order, out, self.isize);
        raw_inode::ATIME.put(order, out, self.atime);
        raw_inode::MTIME.put(order, out, self.mtime);
        raw_inode::CTIME.put(order, out, self.ctime);
        raw_inode::OFFSET.put(order, out, self.offset);
        raw_inode::CSIZE.put(order, out, data.len() as u32);
        raw_inode::DSIZE.put(order, out, self.dsize);
        raw_inode::COMPR.put(order, out, self.compression.into());
        raw_inode::USERCOMPR.put(order, out, self.user_compression);
        raw_inode::FLAGS.put(order, out, self.flags);
        raw_inode::DATA_CRC.put(order, out, crc32(data));
        Self::FIXED.seal(order, out);
        out[Self::LEN..total].copy_from_slice(data);
        total
    }
}

/// A directory entry node (`struct jffs2_raw_dirent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// The directory's inode number.
    pub pino: u32,
    /// The directory's version counter; of two entries with the same name the higher one is valid.
    pub version: u32,
    /// The inode it names; 0 if the name was removed.
    pub ino: u32,
    /// When the directory changed, seconds since 1970.
    pub mctime: u32,
    /// Bytes in the name.
    pub nsize: u8,
    /// `DT_*`: the type bits of the mode, shifted right by 12.
    pub kind: u8,
    /// Checksum of the name.
    pub name_crc: u32,
}

impl Dirent {
    /// Bytes before the name.
    pub const LEN: usize = 40;
    const FIXED: Fixed =
        Fixed { len: Self::LEN, crc: raw_dirent::NODE_CRC, crc_len: raw_dirent::NODE_CRC.start() };

    /// Reads the fixed part of a directory entry node. Obsolete nodes pass.
    ///
    /// # Errors
    /// If the header or the fixed part is not valid; [`Jffs2NodeError::Length`] when the name does
    /// not fit into the node.
    #[inline]
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Jffs2NodeError> {
        let header = check_fixed(bytes, order, NodeType::DIRENT, Self::FIXED)?;
        let dirent = Self::fields(bytes, order);
        if u32::from(dirent.nsize) > header.total_len - Self::LEN as u32 {
            return Err(Jffs2NodeError::Length);
        }
        Ok(dirent)
    }

    /// Reads the fields of a damaged node, to find out which file it named. `None` when there are
    /// too few bytes.
    pub fn parse_unchecked(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        (bytes.len() >= Self::LEN).then(|| Self::fields(bytes, order))
    }

    fn fields(bytes: &[u8], order: ByteOrder) -> Self {
        Self {
            pino: raw_dirent::PINO.get(order, bytes),
            version: raw_dirent::VERSION.get(order, bytes),
            ino: raw_dirent::INO.get(order, bytes),
            mctime: raw_dirent::MCTIME.get(order, bytes),
            nsize: raw_dirent::NSIZE.get(order, bytes),
            kind: raw_dirent::TYPE.get(order, bytes),
            name_crc: raw_dirent::NAME_CRC.get(order, bytes),
        }
    }

    /// The name of the node at the start of `node`.
    ///
    /// # Errors
    /// [`Jffs2NodeError::Truncated`] when it is incomplete, [`Jffs2NodeError::NameCrc`].
    #[inline]
    pub fn name<'a>(&self, node: &'a [u8]) -> Result<&'a [u8], Jffs2NodeError> {
        let rest = node.get(Self::LEN..).ok_or(Jffs2NodeError::Truncated)?;
        let name = rest.get(..usize::from(self.nsize)).ok_or(Jffs2NodeError::Truncated)?;
        if crc32(name) != self.name_crc {
            return Err(Jffs2NodeError::NameCrc);
        }
        Ok(name)
    }

    /// Writes the node followed by `name`; returns its length. `nsize` and `name_crc` are taken
    /// from `name`, not from `self`.
    ///
    /// # Panics
    /// When `name` is longer than [`NAME_LEN_MAX`] or `out` shorter than the node.
    pub fn emit(&self, name: &[u8], order: ByteOrder, out: &mut [u8]) -> usize {
        assert!(name.len() <= NAME_LEN_MAX, "a JFFS2 name has at most 254 bytes");
        let total = Self::LEN + name.len();
        let header = Header { node_type: NodeType::DIRENT, total_len: total as u32 };
        header.emit(order, out);
        raw_dirent::PINO.put(order, out, self.pino);
        raw_dirent::VERSION.put(order, out, self.version);
        raw_dirent::INO.put(order, out, self.ino);
        raw_dirent::MCTIME.put(order, out, self.mctime);
        raw_dirent::NSIZE.put(order, out, name.len() as u8);
        raw_dirent::TYPE.put(order, out, self.kind);
        raw_dirent::UNUSED.put(order, out, [0; 2]);
        raw_dirent::NAME_CRC.put(order, out, crc32(name));
        Self::FIXED.seal(order, out);
        out[Self::LEN..total].copy_from_slice(name);
        total
    }
}
