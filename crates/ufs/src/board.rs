//! The board: what the [`Platform`] is told and asked, and what it wants to be done.

use crate::control::{Answer, Core, Run, Wait};
use crate::device_quirks::DeviceQuirks;
use crate::error::Cause;
use crate::history::ErrorKind;
use crate::platform::{Clocks, DmeSetting, Event, Phase, Platform, PlatformError};
use crate::quirks::Correction;
use crate::time::US;
use crate::uic::UicCommand;
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::ufs::uic::{UicArgument1, UicOpcode};

/// Most settings of one moment: a platform that never says `None` is stopped here.
const SETTINGS_MAX: usize = 256;
/// How long RST_n is held, and how long the device gets afterwards (JESD220 asks for 1 µs; the
/// drivers in the field use 10), nanoseconds.
const RESET_NANOS: u64 = 10 * US;
/// Bit of [`Core::once`]'s answer that says that the platform refused.
const REFUSED: u64 = 1 << 32;

impl<M: Machine> Core<M> {
    fn platform(&mut self) -> Option<&mut (dyn Platform + 'static)> {
        self.platform.as_deref_mut()
    }

    /// Tells the platform, waits as long as it wants and sets what it wants.
    pub(crate) fn tell(&mut self, event: Event, phase: Phase) -> Run<()> {
        Ok(self.tell_or_refusal(event, phase)??)
    }

    /// As [`tell`](Self::tell), for one who goes on all the same.
    pub(crate) fn tell_or_refusal(
        &mut self,
        event: Event,
        phase: Phase,
    ) -> Wait<Result<(), Cause>> {
        if self.platform.is_none() {
            return Ok(Ok(()));
        }
        let answer = self.once(|core| match core.platform().map(|p| p.notice(event, phase)) {
            Some(Ok(wait_us)) => wait_us.into(),
            Some(Err(PlatformError(number))) => REFUSED | u64::from(number),
            None => 0,
        });
        if answer & REFUSED != 0 {
            return Ok(Err(Cause::Platform(answer as u16)));
        }
        if answer != 0 {
            self.sleep(answer * US)?;
        }
        for n in 0..SETTINGS_MAX {
            let answer = self.answer(|core| {
                let setting = core.platform().and_then(|p| p.setting(event, phase, n));
                Answer::Setting(setting)
            });
            let Answer::Setting(Some(setting)) = answer else { break };
            if self.set_attribute(setting)?.is_err() {
                self.note(ErrorKind::Setting, u32::from(setting.attribute.into_bits()));
            }
        }
        Ok(Ok(()))
    }

    pub(crate) fn set_attribute(&mut self, setting: DmeSetting) -> Wait<Result<u32, Cause>> {
        let argument = UicArgument1::new()
            .with_mib_attribute(setting.attribute)
            .with_gen_selector_index(setting.selector);
        self.uic(UicCommand {
            opcode: if setting.peer { UicOpcode::DmePeerSet } else { UicOpcode::DmeSet },
            argument1: argument.into_bits(),
            value: setting.value,
        })
    }

    /// Resets the device by its line, if the board has one.
    pub(crate) fn reset_device(&mut self) -> Run<()> {
        if self.drive_reset(true) {
            self.sleep(RESET_NANOS)?;
            self.drive_reset(false);
            self.sleep(RESET_NANOS)?;
        }
        Ok(())
    }

    fn drive_reset(&mut self, hold: bool) -> bool {
        self.once(|core| core.platform().is_some_and(|p| p.device_reset(hold)).into()) != 0
    }

    /// Switches the clocks, once per change.
    pub(crate) fn clocks(&mut self, on: bool) {
        self.effect(|core| {
            if core.clocks_on != on {
                core.clocks_on = on;
                if let Some(platform) = core.platform() {
                    platform.clocks(if on { Clocks::On } else { Clocks::Off });
                }
            }
        });
    }

    /// Scales the clocks.
    pub(crate) fn scale(&mut self, up: bool) {
        self.effect(|core| {
            if let Some(platform) = core.platform() {
                platform.clocks(if up { Clocks::Fast } else { Clocks::Slow });
            }
        });
    }

    /// The reference clock to set in the device.
    pub(crate) fn wanted_reference_clock(&self) -> Option<u8> {
        let board = || self.platform.as_ref()?.reference_clock().map(|clock| clock as u8);
        self.options.reference_clock.or_else(board)
    }

    /// Says what the device is and what is known of it; gives what the board knows better.
    pub(crate) fn introduce_device(&mut self, known: DeviceQuirks) -> Correction<DeviceQuirks> {
        let answer = self.answer(|core| {
            let descriptor = core.device.descriptor;
            let correction = core.platform().map(|p| p.device(&descriptor, known));
            Answer::Quirks(correction.unwrap_or_default())
        });
        match answer {
            Answer::Quirks(correction) => correction,
            _ => unreachable!("another answer where quirks were written down"),
        }
    }
}
