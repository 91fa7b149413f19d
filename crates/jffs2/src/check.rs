//! A complete check: every checksum, every rule, and which file each fault affects.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::Flash;
use flysch_api::vfs::{FileKind, FsError, Inode};
use flysch_wire::jffs2::{ByteOrder, ROOT_INO};

use crate::file::{Layout, Piece};
use crate::found::{DirentRef, NodeRef, Problem, Wrong};
use crate::index::{InodeRecord, Nameless};
use crate::node::{self, DATA_MAX, Data, Reader};
use crate::scan::Summaries;
use crate::{Jffs2, Jffs2MountError};

/// Maximum depth of a directory for which a path is reported.
const DEPTH_MAX: usize = 4096;

/// Checks the JFFS2 on `flash` and passes everything that is wrong or worth knowing to `report`.
///
/// # Errors
/// If there is no JFFS2 to check.
pub fn check<F: Flash>(
    flash: F,
    order: Option<ByteOrder>,
    report: &mut dyn FnMut(Finding),
) -> Result<(), Jffs2MountError> {
    let mounted = Jffs2::mount_with(flash, order, Summaries::Verify, Nameless::Drop)?;
    let parents = parents(&mounted);
    let mut checker = Checker { fs: &mounted, parents, report };
    checker.problems();
    checker.entries();
    checker.inodes();
    checker.nameless();
    checker.xattrs();
    Ok(())
}

/// For each inode, one of its directory entries.
fn parents<F>(fs: &Jffs2<F>) -> Vec<u32> {
    let mut parents: Vec<u32> = (0..fs.index.entries.len() as u32).collect();
    parents.sort_by_key(|&entry| fs.index.entries[entry as usize].ino);
    parents
}

struct Checker<'c, F> {
    fs: &'c Jffs2<F>,
    parents: Vec<u32>,
    report: &'c mut dyn FnMut(Finding),
}

/// The subject of a finding.
#[derive(Clone, Copy, Default)]
struct Subject {
    place: Place,
    ino: Option<u32>,
}

impl<F: Flash> Checker<'_, F> {
    fn find(
        &mut self,
        severity: Severity,
        structure: &'static str,
        problem: impl Into<String>,
        subject: Subject,
    ) {
        let path = subject.ino.and_then(|ino| self.path(ino));
        (self.report)(Finding {
            severity,
            structure,
            problem: problem.into(),
            place: subject.place,
            inode: subject.ino.map(|ino| Inode(u64::from(ino))),
            path,
        });
    }

    fn at(&self, offset: u64) -> Place {
        node::place_at(&self.fs.flash, offset)
    }

    fn of_node(&self, node: NodeRef) -> Subject {
        Subject { place: self.at(node.address.offset()), ino: Some(node.ino) }
    }

    fn of_entry(&self, entry: &DirentRef) -> Subject {
        Subject { place: self.at(entry.address.offset()), ino: Some(entry.ino) }
    }

    /// A path to `ino`, without a leading '/'.
    fn path(&self, ino: u32) -> Option<Vec<u8>> {
        let mut parts: Vec<&[u8]> = vec![];
        let mut at = ino;
        while at != ROOT_INO {
            let entry = |&number: &u32| &self.fs.index.entries[number as usize];
            let found = self.parents.partition_point(|number| entry(number).ino < at);
            let entry = self.parents.get(found).map(entry).filter(|entry| entry.ino == at)?;
            parts.push(entry.name(&self.fs.index.names));
            at = entry.pino;
            if parts.len() > DEPTH_MAX {
                return None;
            }
        }
        parts.reverse();
        Some(parts.join(&b'/'))
    }

    /// Reports the problems that the scan found.
    fn problems(&mut self) {
        let fs = self.fs;
        for problem in &fs.index.problems {
            self.problem(problem);
        }
        if fs.index.problems_dropped != 0 {
            let (one, many) = ("more place is damaged", "more places are damaged");
            let text = counted(fs.index.problems_dropped, one, many).to_string();
            self.find(Severity::Lost, "flash", text, Subject::default());
        }
    }

    fn problem(&mut self, problem: &Problem) {
        let (severity, structure, text) = match problem.wrong {
            Wrong::Garbage { len } => {
                let text = format!("{len} bytes between nodes are neither erased nor a node");
                (Severity::Inconsistent, "erase block", text)
            }
            Wrong::Unfinished { len } => {
                let text = format!("{len} bytes of an interrupted write; Linux passes over them");
                (Severity::Note, "erase block", text)
            }
            Wrong::Node(error) => (Severity::Lost, "node", error.to_string()),
            Wrong::Header => (Severity::Lost, "node header", "type or length is damaged".into()),
            Wrong::CutShort { len } => {
                let text = match len {
                    Some(len) => format!("the image ends inside a node of {len} bytes"),
                    None => "the image ends inside the header of a node".into(),
                };
                (Severity::Lost, "node", text)
            }
            Wrong::CrossesBlock => {
                let text = "a node reaches into the next block: is the erase block size right?";
                (Severity::Inconsistent, "erase block", text.into())
            }
            Wrong::Summary(error) => (Severity::Inconsistent, "summary node", error.to_string()),
            Wrong::SummaryMismatch => {
                let text = "the summary does not list the nodes of its block";
                (Severity::Inconsistent, "summary node", text.into())
            }
            Wrong::Incompatible(kind) => {
                let text = format!("type {kind:#06x} must be known to mount this file system");
                (Severity::Inconsistent, "node header", text)
            }
            Wrong::Name => {
                (Severity::Lost, "directory entry node", "no file can have this name".into())
            }
            Wrong::Unreadable(error) => {
                (Severity::Lost, "erase block", format!("cannot be read: {error}"))
            }
        };
        let place = self.at(problem.offset);
        let ino = problem.ino.filter(|&ino| self.fs.index.inode(ino).is_some());
        let Some((directory, name)) = &problem.entry else {
            self.find(severity, structure, text, Subject { place, ino });
            return;
        };
        // The name may be damaged itself; shown is what stands there.
        let known = self.fs.index.inode(*directory).is_some();
        let path = known.then(|| self.path(*directory)).flatten().map(|mut path| {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name);
            path
        });
        (self.report)(Finding {
            severity,
            structure: "directory entry node",
            problem: text,
            place,
            inode: problem.ino.map(|ino| Inode(u64::from(ino))),
            path,
        });
    }

    /// Checks names against the inodes they refer to.
    fn entries(&mut self) {
        let fs = self.fs;
        for entry in &fs.index.dangling {
            let name = entry.name(&fs.index.names).escape_ascii();
            let text = format!("\"{name}\" names inode {}, which does not exist", entry.ino);
            let subject = Subject { place: self.at(entry.address.offset()), ino: None };
            // What a removed directory once named is gone with it; its old entries stay until
            // their block is erased.
            let severity = match fs.index.nameless.binary_search(&entry.pino).is_ok() {
                true => Severity::Note,
                false => Severity::Lost,
            };
            self.find(severity, "directory entry node", text, subject);
        }
        for entry in &fs.index.entries {
            let Some(record) = fs.index.inode(entry.ino) else { continue };
            let subject = self.of_entry(entry);
            let told = FileKind::from_mode(u32::from(entry.kind) << 12);
            match fs.kind(record) {
                Ok(kind) if Some(kind) != told => {
                    let text = format!("type {} in the entry, {kind:?} in the inode", entry.kind);
                    self.find(Severity::Inconsistent, "directory entry node", text, subject);
                }
                Ok(FileKind::Directory) if record.names > 1 || entry.ino == ROOT_INO => {
                    let text = "a directory has more than one name";
                    self.find(Severity::Inconsistent, "directory entry node", text, subject);
                }
                _ => {}
            }
        }
    }

    fn inodes(&mut self) {
        let fs = self.fs;
        for record in &fs.index.inodes {
            self.inode(record);
        }
    }

    fn inode(&mut self, record: &InodeRecord) {
        let fs = self.fs;
        let nodes = fs.nodes(record);
        let subject = Subject { place: Place::default(), ino: Some(record.ino) };
        let (latest, node) = match fs.latest(record) {
            Ok(Some(latest)) => latest,
            Ok(None) if record.ino == ROOT_INO => return,
            Ok(None) => {
                let text = "the directory has entries, but no node of its own";
                self.find(Severity::Lost, "inode node", text, subject);
                return;
            }
            Err(error) => {
                let text = format!("no usable node: {error}");
                self.find(Severity::Lost, "inode node", text, subject);
                return;
            }
        };
        let Ok(kind) = fs.kind(record) else {
            let text = format!("mode {:o} has no file type", latest.mode);
            self.find(Severity::Lost, "inode node", text, subject);
            return;
        };
        if kind == FileKind::Regular {
            let read = fs.with_layout(record, (latest.isize, node), |layout| {
                self.regular(record, nodes, layout, latest.isize);
            });
            if let Err(error) = read {
                self.find(Severity::Lost, "inode data", error.to_string(), subject);
            }
        } else {
            self.special(kind, nodes);
        }
    }

    fn regular(&mut self, record: &InodeRecord, nodes: &[NodeRef], layout: &Layout, size: u32) {
        let mut shows = vec![false; nodes.len()];
        let mut covered = 0u64;
        for fragment in &layout.fragments {
            covered += u64::from(fragment.end - fragment.start);
            if let Piece::Data(number) | Piece::Damaged(number) = fragment.piece {
                shows[number as usize] = true;
            }
        }
        let mut reader = Reader::new(&self.fs.flash, self.fs.order);
        let mut scratch = vec![];
        for (number, (&node, shows)) in nodes.iter().zip(shows).enumerate() {
            let near = &nodes[number.saturating_sub(1)..nodes.len().min(number + 2)];
            let is_copy = near.iter().filter(|it| it.version == node.version).count() > 1;
            self.data_node(&mut reader, node, (shows, is_copy), &mut scratch);
        }
        if covered < u64::from(size) {
            let missing = u64::from(size) - covered;
            let subject = Subject { place: Place::default(), ino: Some(record.ino) };
            if self.fs.is_lossy(layout) {
                let text =
                    format!("{missing} bytes of the file are in no node, and nodes are lost");
                self.find(Severity::Lost, "inode node", text, subject);
            } else {
                let text = format!("{missing} bytes of the file are in no node and read as zeros");
                self.find(Severity::Note, "inode node", text, subject);
            }
        }
    }

    fn data_node(
        &mut self,
        reader: &mut Reader<'_, F>,
        node: NodeRef,
        (shows, is_copy): (bool, bool),
        scratch: &mut Vec<u8>,
    ) {
        let subject = self.of_node(node);
        let inode = match reader.judge(node) {
            Err(error) => {
                self.find(Severity::Lost, "inode node", error.to_string(), subject);
                return;
            }
            Ok((_, Data::Torn)) if !shows => {
                let text = match is_copy {
                    true => "copying it was interrupted; the node that was copied shows",
                    false => "the write was interrupted; older data shows",
                };
                self.find(Severity::Note, "inode data", text, subject);
                return;
            }
            Ok((_, Data::Damaged)) if !shows => {
                let text = "data checksum is wrong, but newer data is in its place";
                self.find(Severity::Note, "inode data", text, subject);
                return;
            }
            Ok((_, Data::Torn | Data::Damaged)) => {
                self.find(Severity::Lost, "inode data", "data checksum is wrong", subject);
                return;
            }
            Ok((inode, Data::Good)) => inode,
        };
        if inode.offset > inode.isize {
            let text = format!("data at {} behind the end {}", inode.offset, inode.isize);
            self.find(Severity::Inconsistent, "inode node", text, subject);
        }
        if !shows {
            return;
        }
        scratch.resize(inode.data_len().min(DATA_MAX) as usize, 0);
        if let Err(error) = reader.data(node, 0, scratch) {
            let text = match error {
                FsError::Unsupported(what) => what.to_string(),
                _ => format!("{} data does not expand to {} bytes", inode.compression, inode.dsize),
            };
            self.find(Severity::Lost, "inode data", text, subject);
        }
    }

    /// Checks everything except regular files: only the latest node is valid.
    fn special(&mut self, kind: FileKind, nodes: &[NodeRef]) {
        let mut reader = Reader::new(&self.fs.flash, self.fs.order);
        let newest = nodes.len().saturating_sub(1);
        for (number, &node) in nodes.iter().enumerate() {
            let subject = self.of_node(node);
            let severity = if number == newest { Severity::Lost } else { Severity::Note };
            match reader.judge(node) {
                Err(error) => self.find(severity, "inode node", error.to_string(), subject),
                Ok((_, Data::Torn)) => {
                    let text = "the write was interrupted; older attributes show";
                    self.find(Severity::Note, "inode data", text, subject);
                }
                Ok((_, Data::Damaged)) => {
                    self.find(severity, "inode data", "data checksum is wrong", subject);
                }
                Ok((_, Data::Good)) if number == newest => self.content(kind, &mut reader, node),
                Ok((_, Data::Good)) => {}
            }
        }
    }

    fn content(&mut self, kind: FileKind, reader: &mut Reader<'_, F>, node: NodeRef) {
        let subject = self.of_node(node);
        let Ok(stored) = reader.stored(node) else { return };
        let is_device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        if is_device && self.fs.order.parse_device(stored).is_none() {
            let text = format!("a device number has 2 or 4 bytes, not {}", stored.len());
            self.find(Severity::Lost, "inode data", text, subject);
        }
        if kind == FileKind::Symlink && (stored.is_empty() || stored.contains(&0)) {
            self.find(Severity::Lost, "inode data", "the target is not a path", subject);
        }
    }

    /// Inodes without a name: left by an unclean stop, or because their entry was lost.
    fn nameless(&mut self) {
        let fs = self.fs;
        let mut reader = Reader::new(&fs.flash, fs.order);
        for &ino in &fs.index.nameless {
            let start = fs.index.nodes.partition_point(|node| node.ino < ino);
            let nodes = fs.index.nodes[start..].iter().take_while(|node| node.ino == ino);
            for &node in nodes {
                if !matches!(reader.judge(node), Ok((_, Data::Good))) {
                    let text = "data checksum is wrong, in a file without a name";
                    let subject = self.of_node(node);
                    self.find(Severity::Note, "inode data", text, subject);
                }
            }
            let subject = Subject { place: Place::default(), ino: Some(ino) };
            let text = "no directory entry names it; Linux deletes it";
            self.find(Severity::Note, "inode", text, subject);
        }
    }

    fn xattrs(&mut self) {
        let fs = self.fs;
        let is_harmless = |problem: &Problem| matches!(problem.wrong, Wrong::Unfinished { .. });
        let is_undamaged =
            fs.index.problems_dropped == 0 && fs.index.problems.iter().all(is_harmless);
        for xref in &fs.index.xrefs {
            let place = self.at(xref.address.offset());
            let subject = Subject { place, ino: Some(xref.ino) };
            match fs.attribute(xref) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let text = "namespace is not known";
                    self.find(Severity::Inconsistent, "xattr node", text, subject);
                }
                // Linux replaces an attribute without a word on the flash until it collects the
                // reference, and the attribute may be collected first.
                Err(_) if is_undamaged && fs.index.xattr(xref.xid).is_none() => {
                    let text = "its attribute is gone; Linux drops such a reference";
                    self.find(Severity::Note, "xref node", text, subject);
                }
                Err(error) => {
                    self.find(Severity::Lost, "xattr node", error.to_string(), subject);
                }
            }
        }
    }
}
