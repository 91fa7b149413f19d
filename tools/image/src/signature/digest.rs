//! The hashes used in signatures.

use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};

use flysch_ubifs::HashAlgorithm;

/// A hash function, as named in superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(pub(super) HashAlgorithm);

impl Digest {
    /// By its object identifier (2.16.840.1.101.3.4.2.1 to 4).
    pub(super) fn from_object(object: &[u8]) -> Option<Self> {
        HashAlgorithm::ALL.into_iter().map(Self).find(|digest| digest.object() == object)
    }

    /// Its object identifier.
    pub(super) fn object(self) -> &'static [u8] {
        match self.0 {
            HashAlgorithm::Sha256 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01],
            HashAlgorithm::Sha384 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02],
            HashAlgorithm::Sha512 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03],
            HashAlgorithm::Sha224 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x04],
        }
    }

    /// The hash of the whole input.
    pub(super) fn of(self, content: &[u8]) -> Vec<u8> {
        match self.0 {
            HashAlgorithm::Sha224 => Sha224::digest(content).to_vec(),
            HashAlgorithm::Sha256 => Sha256::digest(content).to_vec(),
            HashAlgorithm::Sha384 => Sha384::digest(content).to_vec(),
            HashAlgorithm::Sha512 => Sha512::digest(content).to_vec(),
        }
    }
}
