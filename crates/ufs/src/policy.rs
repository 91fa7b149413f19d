//! What a host does by itself as load comes and goes.
//!
//! A [`Policy`] holds rules and their state and requests operations from the host; it has no clock
//! of its own. Its owner tells it how much is in flight, polls it together with the host, and also
//! at [`poll_at`](Policy::poll_at):
//!
//! - **scaling**: the link runs at its full speed while there is I/O, and in a low gear after a
//!   while without; the platform scales the clocks with it;
//! - **suspend**: after a longer while the link hibernates and the platform's clocks are gated, and
//!   before that the device may be put to sleep; a command wakes both;
//! - **WriteBooster**: its buffer is flushed when little of it is left, while there is nothing else
//!   to do, and while the link hibernates.
//!
//! A host recovers from failures by itself; the policy treats them as "not now" and tries again at
//! the next change of load.

use crate::host::{Host, Progress};
use crate::operation::{Operation, Output};
use crate::options::LinkLimits;
use crate::power_mode::SuspendLevel;
use crate::writebooster::WriteBoosterStatus;
use flysch_api::machine::{Instant, Machine};

const US: u64 = 1_000;
/// Minimum interval between two checks of the buffer, µs.
const LOOK_MIN_US: u32 = 1_000;
/// Idle time after which a resize may begin if none is specified, µs.
const HINT_AFTER_US: u32 = 50_000;

/// What is done when. `Rules::default()` does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The link's speeds depending on load.
    pub scaling: Option<Scaling>,
    /// Time without I/O after which link and device are suspended, µs (Linux: 2 s of idle time
    /// before runtime suspend).
    pub suspend_after_us: Option<u32>,
    /// How deep they are suspended (Linux: rpm_lvl).
    pub suspend_level: SuspendLevel,
    /// What is done with the WriteBooster buffer.
    pub write_booster: Option<BoosterRules>,
}

/// The link's speeds depending on load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// The speed while there is I/O.
    pub fast: LinkLimits,
    /// The speed without I/O.
    pub slow: LinkLimits,
    /// Time without I/O after which the link becomes slow, µs.
    pub slow_after_us: u32,
}

impl Default for Scaling {
    /// Full speed while there is I/O, HS-G1 100 ms after it.
    fn default() -> Self {
        let fast = LinkLimits::default();
        Self { fast, slow: LinkLimits { gear: 1, ..fast }, slow_after_us: 100_000 }
    }
}

/// What is done with the WriteBooster buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoosterRules {
    /// Free part of the buffer at which, or below which, it is flushed under load as well, percent
    /// (devices report steps of ten; Linux: 40).
    pub flush_at_percent: u8,
    /// How often that is checked under load, µs.
    pub look_every_us: u32,
    /// Time without I/O after which the buffer is flushed, µs; `None` leaves it.
    pub idle_flush_after_us: Option<u32>,
    /// Whether it is flushed while the link hibernates.
    pub in_hibernate: bool,
    /// Whether the buffer is resized without I/O as the device recommends (UFS 4.1), together with
    /// the flush on idle, or after 50 ms if there is none.
    pub follow_hint: bool,
}

impl Default for BoosterRules {
    fn default() -> Self {
        Self {
            flush_at_percent: 40,
            look_every_us: 5_000_000,
            idle_flush_after_us: Some(50_000),
            in_hibernate: true,
            follow_hint: false,
        }
    }
}

/// What a policy has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Fast,
    Slow,
    Suspend,
    FlushInHibernate,
    /// Flush because there is nothing else to do.
    IdleFlush,
    /// Resize as the device recommends because there is nothing else to do.
    Resize,
    Look,
    Flush(bool),
}

/// Rules and their state.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Rules,
    in_flight: u32,
    /// Since when nothing has been in flight; meaningless while something is.
    idle_since: Instant,
    under_way: Option<Step>,
    /// The link was told to be slow.
    is_slow: bool,
    /// The link was told to hibernate, and there has been no I/O since.
    is_suspended: bool,
    /// The buffer was checked or flushed in this idle period.
    flushed_idle: bool,
    /// The device's advice on the size of the buffer was followed in this idle period.
    resized_idle: bool,
    /// The device was told to flush while the link hibernates.
    told_hibernate: bool,
    flushing: bool,
    look_at: Instant,
    booster: Option<WriteBoosterStatus>,
}

impl Policy {
    /// A policy for a host that is up, fast and idle since `now`.
    pub const fn new(rules: Rules, now: Instant) -> Self {
        Self {
            rules,
            in_flight: 0,
            idle_since: now,
            under_way: None,
            is_slow: false,
            is_suspended: false,
            flushed_idle: false,
            resized_idle: false,
            told_hibernate: false,
            flushing: false,
            look_at: now,
            booster: None,
        }
    }

    /// Tells how many commands of all lanes together are in flight or waiting to be accepted.
    pub const fn load(&mut self, in_flight: u32, now: Instant) {
        if in_flight > 0 {
            (self.is_suspended, self.flushed_idle, self.resized_idle) = (false, false, false);
        } else if self.in_flight > 0 {
            self.idle_since = now;
        }
        self.in_flight = in_flight;
    }

    /// The WriteBooster buffer when it was last checked.
    pub const fn write_booster(&self) -> Option<&WriteBoosterStatus> {
        self.booster.as_ref()
    }

    /// Whether an operation of the policy is in progress; the host accepts no other meanwhile.
    pub const fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// Processes the end of the current operation and begins what is due. No operation of the
    /// host's owner may be in progress.
    pub fn poll<M: Machine>(&mut self, host: &mut Host<M>, now: Instant) {
        loop {
            if let Some(step) = self.under_way {
                match host.poll(now) {
                    Progress::Busy => return,
                    Progress::Done(result) => self.ended(step, result.ok(), now),
                    // A recovery ended it.
                    Progress::Idle => self.under_way = None,
                }
            }
            let Some(step) = self.due(now) else { return };
            if host.begin(self.operation(step)).is_err() {
                return;
            }
            self.under_way = Some(step);
        }
    }

    /// When the policy wants to be polled; during an operation the host's own `poll_at` applies.
    pub fn poll_at(&self) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        self.candidates().filter_map(|(at, _)| at).min()
    }

    /// What is due at `now`.
    fn due(&self, now: Instant) -> Option<Step> {
        self.candidates().find(|(at, _)| at.is_some_and(|at| at <= now)).map(|(_, step)| step)
    }

    /// Everything that may come next and when, most urgent first.
    fn candidates(&self) -> impl Iterator<Item = (Option<Instant>, Step)> {
        let (is_idle, awake) = (self.in_flight == 0, !self.is_suspended);
        let after = |us: Option<u32>, wanted: bool| {
            let us = us.filter(|_| wanted && is_idle && awake)?;
            Some(self.idle_since.after_nanos(u64::from(us) * US))
        };
        let scaling = self.rules.scaling;
        let booster = self.rules.write_booster;
        let fast = (self.is_slow && !is_idle).then_some(Instant::START);
        let told = booster.is_some_and(|rules| rules.in_hibernate) && !self.told_hibernate;
        let look = booster.filter(|_| !is_idle).map(|_| self.look_at);
        let hint = booster.filter(|rules| rules.follow_hint);
        let hint = hint.map(|rules| rules.idle_flush_after_us.unwrap_or(HINT_AFTER_US));
        // A flush begun in an idle period continues until everything is flushed; under load it
        // stops unless the buffer is nearly full.
        [
            (fast, Step::Fast),
            ((told && awake).then_some(Instant::START), Step::FlushInHibernate),
            (self.flush_wish(), Step::Flush(!self.flushing)),
            (look, Step::Look),
            (
                after(booster.and_then(|rules| rules.idle_flush_after_us), !self.flushed_idle),
                Step::IdleFlush,
            ),
            (after(hint, !self.resized_idle), Step::Resize),
            (after(scaling.map(|rules| rules.slow_after_us), !self.is_slow), Step::Slow),
            (after(self.rules.suspend_after_us, true), Step::Suspend),
        ]
        .into_iter()
    }

    /// Now, if the last check of the buffer requires a flush to begin or to end.
    fn flush_wish(&self) -> Option<Instant> {
        let (rules, status) =
            (self.rules.write_booster?, self.booster.filter(|_| !self.is_suspended)?);
        let is_low = status.available_percent <= rules.flush_at_percent;
        let wants = is_low && !self.flushing;
        let has_enough = !is_low && self.flushing && self.in_flight > 0;
        (wants || has_enough).then_some(Instant::START)
    }

    fn operation(&self, step: Step) -> Operation {
        let scaling = self.rules.scaling.unwrap_or_default();
        match step {
            Step::Fast => Operation::Link(scaling.fast),
            Step::Slow => Operation::Link(scaling.slow),
            Step::Suspend => Operation::Suspend(self.rules.suspend_level),
            Step::FlushInHibernate => Operation::WriteBoosterFlushInHibernate(true),
            Step::IdleFlush => Operation::WriteBoosterFlush(true),
            Step::Resize => Operation::FollowResizeHint,
            Step::Look => Operation::WriteBoosterStatus,
            Step::Flush(on) => Operation::WriteBoosterFlush(on),
        }
    }

    /// An operation has ended; without an output it has failed.
    fn ended(&mut self, step: Step, output: Option<Output>, now: Instant) {
        self.under_way = None;
        let is_idle = self.in_flight == 0;
        match (step, output) {
            // A failed operation is tried again after the next change of load, not at once.
            (Step::Fast, _) => self.is_slow = false,
            (Step::Slow, _) => self.is_slow = true,
            (Step::Suspend, _) => self.is_suspended = is_idle,
            (Step::FlushInHibernate, _) => self.told_hibernate = true,
            (Step::IdleFlush, output) => {
                self.flushed_idle = is_idle;
                self.flushing |= output.is_some();
                self.booster = None;
            }
            // For a device without this feature it is refused before the device is asked.
            (Step::Resize, _) => self.resized_idle = is_idle,
            (Step::Look, output) => {
                let every = self.rules.write_booster.map_or(0, |rules| rules.look_every_us);
                self.look_at = now.after_nanos(u64::from(every.max(LOOK_MIN_US)) * US);
                if let Some(Output::WriteBooster(status)) = output {
                    self.flushing = status.flushing;
                    self.booster = Some(status);
                }
            }
            (Step::Flush(on), output) => {
                if output.is_some() {
                    self.flushing = on;
                }
                self.booster = None;
            }
        }
    }
}
