//! `flysch lab linux`: boots the guest with the devices on the command line.

use std::fs::{self, File};
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Parser;
use flysch_lab::{Job, LabError, QemuDevice};
use flysch_rig::{GuestDevice, guest_device, size};
use serde_json::{Value, json};

use super::console::Console;
use super::{KernelName, open_or_build};
use crate::cleanup;
use crate::failure::Failure;
use crate::file::read_text;
use crate::output::Output;
use crate::serve::{self, On, Order, Remote};

/// Options of `flysch lab linux`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Devices: the models `ufs`, `nvme`, `ahci`, `emmc`, `sd` with their keys, including faults, presented
over vfio-user to QEMU 11 or later; and one of QEMU's own, `ufs@qemu` and so on. Their drivers are
loaded. The guest runs under software emulation, without root, KVM or kernel modules; its disk is
discarded at the end, /share is kept. In its bash `flysch-ctl [DEVICE] inject KIND:WHEN`,
`power-cut`, `power-on`, `reset`, `remove` and `status` act on a model as `flysch serve-ctl` does;
DEVICE counts models from 0.
The exit status is the script's. A shell ends with `exit`; Ctrl-A X switches the machine off.
Examples:
  flysch lab linux --on ufs
  flysch lab linux --on nvme,size=1G --kernel backports --script try.sh --share .
  flysch lab linux --on ufs,faults=timeout:n100 -- 'dd if=/dev/sda of=/dev/null bs=4k; dmesg'
  flysch lab linux --on emmc@qemu --share jobs -- 'fio /share/job.fio'")]
pub(super) struct Arguments {
    /// A device of the guest; may be given more than once.
    #[arg(long = "on", value_name = "TARGET")]
    targets: Vec<On>,
    /// The guest's kernel.
    #[arg(long, value_name = "KERNEL", default_value = "release")]
    kernel: KernelName,
    /// A bash script to run as root; `-` is standard input. Without one, start a shell.
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    script: Option<PathBuf>,
    /// A command for bash.
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<String>,
    /// A folder of this machine that the guest sees as /share, and may modify.
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// The guest's memory.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_memory)]
    memory: u32,
    /// The guest's processors.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
    processors: u32,
    /// End a script after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,
    /// Additional words for the kernel's command line.
    #[arg(long, value_name = "WORDS", default_value = "")]
    append: String,
    /// Load no drivers: a script does so, with its own parameters.
    #[arg(long)]
    no_drivers: bool,
    /// The QEMU to start; default: FLYSCH_QEMU, or qemu-system-x86_64.
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,
}

/// Whole MiB, from 256 MiB up to what a q35 machine has below 4 GiB.
fn parse_memory(text: &str) -> Result<u32, String> {
    let mib = size::parse(text).map(|bytes| bytes >> 20);
    match mib.and_then(|mib| u32::try_from(mib).ok()) {
        Some(mib @ 256..=2047) => Ok(mib),
        _ => Err(format!("`{text}`: it must be 256M to 2047M")),
    }
}

/// What the guest should do.
enum Work {
    Shell,
    Script(String),
}

/// Boots the guest, and waits for its end.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let work = arguments.work()?;
    if output.json() && matches!(work, Work::Shell) {
        return Err(Failure::usage("a shell cannot give JSON: name a script"));
    }
    let scratch = tempfile::tempdir().map_err(Failure::failed)?;
    let share = match &arguments.share {
        Some(folder) if !folder.is_dir() => {
            return Err(Failure::of(format!("--share {}", folder.display()), "not a folder"));
        }
        Some(folder) => folder.canonicalize().map_err(|why| Failure::of(folder.display(), why))?,
        None => {
            let folder = scratch.path().join("share");
            fs::create_dir(&folder).map_err(Failure::failed)?;
            folder
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    let is_stopping = Arc::clone(&stop);
    cleanup::end_by(move || is_stopping.store(true, Ordering::SeqCst));
    let mut devices = Devices::open(&arguments.targets, scratch.path())?;
    let lab = open_or_build(arguments.kernel.into())?;
    let console = Console::open();
    let (script, timeout) = match &work {
        Work::Shell => (console.shell(&devices.names), Duration::MAX),
        Work::Script(script) => (script.clone(), Duration::from_secs(arguments.timeout)),
    };
    let script = format!("{}\n{}\n{script}", super::console::CONTROL, arguments.drivers());
    let job = Job {
        devices: &devices.attached,
        processors: arguments.processors,
        memory_mib: arguments.memory,
        kernel_words: &arguments.append,
        program: arguments.qemu.clone().or_else(|| devices.program()),
        terminal: matches!(work, Work::Shell),
        timeout,
        ..Job::new(&script, &share)
    };
    let mut told = Told::new(&job, &work, output);
    let done = lab.run_while(&job, &mut || {
        devices.obey(&share);
        told.more();
        !stop.load(Ordering::SeqCst)
    });
    drop(console);
    let written = told.written();
    devices.end(&share);
    let done = match done {
        Err(LabError::Stopped) => {
            return Err(Failure::Status { status: 130, line: Some("interrupted".into()) });
        }
        done => done.map_err(Failure::failed)?,
    };
    written?;
    if output.json() {
        output.value(&json!({
            "status": done.status, "output": done.output, "console": done.console,
            "devices": devices.said,
        }))?;
    }
    match u8::try_from(done.status) {
        Ok(0) => Ok(()),
        status => Err(Failure::Status { status: status.unwrap_or(1), line: None }),
    }
}

impl Arguments {
    fn work(&self) -> Result<Work, Failure> {
        if !self.words.is_empty() {
            return Ok(Work::Script(self.words.join(" ")));
        }
        match &self.script {
            Some(path) if path != Path::new("-") => read_text(path).map(Work::Script),
            None if std::io::stdin().is_terminal() => Ok(Work::Shell),
            _ => {
                let mut script = String::new();
                std::io::stdin()
                    .read_to_string(&mut script)
                    .map_err(|why| Failure::of("standard input", why))?;
                Ok(Work::Script(script))
            }
        }
    }

    /// Shell lines that load the drivers of all devices, and wait for their disks.
    fn drivers(&self) -> String {
        match self.no_drivers {
            true => String::new(),
            false => format!("devices={}\n{}", self.targets.len(), super::console::DRIVERS),
        }
    }
}

/// A served model.
struct Serving {
    name: String,
    remote: Remote,
    /// Returns its reports.
    thread: JoinHandle<Vec<Value>>,
}

/// The devices of the guest.
#[derive(Default)]
struct Devices {
    attached: Vec<QemuDevice>,
    names: Vec<String>,
    served: Vec<Serving>,
    made: Vec<GuestDevice>,
    /// The reports of the models, once they have ended.
    said: Vec<Value>,
}

impl Devices {
    fn open(targets: &[On], folder: &Path) -> Result<Self, Failure> {
        let mut all = Self::default();
        for (index, on) in targets.iter().enumerate() {
            all.names.push(on.text.clone());
            if let Some(device) = guest_device(&on.target)? {
                if !all.made.is_empty() {
                    return Err(Failure::usage(format!(
                        "--on {}: a guest can have only one of QEMU's own devices",
                        on.text
                    )));
                }
                all.attached.push(QemuDevice::Own(device.options.clone()));
                all.made.push(device);
                continue;
            }
            let socket = folder.join(format!("device{index}.sock"));
            let (device, remote) =
                serve::Device::open(on, &socket).map_err(|why| why.on(&on.text))?;
            let (ready, is_ready) = channel();
            let thread = std::thread::spawn(move || {
                let mut said = Vec::new();
                let _ = device.run(&mut |line| {
                    let _ = ready.send(());
                    said.push(line.clone());
                    Ok(())
                });
                said
            });
            let _ = is_ready.recv();
            all.attached.push(QemuDevice::Served(socket));
            all.served.push(Serving { name: on.text.clone(), remote, thread });
        }
        Ok(all)
    }

    /// The QEMU named by a target.
    fn program(&self) -> Option<PathBuf> {
        self.made.iter().find_map(|device| device.options.program.clone())
    }

    /// Executes the guest's requests: see [`CONTROL`](super::console::CONTROL).
    fn obey(&self, share: &Path) {
        let (order, answer) = (share.join(".flysch-order"), share.join(".flysch-answer"));
        let Ok(words) = fs::read_to_string(&order) else { return };
        let _ = fs::remove_file(&order);
        let said = match self.order(&words) {
            Ok(done) => done,
            Err(why) => format!("error: {why}"),
        };
        let whole = share.join(".flysch-answer.new");
        if fs::write(&whole, said + "\n").is_ok() {
            let _ = fs::rename(whole, answer);
        }
    }

    fn order(&self, words: &str) -> Result<String, String> {
        let mut words: Vec<&str> = words.split_whitespace().collect();
        let index = words.first().and_then(|word| word.parse::<usize>().ok());
        if index.is_some() {
            words.remove(0);
        }
        let models = self.served.len();
        let Serving { remote, .. } =
            self.served.get(index.unwrap_or(0)).ok_or_else(|| match models {
                0 => "no device is a model of ours".to_owned(),
                _ => format!("models are numbered from 0 to {}", models - 1),
            })?;
        let asked = match Asked::try_parse_from(std::iter::once("flysch-ctl").chain(words)) {
            Ok(asked) => asked,
            Err(help) if !help.use_stderr() => return Ok(help.to_string()),
            Err(why) => {
                let why = why.to_string();
                return Err(why.strip_prefix("error: ").unwrap_or(&why).trim_end().to_owned());
            }
        };
        let done = remote.order(asked.order);
        match done.get("error").and_then(Value::as_str) {
            Some(why) => Err(why.into()),
            None => Ok(serve::words(&done)),
        }
    }

    /// The machine has ended: its files stay, the models end, and an order that came too late is
    /// dropped.
    fn end(&mut self, share: &Path) {
        for name in [".flysch-order", ".flysch-answer"] {
            let _ = fs::remove_file(share.join(name));
            let _ = fs::remove_file(share.join(format!("{name}.new")));
        }
        self.made.drain(..).for_each(GuestDevice::keep);
        for Serving { name, remote, thread } in self.served.drain(..) {
            remote.end();
            let said = thread.join().unwrap_or_default();
            self.said.push(json!({ "device": name, "events": said }));
        }
    }
}

/// Words of the guest.
#[derive(Debug, clap::Parser)]
#[command(name = "flysch-ctl [DEVICE]")]
struct Asked {
    #[command(subcommand)]
    order: Order,
}

/// Shows a script's output while it runs.
struct Told {
    path: PathBuf,
    shown: u64,
    is_shown: bool,
    failed: Option<std::io::Error>,
}

impl Told {
    fn new(job: &Job<'_>, work: &Work, output: &Output) -> Self {
        let is_shown = matches!(work, Work::Script(_)) && !output.json();
        Self { path: job.output(), shown: 0, is_shown, failed: None }
    }

    fn more(&mut self) {
        if !self.is_shown || self.failed.is_some() {
            return;
        }
        // The guest makes it when its script begins.
        let Ok(mut file) = File::open(&self.path) else { return };
        let mut bytes = Vec::new();
        if file.seek(SeekFrom::Start(self.shown)).is_err() || file.read_to_end(&mut bytes).is_err()
        {
            return;
        }
        self.shown += bytes.len() as u64;
        let mut stdout = std::io::stdout().lock();
        self.failed = stdout.write_all(&bytes).and_then(|()| stdout.flush()).err();
    }

    fn written(self) -> Result<(), Failure> {
        self.failed.map_or(Ok(()), |why| Err(why.into()))
    }
}
