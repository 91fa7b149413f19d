//! Files: derives an inode's attributes and content from its nodes.
//!
//! Theory. Each node carries all attributes and at most one piece of data. The node with the
//! highest version determines the attributes, and where pieces overlap the higher version is
//! visible. An interrupted write leaves a torn node at the end of what was written, which is
//! treated as if it did not exist; this is Linux's rule. Linux applies it to every node with a
//! wrong checksum, and so shows older data, or zeros, where data is damaged. Here a damaged node
//! keeps its place and reading it fails: unknown data is not made up. For the same reason ranges
//! that no node covers read as zeros only as long as nothing suggests that nodes are missing; Linux
//! and mkfs.jffs2 write a node for every hole.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::finding::Place;
use flysch_api::flash::Flash;
use flysch_api::vfs::{Damage, FsError};
use flysch_wire::jffs2::{ByteOrder, Compression, Inode};

use crate::found::NodeRef;
use crate::node::{self, Data, Reader};

/// The kind of a piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Data of the node with this number among the inode's nodes.
    Data(u32),
    /// Zeros written as a hole by this node.
    Hole(u32),
    /// Data of this node that cannot be read.
    Damaged(u32),
}

/// A stretch of a file that comes from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Where the node's data begins in the file.
    pub(crate) node_start: u32,
    pub(crate) piece: Piece,
}

/// The source of a file's bytes: fragments in ascending order, without overlap. Ranges without a
/// fragment are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) fragments: Vec<Fragment>,
    /// A node of the file cannot be read: ranges without a fragment may not be zeros.
    pub(crate) has_lost_nodes: bool,
}

/// The node that determines the attributes, with its index among `nodes`: the one with the highest
/// version that is not torn.
pub(crate) fn latest<F: Flash>(
    flash: &F,
    order: ByteOrder,
    nodes: &[NodeRef],
) -> Result<(Inode, usize), FsError> {
    let mut first_error = None;
    let mut reader = Reader::new(flash, order);
    for (number, &node) in nodes.iter().enumerate().rev() {
        match reader.judge(node) {
            Ok((_, Data::Torn)) => {
                first_error.get_or_insert(FsError::Damaged {
                    structure: "inode data",
                    place: node::place(flash, node.address),
                    cause: Damage::Torn,
                });
            }
            Ok((inode, Data::Good | Data::Damaged)) => return Ok((inode, number)),
            // What the flash does not give now may be there, and be newer than the rest.
            Err(error @ FsError::Medium { .. }) => return Err(error),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    let (structure, place) = ("inode without nodes", Place::default());
    let nothing = FsError::Damaged { structure, place, cause: Damage::Missing };
    Err(first_error.unwrap_or(nothing))
}

/// Whether the fixed part of any of these nodes is damaged.
///
/// # Errors
/// [`FsError::Medium`].
pub(crate) fn is_any_lost<F: Flash>(
    flash: &F,
    order: ByteOrder,
    nodes: &[NodeRef],
) -> Result<bool, FsError> {
    let mut reader = Reader::new(flash, order);
    for &node in nodes {
        match reader.inode(node) {
            Ok(_) => {}
            Err(error @ FsError::Medium { .. }) => return Err(error),
            Err(_) => return Ok(true),
        }
    }
    Ok(false)
}

/// A node, and what its fixed part says about its data.
#[derive(Clone, Copy)]
struct Extent {
    /// Index among the inode's nodes.
    number: u32,
    version: u32,
    start: u32,
    end: u32,
    is_hole: bool,
    /// The fixed part cannot be read; its position in the file is unknown.
    is_lost: bool,
}

impl Layout {
    /// Assembles a file from its nodes, in ascending order of versions; `latest` is the node that
    /// determines the attributes, and `size` is from that node. This verdict stands, however the
    /// nodes read by now: newer nodes are torn, and this one is not.
    ///
    /// # Errors
    /// [`FsError::Medium`]: without a node that the flash does not give now, older data would show.
    pub(crate) fn build<F: Flash>(
        flash: &F,
        order: ByteOrder,
        nodes: &[NodeRef],
        (size, latest): (u32, NodeRef),
    ) -> Result<Self, FsError> {
        let mut extents = extents(flash, order, nodes)?;
        let has_lost_nodes = extents.iter().any(|extent| extent.is_lost);
        extents.retain(|extent| !extent.is_lost && extent.start < extent.end);
        let mut by_start = extents.clone();
        by_start.sort_by_key(|extent| extent.start);
        let overlap = by_start.windows(2).any(|pair| pair[1].start < pair[0].end);
        let is_newer = |version: u32| version > latest.version;
        let any_newer = extents.iter().any(|extent| is_newer(extent.version));
        let mut failed = None;
        let mut fragments: Vec<Fragment> = if overlap || any_newer {
            let mut reader = Reader::new(flash, order);
            overlay(&extents, |extent| {
                let node = nodes[extent.number as usize];
                match reader.judge(node) {
                    Ok(_) if is_newer(node.version) => Data::Torn,
                    Ok((_, Data::Torn)) if node.address == latest.address => Data::Damaged,
                    Ok((_, data)) => data,
                    Err(error) => {
                        let is_medium = matches!(error, FsError::Medium { .. });
                        failed = failed.or(is_medium.then_some(error));
                        Data::Damaged
                    }
                }
            })
        } else {
            by_start.iter().map(|extent| extent.fragment(Data::Good)).collect()
        };
        if let Some(error) = failed {
            return Err(error);
        }
        fragments.retain(|fragment| fragment.start < size);
        if let Some(last) = fragments.last_mut() {
            last.end = last.end.min(size);
        }
        fragments.shrink_to_fit();
        Ok(Self { fragments, has_lost_nodes })
    }

    /// The fragments that end after `offset`.
    pub(crate) fn from(&self, offset: u32) -> &[Fragment] {
        &self.fragments[self.fragments.partition_point(|fragment| fragment.end <= offset)..]
    }
}

impl Extent {
    fn fragment(&self, data: Data) -> Fragment {
        let piece = match data {
            _ if self.is_hole => Piece::Hole(self.number),
            Data::Damaged => Piece::Damaged(self.number),
            Data::Good | Data::Torn => Piece::Data(self.number),
        };
        Fragment { start: self.start, end: self.end, node_start: self.start, piece }
    }
}

fn extents<F: Flash>(
    flash: &F,
    order: ByteOrder,
    nodes: &[NodeRef],
) -> Result<Vec<Extent>, FsError> {
    let mut reader = Reader::new(flash, order);
    let extent = |(number, &node): (usize, &NodeRef)| {
        let unknown = Extent {
            number: number as u32,
            version: node.version,
            start: 0,
            end: 0,
            is_hole: false,
            is_lost: true,
        };
        match reader.inode(node) {
            Ok(inode) => {
                // Linux passes over a node whose data begins behind the end of the file.
                let is_behind = inode.offset > inode.isize;
                let end = inode.offset.saturating_add(inode.data_len());
                Ok(Extent {
                    start: inode.offset,
                    end: if is_behind { inode.offset } else { end },
                    is_hole: inode.compression == Compression::Zero,
                    is_lost: false,
                    ..unknown
                })
            }
            Err(error @ FsError::Medium { .. }) => Err(error),
            Err(_) => Ok(unknown),
        }
    };
    nodes.iter().enumerate().map(extent).collect()
}

/// Overlays extents in ascending order of versions, the newest on top. `judge` is asked about the
/// data of those extents that are visible at all.
fn overlay(extents: &[Extent], mut judge: impl FnMut(&Extent) -> Data) -> Vec<Fragment> {
    // What is covered already, as merged ranges: start to end.
    let mut covered: BTreeMap<u32, u32> = BTreeMap::new();
    let mut fragments: Vec<Fragment> = vec![];
    let groups: Vec<&[Extent]> = extents.chunk_by(|a, b| a.version == b.version).collect();
    for group in groups.into_iter().rev() {
        // Equal versions are copies made by garbage collection: a good one goes first.
        let mut judged: Vec<(Extent, Data)> = vec![];
        for extent in group {
            if !is_covered(&covered, extent.start, extent.end) {
                let data = if extent.is_hole { Data::Good } else { judge(extent) };
                judged.push((*extent, data));
            }
        }
        judged.sort_by_key(|(_, data)| *data != Data::Good);
        for (extent, data) in judged {
            if data == Data::Torn {
                continue;
            }
            for (start, end) in gaps(&covered, extent.start, extent.end) {
                fragments.push(Fragment { start, end, ..extent.fragment(data) });
            }
            cover(&mut covered, extent.start, extent.end);
        }
    }
    fragments.sort_by_key(|fragment| fragment.start);
    fragments
}

/// Whether all of `start..end` is covered. One range does it alone, because those that touch are
/// merged; so an extent that turns out to be torn costs the same however many ranges it spans.
fn is_covered(covered: &BTreeMap<u32, u32>, start: u32, end: u32) -> bool {
    covered.range(..=start).next_back().is_some_and(|(_, &covered_end)| covered_end >= end)
}

/// The parts of `start..end` that are not covered. Those who ask [`cover`] them: all ranges in
/// between become one, so that each is passed once.
fn gaps(covered: &BTreeMap<u32, u32>, start: u32, end: u32) -> Vec<(u32, u32)> {
    let mut gaps = vec![];
    let mut at = start;
    if let Some((_, &covered_end)) = covered.range(..=start).next_back() {
        at = at.max(covered_end);
    }
    for (&next, &next_end) in covered.range(start..) {
        #[cfg(test)]
        crate::steps::count();
        if at >= end || next >= end {
            break;
        }
        if next > at {
            gaps.push((at, next));
        }
        at = at.max(next_end);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

/// Covers `start..end` and merges it with adjacent ranges, so that the number of ranges never
/// grows.
fn cover(covered: &mut BTreeMap<u32, u32>, start: u32, end: u32) {
    let (mut start, mut end) = (start, end);
    if let Some((&before, &before_end)) = covered.range(..=start).next_back()
        && before_end >= start
    {
        start = before;
        end = end.max(before_end);
    }
    let inside: Vec<u32> = covered.range(start..=end).map(|(&at, _)| at).collect();
    for at in inside {
        if let Some(inside_end) = covered.remove(&at) {
            end = end.max(inside_end);
        }
    }
    covered.insert(start, end);
}

#[cfg(test)]
mod tests;
