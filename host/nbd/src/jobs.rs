//! Requests as reads and writes of the device.
//!
//! A request becomes a [`Job`]: a range of whole blocks around the bytes it is about, cut into
//! pieces that are in flight together. Each piece has a place in the device's memory. A write that
//! begins or ends inside a block reads that block first, and has its blocks for itself meanwhile.

use std::collections::VecDeque;

use flysch_api::block::{Device, Error, Operation, Refused, Request};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaSlice};

use crate::wire;

/// Longest piece of a read or write, bytes.
const PIECE: u64 = 256 << 10;
/// Longest piece of a trim, bytes.
const TRIM: u64 = 1 << 30;
/// Most pieces in flight.
const PIECES: usize = 64;

/// A client, by a number that no other gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client(pub(crate) u64);

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Zeroes,
    Trim,
    Flush,
}

/// A request and how far it is.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) client: Client,
    pub(crate) request: wire::Request,
    kind: Kind,
    /// Of a read its reply, of a write its payload; the data starts at `base`.
    pub(crate) bytes: Vec<u8>,
    base: usize,
    /// Whole blocks: first byte, and first byte behind.
    start: u64,
    end: u64,
    /// First byte not submitted yet.
    next: u64,
    in_flight: u32,
    is_queued: bool,
    edges: Vec<Edge>,
    /// Safe before it is answered: every write of it, or a flush behind what has none.
    force_unit_access: bool,
    flush_behind: bool,
    pub(crate) failed: Option<Error>,
}

/// A block of which a write changes a part.
#[derive(Debug)]
struct Edge {
    at: u64,
    asked: bool,
    content: Option<Vec<u8>>,
}

/// What a piece is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// From this byte of the device on.
    Data(u64),
    /// The edge with this number.
    Edge(usize),
    /// A trim or flush.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    job: usize,
    purpose: Purpose,
    length: u64,
}

impl Job {
    /// A request's job. `bytes` is the payload of a write, and for a read the room for its reply,
    /// `base` bytes of which come before the data. The range is on the device.
    pub(crate) fn new(
        client: Client,
        request: wire::Request,
        kind: Kind,
        (bytes, base): (Vec<u8>, usize),
        block: u64,
    ) -> Self {
        let (from, to) = (request.offset, request.offset + request.length);
        let around = (from / block * block, to.next_multiple_of(block));
        let inside = (from.next_multiple_of(block), to / block * block);
        let (start, end) = match kind {
            Kind::Read | Kind::Write | Kind::Zeroes => around,
            Kind::Trim => (inside.0, inside.1.max(inside.0)),
            Kind::Flush => (0, 0),
        };
        let mut edges = Vec::new();
        if matches!(kind, Kind::Write | Kind::Zeroes) {
            if from != start {
                edges.push(start);
            }
            if to != end && edges.first() != Some(&(end - block)) {
                edges.push(end - block);
            }
        }
        let edges = edges.into_iter().map(|at| Edge { at, asked: false, content: None }).collect();
        let wants_safe = request.flags & wire::command::FUA != 0;
        let writes = matches!(kind, Kind::Write | Kind::Zeroes);
        Self {
            client,
            request,
            kind,
            bytes,
            base,
            start,
            end,
            next: start,
            in_flight: 0,
            is_queued: true,
            edges,
            force_unit_access: wants_safe && writes,
            flush_behind: kind == Kind::Flush || (wants_safe && kind == Kind::Trim),
            failed: None,
        }
    }

    fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Read | Kind::Flush)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether `self`, which waits, has to wait for `active`.
    fn waits_for(&self, active: &Self) -> bool {
        let one_patches = !(self.edges.is_empty() && active.edges.is_empty());
        one_patches && self.writes() && active.writes() && self.overlaps(active)
    }

    /// The bytes of the request that are in `[at, at + length)`: where they are in that piece, and
    /// where in `bytes`.
    fn part(&self, at: u64, length: u64) -> (usize, std::ops::Range<usize>) {
        let from = at.max(self.request.offset);
        let to = (at + length).min(self.request.offset + self.request.length);
        let start = self.base + (from - self.request.offset) as usize;
        ((from - at) as usize, start..start + to.saturating_sub(from) as usize)
    }

    /// Whether the next data may be submitted: not before the edges are known.
    fn is_patched(&self) -> bool {
        self.edges.iter().all(|edge| edge.content.is_some())
    }

    fn is_done(&self) -> bool {
        let is_over = self.failed.is_some() || (self.next == self.end && !self.flush_behind);
        is_over && self.in_flight == 0
    }
}

/// The device with what is under way on it.
#[derive(Debug)]
pub(crate) struct Jobs<'a, D, C> {
    device: &'a mut D,
    clock: &'a C,
    block: u64,
    piece: u64,
    /// Jobs, and places among them that are free.
    jobs: Vec<Option<Job>>,
    vacant: Vec<usize>,
    /// Jobs that are not wholly submitted, the oldest first.
    queue: VecDeque<usize>,
    /// Jobs that change a part of a block.
    patching: usize,
    /// What is in flight, by its place in memory, and places that are free.
    pieces: Vec<Option<Piece>>,
    free: Vec<usize>,
}

impl<'a, D: Device, C: Clock> Jobs<'a, D, C> {
    /// Uses `device` alone; its memory must hold one of its blocks.
    pub(crate) fn new(device: &'a mut D, clock: &'a C) -> Self {
        let geometry = device.geometry();
        let block = u64::from(geometry.block_size);
        let memory = device.memory().len() as u64;
        let longest = u64::from(geometry.transfer_max).min(PIECE).min(memory);
        let piece = (longest / block * block).max(block);
        let most = PIECES.min(geometry.queue_depth as usize).max(1);
        let places = ((memory / piece) as usize).clamp(1, most);
        Self {
            device,
            clock,
            block,
            piece,
            jobs: Vec::new(),
            vacant: Vec::new(),
            queue: VecDeque::new(),
            patching: 0,
            pieces: vec![None; places],
            free: (0..places).rev().collect(),
        }
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> u64 {
        self.block
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.len() == self.vacant.len()
    }

    /// Whether something is in flight on the device.
    pub(crate) fn is_waiting(&self) -> bool {
        self.free.len() < self.pieces.len()
    }

    /// The clock the device runs by.
    pub(crate) fn clock(&self) -> &C {
        self.clock
    }

    /// When the device wants to be asked again, whatever happens.
    pub(crate) fn poll_at(&self) -> Option<flysch_api::machine::Instant> {
        self.device.poll_at()
    }

    /// Takes a job.
    pub(crate) fn add(&mut self, job: Job) {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        self.patching += usize::from(!job.edges.is_empty());
        self.jobs[place] = Some(job);
        self.queue.push_back(place);
    }

    /// Lets things happen: submits what there is room for, and gives every job that is over to
    /// `done`. Whether anything came of it.
    pub(crate) fn advance(&mut self, mut done: impl FnMut(Job)) -> bool {
        let mut moved = self.submit(&mut done);
        if moved {
            self.device.ring(self.clock.now());
        }
        while self.is_waiting() {
            let Some(completion) = self.device.poll(self.clock.now()) else { break };
            self.complete(completion.token as usize, completion.result, &mut done);
            moved = true;
        }
        moved
    }

    /// Ends everything, for a device that answers no more.
    pub(crate) fn give_up(&mut self, mut done: impl FnMut(Job)) {
        self.queue.clear();
        self.patching = 0;
        self.pieces.fill(None);
        self.free = (0..self.pieces.len()).rev().collect();
        for (place, job) in self.jobs.iter_mut().enumerate() {
            if let Some(mut job) = job.take() {
                job.failed.get_or_insert(Error::Gone);
                self.vacant.push(place);
                done(job);
            }
        }
    }

    /// Submits pieces of the oldest jobs first. Whether there were any.
    fn submit(&mut self, done: &mut impl FnMut(Job)) -> bool {
        let mut moved = false;
        while let Some(&number) = self.queue.front() {
            if self.must_wait(number) {
                break;
            }
            match self.submit_piece(number) {
                Some(true) => moved = true,
                Some(false) => break,
                None => {
                    self.queue.pop_front();
                    self.jobs[number].iter_mut().for_each(|job| job.is_queued = false);
                    moved |= self.finish(number, done);
                }
            }
        }
        moved
    }

    /// Whether the oldest job that waits has to wait for one that is in flight, as one of them
    /// changes a part of a block that both write.
    fn must_wait(&self, number: usize) -> bool {
        let Some(job) = &self.jobs[number] else { return false };
        let mut active = self.jobs.iter().flatten().filter(|other| !other.is_queued);
        self.patching > 0 && active.any(|other| job.waits_for(other))
    }

    /// Submits one piece of a job: whether there was room, or none if there is nothing to submit.
    fn submit_piece(&mut self, number: usize) -> Option<bool> {
        let job = self.jobs[number].as_ref()?;
        if job.failed.is_some() {
            return None;
        }
        let purpose = match job.edges.iter().position(|edge| !edge.asked) {
            Some(edge) => Purpose::Edge(edge),
            // What comes next depends on what is in flight.
            None if !job.is_patched() => return Some(false),
            None if job.next < job.end => Purpose::Data(job.next),
            None if job.flush_behind && job.in_flight > 0 => return Some(false),
            None if job.flush_behind => Purpose::Nothing,
            None => return None,
        };
        let Some(place) = self.free.pop() else { return Some(false) };
        let request = self.request(number, purpose, place);
        let length = request.length;
        match self.device.submit(&request, request.accepted) {
            Ok(()) => {
                self.pieces[place] = Some(Piece { job: number, purpose, length });
                let job = self.jobs[number].as_mut()?;
                job.in_flight += 1;
                match purpose {
                    Purpose::Edge(edge) => job.edges[edge].asked = true,
                    Purpose::Data(_) => job.next += length,
                    Purpose::Nothing => job.flush_behind = false,
                }
                Some(true)
            }
            Err(refused) => {
                self.free.push(place);
                match refused {
                    Refused::Full => Some(false),
                    Refused::Invalid(error) => {
                        self.jobs[number].as_mut()?.failed = Some(error);
                        None
                    }
                }
            }
        }
    }

    /// The request for a piece, with its data in its place.
    fn request(&self, number: usize, purpose: Purpose, place: usize) -> Request {
        let job = self.jobs[number].as_ref().expect("a job that is queued is there");
        let start = place * self.piece as usize;
        let memory = self.device.memory();
        let slice = |length: u64| Data::One(memory.slice(start, length as u32));
        let (operation, offset, length, data) = match (purpose, job.kind) {
            (Purpose::Edge(edge), _) => {
                (Operation::Read, job.edges[edge].at, self.block, slice(self.block))
            }
            (Purpose::Nothing, _) | (_, Kind::Flush) => {
                (Operation::Flush, 0, 0, Data::One(DmaSlice::EMPTY))
            }
            (Purpose::Data(at), Kind::Trim) => {
                (Operation::Delete, at, TRIM.min(job.end - at), Data::One(DmaSlice::EMPTY))
            }
            (Purpose::Data(at), kind) => {
                let length = self.piece.min(job.end - at);
                if kind != Kind::Read {
                    self.fill(job, start, at, length);
                }
                let operation = if kind == Kind::Read { Operation::Read } else { Operation::Write };
                (operation, at, length, slice(length))
            }
        };
        Request {
            operation,
            force_unit_access: job.force_unit_access && operation == Operation::Write,
            offset,
            length,
            data,
            crypto: None,
            token: place as u64,
            accepted: self.clock.now(),
        }
    }

    /// Puts what is to be written at `[at, at + length)` into memory.
    fn fill(&self, job: &Job, start: usize, at: u64, length: u64) {
        let memory = self.device.memory();
        for edge in job.edges.iter().filter(|edge| (at..at + length).contains(&edge.at)) {
            let content = edge.content.as_deref().unwrap_or_default();
            memory.write(start + (edge.at - at) as usize, content);
        }
        let (inside, part) = job.part(at, length);
        match job.kind {
            Kind::Zeroes => memory.fill(start + inside, part.len(), 0),
            _ => memory.write(start + inside, &job.bytes[part]),
        }
    }

    fn complete(&mut self, place: usize, result: Result<(), Error>, done: &mut impl FnMut(Job)) {
        let Some(piece) = self.pieces.get_mut(place).and_then(Option::take) else { return };
        self.free.push(place);
        let start = place * self.piece as usize;
        let Some(job) = &mut self.jobs[piece.job] else { return };
        job.in_flight -= 1;
        match (result, piece.purpose) {
            (Err(error), _) => drop(job.failed.get_or_insert(error)),
            (Ok(()), Purpose::Edge(edge)) => {
                let mut content = vec![0; piece.length as usize];
                self.device.memory().read(start, &mut content);
                job.edges[edge].content = Some(content);
            }
            (Ok(()), Purpose::Data(at)) if job.kind == Kind::Read => {
                let (inside, part) = job.part(at, piece.length);
                self.device.memory().read(start + inside, &mut job.bytes[part]);
            }
            (Ok(()), _) => {}
        }
        if !job.is_queued {
            self.finish(piece.job, done);
        }
    }

    /// Gives a job away if it is over: whether it was.
    fn finish(&mut self, number: usize, done: &mut impl FnMut(Job)) -> bool {
        if !self.jobs[number].as_ref().is_some_and(Job::is_done) {
            return false;
        }
        let Some(job) = self.jobs[number].take() else { return false };
        self.vacant.push(number);
        self.patching -= usize::from(!job.edges.is_empty());
        done(job);
        true
    }
}
