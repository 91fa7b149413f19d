//! A lane: requests into the kernel, completions out of it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Completion, Operation, Refused, Request,
};
use flysch_api::data::{BadData, Data, SEGMENTS_MAX, SegmentLimits};
use flysch_api::machine::{Clock, DmaRegion, Instant};
use flysch_api::trace::Passage;

use super::aio::Aio;
use super::clock::{Waiter, Waiting};
use super::error::{DiskError, error_of, remedy};
use super::open::{Engine, Object, discard};
use super::sync;
use super::uring::Uring;

/// Maximum number of requests in flight per lane.
const DEPTH_MAX: u32 = 4096;
/// Longest request, bytes: below the maximum of a single kernel call.
const TRANSFER_MAX: u32 = 1 << 30;

/// A request in the kernel.
#[derive(Clone, Copy, Debug)]
struct Slot {
    request: Request,
    issued: Instant,
    /// When the call returned, if the call is synchronous.
    ended: Option<Instant>,
    /// Bytes already transferred: the kernel may end a request early.
    moved: u32,
}

/// The requested operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) what: What,
    /// Offset in the object.
    pub(super) offset: u64,
    /// `RWF_` flags.
    pub(super) flags: i32,
}

/// The kernel's calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// One range: address, offset in the lane's memory, length.
    Read(*mut u8, usize, u32),
    /// As for `Read`.
    Write(*mut u8, usize, u32),
    /// A list.
    ReadList(*const libc::iovec, u32),
    /// A list.
    WriteList(*const libc::iovec, u32),
    /// `fdatasync`.
    Flush,
    /// Free a range of a file: its length.
    Punch(u64),
}

/// An error and its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The operation.
    pub operation: Operation,
    /// The system's error number.
    pub errno: i32,
    /// The count.
    pub count: u64,
}

impl Trouble {
    /// A description: the operation and the system's text for the error.
    #[must_use]
    pub fn what(&self) -> String {
        format!("{}: {}", self.operation, io::Error::from_raw_os_error(self.errno))
    }
}

#[derive(Debug)]
enum Way {
    Uring(Box<Uring>),
    Aio(Aio),
    Sync,
}

/// One lane of an object.
#[derive(Debug)]
pub struct Disk<C> {
    // The ring goes before the memory that it names.
    way: Way,
    object: Object,
    geometry: BlockGeometry,
    memory: DmaRegion,
    clock: C,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Accepted, doorbell not rung yet.
    batch: Vec<u16>,
    /// Those among them for which the engine has no call and that are executed synchronously.
    in_place: Vec<u16>,
    done: VecDeque<(u16, i32)>,
    /// The ranges of each slot's list; grown once.
    lists: Vec<Vec<libc::iovec>>,
    waiter: Arc<Waiter>,
    troubles: Vec<Trouble>,
    failure: Option<String>,
}

// SAFETY: the pointers of lists name DMA memory, which the lane keeps and no reference is made of;
// they are read by the kernel alone.
unsafe impl<C: Send> Send for Disk<C> {}

impl Object {
    /// This many lanes, each for `depth` requests in flight (4096 at most), with `memory` bytes for
    /// each in one common region, and the clock that drives them: the time of `clock`.
    ///
    /// # Errors
    /// [`DiskError::Engine`] if the kernel refuses the engine.
    pub fn lanes<C: Clock + Clone>(
        &self,
        lanes: usize,
        depth: u32,
        memory: usize,
        clock: &C,
    ) -> Result<(Vec<Disk<C>>, Waiting<C>), DiskError> {
        let lanes = lanes.max(1);
        let bytes = memory.max(self.facts().block as usize).saturating_mul(lanes);
        let memory = DmaRegion::zeroed(bytes, 0);
        let lane = |_| Disk::new(self, lanes > 1, depth, memory.clone(), clock.clone());
        let made: Result<Vec<_>, _> = (0..lanes).map(lane).collect();
        let made = made?;
        let waiters = made.iter().map(|lane| Arc::clone(&lane.waiter)).collect();
        Ok((made, Waiting::new(clock.clone(), waiters)))
    }
}

impl<C: Clock> Disk<C> {
    fn new(
        object: &Object,
        is_one_of_many: bool,
        depth: u32,
        memory: DmaRegion,
        clock: C,
    ) -> Result<Self, DiskError> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let facts = *object.facts();
        let (way, waiter) = match object.settings.engine {
            Engine::Uring => {
                let (ring, waiter) = Uring::new(object, depth, &memory)?;
                (Way::Uring(Box::new(ring)), waiter)
            }
            Engine::Aio => {
                let (context, waiter) = Aio::new(object, depth, is_one_of_many)?;
                (Way::Aio(context), waiter)
            }
            Engine::Sync => (Way::Sync, Waiter::none()),
        };
        let segments = SegmentLimits {
            count: SEGMENTS_MAX as u16,
            alignment: facts.alignment,
            ..SegmentLimits::NONE
        };
        let nothing = Request {
            operation: Operation::Flush,
            force_unit_access: false,
            offset: 0,
            length: 0,
            data: Data::NONE,
            crypto: None,
            token: 0,
            accepted: Instant::START,
        };
        let empty = Slot { request: nothing, issued: Instant::START, ended: None, moved: 0 };
        let slots = depth as usize;
        Ok(Self {
            way,
            object: object.clone(),
            geometry: BlockGeometry {
                block_size: facts.block,
                blocks: facts.bytes / u64::from(facts.block),
                transfer_max: TRANSFER_MAX,
                segments,
                queue_depth: depth,
                can_delete: facts.can_delete,
                read_only: !facts.writable,
                crypto: false,
            },
            memory,
            clock,
            slots: vec![empty; slots],
            free: (0..depth as u16).rev().collect(),
            batch: Vec::with_capacity(slots),
            in_place: Vec::with_capacity(slots),
            done: VecDeque::with_capacity(slots),
            lists: vec![Vec::new(); slots],
            waiter: Arc::new(waiter),
            troubles: Vec::new(),
            failure: None,
        })
    }

    /// The kernel's errors so far.
    pub fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }

    /// The first of them, with the object, its offset, and the remedy.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// The rest of a slot's request as a call; the range was checked when it was accepted.
    #[inline]
    fn call(&mut self, slot: u16) -> Result<Call, BadData> {
        let Slot { request, moved, .. } = self.slots[usize::from(slot)];
        let offset = request.offset + u64::from(moved);
        let is_read = request.operation == Operation::Read;
        let what = match request.operation {
            Operation::Flush => What::Flush,
            Operation::Delete => What::Punch(request.length),
            Operation::Read | Operation::Write => {
                let left = request.length as u32 - moved;
                let data = match moved {
                    0 => request.data,
                    _ => request.data.part(&self.memory, moved, left)?,
                };
                match data {
                    Data::One(range) => {
                        let at = self.memory.offset_of(range.address, range.len as usize);
                        let at = at.map_err(|_| BadData::Outside)?; // No cause: both say the same.
                        // The range is inside the memory.
                        let address = self.memory.as_ptr().wrapping_add(at);
                        match is_read {
                            true => What::Read(address, at, range.len),
                            false => What::Write(address, at, range.len),
                        }
                    }
                    Data::List { .. } => {
                        let (list, count) = self.list(slot, &data)?;
                        match is_read {
                            true => What::ReadList(list, count),
                            false => What::WriteList(list, count),
                        }
                    }
                }
            }
        };
        let is_durable = request.operation == Operation::Write && request.force_unit_access;
        Ok(Call { what, offset, flags: if is_durable { libc::RWF_DSYNC } else { 0 } })
    }

    /// The ranges of a list in the kernel's form.
    fn list(&mut self, slot: u16, data: &Data) -> Result<(*const libc::iovec, u32), BadData> {
        let list = &mut self.lists[usize::from(slot)];
        list.clear();
        for range in data.ranges(&self.memory) {
            let range = range?;
            let at = self.memory.offset_of(range.address, range.len as usize);
            let at = at.map_err(|_| BadData::Outside)?; // No cause: both say the same.
            if list.len() == SEGMENTS_MAX {
                return Err(BadData::TooMany);
            }
            let iov_base = self.memory.as_ptr().wrapping_add(at).cast();
            list.push(libc::iovec { iov_base, iov_len: range.len as usize });
        }
        Ok((list.as_ptr(), list.len() as u32))
    }

    /// Passes a slot to the engine for the next submission.
    #[inline]
    fn queue(&mut self, slot: u16) -> Result<(), BadData> {
        let call = self.call(slot)?;
        let is_block = self.object.facts().is_block;
        match (&mut self.way, call.what) {
            // The kernel's asynchronous ways have no discard of a device before Linux 6.12, and a
            // polled ring takes neither.
            (_, What::Punch(_)) if is_block => self.in_place.push(slot),
            (_, What::Flush | What::Punch(_)) if self.object.settings.polled => {
                self.in_place.push(slot);
            }
            (Way::Aio(_), What::Punch(_)) | (Way::Sync, _) => self.in_place.push(slot),
            (Way::Uring(ring), _) => ring.push(slot, &call),
            (Way::Aio(context), _) => context.push(slot, &call),
        }
        self.batch.push(slot);
        Ok(())
    }

    /// Executes requests for which the engine has no call; if the engine is the system call itself,
    /// all of them.
    fn work_in_place(&mut self) {
        let is_block = self.object.facts().is_block;
        for at in 0..self.in_place.len() {
            let slot = self.in_place[at];
            let issued = self.clock.now();
            let result = match self.call(slot) {
                Err(_) => -libc::EFAULT,
                Ok(Call { what: What::Punch(length), offset, .. }) if is_block => {
                    discard(&self.object.file, offset, length)
                }
                Ok(call) => sync::perform(&self.object.file, &call, self.object.settings.polled),
            };
            let place = &mut self.slots[usize::from(slot)];
            (place.issued, place.ended) = (issued, Some(self.clock.now()));
            self.done.push_back((slot, result));
        }
        self.in_place.clear();
    }

    /// The end of a slot's call: a completion, or nothing if the kernel did only part of it.
    #[inline]
    fn finish(&mut self, slot: u16, result: i32, now: Instant) -> Option<Completion> {
        let place = &mut self.slots[usize::from(slot)];
        let request = place.request;
        let has_data = matches!(request.operation, Operation::Read | Operation::Write);
        let mut outcome = Ok(());
        if result < 0 {
            outcome = Err(self.fail(&request, -result));
        } else if has_data && u64::from(place.moved) + (result as u64) < request.length {
            place.moved += result as u32;
            // Nothing at all is the end of a file that shrank.
            if result > 0 && self.queue(slot).is_ok() {
                self.ring(now);
                return None;
            }
            outcome = Err(BlockError::OutOfRange);
        }
        let Slot { issued, ended, .. } = self.slots[usize::from(slot)];
        self.free.push(slot);
        self.waiter.in_flight.store(self.in_flight(), Ordering::Relaxed);
        let seen = ended.unwrap_or(now);
        let passage = Passage { accepted: request.accepted, issued, device_done: ended, seen };
        Some(Completion { token: request.token, result: outcome, passage })
    }

    #[cold]
    fn fail(&mut self, request: &Request, errno: i32) -> BlockError {
        let same = |it: &&mut Trouble| it.operation == request.operation && it.errno == errno;
        match self.troubles.iter_mut().find(same) {
            Some(known) => known.count += 1,
            None => {
                self.troubles.push(Trouble { operation: request.operation, errno, count: 1 });
            }
        }
        let settings = &self.object.settings;
        let (path, cause) = (self.object.path.display(), io::Error::from_raw_os_error(errno));
        let Request { operation, offset, length, .. } = request;
        let help = remedy(errno, settings.direct, settings.polled);
        self.failure.get_or_insert_with(|| {
            format!("{path}: {operation} of {length} bytes at offset {offset}: {cause}{help}")
        });
        error_of(errno, request.operation)
    }

    #[inline]
    fn reap(&mut self) -> Option<(u16, i32)> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        match &mut self.way {
            Way::Uring(ring) => ring.reap(&self.waiter),
            Way::Aio(context) => context.reap(&self.waiter),
            Way::Sync => None,
        }
    }
}

impl<C: Clock> BlockDevice for Disk<C> {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        if request.length > u64::from(TRANSFER_MAX) && request.operation != Operation::Delete {
            return Err(Refused::Invalid(BlockError::BadData(BadData::Length)));
        }
        if request.crypto.is_some() {
            return Err(Refused::Invalid(BlockError::Unsupported));
        }
        let invalid = |bad| Refused::Invalid(BlockError::BadData(bad));
        self.geometry.segments.check(&request.data, &self.memory).map_err(invalid)?;
        let Some(slot) = self.free.pop() else { return Err(Refused::Full) };
        let place = &mut self.slots[usize::from(slot)];
        *place = Slot { request: *request, issued: now, ended: None, moved: 0 };
        if let Err(bad) = self.queue(slot) {
            self.free.push(slot);
            return Err(invalid(bad));
        }
        Ok(())
    }

    #[inline]
    fn ring(&mut self, _now: Instant) {
        self.waiter.in_flight.store(self.in_flight(), Ordering::Relaxed);
        match &mut self.way {
            Way::Uring(ring) => ring.submit(&self.waiter),
            Way::Aio(context) => context.submit(&self.waiter),
            Way::Sync => {}
        }
        let issued = self.clock.now();
        for &slot in &self.batch {
            let place = &mut self.slots[usize::from(slot)];
            // What goes on with a part was issued before.
            if place.moved == 0 {
                place.issued = issued;
            }
        }
        self.batch.clear();
        if !self.in_place.is_empty() {
            self.work_in_place();
        }
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        loop {
            let (slot, result) = self.reap()?;
            if let Some(completion) = self.finish(slot, result, now) {
                return Some(completion);
            }
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

impl<C> Drop for Disk<C> {
    /// The kernel writes into the memory of requests in flight.
    fn drop(&mut self) {
        let ours = self.free.len() + self.done.len() + self.in_place.len();
        match &mut self.way {
            Way::Uring(ring) => ring.drain(self.slots.len() - ours),
            Way::Aio(context) => context.destroy(),
            Way::Sync => {}
        }
    }
}

#[cfg(test)]
mod tests;
