//! JFFS2 mounted for writing.
//!
//! Theory. Every change is one node, or a few, appended to the block that is being filled; the
//! newer node makes the older one that it replaces dead. Nothing is changed in place, not even on
//! NOR, where Linux without summaries marks dead nodes: validity follows from versions alone, on
//! every flash. Blocks without valid nodes are erased when blocks are needed. Garbage collection
//! ([`collector`]) makes such blocks by copying the valid nodes out of them.
//!
//! Any dead node may be found again at the next mount, as long as its block is not erased. So a
//! node may be dropped only if the remaining nodes have the same meaning with or without it: the
//! newest node of an inode never dies, a file that is extended has a node for each byte it gained,
//! and a removal stays while an older entry of that name is on the flash.
//!
//! The objects, each with the state that only it changes, the upper ones containing the lower ones:
//!
//! | object | state |
//! |---|---|
//! | [`Jffs2Mut`] | names: made, removed, moved |
//! | [`Files`] | content and attributes: the page that is being appended to |
//! | [`Collector`](collector::Collector) | room: what is kept back, which block is collected |
//! | [`Inodes`] | inodes in use: attributes and layouts in memory |
//! | [`Nodes`](nodes::Nodes) | which node is whose: the [`Log`](log::Log) and the [`Tables`](tables::Tables) |
//! | [`Log`](log::Log) | the block being filled, stamps, [`Blocks`](space::Blocks), the [`Medium`](medium::Medium) |
//!
//! A mount builds them from the bottom up ([`Build`](build::Build)).
//!
//! Memory. 24 bytes for each node on the flash, 16 more for each valid one, and 32 plus the name
//! for each name; the name twice if more than eight names of a directory have the same CRC-32.
//! Attributes and layouts of files in use are kept until there are too many.

mod build;
mod collector;
mod content;
mod copies;
mod format;
mod inodes;
mod loaded;
mod log;
mod medium;
mod mount;
mod names;
mod nodes;
#[cfg(test)]
mod object_tests;
mod shaky;
mod space;
mod tables;
#[cfg(test)]
mod tests;
mod vfs;
mod xattrs;

use flysch_api::flash::Flash;
use flysch_api::vfs::{FsError, Inode};
use flysch_wire::jffs2::ByteOrder;

pub use self::format::{Formatted, format};

use self::content::Files;
use self::inodes::Inodes;
use crate::compressor::Compressors;

/// Maximum data in one node, bytes: the page size of Linux on most machines.
const PAGE_SIZE: u32 = 4096;

/// Options of a mount for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Byte order; if `None`, that of the content of the flash, or little endian if there is none.
    pub order: Option<ByteOrder>,
    /// Compression of written data.
    pub compressors: Compressors,
    /// Full blocks end with a summary, as Linux with `CONFIG_JFFS2_SUMMARY` writes them.
    pub summary: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { order: None, compressors: Compressors::default(), summary: true }
    }
}

/// Statistics of garbage collection and wear since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Blocks erased.
    pub erased: u64,
    /// Blocks collected.
    pub collected: u64,
    /// Nodes copied while collecting.
    pub moved: u64,
    /// Nodes rewritten, together with their neighbours, while collecting.
    pub merged: u64,
    /// Blocks given up since the mount.
    pub given_up: u64,
    /// Number of failed program operations.
    pub program_failures: u64,
}

/// A JFFS2 mounted for writing.
#[derive(Debug)]
pub struct Jffs2Mut<F> {
    files: Files<F>,
}

impl<F: Flash> Jffs2Mut<F> {
    /// The flash below. Bytes that wait for their page to fill are not on it.
    pub fn flash(&self) -> &F {
        self.inodes().log().medium.flash()
    }

    /// Returns the flash. Nothing is written: changes since the last
    /// [`sync`](flysch_api::vfs::FileSystemMut::sync) may be lost, as after a power cut. To keep
    /// them, call that first.
    pub fn into_flash(self) -> F {
        self.files.into_medium().into_flash()
    }

    /// Byte order used for writing.
    pub fn order(&self) -> ByteOrder {
        self.inodes().log().order
    }

    /// Statistics of garbage collection and wear since the mount.
    pub fn activity(&self) -> Activity {
        self.inodes().log().activity
    }

    fn inodes(&self) -> &Inodes<F> {
        self.files.inodes()
    }

    fn inodes_mut(&mut self) -> &mut Inodes<F> {
        self.files.inodes_mut()
    }

    fn ino(inode: Inode) -> Result<u32, FsError> {
        u32::try_from(inode.0).map_err(|_| FsError::NotFound)
    }
}
