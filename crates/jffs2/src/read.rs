//! Reading, for both kinds of mount: the operations of a file system in terms of what a mount
//! knows.
//!
//! A read-only mount has sorted tables ([`Index`](crate::index::Index)); a mount for writing has
//! tables that change. Both expose their knowledge through [`Catalog`], [`Names`] and [`Content`],
//! and [`View`] answers from it: the rules of reading are implemented only here.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash::Flash;
use flysch_api::vfs::{
    self, Damage, DeviceNumber, FileFlags, FileKind, FsError, Inode, NameVisitor, Timestamp,
    Visitor,
};
use flysch_wire::jffs2::{self, ByteOrder, Compression, DeviceData, Dirent, ROOT_INO};

use crate::found::{Address, NodeRef, XattrRef, XrefRef};
use crate::node::{self, Reader};
use crate::xattr::{Attribute, read_attribute};

/// Unit of the sizes in the statistics, bytes: Linux's page.
pub(crate) const BLOCK_SIZE: u32 = 4096;
/// Mode of a directory that has entries, or is the root, but has no node.
const MODE_MADE_UP: u32 = 0o040_755;

/// Attributes as stored in every node of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) uid: u16,
    pub(crate) gid: u16,
    pub(crate) size: u32,
    pub(crate) atime: u32,
    pub(crate) mtime: u32,
    pub(crate) ctime: u32,
}

impl Attributes {
    /// Those of a directory without a node.
    pub(crate) const MADE_UP: Self =
        Self { mode: MODE_MADE_UP, uid: 0, gid: 0, size: 0, atime: 0, mtime: 0, ctime: 0 };

    pub(crate) fn of(inode: &jffs2::Inode) -> Self {
        Self {
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.isize,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
        }
    }

    /// A node with these attributes and no data.
    pub(crate) fn node(&self, ino: u32, version: u32) -> jffs2::Inode {
        jffs2::Inode {
            ino,
            version,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            isize: self.size,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            offset: 0,
            csize: 0,
            dsize: 0,
            compression: Compression::None,
            user_compression: 0,
            flags: 0,
            data_crc: 0,
        }
    }
}

/// What the nodes of an inode determine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) attributes: Attributes,
    /// The node that determines them; none for a directory without one.
    pub(crate) node: Option<NodeRef>,
}

/// The place of an inode in the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ties {
    pub(crate) ino: u32,
    /// Number of its names.
    pub(crate) names: u32,
    /// Number of directories among its entries.
    pub(crate) subdirectories: u32,
    pub(crate) has_entries: bool,
}

/// Source of a stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Data of this node, which begins at this offset of the file.
    Data(NodeRef, u32),
    /// Zeros that were written as a hole.
    Hole,
    /// Data of the node at this position, which cannot be read.
    Damaged(Address),
}

/// A stretch of a file that comes from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) source: Source,
}

/// The stretches of a part of a file, in ascending order, without overlap.
pub(crate) struct Stretches<'s> {
    pub(crate) each: &'s mut dyn Iterator<Item = Stretch>,
    /// A node of the file cannot be read: ranges without a stretch may not be zeros.
    pub(crate) has_lost_nodes: bool,
}

/// A mount's knowledge of inodes.
pub(crate) trait Catalog {
    type Flash: Flash;
    /// An inode as its tables have it.
    type Inode<'c>: Copy
    where
        Self: 'c;

    fn flash(&self) -> &Self::Flash;

    fn order(&self) -> ByteOrder;

    /// See [`Found::may_miss_nodes`](crate::found::Found::may_miss_nodes).
    fn may_miss_nodes(&self) -> bool;

    /// An inode that has a name, or is the root, or is still in use.
    fn inode(&self, ino: u32) -> Option<Self::Inode<'_>>;

    fn ties(&self, inode: Self::Inode<'_>) -> Ties;

    /// What its nodes determine. The verdict stands as long as the mount does.
    fn told(&self, inode: Self::Inode<'_>) -> Result<Told, FsError>;

    /// Whether it is a directory, by the mode in its node.
    fn is_directory(&self, inode: Self::Inode<'_>) -> Result<bool, FsError> {
        let told = self.told(inode)?;
        Ok(kind(self.flash(), &told)? == FileKind::Directory)
    }
}

/// A mount's knowledge of names.
pub(crate) trait Names: Catalog {
    /// The inode of a name in a directory.
    fn entry(&self, directory: Self::Inode<'_>, name: &[u8]) -> Option<u32>;

    /// Passes the entries from a position on to the visitor, until it stops. An entry keeps its
    /// position as long as it exists.
    fn entries(&self, directory: Self::Inode<'_>, position: u64, visit: &mut Visitor<'_>);

    /// When a directory was last changed, if an entry gives a time more recent than its node with
    /// this version and [`told`](Catalog::told) does not know it.
    fn newest_entry_time(
        &self,
        inode: Self::Inode<'_>,
        version: u32,
    ) -> Result<Option<u32>, FsError>;
}

/// A mount's knowledge of content and extended attributes.
pub(crate) trait Content: Catalog {
    /// Passes on what the node stores besides attributes: a symlink's target, a device number.
    fn with_stored<R>(
        &self,
        inode: Self::Inode<'_>,
        told: &Told,
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, FsError>;

    /// Passes on the sources of a regular file's bytes between two offsets.
    fn with_stretches<R>(
        &self,
        inode: Self::Inode<'_>,
        told: &Told,
        range: Range<u32>,
        use_it: impl FnOnce(Stretches<'_>) -> R,
    ) -> Result<R, FsError>;

    /// The references of an inode to attributes, without removals.
    fn xrefs(&self, ino: u32) -> impl Iterator<Item = XrefRef>;

    /// The node of an attribute.
    fn xattr(&self, xid: u32) -> Option<XattrRef>;
}

/// The kind of file in a mode.
pub(crate) fn kind<F: Flash>(flash: &F, told: &Told) -> Result<FileKind, FsError> {
    FileKind::from_mode(told.attributes.mode).ok_or_else(|| {
        let place = told.node.map(|node| node::place(flash, node.address));
        let (structure, place) = ("mode of an inode node", place.unwrap_or_default());
        FsError::Damaged { structure, place, cause: Damage::Field("mode") }
    })
}

/// The time in the first of these directory entry nodes that has one: garbage collection writes
/// none if the directory's time was set by hand. A node that is damaged gives no time.
///
/// # Errors
/// If the flash cannot be read.
pub(crate) fn entry_time<F: Flash>(
    flash: &F,
    order: ByteOrder,
    entries: impl Iterator<Item = Address>,
) -> Result<Option<u32>, FsError> {
    for address in entries {
        let mut bytes = [0; Dirent::LEN];
        node::read(flash, address.offset(), &mut bytes)?;
        match Dirent::parse(&bytes, order) {
            Ok(Dirent { mctime: 0, .. }) => {}
            Ok(dirent) => return Ok(Some(dirent.mctime)),
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

fn seconds(value: u32) -> Timestamp {
    Timestamp { seconds: i64::from(value), nanoseconds: 0 }
}

/// The attribute of one name, of which there may be several instances.
#[derive(Debug, Default)]
pub(crate) struct FoundXattr {
    /// The value to which the newest reference leads.
    pub(crate) value: Option<Vec<u8>>,
    /// Numbers of all attributes of that name.
    pub(crate) xids: Vec<u32>,
}

/// A mounted file system, read.
pub(crate) struct View<'c, C>(pub(crate) &'c C);

impl<'c, C: Names + Content> View<'c, C> {
    pub(crate) fn inode(&self, inode: Inode) -> Result<C::Inode<'c>, FsError> {
        let ino = u32::try_from(inode.0).map_err(|_| FsError::NotFound)?;
        self.0.inode(ino).ok_or(FsError::NotFound)
    }

    /// Returns an error for anything but a directory. If a directory's node is damaged, its entries
    /// are shown all the same.
    pub(crate) fn check_directory(&self, inode: C::Inode<'c>) -> Result<(), FsError> {
        match self.0.is_directory(inode) {
            Ok(true) => Ok(()),
            Ok(false) => Err(FsError::NotDirectory),
            Err(_) if self.0.ties(inode).has_entries => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The node that determines a regular file's attributes.
    pub(crate) fn regular(&self, inode: C::Inode<'c>) -> Result<Told, FsError> {
        let told = self.0.told(inode)?;
        match kind(self.0.flash(), &told)? {
            FileKind::Regular => Ok(told),
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::NoContent),
        }
    }

    pub(crate) fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        let directory = self.inode(directory)?;
        self.check_directory(directory)?;
        let ino = self.0.entry(directory, name).ok_or(FsError::NotFound)?;
        Ok(Inode(u64::from(ino)))
    }

    pub(crate) fn attributes(&self, inode: Inode) -> Result<vfs::Attributes, FsError> {
        let found = self.inode(inode)?;
        let told = self.0.told(found)?;
        let kind = kind(self.0.flash(), &told)?;
        let ties = self.0.ties(found);
        let own = &told.attributes;
        let is_root = ties.ino == ROOT_INO;
        let (mut modified, mut changed) = (own.mtime, own.ctime);
        if let (FileKind::Directory, Some(node)) = (kind, told.node)
            && let Some(time) = self.0.newest_entry_time(found, node.version)?
        {
            (modified, changed) = (time, time);
        }
        let device = match kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => self.device(found, &told)?,
            _ => DeviceNumber::default(),
        };
        Ok(vfs::Attributes {
            inode,
            kind,
            permissions: (own.mode & 0o7777) as u16,
            links: match kind {
                // Linux counts one more for the root.
                FileKind::Directory if is_root => 3 + ties.subdirectories,
                FileKind::Directory if ties.names > 0 => 2 + ties.subdirectories,
                _ => ties.names,
            },
            owner: u32::from(own.uid),
            group: u32::from(own.gid),
            size: u64::from(own.size),
            blocks: u64::from(own.size).div_ceil(512),
            accessed: seconds(own.atime),
            modified: seconds(modified),
            changed: seconds(changed),
            device,
            flags: FileFlags::default(),
        })
    }

    fn device(&self, inode: C::Inode<'c>, told: &Told) -> Result<DeviceNumber, FsError> {
        let order = self.0.order();
        match self.0.with_stored(inode, told, |stored| order.parse_device(stored))? {
            Some(DeviceData::Old(number)) => Ok(DeviceNumber::from_old(number)),
            Some(DeviceData::New(number)) => Ok(DeviceNumber::from_new(number)),
            None => {
                let place = told.node.map(|node| node::place(self.0.flash(), node.address));
                let place = place.unwrap_or_default();
                let cause = Damage::Field("device number");
                Err(FsError::Damaged { structure: "device number", place, cause })
            }
        }
    }

    pub(crate) fn list(
        &self,
        directory: Inode,
        position: u64,
        visit: &mut Visitor<'_>,
    ) -> Result<(), FsError> {
        let directory = self.inode(directory)?;
        self.check_directory(directory)?;
        self.0.entries(directory, position, visit);
        Ok(())
    }

    pub(crate) fn read(
        &self,
        inode: Inode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        let found = self.inode(inode)?;
        let told = self.0.told(found)?;
        match kind(self.0.flash(), &told)? {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            FileKind::Symlink => {
                return self.0.with_stored(found, &told, |target| {
                    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(target.len());
                    let len = buffer.len().min(target.len() - start);
                    buffer[..len].copy_from_slice(&target[start..start + len]);
                    len
                });
            }
            _ => return Err(FsError::NoContent),
        }
        let size = u64::from(told.attributes.size);
        let Some(left) = size.checked_sub(offset).filter(|&left| left > 0) else { return Ok(0) };
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.read_content(found, &told, offset as u32, &mut buffer[..len])
    }

    /// Reads a regular file from `offset` to the end of `buffer`, which must lie within the file.
    /// Returns the number of bytes before something damaged, or the error if there are none.
    pub(crate) fn read_content(
        &self,
        inode: C::Inode<'c>,
        told: &Told,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        let range = offset..offset + buffer.len() as u32;
        self.0.with_stretches(inode, told, range, |stretches| {
            self.read_stretches(stretches, offset, buffer)
        })?
    }

    fn read_stretches(
        &self,
        stretches: Stretches<'_>,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        let flash = self.0.flash();
        let is_lossy = stretches.has_lost_nodes || self.0.may_miss_nodes();
        let mut reader = Reader::new(flash, self.0.order());
        let end = offset + buffer.len() as u32;
        let mut at = offset;
        let mut stretches = stretches.each.peekable();
        while at < end {
            let next = stretches.peek().filter(|stretch| stretch.start < end);
            let to = (at - offset) as usize;
            let result = match next {
                Some(stretch) if stretch.start <= at => {
                    let stop = stretch.end.min(end);
                    let output = &mut buffer[to..to + (stop - at) as usize];
                    let result = match stretch.source {
                        Source::Hole => {
                            output.fill(0);
                            Ok(())
                        }
                        Source::Data(node, start) => reader.data(node, at - start, output),
                        Source::Damaged(address) => Err(FsError::Damaged {
                            structure: "inode data",
                            place: node::place(flash, address),
                            cause: Damage::Checksum,
                        }),
                    };
                    stretches.next();
                    result.map(|()| stop)
                }
                _ if is_lossy => Err(FsError::Damaged {
                    structure: "inode node that is lost",
                    place: Default::default(),
                    cause: Damage::Missing,
                }),
                _ => {
                    let stop = next.map_or(end, |stretch| stretch.start);
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

    pub(crate) fn next_data(
        &self,
        inode: Inode,
        offset: u64,
    ) -> Result<Option<Range<u64>>, FsError> {
        let found = self.inode(inode)?;
        let told = self.regular(found)?;
        let size = told.attributes.size;
        let Some(offset) = u32::try_from(offset).ok().filter(|&offset| offset < size) else {
            return Ok(None);
        };
        self.0.with_stretches(found, &told, offset..size, |stretches| {
            if stretches.has_lost_nodes || self.0.may_miss_nodes() {
                return Some(u64::from(offset)..u64::from(size));
            }
            let mut data = stretches.each.filter(|stretch| stretch.source != Source::Hole);
            let first = data.next()?;
            let mut end = first.end;
            for stretch in data {
                if stretch.start != end {
                    break;
                }
                end = stretch.end;
            }
            Some(u64::from(first.start.max(offset))..u64::from(end.min(size)))
        })
    }

    /// The attribute to which a reference leads; `None` if its namespace is unknown.
    pub(crate) fn attribute(&self, xref: &XrefRef) -> Result<Option<Attribute>, FsError> {
        let Some(found) = self.0.xattr(xref.xid) else {
            let place = node::place(self.0.flash(), xref.address);
            let structure = "reference to a lost attribute";
            return Err(FsError::Damaged { structure, place, cause: Damage::Missing });
        };
        read_attribute(self.0.flash(), self.0.order(), &found)
    }

    /// The references of an inode to attributes, without those that lead to nothing although no
    /// node is missed: Linux leaves them behind when it replaces an attribute, and drops them when
    /// it mounts.
    fn references(&self, ino: u32) -> impl Iterator<Item = XrefRef> {
        let is_left = |xref: &XrefRef| self.0.xattr(xref.xid).is_none();
        self.0.xrefs(ino).filter(move |xref| self.0.may_miss_nodes() || !is_left(xref))
    }

    /// Looks up the attribute `name`; of several references to that name the newest is valid.
    pub(crate) fn find_xattr(&self, ino: u32, name: &[u8]) -> Result<FoundXattr, FsError> {
        let mut found = FoundXattr::default();
        let mut newest = 0;
        let mut failed = None;
        for xref in self.references(ino) {
            match self.attribute(&xref) {
                Ok(Some(xattr)) if xattr.name == name => {
                    found.xids.push(xref.xid);
                    if found.value.is_none() || xref.xseqno > newest {
                        newest = xref.xseqno;
                        found.value = Some(xattr.value);
                    }
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        // If none was found, the damaged one may have been it.
        match failed.filter(|_| found.value.is_none()) {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }

    pub(crate) fn list_xattrs(
        &self,
        inode: Inode,
        visit: &mut NameVisitor<'_>,
    ) -> Result<(), FsError> {
        let ino = self.0.ties(self.inode(inode)?).ino;
        let mut names: Vec<Vec<u8>> = vec![];
        let mut failed = Ok(());
        for xref in self.references(ino) {
            match self.attribute(&xref) {
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

    pub(crate) fn read_xattr(
        &self,
        inode: Inode,
        name: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        let ino = self.0.ties(self.inode(inode)?).ino;
        let value = self.find_xattr(ino, name)?.value.ok_or(FsError::NoAttribute)?;
        let to = buffer.get_mut(..value.len()).ok_or(FsError::BufferTooSmall(value.len()))?;
        to.copy_from_slice(&value);
        Ok(value.len())
    }
}
