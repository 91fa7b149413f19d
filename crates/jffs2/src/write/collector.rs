//! Room for new nodes, and the garbage collection that makes it: valid nodes are copied out of a
//! block, so that the block can be erased.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Flash, FlashError, FlashGeometry, FlashMut};
use flysch_api::vfs::FsError;
use flysch_wire::jffs2::{Dirent, Header, Inode};

use super::PAGE_SIZE;
use super::inodes::Inodes;
use super::log::{Log, Room};
use super::medium::Medium;
use super::nodes::Nodes;
use super::space::{End, Kind, Raw, State};
use super::tables::Tables;
use crate::compressor::{Compressors, Packer};
use crate::found::Address;
use crate::node;

/// Blocks that may be collected for one call, as a multiple of all blocks, before the flash counts
/// as full.
const PATIENCE: u32 = 2;
/// With this many blocks left, a removal may take one if necessary.
const REMOVAL_BLOCKS_MIN: u32 = 2;
/// Minimum data for which a node at the end of a block should have room (`JFFS2_MIN_DATA_LEN`).
pub(super) const DATA_LEN_MIN: u32 = 128;

/// How often a node is read before it is considered unreadable.
const READS: u32 = 4;

/// A node that is to be copied.
enum Original {
    /// All its checksums are right.
    Whole(Vec<u8>),
    /// A summary lists it, but it is not there.
    Absent,
    /// It was there, and cannot be read, or some of its checksums are wrong.
    Unreadable,
}

/// The purpose for which room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// New content.
    Change,
    /// A removal, which will free room.
    Removal,
    /// Garbage collection: all remaining room may be used.
    Collection,
}

/// Reserved numbers of blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserves {
    /// New content requires this many blocks left.
    pub(super) write: u32,
    /// Removals require this many.
    pub(super) removal: u32,
    /// With fewer, garbage collection merges nothing: nodes are copied as they are.
    pub(super) merge: u32,
    /// With less dirt than this, bytes, nothing is collected: the flash is full.
    dirty_min: u64,
}

impl Reserves {
    /// As computed by Linux's `build.c`, plus one block: after a power cut Linux continues in the
    /// block it was writing, which here is left as it is.
    fn of(geometry: &FlashGeometry) -> Self {
        let removal = 3;
        let erase_size = u64::from(geometry.erase_size);
        let slack = geometry.size / 50 + u64::from(geometry.blocks()) * 100;
        let write = removal + u32::try_from(slack.div_ceil(erase_size)).unwrap_or(u32::MAX);
        let dirty_min = erase_size + geometry.size / 100;
        Self { write, removal, merge: removal, dirty_min }
    }
}

/// All inodes, and the log to which they are written.
#[derive(Debug)]
pub(super) struct Collector<F> {
    pub(super) inodes: Inodes<F>,
    pub(super) reserves: Reserves,
    /// Inodes may have invalid nodes that are not known as such.
    pub(super) is_unsettled: bool,
    packer: Packer,
}

impl<F: Flash> Collector<F> {
    pub(super) fn new(inodes: Inodes<F>, compressors: Compressors) -> Self {
        let reserves = Reserves::of(&inodes.log().blocks.geometry);
        Self { inodes, reserves, is_unsettled: true, packer: Packer::new(compressors) }
    }

    pub(super) fn into_medium(self) -> Medium<F> {
        self.inodes.nodes.log.medium
    }

    pub(super) fn log(&self) -> &Log<F> {
        self.inodes.log()
    }

    pub(super) fn log_mut(&mut self) -> &mut Log<F> {
        self.inodes.log_mut()
    }

    pub(super) fn nodes_mut(&mut self) -> &mut Nodes<F> {
        &mut self.inodes.nodes
    }

    pub(super) fn tables(&self) -> &Tables {
        self.inodes.tables()
    }

    pub(super) fn tables_mut(&mut self) -> &mut Tables {
        self.inodes.tables_mut()
    }
}

impl<F: FlashMut> Collector<F> {
    /// Ensures that `room` is left in the current block, after collecting garbage as long as too
    /// few blocks are left for `purpose`; returns how many bytes of nodes fit.
    pub(super) fn reserve(&mut self, room: Room, purpose: Purpose) -> Result<u32, FsError> {
        self.log().check_alive()?;
        let wanted = match purpose {
            Purpose::Change => self.reserves.write,
            Purpose::Removal => self.reserves.removal,
            Purpose::Collection => 0,
        };
        let patience = self.log().activity.collected
            + u64::from(self.log().blocks.blocks.len() as u32 * PATIENCE);
        while self.log().blocks.available() < wanted {
            let first = core::mem::replace(&mut self.is_unsettled, false);
            if first {
                self.settle_all();
                continue;
            }
            let worth = self.is_worth_collecting(wanted, purpose);
            if worth && self.log().activity.collected < patience && self.collect()? {
                continue;
            }
            if purpose != Purpose::Removal {
                return Err(FsError::NoSpace);
            }
            // The last blocks are for collecting; but a removal makes room.
            let left = self.log().room_left(room.entries).unwrap_or(0);
            if left >= room.nodes || self.log().blocks.available() >= REMOVAL_BLOCKS_MIN {
                break;
            }
            let any = self.log().blocks.dirty() > 0 && self.log().activity.collected < patience;
            if !any || !self.collect()? {
                return Err(FsError::NoSpace);
            }
        }
        self.nodes_mut().find_room(room)
    }

    /// Whether collecting can lead to `wanted` blocks. Otherwise a flash that is full except for a
    /// few bytes in each block would be copied around for every call, which would be refused in the
    /// end.
    pub(super) fn is_worth_collecting(&self, wanted: u32, purpose: Purpose) -> bool {
        let erase_size = u64::from(self.log().blocks.geometry.erase_size);
        let dirty = self.log().blocks.dirty();
        let current = u64::from(self.log().room_left(0).unwrap_or(0));
        let reachable = u64::from(self.log().blocks.available()) * erase_size + dirty + current;
        let least = if purpose == Purpose::Change { self.reserves.dirty_min } else { 1 };
        reachable >= u64::from(wanted) * erase_size
            && (dirty >= least || self.log().blocks.has_very_dirty())
    }

    /// Determines which nodes of all inodes are valid: Linux does this before it first collects.
    pub(super) fn settle_all(&mut self) {
        let inos: Vec<u32> = self.tables().inodes.keys().copied().collect();
        for ino in inos {
            let state = &self.tables().inodes[&ino];
            if state.is_settled || state.nodes.len() < 2 {
                continue;
            }
            let was_loaded = state.loaded.get().is_some();
            // An inode that cannot be read keeps all its nodes.
            let _ = self.inodes.settle(ino);
            if !was_loaded && let Some(state) = self.tables_mut().inodes.get_mut(&ino) {
                state.loaded = Default::default();
            }
        }
    }

    /// Collects one node, or selects a block to collect. Returns whether there was anything to do.
    pub(super) fn collect(&mut self) -> Result<bool, FsError> {
        let number = match self.log().blocks.collected {
            Some(number) => number,
            None => {
                let Some(number) = self.log_mut().blocks.victim() else { return Ok(false) };
                self.log_mut().blocks.collected = Some(number);
                self.log_mut().activity.collected += 1;
                number
            }
        };
        let block = &self.log().blocks.blocks[number as usize];
        let raw = match block.state {
            State::Closed => block.raws.iter().find(|raw| !raw.is_dead).copied(),
            _ => None,
        };
        match raw {
            Some(raw) => {
                let address = self.log().blocks.address(number, raw.at);
                self.collect_node(address, &raw)?;
            }
            None => {
                self.log_mut().blocks.collected = None;
                // Erased at once, its nodes are on the flash once: after a power cut nobody has to
                // find out which copy is the newer one.
                self.nodes_mut().flush()?;
                self.nodes_mut().erase_all()?;
            }
        }
        Ok(true)
    }

    pub(super) fn collect_node(&mut self, address: Address, raw: &Raw) -> Result<(), FsError> {
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
                if !self.tables().old_xrefs.contains_key(&key) {
                    self.tables_mut().xrefs.remove(&key);
                    self.nodes_mut().kill(address);
                    return Ok(());
                }
            }
            Kind::Dirent | Kind::Xattr | Kind::Xref | Kind::Other => {}
        }
        self.copy_out(address, raw)
    }

    /// Copies a node as it is: including its version, so its meaning does not change. One that
    /// cannot be read stays, and its block with it: without it older content would show, or a
    /// removed file would return. A copy with errors in it would do as much harm if nothing were
    /// written behind it, because the next mount would consider it torn.
    pub(super) fn copy_out(&mut self, address: Address, raw: &Raw) -> Result<(), FsError> {
        let mut bytes = match self.original(address, raw)? {
            Original::Whole(bytes) => bytes,
            Original::Absent => {
                // Nothing is lost with it.
                if raw.kind == Kind::Inode {
                    self.nodes_mut().kill_nodes(raw.owner, vec![(address, raw.tag)]);
                } else {
                    self.nodes_mut().kill(address);
                }
                return Ok(());
            }
            Original::Unreadable => {
                self.log_mut().blocks.keep(address);
                return Ok(());
            }
        };
        self.nodes_mut()
            .find_room(Room { nodes: raw.space(), entries: raw.summary_entry_len() })?;
        // Taking a block may have moved nodes, this one among them.
        let (number, at) = self.log().blocks.place(address);
        let block = &self.log().blocks.blocks[number as usize];
        let index = block.raws.binary_search_by_key(&at, |raw| raw.at);
        if index.is_ok_and(|index| !block.raws[index].is_dead) {
            self.log_mut().activity.moved += 1;
            self.nodes_mut().copy(address, raw, &mut bytes)?;
        }
        Ok(())
    }

    /// Reads a node that is to be copied, again if that does not go well.
    fn original(&self, address: Address, raw: &Raw) -> Result<Original, FsError> {
        let (medium, order) = (&self.log().medium, self.log().order);
        let mut bytes = vec![0; raw.len as usize];
        let (mut is_sound, mut has_header) = (true, false);
        for _ in 0..READS {
            match medium.read(address.offset(), &mut bytes) {
                Ok(_) => {}
                Err(FlashError::Uncorrectable { .. }) => is_sound = false,
                Err(FlashError::Os(_)) => {
                    is_sound = false;
                    continue;
                }
                Err(error) => return Err(node::failed(medium, address.offset(), error)),
            }
            let header = Header::parse(&bytes, order);
            let is_header = header.is_ok_and(|header| header.total_len == raw.len);
            has_header |= is_header;
            // Of a node of an unknown type only the header can be checked.
            let is_unknown = raw.kind == Kind::Other && is_header && is_sound;
            if is_unknown || node::is_whole(&bytes, order) {
                return Ok(Original::Whole(bytes));
            }
        }
        let (number, _) = self.log().blocks.place(address);
        let is_listed = self.log().blocks.blocks[number as usize].is_listed;
        let is_absent = is_listed && is_sound && !has_header;
        Ok(if is_absent { Original::Absent } else { Original::Unreadable })
    }

    /// A removal may be dropped if no older entry of that name can be found any more, unless it is
    /// the newest entry of its directory and gives the time of the directory's last change.
    pub(super) fn drop_removal(&mut self, address: Address, raw: &Raw) -> bool {
        if self.tables().old_names.contains_key(&(raw.owner, raw.tag)) {
            return false;
        }
        let mut bytes = vec![0; raw.len as usize];
        if node::read(&self.log().medium, address.offset(), &mut bytes).is_err() {
            return false;
        }
        let dirent = Dirent::parse(&bytes, self.log().order);
        let Ok((dirent, name)) = dirent.and_then(|dirent| Ok((dirent, dirent.name(&bytes)?)))
        else {
            return false;
        };
        let Some(state) = self.tables_mut().inodes.get_mut(&raw.owner) else { return false };
        if dirent.version >= state.version {
            return false;
        }
        if let Some(directory) = &mut state.directory
            && directory.entry(name).is_some_and(|entry| entry.address == address)
        {
            directory.take(name);
        }
        self.nodes_mut().kill(address);
        true
    }

    /// Collects an inode node without copying it: it turned out to be dead, or its page is
    /// rewritten in one piece. Returns whether that was done.
    pub(super) fn collect_inode(&mut self, address: Address, raw: &Raw) -> Result<bool, FsError> {
        let ino = raw.owner;
        if self.inodes.loaded_mut(ino).is_err() {
            // It stays as it is, whatever is wrong with it.
            return Ok(false);
        }
        let Some(loaded) = self.tables().inodes.get(&ino).and_then(|state| state.loaded.get())
        else {
            return Ok(false);
        };
        if loaded.has_lost_nodes {
            return Ok(false);
        }
        if !loaded.is_used(address) {
            self.nodes_mut().kill_nodes(ino, vec![(address, raw.tag)]);
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
        let fits = self.log().room_left(18).is_some_and(|left| left >= raw.space());
        let can_split =
            self.log().room_left(18).is_some_and(|left| left >= Inode::LEN as u32 + DATA_LEN_MIN)
                && len > DATA_LEN_MIN * 2;
        let may_merge = self.log().blocks.available() >= self.reserves.merge;
        if (!alone && may_merge) || (!fits && can_split && alone) {
            return self.merge(ino, address, page, end);
        }
        Ok(false)
    }

    pub(super) fn inode_at(&self, address: Address) -> Result<Inode, FsError> {
        let mut bytes = [0; Inode::LEN];
        node::read(&self.log().medium, address.offset(), &mut bytes)?;
        let (structure, place) = ("inode node", self.log().place(address));
        Inode::parse(&bytes, self.log().order).map_err(|error| FsError::Damaged {
            structure,
            place,
            cause: node::damage(error),
        })
    }

    /// Rewrites a page of a file.
    pub(super) fn merge(
        &mut self,
        ino: u32,
        address: Address,
        page: u32,
        end: u32,
    ) -> Result<bool, FsError> {
        let mut bytes = vec![0; (end - page) as usize];
        match self.inodes.read_file(ino, page, &mut bytes) {
            Ok(len) if len == bytes.len() => {}
            // What cannot be read stays where it is.
            _ => return Ok(false),
        }
        self.write_page(ino, page, &bytes, Purpose::Collection)?;
        self.log_mut().activity.merged += 1;
        // All of the node that showed lay in this page.
        let loaded = self.inodes.loaded_mut(ino)?;
        Ok(!loaded.is_used(address))
    }

    /// Writes bytes within one page of a file, in one node if they fit into the current block,
    /// otherwise in several. Extends the file if they reach beyond its end. Returns the number of
    /// bytes written before space ran out, at least one.
    pub(super) fn write_page(
        &mut self,
        ino: u32,
        start: u32,
        bytes: &[u8],
        purpose: Purpose,
    ) -> Result<usize, FsError> {
        if purpose == Purpose::Change && bytes.iter().all(|&byte| byte == 0) {
            self.reserve(Room::inode(0), purpose)?;
            self.inodes.append_hole(ino, start, start + bytes.len() as u32)?;
            return Ok(bytes.len());
        }
        let mut at = start;
        let mut rest = bytes;
        while !rest.is_empty() {
            let least = Room::inode(rest.len().min(DATA_LEN_MIN as usize));
            let room = match self.reserve(least, purpose) {
                Err(FsError::NoSpace) if at > start && purpose == Purpose::Change => break,
                other => other?,
            };
            let mut packer = core::mem::replace(&mut self.packer, Packer::new(Compressors::none()));
            let packed = packer.pack(rest, room as usize - Inode::LEN);
            let result = self.inodes.append_data(ino, at, packed);
            let len = packed.len;
            self.packer = packer;
            result?;
            at += len as u32;
            rest = &rest[len..];
        }
        Ok((at - start) as usize)
    }

    /// Makes the block with the most room at its end the current one.
    pub(super) fn resume(&mut self) {
        // With no block left at all one has to do, whatever its end looks like; but first blocks in
        // which nothing counts must be known.
        if self.log().blocks.available() == 0 && self.log().blocks.ends().any(|end| end.is_torn) {
            self.is_unsettled = false;
            self.settle_all();
        }
        let is_last_hope = self.log().blocks.available() == 0;
        let fitting = self.log().blocks.ends().filter(|end| is_last_hope || !end.is_torn);
        if let Some(end) = fitting.min_by_key(End::rank) {
            self.log_mut().resume_in(end);
        }
    }
}
