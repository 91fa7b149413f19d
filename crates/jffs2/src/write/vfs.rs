//! The mounted file system as everybody else sees it.

use core::ops::Range;

use flysch_api::flash::{Flash, FlashMut};
use flysch_api::vfs::{
    Attributes, Changes, Entry, Error, FileKind, FileSystem, FileSystemMut, Inode, NameVisitor,
    NewFile, Rename, Statistics, Timestamp, Visitor, XattrChange,
};
use flysch_wire::jffs2::{ByteOrder, NAME_LEN_MAX, ROOT_INO};

use super::Jffs2Mut;
use super::loaded::{Part, What};
use super::medium::Medium;
use super::tables::{InodeState, Spot, XattrState, XrefState};
use crate::found::{NodeRef, XattrRef, XrefRef};
use crate::read::{BLOCK_SIZE, Catalog, Source, Stretch, Stretches, Ties, Told, View};

impl<F: Flash> Catalog for Jffs2Mut<F> {
    type Flash = Medium<F>;
    type Inode<'c>
        = (u32, &'c InodeState)
    where
        F: 'c;

    fn flash(&self) -> &Medium<F> {
        &self.medium
    }

    fn order(&self) -> ByteOrder {
        self.order
    }

    fn may_miss_nodes(&self) -> bool {
        self.may_miss_nodes
    }

    fn inode(&self, ino: u32) -> Option<(u32, &InodeState)> {
        self.tables.inodes.get(&ino).map(|state| (ino, state))
    }

    fn ties(&self, (ino, state): (u32, &InodeState)) -> Ties {
        let directory = state.directory.as_deref();
        Ties {
            ino,
            names: state.names,
            subdirectories: directory.map_or(0, |directory| directory.subdirectories),
            has_entries: directory.is_some_and(|directory| directory.live > 0),
        }
    }

    fn told(&self, (ino, _): (u32, &InodeState)) -> Result<Told, Error> {
        Ok(self.loaded(ino)?.told())
    }

    /// What is told knows that already.
    fn newest_entry_time(&self, _: (u32, &InodeState), _: u32) -> Result<Option<u32>, Error> {
        Ok(None)
    }

    fn with_stored<R>(
        &self,
        (ino, _): (u32, &InodeState),
        _: &Told,
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        Ok(use_it(&self.loaded(ino)?.data))
    }

    fn with_stretches<R>(
        &self,
        (ino, _): (u32, &InodeState),
        _: &Told,
        range: Range<u32>,
        use_it: impl FnOnce(Stretches<'_>) -> R,
    ) -> R {
        let Ok(loaded) = self.loaded(ino) else {
            let each = &mut core::iter::empty();
            return use_it(Stretches { each, has_lost_nodes: true });
        };
        let each = &mut loaded.parts(range.start, range.end).map(|(start, part)| {
            let Part { end, node_start, address, version, total_len, what } = part;
            let source = match what {
                What::Data => {
                    Source::Data(NodeRef { ino, version, address, total_len }, node_start)
                }
                What::Hole => Source::Hole,
                What::Damaged => Source::Damaged(address),
            };
            Stretch { start, end, source }
        });
        use_it(Stretches { each, has_lost_nodes: loaded.has_lost_nodes })
    }

    fn entry(&self, (_, directory): (u32, &InodeState), name: &[u8]) -> Option<u32> {
        Some(directory.directory.as_deref()?.lookup(name)?.ino)
    }

    /// By the hash of their names, so that a position stays where it is when names come and go.
    fn entries(&self, (_, directory): (u32, &InodeState), position: u64, visit: &mut Visitor<'_>) {
        let Some(directory) = directory.directory.as_deref() else { return };
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
    }

    fn xrefs(&self, ino: u32) -> impl Iterator<Item = XrefRef> {
        self.tables.xrefs_of(ino).into_iter().map(move |(xid, xref)| {
            let XrefState { xseqno, address, .. } = xref;
            XrefRef { ino, xid, xseqno, address }
        })
    }

    fn xattr(&self, xid: u32) -> Option<XattrRef> {
        let XattrState { version, address, total_len, .. } = *self.tables.xattrs.get(&xid)?;
        Some(XattrRef { xid, version, address, total_len })
    }
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
        View(self).lookup(directory, name)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, Error> {
        View(self).attributes(inode)
    }

    fn list(&self, directory: Inode, position: u64, visit: &mut Visitor<'_>) -> Result<(), Error> {
        View(self).list(directory, position, visit)
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        View(self).read(inode, offset, buffer)
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, Error> {
        View(self).next_data(inode, offset)
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), Error> {
        View(self).list_xattrs(inode, visit)
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, Error> {
        View(self).read_xattr(inode, name, buffer)
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
