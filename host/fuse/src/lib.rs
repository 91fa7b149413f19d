//! Any file system as a FUSE mount.
//!
//! `Door` translates the kernel's requests: inode numbers, attributes, error numbers. Nothing ever
//! changes behind the mount's back, so the kernel may cache names, attributes and pages
//! indefinitely, and does not ask again. Several threads answer requests.
//!
//! A writable mount passes every change on at once. It is on the medium after `fsync`, a moment
//! after the last change, after five seconds, or when the mount ends; at once if a flag of the file
//! or the mount requires it.
//!
//! [`Mounted`] ends in one of three ways: somebody unmounts it, a signal requests it, or a request
//! handler panics. In each case it is gone from the directory tree when [`Mounted::wait`] returns.
#![deny(missing_docs)]

mod acl;
mod change;
pub mod disks;
mod door;
mod errno;
mod signal;
mod store;
mod wanted;
mod xattr;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flysch_api::vfs::FileSystem;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};

use crate::door::Door;
use crate::store::Store;

pub use crate::store::Shared;

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct FuseOptions {
    /// The source shown by `mount` and `df`.
    pub source: String,
    /// Threads that answer the kernel; 0 means one per processor, but at least two.
    pub threads: usize,
    /// Honour device nodes and set-user-id bits in the image. They are ignored otherwise, because
    /// the author of an image should not gain rights by it.
    pub trusted: bool,
    /// Every change is on the medium when its call returns (`mount -o sync`).
    pub write_through: bool,
}

/// A mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    unmounter: SessionUnmounter,
    session: Option<JoinHandle<io::Result<()>>>,
    /// What to sync at the end.
    store: Option<Store>,
    /// Writes back from time to time until the sender is dropped.
    write_back: Option<WriteBack>,
    /// Readable when the mount should end or has ended.
    wake: io::PipeReader,
    waker: io::PipeWriter,
}

/// Why a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody unmounted it.
    Unmounted,
    /// A signal or another request ended it, such as Ctrl-C.
    Signal,
    /// A request handler panicked.
    Panic,
}

/// How long an unmount waits for users of the mount.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between checks.
const TICK: Duration = Duration::from_millis(2);

/// The messages in the pipe.
const SIGNAL: u8 = b's';
const SESSION_ENDED: u8 = b'e';
const PANIC: u8 = b'p';

/// Mounts `fs` read-only on the directory `at`: for everybody if run by root, otherwise through
/// fusermount3 for the user alone.
///
/// # Errors
/// The kernel or fusermount3 refuses.
pub fn mount(
    fs: Arc<dyn FileSystem + Send + Sync>,
    at: &Path,
    options: &FuseOptions,
) -> io::Result<Mounted> {
    start(Store::Fixed(fs), at, options)
}

/// Mounts `fs` like [`mount`], for reading and writing.
///
/// When the mount has ended, everything is synced; closing the file system remains the caller's
/// task.
///
/// # Errors
/// As [`mount`].
pub fn mount_read_write(fs: Shared, at: &Path, options: &FuseOptions) -> io::Result<Mounted> {
    start(Store::changing(fs, options.write_through), at, options)
}

/// The full path of `at`, if a file system can be mounted there.
///
/// # Errors
/// It does not exist, or is not a directory: Linux would let a file system hide a file.
pub fn mount_point(at: &Path) -> io::Result<PathBuf> {
    let path = at.canonicalize()?;
    match path.is_dir() {
        true => Ok(path),
        false => {
            let why = "is not a directory, and a file system needs a directory to be mounted on";
            Err(io::Error::new(io::ErrorKind::NotADirectory, why))
        }
    }
}

fn start(store: Store, at: &Path, options: &FuseOptions) -> io::Result<Mounted> {
    let format = store.read(|fs| fs.statistics().format);
    let is_checked = rustix::process::geteuid().is_root();
    let door = |waker| Ok(Door::new(store.clone(), is_checked, waker));
    start_session(at, options, Some(&store), format, door)
}

/// Mounts the file system made by `door`; `store` is what is behind it, if it is a file system.
fn start_session<D: fuser::Filesystem + Send + Sync + 'static>(
    at: &Path,
    options: &FuseOptions,
    store: Option<&Store>,
    format: &str,
    door: impl FnOnce(io::PipeWriter) -> io::Result<D>,
) -> io::Result<Mounted> {
    let path = mount_point(at)?;
    let is_root = rustix::process::geteuid().is_root();
    let (wake, waker) = io::pipe()?;
    let door = door(waker.try_clone()?)?;
    let config = config(options, store.is_some_and(Store::is_fixed), format, is_root);
    let mut session = Session::new(door, &path, &config).map_err(|error| {
        io::Error::new(error.kind(), format!("FUSE: {error}{}", remedy(&error, is_root)))
    })?;
    let unmounter = session.unmount_callable();
    let mut at_end = waker.try_clone()?;
    let session = std::thread::Builder::new().name("fuse".into()).spawn(move || {
        let result = session.run();
        let _ = at_end.write_all(&[SESSION_ENDED]);
        result
    })?;
    let changing = store.filter(|store| !store.is_fixed());
    let write_back = changing.map(start_write_back).transpose()?;
    let store = store.cloned();
    Ok(Mounted { path, unmounter, session: Some(session), store, write_back, wake, waker })
}

type WriteBack = (Sender<()>, JoinHandle<io::Result<()>>);

fn start_write_back(store: &Store) -> io::Result<WriteBack> {
    let (sender, stop) = std::sync::mpsc::channel();
    let store = store.clone();
    let thread = std::thread::Builder::new().name("write-back".into());
    Ok((sender, thread.spawn(move || store.write_back(&stop))?))
}

/// What to do about a refused mount.
fn remedy(error: &io::Error, is_root: bool) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied if !is_root => {
            "; /dev/fuse must be open to you (mode 666) and the directory yours"
        }
        io::ErrorKind::NotFound if !is_root => {
            "; without root, fusermount3 must be installed (package fuse3)"
        }
        io::ErrorKind::NotFound => "; is the kernel's FUSE loaded (modprobe fuse)?",
        _ => "",
    }
}

fn config(options: &FuseOptions, is_fixed: bool, format: &str, is_root: bool) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.replace(',', "_")),
        // Passed on to the kernel as it is; `Subtype` would only reach fusermount3.
        MountOption::CUSTOM(format!("subtype={format}")),
        MountOption::NoAtime,
    ];
    if is_fixed {
        config.mount_options.push(MountOption::RO);
    }
    if !options.trusted {
        config.mount_options.extend([MountOption::NoDev, MountOption::NoSuid]);
    }
    if is_root {
        // As the kernel's own file systems: open to everybody, permissions checked.
        config.mount_options.push(MountOption::DefaultPermissions);
        config.acl = SessionACL::All;
    }
    let processors =
        std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 8));
    config.n_threads = Some(if options.threads == 0 { processors } else { options.threads });
    config.clone_fd = is_root;
    config
}

impl Mounted {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes SIGINT, SIGTERM and SIGHUP of this process end the mount instead of the process. Only
    /// one mount of a process can use them.
    ///
    /// # Errors
    /// Another mount uses them, or the system refuses.
    pub fn end_on_signals(&self) -> io::Result<()> {
        signal::write_on_signals(self.waker.try_clone()?)
    }

    /// A handle that ends the mount from another thread.
    ///
    /// # Errors
    /// The system refuses.
    pub fn ender(&self) -> io::Result<disks::Ender> {
        self.waker.try_clone().map(disks::Ender)
    }

    /// Waits until the mount ends, and ends it properly.
    ///
    /// # Errors
    /// It could not be unmounted, or the connection to the kernel failed.
    pub fn wait(mut self) -> io::Result<Ended> {
        let mut reason = [0];
        loop {
            match self.wake.read_exact(&mut reason) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        let ended = match reason[0] {
            SIGNAL => Ended::Signal,
            PANIC => Ended::Panic,
            _ => Ended::Unmounted,
        };
        self.finish()?;
        Ok(ended)
    }

    /// Unmounts.
    ///
    /// # Errors
    /// It cannot be unmounted.
    pub fn unmount(mut self) -> io::Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> io::Result<()> {
        let ended = self.end_session();
        let written = self.write_back.take().map_or(Ok(()), |(sender, thread)| {
            drop(sender);
            thread.join().unwrap_or_else(|_| Err(io::Error::other("write-back failed")))
        });
        let synced = self.store.as_ref().map_or(Ok(()), Store::sync);
        ended.and(written).and(synced)
    }

    fn end_session(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        if !session.is_finished() {
            // Detached even if somebody is still in it: nobody else can enter, and it is gone when
            // they leave. Without the right to, fusermount3 does the same.
            let flags = rustix::mount::UnmountFlags::DETACH;
            match rustix::mount::unmount(&self.path, flags) {
                Ok(()) => {}
                Err(rustix::io::Errno::PERM) => self.unmounter.unmount()?,
                Err(rustix::io::Errno::INVAL) => {} // unmounted by somebody else
                Err(error) => return Err(error.into()),
            }
        }
        // Somebody may still be in it and stay there; waiting for them could take forever.
        let deadline = Instant::now() + PATIENCE;
        while !session.is_finished() {
            if Instant::now() > deadline {
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
        session.join().unwrap_or(Ok(()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = self.finish();
    }
}
