//! JFFS2 mounted for writing.
//!
//! Theory. Every change is one node, or a few, appended to the block that is being filled; what a
//! newer node says in the place of an older one makes that dead. Nothing is changed in place, not
//! even on NOR, where Linux without summaries marks dead nodes: what counts follows from versions
//! alone, on every flash. Blocks in which nothing counts are erased when blocks are needed, and
//! collecting garbage (`gc`) makes such blocks by copying what still counts out of them.
//!
//! What is dead may be found again at the next mount, as long as its block is not erased, and any
//! part of it. So a node may only be dropped if what remains still says the same with or without
//! it: the newest node of an inode never dies, a file that gets longer has a node for each byte it
//! got, and a removal stays while an older entry of that name is on the flash.
//!
//! Memory. 24 bytes for each node on the flash and 16 more for each that counts, 32 and the name
//! for each name; attributes and the layout of files in use are kept until too many are.

mod content;
mod copies;
mod format;
mod gc;
mod loaded;
mod log;
mod medium;
mod mount;
mod names;
mod shaky;
mod space;
mod tables;
#[cfg(test)]
mod tests;
mod vfs;
mod xattrs;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use flysch_api::flash::Flash;
use flysch_api::vfs::{Error, Inode};
use flysch_wire::jffs2::ByteOrder;

pub use self::format::{Formatted, format};

use self::loaded::Loaded;
use self::medium::Medium;
use self::space::Blocks;
use self::tables::{Directory, InodeState, Tables};
use crate::compressor::{Compressors, Packer};
use crate::read::{Catalog, View};

/// Most data in one node, bytes: Linux's page on most machines.
const PAGE_SIZE: u32 = 4096;
/// Parts of files in memory, and inodes in use, from which on all are forgotten.
const LOADED_MAX: usize = 1 << 18;

/// How a flash is mounted for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Byte order; that of what is on the flash when `None`, little endian when that is nothing.
    pub order: Option<ByteOrder>,
    /// Compression of what is written.
    pub compressors: Compressors,
    /// Full blocks end with a summary, as Linux with `CONFIG_JFFS2_SUMMARY` writes them.
    pub summary: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { order: None, compressors: Compressors::default(), summary: true }
    }
}

/// Blocks that are kept for a purpose.
#[derive(Clone, Copy, Debug)]
struct Reserves {
    /// Changes that need room want so many blocks left.
    write: u32,
    /// Removals are content with this.
    removal: u32,
    /// With fewer nothing is merged while collecting garbage: nodes are copied as they are.
    merge: u32,
    /// With less dirt than this, bytes, it is not collected: the flash is full.
    dirty_min: u64,
}

/// What garbage collection and wear came to since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Blocks erased.
    pub erased: u64,
    /// Blocks collected.
    pub collected: u64,
    /// Nodes copied while collecting.
    pub moved: u64,
    /// Nodes written anew, with their neighbours, while collecting.
    pub merged: u64,
    /// Blocks given up since the mount.
    pub given_up: u64,
    /// Times programming failed.
    pub program_failures: u64,
}

/// The stamps that blocks get when they are opened.
#[derive(Clone, Copy, Debug, Default)]
struct Stamps {
    /// The number of the next one.
    next: u32,
    /// The lowest number of a block that was written last before the mount, and not left yet.
    oldest: Option<u32>,
    /// The current block has none of this mount.
    is_due: bool,
}

/// A JFFS2 mounted for writing.
#[derive(Debug)]
pub struct Jffs2Mut<F> {
    medium: Medium<F>,
    order: ByteOrder,
    blocks: Blocks,
    tables: Tables,
    reserves: Reserves,
    packer: Packer,
    summary: bool,
    /// See [`Found::may_miss_nodes`](crate::found::Found::may_miss_nodes).
    may_miss_nodes: bool,
    /// Inodes may have nodes that do not count and are not known as such.
    is_unsettled: bool,
    /// The block being collected.
    collected: Option<u32>,
    stamps: Stamps,
    /// Nothing can be written any more.
    is_dead: bool,
    /// Parts and inodes in memory, about.
    loaded: AtomicUsize,
    /// A node being put together.
    node: Vec<u8>,
    growing: content::Growing,
    activity: Activity,
}

impl<F: Flash> Jffs2Mut<F> {
    /// The flash below. What waits for its page to fill is not on it.
    pub fn flash(&self) -> &F {
        self.medium.flash()
    }

    /// Gives the flash back. What was not synced is lost, as by a power cut.
    pub fn into_flash(self) -> F {
        self.medium.into_flash()
    }

    /// Byte order of what is written.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// What garbage collection and wear came to since the mount.
    pub fn activity(&self) -> Activity {
        self.activity
    }

    fn ino(inode: Inode) -> Result<u32, Error> {
        u32::try_from(inode.0).map_err(|_| Error::NotFound)
    }

    fn state(&self, ino: u32) -> Result<&InodeState, Error> {
        self.tables.inodes.get(&ino).ok_or(Error::NotFound)
    }

    /// The inode's attributes and layout, read if need be.
    fn loaded(&self, ino: u32) -> Result<&Loaded, Error> {
        let state = self.state(ino)?;
        if let Some(loaded) = state.loaded.get() {
            return Ok(loaded);
        }
        let loaded = Loaded::read(&self.medium, self.order, state)?;
        self.loaded.fetch_add(loaded.parts_len() + 1, Ordering::Relaxed);
        state.loaded.see(loaded);
        Ok(state.loaded.get().expect("it was just set"))
    }

    /// The same to be changed; what does not count of the inode is sorted out.
    fn loaded_mut(&mut self, ino: u32) -> Result<&mut Loaded, Error> {
        self.settle(ino)?;
        let state = self.tables.inodes.get_mut(&ino).ok_or(Error::NotFound)?;
        Ok(state.loaded.get_mut().expect("settling reads it"))
    }

    /// Sorts out nodes of the inode that do not count.
    fn settle(&mut self, ino: u32) -> Result<(), Error> {
        let state = self.tables.inodes.get_mut(&ino).ok_or(Error::NotFound)?;
        if state.loaded.get_mut().is_none() {
            let loaded = Loaded::read(&self.medium, self.order, state)?;
            *self.loaded.get_mut() += loaded.parts_len() + 1;
            state.loaded.set(loaded);
        }
        if state.is_settled {
            return Ok(());
        }
        state.is_settled = true;
        let loaded = state.loaded.get().expect("it was just read");
        if loaded.has_lost_nodes {
            // What cannot be read may count.
            return Ok(());
        }
        let nodes = state.living();
        let dead: Vec<_> = nodes.iter().filter(|node| !loaded.is_used(node.address)).collect();
        for node in &dead {
            state.forget(node.version, node.address);
        }
        for node in dead {
            self.blocks.kill(node.address);
        }
        Ok(())
    }

    /// Forgets attributes and layouts when there are too many of them.
    fn unload(&mut self) {
        if *self.loaded.get_mut() < LOADED_MAX {
            return;
        }
        for state in self.tables.inodes.values_mut() {
            // Times of a file without a name are in memory only.
            if state.names > 0 {
                state.loaded = Default::default();
            }
        }
        *self.loaded.get_mut() = 0;
    }

    fn directory(&self, ino: u32) -> Result<&Directory, Error> {
        let inode = self.inode(ino).ok_or(Error::NotFound)?;
        View(self).check_directory(inode)?;
        inode.1.directory.as_deref().ok_or(Error::NotDirectory)
    }

    fn directory_mut(&mut self, ino: u32) -> Result<&mut Directory, Error> {
        let state = self.tables.inodes.get_mut(&ino).ok_or(Error::NotFound)?;
        state.directory.as_deref_mut().ok_or(Error::NotDirectory)
    }
}
