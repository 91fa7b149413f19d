//! A new file system encrypted as a whole, by one policy.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use flysch_api::vfs::FileKind;
use flysch_wire::ubifs::{Data, SuperblockFlags, align8};
use sha2::{Digest, Sha256};

use super::{LebSink, NewInode, OptionsError, UbifsBuilder, UbifsCreateError};
use crate::crypt::{
    BLOCK, Context, FileCipher, MasterKey, Policy, Use, encrypt_name, encrypt_target, stored_length,
};
use crate::keys::Keys;
use crate::sealed::Block;

/// How the files of a new file system are encrypted.
pub(super) struct Encryption {
    policy: Policy,
    masters: Vec<MasterKey>,
    entropy: [u8; 32],
    /// Ciphers for the file asked for last.
    names: Option<(u32, FileCipher)>,
    contents: Option<(u32, FileCipher)>,
}

impl Encryption {
    /// The encryption context of a file; its nonce is derived from the inode number, so no two are
    /// equal.
    pub(super) fn context(&self, inode: u32) -> Context {
        let mut hasher = Sha256::new();
        hasher.update(self.entropy);
        hasher.update(inode.to_le_bytes());
        let hash = hasher.finalize();
        Context { policy: self.policy, nonce: core::array::from_fn(|at| hash[at]) }
    }

    fn cipher(&mut self, inode: u32, use_of: Use) -> &FileCipher {
        let context = self.context(inode);
        let known = match use_of {
            Use::Names => &mut self.names,
            Use::Contents => &mut self.contents,
        };
        if known.as_ref().is_none_or(|(of, _)| *of != inode) {
            let cipher = context.cipher(&self.masters, use_of).expect("tried in the beginning");
            *known = Some((inode, cipher));
        }
        &known.as_ref().expect("made above").1
    }

    /// A name as the directory stores it; `name` has at most 255 bytes.
    pub(super) fn name(&mut self, directory: u32, name: &[u8]) -> Vec<u8> {
        let policy = self.policy;
        let cipher = self.cipher(directory, Use::Names);
        encrypt_name(&policy, cipher, name).expect("no longer than names are")
    }

    /// A target as the symlink stores it; `None` if it is too long.
    pub(super) fn target(&mut self, inode: u32, target: &[u8]) -> Option<Vec<u8>> {
        let policy = self.policy;
        encrypt_target(&policy, self.cipher(inode, Use::Names), target)
    }

    /// Encrypts a block into `room`.
    pub(super) fn block<'b>(&mut self, data: Data<'_>, room: &'b mut Block) -> Data<'b> {
        let plain = data.data.len();
        let sealed = &mut room[..plain.next_multiple_of(BLOCK)];
        sealed[..plain].copy_from_slice(data.data);
        sealed[plain..].fill(0);
        let cipher = self.cipher(data.key.inode(), Use::Contents);
        cipher.encrypt(data.key.value().into(), sealed);
        Data { plain_size: plain as u16, data: sealed, ..data }
    }
}

/// Whether files of this kind are encrypted; devices, FIFOs and sockets have nothing to encrypt.
pub(super) fn is_encrypted(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}

impl<S: LebSink> UbifsBuilder<S> {
    /// Encrypts everything by `policy`, with the key among `keys` that it names. Must be called
    /// before anything is written. The files' nonces are derived from [`Keys::entropy`], which must
    /// differ for each file system.
    ///
    /// # Errors
    /// [`UbifsCreateError::Options`] without the key or random bytes, or for a key that is too
    /// short.
    pub fn encrypt(
        &mut self,
        policy: &Policy,
        keys: &Keys,
    ) -> Result<(), UbifsCreateError<S::Error>> {
        let Some(entropy) = keys.entropy else {
            return Err(UbifsCreateError::Options(OptionsError::NoEntropy));
        };
        let masters = keys.masters.clone();
        let encryption =
            Encryption { policy: *policy, masters, entropy, names: None, contents: None };
        for use_of in [Use::Names, Use::Contents] {
            let tried = encryption.context(0).cipher(&encryption.masters, use_of);
            tried.map_err(|source| {
                UbifsCreateError::Options(OptionsError::Encryption { key: policy.key, source })
            })?;
        }
        // As Linux does: older format versions do not have encryption.
        self.superblock.flags.0 |= SuperblockFlags::ENCRYPTION.0 | SuperblockFlags::DOUBLE_HASH.0;
        if self.superblock.format_version < 5 {
            self.superblock.format_version = 5;
            self.superblock.hash_algorithm = 0xffff;
        }
        self.encryption = Some(encryption);
        Ok(())
    }

    /// What a name adds to the size of its directory.
    pub fn entry_size(&self, name: &[u8]) -> u64 {
        match &self.encryption {
            None => NewInode::entry_size(name),
            Some(encryption) => {
                let length = stored_length(&encryption.policy, name.len());
                align8((flysch_wire::ubifs::ENTRY_NODE_SIZE + length + 1) as u32).into()
            }
        }
    }

    /// A name as its directory stores it.
    pub(super) fn stored_name<'n>(&mut self, directory: u32, name: &'n [u8]) -> Cow<'n, [u8]> {
        match &mut self.encryption {
            None => Cow::Borrowed(name),
            Some(encryption) => Cow::Owned(encryption.name(directory, name)),
        }
    }
}
