//! A tar archive as the source.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flysch_api::vfs::{DeviceNumber, FileKind, Timestamp};

use super::tar_reader::{Member, Members};
use super::{Content, CreateError, Entry, Tree, TreeOptions, shown};

/// Reads the members of an archive.
struct Reader<'r> {
    tree: Tree,
    options: &'r TreeOptions,
    file: Arc<File>,
    /// Expanded content of sparse files, and its length so far.
    spool: Option<(Arc<File>, u64)>,
}

impl Tree {
    /// The tree in a tar archive: ustar, GNU or pax, with extended attributes (`--xattrs`), sparse
    /// files and hard links. Input that is not seekable, such as standard input, is copied to a
    /// temporary file.
    ///
    /// # Errors
    /// [`CreateError::Source`] for a broken archive; `name` is its name in errors.
    pub fn from_archive(
        name: &str,
        input: File,
        options: &TreeOptions,
    ) -> Result<Self, CreateError> {
        let fail = |cause| CreateError::source(name, cause);
        let file = Arc::new(seekable(input).map_err(fail)?);
        let time = Timestamp { seconds: options.latest.unwrap_or(0), nanoseconds: 0 };
        let mut reader =
            Reader { tree: Self::empty(time), options, file: file.clone(), spool: None };
        check_plain(&file).map_err(fail)?;
        let mut members = Members::new(&file).map_err(fail)?;
        while let Some(member) = members.next().map_err(fail)? {
            let place = format!("{name}: {}", shown(&member.path));
            reader.member(member, &place)?;
        }
        Ok(reader.tree)
    }
}

/// The archive itself, or a copy without a name if it is a pipe.
fn seekable(mut input: File) -> io::Result<File> {
    if input.metadata()?.is_file() && input.stream_position().is_ok() {
        return Ok(input);
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut input, &mut copy)?;
    copy.seek(SeekFrom::Start(0))?;
    Ok(copy)
}

/// Refuses what is not an archive: compressed ones, and the empty input from a pipe whose writer
/// failed.
fn check_plain(file: &File) -> io::Result<()> {
    let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let mut start = [0; 6];
    let length = file.metadata()?.len().min(start.len() as u64) as usize;
    if length == 0 {
        return refuse("the archive is empty".to_string());
    }
    file.read_exact_at(&mut start[..length], 0)?;
    let known: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh", "bzip2"),
        (b"\x04\x22\x4d\x18", "lz4"),
    ];
    match known.into_iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, tool)) => {
            refuse(format!("it is compressed: `{tool} -dc ARCHIVE | flysch ... --tar -`"))
        }
        None => Ok(()),
    }
}

impl Reader<'_> {
    fn member(&mut self, member: Member, place: &str) -> Result<(), CreateError> {
        let refuse = |why: String| CreateError::refused(place, why);
        let kind = match member.flag {
            b'0' => FileKind::Regular,
            b'1' => return self.hard_link(&member).map_err(refuse),
            b'2' => FileKind::Symlink,
            b'3' => FileKind::CharacterDevice,
            b'4' => FileKind::BlockDevice,
            b'5' => FileKind::Directory,
            b'6' => FileKind::Fifo,
            other => {
                let note = format!("members of type {:?} are left out", char::from(other));
                self.tree.note(note);
                return Ok(());
            }
        };
        let owners = match self.options.squash_owners {
            true => (0, 0),
            false => (member.owner, member.group),
        };
        let modified = member.modified;
        let times = self.options.times([
            member.accessed.unwrap_or(modified),
            modified,
            member.changed.unwrap_or(modified),
        ]);
        let mut new = Entry::new(kind, (member.mode & 0o7777) as u16, owners, times);
        match kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                let (major, minor) = member.device;
                new.device = DeviceNumber { major, minor };
            }
            FileKind::Symlink => new.target.clone_from(&member.link),
            FileKind::Regular => {
                self.content(&member, &mut new)
                    .map_err(|cause| CreateError::source(place, cause))?;
            }
            _ => {}
        }
        if !self.options.without_xattrs {
            new.xattrs = member.xattrs;
            new.xattrs.sort();
        }
        self.put(&member.path, new, times[1]).map_err(refuse)
    }

    /// Where the content is; that of sparse files is expanded first.
    fn content(&mut self, member: &Member, new: &mut Entry) -> io::Result<()> {
        new.size = member.size;
        if new.size == 0 {
            return Ok(());
        }
        let Some(stretches) = &member.stretches else {
            new.content = Content::Stretch(self.file.clone(), member.start);
            return Ok(());
        };
        let (spool, start) = match &self.spool {
            Some((spool, length)) => (spool.clone(), *length),
            None => (Arc::new(tempfile::tempfile()?), 0),
        };
        lay_out(&self.file, member.start, (stretches, member.size), (&spool, start))?;
        new.content = Content::Stretch(spool.clone(), start);
        self.spool = Some((spool, start + member.size));
        Ok(())
    }

    fn hard_link(&mut self, member: &Member) -> Result<(), String> {
        let Some(file) = self.tree.find(&member.link) else {
            return Err(format!(
                "a link to {}, which does not come before it",
                shown(&member.link)
            ));
        };
        if self.tree.entries[file].kind == FileKind::Directory {
            return Err(format!("a link to {}, which is a directory", shown(&member.link)));
        }
        let time = self.tree.entries[file].modified;
        let (directory, name) = self.tree.place(&member.path, time)?;
        if self.tree.entries[directory].names.get(name) == Some(&file) {
            return Ok(());
        }
        self.remove(directory, name)?;
        self.tree.link(directory, name, file);
        Ok(())
    }

    /// Adds a file; a later entry with the same path replaces an earlier one.
    fn put(&mut self, path: &[u8], new: Entry, time: Timestamp) -> Result<(), String> {
        let (directory, name) = self.tree.place(path, time)?;
        if name.is_empty() {
            return self.attributes_of(0, new);
        }
        if let Some(&there) = self.tree.entries[directory].names.get(name)
            && self.tree.entries[there].kind == FileKind::Directory
            && new.kind == FileKind::Directory
        {
            return self.attributes_of(there, new);
        }
        self.remove(directory, name)?;
        self.tree.add(directory, name, new);
        Ok(())
    }

    /// An existing directory gets its attributes.
    fn attributes_of(&mut self, at: usize, new: Entry) -> Result<(), String> {
        if new.kind != FileKind::Directory {
            return Err("the root must be a directory".to_string());
        }
        let old = &mut self.tree.entries[at];
        *old = Entry { links: old.links, names: std::mem::take(&mut old.names), ..new };
        Ok(())
    }

    /// Removes a name.
    fn remove(&mut self, directory: usize, name: &[u8]) -> Result<(), String> {
        let Some(&there) = self.tree.entries[directory].names.get(name) else { return Ok(()) };
        if self.tree.entries[there].kind == FileKind::Directory {
            return Err("a directory of this name came before it".to_string());
        }
        self.tree.entries[there].links -= 1;
        self.tree.entries[directory].names.remove(name);
        Ok(())
    }
}

/// Writes a sparse file's stretches to their offsets in `spool`; there are holes between them.
fn lay_out(
    archive: &File,
    mut from: u64,
    (stretches, size): (&[(u64, u64)], u64),
    (spool, start): (&File, u64),
) -> io::Result<()> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "the sparse file is broken");
    let mut buffer = vec![0; 1 << 16];
    spool.set_len(start.checked_add(size).ok_or_else(broken)?)?;
    for &(offset, length) in stretches {
        let end = offset.checked_add(length).filter(|end| *end <= size).ok_or_else(broken)?;
        let mut at = offset;
        while at < end {
            let part = (end - at).min(buffer.len() as u64) as usize;
            archive.read_exact_at(&mut buffer[..part], from)?;
            spool.write_all_at(&buffer[..part], start + at)?;
            at += part as u64;
            from += part as u64;
        }
    }
    Ok(())
}
