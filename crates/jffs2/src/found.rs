//! The results of a scan of the flash, before they are interpreted.

use alloc::vec::Vec;

use flysch_api::flash::FlashError;
use flysch_wire::jffs2::Jffs2NodeError as NodeError;

use crate::stamp::Stamp;

/// Bytes per address unit: nodes start at multiples of it, so 32 bits reach 16 GiB.
const UNIT: u64 = 4;

/// Position of a node, from the start of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address(u32);

impl Address {
    /// Larger flashes, in bytes, cannot be addressed.
    pub(crate) const LIMIT: u64 = UNIT << 32;

    pub(crate) fn new(offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(UNIT) && offset < Self::LIMIT);
        Self((offset / UNIT) as u32)
    }

    pub(crate) fn offset(self) -> u64 {
        u64::from(self.0) * UNIT
    }
}

/// An inode node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeRef {
    pub(crate) ino: u32,
    pub(crate) version: u32,
    pub(crate) address: Address,
    pub(crate) total_len: u32,
}

/// A directory entry node. Its name is in [`Found::names`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirentRef {
    pub(crate) pino: u32,
    pub(crate) version: u32,
    pub(crate) ino: u32,
    pub(crate) address: Address,
    pub(crate) name_at: u32,
    pub(crate) name_len: u8,
    pub(crate) kind: u8,
}

impl DirentRef {
    pub(crate) fn name<'n>(&self, names: &'n [u8]) -> &'n [u8] {
        &names[self.name_at as usize..][..usize::from(self.name_len)]
    }
}

/// An xattr node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrRef {
    pub(crate) xid: u32,
    pub(crate) version: u32,
    pub(crate) address: Address,
    pub(crate) total_len: u32,
}

/// An xref node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XrefRef {
    pub(crate) ino: u32,
    pub(crate) xid: u32,
    pub(crate) xseqno: u32,
    pub(crate) address: Address,
}

/// What is wrong with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Neither a node nor erased nor zeros, between nodes.
    Garbage { len: u64 },
    /// The same at the end of a block's content: an interrupted write.
    Unfinished { len: u64 },
    /// Something with a node's header that is not a valid node.
    Node(NodeError),
    /// The header is damaged; the rest shows what it was.
    Header,
    /// The flash ends within a node of this length, or within its header. A power cut does not
    /// leave this, because a node that does not fit is never started: the image was truncated.
    CutShort { len: Option<u32> },
    /// A node extends into the next block: the block size may be wrong.
    CrossesBlock,
    /// The summary of a block.
    Summary(NodeError),
    /// A summary whose entries do not match the nodes of its block.
    SummaryMismatch,
    /// A node type that a reader must support to read the file system at all.
    Incompatible(u16),
    /// An invalid file name.
    Name,
    /// The flash did not give the block, or a node that a summary lists, and answered this.
    Unreadable(FlashError),
}

/// A place where something is wrong, and what it affects, if known.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) offset: u64,
    pub(crate) wrong: Wrong,
    /// Inode to which the node belonged.
    pub(crate) ino: Option<u32>,
    /// Directory and name, if the node was a directory entry.
    pub(crate) entry: Option<(u32, Vec<u8>)>,
}

/// Used space by type, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) erased: u64,
    pub(crate) bad_blocks: u32,
    pub(crate) clean_markers: u32,
    pub(crate) summaries: u32,
}

/// State of an erase block, for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockFound {
    pub(crate) is_bad: bool,
    /// After this byte everything is erased, and no node extends beyond it.
    pub(crate) end: u32,
    /// After this byte everything is erased; the last node may be longer than what was written.
    pub(crate) written: u32,
    /// CRC-32 of its [last page](crate::scan::last_page) when the nodes were taken from it; none if
    /// the scan did not read that page.
    pub(crate) last: Option<u32>,
    /// Its summary is valid: it was written to its end.
    pub(crate) has_summary: bool,
    /// Length of the clean marker at its start, 0 if there is none.
    pub(crate) cleanmarker_len: u32,
    /// Bytes of padding nodes.
    pub(crate) padded: u32,
    /// When it was last opened, if the scan saw the stamp: a summary does not list it.
    pub(crate) stamp: Option<Stamp>,
}

/// Everything that a scan found, in the order of the flash.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// One for each erase block.
    pub(crate) blocks: Vec<BlockFound>,
    /// Nodes of unknown types that must be kept ([`Compatibility::Copy`]), with their lengths.
    ///
    /// [`Compatibility::Copy`]: flysch_wire::jffs2::Compatibility::Copy
    pub(crate) others: Vec<(Address, u32)>,
    /// There are nodes of unknown types that forbid writing.
    pub(crate) is_read_only: bool,
    pub(crate) nodes: Vec<NodeRef>,
    pub(crate) dirents: Vec<DirentRef>,
    pub(crate) names: Vec<u8>,
    pub(crate) xattrs: Vec<XattrRef>,
    /// Xattr nodes whose name or value was not written completely. They never counted here, but
    /// Linux takes the highest version of an attribute without a look at its value.
    pub(crate) torn_xattrs: Vec<XattrRef>,
    pub(crate) xrefs: Vec<XrefRef>,
    /// The stamps that the scan saw, and where they begin: summaries do not list them.
    pub(crate) stamps: Vec<(u64, Stamp)>,
    pub(crate) problems: Vec<Problem>,
    /// Number of problems beyond those that are kept.
    pub(crate) problems_dropped: u64,
    /// Something suggests that nodes are missing: damage, a block that was erased out of turn, or
    /// an image that ends abruptly. Ranges that no node covers may then have been other than zeros.
    pub(crate) may_miss_nodes: bool,
    pub(crate) space: Space,
}

impl Found {
    /// Maximum number of problems to keep; the rest is only counted.
    const PROBLEMS_MAX: usize = 1 << 16;

    pub(crate) fn problem(&mut self, problem: Problem) {
        if self.problems.len() < Self::PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.problems_dropped += 1;
        }
    }

    /// Adds a directory entry, or records that its name is invalid.
    pub(crate) fn dirent(&mut self, mut dirent: DirentRef, name: &[u8]) {
        let is_name = !name.is_empty()
            && name != b"."
            && name != b".."
            && !name.iter().any(|&byte| matches!(byte, 0 | b'/'));
        let Ok(name_at) = u32::try_from(self.names.len()) else {
            self.problems_dropped += 1;
            return;
        };
        if !is_name {
            self.problem(Problem {
                offset: dirent.address.offset(),
                wrong: Wrong::Name,
                ino: (dirent.ino != 0).then_some(dirent.ino),
                entry: Some((dirent.pino, name.to_vec())),
            });
            return;
        }
        dirent.name_at = name_at;
        dirent.name_len = name.len() as u8;
        self.names.extend_from_slice(name);
        self.dirents.push(dirent);
    }
}
