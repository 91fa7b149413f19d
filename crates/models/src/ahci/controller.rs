//! The registers of the HBA, and its reset.

use flysch_api::machine::Instant;
use flysch_wire::ata::registers::{
    self as reg, Bohc, Cap, Cap2, EmCtl, EmLoc, Ghc, LED_HEADER, LedMessage, PORTS_MAX, port_base,
};

use super::Ahci;
use super::clock::{Clock, Event};
use super::config::{Config, Switching};

/// AHCI 1.3.1.
const VERSION: u32 = 0x0001_0301;
/// What a reset takes, nanoseconds (AHCI 10.4.3 allows a second).
const RESET_NS: u64 = 500_000;
/// Where the buffer of enclosure management is, behind the registers of all ports there can be, and
/// its dwords.
const EM_BUFFER: u32 = port_base(PORTS_MAX as u8);
const EM_DWORDS: usize = 2;
/// What it takes to send a message, nanoseconds (assumed).
const MESSAGE_NS: u64 = 20_000;
/// How long the BIOS takes to give the HBA up, nanoseconds.
const BIOS_NS: u64 = 100_000_000;

/// LED messages, which are only sent.
const EM: EmCtl = EmCtl::new().with_led(true).with_xmt(true);

/// Register values.
#[derive(Debug)]
pub(super) struct Registers {
    pub(super) cap: Cap,
    cap2: Cap2,
    ghc: Ghc,
    pub(super) is: u32,
    ports: u32,
    bohc: Bohc,
    em: EmCtl,
    message: [u32; EM_DWORDS],
    /// What the LEDs of each port show.
    leds: [LedMessage; PORTS_MAX],
    /// The HBA was pulled out of its slot.
    pub(super) is_unplugged: bool,
}

impl Registers {
    pub(super) fn new(config: &Config) -> Self {
        let count = config.ports.len() as u8;
        let cap = Cap::new()
            .with_np(count - 1)
            .with_ncs(config.slots - 1)
            .with_psc(true)
            .with_ssc(true)
            .with_pmd(true)
            .with_sam(true)
            .with_iss(3)
            .with_sclo(config.override_list)
            .with_salp(true)
            .with_sss(config.staggered)
            .with_sncq(true)
            .with_ems(true)
            .with_spm(config.switching != Switching::No)
            .with_ssntf(config.switching != Switching::No)
            .with_fbss(config.switching == Switching::Fis)
            .with_s64a(config.wide);
        let cap2 = Cap2::new().with_boh(config.bios).with_sds(true).with_sadm(true);
        Self {
            cap,
            cap2,
            ghc: Ghc::new().with_ae(true),
            is: 0,
            ports: u32::MAX >> (32 - u32::from(count)),
            bohc: Bohc::new().with_bos(config.bios),
            em: EM,
            message: [0; EM_DWORDS],
            leds: [LedMessage::new(); PORTS_MAX],
            is_unplugged: false,
        }
    }

    /// As after power-on.
    pub(super) fn power_on(&mut self) {
        (self.ghc, self.is) = (Ghc::new().with_ae(true), 0);
        self.bohc = Bohc::new().with_bos(self.cap2.boh());
    }

    #[inline]
    pub(super) fn is_asserted(&self) -> bool {
        self.ghc.ie() && self.is != 0 && !self.is_unplugged
    }

    /// Command slots of a port, a bit each.
    pub(super) fn slots(&self) -> u32 {
        u32::MAX >> (31 - u32::from(self.cap.ncs()))
    }

    /// A message has been sent: the LEDs of a port show something else.
    pub(super) fn message_sent(&mut self) {
        self.em.set_tm(false);
        let [header, leds] = self.message;
        let message = LedMessage::from_bits(leds);
        if header == LED_HEADER && self.ports >> message.port() & 1 != 0 {
            self.leds[usize::from(message.port())] = message;
        }
    }

    pub(super) fn bios_gives_up(&mut self) {
        self.bohc = self.bohc.with_bos(false).with_bb(false);
    }

    fn read(&self, offset: u32) -> u32 {
        match offset {
            reg::CAP => self.cap.into_bits(),
            reg::GHC => self.ghc.into_bits(),
            reg::IS => self.is,
            reg::PI => self.ports,
            reg::VS => VERSION,
            reg::CAP2 => self.cap2.into_bits(),
            reg::BOHC => self.bohc.into_bits(),
            reg::EM_LOC => {
                EmLoc::new().with_ofst((EM_BUFFER / 4) as u16).with_sz(EM_DWORDS as u16).into_bits()
            }
            reg::EM_CTL => self.em.into_bits(),
            EM_BUFFER.. => message_at(offset).map_or(0, |at| self.message[at]),
            _ => 0,
        }
    }

    /// A dword of a message to the enclosure is written.
    fn write_message(&mut self, offset: u32, value: u32) {
        if let Some(at) = message_at(offset)
            && !self.em.tm()
        {
            self.message[at] = value;
        }
    }

    /// EM_CTL is written: a message is sent, or what was under way is forgotten.
    fn control_enclosure(&mut self, new: EmCtl, clock: &mut Clock) {
        if new.rst() {
            self.message = [0; EM_DWORDS];
            self.leds = [LedMessage::new(); PORTS_MAX];
        } else if new.tm() && !self.em.tm() {
            self.em.set_tm(true);
            clock.after(MESSAGE_NS, Event::Message);
        }
    }

    /// BOHC is written: the operating system wants the HBA.
    fn hand_off(&mut self, new: Bohc, clock: &mut Clock) {
        if new.oos() && !self.bohc.oos() {
            self.bohc.set_oos(true);
            if self.bohc.bos() {
                self.bohc.set_bb(true);
                clock.after(BIOS_NS, Event::Bios);
            }
        }
    }
}

/// The port a register is of, and which register of it.
fn port_of(offset: u32, ports: u8) -> Option<(u8, u32)> {
    let offset = offset.checked_sub(reg::PORTS)?;
    let port = offset / reg::PORT_LENGTH;
    (port < ports.into()).then_some((port as u8, offset % reg::PORT_LENGTH))
}

impl Ahci {
    /// Reads the register at `offset` (4-byte aligned) at `now`.
    pub fn read32(&mut self, offset: u32, now: Instant) -> u32 {
        self.advance(now);
        if self.hba.registers.is_unplugged {
            return u32::MAX;
        }
        match port_of(offset, self.hba.ports.count()) {
            Some((port, register)) => {
                let (cap, device) = (self.hba.registers.cap, self.devices.get(port.into()));
                self.hba.ports[port].read(register, cap, device, self.clock.nanos())
            }
            None => self.hba.registers.read(offset),
        }
    }

    /// Writes the register at `offset` (4-byte aligned) at `now`.
    #[inline]
    pub fn write32(&mut self, offset: u32, value: u32, now: Instant) {
        self.advance(now);
        let r = &mut self.hba.registers;
        if r.is_unplugged {
            return;
        }
        match offset {
            reg::GHC => self.control_hba(Ghc::from_bits(value)),
            // What a port still has to tell stays.
            reg::IS => r.is = r.is & !value | self.hba.ports.pending(),
            reg::BOHC => r.hand_off(Bohc::from_bits(value), &mut self.clock),
            reg::EM_CTL => r.control_enclosure(EmCtl::from_bits(value), &mut self.clock),
            EM_BUFFER.. => r.write_message(offset, value),
            reg::PORTS.. => {
                if let Some((port, register)) = port_of(offset, self.hba.ports.count())
                    && !r.ghc.hr()
                {
                    self.write_port(port, register, value);
                }
            }
            _ => {}
        }
    }

    /// What the LEDs of a port show.
    pub fn leds(&self, port: u8) -> LedMessage {
        self.hba.registers.leds.get(usize::from(port)).copied().unwrap_or_default()
    }

    fn control_hba(&mut self, new: Ghc) {
        let r = &mut self.hba.registers;
        if new.hr() && !r.ghc.hr() {
            r.ghc = Ghc::new().with_hr(true).with_ae(true);
            r.is = 0;
            self.reset_ports();
            return self.clock.after(RESET_NS, Event::HbaReset);
        }
        // AE is read only where there is nothing but AHCI (CAP.SAM).
        r.ghc = r.ghc.with_ie(new.ie());
    }

    pub(super) fn reset_ports(&mut self) {
        let now = self.clock.nanos();
        for port in 0..self.hba.ports.count() {
            self.hba.ports[port].reset();
            self.devices.link_down(port, now);
        }
    }

    pub(super) fn hba_is_reset(&mut self) {
        self.hba.registers.ghc.set_hr(false);
        self.power_on_ports();
    }

    /// Without staggered spin-up the links come up by themselves.
    pub(super) fn power_on_ports(&mut self) {
        let staggered = self.hba.registers.cap.sss();
        for port in 0..self.hba.ports.count() {
            let at = &mut self.hba.ports[port];
            at.cmd = at.cmd.with_pod(true).with_sud(!staggered);
            self.begin_link(port);
        }
    }
}

/// The dword of the message buffer at `offset` of the window.
fn message_at(offset: u32) -> Option<usize> {
    let at = offset.checked_sub(EM_BUFFER)? as usize / 4;
    (at < EM_DWORDS).then_some(at)
}
