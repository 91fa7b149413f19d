//! One operation on names: its nodes, all or none of which are written, and what each means.

use alloc::vec::Vec;

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{Key, Node};

use super::cache::Record;
use super::{BASE, UbifsMut};
use crate::location::Location;

/// What follows from an inode without links that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It lost its last name, and waits to be forgotten.
    Orphan,
    /// It goes, with all that hangs on it.
    Deleted,
    /// It goes with another inode of the operation; replay alone needs its node.
    Dead,
}

/// The nodes of one operation in the order in which they are written and take effect.
#[derive(Debug)]
pub(super) struct Operation<'o> {
    nodes: Vec<Node<'o>>,
    /// Inodes that end with it.
    ends: Vec<(u32, End)>,
    /// Inodes that changed and wait.
    kept: Vec<Record>,
}

impl<'o> Operation<'o> {
    /// Room for as many nodes as most operations have.
    const NODES: usize = 5;

    pub(super) fn new() -> Self {
        Self { nodes: Vec::with_capacity(Self::NODES), ends: Vec::new(), kept: Vec::new() }
    }

    /// An entry node, as [`UbifsMut::entry`] makes it.
    pub(super) fn entry(&mut self, entry: Node<'o>) -> &mut Self {
        self.nodes.push(entry);
        self
    }

    pub(super) fn inode(&mut self, record: &'o Record) -> &mut Self {
        self.nodes.push(Node::Inode(record.node()));
        self
    }

    fn ending(&mut self, record: &'o Record, end: End) -> &mut Self {
        if record.node.links == 0 {
            self.ends.push((record.number(), end));
        }
        self.inode(record)
    }

    /// An inode that lost a name, perhaps the last one.
    pub(super) fn unlinked(&mut self, record: &'o Record) -> &mut Self {
        self.ending(record, End::Orphan)
    }

    /// An inode without links that nobody uses.
    pub(super) fn deleted(&mut self, record: &'o Record) -> &mut Self {
        self.ending(record, End::Deleted)
    }

    /// Inodes without links that go with another one.
    pub(super) fn dead(&mut self, values: &'o [Record]) -> &mut Self {
        for value in values {
            self.ending(value, End::Dead);
        }
        self
    }

    /// An inode that is not written with the others, but waits as content does.
    pub(super) fn keep(&mut self, record: Record) -> &mut Self {
        self.kept.push(record);
        self
    }
}

impl<V: VolumeMut> UbifsMut<V> {
    /// Writes the nodes of an operation and lets them take effect.
    pub(super) fn perform(&mut self, operation: Operation<'_>) -> Result<(), Error> {
        let Operation { nodes, ends, kept } = operation;
        let places = self.files.journal(BASE, &nodes)?;
        for (node, at) in nodes.iter().zip(places) {
            match node {
                Node::Entry(entry) => {
                    let name = (entry.key.inode(), entry.name);
                    let at = (entry.inode != 0).then_some(at);
                    self.files.disk.set_name(entry.kind, name, at)?;
                }
                Node::Inode(inode) => {
                    let number = inode.key.inode();
                    let end = ends.iter().find(|end| end.0 == number).map(|end| end.1);
                    self.inode_written((inode.key, at), end)?;
                }
                _ => {}
            }
        }
        for record in kept {
            self.files.keep(record)?;
        }
        self.files.disk.commit_if_due()
    }

    fn inode_written(&mut self, (key, at): (Key, Location), end: Option<End>) -> Result<(), Error> {
        match end {
            None => self.files.written(key, at),
            Some(End::Orphan) => {
                self.files.written(key, at)?;
                self.files.disk.note_orphan(key.inode());
                Ok(())
            }
            Some(End::Deleted) => self.files.disk.remove_inode(key.inode()),
            Some(End::Dead) => Ok(()),
        }
    }
}
