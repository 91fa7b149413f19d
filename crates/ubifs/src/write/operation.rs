//! One operation on names: its nodes, of which all or none are written, and their effects.

use alloc::vec::Vec;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{Key, Node};

use super::cache::Record;
use super::{BASE, UbifsMut};
use crate::location::Location;

/// What happens to an inode written without links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It lost its last name, and waits until it is no longer used.
    Orphan,
    /// It is deleted, with everything that belongs to it.
    Deleted,
    /// It is deleted with another inode of the operation; only replay needs its node.
    Dead,
}

/// The nodes of one operation, in the order they are written and take effect.
#[derive(Debug)]
pub(super) struct Operation<'o> {
    nodes: Vec<Node<'o>>,
    /// Inodes that lose their last link in it.
    ends: Vec<(u32, End)>,
    /// Changed inodes that wait to be written.
    kept: Vec<Record>,
}

impl<'o> Operation<'o> {
    /// The number of nodes in most operations.
    const NODES: usize = 5;

    pub(super) fn new() -> Self {
        Self { nodes: Vec::with_capacity(Self::NODES), ends: Vec::new(), kept: Vec::new() }
    }

    /// Adds an entry node made by [`UbifsMut::entry`].
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

    /// Adds an inode that lost a name, perhaps its last.
    pub(super) fn unlinked(&mut self, record: &'o Record) -> &mut Self {
        self.ending(record, End::Orphan)
    }

    /// Adds an inode without links that is not in use.
    pub(super) fn deleted(&mut self, record: &'o Record) -> &mut Self {
        self.ending(record, End::Deleted)
    }

    /// Adds inodes without links that are deleted with another one.
    pub(super) fn dead(&mut self, values: &'o [Record]) -> &mut Self {
        for value in values {
            self.ending(value, End::Dead);
        }
        self
    }

    /// Keeps an inode that is not written with the others but waits, as content does.
    pub(super) fn keep(&mut self, record: Record) -> &mut Self {
        self.kept.push(record);
        self
    }
}

impl<V: VolumeMut> UbifsMut<V> {
    /// Writes the nodes of an operation and applies their effects.
    pub(super) fn perform(&mut self, operation: Operation<'_>) -> Result<(), FsError> {
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

    fn inode_written(
        &mut self,
        (key, at): (Key, Location),
        end: Option<End>,
    ) -> Result<(), FsError> {
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
