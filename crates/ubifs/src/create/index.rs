//! The index of a new file system: sorted leaves, then one level after another up to the root.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::ubifs::{Branch, Index, Key, KeyKind, Node, align8};

use super::head::Place;
use super::{LebSink, UbifsBuilder, UbifsCreateError};

/// A node the index leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) key: Key,
    pub(super) place: Place,
    /// Entries only: offset of the name in the list of names, where its length precedes it.
    pub(super) name: u32,
}

fn name_of(names: &[u8], at: u32) -> &[u8] {
    let at = at as usize;
    let length = usize::from(names[at]);
    &names[at + 1..at + 1 + length]
}

/// Sorts by key, and names with the same hash by their bytes.
pub(super) fn sort<E>(leaves: &mut [Leaf], names: &[u8]) -> Result<(), UbifsCreateError<E>> {
    let named = |key: Key| matches!(key.kind(), KeyKind::Entry | KeyKind::XattrEntry);
    leaves.sort_unstable_by(|a, b| {
        a.key.cmp(&b.key).then_with(|| {
            if named(a.key) {
                name_of(names, a.name).cmp(name_of(names, b.name))
            } else {
                core::cmp::Ordering::Equal
            }
        })
    });
    for pair in leaves.windows(2) {
        if pair[0].key == pair[1].key {
            let name = name_of(names, pair[0].name);
            assert!(named(pair[0].key), "a block or inode written twice: {:?}", pair[0].key);
            if name == name_of(names, pair[1].name) {
                return Err(UbifsCreateError::Duplicate {
                    inode: pair[0].key.inode(),
                    name: name.into(),
                });
            }
        }
    }
    Ok(())
}

impl<S: LebSink> UbifsBuilder<S> {
    /// Writes the index over the sorted leaves; returns the place of the root and the total bytes.
    pub(super) fn write_index(&mut self) -> Result<(Place, u64), UbifsCreateError<S::Error>> {
        let leaves = core::mem::take(&mut self.leaves);
        let mut below: Vec<(Key, Place)> =
            leaves.into_iter().map(|leaf| (leaf.key, leaf.place)).collect();
        let fanout = self.superblock.fanout as usize;
        let format = self.superblock.branch_format();
        let mut branches = vec![0; fanout * format.branch_size()];
        let mut size = 0;
        let mut level = 0;
        loop {
            let mut above = Vec::with_capacity(below.len().div_ceil(fanout));
            for children in below.chunks(fanout) {
                let out = &mut branches[..children.len() * format.branch_size()];
                let outs = out.chunks_mut(format.branch_size());
                for ((key, place), out) in children.iter().zip(outs) {
                    let hash = self.head.hash_of(*place);
                    let Place { lnum, offset, length } = *place;
                    Branch { lnum, offset, length, key: *key, hash: hash.bytes() }.write(out);
                }
                let node = Node::Index(Index::new(level, format, out));
                let place = self.head.append(&node)?;
                size += u64::from(align8(place.length));
                above.push((children[0].0, place));
            }
            if let [(_, root)] = above[..] {
                return Ok((root, size));
            }
            below = above;
            level += 1;
        }
    }
}
