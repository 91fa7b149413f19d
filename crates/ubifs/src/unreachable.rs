//! Files that no path leads to: their names, or those of a directory above them, are lost.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::{FileKind, Inode};
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{EntryKind, InodeFlags, Key, KeyKind, ROOT_INODE};

use crate::access::Scratch;
use crate::open::Ubifs;

/// What is known of an inode's reachability.
struct Seen {
    kind: Option<FileKind>,
    named: bool,
}

impl<V: Volume> Ubifs<V> {
    /// Files that lost their names, so that they can be saved elsewhere. The content of a lost
    /// directory comes with the directory.
    ///
    /// Reads every inode and every name. Deleted files that were still open are not among them.
    pub fn unreachable(&self) -> Vec<(Inode, FileKind)> {
        let mut seen = BTreeMap::new();
        let mut scratch = Scratch::new();
        // Damage is reported by opening or the check; only what can be read counts here.
        let _ = self.store.nodes(Key::MIN, Key::MAX, &mut |key, at| {
            if key.kind() == KeyKind::Inode
                && let Ok(node) = self.store.inode(key.inode(), at, &mut scratch)
                && !node.flags.contains(InodeFlags::XATTR)
                && node.links != 0
            {
                let kind = FileKind::from_mode(node.mode);
                seen.insert(key.inode(), Seen { kind, named: false });
            }
            ControlFlow::Continue(())
        });
        let _ = self.store.names_between(Key::MIN, Key::MAX, &mut |name| {
            if let Ok(entry) = &name.entry
                && entry.kind == EntryKind::Directory
            {
                // Names in a directory whose inode is lost show that it is one.
                let ruined = Seen { kind: Some(FileKind::Directory), named: false };
                seen.entry(name.key.inode()).or_insert(ruined);
                if let Ok(inode) = u32::try_from(entry.inode) {
                    let target = Seen { kind: None, named: false };
                    seen.entry(inode).or_insert(target).named = true;
                }
            }
            ControlFlow::Continue(())
        });
        let lost = seen.into_iter().filter(|(inode, seen)| *inode != ROOT_INODE && !seen.named);
        lost.filter_map(|(inode, seen)| Some((Inode(inode.into()), seen.kind?))).collect()
    }
}
