//! A tree as UBIFS.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flysch_api::vfs::FileKind;
use flysch_ubifs::create::{
    CreateOptions, Created, LebSink, Needs, NewInode, Packing, UbifsBuilder, UbifsCreateError,
    check_xattr,
};
use flysch_ubifs::{Keys, Policy, Signer};
use flysch_wire::ubifs::InodeFlags;

use crate::acl;

use super::ubifs_pipeline::{self, Batch, Outcome, Step};
use super::{CreateError, Entry, Making, Tree, shown};

/// LEBs by which a file system may grow, in addition to its own size, if no maximum is given.
const LEBS_TO_GROW: u64 = 64;

/// How a UBIFS is created.
#[derive(Clone)]
pub struct UbifsOptions {
    /// Options of the file system itself. A maximum of 0 LEBs is computed: room for twice its
    /// contents. With `authentication` it is signed by `signer`, or otherwise with the key in
    /// `keys`.
    pub format: CreateOptions,
    /// How content is compressed.
    pub packing: Packing,
    /// Threads for compression; 0 means one per processor.
    pub threads: usize,
    /// The keys for signing and encryption.
    pub keys: Option<Arc<Keys>>,
    /// The signer of the superblock.
    pub signer: Option<Arc<dyn Signer>>,
    /// How everything is encrypted, with one of these keys.
    pub policy: Option<Policy>,
}

impl fmt::Debug for UbifsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UbifsOptions")
            .field("format", &self.format)
            .field("packing", &self.packing)
            .finish_non_exhaustive()
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct UbifsWritten {
    /// The file system.
    pub created: Created,
    /// Its options, with the computed maximum of LEBs.
    pub format: CreateOptions,
    /// Parts of the tree that are not in it.
    pub notes: Vec<String>,
}

/// Writes a UBIFS with the files of `tree` to `out`, from its first byte.
///
/// # Errors
/// [`CreateError`]; `out` then holds no file system: the superblock is written last.
pub fn create_ubifs(
    tree: &Tree,
    options: &UbifsOptions,
    out: &File,
    making: &Making,
) -> Result<UbifsWritten, CreateError> {
    let mut format = options.format;
    if format.leb_count_max == 0 {
        format.leb_count_max = lebs_to_offer(tree, &format, options.policy.is_some())?;
    }
    let sink = FileSink { out, leb_size: format.leb_size, written: Vec::new() };
    let key = options.keys.as_ref().and_then(|keys| keys.auth.as_ref());
    let mut builder = match (&options.signer, key) {
        (Some(signer), _) => UbifsBuilder::signed(&format, signer.clone(), sink),
        (None, Some(key)) => UbifsBuilder::authenticated(&format, key, sink),
        (None, None) => UbifsBuilder::new(&format, sink),
    }
    .map_err(explain)?;
    if let Some(policy) = &options.policy {
        let keys = options.keys.clone().unwrap_or_default();
        builder.encrypt(policy, &keys).map_err(explain)?;
    }
    let mut writer = Writer {
        tree,
        builder,
        files: vec![Known::default(); tree.entries.len()],
        notes: Vec::new(),
        making,
    };
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    ubifs_pipeline::run(tree, (options.packing, threads), &mut |batch| writer.write(batch))?;
    let Writer { builder, notes, .. } = writer;
    let (created, sink) = builder.finish().map_err(explain)?;
    sink.finish(created.lebs).map_err(CreateError::Output)?;
    Ok(UbifsWritten { created, format, notes })
}

fn explain(error: UbifsCreateError<io::Error>) -> CreateError {
    match error {
        UbifsCreateError::Sink(error) => CreateError::Output(error),
        other if other.wants_more_lebs() => CreateError::Room(other.into()),
        other => CreateError::options(other),
    }
}

/// A maximum of LEBs: the uncompressed size of the tree, as much again, and a little more.
fn lebs_to_offer(tree: &Tree, format: &CreateOptions, encrypted: bool) -> Result<u32, CreateError> {
    let mut needs = Needs::default();
    // What is encrypted is longer, by this at most: names are padded, content to 16 bytes, and each
    // file has a context.
    let (padding, block, context) = if encrypted { (32, 16, 40) } else { (0, 1, 0) };
    for entry in &tree.entries {
        let device = matches!(entry.kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        needs.inode(entry.target.len() + if device { 8 } else { 0 });
        needs.content(entry.size.next_multiple_of(block));
        entry.names.keys().for_each(|name| needs.entry(name.len() + padding));
        if context > 0 {
            needs.xattr(1, context);
        }
        entry.xattrs.iter().for_each(|(name, value)| needs.xattr(name.len(), value.len()));
    }
    // The other areas grow with the maximum, but much slower.
    let mut lebs = 0;
    for _ in 0..2 {
        let main = needs.main_lebs(format) * 2 + LEBS_TO_GROW;
        let max = u32::try_from(main + lebs)
            .map_err(|_| CreateError::Room("the tree is too large for UBIFS".into()))?;
        let tried = CreateOptions { leb_count_max: max, ..*format };
        let superblock =
            tried.superblock(max).map_err(|why| explain(UbifsCreateError::Options(why)))?;
        let areas = 3 + superblock.log_lebs + superblock.lpt_lebs + superblock.orphan_lebs;
        lebs = areas.into();
    }
    Ok((needs.main_lebs(format) * 2 + LEBS_TO_GROW + lebs) as u32)
}

/// LEBs in a file, in sequence.
struct FileSink<'f> {
    out: &'f File,
    leb_size: u32,
    /// Which LEBs were written.
    written: Vec<bool>,
}

impl LebSink for FileSink<'_> {
    type Error = io::Error;

    fn put(&mut self, lnum: u32, content: &[u8]) -> io::Result<()> {
        let at = u64::from(lnum) * u64::from(self.leb_size);
        self.out.write_all_at(content, at)?;
        self.erased(at + content.len() as u64, self.leb_size as usize - content.len())?;
        let lnum = lnum as usize;
        if self.written.len() <= lnum {
            self.written.resize(lnum + 1, false);
        }
        self.written[lnum] = true;
        Ok(())
    }
}

impl FileSink<'_> {
    fn erased(&self, mut at: u64, mut length: usize) -> io::Result<()> {
        static ERASED: [u8; 1 << 15] = [0xff; 1 << 15];
        while length > 0 {
            let part = length.min(ERASED.len());
            self.out.write_all_at(&ERASED[..part], at)?;
            at += part as u64;
            length -= part;
        }
        Ok(())
    }

    /// Fills the LEBs that were not written.
    fn finish(mut self, lebs: u32) -> io::Result<()> {
        self.written.resize(lebs as usize, false);
        let empty = (0..).zip(&self.written).filter(|(_, written)| !**written);
        for (lnum, _) in empty {
            self.erased(lnum * u64::from(self.leb_size), self.leb_size as usize)?;
        }
        Ok(())
    }
}

/// The state of a file from the start of its writing.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    number: u32,
    creation: u64,
    /// `chattr` flags.
    flags: u32,
}

/// Executes the steps prepared by the pipeline.
struct Writer<'t> {
    tree: &'t Tree,
    builder: UbifsBuilder<FileSink<'t>>,
    files: Vec<Known>,
    notes: Vec<String>,
    making: &'t Making,
}

impl Writer<'_> {
    fn write(&mut self, batch: &Batch<'_>) -> Result<(), CreateError> {
        let mut outcomes = batch.outcomes();
        for step in &batch.steps {
            match *step {
                Step::Begin(file) => self.begin(file).map_err(explain)?,
                Step::Block { file, block, .. } => {
                    let number = self.files[file].number;
                    let (size, outcome) = outcomes.next().expect("one for each block");
                    if let Outcome::Stored(compression, bytes) = outcome {
                        let stored = (compression, bytes);
                        self.builder.block(number, block, size, stored).map_err(explain)?;
                    }
                    self.making.add(size.into());
                }
                Step::Flags(file, flags) => self.files[file].flags = flags,
                Step::End(file) => self.end(file)?,
                Step::Name { directory, name, file } => {
                    let (parent, number) = (self.files[directory].number, self.files[file].number);
                    let kind = self.tree.entries[file].kind;
                    self.builder.entry(parent, name, number, kind).map_err(explain)?;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, file: usize) -> Result<(), UbifsCreateError<io::Error>> {
        let number = match file {
            0 => UbifsBuilder::<FileSink<'_>>::ROOT,
            _ => self.builder.next_inode()?,
        };
        let creation = self.builder.creation_sequence();
        self.files[file] = Known { number, creation, flags: self.tree.entries[file].flags };
        Ok(())
    }

    fn end(&mut self, file: usize) -> Result<(), CreateError> {
        let entry = &self.tree.entries[file];
        let mut xattrs = Vec::new();
        let mut permissions = entry.permissions;
        for (name, value) in &entry.xattrs {
            match check_xattr(name, value) {
                Ok(()) => xattrs.push((&name[..], &value[..])),
                Err(flysch_ubifs::create::XattrRefusal::Namespace) => {
                    if name == acl::ACCESS {
                        permissions = acl::permissions_without(permissions, value);
                    }
                    let note = format!(
                        "attributes {} are left out: UBIFS holds only those in user., trusted. \
                         and security.",
                        shown(name)
                    );
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                }
                Err(refusal) => {
                    let what = format!("attribute {} of {}", shown(name), self.tree.path_of(file));
                    return Err(CreateError::refused(what, refusal));
                }
            }
        }
        let Known { number, creation, flags } = self.files[file];
        let inode = NewInode {
            kind: entry.kind,
            permissions,
            links: entry.links,
            owner: entry.owner,
            group: entry.group,
            size: match entry.kind {
                FileKind::Directory => {
                    entry.names.keys().map(|name| self.builder.entry_size(name)).sum()
                }
                _ => entry.size,
            },
            accessed: entry.accessed,
            modified: entry.modified,
            changed: entry.changed,
            device: entry.device,
            target: &entry.target,
            flags: inode_flags(flags, entry),
            xattrs: &xattrs,
        };
        self.builder.inode(number, creation, &inode).map_err(|error| match error {
            UbifsCreateError::Options(why) => CreateError::refused(self.tree.path_of(file), why),
            other => explain(other),
        })
    }
}

/// UBIFS's flags for those of `chattr` (`FS_*_FL`).
fn inode_flags(flags: u32, entry: &Entry) -> InodeFlags {
    let mut of = 0;
    for (linux, ours) in [
        (0x4, InodeFlags::COMPRESS),
        (0x8, InodeFlags::SYNC),
        (0x10, InodeFlags::IMMUTABLE),
        (0x20, InodeFlags::APPEND),
    ] {
        if flags & linux != 0 {
            of |= ours.0;
        }
    }
    if flags & 0x1_0000 != 0 && entry.kind == FileKind::Directory {
        of |= InodeFlags::DIRSYNC.0;
    }
    InodeFlags(of)
}

#[cfg(test)]
mod tests;
