//! Exception events: unusual conditions of the device, and whether responses report them.

use flysch_wire::ufs::query::{AttributeId, BackgroundOpStatus, ExceptionEvents};

use super::parameters::Parameters;
use super::writebooster::WriteBooster;

/// Case temperature of a device that nobody has heated, °C.
const TEMPERATURE: i16 = 40;
/// The offset of the temperature attributes from °C.
const TEMPERATURE_OFFSET: i16 = 80;

/// Temperature, and whether there is something to report.
#[derive(Debug)]
pub(super) struct Exceptions {
    temperature: i16,
    throttled: bool,
    /// Whether an enabled exception event is pending: EVENT_ALERT of every response.
    alert: bool,
}

impl Exceptions {
    /// A device at room temperature without events.
    pub(super) fn new() -> Self {
        Self { temperature: TEMPERATURE, throttled: false, alert: false }
    }

    /// The device starts afresh: nothing is reported yet.
    pub(super) fn start_over(&mut self) {
        self.alert = false;
    }

    /// Sets the case temperature, °C.
    pub(super) fn set_temperature(&mut self, celsius: i16, parameters: &Parameters) {
        self.temperature = celsius.clamp(1 - TEMPERATURE_OFFSET, 250 - TEMPERATURE_OFFSET);
        self.throttled = self.temperature_code() >= too_high(parameters);
    }

    /// bDeviceCaseRoughTemperature.
    pub(super) fn temperature_code(&self) -> u64 {
        (self.temperature + TEMPERATURE_OFFSET) as u64
    }

    /// bThrottlingStatus.
    pub(super) fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// Whether responses carry EVENT_ALERT.
    #[inline]
    pub(super) fn alert(&self) -> bool {
        self.alert
    }

    /// wExceptionEventStatus.
    pub(super) fn events(
        &self,
        parameters: &Parameters,
        background: BackgroundOpStatus,
        booster: &WriteBooster,
    ) -> ExceptionEvents {
        let urgent = matches!(
            background,
            BackgroundOpStatus::PerformanceImpact | BackgroundOpStatus::Critical
        );
        let too_low = parameters.attribute(AttributeId::DeviceTooLowTempBoundary);
        ExceptionEvents::new()
            .with_urgent_bkops(urgent)
            .with_too_high_temp(self.temperature_code() >= too_high(parameters))
            .with_too_low_temp(self.temperature_code() <= too_low)
            .with_writebooster_flush_needed(booster.needs_flush())
            .with_performance_throttling(self.throttled)
            .with_writebooster_resize_hint(booster.hints())
            .with_pinned_writebooster_full(booster.is_pinned_full())
    }

    /// `events` are the current events; the alert is set if the host has enabled any of them.
    pub(super) fn update(&mut self, events: ExceptionEvents, parameters: &Parameters) {
        let control = parameters.attribute(AttributeId::ExceptionEventControl);
        self.alert = u64::from(events.into_bits()) & control != 0;
    }
}

fn too_high(parameters: &Parameters) -> u64 {
    parameters.attribute(AttributeId::DeviceTooHighTempBoundary)
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::super::provision::Provision;
    use super::*;

    #[test]
    fn heat_is_told_once_the_host_wants_to_know() {
        let config = Config::default();
        let mut parameters = Parameters::new(config.specification, true);
        let booster = WriteBooster::new(&Provision::new(&config), true);
        let mut exceptions = Exceptions::new();
        exceptions.set_temperature(90, &parameters);
        let idle = BackgroundOpStatus::NotRequired;
        let events = exceptions.events(&parameters, idle, &booster);
        assert!(events.too_high_temp() && events.performance_throttling());
        assert_eq!((exceptions.temperature_code(), exceptions.is_throttled()), (170, true));
        exceptions.update(events, &parameters);
        assert!(!exceptions.alert());
        parameters.force(AttributeId::ExceptionEventControl, events.into_bits().into());
        exceptions.update(events, &parameters);
        assert!(exceptions.alert());
        exceptions.start_over();
        assert!(!exceptions.alert());
    }
}
