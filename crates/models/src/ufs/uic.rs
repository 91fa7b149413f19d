//! UIC commands: attributes, link start-up, power mode changes, hibernate.

use flysch_wire::ufs::registers::{Ahit, Interrupts, PowerModeStatus};
use flysch_wire::ufs::uic::{UicArgument1, UicArgument2, UicAttribute, UicOpcode, UicResult};

use super::agenda::Event;
use super::controller::Controller;
use super::exchange::Exchange;
use super::link::LinkState;
use super::pair::Pair;
use super::parameters::Reset;
use super::profile::level;

/// Durations, nanoseconds: the order of magnitude of real parts.
const LOCAL_NS: u64 = 2_000;
const PEER_NS: u64 = 15_000;
const LINK_STARTUP_NS: u64 = 1_500_000;
const POWER_MODE_NS: u64 = 800_000;
const HIBERNATE_ENTER_NS: u64 = 100_000;
const HIBERNATE_EXIT_NS: u64 = 200_000;

impl Controller {
    /// UICCMD is written.
    pub(super) fn start_uic(&mut self, value: u32, x: &mut Exchange) {
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
        x.agenda.after(ns, Event::Uic { epoch: x.agenda.epoch() });
    }

    fn opcode(&self) -> UicOpcode {
        UicOpcode::from_bits(self.registers.uic_command as u8)
    }

    fn attribute(&self) -> (UicAttribute, u16) {
        let argument = UicArgument1::from_bits(self.registers.uic_arguments[0]);
        (argument.mib_attribute(), argument.gen_selector_index())
    }

    fn get_attribute(&mut self, peer: bool, x: &Exchange) -> Result<(), UicResult> {
        let (id, selector) = self.attribute();
        self.registers.uic_arguments[2] = x.link.get(peer, id, selector)?;
        Ok(())
    }

    fn set_attribute(&mut self, peer: bool, x: &mut Exchange) -> Result<(), UicResult> {
        let (id, selector) = self.attribute();
        let value = self.registers.uic_arguments[2];
        x.link.set(peer, id, selector, value)?;
        if id == UicAttribute::PaPwrmode && !peer {
            x.agenda.after(POWER_MODE_NS, Event::LinkChanged { epoch: x.agenda.epoch() });
        }
        Ok(())
    }

    /// Ends the UIC command in progress.
    fn end_uic(&mut self, result: Result<(), UicResult>) {
        let code = result.err().unwrap_or(UicResult::Success);
        let argument = UicArgument2::from_bits(self.registers.uic_arguments[1]).with_result(code);
        self.registers.uic_arguments[1] = argument.into_bits();
        self.registers.hcs.set_ucrdy(true);
        self.registers.raise(Interrupts::new().with_uccs(true));
    }
}

fn begin_hibernate(from: LinkState, ns: u64, x: &mut Exchange) -> Result<(), UicResult> {
    if x.link.state != from {
        return Err(UicResult::InvalidMibAttribute);
    }
    x.agenda.after(ns, Event::LinkChanged { epoch: x.agenda.epoch() });
    Ok(())
}

impl Pair {
    /// Carries out the UIC command in progress and ends it.
    pub(super) fn finish_uic(&mut self) {
        let (controller, x) = (&mut self.controller, &mut self.exchange);
        let result = match controller.opcode() {
            UicOpcode::DmeGet => controller.get_attribute(false, x),
            UicOpcode::DmePeerGet => controller.get_attribute(true, x),
            UicOpcode::DmeSet => controller.set_attribute(false, x),
            UicOpcode::DmePeerSet => controller.set_attribute(true, x),
            UicOpcode::DmeLinkstartup => self.start_link(),
            UicOpcode::DmeHibernateEnter => begin_hibernate(LinkState::Up, HIBERNATE_ENTER_NS, x),
            UicOpcode::DmeHibernateExit => {
                begin_hibernate(LinkState::Hibernated, HIBERNATE_EXIT_NS, x)
            }
            UicOpcode::DmePoweron | UicOpcode::DmeEnable => Ok(()),
            UicOpcode::DmePoweroff | UicOpcode::DmeReset => {
                x.link.reset();
                controller.link_is_down(x);
                Ok(())
            }
            UicOpcode::DmeEndpointreset => {
                self.reset_device(Reset::PowerOn);
                Ok(())
            }
            // A control command that is not supported: plain failure.
            UicOpcode::DmeTestMode | UicOpcode::Unknown(_) => Err(UicResult::InvalidMibAttribute),
        };
        self.controller.end_uic(result);
    }

    fn start_link(&mut self) -> Result<(), UicResult> {
        if !self.device.readiness.is_powered() {
            return Err(UicResult::InvalidMibAttribute);
        }
        self.exchange.link.start_up();
        self.device.backend.media.set_link_rate(self.exchange.link.rate);
        self.reset_device(Reset::Warm);
        let registers = &mut self.controller.registers;
        let hcs = registers.hcs.with_dp(true).with_utrlrdy(true).with_utmrlrdy(true);
        registers.hcs = hcs;
        Ok(())
    }

    /// The change that the last UIC command began is complete.
    pub(super) fn link_changed(&mut self) {
        let causes = Interrupts::new();
        let (status, cause) = match self.controller.opcode() {
            UicOpcode::DmeHibernateEnter => {
                self.exchange.link.state = LinkState::Hibernated;
                self.device.program(&mut self.exchange);
                (PowerModeStatus::Local, causes.with_uhes(true))
            }
            UicOpcode::DmeHibernateExit => {
                self.exchange.link.state = LinkState::Up;
                (PowerModeStatus::Local, causes.with_uhxs(true))
            }
            _ => {
                let value = self.controller.registers.uic_arguments[2];
                let status = self.exchange.link.change_power_mode(value);
                self.device.backend.media.set_link_rate(self.exchange.link.rate);
                (status, causes.with_upms(true))
            }
        };
        self.device.meter_state(&self.exchange);
        self.controller.registers.hcs.set_upmcrs(status);
        self.controller.registers.raise(cause);
        if self.exchange.link.state == LinkState::Up {
            self.fetch_slots();
            self.fetch_queues();
        }
    }

    /// AHIT is written.
    pub(super) fn set_auto_hibern8(&mut self, ahit: Ahit) {
        self.controller.registers.ahit = ahit;
        let times = (u64::from(ahit.idle_us()) * 1000, HIBERNATE_EXIT_NS);
        self.device.backend.media.set_auto_hibern8(times, level::HIBERNATE);
        self.device.program(&mut self.exchange);
    }
}
