//! The mounted file system as everybody else sees it.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash::{Flash, FlashMut};
use flysch_api::vfs::{
    Attributes, Changes, DeviceNumber, Entry, Error, FileFlags, FileKind, FileSystem,
    FileSystemMut, Inode, NameVisitor, NewFile, Rename, Statistics, Timestamp, Visitor,
    XattrChange,
};
use flysch_wire::jffs2::{DeviceData, NAME_LEN_MAX, ROOT_INO};

use super::Jffs2Mut;
use super::loaded::What;
use super::tables::Spot;

/// Unit of the sizes in the statistics, bytes: Linux's page.
const BLOCK_SIZE: u32 = 4096;

fn seconds(value: u32) -> Timestamp {
    Timestamp { seconds: i64::from(value), nanoseconds: 0 }
}

impl<F: Flash> FileSystem for Jffs2Mut<F> {
    fn statistics(&self) -> Statistics {
        let geometry = self.medium.geometry();
        let erase_size = u64::from(geometry.erase_size);
        let current = u64::from(self.room_left(0).unwrap_or(0));
        let free = u64::from(self.blocks.available()) * erase_size + current + self.blocks.dirty();
        let reserve = (u64::from(self.reserves.write) + 1) * erase_size;
        let unit = u64::from(BLOCK_SIZE);
        Statistics {
            format: "jffs2",
            root: Inode(u64::from(ROOT_INO)),
            block_size: BLOCK_SIZE,
            blocks: geometry.size / unit,
            blocks_free: free.saturating_sub(reserve) / unit,
            files: Some(self.tables.inodes.len() as u64),
            name_max: NAME_LEN_MAX as u32,
        }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, Error> {
        let found = self.directory(Self::ino(directory)?)?.lookup(name);
        found.map(|entry| Inode(u64::from(entry.ino))).ok_or(Error::NotFound)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, Error> {
        let ino = Self::ino(inode)?;
        let state = self.state(ino)?;
        let kind = self.kind(ino)?;
        let loaded = self.loaded(ino)?;
        let own = &loaded.attributes;
        let links = match &state.directory {
            _ if state.names == 0 => 0,
            // Linux counts one more for the root.
            Some(directory) => 2 + directory.subdirectories + u32::from(ino == ROOT_INO),
            None => state.names,
        };
        let device = match kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                match loaded.device(self.order)? {
                    DeviceData::Old(number) => DeviceNumber::from_old(number),
                    DeviceData::New(number) => DeviceNumber::from_new(number),
                }
            }
            _ => DeviceNumber::default(),
        };
        Ok(Attributes {
            inode,
            kind,
            permissions: (own.mode & 0o7777) as u16,
            links,
            owner: u32::from(own.uid),
            group: u32::from(own.gid),
            size: u64::from(own.size),
            blocks: u64::from(own.size).div_ceil(512),
            accessed: seconds(own.atime),
            modified: seconds(own.mtime),
            changed: seconds(own.ctime),
            device,
            flags: FileFlags::default(),
        })
    }

    fn list(&self, directory: Inode, position: u64, visit: &mut Visitor<'_>) -> Result<(), Error> {
        let directory = self.directory(Self::ino(directory)?)?;
        for (spot, entry) in directory.from(Spot::at(position)) {
            if entry.ino == 0 {
                continue;
            }
            let kind = FileKind::from_mode(u32::from(entry.kind) << 12);
            let flow = visit(Entry {
                name: &entry.name,
                inode: Inode(u64::from(entry.ino)),
                kind: kind.unwrap_or(FileKind::Regular),
                position: spot.position(),
            });
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let ino = Self::ino(inode)?;
        let kind = self.kind(ino)?;
        let loaded = self.loaded(ino)?;
        match kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            FileKind::Symlink => {
                let target = &loaded.data;
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(target.len());
                let len = buffer.len().min(target.len() - start);
                buffer[..len].copy_from_slice(&target[start..start + len]);
                return Ok(len);
            }
            _ => return Err(Error::NoContent),
        }
        let size = u64::from(loaded.attributes.size);
        let Some(left) = size.checked_sub(offset).filter(|&left| left > 0) else { return Ok(0) };
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.read_file(ino, offset as u32, &mut buffer[..len])
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let ino = Self::ino(inode)?;
        self.check_regular(ino)?;
        let loaded = self.loaded(ino)?;
        let size = loaded.attributes.size;
        let Some(offset) = u32::try_from(offset).ok().filter(|&offset| offset < size) else {
            return Ok(None);
        };
        if loaded.has_lost_nodes || self.may_miss_nodes {
            return Ok(Some(u64::from(offset)..u64::from(size)));
        }
        let mut data = loaded.parts(offset, size).filter(|(_, part)| part.what != What::Hole);
        let Some((start, first)) = data.next() else { return Ok(None) };
        let mut end = first.end;
        for (start, part) in data {
            if start != end {
                break;
            }
            end = part.end;
        }
        Ok(Some(u64::from(start.max(offset))..u64::from(end.min(size))))
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), Error> {
        let ino = Self::ino(inode)?;
        self.state(ino)?;
        let mut names: Vec<Vec<u8>> = vec![];
        let mut failed = Ok(());
        for (xid, _) in self.tables.xrefs_of(ino) {
            match self.attribute(xid) {
                Ok(Some(xattr)) => names.push(xattr.name),
                Ok(None) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        names.sort_unstable();
        names.dedup();
        names.iter().for_each(|name| visit(name));
        failed
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, Error> {
        let ino = Self::ino(inode)?;
        self.state(ino)?;
        let (newest, _) = self.find_xattr(ino, name)?;
        let (_, value) = newest.ok_or(Error::NotFound)?;
        let to = buffer.get_mut(..value.len()).ok_or(Error::BufferTooSmall(value.len()))?;
        to.copy_from_slice(&value);
        Ok(value.len())
    }
}

impl<F: FlashMut> FileSystemMut for Jffs2Mut<F> {
    fn create(
        &mut self,
        directory: Inode,
        name: &[u8],
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Inode, Error> {
        self.begin()?;
        let ino = self.create_file(Self::ino(directory)?, name, file, now)?;
        Ok(Inode(u64::from(ino)))
    }

    fn link(
        &mut self,
        inode: Inode,
        directory: Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.begin()?;
        self.link_file(Self::ino(inode)?, Self::ino(directory)?, name, now)
    }

    fn remove(&mut self, directory: Inode, name: &[u8], now: Timestamp) -> Result<(), Error> {
        self.begin()?;
        self.remove_name(Self::ino(directory)?, name, now)
    }

    fn rename(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        how: Rename,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.begin()?;
        let (from_ino, to_ino) = (Self::ino(from.0)?, Self::ino(to.0)?);
        self.rename_file((from_ino, from.1), (to_ino, to.1), how, now)
    }

    fn set_attributes(
        &mut self,
        inode: Inode,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.begin()?;
        self.change_attributes(Self::ino(inode)?, changes, now)
    }

    fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, Error> {
        self.begin()?;
        self.write_file(Self::ino(inode)?, offset, data, now)
    }

    fn set_xattr(
        &mut self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.begin()?;
        self.change_xattr(Self::ino(inode)?, name, change, now)
    }

    fn sync(&mut self, inode: Option<Inode>) -> Result<(), Error> {
        // Nodes of one file cannot be written without those before them.
        let _ = inode;
        self.check_alive()?;
        self.flush()?;
        self.erase_all()?;
        self.medium.sync().map_err(|error| self.failed(error, 0))
    }

    fn forget(&mut self, inode: Inode) -> Result<(), Error> {
        let ino = Self::ino(inode)?;
        if self.tables.inodes.get(&ino).is_some_and(|state| state.names == 0) {
            self.drop_inode(ino);
        }
        Ok(())
    }
}

impl<F: FlashMut> Jffs2Mut<F> {
    /// Before each change.
    fn begin(&mut self) -> Result<(), Error> {
        self.check_alive()?;
        self.unload();
        Ok(())
    }
}
