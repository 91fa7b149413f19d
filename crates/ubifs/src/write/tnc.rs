//! Where the node of each key lies, and the effect of changes on the LEBs.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::FsError;
use flysch_api::volume::{Volume, VolumeMut};
use flysch_wire::ubifs::{EntryKind, Key, Superblock, align8};

use super::buffered::Buffered;
use super::space::Space;
use crate::location::Location;
use crate::store::Store;

/// Most bytes that one more leaf adds to the index: a node of its own.
pub(super) fn leaf_cost(superblock: &Superblock) -> u64 {
    u64::from(align8(superblock.index_node_max() as u32))
}

/// The overlay, the LEB accounting it affects, and the bytes it may add to the index.
#[derive(Debug)]
pub(super) struct Tnc<'s, V> {
    pub(super) store: &'s mut Store<Buffered<V>>,
    pub(super) space: &'s mut Space,
    pub(super) growth: &'s mut u64,
}

impl<V: VolumeMut> Tnc<'_, V> {
    fn grow(&mut self) {
        *self.growth += leaf_cost(&self.store.superblock);
    }

    /// Sets the place of the node of an inode or data key.
    pub(super) fn set(&mut self, key: Key, at: Location) -> Result<(), FsError> {
        match self.store.find(key)? {
            Some(old) => self.space.release(old),
            None => self.grow(),
        }
        self.space.acquire(at);
        self.store.overlay.set(key, at);
        Ok(())
    }

    /// Sets the place of a name's entry, or deletes the name.
    pub(super) fn set_name(
        &mut self,
        kind: EntryKind,
        parent: u32,
        name: &[u8],
        at: Option<Location>,
    ) -> Result<(), FsError> {
        let old = self.store.find_name(kind, parent, name)?.map(|found| found.0);
        match old {
            Some(old) => self.space.release(old),
            None => self.grow(),
        }
        if let Some(at) = at {
            self.space.acquire(at);
        }
        let key = Key::any_entry(kind, parent, self.store.hash().hash(name));
        self.store.overlay.move_name(key, name, old, at);
        Ok(())
    }

    /// Removes everything from `first` to `last`.
    pub(super) fn remove_range(&mut self, first: Key, last: Key) -> Result<(), FsError> {
        let mut found = Vec::new();
        self.store.nodes(first, last, &mut |_, at| {
            found.push(at);
            ControlFlow::Continue(())
        })?;
        self.store.names_between(first, last, &mut |name| {
            found.push(name.at);
            ControlFlow::Continue(())
        })?;
        for at in found {
            self.space.release(at);
        }
        let committed = self.has_committed(first, last);
        let overlay = &mut self.store.overlay;
        overlay.drop_changes(first, last);
        if committed {
            overlay.mask(first, last);
        }
        Ok(())
    }

    /// Whether the committed index is still valid for any key from `first` to `last`.
    fn has_committed(&self, first: Key, last: Key) -> bool {
        let mut any = false;
        let store = &*self.store;
        let walked = store.committed((first, last), &mut |_, _| {
            any = true;
            ControlFlow::Break(())
        });
        any || walked.is_err()
    }

    /// Deletes an inode with everything that belongs to it.
    pub(super) fn remove_inode(&mut self, inode: u32) -> Result<(), FsError> {
        for value in self.store.xattr_inodes(inode)? {
            self.remove_range(Key::inode_node(value), Key::last_of(value))?;
        }
        self.remove_range(Key::inode_node(inode), Key::last_of(inode))
    }
}

impl<V: Volume> Store<V> {
    /// The inodes that hold the values of a file's extended attributes.
    pub(super) fn xattr_inodes(&self, inode: u32) -> Result<Vec<u32>, FsError> {
        let (mut values, mut refused) = (Vec::new(), None);
        self.names(EntryKind::Xattr, inode, 0, &mut |name| {
            match name.entry {
                Ok(entry) => values.extend(u32::try_from(entry.inode).ok()),
                Err(fault) if fault.is_refusal() => refused = Some(fault),
                // A damaged one leads nowhere.
                Err(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        refused.map_or(Ok(values), |fault| Err(fault.into()))
    }
}
