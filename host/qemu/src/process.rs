//! The QEMU process: finds it, starts it, and never leaves it behind.
//!
//! Theory. However this process ends, QEMU must end with it. Dropping the handle kills it. For
//! every other way to end - panic, `exit`, Ctrl-C, SIGKILL - the kernel does it: the child asks for
//! SIGKILL when its parent dies (`PR_SET_PDEATHSIG`). "Parent" means the *thread* that forked, and
//! a machine may be created on a thread that ends long before it; so a keeper thread forks, and
//! lives exactly as long as the handle. QEMU gets its own process group, so Ctrl-C at a terminal
//! reaches only us, and requests in flight can still end in good order.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::{Need, QemuError};
use crate::image::shared_memory;
use crate::version::Version;

/// The default binary.
const PROGRAM: &str = "qemu-system-x86_64";
/// Time limit of `--version`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the exit status of a QEMU that closed its socket.
const REAP_TIMEOUT: Duration = Duration::from_millis(500);
/// How much of QEMU's last output is examined, bytes.
const WORDS_MAX: u64 = 4096;

/// The binary to run: `named`, otherwise `FLYSCH_QEMU`, otherwise [`PROGRAM`] from the PATH.
pub(crate) fn find(named: Option<&Path>, need: Need) -> Result<PathBuf, QemuError> {
    let program = named.map_or_else(
        || match std::env::var_os("FLYSCH_QEMU") {
            Some(program) if !program.is_empty() => PathBuf::from(program),
            _ => PathBuf::from(PROGRAM),
        },
        Path::to_path_buf,
    );
    let found = if program.components().count() > 1 {
        Some(program.clone()).filter(|p| p.exists())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(&program)).find(|p| is_program(p))
    };
    found.ok_or(QemuError::NotFound { need, program })
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Asks the binary for its release.
pub(crate) fn version(program: &Path, need: Need) -> Result<Version, QemuError> {
    let not_runnable =
        |cause: String| QemuError::NotRunnable { need, program: program.to_path_buf(), cause };
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| not_runnable(e.to_string()))?;
    let deadline = Instant::now() + VERSION_TIMEOUT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            kill_group(&mut child);
            return Err(not_runnable("`--version` does not end".into()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let _ = stdout.take(WORDS_MAX).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    Version::parse(&text).ok_or_else(|| {
        let line = text.lines().next().unwrap_or_default();
        not_runnable(format!("`--version` answers `{line}`, so this is not QEMU"))
    })
}

/// The terminal of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminal {
    /// None.
    None,
    /// Ours: QEMU uses it, and Ctrl-C there reaches it.
    Ours,
}

/// A running QEMU.
#[derive(Debug)]
pub(crate) struct Process {
    child: Mutex<Child>,
    /// Where QEMU's standard error goes: memory, so that QEMU never blocks on it.
    words: OwnedFd,
    /// Dropped to end the keeper.
    stop: Option<mpsc::Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts `program`; `inherited` descriptors keep their numbers in it and are closed here.
    pub(crate) fn start(
        need: Need,
        program: &Path,
        arguments: Vec<OsString>,
        inherited: Vec<OwnedFd>,
        terminal: Terminal,
    ) -> Result<Self, QemuError> {
        let words = shared_memory("QEMU's messages", 0)?;
        let system = |what| move |cause| QemuError::System { what, cause };
        let copy = words.try_clone().map_err(system("duplicating a descriptor"))?;
        let mut command = Command::new(program);
        command.args(arguments).stderr(Stdio::from(copy));
        if terminal == Terminal::None {
            command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        }
        die_with_parent(&mut command, inherited);
        let (stop, stopped) = mpsc::channel::<()>();
        let (started, start) = mpsc::channel();
        let keeper = std::thread::Builder::new()
            .name("qemu keeper".into())
            .spawn(move || {
                let child = command.spawn();
                // With it go our copies of what QEMU inherited: its socket must close when it ends.
                drop(command);
                let _ = started.send(child);
                // Answers an error as soon as the sender is dropped; nothing is ever sent.
                let _ = stopped.recv();
            })
            .map_err(system("starting the thread that keeps QEMU"))?;
        let child = start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that keeps QEMU ended")));
        let child = child.map_err(|e| QemuError::NotRunnable {
            need,
            program: program.to_path_buf(),
            cause: e.to_string(),
        })?;
        Ok(Self { child: Mutex::new(child), words, stop: Some(stop), keeper: Some(keeper) })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    /// How QEMU ended, if it has.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten()
    }

    /// How QEMU ended, in words, if it ended within [`REAP_TIMEOUT`].
    pub(crate) fn ending(&self) -> Option<String> {
        let deadline = Instant::now() + REAP_TIMEOUT;
        loop {
            match self.status() {
                Some(status) => return Some(status.to_string()),
                None if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                None => return None,
            }
        }
    }

    /// The end of QEMU's standard error.
    pub(crate) fn last_words(&self) -> String {
        let Ok(copy) = self.words.try_clone() else { return String::new() };
        let mut file = std::fs::File::from(copy);
        let len = file.metadata().map_or(0, |m| m.len());
        let mut bytes = Vec::new();
        // The offset is shared with QEMU's writes; it is only read once QEMU is gone.
        let _ = file.seek(SeekFrom::Start(len.saturating_sub(WORDS_MAX)));
        let _ = file.take(WORDS_MAX).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        kill_group(self.child.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.stop = None;
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Kills a child, with everything in its process group, and reaps it.
fn kill_group(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    let _ = child.kill();
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// Makes the child die with the thread that starts it, and inherit `descriptors`.
fn die_with_parent(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let parent = Pid::from_raw(std::process::id().cast_signed());
    let prepare = move || -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above: then nobody would send the signal.
        if rustix::process::getppid() != parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        for descriptor in &descriptors {
            rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes only system calls that are async-signal
    // safe (prctl, getppid, fcntl); it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
}

/// `/proc/self/fd/N`: the name under which QEMU opens an inherited descriptor.
pub(crate) fn inherited_name(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Builds an argument list from literals and formatted text.
#[derive(Debug, Default)]
pub(crate) struct Arguments(Vec<OsString>);

impl Arguments {
    pub(crate) fn flag(&mut self, flag: &str) {
        self.0.push(flag.into());
    }

    pub(crate) fn extend(&mut self, more: impl IntoIterator<Item = OsString>) {
        self.0.extend(more);
    }

    pub(crate) fn option(&mut self, flag: &str, value: impl AsRef<OsStr>) {
        self.flag(flag);
        self.0.push(value.as_ref().into());
    }

    pub(crate) fn into_vec(self) -> Vec<OsString> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_that_is_not_there_is_named_with_the_remedy() {
        let text =
            find(Some(Path::new("qemu-that-is-not-there")), Need::Devices).unwrap_err().to_string();
        assert!(text.contains("qemu-that-is-not-there"), "{text}");
        assert!(text.contains("apt install -t bookworm-backports qemu-system-x86"), "{text}");
        assert!(find(Some(Path::new("/no/such/qemu")), Need::Client).is_err());
    }

    #[test]
    fn other_programs_are_not_taken_for_qemu() {
        for (program, words) in [("/bin/true", "not QEMU"), ("/etc/passwd", "ermission denied")] {
            let text = version(Path::new(program), Need::Devices).unwrap_err().to_string();
            assert!(text.contains(program) && text.contains(words), "{text}");
        }
    }
}
