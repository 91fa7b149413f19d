//! What an SD card has of its own: identification, application commands, functions that are
//! switched. Section numbers are those of the Physical Layer Simplified
//! Specification.

use flysch_wire::mmc::command::{BlockCount, CommandIndex, OCR_POWERED_UP, OCR_SECTOR_MODE, erase};
use flysch_wire::mmc::sd::{self, Scr, SdStatus, SwitchStatus};
use flysch_wire::mmc::{CardState, CardStatus, Cid, Csd};

use super::card::{Answer, Busy, Card, Load, Response, small_size};
use super::config::Config;
use super::signal::Signal;

/// Functions of group 1 that need no 1.8 V.
const SLOW_MODES: u8 = 1 << 0 | 1 << sd::HIGH_SPEED;
/// Group 4: 200, 400, 600 and 800 mA; 3: driver types A to D; 2: the default system alone.
const OTHER_GROUPS: [u16; 5] = [1, 0xF, 0xF, 1, 1];
/// Every group of functions has function 15, which is none.
const NO_FUNCTION: u16 = 1 << 15;
/// Current of what is in force, mA.
const CURRENT: u16 = 200;
/// The card's relative address, which it chooses itself.
const ADDRESS: u16 = 0x5D01;
/// CCC: basic, block reads and writes, erase, application commands, switch.
const CLASSES: u16 = 1 << 0 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 10;
/// ERASE_GRP_SIZE and the bits after it, where SD cards have ERASE_BLK_EN and SECTOR_SIZE: sectors
/// are erased one by one, or 128 at once.
const ERASE: (u8, u8) = (31, 28);

/// What an SD card has of its own.
#[derive(Debug)]
pub(super) struct Sd {
    /// Functions of group 1 it has, most of them at 1.8 V alone.
    modes: u8,
    /// It agreed to 1.8 V.
    granted: bool,
    /// CMD8 came, with a voltage it can take.
    is_asked: bool,
    /// CMD55 came right before.
    application: bool,
    /// Four data lines.
    four_lines: bool,
    /// The functions of groups 1 to 4 in force, and those that will be once the status has crossed
    /// the bus.
    functions: [u8; 4],
    next: Option<[u8; 4]>,
    /// Sectors of the last write that arrived well.
    well: u32,
    /// What the data of a register's command is.
    message: [u8; 64],
}

/// CID and CSD of a card of this configuration (5.2, 5.3).
pub(super) fn registers(config: &Config) -> (u128, u128) {
    let cid = Cid {
        manufacturer: 0xFE,
        oem: 0x464C,
        product: *b"FLYSD\0",
        revision: 0x10,
        serial: config.serial,
        // November 2026.
        date: 26 << 4 | 11,
    };
    let large = ((config.size >> 19) as u32).saturating_sub(1);
    let (structure, (read_block_shift, size)) = match small_size(config.size) {
        Some(small) => (0, small),
        None => (1, (9, large)),
    };
    let csd = Csd {
        structure,
        version: 0,
        taac: 0x0E,
        nsac: 0,
        speed: 0x32,
        classes: CLASSES,
        read_block_shift,
        size,
        size_shift: 7,
        erase_size: ERASE.0,
        erase_count: ERASE.1,
        write_protect_size: 0,
        write_shift: 2,
        write_protected: false,
    };
    (cid.emit_sd(), csd.emit_sd())
}

impl Sd {
    pub(super) fn new(modes: u8) -> Self {
        Self {
            modes,
            granted: false,
            is_asked: false,
            application: false,
            four_lines: false,
            functions: [0; 4],
            next: None,
            well: 0,
            message: [0; 64],
        }
    }

    /// Power came, or CMD0.
    pub(super) fn reset(&mut self) {
        (self.granted, self.is_asked, self.application) = (false, false, false);
        (self.four_lines, self.functions, self.next, self.well) = (false, [0; 4], None, 0);
    }

    /// Data lines, and whether data is on both edges.
    pub(super) fn lines(&self) -> (u8, bool) {
        (if self.four_lines { 4 } else { 1 }, self.functions[0] == sd::DDR50)
    }

    /// The fastest clock of the access mode, Hz.
    pub(super) fn clock_max(&self) -> u64 {
        match self.functions[0] {
            sd::HIGH_SPEED | sd::DDR50 => 50_000_000,
            sd::SDR50 => 100_000_000,
            sd::SDR104 => 208_000_000,
            _ => 25_000_000,
        }
    }

    /// The status of a switch has crossed the bus: from now on what it says is in force.
    pub(super) fn end_data(&mut self) {
        if let Some(next) = self.next.take() {
            self.functions = next;
        }
    }

    /// The data of a command did not cross the bus.
    pub(super) fn fail_data(&mut self) {
        self.next = None;
    }

    /// So many sectors of the write under way arrived.
    pub(super) fn set_well(&mut self, sectors: u32) {
        self.well = sectors;
    }

    /// What the card has put down for the command.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// CMD8: the card says what it was sent if it can take the voltage, else nothing (4.3.13).
    fn interface_condition(&mut self, argument: u32) -> Option<Answer> {
        if argument & 0xF00 != sd::IF_COND & 0xF00 {
            return None;
        }
        self.is_asked = true;
        Some(Answer::of(Response::Status(argument & 0xFFF)))
    }

    /// ACMD41 (4.2.3): the OCR. A card of high capacity does not come up for a host that did not
    /// ask for it, nor any before it `is_up`.
    fn operating_condition(
        &mut self,
        argument: u32,
        (is_high, is_up): (bool, bool),
        signal: &Signal,
    ) -> u32 {
        let fits = !is_high || self.is_asked && argument & sd::HCS != 0;
        if argument & sd::VOLTAGES == 0 || !is_up || !fits {
            return sd::VOLTAGES;
        }
        // UHS-I is for high capacity.
        let has_uhs = is_high && self.modes & !SLOW_MODES != 0;
        self.granted = has_uhs && argument & sd::S18 != 0 && signal.is_high();
        let low = if self.granted { sd::S18 } else { 0 };
        let high = if is_high { OCR_SECTOR_MODE } else { 0 };
        sd::VOLTAGES | OCR_POWERED_UP | low | high
    }

    /// A command that is about the card's registers: whether it has data, which is in the message
    /// then; `None` is no such command.
    fn register_command(&mut self, index: u8, argument: u32) -> Option<Result<bool, CardStatus>> {
        match index {
            sd::SET_BUS_WIDTH => match argument {
                0 | sd::FOUR_LINES => self.four_lines = argument == sd::FOUR_LINES,
                _ => return Some(Err(CardStatus::new().with_out_of_range(true))),
            },
            sd::SET_WR_BLK_ERASE_COUNT | sd::SET_CLR_CARD_DETECT => {}
            sd::SD_STATUS => {
                let status = SdStatus {
                    four_lines: self.four_lines,
                    speed_class: 4,
                    allocation_unit: 9,
                    erase_units: 16,
                    erase_seconds: 1,
                    uhs_grade: 3,
                };
                self.message = status.emit();
                return Some(Ok(true));
            }
            sd::SEND_NUM_WR_BLOCKS => {
                self.put(&self.well.to_be_bytes());
                return Some(Ok(true));
            }
            sd::SEND_SCR => {
                let scr = Scr {
                    version: 2,
                    third: true,
                    erased_ones: false,
                    four_lines: true,
                    block_count: true,
                };
                self.put(&scr.emit());
                return Some(Ok(true));
            }
            _ => return None,
        }
        Some(Ok(false))
    }

    /// CMD6 with lines at 1.8 V or not: whether functions can be, and with [`sd::SWITCH_SET`] that
    /// they are once its status has crossed the bus. One that cannot be keeps all from it
    /// (4.3.10.3).
    fn switch(&mut self, argument: u32, is_low: bool, fails: bool) {
        let [second, third, fourth, fifth, sixth] = OTHER_GROUPS;
        let modes = self.modes | 1;
        let first = u16::from(if is_low { modes } else { modes & SLOW_MODES });
        let functions = [first, second, third, fourth, fifth, sixth].map(|has| has | NO_FUNCTION);
        let mut next = self.functions;
        let chosen = core::array::from_fn(|group| {
            let asked = (argument >> (4 * group) & 0xF) as u8;
            let now = self.functions.get(group).copied().unwrap_or(0);
            if asked == sd::SWITCH_NONE {
                return now;
            }
            if fails || functions[group] >> asked & 1 == 0 {
                return sd::SWITCH_NONE;
            }
            if let Some(next) = next.get_mut(group) {
                *next = asked;
            }
            asked
        });
        let can = !chosen.contains(&sd::SWITCH_NONE);
        let current = if can { CURRENT } else { 0 };
        self.message = SwitchStatus { current, functions, chosen }.emit();
        self.next = (can && argument & sd::SWITCH_SET != 0).then_some(next);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.message = [0; 64];
        self.message[..bytes.len()].copy_from_slice(bytes);
    }
}

impl Card {
    /// So many sectors of the write under way arrived.
    pub(super) fn set_well(&mut self, sectors: u32) {
        if let Some(sd) = &mut self.sd {
            sd.set_well(sectors);
        }
    }

    /// A command to an SD card; `fails`: a fault of a switch.
    pub(super) fn sd_command(
        &mut self,
        index: CommandIndex,
        argument: u32,
        (now, fails): (u64, bool),
    ) -> Option<Answer> {
        let sd = self.sd.as_mut()?;
        if core::mem::take(&mut sd.application) {
            let number = index.into_bits();
            if let Some(answer) = self.application_command(number, argument, now) {
                return Some(of_application(answer));
            }
        }
        let mine = self.is_mine(argument);
        let sd = self.sd.as_mut()?;
        match (index, self.state) {
            // CMD8 of SD.
            (CommandIndex::SendExtCsd, CardState::Idle) => sd.interface_condition(argument),
            (CommandIndex::AppCmd, CardState::Ready | CardState::Identification) => self.ignore(),
            (CommandIndex::AppCmd, _) if mine && !self.is_busy => {
                let answer = self.answer(Busy::None)?;
                self.sd.as_mut()?.application = true;
                Some(of_application(answer))
            }
            (CommandIndex::VoltageSwitch, CardState::Ready) if sd.granted => {
                self.signal.begin_switch();
                self.answer(Busy::None)
            }
            (CommandIndex::VoltageSwitch, CardState::Ready) => self.ignore(),
            (CommandIndex::SetRelativeAddr, CardState::Identification | CardState::StandBy) => {
                self.publish_address()
            }
            (CommandIndex::SendStatus, _) if mine => self.answer(Busy::None),
            _ => self.shared_command(index, argument, now, |card, count| {
                card.sd_in_transfer(index, argument, (count, fails))
            }),
        }
    }

    fn sd_in_transfer(
        &mut self,
        index: CommandIndex,
        argument: u32,
        (count, fails): (Option<BlockCount>, bool),
    ) -> Option<Answer> {
        let sd = self.sd.as_mut()?;
        match index {
            CommandIndex::Switch => {
                sd.switch(argument, self.signal.is_low(), fails);
                self.phase(true, Load::Message, Some(1))
            }
            CommandIndex::SdSendTuningBlock if sd.functions[0] > sd::HIGH_SPEED => {
                self.phase(true, Load::Tuning, Some(1))
            }
            CommandIndex::SetBlockCount => match u16::try_from(argument) {
                Ok(blocks) => self.set_count(BlockCount::new().with_blocks(blocks)),
                // The controller has no more in its register.
                Err(_) => self.refuse(CardStatus::new().with_out_of_range(true)),
            },
            CommandIndex::SdEraseStart => self.set_erase_start(argument),
            CommandIndex::SdEraseEnd => self.set_erase_end(argument),
            CommandIndex::Erase => self.erase_sectors(argument == erase::ERASE, true),
            _ => self.sector_command(index, argument, count),
        }
    }

    /// CMD3: R6, the address and bits 23, 22, 19 and 12:0 of the status.
    fn publish_address(&mut self) -> Option<Answer> {
        let status = self.status();
        self.rca = ADDRESS;
        self.state = CardState::StandBy;
        let errors = status >> 8 & 0xC000 | status >> 6 & 0x2000;
        let response = Response::Status(u32::from(ADDRESS) << 16 | errors | status & 0x1FFF);
        Some(Answer::of(response))
    }

    /// A command after CMD55; `None` is one that means the same without it.
    fn application_command(&mut self, index: u8, argument: u32, now: u64) -> Option<Answer> {
        let sd = self.sd.as_mut()?;
        match (index, self.state) {
            (sd::SD_SEND_OP_COND, CardState::Idle) => {
                let stands = (self.address_shift == 0, now >= self.ready_at);
                let ocr = sd.operating_condition(argument, stands, &self.signal);
                if ocr & OCR_POWERED_UP != 0 {
                    self.state = CardState::Ready;
                }
                Some(Answer::of(Response::Ocr(ocr)))
            }
            (_, CardState::Transfer) if !self.is_busy => {
                match sd.register_command(index, argument)? {
                    Ok(true) => self.phase(true, Load::Message, Some(1)),
                    Ok(false) => self.answer(Busy::None),
                    Err(error) => self.refuse(error),
                }
            }
            _ => None,
        }
    }
}

/// R1 says that it was, or will be, an application command.
fn of_application(answer: Answer) -> Answer {
    match answer.response {
        Response::Status(bits) => {
            let bits = CardStatus::from_bits(bits).with_app_cmd(true).into_bits();
            Answer { response: Response::Status(bits), ..answer }
        }
        _ => answer,
    }
}
