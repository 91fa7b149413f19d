//! The common case: a read or write that is one command, submitted while nothing waits, that ends
//! with plain success. It needs only the wish. Everything else takes the general path, for which
//! the wish gets a part.

use flysch_api::block::{BlockGeometry, Completion, Operation, Refused, Request};
use flysch_api::command::{Ended, NotStarted, Outcome, Port};
use flysch_api::data::Data;
use flysch_api::machine::Instant;
use flysch_api::trace::Passage;

use super::{Disk, transfer};
use crate::family::Family;
use crate::queue::{Order, Standing, next_token};

/// What makes a request the common case, derived from the disk's geometry: [`BlockGeometry::check`]
/// and the check for a single command in one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    /// Size of the disk, bytes.
    size: u64,
    /// Bits that must be clear in offset and length.
    mask: u64,
    /// Longest range, bytes.
    one: u64,
    /// Longest list, bytes, such that no range becomes two; and its maximum number of ranges.
    list: u64,
    count: u32,
    /// Whether writes are accepted.
    writes: bool,
}

impl Single {
    pub(crate) fn new(geometry: &BlockGeometry) -> Self {
        let BlockGeometry { block_size, transfer_max, segments, read_only, .. } = *geometry;
        let size = geometry.bytes();
        let one = u64::from(transfer_max).min(size);
        let list = if segments.boundary == 0 { one.min(segments.length.into()) } else { 0 };
        let mask = u64::from(block_size) - 1;
        Self { size, mask, one, list, count: segments.count.into(), writes: !read_only }
    }

    /// From now on no request is the common case.
    #[cold]
    pub(crate) fn close(&mut self) {
        self.one = 0;
    }

    /// Whether a request is valid and takes a single command.
    #[inline(always)]
    fn takes(&self, request: &Request) -> bool {
        let Request { operation, force_unit_access, offset, length, .. } = *request;
        let fits = match request.data {
            Data::One(_) => true,
            Data::List { count, .. } => count <= self.count && length <= self.list,
        };
        let plain = match operation {
            Operation::Read => true,
            Operation::Write => self.writes && !force_unit_access,
            Operation::Flush | Operation::Delete => false,
        };
        // The subtraction cannot underflow: lengths beyond the disk have failed by then.
        fits && plain
            && request.crypto.is_none()
            && u64::from(request.data.len()) == length
            && length.wrapping_sub(1) < self.one
            && (offset | length) & self.mask == 0
            && offset <= self.size - length
    }
}

/// The only command of a single request, whose time limit has yet to be set.
#[inline(always)]
fn order<F: Family>(operation: Operation, range: (u64, u32), data: Data) -> Order<F> {
    transfer(operation == Operation::Write, range, false, data)
}

impl<P: Port> Disk<P>
where
    P::Protocol: Family,
{
    /// Whether [`submit_single`](Self::submit_single) can take a request.
    #[inline(always)]
    pub(crate) fn is_single(&self, request: &Request) -> bool {
        self.single.takes(request)
            && self.queue.nothing_waits()
            && self.queue.started < self.openings
    }

    /// Takes a request for which [`is_single`](Self::is_single) holds.
    #[inline(always)]
    pub(crate) fn submit_single(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        let Some((index, wish)) = self.queue.pop_wish() else { return Err(Refused::Full) };
        wish.begin(request, self.range_shift, Standing::Single);
        let token = next_token(&mut wish.number);
        // From the request and not the wish, so that what was just stored is not read back.
        let blocks = (request.length >> self.range_shift) as u32;
        let range = (request.offset >> self.range_shift, blocks);
        let order = order::<P::Protocol>(request.operation, range, request.data);
        let order = Order { timeout_nanos: self.transfer_timeout_nanos, ..order };
        match self.port.start(order.command(self.shape.unit, token, now), now) {
            Ok(()) => {
                self.queue.started += 1;
                self.statistics.commands += 1;
                Ok(())
            }
            Err(declined) => self.single_not_started(index, declined.why),
        }
    }

    #[cold]
    fn single_not_started(&mut self, index: u16, why: NotStarted) -> Result<(), Refused> {
        if why == NotStarted::Full {
            self.give_it_a_part(index);
            self.queue.part(index).started = false;
            self.queue.wait(index, false);
            return Ok(());
        }
        let error = self.refusal(why);
        self.queue.wish(index).standing = Standing::InParts;
        self.queue.release_wish(index);
        Err(Refused::Invalid(error))
    }

    /// Turns a single wish into an ordinary one.
    #[cold]
    fn give_it_a_part(&mut self, index: u16) {
        let wish = self.queue.wish(index);
        let order = order(wish.operation, (wish.lba, wish.blocks as u32), wish.data);
        let timeout_nanos = self.transfer_timeout_nanos;
        self.queue.give_part(index, Order { timeout_nanos, ..order });
    }

    /// The completion of a request that was one command and ended with plain success.
    #[inline(always)]
    pub(crate) fn finish_single(&mut self, outcome: &Outcome, now: Instant) -> Option<Completion> {
        let number = outcome.token.number();
        let index = number as u16;
        let wish = self.queue.wishes.get_mut(usize::from(index))?;
        if wish.standing != Standing::Single || wish.number != number {
            return None;
        }
        if outcome.ended != Ended::Good {
            self.give_it_a_part(index);
            return None;
        }
        wish.standing = Standing::InParts;
        let completion = Completion {
            token: wish.token,
            result: Ok(()),
            passage: Passage {
                accepted: wish.accepted,
                issued: outcome.issued,
                device_done: outcome.device_done,
                seen: now,
            },
        };
        self.queue.started -= 1;
        self.queue.release_wish(index);
        self.reopen();
        Some(completion)
    }
}
