//! The same operations for callers that may wait: tools, tests, bare metal.

use crate::EmmcError;
use crate::host::{Host, Progress};
use crate::operation::{Operation, Output};
use crate::rpmb::{RpmbReply, RpmbRequest};
use alloc::boxed::Box;
use flysch_api::machine::{Clock, Machine, Wake};
use flysch_wire::mmc::ExtCsd;

impl<M: Machine> Host<M> {
    /// Carries out one operation and waits for its end.
    ///
    /// # Errors
    /// Why it failed; [`EmmcError::Gone`] if neither the host nor the clock has an event that could
    /// end it.
    pub fn run(&mut self, clock: &impl Clock, operation: Operation) -> Result<Output, EmmcError> {
        while self.poll(clock.now()) == Progress::Busy {
            clock.wait(self.poll_at());
        }
        self.begin(operation)?;
        loop {
            match self.poll(clock.now()) {
                Progress::Done(result) => return result,
                Progress::Busy | Progress::Idle => {
                    let until = self.poll_at();
                    if clock.wait(until) == Wake::Idle && until.is_none() {
                        return Err(EmmcError::Gone);
                    }
                }
            }
        }
    }

    /// Brings controller and card up.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub fn bring_up(&mut self, clock: &impl Clock) -> Result<(), EmmcError> {
        self.run(clock, Operation::BringUp).map(|_| ())
    }

    /// Makes everything safe and stops the card.
    ///
    /// # Errors
    /// [`Cause::InFlight`](crate::Cause::InFlight) if commands are in flight; then everything
    /// continues.
    pub fn shut_down(&mut self, clock: &impl Clock) -> Result<(), EmmcError> {
        self.run(clock, Operation::Shutdown).map(|_| ())
    }

    /// Reads EXT_CSD as it is now.
    ///
    /// # Errors
    /// Why it could not be read.
    pub fn ext_csd(&mut self, clock: &impl Clock) -> Result<ExtCsd, EmmcError> {
        match self.run(clock, Operation::ReadExtCsd)? {
            Output::ExtCsd(csd) => Ok(*csd),
            _ => Err(EmmcError::NotUp),
        }
    }

    /// Exchanges a message with the replay protected memory.
    ///
    /// # Errors
    /// What the device answered, or why the answer is not trusted.
    pub fn rpmb(
        &mut self,
        clock: &impl Clock,
        request: RpmbRequest,
    ) -> Result<RpmbReply, EmmcError> {
        match self.run(clock, Operation::Rpmb(Box::new(request)))? {
            Output::Rpmb(reply) => Ok(reply),
            _ => Err(EmmcError::NotUp),
        }
    }
}
