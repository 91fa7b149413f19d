//! UBIFS read-write.
//!
//! The committed index stays on the flash unchanged; what changed since the last commit lies on top
//! of it in memory ([`crate::overlay`]), just as replay would build it. An operation appends its
//! nodes to the journal and changes the overlay. A commit merges the overlay into a new index,
//! written beside the old one, and the master node switches to it.
//!
//! Each part of the state is changed only by its own type:
//!
//! | state | type |
//! |---|---|
//! | the flash and its sequence numbers; write buffers of heads | [`medium`], [`buffered`] |
//! | what each LEB of the main area holds | [`space::Space`] |
//! | buds and log | [`journal::Journal`] |
//! | where the index goes, and how large it is | [`merge::IndexState`] |
//! | the master node | [`master::MasterArea`] |
//! | files without names | [`orphans::Orphans`] |
//! | inode numbers and cookies | [`numbers::Numbers`] |
//! | content and inodes waiting in memory | [`cache::Cache`] |
//!
//! Steps that change several parts borrow those parts and no others:
//!
//! | step | type |
//! |---|---|
//! | append nodes to the journal | [`heads::Heads`] |
//! | move a key's node | [`tnc::Tnc`] |
//! | find or collect room for a journal head | [`collect::Collector`] |
//! | write the next index | [`merge::IndexWriter`]: [`merge`], [`index`], [`gaps`] |
//! | promise space | [`budget::Budget`], which changes nothing |
//!
//! These own all of it, from the bottom up:
//!
//! | owner | what it knows |
//! |---|---|
//! | [`store::StoreMut`] | nodes and keys: [`commit`], [`mount`], [`recover`], [`rebase`] |
//! | [`files::Files`] | inodes and content: [`inode`], [`content`] |
//! | [`UbifsMut`] | names and the public calls: [`operation`], [`names`], [`rename`], [`xattr`], [`sealed`], [`vfs`] |
//!
//! Each of the three calls only the one before it. [`policy`] decides when to commit.

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

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;

use crate::open::OpenOptions;
pub(crate) use buffered::Buffered;
use files::Files;
use store::StoreMut;

pub use mount::UbifsMountError;

/// Journal head of garbage collection.
const GC: usize = 0;
/// Journal head of inodes, names and truncations.
const BASE: usize = 1;
/// Journal head of content.
const DATA: usize = 2;

/// A file system opened for reading and writing.
///
/// Content waits in memory until [`sync`](flysch_api::vfs::FileSystemMut::sync) or until the cache
/// is full. [`close`](Self::close) leaves a clean file system; dropping it leaves what a power cut
/// would leave.
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
    Error(FsError),
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        Self::Error(error)
    }
}

impl From<Stop> for FsError {
    /// For callers that can do nothing more about it.
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
    /// After an unclean stop, recovery is written back first. If the volume has grown, the file
    /// system grows with it.
    ///
    /// To keep the volume if this fails, pass `&mut volume`.
    ///
    /// # Errors
    /// [`UbifsMountError::ReadOnly`] for what can be read but not written: authenticated images
    /// without their key, unknown flags or format versions, damage that lost something.
    pub fn open(volume: V) -> Result<Self, UbifsMountError> {
        Self::open_with(volume, &OpenOptions::default())
    }

    /// The same with options: a trusted index ([`IndexUse::Trust`](crate::IndexUse)) is not read,
    /// so that opening takes no longer with many files than with none, as in Linux.
    ///
    /// To keep the volume if this fails, pass `&mut volume`.
    ///
    /// # Errors
    /// As [`open`](Self::open); a damaged part of a trusted index is found later, by the operation
    /// that needs it.
    pub fn open_with(volume: V, options: &OpenOptions) -> Result<Self, UbifsMountError> {
        Ok(Self { files: Files::new(StoreMut::open(volume, options)?) })
    }

    /// Writes everything, deletes files without names, and leaves a clean file system; returns the
    /// volume.
    ///
    /// # Errors
    /// [`FsError::Medium`] and [`FsError::ReadOnly`] if the flash refuses a change, or has refused
    /// one.
    pub fn close(mut self) -> Result<V, FsError> {
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

    /// Bytes of all nodes in use, including the index as of the last commit.
    pub fn used_bytes(&self) -> u64 {
        self.files.disk.space.sums().used + self.files.disk.index.size
    }

    /// Tests: the volume itself, bypassing everything.
    #[cfg(test)]
    fn volume_mut(&mut self) -> &mut V {
        self.files.disk.fs.store.access.volume.flash_mut()
    }

    /// The volume that holds the file system.
    pub fn volume(&self) -> &V {
        self.files.disk.store().access.volume.flash()
    }

    /// The faults found and repaired while opening.
    pub fn findings(&self) -> &[crate::Finding] {
        &self.files.disk.fs.findings
    }
}
