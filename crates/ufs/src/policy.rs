//! What a host does by itself as load comes and goes.
//!
//! A [`Policy`] holds rules and their state and asks the host for operations; it has no clock of
//! its own. Its owner tells it how much is in flight, polls it where the host is polled, and again
//! at [`poll_at`](Policy::poll_at):
//!
//! - **scaling**: the link runs at its full speed while there is I/O, and in a low gear once there
//!   was none for a while; the platform scales the clocks with it;
//! - **suspend**: after a longer while the link hibernates and the platform's clocks are gated, and
//!   before that the device may be put to sleep; a command wakes both;
//! - **WriteBooster**: its buffer is flushed when little of it is left, while there is nothing else
//!   to do, and while the link hibernates.
//!
//! A host recovers from what fails by itself; the policy takes its failure as "not now" and tries
//! again at the next change of load.

use crate::host::{Host, Progress};
use crate::operation::{Operation, Output};
use crate::options::LinkLimits;
use crate::power_mode::SuspendLevel;
use crate::writebooster::WriteBoosterStatus;
use flysch_api::machine::{Instant, Machine};

const US: u64 = 1_000;
/// The buffer is not looked at more often, µs.
const LOOK_MIN_US: u32 = 1_000;
/// Pause after which a resize may begin where none is named, µs.
const HINT_AFTER_US: u32 = 50_000;

/// When what is done. `Rules::default()` does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The link's speeds by load.
    pub scaling: Option<Scaling>,
    /// Without I/O for so long link and device are suspended, µs (Linux: 2 s of idle time before
    /// runtime suspend).
    pub suspend_after_us: Option<u32>,
    /// How deep (Linux: rpm_lvl).
    pub suspend_level: SuspendLevel,
    /// What is done about the WriteBooster buffer.
    pub write_booster: Option<BoosterRules>,
}

/// The link's speeds by load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// The speed while there is I/O.
    pub fast: LinkLimits,
    /// The speed without.
    pub slow: LinkLimits,
    /// Without I/O for so long the link gets slow, µs.
    pub slow_after_us: u32,
}

impl Default for Scaling {
    /// Everything there is while there is I/O, HS-G1 100 ms after it.
    fn default() -> Self {
        let fast = LinkLimits::default();
        Self { fast, slow: LinkLimits { gear: 1, ..fast }, slow_after_us: 100_000 }
    }
}

/// What is done about the WriteBooster buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoosterRules {
    /// At so little of the buffer left, or less, it is flushed under load, too, percent (devices
    /// tell in steps of ten; Linux: 40).
    pub flush_at_percent: u8,
    /// How often that is looked at while there is load, µs.
    pub look_every_us: u32,
    /// Without I/O for so long the buffer is flushed, µs; `None` leaves it.
    pub idle_flush_after_us: Option<u32>,
    /// Whether it is flushed while the link hibernates.
    pub in_hibernate: bool,
    /// Whether without I/O the buffer is resized as the device recommends (UFS 4.1), with the
    /// flush on idle, or after 50 ms where there is none.
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
    /// Flush because nothing else is to do.
    IdleFlush,
    /// Resize as the device recommends because nothing else is to do.
    Resize,
    Look,
    Flush(bool),
}

/// Rules and how they stand.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Rules,
    in_flight: u32,
    /// Since when nothing is in flight; meaningless while something is.
    idle_since: Instant,
    under_way: Option<Step>,
    /// The link was asked to be slow.
    is_slow: bool,
    /// The link was asked to hibernate, and no I/O came since.
    is_suspended: bool,
    /// The buffer was looked at, or asked to be flushed, in this idle period.
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
    /// A policy that begins with a host that is up, fast and idle since `now`.
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

    /// So many commands are in flight or wait to be taken, of all lanes together.
    pub const fn load(&mut self, in_flight: u32, now: Instant) {
        if in_flight > 0 {
            (self.is_suspended, self.flushed_idle, self.resized_idle) = (false, false, false);
        } else if self.in_flight > 0 {
            self.idle_since = now;
        }
        self.in_flight = in_flight;
    }

    /// The WriteBooster buffer as last looked at.
    pub const fn write_booster(&self) -> Option<&WriteBoosterStatus> {
        self.booster.as_ref()
    }

    /// Whether the policy has an operation under way: the host takes no other meanwhile.
    pub const fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// Takes the end of what is under way and begins what is due. The host must not have an
    /// operation of its owner's under way.
    pub fn poll<M: Machine>(&mut self, host: &mut Host<M>, now: Instant) {
        loop {
            if let Some(step) = self.under_way {
                match host.poll(now) {
                    Progress::Busy => return,
                    Progress::Done(result) => self.ended(step, result.ok(), now),
                    // A recovery took it.
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

    /// When the policy wants to be polled: for what is under way the host's own `poll_at` says it.
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

    /// Everything that may come next and when, the most urgent first.
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
        // What an idle period began to flush goes on until all is flushed; under load it stops
        // unless the buffer is nearly full.
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

    /// Now, if the buffer as last looked at asks for a flush to begin or to end.
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

    /// An operation ended; without an output it failed.
    fn ended(&mut self, step: Step, output: Option<Output>, now: Instant) {
        self.under_way = None;
        let is_idle = self.in_flight == 0;
        match (step, output) {
            // What failed is tried again after the next change of load, not at once.
            (Step::Fast, _) => self.is_slow = false,
            (Step::Slow, _) => self.is_slow = true,
            (Step::Suspend, _) => self.is_suspended = is_idle,
            (Step::FlushInHibernate, _) => self.told_hibernate = true,
            (Step::IdleFlush, output) => {
                self.flushed_idle = is_idle;
                self.flushing |= output.is_some();
                self.booster = None;
            }
            // A device that cannot refuses before it is asked anything.
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
