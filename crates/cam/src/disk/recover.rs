//! What happens to a part that did not plainly succeed.

use flysch_api::block::{BlockError, Operation};
use flysch_api::command::{Ended, Port};
use flysch_api::machine::Instant;

use super::Disk;
use crate::family::{
    Action, Attention, Family, POLL_READY_MS, POLL_READY_TRIES, START_TRIES, Trouble, Verdict,
};

/// Retries after events that were not the command's fault (resets, unit attentions): if one command
/// meets more of them, something is permanently wrong.
const REQUEUE_MAX: u8 = 16;
/// Retries of a command that meets a busy unit: with the pauses below, over 6 s in all.
const BACK_OFF_TRIES: u8 = 12;
/// First pause, milliseconds; each further one is twice as long.
const BACK_OFF_FIRST_MS: u32 = 10;
/// Longest pause, milliseconds (CAM waits this long for a busy device).
const BACK_OFF_LAST_MS: u32 = 1_000;
/// Number of plain successes after which a throttled disk gets one more command in flight.
const REOPEN_AFTER: u32 = 64;

/// Statistics of a disk's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands issued, including retries.
    pub commands: u64,
    /// Requests that ended with an error.
    pub failures: u64,
    /// Commands issued again, for any reason.
    pub retries: u64,
    /// Commands that the device executed with errors that it corrected itself.
    pub recovered: u64,
    /// Medium errors, including repeated ones.
    pub medium_errors: u64,
    /// Hardware errors, including repeated ones.
    pub hardware_errors: u64,
    /// Commands that the device aborted and asked to be sent again.
    pub aborted_commands: u64,
    /// Events reported by the device: unit attentions.
    pub unit_attentions: u64,
    /// Failures of writes that had already been reported done.
    pub deferred_errors: u64,
    /// BUSY and "not ready".
    pub busy: u64,
    /// The device's queue was full.
    pub task_set_full: u64,
    /// Commands that missed their deadline.
    pub timeouts: u64,
    /// Commands lost in a reset.
    pub resets: u64,
    /// Commands that the host controller ended with its own error.
    pub host_errors: u64,
    /// Transfers that succeeded but were short.
    pub short_transfers: u64,
    /// Outcomes that nobody waited for: a fault of the port.
    pub strays: u64,
    /// Units that were started at their own request.
    pub starts: u64,
    /// The events that the unit reported by unit attentions.
    pub attention: Attention,
}

impl<P: Port> Disk<P>
where
    P::Protocol: Family,
{
    /// Decides what to do with a part that did not plainly succeed; returns its wish if that ended
    /// with it.
    #[cold]
    pub(crate) fn recover(&mut self, index: u16, ended: Ended, now: Instant) -> Option<u16> {
        let moves_data = matches!(self.operation(index), Operation::Read | Operation::Write);
        let verdict = P::Protocol::verdict(ended, &self.port.failure(), moves_data);
        self.count(&verdict);
        if ended == Ended::Gone {
            self.set_gone();
        }
        if verdict.action == Action::Succeed {
            return self.end_part(index, None);
        }
        if self.needs_no_flush(index, &verdict) {
            return self.end_part(index, None);
        }
        let wish = self.queue.part(index).wish;
        let doomed = self.gone || self.queue.course(wish).error.is_some();
        if !doomed && self.try_again(index, verdict.action, now) {
            self.statistics.retries += 1;
            return None;
        }
        self.end_part(index, Some(verdict.error))
    }

    /// Puts a part where it will be issued again, unless its retries are used up.
    fn try_again(&mut self, index: u16, action: Action, now: Instant) -> bool {
        let alone = self.queue.started == 0;
        let retries = self.options.retries;
        let openings = self.queue.started.max(self.options.tags_min.min(self.tags_max)).max(1);
        let can_start = P::Protocol::start_unit().is_some() && !self.rescue.is_refused;
        let tries = &mut self.queue.part(index).tries;
        let (count, limit, pause_ms) = match action {
            Action::Succeed | Action::Fail => return false,
            Action::Retry(times) => (&mut tries.counted, times.min(retries), 0),
            Action::After(ms) => (&mut tries.counted, retries, ms),
            Action::Requeue => (&mut tries.requeued, REQUEUE_MAX, 0),
            Action::PollReady => (&mut tries.paused, POLL_READY_TRIES, POLL_READY_MS),
            Action::Start if !can_start => return false,
            Action::Start => (&mut tries.paused, START_TRIES, 0),
            Action::Throttle if !alone => {
                // As many as the device had when it reported this; the next end makes room. Each
                // such retry needs the end of another command, so it need not be counted.
                (self.openings, self.good_since) = (openings, 0);
                self.queue.wait(index, true);
                return true;
            }
            Action::Throttle | Action::BackOff => {
                let pause = BACK_OFF_FIRST_MS << tries.paused.min(16);
                (&mut tries.paused, BACK_OFF_TRIES, pause.min(BACK_OFF_LAST_MS))
            }
        };
        if *count >= limit {
            return false;
        }
        *count += 1;
        if action == Action::Start {
            self.ask_for_start();
        }
        if pause_ms == 0 {
            self.queue.wait(index, true);
        } else {
            self.queue.delay(index, now.after_nanos(u64::from(pause_ms) * 1_000_000));
        }
        true
    }

    /// Whether this is a unit without volatile cache that refuses a flush.
    fn needs_no_flush(&mut self, index: u16, verdict: &Verdict) -> bool {
        let flush = self.operation(index) == Operation::Flush;
        let refused = verdict.error == BlockError::Unsupported && !self.shape.write_cache;
        self.no_flush |= flush && refused;
        flush && refused
    }

    fn count(&mut self, verdict: &Verdict) {
        let statistics = &mut self.statistics;
        let counter = match verdict.trouble {
            Trouble::None => return,
            Trouble::Recovered => &mut statistics.recovered,
            Trouble::Deferred => {
                self.deferred.get_or_insert(verdict.error);
                &mut statistics.deferred_errors
            }
            Trouble::Medium => &mut statistics.medium_errors,
            Trouble::Hardware => &mut statistics.hardware_errors,
            Trouble::Aborted => &mut statistics.aborted_commands,
            Trouble::Attention(attention) => {
                statistics.attention.add(attention);
                self.attention.add(attention);
                &mut statistics.unit_attentions
            }
            Trouble::Busy => &mut statistics.busy,
            Trouble::QueueFull => &mut statistics.task_set_full,
            Trouble::TimedOut => &mut statistics.timeouts,
            Trouble::Reset => &mut statistics.resets,
            Trouble::Host => &mut statistics.host_errors,
            Trouble::Short => &mut statistics.short_transfers,
        };
        *counter += 1;
    }

    /// Notes a plain success: after enough of them a throttled disk tries one more command.
    #[inline]
    pub(crate) fn reopen(&mut self) {
        if self.openings < self.tags_max {
            self.good_since += 1;
            if self.good_since >= REOPEN_AFTER {
                self.good_since = 0;
                self.openings += 1;
            }
        }
    }
}

impl Attention {
    fn add(&mut self, other: Self) {
        self.reset |= other.reset;
        self.capacity |= other.capacity;
        self.parameters |= other.parameters;
        self.luns |= other.luns;
        self.identity |= other.identity;
    }
}
