//! Content, attributes and extended attributes of files.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Flash, FlashMut};
use flysch_api::vfs::{Changes, FileFlags, FsError, Timestamp, XattrChange};
use flysch_wire::jffs2::{Inode, Xattr, XattrPrefix, Xref};

use super::PAGE_SIZE;
use super::collector::{Collector, DATA_LEN_MIN, Purpose};
use super::inodes::Inodes;
use super::log::Room;
use super::medium::Medium;
use crate::create::clamp_time;
use crate::read::{Attributes, View};
use crate::xattr::{ACCESS_LIST, acl_with_permissions, stored_form};

/// Longest file, bytes.
const FILE_LEN_MAX: u64 = u32::MAX as u64;

/// Owners and groups have 16 bits.
pub(crate) fn id(id: u32) -> Result<u16, FsError> {
    u16::try_from(id)
        .map_err(|_| FsError::Invalid("JFFS2 keeps owners and groups only up to 65535"))
}

/// The page of a file to which data is being appended, from its beginning on: when it is full it is
/// written as one node, without reading the many small nodes again.
#[derive(Debug, Default)]
pub(super) struct Growing {
    ino: u32,
    page: u32,
    bytes: Vec<u8>,
}

impl Growing {
    fn begin(&mut self, ino: u32, page: u32) {
        (self.ino, self.page) = (ino, page);
        self.bytes.clear();
    }

    /// Whether the cached part ends where the next piece begins.
    fn ends_at(&self, ino: u32, at: u32) -> bool {
        self.ino == ino && !self.bytes.is_empty() && self.page + self.bytes.len() as u32 == at
    }
}

/// Room for a node that records that an inode has an attribute, or had it.
const XREF_ROOM: Room = Room { nodes: Xref::LEN as u32, entries: 6 };

/// A change of an extended attribute that is about to be written.
pub(super) struct XattrPlan {
    /// The new one, as the nodes store it; none to remove the attribute.
    value: Option<(XattrPrefix, Vec<u8>, Vec<u8>)>,
    /// Numbers of the attributes that it replaces.
    xids: Vec<u32>,
    /// Room for the nodes of the attribute; the node with the time of change comes on top.
    pub(super) room: Room,
}

/// All files, by number.
#[derive(Debug)]
pub(super) struct Files<F> {
    pub(super) collector: Collector<F>,
    growing: Growing,
}

impl<F: Flash> Files<F> {
    pub(super) fn new(collector: Collector<F>) -> Self {
        Self { collector, growing: Growing::default() }
    }

    pub(super) fn into_medium(self) -> Medium<F> {
        self.collector.into_medium()
    }

    pub(super) fn inodes(&self) -> &Inodes<F> {
        &self.collector.inodes
    }

    pub(super) fn inodes_mut(&mut self) -> &mut Inodes<F> {
        &mut self.collector.inodes
    }
}

impl<F: FlashMut> Files<F> {
    /// Writes `data` at `offset`; returns the number of bytes accepted.
    pub(super) fn write_file(
        &mut self,
        ino: u32,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, FsError> {
        self.inodes().check_regular(ino)?;
        if data.is_empty() {
            return Ok(0);
        }
        let left = FILE_LEN_MAX.saturating_sub(offset);
        if left == 0 {
            return Err(FsError::FileTooLarge);
        }
        let data = &data[..data.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        let offset = offset as u32;
        let before = self.inodes_mut().loaded_mut(ino)?.attributes;
        if offset > before.size {
            let room = Room::inode(0).and(Room::inode(data.len().min(DATA_LEN_MIN as usize)));
            self.collector.reserve(room, Purpose::Change)?;
            self.inodes_mut().set_times(ino, now)?;
            self.inodes_mut().append_hole(ino, before.size, offset)?;
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u32;
            let page_end = (u64::from(at) / u64::from(PAGE_SIZE) + 1) * u64::from(PAGE_SIZE);
            let len = ((page_end - u64::from(at)) as usize).min(data.len() - done);
            let piece = &data[done..done + len];
            match self.write_piece(ino, at, piece, now) {
                Ok(accepted) => {
                    done += accepted;
                    if accepted < len {
                        break;
                    }
                }
                Err(FsError::NoSpace) if done > 0 => break,
                Err(error) => {
                    if done == 0 && offset > before.size {
                        // Nothing of the call was done, the hole neither.
                        let size = self.inodes_mut().loaded_mut(ino)?.attributes.size;
                        self.inodes_mut().loaded_mut(ino)?.attributes =
                            Attributes { size, ..before };
                        self.resize(ino, before.size, Purpose::Removal)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// Writes a piece within one page. If it reaches the end of the page, the page is written as
    /// one node, because it will be read as one. Returns the number of bytes accepted.
    pub(super) fn write_piece(
        &mut self,
        ino: u32,
        at: u32,
        piece: &[u8],
        now: Timestamp,
    ) -> Result<usize, FsError> {
        let room = Room::inode(piece.len().min(DATA_LEN_MIN as usize));
        let left = self.collector.reserve(room, Purpose::Change)?;
        let page = at / PAGE_SIZE * PAGE_SIZE;
        // What already exists is only written again if that takes no second node.
        let fits = left as usize >= Inode::LEN + PAGE_SIZE as usize;
        let reaches_end = at as usize - page as usize + piece.len() == PAGE_SIZE as usize;
        let before = self.inodes_mut().loaded_mut(ino)?.attributes;
        let mut growing = core::mem::take(&mut self.growing);
        let is_known = at == page || growing.ends_at(ino, at);
        if at == page {
            growing.begin(ino, page);
        }
        let mut whole = vec![];
        let mut start = at;
        if at > page && reaches_end && fits && at <= before.size {
            let is_there = if is_known {
                core::mem::swap(&mut whole, &mut growing.bytes);
                true
            } else {
                whole.resize((at - page) as usize, 0);
                self.inodes().read_file(ino, page, &mut whole) == Ok(whole.len())
            };
            if is_there {
                whole.extend_from_slice(piece);
                start = page;
            }
        }
        let bytes = if start == page && at > page { &whole[..] } else { piece };
        self.inodes_mut().set_times(ino, now)?;
        let result = self.collector.write_page(ino, start, bytes, Purpose::Change);
        if result.is_err()
            && let Ok(loaded) = self.inodes_mut().loaded_mut(ino)
        {
            loaded.attributes = before;
        }
        let accepted = (result? - (at - start) as usize).min(piece.len());
        if is_known && !reaches_end {
            growing.bytes.extend_from_slice(&piece[..accepted]);
            self.growing = growing;
        }
        Ok(accepted)
    }

    /// Truncates a file, or extends it by a hole.
    pub(super) fn resize(&mut self, ino: u32, size: u32, purpose: Purpose) -> Result<(), FsError> {
        self.collector.reserve(Room::inode(0), purpose)?;
        self.set_size(ino, size)
    }

    /// The same with one node, for which there must be room.
    fn set_size(&mut self, ino: u32, size: u32) -> Result<(), FsError> {
        self.growing.begin(0, 0);
        let old = self.inodes_mut().loaded_mut(ino)?.attributes.size;
        if size > old {
            return self.inodes_mut().append_hole(ino, old, size);
        }
        self.inodes_mut().loaded_mut(ino)?.attributes.size = size;
        self.inodes_mut().append_metadata(ino)?;
        let gone = self.inodes_mut().loaded_mut(ino)?.cut(size, u32::MAX);
        self.collector.nodes_mut().kill_nodes(ino, gone);
        Ok(())
    }

    pub(super) fn change_attributes(
        &mut self,
        ino: u32,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), FsError> {
        if changes.flags.is_some_and(|flags| flags != FileFlags::default()) {
            return Err(FsError::Unsupported("JFFS2 has no flags"));
        }
        let before = self.inodes_mut().loaded_mut(ino)?.attributes;
        let mut after = before;
        if let Some(permissions) = changes.permissions {
            after.mode = before.mode & !0o7777 | u32::from(permissions & 0o7777);
        }
        if let Some(owner) = changes.owner {
            after.uid = id(owner)?;
        }
        if let Some(group) = changes.group {
            after.gid = id(group)?;
        }
        let mut size = None;
        if let Some(wanted) = changes.size {
            self.inodes().check_regular(ino)?;
            size = Some(u32::try_from(wanted).map_err(|_| FsError::FileTooLarge)?);
            after.mtime = clamp_time(now);
        }
        after.atime = changes.accessed.map_or(after.atime, clamp_time);
        after.mtime = changes.modified.map_or(after.mtime, clamp_time);
        after.ctime = clamp_time(now);
        let list = changes.permissions.map(|permissions| self.plan_access_list(ino, permissions));
        let list = list.transpose()?.flatten();
        let shrinks = size.is_some_and(|size| size < before.size);
        let purpose = if shrinks { Purpose::Removal } else { Purpose::Change };
        // For everything at once: nothing may fail after the first node.
        let room = self.inodes().metadata_room(ino)?;
        let room = list.iter().fold(room, |room, list| room.and(list.room));
        self.inodes().tables().check_versions(ino, 1)?;
        self.collector.reserve(room, purpose)?;
        let list = list.map_or(Ok(()), |list| self.write_xattr(ino, list));
        self.inodes_mut().loaded_mut(ino)?.attributes = after;
        let result = list.and_then(|()| match size.filter(|size| *size != before.size) {
            Some(size) => self.set_size(ino, size),
            None => self.inodes_mut().append_metadata(ino),
        });
        if result.is_err()
            && let Ok(loaded) = self.inodes_mut().loaded_mut(ino)
        {
            loaded.attributes = before;
        }
        result
    }

    pub(super) fn change_xattr(
        &mut self,
        ino: u32,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), FsError> {
        let plan = self.plan_xattr(ino, name, change)?;
        let room = plan.room.and(self.inodes().metadata_room(ino)?);
        let purpose = if plan.value.is_some() { Purpose::Change } else { Purpose::Removal };
        self.inodes().tables().check_versions(ino, 1)?;
        self.collector.reserve(room, purpose)?;
        self.write_xattr(ino, plan)?;
        self.inodes_mut().append_change(ino, now)
    }

    fn plan_xattr(
        &self,
        ino: u32,
        name: &[u8],
        change: XattrChange<'_>,
    ) -> Result<XattrPlan, FsError> {
        let found = View(self.inodes()).find_xattr(ino, name)?;
        let mut plan = match (change, found.value.is_some()) {
            (XattrChange::Create(_), true) => return Err(FsError::Exists),
            (XattrChange::Replace(_) | XattrChange::Remove, false) => {
                return Err(FsError::NoAttribute);
            }
            (XattrChange::Remove, true) => {
                XattrPlan { value: None, xids: vec![], room: Room::default() }
            }
            (
                XattrChange::Set(value) | XattrChange::Create(value) | XattrChange::Replace(value),
                _,
            ) => self.plan_new_xattr(name, value)?,
        };
        found.xids.iter().for_each(|_| plan.room = plan.room.and(XREF_ROOM));
        plan.xids = found.xids;
        if plan.value.is_some() {
            self.check_block(plan.room.and(self.inodes().metadata_room(ino)?))?;
        }
        Ok(plan)
    }

    /// An attribute for an inode that does not have it.
    pub(super) fn plan_new_xattr(&self, name: &[u8], value: &[u8]) -> Result<XattrPlan, FsError> {
        let stored = stored_form(name, value, self.inodes().log().order);
        let (prefix, name, value) = stored.map_err(FsError::Invalid)?;
        let room = XREF_ROOM.and(Room::xattr(Xattr::node_len(name.len(), value.len())));
        Ok(XattrPlan { value: Some((prefix, name, value)), xids: vec![], room })
    }

    /// Returns an error if nodes with an attribute do not fit into a block: what belongs together
    /// does not cross blocks.
    pub(super) fn check_block(&self, room: Room) -> Result<(), FsError> {
        let log = self.inodes().log();
        let block = log.blocks.geometry.erase_size - log.medium.marker_len();
        if room.nodes + room.entries + 64 > block {
            return Err(FsError::Invalid("an extended attribute must fit into an erase block"));
        }
        Ok(())
    }

    /// Writes the nodes of a change, for which there must be room. The new value comes before the
    /// old one goes: of two that a power cut leaves, the newer counts.
    pub(super) fn write_xattr(&mut self, ino: u32, plan: XattrPlan) -> Result<(), FsError> {
        if let Some((prefix, name, value)) = plan.value {
            self.inodes_mut().append_xattr(ino, prefix, &name, &value)?;
        }
        for xid in plan.xids {
            self.inodes_mut().append_xref(ino, xid, true)?;
        }
        Ok(())
    }

    /// The change that makes the access list of an inode match its permissions, as Linux's
    /// `posix_acl_chmod` does; `None` if it has no list, or one that matches.
    fn plan_access_list(&self, ino: u32, permissions: u16) -> Result<Option<XattrPlan>, FsError> {
        let found = match View(self.inodes()).find_xattr(ino, ACCESS_LIST) {
            Ok(found) => found,
            Err(error @ FsError::Medium { .. }) => return Err(error),
            // One that is damaged says nothing.
            Err(_) => return Ok(None),
        };
        let Some(list) = found.value else { return Ok(None) };
        match acl_with_permissions(&list, permissions) {
            Some(new) if new != list => {
                self.plan_xattr(ino, ACCESS_LIST, XattrChange::Replace(&new)).map(Some)
            }
            _ => Ok(None),
        }
    }
}
