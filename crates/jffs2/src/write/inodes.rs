//! Inodes in use: what their nodes determine, and writing nodes that change it.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use flysch_api::flash::{Flash, FlashMut};
use flysch_api::vfs::{Entry, FileKind, FsError, Inode as InodeNumber, Timestamp, Visitor};
use flysch_wire::jffs2::{ByteOrder, Compression, Dirent, Inode, Xattr, XattrPrefix, Xref};

use super::loaded::{Loaded, Part, What};
use super::log::{Log, NewNode, Room};
use super::medium::Medium;
use super::nodes::Nodes;
use super::space::Kind;
use super::tables::{Directory, InodeState, Name, Spot, Tables, XattrState, XrefState, hash};
use crate::compressor::Packed;
use crate::create::clamp_time;
use crate::found::{Address, NodeRef, XattrRef, XrefRef};
use crate::read::{Catalog, Content, Names, Source, Stretch, Stretches, Ties, Told, View, kind};

/// When this many parts of files and inodes in use are in memory, all are dropped.
const LOADED_MAX: usize = 1 << 18;

/// All inodes.
#[derive(Debug)]
pub(super) struct Inodes<F> {
    pub(super) nodes: Nodes<F>,
    /// See [`Found::may_miss_nodes`](crate::found::Found::may_miss_nodes).
    may_miss_nodes: bool,
    /// Approximate number of parts and inodes in memory.
    loaded: AtomicUsize,
    /// A node being put together.
    node: Vec<u8>,
}

impl<F: Flash> Inodes<F> {
    pub(super) fn new(nodes: Nodes<F>, may_miss_nodes: bool) -> Self {
        Self { nodes, may_miss_nodes, loaded: AtomicUsize::new(0), node: vec![] }
    }

    pub(super) fn log(&self) -> &Log<F> {
        &self.nodes.log
    }

    pub(super) fn log_mut(&mut self) -> &mut Log<F> {
        &mut self.nodes.log
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.nodes.tables
    }

    pub(super) fn tables_mut(&mut self) -> &mut Tables {
        &mut self.nodes.tables
    }

    /// The inode's attributes and layout; reads them if necessary.
    pub(super) fn loaded(&self, ino: u32) -> Result<&Loaded, FsError> {
        let state = self.tables().state(ino)?;
        if let Some(loaded) = state.loaded.get() {
            return Ok(loaded);
        }
        let loaded = Loaded::read(&self.log().medium, self.log().order, state)?;
        self.loaded.fetch_add(loaded.parts_len() + 1, Ordering::Relaxed);
        state.loaded.see(loaded);
        Ok(state.loaded.get().expect("it was just set"))
    }

    /// The same, mutable; invalid nodes of the inode are sorted out.
    pub(super) fn loaded_mut(&mut self, ino: u32) -> Result<&mut Loaded, FsError> {
        self.settle(ino)?;
        let state = self.tables_mut().inodes.get_mut(&ino).ok_or(FsError::NotFound)?;
        Ok(state.loaded.get_mut().expect("settling reads it"))
    }

    /// Sorts out the invalid nodes of the inode.
    pub(super) fn settle(&mut self, ino: u32) -> Result<(), FsError> {
        let Nodes { log, tables } = &mut self.nodes;
        let state = tables.state_mut(ino)?;
        if state.loaded.get_mut().is_none() {
            let loaded = Loaded::read(&log.medium, log.order, state)?;
            *self.loaded.get_mut() += loaded.parts_len() + 1;
            state.loaded.set(loaded);
        }
        if state.is_settled {
            return Ok(());
        }
        state.is_settled = true;
        let loaded = state.loaded.get().expect("it was just read");
        if loaded.has_lost_nodes {
            // What cannot be read may count.
            return Ok(());
        }
        let nodes = state.living();
        let dead: Vec<_> = nodes.iter().filter(|node| !loaded.is_used(node.address)).collect();
        for node in &dead {
            state.forget(node.version, node.address);
        }
        for node in dead {
            log.blocks.kill(node.address);
        }
        Ok(())
    }

    /// Drops attributes and layouts if there are too many of them.
    pub(super) fn unload(&mut self) {
        if *self.loaded.get_mut() < LOADED_MAX {
            return;
        }
        for state in self.tables_mut().inodes.values_mut() {
            // Times of a file without a name are in memory only.
            if state.names > 0 {
                state.loaded = Default::default();
            }
        }
        *self.loaded.get_mut() = 0;
    }

    pub(super) fn directory(&self, ino: u32) -> Result<&Directory, FsError> {
        let inode = self.inode(ino).ok_or(FsError::NotFound)?;
        View(self).check_directory(inode)?;
        inode.1.directory.as_deref().ok_or(FsError::NotDirectory)
    }

    /// Reads a regular file from `offset` to the end of `buffer`, which must lie within the file.
    /// Returns the number of bytes before something damaged, or the error if there are none.
    pub(super) fn read_file(
        &self,
        ino: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        let inode = self.inode(ino).ok_or(FsError::NotFound)?;
        View(self).read_content(inode, &self.told(inode)?, offset, buffer)
    }

    /// The kind of an inode.
    pub(super) fn kind(&self, ino: u32) -> Result<FileKind, FsError> {
        kind(&self.log().medium, &self.loaded(ino)?.told())
    }

    pub(super) fn check_regular(&self, ino: u32) -> Result<(), FsError> {
        let inode = self.inode(ino).ok_or(FsError::NotFound)?;
        View(self).regular(inode).map(drop)
    }

    /// Room for a node that gives the attributes of an inode, without content of a regular file.
    pub(super) fn metadata_room(&self, ino: u32) -> Result<Room, FsError> {
        Ok(Room::inode(self.loaded(ino)?.data.len()))
    }
}

impl<F: FlashMut> Inodes<F> {
    pub(super) fn add_inode(&mut self, kind: FileKind, loaded: Loaded) -> Result<u32, FsError> {
        let ino = self.tables().next_ino;
        let none = FsError::Unsupported("an inode number beyond 32 bits");
        self.tables_mut().next_ino = ino.checked_add(1).ok_or(none)?;
        let directory = (kind == FileKind::Directory).then(|| Directory::below(0));
        let mut state = InodeState::new(directory);
        state.loaded.set(loaded);
        *self.loaded.get_mut() += 1;
        self.tables_mut().inodes.insert(ino, state);
        Ok(ino)
    }

    /// Appends a directory entry, for which there must be room: `to` is an inode and its `DT_*`, 0
    /// for a removal.
    pub(super) fn append_name(
        &mut self,
        directory: u32,
        name: &[u8],
        to: (u32, u8),
        now: Timestamp,
    ) -> Result<(), FsError> {
        let (ino, kind) = to;
        // What a directory's own nodes tell must be known before its entries change.
        self.loaded_mut(directory)?;
        let version = self.tables_mut().next_version(directory)?;
        let mctime = clamp_time(now);
        let dirent = Dirent { pino: directory, version, ino, mctime, nsize: 0, kind, name_crc: 0 };
        let mut bytes = vec![0; Dirent::LEN + name.len()];
        dirent.emit(name, self.log().order, &mut bytes);
        let raw = if ino == 0 { Kind::Removal } else { Kind::Dirent };
        let new = NewNode { kind: raw, owner: directory, tag: hash(name) };
        let address = self.nodes.append(&mut bytes, new)?;
        let entry = Name { name: name.into(), ino, version, address, kind, by_mkfs: false };
        let old = self.tables_mut().directory_mut(directory)?.put(entry);
        if let Some(old) = old {
            self.nodes.kill(old.address);
        }
        let attributes = &mut self.loaded_mut(directory)?.attributes;
        attributes.mtime = mctime;
        attributes.ctime = mctime;
        Ok(())
    }

    /// Frees everything of an inode without a name.
    pub(super) fn drop_inode(&mut self, ino: u32) {
        let Some(state) = self.tables_mut().inodes.remove(&ino) else { return };
        for node in state.living() {
            self.nodes.kill(node.address);
        }
        // Entries in a directory without a name count for nothing, removals included.
        for entry in state.directory.iter().flat_map(|directory| directory.all()) {
            self.nodes.kill(entry.address);
        }
        let keys: Vec<u32> = self
            .tables()
            .xrefs
            .range((ino, 0)..=(ino, u32::MAX))
            .map(|((_, xid), _)| *xid)
            .collect();
        for xid in keys {
            self.nodes.drop_xref(ino, xid);
        }
    }

    /// Appends an inode node, for which there must be room; from now on it determines the
    /// attributes.
    pub(super) fn append_inode(&mut self, inode: &Inode, data: &[u8]) -> Result<Address, FsError> {
        let mut bytes = core::mem::take(&mut self.node);
        bytes.clear();
        bytes.resize(Inode::LEN + data.len(), 0);
        inode.emit(data, self.log().order, &mut bytes);
        let new = NewNode { kind: Kind::Inode, owner: inode.ino, tag: inode.version };
        let appended = self.nodes.append(&mut bytes, new);
        let total_len = bytes.len() as u32;
        self.node = bytes;
        let address = appended?;
        let (ino, version) = (inode.ino, inode.version);
        let state = self.tables_mut().inodes.get_mut(&ino).expect("its version was counted");
        let node = NodeRef { ino, version, address, total_len };
        state.nodes.push(node);
        let loaded = state.loaded.get_mut().expect("its attributes are known");
        let old = loaded.set_latest(node);
        self.nodes.kill_nodes(ino, old.into_iter().map(|old| (old.address, old.version)).collect());
        Ok(address)
    }

    pub(super) fn set_times(&mut self, ino: u32, now: Timestamp) -> Result<(), FsError> {
        let attributes = &mut self.loaded_mut(ino)?.attributes;
        attributes.mtime = clamp_time(now);
        attributes.ctime = clamp_time(now);
        Ok(())
    }

    pub(super) fn append_data(
        &mut self,
        ino: u32,
        at: u32,
        packed: Packed<'_>,
    ) -> Result<(), FsError> {
        let version = self.tables_mut().next_version(ino)?;
        let end = at + packed.len as u32;
        let loaded = self.loaded_mut(ino)?;
        loaded.attributes.size = loaded.attributes.size.max(end);
        let mut inode = loaded.attributes.node(ino, version);
        inode.offset = at;
        inode.dsize = packed.len as u32;
        inode.compression = packed.compression;
        self.append_part(&inode, packed.stored, end, What::Data)
    }

    /// Appends a node for a hole from `start` to `end`.
    pub(super) fn append_hole(&mut self, ino: u32, start: u32, end: u32) -> Result<(), FsError> {
        let version = self.tables_mut().next_version(ino)?;
        let loaded = self.loaded_mut(ino)?;
        loaded.attributes.size = loaded.attributes.size.max(end);
        let mut inode = loaded.attributes.node(ino, version);
        inode.offset = start;
        inode.dsize = end - start;
        inode.compression = Compression::Zero;
        self.append_part(&inode, &[], end, What::Hole)
    }

    pub(super) fn append_part(
        &mut self,
        inode: &Inode,
        stored: &[u8],
        end: u32,
        what: What,
    ) -> Result<(), FsError> {
        let address = self.append_inode(inode, stored)?;
        *self.loaded.get_mut() += 1;
        let (start, version) = (inode.offset, inode.version);
        let total_len = (Inode::LEN + stored.len()) as u32;
        let part = Part { end, node_start: start, address, version, total_len, what };
        let gone = self.loaded_mut(inode.ino)?.lay(start, part);
        self.nodes.kill_nodes(inode.ino, gone);
        Ok(())
    }

    /// Appends a node with the attributes of an inode, for which there must be room.
    pub(super) fn append_metadata(&mut self, ino: u32) -> Result<(), FsError> {
        let version = self.tables_mut().next_version(ino)?;
        let loaded = self.loaded_mut(ino)?;
        let mut inode = loaded.attributes.node(ino, version);
        let data: Vec<u8> = loaded.data.to_vec();
        inode.dsize = data.len() as u32;
        self.append_inode(&inode, &data).map(drop)
    }

    /// Changes the time of change of an inode, with a node for which there must be room.
    pub(super) fn append_change(&mut self, ino: u32, now: Timestamp) -> Result<(), FsError> {
        self.loaded_mut(ino)?.attributes.ctime = clamp_time(now);
        self.append_metadata(ino)
    }

    pub(super) fn append_xattr(
        &mut self,
        ino: u32,
        prefix: XattrPrefix,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), FsError> {
        let xid = self.tables().next_xid;
        let none = FsError::Unsupported("an attribute number beyond 32 bits");
        self.tables_mut().next_xid = xid.checked_add(1).ok_or(none)?;
        let xattr = Xattr { xid, version: 1, prefix, name_len: 0, value_len: 0, data_crc: 0 };
        let mut bytes = vec![0; Xattr::node_len(name.len(), value.len())];
        xattr.emit(name, value, self.log().order, &mut bytes);
        let new = NewNode { kind: Kind::Xattr, owner: xid, tag: 1 };
        let address = self.nodes.append(&mut bytes, new)?;
        let total_len = bytes.len() as u32;
        let state = XattrState { version: 1, address, total_len, inodes: 0 };
        self.tables_mut().xattrs.insert(xid, state);
        self.append_xref(ino, xid, false)
    }

    /// Appends a node that adds an attribute to an inode, or removes it.
    pub(super) fn append_xref(
        &mut self,
        ino: u32,
        xid: u32,
        is_removal: bool,
    ) -> Result<(), FsError> {
        let none = FsError::Unsupported("a sequence number beyond 32 bits");
        self.tables_mut().xseqno = self.tables().xseqno.checked_add(2).ok_or(none)?;
        let xseqno = self.tables().xseqno | if is_removal { Xref::DELETE_MARKER } else { 0 };
        let mut bytes = vec![0; Xref::LEN];
        Xref { ino, xid, xseqno }.emit(self.log().order, &mut bytes);
        let kind = if is_removal { Kind::XrefRemoval } else { Kind::Xref };
        let address = self.nodes.append(&mut bytes, NewNode { kind, owner: ino, tag: xid })?;
        // What this one says stands before what it replaces goes.
        self.nodes.drop_xref(ino, xid);
        if !is_removal && let Some(xattr) = self.tables_mut().xattrs.get_mut(&xid) {
            xattr.inodes += 1;
        }
        self.tables_mut().xrefs.insert((ino, xid), XrefState { xseqno, address, is_removal });
        Ok(())
    }
}

impl<F: Flash> Catalog for Inodes<F> {
    type Flash = Medium<F>;
    type Inode<'c>
        = (u32, &'c InodeState)
    where
        F: 'c;

    fn flash(&self) -> &Medium<F> {
        &self.log().medium
    }

    fn order(&self) -> ByteOrder {
        self.log().order
    }

    fn may_miss_nodes(&self) -> bool {
        self.may_miss_nodes
    }

    fn inode(&self, ino: u32) -> Option<(u32, &InodeState)> {
        self.tables().inodes.get(&ino).map(|state| (ino, state))
    }

    fn ties(&self, (ino, state): (u32, &InodeState)) -> Ties {
        let directory = state.directory.as_deref();
        Ties {
            ino,
            names: state.names,
            subdirectories: directory.map_or(0, |directory| directory.subdirectories),
            has_entries: directory.is_some_and(|directory| directory.live > 0),
        }
    }

    fn told(&self, (ino, _): (u32, &InodeState)) -> Result<Told, FsError> {
        Ok(self.loaded(ino)?.told())
    }
}

impl<F: Flash> Names for Inodes<F> {
    fn entry(&self, (_, directory): (u32, &InodeState), name: &[u8]) -> Option<u32> {
        Some(directory.directory.as_deref()?.lookup(name)?.ino)
    }

    /// By the hash of their names, so that a position stays valid when names come and go.
    fn entries(&self, (_, directory): (u32, &InodeState), position: u64, visit: &mut Visitor<'_>) {
        let Some(directory) = directory.directory.as_deref() else { return };
        for (spot, entry) in directory.from(Spot::at(position)) {
            if entry.ino == 0 {
                continue;
            }
            let kind = FileKind::from_mode(u32::from(entry.kind) << 12);
            let flow = visit(Entry {
                name: &entry.name,
                inode: InodeNumber(u64::from(entry.ino)),
                kind: kind.unwrap_or(FileKind::Regular),
                position: spot.position(),
            });
            if flow.is_break() {
                break;
            }
        }
    }

    /// What the nodes determine already includes this.
    fn newest_entry_time(&self, _: (u32, &InodeState), _: u32) -> Result<Option<u32>, FsError> {
        Ok(None)
    }
}

impl<F: Flash> Content for Inodes<F> {
    fn with_stored<R>(
        &self,
        (ino, _): (u32, &InodeState),
        _: &Told,
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, FsError> {
        Ok(use_it(&self.loaded(ino)?.data))
    }

    fn with_stretches<R>(
        &self,
        (ino, _): (u32, &InodeState),
        _: &Told,
        range: Range<u32>,
        use_it: impl FnOnce(Stretches<'_>) -> R,
    ) -> Result<R, FsError> {
        let loaded = self.loaded(ino)?;
        let each = &mut loaded.parts(range.start, range.end).map(|(start, part)| {
            let Part { end, node_start, address, version, total_len, what } = part;
            let source = match what {
                What::Data => {
                    Source::Data(NodeRef { ino, version, address, total_len }, node_start)
                }
                What::Hole => Source::Hole,
                What::Damaged => Source::Damaged(address),
            };
            Stretch { start, end, source }
        });
        Ok(use_it(Stretches { each, has_lost_nodes: loaded.has_lost_nodes }))
    }

    fn xrefs(&self, ino: u32) -> impl Iterator<Item = XrefRef> {
        self.tables().xrefs_of(ino).into_iter().map(move |(xid, xref)| {
            let XrefState { xseqno, address, .. } = xref;
            XrefRef { ino, xid, xseqno, address }
        })
    }

    fn xattr(&self, xid: u32) -> Option<XattrRef> {
        let XattrState { version, address, total_len, .. } = *self.tables().xattrs.get(&xid)?;
        Some(XattrRef { xid, version, address, total_len })
    }
}
