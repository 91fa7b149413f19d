//! A port multiplier (SATA 16): its registers, the links of its device ports, and the one link to
//! the host that they share.
//!
//! Theory. Each device port has a link of its own, which its PSCR status and control registers
//! govern as PxSSTS and PxSCTL do that of a port of the HBA. After COMRESET from the host the
//! first device port works and the others are off, so that a host that knows nothing of
//! multipliers finds one device; commands to the control port are for the multiplier itself. A
//! device that came holds back its signature until DIAG.X of its PSCR SError is cleared. What
//! shows in GSCR 32 for the first time is told by a notification, if that is on.

use alloc::vec::Vec;

use flysch_wire::ata::multiplier::{
    Access, CONTROL_PORT, error, feature, gscr, pscr, registers_of,
};
use flysch_wire::ata::registers::{Sctl, Ssts, det, icc, serror, status};
use flysch_wire::ata::{D2h, H2d};

use super::Ahci;
use super::clock::Event;
use super::config::MultiplierConfig;
use super::flow::Good;
use super::list::{Fail, Seat};
use super::port::{LINK_NS, READY};
use crate::faults::Kind;

/// What the multiplier takes to answer a command or a soft reset, nanoseconds (assumed).
pub(super) const ANSWER_NS: u64 = 10_000;
/// Bits of PSCR SError that show in GSCR 32 after a reset (SATA 16.4.1.4): all errors, and a
/// device that came.
const ERROR_ENABLE: u32 = 0xFFFF | serror::EXCHANGED;
/// The vendor whose drivers ask for GSCR 129.
const SILICON_IMAGE: u16 = 0x1095;
/// LBA of the signature.
const SIGNATURE: u64 = 0x96_6901;

/// A device port.
#[derive(Debug)]
pub(super) struct Fan {
    /// The device at it.
    pub(super) seat: Option<Seat>,
    /// Speed of its link, 0 while there is none.
    speed: u8,
    sctl: Sctl,
    pub(super) serr: u32,
    /// Counts resets of the link; an event of an earlier life is stale.
    pub(super) epoch: u32,
    /// A signature that waits until DIAG.X is cleared.
    held: Option<D2h>,
}

/// A multiplier.
#[derive(Debug)]
pub(super) struct Multiplier {
    product: u32,
    revision: u32,
    generation: u8,
    /// It is pulled off the link to the host.
    pub(super) is_detached: bool,
    /// Nobody has asked for more than the first device since the link came up.
    is_plain: bool,
    error_enable: u32,
    features: u32,
    /// GSCR 129, where its maker has that.
    policy: Option<u32>,
    /// Bits of GSCR 32 that were told.
    told: u32,
    /// Speed of the link to the host, and until when that is taken.
    pub(super) speed: u8,
    pub(super) taken_until: u64,
    pub(super) fans: Vec<Fan>,
}

impl Multiplier {
    pub(super) fn new(config: &MultiplierConfig, seats: Vec<Option<Seat>>) -> Self {
        let fan = |seat| Fan { seat, speed: 0, sctl: Sctl::new(), serr: 0, epoch: 0, held: None };
        let mut this = Self {
            product: config.product,
            revision: config.revision,
            generation: config.generation,
            is_detached: false,
            is_plain: true,
            error_enable: 0,
            features: 0,
            policy: None,
            told: 0,
            speed: 0,
            taken_until: 0,
            fans: seats.into_iter().map(fan).collect(),
        };
        this.reset();
        this
    }

    /// As after COMRESET from the host.
    fn reset(&mut self) {
        (self.is_plain, self.error_enable, self.features, self.told) = (true, ERROR_ENABLE, 0, 0);
        self.policy = (self.product as u16 == SILICON_IMAGE).then_some(1);
        for (n, fan) in self.fans.iter_mut().enumerate() {
            fan.epoch = fan.epoch.wrapping_add(1);
            (fan.speed, fan.serr, fan.held) = (0, 0, None);
            fan.sctl = Sctl::new().with_det(if n == 0 { 0 } else { det::OFF });
        }
    }

    /// The link to the host is gone.
    pub(super) fn link_down(&mut self) {
        self.reset();
        self.speed = 0;
    }

    /// Whether it is at its link to the host.
    pub(super) const fn is_there(&self) -> bool {
        !self.is_detached
    }

    /// The device at a port whose link works.
    pub(super) fn reached(&self, fan: u8) -> Option<Seat> {
        self.fans.get(usize::from(fan)).filter(|fan| fan.speed != 0)?.seat
    }

    /// GSCR 32.
    fn errors(&self) -> u32 {
        let shows = |(n, fan): (usize, &Fan)| u32::from(fan.serr & self.error_enable != 0) << n;
        self.fans.iter().enumerate().map(shows).sum()
    }

    /// Whether there is something new to tell, and it is to be told; it is told once.
    fn has_news(&mut self) -> bool {
        let errors = self.errors();
        let news = errors & !self.told;
        let tells = self.features & feature::NOTIFICATION != 0 && self.speed != 0 && news != 0;
        if tells {
            self.told = errors;
        }
        tells
    }

    fn read(&self, access: Access) -> Result<u32, u8> {
        if access.port == CONTROL_PORT {
            return match access.register {
                gscr::PRODUCT => Ok(self.product),
                gscr::REVISION => Ok(self.revision),
                gscr::PORTS => Ok(self.fans.len() as u32),
                gscr::ERROR => Ok(self.errors()),
                gscr::ERROR_ENABLE => Ok(self.error_enable),
                gscr::FEATURES => Ok(feature::NOTIFICATION),
                gscr::FEATURES_ENABLE => Ok(self.features),
                gscr::SIL_POLICY => self.policy.ok_or(error::REGISTER),
                _ => Err(error::REGISTER),
            };
        }
        let fan = self.fans.get(usize::from(access.port)).ok_or(error::PORT)?;
        match access.register {
            pscr::STATUS if fan.sctl.det() == det::OFF => {
                Ok(Ssts::new().with_det(det::OFF).into_bits())
            }
            pscr::STATUS if fan.speed == 0 => Ok(0),
            pscr::STATUS => {
                let up = Ssts::new().with_det(det::READY).with_spd(fan.speed);
                Ok(up.with_ipm(icc::ACTIVE).into_bits())
            }
            pscr::ERROR => Ok(fan.serr),
            pscr::CONTROL => Ok(fan.sctl.into_bits()),
            _ => Err(error::REGISTER),
        }
    }
}

impl Ahci {
    /// The link to the host came up with at most `most`; tells its speed. The first device's link
    /// follows.
    pub(super) fn multiplier_up(&mut self, port: u8, most: u8) -> Option<u8> {
        let multiplier = self.devices.multiplier_mut(port)?;
        multiplier.speed = multiplier.generation.min(most);
        let speed = multiplier.speed;
        self.begin_fan(port, 0);
        Some(speed)
    }

    /// The link of a device port begins to come up, if somebody is at the other end.
    pub(super) fn begin_fan(&mut self, port: u8, fan: u8) {
        let Some(multiplier) = self.devices.multiplier(port) else { return };
        let Some(at) = multiplier.fans.get(usize::from(fan)) else { return };
        let (epoch, seat) = (at.epoch, at.seat);
        let asked = multiplier.speed != 0 && at.sctl.det() == 0;
        let answers = seat.and_then(|seat| self.devices.get(seat)).is_some_and(|d| d.is_there());
        let deaf = asked
            && answers
            && self.faults.is_active()
            && self.faults.fires(Kind::Deaf, self.clock.now(), detail(port, fan));
        if asked && answers && !deaf && !self.hba.registers.is_unplugged {
            self.clock.after(LINK_NS, Event::FanLink { port, fan, epoch });
        }
    }

    /// The link of a device port is up: the device gets ready.
    pub(super) fn fan_up(&mut self, port: u8, fan: u8) {
        let Some(multiplier) = self.devices.multiplier(port) else { return };
        let (generation, is_plain) = (multiplier.generation, multiplier.is_plain);
        let Some(at) = multiplier.fans.get(usize::from(fan)) else { return };
        let (epoch, seat) = (at.epoch, at.seat);
        let limit = if at.sctl.spd() == 0 { generation } else { at.sctl.spd().min(generation) };
        let Some(device) = seat.and_then(|seat| self.devices.get_mut(seat)) else { return };
        let (speed, ready_ns) = (device.link_up(limit), device.ready_ns);
        if let Some(at) = self.devices.fan_mut(port, fan) {
            at.speed = speed;
            if !is_plain {
                at.serr |= serror::EXCHANGED | serror::PHYRDY;
            }
        }
        self.notify(port);
        let stays_busy = self.faults.is_active()
            && self.faults.fires(Kind::BusyStuck, self.clock.now(), detail(port, fan));
        if !stays_busy {
            self.clock.after(ready_ns, Event::FanSignature { port, fan, epoch });
        }
    }

    /// The link of a device port is gone, and with it everything on its way.
    pub(super) fn fan_down(&mut self, port: u8, fan: u8) {
        let now = self.clock.nanos();
        let Some(at) = self.devices.fan_mut(port, fan) else { return };
        at.epoch = at.epoch.wrapping_add(1);
        (at.speed, at.held) = (0, None);
        let Some(seat) = at.seat else { return };
        // The HBA waits for them: nobody tells it.
        self.swallow(seat);
        if let Some(device) = self.devices.get_mut(seat) {
            device.link_is_reset(now);
        }
    }

    /// PhyRdy of a device port went by itself.
    pub(super) fn fan_lost(&mut self, port: u8, fan: u8) {
        self.fan_down(port, fan);
        if let Some(at) = self.devices.fan_mut(port, fan) {
            at.serr |= serror::PHYRDY;
        }
        self.notify(port);
    }

    /// A device, or the multiplier itself, has a signature to send.
    pub(super) fn fan_ready(&mut self, port: u8, fan: u8) {
        if fan == CONTROL_PORT {
            let fis = D2h {
                interrupt: true,
                status: READY,
                error: 1,
                lba: SIGNATURE,
                count: 1,
                device: 0,
            };
            return self.hba.hold(port, fan, fis);
        }
        let Some(seat) = self.devices.multiplier(port).and_then(|m| m.reached(fan)) else { return };
        let Some(device) = self.devices.get(seat) else { return };
        let fis = device.signature_fis();
        if let Some(at) = self.devices.fan_mut(port, fan) {
            at.held = Some(fis);
        }
        self.release_fan(port, fan);
    }

    /// A signature goes to the host once DIAG.X is clear.
    fn release_fan(&mut self, port: u8, fan: u8) {
        let Some(at) = self.devices.fan_mut(port, fan) else { return };
        if at.serr & serror::EXCHANGED == 0
            && let Some(fis) = at.held.take()
        {
            self.hba.hold(port, fan, fis);
        }
    }

    /// A soft reset of a device behind the multiplier, or of the multiplier, is asserted.
    pub(super) fn reset_behind(&mut self, port: u8, fan: u8) {
        let now = self.clock.nanos();
        if fan == CONTROL_PORT {
            if let Some(multiplier) = self.devices.multiplier_mut(port) {
                multiplier.is_plain = false;
            }
            return;
        }
        let Some(seat) = self.devices.multiplier(port).and_then(|m| m.reached(fan)) else { return };
        self.drop_tasks_of(seat);
        if let Some(at) = self.devices.fan_mut(port, fan) {
            at.epoch = at.epoch.wrapping_add(1);
            at.held = None;
        }
        if let Some(device) = self.devices.get_mut(seat) {
            device.link_is_reset(now);
        }
    }

    /// And it is released.
    pub(super) fn released_behind(&mut self, port: u8, fan: u8) {
        let Some(multiplier) = self.devices.multiplier(port) else { return };
        if fan == CONTROL_PORT {
            let epoch = self.hba.ports[port].epoch;
            return self.clock.after(ANSWER_NS, Event::Signature { port, epoch });
        }
        let Some(epoch) = multiplier.fans.get(usize::from(fan)).map(|fan| fan.epoch) else {
            return;
        };
        let Some(seat) = multiplier.reached(fan) else { return };
        let ready_ns = self.devices.get(seat).map_or(0, |device| device.ready_ns);
        self.clock.after(ready_ns, Event::FanSignature { port, fan, epoch });
    }

    /// READ or WRITE PORT MULTIPLIER.
    pub(super) fn access_multiplier(&mut self, port: u8, fis: &H2d) -> Result<Good, Fail> {
        let refused = |bits| Fail {
            status: READY | status::ERR,
            error: flysch_wire::ata::registers::error::ABRT | bits,
            lba: 0,
        };
        let access = Access::of(fis).ok_or(refused(0))?;
        let Some(multiplier) = self.devices.multiplier_mut(port) else { return Err(refused(0)) };
        multiplier.is_plain = false;
        match access.value {
            None => {
                let (lba, count) = registers_of(multiplier.read(access).map_err(refused)?);
                return Ok(Good { lba, count, ..Good::default() });
            }
            Some(value) if access.port == CONTROL_PORT => match access.register {
                gscr::ERROR_ENABLE => {
                    multiplier.error_enable = value;
                    self.notify(port);
                }
                gscr::FEATURES_ENABLE => {
                    multiplier.features = value & feature::NOTIFICATION;
                    self.notify(port);
                }
                gscr::SIL_POLICY if multiplier.policy.is_some() => multiplier.policy = Some(value),
                _ => return Err(refused(error::REGISTER)),
            },
            Some(_) if usize::from(access.port) >= multiplier.fans.len() => {
                return Err(refused(error::PORT));
            }
            Some(value) => self.write_fan(port, access, value).map_err(refused)?,
        }
        Ok(Good::default())
    }

    fn write_fan(&mut self, port: u8, access: Access, value: u32) -> Result<(), u8> {
        let Some(fan) = self.devices.fan_mut(port, access.port) else { return Err(error::PORT) };
        match access.register {
            pscr::ERROR => {
                fan.serr &= !value;
                if let Some(multiplier) = self.devices.multiplier_mut(port) {
                    // What is cleared and comes again is told again.
                    multiplier.told &= multiplier.errors();
                }
                self.release_fan(port, access.port);
            }
            pscr::CONTROL => {
                let new = Sctl::from_bits(value);
                let old = core::mem::replace(&mut fan.sctl, new);
                match (old.det(), new.det()) {
                    (1, 1) => {}
                    (_, 1) | (_, det::OFF) => self.fan_down(port, access.port),
                    (1, 0) | (det::OFF, 0) => self.begin_fan(port, access.port),
                    _ => {}
                }
            }
            _ => return Err(error::REGISTER),
        }
        Ok(())
    }

    /// Tells the host of device ports that have something new to tell.
    fn notify(&mut self, port: u8) {
        if self.devices.multiplier_mut(port).is_some_and(Multiplier::has_news) {
            self.hba.notify(port);
        }
    }
}
/// Data on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) bytes: u64,
    pub(super) to_device: bool,
}

/// How the log of faults names a device port.
fn detail(port: u8, fan: u8) -> u32 {
    u32::from(port) << 16 | u32::from(fan) << 8
}
