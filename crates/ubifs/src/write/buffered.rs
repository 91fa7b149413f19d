//! A volume with the journal's write buffers on top.
//!
//! Each journal head appends to its LEB. What does not fill a write unit waits in memory, but reads
//! through this volume already see it.

use alloc::vec::Vec;

use flysch_api::flash::{Corrected, FlashError};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_wire::ubifs::{
    Group, JOURNAL_HEADS, NODE_ALIGNMENT, Node, PADDING_BYTE, PADDING_NODE_SIZE,
};

/// One journal head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// The bud it writes to.
    pub(crate) lnum: Option<u32>,
    /// Everything before this is on the flash; a multiple of the write unit.
    offset: u32,
    /// The bytes from `offset` on.
    buffer: Vec<u8>,
}

impl Head {
    /// Where the next node goes.
    pub(crate) fn end(&self) -> u32 {
        self.offset + self.buffer.len() as u32
    }
}

/// A volume and the write buffers of the journal's heads.
#[derive(Clone, Debug)]
pub(crate) struct Buffered<V> {
    flash: V,
    /// Write unit, bytes.
    pub(crate) unit: u32,
    pub(crate) heads: [Head; JOURNAL_HEADS],
    /// The last sequence number given to a node.
    pub(crate) sequence: u64,
    /// Whether anything was appended since the last commit.
    pub(crate) appended: bool,
    /// The flash has refused a change: nothing more is written.
    pub(crate) refused: bool,
}

impl<V: VolumeMut> Buffered<V> {
    pub(crate) fn new(volume: V, unit: u32) -> Self {
        let heads = Default::default();
        Self { flash: volume, unit, heads, sequence: 0, appended: false, refused: false }
    }

    /// The volume itself, without the buffered data.
    pub(crate) fn flash(&self) -> &V {
        &self.flash
    }

    /// The volume itself, bypassing the write buffers.
    pub(crate) fn flash_mut(&mut self) -> &mut V {
        &mut self.flash
    }

    /// Returns the volume; buffered data is lost.
    pub(crate) fn into_flash(self) -> V {
        self.flash
    }

    /// Where a head continues: LEB and offset.
    pub(crate) fn end_of(&self, head: usize) -> (u32, u32) {
        let head = &self.heads[head];
        (head.lnum.unwrap_or(0), head.end())
    }

    /// Moves a head to a LEB at `offset`; everything it wrote before must be on the flash.
    pub(crate) fn seek(&mut self, head: usize, lnum: Option<u32>, offset: u32) {
        assert!(self.heads[head].buffer.is_empty(), "a write buffer is synced before it moves");
        self.heads[head] = Head { lnum, offset, buffer: Vec::new() };
    }

    /// Appends whole nodes to a head's LEB; the head must have one, with room for them.
    pub(crate) fn append(&mut self, head: usize, bytes: &[u8]) -> Result<(), FlashError> {
        let unit = self.unit as usize;
        self.appended = true;
        let Head { lnum, offset, buffer } = &mut self.heads[head];
        let Some(lnum) = *lnum else { return Err(FlashError::OutOfRange) };
        buffer.extend_from_slice(bytes);
        let whole = buffer.len() / unit * unit;
        if whole != 0 {
            self.flash.write(lnum, *offset, &buffer[..whole])?;
            buffer.drain(..whole);
            *offset += whole as u32;
        }
        Ok(())
    }

    /// Writes a head's buffered data, padded; returns the LEB and its new end.
    pub(crate) fn sync_head(&mut self, head: usize) -> Result<Option<(u32, u32)>, FlashError> {
        let unit = self.unit as usize;
        let Head { lnum, offset, buffer } = &mut self.heads[head];
        let Some(lnum) = *lnum else { return Ok(None) };
        if !buffer.is_empty() {
            pad(buffer, unit);
            self.flash.write(lnum, *offset, buffer)?;
            *offset += buffer.len() as u32;
            buffer.clear();
        }
        Ok(Some((lnum, *offset)))
    }

    /// The head whose write buffer holds part of a range.
    fn buffered(&self, lnum: u32, offset: u32, len: usize) -> Option<&Head> {
        let inside =
            |head: &&Head| head.lnum == Some(lnum) && offset as usize + len > head.offset as usize;
        self.heads.iter().find(inside).filter(|head| !head.buffer.is_empty())
    }
}

/// Fills `buffer` up to a multiple of `unit` with padding.
pub(crate) fn pad(buffer: &mut Vec<u8>, unit: usize) {
    let start = buffer.len();
    let end = start.next_multiple_of(unit);
    debug_assert!(start.is_multiple_of(NODE_ALIGNMENT as usize));
    let left = end - start;
    if left < PADDING_NODE_SIZE {
        buffer.resize(end, PADDING_BYTE);
    } else {
        buffer.resize(end, 0);
        let padding = Node::Padding((left - PADDING_NODE_SIZE) as u32);
        padding.emit(0, Group::None, &mut buffer[start..]);
    }
}

impl<V: VolumeMut> Volume for Buffered<V> {
    fn geometry(&self) -> VolumeGeometry {
        self.flash.geometry()
    }

    fn state(&self, lnum: u32) -> LebState {
        self.flash.state(lnum)
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let Some(head) = self.buffered(lnum, offset, buffer.len()) else {
            return self.flash.read(lnum, offset, buffer);
        };
        let before = head.offset.saturating_sub(offset) as usize;
        let (flash, rest) = buffer.split_at_mut(before);
        let read = match flash.is_empty() {
            true => Ok(Corrected::NONE),
            false => self.flash.read(lnum, offset, flash),
        };
        // What error correction gave up on does not hide what is behind it.
        if !matches!(read, Ok(_) | Err(FlashError::Uncorrectable { .. })) {
            return read;
        }
        let from = (offset as usize + before - head.offset as usize).min(head.buffer.len());
        let held = &head.buffer[from..];
        let length = held.len().min(rest.len());
        rest[..length].copy_from_slice(&held[..length]);
        rest[length..].fill(0xff);
        read
    }

    fn point(&self, lnum: u32, offset: u32, len: usize) -> Option<&[u8]> {
        let Some(head) = self.buffered(lnum, offset, len) else {
            return self.flash.point(lnum, offset, len);
        };
        let from = offset.checked_sub(head.offset)? as usize;
        head.buffer.get(from..from + len)
    }
}
