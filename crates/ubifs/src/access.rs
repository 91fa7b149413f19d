//! Fetching nodes from LEBs.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash;
use flysch_api::vfs::{Damage, FsError, Inode};
use flysch_api::volume::{LebState, Volume};
use flysch_wire::ubifs::lpt::LptError;
use flysch_wire::ubifs::{Header, NODE_ALIGNMENT, NodeError, NodeKind};
use once_cell::race::OnceBox;

use crate::auth::HashAlgorithm;
use crate::location::Location;
use crate::node_cache::NodeCache;

/// Why something could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Not a node, or a damaged one.
    Node(NodeError),
    /// Not an LPT node, or a damaged one.
    Lpt(LptError),
    /// The flash could not be read.
    Flash(flash::FlashError),
    /// A good node, but not the one expected here.
    Mismatch(&'static str),
    /// A place where such a node cannot lie.
    Misplaced,
    /// A good node that another branch has already led to.
    Twice,
    /// A good node, but not the one that was signed.
    Hash,
    /// A good node that no signature covers.
    Unproven,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(error) => error.fmt(f),
            Self::Lpt(error) => error.fmt(f),
            Self::Flash(error) => error.fmt(f),
            Self::Mismatch(what) => write!(f, "the node here has the wrong {what}"),
            Self::Misplaced => f.write_str("a node of this kind cannot be here"),
            Self::Twice => f.write_str("more than one branch leads to the node here"),
            Self::Hash => {
                f.write_str("authentication failed: its hash is not the one that was signed")
            }
            Self::Unproven => f.write_str("authentication failed: no signed hash covers it"),
        }
    }
}

impl Cause {
    /// The fault in the terms all formats share; a flash error becomes `Missing`.
    fn damage(self) -> Damage {
        match self {
            Self::Node(NodeError::Short) | Self::Lpt(LptError::Short) => Damage::Truncated,
            Self::Node(NodeError::Magic(_)) => Damage::Magic,
            Self::Node(NodeError::Length(_)) => Damage::Field("length"),
            Self::Node(NodeError::Crc { .. }) | Self::Lpt(LptError::Crc { .. }) => Damage::Checksum,
            Self::Node(NodeError::Kind(_)) | Self::Lpt(LptError::Kind(_)) => Damage::Kind,
            Self::Node(NodeError::Field(name)) | Self::Lpt(LptError::Field(name)) => {
                Damage::Field(name)
            }
            Self::Mismatch(_) | Self::Twice => Damage::Mismatch,
            Self::Misplaced => Damage::Misplaced,
            Self::Hash | Self::Unproven => Damage::Authentication,
            Self::Flash(_) => Damage::Missing,
        }
    }
}

/// Something that could not be used, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) structure: &'static str,
    pub(crate) place: Place,
    pub(crate) cause: Cause,
}

impl From<Fault> for FsError {
    fn from(fault: Fault) -> Self {
        match fault.cause {
            Cause::Flash(source) => Self::Medium { place: fault.place, source },
            cause => Self::Damaged {
                structure: fault.structure,
                place: fault.place,
                cause: cause.damage(),
            },
        }
    }
}

impl Fault {
    /// Whether the flash did not give it, which says nothing about what is there.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.cause, Cause::Flash(_))
    }

    pub(crate) fn finding(&self, severity: Severity) -> Finding {
        finding(severity, self.structure, format!("{}", self.cause), self.place)
    }

    pub(crate) fn finding_of(&self, severity: Severity, inode: u32) -> Finding {
        Finding { inode: Some(Inode(inode.into())), ..self.finding(severity) }
    }
}

/// A finding about no file in particular.
pub(crate) fn finding(
    severity: Severity,
    structure: &'static str,
    problem: String,
    place: Place,
) -> Finding {
    Finding { severity, structure, problem, place, inode: None, path: None }
}

/// Buffer for one node, used where the volume does not support `point`. Index nodes of the usual
/// size need no heap.
pub(crate) struct Scratch {
    inline: [u8; Self::INLINE],
    heap: Vec<u8>,
}

impl Scratch {
    /// Bytes held without the heap.
    pub(crate) const INLINE: usize = 256;

    pub(crate) fn new() -> Self {
        Self { inline: [0; Self::INLINE], heap: Vec::new() }
    }

    pub(crate) fn room(&mut self, length: usize) -> &mut [u8] {
        if length <= self.inline.len() {
            return &mut self.inline[..length];
        }
        if self.heap.len() < length {
            self.heap.resize(length, 0);
        }
        &mut self.heap[..length]
    }
}

/// Bytes read from a place where a write may have been cut short. The next read may return
/// different bytes, so these are used instead.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lnum: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Held {
    /// Copies the held bytes that belong at `offset` into `buffer`.
    fn lay_over(&self, offset: u32, buffer: &mut [u8]) {
        let skip = self.offset.saturating_sub(offset) as usize;
        let from = offset.saturating_sub(self.offset) as usize;
        let (Some(to), Some(from)) = (buffer.get_mut(skip..), self.bytes.get(from..)) else {
            return;
        };
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }

    fn touches(&self, at: Location) -> bool {
        let end = u64::from(self.offset) + self.bytes.len() as u64;
        self.lnum == at.lnum
            && u64::from(at.offset) < end
            && self.offset < at.offset.saturating_add(at.length)
    }
}

/// A volume, seen as nodes.
#[derive(Clone, Debug)]
pub(crate) struct Access<V> {
    pub(crate) volume: V,
    pub(crate) leb_size: u32,
    pub(crate) lebs: u32,
    /// Bytes of places that must not be read again, by LEB.
    held: BTreeMap<u32, Vec<Held>>,
    /// Hash algorithm, if nodes must match the hashes that were signed.
    pub(crate) verify: Option<HashAlgorithm>,
    /// Names and inodes read or written while the file system is open for writing; the writer, the
    /// only user, keeps them current.
    pub(crate) leaves: Option<NodeCache>,
    /// The first place that the flash did not give, and its answer.
    refused: OnceBox<(Location, flash::FlashError)>,
}

impl<V: Volume> Access<V> {
    pub(crate) fn new(volume: V, leb_size: u32, lebs: u32) -> Self {
        let (held, refused) = (BTreeMap::new(), OnceBox::new());
        Self { volume, leb_size, lebs, held, verify: None, leaves: None, refused }
    }

    /// The first answer of the flash when it did not give something.
    pub(crate) fn refusal(&self) -> Option<flash::FlashError> {
        self.refused.get().map(|refused| refused.1)
    }

    /// Fails if there was something that the flash did not give, for whatever reason it was read:
    /// what was concluded from that may be wrong. The error is [`FsError::Medium`].
    pub(crate) fn check_given(&self) -> Result<(), FsError> {
        self.refused.get().map_or(Ok(()), |&(at, source)| {
            Err(FsError::Medium { place: self.place(at.lnum, at.offset), source })
        })
    }

    /// From now on these bytes are used, whatever their places read as.
    pub(crate) fn hold(&mut self, held: impl IntoIterator<Item = Held>) {
        held.into_iter().for_each(|held| self.held.entry(held.lnum).or_default().push(held));
    }

    /// Reads all places again.
    pub(crate) fn hold_nothing(&mut self) {
        self.held.clear();
    }

    /// Drops everything remembered about a LEB whose content has changed.
    pub(crate) fn let_go(&mut self, lnum: u32) {
        self.held.remove(&lnum);
        if let Some(leaves) = &self.leaves {
            leaves.forget_leb(lnum);
        }
    }

    /// Where something lies, with its physical erase block if known.
    pub(crate) fn place(&self, lnum: u32, offset: u32) -> Place {
        let peb = match self.volume.state(lnum) {
            LebState::Mapped(peb) => peb,
            LebState::Unmapped => None,
        };
        Place { peb, leb: Some(lnum), offset: Some(offset) }
    }

    /// Bytes of a LEB.
    pub(crate) fn bytes<'b>(
        &'b self,
        at: Location,
        scratch: &'b mut Scratch,
    ) -> Result<&'b [u8], Cause> {
        let Location { lnum, offset, length } = at;
        let end = u64::from(offset) + u64::from(length);
        if lnum >= self.lebs || end > u64::from(self.leb_size) {
            return Err(Cause::Misplaced);
        }
        let held = self.held.get(&lnum).map_or(&[][..], |held| held);
        let is_held = held.iter().any(|held| held.touches(at));
        if !is_held && let Some(bytes) = self.volume.point(lnum, offset, length as usize) {
            return Ok(bytes);
        }
        let room = scratch.room(length as usize);
        match self.volume.read(lnum, offset, room) {
            // Bytes that error correction could not repair are left to the node's CRC.
            Ok(_) | Err(flash::FlashError::Uncorrectable { .. }) => {}
            Err(error) => {
                // Beyond the end is what a truncated image lacks. An answer before this one stays.
                if error != flash::FlashError::OutOfRange {
                    let _ = self.refused.set(Box::new((at, error)));
                }
                return Err(Cause::Flash(error));
            }
        }
        if is_held {
            held.iter().for_each(|held| held.lay_over(offset, room));
        }
        Ok(room)
    }

    /// An index node, its CRC verified and its hash checked against the one in its branch.
    pub(crate) fn index_node<'b>(
        &'b self,
        at: Location,
        hash: &[u8],
        scratch: &'b mut Scratch,
    ) -> Result<(Header, &'b [u8]), Fault> {
        let (header, bytes) = self.node(at, NodeKind::Index, scratch)?;
        self.genuine(at, NodeKind::Index, (bytes, hash))?;
        Ok((header, bytes))
    }

    /// Checks, if nodes are verified, that a node has the hash its branch states.
    pub(crate) fn genuine(
        &self,
        at: Location,
        kind: NodeKind,
        (node, hash): (&[u8], &[u8]),
    ) -> Result<(), Fault> {
        match self.verify {
            Some(algorithm) if !algorithm.hash(node).fits(hash) => {
                let place = self.place(at.lnum, at.offset);
                Err(Fault { structure: kind.name(), place, cause: Cause::Hash })
            }
            _ => Ok(()),
        }
    }

    /// A whole LEB.
    pub(crate) fn leb<'b>(
        &'b self,
        lnum: u32,
        scratch: &'b mut Scratch,
    ) -> Result<&'b [u8], Cause> {
        self.bytes(Location { lnum, offset: 0, length: self.leb_size }, scratch)
    }

    /// The node of this kind at a place that something refers to, its CRC verified.
    pub(crate) fn node<'b>(
        &'b self,
        at: Location,
        kind: NodeKind,
        scratch: &'b mut Scratch,
    ) -> Result<(Header, &'b [u8]), Fault> {
        let fault =
            |cause| Fault { structure: kind.name(), place: self.place(at.lnum, at.offset), cause };
        if !at.offset.is_multiple_of(NODE_ALIGNMENT) {
            return Err(fault(Cause::Misplaced));
        }
        let bytes = self.bytes(at, scratch).map_err(fault)?;
        let (header, bytes) = Header::check(bytes).map_err(|error| fault(Cause::Node(error)))?;
        if header.kind != kind {
            return Err(fault(Cause::Node(NodeError::Kind(header.kind))));
        }
        if header.length != at.length {
            return Err(fault(Cause::Mismatch("length")));
        }
        Ok((header, bytes))
    }
}
