//! The eMMC model's SD card as seen by a host: identification, registers, switchable functions,
//! 1.8 V signalling.

use flysch_api::machine::{Clock as _, DmaRegion, Identity, Registers};
use flysch_models::emmc::profile::SD_UHS;
use flysch_models::emmc::{Config, Emmc};
use flysch_models::machine::{Inline, Mode};
use flysch_wire::mmc::command::{OCR_POWERED_UP, OCR_SECTOR_MODE};
use flysch_wire::mmc::sd::{self, Scr};
use flysch_wire::mmc::sdhci::{
    self as reg, Block, Clock, Command, Control, Control2, Interrupts, Present, dma, response, uhs,
    voltage,
};
use flysch_wire::mmc::{CardState, CardStatus, Cid, Csd, adma};

const BASE: u64 = 0x10_0000;
const DATA: usize = 4096;
const GIB: u64 = 1 << 30;
/// Dividers for 400 kHz and for 25 MHz.
const SLOW: u16 = 250;
const DEFAULT: u16 = 4;

struct Host {
    machine: Inline<Emmc>,
    memory: DmaRegion,
    address: u32,
}

impl Host {
    fn new(size: u64) -> Self {
        let memory = DmaRegion::zeroed(1 << 20, BASE);
        let config = Config { profile: SD_UHS, size, ..Config::default() };
        let model = Emmc::new(config, memory.clone()).unwrap();
        let machine = Inline::new(model, memory.clone(), Identity::default(), Mode::Virtual);
        let host = Self { machine, memory, address: 0 };
        host.power(true);
        host.write(reg::STATUS_ENABLE, u32::MAX);
        host.clock(SLOW);
        host
    }

    /// A card in the transfer state, with one data line, 25 MHz; at 1.8 V if it is `low`.
    fn up(size: u64, low: bool) -> Self {
        let mut host = Self::new(size);
        let ocr = host.ask(low);
        assert!(!low || ocr & sd::S18 != 0, "{ocr:#x}");
        if low {
            host.command(11, 0, response::SHORT).unwrap();
            host.lower(5_000_000);
        }
        host.command(2, 0, response::LONG).unwrap();
        host.address = host.command(3, 0, response::SHORT).unwrap() & 0xFFFF_0000;
        host.command(7, host.address, response::SHORT).unwrap();
        host.clock(DEFAULT);
        host
    }

    /// CMD0, CMD8 and ACMD41 until the card is up; returns its answer.
    fn ask(&self, low: bool) -> u32 {
        self.command(0, 0, response::NONE).unwrap();
        assert_eq!(self.command(8, sd::IF_COND, response::SHORT), Ok(sd::IF_COND));
        let s18 = if low { sd::S18 } else { 0 };
        for _ in 0..100 {
            let ocr = self.application(sd::SD_SEND_OP_COND, sd::VOLTAGES | sd::HCS | s18).unwrap();
            if ocr & OCR_POWERED_UP != 0 {
                return ocr;
            }
            self.rest(1_000_000);
        }
        panic!("it never comes up");
    }

    fn power(&self, on: bool) {
        let control = Control::new().with_voltage(voltage::V3_3).with_dma(dma::ADMA2);
        self.write(reg::CONTROL, control.with_power(on).into_bits());
    }

    /// Switches the lines to 1.8 V, with the clock stopped for `nanos` meanwhile.
    fn lower(&self, nanos: u64) {
        self.write(reg::CLOCK, Clock::new().with_internal(true).into_bits());
        self.write(reg::CONTROL2, Control2::new().with_signal_1_8(true).into_bits());
        self.rest(nanos);
        self.clock(SLOW);
    }

    fn lines(&self) -> u8 {
        Present::from_bits(self.read(reg::PRESENT)).data()
    }

    fn write(&self, offset: u32, value: u32) {
        self.machine.write32(offset, value);
    }

    fn read(&self, offset: u32) -> u32 {
        self.machine.read32(offset)
    }

    fn rest(&self, nanos: u64) {
        self.write(reg::SIGNAL_ENABLE, 0);
        let until = self.machine.now().after_nanos(nanos);
        while self.machine.now() < until {
            self.machine.wait(Some(until));
        }
    }

    fn clock(&self, division: u16) {
        let clock = Clock::new().with_internal(true).with_division(division);
        self.write(reg::CLOCK, clock.into_bits());
        self.rest(100_000);
        self.write(reg::CLOCK, clock.with_card(true).into_bits());
    }

    fn until(&self, bits: Interrupts) -> Result<(), Interrupts> {
        for _ in 0..100_000 {
            let status = self.read(reg::STATUS);
            if status & Interrupts::ERRORS != 0 {
                self.write(reg::STATUS, u32::MAX);
                return Err(Interrupts::from_bits(status));
            }
            if status & bits.into_bits() != 0 {
                self.write(reg::STATUS, bits.into_bits());
                return Ok(());
            }
            self.rest(10_000);
        }
        panic!("nothing happens");
    }

    fn send(&self, command: Command, argument: u32) -> Result<u32, Interrupts> {
        self.write(reg::ARGUMENT, argument);
        self.write(reg::COMMAND, command.into_bits());
        self.until(Interrupts::new().with_command(true))?;
        Ok(self.read(reg::RESPONSE))
    }

    fn command(&self, index: u8, argument: u32, kind: u8) -> Result<u32, Interrupts> {
        self.send(Command::new().with_index(index).with_response(kind), argument)
    }

    fn application(&self, index: u8, argument: u32) -> Result<u32, Interrupts> {
        let told = self.command(55, self.address, response::SHORT)?;
        assert!(CardStatus::from_bits(told).app_cmd());
        self.command(index, argument, response::SHORT)
    }

    fn long(&self, index: u8) -> u128 {
        self.command(index, self.address, response::LONG).unwrap();
        let word = |at: u32| u128::from(self.read(reg::RESPONSE + 4 * at)) << (32 * at + 8);
        (0..4).fold(0, |all, at| all | word(at))
    }

    fn status(&self) -> CardStatus {
        CardStatus::from_bits(self.command(13, self.address, response::SHORT).unwrap())
    }

    /// A transfer of `blocks` of `size` bytes.
    fn transfer(
        &self,
        (index, argument): (u8, u32),
        read: bool,
        (size, blocks): (u16, u16),
    ) -> Result<CardStatus, Interrupts> {
        let bytes = u32::from(size) * u32::from(blocks);
        self.memory.store32(0, adma::transfer(bytes, adma::END));
        self.memory.store32(4, (BASE + DATA as u64) as u32);
        self.write(reg::ADMA_ADDRESS, BASE as u32);
        self.write(reg::BLOCK, Block::new().with_size(size).with_count(blocks).into_bits());
        let command = Command::new()
            .with_index(index)
            .with_response(response::SHORT)
            .with_data(true)
            .with_dma(true)
            .with_count(blocks > 1)
            .with_multi(blocks > 1)
            .with_read(read);
        let status = CardStatus::from_bits(self.send(command, argument)?);
        if status.errors().into_bits() != 0 {
            self.write(reg::CLOCK, self.read(reg::CLOCK) | Clock::RESETS & !(1 << 24));
            self.rest(100_000);
            return Ok(status);
        }
        self.until(Interrupts::new().with_transfer(true))?;
        Ok(status)
    }

    fn fetch(&self, index: u8, argument: u32, bytes: u16) -> Vec<u8> {
        self.transfer((index, argument), true, (bytes, 1)).unwrap();
        let mut data = vec![0; bytes.into()];
        self.memory.read(DATA, &mut data);
        data
    }

    fn register(&self, index: u8, bytes: u16) -> Vec<u8> {
        self.command(55, self.address, response::SHORT).unwrap();
        self.fetch(index, 0, bytes)
    }

    /// CMD6 of group 1: the functions available, and the one that is or would be in force.
    fn switch(&self, set: bool, function: u8) -> (u16, u8) {
        let status = self.fetch(6, sd::access_mode(set, function), 64).try_into().unwrap();
        (sd::access_modes(&status), sd::access_mode_of(&status))
    }

    /// Sets the controller to a UHS-I mode.
    fn follow(&self, mode: u8, division: u16) {
        self.write(reg::CLOCK, Clock::new().with_internal(true).into_bits());
        let control2 = Control2::new().with_signal_1_8(true).with_uhs(mode);
        self.write(reg::CONTROL2, control2.into_bits());
        self.clock(division);
    }

    fn four_lines(&self) {
        self.application(sd::SET_BUS_WIDTH, sd::FOUR_LINES).unwrap();
        self.write(reg::CONTROL, self.read(reg::CONTROL) | 2);
    }
}

#[test]
fn a_card_tells_what_it_is() {
    // Standard, high and extended capacity.
    for (size, structure) in [(GIB, 0), (2 * GIB, 0), (4 * GIB, 1), (64 * GIB, 1)] {
        let host = Host::new(size);
        let ocr = host.ask(true);
        assert_eq!(ocr & OCR_SECTOR_MODE != 0, structure == 1);
        assert_eq!(ocr & sd::S18 != 0, structure == 1, "UHS-I is for high capacity");
        let host = Host::up(size, false);
        let status = host.status();
        assert_eq!((status.state(), status.app_cmd()), (CardState::Transfer, false));
        let scr = Scr::parse(&host.register(sd::SEND_SCR, 8).try_into().unwrap());
        assert!(scr.third && scr.four_lines && scr.block_count);
        assert_eq!(host.register(sd::SD_STATUS, 64)[0], 0, "one line");
        host.command(7, 0, response::NONE).unwrap();
        let csd = Csd::parse_sd(host.long(9));
        assert_eq!((csd.structure, csd.sd_sectors()), (structure, size / 512));
        assert_eq!(&Cid::parse_sd(host.long(10)).product[..5], b"FLYSD");
    }
}

#[test]
fn a_card_of_high_capacity_waits_for_a_host_that_knows_it() {
    for asks in [false, true] {
        let host = Host::new(4 * GIB);
        host.command(0, 0, response::NONE).unwrap();
        if asks {
            host.command(8, sd::IF_COND, response::SHORT).unwrap();
        }
        host.rest(10_000_000);
        let high = if asks { 0 } else { sd::HCS };
        let ocr = host.application(sd::SD_SEND_OP_COND, sd::VOLTAGES | high).unwrap();
        assert_eq!(ocr & OCR_POWERED_UP, 0);
        assert!(host.command(8, 0x2AA, response::SHORT).is_err(), "a voltage it cannot take");
        assert!(host.command(1, 0x40FF_8080, response::SHORT).is_err(), "eMMC's question");
    }
}

#[test]
fn nothing_of_uhs_is_there_at_three_volts() {
    let host = Host::up(4 * GIB, false);
    assert_eq!(host.switch(false, sd::SWITCH_NONE), (0x8003, 0));
    assert_eq!(host.switch(true, sd::SDR104).1, sd::SWITCH_NONE);
    assert_eq!(host.switch(true, sd::HIGH_SPEED).1, sd::HIGH_SPEED);
    host.clock(2);
    assert_eq!(host.switch(false, sd::SWITCH_NONE).1, sd::HIGH_SPEED);
    host.clock(1);
    assert!(host.command(13, host.address, response::SHORT).is_err(), "100 MHz is too fast");
}

#[test]
fn the_card_follows_to_a_lower_voltage_when_the_clock_stood_still_long_enough() {
    for (nanos, follows) in [(5_000_000, true), (3_000_000, false)] {
        let host = Host::new(4 * GIB);
        host.ask(true);
        assert_eq!(host.lines(), 0xF);
        host.command(11, 0, response::SHORT).unwrap();
        assert_eq!(host.lines(), 0, "it holds its lines down");
        host.lower(nanos);
        assert_eq!(host.lines(), if follows { 0xF } else { 0 });
        assert_eq!(host.command(2, 0, response::LONG).is_ok(), follows);
        // CMD0 does not return to 3.3 V, a power cycle does.
        host.write(reg::CONTROL2, 0);
        let _ = host.command(0, 0, response::NONE);
        assert!(host.command(8, sd::IF_COND, response::SHORT).is_err());
        host.power(false);
        host.power(true);
        assert_ne!(host.ask(true) & sd::S18, 0);
    }
    let host = Host::new(4 * GIB);
    host.ask(false);
    assert!(host.command(11, 0, response::SHORT).is_err(), "it was not asked whether it can");
}

#[test]
fn data_crosses_at_each_mode_of_uhs_if_both_sides_have_it() {
    let modes =
        [(sd::DDR50, uhs::DDR50, 2), (sd::SDR50, uhs::SDR50, 1), (sd::SDR104, uhs::SDR104, 0)];
    for (function, mode, division) in modes {
        let host = Host::up(4 * GIB, true);
        host.four_lines();
        assert_eq!(host.switch(true, function), (0x801F, function));
        let before = host.transfer((17, 0), true, (512, 1));
        assert_eq!(before.is_err(), function == sd::DDR50, "the host has one edge still");
        host.follow(mode, division);
        if function == sd::SDR104 {
            let untuned = host.transfer((17, 0), true, (512, 1)).unwrap_err();
            assert!(untuned.data_crc());
            let tune = Control2::new().with_signal_1_8(true).with_uhs(mode).with_tune(true);
            host.write(reg::CONTROL2, tune.into_bits());
            for _ in 0..40 {
                host.write(reg::BLOCK, sd::TUNING_BLOCK.into());
                let command = Command::new().with_index(19).with_response(response::SHORT);
                host.send(command.with_data(true).with_read(true), 0).unwrap();
                host.until(Interrupts::new().with_read_ready(true)).unwrap();
                if !Control2::from_bits(host.read(reg::CONTROL2)).tune() {
                    break;
                }
            }
            assert!(Control2::from_bits(host.read(reg::CONTROL2)).tuned());
        }
        let content = [0x5A; 1024];
        host.memory.write(DATA, &content);
        host.command(23, 2, response::SHORT).unwrap();
        host.transfer((25, 77), false, (512, 2)).unwrap();
        assert_eq!(host.register(sd::SEND_NUM_WR_BLOCKS, 4), [0, 0, 0, 2]);
        host.memory.write(DATA, &[0; 1024]);
        host.command(23, 2, response::SHORT).unwrap();
        host.transfer((18, 77), true, (512, 2)).unwrap();
        let mut back = [0; 1024];
        host.memory.read(DATA, &mut back);
        assert!(back == content);
    }
}

#[test]
fn sectors_are_erased_one_by_one() {
    let host = Host::up(4 * GIB, false);
    host.memory.write(DATA, &[0xA5; 1536]);
    host.command(23, 3, response::SHORT).unwrap();
    host.transfer((25, 10), false, (512, 3)).unwrap();
    host.command(32, 11, response::SHORT).unwrap();
    host.command(33, 11, response::SHORT).unwrap();
    host.command(38, 0, response::SHORT).unwrap();
    while !host.status().is_ready() {
        host.rest(100_000);
    }
    for (sector, byte) in [(10, 0xA5), (11, 0), (12, 0xA5)] {
        assert!(host.fetch(17, sector, 512) == [byte; 512], "{sector}");
    }
    let status = |index, argument| {
        CardStatus::from_bits(host.command(index, argument, response::SHORT).unwrap())
    };
    assert!(status(38, 0).erase_seq_error(), "of what?");
    status(32, 5);
    status(33, 4);
    assert!(status(38, 0).erase_param(), "backwards");
    status(32, 5);
    status(33, (4 * GIB / 512) as u32);
    assert!(status(38, 0).out_of_range());
    assert!(status(23, 0x1_0000).out_of_range());
    assert!(host.command(35, 0, response::SHORT).is_err(), "eMMC's");
}

#[test]
fn a_reset_of_the_controller_takes_the_power_of_the_card() {
    let host = Host::up(4 * GIB, true);
    host.write(reg::CLOCK, Clock::new().with_reset_all(true).into_bits());
    host.rest(1_000_000);
    host.power(true);
    host.write(reg::STATUS_ENABLE, u32::MAX);
    host.clock(SLOW);
    let host = Host { address: 0, ..host };
    assert_ne!(host.ask(true) & sd::S18, 0, "its lines are at 3.3 V again");
}
