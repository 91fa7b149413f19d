//! Messages of vhost-user: bytes and values. Numbers are in native byte order (little endian here).
//!
//! Sources: QEMU `docs/interop/vhost-user.rst`; virtio 1.2, sections 2.7, 5.2 and 6.

pub use flysch_export::Malformed;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// Longest payload that is accepted; the longest in use is a memory table of 8 regions.
pub const PAYLOAD_MAX: usize = 4096;
/// Maximum number of descriptors with a message: one for each region of a memory table.
pub const DESCRIPTORS_MAX: usize = 8;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// The requests of a client.
#[expect(missing_docs, reason = "the names of the specification")]
pub mod message {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}

/// Protocol feature bits.
#[expect(missing_docs, reason = "the names of the specification")]
pub mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
}

/// Device feature bits (virtio 1.2, 5.2.3 and 6; bit 30 is vhost-user's).
#[expect(missing_docs, reason = "the names of the specification")]
pub mod feature {
    pub const SEG_MAX: u64 = 1 << 2;
    pub const RO: u64 = 1 << 5;
    pub const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const CONFIG_WCE: u64 = 1 << 11;
    pub const MQ: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const RING_INDIRECT_DESC: u64 = 1 << 28;
    pub const RING_EVENT_IDX: u64 = 1 << 29;
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The request, or the one that it answers.
    pub request: u32,
    /// Whether an answer is requested for a message that normally has none.
    pub needs_reply: bool,
    /// Bytes that follow.
    pub size: usize,
}

impl Header {
    /// The header of an answer to `request`.
    pub fn reply(request: u32, size: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (at, value) in [request, VERSION | REPLY, size as u32].into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

impl flysch_export::Header<HEADER_BYTES> for Header {
    const DESCRIPTORS_MAX: usize = DESCRIPTORS_MAX;

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        let (request, flags, size) = (fields.u32()?, fields.u32()?, fields.u32()? as usize);
        if flags & VERSION_MASK != VERSION {
            return Err(Malformed("a message of a different version"));
        }
        if flags & REPLY != 0 {
            return Err(Malformed("an answer where a question is required"));
        }
        if size > PAYLOAD_MAX {
            return Err(Malformed("a message that is too long"));
        }
        Ok(Self { request, needs_reply: flags & NEED_REPLY != 0, size })
    }

    fn body_bytes(&self) -> usize {
        self.size
    }
}

/// The fields of a message.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) =
            self.0.split_at_checked(count).ok_or(Malformed("a message that is too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A 16-bit field.
    ///
    /// # Errors
    /// It is missing.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.bytes(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// A 32-bit field.
    ///
    /// # Errors
    /// It is missing.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from(self.u16()?) | u32::from(self.u16()?) << 16)
    }

    /// A 64-bit field.
    ///
    /// # Errors
    /// It is missing.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }
}

/// A region of the guest's memory as a message describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address for the guest.
    pub guest: u64,
    /// Bytes.
    pub size: u64,
    /// First address for the client, used to address its rings.
    pub user: u64,
    /// Its offset in its file.
    pub offset: u64,
}

impl Region {
    /// Reads one.
    ///
    /// # Errors
    /// It is incomplete.
    pub fn parse(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let (guest, size) = (fields.u64()?, fields.u64()?);
        Ok(Self { guest, size, user: fields.u64()?, offset: fields.u64()? })
    }

    /// The regions of `SET_MEM_TABLE`.
    ///
    /// # Errors
    /// There are more than descriptors, or fewer than announced.
    pub fn parse_table(payload: &[u8]) -> Result<Vec<Self>, Malformed> {
        let mut fields = Fields(payload);
        let count = fields.u32()? as usize;
        let _ = fields.u32()?;
        if count > DESCRIPTORS_MAX {
            return Err(Malformed("a memory table with more regions than descriptors"));
        }
        (0..count).map(|_| Self::parse(&mut fields)).collect()
    }
}

/// The addresses of a ring, in the client's address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAddress {
    /// The descriptors.
    pub desc: u64,
    /// The used ring.
    pub used: u64,
    /// The available ring.
    pub avail: u64,
}

impl RingAddress {
    /// Parses `SET_VRING_ADDR`, with the ring's number.
    ///
    /// # Errors
    /// It is incomplete.
    pub fn parse(payload: &[u8]) -> Result<(u32, Self), Malformed> {
        let mut fields = Fields(payload);
        let (index, _flags) = (fields.u32()?, fields.u32()?);
        let (desc, used) = (fields.u64()?, fields.u64()?);
        Ok((index, Self { desc, used, avail: fields.u64()? }))
    }
}

/// The payload of `GET_INFLIGHT_FD` and `SET_INFLIGHT_FD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightArea {
    /// Bytes of the memory.
    pub size: u64,
    /// Its offset in its file.
    pub offset: u64,
    /// Rings.
    pub queues: u16,
    /// Entries of each.
    pub queue_size: u16,
}

impl InflightArea {
    /// Reads one.
    ///
    /// # Errors
    /// It is incomplete.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let (size, offset) = (fields.u64()?, fields.u64()?);
        Ok(Self { size, offset, queues: fields.u16()?, queue_size: fields.u16()? })
    }

    /// Its bytes; the client's structure is padded to 8.
    pub fn emit(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.queues.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.queue_size.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use flysch_export::Header as _;

    use super::*;

    #[test]
    fn headers_of_clients_only() {
        let header = |flags: u32, size: u32| {
            let parts = [1_u32, flags, size].map(u32::to_le_bytes);
            Header::parse(parts.as_flattened().try_into().unwrap())
        };
        assert_eq!(header(1, 8), Ok(Header { request: 1, needs_reply: false, size: 8 }));
        assert_eq!(header(9, 0), Ok(Header { request: 1, needs_reply: true, size: 0 }));
        assert!(header(2, 0).is_err() && header(5, 0).is_err());
        assert!(header(1, PAYLOAD_MAX as u32 + 1).is_err() && header(1, u32::MAX).is_err());
    }

    #[test]
    fn tables_say_as_much_as_they_announce() {
        let table = |count: u32, bytes: usize| {
            let mut payload = vec![0; 8 + bytes];
            payload[..4].copy_from_slice(&count.to_le_bytes());
            Region::parse_table(&payload).map(|regions| regions.len())
        };
        assert_eq!(table(2, 64), Ok(2));
        assert!(table(2, 63).is_err() && table(9, 9 * 32).is_err() && table(u32::MAX, 0).is_err());
    }
}
