//! Files without a path, shown in a separate directory.
//!
//! Linux does not show them: in UBIFS their names were destroyed, in JFFS2 most were deleted and
//! not yet collected. They are shown on request, to save what can be saved.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use flysch_api::vfs::{
    Attributes, DeviceNumber, Entry, FileFlags, FileKind, FileSystem, FsError, Inode, NameVisitor,
    Statistics, Timestamp, Visitor,
};

/// Name of the directory, if the root has no such name already.
const NAME: &str = "lost+found";
/// Its inode; no format has numbers this high.
const DIRECTORY: Inode = Inode(u64::MAX);
/// Its position in the listing of the root: behind all positions of a format.
const POSITION: u64 = u64::MAX >> 1;

/// A file system with its unreachable files in `lost+found`, each named by its inode number as
/// file system checkers do (`#65`).
pub(crate) struct WithLost {
    fs: Arc<dyn FileSystem + Send + Sync>,
    root: Inode,
    name: Vec<u8>,
    lost: Vec<(Inode, FileKind)>,
}

impl WithLost {
    pub(crate) fn new(fs: Arc<dyn FileSystem + Send + Sync>, lost: Vec<(Inode, FileKind)>) -> Self {
        let root = fs.statistics().root;
        let names = (1u32..).map(|number| match number {
            1 => NAME.to_string(),
            _ => format!("{NAME}-{number}"),
        });
        let is_free = |name: &String| fs.lookup(root, name.as_bytes()) == Err(FsError::NotFound);
        let name = names.take(1000).find(is_free).unwrap_or_default().into_bytes();
        // A root that cannot be read at all gets the name it should have.
        let name = if name.is_empty() { NAME.as_bytes().to_vec() } else { name };
        Self { fs, root, name, lost }
    }

    fn entry_name(inode: Inode) -> String {
        format!("#{}", inode.0)
    }

    fn directory(&self) -> Attributes {
        let directories = self.lost.iter().filter(|(_, kind)| *kind == FileKind::Directory).count();
        let never = Timestamp { seconds: 0, nanoseconds: 0 };
        Attributes {
            inode: DIRECTORY,
            kind: FileKind::Directory,
            permissions: 0o700,
            owner: 0,
            group: 0,
            links: 2 + directories as u32,
            size: 0,
            blocks: 0,
            accessed: never,
            modified: never,
            changed: never,
            device: DeviceNumber::default(),
            flags: FileFlags::default(),
        }
    }

    /// Number of links of a file with one name; for a directory also its own `.`, and `..` of each
    /// subdirectory.
    fn links(&self, inode: Inode, kind: FileKind) -> Result<u32, FsError> {
        if kind != FileKind::Directory {
            return Ok(1);
        }
        let mut links = 2_u32;
        self.fs.list(inode, 0, &mut |entry| {
            links = links.saturating_add((entry.kind == FileKind::Directory).into());
            ControlFlow::Continue(())
        })?;
        Ok(links)
    }

    fn list_lost(&self, position: u64, visit: &mut Visitor<'_>) {
        let first = usize::try_from(position).unwrap_or(usize::MAX).min(self.lost.len());
        for (at, &(inode, kind)) in self.lost.iter().enumerate().skip(first) {
            let name = Self::entry_name(inode);
            let entry = Entry { name: name.as_bytes(), inode, kind, position: at as u64 + 1 };
            if visit(entry).is_break() {
                return;
            }
        }
    }
}

impl FileSystem for WithLost {
    fn statistics(&self) -> Statistics {
        self.fs.statistics()
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        if directory == DIRECTORY {
            let found = self.lost.iter().find(|file| Self::entry_name(file.0).as_bytes() == name);
            return found.map(|file| file.0).ok_or(FsError::NotFound);
        }
        if directory == self.root && name == self.name {
            return Ok(DIRECTORY);
        }
        self.fs.lookup(directory, name)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        if inode == DIRECTORY {
            return Ok(self.directory());
        }
        let mut attributes = self.fs.attributes(inode)?;
        if inode == self.root {
            attributes.links = attributes.links.saturating_add(1);
        } else if (attributes.links == 0 || attributes.kind != FileKind::Directory)
            && self.lost.iter().any(|file| file.0 == inode)
        {
            // The names that it had are gone; it has this one.
            attributes.links = self.links(inode, attributes.kind)?;
        }
        Ok(attributes)
    }

    fn list(
        &self,
        directory: Inode,
        position: u64,
        visit: &mut Visitor<'_>,
    ) -> Result<(), FsError> {
        if directory == DIRECTORY {
            self.list_lost(position, visit);
            return Ok(());
        }
        if directory != self.root {
            return self.fs.list(directory, position, visit);
        }
        if position >= POSITION {
            return Ok(());
        }
        let mut has_stopped = false;
        let listed = self.fs.list(directory, position, &mut |entry| {
            let flow = visit(entry);
            has_stopped = flow == ControlFlow::Break(());
            flow
        });
        if !has_stopped {
            let (name, kind) = (&self.name[..], FileKind::Directory);
            let _ = visit(Entry { name, inode: DIRECTORY, kind, position: POSITION });
        }
        listed
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        if inode == DIRECTORY {
            return Err(FsError::IsDirectory);
        }
        self.fs.read(inode, offset, buffer)
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, FsError> {
        if inode == DIRECTORY {
            return Err(FsError::IsDirectory);
        }
        self.fs.next_data(inode, offset)
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), FsError> {
        if inode == DIRECTORY { Ok(()) } else { self.fs.list_xattrs(inode, visit) }
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, FsError> {
        if inode == DIRECTORY {
            return Err(FsError::NoAttribute);
        }
        self.fs.read_xattr(inode, name, buffer)
    }

    fn has_access_lists(&self) -> bool {
        self.fs.has_access_lists()
    }
}
