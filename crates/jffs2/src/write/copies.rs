//! Which of several copies of a node is valid.
//!
//! Theory. Garbage collection copies nodes as they are, and a power cut leaves both. The valid one
//! is the one that was written first, according to the stamps of blocks. So a block that holds
//! nothing but copies of nodes in other blocks, such as a block to which an interrupted mount
//! copied them, can be erased, and consecutive interrupted mounts take no more room than one. This
//! loses nothing: a block is erased only when the copies of its content are on the flash, so
//! whatever was interrupted by a power cut has an original elsewhere, or was never reported as
//! written. If a page was seen to be unstable, its nodes have the lowest priority.
//!
//! But if all valid nodes of a block were copied, power may have been cut during its erase, and it
//! is unknown how long its cells will read as they do now. Then the copies are valid.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash::{Flash, FlashGeometry, FlashMut};
use flysch_wire::jffs2::{ByteOrder, Inode, crc32};

use super::collector::Collector;
use super::medium::Medium;
use super::shaky::Doubts;
use super::space::{Kind, Raw, State};
use crate::found::{Address, Found, NodeRef};
use crate::node;

/// The last copies made from a block are in at most this many blocks, including the gap in the
/// numbers of stamps.
const RECENT: u32 = 3;

/// The data that decides which of several copies is valid.
#[derive(Debug)]
pub(super) struct Ranks {
    geometry: FlashGeometry,
    /// The number of the last stamp of each block, 0 for a block without one.
    ages: Vec<u32>,
    /// Positions of stamps, and their numbers.
    stamps: Vec<(u64, u32)>,
    /// Pages that were seen to be unstable, by their start.
    shaky: Vec<Range<u64>>,
}

impl Ranks {
    pub(super) fn new<F: FlashMut>(medium: &Medium<F>, doubts: &Doubts, found: &Found) -> Self {
        let geometry = *medium.geometry();
        let is_shaky = |page: &Range<u64>| doubts.shaky.contains(&geometry.block_of(page.start));
        let shaky = medium.frozen_pages().into_iter().filter(is_shaky).collect();
        let ages = doubts.ages.clone();
        let listed = (0..).zip(&found.blocks).zip(&ages).filter(|((_, it), _)| it.has_summary);
        // A block with a summary has one stamp, at its start.
        let listed = listed.map(|((block, _), age)| (geometry.block_start(block), *age));
        let met = found.stamps.iter().map(|(offset, stamp)| (*offset, stamp.number));
        let mut stamps: Vec<(u64, u32)> = met.chain(listed).collect();
        stamps.sort_unstable();
        Self { geometry, ages, stamps, shaky }
    }

    /// The number of the last stamp of a block, 0 if there is none.
    pub(super) fn opened(&self, block: u32) -> u32 {
        self.ages.get(block as usize).copied().unwrap_or(0)
    }

    /// The rank of a copy of `len` bytes: the lowest one is valid. It consists of whether a page of
    /// the copy was seen to be unstable, and the number of the stamp before it.
    pub(super) fn of(&self, address: Address, len: u32) -> (bool, u32, Address) {
        let (start, end) = (address.offset(), address.offset().saturating_add(len.into()));
        let at = self.shaky.partition_point(|page| page.end <= start);
        let is_shaky = self.shaky.get(at).is_some_and(|page| page.start < end);
        let before = self.stamps.partition_point(|(offset, _)| *offset <= start);
        let block = self.geometry.block_of(start);
        let stamp = self.stamps[..before].last();
        let stamp = stamp.filter(|(offset, _)| self.geometry.block_of(*offset) == block);
        (is_shaky, stamp.map_or(0, |(_, number)| *number), address)
    }

    /// Of the copies of an inode node one stays, the first of those that are good. Returns the
    /// others; `nodes` are sorted by inode and version.
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

/// How many nodes with the length and the checksum of a node are compared with it.
const ALIKE_MAX: usize = 8;

/// Invalid nodes that may be copies of valid ones, by owner and tag.
#[derive(Default)]
struct Copies(BTreeMap<(u32, u32), Candidates>);

/// Nodes with the same owner and tag. There may be many, be it the entries of a name that came and
/// went, be it that an image was made so: each is read at most once before it is compared.
#[derive(Default)]
struct Candidates {
    unread: Vec<(Raw, Address)>,
    /// By length and checksum of all their bytes.
    read: BTreeMap<(u32, u32), Vec<(Kind, Address)>>,
}

impl Copies {
    fn push(&mut self, raw: Raw, address: Address) {
        self.0.entry((raw.owner, raw.tag)).or_default().unread.push((raw, address));
    }

    /// A copy of a node, and its bytes; `is_later` says which copies are considered.
    fn of(
        &mut self,
        (from, raw): (Address, &Raw),
        is_later: impl Fn(Address) -> bool,
        read: impl Fn(Address, u32) -> Option<Vec<u8>>,
    ) -> Option<(Address, Vec<u8>)> {
        let candidates = self.0.get_mut(&(raw.owner, raw.tag))?;
        for (raw, address) in core::mem::take(&mut candidates.unread) {
            if let Some(bytes) = read(address, raw.len) {
                let alike = candidates.read.entry((raw.len, crc32(&bytes))).or_default();
                alike.push((raw.kind, address));
            }
        }
        let bytes = read(from, raw.len)?;
        let alike = candidates.read.get(&(raw.len, crc32(&bytes)))?;
        let mut later = alike
            .iter()
            .take(ALIKE_MAX)
            .filter(|(kind, address)| *kind == raw.kind && is_later(*address));
        let is_copy = |address: Address| read(address, raw.len).is_some_and(|it| it == bytes);
        let to = later.find_map(|(_, address)| is_copy(*address).then_some(*address))?;
        Some((to, bytes))
    }
}

impl<F: FlashMut> Collector<F> {
    /// Switches to the copies of all valid nodes of a block, where there are copies. Invalid nodes
    /// must be known.
    pub(super) fn trust_copies(&mut self, ranks: &Ranks) {
        let mut copies = self.recent_copies(ranks);
        // Without any other block the originals may not be given up before the copies are firm.
        if copies.0.is_empty() || self.log().blocks.available() == 0 {
            return;
        }
        for number in 0..self.log().blocks.blocks.len() as u32 {
            let block = &self.log().blocks.blocks[number as usize];
            if block.state != State::Closed {
                continue;
            }
            let counting = block.raws.iter().filter(|raw| !raw.is_dead);
            let copied = counting.map(|raw| {
                let from = self.log().blocks.address(number, raw.at);
                let (to, bytes) = self.copy_of(from, raw, &mut copies, ranks)?;
                Some((from, *raw, to, bytes))
            });
            let Some(copied) = copied.collect::<Option<Vec<_>>>() else { continue };
            for (from, raw, to, bytes) in copied {
                self.nodes_mut().revive(to);
                self.nodes_mut().moved(from, to, &raw, &bytes);
            }
        }
    }

    /// The invalid nodes of the blocks that were opened last.
    fn recent_copies(&self, ranks: &Ranks) -> Copies {
        let newest = ranks.ages.iter().copied().max().unwrap_or(0);
        let is_recent = |age: u32| age > 0 && newest - age < RECENT;
        let mut copies = Copies::default();
        for (number, (block, age)) in (0..).zip(self.log().blocks.blocks.iter().zip(&ranks.ages)) {
            let dead = block.raws.iter().filter(|raw| raw.is_dead && raw.kind != Kind::Other);
            for raw in dead.filter(|_| is_recent(*age)) {
                copies.push(*raw, self.log().blocks.address(number, raw.at));
            }
        }
        copies
    }

    /// A copy of a node in a block that was opened later, and its bytes.
    fn copy_of(
        &self,
        from: Address,
        raw: &Raw,
        copies: &mut Copies,
        ranks: &Ranks,
    ) -> Option<(Address, Vec<u8>)> {
        let read = |address: Address, len: u32| {
            let mut bytes = vec![0; len as usize];
            node::read(&self.log().medium, address.offset(), &mut bytes).ok().map(|()| bytes)
        };
        let rank = ranks.of(from, raw.len);
        let is_later = |address: Address| {
            let (is_shaky, age, _) = ranks.of(address, raw.len);
            !is_shaky && age > rank.1
        };
        copies.of((from, raw), is_later, read)
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn each_node_is_read_a_few_times_however_many_may_be_copies() {
        const COUNT: u32 = 1000;
        let raw = Raw { at: 0, len: 44, kind: Kind::Dirent, is_dead: true, owner: 1, tag: 7 };
        let mut copies = Copies::default();
        // All with the hash of one name, and every other one with a copy further back.
        let place = |number: u32| Address::new(u64::from(number) * 44);
        (COUNT..2 * COUNT).for_each(|number| copies.push(raw, place(number)));
        let reads = Cell::new(0);
        let read = |address: Address, len: u32| {
            reads.set(reads.get() + 1);
            let number = address.offset() / 44;
            let content = if number.is_multiple_of(2) { number % u64::from(COUNT) } else { number };
            let mut bytes = vec![0; len as usize];
            bytes[..8].copy_from_slice(&content.to_le_bytes());
            Some(bytes)
        };
        for number in 0..COUNT {
            let found = copies.of((place(number), &raw), |_| true, read);
            let expected = (number % 2 == 0).then(|| place(number + COUNT));
            assert_eq!(found.map(|(address, _)| address), expected);
            assert!(copies.of((place(number), &raw), |_| false, read).is_none());
        }
        let other = Raw { tag: 8, ..raw };
        let before = reads.get();
        assert!(copies.of((place(0), &other), |_| true, read).is_none());
        assert_eq!(reads.get(), before, "there is nothing to compare with");
        assert!(before < 5 * COUNT, "{before} reads");
    }
}
