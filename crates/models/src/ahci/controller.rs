//! The registers of the HBA, and its reset.

use flysch_wire::ata::registers::{
    self as reg, Bohc, Cap, Cap2, EmCtl, EmLoc, Ghc, LED_HEADER, LedMessage, PORTS_MAX, port_base,
};

use super::config::{Config, Switching};
use super::{Ahci, Event};

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
}

impl Ahci {
    #[inline]
    pub(super) fn read_register(&mut self, offset: u32) -> u32 {
        let r = &self.registers;
        if r.is_unplugged {
            return u32::MAX;
        }
        match offset {
            reg::CAP => r.cap.into_bits(),
            reg::GHC => r.ghc.into_bits(),
            reg::IS => r.is,
            reg::PI => r.ports,
            reg::VS => VERSION,
            reg::CAP2 => r.cap2.into_bits(),
            reg::BOHC => r.bohc.into_bits(),
            reg::EM_LOC => {
                EmLoc::new().with_ofst((EM_BUFFER / 4) as u16).with_sz(EM_DWORDS as u16).into_bits()
            }
            reg::EM_CTL => r.em.into_bits(),
            EM_BUFFER.. => message_at(offset).map_or(0, |at| r.message[at]),
            reg::PORTS.. => match self.port_of(offset) {
                Some((port, register)) => self.read_port(port, register),
                None => 0,
            },
            _ => 0,
        }
    }

    fn port_of(&self, offset: u32) -> Option<(u8, u32)> {
        let offset = offset.checked_sub(reg::PORTS)?;
        let port = offset / reg::PORT_LENGTH;
        ((port as usize) < self.ports.len()).then_some((port as u8, offset % reg::PORT_LENGTH))
    }

    #[inline]
    pub(super) fn write_register(&mut self, offset: u32, value: u32) {
        if self.registers.is_unplugged {
            return;
        }
        match offset {
            reg::GHC => self.control_hba(Ghc::from_bits(value)),
            reg::IS => {
                self.registers.is &= !value;
                // What a port still has to tell stays.
                for (n, port) in self.ports.iter().enumerate() {
                    if port.is_pending() {
                        self.registers.is |= 1 << n;
                    }
                }
            }
            reg::BOHC => self.hand_off(Bohc::from_bits(value)),
            reg::EM_CTL => self.control_enclosure(EmCtl::from_bits(value)),
            EM_BUFFER.. => {
                if let Some(at) = message_at(offset)
                    && !self.registers.em.tm()
                {
                    self.registers.message[at] = value;
                }
            }
            reg::PORTS.. => {
                if let Some((port, register)) = self.port_of(offset)
                    && !self.registers.ghc.hr()
                {
                    self.write_port(port, register, value);
                }
            }
            _ => {}
        }
    }

    /// EM_CTL is written: a message is sent, or what was under way is forgotten.
    fn control_enclosure(&mut self, new: EmCtl) {
        let r = &mut self.registers;
        if new.rst() {
            r.message = [0; EM_DWORDS];
            r.leds = [LedMessage::new(); PORTS_MAX];
        } else if new.tm() && !r.em.tm() {
            r.em.set_tm(true);
            self.after(MESSAGE_NS, Event::Message);
        }
    }

    /// What the LEDs of a port show.
    pub fn leds(&self, port: u8) -> LedMessage {
        self.registers.leds.get(usize::from(port)).copied().unwrap_or_default()
    }

    fn hand_off(&mut self, new: Bohc) {
        let r = &mut self.registers;
        if new.oos() && !r.bohc.oos() {
            r.bohc.set_oos(true);
            if r.bohc.bos() {
                r.bohc.set_bb(true);
                self.after(BIOS_NS, Event::Bios);
            }
        }
    }

    fn control_hba(&mut self, new: Ghc) {
        let r = &mut self.registers;
        if new.hr() && !r.ghc.hr() {
            r.ghc = Ghc::new().with_hr(true).with_ae(true);
            r.is = 0;
            self.reset_ports();
            return self.after(RESET_NS, Event::HbaReset);
        }
        // AE is read only where there is nothing but AHCI (CAP.SAM).
        r.ghc = r.ghc.with_ie(new.ie());
    }

    pub(super) fn reset_ports(&mut self) {
        let now = self.now.nanos();
        for port in 0..self.ports.len() as u8 {
            self.ports[usize::from(port)].reset();
            self.multiplier_down(port);
            for seat in self.seats(port).into_iter().flatten() {
                if let Some(device) = self.device_mut(seat) {
                    device.link_is_reset(now);
                }
                self.admit_writes(seat);
            }
        }
    }

    pub(super) fn hba_is_reset(&mut self) {
        self.registers.ghc.set_hr(false);
        self.power_on_ports();
    }

    /// Without staggered spin-up the links come up by themselves.
    pub(super) fn power_on_ports(&mut self) {
        let staggered = self.registers.cap.sss();
        for port in 0..self.ports.len() as u8 {
            let at = &mut self.ports[usize::from(port)];
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
