//! Puts files from outside into an image.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use flysch_api::vfs::{
    Changes, DeviceNumber, FileKind, FsError, Inode, NewFile, Timestamp, XattrChange,
};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::acl;

use super::{EditError, Editor, at, refused};

/// Bytes copied at once.
const PIECE: usize = 1 << 20;
/// Longest value of an extended attribute in Linux, bytes.
const VALUE_MAX: usize = 64 << 10;
/// Deepest tree that is accepted.
const DEPTH_MAX: usize = 512;

/// Attributes of the files put into the image.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    /// Owner; default: that of the file outside.
    pub owner: Option<u32>,
    /// Group; default: that of the file outside.
    pub group: Option<u32>,
    /// Permissions of files that are not directories; default: those outside.
    pub permissions: Option<u16>,
}

/// The amount put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Number of files, directories and others.
    pub files: u64,
    /// Bytes of content, not counting holes.
    pub bytes: u64,
    /// Extended attributes that the format cannot hold.
    pub without_xattr: u64,
}

/// The destination of a file in the image.
struct Place<'p> {
    directory: Inode,
    name: &'p [u8],
    /// The same as a path, for messages.
    path: &'p [u8],
}

/// One call of [`Editor::put`].
struct Run<'e, 'f> {
    editor: &'e mut Editor<'f>,
    options: PutOptions,
    /// Files with several names found so far, by device and inode.
    links: HashMap<(u64, u64), Inode>,
    put: Put,
}

impl Editor<'_> {
    /// Puts the file or tree at `source` into the image, with owners, permissions, times, links,
    /// devices, extended attributes and holes: into `path` if that is a directory, otherwise as
    /// `path`. An existing file gets new content; directories are merged, and `source` with a final
    /// `/.` is merged with `path` itself.
    ///
    /// # Errors
    /// At the first file that cannot be read or stored; files put before remain.
    pub fn put(
        &mut self,
        source: &Path,
        path: &[u8],
        options: PutOptions,
    ) -> Result<Put, EditError> {
        let mut run = Run { editor: self, options, links: HashMap::new(), put: Put::default() };
        let bytes = source.as_os_str().as_bytes();
        if bytes == b"." || bytes.ends_with(b"/.") {
            run.merge(source, path)?;
            return Ok(run.put);
        }
        let name = source.file_name().map(OsStrExt::as_bytes);
        if path.ends_with(b"/") && run.editor.directory(path).is_none() && !source.is_dir() {
            return Err(refused(path, "there is no such directory"));
        }
        let into = match (run.editor.directory(path), name) {
            (Some(_), Some(name)) => [path, b"/", name].concat(),
            _ => path.to_vec(),
        };
        let (directory, name) = run.editor.place(&into)?;
        let place = Place { directory, name, path: &into };
        run.file(source, &place, 0)?;
        Ok(run.put)
    }

    /// Puts the contents of `reader` into the file at `path`.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_content(
        &mut self,
        reader: &mut dyn Read,
        path: &[u8],
        options: PutOptions,
    ) -> Result<Put, EditError> {
        let (directory, name) = self.place(path)?;
        Self::may_be_called(path, FileKind::Regular)?;
        // A file that is there stays whose it was, as with the shell's `>`.
        let there = self.fs.lookup(directory, name).and_then(|inode| self.fs.attributes(inode));
        let there = there.ok().filter(|there| there.kind == FileKind::Regular);
        let is_new = there.is_none();
        let old = there.map_or((0, 0, 0o644), |it| (it.owner, it.group, it.permissions));
        let (owner, group) = (options.owner.unwrap_or(old.0), options.group.unwrap_or(old.1));
        let permissions = options.permissions.unwrap_or(old.2);
        let mut run = Run { editor: self, options, links: HashMap::new(), put: Put::default() };
        let file = NewFile {
            kind: FileKind::Regular,
            permissions,
            owner,
            group,
            device: DeviceNumber::default(),
            target: &[],
        };
        let place = Place { directory, name, path };
        let inode = match is_new && options.group.is_none() {
            true => run.editor.create_in(directory, name, &file, path)?,
            false => run.create(&place, &file)?,
        };
        let mut piece = vec![0; PIECE];
        let mut offset = 0;
        loop {
            let len = match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(outside(Path::new("standard input"))(error)),
            };
            run.write(inode, offset, &piece[..len], path)?;
            offset += len as u64;
        }
        Ok(run.put)
    }
}

/// The approximate number of bytes that [`Editor::put`] would put for a file or tree; unreadable
/// files are not counted.
pub fn tree_bytes(source: &Path) -> u64 {
    /// The space taken by a file without content.
    const FILE: u64 = 1024;
    let Ok(metadata) = source.symlink_metadata() else { return 0 };
    if !metadata.is_dir() {
        return FILE + metadata.blocks().saturating_mul(512).min(metadata.len());
    }
    let entries = std::fs::read_dir(source).into_iter().flatten().flatten();
    entries.fold(FILE, |sum, entry| sum.saturating_add(tree_bytes(&entry.path())))
}

fn outside(path: &Path) -> impl Fn(io::Error) -> EditError + '_ {
    move |error| EditError::Source { path: path.to_path_buf(), error }
}

fn kind(metadata: &Metadata) -> FileKind {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_char_device() => FileKind::CharacterDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () => FileKind::Regular,
    }
}

fn time(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
}

impl Run<'_, '_> {
    /// Puts the contents of a directory into another, which gets its attributes.
    fn merge(&mut self, source: &Path, path: &[u8]) -> Result<(), EditError> {
        let metadata = source.symlink_metadata().map_err(outside(source))?;
        let Some(inode) = self.editor.directory(path) else {
            return Err(refused(path, "there is no such directory"));
        };
        let changes = Changes {
            permissions: Some((metadata.mode() & 0o7777) as u16),
            owner: Some(self.options.owner.unwrap_or(metadata.uid())),
            group: Some(self.options.group.unwrap_or(metadata.gid())),
            ..Changes::default()
        };
        self.editor.set(inode, path, &changes, false)?;
        self.put.files += 1;
        self.below(source, inode, path, 0)?;
        self.xattrs(source, inode, path)?;
        self.times(&metadata, inode, path)
    }

    fn times(&mut self, of: &Metadata, inode: Inode, path: &[u8]) -> Result<(), EditError> {
        let changes = Changes {
            accessed: Some(time(of.atime(), of.atime_nsec())),
            modified: Some(time(of.mtime(), of.mtime_nsec())),
            ..Changes::default()
        };
        let now = self.editor.now;
        self.editor.fs.set_attributes(inode, &changes, now).map_err(at(path))
    }

    fn file(&mut self, source: &Path, place: &Place<'_>, depth: usize) -> Result<(), EditError> {
        let path = place.path;
        let metadata = source.symlink_metadata().map_err(outside(source))?;
        let identity = (metadata.dev(), metadata.ino());
        let is_shared = metadata.nlink() > 1 && !metadata.is_dir();
        if let Some(&inode) = self.links.get(&identity).filter(|_| is_shared) {
            return self.link(inode, place);
        }
        let kind = kind(&metadata);
        let target = match kind {
            FileKind::Symlink => std::fs::read_link(source).map_err(outside(source))?,
            _ => Default::default(),
        };
        let owner = self.options.owner.unwrap_or(metadata.uid());
        let group = self.options.group.unwrap_or(metadata.gid());
        let own = (metadata.mode() & 0o7777) as u16;
        let is_file = !matches!(kind, FileKind::Directory | FileKind::Symlink);
        let device = match kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                DeviceNumber::from_huge(metadata.rdev())
            }
            _ => DeviceNumber::default(),
        };
        let file = NewFile {
            kind,
            permissions: self.options.permissions.filter(|_| is_file).unwrap_or(own),
            owner,
            group,
            device,
            target: target.as_os_str().as_bytes(),
        };
        let inode = self.create(place, &file)?;
        self.put.files += 1;
        if is_shared {
            self.links.insert(identity, inode);
        }
        match kind {
            FileKind::Regular => self.content(source, inode, metadata.len(), path)?,
            FileKind::Directory => self.below(source, inode, path, depth)?,
            _ => {}
        }
        self.xattrs(source, inode, path)?;
        self.times(&metadata, inode, path)
    }

    /// Creates a file. An existing one is used if it is of the same type.
    fn create(&mut self, place: &Place<'_>, file: &NewFile<'_>) -> Result<Inode, EditError> {
        let Place { directory, name, path } = *place;
        let now = self.editor.now;
        let there = match self.editor.fs.lookup(directory, name) {
            Err(FsError::NotFound) => return self.new_file(place, file),
            other => other.map_err(at(path))?,
        };
        let attributes = self.editor.fs.attributes(there).map_err(at(path))?;
        match (attributes.kind, file.kind) {
            (FileKind::Directory, FileKind::Directory) | (FileKind::Regular, FileKind::Regular) => {
                let changes = Changes {
                    permissions: Some(file.permissions),
                    owner: Some(file.owner),
                    group: Some(file.group),
                    size: (file.kind == FileKind::Regular).then_some(0),
                    ..Changes::default()
                };
                self.editor.set(there, path, &changes, false)?;
                Ok(there)
            }
            (FileKind::Directory, _) => Err(refused(path, "a directory is in the way")),
            (_, FileKind::Directory) => {
                Err(refused(path, "something other than a directory is in the way"))
            }
            _ => {
                let above = self.editor.attributes(directory, path)?;
                above.may_lose_name(&attributes).map_err(at(path))?;
                self.editor.fs.remove(directory, name, now).map_err(at(path))?;
                self.editor.fs.forget(there).map_err(at(path))?;
                self.new_file(place, file)
            }
        }
    }

    /// Creates a file with exactly the given owner, group and permissions: inheritance from the
    /// directory is corrected, as by `cp -a`.
    fn new_file(&mut self, place: &Place<'_>, file: &NewFile<'_>) -> Result<Inode, EditError> {
        let Place { directory, name, path } = *place;
        let above = self.editor.attributes(directory, path)?;
        above.may_gain_name().map_err(at(path))?;
        self.editor.fs.create(directory, name, file, self.editor.now).map_err(at(path))
    }

    fn link(&mut self, inode: Inode, place: &Place<'_>) -> Result<(), EditError> {
        let Place { directory, name, path } = *place;
        let now = self.editor.now;
        match self.editor.fs.lookup(directory, name) {
            Ok(there) if there == inode => return Ok(()),
            Ok(_) => self.editor.remove_in(directory, name, path, 0)?,
            Err(_) => {}
        }
        let above = self.editor.attributes(directory, path)?;
        above.may_gain_name().map_err(at(path))?;
        self.put.files += 1;
        self.editor.fs.link(inode, directory, name, now).map_err(at(path))
    }

    fn below(
        &mut self,
        source: &Path,
        inode: Inode,
        path: &[u8],
        depth: usize,
    ) -> Result<(), EditError> {
        if depth >= DEPTH_MAX {
            return Err(refused(path, "the tree is too deep"));
        }
        let entries = std::fs::read_dir(source).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut names: Vec<_> =
            entries.map_err(outside(source))?.iter().map(std::fs::DirEntry::file_name).collect();
        names.sort();
        for name in names {
            let path = [path, b"/", name.as_bytes()].concat();
            let place = Place { directory: inode, name: name.as_bytes(), path: &path };
            self.file(&source.join(&name), &place, depth + 1)?;
        }
        Ok(())
    }

    fn content(
        &mut self,
        source: &Path,
        inode: Inode,
        size: u64,
        path: &[u8],
    ) -> Result<(), EditError> {
        let file = File::open(source).map_err(outside(source))?;
        let mut piece = vec![0; PIECE];
        let mut offset = 0;
        while offset < size {
            // Where the source can tell, holes stay holes.
            let (start, end) = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
                Ok(start) => {
                    let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap_or(size);
                    (start, end.min(size))
                }
                Err(Errno::NXIO) => break,
                Err(_) => (offset, size),
            };
            offset = start;
            while offset < end {
                let len = PIECE.min((end - offset) as usize);
                let len = file.read_at(&mut piece[..len], offset).map_err(outside(source))?;
                if len == 0 {
                    let shrunk = io::Error::other("the file became shorter while it was read");
                    return Err(outside(source)(shrunk));
                }
                self.write(inode, offset, &piece[..len], path)?;
                offset += len as u64;
            }
        }
        let changes = Changes { size: Some(size), ..Changes::default() };
        let now = self.editor.now;
        let short = self.editor.fs.attributes(inode).map_err(at(path))?.size < size;
        match short {
            true => self.editor.fs.set_attributes(inode, &changes, now).map_err(at(path)),
            false => Ok(()),
        }
    }

    fn write(
        &mut self,
        inode: Inode,
        mut offset: u64,
        mut data: &[u8],
        path: &[u8],
    ) -> Result<(), EditError> {
        while !data.is_empty() {
            let now = self.editor.now;
            let len = self.editor.fs.write(inode, offset, data, now).map_err(at(path))?;
            let len = len.min(data.len());
            if len == 0 {
                return Err(at(path)(FsError::NoSpace));
            }
            data = &data[len..];
            offset += len as u64;
            self.put.bytes += len as u64;
        }
        Ok(())
    }

    fn xattrs(&mut self, source: &Path, inode: Inode, path: &[u8]) -> Result<(), EditError> {
        let fail = |error: Errno| outside(source)(error.into());
        let mut names = vec![0; VALUE_MAX];
        let len = match rustix::fs::llistxattr(source, &mut names[..]) {
            Err(Errno::NOTSUP) => return Ok(()),
            other => other.map_err(fail)?,
        };
        let mut value = vec![0; VALUE_MAX];
        for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let len = rustix::fs::lgetxattr(source, name, &mut value[..]).map_err(fail)?;
            let change = XattrChange::Set(&value[..len]);
            let now = self.editor.now;
            match self.editor.fs.set_xattr(inode, name, change, now) {
                Err(FsError::Unsupported(_) | FsError::Invalid(_)) => {
                    self.put.without_xattr += 1;
                    if name == acl::ACCESS {
                        self.leave_out_list(inode, &value[..len], path)?;
                    }
                }
                other => other.map_err(at(path))?,
            }
        }
        Ok(())
    }

    /// Gives the group of a file what its access control list gave it, which the format cannot
    /// hold.
    fn leave_out_list(&mut self, inode: Inode, list: &[u8], path: &[u8]) -> Result<(), EditError> {
        let there = self.editor.attributes(inode, path)?;
        // What the user asked for is no mask.
        if self.options.permissions.is_some() && there.kind != FileKind::Directory {
            return Ok(());
        }
        let permissions = Some(acl::permissions_without(there.permissions, list));
        let changes = Changes { permissions, ..Changes::default() };
        self.editor.set(inode, path, &changes, false)
    }
}
