//! GATE: a provider whose contents are served from outside (`ggate`): by a process, over a network,
//! by a program under test. The interface for anything that is not a disk.
//!
//! Requests wait in a bounded, numbered queue until the server takes them. Answers are checked: an
//! answer to no request, a second answer, or one of the wrong length is counted and dropped. A
//! server that does not answer within the allowed number of turns has failed; later answers are
//! dropped too.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::block;

use super::{Class, Config, Object, Requests};
use crate::access::Access;
use crate::error::GeomError;
use crate::graph::Graph;
use crate::io::{Io, Shape};
use crate::object::{GeomId, ProviderId};
use crate::record::Taste;

/// The type of the class.
#[derive(Debug)]
pub struct Gate;

/// The class, to be registered with a graph.
pub static GATE: Gate = Gate;

/// What a server is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Return this many bytes from an offset.
    Read {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
    },
    /// Write these bytes at an offset.
    Write {
        /// The first byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Discard these bytes.
    Delete {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
    },
    /// Make everything written so far durable.
    Flush,
}

/// A request to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number by which the answer refers to it.
    pub number: u64,
    /// What to do.
    pub wanted: Wanted,
}

/// A server's answer: the bytes read; empty for other requests.
pub type Answer = Result<Vec<u8>, block::BlockError>;

/// Waiting requests and their answers.
#[derive(Debug)]
pub struct Queue {
    waiting: VecDeque<Request>,
    /// Numbers of the requests taken and not yet answered, and the bytes expected for each.
    taken: Vec<(u64, u64)>,
    /// The request that the caller waits for, and its answer.
    answer: Option<(u64, Option<Answer>)>,
    most: usize,
    dropped: u64,
}

impl Queue {
    /// Whether somebody is waiting for an answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        matches!(self.answer, Some((_, None)))
    }

    /// Whether somebody is waiting for this request.
    #[must_use]
    pub fn awaits(&self, number: u64) -> bool {
        matches!(self.answer, Some((wanted, None)) if wanted == number)
    }

    /// The next request, if there is one.
    pub fn take(&mut self) -> Option<Request> {
        let request = self.waiting.pop_front()?;
        let length = match request.wanted {
            Wanted::Read { length, .. } => length,
            _ => 0,
        };
        self.taken.push((request.number, length));
        Some(request)
    }

    /// Answers a request, with the bytes read; empty for other requests.
    pub fn done(&mut self, number: u64, answer: Answer) {
        let found = self.taken.iter().position(|(other, _)| *other == number);
        let Some(found) = found else {
            self.dropped += 1;
            return;
        };
        let (_, length) = self.taken.swap_remove(found);
        let Some((wanted, slot)) = &mut self.answer else {
            self.dropped += 1;
            return;
        };
        if *wanted != number {
            self.dropped += 1;
            return;
        }
        *slot = Some(match answer {
            Ok(bytes) if bytes.len() as u64 != length => {
                self.dropped += 1;
                Err(block::BlockError::Device(block::Cause::None))
            }
            answer => answer,
        });
    }
}

/// The holder of the contents.
pub trait Server: fmt::Debug {
    /// Called when it is the server's turn: it takes requests and answers these or earlier ones. It
    /// must not block while nobody waits for an answer ([`Queue::is_awaited`]).
    ///
    /// # Errors
    /// If it has vanished, and why.
    fn turn(&mut self, queue: &mut Queue) -> Result<(), String>;
}

#[derive(Debug)]
struct State {
    server: Box<dyn Server>,
    queue: Queue,
    number: u64,
    /// Turns allowed per request.
    turns: u32,
    read_only: bool,
    timeouts: u64,
    info: String,
}

/// The parameters of a gate.
#[derive(Clone, Debug)]
pub struct GateOptions {
    /// Its name (`ggatel -n`); by default `ggate` and the lowest free number.
    pub name: Option<String>,
    /// A line about its server, for listings.
    pub info: String,
    /// Maximum number of requests waiting or taken and not answered (`ggatel -q`).
    pub queue: usize,
    /// Turns allowed to the server per request (`ggatel -t`).
    pub turns: u32,
    /// Refuses writes (`ggatel -o ro`).
    pub read_only: bool,
}

impl Default for GateOptions {
    fn default() -> Self {
        let (name, info) = (None, String::new());
        Self { name, info, queue: 1024, turns: 1024, read_only: false }
    }
}

/// Maximum length of a name in bytes, as for a file.
const NAME_MAX: usize = 255;

/// Creates a provider whose contents are served by `server` (`ggatel create`).
///
/// # Errors
/// If its shape or its name is invalid, or if the name is taken.
pub fn create(
    graph: &mut Graph,
    server: Box<dyn Server>,
    (shape, options): (Shape, GateOptions),
) -> Result<ProviderId, GeomError> {
    let taken = |name: &str| graph.geom("GATE", name).is_ok();
    let free = || (0_u32..).map(|unit| format!("ggate{unit}")).find(|name| !taken(name));
    let name = options.name.or_else(free).unwrap_or_default();
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    if name.is_empty() || name.len() > NAME_MAX || name.contains(is_odd) {
        let cause = "is not a name: it must have 1 to 255 bytes, without `/` and spaces";
        return Err(GeomError::invalid(format!("`{name}`"), cause));
    }
    let sector = u64::from(shape.sector_size);
    let is_sector = shape.sector_size.is_power_of_two() && sector >= 512;
    if !is_sector || sector > u64::from(super::disk::SECTOR_MAX) || shape.media_size < sector {
        return Err(GeomError::invalid(
            name,
            "a disk needs at least one sector, of 512 bytes or more, a power of two",
        ));
    }
    if options.queue == 0 || options.turns == 0 {
        return Err(GeomError::invalid(
            name,
            "it needs a queue and a turn of at least one request",
        ));
    }
    let media_size = shape.media_size / sector * sector;
    let geom = graph.new_geom(&GATE, name.clone());
    let queue = Queue {
        waiting: VecDeque::new(),
        taken: Vec::new(),
        answer: None,
        most: options.queue,
        dropped: 0,
    };
    let GateOptions { turns, read_only, info, .. } = options;
    graph.set_state(geom, State { server, queue, number: 0, turns, read_only, timeouts: 0, info });
    let made = graph.new_provider(geom, name, Shape { media_size, ..shape });
    let provider = made.inspect_err(|_| graph.drop_geom(geom))?;
    graph.settle();
    Ok(provider)
}

/// Gives every server a turn while nobody waits, so that the gate of a vanished server is removed
/// before somebody sends it a request.
pub fn look(graph: &mut Graph) {
    let gates: Vec<GeomId> = graph.objects().geoms_of("GATE").map(|(id, _)| id).collect();
    for geom in gates {
        let Some(state) = graph.state_mut::<State>(geom) else { continue };
        if let Err(why) = state.server.turn(&mut state.queue) {
            vanish(graph, geom, &why);
            graph.settle();
        }
    }
}

/// The server has vanished: the gate and everything above it are removed.
fn vanish(graph: &mut Graph, geom: GeomId, why: &str) {
    let name = graph[geom].name.clone();
    graph.record.say(format!("GATE: the server of {name} is gone: {why}"));
    graph.wither_geom(geom, block::BlockError::Gone);
}

/// Removes a gate (`ggatel destroy`). Its pending requests end with an error.
///
/// # Errors
/// If it is open, unless `force`.
pub fn destroy(graph: &mut Graph, geom: GeomId, force: bool) -> Result<(), GeomError> {
    super::destroy(graph, geom, force)
}

impl Class for Gate {
    fn name(&self) -> &'static str {
        "GATE"
    }

    fn taste(&self, _: &mut Graph, _: ProviderId) -> Taste {
        Taste::passed("")
    }

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        let state = graph.state::<State>(graph[provider].geom);
        if change.write > 0 && state.is_some_and(|state| state.read_only) {
            return Err(GeomError::io(&graph[provider].name, block::BlockError::WriteProtected));
        }
        Ok(())
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        let Object::Geom(geom) = object else { return Vec::new() };
        let Some(state) = graph.state::<State>(geom) else { return Vec::new() };
        let access = if state.read_only { "read-only" } else { "read-write" };
        vec![
            ("access", access.into()),
            ("info", state.info.clone()),
            ("timeouts", state.timeouts.to_string()),
            ("dropped", state.queue.dropped.to_string()),
            ("queue_count", (state.queue.waiting.len() + state.queue.taken.len()).to_string()),
            ("queue_size", state.queue.most.to_string()),
        ]
    }
}

impl Requests for Gate {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        mut io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        let geom = graph[provider].geom;
        let state = graph.state_mut::<State>(geom).ok_or(block::BlockError::Gone)?;
        let wanted = match io.again() {
            Io::Read { offset, to } => Wanted::Read { offset, length: to.len() as u64 },
            Io::Write { offset, from } => Wanted::Write { offset, bytes: from.to_vec() },
            Io::Delete { offset, length } => Wanted::Delete { offset, length },
            Io::Flush => Wanted::Flush,
        };
        match state.ask(wanted) {
            Ok(Ok(bytes)) => {
                if let Io::Read { to, .. } = io {
                    to.copy_from_slice(&bytes);
                }
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(Vanished(why)) => {
                vanish(graph, geom, &why);
                Err(block::BlockError::Gone)
            }
        }
    }
}

/// The server has vanished, and why.
struct Vanished(String);

impl State {
    /// Waits for a request, for as long as the server may take.
    fn ask(&mut self, wanted: Wanted) -> Result<Answer, Vanished> {
        let number = self.number;
        self.number += 1;
        self.queue.answer = Some((number, None));
        let mut wanted = Some(wanted);
        for _ in 0..self.turns {
            // The queue may be full of unanswered requests: the server must answer some of them
            // first.
            if self.queue.waiting.len() + self.queue.taken.len() < self.queue.most
                && let Some(wanted) = wanted.take()
            {
                self.queue.waiting.push_back(Request { number, wanted });
            }
            let turn = self.server.turn(&mut self.queue);
            if let Some((_, Some(answer))) = &mut self.queue.answer {
                let answer = core::mem::replace(answer, Ok(Vec::new()));
                self.queue.answer = None;
                return Ok(answer);
            }
            turn.map_err(Vanished)?;
        }
        self.queue.answer = None;
        self.queue.waiting.retain(|request| request.number != number);
        self.timeouts += 1;
        Ok(Err(block::BlockError::TimedOut))
    }
}
