use flysch_ufs::policy::{Rules, Scaling};
use flysch_ufs::{LinkLimits, SuspendLevel};

use crate::target::ParseError;
use crate::target::pairs::Pairs;

impl Pairs<'_> {
    /// Parses the driver's automatic actions in pauses, and refuses a suspend level without a
    /// suspend.
    pub(super) fn rules(&self) -> Result<Rules, ParseError> {
        let micros = |text: &str| text.parse().ok().filter(|&us: &u32| us > 0);
        let level = |text: &str| match text {
            "hibernate" => Some(SuspendLevel::Hibernate),
            "sleep" => Some(SuspendLevel::Sleep),
            _ => None,
        };
        let suspend_after_us = self.get("suspend", micros)?;
        let suspend_level = self.get("suspend-level", level)?;
        if suspend_after_us.is_none() {
            self.refuse(&["suspend-level"], "`suspend=MICROSECONDS` as well")?;
        }
        let default = LinkLimits::default();
        let gear = self.within("gear", 1, 5)?.unwrap_or(default.gear);
        let scaling = self.get("scaling", micros)?.map(|slow_after_us| Scaling {
            fast: LinkLimits { gear, ..default },
            slow_after_us,
            ..Scaling::default()
        });
        let suspend_level = suspend_level.unwrap_or_default();
        Ok(Rules { scaling, suspend_after_us, suspend_level, ..Rules::default() })
    }
}
