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
//! Objects, each with the state it alone changes, the lower ones within the upper ones:
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
//! A mount makes them from below ([`Build`](build::Build)).
//!
//! Memory. 24 bytes for each node on the flash and 16 more for each that counts, 32 and the name
//! for each name; attributes and the layout of files in use are kept until too many are.

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

use flysch_api::flash::Flash;
use flysch_api::vfs::{Error, Inode};
use flysch_wire::jffs2::ByteOrder;

pub use self::format::{Formatted, format};

use self::content::Files;
use self::inodes::Inodes;
use crate::compressor::Compressors;

/// Most data in one node, bytes: Linux's page on most machines.
const PAGE_SIZE: u32 = 4096;

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

/// A JFFS2 mounted for writing.
#[derive(Debug)]
pub struct Jffs2Mut<F> {
    files: Files<F>,
}

impl<F: Flash> Jffs2Mut<F> {
    /// The flash below. What waits for its page to fill is not on it.
    pub fn flash(&self) -> &F {
        self.inodes().log().medium.flash()
    }

    /// Gives the flash back. What was not synced is lost, as by a power cut.
    pub fn into_flash(self) -> F {
        self.files.into_medium().into_flash()
    }

    /// Byte order of what is written.
    pub fn order(&self) -> ByteOrder {
        self.inodes().log().order
    }

    /// What garbage collection and wear came to since the mount.
    pub fn activity(&self) -> Activity {
        self.inodes().log().activity
    }

    fn inodes(&self) -> &Inodes<F> {
        self.files.inodes()
    }

    fn inodes_mut(&mut self) -> &mut Inodes<F> {
        self.files.inodes_mut()
    }

    fn ino(inode: Inode) -> Result<u32, Error> {
        u32::try_from(inode.0).map_err(|_| Error::NotFound)
    }
}
