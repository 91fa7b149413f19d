//! Extraction: a file system's tree as a tree of real files.
//!
//! Theory. Nothing in an image is trusted. Every file is created by a call with a single name,
//! relative to an open directory that we created ourselves; it fails if the name exists, and
//! follows no link. So no place outside the directory can be reached, whatever names and links the
//! image contains. Directories are created with mode 0700 and get their own attributes when
//! everything in them is done. Several threads work; each handles what it found last first, so that
//! few directories are open at a time.
//!
//! Most of the time for a tree of small files is spent in the kernel, so files are created with as
//! few calls as possible: with their mode from the start, and without setting an owner if the
//! result is the same ([`Habits`]).

mod attributes;
mod file;
mod habits;
mod links;
mod queue;

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flysch_api::flash::Flash;
use flysch_api::vfs::{FileKind, FileSystem, FsError, Inode};
use flysch_files::NewFile;
use rustix::fs::{Mode, OFlags};

use crate::open::SharedFlash;
use crate::tree::{Child, DEPTH_MAX, attributes_lost, children};
use habits::Habits;
use links::Links;
use queue::Queue;

/// How to extract.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExtractOptions {
    /// Threads; 0 means one per processor.
    pub threads: usize,
    /// Keep the readable parts of damaged files, with zeros in place of the rest.
    pub keep_damaged: bool,
}

/// The progress of an extraction. Shared with whoever displays it.
#[derive(Debug, Default)]
pub struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// Files, directories and others created so far.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Bytes of the content of regular files so far, holes included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A file that could not be extracted, or only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its path in the file system, without a leading '/'.
    pub path: Vec<u8>,
    /// The cause.
    pub cause: String,
    /// It was extracted, as far as it could be read; otherwise it is not there.
    pub is_partial: bool,
}

/// The result of an extraction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extraction {
    /// Files, directories and others that were created.
    pub files: u64,
    /// Bytes of the content of regular files, holes included; a file with several names counts
    /// once. As many as [`Tree::bytes`](crate::create::Tree::bytes) of the same files.
    pub bytes: u64,
    /// What could not be extracted, by path.
    pub failures: Vec<Failure>,
    /// Files whose owner could not be set, for lack of rights.
    pub without_owner: u64,
    /// Files without their set-user-id and set-group-id bits, because they lack their owner.
    pub without_set_id: u64,
    /// Device nodes that could not be made, for lack of rights.
    pub without_device: u64,
    /// Extended attributes that could not be set, for lack of rights or because the file system of
    /// the directory has none.
    pub without_xattr: u64,
}

/// Extracts the tree of `fs` into `directory`, which is created or must be empty.
///
/// # Errors
/// The directory cannot be created or is not empty. Errors inside it are in the result.
pub fn extract(
    fs: &(dyn FileSystem + Sync),
    directory: &Path,
    options: &ExtractOptions,
    progress: &Progress,
) -> io::Result<Extraction> {
    let root = make_root(directory)?;
    raise_file_limit();
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, |count| count.get().min(16)),
        threads => threads,
    };
    let run = Run {
        fs,
        options: *options,
        threads,
        progress,
        queue: Queue::new(threads),
        habits: Habits::of(&root),
        root: rustix::io::dup(&root)?,
        links: Links::default(),
        entered: Mutex::default(),
        report: Mutex::default(),
    };
    let start = Arc::new(Directory {
        inode: fs.statistics().root,
        handle: root,
        name: vec![],
        parent: None,
        level: 0,
        pending: AtomicU64::new(1),
    });
    run.entered().insert(start.inode);
    run.queue.push(0, [Job::Enter(start)]);
    std::thread::scope(|scope| {
        for number in 1..threads {
            let run = &run;
            scope.spawn(move || run.work(number));
        }
        run.work(0);
    });
    let mut extraction = run.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    extraction.files = progress.files();
    extraction.bytes = progress.bytes();
    extraction.failures.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(extraction)
}

/// Writes the content of a volume without a file system to the new file `path`. Unreadable parts
/// are listed in the result, without a path; then there is no file, unless damaged files are to be
/// kept.
///
/// # Errors
/// The file cannot be created or written.
pub fn extract_raw(
    flash: &SharedFlash,
    path: &Path,
    options: &ExtractOptions,
    progress: &Progress,
) -> io::Result<Extraction> {
    let new = NewFile::create(path)?;
    let damage = copy_raw(flash, &mut new.file(), options, progress)?;
    let is_kept = damage.is_none() || options.keep_damaged;
    if is_kept {
        new.keep_new()?;
    }
    let damage = damage.map(|cause| Failure { path: vec![], cause, is_partial: is_kept });
    progress.files.fetch_add(u64::from(is_kept), Ordering::Relaxed);
    Ok(Extraction {
        files: u64::from(is_kept),
        bytes: if is_kept { progress.bytes() } else { 0 },
        failures: damage.into_iter().collect(),
        ..Extraction::default()
    })
}

/// Copies everything readable of `flash`; returns what was unreadable.
fn copy_raw(
    flash: &SharedFlash,
    file: &mut impl io::Write,
    options: &ExtractOptions,
    progress: &Progress,
) -> io::Result<Option<String>> {
    let size = flash.geometry().size;
    let mut buffer = vec![0; 1 << 20];
    let mut damage = None;
    let mut at = 0;
    while at < size {
        let len = buffer.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
        if let Err(error) = flash.read(at, &mut buffer[..len]) {
            damage.get_or_insert_with(|| error.to_string());
            // With bit errors the bytes are there as they were read.
            let is_there = matches!(error, flysch_api::flash::FlashError::Uncorrectable { .. });
            if !(is_there && options.keep_damaged) {
                break;
            }
        }
        file.write_all(&buffer[..len])?;
        at += len as u64;
        progress.bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
    Ok(damage)
}

/// Creates the directory, or uses it if it is empty.
fn make_root(directory: &Path) -> io::Result<OwnedFd> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if std::fs::read_dir(directory)?.next().is_some() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the directory is not empty"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::empty())?)
}

/// Deep trees keep many directories open.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It only matters for deep trees, which then fail where they reach the limit.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// A directory that has been created and is being filled.
#[derive(Debug)]
struct Directory {
    inode: Inode,
    handle: OwnedFd,
    name: Vec<u8>,
    parent: Option<Arc<Directory>>,
    level: usize,
    /// Unfinished work in it; the thread that does the last of it finishes the directory.
    pending: AtomicU64,
}

impl Directory {
    /// Path from the root of the extraction.
    fn path(&self) -> Vec<u8> {
        let mut path = self.parent.as_ref().map_or_else(Vec::new, |parent| parent.path());
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&self.name);
        path
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

/// A unit of work.
enum Job {
    /// List a directory and create work for its entries.
    Enter(Arc<Directory>),
    /// Create some of the entries of a directory.
    Make(Arc<Directory>, Vec<Child>),
}

/// The private state of one thread.
struct Worker {
    number: usize,
    /// Content being copied.
    buffer: Vec<u8>,
}

/// Maximum number of entries in one unit of work.
const ENTRIES_AT_ONCE: usize = 16;
/// Minimum number of units per thread for a directory's work: its files may be large.
const SHARES: usize = 4;

/// One extraction in progress.
struct Run<'r> {
    fs: &'r (dyn FileSystem + Sync),
    options: ExtractOptions,
    threads: usize,
    progress: &'r Progress,
    queue: Queue<Job>,
    habits: Habits,
    root: OwnedFd,
    links: Links,
    /// Directories that were entered: one that is found again is a loop, or has two names.
    entered: Mutex<HashSet<Inode>>,
    report: Mutex<Extraction>,
}

impl Run<'_> {
    fn entered(&self) -> std::sync::MutexGuard<'_, HashSet<Inode>> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, change: impl FnOnce(&mut Extraction)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A file or directory is there, and something of it is missing.
    fn lacks(&self, path: Vec<u8>, cause: impl ToString) {
        self.fault(path, cause, true);
    }

    /// A file or directory is not there.
    fn fail(&self, path: Vec<u8>, cause: impl ToString) {
        self.fault(path, cause, false);
    }

    fn fault(&self, path: Vec<u8>, cause: impl ToString, is_partial: bool) {
        let failure = Failure { path, cause: cause.to_string(), is_partial };
        self.report(|report| report.failures.push(failure));
    }

    fn work(&self, number: usize) {
        let mut worker = Worker { number, buffer: vec![] };
        while let Some(job) = self.queue.take(number) {
            match job {
                Job::Enter(directory) => self.enter(&directory, number),
                Job::Make(directory, entries) => {
                    for child in &entries {
                        self.make(&directory, child, &mut worker);
                    }
                    self.done(&directory);
                }
            }
            self.queue.done();
        }
    }

    fn enter(&self, directory: &Arc<Directory>, worker: usize) {
        let (mut entries, result) = children(self.fs, directory.inode);
        if let Err(error) = result {
            self.lacks(directory.path(), error);
        }
        // Files mostly lie in the image in the order in which their inodes were made.
        entries.sort_unstable_by_key(|child| child.inode);
        let at_once = (entries.len() / (SHARES * self.threads)).clamp(1, ENTRIES_AT_ONCE);
        let jobs = entries.chunks(at_once).rev();
        directory.pending.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        self.queue.push(worker, jobs.map(|it| Job::Make(directory.clone(), it.to_vec())));
        self.done(directory);
    }

    /// A unit of work in `directory` is done: finishes the directory after the last one, and so on
    /// upwards.
    fn done(&self, directory: &Arc<Directory>) {
        let mut directory = directory.clone();
        while directory.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish_directory(&directory);
            let Some(parent) = directory.parent.clone() else { return };
            directory = parent;
        }
    }

    fn finish_directory(&self, directory: &Directory) {
        match (self.fs.attributes(directory.inode), attributes_lost(self.fs, directory.inode)) {
            (Ok(attributes), None) => {
                self.restore_open(&directory.handle, &attributes, &directory.path());
            }
            (_, Some(error)) | (Err(error), None) => {
                // Nobody knows for whom it was: the one who extracts may decide.
                let closed = rustix::fs::fchmod(&directory.handle, Mode::RWXU);
                let cause = closed.map_or_else(Cause::System, |()| Cause::Attributes(error));
                self.lacks(directory.path(), cause);
            }
        }
        self.progress.files.fetch_add(1, Ordering::Relaxed);
    }

    fn make(&self, directory: &Arc<Directory>, child: &Child, worker: &mut Worker) {
        let is_name = !matches!(&child.name[..], b"" | b"." | b"..")
            && !child.name.iter().any(|byte| matches!(byte, b'/' | 0));
        if !is_name {
            self.fail(directory.path_of(&child.name), "no file can have this name");
            return;
        }
        let made = match child.kind {
            FileKind::Directory => self.make_directory(directory, child, worker.number),
            _ => self.make_other(directory, child, &mut worker.buffer),
        };
        match made {
            Ok(()) => {}
            // Written nevertheless: damaged files are kept.
            Err(cause @ Cause::Hole { .. }) => self.lacks(directory.path_of(&child.name), cause),
            Err(cause) => self.fail(directory.path_of(&child.name), cause),
        }
    }

    fn make_directory(
        &self,
        parent: &Arc<Directory>,
        child: &Child,
        worker: usize,
    ) -> Result<(), Cause> {
        if parent.level >= DEPTH_MAX {
            return Err(Cause::TooDeep);
        }
        if !self.entered().insert(child.inode) {
            return Err(Cause::DirectoryTwice);
        }
        let attributes = self.fs.attributes(child.inode)?;
        if attributes.kind != FileKind::Directory {
            return Err(Cause::Kind);
        }
        rustix::fs::mkdirat(&parent.handle, &child.name[..], Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&parent.handle, &child.name[..], flags, Mode::empty())?;
        parent.pending.fetch_add(1, Ordering::Relaxed);
        let directory = Directory {
            inode: child.inode,
            handle,
            name: child.name.clone(),
            parent: Some(parent.clone()),
            level: parent.level + 1,
            pending: AtomicU64::new(1),
        };
        self.queue.push(worker, [Job::Enter(Arc::new(directory))]);
        Ok(())
    }
}

/// Why a file was not extracted.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("{0}")]
    Image(#[from] FsError),
    #[error("{0}")]
    System(#[from] rustix::io::Errno),
    #[error("deeper than {DEPTH_MAX} directories")]
    TooDeep,
    #[error("the directory has another name already")]
    DirectoryTwice,
    #[error("the directory entry names a different kind than the inode")]
    Kind,
    #[error("its owner, permissions and times are lost: {0}")]
    Attributes(FsError),
    #[error("{error}; bytes {start} to {end} are lost")]
    Hole { error: FsError, start: u64, end: u64 },
}

#[cfg(test)]
mod tests;
