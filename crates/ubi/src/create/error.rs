//! Why an image cannot be made as requested.

use alloc::string::String;
use core::fmt;

use flysch_wire::ubi::{EC_HEADER_SIZE, ERASE_COUNTER_MAX, LAYOUT_VOLUME_LEBS, NAME_MAX};

use super::{OWN_PEBS, PEB_SIZE_MAX};

/// What is wrong with the sizes or a volume, and what would be valid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// Invalid size of an erase block, bytes.
    PebSize(u32),
    /// A size is not a power of two: its name, and bytes.
    NoPowerOfTwo(&'static str, u32),
    /// The sub-page is larger than the I/O unit: bytes of both.
    SubPage(u32, u32),
    /// The erase block is not a multiple of the I/O unit: bytes of both.
    PebMultiple(u32, u32),
    /// The erase counter is too large for the header.
    EraseCounter(u64),
    /// Volume identifier headers cannot begin at this offset.
    VidHeader(u32),
    /// A LEB of this size has no room for a volume table.
    NoTable(u32),
    /// The volume id is too high: the id, and the number of possible ids.
    IdTooHigh(u32, u32),
    /// Another volume has this id.
    IdTaken(u32, String),
    /// Another volume has this name.
    NameTaken(String),
    /// The alignment is not between 1 and a LEB: the alignment, and bytes of a LEB.
    Alignment(u32, u32),
    /// The content is longer than its volume: bytes of both.
    Content(u64, u64),
    /// The volume has more LEBs than UBI can count: its bytes.
    TooLarge(u64),
    /// The volume is empty.
    Empty,
    /// A static volume has no content.
    StaticWithoutContent,
    /// The name is empty or too long.
    Name(String),
    /// `skip-check` for a dynamic volume.
    SkipCheckOfDynamic,
    /// `autoresize` for a static volume.
    AutoresizeOfStatic,
    /// `autoresize` for two volumes: the name of the first.
    AutoresizeTwice(String),
    /// The volumes do not fit the chip.
    Chip {
        /// Erase blocks required.
        asked: u64,
        /// Erase blocks of the chip that are available for volumes.
        room: u32,
        /// Erase blocks of the chip.
        pebs: u32,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PebSize(bytes) => {
                write!(f, "an erase block of {bytes} bytes: it must have 1 to {PEB_SIZE_MAX}")
            }
            Self::NoPowerOfTwo(what, bytes) => {
                write!(f, "a {what} of {bytes} bytes is not a power of two")
            }
            Self::SubPage(sub_page, unit) => {
                write!(f, "the sub-page ({sub_page}) is larger than the I/O unit ({unit})")
            }
            Self::PebMultiple(peb, unit) => {
                write!(f, "the erase block ({peb}) is not a multiple of the I/O unit ({unit})")
            }
            Self::EraseCounter(counter) => {
                write!(f, "an erase counter of {counter} is above {ERASE_COUNTER_MAX}")
            }
            Self::VidHeader(at) => write!(
                f,
                "the volume identifier header cannot begin at {at}: it must begin at \
                 {EC_HEADER_SIZE} or later, at a multiple of 8, with room for data behind it"
            ),
            Self::NoTable(leb) => {
                write!(f, "a LEB of {leb} bytes has no room for a volume table")
            }
            Self::Chip { asked, room, pebs } => write!(
                f,
                "the volumes need {asked} erase blocks, but a chip of {pebs} has {room} for them \
                 ({} are UBI's own, {} the reserve for bad blocks)",
                LAYOUT_VOLUME_LEBS + OWN_PEBS,
                pebs.saturating_sub(room + LAYOUT_VOLUME_LEBS + OWN_PEBS),
            ),
            volume => volume.of_a_volume(f),
        }
    }
}

impl PlanError {
    fn of_a_volume(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IdTooHigh(id, most) => {
                write!(f, "volume id {id} is too high: it must be 0 to {}", most - 1)
            }
            Self::IdTaken(id, other) => write!(f, "volume id {id} is already that of `{other}`"),
            Self::NameTaken(name) => write!(f, "two volumes have the name `{name}`"),
            Self::Alignment(alignment, leb) => {
                write!(f, "an alignment of {alignment}: it must be 1 to a LEB ({leb})")
            }
            Self::Content(content, volume) => {
                write!(f, "the image has {content} bytes, but the volume has {volume}")
            }
            Self::TooLarge(bytes) => write!(f, "a volume of {bytes} bytes is too large"),
            Self::Empty => f.write_str("a volume without a size: name a size or an image"),
            Self::StaticWithoutContent => f.write_str("a static volume needs an image"),
            Self::Name(name) => write!(f, "`{name}` is not a name of 1 to {NAME_MAX} bytes"),
            Self::SkipCheckOfDynamic => f.write_str("skip-check is for static volumes only"),
            Self::AutoresizeOfStatic => f.write_str("autoresize is for dynamic volumes only"),
            Self::AutoresizeTwice(other) => write!(
                f,
                "`{other}` already has autoresize, and Linux attaches no flash with two such \
                 volumes"
            ),
            _ => Ok(()),
        }
    }
}

impl core::error::Error for PlanError {}
