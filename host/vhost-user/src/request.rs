//! The request in a chain of descriptors, and the configuration space (virtio 1.2, section 5.2).

use std::rc::Rc;

use flysch_api::block::{BlockError, BlockGeometry};
use flysch_api::data::BadData;
use flysch_api::machine::{DmaRegion, GuestMemory};
use flysch_export::{Kind, Range, Transfer};

use crate::ring::{Chain, Segment};
use crate::wire::{Fields, feature};

/// Unit of addresses and capacities, whatever the block size.
const SECTOR: u64 = 512;
/// Bytes of a request's header.
const HEADER: usize = 16;
/// Bytes of a range of a discard or write of zeroes.
const RANGE: u64 = 16;
/// Longest range of a discard, sectors (2 GiB).
const DISCARD_MAX: u32 = 4 << 20;
/// Longest range of zeroes, sectors (64 MiB): they are written out.
const ZEROES_MAX: u32 = 128 << 10;
/// Maximum number of segments of a request: what fits a ring of 128 with header and status.
const SEGMENTS_MAX: u32 = 126;
/// Maximum number of rings.
pub(crate) const QUEUES: u16 = 16;
/// Bytes of a name.
const ID: usize = 20;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

/// In the flags of a range of zeroes: it may be unmapped.
const UNMAP: u32 = 1;

/// The status of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

impl Status {
    pub(crate) fn of(error: BlockError) -> Self {
        match error {
            BlockError::Unsupported => Self::Unsupported,
            _ => Self::IoError,
        }
    }
}

/// A device as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Size in bytes; an incomplete last sector of 512 is not visible.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether discards do anything.
    pub can_discard: bool,
    /// Its name, of which a guest sees 20 bytes.
    pub name: String,
}

impl Disk {
    /// A device with these properties.
    pub fn new(geometry: &BlockGeometry, name: &str) -> Self {
        Self {
            size: geometry.bytes(),
            block_size: geometry.block_size,
            read_only: geometry.read_only,
            can_discard: geometry.can_delete,
            name: name.to_owned(),
        }
    }

    /// The offered features.
    pub(crate) fn features(&self) -> u64 {
        use feature::*;
        let always = SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | CONFIG_WCE | MQ;
        let rings = RING_INDIRECT_DESC | RING_EVENT_IDX | PROTOCOL_FEATURES | VERSION_1;
        let discard = if self.can_discard { DISCARD } else { 0 };
        always | rings | if self.read_only { RO } else { WRITE_ZEROES | discard }
    }

    /// The configuration space; bytes behind it are zero.
    pub(crate) fn config(&self, write_back: bool) -> [u8; 64] {
        let mut config = [0; 64];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &(self.size / SECTOR).to_le_bytes());
        put(12, &SEGMENTS_MAX.to_le_bytes());
        put(20, &self.block_size.to_le_bytes());
        // Topology: a physical block is a logical one, and the least worth asking for.
        put(26, &1_u16.to_le_bytes());
        put(32, &[u8::from(write_back)]);
        put(34, &QUEUES.to_le_bytes());
        if self.can_discard && !self.read_only {
            put(36, &DISCARD_MAX.to_le_bytes());
            put(40, &1_u32.to_le_bytes());
            put(44, &((u64::from(self.block_size) / SECTOR).max(1) as u32).to_le_bytes());
        }
        if !self.read_only {
            put(48, &ZEROES_MAX.to_le_bytes());
            put(52, &1_u32.to_le_bytes());
        }
        config
    }

    /// Offset of the write cache switch in the configuration space.
    pub(crate) const WRITE_BACK: u32 = 32;

    fn holds(&self, offset: u64, length: u64) -> bool {
        let size = self.size / SECTOR * SECTOR;
        offset <= size && length <= size - offset
    }
}

/// A request in progress: its owner, and the location of its data.
#[derive(Debug)]
pub struct Call {
    /// Its client, ring and chain.
    pub(crate) session: u64,
    pub(crate) queue: u16,
    pub(crate) head: u16,
    /// The address of the status.
    pub(crate) status: u64,
    pub(crate) memory: Rc<GuestMemory>,
    /// The data, as `length` bytes of segments.
    pub(crate) data: Vec<Segment>,
}

impl Call {
    /// Passes the pieces of `length` bytes from `at` on to `each`: a guest's address, their offset
    /// in those bytes, and their number.
    fn pieces(
        &self,
        at: u64,
        length: usize,
        mut each: impl FnMut(u64, usize, usize) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let (mut skip, mut done) = (at, 0);
        for &(address, bytes) in &self.data {
            let bytes = u64::from(bytes);
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let count = ((bytes - skip) as usize).min(length - done);
            each(address + skip, done, count)?;
            (done, skip) = (done + count, 0);
            if done == length {
                break;
            }
        }
        if done == length { Ok(()) } else { Err(LOST) }
    }
}

/// The data is no longer accessible; the memory's own error has no further information.
const LOST: BlockError = BlockError::BadData(BadData::Outside);

impl Transfer for Call {
    fn gather(
        &self,
        from: u64,
        memory: &DmaRegion,
        to: usize,
        length: usize,
    ) -> Result<(), BlockError> {
        self.pieces(from, length, |address, done, count| {
            self.memory
                .pieces((address, count), false, |region, offset, place| {
                    memory.copy_from(to + done + place.start, region, offset, place.len());
                    Ok::<_, flysch_api::machine::OutOfRange>(())
                })
                // No cause: `LOST` says it.
                .map_err(|_| LOST)
        })
    }

    fn scatter(
        &mut self,
        to: u64,
        memory: &DmaRegion,
        from: usize,
        length: usize,
    ) -> Result<(), BlockError> {
        self.pieces(to, length, |address, done, count| {
            self.memory
                .pieces((address, count), true, |region, offset, place| {
                    region.copy_from(offset, memory, from + done + place.start, place.len());
                    Ok::<_, flysch_api::machine::OutOfRange>(())
                })
                // No cause: `LOST` says it.
                .map_err(|_| LOST)
        })
    }
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The device has to act; the data is in the given vector.
    Device(Kind, Range),
    /// Put the name there.
    Id,
    /// Nothing: this is its status.
    Over(Status),
}

/// A chain without room for header or status: it cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRequest;

/// Parses a chain: the address of its status, and what to do. `data` gets the segments of the data.
pub(crate) fn read(
    disk: &Disk,
    memory: &GuestMemory,
    chain: &mut Chain,
    data: &mut Vec<Segment>,
    writes_are_safe: bool,
) -> Result<(u64, Ask), NoRequest> {
    let status = take_last(&mut chain.writable).ok_or(NoRequest)?;
    let mut header = [0; HEADER];
    take_first(memory, &mut chain.readable, &mut header).ok_or(NoRequest)?;
    let mut fields = Fields(&header);
    let parsed = (fields.u32(), fields.u32(), fields.u64());
    let (Ok(kind), _, Ok(sector)) = parsed else { return Err(NoRequest) };
    data.clear();
    let refused = |status_is| Ok((status, Ask::Over(status_is)));
    if disk.read_only && matches!(kind, OUT | DISCARD | WRITE_ZEROES) {
        return refused(Status::IoError);
    }
    let asked = match kind {
        IN | OUT => {
            let segments = if kind == IN { &chain.writable } else { &chain.readable };
            data.extend_from_slice(segments);
            let length = bytes_of(data);
            if !length.is_multiple_of(SECTOR) {
                return refused(Status::IoError);
            }
            (if kind == IN { Kind::Read } else { Kind::Write }, sector, length)
        }
        FLUSH => {
            let range = Range { offset: 0, length: 0, force_unit_access: false };
            return Ok((status, Ask::Device(Kind::Flush, range)));
        }
        GET_ID => {
            data.extend_from_slice(&chain.writable);
            return Ok((status, Ask::Id));
        }
        DISCARD if !disk.can_discard => return refused(Status::Unsupported),
        DISCARD | WRITE_ZEROES => match read_range(kind == DISCARD, memory, &mut chain.readable)? {
            Ok((sector, length)) if kind == DISCARD => (Kind::Trim, sector, length),
            Ok((sector, length)) => (Kind::Zeroes, sector, length),
            Err(status) => return refused(status),
        },
        _ => return refused(Status::Unsupported),
    };
    let (kind, sector, length) = asked;
    match sector.checked_mul(SECTOR).filter(|offset| disk.holds(*offset, length)) {
        // Nothing of nothing.
        Some(_) if length == 0 => refused(Status::Ok),
        Some(offset) => {
            let force_unit_access = writes_are_safe && kind != Kind::Read;
            Ok((status, Ask::Device(kind, Range { offset, length, force_unit_access })))
        }
        None => refused(Status::IoError),
    }
}

/// Reads the range of a discard or of zeroes: its first sector and its bytes, or its status.
fn read_range(
    is_discard: bool,
    memory: &GuestMemory,
    segments: &mut Vec<Segment>,
) -> Result<Result<(u64, u64), Status>, NoRequest> {
    if bytes_of(segments) != RANGE {
        return Ok(Err(Status::Unsupported));
    }
    let mut range = [0; RANGE as usize];
    take_first(memory, segments, &mut range).ok_or(NoRequest)?;
    let mut fields = Fields(&range);
    let (Ok(sector), Ok(count), Ok(flags)) = (fields.u64(), fields.u32(), fields.u32()) else {
        return Err(NoRequest);
    };
    let (allowed, most) = if is_discard { (0, DISCARD_MAX) } else { (UNMAP, ZEROES_MAX) };
    if flags & !allowed != 0 {
        return Ok(Err(Status::Unsupported));
    }
    Ok(if count > most { Err(Status::IoError) } else { Ok((sector, u64::from(count) * SECTOR)) })
}

/// Writes the name to the guest's buffer; returns the number of bytes.
pub(crate) fn put_id(name: &str, memory: &GuestMemory, data: &[Segment]) -> u32 {
    let mut id = [0; ID];
    let count = name.len().min(ID);
    id[..count].copy_from_slice(&name.as_bytes()[..count]);
    let mut done = 0;
    for &(address, bytes) in data {
        let count = (bytes as usize).min(ID - done);
        if memory.write(address, &id[done..done + count]).is_err() {
            break;
        }
        done += count;
    }
    done as u32
}

/// Bytes of segments.
pub(crate) fn bytes_of(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.1)).sum()
}

/// Removes the last byte; returns its address.
fn take_last(segments: &mut Vec<Segment>) -> Option<u64> {
    while let Some(last) = segments.last_mut() {
        if last.1 > 0 {
            last.1 -= 1;
            return Some(last.0 + u64::from(last.1));
        }
        segments.pop();
    }
    None
}

/// Removes the first bytes, however they are divided, and reads them.
fn take_first(memory: &GuestMemory, segments: &mut Vec<Segment>, to: &mut [u8]) -> Option<()> {
    let (mut done, mut whole) = (0, 0);
    for segment in segments.iter_mut() {
        let count = (segment.1 as usize).min(to.len() - done);
        memory.read(segment.0, &mut to[done..done + count]).ok()?;
        (done, *segment) = (done + count, (segment.0 + count as u64, segment.1 - count as u32));
        if done == to.len() && segment.1 > 0 {
            break;
        }
        whole += 1;
        if done == to.len() {
            break;
        }
    }
    segments.drain(..whole);
    (done == to.len()).then_some(())
}
