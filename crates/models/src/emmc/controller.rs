//! The SD host controller's registers: what reads answer, what writes set off, resets.

use flysch_wire::mmc::cqhci;
use flysch_wire::mmc::sdhci::{
    self as reg, Block, Capabilities, Clock, Command, Control, Control2, Interrupts, Present, dma,
    uhs, voltage,
};

use super::config::Config;
use super::profile::Dialect;
use super::{Emmc, Event};

/// Where the queueing engine's registers are, as Intel's controllers have them.
pub const ENGINE: u32 = 0x200;
/// Bytes of the engine's registers.
const ENGINE_LENGTH: u32 = 0x60;
/// Where Intel's controllers have the switch for enhanced strobe.
const STROBE: u32 = 0x78;
/// Bytes of the register window.
pub const WINDOW: u32 = 0x1000;
/// The base clock, MHz.
const BASE_MHZ: u8 = 200;
/// Clock to become stable, and resets, nanoseconds.
const STABLE_NS: u64 = 20_000;
const RESET_NS: u64 = 5_000;
/// Tuning blocks until a sampling point is found: the controller looks at each of its phases.
pub(super) const TUNING_BLOCKS: u8 = 24;

/// Register values.
#[derive(Debug)]
pub(super) struct Registers {
    capabilities: Capabilities,
    pub(super) argument2: u32,
    pub(super) block: Block,
    pub(super) argument: u32,
    pub(super) mode: Command,
    pub(super) response: [u32; 4],
    pub(super) present: Present,
    pub(super) control: Control,
    pub(super) clock: Clock,
    pub(super) status: Interrupts,
    status_enable: u32,
    signal_enable: u32,
    pub(super) control2: Control2,
    adma_error: u32,
    pub(super) adma: u64,
    strobe: u32,
    /// Tuning blocks since tuning began.
    pub(super) tuned: u8,
    /// A fault keeps the line down until something else happens.
    pub(super) is_mute: bool,
    /// The device was pulled out: registers read as ones.
    pub(super) is_gone: bool,
}

impl Registers {
    pub(super) fn new(config: &Config) -> Self {
        let removable = config.profile.dialect != Dialect::Emmc;
        let capabilities = Capabilities::new()
            .with_timeout_clock(1)
            .with_timeout_mhz(true)
            .with_base_mhz(BASE_MHZ)
            .with_bus_8(config.fast && !removable)
            .with_adma2(config.adma2)
            .with_high_speed(true)
            .with_v3_3(true)
            .with_v1_8(true)
            .with_wide_v3(config.wide)
            .with_slot(u8::from(!removable))
            .with_sdr50(config.fast)
            .with_sdr104(config.fast)
            .with_ddr50(config.fast)
            .with_hs400(config.hs400 && config.fast && !removable);
        let mut this = Self {
            capabilities,
            argument2: 0,
            block: Block::new(),
            argument: 0,
            mode: Command::new(),
            response: [0; 4],
            present: Present::new(),
            control: Control::new(),
            clock: Clock::new(),
            status: Interrupts::new(),
            status_enable: 0,
            signal_enable: 0,
            control2: Control2::new(),
            adma_error: 0,
            adma: 0,
            strobe: 0,
            tuned: 0,
            is_mute: false,
            is_gone: false,
        };
        this.power_on();
        this
    }

    /// Everything that can be written as after power-on.
    pub(super) fn power_on(&mut self) {
        (self.argument2, self.argument, self.adma) = (0, 0, 0);
        (self.block, self.mode, self.response) = (Block::new(), Command::new(), [0; 4]);
        (self.control, self.clock) = (Control::new(), Clock::new());
        (self.status, self.status_enable, self.signal_enable) = (Interrupts::new(), 0, 0);
        (self.control2, self.adma_error, self.strobe) = (Control2::new(), 0, 0);
        (self.tuned, self.is_mute) = (0, false);
        self.present = Present::new()
            .with_inserted(true)
            .with_stable(true)
            .with_detect(true)
            .with_writable(true)
            .with_data(0xF)
            .with_data_high(0xF)
            .with_command(true);
    }

    /// Sets status bits, as far as they are enabled.
    pub(super) fn raise(&mut self, bits: Interrupts) {
        let mut bits = bits.into_bits() & self.status_enable;
        if bits & Interrupts::ERRORS != 0 {
            bits |= Interrupts::new().with_error(true).into_bits();
        }
        self.is_mute = false;
        self.status = Interrupts::from_bits(self.status.into_bits() | bits);
    }

    /// The clock at the card, Hz.
    pub(super) fn hertz(&self) -> u64 {
        if !self.clock.card() || !self.clock.internal() {
            return 0;
        }
        let base = u64::from(BASE_MHZ) * 1_000_000;
        base / (2 * u64::from(self.clock.division())).max(1)
    }

    /// Data lines, and whether data is on both edges.
    pub(super) fn lines(&self) -> (u8, bool) {
        let lines = match (self.control.bus_8(), self.control.bus_4()) {
            (true, _) => 8,
            (_, true) => 4,
            _ => 1,
        };
        (lines, matches!(self.control2.uhs(), uhs::DDR50 | uhs::HS400))
    }

    /// Whether data at this timing needs a tuned sampling point: enhanced strobe does not.
    pub(super) fn needs_tuning(&self) -> bool {
        match self.control2.uhs() {
            uhs::SDR104 => true,
            uhs::HS400 => self.strobe & 1 == 0,
            _ => false,
        }
    }

    pub(super) fn has_strobe(&self) -> bool {
        self.strobe & 1 != 0 && self.control2.uhs() == uhs::HS400
    }

    /// Bytes of an ADMA2 descriptor, if that is what is selected.
    pub(super) fn stride(&self) -> Option<u8> {
        if !self.capabilities.adma2() {
            return None;
        }
        match self.control.dma() {
            dma::ADMA2 => Some(8),
            dma::ADMA2_64 if self.capabilities.wide_v3() => Some(12),
            _ => None,
        }
    }

    fn is_powered(&self) -> bool {
        self.control.power()
            && matches!(self.control.voltage(), voltage::V3_3 | voltage::V3_0 | voltage::V1_8)
    }

    /// Why ADMA2 failed: the state, and what it was about.
    pub(super) fn set_adma_error(&mut self) {
        // ST_FDS: the descriptor could not be fetched, or is none.
        self.adma_error = 1;
    }
}

/// Two preset values (SDHCI 2.2.26): the divider of each timing's clock.
fn presets(offset: u32) -> u32 {
    // MHz, from identification (400 kHz) and default speed to SDR104 and DDR50.
    const MEGAHERTZ: [u32; 10] = [0, 25, 50, 25, 50, 100, 200, 50, 0, 0];
    let one = |at: usize| match MEGAHERTZ.get(at) {
        // Identification.
        Some(_) if at == 0 => u32::from(BASE_MHZ) * 1000 / 400 / 2,
        Some(&hertz) if hertz != 0 => u32::from(BASE_MHZ) / hertz / 2,
        _ => 0,
    };
    let at = ((offset - reg::PRESETS) / 2) as usize;
    one(at) | one(at + 1) << 16
}

fn with_low(value: u64, low: u32) -> u64 {
    value & !0xFFFF_FFFF | u64::from(low)
}

fn with_high(value: u64, high: u32) -> u64 {
    value & 0xFFFF_FFFF | u64::from(high) << 32
}

impl Emmc {
    /// The interrupt line.
    #[inline]
    pub(super) fn is_asserted(&self) -> bool {
        let r = &self.registers;
        !r.is_mute && !r.is_gone && self.whole_status() & r.signal_enable != 0
    }

    /// The status register with the engine's part, which is level.
    #[inline]
    fn whole_status(&self) -> u32 {
        let queueing = Interrupts::new().with_queueing(true).into_bits();
        let mut status = self.registers.status.into_bits() & !queueing;
        if self.engine.is_asserted() {
            status |= queueing & self.registers.status_enable;
        }
        status
    }

    #[inline]
    pub(super) fn read_register(&mut self, offset: u32) -> u32 {
        if self.registers.is_gone {
            return u32::MAX;
        }
        if (ENGINE..ENGINE + ENGINE_LENGTH).contains(&offset) {
            return match self.has_engine {
                true => self.engine.read(offset - ENGINE),
                false => 0,
            };
        }
        let r = &self.registers;
        match offset {
            reg::ARGUMENT2 => r.argument2,
            reg::BLOCK => r.block.into_bits(),
            reg::ARGUMENT => r.argument,
            reg::COMMAND => r.mode.into_bits(),
            0x10..=0x1C => r.response[(offset as usize - 0x10) / 4],
            reg::BUFFER => self.read_buffer(),
            reg::PRESENT => self.present().into_bits(),
            reg::CONTROL => r.control.into_bits(),
            reg::CLOCK => r.clock.into_bits(),
            reg::STATUS => self.whole_status(),
            reg::STATUS_ENABLE => r.status_enable,
            reg::SIGNAL_ENABLE => r.signal_enable,
            reg::CONTROL2 => r.control2.into_bits(),
            reg::CAPABILITIES => r.capabilities.into_bits() as u32,
            0x44 => (r.capabilities.into_bits() >> 32) as u32,
            reg::ADMA_ERROR => r.adma_error,
            reg::ADMA_ADDRESS => r.adma as u32,
            0x5C => (r.adma >> 32) as u32,
            reg::PRESETS..STROBE => presets(offset),
            STROBE => r.strobe,
            reg::SLOT_VERSION => u32::from(reg::version::V3) << 16 | u32::from(self.is_asserted()),
            _ if offset < WINDOW => 0,
            _ => u32::MAX,
        }
    }

    fn present(&self) -> Present {
        let busy = self.card.is_busy;
        let held = self.card.holds_lines();
        let data = match (held, busy) {
            (true, _) => 0,
            (_, true) => 0xE,
            _ => 0xF,
        };
        let transfer = self.transfer.is_some();
        let inhibit = transfer || self.waits_busy;
        let present = self.registers.present.with_command(!held);
        present.with_data(data).with_data_inhibit(inhibit).with_data_active(transfer)
    }

    #[inline]
    pub(super) fn write_register(&mut self, offset: u32, value: u32) {
        if self.registers.is_gone {
            return;
        }
        if (ENGINE..ENGINE + ENGINE_LENGTH).contains(&offset) {
            if self.has_engine {
                self.write_engine(offset - ENGINE, value);
            }
            return;
        }
        let r = &mut self.registers;
        match offset {
            reg::ARGUMENT2 => r.argument2 = value,
            reg::BLOCK => r.block = Block::from_bits(value),
            reg::ARGUMENT => r.argument = value,
            reg::COMMAND => self.write_command(Command::from_bits(value)),
            reg::BUFFER => self.write_buffer(value),
            reg::CONTROL => self.write_control(Control::from_bits(value)),
            reg::CLOCK => self.write_clock(Clock::from_bits(value)),
            reg::STATUS => {
                let left = r.status.into_bits() & !value;
                let errors = left & Interrupts::ERRORS != 0;
                r.status = Interrupts::from_bits(left).with_error(errors);
            }
            reg::STATUS_ENABLE => {
                r.status_enable = value;
                r.status = Interrupts::from_bits(r.status.into_bits() & (value | 1 << 15));
            }
            reg::SIGNAL_ENABLE => r.signal_enable = value,
            reg::CONTROL2 => self.write_control2(Control2::from_bits(value)),
            reg::FORCE_EVENT => r.raise(Interrupts::from_bits(value & Interrupts::ERRORS)),
            reg::ADMA_ADDRESS => r.adma = with_low(r.adma, value),
            0x5C => r.adma = with_high(r.adma, value),
            STROBE => r.strobe = value & 1,
            _ => {}
        }
    }

    fn write_control(&mut self, value: Control) {
        let r = &mut self.registers;
        let (was, reset) = (r.is_powered(), r.control.hardware_reset());
        r.control = value;
        let is = r.is_powered();
        let reset = value.hardware_reset() && !reset && self.card.sd.is_none();
        if was && !is || reset {
            // Power off, or RST_n: the card starts over. What its cache holds stays.
            self.restart_card();
        }
    }

    fn write_control2(&mut self, value: Control2) {
        let r = &mut self.registers;
        let old = r.control2;
        let mut new = value.with_auto_error(old.auto_error());
        if value.tune() && !old.tune() {
            r.tuned = 0;
        }
        if !value.tune() && old.tune() {
            new = new.with_tune(false);
        }
        r.control2 = new;
    }

    fn write_clock(&mut self, value: Clock) {
        let epoch = self.epoch;
        let resets = value.into_bits() & Clock::RESETS;
        let r = &mut self.registers;
        let stable = r.clock.stable() && value.internal();
        if value.internal() && !stable {
            self.after(STABLE_NS, Event::Stable { epoch });
        }
        let r = &mut self.registers;
        r.clock = Clock::from_bits(value.into_bits() & !Clock::RESETS | resets);
        r.clock = r.clock.with_stable(stable);
        let lines = (r.hertz() != 0, r.control2.signal_1_8());
        self.card.clock(lines, self.now.nanos());
        self.meter_state();
        if resets != 0 {
            self.reset_by(value);
            self.after(RESET_NS, Event::ResetDone { epoch: self.epoch });
        }
    }

    /// What the reset bits reset. They stay set for a moment.
    fn reset_by(&mut self, value: Clock) {
        if value.reset_all() {
            self.reset_host();
            self.registers.clock = Clock::new().with_reset_all(true);
            return;
        }
        if value.reset_command() {
            self.registers.present = self.registers.present.with_command_inhibit(false);
            self.command = None;
        }
        if value.reset_data() {
            self.stop_transfer();
        }
    }

    /// The clock is stable.
    pub(super) fn stable(&mut self) {
        let r = &mut self.registers;
        r.clock = r.clock.with_stable(r.clock.internal());
        self.meter_state();
    }

    pub(super) fn reset_done(&mut self) {
        let clock = self.registers.clock.into_bits() & !Clock::RESETS;
        self.registers.clock = Clock::from_bits(clock);
    }

    /// Whether host and card use the bus the same way: lines, edges, clock, strobe, and a sampling
    /// point where one is needed.
    pub(super) fn bus_agrees(&self) -> bool {
        let r = &self.registers;
        let strobe = self.card.ext_csd.byte(flysch_wire::mmc::ext_csd::BUS_WIDTH)
            & flysch_wire::mmc::ext_csd::bus_width::STROBE
            != 0;
        let sampled = !r.needs_tuning() || r.control2.tuned();
        r.lines() == self.card.lines()
            && r.hertz() <= self.card.clock_max()
            && (r.has_strobe() == strobe || !r.lines().1)
            && sampled
            && !self.is_detuned()
    }

    /// Whether the sampling point was lost.
    pub(super) fn is_detuned(&self) -> bool {
        self.detuned && self.registers.needs_tuning()
    }

    /// A read of 8, 16 or 64 bits.
    pub(super) fn read_mixed_register(&mut self, offset: u32, width: u8) -> u64 {
        if width == 8 {
            let low = u64::from(self.read_register(offset));
            return low | u64::from(self.read_register(offset + 4)) << 32;
        }
        let word = self.read_register(offset & !3) >> (8 * (offset & 3));
        u64::from(if width == 1 { word & 0xFF } else { word & 0xFFFF })
    }

    /// A write of 8, 16 or 64 bits. Neighbours in the dword stay as they are: bits that are cleared
    /// by writing one are not written, and a command goes with its own half.
    pub(super) fn write_mixed_register(&mut self, offset: u32, width: u8, value: u64) {
        if width == 8 {
            self.write_register(offset, value as u32);
            return self.write_register(offset + 4, (value >> 32) as u32);
        }
        let (at, shift) = (offset & !3, 8 * (offset & 3));
        let mask = if width == 1 { 0xFF_u32 } else { 0xFFFF } << shift;
        let value = (value as u32) << shift & mask;
        if at == reg::COMMAND && shift == 0 && width == 2 {
            let bits = self.registers.mode.into_bits() & !mask | value;
            self.registers.mode = Command::from_bits(bits);
            return;
        }
        let whole = match at {
            reg::STATUS => value,
            at if (ENGINE..ENGINE + ENGINE_LENGTH).contains(&at)
                && matches!(at - ENGINE, cqhci::CQIS | cqhci::CQTCN | cqhci::CQTDBR) =>
            {
                value
            }
            at => self.read_register(at) & !mask | value,
        };
        self.write_register(at, whole);
    }
}
