//! JFFS2 on raw flash: mounted with one scan, and read without changing anything.
//!
//! Theory. JFFS2 keeps no tables on the flash. Everything is a log of nodes with version numbers,
//! and the newest of them determine the content: for each name the directory entry node with the
//! highest version, for each file the attributes of its newest node and, for each byte, the newest
//! node that covers it. A mount therefore finds all nodes (`scan`), sorts them into tables
//! (`index`) and resolves names at once; the source of each byte of a file is resolved when the
//! file is read (`file`).
//!
//! The rules are those of Linux; where Linux silently shows older data or zeros in place of damaged
//! data, a read fails instead.
//!
//! [`create::Jffs2Builder`] makes images. [`Jffs2::mount`] mounts for reading and
//! [`Jffs2Mut::mount`] for writing; the methods of files are those of [`flysch_api::vfs`]. Both
//! take whatever implements the traits of [`flysch_api::flash`]: a chip, or bytes in a file or in
//! memory, by `FlashImage` of the crate `flysch-mtd`.
//!
#![doc = concat!("```\n", include_str!("../doc/first_image.rs"), "```")]
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod check;
mod compressor;
pub mod create;
mod file;
mod filesystem;
mod found;
mod index;
mod node;
mod read;
mod rtime;
mod rubin;
mod scan;
mod stamp;
#[cfg(test)]
mod steps;
mod summary;
#[cfg(test)]
mod tests;
mod write;
mod xattr;

pub use check::check;
pub use compressor::{Compressor, Compressors, Mode};
pub use flysch_wire::jffs2::ByteOrder;
pub use write::{Activity, Formatted, Jffs2Mut, WriteOptions, format};

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::flash::{Flash, FlashError, OobMode};
use flysch_api::vfs::{FileKind, Inode};
use flysch_wire::jffs2::{Header, oob_cleanmarker};

use crate::found::Address;
use crate::index::{Index, Nameless};
use crate::scan::{Summaries, scan};

/// Number of headers examined to determine the byte order.
const HEADERS_SAMPLED: usize = 64;
/// Number of blocks whose out-of-band clean markers are examined to determine it.
const MARKERS_SAMPLED: u32 = 64;
/// Bytes read at once while searching for them.
const WINDOW: usize = 64 << 10;

/// Why a flash could not be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jffs2MountError {
    /// There is no JFFS2 node on it, but it is not erased either.
    NotJffs2,
    /// It is larger than 16 GiB.
    TooLarge,
    /// Its geometry has erase blocks of 0 bytes.
    NoBlocks,
    /// It can be read but must not be written; the text says why.
    NotWritable(&'static str),
    /// It cannot be read.
    Flash(FlashError),
}

impl fmt::Display for Jffs2MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJffs2 => f.write_str("no JFFS2 node was found"),
            Self::NotWritable(why) => write!(f, "it cannot be mounted for writing: {why}"),
            Self::NoBlocks => f.write_str("its erase blocks have 0 bytes: name their size"),
            Self::TooLarge => f.write_str("JFFS2 is read only up to 16 GiB"),
            Self::Flash(error) => write!(f, "the flash cannot be read: {error}"),
        }
    }
}

impl core::error::Error for Jffs2MountError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Flash(error) => Some(error),
            _ => None,
        }
    }
}

impl From<FlashError> for Jffs2MountError {
    fn from(error: FlashError) -> Self {
        Self::Flash(error)
    }
}

/// Statistics of the flash, apart from files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Byte order of the processor that wrote the file system.
    pub order: ByteOrder,
    /// Inode nodes, including obsolete ones.
    pub nodes: usize,
    /// Files, directories and everything else that has a name.
    pub inodes: usize,
    /// Extended attributes.
    pub xattrs: usize,
    /// Erase blocks with a clean marker in their main bytes.
    pub clean_markers: u32,
    /// Erase blocks with a summary.
    pub summaries: u32,
    /// Erase blocks that are marked bad.
    pub bad_blocks: u32,
    /// Places where the scan found a problem.
    pub problems: u64,
}

/// A mounted JFFS2.
#[derive(Debug)]
pub struct Jffs2<F> {
    flash: F,
    order: ByteOrder,
    index: Index,
}

impl<F: Flash> Jffs2<F> {
    /// Mounts `flash`; detects the byte order unless `order` is given.
    ///
    /// To keep the flash if this fails, pass `&flash`.
    ///
    /// # Errors
    /// If there is no JFFS2 or the flash cannot be read. Damage is not an error here: it is
    /// reported where it has an effect.
    pub fn mount(flash: F, order: Option<ByteOrder>) -> Result<Self, Jffs2MountError> {
        Self::mount_with(flash, order, Summaries::Use, Nameless::Drop)
    }

    /// Mounts `flash` and keeps the inodes that Linux drops because no path leads to them, with
    /// everything in them: [`unreachable`](Self::unreachable) returns their numbers. Most of them
    /// were deleted and their nodes not yet collected; some lost their names.
    ///
    /// To keep the flash if this fails, pass `&flash`.
    ///
    /// # Errors
    /// As [`mount`](Self::mount).
    pub fn mount_keeping_nameless(
        flash: F,
        order: Option<ByteOrder>,
    ) -> Result<Self, Jffs2MountError> {
        Self::mount_with(flash, order, Summaries::Use, Nameless::Keep)
    }

    pub(crate) fn mount_with(
        flash: F,
        order: Option<ByteOrder>,
        summaries: Summaries,
        nameless: Nameless,
    ) -> Result<Self, Jffs2MountError> {
        if flash.geometry().size > Address::LIMIT {
            return Err(Jffs2MountError::TooLarge);
        }
        if flash.geometry().erase_size == 0 {
            return Err(Jffs2MountError::NoBlocks);
        }
        let order = match order {
            Some(order) => order,
            None => detect_order(&flash)?,
        };
        let index = Index::build(scan(&flash, order, summaries, &[])?, nameless);
        Ok(Self { flash, order, index })
    }

    /// Statistics of the flash, apart from files.
    pub fn facts(&self) -> Facts {
        let space = &self.index.space;
        Facts {
            order: self.order,
            nodes: self.index.nodes.len(),
            inodes: self.index.inodes.len(),
            xattrs: self.index.xattrs.len(),
            clean_markers: space.clean_markers,
            summaries: space.summaries,
            bad_blocks: space.bad_blocks,
            problems: self.index.problems.len() as u64 + self.index.problems_dropped,
        }
    }

    /// Files without a name, if they were kept; what is in a directory without a name comes with
    /// that directory. Files whose kind is lost are left out.
    pub fn unreachable(&self) -> Vec<(Inode, FileKind)> {
        let nameless = self.index.nameless.iter();
        let roots = nameless.filter_map(|&ino| self.index.inode(ino));
        roots
            .filter(|record| record.names == 0)
            .filter_map(|record| Some((Inode(record.ino.into()), self.kind(record).ok()?)))
            .collect()
    }

    /// The flash below.
    pub fn flash(&self) -> &F {
        &self.flash
    }

    /// Bytes that Linux never lets a write use: two blocks for deletions, and two more, plus one in
    /// fifty and 100 bytes per block, for garbage collection.
    fn reserved_bytes(&self) -> u64 {
        let geometry = self.flash.geometry();
        let erase_size = u64::from(geometry.erase_size);
        let slack = geometry.size / 50 + u64::from(geometry.blocks()) * 100;
        (4 + slack.div_ceil(erase_size)) * erase_size
    }
}

/// The byte order in which more of the first nodes have a valid header. Erased flash has none; any
/// order will do.
fn detect_order<F: Flash>(flash: &F) -> Result<ByteOrder, Jffs2MountError> {
    if let Some(order) = order_of_markers(flash) {
        return Ok(order);
    }
    let size = flash.geometry().size;
    let mut window = vec![0; WINDOW];
    let mut counts = [0; 2];
    let mut is_erased = true;
    let mut refused = None;
    let mut at = 0;
    while at < size && counts.iter().sum::<usize>() < HEADERS_SAMPLED {
        let len = usize::try_from(size - at).unwrap_or(usize::MAX).min(WINDOW);
        match flash.read(at, &mut window[..len]) {
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => {}
            Err(error @ FlashError::Os(_)) => {
                refused.get_or_insert(error);
                // Not what was read before.
                window.fill(0);
            }
            Err(error) => return Err(error.into()),
        }
        for start in (0..len).step_by(4) {
            let bytes = &window[start..len];
            for (order, count) in ByteOrder::ALL.into_iter().zip(&mut counts) {
                *count += usize::from(Header::parse(bytes, order).is_ok());
            }
            is_erased &= bytes.iter().take(4).all(|&byte| byte == 0xFF);
        }
        at += len as u64;
    }
    match counts {
        [0, 0] if !is_erased => {
            Err(refused.map_or(Jffs2MountError::NotJffs2, Jffs2MountError::Flash))
        }
        [little, big] if big > little => Ok(ByteOrder::Big),
        _ => Ok(ByteOrder::Little),
    }
}

/// The byte order of out-of-band clean markers, which is that of the file system.
fn order_of_markers<F: Flash>(flash: &F) -> Option<ByteOrder> {
    let geometry = flash.geometry();
    if !geometry.kind.is_nand() || geometry.oob_available < 8 {
        return None;
    }
    (0..geometry.blocks().min(MARKERS_SAMPLED)).find_map(|block| {
        let mut marker = [0; 8];
        let at = geometry.block_start(block);
        let is_read = flash.read_oob(at, OobMode::Auto, &mut marker).is_ok();
        ByteOrder::ALL.into_iter().find(|&order| is_read && marker == oob_cleanmarker(order))
    })
}
