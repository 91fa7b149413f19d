//! The LEB properties tree of a new file system, written as a whole.
//!
//! Leaves from left to right, then the inner nodes level by level up to the root, then the tables,
//! in sequence: a node that does not fit the rest of a LEB starts the next one. Linux does the same
//! at its first commit; later commits write only nodes that changed.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::ubifs::lpt::{LebProperties, LptFormat, LptPlace, Lsave, Ltab, Nnode, Pnode};
use flysch_wire::ubifs::{DATA_NODE_SIZE, INLINE_DATA_MAX, INODE_NODE_SIZE, LPT_FANOUT};

use crate::auth::{Digest, HashAlgorithm, Hasher};

/// A LEB of the tree and its content.
pub(super) struct LptLeb {
    /// Which LEB.
    pub(super) lnum: u32,
    /// Nodes, and 0xFF up to a multiple of the write size.
    pub(super) content: Vec<u8>,
}

/// A whole tree, and the places of its parts.
pub(super) struct NewLpt {
    /// The LEBs to write; the rest of the area is empty.
    pub(super) lebs: Vec<LptLeb>,
    /// The root.
    pub(super) root: LptPlace,
    /// The table of the tree's own LEBs.
    pub(super) ltab: LptPlace,
    /// The table of interesting LEBs, in the big model.
    pub(super) lsave: Option<LptPlace>,
    /// Where the next write goes.
    pub(super) head: LptPlace,
    /// Hash of the leaves; [`Digest::NONE`] unless authenticated.
    pub(super) hash: Digest,
}

/// Writes nodes in sequence.
struct Writer {
    format: LptFormat,
    write_size: u32,
    /// The last one is being filled.
    lebs: Vec<LptLeb>,
    /// Free and dirty bytes of the LEBs before it.
    ltab: Vec<(u32, u32)>,
    /// Hashes the leaves.
    hasher: Option<Hasher>,
}

impl Writer {
    /// Reserves a place for a node of `size` bytes.
    fn reserve(&mut self, size: usize) -> LptPlace {
        let leb_size = self.format.leb_size as usize;
        if self.lebs.last().is_none_or(|leb| leb.content.len() + size > leb_size) {
            self.close();
            let lnum = self.format.first + self.lebs.len() as u32;
            self.lebs.push(LptLeb { lnum, content: Vec::new() });
        }
        let leb = self.lebs.last_mut().expect("pushed above");
        let offset = leb.content.len();
        leb.content.resize(offset + size, 0);
        LptPlace { lnum: leb.lnum, offset: offset as u32 }
    }

    fn bytes(&mut self, place: LptPlace) -> &mut [u8] {
        let leb = &mut self.lebs[(place.lnum - self.format.first) as usize];
        &mut leb.content[place.offset as usize..]
    }

    /// Pads the last LEB to the write size and records its properties.
    fn close(&mut self) {
        let Some(leb) = self.lebs.last_mut() else { return };
        let end = leb.content.len() as u32;
        let padded = end.next_multiple_of(self.write_size);
        leb.content.resize(padded as usize, 0xff);
        self.ltab.push((self.format.leb_size - padded, padded - end));
    }

    /// Writes the leaves.
    fn pnodes(&mut self, properties: &[LebProperties]) -> Vec<LptPlace> {
        let format = self.format;
        let empty = LebProperties { free: format.leb_size, dirty: 0, index: false };
        let leaves = (0..).zip(properties.chunks(LPT_FANOUT));
        leaves
            .map(|(number, group)| {
                let mut lebs = [empty; LPT_FANOUT];
                lebs[..group.len()].copy_from_slice(group);
                let place = self.reserve(format.pnode_size);
                Pnode { number, lebs }.emit(&format, self.bytes(place));
                if let Some(mut hasher) = self.hasher.take() {
                    hasher.update(&self.bytes(place)[..format.pnode_size]);
                    self.hasher = Some(hasher);
                }
                place
            })
            .collect()
    }

    /// Writes the inner nodes above `below`, which is never empty; returns the root's place.
    fn nnodes(&mut self, mut below: Vec<LptPlace>) -> LptPlace {
        let format = self.format;
        for level in 1..=format.height {
            let nodes = (0..).zip(below.chunks(LPT_FANOUT));
            below = nodes
                .map(|(at, group)| {
                    let mut children = [None; LPT_FANOUT];
                    for (child, place) in children.iter_mut().zip(group) {
                        *child = Some(*place);
                    }
                    let number = number(format.height - level, at);
                    let place = self.reserve(format.nnode_size);
                    Nnode { number, children }.emit(&format, self.bytes(place));
                    place
                })
                .collect();
        }
        debug_assert_eq!(below.len(), 1);
        below[0]
    }
}

/// Number of inner node `at` from the left, `depth` levels below the root: a one, then the path
/// from the root, the first step in the lowest bits.
fn number(depth: u32, at: u32) -> u32 {
    (0..depth).fold((1, at), |(number, at), _| (number << 2 | at & 3, at >> 2)).0
}

/// Writes the tree over the properties of the LEBs of the main area.
pub(super) fn build(
    format: &LptFormat,
    write_size: u32,
    (properties, hash): (&[LebProperties], Option<HashAlgorithm>),
) -> NewLpt {
    debug_assert_eq!(properties.len(), format.main_lebs as usize);
    let hasher = hash.map(Hasher::new);
    let mut writer = Writer { format: *format, write_size, lebs: vec![], ltab: vec![], hasher };
    let leaves = writer.pnodes(properties);
    let root = writer.nnodes(leaves);
    let lsave = format.big.then(|| {
        let place = writer.reserve(format.lsave_size);
        let lebs = (0..format.lsave_count)
            .map(|at| format.main_first + if at < format.main_lebs { at } else { 0 });
        Lsave::emit(lebs, format, writer.bytes(place));
        place
    });
    let ltab = writer.reserve(format.ltab_size);
    writer.close();
    let mut entries = core::mem::take(&mut writer.ltab);
    entries.resize(format.lebs as usize, (format.leb_size, 0));
    Ltab::emit(entries, format, writer.bytes(ltab));
    let last = writer.lebs.last().expect("the table lies in it");
    let head = LptPlace { lnum: last.lnum, offset: last.content.len() as u32 };
    let hash = writer.hasher.map_or(Digest::NONE, |hasher| hasher.finish());
    NewLpt { lebs: writer.lebs, root, ltab, lsave, head, hash }
}

/// Dead and dark bytes of a data LEB with `space` bytes free or dirty: space that fits no node, and
/// space that does not fit every node and so cannot be counted on.
pub(super) fn unusable(space: u32, write_size: u32) -> (u32, u32) {
    /// Least data that UBIFS writes to the flash (`MIN_WRITE_SZ`).
    const WRITE_MIN: u32 = DATA_NODE_SIZE as u32 + 8;
    let dead = WRITE_MIN.next_multiple_of(write_size);
    let dark = ((INODE_NODE_SIZE + INLINE_DATA_MAX) as u32).next_multiple_of(write_size);
    if space < dead {
        (space, 0)
    } else if space < dark {
        (0, space)
    } else if space - dark < WRITE_MIN {
        (0, space - WRITE_MIN)
    } else {
        (0, dark)
    }
}
