//! Nodes and their owners, which are notified when nodes are written, copied or erased.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{FlashError, FlashMut};
use flysch_api::vfs::FsError;
use flysch_wire::jffs2::{Header, NodeType, SummaryEntry};

use super::log::{Log, NewNode, Room};
use super::space::{Kind, Raw, State};
use super::tables::{Tables, less, more};
use crate::create::entry_of;
use crate::found::Address;
use crate::node::Pages;
use crate::scan::BYTES;
use crate::summary::{Collector as SummaryCollector, Facts, summary_len};

/// The log, and the tables of what its nodes mean.
#[derive(Debug)]
pub(super) struct Nodes<F> {
    pub(super) log: Log<F>,
    pub(super) tables: Tables,
}

impl<F: FlashMut> Nodes<F> {
    /// Ensures that `room` is left in the current block; takes a new block if necessary.
    pub(super) fn find_room(&mut self, room: Room) -> Result<u32, FsError> {
        let mut is_new = false;
        loop {
            match self.log.room_left(room.entries) {
                Some(left) if left >= room.nodes => return Ok(left),
                // What does not fit into an empty block fits into none.
                Some(_) if is_new => return Err(FsError::NoSpace),
                Some(_) => self.close()?,
                None => is_new = self.open()?,
            }
        }
    }

    /// Ends the current block, with a summary if it is to have one and there is room.
    pub(super) fn close(&mut self) -> Result<(), FsError> {
        let Some(number) = self.log.blocks.current else { return Ok(()) };
        if self.log.summary
            && let Some(bytes) = self.summary_of(number)
        {
            let start = self.log.blocks.blocks[number as usize].end;
            let offset = self.log.blocks.geometry.block_start(number) + u64::from(start);
            match self.log.medium.append(offset, &bytes) {
                Ok(()) => {}
                // A scan will do, too.
                Err(FlashError::ProgramFailed { .. }) => return self.program_failed(number),
                Err(error) => return Err(self.log.failed(error, offset)),
            }
        }
        self.flush()?;
        if self.log.blocks.current == Some(number) {
            self.log.blocks.close(false);
        }
        Ok(())
    }

    /// Takes a block to append to; there must be no current one. If there is none, uses the end of
    /// a block that a mount left alone. Returns whether it is an empty block.
    pub(super) fn open(&mut self) -> Result<bool, FsError> {
        loop {
            if let Some(number) = self.log.blocks.free.pop_front() {
                let start = self.log.medium.marker_len();
                self.log.blocks.open(number, start);
                self.log.stamps.is_due = true;
                return Ok(true);
            }
            if self.log.blocks.erasable.is_empty() && self.log.resume_anywhere() {
                return Ok(false);
            }
            self.erase_one()?;
        }
    }

    /// Erases a block without valid nodes.
    pub(super) fn erase_one(&mut self) -> Result<(), FsError> {
        let number = self.log.blocks.erasable.pop_front().ok_or(FsError::NoSpace)?;
        self.erase(number)
    }

    pub(super) fn erase(&mut self, number: u32) -> Result<(), FsError> {
        // What made the block's nodes dead must be on the flash before they go.
        assert_eq!(
            self.log.medium.waiting().1,
            0,
            "blocks are taken after the last one was closed"
        );
        let tired = self.log.blocks.blocks[number as usize].failures > 1;
        let erased = if tired { None } else { Some(self.log.medium.erase(number)) };
        match erased {
            Some(Ok(())) => {
                self.log.activity.erased += 1;
                self.gone(number);
                self.log.blocks.settle(number, State::Free);
            }
            None | Some(Err(FlashError::EraseFailed { .. } | FlashError::BadBlock { .. })) => {
                self.log.activity.given_up += 1;
                if self.log.medium.mark_bad(number) {
                    self.gone(number);
                }
                // Else what is in it may be found again: it goes on counting as old.
                self.log.blocks.settle(number, State::Bad);
            }
            Some(Err(error)) => {
                let offset = self.log.blocks.geometry.block_start(number);
                return Err(self.log.failed(error, offset));
            }
        }
        Ok(())
    }

    /// Erases the blocks that hold only dead nodes, if nothing waits for its page. Blocks without
    /// any nodes, as on unused flash, can wait until they are needed.
    pub(super) fn erase_all(&mut self) -> Result<(), FsError> {
        if self.log.medium.waiting().1 > 0 {
            return Ok(());
        }
        // With the nodes of one block those of another may count no more: it joins the queue.
        loop {
            let blocks = &self.log.blocks;
            let holds_nodes = |number: &u32| !blocks.blocks[*number as usize].raws.is_empty();
            let Some(at) = blocks.erasable.iter().position(holds_nodes) else { return Ok(()) };
            if let Some(number) = self.log.blocks.erasable.remove(at) {
                self.erase(number)?;
            }
        }
    }

    /// The nodes of a block cannot be found again. Removals that were kept only because of these
    /// nodes become invalid too: nothing must remain of files that were created and removed again,
    /// or the flash would fill with removals, in blocks without any dirt.
    pub(super) fn gone(&mut self, number: u32) {
        for raw in core::mem::take(&mut self.log.blocks.block(number).raws) {
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

    /// Drops removals of names of one directory and hash that have no older entry left. The newest
    /// entry of a directory gives the time of its last change: it stays.
    pub(super) fn drop_removals(&mut self, (owner, hash): (u32, u32)) {
        let Some(state) = self.tables.inodes.get_mut(&owner) else { return };
        let version = state.version;
        let Some(directory) = &mut state.directory else { return };
        for address in directory.take_removals(hash, version) {
            self.kill(address);
        }
    }

    /// The summary that fills the rest of a block; `None` if there is no room for one.
    pub(super) fn summary_of(&mut self, number: u32) -> Option<Vec<u8>> {
        let block = &self.log.blocks.blocks[number as usize];
        let len = self.log.blocks.geometry.block_len(number);
        let rest = len.checked_sub(block.end)? as usize;
        if block.is_torn || rest < summary_len(block.summary_len as usize) {
            return None;
        }
        let base = self.log.blocks.geometry.block_start(number);
        let mut collector = SummaryCollector::new(self.log.order);
        let mut pages = Pages::new(&self.log.medium);
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
                        entry_of(bytes, self.log.order)?.at(raw.at)
                    }
                },
            };
            collector.push(&listed);
        }
        let facts = Facts { cleanmarker_len: self.log.medium.marker_len(), padded: block.padded };
        let mut out = vec![0xFF; rest];
        collector.finish(block.end, facts, &mut out).then_some(out)
    }

    /// The summary entry of a valid directory entry.
    pub(super) fn listed_name(&self, block: u32, raw: &Raw) -> Option<SummaryEntry<'_>> {
        let directory = self.tables.inodes.get(&raw.owner)?.directory.as_deref()?;
        let name = directory.entry_at(raw.tag, self.log.blocks.address(block, raw.at))?;
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

    /// Appends a node, for which there must be room; returns its position. The node is padded in
    /// place meanwhile.
    pub(super) fn append(&mut self, node: &mut Vec<u8>, new: NewNode) -> Result<Address, FsError> {
        let len = node.len();
        node.resize(len.next_multiple_of(4), 0xFF);
        let appended = self.append_padded(node, len as u32, new);
        node.truncate(len);
        appended
    }

    fn append_padded(&mut self, padded: &[u8], len: u32, new: NewNode) -> Result<Address, FsError> {
        let raw =
            Raw { at: 0, len, kind: new.kind, is_dead: false, owner: new.owner, tag: new.tag };
        loop {
            let (address, appended) = self.log.try_append(padded, raw);
            match appended {
                Ok(()) => return Ok(address),
                Err(FlashError::ProgramFailed { .. }) => {
                    let (number, _) = self.log.blocks.place(address);
                    self.program_failed(number)?;
                    self.find_good_room(&raw, address.offset())?;
                }
                Err(error) => return Err(self.log.failed(error, address.offset())),
            }
        }
    }

    /// Programming failed in the current block: the nodes that were not yet on the flash are
    /// written elsewhere, and the block is collected soon.
    pub(super) fn program_failed(&mut self, number: u32) -> Result<(), FsError> {
        let saved = self.log.give_up_current(number)?;
        for (raw, mut bytes) in saved {
            let from = self.log.blocks.address(number, raw.at);
            self.find_good_room(&raw, from.offset())?;
            self.copy(from, &raw, &mut bytes)?;
        }
        Ok(())
    }

    /// Room for a node whose programming failed at `offset`. If there is none, the flash is worn
    /// out: nothing is written any more, because accepted data has no place, and the content of the
    /// failed page of the node may or may not be found again.
    pub(super) fn find_good_room(&mut self, raw: &Raw, offset: u64) -> Result<(), FsError> {
        let room = Room { nodes: raw.space(), entries: raw.summary_entry_len() };
        match self.find_room(room) {
            Ok(_) => Ok(()),
            Err(FsError::NoSpace) => {
                Err(self.log.failed(FlashError::ProgramFailed { offset }, offset))
            }
            Err(error) => Err(error),
        }
    }

    /// Copies a node as it is into the current block, in which there must be room, and notifies its
    /// owner.
    pub(super) fn copy(
        &mut self,
        from: Address,
        raw: &Raw,
        bytes: &mut Vec<u8>,
    ) -> Result<(), FsError> {
        let new = NewNode { kind: raw.kind, owner: raw.owner, tag: raw.tag };
        let to = self.append(bytes, new)?;
        self.moved(from, to, raw, bytes);
        Ok(())
    }

    /// Notifies the owner that a copy of a node has replaced it.
    pub(super) fn moved(&mut self, from: Address, to: Address, raw: &Raw, bytes: &[u8]) {
        self.tables.moved(raw, (from, to), bytes, self.log.order);
        self.kill(from);
    }

    /// A node that was considered invalid is valid.
    pub(super) fn revive(&mut self, address: Address) {
        let Some(raw) = self.log.blocks.revive(address) else { return };
        let key = (raw.owner, raw.tag);
        let _ = match raw.kind {
            Kind::Dirent => less(&mut self.tables.old_names, key),
            Kind::Xref => less(&mut self.tables.old_xrefs, key),
            _ => false,
        };
    }

    /// A node becomes invalid.
    pub(super) fn kill(&mut self, address: Address) {
        let Some(raw) = self.log.blocks.kill(address) else { return };
        match raw.kind {
            Kind::Dirent => more(&mut self.tables.old_names, (raw.owner, raw.tag)),
            Kind::Xref => more(&mut self.tables.old_xrefs, (raw.owner, raw.tag)),
            _ => {}
        }
    }

    /// Nodes of an inode become invalid.
    pub(super) fn kill_nodes(&mut self, ino: u32, nodes: Vec<(Address, u32)>) {
        for (address, version) in nodes {
            if let Some(state) = self.tables.inodes.get_mut(&ino) {
                state.forget(version, address);
            }
            self.kill(address);
        }
    }

    /// Writes waiting bytes to the flash.
    pub(super) fn flush(&mut self) -> Result<(), FsError> {
        while self.log.medium.waiting().1 > 0 {
            let offset = self.log.medium.waiting().0;
            let number = self.log.blocks.geometry.block_of(offset);
            match self.log.medium.flush() {
                Ok(filler) => {
                    let block = self.log.blocks.block(number);
                    block.end += filler.len;
                    block.dead += filler.len;
                    block.padded += if filler.is_node { filler.len } else { 0 };
                }
                Err(FlashError::ProgramFailed { .. }) => self.program_failed(number)?,
                Err(error) => return Err(self.log.failed(error, offset)),
            }
        }
        Ok(())
    }

    /// A reference becomes invalid; the attribute goes with the last reference.
    pub(super) fn drop_xref(&mut self, ino: u32, xid: u32) {
        let Some(old) = self.tables.xrefs.remove(&(ino, xid)) else { return };
        self.kill(old.address);
        if old.is_removal {
            return;
        }
        if let Some(xattr) = self.tables.xattrs.get_mut(&xid) {
            xattr.inodes = xattr.inodes.saturating_sub(1);
            if xattr.inodes == 0 {
                let address = xattr.address;
                self.tables.xattrs.remove(&xid);
                self.kill(address);
            }
        }
    }

    /// Pads the copies to the end of a page that has nothing else in it. If nothing else is written
    /// before the next mount, that mount finds the copies firm and has nothing to copy.
    pub(super) fn prove(&mut self) -> Result<(), FsError> {
        let Some(number) = self.log.blocks.current.filter(|_| !self.log.stamps.is_due) else {
            return Ok(());
        };
        let page = if self.log.medium.unit() > 1 { self.log.medium.unit() } else { BYTES };
        let end = self.log.blocks.blocks[number as usize].end;
        // The header is not in the last page: however that reads later, it is within the padding.
        let len = (end + Header::LEN as u32).next_multiple_of(page) + page - end;
        if self.log.room_left(0).is_none_or(|left| left < len) {
            return Ok(());
        }
        let mut bytes = vec![0; len as usize];
        let header = Header { node_type: NodeType::PADDING, total_len: len };
        header.emit(self.log.order, &mut bytes);
        let offset = self.log.blocks.geometry.block_start(number) + u64::from(end);
        match self.log.medium.append(offset, &bytes) {
            Ok(()) => {
                self.log.blocks.pad(number, len);
                Ok(())
            }
            Err(FlashError::ProgramFailed { .. }) => self.program_failed(number),
            Err(error) => Err(self.log.failed(error, offset)),
        }
    }
}
