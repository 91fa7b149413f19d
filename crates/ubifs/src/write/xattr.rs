//! Extended attributes: an entry below the file, and an inode for the value.

use flysch_api::vfs::{FsError, Timestamp, XattrChange};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    Compression, EntryKind, INLINE_DATA_MAX, INODE_NODE_SIZE, InodeFlags, InodeNode, Key, NAME_MAX,
};

use super::UbifsMut;
use super::budget::{INODE_COST, Need};
use super::cache::Record;
use super::inode::stamp;
use super::names::entry_cost;
use super::operation::Operation;
use crate::file::entry_size;

/// Largest total length of a file's attribute names (`XATTR_LIST_MAX`).
const LIST_MAX: u64 = 65_536;

/// Bytes a value adds to its file's `xattr_size` (`CALC_XATTR_BYTES`).
pub(super) fn value_size(length: usize) -> u32 {
    (INODE_NODE_SIZE + length + 1).next_multiple_of(8) as u32
}

fn check_attribute(name: &[u8]) -> Result<(), FsError> {
    if name.len() > NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    let spaces = [&b"user."[..], b"trusted.", b"security."];
    let known = spaces.iter().any(|space| name.starts_with(space) && name.len() > space.len());
    if known && !name.contains(&0) {
        return Ok(());
    }
    Err(FsError::Invalid("UBIFS holds only user., trusted. and security. attributes"))
}

impl<V: VolumeMut> UbifsMut<V> {
    pub(super) fn change_xattr(
        &mut self,
        number: u64,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.files.disk.writable()?;
        let mut host = self.files.load(number)?;
        check_attribute(name)?;
        let found = self.files.disk.fs.store.find_name(EntryKind::Xattr, host.number(), name)?;
        let old = match found {
            Some((_, inode, _)) => Some(self.files.load_any(crate::store::number(inode)?)?),
            None => None,
        };
        host.node.changed = stamp(now);
        match (change, old) {
            (XattrChange::Create(_), Some(_)) => Err(FsError::Exists),
            (XattrChange::Replace(_) | XattrChange::Remove, None) => Err(FsError::NoAttribute),
            (XattrChange::Remove, Some(old)) => self.remove_xattr(host, name, old),
            (XattrChange::Set(value) | XattrChange::Replace(value), Some(old)) => {
                self.replace_xattr(host, old, value, now)
            }
            (XattrChange::Set(value) | XattrChange::Create(value), None) => {
                self.add_xattr(host, name, value, now)
            }
        }
    }

    fn check_value(value: &[u8]) -> Result<(), FsError> {
        if value.len() > INLINE_DATA_MAX {
            return Err(FsError::Invalid("an attribute's value can have at most 4096 bytes"));
        }
        Ok(())
    }

    fn add_xattr(
        &mut self,
        mut host: Record,
        name: &[u8],
        value: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        Self::check_value(value)?;
        let most = (self.files.disk.store().leb_size() as usize / 2 / INODE_NODE_SIZE)
            .min(usize::from(u16::MAX));
        let node = &mut host.node;
        let names = u64::from(node.xattr_names) + u64::from(node.xattr_count) + name.len() as u64;
        if node.xattr_count as usize >= most || names + 1 > LIST_MAX {
            return Err(FsError::NoSpace);
        }
        node.xattr_count += 1;
        node.xattr_size += entry_size(name) as u32 + value_size(value.len());
        node.xattr_names += name.len() as u32;
        let bytes = entry_cost(name) + INODE_COST + value.len() as u64 + 8 + host.cost();
        self.files.claim(Need { bytes, leaves: 2 })?;
        let number = self.files.disk.numbers.inode()?;
        let sync = host.node.flags.0 & InodeFlags::SYNC.0;
        let inode = Record::new(&InodeNode {
            key: Key::inode_node(number),
            creation_sequence: self.files.disk.fs.store.access.volume.sequence + 1,
            size: value.len() as u64,
            accessed: stamp(now),
            changed: stamp(now),
            modified: stamp(now),
            links: 1,
            owner: host.node.owner,
            group: host.node.group,
            mode: 0o100_777,
            flags: InodeFlags(sync | InodeFlags::XATTR.0),
            xattr_count: 0,
            xattr_size: 0,
            xattr_names: 0,
            compression: Compression::None,
            data: value,
        });
        let entry = self.entry(EntryKind::Xattr, host.number(), name, (number, 0));
        let mut operation = Operation::new();
        operation.entry(entry).inode(&inode).inode(&host);
        self.perform(operation)
    }

    fn replace_xattr(
        &mut self,
        mut host: Record,
        mut inode: Record,
        value: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        Self::check_value(value)?;
        let size = host.node.xattr_size.saturating_sub(value_size(inode.data.len()));
        host.node.xattr_size = size + value_size(value.len());
        inode.data = value.into();
        inode.node.size = value.len() as u64;
        (inode.node.modified, inode.node.changed) = (stamp(now), stamp(now));
        self.files.claim(Need { bytes: host.cost() + inode.cost(), leaves: 0 })?;
        let mut operation = Operation::new();
        operation.inode(&host).inode(&inode);
        self.perform(operation)
    }

    fn remove_xattr(
        &mut self,
        mut host: Record,
        name: &[u8],
        mut inode: Record,
    ) -> Result<(), FsError> {
        let node = &mut host.node;
        node.xattr_count = node.xattr_count.saturating_sub(1);
        let size = entry_size(name) as u32 + value_size(inode.data.len());
        node.xattr_size = node.xattr_size.saturating_sub(size);
        node.xattr_names = node.xattr_names.saturating_sub(name.len() as u32);
        // The value is deleted with its inode; the node that records this carries none of it.
        inode.node.links = 0;
        inode.data.clear();
        inode.node.size = 0;
        let bytes = entry_cost(name) + INODE_COST + host.cost();
        self.files.claim_for_removal(Need { bytes, leaves: 0 })?;
        let entry = self.entry(EntryKind::Xattr, host.number(), name, (0, 0));
        let mut operation = Operation::new();
        operation.entry(entry).deleted(&inode).inode(&host);
        self.perform(operation)
    }
}
