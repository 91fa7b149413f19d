//! Exception events and background operations.
//!
//! A device that has something to report sets EVENT_ALERT in every response until it is asked. The
//! host then reads wExceptionEventStatus. It acts on urgent background operations itself: while
//! performance suffers it allows them, and it withdraws the permission when the need is gone. A
//! WriteBooster buffer that has to be flushed is flushed, and of a device too hot or too cold the
//! temperature is read. All events are kept for the caller, including those acted on.

use crate::channel::Run;
use crate::management::Peer;
use crate::query::Query;
use crate::writebooster::WriteBooster;
use flysch_api::machine::Machine;
use flysch_script::Replay;
use flysch_wire::ufs::query::{
    AttributeId, BackgroundOpStatus, ExceptionEvents, FlagId, temperature_celsius,
};

impl<M: Machine> Peer<M> {
    /// At bring-up: enables the events that the options select.
    pub(crate) fn initial_events(&mut self) -> Run<()> {
        let events = self.channel.options.exception_events.into();
        self.checked_query(&Query::write_attribute(AttributeId::ExceptionEventControl, events))?;
        Ok(())
    }

    /// Finds out what the device has to report.
    pub(crate) fn handle_event(&mut self) -> Run<()> {
        let raw = self.read_attribute(AttributeId::ExceptionEventStatus)? as u16;
        let enabled = self.channel.options.exception_events;
        let events = ExceptionEvents::from_bits(raw & enabled);
        self.device.events |= events.into_bits();
        if events.urgent_bkops() {
            self.serve_background_operations()?;
        }
        if events.writebooster_flush_needed() {
            let booster = WriteBooster::of(&self.device);
            booster.set_flag(self, FlagId::WriteBoosterBufferFlushEn, true)?;
        }
        if events.too_high_temp() || events.too_low_temp() {
            self.read_temperature()?;
        }
        Ok(())
    }

    /// Reads the temperature of the case, which is kept beside the event.
    fn read_temperature(&mut self) -> Run<()> {
        let raw = self.read_attribute(AttributeId::DeviceCaseRoughTemperature)? as u8;
        self.channel.effect(|_| self.device.temperature = temperature_celsius(raw));
        Ok(())
    }

    /// Allows background operations while the device suffers without them.
    pub(crate) fn serve_background_operations(&mut self) -> Run<()> {
        let raw = self.read_attribute(AttributeId::BackgroundOpStatus)? as u8;
        let needed = matches!(
            BackgroundOpStatus::from_bits(raw),
            BackgroundOpStatus::PerformanceImpact | BackgroundOpStatus::Critical
        );
        let flag = FlagId::BackgroundOpsEn;
        let allow = if needed { Query::set_flag(flag) } else { Query::clear_flag(flag) };
        self.checked_query(&allow)?;
        self.channel.effect(|_| self.device.background_operations = needed);
        Ok(())
    }
}
