//! The common case: a read or write that is one command, submitted while nothing waits and ended
//! by a plain success. It makes the same wish and the same part as any other request, only
//! without the detours; whatever else happens to it is the business of the general way.

use flysch_api::block::{Completion, Error, Operation, Refused, Request};
use flysch_api::command::{Direction, Ended, NotStarted, Outcome, Port};
use flysch_api::machine::{DmaSlice, Instant};
use flysch_api::trace::Stamps;
use flysch_wire::scsi::Status;

use crate::cdb;
use crate::disk::Disk;

impl<P: Port> Disk<P> {
    /// Whether [`submit_single`](Self::submit_single) can take a request that was checked.
    #[inline(always)]
    pub(crate) fn is_single(&self, request: &Request) -> bool {
        matches!(request.operation, Operation::Read | Operation::Write)
            && request.length <= u64::from(self.geometry.transfer_max)
            && !request.force_unit_access
            && self.queue.nothing_waits()
            && self.queue.started < self.openings
    }

    /// Takes a request for which [`is_single`](Self::is_single) holds.
    #[inline(always)]
    pub(crate) fn submit_single(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        let Some(index) = self.queue.pop_wish() else { return Err(Refused::Full) };
        let wish = &mut self.queue.wishes[usize::from(index)];
        wish.begin(request);
        wish.single = true;
        wish.open = 1;
        let part = &mut self.queue.parts[usize::from(index)];
        part.take();
        let data = DmaSlice { address: request.buffer.address, len: request.length as u32 };
        let (write, direction) = match request.operation {
            Operation::Write => (true, Direction::ToDevice),
            _ => (false, Direction::FromDevice),
        };
        let (lba, blocks) = (request.offset >> self.block_shift, data.len >> self.block_shift);
        let cdb = cdb::transfer(write, lba, blocks, false);
        part.prepare(cdb, direction, data, self.transfer_timeout_nanos);
        match part.start(index, &mut self.port, now) {
            Ok(()) => {
                self.queue.started += 1;
                self.statistics.commands += 1;
                Ok(())
            }
            Err(why) => self.not_started(index, why),
        }
    }

    /// What becomes of a wish whose only part the port did not take.
    #[cold]
    pub(crate) fn not_started(&mut self, index: u16, why: NotStarted) -> Result<(), Refused> {
        let error = match why {
            NotStarted::Full => {
                self.queue.wait(index, false);
                return Ok(());
            }
            NotStarted::BadData => Error::Misaligned,
            NotStarted::Gone => Error::Gone,
        };
        self.gone |= why == NotStarted::Gone;
        let wish = self.queue.release_part(index);
        self.queue.release_wish(wish);
        Err(Refused::Invalid(error))
    }

    /// The completion of a request that was one command and ended by a plain success.
    #[inline(always)]
    pub(crate) fn finish_single(&mut self, outcome: &Outcome, now: Instant) -> Option<Completion> {
        let index = outcome.token as u16;
        let wish = self.queue.wishes.get_mut(usize::from(index))?;
        let part = self.queue.parts.get_mut(usize::from(index))?;
        let good = outcome.ended == Ended::Status(Status::Good.into_bits());
        if !(good && outcome.residual == 0 && wish.single && part.owes(outcome.token)) {
            return None;
        }
        part.end();
        let completion = Completion {
            token: wish.token,
            result: Ok(()),
            stamps: Stamps {
                accepted: wish.accepted,
                issued: wish.issued.min(outcome.issued),
                device_done: outcome.device_done,
                seen: outcome.seen,
                delivered: now,
            },
        };
        self.queue.started -= 1;
        self.queue.release_wish(index);
        self.reopen();
        Some(completion)
    }
}
