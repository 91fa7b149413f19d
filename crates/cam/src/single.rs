//! The common case: a read or write that is one command, submitted while nothing waits and ended
//! plainly well. The wish alone is all there is to it; whatever else happens to it is the business
//! of the general way, for which it gets a part then.

use flysch_api::block::{Completion, Operation, Refused, Request};
use flysch_api::command::{Ended, NotStarted, Outcome, Port};
use flysch_api::data::Data;
use flysch_api::machine::Instant;
use flysch_api::trace::Passage;

use crate::disk::{Disk, transfer};
use crate::family::Family;
use crate::queue::{Order, Standing, Wish, next_token};

impl Wish {
    /// The one command of a single wish.
    #[inline(always)]
    fn single_order<F: Family>(&self, timeout_nanos: u64) -> Order<F> {
        let write = self.operation == Operation::Write;
        let order = transfer(write, (self.lba, self.blocks as u32), false, self.data);
        Order { timeout_nanos, ..order }
    }
}

impl<P: Port> Disk<P>
where
    P::Protocol: Family,
{
    /// Whether [`submit_single`](Self::submit_single) can take a request that was checked.
    #[inline(always)]
    pub(crate) fn is_single(&self, request: &Request) -> bool {
        let segments = &self.geometry.segments;
        let fits = match &request.data {
            Data::One(_) => true,
            // None of its ranges can become two.
            Data::List { count, .. } => {
                *count <= segments.count.into()
                    && request.data.len() <= segments.length
                    && segments.boundary == 0
            }
        };
        fits && matches!(request.operation, Operation::Read | Operation::Write)
            && request.length <= u64::from(self.geometry.transfer_max)
            && !request.force_unit_access
            && request.crypto.is_none()
            && self.queue.nothing_waits()
            && self.queue.started < self.openings
    }

    /// Takes a request for which [`is_single`](Self::is_single) holds.
    #[inline(always)]
    pub(crate) fn submit_single(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        let Some((index, wish)) = self.queue.pop_wish() else { return Err(Refused::Full) };
        wish.begin(request, self.block_shift, Standing::Single);
        let token = next_token(&mut wish.number);
        let order = wish.single_order(self.transfer_timeout_nanos);
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

    /// Makes an ordinary wish of a single one.
    #[cold]
    fn give_it_a_part(&mut self, index: u16) {
        let order = self.queue.wish(index).single_order(self.transfer_timeout_nanos);
        self.queue.give_part(index, order);
    }

    /// The completion of a request that was one command and ended plainly well.
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
