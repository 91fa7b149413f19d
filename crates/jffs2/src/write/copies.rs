//! Which of several copies of a node counts.
//!
//! Theory. Garbage collection copies nodes as they are, and a power cut leaves both. The one that
//! counts is that in the block that was opened first: so a block that holds nothing but copies of
//! what is in others, as one to which a mount that was cut short copied it, can be erased, and
//! mounts that are cut short one after the other take no more room than one. Nothing is lost with
//! it: a block is erased only when what was copied from it is on the flash, so what the power was
//! cut over has an original elsewhere, or was never said to be there. Where a page was seen to read
//! as either, what is in it comes last.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash::{Flash, FlashMut, Geometry};
use flysch_wire::jffs2::{ByteOrder, Inode};

use super::medium::Medium;
use super::shaky::Doubts;
use crate::found::{Address, NodeRef};
use crate::node;

/// What tells which of several copies counts.
#[derive(Debug)]
pub(super) struct Ranks {
    geometry: Geometry,
    /// The number of the stamp of each block, 0 for one without.
    ages: Vec<u32>,
    /// Pages that were seen to read as either, by where they begin.
    shaky: Vec<Range<u64>>,
}

impl Ranks {
    pub(super) fn new<F: FlashMut>(medium: &Medium<F>, doubts: &Doubts) -> Self {
        let geometry = *medium.geometry();
        let is_shaky = |page: &Range<u64>| doubts.shaky.contains(&geometry.block_of(page.start));
        let shaky = medium.frozen_pages().into_iter().filter(is_shaky).collect();
        Self { geometry, ages: doubts.ages.clone(), shaky }
    }

    /// The rank of a copy of `len` bytes: the least one counts.
    pub(super) fn of(&self, address: Address, len: u32) -> (bool, u32, Address) {
        let (start, end) = (address.offset(), address.offset().saturating_add(len.into()));
        let at = self.shaky.partition_point(|page| page.end <= start);
        let is_shaky = self.shaky.get(at).is_some_and(|page| page.start < end);
        let block = self.geometry.block_of(start);
        (is_shaky, self.ages.get(block as usize).copied().unwrap_or(0), address)
    }

    /// Of copies of an inode node one stays, the first of those that are good. Returns the others;
    /// `nodes` are sorted by inode and version.
    pub(super) fn drop_copies<F: Flash>(
        &self,
        medium: &Medium<F>,
        order: ByteOrder,
        nodes: &mut Vec<NodeRef>,
    ) -> Vec<NodeRef> {
        nodes.sort_by_key(|node| (node.ino, node.version, self.of(node.address, node.total_len)));
        let mut dropped: Vec<NodeRef> = vec![];
        for group in nodes.chunk_by(|a, b| (a.ino, a.version) == (b.ino, b.version)) {
            if group.len() < 2 {
                continue;
            }
            let read = |node: &NodeRef| {
                if node.total_len > self.geometry.erase_size {
                    return None;
                }
                let mut bytes = vec![0; node.total_len as usize];
                node::read(medium, node.address.offset(), &mut bytes).ok()?;
                let is_good = Inode::parse(&bytes, order).is_ok_and(|it| it.data(&bytes).is_ok());
                is_good.then_some(bytes)
            };
            let Some((first, bytes)) =
                group.iter().find_map(|node| Some((node.address, read(node)?)))
            else {
                continue;
            };
            // Two that are good and differ are no copies: nobody here writes that.
            let is_copy = |node: &&NodeRef| {
                node.address != first && read(node).is_none_or(|other| other == bytes)
            };
            dropped.extend(group.iter().filter(is_copy));
        }
        if !dropped.is_empty() {
            let mut gone: Vec<Address> = dropped.iter().map(|node| node.address).collect();
            gone.sort_unstable();
            nodes.retain(|node| gone.binary_search(&node.address).is_err());
        }
        dropped
    }
}
