//! Paths inside an image.

use flysch_api::vfs::{Error, FileSystem, Inode};

/// Why a path leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A part of it is not there, or is in the way.
    #[error("/{path}: {error}")]
    At {
        /// The path up to that part.
        path: String,
        /// What is wrong there.
        error: Error,
    },
}

/// The inode that `path` names, from the root of `fs`; symlinks are not followed.
///
/// # Errors
/// When it names none.
pub fn resolve(fs: &dyn FileSystem, path: &[u8]) -> Result<Inode, PathError> {
    let mut at = vec![fs.statistics().root];
    let mut shown: Vec<u8> = vec![];
    for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            if at.len() > 1 {
                at.pop();
            }
            continue;
        }
        if !shown.is_empty() {
            shown.push(b'/');
        }
        shown.extend_from_slice(part);
        let found = fs
            .lookup(at[at.len() - 1], part)
            .map_err(|error| PathError::At { path: shown.escape_ascii().to_string(), error })?;
        at.push(found);
    }
    Ok(at[at.len() - 1])
}
