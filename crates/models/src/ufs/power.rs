//! Power modes of the device, and its pending background work.

use flysch_wire::scsi::cdb::PowerCondition;
use flysch_wire::ufs::query::{BackgroundOpStatus, CurrentPowerMode};

/// Bytes written at which background operations become advisable, important, and critical.
const NON_CRITICAL: u64 = 4 << 30;
const PERFORMANCE_IMPACT: u64 = 16 << 30;
const CRITICAL: u64 = 64 << 30;
/// Bytes of that work done per microsecond of idle time.
const RATE: u64 = 200;

/// The power mode for a POWER CONDITION of START STOP UNIT.
pub(super) fn mode_of(condition: PowerCondition) -> Option<CurrentPowerMode> {
    match condition {
        PowerCondition::Active => Some(CurrentPowerMode::Active),
        PowerCondition::Sleep => Some(CurrentPowerMode::Sleep),
        PowerCondition::PowerDown => Some(CurrentPowerMode::PowerDown),
        PowerCondition::DeepSleep => Some(CurrentPowerMode::DeepSleep),
        PowerCondition::StartValid | PowerCondition::Unknown(_) => None,
    }
}

/// The power mode.
#[derive(Debug)]
pub(super) struct Power {
    mode: CurrentPowerMode,
}

impl Power {
    pub(super) fn new(active: bool) -> Self {
        let mode = if active { CurrentPowerMode::Active } else { CurrentPowerMode::Sleep };
        Self { mode }
    }

    pub(super) fn mode(&self) -> CurrentPowerMode {
        self.mode
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.mode == CurrentPowerMode::Active
    }

    /// Changes the mode; only a reset leads out of deep sleep.
    pub(super) fn change(&mut self, mode: CurrentPowerMode) -> bool {
        let possible = self.mode != CurrentPowerMode::DeepSleep || mode == self.mode;
        if possible {
            self.mode = mode;
        }
        possible
    }
}

/// Duration of a change of mode, nanoseconds.
pub(super) fn change_ns(from: CurrentPowerMode, to: CurrentPowerMode) -> u64 {
    match (from, to) {
        (from, to) if from == to => 10_000,
        (CurrentPowerMode::PowerDown, CurrentPowerMode::Active) => 40_000_000,
        (_, CurrentPowerMode::Active) => 3_000_000,
        _ => 8_000_000,
    }
}

/// Garbage that accumulates as the host writes and is collected in idle time.
#[derive(Debug, Default)]
pub(super) struct Background {
    debt: u64,
    enabled: bool,
    /// The time up to which idle time has been counted.
    settled: u64,
}

impl Background {
    pub(super) fn enable(&mut self, value: bool, now: u64) {
        self.settle(now);
        self.enabled = value;
    }

    /// The host has written; until now the device was idle, as far as this model is concerned.
    #[inline]
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.debt += bytes;
    }

    fn settle(&mut self, now: u64) {
        if self.enabled {
            let done = now.saturating_sub(self.settled) / 1000 * RATE;
            self.debt = self.debt.saturating_sub(done);
        }
        self.settled = now;
    }

    pub(super) fn status(&mut self, now: u64) -> BackgroundOpStatus {
        self.settle(now);
        match self.debt {
            CRITICAL.. => BackgroundOpStatus::Critical,
            PERFORMANCE_IMPACT.. => BackgroundOpStatus::PerformanceImpact,
            NON_CRITICAL.. => BackgroundOpStatus::NonCritical,
            _ => BackgroundOpStatus::NotRequired,
        }
    }
}
