//! Registers of an SD host controller (SDHCI 2.2) as dwords. An 8-bit or 16-bit register shares a
//! dword with its neighbours because a machine offers only 32-bit accesses.

use bitfield_struct::bitfield;

/// SDMA address, argument 2 (of an automatic CMD23) or the long block count.
pub const ARGUMENT2: u32 = 0x00;
/// Block size and count, [`Block`].
pub const BLOCK: u32 = 0x04;
/// Argument.
pub const ARGUMENT: u32 = 0x08;
/// Transfer mode and command, [`Command`]: writing it sends the command.
pub const COMMAND: u32 = 0x0C;
/// Response, four dwords.
pub const RESPONSE: u32 = 0x10;
/// Buffer data port.
pub const BUFFER: u32 = 0x20;
/// Present state, [`Present`].
pub const PRESENT: u32 = 0x24;
/// Host control 1, power, block gap and wake-up, [`Control`].
pub const CONTROL: u32 = 0x28;
/// Clock, time-out and reset, [`Clock`].
pub const CLOCK: u32 = 0x2C;
/// Normal and error interrupt status, [`Interrupts`], write one to clear.
pub const STATUS: u32 = 0x30;
/// Interrupt status enable, [`Interrupts`].
pub const STATUS_ENABLE: u32 = 0x34;
/// Interrupt signal enable, [`Interrupts`].
pub const SIGNAL_ENABLE: u32 = 0x38;
/// Auto command errors and host control 2, [`Control2`].
pub const CONTROL2: u32 = 0x3C;
/// Capabilities, [`Capabilities`], 64 bits.
pub const CAPABILITIES: u32 = 0x40;
/// Force event, for tests.
pub const FORCE_EVENT: u32 = 0x50;
/// ADMA error.
pub const ADMA_ERROR: u32 = 0x54;
/// ADMA address, 64 bits.
pub const ADMA_ADDRESS: u32 = 0x58;
/// Preset values.
pub const PRESETS: u32 = 0x60;
/// Slot interrupt status 15:0, specification version 23:16, vendor version 31:24.
pub const SLOT_VERSION: u32 = 0xFC;

/// Specification version numbers in [`SLOT_VERSION`].
pub mod version {
    /// 3.00.
    pub const V3: u8 = 2;
    /// 4.00.
    pub const V4: u8 = 3;
    /// 4.10.
    pub const V4_1: u8 = 4;
    /// 4.20.
    pub const V4_2: u8 = 5;
}

/// The specification version in [`SLOT_VERSION`].
pub const fn version_of(register: u32) -> u8 {
    (register >> 16) as u8
}

/// Block size and block count (2.2.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Block {
    /// Bytes per block.
    #[bits(12)]
    pub size: u16,
    /// SDMA boundary, 4 KiB << n.
    #[bits(3)]
    pub boundary: u8,
    __: bool,
    /// Number of blocks.
    pub count: u16,
}

/// Automatic commands of a transfer, bits 3:2 of the mode.
pub mod auto {
    /// None.
    pub const NONE: u8 = 0;
    /// CMD12 at the end.
    pub const CMD12: u8 = 1;
    /// CMD23 first, with its argument in argument 2.
    pub const CMD23: u8 = 2;
}

/// Response of a command, bits 1:0 of its flags.
pub mod response {
    /// None.
    pub const NONE: u8 = 0;
    /// 136 bits: R2.
    pub const LONG: u8 = 1;
    /// 48 bits: R1, R3 to R7.
    pub const SHORT: u8 = 2;
    /// 48 bits and busy: R1b.
    pub const BUSY: u8 = 3;
}

/// Transfer mode and command (2.2.5, 2.2.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Command {
    /// Transfer by DMA.
    pub dma: bool,
    /// The block count is valid.
    pub count: bool,
    /// One of [`auto`].
    #[bits(2)]
    pub auto: u8,
    /// Card to host.
    pub read: bool,
    /// More than one block.
    pub multi: bool,
    #[bits(10)]
    __: u16,
    /// One of [`response`].
    #[bits(2)]
    pub response: u8,
    /// Sub command.
    pub sub: bool,
    /// The response's CRC is checked.
    pub check_crc: bool,
    /// The response's index is checked.
    pub check_index: bool,
    /// The command has a data phase.
    pub data: bool,
    /// 3 for commands that abort others.
    #[bits(2)]
    pub kind: u8,
    /// Index.
    #[bits(6)]
    pub index: u8,
    #[bits(2)]
    __: u8,
}

/// Command type: aborts the command under way.
pub const ABORT: u8 = 3;

/// Present state (2.2.9).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Present {
    /// The command line is in use.
    pub command_inhibit: bool,
    /// The data lines are in use.
    pub data_inhibit: bool,
    /// DAT line active.
    pub data_active: bool,
    /// Re-tuning request.
    pub retune: bool,
    /// DAT7 to DAT4.
    #[bits(4)]
    pub data_high: u8,
    /// Write transfer active.
    pub write_active: bool,
    /// Read transfer active.
    pub read_active: bool,
    /// The buffer can take a block.
    pub write_ready: bool,
    /// The buffer holds a block.
    pub read_ready: bool,
    #[bits(4)]
    __: u8,
    /// A card is inserted.
    pub inserted: bool,
    /// Card detection is stable.
    pub stable: bool,
    /// Level of card detection.
    pub detect: bool,
    /// The write protect switch allows writes.
    pub writable: bool,
    /// DAT3 to DAT0; DAT0 low is busy.
    #[bits(4)]
    pub data: u8,
    /// CMD line.
    pub command: bool,
    #[bits(7)]
    __: u8,
}

/// DMA select of host control 1.
pub mod dma {
    /// SDMA.
    pub const SDMA: u8 = 0;
    /// ADMA2, 32-bit addresses (with host version 4 enabled, ADMA2 of either width).
    pub const ADMA2: u8 = 2;
    /// ADMA2, 64-bit addresses of host version 3.
    pub const ADMA2_64: u8 = 3;
}

/// Bus voltage of the power control, bits 3:1.
pub mod voltage {
    /// 1.8 V.
    pub const V1_8: u8 = 5;
    /// 3.0 V.
    pub const V3_0: u8 = 6;
    /// 3.3 V.
    pub const V3_3: u8 = 7;
}

/// Host control 1, power control, block gap and wake-up (2.2.10 to 2.2.13).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// LED.
    pub led: bool,
    /// Four data lines.
    pub bus_4: bool,
    /// High speed timing.
    pub high_speed: bool,
    /// One of [`dma`].
    #[bits(2)]
    pub dma: u8,
    /// Eight data lines.
    pub bus_8: bool,
    /// Card detection from the test level.
    #[bits(2)]
    pub detect: u8,
    /// Bus power.
    pub power: bool,
    /// One of [`voltage`].
    #[bits(3)]
    pub voltage: u8,
    /// Hardware reset of an embedded eMMC device (RST_n), if implemented.
    pub hardware_reset: bool,
    #[bits(3)]
    __: u8,
    /// Block gap control.
    pub gap: u8,
    /// Wake-up control.
    pub wake: u8,
}

/// Clock control, time-out control, software reset (2.2.14 to 2.2.16).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Clock {
    /// Internal clock on.
    pub internal: bool,
    /// The internal clock is stable.
    pub stable: bool,
    /// Clock to the card.
    pub card: bool,
    /// PLL on (version 4).
    pub pll: bool,
    __: bool,
    /// Programmable clock.
    pub programmable: bool,
    /// Bits 9:8 of the divider.
    #[bits(2)]
    pub divider_high: u8,
    /// Bits 7:0: the base clock is divided by twice this; 0 does not divide it.
    pub divider: u8,
    /// Data time-out, 2^(13 + n) clocks of the time-out clock.
    #[bits(4)]
    pub timeout: u8,
    #[bits(4)]
    __: u8,
    /// Resets everything.
    pub reset_all: bool,
    /// Resets the command line.
    pub reset_command: bool,
    /// Resets the data lines.
    pub reset_data: bool,
    #[bits(5)]
    __: u8,
}

impl Clock {
    /// The reset bits.
    pub const RESETS: u32 = 7 << 24;
    /// Longest data time-out.
    pub const TIMEOUT_MAX: u8 = 0xE;

    /// Sets the divider: the card's clock is the base clock over twice its value.
    pub const fn with_division(self, divider: u16) -> Self {
        self.with_divider(divider as u8).with_divider_high((divider >> 8) as u8 & 3)
    }

    /// The divider.
    pub const fn division(self) -> u16 {
        self.divider() as u16 | (self.divider_high() as u16) << 8
    }
}

/// Normal interrupts 15:0 and error interrupts 31:16 (2.2.17, 2.2.18).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Interrupts {
    /// Command complete.
    pub command: bool,
    /// Transfer complete, or end of busy.
    pub transfer: bool,
    /// Block gap.
    pub gap: bool,
    /// DMA boundary.
    pub dma: bool,
    /// The buffer can take a block.
    pub write_ready: bool,
    /// The buffer holds a block.
    pub read_ready: bool,
    /// Card inserted.
    pub insert: bool,
    /// Card removed.
    pub remove: bool,
    /// Card interrupt.
    pub card: bool,
    #[bits(3)]
    __: u8,
    /// Re-tuning.
    pub retune: bool,
    __: bool,
    /// The command queueing engine.
    pub queueing: bool,
    /// One of the error bits is set.
    pub error: bool,
    /// No response.
    pub command_timeout: bool,
    /// Response with a bad CRC.
    pub command_crc: bool,
    /// Response without an end bit.
    pub command_end: bool,
    /// Response with another index.
    pub command_index: bool,
    /// Data did not arrive, or busy did not end.
    pub data_timeout: bool,
    /// Data with a bad CRC.
    pub data_crc: bool,
    /// Data without an end bit.
    pub data_end: bool,
    /// Current limit.
    pub current_limit: bool,
    /// Error of an automatic command.
    pub auto: bool,
    /// ADMA error.
    pub adma: bool,
    /// Tuning error.
    pub tuning: bool,
    #[bits(5)]
    __: u8,
}

impl Interrupts {
    /// All error interrupts.
    pub const ERRORS: u32 = 0xFFFF_0000;
    /// Errors of a command, not of its data.
    pub const COMMAND_ERRORS: u32 = 0x000F_0000;
    /// Errors that a bad sampling point can cause.
    pub const SAMPLING: u32 = 0x0062_0000 | 0x000C_0000;
}

/// UHS mode of host control 2, the timing of the bus.
pub mod uhs {
    /// SDR12; used with high speed off.
    pub const SDR12: u8 = 0;
    /// SDR25.
    pub const SDR25: u8 = 1;
    /// SDR50.
    pub const SDR50: u8 = 2;
    /// SDR104, and HS200.
    pub const SDR104: u8 = 3;
    /// DDR50, and DDR52.
    pub const DDR50: u8 = 4;
    /// HS400: not in SDHCI, but the value that controllers with HS400 use.
    pub const HS400: u8 = 5;
}

/// Auto command errors 15:0 and host control 2, 31:16 (2.2.23, 2.2.24).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Control2 {
    /// Errors of an automatic command.
    pub auto_error: u16,
    /// One of [`uhs`].
    #[bits(3)]
    pub uhs: u8,
    /// 1.8 V signalling.
    pub signal_1_8: bool,
    /// Driver strength.
    #[bits(2)]
    pub driver: u8,
    /// Tuning: set to begin; cleared when it ends.
    pub tune: bool,
    /// The tuned sampling clock is used.
    pub tuned: bool,
    /// UHS-II.
    pub uhs2: bool,
    __: bool,
    /// ADMA2 lengths of 26 bits.
    pub long_lengths: bool,
    /// Automatic selection uses CMD23.
    pub auto_cmd23: bool,
    /// Host version 4.
    pub version_4: bool,
    /// Addresses of 64 bits (version 4).
    pub wide: bool,
    /// Asynchronous interrupts.
    pub asynchronous: bool,
    /// Preset values are used.
    pub presets: bool,
}

/// Capabilities (2.2.26).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Capabilities {
    /// Time-out clock.
    #[bits(6)]
    pub timeout_clock: u8,
    __: bool,
    /// The time-out clock is in MHz, otherwise in kHz.
    pub timeout_mhz: bool,
    /// Base clock, MHz; 0 if not given.
    pub base_mhz: u8,
    /// Longest block: 512 << n.
    #[bits(2)]
    pub block_max: u8,
    /// Eight data lines.
    pub bus_8: bool,
    /// ADMA2.
    pub adma2: bool,
    /// ADMA1.
    pub adma1: bool,
    /// High speed.
    pub high_speed: bool,
    /// SDMA.
    pub sdma: bool,
    /// Suspend and resume.
    pub suspend: bool,
    /// 3.3 V.
    pub v3_3: bool,
    /// 3.0 V.
    pub v3_0: bool,
    /// 1.8 V.
    pub v1_8: bool,
    /// 64-bit addresses, version 4.
    pub wide_v4: bool,
    /// 64-bit addresses, version 3.
    pub wide_v3: bool,
    /// Asynchronous interrupts.
    pub asynchronous: bool,
    /// Slot type: 1 is one embedded device.
    #[bits(2)]
    pub slot: u8,
    /// SDR50.
    pub sdr50: bool,
    /// SDR104, and HS200.
    pub sdr104: bool,
    /// DDR50, and DDR52.
    pub ddr50: bool,
    __: bool,
    /// Driver types A, C, D.
    #[bits(3)]
    pub drivers: u8,
    __: bool,
    /// Re-tuning timer, 2^(n - 1) s; 0 means none.
    #[bits(4)]
    pub retune_timer: u8,
    __: bool,
    /// SDR50 requires tuning.
    pub tune_sdr50: bool,
    /// Re-tuning mode.
    #[bits(2)]
    pub retune_mode: u8,
    /// Clock multiplier, minus one; 0 means none.
    pub multiplier: u8,
    #[bits(3)]
    __: u8,
    /// ADMA3.
    pub adma3: bool,
    #[bits(3)]
    __: u8,
    /// HS400 on Intel's controllers; reserved in SDHCI.
    pub hs400: bool,
}
