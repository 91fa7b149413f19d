//! UBIFS read-write.
//!
//! The committed index stays on the flash as it is; what changed since the last commit lies over it
//! in memory ([`crate::overlay`]), exactly as replay would make it. An operation appends its nodes
//! to the journal and changes the overlay; a commit merges the overlay into a new index, written
//! beside the old one, and the master node switches over.
//!
//! | part | what it does |
//! |---|---|
//! | [`mount`] | opening: recovery is written back, the overlay is counted |
//! | [`medium`], [`buffered`] | the flash, and the write buffers of the journal's heads over it |
//! | [`journal`] | room for nodes, buds, the log |
//! | [`tnc`] | where every key's node lies, and what that leaves behind |
//! | [`space`], [`budget`] | what each LEB holds, what may still be promised |
//! | [`commit`], [`merge`], [`gaps`] | commit: index, LEB properties, orphans, master node |
//! | [`collect`] | garbage collection |
//! | [`rebase`] | a commit that owes nothing to the one before, for repairs |
//! | [`cache`], [`content`] | content waits in memory, bounded |
//! | [`sealed`] | encrypted names and content |
//! | [`names`], [`rename`], [`inode`], [`xattr`], [`vfs`] | the operations |

mod budget;
mod buffered;
mod cache;
mod collect;
mod commit;
mod content;
mod gaps;
mod inode;
mod journal;
mod medium;
mod merge;
mod mount;
mod names;
pub(crate) mod rebase;
mod rename;
mod sealed;
mod space;
mod tnc;
mod vfs;
mod xattr;

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::Master;

use crate::crypt::FileCipher;
use crate::lpt::Lpt;
use crate::open::Ubifs;
pub(crate) use buffered::Buffered;
use cache::Cache;
use journal::Log;
use space::Space;

pub use mount::MountError;

/// Journal head of garbage collection.
const GC: usize = 0;
/// Journal head of inodes, names and truncations.
const BASE: usize = 1;
/// Journal head of content.
const DATA: usize = 2;

/// A file system opened for reading and writing.
///
/// Content written waits in memory until [`sync`](flysch_api::vfs::FileSystemMut::sync) or until
/// the cache is full. [`close`](Self::close) leaves a clean file system; dropping one leaves what a
/// power cut would leave.
#[derive(Debug)]
pub struct UbifsMut<V> {
    fs: Ubifs<Buffered<V>>,
    space: Space,
    lpt: Lpt,
    /// The master node that was written last.
    master: Master,
    /// Where it lies in both LEBs.
    master_at: u32,
    log: Log,
    cache: Cache,
    /// Files without names that are still in use: the commit before which they lost the last one.
    orphans: BTreeMap<u32, u64>,
    /// LEBs that the commit under way gave up; unmapped when it is over.
    leaving: BTreeSet<u32>,
    /// Where index nodes go.
    index_head: (u32, u32),
    index_size: u64,
    /// Worst case of what the overlay adds to the index.
    index_growth: u64,
    highest_inode: u64,
    /// What encrypts the content of the file that was last asked for.
    cipher: Option<(u32, FileCipher)>,
    /// For cookies.
    random: u64,
    /// Something changed since the last commit.
    changed: bool,
    /// Tests: commits find no empty LEB for the index as long as there are gaps.
    #[cfg(test)]
    only_gaps: bool,
}

/// Why a step could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The journal or the log is full: a commit empties it.
    Commit,
    /// No LEB has room.
    Full,
    /// Anything else.
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl<V: VolumeMut> UbifsMut<V> {
    /// Refuses when the flash refused, or what is known of space contradicts itself.
    fn writable(&self) -> Result<(), Error> {
        self.fs.store.access.writable()?;
        self.believable()
    }

    /// Refuses when what is known of space contradicts itself.
    fn believable(&self) -> Result<(), Error> {
        let (structure, place) = ("LEB properties", Default::default());
        if self.space.is_astray() { Err(Error::Damaged { structure, place }) } else { Ok(()) }
    }

    fn random(&mut self) -> u32 {
        // xorshift64*: cookies only have to differ.
        let mut word = self.random | 1;
        word ^= word >> 12;
        word ^= word << 25;
        word ^= word >> 27;
        self.random = word;
        (word.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// The superblock.
    pub fn superblock(&self) -> &flysch_wire::ubifs::Superblock {
        &self.fs.store.superblock
    }

    /// Bytes of all nodes in use, the index as of the last commit with them.
    pub fn used_bytes(&self) -> u64 {
        self.space.sums().used + self.index_size
    }

    /// Tests: the volume, past everything.
    #[cfg(test)]
    fn volume_mut(&mut self) -> &mut V {
        self.fs.store.access.volume.flash_mut()
    }

    /// The volume it lies on.
    pub fn volume(&self) -> &V {
        self.fs.store.access.volume.flash()
    }

    /// What was found to be wrong while opening, and mended.
    pub fn findings(&self) -> &[crate::Finding] {
        &self.fs.findings
    }
}
