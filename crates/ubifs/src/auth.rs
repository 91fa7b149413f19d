//! Authentication: hashes from the master node down to every node, anchored in HMACs.
//!
//! | what | vouched for by |
//! |---|---|
//! | superblock, master node | an HMAC in them or, if a signing tool made the image, a signature after the superblock and a hash of the master node in it ([`signature`](crate::signature)) |
//! | nodes of the index, and those it leads to | a hash in the branch; the hash of the root is in the master node |
//! | LEB properties | a hash over all leaves of their tree in the master node |
//! | journal | authentication nodes: an HMAC over commit start, references and all nodes before it in the bud |
//!
//! Facts: Linux `fs/ubifs/auth.c` and `Documentation/filesystems/ubifs-authentication.rst`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::finding::Place;
use flysch_api::vfs::FsError;
use flysch_wire::ubifs::{
    Authentication, Group, HASH_MAX, HEADER_SIZE, Header, JOURNAL_HEADS, Node, Superblock,
    SuperblockFlags,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

use crate::location::Location;

/// Signed with the key, so that a wrong key can be told from a changed image.
const WELL_KNOWN_MESSAGE: &[u8] = b"UBIFS";

/// How nodes are hashed (`auth_hash_name`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl HashAlgorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    /// The algorithm with this number in Linux (`enum hash_algo`).
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.code() == code)
    }

    /// The algorithm with this name in Linux.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Its number in Linux.
    pub fn code(self) -> u16 {
        match self {
            Self::Sha256 => 4,
            Self::Sha384 => 5,
            Self::Sha512 => 6,
            Self::Sha224 => 7,
        }
    }

    /// Its name in Linux.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Bytes of a hash.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Hash of a whole node.
    pub(crate) fn hash(self, node: &[u8]) -> Digest {
        let mut hasher = Hasher::new(self);
        hasher.update(node);
        hasher.finish()
    }
}

/// The key of an authenticated file system: arbitrary bytes.
///
/// It is cleared on drop and not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthKey {
    bytes: Zeroizing<Vec<u8>>,
    algorithm: Option<HashAlgorithm>,
}

impl AuthKey {
    /// The key in `bytes`. If `algorithm` is given, the image must be hashed with it (Linux:
    /// `auth_hash_name`).
    pub fn new(bytes: &[u8], algorithm: Option<HashAlgorithm>) -> Self {
        Self { bytes: Zeroizing::new(bytes.into()), algorithm }
    }

    /// The hash algorithm the image must use, if one was asked for.
    pub fn algorithm(&self) -> Option<HashAlgorithm> {
        self.algorithm
    }
}

impl fmt::Debug for AuthKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureError {
    /// There are no certificates to verify it with.
    NoCertificate,
    /// No signature follows the superblock.
    Missing,
    /// Its format is not supported; the text says which part.
    Form(&'static str),
    /// None of the certificates belongs to its signer.
    Signer,
    /// The superblock is not what was signed.
    Wrong,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => f.write_str(
                "its superblock is signed with a certificate, and no certificate was given to \
                 verify it",
            ),
            Self::Missing => {
                f.write_str("authentication failed: the superblock has neither HMAC nor signature")
            }
            Self::Form(what) => {
                write!(f, "the signature of the superblock cannot be verified: {what}")
            }
            Self::Signer => f.write_str("the superblock was not signed by that certificate"),
            Self::Wrong => {
                f.write_str("authentication failed: the superblock is not what was signed")
            }
        }
    }
}

impl core::error::Error for SignatureError {}

/// Why an image is not accepted as what its owner signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthError {
    /// Authentication was asked for, but the image is not authenticated.
    NotAuthenticated,
    /// The image does not use the hash algorithm asked for, but the one with this number in Linux.
    Algorithm(u16),
    /// The key is not the one the image was signed with.
    Key,
    /// There are certificates but no key, and a device has written its HMACs into the image since
    /// it was made.
    NoKey,
    /// The superblock's signature is not accepted.
    Signature(SignatureError),
    /// A part has changed since it was signed.
    Changed {
        /// Which part.
        structure: &'static str,
        /// Where it lies.
        place: Place,
    },
    /// A part that everything else depends on is missing.
    Lost(&'static str),
    /// A part that everything else depends on cannot be read.
    Unread {
        /// Which part.
        structure: &'static str,
        /// Why, and where it lies.
        cause: FsError,
    },
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAuthenticated => f.write_str(
                "a key was given, but the superblock says that this UBIFS is not authenticated",
            ),
            Self::Algorithm(code) => match HashAlgorithm::from_code(*code) {
                Some(algorithm) => write!(f, "its nodes are hashed with {}", algorithm.name()),
                None => write!(f, "its nodes are hashed with an unknown algorithm, number {code}"),
            },
            Self::Key => f.write_str("the key is not the one it was signed with"),
            Self::NoKey => f.write_str(
                "a device has written to it since it was signed with a certificate, and only the \
                 device's key can verify that",
            ),
            Self::Signature(error) => error.fmt(f),
            Self::Changed { structure, place } => {
                write!(f, "authentication failed: the {structure}")?;
                if let Some(leb) = place.leb {
                    write!(f, " at LEB {leb}")?;
                }
                if let Some(offset) = place.offset {
                    write!(f, " offset {offset}")?;
                }
                f.write_str(" is not what was signed")
            }
            Self::Lost(structure) => {
                write!(f, "the {structure} cannot be read, and nothing else can be authenticated")
            }
            Self::Unread { structure, cause } => write!(
                f,
                "the {structure} cannot be read, and nothing else can be authenticated: {cause}"
            ),
        }
    }
}

impl core::error::Error for AuthError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Signature(error) => Some(error),
            Self::Unread { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// How a part of an image was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By an HMAC with the key.
    Hmac,
    /// By a hash in the superblock, which a signature covers.
    Hash,
    /// By a signature that belongs to a certificate.
    Signature,
}

impl Proof {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hmac => "hmac",
            Self::Hash => "hash",
            Self::Signature => "signature",
        }
    }
}

/// What was verified when a file system was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How nodes are hashed.
    pub algorithm: HashAlgorithm,
    /// The superblock.
    pub superblock: Proof,
    /// The master node.
    pub master: Proof,
}

/// A hash or an HMAC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest {
    bytes: [u8; HASH_MAX],
    length: u8,
}

impl Digest {
    pub(crate) const NONE: Self = Self { bytes: [0; HASH_MAX], length: 0 };

    pub(crate) fn new(from: &[u8]) -> Self {
        let mut bytes = [0; HASH_MAX];
        bytes[..from.len()].copy_from_slice(from);
        Self { bytes, length: from.len() as u8 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Padded to the size of the fields in the superblock and master node.
    pub(crate) fn padded(&self) -> [u8; HASH_MAX] {
        self.bytes
    }

    /// Whether `stored`, which may be longer, begins with it.
    pub(crate) fn fits(&self, stored: &[u8]) -> bool {
        // Compares all bytes, so that timing does not reveal how many match.
        let differ =
            self.bytes().iter().zip(stored).fold(0, |all, (one, other)| all | (one ^ other));
        stored.len() >= self.bytes().len() && differ == 0
    }
}

macro_rules! each {
    ($of:expr, $inner:ident => $do:expr) => {
        match $of {
            Self::Sha224($inner) => $do,
            Self::Sha256($inner) => $do,
            Self::Sha384($inner) => $do,
            Self::Sha512($inner) => $do,
        }
    };
}

/// A hash in progress.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha224(Sha224),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    pub(crate) fn new(algorithm: HashAlgorithm) -> Self {
        match algorithm {
            HashAlgorithm::Sha224 => Self::Sha224(Sha224::new()),
            HashAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
            HashAlgorithm::Sha384 => Self::Sha384(Sha384::new()),
            HashAlgorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        each!(self, hasher => hasher.update(bytes));
    }

    /// The hash of everything so far; more may be added after it.
    pub(crate) fn finish(&self) -> Digest {
        each!(self, hasher => Digest::new(&hasher.clone().finalize()))
    }
}

/// An HMAC with its key.
#[derive(Clone)]
enum Keyed {
    Sha224(Hmac<Sha224>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

impl Keyed {
    fn new(algorithm: HashAlgorithm, key: &[u8]) -> Self {
        const ANY: &str = "an HMAC takes keys of any length";
        match algorithm {
            HashAlgorithm::Sha224 => Self::Sha224(Hmac::new_from_slice(key).expect(ANY)),
            HashAlgorithm::Sha256 => Self::Sha256(Hmac::new_from_slice(key).expect(ANY)),
            HashAlgorithm::Sha384 => Self::Sha384(Hmac::new_from_slice(key).expect(ANY)),
            HashAlgorithm::Sha512 => Self::Sha512(Hmac::new_from_slice(key).expect(ANY)),
        }
    }

    fn of(&self, parts: &[&[u8]]) -> Digest {
        each!(self, hmac => {
            let mut hmac = hmac.clone();
            parts.iter().for_each(|part| hmac.update(part));
            Digest::new(&hmac.finalize().into_bytes())
        })
    }
}

/// The authentication state of one file system.
#[derive(Clone)]
pub(crate) struct Auth {
    algorithm: HashAlgorithm,
    /// `None` if only a signature vouches for the image: no device has written to it, so it has no
    /// HMAC.
    key: Option<Keyed>,
    /// Hashes of nodes by place: those in the journal and, while an index is being written, those
    /// it leads to.
    known: BTreeMap<(u32, u32), Digest>,
    /// Covers the log's commit start and references.
    log: Hasher,
    /// For each head: the log up to the reference to its bud, then the bud.
    heads: [Hasher; JOURNAL_HEADS],
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl Auth {
    pub(crate) fn new(algorithm: HashAlgorithm, key: Option<&AuthKey>) -> Self {
        let hasher = Hasher::new(algorithm);
        Self {
            algorithm,
            key: key.map(|key| Keyed::new(algorithm, &key.bytes)),
            known: BTreeMap::new(),
            heads: core::array::from_fn(|_| hasher.clone()),
            log: hasher,
        }
    }

    /// The state for an image, from its superblock.
    pub(crate) fn of(superblock: &Superblock, key: Option<&AuthKey>) -> Result<Self, AuthError> {
        if !superblock.flags.contains(SuperblockFlags::AUTHENTICATION) {
            return Err(AuthError::NotAuthenticated);
        }
        let code = superblock.hash_algorithm;
        let algorithm = HashAlgorithm::from_code(code).ok_or(AuthError::Algorithm(code))?;
        match key.and_then(|key| key.algorithm) {
            Some(wanted) if wanted != algorithm => Err(AuthError::Algorithm(code)),
            _ => Ok(Self::new(algorithm, key)),
        }
    }

    pub(crate) fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// Whether there is a key; without one nothing can be signed.
    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    fn hmac(&self, parts: &[&[u8]]) -> Option<Digest> {
        self.key.as_ref().map(|key| key.of(parts))
    }

    /// A hash stored in a field of the superblock or master node.
    pub(crate) fn stored(&self, field: &[u8; HASH_MAX]) -> Digest {
        Digest::new(&field[..self.algorithm.size()])
    }

    pub(crate) fn hash(&self, node: &[u8]) -> Digest {
        self.algorithm.hash(node)
    }

    /// The HMAC that tells whether a key is the right one.
    pub(crate) fn well_known(&self) -> Option<Digest> {
        self.hmac(&[WELL_KNOWN_MESSAGE])
    }

    /// The HMAC of a node that stores it at `at`. It covers everything after magic and CRC except
    /// itself.
    pub(crate) fn hmac_of_node(&self, node: &[u8], at: usize) -> Option<Digest> {
        self.hmac(&[&node[8..at], &node[at + self.algorithm.size()..]])
    }

    /// Puts the HMAC into the node that [`Node::emit`] wrote to the start of `node`.
    pub(crate) fn sign(&self, node: &mut [u8], at: usize) {
        let Ok(header) = Header::parse(node) else { return };
        let node = &mut node[..header.length as usize];
        let Some(hmac) = self.hmac_of_node(node, at) else { return };
        node[at..at + hmac.bytes().len()].copy_from_slice(hmac.bytes());
        header.emit(node);
    }

    /// Whether an authentication node matches what was hashed before it.
    pub(crate) fn vouches(&self, hasher: &Hasher, node: &[u8]) -> bool {
        let hmac = self.hmac(&[hasher.finish().bytes()]);
        hmac.is_some_and(|hmac| {
            node.len() == HEADER_SIZE + hmac.bytes().len() && hmac.fits(&node[HEADER_SIZE..])
        })
    }

    /// Bytes of an authentication node, aligned.
    pub(crate) fn node_size(&self) -> u32 {
        flysch_wire::ubifs::align8((HEADER_SIZE + self.algorithm.size()) as u32)
    }

    /// Starts the log anew.
    pub(crate) fn restart_log(&mut self) {
        self.log = Hasher::new(self.algorithm);
    }

    /// Adds a commit start or reference that was written to the log.
    pub(crate) fn log(&mut self, node: &[u8]) {
        self.log.update(node);
    }

    /// Continues a log that was read.
    pub(crate) fn resume_log(&mut self, log: Hasher) {
        self.log = log;
    }

    /// Opens a head's bud, whose reference is the last one in the log.
    pub(crate) fn open_bud(&mut self, head: usize) {
        self.heads[head] = self.log.clone();
    }

    /// Adds a node that a journal head writes to `at`.
    pub(crate) fn journal(&mut self, head: usize, at: Location, node: &[u8]) {
        let node = &node[..at.length as usize];
        self.heads[head].update(node);
        self.know(at, self.hash(node));
    }

    /// The authentication node for what a journal head has written.
    pub(crate) fn emit(&self, head: usize, sequence: u64, out: &mut [u8]) {
        let Some(hmac) = self.hmac(&[self.heads[head].finish().bytes()]) else { return };
        let node = Node::Authentication(Authentication { hmac: hmac.bytes() });
        node.emit(sequence, Group::None, out);
    }

    /// Records the hash of the node at a place.
    pub(crate) fn know(&mut self, at: Location, hash: Digest) {
        self.known.insert((at.lnum, at.offset), hash);
    }

    /// As [`know`](Self::know), from a branch of the committed index, which may be outdated: what
    /// the journal has put there since takes precedence.
    pub(crate) fn learn(&mut self, at: Location, hash: &[u8]) {
        self.known.entry((at.lnum, at.offset)).or_insert_with(|| Digest::new(hash));
    }

    /// The hash of the node at a place; `None` if only the committed index has it.
    pub(crate) fn known(&self, at: Location) -> Option<&Digest> {
        self.known.get(&(at.lnum, at.offset))
    }

    /// Drops all hashes: the committed index now has them.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}

/// Whether an HMAC field is empty, as a tool that signs with a certificate leaves it.
pub(crate) fn is_unsigned(hmac: &[u8; HASH_MAX]) -> bool {
    hmac.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
