//! What the traits offer on top of what a file system implements, over one that gives and takes
//! little at a time.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

/// Bytes per call of `read` and `write`.
const FEW: usize = 3;

/// Files by inode, the root first.
#[derive(Default)]
struct Tiny {
    files: Vec<File>,
    /// Bytes that still find space.
    free: usize,
    /// What `attributes` claims instead of the size.
    claims: Option<u64>,
    /// Reads that begin at or behind this fail.
    damaged_from: Option<u64>,
    reads: Cell<usize>,
}

struct File {
    kind: FileKind,
    content: Vec<u8>,
    names: Vec<(&'static [u8], Inode)>,
}

impl Tiny {
    fn new() -> Self {
        let mut fs = Self { free: 1 << 20, ..Self::default() };
        fs.files.push(File { kind: FileKind::Directory, content: vec![], names: vec![] });
        fs
    }

    fn add(&mut self, at: Inode, name: &'static [u8], kind: FileKind, content: &[u8]) -> Inode {
        let inode = Inode(self.files.len() as u64);
        self.files[at.0 as usize].names.push((name, inode));
        self.files.push(File { kind, content: content.to_vec(), names: vec![] });
        inode
    }

    fn file(&self, inode: Inode) -> Result<&File, FsError> {
        self.files.get(inode.0 as usize).ok_or(FsError::NotFound)
    }
}

const ROOT: Inode = Inode(0);
const NOW: Timestamp = Timestamp { seconds: 0, nanoseconds: 0 };

impl FileSystem for Tiny {
    fn statistics(&self) -> Statistics {
        Statistics {
            format: "tiny",
            root: ROOT,
            block_size: 1,
            blocks: 0,
            blocks_free: self.free as u64,
            files: None,
            name_max: 255,
        }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        let directory = self.file(directory)?;
        if directory.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        let found = directory.names.iter().find(|(other, _)| *other == name);
        found.map(|&(_, inode)| inode).ok_or(FsError::NotFound)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        let file = self.file(inode)?;
        Ok(Attributes {
            inode,
            kind: file.kind,
            permissions: 0o644,
            links: 1,
            owner: 0,
            group: 0,
            size: self.claims.unwrap_or(file.content.len() as u64),
            blocks: 0,
            accessed: NOW,
            modified: NOW,
            changed: NOW,
            device: DeviceNumber::default(),
            flags: FileFlags::default(),
        })
    }

    fn list(&self, _: Inode, _: u64, _: &mut Visitor<'_>) -> Result<(), FsError> {
        unreachable!()
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        self.reads.set(self.reads.get() + 1);
        if self.damaged_from.is_some_and(|from| offset >= from) {
            return Err(FsError::Medium { place: Place::default(), source: FlashError::PowerLost });
        }
        let content = &self.file(inode)?.content;
        let rest = content.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len()).min(FEW);
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn list_xattrs(&self, _: Inode, _: &mut NameVisitor<'_>) -> Result<(), FsError> {
        unreachable!()
    }

    fn read_xattr(&self, _: Inode, _: &[u8], _: &mut [u8]) -> Result<usize, FsError> {
        unreachable!()
    }
}

impl FileSystemMut for Tiny {
    fn create(
        &mut self,
        _: Inode,
        _: &[u8],
        _: &NewFile<'_>,
        _: Timestamp,
    ) -> Result<Inode, FsError> {
        unreachable!()
    }

    fn link(&mut self, _: Inode, _: Inode, _: &[u8], _: Timestamp) -> Result<(), FsError> {
        unreachable!()
    }

    fn remove(&mut self, _: Inode, _: &[u8], _: Timestamp) -> Result<(), FsError> {
        unreachable!()
    }

    fn rename(
        &mut self,
        _: (Inode, &[u8]),
        _: (Inode, &[u8]),
        _: Rename,
        _: Timestamp,
    ) -> Result<(), FsError> {
        unreachable!()
    }

    fn set_attributes(&mut self, _: Inode, _: &Changes, _: Timestamp) -> Result<(), FsError> {
        unreachable!()
    }

    fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        _: Timestamp,
    ) -> Result<usize, FsError> {
        let len = data.len().min(FEW).min(self.free);
        if len == 0 {
            return Err(FsError::NoSpace);
        }
        self.free -= len;
        let content = &mut self.files[inode.0 as usize].content;
        content.resize(content.len().max(offset as usize + len), 0);
        content[offset as usize..offset as usize + len].copy_from_slice(&data[..len]);
        Ok(len)
    }

    fn set_xattr(
        &mut self,
        _: Inode,
        _: &[u8],
        _: XattrChange<'_>,
        _: Timestamp,
    ) -> Result<(), FsError> {
        unreachable!()
    }

    fn sync(&mut self, _: Option<Inode>) -> Result<(), FsError> {
        unreachable!()
    }

    fn forget(&mut self, _: Inode) -> Result<(), FsError> {
        unreachable!()
    }
}

#[test]
fn all_is_written_or_an_error_says_that_it_was_not() {
    let mut fs = Tiny::new();
    let file = fs.add(ROOT, b"file", FileKind::Regular, b"");
    fs.write_all(file, 2, b"0123456789", NOW).unwrap();
    assert_eq!(fs.files[1].content, b"\0\x000123456789");
    fs.free = 5;
    assert_eq!(fs.write_all(file, 0, b"abcdefgh", NOW), Err(FsError::NoSpace));
    assert_eq!(fs.files[1].content, b"abcde3456789", "the beginning is there");
    assert_eq!(fs.write_all(file, 0, b"", NOW), Ok(()));
}

#[test]
fn reads_go_on_until_the_end() {
    let mut fs = Tiny::new();
    let file = fs.add(ROOT, b"file", FileKind::Regular, b"0123456789");
    let mut buffer = [0; 8];
    assert_eq!((fs.read_full(file, 1, &mut buffer), &buffer), (Ok(8), b"12345678"));
    assert_eq!((fs.read_full(file, 6, &mut buffer), &buffer[..4]), (Ok(4), &b"6789"[..]));
    assert_eq!(fs.read_full(file, 10, &mut buffer), Ok(0));
    assert_eq!(fs.read_all(file, 10).unwrap(), b"0123456789");
    let long: Vec<u8> = (0..(64 << 10) + 3).map(|n| (n % 251) as u8).collect();
    let longer = fs.add(ROOT, b"longer", FileKind::Regular, &long);
    assert!(fs.read_all(longer, long.len()).unwrap() == long);
    fs.damaged_from = Some(6);
    assert_eq!(fs.read(file, 3, &mut buffer), Ok(3));
    let failed = FsError::Medium { place: Place::default(), source: FlashError::PowerLost };
    assert_eq!(fs.read_full(file, 0, &mut buffer), Err(failed));
    assert_eq!(fs.read_all(file, 10), Err(failed));
}

#[test]
fn a_size_that_is_a_lie_costs_nothing() {
    let mut fs = Tiny::new();
    let file = fs.add(ROOT, b"file", FileKind::Regular, b"0123456789");
    assert_eq!(fs.read_all(file, 9), Err(FsError::BufferTooSmall(10)));
    fs.claims = Some(u64::MAX);
    assert_eq!(fs.read_all(file, 1 << 20), Err(FsError::BufferTooSmall(usize::MAX)));
    // Whoever has no limit gets an error as well, and not an abort.
    assert_eq!(fs.read_all(file, usize::MAX), Err(FsError::BufferTooSmall(usize::MAX)));
    assert_eq!(fs.reads.get(), 0);
    fs.claims = Some(4096);
    assert_eq!(fs.read_all(file, 4096).unwrap(), b"0123456789");
    assert_eq!(fs.read_all(ROOT, 9999), Err(FsError::IsDirectory));
    let fifo = fs.add(ROOT, b"fifo", FileKind::Fifo, b"");
    assert_eq!(fs.read_all(fifo, 9999), Err(FsError::NoContent));
}

#[test]
fn paths_lead_where_open_would_find_a_file() {
    let mut fs = Tiny::new();
    let usr = fs.add(ROOT, b"usr", FileKind::Directory, b"");
    let lib = fs.add(usr, b"lib", FileKind::Directory, b"");
    let file = fs.add(lib, b"file", FileKind::Regular, b"");
    fs.add(ROOT, b"lib", FileKind::Symlink, b"usr/lib");
    fs.add(usr, b"up", FileKind::Symlink, b"../../../lib/");
    fs.add(usr, b"absolute", FileKind::Symlink, b"/usr/../lib/file");
    fs.add(ROOT, b"dotted", FileKind::Symlink, b"./usr/lib/file/");
    for path in ["/usr/lib/file", "lib/file", "//usr/up//file", "usr/absolute", "lib/../lib/file"] {
        assert_eq!(fs.resolve(path.as_bytes()), Ok(file), "{path}");
    }
    for path in ["/lib", "/lib/", "/lib/.", "usr/up", "usr/./lib/"] {
        assert_eq!(fs.resolve(path.as_bytes()), Ok(lib), "{path}");
    }
    for path in ["/", "//", ".", "..", "/lib/../..", "../../."] {
        assert_eq!(fs.resolve(path.as_bytes()), Ok(ROOT), "{path}");
    }
    for path in ["/lib/file/", "/lib/file/.", "/lib/file/..", "/lib/file/x", "/dotted"] {
        assert_eq!(fs.resolve(path.as_bytes()), Err(FsError::NotDirectory), "{path}");
    }
    for path in ["", "/none", "/lib/none/file", "usr/lib/lib"] {
        assert_eq!(fs.resolve(path.as_bytes()), Err(FsError::NotFound), "{path}");
    }
    assert_eq!((&fs as &dyn FileSystem).resolve(b"/lib/file"), Ok(file));
}

#[test]
fn symlinks_without_end_do_end() {
    let mut fs = Tiny::new();
    let ends = fs.add(ROOT, b"0", FileKind::Regular, b"");
    fs.add(ROOT, b"loop", FileKind::Symlink, b"./loop");
    fs.add(ROOT, b"grows", FileKind::Symlink, &b"grows/".repeat(600));
    fs.add(ROOT, b"empty", FileKind::Symlink, b"");
    fs.add(ROOT, b"longest", FileKind::Symlink, &[&b"/".repeat(4095)[..], b"0"].concat());
    fs.add(ROOT, b"longer", FileKind::Symlink, &[&b"/".repeat(4096)[..], b"0"].concat());
    let endless = Err(FsError::Invalid("too many symlinks lead to each other"));
    assert_eq!((fs.resolve(b"loop"), fs.resolve(b"grows")), (endless, endless));
    assert_eq!(fs.resolve(b"empty"), Err(FsError::NotFound));
    assert_eq!(
        (fs.resolve(b"longest"), fs.resolve(b"longer")),
        (Ok(ends), Err(FsError::NameTooLong))
    );
    let path = b"loop/../".repeat(2);
    assert_eq!(fs.resolve(&path), endless);
    fs.add(ROOT, b"here", FileKind::Symlink, b".");
    assert_eq!(fs.resolve(&[&b"here/".repeat(40)[..], b"0"].concat()), Ok(ends));
    assert_eq!(fs.resolve(&b"here/".repeat(41)), endless);
}
