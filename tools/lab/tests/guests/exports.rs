//! Linux as the client of our exports: its ublk, its NBD, its virtio disk.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flysch_lab::{Job, Lab};

use crate::common::{command, keep, labs, put, put_command};
use crate::served::qemu_11;

const FUNCTIONS: &str = include_str!("exports/functions.sh");

/// Runs a script that says `ok NAME` for each of `parts`; `watch` is called all the time.
fn run(lab: &Lab, job: &Job<'_>, parts: &[&str], mut watch: impl FnMut()) {
    let started = Instant::now();
    let (kernel, script) = (lab.kernel(), format!("{FUNCTIONS}\n{}", job.script));
    let timeout = Duration::from_secs(900);
    let job =
        Job { script: &script, timeout, memory_mib: MEMORY_MIB, processors: 2, ..job.clone() };
    let done = lab.run_while(&job, &mut || {
        watch();
        true
    });
    let done = done.unwrap_or_else(|error| panic!("{kernel:?}: {error}"));
    println!("{kernel:?}: {} s\n{}", started.elapsed().as_secs(), done.output);
    if done.status != 0 {
        keep(job.share);
        panic!("{kernel:?}: status {}\n{}", done.status, done.console);
    }
    for part in parts {
        assert!(done.output.contains(&format!("ok {part}\n")), "{kernel:?}: no \"ok {part}\"");
    }
}

const MEMORY_MIB: u32 = 1536;

/// The server runs in the guest, as the driver is there.
#[test]
fn linux_has_our_disks_by_ublk() {
    for lab in labs() {
        let share = tempfile::tempdir().unwrap();
        put_command(share.path());
        let parts = ["module", "limits", "data", "end", "killed", "recovered", "clean", "unloaded"];
        let job = Job::new(include_str!("exports/ublk.sh"), share.path());
        run(&lab, &job, &parts, || ());
    }
}

/// A program of this machine with the libraries that it names, for the guest: its path, if there is
/// such a program.
fn put_program(name: &str, share: &Path) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&paths).chain(["/sbin".into(), "/usr/sbin".into()]);
    let program = folders.map(|folder| folder.join(name)).find(|path| path.exists())?;
    put(&program, share, name);
    let libraries = share.join("lib");
    std::fs::create_dir_all(&libraries).unwrap();
    let listed = Command::new("ldd").arg(&program).output().unwrap();
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        assert!(!line.contains("not found"), "{name} does not run here: {}", line.trim());
        let path = line.split_once("=> ").and_then(|(_, path)| path.split_whitespace().next());
        // The guest's own C library is the newer one.
        if let Some(path) = path.filter(|path| path.starts_with('/') && !path.contains("/libc.")) {
            put(Path::new(path), &libraries, path.rsplit('/').next().unwrap());
        }
    }
    Some(program)
}

/// The server runs in the guest, too: over a socket and over TCP, with several connections.
#[test]
fn linux_has_our_disks_by_nbd() {
    for lab in labs() {
        let share = tempfile::tempdir().unwrap();
        if put_program("nbd-client", share.path()).is_none() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "nbd-client is missing");
            println!("skipped: nbd-client is missing: install the Debian package nbd-client");
            return;
        }
        put_command(share.path());
        let job = Job::new(include_str!("exports/nbd.sh"), share.path());
        run(&lab, &job, &["connections", "tcp", "killed", "readonly", "clean"], || ());
    }
}

/// The virtio disk of a machine, and who serves it.
struct Disk {
    program: PathBuf,
    folder: PathBuf,
    server: Child,
}

impl Disk {
    fn new(program: PathBuf, folder: &Path) -> Self {
        let server = Self::start(&program, folder);
        Self { program, folder: folder.to_path_buf(), server }
    }

    /// A server in the place of none, or of one that was killed.
    fn start(program: &Path, folder: &Path) -> Child {
        let mut server = Command::new(program)
            .args(["export", "file:disk.img,block=4096", "--vhost-user", "disk.sock"])
            .args(["--name", "exported"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("exporting"), "{ready}");
        server
    }

    /// Kills the server if the guest wants it, and starts another.
    fn watch(&mut self, share: &Path) {
        let wish = share.join("kill");
        if wish.exists() {
            self.server.kill().unwrap();
            self.server.wait().unwrap();
            self.server = Self::start(&self.program, &self.folder);
            std::fs::remove_file(wish).unwrap();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn linux_has_our_disk_by_virtio() {
    for lab in labs() {
        let share = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let image = std::fs::File::create(folder.path().join("disk.img")).unwrap();
        image.set_len(256 << 20).unwrap();
        let mut disk = Disk::new(command(), folder.path());
        let socket = folder.path().join("disk.sock");
        let arguments = [
            "-object".into(),
            format!("memory-backend-memfd,id=m0,size={MEMORY_MIB}M,share=on"),
            "-machine".into(),
            "memory-backend=m0".into(),
            "-chardev".into(),
            format!("socket,id=c0,path={},reconnect-ms=100", socket.display()),
            "-device".into(),
            "vhost-user-blk-pci,chardev=c0,num-queues=2,addr=10".into(),
        ];
        let script = include_str!("exports/vhost_user.sh");
        let program = Some(qemu_11());
        let job = Job { arguments: &arguments, program, ..Job::new(script, share.path()) };
        let parts = ["limits", "data", "killed", "root", "clean"];
        run(&lab, &job, &parts, || disk.watch(share.path()));
    }
}
