//! Applying the journal's changes to the index, in memory.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use flysch_api::volume::Volume;
use flysch_wire::ubifs::Key;

use crate::access::Scratch;
use crate::replay::{Change, Entry, truncated_blocks};
use crate::store::Store;

/// What replay learnt about a file's size, to correct it after an unclean stop.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The size in its newest inode node in the journal.
    inode: Option<u64>,
    /// Where its data ends.
    data: u64,
}

/// How entries are applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    /// After an unclean stop data may have reached the flash before the inode with the new size;
    /// the size then follows the data.
    pub(crate) mend_sizes: bool,
    /// The entries are all nodes found, not just the journal's: data older than a file's last inode
    /// node says nothing about its size.
    pub(crate) rebuilt: bool,
}

/// Applies `entries`, sorted by sequence number.
pub(crate) fn apply<V: Volume>(store: &mut Store<V>, entries: &[Entry], mode: Mode) {
    let reborn = reborn(entries);
    let mut sizes: BTreeMap<u32, Seen> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        let inode = entry.key.inode();
        match &entry.change {
            Change::Inode { size } => {
                store.overlay.set(entry.key, entry.at);
                let seen = sizes.entry(inode).or_default();
                seen.inode = Some(*size);
                if mode.rebuilt {
                    seen.data = 0;
                }
            }
            Change::Unlinked => {
                sizes.remove(&inode);
                // A file made without a name (O_TMPFILE) may get one later.
                if !reborn.contains(&at) {
                    store.remove_inode(inode);
                }
            }
            Change::Data { end } => {
                store.overlay.set(entry.key, entry.at);
                let seen = sizes.entry(inode).or_default();
                seen.data = seen.data.max(*end);
            }
            Change::Name { name, gone } => {
                store.overlay.set_name(entry.key, name, (!gone).then_some(entry.at));
            }
            Change::Truncate { old_size, new_size } => {
                if let Some((first, last)) = truncated_blocks(*old_size, *new_size) {
                    store.overlay.remove(Key::data(inode, first), Key::data(inode, last));
                }
                sizes.entry(inode).or_default().data = *new_size;
            }
        }
    }
    if mode.mend_sizes {
        mend_sizes(store, sizes);
    }
}

/// Which deletions of an inode are followed by an inode node with links.
fn reborn(entries: &[Entry]) -> BTreeSet<usize> {
    let mut linked: BTreeMap<u32, bool> = BTreeMap::new();
    let mut reborn = BTreeSet::new();
    for (at, entry) in entries.iter().enumerate().rev() {
        match entry.change {
            Change::Inode { .. } => {
                linked.entry(entry.key.inode()).or_insert(true);
            }
            Change::Unlinked if *linked.entry(entry.key.inode()).or_insert(false) => {
                reborn.insert(at);
            }
            _ => {}
        }
    }
    reborn
}

fn mend_sizes<V: Volume>(store: &mut Store<V>, sizes: BTreeMap<u32, Seen>) {
    let mut without_inode = Vec::new();
    for (inode, seen) in sizes {
        let size = match seen.inode {
            Some(size) => Some(size),
            None => match store.find(Key::inode_node(inode)) {
                Ok(Some(at)) => {
                    let mut scratch = Scratch::new();
                    store.inode(inode, at, &mut scratch).ok().map(|node| node.size)
                }
                Ok(None) => {
                    // The data was written but the inode was not: the file was never created.
                    without_inode.push(inode);
                    None
                }
                Err(_) => None,
            },
        };
        if size.is_some_and(|size| size < seen.data) {
            store.sizes.insert(inode, seen.data);
        }
    }
    for inode in without_inode {
        store.remove_inode(inode);
    }
}
