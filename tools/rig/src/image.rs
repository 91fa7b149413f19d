//! Image files behind modelled logical units: checked, and created on request, before a model sees
//! them.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use flysch_files::Made;
use flysch_linux::disk::is_among_devices;

/// Bytes per logical block of the units.
const BLOCK: u64 = 4096;

/// Why a file cannot hold the data of a logical unit.
#[derive(Debug, thiserror::Error)]
#[error("image {}: {fault}", path.display())]
pub struct ImageError {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub fault: ImageFault,
}

/// The problem with an image file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageFault {
    /// It does not exist and no size was given.
    #[error("does not exist; give `size=` to make it")]
    Missing,
    /// It does not exist in a folder that contains only devices.
    #[error("does not exist, and no file is made among devices; `lsblk` lists the existing disks")]
    NoDevice,
    /// It is a directory.
    #[error("is a directory, not a regular file")]
    Directory,
    /// It is a device, a pipe or a socket.
    #[error("is not a regular file")]
    NotAFile,
    /// It has no write permission.
    #[error("is not writable ({0}); make it writable or copy it")]
    NotWritable(String),
    /// It is shorter than requested.
    #[error("is too small: {has} bytes, {needs} needed; enlarge it with `truncate -s {needs}`")]
    TooSmall {
        /// Its length.
        has: u64,
        /// The required length.
        needs: u64,
    },
    /// It is not a whole number of blocks.
    #[error("has {has} bytes, not a multiple of the logical block of 4096; give `size=`")]
    Ragged {
        /// Its length.
        has: u64,
    },
    /// The operating system's error.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Default size of QEMU's disks.
pub(crate) const QEMU_SIZE: u64 = 1 << 30;

/// The backing store of QEMU's disks: a file, which is created if it does not exist, or memory.
pub(crate) fn for_qemu(
    path: Option<&Path>,
    size: Option<u64>,
) -> Result<(flysch_qemu::Backing, Option<Made>), ImageError> {
    let Some(path) = path else {
        let bytes = size.unwrap_or(QEMU_SIZE);
        return Ok((flysch_qemu::Backing::Memory { bytes }, None));
    };
    let image = Image::prepare(path, size)?;
    Ok((flysch_qemu::Backing::Image { path: path.into(), bytes: size }, image.made))
}

/// A file that holds a unit.
#[derive(Debug)]
pub(crate) struct Image {
    /// Bytes of the unit.
    pub(crate) bytes: u64,
    /// Whether it was created here.
    pub(crate) made: Option<Made>,
}

impl Image {
    /// Checks the file, or creates it if `size` is given and it does not exist.
    pub(crate) fn prepare(path: &Path, size: Option<u64>) -> Result<Self, ImageError> {
        Self::try_prepare(path, size)
            .map_err(|fault| ImageError { path: path.to_path_buf(), fault })
    }

    fn try_prepare(path: &Path, size: Option<u64>) -> Result<Self, ImageFault> {
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let bytes = size.ok_or_else(|| missing(path))?;
                return Ok(Self { bytes, made: Some(try_make(path, bytes)?) });
            }
            Err(error) => return Err(error.into()),
        };
        if metadata.is_dir() {
            return Err(ImageFault::Directory);
        }
        if !metadata.is_file() {
            return Err(ImageFault::NotAFile);
        }
        // A superuser may write everything; a file marked read-only is still meant to stay.
        if metadata.permissions().readonly() {
            return Err(ImageFault::NotWritable("its mode has no write permission".into()));
        }
        OpenOptions::new().write(true).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ImageFault::NotWritable(error.to_string())
            }
            _ => ImageFault::System(error),
        })?;
        let has = metadata.len();
        let bytes = size.unwrap_or(has);
        if has < bytes.max(BLOCK) {
            return Err(ImageFault::TooSmall { has, needs: bytes.max(BLOCK) });
        }
        if !bytes.is_multiple_of(BLOCK) {
            return Err(ImageFault::Ragged { has });
        }
        Ok(Self { bytes, made: None })
    }
}

/// The fault of a missing file: the remedy depends on its folder.
fn missing(path: &Path) -> ImageFault {
    match is_among_devices(path) {
        true => ImageFault::NoDevice,
        false => ImageFault::Missing,
    }
}

/// Creates a sparse file of `bytes` bytes at `path`, if it does not exist and its size is given.
pub(crate) fn make_missing(path: &Path, bytes: Option<u64>) -> Result<Option<Made>, ImageError> {
    if path.exists() {
        return Ok(None);
    }
    let fault = match bytes.map(|bytes| try_make(path, bytes)) {
        Some(Ok(made)) => return Ok(Some(made)),
        Some(Err(fault)) => fault,
        None => missing(path),
    };
    Err(ImageError { path: path.into(), fault })
}

fn try_make(path: &Path, bytes: u64) -> Result<Made, ImageFault> {
    if is_among_devices(path) {
        return Err(ImageFault::NoDevice);
    }
    let (made, file) =
        Made::file(path, |path| OpenOptions::new().write(true).create_new(true).open(path))?;
    file.set_len(bytes)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path, size: Option<u64>) -> String {
        Image::prepare(path, size).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_hold_a_unit_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        assert!(refusal(&path, None).contains("a.img: does not exist"));
        let nowhere = Path::new("/dev/nowhere");
        assert!(refusal(nowhere, None).contains("`lsblk` lists"));
        assert!(refusal(nowhere, Some(1 << 20)).contains("no file is made among devices"));
        assert!(!nowhere.exists());
        assert!(refusal(folder.path(), Some(4096)).contains("is a directory"));
        std::fs::write(&path, vec![0; 5000]).unwrap();
        assert!(refusal(&path, None).contains("not a multiple"));
        assert!(refusal(&path, Some(8192)).contains("5000 bytes, 8192 needed"));
        let mut mode = std::fs::metadata(&path).unwrap().permissions();
        mode.set_readonly(true);
        std::fs::set_permissions(&path, mode).unwrap();
        assert!(refusal(&path, Some(4096)).contains("not writable"));
        assert!(refusal(Path::new("/dev/null"), None).contains("not a regular file"));
    }

    #[test]
    fn a_file_made_here_stays_only_if_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        drop(Image::prepare(&path, Some(8192)).unwrap());
        assert!(!path.exists());
        Image::prepare(&path, Some(8192)).unwrap().made.unwrap().keep();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
        assert_eq!(Image::prepare(&path, None).unwrap().bytes, 8192);
    }
}
