//! Encrypted files: names, targets and content in stored form, and policies.

use alloc::borrow::Cow;

use flysch_api::vfs::{FileKind, FsError, Inode, NewFile, Timestamp};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{EntryKind, InodeFlags, InodeNode, Key, Node, SuperblockFlags};
use sha2::{Digest, Sha256};

use super::UbifsMut;
use super::budget::{INODE_COST, Need};
use super::cache::Record;
use super::inode::{kind, stamp};
use super::operation::Operation;
use super::xattr::value_size;
use crate::crypt::{CONTEXT_NAME, Context, Policy, Use, encrypt_target};
use crate::file::entry_size;

/// Most bytes that a context adds to the nodes of an operation.
pub(super) const CONTEXT_COST: u64 = 64 + INODE_COST + 40;

/// Whether files of this kind are encrypted; devices, FIFOs and sockets have nothing to encrypt.
fn is_sealable(kind: Option<FileKind>) -> bool {
    matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink))
}

impl Record {
    pub(super) fn is_encrypted(&self) -> bool {
        self.has(InodeFlags::ENCRYPTED)
    }
}

impl<V: VolumeMut> UbifsMut<V> {
    /// The stored form of a new name.
    pub(super) fn new_name<'n>(
        &self,
        parent: &Record,
        name: &'n [u8],
    ) -> Result<Cow<'n, [u8]>, FsError> {
        if !parent.is_encrypted() {
            return Ok(Cow::Borrowed(name));
        }
        let names = self.files.disk.fs.names_of(parent.number())?;
        names.stored(name).map(Cow::Owned).ok_or(FsError::NameTooLong)
    }

    /// The stored form of an existing name; without the key, `name` is the name shown without it.
    pub(super) fn old_name<'n>(
        &self,
        parent: &Record,
        name: &'n [u8],
    ) -> Result<Cow<'n, [u8]>, FsError> {
        if !parent.is_encrypted() {
            return Ok(Cow::Borrowed(name));
        }
        let stored = self.files.disk.fs.stored_name(parent.number(), name)?;
        stored.map(Cow::Owned).ok_or(FsError::NotFound)
    }

    /// Checks that a file is encrypted by the policy of its encrypted directory.
    pub(super) fn check_policy(&self, parent: &Record, record: &Record) -> Result<(), FsError> {
        if !parent.is_encrypted() || !is_sealable(kind(record)) {
            return Ok(());
        }
        let store = &self.files.disk.fs.store;
        let wanted = store.context(parent.number())?.policy;
        let fits = record.is_encrypted() && store.context(record.number())?.policy == wanted;
        if fits { Ok(()) } else { Err(FsError::CrossDevice) }
    }

    /// Encrypts a new file by its directory's policy; returns the inode that holds the context.
    pub(super) fn seal_new(
        &mut self,
        parent: &Record,
        record: &mut Record,
        file: &NewFile<'_>,
    ) -> Result<Option<Record>, FsError> {
        if !parent.is_encrypted() || !is_sealable(kind(record)) {
            return Ok(None);
        }
        let policy = self.files.disk.fs.store.context(parent.number())?.policy;
        let context = self.new_context(policy)?;
        let masters = self.files.disk.fs.keys.as_ref().map_or(&[][..], |keys| &keys.masters);
        let cipher = context.cipher(masters, Use::Names)?;
        if file.kind == FileKind::Symlink {
            let target = encrypt_target(&policy, &cipher, file.target);
            record.data = target.ok_or(FsError::NameTooLong)?;
            record.node.size = record.data.len() as u64;
        }
        self.add_context(record, &context).map(Some)
    }

    /// A context with a unique nonce.
    fn new_context(&self, policy: Policy) -> Result<Context, FsError> {
        const NO_ENTROPY: &str = "new encrypted files without random bytes for their numbers";
        let entropy = self.files.disk.fs.keys.as_ref().and_then(|keys| keys.entropy);
        let entropy = entropy.ok_or(FsError::Unsupported(NO_ENTROPY))?;
        let mut hasher = Sha256::new();
        hasher.update(entropy);
        hasher.update(self.files.disk.fs.store.superblock.uuid);
        hasher.update(self.files.disk.numbers.highest_inode.to_le_bytes());
        hasher.update(self.files.disk.fs.store.access.volume.sequence.to_le_bytes());
        let hash = hasher.finalize();
        Ok(Context { policy, nonce: core::array::from_fn(|at| hash[at]) })
    }

    /// Adds a context to a file that is about to be written; returns the inode that holds it.
    fn add_context(&mut self, host: &mut Record, context: &Context) -> Result<Record, FsError> {
        let value = context.emit();
        let node = &mut host.node;
        node.flags.0 |= InodeFlags::ENCRYPTED.0;
        node.xattr_count += 1;
        node.xattr_size += entry_size(CONTEXT_NAME) as u32 + value_size(value.len());
        node.xattr_names += CONTEXT_NAME.len() as u32;
        let number = self.files.disk.numbers.inode()?;
        Ok(Record::new(&InodeNode {
            key: Key::inode_node(number),
            creation_sequence: self.files.disk.fs.store.access.volume.sequence + 1,
            size: value.len() as u64,
            links: 1,
            mode: 0o100_777,
            flags: InodeFlags(InodeFlags::XATTR.0),
            xattr_count: 0,
            xattr_size: 0,
            xattr_names: 0,
            compression: flysch_wire::ubifs::Compression::None,
            data: &value,
            ..host.node
        }))
    }

    /// The entry of a context.
    pub(super) fn context_entry(&mut self, host: &Record, value: &Record) -> Node<'static> {
        self.entry(EntryKind::Xattr, host.number(), CONTEXT_NAME, (value.number(), 0))
    }

    /// Encrypts whatever is created in an empty directory (`FS_IOC_SET_ENCRYPTION_POLICY`).
    ///
    /// # Errors
    /// [`FsError::Encrypted`] without the policy's key, [`FsError::NotEmpty`],
    /// [`FsError::NotDirectory`], [`FsError::Exists`] if it has a policy, [`FsError::Unsupported`]
    /// before format version 5, or without [`entropy`](crate::Keys::entropy); and the errors of any
    /// change.
    pub fn encrypt(
        &mut self,
        directory: Inode,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.files.disk.writable()?;
        let mut host = self.files.load_directory(directory.0)?;
        if host.is_encrypted() {
            return Err(FsError::Exists);
        }
        self.check_empty(&host)?;
        if self.files.disk.fs.store.superblock.format_version < 5 {
            return Err(FsError::Unsupported("encryption in format version 4"));
        }
        let context = self.new_context(*policy)?;
        let masters = self.files.disk.fs.keys.as_ref().map_or(&[][..], |keys| &keys.masters);
        context.cipher(masters, Use::Names)?;
        self.files.claim(Need { bytes: CONTEXT_COST + host.cost(), leaves: 2 })?;
        let flags = &mut self.files.disk.fs.store.superblock.flags;
        if !flags.contains(SuperblockFlags::ENCRYPTION) {
            flags.0 |= SuperblockFlags::ENCRYPTION.0;
            self.files.disk.write_superblock()?;
        }
        host.node.changed = stamp(now);
        let value = self.add_context(&mut host, &context)?;
        let entry = self.context_entry(&host, &value);
        let mut operation = Operation::new();
        operation.entry(entry).inode(&value).inode(&host);
        self.perform(operation)
    }
}
