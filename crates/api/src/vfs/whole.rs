//! Whole files and whole paths, in terms of what every file system can do.

#[cfg(feature = "alloc")]
use alloc::vec::Vec;

#[cfg(feature = "alloc")]
use super::{FileKind, path};
use super::{FileSystem, FileSystemMut, FsError, Inode, Timestamp};

/// Bytes that [`FileSystemExt::read_all`] reads at once.
#[cfg(feature = "alloc")]
const PIECE: usize = 64 << 10;

/// What every [`FileSystem`] can do with its calls: read to the end, and find a file by its path.
pub trait FileSystemExt: FileSystem {
    /// Reads like [`read`](FileSystem::read) until `buffer` is full or the file ends. Returns the
    /// number of bytes read, which is smaller than requested only at the end.
    ///
    /// # Errors
    /// As [`read`](FileSystem::read), also for damage behind the first bytes; `read` returns the
    /// bytes before it.
    fn read_full(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            match self.read(inode, at, &mut buffer[done..])? {
                0 => break,
                more => done += more,
            }
        }
        Ok(done)
    }

    /// The whole content of a regular file, or the target of a symlink, of at most `limit` bytes.
    ///
    /// The limit is what an image that others made can cost: the size of a file is whatever the
    /// image says, up to exabytes of holes.
    ///
    /// # Errors
    /// [`FsError::BufferTooSmall`] with the size of the file if that is above `limit`, or if there
    /// is no memory for it; [`FsError::IsDirectory`], [`FsError::NoContent`]; if any part is
    /// damaged, the error of that part ([`read`](FileSystem::read) returns what is before it).
    #[cfg(feature = "alloc")]
    fn read_all(&self, inode: Inode, limit: usize) -> Result<Vec<u8>, FsError> {
        let attributes = self.attributes(inode)?;
        match attributes.kind {
            FileKind::Regular | FileKind::Symlink => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::NoContent),
        }
        let size = usize::try_from(attributes.size).unwrap_or(usize::MAX);
        let mut content = Vec::new();
        // No cause: an allocator has none to tell.
        if size > limit || content.try_reserve_exact(size).is_err() {
            return Err(FsError::BufferTooSmall(size));
        }
        // In pieces, so that memory is used only as far as the file can be read.
        while content.len() < size {
            let start = content.len();
            content.resize(size.min(start + PIECE), 0);
            let end = start + self.read_full(inode, start as u64, &mut content[start..])?;
            if end < content.len() {
                content.truncate(end);
                break;
            }
        }
        Ok(content)
    }

    /// The file that `path` leads to, as `open` would find it: names separated by '/', from the
    /// root, with or without a '/' in front. `.` and `..` are understood, and the parent of the
    /// root is the root.
    ///
    /// Symlinks are followed inside this file system, the last one too; an absolute target starts
    /// at the root. To get at a symlink itself, call [`lookup`](FileSystem::lookup) with the
    /// directory it is in.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if a name does not exist, and for an empty path;
    /// [`FsError::NotDirectory`] if something else is followed by a '/'; [`FsError::NameTooLong`]
    /// for a symlink of more than 4096 bytes, and [`FsError::Invalid`] for more than 40 symlinks
    /// (Linux's limits); otherwise as [`lookup`](FileSystem::lookup) and
    /// [`read`](FileSystem::read).
    #[cfg(feature = "alloc")]
    fn resolve(&self, path: &[u8]) -> Result<Inode, FsError> {
        path::resolve(self, path)
    }
}

impl<F: FileSystem + ?Sized> FileSystemExt for F {}

/// What every [`FileSystemMut`] can do with its calls: write everything it is given.
pub trait FileSystemMutExt: FileSystemMut {
    /// Writes all of `data` at `offset`, with as many calls of [`write`](FileSystemMut::write) as
    /// it takes.
    ///
    /// # Errors
    /// As [`write`], and [`FsError::NoSpace`] also when a part found space: unlike other calls this
    /// one may fail after a part of the data was written, always its beginning.
    /// [`set_attributes`](FileSystemMut::set_attributes) with the old size takes away by how much
    /// the file grew.
    ///
    /// [`write`]: FileSystemMut::write
    fn write_all(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        let mut done = 0;
        while done < data.len() {
            let at = offset.checked_add(done as u64).ok_or(FsError::FileTooLarge)?;
            match self.write(inode, at, &data[done..], now)? {
                // Never by the contract; but a loop must end.
                0 => return Err(FsError::NoSpace),
                more => done += more,
            }
        }
        Ok(())
    }
}

impl<F: FileSystemMut + ?Sized> FileSystemMutExt for F {}
