//! `geom mount`: every provider as a file.
//!
//! One thread owns the graph. Requests from the kernel and commands from the socket are orders to
//! that thread, executed one after the other: a file that is closed is tasted before the next order
//! is answered.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flysch_api::block;
use flysch_files::SocketFile;
use flysch_fuse::disks::{Disks, Ender, Entry, EntryKind, Job, Sender, Wanted, Which, mount_disks};
use flysch_fuse::{Ended, FuseOptions, Mounted};
use flysch_geom::class::gate;
use flysch_geom::{Access, ConsumerId, GeomError, Io, Kind, Provider, ProviderId};
use rustix::io::Errno;

use super::rebuild::{Beside, Rebuild};
use super::remote::{self, Answer};
use super::session::Session;
use crate::failure::Failure;
use crate::output::Output;

/// Inode numbers: the root, the link to the socket, providers from here on, folders from there on.
const ROOT: u64 = 1;
const SOCKET: u64 = 2;
const PROVIDERS: u64 = 1 << 8;
const FOLDERS: u64 = 1 << 40;
/// Maximum number of remembered folders; names of providers come from disks.
const FOLDERS_MAX: usize = 1 << 16;

/// Interval at which gate servers and disks of rigs are checked while idle.
const LOOK: Duration = Duration::from_secs(1);

/// The name under which a mount shows the path of its socket.
pub(super) const LINK: &str = ".geom";

/// An order to the owner of the graph.
pub(super) enum Order {
    /// A request from the kernel.
    Disks(Job),
    /// A command, and where its answer goes.
    Command(String, mpsc::Sender<String>),
    /// The mount has ended.
    Ended(std::io::Result<Ended>),
}

/// The mount point, checked before disks are opened.
pub(super) fn check(directory: &Path) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::of(directory.display(), error);
    let path = flysch_fuse::mount_point(directory).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::NOTCONN.raw_os_error() => {
            let (path, rest) = (directory.display(), "whose program is gone; `umount` it first");
            Failure::failed(format!("{path}: is a mount {rest}"))
        }
        _ => fail(error),
    })?;
    let here = path.metadata().map_err(fail)?;
    let above = path.join("..").metadata().map_err(fail)?;
    if here.dev() != above.dev() || here.ino() == above.ino() {
        let text = "is already a mount point; unmount that, or use another folder";
        return Err(Failure::of(directory.display(), text));
    }
    Ok(())
}

/// Mounts, and stays until the mount ends.
pub(super) fn run(
    session: Session,
    directory: &Path,
    (source, socket): (String, Option<&Path>),
    output: &mut Output,
) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::of(directory.display(), error);
    let control = Control::listen(socket)?;
    let (orders, to_do) = mpsc::channel();
    let to_owner = orders.clone();
    let send: Sender = Arc::new(move |job| drop(to_owner.send(Order::Disks(job))));
    let clients = control.listener.try_clone();
    let clients = clients.and_then(|it| remote::serve(it, orders.clone())).map_err(fail)?;
    let options = FuseOptions { source, ..FuseOptions::default() };
    let mounted = mount_disks(send, directory, &options).map_err(fail)?;
    mounted.end_on_signals().map_err(fail)?;
    if output.json() {
        let socket = control.path.display().to_string();
        let at = mounted.path().display().to_string();
        output.line(serde_json::json!({ "event": "mounted", "at": at, "socket": socket }))?;
    } else {
        let (at, given) = (mounted.path().display(), directory.display());
        output
            .line(format_args!("mounted on {at}; change it by `flysch geom --socket {given}`"))?;
    }
    output.finish()?;
    let mut mount = Mount {
        session,
        handles: BTreeMap::new(),
        next: 1,
        folders: Vec::new(),
        socket: control.path.display().to_string(),
        begun: Instant::now(),
        rebuilds: Vec::new(),
    };
    mount.session.beside = Beside::Always;
    let watch = Watch::start(mounted, orders).map_err(fail)?;
    let ended = mount.work(&to_do);
    drop(watch);
    let closed = mount.close();
    clients.leave();
    drop(control);
    match ended.map_err(fail)? {
        Ended::Unmounted | Ended::Signal => closed,
        Ended::Panic => Err(fail(std::io::Error::other("a request failed; unmounted"))),
    }
}

/// Waits for the end of the mount. If the owner of the graph panics, it ends the mount.
struct Watch {
    ender: Ender,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn start(mounted: Mounted, orders: mpsc::Sender<Order>) -> std::io::Result<Self> {
        let ender = mounted.ender()?;
        let thread = std::thread::Builder::new().name("mount".into());
        let thread = thread.spawn(move || drop(orders.send(Order::Ended(mounted.wait()))))?;
        Ok(Self { ender, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.ender.end();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The socket for commands.
struct Control {
    listener: UnixListener,
    path: PathBuf,
    _file: SocketFile,
    /// This mount's own folder, if no path was given.
    _folder: Option<tempfile::TempDir>,
}

impl Control {
    fn listen(path: Option<&Path>) -> Result<Self, Failure> {
        let (folder, path) = match path {
            Some(path) => (None, path.to_path_buf()),
            None => {
                // Others may not look into it.
                let folder = tempfile::Builder::new().prefix("flysch-geom").tempdir();
                let folder = folder.map_err(|error| Failure::of("temporary folder", error))?;
                let path = folder.path().join("socket");
                (Some(folder), path)
            }
        };
        let (file, listener) = SocketFile::bind(&path).map_err(Failure::failed)?;
        let path = path.canonicalize().unwrap_or(path);
        Ok(Self { listener, path, _file: file, _folder: folder })
    }
}

/// An open file.
struct Open {
    consumer: ConsumerId,
    name: String,
    size: u64,
    sector: u64,
    wanted: Wanted,
    /// Something has been written since the last flush.
    is_dirty: bool,
}

/// The graph, and the files that are open on it.
pub(super) struct Mount {
    pub(super) session: Session,
    handles: BTreeMap<u64, Open>,
    next: u64,
    /// Folders by their numbers.
    folders: Vec<String>,
    socket: String,
    begun: Instant,
    /// Rebuilds in progress, and who is notified of their ends.
    rebuilds: Vec<Waiting>,
}

/// A rebuild for whose end a client waits.
struct Waiting {
    rebuild: Rebuild,
    /// Other messages for the client.
    answer: Answer,
    to: mpsc::Sender<String>,
}

/// The kernel's error number for an error.
fn errno(error: block::BlockError) -> Errno {
    match error {
        block::BlockError::WriteProtected => Errno::ROFS,
        block::BlockError::Gone => Errno::NXIO,
        block::BlockError::TimedOut => Errno::TIMEDOUT,
        block::BlockError::OutOfRange | block::BlockError::Misaligned => Errno::INVAL,
        _ => Errno::IO,
    }
}

/// Whether a provider's name can be used as a path.
fn is_path(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != ".." && part.len() <= 255;
    name != LINK && !name.contains('\0') && name.split('/').all(part)
}

impl Mount {
    /// Nanoseconds since the mount.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The next order. Rebuilds continue in between; if servers can fail or disks can come and go,
    /// they are checked from time to time.
    fn next(&self, orders: &Receiver<Order>) -> Result<Order, RecvTimeoutError> {
        let has_gates = self.session.graph.objects().geoms_of("GATE").next().is_some();
        let look = (has_gates || !self.session.rigs.is_empty()).then_some(LOOK);
        let piece = self.rebuilds.iter().map(|it| it.rebuild.due()).min();
        let piece = piece.map(|due| Duration::from_nanos(due.saturating_sub(self.now())));
        match look.into_iter().chain(piece).min() {
            Some(wait) => orders.recv_timeout(wait),
            None => Ok(orders.recv()?),
        }
    }

    /// Copies a piece of each rebuild that is due.
    fn rebuild(&mut self) {
        let now = self.now();
        let mut at = 0;
        while let Some(it) = self.rebuilds.get_mut(at) {
            let ended = match it.rebuild.due() <= now {
                true => it.rebuild.step(&mut self.session.graph),
                false => Ok(true),
            };
            if let Ok(true) = ended {
                at += 1;
                continue;
            }
            let Waiting { rebuild, answer, to } = self.rebuilds.remove(at);
            let ended = ended.map_err(|error| self.session.failure(error));
            let answer = match ended.and_then(|_| rebuild.output()) {
                Ok(said) => answer.behind(&said),
                Err(failure) => Answer::of(failure),
            };
            // It continues without the client that asked for it.
            let _ = to.send(answer.line());
        }
    }

    /// Executes a command, which is answered at once, or when what it started has ended.
    fn command(&mut self, line: &str, to: mpsc::Sender<String>) {
        self.session.now = self.now();
        let answer = remote::answer(&mut self.session, line);
        match self.session.rebuilds.pop() {
            Some(rebuild) => self.rebuilds.push(Waiting { rebuild, answer, to }),
            None => _ = to.send(answer.line()),
        }
    }

    /// Executes orders until the mount ends.
    fn work(&mut self, orders: &Receiver<Order>) -> std::io::Result<Ended> {
        let mut ended = None;
        loop {
            self.rebuild();
            // What was asked before the end is answered.
            let order = match ended {
                None => match self.next(orders) {
                    Err(RecvTimeoutError::Timeout) => {
                        gate::look(&mut self.session.graph);
                        self.session.look();
                        continue;
                    }
                    order => order.ok(),
                },
                Some(_) => orders.try_recv().ok(),
            };
            match order {
                Some(Order::Disks(job)) => {
                    job(self);
                    self.session.look();
                }
                Some(Order::Command(line, answer)) => {
                    self.session.look();
                    self.command(&line, answer);
                    self.session.look();
                }
                Some(Order::Ended(how)) => {
                    ended = Some(how);
                    self.leave_rebuilds();
                }
                None => return ended.unwrap_or(Ok(Ended::Unmounted)),
            }
        }
    }

    /// Rebuilds stop where they are.
    fn leave_rebuilds(&mut self) {
        for Waiting { to, .. } in self.rebuilds.drain(..) {
            let text = "the mount has ended; `rebuild` goes on where it was";
            let _ = to.send(Answer::of(Failure::failed(text)).line());
        }
    }

    /// Closes everything; all written data is on the medium afterwards.
    fn close(&mut self) -> Result<(), Failure> {
        let mut result = Ok(());
        for handle in self.handles.keys().copied().collect::<Vec<_>>() {
            if let Err(error) = self.end(handle) {
                result = Err(error);
            }
        }
        self.session.graph.settle();
        self.session.keep();
        result.map_err(|error| self.session.failure(error))
    }

    /// Flushes and closes a file.
    fn end(&mut self, handle: u64) -> Result<(), GeomError> {
        let Some(open) = self.handles.remove(&handle) else { return Ok(()) };
        let graph = &mut self.session.graph;
        let flushed = match open.is_dirty {
            true => graph.io(open.consumer, Io::Flush),
            false => Ok(()),
        };
        graph.shut(open.consumer);
        flushed.map_err(|error| GeomError::io(open.name, error))
    }

    fn providers(&self) -> impl Iterator<Item = (ProviderId, &Provider)> {
        let all = self.session.graph.objects().providers();
        all.filter(|(_, it)| it.error.is_none() && it.media_size > 0 && is_path(&it.name))
    }

    fn disk(&self, id: ProviderId, provider: &Provider) -> Entry {
        let block_size = provider.sector_size.max(4096);
        let kind = EntryKind::Disk { size: provider.media_size, block_size };
        Entry { number: PROVIDERS + u64::from(id.number()), kind }
    }

    /// The path of a folder, with a trailing slash.
    fn folder(&self, number: u64) -> Result<String, Errno> {
        match number {
            ROOT => Ok(String::new()),
            FOLDERS.. => {
                let name = self.folders.get((number - FOLDERS) as usize).ok_or(Errno::NOENT)?;
                Ok(format!("{name}/"))
            }
            _ => Err(Errno::NOTDIR),
        }
    }

    fn folder_entry(&mut self, path: &str) -> Result<Entry, Errno> {
        let at = self.folders.iter().position(|known| known == path);
        let at = match at {
            Some(at) => at,
            None if self.folders.len() >= FOLDERS_MAX => return Err(Errno::NOENT),
            None => {
                self.folders.push(path.to_string());
                self.folders.len() - 1
            }
        };
        Ok(Entry { number: FOLDERS + at as u64, kind: EntryKind::Folder })
    }

    fn link(&self) -> Entry {
        Entry { number: SOCKET, kind: EntryKind::Link(self.socket.clone()) }
    }

    /// Reads whole sectors.
    fn sectors(&mut self, handle: u64, offset: u64, to: &mut [u8]) -> Result<(), Errno> {
        let open = self.handles.get(&handle).ok_or(Errno::BADF)?;
        let read = self.session.graph.io(open.consumer, Io::Read { offset, to });
        read.map_err(|error| self.failed(handle, "read", (offset, error)))
    }

    /// Logs an error of which the kernel only receives a number.
    fn failed(&mut self, handle: u64, what: &str, (at, error): (u64, block::BlockError)) -> Errno {
        let name = self.handles.get(&handle).map_or("?", |open| &open.name);
        let line = format!("{name}: {what} at {at}: {error}");
        self.session.graph.record.say(line);
        errno(error)
    }
}

impl Mount {
    fn find(&mut self, folder: u64, name: &[u8]) -> Result<Entry, Errno> {
        // No cause: providers have names in UTF-8, so there is none of this one.
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        if folder == ROOT && name == LINK {
            return Ok(self.link());
        }
        let path = self.folder(folder)? + name;
        if let Some((id, provider)) = self.providers().find(|(_, it)| it.name == path) {
            return Ok(self.disk(id, provider));
        }
        let below = format!("{path}/");
        if self.providers().any(|(_, it)| it.name.starts_with(&below)) {
            return self.folder_entry(&path);
        }
        Err(Errno::NOENT)
    }

    fn of_number(&mut self, number: u64) -> Result<Entry, Errno> {
        match number {
            ROOT => Ok(Entry { number, kind: EntryKind::Folder }),
            SOCKET => Ok(self.link()),
            FOLDERS.. => {
                self.folder(number)?;
                Ok(Entry { number, kind: EntryKind::Folder })
            }
            _ => {
                let wanted = number.wrapping_sub(PROVIDERS);
                let mut all = self.providers();
                let found = all.find(|(id, _)| u64::from(id.number()) == wanted);
                let (id, provider) = found.ok_or(Errno::NOENT)?;
                Ok(self.disk(id, provider))
            }
        }
    }
}

impl Disks for Mount {
    fn entry(&mut self, which: Which<'_>) -> Result<Entry, Errno> {
        match which {
            Which::Number(number) => self.of_number(number),
            Which::Name(folder, name) => self.find(folder, name),
        }
    }

    fn list(&mut self, folder: u64) -> Result<Vec<(String, Entry)>, Errno> {
        let path = self.folder(folder)?;
        let mut all: Vec<(String, Entry)> = Vec::new();
        let mut folders: Vec<String> = Vec::new();
        for (id, provider) in self.providers() {
            let Some(rest) = provider.name.strip_prefix(&path) else { continue };
            match rest.split_once('/') {
                None => all.push((rest.to_string(), self.disk(id, provider))),
                Some((below, _)) if !folders.iter().any(|known| known == below) => {
                    folders.push(below.to_string());
                }
                Some(_) => {}
            }
        }
        // A disk of the same name is seen before a folder.
        folders.retain(|folder| all.iter().all(|(name, _)| name != folder));
        for name in folders {
            if let Ok(entry) = self.folder_entry(&format!("{path}{name}")) {
                all.push((name, entry));
            }
        }
        if folder == ROOT {
            all.push((LINK.into(), self.link()));
        }
        Ok(all)
    }

    fn open(&mut self, number: u64, wanted: Wanted) -> Result<u64, Errno> {
        let wanted_id = number.wrapping_sub(PROVIDERS);
        let found = self.providers().find(|(id, _)| u64::from(id.number()) == wanted_id);
        let (id, there) = found.ok_or(Errno::NOENT)?;
        let (name, size, sector) = (there.name.clone(), there.media_size, there.sector_size);
        let access = if wanted.writes { Access::new(1, 1, 0) } else { Access::READ };
        let opened = self.session.graph.open(id, access);
        let consumer = opened.map_err(|error| {
            self.session.graph.record.say(format!("{error}"));
            match error.kind {
                Kind::NotPermitted | Kind::Busy => Errno::PERM,
                Kind::Io(error) => errno(error),
                _ => Errno::IO,
            }
        })?;
        // Who only had tasted it goes.
        self.session.graph.settle();
        let (handle, sector) = (self.next, u64::from(sector));
        self.next += 1;
        let open = Open { consumer, name, size, sector, wanted, is_dirty: false };
        self.handles.insert(handle, open);
        Ok(handle)
    }

    fn read(&mut self, handle: u64, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let open = self.handles.get(&handle).ok_or(Errno::BADF)?;
        let (size, sector) = (open.size, open.sector);
        let end = offset.saturating_add(length.into()).min(size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let start = offset / sector * sector;
        let mut bytes = vec![0; (end.next_multiple_of(sector) - start) as usize];
        self.sectors(handle, start, &mut bytes)?;
        bytes.truncate((end - start) as usize);
        bytes.drain(..(offset - start) as usize);
        Ok(bytes)
    }

    fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<u32, Errno> {
        let open = self.handles.get(&handle).ok_or(Errno::BADF)?;
        let (consumer, size, sector) = (open.consumer, open.size, open.sector);
        let is_sync = open.wanted.is_sync;
        let end = offset.saturating_add(bytes.len() as u64).min(size);
        if offset >= end {
            return if bytes.is_empty() { Ok(0) } else { Err(Errno::NOSPC) };
        }
        let bytes = &bytes[..(end - offset) as usize];
        let (start, stop) = (offset / sector * sector, end.next_multiple_of(sector));
        let whole;
        let from = if (start, stop) == (offset, end) {
            bytes
        } else {
            // What stands around it in the first and the last sector stays.
            let mut around = vec![0; (stop - start) as usize];
            let step = sector as usize;
            self.sectors(handle, start, &mut around[..step])?;
            if stop - start > sector {
                let last = around.len() - step;
                self.sectors(handle, stop - sector, &mut around[last..])?;
            }
            let skip = (offset - start) as usize;
            around[skip..skip + bytes.len()].copy_from_slice(bytes);
            whole = around;
            &whole
        };
        let written = self.session.graph.io(consumer, Io::Write { offset: start, from });
        written.map_err(|error| self.failed(handle, "write", (offset, error)))?;
        if let Some(open) = self.handles.get_mut(&handle) {
            open.is_dirty = true;
        }
        if is_sync {
            self.flush(handle)?;
        }
        Ok(bytes.len() as u32)
    }

    fn flush(&mut self, handle: u64) -> Result<(), Errno> {
        let open = self.handles.get_mut(&handle).ok_or(Errno::BADF)?;
        if !open.is_dirty {
            return Ok(());
        }
        let flushed = self.session.graph.io(open.consumer, Io::Flush);
        open.is_dirty = flushed.is_err();
        flushed.map_err(|error| self.failed(handle, "flush", (0, error)))
    }

    fn close(&mut self, handle: u64) {
        if let Err(error) = self.end(handle) {
            self.session.graph.record.say(format!("{error}"));
        }
        // What was written is tasted anew.
        self.session.graph.settle();
    }
}
