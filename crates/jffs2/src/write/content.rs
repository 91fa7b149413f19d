//! Content and attributes of files.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Flash, FlashMut};
use flysch_api::vfs::{Changes, Error, FileFlags, FileKind, Timestamp};
use flysch_wire::jffs2::{Compression, Inode};

use super::gc::DATA_LEN_MIN;
use super::loaded::{Part, What};
use super::log::{Purpose, Room};
use super::{Jffs2Mut, PAGE_SIZE};
use crate::create::clamp_time;
use crate::read::{Attributes, Catalog, View, kind};

/// Longest file, bytes.
const FILE_LEN_MAX: u64 = u32::MAX as u64;

/// Owners and groups have 16 bits.
pub(crate) fn id(id: u32) -> Result<u16, Error> {
    u16::try_from(id).map_err(|_| Error::Invalid("JFFS2 keeps owners and groups to 65535"))
}

/// The page of a file that is being appended to, as it was written from its begin on: when it is
/// full it is written as one node, and what many small ones hold need not be read for that.
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

    /// Whether what is known ends where the next piece begins.
    fn ends_at(&self, ino: u32, at: u32) -> bool {
        self.ino == ino && !self.bytes.is_empty() && self.page + self.bytes.len() as u32 == at
    }
}

impl<F: Flash> Jffs2Mut<F> {
    /// Reads a regular file from `offset` to the end of `buffer`, which lies within the file.
    /// Returns how much was read before something damaged, or the error when nothing was.
    pub(crate) fn read_file(
        &self,
        ino: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        let inode = self.inode(ino).ok_or(Error::NotFound)?;
        View(self).read_content(inode, &self.told(inode)?, offset, buffer)
    }

    /// The kind of an inode.
    pub(crate) fn kind(&self, ino: u32) -> Result<FileKind, Error> {
        kind(&self.medium, &self.loaded(ino)?.told())
    }

    pub(crate) fn check_regular(&self, ino: u32) -> Result<(), Error> {
        let inode = self.inode(ino).ok_or(Error::NotFound)?;
        View(self).regular(inode).map(drop)
    }
}

impl<F: FlashMut> Jffs2Mut<F> {
    /// Writes `data` at `offset`; returns how much was accepted.
    pub(crate) fn write_file(
        &mut self,
        ino: u32,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, Error> {
        self.check_regular(ino)?;
        if data.is_empty() {
            return Ok(0);
        }
        let left = FILE_LEN_MAX.saturating_sub(offset);
        if left == 0 {
            return Err(Error::FileTooLarge);
        }
        let data = &data[..data.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        let offset = offset as u32;
        let before = self.loaded_mut(ino)?.attributes;
        if offset > before.size {
            let room = Room::inode(0).and(Room::inode(data.len().min(DATA_LEN_MIN as usize)));
            self.reserve(room, Purpose::Change)?;
            self.set_times(ino, now)?;
            self.append_hole(ino, before.size, offset)?;
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
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => {
                    if done == 0 && offset > before.size {
                        // Nothing of the call was done, the hole neither.
                        let size = self.loaded_mut(ino)?.attributes.size;
                        self.loaded_mut(ino)?.attributes = Attributes { size, ..before };
                        self.resize(ino, before.size, Purpose::Removal)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    fn set_times(&mut self, ino: u32, now: Timestamp) -> Result<(), Error> {
        let attributes = &mut self.loaded_mut(ino)?.attributes;
        attributes.mtime = clamp_time(now);
        attributes.ctime = clamp_time(now);
        Ok(())
    }

    /// Writes a piece within one page. When it reaches the end of the page, the page is written as
    /// one node: it will be read as one. Returns how much was accepted.
    fn write_piece(
        &mut self,
        ino: u32,
        at: u32,
        piece: &[u8],
        now: Timestamp,
    ) -> Result<usize, Error> {
        let room = Room::inode(piece.len().min(DATA_LEN_MIN as usize));
        let left = self.reserve(room, Purpose::Change)?;
        let page = at / PAGE_SIZE * PAGE_SIZE;
        // What is there already is only written again if that takes no second node.
        let fits = left as usize >= Inode::LEN + PAGE_SIZE as usize;
        let reaches_end = at as usize - page as usize + piece.len() == PAGE_SIZE as usize;
        let before = self.loaded_mut(ino)?.attributes;
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
                self.read_file(ino, page, &mut whole) == Ok(whole.len())
            };
            if is_there {
                whole.extend_from_slice(piece);
                start = page;
            }
        }
        let bytes = if start == page && at > page { &whole[..] } else { piece };
        self.set_times(ino, now)?;
        let result = self.write_page(ino, start, bytes, Purpose::Change);
        if result.is_err()
            && let Ok(loaded) = self.loaded_mut(ino)
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

    /// Writes bytes within one page of a file, in one node if they fit into the current block, else
    /// in several. Makes the file longer if they reach beyond its end. Returns how much was written
    /// before space ran out, at least one byte.
    pub(crate) fn write_page(
        &mut self,
        ino: u32,
        start: u32,
        bytes: &[u8],
        purpose: Purpose,
    ) -> Result<usize, Error> {
        if purpose == Purpose::Change && bytes.iter().all(|&byte| byte == 0) {
            self.reserve(Room::inode(0), purpose)?;
            self.append_hole(ino, start, start + bytes.len() as u32)?;
            return Ok(bytes.len());
        }
        let mut at = start;
        let mut rest = bytes;
        while !rest.is_empty() {
            let least = Room::inode(rest.len().min(DATA_LEN_MIN as usize));
            let room = match self.reserve(least, purpose) {
                Err(Error::NoSpace) if at > start && purpose == Purpose::Change => break,
                other => other?,
            };
            let mut packer = core::mem::replace(
                &mut self.packer,
                crate::compressor::Packer::new(crate::compressor::Compressors::none()),
            );
            let packed = packer.pack(rest, room as usize - Inode::LEN);
            let result = self.append_data(ino, at, packed);
            let len = packed.len;
            self.packer = packer;
            result?;
            at += len as u32;
            rest = &rest[len..];
        }
        Ok((at - start) as usize)
    }

    fn append_data(
        &mut self,
        ino: u32,
        at: u32,
        packed: crate::compressor::Packed<'_>,
    ) -> Result<(), Error> {
        let version = self.next_version(ino)?;
        let end = at + packed.len as u32;
        let loaded = self.loaded_mut(ino)?;
        loaded.attributes.size = loaded.attributes.size.max(end);
        let mut inode = loaded.attributes.node(ino, version);
        inode.offset = at;
        inode.dsize = packed.len as u32;
        inode.compression = packed.compression;
        self.append_part(&inode, packed.stored, end, What::Data)
    }

    /// Appends a node that says that there is nothing but zeros from `start` to `end`.
    fn append_hole(&mut self, ino: u32, start: u32, end: u32) -> Result<(), Error> {
        let version = self.next_version(ino)?;
        let loaded = self.loaded_mut(ino)?;
        loaded.attributes.size = loaded.attributes.size.max(end);
        let mut inode = loaded.attributes.node(ino, version);
        inode.offset = start;
        inode.dsize = end - start;
        inode.compression = Compression::Zero;
        self.append_part(&inode, &[], end, What::Hole)
    }

    fn append_part(
        &mut self,
        inode: &Inode,
        stored: &[u8],
        end: u32,
        what: What,
    ) -> Result<(), Error> {
        let address = self.append_inode(inode, stored)?;
        *self.loaded.get_mut() += 1;
        let (start, version) = (inode.offset, inode.version);
        let total_len = (Inode::LEN + stored.len()) as u32;
        let part = Part { end, node_start: start, address, version, total_len, what };
        let gone = self.loaded_mut(inode.ino)?.lay(start, part);
        self.kill_nodes(inode.ino, gone);
        Ok(())
    }

    /// Room for a node that tells the attributes of an inode, and nothing of a regular file's
    /// content.
    pub(crate) fn metadata_room(&self, ino: u32) -> Result<Room, Error> {
        Ok(Room::inode(self.loaded(ino)?.data.len()))
    }

    /// Appends a node that tells the attributes of an inode, for which there is room.
    pub(crate) fn append_metadata(&mut self, ino: u32) -> Result<(), Error> {
        let version = self.next_version(ino)?;
        let loaded = self.loaded_mut(ino)?;
        let mut inode = loaded.attributes.node(ino, version);
        let data: Vec<u8> = loaded.data.to_vec();
        inode.dsize = data.len() as u32;
        self.append_inode(&inode, &data).map(drop)
    }

    /// Changes the time of change of an inode, with a node for which there is room.
    pub(crate) fn append_change(&mut self, ino: u32, now: Timestamp) -> Result<(), Error> {
        self.loaded_mut(ino)?.attributes.ctime = clamp_time(now);
        self.append_metadata(ino)
    }

    /// Cuts a file, or makes it longer by a hole.
    fn resize(&mut self, ino: u32, size: u32, purpose: Purpose) -> Result<(), Error> {
        self.growing.begin(0, 0);
        self.reserve(Room::inode(0), purpose)?;
        let old = self.loaded_mut(ino)?.attributes.size;
        if size > old {
            return self.append_hole(ino, old, size);
        }
        self.loaded_mut(ino)?.attributes.size = size;
        self.append_metadata(ino)?;
        let gone = self.loaded_mut(ino)?.cut(size, u32::MAX);
        self.kill_nodes(ino, gone);
        Ok(())
    }

    pub(crate) fn change_attributes(
        &mut self,
        ino: u32,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), Error> {
        if changes.flags.is_some_and(|flags| flags != FileFlags::default()) {
            return Err(Error::Unsupported("JFFS2 has no flags"));
        }
        let before = self.loaded_mut(ino)?.attributes;
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
            self.check_regular(ino)?;
            size = Some(u32::try_from(wanted).map_err(|_| Error::FileTooLarge)?);
            after.mtime = clamp_time(now);
        }
        after.atime = changes.accessed.map_or(after.atime, clamp_time);
        after.mtime = changes.modified.map_or(after.mtime, clamp_time);
        after.ctime = clamp_time(now);
        if let Some(permissions) = changes.permissions {
            self.follow_permissions(ino, permissions, now)?;
        }
        let shrinks = size.is_some_and(|size| size < before.size);
        let purpose = if shrinks { Purpose::Removal } else { Purpose::Change };
        self.reserve(self.metadata_room(ino)?, purpose)?;
        self.loaded_mut(ino)?.attributes = after;
        let result = match size.filter(|size| *size != before.size) {
            Some(size) => self.resize(ino, size, purpose),
            None => self.append_metadata(ino),
        };
        if result.is_err()
            && let Ok(loaded) = self.loaded_mut(ino)
        {
            loaded.attributes = before;
        }
        result
    }
}
