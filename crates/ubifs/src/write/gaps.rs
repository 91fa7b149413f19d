//! Index nodes in the gaps of old index LEBs, for when no LEB is empty.
//!
//! A gap is what neither the committed index nor the one being written uses. The LEB is changed as
//! a whole, with the nodes in use left in place, so the committed index stays valid throughout.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    Branch, Group, Index as IndexNode, Node, NodeKind, PADDING_BYTE, PADDING_NODE_SIZE, align8,
};

use super::buffered::Buffered;
use super::merge::{Entry, IndexWriter};
use crate::access::{Cause, Fault, Scratch};
use crate::index::Visit;
use crate::location::Location;
use crate::overlay::Overlay;
use crate::scan::{Item, Scan};
use crate::store::Store;

/// A LEB whose gaps are being filled.
#[derive(Debug)]
pub(super) struct Gaps {
    lnum: u32,
    content: Vec<u8>,
    /// Start and end of each gap.
    gaps: Vec<(u32, u32)>,
}

/// Looks for a node at a place.
struct Find {
    place: Location,
    found: bool,
}

impl Visit for Find {
    fn node(&mut self, at: Location, _node: &IndexNode<'_>) -> ControlFlow<()> {
        self.found |= at == self.place;
        if self.found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn leaf(&mut self, _branch: &Branch<'_>, _from: Location) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn lost(
        &mut self,
        _fault: Fault,
        _first: flysch_wire::ubifs::Key,
        _last: flysch_wire::ubifs::Key,
    ) -> ControlFlow<()> {
        // Better to lose a gap than a node.
        self.found = true;
        ControlFlow::Break(())
    }
}

impl<V: VolumeMut> IndexWriter<'_, V> {
    /// The nodes of the committed index in a LEB, in order of their offsets.
    pub(super) fn index_nodes_in(&self, lnum: u32) -> Result<Vec<Entry>, FsError> {
        let store = &*self.store;
        let mut scratch = Scratch::new();
        let leb = store
            .access
            .leb(lnum, &mut scratch)
            .map_err(|cause| unreadable(store, (lnum, 0), cause))?;
        let mut nodes = Vec::new();
        for item in Scan::new(leb, 0) {
            let Item::Node { offset, header, bytes } = item else { continue };
            if header.kind != NodeKind::Index {
                continue;
            }
            let Ok(Node::Index(node)) = Node::decode(header, bytes, store.format()) else {
                continue;
            };
            let at = Location { lnum, offset, length: header.length };
            if !node.is_empty() && self.is_committed(node.key(0), at) {
                nodes.push(Entry { key: node.key(0), at });
            }
        }
        Ok(nodes)
    }

    /// Whether the committed index has an index node with this first key at `place`.
    fn is_committed(&self, key: flysch_wire::ubifs::Key, place: Location) -> bool {
        let store = &*self.store;
        let mut find = Find { place, found: false };
        if let Some(index) = &store.index {
            let area = (&store.access, &store.layout);
            let _ = index.walk(area, &Overlay::default(), (key, key), &mut find);
        }
        find.found
    }

    /// Puts an index node into a gap.
    pub(super) fn put_in_gap(&mut self, bytes: &[u8]) -> Result<(u32, u32), FsError> {
        let length = bytes.len() as u32;
        loop {
            if let Some(gaps) = &mut self.gaps
                && let Some(gap) = gaps.gaps.iter_mut().find(|gap| gap.1 - gap.0 >= length)
            {
                let offset = gap.0;
                gap.0 += length;
                gaps.content[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                return Ok((gaps.lnum, offset));
            }
            self.finish_gaps()?;
            self.gaps = Some(self.open_gaps()?);
        }
    }

    /// Chooses the index LEB with the most dirt, preferring those that are not being emptied, among
    /// those without a node of the new index: that is not a gap, although the committed index does
    /// not use it.
    fn open_gaps(&mut self) -> Result<Gaps, FsError> {
        let leb_size = self.store.leb_size();
        let head = self.index.at.0;
        let lebs = self
            .space
            .lebs()
            .filter(|(lnum, leb)| leb.index && *lnum != head && !self.written.contains(lnum));
        let dirtiest =
            lebs.max_by_key(|(lnum, leb)| (!self.moving.contains(lnum), leb_size - leb.used));
        let Some((lnum, _)) = dirtiest else {
            return Err(FsError::NoSpace);
        };
        self.written.insert(lnum);
        let nodes = self.index_nodes_in(lnum)?;
        let mut content = alloc::vec![0; leb_size as usize];
        let (mut gaps, mut end) = (Vec::new(), 0);
        for node in nodes {
            let Location { offset, length, .. } = node.at;
            if offset > end {
                gaps.push((end, offset));
            }
            let mut scratch = Scratch::new();
            let bytes = self.store.access.bytes(node.at, &mut scratch);
            let bytes = bytes.map_err(|cause| unreadable(self.store, (lnum, offset), cause))?;
            content[offset as usize..][..length as usize].copy_from_slice(bytes);
            end = align8(offset + length);
        }
        gaps.push((end, leb_size));
        self.space.change(lnum, |leb| leb.free = 0);
        Ok(Gaps { lnum, content, gaps })
    }

    /// Writes the LEB with its filled gaps.
    pub(super) fn finish_gaps(&mut self) -> Result<(), FsError> {
        let Some(mut gaps) = self.gaps.take() else { return Ok(()) };
        let leb_size = self.store.leb_size();
        let mut end = leb_size;
        for &(start, stop) in &gaps.gaps {
            let stop = if stop == leb_size {
                end = start.next_multiple_of(self.store.unit());
                end
            } else {
                stop
            };
            fill(&mut gaps.content[start as usize..stop as usize]);
        }
        self.store.access.change_leb(gaps.lnum, &gaps.content[..end as usize])?;
        self.space.change(gaps.lnum, |leb| leb.free = leb_size - end);
        Ok(())
    }
}

fn unreadable<V: VolumeMut>(
    store: &Store<Buffered<V>>,
    (lnum, offset): (u32, u32),
    cause: Cause,
) -> FsError {
    let place = store.access.place(lnum, offset);
    Fault { structure: "index LEB", place, cause }.into()
}

/// Fills a gap with padding.
pub(super) fn fill(gap: &mut [u8]) {
    if gap.len() < PADDING_NODE_SIZE {
        gap.fill(PADDING_BYTE);
    } else {
        gap.fill(0);
        let padding = Node::Padding((gap.len() - PADDING_NODE_SIZE) as u32);
        padding.emit(0, Group::None, gap);
    }
}
