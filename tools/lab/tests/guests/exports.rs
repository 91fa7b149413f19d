//! Linux and a PC's firmware as clients of our exports: ublk, NBD, virtio disks.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flysch_lab::{Job, Lab};

use crate::common::{command, keep, labs, put_command, put_program};
use crate::served::qemu_11;

mod rates;

const FUNCTIONS: &str = include_str!("exports/functions.sh");

/// Runs a script that must print `ok NAME` for each of `parts`; `watch` is called repeatedly.
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

/// The server runs in the guest, where the driver is.
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

/// The server also runs in the guest: over a socket and over TCP, with several connections.
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
        run(&lab, &job, &["exercised", "connections", "tcp", "killed", "readonly", "clean"], || ());
    }
}

/// The virtio disk of a machine, and its server.
struct Disk {
    program: PathBuf,
    target: &'static str,
    folder: PathBuf,
    server: Child,
}

impl Disk {
    /// Serves `target` at `disk.sock` in `folder`.
    fn new(target: &'static str, folder: &Path) -> Self {
        let program = command();
        let server = Self::start(&program, target, folder);
        Self { program, target, folder: folder.to_path_buf(), server }
    }

    /// QEMU's arguments for it.
    fn arguments(&self, memory_mib: u32, device: &str) -> Vec<String> {
        let socket = self.folder.join("disk.sock");
        vec![
            "-object".into(),
            format!("memory-backend-memfd,id=m0,size={memory_mib}M,share=on"),
            "-machine".into(),
            "memory-backend=m0".into(),
            "-chardev".into(),
            format!("socket,id=c0,path={},reconnect-ms=100", socket.display()),
            "-device".into(),
            format!("vhost-user-blk-pci,chardev=c0,{device}"),
        ]
    }

    /// A server, also in place of one that was killed.
    fn start(program: &Path, target: &str, folder: &Path) -> Child {
        let mut server = Command::new(program)
            .arg("export")
            .args(target.split(' '))
            .args(["--vhost-user", "disk.sock", "--name", "exported"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("exporting"), "{ready}");
        server
    }

    /// Kills the server if the guest asks for it, and starts another.
    fn watch(&mut self, share: &Path) {
        let wish = share.join("kill");
        if wish.exists() {
            self.server.kill().unwrap();
            self.server.wait().unwrap();
            self.server = Self::start(&self.program, self.target, &self.folder);
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
        let mut disk = Disk::new("file:disk.img,block=4096", folder.path());
        let arguments = disk.arguments(MEMORY_MIB, "num-queues=2,addr=10");
        let script = include_str!("exports/vhost_user.sh");
        let program = Some(qemu_11());
        let job = Job { arguments: &arguments, program, ..Job::new(script, share.path()) };
        let parts = ["limits", "data", "killed", "root", "clean"];
        run(&lab, &job, &parts, || disk.watch(share.path()));
    }
}

/// The first disk of the machine, with its root, is ours: each program that runs comes from there.
#[test]
fn linux_has_its_root_on_our_virtio_disk() {
    for lab in labs() {
        let share = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let image = lab.disk();
        std::os::unix::fs::symlink(&image, folder.path().join("disk.img")).unwrap();
        let disk = Disk::new("file:disk.img,block=4096 --read-only", folder.path());
        let root = disk.arguments(MEMORY_MIB, "num-queues=2");
        let program = Some(qemu_11());
        let script = include_str!("exports/root.sh");
        let job = Job { root: &root, program, ..Job::new(script, share.path()) };
        // The contents according to another reader.
        let sum = Command::new("sha256sum").arg(&image).output().unwrap();
        std::fs::write(share.path().join("sum"), &sum.stdout[..64]).unwrap();
        run(&lab, &job, &["serial", "alone", "content", "clean"], || ());
    }
}

/// The program in the first sector of a disk, started by a PC's firmware: it reads three sectors
/// from the fifth on, sends their contents up to a zero to the first serial port, writes them from
/// the ninth on, and ends QEMU (isa-debug-exit) with 33, or with 35 if the firmware refused.
const BOOT_SECTOR: [u8; 77] = [
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xd0, // ax, ds, ss = 0
    0xbc, 0x00, 0x7c, 0xfc, // sp = 7C00h, upwards
    0xbe, 0x3d, 0x7c, 0xb4, 0x42, 0xcd, 0x13, 0x72, 0x23, // INT 13h, 42h: extended read
    0xbe, 0x00, 0x80, 0xba, 0xf8, 0x03, // from 8000h to port 3F8h:
    0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf8, // until a zero
    0xc6, 0x06, 0x45, 0x7c, 0x09, // the packet's first sector = 9
    0xbe, 0x3d, 0x7c, 0xb8, 0x00, 0x43, 0xb2, 0x80, 0xcd, 0x13, 0x72, 0x04, // 43h: write
    0xb0, 0x10, 0xeb, 0x02, 0xb0, 0x11, 0xba, 0xf4, 0x00, 0xee, 0xf4, // port F4h, halt
    0x10, 0x00, 0x03, 0x00, 0x00, 0x80, 0x00, 0x00, 5, 0, 0, 0, 0, 0, 0, 0, // address packet
];

#[test]
fn a_pcs_firmware_boots_from_our_virtio_disk() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let mut content = vec![0_u8; 1 << 20];
    content[..BOOT_SECTOR.len()].copy_from_slice(&BOOT_SECTOR);
    content[510..512].copy_from_slice(&[0x55, 0xAA]);
    let text = format!("read by the firmware {}\n", "and more ".repeat(120));
    content[5 * 512..5 * 512 + text.len()].copy_from_slice(text.as_bytes());
    std::fs::write(&image, &content).unwrap();
    let disk = Disk::new("file:disk.img,block=512", folder.path());
    // Whatever goes wrong, the machine ends: it halts without a bootable disk.
    let mut qemu = Command::new("timeout");
    qemu.arg("300").arg(qemu_11()).args(["-accel", "tcg", "-display", "none", "-no-reboot"]);
    qemu.args(["-m", "64", "-net", "none", "-monitor", "none", "-serial", "file:serial"]);
    qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
    qemu.args(disk.arguments(64, "num-queues=1,bootindex=0")).current_dir(folder.path());
    assert_eq!(qemu.status().unwrap().code(), Some(33));
    assert_eq!(std::fs::read(folder.path().join("serial")).unwrap(), text.as_bytes());
    content.copy_within(5 * 512..8 * 512, 9 * 512);
    assert!(std::fs::read(&image).unwrap() == content, "what it wrote, and nothing else");
}
