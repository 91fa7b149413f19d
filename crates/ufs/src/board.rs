//! The board: what the [`Platform`] is told and asked, and what it wants to be done.

use crate::channel::{Channel, Run, Told};
use crate::device_quirks::DeviceQuirks;
use crate::error::Cause;
use crate::history::ErrorKind;
use crate::platform::{
    Clocks, Event, Phase, Platform, PlatformError, QueueRegisters, ReferenceClock,
};
use crate::quirks::Correction;
use crate::time::US;
use alloc::boxed::Box;
use flysch_api::machine::Machine;
use flysch_script::{Answer, Primitives, Replay, Wait};
use flysch_wire::ufs::descriptor::DeviceDescriptor;

/// Most settings at one moment: a platform that never answers `None` is stopped here.
const SETTINGS_MAX: usize = 256;
/// How long RST_n is held, and how long the device gets afterwards (JESD220 requires 1 µs; the
/// drivers in the field use 10), nanoseconds.
const RESET_NANOS: u64 = 10 * US;
/// The bit of an answer that says that the platform refused.
const REFUSED: u64 = 1 << 32;

/// The board the controller is on.
#[derive(Debug, Default)]
pub(crate) struct Board {
    platform: Option<Box<dyn Platform>>,
    clocks_on: bool,
}

impl Board {
    /// Gives the board its platform, before bring-up.
    pub(crate) fn set_platform(&mut self, platform: Box<dyn Platform>) {
        self.platform = Some(platform);
    }

    fn platform(&mut self) -> Option<&mut (dyn Platform + 'static)> {
        self.platform.as_deref_mut()
    }

    /// Tells the platform, waits as long as it wants and sets what it wants.
    pub(crate) fn tell<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        event: Event,
        phase: Phase,
    ) -> Run<()> {
        Ok(self.tell_or_refusal(channel, event, phase)??)
    }

    /// As [`tell`](Self::tell), for a caller that goes on in spite of a refusal.
    pub(crate) fn tell_or_refusal<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        event: Event,
        phase: Phase,
    ) -> Wait<Result<(), Cause>> {
        if self.platform.is_none() {
            return Ok(Ok(()));
        }
        let answer = channel.once(|_| match self.platform().map(|p| p.notice(event, phase)) {
            Some(Ok(wait_us)) => wait_us.into(),
            Some(Err(PlatformError(number))) => REFUSED | u64::from(number),
            None => 0,
        });
        if answer & REFUSED != 0 {
            return Ok(Err(Cause::Platform(answer as u16)));
        }
        if answer != 0 {
            channel.sleep(answer * US)?;
        }
        for n in 0..SETTINGS_MAX {
            let answer = channel.answer(|_| {
                let setting = self.platform().and_then(|p| p.setting(event, phase, n));
                Answer::Reply(Told::Setting(setting))
            });
            let Answer::Reply(Told::Setting(Some(setting))) = answer else { break };
            if channel.set_attribute(setting)?.is_err() {
                channel.note(ErrorKind::Setting, u32::from(setting.attribute.into_bits()));
            }
        }
        Ok(Ok(()))
    }

    /// Resets the device by its line, if the board has one.
    pub(crate) fn reset_device<M: Machine>(&mut self, channel: &mut Channel<M>) -> Run<()> {
        if self.drive_reset(channel, true) {
            channel.sleep(RESET_NANOS)?;
            self.drive_reset(channel, false);
            channel.sleep(RESET_NANOS)?;
        }
        Ok(())
    }

    #[track_caller]
    fn drive_reset<M: Machine>(&mut self, channel: &mut Channel<M>, hold: bool) -> bool {
        channel.once(|_| self.platform().is_some_and(|p| p.device_reset(hold)).into()) != 0
    }

    /// Switches the clocks, once per change.
    pub(crate) fn clocks<M: Machine>(&mut self, channel: &mut Channel<M>, on: bool) {
        channel.effect(|_| {
            if self.clocks_on != on {
                self.clocks_on = on;
                if let Some(platform) = self.platform() {
                    platform.clocks(if on { Clocks::On } else { Clocks::Off });
                }
            }
        });
    }

    /// Whether the clocks run.
    pub(crate) fn clocks_on(&self) -> bool {
        self.clocks_on
    }

    /// Stops the clocks at once, whatever is in progress.
    pub(crate) fn switch_off(&mut self) {
        if let Some(platform) = self.platform() {
            platform.clocks(Clocks::Off);
        }
        self.clocks_on = false;
    }

    /// Scales the clocks.
    pub(crate) fn scale<M: Machine>(&mut self, channel: &mut Channel<M>, up: bool) {
        channel.effect(|_| {
            if let Some(platform) = self.platform() {
                platform.clocks(if up { Clocks::Fast } else { Clocks::Slow });
            }
        });
    }

    /// The reference clock the device gets from the board, where the board says it.
    pub(crate) fn reference_clock(&self) -> Option<ReferenceClock> {
        self.platform.as_ref()?.reference_clock()
    }

    /// Where the run-time registers of a queue are, where the platform knows.
    pub(crate) fn queue_registers(&self, queue: u8) -> Option<QueueRegisters> {
        self.platform.as_ref()?.queue_registers(queue)
    }

    /// Tells the platform what the device is and what is known of it; returns what the platform
    /// knows better.
    pub(crate) fn introduce<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        descriptor: &DeviceDescriptor,
        known: DeviceQuirks,
    ) -> Correction<DeviceQuirks> {
        let answer = channel.answer(|_| {
            let correction = self.platform().map(|p| p.device(descriptor, known));
            Answer::Reply(Told::Quirks(correction.unwrap_or_default()))
        });
        match answer {
            Answer::Reply(Told::Quirks(correction)) => correction,
            _ => unreachable!("another answer where quirks were written down"),
        }
    }
}
