//! Messages of vfio-user 0.0: bytes and values (QEMU `docs/interop/vfio-user.rst`).
//!
//! All integers are little endian. [`Header`] and [`Request`] are parsed from any bytes, or
//! refused.

pub use flysch_export::Malformed;

/// Bytes of the header of every message.
pub const HEADER_BYTES: usize = 16;
/// Maximum bytes of data in one message, announced by the server to its client.
pub const DATA_MAX: usize = 64 << 10;
/// Maximum bytes after the header: data and its destination.
pub const BODY_MAX: usize = DATA_MAX + 32;
/// Maximum number of descriptors with one message.
pub const DESCRIPTORS_MAX: usize = 16;
/// Maximum bytes of the text of a VERSION message.
const VERSION_TEXT_MAX: usize = 4096;
/// Maximum number of writes in one REGION_WRITE_MULTI.
const MULTI_MAX: u64 = 200;
/// Bytes of one of them.
const MULTI_BYTES: usize = 24;

/// Region numbers; BARs come first.
pub mod region {
    /// The last BAR.
    pub const BAR_LAST: u32 = 5;
    /// Expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// The number of regions, including VGA.
    pub const COUNT: u32 = 9;
}

/// Interrupt numbers.
pub mod irq {
    /// The line.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// The number of interrupts: error and removal request follow.
    pub const COUNT: u32 = 5;

    /// Flags of SET_IRQS: no data, one byte each, or one eventfd each.
    pub const DATA_NONE: u32 = 1;
    /// One byte each.
    pub const DATA_BOOL: u32 = 2;
    /// One eventfd each, or none at all to remove them.
    pub const DATA_EVENTFD: u32 = 4;
    /// Action: mask.
    pub const MASK: u32 = 8;
    /// Unmask.
    pub const UNMASK: u32 = 0x10;
    /// Trigger; with eventfds: set up the trigger.
    pub const TRIGGER: u32 = 0x20;
}

/// Error numbers of replies, as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// It already exists.
    Exists = 17,
    /// Invalid argument.
    Invalid = 22,
    /// No space left.
    NoSpace = 28,
    /// Not supported.
    NotSupported = 95,
    /// Permission denied.
    NotPermitted = 1,
}

/// Commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names are those of the protocol")]
pub enum Command {
    Version,
    DmaMap,
    DmaUnmap,
    DeviceGetInfo,
    RegionGetInfo,
    IrqGetInfo,
    SetIrqs,
    RegionRead,
    RegionWrite,
    DeviceReset,
    RegionWriteMulti,
    /// A command that this server does not support.
    Unknown(u16),
}

impl From<u16> for Command {
    fn from(number: u16) -> Self {
        match number {
            1 => Self::Version,
            2 => Self::DmaMap,
            3 => Self::DmaUnmap,
            4 => Self::DeviceGetInfo,
            5 => Self::RegionGetInfo,
            7 => Self::IrqGetInfo,
            8 => Self::SetIrqs,
            9 => Self::RegionRead,
            10 => Self::RegionWrite,
            13 => Self::DeviceReset,
            15 => Self::RegionWriteMulti,
            other => Self::Unknown(other),
        }
    }
}

/// Bits of a header's flags.
mod flags {
    pub(super) const TYPE: u32 = 0xF;
    pub(super) const REPLY: u32 = 1;
    pub(super) const NO_REPLY: u32 = 1 << 4;
    pub(super) const ERROR: u32 = 1 << 5;
}

/// The header of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client's ID for the message; its reply contains it too.
    pub id: u16,
    /// The command.
    pub command: Command,
    /// Bytes that follow, at most [`BODY_MAX`].
    pub body: usize,
    /// The client does not wait for a reply.
    pub no_reply: bool,
    number: u16,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Header {
    /// The header of the reply with `body` bytes after it.
    pub fn reply(&self, body: usize) -> [u8; HEADER_BYTES] {
        self.answer((HEADER_BYTES + body) as u32, flags::REPLY, 0)
    }

    /// The error reply: only a header.
    pub fn refusal(&self, errno: Errno) -> [u8; HEADER_BYTES] {
        self.answer(HEADER_BYTES as u32, flags::REPLY | flags::ERROR, errno as u32)
    }

    fn answer(&self, size: u32, flags: u32, errno: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        bytes[8..12].copy_from_slice(&flags.to_le_bytes());
        bytes[12..].copy_from_slice(&errno.to_le_bytes());
        bytes
    }
}

impl flysch_export::Header<HEADER_BYTES> for Header {
    const DESCRIPTORS_MAX: usize = DESCRIPTORS_MAX;

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let flags = u32_at(bytes, 8);
        let size = u32_at(bytes, 4) as usize;
        let Some(body) = size.checked_sub(HEADER_BYTES) else {
            return Err(Malformed("a message shorter than its header"));
        };
        if body > BODY_MAX {
            return Err(Malformed("a message longer than was agreed"));
        }
        if flags & flags::TYPE != 0 {
            return Err(Malformed("a message that is not a command"));
        }
        let number = u16_at(bytes, 2);
        let no_reply = flags & flags::NO_REPLY != 0;
        Ok(Self { id: u16_at(bytes, 0), command: number.into(), body, no_reply, number })
    }

    fn body_bytes(&self) -> usize {
        self.body
    }
}

/// One write of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Offset in the region.
    pub offset: u64,
    /// The region.
    pub region: u32,
    /// The data.
    pub data: &'a [u8],
}

/// A command with its arguments. Nothing is checked against the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The client's version.
    Version {
        /// Must be 0.
        major: u16,
        /// Must be 0.
        minor: u16,
    },
    /// Map guest memory.
    DmaMap {
        /// The device may read it.
        readable: bool,
        /// The device may write it.
        writable: bool,
        /// Offset in the file.
        offset: u64,
        /// Device address.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Unmap guest memory.
    DmaUnmap {
        /// All of it.
        all: bool,
        /// Device address.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Query the device.
    DeviceInfo,
    /// Query a region.
    RegionInfo {
        /// The region.
        index: u32,
    },
    /// Query an interrupt.
    IrqInfo {
        /// The interrupt.
        index: u32,
    },
    /// Set up, mask or trigger interrupts.
    SetIrqs {
        /// Kind of data, and what to do.
        flags: u32,
        /// The interrupt.
        index: u32,
        /// Its first vector.
        start: u32,
        /// The number of vectors.
        count: u32,
        /// One byte each if the flags say so.
        bools: &'a [u8],
    },
    /// Read a region.
    RegionRead {
        /// Offset.
        offset: u64,
        /// The region.
        region: u32,
        /// Bytes, at most [`DATA_MAX`].
        count: u32,
    },
    /// Write a region.
    RegionWrite(Write<'a>),
    /// Several writes, by [`Request::multi`].
    RegionWriteMulti(&'a [u8]),
    /// Reset the device.
    Reset,
    /// Unknown.
    Unknown,
}

const LENGTH: Malformed = Malformed("a message whose length does not fit its command");

fn expect(body: &[u8], length: usize) -> Result<(), Malformed> {
    if body.len() == length { Ok(()) } else { Err(LENGTH) }
}

/// A structure that starts with argsz, which includes itself. No reply is longer than the request,
/// so only its minimum matters.
fn sized(body: &[u8], length: usize) -> Result<(), Malformed> {
    expect(body, length)?;
    match u32_at(body, 0) as usize >= length {
        true => Ok(()),
        false => Err(Malformed("an argsz smaller than its structure")),
    }
}

impl<'a> Request<'a> {
    /// Parses the body after `header`.
    ///
    /// # Errors
    /// The length does not fit the command, or a text is invalid.
    pub fn parse(header: &Header, body: &'a [u8]) -> Result<Self, Malformed> {
        Ok(match header.command {
            Command::Version => return Self::version(body),
            Command::DmaMap | Command::DmaUnmap => return Self::dma(header.command, body),
            Command::DeviceGetInfo => {
                sized(body, 16)?;
                Self::DeviceInfo
            }
            Command::RegionGetInfo => {
                // A client that was told of capabilities asks again with room for them.
                if body.len() < 32 || (u32_at(body, 0) as usize) < 32 {
                    return Err(LENGTH);
                }
                Self::RegionInfo { index: u32_at(body, 8) }
            }
            Command::IrqGetInfo => {
                sized(body, 16)?;
                Self::IrqInfo { index: u32_at(body, 8) }
            }
            Command::SetIrqs => return Self::set_irqs(body),
            Command::RegionRead => return Self::read(body),
            Command::RegionWrite => return Self::write(body),
            Command::RegionWriteMulti => {
                let count = u64_at(body, 0);
                if count > MULTI_MAX {
                    return Err(Malformed("more writes in a message than are allowed"));
                }
                expect(body, 8 + count as usize * MULTI_BYTES)?;
                Self::RegionWriteMulti(&body[8..])
            }
            Command::DeviceReset => {
                expect(body, 0)?;
                Self::Reset
            }
            Command::Unknown(_) => Self::Unknown,
        })
    }

    fn dma(command: Command, body: &'a [u8]) -> Result<Self, Malformed> {
        let flags = u32_at(body, 4);
        if command == Command::DmaUnmap {
            sized(body, 24)?;
            let (address, size) = (u64_at(body, 8), u64_at(body, 16));
            return Ok(Self::DmaUnmap { all: flags & 2 != 0, address, size });
        }
        sized(body, 32)?;
        Ok(Self::DmaMap {
            readable: flags & 1 != 0,
            writable: flags & 2 != 0,
            offset: u64_at(body, 8),
            address: u64_at(body, 16),
            size: u64_at(body, 24),
        })
    }

    fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        expect(body, 16)?;
        let count = u32_at(body, 12);
        if count as usize > DATA_MAX {
            return Err(Malformed("a read of more bytes than were agreed"));
        }
        Ok(Self::RegionRead { offset: u64_at(body, 0), region: u32_at(body, 8), count })
    }

    fn write(body: &'a [u8]) -> Result<Self, Malformed> {
        let data = body.get(16..).ok_or(LENGTH)?;
        if data.len() != u32_at(body, 12) as usize {
            return Err(Malformed("a write with more or less data than it says"));
        }
        let (offset, region) = (u64_at(body, 0), u32_at(body, 8));
        Ok(Self::RegionWrite(Write { offset, region, data }))
    }

    fn version(body: &'a [u8]) -> Result<Self, Malformed> {
        let text = body.get(4..).ok_or(Malformed("a version without numbers"))?;
        if text.len() > VERSION_TEXT_MAX {
            return Err(Malformed("a version with a very long text"));
        }
        // No text at all stands for no capabilities.
        if let Some((&end, text)) = text.split_last() {
            let is_json = serde_json::from_slice::<serde_json::Value>(text).is_ok();
            if end != 0 || !is_json {
                return Err(Malformed("a version whose text is not JSON"));
            }
        }
        Ok(Self::Version { major: u16_at(body, 0), minor: u16_at(body, 2) })
    }

    fn set_irqs(body: &'a [u8]) -> Result<Self, Malformed> {
        let (flags, count) = (u32_at(body, 4), u32_at(body, 16));
        let bools = body.get(20..).ok_or(Malformed("a SET_IRQS shorter than its structure"))?;
        let expected = if flags & irq::DATA_BOOL != 0 { count as usize } else { 0 };
        if bools.len() != expected || (u32_at(body, 0) as usize) < 20 {
            return Err(Malformed("a SET_IRQS with more or less data than it says"));
        }
        Ok(Self::SetIrqs { flags, index: u32_at(body, 8), start: u32_at(body, 12), count, bools })
    }

    /// The writes of a REGION_WRITE_MULTI; lengths above 8 are truncated.
    pub fn multi(writes: &'a [u8]) -> impl Iterator<Item = Write<'a>> {
        writes.as_chunks::<MULTI_BYTES>().0.iter().map(|write| {
            let count = (u32_at(write, 12) as usize).min(8);
            let (offset, region) = (u64_at(write, 0), u32_at(write, 8));
            Write { offset, region, data: &write[16..16 + count] }
        })
    }
}
