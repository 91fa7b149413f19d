//! The board's own part in the life of a UFS controller, through C functions.

use core::ffi::c_char;

use flysch_ufs::{Clocks, DevicePower, DmeSetting, Event, Phase, PlatformError, ReferenceClock};
use flysch_wire::ufs::uic::UicAttribute;

use crate::values;

/// Longest name of a bring-up step, including the zero at its end.
const NAME_BYTES: usize = 64;

/// The functions in the form that the driver uses.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) values::Platform);

// SAFETY: a controller belongs to one thread at a time, and its platform with it: that is the
// contract of every function of this library.
unsafe impl Send for Told {}

/// An event for C: its kind, name and number.
fn told(event: Event) -> (values::Event, &'static str, u32) {
    match event {
        Event::Step(name) => (values::Event::Step, name, 0),
        Event::LinkStartup => (values::Event::LinkStartup, "link start-up", 0),
        Event::PowerMode(link) => {
            let value = u32::from(link.gear) | u32::from(link.high_speed) << 8;
            (values::Event::PowerMode, "power mode", value)
        }
        Event::HibernateEnter => (values::Event::HibernateEnter, "hibernate enter", 0),
        Event::HibernateExit => (values::Event::HibernateExit, "hibernate exit", 0),
        Event::DevicePower(power) => {
            let value = match power {
                DevicePower::Active => 1,
                DevicePower::Sleep => 2,
                DevicePower::PowerDown => 3,
                DevicePower::DeepSleep => 4,
            };
            (values::Event::DevicePower, "device power", value)
        }
        Event::Shutdown => (values::Event::Shutdown, "shutdown", 0),
        _ => (values::Event::Other, "other", 0),
    }
}

/// A name with a terminating zero.
fn named(name: &str) -> [c_char; NAME_BYTES] {
    let mut text = [0; NAME_BYTES];
    let bytes = name.bytes().take(NAME_BYTES - 1);
    text.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as c_char);
    text
}

impl flysch_ufs::Platform for Told {
    fn notice(&mut self, event: Event, phase: Phase) -> Result<u32, PlatformError> {
        let Some(notice) = self.0.notice else { return Ok(0) };
        let (event, name, value) = told(event);
        let (name, after) = (named(name), phase == Phase::After);
        // SAFETY: the platform's function with its context; the name outlives the call.
        let answer = unsafe { notice(self.0.context, event, name.as_ptr(), value, after) };
        u32::try_from(answer).map_err(|_| PlatformError(answer.unsigned_abs() as u16))
    }

    fn setting(&mut self, event: Event, phase: Phase, n: usize) -> Option<DmeSetting> {
        let setting = self.0.setting?;
        let (event, _, _) = told(event);
        let mut given = values::DmeSetting { attribute: 0, selector: 0, peer: false, value: 0 };
        let (after, n) = (phase == Phase::After, u32::try_from(n).ok()?);
        // SAFETY: as in `notice`; `given` is valid for writing.
        let is_one = unsafe { setting(self.0.context, event, after, n, &raw mut given) };
        is_one.then(|| DmeSetting {
            attribute: UicAttribute::from(given.attribute),
            selector: given.selector,
            peer: given.peer,
            value: given.value,
        })
    }

    fn device_reset(&mut self, hold: bool) -> bool {
        // SAFETY: as in `notice`.
        self.0.device_reset.is_some_and(|reset| unsafe { reset(self.0.context, hold) })
    }

    fn clocks(&mut self, clocks: Clocks) {
        let Some(switch) = self.0.clocks else { return };
        let clocks = match clocks {
            Clocks::Off => values::Clocks::Off,
            Clocks::On => values::Clocks::On,
            Clocks::Slow => values::Clocks::Slow,
            Clocks::Fast => values::Clocks::Fast,
        };
        // SAFETY: as in `notice`.
        unsafe { switch(self.0.context, clocks) }
    }

    fn reference_clock(&self) -> Option<ReferenceClock> {
        match self.0.reference_clock {
            0 => Some(ReferenceClock::Mhz19_2),
            1 => Some(ReferenceClock::Mhz26),
            2 => Some(ReferenceClock::Mhz38_4),
            3 => Some(ReferenceClock::Mhz52),
            _ => None,
        }
    }
}
