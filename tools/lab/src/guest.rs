//! Running the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Error, build};

/// One piece of work for the guest.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// A bash script; its folder is the share.
    pub script: &'a str,
    /// The folder of this machine that the guest sees as `/share`.
    pub share: &'a Path,
    /// Memory of the guest, MiB. nandsim and mtdram keep their cells there.
    pub memory_mib: u32,
    /// How long to wait for the end.
    pub timeout: Duration,
    /// More arguments for QEMU: devices to try a driver on.
    pub arguments: &'a [String],
    /// More words for the kernel's command line.
    pub kernel_words: &'a str,
    /// The QEMU to start; without, `FLYSCH_QEMU`, else the one of the search path.
    pub program: Option<PathBuf>,
}

impl<'a> Job<'a> {
    /// A job with 1 GiB of memory and five minutes of time.
    pub fn new(script: &'a str, share: &'a Path) -> Self {
        let timeout = Duration::from_secs(300);
        Self {
            script,
            share,
            memory_mib: 1024,
            timeout,
            arguments: &[],
            kernel_words: "",
            program: None,
        }
    }
}

/// What became of a job.
#[derive(Clone, Debug)]
pub struct Done {
    /// The script's exit status.
    pub status: i32,
    /// What it wrote on its standard output and error.
    pub output: String,
    /// What the kernel wrote on its console.
    pub console: String,
}

/// What the kernel is told. It does not try whether its timer ticks, which on a busy machine it may
/// not do in the time it gives it; and it keeps a log that dumps of UBIFS do not push out.
const COMMAND_LINE: &str =
    "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check log_buf_len=8M";

const SCRIPT: &str = ".flysch-job";
const OUTPUT: &str = ".flysch-output";
const STATUS: &str = ".flysch-status";
const CONSOLE: &str = ".flysch-console";

pub(crate) fn run(lab: &Path, job: &Job<'_>) -> Result<Done, Error> {
    let file = |name: &str| job.share.join(name);
    for old in [OUTPUT, STATUS, CONSOLE] {
        let _ = fs::remove_file(file(old));
    }
    fs::write(file(SCRIPT), job.script).map_err(Error::file(job.share))?;
    let mut guest = Guest(start(lab, job)?);
    let deadline = Instant::now() + job.timeout;
    let console = || fs::read_to_string(file(CONSOLE)).unwrap_or_default();
    loop {
        if guest.0.try_wait().map_err(Error::file(job.share))?.is_some() {
            break;
        }
        if Instant::now() >= deadline {
            let seconds = job.timeout.as_secs();
            return Err(Error::TimedOut { seconds, console: tail(&console()) });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = fs::read_to_string(file(STATUS)).unwrap_or_default();
    let Ok(status) = status.trim().parse() else {
        return Err(Error::NoResult(tail(&console())));
    };
    let output = fs::read(file(OUTPUT)).map_err(Error::file(job.share))?;
    let output = String::from_utf8_lossy(&output).into_owned();
    let done = Done { status, output, console: console() };
    for name in [SCRIPT, OUTPUT, STATUS, CONSOLE] {
        let _ = fs::remove_file(file(name));
    }
    Ok(done)
}

/// A QEMU that does not outlive us.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(lab: &Path, job: &Job<'_>) -> Result<Child, Error> {
    let set = || std::env::var_os("FLYSCH_QEMU").map(PathBuf::from);
    let qemu = job.program.clone().or_else(set).unwrap_or_else(|| "qemu-system-x86_64".into());
    let mut command = Command::new(qemu);
    command
        .args(["-accel", "tcg", "-smp", "1", "-display", "none", "-monitor", "none"])
        .args(["-nodefaults", "-no-reboot", "-m", &format!("{}M", job.memory_mib)])
        .arg("-serial")
        .arg(option("file:", &job.share.join(CONSOLE), ""))
        .arg("-kernel")
        .arg(lab.join(build::KERNEL))
        .arg("-initrd")
        .arg(lab.join(build::ARCHIVE))
        .args(["-append", &format!("{COMMAND_LINE} {}", job.kernel_words)])
        .arg("-drive")
        .arg(option("file=", &lab.join(build::DISK), ",if=virtio,format=raw,readonly=on"))
        .arg("-virtfs")
        .arg(option(
            "local,path=",
            job.share,
            ",mount_tag=share,security_model=none,multidevs=remap",
        ))
        .args(job.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
        .spawn()
        .map_err(|_| Error::Missing { program: "qemu-system-x86_64", package: "qemu-system-x86" })
}

/// `prefix` + path + `suffix`, with the path's commas doubled as QEMU wants them.
fn option(prefix: &str, path: &Path, suffix: &str) -> String {
    format!("{prefix}{}{suffix}", path.display().to_string().replace(',', ",,"))
}

fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
