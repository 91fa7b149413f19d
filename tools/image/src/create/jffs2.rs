//! A tree into JFFS2.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use flysch_api::vfs::{FileKind, NewFile};
use flysch_jffs2::create::{
    Content as Jffs2Content, Entry as Jffs2Entry, Jffs2Builder, Jffs2CreateError, Jffs2Options,
    Written,
};
use flysch_wire::jffs2::ROOT_INO;

use super::{Content, CreateError, Entry, Making, Tree, shown};

/// Which extended attributes are copied (`--with-xattr`, `--with-selinux`, `--with-posix-acl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrChoice {
    /// All of them.
    pub all: bool,
    /// `security.selinux`.
    pub selinux: bool,
    /// Access control lists.
    pub posix_acl: bool,
}

impl XattrChoice {
    /// Whether any are copied.
    pub fn any(self) -> bool {
        self.all || self.selinux || self.posix_acl
    }

    fn takes(self, name: &[u8]) -> bool {
        self.all
            || self.selinux && name == b"security.selinux"
            || self.posix_acl && name.starts_with(b"system.posix_acl_")
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct Jffs2Written {
    /// The image.
    pub written: Written,
    /// Parts of the tree that are not in it.
    pub notes: Vec<String>,
}

/// Writes bytes in sequence.
type Out<'o> = Box<dyn FnMut(&[u8]) -> io::Result<()> + 'o>;

/// Adds files to an image.
struct Filler<'t, 'o> {
    tree: &'t Tree,
    builder: Jffs2Builder<Out<'o>>,
    xattrs: XattrChoice,
    /// Inode of each file added; 0 for the others.
    inodes: Vec<u32>,
    notes: Vec<String>,
    making: &'t Making,
}

/// Writes a JFFS2 with the files of `tree` to `out`.
///
/// # Errors
/// [`CreateError`].
pub fn create_jffs2(
    tree: &Tree,
    (options, xattrs): (Jffs2Options, XattrChoice),
    out: &mut dyn Write,
    making: &Making,
) -> Result<Jffs2Written, CreateError> {
    let sink: Out<'_> = Box::new(|bytes| out.write_all(bytes));
    let builder = Jffs2Builder::new(options, sink).map_err(|error| explain("options", error))?;
    let inodes = vec![0; tree.entries.len()];
    let mut filler = Filler { tree, builder, xattrs, inodes, notes: Vec::new(), making };
    filler.run()?;
    let Filler { builder, notes, .. } = filler;
    let written = builder.finish().map_err(|error| explain("the end of the image", error))?;
    Ok(Jffs2Written { written, notes })
}

fn explain(path: &str, error: Jffs2CreateError<io::Error>) -> CreateError {
    match error {
        Jffs2CreateError::Output(error) => CreateError::Output(error),
        Jffs2CreateError::Content(error) => CreateError::source(path, error),
        Jffs2CreateError::ContentShort { .. } => {
            CreateError::source(path, io::Error::other("the file changed while it was read"))
        }
        Jffs2CreateError::Options(what) => CreateError::options(what.to_string()),
        full @ Jffs2CreateError::Full { .. } => CreateError::Room(full.into()),
        _ => CreateError::refused(path, error),
    }
}

impl<'t> Filler<'t, '_> {
    /// All names of a directory, then its subdirectories one after the other, in mkfs.jffs2's
    /// order.
    fn run(&mut self) -> Result<(), CreateError> {
        let tree = self.tree;
        self.inodes[0] = ROOT_INO;
        self.builder
            .root(&jffs2_entry(0, b"", &tree.entries[0]))
            .map_err(|error| explain("/", error))?;
        self.add_xattrs(0)?;
        let mut waiting = vec![0];
        while let Some(directory) = waiting.pop() {
            let mut directories = Vec::new();
            for (name, &file) in &tree.entries[directory].names {
                self.name(directory, name, file)?;
                if tree.entries[file].kind == FileKind::Directory {
                    directories.push(file);
                }
            }
            waiting.extend(directories.into_iter().rev());
        }
        Ok(())
    }

    fn name(&mut self, directory: usize, name: &[u8], file: usize) -> Result<(), CreateError> {
        let entry = &self.tree.entries[file];
        let new = jffs2_entry(self.inodes[directory], name, entry);
        let tree = self.tree;
        let explain = |error| explain(&tree.path_of(file), error);
        if self.inodes[file] != 0 {
            return self.builder.link(&new, self.inodes[file]).map_err(explain);
        }
        let (opened, start);
        let content = match &entry.content {
            Content::Path(path) => {
                opened = File::open(path).map_err(|it| CreateError::source(path.display(), it))?;
                start = 0;
                Some(&opened)
            }
            Content::Stretch(file, at) => {
                start = *at;
                Some(&**file)
            }
            Content::None => {
                start = 0;
                None
            }
        };
        let mut at = 0;
        let mut read = |buffer: &mut [u8]| {
            let Some(file) = content else { return Ok(0) };
            let left = usize::try_from(entry.size - at).unwrap_or(usize::MAX);
            let length = left.min(buffer.len());
            let length = file.read_at(&mut buffer[..length], start + at)?;
            at += length as u64;
            Ok(length)
        };
        let regular = entry.kind == FileKind::Regular;
        let content = regular.then_some(Jffs2Content { size: entry.size, read: &mut read });
        self.inodes[file] = self.builder.add(&new, content).map_err(explain)?;
        self.making.add(entry.size);
        self.add_xattrs(file)
    }

    fn add_xattrs(&mut self, file: usize) -> Result<(), CreateError> {
        let tree = self.tree;
        for (name, value) in &tree.entries[file].xattrs {
            if !self.xattrs.takes(name) {
                continue;
            }
            match self.builder.xattr(self.inodes[file], name, value) {
                Err(Jffs2CreateError::Entry(why)) => {
                    let note = format!("attributes {} are left out: {why}", shown(name));
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                }
                other => other.map_err(|error| explain(&tree.path_of(file), error))?,
            }
        }
        Ok(())
    }
}

fn jffs2_entry<'a>(parent: u32, name: &'a [u8], entry: &'a Entry) -> Jffs2Entry<'a> {
    Jffs2Entry {
        parent,
        name,
        file: NewFile {
            kind: entry.kind,
            permissions: entry.permissions,
            owner: entry.owner,
            group: entry.group,
            device: entry.device,
            target: &entry.target,
        },
        accessed: entry.accessed,
        modified: entry.modified,
        changed: entry.changed,
    }
}
