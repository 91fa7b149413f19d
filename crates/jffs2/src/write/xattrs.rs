//! Extended attributes: a node with the value, and one that says which inode has it.

use alloc::vec;

use flysch_api::flash::FlashMut;
use flysch_api::vfs::{Error, Timestamp, XattrChange};
use flysch_wire::jffs2::{Xattr, XattrPrefix, Xref};

use super::Jffs2Mut;
use super::log::{NewNode, Purpose, Room};
use super::space::Kind;
use super::tables::{XattrState, XrefState};
use crate::read::View;
use crate::xattr::{ACCESS_LIST, acl_with_permissions, stored_form};

impl<F: FlashMut> Jffs2Mut<F> {
    pub(crate) fn change_xattr(
        &mut self,
        ino: u32,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let found = View(self).find_xattr(ino, name)?;
        let value = match (change, found.value.is_some()) {
            (XattrChange::Create(_), true) => return Err(Error::Exists),
            (XattrChange::Replace(_) | XattrChange::Remove, false) => return Err(Error::NotFound),
            (XattrChange::Remove, true) => None,
            (
                XattrChange::Set(value) | XattrChange::Create(value) | XattrChange::Replace(value),
                _,
            ) => Some(stored_form(name, value, self.order).map_err(Error::Invalid)?),
        };
        let metadata = self.metadata_room(ino)?;
        let mut room = metadata;
        let xref = Room { nodes: Xref::LEN as u32, entries: 6 };
        found.xids.iter().for_each(|_| room = room.and(xref));
        if let Some((_, name, value)) = &value {
            let nodes = Xattr::node_len(name.len(), value.len()) as u32;
            room = room.and(xref).and(Room { nodes, entries: 18 });
            // Nodes do not cross blocks.
            let block = self.blocks.geometry.erase_size - self.medium.marker_len();
            if room.nodes + room.entries + 64 > block {
                return Err(Error::Invalid("an extended attribute must fit into an erase block"));
            }
        }
        let purpose = if value.is_some() { Purpose::Change } else { Purpose::Removal };
        self.reserve(room, purpose)?;
        if let Some((prefix, name, value)) = value {
            self.append_xattr(ino, prefix, &name, &value)?;
        }
        for xid in found.xids {
            self.append_xref(ino, xid, true)?;
        }
        self.append_change(ino, now)
    }

    /// The access list of an inode, if it has one, follows its permissions, as in Linux's
    /// `posix_acl_chmod`.
    pub(crate) fn follow_permissions(
        &mut self,
        ino: u32,
        permissions: u16,
        now: Timestamp,
    ) -> Result<(), Error> {
        // One that cannot be read says nothing.
        let found = View(self).find_xattr(ino, ACCESS_LIST).ok();
        let Some(list) = found.and_then(|found| found.value) else { return Ok(()) };
        match acl_with_permissions(&list, permissions) {
            Some(new) if new != list => {
                self.change_xattr(ino, ACCESS_LIST, XattrChange::Replace(&new), now)
            }
            _ => Ok(()),
        }
    }

    fn append_xattr(
        &mut self,
        ino: u32,
        prefix: XattrPrefix,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), Error> {
        let xid = self.tables.next_xid;
        let none = Error::Unsupported("an attribute number beyond 32 bits");
        self.tables.next_xid = xid.checked_add(1).ok_or(none)?;
        let xattr = Xattr { xid, version: 1, prefix, name_len: 0, value_len: 0, data_crc: 0 };
        let mut bytes = vec![0; Xattr::node_len(name.len(), value.len())];
        xattr.emit(name, value, self.order, &mut bytes);
        let new = NewNode { kind: Kind::Xattr, owner: xid, tag: 1 };
        let address = self.append(&bytes, new)?;
        let total_len = bytes.len() as u32;
        let state = XattrState { version: 1, address, total_len, inodes: 0 };
        self.tables.xattrs.insert(xid, state);
        self.append_xref(ino, xid, false)
    }

    /// Appends that an inode has an attribute, or has it no more.
    fn append_xref(&mut self, ino: u32, xid: u32, is_removal: bool) -> Result<(), Error> {
        let none = Error::Unsupported("a sequence number beyond 32 bits");
        self.tables.xseqno = self.tables.xseqno.checked_add(2).ok_or(none)?;
        let xseqno = self.tables.xseqno | if is_removal { Xref::DELETE_MARKER } else { 0 };
        let mut bytes = [0; Xref::LEN];
        Xref { ino, xid, xseqno }.emit(self.order, &mut bytes);
        let kind = if is_removal { Kind::XrefRemoval } else { Kind::Xref };
        let address = self.append(&bytes, NewNode { kind, owner: ino, tag: xid })?;
        // What this one says stands before what it replaces goes.
        self.drop_xref(ino, xid);
        if !is_removal && let Some(xattr) = self.tables.xattrs.get_mut(&xid) {
            xattr.inodes += 1;
        }
        self.tables.xrefs.insert((ino, xid), XrefState { xseqno, address, is_removal });
        Ok(())
    }

    /// A reference counts no more; the attribute goes with the last one.
    pub(crate) fn drop_xref(&mut self, ino: u32, xid: u32) {
        let Some(old) = self.tables.xrefs.remove(&(ino, xid)) else { return };
        self.kill(old.address);
        if old.is_removal {
            return;
        }
        if let Some(xattr) = self.tables.xattrs.get_mut(&xid) {
            xattr.inodes = xattr.inodes.saturating_sub(1);
            if xattr.inodes == 0 {
                let address = xattr.address;
                self.tables.xattrs.remove(&xid);
                self.kill(address);
            }
        }
    }
}
