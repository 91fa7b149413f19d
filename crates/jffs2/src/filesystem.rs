//! The file-system interface of a mount.

use alloc::boxed::Box;
use core::num::NonZeroUsize;
use core::ops::Range;

use flysch_api::flash::Flash;
use flysch_api::vfs::{
    Attributes as FileAttributes, Entry, FileKind, FileSystem, FsError, Inode, NameVisitor,
    Statistics, Visitor,
};
use flysch_wire::jffs2::{self, ByteOrder, NAME_LEN_MAX, ROOT_INO};

use crate::Jffs2;
use crate::file::{self, Fragment, Layout, Piece};
use crate::found::{NodeRef, XattrRef, XrefRef};
use crate::index::InodeRecord;
use crate::node::Reader;
use crate::read::{
    Attributes, BLOCK_SIZE, Catalog, Content, Names, Source, Stretch, Stretches, Ties, Told, View,
    entry_time, kind,
};
use crate::xattr::Attribute;

/// Files with fewer nodes are assembled again on every call instead of being cached.
const KEPT_NODES_MIN: usize = 8;

impl<F: Flash> Jffs2<F> {
    pub(crate) fn nodes(&self, record: &InodeRecord) -> &[NodeRef] {
        &self.index.nodes[record.nodes()]
    }

    /// The node that determines the attributes; `None` for a directory without one.
    pub(crate) fn latest(
        &self,
        record: &InodeRecord,
    ) -> Result<Option<(jffs2::Inode, NodeRef)>, FsError> {
        let nodes = self.nodes(record);
        // What has no node is known by its entries, or is the root.
        if nodes.is_empty() {
            return Ok(None);
        }
        if let Some(told_by) = record.told_by.get() {
            let node = nodes[told_by.get() - 1];
            let inode = Reader::new(&self.flash, self.order).inode(node)?;
            return Ok(Some((inode, node)));
        }
        let (inode, number) = file::latest(&self.flash, self.order, nodes)?;
        // Another thread may have judged it meanwhile, and otherwise.
        match record.told_by.set(NonZeroUsize::MIN.saturating_add(number)) {
            Ok(()) => Ok(Some((inode, nodes[number]))),
            Err(()) => self.latest(record),
        }
    }

    /// The kind of file that an inode is.
    pub(crate) fn kind(&self, record: &InodeRecord) -> Result<FileKind, FsError> {
        kind(&self.flash, &self.told(record)?)
    }

    /// Assembles a file, or takes it from the cache; `latest` determines its attributes, which
    /// include `size`.
    pub(crate) fn with_layout<R>(
        &self,
        record: &InodeRecord,
        (size, latest): (u32, NodeRef),
        use_it: impl FnOnce(&Layout) -> R,
    ) -> Result<R, FsError> {
        if let Some(layout) = record.layout.get() {
            return Ok(use_it(layout));
        }
        let nodes = self.nodes(record);
        let layout = Layout::build(&self.flash, self.order, nodes, (size, latest))?;
        if nodes.len() < KEPT_NODES_MIN {
            return Ok(use_it(&layout));
        }
        // Two threads may build it at once; one of the results is kept.
        let _ = record.layout.set(Box::new(layout));
        Ok(record.layout.get().map(use_it).expect("it was just set"))
    }

    /// Whether ranges that no node of the file covers may originally have been other than zeros.
    pub(crate) fn is_lossy(&self, layout: &Layout) -> bool {
        layout.has_lost_nodes || self.index.may_miss_nodes
    }

    /// The attribute to which a reference leads; `None` if its namespace is unknown.
    pub(crate) fn attribute(&self, xref: &XrefRef) -> Result<Option<Attribute>, FsError> {
        View(self).attribute(xref)
    }
}

impl<F: Flash> Catalog for Jffs2<F> {
    type Flash = F;
    type Inode<'c>
        = &'c InodeRecord
    where
        F: 'c;

    fn flash(&self) -> &F {
        &self.flash
    }

    fn order(&self) -> ByteOrder {
        self.order
    }

    fn may_miss_nodes(&self) -> bool {
        self.index.may_miss_nodes
    }

    fn inode(&self, ino: u32) -> Option<&InodeRecord> {
        self.index.inode(ino)
    }

    fn ties(&self, record: &InodeRecord) -> Ties {
        Ties {
            ino: record.ino,
            names: record.names,
            subdirectories: record.subdirectories,
            has_entries: !record.entries().is_empty(),
        }
    }

    fn told(&self, record: &InodeRecord) -> Result<Told, FsError> {
        let made_up = Told { attributes: Attributes::MADE_UP, node: None };
        Ok(self.latest(record)?.map_or(made_up, |(inode, node)| Told {
            attributes: Attributes::of(&inode),
            node: Some(node),
        }))
    }

    fn is_directory(&self, record: &InodeRecord) -> Result<bool, FsError> {
        record.is_directory.get_or_try_init(|| Ok(self.kind(record)? == FileKind::Directory))
    }
}

impl<F: Flash> Names for Jffs2<F> {
    fn entry(&self, directory: &InodeRecord, name: &[u8]) -> Option<u32> {
        self.index.lookup(directory, name).map(|entry| entry.ino)
    }

    /// By name; the position is the index among them.
    fn entries(&self, directory: &InodeRecord, position: u64, visit: &mut Visitor<'_>) {
        let entries = &self.index.entries[directory.entries()];
        let first = usize::try_from(position).unwrap_or(usize::MAX).min(entries.len());
        for (number, entry) in entries.iter().enumerate().skip(first) {
            let kind = FileKind::from_mode(u32::from(entry.kind) << 12);
            let flow = visit(Entry {
                name: entry.name(&self.index.names),
                inode: Inode(u64::from(entry.ino)),
                kind: kind.unwrap_or(FileKind::Regular),
                position: number as u64 + 1,
            });
            if flow.is_break() {
                break;
            }
        }
    }

    fn newest_entry_time(
        &self,
        record: &InodeRecord,
        version: u32,
    ) -> Result<Option<u32>, FsError> {
        let changes = self.index.changes[record.changes()].iter();
        let newer = changes.take_while(|change| change.version > version);
        entry_time(&self.flash, self.order, newer.map(|change| change.address))
    }
}

impl<F: Flash> Content for Jffs2<F> {
    fn with_stored<R>(
        &self,
        _: &InodeRecord,
        told: &Told,
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, FsError> {
        let Some(node) = told.node else { return Ok(use_it(&[])) };
        Reader::new(&self.flash, self.order).stored(node).map(use_it)
    }

    fn with_stretches<R>(
        &self,
        record: &InodeRecord,
        told: &Told,
        range: Range<u32>,
        use_it: impl FnOnce(Stretches<'_>) -> R,
    ) -> Result<R, FsError> {
        let Some(latest) = told.node else {
            let each = &mut core::iter::empty();
            return Ok(use_it(Stretches { each, has_lost_nodes: true }));
        };
        let nodes = self.nodes(record);
        let stretch = |fragment: &Fragment| {
            let source = match fragment.piece {
                Piece::Data(number) => Source::Data(nodes[number as usize], fragment.node_start),
                Piece::Hole(_) => Source::Hole,
                Piece::Damaged(number) => Source::Damaged(nodes[number as usize].address),
            };
            Stretch { start: fragment.start, end: fragment.end, source }
        };
        self.with_layout(record, (told.attributes.size, latest), |layout| {
            let each = &mut layout.from(range.start).iter().map(stretch);
            use_it(Stretches { each, has_lost_nodes: layout.has_lost_nodes })
        })
    }

    fn xrefs(&self, ino: u32) -> impl Iterator<Item = XrefRef> {
        self.index.xrefs_of(ino).iter().copied()
    }

    fn xattr(&self, xid: u32) -> Option<XattrRef> {
        self.index.xattr(xid).copied()
    }
}

impl<F: Flash> FileSystem for Jffs2<F> {
    fn statistics(&self) -> Statistics {
        let geometry = self.flash.geometry();
        let unit = u64::from(BLOCK_SIZE);
        let reserve = self.reserved_bytes();
        Statistics {
            format: "jffs2",
            root: Inode(u64::from(ROOT_INO)),
            block_size: BLOCK_SIZE,
            blocks: geometry.size / unit,
            blocks_free: self.index.space.erased.saturating_sub(reserve) / unit,
            files: Some(self.index.inodes.len() as u64),
            name_max: NAME_LEN_MAX as u32,
        }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        View(self).lookup(directory, name)
    }

    fn attributes(&self, inode: Inode) -> Result<FileAttributes, FsError> {
        View(self).attributes(inode)
    }

    fn list(
        &self,
        directory: Inode,
        position: u64,
        visit: &mut Visitor<'_>,
    ) -> Result<(), FsError> {
        View(self).list(directory, position, visit)
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        View(self).read(inode, offset, buffer)
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, FsError> {
        View(self).next_data(inode, offset)
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), FsError> {
        View(self).list_xattrs(inode, visit)
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, FsError> {
        View(self).read_xattr(inode, name, buffer)
    }

    fn has_access_lists(&self) -> bool {
        true
    }
}
