//! Master keys, and the file keys derived from them.

use alloc::vec::Vec;
use core::fmt;

use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use flysch_api::vfs::FsError;
use hkdf::Hkdf;
use sha2::{Digest, Sha512};
use zeroize::Zeroizing;

use super::{BLOCK, CipherMode, Context, KeyName};

/// Largest size of a master key and of a file's key, bytes.
const KEY_MAX: usize = 64;
/// Smallest size of a master key, bytes.
const KEY_MIN: usize = 16;

/// Purposes of derived keys (`HKDF_CONTEXT_*`).
const FOR_IDENTIFIER: u8 = 1;
const FOR_FILE: u8 = 2;
const FOR_MODE: u8 = 3;

/// A master key of fscrypt. It is cleared on drop, and not shown by `Debug`.
#[derive(Clone)]
pub struct MasterKey {
    bytes: Zeroizing<Vec<u8>>,
    descriptor: [u8; 8],
    identifier: [u8; 16],
}

/// A length that is not valid for a master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// Its length in bytes.
    pub length: usize,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.length;
        write!(f, "a master key of {length} bytes: it must have {KEY_MIN} to {KEY_MAX} raw bytes")
    }
}

impl core::error::Error for KeyError {}

impl MasterKey {
    /// The key in `bytes`. Policies of version 1 name it by `descriptor`; the default is the first
    /// bytes of its double SHA-512, as in fscrypt's tools.
    ///
    /// # Errors
    /// The length is not valid for a master key.
    pub fn new(bytes: &[u8], descriptor: Option<[u8; 8]>) -> Result<Self, KeyError> {
        if !(KEY_MIN..=KEY_MAX).contains(&bytes.len()) {
            return Err(KeyError { length: bytes.len() });
        }
        let descriptor = descriptor.unwrap_or_else(|| {
            let twice = Sha512::digest(Sha512::digest(bytes));
            core::array::from_fn(|at| twice[at])
        });
        let bytes = Zeroizing::new(Vec::from(bytes));
        let mut this = Self { bytes, descriptor, identifier: [0; 16] };
        let mut identifier = [0; 16];
        this.expand(FOR_IDENTIFIER, &[], &mut identifier);
        this.identifier = identifier;
        Ok(this)
    }

    /// Its name in policies of version 1.
    pub fn descriptor(&self) -> KeyName {
        KeyName::Descriptor(self.descriptor)
    }

    /// Its name in policies of version 2.
    pub fn identifier(&self) -> KeyName {
        KeyName::Identifier(self.identifier)
    }

    pub(super) fn is(&self, name: KeyName) -> bool {
        name == self.descriptor() || name == self.identifier()
    }

    /// HKDF-SHA512 as fscrypt uses it: without salt, the info starting with the purpose.
    fn expand(&self, purpose: u8, info: &[u8], out: &mut [u8]) {
        let hkdf = Hkdf::<Sha512>::new(None, &self.bytes);
        let parts = [b"fscrypt\0", &[purpose][..], info];
        hkdf.expand_multi_info(&parts, out).expect("a key is shorter than 255 hashes");
    }

    /// The key of one file; the mode uses as many of its first bytes as it needs.
    pub(super) fn file_key(
        &self,
        context: &Context,
        mode: CipherMode,
    ) -> Result<Zeroizing<[u8; KEY_MAX]>, FsError> {
        const SHORT: &str = "a master key that is shorter than its policy needs";
        let size = mode.key_size();
        let mut key = Zeroizing::new([0; KEY_MAX]);
        let out = &mut key[..size];
        let is_direct = context.policy.is_direct();
        match context.policy.key {
            KeyName::Descriptor(_) => {
                out.copy_from_slice(self.bytes.get(..size).ok_or(FsError::Unsupported(SHORT))?);
                if !is_direct {
                    let aes = Aes128::new(&Array::from(context.nonce));
                    for block in out.chunks_exact_mut(BLOCK) {
                        aes.encrypt_block(block.try_into().expect("a block"));
                    }
                }
            }
            KeyName::Identifier(_) if self.bytes.len() < mode.strength() => {
                return Err(FsError::Unsupported(SHORT));
            }
            KeyName::Identifier(_) if is_direct => self.expand(FOR_MODE, &[mode.code()], out),
            KeyName::Identifier(_) => self.expand(FOR_FILE, &context.nonce, out),
        }
        Ok(key)
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKey")
            .field("descriptor", &self.descriptor())
            .field("identifier", &self.identifier())
            .finish_non_exhaustive()
    }
}
