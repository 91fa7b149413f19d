//! UBIFS read-write.
//!
//! The committed index stays on the flash as it is; what changed since the last commit lies over it
//! in memory ([`crate::overlay`]), exactly as replay would make it. An operation appends its nodes
//! to the journal and changes the overlay; a commit merges the overlay into a new index, written
//! beside the old one, and the master node switches over.
//!
//! Each part of the state has a type that alone changes it:
//!
//! | state | type |
//! |---|---|
//! | the flash and its sequence numbers; write buffers of heads | [`medium`], [`buffered`] |
//! | what each LEB of the main area holds | [`space::Space`] |
//! | buds and log | [`journal::Journal`] |
//! | where the index goes, and how large it is | [`merge::IndexState`] |
//! | the master node | [`master::MasterArea`] |
//! | files without names | [`orphans::Orphans`] |
//! | numbers of inodes, cookies | [`numbers::Numbers`] |
//! | content and inodes that wait in memory | [`cache::Cache`] |
//!
//! What changes several of them borrows those, and no other:
//!
//! | step | type |
//! |---|---|
//! | nodes are appended to the journal | [`heads::Heads`] |
//! | a key's node lies elsewhere now | [`tnc::Tnc`] |
//! | room for a journal head is found, or collected | [`collect::Collector`] |
//! | the next index is written | [`merge::IndexWriter`]: [`merge`], [`index`], [`gaps`] |
//! | room is promised | [`budget::Budget`], which changes nothing |
//!
//! And these own all of it, from below:
//!
//! | owner | what it knows |
//! |---|---|
//! | [`store::StoreMut`] | nodes and keys: [`commit`], [`mount`], [`recover`], [`rebase`] |
//! | [`files::Files`] | inodes and content: [`inode`], [`content`] |
//! | [`UbifsMut`] | names and calls: [`operation`], [`names`], [`rename`], [`xattr`], [`sealed`], [`vfs`] |
//!
//! Each of the three calls the one before it, never the one behind. When there is a commit is
//! decided in [`policy`].

mod budget;
mod buffered;
mod cache;
mod collect;
mod commit;
mod content;
mod files;
mod gaps;
mod heads;
mod index;
mod inode;
mod journal;
mod master;
mod medium;
mod merge;
mod mount;
mod names;
mod numbers;
mod operation;
mod orphans;
mod policy;
pub(crate) mod rebase;
mod recover;
mod rename;
mod sealed;
mod space;
mod store;
mod tnc;
mod vfs;
mod xattr;

#[cfg(test)]
mod tests;

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;

use crate::open::OpenOptions;
pub(crate) use buffered::Buffered;
use files::Files;
use store::StoreMut;

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
/// the cache is full.
/// [`close`](Self::close) leaves a clean file system; dropping one leaves what a power cut would
/// leave.
#[derive(Debug)]
pub struct UbifsMut<V> {
    files: Files<V>,
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

impl From<Stop> for Error {
    /// Where nothing more can be done about it.
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Commit | Stop::Full => Self::NoSpace,
            Stop::Error(error) => error,
        }
    }
}

impl<V: VolumeMut> UbifsMut<V> {
    /// Opens the file system on `volume` for reading and writing.
    ///
    /// After an unclean stop, recovery is written back first. A file system that grew with its
    /// volume takes the new room.
    ///
    /// # Errors
    /// [`MountError::ReadOnly`] for what can be read and not written: authenticated and encrypted
    /// images, formats of the future, damage that cost something.
    pub fn open(volume: V) -> Result<Self, MountError> {
        Self::open_with(volume, &OpenOptions::default())
    }

    /// The same with options: an index that is trusted ([`IndexUse::Trust`](crate::IndexUse)) is
    /// not read, so that opening takes no longer with many files than with none, as in Linux.
    ///
    /// # Errors
    /// As [`open`](Self::open); a damaged part of a trusted index is met later, by the operation
    /// that needs it.
    pub fn open_with(volume: V, options: &OpenOptions) -> Result<Self, MountError> {
        Ok(Self { files: Files::new(StoreMut::open(volume, options)?) })
    }

    /// Writes everything, deletes what has no name, and leaves a clean file system; gives the
    /// volume back.
    ///
    /// # Errors
    /// [`Error::Medium`] and [`Error::ReadOnly`] when the flash refuses, now or before.
    pub fn close(mut self) -> Result<V, Error> {
        for inode in self.files.disk.orphans.inodes() {
            self.files.forget_orphan(inode)?;
        }
        self.files.commit_all()?;
        self.files.disk.close()
    }

    /// The superblock.
    pub fn superblock(&self) -> &flysch_wire::ubifs::Superblock {
        self.files.disk.superblock()
    }

    /// Bytes of all nodes in use, the index as of the last commit with them.
    pub fn used_bytes(&self) -> u64 {
        self.files.disk.space.sums().used + self.files.disk.index.size
    }

    /// Tests: the volume, past everything.
    #[cfg(test)]
    fn volume_mut(&mut self) -> &mut V {
        self.files.disk.fs.store.access.volume.flash_mut()
    }

    /// The volume it lies on.
    pub fn volume(&self) -> &V {
        self.files.disk.store().access.volume.flash()
    }

    /// What was found to be wrong while opening, and mended.
    pub fn findings(&self) -> &[crate::Finding] {
        &self.files.disk.fs.findings
    }
}
