//! Whether the device can be used: supply, initialisation, power mode.

use flysch_wire::ufs::query::CurrentPowerMode;

use super::power::Power;

/// Supply, initialisation and power mode.
#[derive(Debug)]
pub(super) struct Readiness {
    powered: bool,
    /// Duration of fDeviceInit, nanoseconds.
    init_ns: u64,
    /// fDeviceInit is in progress until then.
    init_until: Option<u64>,
    initialised: bool,
    power: Power,
}

impl Readiness {
    /// A powered, uninitialised device.
    pub(super) fn new(init_ns: u64) -> Self {
        let power = Power::new(true);
        Self { powered: true, init_ns, init_until: None, initialised: false, power }
    }

    /// The device starts afresh, in the mode it is configured to start in.
    pub(super) fn start_over(&mut self, active: bool) {
        self.power = Power::new(active);
        self.initialised = false;
        self.init_until = None;
    }

    /// Whether the device has power.
    pub(super) fn is_powered(&self) -> bool {
        self.powered
    }

    /// Power comes on or is lost.
    pub(super) fn set_powered(&mut self, powered: bool) {
        self.powered = powered;
    }

    /// The power mode.
    pub(super) fn mode(&self) -> CurrentPowerMode {
        self.power.mode()
    }

    /// Changes the power mode; only a reset leads out of deep sleep.
    pub(super) fn change_mode(&mut self, mode: CurrentPowerMode) -> bool {
        self.power.change(mode)
    }

    /// The host has set fDeviceInit.
    pub(super) fn begin_init(&mut self, now: u64) {
        self.init_until = Some(now + self.init_ns);
    }

    /// Ends fDeviceInit if its time has come; returns whether it ends now.
    pub(super) fn settle_init(&mut self, now: u64) -> bool {
        let over = self.init_until.is_some_and(|until| until <= now);
        if over {
            self.init_until = None;
            self.initialised = true;
        }
        over
    }

    /// Whether fDeviceInit has been carried out.
    #[inline]
    pub(super) fn is_initialised(&self) -> bool {
        self.initialised
    }

    /// Whether the power mode permits commands.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.power.is_active()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialisation_ends_once_and_a_reset_undoes_it() {
        let mut readiness = Readiness::new(1000);
        readiness.begin_init(500);
        assert!(!readiness.settle_init(1499) && !readiness.is_initialised());
        assert!(readiness.settle_init(1500) && readiness.is_initialised());
        assert!(!readiness.settle_init(1501));
        assert!(readiness.change_mode(CurrentPowerMode::DeepSleep));
        assert!(!readiness.change_mode(CurrentPowerMode::Active), "only a reset wakes it");
        readiness.start_over(true);
        assert!(readiness.is_active() && !readiness.is_initialised());
    }
}
