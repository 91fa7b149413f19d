//! UIC commands: attributes, link start-up, power mode changes, hibernate.

use flysch_wire::ufs::registers::{Ahit, Interrupts, PowerModeStatus};
use flysch_wire::ufs::uic::{UicArgument1, UicArgument2, UicAttribute, UicOpcode, UicResult};

use super::link::LinkState;
use super::parameters::Reset;
use super::profile::level;
use super::{Event, Ufs};
use flysch_wire::ufs::query::CurrentPowerMode;

/// How long things take, nanoseconds: the order of magnitude of real parts.
const LOCAL_NS: u64 = 2_000;
const PEER_NS: u64 = 15_000;
const LINK_STARTUP_NS: u64 = 1_500_000;
const POWER_MODE_NS: u64 = 800_000;
const HIBERNATE_ENTER_NS: u64 = 100_000;
const HIBERNATE_EXIT_NS: u64 = 200_000;

impl Ufs {
    /// UICCMD is written.
    pub(super) fn start_uic(&mut self, value: u32) {
        if !self.registers.hcs.ucrdy() {
            return;
        }
        self.registers.uic_command = value & 0xFF;
        self.registers.hcs.set_ucrdy(false);
        let ns = match UicOpcode::from_bits(value as u8) {
            UicOpcode::DmeLinkstartup => LINK_STARTUP_NS,
            UicOpcode::DmePeerGet | UicOpcode::DmePeerSet => PEER_NS,
            _ => LOCAL_NS,
        };
        self.after(ns, Event::Uic { epoch: self.epoch });
    }

    /// The UIC command under way is carried out and ends.
    pub(super) fn finish_uic(&mut self) {
        let opcode = UicOpcode::from_bits(self.registers.uic_command as u8);
        let result = match opcode {
            UicOpcode::DmeGet => self.get_attribute(false),
            UicOpcode::DmePeerGet => self.get_attribute(true),
            UicOpcode::DmeSet => self.set_attribute(false),
            UicOpcode::DmePeerSet => self.set_attribute(true),
            UicOpcode::DmeLinkstartup => self.start_link(),
            UicOpcode::DmeHibernateEnter => self.begin_hibernate(LinkState::Up, HIBERNATE_ENTER_NS),
            UicOpcode::DmeHibernateExit => {
                self.begin_hibernate(LinkState::Hibernated, HIBERNATE_EXIT_NS)
            }
            UicOpcode::DmePoweron | UicOpcode::DmeEnable => Ok(()),
            UicOpcode::DmePoweroff | UicOpcode::DmeReset => {
                self.link.reset();
                self.link_is_down();
                Ok(())
            }
            UicOpcode::DmeEndpointreset => {
                self.reset_device(Reset::PowerOn);
                Ok(())
            }
            // A control command we do not have: plain failure.
            UicOpcode::DmeTestMode | UicOpcode::Unknown(_) => Err(UicResult::InvalidMibAttribute),
        };
        let code = result.err().unwrap_or(UicResult::Success);
        let argument = UicArgument2::from_bits(self.registers.uic_arguments[1]).with_result(code);
        self.registers.uic_arguments[1] = argument.into_bits();
        self.registers.hcs.set_ucrdy(true);
        self.registers.raise(Interrupts::new().with_uccs(true));
    }

    fn attribute(&self) -> (UicAttribute, u16) {
        let argument = UicArgument1::from_bits(self.registers.uic_arguments[0]);
        (argument.mib_attribute(), argument.gen_selector_index())
    }

    fn get_attribute(&mut self, peer: bool) -> Result<(), UicResult> {
        let (id, selector) = self.attribute();
        self.registers.uic_arguments[2] = self.link.get(peer, id, selector)?;
        Ok(())
    }

    fn set_attribute(&mut self, peer: bool) -> Result<(), UicResult> {
        let (id, selector) = self.attribute();
        let value = self.registers.uic_arguments[2];
        self.link.set(peer, id, selector, value)?;
        if id == UicAttribute::PaPwrmode && !peer {
            self.after(POWER_MODE_NS, Event::LinkChanged { epoch: self.epoch });
        }
        Ok(())
    }

    fn start_link(&mut self) -> Result<(), UicResult> {
        if !self.device.is_powered() {
            return Err(UicResult::InvalidMibAttribute);
        }
        self.link.start_up();
        self.media.set_link_rate(self.link.rate);
        self.reset_device(Reset::Warm);
        let hcs = self.registers.hcs.with_dp(true).with_utrlrdy(true).with_utmrlrdy(true);
        self.registers.hcs = hcs;
        Ok(())
    }

    fn begin_hibernate(&mut self, from: LinkState, ns: u64) -> Result<(), UicResult> {
        if self.link.state != from {
            return Err(UicResult::InvalidMibAttribute);
        }
        self.after(ns, Event::LinkChanged { epoch: self.epoch });
        Ok(())
    }

    /// The change that the last UIC command began is complete.
    pub(super) fn link_changed(&mut self) {
        let causes = Interrupts::new();
        let (status, cause) = match UicOpcode::from_bits(self.registers.uic_command as u8) {
            UicOpcode::DmeHibernateEnter => {
                self.link.state = LinkState::Hibernated;
                self.program();
                (PowerModeStatus::Local, causes.with_uhes(true))
            }
            UicOpcode::DmeHibernateExit => {
                self.link.state = LinkState::Up;
                (PowerModeStatus::Local, causes.with_uhxs(true))
            }
            _ => {
                let status = self.link.change_power_mode(self.registers.uic_arguments[2]);
                self.media.set_link_rate(self.link.rate);
                (status, causes.with_upms(true))
            }
        };
        self.meter_state();
        self.registers.hcs.set_upmcrs(status);
        self.registers.raise(cause);
        if self.link.state == LinkState::Up {
            self.fetch_slots();
            self.fetch_queues();
        }
    }

    /// The link is gone: no device any more until it starts up again.
    pub(super) fn link_is_down(&mut self) {
        self.link.lose();
        let hcs = self.registers.hcs.with_dp(false).with_utrlrdy(false).with_utmrlrdy(false);
        self.registers.hcs = hcs;
    }

    /// Whether the link hibernates now, on command or by itself.
    pub(super) fn is_hibernated(&self) -> bool {
        let by_itself = self.tasks.held == 0 && self.media.is_auto_hibernated(self.now.nanos());
        self.link.state == LinkState::Hibernated || by_itself
    }

    /// Tells the meter what state device and link are in.
    pub(super) fn meter_state(&mut self) {
        let level = match self.device.power.mode() {
            _ if !self.device.is_powered() => level::OFF,
            CurrentPowerMode::Sleep => level::SLEEP,
            CurrentPowerMode::PowerDown => level::POWER_DOWN,
            CurrentPowerMode::DeepSleep => level::DEEP_SLEEP,
            _ if self.link.state == LinkState::Hibernated => level::HIBERNATE,
            _ => level::ACTIVE,
        };
        self.media.meter_mut().enter(level, self.now.nanos());
    }

    /// AHIT is written.
    pub(super) fn set_auto_hibern8(&mut self, ahit: Ahit) {
        self.registers.ahit = ahit;
        let times = (u64::from(ahit.idle_us()) * 1000, HIBERNATE_EXIT_NS);
        self.media.set_auto_hibern8(times, level::HIBERNATE);
        self.program();
    }
}
