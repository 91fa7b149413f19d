//! The data of a command: physical region pages and scatter gather lists, walked in the host's
//! memory as needed. The host may change them meanwhile, so every entry is read only once.

use flysch_api::machine::{DmaRegion, GuestMemory, OutOfRange};
use flysch_wire::nvme::sgl::{self, Descriptor, kind};
use flysch_wire::nvme::{Sqe, Status, prp};

use crate::store::StoreError;

/// A command, and its data in the host's memory, as its data pointer describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) command: &'a Sqe,
    memory: &'a GuestMemory,
    /// Size of a memory page, bytes.
    pub(super) page: u64,
    /// Maximum transfer of a command, bytes (MDTS).
    pub(super) longest: u32,
}

impl<'a> Request<'a> {
    #[inline]
    pub(super) fn new(
        command: &'a Sqe,
        memory: &'a GuestMemory,
        (page, longest): (u64, u32),
    ) -> Self {
        Self { command, memory, page, longest }
    }

    /// Fills `data` from the host's buffer.
    pub(super) fn take(&self, data: &mut [u8]) -> Result<(), Status> {
        for part in self.parts(data.len() as u64, false) {
            let Part { address, done, len } = part?;
            let Some(address) = address else { continue };
            let read = self.memory.read(address, &mut data[done as usize..][..len]);
            read.map_err(|_| Status::DataTransfer)?;
        }
        Ok(())
    }

    /// Copies `data` into the host's buffer.
    pub(super) fn give(&self, data: &[u8]) -> Result<(), Status> {
        for part in self.parts(data.len() as u64, true) {
            let Part { address, done, len } = part?;
            let Some(address) = address else { continue };
            let written = self.memory.write(address, &data[done as usize..][..len]);
            written.map_err(|_| Status::DataTransfer)?;
        }
        Ok(())
    }

    /// Calls `one` with every piece of the first `len` bytes of the host's buffer: its offset in
    /// the data, the memory, its length.
    #[inline]
    pub(super) fn each_piece(
        &self,
        len: u64,
        to_host: bool,
        mut one: impl FnMut(u64, (&DmaRegion, usize), usize) -> Result<(), StoreError>,
    ) -> Result<(), Failed> {
        for part in self.parts(len, to_host) {
            let Part { address, done, len } = part.map_err(Failed::Refused)?;
            let Some(address) = address else { continue };
            self.memory.pieces((address, len), to_host, |region, at, place| {
                one(done + place.start as u64, (region, at), place.len()).map_err(Failed::from)
            })?;
        }
        Ok(())
    }

    #[inline]
    fn parts(&self, len: u64, to_host: bool) -> Parts<'a> {
        Parts::new(self.memory, self.command, (self.page, len), to_host)
    }
}

/// Maximum number of descriptors of a command: a list that points to itself would never end.
const DESCRIPTORS_MAX: u32 = 1 << 16;

/// Where the rest of a command's data is described.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// PRP2 of the command.
    Second(u64),
    /// The next entry of a list of pages.
    Pages(u64),
    /// The next descriptor of a segment, the number left in it, and whether it is the last segment.
    Segment { at: u64, left: u32, is_last: bool },
    /// Nothing more.
    End,
}

/// A part of a command's data: its device address, its offset in the data, its length. A part
/// without an address is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    address: Option<u64>,
    done: u64,
    len: usize,
}

/// The parts of the first `len` bytes of a command's data.
struct Parts<'a> {
    memory: &'a GuestMemory,
    rest: Rest,
    /// The data that the command itself describes.
    first: Option<(u64, u64)>,
    page: u64,
    done: u64,
    len: u64,
    to_host: bool,
    seen: u32,
    wrong: Option<Status>,
}

impl<'a> Parts<'a> {
    /// Walks the data of `command` with memory pages of `page` bytes.
    #[inline]
    fn new(memory: &'a GuestMemory, command: &Sqe, (page, len): (u64, u64), to_host: bool) -> Self {
        let [low, high] = command.data;
        let mut this = Self {
            memory,
            rest: Rest::Second(high),
            first: None,
            page,
            done: 0,
            len,
            to_host,
            seen: 0,
            wrong: None,
        };
        if command.flags.psdt() == 0 {
            let room = page - (low & (page - 1));
            this.first = Some((low, room));
            if low & 3 != 0 {
                this.wrong = Some(Status::PrpOffset);
            }
        } else {
            this.rest = Rest::End;
            let descriptor = Descriptor::from_values(low, high);
            match this.descriptor(descriptor, true) {
                Ok(part) => this.first = part,
                Err(status) => this.wrong = Some(status),
            }
        }
        this
    }

    /// The data that a descriptor describes, if any; a segment is entered.
    fn descriptor(
        &mut self,
        of: Descriptor,
        may_point: bool,
    ) -> Result<Option<(u64, u64)>, Status> {
        self.seen += 1;
        if self.seen > DESCRIPTORS_MAX {
            return Err(Status::SglCount);
        }
        match of.kind {
            kind::DATA => Ok(Some((of.address, of.length.into()))),
            // Only data sent by the device can be discarded; otherwise a bit bucket is no data at
            // all.
            kind::BIT_BUCKET if self.to_host => Ok(Some((NOWHERE, of.length.into()))),
            kind::BIT_BUCKET => Ok(None),
            kind::SEGMENT | kind::LAST_SEGMENT if !may_point => Err(Status::SglSegment),
            kind::SEGMENT | kind::LAST_SEGMENT => {
                if of.length == 0 || !of.length.is_multiple_of(sgl::LENGTH as u32) {
                    return Err(Status::SglSegment);
                }
                let left = of.length / sgl::LENGTH as u32;
                let is_last = of.kind == kind::LAST_SEGMENT;
                self.rest = Rest::Segment { at: of.address, left, is_last };
                Ok(None)
            }
            _ => Err(Status::SglType),
        }
    }

    /// The next address and the number of bytes there.
    #[inline]
    fn next_range(&mut self) -> Result<(u64, u64), Status> {
        if let Some(status) = self.wrong {
            return Err(status);
        }
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        match self.rest {
            Rest::Second(second) if self.len - self.done <= self.page => {
                self.rest = Rest::End;
                self.whole_page(second)
            }
            Rest::Second(second) if second % prp::ENTRY as u64 != 0 => Err(Status::PrpOffset),
            Rest::Second(second) | Rest::Pages(second) => self.listed_page(second),
            Rest::Segment { .. } => self.next_described(),
            Rest::End => Err(Status::SglDataLength),
        }
    }

    fn whole_page(&self, address: u64) -> Result<(u64, u64), Status> {
        if address & (self.page - 1) != 0 {
            return Err(Status::PrpOffset);
        }
        Ok((address, self.page))
    }

    /// The page that the list entry at `at` names. The last entry in a page of the list names the
    /// list's next page, unless it is the last entry of all.
    #[inline]
    fn listed_page(&mut self, at: u64) -> Result<(u64, u64), Status> {
        let is_last = self.len - self.done <= self.page;
        let ends_page = (at + prp::ENTRY as u64) & (self.page - 1) == 0;
        let mut entry = self.load(at)?;
        let mut at = at;
        if ends_page && !is_last {
            if entry & (self.page - 1) != 0 {
                return Err(Status::PrpOffset);
            }
            at = entry;
            entry = self.load(at)?;
        }
        self.rest = Rest::Pages(at.wrapping_add(prp::ENTRY as u64));
        self.whole_page(entry)
    }

    fn load(&self, at: u64) -> Result<u64, Status> {
        let mut bytes = [0; prp::ENTRY];
        self.memory.read(at, &mut bytes).map_err(|_| Status::DataTransfer)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The data that the next descriptor of a list describes.
    fn next_described(&mut self) -> Result<(u64, u64), Status> {
        loop {
            let Rest::Segment { at, left, is_last } = self.rest else {
                return Err(Status::SglDataLength);
            };
            let mut bytes = [0; sgl::LENGTH];
            self.memory.read(at, &mut bytes).map_err(|_| Status::DataTransfer)?;
            let next = at.wrapping_add(sgl::LENGTH as u64);
            self.rest = match left {
                1 => Rest::End,
                _ => Rest::Segment { at: next, left: left - 1, is_last },
            };
            // A segment that is not the last one may continue elsewhere, by its last descriptor
            // only.
            if let Some(range) =
                self.descriptor(Descriptor::parse(&bytes), left == 1 && !is_last)?
            {
                return Ok(range);
            }
        }
    }
}

/// Represents a bit bucket.
const NOWHERE: u64 = u64::MAX;

impl Iterator for Parts<'_> {
    type Item = Result<Part, Status>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.done < self.len {
            match self.next_range() {
                Ok((_, 0)) => {}
                Ok((address, room)) => {
                    let len = room.min(self.len - self.done) as usize;
                    let address = (address != NOWHERE).then_some(address);
                    let part = Part { address, done: self.done, len };
                    self.done += len as u64;
                    return Some(Ok(part));
                }
                Err(status) => {
                    self.done = self.len;
                    return Some(Err(status));
                }
            }
        }
        None
    }
}

/// Why a copy failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The host's memory or its description is invalid, or the command is.
    Refused(Status),
    /// The medium failed.
    Store,
    /// The storage below the namespace has no room.
    Full,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        if error.is_full() { Self::Full } else { Self::Store }
    }
}

impl From<OutOfRange> for Failed {
    fn from(_: OutOfRange) -> Self {
        Self::Refused(Status::DataTransfer)
    }
}
