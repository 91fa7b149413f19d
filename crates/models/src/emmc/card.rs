//! The device's side of the command line: its states, and what each command does in them.

use flysch_api::machine::Instant;
use flysch_wire::mmc::command::{
    BlockCount, CommandIndex, DISCARD_QUEUE, DISCARD_TASK, HPI, OCR_POWERED_UP, OCR_SECTOR_MODE,
    OCR_VOLTAGES, SEND_QUEUE_STATUS, SLEEP, SwitchArgument, access,
};
use flysch_wire::mmc::ext_csd::{self as at, hs_timing, partition};
use flysch_wire::mmc::{CardState, CardStatus, Cid, Csd, ExtCsd};

use super::config::Config;
use super::ext_csd::{self, ExtendedCsd, FFU_ARGUMENT, PROTECT_GROUP, Switched};
use super::parts::Parts;
use super::profile::Dialect;
use super::protection::Protection;
use super::rpmb::Rpmb;
use super::sd::{self, Sd};
use super::signal::Signal;
use crate::store::Store;

/// After power-on or CMD0 the device says for so long that it is busy, nanoseconds.
const POWER_UP_NS: u64 = 3_000_000;
/// CMD6 that changes a value, nanoseconds.
pub(super) const SWITCH_NS: u64 = 30_000;
/// Sanitize, nanoseconds.
const SANITIZE_NS: u64 = 400_000_000;
/// Background operations, nanoseconds.
const BKOPS_NS: u64 = 60_000_000;
/// Sleep and awake, nanoseconds.
const SLEEP_NS: u64 = 2_000_000;
/// Largest device whose bytes are addressed: 2 GiB (7.4.57, OCR bit 30).
pub(super) const BYTES_MAX: u64 = 2 << 30;
/// The relative address a device has before CMD3.
const RCA: u16 = 1;

/// What a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    None,
    /// R1.
    Status(u32),
    /// R3.
    Ocr(u32),
    /// R2.
    Long(u128),
}

/// What a data phase carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Bytes of a partition from an offset on; forced to the medium.
    Sectors {
        part: u8,
        offset: u64,
        force: bool,
    },
    ExtCsd,
    Tuning,
    /// Write protection of 32 groups from this one on.
    Protection(u32),
    /// The same with its kind.
    ProtectionTypes(u32),
    /// Frames; reliable.
    Rpmb(bool),
    Firmware,
    /// What an SD card has put down for the command.
    Message,
}

/// A data phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) read: bool,
    pub(super) load: Load,
    /// Blocks CMD23 announced; `None` goes on until CMD12.
    pub(super) blocks: Option<u32>,
}

/// How long the device is busy after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    None,
    For(u64),
    /// Until everything that has arrived is on the medium.
    Medium,
    /// The high priority interrupt: what it is busy with ends now.
    Interrupted,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) phase: Option<Phase>,
    pub(super) busy: Busy,
}

impl Answer {
    /// That to a command that is not answered.
    const NONE: Self = Self::of(Response::None);

    /// A response alone.
    pub(super) const fn of(response: Response) -> Self {
        Self { response, phase: None, busy: Busy::None }
    }

    /// R2.
    const fn long(register: u128) -> Self {
        Self::of(Response::Long(register))
    }
}

/// READ_BL_LEN and C_SIZE, with the largest C_SIZE_MULT, of up to 2 GiB.
pub(super) fn small_size(bytes: u64) -> Option<(u8, u32)> {
    match bytes {
        0..=0x4000_0000 => Some((9, (bytes >> 18) as u32 - 1)),
        0x4000_0001..=BYTES_MAX => Some((10, (bytes >> 19) as u32 - 1)),
        _ => None,
    }
}

/// CSD of a device whose user area has so many bytes (7.3.12): up to 2 GiB it tells them, by C_SIZE
/// and READ_BL_LEN with the largest C_SIZE_MULT; beyond that C_SIZE is the largest, and EXT_CSD
/// tells.
fn csd(bytes: u64) -> u128 {
    let (read_block_shift, size) = small_size(bytes).unwrap_or((9, 0xFFF));
    let csd = Csd {
        structure: 3,
        version: 4,
        taac: 0x4F,
        nsac: 1,
        speed: 0x32,
        classes: 0x0F5,
        read_block_shift,
        size,
        size_shift: 7,
        erase_size: 31,
        erase_count: 31,
        write_protect_size: 15,
        write_shift: 2,
        write_protected: false,
    };
    csd.emit()
}

/// The device.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) state: CardState,
    pub(super) rca: u16,
    cid: u128,
    csd: u128,
    pub(super) ext_csd: ExtendedCsd,
    /// Error bits the next R1 tells.
    errors: u32,
    /// CMD23 before.
    count: Option<BlockCount>,
    /// CMD35 and CMD36 before.
    pub(super) erase: (Option<u32>, Option<u32>),
    /// Tasks the device has.
    pub(super) tasks: u32,
    /// When it is powered up.
    pub(super) ready_at: u64,
    pub(super) is_busy: bool,
    pub(super) is_powered: bool,
    pub(super) parts: Parts,
    pub(super) rpmb: Rpmb,
    /// What of the user area is protected.
    pub(super) protection: Protection,
    /// What was erased just now: partition, offset, bytes.
    pub(super) erased: Option<(u8, u64, u64)>,
    /// Bytes of the device, whatever partitions take of them.
    size: u64,
    /// Addresses count sectors (0) or bytes (9: a shift).
    pub(super) address_shift: u32,
    /// The voltage of its lines.
    pub(super) signal: Signal,
    /// What an SD card has of its own; its EXT_CSD is all zeros.
    pub(super) sd: Option<Sd>,
}

impl Card {
    /// The device of `config`.
    pub(super) fn new(config: &mut Config) -> Self {
        match config.profile.dialect {
            Dialect::Emmc => Self::emmc(config),
            Dialect::Sd { modes } => Self::sd(config, modes),
        }
    }

    fn emmc(config: &mut Config) -> Self {
        let user = config.store.take().unwrap_or_else(|| Store::memory(config.size));
        let general = core::array::from_fn(|n| config.general.get(n).copied().unwrap_or(0));
        let cid = Cid {
            manufacturer: 0xFE,
            oem: 0x014E,
            product: *b"FLYSCH",
            revision: 0x10,
            serial: config.serial,
            date: 0x0B9,
        };
        Self {
            state: CardState::Idle,
            rca: RCA,
            cid: cid.emit(),
            csd: csd(config.size),
            ext_csd: ExtendedCsd::new(ext_csd::power_on(config)),
            errors: 0,
            count: None,
            erase: (None, None),
            tasks: 0,
            ready_at: POWER_UP_NS,
            is_busy: false,
            is_powered: true,
            parts: Parts::new((user, config.size), config.boot_size, general),
            rpmb: Rpmb::new(config.rpmb_size),
            protection: Protection::default(),
            erased: None,
            size: config.size,
            address_shift: if config.size > BYTES_MAX { 0 } else { 9 },
            signal: Signal::FIXED,
            sd: None,
        }
    }

    /// An SD card: of what an eMMC device has the user area and the registers of its own.
    fn sd(config: &mut Config, modes: u8) -> Self {
        (config.boot_size, config.rpmb_size) = (0, 0);
        config.general.clear();
        let (cid, csd) = sd::registers(config);
        let device = Self::emmc(config);
        let ext_csd = ExtendedCsd::new(ExtCsd::default());
        let sd = Some(Sd::new(modes));
        Self { rca: 0, cid, csd, ext_csd, signal: Signal::HIGH, sd, ..device }
    }

    /// Power came.
    pub(super) fn power_on(&mut self, now: u64) {
        self.reset(now);
        self.signal.power_on();
    }

    /// Power came, or CMD0: everything volatile is as at first.
    fn reset(&mut self, now: u64) {
        self.ext_csd.reset();
        self.state = CardState::Idle;
        self.rca = if self.sd.is_some() { 0 } else { RCA };
        (self.errors, self.tasks) = (0, 0);
        (self.count, self.erase) = (None, (None, None));
        self.is_busy = false;
        self.ready_at = now + POWER_UP_NS;
        if let Some(sd) = &mut self.sd {
            sd.reset();
        }
    }

    /// The data of a command has crossed the bus.
    pub(super) fn end_data(&mut self) {
        self.state = CardState::Transfer;
        if let Some(sd) = &mut self.sd {
            sd.end_data();
        }
    }

    /// It did not cross the bus, or not well. With a count of its own the device is done; else it
    /// waits for CMD12.
    pub(super) fn fail_data(&mut self, counted: bool) {
        if counted {
            self.state = CardState::Transfer;
        }
        if let Some(sd) = &mut self.sd {
            sd.fail_data();
        }
    }

    /// Data lines as the device drives them, and whether on both edges.
    pub(super) fn lines(&self) -> (u8, bool) {
        if let Some(sd) = &self.sd {
            return sd.lines();
        }
        self.ext_csd.lines()
    }

    /// The fastest clock of its timing, Hz.
    pub(super) fn clock_max(&self) -> u64 {
        if matches!(self.state, CardState::Idle | CardState::Ready | CardState::Identification) {
            return 400_000;
        }
        match (&self.sd, self.ext_csd.timing()) {
            (Some(sd), _) => sd.clock_max(),
            (_, hs_timing::LEGACY) => 26_000_000,
            (_, hs_timing::HIGH_SPEED) => 52_000_000,
            _ => 200_000_000,
        }
    }

    /// R1 now; the errors are told once.
    pub(super) fn status(&mut self) -> u32 {
        let state = if self.is_busy { CardState::Programming } else { self.state };
        let status = CardStatus::new()
            .with_state(state)
            .with_ready_for_data(!self.is_busy)
            .with_exception_event(self.ext_csd.has_event());
        status.into_bits() | core::mem::take(&mut self.errors)
    }

    /// An error for the next R1.
    pub(super) fn fail(&mut self, error: CardStatus) {
        self.errors |= error.into_bits();
    }

    pub(super) fn answer(&mut self, busy: Busy) -> Option<Answer> {
        let response = Response::Status(self.status());
        Some(Answer { response, phase: None, busy })
    }

    /// R1 with an error.
    pub(super) fn refuse(&mut self, error: CardStatus) -> Option<Answer> {
        self.fail(error);
        self.answer(Busy::None)
    }

    /// No response, and the next one says why.
    pub(super) fn ignore(&mut self) -> Option<Answer> {
        self.fail(CardStatus::new().with_illegal_command(true));
        None
    }

    /// A command at `now`; `None` is no response. `switch_fails`: a fault.
    pub(super) fn command(
        &mut self,
        index: u8,
        argument: u32,
        (now, switch_fails): (Instant, bool),
    ) -> Option<Answer> {
        if !self.is_powered {
            return None;
        }
        let index = CommandIndex::from_bits(index);
        if self.sd.is_some() {
            return self.sd_command(index, argument, (now.nanos(), switch_fails));
        }
        let mine = self.is_mine(argument);
        match (index, self.state) {
            (CommandIndex::SleepAwake, CardState::Sleep | CardState::StandBy) if mine => {
                self.sleep(argument)
            }
            (CommandIndex::GoIdleState, CardState::Sleep) => {
                self.reset(now.nanos());
                Some(Answer::NONE)
            }
            (_, CardState::Sleep) => None,
            (CommandIndex::SendOpCond, CardState::Idle | CardState::Ready) => {
                Some(self.power_up(argument, now.nanos()))
            }
            (CommandIndex::SetRelativeAddr, CardState::Identification) => {
                self.rca = (argument >> 16) as u16;
                let answer = self.answer(Busy::None);
                self.state = CardState::StandBy;
                answer
            }
            (CommandIndex::SendStatus, _) if mine => self.send_status(argument),
            _ => self.shared_command(index, argument, now.nanos(), |card, count| {
                card.in_transfer(index, argument, (count, switch_fails))
            }),
        }
    }

    /// Whether a command is for this card, which has that address.
    pub(super) fn is_mine(&self, argument: u32) -> bool {
        (argument >> 16) as u16 == self.rca
    }

    /// What both dialects have of the states of a card; `in_transfer` is what is theirs in the
    /// transfer state, with the count of CMD23 before.
    pub(super) fn shared_command(
        &mut self,
        index: CommandIndex,
        argument: u32,
        now: u64,
        in_transfer: impl FnOnce(&mut Self, Option<BlockCount>) -> Option<Answer>,
    ) -> Option<Answer> {
        let count = self.count.take();
        let mine = self.is_mine(argument);
        match (index, self.state) {
            (CommandIndex::GoIdleState, _) => {
                self.reset(now);
                Some(Answer::NONE)
            }
            (CommandIndex::AllSendCid, CardState::Ready) => {
                self.state = CardState::Identification;
                Some(Answer::long(self.cid))
            }
            (CommandIndex::SendCsd, CardState::StandBy) if mine => Some(Answer::long(self.csd)),
            (CommandIndex::SendCid, CardState::StandBy) if mine => Some(Answer::long(self.cid)),
            (CommandIndex::SelectCard, CardState::StandBy) if mine => {
                let answer = self.answer(Busy::None);
                self.state = CardState::Transfer;
                answer
            }
            (CommandIndex::SelectCard, CardState::Transfer) if !mine => {
                self.state = CardState::StandBy;
                Some(Answer::NONE)
            }
            (CommandIndex::StopTransmission, _) if self.is_busy && argument & HPI == 0 => {
                self.answer(Busy::None)
            }
            (_, _) if self.is_busy => self.ignore(),
            (CommandIndex::StopTransmission, CardState::SendingData | CardState::ReceiveData) => {
                let answer = self.answer(Busy::None);
                self.state = CardState::Transfer;
                answer
            }
            (_, CardState::Transfer) => in_transfer(self, count),
            _ => self.ignore(),
        }
    }

    /// Commands that read and write sectors, if they are taken now.
    pub(super) fn sector_command(
        &mut self,
        index: CommandIndex,
        argument: u32,
        count: Option<BlockCount>,
    ) -> Option<Answer> {
        match index {
            CommandIndex::SetBlocklen if argument == 512 => self.answer(Busy::None),
            CommandIndex::SetBlocklen => self.refuse(CardStatus::new().with_block_len_error(true)),
            CommandIndex::ReadSingleBlock => self.transfer(true, argument, ONE),
            CommandIndex::WriteBlock => self.transfer(false, argument, ONE),
            CommandIndex::ReadMultipleBlock => self.transfer(true, argument, count),
            CommandIndex::WriteMultipleBlock => self.transfer(false, argument, count),
            _ => self.ignore(),
        }
    }

    fn power_up(&mut self, argument: u32, now: u64) -> Answer {
        let mut ocr = OCR_VOLTAGES;
        if self.address_shift == 0 {
            ocr |= OCR_SECTOR_MODE;
        }
        if now >= self.ready_at && argument & OCR_VOLTAGES != 0 {
            ocr |= OCR_POWERED_UP;
            self.state = CardState::Ready;
        }
        Answer::of(Response::Ocr(ocr))
    }

    fn sleep(&mut self, argument: u32) -> Option<Answer> {
        let sleeps = argument & SLEEP != 0;
        let answer = self.answer(Busy::For(SLEEP_NS));
        self.state = if sleeps { CardState::Sleep } else { CardState::StandBy };
        answer
    }

    /// CMD13, which may be the high priority interrupt, or ask for the queue.
    fn send_status(&mut self, argument: u32) -> Option<Answer> {
        if argument & SEND_QUEUE_STATUS != 0 {
            return Some(Answer::of(Response::Status(self.tasks)));
        }
        if argument & HPI != 0 && self.ext_csd.has_hpi_on() && self.is_busy {
            return self.answer(Busy::Interrupted);
        }
        self.answer(Busy::None)
    }

    fn in_transfer(
        &mut self,
        index: CommandIndex,
        argument: u32,
        (count, switch_fails): (Option<BlockCount>, bool),
    ) -> Option<Answer> {
        let queueing = self.ext_csd.has_queue_on();
        let sector = argument >> self.address_shift;
        match index {
            CommandIndex::QueuedTaskParams if queueing => self.answer(Busy::None),
            CommandIndex::CmdqTaskMgmt if queueing => self.manage_tasks(argument),
            CommandIndex::Switch => self.switch(SwitchArgument::from_bits(argument), switch_fails),
            CommandIndex::SendExtCsd => {
                self.ext_csd.refresh(self.parts.written(), self.size);
                self.phase(true, Load::ExtCsd, Some(1))
            }
            CommandIndex::SetBlockCount => self.set_count(BlockCount::from_bits(argument)),
            CommandIndex::SendTuningBlock if self.ext_csd.timing() == hs_timing::HS200 => {
                self.phase(true, Load::Tuning, Some(1))
            }
            CommandIndex::EraseGroupStart => self.set_erase_start(argument),
            CommandIndex::EraseGroupEnd => self.set_erase_end(argument),
            CommandIndex::Erase => self.erase_range(argument),
            CommandIndex::SetWriteProt | CommandIndex::ClrWriteProt => {
                self.protect(sector, index == CommandIndex::SetWriteProt)
            }
            CommandIndex::SendWriteProt => {
                self.phase(true, Load::Protection(sector / PROTECT_GROUP), Some(1))
            }
            CommandIndex::SendWriteProtType => {
                self.phase(true, Load::ProtectionTypes(sector / PROTECT_GROUP), Some(1))
            }
            CommandIndex::SetBlocklen => self.sector_command(index, argument, count),
            _ if !queueing => self.sector_command(index, argument, count),
            _ => self.ignore(),
        }
    }

    /// CMD23: of the command that comes next.
    pub(super) fn set_count(&mut self, count: BlockCount) -> Option<Answer> {
        self.count = Some(count);
        self.answer(Busy::None)
    }

    pub(super) fn phase(&mut self, read: bool, load: Load, blocks: Option<u32>) -> Option<Answer> {
        let response = Response::Status(self.status());
        self.state = if read { CardState::SendingData } else { CardState::ReceiveData };
        Some(Answer { response, phase: Some(Phase { read, load, blocks }), busy: Busy::None })
    }

    /// What `blocks` sectors from `first` on are, or why they cannot be moved.
    pub(super) fn range(&self, read: bool, first: u32, blocks: u32) -> Result<u8, CardStatus> {
        let none = CardStatus::new();
        let part = self.ext_csd.selected();
        let end = (u64::from(first) + u64::from(blocks)) * 512;
        if self.parts.size(part).is_none_or(|size| end > size) {
            return Err(none.with_out_of_range(true));
        }
        let is_protected = self.ext_csd.protects(part)
            || part == partition::USER && self.protection.covers(first, blocks);
        if !read && is_protected {
            return Err(none.with_wp_violation(true));
        }
        Ok(part)
    }

    fn transfer(&mut self, read: bool, place: u32, count: Option<BlockCount>) -> Option<Answer> {
        let blocks = count.map(|count| u32::from(count.blocks()));
        let reliable = count.is_some_and(|count| count.reliable() || count.forced());
        if self.ext_csd.selected() == partition::RPMB {
            let blocks = blocks.filter(|&blocks| blocks != 0);
            let Some(blocks) = blocks else {
                return self.refuse(CardStatus::new().with_error(true));
            };
            return self.phase(read, Load::Rpmb(reliable), Some(blocks));
        }
        if !read && self.ext_csd.takes_firmware() {
            if place != FFU_ARGUMENT {
                return self.refuse(CardStatus::new().with_out_of_range(true));
            }
            if let Err(error) = self.ext_csd.whole(0, blocks.unwrap_or(0)) {
                return self.refuse(error);
            }
            return self.phase(false, Load::Firmware, blocks);
        }
        if blocks == Some(0) {
            return self.refuse(CardStatus::new().with_block_len_error(true));
        }
        let first = place >> self.address_shift;
        if first << self.address_shift != place {
            return self.refuse(CardStatus::new().with_address_misalign(true));
        }
        if let Err(error) = self.ext_csd.whole(first, blocks.unwrap_or(0)) {
            return self.refuse(error);
        }
        match self.range(read, first, blocks.unwrap_or(1)) {
            Ok(part) => {
                let offset = u64::from(first) * 512;
                self.phase(read, Load::Sectors { part, offset, force: reliable }, blocks)
            }
            Err(error) => self.refuse(error),
        }
    }

    fn switch(&mut self, argument: SwitchArgument, fails: bool) -> Option<Answer> {
        let effect = match fails || self.chooses_nothing(argument) {
            true => None,
            false => self.ext_csd.switch(argument, self.tasks != 0),
        };
        let effect = match effect {
            Some(Switched::Partitioned) => {
                let layout = self.ext_csd.complete(self.size, self.address_shift);
                layout.map(|layout| {
                    self.parts.set_next(layout);
                    Switched::Value
                })
            }
            effect => effect,
        };
        let answer = |card: &mut Self, busy| card.answer(busy);
        match effect {
            None => {
                let answer = answer(self, Busy::For(SWITCH_NS));
                self.fail(CardStatus::new().with_switch_error(true));
                answer
            }
            Some(Switched::Flush(true) | Switched::CacheOff | Switched::PowerOff) => {
                answer(self, Busy::Medium)
            }
            Some(Switched::Bkops) => {
                self.ext_csd.set_urgent(false);
                answer(self, Busy::For(BKOPS_NS))
            }
            Some(Switched::Sanitize) => answer(self, Busy::For(SANITIZE_NS)),
            Some(_) => answer(self, Busy::For(SWITCH_NS)),
        }
    }

    /// A partition to be selected whose size is written, and which is made at the next power-on.
    fn chooses_nothing(&self, argument: SwitchArgument) -> bool {
        let access = argument.value() & partition::MASK;
        argument.access() == access::WRITE_BYTE
            && argument.index() == at::PARTITION_CONFIG
            && access >= partition::GP1
            && self.parts.size(access).is_none()
    }

    /// After power-on the device is the one that was asked for. What was in the user area stays as
    /// far as it fits; the partitions are empty.
    pub(super) fn take_partitions(&mut self) {
        let Some(layout) = self.parts.take_next() else { return };
        self.ext_csd.set_user(layout.user);
        if self.size <= BYTES_MAX {
            self.csd = csd(layout.user);
        }
        self.protection.clear();
    }

    /// CMD44 and CMD45 of the engine: a task, or the error the device answers with.
    pub(super) fn queue(&mut self, read: bool, first: u32, blocks: u32) -> Result<u8, CardStatus> {
        if !self.ext_csd.has_queue_on() || blocks == 0 {
            return Err(CardStatus::new().with_illegal_command(true));
        }
        self.ext_csd.whole(first, blocks)?;
        self.range(read, first, blocks)
    }

    fn manage_tasks(&mut self, argument: u32) -> Option<Answer> {
        match argument & 0xF {
            DISCARD_QUEUE => self.tasks = 0,
            DISCARD_TASK => self.tasks &= !(1 << (argument >> 16 & 0x1F)),
            _ => return self.refuse(CardStatus::new().with_error(true)),
        }
        self.answer(Busy::None)
    }
}

/// One block.
const ONE: Option<BlockCount> = Some(BlockCount::new().with_blocks(1));
