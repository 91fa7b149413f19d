//! The register file: the results of reads, the effects of writes, resets, shutdown.

use flysch_api::machine::Instant;
use flysch_wire::nvme::registers::{
    self as reg, Aqa, Cap, Cc, Crto, Csts, TIMEOUT_UNIT_MS, Version, css, shutdown,
};

use super::Nvme;
use super::buffer::CMB_OFFSET;
use super::clock::Event;
use super::config::Config;
use crate::faults::Kind;

/// How long CSTS.RDY takes to follow CC.EN, on and off, nanoseconds.
const ENABLE_NS: u64 = 5_000_000;
const DISABLE_NS: u64 = 1_000_000;
/// Duration of a shutdown besides emptying the write buffer, nanoseconds.
const SHUTDOWN_NS: u64 = 2_000_000;
/// Maximum time for which a host must wait for CSTS.RDY, milliseconds.
const READY_MS: u32 = 2_500;
/// Largest memory page, as log2 of 4 KiB pages.
const PAGE_MAX: u8 = 4;
/// log2 of the smallest memory page.
const PAGE_SHIFT: u8 = 12;

/// Register values.
#[derive(Debug)]
pub(super) struct Registers {
    cap: Cap,
    version: Version,
    crto: Crto,
    /// Masked vectors, one bit each; only for the line.
    masked: u32,
    cc: Cc,
    pub(super) csts: Csts,
    aqa: Aqa,
    asq: u64,
    acq: u64,
    /// Size of a memory page, bytes, as enabled.
    pub(super) page: u64,
    /// There is no power: nothing answers.
    pub(super) is_off: bool,
    /// The device has been pulled out.
    pub(super) is_unplugged: bool,
    /// A shutdown waits for nothing but its time.
    is_shutting: bool,
    /// Counts the controller's resets; an event of an earlier life is stale.
    pub(super) epoch: u32,
}

impl Registers {
    pub(super) fn new(config: &Config) -> Self {
        let units = READY_MS / TIMEOUT_UNIT_MS;
        let cap = Cap::new()
            .with_mqes((config.entries - 1) as u16)
            .with_cqr(true)
            .with_to(units as u8)
            .with_dstrd(config.stride)
            .with_nssrs(config.subsystem_reset)
            .with_css_nvm(true)
            .with_css_io(config.namespaces.iter().any(|space| space.zones.is_some()))
            .with_cmbs(config.controller_memory > 0)
            .with_mpsmax(PAGE_MAX)
            .with_crwms(config.version.is_at_least(2, 0));
        Self {
            cap,
            version: config.version,
            crto: Crto::new().with_crwmt(units as u16),
            masked: 0,
            cc: Cc::new(),
            csts: Csts::new(),
            aqa: Aqa::new(),
            asq: 0,
            acq: 0,
            page: 1 << PAGE_SHIFT,
            is_off: false,
            is_unplugged: false,
            is_shutting: false,
            epoch: 0,
        }
    }

    /// Returns everything that can be written to its power-on state.
    pub(super) fn power_on(&mut self) {
        (self.masked, self.cc, self.csts, self.aqa) = (0, Cc::new(), Csts::new(), Aqa::new());
        (self.asq, self.acq, self.page) = (0, 0, 1 << PAGE_SHIFT);
    }

    /// The controller is reset: a new life begins.
    fn start_over(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.is_shutting = false;
    }

    #[inline]
    pub(super) fn is_line_masked(&self) -> bool {
        self.masked & 1 != 0
    }

    /// Whether the device is present and powered, so that its registers answer.
    #[inline]
    fn answers(&self) -> bool {
        !self.is_off && !self.is_unplugged
    }

    /// Whether commands are fetched and carried out.
    #[inline]
    pub(super) fn is_working(&self) -> bool {
        let csts = self.csts;
        csts.rdy() && !csts.cfs() && !csts.pp() && csts.shst() != shutdown::COMPLETE
    }

    /// Whether doorbells exist: a controller that is not up has none.
    #[inline]
    fn has_doorbells(&self) -> bool {
        self.csts.rdy() && !self.csts.cfs()
    }

    fn read(&self, offset: u32) -> u32 {
        match offset {
            reg::CAP => self.cap.into_bits() as u32,
            0x04 => (self.cap.into_bits() >> 32) as u32,
            reg::VS => self.version.into_bits(),
            reg::INTMS | reg::INTMC => self.masked,
            reg::CC => self.cc.into_bits(),
            reg::CSTS => self.csts.into_bits(),
            reg::AQA => self.aqa.into_bits(),
            reg::ASQ => self.asq as u32,
            0x2C => (self.asq >> 32) as u32,
            reg::ACQ => self.acq as u32,
            0x34 => (self.acq >> 32) as u32,
            reg::CRTO if self.cap.crwms() => self.crto.into_bits(),
            // Reserved and write-only registers, and those that the controller does not have.
            _ => 0,
        }
    }

    /// Writes a register without side effects.
    #[inline]
    fn write(&mut self, offset: u32, value: u32) {
        match offset {
            reg::INTMS => self.masked |= value,
            reg::INTMC => self.masked &= !value,
            reg::CSTS if Csts::from_bits(value).nssro() => self.csts.set_nssro(false),
            reg::AQA => self.aqa = Aqa::from_bits(value),
            reg::ASQ => self.asq = with_low(self.asq, value & BASE_MASK),
            0x2C => self.asq = with_high(self.asq, value),
            reg::ACQ => self.acq = with_low(self.acq, value & BASE_MASK),
            0x34 => self.acq = with_high(self.acq, value),
            _ => {}
        }
    }

    /// CC.EN is set: returns the bases and sizes of the admin queues, if the controller can be
    /// enabled with these settings.
    fn enable(&mut self) -> Option<((u64, u64), (u32, u32))> {
        let cc = self.cc;
        self.csts = Csts::new().with_nssro(self.csts.nssro());
        let entries = (u32::from(self.aqa.asqs()) + 1, u32::from(self.aqa.acqs()) + 1);
        let fits = entries.0 >= 2
            && entries.1 >= 2
            && cc.mps() <= PAGE_MAX
            && (matches!(cc.css(), css::NVM | css::ADMIN)
                || cc.css() == css::ALL && self.cap.css_io())
            && cc.ams() == 0;
        if !fits {
            return None;
        }
        self.page = 1 << (PAGE_SHIFT + cc.mps());
        Some(((self.asq, self.acq), entries))
    }

    /// CSTS.RDY follows CC.EN.
    pub(super) fn follow(&mut self, ready: bool) {
        self.csts = Csts::new().with_rdy(ready).with_nssro(self.csts.nssro());
    }

    /// Whether the shutdown in progress can end, which requires that everything `is_safe` on the
    /// medium; returns true only once.
    fn can_end_shutdown(&mut self, is_safe: bool) -> bool {
        let is_under_way = self.csts.shst() == shutdown::BUSY;
        is_under_way && is_safe && !core::mem::replace(&mut self.is_shutting, true)
    }
}

fn with_low(value: u64, low: u32) -> u64 {
    value & !0xFFFF_FFFF | u64::from(low)
}

fn with_high(value: u64, high: u32) -> u64 {
    value & 0xFFFF_FFFF | u64::from(high) << 32
}

/// The admin queues are page-aligned: the low address bits do not exist.
const BASE_MASK: u32 = !0xFFF;

impl Nvme {
    /// Reads the register at `offset` (4-byte aligned) at `now`.
    pub fn read32(&mut self, offset: u32, now: Instant) -> u32 {
        self.advance(now);
        if !self.registers.answers() {
            return u32::MAX;
        }
        match offset {
            CMB_OFFSET.. => self.buffer.read(offset - CMB_OFFSET),
            reg::CMBLOC => self.buffer.location(),
            reg::CMBSZ => self.buffer.size(),
            reg::CMBMSC => self.buffer.control() as u32,
            0x54 => (self.buffer.control() >> 32) as u32,
            reg::CMBSTS => self.buffer.status(),
            _ => self.registers.read(offset),
        }
    }

    /// Writes the register at `offset` (4-byte aligned) at `now`.
    #[inline]
    pub fn write32(&mut self, offset: u32, value: u32, now: Instant) {
        self.advance(now);
        let r = &mut self.registers;
        if !r.answers() {
            return;
        }
        match offset {
            CMB_OFFSET.. => self.buffer.write(offset - CMB_OFFSET, value),
            reg::CMBMSC => self.buffer.set_low(value, &mut self.memory),
            0x54 => self.buffer.set_high(value),
            reg::DOORBELLS.. if r.has_doorbells() => self.ring(offset - reg::DOORBELLS, value),
            reg::CC => self.configure(Cc::from_bits(value)),
            reg::NSSR if value == reg::SUBSYSTEM_RESET && r.cap.nssrs() => self.reset_subsystem(),
            _ => r.write(offset, value),
        }
    }

    /// CC is written: enable, disable, shutdown. The other fields take effect on enable.
    fn configure(&mut self, cc: Cc) {
        let before = core::mem::replace(&mut self.registers.cc, cc);
        if before.en() && !cc.en() {
            self.reset_controller();
            let (epoch, now) = (self.registers.epoch, self.clock.now());
            let stuck = self.faults.is_active() && self.faults.fires(Kind::ReadyStuck, now, 0);
            if !stuck {
                self.clock.after(DISABLE_NS, Event::Follows { epoch, ready: false });
            }
            return;
        }
        if !before.en() && cc.en() {
            match self.registers.enable() {
                Some((bases, entries)) => {
                    self.queues.create_admin(bases, entries);
                    let epoch = self.registers.epoch;
                    self.clock.after(ENABLE_NS, Event::Follows { epoch, ready: true });
                }
                None => self.fail_fatally(),
            }
        }
        if cc.shn() != 0 && before.shn() != cc.shn() {
            self.registers.csts.set_shst(shutdown::BUSY);
            let demand = self.demand();
            self.backend.program(&mut self.clock, demand);
            self.look_at_shutdown();
        }
    }

    /// Everything that the controller holds is gone.
    pub(super) fn reset_controller(&mut self) {
        self.registers.start_over();
        self.tasks.clear();
        self.backend.clear();
        self.copies.clear();
        self.queues.clear();
        self.told.clear();
        self.device.reset();
        self.backend.set_up();
    }

    /// Resets the whole subsystem, without a loss of power.
    fn reset_subsystem(&mut self) {
        self.reset_controller();
        self.registers.power_on();
        self.buffer.power_on(&mut self.memory);
        self.registers.csts.set_nssro(true);
        self.device.firmware.start_over();
    }

    /// A fatal error: the controller stops until it is reset.
    pub(super) fn fail_fatally(&mut self) {
        self.registers.csts.set_cfs(true);
        self.tasks.swallow_all();
        self.backend.clear();
    }

    /// Ends the shutdown in progress, if it can end.
    pub(super) fn look_at_shutdown(&mut self) {
        if self.registers.can_end_shutdown(self.backend.is_safe()) {
            self.clock.after(SHUTDOWN_NS, Event::ShutDown { epoch: self.registers.epoch });
        }
    }

    /// The shutdown is complete.
    pub(super) fn shut_down(&mut self) {
        // A store that fails here has failed every earlier write: the host knows.
        let _ = self.device.spaces.flush();
        self.device.health.is_clean = true;
        self.registers.is_shutting = false;
        self.registers.csts.set_shst(shutdown::COMPLETE);
    }
}
