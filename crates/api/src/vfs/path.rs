//! Paths from the root of a file system.

use alloc::vec;
use alloc::vec::Vec;

use super::{FileKind, FileSystem, FileSystemExt, FsError, Inode};

/// Maximum number of symlinks in one path, as in Linux: with it a path stays short, too.
const LINKS_MAX: usize = 40;
/// Longest target of a symlink, bytes, as in Linux.
const TARGET_MAX: usize = 4096;

/// [`FileSystemExt::resolve`].
pub(super) fn resolve<F: FileSystem + ?Sized>(fs: &F, path: &[u8]) -> Result<Inode, FsError> {
    if path.is_empty() {
        return Err(FsError::NotFound);
    }
    // The directories from the root down to where the path has led so far.
    let mut at = vec![fs.statistics().root];
    let (mut path, mut next) = (Vec::from(path), 0);
    let mut links = 0;
    loop {
        next += path[next..].iter().take_while(|&&byte| byte == b'/').count();
        let end = next + path[next..].iter().take_while(|&&byte| byte != b'/').count();
        let here = at[at.len() - 1];
        match &path[next..end] {
            [] => return Ok(here),
            b"." => {}
            b".." => at.truncate((at.len() - 1).max(1)),
            name => {
                let found = fs.lookup(here, name)?;
                match fs.attributes(found)?.kind {
                    FileKind::Symlink => {
                        links += 1;
                        let mut target = target(fs, found, links)?;
                        if target[0] == b'/' {
                            at.truncate(1);
                        }
                        target.extend_from_slice(&path[end..]);
                        (path, next) = (target, 0);
                        continue;
                    }
                    FileKind::Directory => at.push(found),
                    _ if end == path.len() => return Ok(found),
                    _ => return Err(FsError::NotDirectory),
                }
            }
        }
        next = end;
    }
}

/// The target of a symlink, the `links`th of its path: one byte at least.
fn target<F: FileSystem + ?Sized>(fs: &F, inode: Inode, links: usize) -> Result<Vec<u8>, FsError> {
    if links > LINKS_MAX {
        return Err(FsError::Invalid("too many symlinks lead to each other"));
    }
    let mut target = vec![0; TARGET_MAX + 1];
    let len = fs.read_full(inode, 0, &mut target)?;
    target.truncate(len);
    match len {
        // As in Linux: it names nothing.
        0 => Err(FsError::NotFound),
        1..=TARGET_MAX => Ok(target),
        _ => Err(FsError::NameTooLong),
    }
}
