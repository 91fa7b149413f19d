//! Making a file system: nodes in, logical erase blocks out.
//!
//! [`UbifsBuilder`] takes blocks of content, inodes and names in any order and writes them in
//! sequence to the main area, LEB by LEB, remembering only where each node lies.
//! [`UbifsBuilder::finish`] then writes what Linux finds after a commit and a clean unmount: the
//! index over those places, the LEB properties tree, master nodes, an empty log, and last the
//! superblock, without which there is no file system. The same calls give the same bytes.
//!
//! The layout is that of mkfs.ubifs: data, a LEB for garbage collection, the index.

mod encrypt;
mod error;
mod geometry;
mod head;
mod index;
mod inode;
mod lpt;
mod pack;

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use flysch_wire::ubifs::lpt::{LebProperties, LptFormat};
use flysch_wire::ubifs::{
    BLOCK_SIZE, CommitStart, Compression, Data, FIRST_INODE, Key, LOG_LEB, MASTER_LEB, Master,
    MasterFlags, Node, ROOT_INODE, SUPERBLOCK_LEB, Superblock,
};
use xxhash_rust::xxh3::Xxh3Default;

pub use error::OptionsError;
pub use geometry::{CreateOptions, Needs};
pub use inode::{NewInode, XattrRefusal, check_xattr};
pub use pack::{LZO_THOROUGH, Packing, pack};

use crate::auth::{Auth, AuthKey, Digest};
use crate::signature::Signer;
use head::Head;
use index::Leaf;

/// Where the LEBs of a new file system go.
pub trait LebSink {
    /// The error of the sink.
    type Error;

    /// Takes the content of LEB `lnum`: a multiple of the write size; the rest of the LEB is 0xFF.
    /// Each LEB comes at most once, in no particular order except that the superblock's is last; a
    /// LEB that never comes is empty.
    ///
    /// # Errors
    /// The sink's own; the builder then gives up.
    fn put(&mut self, lnum: u32, content: &[u8]) -> Result<(), Self::Error>;
}

/// Why a file system could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum UbifsCreateError<E> {
    /// The options contradict each other or the format.
    Options(OptionsError),
    /// More LEBs are needed than `max` (`-c`); reported at the end, when the number is known.
    NoSpace {
        /// LEBs that the content and the areas take.
        needed: u64,
        /// The maximum LEB count.
        max: u32,
    },
    /// No inode numbers are left.
    Inodes,
    /// A directory, or the extended attributes of a file, contain a name twice.
    Duplicate {
        /// The directory or file.
        inode: u32,
        /// The name.
        name: Vec<u8>,
    },
    /// The sink failed.
    Sink(E),
}

impl<E> UbifsCreateError<E> {
    /// Whether a larger maximum LEB count helps.
    pub fn wants_more_lebs(&self) -> bool {
        match self {
            Self::Options(error) => error.wants_more_lebs(),
            Self::NoSpace { .. } => true,
            _ => false,
        }
    }
}

impl<E: fmt::Display> fmt::Display for UbifsCreateError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(error) => error.fmt(f),
            Self::NoSpace { needed, max } => {
                write!(f, "{needed} LEBs are needed, but the maximum is {max} (-c)")
            }
            Self::Inodes => f.write_str("more files than UBIFS has inode numbers"),
            Self::Duplicate { inode, name } => {
                write!(f, "inode {inode} has the name {:?} twice", String::from_utf8_lossy(name))
            }
            Self::Sink(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for UbifsCreateError<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // `Display` shows these errors themselves, so their sources come next.
            Self::Options(error) => error.source(),
            Self::Sink(error) => error.source(),
            Self::NoSpace { .. } | Self::Inodes | Self::Duplicate { .. } => None,
        }
    }
}

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// LEBs of the file system; empty ones were not passed to the sink.
    pub lebs: u32,
    /// LEBs it may grow to.
    pub lebs_max: u32,
    /// First LEB of the main area.
    pub main_first: u32,
    /// LEBs of the index.
    pub index_lebs: u32,
    /// Bytes of nodes in the main area, without the index.
    pub used: u64,
    /// Bytes of the index.
    pub index_size: u64,
    /// Highest inode number given.
    pub highest_inode: u32,
    /// Its unique id.
    pub uuid: [u8; 16],
}

/// Writes a file system from nodes.
pub struct UbifsBuilder<S> {
    superblock: Superblock,
    head: Head<S>,
    leaves: Vec<Leaf>,
    /// The names of the leaves, each preceded by its length.
    names: Vec<u8>,
    highest_inode: u32,
    encryption: Option<encrypt::Encryption>,
    /// Signs the superblock, if it is to be signed.
    signer: Option<Arc<dyn Signer>>,
}

impl<S> fmt::Debug for UbifsBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UbifsBuilder")
            .field("superblock", &self.superblock)
            .field("nodes", &self.leaves.len())
            .finish_non_exhaustive()
    }
}

impl<S: LebSink> UbifsBuilder<S> {
    /// Starts a file system.
    ///
    /// # Errors
    /// [`UbifsCreateError::Options`].
    pub fn new(options: &CreateOptions, sink: S) -> Result<Self, UbifsCreateError<S::Error>> {
        match options.authentication {
            None => Self::start(options, sink),
            Some(_) => Err(UbifsCreateError::Options(OptionsError::NoAuthKey)),
        }
    }

    fn start(options: &CreateOptions, sink: S) -> Result<Self, UbifsCreateError<S::Error>> {
        // Only the areas before the main area are placed now; the number of LEBs is known at the
        // end.
        let mut superblock =
            options.superblock(options.leb_count_max).map_err(UbifsCreateError::Options)?;
        if options.uuid.is_none() {
            superblock.uuid = [0; 16];
        }
        let layout = superblock
            .layout()
            .map_err(|error| UbifsCreateError::Options(OptionsError::Layout(error)))?;
        let digest = options.uuid.is_none().then(Xxh3Default::new);
        let head = Head::new(layout.main, &superblock, sink, digest);
        Ok(Self {
            superblock,
            head,
            leaves: Vec::new(),
            names: Vec::new(),
            highest_inode: FIRST_INODE,
            encryption: None,
            signer: None,
        })
    }

    /// Starts a file system that is authenticated with `key`: nodes are hashed as
    /// [`CreateOptions::authentication`] says.
    ///
    /// # Errors
    /// [`UbifsCreateError::Options`].
    pub fn authenticated(
        options: &CreateOptions,
        key: &AuthKey,
        sink: S,
    ) -> Result<Self, UbifsCreateError<S::Error>> {
        let mut builder = Self::start(options, sink)?;
        if let Some(algorithm) = options.authentication {
            let auth = Auth::new(algorithm, Some(key));
            builder.superblock.hmac_wkm = auth.well_known().unwrap_or(Digest::NONE).padded();
            builder.head.auth = Some(auth);
        }
        Ok(builder)
    }

    /// Starts a file system whose superblock `signer` signs at the end, as mkfs.ubifs does with a
    /// certificate: for devices whose key is not available. Nodes are hashed as
    /// [`CreateOptions::authentication`] says.
    ///
    /// # Errors
    /// [`UbifsCreateError::Options`].
    pub fn signed(
        options: &CreateOptions,
        signer: Arc<dyn Signer>,
        sink: S,
    ) -> Result<Self, UbifsCreateError<S::Error>> {
        let mut builder = Self::start(options, sink)?;
        if let Some(algorithm) = options.authentication {
            builder.head.auth = Some(Auth::new(algorithm, None));
            builder.signer = Some(signer);
        }
        Ok(builder)
    }

    /// Inode number of the root directory.
    pub const ROOT: u32 = ROOT_INODE;

    /// Gives out the next inode number.
    ///
    /// # Errors
    /// [`UbifsCreateError::Inodes`].
    pub fn next_inode(&mut self) -> Result<u32, UbifsCreateError<S::Error>> {
        /// Linux does not give out numbers from here on either (`INUM_WATERMARK`).
        const INODES_END: u32 = 0xffff_ff00;
        if self.highest_inode >= INODES_END - 1 {
            return Err(UbifsCreateError::Inodes);
        }
        self.highest_inode += 1;
        Ok(self.highest_inode)
    }

    /// Takes a sequence number for the creation of a file (`ubifs_ino_node.creat_sqnum`): Linux
    /// requires it to be below those of the file's nodes.
    pub fn creation_sequence(&mut self) -> u64 {
        self.head.next_sequence()
    }

    /// Writes block `block` of a file's content. Blocks of zeros should be left out: a hole reads
    /// as zeros.
    ///
    /// `size` is the block's length before compression, 1 to 4096; it is less than 4096 only in the
    /// last block of a file. `stored` is what [`pack`] made of it.
    ///
    /// # Errors
    /// [`UbifsCreateError::Sink`].
    pub fn block(
        &mut self,
        inode: u32,
        block: u32,
        size: u32,
        (compression, stored): (Compression, &[u8]),
    ) -> Result<(), UbifsCreateError<S::Error>> {
        let key = Key::data(inode, block);
        let mut data = Data { key, size, compression, plain_size: 0, data: stored };
        let mut room;
        if let Some(encryption) = &mut self.encryption {
            room = [0; BLOCK_SIZE as usize];
            data = encryption.block(data, &mut room);
        }
        self.leaf(key, &Node::Data(data))
    }

    fn leaf(&mut self, key: Key, node: &Node<'_>) -> Result<(), UbifsCreateError<S::Error>> {
        let name = match node {
            Node::Entry(entry) => {
                let at = self.names.len() as u32;
                self.names.push(entry.name.len() as u8);
                self.names.extend_from_slice(entry.name);
                at
            }
            _ => 0,
        };
        let place = self.head.append(node)?;
        self.leaves.push(Leaf { key, place, name });
        Ok(())
    }

    /// Writes the rest: index, LEB properties, log, master nodes, superblock.
    ///
    /// # Errors
    /// [`UbifsCreateError::Sink`], [`UbifsCreateError::NoSpace`], [`UbifsCreateError::Duplicate`].
    pub fn finish(mut self) -> Result<(Created, S), UbifsCreateError<S::Error>> {
        index::sort(&mut self.leaves, &self.names)?;
        self.head.flush(false)?;
        let gc_lnum = self.head.skip();
        let (root, index_size) = self.write_index()?;
        let (ihead_lnum, ihead_offs) = self.head.position();
        self.head.flush(true)?;
        self.head.check_room()?;
        self.superblock.leb_count = self.head.lnum();
        let properties = self.head.take_properties();
        let sums = Sums::new(&self.superblock, &properties);
        let mut master = Master {
            highest_inode: self.highest_inode.into(),
            commit: 0,
            flags: MasterFlags::NO_ORPHANS,
            log_lnum: LOG_LEB,
            root_lnum: root.lnum,
            root_offs: root.offset,
            root_len: root.length,
            gc_lnum,
            ihead_lnum,
            ihead_offs,
            index_size,
            total_free: sums.free,
            total_dirty: sums.dirty,
            total_used: sums.used,
            total_dead: sums.dead,
            total_dark: sums.dark,
            lpt_lnum: 0,
            lpt_offs: 0,
            nhead_lnum: 0,
            nhead_offs: 0,
            ltab_lnum: 0,
            ltab_offs: 0,
            lsave_lnum: 0,
            lsave_offs: 0,
            lscan_lnum: self.head.main_first(),
            empty_lebs: sums.empty_lebs,
            idx_lebs: sums.index_lebs,
            leb_cnt: self.superblock.leb_count,
            root_hash: [0; 64],
            lpt_hash: [0; 64],
            hmac: [0; 64],
        };
        master.root_hash = self.head.hash_of(root).padded();
        self.write_lpt(&properties, &mut master)?;
        self.head.single(MASTER_LEB, &Node::Master(master))?;
        self.head.single(MASTER_LEB + 1, &Node::Master(master))?;
        self.head.single(LOG_LEB, &Node::CommitStart(CommitStart { commit: 0 }))?;
        self.head.finish_uuid(&mut self.superblock);
        match self.signer.take() {
            Some(signer) => {
                self.superblock.master_hash = self.head.hash_of_master(master).padded();
                self.head.signed(&self.superblock, &*signer)?;
            }
            None => self.head.single(SUPERBLOCK_LEB, &Node::Superblock(self.superblock))?,
        }
        let created = Created {
            lebs: self.superblock.leb_count,
            lebs_max: self.superblock.leb_count_max,
            main_first: self.head.main_first(),
            index_lebs: sums.index_lebs,
            used: sums.used,
            index_size,
            highest_inode: self.highest_inode,
            uuid: self.superblock.uuid,
        };
        Ok((created, self.head.into_sink()))
    }

    fn write_lpt(
        &mut self,
        properties: &[LebProperties],
        master: &mut Master,
    ) -> Result<(), UbifsCreateError<S::Error>> {
        let format = LptFormat::new(&self.superblock)
            .map_err(|error| UbifsCreateError::Options(OptionsError::Layout(error)))?;
        let hash = self.head.auth.as_ref().map(Auth::algorithm);
        let lpt = lpt::build(&format, self.superblock.min_io_size, (properties, hash));
        master.lpt_hash = lpt.hash.padded();
        for leb in &lpt.lebs {
            self.head.put(leb.lnum, &leb.content)?;
        }
        (master.lpt_lnum, master.lpt_offs) = (lpt.root.lnum, lpt.root.offset);
        (master.ltab_lnum, master.ltab_offs) = (lpt.ltab.lnum, lpt.ltab.offset);
        (master.nhead_lnum, master.nhead_offs) = (lpt.head.lnum, lpt.head.offset);
        if let Some(lsave) = lpt.lsave {
            (master.lsave_lnum, master.lsave_offs) = (lsave.lnum, lsave.offset);
        }
        Ok(())
    }
}

/// Sums over the main area, as in the master node.
struct Sums {
    free: u64,
    dirty: u64,
    used: u64,
    dead: u64,
    dark: u64,
    empty_lebs: u32,
    index_lebs: u32,
}

impl Sums {
    fn new(superblock: &Superblock, properties: &[LebProperties]) -> Self {
        let mut sums =
            Self { free: 0, dirty: 0, used: 0, dead: 0, dark: 0, empty_lebs: 0, index_lebs: 0 };
        for leb in properties {
            sums.free += u64::from(leb.free);
            sums.dirty += u64::from(leb.dirty);
            sums.empty_lebs += u32::from(leb.free == superblock.leb_size);
            if leb.index {
                sums.index_lebs += 1;
                continue;
            }
            let space = leb.free + leb.dirty;
            sums.used += u64::from(superblock.leb_size - space);
            let (dead, dark) = lpt::unusable(space, superblock.min_io_size);
            sums.dead += u64::from(dead);
            sums.dark += u64::from(dark);
        }
        sums
    }
}

/// Makes an empty file system on a volume: a root directory with these permissions, made `now`.
///
/// # Errors
/// [`UbifsCreateError`]; the volume is unchanged if the options do not fit it.
pub fn format<V: flysch_api::volume::VolumeMut>(
    volume: V,
    options: &CreateOptions,
    root: &NewInode<'_>,
) -> Result<Created, UbifsCreateError<flysch_api::flash::FlashError>> {
    check_volume(&volume, options).map_err(UbifsCreateError::Options)?;
    fill(UbifsBuilder::new(options, OnVolume(volume))?, root)
}

/// Makes an empty authenticated file system on a volume, as [`format`] does.
///
/// # Errors
/// [`UbifsCreateError`].
pub fn format_authenticated<V: flysch_api::volume::VolumeMut>(
    volume: V,
    (options, key): (&CreateOptions, &AuthKey),
    root: &NewInode<'_>,
) -> Result<Created, UbifsCreateError<flysch_api::flash::FlashError>> {
    check_volume(&volume, options).map_err(UbifsCreateError::Options)?;
    fill(UbifsBuilder::authenticated(options, key, OnVolume(volume))?, root)
}

/// A file system of other LEBs than the volume's could not be opened there.
fn check_volume(
    volume: &impl flysch_api::volume::VolumeMut,
    options: &CreateOptions,
) -> Result<(), OptionsError> {
    let (geometry, unit) = (volume.geometry(), options.min_io_size);
    if options.leb_size != geometry.leb_size {
        return Err(OptionsError::OtherLebs(options.leb_size, geometry.leb_size));
    }
    match geometry.write_size {
        Some(write_size) if !unit.is_multiple_of(write_size.max(1)) => {
            Err(OptionsError::OtherMinIo(unit, write_size))
        }
        _ => Ok(()),
    }
}

fn fill<V: flysch_api::volume::VolumeMut>(
    mut builder: UbifsBuilder<OnVolume<V>>,
    root: &NewInode<'_>,
) -> Result<Created, UbifsCreateError<flysch_api::flash::FlashError>> {
    let creation = builder.creation_sequence();
    builder.inode(UbifsBuilder::<OnVolume<V>>::ROOT, creation, root)?;
    let (created, mut sink) = builder.finish()?;
    sink.0.sync().map_err(UbifsCreateError::Sink)?;
    Ok(created)
}

/// A volume as a sink; previous content of a LEB is lost.
struct OnVolume<V>(V);

impl<V: flysch_api::volume::VolumeMut> LebSink for OnVolume<V> {
    type Error = flysch_api::flash::FlashError;

    fn put(&mut self, lnum: u32, content: &[u8]) -> Result<(), Self::Error> {
        self.0.change(lnum, content)
    }
}
