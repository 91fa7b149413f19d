//! The volume table, of which the layout volume holds two copies.

use core::fmt;

use super::{NAME_MAX, RECORD_SIZE, VOLUMES_MAX, VolumeKind, crc32};
use crate::field::fields;

fields! {
    /// `struct ubi_vtbl_record`.
    mod vtbl: Big[RECORD_SIZE] {
        RESERVED_PEBS: u32 = 0,
        ALIGNMENT: u32 = 4,
        DATA_PAD: u32 = 8,
        VOL_TYPE: u8 = 12,
        UPD_MARKER: u8 = 13,
        NAME_LEN: u16 = 14,
        NAME: [u8; 128] = 16,
        FLAGS: u8 = 144,
        CRC: u32 = 168,
    }
}

/// Flags of a volume (`UBI_VTBL_*_FLG`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeFlags(pub u8);

impl VolumeFlags {
    /// Grows into all free space at the first attach.
    pub const AUTORESIZE: Self = Self(1);
    /// A static volume whose checksum is not verified at open.
    pub const SKIP_CRC_CHECK: Self = Self(2);

    /// Whether every flag of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// Fewer bytes than a record has.
    Short,
    /// The checksum does not match.
    Crc {
        /// As stored.
        stored: u32,
        /// Of the bytes given.
        computed: u32,
    },
    /// The checksum is right, but the named field has an invalid value.
    Field(&'static str),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the table ends inside the record"),
            Self::Crc { stored, computed } => {
                write!(f, "bad CRC: {stored:#010x} stored, {computed:#010x} computed")
            }
            Self::Field(name) => write!(f, "impossible value in field {name}"),
        }
    }
}

impl core::error::Error for RecordError {}

/// One volume (`ubi_vtbl_record`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Physical erase blocks reserved for it: its size in logical erase blocks.
    pub reserved_pebs: u32,
    /// Logical erase blocks are rounded down to a multiple of this size; not zero.
    pub alignment: u32,
    /// Bytes at the end of each block that the alignment leaves unused.
    pub data_pad: u32,
    /// Kind of volume.
    pub kind: VolumeKind,
    /// An update was started and did not finish: the content must not be used.
    pub update_marker: bool,
    /// Flags.
    pub flags: VolumeFlags,
    name: [u8; NAME_MAX + 1],
    name_len: u8,
}

/// An empty record: zeros and their checksum.
const EMPTY: [u8; RECORD_SIZE] = {
    let (mut bytes, at) = ([0; RECORD_SIZE], vtbl::CRC.start());
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]] = 0xF116_C36B_u32.to_be_bytes();
    bytes
};

impl VolumeRecord {
    /// A dynamic volume with alignment 1 and no flags; `None` if the name is empty, too long or
    /// contains a NUL.
    pub fn new(name: &[u8], reserved_pebs: u32) -> Option<Self> {
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
            return None;
        }
        let mut stored = [0; NAME_MAX + 1];
        stored[..name.len()].copy_from_slice(name);
        Some(Self {
            reserved_pebs,
            alignment: 1,
            data_pad: 0,
            kind: VolumeKind::Dynamic,
            update_marker: false,
            flags: VolumeFlags::default(),
            name: stored,
            name_len: name.len() as u8,
        })
    }

    /// The volume's name.
    pub fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.name_len)]
    }

    /// Reads a record; `None` if it is empty.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, RecordError> {
        let record: &[u8; RECORD_SIZE] = bytes.first_chunk().ok_or(RecordError::Short)?;
        // Nearly all records of a table are empty.
        if *record == EMPTY {
            return Ok(None);
        }
        let (stored, computed) = (vtbl::CRC.get(record), crc32(&record[..vtbl::CRC.start()]));
        if stored != computed {
            return Err(RecordError::Crc { stored, computed });
        }
        let kind = VolumeKind::from_code(vtbl::VOL_TYPE.get(record));
        let (update_marker, name_len) = (vtbl::UPD_MARKER.get(record), vtbl::NAME_LEN.get(record));
        let value = Self {
            reserved_pebs: vtbl::RESERVED_PEBS.get(record),
            alignment: vtbl::ALIGNMENT.get(record),
            data_pad: vtbl::DATA_PAD.get(record),
            kind: kind.ok_or(RecordError::Field("vol_type"))?,
            update_marker: update_marker == 1,
            flags: VolumeFlags(vtbl::FLAGS.get(record)),
            name: vtbl::NAME.get(record),
            name_len: name_len.min(NAME_MAX as u16) as u8,
        };
        let fault = if value.reserved_pebs == 0 {
            Some("reserved_pebs")
        } else if value.alignment == 0 {
            Some("alignment")
        } else if update_marker > 1 {
            Some("upd_marker")
        } else if usize::from(name_len) > NAME_MAX {
            Some("name_len")
        } else if name_len == 0 || value.name().contains(&0) || value.name[value.name().len()] != 0
        {
            Some("name")
        } else {
            None
        };
        fault.map_or(Ok(Some(value)), |field| Err(RecordError::Field(field)))
    }

    /// The record's bytes.
    pub fn emit(&self) -> [u8; RECORD_SIZE] {
        let mut out = [0; RECORD_SIZE];
        vtbl::RESERVED_PEBS.put(&mut out, self.reserved_pebs);
        vtbl::ALIGNMENT.put(&mut out, self.alignment);
        vtbl::DATA_PAD.put(&mut out, self.data_pad);
        vtbl::VOL_TYPE.put(&mut out, self.kind.code());
        vtbl::UPD_MARKER.put(&mut out, u8::from(self.update_marker));
        vtbl::NAME_LEN.put(&mut out, u16::from(self.name_len));
        vtbl::NAME.put(&mut out, self.name);
        vtbl::FLAGS.put(&mut out, self.flags.0);
        let crc = crc32(&out[..vtbl::CRC.start()]);
        vtbl::CRC.put(&mut out, crc);
        out
    }

    /// The bytes of an empty record.
    pub fn emit_empty() -> [u8; RECORD_SIZE] {
        EMPTY
    }
}

/// Records in a volume table whose logical erase blocks have `leb_size` bytes.
pub fn records_max(leb_size: u32) -> u32 {
    (leb_size / RECORD_SIZE as u32).min(VOLUMES_MAX)
}
