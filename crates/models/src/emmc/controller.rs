//! The SD host controller's registers: what reads answer, what writes set off, resets.

use flysch_wire::mmc::sdhci::{
    self as reg, Block, Capabilities, Clock, Command, Control, Control2, Interrupts, Present, dma,
    uhs, voltage,
};

use super::card::{Card, Response};
use super::config::Config;
use super::profile::Dialect;
use super::transfer::List;

/// Where the queueing engine's registers are, as Intel's controllers have them.
pub const ENGINE: u32 = 0x200;
/// Bytes of the engine's registers.
pub(super) const ENGINE_LENGTH: u32 = 0x60;
/// Where Intel's controllers have the switch for enhanced strobe.
const STROBE: u32 = 0x78;
/// Bytes of the register window.
pub const WINDOW: u32 = 0x1000;
/// The base clock, MHz.
const BASE_MHZ: u8 = 200;
/// Tuning blocks until a sampling point is found: the controller looks at each of its phases.
const TUNING_BLOCKS: u8 = 24;

/// Register values.
#[derive(Debug)]
pub(super) struct Registers {
    capabilities: Capabilities,
    argument2: u32,
    block: Block,
    argument: u32,
    mode: Command,
    response: [u32; 4],
    present: Present,
    control: Control,
    clock: Clock,
    status: Interrupts,
    status_enable: u32,
    signal_enable: u32,
    control2: Control2,
    adma_error: u32,
    adma: u64,
    strobe: u32,
    /// Tuning blocks since tuning began.
    tuned: u8,
    /// The sampling point was lost.
    is_detuned: bool,
    /// A fault keeps the line down until something else happens.
    is_mute: bool,
    /// The device was pulled out: registers read as ones.
    is_gone: bool,
}

impl Registers {
    /// Those of the controller of `config`, after power-on.
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
            is_detuned: false,
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

    /// The device is pulled out, or back in with everything as after power-on.
    pub(super) fn set_gone(&mut self, is_gone: bool) {
        self.is_gone = is_gone;
        if !is_gone {
            self.power_on();
        }
    }

    /// Whether the device is pulled out.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// A fault keeps the interrupt line down until something else happens.
    pub(super) fn mute(&mut self) {
        self.is_mute = true;
    }

    /// The interrupt line; `queueing`: the engine's part, which is level.
    #[inline]
    pub(super) fn is_asserted(&self, queueing: bool) -> bool {
        let pending = self.whole_status(queueing) & self.signal_enable != 0;
        pending && !self.is_mute && !self.is_gone
    }

    /// The status register with the engine's part.
    #[inline]
    fn whole_status(&self, queueing: bool) -> u32 {
        let bit = Interrupts::new().with_queueing(true).into_bits();
        let status = self.status.into_bits() & !bit;
        if queueing { status | bit & self.status_enable } else { status }
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
    #[inline]
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

    /// The list of descriptors; its stride is 0 if ADMA2 is not what is selected.
    pub(super) fn list(&self) -> List {
        let stride = match self.control.dma() {
            dma::ADMA2 => 8,
            dma::ADMA2_64 if self.capabilities.wide_v3() => 12,
            _ => 0,
        };
        let stride = if self.capabilities.adma2() { stride } else { 0 };
        List { address: self.adma, stride }
    }

    /// Size and number of the blocks of a transfer.
    pub(super) fn block(&self) -> Block {
        self.block
    }

    /// What CMD23 that the controller sends by itself says.
    pub(super) fn argument2(&self) -> u32 {
        self.argument2
    }

    /// Whether the clock at the card runs, and whether its lines are at 1.8 V.
    pub(super) fn drives(&self) -> (bool, bool) {
        (self.hertz() != 0, self.control2.signal_1_8())
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

    /// The mode of the next command is written, without the command.
    pub(super) fn set_mode(&mut self, mode: Command) {
        self.mode = mode;
    }

    /// The mode of the command written last.
    pub(super) fn mode(&self) -> Command {
        self.mode
    }

    /// A command is written: its argument, if it can be sent. One that cannot vanishes.
    pub(super) fn begin_command(&mut self, mode: Command) -> Option<u32> {
        self.mode = mode;
        if self.present.command_inhibit() || self.hertz() == 0 {
            return None;
        }
        self.present.set_command_inhibit(true);
        Some(self.argument)
    }

    /// No command is on the line any more.
    pub(super) fn end_command(&mut self) {
        self.present.set_command_inhibit(false);
    }

    /// A response has come.
    pub(super) fn respond(&mut self, response: Response) {
        match response {
            Response::None => {}
            Response::Status(word) | Response::Ocr(word) => self.response[0] = word,
            Response::Long(register) => {
                let bits = register >> 8;
                self.response = [0, 32, 64, 96].map(|shift| (bits >> shift) as u32);
            }
        }
        self.raise(Interrupts::new().with_command(true));
    }

    /// The buffer port has a block for the host.
    pub(super) fn offer_read(&mut self) {
        self.present.set_read_ready(true);
        self.raise(Interrupts::new().with_read_ready(true));
    }

    /// The buffer port takes a block from the host.
    pub(super) fn offer_write(&mut self) {
        self.present.set_write_ready(true);
        self.raise(Interrupts::new().with_write_ready(true));
    }

    /// Whether the buffer port has a block for the host, and whether it takes one.
    #[inline]
    pub(super) fn offers(&self) -> (bool, bool) {
        (self.present.read_ready(), self.present.write_ready())
    }

    /// The buffer port has no block for the host any more, or takes none.
    pub(super) fn withdraw(&mut self, (read, write): (bool, bool)) {
        if read {
            self.present.set_read_ready(false);
        }
        if write {
            self.present.set_write_ready(false);
        }
    }

    /// A tuning block came from a card that drives `lines`: after enough of them the controller
    /// has its sampling point.
    pub(super) fn tuning_block(&mut self, lines: (u8, bool)) {
        if self.control2.tune() {
            self.tuned = self.tuned.saturating_add(1);
            if self.tuned >= TUNING_BLOCKS {
                let same = self.lines() == lines;
                self.control2 = self.control2.with_tune(false).with_tuned(same);
                self.is_detuned = false;
            }
        }
        self.raise(Interrupts::new().with_read_ready(true));
    }

    /// The sampling point is lost, or of no matter any more.
    pub(super) fn set_detuned(&mut self, is_detuned: bool) {
        self.is_detuned = is_detuned;
    }

    /// Whether host and card use the bus the same way: lines, edges, clock, strobe, and a sampling
    /// point where one is needed.
    pub(super) fn agrees_with(&self, card: &Card) -> bool {
        let sampled = !self.needs_tuning() || self.control2.tuned() && !self.is_detuned;
        self.lines() == card.lines()
            && self.hertz() <= card.clock_max()
            && (self.has_strobe() == card.ext_csd.has_strobe() || !self.lines().1)
            && sampled
    }

    /// What a register says but PRESENT, which is [`present`](Self::present); `queueing` as the
    /// engine has it.
    #[inline]
    pub(super) fn read(&self, offset: u32, queueing: bool) -> u32 {
        match offset {
            reg::ARGUMENT2 => self.argument2,
            reg::BLOCK => self.block.into_bits(),
            reg::ARGUMENT => self.argument,
            reg::COMMAND => self.mode.into_bits(),
            0x10..=0x1C => self.response[(offset as usize - 0x10) / 4],
            reg::CONTROL => self.control.into_bits(),
            reg::CLOCK => self.clock.into_bits(),
            reg::STATUS => self.whole_status(queueing),
            reg::STATUS_ENABLE => self.status_enable,
            reg::SIGNAL_ENABLE => self.signal_enable,
            reg::CONTROL2 => self.control2.into_bits(),
            reg::CAPABILITIES => self.capabilities.into_bits() as u32,
            0x44 => (self.capabilities.into_bits() >> 32) as u32,
            reg::ADMA_ERROR => self.adma_error,
            reg::ADMA_ADDRESS => self.adma as u32,
            0x5C => (self.adma >> 32) as u32,
            reg::PRESETS..STROBE => presets(offset),
            STROBE => self.strobe,
            reg::SLOT_VERSION => {
                u32::from(reg::version::V3) << 16 | u32::from(self.is_asserted(queueing))
            }
            _ if offset < WINDOW => 0,
            _ => u32::MAX,
        }
    }

    /// PRESENT with what the card does to its lines, as long as data is on its way (`transfer`) or
    /// awaited (`inhibit`).
    pub(super) fn present(&self, card: &Card, transfer: bool, inhibit: bool) -> Present {
        let held = card.signal.is_held();
        let data = match (held, card.is_busy) {
            (true, _) => 0,
            (_, true) => 0xE,
            _ => 0xF,
        };
        let present = self.present.with_command(!held).with_data(data);
        present.with_data_inhibit(inhibit).with_data_active(transfer)
    }

    /// A register is written that sets nothing off.
    #[inline]
    pub(super) fn write(&mut self, offset: u32, value: u32) {
        match offset {
            reg::ARGUMENT2 => self.argument2 = value,
            reg::BLOCK => self.block = Block::from_bits(value),
            reg::ARGUMENT => self.argument = value,
            reg::STATUS => {
                let left = self.status.into_bits() & !value;
                let errors = left & Interrupts::ERRORS != 0;
                self.status = Interrupts::from_bits(left).with_error(errors);
            }
            reg::STATUS_ENABLE => {
                self.status_enable = value;
                self.status = Interrupts::from_bits(self.status.into_bits() & (value | 1 << 15));
            }
            reg::SIGNAL_ENABLE => self.signal_enable = value,
            reg::CONTROL2 => self.write_control2(Control2::from_bits(value)),
            reg::FORCE_EVENT => self.raise(Interrupts::from_bits(value & Interrupts::ERRORS)),
            reg::ADMA_ADDRESS => self.adma = with_low(self.adma, value),
            0x5C => self.adma = with_high(self.adma, value),
            STROBE => self.strobe = value & 1,
            _ => {}
        }
    }

    /// The power control is written: whether the card loses its power, and whether it sees RST_n
    /// now.
    pub(super) fn write_control(&mut self, value: Control) -> (bool, bool) {
        let (was, reset) = (self.is_powered(), self.control.hardware_reset());
        self.control = value;
        (was && !self.is_powered(), value.hardware_reset() && !reset)
    }

    fn write_control2(&mut self, value: Control2) {
        let old = self.control2;
        let mut new = value.with_auto_error(old.auto_error());
        if value.tune() && !old.tune() {
            self.tuned = 0;
        }
        if !value.tune() && old.tune() {
            new = new.with_tune(false);
        }
        self.control2 = new;
    }

    /// The clock is written: whether it will be stable only in a while. Reset bits stay set until
    /// [`reset_done`](Self::reset_done).
    pub(super) fn write_clock(&mut self, value: Clock) -> bool {
        let stable = self.clock.stable() && value.internal();
        self.clock = value.with_stable(stable);
        value.internal() && !stable
    }

    /// The clock is stable.
    pub(super) fn stable(&mut self) {
        self.clock.set_stable(self.clock.internal());
    }

    /// Everything is reset, which is still under way.
    pub(super) fn reset(&mut self) {
        self.power_on();
        self.clock.set_reset_all(true);
    }

    /// A reset is done.
    pub(super) fn reset_done(&mut self) {
        self.clock = Clock::from_bits(self.clock.into_bits() & !Clock::RESETS);
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
