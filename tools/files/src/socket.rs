//! The file of a UNIX socket.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::Made;

/// Longest path of a socket, bytes: `sun_path` of Linux's `sockaddr_un`, without the zero.
const PATH_MAX: usize = 107;

/// Why a socket could not be made.
#[derive(Debug)]
pub enum SocketError {
    /// Another process serves there.
    InUse(PathBuf),
    /// Something else is there.
    NotASocket(PathBuf),
    /// The path is too long for a socket.
    TooLong(PathBuf),
    /// The operating system refused.
    System(PathBuf, io::Error),
}

impl std::fmt::Display for SocketError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse(path) => {
                write!(f, "{}: another process serves this socket", path.display())
            }
            Self::NotASocket(path) => write!(f, "{}: exists and is not a socket", path.display()),
            Self::TooLong(path) => write!(
                f,
                "{}: a socket's path can have at most {PATH_MAX} bytes, but this one has {}: name \
                 a shorter one",
                path.display(),
                path.as_os_str().len()
            ),
            Self::System(path, cause) => write!(f, "{}: {cause}", path.display()),
        }
    }
}

impl std::error::Error for SocketError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(_, cause) => Some(cause),
            Self::InUse(_) | Self::NotASocket(_) | Self::TooLong(_) => None,
        }
    }
}

/// The file of a socket. It is removed on drop, and when the command is interrupted, unless
/// somebody has replaced it.
#[derive(Debug)]
#[must_use = "dropped, it is removed"]
pub struct SocketFile {
    made: Option<Made>,
    path: PathBuf,
    /// Device and inode, to recognise it.
    file: Option<(u64, u64)>,
}

impl SocketFile {
    /// Creates the socket; replaces one that nobody serves any more.
    ///
    /// # Errors
    /// The path is taken, or the operating system refused.
    pub fn bind(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        let system = |cause| SocketError::System(path.to_path_buf(), cause);
        if path.as_os_str().len() > PATH_MAX {
            return Err(SocketError::TooLong(path.to_path_buf()));
        }
        match path.symlink_metadata() {
            Err(_) => {}
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::NotASocket(path.to_path_buf()));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(system)?;
                }
                Ok(_) => return Err(SocketError::InUse(path.to_path_buf())),
                Err(cause) => return Err(system(cause)),
            },
        }
        let listener = UnixListener::bind(path).map_err(system)?;
        let made = Some(Made::adopt(path));
        let (path, file) = (path.to_path_buf(), file_at(path));
        Ok((Self { made, path, file }, listener))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.file.is_none() || file_at(&self.path) != self.file {
            // Replaced by somebody else: leave it.
            self.made.take().into_iter().for_each(Made::keep);
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_taken_only_if_nobody_serves_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let server = SocketFile::bind(&path).unwrap();
        assert!(matches!(SocketFile::bind(&path), Err(SocketError::InUse(_))));
        drop(server);
        assert!(!path.exists());
        // A socket left behind.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let server = SocketFile::bind(&path).unwrap();
        // Somebody else has put a file there: it stays.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        drop(server);
        assert!(path.exists());
        assert!(matches!(SocketFile::bind(&path), Err(SocketError::NotASocket(_))));
        let text = SocketFile::bind(&folder.path().join("no/such")).unwrap_err().to_string();
        assert!(text.contains("no/such"), "{text}");
        let fits = folder.path().as_os_str().len() + 1;
        let longest = folder.path().join("x".repeat(PATH_MAX - fits));
        drop(SocketFile::bind(&longest).unwrap());
        let text = SocketFile::bind(&folder.path().join("x".repeat(PATH_MAX - fits + 1)));
        let text = text.unwrap_err().to_string();
        assert!(text.contains("at most 107 bytes, but this one has 108"), "{text}");
    }
}
