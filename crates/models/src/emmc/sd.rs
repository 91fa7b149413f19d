//! What an SD card has of its own: identification, application commands, functions that are
//! switched, 1.8 V signalling. Section numbers are those of the Physical Layer Simplified
//! Specification.

use flysch_wire::mmc::command::{BlockCount, CommandIndex, OCR_POWERED_UP, OCR_SECTOR_MODE, erase};
use flysch_wire::mmc::sd::{self, Scr, SdStatus, SwitchStatus};
use flysch_wire::mmc::{CardState, CardStatus, Cid, Csd};

use super::card::{Answer, Busy, Card, Load, Response, small_size};
use super::config::Config;

/// The clock stands still for so long at least when the voltage changes (4.2.4.2), nanoseconds.
const SWITCH_NS: u64 = 5_000_000;
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

/// The voltage of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// 3.3 V.
    High,
    /// CMD11 was answered: the card holds its lines down. Since when the clock stands still.
    Switching(Option<u64>),
    /// The host went on before it was time, or at 3.3 V: only power brings the card back.
    Stuck,
    /// 1.8 V.
    Low,
}

/// What an SD card has of its own.
#[derive(Debug)]
pub(super) struct Sd {
    /// Functions of group 1 it has, most of them at 1.8 V alone.
    modes: u8,
    signal: Signal,
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
            signal: Signal::High,
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

    /// Power came: the lines are at 3.3 V.
    pub(super) fn power_on(&mut self) {
        self.reset();
        self.signal = Signal::High;
    }

    /// CMD0; the voltage of the lines stays.
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

    /// Whether the card holds its command and data lines down.
    pub(super) fn holds_lines(&self) -> bool {
        matches!(self.signal, Signal::Switching(_) | Signal::Stuck)
    }

    /// Whether what the host sends at 1.8 V, or at 3.3 V, reaches the card.
    pub(super) fn hears(&self, low: bool) -> bool {
        match self.signal {
            Signal::High => !low,
            Signal::Low => low,
            Signal::Switching(_) | Signal::Stuck => false,
        }
    }

    /// The clock runs or stands still from `now` on, with lines at 1.8 V if they are `low`.
    pub(super) fn clock(&mut self, (runs, low): (bool, bool), now: u64) {
        let Signal::Switching(still) = self.signal else { return };
        self.signal = match (runs, still) {
            (false, still) => Signal::Switching(still.or(Some(now))),
            (true, None) => return,
            (true, Some(since)) if low && now >= since + SWITCH_NS => Signal::Low,
            (true, Some(_)) => Signal::Stuck,
        };
    }

    /// Functions of group 1 it has with its lines as they are.
    fn modes_now(&self) -> u8 {
        let modes = self.modes | 1;
        if self.signal == Signal::Low { modes } else { modes & SLOW_MODES }
    }

    /// CMD6: whether functions can be, and with [`sd::SWITCH_SET`] that they are once its status
    /// has crossed the bus. One that cannot be keeps all from it (4.3.10.3).
    fn switch(&mut self, argument: u32, fails: bool) {
        let [second, third, fourth, fifth, sixth] = OTHER_GROUPS;
        let first = u16::from(self.modes_now());
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

    /// What an SD card has put down for the command.
    pub(super) fn message(&self) -> &[u8] {
        self.sd.as_ref().map_or(&[], Sd::message)
    }

    /// Whether what the host sends at 1.8 V, or at 3.3 V, reaches the device. The voltage of an
    /// eMMC device's lines is that of its board.
    pub(super) fn hears(&self, low: bool) -> bool {
        self.sd.as_ref().is_none_or(|sd| sd.hears(low))
    }

    /// Whether the device holds its lines down, all of them.
    pub(super) fn holds_lines(&self) -> bool {
        self.sd.as_ref().is_some_and(Sd::holds_lines)
    }

    /// The clock runs or stands still from `now` on, with lines at 1.8 V if they are `low`.
    pub(super) fn clock(&mut self, lines: (bool, bool), now: u64) {
        if let Some(sd) = &mut self.sd {
            sd.clock(lines, now);
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
        match (index, self.state) {
            // CMD8 of SD.
            (CommandIndex::SendExtCsd, CardState::Idle) => self.interface_condition(argument),
            (CommandIndex::AppCmd, CardState::Ready | CardState::Identification) => self.ignore(),
            (CommandIndex::AppCmd, _) if mine && !self.is_busy => {
                let answer = self.answer(Busy::None)?;
                self.sd.as_mut()?.application = true;
                Some(of_application(answer))
            }
            (CommandIndex::VoltageSwitch, CardState::Ready) => self.voltage_switch(),
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
                sd.switch(argument, fails);
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

    /// CMD8: the card says what it was sent if it can take the voltage, else nothing (4.3.13).
    fn interface_condition(&mut self, argument: u32) -> Option<Answer> {
        if argument & 0xF00 != sd::IF_COND & 0xF00 {
            return None;
        }
        self.sd.as_mut()?.is_asked = true;
        let response = Response::Status(argument & 0xFFF);
        Some(Answer { response, phase: None, busy: Busy::None })
    }

    /// ACMD41 (4.2.3): a card of high capacity does not come up for a host that did not ask for it.
    fn operating_condition(&mut self, argument: u32, now: u64) -> Option<Answer> {
        let is_high = self.address_shift == 0;
        let mut ocr = sd::VOLTAGES;
        let sd = self.sd.as_mut()?;
        let fits = !is_high || sd.is_asked && argument & sd::HCS != 0;
        if argument & sd::VOLTAGES != 0 && now >= self.ready_at && fits {
            ocr |= OCR_POWERED_UP;
            // UHS-I is for high capacity.
            let has_uhs = is_high && sd.modes & !SLOW_MODES != 0;
            sd.granted = has_uhs && argument & sd::S18 != 0 && sd.signal == Signal::High;
            if sd.granted {
                ocr |= sd::S18;
            }
            if is_high {
                ocr |= OCR_SECTOR_MODE;
            }
            self.state = CardState::Ready;
        }
        Some(Answer { response: Response::Ocr(ocr), phase: None, busy: Busy::None })
    }

    /// CMD11: what follows is for the host to do with clock and voltage.
    fn voltage_switch(&mut self) -> Option<Answer> {
        if !self.sd.as_ref()?.granted {
            return self.ignore();
        }
        let answer = self.answer(Busy::None);
        self.sd.as_mut()?.signal = Signal::Switching(None);
        answer
    }

    /// CMD3: R6, the address and bits 23, 22, 19 and 12:0 of the status.
    fn publish_address(&mut self) -> Option<Answer> {
        let status = self.status();
        self.rca = ADDRESS;
        self.state = CardState::StandBy;
        let errors = status >> 8 & 0xC000 | status >> 6 & 0x2000;
        let response = Response::Status(u32::from(ADDRESS) << 16 | errors | status & 0x1FFF);
        Some(Answer { response, phase: None, busy: Busy::None })
    }

    /// A command after CMD55; `None` is one that means the same without it.
    fn application_command(&mut self, index: u8, argument: u32, now: u64) -> Option<Answer> {
        match (index, self.state) {
            (sd::SD_SEND_OP_COND, CardState::Idle) => self.operating_condition(argument, now),
            (_, CardState::Transfer) if !self.is_busy => self.register_command(index, argument),
            _ => None,
        }
    }

    fn register_command(&mut self, index: u8, argument: u32) -> Option<Answer> {
        let sd = self.sd.as_mut()?;
        match index {
            sd::SET_BUS_WIDTH => match argument {
                0 | sd::FOUR_LINES => sd.four_lines = argument == sd::FOUR_LINES,
                _ => return self.refuse(CardStatus::new().with_out_of_range(true)),
            },
            sd::SET_WR_BLK_ERASE_COUNT | sd::SET_CLR_CARD_DETECT => {}
            sd::SD_STATUS => {
                let status = SdStatus {
                    four_lines: sd.four_lines,
                    speed_class: 4,
                    allocation_unit: 9,
                    erase_units: 16,
                    erase_seconds: 1,
                    uhs_grade: 3,
                };
                sd.message = status.emit();
                return self.phase(true, Load::Message, Some(1));
            }
            sd::SEND_NUM_WR_BLOCKS => {
                sd.put(&sd.well.to_be_bytes());
                return self.phase(true, Load::Message, Some(1));
            }
            sd::SEND_SCR => {
                let scr = Scr {
                    version: 2,
                    third: true,
                    erased_ones: false,
                    four_lines: true,
                    block_count: true,
                };
                sd.put(&scr.emit());
                return self.phase(true, Load::Message, Some(1));
            }
            _ => return None,
        }
        self.answer(Busy::None)
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
