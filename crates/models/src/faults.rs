//! Faults from one seed: what goes wrong and when, and a log of it.
//!
//! A [`Plan`] defines when each [`Kind`] happens: with a probability per opportunity, at the n-th
//! opportunity, or (medium errors) on given blocks. An [`Injector`] makes the decisions. Each kind
//! has its own random stream, so that enabling one kind does not change the others, and equal plan,
//! seed and command sequence give equal faults.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use flysch_api::machine::Instant;

use crate::random::Random;

/// Maximum number of log entries; older ones are dropped, but stay counted.
pub const LOG_MAX: usize = 4096;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A command is swallowed: it stays in the device and is never answered.
    Timeout,
    /// A command completes without its interrupt.
    LostInterrupt,
    /// The controller reports a bad overall command status.
    BadOcs,
    /// A medium error on the blocks of a read or write.
    Medium,
    /// A transient error: BUSY, TASK SET FULL, UNIT ATTENTION, ABORTED COMMAND or HARDWARE ERROR.
    Transient,
    /// A recoverable UIC error in one of the layers.
    Uic,
    /// A fatal controller or device error.
    Fatal,
    /// The link is lost.
    LinkLoss,
    /// Power is lost and comes back.
    PowerLoss,
    /// A command is carried out but its slot is never released.
    StuckDoorbell,
    /// A command completes very late.
    Late,
    /// Every command in the device, of all units, is swallowed at once; task management still
    /// answers.
    Stall,
    /// HCE reads one, falls back to zero, and only then comes up for good.
    EnableGlitch,
    /// The line is reset: the link falls back to its lowest speed.
    LineReset,
    /// A read moves half its data and reports this only in the residual count, without a flag.
    ShortRead,
    /// The link does not return from the hibernation that it entered by itself.
    AutoHibern8,
    /// Power is lost and comes back late.
    PowerLate,
    /// Power is lost for good.
    PowerGone,
    /// A command is carried out and answered with a false status.
    BadStatus,
    /// A completion queue entry with a wrong command id or phase.
    BadCompletion,
    /// Asynchronous events, one after the other, as fast as the host accepts them.
    EventStorm,
    /// CSTS.RDY does not follow CC.EN; only a reset of the subsystem helps.
    ReadyStuck,
    /// The device is pulled out: its registers read as ones.
    Unplugged,
    /// An interface error that stops the command list: IFS.
    Interface,
    /// An error on the host bus that stops the command list: HBDS.
    HostBus,
    /// The device is detached from its link, and attached again a while later.
    Detached,
    /// The queued error log cannot be read.
    NoLog,
    /// The command list does not stop; only a reset of the HBA helps.
    ListStuck,
    /// COMRESET gets no answer, once.
    Deaf,
    /// A CRC error on the bus, in a response or in data.
    BusCrc,
    /// The sampling point is lost: all transfers fail until the bus is tuned again.
    TuningLoss,
    /// SWITCH_ERROR: the card does not make the requested change.
    SwitchError,
    /// The card stays busy until it is interrupted or reset; a SATA device stays busy from one
    /// reset to the next.
    BusyStuck,
    /// The queueing engine reports a task error.
    TaskError,
}

impl Kind {
    /// Every kind, in the order of the text form of [`Plan`].
    pub const ALL: [Self; 34] = [
        Self::Timeout,
        Self::LostInterrupt,
        Self::BadOcs,
        Self::Medium,
        Self::Transient,
        Self::Uic,
        Self::Fatal,
        Self::LinkLoss,
        Self::PowerLoss,
        Self::StuckDoorbell,
        Self::Late,
        Self::Stall,
        Self::EnableGlitch,
        Self::LineReset,
        Self::ShortRead,
        Self::AutoHibern8,
        Self::PowerLate,
        Self::PowerGone,
        Self::BadStatus,
        Self::BadCompletion,
        Self::EventStorm,
        Self::ReadyStuck,
        Self::Unplugged,
        Self::Interface,
        Self::HostBus,
        Self::Detached,
        Self::NoLog,
        Self::ListStuck,
        Self::Deaf,
        Self::BusCrc,
        Self::TuningLoss,
        Self::SwitchError,
        Self::BusyStuck,
        Self::TaskError,
    ];

    /// The kinds that cut the power.
    pub const POWER: [Self; 5] =
        [Self::PowerLoss, Self::PowerLate, Self::PowerGone, Self::Unplugged, Self::Detached];

    /// The kinds for a UFS device and its host controller.
    pub const UFS: [Self; 18] = [
        Self::Timeout,
        Self::LostInterrupt,
        Self::BadOcs,
        Self::Medium,
        Self::Transient,
        Self::Uic,
        Self::Fatal,
        Self::LinkLoss,
        Self::PowerLoss,
        Self::StuckDoorbell,
        Self::Late,
        Self::Stall,
        Self::EnableGlitch,
        Self::LineReset,
        Self::ShortRead,
        Self::AutoHibern8,
        Self::PowerLate,
        Self::PowerGone,
    ];

    /// The kinds for an NVMe controller.
    pub const NVME: [Self; 14] = [
        Self::Timeout,
        Self::LostInterrupt,
        Self::Medium,
        Self::Transient,
        Self::Fatal,
        Self::PowerLoss,
        Self::StuckDoorbell,
        Self::Late,
        Self::Stall,
        Self::BadStatus,
        Self::BadCompletion,
        Self::EventStorm,
        Self::ReadyStuck,
        Self::Unplugged,
    ];

    /// The kinds for a SATA host bus adapter and its devices.
    pub const AHCI: [Self; 17] = [
        Self::Timeout,
        Self::LostInterrupt,
        Self::Medium,
        Self::Transient,
        Self::LinkLoss,
        Self::PowerLoss,
        Self::StuckDoorbell,
        Self::Late,
        Self::Stall,
        Self::Unplugged,
        Self::Interface,
        Self::HostBus,
        Self::Detached,
        Self::NoLog,
        Self::ListStuck,
        Self::Deaf,
        Self::BusyStuck,
    ];

    /// The kinds for an eMMC device and its host controller.
    pub const EMMC: [Self; 15] = [
        Self::Timeout,
        Self::LostInterrupt,
        Self::Medium,
        Self::Transient,
        Self::PowerLoss,
        Self::PowerGone,
        Self::StuckDoorbell,
        Self::Late,
        Self::Stall,
        Self::Unplugged,
        Self::BusCrc,
        Self::TuningLoss,
        Self::SwitchError,
        Self::BusyStuck,
        Self::TaskError,
    ];

    /// The kinds for an SD card and its host controller: there is no queue and no EXT_CSD.
    pub const SD: [Self; 11] = [
        Self::Timeout,
        Self::LostInterrupt,
        Self::Medium,
        Self::Transient,
        Self::PowerLoss,
        Self::PowerGone,
        Self::Stall,
        Self::Unplugged,
        Self::BusCrc,
        Self::TuningLoss,
        Self::BusyStuck,
    ];

    /// Its name in the text form of a plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::LostInterrupt => "lost-interrupt",
            Self::BadOcs => "ocs",
            Self::Medium => "medium",
            Self::Transient => "transient",
            Self::Uic => "uic",
            Self::Fatal => "fatal",
            Self::LinkLoss => "link",
            Self::PowerLoss => "power",
            Self::StuckDoorbell => "stuck",
            Self::Late => "late",
            Self::Stall => "stall",
            Self::EnableGlitch => "hce-glitch",
            Self::LineReset => "line-reset",
            Self::ShortRead => "short",
            Self::AutoHibern8 => "hibern8",
            Self::PowerLate => "power-late",
            Self::PowerGone => "power-gone",
            Self::BadStatus => "status",
            Self::BadCompletion => "corrupt",
            Self::EventStorm => "event-storm",
            Self::ReadyStuck => "stuck-ready",
            Self::Unplugged => "unplug",
            Self::Interface => "interface",
            Self::HostBus => "host-bus",
            Self::Detached => "detach",
            Self::NoLog => "no-log",
            Self::ListStuck => "stuck-list",
            Self::Deaf => "deaf",
            Self::BusCrc => "crc",
            Self::TuningLoss => "tuning",
            Self::SwitchError => "switch",
            Self::BusyStuck => "busy",
            Self::TaskError => "task",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When a kind of fault happens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Trigger {
    /// Never.
    #[default]
    Never,
    /// At each opportunity with this probability, 0 to 1.
    Probability(f64),
    /// At the n-th opportunity, counted from 1, once.
    Nth(u64),
    /// At every n-th opportunity.
    Every(u64),
}

/// The faults to inject.
///
/// Text form: `kind:when` separated by commas, where *when* is a probability (`0.001`, `1e-4`),
/// `nN` for the N-th opportunity, `eN` for every N-th, and for `medium` also `lbaA` or `lbaA-B` for
/// blocks that always fail. Example: `timeout:0.001,uic:n100,medium:lba4096-4103`.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    triggers: [Trigger; Kind::ALL.len()],
    bad_blocks: Vec<Range<u64>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self::none()
    }
}

impl Plan {
    /// A plan in which nothing goes wrong.
    pub fn none() -> Self {
        Self { triggers: [Trigger::Never; Kind::ALL.len()], bad_blocks: Vec::new() }
    }

    /// The same plan with a different trigger for one kind.
    #[must_use]
    pub fn with(mut self, kind: Kind, trigger: Trigger) -> Self {
        self.triggers[kind.index()] = trigger;
        self
    }

    /// The same plan with blocks that cannot be read or written.
    #[must_use]
    pub fn with_bad_blocks(mut self, blocks: Range<u64>) -> Self {
        self.bad_blocks.push(blocks);
        self
    }

    /// When `kind` happens.
    pub fn trigger(&self, kind: Kind) -> Trigger {
        self.triggers[kind.index()]
    }

    /// Whether the plan can cut the power.
    pub fn cuts_power(&self) -> bool {
        Kind::POWER.into_iter().any(|kind| self.trigger(kind) != Trigger::Never)
    }

    /// Whether the plan contains no faults.
    pub fn is_empty(&self) -> bool {
        self.bad_blocks.is_empty() && self.triggers.iter().all(|t| *t == Trigger::Never)
    }
}

/// A plan that cannot be parsed: the part that is wrong, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    part: String,
    problem: &'static str,
    kinds: &'static [Kind],
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault plan: '{}': {}; kinds are", self.part, self.problem)?;
        self.kinds.iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl core::error::Error for PlanError {}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        Self::parse(text, &Kind::ALL)
    }
}

impl Plan {
    /// Parses a plan for a device that supports these kinds.
    ///
    /// # Errors
    /// The first part that is invalid.
    pub fn parse(text: &str, kinds: &'static [Kind]) -> Result<Self, PlanError> {
        let mut plan = Self::none();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let error = |problem| PlanError { part: part.to_string(), problem, kinds };
            let (kind, when) = part.split_once(':').ok_or(error("expected kind:when"))?;
            let kind = kinds
                .iter()
                .copied()
                .find(|known| known.name() == kind)
                .ok_or(error("unknown kind of fault"))?;
            if let Some(blocks) = when.strip_prefix("lba") {
                if kind != Kind::Medium {
                    return Err(error("only medium errors sit on blocks"));
                }
                plan.bad_blocks
                    .push(parse_blocks(blocks).ok_or(error("expected lbaFIRST or lbaFIRST-LAST"))?);
            } else {
                let problem = "expected a probability from 0 to 1, nN or eN";
                plan.triggers[kind.index()] = parse_trigger(when).ok_or(error(problem))?;
            }
        }
        Ok(plan)
    }
}

fn parse_blocks(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then(|| first..last.saturating_add(1))
}

fn parse_trigger(text: &str) -> Option<Trigger> {
    let count = |digits: &str| digits.parse().ok().filter(|&n: &u64| n > 0);
    if let Some(n) = text.strip_prefix('n') {
        return count(n).map(Trigger::Nth);
    }
    if let Some(n) = text.strip_prefix('e') {
        return count(n).map(Trigger::Every);
    }
    let probability: f64 = text.parse().ok()?;
    (0.0..=1.0).contains(&probability).then_some(Trigger::Probability(probability))
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Its kind.
    pub kind: Kind,
    /// When it happened.
    pub at: Instant,
    /// Which opportunity of its kind, counted from 1.
    pub opportunity: u64,
    /// The task tag that it hit, or another detail given by the model.
    pub detail: u32,
}

/// Makes the decisions of a plan.
#[derive(Debug)]
pub struct Injector {
    plan: Plan,
    active: bool,
    random: Vec<Random>,
    seen: [u64; Kind::ALL.len()],
    injected: [u64; Kind::ALL.len()],
    log: VecDeque<Injected>,
}

impl Injector {
    /// An injector for `plan` with `seed`.
    pub fn new(plan: Plan, seed: u64) -> Self {
        let stream = |kind: Kind| Random::new(seed ^ ((kind as u64 + 1) << 56));
        Self {
            active: !plan.is_empty(),
            random: Kind::ALL.into_iter().map(stream).collect(),
            plan,
            seen: [0; Kind::ALL.len()],
            injected: [0; Kind::ALL.len()],
            log: VecDeque::new(),
        }
    }

    /// Replaces the plan; opportunities are counted from now on. Counters, log and random streams
    /// continue.
    pub fn arm(&mut self, plan: Plan) {
        self.active = !plan.is_empty();
        self.plan = plan;
        self.seen = [0; Kind::ALL.len()];
    }

    /// Whether any fault is possible: one branch in the caller's fast path.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// An opportunity for `kind`: returns whether the fault happens now.
    pub fn fires(&mut self, kind: Kind, at: Instant, detail: u32) -> bool {
        let index = kind.index();
        self.seen[index] += 1;
        let hit = match self.plan.triggers[index] {
            Trigger::Never => false,
            Trigger::Probability(probability) => self.random[index].chance(probability),
            Trigger::Nth(n) => self.seen[index] == n,
            Trigger::Every(n) => self.seen[index].is_multiple_of(n),
        };
        if hit {
            self.record(kind, at, detail);
        }
        hit
    }

    /// The first of `blocks` that cannot be read or written, if the plan contains one.
    pub fn bad_block(&mut self, blocks: Range<u64>, at: Instant, detail: u32) -> Option<u64> {
        let hits = self.plan.bad_blocks.iter().filter_map(|bad| {
            let first = bad.start.max(blocks.start);
            (first < bad.end.min(blocks.end)).then_some(first)
        });
        let first = hits.min()?;
        self.record(Kind::Medium, at, detail);
        Some(first)
    }

    /// A random number below `bound` from the stream of `kind`, for the details of a fault.
    pub fn choose(&mut self, kind: Kind, bound: u64) -> u64 {
        self.random[kind.index()].below(bound)
    }

    /// How often power has been cut.
    pub fn power_cuts(&self) -> u64 {
        Kind::POWER.into_iter().map(|kind| self.count(kind)).sum()
    }

    /// How often `kind` has been injected.
    pub fn count(&self, kind: Kind) -> u64 {
        self.injected[kind.index()]
    }

    /// Total number of injected faults.
    pub fn total(&self) -> u64 {
        self.injected.iter().sum()
    }

    /// The last [`LOG_MAX`] faults, oldest first.
    pub fn log(&self) -> impl Iterator<Item = &Injected> {
        self.log.iter()
    }

    fn record(&mut self, kind: Kind, at: Instant, detail: u32) {
        self.injected[kind.index()] += 1;
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        let opportunity = self.seen[kind.index()];
        self.log.push_back(Injected { kind, at, opportunity, detail });
    }
}

#[cfg(test)]
mod tests;
