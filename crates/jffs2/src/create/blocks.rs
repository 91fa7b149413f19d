//! Puts nodes into erase blocks and outputs the blocks.

use alloc::vec::Vec;

use flysch_wire::jffs2::{ByteOrder, Header, NodeType, SummaryEntry};

use super::{Jffs2CreateError, Jffs2Options, Padding};
use crate::summary::{Collector, Facts};

/// Size of a finished image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes written to the output.
    pub bytes: u64,
    /// Nodes, not counting clean markers and summaries.
    pub nodes: u64,
    /// Erase blocks used, even in part.
    pub blocks: u64,
}

/// The erase block being filled, and the output for full ones.
#[derive(Debug)]
pub(crate) struct Blocks<S> {
    order: ByteOrder,
    erase_size: usize,
    cleanmarker_len: usize,
    padding: Padding,
    size_max: u64,
    summary: Option<Collector>,
    block: Vec<u8>,
    sink: S,
    written: Written,
}

impl<E, S: FnMut(&[u8]) -> Result<(), E>> Blocks<S> {
    pub(crate) fn new(options: &Jffs2Options, sink: S) -> Self {
        Self {
            order: options.order,
            erase_size: options.erase_size as usize,
            cleanmarker_len: options.cleanmarker_len as usize,
            padding: options.padding,
            size_max: options.size_max.unwrap_or(u64::MAX),
            summary: options.summary.then(|| Collector::new(options.order)),
            block: Vec::with_capacity(options.erase_size as usize),
            sink,
            written: Written::default(),
        }
    }

    /// Ensures that a node of `len` bytes with a summary entry of `entry_len` bytes fits into the
    /// block; returns the maximum length of the node.
    pub(crate) fn reserve(
        &mut self,
        len: usize,
        entry_len: usize,
    ) -> Result<usize, Jffs2CreateError<E>> {
        if !self.block.is_empty() && self.room(entry_len) < len {
            self.close()?;
        }
        self.begin()?;
        let room = self.room(entry_len);
        if room < len { Err(Jffs2CreateError::NodeTooLong { need: len, room }) } else { Ok(room) }
    }

    /// Appends a node of `len` bytes, for which there must be room; `fill` writes it.
    pub(crate) fn append(
        &mut self,
        len: usize,
        entry: SummaryEntry<'_>,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let start = self.block.len();
        self.block.resize(start + len.next_multiple_of(4), 0xFF);
        let filled = fill(&mut self.block[start..]);
        assert_eq!(filled, len, "a node is as long as was announced");
        self.written.nodes += 1;
        if let Some(summary) = &mut self.summary {
            summary.push(&entry.at(start as u32));
        }
    }

    /// Outputs the rest and pads the image as requested.
    pub(crate) fn finish(mut self) -> Result<Written, Jffs2CreateError<E>> {
        match self.padding {
            Padding::None => {}
            Padding::Block => self.fill_block(),
            Padding::To(_) => self.fill_block(),
        }
        self.give_out()?;
        if let Padding::To(size) = self.padding {
            while self.written.bytes < size {
                self.begin()?;
                self.fill_block();
                self.give_out()?;
            }
        }
        Ok(self.written)
    }

    /// Bytes left in the block, after deducting a summary with one more entry.
    fn room(&self, entry_len: usize) -> usize {
        let summary = self.summary.as_ref().map_or(0, |summary| summary.len_with(entry_len));
        (self.erase_size - self.block.len()).saturating_sub(summary)
    }

    /// Starts a block with its clean marker, unless one is already started.
    fn begin(&mut self) -> Result<(), Jffs2CreateError<E>> {
        if !self.block.is_empty() {
            return Ok(());
        }
        if self.written.bytes + self.erase_size as u64 > self.size_max {
            return Err(Jffs2CreateError::Full { limit: self.size_max });
        }
        self.written.blocks += 1;
        if self.cleanmarker_len != 0 {
            self.block.resize(self.cleanmarker_len.next_multiple_of(4), 0xFF);
            let total_len = self.cleanmarker_len as u32;
            let marker = Header { node_type: NodeType::CLEANMARKER, total_len };
            marker.emit(self.order, &mut self.block);
        }
        Ok(())
    }

    fn fill_block(&mut self) {
        if !self.block.is_empty() || matches!(self.padding, Padding::To(_)) {
            self.block.resize(self.erase_size, 0xFF);
        }
    }

    /// Closes the block with its summary and outputs it.
    fn close(&mut self) -> Result<(), Jffs2CreateError<E>> {
        let start = self.block.len();
        self.block.resize(self.erase_size, 0xFF);
        if let Some(summary) = &mut self.summary {
            let facts = Facts { cleanmarker_len: self.cleanmarker_len as u32, padded: 0 };
            // A summary that Linux would not read is left out: the block is scanned.
            summary.finish(start as u32, facts, &mut self.block[start..]);
        }
        self.give_out()
    }

    fn give_out(&mut self) -> Result<(), Jffs2CreateError<E>> {
        if !self.block.is_empty() {
            (self.sink)(&self.block).map_err(Jffs2CreateError::Output)?;
            self.written.bytes += self.block.len() as u64;
            self.block.clear();
        }
        Ok(())
    }
}
