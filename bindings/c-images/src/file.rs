//! Files of a volume.

use std::ffi::{CString, c_void};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use flysch_api::vfs::{self, FileKind, Inode};
use flysch_files::NewFile;
use flysch_image::{Node, PathError, SharedFileSystem, follow, resolve, walk};

use crate::border::{bytes, guarded, named, null, path, room, told};
use crate::error::{ImageError, ImageStatus, Outcome};
use crate::image::{Image, numbered};
use crate::values::{Buffer, Bytes, Entry, Stat, Visit};

/// Bytes of a file that are extracted in one step.
const CHUNK: usize = 1 << 20;

/// A file, directory or other object to which a path led.
pub struct File {
    fs: SharedFileSystem,
    inode: Inode,
    /// The path as the caller gave it, for messages.
    path: Vec<u8>,
    /// Keeps what the file system reads from.
    _image: Arc<flysch_image::Image>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("inode", &self.inode).finish_non_exhaustive()
    }
}

impl File {
    fn open(
        image: &Image,
        volume: usize,
        path: &[u8],
        find: fn(&dyn vfs::FileSystem, &[u8]) -> Result<Inode, PathError>,
    ) -> Outcome<Self> {
        let found = numbered(image, volume)?;
        let fs = found.file_system().ok_or_else(|| {
            let why = image.failure_of(volume).unwrap_or("there is no file system in it");
            let object = format_args!("volume {}", found.name);
            ImageError::about(ImageStatus::NoFileSystem, object, why)
        })?;
        if path.is_empty() {
            return Err(ImageError::new(ImageStatus::NotFound, "the path is empty"));
        }
        let inode = find(&*fs, path).map_err(|error| ImageError::of_path(&error))?;
        Ok(Self { fs, inode, path: path.to_vec(), _image: image.opened.clone() })
    }

    fn failed(&self, error: vfs::FsError) -> Box<ImageError> {
        ImageError::of_file(&self.path, error)
    }

    fn attributes(&self) -> Outcome<vfs::Attributes> {
        self.fs.attributes(self.inode).map_err(|error| self.failed(error))
    }

    fn of_kind(&self, kind: FileKind, what: &str) -> Outcome<vfs::Attributes> {
        let attributes = self.attributes()?;
        if attributes.kind == kind {
            return Ok(attributes);
        }
        let status = match attributes.kind {
            FileKind::Directory => ImageStatus::IsDirectory,
            _ => ImageStatus::Kind,
        };
        let path = self.path.escape_ascii();
        Err(ImageError::about(status, path, format_args!("it is no {what}")))
    }

    /// Fills `buffer` from `offset` on, or only up to the end of the file; returns how much.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Outcome<usize> {
        let mut done = 0;
        loop {
            let at = offset.saturating_add(done as u64);
            match self.fs.read(self.inode, at, &mut buffer[done..]) {
                Ok(0) => return Ok(done),
                Ok(read) => done += read,
                // What was read before the damage is returned; the next call meets the damage.
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(self.failed(error)),
            }
            if done == buffer.len() {
                return Ok(done);
            }
        }
    }

    /// Lists the names of a directory.
    fn list(&self, tell: &mut dyn FnMut(&Entry) -> bool) -> Outcome<()> {
        let mut goes_on = true;
        let listed = self.fs.list(self.inode, 0, &mut |found| {
            let (name, kind) = (Bytes::of(found.name), found.kind.mode_bits());
            let (inode, stat, problem) = (found.inode.0, std::ptr::null(), std::ptr::null());
            goes_on = tell(&Entry { name, inode, kind, stat, problem });
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if !goes_on {
            return Err(self.stopped());
        }
        listed.map_err(|error| self.failed(error))
    }

    fn stopped(&self) -> Box<ImageError> {
        let path = self.path.escape_ascii();
        ImageError::about(ImageStatus::Stopped, path, "stopped by the caller")
    }

    /// Visits everything below it.
    fn walk(&self, tell: &mut dyn FnMut(&Entry) -> bool) -> Outcome<()> {
        walk(&*self.fs, self.inode, usize::MAX, &mut |met| {
            if tell_of(&met, tell) { Ok(()) } else { Err(self.stopped()) }
        })
    }

    /// Writes its content to a new file at `to`, which appears whole or not at all.
    fn extract(&self, to: &[u8]) -> Outcome<u64> {
        let size = self.of_kind(FileKind::Regular, "regular file")?.size;
        let failed = |error: std::io::Error| ImageError::of_system(path(to).display(), &error);
        let new = NewFile::create(path(to)).map_err(failed)?;
        let mut file = new.file();
        let mut buffer = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK)).max(1)];
        let mut offset = 0;
        while offset < size {
            let read = self.read(offset, &mut buffer)?;
            if read == 0 {
                break;
            }
            file.write_all(&buffer[..read]).map_err(failed)?;
            offset += read as u64;
        }
        new.keep().map_err(failed)?;
        Ok(offset)
    }
}

/// Visits one file of a walk, or a directory that could not be read to its end.
fn tell_of(
    met: &Result<Node<'_>, (&[u8], vfs::FsError)>,
    tell: &mut dyn FnMut(&Entry) -> bool,
) -> bool {
    let words = |error: &vfs::FsError| CString::new(error.to_string()).unwrap_or_default();
    let problem = match met {
        Ok(node) => node.attributes.as_ref().err().map(words),
        Err((_, error)) => Some(words(error)),
    };
    let problem = problem.as_ref().map_or(std::ptr::null(), |words| words.as_ptr());
    let (name, inode, kind, stat) = match met {
        Ok(node) => {
            let stat = node.attributes.as_ref().ok().map(Stat::from);
            (node.path, node.inode.0, node.kind, stat)
        }
        Err((path, _)) => (*path, 0, FileKind::Directory, None),
    };
    let stat = stat.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    tell(&Entry { name: Bytes::of(name), inode, kind: kind.mode_bits(), stat, problem })
}

/// # Safety
/// The pointers are NULL or as the header says.
unsafe fn opened(
    image: *const Image,
    volume: usize,
    path: Bytes,
    find: fn(&dyn vfs::FileSystem, &[u8]) -> Result<Inode, PathError>,
) -> Outcome<*mut File> {
    // SAFETY: the caller's promise.
    let (image, path) = unsafe { (named(image, "the image")?, bytes(path, "the path")?) };
    Ok(Box::into_raw(Box::new(File::open(image, volume, path, find)?)))
}

/// Opens the file to which a path in a volume leads; symbolic links are followed within the image.
/// NULL if it leads nowhere, as an empty one does. Close the file with flysch_file_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_open(
    image: *const Image,
    volume: usize,
    path: Bytes,
    error: *mut ImageError,
) -> *mut File {
    // SAFETY: NULL or room for an error; the rest as the header says.
    unsafe { guarded(error, std::ptr::null_mut(), || opened(image, volume, path, follow)) }
}

/// The same, except that a symbolic link at the end is itself opened instead of followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_open_link(
    image: *const Image,
    volume: usize,
    path: Bytes,
    error: *mut ImageError,
) -> *mut File {
    // SAFETY: as above.
    unsafe { guarded(error, std::ptr::null_mut(), || opened(image, volume, path, resolve)) }
}

/// Closes a file, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_close(file: *mut File) {
    if !file.is_null() {
        // SAFETY: an open returned it, and it is no longer used, as the header says.
        drop(unsafe { Box::from_raw(file) });
    }
}

/// Writes the attributes of the file to `stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_stat(
    file: *const File,
    stat: *mut Stat,
    error: *mut ImageError,
) -> ImageStatus {
    let work = || {
        // SAFETY: NULL or a file of ours.
        let told = Stat::from(&unsafe { named(file, "the file") }?.attributes()?);
        if stat.is_null() {
            return Err(null("the stat"));
        }
        // SAFETY: there is room for one.
        unsafe { stat.write(told) }
        Ok(())
    };
    // SAFETY: NULL or room for an error.
    unsafe { told(error, work) }
}

/// Reads content from `offset` on. Returns the number of bytes: fewer than there is room for only
/// at the end and before damage, 0 after the end; or a negative enum flysch_image_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_read(
    file: *const File,
    offset: u64,
    buffer: Buffer,
    error: *mut ImageError,
) -> i64 {
    let work = || {
        // SAFETY: NULL or as the header says.
        let (file, buffer) = unsafe { (named(file, "the file")?, room(buffer, "the buffer")?) };
        file.of_kind(FileKind::Regular, "regular file")?;
        file.read(offset, buffer)
    };
    // SAFETY: NULL or room for an error.
    unsafe { counted(error, work) }
}

/// Reads the target of a symbolic link that flysch_file_open_link opened. Returns its number of
/// bytes, which no zero follows, or a negative enum flysch_image_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_link(
    file: *const File,
    buffer: Buffer,
    error: *mut ImageError,
) -> i64 {
    let work = || {
        // SAFETY: NULL or as the header says.
        let (file, buffer) = unsafe { (named(file, "the file")?, room(buffer, "the buffer")?) };
        let size = file.of_kind(FileKind::Symlink, "symbolic link")?.size;
        if size > buffer.len() as u64 {
            let need = usize::try_from(size).unwrap_or(usize::MAX);
            return Err(file.failed(vfs::FsError::BufferTooSmall(need)));
        }
        file.read(0, buffer)
    };
    // SAFETY: NULL or room for an error.
    unsafe { counted(error, work) }
}

/// Visits the names of the extended attributes, such as `user.comment`, one by one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_xattrs(
    file: *const File,
    visit: Visit,
    context: *mut c_void,
    error: *mut ImageError,
) -> ImageStatus {
    let work = || {
        // SAFETY: NULL or a file of ours.
        let file = unsafe { named(file, "the file") }?;
        let visit = visit.ok_or_else(|| null("visit"))?;
        let mut goes_on = true;
        let listed = file.fs.list_xattrs(file.inode, &mut |name| {
            let (stat, problem) = (std::ptr::null(), std::ptr::null());
            let entry =
                Entry { name: Bytes::of(name), inode: file.inode.0, kind: 0, stat, problem };
            // SAFETY: the function's contract; the entry outlives the call.
            goes_on = goes_on && unsafe { visit(context, &raw const entry) };
        });
        listed.map_err(|error| file.failed(error))?;
        if goes_on { Ok(()) } else { Err(file.stopped()) }
    };
    // SAFETY: NULL or room for an error.
    unsafe { told(error, work) }
}

/// Reads the value of an extended attribute. Returns its number of bytes, or a negative enum
/// flysch_image_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_xattr(
    file: *const File,
    name: Bytes,
    buffer: Buffer,
    error: *mut ImageError,
) -> i64 {
    let work = || {
        // SAFETY: NULL or as the header says.
        let (file, name) = unsafe { (named(file, "the file")?, bytes(name, "the name")?) };
        // SAFETY: as above.
        let buffer = unsafe { room(buffer, "the buffer") }?;
        let read = file.fs.read_xattr(file.inode, name, buffer);
        read.map_err(|error| file.failed(error))
    };
    // SAFETY: NULL or room for an error.
    unsafe { counted(error, work) }
}

/// Visits the names in a directory, one by one, in no particular order. If some cannot be read, the
/// others are visited before it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_list(
    file: *const File,
    visit: Visit,
    context: *mut c_void,
    error: *mut ImageError,
) -> ImageStatus {
    let work = || {
        let visit = visit.ok_or_else(|| null("visit"))?;
        // SAFETY: the function's contract; the entry outlives the call.
        let mut tell = |entry: &Entry| unsafe { visit(context, entry) };
        // SAFETY: NULL or a file of ours.
        unsafe { named(file, "the file") }?.list(&mut tell)
    };
    // SAFETY: NULL or room for an error.
    unsafe { told(error, work) }
}

/// Visits a file and everything below it: directories before their contents, names in order,
/// without following links. What cannot be read, and directories below 1024 others, which are not
/// entered, are reported and do not end the walk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_walk(
    file: *const File,
    visit: Visit,
    context: *mut c_void,
    error: *mut ImageError,
) -> ImageStatus {
    let work = || {
        let visit = visit.ok_or_else(|| null("visit"))?;
        // SAFETY: the function's contract; the entry outlives the call.
        let mut tell = |entry: &Entry| unsafe { visit(context, entry) };
        // SAFETY: NULL or a file of ours.
        unsafe { named(file, "the file") }?.walk(&mut tell)
    };
    // SAFETY: NULL or room for an error.
    unsafe { told(error, work) }
}

/// Writes the content of a regular file to the file `to` of this machine, which is then complete or
/// unchanged. Returns the number of bytes, or a negative enum flysch_image_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_file_extract(
    file: *const File,
    to: Bytes,
    error: *mut ImageError,
) -> i64 {
    let work = || {
        // SAFETY: NULL or as the header says.
        let (file, to) = unsafe { (named(file, "the file")?, bytes(to, "the path")?) };
        Ok(usize::try_from(file.extract(to)?).unwrap_or(usize::MAX))
    };
    // SAFETY: NULL or room for an error.
    unsafe { counted(error, work) }
}

/// For functions that return a count or a negative status.
///
/// # Safety
/// `place` is NULL or may be written.
unsafe fn counted(place: *mut ImageError, work: impl FnOnce() -> Outcome<usize>) -> i64 {
    let mut count = 0;
    let counter = &mut count;
    let work = || {
        *counter = work()?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    match unsafe { told(place, work) } {
        ImageStatus::Ok => i64::try_from(count).unwrap_or(i64::MAX),
        status => status as i64,
    }
}
