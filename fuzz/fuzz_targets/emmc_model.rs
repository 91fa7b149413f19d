//! What a host does to the eMMC model: register accesses of every width, commands, descriptor
//! lists, the buffer port, tasks of the engine, memory that changes during a transfer.
//!
//! The first byte selects the controller and the card. The card is selected and the engine enabled
//! before the other bytes are executed as steps. Nothing may panic, and everything that runs must
//! end.
#![no_main]

mod steps;

use flysch_api::machine::{DmaRegion, Instant};
use flysch_models::emmc::profile::{HS400_CMDQ, SD_UHS};
use flysch_models::emmc::{Config, ENGINE, Emmc};
use flysch_models::faults::{Kind, Plan};
use flysch_models::machine::MixedModel;
use flysch_wire::mmc::adma;
use flysch_wire::mmc::command::{SwitchArgument, access};
use flysch_wire::mmc::cqhci::{CQCFG, CQISGE, CQISTE, CQTDBR, CQTDLBA, CQTDLBAU};
use flysch_wire::mmc::ext_csd as at;
use flysch_wire::mmc::sdhci::{
    ADMA_ADDRESS, ARGUMENT, BLOCK, BUFFER, CLOCK, COMMAND, CONTROL, SIGNAL_ENABLE, STATUS,
    STATUS_ENABLE,
};
use libfuzzer_sys::fuzz_target;
use steps::{rest, take};

const BASE: u64 = 0x10_0000;
const LEN: usize = 1 << 20;
/// Offsets of the engine's slots and of the list for the host's own commands.
const SLOTS: usize = 0;
const LIST: usize = 0x1000;
/// Most events between two steps.
const EVENTS_MAX: u32 = 200_000;
/// The faults injected if the first byte asks for them.
const FAULTS: &str = "power:n9,late:n7,crc:n5,switch:n4,task:n6,medium:n11,stuck:n13";
/// Internal clock, card clock, 200 MHz divided by 8: 25 MHz.
const FAST: u32 = 4 << 8 | 5;
/// The same divided by 510.
const SLOW: u32 = 0xFF << 8 | 5;

/// Identification up to the transfer state: values of the command register, and the arguments.
const EMMC: &[(u32, u32)] =
    &[(0, 0), (0x102, 0x40FF_8080), (0x209, 0), (0x31A, 1 << 16), (0x71B, 1 << 16)];
/// The address is the one that the model's cards choose.
const SD: &[(u32, u32)] = &[
    (0, 0),
    (0x81A, 0x1AA),
    (0x371A, 0),
    (0x2902, 0x41FF_8000),
    (0x209, 0),
    (0x31A, 0),
    (0x71B, 0x5D01_0000),
];

struct Host {
    model: Emmc,
    memory: DmaRegion,
    now: Instant,
    is_sd: bool,
}

impl Host {
    fn new(mode: u8) -> Self {
        let memory = DmaRegion::zeroed(LEN, BASE);
        let faults = match mode & 8 {
            0 => Plan::none(),
            _ => Plan::parse(FAULTS, &Kind::EMMC).unwrap_or_default(),
        };
        // Direct commands need an engine: without one, the bit selects an SD card.
        let is_sd = mode & (2 | 64) == 2 | 64;
        let config = Config {
            profile: if is_sd { SD_UHS } else { HS400_CMDQ },
            size: if is_sd && mode & 1 != 0 { 4 << 30 } else { 16 << 20 },
            boot_size: 256 << 10,
            rpmb_size: 128 << 10,
            general: if mode & 1 != 0 && !is_sd { vec![8 << 20] } else { vec![] },
            engine: mode & 2 == 0,
            volatile_cache: mode & 4 != 0,
            adma2: mode & 16 == 0,
            wide: mode & 32 == 0,
            direct: mode & 64 == 0,
            faults,
            ..Config::default()
        };
        let model = Emmc::new(config, memory.clone()).expect("a card");
        let mut host = Self { model, memory, now: Instant::START, is_sd };
        host.enable(mode & 128 == 0);
        host
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.model.write32(offset, value, self.now);
    }

    /// Lets time pass.
    fn rest(&mut self, nanos: u64) {
        rest(&mut self.model, &mut self.now, nanos, EVENTS_MAX);
    }

    /// Power, clock, identification, and the engine if it is `queueing`.
    fn enable(&mut self, queueing: bool) {
        self.write(CONTROL, 0xF << 8);
        self.write(CLOCK, SLOW);
        self.write(STATUS_ENABLE, u32::MAX);
        self.write(SIGNAL_ENABLE, u32::MAX);
        self.rest(10_000_000);
        for &(command, argument) in if self.is_sd { SD } else { EMMC } {
            self.command(command << 16, argument);
            self.rest(5_000_000);
        }
        self.write(CLOCK, FAST);
        self.rest(1_000_000);
        if queueing {
            self.switch(at::CMDQ_MODE_EN, 1);
            self.rest(1_000_000);
            self.write(ENGINE + CQTDLBA, (BASE as usize + SLOTS) as u32);
            self.write(ENGINE + CQTDLBAU, 0);
            self.write(ENGINE + CQISTE, u32::MAX);
            self.write(ENGINE + CQISGE, u32::MAX);
            self.write(ENGINE + CQCFG, 1);
        }
    }

    fn command(&mut self, mode: u32, argument: u32) {
        self.write(ARGUMENT, argument);
        self.write(COMMAND, mode);
    }

    fn switch(&mut self, index: u8, value: u8) {
        let argument = SwitchArgument::new()
            .with_access(access::WRITE_BYTE)
            .with_index(index)
            .with_value(value);
        self.command(0x061B << 16, argument.into_bits());
    }

    /// Writes the list for the host's own commands: one descriptor for `pages` pages.
    fn list(&mut self, pages: u8, attributes: u32) {
        let word = adma::transfer(u32::from(pages) << 12 & 0xFFFF, attributes);
        self.memory.write(LIST, &word.to_le_bytes());
        self.memory.write(LIST + 4, &(BASE as u32 + 0x2_0000).to_le_bytes());
        self.memory.write(LIST + 8, &0_u32.to_le_bytes());
        self.write(ADMA_ADDRESS, (BASE as usize + LIST) as u32);
        self.write(ADMA_ADDRESS + 4, 0);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes;
    let [mode] = take(&mut bytes);
    let mut host = Host::new(mode);
    while !bytes.is_empty() {
        let [step] = take(&mut bytes);
        match step % 8 {
            0 => {
                let offset = u32::from(u16::from_le_bytes(take(&mut bytes))) & 0x2FC;
                host.write(offset, u32::from_le_bytes(take(&mut bytes)));
            }
            1 => {
                // Naturally aligned, as on a bus.
                let width = 1_u8 << (step >> 3 & 3);
                let offset = u32::from(u16::from_le_bytes(take(&mut bytes))) & 0x2FF;
                let offset = offset & !(u32::from(width) - 1);
                if width == 4 {
                    let _ = host.model.read32(offset, host.now);
                } else if step & 0x20 != 0 {
                    let value = u64::from_le_bytes(take(&mut bytes));
                    host.model.write_mixed(offset, width, value, host.now);
                } else {
                    let _ = host.model.read_mixed(offset, width, host.now);
                }
            }
            2 => {
                let at = usize::from(u16::from_le_bytes(take(&mut bytes)));
                let data: [u8; 16] = take(&mut bytes);
                host.memory.write(at & 0x7FF0, &data);
            }
            3 => host.rest(u64::from(u16::from_le_bytes(take(&mut bytes))) * 10_000),
            // A command that is nearly valid, with data by DMA or through the port.
            4 => {
                let [index, flags, count, pages] = take(&mut bytes);
                let argument = u32::from_le_bytes(take(&mut bytes));
                let block = if step & 8 != 0 { u16::from_le_bytes(take(&mut bytes)) } else { 512 };
                host.write(BLOCK, u32::from(count) << 16 | u32::from(block & 0xFFF));
                host.list(pages, u32::from(step >> 4) & 7);
                let data = u32::from(flags & 1) << 5;
                let mode = u32::from(flags >> 1 & 0x3F);
                let response = u32::from(flags >> 6) | 0x18 | data;
                host.command((u32::from(index & 0x3F) << 8 | response) << 16 | mode, argument);
                host.rest(2_000_000);
                for _ in 0..u32::from(count) * u32::from(step >> 7) {
                    host.write(BUFFER, argument);
                    let _ = host.model.read32(BUFFER, host.now);
                }
            }
            // A byte of EXT_CSD.
            5 => {
                let [index, value] = take(&mut bytes);
                host.switch(index, value);
                host.rest(2_000_000);
            }
            // A task that is nearly valid.
            6 => {
                let [number, count, pages, flags] = take(&mut bytes);
                let sector = u32::from_le_bytes(take(&mut bytes));
                let slot = SLOTS + usize::from(number & 31) * 16;
                let act = u64::from(5 << 3 | 7_u32);
                let task =
                    act | u64::from(flags) << 6 | u64::from(count) << 16 | u64::from(sector) << 32;
                let word = adma::transfer(u32::from(pages) << 12 & 0xFFFF, adma::END);
                host.memory.write(slot, &task.to_le_bytes());
                host.memory.write(slot + 8, &word.to_le_bytes());
                host.memory.write(slot + 12, &(BASE as u32 + 0x4_0000).to_le_bytes());
                host.write(ENGINE + CQTDBR, 1 << (number & 31));
            }
            _ => {
                let [what] = take(&mut bytes);
                match what & 3 {
                    0 => host.write(STATUS, u32::MAX),
                    1 => host.write(CLOCK, FAST | u32::from(what) << 22 & 7 << 24),
                    2 => host.model.need_bkops(),
                    _ => host.model.reset(host.now),
                }
            }
        }
    }
    host.rest(10_000_000_000);
    // Whatever was done to the model, a reset recovers it.
    host.model.reset(host.now);
    host.enable(mode & 128 == 0);
});
