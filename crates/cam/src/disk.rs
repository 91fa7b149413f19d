//! A direct-access unit as a block device, over a port of any protocol that has a [`Family`].
//!
//! Down: a request is checked, becomes a wish in the queue, and is split into parts of at most the
//! longest transfer; each part goes to the port as one command. Up: an outcome finds its part by
//! token; plain success ends the part, everything else goes to `recover`. A wish is done when its
//! last part is done, and its result is the first failure.

use flysch_api::block::{BlockDevice, BlockError, BlockGeometry, Completion, Operation};
use flysch_api::block::{Refused, Request};
use flysch_api::command::{Command, Direction, Ended, Limits, NotStarted, Ordering, Outcome};
use flysch_api::command::{Port, Protocol, Token};
use flysch_api::data::Data;
use flysch_api::machine::{DmaRegion, Instant};
use flysch_api::trace::Passage;

use crate::error::CamError;
use crate::family::{Attention, DELETE_LIST_MAX, Family};
use crate::queue::{Course, Force, Order, Queue, Standing, next_token};
use rescue::Rescue;
use single::Single;

mod control;
mod recover;
mod rescue;
mod single;

pub use control::Tags;
pub use recover::Statistics;

/// Maximum number of commands in flight: two indexes per command must fit in 16 bits.
const SLOTS_MAX: u32 = 16_384;
/// When to retry a port that accepted nothing although nothing is in flight, nanoseconds.
const ASK_AGAIN_NANOS: u64 = 1_000_000;

/// Options of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Requests accepted at once; limited by the slots of the port.
    pub queue_depth: u32,
    /// Longest transfer of one command, bytes; limited by port and unit.
    pub transfer_max: u32,
    /// How often a command is retried after a failure that may be temporary.
    pub retries: u8,
    /// Time limit of a read or write, milliseconds.
    pub transfer_timeout_ms: u32,
    /// Time limit of a cache flush, milliseconds.
    pub flush_timeout_ms: u32,
    /// Time limit of an UNMAP, milliseconds.
    pub delete_timeout_ms: u32,
    /// Minimum number of commands in flight after TASK SET FULL (CAM's mintags); at least 1.
    pub tags_min: u32,
    /// Blocks per zone of the unit; its deletes cover whole zones and reset them
    /// ([`Family::reset_zone`]). 0 if it has no zones.
    pub zone_blocks: u32,
}

impl Default for DiskOptions {
    /// Everything the port and the unit allow; 4 retries as in CAM's `da`; 10 s per transfer, 60 s
    /// for commands whose work is not bounded by their length.
    fn default() -> Self {
        Self {
            queue_depth: u32::MAX,
            transfer_max: u32::MAX,
            retries: 4,
            transfer_timeout_ms: 10_000,
            flush_timeout_ms: 60_000,
            delete_timeout_ms: 60_000,
            tags_min: 1,
            zone_blocks: 0,
        }
    }
}

/// The properties of a unit that can be a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The unit in its protocol's numbers ([`Command::unit`]).
    pub unit: u64,
    /// Bytes per logical block.
    pub block_size: u32,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Longest transfer of the unit, blocks; 0 if it reports none (SCSI: VPD page B0).
    pub transfer_blocks_max: u32,
    /// Longest range of one delete, blocks; 0 if the unit cannot delete (SCSI: UNMAP).
    pub delete_blocks_max: u32,
    /// Whether the unit has a volatile write cache that is enabled (SCSI: caching mode page, WCE).
    pub write_cache: bool,
    /// Whether transfers may force unit access (SCSI: mode parameter header, DPOFUA).
    pub force_unit_access: bool,
    /// Whether the unit is write protected (SCSI: mode parameter header, WP).
    pub write_protected: bool,
}

/// The longest delete that a unit takes, counted in units of `1 << range_shift` bytes.
fn delete_max(shape: &Shape, range_shift: u32) -> u32 {
    let each = shape.block_size >> range_shift;
    // The largest number is rounded down to whole blocks.
    shape.delete_blocks_max.min(u32::MAX / each) * each
}

/// A unit as a block device, over one lane's port.
#[derive(Debug)]
pub struct Disk<P: Port> {
    pub(crate) port: P,
    pub(crate) shape: Shape,
    pub(crate) geometry: BlockGeometry,
    pub(crate) options: DiskOptions,
    pub(crate) single: Single,
    /// Log2 of the bytes in which commands count ranges: a block, or a part of one.
    pub(crate) range_shift: u32,
    /// Longest read or write of one command, and longest delete, in these units.
    transfer_max: u32,
    delete_max: u32,
    pub(crate) transfer_timeout_nanos: u64,
    /// Parameter lists, one slot per part.
    scratch: DmaRegion,
    pub(crate) queue: Queue<P::Protocol>,
    /// Commands the port accepts at once.
    pub(crate) slots: u32,
    /// Commands to keep in flight; after TASK SET FULL fewer than the port accepts.
    pub(crate) openings: u32,
    /// The maximum to which `openings` may grow back.
    pub(crate) tags_max: u32,
    /// Number of freezes that have not been released.
    frozen: u32,
    /// The ordered wish in progress: no other gets parts.
    barrier: Option<u16>,
    pub(crate) rescue: Rescue,
    /// Events reported by the unit and not yet taken.
    pub(crate) attention: Attention,
    /// Plain successes since `openings` last changed.
    pub(crate) good_since: u32,
    /// The port or the unit is permanently gone.
    pub(crate) gone: bool,
    /// The unit has no flush command, and needs none.
    pub(crate) no_flush: bool,
    /// A write failed after it was reported done; the next flush reports it.
    pub(crate) deferred: Option<BlockError>,
    /// When to retry a port that accepted nothing although nothing is in flight.
    ask_again: Option<Instant>,
    pub(crate) statistics: Statistics,
}

impl<P: Port> Disk<P>
where
    P::Protocol: Family,
{
    /// Bytes of scratch memory that a disk needs over a port with this many slots.
    pub const fn scratch_bytes(slots: u32) -> usize {
        // One place for each part: those of the wishes, at most as many as slots, and those lent.
        2 * P::Protocol::DELETE_LIST * slots as usize
    }

    /// A disk over `port`, which must not carry other commands.
    ///
    /// `scratch` is part of the port's memory and belongs to the disk: at least
    /// [`scratch_bytes`](Self::scratch_bytes) for the port's slots if the unit can delete.
    ///
    /// # Errors
    /// [`CamError::BlockSize`], [`CamError::NotADisk`], [`CamError::Scratch`] or
    /// [`CamError::NoSlots`].
    pub fn new(
        port: P,
        shape: Shape,
        scratch: DmaRegion,
        options: &DiskOptions,
    ) -> Result<Self, CamError> {
        let slots = port.limits().slots.min(SLOTS_MAX);
        let geometry = Self::plan(port.limits(), &shape, scratch.len(), options)?;
        let wishes = geometry.queue_depth;
        let range_shift = P::Protocol::counted(shape.block_size).trailing_zeros();
        Ok(Self {
            port,
            shape,
            single: Single::new(&geometry),
            geometry,
            options: *options,
            range_shift,
            transfer_max: geometry.transfer_max >> range_shift,
            delete_max: delete_max(&shape, range_shift),
            transfer_timeout_nanos: u64::from(options.transfer_timeout_ms) * 1_000_000,
            scratch,
            queue: Queue::new(wishes as u16, slots as u16),
            slots,
            openings: slots,
            tags_max: slots,
            frozen: 0,
            barrier: None,
            rescue: Rescue::default(),
            attention: Attention::default(),
            good_since: 0,
            gone: false,
            no_flush: false,
            deferred: None,
            ask_again: None,
            statistics: Statistics::default(),
        })
    }

    /// The geometry of a unit of this shape as a block device, over a port with these limits and
    /// with this much scratch memory.
    fn plan(
        limits: &Limits,
        shape: &Shape,
        scratch: usize,
        options: &DiskOptions,
    ) -> Result<BlockGeometry, CamError> {
        let Shape { unit, block_size, .. } = *shape;
        let slots = limits.slots.min(SLOTS_MAX);
        if slots == 0 {
            return Err(CamError::NoSlots);
        }
        if shape.blocks == 0 {
            return Err(CamError::NotADisk { unit });
        }
        let bytes_max = limits.transfer_max.min(options.transfer_max);
        let mut transfer_blocks = bytes_max.checked_div(block_size).unwrap_or(0);
        if shape.transfer_blocks_max != 0 {
            transfer_blocks = transfer_blocks.min(shape.transfer_blocks_max);
        }
        let counted = P::Protocol::counted(block_size);
        if !block_size.is_power_of_two() || block_size < counted || transfer_blocks == 0 {
            return Err(CamError::BlockSize { unit, block_size });
        }
        let needed = Self::scratch_bytes(slots);
        let can_delete = match options.zone_blocks {
            0 => shape.delete_blocks_max > 0,
            _ => P::Protocol::reset_zone(0).is_some(),
        };
        if can_delete && scratch < needed {
            return Err(CamError::Scratch { needed, got: scratch });
        }
        Ok(BlockGeometry {
            block_size,
            blocks: shape.blocks,
            transfer_max: transfer_blocks * block_size,
            segments: limits.segments,
            queue_depth: options.queue_depth.clamp(1, slots),
            can_delete,
            read_only: shape.write_protected,
            crypto: limits.crypto,
        })
    }

    /// What has happened to this disk's commands so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// What the scan found out about the unit.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The port below.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port below. If a caller starts commands on it, it takes their outcomes away from the
    /// disk.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the port. Requests in flight are forgotten.
    pub fn into_port(self) -> P {
        self.port
    }

    /// Accepts any request.
    #[inline(never)]
    fn submit_general(
        &mut self,
        request: &Request,
        ordered: bool,
        now: Instant,
    ) -> Result<(), Refused> {
        if self.gone {
            return Err(Refused::Invalid(BlockError::Gone));
        }
        self.geometry.check(request).map_err(Refused::Invalid)?;
        let invalid = |bad| Refused::Invalid(BlockError::BadData(bad));
        if request.operation == Operation::Delete {
            self.check_zones(request).map_err(Refused::Invalid)?;
        }
        let segments = self.geometry.segments;
        segments.check(&request.data, self.port.memory()).map_err(invalid)?;
        let part_blocks = self.part_blocks(request.operation);
        let Some(wish_index) = self.queue.take_wish(request, self.range_shift) else {
            return Err(Refused::Full);
        };
        let wish = self.queue.wish(wish_index);
        match request.operation {
            Operation::Flush if self.no_flush && !ordered => {
                wish.blocks = 0;
                self.queue.push_finished(wish_index);
                return Ok(());
            }
            Operation::Flush if self.no_flush => wish.blocks = 0,
            Operation::Flush => wish.blocks = 1,
            Operation::Write if request.force_unit_access && self.shape.write_cache => {
                let bit = self.shape.force_unit_access;
                let force = if bit { Force::Bit } else { Force::Flush };
                self.queue.course(wish_index).force = force;
            }
            _ => {}
        }
        let wish = self.queue.wish(wish_index);
        let whole = wish.blocks <= u64::from(part_blocks) && !ordered;
        self.queue.courses[usize::from(wish_index)].ordered = ordered;
        let wish = self.queue.wish(wish_index);
        if !whole || matches!(wish.data, Data::List { .. }) || !self.queue.nothing_waits() {
            self.queue.push_unsplit(wish_index);
            self.pump(now);
            return Ok(());
        }
        // Its own part is free, so this always makes one.
        let Ok(Some(index)) = self.split(wish_index) else { return Err(Refused::Full) };
        self.issue(index, now).or_else(|why| self.not_started(index, why))
    }

    /// Handles a wish whose only part the port did not accept.
    #[cold]
    fn not_started(&mut self, index: u16, why: NotStarted) -> Result<(), Refused> {
        if why == NotStarted::Full {
            self.queue.wait(index, false);
            return Ok(());
        }
        let error = self.refusal(why);
        let wish = self.queue.release_part(index);
        self.queue.release_wish(wish);
        Err(Refused::Invalid(error))
    }

    /// The port or the unit is permanently gone: every request takes the general path and fails
    /// there.
    #[cold]
    pub(crate) fn set_gone(&mut self) {
        self.gone = true;
        self.single.close();
    }

    /// The error to report if the port will not accept a command.
    pub(crate) fn refusal(&mut self, why: NotStarted) -> BlockError {
        match why {
            NotStarted::BadData(bad) => BlockError::BadData(bad),
            NotStarted::Unsupported => BlockError::Unsupported,
            NotStarted::Full | NotStarted::Gone => {
                self.set_gone();
                BlockError::Gone
            }
        }
    }

    /// Checks that a delete covers whole zones, if there are zones.
    #[cold]
    fn check_zones(&self, request: &Request) -> Result<(), BlockError> {
        let zone = u64::from(self.options.zone_blocks) << self.range_shift;
        let is_whole = |bytes: u64| zone == 0 || bytes.is_multiple_of(zone);
        match is_whole(request.offset) && is_whole(request.length) {
            true => Ok(()),
            false => Err(BlockError::Misaligned),
        }
    }

    /// Longest range of one part of this operation, as commands count it.
    #[inline]
    fn part_blocks(&self, operation: Operation) -> u32 {
        match operation {
            Operation::Read | Operation::Write => self.transfer_max,
            Operation::Delete if self.options.zone_blocks > 0 => self.options.zone_blocks,
            Operation::Delete => self.delete_max,
            // A flush counts as one block: it has one part.
            Operation::Flush => 1,
        }
    }

    /// Makes the next part of a wish that has blocks without a part, if a part is free.
    ///
    /// # Errors
    /// The data of the next part is invalid.
    fn split(&mut self, wish_index: u16) -> Result<Option<u16>, BlockError> {
        let write = match self.queue.wish(wish_index).operation {
            Operation::Read => false,
            Operation::Write => true,
            Operation::Flush | Operation::Delete => return Ok(self.split_rare(wish_index)),
        };
        let Course { crypto, force, .. } = self.queue.courses[usize::from(wish_index)];
        // What one command moves: whole blocks, and whole data units of its key.
        let unit = crypto.map_or(0, |context| context.unit.bytes()).max(self.geometry.block_size);
        let wish = &self.queue.wishes[usize::from(wish_index)];
        let blocks = wish.blocks.min(u64::from(self.transfer_max)) as u32;
        let memory = self.port.memory();
        let bytes = self
            .geometry
            .segments
            .fit(&wish.data, memory, blocks << self.range_shift, unit)
            .map_err(BlockError::BadData)?;
        let rest = wish.data.len() - bytes;
        let part = |skip, len| wish.data.part(memory, skip, len).map_err(BlockError::BadData);
        let (data, rest) = (part(0, bytes)?, part(bytes, rest)?);
        let Some(index) = self.queue.take_part(wish_index) else { return Ok(None) };
        let wish = &mut self.queue.wishes[usize::from(wish_index)];
        let blocks = bytes >> self.range_shift;
        let range = (wish.lba, blocks);
        let order = transfer::<P::Protocol>(write, range, force == Force::Bit, data);
        wish.lba += u64::from(blocks);
        wish.blocks -= u64::from(blocks);
        wish.data = rest;
        let after = crypto.map(|context| context.after(bytes.into()));
        self.queue.courses[usize::from(wish_index)].crypto = after;
        let timeout_nanos = self.transfer_timeout_nanos;
        self.queue.part(index).order = Some(Order { timeout_nanos, crypto, ..order });
        Ok(Some(index))
    }

    /// Makes a part of a delete that resets one zone.
    fn split_reset(
        &mut self,
        wish_index: u16,
        payload: <P::Protocol as Protocol>::Payload,
    ) -> Option<u16> {
        let index = self.queue.take_part(wish_index)?;
        let wish = &mut self.queue.wishes[usize::from(wish_index)];
        let blocks = u64::from(self.options.zone_blocks);
        wish.lba += blocks;
        wish.blocks = wish.blocks.saturating_sub(blocks);
        self.queue.part(index).order = Some(Order {
            payload,
            direction: Direction::None,
            data: Data::NONE,
            crypto: None,
            timeout_nanos: u64::from(self.options.delete_timeout_ms) * 1_000_000,
        });
        Some(index)
    }

    /// Makes a part for a delete or flush.
    #[cold]
    fn split_rare(&mut self, wish_index: u16) -> Option<u16> {
        let wish = self.queue.wish(wish_index);
        if self.options.zone_blocks > 0
            && wish.operation == Operation::Delete
            && let Some(payload) = P::Protocol::reset_zone(wish.lba)
        {
            return self.split_reset(wish_index, payload);
        }
        let index = self.queue.take_part(wish_index)?;
        let wish = &mut self.queue.wishes[usize::from(wish_index)];
        if wish.operation == Operation::Flush {
            wish.blocks = 0;
            self.make_flush(index);
            return Some(index);
        }
        let blocks = wish.blocks.min(u64::from(self.delete_max)) as u32;
        let offset = usize::from(index) * P::Protocol::DELETE_LIST;
        let mut list = [0; DELETE_LIST_MAX];
        let (payload, len) = P::Protocol::delete(wish.lba, blocks, &mut list);
        self.scratch.write(offset, &list[..len]);
        wish.lba += u64::from(blocks);
        wish.blocks -= u64::from(blocks);
        self.queue.part(index).order = Some(Order {
            payload,
            direction: Direction::ToDevice,
            data: Data::One(self.scratch.slice(offset, len as u32)),
            crypto: None,
            timeout_nanos: u64::from(self.options.delete_timeout_ms) * 1_000_000,
        });
        Some(index)
    }

    /// Turns a part into a flush.
    fn make_flush(&mut self, index: u16) {
        self.queue.part(index).order = Some(Order {
            payload: P::Protocol::flush(),
            direction: Direction::None,
            data: Data::NONE,
            crypto: None,
            timeout_nanos: u64::from(self.options.flush_timeout_ms) * 1_000_000,
        });
    }

    /// Starts a part.
    fn issue(&mut self, index: u16, now: Instant) -> Result<(), NotStarted> {
        if self.queue.started >= self.openings {
            return Err(NotStarted::Full);
        }
        let part = &mut self.queue.parts[usize::from(index)];
        let Some(order) = part.order else { return Ok(()) };
        let command = order.command(self.shape.unit, next_token(&mut part.number), now);
        self.port.start(command, now).map_err(|declined| declined.why)?;
        part.started = true;
        self.queue.started += 1;
        self.statistics.commands += 1;
        Ok(())
    }

    /// What the wish of a part asks for.
    #[inline]
    pub(crate) fn operation(&self, index: u16) -> Operation {
        self.queue.wishes[usize::from(self.queue.parts[usize::from(index)].wish)].operation
    }

    /// Makes parts for wishes that wait for them, as long as parts are free.
    fn split_waiting(&mut self) {
        while let Some(wish_index) = self.queue.first_unsplit() {
            if self.gone {
                self.queue.fail(wish_index, BlockError::Gone);
            }
            if !self.may_split(wish_index) {
                return;
            }
            while self.queue.wish(wish_index).blocks > 0 {
                match self.split(wish_index) {
                    Ok(Some(index)) => self.queue.wait(index, false),
                    Ok(None) => return,
                    Err(error) => self.queue.fail(wish_index, error),
                }
            }
            self.queue.pop_unsplit();
            if self.queue.course(wish_index).open == 0 {
                // It failed before its turn came, and no part is left to report it.
                self.queue.push_finished(wish_index);
            }
        }
    }

    /// Whether the first wish that waits for parts may have them: none may while an ordered wish is
    /// in progress, and an ordered wish may not while others are.
    fn may_split(&mut self, wish_index: u16) -> bool {
        if let Some(ordered) = self.barrier {
            return ordered == wish_index;
        }
        if !self.queue.course(wish_index).ordered {
            return true;
        }
        let may = self.queue.has_no_parts();
        if may {
            self.barrier = Some(wish_index);
            self.queue.hold();
        }
        may
    }

    /// Starts parts that wait for room or time, as far as there is room; returns whether it did.
    #[inline(never)]
    fn pump(&mut self, now: Instant) -> bool {
        self.ask_again = None;
        if self.is_held() {
            return self.start_unit(now);
        }
        let mut started = false;
        loop {
            self.queue.wake(now, self.gone);
            self.split_waiting();
            let Some(index) = self.queue.pop_waiting() else { return started };
            let wish = self.queue.part(index).wish;
            let doomed = self.queue.course(wish).error.or(self.gone.then_some(BlockError::Gone));
            let error = match doomed.map_or_else(|| self.issue(index, now), |_| Ok(())) {
                Ok(()) if doomed.is_none() => {
                    started = true;
                    continue;
                }
                Ok(()) => doomed,
                Err(NotStarted::Full) => {
                    self.queue.wait(index, true);
                    if self.queue.started == 0 {
                        self.ask_again = Some(now.after_nanos(ASK_AGAIN_NANOS));
                    }
                    return started;
                }
                Err(why) => Some(self.refusal(why)),
            };
            if let Some(done) = self.end_part(index, error) {
                self.queue.push_finished(done);
            }
        }
    }

    /// Handles the outcome of a part; returns the wish if this was its last part.
    #[inline(never)]
    pub(crate) fn take_outcome(&mut self, outcome: &Outcome, now: Instant) -> Option<u16> {
        let number = outcome.token.number();
        let index = number as u16;
        let Some(part) = self.queue.parts.get_mut(usize::from(index)) else {
            if !self.take_rescue(number) {
                self.statistics.strays += 1;
            }
            return None;
        };
        if !part.started || part.number != number {
            self.statistics.strays += 1;
            return None;
        }
        part.started = false;
        self.queue.started -= 1;
        let course = &mut self.queue.courses[usize::from(part.wish)];
        course.issued = course.issued.min(outcome.issued);
        course.device_done = course.device_done.max(outcome.device_done);
        course.seen = course.seen.max(now);
        if outcome.ended == Ended::Good {
            self.reopen();
            return self.end_part(index, None);
        }
        self.recover(index, outcome.ended, now)
    }

    /// Ends a part; returns its wish if this was the last part.
    pub(crate) fn end_part(&mut self, index: u16, error: Option<BlockError>) -> Option<u16> {
        let wish_index = self.queue.release_part(index);
        if let Some(error) = error {
            self.queue.fail(wish_index, error);
        }
        let course = &mut self.queue.courses[usize::from(wish_index)];
        let wish = &self.queue.wishes[usize::from(wish_index)];
        if course.open > 0 || wish.standing == Standing::Listed {
            return None;
        }
        if course.force == Force::Flush && course.error.is_none() {
            course.force = Force::No;
            self.flush_part(wish_index);
            return None;
        }
        Some(wish_index)
    }

    /// Adds a flush to a wish as its last part.
    #[cold]
    fn flush_part(&mut self, wish_index: u16) {
        // The part that just ended is free again.
        let Some(index) = self.queue.take_part(wish_index) else { return };
        self.make_flush(index);
        self.queue.wait(index, false);
    }

    /// Completes a wish.
    fn finish(&mut self, wish_index: u16, now: Instant) -> Completion {
        let wish = &self.queue.wishes[usize::from(wish_index)];
        let course = &mut self.queue.courses[usize::from(wish_index)];
        if wish.operation == Operation::Flush && course.error.is_none() {
            course.error = self.deferred.take();
        }
        // A wish that never got as far as the device was issued when it ended.
        let issued = course.issued.min(now);
        let completion = Completion {
            token: wish.token,
            result: course.error.map_or(Ok(()), Err),
            passage: Passage {
                accepted: wish.accepted,
                issued,
                device_done: course.device_done,
                seen: course.seen.max(issued),
            },
        };
        self.statistics.failures += u64::from(course.error.is_some());
        if self.barrier == Some(wish_index) {
            self.barrier = None;
            self.queue.release();
        }
        self.queue.release_wish(wish_index);
        completion
    }
}

/// A read or write, whose time limit has yet to be set.
#[inline(always)]
pub(crate) fn transfer<F: Family>(
    write: bool,
    (lba, blocks): (u64, u32),
    force: bool,
    data: Data,
) -> Order<F> {
    Order {
        payload: F::transfer(write, lba, blocks, force),
        direction: if write { Direction::ToDevice } else { Direction::FromDevice },
        data,
        crypto: None,
        timeout_nanos: 0,
    }
}

impl<F: Family> Order<F> {
    /// The order as a command.
    #[inline(always)]
    pub(crate) fn command(&self, unit: u64, token: Token, now: Instant) -> Command<F> {
        Command {
            unit,
            payload: self.payload,
            direction: self.direction,
            data: self.data,
            crypto: self.crypto,
            ordering: Ordering::Simple,
            deadline: now.after_nanos(self.timeout_nanos),
            token,
        }
    }
}

impl<P: Port> BlockDevice for Disk<P>
where
    P::Protocol: Family,
{
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        self.port.memory()
    }

    #[cold]
    fn submit_ordered(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        self.submit_general(request, true, now)
    }

    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        if self.is_single(request) {
            return self.submit_single(request, now);
        }
        // Made anew, so that only a request that comes this way has to be in memory.
        let request = *request;
        self.submit_general(&request, false, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.port.ring(now);
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        while let Some(outcome) = self.port.poll(now) {
            if let Some(completion) = self.finish_single(&outcome, now) {
                return Some(completion);
            }
            // Made anew, so that only an outcome that comes this way has to be in memory.
            let Outcome { issued, device_done, token, ended } = outcome;
            let outcome = Outcome { issued, device_done, token, ended };
            if let Some(wish) = self.take_outcome(&outcome, now) {
                return Some(self.finish(wish, now));
            }
        }
        if self.queue.is_quiet() {
            return None;
        }
        if self.pump(now) {
            self.port.ring(now);
        }
        let wish = self.queue.pop_finished()?;
        Some(self.finish(wish, now))
    }

    fn poll_at(&self) -> Option<Instant> {
        if self.queue.has_finished() {
            return Some(Instant::START);
        }
        // What is held waits for an outcome or a release, not for time.
        let wake_at = if self.is_held() { None } else { self.queue.wake_at() };
        let own = [wake_at, self.ask_again, self.port.poll_at()];
        own.into_iter().flatten().min()
    }
}
