//! `flysch export`: the disk of a target for programs and virtual machines, over NBD or vhost-user,
//! and for this machine's Linux, through ublk.

use std::fmt;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;

use flysch_api::block::{BlockDevice, BlockGeometry};
use flysch_api::count::counted;
use flysch_api::machine::Clock;
use flysch_export::{Counts, Event, Handle, Server};
use flysch_files::SocketFile;
use flysch_nbd::{Export, Listener, Tls};
use flysch_rig::{Needs, Visitor, blocks, size};
use flysch_ublk::{Control, Settings};
use flysch_vhost_user::Disk as VirtioDisk;
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use serde_json::{Value, json};

use crate::cleanup;
use crate::failure::Failure;
use crate::geom::{Disk, On};
use crate::output::{self, Output};
use crate::place::Place;

/// Options of `flysch export`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("door").required(true).args(["nbd", "vhost_user", "ublk"]))]
#[command(after_help = "\
All NBD clients see the same disk: QEMU, qemu-img, nbdcopy, fio's nbd engine, Linux's
nbd-client. vhost-user makes it the virtio disk of one virtual machine, whose memory must be
shared. ublk makes it a disk of this machine, /dev/ublkbN, which only root can do; the module
ublk_drv has to be loaded.
The command ends on SIGTERM or Ctrl-C: requests in flight are finished, and the disk is flushed.
Anyone who can reach the socket can read and write the disk. Without --tls-certificates TCP is
neither encrypted nor authenticated: listen on 127.0.0.1 or in a network that you trust.
Examples:
  flysch export ufs,image=lu0.img --nbd unix:disk.sock
  qemu-img convert -O raw 'nbd+unix:///?socket=disk.sock' copy.img
  flysch export rig.toml:mirror/gm0 --nbd unix:disk.sock
  nbdcopy -- [ flysch export rig.toml:mirror/gm0 --nbd systemd ] copy.img
  flysch export file:disk.img --nbd tcp:127.0.0.1:10809 --name disk --read-only
  flysch export file:disk.img --nbd tcp:0.0.0.0:10809 --tls-certificates /etc/pki/qemu
  flysch export nvme,size=4G --vhost-user vub.sock
  qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=m0,size=1G,share=on \\
    -machine memory-backend=m0 -chardev socket,id=c0,path=vub.sock,reconnect-ms=500 \\
    -device vhost-user-blk-pci,chardev=c0,num-queues=2 ...
  flysch export nvme,size=4G --ublk
  flysch export file:disk.img --ublk=3 --ublk-recover")]
pub(crate) struct Arguments {
    /// What to export: a target (see `flysch targets`) or a provider of a rig.
    #[arg(value_name = "TARGET|RIG:PROVIDER")]
    target: On,
    /// Where clients connect: `unix:PATH`, `tcp:HOST:PORT`, or `systemd` for the sockets that
    /// systemd or a client of libnbd passes; may be given more than once.
    #[arg(long, value_name = "WHERE")]
    nbd: Vec<Where>,
    /// A socket for the virtio disk of a virtual machine (vhost-user-blk).
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<PathBuf>,
    /// A disk of this machine: /dev/ublkbN, with this number or the next free one.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    ublk: Option<Option<u32>>,
    /// Queues of the disk.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["nbd", "vhost_user"])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=16))]
    ublk_queues: u16,
    /// Requests of each queue.
    #[arg(long, value_name = "N", default_value_t = 64, conflicts_with_all = ["nbd", "vhost_user"])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    ublk_depth: u16,
    /// Keep the disk if the command is killed; its requests wait until the command is given again.
    /// Take over from a killed one.
    #[arg(long, conflicts_with_all = ["nbd", "vhost_user"])]
    ublk_recover: bool,
    /// The export's name; clients that ask for no name get it as well. For a virtual machine it is
    /// the serial number, of which 20 bytes are visible.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_name)]
    name: String,
    /// Encrypt NBD with ca-cert.pem, server-cert.pem and server-key.pem in this folder, and
    /// ca-crl.pem if it exists (QEMU's names).
    #[arg(long, value_name = "DIR", requires = "nbd")]
    tls_certificates: Option<PathBuf>,
    /// Also serve clients that do not ask for TLS.
    #[arg(long, requires = "tls_certificates")]
    tls_optional: bool,
    /// Admit clients without a certificate signed by ca-cert.pem's authority.
    #[arg(long, requires = "tls_certificates")]
    tls_any_client: bool,
    /// Refuse writes.
    #[arg(long)]
    read_only: bool,
}

impl Arguments {
    fn has_passed_sockets(&self) -> bool {
        self.nbd.iter().any(|place| matches!(place, Where::Passed))
    }
}

/// NBD limits strings to 4096 bytes.
fn parse_name(text: &str) -> Result<String, String> {
    match text.len() {
        0..=4096 => Ok(text.to_owned()),
        length => Err(format!("it has {length} bytes, but NBD takes 4096 at most")),
    }
}

/// Exports until a signal comes.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let tls = arguments
        .tls_certificates
        .as_ref()
        .map(|folder| Tls::load(folder, !arguments.tls_optional, !arguments.tls_any_client));
    let tls = tls.transpose().map_err(Failure::failed)?;
    // A client that starts its server may send the disk to the standard output they share.
    if arguments.has_passed_sockets() {
        output.give_away();
    }
    // The sockets first: if one is taken, no image is made.
    let mut files = Vec::new();
    let (mut door, places) = Door::open(arguments, tls, &mut files)?;
    let mut stack = Disk::open(&arguments.target, &door.needs(), None)?;
    let server = Server::new().map_err(Failure::failed)?;
    let handle = server.handle();
    cleanup::end_by(move || handle.stop());
    let geometry = stack.geometry();
    let geometry =
        BlockGeometry { read_only: geometry.read_only || arguments.read_only, ..geometry };
    let ready = ready(&geometry, &door, &arguments.name, &places);
    if !matches!(door, Door::Ublk(..)) {
        tell(output, &ready)?;
    }
    let description = stack.description().to_owned();
    let (name, description) = (arguments.name.as_str(), description.as_str());
    let door = &mut door;
    let serve = Serve { server: &server, door, geometry, name, description, ready, output };
    let (counts, served) = stack.visit(serve);
    drop(files);
    served.map_err(|failure| failure.behind(stack.description(), stack.failure()))?;
    if !geometry.read_only {
        stack.blocks().flush().map_err(Failure::failed)?;
    }
    stack.keep();
    tell(output, &ended(&counts, &stack))
}

/// Where clients of NBD connect.
#[derive(Clone, Debug)]
enum Where {
    At(Place),
    /// At sockets that whoever started this process has opened: sd_listen_fds(3).
    Passed,
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "systemd" => Ok(Self::Passed),
            _ => text.parse().map(Self::At),
        }
    }
}

/// The sockets that were passed to this process, all of which have to be listening.
fn passed() -> Result<Vec<(Listener, String)>, Failure> {
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    if count == 0 {
        return Err(Failure::failed(
            "--nbd systemd: no socket was passed (LISTEN_FDS); start it from a socket unit of \
             systemd, or as a server of libnbd: nbdinfo -- [ flysch export ... --nbd systemd ]",
        ));
    }
    let listener = |index: usize| {
        let unix = passed.take_unix_listener(index);
        let listener = match unix.ok().flatten().map(Listener::Unix) {
            Some(listener) => Ok(Some(listener)),
            None => passed.take_tcp_listener(index).map(|it| it.map(Listener::Tcp)),
        };
        let name = format!("passed:{index}");
        let listener = listener.map_err(|error| Failure::of(&name, error))?;
        match listener.filter(|it| socket_acceptconn(it).unwrap_or(false)) {
            Some(listener) => Ok((listener, name)),
            None => Err(Failure::failed(format!("{name}: the socket does not listen"))),
        }
    };
    (0..count).map(listener).collect()
}

/// A listener, and its final address.
fn listen(place: &Place, files: &mut Vec<SocketFile>) -> Result<(Listener, Place), Failure> {
    match place {
        Place::Unix(path) => {
            let (file, listener) = SocketFile::bind(path).map_err(Failure::failed)?;
            files.push(file);
            Ok((Listener::Unix(listener), place.clone()))
        }
        Place::Tcp(address) => {
            let listener = TcpListener::bind(address).map_err(|error| Failure::of(place, error))?;
            // Port 0 is any port.
            let bound = listener.local_addr().map_err(|error| Failure::of(place, error))?;
            Ok((Listener::Tcp(listener), Place::Tcp(bound.to_string())))
        }
    }
}

/// What clients speak, and where they connect.
enum Door {
    Nbd {
        listeners: Vec<Listener>,
        tls: Option<Tls>,
        /// The listeners belong to whoever started this process, and can start another.
        passed: bool,
    },
    VhostUser(UnixListener),
    Ublk(Box<Control>, Settings),
}

impl Door {
    /// Opens the sockets; returns their final addresses.
    fn open(
        arguments: &Arguments,
        tls: Option<Tls>,
        files: &mut Vec<SocketFile>,
    ) -> Result<(Self, Vec<String>), Failure> {
        if let Some(id) = arguments.ublk {
            let settings = Settings {
                id,
                queues: arguments.ublk_queues,
                depth: arguments.ublk_depth,
                recover: arguments.ublk_recover,
            };
            let control = Control::open().map_err(Failure::failed)?;
            return Ok((Self::Ublk(Box::new(control), settings), Vec::new()));
        }
        if let Some(path) = &arguments.vhost_user {
            let (file, listener) = SocketFile::bind(path).map_err(Failure::failed)?;
            files.push(file);
            return Ok((Self::VhostUser(listener), vec![path.display().to_string()]));
        }
        let mut opened = Vec::new();
        let passed = arguments.has_passed_sockets();
        for place in &arguments.nbd {
            match place {
                Where::At(place) => {
                    let (listener, place) = listen(place, files)?;
                    opened.push((listener, place.to_string()));
                }
                Where::Passed => opened.extend(self::passed()?),
            }
        }
        let (listeners, places) = opened.into_iter().unzip();
        Ok((Self::Nbd { listeners, tls, passed }, places))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Nbd { .. } => "nbd",
            Self::VhostUser(_) => "vhost-user",
            Self::Ublk(..) => "ublk",
        }
    }

    /// Memory for as many requests in flight as the disk takes.
    fn needs(&self) -> Needs {
        let memory = match self {
            Self::Ublk(_, settings) => flysch_ublk::memory_for(settings),
            _ => blocks::MEMORY * 2,
        };
        Needs { memory, queue_depth: 64, ..Needs::default() }
    }
}

fn ready(geometry: &BlockGeometry, door: &Door, name: &str, places: &[String]) -> Value {
    let mut line = json!({
        "event": "ready",
        "name": name,
        "bytes": geometry.bytes(),
        "block_size": geometry.block_size,
        "read_only": geometry.read_only,
        "trim": geometry.can_delete,
    });
    line[door.name()] = places.into();
    line
}

fn ended(counts: &Counts, stack: &Disk) -> Value {
    let mut line = done(counts);
    line["event"] = "ended".into();
    line["incidents"] = output::incidents(&stack.incidents());
    line
}

fn done(counts: &Counts) -> Value {
    json!({
        "reads": counts.reads,
        "bytes_read": counts.bytes_read,
        "writes": counts.writes,
        "bytes_written": counts.bytes_written,
        "flushes": counts.flushes,
        "trims": counts.trims,
        "failed": counts.failed,
    })
}

/// The server, whatever the target is.
struct Serve<'a> {
    server: &'a Server,
    door: &'a mut Door,
    geometry: BlockGeometry,
    name: &'a str,
    description: &'a str,
    /// What is reported when clients can connect.
    ready: Value,
    output: &'a mut Output,
}

impl Visitor for Serve<'_> {
    type Output = (Counts, Result<(), Failure>);

    fn visit<D: BlockDevice, C: Clock>(self, lanes: &mut [D], clock: &C) -> Self::Output {
        let (lane, server) = (&mut lanes[0], self.server);
        let end = matches!(self.door, Door::Nbd { passed: true, .. }).then(|| server.handle());
        let mut log = Log::new(self.output, end);
        let served = match self.door {
            Door::Nbd { listeners, tls, .. } => {
                let mut export = Export::new(&self.geometry, self.name, self.description);
                export.tls.clone_from(tls);
                let clients = flysch_nbd::Server::new(listeners, &export, |event| log.take(event));
                let served = clients.and_then(|mut clients| server.run(&mut clients, lane, clock));
                served.map_err(Failure::failed)
            }
            Door::VhostUser(listener) => {
                let disk = VirtioDisk::new(&self.geometry, self.name);
                let client =
                    flysch_vhost_user::Server::new(listener, &disk, |event| log.take(event));
                let served = client.and_then(|mut client| server.run(&mut client, lane, clock));
                served.map_err(Failure::failed)
            }
            Door::Ublk(control, settings) => {
                let shape = flysch_ublk::Disk::new(&self.geometry, *settings);
                let (memory, handle) = (lane.memory().clone(), server.handle());
                let mut ready = self.ready;
                let told = |event: &flysch_ublk::Event| log.take_ublk(event, &mut ready);
                let disk = flysch_ublk::Server::new(control, shape, memory, handle, told);
                disk.map_err(Failure::failed).and_then(|mut disk| {
                    let served = server.run_on(&disk.terms(), &mut disk, lane, clock);
                    let closed = disk.close().map_err(Failure::failed);
                    served.map_err(Failure::failed).and(closed)
                })
            }
        };
        (log.all, served.and(log.told))
    }
}

/// What is reported while it runs.
struct Log<'a> {
    output: &'a mut Output,
    all: Counts,
    told: Result<(), Failure>,
    clients: usize,
    /// Ends the server when its last client has gone, as qemu-nbd does: a client that started it
    /// and died leaves nothing behind, and systemd starts it again for the next one.
    end: Option<Handle>,
}

impl<'a> Log<'a> {
    fn new(output: &'a mut Output, end: Option<Handle>) -> Self {
        Self { output, all: Counts::default(), told: Ok(()), clients: 0, end }
    }

    fn take<E: fmt::Display>(&mut self, event: &Event<E>) {
        match event {
            Event::Connected(..) => self.clients += 1,
            Event::Gone(_, _, counts) => {
                self.all.add(counts);
                self.clients -= 1;
                if let Some(handle) = self.end.as_ref().filter(|_| self.clients == 0) {
                    handle.stop();
                }
            }
            _ => {}
        }
        if self.told.is_ok() {
            self.told = tell(self.output, &event_line(event));
        }
    }

    /// The kernel is the only client; the disk exists once the kernel has read its partitions.
    fn take_ublk(&mut self, event: &flysch_ublk::Event, ready: &mut Value) {
        match event {
            Event::Connected(_, path) => {
                ready["ublk"] = json!([path]);
                if self.told.is_ok() {
                    self.told = tell(self.output, ready);
                }
            }
            Event::Gone(_, flysch_ublk::Ended::Stopped, counts) => self.all.add(counts),
            Event::Gone(_, why, counts) => {
                self.all.add(counts);
                self.told = Err(Failure::failed(why));
            }
            other => self.take(other),
        }
    }
}

fn event_line<E: fmt::Display>(event: &Event<E>) -> Value {
    match event {
        Event::Connected(client, who) => {
            json!({ "event": "connected", "client": client, "who": who })
        }
        Event::Busy(who) => json!({ "event": "busy", "who": who, "why": "too many clients" }),
        Event::Trouble(client, what) => {
            json!({ "event": "trouble", "client": client, "what": what })
        }
        Event::Gone(client, why, counts) => {
            let mut line = done(counts);
            line["event"] = "gone".into();
            line["client"] = (*client).into();
            line["why"] = why.to_string().into();
            line
        }
    }
}

fn tell(output: &mut Output, line: &Value) -> Result<(), Failure> {
    output.event(line, words)
}

fn words(line: &Value) -> String {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let number = |key: &str| line[key].as_u64().unwrap_or_default();
    match text("event") {
        "ready" => {
            let places = ["nbd", "vhost-user", "ublk"].map(|door| line[door].as_array());
            let places = places.into_iter().flatten().flatten().filter_map(Value::as_str);
            let places = places.collect::<Vec<_>>().join(" and ");
            let name = match text("name") {
                "" => String::new(),
                name => format!("`{name}`, "),
            };
            let what = if line["read_only"] == true { ", read only" } else { "" };
            let (bytes, block) = (size::display(number("bytes")), number("block_size"));
            format!("exporting {name}{bytes} in blocks of {block} bytes{what}, at {places}")
        }
        "connected" => format!("client {}: connected, {}", number("client"), text("who")),
        "busy" => format!("turned away: {}, there are {}", text("who"), text("why")),
        "trouble" => format!("client {}: {}", number("client"), text("what")),
        "gone" => {
            let (client, why) = (number("client"), text("why"));
            format!("client {client}: {why}; {}", sums(line))
        }
        _ => {
            let incidents = output::incident_words(&line["incidents"]);
            let incidents: String = incidents.iter().map(|one| format!("; {one}")).collect();
            format!("ended; {}{incidents}", sums(line))
        }
    }
}

/// What was done, in words.
fn sums(line: &Value) -> String {
    let number = |key: &str| line[key].as_u64().unwrap_or_default();
    let (reads, writes) = (number("reads"), number("writes"));
    let (read, written) = (number("bytes_read"), number("bytes_written"));
    let mut parts = vec![
        format!("{} ({})", counted(reads, "read", "reads"), size::display(read)),
        format!("{} ({})", counted(writes, "write", "writes"), size::display(written)),
        counted(number("flushes"), "flush", "flushes").to_string(),
    ];
    if number("trims") > 0 {
        parts.push(counted(number("trims"), "trim", "trims").to_string());
    }
    if number("failed") > 0 {
        parts.push(format!("{} failed", number("failed")));
    }
    parts.join(", ")
}
