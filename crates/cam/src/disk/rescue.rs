//! Starting a unit that reports that it must be started, by one command of the disk itself; nothing
//! else is started meanwhile.

use flysch_api::command::{Command, Direction, NotStarted, Ordering, Port};
use flysch_api::data::Data;
use flysch_api::machine::Instant;

use super::{ASK_AGAIN_NANOS, Disk};
use crate::family::{Family, START_TIMEOUT_MS};
use crate::queue::next_token;

/// Index in the token of the disk's own command; no part has it.
const INDEX: u32 = u16::MAX as u32;

/// State of the disk's own command.
#[derive(Debug)]
pub(crate) struct Rescue {
    /// The number of its token.
    number: u32,
    /// It is to be started.
    is_wanted: bool,
    /// The port owes its outcome.
    is_started: bool,
    /// The port does not support it: it will not be requested again.
    pub(crate) is_refused: bool,
}

impl Default for Rescue {
    fn default() -> Self {
        Self { number: INDEX, is_wanted: false, is_started: false, is_refused: false }
    }
}

impl<P: Port> Disk<P>
where
    P::Protocol: Family,
{
    /// Whether nothing but the disk's own command may be started.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        !self.gone && (self.frozen > 0 || self.rescue.is_wanted || self.rescue.is_started)
    }

    /// Requests that the unit be started before anything else.
    pub(crate) fn ask_for_start(&mut self) {
        if !self.rescue.is_wanted && !self.rescue.is_started {
            self.rescue.is_wanted = true;
            self.queue.hold();
        }
    }

    /// Starts the disk's own command if requested; returns whether it did.
    #[cold]
    pub(crate) fn start_unit(&mut self, now: Instant) -> bool {
        if !self.rescue.is_wanted {
            return false;
        }
        let Some(payload) = P::Protocol::start_unit() else { return false };
        let command = Command {
            unit: self.shape.unit,
            payload,
            direction: Direction::None,
            data: Data::NONE,
            crypto: None,
            ordering: Ordering::Simple,
            deadline: now.after_nanos(u64::from(START_TIMEOUT_MS) * 1_000_000),
            token: next_token(&mut self.rescue.number),
        };
        match self.port.start(command, now).map_err(|declined| declined.why) {
            Ok(()) => {
                (self.rescue.is_wanted, self.rescue.is_started) = (false, true);
                self.queue.started += 1;
                self.statistics.commands += 1;
                self.statistics.starts += 1;
                return true;
            }
            Err(NotStarted::Full) => {
                if self.queue.started == 0 {
                    self.ask_again = Some(now.after_nanos(ASK_AGAIN_NANOS));
                }
            }
            Err(why) => {
                // The command that asked for it then fails by itself.
                self.rescue.is_refused = true;
                self.end_rescue();
                if why == NotStarted::Gone {
                    self.set_gone();
                }
                self.ask_again = Some(now);
            }
        }
        false
    }

    /// Takes the outcome of the disk's own command, if this is its number. However it ended, the
    /// command that asked for it is retried, which shows whether it helped.
    #[cold]
    pub(crate) fn take_rescue(&mut self, number: u32) -> bool {
        if !self.rescue.is_started || self.rescue.number != number {
            return false;
        }
        self.queue.started -= 1;
        self.end_rescue();
        true
    }

    fn end_rescue(&mut self) {
        (self.rescue.is_wanted, self.rescue.is_started) = (false, false);
        self.queue.release();
    }
}
