//! The same operations for callers that may wait: tools, tests, bare metal.

use crate::configuration::{Configuration, ConfigurationPlan};
use crate::host::{Host, Progress};
use crate::operation::{DescriptorBytes, Operation, Output};
use crate::query::Query;
use crate::{CryptoKey, RpmbAnswer, RpmbCommand, RpmbUnit};
use crate::{DevicePower, FirmwarePart, LinkLimits, ResizeState, UfsError, WriteBoosterStatus};
use flysch_api::machine::{Clock, Machine, Wake};
use flysch_wire::ufs::descriptor::StringDescriptor;
use flysch_wire::ufs::query::{
    AttributeId, DescriptorId, FfuStatus, FlagId, PurgeStatus, WriteBoosterResize,
    WriteBoosterResizeStatus,
};

impl<M: Machine> Host<M> {
    /// Carries out one operation and waits for its end.
    ///
    /// # Errors
    /// Why it failed; [`UfsError::Gone`] if neither the host nor the clock has an event that could
    /// end it.
    pub fn run(&mut self, clock: &impl Clock, operation: Operation) -> Result<Output, UfsError> {
        self.finish_present(clock);
        self.begin(operation)?;
        loop {
            match self.poll(clock.now()) {
                Progress::Done(result) => return result,
                Progress::Busy | Progress::Idle => {
                    let until = self.poll_at();
                    if clock.wait(until) == Wake::Idle && until.is_none() {
                        return Err(UfsError::Gone);
                    }
                }
            }
        }
    }

    /// Waits until the host has finished what it does of its own accord.
    fn finish_present(&mut self, clock: &impl Clock) {
        while self.poll(clock.now()) == Progress::Busy {
            clock.wait(self.poll_at());
        }
    }

    /// Brings controller and device up.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub fn bring_up(&mut self, clock: &impl Clock) -> Result<(), UfsError> {
        self.run(clock, Operation::BringUp).map(|_| ())
    }

    /// Sends a query. Flags are returned as 0 or 1.
    ///
    /// # Errors
    /// Why it was not sent, or what the device answered.
    pub fn query(&mut self, clock: &impl Clock, query: Query) -> Result<Output, UfsError> {
        self.run(clock, Operation::Query(query))
    }

    /// Reads a descriptor.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn read_descriptor(
        &mut self,
        clock: &impl Clock,
        id: DescriptorId,
        index: u8,
    ) -> Result<DescriptorBytes, UfsError> {
        match self.query(clock, Query::read_descriptor(id).index(index))? {
            Output::Descriptor(bytes) => Ok(bytes),
            _ => Err(UfsError::Descriptor(id.name(), None)),
        }
    }

    /// Reads the string descriptor with this index.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn read_string(
        &mut self,
        clock: &impl Clock,
        index: u8,
    ) -> Result<alloc::string::String, UfsError> {
        let bytes = self.read_descriptor(clock, DescriptorId::String, index)?;
        let string = StringDescriptor::parse(bytes.as_slice())
            .map_err(|why| UfsError::Descriptor(DescriptorId::String.name(), Some(why)))?;
        Ok(string.chars().collect())
    }

    fn value(&mut self, clock: &impl Clock, query: Query) -> Result<u64, UfsError> {
        match self.query(clock, query)? {
            Output::Value(value) => Ok(value),
            _ => Ok(0),
        }
    }

    /// Reads an attribute.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn read_attribute(&mut self, clock: &impl Clock, id: AttributeId) -> Result<u64, UfsError> {
        self.value(clock, Query::read_attribute(id))
    }

    /// Writes an attribute.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn write_attribute(
        &mut self,
        clock: &impl Clock,
        id: AttributeId,
        value: u64,
    ) -> Result<(), UfsError> {
        self.value(clock, Query::write_attribute(id, value)).map(|_| ())
    }

    /// Reads a flag.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn read_flag(&mut self, clock: &impl Clock, id: FlagId) -> Result<bool, UfsError> {
        self.value(clock, Query::read_flag(id)).map(|value| value != 0)
    }

    /// Sets or clears a flag.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn write_flag(
        &mut self,
        clock: &impl Clock,
        id: FlagId,
        set: bool,
    ) -> Result<(), UfsError> {
        let query = if set { Query::set_flag(id) } else { Query::clear_flag(id) };
        self.value(clock, query).map(|_| ())
    }

    /// Puts a key into a slot of the controller's crypto engine.
    ///
    /// # Errors
    /// No engine, no such slot, a key that the engine does not support, or commands that do not
    /// end.
    pub fn program_key(
        &mut self,
        clock: &impl Clock,
        slot: u8,
        key: CryptoKey,
    ) -> Result<(), UfsError> {
        self.run(clock, Operation::ProgramKey { slot, key }).map(|_| ())
    }

    /// Takes the key out of a slot.
    ///
    /// # Errors
    /// As for [`program_key`](Self::program_key).
    pub fn evict_key(&mut self, clock: &impl Clock, slot: u8) -> Result<(), UfsError> {
        self.run(clock, Operation::EvictKey { slot }).map(|_| ())
    }

    /// Changes gear, lanes and rate to the highest within `limits`.
    ///
    /// # Errors
    /// If no high-speed gear came up; then the link runs as before.
    pub fn set_link(&mut self, clock: &impl Clock, limits: LinkLimits) -> Result<(), UfsError> {
        self.run(clock, Operation::Link(limits)).map(|_| ())
    }

    /// Changes the device's own power mode.
    ///
    /// # Errors
    /// What the device answered.
    pub fn set_power(&mut self, clock: &impl Clock, power: DevicePower) -> Result<(), UfsError> {
        self.run(clock, Operation::Power(power)).map(|_| ())
    }

    /// Writes the caches, powers the device down and switches the controller off.
    ///
    /// # Errors
    /// [`Cause::InFlight`](crate::Cause::InFlight) if commands are in flight; then everything
    /// continues.
    pub fn shut_down(&mut self, clock: &impl Clock) -> Result<(), UfsError> {
        self.run(clock, Operation::Shutdown).map(|_| ())
    }

    /// Puts the link into hibernation, or wakes it. A command or an operation that needs the link
    /// wakes it too.
    ///
    /// # Errors
    /// If the link did not follow; it is reset then.
    pub fn hibernate(&mut self, clock: &impl Clock, enter: bool) -> Result<(), UfsError> {
        self.run(clock, Operation::Hibernate(enter)).map(|_| ())
    }

    /// Reads the state of WriteBooster.
    ///
    /// # Errors
    /// [`UfsError::Unsupported`] if there is none.
    pub fn write_booster(&mut self, clock: &impl Clock) -> Result<WriteBoosterStatus, UfsError> {
        match self.run(clock, Operation::WriteBoosterStatus)? {
            Output::WriteBooster(status) => Ok(status),
            _ => Err(UfsError::Unsupported("WriteBooster")),
        }
    }

    /// Has the device resize the WriteBooster buffer and waits for the end, successful or not.
    ///
    /// # Errors
    /// [`UfsError::Unsupported`] if the buffer cannot be resized; otherwise what the device
    /// answered.
    pub fn resize_write_booster(
        &mut self,
        clock: &impl Clock,
        direction: WriteBoosterResize,
    ) -> Result<ResizeState, UfsError> {
        const WAIT_MS: u32 = 1000;
        self.run(clock, Operation::ResizeWriteBooster(direction))?;
        loop {
            match self.run(clock, Operation::ResizeState(WAIT_MS))? {
                Output::Resize(ResizeState {
                    status: WriteBoosterResizeStatus::InProgress,
                    ..
                }) => {}
                Output::Resize(state) => return Ok(state),
                _ => return Err(UfsError::Unsupported("resizing the WriteBooster buffer")),
            }
        }
    }

    /// Reads the description of the RPMB unit.
    ///
    /// # Errors
    /// [`UfsError::Unsupported`] if there is none, or the controller cannot communicate with it.
    pub fn rpmb_unit(&mut self, clock: &impl Clock) -> Result<RpmbUnit, UfsError> {
        match self.run(clock, Operation::RpmbUnit)? {
            Output::RpmbUnit(unit) => Ok(unit),
            _ => Err(UfsError::Unsupported("replay protected memory")),
        }
    }

    /// Sends one message to replay protected memory and verifies its answer.
    ///
    /// # Errors
    /// [`UfsError::Rpmb`] with the device's refusal or the reason why its answer is not trusted;
    /// otherwise what went wrong in transit, after which the write counter tells whether a write
    /// was done.
    pub fn rpmb(
        &mut self,
        clock: &impl Clock,
        command: RpmbCommand,
    ) -> Result<RpmbAnswer, UfsError> {
        match self.run(clock, Operation::Rpmb(command))? {
            Output::Rpmb(answer) => Ok(answer),
            _ => Err(UfsError::Unsupported("replay protected memory")),
        }
    }

    /// Sends a firmware image to the device, resets the device, and checks whether the image runs.
    ///
    /// # Errors
    /// [`UfsError::Firmware`] with the device's reason; then the old firmware continues to run.
    pub fn update_firmware(&mut self, clock: &impl Clock, image: &[u8]) -> Result<(), UfsError> {
        for part in FirmwarePart::all(image)? {
            self.run(clock, Operation::WriteFirmware(part))?;
        }
        self.believe_firmware(clock)?;
        self.run(clock, Operation::Reset)?;
        self.believe_firmware(clock)
    }

    fn believe_firmware(&mut self, clock: &impl Clock) -> Result<(), UfsError> {
        match self.run(clock, Operation::FirmwareStatus)? {
            Output::Firmware(FfuStatus::NoInformation | FfuStatus::Success) => Ok(()),
            Output::Firmware(status) => Err(UfsError::Firmware(status)),
            _ => Err(UfsError::Unsupported("field firmware update")),
        }
    }

    /// Purges all unmapped data and waits for the end, successful or not.
    ///
    /// # Errors
    /// [`Cause::InFlight`](crate::Cause::InFlight) if commands are in flight; otherwise what the
    /// device answered.
    pub fn purge(&mut self, clock: &impl Clock) -> Result<PurgeStatus, UfsError> {
        const WAIT_MS: u32 = 1000;
        self.run(clock, Operation::Purge(true))?;
        loop {
            match self.run(clock, Operation::PurgeStatus(WAIT_MS))? {
                Output::Purge(PurgeStatus::InProgress) => {}
                Output::Purge(status) => return Ok(status),
                _ => return Err(UfsError::Unsupported("purge")),
            }
        }
    }

    /// Reads the device's configuration, the first thing a [`ConfigurationPlan`] needs.
    ///
    /// # Errors
    /// What the device answered.
    pub fn read_configuration(&mut self, clock: &impl Clock) -> Result<Configuration, UfsError> {
        match self.run(clock, Operation::ReadConfiguration)? {
            Output::Configuration(configuration) => Ok(configuration),
            _ => Err(UfsError::Descriptor("configuration", None)),
        }
    }

    /// Writes the device's configuration. **This erases data and may be possible only once.** It
    /// takes effect with the next reset of the device.
    ///
    /// # Errors
    /// [`UfsError::Configuration`] if the token is not the plan's, the device is locked or has
    /// changed since the plan was made; otherwise what the device answered.
    pub fn configure(
        &mut self,
        clock: &impl Clock,
        plan: ConfigurationPlan,
        token: u64,
    ) -> Result<(), UfsError> {
        self.run(clock, Operation::Configure { plan, token }).map(|_| ())
    }
}
