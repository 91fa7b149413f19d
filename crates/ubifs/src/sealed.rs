//! Encrypted files: their contexts, and reading with their keys.

use alloc::vec::Vec;

use flysch_api::vfs::{Damage, FileKind, FsError};
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{
    BLOCK_SIZE, Data, DirectoryEntry, EntryKind, InodeFlags, InodeNode, Key, NodeKind,
};

use crate::access::Scratch;
use crate::crypt::{
    BLOCK, CONTEXT_NAME, Context, FileCipher, Policy, Use, decrypt_name, decrypt_target,
    encrypt_name,
};
use crate::nokey;
use crate::open::Ubifs;
use crate::store::{Store, field, number};

/// How the names of a directory are encrypted.
#[derive(Debug)]
pub(crate) struct Names {
    policy: Policy,
    cipher: FileCipher,
}

impl Names {
    /// The form in which the directory stores a name; `None` if it is too long.
    pub(crate) fn stored(&self, name: &[u8]) -> Option<Vec<u8>> {
        encrypt_name(&self.policy, &self.cipher, name)
    }

    /// The plain form of a stored name; `None` if it is not one.
    pub(crate) fn shown(&self, stored: &[u8]) -> Option<Vec<u8>> {
        decrypt_name(&self.cipher, stored)
    }
}

/// Buffer for a decrypted block.
pub(crate) type Block = [u8; BLOCK_SIZE as usize];

/// Decrypts the content of a data node into `room`; `None` if that is impossible.
pub(crate) fn decrypt_block<'b>(
    data: &Data<'_>,
    cipher: &FileCipher,
    room: &'b mut Block,
) -> Option<Data<'b>> {
    let (length, plain) = (data.data.len(), usize::from(data.plain_size));
    if !length.is_multiple_of(BLOCK) || plain == 0 || plain > length {
        return None;
    }
    let bytes = room.get_mut(..length)?;
    bytes.copy_from_slice(data.data);
    cipher.decrypt(data.key.value().into(), bytes);
    let Data { key, size, compression, .. } = *data;
    Some(Data { key, size, compression, plain_size: 0, data: &bytes[..plain] })
}

impl<V: Volume> Store<V> {
    /// The encryption context stored with a file.
    pub(crate) fn context(&self, inode: u32) -> Result<Context, FsError> {
        let found = self.find_name(EntryKind::Xattr, inode, CONTEXT_NAME)?;
        let (structure, place) = ("encryption context", Default::default());
        let missing = FsError::Damaged { structure, place, cause: Damage::Missing };
        let (_, value, _) = found.ok_or(missing)?;
        let value = number(value)?;
        let at = self.find(Key::inode_node(value))?.ok_or(missing)?;
        let mut scratch = Scratch::new();
        let node = self.inode(value, at, &mut scratch)?;
        let damaged = || self.fault(at, NodeKind::Inode, field("encryption context")).into();
        Context::parse(node.data).ok_or_else(damaged)
    }
}

impl<V: Volume> Ubifs<V> {
    /// The cipher of a file's content or names.
    pub(crate) fn cipher(&self, inode: u32, use_of: Use) -> Result<FileCipher, FsError> {
        let keys = self.keys.as_ref().filter(|keys| !keys.masters.is_empty());
        let keys = keys.ok_or(FsError::Encrypted)?;
        self.store.context(inode)?.cipher(&keys.masters, use_of)
    }

    /// How to read the names of an encrypted directory.
    pub(crate) fn names_of(&self, directory: u32) -> Result<Names, FsError> {
        let cipher = self.cipher(directory, Use::Names)?;
        Ok(Names { policy: self.store.context(directory)?.policy, cipher })
    }

    /// The target of an encrypted symlink.
    pub(crate) fn target(&self, node: &InodeNode<'_>) -> Result<Vec<u8>, FsError> {
        let cipher = self.cipher(node.key.inode(), Use::Names)?;
        let (structure, place) = ("symlink target", Default::default());
        let bad = FsError::Damaged { structure, place, cause: Damage::Encryption };
        decrypt_target(&cipher, node.data).ok_or(bad)
    }

    /// The size of a file as shown: for a symlink, the length of its target.
    pub(crate) fn shown_size(&self, node: &InodeNode<'_>) -> u64 {
        let is_link = FileKind::from_mode(node.mode) == Some(FileKind::Symlink);
        match is_link && node.flags.contains(InodeFlags::ENCRYPTED) {
            true => self.target(node).map_or(node.size, |target| target.len() as u64),
            false => self.size_of(node),
        }
    }

    /// The stored form of a name in an encrypted directory. Without the key, looks for the entry
    /// that is shown by this name; `None` if there is none.
    pub(crate) fn stored_name(&self, parent: u32, name: &[u8]) -> Result<Option<Vec<u8>>, FsError> {
        match self.names_of(parent) {
            Ok(names) => Ok(names.stored(name)),
            Err(FsError::Encrypted | FsError::Unsupported(_)) => self.find_nokey(parent, name),
            Err(error) => Err(error),
        }
    }

    /// The stored name of the entry that is shown as `shown` without the key.
    pub(crate) fn find_nokey(
        &self,
        directory: u32,
        shown: &[u8],
    ) -> Result<Option<Vec<u8>>, FsError> {
        let Some(hash) = nokey::hash(shown).filter(|hash| *hash <= Key::VALUE_MAX) else {
            return Ok(None);
        };
        let key = Key::entry(directory, hash);
        let mut found = None;
        let walked = self.store.names_between(key, key, &mut |name| {
            if let Ok(entry) = &name.entry
                && nokey::encode(entry) == shown
            {
                found = Some(entry.name.into());
                return core::ops::ControlFlow::Break(());
            }
            core::ops::ControlFlow::Continue(())
        });
        match found {
            Some(found) => Ok(Some(found)),
            None => walked.map(|()| None).map_err(FsError::from),
        }
    }

    /// The name a directory shows for an entry; `names` decrypts it, if that is possible.
    pub(crate) fn shown_name(
        entry: &DirectoryEntry<'_>,
        is_encrypted: bool,
        names: Option<&Names>,
    ) -> Option<Vec<u8>> {
        match names {
            Some(names) => names.shown(entry.name),
            None if is_encrypted => Some(nokey::encode(entry)),
            None => Some(entry.name.into()),
        }
    }
}
