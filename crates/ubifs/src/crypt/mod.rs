//! Encryption of names and content (fscrypt).
//!
//! A directory has a policy: which master key, and which modes. The context of every file below it
//! ([`Context`], the extended attribute `c`) holds the policy and a nonce of the file's own. These
//! two determine the file's key ([`keys`]), and the mode determines its use ([`cipher`]). Names and
//! symlink targets are padded before encryption ([`names`]), and content is compressed.
//!
//! Facts: Linux `fs/crypto` and `Documentation/filesystems/fscrypt.rst`.

mod adiantum;
mod cipher;
mod keys;
mod names;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use flysch_api::vfs::FsError;

pub(crate) use cipher::FileCipher;
pub use keys::{KeyError, MasterKey};
pub(crate) use names::{decrypt_name, decrypt_target, encrypt_name, encrypt_target, stored_length};

/// Name of the extended attribute that holds a file's context.
pub(crate) const CONTEXT_NAME: &[u8] = b"c";
/// Encrypted content is padded to a multiple of this.
pub(crate) const BLOCK: usize = 16;

/// How a policy names its master key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyName {
    /// Version 1: 8 bytes chosen by the user; a wrong key cannot be told from the right one.
    Descriptor([u8; 8]),
    /// Version 2: 16 bytes derived from the key.
    Identifier([u8; 16]),
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self {
            Self::Descriptor(bytes) => &bytes[..],
            Self::Identifier(bytes) => &bytes[..],
        };
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A mode of encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CipherMode {
    /// AES-256-XTS, for content.
    Aes256Xts,
    /// AES-256-CBC with ciphertext stealing, for names.
    Aes256Cts,
    /// AES-128-CBC-ESSIV, for content.
    Aes128Cbc,
    /// AES-128-CBC with ciphertext stealing, for names.
    Aes128Cts,
    /// Adiantum, for content and names.
    Adiantum,
}

impl CipherMode {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Aes256Xts,
            4 => Self::Aes256Cts,
            5 => Self::Aes128Cbc,
            6 => Self::Aes128Cts,
            9 => Self::Adiantum,
            _ => return None,
        })
    }

    fn code(self) -> u8 {
        match self {
            Self::Aes256Xts => 1,
            Self::Aes256Cts => 4,
            Self::Aes128Cbc => 5,
            Self::Aes128Cts => 6,
            Self::Adiantum => 9,
        }
    }

    /// Bytes of a file's key.
    pub(crate) fn key_size(self) -> usize {
        match self {
            Self::Aes256Xts => 64,
            Self::Aes256Cts | Self::Adiantum => 32,
            Self::Aes128Cbc | Self::Aes128Cts => 16,
        }
    }

    /// Smallest size of a version 2 master key for this mode, bytes.
    fn strength(self) -> usize {
        self.key_size().min(32)
    }
}

/// What is encrypted in which mode, and with which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which master key.
    pub key: KeyName,
    contents: u8,
    names: u8,
    flags: u8,
}

/// Flag bits that select the padding of names.
const PADDING: u8 = 3;
/// The nonce is part of each block's IV, and all files share one key.
const DIRECT_KEY: u8 = 4;

impl Policy {
    /// A policy that Linux accepts: the mode for content determines that for names, and names are
    /// padded to 4, 8, 16 or 32 bytes. `None` for any other padding, or if `contents` is a mode for
    /// names.
    pub fn new(key: KeyName, contents: CipherMode, padding: usize) -> Option<Self> {
        let names = match contents {
            CipherMode::Aes256Xts => CipherMode::Aes256Cts,
            CipherMode::Aes128Cbc => CipherMode::Aes128Cts,
            CipherMode::Adiantum => CipherMode::Adiantum,
            CipherMode::Aes256Cts | CipherMode::Aes128Cts => return None,
        };
        let flags = (0..4).find(|flags| 4 << flags == padding)?;
        Some(Self { key, contents: contents.code(), names: names.code(), flags })
    }

    /// Names are padded to a multiple of this many bytes.
    pub(crate) fn padding(&self) -> usize {
        4 << (self.flags & PADDING)
    }

    fn is_direct(&self) -> bool {
        self.flags & DIRECT_KEY != 0
    }

    /// The mode for content or names, if it is supported.
    pub(crate) fn mode(&self, use_of: Use) -> Result<CipherMode, FsError> {
        const MODES: &str = "a mode of encryption other than AES-256-XTS, AES-128-CBC and Adiantum";
        const FLAGS: &str = "an encryption policy with flags that UBIFS does not have";
        let modes = (CipherMode::from_code(self.contents), CipherMode::from_code(self.names));
        let (Some(contents), Some(names)) = modes else { return Err(FsError::Unsupported(MODES)) };
        if Self::new(self.key, contents, 4).is_none_or(|usual| usual.names != names.code()) {
            return Err(FsError::Unsupported(MODES));
        }
        let direct_fits = !self.is_direct() || contents == CipherMode::Adiantum;
        if self.flags & !(PADDING | DIRECT_KEY) != 0 || !direct_fits {
            return Err(FsError::Unsupported(FLAGS));
        }
        Ok(match use_of {
            Use::Contents => contents,
            Use::Names => names,
        })
    }
}

/// What a cipher is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Blocks of content.
    Contents,
    /// Names in a directory, or the target of a symlink.
    Names,
}

/// What is stored with a file: the policy, and its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) policy: Policy,
    pub(crate) nonce: [u8; 16],
}

impl Context {
    /// Reads a context; `None` if it is not valid.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[version, contents, names, flags, ref rest @ ..] = bytes else { return None };
        let (key, nonce) = match (version, bytes.len()) {
            (1, 28) => (KeyName::Descriptor(*rest.first_chunk()?), &rest[8..]),
            // In UBIFS, a data unit is always one block.
            (2, 40) if rest[..4] == [0; 4] => {
                (KeyName::Identifier(*rest[4..].first_chunk()?), &rest[20..])
            }
            _ => return None,
        };
        let policy = Policy { key, contents, names, flags };
        Some(Self { policy, nonce: *nonce.first_chunk()? })
    }

    /// Its stored form.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let Policy { key, contents, names, flags } = self.policy;
        let mut bytes = Vec::with_capacity(40);
        match key {
            KeyName::Descriptor(descriptor) => {
                bytes.extend_from_slice(&[1, contents, names, flags]);
                bytes.extend_from_slice(&descriptor);
            }
            KeyName::Identifier(identifier) => {
                bytes.extend_from_slice(&[2, contents, names, flags, 0, 0, 0, 0]);
                bytes.extend_from_slice(&identifier);
            }
        }
        bytes.extend_from_slice(&self.nonce);
        bytes
    }

    /// The cipher of the file, given its master key.
    ///
    /// # Errors
    /// [`FsError::Encrypted`] without the key, [`FsError::Unsupported`] for unsupported modes.
    pub(crate) fn cipher(&self, keys: &[MasterKey], use_of: Use) -> Result<FileCipher, FsError> {
        let mode = self.policy.mode(use_of)?;
        let master = keys.iter().find(|key| key.is(self.policy.key)).ok_or(FsError::Encrypted)?;
        let key = master.file_key(self, mode)?;
        let nonce = self.policy.is_direct().then_some(self.nonce);
        Ok(FileCipher::new(mode, &key[..mode.key_size()], nonce))
    }
}
