//! Checking: every checksum and every rule.
//!
//! | part | what it compares |
//! |---|---|
//! | opening ([`crate::open`]) | superblock, master node, index order and levels, log, buds |
//! | [`tree`] | each branch of the index with the node it leads to |
//! | [`space`] | LEB properties with the content of the LEBs, and their sums with the master node |
//! | [`lpt`] | the tree of LEB properties itself |
//! | [`files`] | names with inodes, and inodes with what belongs to them |
//!
//! A finding of severity [`Severity::Note`] is not damage.

pub(crate) mod files;
mod lpt;
mod sealed;
mod space;
mod tree;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_api::finding::{Finding, Severity};
use flysch_api::vfs::Inode;
use flysch_api::volume::{LebState, Volume};
use flysch_wire::ubifs::{Compression, Node, NodeKind, SUPERBLOCK_LEB};

use crate::access::{Scratch, finding};
use crate::location::Location;
use crate::open::Ubifs;
use crate::scan::{Item, Scan};

/// What a check collects.
pub(crate) struct Check<'c, V> {
    fs: &'c Ubifs<V>,
    findings: Vec<Finding>,
    last: sealed::Last,
}

impl<V: Volume> Ubifs<V> {
    /// Verifies every checksum and rule; the findings from opening come first.
    pub fn check(&self) -> Vec<Finding> {
        let mut check =
            Check { fs: self, findings: self.findings.clone(), last: sealed::Last::default() };
        check.superblock();
        let usage = check.tree();
        let properties = check.lpt();
        check.space(&usage, properties.as_deref());
        check.orphans();
        check.files();
        check.findings
    }
}

impl<V: Volume> Check<'_, V> {
    fn tell(
        &mut self,
        severity: Severity,
        structure: &'static str,
        problem: String,
        (lnum, offset): (u32, u32),
    ) {
        let place = self.fs.store.access.place(lnum, offset);
        self.findings.push(finding(severity, structure, problem, place));
    }

    fn tell_inode(
        &mut self,
        severity: Severity,
        problem: String,
        (kind, at, inode): (NodeKind, Location, u32),
    ) {
        let place = self.fs.store.access.place(at.lnum, at.offset);
        let found = finding(severity, kind.name(), problem, place);
        self.findings.push(Finding { inode: Some(Inode(inode.into())), ..found });
    }

    /// Checks the superblock fields that reading does not need; opening has checked the layout.
    fn superblock(&mut self) {
        let code = self.fs.store.superblock.default_compression;
        if let Compression::Unknown(_) = Compression::from_code(code) {
            let problem = format!("field default_compr is {code}, which Linux refuses to mount");
            self.tell(Severity::Inconsistent, "superblock", problem, (SUPERBLOCK_LEB, 0));
        }
    }

    /// Checks the orphans: files without names that the next mount deletes.
    fn orphans(&mut self) {
        let store = &self.fs.store;
        let mut scratch = Scratch::new();
        let stale = self.fs.has_no_orphans();
        let is_there = |lnum: &u32| store.access.volume.state(*lnum) != LebState::Unmapped;
        for lnum in store.layout.orphans.clone().filter(is_there) {
            let leb = match store.access.leb(lnum, &mut scratch) {
                Ok(leb) => leb,
                Err(cause) => {
                    let problem = format!("{cause}");
                    self.tell(Severity::Inconsistent, "orphan area", problem, (lnum, 0));
                    continue;
                }
            };
            for item in Scan::new(leb, 0) {
                match item {
                    Item::Node { offset, header, bytes } => {
                        match Node::decode(header, bytes, store.format()) {
                            Ok(Node::Orphans(_)) if stale => {}
                            Ok(Node::Orphans(node)) => {
                                for inode in node.inodes() {
                                    self.orphan(inode, (lnum, offset));
                                }
                            }
                            _ => {
                                let problem = format!("{} in the orphan area", header.kind.name());
                                let severity = Severity::Inconsistent;
                                self.tell(severity, "orphan area", problem, (lnum, offset));
                            }
                        }
                    }
                    Item::Garbage { range, error } => {
                        let problem = format!("{error}");
                        let at = (lnum, range.0);
                        self.tell(Severity::Inconsistent, "orphan node", problem, at);
                    }
                }
            }
        }
    }

    fn orphan(&mut self, inode: u64, at: (u32, u32)) {
        let problem = match self.fs.stat(Inode(inode)) {
            Ok(_) => {
                let links = self.fs.links(Inode(inode));
                let words = counted(links, "link", "links");
                (links != 0).then(|| format!("inode {inode} is listed, but has {words}"))
            }
            Err(_) => None,
        };
        let place = self.fs.store.access.place(at.0, at.1);
        if let Some(problem) = problem {
            // This happens to a file created without a name (O_TMPFILE) that has been given one
            // since.
            let found = finding(Severity::Note, "orphan node", problem, place);
            self.findings.push(Finding { inode: Some(Inode(inode)), ..found });
        }
    }
}
