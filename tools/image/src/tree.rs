//! Traversal of a tree.

use std::collections::HashSet;
use std::ops::ControlFlow;

use flysch_api::vfs::{Attributes, FileKind, FileSystem, FsError, Inode};

/// Deepest directory that is entered: deeper ones occur only in malicious images.
pub(crate) const DEPTH_MAX: usize = 1024;

/// Why a deeper one is not.
const TOO_DEEP: &str = "a directory below 1024 others";

/// A file found on a walk.
#[derive(Debug)]
pub struct Node<'a> {
    /// Path from the start of the walk, without a leading '/'; empty for the start itself.
    pub path: &'a [u8],
    /// Its inode.
    pub inode: Inode,
    /// Its type according to the directory.
    pub kind: FileKind,
    /// The result of `stat`.
    pub attributes: Result<Attributes, FsError>,
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: Inode,
    pub(crate) kind: FileKind,
}

/// All names of a directory, as far as they can be read, and the errors for the rest.
pub(crate) fn children(fs: &dyn FileSystem, directory: Inode) -> (Vec<Child>, Result<(), FsError>) {
    let mut children = vec![];
    let result = fs.list(directory, 0, &mut |entry| {
        children.push(Child { name: entry.name.to_vec(), inode: entry.inode, kind: entry.kind });
        ControlFlow::Continue(())
    });
    (children, result)
}

/// Why the attributes of a directory are made up: its inode is lost, and it is there only because
/// there are names in it. `None` if they are its own.
pub fn attributes_lost(fs: &dyn FileSystem, directory: Inode) -> Option<FsError> {
    // What a file system reads of a directory depends on its inode and on nothing else.
    match fs.read(directory, 0, &mut [0]) {
        Err(error @ (FsError::Damaged { .. } | FsError::Medium { .. } | FsError::NotFound)) => {
            Some(error)
        }
        _ => None,
    }
}

/// Receives the nodes of a walk, or the path of a directory and its error.
pub(crate) type Visit<'v, E> = dyn FnMut(Result<Node<'_>, (&[u8], FsError)>) -> Result<(), E> + 'v;

/// Visits `start` and everything below it down to `depth` directories, parents first, names in
/// order. Errors of directories are reported with their path and do not end the walk; so are
/// directories that are too deep to be entered, in images made to do harm.
///
/// # Errors
/// Whatever `visit` returns.
pub fn walk<E>(
    fs: &dyn FileSystem,
    start: Inode,
    depth: usize,
    visit: &mut Visit<'_, E>,
) -> Result<(), E> {
    let attributes = fs.attributes(start);
    let kind = attributes.map_or(FileKind::Directory, |attributes| attributes.kind);
    visit(Ok(Node { path: b"", inode: start, kind, attributes }))?;
    let mut visited = HashSet::from([start]);
    // Children still to be visited, with their directory's depth and path length; last one first.
    let mut waiting: Vec<(usize, Vec<u8>, Child)> = vec![];
    let mut enter = Some((0, Vec::new(), start));
    if kind != FileKind::Directory {
        return Ok(());
    }
    loop {
        if let Some((level, path, inode)) = enter.take() {
            let (mut children, result) = children(fs, inode);
            if let Err(error) = result {
                visit(Err((&path, error)))?;
            }
            children.sort_by(|a, b| b.name.cmp(&a.name));
            for child in children {
                let mut child_path = path.clone();
                if !child_path.is_empty() {
                    child_path.push(b'/');
                }
                child_path.extend_from_slice(&child.name);
                waiting.push((level + 1, child_path, child));
            }
        }
        let Some((level, path, child)) = waiting.pop() else { return Ok(()) };
        let attributes = fs.attributes(child.inode);
        let (inode, kind) = (child.inode, child.kind);
        visit(Ok(Node { path: &path, inode, kind, attributes }))?;
        if kind != FileKind::Directory || level >= depth || !visited.insert(inode) {
            continue;
        }
        match level < DEPTH_MAX {
            true => enter = Some((level, path, inode)),
            false => visit(Err((&path, FsError::Unsupported(TOO_DEEP))))?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use flysch_api::vfs::{DeviceNumber, FileSystemMut, NewFile, Timestamp};
    use flysch_vfs::Memory;

    use super::*;

    #[test]
    fn a_walk_says_where_it_does_not_go() {
        let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        let mut fs = Memory::new(1 << 20, now);
        let root = fs.statistics().root;
        let device = DeviceNumber::default();
        let kind = FileKind::Directory;
        let new = NewFile { kind, permissions: 0o755, owner: 0, group: 0, device, target: b"" };
        let mut at = root;
        for _ in 0..=DEPTH_MAX {
            at = fs.create(at, b"d", &new, now).unwrap();
        }
        let walked = |depth| {
            let (mut nodes, mut errors) = (0, vec![]);
            let done: Result<(), Infallible> = walk(&fs, root, depth, &mut |met| {
                match met {
                    Ok(_) => nodes += 1,
                    Err((path, error)) => errors.push((path.len(), error.to_string())),
                }
                Ok(())
            });
            assert_eq!(done, Ok(()));
            (nodes, errors)
        };
        let (nodes, errors) = walked(usize::MAX);
        assert!(TOO_DEEP.contains(&DEPTH_MAX.to_string()));
        // Its path: names of one byte, with slashes between them.
        let expected = (2 * DEPTH_MAX - 1, "not supported: a directory below 1024 others".into());
        assert_eq!((nodes, errors), (1 + DEPTH_MAX, vec![expected]));
        assert_eq!(walked(3), (4, vec![]));
    }
}
