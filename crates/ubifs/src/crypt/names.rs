//! Names and symlink targets: padded with zeros, then encrypted.

use alloc::vec::Vec;

use flysch_wire::ubifs::{INLINE_DATA_MAX, NAME_MAX};

use super::{BLOCK, FileCipher, Policy};

/// Bytes before an encrypted target: its length.
const TARGET_HEAD: usize = 2;
/// Longest encrypted target, bytes: Linux counts the length and a NUL that is not stored.
const TARGET_MAX: usize = INLINE_DATA_MAX - TARGET_HEAD - 1;

/// Encrypts a name; `None` if it is too long.
fn encrypt(policy: &Policy, cipher: &FileCipher, name: &[u8], most: usize) -> Option<Vec<u8>> {
    if name.len() > most {
        return None;
    }
    let length = padded(policy, name.len(), most);
    let mut stored = Vec::with_capacity(length);
    stored.extend_from_slice(name);
    stored.resize(length, 0);
    cipher.encrypt(0, &mut stored);
    Some(stored)
}

fn padded(policy: &Policy, length: usize, most: usize) -> usize {
    length.max(BLOCK).next_multiple_of(policy.padding()).min(most)
}

/// Stored length of a name of `length` bytes.
pub(crate) fn stored_length(policy: &Policy, length: usize) -> usize {
    padded(policy, length, NAME_MAX)
}

/// Decrypts a name; `None` if it is not valid.
fn decrypt(cipher: &FileCipher, stored: &[u8]) -> Option<Vec<u8>> {
    if stored.len() < BLOCK {
        return None;
    }
    let mut name = Vec::from(stored);
    cipher.decrypt(0, &mut name);
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    name.truncate(end);
    Some(name)
}

/// A name as its directory stores it; `None` if it is too long.
pub(crate) fn encrypt_name(policy: &Policy, cipher: &FileCipher, name: &[u8]) -> Option<Vec<u8>> {
    encrypt(policy, cipher, name, NAME_MAX)
}

/// The plain form of a stored name; `None` if it is not valid.
pub(crate) fn decrypt_name(cipher: &FileCipher, stored: &[u8]) -> Option<Vec<u8>> {
    decrypt(cipher, stored)
}

/// A target as its symlink stores it, preceded by its length; `None` if it is too long.
pub(crate) fn encrypt_target(policy: &Policy, cipher: &FileCipher, name: &[u8]) -> Option<Vec<u8>> {
    let mut stored = encrypt(policy, cipher, name, TARGET_MAX)?;
    let length = (stored.len() as u16).to_le_bytes();
    stored.splice(0..0, length);
    Some(stored)
}

/// The plain form of a stored target; `None` if it is not valid.
pub(crate) fn decrypt_target(cipher: &FileCipher, stored: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = stored.split_first_chunk()?;
    let name = rest.get(..u16::from_le_bytes(*length).into())?;
    decrypt(cipher, name).filter(|target| !target.is_empty())
}
