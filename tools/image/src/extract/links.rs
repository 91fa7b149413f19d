//! Hard links: the first name of an inode creates the file, every other one links to it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Condvar, Mutex, PoisonError};

use flysch_api::vfs::Inode;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

#[derive(Clone, Debug)]
enum State {
    /// Some thread is creating the first one.
    Making,
    /// It has this path.
    Made(Vec<u8>),
}

/// What to do with a name of an inode that has several.
pub(super) enum Turn {
    /// Create the file, then report the result.
    Make,
    /// Link to the file at this path.
    Link(Vec<u8>),
}

/// Inodes with several names found so far.
#[derive(Debug, Default)]
pub(super) struct Links {
    inodes: Mutex<HashMap<Inode, State>>,
    changed: Condvar,
}

impl Links {
    /// Decides who creates the file; waits while another thread does.
    pub(super) fn turn(&self, inode: Inode) -> Turn {
        let mut inodes = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match inodes.get(&inode) {
                None => {
                    inodes.insert(inode, State::Making);
                    return Turn::Make;
                }
                Some(State::Made(path)) => return Turn::Link(path.clone()),
                Some(State::Making) => {
                    inodes = self.changed.wait(inodes).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The file was created at `path`; or it was not, and the next name tries again.
    pub(super) fn made(&self, inode: Inode, path: Option<Vec<u8>>) {
        let mut inodes = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        match path {
            Some(path) => inodes.insert(inode, State::Made(path)),
            None => inodes.remove(&inode),
        };
        self.changed.notify_all();
    }
}

/// Gives the file at `path` below `root` another name. No symlink is followed.
pub(super) fn link(
    root: &OwnedFd,
    path: &[u8],
    directory: &OwnedFd,
    name: &[u8],
) -> Result<(), Errno> {
    let mut parts = path.split(|&byte| byte == b'/');
    let last = parts.next_back().unwrap_or_default();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    for part in parts {
        let from = at.as_ref().map_or(root.as_fd(), |handle| handle.as_fd());
        at = Some(rustix::fs::openat(from, part, flags, Mode::empty())?);
    }
    let from = at.as_ref().map_or(root.as_fd(), |handle| handle.as_fd());
    rustix::fs::linkat(from, last, directory, name, AtFlags::empty())
}
