//! What is known about an inode in use: its attributes, and where its bytes are.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_api::flash::Flash;
use flysch_api::vfs::{FileKind, FsError};
use flysch_wire::jffs2::ByteOrder;

use super::tables::InodeState;
use crate::file::{self, Layout, Piece};
use crate::found::{Address, NodeRef};
use crate::node::Reader;
use crate::read::{Attributes, Told, entry_time, kind};

/// A stretch of a file that comes from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) end: u32,
    /// The offset in the file at which the node's data begins.
    pub(crate) node_start: u32,
    pub(crate) address: Address,
    pub(crate) version: u32,
    /// Length of the node.
    pub(crate) total_len: u32,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Data,
    Hole,
    Damaged,
}

/// An inode in use.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) attributes: Attributes,
    /// The node with the highest version, which determines the attributes.
    pub(crate) latest: Option<NodeRef>,
    /// What a node of this inode also stores: a target or a device number.
    pub(crate) data: Box<[u8]>,
    /// A regular file's bytes, by offset.
    parts: BTreeMap<u32, Part>,
    /// Number of parts that come from each node.
    uses: BTreeMap<Address, u32>,
    /// A node cannot be read: ranges without a part may not be zeros.
    pub(crate) has_lost_nodes: bool,
}

impl Loaded {
    /// An inode without nodes yet.
    pub(crate) fn new(attributes: Attributes, data: &[u8]) -> Self {
        Self {
            attributes,
            latest: None,
            data: data.into(),
            parts: BTreeMap::new(),
            uses: BTreeMap::new(),
            has_lost_nodes: false,
        }
    }

    /// Reads what its nodes determine.
    pub(crate) fn read<F: Flash>(
        flash: &F,
        order: ByteOrder,
        inode: &InodeState,
    ) -> Result<Self, FsError> {
        let nodes = inode.living();
        let mut loaded = if nodes.is_empty() && inode.directory.is_some() {
            Self::new(Attributes::MADE_UP, &[])
        } else {
            let (latest, number) = file::latest(flash, order, &nodes)?;
            let node = nodes[number];
            let mut loaded = Self::new(Attributes::of(&latest), &[]);
            loaded.latest = Some(node);
            // A newer one that cannot be read now may be readable later, and count.
            loaded.has_lost_nodes = file::is_any_lost(flash, order, &nodes[number + 1..])?;
            match kind(flash, &loaded.told())? {
                FileKind::Regular => {
                    loaded.lay_out(flash, order, &nodes, node)?;
                }
                FileKind::Symlink | FileKind::CharacterDevice | FileKind::BlockDevice => {
                    loaded.data = Reader::new(flash, order).stored(node)?.into();
                }
                FileKind::Directory | FileKind::Fifo | FileKind::Socket => {}
            }
            loaded
        };
        if inode.directory.is_some() {
            loaded.directory_times(flash, order, inode)?;
        }
        Ok(loaded)
    }

    fn lay_out<F: Flash>(
        &mut self,
        flash: &F,
        order: ByteOrder,
        nodes: &[NodeRef],
        latest: NodeRef,
    ) -> Result<(), FsError> {
        let layout = Layout::build(flash, order, nodes, (self.attributes.size, latest))?;
        self.has_lost_nodes = layout.has_lost_nodes;
        for fragment in &layout.fragments {
            let (number, what) = match fragment.piece {
                Piece::Data(number) => (number, What::Data),
                Piece::Damaged(number) => (number, What::Damaged),
                Piece::Hole(number) => (number, What::Hole),
            };
            let node = nodes[number as usize];
            let part = Part {
                end: fragment.end,
                node_start: fragment.node_start,
                address: node.address,
                version: node.version,
                total_len: node.total_len,
                what,
            };
            self.parts.insert(fragment.start, part);
            *self.uses.entry(node.address).or_default() += 1;
        }
        Ok(())
    }

    /// A directory was last changed when its newest entry with a time was written, if that is newer
    /// than its node: Linux writes no time when it moves entries of a directory whose times were
    /// set by hand.
    fn directory_times<F: Flash>(
        &mut self,
        flash: &F,
        order: ByteOrder,
        inode: &InodeState,
    ) -> Result<(), FsError> {
        let Some(NodeRef { version, .. }) = self.latest else { return Ok(()) };
        let entries = inode.directory.iter().flat_map(|directory| directory.all());
        let mut newer: Vec<_> = entries
            .filter(|entry| !entry.by_mkfs && entry.version > version)
            .map(|entry| (entry.version, entry.address))
            .collect();
        newer.sort_unstable();
        let newest_first = newer.into_iter().rev().map(|(_, address)| address);
        if let Some(time) = entry_time(flash, order, newest_first)? {
            (self.attributes.mtime, self.attributes.ctime) = (time, time);
        }
        Ok(())
    }

    /// The same for read-only use.
    pub(crate) fn told(&self) -> Told {
        Told { attributes: self.attributes, node: self.latest }
    }

    /// Parts that end after `offset` and begin before `end`, with their starts.
    pub(crate) fn parts(&self, offset: u32, end: u32) -> impl Iterator<Item = (u32, Part)> {
        let before = self.parts.range(..=offset).next_back();
        let first = before.filter(|(_, part)| part.end > offset);
        let behind =
            self.parts.range((core::ops::Bound::Excluded(offset), core::ops::Bound::Unbounded));
        first
            .into_iter()
            .chain(behind)
            .map(|(start, part)| (*start, *part))
            .take_while(move |(start, _)| *start < end)
    }

    pub(crate) fn parts_len(&self) -> usize {
        self.parts.len()
    }

    /// Whether any part comes from the node.
    pub(crate) fn is_used(&self, address: Address) -> bool {
        let tells = self.latest.is_some_and(|latest| latest.address == address);
        tells || self.uses.contains_key(&address)
    }

    /// How many parts come from the node.
    pub(crate) fn uses(&self, address: Address) -> u32 {
        self.uses.get(&address).copied().unwrap_or(0)
    }

    /// Overlays a new part; returns nodes that are no longer visible.
    pub(crate) fn lay(&mut self, start: u32, part: Part) -> Vec<(Address, u32)> {
        let mut gone = self.cut(start, part.end);
        *self.uses.entry(part.address).or_default() += 1;
        self.parts.insert(start, part);
        gone.retain(|(address, _)| !self.is_used(*address));
        gone
    }

    /// Removes everything between `start` and `end`; returns nodes that are no longer visible.
    pub(crate) fn cut(&mut self, start: u32, end: u32) -> Vec<(Address, u32)> {
        let touched: Vec<(u32, Part)> = self.parts(start, end).collect();
        let mut gone = Vec::new();
        for (at, part) in touched {
            self.parts.remove(&at);
            let mut pieces = 0;
            if at < start {
                self.parts.insert(at, Part { end: start, ..part });
                pieces += 1;
            }
            if part.end > end {
                self.parts.insert(end, part);
                pieces += 1;
            }
            let uses = self.uses.entry(part.address).or_default();
            *uses = *uses + pieces - 1;
            if *uses == 0 {
                self.uses.remove(&part.address);
                gone.push((part.address, part.version));
            }
        }
        gone.retain(|(address, _)| !self.is_used(*address));
        gone
    }

    /// A newer node determines the attributes; returns the older one if no part of it is visible.
    pub(crate) fn set_latest(&mut self, node: NodeRef) -> Option<NodeRef> {
        self.latest.replace(node).filter(|old| !self.is_used(old.address))
    }

    /// A node was copied elsewhere; its data begins at `node_start` in the file.
    pub(crate) fn moved(&mut self, from: Address, to: Address, node_start: u32) {
        if let Some(latest) = &mut self.latest
            && latest.address == from
        {
            latest.address = to;
        }
        let Some(count) = self.uses.remove(&from) else { return };
        self.uses.insert(to, count);
        let mut left = count;
        for (_, part) in self.parts.range_mut(node_start..) {
            if left == 0 {
                break;
            }
            if part.address == from {
                part.address = to;
                left -= 1;
            }
        }
    }
}
