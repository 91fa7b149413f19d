//! Files of all types except directories.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flysch_api::vfs::{Attributes, DeviceNumber, FileKind, FileSystemExt, FsError, Inode};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::links::{self, Turn};
use super::{Cause, Directory, Run};
use crate::tree::Child;

/// Bytes read and written at once.
const CHUNK: usize = 1 << 20;
/// Extra bytes offered behind the requested ones: some decompressors are faster with them.
const SLACK: usize = 512;
/// Runs of zeros of this length, aligned to it, are not written: they become holes.
const HOLE: usize = 4096;
/// Longest symlink target, bytes.
const TARGET_MAX: usize = 4096;

impl Run<'_> {
    pub(super) fn make_other(
        &self,
        directory: &Arc<Directory>,
        child: &Child,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let attributes = self.fs.attributes(child.inode)?;
        if attributes.kind == FileKind::Directory {
            return Err(Cause::Kind);
        }
        if attributes.links < 2 {
            return self.make_file(directory, child, &attributes, buffer);
        }
        match self.links.turn(child.inode) {
            Turn::Make => {
                let made = self.make_file(directory, child, &attributes, buffer);
                let is_there = made.is_ok() || self.options.keep_damaged;
                let path = is_there.then(|| directory.path_of(&child.name));
                self.links.made(child.inode, path);
                made
            }
            Turn::Link(path) => {
                links::link(&self.root, &path, &directory.handle, &child.name)?;
                self.progress.files.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn make_file(
        &self,
        directory: &Directory,
        child: &Child,
        attributes: &Attributes,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let name = &child.name[..];
        let handle = &directory.handle;
        match attributes.kind {
            FileKind::Regular => return self.make_regular(directory, child, attributes, buffer),
            FileKind::Symlink => {
                let target = self.target(child.inode)?;
                rustix::fs::symlinkat(&target[..], handle, name)?;
            }
            kind => {
                if !self.make_node(handle, name, kind, attributes.device)? {
                    return Ok(());
                }
            }
        }
        self.progress.files.fetch_add(1, Ordering::Relaxed);
        self.restore_named(handle, name, attributes, || directory.path_of(name))
    }

    /// Creates a device, FIFO or socket; returns whether we had the right to.
    fn make_node(
        &self,
        handle: &OwnedFd,
        name: &[u8],
        kind: FileKind,
        device: DeviceNumber,
    ) -> Result<bool, Cause> {
        let (file_type, device) = match kind {
            FileKind::CharacterDevice => (FileType::CharacterDevice, device),
            FileKind::BlockDevice => (FileType::BlockDevice, device),
            FileKind::Fifo => (FileType::Fifo, DeviceNumber::default()),
            _ => (FileType::Socket, DeviceNumber::default()),
        };
        let number = rustix::fs::makedev(device.major, device.minor);
        match rustix::fs::mknodat(handle, name, file_type, Mode::RUSR | Mode::WUSR, number) {
            Ok(()) => Ok(true),
            Err(Errno::PERM) => {
                self.report(|report| report.without_device += 1);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn target(&self, inode: Inode) -> Result<Vec<u8>, Cause> {
        let mut target = vec![0; TARGET_MAX];
        let len = self.fs.read_full(inode, 0, &mut target)?;
        target.truncate(len);
        Ok(target)
    }

    fn make_regular(
        &self,
        directory: &Directory,
        child: &Child,
        attributes: &Attributes,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let name = &child.name[..];
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (mode, is_owned) = self.habits.mode(attributes);
        let file = rustix::fs::openat(&directory.handle, name, flags, mode)?;
        let mut copied = 0;
        let written =
            self.write_content(&file, (child.inode, attributes.size), buffer, &mut copied);
        let is_kept = match &written {
            Ok(()) => true,
            Err(Cause::Hole { .. }) => self.options.keep_damaged,
            Err(_) => false,
        };
        if !is_kept {
            // What is there of it is not the file.
            self.progress.bytes.fetch_sub(copied, Ordering::Relaxed);
            rustix::fs::unlinkat(&directory.handle, name, AtFlags::empty())?;
            return written;
        }
        self.restore_file(&file, attributes, is_owned, || directory.path_of(name));
        self.progress.files.fetch_add(1, Ordering::Relaxed);
        written
    }

    /// Writes all content; damaged parts are left out, and the first of them is returned as the
    /// error. `copied` becomes the number of bytes that the file has of it: a hole counts as what
    /// is read of it, since how much of it is stored depends on the format.
    fn write_content(
        &self,
        file: &OwnedFd,
        (inode, size): (Inode, u64),
        buffer: &mut Vec<u8>,
        copied: &mut u64,
    ) -> Result<(), Cause> {
        let mut count = |bytes: u64| {
            *copied += bytes;
            self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        };
        let mut lost: Option<Cause> = None;
        let mut at = 0;
        // How long the file is by what was written to it.
        let mut end = 0;
        // Up to where there is content without a hole; a small file is read whole without asking.
        let mut known = if size > CHUNK as u64 { 0 } else { size };
        if size > 0 {
            buffer.resize(CHUNK + SLACK, 0);
        }
        while at < size {
            if at >= known {
                let data = self.fs.next_data(inode, at)?;
                let start = data.as_ref().map_or(size, |range| range.start.clamp(at, size));
                count(start - at);
                at = start;
                match data {
                    None => break,
                    Some(range) => known = range.end,
                }
            }
            let len = CHUNK.min(usize::try_from(size - at).unwrap_or(CHUNK));
            let is_last = len as u64 == size - at;
            let room = if is_last { len + SLACK } else { len };
            match self.fs.read(inode, at, &mut buffer[..room]) {
                Ok(0) => break,
                Ok(read) => {
                    let len = read.min(len);
                    end = write_sparse(file, at, &buffer[..len])?.max(end);
                    at += len as u64;
                    count(len as u64);
                }
                Err(error @ (FsError::Damaged { .. } | FsError::Medium { .. }))
                    if self.options.keep_damaged =>
                {
                    let next = (at + 1).next_multiple_of(HOLE as u64).min(size);
                    lost = Some(match lost {
                        Some(Cause::Hole { error, start, .. }) => {
                            Cause::Hole { error, start, end: next }
                        }
                        _ => Cause::Hole { error, start: at, end: next },
                    });
                    at = next;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if end < size {
            rustix::fs::ftruncate(file, size)?;
        }
        lost.map_or(Ok(()), Err)
    }
}

/// Writes `bytes` at `offset`, without runs of zeros. Returns the end of the written data in the
/// file; 0 if nothing was written.
fn write_sparse(file: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
    const ZEROS: [u8; HOLE] = [0; HOLE];
    let mut start = 0;
    let mut end = 0;
    let mut written = 0;
    let mut write = |start: usize, end: usize| {
        if start < end {
            written = offset + end as u64;
        }
        write_all(file, offset + start as u64, &bytes[start..end])
    };
    // Pieces end at multiples of the hole size in the file.
    while end < bytes.len() {
        let to_boundary = HOLE - ((offset + end as u64) % HOLE as u64) as usize;
        let piece = to_boundary.min(bytes.len() - end);
        if piece == HOLE && bytes[end..end + HOLE] == ZEROS {
            write(start, end)?;
            start = end + HOLE;
        }
        end += piece;
    }
    write(start, bytes.len())?;
    Ok(written)
}

fn write_all(file: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let (mut offset, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        match rustix::io::pwrite(file, rest, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(len) => {
                offset += len as u64;
                rest = &rest[len..];
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
