//! Running the guest.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flysch_qemu::{Boot, Guest, QemuDevice};

use crate::{LabError, build};

/// A job for the guest.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// A bash script, run in the share.
    pub script: &'a str,
    /// The folder of this machine that the guest sees as `/share`.
    pub share: &'a Path,
    /// Memory of the guest, MiB. nandsim and mtdram keep their cells there.
    pub memory_mib: u32,
    /// Maximum time to wait for the end.
    pub timeout: Duration,
    /// Devices to test drivers on.
    pub devices: &'a [QemuDevice],
    /// Additional arguments for QEMU.
    pub arguments: &'a [String],
    /// QEMU's arguments for the guest's first virtio disk, if it is not the lab's own file: they
    /// must present the same contents.
    pub root: &'a [String],
    /// Additional words for the kernel's command line.
    pub kernel_words: &'a str,
    /// The QEMU to start; by default `FLYSCH_QEMU`, or else the one in the search path.
    pub program: Option<PathBuf>,
    /// Number of processors of the guest.
    pub processors: u32,
    /// Whether the guest's console is the terminal of this process, for a script that talks to a
    /// person there; QEMU's own commands follow Ctrl-A (`Ctrl-A X` switches off).
    pub terminal: bool,
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
            devices: &[],
            arguments: &[],
            root: &[],
            kernel_words: "",
            program: None,
            processors: 1,
            terminal: false,
        }
    }

    /// The file that receives the script's output while it runs.
    pub fn output(&self) -> PathBuf {
        self.share.join(OUTPUT)
    }
}

/// The result of a job.
#[derive(Clone, Debug)]
pub struct Done {
    /// The script's exit status.
    pub status: i32,
    /// Its standard output and error.
    pub output: String,
    /// The kernel's console output.
    pub console: String,
}

/// The kernel's command line. The kernel does not check whether its timer ticks, because that check
/// may exceed its time limit on a busy machine; and it keeps a log large enough for dumps of UBIFS.
const COMMAND_LINE: &str =
    "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check log_buf_len=8M";

const SCRIPT: &str = ".flysch-job";
const OUTPUT: &str = ".flysch-output";
const STATUS: &str = ".flysch-status";
const CONSOLE: &str = ".flysch-console";

/// The files that a job puts into its share; they are removed however the job ends.
struct Traces<'a> {
    share: &'a Path,
}

impl<'a> Traces<'a> {
    /// The files of a job that is about to start; those of an earlier one are removed.
    fn new(share: &'a Path) -> Self {
        let traces = Self { share };
        traces.remove();
        traces
    }

    fn remove(&self) {
        for name in [SCRIPT, OUTPUT, STATUS, CONSOLE] {
            let _ = fs::remove_file(self.share.join(name));
        }
    }
}

impl Drop for Traces<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Runs a job; `watch` is called some fifty times a second, until it asks to stop.
pub(crate) fn run(
    lab: &Path,
    job: &Job<'_>,
    watch: &mut dyn FnMut() -> bool,
) -> Result<Done, LabError> {
    let file = |name: &str| job.share.join(name);
    let _traces = Traces::new(job.share);
    fs::write(file(SCRIPT), job.script).map_err(LabError::file(job.share))?;
    let boot = boot(lab, job);
    let guest = Guest::start(&boot)?;
    let deadline = Instant::now().checked_add(job.timeout);
    let console = || fs::read_to_string(file(CONSOLE)).unwrap_or_default();
    let ended = loop {
        let ended = guest.ended();
        // Once more after the end: everything is written by then.
        let goes_on = watch();
        if let Some(ended) = ended {
            break ended;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let seconds = job.timeout.as_secs();
            return Err(LabError::TimedOut { seconds, console: tail(&console()) });
        }
        if !goes_on {
            return Err(LabError::Stopped);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let status = fs::read_to_string(file(STATUS)).unwrap_or_default();
    let Ok(status) = status.trim().parse() else {
        if let (false, Some(failure)) = (ended.success(), guest.failure(&boot)) {
            return Err(failure.into());
        }
        return Err(LabError::NoResult(tail(&console())));
    };
    let output = fs::read(file(OUTPUT)).map_err(LabError::file(job.share))?;
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Done { status, output, console: console() })
}

fn boot<'a>(lab: &Path, job: &'a Job<'_>) -> Boot<'a> {
    let mut arguments: Vec<OsString> =
        ["-accel", "tcg", "-display", "none", "-no-reboot"].map(OsString::from).into();
    let serial = match job.terminal {
        true => "mon:stdio".into(),
        false => {
            arguments.extend(["-monitor".into(), "none".into()]);
            option("file:", &job.share.join(CONSOLE), "")
        }
    };
    let share = ",mount_tag=share,security_model=none,multidevs=remap";
    let more = [
        ("-smp", job.processors.to_string()),
        ("-serial", serial),
        ("-kernel", option("", &lab.join(build::KERNEL), "")),
        ("-initrd", option("", &lab.join(build::ARCHIVE), "")),
        ("-append", format!("{COMMAND_LINE} {}", job.kernel_words)),
        ("-virtfs", option("local,path=", job.share, share)),
    ];
    arguments.extend(more.into_iter().flat_map(|(flag, value)| [flag.into(), value.into()]));
    if job.root.is_empty() {
        let disk = lab.join(build::DISK);
        arguments.push("-drive".into());
        arguments.push(option("file=", &disk, ",if=virtio,format=raw,readonly=on").into());
    }
    // Devices get their places in this order, and the first disk gets the first name.
    arguments.extend(job.root.iter().map(OsString::from));
    arguments.extend(job.arguments.iter().map(OsString::from));
    Boot {
        program: job.program.as_deref(),
        arguments,
        memory_mib: job.memory_mib,
        devices: job.devices,
        terminal: job.terminal,
    }
}

/// `prefix` + path + `suffix`, with the path's commas doubled as QEMU requires.
fn option(prefix: &str, path: &Path, suffix: &str) -> String {
    format!("{prefix}{}{suffix}", path.display().to_string().replace(',', ",,"))
}

fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
