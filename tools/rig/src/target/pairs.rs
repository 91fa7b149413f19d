//! Keys that several kinds share, and how their values are parsed.

use std::path::PathBuf;

use flysch_models::faults::{self as fault, Plan};
use flysch_models::machine::Mode;
use flysch_target::Kind;

use super::ParseError;
use crate::size;
use crate::ticks::ticks;

/// Keys that several kinds share.
pub(super) mod keys {
    use flysch_target::{Key, key};

    pub(crate) const IMAGE: Key = key(
        "image",
        "FILE",
        "keep the disk's data in this file (memory); created if size is given",
    );
    pub(crate) const CLOCK: Key =
        key("clock", "virtual|hybrid", "the clock: see docs/command.md (hybrid)");
    pub(crate) const FAULTS: Key =
        key("faults", "KIND:WHEN[+KIND:WHEN...]", "faults to inject (none)");
    pub(crate) const FAULTS_FROM: Key = key(
        "faults-from",
        "open|power",
        "since when they count: the disk is open, or power is on (open)",
    );
    pub(crate) const SEED: Key =
        key("seed", "NUMBER", "seed of the faults and of the media's variation (1)");
    pub(crate) const RAW_IMAGE: Key =
        key("image", "FILE", "keep the disk's data in this raw file (a temporary one)");
    pub(crate) const PROGRAM: Key =
        key("qemu", "PROGRAM", "the QEMU to start (FLYSCH_QEMU, otherwise from PATH)");
}

/// The `key=value` pairs of a target, with those common to all models.
pub(super) struct Pairs<'a>(flysch_target::Pairs<'a>);

impl<'a> Pairs<'a> {
    pub(super) fn parse(kind: &'static Kind, rest: &'a str) -> Result<Self, ParseError> {
        Ok(Self(flysch_target::Pairs::parse(kind, rest)?))
    }

    pub(super) fn get<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ParseError> {
        Ok(self.0.get(name, read)?)
    }

    /// Refuses the first of these keys that is given, because it has no effect without another one.
    pub(super) fn refuse(&self, names: &[&str], expected: &str) -> Result<(), ParseError> {
        match names.iter().find_map(|name| self.0.given(name)) {
            None => Ok(()),
            Some((key, given)) => Err(ParseError::value(key.name, given, expected)),
        }
    }

    pub(super) fn size(&self) -> Result<Option<u64>, ParseError> {
        let whole = |bytes: &u64| *bytes > 0 && bytes.is_multiple_of(4096);
        self.get("size", |text| size::parse(text).filter(whole))
    }

    /// The model's own text form with `+` for `,`.
    pub(super) fn faults(&self, kinds: &'static [fault::Kind]) -> Result<Plan, ParseError> {
        let Some(text) = self.get("faults", |text| Some(text.to_owned()))? else {
            return Ok(Plan::none());
        };
        Plan::parse(&text.replace('+', ","), kinds)
            .map_err(|error| ParseError::Faults { given: text.clone(), cause: error })
    }

    pub(super) fn path(&self, name: &str) -> Result<Option<PathBuf>, ParseError> {
        self.get(name, |text| (!text.is_empty()).then(|| PathBuf::from(text)))
    }

    pub(super) fn within(&self, name: &str, low: u8, high: u8) -> Result<Option<u8>, ParseError> {
        self.get(name, |text| text.parse().ok().filter(|n| (low..=high).contains(n)))
    }

    pub(super) fn block_size(&self, default: u32) -> Result<u32, ParseError> {
        let read = |text: &str| size::parse(text).filter(|n| matches!(n, 512 | 4096));
        Ok(self.get("block", read)?.map_or(default, |bytes| bytes as u32))
    }

    pub(super) fn faults_from(&self) -> Result<FaultsFrom, ParseError> {
        Ok(self.get("faults-from", FaultsFrom::named)?.unwrap_or_default())
    }

    pub(super) fn seed(&self) -> Result<u64, ParseError> {
        Ok(self.get("seed", |text| text.parse().ok())?.unwrap_or(1))
    }
}

/// When a fault plan starts counting its opportunities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultsFrom {
    /// When the stack is open: all faults strike the workload.
    #[default]
    Open,
    /// At power-on: bring-up and scan are affected, too.
    Power,
}

impl FaultsFrom {
    /// The plan of a model at power-on; the rest is armed when the disk is open.
    pub(crate) fn at_power_on(self, plan: &Plan) -> Plan {
        match self {
            Self::Power => plan.clone(),
            Self::Open => Plan::none(),
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "open" => Some(Self::Open),
            "power" => Some(Self::Power),
            _ => None,
        }
    }
}

/// The clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockKind {
    /// Discrete events; software costs nothing.
    Virtual,
    /// Software time is measured, device time comes from the model.
    #[default]
    Hybrid,
    /// The machine's clock; the model runs in its own thread.
    Real,
}

impl ClockKind {
    /// How a machine in this thread keeps time.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Virtual => Mode::Virtual,
            _ => Mode::Hybrid { ticks },
        }
    }

    /// Its name in a target.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Hybrid => "hybrid",
            Self::Real => "real",
        }
    }

    pub(super) fn named(text: &str) -> Option<Self> {
        match text {
            "virtual" => Some(Self::Virtual),
            "hybrid" => Some(Self::Hybrid),
            "real" | "threaded" => Some(Self::Real),
            _ => None,
        }
    }
}

/// A clock that needs no thread.
pub(super) fn not_real(text: &str) -> Option<ClockKind> {
    ClockKind::named(text).filter(|clock| *clock != ClockKind::Real)
}

pub(super) fn on_off(text: &str) -> Option<bool> {
    match text {
        "on" | "1" | "true" | "yes" => Some(true),
        "off" | "0" | "false" | "no" => Some(false),
        _ => None,
    }
}
