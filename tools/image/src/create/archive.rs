//! A tar archive as the source.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use flysch_api::vfs::{DeviceNumber, FileKind, Timestamp};
use tar::{Archive, EntryType};

use super::{Content, CreateError, Entry, Tree, TreeOptions, shown};

/// What extended attributes' names begin with in a pax header.
const XATTR_KEY: &str = "SCHILY.xattr.";

/// Takes entries of an archive.
struct Reader<'r> {
    tree: Tree,
    options: &'r TreeOptions,
    file: Arc<File>,
    /// Content of sparse files, laid out.
    spool: Option<Arc<File>>,
}

impl Tree {
    /// The tree in a tar archive: ustar, GNU or pax, with extended attributes (`--xattrs`), sparse
    /// files and hard links. What cannot be sought - standard input - goes to a temporary file.
    ///
    /// # Errors
    /// [`CreateError::Source`] for an archive that is broken; `name` is what errors call it.
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
        let mut archive = Archive::new(&*file);
        for entry in archive.entries_with_seek().map_err(fail)? {
            reader.entry(name, entry.map_err(fail)?)?;
        }
        Ok(reader.tree)
    }
}

/// The archive itself, or a copy without a name if it is a pipe.
fn seekable(mut input: File) -> io::Result<File> {
    if input.stream_position().is_ok() && input.metadata()?.is_file() {
        input.seek(SeekFrom::Start(0))?;
        return Ok(input);
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut input, &mut copy)?;
    copy.seek(SeekFrom::Start(0))?;
    Ok(copy)
}

impl Reader<'_> {
    fn entry(
        &mut self,
        archive: &str,
        mut entry: tar::Entry<'_, &File>,
    ) -> Result<(), CreateError> {
        let path = entry.path_bytes().into_owned();
        let place = format!("{archive}: {}", shown(&path));
        let fail = |cause| CreateError::source(&place, cause);
        let refuse = |why: String| CreateError::refused(&place, why);
        let header = entry.header();
        let kind = match header.entry_type() {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => FileKind::Regular,
            EntryType::Directory => FileKind::Directory,
            EntryType::Symlink => FileKind::Symlink,
            EntryType::Char => FileKind::CharacterDevice,
            EntryType::Block => FileKind::BlockDevice,
            EntryType::Fifo => FileKind::Fifo,
            EntryType::Link => return self.hard_link(&path, &entry).map_err(refuse),
            EntryType::XGlobalHeader => return Ok(()),
            other => {
                let note = format!("entries of type {:?} are left out", other.as_byte() as char);
                self.tree.note(note);
                return Ok(());
            }
        };
        let pax = pax(&mut entry).map_err(fail)?;
        let header = entry.header();
        let seconds = |key: &str| pax.iter().find(|(name, _)| name == key).map(|it| time(&it.1));
        let modified = seconds("mtime").flatten().map_or_else(
            || header.mtime().map(|seconds| Timestamp { seconds: seconds as i64, nanoseconds: 0 }),
            Ok,
        );
        let modified = modified.map_err(fail)?;
        let accessed = seconds("atime").flatten().unwrap_or(modified);
        let changed = seconds("ctime").flatten().unwrap_or(modified);
        let number = |key: &str| {
            let value = pax.iter().find(|(name, _)| name == key)?;
            std::str::from_utf8(&value.1).ok()?.parse::<u32>().ok()
        };
        let id = |key, value: io::Result<u64>| match number(key) {
            Some(id) => Ok(id),
            None => value.map(|id| u32::try_from(id).unwrap_or(u32::MAX)),
        };
        let owners = match self.options.squash_owners {
            true => (0, 0),
            false => {
                (id("uid", header.uid()).map_err(fail)?, id("gid", header.gid()).map_err(fail)?)
            }
        };
        let permissions = (header.mode().map_err(fail)? & 0o7777) as u16;
        let times = self.options.times([accessed, modified, changed]);
        let mut new = Entry::new(kind, permissions, owners, times);
        match kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                let part = |number: io::Result<Option<u32>>| number.map(Option::unwrap_or_default);
                new.device = DeviceNumber {
                    major: part(header.device_major()).map_err(fail)?,
                    minor: part(header.device_minor()).map_err(fail)?,
                };
            }
            FileKind::Symlink => {
                new.target = entry.link_name_bytes().unwrap_or_default().into_owned();
            }
            _ => {}
        }
        if !self.options.without_xattrs {
            let named = pax.into_iter().filter_map(|(key, value)| {
                Some((key.strip_prefix(XATTR_KEY)?.as_bytes().to_vec(), value))
            });
            new.xattrs.extend(named);
            new.xattrs.sort();
        }
        if kind == FileKind::Regular {
            self.content(&mut entry, &mut new).map_err(fail)?;
        }
        self.put(&path, new, times[1]).map_err(refuse)
    }

    /// Where the content lies; that of sparse files is laid out first.
    fn content(&mut self, entry: &mut tar::Entry<'_, &File>, new: &mut Entry) -> io::Result<()> {
        new.size = entry.size();
        if new.size == 0 {
            return Ok(());
        }
        let is_sparse = entry.header().entry_type() == EntryType::GNUSparse;
        if !is_sparse {
            new.content = Content::Stretch(self.file.clone(), entry.raw_file_position());
            return Ok(());
        }
        let spool = match &self.spool {
            Some(spool) => spool.clone(),
            None => self.spool.insert(Arc::new(tempfile::tempfile()?)).clone(),
        };
        let start = (&*spool).seek(SeekFrom::End(0))?;
        lay_out(entry, &spool, new.size)?;
        new.content = Content::Stretch(spool, start);
        Ok(())
    }

    fn hard_link(&mut self, path: &[u8], entry: &tar::Entry<'_, &File>) -> Result<(), String> {
        let target = entry.link_name_bytes().unwrap_or_default();
        let Some(file) = self.tree.find(&target) else {
            return Err(format!("a link to {}, which is not before it", shown(&target)));
        };
        if self.tree.entries[file].kind == FileKind::Directory {
            return Err(format!("a link to {}, which is a directory", shown(&target)));
        }
        let time = self.tree.entries[file].modified;
        let (directory, name) = self.tree.place(path, time)?;
        self.remove(directory, name)?;
        if self.tree.entries[directory].names.get(name) != Some(&file) {
            self.tree.link(directory, name, file);
        }
        Ok(())
    }

    /// Adds a file; a later entry of the same path takes the place of an earlier one.
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

    /// A directory that is there already gets its attributes.
    fn attributes_of(&mut self, at: usize, new: Entry) -> Result<(), String> {
        if new.kind != FileKind::Directory {
            return Err("the root is a directory".to_string());
        }
        let old = &mut self.tree.entries[at];
        *old = Entry { links: old.links, names: std::mem::take(&mut old.names), ..new };
        Ok(())
    }

    /// Takes a name away.
    fn remove(&mut self, directory: usize, name: &[u8]) -> Result<(), String> {
        let Some(&there) = self.tree.entries[directory].names.get(name) else { return Ok(()) };
        if self.tree.entries[there].kind == FileKind::Directory {
            return Err("a directory of this name was before it".to_string());
        }
        self.tree.entries[there].links -= 1;
        self.tree.entries[directory].names.remove(name);
        Ok(())
    }
}

/// Extension records of an entry, in the order they stand.
fn pax(entry: &mut tar::Entry<'_, &File>) -> io::Result<Vec<(String, Vec<u8>)>> {
    let Some(records) = entry.pax_extensions()? else { return Ok(Vec::new()) };
    let mut pax = Vec::new();
    for record in records {
        let record = record?;
        if let Ok(key) = record.key() {
            pax.push((key.to_string(), record.value_bytes().to_vec()));
        }
    }
    Ok(pax)
}

/// A time as pax writes it: seconds, maybe with a fraction.
fn time(value: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some(Timestamp { seconds: seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds });
    }
    Some(Timestamp { seconds, nanoseconds })
}

/// Writes a sparse file behind what is in `spool`, its holes as holes.
fn lay_out(entry: &mut impl Read, spool: &File, size: u64) -> io::Result<()> {
    let mut spool = spool;
    let start = spool.stream_position()?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = entry.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        if buffer[..length].iter().all(|&byte| byte == 0) {
            spool.seek(SeekFrom::Current(length as i64))?;
        } else {
            spool.write_all(&buffer[..length])?;
        }
    }
    spool.set_len(start + size)?;
    spool.seek(SeekFrom::Start(start + size))?;
    Ok(())
}
