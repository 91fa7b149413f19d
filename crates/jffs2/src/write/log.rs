//! The write log: the block that is being filled, and what is appended after its last node.
//!
//! This level knows only bytes; [`Nodes`](super::nodes::Nodes) knows the owners of nodes.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::finding::Place;
use flysch_api::flash::{Flash, FlashError, FlashMut, Kind as FlashKind};
use flysch_api::vfs::FsError;
use flysch_wire::jffs2::{ByteOrder, Dirent, Header, Inode};

use super::Activity;
use super::medium::Medium;
use super::space::{Blocks, End, Kind, Raw};
use crate::found::Address;
use crate::node;
use crate::stamp::Stamp;
use crate::summary::summary_len;

/// A node, for its block and its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNode {
    pub(crate) kind: Kind,
    pub(crate) owner: u32,
    pub(crate) tag: u32,
}

/// Bytes of a node, and of its summary entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) nodes: u32,
    pub(crate) entries: u32,
}

impl Room {
    /// Room for an inode node with `data` bytes.
    pub(crate) fn inode(data: usize) -> Self {
        Self { nodes: (Inode::LEN + data).next_multiple_of(4) as u32, entries: 18 }
    }

    /// Room for an xattr node of this length (`JFFS2_SUMMARY_XATTR_SIZE`).
    pub(crate) fn xattr(node_len: usize) -> Self {
        Self { nodes: node_len.next_multiple_of(4) as u32, entries: 18 }
    }

    /// Room for a directory entry.
    pub(crate) fn dirent(name: &[u8]) -> Self {
        let nodes = (Dirent::LEN + name.len()).next_multiple_of(4) as u32;
        Self { nodes, entries: 24 + name.len() as u32 }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { nodes: self.nodes + other.nodes, entries: self.entries + other.entries }
    }
}

/// The stamps that blocks get when they are opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamps {
    /// The number of the next one.
    pub(super) next: u32,
    /// The lowest number of a block that was written last before the mount and has not been left
    /// yet.
    pub(super) oldest: Option<u32>,
    /// The current block has no stamp of this mount.
    pub(super) is_due: bool,
}

/// A flash to which nodes are appended.
#[derive(Debug)]
pub(super) struct Log<F> {
    pub(super) medium: Medium<F>,
    pub(super) order: ByteOrder,
    pub(super) blocks: Blocks,
    pub(super) stamps: Stamps,
    /// Full blocks end with a summary.
    pub(super) summary: bool,
    /// Nothing can be written any more.
    pub(super) is_dead: bool,
    pub(super) activity: Activity,
}

impl<F: Flash> Log<F> {
    pub(super) fn new(medium: Medium<F>, order: ByteOrder, blocks: Blocks, summary: bool) -> Self {
        Self {
            medium,
            order,
            blocks,
            stamps: Stamps::default(),
            summary,
            is_dead: false,
            activity: Activity::default(),
        }
    }

    /// Bytes for nodes in the current block, besides a summary with this many more bytes of
    /// entries.
    pub(super) fn room_left(&self, more_entries: u32) -> Option<u32> {
        let number = self.blocks.current?;
        let block = &self.blocks.blocks[number as usize];
        let entries = block.summary_len + more_entries;
        let summary = if self.summary { summary_len(entries as usize) as u32 } else { 0 };
        let stamp = if self.stamps.is_due { Stamp::LEN as u32 } else { 0 };
        Some(self.blocks.geometry.block_len(number).saturating_sub(block.end + summary + stamp))
    }

    /// The position of a node, for the user.
    pub(super) fn place(&self, address: Address) -> Place {
        node::place(&self.medium, address)
    }

    /// Translates an error of the flash for the caller; from now on nothing is written any more.
    pub(super) fn failed(&mut self, error: FlashError, offset: u64) -> FsError {
        self.is_dead = true;
        match error {
            FlashError::WriteProtected | FlashError::Unsupported => FsError::ReadOnly,
            source => FsError::Medium { place: node::place_at(&self.medium, offset), source },
        }
    }

    /// Returns an error for any change after the medium has failed.
    pub(super) fn check_alive(&self) -> Result<(), FsError> {
        if self.is_dead { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Those of the blocks written last whose frozen pages hold more than padding; `wrong` are the
    /// ones with content that was judged never to have existed. Invalid nodes are at risk too: they
    /// would read badly one day, and nobody could tell what they were.
    pub(super) fn at_stake(&self, last: &[u32], wrong: &BTreeSet<u32>) -> Vec<u32> {
        // Padding that begins there as well: its header would read badly one day.
        let begins = |number: u32| {
            let mut pages = self.medium.frozen_pages().into_iter();
            pages.any(|page| {
                let mut bytes = [0; Header::LEN];
                self.blocks.geometry.block_of(page.start) == number
                    && node::read(&self.medium, page.start, &mut bytes).is_ok()
                    && Header::parse(&bytes, self.order).is_ok()
            })
        };
        let is_at_stake = |number: &&u32| {
            let start = self.blocks.geometry.block_start(**number);
            let mut raws = self.blocks.blocks[**number as usize].raws.iter();
            wrong.contains(*number)
                || begins(**number)
                || raws
                    .any(|raw| self.medium.is_frozen(start + u64::from(raw.at), raw.len as usize))
        };
        last.iter().filter(is_at_stake).copied().collect()
    }

    /// Continues at the end of a closed block.
    pub(super) fn resume_in(&mut self, end: End) {
        // A summary would hide the stamp it gets now.
        self.blocks.block(end.block).is_torn = true;
        self.blocks.resume(end.block, end.start);
        let start = self.blocks.geometry.block_start(end.block);
        let len = u64::from(self.blocks.geometry.block_len(end.block));
        self.medium.thaw(start + u64::from(end.start), start + len);
        self.stamps.is_due = true;
    }

    /// If no block is left for data that must be copied, or that lost its place to a failed program
    /// operation: continues at the end of a block. Returns whether there is one.
    pub(super) fn resume_anywhere(&mut self) -> bool {
        let ends = self.blocks.ends().filter(|_| self.blocks.current.is_none());
        let end = ends.min_by_key(End::rank);
        end.inspect(|end| self.resume_in(*end)).is_some()
    }
}

impl<F: FlashMut> Log<F> {
    /// Writes the stamp of the current block, if it has none.
    pub(super) fn stamp(&mut self, number: u32) -> Result<(), FlashError> {
        if !self.stamps.is_due {
            return Ok(());
        }
        let own = self.stamps.next;
        let stamp = Stamp { number: own, suspect: self.stamps.oldest.unwrap_or(own) };
        let at = self.blocks.blocks[number as usize].end;
        let offset = self.blocks.geometry.block_start(number) + u64::from(at);
        self.medium.append(offset, &stamp.emit(self.order))?;
        self.blocks.pad(number, Stamp::LEN as u32);
        self.stamps.next = own.saturating_add(1);
        self.stamps.is_due = false;
        Ok(())
    }

    /// Tries to append a node, padded to its end, to the current block. Returns its position, and
    /// whether it was written.
    pub(super) fn try_append(
        &mut self,
        padded: &[u8],
        raw: Raw,
    ) -> (Address, Result<(), FlashError>) {
        let number = self.blocks.current.expect("room was found");
        let stamped = self.stamp(number);
        let at = self.blocks.blocks[number as usize].end;
        let address = self.blocks.address(number, at);
        let done = stamped.and_then(|()| self.medium.append(address.offset(), padded));
        if done.is_ok() {
            self.blocks.push(Raw { at, ..raw });
        }
        (address, done)
    }

    /// Ends the current block, in which programming failed. Returns its valid nodes that were not
    /// yet on the flash.
    pub(super) fn give_up_current(&mut self, number: u32) -> Result<Vec<(Raw, Vec<u8>)>, FsError> {
        self.activity.program_failures += 1;
        let (tail_at, tail_len) = self.medium.waiting();
        let base = self.blocks.geometry.block_start(number);
        let block = &self.blocks.blocks[number as usize];
        let waits = |raw: &&Raw| {
            let start = base + u64::from(raw.at);
            tail_len > 0 && !raw.is_dead && start + u64::from(raw.space()) > tail_at
        };
        let mut saved: Vec<(Raw, Vec<u8>)> = vec![];
        for raw in block.raws.iter().filter(waits) {
            let mut bytes = vec![0; raw.len as usize];
            let offset = base + u64::from(raw.at);
            node::read(&self.medium, offset, &mut bytes)?;
            saved.push((*raw, bytes));
        }
        self.medium.discard();
        self.blocks.close(true);
        Ok(saved)
    }

    /// If bits can be cleared one by one, marks torn nodes, so that nobody has to find out again
    /// what they are. Linux marks all invalid nodes, if it writes no summaries. Returns the blocks
    /// to be left: the shaky ones, and those with torn nodes if nothing is programmed twice, as on
    /// NAND and UBI. Linux misreads a file of which it finds a torn copy beside the node that was
    /// being copied: older nodes cover newer ones.
    pub(super) fn make_obsolete(&mut self, cut_off: &[u64], mut shaky: Vec<u32>) -> Vec<u32> {
        if self.medium.unit() > 1 || self.blocks.geometry.kind == FlashKind::UbiVolume {
            shaky.extend(cut_off.iter().map(|offset| self.blocks.geometry.block_of(*offset)));
            shaky.sort_unstable();
            shaky.dedup();
            return shaky;
        }
        for &offset in cut_off {
            // Shaky blocks will be erased.
            let is_kept = !shaky.contains(&self.blocks.geometry.block_of(offset));
            // A node that stays unmarked is told to be cut off by its checksum.
            if is_kept && self.medium.make_obsolete(offset).is_err() {
                break;
            }
        }
        shaky
    }
}
