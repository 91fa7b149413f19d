//! How the link runs.

use flysch_wire::ufs::uic::HsSeries;

/// How the link runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// High speed, or the low speed in which a link starts.
    pub high_speed: bool,
    /// Gear.
    pub gear: u8,
    /// Lanes per direction.
    pub lanes: u8,
    /// Rate series; without meaning in low speed.
    pub series: HsSeries,
    /// Whether the host put the link into hibernation.
    pub hibernating: bool,
}

impl Default for Link {
    /// As after link start-up: PWM-G1, one lane.
    fn default() -> Self {
        Self { high_speed: false, gear: 1, lanes: 1, series: HsSeries::A, hibernating: false }
    }
}
