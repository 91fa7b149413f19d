//! The two headers at the start of a physical erase block.

use core::fmt;

use super::{
    EC_HEADER_SIZE, EC_MAGIC, ERASE_COUNTER_MAX, INTERNAL_VOLUME_START, VERSION, VID_HEADER_SIZE,
    VID_MAGIC, VOLUMES_MAX, crc32,
};
use crate::bytes::{be32, be64, put};

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    Short,
    /// Every byte is 0xFF: nothing was ever written here.
    Erased,
    /// The first word is something else.
    Magic(u32),
    /// The checksum does not fit.
    Crc {
        /// As stored.
        stored: u32,
        /// Over the bytes that are there.
        computed: u32,
    },
    /// A version this implementation does not know.
    Version(u8),
    /// The checksum is right and the named field has a value it must not have.
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

/// Checks what both headers share and cuts `bytes` to the header.
fn frame(bytes: &[u8], magic: u32) -> Result<&[u8; 64], HeaderError> {
    let header: &[u8; 64] = bytes.first_chunk().ok_or(HeaderError::Short)?;
    if header.iter().all(|&byte| byte == 0xff) {
        return Err(HeaderError::Erased);
    }
    if be32(header, 0) != magic {
        return Err(HeaderError::Magic(be32(header, 0)));
    }
    let (stored, computed) = (be32(header, 60), crc32(&header[..60]));
    if stored != computed {
        return Err(HeaderError::Crc { stored, computed });
    }
    if header[4] != VERSION {
        return Err(HeaderError::Version(header[4]));
    }
    Ok(header)
}

/// Erase counter header (`ubi_ec_hdr`), at the start of every physical erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcHeader {
    /// How often the block was erased, at most [`ERASE_COUNTER_MAX`].
    pub erase_counter: u64,
    /// Where the volume identifier header begins, bytes from the start of the block.
    pub vid_header_offset: u32,
    /// Where the data begins, bytes from the start of the block.
    pub data_offset: u32,
    /// Number of the image this block was written with; one for a whole device, 0 in old ones.
    pub image_sequence: u32,
}

impl EcHeader {
    /// Reads a header from the start of an erase block.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header = frame(bytes, EC_MAGIC)?;
        let value = Self {
            erase_counter: be64(header, 8),
            vid_header_offset: be32(header, 16),
            data_offset: be32(header, 20),
            image_sequence: be32(header, 24),
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
        put(&mut out, 0, EC_MAGIC.to_be_bytes());
        out[4] = VERSION;
        put(&mut out, 8, self.erase_counter.to_be_bytes());
        put(&mut out, 16, self.vid_header_offset.to_be_bytes());
        put(&mut out, 20, self.data_offset.to_be_bytes());
        put(&mut out, 24, self.image_sequence.to_be_bytes());
        let crc = crc32(&out[..60]);
        put(&mut out, 60, crc.to_be_bytes());
        out
    }
}

/// Whether a volume's content is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeKind {
    /// Blocks are written and unmapped at will; no checksum over the data.
    Dynamic,
    /// Written once as a whole, every block with size and checksum of its data.
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

/// What an implementation does with an internal volume it does not know (`UBI_COMPAT_*`).
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
    /// The block was copied from another one; only valid if `data_crc` fits its data.
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
    /// Device-wide counter, one up at each of these headers written; tells newer from older.
    pub sequence: u64,
}

impl VidHeader {
    /// Reads a header from the place the erase counter header names.
    ///
    /// Everything that can be judged without the block's size is checked; see [`fits`](Self::fits).
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header = frame(bytes, VID_MAGIC)?;
        let kind = VolumeKind::from_code(header[5]).ok_or(HeaderError::Field("vol_type"))?;
        let value = Self {
            kind,
            copy: header[6] == 1,
            compatibility: Compatibility::from_code(header[7]),
            volume: be32(header, 8),
            lnum: be32(header, 12),
            data_size: be32(header, 20),
            used_ebs: be32(header, 24),
            data_pad: be32(header, 28),
            data_crc: be32(header, 32),
            sequence: be64(header, 40),
        };
        if header[6] > 1 {
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
        put(&mut out, 0, VID_MAGIC.to_be_bytes());
        out[4] = VERSION;
        out[5] = self.kind.code();
        out[6] = u8::from(self.copy);
        out[7] = self.compatibility.code();
        put(&mut out, 8, self.volume.to_be_bytes());
        put(&mut out, 12, self.lnum.to_be_bytes());
        put(&mut out, 20, self.data_size.to_be_bytes());
        put(&mut out, 24, self.used_ebs.to_be_bytes());
        put(&mut out, 28, self.data_pad.to_be_bytes());
        put(&mut out, 32, self.data_crc.to_be_bytes());
        put(&mut out, 40, self.sequence.to_be_bytes());
        let crc = crc32(&out[..60]);
        put(&mut out, 60, crc.to_be_bytes());
        out
    }
}
