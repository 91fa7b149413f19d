//! Exception events and background operations.
//!
//! A device with something to say sets EVENT_ALERT in every response until it is asked. The host
//! then reads wExceptionEventStatus. To urgent background operations it answers itself: while
//! performance suffers it allows them, and takes the permission back when the need is gone. A
//! WriteBooster buffer that has to be flushed is flushed, and of a device too hot or too cold the
//! temperature is read. All events are kept for the caller, those that were answered, too.

use crate::channel::Run;
use crate::control::Core;
use crate::query::Query;
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::ufs::query::{
    AttributeId, BackgroundOpStatus, ExceptionEvents, FlagId, temperature_celsius,
};

impl<M: Machine> Core<M> {
    /// At bring-up: enables the events the options want.
    pub(crate) fn initial_events(&mut self) -> Run<()> {
        let events = self.channel.options.exception_events.into();
        self.checked_query(&Query::write_attribute(AttributeId::ExceptionEventControl, events))?;
        Ok(())
    }

    /// Finds out what the device has to say.
    pub(crate) fn handle_event(&mut self) -> Run<()> {
        let status = Query::read_attribute(AttributeId::ExceptionEventStatus);
        let raw = self.checked_query(&status)?.fields.value32() as u16;
        let enabled = self.channel.options.exception_events;
        let events = ExceptionEvents::from_bits(raw & enabled);
        self.device.events |= events.into_bits();
        if events.urgent_bkops() {
            self.serve_background_operations()?;
        }
        if events.writebooster_flush_needed() {
            self.write_booster_flag(FlagId::WriteBoosterBufferFlushEn, true)?;
        }
        if events.too_high_temp() || events.too_low_temp() {
            self.read_temperature()?;
        }
        Ok(())
    }

    /// The temperature of the case, kept beside the event.
    fn read_temperature(&mut self) -> Run<()> {
        let rough = Query::read_attribute(AttributeId::DeviceCaseRoughTemperature);
        let raw = self.checked_query(&rough)?.fields.value32() as u8;
        self.channel.effect(|_| self.device.temperature = temperature_celsius(raw));
        Ok(())
    }

    /// Allows background operations while the device suffers without them.
    pub(crate) fn serve_background_operations(&mut self) -> Run<()> {
        let status = Query::read_attribute(AttributeId::BackgroundOpStatus);
        let raw = self.checked_query(&status)?.fields.value32() as u8;
        let needed = matches!(
            BackgroundOpStatus::from_bits(raw),
            BackgroundOpStatus::PerformanceImpact | BackgroundOpStatus::Critical
        );
        let flag = FlagId::BackgroundOpsEn;
        let allow = if needed { Query::set_flag(flag) } else { Query::clear_flag(flag) };
        self.checked_query(&allow)?;
        self.channel.effect(|_| {
            self.device.background_operations = needed;
        });
        Ok(())
    }
}
