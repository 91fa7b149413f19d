//! Volumes of an image, and the files in them.

use std::ffi::{OsStr, OsString};
use std::ops::{ControlFlow, Deref};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use flysch_api::vfs::{Attributes, FileKind, FileSystem, FsError, Inode, Timestamp};
use flysch_image::{
    ExtractOptions, Image, ImageVolume as Opened, Progress, SharedFileSystem, extract, extract_raw,
    follow, in_fields, names, resolve,
};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::border::{HostPath, Whole, detached, without_zero};
use crate::error::{UnsupportedError, of_file, of_path, of_system, with_entries};
use crate::held::Held;

/// Most bytes of a file that are read in one step, and of an attribute.
const CHUNK: usize = 1 << 20;
const XATTR_MAX: usize = 64 << 10;
/// Most threads of an extraction.
const THREADS_MAX: u16 = 1024;

/// A volume of an image: a UBI volume, or the only one of a bare UBIFS or JFFS2.
#[pyclass(frozen, module = "flysch")]
pub(crate) struct Volume {
    held: Arc<Held>,
    number: usize,
}

/// A volume of an image that stays open while it is used.
pub(crate) struct Found {
    image: Arc<Image>,
    number: usize,
}

impl Found {
    pub(crate) fn image(&self) -> &Image {
        &self.image
    }
}

impl Deref for Found {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        self.image.volumes().nth(self.number).expect("volumes do not go")
    }
}

/// Attributes of a file, with the names of `os.stat_result`.
#[pyclass(frozen, get_all, module = "flysch")]
pub(crate) struct Stat {
    st_mode: u32,
    st_ino: u64,
    st_nlink: u32,
    st_uid: u32,
    st_gid: u32,
    st_size: u64,
    st_blocks: u64,
    /// Number of a device node, as returned by `os.makedev`.
    st_rdev: u64,
    st_atime: f64,
    st_mtime: f64,
    st_ctime: f64,
    st_atime_ns: i128,
    st_mtime_ns: i128,
    st_ctime_ns: i128,
}

/// One name of a directory.
#[pyclass(frozen, get_all, module = "flysch")]
pub(crate) struct DirEntry {
    name: OsString,
    inode: u64,
    /// The type bits of st_mode.
    kind: u32,
}

/// Result of an extraction.
#[pyclass(frozen, get_all, module = "flysch")]
pub(crate) struct Extraction {
    /// Files, directories and other objects created.
    files: u64,
    /// Bytes written.
    bytes: u64,
    /// What could not be extracted: path and cause.
    failures: Vec<(OsString, String)>,
    /// Numbers of files whose owner could not be set, of device nodes that could not be created and
    /// of attributes that could not be set, for lack of permission.
    without_owner: u64,
    without_device: u64,
    without_xattr: u64,
}

fn seconds(time: Timestamp) -> f64 {
    time.seconds as f64 + f64::from(time.nanoseconds) / 1e9
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

impl From<Attributes> for Stat {
    fn from(attributes: Attributes) -> Self {
        let Attributes { accessed, modified, changed, .. } = attributes;
        Self {
            st_mode: attributes.kind.mode_bits() | u32::from(attributes.permissions),
            st_ino: attributes.inode.0,
            st_nlink: attributes.links,
            st_uid: attributes.owner,
            st_gid: attributes.group,
            st_size: attributes.size,
            st_blocks: attributes.blocks,
            st_rdev: attributes.device.to_huge(),
            st_atime: seconds(accessed),
            st_mtime: seconds(modified),
            st_ctime: seconds(changed),
            st_atime_ns: nanoseconds(accessed),
            st_mtime_ns: nanoseconds(modified),
            st_ctime_ns: nanoseconds(changed),
        }
    }
}

#[pymethods]
impl Stat {
    fn __repr__(&self) -> String {
        let Self { st_mode, st_ino, st_size, .. } = self;
        format!("<flysch.Stat st_mode={st_mode:#o} st_ino={st_ino} st_size={st_size}>")
    }
}

#[pymethods]
impl DirEntry {
    fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory.mode_bits()
    }

    fn is_file(&self) -> bool {
        self.kind == FileKind::Regular.mode_bits()
    }

    fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink.mode_bits()
    }

    fn __repr__(&self) -> String {
        format!("<flysch.DirEntry {:?}>", self.name)
    }
}

#[pymethods]
impl Extraction {
    fn __repr__(&self) -> String {
        let Self { files, bytes, failures, .. } = self;
        format!("<flysch.Extraction {files} files, {bytes} bytes, {} failures>", failures.len())
    }
}

impl Volume {
    pub(crate) fn new(held: Arc<Held>, number: usize) -> Self {
        Self { held, number }
    }

    /// The volume itself, if its image is open.
    pub(crate) fn found(&self) -> PyResult<Found> {
        Ok(Found { image: self.held.get()?, number: self.number })
    }

    fn fs(&self) -> PyResult<SharedFileSystem> {
        let volume = self.found()?;
        volume.file_system().ok_or_else(|| {
            let why = volume.failure().unwrap_or("there is no file system in it");
            UnsupportedError::new_err(format!("volume {}: {}", volume.name, in_fields(why)))
        })
    }

    /// The inode at a path; with `follow_symlinks`, a final symbolic link is followed.
    fn find(&self, path: &OsStr, follow_symlinks: bool) -> PyResult<(SharedFileSystem, Inode)> {
        let fs = self.fs()?;
        without_zero(path)?;
        if path.is_empty() {
            return Err(of_file(FsError::NotFound, path));
        }
        let found = match follow_symlinks {
            true => follow(&*fs, path.as_bytes()),
            false => resolve(&*fs, path.as_bytes()),
        };
        let inode = found.map_err(|error| of_path(error, path))?;
        Ok((fs, inode))
    }

    /// The entries of a directory that can be read, and why there may be others.
    fn entries(
        py: Python<'_>,
        (fs, inode): (SharedFileSystem, Inode),
        path: &OsStr,
    ) -> PyResult<(Vec<DirEntry>, Option<PyErr>)> {
        let mut entries = Vec::new();
        let listed = detached(py, || {
            fs.list(inode, 0, &mut |entry| {
                entries.push(DirEntry {
                    name: OsString::from_vec(entry.name.to_vec()),
                    inode: entry.inode.0,
                    kind: entry.kind.mode_bits(),
                });
                ControlFlow::Continue(())
            })
        })?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((entries, listed.err().map(|error| of_file(error, path))))
    }
}

/// Reads `size` bytes from `offset` on, fewer at the end.
fn read_at(
    fs: &dyn FileSystem,
    inode: Inode,
    mut offset: u64,
    size: u64,
) -> Result<Vec<u8>, FsError> {
    let left = fs.attributes(inode)?.size.saturating_sub(offset).min(size);
    // The size comes from the image: no memory is allocated for data that is not there.
    let mut bytes = Vec::new();
    let mut left = usize::try_from(left).unwrap_or(usize::MAX);
    if left == 0 {
        // A read fails for directories, devices and the like, whatever their size.
        fs.read(inode, offset, &mut [])?;
    }
    while left > 0 {
        let start = bytes.len();
        bytes.resize(start + left.min(CHUNK), 0);
        let read = fs.read(inode, offset, &mut bytes[start..])?;
        bytes.truncate(start + read);
        if read == 0 {
            break;
        }
        offset += read as u64;
        left -= read;
    }
    Ok(bytes)
}

#[pymethods]
impl Volume {
    /// Name of the UBI volume, else of its format. Several volumes may have the same.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.found()?.name.clone())
    }

    /// The name, made unique in the image and fit to be a file's: "rootfs-2" for the second
    /// "rootfs". `image[unique_name]` is this volume.
    #[getter]
    fn unique_name(&self) -> PyResult<String> {
        Ok(names(self.found()?.image()).swap_remove(self.number))
    }

    /// Id of the UBI volume.
    #[getter]
    fn id(&self) -> PyResult<Option<u32>> {
        Ok(self.found()?.id)
    }

    /// "ubifs", "jffs2", "raw" or "broken".
    #[getter]
    fn format(&self) -> PyResult<&'static str> {
        Ok(self.found()?.format())
    }

    /// Why its file system cannot be opened.
    #[getter]
    fn failure(&self) -> PyResult<Option<String>> {
        Ok(self.found()?.failure().map(in_fields))
    }

    /// Names in a directory, sorted. If some cannot be read, the DamagedError has the others in
    /// `entries`.
    #[pyo3(signature = (path=OsString::from("/")), text_signature = "($self, path='/')")]
    fn listdir(&self, py: Python<'_>, path: OsString) -> PyResult<Vec<OsString>> {
        let (entries, error) = Self::entries(py, self.find(&path, true)?, &path)?;
        let names: Vec<OsString> = entries.into_iter().map(|entry| entry.name).collect();
        match error {
            None => Ok(names),
            Some(error) => Err(with_entries(error, names, py)),
        }
    }

    /// Entries of a directory, sorted by name. If some cannot be read, the DamagedError has the
    /// others in `entries`.
    #[pyo3(signature = (path=OsString::from("/")), text_signature = "($self, path='/')")]
    fn scandir(&self, py: Python<'_>, path: OsString) -> PyResult<Vec<DirEntry>> {
        match Self::entries(py, self.find(&path, true)?, &path)? {
            (entries, None) => Ok(entries),
            (entries, Some(error)) => Err(with_entries(error, entries, py)),
        }
    }

    /// The same for the directory with this inode, which the path led to: walks do not begin at the
    /// root again for each directory.
    fn _scandir(&self, py: Python<'_>, inode: u64, path: OsString) -> PyResult<Vec<DirEntry>> {
        match Self::entries(py, (self.fs()?, Inode(inode)), &path)? {
            (entries, None) => Ok(entries),
            (entries, Some(error)) => Err(with_entries(error, entries, py)),
        }
    }

    /// Attributes of a file.
    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn stat(&self, path: OsString, follow_symlinks: bool) -> PyResult<Stat> {
        let (fs, inode) = self.find(&path, follow_symlinks)?;
        Ok(fs.attributes(inode).map_err(|error| of_file(error, &path))?.into())
    }

    /// Whether the path leads to something.
    fn exists(&self, path: OsString) -> PyResult<bool> {
        let fs = self.fs()?;
        Ok(!path.is_empty() && follow(&*fs, path.as_bytes()).is_ok())
    }

    /// Content of a file: `size` bytes from `offset` on, or all.
    #[pyo3(
        signature = (path, *, offset=Whole::ZERO, size=None),
        text_signature = "($self, path, *, offset=0, size=None)"
    )]
    fn read<'py>(
        &self,
        py: Python<'py>,
        path: OsString,
        offset: Whole,
        size: Option<Whole>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let offset = offset.within("offset", 0..=u64::MAX)?;
        let size = size.map_or(Ok(u64::MAX), |size| size.within("size", 0..=u64::MAX))?;
        let (fs, inode) = self.find(&path, true)?;
        let bytes = detached(py, || read_at(&*fs, inode, offset, size))?;
        Ok(PyBytes::new(py, &bytes.map_err(|error| of_file(error, &path))?))
    }

    /// Target of a symbolic link.
    fn readlink(&self, path: OsString) -> PyResult<OsString> {
        let (fs, inode) = self.find(&path, false)?;
        let failed = |error| of_file(error, &path);
        if fs.attributes(inode).map_err(failed)?.kind != FileKind::Symlink {
            return Err(PyOSError::new_err((22, "not a symbolic link", path)));
        }
        Ok(OsString::from_vec(read_at(&*fs, inode, 0, 4096).map_err(failed)?))
    }

    /// Names of a file's extended attributes.
    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn listxattr(&self, path: OsString, follow_symlinks: bool) -> PyResult<Vec<OsString>> {
        let (fs, inode) = self.find(&path, follow_symlinks)?;
        let mut names = Vec::new();
        fs.list_xattrs(inode, &mut |name| names.push(OsString::from_vec(name.to_vec())))
            .map_err(|error| of_file(error, &path))?;
        Ok(names)
    }

    /// The value of an extended attribute.
    #[pyo3(signature = (path, attribute, *, follow_symlinks=true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: OsString,
        attribute: OsString,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (fs, inode) = self.find(&path, follow_symlinks)?;
        let mut value = vec![0; XATTR_MAX];
        let len = fs
            .read_xattr(inode, attribute.as_bytes(), &mut value)
            .map_err(|error| of_file(error, &path))?;
        Ok(PyBytes::new(py, &value[..len]))
    }

    /// Extracts everything into `directory`, which is created or must be empty (else
    /// FileExistsError). A volume without a file system becomes a new file with that path. Owners
    /// and device nodes need permissions; the result tells what was left out. `threads` is at most
    /// 1024; 0 means one per processor.
    #[pyo3(
        signature = (directory, *, keep_damaged=false, threads=Whole::ZERO),
        text_signature = "($self, directory, *, keep_damaged=False, threads=0)"
    )]
    fn extract(
        &self,
        py: Python<'_>,
        directory: HostPath,
        keep_damaged: bool,
        threads: Whole,
    ) -> PyResult<Extraction> {
        use flysch_image::Contents;
        let threads = threads.within("threads", 0..=THREADS_MAX)?.into();
        let (options, HostPath(directory)) = (ExtractOptions { threads, keep_damaged }, directory);
        let volume = self.found()?;
        let done = detached(py, || match (&volume.contents, volume.file_system()) {
            (_, Some(fs)) => extract(&*fs, &directory, &options, &Progress::default()),
            (Contents::Raw(flash) | Contents::Broken(flash, _), None) => {
                extract_raw(flash, &directory, &options, &Progress::default())
            }
            _ => unreachable!("UBIFS and JFFS2 are file systems"),
        })?;
        let done = done.map_err(|error| of_system(&error, &directory))?;
        let failures = done.failures.into_iter();
        Ok(Extraction {
            files: done.files,
            bytes: done.bytes,
            failures: failures.map(|f| (OsString::from_vec(f.path), f.cause)).collect(),
            without_owner: done.without_owner,
            without_device: done.without_device,
            without_xattr: done.without_xattr,
        })
    }

    fn __repr__(&self) -> String {
        match self.found() {
            Ok(volume) => format!("<flysch.Volume {:?}: {}>", volume.name, volume.format()),
            Err(_) => "<flysch.Volume of a closed image>".to_owned(),
        }
    }
}
