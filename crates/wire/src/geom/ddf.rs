//! Metadata of DDF (SNIA Common RAID Disk Data Format, 1.2 and 2.0): its records.
//!
//! The anchor is in the last sector and names the primary and the secondary header. Each header is
//! followed by its sections, whose positions it gives relative to itself. All numbers are big
//! endian; sectors have 512 bytes. Layouts were checked against mdadm's `super-ddf.c`.

use crate::WireError;
use crate::bytes::{array, be16, be32, be64, put};

/// Bytes per sector.
pub const SECTOR: usize = 512;
/// Magic of headers.
pub const HEADER: u32 = 0xDE11_DE11;
/// Magic of the table of disks.
pub const PHYSICAL_RECORDS: u32 = 0x2222_2222;
/// Magic of the table of volumes.
pub const VIRTUAL_RECORDS: u32 = 0xDDDD_DDDD;
/// Magic of the configuration of a volume.
pub const CONFIGURATION: u32 = 0xEEEE_EEEE;
/// Magic of the data about the disk itself.
pub const DISK_DATA: u32 = 0x3333_3333;
/// Magic of the data about the controller.
pub const CONTROLLER: u32 = 0xAD11_1111;
/// Magic of the spare assignment: the volumes for which a disk is a spare.
pub const SPARE_ASSIGNMENT: u32 = 0x5555_5555;
/// No address.
pub const NOWHERE: u64 = u64::MAX;
/// No disk.
pub const NO_DISK: u32 = u32::MAX;
/// Offset of the CRC in every record; it is computed with all ones there.
pub const CRC_AT: usize = 4;

/// An identifier.
pub type Guid = [u8; 24];

/// The magic number of a record.
///
/// # Errors
/// If it is shorter than a sector.
pub fn magic(bytes: &[u8]) -> Result<u32, WireError> {
    WireError::check_len(bytes, SECTOR)?;
    Ok(be32(bytes, 0))
}

/// A header: the anchor, the primary or the secondary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Distinguishes sets of disks.
    pub guid: Guid,
    /// `01.02.00` or `02.00.00`.
    pub revision: [u8; 8],
    /// Incremented on every write.
    pub sequence: u32,
    /// The header is being written.
    pub open: bool,
    /// Sector of the primary header.
    pub primary: u64,
    /// Sector of the secondary header, or [`NOWHERE`].
    pub secondary: u64,
    /// 0 for the anchor, 1 for the primary header, 2 for the secondary.
    pub kind: u8,
    /// Sectors of the configuration of one volume.
    pub configuration_len: u16,
    /// Maximum number of members of a volume.
    pub members_max: u16,
    /// Controller data: first sector after the header, number of sectors. The other sections are
    /// given likewise.
    pub controller: (u32, u32),
    /// The table of disks.
    pub physical: (u32, u32),
    /// The table of volumes.
    pub virtuals: (u32, u32),
    /// The configurations of the volumes on this disk.
    pub configurations: (u32, u32),
    /// Data about this disk.
    pub data: (u32, u32),
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// If it is not valid; the CRC is not checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if magic(bytes)? != HEADER {
            return Err(WireError::BadField("magic"));
        }
        let section = |at: usize| (be32(bytes, at), be32(bytes, at + 4));
        let this = Self {
            guid: array(bytes, 8),
            revision: array(bytes, 32),
            sequence: be32(bytes, 40),
            open: bytes[48] != 0,
            primary: be64(bytes, 96),
            secondary: be64(bytes, 104),
            kind: bytes[112],
            configuration_len: be16(bytes, 134),
            members_max: be16(bytes, 136),
            controller: section(192),
            physical: section(200),
            virtuals: section(208),
            configurations: section(216),
            data: section(224),
        };
        if !matches!(&this.revision, b"01.02.00" | b"02.00.00") {
            return Err(WireError::BadField("revision"));
        }
        Ok(this)
    }

    /// The sector of a new anchor without positions and CRC: tables of 15 disks and 15 volumes,
    /// configurations of 7 volumes with up to 16 members on each disk.
    #[must_use]
    pub fn anchor(guid: Guid) -> [u8; SECTOR] {
        let mut bytes = [0xFF; SECTOR];
        put(&mut bytes, 0, HEADER.to_be_bytes());
        put(&mut bytes, 8, guid);
        put(&mut bytes, 32, *b"01.02.00");
        // Sequence, time.
        put(&mut bytes, 40, [0; 8]);
        // Not foreign, no groups enforced.
        put(&mut bytes, 49, [0; 2]);
        put(&mut bytes, 116, 32768_u32.to_be_bytes());
        let numbers: [u16; 5] = [15, 15, 7, 2, 16];
        for (at, number) in (128..).step_by(2).zip(numbers) {
            put(&mut bytes, at, number.to_be_bytes());
        }
        // Controller, disks, volumes, configurations, data, bad blocks, diagnostics, vendor.
        let nowhere = (u32::MAX, 0_u32);
        let sections = [(1, 1), (2, 2), (4, 2), (6, 16), (22, 1), nowhere, nowhere, nowhere];
        for (at, (first, count)) in (192..).step_by(8).zip(sections) {
            put(&mut bytes, at, first.to_be_bytes());
            put(&mut bytes, at + 4, count.to_be_bytes());
        }
        bytes
    }

    /// Writes the sectors of the primary and the secondary header and of the workspace into a
    /// header.
    pub fn set_places(bytes: &mut [u8], [primary, secondary, workspace]: [u64; 3]) {
        put(bytes, 96, primary.to_be_bytes());
        put(bytes, 104, secondary.to_be_bytes());
        put(bytes, 120, workspace.to_be_bytes());
    }

    /// The sector of the workspace.
    #[must_use]
    pub fn workspace(bytes: &[u8]) -> u64 {
        be64(bytes, 120)
    }

    /// Makes a header the anchor (0), the primary (1) or the secondary (2).
    pub fn set_kind(bytes: &mut [u8], kind: u8, sequence: u32, open: u8) {
        bytes[112] = kind;
        put(bytes, 40, sequence.to_be_bytes());
        bytes[48] = open;
    }
}

/// The controller data of a new controller, without its CRC.
#[must_use]
pub fn controller(guid: Guid, product: [u8; 16]) -> [u8; SECTOR] {
    let mut bytes = [0xFF; SECTOR];
    put(&mut bytes, 0, CONTROLLER.to_be_bytes());
    put(&mut bytes, 8, guid);
    put(&mut bytes, 32, [0; 8]);
    put(&mut bytes, 40, product);
    bytes
}

/// Begins an empty table, of disks or of volumes, with room for `most` entries.
pub fn begin_table(bytes: &mut [u8], magic: u32, most: u16) {
    bytes.fill(0xFF);
    put(bytes, 0, magic.to_be_bytes());
    set_count(bytes, 0);
    put(bytes, 10, most.to_be_bytes());
}

/// Writes the number of entries into a table.
pub fn set_count(bytes: &mut [u8], count: u16) {
    put(bytes, 8, count.to_be_bytes());
}

/// Bits of [`Physical::kind`].
pub mod physical_kind {
    /// Its identifier was generated.
    pub const FORCED_GUID: u16 = 1;
    /// A volume uses it.
    pub const ACTIVE: u16 = 2;
    /// A spare for any volume.
    pub const GLOBAL_SPARE: u16 = 4;
    /// A spare for the volumes in its assignment.
    pub const SPARE: u16 = 8;
}

/// Bits of [`Physical::state`].
pub mod physical_state {
    /// It is in use.
    pub const ONLINE: u16 = 1;
    /// It failed.
    pub const FAILED: u16 = 2;
    /// It is being rebuilt.
    pub const REBUILDING: u16 = 4;
    /// It is missing.
    pub const MISSING: u16 = 64;
}

/// A disk of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Physical {
    /// The reference by which volumes name it.
    pub reference: u32,
    /// [`physical_kind`].
    pub kind: u16,
    /// [`physical_state`].
    pub state: u16,
    /// Sectors before the metadata.
    pub sectors: u64,
}

impl Physical {
    /// Bytes in an entry, and in the front of the table.
    pub const LEN: usize = 64;

    /// Reads an entry of the table; `None` if it is empty.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        WireError::check_len(bytes, Self::LEN)?;
        if bytes[..24] == [0xFF; 24] {
            return Ok(None);
        }
        let (reference, kind, state) = (be32(bytes, 24), be16(bytes, 28), be16(bytes, 30));
        Ok(Some(Self { reference, kind, state, sectors: be64(bytes, 32) }))
    }

    /// Fills an entry of the table; a new one gets an identifier.
    pub fn emit(&self, bytes: &mut [u8], new: Option<Guid>) {
        if let Some(guid) = new {
            bytes[..Self::LEN].fill(0xFF);
            put(bytes, 0, guid);
            // Where it is plugged in is unknown.
            put(bytes, 40, [0; 18]);
        }
        put(bytes, 24, self.reference.to_be_bytes());
        put(bytes, 28, self.kind.to_be_bytes());
        put(bytes, 30, self.state.to_be_bytes());
        put(bytes, 32, self.sectors.to_be_bytes());
    }
}

/// A volume of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Virtual {
    /// The identifier by which its configurations name it.
    pub guid: Guid,
    /// Low bits: 0 optimal, 1 degraded, 4 failed; [`Self::INCONSISTENT`], [`Self::MORPHING`].
    pub state: u8,
    /// Low bits: [`Self::INITIALIZED`] once its members were synchronised.
    pub initialization: u8,
    /// Its name, padded.
    pub name: [u8; 16],
}

impl Virtual {
    /// Bytes in an entry, and in the front of the table.
    pub const LEN: usize = 64;
    /// Its level or size is changing.
    pub const MORPHING: u8 = 0x08;
    /// Its members may differ.
    pub const INCONSISTENT: u8 = 0x10;
    /// Its members were synchronised.
    pub const INITIALIZED: u8 = 2;

    /// Reads an entry of the table; `None` if it is empty.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        WireError::check_len(bytes, Self::LEN)?;
        if bytes[..24] == [0xFF; 24] {
            return Ok(None);
        }
        Ok(Some(Self {
            guid: array(bytes, 0),
            state: bytes[32],
            initialization: bytes[33] & 3,
            name: array(bytes, 48),
        }))
    }

    /// Fills an entry of the table with a new volume.
    pub fn emit(&self, number: u16, bytes: &mut [u8]) {
        bytes[..Self::LEN].fill(0xFF);
        put(bytes, 0, self.guid);
        put(bytes, 24, number.to_be_bytes());
        put(bytes, 28, [0; 4]);
        Self::set_state(bytes, self.state, self.initialization);
        put(bytes, 48, self.name);
    }

    /// Writes the states into an entry; the other bits of their bytes are preserved.
    pub fn set_state(bytes: &mut [u8], state: u8, initialization: u8) {
        bytes[32] = state;
        bytes[33] = if bytes[33] == 0xFF { 0 } else { bytes[33] & !3 } | initialization;
    }
}

/// The configuration of a volume, or of one of the parts combined by a second level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The volume.
    pub guid: Guid,
    /// Incremented on every change.
    pub sequence: u32,
    /// Number of members.
    pub members: u16,
    /// Log2 of the strip size in sectors of 512 bytes.
    pub strip_shift: u8,
    /// The level: 0, 1, 5, 0x1F concatenation, ...
    pub level: u8,
    /// The variant of the level.
    pub qualifier: u8,
    /// Number of parts that the second level combines.
    pub parts: u8,
    /// Number of this part.
    pub part: u8,
    /// Sectors of each member.
    pub blocks: u64,
    /// Sectors of the volume.
    pub volume_blocks: u64,
}

impl Configuration {
    /// Offset of the references to the members. Their first sectors follow after room for
    /// [`Header::members_max`] references.
    pub const MEMBERS_AT: usize = 512;

    /// Reads a configuration.
    ///
    /// # Errors
    /// If it is not valid; the CRC is not checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if magic(bytes)? != CONFIGURATION {
            return Err(WireError::BadField("magic"));
        }
        Ok(Self {
            guid: array(bytes, 8),
            sequence: be32(bytes, 36),
            members: be16(bytes, 64),
            strip_shift: bytes[66],
            level: bytes[67],
            qualifier: bytes[68],
            parts: bytes[69],
            part: bytes[70],
            blocks: be64(bytes, 72),
            volume_blocks: be64(bytes, 80),
        })
    }

    /// The reference and the first sector of a member.
    ///
    /// # Errors
    /// If it lies beyond the record.
    pub fn member(bytes: &[u8], members_max: u16, number: u16) -> Result<(u32, u64), WireError> {
        let reference = Self::MEMBERS_AT + usize::from(number) * 4;
        let start = Self::MEMBERS_AT + usize::from(members_max) * 4 + usize::from(number) * 8;
        WireError::check_len(bytes, start + 8)?;
        Ok((be32(bytes, reference), be64(bytes, start)))
    }

    /// The record of a new volume or part, without members and CRC.
    pub fn emit(&self, bytes: &mut [u8], members_max: u16) {
        bytes.fill(0xFF);
        put(bytes, 0, CONFIGURATION.to_be_bytes());
        put(bytes, 8, self.guid);
        put(bytes, 32, [0; 4]);
        Self::set_sequence(bytes, self.sequence);
        put(bytes, 64, self.members.to_be_bytes());
        // The second level: none, or that of RAID 10, with parts that are all of one size.
        let second = if self.parts > 1 { 3 } else { 0xFF };
        let kind = [self.strip_shift, self.level, self.qualifier, self.parts, self.part, second];
        put(bytes, 66, kind);
        put(bytes, 72, self.blocks.to_be_bytes());
        put(bytes, 80, self.volume_blocks.to_be_bytes());
        // Cache policies, rate of background work.
        put(bytes, 128, [0; 8]);
        bytes[136] = 0x80;
        let starts = Self::MEMBERS_AT + usize::from(members_max) * 4;
        bytes[starts..starts + usize::from(members_max) * 8].fill(0);
    }

    /// Writes the sequence number into a record.
    pub fn set_sequence(bytes: &mut [u8], sequence: u32) {
        put(bytes, 36, sequence.to_be_bytes());
    }

    /// Writes a member into a record, which must have room for it.
    pub fn set_member(bytes: &mut [u8], members_max: u16, number: u16, (disk, start): (u32, u64)) {
        let reference = Self::MEMBERS_AT + usize::from(number) * 4;
        let starts = Self::MEMBERS_AT + usize::from(members_max) * 4;
        put(bytes, reference, disk.to_be_bytes());
        put(bytes, starts + usize::from(number) * 8, start.to_be_bytes());
    }
}

/// The reference of the disk, from its data section.
///
/// # Errors
/// If the section is not valid.
pub fn reference(bytes: &[u8]) -> Result<u32, WireError> {
    if magic(bytes)? != DISK_DATA {
        return Err(WireError::BadField("magic"));
    }
    Ok(be32(bytes, 32))
}

/// The data section of a new disk, without its CRC.
#[must_use]
pub fn disk_data(guid: Guid, reference: u32) -> [u8; SECTOR] {
    let mut bytes = [0xFF; SECTOR];
    put(&mut bytes, 0, DISK_DATA.to_be_bytes());
    put(&mut bytes, 8, guid);
    put(&mut bytes, 32, reference.to_be_bytes());
    // Both were generated.
    put(&mut bytes, 36, [1, 1]);
    put(&mut bytes, 38, [b' '; 32]);
    bytes
}
