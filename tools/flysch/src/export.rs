//! `flysch export`: the disk of a target for programs and machines that speak NBD.

use std::fmt;
use std::net::TcpListener;
use std::path::PathBuf;
use std::str::FromStr;

use flysch_api::block::{Device, Geometry};
use flysch_api::machine::Clock;
use flysch_files::SocketFile;
use flysch_nbd::{Counts, Event, Export, Listener, Server};
use flysch_rig::{Needs, Visitor, blocks, size};
use serde_json::{Value, json};

use crate::cleanup;
use crate::failure::Failure;
use crate::geom::{Disk, On};
use crate::output::{self, Output};

/// Options of `flysch export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every client sees the same disk: QEMU, qemu-img, nbdcopy, fio's nbd engine, Linux's nbd-client.
The command ends by SIGTERM or Ctrl-C: what is under way is finished, and the disk is flushed.
Whoever reaches the socket may read and write the disk: TCP is not encrypted and asks nobody who
he is, so listen on 127.0.0.1 or in a network you trust.
Examples:
  flysch export ufs,image=lu0.img --nbd unix:disk.sock
  qemu-img convert -O raw 'nbd+unix:///?socket=disk.sock' copy.img
  flysch export rig.toml:mirror/gm0 --nbd unix:disk.sock
  flysch export file:disk.img --nbd tcp:127.0.0.1:10809 --name disk --read-only")]
pub(crate) struct Arguments {
    /// What to export: a target, which `flysch targets` lists, or a provider of a rig.
    #[arg(value_name = "TARGET|RIG:PROVIDER")]
    target: On,
    /// Where clients connect: `unix:PATH` or `tcp:HOST:PORT`; may be given more than once.
    #[arg(long, value_name = "WHERE", required = true)]
    nbd: Vec<Place>,
    /// The export's name; clients that give none get it as well.
    #[arg(long, value_name = "NAME", default_value = "", value_parser = parse_name)]
    name: String,
    /// Refuse writes.
    #[arg(long)]
    read_only: bool,
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) if address.contains(':') => Ok(Self::Tcp(address.into())),
            _ => Err(format!("`{text}` is neither unix:PATH nor tcp:HOST:PORT")),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// NBD bounds strings at 4096 bytes.
fn parse_name(text: &str) -> Result<String, String> {
    match text.len() {
        0..=4096 => Ok(text.to_owned()),
        length => Err(format!("--name has {length} bytes, and NBD takes 4096")),
    }
}

/// Exports until a signal comes.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    // The sockets first: if one is taken, no image is made.
    let mut files = Vec::new();
    let mut listeners = Vec::new();
    let mut places = Vec::new();
    for place in &arguments.nbd {
        let (listener, place) = listen(place, &mut files)?;
        listeners.push(listener);
        places.push(place);
    }
    let mut stack = Disk::open(&arguments.target, &needs(), None)?;
    let server = Server::new(listeners).map_err(Failure::failed)?;
    let handle = server.handle();
    cleanup::end_by(move || handle.stop());
    let geometry = stack.geometry();
    let geometry = Geometry { read_only: geometry.read_only || arguments.read_only, ..geometry };
    let export = Export::new(&geometry, &arguments.name, stack.description());
    tell(output, &ready(&export, &places))?;
    let (counts, served) = stack.visit(Serve { server: &server, export: &export, output });
    drop(files);
    served.map_err(|failure| failure.behind(stack.description(), stack.failure()))?;
    if !export.read_only {
        stack.blocks().flush().map_err(Failure::failed)?;
    }
    stack.keep();
    tell(output, &ended(&counts, &stack))
}

/// Memory for as much in flight as the disk takes.
fn needs() -> Needs {
    Needs { memory: blocks::MEMORY * 2, queue_depth: 64, ..Needs::default() }
}

/// A listener, and where it is in the end.
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

fn ready(export: &Export, places: &[Place]) -> Value {
    json!({
        "event": "ready",
        "nbd": places.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "name": export.name,
        "bytes": export.size,
        "block_size": export.block_size,
        "read_only": export.read_only,
        "trim": export.can_trim,
    })
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

/// The server, on whatever the target is.
struct Serve<'a> {
    server: &'a Server,
    export: &'a Export,
    output: &'a mut Output,
}

impl Visitor for Serve<'_> {
    type Output = (Counts, Result<(), Failure>);

    fn visit<D: Device, C: Clock>(self, lanes: &mut [D], clock: &C) -> Self::Output {
        let mut told = Ok(());
        let mut all = Counts::default();
        let log = |event: &Event| {
            if let Event::Gone(_, _, counts) = event {
                all.add(counts);
            }
            if told.is_ok() {
                told = tell(self.output, &event_line(event));
            }
        };
        let served = self.server.run(self.export, &mut lanes[0], clock, log);
        (all, served.map_err(Failure::failed).and(told))
    }
}

fn event_line(event: &Event) -> Value {
    match event {
        Event::Connected(client, who) => {
            json!({ "event": "connected", "client": client, "who": who })
        }
        Event::Busy(who) => json!({ "event": "busy", "who": who, "why": "too many clients" }),
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
            let places = line["nbd"].as_array().into_iter().flatten().filter_map(Value::as_str);
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
        "busy" => format!("sent away: {}, there are {}", text("who"), text("why")),
        "gone" => {
            let (client, why) = (number("client"), text("why"));
            format!("client {client}: {why}; {}", counted(line))
        }
        _ => {
            let incidents = output::incident_words(&line["incidents"]);
            let incidents: String = incidents.iter().map(|one| format!("; {one}")).collect();
            format!("ended; {}{incidents}", counted(line))
        }
    }
}

fn counted(line: &Value) -> String {
    let number = |key: &str| line[key].as_u64().unwrap_or_default();
    let one = |count: u64, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let mut parts = vec![
        format!("{} ({})", one(number("reads"), "read"), size::display(number("bytes_read"))),
        format!("{} ({})", one(number("writes"), "write"), size::display(number("bytes_written"))),
        match number("flushes") {
            1 => "1 flush".to_owned(),
            count => format!("{count} flushes"),
        },
    ];
    if number("trims") > 0 {
        parts.push(one(number("trims"), "trim"));
    }
    if number("failed") > 0 {
        parts.push(format!("{} failed", number("failed")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sockets_of_two_kinds() {
        assert_eq!("unix:a:b".parse(), Ok(Place::Unix("a:b".into())));
        assert_eq!("tcp:[::1]:10809".parse(), Ok(Place::Tcp("[::1]:10809".into())));
        for text in ["", "unix:", "tcp:10809", "disk.sock", "udp:a:1"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
