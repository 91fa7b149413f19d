//! The mounted file system as everybody else sees it.

use alloc::boxed::Box;
use alloc::vec;
use core::num::NonZeroUsize;
use core::ops::Range;

use flysch_api::flash::Flash;
use flysch_api::vfs::{
    Attributes, DeviceNumber, Entry, Error, FileFlags, FileKind, FileSystem, Inode, NameVisitor,
    Statistics, Timestamp, Visitor,
};
use flysch_wire::jffs2::{self, DeviceData, Dirent, NAME_LEN_MAX, ROOT_INO};

use crate::Jffs2;
use crate::file::{self, Layout, Piece};
use crate::found::{DirentRef, NodeRef};
use crate::index::InodeRecord;
use crate::node::{self, Reader};

/// Unit of the sizes in the statistics, bytes: Linux's page.
const BLOCK_SIZE: u32 = 4096;
/// Files with fewer nodes are put together anew at every call instead of being kept.
const KEPT_NODES_MIN: usize = 8;
/// Mode of a directory that has entries, but no node of its own.
const MODE_MADE_UP: u32 = 0o040_755;

fn seconds(value: u32) -> Timestamp {
    Timestamp { seconds: i64::from(value), nanoseconds: 0 }
}

impl<F: Flash> Jffs2<F> {
    pub(crate) fn record(&self, inode: Inode) -> Result<&InodeRecord, Error> {
        let ino = u32::try_from(inode.0).map_err(|_| Error::NotFound)?;
        self.index.inode(ino).ok_or(Error::NotFound)
    }

    pub(crate) fn nodes(&self, record: &InodeRecord) -> &[NodeRef] {
        &self.index.nodes[record.nodes()]
    }

    /// The node that tells the attributes; `None` for a directory that has none.
    pub(crate) fn latest(
        &self,
        record: &InodeRecord,
    ) -> Result<Option<(jffs2::Inode, NodeRef)>, Error> {
        let nodes = self.nodes(record);
        let is_made_up =
            nodes.is_empty() && (record.ino == ROOT_INO || !record.entries().is_empty());
        if is_made_up {
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

    /// The mode of an inode, and its kind.
    pub(crate) fn kind(&self, record: &InodeRecord) -> Result<FileKind, Error> {
        let mode = self.latest(record)?.map_or(MODE_MADE_UP, |(inode, _)| inode.mode);
        self.kind_of(record, mode)
    }

    fn kind_of(&self, record: &InodeRecord, mode: u32) -> Result<FileKind, Error> {
        FileKind::from_mode(mode).ok_or_else(|| {
            let address = self.nodes(record).last().map(|node| node.address);
            let place = address.map(|address| node::place(&self.flash, address));
            Error::Damaged { structure: "mode of an inode node", place: place.unwrap_or_default() }
        })
    }

    /// When a directory was last changed, if an entry tells that more recently than its nodes do.
    fn directory_change(&self, record: &InodeRecord, version: u32) -> Result<Option<u32>, Error> {
        let changes = &self.index.changes[record.changes()];
        for change in changes.iter().take_while(|change| change.version > version) {
            let mut bytes = [0; Dirent::LEN];
            node::read(&self.flash, change.address.offset(), &mut bytes)?;
            // Garbage collection writes no time when the directory's were set by hand.
            match Dirent::parse(&bytes, self.order) {
                Ok(Dirent { mctime: 0, .. }) => {}
                Ok(dirent) => return Ok(Some(dirent.mctime)),
                // The entry itself is known; only its time is not if the node is damaged.
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    fn device(&self, node: NodeRef) -> Result<DeviceNumber, Error> {
        let mut reader = Reader::new(&self.flash, self.order);
        match self.order.parse_device(reader.stored(node)?) {
            Some(DeviceData::Old(number)) => Ok(DeviceNumber::from_old(number)),
            Some(DeviceData::New(number)) => Ok(DeviceNumber::from_new(number)),
            None => Err(Error::Damaged {
                structure: "device number",
                place: node::place(&self.flash, node.address),
            }),
        }
    }

    /// Puts a file together, or remembers how it was; `latest` tells its attributes.
    pub(crate) fn with_layout<R>(
        &self,
        record: &InodeRecord,
        latest: (jffs2::Inode, NodeRef),
        use_it: impl FnOnce(&Layout) -> R,
    ) -> R {
        if let Some(layout) = record.layout.get() {
            return use_it(layout);
        }
        let nodes = self.nodes(record);
        let layout = Layout::build(&self.flash, self.order, nodes, latest);
        if nodes.len() < KEPT_NODES_MIN {
            return use_it(&layout);
        }
        // Two threads may build it at once; one of the results is kept.
        let _ = record.layout.set(Box::new(layout));
        record.layout.get().map(use_it).expect("it was just set")
    }

    /// Whether what no node of the file covers may have been something else than zeros.
    pub(crate) fn is_lossy(&self, layout: &Layout) -> bool {
        layout.has_lost_nodes || self.index.may_miss_nodes
    }

    /// Reads from `offset` to the end of the buffer, which lies within the file. Returns how much
    /// was read before something damaged, or the error when nothing was.
    fn read_pieces(
        &self,
        record: &InodeRecord,
        layout: &Layout,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        let nodes = self.nodes(record);
        let is_lossy = self.is_lossy(layout);
        let mut reader = Reader::new(&self.flash, self.order);
        let end = offset + buffer.len() as u32;
        let mut at = offset;
        let mut fragments = layout.from(offset).iter().peekable();
        while at < end {
            let next = fragments.peek().filter(|fragment| fragment.start < end);
            let to = (at - offset) as usize;
            let result = match next {
                Some(fragment) if fragment.start <= at => {
                    let stop = fragment.end.min(end);
                    let output = &mut buffer[to..to + (stop - at) as usize];
                    let result = match fragment.piece {
                        Piece::Hole(_) => {
                            output.fill(0);
                            Ok(())
                        }
                        Piece::Data(number) => {
                            let skip = at - fragment.node_start;
                            reader.data(nodes[number as usize], skip, output)
                        }
                        Piece::Damaged(number) => Err(Error::Damaged {
                            structure: "inode data",
                            place: node::place(&self.flash, nodes[number as usize].address),
                        }),
                    };
                    fragments.next();
                    result.map(|()| stop)
                }
                _ if is_lossy => Err(Error::Damaged {
                    structure: "inode node that is lost",
                    place: Default::default(),
                }),
                _ => {
                    let stop = next.map_or(end, |fragment| fragment.start);
                    buffer[to..to + (stop - at) as usize].fill(0);
                    Ok(stop)
                }
            };
            match result {
                Ok(stop) => at = stop,
                Err(error) if at == offset => return Err(error),
                Err(_) => break,
            }
        }
        Ok((at - offset) as usize)
    }

    fn read_symlink(&self, node: NodeRef, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut reader = Reader::new(&self.flash, self.order);
        let target = reader.stored(node)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(target.len());
        let len = buffer.len().min(target.len() - start);
        buffer[..len].copy_from_slice(&target[start..start + len]);
        Ok(len)
    }

    fn entry_kind(&self, entry: &DirentRef) -> FileKind {
        FileKind::from_mode(u32::from(entry.kind) << 12).unwrap_or(FileKind::Regular)
    }

    /// What tells the attributes of a regular file, with the record.
    fn regular(&self, inode: Inode) -> Result<(&InodeRecord, (jffs2::Inode, NodeRef)), Error> {
        let record = self.record(inode)?;
        let Some(latest) = self.latest(record)? else { return Err(Error::IsDirectory) };
        match self.kind_of(record, latest.0.mode)? {
            FileKind::Regular => Ok((record, latest)),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::NoContent),
        }
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

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, Error> {
        let record = self.record(directory)?;
        match self.index.lookup(record, name) {
            Some(entry) => Ok(Inode(u64::from(entry.ino))),
            None if self.kind(record)? == FileKind::Directory => Err(Error::NotFound),
            None => Err(Error::NotDirectory),
        }
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, Error> {
        let record = self.record(inode)?;
        let latest = self.latest(record)?;
        let mode = latest.map_or(MODE_MADE_UP, |(node, _)| node.mode);
        let kind = self.kind_of(record, mode)?;
        let mut attributes = Attributes {
            inode,
            kind,
            permissions: (mode & 0o7777) as u16,
            links: record.names,
            owner: 0,
            group: 0,
            size: 0,
            blocks: 0,
            accessed: seconds(0),
            modified: seconds(0),
            changed: seconds(0),
            device: DeviceNumber::default(),
            flags: FileFlags::default(),
        };
        if kind == FileKind::Directory {
            // Linux counts one more for the root.
            attributes.links = 2 + record.subdirectories + u32::from(record.ino == ROOT_INO);
        }
        let Some((latest, node)) = latest else { return Ok(attributes) };
        attributes.owner = u32::from(latest.uid);
        attributes.group = u32::from(latest.gid);
        attributes.size = u64::from(latest.isize);
        attributes.blocks = attributes.size.div_ceil(512);
        attributes.accessed = seconds(latest.atime);
        attributes.modified = seconds(latest.mtime);
        attributes.changed = seconds(latest.ctime);
        match kind {
            FileKind::Directory => {
                if let Some(change) = self.directory_change(record, latest.version)? {
                    attributes.modified = seconds(change);
                    attributes.changed = seconds(change);
                }
            }
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                attributes.device = self.device(node)?;
            }
            _ => {}
        }
        Ok(attributes)
    }

    fn list(&self, directory: Inode, position: u64, visit: &mut Visitor<'_>) -> Result<(), Error> {
        let record = self.record(directory)?;
        let entries = &self.index.entries[record.entries()];
        if entries.is_empty() && self.kind(record)? != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let first = usize::try_from(position).unwrap_or(usize::MAX).min(entries.len());
        for (number, entry) in entries.iter().enumerate().skip(first) {
            let flow = visit(Entry {
                name: entry.name(&self.index.names),
                inode: Inode(u64::from(entry.ino)),
                kind: self.entry_kind(entry),
                position: number as u64 + 1,
            });
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let record = self.record(inode)?;
        let Some((latest, node)) = self.latest(record)? else { return Err(Error::IsDirectory) };
        match self.kind_of(record, latest.mode)? {
            FileKind::Regular => {}
            FileKind::Symlink => return self.read_symlink(node, offset, buffer),
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::NoContent),
        }
        let Some(left) = u64::from(latest.isize).checked_sub(offset).filter(|&left| left > 0)
        else {
            return Ok(0);
        };
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..len];
        self.with_layout(record, (latest, node), |layout| {
            self.read_pieces(record, layout, offset as u32, buffer)
        })
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let (record, latest) = self.regular(inode)?;
        let size = latest.0.isize;
        let Some(offset) = u32::try_from(offset).ok().filter(|&offset| offset < size) else {
            return Ok(None);
        };
        Ok(self.with_layout(record, latest, |layout| {
            if self.is_lossy(layout) {
                return Some(u64::from(offset)..u64::from(size));
            }
            let mut data =
                layout.from(offset).iter().filter(|f| !matches!(f.piece, Piece::Hole(_)));
            let first = data.next()?;
            let mut end = first.end;
            for fragment in data {
                if fragment.start != end {
                    break;
                }
                end = fragment.end;
            }
            Some(u64::from(first.start.max(offset))..u64::from(end))
        }))
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), Error> {
        let record = self.record(inode)?;
        let mut names: vec::Vec<vec::Vec<u8>> = vec![];
        let mut failed = Ok(());
        for xref in self.index.xrefs_of(record.ino) {
            match self.xattr(xref) {
                Ok(Some(xattr)) => names.push(xattr.name),
                Ok(None) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        names.sort_unstable();
        names.dedup();
        names.iter().for_each(|name| visit(name));
        failed
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, Error> {
        let record = self.record(inode)?;
        let value = self.xattr_value(record.ino, name)?;
        let to = buffer.get_mut(..value.len()).ok_or(Error::BufferTooSmall(value.len()))?;
        to.copy_from_slice(&value);
        Ok(value.len())
    }
}
