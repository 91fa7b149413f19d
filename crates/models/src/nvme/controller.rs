//! The register file: what reads answer, what writes set off, resets, shutdown.

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
/// What a shutdown takes besides emptying the write buffer, nanoseconds.
const SHUTDOWN_NS: u64 = 2_000_000;
/// How long a host may have to wait for CSTS.RDY, milliseconds.
const READY_MS: u32 = 2_500;
/// Largest memory page, as log2 of 4 KiB pages.
const PAGE_MAX: u8 = 4;
/// log2 of the smallest memory page.
const PAGE_SHIFT: u8 = 12;

/// Register values.
#[derive(Debug)]
pub(super) struct Registers {
    cap: Cap,
    pub(super) version: Version,
    crto: Crto,
    /// Vectors that are masked, a bit each; only for the line.
    masked: u32,
    cc: Cc,
    pub(super) csts: Csts,
    aqa: Aqa,
    pub(super) asq: u64,
    pub(super) acq: u64,
    /// Bytes of a memory page, as enabled.
    pub(super) page: u64,
    /// There is no power: nothing answers.
    pub(super) is_off: bool,
    /// The device was pulled out.
    pub(super) is_unplugged: bool,
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
        }
    }

    /// Everything that can be written as after power-on.
    pub(super) fn power_on(&mut self) {
        (self.masked, self.cc, self.csts, self.aqa) = (0, Cc::new(), Csts::new(), Aqa::new());
        (self.asq, self.acq, self.page) = (0, 0, 1 << PAGE_SHIFT);
    }

    #[inline]
    pub(super) fn is_line_masked(&self) -> bool {
        self.masked & 1 != 0
    }
}

fn with_low(value: u64, low: u32) -> u64 {
    value & !0xFFFF_FFFF | u64::from(low)
}

fn with_high(value: u64, high: u32) -> u64 {
    value & 0xFFFF_FFFF | u64::from(high) << 32
}

/// The admin queues begin at pages: the low address bits do not exist.
const BASE_MASK: u32 = !0xFFF;

impl Nvme {
    /// Whether commands are fetched and carried out.
    #[inline]
    pub(super) fn is_working(&self) -> bool {
        let csts = self.registers.csts;
        csts.rdy() && !csts.cfs() && !csts.pp() && csts.shst() != shutdown::COMPLETE
    }

    #[inline]
    pub(super) fn read_register(&mut self, offset: u32) -> u32 {
        let r = &self.registers;
        if r.is_off || r.is_unplugged {
            return u32::MAX;
        }
        match offset {
            reg::CAP => r.cap.into_bits() as u32,
            0x04 => (r.cap.into_bits() >> 32) as u32,
            reg::VS => r.version.into_bits(),
            reg::INTMS | reg::INTMC => r.masked,
            reg::CC => r.cc.into_bits(),
            reg::CSTS => r.csts.into_bits(),
            reg::AQA => r.aqa.into_bits(),
            reg::ASQ => r.asq as u32,
            0x2C => (r.asq >> 32) as u32,
            reg::ACQ => r.acq as u32,
            0x34 => (r.acq >> 32) as u32,
            reg::CMBLOC => self.buffer.location(),
            reg::CMBSZ => self.buffer.size(),
            reg::CMBMSC => self.buffer.control() as u32,
            0x54 => (self.buffer.control() >> 32) as u32,
            reg::CMBSTS => self.buffer.status(),
            CMB_OFFSET.. => self.buffer.read(offset - CMB_OFFSET),
            reg::CRTO if r.cap.crwms() => r.crto.into_bits(),
            // Reserved registers, those that only take writes, what the controller does not have.
            _ => 0,
        }
    }

    #[inline]
    pub(super) fn write_register(&mut self, offset: u32, value: u32) {
        let r = &mut self.registers;
        if r.is_off || r.is_unplugged {
            return;
        }
        let csts = r.csts;
        match offset {
            CMB_OFFSET.. => self.buffer.write(offset - CMB_OFFSET, value),
            reg::CMBMSC => self.buffer.set_low(value, &mut self.memory),
            0x54 => self.buffer.set_high(value),
            // A controller that is not up has no doorbells.
            reg::DOORBELLS.. if csts.rdy() && !csts.cfs() => {
                self.ring(offset - reg::DOORBELLS, value)
            }
            reg::INTMS => r.masked |= value,
            reg::INTMC => r.masked &= !value,
            reg::CC => self.configure(Cc::from_bits(value)),
            reg::CSTS if Csts::from_bits(value).nssro() => r.csts.set_nssro(false),
            reg::NSSR if value == reg::SUBSYSTEM_RESET && r.cap.nssrs() => self.reset_subsystem(),
            reg::AQA => r.aqa = Aqa::from_bits(value),
            reg::ASQ => r.asq = with_low(r.asq, value & BASE_MASK),
            0x2C => r.asq = with_high(r.asq, value),
            reg::ACQ => r.acq = with_low(r.acq, value & BASE_MASK),
            0x34 => r.acq = with_high(r.acq, value),
            _ => {}
        }
    }

    /// CC is written: enable, disable, shutdown. The other fields count when it enables.
    fn configure(&mut self, cc: Cc) {
        let before = core::mem::replace(&mut self.registers.cc, cc);
        if before.en() && !cc.en() {
            return self.disable();
        }
        if !before.en() && cc.en() {
            self.enable(cc);
        }
        if cc.shn() != 0 && before.shn() != cc.shn() {
            self.begin_shutdown();
        }
    }

    fn enable(&mut self, cc: Cc) {
        let (r, none) = (&mut self.registers, Csts::new());
        r.csts = none.with_nssro(r.csts.nssro());
        let entries = (u32::from(r.aqa.asqs()) + 1, u32::from(r.aqa.acqs()) + 1);
        let fits = entries.0 >= 2
            && entries.1 >= 2
            && cc.mps() <= PAGE_MAX
            && (matches!(cc.css(), css::NVM | css::ADMIN)
                || cc.css() == css::ALL && r.cap.css_io())
            && cc.ams() == 0;
        if !fits {
            return self.fail_fatally();
        }
        r.page = 1 << (PAGE_SHIFT + cc.mps());
        self.queues.create_admin((r.asq, r.acq), entries);
        self.clock.after(ENABLE_NS, Event::Follows { epoch: self.clock.epoch(), ready: true });
    }

    fn disable(&mut self) {
        self.reset_controller();
        let stuck =
            self.faults.is_active() && self.faults.fires(Kind::ReadyStuck, self.clock.now(), 0);
        if !stuck {
            self.clock
                .after(DISABLE_NS, Event::Follows { epoch: self.clock.epoch(), ready: false });
        }
    }

    /// CSTS.RDY follows.
    pub(super) fn ready(&mut self, ready: bool) {
        let csts = self.registers.csts;
        self.registers.csts = Csts::new().with_rdy(ready).with_nssro(csts.nssro());
        if ready {
            self.device.health.is_clean = false;
        }
    }

    /// Everything the controller holds is gone.
    pub(super) fn reset_controller(&mut self) {
        self.clock.start_over();
        self.tasks.clear();
        self.writes.clear();
        self.flushes.clear();
        self.copies.clear();
        self.queues.clear();
        self.told.clear();
        self.device.reset();
        self.set_up_media();
    }

    /// The whole subsystem starts anew, power loss apart.
    fn reset_subsystem(&mut self) {
        self.reset_controller();
        self.registers.power_on();
        self.buffer.power_on(&mut self.memory);
        self.registers.csts.set_nssro(true);
        self.device.firmware.start_over();
    }

    /// The media as it is after a reset: link and look-up as the profile has them.
    pub(super) fn set_up_media(&mut self) {
        let timing = &self.profile.timing;
        self.media.set_link(self.profile.link.times(timing));
        let missing = self.profile.host_memory.map_or(0, |memory| memory.missing_ns);
        self.media.set_lookup(timing.lookup_ns + missing);
    }

    /// A controller that is beyond help until it is reset.
    pub(super) fn fail_fatally(&mut self) {
        self.registers.csts.set_cfs(true);
        self.tasks.swallow_all();
        self.writes.clear();
        self.flushes.clear();
    }

    fn begin_shutdown(&mut self) {
        self.registers.csts.set_shst(shutdown::BUSY);
        self.program();
        self.look_at_shutdown();
    }

    /// Whether the shutdown that is under way can end: everything is on the medium.
    pub(super) fn look_at_shutdown(&mut self) {
        let is_under_way = self.registers.csts.shst() == shutdown::BUSY;
        let is_safe = self.media.programmed_total() == self.media.arrived_total();
        if is_under_way && is_safe && !self.device.is_shutting {
            self.device.is_shutting = true;
            self.clock.after(SHUTDOWN_NS, Event::ShutDown { epoch: self.clock.epoch() });
        }
    }

    /// The shutdown is complete.
    pub(super) fn shut_down(&mut self) {
        for space in self.device.spaces.iter_mut().flatten() {
            // A store that fails here has failed every write before: the host knows.
            let _ = space.store.flush();
        }
        self.device.health.is_clean = true;
        self.device.is_shutting = false;
        self.registers.csts.set_shst(shutdown::COMPLETE);
    }
}
