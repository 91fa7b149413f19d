//! The eMMC model as seen by a host: registers, memory, the states of the card.

use flysch_api::machine::{Clock, DmaRegion, Identity, Registers};
use flysch_models::emmc::{Config, ENGINE, Emmc, WINDOW, profile};
use flysch_models::machine::{Inline, Mode};
use flysch_models::random::Random;
use flysch_wire::mmc::adma;
use flysch_wire::mmc::command::{
    CommandIndex, OCR_POWERED_UP, OCR_SECTOR_MODE, SwitchArgument, TaskParams,
};
use flysch_wire::mmc::cqhci::{self, CQCFG, CQCTL, CQTCN, CQTDBR, CQTDLBA, CQTERRI, Cqcfg, Cqctl};
use flysch_wire::mmc::cqhci::{Cqterri, DIRECT, Direct, Task, Transfer, act};
use flysch_wire::mmc::ext_csd;
use flysch_wire::mmc::sdhci::{self as reg, Block, Clock as ClockControl, Command, Control};
use flysch_wire::mmc::sdhci::{Interrupts, dma, response, voltage};
use flysch_wire::mmc::{CardState, CardStatus, Csd, ExtCsd};

const BASE: u64 = 0x10_0000;
const DATA: usize = 1 << 20;
const ADDRESS: u32 = 1 << 16;

struct Host {
    machine: Inline<Emmc>,
    memory: DmaRegion,
    /// Addresses count bytes (9: a shift) or sectors (0).
    shift: u32,
}

fn small() -> Config {
    Config { size: 16 << 20, ..Config::default() }
}

impl Host {
    fn new(config: Config) -> Self {
        let memory = DmaRegion::zeroed(8 << 20, BASE);
        let model = Emmc::new(config, memory.clone()).unwrap();
        let machine = Inline::new(model, memory.clone(), Identity::default(), Mode::Virtual);
        Self { machine, memory, shift: 0 }
    }

    /// A card in the transfer state, with one data line, 26 MHz.
    fn up(config: Config) -> Self {
        let mut host = Self::new(config);
        let control = Control::new().with_power(true).with_voltage(voltage::V3_3);
        host.write(reg::CONTROL, control.with_dma(dma::ADMA2).into_bits());
        host.write(reg::STATUS_ENABLE, u32::MAX);
        host.clock(250);
        host.command(CommandIndex::GoIdleState, 0, response::NONE).unwrap();
        let ocr = || host.command(CommandIndex::SendOpCond, 0x40FF_8080, response::SHORT).unwrap();
        let mut word = ocr();
        while word & OCR_POWERED_UP == 0 {
            host.rest(1_000_000);
            word = ocr();
        }
        host.shift = if word & OCR_SECTOR_MODE == 0 { 9 } else { 0 };
        host.command(CommandIndex::AllSendCid, 0, response::LONG).unwrap();
        host.command(CommandIndex::SetRelativeAddr, ADDRESS, response::SHORT).unwrap();
        host.command(CommandIndex::SelectCard, ADDRESS, response::SHORT).unwrap();
        host.clock(4);
        host
    }

    fn write(&self, offset: u32, value: u32) {
        self.machine.write32(offset, value);
    }

    fn read(&self, offset: u32) -> u32 {
        self.machine.read32(offset)
    }

    /// Lets time pass; interrupts are disabled, since an active line would end each wait.
    fn rest(&self, nanos: u64) {
        self.write(reg::SIGNAL_ENABLE, 0);
        let until = self.machine.now().after_nanos(nanos);
        while self.machine.now() < until {
            self.machine.wait(Some(until));
        }
    }

    fn clock(&self, division: u16) {
        let clock = ClockControl::new().with_internal(true).with_division(division);
        self.write(reg::CLOCK, clock.into_bits());
        self.rest(100_000);
        assert!(ClockControl::from_bits(self.read(reg::CLOCK)).stable());
        self.write(reg::CLOCK, clock.with_card(true).into_bits());
    }

    /// Waits for status bits, at most a second; returns errors.
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

    fn command(&self, index: CommandIndex, argument: u32, kind: u8) -> Result<u32, Interrupts> {
        self.send(Command::new().with_index(index.into_bits()).with_response(kind), argument)
    }

    fn status(&self) -> CardStatus {
        let word = self.command(CommandIndex::SendStatus, ADDRESS, response::SHORT);
        CardStatus::from_bits(word.unwrap())
    }

    fn switch(&self, index: u8, value: u8) -> CardStatus {
        let argument = SwitchArgument::write(index, value).into_bits();
        self.command(CommandIndex::Switch, argument, response::SHORT).unwrap();
        let mut error = false;
        loop {
            let status = self.status();
            error |= status.switch_error();
            if status.is_ready() {
                return status.with_switch_error(error);
            }
            self.rest(10_000);
        }
    }

    /// A transfer of blocks between the card and `at` in memory, by ADMA2.
    fn transfer(&self, read: bool, sector: u32, blocks: u16, at: usize) -> Result<(), Interrupts> {
        let bytes = u32::from(blocks) * 512;
        self.memory.store32(0, adma::transfer(bytes, adma::END));
        self.memory.store32(4, (BASE + at as u64) as u32);
        self.write(reg::ADMA_ADDRESS, BASE as u32);
        self.write(reg::BLOCK, Block::new().with_size(512).with_count(blocks).into_bits());
        let count = CommandIndex::SetBlockCount;
        self.command(count, blocks.into(), response::SHORT)?;
        let index = if read { 18 } else { 25 };
        let command = Command::new()
            .with_index(index)
            .with_response(response::SHORT)
            .with_data(true)
            .with_dma(true)
            .with_count(true)
            .with_multi(true)
            .with_read(read);
        let status = CardStatus::from_bits(self.send(command, sector << self.shift)?);
        if status.errors().into_bits() != 0 {
            self.write(reg::CLOCK, self.read(reg::CLOCK) | ClockControl::RESETS & !(1 << 24));
            self.rest(100_000);
            return Err(Interrupts::new());
        }
        self.until(Interrupts::new().with_transfer(true))
    }

    /// A command that reads one block of this many bytes.
    fn fetch(&self, index: CommandIndex, argument: u32, bytes: u16) -> Vec<u8> {
        self.memory.store32(0, adma::transfer(bytes.into(), adma::END));
        self.memory.store32(4, (BASE + DATA as u64) as u32);
        self.write(reg::ADMA_ADDRESS, BASE as u32);
        self.write(reg::BLOCK, Block::new().with_size(bytes).with_count(1).into_bits());
        let command = Command::new()
            .with_index(index.into_bits())
            .with_response(response::SHORT)
            .with_data(true)
            .with_dma(true)
            .with_read(true);
        self.send(command, argument).unwrap();
        self.until(Interrupts::new().with_transfer(true)).unwrap();
        let mut data = vec![0; bytes.into()];
        self.memory.read(DATA, &mut data);
        data
    }

    /// Turns on the engine, with task descriptors at the start of memory.
    fn queueing(config: Config) -> Self {
        let host = Self::up(config);
        assert!(!host.switch(ext_csd::CMDQ_MODE_EN, 1).switch_error());
        host.write(ENGINE + CQTDLBA, BASE as u32);
        host.write(ENGINE + CQCFG, Cqcfg::new().with_direct(true).with_enable(true).into_bits());
        host.write(ENGINE + cqhci::CQISTE, u32::MAX);
        host
    }

    fn task(&self, number: usize, task: Task, at: usize) {
        let word = task.with_valid(true).with_end(true).with_act(act::TASK).into_bits();
        let transfer = Transfer::of(u32::from(task.blocks()) * 512, true).into_bits();
        self.memory.store64(number * 16, word);
        self.memory.store64(number * 16 + 8, u64::from(transfer) | (BASE + at as u64) << 32);
    }

    fn ended(&self, tasks: u32) {
        for _ in 0..100_000 {
            if self.read(ENGINE + CQTCN) & tasks == tasks {
                return;
            }
            self.rest(10_000);
        }
        panic!("tasks {tasks:#x} do not end");
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

#[test]
fn what_is_written_is_read() {
    let host = Host::up(small());
    let content = pattern(64 << 10, 1);
    host.memory.write(DATA, &content);
    host.transfer(false, 100, 127, DATA).unwrap();
    host.transfer(true, 100, 127, 2 * DATA).unwrap();
    let mut back = vec![0; 127 * 512];
    host.memory.read(2 * DATA, &mut back);
    assert!(back == content[..back.len()]);
    let last = (16_u32 << 20) / 512;
    assert!(host.transfer(true, last - 1, 1, DATA).is_ok());
    assert!(host.transfer(true, last - 1, 2, DATA).is_err(), "beyond the end");
}

#[test]
fn a_command_out_of_its_state_is_not_answered_and_the_next_response_says_so() {
    let host = Host::up(small());
    let silent = host.command(CommandIndex::SendCsd, ADDRESS, response::LONG);
    assert!(silent.unwrap_err().command_timeout());
    assert!(host.status().illegal_command());
    let status = host.status();
    assert!(!status.illegal_command(), "once");
    assert_eq!(status.state(), CardState::Transfer);
}

#[test]
fn what_cannot_be_switched_is_a_switch_error() {
    let host = Host::up(small());
    assert!(host.switch(ext_csd::REVISION, 7).switch_error(), "read only");
    assert!(host.switch(ext_csd::PARTITION_CONFIG, 4).switch_error(), "no such partition");
    assert!(host.switch(ext_csd::HS_TIMING, 3).switch_error(), "HS400 on one line");
    assert!(!host.switch(ext_csd::HS_TIMING, 1).switch_error());
    assert!(!host.status().switch_error(), "told once");
}

#[test]
fn a_boot_partition_alone_is_protected_until_power_goes() {
    let host = Host::up(small());
    let status = |host: &Host| {
        let csd = host.fetch(CommandIndex::SendExtCsd, 0, 512);
        csd[usize::from(ext_csd::BOOT_WP_STATUS)]
    };
    // The second of them, until power is lost.
    host.switch(ext_csd::BOOT_WP, 0x83);
    assert_eq!(status(&host), 4);
    for (part, is_open) in [(1, true), (2, false)] {
        host.switch(ext_csd::PARTITION_CONFIG, part);
        assert_eq!(host.transfer(false, 0, 1, DATA).is_ok(), is_open, "{part}");
    }
    host.switch(ext_csd::BOOT_WP, 0);
    assert_eq!(status(&host), 4, "it stays");
    host.switch(ext_csd::BOOT_WP, 4);
    assert_eq!(status(&host), 0xA, "both for ever");
}

#[test]
fn write_protection_of_groups_is_told_with_its_kind() {
    let host = Host::up(Config { size: 64 << 20, ..Config::default() });
    let group = 8 << 11;
    host.command(CommandIndex::SetWriteProt, group << host.shift, response::SHORT).unwrap();
    host.rest(1_000_000);
    assert_eq!(host.fetch(CommandIndex::SendWriteProt, 0, 4), [0, 0, 0, 2]);
    assert_eq!(host.fetch(CommandIndex::SendWriteProtType, 0, 8), [0, 0, 0, 0, 0, 0, 0, 4]);
    assert!(host.transfer(false, group, 1, DATA).is_err());
}

#[test]
fn data_crosses_only_while_both_sides_use_the_bus_the_same_way() {
    let host = Host::up(small());
    host.switch(ext_csd::BUS_WIDTH, ext_csd::bus_width::EIGHT);
    let spoilt = host.transfer(true, 0, 8, DATA);
    assert!(spoilt.unwrap_err().data_crc(), "the card drives eight lines, the host looks at one");
    let control = Control::from_bits(host.read(reg::CONTROL)).with_bus_8(true);
    host.write(reg::CONTROL, control.into_bits());
    host.transfer(true, 0, 8, DATA).unwrap();
    // Faster than legacy timing allows.
    host.clock(1);
    let silent = host.command(CommandIndex::SendStatus, ADDRESS, response::SHORT);
    assert!(silent.unwrap_err().command_timeout());
}

#[test]
fn tasks_run_side_by_side_and_end_by_their_bits() {
    let host = Host::queueing(small());
    let content = pattern(8 * 4096, 3);
    host.memory.write(DATA, &content);
    for n in 0..8 {
        let task = Task::new().with_blocks(8).with_address(64 * n as u32);
        host.task(n, task, DATA + n * 4096);
    }
    host.write(ENGINE + CQTDBR, 0xFF);
    host.ended(0xFF);
    assert_eq!(host.read(ENGINE + CQTDBR), 0);
    host.write(ENGINE + CQTCN, 0xFF);
    assert_eq!(host.read(ENGINE + CQTCN), 0);
    for n in 0..8 {
        let task = Task::new().with_blocks(8).with_address(64 * n as u32).with_read(true);
        host.task(n, task, 2 * DATA + n * 4096);
    }
    let start = host.machine.now();
    host.write(ENGINE + CQTDBR, 0xFF);
    host.ended(0xFF);
    let all = host.machine.now() - start;
    let mut back = vec![0; content.len()];
    host.memory.read(2 * DATA, &mut back);
    assert!(back == content);
    host.write(ENGINE + CQTCN, 0xFF);
    let start = host.machine.now();
    host.write(ENGINE + CQTDBR, 1);
    host.ended(1);
    let one = host.machine.now() - start;
    assert!(all < one * 8, "{all:?} for eight, {one:?} for one");
}

/// The direct command is the only thing left to do when the last task before it is on the medium:
/// no other event starts it.
#[test]
fn a_direct_command_begins_when_the_last_task_before_it_is_on_the_medium() {
    let host = Host::queueing(small());
    host.task(0, Task::new().with_blocks(8).with_reliable(true), DATA);
    let direct = Direct::new()
        .with_valid(true)
        .with_end(true)
        .with_act(act::TASK)
        .with_command(CommandIndex::SendStatus.into_bits())
        .with_response(cqhci::RESPONSE_48);
    let word = u64::from(direct.into_bits()) | u64::from(ADDRESS) << 32;
    host.memory.store64(usize::from(DIRECT) * 16, word);
    host.write(ENGINE + CQTDBR, 1);
    host.write(ENGINE + CQTDBR, 1 << DIRECT);
    host.ended(1 | 1 << DIRECT);
}

#[test]
fn a_task_the_card_refuses_names_itself_and_stops_the_engine() {
    let host = Host::queueing(small());
    host.task(3, Task::new().with_blocks(8).with_address(u32::MAX - 8).with_read(true), DATA);
    host.task(4, Task::new().with_blocks(8).with_read(true), DATA);
    host.write(ENGINE + CQTDBR, 1 << 3);
    host.rest(1_000_000);
    host.write(ENGINE + CQTDBR, 1 << 4);
    host.rest(10_000_000);
    let error = Cqterri::from_bits(host.read(ENGINE + CQTERRI));
    assert!(error.command_valid());
    assert_eq!((error.command_task(), error.command()), (3, 45));
    assert_eq!(host.read(ENGINE + CQTCN), 0, "nothing ends after it");
    let halt = Cqctl::new().with_halt(true);
    host.write(ENGINE + CQCTL, halt.into_bits());
    assert!(Cqctl::from_bits(host.read(ENGINE + CQCTL)).halt());
    host.write(ENGINE + CQCTL, halt.with_clear_all(true).into_bits());
    assert_eq!(host.read(ENGINE + CQTDBR), 0);
    host.command(CommandIndex::CmdqTaskMgmt, 1, response::SHORT).unwrap();
    host.write(ENGINE + CQCTL, 0);
    host.task(4, Task::new().with_blocks(8).with_read(true), DATA);
    host.write(ENGINE + CQTDBR, 1 << 4);
    host.ended(1 << 4);
}

#[test]
fn a_card_that_queues_takes_no_plain_transfers_and_one_that_does_not_no_tasks() {
    let host = Host::queueing(small());
    host.write(ENGINE + CQCTL, Cqctl::new().with_halt(true).into_bits());
    assert!(host.transfer(true, 0, 8, DATA).unwrap_err().command_timeout());
    let plain = Host::up(Config { profile: profile::HS400, ..small() });
    assert!(plain.switch(ext_csd::CMDQ_MODE_EN, 1).switch_error());
    let params = TaskParams::new().with_blocks(1).into_bits();
    let queued = plain.command(CommandIndex::QueuedTaskParams, params, response::SHORT);
    assert!(queued.unwrap_err().command_timeout());
}

#[test]
fn what_was_not_flushed_may_go_with_the_power_and_what_was_stays() {
    let host = Host::up(Config { volatile_cache: true, ..small() });
    host.switch(ext_csd::CACHE_CTRL, 1);
    let content = pattern(64 << 10, 5);
    host.memory.write(DATA, &content);
    host.transfer(false, 0, 64, DATA).unwrap();
    host.switch(ext_csd::FLUSH_CACHE, 1);
    host.transfer(false, 1024, 64, DATA).unwrap();
    let loss = host.machine.with_model(|model| model.cut_power().unwrap());
    assert_eq!(loss.vanished + loss.survived, 64, "sectors that were in the cache alone");
    assert!(loss.vanished > 0);
    assert!(host.command(CommandIndex::SendStatus, ADDRESS, response::SHORT).is_err());
}

impl Host {
    /// Cycles the power and brings the card up again; returns its CSD.
    fn power_cycle(&self) -> Csd {
        let on = Control::from_bits(self.read(reg::CONTROL));
        self.write(reg::CONTROL, on.with_power(false).into_bits());
        self.write(reg::CONTROL, on.into_bits());
        self.clock(250);
        self.command(CommandIndex::GoIdleState, 0, response::NONE).unwrap();
        self.rest(10_000_000);
        self.command(CommandIndex::SendOpCond, 0x40FF_8080, response::SHORT).unwrap();
        self.command(CommandIndex::AllSendCid, 0, response::LONG).unwrap();
        self.command(CommandIndex::SetRelativeAddr, ADDRESS, response::SHORT).unwrap();
        let csd = self.csd();
        self.command(CommandIndex::SelectCard, ADDRESS, response::SHORT).unwrap();
        self.clock(4);
        csd
    }

    /// The CSD of a card in its stand-by state.
    fn csd(&self) -> Csd {
        self.command(CommandIndex::SendCsd, ADDRESS, response::LONG).unwrap();
        let words = [0, 4, 8, 12].map(|at| u128::from(self.read(reg::RESPONSE + at)));
        Csd::parse(words.iter().rev().fold(0, |all, word| all << 32 | word) << 8)
    }

    fn ext_csd(&self) -> ExtCsd {
        ExtCsd(self.fetch(CommandIndex::SendExtCsd, 0, 512).try_into().unwrap())
    }

    /// A multi-byte value, lowest byte first.
    fn settings(&self, index: u8, bytes: &[u8]) {
        for (n, &byte) in bytes.iter().enumerate() {
            assert!(!self.switch(index + n as u8, byte).switch_error(), "{index} + {n}");
        }
    }
}

/// 7.3.12 and 6.4.2: up to 2 GiB the size is in C_SIZE and addresses count bytes; beyond that it is
/// in EXT_CSD and addresses count sectors.
#[test]
fn the_csd_tells_the_size_of_small_cards_alone() {
    for (mib, csd_mib, shift) in [
        (16, 16, 9),
        (256, 256, 9),
        (1024, 1024, 9),
        (2048, 2048, 9),
        (2049, 1024, 0),
        (8192, 1024, 0),
    ] {
        let config = Config { size: mib << 20, ..Config::default() };
        let host = Host::new(config);
        let control = Control::new().with_power(true).with_voltage(voltage::V3_3);
        host.write(reg::CONTROL, control.into_bits());
        host.write(reg::STATUS_ENABLE, u32::MAX);
        host.clock(250);
        host.rest(10_000_000);
        let ocr = host.command(CommandIndex::SendOpCond, 0x40FF_8080, response::SHORT).unwrap();
        assert_eq!(ocr & OCR_SECTOR_MODE == 0, shift == 9, "{mib} MiB");
        host.command(CommandIndex::AllSendCid, 0, response::LONG).unwrap();
        host.command(CommandIndex::SetRelativeAddr, ADDRESS, response::SHORT).unwrap();
        assert_eq!(host.csd().sectors(), csd_mib << 11, "{mib} MiB");
    }
}

#[test]
fn a_byte_address_that_is_no_sectors_is_refused() {
    let host = Host::up(small());
    host.write(reg::BLOCK, Block::new().with_size(512).with_count(1).into_bits());
    let read = Command::new().with_index(17).with_response(response::SHORT);
    assert!(CardStatus::from_bits(host.send(read, 513).unwrap()).address_misalign());
}

/// DATA_SECTOR_SIZE 1: addresses and counts of 512 bytes must be whole native sectors, otherwise an
/// error names the one that is not.
#[test]
fn native_sectors_are_taken_whole_or_not_at_all() {
    let native = || Config { native_sectors: true, volatile_cache: true, ..small() };
    let host = Host::up(native());
    let csd = host.ext_csd();
    assert_eq!((csd.data_sector_bytes(), csd.sectors()), (4096, (16 << 20) / 512));
    let told = [ext_csd::NATIVE_SECTOR_SIZE, ext_csd::USE_NATIVE_SECTOR, ext_csd::INI_TIMEOUT_EMU];
    assert_eq!(told.map(|at| csd.byte(at)), [1; 3]);
    assert!(host.switch(ext_csd::USE_NATIVE_SECTOR, 0).switch_error(), "native for ever");
    host.switch(ext_csd::CACHE_CTRL, 1);
    let content = pattern(8192, 3);
    host.memory.write(DATA, &content);
    host.transfer(false, 8, 16, DATA).unwrap();
    host.transfer(true, 8, 16, 2 * DATA).unwrap();
    let mut back = vec![0; 8192];
    host.memory.read(2 * DATA, &mut back);
    assert_eq!(back, content);
    let refused = |read: bool, sector: u32, blocks: u32| {
        let count = CommandIndex::SetBlockCount;
        host.command(count, blocks, response::SHORT).unwrap();
        let index = if read { 18 } else { 25 };
        let command = Command::new().with_index(index).with_response(response::SHORT);
        CardStatus::from_bits(host.send(command, sector << host.shift).unwrap()).errors()
    };
    let none = CardStatus::new();
    for read in [true, false] {
        assert_eq!(refused(read, 9, 8), none.with_address_misalign(true));
        assert_eq!(refused(read, 8, 7), none.with_block_len_error(true));
    }
    let one = Command::new().with_index(17).with_response(response::SHORT);
    let one = CardStatus::from_bits(host.send(one, 0).unwrap()).errors();
    assert_eq!(one, none.with_block_len_error(true), "a single block");
    let trim = |first: u32, last: u32| {
        host.command(CommandIndex::EraseGroupStart, first << host.shift, response::SHORT).unwrap();
        host.command(CommandIndex::EraseGroupEnd, last << host.shift, response::SHORT).unwrap();
        let trim = host.command(CommandIndex::Erase, 1, response::SHORT).unwrap();
        host.rest(10_000_000);
        CardStatus::from_bits(trim).errors()
    };
    assert_eq!(trim(9, 16), none.with_address_misalign(true));
    assert_eq!(trim(8, 14), none.with_block_len_error(true));
    assert_eq!(trim(8, 15), none);
    // Everything written since is lost or kept in whole native sectors.
    let loss = host.machine.with_model(|model| model.cut_power().unwrap());
    assert_eq!((loss.vanished + loss.survived, loss.torn), (1, 0));
    let host = Host::queueing(native());
    host.task(0, Task::new().with_blocks(8).with_address(8).with_read(true), DATA);
    host.write(ENGINE + CQTDBR, 1);
    host.ended(1);
    host.task(3, Task::new().with_blocks(8).with_address(4).with_read(true), DATA);
    host.write(ENGINE + CQTDBR, 1 << 3);
    host.rest(10_000_000);
    let error = Cqterri::from_bits(host.read(ENGINE + CQTERRI));
    assert_eq!((error.command_valid(), error.command_task(), error.command()), (true, 3, 45));
    let plain = Host::up(small());
    assert_eq!(plain.ext_csd().data_sector_bytes(), 512);
    assert!(plain.switch(ext_csd::USE_NATIVE_SECTOR, 1).switch_error(), "it has none");
}

#[test]
fn partitions_are_made_by_the_power_cycle_after_their_settings_are_completed() {
    let config = Config { size: 128 << 20, ..Config::default() };
    let host = Host::up(config);
    host.memory.write(DATA, &pattern(4096, 9));
    host.transfer(false, 0, 8, DATA).unwrap();
    // The first is 8 MiB, the third 16 MiB and enhanced; 24 MiB of the user area are enhanced.
    host.settings(ext_csd::GP_SIZE, &[1]);
    host.settings(ext_csd::GP_SIZE + 6, &[2]);
    host.settings(ext_csd::ENHANCED_SIZE, &[3]);
    host.settings(ext_csd::PARTITIONS_ATTRIBUTE, &[1 | 1 << 3]);
    host.power_cycle();
    assert_eq!(host.ext_csd().gp_sectors(0), 0, "not completed, not kept");
    host.settings(ext_csd::GP_SIZE, &[1]);
    host.settings(ext_csd::GP_SIZE + 6, &[2]);
    host.settings(ext_csd::ENHANCED_SIZE, &[3]);
    host.settings(ext_csd::PARTITIONS_ATTRIBUTE, &[1 | 1 << 3]);
    assert!(host.switch(ext_csd::PARTITION_CONFIG, 4).switch_error(), "not there yet");
    host.settings(ext_csd::PARTITION_SETTING_COMPLETED, &[1]);
    assert!(host.switch(ext_csd::GP_SIZE, 2).switch_error(), "for ever");
    assert!(host.switch(ext_csd::PARTITION_SETTING_COMPLETED, 1).switch_error(), "once");
    assert_eq!(host.ext_csd().sectors(), 128 << 11, "until power goes");
    let left = (128 - 8 - 2 * 16 - 24) << 11;
    assert_eq!(host.power_cycle().sectors(), left);
    let csd = host.ext_csd();
    assert_eq!(csd.sectors(), left);
    assert_eq!([0, 1, 2, 3].map(|n| csd.gp_sectors(n)), [8 << 11, 0, 16 << 11, 0]);
    host.transfer(true, 0, 8, 2 * DATA).unwrap();
    let mut back = vec![0; 4096];
    host.memory.read(2 * DATA, &mut back);
    assert!(back == pattern(4096, 9), "the user area begins where it began");
    assert!(host.transfer(true, (64 << 11) - 1, 2, DATA).is_err(), "it is smaller");
    host.settings(ext_csd::PARTITION_CONFIG, &[6]);
    host.transfer(false, (16 << 11) - 8, 8, DATA).unwrap();
    assert!(host.transfer(true, (16 << 11) - 1, 2, DATA).is_err());
    assert!(host.switch(ext_csd::PARTITION_CONFIG, 5).switch_error(), "there is no second");
}

#[test]
fn settings_that_do_not_fit_cannot_be_completed() {
    type Settings = &'static [(u8, &'static [u8])];
    let cases: [(&str, Settings); 4] = [
        ("more than there is", &[(ext_csd::GP_SIZE, &[16])]),
        ("more enhanced than can be", &[(ext_csd::ENHANCED_SIZE, &[9]), (156, &[1])]),
        ("not aligned", &[(136, &[0, 16]), (ext_csd::ENHANCED_SIZE, &[1]), (156, &[1])]),
        ("behind the end", &[(136, &[0, 0, 0, 8]), (ext_csd::ENHANCED_SIZE, &[1]), (156, &[1])]),
    ];
    for (why, settings) in cases {
        let host = Host::up(Config { size: 128 << 20, ..Config::default() });
        for (index, bytes) in settings {
            host.settings(*index, bytes);
        }
        let status = host.switch(ext_csd::PARTITION_SETTING_COMPLETED, 1);
        assert!(status.switch_error(), "{why}");
        host.power_cycle();
        assert_eq!(host.ext_csd().sectors(), 128 << 11, "{why}");
    }
}

/// A count of zero stops the controller before the first block: found by fuzzing, as an empty
/// transfer that never ended.
#[test]
fn a_transfer_of_no_blocks_ends_in_a_data_timeout() {
    let host = Host::up(small());
    host.write(reg::BLOCK, Block::new().with_size(512).into_bits());
    let command = Command::new()
        .with_index(18)
        .with_response(response::SHORT)
        .with_data(true)
        .with_multi(true)
        .with_read(true);
    host.send(command, 0).unwrap();
    let ended = host.until(Interrupts::new().with_transfer(true));
    assert!(ended.unwrap_err().data_timeout());
}

/// Noise in registers and in the lists they point to: the model answers in bounded time, and a
/// reset recovers it.
#[test]
fn noise_breaks_nothing() {
    for seed in 1..=20 {
        let host = Host::queueing(small());
        let mut random = Random::new(seed);
        for _ in 0..3000 {
            let (area, value) = (random.below(8), random.bits());
            let offset = match area {
                0..=2 => random.below(0x60) as u32 & !3,
                3..=5 => (ENGINE + random.below(0x60) as u32) & !3,
                6 => random.below(WINDOW.into()) as u32 & !3,
                _ => {
                    let at = random.below(2048) as usize & !7;
                    // Nearly a valid descriptor.
                    host.memory.store64(at, value & 0xFF_FFFF_00FF_FFFF | 1);
                    continue;
                }
            };
            match random.below(3) {
                0 => drop(host.read(offset)),
                1 => host.write(offset, value as u32),
                _ => host.write(offset, 1 << random.below(32)),
            }
            if random.below(50) == 0 {
                host.rest(random.below(2_000_000));
            }
        }
        host.write(reg::CLOCK, ClockControl::new().with_reset_all(true).into_bits());
        host.rest(1_000_000);
        assert_eq!(host.read(reg::CLOCK), 0, "seed {seed}");
        assert_eq!(host.read(ENGINE + CQTDBR), 0);
    }
}
