//! Extended attributes: a node with the value, and one that says which inode has it.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Flash, FlashMut};
use flysch_api::vfs::{Error, Timestamp, XattrChange};
use flysch_wire::jffs2::{Xattr, XattrPrefix, Xref};

use super::Jffs2Mut;
use super::log::{NewNode, Purpose, Room};
use super::space::Kind;
use super::tables::{XattrState, XrefState};
use crate::found::XattrRef;
use crate::xattr::{ACCESS_LIST, Attribute, acl_with_permissions, read_attribute, stored_form};

impl<F: Flash> Jffs2Mut<F> {
    /// The attribute with this number; `None` if its namespace is not known.
    pub(crate) fn attribute(&self, xid: u32) -> Result<Option<Attribute>, Error> {
        let place = Default::default();
        let lost = Error::Damaged { structure: "reference to a lost attribute", place };
        let XattrState { version, address, total_len, .. } =
            *self.tables.xattrs.get(&xid).ok_or(lost)?;
        let found = XattrRef { xid, version, address, total_len };
        read_attribute(&self.medium, self.order, &found)
    }

    /// Of references to attributes of one name the newest counts: its number and the value, with
    /// the numbers of all.
    #[expect(clippy::type_complexity, reason = "a pair, and what else was found")]
    pub(crate) fn find_xattr(
        &self,
        ino: u32,
        name: &[u8],
    ) -> Result<(Option<(u32, Vec<u8>)>, Vec<u32>), Error> {
        let mut newest: Option<(u32, Vec<u8>)> = None;
        let mut all = vec![];
        let mut failed = None;
        for (xid, xref) in self.tables.xrefs_of(ino) {
            match self.attribute(xid) {
                Ok(Some(xattr)) if xattr.name == name => {
                    all.push(xid);
                    if newest.as_ref().is_none_or(|(xseqno, _)| xref.xseqno > *xseqno) {
                        newest = Some((xref.xseqno, xattr.value));
                    }
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        // If none was found, the damaged one may have been it.
        match (newest, failed) {
            (None, Some(error)) => Err(error),
            (newest, _) => Ok((newest, all)),
        }
    }
}

impl<F: FlashMut> Jffs2Mut<F> {
    pub(crate) fn change_xattr(
        &mut self,
        ino: u32,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let (newest, all) = self.find_xattr(ino, name)?;
        let value = match (change, newest.is_some()) {
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
        all.iter().for_each(|_| room = room.and(xref));
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
        for xid in all {
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
        let Ok((Some((_, list)), _)) = self.find_xattr(ino, ACCESS_LIST) else { return Ok(()) };
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
