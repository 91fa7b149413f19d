//! Names in encrypted directories, shown without the key.
//!
//! The stored bytes are a cipher's output. They are shown as base64url, which is a valid file name
//! and different for different names; what would be too long is cut and marked with the hash.

use alloc::format;
use alloc::vec::Vec;

use flysch_wire::ubifs::NAME_MAX;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Stored bytes shown of a name that is too long: 240 characters of base64, room for the hash.
const CUT: usize = 180;

/// The name to show for stored bytes.
pub(crate) fn encode(stored: &[u8], hash: u32) -> Vec<u8> {
    if stored.len().div_ceil(3) * 4 <= NAME_MAX {
        return base64(stored);
    }
    let mut name = base64(&stored[..CUT]);
    name.extend_from_slice(format!("~{hash:08x}").as_bytes());
    name
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
    use super::encode;

    #[test]
    fn names_are_base64url_and_fit() {
        assert_eq!(encode(b"fo", 0), b"Zm8");
        assert_eq!(encode(b"foo\xff\xfe\xfd", 0), b"Zm9v__79");
        assert_eq!(encode(&[7; 255], 0x1234).len(), 249);
    }
}
