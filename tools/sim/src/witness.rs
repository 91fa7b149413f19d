//! A port under observation: every command that it accepts must have exactly one outcome.
//!
//! The disk above hides a port's errors by retrying. So outcomes are counted here, between disk and
//! driver, and mistakes that pose as the driver's are planted below.

use std::collections::BTreeSet;

use flysch_api::command::{Command, Declined, Ended, Failure, Limits, Outcome, Port, Token};
use flysch_api::machine::{DmaRegion, Instant};

/// A mistake of a driver, planted below the counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortMistake {
    /// One outcome in a hundred comes twice.
    OutcomeTwice,
    /// One outcome in a hundred never comes.
    OutcomeLost,
    /// One command in a hundred that succeeded is reported as lost in a reset.
    ResetWithoutCause,
    /// A transfer shorter than requested is reported as complete.
    ShortAsGood,
    /// One command in a hundred goes to the next unit.
    OtherUnit,
}

/// A violation by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortWrong {
    /// An outcome for a command that is not in flight.
    #[error("the port ended command {0}, which is not in flight")]
    NotOwed(u32),
    /// Commands without an outcome although nothing is in flight above.
    #[error("the port still owes {0} outcomes")]
    StillOwed(usize),
}

/// The numbers of commands by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Accepted by the port.
    pub started: u64,
    /// Plainly succeeded.
    pub good: u64,
    /// Answered by the device, but not a plain success.
    pub answered: u64,
    /// Ended by the driver: a deadline, a reset, a controller status, no unit.
    pub driver: u64,
    /// The controller had failed permanently.
    pub gone: u64,
}

impl Outcomes {
    /// Adds the outcomes of another port.
    pub fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.good += other.good;
        self.answered += other.answered;
        self.driver += other.driver;
        self.gone += other.gone;
    }
}

/// A port under observation.
pub(crate) struct Witness<P> {
    port: P,
    mistake: Option<PortMistake>,
    /// The bits to flip in a unit's number to get the number of another unit.
    other_unit: u64,
    owed: BTreeSet<u32>,
    outcomes: Outcomes,
    wrong: Option<PortWrong>,
    /// Number of commands seen, to plant a mistake in one of a hundred.
    seen: u64,
    /// An outcome to be delivered again.
    again: Option<Outcome>,
}

impl<P: Port> Witness<P> {
    pub(crate) fn new(port: P, mistake: Option<PortMistake>, other_unit: u64) -> Self {
        let (owed, outcomes) = (BTreeSet::new(), Outcomes::default());
        Self { port, mistake, other_unit, owed, outcomes, wrong: None, seen: 0, again: None }
    }

    /// The outcomes so far.
    pub(crate) fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    /// The port's violation, if any; `at_rest` if nothing is in flight above it.
    pub(crate) fn wrong(&self, at_rest: bool) -> Option<PortWrong> {
        let left = self.owed.len();
        self.wrong.or((at_rest && left > 0).then_some(PortWrong::StillOwed(left)))
    }

    /// Whether the planted mistake is `mistake` and is due now.
    fn errs(&self, mistake: PortMistake) -> bool {
        self.mistake == Some(mistake) && self.seen.is_multiple_of(100)
    }

    /// The next outcome of the driver, with the mistake.
    fn next(&mut self, now: Instant) -> Option<Outcome> {
        if let Some(again) = self.again.take() {
            return Some(again);
        }
        let mut outcome = self.port.poll(now)?;
        self.seen += 1;
        if self.errs(PortMistake::OutcomeLost) {
            return self.next(now);
        }
        if self.errs(PortMistake::OutcomeTwice) {
            let token = Token::new(outcome.token.number());
            self.again = Some(Outcome { token, ..outcome });
        }
        let ended = outcome.ended;
        if ended == Ended::Good && self.errs(PortMistake::ResetWithoutCause) {
            outcome.ended = Ended::Reset;
        }
        let short = ended == Ended::Answered && self.port.failure().residual > 0;
        if short && self.mistake == Some(PortMistake::ShortAsGood) {
            outcome.ended = Ended::Good;
        }
        Some(outcome)
    }
}

impl<P: Port> Port for Witness<P> {
    type Protocol = P::Protocol;

    fn limits(&self) -> &Limits {
        self.port.limits()
    }

    fn memory(&self) -> &DmaRegion {
        self.port.memory()
    }

    fn start(&mut self, mut command: Command<P::Protocol>, now: Instant) -> Result<(), Declined> {
        let number = command.token.number();
        if self.errs(PortMistake::OtherUnit) {
            command.unit ^= self.other_unit;
        }
        self.port.start(command, now)?;
        self.outcomes.started += 1;
        if !self.owed.insert(number) {
            self.wrong = Some(PortWrong::NotOwed(number));
        }
        Ok(())
    }

    fn ring(&mut self, now: Instant) {
        self.port.ring(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        let outcome = self.next(now)?;
        let number = outcome.token.number();
        if !self.owed.remove(&number) {
            self.wrong = Some(PortWrong::NotOwed(number));
        }
        *match outcome.ended {
            Ended::Good => &mut self.outcomes.good,
            Ended::Answered => &mut self.outcomes.answered,
            Ended::Gone => &mut self.outcomes.gone,
            Ended::NoUnit | Ended::TimedOut | Ended::Aborted | Ended::Reset | Ended::Host => {
                &mut self.outcomes.driver
            }
        } += 1;
        Some(outcome)
    }

    fn failure(&self) -> Failure<P::Protocol> {
        self.port.failure()
    }

    fn poll_at(&self) -> Option<Instant> {
        self.port.poll_at()
    }
}
