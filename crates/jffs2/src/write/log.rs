//! Appending nodes: room for them, the block they go to, and what becomes of what they replace.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::finding::Place;
use flysch_api::flash::{Error as FlashError, Flash, FlashMut};
use flysch_api::vfs::Error;
use flysch_wire::jffs2::{Dirent, Inode, SummaryEntry};

use super::Jffs2Mut;
use super::space::{Kind, Raw};
use super::tables::{less, more};
use crate::create::entry_of;
use crate::found::{Address, NodeRef};
use crate::node::{self, Pages};
use crate::stamp::Stamp;
use crate::summary::{Collector, Facts, summary_len};

/// Blocks that may be collected for one call, as a multiple of all there are, before the flash is
/// said to be full.
const PATIENCE: u32 = 2;

/// With so many blocks left a removal may take one if need be.
const REMOVAL_BLOCKS_MIN: u32 = 2;

/// What room is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Something new.
    Change,
    /// Something goes, so that there will be more room.
    Removal,
    /// Collecting garbage: whatever is left.
    Collection,
}

/// A node as its block and its owner will know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNode {
    pub(crate) kind: Kind,
    pub(crate) owner: u32,
    pub(crate) tag: u32,
}

/// Bytes that nodes take and their entries in a summary.
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

    /// Room for a directory entry.
    pub(crate) fn dirent(name: &[u8]) -> Self {
        let nodes = (Dirent::LEN + name.len()).next_multiple_of(4) as u32;
        Self { nodes, entries: 24 + name.len() as u32 }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { nodes: self.nodes + other.nodes, entries: self.entries + other.entries }
    }
}

impl<F: Flash> Jffs2Mut<F> {
    /// Bytes for nodes in the current block, beside a summary with so many more bytes of entries.
    pub(crate) fn room_left(&self, more_entries: u32) -> Option<u32> {
        let number = self.blocks.current?;
        let block = &self.blocks.blocks[number as usize];
        let entries = block.summary_len + more_entries;
        let summary = if self.summary { summary_len(entries as usize) as u32 } else { 0 };
        let stamp = if self.stamps.is_due { Stamp::LEN as u32 } else { 0 };
        Some(self.blocks.geometry.block_len(number).saturating_sub(block.end + summary + stamp))
    }

    /// Where a node is, for the user.
    pub(crate) fn place(&self, address: Address) -> Place {
        node::place(&self.medium, address)
    }
}

impl<F: FlashMut> Jffs2Mut<F> {
    /// Says what the error of a flash is to the caller, and whether anything goes on.
    pub(crate) fn failed(&mut self, error: FlashError, offset: u64) -> Error {
        self.is_dead = true;
        match error {
            FlashError::WriteProtected | FlashError::Unsupported => Error::ReadOnly,
            _ => Error::Medium(node::place_at(&self.medium, offset)),
        }
    }

    /// Refuses what would change something after the medium failed.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.is_dead { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Sees to it that `room` is left in the current block, after collecting garbage as long as
    /// too few blocks are left for `purpose`; returns how many bytes of nodes fit.
    pub(crate) fn reserve(&mut self, room: Room, purpose: Purpose) -> Result<u32, Error> {
        self.check_alive()?;
        let wanted = match purpose {
            Purpose::Change => self.reserves.write,
            Purpose::Removal => self.reserves.removal,
            Purpose::Collection => 0,
        };
        let patience =
            self.activity.collected + u64::from(self.blocks.blocks.len() as u32 * PATIENCE);
        while self.blocks.available() < wanted {
            let first = core::mem::replace(&mut self.is_unsettled, false);
            if first {
                self.settle_all();
                continue;
            }
            let worth = self.is_worth_collecting(wanted, purpose);
            if worth && self.activity.collected < patience && self.collect()? {
                continue;
            }
            if purpose != Purpose::Removal {
                return Err(Error::NoSpace);
            }
            // The last blocks are for collecting; but a removal makes room.
            let left = self.room_left(room.entries).unwrap_or(0);
            if left >= room.nodes || self.blocks.available() >= REMOVAL_BLOCKS_MIN {
                break;
            }
            let any = self.blocks.dirty() > 0 && self.activity.collected < patience;
            if !any || !self.collect()? {
                return Err(Error::NoSpace);
            }
        }
        self.find_room(room)
    }

    /// Whether collecting can lead to `wanted` blocks: a flash that is full but for a few bytes in
    /// each block would else be copied around for every call that is refused in the end.
    pub(super) fn is_worth_collecting(&self, wanted: u32, purpose: Purpose) -> bool {
        let erase_size = u64::from(self.blocks.geometry.erase_size);
        let dirty = self.blocks.dirty();
        let current = u64::from(self.room_left(0).unwrap_or(0));
        let reachable = u64::from(self.blocks.available()) * erase_size + dirty + current;
        let least = if purpose == Purpose::Change { self.reserves.dirty_min } else { 1 };
        reachable >= u64::from(wanted) * erase_size
            && (dirty >= least || self.blocks.has_very_dirty())
    }

    /// Sees to it that `room` is left in the current block, taking a new one if need be.
    pub(crate) fn find_room(&mut self, room: Room) -> Result<u32, Error> {
        let mut is_new = false;
        loop {
            match self.room_left(room.entries) {
                Some(left) if left >= room.nodes => return Ok(left),
                // What does not fit into an empty block fits into none.
                Some(_) if is_new => return Err(Error::NoSpace),
                Some(_) => self.close()?,
                None => is_new = self.open()?,
            }
        }
    }

    /// Ends the current block: with a summary, if it is to have one and there is room.
    fn close(&mut self) -> Result<(), Error> {
        let Some(number) = self.blocks.current else { return Ok(()) };
        if self.summary
            && let Some(bytes) = self.summary_of(number)
        {
            let start = self.blocks.blocks[number as usize].end;
            let offset = self.blocks.geometry.block_start(number) + u64::from(start);
            match self.medium.append(offset, &bytes) {
                Ok(()) => {}
                // A scan will do, too.
                Err(FlashError::ProgramFailed { .. }) => return self.program_failed(number),
                Err(error) => return Err(self.failed(error, offset)),
            }
        }
        self.flush()?;
        if self.blocks.current == Some(number) {
            self.blocks.close(false);
        }
        Ok(())
    }

    /// Erases the blocks that hold dead nodes only, if nothing waits for its page. Blocks without
    /// any, as on flash that was never used, can wait until they are needed.
    pub(crate) fn erase_all(&mut self) -> Result<(), Error> {
        if self.medium.waiting().1 > 0 {
            return Ok(());
        }
        // With the nodes of one block those of another may count no more: it joins the queue.
        loop {
            let blocks = &self.blocks;
            let holds_nodes = |number: &u32| !blocks.blocks[*number as usize].raws.is_empty();
            let Some(at) = blocks.erasable.iter().position(holds_nodes) else { return Ok(()) };
            if let Some(number) = self.blocks.erasable.remove(at) {
                self.erase(number)?;
            }
        }
    }

    /// The summary that fills the rest of a block; `None` if it must do without.
    fn summary_of(&mut self, number: u32) -> Option<Vec<u8>> {
        let block = &self.blocks.blocks[number as usize];
        let len = self.blocks.geometry.block_len(number);
        let rest = len.checked_sub(block.end)? as usize;
        if block.is_torn || rest < summary_len(block.summary_len as usize) {
            return None;
        }
        let base = self.blocks.geometry.block_start(number);
        let mut collector = Collector::new(self.order);
        let mut pages = Pages::new(&self.medium);
        for raw in &block.raws {
            let listed = match raw.kind {
                Kind::Inode => SummaryEntry::Inode {
                    ino: raw.owner,
                    version: raw.tag,
                    offset: raw.at,
                    total_len: raw.len,
                },
                Kind::Xattr => SummaryEntry::Xattr {
                    xid: raw.owner,
                    version: raw.tag,
                    offset: raw.at,
                    total_len: raw.len,
                },
                Kind::Xref | Kind::XrefRemoval => SummaryEntry::Xref { offset: raw.at },
                Kind::Other => return None,
                Kind::Dirent | Kind::Removal => match self.listed_name(number, raw) {
                    Some(listed) => listed,
                    // What does not count any more is known to the flash alone.
                    None => {
                        let bytes = pages.read(base + u64::from(raw.at), raw.len as usize).ok()?;
                        entry_of(bytes, self.order)?.at(raw.at)
                    }
                },
            };
            collector.push(&listed);
        }
        let facts = Facts { cleanmarker_len: self.medium.marker_len(), padded: block.padded };
        let mut out = vec![0xFF; rest];
        collector.finish(block.end, facts, &mut out).then_some(out)
    }

    /// What a summary says of a directory entry that counts.
    fn listed_name(&self, block: u32, raw: &Raw) -> Option<SummaryEntry<'_>> {
        let directory = self.tables.inodes.get(&raw.owner)?.directory.as_deref()?;
        let name = directory.entry_at(raw.tag, self.blocks.address(block, raw.at))?;
        Some(SummaryEntry::Dirent {
            total_len: raw.len,
            offset: raw.at,
            pino: raw.owner,
            version: name.version,
            ino: name.ino,
            kind: name.kind,
            name: &name.name,
        })
    }

    /// Takes a block to append to; none is current. Without any the end of one that a mount left
    /// alone has to do: says whether it is an empty one.
    fn open(&mut self) -> Result<bool, Error> {
        loop {
            if let Some(number) = self.blocks.free.pop_front() {
                let start = self.medium.marker_len();
                self.blocks.open(number, start);
                self.stamps.is_due = true;
                return Ok(true);
            }
            if self.blocks.erasable.is_empty() && self.resume_anywhere() {
                return Ok(false);
            }
            self.erase_one()?;
        }
    }

    /// Erases a block in which nothing counts.
    fn erase_one(&mut self) -> Result<(), Error> {
        let number = self.blocks.erasable.pop_front().ok_or(Error::NoSpace)?;
        self.erase(number)
    }

    pub(super) fn erase(&mut self, number: u32) -> Result<(), Error> {
        // What made the block's nodes dead must be on the flash before they go.
        assert_eq!(self.medium.waiting().1, 0, "blocks are taken after the last one was closed");
        let tired = self.blocks.blocks[number as usize].failures > 1;
        let erased = if tired { None } else { Some(self.medium.erase(number)) };
        match erased {
            Some(Ok(())) => {
                self.activity.erased += 1;
                self.gone(number);
                self.blocks.settle(number, super::space::State::Free);
            }
            None | Some(Err(FlashError::EraseFailed { .. } | FlashError::BadBlock { .. })) => {
                self.activity.given_up += 1;
                if self.medium.mark_bad(number) {
                    self.gone(number);
                }
                // Else what is in it may be found again: it goes on counting as old.
                self.blocks.settle(number, super::space::State::Bad);
            }
            Some(Err(error)) => {
                let offset = self.blocks.geometry.block_start(number);
                return Err(self.failed(error, offset));
            }
        }
        Ok(())
    }

    /// The nodes of a block can not be found again. Nor do removals count that only these nodes
    /// were the reason to keep: of files made and removed again nothing must be left, or the flash
    /// would fill with removals, in blocks without any dirt.
    fn gone(&mut self, number: u32) {
        for raw in core::mem::take(&mut self.blocks.block(number).raws) {
            let key = (raw.owner, raw.tag);
            match raw.kind {
                Kind::Dirent if less(&mut self.tables.old_names, key) => self.drop_removals(key),
                Kind::Xref if less(&mut self.tables.old_xrefs, key) => {
                    let xref = self.tables.xrefs.get(&key).copied();
                    if let Some(removal) = xref.filter(|xref| xref.is_removal) {
                        self.tables.xrefs.remove(&key);
                        self.kill(removal.address);
                    }
                }
                _ => {}
            }
        }
    }

    /// Drops removals of names of one directory and hash, of which no older entry is left. The
    /// newest entry of a directory tells when that was changed: it stays.
    fn drop_removals(&mut self, (owner, hash): (u32, u32)) {
        let Some(state) = self.tables.inodes.get_mut(&owner) else { return };
        let version = state.version;
        let Some(directory) = &mut state.directory else { return };
        for address in directory.take_removals(hash, version) {
            self.kill(address);
        }
    }

    /// Writes the stamp of the current block, if it has none.
    fn stamp(&mut self, number: u32) -> Result<(), FlashError> {
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

    /// Appends a node, for which there is room; returns where.
    pub(crate) fn append(&mut self, bytes: &[u8], new: NewNode) -> Result<Address, Error> {
        let raw = Raw {
            at: 0,
            len: bytes.len() as u32,
            kind: new.kind,
            is_dead: false,
            owner: new.owner,
            tag: new.tag,
        };
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0xFF);
        loop {
            let number = self.blocks.current.expect("room was found");
            let stamped = self.stamp(number);
            let at = self.blocks.blocks[number as usize].end;
            let address = self.blocks.address(number, at);
            match stamped.and_then(|()| self.medium.append(address.offset(), &padded)) {
                Ok(()) => {
                    self.blocks.push(Raw { at, ..raw });
                    return Ok(address);
                }
                Err(FlashError::ProgramFailed { .. }) => {
                    self.program_failed(number)?;
                    self.find_good_room(&raw, address.offset())?;
                }
                Err(error) => return Err(self.failed(error, address.offset())),
            }
        }
    }

    /// Programming failed in the current block: the nodes that were not on the flash yet go
    /// elsewhere, and the block is collected soon.
    pub(super) fn program_failed(&mut self, number: u32) -> Result<(), Error> {
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
        for (raw, bytes) in saved {
            let from = self.blocks.address(number, raw.at);
            self.find_good_room(&raw, from.offset())?;
            self.copy(from, &raw, &bytes)?;
        }
        Ok(())
    }

    /// Room for a node whose programming failed at `offset`. Without any the flash is worn out:
    /// nothing is written any more, for what was accepted has no place, and what is on the failed
    /// page of the node may be found or not.
    fn find_good_room(&mut self, raw: &Raw, offset: u64) -> Result<(), Error> {
        let room = Room { nodes: raw.space(), entries: raw.summary_entry_len() };
        match self.find_room(room) {
            Ok(_) => Ok(()),
            Err(Error::NoSpace) => Err(self.failed(FlashError::ProgramFailed { offset }, offset)),
            Err(error) => Err(error),
        }
    }

    /// Copies a node as it is into the current block, in which there is room, and lets everybody
    /// know.
    pub(crate) fn copy(&mut self, from: Address, raw: &Raw, bytes: &[u8]) -> Result<(), Error> {
        let new = NewNode { kind: raw.kind, owner: raw.owner, tag: raw.tag };
        let to = self.append(bytes, new)?;
        self.moved(from, to, raw, bytes);
        Ok(())
    }

    /// Lets everybody know that a copy of a node counts in its place.
    pub(super) fn moved(&mut self, from: Address, to: Address, raw: &Raw, bytes: &[u8]) {
        match raw.kind {
            Kind::Inode => {
                let start = Inode::parse(bytes, self.order).map_or(0, |inode| inode.offset);
                if let Some(state) = self.tables.inodes.get_mut(&raw.owner) {
                    state.moved(raw.tag, from, to, start);
                }
            }
            Kind::Dirent | Kind::Removal => {
                let name = Dirent::parse(bytes, self.order).and_then(|dirent| dirent.name(bytes));
                if let Ok(name) = name
                    && let Ok(directory) = self.directory_mut(raw.owner)
                    && let Some(entry) = directory.entry_mut(name)
                    && entry.address == from
                {
                    entry.address = to;
                }
            }
            Kind::Xattr => {
                if let Some(xattr) = self.tables.xattrs.get_mut(&raw.owner) {
                    xattr.address = to;
                }
            }
            Kind::Xref | Kind::XrefRemoval => {
                if let Some(xref) = self.tables.xrefs.get_mut(&(raw.owner, raw.tag)) {
                    xref.address = to;
                }
            }
            Kind::Other => {}
        }
        self.kill(from);
    }

    /// A node that was found not to count does.
    pub(super) fn revive(&mut self, address: Address) {
        let Some(raw) = self.blocks.revive(address) else { return };
        let key = (raw.owner, raw.tag);
        let _ = match raw.kind {
            Kind::Dirent => less(&mut self.tables.old_names, key),
            Kind::Xref => less(&mut self.tables.old_xrefs, key),
            _ => false,
        };
    }

    /// A node does not count any more.
    pub(crate) fn kill(&mut self, address: Address) {
        let Some(raw) = self.blocks.kill(address) else { return };
        match raw.kind {
            Kind::Dirent => more(&mut self.tables.old_names, (raw.owner, raw.tag)),
            Kind::Xref => more(&mut self.tables.old_xrefs, (raw.owner, raw.tag)),
            _ => {}
        }
    }

    /// Nodes of an inode do not count any more.
    pub(crate) fn kill_nodes(&mut self, ino: u32, nodes: Vec<(Address, u32)>) {
        for (address, version) in nodes {
            if let Some(state) = self.tables.inodes.get_mut(&ino) {
                state.forget(version, address);
            }
            self.kill(address);
        }
    }

    /// The version of the next node of an inode.
    pub(crate) fn next_version(&mut self, ino: u32) -> Result<u32, Error> {
        let state = self.tables.inodes.get_mut(&ino).ok_or(Error::NotFound)?;
        let worn = Error::Unsupported("an inode whose version counter is at its end");
        state.version = state.version.checked_add(1).ok_or(worn)?;
        Ok(state.version)
    }

    /// Appends an inode node, for which there is room; it tells the attributes from now on.
    pub(crate) fn append_inode(&mut self, inode: &Inode, data: &[u8]) -> Result<Address, Error> {
        let mut bytes = core::mem::take(&mut self.node);
        bytes.clear();
        bytes.resize(Inode::LEN + data.len(), 0);
        inode.emit(data, self.order, &mut bytes);
        let new = NewNode { kind: Kind::Inode, owner: inode.ino, tag: inode.version };
        let appended = self.append(&bytes, new);
        let total_len = bytes.len() as u32;
        self.node = bytes;
        let address = appended?;
        let (ino, version) = (inode.ino, inode.version);
        let state = self.tables.inodes.get_mut(&ino).expect("its version was counted");
        let node = NodeRef { ino, version, address, total_len };
        state.nodes.push(node);
        let loaded = state.loaded.get_mut().expect("its attributes are known");
        let old = loaded.set_latest(node);
        self.kill_nodes(ino, old.into_iter().map(|old| (old.address, old.version)).collect());
        Ok(address)
    }

    /// Puts what waits for its page on the flash.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        while self.medium.waiting().1 > 0 {
            let offset = self.medium.waiting().0;
            let number = self.blocks.geometry.block_of(offset);
            match self.medium.flush() {
                Ok(filler) => {
                    let block = self.blocks.block(number);
                    block.end += filler.len;
                    block.dead += filler.len;
                    block.padded += if filler.is_node { filler.len } else { 0 };
                }
                Err(FlashError::ProgramFailed { .. }) => self.program_failed(number)?,
                Err(error) => return Err(self.failed(error, offset)),
            }
        }
        Ok(())
    }
}
