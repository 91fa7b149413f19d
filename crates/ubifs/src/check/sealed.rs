//! What a check needs for encryption: the ciphers of the current file and directory.

use alloc::boxed::Box;

use flysch_api::volume::Volume;
use flysch_wire::ubifs::{BLOCK_SIZE, Data, DirectoryEntry};

use super::Check;
use crate::crypt::{FileCipher, Use};
use crate::file::unpack;
use crate::sealed::{Names, decrypt_block};

/// Ciphers of the most recently used inodes; a cipher is `None` without its key.
#[derive(Debug, Default)]
pub(super) struct Last {
    content: Option<(u32, Option<FileCipher>)>,
    names: Option<(u32, Option<Names>)>,
}

impl<V: Volume> Check<'_, V> {
    /// Whether a block can be decompressed; an encrypted one without its key passes.
    pub(super) fn unpacks(&mut self, data: &Data<'_>, is_encrypted: bool) -> bool {
        let (mut room, mut block) = ([0; BLOCK_SIZE as usize], [0; BLOCK_SIZE as usize]);
        let data = match (is_encrypted, self.content_cipher(data.key.inode())) {
            (false, _) => Some(*data),
            (true, None) => return true,
            (true, Some(cipher)) => decrypt_block(data, cipher, &mut room),
        };
        data.is_some_and(|data| unpack(&data, &mut block[..data.size as usize]).is_some())
    }

    fn content_cipher(&mut self, inode: u32) -> Option<&FileCipher> {
        self.fs.keys.as_ref()?;
        if self.last.content.as_ref().is_none_or(|(of, _)| *of != inode) {
            self.last.content = Some((inode, self.fs.cipher(inode, Use::Contents).ok()));
        }
        self.last.content.as_ref()?.1.as_ref()
    }

    /// The name of an entry in paths.
    pub(super) fn path_name(
        &mut self,
        entry: &DirectoryEntry<'_>,
        (parent, is_encrypted): (u32, bool),
    ) -> Box<[u8]> {
        if is_encrypted && self.last.names.as_ref().is_none_or(|(of, _)| *of != parent) {
            self.last.names = Some((parent, self.fs.names_of(parent).ok()));
        }
        let names = self.last.names.as_ref().filter(|_| is_encrypted);
        let names = names.and_then(|(_, names)| names.as_ref());
        let shown = crate::Ubifs::<V>::shown_name(entry, is_encrypted, names);
        shown.map_or_else(|| entry.name.into(), Into::into)
    }
}
