//! `geom gate`: a provider backed by an NBD server, like ggatec(8).

use std::time::{Duration, Instant};

use flysch_api::block::{self, Cause};
use flysch_api::count::counted;
use flysch_geom::class::gate::{self, Queue, Request, Wanted};
use flysch_geom::{Shape, class};
use flysch_nbd::client::{Client, Remote, TRIM_LONGEST};
use flysch_nbd::wire::{self, Errno, command, transmission};

use super::session::Session;
use super::{list, text};
use crate::failure::Failure;
use crate::output::Output;
use crate::place::Place;

/// How long the server gets in one turn while somebody waits.
const TURN: Duration = Duration::from_millis(100);

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Make a provider of an NBD server's export, for as long as the command runs.
    Create(Create),
    /// Remove gates and everything on them.
    Destroy {
        /// Also if they are open.
        #[arg(short)]
        force: bool,
        /// The gate of this number.
        #[arg(short, value_name = "UNIT", conflicts_with = "names")]
        unit: Option<u32>,
        /// The gates.
        #[arg(required_unless_present = "unit")]
        names: Vec<String>,
    },
    #[command(flatten)]
    Show(list::Verb),
}

/// Options of `geom gate create`.
#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// Read-only, or read and write; default: what the server allows.
    #[arg(short = 'o', value_name = "ro|rw")]
    access: Option<Mode>,
    /// Maximum number of requests waiting for the server.
    #[arg(short = 'q', value_name = "REQUESTS", default_value = "1024",
        value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue: u32,
    /// Seconds that the server has to answer a request.
    #[arg(short = 't', value_name = "SECONDS", default_value = "30",
        value_parser = clap::value_parser!(u32).range(1..=86400))]
    timeout: u32,
    /// Sector size; default: 512, or the server's minimum block size if that is larger.
    #[arg(short = 's', value_name = "BYTES")]
    sector: Option<String>,
    /// Its number: its name is ggateUNIT.
    #[arg(short, value_name = "UNIT", conflicts_with = "name")]
    unit: Option<u32>,
    /// Its name; default: ggate and the lowest free number.
    #[arg(short, value_name = "NAME")]
    name: Option<String>,
    /// The server's export; default: the server's choice.
    #[arg(short, value_name = "EXPORT", default_value = "")]
    export: String,
    /// Where the server is: `unix:PATH` or `tcp:HOST:PORT`.
    #[arg(value_name = "unix:PATH|tcp:HOST:PORT")]
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Mode {
    Ro,
    Rw,
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    gate::look(&mut session.graph);
    match verb {
        Verb::Show(verb) => list::run(session, "GATE", verb, output),
        Verb::Create(options) => {
            let name = create(session, options, output)?;
            output.line(name)
        }
        Verb::Destroy { force, unit, names } => {
            let unit = unit.map(|unit| format!("ggate{unit}"));
            let graph = &mut session.graph;
            let done = names.iter().chain(&unit).try_for_each(|name| {
                graph.geom("GATE", name).and_then(|geom| class::destroy(graph, geom, *force))
            });
            done.map_err(|error| session.failure(error))
        }
    }
}

fn create(session: &mut Session, options: &Create, output: &Output) -> Result<String, Failure> {
    let Create { place, export, timeout, .. } = options;
    let name = options.unit.map(|unit| format!("ggate{unit}")).or_else(|| options.name.clone());
    // Who has the name is told before somebody is disturbed.
    if let Some(name) = name.as_ref().filter(|name| session.graph.provider(name).is_ok()) {
        return Err(Failure::usage(format!("{name}: already exists; use another -u or -n")));
    }
    if export.len() > 4096 {
        return Err(Failure::usage("-e: the name of an export can have at most 4096 bytes"));
    }
    let patience = Duration::from_secs((*timeout).into());
    let client = match place {
        Place::Unix(path) => {
            let path = session.base.join(path);
            Client::unix(&path, export, patience)
        }
        Place::Tcp(address) => Client::tcp(address, export, patience),
    };
    let client = client.map_err(|error| Failure::of(place, error))?;
    let remote = *client.remote();
    let refuses = remote.has(transmission::READ_ONLY);
    if refuses && options.access == Some(Mode::Rw) {
        let cause = "its server refuses writes; leave out -o rw, or have it serve for writing";
        return Err(Failure::of(place, cause));
    }
    let sector = sector(options, &remote)?;
    let rest = remote.size % u64::from(sector);
    if rest > 0 {
        output.note(format!(
            "{place}: {} left out: not a whole sector",
            counted(rest, "byte at its end is", "bytes at its end are")
        ));
    }
    let longest = u64::from(remote.longest) / u64::from(sector) * u64::from(sector);
    let export = if export.is_empty() { String::new() } else { format!(" export {export}") };
    let gate = gate::GateOptions {
        name,
        info: format!("NBD {place}{export}, {timeout} s for a request"),
        queue: options.queue as usize,
        turns: timeout
            .saturating_mul((Duration::from_secs(1).as_millis() / TURN.as_millis()) as u32),
        read_only: refuses || options.access == Some(Mode::Ro),
    };
    let shape =
        Shape { media_size: remote.size, sector_size: sector, stripe_size: 0, stripe_offset: 0 };
    let server = Box::new(Nbd { client, longest, jobs: Vec::new() });
    let made = gate::create(&mut session.graph, server, (shape, gate));
    let provider = made.map_err(|error| session.failure(error))?;
    // Whoever was asked while it was tasted may be gone already.
    let made = session.graph.objects().providers().find(|(id, _)| *id == provider);
    made.map(|(_, it)| it.name.clone()).ok_or_else(|| {
        Failure::of(place, "the server went away while the classes examined its disk")
    })
}

fn sector(options: &Create, remote: &Remote) -> Result<u32, Failure> {
    let least = remote.block_least.max(512);
    let Some(text) = &options.sector else { return Ok(least) };
    let sector = text::bytes(text).and_then(|bytes| u32::try_from(bytes).ok());
    let sector = sector.filter(|it| it.is_power_of_two() && (512..=65536).contains(it));
    let Some(sector) = sector else {
        let cause = "is not a size of sectors: it must be a power of two from 512 to 65536";
        return Err(Failure::usage(format!("-s {text}: {cause}")));
    };
    if sector < least || sector > remote.longest {
        let (place, longest) = (&options.place, remote.longest);
        let cause = format!("its server takes blocks of {least} to {longest} bytes");
        return Err(Failure::usage(format!("{place}: -s {text}: {cause}")));
    }
    Ok(sector)
}

/// A request that has been or will be sent to the server.
struct Job {
    request: Request,
    /// Bytes of it that are done.
    done: u64,
    /// Bytes in flight; none if it waits.
    piece: Option<u64>,
    /// The data read.
    bytes: Vec<u8>,
}

impl Job {
    /// Its range, and whether it modifies it; `None` for a flush.
    fn range(&self) -> Option<(std::ops::Range<u64>, bool)> {
        match &self.request.wanted {
            Wanted::Read { offset, length } => Some((*offset..offset + length, false)),
            Wanted::Write { offset, bytes } => Some((*offset..offset + bytes.len() as u64, true)),
            Wanted::Delete { offset, length } => Some((*offset..offset + length, true)),
            Wanted::Flush => None,
        }
    }

    fn length(&self) -> u64 {
        self.range().map_or(0, |(range, _)| range.end - range.start)
    }

    /// Whether it must not overtake `other`, which is still with the server.
    fn must_follow(&self, other: &Self) -> bool {
        match (self.range(), other.range()) {
            (Some((a, changes)), Some((b, changed))) => {
                (changes || changed) && a.start < b.end && b.start < a.end
            }
            _ => false,
        }
    }
}

/// An NBD server as the server of a gate.
struct Nbd {
    client: Client,
    /// Longest read and write, bytes: whole sectors.
    longest: u64,
    /// Requests accepted and not answered, oldest first. The user waits for at most one of them;
    /// the others were given up, but are still with the server.
    jobs: Vec<Job>,
}

impl std::fmt::Debug for Nbd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nbd").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

/// The meaning of an NBD error here.
fn error_of(errno: u32) -> block::BlockError {
    match errno {
        it if it == Errno::Perm as u32 => block::BlockError::WriteProtected,
        it if it == Errno::Io as u32 => block::BlockError::Medium(Cause::None),
        it if it == Errno::NotSup as u32 => block::BlockError::Unsupported,
        _ => block::BlockError::Device(Cause::None),
    }
}

impl gate::Server for Nbd {
    fn turn(&mut self, queue: &mut Queue) -> Result<(), String> {
        self.work(queue).map_err(|error| error.to_string())
    }
}

impl Nbd {
    fn work(&mut self, queue: &mut Queue) -> Result<(), flysch_nbd::client::ClientError> {
        let until = Instant::now() + TURN;
        loop {
            // What was given up before it was begun is nobody's.
            self.jobs.retain(|job| {
                let is_idle = job.piece.is_none() && !queue.awaits(job.request.number);
                if is_idle {
                    queue.done(job.request.number, Err(block::BlockError::TimedOut));
                }
                !is_idle
            });
            while let Some(request) = queue.take() {
                self.jobs.push(Job { request, done: 0, piece: None, bytes: Vec::new() });
            }
            self.begin(queue)?;
            let until = if queue.is_awaited() { until } else { Instant::now() };
            let Some(reply) = self.client.take(until)? else { return Ok(()) };
            let number = reply.cookie;
            let Some(at) = self.jobs.iter().position(|job| job.request.number == number) else {
                continue;
            };
            let job = &mut self.jobs[at];
            job.done += job.piece.take().unwrap_or(0);
            match reply.result {
                Ok(bytes) => job.bytes.extend(bytes),
                Err(errno) => {
                    self.jobs.remove(at);
                    queue.done(number, Err(error_of(errno)));
                    continue;
                }
            }
            if job.done >= job.length() {
                let job = self.jobs.remove(at);
                queue.done(number, Ok(job.bytes));
            }
        }
    }

    /// Sends the server the requests that it may have and does not have yet.
    fn begin(&mut self, queue: &mut Queue) -> Result<(), flysch_nbd::client::ClientError> {
        let mut at = 0;
        while at < self.jobs.len() {
            let (before, rest) = self.jobs.split_at_mut(at);
            let job = &mut rest[0];
            let waits = before.iter().any(|other| job.must_follow(other));
            if job.piece.is_some() || waits || self.client.is_sending() {
                at += 1;
                continue;
            }
            let remote = *self.client.remote();
            let (mut flags, offset, left) = match job.range() {
                Some((range, _)) => (0, range.start + job.done, range.end - range.start - job.done),
                None => (0, 0, 0),
            };
            let cookie = job.request.number;
            let mut payload: &[u8] = &[];
            let (command, length) = match &job.request.wanted {
                Wanted::Read { .. } => (command::READ, left.min(self.longest)),
                Wanted::Write { bytes, .. } => {
                    let length = left.min(self.longest);
                    payload = &bytes[job.done as usize..][..length as usize];
                    // Who cannot be told to flush is told with every write.
                    if !remote.has(transmission::SEND_FLUSH) && remote.has(transmission::SEND_FUA) {
                        flags = command::FUA;
                    }
                    (command::WRITE, length)
                }
                Wanted::Delete { .. } if remote.has(transmission::SEND_TRIM) => {
                    (command::TRIM, left.min(TRIM_LONGEST.into()))
                }
                Wanted::Flush if remote.has(transmission::SEND_FLUSH) => (command::FLUSH, 0),
                // What it answered is safe: it has nothing to flush, or was told with every write.
                Wanted::Flush => {
                    self.jobs.remove(at);
                    queue.done(cookie, Ok(Vec::new()));
                    continue;
                }
                Wanted::Delete { .. } => {
                    self.jobs.remove(at);
                    queue.done(cookie, Err(block::BlockError::Unsupported));
                    continue;
                }
            };
            job.piece = Some(length);
            self.client.send(&wire::Request { flags, command, cookie, offset, length }, payload)?;
            at += 1;
        }
        Ok(())
    }
}
