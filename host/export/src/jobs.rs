//! Requests as reads and writes of the device.
//!
//! A request becomes a [`Job`]: a range of whole blocks around its bytes, split into pieces that
//! are in flight together. Each piece has a slot in the device's memory. A write that starts or
//! ends inside a block reads that block first, and has exclusive access to its blocks meanwhile.

use std::collections::VecDeque;

use flysch_api::block::{BlockDevice, BlockError, Operation, Refused, Request};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, DmaSlice};

/// Longest piece of a read or write, bytes.
const PIECE: u64 = 256 << 10;
/// Longest piece of a trim, bytes.
const TRIM: u64 = 1 << 30;
/// Maximum number of pieces in flight.
const PIECES: usize = 64;

/// The kinds of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data from the device to the client.
    Read,
    /// Data from the client to the device.
    Write,
    /// Zeroes to the device.
    Zeroes,
    /// These bytes are no longer needed; partial blocks stay unchanged.
    Trim,
    /// Everything answered before is durable when this is answered.
    Flush,
}

/// The bytes of the device that a job concerns, and what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes; the end is on the device. Both are 0 for a flush.
    pub length: u64,
    /// Durable before it is answered.
    pub force_unit_access: bool,
}

/// The protocol's side of a request: its owner, and the location of its data.
pub trait Transfer {
    /// Copies `length` bytes of a write's data, from `from` on, to `memory` at `to`.
    ///
    /// # Errors
    /// The data is no longer accessible; the job ends with this.
    fn gather(
        &self,
        from: u64,
        memory: &DmaRegion,
        to: usize,
        length: usize,
    ) -> Result<(), BlockError>;

    /// Copies `length` bytes of `memory` at `from` to the destination of a read's data, from `to`
    /// on.
    ///
    /// # Errors
    /// As for `gather`.
    fn scatter(
        &mut self,
        to: u64,
        memory: &DmaRegion,
        from: usize,
        length: usize,
    ) -> Result<(), BlockError>;

    /// The location of the data in the device's memory, if it is in the door's own part
    /// ([`Terms::reserved`](crate::Terms::reserved)): whole blocks are transferred between there
    /// and the device without a copy. It stays there until the job is done.
    fn place(&self) -> Option<usize> {
        None
    }
}

/// A request and its progress.
#[derive(Debug)]
pub struct Job<T> {
    /// The protocol's information about it.
    pub transfer: T,
    /// The first error, if any.
    pub failed: Option<BlockError>,
    kind: Kind,
    range: Range,
    /// Whole blocks: first byte, and end.
    start: u64,
    end: u64,
    /// First byte not submitted yet.
    next: u64,
    in_flight: u32,
    is_queued: bool,
    edges: Vec<Edge>,
    /// The location of the data in the device's memory, if it needs no copy.
    place: Option<usize>,
    /// Every write of it is durable, or followed by a flush.
    force_unit_access: bool,
    flush_behind: bool,
}

/// A block that a write changes in part.
#[derive(Debug)]
struct Edge {
    at: u64,
    asked: bool,
    content: Option<Vec<u8>>,
}

/// The purpose of a piece.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Data from this byte of the device on.
    Data(u64),
    /// The partial block with this number.
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

impl<T: Transfer> Job<T> {
    /// A job on a device with blocks of `block` bytes.
    pub fn new(transfer: T, kind: Kind, range: Range, block: u64) -> Self {
        let (from, to) = (range.offset, range.offset + range.length);
        let around = (from / block * block, to.next_multiple_of(block));
        let inside = (from.next_multiple_of(block), to / block * block);
        let (start, end) = match kind {
            Kind::Read | Kind::Write | Kind::Zeroes => around,
            Kind::Trim => (inside.0, inside.1.max(inside.0)),
            Kind::Flush => (0, 0),
        };
        let writes = matches!(kind, Kind::Write | Kind::Zeroes);
        let mut edges = Vec::new();
        if writes {
            if from != start {
                edges.push(Edge { at: start, asked: false, content: None });
            }
            if to != end && edges.first().is_none_or(|edge| edge.at != end - block) {
                edges.push(Edge { at: end - block, asked: false, content: None });
            }
        }
        let is_whole = matches!(kind, Kind::Read | Kind::Write) && (from, to) == (start, end);
        Self {
            place: transfer.place().filter(|_| is_whole),
            transfer,
            failed: None,
            kind,
            range,
            start,
            end,
            next: start,
            in_flight: 0,
            is_queued: true,
            edges,
            force_unit_access: range.force_unit_access && writes,
            flush_behind: kind == Kind::Flush || (range.force_unit_access && kind == Kind::Trim),
        }
    }

    /// The kind of job.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The bytes concerned.
    pub fn range(&self) -> Range {
        self.range
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

    /// The bytes of the request within `[at, at + length)`: their offset in that piece, their
    /// offset in the data, and their number.
    fn part(&self, at: u64, length: u64) -> (usize, u64, usize) {
        let from = at.max(self.range.offset);
        let to = (at + length).min(self.range.offset + self.range.length);
        ((from - at) as usize, from - self.range.offset, to.saturating_sub(from) as usize)
    }

    /// Whether the next data may be submitted: not before the partial blocks are known.
    fn is_patched(&self) -> bool {
        self.edges.iter().all(|edge| edge.content.is_some())
    }

    fn is_done(&self) -> bool {
        let is_over = self.failed.is_some() || (self.next == self.end && !self.flush_behind);
        is_over && self.in_flight == 0
    }
}

/// The device and the jobs on it.
#[derive(Debug)]
pub struct Jobs<'a, D, C, T> {
    device: &'a mut D,
    clock: &'a C,
    block: u64,
    piece: u64,
    /// Jobs, and free slots among them.
    jobs: Vec<Option<Job<T>>>,
    vacant: Vec<usize>,
    /// Jobs that are not completely submitted, oldest first.
    queue: VecDeque<usize>,
    /// Jobs that change a block in part.
    patching: usize,
    /// Requests in flight, by their slot in memory, and free slots.
    pieces: Vec<Option<Piece>>,
    free: Vec<usize>,
}

impl<'a, D: BlockDevice, C: Clock, T: Transfer> Jobs<'a, D, C, T> {
    /// Uses `device` exclusively, and its memory except for the `reserved` bytes at the end; the
    /// rest must hold at least one of its blocks.
    pub fn new(device: &'a mut D, clock: &'a C, reserved: usize) -> Self {
        let geometry = device.geometry();
        let block = u64::from(geometry.block_size);
        let memory = (device.memory().len() - reserved) as u64;
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
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Whether there are no jobs.
    pub fn is_idle(&self) -> bool {
        self.jobs.len() == self.vacant.len()
    }

    /// Whether anything is in flight on the device.
    pub fn is_waiting(&self) -> bool {
        self.free.len() < self.pieces.len()
    }

    /// The device's clock.
    pub fn clock(&self) -> &'a C {
        self.clock
    }

    /// When the device has to be polled again in any case.
    pub fn poll_at(&self) -> Option<flysch_api::machine::Instant> {
        self.device.poll_at()
    }

    /// Accepts a job.
    pub fn add(&mut self, job: Job<T>) {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        self.patching += usize::from(!job.edges.is_empty());
        self.jobs[place] = Some(job);
        self.queue.push_back(place);
    }

    /// Makes progress: submits what there is room for, and passes every finished job to `done`.
    /// Returns whether anything happened.
    pub fn advance(&mut self, mut done: impl FnMut(Job<T>)) -> bool {
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

    /// Ends all jobs, for a device that no longer answers.
    pub fn give_up(&mut self, mut done: impl FnMut(Job<T>)) {
        self.queue.clear();
        self.patching = 0;
        self.pieces.fill(None);
        self.free = (0..self.pieces.len()).rev().collect();
        for (place, job) in self.jobs.iter_mut().enumerate() {
            if let Some(mut job) = job.take() {
                job.failed.get_or_insert(BlockError::Gone);
                self.vacant.push(place);
                done(job);
            }
        }
    }

    /// Submits pieces, those of the oldest jobs first. Returns whether there were any.
    fn submit(&mut self, done: &mut impl FnMut(Job<T>)) -> bool {
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

    /// Whether the oldest waiting job has to wait for one in flight, because one of them changes
    /// part of a block that both write.
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
        let submitted = request.map_err(Refused::Invalid).and_then(|request| {
            self.device.submit(&request, request.accepted)?;
            Ok(request.length)
        });
        match submitted {
            Ok(length) => {
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

    /// The request for a piece, with its data in its slot.
    fn request(
        &self,
        number: usize,
        purpose: Purpose,
        place: usize,
    ) -> Result<Request, BlockError> {
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
                let operation = if kind == Kind::Read { Operation::Read } else { Operation::Write };
                let data = match job.place {
                    Some(place) => {
                        Data::One(memory.slice(place + (at - job.start) as usize, length as u32))
                    }
                    None if kind == Kind::Read => slice(length),
                    None => {
                        self.fill(job, start, at, length)?;
                        slice(length)
                    }
                };
                (operation, at, length, data)
            }
        };
        Ok(Request {
            operation,
            force_unit_access: job.force_unit_access && operation == Operation::Write,
            offset,
            length,
            data,
            crypto: None,
            token: place as u64,
            accepted: self.clock.now(),
        })
    }

    /// Puts the data to be written at `[at, at + length)` into memory.
    fn fill(&self, job: &Job<T>, start: usize, at: u64, length: u64) -> Result<(), BlockError> {
        let memory = self.device.memory();
        for edge in job.edges.iter().filter(|edge| (at..at + length).contains(&edge.at)) {
            let content = edge.content.as_deref().unwrap_or_default();
            memory.write(start + (edge.at - at) as usize, content);
        }
        let (inside, from, count) = job.part(at, length);
        if job.kind == Kind::Zeroes {
            memory.fill(start + inside, count, 0);
            return Ok(());
        }
        job.transfer.gather(from, memory, start + inside, count)
    }

    fn complete(
        &mut self,
        place: usize,
        result: Result<(), BlockError>,
        done: &mut impl FnMut(Job<T>),
    ) {
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
            (Ok(()), Purpose::Data(at)) if job.kind == Kind::Read && job.place.is_none() => {
                let (inside, to, count) = job.part(at, piece.length);
                let memory = self.device.memory();
                if let Err(error) = job.transfer.scatter(to, memory, start + inside, count) {
                    job.failed.get_or_insert(error);
                }
            }
            (Ok(()), _) => {}
        }
        if !job.is_queued {
            self.finish(piece.job, done);
        }
    }

    /// Passes a job on if it is finished; returns whether it was.
    fn finish(&mut self, number: usize, done: &mut impl FnMut(Job<T>)) -> bool {
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
