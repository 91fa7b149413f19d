//! Names in encrypted directories, shown without the key, as Linux shows them.
//!
//! Base64url of the name's hash, its cookie, the first 149 stored bytes and, if the name is longer,
//! the SHA-256 of the rest.

use alloc::vec::Vec;

use flysch_wire::ubifs::DirectoryEntry;
use sha2::{Digest, Sha256};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Stored bytes shown in full.
const WHOLE: usize = 149;

/// The name to show for an entry.
pub(crate) fn encode(entry: &DirectoryEntry<'_>) -> Vec<u8> {
    let whole = entry.name.len().min(WHOLE);
    let mut bytes = Vec::with_capacity(8 + entry.name.len());
    bytes.extend_from_slice(&entry.key.value().to_le_bytes());
    bytes.extend_from_slice(&entry.cookie.to_le_bytes());
    bytes.extend_from_slice(&entry.name[..whole]);
    if entry.name.len() > WHOLE {
        bytes.extend_from_slice(&Sha256::digest(&entry.name[WHOLE..]));
    }
    base64(&bytes)
}

/// The hash of the name shown as `shown`; `None` if no name is shown that way.
pub(crate) fn hash(shown: &[u8]) -> Option<u32> {
    // The first six characters contain the four bytes of the hash.
    let mut word = 0_u64;
    for &character in shown.get(..6)? {
        let value = ALPHABET.iter().position(|&other| other == character)?;
        word = word << 6 | value as u64;
    }
    Some(((word >> 4) as u32).swap_bytes())
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        let word = word << (8 * (3 - group.len()));
        for at in 0..=group.len() {
            out.push(ALPHABET[(word >> (18 - 6 * at)) as usize & 63]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use flysch_wire::ubifs::{EntryKind, Key};

    use super::*;

    #[test]
    fn names_are_base64url_and_fit() {
        let entry = |name| DirectoryEntry {
            kind: EntryKind::Directory,
            key: Key::entry(1, 0x1234_5678),
            inode: 70,
            file_type: 0,
            cookie: 0x9abc_def0,
            name,
        };
        // 78 56 34 12 f0 de bc 9a, then the name.
        assert_eq!(encode(&entry(b"foo")), b"eFY0EvDevJpmb28");
        assert_eq!(hash(b"eFY0EvDevJpmb28"), Some(0x1234_5678));
        assert_eq!(encode(&entry(&[7; 149])).len(), 210);
        assert_eq!(encode(&entry(&[7; 255])).len(), 252);
        assert_eq!((hash(b"eFY0E"), hash(b"no name")), (None, None));
    }
}
