//! `flysch serve`: modelled devices as PCI functions over vfio-user, and `flysch serve-ctl`, which
//! acts on them while they are in use.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use flysch_files::SocketFile;
use flysch_rig::{
    AhciTarget, ClockKind, EmmcTarget, NvmeTarget, ParseError, Served, Target, UfsTarget,
};
use flysch_vfio_user::{Counts, Event, Handle, Server, Turn};
use serde_json::{Value, json};

use crate::cleanup;
use crate::failure::Failure;
use crate::output::{self, Output};

mod control;

pub(crate) use control::{Arguments as ControlArguments, Order, run as control};

/// Options of `flysch serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The client is a virtual machine monitor; QEMU 11 or later takes the device with
  -object memory-backend-memfd,id=m0,size=1G,share=on -machine memory-backend=m0 -m 1G
  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"SOCKET\"}}'
The guest's own driver (Linux: ufshcd-pci, nvme, ahci, sdhci-pci) finds it. `flysch serve-ctl`
injects faults meanwhile, over SOCKET.ctl. The command ends on SIGTERM or Ctrl-C and removes its
sockets.
A client opens one socket per function. One process can serve several functions, each with its own
socket and thread. They are functions of one device if QEMU's -device has
\"addr\":\"10.0\",\"multifunction\":true for the first and \"addr\":\"10.1\" for the next.
  flysch serve ufs,mcq=4 --socket ufs.sock nvme --socket nvme.sock")]
pub(crate) struct Arguments {
    /// A device: `ufs`, `nvme`, `ahci`, `emmc` or `sd` with its keys. Time is real; fault counts
    /// start at power-on.
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<On>,
    /// The socket to create; one for each device, in the same order.
    #[arg(long = "socket", value_name = "PATH", required = true)]
    sockets: Vec<PathBuf>,
}

/// A target, and its text as given.
#[derive(Clone, Debug)]
pub(crate) struct On {
    pub(crate) text: String,
    pub(crate) target: Target,
}

impl FromStr for On {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Ok(Self { text: text.to_owned(), target: text.parse()? })
    }
}

/// What arrived on a control connection, and where the answer goes.
type Asked = (Order, Sender<Value>);

/// Serves until a signal comes.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let Arguments { targets, sockets } = arguments;
    if targets.len() != sockets.len() {
        let (devices, sockets) = (targets.len(), sockets.len());
        return Err(Failure::usage(format!(
            "each device needs a socket of its own: there are {devices} TARGETs, but {sockets} of \
             --socket"
        )));
    }
    let mut paths = HashSet::new();
    for path in sockets {
        for path in [path.clone(), control_path(path)] {
            if let Some(twice) = paths.replace(path) {
                let twice = twice.display();
                return Err(Failure::usage(format!("--socket: {twice} is named twice")));
            }
        }
    }
    let opened = targets.iter().zip(sockets).map(|(on, path)| Device::open(on, path));
    let (devices, remotes): (Vec<_>, Vec<_>) =
        opened.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let ends = remotes.clone();
    cleanup::end_by(move || ends.iter().for_each(Remote::end));
    run_all(devices, &remotes, &mut |line| tell(output, line))
}

/// Serves each device in its own thread until one of them ends, which ends them all. `tell`
/// receives the events and, if there are several devices, which one is meant.
fn run_all(
    devices: Vec<Device>,
    remotes: &[Remote],
    tell: &mut dyn FnMut(&Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let is_one_of_several = devices.len() > 1;
    let (sender, lines) = channel();
    std::thread::scope(|scope| {
        let start = |device: Device| {
            let sender = sender.clone();
            let name = is_one_of_several.then(|| device.socket.path().display().to_string());
            scope.spawn(move || {
                let ended = device.run(&mut |line| {
                    let mut line = line.clone();
                    if let Some(name) = &name {
                        line["socket"] = name.as_str().into();
                    }
                    // Nobody listens any more: it is being ended.
                    let _ = sender.send(line);
                    Ok(())
                });
                remotes.iter().for_each(Remote::end);
                ended
            })
        };
        let threads: Vec<_> = devices.into_iter().map(start).collect();
        drop(sender);
        // Who cannot be told is served all the same.
        let mut told = Ok(());
        for line in lines {
            told = told.and_then(|()| tell(&line));
        }
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        told
    })
}

/// A modelled device, ready to be served.
pub(crate) struct Device {
    function: Box<dyn Served>,
    server: Server,
    orders: Receiver<Asked>,
    remote: Remote,
    socket: SocketFile,
    control: SocketFile,
}

/// Acts on a served device.
#[derive(Clone)]
pub(crate) struct Remote {
    orders: Sender<Asked>,
    server: Handle,
    stop: Arc<AtomicBool>,
}

impl Remote {
    /// Ends the server.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.server.wake();
    }

    /// Acts on the device; returns the result.
    pub(crate) fn order(&self, order: Order) -> Value {
        let (sender, answer) = channel();
        let _ = self.orders.send((order, sender));
        self.server.wake();
        answer.recv().unwrap_or(json!({ "error": "the server has ended" }))
    }
}

impl Device {
    /// Creates the device and its sockets.
    pub(crate) fn open(on: &On, path: &Path) -> Result<(Self, Remote), Failure> {
        let On { text, target } = on;
        let (Target::Ufs(UfsTarget { clock, .. })
        | Target::Nvme(NvmeTarget { clock, .. })
        | Target::Ahci(AhciTarget { clock, .. })
        | Target::Emmc(EmmcTarget { clock, .. })) = target
        else {
            return Err(Failure::usage(format!(
                "{text}: only a modelled device can be served: `ufs`, `nvme`, `ahci`, `emmc` or \
                 `sd` and its keys"
            )));
        };
        if *clock == ClockKind::Virtual {
            return Err(Failure::usage(format!(
                "{text}: a served device runs in real time: leave `clock=` out"
            )));
        }
        let (socket, listener) = SocketFile::bind(path).map_err(Failure::failed)?;
        let server = Server::new(listener).map_err(Failure::failed)?;
        let (control, listener) = SocketFile::bind(&control_path(path)).map_err(Failure::failed)?;
        let Some(function) = flysch_rig::serve(target)? else {
            unreachable!("it is a modelled device")
        };
        let (sender, orders) = channel();
        let (handle, stop) = (server.handle(), Arc::new(AtomicBool::new(false)));
        let remote = Remote { orders: sender, server: handle, stop };
        let answering = remote.clone();
        std::thread::spawn(move || control::answer(&listener, &answering));
        let device = Self { function, server, orders, remote: remote.clone(), socket, control };
        Ok((device, remote))
    }

    /// Serves until it is ended; `tell` receives the events, starting with readiness.
    pub(crate) fn run(
        self,
        tell: &mut dyn FnMut(&Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self { mut function, server, orders, remote, socket, control } = self;
        let function = &mut *function;
        tell(&json!({
            "event": "ready",
            "socket": socket.path().display().to_string(),
            "control": control.path().display().to_string(),
        }))?;
        let mut told = Ok(());
        let woken = |function: &mut (dyn Served + 'static), client| {
            turn(function, client, &orders, &remote)
        };
        let served = server.run(function, woken, |event| {
            if told.is_ok() {
                told = tell(&event_line(event));
            }
        });
        drop(control);
        served.map_err(|error| Failure::of(socket.path().display(), error))?;
        told?;
        tell(&status(function, "ended", None))
    }
}

/// The socket of `flysch serve-ctl` for the device served at `socket`.
fn control_path(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".ctl");
    name.into()
}

/// What to do after the server has been woken.
fn turn(
    function: &mut (dyn Served + 'static),
    client: Option<Counts>,
    orders: &Receiver<Asked>,
    remote: &Remote,
) -> Turn {
    let mut turn = Turn::Continue;
    while let Ok((order, answer)) = orders.try_recv() {
        let (done, then) = order.execute(function, client);
        // Whoever asked may have gone.
        let _ = answer.send(done);
        if then != Turn::Continue {
            turn = then;
        }
    }
    if remote.stop.load(Ordering::SeqCst) { Turn::Stop } else { turn }
}

/// What has happened to the device, and what the connected client has sent.
fn status(function: &dyn Served, event: &str, client: Option<Counts>) -> Value {
    let mut line = json!({
        "event": event,
        "incidents": output::incidents(&function.incidents()),
        "failure": function.failure(),
    });
    add_counts(&mut line, client);
    line
}

fn add_counts(line: &mut Value, counts: Option<Counts>) {
    let Some(Counts { reads, writes, unmasks, maps, resets, refused }) = counts else { return };
    for (name, count) in [
        ("reads", reads),
        ("writes", writes),
        ("unmasks", unmasks),
        ("maps", maps),
        ("resets", resets),
        ("refused", refused),
    ] {
        line[name] = count.into();
    }
}

fn event_line(event: &Event) -> Value {
    match event {
        Event::Connected(process) => json!({ "event": "connected", "process": process }),
        Event::Busy => json!({ "event": "busy", "why": "another client is connected" }),
        Event::Refused(words) => json!({ "event": "refused", "why": words }),
        Event::Gone(why, counts) => {
            let mut line = json!({ "event": "gone", "why": why });
            add_counts(&mut line, Some(*counts));
            line
        }
    }
}

fn tell(output: &mut Output, line: &Value) -> Result<(), Failure> {
    output.event(line, words)
}

/// A line for people: what happened, followed by the details.
pub(crate) fn words(line: &Value) -> String {
    let event = line.get("event").and_then(Value::as_str).map(str::to_owned);
    let others = line.as_object().into_iter().flatten().filter(|(key, _)| *key != "event");
    let others = others.filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::Bool(true) => Some(key.clone()),
        Value::String(words) => Some(format!("{key}={words}")),
        Value::Array(_) => {
            let incidents = output::incident_words(value);
            match incidents.is_empty() {
                true => Some(format!("{key}=none")),
                false => Some(format!("{key}={}", incidents.join(", "))),
            }
        }
        other => Some(format!("{key}={other}")),
    });
    event.into_iter().chain(others).collect::<Vec<_>>().join(" ")
}
