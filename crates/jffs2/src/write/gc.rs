//! Garbage collection: what still counts is copied out of a block, so that it can be erased.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::FlashMut;
use flysch_api::vfs::Error;
use flysch_wire::jffs2::{Dirent, Header, Inode};

use super::log::{Purpose, Room};
use super::space::{Kind, Raw, State};
use super::{Jffs2Mut, PAGE_SIZE};
use crate::found::Address;
use crate::node;

/// Data that a node at the end of a block should at least have room for (`JFFS2_MIN_DATA_LEN`).
pub(crate) const DATA_LEN_MIN: u32 = 128;

impl<F: FlashMut> Jffs2Mut<F> {
    /// Finds out which nodes count, of all inodes: what Linux does before it first collects.
    pub(crate) fn settle_all(&mut self) {
        let inos: Vec<u32> = self.tables.inodes.keys().copied().collect();
        for ino in inos {
            let state = &self.tables.inodes[&ino];
            if state.is_settled || state.nodes.len() < 2 {
                continue;
            }
            let was_loaded = state.loaded.get().is_some();
            // An inode that cannot be read keeps all its nodes.
            let _ = self.settle(ino);
            if !was_loaded && let Some(state) = self.tables.inodes.get_mut(&ino) {
                state.loaded = Default::default();
            }
        }
    }

    /// Collects one node, or finds a block to collect. Says whether there was anything to do.
    pub(crate) fn collect(&mut self) -> Result<bool, Error> {
        let number = match self.collected {
            Some(number) => number,
            None => {
                let Some(number) = self.blocks.victim() else { return Ok(false) };
                self.collected = Some(number);
                self.activity.collected += 1;
                number
            }
        };
        let block = &self.blocks.blocks[number as usize];
        let raw = match block.state {
            State::Closed => block.raws.iter().find(|raw| !raw.is_dead).copied(),
            _ => None,
        };
        match raw {
            Some(raw) => {
                let address = self.blocks.address(number, raw.at);
                self.collect_node(address, &raw)?;
            }
            None => {
                self.collected = None;
                // Erased at once, its nodes are on the flash once: after a power cut nobody has to
                // find out which copy is the newer one.
                self.flush()?;
                self.erase_all()?;
            }
        }
        Ok(true)
    }

    fn collect_node(&mut self, address: Address, raw: &Raw) -> Result<(), Error> {
        match raw.kind {
            Kind::Inode => {
                if self.collect_inode(address, raw)? {
                    return Ok(());
                }
            }
            Kind::Removal => {
                if self.drop_removal(address, raw) {
                    return Ok(());
                }
            }
            Kind::XrefRemoval => {
                let key = (raw.owner, raw.tag);
                if !self.tables.old_xrefs.contains_key(&key) {
                    self.tables.xrefs.remove(&key);
                    self.kill(address);
                    return Ok(());
                }
            }
            Kind::Dirent | Kind::Xattr | Kind::Xref | Kind::Other => {}
        }
        self.copy_out(address, raw)
    }

    /// Copies a node as it is: with its version, it says the same there as here.
    pub(super) fn copy_out(&mut self, address: Address, raw: &Raw) -> Result<(), Error> {
        let mut bytes = vec![0; raw.len as usize];
        node::read(&self.medium, address.offset(), &mut bytes)?;
        let header = Header::parse(&bytes, self.order);
        if !header.is_ok_and(|header| header.total_len == raw.len) {
            // A summary lists it, but it is not there: nothing is lost with it.
            if raw.kind == Kind::Inode {
                self.kill_nodes(raw.owner, vec![(address, raw.tag)]);
            } else {
                self.kill(address);
            }
            return Ok(());
        }
        self.find_room(Room { nodes: raw.space(), entries: raw.summary_entry_len() })?;
        // Taking a block may have moved nodes, this one among them.
        let (number, at) = self.blocks.place(address);
        let block = &self.blocks.blocks[number as usize];
        let index = block.raws.binary_search_by_key(&at, |raw| raw.at);
        if index.is_ok_and(|index| !block.raws[index].is_dead) {
            self.activity.moved += 1;
            self.copy(address, raw, &bytes)?;
        }
        Ok(())
    }

    /// A removal may go when no older entry of that name can be found any more, unless it is the
    /// newest of its directory and tells when that was changed.
    fn drop_removal(&mut self, address: Address, raw: &Raw) -> bool {
        if self.tables.old_names.contains_key(&(raw.owner, raw.tag)) {
            return false;
        }
        let mut bytes = vec![0; raw.len as usize];
        if node::read(&self.medium, address.offset(), &mut bytes).is_err() {
            return false;
        }
        let dirent = Dirent::parse(&bytes, self.order);
        let Ok((dirent, name)) = dirent.and_then(|dirent| Ok((dirent, dirent.name(&bytes)?)))
        else {
            return false;
        };
        let Some(state) = self.tables.inodes.get_mut(&raw.owner) else { return false };
        if dirent.version >= state.version {
            return false;
        }
        if let Some(directory) = &mut state.directory
            && directory.entry(name).is_some_and(|entry| entry.address == address)
        {
            directory.take(name);
        }
        self.kill(address);
        true
    }

    /// Collects an inode node in another way than by copying it: it turned out to be dead, or its
    /// page is written anew in one piece. Says whether that was done.
    fn collect_inode(&mut self, address: Address, raw: &Raw) -> Result<bool, Error> {
        let ino = raw.owner;
        if self.loaded_mut(ino).is_err() {
            // It stays as it is, whatever is wrong with it.
            return Ok(false);
        }
        let Some(loaded) = self.tables.inodes.get(&ino).and_then(|state| state.loaded.get()) else {
            return Ok(false);
        };
        if loaded.has_lost_nodes {
            return Ok(false);
        }
        if !loaded.is_used(address) {
            self.kill_nodes(ino, vec![(address, raw.tag)]);
            return Ok(true);
        }
        let Ok(inode) = self.inode_at(address) else { return Ok(false) };
        let (start, len) = (inode.offset, inode.data_len());
        let page = start / PAGE_SIZE * PAGE_SIZE;
        let uses = loaded.uses(address);
        let is_hole = inode.compression == flysch_wire::jffs2::Compression::Zero;
        let ends = start.saturating_add(len);
        if uses == 0 || is_hole || len > PAGE_SIZE || ends > page.saturating_add(PAGE_SIZE) {
            return Ok(false);
        }
        let end = page.saturating_add(PAGE_SIZE).min(loaded.attributes.size);
        let alone = loaded.parts(page, end).count() == 1;
        let fits = self.room_left(18).is_some_and(|left| left >= raw.space());
        let can_split =
            self.room_left(18).is_some_and(|left| left >= Inode::LEN as u32 + DATA_LEN_MIN)
                && len > DATA_LEN_MIN * 2;
        let may_merge = self.blocks.available() >= self.reserves.merge;
        if (!alone && may_merge) || (!fits && can_split && alone) {
            return self.merge(ino, address, page, end);
        }
        Ok(false)
    }

    fn inode_at(&self, address: Address) -> Result<Inode, Error> {
        let mut bytes = [0; Inode::LEN];
        node::read(&self.medium, address.offset(), &mut bytes)?;
        let damaged = Error::Damaged { structure: "inode node", place: self.place(address) };
        Inode::parse(&bytes, self.order).map_err(|_| damaged)
    }

    /// Writes a page of a file anew.
    fn merge(&mut self, ino: u32, address: Address, page: u32, end: u32) -> Result<bool, Error> {
        let mut bytes = vec![0; (end - page) as usize];
        match self.read_file(ino, page, &mut bytes) {
            Ok(len) if len == bytes.len() => {}
            // What cannot be read stays where it is.
            _ => return Ok(false),
        }
        self.write_page(ino, page, &bytes, Purpose::Collection)?;
        self.activity.merged += 1;
        // All of the node that showed lay in this page.
        let loaded = self.loaded_mut(ino)?;
        Ok(!loaded.is_used(address))
    }
}
