//! What the board around a controller does, and what it has to be told.
//!
//! A controller alone is a window of registers. On a board it also has clocks, supplies, a reset
//! line to the device, and a PHY that needs vendor attributes at certain moments. An operating
//! system or firmware that ports the driver to a chip implements [`Platform`] and hands it to
//! [`Host::with_platform`](crate::Host::with_platform); every method has a default that is right
//! where there is nothing to do, and a host works without a platform too. All calls are made on the
//! thread that polls the host, none of them per command.

use crate::device_quirks::DeviceQuirks;
use crate::link::Link;
use crate::power_mode::DevicePower;
use crate::quirks::Correction;
use core::fmt::Debug;
use flysch_wire::ufs::descriptor::DeviceDescriptor;
use flysch_wire::ufs::uic::UicAttribute;

/// What happens to the controller, the link or the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The bring-up step of this name in [`STEPS`](crate::STEPS); also when a recovery or a new try
    /// repeats it.
    Step(&'static str),
    /// DME_LINKSTARTUP, inside its step.
    LinkStartup,
    /// The link changes to this speed. Told for every speed that is tried.
    PowerMode(Link),
    /// DME_HIBERNATE_ENTER.
    HibernateEnter,
    /// DME_HIBERNATE_EXIT.
    HibernateExit,
    /// START STOP UNIT to this power mode of the device. Before a higher mode the supplies it needs
    /// must be switched on; after a lower mode, when the device has settled in it, those it does
    /// not need may be switched off. A bring-up begins with all of them on, at `Step("controller
    /// disable")`. Commands that a caller sends through a port are not told.
    DevicePower(DevicePower),
    /// The controller is switched off permanently: [`Operation::Shutdown`](crate::Operation).
    Shutdown,
}

/// Before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is about to happen.
    Before,
    /// It has happened successfully.
    After,
}

/// One DME_SET or DME_PEER_SET of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmeSetting {
    /// The attribute; vendor attributes are `Unknown(n)`.
    pub attribute: UicAttribute,
    /// GenSelectorIndex: a transmit lane, 4 + a receive lane, or 0.
    pub selector: u16,
    /// Whether it belongs to the device's end of the link.
    pub peer: bool,
    /// Its value.
    pub value: u32,
}

/// What to do with the controller's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// Off: after shutdown, and while the link hibernates on command.
    Off,
    /// On: before anything else is done.
    On,
    /// Scaled down, after the link became slow: HS-G1 or less.
    Slow,
    /// Scaled up, before the link becomes faster than that.
    Fast,
}

/// bRefClkFreq: the reference clock that the board supplies to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReferenceClock {
    /// 19.2 MHz.
    Mhz19_2 = 0,
    /// 26 MHz.
    Mhz26 = 1,
    /// 38.4 MHz.
    Mhz38_4 = 2,
    /// 52 MHz.
    Mhz52 = 3,
}

/// Where the run-time registers of one queue pair are, bytes from the start of the register window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueRegisters {
    /// The block that starts with SQHP (what SQDAO should contain).
    pub submission: u32,
    /// The block that starts with CQHP (CQDAO).
    pub completion: u32,
    /// The block that starts with CQIS (CQISAO).
    pub completion_interrupt: u32,
}

/// A platform could not do its part: a number of its choice, shown in the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlatformError(pub u16);

/// The board around a controller. Times are how long the driver waits before it continues, in
/// microseconds.
pub trait Platform: Debug + Send {
    /// Called before and after each [`Event`]; returns how long to wait, µs.
    ///
    /// # Errors
    /// The event counts as failed: a bring-up step is tried again as specified in its table.
    fn notice(&mut self, event: Event, phase: Phase) -> Result<u32, PlatformError> {
        let _ = (event, phase);
        Ok(0)
    }

    /// The `n`-th attribute to set at this moment; called with increasing `n` until `None`, after
    /// [`notice`](Self::notice). An attribute that is refused is logged and skipped.
    fn setting(&mut self, event: Event, phase: Phase, n: usize) -> Option<DmeSetting> {
        let _ = (event, phase, n);
        None
    }

    /// Drives RST_n of the device: `true` holds the device in reset (line low). Returns `false` if
    /// there is no such line.
    fn device_reset(&mut self, hold: bool) -> bool {
        let _ = hold;
        false
    }

    /// Switches or scales the controller's clocks and supplies.
    fn clocks(&mut self, clocks: Clocks) {
        let _ = clocks;
    }

    /// The reference clock that the board supplies to the device; `None` keeps the device's
    /// setting.
    fn reference_clock(&self) -> Option<ReferenceClock> {
        None
    }

    /// Where the run-time registers of a queue are; called if the controller's own offset registers
    /// (SQDAO, CQDAO) read zero.
    fn queue_registers(&self, queue: u8) -> Option<QueueRegisters> {
        let _ = queue;
        None
    }

    /// Called when the device behind the link is known, with its known deviations. The platform has
    /// to deal with those that need registers of the PHY. It returns corrections from the board or
    /// the SoC, as Linux's host drivers do with tables of their own: see
    /// [`DeviceQuirks::on_qualcomm`]. The caller's
    /// [`UfsOptions::device_quirks`](crate::UfsOptions::device_quirks) are applied after them.
    fn device(
        &mut self,
        descriptor: &DeviceDescriptor,
        quirks: DeviceQuirks,
    ) -> Correction<DeviceQuirks> {
        let _ = (descriptor, quirks);
        Correction::default()
    }
}
