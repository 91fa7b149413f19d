//! The backing store of a logical unit: memory, or an image file that is checked before QEMU sees
//! it.
//!
//! Both are passed to QEMU as an open descriptor, so no file name goes through QEMU's option syntax
//! and nothing is left in the file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::error::{ImageFault, QemuError};
use crate::{BLOCK_SIZE, Backing, Unit};

/// An opened backing store.
#[derive(Debug)]
pub(crate) struct Store {
    /// The store, to be inherited by QEMU.
    pub(crate) descriptor: OwnedFd,
    /// Size of the logical unit in bytes.
    pub(crate) bytes: u64,
    /// The file, if it was created here.
    pub(crate) created: Option<Created>,
}

/// A file created here, which is removed on drop unless it is kept.
#[derive(Debug)]
pub(crate) struct Created(Option<PathBuf>);

impl Created {
    /// Keeps the file: the machine runs.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Best effort: the error that brought us here is the one to tell.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Store {
    /// Opens the backing store of `unit`, creating an image file that has a size but does not
    /// exist.
    pub(crate) fn open(unit: &Unit) -> Result<Self, QemuError> {
        match &unit.backing {
            Backing::Memory { bytes } => {
                check_size(unit.lun, *bytes)?;
                let descriptor = shared_memory("a logical unit", *bytes)?;
                Ok(Self { descriptor, bytes: *bytes, created: None })
            }
            Backing::Image { path, bytes } => {
                if let Some(bytes) = bytes {
                    check_size(unit.lun, *bytes)?;
                }
                Self::open_image(path, *bytes, unit.read_only)
                    .map_err(|fault| QemuError::Image { path: path.clone(), fault })
            }
        }
    }

    fn open_image(path: &Path, bytes: Option<u64>, read_only: bool) -> Result<Self, ImageFault> {
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Self::create(path, bytes.ok_or(ImageFault::Missing)?);
            }
            Err(e) => return Err(e.into()),
        };
        if !metadata.is_file() {
            let kind = if metadata.is_dir() { "a directory" } else { "a special file" };
            return Err(ImageFault::NotAFile(kind));
        }
        // A superuser may write everything; a file marked read-only is meant to stay as it is.
        if !read_only && metadata.permissions().readonly() {
            return Err(ImageFault::NotWritable("its mode has no write permission".into()));
        }
        let file =
            OpenOptions::new().read(true).write(!read_only).open(path).map_err(|e| {
                match e.kind() {
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                        if !read_only =>
                    {
                        ImageFault::NotWritable(e.to_string())
                    }
                    _ => e.into(),
                }
            })?;
        let length = file.metadata()?.len();
        let needed = bytes.unwrap_or(BLOCK_SIZE);
        if length < needed {
            return Err(ImageFault::TooSmall { length, needed });
        }
        if bytes.is_none() && !length.is_multiple_of(BLOCK_SIZE) {
            return Err(ImageFault::Ragged { length, block: BLOCK_SIZE });
        }
        Ok(Self { descriptor: file.into(), bytes: bytes.unwrap_or(length), created: None })
    }

    fn create(path: &Path, bytes: u64) -> Result<Self, ImageFault> {
        let file: File = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let created = Created(Some(path.into()));
        file.set_len(bytes)?;
        Ok(Self { descriptor: file.into(), bytes, created: Some(created) })
    }
}

/// A sparse anonymous file of `bytes` bytes that another process can map or open. It can never
/// shrink, so mappings of it are safe.
pub(crate) fn shared_memory(purpose: &'static str, bytes: u64) -> Result<OwnedFd, QemuError> {
    let memory =
        |cause: rustix::io::Errno| QemuError::Memory { bytes, purpose, cause: cause.into() };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("flysch", flags).map_err(memory)?;
    rustix::fs::ftruncate(&fd, bytes).map_err(memory)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).map_err(memory)?;
    Ok(fd)
}

fn check_size(lun: u8, bytes: u64) -> Result<(), QemuError> {
    if bytes < BLOCK_SIZE || !bytes.is_multiple_of(BLOCK_SIZE) || i64::try_from(bytes).is_err() {
        return Err(QemuError::Option(format!(
            "size {bytes} of logical unit {lun}: the size must be a positive multiple of \
             {BLOCK_SIZE}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(path: &Path, bytes: Option<u64>) -> Unit {
        Unit { lun: 0, backing: Backing::Image { path: path.into(), bytes }, read_only: false }
    }

    fn fault(unit: &Unit) -> ImageFault {
        match Store::open(unit) {
            Err(QemuError::Image { fault, .. }) => fault,
            other => panic!("expected an image fault, got {other:?}"),
        }
    }

    #[test]
    fn files_that_cannot_back_a_unit_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(fault(&image(folder.path(), None)), ImageFault::NotAFile("a directory")));
        assert!(matches!(fault(&image(&folder.path().join("no"), None)), ImageFault::Missing));
        let file = folder.path().join("image");
        std::fs::write(&file, vec![0; 5000]).unwrap();
        assert!(matches!(fault(&image(&file, None)), ImageFault::Ragged { length: 5000, .. }));
        assert!(matches!(
            fault(&image(&file, Some(8192))),
            ImageFault::TooSmall { length: 5000, needed: 8192 }
        ));
        assert_eq!(Store::open(&image(&file, Some(4096))).unwrap().bytes, 4096);
        let mut mode = file.metadata().unwrap().permissions();
        mode.set_readonly(true);
        std::fs::set_permissions(&file, mode).unwrap();
        assert!(matches!(fault(&image(&file, Some(4096))), ImageFault::NotWritable(_)));
        let reading = Unit { read_only: true, ..image(&file, Some(4096)) };
        assert_eq!(Store::open(&reading).unwrap().bytes, 4096);
    }

    #[test]
    fn a_created_image_goes_away_unless_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new");
        drop(Store::open(&image(&file, Some(1 << 20))).unwrap());
        assert!(!file.exists());
        Store::open(&image(&file, Some(1 << 20))).unwrap().created.unwrap().keep();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn sizes_are_whole_blocks() {
        for bytes in [0, 1, 4095, 4097, u64::MAX - 4095] {
            let unit = Unit { lun: 3, backing: Backing::Memory { bytes }, read_only: false };
            assert!(matches!(Store::open(&unit), Err(QemuError::Option(_))), "{bytes}");
        }
    }
}
