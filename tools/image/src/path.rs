//! Paths inside an image.

use flysch_api::vfs::{FileKind, FileSystem, FsError, Inode};

/// Maximum number of symlinks in one path, as in Linux.
const LINKS_MAX: usize = 40;
/// Longest symlink target that is followed, bytes: Linux has no longer ones.
const TARGET_MAX: u64 = 4096;

/// Why a path cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A part of it is missing, or is in the way.
    #[error("/{path}: {error}")]
    At {
        /// The path up to that part.
        path: String,
        /// The error there.
        error: FsError,
    },
    /// It contains endless symlinks.
    #[error("/{path}: too many symlinks lead to each other")]
    Loop {
        /// The path up to the last of them.
        path: String,
    },
}

/// The inode that `path` names, from the root of `fs`. Symlinks are followed inside the image,
/// except for the last name unless it is followed by a '/'.
///
/// # Errors
/// It names none.
pub fn resolve(fs: &dyn FileSystem, path: &[u8]) -> Result<Inode, PathError> {
    walk(fs, path, path.ends_with(b"/"))
}

/// The inode that `path` leads to: like [`resolve`], but a final symlink is followed, too.
///
/// # Errors
/// It leads to none.
pub fn follow(fs: &dyn FileSystem, path: &[u8]) -> Result<Inode, PathError> {
    walk(fs, path, true)
}

fn walk(fs: &dyn FileSystem, path: &[u8], to_the_end: bool) -> Result<Inode, PathError> {
    let mut at = vec![fs.statistics().root];
    let mut shown: Vec<Vec<u8>> = vec![];
    let mut links = 0;
    // The next name comes last.
    let mut todo = names(path);
    while let Some(name) = todo.pop() {
        if matches!(&name[..], b"." | b"..") {
            let is_file =
                |inode| fs.attributes(inode).is_ok_and(|it| it.kind != FileKind::Directory);
            if at.len() > 1 && is_file(at[at.len() - 1]) {
                let path = shown.join(&b'/').escape_ascii().to_string();
                return Err(PathError::At { path, error: FsError::NotDirectory });
            }
            if name == b".." && at.len() > 1 {
                at.pop();
                shown.pop();
            }
            continue;
        }
        let here = at[at.len() - 1];
        shown.push(name);
        let path = || shown.join(&b'/').escape_ascii().to_string();
        let fail = |error| PathError::At { path: path(), error };
        let found = fs.lookup(here, &shown[shown.len() - 1]).map_err(fail)?;
        let attributes = match todo.is_empty() && !to_the_end {
            true => None,
            false => Some(fs.attributes(found).map_err(fail)?),
        };
        let Some(size) = attributes.filter(|it| it.kind == FileKind::Symlink).map(|it| it.size)
        else {
            at.push(found);
            continue;
        };
        links += 1;
        if links > LINKS_MAX {
            return Err(PathError::Loop { path: path() });
        }
        let mut target = vec![0; size.min(TARGET_MAX) as usize];
        let len = fs.read(found, 0, &mut target).map_err(fail)?;
        target.truncate(len);
        shown.pop();
        if target.starts_with(b"/") {
            at.truncate(1);
            shown.clear();
        }
        todo.extend(names(&target));
    }
    Ok(at[at.len() - 1])
}

/// Names of a path, last one first. A '/' at the end stands for `.`: there must be a directory.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let end = path.ends_with(b"/").then(|| b".".to_vec());
    let names = path.rsplit(|&byte| byte == b'/').filter(|name| !name.is_empty());
    end.into_iter().chain(names.map(<[u8]>::to_vec)).collect()
}

#[cfg(test)]
mod tests {
    use flysch_api::vfs::{DeviceNumber, FileSystemMut, NewFile, Timestamp};
    use flysch_vfs::Memory;

    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

    fn add(fs: &mut Memory, at: &[u8], name: &[u8], kind: FileKind, target: &[u8]) -> Inode {
        let device = DeviceNumber::default();
        let new = NewFile { kind, permissions: 0o755, owner: 0, group: 0, device, target };
        let directory = resolve(fs, at).unwrap();
        fs.create(directory, name, &new, NOW).unwrap()
    }

    #[test]
    fn symlinks_are_followed_inside_the_image() {
        let mut fs = Memory::new(1 << 20, NOW);
        add(&mut fs, b"/", b"usr", FileKind::Directory, b"");
        add(&mut fs, b"/usr", b"lib", FileKind::Directory, b"");
        let file = add(&mut fs, b"/usr/lib", b"file", FileKind::Regular, b"");
        let lib = add(&mut fs, b"/", b"lib", FileKind::Symlink, b"usr/lib");
        add(&mut fs, b"/usr", b"up", FileKind::Symlink, b"../../../lib");
        add(&mut fs, b"/usr", b"absolute", FileKind::Symlink, b"/usr/../lib/file");
        add(&mut fs, b"/usr/lib", b"loop", FileKind::Symlink, b"loop");
        for path in ["/lib/file", "lib/file", "usr/up/file", "/lib/../lib/file"] {
            assert_eq!(resolve(&fs, path.as_bytes()).unwrap(), file, "{path}");
        }
        assert_eq!(resolve(&fs, b"/lib").unwrap(), lib);
        assert_eq!(resolve(&fs, b"/lib/").unwrap(), follow(&fs, b"/usr/lib").unwrap());
        assert_eq!(follow(&fs, b"/usr/absolute").unwrap(), file);
        let wrong = |path: &[u8]| follow(&fs, path).unwrap_err().to_string();
        assert_eq!(wrong(b"/lib/loop"), "/usr/lib/loop: too many symlinks lead to each other");
        assert_eq!(wrong(b"/lib/none"), "/usr/lib/none: no such file or directory");
        assert_eq!(wrong(b"/lib/file/x"), "/usr/lib/file/x: not a directory");
        for path in ["/lib/file/", "lib/file//", "/lib/file/.", "/usr/absolute/", "/lib/file/../x"]
        {
            assert_eq!(wrong(path.as_bytes()), "/usr/lib/file: not a directory", "{path}");
        }
        let file = resolve(&fs, b"/lib/file/").unwrap_err().to_string();
        assert_eq!(file, "/usr/lib/file: not a directory");
        for path in ["/", "", ".", "..", "/lib/../..", "/usr/lib/./.././.."] {
            assert_eq!(resolve(&fs, path.as_bytes()).unwrap(), fs.statistics().root, "{path}");
        }
    }
}
