//! The two headers at the start of a physical erase block.

use core::fmt;

use super::{
    EC_HEADER_SIZE, EC_MAGIC, ERASE_COUNTER_MAX, INTERNAL_VOLUME_START, VERSION, VID_HEADER_SIZE,
    VID_MAGIC, VOLUMES_MAX, crc32,
};
use crate::field::fields;

fields! {
    /// Fields common to both headers.
    mod both: Big[EC_HEADER_SIZE] {
        MAGIC: u32 = 0,
        VERSION: u8 = 4,
        HDR_CRC: u32 = 60,
    }
}

fields! {
    /// `struct ubi_ec_hdr`, without [`both`].
    mod ec: Big[both::HDR_CRC.start()] {
        EC: u64 = 8,
        VID_HDR_OFFSET: u32 = 16,
        DATA_OFFSET: u32 = 20,
        IMAGE_SEQ: u32 = 24,
    }
}

fields! {
    /// `struct ubi_vid_hdr`, without [`both`].
    mod vid: Big[both::HDR_CRC.start()] {
        VOL_TYPE: u8 = 5,
        COPY_FLAG: u8 = 6,
        COMPAT: u8 = 7,
        VOL_ID: u32 = 8,
        LNUM: u32 = 12,
        DATA_SIZE: u32 = 20,
        USED_EBS: u32 = 24,
        DATA_PAD: u32 = 28,
        DATA_CRC: u32 = 32,
        SQNUM: u64 = 40,
    }
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    Short,
    /// Every byte is 0xFF: nothing was ever written here.
    Erased,
    /// The first word is not the magic number.
    Magic(u32),
    /// The checksum does not match.
    Crc {
        /// As stored.
        stored: u32,
        /// Of the bytes given.
        computed: u32,
    },
    /// A version this implementation does not know.
    Version(u8),
    /// The checksum is right, but the named field has an invalid value.
    Field(&'static str),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the block ends inside the header"),
            Self::Erased => f.write_str("erased"),
            Self::Magic(found) => write!(f, "bad magic {found:#010x}"),
            Self::Crc { stored, computed } => {
                write!(f, "bad CRC: {stored:#010x} stored, {computed:#010x} computed")
            }
            Self::Version(found) => write!(f, "unknown version {found}"),
            Self::Field(name) => write!(f, "impossible value in field {name}"),
        }
    }
}

impl core::error::Error for HeaderError {}

/// Checks what both headers have in common and truncates `bytes` to the header.
fn frame(bytes: &[u8], magic: u32) -> Result<&[u8; 64], HeaderError> {
    let header: &[u8; 64] = bytes.first_chunk().ok_or(HeaderError::Short)?;
    if header.iter().all(|&byte| byte == 0xff) {
        return Err(HeaderError::Erased);
    }
    let found = both::MAGIC.get(header);
    if found != magic {
        return Err(HeaderError::Magic(found));
    }
    let (stored, computed) = (both::HDR_CRC.get(header), crc(header));
    if stored != computed {
        return Err(HeaderError::Crc { stored, computed });
    }
    match both::VERSION.get(header) {
        VERSION => Ok(header),
        unknown => Err(HeaderError::Version(unknown)),
    }
}

/// The checksum of a header, over all bytes before it.
fn crc(header: &[u8; 64]) -> u32 {
    crc32(&header[..both::HDR_CRC.start()])
}

/// Writes the fields common to both headers around those of one of them.
fn finish(mut header: [u8; 64], magic: u32) -> [u8; 64] {
    both::MAGIC.put(&mut header, magic);
    both::VERSION.put(&mut header, VERSION);
    let crc = crc(&header);
    both::HDR_CRC.put(&mut header, crc);
    header
}

/// Erase counter header (`ubi_ec_hdr`), at the start of every physical erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcHeader {
    /// How often the block was erased, at most [`ERASE_COUNTER_MAX`].
    pub erase_counter: u64,
    /// Offset of the volume identifier header, bytes from the start of the block.
    pub vid_header_offset: u32,
    /// Offset of the data, bytes from the start of the block.
    pub data_offset: u32,
    /// Number of the image that wrote this block; the same across the whole device, 0 on old ones.
    pub image_sequence: u32,
}

impl EcHeader {
    /// Reads a header from the start of an erase block.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header = frame(bytes, EC_MAGIC)?;
        let value = Self {
            erase_counter: ec::EC.get(header),
            vid_header_offset: ec::VID_HDR_OFFSET.get(header),
            data_offset: ec::DATA_OFFSET.get(header),
            image_sequence: ec::IMAGE_SEQ.get(header),
        };
        if value.erase_counter > ERASE_COUNTER_MAX {
            return Err(HeaderError::Field("ec"));
        }
        let vid_end = value.vid_header_offset.checked_add(VID_HEADER_SIZE as u32);
        match vid_end {
            _ if value.vid_header_offset < EC_HEADER_SIZE as u32 => {
                Err(HeaderError::Field("vid_hdr_offset"))
            }
            Some(end) if end <= value.data_offset => Ok(value),
            _ => Err(HeaderError::Field("data_offset")),
        }
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; EC_HEADER_SIZE] {
        let mut out = [0; EC_HEADER_SIZE];
        ec::EC.put(&mut out, self.erase_counter);
        ec::VID_HDR_OFFSET.put(&mut out, self.vid_header_offset);
        ec::DATA_OFFSET.put(&mut out, self.data_offset);
        ec::IMAGE_SEQ.put(&mut out, self.image_sequence);
        finish(out, EC_MAGIC)
    }
}

/// Whether a volume's content is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeKind {
    /// Blocks are written and unmapped at will; the data has no checksum.
    Dynamic,
    /// Written once as a whole; every block states the size and checksum of its data.
    Static,
}

impl VolumeKind {
    /// The kind in a `vol_type` byte.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Dynamic),
            2 => Some(Self::Static),
            _ => None,
        }
    }

    /// The `vol_type` byte.
    pub fn code(self) -> u8 {
        match self {
            Self::Dynamic => 1,
            Self::Static => 2,
        }
    }
}

/// How to treat an internal volume of unknown kind (`UBI_COMPAT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compatibility {
    /// A user volume.
    None,
    /// Erase it.
    Delete,
    /// Attach read-only.
    ReadOnly,
    /// Keep it and do not move it.
    Preserve,
    /// Refuse to attach.
    Reject,
    /// Not defined.
    Unknown(u8),
}

impl Compatibility {
    fn from_code(code: u8) -> Self {
        match code {
            0 => Self::None,
            1 => Self::Delete,
            2 => Self::ReadOnly,
            4 => Self::Preserve,
            5 => Self::Reject,
            other => Self::Unknown(other),
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Delete => 1,
            Self::ReadOnly => 2,
            Self::Preserve => 4,
            Self::Reject => 5,
            Self::Unknown(code) => code,
        }
    }
}

/// Volume identifier header (`ubi_vid_hdr`): which logical erase block this physical one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VidHeader {
    /// Kind of the volume.
    pub kind: VolumeKind,
    /// The block was copied from another one, and is valid only if `data_crc` matches its data.
    pub copy: bool,
    /// For internal volumes.
    pub compatibility: Compatibility,
    /// Volume id.
    pub volume: u32,
    /// Logical erase block number inside the volume.
    pub lnum: u32,
    /// Bytes that `data_crc` covers. Dynamic volumes: 0 unless `copy`.
    pub data_size: u32,
    /// Static volumes: logical erase blocks in use.
    pub used_ebs: u32,
    /// Bytes at the end of the block that the volume's alignment leaves unused.
    pub data_pad: u32,
    /// Checksum of the first `data_size` data bytes.
    pub data_crc: u32,
    /// Device-wide counter, incremented for each such header written; the higher is newer.
    pub sequence: u64,
}

impl VidHeader {
    /// Reads a header from the offset given in the erase counter header.
    ///
    /// Everything that can be checked without the block's size is checked; see
    /// [`fits`](Self::fits).
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header = frame(bytes, VID_MAGIC)?;
        let kind = VolumeKind::from_code(vid::VOL_TYPE.get(header));
        let copy_flag = vid::COPY_FLAG.get(header);
        let value = Self {
            kind: kind.ok_or(HeaderError::Field("vol_type"))?,
            copy: copy_flag == 1,
            compatibility: Compatibility::from_code(vid::COMPAT.get(header)),
            volume: vid::VOL_ID.get(header),
            lnum: vid::LNUM.get(header),
            data_size: vid::DATA_SIZE.get(header),
            used_ebs: vid::USED_EBS.get(header),
            data_pad: vid::DATA_PAD.get(header),
            data_crc: vid::DATA_CRC.get(header),
            sequence: vid::SQNUM.get(header),
        };
        if copy_flag > 1 {
            return Err(HeaderError::Field("copy_flag"));
        }
        value.check()?;
        Ok(value)
    }

    fn check(&self) -> Result<(), HeaderError> {
        let internal = self.volume >= INTERNAL_VOLUME_START;
        if self.volume >= VOLUMES_MAX && !internal || self.volume > i32::MAX as u32 {
            return Err(HeaderError::Field("vol_id"));
        }
        let compatibility_fits = match self.compatibility {
            Compatibility::None => !internal,
            Compatibility::Unknown(_) => false,
            _ => internal,
        };
        if !compatibility_fits {
            return Err(HeaderError::Field("compat"));
        }
        if self.lnum > i32::MAX as u32 {
            return Err(HeaderError::Field("lnum"));
        }
        match self.kind {
            VolumeKind::Static if self.used_ebs == 0 || self.lnum >= self.used_ebs => {
                Err(HeaderError::Field("used_ebs"))
            }
            VolumeKind::Static if self.data_size == 0 => Err(HeaderError::Field("data_size")),
            VolumeKind::Dynamic if self.used_ebs != 0 => Err(HeaderError::Field("used_ebs")),
            VolumeKind::Dynamic if self.copy != (self.data_size != 0) => {
                Err(HeaderError::Field("data_size"))
            }
            VolumeKind::Dynamic if !self.copy && self.data_crc != 0 => {
                Err(HeaderError::Field("data_crc"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the sizes fit a logical erase block of `leb_size` bytes.
    pub fn fits(&self, leb_size: u32) -> Result<(), HeaderError> {
        if self.data_pad >= leb_size / 2 {
            return Err(HeaderError::Field("data_pad"));
        }
        let usable = leb_size - self.data_pad;
        let full = self.kind == VolumeKind::Static && self.lnum + 1 < self.used_ebs;
        if self.data_size > usable || full && self.data_size != usable {
            return Err(HeaderError::Field("data_size"));
        }
        Ok(())
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; VID_HEADER_SIZE] {
        let mut out = [0; VID_HEADER_SIZE];
        vid::VOL_TYPE.put(&mut out, self.kind.code());
        vid::COPY_FLAG.put(&mut out, u8::from(self.copy));
        vid::COMPAT.put(&mut out, self.compatibility.code());
        vid::VOL_ID.put(&mut out, self.volume);
        vid::LNUM.put(&mut out, self.lnum);
        vid::DATA_SIZE.put(&mut out, self.data_size);
        vid::USED_EBS.put(&mut out, self.used_ebs);
        vid::DATA_PAD.put(&mut out, self.data_pad);
        vid::DATA_CRC.put(&mut out, self.data_crc);
        vid::SQNUM.put(&mut out, self.sequence);
        finish(out, VID_MAGIC)
    }
}
